"""The subscription to a channel with Deferreds."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from inspect import iscoroutine
from typing import Any, Final

from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from tinymq.client.core.bundle import QueueBatch
from tinymq.client.core.cluster import Cluster
from tinymq.client.core.config import SubscriptionConfig
from tinymq.client.core.faces import SubscriptionFace, reason_of
from tinymq.client.core.fork import Home
from tinymq.client.core.message import QueueMessage
from tinymq.client.core.subscription import SubscriptionCore
from tinymq.client.network import TwistedNetwork
from tinymq.client.stepping import begun
from tinymq.errors import ClosedError, TinyMQError, UsageError

#: Seconds of handlers in one turn of the reactor.
_SLICE_S: Final = 0.01


class Message(QueueMessage):
    """A message of a channel; see `QueueMessage` for what it says and what becomes of it."""

    __slots__ = ("_lost_waiting",)
    _lost_waiting: Deferred[None]

    @property
    def lost(self) -> Deferred[None]:
        """Fires when the message is not yours any more without your doing; always the same one."""
        waiting: Deferred[None] | None = getattr(self, "_lost_waiting", None)
        if waiting is None:
            waiting = self._lost_waiting = Deferred()
            self.when_lost(partial(_fire, waiting))
        return waiting

    def confirmed(self) -> Deferred[None]:
        """
        Wait until the broker has written down what became of the message.

        Returns:
            A Deferred that ends

            - with None when it is written, and on disk if the topic is;
            - with `LeaseLost` when the message was lost before;
            - with `ConnectionLost`, `DeadlineExceeded` or `ClosedError` when the
              subscription ended and nobody knows.
        """
        return _confirmed(self)


class MessageBatch(QueueBatch):
    """Messages of a channel that are settled together; see `QueueBatch`."""

    __slots__ = ("_lost_waiting",)
    _lost_waiting: Deferred[None]

    @property
    def lost(self) -> Deferred[None]:
        """Fires when some of it is not yours any more without your doing; always the same one."""
        waiting: Deferred[None] | None = getattr(self, "_lost_waiting", None)
        if waiting is None:
            waiting = self._lost_waiting = Deferred()
            self.when_lost(partial(_fire, waiting))
        return waiting

    def confirmed(self) -> Deferred[None]:
        """
        Wait until the brokers have written down what became of all messages.

        Returns:
            A Deferred that ends as that of `Message.confirmed` does; with `LeaseLost`
            when some messages were lost before.
        """
        return _confirmed(self)


def _confirmed(what: Message | MessageBatch) -> Deferred[None]:
    waiting: Deferred[None] = Deferred()

    def told(error: TinyMQError | None) -> None:
        if waiting.called:
            return  # cancelled
        if error is None:
            waiting.callback(None)
        else:
            waiting.errback(error)

    what.when_confirmed(told)
    return waiting


#: Takes a message; may return a Deferred or be a coroutine function.
Handler = Callable[[Message], Deferred[Any] | Coroutine[Any, Any, Any] | object]


class _Waiter:
    """One `next` that waits, or one `next_batch` for so many messages."""

    __slots__ = ("deferred", "most", "timer")

    def __init__(self, deferred: Deferred[Any], most: int | None) -> None:
        self.deferred = deferred
        self.most = most
        self.timer: IDelayedCall | None = None


class _Run:
    """A handler at work."""

    __slots__ = ("busy", "concurrency", "done", "handler", "manual")

    def __init__(self, handler: Handler, concurrency: int, *, manual: bool) -> None:
        self.handler = handler
        self.concurrency = concurrency
        self.manual = manual
        self.done: Deferred[None] = Deferred()
        self.busy: dict[Message, Deferred[Any]] = {}


class Subscription(SubscriptionFace):
    """
    Takes messages of a channel; made by `Client.subscription`.

    ::

        subscription = client.subscription("orders", "billing")
        async for message in subscription:
            bill(message.value)
            message.finish()

    or, with several messages at work at once::

        await subscription.run(bill, concurrency=10)

    Args:
        cluster: The brokers.
        source: Names of topic and channel.
        config: Settings.
        clock: The reactor, and the network that wakes the cluster.
        home: The process in which the client was made.
        forget: Called when it is closed.
    """

    _log = Logger()

    def __init__(
        self,
        cluster: Cluster,
        source: tuple[str, str],
        config: SubscriptionConfig,
        clock: tuple[IReactorTime, TwistedNetwork],
        home: Home,
        forget: Callable[[Subscription], None],
    ) -> None:
        self.config = config
        self._reactor, self._network = clock
        self._seconds = self._network.seconds
        self._home = home
        self._forget = forget
        self._waiters: deque[_Waiter] = deque()
        self._serving = False
        self._feeding = False
        self._run: _Run | None = None
        self._closing: Deferred[None] | None = None
        self._handled: list[Callable[[], None]] = []
        self._core = SubscriptionCore(
            cluster, source, config, (Message, MessageBatch), self._serve, self._soon
        )
        self._core.begin(self._seconds())
        self._network.arm()

    # --- taking ----------------------------------------------------------------

    def ready(self) -> Deferred[None]:
        """
        Wait until a broker lets the subscription take messages.

        Returns:
            A Deferred that ends

            - with None when one does;
            - with `UnknownTopic`, `UnknownChannel` or another of the broker's errors;
            - with `UnreachableError` or `DeadlineExceeded` after
              `SubscriptionConfig.deadline_s`; it is tried on nevertheless;
            - with `ClosedError` or `ForkedError`.
        """
        waiting: Deferred[None] = Deferred()

        def told(error: TinyMQError | None) -> None:
            if waiting.called:
                return  # cancelled
            if error is None:
                waiting.callback(None)
            else:
                waiting.errback(error)

        try:
            self._home.check()
        except TinyMQError as error:
            return fail(error)
        self._core.ready_when(told, self._seconds())
        self._network.arm()
        return waiting

    def next(self, timeout: float | None = None) -> Deferred[Message | None]:
        """
        Get the next message; several calls are served in turn.

        Args:
            timeout: Seconds to wait for one; None waits for ever.

        Returns:
            A Deferred that ends

            - with a `Message`, which is yours until you settle it;
            - with None when `timeout` has passed;
            - with `UnknownTopic`, `UnknownChannel` or another error of a broker that
              ended the subscription;
            - with `ClosedError`, `ForkedError`, or `CancelledError`.
        """
        return self._next(None, timeout)

    def next_batch(
        self, most: int = 1000, timeout: float | None = None
    ) -> Deferred[MessageBatch | None]:
        """
        Get the next messages together: the fast way.

        Args:
            most: How many at most; as many as are here, but at least one.
            timeout: Seconds to wait for one; None waits for ever.

        Returns:
            A Deferred that ends

            - with a `MessageBatch`, which is yours until you settle it;
            - with None when `timeout` has passed;
            - with the errors of `next`, or `UsageError` when `most` is less than 1.
        """
        if most < 1:
            return fail(UsageError(f"a batch has at least 1 message, not {most!r}"))
        return self._next(most, timeout)

    def _next(self, most: int | None, timeout: float | None) -> Deferred[Any]:
        try:
            self._home.check()
            found = None if self._waiters else self._take(most)
        except TinyMQError as error:
            return fail(error)
        if found is not None:
            return succeed(found)
        waiting: Deferred[Any] = Deferred(self._cancelled)
        waiter = _Waiter(waiting, most)
        self._waiters.append(waiter)
        if timeout is not None:
            waiter.timer = self._reactor.callLater(max(0.0, timeout), self._timed_out, waiter)
        return waiting

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        try:
            message = await self.next()
        except ClosedError:
            raise StopAsyncIteration from None
        assert message is not None
        return message

    def settled(self) -> Deferred[None]:
        """
        Wait until all that was said of messages up to now is written down.

        Returns:
            A Deferred that ends with None, also when some settles came too late:
            `Message.confirmed` and `late` tell of those.
        """
        waiting: Deferred[None] = Deferred()
        self._core.when_settled(lambda: _fire(waiting))
        self._network.arm()
        return waiting

    # --- handling --------------------------------------------------------------

    def run(
        self, handler: Handler, *, concurrency: int = 1, manual: bool = False
    ) -> Deferred[None]:
        """
        Call a function with each message, until `close`.

        A message is finished when its handler has ended well, and comes again after
        the channel's back-off when it has failed, unless the handler settled it.

        Args:
            handler: Takes a `Message`. It may be a coroutine function or return a
                Deferred, and then the message is handled until that has ended.
            concurrency: How many messages are handled at once at most.
            manual: Whether the handler settles each message by itself, perhaps later.

        Returns:
            A Deferred that ends

            - with None when the subscription was closed;
            - with the error of a broker that ended the subscription;
            - with `UsageError` when another handler is at work;
            - with `ForkedError`, or `CancelledError`: what is being handled is
              cancelled then and given back, and nothing more is.
        """
        if self._run is not None:
            return fail(UsageError("the subscription has a handler already"))
        if concurrency < 1:
            return fail(UsageError(f"concurrency must be at least 1, not {concurrency!r}"))
        try:
            self._home.check()
        except TinyMQError as error:
            return fail(error)
        run = self._run = _Run(handler, concurrency, manual=manual)
        run.done = Deferred(self._halted)
        self._serve()
        return run.done

    def _feed(self) -> None:  # noqa: C901 - the hot loop in one piece
        """Give messages to the handler, as many as it takes at once, for a slice of time."""
        run = self._run
        if self._feeding or run is None:
            return
        self._feeding = True
        seconds, core, handler = self._seconds, self._core, run.handler
        now = seconds()
        until = now + _SLICE_S
        try:
            # Nothing here costs more for a plain function than it must: it is the hot loop.
            while self._run is run and len(run.busy) < run.concurrency:
                message: Any = core.take(now)
                if message is None:
                    break
                if not message.lease:
                    core.more(now)
                try:
                    result = handler(message)
                except Exception:  # noqa: BLE001 - anything may come out of it
                    self._failed(Failure(), message)  # type: ignore[no-untyped-call]
                else:
                    if result is not None:
                        self._go_on(run, message, result)
                    elif message.held and not run.manual:
                        message.finish()
                now = seconds()
                if now >= until:
                    self._network.later(self._serve)
                    break
        except TinyMQError as error:
            self._end(None if isinstance(error, ClosedError) else error)
        finally:
            self._feeding = False

    def _go_on(self, run: _Run, message: Message, result: object) -> None:
        """Wait for a handler that has not ended, if so it is."""
        if iscoroutine(result):
            try:
                result = begun(result)
            except Exception:  # noqa: BLE001 - anything may come out of it
                self._failed(Failure(), message)  # type: ignore[no-untyped-call]
                return
        if not isinstance(result, Deferred):
            self._handled_well(run, message)
            return
        run.busy[message] = result
        result.addCallbacks(
            lambda _: self._handled_well(run, message), self._failed, errbackArgs=(message,)
        )
        result.addBoth(self._ended, run, message)

    def _handled_well(self, run: _Run, message: Message) -> None:
        if message.held and not run.manual:
            message.finish()

    def _failed(self, failure: Failure, message: Message) -> None:
        error = failure.value
        assert error is not None
        if self._closing is not None and isinstance(error, CancelledError):
            if message.held:
                message.give_back()
            return
        self._log.failure(
            "The handler of {topic}/{channel} failed at {message}",
            failure,
            topic=self.topic,
            channel=self.channel,
            message=message,
        )
        if message.held and message.lease:
            message.requeue(reason=reason_of(error))

    def _ended(self, _: object, run: _Run, message: Message) -> None:
        run.busy.pop(message, None)
        self._serve()
        if not run.busy:
            handled, self._handled = self._handled, []
            for call in handled:
                call()

    def _end(self, error: TinyMQError | None) -> None:
        """End `run`."""
        run, self._run = self._run, None
        if run is None or run.done.called:
            return
        if error is None:
            run.done.callback(None)
        else:
            run.done.errback(error)

    def _halted(self, _: Deferred[None]) -> None:
        """`run` was cancelled."""
        run, self._run = self._run, None
        for message, result in tuple(run.busy.items()) if run is not None else ():
            if message.held:
                message.give_back()
            result.cancel()

    # --- the end ---------------------------------------------------------------

    def close(self, within_s: float = 0.0) -> Deferred[None]:
        """
        Take no more messages, and leave the channel.

        What was not handed out is given back at once. What `run` is handling may
        end within the time; then its handlers are cancelled, and all that was not
        settled is given back, so that others have it soon.

        Args:
            within_s: Seconds for handlers.

        Returns:
            A Deferred that ends with None when the brokers know everything, or after
            `SubscriptionConfig.leave_s` more. It never fails.
        """
        if self._closing is None:
            self._closing = Deferred()
            self._core.drain(self._seconds())
            self._finish(within_s)
        waiting: Deferred[None] = Deferred()
        self._closing.addCallback(_pass_to(waiting))
        return waiting

    def _finish(self, within_s: float) -> None:
        run = self._run
        if run is None or not run.busy:
            self._leave()
            return
        timer = self._reactor.callLater(max(0.0, within_s), self._leave)

        def handled() -> None:
            if timer.active():
                timer.cancel()
                self._leave()

        self._handled.append(handled)
        self._network.arm()

    def _leave(self) -> None:
        self._handled.clear()
        run = self._run
        for result in tuple(run.busy.values()) if run is not None else ():
            result.cancel()
        self._core.close(self._left, self._seconds())
        self._network.arm()

    def _left(self) -> None:
        assert self._closing is not None
        self._forget(self)
        self._end(self._core.failed)
        self._closing.callback(None)

    # --- inside ----------------------------------------------------------------

    def _take(self, most: int | None) -> Message | MessageBatch | None:
        now = self._seconds()
        found: Any
        found = self._core.take(now) if most is None else self._core.take_many(most, now)
        if found is not None and not found.lease:
            self._core.more(now)
        return found  # type: ignore[no-any-return]

    def _soon(self) -> None:
        self._network.stir(self._core.pump)

    def _serve(self) -> None:
        """Give waiting calls what is ready, and then the handler."""
        if self._serving:
            return
        self._serving = True
        try:
            while self._waiters:
                try:
                    found = self._take(self._waiters[0].most)
                except TinyMQError as error:
                    self._pop(self._waiters[0]).deferred.errback(error)
                    continue
                if found is None:
                    break
                self._pop(self._waiters[0]).deferred.callback(found)
        finally:
            self._serving = False
        self._feed()

    def _pop(self, waiter: _Waiter) -> _Waiter:
        self._waiters.remove(waiter)
        if waiter.timer is not None and waiter.timer.active():
            waiter.timer.cancel()
        return waiter

    def _timed_out(self, waiter: _Waiter) -> None:
        self._pop(waiter).deferred.callback(None)

    def _cancelled(self, deferred: Deferred[Any]) -> None:
        for waiter in self._waiters:
            if waiter.deferred is deferred:
                self._pop(waiter)
                return


def _fire(waiting: Deferred[None]) -> None:
    if not waiting.called:
        waiting.callback(None)


def _pass_to(waiting: Deferred[None]) -> Callable[[None], None]:
    def passed(_: None) -> None:
        _fire(waiting)

    return passed
