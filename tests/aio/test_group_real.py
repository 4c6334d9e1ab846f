"""Group consumers for asyncio on a real broker in memory, with handlers that take their time."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from tinymq.aio import GroupConsumer
from tinymq.testing import InProcessBroker


@pytest.fixture
def broker() -> Iterator[InProcessBroker]:
    """A broker."""
    with InProcessBroker() as made:
        yield made


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """What handlers raise is meant to be."""
    caplog.set_level("CRITICAL")


class Shop:
    """Orders of some customers, and members that handle them."""

    def __init__(self, broker: InProcessBroker, seed: int) -> None:
        self.broker = broker
        self.random = Random(seed)
        self.handled: defaultdict[bytes, list[int]] = defaultdict(list)
        self.busy: set[bytes] = set()
        self.running: dict[GroupConsumer, asyncio.Task[None]] = {}

    async def handle(self, message: Any) -> None:
        """Take a while, and fail now and then."""
        key = message.key
        if not message.is_lost:
            assert key not in self.busy, "two of a key at once"
        self.busy.add(key)
        try:
            await asyncio.sleep(self.random.random() * 0.2)
            if self.random.random() < 0.1:
                raise LookupError
            if int(message.value) not in self.handled[key]:
                self.handled[key].append(int(message.value))
        finally:
            self.busy.discard(key)

    def join(self) -> None:
        """Let a member in."""
        client = self.broker.asyncio_client()
        member = client.group("g", ["t"], commit_s=0.2, rebalance_s=10.0)
        run = member.run(self.handle, concurrency=4, retries=1000)
        self.running[member] = asyncio.get_running_loop().create_task(run)

    async def leave(self) -> None:
        """Let one go, with time for what it has in hand."""
        member = self.random.choice(list(self.running))
        running = self.running.pop(member)
        await member.close(within_s=5.0)
        await running


@pytest.mark.parametrize("seed", range(2))
def test_handlers_through_moves(broker: InProcessBroker, seed: int) -> None:
    """Every message is handled, those of a key in order and never two at once."""
    broker.create_topic("t", 4)
    shop = Shop(broker, seed)

    async def body() -> None:
        client = broker.asyncio_client()
        producer = client.producer()
        keys = [b"%d" % (number % 15) for number in range(200)]
        await producer.send_batch("t", [b"%d" % number for number in range(200)], keys)
        shop.join()
        for _ in range(6):
            await asyncio.sleep(1)
            if len(shop.running) < 3:
                shop.join()
            else:
                await shop.leave()
        positions = client.positions("g")
        for _ in range(100):
            await asyncio.sleep(1)
            if not any(one.lag for one in (await positions.committed("t")).values()):
                break
        while shop.running:
            await shop.leave()

    broker.run_asyncio(body())
    assert sum(map(len, shop.handled.values())) == 200
    assert all(numbers == sorted(numbers) for numbers in shop.handled.values())
