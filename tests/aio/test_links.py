"""Links of the asyncio face: cuts, silence, cancelling, closing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.aio.stage import MemoryTransport, Stage, ending, in_loop, run, turns
from tinymq.aio import (
    Client,
    ConsumerConfig,
    Position,
)
from tinymq.errors import (
    ClosedError,
    ConnectionLost,
    DeadlineExceeded,
    UnreachableError,
)
from tinymq.wire.header import MessageType


async def _fetch(client: Client) -> Any:
    consumer = client.consumer(ConsumerConfig(give_up_s=30))
    await consumer.assign("t", start=0)
    return await consumer.next_batch()


#: How each kind of request is begun.
BEGIN: dict[MessageType, Callable[[Client], Awaitable[Any]]] = {
    MessageType.METADATA: lambda client: client.metadata(["t"]),
    MessageType.INIT_PRODUCER: lambda client: client.producer().send("t", b"x"),
    MessageType.PRODUCE: lambda client: client.producer().send("t", b"x"),
    MessageType.OFFSETS: lambda client: client.consumer().end_offsets("t"),
    MessageType.OPERATE: lambda client: client.admin.operate("topic.create"),
    MessageType.FETCH: _fetch,
    MessageType.HELLO: lambda client: client.admin.broker_info(),
}


@pytest.mark.parametrize("kind", BEGIN)
@pytest.mark.parametrize("back", [False, True])
def test_cut_during_each_request(kind: MessageType, back: bool) -> None:
    """Whatever is under way when the link dies ends within its deadline."""

    async def body() -> None:
        async with Stage() as stage:
            stage.puppet.make("t")
            stage.puppet.operations["topic.create"] = dict
            stage.puppet.operations["broker.info"] = dict
            if kind == MessageType.HELLO:
                stage.puppet.mute = {kind}
            else:
                await stage.client.metadata(["t"])
            stage.puppet.deaf = {kind}
            call = asyncio.ensure_future(BEGIN[kind](stage.client))
            await turns()
            assert not call.done()
            began = stage.loop.time()
            stage.up = back
            stage.cut()
            if back:
                stage.puppet.deaf = set()
                stage.puppet.mute = set()
            if back and kind == MessageType.FETCH:
                await stage.client.producer().send("t", b"x")
            (result,) = await ending(call)

            assert stage.loop.time() - began < (1 if back else 31)
            if back and kind != MessageType.OPERATE:
                assert not isinstance(result, BaseException)
            else:
                assert isinstance(result, (DeadlineExceeded, UnreachableError, ConnectionLost))

    run(body())


@pytest.mark.parametrize("kind", BEGIN)
def test_silence_during_each_request(kind: MessageType) -> None:
    """A broker that says nothing at all ends no call later than its deadline."""

    async def body() -> None:
        async with Stage() as stage:
            stage.puppet.make("t")
            stage.puppet.mute = set(MessageType)
            began = stage.loop.time()
            (error,) = await ending(BEGIN[kind](stage.client))

            assert isinstance(error, (DeadlineExceeded, UnreachableError, ConnectionLost))
            assert stage.loop.time() - began < 31

    run(body())


@pytest.mark.parametrize("kind", BEGIN)
def test_cancelling_each_request(kind: MessageType) -> None:
    """A cancelled call is forgotten: its late answer disturbs nobody."""

    async def body() -> None:
        async with Stage() as stage:
            stage.puppet.make("t")
            stage.puppet.operations["topic.create"] = dict
            stage.puppet.operations["broker.info"] = dict
            if kind != MessageType.HELLO:
                await stage.client.metadata(["t"])
            held: list[Any] = []
            answer, stage.puppet.answer = stage.puppet.answer, lambda *one: held.append(one)  # type: ignore[method-assign]
            call = asyncio.ensure_future(BEGIN[kind](stage.client))
            await turns()
            call.cancel()
            assert isinstance((await ending(call))[0], asyncio.CancelledError)
            stage.puppet.answer = answer  # type: ignore[method-assign]
            for one in held:
                answer(*one)
            stage.answer()
            await turns()

            assert (await stage.client.metadata(["t"]))["t"].partitions == 1

    run(body())


@pytest.mark.parametrize("seed", range(3))
def test_cut_twenty_times(seed: int) -> None:
    """Producer and consumer go on through twenty cuts; nothing fails unseen."""
    rng = random.Random(seed)

    async def body() -> None:
        async with Stage() as stage:
            producer, consumer = stage.client.producer(), stage.client.consumer()
            stage.puppet.make("t")
            found: list[bytes | None] = []

            async def read() -> None:
                await consumer.assign("t", start=0)
                async for batch in consumer:
                    found.extend(batch.values)

            reading = asyncio.create_task(read())
            sends: list[asyncio.Future[Position]] = []
            for cut in range(20):
                sends += [producer.send("t", b"%d.%d" % (cut, n)) for n in range(rng.randint(1, 4))]
                await turns(rng.randint(0, 8))
                stage.cut(deliver=rng.random() < 0.5)
                await asyncio.sleep(rng.random())
            positions = await asyncio.gather(*sends)
            await asyncio.sleep(1)
            await consumer.close()
            await reading

            assert sorted(position.offset for position in positions) == list(range(len(sends)))
            assert stage.puppet.values("t") == found
            assert len(found) == len(sends)

    run(body())


@in_loop
async def test_connecting_hangs() -> None:
    """An attempt to connect that never ends is cancelled and made again."""
    async with Stage(connect_timeout_s=1) as stage:
        stage.hang = True
        asking = asyncio.create_task(stage.client.metadata(["t"], create=True))
        await asyncio.sleep(2.5)
        assert len(stage.dialed) >= 2
        stage.hang = False

        assert list(await asking) == ["t"]


@in_loop
async def test_close_while_connecting() -> None:
    """Closing ends a call that waits for the link."""
    async with Stage() as stage:
        stage.hang = True
        asking = asyncio.create_task(stage.client.metadata(["t"]))
        await turns()
        await stage.client.close()

        assert [ClosedError] == [type(error) for error in await ending(asking)]


@in_loop
async def test_given_up_while_it_came_up() -> None:
    """A connection that comes up after it was given up is closed at once."""
    async with Stage() as stage:
        late: list[Any] = []

        async def slow(make: Any, address: Any) -> None:
            late.append(make())
            await stage.loop.create_future()

        stage.client._network._connect = slow
        asking = asyncio.create_task(stage.client.metadata(["t"]))
        await turns()
        await stage.client.close()
        transport = MemoryTransport(stage, late[0])
        stage.transports.append(transport)
        late[0].connection_made(transport)
        await turns()

        assert [ClosedError] == [type(error) for error in await ending(asking)]
        assert not transport.open


@in_loop
async def test_closed_client() -> None:
    """After closing every call is refused, and closing again is no error."""
    stage = Stage()
    async with stage.client as client:
        await client.metadata(["t"], create=True)
    await client.close()
    for make in (client.producer, client.consumer):
        with pytest.raises(ClosedError):
            make()
    errors = await ending(client.metadata(["t"]), client.admin.broker_info())

    assert [ClosedError] * 2 == [type(error) for error in errors]


@in_loop
async def test_stubborn_connection_is_cut() -> None:
    """A connection that does not close by itself is cut after a while."""
    stage = Stage()
    await stage.client.metadata(["t"], create=True)
    stage.transports[0].stubborn = True
    before = stage.loop.time()
    await stage.client.close()

    assert stage.loop.time() == pytest.approx(before + 2)


@in_loop
async def test_close_is_cancelled_with_its_loop() -> None:
    """A loop that ends while the client closes leaves no connection open."""
    stage = Stage()
    stage.puppet.deaf = {MessageType.PRODUCE}
    waiting = stage.client.producer().send("t", b"x")
    await turns()
    stage.transports[0].stubborn = True
    closing = asyncio.create_task(stage.client.close())
    await turns()
    inner = stage.client._closing
    assert inner is not None
    inner.cancel()
    await turns()
    inner.cancel()
    await turns()

    assert stage.transports == []
    assert isinstance(waiting.exception(), ClosedError)
    assert [asyncio.CancelledError] == [type(error) for error in await ending(closing)]
