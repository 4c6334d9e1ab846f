"""Consuming through the asyncio face, over transports in memory."""

from __future__ import annotations

import asyncio

import pytest

from tests.aio.stage import Stage, ending, in_loop, run, turns
from tinymq.aio import (
    LATEST,
    ConsumerBatch,
    ConsumerConfig,
)
from tinymq.errors import (
    ClientError,
    OffsetOutOfRange,
    UnknownTopic,
    UsageError,
)


@in_loop
async def test_consume() -> None:
    """Batches come in order, also when asked for before they are there."""
    async with Stage() as stage, stage.client.consumer() as consumer:
        producer = stage.client.producer()
        await producer.send("t", b"a")
        await consumer.assign("t")
        first = await consumer.next_batch()
        others = [asyncio.create_task(consumer.next_batch()) for _ in range(2)]
        await turns()
        await producer.send("t", b"b")
        await producer.send("t", b"c")
        batches = [first, *await asyncio.gather(*others)]

        assert [batch and batch.values for batch in batches] == [[b"a"], [b"b"], [b"c"]]
        assert consumer.assigned == [("t", 0)]
        assert consumer.position("t", 0) == 3
        assert consumer.marks("t") == {0: consumer.mark("t", 0)} == {0: (3, 0)}
        assert await consumer.end_offsets("t") == {0: 3}
        assert consumer.gaps == 0


@in_loop
async def test_async_for() -> None:
    """`async for` reads until the consumer is closed."""
    async with Stage() as stage:
        producer, consumer = stage.client.producer(), stage.client.consumer()
        found: list[bytes | None] = []

        async def read() -> str:
            await consumer.assign("t", start=LATEST)
            async for batch in consumer:
                found.extend(batch.values)
            return "ended"

        stage.puppet.make("t")
        reading = asyncio.create_task(read())
        await turns()
        await producer.send_batch("t", [b"a", b"b"])
        await turns()
        await consumer.close()

        assert await reading == "ended"
        assert found == [b"a", b"b"]


@in_loop
async def test_next_batch_timeout() -> None:
    """With a time-out an empty topic is always None."""
    async with Stage() as stage, stage.client.consumer() as consumer:
        stage.puppet.make("t")
        await consumer.assign("t")
        before = stage.loop.time()
        results = await asyncio.gather(*[consumer.next_batch(1.0) for _ in range(10)])

        assert results == [None] * 10
        assert stage.loop.time() == pytest.approx(before + 1)
        assert await consumer.next_batch(0) is None


@in_loop
async def test_next_batch_without_assignment() -> None:
    """Nothing assigned is an error, not a wait without end."""
    async with Stage() as stage, stage.client.consumer() as consumer:
        errors = await ending(consumer.next_batch(), consumer.assign("t", start=-7))

        assert [UsageError] * 2 == [type(error) for error in errors]


@in_loop
async def test_nothing_left_to_wait_for() -> None:
    """Who waits while the last partition is taken away is told at once, as who comes later."""
    async with Stage() as stage, stage.client.consumer() as consumer:
        stage.puppet.make("t", 2)
        await consumer.assign("t")
        before = stage.loop.time()
        calls = [asyncio.create_task(consumer.next_batch()) for _ in range(2)]
        await turns()
        consumer.unassign("t", [0])
        await turns()
        assert not calls[0].done()
        consumer.unassign("t")
        errors = await ending(*calls)

        assert [UsageError] * 2 == [type(error) for error in errors]
        assert stage.loop.time() == before


@in_loop
async def test_leaving_a_loop_leaves_the_consumer_open() -> None:
    """Neither `break` nor an error in the body closes or moves what is read."""
    async with Stage() as stage, stage.client.consumer() as consumer:
        producer = stage.client.producer()
        for value in (b"a", b"b", b"c"):
            await producer.send("t", value)
        await consumer.assign("t")
        found: list[bytes | None] = []
        async for batch in consumer:
            found += batch.values
            break

        async def fail() -> None:
            async for batch in consumer:
                found.extend(batch.values)
                raise LookupError

        with pytest.raises(LookupError):
            await fail()
        found += (await anext(consumer)).values

        assert found == [b"a", b"b", b"c"]


@in_loop
async def test_everything_stuck_reaches_all() -> None:
    """When nothing can ever come, everybody who waits is told, and seeking mends it."""
    async with Stage() as stage, stage.client.consumer() as consumer:
        topic = stage.puppet.make("t")
        producer = stage.client.producer()
        await producer.send("t", b"a")
        await producer.send("t", b"b")
        topic.logs[0].start = 1
        await consumer.assign("t", start=0)
        errors = await ending(*[consumer.next_batch() for _ in range(3)])
        consumer.seek("t", 0, 1)
        batch = await consumer.next_batch()
        consumer.pause("t")
        assert await consumer.next_batch(1) is None
        consumer.resume("t")
        consumer.unassign("t")

        assert [OffsetOutOfRange] * 3 == [type(error) for error in errors]
        assert isinstance(batch, ConsumerBatch)
        assert batch.values == [b"b"]


