"""
Time that a test moves: Twisted's `Clock`, with a wall clock beside it.

What broker and clients schedule is told apart from what the test's own code
schedules. In a jump over days, the test's calls come at their exact time, while
the second-by-second work of broker and clients is done once for each stretch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from twisted.internet.base import DelayedCall
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import Clock
from typing_extensions import override
from zope.interface import implementer

#: The wall clock begins here, in milliseconds since the epoch: 15 June 2025, 15:06:40 UTC.
BEGIN_MS: Final = 1_750_000_000_000


class Time(Clock):
    """
    Monotonic and wall time, moved by hand.

    Attributes:
        insiders: The clocks of broker and clients.
    """

    def __init__(self) -> None:
        super().__init__()
        self.insiders: list[InsideClock] = []
        self._offset_ms = BEGIN_MS

    @property
    def wall_ms(self) -> int:
        """The wall clock in milliseconds since the epoch."""
        return self._offset_ms + round(self.seconds() * 1000)

    def set_wall(self, wall_ms: int) -> None:
        """
        Step the wall clock; monotonic time does not notice.

        Args:
            wall_ms: Milliseconds since the epoch.
        """
        self._offset_ms = wall_ms - round(self.seconds() * 1000)

    @override
    def advance(self, amount: float) -> None:
        """Refuse: links would stand still meanwhile; the broker's own `advance` moves both."""
        raise TypeError("move time with advance() or jump() of the broker, not of its clock")

    # --- for the broker ---------------------------------------------------------

    def next_due(self, *, outside: bool = False) -> float | None:
        """
        Tell when the next call is due, None when none is planned.

        Args:
            outside: Only look at calls of the test's own code.
        """
        calls = self.calls
        if outside:
            inside = {id(call) for each in self.insiders for call in each.getDelayedCalls()}
            calls = [call for call in calls if id(call) not in inside]
        return min((call.getTime() for call in calls), default=None)

    def move_to(self, moment: float) -> None:
        """
        Move on without running anything.

        Args:
            moment: The new time; one in the past changes nothing.
        """
        self.rightNow = max(self.rightNow, moment)

    def run_due(self) -> bool:
        """
        Run the calls that are due the longest, all of the same moment.

        Returns:
            Whether there were any.
        """
        first = self.next_due()
        if first is None or first > self.rightNow:
            return False
        due = [call for call in self.calls if call.getTime() == first]
        for call in due:
            if call.active() and call.getTime() == first:
                self._run(call)
        return True

    def _run(self, call: DelayedCall) -> None:
        self.calls.remove(call)
        call.called = 1
        call.func(*call.args, **call.kw)


@implementer(IReactorTime)
class InsideClock:
    """
    The clock of a broker or a client.

    Args:
        time: What gives it the time.
    """

    def __init__(self, time: Time) -> None:
        self._time = time
        self._calls: list[IDelayedCall] = []
        self._stopped = False
        time.insiders.append(self)

    def seconds(self) -> float:
        """Return the monotonic time."""
        return self._time.seconds()

    def callLater(  # noqa: N802 - Twisted's name
        self,
        delay: float,
        callable: Callable[..., object],  # noqa: A002 - Twisted's name
        *args: object,
        **kw: object,
    ) -> IDelayedCall:
        """Call something after a delay; nothing is called once the process ended."""
        call = self._time.callLater(delay, callable, *args, **kw)
        if self._stopped:
            call.cancel()  # of what hears later that its process has ended
        else:
            self._calls = [*self.getDelayedCalls(), call]
        return call

    def getDelayedCalls(self) -> Sequence[IDelayedCall]:  # noqa: N802 - Twisted's name
        """Return the calls to come."""
        return [call for call in self._calls if call.active()]

    def stop(self) -> None:
        """Take back every call, and those to come, as the end of a process does."""
        self._stopped = True
        for call in self.getDelayedCalls():
            call.cancel()
        self._calls.clear()
        if self in self._time.insiders:
            self._time.insiders.remove(self)
