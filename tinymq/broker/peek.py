"""Looking at records without touching anything: no counter moves, nothing is held."""

from __future__ import annotations

from typing import Final, NamedTuple

from tinymq.broker.partition import Partition
from tinymq.errors import CorruptBatch
from tinymq.limits import DEFAULT_LIMITS, MIB
from tinymq.wire.batch import BatchHeader, Codec, split
from tinymq.wire.records import Record, RecordBatch

#: Bytes that one look decompresses before it stops, but for the last batch.
MOST_INFLATED: Final = 16 * MIB


class Seen(NamedTuple):
    """
    What was looked at in one partition.

    Attributes:
        records: Records with the header of their batch, by offset.
        first: First offset looked at.
        end: The offset behind the last one.
        skipped: Batches that cannot be decoded here.
        complete: Whether the stable offset was reached.
    """

    records: list[tuple[Record, BatchHeader]]
    first: int
    end: int
    skipped: int
    complete: bool


class Effort:
    """
    What several looks may decompress together.

    The broker waits meanwhile, and a few bytes can grow to the limit of a batch.

    Args:
        left: Bytes; the last batch may go over it.
    """

    __slots__ = ("left",)

    def __init__(self, left: int = MOST_INFLATED) -> None:
        self.left = left

    def spend(self, header: BatchHeader, records: list[Record] | None) -> None:
        """
        Count a batch.

        Args:
            header: Its header.
            records: What came out, None when it could not be read.
        """
        if header.codec == Codec.NONE:
            return
        if records is None:
            self.left -= DEFAULT_LIMITS.inflated
            return
        for each in records:
            self.left -= len(each.value or b"")
            self.left -= sum(len(name) + len(value) for name, value in each.headers)


def look(
    partition: Partition,
    offset: int,
    limit: int,
    max_bytes: int,
    effort: Effort | None = None,
) -> Seen:
    """
    Look at records from an offset on.

    Args:
        partition: Where.
        offset: The first offset wanted; below the start it is the start.
        limit: Most records.
        max_bytes: Most bytes read from the log.
        effort: Shared with other looks, or one of its own.

    Raises:
        StorageError: The log cannot be read.
    """
    log, visible = partition.log, partition.stable_offset
    position = first = min(max(offset, log.start_offset), visible)
    found: list[tuple[Record, BatchHeader]] = []
    skipped = 0
    effort = effort or Effort()
    while position < visible and len(found) < limit and max_bytes > 0:
        chunk = log.read(position, min(max_bytes, 1 << 18), visible)
        if chunk is None or chunk.next_offset <= position:
            break
        max_bytes -= len(chunk.data)
        for header, data in split(chunk.data):
            if len(found) >= limit:
                break
            if partition.transactions.hides(header):
                continue
            if effort.left <= 0 and header.codec != Codec.NONE:
                end = max(first, header.base_offset)
                return Seen(found, first, end, skipped, complete=False)
            try:
                records = list(RecordBatch(data, header, partition.limits.inflated))
            except CorruptBatch:
                effort.spend(header, None)
                skipped += 1
                continue
            effort.spend(header, records)
            wanted = [(each, header) for each in records if each.offset >= position]
            found.extend(wanted[: limit - len(found)])
        position = chunk.next_offset
    if found and len(found) >= limit:
        position = found[-1][0].offset + 1
    return Seen(found, first, position, skipped, complete=position >= visible)
