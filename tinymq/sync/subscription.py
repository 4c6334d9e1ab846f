"""The blocking subscription to a channel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Condition, Event, RLock, Semaphore, get_ident
from time import monotonic
from types import TracebackType
from typing import Any, Final, Self

from typing_extensions import override

from tinymq.client.core.bundle import QueueBatch
from tinymq.client.core.config import SubscriptionConfig
from tinymq.client.core.faces import SubscriptionFace, reason_of
from tinymq.client.core.held import HeldLease
from tinymq.client.core.message import QueueMessage
from tinymq.client.core.subscription import SubscriptionCore
from tinymq.errors import ClosedError, DeadlineExceeded, TinyMQError, UsageError
from tinymq.sync.keeper import Keeper
from tinymq.sync.loop import Loop
from tinymq.wire.records import Record

_GRACE_S: Final = 1.0


class Message(QueueMessage):
    """A message of a channel; every thread may settle it."""

    __slots__ = ("_lock",)
    _lock: RLock

    def lost(self, timeout: float | None = None) -> bool:
        """
        Wait until the message is not yours any more without your doing.

        Args:
            timeout: Seconds to wait; None waits for ever.

        Returns:
            Whether that has happened.
        """
        event = Event()
        with self._lock:
            self.when_lost(event.set)
        return event.wait(timeout)

    def confirmed(self, timeout: float | None = None) -> None:
        """
        Wait until the broker has written down what became of the message.

        Args:
            timeout: Seconds to wait; None waits until it has, or the subscription ended.

        Raises:
            LeaseLost: The message was lost before.
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


#: Takes a message.
Handler = Callable[[Message], object]


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
        source: Names of topic and channel.
        config: Settings.
        forget: Called when it is closed.
    """

    def __init__(
        self,
        shared: tuple[Loop, Keeper],
        source: tuple[str, str],
        config: SubscriptionConfig,
        forget: Callable[[Subscription], None],
    ) -> None:
        self.config = config
        self._loop, self._keeper = shared
        self._forget = forget
        self._arrived = Event()
        #: What is handled, and by which thread; 0 before one has begun.
        self._busy: dict[Message, int] = {}
        self._rest = Condition()
        self._running = False
        self._left: Event | None = None
        self._core = SubscriptionCore(
            self._loop.cluster,
            source,
            config,
            (self._make, QueueBatch),
            self._arrived.set,
            self._keeper.ring,
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
        until = None if timeout is None else monotonic() + timeout
        while True:
            with self._loop.lock:
                self._loop.check()
                message = self._take()
                if message is not None:
                    return message
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

    def run(self, handler: Handler, *, concurrency: int = 1, manual: bool = False) -> None:
        """
        Call a function with each message, in threads, until the subscription is closed.

        A message is finished when its handler has returned, and comes again after the
        channel's back-off when it has raised, unless the handler settled it. Close the
        subscription from another thread, or from a handler; it returns when the handlers
        have ended.

        Args:
            handler: Takes a `Message`.
            concurrency: How many messages are handled at once at most.
            manual: Whether the handler settles each message by itself, perhaps later.

        Raises:
            UnknownTopic: Or `UnknownChannel`, or another error of a broker that ended
                the subscription.
            UsageError: Another handler is at work; `ForkedError` in another process.
        """
        if concurrency < 1:
            raise UsageError(f"concurrency must be at least 1, not {concurrency!r}")
        with self._loop.lock:
            self._loop.check()
            if self._running:
                raise UsageError("the subscription has a handler already")
            self._running = True
        try:
            with ThreadPoolExecutor(concurrency, "tinymq-handler") as pool:
                free = Semaphore(concurrency)
                while True:
                    free.acquire()
                    try:
                        message = self.next()
                    except ClosedError:
                        return
                    assert message is not None
                    with self._rest:
                        self._busy[message] = 0
                    pool.submit(self._handle, handler, message, free, manual=manual)
        finally:
            self._running = False

    def _handle(self, handler: Handler, message: Message, free: Semaphore, *, manual: bool) -> None:
        with self._rest:
            self._busy[message] = get_ident()
        try:
            if not message.is_lost:
                handler(message)
        except Exception as error:  # noqa: BLE001 - anything may come out of it
            what = f"the handler of {self.topic}/{self.channel} failed at {message!r}"
            with self._loop.lock:
                self._loop.network.report(what, error)
                if message.held and message.lease:
                    message.requeue(reason=reason_of(error))
        else:
            with self._loop.lock:
                if message.held and not manual:
                    message.finish()
        finally:
            free.release()
            with self._rest:
                del self._busy[message]
                self._rest.notify_all()

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
        with self._rest:
            self._rest.wait_for(lambda: {*self._busy.values()} <= {get_ident()}, within_s)

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

    def _take(self) -> Message | None:
        now = self._loop.now()
        message = self._core.take(now)
        if message is None:
            return None
        assert isinstance(message, Message)
        if not message.lease:
            self._core.more(now)
        return message
