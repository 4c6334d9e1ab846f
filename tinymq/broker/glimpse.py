"""What is known of single records without handing them out: key, size, age."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, NamedTuple

from tinymq.broker.channel.runs import Run
from tinymq.broker.partition import Partition
from tinymq.broker.window import Window
from tinymq.errors import CorruptBatch
from tinymq.limits import MIB
from tinymq.wire.batch import Codec
from tinymq.wire.records import RecordBatch

#: Bytes, stored and decompressed, that are looked at for one answer, but for the last batch.
MOST_GLIMPSED: Final = 16 * MIB


class Glimpse(NamedTuple):
    """
    What is told of a record.

    Attributes:
        time: When it was appended.
        key: Its key.
        value: Its value.
    """

    time: int
    key: bytes | None
    value: bytes | None


class Glimpses:
    """
    Looks at single records until it is too much; what is too much is not told.

    Args:
        left: Bytes that may be looked at.
    """

    def __init__(self, left: int = MOST_GLIMPSED) -> None:
        self._left = left

    def of(self, partition: Partition, offsets: Sequence[int]) -> dict[int, Glimpse]:
        """
        Look at records.

        Args:
            partition: Where.
            offsets: Which ones, in order. Those that do not exist are not told.

        Raises:
            StorageError: The log cannot be read.
        """
        # With a memory of its own: what consumers are about to read is not pushed out.
        window, found = Window(partition), dict[int, Glimpse]()
        runs: list[Run] = [(offset, offset + 1) for offset in offsets]
        for header, data in window.over(runs):
            if self._left <= 0:
                break
            self._left -= len(data)
            try:
                batch = RecordBatch(data, header, partition.limits.inflated)
                there, keys, values = batch.offsets, batch.keys, batch.values
            except CorruptBatch:
                if header.codec != Codec.NONE:
                    self._left -= partition.limits.inflated
                continue
            if header.codec != Codec.NONE:
                self._left -= sum(len(value or b"") for value in values)
            first = bisect_left(offsets, header.base_offset)
            for offset in offsets[first : bisect_left(offsets, header.next_offset)]:
                at = bisect_left(there, offset)
                if at < len(there) and there[at] == offset:
                    found[offset] = Glimpse(batch.timestamp, keys[at], values[at])
        return found


class Aging:
    """
    When messages were appended, of one partition.

    The oldest unsettled message of a channel stays the same for as long as the
    channel is stuck, and only then is its age of interest to anybody.

    Args:
        partition: The partition.
    """

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._known: dict[str, tuple[int, int]] = {}

    def appended(self, channel: str, offset: int, *, cheaply: bool) -> int | None:
        """
        Say when the oldest message of a channel was appended.

        Args:
            channel: Its name.
            offset: Where the message is.
            cheaply: Do not look into the log, but say what was known of the one before.

        Returns:
            None if it is not known.
        """
        known = self._known.get(channel)
        if known is not None and (known[0] == offset or cheaply):
            return known[1]
        if cheaply:
            return None
        log = self._partition.log
        header = next(log.headers(max(offset, log.start_offset)), None)
        if header is None:
            return None
        self._known[channel] = offset, header.max_timestamp
        return header.max_timestamp

    def forget(self, channel: str) -> None:
        """
        Forget a channel that was deleted.

        Args:
            channel: Its name.
        """
        self._known.pop(channel, None)
