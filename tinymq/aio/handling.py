"""Calling handlers with messages, on asyncio's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from inspect import isawaitable
from threading import get_ident
from typing import Any, Final, Protocol

from tinymq.client.core.handling import Plan, Work, call_in_thread
from tinymq.client.core.message import QueueMessage
from tinymq.errors import ClosedError

#: Seconds of plain handlers in one turn of the loop.
_SLICE_S: Final = 0.01

#: Takes a message, or a list; may be a coroutine function.
Handler = Callable[[Any], Awaitable[Any] | object]


class Source(Protocol):
    """Where messages come from."""

    async def next(self) -> QueueMessage | None:
        """Wait for a message."""

    def take(self) -> QueueMessage | None:
        """Take a message, if one is there."""

    def report(self, work: Work, error: Exception) -> None:
        """Tell people that a handler failed."""


class Run:
    """
    A handler at work.

    Args:
        handler: Takes a message, or a list of them.
        plan: How it is called.
        source: Where messages come from.
    """

    def __init__(self, handler: Handler, plan: Plan, source: Source) -> None:
        self._handler = handler
        self._plan = plan
        self._source = source
        self._loop = asyncio.get_running_loop()
        self._thread = get_ident()
        self._free = asyncio.Semaphore(plan.at_once)
        self._busy: dict[asyncio.Task[None], Work] = {}
        self._pool: ThreadPoolExecutor | None = None
        if plan.threads:
            self._pool = ThreadPoolExecutor(plan.threads, "tinymq-handler")

    async def go(self) -> None:
        """
        Handle messages, until there will be no more.

        Raises:
            TinyMQError: Why there will be no more.
        """
        try:
            await self._feed()
        finally:
            if self._pool is not None:
                self._pool.shutdown(wait=False)  # a thread ends when its handler does
            await self.stop(self.tasks)

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
        until = loop.time() + _SLICE_S
        while True:
            await self._free.acquire()
            try:
                work = await self._next()
            except ClosedError:
                return
            result = self._begin(work)
            if result is None:
                self._free.release()
            else:
                task = loop.create_task(self._handle(result, work))
                self._busy[task] = work
                task.add_done_callback(self._done)
                if self._plan.cancel_lost:
                    work.when_lost(task.cancel)
            if loop.time() >= until:
                await asyncio.sleep(0)  # plain handlers give way to others
                until = loop.time() + _SLICE_S

    async def _next(self) -> Work:
        message = await self._source.next()
        messages = [message]
        while message is not None and len(messages) < (self._plan.batch or 1):
            message = self._source.take()
            if message is not None:
                messages.append(message)
        return Work(messages, self._plan)

    def _begin(self, work: Work) -> Awaitable[Any] | None:
        try:
            result = self._called(work)
        except Exception as error:  # noqa: BLE001 - anything may come out of it
            self._failed(error, work)
            return None
        if isawaitable(result):
            return result
        work.ended()
        return None

    def _called(self, work: Work) -> Any:
        if self._pool is None:
            return self._handler(work.given)
        work.from_thread(self._in_loop)
        return self._loop.run_in_executor(self._pool, call_in_thread, self._handler, work)

    def _in_loop(self, call: Callable[[], None]) -> None:
        if get_ident() == self._thread:
            call()
        else:
            self._loop.call_soon_threadsafe(call)

    async def _handle(self, result: Awaitable[Any], work: Work) -> None:
        try:
            await result
        except asyncio.CancelledError:
            work.give_back()
            raise
        except Exception as error:  # noqa: BLE001 - anything may come out of it
            self._failed(error, work)
        else:
            work.ended()

    def _failed(self, error: Exception, work: Work) -> None:
        if work.failed(error):
            self._source.report(work, error)

    def _done(self, task: asyncio.Task[None]) -> None:
        work = self._busy.pop(task, None)
        if work is not None and task.cancelled():
            work.give_back()  # cancelled before it began
        self._free.release()
