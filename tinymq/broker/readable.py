"""
What of a partition readers see, and reading it.

::

    start          stable offset          high watermark          end
      |  readers see this  |  of transactions that  |  on its way to  |
      |                    |  are not decided       |  the disk       |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinymq.broker.transactions.opened import Transactions
from tinymq.errors import (
    LogTruncated,
    OffsetOutOfRange,
    PartitionOffline,
    StorageError,
    WireError,
)
from tinymq.storage.epochs import EpochFile
from tinymq.storage.facts import Chunk
from tinymq.storage.log import Log
from tinymq.storage.memory import MemoryLog
from tinymq.wire.batch import split
from tinymq.wire.messages import EARLIEST, LATEST

if TYPE_CHECKING:
    from tinymq.meta.registry import Topic


class Counters:
    """What a partition did since the broker started; only ever rising."""

    __slots__ = ("bytes_in", "bytes_out", "records_in", "records_out")

    def __init__(self) -> None:
        self.records_in = 0
        self.bytes_in = 0
        self.records_out = 0
        self.bytes_out = 0


class Readable:
    """
    A partition, as its readers see it.

    Args:
        topic: The topic it belongs to.
        index: Its number.
        log: The data log.
        epochs: The leader epochs and where they began.
    """

    def __init__(
        self, topic: Topic, index: int, log: Log | MemoryLog, epochs: EpochFile | None
    ) -> None:
        self.topic = topic
        self.index = index
        self.log = log
        self.epochs = epochs
        self.counters = Counters()
        #: The transactions in it that are open, and those that were aborted.
        self.transactions = Transactions()
        #: Why it is not there any more, or None.
        self.closed: WireError | None = None

    def changed(self) -> None:
        """Say that its figures changed; whoever wants to know of it overrides this."""

    @property
    def volatile(self) -> bool:
        """Whether it is kept in memory only."""
        return isinstance(self.log, MemoryLog)

    @property
    def synced_policy(self) -> bool:
        """Whether acknowledged means on disk."""
        return self.topic.config.sync == "always" and not self.volatile

    @property
    def high_watermark(self) -> int:
        """Offset behind the last visible record."""
        return self.log.synced_offset if self.synced_policy else self.log.written_offset

    @property
    def stable_offset(self) -> int:
        """Offset behind the last record that readers see: below it every transaction is decided."""
        visible, first = self.high_watermark, self.transactions.first
        # Retention may have taken records of an open one.
        return visible if first >= visible else max(first, self.log.start_offset)

    @property
    def failure(self) -> WireError | None:
        """Why the partition is offline, or None."""
        if self.closed is not None or self.log.offline is None:
            return self.closed
        offline = self.log.offline
        return offline if isinstance(offline, WireError) else PartitionOffline(str(offline))

    def check_position(self, offset: int, epoch: int) -> None:
        """
        Check where a reader wants to go on.

        Args:
            offset: The next offset wanted.
            epoch: The epoch of the last record that the reader saw, or -1.

        Raises:
            LogTruncated: Records that the reader saw did not survive an unclean stop.
            OffsetOutOfRange: The offset is below the start or behind the end.
            PartitionOffline: The partition cannot be read.
        """
        if self.closed is not None:
            raise self.closed.with_traceback(None)
        start, end = self.log.start_offset, self.log.end_offset
        survived = end
        if epoch >= 0 and self.epochs is not None and epoch < self.epochs.current:
            survived = min(end, self.epochs.end_of(epoch, end))
        if offset > survived and epoch >= 0:
            raise LogTruncated(
                f"{self.topic.name}/{self.index} was cut back to {survived} after an unclean stop; "
                f"offset {offset} did not survive",
                start=start,
                end=survived,
            )
        if not start <= offset <= end:
            raise OffsetOutOfRange(
                f"{self.topic.name}/{self.index} can be read from offsets {start} to {end}, "
                f"not from {offset}",
                start=start,
                end=end,
            )

    def read(
        self, offset: int, max_bytes: int, *, nowait: bool, uncommitted: bool = False
    ) -> Chunk | None:
        """
        Read whole batches from the one that contains an offset.

        Those of aborted transactions, and control batches, are among them.

        Args:
            offset: A checked position.
            max_bytes: Most bytes, but at least one batch.
            nowait: Give up instead of waiting for the disk.
            uncommitted: Read beyond the stable offset, too.

        Returns:
            Batches, maybe none; None if the disk would have to be waited for.

        Raises:
            StorageError: The disk cannot read.
        """
        visible = self.high_watermark if uncommitted else self.stable_offset
        if offset >= visible:
            return Chunk(b"", offset, offset)
        try:
            return self.log.read(offset, max_bytes, visible, nowait=nowait)
        except OSError as error:
            raise StorageError(
                f"{self.topic.name}/{self.index} cannot be read: {error.strerror or error}"
            ) from error

    def handed_out(self, offset: int, chunk: Chunk) -> None:
        """
        Count what a reader was given.

        Args:
            offset: Where it asked to read.
            chunk: What was read for it.
        """
        self.changed()
        self.counters.bytes_out += len(chunk.data)
        count = max(0, chunk.next_offset - offset)
        if count and self.topic.config.compacts:
            # There are fewer records than offsets, and not one for each of a long empty batch.
            count = min(count, sum(header.records for header, _ in split(chunk.data)))
        self.counters.records_out += count

    def offset_at(self, time_ms: int) -> tuple[int, int, int]:
        """
        Find an offset by time.

        Args:
            time_ms: Milliseconds since the epoch, or `LATEST`, or `EARLIEST`.

        Returns:
            The offset, the epoch of the record before it or -1, and the append
            time found or -1. A time behind the last record gives the stable offset.
        """
        if time_ms == EARLIEST:
            return self._found(self.log.start_offset)
        visible = self.stable_offset
        if time_ms == LATEST:
            return self._found(visible)
        found = self.log.offset_for_time(time_ms)
        if found is None or found[0] >= visible:
            return self._found(visible)
        return self._found(max(found[0], self.log.start_offset), found[1])

    def _found(self, offset: int, time_ms: int = -1) -> tuple[int, int, int]:
        return offset, self.epoch_before(offset), time_ms

    def epoch_before(self, offset: int) -> int:
        """
        Return the leader epoch of the record before an offset, -1 where it is not known.

        Args:
            offset: The offset.
        """
        if offset <= 0:
            return -1
        if self.epochs is None:
            return 0
        found = self.epochs.at(offset - 1)
        # The first epoch is 0, and stands in no list.
        return found if found >= 0 or self.epochs.damaged else 0
