"""
What the patterns know of databases: dialects, ways to write parameters, connections.

Statements are written once, with a ``?`` for each parameter and no other one, and are put
into the style of the driver (PEP 249). Nothing here opens a transaction of its own, except
`Connections`, which serves programs of tinymq's own and never a user's connection.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal

from attrs import frozen

from tinymq.errors import UsageError

#: How a driver wants parameters, as its module's ``paramstyle`` says.
ParamStyle = Literal["qmark", "format", "pyformat", "named", "numeric"]

#: A connection, or a cursor, or a session's connection: whatever leads to a cursor.
Connection = Any

_STYLES: Final = ("qmark", "format", "pyformat", "named", "numeric")
_TABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}(\.[A-Za-z_][A-Za-z0-9_]{0,39})?")
#: psycopg says so of a connection that is in no transaction.
_IDLE: Final = 0


@frozen(kw_only=True)
class Dialect:
    """
    What differs between databases.

    Attributes:
        name: Its name.
        paramstyle: That of its usual driver.
        blob: The type of bytes.
        serial: The type of a column that counts by itself, and is the primary key.
        begin: Begins a transaction that writes; empty where the driver does it.
        lock: Stands behind a SELECT, and leaves out rows that others hold.
        now: Gives milliseconds since 1970; empty means that this machine's clock is the
            database's, for there is no server.
    """

    name: str
    paramstyle: ParamStyle
    blob: str
    serial: str
    begin: str = ""
    lock: str = ""
    now: str = ""


SQLITE: Final = Dialect(
    name="sqlite",
    paramstyle="qmark",
    blob="BLOB",
    serial="INTEGER PRIMARY KEY AUTOINCREMENT",
    begin="BEGIN IMMEDIATE",
)
POSTGRESQL: Final = Dialect(
    name="postgresql",
    paramstyle="pyformat",
    blob="BYTEA",
    serial="BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    lock=" FOR UPDATE SKIP LOCKED",
    now="SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)",
)


def valid_table(name: str) -> str:
    """
    Return the name of a table if it can stand in a statement as it is.

    Args:
        name: The name, perhaps with that of a schema before it.

    Raises:
        UsageError: It cannot.
    """
    if _TABLE.fullmatch(name) is None:
        raise UsageError(
            f"the name of a table is 1 to 40 letters, digits and '_', perhaps with a schema "
            f"before it: not {name!r:.60}"
        )
    return name


class Statements:
    """
    Puts statements into the style of a driver, and carries them out.

    Args:
        style: The style.

    Raises:
        UsageError: There is no such style.
    """

    def __init__(self, style: str) -> None:
        if style not in _STYLES:
            raise UsageError(f"paramstyle is one of {', '.join(_STYLES)}, not {style!r}")
        self.style = style
        self._known: dict[str, str] = {}

    def run(self, where: Connection, statement: str, values: Sequence[Any] = ()) -> Any:
        """
        Carry out a statement.

        Args:
            where: A connection, or a cursor, or what stands for one in a framework.
            statement: With a ``?`` for each value.
            values: The values.

        Returns:
            The cursor.
        """
        cursor = where if hasattr(where, "execute") and hasattr(where, "fetchone") else None
        if cursor is None:
            cursor = where.cursor()
        if not values:
            cursor.execute(statement)
            return cursor
        text = self._known.get(statement)
        if text is None:
            text = self._known[statement] = self.rendered(statement)
        if self.style in {"pyformat", "named"}:
            cursor.execute(text, {f"p{place}": value for place, value in enumerate(values, 1)})
        else:
            cursor.execute(text, tuple(values))
        return cursor

    def rendered(self, statement: str) -> str:
        """
        Put a statement into the style.

        Args:
            statement: With a ``?`` for each value.
        """
        first, *others = statement.split("?")
        texts = [first]
        for place, text in enumerate(others, 1):
            texts += [_MARKS[self.style].format(place), text]
        return "".join(texts)


_MARKS: Final = {
    "qmark": "?",
    "format": "%s",
    "pyformat": "%(p{0})s",
    "named": ":p{0}",
    "numeric": ":{0}",
}


def check_in_transaction(where: Connection) -> None:
    """
    Refuse a connection on which every statement is a transaction of its own.

    Known of sqlite3 and psycopg, and of what has their connections inside.

    Args:
        where: A connection or a cursor.

    Raises:
        UsageError: What is written could not be rolled back.
    """
    connection = _driver_connection(where)
    autocommit = getattr(connection, "autocommit", None)
    if hasattr(connection, "in_transaction"):  # sqlite3
        alone = not connection.in_transaction and (
            autocommit is True or (autocommit is not False and connection.isolation_level is None)
        )
    else:
        info = getattr(connection, "info", None)
        alone = autocommit is True and getattr(info, "transaction_status", None) == _IDLE
    if alone:
        raise UsageError(
            "the connection commits every statement by itself: begin a transaction first, in "
            "which the work and its message stand or fall together"
        )


def _driver_connection(where: Connection) -> Any:
    """Find the driver's connection in SQLAlchemy's, or behind a cursor."""
    if hasattr(where, "dbapi_connection"):
        return where.dbapi_connection
    return where if hasattr(where, "commit") else getattr(where, "connection", where)


class Connections:
    """
    Connections that are opened when they are needed and kept for the next time.

    Each is used by one transaction at a time, and, since some drivers ask for it, by the
    thread that opened it.

    Args:
        connect: Opens one.
        dialect: Of what database.
        paramstyle: What the driver wants; the dialect's usual one if not given.
        clock: Seconds since 1970, where there is no server to ask.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        dialect: Dialect,
        paramstyle: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.dialect = dialect
        self.statements = Statements(paramstyle or dialect.paramstyle)
        self._connect = connect
        self._clock = clock
        self._idle: dict[int, list[Connection]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Lend a connection for one transaction, which is committed at the end."""
        connection = self._take()
        try:
            if self.dialect.begin and not getattr(connection, "in_transaction", False):
                self.statements.run(connection, self.dialect.begin)
            yield connection
            connection.commit()
        except BaseException:
            try:
                connection.rollback()
            except Exception:  # noqa: BLE001 - it is of no use any more, and nobody shall have it
                with contextlib.suppress(Exception):
                    connection.close()
            else:
                self._give_back(connection)
            raise
        self._give_back(connection)

    def now_ms(self, where: Connection) -> int:
        """
        Tell the time, by the clock that all who use the database share.

        Args:
            where: A connection.
        """
        if not self.dialect.now:
            return int(self._clock() * 1000)
        return int(self.statements.run(where, self.dialect.now).fetchone()[0])

    def close(self) -> None:
        """Close those that nobody uses, as far as this thread may."""
        with self._lock:
            idle, self._idle = self._idle, {}
        for connections in idle.values():
            for connection in connections:
                with contextlib.suppress(Exception):
                    connection.close()

    def _take(self) -> Connection:
        with self._lock:
            idle = self._idle.get(threading.get_ident())
            if idle:
                return idle.pop()
        connection = self._connect()
        if getattr(connection, "autocommit", None) is True:
            connection.close()
            raise UsageError(
                "the connection commits every statement by itself: open one that does not"
            )
        return connection

    def _give_back(self, connection: Connection) -> None:
        with self._lock:
            self._idle.setdefault(threading.get_ident(), []).append(connection)
