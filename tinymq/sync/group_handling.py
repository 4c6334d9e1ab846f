"""Calling handlers with what a group consumer hands out, in threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from inspect import iscoroutine
from threading import Condition, Event, get_ident
from typing import Any, Protocol

from tinymq.client.core.group.consumer import GroupCore
from tinymq.client.core.group.working import SKIP, GroupPlan, Item, Job, Lanes, letters
from tinymq.errors import ClosedError, UsageError
from tinymq.sync.loop import Loop
from tinymq.sync.producer import Producer

#: Takes a message, or a batch.
Handler = Callable[[Any], object]


class Source(Protocol):
    """Where messages come from."""

    def take(self, batches: bool, free: Callable[[], bool]) -> Item | None:
        """Wait for a message or a batch, or until something else may be done."""

    def wake(self) -> None:
        """Let `take` look whether something else may be done."""

    def report(self, item: Item, error: BaseException) -> None:
        """Tell people that a handler failed."""


class GroupRun:
    """
    A handler at work.

    Args:
        handler: Takes a message, or a batch.
        plan: How it is called.
        source: Where messages come from.
        rooms: The client's loop, whose messages they are, and what sends dead letters.
    """

    def __init__(
        self,
        handler: Handler,
        plan: GroupPlan,
        source: Source,
        rooms: tuple[Loop, GroupCore, Producer | None],
    ) -> None:
        self._handler = handler
        self._plan = plan
        self._source = source
        self._loop, self._core, self._producer = rooms
        self._lanes = Lanes(plan.at_once)
        #: What is handled, and by which thread; 0 before one has begun.
        self._busy: dict[Job, int] = {}
        self._rest = Condition(self._loop.lock)
        self._failure: BaseException | None = None
        self._stopped = Event()

    def go(self) -> None:
        """
        Handle messages, until there will be no more, and the last handler has ended.

        Raises:
            Exception: What a handler raised.
            TinyMQError: Why there will be no more.
        """
        with ThreadPoolExecutor(self._plan.at_once, "tinymq-handler") as pool:
            try:
                while self._failure is None:
                    job = self._next()
                    if job is not None:
                        pool.submit(self._work, job)
            except ClosedError:
                pass
            finally:
                with self._loop.lock:
                    for job in self._lanes.drop():
                        self._core.give_back(job.item, self._loop.now())
                self._stopped.set()
        if self._failure is not None:
            raise self._failure

    @property
    def is_mine(self) -> bool:
        """Whether this is the thread of one of its handlers."""
        return get_ident() in self._busy.values()

    def halt(self) -> None:
        """Try nothing again: the consumer is about to end."""
        self._stopped.set()

    def _next(self) -> Job | None:
        """Take what may begin now."""
        with self._rest:
            while len(self._busy) >= self._plan.at_once and self._failure is None:
                self._rest.wait()
            job = self._lanes.next()
            if job is not None:
                self._busy[job] = 0
                return job
            full = self._lanes.full
            if full:
                self._rest.wait()
                return None
        item = self._source.take(self._plan.batches, self._free)
        if item is None:
            return None
        with self._rest:
            job = Job(item)
            if not self._lanes.enter(job):
                return None
            self._busy[job] = 0
            return job

    def _free(self) -> bool:
        """Whether there is something else to do than to wait for messages."""
        return self._lanes.any_ready or self._failure is not None

    def _work(self, job: Job) -> None:
        with self._rest:
            self._busy[job] = get_ident()
        try:
            self._handle(job)
        finally:
            with self._rest:
                del self._busy[job]
                self._lanes.leave(job)
                self._rest.notify_all()
            self._source.wake()

    def _handle(self, job: Job) -> None:
        """Handle a message, again and again, until something has become of it."""
        plan = self._plan
        while True:
            try:
                self._call(job)
            except Exception as error:  # noqa: BLE001 - anything may come out of it
                job.failures += 1
                self._source.report(job.item, error)
                if not self._again(job, error):
                    return
            else:
                if not plan.manual:
                    job.item.done()
                return

    def _call(self, job: Job) -> None:
        result = self._handler(job.item)
        if iscoroutine(result):
            result.close()
            raise UsageError("a coroutine function is not for threads")

    def _again(self, job: Job, error: Exception) -> bool:
        """Wait before another attempt; False if something else becomes of it."""
        plan = self._plan
        if job.failures <= plan.retries and not self._draining(job):
            self._stopped.wait(plan.backoff.delay(job.failures, 0.5))
            if not self._stopped.is_set() and not self._draining(job):
                return True
        if job.failures <= plan.retries or self._draining(job):
            job.let_go()
        elif plan.on_error == SKIP:
            job.item.done()
        else:
            self._fail(job, error)
        return False

    def _draining(self, job: Job) -> bool:
        with self._loop.lock:
            return self._core.draining(job.item)

    def _fail(self, job: Job, error: Exception) -> None:
        if self._producer is not None:
            try:
                self._post(self._producer, job, error)
            except Exception as unsent:  # noqa: BLE001 - of the producer
                error = unsent
            else:
                job.item.done()
                return
        with self._loop.lock:
            job.gone = True
            self._core.give_back(job.item, self._loop.now())
            self._failure = self._failure or error
        self._stopped.set()

    def _post(self, producer: Producer, job: Job, error: Exception) -> None:
        """Send a dead letter."""
        assert self._plan.letters is not None
        for one in letters(self._core.group, job.item, error):
            producer.send(self._plan.letters, one.value, one.key, one.headers)
