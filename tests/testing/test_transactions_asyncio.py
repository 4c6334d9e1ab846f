"""Transactions with asyncio, from client to disk."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tinymq.aio import Client, Out, TransactionalProducer
from tinymq.errors import ProducerFenced, UsageError
from tinymq.testing import InProcessBroker


def values(broker: InProcessBroker, topic: str) -> list[bytes | None]:
    """What a consumer sees that shows committed records."""

    async def read() -> list[bytes | None]:
        found: list[bytes | None] = []
        async with broker.asyncio_client() as client, client.consumer() as consumer:
            await consumer.assign(topic)
            while (batch := await consumer.next_batch(timeout=0.6)) is not None:
                found += batch.values
        return found

    return broker.run_asyncio(read())


@pytest.fixture
def broker(tinymq_broker: InProcessBroker) -> InProcessBroker:
    """Return a broker with two topics."""
    tinymq_broker.create_topic("t")
    tinymq_broker.create_topic("u")
    return tinymq_broker


async def fail(producer: TransactionalProducer) -> None:
    """Raise something in a block."""
    async with producer.transaction() as tx:
        tx.send("t", b"no")
        raise ZeroDivisionError


def test_blocks(broker: InProcessBroker) -> None:
    """A block is committed at its end, and aborted by an exception or a cancellation."""

    async def cancelled(client: Client, begun: asyncio.Event) -> None:
        async with client.transactional("two") as other, other.transaction() as tx:
            tx.send("t", b"cancelled")
            await tx.flush()
            begun.set()
            await asyncio.Event().wait()

    async def body() -> None:
        async with broker.asyncio_client() as client, client.transactional("one") as producer:
            async with producer.transaction() as tx:
                tx.send("t", b"a")
                tx.send_batch("u", [b"b", b"c"])
            assert tx.committed
            with pytest.raises(ZeroDivisionError):
                await fail(producer)
            begun = asyncio.Event()
            task = asyncio.ensure_future(cancelled(client, begun))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            first = producer.begin()
            first.send("t", b"d")
            ending = first.commit()
            with pytest.raises(UsageError):
                first.commit()
            second = producer.begin()
            second.send("t", b"e")
            await second.commit()
            await ending

    broker.run_asyncio(body())
    assert values(broker, "t") == [b"a", b"d", b"e"]
    assert values(broker, "u") == [b"b", b"c"]


def test_transform(broker: InProcessBroker) -> None:
    """What comes from a channel is handled, and what is made of it is sent, once."""
    broker.run(broker.client().producer().send_batch("t", [b"%d" % n for n in range(20)]))

    async def handle(message: Any) -> Out:
        await asyncio.sleep(0)
        return Out("u", message.value, key=b"k")

    async def body() -> None:
        async with broker.asyncio_client() as client:
            source = client.subscription("t", "c")
            producer = client.transactional("one")
            working = asyncio.ensure_future(
                producer.transform(source, handle, most=6, linger_s=0.01)
            )
            await asyncio.sleep(3)
            await source.close()
            await working
            stopped = client.subscription("t", "c")
            working = asyncio.ensure_future(producer.transform(stopped, handle))
            await asyncio.sleep(1)
            working.cancel()
            with pytest.raises(asyncio.CancelledError):
                await working
            other = client.transactional("one")
            async with other.transaction() as tx:
                tx.send("u", b"other")
            with pytest.raises(ProducerFenced):
                async with producer.transaction() as tx:
                    tx.send("u", b"mine")
            assert producer.fenced
            assert other.name == "one"

    broker.run_asyncio(body())
    assert sorted(value or b"" for value in values(broker, "u")) == sorted(
        [*(b"%d" % n for n in range(20)), b"other"]
    )
