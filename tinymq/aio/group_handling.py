"""Calling handlers with what a group consumer hands out, on asyncio's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from inspect import isawaitable
from typing import Any, Final, Protocol

from tinymq.aio.producer import Producer
from tinymq.client.core.group.consumer import GroupCore
from tinymq.client.core.group.working import SKIP, GroupPlan, Item, Job, Lanes, letters
from tinymq.errors import ClosedError

#: Seconds of plain handlers in one turn of the loop.
_SLICE_S: Final = 0.01

#: Takes a message, or a batch; may be a coroutine function.
Handler = Callable[[Any], Awaitable[Any] | object]


class Source(Protocol):
    """Where messages come from."""

    def poll(self, batches: bool) -> Item | None:
        """Take a message or a batch, if one is there and nobody else waits for it."""

    async def take(self, batches: bool) -> Item | None:
        """Wait for a message or a batch."""

    def report(self, item: Item, error: BaseException) -> None:
        """Tell people that a handler failed."""


class GroupRun:
    """
    A handler at work.

    Args:
        handler: Takes a message, or a batch.
        plan: How it is called.
        source: Where messages come from.
        rooms: Whose messages they are, and what sends dead letters.
    """

    def __init__(
        self,
        handler: Handler,
        plan: GroupPlan,
        source: Source,
        rooms: tuple[GroupCore, Producer | None],
    ) -> None:
        self._handler = handler
        self._plan = plan
        self._source = source
        self._core, self._producer = rooms
        self._loop = asyncio.get_running_loop()
        self._free = asyncio.Semaphore(plan.at_once)
        self._room = asyncio.Event()
        self._lanes = Lanes(plan.at_once)
        self._busy: dict[asyncio.Task[None], Job] = {}
        self._failure: asyncio.Future[BaseException] = self._loop.create_future()
        self._pool: ThreadPoolExecutor | None = None
        if plan.threads:
            self._pool = ThreadPoolExecutor(plan.threads, "tinymq-handler")

    async def go(self) -> None:
        """
        Handle messages, until there will be no more.

        Raises:
            Exception: What a handler raised.
            TinyMQError: Why there will be no more.
        """
        feeding = self._loop.create_task(self._feed())
        try:
            await asyncio.wait((feeding, self._failure), return_when=asyncio.FIRST_COMPLETED)
            if self._failure.done():
                raise self._failure.result()
            await feeding
        finally:
            feeding.cancel()
            jobs = [*self._busy.values(), *self._lanes.drop()]
            if self._pool is not None:
                self._pool.shutdown(wait=False)  # a thread ends when its handler does
            await self.stop([*self.tasks, feeding])
            now = self._loop.time()
            for job in jobs:
                self._core.give_back(job.item, now)

    @property
    def is_mine(self) -> bool:
        """Whether this is the task of one of its handlers."""
        return asyncio.current_task() in self._busy

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """What is being handled, but for the task that asks."""
        return [task for task in self._busy if task is not asyncio.current_task()]

    @staticmethod
    async def stop(tasks: list[asyncio.Task[None]]) -> None:
        """
        Cancel what is being handled, and wait until it has ended.

        Args:
            tasks: What is being handled.
        """
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _feed(self) -> None:
        loop = self._loop
        plain = self._plan.at_once == 1 and self._pool is None
        until = loop.time() + _SLICE_S
        while True:
            await self._free.acquire()
            try:
                job = await self._next()
            except ClosedError:
                for waiting in self._lanes.drop():
                    waiting.let_go()
                if self._busy:
                    await asyncio.wait(self._busy)
                return
            if job is None:
                self._free.release()  # it waits for another one of its key
            elif plain:
                self._quick(job)
            else:
                self._start(job, self._handle(job))
            if loop.time() >= until:
                await asyncio.sleep(0)  # plain handlers give way to others
                until = loop.time() + _SLICE_S

    async def _next(self) -> Job | None:
        """Take what may begin now."""
        lanes = self._lanes
        while True:
            job = lanes.next()
            if job is not None:
                return job
            if lanes.full:
                self._room.clear()
                await self._room.wait()
                continue
            item = self._source.poll(self._plan.batches)
            if item is None and self._plan.at_once == 1:
                item = await self._source.take(self._plan.batches)
            elif item is None:
                item = await self._first()
            if item is None:
                continue
            job = Job(item)
            return job if lanes.enter(job) else None

    async def _first(self) -> Item | None:
        """Wait for a message, or for one that waited for its key."""
        self._room.clear()
        taking = self._loop.create_task(self._source.take(self._plan.batches))
        waking = self._loop.create_task(self._room.wait())
        try:
            await asyncio.wait((taking, waking), return_when=asyncio.FIRST_COMPLETED)
        finally:
            waking.cancel()
            if not taking.done():
                taking.cancel()
        await asyncio.gather(waking, return_exceptions=True)
        try:
            return await taking
        except asyncio.CancelledError:
            return None

    def _quick(self, job: Job) -> None:
        """One at a time: a plain function costs no more than its call."""
        try:
            result = self._handler(job.item)
        except Exception as error:  # noqa: BLE001 - anything may come out of it
            self._start(job, self._handle(job, error))
            return
        if isawaitable(result):
            self._start(job, self._handle(job, result))
            return
        if not self._plan.manual:
            job.item.done()
        self._lanes.leave(job)
        self._free.release()

    def _start(self, job: Job, handling: Any) -> None:
        task = self._loop.create_task(handling)
        self._busy[task] = job
        task.add_done_callback(self._ended)

    async def _handle(self, job: Job, begun: Any = None) -> None:
        """Handle a message, again and again, until something has become of it."""
        plan = self._plan
        while True:
            try:
                if isinstance(begun, Exception):
                    raise begun  # noqa: TRY301 - it came from the handler
                await (self._call(job) if begun is None else begun)
            except asyncio.CancelledError:
                job.let_go()
                raise
            except Exception as error:  # noqa: BLE001 - anything may come out of it
                job.failures += 1
                self._source.report(job.item, error)
                if self._core.draining(job.item):
                    job.let_go()
                    return
                if job.failures > plan.retries:
                    await self._fail(job, error)
                    return
            else:
                if not plan.manual:
                    job.item.done()
                return
            begun = None
            await asyncio.sleep(plan.backoff.delay(job.failures, 0.5))
            if self._core.draining(job.item):
                job.let_go()
                return

    async def _call(self, job: Job) -> None:
        if self._pool is not None:
            await self._loop.run_in_executor(self._pool, self._handler, job.item)
            return
        result = self._handler(job.item)
        if isawaitable(result):
            await result

    async def _fail(self, job: Job, error: Exception) -> None:
        if self._plan.on_error == SKIP:
            job.item.done()
            return
        if self._producer is not None:
            try:
                await self._post(job, error)
            except Exception as unsent:  # noqa: BLE001 - of the producer
                error = unsent
            else:
                job.item.done()
                return
        job.gone = True
        self._core.give_back(job.item, self._loop.time())
        if not self._failure.done():
            self._failure.set_result(error)

    async def _post(self, job: Job, error: Exception) -> None:
        """Send a dead letter."""
        assert self._producer is not None
        assert self._plan.letters is not None
        for one in letters(self._core.group, job.item, error):
            await self._producer.send(self._plan.letters, one.value, one.key, one.headers)

    def _ended(self, task: asyncio.Task[None]) -> None:
        job = self._busy.pop(task)
        if task.cancelled():
            job.let_go()
        self._lanes.leave(job)
        self._room.set()
        self._free.release()
