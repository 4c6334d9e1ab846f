"""How blocks, loops and threads end, or begin in the wrong place."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from tests.aio.stage import Stage, ending, in_loop, run, turns
from tests.sync.server import Server
from tinymq.aio import Client, ClientConfig, ProducerConfig
from tinymq.errors import ClosedError, UnreachableError, UsageError
from tinymq.wire.header import MessageType

T = TypeVar("T")


async def _fail_after_sending(client: Client, count: int) -> None:
    async with client, client.producer() as producer:
        for number in range(count):
            producer.send_oneway("t", b"%d" % number)
        raise LookupError("of the caller")


@in_loop
async def test_error_in_a_block() -> None:
    """An error in the body comes out as it is, after all that was taken is stored."""
    stage = Stage()
    with pytest.raises(LookupError, match="of the caller"):
        await _fail_after_sending(stage.client, 100)

    assert stage.puppet.values("t") == [b"%d" % number for number in range(100)]
    assert stage.transports == []


@in_loop
async def test_error_in_a_block_without_broker() -> None:
    """Without a broker a block ends with its own error, at the deadline of what was taken."""
    stage = Stage()
    stage.up = False
    began = stage.loop.time()
    with pytest.raises(LookupError, match="of the caller"):
        await _fail_after_sending(stage.client, 1)

    assert stage.loop.time() == pytest.approx(began + ProducerConfig().deadline_s)


@in_loop
async def test_all_producers_close_at_once() -> None:
    """While the client closes, no producer takes more, and they wait side by side."""
    stage = Stage()
    stage.puppet.deaf = {MessageType.PRODUCE}
    producers = [stage.client.producer(ProducerConfig(deadline_s=5)) for _ in range(3)]
    for producer in producers:
        producer.send_oneway("t", b"x")
    began = stage.loop.time()
    closing = asyncio.create_task(stage.client.close())
    await turns()
    errors = await ending(*[producer.send("t", b"late") for producer in producers])
    await closing

    assert [ClosedError] * 3 == [type(error) for error in errors]
    assert stage.loop.time() == pytest.approx(began + 5)
    assert [producer.account.failed_count for producer in producers] == [1, 1, 1]


@pytest.mark.parametrize("back", [False, True])
def test_cut_while_closing(back: bool) -> None:
    """A link that dies while a client flushes delays its end until the deadline at most."""

    async def body() -> None:
        stage = Stage()
        stage.puppet.deaf = {MessageType.PRODUCE}
        producer = stage.client.producer(ProducerConfig(deadline_s=5))
        producer.send_oneway("t", b"x")
        closings = [asyncio.create_task(stage.client.close()) for _ in range(2)]
        await turns()
        began = stage.loop.time()
        stage.up = back
        stage.puppet.deaf = set()
        stage.cut()
        await asyncio.gather(*closings)

        assert stage.loop.time() - began <= (1 if back else 5)
        assert [producer.account.sent, producer.account.failed_count] == [back, not back]
        assert stage.transports == []

    run(body())


@in_loop
async def test_connect_of_the_caller_fails() -> None:
    """Whatever the caller's own way to connect raises ends calls at their deadline, with it."""

    async def connect(make: object, address: object) -> None:
        raise LookupError("no certificate")

    client = Client("tinymq://h", ClientConfig(deadline_s=1), connect=connect, environment={})
    (error,) = await ending(client.admin.broker_info())
    await client.close()

    assert isinstance(error, UnreachableError)
    assert "no certificate" in str(error)


def test_a_loop_that_ends_first() -> None:
    """A loop that ends while a client is open leaves no task, and the client says so elsewhere."""
    seen: list[Stage] = []

    async def first() -> None:
        stage = Stage()
        seen.append(stage)
        stage.puppet.make("t")
        consumer = stage.client.consumer()
        await consumer.assign("t")
        asyncio.ensure_future(consumer.next_batch())  # noqa: RUF006 - abandoned on purpose
        asyncio.ensure_future(stage.client.metadata(["t"]))  # noqa: RUF006
        await turns(3)

    complaints: list[dict[str, Any]] = []
    with asyncio.Runner() as runner:
        runner.get_loop().set_exception_handler(lambda loop, one: complaints.append(one))
        runner.run(first())
    gc.collect()
    (stage,) = seen

    async def second() -> None:
        errors = await ending(stage.client.close(), stage.client.metadata(["t"]))
        for error in errors:
            assert isinstance(error, UsageError)
            assert "is closed" in str(error)

    run(second())
    assert complaints == []


def in_threads(*bodies: Callable[[], Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines, each on a loop of its own in a thread of its own."""
    results: list[T] = []
    threads = [
        threading.Thread(target=lambda one=one: results.append(asyncio.run(one())))
        for one in bodies
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(results) == len(bodies)
    return results


def test_a_loop_in_each_thread() -> None:
    """Two loops in two threads work side by side, each with its client, over real sockets."""
    with Server() as server:

        async def publish() -> list[bytes | None]:
            async with Client(server.url) as client, client.producer() as producer:
                for number in range(20):
                    await producer.send("t", b"%d" % number)
            return []

        async def read() -> list[bytes | None]:
            found: list[bytes | None] = []
            async with Client(server.url) as client, client.consumer() as consumer:
                await client.metadata(["t"], create=True)
                await consumer.assign("t")
                async for batch in consumer:
                    found += batch.values
                    if len(found) == 20:
                        break
            return found

        found = in_threads(publish, read)

    assert [b"%d" % number for number in range(20)] in found


@in_loop
async def test_a_client_of_another_running_loop() -> None:
    """A client that a running loop uses refuses another thread's loop, and is not harmed."""
    async with Stage() as stage:
        stage.puppet.make("t")
        await stage.client.metadata(["t"])

        async def elsewhere() -> list[Any]:
            return await ending(stage.client.metadata(["t"]), stage.client.close())

        (errors,) = in_threads(elsewhere)
        assert [UsageError] * 2 == [type(error) for error in errors]
        assert all("make a client in each loop" in str(error) for error in errors)

        assert list(await stage.client.metadata(["t"])) == ["t"]


class PlainLoop:
    """Only what every loop has, and of that what a client needs; all else is an AttributeError."""

    def __init__(self, inner: asyncio.AbstractEventLoop) -> None:
        self.time = inner.time
        self.call_soon = inner.call_soon
        self.call_at = inner.call_at
        self.call_later = inner.call_later
        self.create_future = inner.create_future
        self.create_task = inner.create_task
        self.create_connection = inner.create_connection


def test_any_loop() -> None:
    """Nothing is asked of the loop that another kind of loop, such as uvloop's, might not have."""
    with Server() as server:

        async def body() -> list[bytes | None]:
            client = Client(server.url)
            loop: Any = PlainLoop(asyncio.get_running_loop())
            client._network._loop = loop
            client._network.check = lambda: None  # type: ignore[method-assign]
            async with client:
                await client.producer().send("t", b"a")
                consumer = client.consumer()
                await consumer.assign("t")
                batch = await consumer.next_batch(5)
                assert batch is not None
                return batch.values

        assert asyncio.run(body()) == [b"a"]
