"""Delays on the fake clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tinymq.client import Requeue, Subscription
from tinymq.testing import InProcessBroker


def subscribe(broker: InProcessBroker) -> Subscription:
    """Subscribe to a topic with one message."""
    client = broker.client()
    broker.create_topic("t", retention_ms=None)
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


def test_how_far_a_time_may_lie_ahead() -> None:
    """Years are well; what is beyond the year 9999 by the broker's time is refused."""
    with InProcessBroker() as broker:
        subscription = subscribe(broker)
        message = broker.run(subscription.next())
        assert message is not None
        message.requeue(timedelta(days=4000), failure=False)
        broker.run(message.confirmed())
        broker.jump(days=3999)
        again = subscription.next()
        broker.settle()
        assert not again.called
        broker.jump(days=2)
        assert broker.run(again) is not None


# --- messages that are not due yet --------------------------------------------------


def values(broker: InProcessBroker) -> list[bytes | None]:
    """What the topic holds."""
    return [record.value for record in broker.records("t")]


def test_a_delayed_message_comes_in_its_time() -> None:
    """Not a second before, and only once."""
    with InProcessBroker() as broker:
        place = broker.run(broker.client().producer().send("t", b"x", delay=1800))
        assert str(place) == "t/0~0"
        broker.advance(timedelta(minutes=29, seconds=59))
        assert values(broker) == []
        broker.advance(2)
        assert values(broker) == [b"x"]
        broker.jump(days=1)
        assert values(broker) == [b"x"]


def test_a_delayed_message_at_a_time() -> None:
    """The broker's clock decides; a jump gets there, too."""
    with InProcessBroker() as broker:
        then = datetime.fromtimestamp(broker.wall_ms / 1000, UTC) + timedelta(days=3)
        broker.run(broker.client().producer().send("t", b"x", at=then))
        broker.jump(days=2, hours=23)
        assert values(broker) == []
        broker.jump(hours=2)
        assert values(broker) == [b"x"]


@pytest.mark.parametrize("end", ["stop", "kill", "power_cut"])
def test_a_delayed_message_outlives_the_broker(end: str) -> None:
    """However the broker ended, what waited comes once it is due, or when it is back."""
    with InProcessBroker() as broker:
        producer = broker.client().producer()
        broker.run(producer.send_batch("t", [b"a", b"b"], delay=[60, 3600]))
        getattr(broker, end)()
        broker.advance(120)
        broker.restart()
        broker.advance(5)
        assert values(broker) == [b"a"]
        broker.jump(hours=1)
        assert values(broker) == [b"a", b"b"]


def test_a_step_of_the_clock_moves_nothing() -> None:
    """What waits does not notice that the machine's clock was set."""
    with InProcessBroker() as broker:
        broker.run(broker.client().producer().send("t", b"x", delay=60))
        broker.set_wall(broker.wall_ms + 86_400_000)
        broker.advance(59)
        assert values(broker) == []
        broker.advance(2)
        assert values(broker) == [b"x"]


def test_what_waits_is_changed() -> None:
    """By its place a message is looked at, moved, let go and cancelled."""
    with InProcessBroker() as broker:
        client = broker.client()
        sent = broker.run(client.producer().send_batch("t", [b"a", b"b", b"c"], delay=3600))
        assert sent.delayed == [(0, 0, 3)]
        listed = broker.run(client.admin.list_delayed("t"))
        assert [row["id"] for row in listed["messages"]] == [0, 1, 2]
        assert broker.run(client.admin.delayed("t/0~1"))["message"]["value"] == "b"
        assert broker.run(client.admin.delayed_histogram("t"))["total"] == 3
        assert broker.run(client.admin.cancel_delayed("t/0~0"))["done"] == [0]
        assert broker.run(client.admin.delayed_now("t/0~1"))["done"] == [1]
        assert broker.run(client.admin.move_delayed("t/0~2", delay=60))["done"] == [2]
        broker.advance(1)
        assert values(broker) == [b"b"]
        broker.advance(60)
        assert values(broker) == [b"b", b"c"]
        assert broker.run(client.admin.cancel_delayed("t/0~0"))["missing"] == [0]


def test_a_lost_answer_to_a_delayed_message() -> None:
    """It waits once all the same."""
    with InProcessBroker() as broker:
        broker.create_topic("t")
        broker.drop_acknowledgements(1)
        broker.run(broker.client().producer().send("t", b"x", delay=60))
        assert len(broker.dropped) == 1
        broker.advance(120)
        assert values(broker) == [b"x"]


def test_a_delayed_message_in_asyncio() -> None:
    """It comes on the same clock for asyncio's clients."""
    with InProcessBroker() as broker:

        async def send_and_read() -> tuple[bytes | None, float]:
            async with broker.asyncio_client() as client:
                began = broker.clock.seconds()
                place = await client.producer().send("t", b"x", delay=timedelta(minutes=30))
                assert str(place) == "t/0~0"
                async with client.subscription("t", "c") as subscription:
                    message = await subscription.next()
                    assert message is not None
                    message.finish()
                    return message.value, broker.clock.seconds() - began

        value, waited = broker.run_asyncio(send_and_read(), timeout=3600)

        assert (value, round(waited)) == (b"x", 1800)
        assert waited >= 1800


def test_a_time_to_live_begins_when_the_message_comes() -> None:
    """What nobody took in time goes to the dead-letter topic; a delay does not count."""
    with InProcessBroker() as broker:
        client = broker.client()
        broker.create_topic("t")
        broker.run(client.admin.create_channel("t", "c"))
        producer = client.producer()
        broker.run(producer.send("t", b"soon", ttl=60))
        broker.run(producer.send("t", b"later", delay=90, ttl=60))
        broker.run(producer.send("t", b"for ever"))
        broker.advance(100)
        subscription = client.subscription("t", "c")
        taken = [broker.run(subscription.next()) for _ in range(2)]

        assert [None if one is None else one.value for one in taken] == [b"for ever", b"later"]
        assert [record.value for record in broker.records("t.c.dead")] == [b"soon"]
