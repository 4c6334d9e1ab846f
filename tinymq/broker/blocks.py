"""
When messages with a time to live of their own expire, in memory that goes by batches.

Of a batch only the time of its first message is known. When that comes, the batch is opened,
unless the message is alone in it. Short batches in a row share a place in the heap.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple, TypeAlias

from tinymq.broker.channel.runs import Runs

#: Messages of short batches that share a place.
TOGETHER: Final = 64
#: Batches that were opened and may soon be wanted again.
_OPENED: Final = 1000
#: What every channel has settled is looked for when there are so many more than the last time.
STALE: Final = 1000

#: When messages expire, and their offsets.
Lives: TypeAlias = list[tuple[int, int]]


class _Block(NamedTuple):
    """
    Batches in a row.

    Attributes:
        due: When their first message expires.
        base: The first offset.
        end: The offset behind the last.
        rows: Of each batch: when its first message expires, and the same two.
    """

    due: int
    base: int
    end: int
    rows: array[int]


class Blocks:
    """
    When messages of one partition expire.

    Args:
        read: Given the first offset of a batch and the one behind it, reads when each of its
            messages expires, the first one first.
    """

    def __init__(self, read: Callable[[int, int], Lives]) -> None:
        self._read = read
        self._heap: list[_Block] = []
        #: Short batches that the next one may join.
        self._open: _Block | None = None
        self._opened: OrderedDict[int, Lives] = OrderedDict()
        self._prune_at = STALE

    def __len__(self) -> int:
        return len(self._heap) + (self._open is not None)

    @property
    def next_due(self) -> int | None:
        """When the next message expires; None if none is known."""
        times = [each.due for each in (*self._heap[:1], self._open) if each is not None]
        return min(times, default=None)

    @property
    def many(self) -> bool:
        """Whether it is time to forget what is settled."""
        return len(self._heap) > self._prune_at

    def clear(self) -> None:
        """Know nothing any more."""
        self._heap.clear()
        self._opened.clear()
        self._open = None

    def prune(self, floor: int) -> None:
        """
        Forget what every channel has settled.

        Args:
            floor: All below it.
        """
        self._heap = [each for each in self._heap if each.end > floor]
        heapify(self._heap)
        self._prune_at = 2 * len(self._heap) + STALE

    def put(self, due: int, base: int, end: int) -> None:
        """
        Take a batch.

        Args:
            due: When its first message expires.
            base: Its first offset.
            end: The offset behind it.
        """
        before, row = self._open, (due, base, end)
        if before is not None and before.end == base and end - before.base <= TOGETHER:
            before.rows.extend(row)
            self._open = _Block(min(before.due, due), before.base, end, before.rows)
            return
        if before is not None:
            heappush(self._heap, before)
        self._open = _Block(due, base, end, array("q", row))

    def expire(self, now: int) -> Runs | None:
        """
        Take out what expires first.

        Args:
            now: The time.

        Returns:
            Some messages; None if there is nothing that has expired.

        Raises:
            ColdPiece: As `read` does; nothing was taken out.
        """
        if self._open is not None and self._open.due <= now:
            heappush(self._heap, self._open)
            self._open = None
        if not self._heap or self._heap[0].due > now:
            return None
        block = self._heap[0]
        over, rows, opened = Runs(), array("q"), dict[int, Lives]()
        for due, base, end in _triples(block.rows):
            if due > now:
                rows.extend((due, base, end))
            elif end - base == 1:
                over.add(base, end)
            else:
                left = self._part(base, end, now, over)
                if left:
                    rows.extend((left[0][0], base, end))
                    opened[base] = left
        heappop(self._heap)
        for base in opened:
            self._opened.pop(base, None)
        if rows:
            heappush(self._heap, _Block(min(rows[::3]), block.base, block.end, rows))
            self._remember(opened)
        return over

    def _part(self, base: int, end: int, now: int, over: Runs) -> Lives:
        """Tell apart what has expired of a batch; return the rest."""
        left: Lives = []
        for life in self._opened.get(base) or self._read(base, end):
            due, offset = life
            if due <= now:
                over.add(offset, offset + 1)
            else:
                left.append(life)
        return left

    def _remember(self, opened: dict[int, Lives]) -> None:
        self._opened.update(opened)
        while len(self._opened) > _OPENED:
            self._opened.popitem(last=False)


def _triples(rows: array[int]) -> Iterator[tuple[int, int, int]]:
    numbers = iter(rows)
    return zip(numbers, numbers, numbers, strict=True)
