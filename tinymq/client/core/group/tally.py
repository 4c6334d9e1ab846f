"""
What of one partition was handed out, and what of that is done.

Records are done in any order; a position is one number. So each batch in hand
has a *slip*, which counts from its start how far all is done, and keeps the few
that are done ahead of that. The floor lies where the first slip stands. Offsets
that no record has are passed with the batch before them.
"""

from __future__ import annotations

from bisect import bisect
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tinymq.client.core.starts import Mark

if TYPE_CHECKING:
    from tinymq.client.core.delivered import ConsumerBatch


class Slip:
    """
    One batch in hand.

    Args:
        tally: Of its partition.
        batch: The batch.

    Attributes:
        batch: The batch.
        handed: How many of its records were handed out, from its start.
        place: So many of them are done, without a gap, from its start.
        count: How many records it has.
        end: The position behind it.
    """

    __slots__ = (
        "_ahead",
        "_let_go",
        "_offsets",
        "batch",
        "count",
        "end",
        "handed",
        "place",
        "tally",
    )

    def __init__(self, tally: Tally, batch: ConsumerBatch) -> None:
        self.tally = tally
        self.batch = batch
        self.count = len(batch)
        self.end = Mark(batch.next_offset, batch.leader_epoch)
        self.handed = 0
        self.place = 0
        self._ahead: set[int] = set()
        self._let_go: set[int] = set()
        self._offsets: Sequence[int] | None = None

    @property
    def offsets(self) -> Sequence[int]:
        """The offset of each record."""
        if self._offsets is None:
            self._offsets = self.batch.offsets
        return self._offsets

    def cut(self) -> Mark:
        """Keep only what was handed out, and say where to read on."""
        if self.handed < self.count:
            epoch = self.batch.leader_epoch if self.handed else -1
            self.end = Mark(self.offsets[self.handed], epoch)
            self.count = self.handed
        return self.end

    @property
    def open(self) -> int:
        """How many records are handed out, not done, and still to be waited for."""
        return self.handed - self.place - len(self._ahead) - len(self._let_go)

    @property
    def refused(self) -> bool:
        """Whether there are records that will not be done."""
        return bool(self._let_go)

    def let_go(self, index: int) -> None:
        """
        Note that a record will not be done: whoever reads the partition next has it again.

        Args:
            index: Its place in the batch.
        """
        if not self.is_done(index):
            self._let_go.add(index)
            self._tell()

    def let_all_go(self, first: int) -> None:
        """
        Note the same of all records from one on.

        Args:
            first: Its place in the batch.
        """
        self._let_go.update(one for one in range(first, self.count) if not self.is_done(one))
        self._tell()

    def _tell(self) -> None:
        watch = self.tally.watch
        if watch is not None:
            watch(self)

    def is_done(self, index: int) -> bool:
        """
        Tell whether a record is done.

        Args:
            index: Its place in the batch.
        """
        return index < self.place or index in self._ahead

    def done(self, index: int) -> None:
        """
        Note that a record is done.

        Args:
            index: Its place in the batch.
        """
        place = self.place
        if index == place:
            place += 1
            ahead = self._ahead
            while place in ahead:
                ahead.discard(place)
                place += 1
            self.place = place
        elif index > place:
            self._ahead.add(index)
        else:
            return
        if self._let_go:
            self._let_go.discard(index)
        watch = self.tally.watch
        if watch is not None:
            watch(self)

    def all_done(self, first: int = 0) -> None:
        """
        Note that all its records are done.

        Args:
            first: Those before this one are not meant.
        """
        if first > self.place:
            self._ahead.update(range(first, self.count))
        elif self.place < self.count:
            self.place = self.count
            self._ahead.clear()
        self._let_go.clear()
        watch = self.tally.watch
        if watch is not None:
            watch(self)


class Tally:
    """
    The slips of one partition, in the order of its offsets.

    Args:
        start: Where it begins, or None while that is not known as an offset.

    Attributes:
        base: Where the first slip begins; all before is done.
        start: Where what is not committed begins: an aborted transaction is handed out again
            from here, whatever of it was called done.
        watch: Called with a slip of which something more is done, or None.
        alive: Whether it still counts.
    """

    __slots__ = ("_slips", "alive", "base", "start", "watch")

    def __init__(self, start: Mark | None = None) -> None:
        self.base = self.start = start
        self.watch: Callable[[Slip], None] | None = None
        self.alive = True
        self._slips: deque[Slip] = deque()

    def __len__(self) -> int:
        return len(self._slips)

    def add(self, batch: ConsumerBatch) -> Slip:
        """
        Note that a batch is in hand.

        Args:
            batch: The batch, behind all those before.
        """
        self._fold()
        slip = Slip(self, batch)
        if self.base is None:
            self.base = Mark(batch.base_offset if slip.count else batch.next_offset)
            self.start = self.base
        self._slips.append(slip)
        return slip

    @property
    def end(self) -> int:
        """The offset behind what was handed out; -1 if that is not known."""
        if self._slips:
            return self._slips[-1].end.offset
        return -1 if self.base is None else self.base.offset

    @property
    def floor(self) -> Mark | None:
        """Where all before is done, or None while nothing is known."""
        self._fold()
        if self._slips:
            first = self._slips[0]
            if first.place:
                return Mark(first.offsets[first.place], first.batch.leader_epoch)
        return self.base

    @property
    def open(self) -> int:
        """How many records are handed out and not done."""
        return sum(slip.open for slip in self._slips)

    @property
    def refused(self) -> bool:
        """Whether there are records that will not be done."""
        return any(slip.refused for slip in self._slips)

    def done_to(self, offset: int) -> None:
        """
        Note that all that was handed out below an offset is done.

        Args:
            offset: The offset.
        """
        for slip in tuple(self._slips):
            if slip.handed == slip.count and slip.end.offset <= offset:
                slip.all_done()
            else:
                for index in range(slip.place, min(slip.handed, bisect(slip.offsets, offset - 1))):
                    slip.done(index)

    def end_here(self) -> None:
        """Count no more."""
        self.alive = False
        self.watch = None

    def _fold(self) -> None:
        slips = self._slips
        while slips and slips[0].place == slips[0].count:
            self.base = slips.popleft().end
