"""
A thread that lets a blocking client go on while nobody calls it.

Leases must be renewed while the caller is busy with a message. So as long as there is a
subscription, this thread waits for what comes, and for what is due. It waits without the
lock, so that it is in nobody's way, and does its work under it, as every call does.
"""

from __future__ import annotations

import contextlib
import os
import select
from math import ceil
from threading import Thread
from typing import Final

from tinymq.sync.loop import Loop

#: Seconds after which it looks in any case.
_LOOK_S: Final = 1.0
#: Seconds that connecting may take, during which calls wait.
_BRIEF_S: Final = 0.25


class Keeper:
    """
    Serves a loop while somebody needs it.

    Args:
        loop: What it serves; its lock is held by whoever calls `start` and `stop`.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._users = 0
        self._bell: tuple[int, int] | None = None

    def start(self) -> None:
        """Begin, or note that one more needs it."""
        self._users += 1
        if self._bell is None:
            self._bell = os.pipe()
            for end in self._bell:
                os.set_blocking(end, False)
            Thread(target=self._run, args=self._bell, name="tinymq-keeper", daemon=True).start()

    def stop(self) -> None:
        """End, unless somebody else needs it."""
        self._users -= 1
        if not self._users:
            self.ring()
            self._bell = None

    def ring(self) -> None:
        """Let it look at once."""
        if self._bell is not None:
            with contextlib.suppress(BlockingIOError):
                os.write(self._bell[1], b"\0")

    def _run(self, ear: int, bell: int) -> None:
        loop = self._loop
        while True:
            with loop.lock:
                if self._bell != (ear, bell):
                    os.close(ear)
                    os.close(bell)
                    return
                pause = self._work()
                watched = loop.network.watched
            poll = select.poll()
            poll.register(ear, select.POLLIN)
            for number, events in watched.items():
                poll.register(number, events)
            if any(number == ear for number, _ in poll.poll(ceil(pause * 1000))):
                os.read(ear, 4096)

    def _work(self) -> float:
        """Do what is due, and say how long nothing will be."""
        loop = self._loop
        loop.network.patience = _BRIEF_S
        try:
            loop.glance()
        except Exception as error:  # noqa: BLE001 - of a callback of the caller
            loop.network.report("a callback failed", error)
        return min(_LOOK_S, max(0.0, loop.cluster.wake_at - loop.now()))
