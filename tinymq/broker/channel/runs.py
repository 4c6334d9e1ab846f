"""
Sets of offsets as sorted, disjoint runs, and short sets as bits.

A million offsets in a row cost as much as one, and so do a million that were
settled out of order once the holes between them are filled. A run is the pair
of its first offset and the offset behind its last.

A short set is a base and an integer whose bit ``n`` stands for ``base + n``:
what a lease covers, and what a consumer settles of it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from typing_extensions import override

#: First offset, and the offset behind the last.
Run: TypeAlias = tuple[int, int]


def bits_of(count: int) -> int:
    """Return the lowest bits set, as many as wanted."""
    return (1 << count) - 1


def lowest(bits: int) -> int:
    """
    Return the number of the lowest set bit.

    Args:
        bits: At least one is set.
    """
    return (bits & -bits).bit_length() - 1


def runs_in(base: int, bits: int) -> Iterator[Run]:
    """
    Yield the runs of a short set, in order.

    Args:
        base: The offset of bit 0.
        bits: A set bit for each offset.
    """
    while bits:
        skipped = (bits & -bits).bit_length() - 1
        bits >>= skipped
        length = (~bits & (bits + 1)).bit_length() - 1
        start = base + skipped
        base = start + length
        yield start, base
        bits >>= length


def offsets_in(base: int, bits: int) -> Iterable[int]:
    """
    Return the offsets of a short set, in order.

    Args:
        base: The offset of bit 0.
        bits: A set bit for each offset.
    """
    if bits and not bits & (bits - 1):
        return (base + bits.bit_length() - 1,)  # the most frequent by far
    runs = list(runs_in(base, bits))
    if len(runs) == 1:
        return range(*runs[0])
    return [offset for start, end in runs for offset in range(start, end)]


def cut(base: int, bits: int, start: int, end: int) -> int:
    """
    Return the bits of a short set whose offsets lie in a run.

    Args:
        base: The offset of bit 0.
        bits: A set bit for each offset.
        start: First offset of the run.
        end: Offset behind it.
    """
    low = max(0, start - base)
    high = min(end - base, bits.bit_length())
    return bits >> low << low & bits_of(high) if high > low else 0


class Runs:
    """
    A set of offsets.

    Args:
        runs: What it begins with, in any order.

    Attributes:
        count: How many offsets it holds.
    """

    __slots__ = ("_ends", "_starts", "count")

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self.count = 0
        for start, end in runs:
            self.add(start, end)

    def __bool__(self) -> bool:
        return self.count > 0

    def __iter__(self) -> Iterator[Run]:
        return zip(self._starts, self._ends, strict=True)

    def __contains__(self, offset: int) -> bool:
        at = bisect_right(self._starts, offset) - 1
        return at >= 0 and offset < self._ends[at]

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Runs) and (self._starts, self._ends) == (
            other._starts,
            other._ends,
        )

    __hash__ = None  # type: ignore[assignment]

    @override
    def __repr__(self) -> str:
        return f"<Runs {list(self)}>"

    @property
    def first(self) -> int:
        """The lowest offset; only of a set that is not empty."""
        return self._starts[0]

    def add(self, start: int, end: int) -> int:
        """
        Add a run.

        Args:
            start: Its first offset.
            end: The offset behind it.

        Returns:
            How many offsets were not there before.
        """
        if start >= end:
            return 0
        starts, ends = self._starts, self._ends
        # Runs that touch become one.
        left, right = bisect_left(ends, start), bisect_right(starts, end)
        had = 0
        if left < right:
            had = sum(ends[left:right]) - sum(starts[left:right])
            start, end = min(start, starts[left]), max(end, ends[right - 1])
        starts[left:right] = [start]
        ends[left:right] = [end]
        self.count += end - start - had
        return end - start - had

    def remove(self, start: int, end: int) -> int:
        """
        Remove a run.

        Args:
            start: Its first offset.
            end: The offset behind it.

        Returns:
            How many offsets were there.
        """
        starts, ends = self._starts, self._ends
        left, right = bisect_right(ends, start), bisect_left(starts, end)
        if start >= end or left >= right:
            return 0
        kept: list[Run] = []
        if starts[left] < start:
            kept.append((starts[left], start))
        if ends[right - 1] > end:
            kept.append((end, ends[right - 1]))
        gone = sum(ends[left:right]) - sum(starts[left:right]) - sum(b - a for a, b in kept)
        starts[left:right] = [a for a, _ in kept]
        ends[left:right] = [b for _, b in kept]
        self.count -= gone
        return gone

    def reach(self, end: int) -> int:
        """
        Return the offset behind the last that it holds before an offset.

        Args:
            end: Behind the first that it holds.
        """
        return min(end, self._ends[bisect_left(self._starts, end) - 1])

    def within(self, start: int, end: int) -> Iterator[Run]:
        """
        Yield what it holds of a run, in order.

        Args:
            start: First offset.
            end: Offset behind the last.
        """
        starts, ends = self._starts, self._ends
        for at in range(bisect_right(ends, start), bisect_left(starts, end)):
            yield max(start, starts[at]), min(end, ends[at])

    def missing(self, start: int, end: int) -> Iterator[Run]:
        """
        Yield what it does not hold of a run, in order.

        Args:
            start: First offset.
            end: Offset behind the last.
        """
        for first, behind in self.within(start, end):
            if start < first:
                yield start, first
            start = behind
        if start < end:
            yield start, end

    def cut(self, base: int, bits: int) -> int:
        """
        Return the bits of a short set whose offsets it holds.

        Args:
            base: The offset of bit 0.
            bits: A set bit for each offset.
        """
        found = 0
        for start, end in self.within(base, base + bits.bit_length()):
            found |= cut(base, bits, start, end)
        return found

    def intersect(self, other: Runs) -> Runs:
        """
        Return what both sets hold.

        Args:
            other: The other set.
        """
        small, large = sorted((self, other), key=lambda runs: len(runs._starts))  # noqa: SLF001
        return Runs(run for start, end in small for run in large.within(start, end))

    def copy(self) -> Runs:
        """Return a set that holds the same."""
        return Runs(self)
