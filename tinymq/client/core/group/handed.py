"""What a group consumer hands out: messages and batches that can be said to be done."""

from __future__ import annotations

from typing_extensions import override

from tinymq.client.core.delivered import ConsumerBatch
from tinymq.client.core.group.tally import Slip
from tinymq.client.core.starts import Mark
from tinymq.wire.records import Headers, Record


class GroupMessage:
    """
    A record of a partition that the member reads.

    Args:
        record: What was published.
        slip: Of its batch.
        index: Its place in the batch.

    Attributes:
        record: What was published.
    """

    __slots__ = ("_index", "_slip", "record")

    def __init__(self, record: Record, slip: Slip, index: int) -> None:
        self.record = record
        self._slip = slip
        self._index = index

    @override
    def __repr__(self) -> str:
        state = "done" if self.is_done else "lost" if self.is_lost else "in hand"
        return f"<{type(self).__name__} {self.topic}/{self.partition} {self.offset} {state}>"

    @property
    def topic(self) -> str:
        """Name of the topic."""
        return self._slip.batch.topic

    @property
    def partition(self) -> int:
        """Number of the partition."""
        return self._slip.batch.partition

    @property
    def offset(self) -> int:
        """Its place in the partition."""
        return self.record.offset

    @property
    def timestamp(self) -> int:
        """When the broker appended it, milliseconds since the epoch."""
        return self.record.timestamp

    @property
    def key(self) -> bytes | None:
        """Its key, or None."""
        return self.record.key

    @property
    def value(self) -> bytes | None:
        """Its value, or None for a tombstone."""
        return self.record.value

    @property
    def headers(self) -> Headers:
        """Names and values in order."""
        return self.record.headers

    @property
    def created(self) -> int | None:
        """The producer's own time in milliseconds, or None."""
        return self.record.created

    @property
    def mark(self) -> Mark:
        """Where to read on behind it."""
        return Mark(self.offset + 1, self._slip.batch.leader_epoch)

    @property
    def is_done(self) -> bool:
        """Whether it was said to be done."""
        return self._slip.is_done(self._index)

    @property
    def is_lost(self) -> bool:
        """Whether somebody else may have its partition by now; then `done` has no effect."""
        return not self._slip.tally.alive

    def done(self) -> None:
        """Say that it is handled: the group need not have it again."""
        self._slip.done(self._index)

    def let_go(self) -> None:
        """Say that it will not be: whoever reads the partition next has it again."""
        self._slip.let_go(self._index)


class GroupBatch(ConsumerBatch):
    """
    Records of one partition, in order, that the member reads.

    Args:
        slip: Of the batch.
        first: Records at its start that were handed out before.
    """

    __slots__ = ("_first", "_slip")

    def __init__(self, slip: Slip, first: int) -> None:
        batch = slip.batch
        super().__init__(
            batch.topic,
            batch.partition,
            batch._batch,  # noqa: SLF001 - of the same class
            batch._skip + first,  # noqa: SLF001
            batch.high_watermark,
        )
        self.node = batch.node
        self._slip = slip
        self._first = first

    @property
    def is_lost(self) -> bool:
        """Whether somebody else may have its partition by now; then `done` has no effect."""
        return not self._slip.tally.alive

    @property
    def messages(self) -> list[GroupMessage]:
        """Each record as a message, which can be said to be done by itself."""
        return [
            GroupMessage(record, self._slip, index)
            for index, record in enumerate(self, self._first)
        ]

    def done(self) -> None:
        """Say that all of it is handled: the group need not have it again."""
        self._slip.all_done(self._first)

    def let_go(self) -> None:
        """Say that the rest will not be: whoever reads the partition next has it again."""
        self._slip.let_all_go(self._first)
