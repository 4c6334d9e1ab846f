"""
Syncing: many logs at once, away from the reactor.

Threads are used for ``fdatasync``, ``fsync`` and ``syncfs`` only; all of them
release the GIL.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from queue import SimpleQueue
from typing import Final, Protocol

from tinymq.errors import TinyMQError, TooManyOpenFiles
from tinymq.storage.disk import Disk
from tinymq.storage.facts import SyncTicket
from tinymq.storage.files import OpenFile

__all__ = ["InlineSyncer", "PoolSyncer", "SyncTicket", "Syncer", "sync_group"]

#: The result of each ticket: None, or why its log is to go offline.
Results = dict[SyncTicket, OSError | None]
Done = Callable[[Results], None]

#: Up to so many files are synced one by one, more by one `syncfs`.
MOST_FILES: Final = 8


class Syncer(Protocol):
    """What makes written bytes durable."""

    def sync(self, tickets: Sequence[SyncTicket], done: Done) -> None:
        """
        Sync everything that the tickets name.

        Args:
            tickets: From `Log.begin_sync`.
            done: Called once with the result of every ticket, in the thread that
                owns the logs.
        """

    def close(self) -> None:
        """Finish what was begun, and stop."""


def sync_group(disk: Disk, tickets: Sequence[SyncTicket], *, one_by_one: bool = False) -> Results:
    """
    Sync tickets in this thread.

    Args:
        disk: The disk.
        tickets: What to sync.
        one_by_one: Never use `syncfs`.
    """
    files = sum(len(ticket.files) for ticket in tickets)
    if files > MOST_FILES and not one_by_one:
        return _all_at_once(disk, tickets)
    return {ticket: _sync_ticket(disk, ticket) for ticket in tickets}


def _all_at_once(disk: Disk, tickets: Sequence[SyncTicket]) -> Results:
    folders = dict.fromkeys(folder for ticket in tickets for folder in ticket.folders)
    error = _attempt(lambda: _sync_folders(disk, folders))
    if error is None:
        path = next(file.path for ticket in tickets for file in ticket.files)
        error = _attempt(lambda: disk.syncfs(path))
    return dict.fromkeys(tickets, error)


def _sync_ticket(disk: Disk, ticket: SyncTicket) -> OSError | None:
    if ticket.folders:
        error = _attempt(lambda: _sync_folders(disk, ticket.folders))
        if error is not None:
            return error
    for file in ticket.files:
        error = _sync_file(disk, file)
        if error is not None:
            return error
    return None


def _sync_folders(disk: Disk, folders: Iterable[str]) -> None:
    for folder in folders:
        try:
            disk.fsync_dir(folder)
        except TooManyOpenFiles:
            # The descriptor for `syncfs` is open since the start, and it covers names too.
            disk.syncfs(folder)
            return


def _sync_file(disk: Disk, file: OpenFile) -> OSError | None:
    try:
        disk.fdatasync(file.descriptor)
    except OSError as error:
        return error
    return None


def _attempt(action: Callable[[], None]) -> OSError | None:
    try:
        action()
    except OSError as error:
        return error
    except TinyMQError as error:
        return _cause(error)
    return None


def _cause(error: TinyMQError) -> OSError:
    cause = error.__cause__
    return cause if isinstance(cause, OSError) else OSError(str(error))


class InlineSyncer:
    """
    Syncs in the caller's thread, before `sync` returns; for tests and tools.

    Args:
        disk: The disk.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def sync(self, tickets: Sequence[SyncTicket], done: Done) -> None:
        """Sync at once; `done` is called before this returns."""
        done(sync_group(self._disk, tickets))

    def close(self) -> None:
        """Do nothing: nothing is ever open."""


class _Group:
    """Tickets of one `sync`, of which several threads do parts."""

    __slots__ = ("done", "left", "results", "tickets")

    def __init__(self, tickets: Sequence[SyncTicket], done: Done, parts: int) -> None:
        self.tickets = tickets
        self.done = done
        self.left = parts
        self.results: Results = {}


_Job = tuple[_Group, Sequence[SyncTicket], bool]


class PoolSyncer:
    """
    Syncs in a few threads of its own.

    A group of one ticket costs one hop to a thread and one back. After a
    ``syncfs`` failed it is not used again: the kernel reports such an error once
    for the whole file system, the errors of single files to each of them. For the
    same reason two groups never use it at the same time.

    Args:
        disk: The disk.
        call_from_thread: Calls a function with arguments in the thread that owns
            the logs, such as ``reactor.callFromThread``.
        threads: How many.
    """

    def __init__(
        self, disk: Disk, call_from_thread: Callable[..., object], threads: int = 4
    ) -> None:
        self._disk = disk
        self._call = call_from_thread
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._one_by_one = False
        #: The group that uses `syncfs`, and parts of groups that are under way.
        self._whole: _Group | None = None
        self._busy = 0
        self._wanted = threads
        self._threads: list[threading.Thread] = []

    def sync(self, tickets: Sequence[SyncTicket], done: Done) -> None:
        """
        Sync everything that the tickets name.

        Args:
            tickets: From `Log.begin_sync`.
            done: Called once with all results, through `call_from_thread`.
        """
        files = sum(len(ticket.files) for ticket in tickets)
        with self._lock:
            whole = files > MOST_FILES and not (self._one_by_one or self._whole)
            parts = 1 if whole else min(self._wanted, len(tickets))
            group = _Group(tickets, done, parts)
            if whole:
                self._whole = group
            self._busy += parts
            wanted = min(self._wanted, self._busy)
        while len(self._threads) < wanted:
            self._start_thread()
        for part in range(parts):
            self._jobs.put((group, tickets[part::parts], not whole))

    def close(self) -> None:
        """Finish what was begun, and stop the threads."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _start_thread(self) -> None:
        name = f"tinymq-sync-{len(self._threads)}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            group, tickets, one_by_one = job
            results = sync_group(self._disk, tickets, one_by_one=one_by_one)
            with self._lock:
                group.results.update(results)
                group.left -= 1
                self._busy -= 1
                last = not group.left
                if not one_by_one:
                    self._whole = None
                    self._one_by_one = self._one_by_one or any(results.values())
            if last:
                self._call(group.done, group.results)
