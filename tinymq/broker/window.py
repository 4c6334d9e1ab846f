"""
A window on the data of a partition, through which its channels see what they give out.

What lies side by side is read once, in pieces, and kept for a moment: consumers
that share a batch, and messages that come again one by one, read no file again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from tinymq.broker.channel.runs import Run
from tinymq.broker.partition import Partition
from tinymq.wire.batch import BatchHeader, split
from tinymq.wire.frames import Bytes
from tinymq.wire.records import Opened, RecordBatch

#: Bytes read at a time, but at least one batch.
PIECE_BYTES: Final = 512 * 1024
#: Pieces that are kept.
_PIECES: Final = 3
#: Pieces that are fetched into memory at a time.
_MOST_WARMED: Final = 16
#: Batches whose columns are kept.
_OPENED: Final = 4

#: A batch as it is stored, and its header.
Stored = tuple[BatchHeader, memoryview]


class ColdPiece(Exception):
    """
    The disk would have to be waited for.

    Args:
        offset: Where the piece begins.
    """

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset


class _Piece(NamedTuple):
    """Batches that lie side by side, for all offsets from `start` to `end`."""

    start: int
    end: int
    batches: list[Stored]
    #: The offset behind each batch.
    ends: list[int]


class Window:
    """
    Reads a partition for its channels.

    Args:
        partition: The partition.
    """

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._pieces: list[_Piece] = []
        self._opened: OrderedDict[int, Opened] = OrderedDict()
        #: Messages below the start of the log that are there all the same, each as a batch.
        self.kept: Mapping[int, Stored] = {}
        #: Whether to raise `ColdPiece` instead of waiting for the disk,
        self._hasty = False
        #: but for the piece that begins here: what was fetched may be gone again.
        self._warm = -1

    @contextmanager
    def hasty(self, warm: int = -1) -> Iterator[None]:
        """
        Raise `ColdPiece` instead of waiting for the disk meanwhile.

        Args:
            warm: Where a piece begins that was fetched just now, which is waited for.
        """
        before = self._hasty, self._warm
        self._hasty, self._warm = True, warm
        try:
            yield
        finally:
            self._hasty, self._warm = before

    def let_go(self) -> None:
        """Keep nothing in memory."""
        self._pieces = []
        self._opened.clear()

    def end_of(self, offset: int) -> int:
        """
        Say how far one piece reaches.

        Args:
            offset: Where it begins; below the stable offset.

        Returns:
            The offset behind it.

        Raises:
            ColdPiece: In haste, the disk would have to be waited for.
        """
        return self._piece(offset).end

    def warmer(self, offset: int) -> Callable[[], None]:
        """
        Give a function that brings a piece into memory, in another thread.

        Args:
            offset: Where it begins.
        """
        return self._partition.log.warmer(offset, PIECE_BYTES)

    def warmers(self, runs: Sequence[Run], first: int) -> Callable[[], None]:
        """
        Give a function that brings into memory what some runs need.

        Args:
            runs: Sorted and disjoint.
            first: Where the first piece begins.
        """
        log = self._partition.log
        records = max(1, log.written_offset - log.start_offset)
        span = max(1, PIECE_BYTES * records // max(1, log.size_bytes))
        starts = [first]
        for start, end in runs:
            for each in range(max(start, first), end, span):
                if each >= starts[-1] + span and len(starts) < _MOST_WARMED:
                    starts.append(each)
        warmers = [self.warmer(each) for each in starts]

        def warm() -> None:
            for each in warmers:
                each()

        return warm

    def _piece(self, offset: int) -> _Piece:
        offset = max(offset, self._partition.log.start_offset)
        for piece in self._pieces:
            if piece.start <= offset < piece.end:
                return piece
        nowait = self._hasty and offset != self._warm
        chunk = self._partition.read(offset, PIECE_BYTES, nowait=nowait)
        if chunk is None:
            raise ColdPiece(offset)
        hides = self._partition.transactions.hides
        # What was aborted, or compacted away, is a gap to everybody here.
        batches = [each for each in split(chunk.data) if each[0].records and not hides(each[0])]
        ends = [header.next_offset for header, _ in batches]
        piece = _Piece(offset, max(chunk.next_offset, offset), batches, ends)
        self._pieces = [piece, *self._pieces[: _PIECES - 1]]
        return piece

    def batch_at(self, offset: int, end: int) -> Stored | None:
        """
        Find the batch that contains an offset, or else the next one.

        Args:
            offset: The offset.
            end: None is found that begins here or behind.
        """
        end = min(end, self._partition.stable_offset)
        start = self._partition.log.start_offset
        if offset < start and self.kept:
            first = min((each for each in self.kept if offset <= each < end), default=start)
            if first < start:
                return self.kept[first]
        while offset < end:
            piece = self._piece(offset)
            if piece.end <= offset:
                return None
            place = bisect_right(piece.ends, offset)
            if place < len(piece.ends):
                found = piece.batches[place]
                return found if found[0].base_offset < end else None
            offset = piece.end
        return None

    def over(self, runs: Sequence[Run]) -> Iterator[Stored]:
        """
        Yield the batches in which there is something of some runs.

        Args:
            runs: Sorted and disjoint.
        """
        behind = 0
        for start, end in runs:
            at = max(start, behind)
            while at < end:
                found = self.batch_at(at, end)
                if found is None:
                    break
                yield found
                at = behind = found[0].next_offset

    def opened(self, stored: Stored) -> Opened:
        """
        Open the columns of a batch.

        Args:
            stored: The batch.
        """
        base = stored[0].base_offset
        found = self._opened.get(base)
        if found is None:
            found = self._opened[base] = Opened(RecordBatch(stored[1], stored[0]))
            if len(self._opened) > _OPENED:
                self._opened.popitem(last=False)
        return found

    def collect(self, runs: Sequence[Run]) -> tuple[list[Bytes], list[Run]]:
        """
        Collect the messages of some runs.

        Args:
            runs: Sorted and disjoint.

        Returns:
            Batches, as they are stored when more than half of them is wanted,
            else with what is wanted alone; and what does not exist.
        """
        pieces: list[Bytes] = []
        missing: list[Run] = []
        at = 0
        behind = runs[0][0] if runs else 0
        for stored in self.over(runs):
            header = stored[0]
            while at and runs[at - 1][1] > header.base_offset:
                at -= 1
            wanted: list[Run] = []
            while at < len(runs) and runs[at][0] < header.next_offset:
                start, end = runs[at]
                if max(start, behind) < min(end, header.base_offset):
                    missing.append((max(start, behind), min(end, header.base_offset)))
                if end > header.base_offset:
                    first = max(start, header.base_offset)
                    wanted.append((first, min(end, header.next_offset)))
                at += 1
            behind = header.next_offset
            pieces += self._taken(stored, wanted, missing)
        for start, end in runs:
            if end > behind:
                missing.append((max(start, behind), end))
        return pieces, missing

    def _taken(self, stored: Stored, wanted: list[Run], missing: list[Run]) -> list[Bytes]:
        header, data = stored
        count = sum(end - start for start, end in wanted)
        whole = header.records == header.last_offset_delta + 1
        if whole and 2 * count > header.records:
            return [data]
        opened = self.opened(stored)
        offsets = opened.offsets
        places: list[int] = []
        for start, end in wanted:
            low, high = bisect_left(offsets, start), bisect_left(offsets, end)
            places += range(low, high)
            if high - low < end - start:
                there = {*offsets[low:high]}
                missing += ((each, each + 1) for each in range(start, end) if each not in there)
        if not places:
            return []
        return [data] if 2 * len(places) > header.records else opened.pick(places)