@in_loop
async def test_cancelled_reader_takes_nothing() -> None:
    """A cancelled call takes nothing; the next in line gets it."""
    async with Stage() as stage, stage.client.consumer() as consumer:
        stage.puppet.make("t")
        await consumer.assign("t")
        calls = [asyncio.create_task(consumer.next_batch()) for _ in range(2)]
        await turns()
        calls[0].cancel()
        await stage.client.producer().send("t", b"a")
        batch = await calls[1]

        assert calls[0].cancelled()
        assert batch is not None
        assert batch.values == [b"a"]


@pytest.mark.parametrize("turn", range(12))
def test_cancelling_loses_no_record(turn: int) -> None:
    """A task cancelled at any turn of the loop leaves position and records as if it never was."""

    async def body() -> None:
        async with Stage() as stage, stage.client.consumer() as consumer:
            stage.puppet.make("t")
            producer = stage.client.producer()
            await consumer.assign("t")
            found: list[bytes | None] = []

            async def read() -> None:
                async for batch in consumer:
                    found.extend(batch.values)
                    assert consumer.position("t", 0) == len(found)

            reading = asyncio.create_task(read())
            await turns()
            sends = [producer.send("t", b"a")]
            await turns(turn)
            reading.cancel()
            await ending(reading)
            assert consumer.position("t", 0) == len(found)
            sends.append(producer.send("t", b"b"))
            while len(found) < 2:
                batch = await consumer.next_batch()
                assert batch is not None
                found += batch.values
            await asyncio.gather(*sends)

            assert found == [b"a", b"b"]

    run(body())


@pytest.mark.parametrize("turn", range(8))
def test_cancelled_assign_leaves_nothing(turn: int) -> None:
    """Assigning that is cancelled at any turn assigns nothing, and may be done again."""

    async def body() -> None:
        async with Stage() as stage, stage.client.consumer() as consumer:
            stage.puppet.make("t", 2)
            await consumer.assign("t", [1])
            stage.client._cluster.metadata.drop("t")
            assigning = asyncio.create_task(consumer.assign("t"))
            await turns(turn)
            done = assigning.done()
            assigning.cancel()
            await ending(assigning)
            await turns()
            assert consumer.assigned == [("t", 0), ("t", 1)] if done else [("t", 1)]
            await consumer.assign("t", [0])

            assert consumer.assigned == [("t", 0), ("t", 1)]

    run(body())


@pytest.mark.parametrize("turn", range(12))
@pytest.mark.parametrize("again", [[0], None])
def test_assign_again_after_a_cancelled_one(turn: int, again: list[int] | None) -> None:
    """What is assigned anew is what is assigned, whenever the cancelled call is answered."""

    async def body() -> None:
        async with Stage() as stage, stage.client.consumer() as consumer:
            stage.puppet.make("t", 2)
            stage.puppet.make("u")
            first = asyncio.create_task(consumer.assign("t", start=0))
            await turns(turn)
            done = first.done()
            first.cancel()
            others = asyncio.gather(
                consumer.assign("u"),
                consumer.assign("t", again),
                consumer.assign("nix"),
                return_exceptions=True,
            )
            await ending(first)
            assert [type(error) for error in await others] == [type(None), type(None), UnknownTopic]
            await turns()
            numbers = [0] if again and not done else [0, 1]

            assert consumer.assigned == [*[("t", number) for number in numbers], ("u", 0)]
            assert not consumer._assigning

    run(body())


@in_loop
async def test_a_consumer_waits_for_ever() -> None:
    """Unless told otherwise a waiting call outlives any pause of the broker."""
    async with Stage() as stage:
        stage.puppet.make("t")
        consumer = stage.client.consumer()
        await consumer.assign("t")
        waiting = asyncio.create_task(consumer.next_batch())
        await turns()
        stage.up = False
        stage.cut()
        await asyncio.sleep(1000)
        assert not waiting.done()
        stage.up = True
        await stage.client.producer().send("t", b"a")
        batch = await waiting

        assert batch is not None
        assert batch.values == [b"a"]


@in_loop
async def test_silent_broker_ends_the_wait() -> None:
    """When no broker answers for too long, a waiting call says so; the next goes on."""
    async with Stage() as stage:
        stage.puppet.make("t")
        consumer = stage.client.consumer(ConsumerConfig(give_up_s=20))
        await consumer.assign("t")
        began = stage.loop.time()
        waiting = asyncio.create_task(consumer.next_batch())
        await asyncio.sleep(15)
        stage.empty()
        await turns()
        stage.up = False
        stage.cut()
        (error,) = await ending(waiting)
        assert isinstance(error, ClientError)
        assert stage.loop.time() == pytest.approx(began + 35)
        stage.up = True
        waiting = asyncio.create_task(consumer.next_batch())
        await stage.client.producer().send("t", b"a")
        batch = await waiting

        assert batch is not None
        assert batch.values == [b"a"]
