"""Subscriptions to a channel at independent nodes, over transports in memory."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred

from tests.client.queueing import QueuePuppet
from tests.client.town import Town
from tinymq.client import LookupSubscription, Message, SubscriptionConfig
from tinymq.errors import ClosedError


class QueueTown(Town):
    """Nodes with a channel each."""

    def __init__(self, **config: Any) -> None:
        super().__init__(make=QueuePuppet, refresh_s=5, **config)

    def queue(self, name: str) -> QueuePuppet:
        """A node."""
        found = self.nodes[name]
        assert isinstance(found, QueuePuppet)
        return found

    def put(self, name: str, *values: bytes) -> None:
        """Store a batch at a node, and let it arrive."""
        if "t" not in self.nodes[name].topics:
            self.nodes[name].make("t")
        self.queue(name).put(*values)
        self.pump()

    def begin(self, **config: Any) -> LookupSubscription:
        """Subscribe."""
        made = self.lookup.subscription("t", "work", SubscriptionConfig(**config))
        self.advance(1)
        return made

    def take(self, subscription: LookupSubscription, count: int) -> list[Message]:
        """Take messages that must be there."""
        found = [self.done(subscription.next()) for _ in range(count)]
        return [message for message in found if message is not None]


def begun(*names: str, **config: Any) -> tuple[QueueTown, LookupSubscription]:
    """A town whose nodes have the topic, and a subscription."""
    town = QueueTown()
    for name in names:
        town.nodes[name].make("t")
    town.announce("t", *names)
    return town, town.begin(**config)


def test_messages_of_all_nodes() -> None:
    """Each node is subscribed to, they take turns, and settles go where messages came from."""
    town, subscription = begun("n1", "n2")
    town.put("n1", b"a", b"b")
    town.put("n2", b"c", b"d")
    messages = town.take(subscription, 4)
    for message in messages:
        message.finish()
    town.done(subscription.settled())

    assert [message.node.name for message in messages] == ["n1", "n2", "n1", "n2"]
    assert [town.queue(name).channel.offsets() for name in ("n1", "n2")] == [[0, 1], [0, 1]]
    assert (subscription.topic, subscription.channel) == ("t", "work")
    assert [node.name for node in subscription.nodes] == ["n1", "n2"]
    town.end()


def test_nodes_come_and_go() -> None:
    """A new node is subscribed to; one that is announced no more is left with nothing in hand."""
    town, subscription = begun("n1", "n2")
    town.put("n1", b"a")
    (message,) = town.take(subscription, 1)
    town.nodes["n3"].make("t")
    town.announce("t", "n3")
    town.advance(12)
    kept = [node.name for node in subscription.nodes]
    message.finish()
    town.advance(12)
    town.put("n3", b"b")
    (other,) = town.take(subscription, 1)

    assert sorted(kept) == ["n1", "n3"]
    assert [node.name for node in subscription.nodes] == ["n3"]
    assert town.queue("n1").channel.offsets() == [0]
    assert other.node.name == "n3"
    assert subscription.delivered == 2
    town.end()


def test_never_more_in_flight_than_asked_for() -> None:
    """The nodes share what may be in flight, also when one joins."""
    town, subscription = begun("n1", max_in_flight=10)
    town.put("n1", *[b"v"] * 20)
    town.nodes["n2"].make("t")
    town.announce("t", "n1", "n2")
    town.advance(12)
    town.put("n2", *[b"v"] * 20)
    found = [subscription.in_flight]
    for _ in range(10):
        for message in town.take(subscription, 2):
            message.finish()
        town.advance(0.1)
        found.append(subscription.in_flight)

    assert max(found) <= 10
    assert min(len(town.queue(name).channel.settled) for name in ("n1", "n2")) > 3
    town.end()


def test_handlers() -> None:
    """A handler gets messages of every node, and closing gives back what it does not end."""
    town, subscription = begun("n1", "n2")
    work: dict[bytes | None, Deferred[None]] = {}

    def handle(message: Message) -> Deferred[None]:
        work[message.value] = Deferred()
        return work[message.value]

    running = subscription.run(handle, concurrency=5)
    town.put("n1", b"a")
    town.put("n2", b"b")
    work[b"a"].callback(None)
    town.pump()
    work[b"b"].addErrback(lambda _: None)
    town.done(subscription.close())
    town.done(running)

    assert town.queue("n1").channel.offsets() == [0]
    assert town.queue("n2").channel.offsets() == []
    assert town.queue("n2").channel.leases == {}
    assert subscription.nodes == []
    town.end()


def test_a_node_that_does_not_let_us_is_tried_again() -> None:
    """The others go on meanwhile."""
    town, subscription = begun("n1", "n2", create=False)
    town.queue("n2").channel.exists = False
    town.announce("t", "n1")
    town.advance(12)
    town.announce("t", "n1", "n2")
    town.advance(12)
    town.put("n1", b"a")
    town.take(subscription, 1)[0].finish()
    town.queue("n2").channel.exists = True
    town.advance(12)
    town.put("n2", b"b")

    assert town.take(subscription, 1)[0].node.name == "n2"
    town.end()


def test_ready_and_the_end() -> None:
    """The first node can be waited for; who waits when it ends is told."""
    town = QueueTown()
    subscription = town.begin()
    ready = subscription.ready()
    ended: list[Any] = []
    town.lookup.subscription("u", "work").ready().addErrback(ended.append)
    town.nodes["n1"].make("t")
    town.announce("t", "n1")
    town.advance(12)
    assert town.done(ready) is None
    town.end()

    assert [failure.type for failure in ended] == [ClosedError]
    with pytest.raises(ClosedError):
        town.done(subscription.next())
    with pytest.raises(ClosedError):
        town.lookup.subscription("t", "work")
