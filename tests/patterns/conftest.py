"""Databases for the patterns: a file of SQLite for each test, one PostgreSQL for all."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from attrs import field, frozen

from tests.fakes.postgres import Postgres, needs_postgres
from tinymq.patterns.sql import POSTGRESQL, SQLITE, Connection, Dialect


@frozen
class Base:
    """
    A database.

    Attributes:
        dialect: Its kind.
        opens: Opens a connection.
        dsn: Where it is.
    """

    dialect: Dialect
    opens: Callable[[], Connection]
    dsn: str
    _opened: list[Connection] = field(factory=list)

    def connect(self) -> Connection:
        """Open a connection."""
        self._opened.append(self.opens())
        return self._opened[-1]

    def close(self) -> None:
        """Close all that were left open, as by what was killed in memory."""
        for connection in self._opened:
            with suppress(Exception):
                connection.close()


def sqlite_base(path: Path) -> Base:
    """Return a database in a file."""

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(path, check_same_thread=False, timeout=20)
        connection.execute("PRAGMA synchronous = OFF")  # quick; a kill loses nothing by that
        return connection

    return Base(SQLITE, connect, str(path))


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """Return a running PostgreSQL."""
    server = Postgres()
    try:
        server.start()
        yield server
    finally:
        server.stop()


def _postgres_base(server: Postgres) -> Base:
    import psycopg  # noqa: PLC0415 - not every machine has the library of PostgreSQL

    dsn = server.database()
    return Base(POSTGRESQL, lambda: psycopg.connect(dsn), dsn)


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgresql", marks=[pytest.mark.process, needs_postgres()]),
    ]
)
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Base]:
    """Return an empty database, of each kind."""
    if request.param == "sqlite":
        made = sqlite_base(tmp_path / "base.db")
    else:
        made = _postgres_base(request.getfixturevalue("postgres"))
    yield made
    made.close()


@pytest.fixture
def pg(request: pytest.FixtureRequest) -> Iterator[Base]:
    """Return an empty database of PostgreSQL."""
    made = _postgres_base(request.getfixturevalue("postgres"))
    yield made
    made.close()


@pytest.fixture
def lite(tmp_path: Path) -> Iterator[Base]:
    """Return an empty database of SQLite."""
    made = sqlite_base(tmp_path / "base.db")
    yield made
    made.close()
