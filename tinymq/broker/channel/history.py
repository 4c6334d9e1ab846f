"""
What a message has been through, and runs of messages that have been through the same.

Every unsettled message lies in exactly one place, and its history lies there
with it. So a history costs a place in memory for each run, not for each
message, and nothing at all for messages that were never given out.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from typing_extensions import override

from tinymq.broker.channel.runs import Run


class History(NamedTuple):
    """
    What happened to a message so far.

    Attributes:
        deliveries: How often it was given out; shown to people.
        failures: How often that failed; compared with the maximum.
        alone: It was lost together with others, and is given out alone until
            it is known whose fault that was.
    """

    deliveries: int
    failures: int
    alone: bool


#: Of a message that was never given out.
NEW: Final = History(0, 0, False)

#: First offset, the offset behind the last, and what they have been through.
Stretch: TypeAlias = tuple[int, int, History]


class Stretches:
    """
    Sorted, disjoint runs of offsets, each with a history.

    Attributes:
        count: How many offsets it holds.
        alone: How many of them are to be given out alone.
    """

    __slots__ = ("_ends", "_histories", "_starts", "alone", "count")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._histories: list[History] = []
        self.count = 0
        self.alone = 0

    def __bool__(self) -> bool:
        return self.count > 0

    def __iter__(self) -> Iterator[Stretch]:
        return zip(self._starts, self._ends, self._histories, strict=True)

    @override
    def __repr__(self) -> str:
        return f"<Stretches {list(self)}>"

    @property
    def first(self) -> int:
        """The lowest offset; only where there is one."""
        return self._starts[0]

    def at(self, offset: int) -> History | None:
        """
        Return the history of an offset, None if it is not here.

        Args:
            offset: Any offset.
        """
        place = bisect_right(self._starts, offset) - 1
        return self._histories[place] if place >= 0 and offset < self._ends[place] else None

    def put(self, start: int, end: int, history: History) -> None:
        """
        Add a run that is not here yet.

        Args:
            start: Its first offset.
            end: The offset behind it.
            history: What all of it has been through.
        """
        starts, ends, histories = self._starts, self._ends, self._histories
        self.count += end - start
        if history.alone:
            self.alone += end - start
        left = right = bisect_left(starts, start)
        if left and ends[left - 1] == start and histories[left - 1] == history:
            left -= 1
            start = starts[left]
        if right < len(starts) and starts[right] == end and histories[right] == history:
            end = ends[right]
            right += 1
        starts[left:right] = [start]
        ends[left:right] = [end]
        histories[left:right] = [history]

    def remove(self, start: int, end: int) -> list[Stretch]:
        """
        Remove what is here of a run.

        Args:
            start: Its first offset.
            end: The offset behind it.

        Returns:
            What was here, in order.
        """
        starts, ends, histories = self._starts, self._ends, self._histories
        left, right = bisect_right(ends, start), bisect_left(starts, end)
        if start >= end or left >= right:
            return []
        gone = list(self.within(start, end))
        kept: list[Stretch] = []
        if starts[left] < start:
            kept.append((starts[left], start, histories[left]))
        if ends[right - 1] > end:
            kept.append((end, ends[right - 1], histories[right - 1]))
        starts[left:right] = [first for first, _, _ in kept]
        ends[left:right] = [behind for _, behind, _ in kept]
        histories[left:right] = [history for _, _, history in kept]
        for first, behind, history in gone:
            self.count -= behind - first
            if history.alone:
                self.alone -= behind - first
        return gone

    def remove_all(self, runs: Sequence[Run]) -> list[int]:
        """
        Remove what is here of many runs, at the price of one where all else is long.

        Args:
            runs: In order.

        Returns:
            How many offsets of each were here.
        """
        if not runs:
            return []
        starts, ends, histories = self._starts, self._ends, self._histories
        left, right = bisect_right(ends, runs[0][0]), bisect_left(starts, runs[-1][1])
        part = Stretches()
        part._starts, part._ends = starts[left:right], ends[left:right]
        part._histories = histories[left:right]
        found = [sum(behind - first for first, behind, _ in part.remove(*run)) for run in runs]
        starts[left:right], ends[left:right] = part._starts, part._ends
        histories[left:right] = part._histories
        self.count += part.count  # it counted down from nothing
        self.alone += part.alone
        return found

    def within(self, start: int, end: int) -> Iterator[Stretch]:
        """
        Yield what is here of a run, in order.

        Args:
            start: First offset.
            end: Offset behind the last.
        """
        starts, ends = self._starts, self._ends
        for at in range(bisect_right(ends, start), bisect_left(starts, end)):
            yield max(start, starts[at]), min(end, ends[at]), self._histories[at]
