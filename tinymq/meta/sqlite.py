"""
How the MetaServer opens SQLite, and what its errors mean here.

Durability: a create that was acknowledged must outlive a power cut. That asks
for ``synchronous=FULL`` in either journal mode, but the rollback journal also
commits by deleting a file, and without ``EXTRA`` the folder is not synced after
that: a power cut may bring the journal back and undo a commit. The write-ahead
log commits by one append and one fsync of a file that stays; its frames carry
checksums, so that a torn tail is dropped and nothing before it. So: WAL and
FULL. SQLite syncs the folder for a new log file, not for a new database: that
sync is made here.

The exclusive lock keeps a second MetaServer out, since the first one answers
reads from memory; it also spares the shared-memory file.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tinymq.errors import StorageError, StorageFull

#: "TMQM": says whose file this is, to `file` and to us.
APPLICATION_ID: Final = 0x544D514D

#: Raised with every change that an older version could not read.
SCHEMA_VERSION: Final = 1

_PRIMARY: Final = 0xFF
_DAMAGED: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_IN_USE: Final = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def connect(file: Path, schema: str, *, create: bool) -> sqlite3.Connection:
    """
    Open a database, or make it.

    Args:
        file: The database.
        schema: What makes its tables.
        create: Whether a missing file is made; otherwise it is an error, for
            where the records are and their metadata is not, nothing good begins.

    Raises:
        StorageError: The file is missing, damaged, in use, or of another kind
            or a newer version. It is left as it is.
    """
    is_new = not file.exists()
    if is_new and not create:
        raise StorageError(f"{file} is missing; restore it from a backup", file=str(file))
    with translated(file):
        connection = sqlite3.connect(file, timeout=0, isolation_level=None)
        try:
            _prepare(connection, file, schema)
        except BaseException:
            connection.close()
            raise
    if is_new:
        sync_folder(file.parent)
    return connection


def _prepare(connection: sqlite3.Connection, file: Path, schema: str) -> None:
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("PRAGMA fullfsync = 1")  # macOS: fsync alone does not reach the disk
    # Read the kind before anything is written, journal mode included.
    (kind,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if tables and kind != APPLICATION_ID:
        raise StorageError(f"{file} is a database, but not tinymq's", file=str(file))
    if version > SCHEMA_VERSION:
        raise StorageError(f"{file} was written by a newer tinymq; upgrade", file=str(file))
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise _damaged(file, verdict)
    with transaction(connection):
        if not tables:
            for statement in filter(str.strip, schema.split(";")):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit at the end, or roll back what was done and leave no trace."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def translated(file: Path) -> Iterator[None]:
    """Turn SQLite's errors into tinymq's, which name the file."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY
        if code in _DAMAGED:
            raise _damaged(file, str(error)) from error
        if code in _IN_USE:
            raise StorageError(f"{file} is in use by another process", file=str(file)) from error
        if code == sqlite3.SQLITE_FULL:
            raise StorageFull(f"the disk of {file} is full", file=str(file)) from error
        if forbidden := _forbidden(file):
            raise StorageError(
                f"{forbidden} may not be read and written by this user; start the broker as the "
                "owner of its data folder",
                file=str(file),
            ) from error
        raise StorageError(f"{file}: {error}", file=str(file)) from error


def _forbidden(file: Path) -> Path | None:
    """Find which of a database's files is closed to this user; SQLite does not say so."""
    for each in (file, file.with_name(f"{file.name}-wal")):
        if each.exists() and not os.access(each, os.R_OK | os.W_OK):
            return each
    return None


def _damaged(file: Path, verdict: str) -> StorageError:
    return StorageError(
        f"{file} is damaged ({verdict}); nothing was deleted: "
        "move it away and restore it from a backup",
        file=str(file),
    )


def sync_folder(folder: Path) -> None:
    """Put a folder's entries on disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
