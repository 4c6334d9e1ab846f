"""Calls that wait for something, in the order in which they came; and what tells them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from tinymq.errors import TinyMQError

T = TypeVar("T")


class Waiter(Generic[T]):
    """
    One call that waits.

    Attributes:
        deferred: What it returned.
        since: When it began to wait.
        most: How many things it waits for at most, or None.
        timer: Ends it, or looks after it.
    """

    __slots__ = ("deferred", "most", "since", "timer")

    def __init__(self, deferred: Deferred[T | None], since: float, most: int | None) -> None:
        self.deferred = deferred
        self.since = since
        self.most = most
        self.timer: IDelayedCall | None = None


class Line(Generic[T]):
    """
    The calls that wait, first come, first served.

    Args:
        reactor: The clock.
    """

    def __init__(self, reactor: IReactorTime) -> None:
        self._reactor = reactor
        self._waiters: deque[Waiter[T]] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiters)

    @property
    def wanted(self) -> int | None:
        """How many things the first waits for at most, or None."""
        return self._waiters[0].most

    def join(self, timeout: float | None, most: int | None = None) -> Waiter[T]:
        """
        Let one more call wait; it ends with None after the time, and when it is cancelled.

        Args:
            timeout: Seconds; None waits for ever.
            most: How many things it waits for at most.
        """
        now = self._reactor.seconds()
        waiter: Waiter[T] = Waiter(Deferred(self._cancelled), now, most)
        self._waiters.append(waiter)
        if timeout is not None:
            waiter.timer = self._reactor.callLater(max(0.0, timeout), self.serve, None, waiter)
        return waiter

    def serve(self, value: T | None, waiter: Waiter[T] | None = None) -> None:
        """
        End a call well.

        Args:
            value: What it waited for.
            waiter: Which; the first by default.
        """
        self._leave(waiter).callback(value)

    def fail(self, error: TinyMQError, waiter: Waiter[T] | None = None) -> None:
        """
        End a call with an error.

        Args:
            error: The error.
            waiter: Which; the first by default.
        """
        self._leave(waiter).errback(error)

    def _leave(self, waiter: Waiter[T] | None) -> Deferred[T | None]:
        found = self._waiters[0] if waiter is None else waiter
        self._waiters.remove(found)
        if found.timer is not None and found.timer.active():
            found.timer.cancel()
        return found.deferred

    def _cancelled(self, deferred: Deferred[T | None]) -> None:
        for waiter in self._waiters:
            if waiter.deferred is deferred:
                self._leave(waiter)
                return


def fire(waiting: Deferred[None]) -> None:
    """
    Let a Deferred end with None, unless it was cancelled.

    Args:
        waiting: The Deferred.
    """
    if not waiting.called:
        waiting.callback(None)


def teller(waiting: Deferred[None]) -> Callable[[TinyMQError | None], None]:
    """
    Make what ends a Deferred with None or an error, unless it was cancelled.

    Args:
        waiting: The Deferred.
    """

    def told(error: TinyMQError | None) -> None:
        if waiting.called:
            return
        if error is None:
            waiting.callback(None)
        else:
            waiting.errback(error)

    return told


def pass_to(waiting: Deferred[None]) -> Callable[[None], None]:
    """
    Make a callback that lets another Deferred end with None.

    Args:
        waiting: The Deferred.
    """

    def passed(_: None) -> None:
        fire(waiting)

    return passed
