"""Producers are pushed back by a channel that is full, as a client sees it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from twisted.internet.defer import Deferred

from tinymq.client import ProducerConfig, SubscriptionConfig
from tinymq.errors import DeadlineExceeded, Overloaded
from tinymq.testing import InProcessBroker


@pytest.fixture(name="broker")
def fixture_broker() -> Iterator[InProcessBroker]:
    """A broker with two topics, and a channel that takes no more than three messages of one."""
    with InProcessBroker() as broker:
        broker.create_topic("t")
        broker.create_topic("other")
        client = broker.client()
        config = {"max.length": 3, "overflow": "refuse"}
        broker.run(client.admin.create_channel("t", "c", config))
        yield broker


def test_a_producer_gets_through_when_the_channel_drains(broker: InProcessBroker) -> None:
    """It tries again by itself; nothing is lost or doubled, and other topics do not notice."""
    client = broker.client()
    producer = client.producer()
    for number in range(3):
        broker.run(producer.send("t", b"%d" % number))
    waiting = producer.send("t", b"late")
    assert isinstance(waiting, Deferred)
    came: list[object] = []
    waiting.addBoth(came.append)
    broker.advance(3)
    other = broker.run(producer.send("other", b"x"))
    early = list(came)

    subscription = client.subscription("t", "c", SubscriptionConfig())
    for _ in range(3):
        message = broker.run(subscription.next())
        assert message is not None
        message.finish()
    broker.advance(10)

    assert early == []
    assert other.offset == 0
    assert len(came) == 1
    assert [each.value for each in broker.records("t")] == [b"0", b"1", b"2", b"late"]


def test_who_does_not_wait_hears_what_to_do(broker: InProcessBroker) -> None:
    """The error names the channel and what can be done about it."""
    client = broker.client()
    producer = client.producer(ProducerConfig(deadline_s=2))
    for number in range(3):
        broker.run(producer.send("t", b"%d" % number))
    failed = producer.send("t", b"late")
    came: list[object] = []
    failed.addErrback(lambda failure: came.append(failure.value))
    broker.advance(5)

    (error,) = came
    assert isinstance(error, (DeadlineExceeded, Overloaded))
    assert "channel c of t/0" in str(error)
    assert "max.length" in str(error)


def test_who_lowers_the_limit_stops_no_producer(broker: InProcessBroker) -> None:
    """Where what is too much goes to the dead letters, nobody waits for those who hold messages."""
    client = broker.client()
    broker.run(client.admin.create_channel("other", "c"))
    subscription = client.subscription("other", "c", SubscriptionConfig())
    producer = client.producer()
    broker.run(producer.send_batch("other", [b"held"] * 5))
    held = [broker.run(subscription.next()) for _ in range(5)]

    broker.run(client.admin.alter_channel("other", "c", {"max.length": 2}))
    broker.advance(1)
    broker.run(client.producer(ProducerConfig(deadline_s=2)).send("other", b"new"))
    broker.advance(1)
    for message in held:
        assert message is not None
        message.finish()
    broker.run(subscription.settled())

    assert [each.value for each in broker.records("other.c.dead")] == [b"new"]
