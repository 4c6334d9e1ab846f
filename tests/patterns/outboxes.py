"""An outbox on a table, topics in memory, and relays between them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from attrs import evolve

from tests.patterns.conftest import Base
from tinymq.errors import TinyMQError
from tinymq.patterns.outbox import Outbox, Relay, RelayConfig, Row
from tinymq.patterns.outbox.way import Outcome, Waits, is_transient


class Topics:
    """
    Topics that know ids again, as those with a dedup window, and do what tests tell them.

    Attributes:
        came: The ids of what came, repeats too.
        stored: What is stored, in order.
        refuse: Says why a row is not taken, None if it is.
        before: Called before anything of a send is stored.
        window: What is said of the dedup window.
    """

    def __init__(self) -> None:
        self.came: list[str] = []
        self.stored: list[Row] = []
        self.refuse: Callable[[Row], TinyMQError | None] = lambda row: None
        self.before: Callable[[], object] = lambda: None
        self.window: int | None = 60_000
        self.closed = False
        self._ids: set[str] = set()
        self._lock = threading.Lock()

    def send(self, topic: str, rows: Sequence[Row]) -> list[Outcome]:
        """Store rows that are new."""
        self.before()
        outcomes: list[Outcome] = []
        stuck: set[bytes | None] = set()
        with self._lock:
            for row in rows:
                assert row.topic == topic
                if row.key is not None and row.key in stuck:
                    outcomes.append(Waits.BEHIND)
                    continue
                error = self.refuse(row)
                outcomes.append(error)
                if error is not None:
                    stuck.add(row.key)
                    if is_transient(error):
                        outcomes += [Waits.BEHIND] * (len(rows) - len(outcomes))
                        break
                    continue
                self.came.append(row.id)
                if row.id not in self._ids:
                    self._ids.add(row.id)
                    self.stored.append(row)
        return outcomes

    def dedup_ms(self, topic: str) -> int | None:
        """Say what is said of the dedup window."""
        return self.window

    def close(self) -> None:
        """Note it."""
        self.closed = True

    @property
    def values(self) -> list[bytes | None]:
        """What is stored."""
        return [row.value for row in self.stored]


class Stage:
    """
    An outbox with its table.

    Args:
        base: The database.
    """

    def __init__(self, base: Base, **more: Any) -> None:
        self.base = base
        self.time = 1_800_000_000.0
        # The test's clock rules, where otherwise that of a server does.
        dialect = evolve(base.dialect, now="")
        self.outbox = Outbox(dialect, clock=lambda: self.time, **more)
        self.topics = Topics()
        self.relays: list[Relay] = []
        with self.work() as connection:
            self.outbox.create(connection)

    @contextmanager
    def work(self) -> Iterator[Any]:
        """Lend a connection for one transaction."""
        with closing(self.base.connect()) as connection:
            try:
                yield connection
                connection.commit()
            except BaseException:
                connection.rollback()
                raise

    def add(self, *values: bytes, topic: str = "t", key: str | None = None) -> list[str]:
        """Write messages in one transaction."""
        with self.work() as connection:
            return [self.outbox.add(connection, topic, value, key) for value in values]

    def relay(self, config: RelayConfig | None = None, **more: Any) -> Relay:
        """Make a relay."""
        settings: dict[str, Any] = {"chance": lambda: 0.5, "clock": lambda: self.time, **more}
        relay = Relay(self.outbox, self.base.connect, self.topics, config, **settings)
        self.relays.append(relay)
        return relay

    @property
    def left(self) -> int:
        """How many rows are in the table."""
        with self.work() as connection:
            depth = self.outbox.depth(connection)
        return depth.waiting + depth.parked

    def close(self) -> None:
        """End all relays."""
        for relay in self.relays:
            relay.close()
