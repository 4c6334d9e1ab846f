"""
The MetaServer's durable table: keys and values in etcd's shape, on SQLite.

What a caller may do here, etcd can do too, so that a cluster may put etcd in
its place: read a range at a revision, write a transaction that depends on
comparisons, watch a range from a revision on, and tie keys to a lease.

Every transaction that changes something is one revision, a number that only
rises. The one table keeps every version of every key until `compact`: a row is
``(key, revision)`` and a deleted key is a row whose value is NULL.

All calls are plain functions of one thread. A write ends with one fsync.
"""

from __future__ import annotations

import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

from attrs import define

from tinymq.errors import ClosedError, InvalidRequest, StateError, StorageError, StorageFull
from tinymq.meta.ballast import Ballast
from tinymq.meta.entries import LAST_KEY, Compare, Delete, Entry, Event, Put, Write, prefix
from tinymq.meta.sqlite import connect, transaction, translated

_SCHEMA: Final = """
CREATE TABLE entries (
    key TEXT NOT NULL,           -- '' holds the compacted revision
    revision INTEGER NOT NULL,
    value BLOB,                  -- NULL: deleted
    created INTEGER NOT NULL,    -- revision at which the key came to be
    version INTEGER NOT NULL,    -- writes since then
    lease INTEGER NOT NULL,      -- 0: none
    PRIMARY KEY (key, revision)
) WITHOUT ROWID;
CREATE INDEX entries_by_revision ON entries (revision)
"""

_COLUMNS: Final = "key, value, created, revision, version, lease"
_LEASES: Final = "lease/"


#: Called with all events of one revision that fall into the watched range.
Listener: TypeAlias = Callable[[tuple[Event, ...]], None]


@define(eq=False)
class Watch:
    """A running watch; `cancel` ends it at once."""

    start: str
    end: str
    listener: Listener
    #: The first revision that the listener has not heard.
    next_revision: int
    _watches: list[Watch]

    def cancel(self) -> None:
        """Hear no more; may be called at any time, also by the listener."""
        if self in self._watches:
            self._watches.remove(self)

    def select(self, events: Sequence[Event]) -> tuple[Event, ...]:
        """Return the events of the watched range."""
        if events[0].revision < self.next_revision:
            return ()
        return tuple(event for event in events if self.start <= event.key < self.end)


@define
class _Lease:
    seconds: float
    deadline: float


