"""The asyncio face with a real broker and real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tinymq.aio import (
    Backoff,
    Client,
    ClientConfig,
    ConsumerConfig,
    Producer,
    ProducerConfig,
)
from tinymq.errors import ForkedError, UnreachableError
from tinymq.verify.process import BrokerProcess

pytestmark = pytest.mark.process

#: Seconds after which a test has failed.
PATIENCE = 60


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """Return a running broker."""
    broker = BrokerProcess(tmp_path / "data")
    broker.start()
    yield broker
    broker.kill()


def test_round_trip(broker: BrokerProcess) -> None:
    """Records go and come over TCP, in order, in no thread; nothing stays open."""

    async def body() -> None:
        values = [b"%d" % number * 100 for number in range(20_000)]
        async with asyncio.timeout(PATIENCE), Client(broker.url) as client:
            await client.admin.create_topic("t")
            async with client.producer() as producer, client.consumer() as consumer:
                await producer.send_batch("t", values[:-1])
                await producer.send("t", values[-1])
                await consumer.assign("t")
                found: list[bytes | None] = []
                async for batch in consumer:
                    found += batch.values
                    if len(found) == len(values):
                        break
                assert found == values
            (peer,) = client._network._peers
            assert peer._transport is not None
            sock = peer._transport.get_extra_info("socket")
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert threading.active_count() == 1
        assert not client._network._peers

    asyncio.run(body(), debug=True)
    gc.collect()  # an unclosed socket would be an error now


def test_the_broker_is_killed(broker: BrokerProcess) -> None:
    """Producer and consumer go on when the broker was killed and came back."""

    async def body() -> None:
        async with asyncio.timeout(PATIENCE), Client(broker.url) as client:
            producer, consumer = client.producer(), client.consumer()
            await producer.send("t", b"0")
            await consumer.assign("t")
            found: list[bytes | None] = []

            async def read() -> None:
                async for batch in consumer:
                    found.extend(batch.values)
                    if len(found) == 101:
                        return

            reading = asyncio.create_task(read())
            sends = [producer.send("t", b"%d" % number) for number in range(1, 51)]
            await asyncio.sleep(0)
            await asyncio.to_thread(broker.kill)
            sends += [producer.send("t", b"%d" % number) for number in range(51, 101)]
            await asyncio.to_thread(broker.start)
            await asyncio.gather(*sends)
            await reading

            assert found == [b"%d" % number for number in range(101)]

    asyncio.run(body())


class Relay:
    """
    Passes bytes on between clients and a broker, and cuts after so many of them.

    Attributes:
        left: Bytes that still pass, both ways together.
        cuts: How often it has cut.
    """

    def __init__(self, port: int, chance: random.Random) -> None:
        self.left = 0
        self.cuts = 0
        self._port = port
        self._chance = chance
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.recharge()

    def recharge(self) -> None:
        """Let another few bytes pass; mostly within a frame, sometimes within HELLO."""
        self.left = self._chance.choice([self._chance.randrange(300), self._chance.randrange(9000)])

    async def start(self) -> str:
        """Listen, and return the URL."""
        self._listener = await asyncio.start_server(self._joined, "127.0.0.1", 0)
        port = self._listener.sockets[0].getsockname()[1]
        return f"tinymq://127.0.0.1:{port}"

    async def stop(self) -> None:
        """End it, with all its tasks."""
        self._listener.close()
        self._cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _joined(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers |= {writer, there[1]}
        for one, other in ((reader, there[1]), (there[0], writer)):
            task = asyncio.create_task(self._pass_on(one, other))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(4096):
                part = data[: self.left]
                self.left -= len(part)
                writer.write(part)
                await writer.drain()
                if len(part) < len(data):
                    self.cuts += 1
                    self.recharge()
                    self._cut()
        writer.transport.abort()

    def _cut(self) -> None:
        writers, self._writers = self._writers, set()
        for writer in writers:
            writer.transport.abort()


@pytest.mark.parametrize("seed", range(2))
def test_cut_at_random_bytes(broker: BrokerProcess, seed: int) -> None:
    """Wherever TCP is cut, each record is stored once, and read once, in order."""

    async def body() -> None:
        complaints: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, one: complaints.append(one))
        relay = Relay(int(broker.url.rpartition(":")[2]), random.Random(seed))
        backoff = Backoff(first_s=0.001, most_s=0.01)
        config = ClientConfig(backoff=backoff)
        found: list[bytes | None] = []
        sent: list[bytes] = []

        async def publish(producer: Producer) -> None:
            while relay.cuts < 20:
                values = [b"%d" % number * 20 for number in range(len(sent), len(sent) + 10)]
                sent.extend(values)
                await producer.send_batch("t", values)
            sent.append(b"end")
            await producer.send("t", b"end")

        async with asyncio.timeout(PATIENCE), Client(await relay.start(), config) as client:
            producer = client.producer(ProducerConfig(backoff=backoff, batch_bytes=400))
            consumer = client.consumer(ConsumerConfig(create_topics=True, max_bytes=2000))
            await consumer.assign("t")
            publishing = asyncio.create_task(publish(producer))
            async for batch in consumer:
                found += batch.values
                if found[-1] == b"end":
                    break
            await publishing
            assert (await consumer.end_offsets("t")) == {0: len(sent)}
        await relay.stop()

        assert relay.cuts >= 20
        assert found == sent
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert complaints == []

    asyncio.run(body())
    gc.collect()  # an unclosed socket would be an error now


def test_nobody_listens() -> None:
    """Where nobody listens, a call ends at its deadline and says where it looked."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

    async def body() -> None:
        config = ClientConfig(deadline_s=0.2)
        async with Client(f"tinymq://127.0.0.1:{port}", config) as client:
            producer = client.producer(ProducerConfig(deadline_s=0.2))
            errors = await asyncio.gather(
                client.admin.broker_info(), producer.send("t", b"x"), return_exceptions=True
            )
            assert [UnreachableError] * 2 == [type(error) for error in errors]
            assert str(port) in str(errors[0])

    asyncio.run(body())


def test_fork(broker: BrokerProcess) -> None:
    """The child of a fork is told to make a client of its own, and can."""

    async def in_child(client: Client) -> None:
        with pytest.raises(ForkedError):
            await client.metadata(["t"])
        async with Client(broker.url) as own:
            await own.producer().send("t", b"of the child")

    async def body() -> None:
        async with asyncio.timeout(PATIENCE), Client(broker.url) as client:
            await client.producer().send("t", b"of the parent")
            child = os.fork()
            if not child:
                status = 1
                with contextlib.suppress(BaseException):
                    asyncio._set_running_loop(None)
                    asyncio.run(in_child(client))
                    status = 0
                os._exit(status)
            _, status = await asyncio.to_thread(os.waitpid, child, 0)
            assert status == 0
            assert await client.consumer().end_offsets("t") == {0: 2}

    asyncio.run(body())
