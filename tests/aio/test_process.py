"""The asyncio face with a real broker and real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tinymq.aio import Client, ClientConfig, ProducerConfig
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
