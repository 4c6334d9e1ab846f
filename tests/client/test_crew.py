"""Several consumers of one channel, with a real broker in memory, whatever happens to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred

from tinymq.client import Client, Message, Subscription, SubscriptionConfig
from tinymq.errors import LeaseLost
from tinymq.testing import InProcessBroker

#: Most messages in flight of each consumer.
MOST = 7


@pytest.fixture
def broker() -> Iterator[InProcessBroker]:
    """A broker with a topic."""
    with InProcessBroker() as broker:
        broker.create_topic("t", 2)
        yield broker


def put(broker: InProcessBroker, count: int) -> None:
    """Publish numbers, to every partition in turn."""
    sending = broker.client().producer()
    for place in range(count):
        broker.run(sending.send("t", b"%d" % place, partition=place % 2))


def join(broker: InProcessBroker, client: Client | None = None, **config: Any) -> Subscription:
    """Take messages of the channel."""
    client = client or broker.client()
    given = {"max_in_flight": MOST, **config}
    subscription = client.subscription("t", "work", SubscriptionConfig(**given))
    broker.run(subscription.ready())
    broker.advance(0.1)
    return subscription


def taken(subscription: Subscription) -> list[Message]:
    """Take what is there."""
    return list(iter(subscription.take, None))


def counts(broker: InProcessBroker) -> dict[str, Any]:
    """What the broker says of the channel."""
    described = broker.run(broker.client().admin.channel("t", "work"))
    return dict(described["channel"])


class Consumer:
    """One of the crew."""

    def __init__(self, broker: InProcessBroker) -> None:
        self.broker = broker
        self.client = broker.client()
        self.subscription = join(broker, self.client)
        self.hands: list[Message] = []

    def act(self, chance: Random, finished: Counter[bytes]) -> None:
        """Do something that consumers do."""
        what = chance.choice(["take", "take", "finish", "requeue", "reject late", "touch", "cut"])
        if what == "take":
            self.hands += taken(self.subscription)
        elif what == "cut":
            self.broker.cut(self.client)
        elif self.hands:
            message = self.hands.pop(chance.randrange(len(self.hands)))
            self.say(message, what, finished)

    def say(self, message: Message, what: str, finished: Counter[bytes]) -> None:
        """Say what became of a message, or touch it."""
        try:
            if what == "finish":
                message.finish()
                message.confirmed().addCallbacks(
                    lambda _: finished.update([message.value or b""]), lambda _: None
                )
            elif what == "touch":
                message.touch()
                self.hands.append(message)
            else:
                message.requeue(0.5 if what == "requeue" else 0, failure=False)
        except LeaseLost:
            assert message.is_lost

    @property
    def held(self) -> int:
        """How many it has in hand."""
        return sum(message.held for message in self.hands)


@settings(deadline=None, max_examples=4)
@given(st.integers(0, 1 << 32))
def test_whatever_consumers_do_everything_is_finished_once(seed: int) -> None:
    """Never is more in flight than asked for; after quiet nothing is, and the queue is empty."""
    chance, finished = Random(seed), Counter[bytes]()
    with InProcessBroker() as broker:
        broker.create_topic("t", 2)
        put(broker, 40)
        crew = [Consumer(broker) for _ in range(5)]
        for _ in range(60):
            consumer = chance.choice(crew)
            consumer.act(chance, finished)
            broker.advance(chance.choice([0, 0.05, 1]))
            assert all(each.subscription.in_flight <= MOST for each in crew)
            assert all(each.held <= MOST for each in crew)
        for _ in range(20):
            broker.advance(1)
            for consumer in crew:
                consumer.hands += taken(consumer.subscription)
                for message in consumer.hands:
                    consumer.say(message, "finish", finished)
                consumer.hands.clear()
        broker.advance(1)
        found = counts(broker)

        assert (found["lag"], found["in_flight"], found["ready"]) == (0, 0, 0)
        assert [each.subscription.in_flight for each in crew] == [0] * 5
        assert finished == Counter(b"%d" % place for place in range(40))


def test_a_broker_that_stops_takes_what_consumers_have_in_hand(broker: InProcessBroker) -> None:
    """While it drains it gives nothing out, takes settles, and none of those comes again."""
    put(broker, 30)
    subscription = join(broker, max_in_flight=20)
    messages = taken(subscription)
    rooms = broker._running
    rooms.refuse()
    for message in messages:
        message.finish()
        broker.advance(0.05)
    confirmed = [message.standing.value for message in messages]
    during = taken(subscription)
    broker.restart()
    broker.advance(30)
    again = taken(subscription)

    assert len(messages) == 20
    assert confirmed == ["confirmed"] * 20
    assert during == []
    assert len(again) == 10
    assert {each.value for each in again}.isdisjoint({each.value for each in messages})


def test_a_handler_that_is_always_too_slow_gives_its_message_up(broker: InProcessBroker) -> None:
    """A message whose handler never ends in time goes to the dead-letter topic in the end."""
    admin = broker.client().admin
    config = {"handler.ms": 2000, "lease.ms": 1000, "attempts": 3, "backoff": ["1s"]}
    broker.run(admin.create_channel("t", "work", config))
    subscription = join(broker)
    begun: list[int] = []

    def handle(message: Message) -> Deferred[None]:
        begun.append(message.attempt)
        return Deferred()

    running = subscription.run(handle, concurrency=5, cancel_lost=True)
    running.addErrback(lambda _: None)
    put(broker, 1)
    broker.advance(60)
    (letter,) = broker.records("t.work.dead")
    headers = dict(letter.headers)

    assert begun == [1, 2, 3]
    assert headers["tinymq-reason"] == b"timeout"
    assert counts(broker)["lag"] == 0


def test_a_handler_longer_than_its_lease_keeps_its_message(broker: InProcessBroker) -> None:
    """Leases are renewed as long as the handler runs, and the link lives."""
    broker.run(broker.client().admin.create_channel("t", "work", {"lease.ms": 1000}))
    slow, other = join(broker), join(broker)
    working: list[Deferred[None]] = []

    def handle(message: Message) -> Deferred[None]:
        working.append(Deferred())
        return working[-1]

    slow.run(handle)
    put(broker, 1)
    broker.advance(120)
    held = slow.in_flight + other.in_flight
    for each in working:
        each.callback(None)
    broker.advance(1)

    assert len(working) <= 1
    assert held == 1
    assert slow.late == 0


def test_who_lost_a_message_hears_of_it_and_the_other_counts(broker: InProcessBroker) -> None:
    """A late finish is refused as late, and hits nobody else; the new holder's is taken."""
    put(broker, 1)
    first = join(broker)
    (message,) = taken(first)
    told: list[None] = []
    message.lost.addCallback(told.append)
    channel = broker.run(broker.client().admin.channel("t", "work"))["channel"]
    broker.run(broker.client().admin.seek_channel("t", "work", "earliest"))
    broker.advance(0.1)
    second = join(broker)
    broker.advance(0.1)
    again = taken(second) or taken(first)
    with pytest.raises(LeaseLost):
        message.finish()
    again[0].finish()
    broker.run(again[0].confirmed())

    assert channel["in_flight"] == 1
    assert told == [None]
    assert counts(broker)["lag"] == 0


def test_one_credit_serves_every_partition(broker: InProcessBroker) -> None:
    """With one message in flight at a time, no partition waits longer than a second."""
    put(broker, 40)
    subscription = join(broker, max_in_flight=1)
    partitions: list[int] = []
    for _ in range(10):
        message = broker.run(subscription.next(timeout=1))
        assert message is not None
        partitions.append(message.partition)
        message.finish()
        broker.advance(0.1)

    assert set(partitions[:4]) == set(partitions[-4:]) == {0, 1}
