"""Looking at records without touching anything: no counter moves, nothing is held."""

from __future__ import annotations

from typing import NamedTuple

from tinymq.broker.partition import Partition
from tinymq.errors import CorruptBatch
from tinymq.wire.batch import BatchHeader, split
from tinymq.wire.records import Record, RecordBatch


class Seen(NamedTuple):
    """
    What was looked at in one partition.

    Attributes:
        records: Records with the header of their batch, by offset.
        first: First offset looked at.
        end: The offset behind the last one.
        skipped: Batches that cannot be decoded here.
        complete: Whether the high watermark was reached.
    """

    records: list[tuple[Record, BatchHeader]]
    first: int
    end: int
    skipped: int
    complete: bool


def look(partition: Partition, offset: int, limit: int, max_bytes: int) -> Seen:
    """
    Look at records from an offset on.

    Args:
        partition: Where.
        offset: The first offset wanted; below the start it is the start.
        limit: Most records.
        max_bytes: Most bytes read from the log.

    Raises:
        StorageError: The log cannot be read.
    """
    log, visible = partition.log, partition.high_watermark
    # Who looks at a few records must not make the broker inflate gigabytes.
    budget = partition.limits.inflated
    position = first = min(max(offset, log.start_offset), visible)
    found: list[tuple[Record, BatchHeader]] = []
    skipped = 0
    while position < visible and len(found) < limit and max_bytes > 0:
        chunk = log.read(position, min(max_bytes, 1 << 18), visible)
        if chunk is None or chunk.next_offset <= position:
            break
        max_bytes -= len(chunk.data)
        for header, data in split(chunk.data):
            if len(found) >= limit:
                break
            try:
                batch = RecordBatch(data, header, max(budget, 1))
                wanted = [(each, header) for each in batch if each.offset >= position]
            except CorruptBatch:
                skipped += 1
                continue
            if header.codec:
                budget -= sum(len(each.value or b"") for each, _ in wanted)
            found.extend(wanted[: limit - len(found)])
        position = chunk.next_offset
    if found and len(found) >= limit:
        position = found[-1][0].offset + 1
    return Seen(found, first, position, skipped, position >= visible)
