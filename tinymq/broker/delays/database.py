"""The SQLite file in which the index of what waits lies: made, opened, kept short, removed."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Final

#: "TMQD": says whose file this is.
_APPLICATION_ID: Final = 0x544D5144
#: Raised with every change that an older version could not read.
_VERSION: Final = 1
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


def known(file: Path) -> sqlite3.Connection:
    """
    Open a file that is there.

    Args:
        file: The database.

    Raises:
        sqlite3.Error: It is of another kind or version, or damaged.
    """
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


def fresh(file: Path | str) -> sqlite3.Connection:
    """
    Make a database without a row.

    Args:
        file: Where there is none; ``:memory:`` for one in memory.

    Raises:
        sqlite3.Error: It cannot be made.
    """
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


def checkpoint(file: Path) -> None:
    """
    Move pages to their places, and wait for the disk; runs in another thread.

    Args:
        file: The database.
    """
    with suppress(sqlite3.Error):
        connection = sqlite3.connect(file, timeout=0, isolation_level=None)
        try:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        finally:
            connection.close()


def remove(file: Path) -> None:
    """
    Remove a database with what belongs to it.

    Args:
        file: The database; it may be missing.
    """
    for each in (file, file.with_name(f"{file.name}-wal"), file.with_name(f"{file.name}-shm")):
        each.unlink(missing_ok=True)