class Store:
    """
    The table.

    Args:
        file: The database.
        create: Whether to make a missing file.
        monotonic: The clock of the leases, in seconds.
        ballast: What is given up for vital writes when the disk is full; a file
            beside the database, if not given.

    Raises:
        StorageError: The file is missing, damaged, in use or not ours.
    """

    def __init__(
        self,
        file: Path,
        *,
        create: bool = True,
        monotonic: Callable[[], float] = time.monotonic,
        ballast: Ballast | None = None,
    ) -> None:
        self.file = file
        self._ballast = ballast or Ballast(file.with_name(file.name + "-ballast"), monotonic)
        self._monotonic = monotonic
        self._connection: sqlite3.Connection | None = connect(file, _SCHEMA, create=create)
        self._failed: StorageError | None = None
        self._watches: list[Watch] = []
        self._events: deque[tuple[Event, ...]] = deque()
        self._announcing = False
        #: The revision of the last write.
        self.revision = self._newest("")
        #: The oldest revision that can be read.
        self.compacted = self._newest("WHERE key = ''")
        # As in etcd, a lease that outlived its server starts anew.
        self._leases = {
            int(entry.key.removeprefix(_LEASES)): self._lease(float(entry.value))
            for entry in self.range(*prefix(_LEASES))
        }

    def close(self) -> None:
        """Close the file; every later call fails."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._watches.clear()

    # --- read

    def get(self, key: str, revision: int | None = None) -> Entry | None:
        """Return a key as it is, or was at a revision."""
        found = self.range(key, key + "\0", revision)
        return found[0] if found else None

    def range(
        self, start: str, end: str, revision: int | None = None, limit: int = -1
    ) -> tuple[Entry, ...]:
        """
        Return the keys from `start` up to, but without, `end`, in order.

        Args:
            start: The first key.
            end: The first key no longer wanted.
            revision: As it was then; now, if not given.
            limit: At most so many.

        Raises:
            InvalidRequest: The revision was compacted or is yet to come.
        """
        at = self.revision if revision is None else revision
        if at > self.revision or at < self.compacted:
            raise InvalidRequest(
                f"revision {at} is not between {self.compacted} and {self.revision}",
                field="revision",
                oldest=self.compacted,
                newest=self.revision,
            )
        with translated(self.file):
            rows = self._sql(
                f"SELECT {_COLUMNS} FROM entries AS e"  # noqa: S608 a constant
                " WHERE key >= ? AND key < ? AND value IS NOT NULL AND revision ="
                " (SELECT max(revision) FROM entries WHERE key = e.key AND revision <= ?)"
                " ORDER BY key LIMIT ?",
                max(start, "\0"),
                end,
                at,
                limit,
            )
        return tuple(Entry(*row) for row in rows)

    # --- write

    def put(self, key: str, value: bytes, lease: int = 0) -> int:
        """Write one key and return the revision."""
        self.transact([], [Put(key, value, lease)])
        return self.revision

    def delete(self, key: str) -> bool:
        """Delete one key and say whether it was there."""
        found = self.get(key) is not None
        if found:
            self.transact([], [Delete(key)])
        return found

    def transact(
        self,
        compares: Sequence[Compare],
        writes: Sequence[Write],
        otherwise: Sequence[Write] = (),
        *,
        vital: bool = False,
    ) -> bool:
        """
        Write all or nothing, on condition, and be durable when this returns.

        Args:
            compares: What must hold, all of it.
            writes: What to write then; no key twice.
            otherwise: What to write else.
            vital: On a full disk, shrink the write-ahead log for it, then give up the
                ballast: it makes room, or is needed by whoever would.

        Returns:
            Whether the comparisons held.

        Raises:
            StorageFull: The disk is full; nothing was written.
            StorageError: The disk failed. Nothing can be written any more,
                since no later sync would tell what is on it.
        """
        held, events = self._try_hard(compares, writes, otherwise, vital=vital)
        if events:
            self.revision += 1
            self._announce(events)
        return held

    def _try_hard(
        self,
        compares: Sequence[Compare],
        writes: Sequence[Write],
        otherwise: Sequence[Write],
        *,
        vital: bool,
    ) -> tuple[bool, tuple[Event, ...]]:
        reliefs = iter((self._shrink, self._lighten) if vital else ())
        while True:
            try:
                return self._try(compares, writes, otherwise)
            except StorageFull:
                if not any(relief() for relief in reliefs):
                    raise

    def _shrink(self) -> bool:
        """Carry the write-ahead log over to the database, which frees the log's space."""
        try:
            with self._noting_failure():
                self._sql("PRAGMA wal_checkpoint(TRUNCATE)")
        except StorageFull:
            return False
        return True

    def _lighten(self) -> bool:
        """Give up the ballast; in its room the log can be carried over, which frees more."""
        if not self._ballast.release():
            return False
        self._shrink()
        return True

    @contextmanager
    def _noting_failure(self) -> Iterator[None]:
        """Let a failure that is not a full disk be final."""
        try:
            with translated(self.file):
                yield
        except StorageFull:
            raise
        except StorageError as error:
            self._failed = error
            raise

    def _try(
        self, compares: Sequence[Compare], writes: Sequence[Write], otherwise: Sequence[Write]
    ) -> tuple[bool, tuple[Event, ...]]:
        if self._failed is not None:
            raise self._failed
        with self._noting_failure(), transaction(self._open):
            held = all(self._holds(compare) for compare in compares)
            return held, self._write(writes if held else otherwise)

    def _holds(self, compare: Compare) -> bool:
        entry = self.get(compare.key)
        return (entry.modified if entry else 0) == compare.modified

    def _write(self, writes: Sequence[Write]) -> tuple[Event, ...]:
        keys = [write.key for write in writes]
        if len(set(keys)) != len(keys) or "" in keys:
            raise ValueError("a key is empty or written twice in one transaction")
        return tuple(event for write in writes if (event := self._write_one(write)))

    def _write_one(self, write: Write) -> Event | None:
        before = self.get(write.key)
        revision = self.revision + 1
        if isinstance(write, Delete):
            if before is None:
                return None
            entry = None
            row: tuple[object, ...] = (write.key, None, before.created, revision, 0, 0)
        else:
            if write.lease and write.lease not in self._leases:
                raise StateError(f"lease {write.lease} has ended", lease=write.lease)
            created, version = (before.created, before.version) if before else (revision, 0)
            entry = Entry(write.key, write.value, created, revision, version + 1, write.lease)
            row = (write.key, write.value, created, revision, version + 1, write.lease)
        self._sql(f"INSERT INTO entries ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)", *row)  # noqa: S608
        return Event(write.key, revision, entry)

    def compact(self, revision: int) -> None:
        """
        Forget what was overwritten or deleted up to a revision.

        Reads and watches from before it are refused from now on.
        """
        revision = min(revision, self.revision)
        if revision <= self.compacted:
            return
        with translated(self.file), transaction(self._open):
            self._open.execute(
                "DELETE FROM entries WHERE key != '' AND revision <= :head AND"
                " (value IS NULL OR EXISTS (SELECT 1 FROM entries AS later WHERE"
                "  later.key = entries.key AND later.revision > entries.revision"
                "  AND later.revision <= :head))",
                {"head": revision},
            )
            self._sql("DELETE FROM entries WHERE key = ''")
            # Its revision also keeps `max(revision)` from falling.
            self._sql("INSERT INTO entries VALUES ('', ?, NULL, 0, 0, 0)", revision)
        self.compacted = revision

    # --- watch

    def watch(
        self, listener: Listener, start: str, end: str, from_revision: int | None = None
    ) -> Watch:
        """
        Call a listener for every revision that changes a range.

        Args:
            listener: Called with the events of one revision at a time, in order,
                after they are durable. What it raises reaches the writer, once
                all listeners were called.
            start: The first key.
            end: The first key no longer wanted.
            from_revision: The first revision wanted; past ones are delivered
                before this returns. If not given, the next one.

        Raises:
            InvalidRequest: The revision was compacted.
        """
        first = self.revision + 1 if from_revision is None else from_revision
        if first <= self.compacted:
            raise InvalidRequest(
                f"the history begins with revision {self.compacted + 1}",
                field="revision",
                oldest=self.compacted + 1,
            )
        watch = Watch(start, end, listener, first, self._watches)
        while watch.next_revision <= self.revision:  # the listener may write, too
            history = self.history(watch.next_revision, watch.start, watch.end)
            watch.next_revision = self.revision + 1
            for events in history:
                listener(events)
        self._watches.append(watch)
        return watch

    def history(
        self, revision: int, start: str = "\0", end: str = LAST_KEY
    ) -> list[tuple[Event, ...]]:
        """
        Return what happened from a revision on, one tuple for each revision.

        Args:
            revision: The first one wanted; what was compacted is not told.
            start: The first key.
            end: The first key no longer wanted.
        """
        with translated(self.file):
            rows = self._sql(
                f"SELECT {_COLUMNS} FROM entries INDEXED BY entries_by_revision"  # noqa: S608
                " WHERE revision >= ? AND key >= ? AND key < ? ORDER BY revision, key",
                revision,
                max(start, "\0"),
                end,
            )
        together: dict[int, list[Event]] = {}
        for row in rows:
            entry = Entry(*row) if row[1] is not None else None
            together.setdefault(row[3], []).append(Event(row[0], row[3], entry))
        return [tuple(events) for events in together.values()]

    def _announce(self, events: tuple[Event, ...]) -> None:
        """Tell the watches; what a listener writes is told after this, not within."""
        self._events.append(events)
        if self._announcing:
            return
        self._announcing = True
        errors: list[Exception] = []
        try:
            while self._events:
                self._tell(self._events.popleft(), errors)
        finally:
            self._announcing = False
        if errors:
            raise errors[0]

    def _tell(self, events: tuple[Event, ...], errors: list[Exception]) -> None:
        for watch in tuple(self._watches):
            selected = watch.select(events)
            if selected and watch in self._watches:
                try:
                    watch.listener(selected)
                except Exception as error:  # noqa: BLE001 the others must hear it too
                    errors.append(error)

    # --- leases

    def grant(self, seconds: float) -> int:
        """
        Return a new lease, which ends unless it is renewed in time.

        Renewals are kept in memory, as in etcd: no write for each heartbeat.
        """
        lease = self.revision + 1
        self._leases[lease] = self._lease(seconds)
        try:
            self.transact([], [Put(f"{_LEASES}{lease}", str(seconds).encode())], vital=True)
        except BaseException:
            if self.revision < lease:
                del self._leases[lease]
            raise
        return lease

    def renew(self, lease: int) -> None:
        """
        Let a lease begin anew.

        Raises:
            StateError: It has ended.
        """
        held = self._leases.get(lease)
        if held is None or held.deadline <= self._monotonic():
            raise StateError(f"lease {lease} has ended", lease=lease)
        self._leases[lease] = self._lease(held.seconds)

    def renew_all(self) -> None:
        """Let all leases begin anew that `expire` did not end yet, even if their time is over."""
        for held in self._leases.values():
            held.deadline = self._monotonic() + held.seconds

    def shorten(self, lease: int, seconds: float) -> None:
        """Let a lease end so many seconds from now at the latest, unless it is renewed."""
        held = self._leases.get(lease)
        if held is not None:
            held.deadline = min(held.deadline, self._monotonic() + seconds)

    def drop(self, lease: int) -> None:
        """Let a lease be over that no key lives by; `expire` clears it away."""
        self.shorten(lease, 0)

    def revoke(self, lease: int) -> None:
        """End a lease now, and delete its keys."""
        self._end([lease] if lease in self._leases else [])

    def expire(self) -> None:
        """End the leases whose time is over, and delete their keys; call it now and then."""
        self._ballast.restore()
        now = self._monotonic()
        self._end([lease for lease, held in self._leases.items() if held.deadline <= now])

    def is_live(self, lease: int) -> bool:
        """Whether a lease's time is not over."""
        held = self._leases.get(lease)
        return held is not None and held.deadline > self._monotonic()

    def _lease(self, seconds: float) -> _Lease:
        return _Lease(seconds, self._monotonic() + seconds)

    def _end(self, leases: list[int]) -> None:
        if not leases:
            return
        keys = [key for lease in leases for key in self._living_by(lease)]
        keys += [f"{_LEASES}{lease}" for lease in leases]
        self.transact([], [Delete(key) for key in keys], vital=True)
        for lease in leases:
            self._leases.pop(lease, None)

    def _living_by(self, lease: int) -> list[str]:
        with translated(self.file):
            rows = self._sql("SELECT DISTINCT key FROM entries WHERE lease = ?", lease)
        entries = (self.get(key) for (key,) in rows)
        return [entry.key for entry in entries if entry is not None and entry.lease == lease]

    # --- SQLite

    @property
    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            raise ClosedError(f"{self.file} was closed")
        return self._connection

    def _newest(self, where: str) -> int:
        with translated(self.file):
            rows = self._sql(f"SELECT coalesce(max(revision), 0) FROM entries {where}")  # noqa: S608
        return int(rows[0][0])

    def _sql(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        return self._open.execute(statement, values).fetchall()
