"""Messages with a time to live of their own: what producers may say, and where there are some."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tinymq.errors import CorruptBatch, InvalidDelay
from tinymq.wire.batch import BatchHeader
from tinymq.wire.frames import Bytes
from tinymq.wire.records import RecordBatch

#: The last millisecond of the year 9999.
LAST_MS: Final = 253_402_300_799_999


def check_ttls(batch: Bytes, header: BatchHeader, now_ms: int) -> None:
    """
    Check the times to live of a batch that a producer sent.

    Args:
        batch: The batch.
        header: Its header; it says that there are some.
        now_ms: The wall clock.

    Raises:
        CorruptBatch: They cannot be read.
        InvalidDelay: One is not above zero, or ends beyond the year 9999.
    """
    ttls = RecordBatch(batch, header).ttls
    if len(ttls) != header.records:
        raise CorruptBatch(f"{header.records} records have {len(ttls)} times to live")
    given = [ttl for ttl in ttls if ttl is not None]
    if given and min(given) <= 0:
        raise InvalidDelay(f"a time to live of {min(given)} ms is not above zero")
    if given and now_ms + max(given) > LAST_MS:
        raise InvalidDelay(
            f"a time to live of {max(given)} ms ends beyond the year 9999: from now on it may be "
            f"at most {LAST_MS - now_ms} ms; leave it out for no end"
        )


class Mortal:
    """
    The part of a log in which there are messages with a time to live.

    Attributes:
        first: No message below has one.
        end: No message from here on has one.
    """

    def __init__(self) -> None:
        self.first = self.end = 0

    def __bool__(self) -> bool:
        return self.end > 0

    def add(self, start: int, end: int) -> None:
        """
        Take a batch into account.

        Args:
            start: Its first offset.
            end: The offset behind it.
        """
        self.first = min(self.first, start) if self.end else start
        self.end = max(self.end, end)

    def to_list(self) -> list[int]:
        """As plain numbers."""
        return [self.first, self.end]

    def restore(self, numbers: Sequence[int]) -> None:
        """
        Take over what `to_list` gave.

        Args:
            numbers: Two.
        """
        first, end = numbers
        self.first, self.end = int(first), int(end)
