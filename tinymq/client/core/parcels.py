"""What a DELIVER carries: leases, and the records that they are of."""

from __future__ import annotations

from typing import Any, Final

from tinymq.client.core.message import QueueMessage
from tinymq.errors import CorruptBatch
from tinymq.limits import Limits
from tinymq.wire.batch import CONTROL, HEADER_SIZE, checked_header, read_header
from tinymq.wire.frames import Bytes
from tinymq.wire.records import Record, RecordBatch

#: Longest lease, in offsets.
MOST_SPANNED: Final = 4096


class HeldLease:
    """
    Messages of one partition that came under one lease.

    Args:
        lease_id: What settles name.
        partition: Number of the partition.
        epoch: Which SUBSCRIBE it came after.

    Attributes:
        messages: What is not settled, by bit.
    """

    __slots__ = ("epoch", "lease_id", "messages", "partition")

    def __init__(self, lease_id: int, partition: int, epoch: int) -> None:
        self.lease_id = lease_id
        self.partition = partition
        self.epoch = epoch
        self.messages: dict[int, QueueMessage] = {}

    @property
    def bits(self) -> int:
        """What is not settled."""
        found = 0
        for bit in self.messages:
            found |= 1 << bit
        return found

    def renewable(self, now: float, handler_s: float | None) -> int:
        """
        Say which messages are to be renewed.

        Args:
            now: The time.
            handler_s: How long a handler may have a message, or None.

        Returns:
            Their bits; -1 when it is all that is left.
        """
        if handler_s is None:
            return -1
        since = now - handler_s
        over = [
            bit
            for bit, message in self.messages.items()
            if message.started is not None and message.started <= since
        ]
        if not over:
            return -1
        found = self.bits
        for bit in over:
            found &= ~(1 << bit)
        return found


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
