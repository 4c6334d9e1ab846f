"""
Takes messages out of an outbox and publishes them.

Any number of relays share an outbox. One has a *lane* at a time, by a lease in the database
that is taken in a transaction of its own (``FOR UPDATE SKIP LOCKED``, or ``BEGIN
IMMEDIATE``), so no transaction is open while a broker is spoken to, and a relay that was
killed is followed by another one when its lease ends. The steps, at each of which it may be
killed::

    1 TAKING    nothing was done
    2 TAKEN     a lane is leased and its rows are read, not committed
    3 LEASED    the lease is committed
    4 SENDING   rows of one topic are about to be sent
    5 SENT      the broker has answered
    6 NOTED     rows are deleted, failures are written down, the lease ends; not committed
    7 DONE      that is committed

Killed before 5, nothing was published, or nobody knows; killed between 5 and 7, the rows are
published once more, with the same ids. A topic with a dedup window (``dedup.ms``) stores
each of them once; one without may store some twice: *at least once*.
"""

from __future__ import annotations

import logging
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from itertools import groupby
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import msgpack
from attrs import frozen

from tinymq.errors import ClosedError, ForkedError, TinyMQError, UnreachableError, UsageError
from tinymq.patterns.outbox.outbox import Outbox
from tinymq.patterns.outbox.table import LANES
from tinymq.patterns.outbox.way import ClientWay, Outcome, Row, Waits, Way, is_transient
from tinymq.patterns.sql import Connection, Connections
from tinymq.sync.client import Client

_log: Final = logging.getLogger(__name__)

#: Characters of an error that are kept with a row.
_ERROR: Final = 1000
#: The part of its lease after which a relay begins no further send, and the part that one
#: send may take: together they are less than all of it.
_SEND_UNTIL: Final = 0.5
_SEND_WITHIN: Final = 0.4


class Step(IntEnum):
    """Where a relay is in its work; the module says what each means."""

    TAKING = 1
    TAKEN = 2
    LEASED = 3
    SENDING = 4
    SENT = 5
    NOTED = 6
    DONE = 7


@frozen(kw_only=True)
class RelayConfig:
    """
    How a relay works.

    Attributes:
        batch: Rows that are taken at a time.
        poll_s: It looks at least so often, whether it is poked or not.
        lease_s: After so long without a word of its relay, others take a lane. One attempt
            to publish may take 0.4 of it.
        retry_s: The first wait after a failure; it doubles with each further one.
        most_retry_s: The longest wait.
        park_after: A message is parked when its topic has refused it so often by an error of
            the message's own, such as one of size; errors that time heals never park it.
    """

    batch: int = 500
    poll_s: float = 1.0
    lease_s: float = 15.0
    retry_s: float = 1.0
    most_retry_s: float = 60.0
    park_after: int = 5

    def __attrs_post_init__(self) -> None:
        if self.batch < 1 or self.park_after < 1:
            raise UsageError("batch and park_after are at least 1")
        if min(self.poll_s, self.lease_s, self.retry_s, self.most_retry_s) <= 0:
            raise UsageError("times are above 0")

    @property
    def deadline_s(self) -> float:
        """How long one attempt to publish may take."""
        return self.lease_s * _SEND_WITHIN


class Taken(NamedTuple):
    """
    What a relay has in hand.

    Attributes:
        lane: The lane that it has leased.
        rows: What is to be sent, in order.
        until: When it begins no further send, by the relay's own clock.
    """

    lane: int
    rows: list[Row]
    until: float


