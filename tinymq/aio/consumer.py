"""The consumer for asyncio."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from math import inf
from types import TracebackType
from typing import Self

from tinymq.aio.network import LoopNetwork, give, refuse
from tinymq.client.core.config import ConsumerConfig
from tinymq.client.core.consumer import ConsumerCore
from tinymq.client.core.delivered import ConsumerBatch
from tinymq.client.core.faces import ConsumerFace
from tinymq.client.core.offsets import OffsetSearch
from tinymq.client.core.starts import EARLIEST, LATEST, Start
from tinymq.errors import ClosedError, DeadlineExceeded, TinyMQError


class _Assigning:
    """
    One `assign`, kept until it and those before it have ended.

    Attributes:
        topic: Name of the topic.
        numbers: Its partitions; None means all.
        before: What was assigned before.
        ended: Whether it has ended.
    """

    __slots__ = ("before", "ended", "numbers", "topic")

    def __init__(
        self, topic: str, numbers: frozenset[int] | None, before: set[tuple[str, int]]
    ) -> None:
        self.topic = topic
        self.numbers = numbers
        self.before = before
        self.ended = False


class Consumer(ConsumerFace):
    """
    Reads partitions in order; made by `Client.consumer`, an asynchronous context manager.

    ::

        await consumer.assign("orders", start=EARLIEST)
        async for batch in consumer:
            handle(batch.values)

    A batch is taken, and the position moved, only at the moment at which
    `next_batch` returns it: a task that is cancelled while it waits has missed
    nothing, and whoever reads on gets every record.

    `async for` ends when the consumer is closed, and raises whatever else
    `next_batch` raises; begin the loop anew to go on behind the error. Leaving the
    loop, by `break` or an error, changes nothing: the consumer stays open. Leaving
    an `async with` closes it, waits for nothing, and hides no error.

    Every call that waits ends with `CancelledError` when its task is cancelled. All
    calls that ask or change something raise `UsageError` outside of the client's
    loop, and `ForkedError` in another process.

    Args:
        network: Loop and cluster.
        config: Settings.
        forget: Called when it is closed.
    """

    def __init__(
        self, network: LoopNetwork, config: ConsumerConfig, forget: Callable[[Consumer], None]
    ) -> None:
        self.config = config
        self._network = network
        self._forget = forget
        # Who waits, in order. A future only says "look": what is there is taken
        # by the woken call itself, so that it cannot be lost with a cancelled one.
        self._line: deque[asyncio.Future[None]] = deque()
        self._assigning: deque[_Assigning] = deque()
        self._core = ConsumerCore(network.cluster, config, self._wake)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def assign(
        self,
        topic: str,
        partitions: Iterable[int] | None = None,
        start: Start | Mapping[int, Start] = EARLIEST,
    ) -> None:
        """
        Read partitions of a topic, beside those that are read already.

        It returns when every start is known as an offset, save that of partitions
        whose broker is away while others answer: they follow by themselves. When
        it is cancelled, what was not assigned before is not.

        Args:
            topic: Name of the topic.
            partitions: Which; None means all, also those added later.
            start: `EARLIEST`, `LATEST`, an offset, a `Mark`, `At` a time, or a mapping
                that gives one of these for some partitions; all others, and those
                added later, start at `EARLIEST`. The words ``"earliest"`` and
                ``"latest"`` do as well.

        Raises:
            WireError: The broker's error, such as `UnknownTopic`; nothing is
                assigned then.
            DeadlineExceeded: Or `UnreachableError`, after
                `ConsumerConfig.deadline_s`.
            ClosedError: The consumer was closed.
            UsageError: An argument is wrong, or this is not the client's loop;
                `ForkedError` in another process.
        """
        network, core = self._network, self._core
        network.check()
        waiting: asyncio.Future[None] = network.future()
        numbers = None if partitions is None else frozenset(partitions)
        mine = _Assigning(topic, numbers, set(core.assigned))

        def told(error: TinyMQError | None) -> None:
            if error is not None:
                refuse(waiting, error)
            else:
                give(waiting, None)
            if waiting.cancelled():
                self._assigned(mine, undo=error is None)

        core.assign(topic, numbers, start, told, network.seconds())
        self._assigning.append(mine)
        network.stir()
        try:
            await waiting
        except asyncio.CancelledError:
            if not waiting.cancelled():  # it was told in the same turn
                self._assigned(mine, undo=waiting.exception() is None)
            raise
        except TinyMQError:
            self._assigned(mine, undo=False)
            raise
        self._assigned(mine, undo=False)

    def unassign(self, topic: str, partitions: Iterable[int] | None = None) -> None:
        """
        Stop reading; who waits hears `UsageError` when nothing is left to wait for.

        Args:
            topic: Name of the topic.
            partitions: Which; None means all.

        Raises:
            ClosedError: The consumer was closed.
            UsageError: One of the partitions is not assigned.
        """
        self._network.check()
        self._core.unassign(topic, partitions)

    async def next_batch(  # the same name in every face
        self,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> ConsumerBatch | None:
        """
        Get the next batch; several calls are served in turn.

        Args:
            timeout: Seconds to wait for one; None waits for ever, or as long as
                `ConsumerConfig.give_up_s` says.

        Returns:
            The batch, or None when `timeout` has passed.

        Raises:
            OffsetOutOfRange: Or `LogTruncated`, with the valid range;
                `UnknownTopicId`, `CorruptBatch`, or another of the broker's errors.
                It concerns the partition that its data name: the others go on,
                this one after `seek` or `resume`.
            UnreachableError: Or `ConnectionLost`, `NotLeader`, `DeadlineExceeded`: no
                broker answered for `ConsumerConfig.give_up_s`, if that is set; the
                next call goes on.
            UsageError: Nothing is assigned, or this is not the client's loop;
                `ForkedError` in another process.
            ClosedError: The consumer was closed.
        """
        self._network.check()
        if not self._line:
            batch = self._take()
            if batch is not None:
                return batch
        return await self._wait(timeout, self._network.seconds())

    def __aiter__(self) -> AsyncIterator[ConsumerBatch]:
        return self

    async def __anext__(self) -> ConsumerBatch:
        try:
            batch = await self.next_batch()
        except ClosedError:
            raise StopAsyncIteration from None
        assert batch is not None
        return batch

    def pause(self, topic: str, partitions: Iterable[int] | None = None) -> None:
        """
        Hand out nothing more of some partitions.

        Args:
            topic: Name of the topic.
            partitions: Which; None means all.

        Raises:
            ClosedError: The consumer was closed.
            UsageError: One of the partitions is not assigned.
        """
        self._network.check()
        self._core.pause(topic, partitions, self._network.seconds())
        self._network.stir()

    def resume(self, topic: str, partitions: Iterable[int] | None = None) -> None:
        """
        Go on after `pause`, or try again after an error, at the same position.

        Args:
            topic: Name of the topic.
            partitions: Which; None means all.

        Raises:
            ClosedError: The consumer was closed.
            UsageError: One of the partitions is not assigned.
        """
        self._network.check()
        self._core.resume(topic, partitions, self._network.seconds())
        self._network.stir()

    def seek(self, topic: str, partition: int, start: Start) -> None:
        """
        Go on elsewhere; what was fetched is dropped.

        Args:
            topic: Name of the topic.
            partition: Number of the partition.
            start: `EARLIEST`, `LATEST`, an offset, a `Mark`, or `At` a time.

        Raises:
            ClosedError: The consumer was closed.
            UsageError: The partition is not assigned, or the start is none.
        """
        self._network.check()
        self._core.seek(topic, partition, start, self._network.seconds())
        self._network.stir()

    async def end_offsets(
        self, topic: str, partitions: Iterable[int] | None = None
    ) -> dict[int, int]:
        """
        Ask for the offsets behind the last visible records.

        Args:
            topic: Name of the topic.
            partitions: Which; None means all.

        Returns:
            The offset of each partition.

        Raises:
            UnknownTopic: Or another of the broker's errors.
            DeadlineExceeded: Or `UnreachableError`, after
                `ConsumerConfig.deadline_s`.
            ClosedError: The client was closed.
            UsageError: This is not the client's loop; `ForkedError` in another
                process.
        """
        network = self._network
        network.check()
        waiting: asyncio.Future[dict[int, int]] = network.future()

        def known(found: dict[int, int] | None, error: TinyMQError | None) -> None:
            if error is not None:
                refuse(waiting, error)
            else:
                give(waiting, found or {})

        now = network.seconds()
        search = OffsetSearch(network.cluster, now + self.config.deadline_s, known)
        search.start(topic, partitions, LATEST, now)
        network.stir()
        return await waiting

    async def close(self) -> None:
        """
        Stop reading; waiting calls end with `ClosedError`, and loops end.

        It waits for nothing, so that it cannot be cancelled half-way; again is no
        error.

        Raises:
            UsageError: This is not the client's loop; `ForkedError` in another
                process.
        """
        self._network.check()
        self._core.close()
        self._forget(self)
        self._network.stir()

    # --- inside ----------------------------------------------------------------

    def _assigned(self, ended: _Assigning, *, undo: bool) -> None:
        """Note the end of `assign`; undo what it did, but not what later calls want."""
        ended.ended = True
        if undo and not self._core.closed:
            new = {number for topic, number in self._core.assigned if topic == ended.topic}
            new -= {number for topic, number in ended.before if topic == ended.topic}
            for other in tuple(self._assigning)[self._assigning.index(ended) + 1 :]:
                if other.topic == ended.topic:
                    new -= new if other.numbers is None else other.numbers
            if new:
                self._core.unassign(ended.topic, new)
        while self._assigning and self._assigning[0].ended:
            self._assigning.popleft()

    def _take(self) -> ConsumerBatch | None:
        """Take a batch that is ready, or raise why there will be none."""
        batch = self._core.take()
        if batch is not None:
            self._core.more(self._network.seconds())
            self._network.stir()
            return batch
        stuck = self._core.stuck
        if stuck is not None:
            raise stuck
        return None

    async def _wait(self, patience: float | None, since: float) -> ConsumerBatch | None:
        loop = self._network.loop
        waiting: asyncio.Future[None] = loop.create_future()
        self._line.append(waiting)
        try:
            while True:
                until = self._until(patience, since)
                timer = loop.call_at(until, give, waiting, None) if until < inf else None
                try:
                    await waiting
                finally:
                    if timer is not None:
                        timer.cancel()
                if self._line[0] is waiting:
                    batch = self._take()
                    if batch is not None:
                        return batch
                if loop.time() >= self._until(patience, since):
                    if patience is not None:
                        return None
                    raise self._core.fetching.why or DeadlineExceeded(
                        "no broker answered within the deadline"
                    )
                fresh: asyncio.Future[None] = loop.create_future()
                self._line[self._line.index(waiting)] = fresh
                waiting = fresh
        finally:
            self._line.remove(waiting)
            self._wake()  # who is next, since this call may have been woken in vain

    def _until(self, patience: float | None, since: float) -> float:
        if patience is not None:
            return since + max(0.0, patience)
        if self.config.give_up_s is None:
            return inf
        return max(since, self._core.fetching.heard_at) + self.config.give_up_s

    def _wake(self) -> None:
        """Let the first of those who wait look, if there is something to see."""
        if self._line and (self._core.waiting or self._core.stuck is not None):
            give(self._line[0], None)
