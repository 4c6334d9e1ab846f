"""The subscription to a channel for asyncio."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from inspect import isawaitable
from types import TracebackType
from typing import Any, Final, Self

from tinymq.aio.network import LoopNetwork, give, refuse
from tinymq.client.core.bundle import QueueBatch
from tinymq.client.core.config import SubscriptionConfig
from tinymq.client.core.faces import SubscriptionFace, reason_of
from tinymq.client.core.message import QueueMessage
from tinymq.client.core.subscription import SubscriptionCore
from tinymq.errors import ClosedError, TinyMQError, UsageError

#: Seconds of plain handlers in one turn of the loop.
_SLICE_S: Final = 0.01


class Message(QueueMessage):
    """A message of a channel; see `QueueMessage` for what it says and what becomes of it."""

    __slots__ = ()

    async def lost(self) -> None:
        """Return when the message is not yours any more without your doing."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.when_lost(lambda: give(waiting, None))
        await waiting

    async def confirmed(self) -> None:
        """
        Wait until the broker has written down what became of the message.

        Raises:
            LeaseLost: The message was lost before.
            ConnectionLost: Or `DeadlineExceeded`, `ClosedError`: the subscription
                ended, and nobody knows.
        """
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.when_confirmed(lambda error: _told(waiting, error))
        await waiting


#: Takes a message; may be a coroutine function.
Handler = Callable[[Message], Awaitable[Any] | object]


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
        source: Names of topic and channel.
        config: Settings.
        forget: Called when it is closed.
    """

    def __init__(
        self,
        network: LoopNetwork,
        source: tuple[str, str],
        config: SubscriptionConfig,
        forget: Callable[[Subscription], None],
    ) -> None:
        self.config = config
        self._network = network
        self._forget = forget
        self._line: deque[asyncio.Future[None]] = deque()
        self._busy: dict[asyncio.Task[None], Message] = {}
        self._running = False
        self._closing: asyncio.Task[None] | None = None
        self._core = SubscriptionCore(
            network.cluster, source, config, (Message, QueueBatch), self._wake, self._soon
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
        self._network.check()
        if not self._line:
            message = self._take()
            if message is not None:
                return message
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
                    message = self._take()
                    if message is not None:
                        return message
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

    async def run(self, handler: Handler, *, concurrency: int = 1, manual: bool = False) -> None:
        """
        Call a function with each message, until the subscription is closed.

        A message is finished when its handler has ended well, and comes again after
        the channel's back-off when it has failed, unless the handler settled it.

        Args:
            handler: Takes a `Message`. It may be a coroutine function, and then the
                message is handled until that has ended.
            concurrency: How many messages are handled at once at most.
            manual: Whether the handler settles each message by itself, perhaps later.

        Raises:
            UnknownTopic: Or `UnknownChannel`, or another error of a broker that ended
                the subscription.
            UsageError: Another handler is at work, or this is not the client's loop;
                `ForkedError` in another process.
            CancelledError: Its task was cancelled; so is what was being handled, and
                given back.
        """
        self._network.check()
        if self._running:
            raise UsageError("the subscription has a handler already")
        if concurrency < 1:
            raise UsageError(f"concurrency must be at least 1, not {concurrency!r}")
        self._running = True
        free = asyncio.Semaphore(concurrency)
        try:
            await self._feed(handler, free, manual=manual)
        finally:
            self._running = False
            await self._stop()

    async def _feed(self, handler: Handler, free: asyncio.Semaphore, *, manual: bool) -> None:
        loop = self._network.loop
        until = loop.time() + _SLICE_S
        while True:
            await free.acquire()
            try:
                message = await self.next()
            except ClosedError:
                return
            assert message is not None
            result = self._begin(handler, message, manual=manual)
            if result is None:
                free.release()
            else:
                task = loop.create_task(self._handle(result, message, manual=manual))
                self._busy[task] = message
                task.add_done_callback(lambda done: self._done(done, free))
            if loop.time() >= until:
                await asyncio.sleep(0)  # plain handlers give way to others
                until = loop.time() + _SLICE_S

    def _begin(self, handler: Handler, message: Message, *, manual: bool) -> Awaitable[Any] | None:
        try:
            result = handler(message)
        except Exception as error:  # noqa: BLE001 - anything may come out of it
            self._failed(error, message)
            return None
        if isawaitable(result):
            return result
        if message.held and not manual:
            message.finish()
        return None

    async def _handle(self, result: Awaitable[Any], message: Message, *, manual: bool) -> None:
        try:
            await result
        except asyncio.CancelledError:
            if message.held:
                message.give_back()
            raise
        except Exception as error:  # noqa: BLE001 - anything may come out of it
            self._failed(error, message)
        else:
            if message.held and not manual:
                message.finish()

    def _done(self, task: asyncio.Task[None], free: asyncio.Semaphore) -> None:
        message = self._busy.pop(task, None)
        if message is not None and message.held and task.cancelled():
            message.give_back()  # cancelled before it began
        free.release()

    def _failed(self, error: Exception, message: Message) -> None:
        what = f"the handler of {self.topic}/{self.channel} failed at {message!r}"
        self._network.report(what, error)
        if message.held and message.lease:
            message.requeue(reason=reason_of(error))

    async def _stop(self) -> None:
        """Cancel what is being handled, and wait until it has ended."""
        tasks = [task for task in self._busy if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

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
            caller = asyncio.current_task()
            closing = self._close(within_s, caller)
            self._closing = self._network.loop.create_task(closing)
        await asyncio.shield(self._closing)

    async def _close(self, within_s: float, caller: asyncio.Task[Any] | None) -> None:
        busy = [task for task in self._busy if task is not caller]
        if busy and within_s > 0:
            await asyncio.wait(busy, timeout=within_s)
        for task in busy:
            task.cancel()
        await asyncio.gather(*busy, return_exceptions=True)
        left: asyncio.Future[None] = self._network.future()
        self._core.close(lambda: give(left, None), self._network.seconds())
        self._network.stir()
        await left
        self._forget(self)

    # --- inside ----------------------------------------------------------------

    def _take(self) -> Message | None:
        now = self._network.seconds()
        message = self._core.take(now)
        if message is None:
            return None
        assert isinstance(message, Message)
        if not message.lease:
            self._core.more(now)
            self._network.stir()
        return message

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
