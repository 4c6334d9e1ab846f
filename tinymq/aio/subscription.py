"""The subscription to a channel for asyncio."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, Protocol, Self

from tinymq.aio.handling import Handler, Run
from tinymq.aio.network import LoopNetwork, give, refuse
from tinymq.client.core.bundle import QueueBatch
from tinymq.client.core.config import SubscriptionConfig
from tinymq.client.core.faces import SubscriptionFace
from tinymq.client.core.fate import Confirmed
from tinymq.client.core.handling import Plan, Work
from tinymq.client.core.message import QueueMessage
from tinymq.client.core.sources import Topics, core_of
from tinymq.client.core.taking import Face
from tinymq.errors import ClosedError, TinyMQError, UsageError


class _Kept(Protocol):
    """What one message and several have in common."""

    def when_lost(self, call: Callable[[], None]) -> None:
        """Call when it is not held any more."""

    def when_confirmed(self, call: Confirmed) -> None:
        """Call when what became of it is written down."""


class _Awaited:
    """Waits for what becomes of a message, or of several."""

    __slots__ = ()

    async def lost(self: _Kept) -> None:
        """Return when it, or some of it, is not yours any more without your doing."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.when_lost(lambda: give(waiting, None))
        await waiting

    async def confirmed(self: _Kept) -> None:
        """
        Wait until the brokers have written down what became of it.

        Raises:
            LeaseLost: It, or some of it, was lost before.
            ConnectionLost: Or `DeadlineExceeded`, `ClosedError`: the subscription
                ended, and nobody knows.
        """
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.when_confirmed(lambda error: _told(waiting, error))
        await waiting


class Message(_Awaited, QueueMessage):
    """A message of a channel; see `QueueMessage` for what it says and what becomes of it."""

    __slots__ = ()


class MessageBatch(_Awaited, QueueBatch):
    """Messages of a channel that are settled together; see `QueueBatch`."""

    __slots__ = ()


