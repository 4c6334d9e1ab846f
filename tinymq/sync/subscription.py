"""The blocking subscription to a channel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Event, RLock
from time import monotonic
from types import TracebackType
from typing import Any, Final, Protocol, Self

from typing_extensions import override

from tinymq.client.core.bundle import QueueBatch
from tinymq.client.core.config import SubscriptionConfig
from tinymq.client.core.faces import SubscriptionFace
from tinymq.client.core.fate import Confirmed
from tinymq.client.core.handling import Plan, Work
from tinymq.client.core.held import HeldLease, Maker, Part
from tinymq.client.core.message import QueueMessage
from tinymq.client.core.sources import Topics, core_of
from tinymq.client.core.taking import Face
from tinymq.errors import ClosedError, DeadlineExceeded, TinyMQError, UsageError
from tinymq.sync.handling import Handler, Run
from tinymq.sync.keeper import Keeper
from tinymq.sync.loop import Loop
from tinymq.wire.records import Record

_GRACE_S: Final = 1.0


class _Kept(Protocol):
    """What one message and several have in common."""

    _lock: RLock

    def when_lost(self, call: Callable[[], None]) -> None:
        """Call when it is not held any more."""

    def when_confirmed(self, call: Confirmed) -> None:
        """Call when what became of it is written down."""


class _Awaited:
    """Waits for what becomes of a message, or of several."""

    __slots__ = ()

    def lost(self: _Kept, timeout: float | None = None) -> bool:
        """
        Wait until it, or some of it, is not yours any more without your doing.

        Args:
            timeout: Seconds to wait; None waits for ever.

        Returns:
            Whether that has happened.
        """
        event = Event()
        with self._lock:
            self.when_lost(event.set)
        return event.wait(timeout)

    def confirmed(self: _Kept, timeout: float | None = None) -> None:
        """
        Wait until the brokers have written down what became of it.

        Args:
            timeout: Seconds to wait; None waits until they have, or the subscription ended.

        Raises:
            LeaseLost: It, or some of it, was lost before.
            DeadlineExceeded: The time has passed.
            ConnectionLost: Or `ClosedError`: the subscription ended, and nobody knows.
        """
        event, found = Event(), list[TinyMQError]()

        def told(error: TinyMQError | None) -> None:
            if error is not None:
                found.append(error)
            event.set()

        with self._lock:
            self.when_confirmed(told)
        if not event.wait(timeout):
            raise DeadlineExceeded("the broker has not confirmed it in time")
        if found:
            raise found[0]


class Message(_Awaited, QueueMessage):
    """A message of a channel; every thread may settle it."""

    __slots__ = ("_lock",)
    _lock: RLock

    @override
    def touch(self) -> None:
        with self._lock:
            super().touch()

    @override
    def finish(self) -> None:
        with self._lock:
            super().finish()

    @override
    def settle(self, verb: int, facts: dict[str, Any]) -> None:
        with self._lock:
            super().settle(verb, facts)


class MessageBatch(_Awaited, QueueBatch):
    """Messages of a channel that are settled together; every thread may settle it."""

    __slots__ = ("_lock",)
    _lock: RLock

    @property
    @override
    def messages(self) -> list[QueueMessage]:
        with self._lock:
            return super().messages

    @override
    def touch(self) -> None:
        with self._lock:
            super().touch()

    @override
    def _settle(self, verb: int, facts: dict[str, Any]) -> None:
        with self._lock:
            super()._settle(verb, facts)


class Subscription(SubscriptionFace):
    """
    Takes messages of a channel; made by `Client.subscription`, a context manager.

    ::

        with client.subscription("orders", "billing") as subscription:
            for message in subscription:
                bill(message.value)
                message.finish()

    or, with several threads at work::

        subscription.run(bill, concurrency=10)

    A thread of the client renews the leases meanwhile.

    Args:
        shared: The client's loop, and the thread that serves it.
        source: Topic or topics, and the name of the channel.
        config: Settings.
        forget: Called when it is closed.
    """

    def __init__(
        self,
        shared: tuple[Loop, Keeper],
        source: tuple[Topics, str],
        config: SubscriptionConfig,
        forget: Callable[[Subscription], None],
    ) -> None:
        self.config = config
        self._loop, self._keeper = shared
        self._forget = forget
        self._arrived = Event()
        self._run: Run | None = None
        self._left: Event | None = None
        self._core = core_of(
            self._loop.cluster,
            source,
            config,
            Face(self._make, self._arrived.set, self._keeper.ring, self._make_batch),
        )
        self._keeper.start()
        self._core.begin(self._loop.now())
        self._keeper.ring()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- taking ----------------------------------------------------------------

    def ready(self) -> None:
        """
        Wait until a broker lets the subscription take messages.

        Raises:
            UnknownTopic: Or `UnknownChannel`, or another of the broker's errors.
            DeadlineExceeded: Or `UnreachableError`, after
                `SubscriptionConfig.deadline_s`; it is tried on nevertheless.
            ClosedError: The subscription was closed.
            ForkedError: This is another process.
        """
        event, found = Event(), list[TinyMQError]()

        def told(error: TinyMQError | None) -> None:
            if error is not None:
                found.append(error)
            event.set()

        with self._loop.lock:
            self._loop.check()
            self._core.ready_when(told, self._loop.now())
            self._keeper.ring()
        event.wait()
        if found:
            raise found[0]

    def next(self, timeout: float | None = None) -> Message | None:
        """
        Get the next message.

        Args:
            timeout: Seconds to wait for one; None waits for ever.

        Returns:
            The message, which is yours until you settle it, or None when `timeout` has
            passed.

        Raises:
            UnknownTopic: Or `UnknownChannel`, or another error of a broker that ended
                the subscription.
            ClosedError: The subscription was closed.
            ForkedError: This is another process.
        """
        found = self._next(None, timeout)
        assert found is None or isinstance(found, Message)
        return found

    def next_batch(self, most: int = 1000, timeout: float | None = None) -> MessageBatch | None:
        """
        Get the next messages together: the fast way.

        Args:
            most: How many at most; as many as are here, but at least one.
            timeout: Seconds to wait for one; None waits for ever.

        Returns:
            The messages, which are yours until you settle them, or None when `timeout`
            has passed.

        Raises:
            UsageError: `most` is less than 1.
            TinyMQError: As `next`.
        """
        if most < 1:
            raise UsageError(f"a batch has at least 1 message, not {most!r}")
        found = self._next(most, timeout)
        assert found is None or isinstance(found, MessageBatch)
        return found

    def _next(self, most: int | None, timeout: float | None) -> Message | MessageBatch | None:
        until = None if timeout is None else monotonic() + timeout
        while True:
            with self._loop.lock:
                self._loop.check()
                found = self._take(most)
                if found is not None:
                    return found
                self._arrived.clear()
            left = None if until is None else until - monotonic()
            if (left is not None and left <= 0) or not self._arrived.wait(left):
                return None

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        try:
            message = self.next()
        except ClosedError:
            raise StopIteration from None
        assert message is not None
        return message

    def settled(self) -> None:
        """Wait until all that was said of messages up to now is written down, or was late."""
        event = Event()
        with self._loop.lock:
            self._loop.check()
            self._core.when_settled(event.set)
        event.wait()

    # --- handling --------------------------------------------------------------

    def run(
        self,
        handler: Handler,
        *,
        concurrency: int = 1,
        manual: bool = False,
        batch: int | None = None,
    ) -> None:
        """
        Call a function with each message, in threads, until the subscription is closed.

        A message is finished when its handler has returned, and comes again after the
        channel's back-off when it has raised, unless the handler settled it. It may also
        raise `Reject`, or `Requeue` with another delay. Close the subscription from
        another thread, or from a handler; `run` returns when the handlers have ended.

        Args:
            handler: Takes a `Message`, or a list of them with `batch`.
            concurrency: How many handlers are at work at once at most, each in a thread.
            manual: Whether the handler settles each message by itself, perhaps later.
            batch: Give it a list of what is there, so many messages at most. What it
                does not settle by itself is settled as a whole.

        Raises:
            UnknownTopic: Or `UnknownChannel`, or another error of a broker that ended
                the subscription.
            UsageError: Another handler is at work; `ForkedError` in another process.
        """
        plan = Plan(concurrency=concurrency, manual=manual, batch=batch)
        with self._loop.lock:
            self._loop.check()
            if self._run is not None:
                raise UsageError("the subscription has a handler already")
            self._run = Run(handler, plan, self, self._loop)
        try:
            self._run.go()
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
        self._loop.network.report(what, error)

    # --- the end ---------------------------------------------------------------

    def close(self, within_s: float = 0.0) -> None:
        """
        Take no more messages, and leave the channel.

        What was not handed out is given back at once. What `run` is handling may
        end within the time; then all that was not settled is given back, so that others
        have it soon. Threads cannot be cancelled: a handler that goes on has lost its
        message. It returns when the brokers know everything, or after
        `SubscriptionConfig.leave_s` more.

        Args:
            within_s: Seconds for handlers.

        Raises:
            ForkedError: This is another process.
        """
        with self._loop.lock:
            self._loop.check()
            first, left = self._left is None, self._left or Event()
            self._left = left
            if first:
                self._core.drain(self._loop.now())
        if first:
            self._finish(within_s, left)
        left.wait(self.config.leave_s + within_s + _GRACE_S)

    def _finish(self, within_s: float, left: Event) -> None:
        run = self._run
        if run is not None:
            run.wait(within_s)

        def ended() -> None:
            self._keeper.stop()
            self._forget(self)
            left.set()

        with self._loop.lock:
            self._core.close(ended, self._loop.now())
            self._keeper.ring()

    # --- inside ----------------------------------------------------------------

    def _make(self, record: Record, lease: HeldLease, now: float) -> Message:
        message = Message(record, lease, now)
        message._lock = self._loop.lock  # noqa: SLF001 - its own class
        return message

    def _make_batch(self, parts: list[Part], make: Maker, now: float) -> MessageBatch:
        batch = MessageBatch(parts, make, now)
        batch._lock = self._loop.lock  # noqa: SLF001 - its own class
        return batch

    def _take(self, most: int | None) -> Message | MessageBatch | None:
        now = self._loop.now()
        found: Any = self._core.take(now) if most is None else self._core.take_many(most, now)
        if found is not None and not found.lease:
            self._core.more(now)
        return found  # type: ignore[no-any-return]
