"""A broker in a process of its own, for tests of programs that open sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tinymq import aio, sync
from tinymq.testing import BrokerProcess

pytestmark = pytest.mark.process


def test_every_face(tinymq_server: BrokerProcess) -> None:
    """What blocking code publishes is read with asyncio, also after the broker was killed."""
    with sync.Client(tinymq_server.url) as client:
        client.producer().send("t", b"tea")
    tinymq_server.kill()
    tinymq_server.start()

    async def read() -> list[bytes | None]:
        async with (
            asyncio.timeout(30),
            aio.Client(tinymq_server.url) as client,
            client.consumer() as consumer,
        ):
            await consumer.assign("t")
            return (await anext(consumer)).values

    assert asyncio.run(read()) == [b"tea"]
    tinymq_server.stop()
    assert tinymq_server.pid == 0


def test_it_ends_with_its_block(tmp_path: Path) -> None:
    """The process ends with the block, whatever happened in it, and is none of the test's."""
    broker = BrokerProcess(tmp_path / "data")

    def use() -> None:
        with broker:
            assert broker.pid
            raise LookupError

    with pytest.raises(LookupError):
        use()
    assert broker.pid == 0
