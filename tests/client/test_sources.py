"""Subscriptions that take from several topics, with a real broker in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tinymq.client import Client, Message, Subscription, SubscriptionConfig
from tinymq.client.core.sources import Topics
from tinymq.errors import ClosedError, UnknownTopic, UsageError
from tinymq.testing import InProcessBroker


class Scene:
    """A broker with topics, and a client."""

    def __init__(self, broker: InProcessBroker) -> None:
        self.broker = broker
        self.client: Client = broker.client()
        for name in ("urgent", "normal", "idle"):
            broker.create_topic(name)

    def put(self, topic: str, count: int) -> None:
        """Publish."""
        sending = self.client.producer().send_batch(topic, [topic.encode()] * count)
        self.broker.run(sending)
        self.broker.advance(0.1)

    def begin(self, topics: Topics, **config: object) -> Subscription:
        """Subscribe."""
        settings = SubscriptionConfig(**config)  # type: ignore[arg-type]
        subscription = self.client.subscription(topics, "work", settings)
        self.broker.run(subscription.ready())
        return subscription

    def take(self, subscription: Subscription, count: int) -> list[Message]:
        """Take messages that must be there."""
        found = [self.broker.run(subscription.next(timeout=1)) for _ in range(count)]
        assert None not in found
        return [message for message in found if message is not None]


@pytest.fixture
def scene() -> Iterator[Scene]:
    """Set the scene."""
    with InProcessBroker() as broker:
        yield Scene(broker)


def test_the_first_topic_comes_first(scene: Scene) -> None:
    """A message of a lower topic is handed out only while none of a higher is there."""
    scene.put("normal", 3)
    subscription = scene.begin(["urgent", "normal"])
    scene.broker.advance(1)
    (before,) = scene.take(subscription, 1)
    scene.put("urgent", 2)
    rest = scene.take(subscription, 4)

    assert before.topic == "normal"
    assert [message.topic for message in rest] == ["urgent", "urgent", "normal", "normal"]
    assert (subscription.topic, subscription.channel) == ("urgent, normal", "work")
    assert subscription.delivered == subscription.in_flight == 5


def test_what_waits_of_a_lower_topic_is_kept(scene: Scene) -> None:
    """Leases of what has to wait are renewed, so nobody else gets it and it is not late."""
    scene.put("normal", 2)
    subscription = scene.begin(["urgent", "normal"])
    other = scene.begin("normal")
    scene.broker.advance(1000)
    scene.put("urgent", 1)
    messages = scene.take(subscription, 3)
    for message in messages:
        message.finish()
    scene.broker.run(subscription.settled())

    assert [message.topic for message in messages] == ["urgent", "normal", "normal"]
    assert [message.attempt for message in messages] == [1, 1, 1]
    assert (subscription.late, other.delivered) == (0, 0)


def test_weights(scene: Scene) -> None:
    """Topics take turns by weight; one where nothing is there takes none."""
    scene.put("normal", 20)
    scene.put("urgent", 60)
    subscription = scene.begin({"urgent": 3, "normal": 1, "idle": 100})
    scene.broker.advance(1)
    found = [message.topic for message in scene.take(subscription, 40)]
    rest = [message.topic for message in scene.take(subscription, 40)]

    assert found.count("urgent") == 30
    assert found[:8].count("urgent") == 6
    assert (found + rest).count("normal") == 20


def test_the_most_in_flight_is_that_of_all(scene: Scene) -> None:
    """However much there is, no more is delivered in all, and each topic has its share."""
    scene.put("normal", 50)
    scene.put("urgent", 50)
    subscription = scene.begin(["urgent", "normal"], max_in_flight=9)
    scene.broker.advance(1)
    messages = scene.take(subscription, subscription.in_flight)

    assert {message.topic for message in messages} == {"urgent", "normal"}
    assert len(messages) <= 9
    for message in messages:
        message.finish()
    assert len(scene.take(subscription, 3)) == 3


@pytest.mark.parametrize(
    ("topics", "text"),
    [
        ([], "several different"),
        (["urgent", "urgent"], "several different"),
        ({"urgent": 0}, "from 1 on"),
        ({"urgent": 1.5}, "from 1 on"),
        (["urgent", "normal", "idle"], "too few"),
    ],
)
def test_misuse(scene: Scene, topics: Topics, text: str) -> None:
    """Topics that cannot be meant are refused at once."""
    with pytest.raises(UsageError, match=text):
        scene.client.subscription(topics, "work", SubscriptionConfig(max_in_flight=2))


def test_one_that_cannot_go_on_ends_all(scene: Scene) -> None:
    """Nobody takes the others for all there is."""
    subscription = scene.client.subscription(["urgent", "missing"], "work")
    with pytest.raises(UnknownTopic):
        scene.broker.run(subscription.ready())
    scene.put("urgent", 3)
    with pytest.raises(UnknownTopic):
        scene.broker.run(subscription.next())
    scene.broker.advance(1)
    assert subscription.in_flight == 0
    scene.broker.run(subscription.close())
    assert subscription.in_flight == 0


def test_the_end(scene: Scene) -> None:
    """Closing leaves every channel, and gives back what was not handed out."""
    scene.put("normal", 2)
    scene.put("urgent", 1)
    subscription = scene.begin(["urgent", "normal"])
    scene.broker.advance(1)
    scene.take(subscription, 1)[0].finish()
    scene.broker.run(subscription.close())
    with pytest.raises(ClosedError):
        scene.broker.run(subscription.next())
    with pytest.raises(ClosedError):
        scene.broker.run(subscription.ready())
    again = scene.begin(["urgent", "normal"])

    assert [message.topic for message in scene.take(again, 2)] == ["normal", "normal"]


def test_a_client_that_is_closed_ends_it(scene: Scene) -> None:
    """Who waits for a message hears of it."""
    subscription = scene.begin(["urgent", "normal"])
    scene.broker.run(scene.client.close())
    with pytest.raises(ClosedError):
        scene.broker.run(subscription.next())


def test_with_asyncio(scene: Scene) -> None:
    """The asyncio face has the same."""
    scene.put("normal", 1)
    scene.put("urgent", 1)

    async def body() -> list[str]:
        async with scene.broker.asyncio_client() as client:
            subscription = client.subscription({"urgent": 2, "normal": 1}, "work")
            await subscription.ready()
            await asyncio.sleep(1)
            found = [await anext(subscription) for _ in range(2)]
            for message in found:
                message.finish()
            await subscription.settled()
            await subscription.close()
            return [message.topic for message in found]

    assert scene.broker.run_asyncio(body()) == ["urgent", "normal"]
