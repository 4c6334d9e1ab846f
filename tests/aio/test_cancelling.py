"""Tasks of the caller that are cancelled at any turn of the loop, and what is left then."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.aio.stage import Stage, ending, in_loop, run, turns
from tinymq.aio import Client, Consumer, Producer
from tinymq.errors import ClosedError

TURNS = range(13)


async def _flush(producer: Producer) -> None:
    producer.send_oneway("t", b"x")
    await producer.flush()


async def _block(producer: Producer) -> None:
    async with producer:
        await producer.send("t", b"x")


async def _send(producer: Producer) -> None:
    await producer.send("t", b"x")


async def _send_batch(producer: Producer) -> None:
    await producer.send_batch("t", [b"x", b"x"])


async def _close(producer: Producer) -> None:
    producer.send_oneway("t", b"x")
    await producer.close()


@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("work", [_send, _send_batch, _flush, _block, _close])
def test_publishing(work: Callable[[Producer], Awaitable[None]], cut: bool, turn: int) -> None:
    """What was taken is stored once and accounted for, whenever who sent it is cancelled."""

    async def body() -> None:
        async with Stage() as stage:
            producer = stage.client.producer()
            task = asyncio.ensure_future(work(producer))
            await turns(turn)
            task.cancel()
            if cut:
                stage.cut(deliver=bool(turn % 2))
            await ending(task)
            other = stage.client.producer()
            await other.send("t", b"after")
            account = await producer.close()

            taken = account.sent
            assert taken <= (2 if work is _send_batch else 1)
            assert [account.failed_count, account.pending] == [0, 0]
            stored = stage.puppet.values("t")
            assert sorted(stored, key=bytes) == [b"after"] + [b"x"] * taken  # type: ignore[arg-type]

    run(body())


async def _metadata(client: Client, consumer: Consumer) -> object:
    return await client.metadata(["t"])


async def _operate(client: Client, consumer: Consumer) -> object:
    return await client.admin.operate("topic.create", name="u")


async def _ends(client: Client, consumer: Consumer) -> object:
    return await consumer.end_offsets("t")


async def _read(client: Client, consumer: Consumer) -> object:
    async with consumer:
        await consumer.assign("t")
        return await consumer.next_batch()


@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("ask", [_metadata, _operate, _ends, _read])
def test_asking(ask: Callable[[Client, Consumer], Awaitable[object]], cut: bool, turn: int) -> None:
    """A question that is cancelled leaves a client that answers the next one."""

    async def body() -> None:
        async with Stage() as stage:
            stage.puppet.make("t")
            stage.puppet.operations["topic.create"] = lambda name: {"name": name}
            task = asyncio.ensure_future(ask(stage.client, stage.client.consumer()))
            await turns(turn)
            task.cancel()
            if cut:
                stage.cut()
            await ending(task)
            await stage.client.producer().send("t", b"a")
            answers = [
                await _metadata(stage.client, stage.client.consumer()),
                await _operate(stage.client, stage.client.consumer()),
                await _ends(stage.client, stage.client.consumer()),
                await _read(stage.client, stage.client.consumer()),
            ]
            assert answers[1:3] == [{"name": "u"}, {0: 1}]
            assert None not in answers

    run(body())


@pytest.mark.parametrize("turn", TURNS)
def test_closing_the_client(turn: int) -> None:
    """Closing goes on when who waits for it is cancelled, and nothing that was taken is lost."""

    async def body() -> None:
        stage = Stage()
        producer, consumer = stage.client.producer(), stage.client.consumer()
        stage.puppet.make("t")
        await consumer.assign("t")
        sends = [producer.send("t", b"%d" % number) for number in range(3)]
        reading = asyncio.create_task(consumer.next_batch())
        closing = asyncio.create_task(stage.client.close())
        await turns(turn)
        closing.cancel()
        await ending(closing)
        await stage.client.close()

        assert [send.result().offset for send in sends] == [0, 1, 2]
        (read,) = await ending(reading)
        assert isinstance(read, ClosedError) or list(read.values)
        assert stage.transports == []

    run(body())


@pytest.mark.parametrize("turn", TURNS)
def test_the_body_of_a_block(turn: int) -> None:
    """A block that is cancelled anywhere closes what it opened before the task ends."""

    async def body() -> None:
        stage = Stage()
        stage.puppet.make("t")
        taken: list[asyncio.Future[Any]] = []

        async def block() -> None:
            async with stage.client as client, client.producer() as producer:
                taken.append(producer.send("t", b"a"))
                async with client.consumer() as consumer:
                    await consumer.assign("t")
                    async for batch in consumer:
                        again = producer.send("t", batch.values[0])
                        taken.append(again)

        task = asyncio.create_task(block())
        await turns(turn)
        task.cancel()
        assert isinstance((await ending(task))[0], asyncio.CancelledError)

        assert all(one.done() and one.exception() is None for one in taken)
        assert len(taken) == len(stage.puppet.values("t"))
        if turn:
            assert stage.transports == []
            assert stage.client._cluster.closed
        await stage.client.close()

    run(body())


@in_loop
async def test_timeout_of_a_block() -> None:
    """`asyncio.timeout` around a wait ends it, and reading goes on with the same record."""
    async with Stage() as stage, stage.client.consumer() as consumer:
        stage.puppet.make("t")
        await consumer.assign("t")

        async def read() -> None:
            async with asyncio.timeout(3):
                async for _ in consumer:
                    pass

        with pytest.raises(TimeoutError):
            await read()
        await stage.client.producer().send("t", b"a")
        batch = await anext(consumer)

        assert batch.values == [b"a"]


@in_loop
async def test_task_group() -> None:
    """A task that fails in a group ends the readers beside it; what was sent is stored."""
    stage = Stage()
    stage.puppet.make("t")

    async def read(consumer: Consumer) -> None:
        async for _ in consumer:
            pass

    async def fail() -> None:
        await asyncio.sleep(1)
        raise LookupError("of the caller")

    async def block() -> None:
        async with stage.client as client, client.consumer() as consumer:
            await consumer.assign("t")
            async with asyncio.TaskGroup() as group:
                group.create_task(read(consumer))
                client.producer().send_oneway("t", b"a")
                group.create_task(fail())

    with pytest.raises(ExceptionGroup, match="unhandled errors"):
        await block()

    assert stage.puppet.values("t") == [b"a"]
    assert stage.transports == []
