"""How rows get to topics by a client: what is refused is found out, and nothing overtakes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tinymq.client.core.config import ProducerConfig
from tinymq.client.core.results import Failed, PartlySent, Sent
from tinymq.errors import (
    Forbidden,
    InvalidRequest,
    StorageFull,
    TinyMQError,
    UnknownTopic,
    UnreachableError,
    Unroutable,
)
from tinymq.patterns.outbox import ClientWay, Row
from tinymq.patterns.outbox.way import Waits, is_transient

BEHIND = Waits.BEHIND


class Broker:
    """
    A client, its producer and what it asks.

    Attributes:
        calls: What was sent, call by call.
        refuse: Says why a value is not stored.
        config: Settings of topics.
    """

    def __init__(self) -> None:
        self.calls: list[list[bytes]] = []
        self.refuse: Callable[[bytes], TinyMQError | None] = lambda value: None
        self.config: dict[str, Any] | TinyMQError = {}
        self.more: dict[str, Any] = {}
        self.closed = False
        self.settings: ProducerConfig | None = None
        self.admin = self

    def producer(self, config: ProducerConfig) -> Broker:
        """Be the producer, too."""
        self.settings = config
        return self

    def send_batch(
        self,
        topic: str,
        values: Sequence[bytes],
        keys: Sequence[bytes | None],
        headers: Sequence[Any],
        ids: Sequence[bytes] | None = None,
    ) -> Sent:
        """Store what is not refused."""
        self.calls.append([*values])
        self.more = {"ids": ids, "keys": keys, "headers": headers}
        errors = [self.refuse(value) for value in values]
        failed = [
            Failed(topic, value, error)
            for value, error in zip(values, errors, strict=True)
            if error is not None
        ]
        sent = Sent(len(values) - len(failed), [])
        if failed and not sent.count:
            raise failed[0].error
        if failed:
            raise PartlySent(sent, failed)
        return sent

    def topic(self, name: str) -> dict[str, Any]:
        """Describe a topic."""
        if isinstance(self.config, TinyMQError):
            raise self.config
        return {"topic": {"config": self.config}}

    def close(self) -> None:
        """Note it."""
        self.closed = True


def rows(*values: bytes, key: bytes | None = None) -> list[Row]:
    """Make rows."""
    return [Row(n, f"{n:032x}", "t", key, value, (), 0) for n, value in enumerate(values)]


@pytest.fixture
def broker() -> Broker:
    """Return a broker."""
    return Broker()


@pytest.fixture
def way(broker: Broker) -> ClientWay:
    """Return the way to it."""
    client: Any = broker
    return ClientWay(client, deadline_s=4.5, config=ProducerConfig(codec="zstd"))


def test_all_in_one(broker: Broker, way: ClientWay) -> None:
    """What fits goes in one batch, with ids, and within the deadline."""
    assert way.send("t", rows(b"1", b"2", key=b"k")) == [None, None]
    assert broker.calls == [[b"1", b"2"]]
    assert broker.more["ids"] == [bytes(16), bytes(15) + b"\1"]
    assert broker.settings is not None
    assert (broker.settings.deadline_s, broker.settings.codec) == (4.5, "zstd")
    way.close()
    assert broker.closed


def test_large_rows_go_apart(broker: Broker, way: ClientWay) -> None:
    """Rows that do not fit into one batch go one run after the other; a failure ends that."""
    large = [b"%d" % n + bytes(300_000) for n in range(3)]
    assert way.send("t", rows(*large)) == [None] * 3
    assert [len(call) for call in broker.calls] == [1, 1, 1]

    full = StorageFull()
    broker.refuse = lambda value: full if value.startswith(b"1") else None
    assert way.send("t", rows(*large)) == [None, full, BEHIND]


def test_a_poisoned_batch(broker: Broker, way: ClientWay) -> None:
    """Which row it is that is refused is found out, and what has its key does not overtake."""
    bad = InvalidRequest("bad")
    broker.refuse = lambda value: bad if value == b"bad" else None
    same = rows(b"1", b"bad", b"2", key=b"k")
    other = [row._replace(key=b"other") for row in rows(b"3")]
    assert way.send("t", same + other) == [None, bad, BEHIND, None]
    assert way.send("t", rows(b"bad", b"1")) == [bad, None]
    assert way.send("t", rows(b"bad")) == [bad]


def test_an_outage_in_the_middle(broker: Broker, way: ClientWay) -> None:
    """What time heals holds up all that is behind it, and nothing is tried one by one."""
    full = StorageFull()
    broker.refuse = lambda value: full
    assert way.send("t", rows(b"1", b"2")) == [full, full]
    assert len(broker.calls) == 1

    broker.refuse = lambda value: full if value == b"2" else None
    assert way.send("t", rows(b"1", b"2", b"3")) == [None, full, BEHIND]


def test_nobody_takes_it(broker: Broker, way: ClientWay, caplog: pytest.LogCaptureFixture) -> None:
    """What an exchange routes nowhere is stored there, so it is not sent again and again."""
    broker.refuse = lambda value: Unroutable() if value == b"2" else None
    assert way.send("t", rows(b"1", b"2")) == [None, None]
    assert way.send("t", rows(b"2", b"2")) == [None, None]
    assert "routes some of 2 messages nowhere" in caplog.text


@pytest.mark.parametrize(
    ("config", "known"),
    [
        ({}, 0),
        ({"dedup.ms": None, "dedup.by": "id"}, 0),
        ({"dedup.ms": 1000}, 1000),
        ({"dedup.ms": 1000, "dedup.by": "header:message-id"}, 1000),
        ({"dedup.ms": 1000, "dedup.by": "header:other"}, 0),
        (Forbidden(), None),
    ],
)
def test_the_window(broker: Broker, way: ClientWay, config: Any, known: int | None) -> None:
    """A window counts if it is by the ids that are sent; nobody is warned without knowing."""
    broker.config = config
    assert way.dedup_ms("t") == known


@pytest.mark.parametrize(
    ("error", "heals"),
    [
        (UnreachableError(), True),
        (StorageFull(), True),
        (UnknownTopic(), False),
        (InvalidRequest(), False),
    ],
)
def test_what_time_heals(error: TinyMQError, heals: bool) -> None:
    """An outage is not held against a message, what its topic says of it is."""
    assert is_transient(error) is heals
