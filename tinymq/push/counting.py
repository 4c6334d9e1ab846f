"""What was sent to an endpoint: how much, how fast, and how long its answers took."""

from __future__ import annotations

from collections import deque
from math import ceil, log
from typing import Any, Final

#: Seconds over which rates are taken.
_SPAN_S: Final = 10
#: How many answers the times are of.
_LATEST: Final = 200
#: Each bound of the times is so many times the one below.
_STEP: Final = 1.25
#: Most characters of what went wrong.
_MOST_ERROR: Final = 300


class Rate:
    """How often something happens in a second, as of the last ten."""

    def __init__(self) -> None:
        self._counts: deque[tuple[int, int]] = deque()

    def count(self, now: float) -> None:
        """
        Note that it happened.

        Args:
            now: The time.
        """
        second = int(now)
        if self._counts and self._counts[-1][0] == second:
            second, count = self._counts.pop()
            self._counts.append((second, count + 1))
        else:
            self._counts.append((second, 1))
        self._drop(now)

    def of(self, now: float) -> float:
        """
        Say how often.

        Args:
            now: The time.
        """
        self._drop(now)
        return sum(count for _, count in self._counts) / _SPAN_S

    def _drop(self, now: float) -> None:
        while self._counts and self._counts[0][0] <= int(now) - _SPAN_S:
            self._counts.popleft()


class Tally:
    """
    The figures of one endpoint on this broker.

    Attributes:
        in_flight: Requests that are open.
        delivered: Messages that it took.
        failed: Requests that failed.
        last_status: What it answered last, or None.
        last_ms: When.
        last_error: What went wrong last, or nothing.
        last_error_ms: When.
    """

    def __init__(self) -> None:
        self.in_flight = self.delivered = self.failed = 0
        self.last_status: int | None = None
        self.last_ms = 0
        self.last_error = ""
        self.last_error_ms: int | None = None
        self._delivering, self._failing = Rate(), Rate()
        self._times: deque[float] = deque(maxlen=_LATEST)

    def answered(self, status: int | None, seconds: float, wall_ms: int) -> None:
        """
        Note an answer.

        Args:
            status: Its status; None if there was none.
            seconds: How long it took.
            wall_ms: The wall clock.
        """
        if status is not None:
            self.last_status, self.last_ms = status, wall_ms
            self._times.append(seconds * 1000)

    def succeeded(self, now: float) -> None:
        """
        Note that it took a message.

        Args:
            now: The time.
        """
        self.delivered += 1
        self._delivering.count(now)

    def went_wrong(self, error: str, now: float, wall_ms: int) -> None:
        """
        Note a failure.

        Args:
            error: What it was.
            now: The time.
            wall_ms: The wall clock.
        """
        self.failed += 1
        self._failing.count(now)
        self.last_error, self.last_error_ms = error[:_MOST_ERROR], wall_ms

    def told(self, now: float) -> dict[str, Any]:
        """
        Tell the figures.

        Args:
            now: The time.
        """
        counts: dict[int, int] = {}
        for each in self._times:
            place = ceil(log(max(each, 1.0), _STEP))
            counts[place] = counts.get(place, 0) + 1
        return {
            "in_flight": self.in_flight,
            "delivered": self.delivered,
            "failed": self.failed,
            "delivered_s": self._delivering.of(now),
            "failed_s": self._failing.of(now),
            "last_status": self.last_status,
            "last_ms": self.last_ms,
            "last_error": self.last_error,
            "last_error_ms": self.last_error_ms,
            "times": [[round(_STEP**place, 1), count] for place, count in sorted(counts.items())],
        }