class Relay:
    """
    Publishes what stands in an outbox.

    ::

        with Client(url) as client, Relay(outbox, connect, client) as relay:
            relay.run()  # until relay.stop()

    It blocks. Beside a web application, a reactor or an event loop let it have a thread:
    `start` and `stop`. It waits for database and network without holding Python's lock.

    Args:
        outbox: Which outbox.
        connect: Opens a connection of its own, which does not commit by itself.
        way: A blocking client, of which no other thread makes use, or another way to the topics.
        config: How.
        on_step: Told each step before it goes on.
        clock: Seconds that never go back.
        chance: Random numbers from 0 to 1, which spread retries.

    Attributes:
        name: What it is called in the database.
        sent: Messages that it published and deleted.
        parked: Messages that it parked.
    """

    def __init__(  # noqa: PLR0913 - the last three are for tests
        self,
        outbox: Outbox,
        connect: Callable[[], Connection],
        way: Client | Way,
        config: RelayConfig | None = None,
        *,
        on_step: Callable[[Step], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.outbox = outbox
        self.config = config or RelayConfig()
        self.name = uuid.uuid4().hex
        self.sent = 0
        self.parked = 0
        self._way: Way = ClientWay(way, self.config.deadline_s) if isinstance(way, Client) else way
        self._connections = Connections(connect, outbox.dialect, outbox.paramstyle, outbox.clock)
        self._step = on_step or (lambda step: None)
        self._clock = clock
        self._chance = chance
        self._failures = 0
        self._asked: set[str] = set()
        self._poked = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- running -----------------------------------------------------------------

    def run(self) -> None:
        """
        Publish until `stop`; what is in hand then is brought to its end.

        Raises:
            ClosedError: The client was closed; `ForkedError` in another process.
        """
        try:
            self._run()
        finally:
            self._connections.close()  # by the thread that opened them

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._poked.clear()
            try:
                sent = self.turn()
                soonest = 0.0 if sent else self._due_in_s()
            except (ClosedError, ForkedError):
                raise
            except UnreachableError as error:
                self._rest("no broker is reached", error)
            except Exception as error:  # noqa: BLE001 - drivers have errors of their own
                self._rest("the outbox cannot be read or written", error)
            else:
                self._failures = 0
                if not sent and not self._stopped.is_set():
                    self._poked.wait(min(self.config.poll_s, soonest))

    def turn(self) -> int:
        """
        Go once through the lanes, and publish a batch of each that no other relay has.

        Returns:
            How many messages were published and deleted.

        Raises:
            UnreachableError: No broker answered.
            Exception: What the driver raises.
        """
        before = self.sent
        for _ in range(LANES):
            taken = self._take()
            if taken is None or self._stopped.is_set():
                break
            self._publish(taken)
        return self.sent - before

    def poke(self) -> None:
        """Say that there may be something, from any thread; it looks without waiting longer."""
        self._poked.set()

    def start(self) -> Self:
        """Let it run in a thread of its own."""
        if self._thread is None:
            self._thread = threading.Thread(target=self.run, name="tinymq-outbox", daemon=True)
            self._thread.start()
        return self

    def stop(self, within_s: float | None = None) -> None:
        """
        End `run` after what it has in hand, from any thread.

        Args:
            within_s: Wait for the thread of `start` for so long at most; None waits.
        """
        self._stopped.set()
        self._poked.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(within_s)

    def close(self) -> None:
        """Stop, and close what it opened."""
        self.stop()
        self._way.close()
        self._connections.close()

    # --- the steps ----------------------------------------------------------------

    def _take(self) -> Taken | None:
        """Lease a lane that has something, and read it."""
        config, table = self.config, self.outbox.table
        self._step(Step.TAKING)
        run = self._connections.statements.run
        until = self._clock() + config.lease_s * _SEND_UNTIL
        with self._connections.transaction() as connection:
            now = self._connections.now_ms(connection)
            lock = self.outbox.dialect.lock
            found = run(
                connection,
                f"SELECT lane FROM {table}_lanes WHERE until_ms <= ? AND EXISTS ("  # noqa: S608 - the name was looked at
                f"SELECT 1 FROM {table} WHERE {table}.lane = {table}_lanes.lane "
                "AND parked_ms IS NULL AND retry_ms <= ? AND (due_ms IS NULL OR due_ms <= ?)) "
                f"ORDER BY until_ms LIMIT 1{lock}",
                (now, now, now),
            ).fetchone()
            if found is None:
                return None
            lane = int(found[0])
            end = now + int(config.lease_s * 1000)
            self._lease(connection, lane, end)
            rows = run(connection, _ready(table), (lane, now, now, now, config.batch)).fetchall()
            self._step(Step.TAKEN)
        self._step(Step.LEASED)
        return Taken(lane, [_row(each) for each in rows], until)

    def _due_in_s(self) -> float:
        """Tell when the next message is due."""
        with self._connections.transaction() as connection:
            now = self._connections.now_ms(connection)
            (due,) = self._connections.statements.run(
                connection,
                f"SELECT MIN(due_ms) FROM {self.outbox.table} WHERE due_ms > ?",  # noqa: S608
                (now,),
            ).fetchone()
        return float("inf") if due is None else (int(due) - now) / 1000

    def _lease(self, connection: Connection, lane: int, until: int) -> None:
        self._connections.statements.run(
            connection,
            f"UPDATE {self.outbox.table}_lanes SET owner = ?, until_ms = ? WHERE lane = ?",  # noqa: S608
            (self.name, until, lane),
        )

    def _publish(self, taken: Taken) -> None:
        """Send what was taken, and note what became of it."""
        outcomes: list[tuple[Row, Outcome]] = []
        lost: UnreachableError | None = None
        rows = sorted(taken.rows, key=lambda row: row.topic)  # within a topic as they were
        for topic, group in groupby(rows, key=lambda row: row.topic):
            if lost is not None or self._clock() >= taken.until:
                break
            several = list(group)
            self._step(Step.SENDING)
            try:
                found = self._way.send(topic, several)
            except (ClosedError, ForkedError):
                raise
            except TinyMQError as error:
                found = [error] * len(several)
            self._step(Step.SENT)
            outcomes += zip(several, found, strict=True)
            lost = next((each for each in found if isinstance(each, UnreachableError)), None)
        self._note(taken, outcomes)
        self._step(Step.DONE)
        if lost is not None:
            raise lost
        for topic in {row.topic for row, outcome in outcomes if outcome is None} - self._asked:
            self._ask(topic)  # now that it is there for certain

    def _note(self, taken: Taken, outcomes: Sequence[tuple[Row, Outcome]]) -> None:
        """Delete what the broker has, write down what it refused, and let go of the lane."""
        stored = [row.seq for row, outcome in outcomes if outcome is None]
        refused = [
            (row, outcome)
            for row, outcome in outcomes
            if isinstance(outcome, TinyMQError) and not isinstance(outcome, UnreachableError)
        ]
        run, table = self._connections.statements.run, self.outbox.table
        parked = 0
        with self._connections.transaction() as connection:
            now = self._connections.now_ms(connection)
            if stored:
                run(connection, f"DELETE FROM {table} WHERE seq IN ({_listed(stored)})")  # noqa: S608
            for row, error in refused:
                parked += self._refused(connection, row, error, now)
            run(
                connection,
                f"UPDATE {table}_lanes SET owner = '', until_ms = ? "  # noqa: S608
                "WHERE lane = ? AND owner = ?",
                (now, taken.lane, self.name),
            )
            self._step(Step.NOTED)
        self.sent += len(stored)
        self.parked += parked

    def _refused(self, connection: Connection, row: Row, error: TinyMQError, now: int) -> bool:
        """Let a row wait, or park it."""
        attempts = row.attempts + 1
        parked = attempts >= self.config.park_after and not is_transient(error)
        retry = now + int(self._wait_s(attempts) * 1000)
        self._connections.statements.run(
            connection,
            f"UPDATE {self.outbox.table} SET attempts = ?, retry_ms = ?, parked_ms = ?, "  # noqa: S608
            "error = ? WHERE seq = ?",
            (
                attempts,
                0 if parked else retry,
                now if parked else None,
                f"{type(error).__name__}: {error}".replace("\0", "")[:_ERROR],
                row.seq,
            ),
        )
        if parked:
            _log.error("message %s for %s is parked: %s", row.id, row.topic, error)
        return parked

    # --- small things --------------------------------------------------------------

    def _ask(self, topic: str) -> None:
        """Warn once of a topic that would store a repeat."""
        self._asked.add(topic)
        if self._way.dedup_ms(topic) == 0:
            _log.warning(
                "topic %s has no dedup window: after a crash a message may be in it twice; "
                "set dedup.ms, and dedup.by to header:message-id or id",
                topic,
            )

    def _wait_s(self, attempts: int) -> float:
        config = self.config
        wait = min(config.retry_s * float(1 << min(attempts - 1, 30)), config.most_retry_s)
        return wait * (0.75 + 0.5 * self._chance())

    def _rest(self, what: str, error: Exception) -> None:
        """Wait after a failure; a poke does not make it shorter."""
        self._failures += 1
        wait = self._wait_s(self._failures)
        _log.warning("%s; next attempt in %.1f s: %s", what, wait, error)
        self._stopped.wait(wait)


def _ready(table: str) -> str:
    """Read rows of a lane, but none behind one of the same key that waits for its retry."""
    return (
        "SELECT seq, id, topic, message_key, value, headers, attempts "  # noqa: S608
        f"FROM {table} AS one WHERE lane = ? AND parked_ms IS NULL AND retry_ms <= ? "
        "AND (due_ms IS NULL OR due_ms <= ?) "
        f"AND NOT EXISTS (SELECT 1 FROM {table} AS other WHERE other.lane = one.lane "
        "AND other.retry_ms > ? AND other.retry_ms > 0 AND other.parked_ms IS NULL "
        "AND other.seq < one.seq AND other.topic = one.topic "
        "AND other.message_key = one.message_key) ORDER BY seq LIMIT ?"
    )


def _row(found: Sequence[Any]) -> Row:
    seq, message_id, topic, key, value, headers, attempts = found
    pairs = msgpack.unpackb(bytes(headers), use_list=False)
    return Row(
        int(seq),
        str(message_id),
        str(topic),
        None if key is None else bytes(key),
        None if value is None else bytes(value),
        tuple((name, content) for name, content in pairs),
        int(attempts),
    )


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


__all__ = ["Relay", "RelayConfig", "Step", "Taken", "Waits"]
