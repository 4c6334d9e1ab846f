"""Say so when a program ends with messages that nobody waited for."""

from __future__ import annotations

import atexit
import os
import sys
from typing import Protocol, TextIO
from weakref import WeakSet


class Unfinished(Protocol):
    """Something that may hold messages."""

    @property
    def pending(self) -> int:
        """Messages without an answer."""


class Watch:
    """The open producers of this process."""

    def __init__(self) -> None:
        self._open: WeakSet[Unfinished] = WeakSet()

    def add(self, producer: Unfinished) -> None:
        """
        Watch a producer until it is removed.

        Args:
            producer: The producer.
        """
        self._open.add(producer)

    def remove(self, producer: Unfinished) -> None:
        """
        Stop watching.

        Args:
            producer: The producer.
        """
        self._open.discard(producer)

    def forked(self) -> None:
        """Forget all: they belong to the parent."""
        self._open.clear()

    def report(self, stream: TextIO | None = None) -> int:
        """
        Write one line if messages are lost.

        Args:
            stream: Where to; standard error unless given.

        Returns:
            How many are lost.
        """
        lost = sum(producer.pending for producer in self._open)
        if lost:
            (stream or sys.stderr).write(
                f"tinymq: {lost} messages were not confirmed and may be lost, because a producer "
                "was never closed; call close() and look at what it returns\n"
            )
        return lost


WATCH = Watch()
atexit.register(WATCH.report)
os.register_at_fork(after_in_child=WATCH.forked)
