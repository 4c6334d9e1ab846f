"""Long work in short pieces, between which the reactor has its turns."""

from __future__ import annotations

from typing import Final

from twisted.internet.defer import Deferred

from tinymq.broker.ports import Scheduler

#: Seconds of work before others have their turn.
TURN_SECONDS: Final = 0.004


class Turns:
    """
    Says when a piece of work has taken long enough.

    Args:
        scheduler: Gives the time, and calls in later turns.
        length: Seconds that a piece may take; by default `TURN_SECONDS`.
    """

    def __init__(self, scheduler: Scheduler, length: float | None = None) -> None:
        self._scheduler = scheduler
        self._length = TURN_SECONDS if length is None else length
        self._until = scheduler.seconds() + self._length

    @property
    def over(self) -> bool:
        """Whether it is time to wait for `next`."""
        return self._scheduler.seconds() > self._until

    async def next(self) -> None:
        """Let others have their turn."""
        await later(self._scheduler)
        self.begin()

    def begin(self) -> None:
        """Count the time of a piece from now on."""
        self._until = self._scheduler.seconds() + self._length


def later(scheduler: Scheduler, seconds: float = 0.0) -> Deferred[None]:
    """
    Wait for a later turn of the reactor.

    Args:
        scheduler: Calls then.
        seconds: How much later at least.

    Returns:
        A Deferred that ends with None; it never fails.
    """
    waiting: Deferred[None] = Deferred()
    scheduler.callLater(seconds, waiting.callback, None)
    return waiting
