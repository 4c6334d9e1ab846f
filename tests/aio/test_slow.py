"""Who is slow: a broker that reads no more, a reader that takes nothing, a task that hogs."""

from __future__ import annotations

import asyncio
import time

from typing_extensions import override

from tests.aio.stage import Stage, in_loop, turns
from tests.client.puppet import Line, Puppet
from tinymq.aio import Client, ConsumerConfig, ProducerConfig
from tinymq.errors import BufferFull, DeadlineExceeded
from tinymq.wire.messages import Fetch

MIB = 1 << 20


class Served(asyncio.Protocol):
    """The puppet's end of a real connection, on the loop of the test."""

    def __init__(self, puppet: Puppet, ends: list[Served]) -> None:
        self.line = Line(puppet)
        self._ends = ends

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._ends.append(self)

    @override
    def data_received(self, data: bytes) -> None:
        self.line.feed(data)
        self.transport.write(self.line.take())


def test_a_broker_that_reads_no_more() -> None:
    """What a broker does not read stays within the bound, fails in time, and goes on later."""
    bound = 16 * MIB

    async def body() -> None:
        puppet, ends = Puppet(), list[Served]()
        puppet.window = 512
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(lambda: Served(puppet, ends), "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        puppet.brokers = [(1, "127.0.0.1", port, "puppet")]
        async with listener, Client(f"tinymq://127.0.0.1:{port}") as client:
            config = ProducerConfig(buffer_bytes=bound, deadline_s=0.05, in_flight=512)
            producer = client.producer(config)
            await producer.send("t", b"first")
            ends[0].transport.pause_reading()
            sends = [producer.send("t", bytes(MIB // 16)) for _ in range(1000)]
            (peer,) = client._network._peers
            most = 0
            while not all(one.done() for one in sends):
                await asyncio.wait([one for one in sends if not one.done()], timeout=0.01)
                assert peer._transport is not None
                most = max(most, peer._transport.get_write_buffer_size())
            kinds = {type(one.exception()) for one in sends}
            assert BufferFull in kinds
            assert kinds <= {BufferFull, DeadlineExceeded, type(None)}
            assert 0 < most <= bound
            ends[0].transport.resume_reading()
            later = client.producer()
            await later.send("t", b"later")
            values = [one for one in puppet.values("t") if one and len(one) < 10]
            assert values == [b"first", b"later"]
        for end in ends:
            end.transport.abort()
        await turns(3)

    asyncio.run(body())


@in_loop
async def test_a_publisher_that_is_too_quick() -> None:
    """Who waits for `flush` when the buffer is full sends any amount, within the bound."""
    async with Stage() as stage:
        bound = 50_000
        producer = stage.client.producer(ProducerConfig(buffer_bytes=bound))
        most = 0
        for number in range(200):
            while True:
                try:
                    producer.send_oneway("t", b"%05d" % number * 1000)
                except BufferFull:
                    most = max(most, producer.pending)
                    await producer.flush()
                else:
                    break
        account = await producer.close()

        assert [account.sent, account.failed_count] == [200, 0]
        assert 5 <= most <= bound // 5000
        assert stage.puppet.values("t") == [b"%05d" % number * 1000 for number in range(200)]


@in_loop
async def test_a_reader_that_takes_nothing() -> None:
    """Who takes nothing is fetched for up to the bound, and another reader is not held up."""
    async with Stage() as stage:
        puppet = stage.puppet
        puppet.make("t")
        producer = stage.client.producer()
        for _ in range(100):
            await producer.send("t", bytes(20_000))
        config = ConsumerConfig(max_bytes=50_000, prefetch_bytes=100_000)
        slow, quick = stage.client.consumer(config), stage.client.consumer(config)
        await slow.assign("t")
        await turns(100)
        fetches = [one for one in puppet.seen if isinstance(one, Fetch)]
        assert 2 <= len(fetches) <= 4
        assert slow._core.fetching.ready_bytes <= 200_000
        await quick.assign("t")
        assert [len(await anext(quick)) for _ in range(100)] == [1] * 100
        await asyncio.sleep(3600)
        await producer.send("t", b"news")
        assert (await anext(quick)).values == [b"news"]
        assert slow._core.fetching.ready_bytes <= 200_000

        found = [value for _ in range(101) for value in (await anext(slow)).values]
        assert found == [*[bytes(20_000)] * 100, b"news"]


@in_loop
async def test_a_handler_that_takes_an_hour() -> None:
    """A handler may take longer than every deadline; its consumer goes on behind it."""
    async with Stage() as stage, stage.client.consumer() as consumer:
        producer = stage.client.producer()
        await producer.send("t", b"0")
        await consumer.assign("t")
        found: list[bytes | None] = []
        async for batch in consumer:
            found += batch.values
            if len(found) == 3:
                break
            await asyncio.sleep(3600)
            await producer.send("t", b"%d" % len(found))

        assert found == [b"0", b"1", b"2"]


@in_loop
async def test_a_large_answer_does_not_hog_the_loop() -> None:
    """A value of many reads costs time in proportion, and other tasks run between the reads."""
    async with Stage() as stage, stage.client.consumer(ConsumerConfig(check_crc=False)) as consumer:
        value = bytes(8 * MIB)
        await stage.client.producer().send("t", value)
        transport = stage.transports[0]
        whole = transport.push
        reads = 0

        def push(data: bytes, most: int = 1024) -> None:
            nonlocal reads
            reads += -(-len(data) // 1024)
            whole(data, 1024)

        transport.push = push  # type: ignore[method-assign]
        await consumer.assign("t")
        began = time.perf_counter()
        batch = await anext(consumer)

        assert batch.values == [value]
        assert reads > 8000
        assert time.perf_counter() - began < 2
