"""Databases for the patterns: a file of SQLite for each test, one PostgreSQL for all."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from tests.fakes.postgres import Postgres, needs_postgres
from tinymq.patterns.sql import POSTGRESQL, SQLITE, Connection, Dialect


@frozen
class Base:
    """
    A database.

    Attributes:
        dialect: Its kind.
        connect: Opens a connection.
        dsn: Where it is.
    """

    dialect: Dialect
    connect: Callable[[], Connection]
    dsn: str


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
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Base:
    """Return an empty database, of each kind."""
    if request.param == "sqlite":
        return sqlite_base(tmp_path / "base.db")
    server: Any = request.getfixturevalue("postgres")
    return _postgres_base(server)


@pytest.fixture
def pg(request: pytest.FixtureRequest) -> Base:
    """Return an empty database of PostgreSQL."""
    server: Any = request.getfixturevalue("postgres")
    return _postgres_base(server)


@pytest.fixture
def lite(tmp_path: Path) -> Base:
    """Return an empty database of SQLite."""
    return sqlite_base(tmp_path / "base.db")
