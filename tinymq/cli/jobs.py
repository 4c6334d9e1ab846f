"""
Commands that are run for messages: what they are told, and what their end means.

::

    0   the message is finished
    65  it is rejected: it goes to the dead-letter topic at once (EX_DATAERR)
    any other, and a signal: it failed, and comes again after the channel's back-off
"""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from threading import Event, Lock, Thread
from typing import IO, TYPE_CHECKING, Final, Literal

from attrs import frozen

from tinymq.cli.failure import USAGE, Failed
from tinymq.cli.output import json_text
from tinymq.cli.render import Placed, document, text
from tinymq.cli.values import iso
from tinymq.errors import LeaseLost

if TYPE_CHECKING:
    from tinymq.sync import Message

#: Bytes that are kept of what a command says on stderr.
_TAIL: Final = 500
#: Longest variable, and most bytes of all: Linux takes no text of 128 KiB, and about 2 MiB in all.
_VARIABLE: Final = 32 * 1024
_VARIABLES: Final = 256 * 1024
#: Seconds for the last words of a command that has ended; who it left behind may hold the pipe.
_LAST_WORDS_S: Final = 0.2

_STDOUT: Final = 1

What = Literal["finished", "requeued", "rejected", "given_back", "lost"]


@frozen
class Outcome:
    """
    What became of a message.

    Attributes:
        what: In a word.
        status: Exit status of its command; None if that did not end by itself.
        reason: What went wrong, if anything.
    """

    what: What
    status: int | None = None
    reason: str = ""


@frozen
class Command:
    """
    What is run for each message.

    Attributes:
        words: The program and its arguments.
        channel: Name of the channel.
        url: Where the broker is.
        apart: Send its stdout to stderr, for our own holds something else.
    """

    words: tuple[str, ...]
    channel: str
    url: str
    apart: bool = False

    @classmethod
    def parse(cls, line: str, channel: str, url: str, *, shell: bool, apart: bool) -> Command:
        """
        Read a command line.

        Args:
            line: What was typed behind ``--exec``.
            channel: Name of the channel.
            url: Where the broker is.
            shell: Leave it to ``sh``; otherwise only quotes mean something in it.
            apart: Send its stdout to stderr.

        Raises:
            Failed: There is no such program.
        """
        try:
            words = ("sh", "-c", line) if shell else tuple(shlex.split(line))
        except ValueError as error:
            raise Failed(f"--exec: {error}", status=USAGE) from None
        if not words or shutil.which(words[0]) is None:
            hint = "" if shell else "--shell lets sh run the line"
            raise Failed(f"--exec: there is no program {' '.join(words[:1])!r}", hint, USAGE)
        return cls(words, channel, url, apart)

    def variables(self, message: Message) -> dict[str, str]:
        """
        Say what a message is, for the environment of its command.

        What nobody can pass on is left out: a key with NUL in it, or one that is too long.

        Args:
            message: The message.
        """
        headers = document(Placed(message.topic, message.partition, message.record))["headers"]
        found: dict[str, str | bytes | None] = {
            "URL": self.url,
            "TOPIC": message.topic,
            "CHANNEL": self.channel,
            "PARTITION": str(message.partition),
            "OFFSET": str(message.offset),
            "TIME": iso(message.timestamp),
            "ATTEMPT": str(message.attempt),
            "FAILURES": str(message.failures),
            "KEY": message.key,
            "HEADERS": json_text(headers),
        }
        for name, value in message.headers:
            word = "".join(each if each.isascii() and each.isalnum() else "_" for each in name)
            found[f"HEADER_{word.upper()}"] = value
        left = _VARIABLES
        passed: dict[str, str] = {}
        for name, given in found.items():
            content = b"" if given is None else os.fsencode(given)
            if given is not None and b"\0" not in content and len(content) <= min(_VARIABLE, left):
                left -= len(content)
                passed[f"TINYMQ_{name}"] = os.fsdecode(content)
        return passed


class _Words:
    """
    Passes on what a command says, and keeps the end of it.

    Args:
        stream: Where the command says it.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._kept = b""
        self._thread = Thread(target=self._pass_on, daemon=True)
        self._thread.start()

    def _pass_on(self) -> None:
        with self._stream:
            while some := os.read(self._stream.fileno(), 64 * 1024):
                self._kept = (self._kept + some)[-_TAIL:]
                with contextlib.suppress(OSError, ValueError):
                    sys.stderr.buffer.write(some)
                    sys.stderr.flush()

    def last(self) -> str:
        """Give the end of it on one line."""
        self._thread.join(_LAST_WORDS_S)
        return " ".join(text(self._kept).split())


class Job:
    """
    The command of one message.

    Args:
        command: What is run.
        message: For which message.
    """

    def __init__(self, command: Command, message: Message) -> None:
        self.message = message
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._over = Event()
        self._lock = Lock()

    def run(self) -> Outcome:
        """
        Run it, and settle the message.

        Raises:
            BrokenPipeError: Nobody reads our output any more. The message is still ours.
            OSError: It cannot be run. The message is still ours.
        """
        outcome = self._run()
        try:
            return _settle(self.message, outcome)
        except LeaseLost:
            return Outcome("lost", outcome.status, "the message was not ours any more")

    def end(self, number: int) -> None:
        """
        Send a signal to the command and all that it started.

        Args:
            number: The signal.
        """
        with self._lock:
            self._over.set()
            if self._process is not None and self._process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, number)

    def _run(self) -> Outcome:
        with tempfile.TemporaryFile() as body:
            body.write(self.message.value or b"")
            body.seek(0)
            with self._lock:
                if self._over.is_set():
                    return Outcome("given_back")
                process = self._process = self._start(body)
        stream = process.stdout if self._command.apart else process.stderr
        assert stream is not None
        words = _Words(stream)
        status = process.wait()
        said = words.last()  # also of one that went well: we may end before it is passed on
        if status == 0:
            return Outcome("finished", 0)
        if self._over.is_set():
            return Outcome("given_back", reason="its command was ended")
        if not self._command.apart and _reader_gone():
            raise BrokenPipeError
        reason = _ending(status) + (f": {said}" if said else "")
        return Outcome("rejected" if status == os.EX_DATAERR else "requeued", status, reason)

    def _start(self, body: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start it in a session of its own, so that Ctrl-C is for us alone."""
        pipe = subprocess.PIPE
        return subprocess.Popen(  # noqa: S603 - what the user asked for
            self._command.words,
            stdin=body,
            stdout=pipe if self._command.apart else None,
            stderr=subprocess.STDOUT if self._command.apart else pipe,
            env=os.environ | self._command.variables(self.message),
            start_new_session=True,
        )


def _reader_gone() -> bool:
    """Whether our stdout is a pipe that nobody reads: a command cannot be blamed for that."""
    poll = select.poll()
    poll.register(_STDOUT, 0)  # only errors
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _ending(status: int) -> str:
    """Say how a command ended."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"ended by signal {-status}"


def _settle(message: Message, outcome: Outcome) -> Outcome:
    """Tell the broker what became of a message."""
    if outcome.what == "finished" or not message.lease:  # without a lease it is settled already
        message.finish()
    elif outcome.what == "rejected":
        message.reject(outcome.reason)
    elif outcome.what == "requeued":
        message.requeue(reason=outcome.reason)
    else:
        message.give_back()
    return outcome