class Subscription(SubscriptionFace):
    """
    Takes messages of a channel; made by `Client.subscription`, a context manager.

    ::

        async with client.subscription("orders", "billing") as subscription:
            async for message in subscription:
                await bill(message.value)
                message.finish()

    or, with several messages at work at once::

        await subscription.run(bill, concurrency=10)

    A message is taken only at the moment at which `next` returns it: a task that is
    cancelled while it waits has missed nothing. Leaving an `async with` closes it.

    Args:
        network: Loop and cluster.
        source: Topic or topics, and the name of the channel.
        config: Settings.
        forget: Called when it is closed.
    """

    def __init__(
        self,
        network: LoopNetwork,
        source: tuple[Topics, str],
        config: SubscriptionConfig,
        forget: Callable[[Subscription], None],
    ) -> None:
        self.config = config
        self._network = network
        self._forget = forget
        self._line: deque[asyncio.Future[None]] = deque()
        self._run: Run | None = None
        self._closing: asyncio.Task[None] | None = None
        self._core = core_of(
            network.cluster, source, config, Face(Message, self._wake, self._soon, MessageBatch)
        )
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
        Wait until a broker lets the subscription take messages.

        Raises:
            UnknownTopic: Or `UnknownChannel`, or another of the broker's errors.
            DeadlineExceeded: Or `UnreachableError`, after
                `SubscriptionConfig.deadline_s`; it is tried on nevertheless.
            ClosedError: The subscription was closed.
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
    ) -> Message | None:
        """
        Get the next message; several calls are served in turn.

        Args:
            timeout: Seconds to wait for one; None waits for ever.

        Returns:
            The message, which is yours until you settle it, or None when `timeout` has
            passed.

        Raises:
            UnknownTopic: Or `UnknownChannel`, or another error of a broker that ended
                the subscription.
            ClosedError: The subscription was closed.
            UsageError: This is not the client's loop; `ForkedError` in another
                process.
        """
        found = await self._next(None, timeout)
        assert found is None or isinstance(found, Message)
        return found

    async def next_batch(
        self,
        most: int = 1000,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> MessageBatch | None:
        """
        Get the next messages together: the fast way.

        Args:
            most: How many at most; as many as are here, but at least one.
            timeout: Seconds to wait for one; None waits for ever.

        Returns:
            The messages, which are yours until you settle them, or None when `timeout`
            has passed.

        Raises:
            UsageError: `most` is less than 1, or this is not the client's loop.
            TinyMQError: As `next`.
        """
        if most < 1:
            raise UsageError(f"a batch has at least 1 message, not {most!r}")
        found = await self._next(most, timeout)
        assert found is None or isinstance(found, MessageBatch)
        return found

    async def _next(
        self,
        most: int | None,
        timeout: float | None,  # noqa: ASYNC109
    ) -> Message | MessageBatch | None:
        self._network.check()
        if not self._line:
            found = self._take(most)
            if found is not None:
                return found
        loop = self._network.loop
        until = None if timeout is None else loop.time() + max(0.0, timeout)
        waiting: asyncio.Future[None] = loop.create_future()
        self._line.append(waiting)
        try:
            while True:
                timer = None if until is None else loop.call_at(until, give, waiting, None)
                try:
                    await waiting
                finally:
                    if timer is not None:
                        timer.cancel()
                if self._line[0] is waiting:
                    found = self._take(most)
                    if found is not None:
                        return found
                if until is not None and loop.time() >= until:
                    return None
                fresh: asyncio.Future[None] = loop.create_future()
                self._line[self._line.index(waiting)] = fresh
                waiting = fresh
        finally:
            self._line.remove(waiting)
            self._wake()  # who is next, since this call may have been woken in vain

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        try:
            message = await self.next()
        except ClosedError:
            raise StopAsyncIteration from None
        assert message is not None
        return message

    async def settled(self) -> None:
        """Wait until all that was said of messages up to now is written down, or was late."""
        self._network.check()
        waiting: asyncio.Future[None] = self._network.future()
        self._core.when_settled(lambda: give(waiting, None))
        self._network.stir()
        await waiting

    # --- handling --------------------------------------------------------------

    async def run(
        self,
        handler: Handler,
        *,
        concurrency: int = 1,
        manual: bool = False,
        batch: int | None = None,
        threads: int = 0,
        cancel_lost: bool = False,
    ) -> None:
        """
        Call a function with each message, until the subscription is closed.

        A message is finished when its handler has ended well, and comes again after
        the channel's back-off when it has failed, unless the handler settled it. It
        may also raise `Reject`, or `Requeue` with another delay.

        Args:
            handler: Takes a `Message`, or a list of them with `batch`. It may be a
                coroutine function, and then the message is handled until that has
                ended.
            concurrency: How many handlers are at work at once at most.
            manual: Whether the handler settles each message by itself, perhaps later.
            batch: Give it a list of what is there, so many messages at most. What it
                does not settle by itself is settled as a whole.
            threads: Call it in so many threads, for it blocks. There it may settle
                messages, but not wait for `Message.lost` and `Message.confirmed`.
            cancel_lost: Cancel its coroutine when its messages are lost.

        Raises:
            UnknownTopic: Or `UnknownChannel`, or another error of a broker that ended
                the subscription.
            UsageError: Another handler is at work, or this is not the client's loop;
                `ForkedError` in another process.
            CancelledError: Its task was cancelled; so is what was being handled, and
                given back.
        """
        self._network.check()
        if self._run is not None:
            raise UsageError("the subscription has a handler already")
        plan = Plan(
            concurrency=concurrency,
            manual=manual,
            batch=batch,
            threads=threads,
            cancel_lost=cancel_lost,
        )
        self._run = Run(handler, plan, self)
        try:
            await self._run.go()
        finally:
            self._run = None

    def report(self, work: Work, error: Exception) -> None:
        """
        Tell people that a handler failed.

        Args:
            work: What it had in hand.
            error: What it raised.
        """
        what = f"the handler of {self.topic}/{self.channel} failed at {work!r}"
        self._network.report(what, error)

    # --- the end ---------------------------------------------------------------

    async def close(self, within_s: float = 0.0) -> None:
        """
        Take no more messages, and leave the channel.

        What was not handed out is given back at once. What `run` is handling may
        end within the time; then its handlers are cancelled, and all that was not
        settled is given back, so that others have it soon. It returns when the
        brokers know everything, or after `SubscriptionConfig.leave_s` more.

        Args:
            within_s: Seconds for handlers.

        Raises:
            CancelledError: Its task was cancelled; closing goes on.
            UsageError: This is not the client's loop; `ForkedError` in another
                process.
        """
        self._network.check()
        if self._closing is None:
            self._core.drain(self._network.seconds())
            busy = self._run.tasks if self._run is not None else []
            self._closing = self._network.loop.create_task(self._close(within_s, busy))
        await asyncio.shield(self._closing)

    async def _close(self, within_s: float, busy: list[asyncio.Task[None]]) -> None:
        if busy and within_s > 0:
            await asyncio.wait(busy, timeout=within_s)
        await Run.stop(busy)
        left: asyncio.Future[None] = self._network.future()
        self._core.close(lambda: give(left, None), self._network.seconds())
        self._network.stir()
        await left
        self._forget(self)

    # --- inside ----------------------------------------------------------------

    def take(self) -> Message | None:
        """
        Take a message, if one is there, before anybody who waits.

        Raises:
            TinyMQError: The subscription ended.
        """
        found = self._take(None)
        assert found is None or isinstance(found, Message)
        return found

    def _take(self, most: int | None) -> Message | MessageBatch | None:
        now = self._network.seconds()
        found: Any = self._core.take(now) if most is None else self._core.take_many(most, now)
        if found is not None and not found.lease:
            self._core.more(now)
            self._network.stir()
        return found  # type: ignore[no-any-return]

    def _wake(self) -> None:
        """Let the first of those who wait look, if there is something to see."""
        if self._line and self._core.waiting:
            give(self._line[0], None)

    def _soon(self) -> None:
        self._network.stir(self._core.pump)


def _told(waiting: asyncio.Future[None], error: TinyMQError | None) -> None:
    if error is None:
        give(waiting, None)
    else:
        refuse(waiting, error)
