"""The public names of the asyncio client, used as a program uses them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from tinymq.aio import (
    EARLIEST,
    Account,
    At,
    Client,
    ClientConfig,
    CommittedPosition,
    Consumer,
    ConsumerBatch,
    ConsumerConfig,
    Delayed,
    GroupBatch,
    GroupConsumer,
    GroupMessage,
    Mark,
    Position,
    Producer,
    ProducerConfig,
    Sent,
    TopicInfo,
)


async def produce() -> None:
    """Send; awaiting gives the result, and only what is to be awaited can be."""
    async with Client("tinymq://127.0.0.1", ClientConfig()) as client:
        assert_type(client, Client)
        assert_type(await client.metadata(["t"], create=True), dict[str, TopicInfo])
        async with client.producer(ProducerConfig(acks="all")) as producer:
            assert_type(producer, Producer)
            assert_type(producer.send("t", b"v"), asyncio.Future[Position])
            assert_type(await producer.send("t", None, key="k", headers={"a": b"b"}), Position)
            assert_type(await producer.send_batch("t", [b"a", None], keys=["k", None]), Sent)
            assert_type(await producer.send("t", b"v", ttl=5), Position)
            assert_type(await producer.send("t", b"v", at=datetime.now(UTC)), Delayed)
            assert_type(await producer.send("t", b"v", delay=1.5), Position | Delayed)
            assert_type(await producer.send_batch("t", [b"a"], delay=[timedelta(1), None]), Sent)
            producer.send_oneway("t", b"v", partition=3)
            await producer.send_oneway("t", b"v")  # type: ignore[misc, func-returns-value]
            assert_type(await producer.flush(), Account)
            assert_type(await producer.close(), Account)
        producer.send("t", "text")  # type: ignore[call-overload]


async def consume(client: Client) -> None:
    """Read; what `async for` gives is a batch, what `next_batch` gives may be None."""
    async with client.consumer(ConsumerConfig(max_wait_ms=5)) as consumer:
        assert_type(consumer, Consumer)
        await consumer.assign("t", [0, 1], start={0: EARLIEST, 1: At(ms=5)})
        assert_type(await consumer.next_batch(timeout=1), ConsumerBatch | None)
        async for batch in consumer:
            assert_type(batch, ConsumerBatch)
        consumer.seek("t", 0, 7)
        assert_type(consumer.position("t", 0), int)
        assert_type(consumer.mark("t", 0), Mark)
        await consumer.assign("t", start=consumer.marks("t"))
        await consumer.assign("t", start={0: (5, 1)})
        assert_type(await consumer.end_offsets("t"), dict[int, int])


async def administrate(client: Client) -> None:
    """Administer; each call is a coroutine and can become a task."""
    task = asyncio.create_task(client.admin.create_topic("t", partitions=2))
    assert_type(await task, dict[str, Any])
    assert_type(await client.admin.broker_info(), dict[str, Any])


async def share() -> None:
    """A group consumer gives messages and batches; positions are looked at without one."""
    async with Client() as client:
        async with client.group("g", ["t"], start="latest", instance="one") as consumer:
            assert_type(consumer, GroupConsumer)
            assert_type(await consumer.next(1.0), GroupMessage | None)
            assert_type(await consumer.next_batch(), GroupBatch | None)
            async for message in consumer:
                assert_type(message, GroupMessage)
            async for batch in consumer.batches():
                assert_type(batch.values, list[bytes | None])
            assert_type(consumer.assigned, list[tuple[str, int]])
            await consumer.commit({("t", 0): 5}, note="here")
        positions = client.positions("g")
        assert_type(await positions.committed("t"), dict[int, CommittedPosition])
        await positions.commit("t", {0: Mark(5, 1)})
