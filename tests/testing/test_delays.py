"""Delays on the fake clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tinymq.client import Requeue, Subscription
from tinymq.errors import InvalidRequest
from tinymq.testing import InProcessBroker


def subscribe(broker: InProcessBroker) -> Subscription:
    """Subscribe to a topic with one message."""
    client = broker.client()
    broker.run(client.producer().send("t", b"x"))
    return client.subscription("t", "c")


def test_a_message_comes_again_at_a_time() -> None:
    """The broker's clock decides when a time has come, and not a second before."""
    with InProcessBroker() as broker:
        subscription = subscribe(broker)
        message = broker.run(subscription.next())
        assert message is not None
        then = datetime.fromtimestamp(broker.wall_ms / 1000, UTC) + timedelta(minutes=30)
        message.requeue(at=then, failure=False)
        again = subscription.next()
        seen: list[int] = []
        again.addCallback(lambda found: seen.append(0 if found is None else found.attempt))

        broker.advance(timedelta(minutes=30, seconds=-1))
        assert seen == []
        broker.advance(2)
        assert seen == [2]


def test_a_time_that_has_passed() -> None:
    """It means at once."""
    with InProcessBroker() as broker:
        subscription = subscribe(broker)
        message = broker.run(subscription.next())
        assert message is not None
        message.requeue(at=5)

        assert broker.run(subscription.next(), timeout=1) is not None


def test_a_handler_names_a_time() -> None:
    """What a handler raises says when its message comes again."""
    with InProcessBroker() as broker:
        subscription = subscribe(broker)
        attempts: list[float] = []

        def handle(message: object) -> None:
            attempts.append(broker.clock.seconds())
            if len(attempts) == 1:
                raise Requeue(at=broker.wall_ms + 60_000)

        running = subscription.run(handle)
        broker.advance(61)
        broker.run(subscription.close())
        broker.run(running)

        assert [round(each - attempts[0]) for each in attempts] == [0, 60]


def test_more_than_a_year() -> None:
    """What lies too far ahead is refused by the broker, which knows its time."""
    with InProcessBroker() as broker:
        subscription = subscribe(broker)
        message = broker.run(subscription.next())
        assert message is not None
        message.requeue(at=broker.wall_ms + 366 * 86_400_000)
        with pytest.raises(InvalidRequest, match="31536000000"):
            broker.run(message.confirmed())
