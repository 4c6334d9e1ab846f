"""Calling handlers with what a group consumer hands out, with Deferreds."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from inspect import iscoroutine
from typing import Any, Final, Protocol

from twisted.internet.defer import CancelledError, Deferred, gatherResults
from twisted.internet.interfaces import IDelayedCall, IReactorFromThreads
from twisted.logger import Logger
from twisted.python.failure import Failure

from tinymq.client.core.group.consumer import GroupCore
from tinymq.client.core.group.working import SKIP, GroupPlan, Job, Lanes, letters
from tinymq.client.producer import Producer
from tinymq.client.stepping import begun
from tinymq.errors import ClosedError, TinyMQError, UsageError

#: Seconds of handlers in one turn of the reactor.
_SLICE_S: Final = 0.01

#: Takes a message, or a batch; may return a Deferred or be a coroutine function.
Handler = Callable[[Any], Deferred[Any] | Coroutine[Any, Any, Any] | object]


class Source(Protocol):
    """Where messages come from."""

    @property
    def closing(self) -> bool:
        """Whether it is about to end."""

    def seconds(self) -> float:
        """The time."""

    def serve(self) -> None:
        """Have `GroupRun.feed` called, when those who wait have had theirs."""

    def again(self) -> None:
        """The same, at the end of the turn."""


class GroupRun:
    """
    A handler at work.

    Args:
        handler: Takes a message, or a batch.
        plan: How it is called.
        source: Where messages come from.
        rooms: Whose messages they are, the reactor, and what sends dead letters.

    Raises:
        UsageError: There are to be threads, and the reactor has none.

    Attributes:
        done: Ends with `run`.
    """

    _log = Logger()

    def __init__(
        self,
        handler: Handler,
        plan: GroupPlan,
        source: Source,
        rooms: tuple[GroupCore, Any, Producer | None],
    ) -> None:
        self.done: Deferred[None] = Deferred(self._halted)
        self._handler = handler
        self._plan = plan
        self._source = source
        self._core, self._reactor, self._producer = rooms
        self._lanes = Lanes(plan.at_once)
        self._busy: dict[Job, Deferred[Any]] = {}
        self._waiting: dict[Job, IDelayedCall] = {}
        self._feeding = self._ended = False
        self._last: IDelayedCall | None = None
        self._pool: ThreadPoolExecutor | None = None
        if plan.threads:
            if not IReactorFromThreads.providedBy(self._reactor):
                raise UsageError(f"this reactor has no threads: {self._reactor!r}")
            self._pool = ThreadPoolExecutor(plan.threads, "tinymq-handler")

    @property
    def busy(self) -> bool:
        """Whether something is being handled."""
        return bool(self._busy or self._waiting)

    @property
    def ended(self) -> bool:
        """Whether the handler is called no more."""
        return self._ended

    def finish(self, within_s: float) -> None:
        """
        Cancel what is still being handled after a while.

        Args:
            within_s: Seconds.
        """
        for job in tuple(self._waiting):
            self._give_up(job)
        if within_s <= 0:
            self._cancel()
        else:
            self._last = self._reactor.callLater(within_s, self._cancel)

    def end(self, error: BaseException | None) -> None:
        """
        Call the handler no more, and end `done`.

        Args:
            error: With what, or None.
        """
        self._shut()
        if self.done.called:
            return
        if error is None:
            self.done.callback(None)
        else:
            self.done.errback(error)

    def _halted(self, _: Deferred[None]) -> None:
        """`done` was cancelled."""
        self._shut()

    def _shut(self) -> None:
        """What is being handled is not done: it comes again."""
        if self._ended:
            return
        self._ended = True
        if self._last is not None and self._last.active():
            self._last.cancel()
        if self._pool is not None:
            self._pool.shutdown(wait=False)  # a thread ends when its handler does
        if self._producer is not None:
            self._producer.close().addErrback(_told_before)
        now = self._source.seconds()
        for job in (*self._waiting, *self._busy, *self._lanes.drop()):
            self._give_up(job)
            self._core.give_back(job.item, now)
        self._cancel()

    def _cancel(self) -> None:
        for result in tuple(self._busy.values()):
            result.cancel()

    # --- handling ----------------------------------------------------------------

    def feed(self) -> None:
        """
        Give messages to the handler, as many as it takes at once, for a slice of time.

        Raises:
            TinyMQError: There will be no more.
        """
        if self._feeding or self._ended:
            return
        self._feeding = True
        try:
            self._feed()
        except ClosedError:
            for job in self._lanes.drop():
                job.let_go()
            # What is being handled may end; the consumer says when it is all over.
            if not self._source.closing:
                self.end(None)
        except TinyMQError as error:
            self.end(error)
        finally:
            self._feeding = False

    def _feed(self) -> None:
        source, core, plan, lanes = self._source, self._core, self._plan, self._lanes
        take: Callable[[], Any] = core.take_batch if plan.batches else core.take
        plain = plan.at_once == 1 and self._pool is None
        now = source.seconds()
        until = now + _SLICE_S
        while not self._ended and len(self._busy) + len(self._waiting) < plan.at_once:
            job = lanes.next()
            if job is None:
                item = None if lanes.full else take()
                if item is None:
                    break
                core.more(now)
                if plain:
                    self._quick(item)
                elif lanes.enter(job := Job(item)):
                    self._begin(job)
            else:
                self._begin(job)
            now = source.seconds()
            if now >= until:
                source.again()
                break

    def _quick(self, item: Any) -> None:
        """One at a time: a plain function costs no more than its call."""
        try:
            result = self._handler(item)
            if result is not None and iscoroutine(result):
                result = begun(result)
        except Exception:  # noqa: BLE001 - anything may come out of it
            self._failed(Failure(), Job(item))  # type: ignore[no-untyped-call]
        else:
            if isinstance(result, Deferred):
                self._wait(Job(item), result)
            elif not self._plan.manual:
                item.done()

    def _begin(self, job: Job) -> None:
        if job.item.is_lost:
            self._over(job)
            return
        try:
            result = self._called(job)
            if iscoroutine(result):
                result = begun(result)
        except Exception:  # noqa: BLE001 - anything may come out of it
            self._failed(Failure(), job)  # type: ignore[no-untyped-call]
            return
        if isinstance(result, Deferred):
            self._wait(job, result)
        else:
            self._succeeded(job)

    def _called(self, job: Job) -> object:
        if self._pool is None:
            return self._handler(job.item)
        result: Deferred[None] = Deferred()
        self._pool.submit(self._in_thread, job, result)
        return result

    def _in_thread(self, job: Job, result: Deferred[None]) -> None:
        try:
            self._handler(job.item)
        except Exception:  # noqa: BLE001 - anything may come out of it
            failure = Failure()  # type: ignore[no-untyped-call]
            self._reactor.callFromThread(result.errback, failure)
        else:
            self._reactor.callFromThread(result.callback, None)

    def _wait(self, job: Job, result: Deferred[Any]) -> None:
        """Wait for a handler that has not ended."""
        self._busy[job] = result

        def ended(_: object) -> None:
            self._busy.pop(job, None)
            self._succeeded(job)
            self._source.serve()

        def failed(failure: Failure) -> None:
            self._busy.pop(job, None)
            self._failed(failure, job)
            self._source.serve()

        result.addCallbacks(ended, failed)

    def _succeeded(self, job: Job) -> None:
        if not self._plan.manual:
            job.item.done()
        self._over(job)

    # --- failing -----------------------------------------------------------------

    def _failed(self, failure: Failure, job: Job) -> None:
        """A handler has failed: try again, give it away, or end."""
        error = failure.value
        assert error is not None
        job.failures += 1
        plan = self._plan
        gone = self._core.draining(job.item) or self._source.closing or self._ended
        if isinstance(error, CancelledError) and gone:
            self._give_up(job)
            return
        self._log.failure(
            "The handler of group {group} failed at {item}",
            failure,
            group=self._core.group,
            item=job.item,
        )
        if gone:
            self._give_up(job)
        elif job.failures <= plan.retries:
            delay = plan.backoff.delay(job.failures, 0.5)
            self._waiting[job] = self._reactor.callLater(delay, self._retry, job)
        elif plan.on_error == SKIP:
            self._pass(job)
        elif self._producer is not None:
            self._post(job, error)
        else:
            self._stop(job, error)

    def _pass(self, job: Job) -> None:
        """It is done, though it failed."""
        job.item.done()
        self._over(job)

    def _retry(self, job: Job) -> None:
        del self._waiting[job]
        if self._core.draining(job.item):
            self._give_up(job)
        else:
            self._begin(job)
        self._source.serve()

    def _post(self, job: Job, error: BaseException) -> None:
        """Send a dead letter; it is done when that is stored."""
        assert self._producer is not None
        assert self._plan.letters is not None
        sent = [
            self._producer.send(self._plan.letters, one.value, one.key, one.headers)
            for one in letters(self._core.group, job.item, error)
        ]
        self._busy[job] = result = gatherResults(sent, consumeErrors=True)

        def stored(_: object) -> None:
            self._busy.pop(job, None)
            self._pass(job)
            self._source.serve()

        def failed(failure: Failure) -> None:
            self._busy.pop(job, None)
            inner: Any = getattr(failure.value, "subFailure", failure)
            if not self._ended:
                self._stop(job, inner.value)

        result.addCallbacks(stored, failed)

    def _stop(self, job: Job, error: BaseException) -> None:
        """Nothing goes on behind what cannot be handled."""
        job.gone = True
        self._core.give_back(job.item, self._source.seconds())
        self._over(job)
        self.end(error)

    def _give_up(self, job: Job) -> None:
        """Whoever reads the partition next has it again."""
        call = self._waiting.pop(job, None)
        if call is not None and call.active():
            call.cancel()
        job.let_go()
        self._over(job)

    def _over(self, job: Job) -> None:
        self._lanes.leave(job)


def _told_before(_: Failure) -> None:
    """What could not be stored was told by its own Deferred."""
