"""Group consumers through the asyncio face, over transports in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.aio.stage import Stage, in_loop, turns
from tests.client.grouping import Grouping
from tinymq.aio import GroupConsumer
from tinymq.errors import ClosedError
from tinymq.wire.records import encode_batch


class Scene(Stage):
    """A stage with a coordinator."""

    puppet: Grouping

    def __init__(self, partitions: int = 1) -> None:
        super().__init__(Grouping())
        self.puppet.make("t", partitions)
        self.reports: list[tuple[str, Exception]] = []
        self.client._network.report = self.report  # type: ignore[method-assign]

    def report(self, what: str, error: Exception) -> None:
        """Note it."""
        self.reports.append((what, error))

    def put(self, *values: bytes, partition: int = 0, **columns: Any) -> None:
        """Publish."""
        log = self.puppet.topics["t"].logs[partition]
        log.append(encode_batch(values, **columns))
        self.puppet.wake()
        self.answer()

    async def join(self, **settings: Any) -> GroupConsumer:
        """Make a member, and let it read what it is given."""
        consumer = self.client.group("g", ["t"], **settings)
        await consumer.ready()
        return consumer


@in_loop
async def test_async_for() -> None:
    """Messages come until the consumer is closed, and are committed then."""
    async with Scene() as scene:
        scene.put(b"a", b"b", b"c")
        consumer = await scene.join()
        found: list[bytes | None] = []
        async for message in consumer:
            found.append(message.value)
            if len(found) == 3:
                message.done()
                await consumer.close()
        assert found == [b"a", b"b", b"c"]
        assert scene.puppet.committed().offset == 3
        assert scene.puppet.live == []


@in_loop
async def test_where_it_began_is_kept() -> None:
    """The start of a group is committed before a message comes, with manual commits, too."""
    async with Scene() as scene:
        scene.put(b"a")
        await scene.join(start="latest", commit="manual")
        assert scene.puppet.committed().offset == 1


@in_loop
async def test_batches_and_commit() -> None:
    """A batch that is done is committed when its taker says so."""
    async with Scene() as scene:
        scene.put(b"a", b"b")
        consumer = await scene.join(commit="manual")
        batch = await consumer.next_batch()
        assert batch is not None
        batch.done()
        await consumer.commit(note="n")
        assert (scene.puppet.committed().offset, scene.puppet.committed().note) == (2, "n")


@in_loop
async def test_callbacks_are_waited_for() -> None:
    """Coroutine functions are told of partitions, and reading and giving up wait for them."""
    async with Scene(2) as scene:
        told: list[Any] = []

        async def given(shares: list[Any]) -> None:
            await asyncio.sleep(0.5)
            told.append(("given", len(shares)))

        async def taken(shares: list[Any]) -> None:
            assert scene.puppet.live[0].owned
            await asyncio.sleep(0.5)
            told.append(("taken", [one.partition for one in shares]))

        one = await scene.join(on_assigned=given, on_revoked=taken)
        assert told == [("given", 2)]
        other = await scene.join()
        await asyncio.sleep(2)
        assert told[1:] == [("taken", [1])]
        assert (one.assigned, other.assigned) == ([("t", 0)], [("t", 1)])


@in_loop
async def test_run_in_order_of_keys() -> None:
    """Several are handled at once, but those of one key one after the other."""
    async with Scene() as scene:
        keys = [b"k", b"k", b"l", None] * 5
        scene.put(*[b"%d" % number for number in range(20)], keys=keys)
        consumer = await scene.join()
        busy: set[bytes] = set()
        seen: list[bytes | None] = []
        most = 0

        async def handle(message: Any) -> None:
            nonlocal most
            if message.key is not None:
                assert message.key not in busy
                busy.add(message.key)
            most = max(most, len(busy))
            await asyncio.sleep(0.1)
            busy.discard(message.key)
            seen.append(message.value)
            if len(seen) == 20:
                await consumer.close(1)

        await consumer.run(handle, concurrency=4)
        await consumer.close()
        assert most == 2
        assert scene.puppet.committed().offset == 20
        assert [one for one in seen if int(one or b"") % 4 == 2] == [
            b"2",
            b"6",
            b"10",
            b"14",
            b"18",
        ]


@in_loop
async def test_failing_handler() -> None:
    """What a handler fails at comes again, goes to a topic, or ends the run."""
    async with Scene() as scene:
        scene.put(b"a", b"b")
        consumer = await scene.join()
        seen: list[bytes | None] = []

        async def handle(message: Any) -> None:
            seen.append(message.value)
            if message.value == b"a":
                raise LookupError
            await consumer.close()

        with pytest.raises(LookupError):
            await consumer.run(handle)
        assert consumer.floor("t", 0).offset == 0
        running = asyncio.create_task(consumer.run(handle, retries=1, on_error="failed"))
        await asyncio.sleep(3)
        await running
        assert seen == [b"a", b"a", b"a", b"b"]
        assert scene.puppet.values("failed") == [b"a"]
        assert len(scene.reports) == 3


@in_loop
async def test_cancelled_call_misses_nothing() -> None:
    """A call that was cancelled has taken nothing."""
    async with Scene() as scene:
        consumer = await scene.join()
        waiting = asyncio.create_task(consumer.next())
        await turns()
        waiting.cancel()
        scene.put(b"a")
        await turns()
        message = await consumer.next(1)
        assert message is not None
        assert message.value == b"a"


@in_loop
async def test_cancelled_run() -> None:
    """A run that is cancelled has handled nothing of what was under way."""
    async with Scene() as scene:
        scene.put(b"a", b"b", b"c", b"d")
        consumer = await scene.join()

        async def handle(message: Any) -> None:
            await asyncio.sleep(100)

        running = asyncio.create_task(consumer.run(handle, concurrency=2))
        await asyncio.sleep(1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert consumer.floor("t", 0).offset == 0
        message = await consumer.next(1)
        assert message is not None
        assert message.value == b"a"


@in_loop
async def test_threads() -> None:
    """Handlers that block are called in threads, and membership goes on meanwhile."""
    async with Scene() as scene:
        scene.put(b"a", b"b")
        consumer = await scene.join()
        seen: list[bytes | None] = []

        def handle(message: Any) -> None:
            seen.append(message.value)
            if len(seen) == 2:
                scene_loop.call_soon_threadsafe(both.set)

        scene_loop = scene.loop
        both = asyncio.Event()
        running = asyncio.create_task(consumer.run(handle, threads=2))
        await both.wait()
        await consumer.close(1)
        await running
        # The clock of the stage runs on while threads work, so a move may bring one again.
        assert set(seen) == {b"a", b"b"}


@in_loop
async def test_closed() -> None:
    """A closed consumer says so."""
    async with Scene() as scene:
        consumer = await scene.join()
        waiting = asyncio.create_task(consumer.next())
        await turns()
        await consumer.close()
        with pytest.raises(ClosedError):
            await waiting
        with pytest.raises(ClosedError):
            consumer.seek("t", 0, 0)


@in_loop
async def test_positions() -> None:
    """Positions are committed and looked at without being a member."""
    async with Scene() as scene:
        scene.put(b"a", b"b")
        positions = scene.client.positions("g")
        await positions.commit("t", {0: 1}, "x")
        found = (await positions.committed("t"))[0]
        assert (found.offset, found.note, found.lag) == (1, "x", 1)
