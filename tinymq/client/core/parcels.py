"""What a DELIVER carries: offsets under leases, and the batches that the messages are in."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Final

from tinymq.errors import CorruptBatch
from tinymq.limits import Limits
from tinymq.wire.batch import CONTROL, HEADER_SIZE, checked_header, read_header
from tinymq.wire.frames import Bytes
from tinymq.wire.records import Record, RecordBatch

#: Longest lease, in offsets.
MOST_SPANNED: Final = 4096

#: Messages that lie side by side in a pack: the pack, the first place, and the place behind.
Span = tuple["Pack", int, int]


class Pack:
    """
    A batch with its columns open, so that nothing in it can be found damaged later.

    Args:
        batch: What came.

    Attributes:
        offsets: The offset of each record, rising.
        values: The value of each record.
    """

    __slots__ = ("_batch", "_columns", "first", "offsets", "values")

    def __init__(self, batch: RecordBatch) -> None:
        self.offsets: Sequence[int] = batch.offsets
        self.first = self.offsets[0]
        self.values = batch.values
        self._columns = batch.columns(self.offsets, self.values)

    def records(self, low: int, high: int) -> Iterator[Record]:
        """
        Make records as they are asked for.

        Args:
            low: Place of the first.
            high: The place behind the last.
        """
        return self._columns(low, high)

    def place(self, offset: int) -> int:
        """
        Return the place of an offset, or where it would be.

        Args:
            offset: Any offset.
        """
        if type(self.offsets) is range:
            return min(max(0, offset - self.first), len(self.offsets))
        return bisect_left(self.offsets, offset)


_first = attrgetter("first")


def runs_of(base: int, bits: int) -> Iterator[tuple[int, int]]:
    """
    Yield the offsets of a lease as runs: first offset, and the one behind.

    Args:
        base: The offset of bit 0.
        bits: A set bit for each offset.
    """
    while bits:
        skipped = (bits & -bits).bit_length() - 1
        bits >>= skipped
        length = (~bits & (bits + 1)).bit_length() - 1
        base += skipped + length
        yield base - length, base
        bits >>= length


def bits_of(row: Any, count: int) -> int:
    """
    Say what a row of DELIVER is about.

    Args:
        row: Which offsets, or None for all of `count`.
        count: How many.
    """
    if row is None:
        return (1 << min(count, MOST_SPANNED)) - 1
    return int.from_bytes(row, "little")


def bits_at(base: int, offsets: Sequence[int]) -> int:
    """
    Write offsets as bits.

    Args:
        base: The offset of bit 0.
        offsets: In any order, none of them twice, at least one.
    """
    low = min(offsets)
    if max(offsets) - low + 1 == len(offsets):
        return ((1 << len(offsets)) - 1) << low - base
    found = 0
    for offset in offsets:
        found |= 1 << offset - base
    return found


def spans_of(packs: Sequence[Pack], base: int, bits: int) -> tuple[list[Span], int]:
    """
    Find the messages of a lease.

    Args:
        packs: What came, in the order of offsets.
        base: The offset of bit 0.
        bits: Which offsets.

    Returns:
        Where they are, in the order of offsets, and the bits of those.
    """
    spans: list[Span] = []
    found = 0
    for start, end in runs_of(base, bits):
        at = start
        for number in range(max(0, bisect_right(packs, start, key=_first) - 1), len(packs)):
            pack = packs[number]
            if pack.first >= end:
                break
            low, high = pack.place(at), pack.place(end)
            if low < high:
                spans.append((pack, low, high))
                at = pack.offsets[high - 1] + 1
                first = pack.offsets[low]
                if at - first == high - low:
                    found |= (1 << high - low) - 1 << first - base
                else:
                    found |= bits_at(base, pack.offsets[low:high])
    return spans, found


def packs_of(payload: Bytes, limits: Limits) -> tuple[list[Pack], CorruptBatch | None]:
    """
    Open the batches of a DELIVER.

    Args:
        payload: Whole batches.
        limits: Bound what a batch may inflate to.

    Returns:
        The batches, in the order of offsets, and what was wrong with some of them.
    """
    packs: list[Pack] = []
    wrong: CorruptBatch | None = None
    view, start, size = memoryview(payload), 0, len(payload)
    while size - start >= HEADER_SIZE:
        end = start + read_header(view, start).size
        if end > size or end - start < HEADER_SIZE:
            wrong = CorruptBatch("a delivered batch has fewer bytes than it says")
            break
        piece, start = view[start:end], end
        try:
            header = checked_header(piece)
            if header.attributes & CONTROL or not header.records:
                continue
            packs.append(Pack(RecordBatch(piece, header, limits.inflated)))
        except CorruptBatch as error:
            wrong = error
    packs.sort(key=_first)
    return packs, wrong


def values_in(spans: Iterable[Span]) -> list[bytes | None]:
    """
    Return the values of messages.

    Args:
        spans: Where they are.
    """
    found: list[bytes | None] = []
    for pack, low, high in spans:
        found += pack.values[low:high]
    return found
