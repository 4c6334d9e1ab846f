"""
The process that cleans files: started by a broker, and gone with it.

It reads requests on its standard input and writes events on its standard output,
each a msgpack array behind its length in four bytes. It cleans one log at a
time, as slowly as it was told, and does nothing until the next event is asked
for. When its input ends, so does it, whatever it is doing.
"""

from __future__ import annotations

import os
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, BinaryIO, Final

import msgpack

from tinymq.errors import TinyMQError
from tinymq.storage.compaction import clean
from tinymq.storage.disk import Disk
from tinymq.storage.tasks import Cleaned, Damaged, Done, Event, Task

LENGTH: Final = struct.Struct(">I")
#: How much less of the processor it wants than others.
_NICE: Final = 10
#: Seconds that it may be behind its rate before it waits.
_SLACK: Final = 0.02
_KINDS: Final = {"damaged": Damaged, "cleaned": Cleaned, "done": Done}


def frame(message: list[Any]) -> bytes:
    """
    Make a message to be sent.

    Args:
        message: Plain values.
    """
    content = msgpack.packb(message)
    return LENGTH.pack(len(content)) + bytes(content)


def sent(event: Event) -> list[Any]:
    """
    Make an event plain values.

    Args:
        event: What happened.
    """
    return [type(event).__name__.lower(), *event]


def event_of(message: list[Any]) -> Event | str:
    """
    Read what came from the process.

    Args:
        message: Plain values.

    Returns:
        The event, or why there is none.
    """
    kind, *values = message
    if kind == "cleaned":
        values[5] = tuple((base, size) for base, size in values[5])
    return _KINDS[kind](*values) if kind in _KINDS else str(values[0])


class Rate:
    """
    Waits so that no more than so many bytes go to and fro in a second.

    Args:
        rate: Bytes; 0 is no bound.
        clock: Tells seconds.
        sleep: Waits for seconds.
    """

    def __init__(
        self,
        rate: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = rate
        self._clock = clock
        self._sleep = sleep
        self._free_at = clock()

    def __call__(self, size: int) -> None:
        """Take some bytes into account, and wait if they are too many."""
        if not self._rate:
            return
        now = self._clock()
        self._free_at = max(self._free_at, now) + size / self._rate
        if self._free_at - now > _SLACK:
            self._sleep(self._free_at - now)


class Server:
    """
    Answers requests.

    Args:
        requests: Gives the next one.
        answer: Takes what is to be sent.
    """

    def __init__(self, requests: Callable[[], list[Any]], answer: Callable[[bytes], None]) -> None:
        self._requests = requests
        self._answer = answer

    def serve(self) -> None:
        """Clean what is asked for next."""
        kind, *values = self._requests()
        if kind != "clean":
            return
        task = Task.from_map(values[0])
        try:
            for event in clean(Disk(), task, Rate(task.rate)):
                self._answer(frame(sent(event)))
                if not isinstance(event, Done):
                    self._requests()
        except (OSError, TinyMQError) as error:
            self._answer(frame(["failed", str(error) or type(error).__name__]))


def read_frame(stream: BinaryIO) -> list[Any] | None:
    """
    Read a message.

    Args:
        stream: Waits for what comes.

    Returns:
        None at its end.
    """
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    content = stream.read(LENGTH.unpack(head)[0])
    return list(msgpack.unpackb(content, strict_map_key=False))


def main() -> None:
    """Serve until the input ends."""
    # Who stops the broker at a terminal stops this one with it, not beside it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(OSError):
        os.nice(_NICE)
    requests: SimpleQueue[list[Any]] = SimpleQueue()

    def listen() -> None:
        while (message := read_frame(sys.stdin.buffer)) is not None:
            requests.put(message)
        os._exit(0)

    def answer(data: bytes) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    threading.Thread(target=listen, daemon=True).start()
    server = Server(requests.get, answer)
    while True:
        server.serve()


if __name__ == "__main__":
    main()
