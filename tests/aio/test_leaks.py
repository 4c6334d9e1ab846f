"""What the asyncio face leaves behind: nothing."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from tests.aio.stage import Stage, run, turns
from tinymq.errors import ClosedError


async def objects() -> int:
    """Count what the collector sees, once asyncio has dropped its cancelled timers."""
    await asyncio.sleep(100)
    gc.collect()
    return len(gc.get_objects())


def test_producers_and_consumers() -> None:
    """Opening and closing producers and consumers leaves nothing behind."""

    async def body() -> None:
        async with Stage() as stage:
            stage.puppet.make("t")

            async def turn() -> None:
                producer, consumer = stage.client.producer(), stage.client.consumer()
                await consumer.assign("t", start=0)
                waiting = asyncio.create_task(consumer.next_batch())
                await turns(3)
                await consumer.close()
                with pytest.raises(ClosedError):
                    await waiting
                await producer.close()
                stage.empty()  # the broker's time-out of the fetch
                await turns(3)
                stage.puppet.seen.clear()

            for _ in range(5):
                await turn()
            before = await objects()
            for _ in range(50):
                await turn()

            assert await objects() - before < 50

    run(body())


def test_cancelled_calls() -> None:
    """Calls that were cancelled leave nothing behind."""

    async def body() -> None:
        async with Stage() as stage, stage.client.consumer() as consumer:
            stage.puppet.make("t")
            stage.puppet.operations["topic.list"] = dict
            await consumer.assign("t")
            producer = stage.client.producer()

            async def turn() -> None:
                calls: list[asyncio.Future[Any]] = [
                    asyncio.create_task(consumer.next_batch()),
                    asyncio.create_task(consumer.next_batch(100)),
                    asyncio.create_task(stage.client.admin.list_topics()),
                    producer.send("t", b"x"),
                ]
                await asyncio.sleep(0)
                for call in calls:
                    call.cancel()
                await asyncio.wait(calls)
                await producer.flush()
                batch = await consumer.next_batch()
                assert batch is not None
                stage.puppet.seen.clear()
                log = stage.puppet.topics["t"].logs[0]
                log.batches.clear()
                log.headers.clear()

            for _ in range(70):  # until the puppet's memory of the producer is full
                await turn()
            before = await objects()
            for _ in range(50):
                await turn()

            assert await objects() - before < 50
            assert len(consumer._line) == 0

    run(body())


def test_links() -> None:
    """Losing and finding the broker again and again leaves nothing behind."""

    async def body() -> None:
        async with Stage() as stage:
            producer = stage.client.producer()

            async def turn() -> None:
                await producer.send("t", b"x")
                stage.cut()
                stage.puppet.seen.clear()
                stage.puppet.hellos.clear()
                stage.dialed.clear()
                log = stage.puppet.topics["t"].logs[0]
                log.batches.clear()
                log.headers.clear()

            for _ in range(70):
                await turn()
            before = await objects()
            for _ in range(50):
                await turn()

            assert await objects() - before < 50

    run(body())
