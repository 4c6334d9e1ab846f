"""The group consumer for asyncio."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from inspect import isawaitable
from math import inf
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from typing_extensions import override

from tinymq.aio.group_handling import GroupRun, Handler
from tinymq.aio.network import LoopNetwork, give, refuse
from tinymq.aio.producer import Producer
from tinymq.client.core.group.consumer import GroupCore
from tinymq.client.core.group.faces import GroupConsumerFace
from tinymq.client.core.group.handed import GroupBatch, GroupMessage
from tinymq.client.core.group.hands import GroupFace
from tinymq.client.core.group.settings import GroupConfig, Share
from tinymq.client.core.group.working import STOP, GroupPlan, Item
from tinymq.errors import ClosedError, DeadlineExceeded, TinyMQError, UsageError

T = TypeVar("T", bound=GroupMessage | GroupBatch)


class Handed(Generic[T]):
    """
    A loop over what a group consumer hands out.

    What was given last is done when the next is asked for, or the consumer has ended:
    so nothing is that the body of the loop failed at, or left the loop with.

    Args:
        take: Waits for the next.
    """

    def __init__(self, take: Callable[[], Coroutine[Any, Any, T | None]]) -> None:
        self._take: Callable[[], Coroutine[Any, Any, T | None]] = take
        self._last: T | None = None

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        last, self._last = self._last, None
        if last is not None:
            last.done()
        try:
            found = await self._take()
        except ClosedError:
            raise StopAsyncIteration from None
        assert found is not None
        self._last = found
        return found


class GroupConsumer(GroupConsumerFace):
    """
    Reads topics together with the other members of its group; made by `Client.group`.

    ::

        async with client.group("billing", topics=["orders"]) as consumer:
            async for message in consumer:
                await bill(message.value)

    or, with several messages at work at once::

        await consumer.run(bill, concurrency=10)

    Each partition is read by one member at a time. A message counts when it is done:
    a loop says that of the last one when it asks for the next, `run` when the handler
    has ended well, and everybody else by `GroupMessage.done`. What is done is
    committed as `GroupConfig.commit` says.

    A message is taken only at the moment at which `next` returns it: a task that is
    cancelled while it waits has missed nothing. Leaving an `async with` closes it.

    Args:
        network: Loop and cluster.
        name: Name of the group.
        wanted: Names and patterns of topics.
        config: Settings.
        hooks: Called when it is closed; makes a producer for dead letters.
    """

    def __init__(
        self,
        network: LoopNetwork,
        name: str,
        wanted: tuple[Sequence[str], Sequence[str]],
        config: GroupConfig,
        hooks: tuple[Callable[[GroupConsumer], None], Callable[[], Producer]],
    ) -> None:
        self.config = config
        self._network = network
        self._forget, self._make_producer = hooks
        self._line: deque[asyncio.Future[None]] = deque()
        self._run: GroupRun | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing: asyncio.Task[None] | None = None
        face = GroupFace(self._wake, self._soon, network.seconds, self._call)
        self._core = GroupCore(network.cluster, name, wanted, config, face)
        self._core.begin(network.seconds())
        network.stir()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # --- taking ----------------------------------------------------------------

    async def ready(self) -> None:
        """
        Wait until it reads what the group gave it; that may be nothing.

        Raises:
            WireError: A broker refused the member.
            ClosedError: The consumer was closed.
            UsageError: This is not the client's loop; `ForkedError` in another
                process.
        """
        self._network.check()
        waiting: asyncio.Future[None] = self._network.future()
        self._core.ready_when(lambda error: _told(waiting, error), self._network.seconds())
        self._network.stir()
        await waiting

    async def next(  # the same name in every face
        self,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> GroupMessage | None:
        """
        Get the next message; several calls are served in turn.

        Args:
            timeout: Seconds to wait for one; None waits for ever, or as long as
                `GroupConfig.give_up_s` says.

        Returns:
            The message, or None when `timeout` has passed.

        Raises:
            OffsetOutOfRange: Or `LogTruncated`, with the valid range, or another of the
                broker's errors. It concerns the partition that its data name: the
                others go on, this one after `seek` or `resume`.
            UnknownTopicId: A topic was deleted, or made anew, and then all goes on with
                the new one.
            InconsistentGroup: Or another error of a broker that refused the member:
                then there is nothing more.
            UnreachableError: Or `ConnectionLost`, `NotLeader`, `DeadlineExceeded`: no
                broker answered for `GroupConfig.give_up_s`, if that is set.
            ClosedError: The consumer was closed.
            UsageError: This is not the client's loop; `ForkedError` in another
                process.
        """
        found = await self._next(self._core.take, timeout)
        assert found is None or isinstance(found, GroupMessage)
        return found

    async def next_batch(
        self,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> GroupBatch | None:
        """
        Get the next messages of one partition, as they are stored: the fast way.

        Args:
            timeout: Seconds to wait for them; None waits for ever, or as long as
                `GroupConfig.give_up_s` says.

        Returns:
            The batch, or None when `timeout` has passed.

        Raises:
            TinyMQError: As `next`.
        """
        found = await self._next(self._core.take_batch, timeout)
        assert found is None or isinstance(found, GroupBatch)
        return found

    def __aiter__(self) -> AsyncIterator[GroupMessage]:
        return Handed(self.next)

    def batches(self) -> AsyncIterator[GroupBatch]:
        """Loop over batches instead of messages."""
        return Handed(self.next_batch)

    # --- handling --------------------------------------------------------------

    async def run(  # noqa: PLR0913 - words for each way of handling
        self,
        handler: Handler,
        *,
        concurrency: int = 1,
        batches: bool = False,
        manual: bool = False,
        threads: int = 0,
        retries: int = 0,
        on_error: str = STOP,
    ) -> None:
        """
        Call a function with each message, until the consumer is closed.

        A message is done when its handler has ended well. Messages of one key, and with
        `batches` those of one partition, are handled one after the other, in order.

        Args:
            handler: Takes a `GroupMessage`, or a `GroupBatch` with `batches`. It may be a
                coroutine function, and then the message is handled until that has
                ended.
            concurrency: How many handlers are at work at once at most.
            batches: Give it whole batches.
            manual: Whether the handler says `done` by itself, perhaps later; not in threads.
            threads: Call it in so many threads, for it blocks.
            retries: How often it is called again with what it failed at, with growing
                waits. A message whose partition is to be given up is not tried again:
                the next owner has it.
            on_error: What comes then: ``stop`` ends `run` with the error, and the message
                comes again to whoever reads its partition then; ``skip`` logs it and
                goes on; any other word is the name of a topic to which the message goes
                as a dead letter, before it counts as done.

        Raises:
            Exception: What the handler raised.
            TinyMQError: As `next`.
            UsageError: Another handler is at work, or this is not the client's loop;
                `ForkedError` in another process.
            CancelledError: Its task was cancelled; so is what was being handled.
        """
        self._network.check()
        if self._run is not None:
            raise UsageError("the consumer has a handler already")
        plan = GroupPlan(
            concurrency=concurrency,
            batches=batches,
            manual=manual,
            threads=threads,
            retries=retries,
            on_error=on_error,
        )
        producer = None if plan.letters is None else self._make_producer()
        self._run = GroupRun(handler, plan, self, (self._core, producer))
        try:
            await self._run.go()
        finally:
            self._run = None
            if producer is not None:
                await producer.close()

    # --- what is done ----------------------------------------------------------

    async def commit(
        self,
        positions: Mapping[tuple[str, int], int] | None = None,
        note: str | Mapping[tuple[str, int], str] | None = None,
    ) -> None:
        """
        Commit what is done, and wait until the brokers have it.

        Args:
            positions: By topic and partition: all that was handed out below these offsets
                is done, and only these partitions are committed.
            note: Text to be committed with it, at most 4096 bytes, for all partitions or
                for some: who reads on finds it in `Share.note`. It stays until there is
                another.

        Raises:
            FencedGeneration: Somebody else reads one of the partitions by now; or
                another of the broker's errors.
            DeadlineExceeded: Or `UnreachableError`, `NotLeader`, after
                `GroupConfig.deadline_s`.
            UsageError: One of the partitions is not assigned, or this is not the
                client's loop; `ClosedError`, `ForkedError`.
        """
        self._network.check()
        waiting: asyncio.Future[None] = self._network.future()

        def told(error: TinyMQError | None) -> None:
            _told(waiting, error)

        self._core.commit(told, self._network.seconds(), positions, note)
        self._network.stir()
        await waiting

    # --- the end ---------------------------------------------------------------

    async def close(self, within_s: float = 0.0) -> None:
        """
        Hand out nothing more, commit what is done, and leave the group.

        What `run` is handling may end within the time; then its handlers are cancelled.
        What is not done by then comes again, to another member. It returns when the
        brokers know everything, or after `GroupConfig.leave_s` more; at once from within
        a handler, whose message may then end within the time like all others.

        Args:
            within_s: Seconds for what was handed out.

        Raises:
            CancelledError: Its task was cancelled; closing goes on.
            UsageError: This is not the client's loop; `ForkedError` in another
                process.
        """
        self._network.check()
        if self._closing is None:
            left: asyncio.Future[None] = self._network.future()
            busy = self._run.tasks if self._run is not None else []
            self._core.close(lambda: give(left, None), within_s, self._network.seconds())
            self._network.stir()
            self._closing = self._network.loop.create_task(self._close(within_s, busy, left))
        if self._run is None or not self._run.is_mine:
            await asyncio.shield(self._closing)

    async def _close(
        self, within_s: float, busy: list[asyncio.Task[None]], left: asyncio.Future[None]
    ) -> None:
        if busy and within_s > 0:
            await asyncio.wait(busy, timeout=within_s)
        await GroupRun.stop(busy)
        self._network.stir()
        await left
        self._forget(self)

    # --- inside ----------------------------------------------------------------

    @contextmanager
    @override
    def _acting(self) -> Iterator[float]:
        self._network.check()
        yield self._network.seconds()
        self._network.stir()

    def report(self, item: Item, error: BaseException) -> None:
        """
        Tell people that a handler failed.

        Args:
            item: What it had in hand.
            error: What it raised.
        """
        if isinstance(error, Exception):
            what = f"the handler of group {self.group} failed at {item!r}"
            self._network.report(what, error)

    def poll(self, batches: bool) -> Item | None:
        """
        Take what a handler is given, if it is there and nobody else waits for it.

        Args:
            batches: Whether that is a batch.
        """
        self._network.check()
        if self._line:
            return None
        return self._taken(self._core.take_batch if batches else self._core.take)

    async def take(self, batches: bool) -> Item | None:
        """
        Wait for what a handler is given.

        Args:
            batches: Whether that is a batch.
        """
        return await self._next(self._core.take_batch if batches else self._core.take, None)

    async def _next(self, take: Callable[[], Item | None], patience: float | None) -> Item | None:
        self._network.check()
        if not self._line:
            found = self._taken(take)
            if found is not None:
                return found
        loop = self._network.loop
        since = loop.time()
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
                    found = self._taken(take)
                    if found is not None:
                        return found
                if loop.time() >= self._until(patience, since):
                    if patience is not None:
                        return None
                    raise self._core.why or DeadlineExceeded(
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
        return max(since, self._core.heard_at) + self.config.give_up_s

    def _taken(self, take: Callable[[], Item | None]) -> Item | None:
        found = take()
        if found is not None:
            self._core.more(self._network.seconds())
            self._network.stir()
        return found

    def _wake(self) -> None:
        """Let the first of those who wait look, if there is something to see."""
        if self._line and self._core.waiting:
            give(self._line[0], None)

    def _soon(self) -> None:
        self._network.stir()

    def _call(
        self,
        function: Callable[[list[Share]], Any],
        shares: list[Share],
        then: Callable[[], None],
    ) -> None:
        """Call the user, and go on when what that returned has ended."""
        try:
            result = function(shares)
        except Exception as error:  # noqa: BLE001 - anything may come out of it
            self._complain(error)
            then()
            return
        if not isawaitable(result):
            then()
            return
        task = self._network.loop.create_task(self._wait(result, then))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _wait(self, result: Any, then: Callable[[], None]) -> None:
        try:
            await result
        except Exception as error:  # noqa: BLE001 - anything may come out of it
            self._complain(error)
        finally:
            then()
            self._network.stir()

    def _complain(self, error: Exception) -> None:
        self._network.report(f"a callback of group {self.group} failed", error)


def _told(waiting: asyncio.Future[None], error: TinyMQError | None) -> None:
    if error is None:
        give(waiting, None)
    else:
        refuse(waiting, error)
