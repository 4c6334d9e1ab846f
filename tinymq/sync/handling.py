"""Calling handlers with messages, in threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Condition, Semaphore, get_ident
from typing import Any, Protocol

from tinymq.client.core.handling import Plan, Work, call_in_thread
from tinymq.client.core.message import QueueMessage
from tinymq.errors import ClosedError, TinyMQError
from tinymq.sync.loop import Loop

#: Takes a message, or a list of them.
Handler = Callable[[Any], object]


class Source(Protocol):
    """Where messages come from."""

    def next(self, timeout: float | None = None) -> QueueMessage | None:
        """Wait for a message."""

    def report(self, work: Work, error: Exception) -> None:
        """Tell people that a handler failed."""


class Run:
    """
    A handler at work.

    Args:
        handler: Takes a message, or a list of them.
        plan: How it is called.
        source: Where messages come from.
        loop: The client's, whose lock is held while messages are settled.
    """

    def __init__(self, handler: Handler, plan: Plan, source: Source, loop: Loop) -> None:
        self._handler = handler
        self._plan = plan
        self._source = source
        self._loop = loop
        #: What is handled, and by which thread; 0 before one has begun.
        self._busy: dict[Work, int] = {}
        self._rest = Condition()

    def go(self) -> None:
        """
        Handle messages, until there will be no more, and the last handler has ended.

        Raises:
            TinyMQError: Why there will be no more.
        """
        free = Semaphore(self._plan.at_once)
        with ThreadPoolExecutor(self._plan.at_once, "tinymq-handler") as pool:
            while True:
                free.acquire()
                try:
                    work = self._next()
                except ClosedError:
                    return
                with self._rest:
                    self._busy[work] = 0
                pool.submit(self._handle, work, free)

    def wait(self, seconds: float) -> None:
        """
        Wait until nobody else handles anything.

        Args:
            seconds: For so long at most.
        """
        with self._rest:
            self._rest.wait_for(lambda: {*self._busy.values()} <= {get_ident()}, seconds)

    def _next(self) -> Work:
        message = self._source.next()
        messages = [message]
        while message is not None and len(messages) < (self._plan.batch or 1):
            try:
                message = self._source.next(0)
            except TinyMQError:
                break  # what was taken is handled all the same
            if message is not None:
                messages.append(message)
        return Work(messages, self._plan)

    def _handle(self, work: Work, free: Semaphore) -> None:
        with self._rest:
            self._busy[work] = get_ident()
        try:
            call_in_thread(self._handler, work)
        except Exception as error:  # noqa: BLE001 - anything may come out of it
            with self._loop.lock:
                if work.failed(error):
                    self._source.report(work, error)
        else:
            with self._loop.lock:
                work.ended()
        finally:
            free.release()
            with self._rest:
                del self._busy[work]
                self._rest.notify_all()
