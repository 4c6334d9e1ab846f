"""
What a broker must remember of its schedules, so that each of their times comes once.

One file in the data folder: four bytes of magic, a checksum, and in msgpack::

    [1, [[topic id, partition, mark, form, done, due, floor, id, runs, missed, last], ...]]

What is about to be put is written first. So after a crash it is known which message was
meant, and that those with lower ids were meant before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from attrs import define
from twisted.logger import Logger

from tinymq.broker.ports import Background, Scheduler, Timer
from tinymq.errors import StorageError, TinyMQError
from tinymq.storage.disk import Disk
from tinymq.storage.sealed import seal, unseal

_MAGIC: Final = b"TMQC"
_VERSION: Final = 1

#: The topic's id, the partition, and the schedule's mark.
Place = tuple[bytes, int, str]


@define
class Entry:
    """
    What is remembered of a schedule.

    Attributes:
        form: Tells its present form from those that it had.
        done_ms: All its times up to this one are dealt with.
        due_ms: The time whose message is put, or is to be put; None if there is none.
        floor: Messages of lower ids were meant before, for another time or form.
        id: That of the message once it is put.
        runs: Messages so far.
        missed: Times that did not come.
        last_ms: When the last message came; None if none did.
    """

    form: str = ""
    done_ms: int = 0
    due_ms: int | None = None
    floor: int = 0
    id: int | None = None
    runs: int = 0
    missed: int = 0
    last_ms: int | None = None

    def row(self) -> list[Any]:
        """Return it as it is written."""
        times = [self.form, self.done_ms, self.due_ms, self.floor, self.id]
        return [*times, self.runs, self.missed, self.last_ms]


class Book:
    """
    The file.

    Args:
        disk: The disk.
        path: The file.
        scheduler: Real length of time.
        background: Where is waited for the disk.
    """

    _log = Logger()

    def __init__(self, disk: Disk, path: str, scheduler: Scheduler, background: Background) -> None:
        self._disk = disk
        self._path = path
        self._scheduler = scheduler
        self._background = background
        #: By topic and partition, and then by mark.
        self._entries: dict[tuple[bytes, int], dict[str, Entry]] = {}
        #: Partitions of topics that are in memory only: they are not written.
        self._volatile: set[tuple[bytes, int]] = set()
        #: Whether a schedule that is not here is a new one, and not one that was forgotten.
        self.whole = False
        self._waiting: list[Callable[[OSError | TinyMQError | None], None]] = []
        self._timer: Timer | None = None
        self._writing = False
        self._changed = False

    def load(self) -> None:
        """Read the file; one that cannot be read is as good as none, with a word in the log."""
        try:
            content = self._disk.read_file(self._path)
            if content is not None:
                for place, entry in _rows(unseal(_MAGIC, bytes(content), self._path)):
                    self._entries.setdefault(place[:2], {})[place[2]] = entry
                self.whole = True
        except (OSError, StorageError, TypeError, ValueError) as error:
            self._log.error(
                "{path} cannot be read ({error}): schedules go on, and count anew",
                path=self._path,
                error=error,
            )

    def find(self, place: Place) -> Entry | None:
        """Return what is remembered of a schedule, None if nothing."""
        return self._entries.get(place[:2], {}).get(place[2])

    def marks(self, topic_id: bytes, partition: int) -> list[str]:
        """Return the marks of the schedules of a partition of which something is remembered."""
        return [*self._entries.get((topic_id, partition), ())]

    def add(self, place: Place, *, volatile: bool) -> Entry:
        """
        Begin to remember a schedule.

        Args:
            place: Where it is.
            volatile: Whether this ends with the process.
        """
        if volatile:
            self._volatile.add(place[:2])
        entry = self._entries.setdefault(place[:2], {})[place[2]] = Entry()
        return entry

    def forget(self, place: Place) -> None:
        """Remember nothing of a schedule."""
        if self._entries.get(place[:2], {}).pop(place[2], None) is not None:
            self.touch()

    def touch(self) -> None:
        """Say that something changed that may be lost in a crash; it is written before long."""
        self._changed = True

    def save(self, done: Callable[[OSError | TinyMQError | None], None]) -> None:
        """
        Write everything.

        Args:
            done: Called when it is on the disk, or with what is wrong; always later.
        """
        self._waiting.append(done)
        if self._timer is None and not self._writing:
            # Whatever else changes in this turn is written with it.
            self._timer = self._scheduler.callLater(0, self._write)

    def save_now(self) -> OSError | TinyMQError | None:
        """
        Write everything and wait for the disk; not while a write is under way.

        Returns:
            What is wrong, if something is.
        """
        try:
            self._disk.replace_file(self._path, self._content())
        except (OSError, TinyMQError) as error:
            return error
        self._changed, self.whole = False, True
        return None

    def close(self) -> None:
        """Write what was not written yet, here and now."""
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None
        if (self._changed or self._waiting) and not self._writing:
            error = self.save_now()
            if error is not None:
                self._log.error("{path} is not written: {error}", path=self._path, error=error)
        self._waiting.clear()

    def _write(self) -> None:
        self._timer = None
        waiting, self._waiting = self._waiting, []
        content = self._content()
        failed: list[OSError | TinyMQError] = []
        self._writing, self._changed = True, False

        def work() -> None:
            try:
                self._disk.replace_file(self._path, content)
            except (OSError, TinyMQError) as error:
                failed.append(error)

        def done() -> None:
            self._writing = False
            error = failed[0] if failed else None
            self.whole = self.whole or error is None
            self._changed = self._changed or error is not None
            if self._waiting and self._timer is None:
                self._timer = self._scheduler.callLater(0, self._write)
            for each in waiting:
                each(error)

        self._background.submit(work, done)

    def _content(self) -> bytes:
        rows = [
            [*home, mark, *entry.row()]
            for home, entries in self._entries.items()
            if home not in self._volatile
            for mark, entry in entries.items()
        ]
        return seal(_MAGIC, [_VERSION, rows])


def _rows(told: Any) -> Iterator[tuple[Place, Entry]]:
    version, rows = told
    if version != _VERSION:
        raise ValueError(f"it is of version {version}")
    for topic_id, partition, mark, *facts in rows:
        yield (topic_id, partition, mark), Entry(*facts)
