"""What a DELIVER carries: offsets under leases, and their records."""

from __future__ import annotations

from typing import Any, Final

from tinymq.errors import CorruptBatch
from tinymq.limits import Limits
from tinymq.wire.batch import CONTROL, HEADER_SIZE, checked_header, read_header
from tinymq.wire.frames import Bytes
from tinymq.wire.records import Record, RecordBatch

#: Longest lease, in offsets.
MOST_SPANNED: Final = 4096


def offsets_of(base: int, bits: Any, count: int) -> list[tuple[int, int]]:
    """
    List what a row of DELIVER is about.

    Args:
        base: The offset of bit 0.
        bits: Which offsets, or None for all of `count`.
        count: How many.

    Returns:
        Bit and offset of each message.
    """
    if bits is None:
        return [(bit, base + bit) for bit in range(min(count, MOST_SPANNED))]
    left, found = int.from_bytes(bits, "little"), []
    while left:
        bit = (left & -left).bit_length() - 1
        left &= left - 1
        found.append((bit, base + bit))
    return found


def records_of(payload: Bytes, limits: Limits) -> tuple[dict[int, Record], CorruptBatch | None]:
    """
    Read the records of a DELIVER.

    Args:
        payload: Whole batches.
        limits: Bound what a batch may inflate to.

    Returns:
        The records by their offsets, and what was wrong with some batch.
    """
    records: dict[int, Record] = {}
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
            for record in RecordBatch(piece, header, limits.inflated):
                records[record.offset] = record
        except CorruptBatch as error:
            wrong = error
    return records, wrong
