"""Calling handlers with messages, with Deferreds."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from inspect import iscoroutine
from threading import get_ident
from typing import Any, Final, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorFromThreads
from twisted.logger import Logger
from twisted.python.failure import Failure

from tinymq.client.core.handling import Plan, Work, call_in_thread
from tinymq.client.core.message import QueueMessage
from tinymq.client.core.taking import Core
from tinymq.client.stepping import begun
from tinymq.errors import ClosedError, TinyMQError, UsageError

#: Seconds of handlers in one turn of the reactor.
_SLICE_S: Final = 0.01

#: Takes a message, or a list; may return a Deferred or be a coroutine function.
Handler = Callable[[Any], Deferred[Any] | Coroutine[Any, Any, Any] | object]


class Source(Protocol):
    """Where messages come from."""

    @property
    def topic(self) -> str:
        """Name of the topic."""

    @property
    def channel(self) -> str:
        """Name of the channel."""

    @property
    def closing(self) -> bool:
        """Whether it is about to end."""

    def seconds(self) -> float:
        """The time."""

    def serve(self) -> None:
        """Have `Run.feed` called, when those who wait have had theirs."""

    def later(self, call: Callable[[], None]) -> None:
        """Call something in a turn of its own."""


class Run:
    """
    A handler at work.

    Args:
        handler: Takes a message, or a list of them.
        plan: How it is called.
        source: Where messages come from.
        rooms: Whose messages they are, and the reactor to which threads hand back.

    Raises:
        UsageError: There are to be threads, and the reactor has none.

    Attributes:
        done: Ends with `run`.
    """

    _log = Logger()

    def __init__(
        self, handler: Handler, plan: Plan, source: Source, rooms: tuple[Core, Any]
    ) -> None:
        self.done: Deferred[None] = Deferred(self._halted)
        self._handler = handler
        self._plan = plan
        self._source = source
        self._core, reactor = rooms
        self._busy: dict[Work, Deferred[Any]] = {}
        self._feeding = self._ended = False
        #: Its time of this turn is over: others, such as the renewal of leases, have theirs.
        self._resting = False
        self._idle: list[Callable[[], None]] = []
        self._pool: ThreadPoolExecutor | None = None
        if plan.threads:
            if not IReactorFromThreads.providedBy(reactor):
                raise UsageError(f"this reactor has no threads: {reactor!r}")
            self._thread, self._reactor = get_ident(), reactor
            self._pool = ThreadPoolExecutor(plan.threads, "tinymq-handler")

    @property
    def busy(self) -> bool:
        """Whether something is being handled."""
        return bool(self._busy)

    def when_idle(self, call: Callable[[], None]) -> None:
        """
        Call when nothing is being handled any more.

        Args:
            call: What to call, once.
        """
        self._idle.append(call)

    def cancel(self) -> None:
        """Cancel what is being handled, and wait for it no longer."""
        self._idle.clear()
        for result in tuple(self._busy.values()):
            result.cancel()

    def end(self, error: TinyMQError | None) -> None:
        """
        Call the handler no more, and end `done`.

        Args:
            error: With what, or None.
        """
        self._stop()
        if self.done.called:
            return
        if error is None:
            self.done.callback(None)
        else:
            self.done.errback(error)

    def _halted(self, _: Deferred[None]) -> None:
        """`done` was cancelled: what is being handled is given back."""
        self._stop()
        for work, result in tuple(self._busy.items()):
            work.give_back()
            result.cancel()

    def _stop(self) -> None:
        if not self._ended and self._pool is not None:
            self._pool.shutdown(wait=False)  # a thread ends when its handler does
        self._ended = True

    @property
    def ended(self) -> bool:
        """Whether the handler is called no more."""
        return self._ended

    # --- handling ----------------------------------------------------------------

    def feed(self) -> None:
        """
        Give messages to the handler, as many as it takes at once, for a slice of time.

        Raises:
            TinyMQError: There will be no more.
        """
        if self._feeding or self._resting:
            return
        self._feeding = True
        try:
            self._feed(self._source.seconds())
        except TinyMQError as error:
            self.end(None if isinstance(error, ClosedError) else error)
        finally:
            self._feeding = False

    def _feed(self, now: float) -> None:  # noqa: C901 - the hot loop in one piece
        until = now + _SLICE_S
        seconds, core, plan = self._source.seconds, self._core, self._plan
        alone, manual = plan.batch is None and not plan.threads, plan.manual
        handler, busy, most, take = self._handler, self._busy, plan.at_once, core.take
        # Nothing here costs more for a plain function than it must: it is the hot loop.
        while not self._ended and len(busy) < most:
            message: Any = take(now)
            if message is None:
                break
            if not message.lease:
                core.more(now)
            if not alone:
                self._begin(self._more(message, now))
            else:
                try:
                    result = handler(message)
                    if result is not None and iscoroutine(result):
                        result = begun(result)
                except Exception:  # noqa: BLE001 - anything may come out of it
                    self._failed(Failure(), Work([message], plan))  # type: ignore[no-untyped-call]
                else:
                    if result is not None:
                        self._go_on(Work([message], plan), result)
                    elif message.held and not manual:
                        message.finish()
            now = seconds()
            if now >= until:
                self._resting = True
                self._source.later(self._rested)
                break

    def _rested(self) -> None:
        self._resting = False
        self._source.serve()

    def _more(self, first: QueueMessage, now: float) -> Work:
        """Take more messages for a batch."""
        messages = [first]
        while len(messages) < (self._plan.batch or 1):
            message = self._core.take(now)
            if message is None:
                break
            messages.append(message)
        if not first.lease:
            self._core.more(now)
        return Work(messages, self._plan)

    def _begin(self, work: Work) -> None:
        try:
            result = self._called(work)
        except Exception:  # noqa: BLE001 - anything may come out of it
            self._failed(Failure(), work)  # type: ignore[no-untyped-call]
        else:
            self._go_on(work, result)

    def _go_on(self, work: Work, result: object) -> None:
        """Wait for a handler that has not ended, if so it is."""
        if iscoroutine(result):
            try:
                result = begun(result)
            except Exception:  # noqa: BLE001 - anything may come out of it
                self._failed(Failure(), work)  # type: ignore[no-untyped-call]
                return
        if not isinstance(result, Deferred):
            work.ended()
            return
        self._busy[work] = result
        if self._plan.cancel_lost:
            work.when_lost(result.cancel)
        result.addCallbacks(lambda _: work.ended(), self._failed, errbackArgs=(work,))
        result.addBoth(self._over, work)

    def _called(self, work: Work) -> object:
        if self._pool is None:
            return self._handler(work.given)
        work.from_thread(self._in_reactor)
        result: Deferred[None] = Deferred()
        self._pool.submit(self._in_thread, work, result)
        return result

    def _in_thread(self, work: Work, result: Deferred[None]) -> None:
        try:
            call_in_thread(self._handler, work)
        except Exception:  # noqa: BLE001 - anything may come out of it
            failure = Failure()  # type: ignore[no-untyped-call]
            self._reactor.callFromThread(result.errback, failure)
        else:
            self._reactor.callFromThread(result.callback, None)

    def _in_reactor(self, call: Callable[[], None]) -> None:
        if get_ident() == self._thread:
            call()
        else:
            self._reactor.callFromThread(call)

    def _failed(self, failure: Failure, work: Work) -> None:
        error = failure.value
        assert error is not None
        if isinstance(error, CancelledError) and (self._source.closing or not work.held):
            work.give_back()
        elif work.failed(error):
            self._log.failure(
                "The handler of {topic}/{channel} failed at {work}",
                failure,
                topic=self._source.topic,
                channel=self._source.channel,
                work=work,
            )

    def _over(self, _: object, work: Work) -> None:
        self._busy.pop(work, None)
        self._source.serve()
        if not self._busy:
            calls, self._idle = self._idle, []
            for call in calls:
                call()
