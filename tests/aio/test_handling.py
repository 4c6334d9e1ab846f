"""Handlers with asyncio: batches, threads, and what they may say."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from tests.aio.stage import in_loop, turns
from tests.aio.test_subscription import Scene
from tinymq.aio import Message, Reject, Requeue, Subscription
from tinymq.errors import UsageError


def verbs(scene: Scene) -> list[tuple[str, int]]:
    """What became of messages."""
    return [(verb, offset) for verb, _, offset, _ in scene.channel.settled]


def running(subscription: Subscription, handler: Any, **options: Any) -> asyncio.Task[None]:
    """Let a handler run."""
    return asyncio.create_task(subscription.run(handler, **options))


async def over(scene: Scene, subscription: Subscription, run: asyncio.Task[None]) -> None:
    """Let what is said arrive, and end."""
    await turns()
    await subscription.close()
    await run


@in_loop
async def test_words() -> None:
    """A handler says by raising what is to become of a message, and that is no error."""
    async with Scene() as scene:
        words = {b"a": Reject("no"), b"b": Requeue(30)}

        async def handle(message: Message) -> None:
            raise words[message.value or b""]

        subscription = await scene.begin()
        run = running(subscription, handle)
        await scene.put(b"a", b"b")
        await over(scene, subscription, run)

        assert verbs(scene) == [("reject", 0), ("requeue", 1)]
        assert scene.reports == []


@in_loop
async def test_batches() -> None:
    """What is there is given as lists; what the handler does not settle is settled as a whole."""
    async with Scene() as scene:
        sizes: list[int] = []

        async def handle(messages: list[Message]) -> None:
            sizes.append(len(messages))
            messages[0].reject()
            if len(messages) < 3:
                raise ValueError("no")

        subscription = await scene.begin()
        await scene.put(b"a", b"b", b"c", b"d", b"e")
        run = running(subscription, handle, batch=3)
        await over(scene, subscription, run)

        assert sizes == [3, 2]
        assert sorted(verbs(scene), key=lambda row: row[1]) == [
            ("reject", 0),
            ("finish", 1),
            ("finish", 2),
            ("reject", 3),
            ("requeue", 4),
        ]
        assert len(scene.reports) == 1


@in_loop
async def test_threads() -> None:
    """A blocking handler runs in threads, may settle there, and the loop goes on."""
    async with Scene() as scene:
        meet = threading.Barrier(2)
        threads: set[int] = set()

        def handle(message: Message) -> None:
            threads.add(threading.get_ident())
            meet.wait(5)
            if message.value == b"a":
                message.reject("no")

        subscription = await scene.begin()
        run = running(subscription, handle, threads=2)
        await scene.put(b"a", b"b")
        while len(scene.channel.settled) < 2:
            await asyncio.sleep(0.001)
            await turns()
        await over(scene, subscription, run)

        assert sorted(verbs(scene)) == [("finish", 1), ("reject", 0)]
        assert len(threads) == 2
        assert threading.get_ident() not in threads


@in_loop
async def test_a_lost_message_cancels_its_handler() -> None:
    """By choice it does not go on with what somebody else has by now."""
    async with Scene() as scene:
        cancelled: list[bytes | None] = []

        async def handle(message: Message) -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(message.value)
                raise

        subscription = await scene.begin()
        run = running(subscription, handle, concurrency=2, cancel_lost=True)
        await scene.put(b"a", b"b")
        scene.puppet.take_back(1000, 1, back=False, tell=True)
        scene.answer()
        await turns()
        lost = [*cancelled]
        await over(scene, subscription, run)

        assert lost == [b"a"]
        assert cancelled == [b"a", b"b"]
        assert verbs(scene) == [("give back", 1)]


@in_loop
async def test_misuse() -> None:
    """Senseless numbers are refused."""
    async with Scene() as scene:
        subscription = await scene.begin()
        with pytest.raises(UsageError, match="at least 1"):
            await subscription.run(print, batch=0)
