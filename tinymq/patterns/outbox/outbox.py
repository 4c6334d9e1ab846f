"""
Writes messages into the database of the program, in its own transaction.

::

    outbox = Outbox(SQLITE)
    with connection:
        connection.execute("UPDATE account SET amount = amount - 10 WHERE name = 'ann'")
        outbox.add(connection, "transfers", b"10", key="ann")

Both are stored, or neither. A `Relay` publishes what was committed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgpack

from tinymq.client.core.batches import as_headers, as_value, check_record
from tinymq.client.core.timing import Moment, Span, at_ms, delay_ms
from tinymq.errors import UsageError
from tinymq.limits import DEFAULT_LIMITS, LATEST_MS, Limits
from tinymq.names import valid_name
from tinymq.patterns.outbox.ids import Ids
from tinymq.patterns.outbox.table import TABLE, lane_of, statements
from tinymq.patterns.sql import (
    Connection,
    Dialect,
    Statements,
    check_in_transaction,
    valid_table,
)
from tinymq.wire.records import Headers

#: The header with the id of the row: what tells a message that was published twice.
MESSAGE_ID: Final = "message-id"
#: What PostgreSQL tells listeners of, where an outbox is to do so; the table's name follows.
CHANNEL: Final = "tinymq_"

Key = bytes | bytearray | memoryview | str


class Depth(NamedTuple):
    """
    How much stands in an outbox.

    Attributes:
        waiting: Messages that are to be published.
        parked: Messages that were refused too often.
        oldest_s: How long the oldest of those that wait has waited, or None.
    """

    waiting: int
    parked: int
    oldest_s: float | None


class Parked(NamedTuple):
    """
    A message that was refused too often.

    Attributes:
        id: Its id.
        topic: Where it was to go.
        key: Its key.
        attempts: How often it was refused.
        parked_ms: Since when it is parked, milliseconds since 1970.
        error: Why.
    """

    id: str
    topic: str
    key: bytes | None
    attempts: int
    parked_ms: int
    error: str


class Outbox:
    """
    Writes messages into a table beside those of the program.

    It opens no connection, begins and ends no transaction, and talks to no broker: it runs
    one INSERT where it is told to. What the broker would refuse is refused here, with an
    error that rolls the work back.

    Args:
        dialect: The kind of database.
        table: The name of the table.
        paramstyle: What the driver, or a framework's cursor, wants; that of the dialect's
            usual driver if not given.
        limits: What the brokers take, if theirs differ from the usual limits.
        notify: Tell listeners at the commit (PostgreSQL only), so that relays wake at once.
        clock: Seconds since 1970.
    """

    def __init__(
        self,
        dialect: Dialect,
        *,
        table: str = TABLE,
        paramstyle: str | None = None,
        limits: Limits = DEFAULT_LIMITS,
        notify: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if notify and dialect.name != "postgresql":
            raise UsageError("only PostgreSQL tells listeners of a commit: leave out notify")
        self.dialect = dialect
        self.table = valid_table(table)
        self.limits = limits
        self.notify = notify
        self.clock = clock
        self.paramstyle = paramstyle or dialect.paramstyle
        self._ids = Ids(clock)
        self._statements = Statements(self.paramstyle)
        # Names of tables cannot be parameters; they were looked at.
        self._insert = (
            f"INSERT INTO {self.table} (id, topic, message_key, value, headers, lane, due_ms, "  # noqa: S608
            "created_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        )

    @property
    def channel(self) -> str:
        """What listeners listen to, with PostgreSQL."""
        return CHANNEL + self.table.replace(".", "_")

    def create(self, connection: Connection) -> None:
        """
        Make the tables, where they are not there. It is not committed here.

        Args:
            connection: A connection or a cursor.
        """
        for statement in statements(self.dialect, self.table):
            self._statements.run(connection, statement)

    def add(  # noqa: PLR0913 - as `send`, and where
        self,
        connection: Connection,
        topic: str,
        value: bytes | bytearray | memoryview | None,
        key: Key | None = None,
        headers: Mapping[str, bytes] | Iterable[tuple[str, bytes]] = (),
        *,
        delay: Span | None = None,
        at: Moment | None = None,
    ) -> str:
        """
        Write a message, in the transaction that the connection is in.

        Args:
            connection: The connection of the work, or a cursor of it, of the driver or of a
                framework.
            topic: Name of the topic or exchange.
            value: Its value; None is a tombstone.
            key: Its key; messages of one topic with equal keys are published in order.
            headers: Pairs of name and bytes, or a mapping. `MESSAGE_ID` is added.
            delay: How long it waits, counted from now: seconds or a timedelta. It stays in
                the outbox until then, so that it is published once, as others.
            at: When it comes instead: a datetime with its zone, or milliseconds since 1970.

        Returns:
            Its id, 32 characters, which sort by time.

        Raises:
            InvalidName: The name cannot be that of a topic.
            ValueTooLarge: Value, key or headers are over a limit, which the error names.
            InvalidRequest: There are too many headers.
            InvalidDelay: A delay or time is out of its range.
            UsageError: Something has the wrong type, or the connection commits every
                statement by itself.
            Exception: What the driver raises; then the work should be rolled back.
        """
        message_id = self._ids.new()
        row = (topic, *self._checked(topic, value, key, headers, message_id))
        due = self._due(delay, at)
        check_in_transaction(connection)
        lane = lane_of(topic, row[1], message_id)
        created = int(self.clock() * 1000)
        values = (message_id.hex(), *row, lane, due, created)
        self._statements.run(connection, self._insert, values)
        if self.notify:
            self._statements.run(connection, f"NOTIFY {self.channel}")
        return message_id.hex()

    # --- looking after it --------------------------------------------------------

    def depth(self, connection: Connection) -> Depth:
        """
        Count what stands in it.

        Args:
            connection: A connection or a cursor.
        """
        waiting, parked, oldest = self._statements.run(
            connection,
            "SELECT COALESCE(SUM(CASE WHEN parked_ms IS NULL THEN 1 ELSE 0 END), 0), "  # noqa: S608
            "COUNT(parked_ms), MIN(CASE WHEN parked_ms IS NULL THEN created_ms END) "
            f"FROM {self.table}",
        ).fetchone()
        age = None if oldest is None else max(0.0, self.clock() - int(oldest) / 1000)
        return Depth(int(waiting), int(parked), age)

    def parked(self, connection: Connection, limit: int = 100) -> list[Parked]:
        """
        List messages that were refused too often, in order.

        Args:
            connection: A connection or a cursor.
            limit: How many at most.
        """
        rows = self._statements.run(
            connection,
            "SELECT id, topic, message_key, attempts, parked_ms, error "  # noqa: S608
            f"FROM {self.table} WHERE parked_ms IS NOT NULL ORDER BY seq LIMIT ?",
            (limit,),
        ).fetchall()
        return [
            Parked(str(row[0]), str(row[1]), None if row[2] is None else bytes(row[2]), *row[3:])
            for row in rows
        ]

    def release(self, connection: Connection, message_id: str) -> bool:
        """
        Let a parked message be tried anew. It is not committed here.

        Args:
            connection: A connection or a cursor.
            message_id: Its id.

        Returns:
            Whether it was parked.
        """
        return bool(
            self._statements.run(
                connection,
                f"UPDATE {self.table} SET parked_ms = NULL, attempts = 0, error = NULL "  # noqa: S608
                "WHERE id = ? AND parked_ms IS NOT NULL",
                (message_id,),
            ).rowcount
        )

    def discard(self, connection: Connection, message_id: str) -> bool:
        """
        Delete a parked message. It is not committed here.

        Args:
            connection: A connection or a cursor.
            message_id: Its id.

        Returns:
            Whether it was parked.
        """
        return bool(
            self._statements.run(
                connection,
                f"DELETE FROM {self.table} WHERE id = ? AND parked_ms IS NOT NULL",  # noqa: S608
                (message_id,),
            ).rowcount
        )

    # --- inside ------------------------------------------------------------------

    def _checked(
        self, topic: str, value: Any, key: Key | None, headers: Any, message_id: bytes
    ) -> tuple[bytes | None, bytes | None, bytes]:
        """Refuse what the broker would refuse; give key, value and headers as they are stored."""
        valid_name(topic)
        found_key = key.encode() if isinstance(key, str) else as_value(key)
        if not isinstance(headers, Mapping):
            headers = list(headers)
        pairs: Headers = [
            *((name, each) for name, each in as_headers(headers) if name != MESSAGE_ID),
            (MESSAGE_ID, message_id.hex().encode()),
        ]
        found = as_value(value)
        check_record(found, found_key, pairs, self.limits)
        return found_key, found, msgpack.packb(pairs)

    def _due(self, delay: Span | None, at: Moment | None) -> int | None:
        if delay is None and at is None:
            return None
        if delay is not None and at is not None:
            raise UsageError("give a delay or a time, not both")
        if at is not None:
            return at_ms(at)
        assert delay is not None
        wait = delay_ms(delay)
        return min(int(self.clock() * 1000) + wait, LATEST_MS) if wait else None
