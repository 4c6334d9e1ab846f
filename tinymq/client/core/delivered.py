"""A batch as a consumer gets it: columns and records are read when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from typing_extensions import override

from tinymq.client.core.directory import Node
from tinymq.client.core.starts import Mark
from tinymq.wire.records import Headers, Record, RecordBatch


class ConsumerBatch:
    """
    Records of one partition, in order.

    Every column is decoded when it is asked for, each time: keep the list.

    Args:
        topic: Name of the topic.
        partition: Number of the partition.
        batch: The stored batch.
        skip: Records at its start that lie before the position asked for.
        high_watermark: The offset behind the last visible record.

    Attributes:
        topic: Name of the topic.
        partition: Number of the partition.
        high_watermark: The offset behind the last visible record, when fetched.
        node: The independent broker it comes from, where several are read by way
            of lookup servers; otherwise None.
    """

    __slots__ = ("_batch", "_skip", "high_watermark", "node", "partition", "topic")

    def __init__(
        self, topic: str, partition: int, batch: RecordBatch, skip: int, high_watermark: int
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.high_watermark = high_watermark
        self.node: Node | None = None
        self._batch = batch
        self._skip = skip

    def __len__(self) -> int:
        return self._batch.header.records - self._skip

    @override
    def __repr__(self) -> str:
        return (
            f"<ConsumerBatch {self.topic}/{self.partition} "
            f"{self.base_offset}..{self.next_offset - 1} of {self.high_watermark}>"
        )

    @property
    def base_offset(self) -> int:
        """Offset of the first record."""
        return self.offsets[0] if self._skip else self._batch.header.base_offset

    @property
    def next_offset(self) -> int:
        """Offset behind the last record."""
        return self._batch.header.next_offset

    @property
    def mark(self) -> Mark:
        """Where to read on behind the batch: store it, and give it back as a start."""
        return Mark(self.next_offset, self.leader_epoch)

    @property
    def leader_epoch(self) -> int:
        """The epoch in which the batch was written."""
        return self._batch.header.leader_epoch

    @property
    def lag(self) -> int:
        """Offsets between this batch and the end, as it was when fetched."""
        return max(0, self.high_watermark - self.next_offset)

    @property
    def timestamp(self) -> int:
        """When the broker appended it, milliseconds since the epoch."""
        return self._batch.timestamp

    @property
    def size(self) -> int:
        """Bytes of the stored batch."""
        return self._batch.header.size

    @property
    def offsets(self) -> Sequence[int]:
        """The offset of each record."""
        found = self._batch.offsets
        return found[self._skip :] if self._skip else found

    @property
    def values(self) -> list[bytes | None]:
        """The value of each record; None is a tombstone."""
        found = self._batch.values
        return found[self._skip :] if self._skip else found

    @property
    def keys(self) -> list[bytes | None]:
        """The key of each record."""
        found = self._batch.keys
        return found[self._skip :] if self._skip else found

    @property
    def headers(self) -> list[Headers]:
        """The headers of each record."""
        found = self._batch.headers
        return found[self._skip :] if self._skip else found

    @property
    def records(self) -> list[Record]:
        """Every record as an object."""
        return list(self)

    def __iter__(self) -> Iterator[Record]:
        return islice(self._batch, self._skip, None) if self._skip else iter(self._batch)
