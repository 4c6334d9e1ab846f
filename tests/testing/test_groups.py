"""Groups in tests of users: the broker within the test looks after them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tinymq.testing import InProcessBroker


@pytest.fixture
def broker() -> Iterator[InProcessBroker]:
    """A broker."""
    with InProcessBroker() as made:
        yield made


def test_a_group_outlives_a_jump(broker: InProcessBroker) -> None:
    """After thirty days in which nobody did anything, a member reads on where it was."""
    client = broker.client()
    broker.create_topic("t", 2)
    broker.run(client.producer().send("t", b"a", partition=0))
    consumer = client.group("g", ["t"])
    message = broker.run(consumer.next(10))
    assert message is not None
    message.done()
    broker.run(consumer.commit())
    broker.jump(days=3)
    broker.advance(60)
    broker.run(client.producer().send("t", b"b", partition=0))
    message = broker.run(consumer.next(60))
    assert message is not None
    assert message.value == b"b"


def test_asyncio(broker: InProcessBroker) -> None:
    """The same with the asyncio client, and a handler."""
    broker.create_topic("t", 1)

    async def body() -> list[bytes | None]:
        client = broker.asyncio_client()
        await client.producer().send_batch("t", [b"a", b"b"])
        found: list[bytes | None] = []
        async with client.group("g", ["t"]) as consumer:
            async for message in consumer:
                found.append(message.value)
                if len(found) == 2:
                    break
        return found

    assert broker.run_asyncio(body()) == [b"a", b"b"]
