"""What is done again and again, or little by little, until it is stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tinymq.broker.ports import Scheduler, Timer


class Clockwork:
    """
    Calls that come again after a while, and work that is cut into slices.

    Args:
        scheduler: Measures the while.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._timers: dict[object, Timer] = {}

    def every(self, seconds: float, call: Callable[[float], None]) -> None:
        """
        Begin with a call.

        Args:
            seconds: From the end of one to the next.
            call: Told how many seconds late it is. One that fails is called again.
        """
        due = self._scheduler.seconds() + seconds

        def fire() -> None:
            late = self._scheduler.seconds() - due
            self.every(seconds, call)
            call(late)

        self._timers[call] = self._scheduler.callLater(seconds, fire)

    def in_turns(self, steps: Iterator[object]) -> None:
        """
        Take one step now, and each other one in a turn of its own.

        Args:
            steps: The work; each is taken by asking for the next. One that fails
                is the last.
        """
        self._timers.pop(steps, None)
        if next(steps, steps) is not steps:
            self._timers[steps] = self._scheduler.callLater(0, self.in_turns, steps)

    def stop(self) -> None:
        """Call nothing any more."""
        for timer in self._timers.values():
            if timer.active():
                timer.cancel()
        self._timers.clear()
