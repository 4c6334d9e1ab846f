"""Subscriptions through the asyncio face, over transports in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.aio.stage import Stage, ending, in_loop, turns
from tests.client.queueing import QueuePuppet
from tinymq.aio import Message, Subscription, SubscriptionConfig
from tinymq.errors import ClosedError, LeaseLost, UnknownChannel, UsageError


class Scene(Stage):
    """A stage with a channel."""

    puppet: QueuePuppet

    def __init__(self) -> None:
        super().__init__(QueuePuppet())
        self.puppet.make("t", 1)
        self.channel = self.puppet.channel
        self.reports: list[tuple[str, Exception]] = []
        self.client._network.report = self.report  # type: ignore[method-assign]

    def report(self, what: str, error: Exception) -> None:
        """Note it."""
        self.reports.append((what, error))

    async def begin(self, **config: Any) -> Subscription:
        """Subscribe."""
        subscription = self.client.subscription("t", "work", SubscriptionConfig(**config))
        await subscription.ready()
        return subscription

    async def put(self, *values: bytes) -> None:
        """Publish, and let it arrive."""
        self.puppet.put(*values)
        self.answer()
        await turns()


async def take(subscription: Subscription) -> Message:
    """Take a message that must come."""
    message = await subscription.next(1.0)
    assert message is not None
    return message


@in_loop
async def test_async_for() -> None:
    """Messages come until the subscription is closed."""
    async with Scene() as scene:
        found: list[bytes | None] = []
        subscription = await scene.begin()

        async def read() -> None:
            async for message in subscription:
                found.append(message.value)
                message.finish()

        reading = asyncio.create_task(read())
        await scene.put(b"a", b"b")
        await scene.put(b"c")
        await subscription.close()
        await reading

        assert found == [b"a", b"b", b"c"]
        assert scene.channel.offsets() == [0, 1, 2]
        with pytest.raises(ClosedError):
            await subscription.next()


@in_loop
async def test_waiting_in_turn() -> None:
    """Whoever asked first is served first; a cancelled call has missed nothing."""
    async with Scene() as scene:
        subscription = await scene.begin()
        assert await subscription.next(timeout=0.5) is None
        first, second, third = [asyncio.create_task(subscription.next()) for _ in range(3)]
        await turns()
        second.cancel()
        await scene.put(b"a", b"b")
        one, gone, two = await ending(first, second, third)

        assert [one.value, two.value] == [b"a", b"b"]
        assert isinstance(gone, asyncio.CancelledError)


@in_loop
async def test_confirmed_and_lost() -> None:
    """A settle can be waited for, and the loss of a message."""
    async with Scene() as scene:
        subscription = await scene.begin()
        await scene.put(b"a", b"b", b"c")
        one, two, three = [await take(subscription) for _ in range(3)]
        one.finish()
        await one.confirmed()
        scene.puppet.take_back(1000, 2, back=False, tell=False)
        two.finish()
        with pytest.raises(LeaseLost):
            await two.confirmed()
        losing = asyncio.create_task(three.lost())
        await turns()
        scene.puppet.lose(back=False)
        scene.answer()
        await losing
        await subscription.settled()

        assert three.is_lost
        assert (subscription.late, subscription.in_flight) == (1, 0)


@in_loop
async def test_leases_are_renewed() -> None:
    """The loop renews leases while a task works."""
    async with Scene() as scene:
        subscription = await scene.begin()
        await scene.put(b"a")
        message = await take(subscription)
        await asyncio.sleep(130)
        message.finish()
        await message.confirmed()

        assert scene.channel.offsets("touch") == [0] * 6


@in_loop
async def test_no_channel() -> None:
    """An error of the broker ends whatever waits."""
    async with Scene() as scene:
        scene.channel.exists = False
        subscription = scene.client.subscription("t", "c", SubscriptionConfig(create=False))
        errors = await ending(subscription.ready(), subscription.next(), subscription.run(print))

        assert [type(error) for error in errors] == [UnknownChannel] * 3


@in_loop
async def test_coroutines_at_once() -> None:
    """So many messages are handled at once, and finished when their handlers end."""
    async with Scene() as scene:
        subscription = await scene.begin()
        open_: dict[bytes | None, asyncio.Event] = {}

        async def work(message: Message) -> None:
            open_[message.value] = asyncio.Event()
            await open_[message.value].wait()

        running = asyncio.create_task(subscription.run(work, concurrency=2))
        await scene.put(b"a", b"b", b"c")
        assert list(open_) == [b"a", b"b"]
        open_[b"b"].set()
        await turns()
        assert list(open_) == [b"a", b"b", b"c"]
        assert scene.channel.offsets() == [1]
        closing = asyncio.create_task(subscription.close(5.0))
        await turns()
        open_[b"a"].set()
        await closing
        await running

        assert scene.channel.offsets() == [1, 0]
        assert scene.channel.offsets("give back") == [2] or scene.channel.ready == [(0, 2)]


@in_loop
async def test_failures() -> None:
    """What fails comes again, with the reason, and is reported; work goes on."""
    async with Scene() as scene:
        subscription = await scene.begin()

        async def later() -> None:
            raise ValueError("bad")

        def work(message: Message) -> Any:
            if message.value == b"a":
                raise KeyError("no")
            return later() if message.value == b"b" else None

        running = asyncio.create_task(subscription.run(work))
        await scene.put(b"a", b"b", b"c")
        await subscription.close()
        await running

        assert sorted(scene.channel.settled, key=lambda row: row[2]) == [
            ("requeue", 0, 0, {"x": "KeyError: 'no'"}),
            ("requeue", 0, 1, {"x": "ValueError: bad"}),
            ("finish", 0, 2, {}),
        ]
        assert [type(error) for _, error in scene.reports] == [KeyError, ValueError]


@in_loop
async def test_by_hand() -> None:
    """With `manual` nothing is settled unless the handler says so."""
    async with Scene() as scene:
        subscription = await scene.begin()
        kept: list[Message] = []

        async def keep(message: Message) -> None:
            kept.append(message)

        running = asyncio.create_task(subscription.run(keep, manual=True))
        await scene.put(b"a", b"b")
        kept[1].finish()
        await kept[1].confirmed()

        assert scene.channel.offsets() == [1]
        assert kept[0].held
        await subscription.close()
        await running


@in_loop
async def test_cancelling() -> None:
    """What is handled is cancelled and goes back, and nothing more is begun."""
    async with Scene() as scene:
        subscription = await scene.begin()

        async def work(message: Message) -> None:
            await asyncio.Event().wait()

        running = asyncio.create_task(subscription.run(work))
        await scene.put(b"a", b"b")
        running.cancel()
        await ending(running)
        await subscription.settled()

        assert scene.channel.offsets("give back") == [0]
        assert (await take(subscription)).value == b"b"


@in_loop
async def test_handlers_that_take_too_long() -> None:
    """They are cancelled when the time is over, and what they had goes back."""
    async with Scene() as scene:
        subscription = await scene.begin()

        async def work(message: Message) -> None:
            await asyncio.Event().wait()

        running = asyncio.create_task(subscription.run(work))
        await scene.put(b"a")
        began = scene.loop.time()
        await subscription.close(3.0)
        await running

        assert scene.loop.time() - began == 3.0
        assert scene.channel.offsets("give back") == [0]


@in_loop
async def test_plain_handlers_give_way() -> None:
    """Others have their turn while plain handlers have much to do."""
    async with Scene() as scene:
        subscription = await scene.begin()
        seen: list[int] = []

        def work(message: Message) -> None:
            seen.append(message.offset)
            scene.loop.eager.now += 0.002  # type: ignore[attr-defined]

        running = asyncio.create_task(subscription.run(work))
        await turns()
        scene.puppet.put(*[b"v"] * 100)
        scene.answer()
        await turns(3)
        assert 0 < len(seen) < 30
        await turns(100)
        assert len(seen) == 100
        await subscription.close()
        await running


@in_loop
async def test_misuse() -> None:
    """A second handler is refused, and a senseless number of them."""
    async with Scene() as scene, await scene.begin() as subscription:
        running = asyncio.create_task(subscription.run(print))
        await turns()
        other = await scene.begin()
        errors = await ending(subscription.run(print), other.run(print, concurrency=0))
        await subscription.close()
        await running

        assert [type(error) for error in errors] == [UsageError, UsageError]


@in_loop
async def test_at_most_once() -> None:
    """Messages without a lease go on coming as they are taken."""
    async with Scene() as scene:
        scene.channel.delivery = "at_most_once"
        subscription = await scene.begin(max_in_flight=1)
        await scene.put(b"a", b"b", b"c")
        found = [(await take(subscription)).value for _ in range(3)]

        assert found == [b"a", b"b", b"c"]


@in_loop
async def test_batches() -> None:
    """Messages are handed out and settled together; what is lost is told."""
    async with Scene() as scene:
        subscription = await scene.begin()
        waiting = asyncio.create_task(subscription.next_batch(2))
        await turns()
        await scene.put(b"a", b"b", b"c")
        batch = await waiting
        rest = await subscription.next_batch(timeout=1.0)
        assert batch is not None
        assert rest is not None
        batch.finish()
        await batch.confirmed()
        losing = asyncio.create_task(rest.lost())
        await turns()
        scene.puppet.lose(back=False)
        scene.answer()
        await losing
        await subscription.settled()

        assert batch.values == [b"a", b"b"]
        assert scene.channel.offsets() == [0, 1]
        with pytest.raises(UsageError, match="at least 1"):
            await subscription.next_batch(0)
