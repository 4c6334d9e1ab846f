"""
Which messages wait, by when they are due: a view of the delay logs that can be rebuilt.

One SQLite database serves all partitions of a broker. Of each partition, its *home*, it
holds one row for every message that waits, and up to which offset of the delay log that is
true; both change in one transaction. So a view that is behind follows the log from there,
and one that is missing, damaged or ahead begins anew, which costs time and nothing else.

Commits do not wait for the disk. After a power cut some of the last may be missing, and
the view is behind; what moves the pages to their places is done in another thread.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from twisted.logger import Logger

from tinymq.broker.ports import Background
from tinymq.errors import StorageFull
from tinymq.wire.fields import I64

#: The file in the data folder.
INDEX_FILE: Final = "delays.db"
#: "TMQD": says whose file this is.
_APPLICATION_ID: Final = 0x544D5144
#: Raised with every change that an older version could not read.
_VERSION: Final = 1
#: Pages of changes after which they are moved to their places.
_CHECKPOINT_ROWS: Final = 20_000
#: How often the file is begun anew; a disk that spoils it again and again is left alone then.
_MOST_BEGUN: Final = 5
#: Rows of a topic that is gone, removed at a time.
_FORGET_ROWS: Final = 2000
#: Questions about single ids in one statement.
_TOGETHER: Final = 500
_KIBIBYTES: Final = 16_384

_SCHEMA: Final = """
CREATE TABLE homes (
    home INTEGER PRIMARY KEY,
    topic BLOB NOT NULL,
    number INTEGER NOT NULL,
    upto INTEGER NOT NULL,
    noted INTEGER NOT NULL,
    known INTEGER NOT NULL DEFAULT 0,
    producers BLOB,
    UNIQUE (topic, number)
);
CREATE TABLE waiting (
    home INTEGER NOT NULL,
    id INTEGER NOT NULL,
    due INTEGER NOT NULL,
    place INTEGER NOT NULL,
    size INTEGER NOT NULL,
    stored INTEGER NOT NULL,
    taken INTEGER NOT NULL,
    key BLOB,
    schedule TEXT,
    PRIMARY KEY (home, id)
) WITHOUT ROWID;
CREATE INDEX by_due ON waiting (home, due);
CREATE INDEX moved ON waiting (home, place) WHERE place <> id;
CREATE INDEX scheduled ON waiting (home, schedule) WHERE schedule IS NOT NULL;
"""
_COLUMNS: Final = "id, due, place, size, stored, taken, key, schedule"
_INSERT: Final = (
    f"INSERT INTO waiting (home, {_COLUMNS}) "  # noqa: S608 - constant
    "VALUES ({home}, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_ANEW: Final = " ON CONFLICT (home, id) DO UPDATE SET due = excluded.due, place = excluded.place"
_ELSEWHERE: Final = " ON CONFLICT (home, id) DO UPDATE SET place = excluded.place"


class Row(NamedTuple):
    """
    A message that waits.

    Attributes:
        id: Its id: the offset in the delay log that it had first.
        due: When it comes, milliseconds since the epoch.
        offset: Where in the delay log it lies now.
        size: Bytes of its value.
        stored: Bytes that it takes in the log, about.
        taken: When the broker took it, milliseconds since the epoch.
        key: Its key, or None.
        schedule: The schedule that it comes from, as NAME@CREATED, or None.
    """

    id: int
    due: int
    offset: int
    size: int
    stored: int
    taken: int
    key: bytes | None
    schedule: str | None


class Changes(NamedTuple):
    """
    What a part of a delay log changes.

    Attributes:
        fresh: Rows that are new.
        copied: Rows whose messages lie elsewhere now; new ones where they are not known.
        gone: Ids of messages that do not wait any more.
        moved: Ids of messages with their new due times.
    """

    fresh: Sequence[Row] = ()
    copied: Sequence[Row] = ()
    gone: Sequence[int] = ()
    moved: Iterable[tuple[int, int]] = ()


class Index:
    """
    The view of all partitions. Make one with `Index.open`.

    Args:
        connection: The database.
        file: Where it lies; None in memory.
        background: Where pages are moved to their places.

    Attributes:
        broken: Called when the view turned out to be damaged and was begun anew.
        begun: How often that happened.
    """

    _log = Logger()

    def __init__(
        self, connection: sqlite3.Connection, file: Path | None, background: Background
    ) -> None:
        self._connection = connection
        self._file = file
        self._background = background
        self._unmoved = 0
        self._moving = False
        self._closed = False
        self.broken: Callable[[], None] = lambda: None
        self.begun = 0

    @classmethod
    def open(cls, file: Path | None, background: Background) -> Index:
        """
        Open the view, or begin a new one where it cannot be used.

        Args:
            file: The database; None for one in memory.
            background: Where pages are moved to their places.
        """
        if file is None:
            return cls(_fresh(":memory:"), None, background)
        there = file.exists()
        try:
            return cls(_known(file) if there else _fresh(file), file, background)
        except (sqlite3.Error, OSError) as error:
            cls._log.warn(
                "{file} cannot be used ({error}); it is made anew from the delay logs",
                file=str(file),
                error=error,
            )
        try:
            _remove(file)
            return cls(_fresh(file), file, background)
        except (sqlite3.Error, OSError) as error:
            cls._log.error(
                "{file} cannot be made: {error}; what waits is listed in memory until the next "
                "start",
                file=str(file),
                error=error,
            )
            return cls(_fresh(":memory:"), None, background)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """
        Begin anew when the database turns out to be damaged.

        Raises:
            StorageFull: It cannot be written for now.
            Rebuilt: It was begun anew, so that what was asked has to be asked again.
        """
        try:
            yield
        except sqlite3.Error as error:
            with suppress(sqlite3.Error):
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
            if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL:
                raise StorageFull(f"the disk of {self._file} is full") from error
            self._log.warn(
                "{file} is damaged ({error}); it is made anew from the delay logs",
                file=str(self._file),
                error=error,
            )
            self._begin_anew()
            raise Rebuilt from error

    def _begin_anew(self) -> None:
        with suppress(sqlite3.Error):
            self._connection.close()
        if self.begun >= _MOST_BEGUN and self._file is not None:
            self._log.error(
                "{file} was damaged {count} times; what waits is listed in memory until the next "
                "start",
                file=str(self._file),
                count=self.begun + 1,
            )
            self._file = None
        try:
            if self._file is not None:
                _remove(self._file)
            self._connection = _fresh(self._file or ":memory:")
        except (sqlite3.Error, OSError):
            self._file = None
            self._connection = _fresh(":memory:")
        self.begun += 1
        self.broken()

    # --- homes -------------------------------------------------------------------

    def home(self, topic_id: bytes, number: int) -> tuple[int, int, int]:
        """
        Find a partition, or take it in.

        Args:
            topic_id: Its topic.
            number: Its number.

        Returns:
            What it is called here, up to which offset its delay log is known, and how far
            its data log was looked at then.
        """
        with self._guarded():
            found = self._connection.execute(
                "SELECT home, upto, noted FROM homes WHERE topic = ? AND number = ?",
                (topic_id, number),
            ).fetchone()
            if found is not None:
                return found[0], found[1], found[2]
            made = self._connection.execute(
                "INSERT INTO homes (topic, number, upto, noted) VALUES (?, ?, 0, 0)",
                (topic_id, number),
            )
            assert made.lastrowid is not None, "a row was made"
            return made.lastrowid, 0, 0

    def homes(self) -> list[tuple[int, bytes, int]]:
        """Return all partitions: what each is called here, its topic and number."""
        with self._guarded():
            return self._connection.execute("SELECT home, topic, number FROM homes").fetchall()

    def keep_producers(self, home: int, known: int, producers: bytes) -> None:
        """
        Keep what is known of the producers of a partition.

        Args:
            home: Which one.
            known: Everything of its delay log below is taken into account.
            producers: What is known.
        """
        with self._guarded():
            self._connection.execute(
                "UPDATE homes SET known = ?, producers = ? WHERE home = ?",
                (known, producers, home),
            )

    def producers(self, home: int) -> tuple[int, bytes | None]:
        """
        Return what was kept of the producers of a partition, and for which part of its log.

        Args:
            home: Which one.
        """
        with self._guarded():
            found = self._connection.execute(
                "SELECT known, producers FROM homes WHERE home = ?", (home,)
            ).fetchone()
            return (0, None) if found is None else (found[0], found[1])

    def forget(self, home: int) -> bool:
        """
        Remove some rows of a partition that is gone.

        Args:
            home: Which one.

        Returns:
            Whether there are more.
        """
        with self._guarded():
            done = self._connection.execute(
                "DELETE FROM waiting WHERE home = ? AND id IN "
                "(SELECT id FROM waiting WHERE home = ? LIMIT ?)",
                (home, home, _FORGET_ROWS),
            )
            if done.rowcount == _FORGET_ROWS:
                return True
            self._connection.execute("DELETE FROM homes WHERE home = ?", (home,))
            return False

    # --- changes -----------------------------------------------------------------

    def apply(self, home: int, changes: Changes, upto: int, noted: int) -> int:
        """
        Follow a delay log, in one transaction.

        Args:
            home: Of the partition.
            changes: What the part of the log changes.
            upto: The end of that part.
            noted: How far the data log was looked at there.

        Returns:
            How many rows there are more than before.
        """
        grown = 0
        with self._guarded():
            run = self._connection
            run.execute("BEGIN")
            if changes.fresh:
                insert = _INSERT.format(home=home) + _ANEW
                grown += run.executemany(insert, changes.fresh).rowcount
            if changes.copied:
                # They are mostly known: whoever makes the index anew counts at the end.
                run.executemany(_INSERT.format(home=home) + _ELSEWHERE, changes.copied)
            run.executemany(
                "UPDATE waiting SET due = ? WHERE home = ? AND id = ?",
                ((due, home, each) for each, due in changes.moved),
            )
            if changes.gone:
                grown -= run.executemany(
                    "DELETE FROM waiting WHERE home = ? AND id = ?",
                    ((home, each) for each in changes.gone),
                ).rowcount
            run.execute("UPDATE homes SET upto = ?, noted = ? WHERE home = ?", (upto, noted, home))
            run.execute("COMMIT")
        self._unmoved += 1 + len(changes.fresh)
        if self._unmoved >= _CHECKPOINT_ROWS and self._file is not None and not self._moving:
            self._unmoved, self._moving = 0, True
            self._background.submit(partial(_checkpoint, self._file), self._moved)
        return grown

    def _moved(self) -> None:
        self._moving = False

    def clear(self, home: int) -> None:
        """
        Begin anew with a partition, whose log is to be followed from its start.

        Args:
            home: Which one.
        """
        with self._guarded():
            run = self._connection
            run.execute("BEGIN")
            run.execute("DELETE FROM waiting WHERE home = ?", (home,))
            run.execute(
                "UPDATE homes SET upto = 0, noted = 0, known = 0, producers = NULL WHERE home = ?",
                (home,),
            )
            run.execute("COMMIT")

    # --- questions ---------------------------------------------------------------

    def rows(
        self,
        home: int,
        after: tuple[int, int] | None,
        since: int | None,
        until: int | None,
        limit: int,
    ) -> list[Row]:
        """
        Return messages in order of their time.

        Args:
            home: Of the partition.
            after: Only those behind this due time and id.
            since: Only those that are due then, or later.
            until: Only those that are due before.
            limit: Most rows.
        """
        due, last = (since or 0, -1) if after is None else after
        if since is not None and due < since:
            due, last = since, -1
        with self._guarded():
            found = self._connection.execute(
                f"SELECT {_COLUMNS} FROM waiting WHERE home = ? "  # noqa: S608 - constant
                "AND (due, id) > (?, ?) AND due >= ? AND due < ? ORDER BY due, id LIMIT ?",
                (home, due, last, due, I64 if until is None else until, limit),
            )
            return [Row._make(each) for each in found]

    def count(self, home: int, since: int | None, until: int | None) -> int:
        """Count messages, as `rows` finds them."""
        bounds = (home, since or 0, I64 if until is None else until)
        with self._guarded():
            (found,) = self._connection.execute(
                "SELECT count(*) FROM waiting WHERE home = ? AND due >= ? AND due < ?", bounds
            ).fetchone()
            return int(found)

    def find(self, home: int, ids: Sequence[int]) -> dict[int, Row]:
        """
        Find messages by their ids.

        Args:
            home: Of the partition.
            ids: Which ones.
        """
        found: dict[int, Row] = {}
        with self._guarded():
            for start in range(0, len(ids), _TOGETHER):
                part = ids[start : start + _TOGETHER]
                marks = ",".join("?" * len(part))
                rows = self._connection.execute(
                    f"SELECT {_COLUMNS} FROM waiting "  # noqa: S608 - constant
                    f"WHERE home = ? AND id IN ({marks})",
                    (home, *part),
                )
                found.update((each[0], Row._make(each)) for each in rows)
        return found

    def of_schedule(self, home: int, schedule: str) -> list[Row]:
        """
        Find what waits for a schedule.

        Args:
            home: Of the partition.
            schedule: Which one, as NAME@CREATED.
        """
        with self._guarded():
            # SQLite would rather look through all that waits in the partition.
            found = self._connection.execute(
                f"SELECT {_COLUMNS} FROM waiting INDEXED BY scheduled "  # noqa: S608 - constant
                "WHERE home = ? AND schedule = ? AND schedule IS NOT NULL",
                (home, schedule),
            )
            return sorted(map(Row._make, found), key=lambda each: (each.due, each.id))

    def lying_in(self, home: int, low: int, high: int, limit: int) -> list[Row]:
        """
        Find what lies in a part of the delay log.

        Args:
            home: Of the partition.
            low: Where the part begins.
            high: Where it ends.
            limit: Most rows.
        """
        with self._guarded():
            own = self._connection.execute(
                f"SELECT {_COLUMNS} FROM waiting "  # noqa: S608 - constant
                "WHERE home = ? AND id >= ? AND id < ? AND place = id ORDER BY id LIMIT ?",
                (home, low, high, limit),
            )
            found = [Row._make(each) for each in own]
            copies = self._connection.execute(
                f"SELECT {_COLUMNS} FROM waiting INDEXED BY moved "  # noqa: S608 - constant
                "WHERE home = ? AND place >= ? AND place < ? AND place <> id "
                "ORDER BY place LIMIT ?",
                (home, low, high, limit),
            )
            found += (Row._make(each) for each in copies)
        return sorted(found, key=lambda row: row.offset)[:limit]

    def totals(self, home: int) -> tuple[int, int]:
        """Say how many messages of a partition wait, and how many bytes they take."""
        with self._guarded():
            count, size = self._connection.execute(
                "SELECT count(*), coalesce(sum(stored), 0) FROM waiting WHERE home = ?", (home,)
            ).fetchone()
            return int(count), int(size)

    def close(self) -> None:
        """Close the database; it is whole, whatever comes."""
        if not self._closed:
            self._closed = True
            with suppress(sqlite3.Error):
                self._connection.close()


class Rebuilt(Exception):
    """The view was begun anew; what was asked has to be asked again."""


def _known(file: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(file, timeout=5, isolation_level=None)
    try:
        (kind,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if (kind, version) != (_APPLICATION_ID, _VERSION):
            raise sqlite3.DatabaseError("it is of another kind or version")  # noqa: TRY301
        _prepare(connection)
        connection.execute("SELECT count(*) FROM homes").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _fresh(file: Path | str) -> sqlite3.Connection:
    connection = sqlite3.connect(file, timeout=5, isolation_level=None)
    try:
        _prepare(connection)
        connection.executescript(_SCHEMA)
        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {_VERSION}")
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute(f"PRAGMA cache_size = -{_KIBIBYTES}")


def _checkpoint(file: Path) -> None:
    """Move pages to their places, and wait for the disk; runs in another thread."""
    with suppress(sqlite3.Error):
        connection = sqlite3.connect(file, timeout=0, isolation_level=None)
        try:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        finally:
            connection.close()


def _remove(file: Path) -> None:
    for each in (file, file.with_name(f"{file.name}-wal"), file.with_name(f"{file.name}-shm")):
        each.unlink(missing_ok=True)
