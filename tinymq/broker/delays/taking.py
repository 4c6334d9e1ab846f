"""What is looked at of a batch of messages that are not due yet: their times, and nothing else."""

from __future__ import annotations

from typing import Final

from tinymq.errors import InvalidDelay
from tinymq.limits import LATEST_MS
from tinymq.wire.batch import PAYLOAD, BatchHeader, Column, column_spans
from tinymq.wire.codec import pack
from tinymq.wire.frames import Bytes
from tinymq.wire.records import RecordBatch


def checked_dues(batch: Bytes, header: BatchHeader, now: int) -> list[int]:
    """
    Read when messages are due.

    Args:
        batch: A batch with due times.
        header: Its header.
        now: The time, from which delays count.

    Returns:
        A time in milliseconds since the epoch for each.

    Raises:
        InvalidDelay: One is beyond what can be kept.
        CorruptBatch: The column cannot be read.
    """
    dues = RecordBatch(batch, header).dues
    low = min(dues)
    if low < 0:
        first = dues[0]
        if dues.count(first) == len(dues):
            dues = [now - first] * len(dues)  # a delay for all
        else:
            dues = [due if due >= 0 else now - due for due in dues]
    latest = max(dues)
    if latest > LATEST_MS:
        raise InvalidDelay(
            f"a message can wait until {LATEST_MS} (the end of the year 9999), not {latest}",
            limit=LATEST_MS,
        )
    return dues


def with_dues(batch: Bytes, header: BatchHeader, dues: list[int]) -> bytes:
    """
    Return the payload of a batch with other due times; nothing else of it is opened.

    Args:
        batch: The batch.
        header: Its header.
        dues: As many times.
    """
    span = column_spans(batch)[Column.DUE]
    assert span is not None, "it has due times"
    begin, end = span
    size = end - begin
    for kind, width in _WIDTHS:
        start = begin - width - 1
        if batch[start] == kind and int.from_bytes(batch[start + 1 : begin], "big") == size:
            return b"".join((bytes(batch[PAYLOAD:start]), pack(pack(dues))))
    raise AssertionError("the column has a length")


#: First byte of a msgpack ``bin`` to the width of its length; only one fits its length.
_WIDTHS: Final = ((0xC4, 1), (0xC5, 2), (0xC6, 4))
