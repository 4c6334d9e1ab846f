"""
Handles each message once, by a table of the ids of those that were handled.

::

    seen = SeenStore(connect, SQLITE, "billing")

    @seen.in_transaction
    def bill(message, connection):      # work and mark are one transaction: exactly once
        connection.execute("INSERT INTO bills ...")

    @seen.once
    def mail(message):                  # marked after success: at least once
        send_mail(message.value)

    subscription.run(bill)
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from attrs import frozen

from tinymq.client.core.handling import Requeue
from tinymq.errors import UsageError
from tinymq.patterns.idempotence.bloom import BloomFilter
from tinymq.patterns.idempotence.calling import SKIP, Handler, guarded
from tinymq.patterns.idempotence.identity import Read, as_text, message_id
from tinymq.patterns.sql import Connection, Connections, Dialect, valid_table

#: Rows that one clean-up deletes at most, so that nobody waits for it.
_SWEPT: Final = 1000
#: Clean-ups in the time that an id is kept.
_SWEEPS: Final = 100
#: A message that is in hand in this process already comes again after so long.
_AGAIN_S: Final = 0.2


@frozen(kw_only=True)
class SeenConfig:
    """
    How ids are kept.

    Attributes:
        identity: Tells the id of a message: `message_id`, ``header("payment-id")``, or a
            function.
        keep_s: How long an id is known after its message was handled. Let it be longer than
            a message can lie in its topic.
        alone: Nobody else writes ids of this consumer while this process runs. Then the
            filter's *no* is enough, and `SeenStore.once` asks the database only about what
            may be a repeat.
        expected: For how many ids the filter is made at first; it grows.
        table: The name of the table.
        paramstyle: What the driver wants, if not what the dialect's usual one does.
    """

    identity: Read = message_id
    keep_s: float = 14 * 86400.0
    alone: bool = False
    expected: int = 100_000
    table: str = "tinymq_seen"
    paramstyle: str | None = None


class SeenStore:
    """
    The ids of messages that a consumer has handled.

    Several processes may share them. A Bloom filter in memory knows most messages for new
    without a question to the database; it is made from the table at the first message, and
    again when it is full.

    Args:
        connect: Opens a connection, which does not commit by itself. Connections are kept,
            for each thread; with sqlite3 give ``check_same_thread=False``, so that `close`
            can close them.
        dialect: The kind of database.
        consumer: Who handles: each consumer has its own ids.
        config: How they are kept.
        clock: Seconds since 1970.

    Attributes:
        handled: Messages that were new.
        repeats: Messages that were not, and were left alone.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        dialect: Dialect,
        consumer: str,
        config: SeenConfig | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.config = config or SeenConfig()
        if not consumer or len(consumer) > 100:
            raise UsageError("the name of a consumer has 1 to 100 characters")
        self.consumer = consumer
        self.handled = 0
        self.repeats = 0
        self._table = valid_table(self.config.table)
        self._connections = Connections(connect, dialect, self.config.paramstyle, clock)
        self._clock = clock
        self._filter: BloomFilter | None = None
        self._swept = 0.0
        self._lock = threading.Lock()
        #: Ids in hand, and threads with an open transaction that waits for a handler.
        self._in_hand: set[str] = set()
        self._open: set[int] = set()

    def create(self, connection: Connection) -> None:
        """
        Make the table, where it is not there. It is not committed here.

        Args:
            connection: A connection or a cursor.
        """
        run, table = self._connections.statements.run, self._table
        run(
            connection,
            f"CREATE TABLE IF NOT EXISTS {table} (consumer VARCHAR(100) NOT NULL, "
            "id VARCHAR(160) NOT NULL, seen_ms BIGINT NOT NULL, PRIMARY KEY (consumer, id))",
        )
        index = f"{table.replace('.', '_')}_age"
        run(connection, f"CREATE INDEX IF NOT EXISTS {index} ON {table} (consumer, seen_ms)")

    # --- decorators ------------------------------------------------------------------

    def in_transaction(self, handler: Handler) -> Handler:
        """
        Let a handler work in the transaction that marks the message: *exactly once*.

        The mark comes first: of two consumers with the same message at the same time one
        waits for the other's transaction (PostgreSQL; SQLite lets nobody else write), and
        finds a repeat. If the handler raises, or this process dies, neither its work nor the
        mark is there. Where handlers wait within the transaction (coroutines, Deferreds),
        a second message that comes meanwhile is put off for a moment.

        Args:
            handler: Takes a message and a connection, on which it works and does not commit.
        """
        return guarded(handler, self._transaction)

    def once(self, handler: Handler) -> Handler:
        """
        Mark a message after its handler has succeeded: *at least once*.

        It is handled again when this process dies between the two, or when two processes
        have it at the same time. For work that is not in a database.

        Args:
            handler: Takes a message.
        """
        return guarded(handler, self._mark_after)

    # --- looking after it ------------------------------------------------------------

    def known(self, identity: Any) -> bool:
        """
        Tell whether a message of this id was handled, and that is not too long ago.

        Args:
            identity: Its id.
        """
        with self._connections.transaction() as connection:
            return self._is_marked(connection, as_text(identity))

    def forget(self, identity: Any) -> bool:
        """
        Let a message be handled again.

        Args:
            identity: Its id.

        Returns:
            Whether it was known.
        """
        with self._connections.transaction() as connection:
            return bool(
                self._connections.statements.run(
                    connection,
                    f"DELETE FROM {self._table} WHERE consumer = ? AND id = ?",  # noqa: S608
                    (self.consumer, as_text(identity)),
                ).rowcount
            )

    def expire(self) -> int:
        """
        Delete ids that are too old, as happens now and then by itself.

        Returns:
            How many.
        """
        deleted = 0
        while True:
            with self._connections.transaction() as connection:
                found: int = self._connections.statements.run(
                    connection,
                    f"DELETE FROM {self._table} WHERE consumer = ? AND id IN (SELECT id "  # noqa: S608
                    f"FROM {self._table} WHERE consumer = ? AND seen_ms < ? LIMIT {_SWEPT})",
                    (self.consumer, self.consumer, self._oldest(connection)),
                ).rowcount
            deleted += found
            if found < _SWEPT:
                return deleted

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    # --- around handlers ---------------------------------------------------------------

    @contextmanager
    def _transaction(self, message: Any) -> Iterator[tuple[Any, ...] | None]:
        which = as_text(self.config.identity(message))
        with self._hand(which, alone_in_thread=True):
            if self._may_know(which) and self.known(which):
                self.repeats += 1
                yield SKIP
                return
            with self._connections.transaction() as connection:
                if not self._mark(connection, which):
                    self.repeats += 1
                    yield SKIP
                    return
                yield (connection,)
        self._marked(which)

    @contextmanager
    def _mark_after(self, message: Any, *rest: Any) -> Iterator[tuple[Any, ...] | None]:
        which = as_text(self.config.identity(message))
        with self._hand(which, alone_in_thread=False):
            ask = self._may_know(which) or not self.config.alone
            if ask and self.known(which):
                self.repeats += 1
                yield SKIP
                return
            yield rest
            with self._connections.transaction() as connection:
                self._mark(connection, which)
        self._marked(which)

    @contextmanager
    def _hand(self, which: str, *, alone_in_thread: bool) -> Iterator[None]:
        """Put off what is in hand already, and what would wait for a transaction of its own."""
        thread = threading.get_ident()
        with self._lock:
            if which in self._in_hand:
                raise Requeue(_AGAIN_S, "it is being handled already", failure=False)
            if alone_in_thread:
                if thread in self._open:
                    raise Requeue(_AGAIN_S, "another one is in its transaction", failure=False)
                self._open.add(thread)
            self._in_hand.add(which)
        try:
            yield
        finally:
            with self._lock:
                self._in_hand.discard(which)
                if alone_in_thread:
                    self._open.discard(thread)

    def _marked(self, which: str) -> None:
        with self._lock:
            self.handled += 1
            if self._filter is not None:
                self._filter.add(which)
        now = self._clock()
        if now - self._swept >= self.config.keep_s / _SWEEPS:
            first, self._swept = not self._swept, now
            if not first:
                self.expire()

    # --- table and filter ----------------------------------------------------------------

    def _may_know(self, which: str) -> bool:
        with self._lock:
            found = self._filter
            if found is None or found.full:
                found = self._filter = self._loaded(found)
            return which in found

    def _loaded(self, before: BloomFilter | None) -> BloomFilter:
        run, table = self._connections.statements.run, self._table
        with self._connections.transaction() as connection:
            where = (self.consumer, self._oldest(connection))
            condition = f"FROM {table} WHERE consumer = ? AND seen_ms >= ?"
            (count,) = run(connection, f"SELECT COUNT(*) {condition}", where).fetchone()
            made = BloomFilter(max(self.config.expected, 2 * int(count)))
            cursor = run(connection, f"SELECT id {condition}", where)
            while rows := cursor.fetchmany(_SWEPT):
                for (which,) in rows:
                    made.add(which)
        return made

    def _oldest(self, connection: Connection) -> int:
        return self._connections.now_ms(connection) - int(self.config.keep_s * 1000)

    def _is_marked(self, connection: Connection, which: str) -> bool:
        found = self._connections.statements.run(
            connection,
            f"SELECT 1 FROM {self._table} WHERE consumer = ? AND id = ? AND seen_ms >= ?",  # noqa: S608
            (self.consumer, which, self._oldest(connection)),
        ).fetchone()
        return found is not None

    def _mark(self, connection: Connection, which: str) -> bool:
        """Mark a message, and say whether it was not; a mark that is too old is none."""
        now = self._connections.now_ms(connection)
        table = self._table
        return bool(
            self._connections.statements.run(
                connection,
                f"INSERT INTO {table} (consumer, id, seen_ms) VALUES (?, ?, ?) "  # noqa: S608
                "ON CONFLICT (consumer, id) DO UPDATE SET seen_ms = excluded.seen_ms "
                f"WHERE {table}.seen_ms < ?",
                (self.consumer, which, now, now - int(self.config.keep_s * 1000)),
            ).rowcount
        )
