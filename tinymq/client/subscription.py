"""The subscription to a channel with Deferreds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, Protocol

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IReactorTime

from tinymq.client.core.bundle import QueueBatch
from tinymq.client.core.config import SubscriptionConfig
from tinymq.client.core.directory import Node
from tinymq.client.core.faces import SubscriptionFace
from tinymq.client.core.fate import Confirmed
from tinymq.client.core.fork import Home
from tinymq.client.core.handling import Plan
from tinymq.client.core.message import QueueMessage
from tinymq.client.core.taking import Core, Face
from tinymq.client.handling import Handler, Run
from tinymq.client.line import Line, fire, pass_to, teller
from tinymq.errors import ClosedError, TinyMQError, UsageError


class Turns(Protocol):
    """The clock of one cluster, or of several."""

    def seconds(self) -> float:
        """The time."""

    def stir(self, drain: Callable[[float], None]) -> None:
        """Call something at the end of this turn of the reactor, once."""

    def arm(self) -> None:
        """Make sure that clusters are woken when they want to be."""

    def later(self, call: Callable[[], None]) -> None:
        """Call at the end of this turn of the reactor."""


class _Kept(Protocol):
    """What one message and several have in common."""

    _lost_waiting: Deferred[None]

    def when_lost(self, call: Callable[[], None]) -> None:
        """Call when it is not held any more."""

    def when_confirmed(self, call: Confirmed) -> None:
        """Call when what became of it is written down."""


class _Awaited:
    """Waits for what becomes of a message, or of several."""

    __slots__ = ()

    @property
    def lost(self: _Kept) -> Deferred[None]:
        """
        Fires when it, or some of it, is not yours any more without your doing.

        It is always the same one.
        """
        waiting: Deferred[None] | None = getattr(self, "_lost_waiting", None)
        if waiting is None:
            self._lost_waiting = waiting = Deferred[None]()
            self.when_lost(partial(fire, waiting))
        return waiting

    def confirmed(self: _Kept) -> Deferred[None]:
        """
        Wait until the brokers have written down what became of it.

        Returns:
            A Deferred that ends

            - with None when it is written, and on disk if the topic is;
            - with `LeaseLost` when it, or some of it, was lost before;
            - with `ConnectionLost`, `DeadlineExceeded` or `ClosedError` when the
              subscription ended and nobody knows.
        """
        waiting: Deferred[None] = Deferred()
        self.when_confirmed(teller(waiting))
        return waiting


class Message(_Awaited, QueueMessage):
    """
    A message of a channel; see `QueueMessage` for what it says and what becomes of it.

    Attributes:
        node: The node that it came from, where nodes were found by `Lookup`.
    """

    __slots__ = ("_lost_waiting", "node")
    _lost_waiting: Deferred[None]
    node: Node


class MessageBatch(_Awaited, QueueBatch):
    """Messages of a channel that are settled together; see `QueueBatch`."""

    __slots__ = ("_lost_waiting",)
    _lost_waiting: Deferred[None]


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
        core: Makes what takes messages.
        config: Settings.
        clock: The reactor, and the network that wakes the cluster.
        home: The process in which the client was made.
        forget: Called when it is closed.
    """

    def __init__(
        self,
        core: Callable[[Face], Core],
        config: SubscriptionConfig,
        clock: tuple[IReactorTime, Turns],
        home: Home,
        forget: Callable[[Subscription], None],
    ) -> None:
        self.config = config
        self._reactor, self._network = clock
        self._home = home
        self._forget = forget
        self._line: Line[Any] = Line(self._reactor)
        self._serving = False
        self._run: Run | None = None
        self._closing: Deferred[None] | None = None
        self._core = core(Face(Message, self.serve, self._soon, MessageBatch))
        self._core.begin(self.seconds())
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

        try:
            self._home.check()
        except TinyMQError as error:
            return fail(error)
        self._core.ready_when(teller(waiting), self.seconds())
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
            found = None if self._line else self._take(most)
        except TinyMQError as error:
            return fail(error)
        if found is not None:
            return succeed(found)
        return self._line.join(timeout, most).deferred

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
        self._core.when_settled(lambda: fire(waiting))
        self._network.arm()
        return waiting

    # --- handling --------------------------------------------------------------

    def run(
        self,
        handler: Handler,
        *,
        concurrency: int = 1,
        manual: bool = False,
        batch: int | None = None,
        threads: int = 0,
        cancel_lost: bool = False,
    ) -> Deferred[None]:
        """
        Call a function with each message, until `close`.

        A message is finished when its handler has ended well, and comes again after
        the channel's back-off when it has failed, unless the handler settled it. It
        may also raise `Reject`, or `Requeue` with another delay.

        Args:
            handler: Takes a `Message`, or a list of them with `batch`. It may be a
                coroutine function or return a Deferred, and then the message is
                handled until that has ended.
            concurrency: How many handlers are at work at once at most.
            manual: Whether the handler settles each message by itself, perhaps later.
            batch: Give it a list of what is there, so many messages at most. What it
                does not settle by itself is settled as a whole.
            threads: Call it in so many threads, for it blocks. There it may settle
                messages, but not wait for `Message.lost` and `Message.confirmed`.
            cancel_lost: Cancel its Deferred or coroutine when its messages are lost.

        Returns:
            A Deferred that ends

            - with None when the subscription was closed;
            - with the error of a broker that ended the subscription;
            - with `UsageError` when another handler is at work;
            - with `ForkedError`, or `CancelledError`: what is being handled is
              cancelled then and given back, and nothing more is.
        """
        try:
            if self._run is not None and not self._run.ended:
                raise UsageError("the subscription has a handler already")
            plan = Plan(
                concurrency=concurrency,
                manual=manual,
                batch=batch,
                threads=threads,
                cancel_lost=cancel_lost,
            )
            self._home.check()
            self._run = run = Run(handler, plan, self, (self._core, self._reactor))
        except TinyMQError as error:
            return fail(error)
        self.serve()
        return run.done

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
            self._core.drain(self.seconds())
            self._finish(within_s)
        waiting: Deferred[None] = Deferred()
        self._closing.addCallback(pass_to(waiting))
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

        run.when_idle(handled)
        self._network.arm()

    def _leave(self) -> None:
        if self._run is not None:
            self._run.cancel()
        self._core.close(self._left, self.seconds())
        self._network.arm()

    def _left(self) -> None:
        assert self._closing is not None
        self._forget(self)
        if self._run is not None:
            self._run.end(self._core.failed)
        self._closing.callback(None)

    # --- for what calls handlers ----------------------------------------------------------------

    @property
    def closing(self) -> bool:
        """Whether it is about to end."""
        return self._closing is not None

    def seconds(self) -> float:
        """The time."""
        return self._network.seconds()

    def later(self, call: Callable[[], None]) -> None:
        """
        Call something in a turn of its own.

        Args:
            call: What to call.
        """
        self._network.later(call)

    def take(self) -> Message | None:
        """
        Take a message, if one is there, before anybody who waits.

        Raises:
            TinyMQError: The subscription ended.
        """
        return self._take(None)  # type: ignore[return-value]

    # --- inside ----------------------------------------------------------------

    def _take(self, most: int | None) -> Message | MessageBatch | None:
        now = self.seconds()
        found: Any
        found = self._core.take(now) if most is None else self._core.take_many(most, now)
        if found is not None and not found.lease:
            self._core.more(now)
        return found  # type: ignore[no-any-return]

    def _soon(self) -> None:
        self._network.stir(self._core.pump)

    def serve(self) -> None:
        """Give waiting calls what is ready, and then the handler."""
        if self._serving:
            return
        self._serving = True
        try:
            while self._line:
                try:
                    found = self._take(self._line.wanted)
                except TinyMQError as error:
                    self._line.fail(error)
                    continue
                if found is None:
                    break
                self._line.serve(found)
        finally:
            self._serving = False
        if self._run is not None and not self._run.ended:
            self._run.feed()
