"""Where files are cleaned: what a broker asks of that place, and the one that is a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from tinymq.broker.ports import Background
from tinymq.errors import TinyMQError
from tinymq.storage.compaction import clean
from tinymq.storage.disk import Disk
from tinymq.storage.tasks import Event, Task


class Failed(NamedTuple):
    """A cleaning ended before its time, and why."""

    reason: str


#: Told of each event, one after the other.
Tell = Callable[[Event | Failed], None]


class Worker(Protocol):
    """Cleans one log at a time."""

    def begin(self, task: Task, tell: Tell) -> None:
        """
        Begin to clean.

        Args:
            task: What is to be done.
            tell: Told of each event; the next comes once it was asked for.
        """

    def go_on(self) -> None:
        """Ask for the next event."""

    def stop(self) -> None:
        """Leave what was begun; nothing more is told of it."""

    def rest(self) -> None:
        """There is nothing to do for now."""


class ThreadWorker:
    """
    Cleans in a thread of this process, for what is embedded, and for tests.

    Args:
        background: Runs what waits for the disk.
        disk: The disk.
    """

    def __init__(self, background: Background, disk: Disk) -> None:
        self._background = background
        self._disk = disk
        self._events: Iterator[Event] | None = None
        self._tell: Tell | None = None

    def begin(self, task: Task, tell: Tell) -> None:
        """Begin to clean."""
        self._events, self._tell = clean(self._disk, task), tell
        self.go_on()

    def go_on(self) -> None:
        """Ask for the next event."""
        events, tell = self._events, self._tell
        if events is None or tell is None:
            return
        found: list[Event | Failed] = []

        def work() -> None:
            try:
                found.append(next(events))
            except (OSError, TinyMQError, StopIteration) as error:
                found.append(Failed(str(error) or type(error).__name__))

        def done() -> None:
            if self._events is events:
                tell(found[0] if found else Failed("nobody knows why"))

        self._background.submit(work, done)

    def stop(self) -> None:
        """Leave what was begun."""
        self._events = self._tell = None

    def rest(self) -> None:
        """There is nothing to end."""
