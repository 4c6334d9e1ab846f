"""When what moved: the moments at which each part of the traffic got an answer."""

from __future__ import annotations

import itertools
import threading
import time
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple


class Overrun(NamedTuple):
    """A call that took longer than it may: what it was, and seconds."""

    what: str
    took: float


class Beats:
    """
    Takes note of moments, from many threads, and finds the gaps between them.

    Args:
        clock: Seconds that never go back.

    Attributes:
        overruns: Calls that ended after their deadline.
        longest: The longest call of each kind, in seconds.
    """

    #: Seconds beyond its deadline in which a call must end, on a busy machine.
    GRACE = 3.0

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.now = clock
        self.overruns: list[Overrun] = []
        self.longest: dict[str, float] = {}
        self._lock = threading.Lock()
        self._moments: dict[str, list[float]] = defaultdict(list)

    def beat(self, *names: str) -> None:
        """Note that each of these has moved just now."""
        with self._lock:
            now = self.now()
            for name in names:
                self._moments[name].append(now)

    def took(self, what: str, since: float, deadline: float) -> None:
        """
        Note how long a call took.

        Args:
            what: Which kind of call.
            since: When it began.
            deadline: Seconds that it had.
        """
        seconds = self.now() - since
        with self._lock:
            self.longest[what] = max(seconds, self.longest.get(what, 0.0))
            if seconds > deadline + self.GRACE:
                self.overruns.append(Overrun(what, seconds))

    def gap(self, name: str, start: float, end: float) -> float:
        """
        Find the longest time without a beat.

        Args:
            name: Of what.
            start: From the last beat before this moment on.
            end: Up to this moment.
        """
        with self._lock:
            moments = self._moments[name]
            first = max(bisect_right(moments, start) - 1, 0)
            inside = list(moments[first : bisect_right(moments, end)])
        edges = [inside[0] if inside and inside[0] <= start else start, *inside, end]
        return max(after - before for before, after in itertools.pairwise(edges))

    def longest_gap(self, names: Iterable[str], start: float, end: float) -> float:
        """Find the longest gap of several, each by itself; 0 of none."""
        return max((self.gap(name, start, end) for name in names), default=0.0)

    def first(self, name: str, since: float) -> float | None:
        """Tell the first beat at or after a moment; None when there was none yet."""
        with self._lock:
            moments = self._moments[name]
            place = bisect_left(moments, since)
            return moments[place] if place < len(moments) else None
