"""
Walking over the bytes of a segment: which batches are good, and what comes
behind bad ones.

A batch is good when its length fits into the file, its magic is right, its
checksum is right, and its offset is the one that comes next.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from google_crc32c import value as crc_value

from tinymq.storage.segment import Hole, Segment
from tinymq.wire.batch import HEADER_SIZE, MAGIC, BatchHeader, read_header

#: Reads `size` bytes of a file at a position; fewer at its end.
Read = Callable[[int, int], bytes]

#: Base offset and length, the two fields that walking needs.
STEP: Final = struct.Struct(">qi")
LENGTH_END: Final = 12
CHECKED_FROM: Final = 21
#: Most offsets that one batch can take.
MOST_RECORDS: Final = 65_536

_WINDOW: Final = 1 << 20
_DELTA: Final = struct.Struct(">i")
_DELTA_AT: Final = 23


def next_offset_at(data: bytes, cursor: int) -> int:
    """Offset behind the batch whose header lies at `cursor`."""
    base: int = STEP.unpack_from(data, cursor)[0]
    delta: int = _DELTA.unpack_from(data, cursor + _DELTA_AT)[0]
    return base + delta + 1


def walk(data: bytes, limit: int, cursor: int = 0) -> tuple[int, int]:
    """
    Find the end of the last whole batch, without checking anything.

    Args:
        data: Batches, the last one perhaps cut.
        limit: No batch that reaches this offset is taken.
        cursor: Where a batch starts, and the least that is returned.

    Returns:
        Where the last whole batch ends, and the offset behind it (-1: none taken).
    """
    size = len(data)
    last = before = -1
    while cursor + HEADER_SIZE <= size:
        base, length = STEP.unpack_from(data, cursor)
        stop = cursor + LENGTH_END + length
        if stop > size or base >= limit or length < 0:
            break
        before, last = last, cursor
        cursor = stop
    if last < 0:
        return cursor, -1
    following = next_offset_at(data, last)
    if following > limit:
        return last, next_offset_at(data, before) if before >= 0 else -1
    return cursor, following


def good_at(data: bytes, cursor: int) -> BatchHeader | None:
    """The header of the batch at `cursor`, None when it is cut or damaged."""
    if cursor + HEADER_SIZE > len(data):
        return None
    header = read_header(data, cursor)
    stop = cursor + LENGTH_END + header.length
    if (
        header.magic != MAGIC
        or header.length < HEADER_SIZE - LENGTH_END
        or header.last_offset_delta < 0
        or stop > len(data)
        or crc_value(data[cursor + CHECKED_FROM : stop]) != header.crc
    ):
        return None
    return header


def walk_checked(data: bytes, limit: int, expected: int) -> tuple[int, int, bool]:
    """
    Find the end of the last whole batch, checking each.

    Args:
        data: Batches, the last one perhaps cut.
        limit: No batch that reaches this offset is taken.
        expected: Offset of the first batch.

    Returns:
        Where the last good batch ends, the offset behind it, and whether a
        whole but bad batch follows.
    """
    cursor, size = 0, len(data)
    while cursor + HEADER_SIZE <= size:
        header = good_at(data, cursor)
        if header is None or header.base_offset != expected:
            length = STEP.unpack_from(data, cursor)[1]
            cut = header is None and length >= 0 and cursor + LENGTH_END + length > size
            return cursor, expected, not cut
        following = header.next_offset
        if following > limit:
            break
        cursor += header.size
        expected = following
    return cursor, expected, False


def good_batches(  # noqa: PLR0913, PLR0917 - what to read, and what is known of it
    read: Read,
    position: int,
    size: int,
    expected: int,
    ceiling: int | None = None,
    window: int = _WINDOW,
    trusted: int = 0,
) -> Iterator[tuple[int, BatchHeader]]:
    """
    Yield the good batches from a position on, up to the first bad byte.

    Args:
        read: Reads the file.
        position: Where the first batch starts.
        size: Bytes of the file.
        expected: Offset that the first batch must have.
        ceiling: Offset that no batch may reach: the next segment's first.
        window: Bytes that are read at a time.
        trusted: Up to this position checksums are known to be right: of batches
            before it only the headers are read.

    Yields:
        Position and header.
    """
    data, origin = b"", position
    while position + HEADER_SIZE <= size:
        cursor = position - origin
        if cursor + HEADER_SIZE > len(data):
            origin, cursor = position, 0
            data = read(position, min(window, size - position))
            if len(data) < HEADER_SIZE:
                return
        base, length = STEP.unpack_from(data, cursor)
        whole = LENGTH_END + length
        if base != expected or length < 0 or position + whole > size:
            return
        if position + whole <= trusted:
            header: BatchHeader | None = read_header(data, cursor)
        else:
            if cursor + whole > len(data):
                origin, cursor = position, 0
                data = read(position, max(whole, min(window, size - position)))
            header = good_at(data, cursor)
        if header is None or (ceiling is not None and header.next_offset > ceiling):
            return
        yield position, header
        position += whole
        expected = header.next_offset


def find_good(
    read: Read, position: int, size: int, expected: int, ceiling: int | None = None
) -> tuple[int, BatchHeader] | None:
    """
    Look for a good, fitting batch behind a bad one.

    The place that the bad batch's own length names is tried first, then every
    byte: a batch is recognised by its magic and by a base offset that is a
    little above the expected one.

    Args:
        read: Reads the file.
        position: Where the bad batch starts.
        size: Bytes of the file.
        expected: Offset that the bad batch should have had.
        ceiling: Offset that no batch may reach.

    Returns:
        Position and header, or None when nothing good follows.
    """
    fitting = _Fitting(read, position, size, expected, ceiling)
    if position + LENGTH_END <= size:
        length = STEP.unpack(read(position, LENGTH_END))[1]
        at = position + LENGTH_END + length
        if length > 0 and at < size and (header := fitting.at(at)):
            return at, header
    pattern = _likely(expected)
    origin = position + 1
    while origin + HEADER_SIZE <= size:
        data = read(origin, min(_WINDOW, size - origin))
        for match in pattern.finditer(data):
            at = origin + match.start()
            if header := fitting.at(at):
                return at, header
        if len(data) <= HEADER_SIZE:
            break
        origin += len(data) - HEADER_SIZE
    return None


class _Fitting(NamedTuple):
    """Tells whether a good batch that can follow a bad one lies at a position."""

    read: Read
    position: int
    size: int
    expected: int
    ceiling: int | None

    def at(self, place: int) -> BatchHeader | None:
        head = self.read(place, min(HEADER_SIZE, self.size - place))
        if len(head) < HEADER_SIZE:
            return None
        base, length = STEP.unpack_from(head)
        batches = (place - self.position) // HEADER_SIZE + 1
        if not self.expected < base <= self.expected + batches * MOST_RECORDS:
            return None
        if length < 0 or place + LENGTH_END + length > self.size:
            return None
        header = good_at(self.read(place, LENGTH_END + length), 0)
        if header is None or (self.ceiling is not None and header.next_offset > self.ceiling):
            return None
        return header


def _likely(expected: int) -> re.Pattern[bytes]:
    """Match where the start of a batch a little behind an offset may be."""
    tops = {(expected >> 32).to_bytes(4, "big"), ((expected >> 32) + 1).to_bytes(4, "big")}
    top = b"|".join(re.escape(each) for each in sorted(tops))
    return re.compile(b"(?=(?:" + top + rb").{4}[\x00-\x0f].{3}.{4}\x02)", re.DOTALL)


class Rest(NamedTuple):
    """
    What is left at the end of a segment.

    Attributes:
        hole: The bytes, up to the end of the file.
        lost: A write was lost there; good batches may follow that do not count.
    """

    hole: Hole
    lost: bool = False


def scan_segment(  # noqa: PLR0913 - all but three are options
    read: Read,
    segment: Segment,
    size: int,
    *,
    interval: int,
    ceiling: int | None = None,
    on_batch: Callable[[BatchHeader], None] | None = None,
    ends_at: Callable[[Hole], bool] | None = None,
) -> Rest | None:
    """
    Read a segment from its known end on, check every batch, and extend facts and index.

    Args:
        read: Reads the file.
        segment: An empty segment, or one that is known up to its size; it is filled.
        size: Bytes of the file.
        interval: Bytes between entries of the index.
        ceiling: Offset that no batch may reach: the next segment's first.
        on_batch: Told of each good batch.
        ends_at: Tells of bad bytes whether nothing behind them counts.

    Returns:
        What is left at the end with nothing good behind it: a torn tail in the
        last segment, damage in another; or all from where `ends_at` said so.
        None when the file ends well.
    """
    begin = position = segment.size
    expected = segment.end
    while True:
        for _, header in good_batches(read, position, size, expected, ceiling):
            segment.entered(
                header.base_offset,
                header.size,
                header.next_offset,
                header.max_timestamp,
                interval,
            )
            if on_batch is not None:
                on_batch(header)
        if segment.checked == begin:
            segment.checked = begin = segment.size
        position, expected = segment.size, segment.end
        if position >= size:
            return None
        found = find_good(read, position, size, expected, ceiling)
        if found is None:
            hole = Hole(position, size, expected, expected if ceiling is None else ceiling)
            # In the last file nothing follows that could be kept or cut.
            lost = ceiling is not None and ends_at is not None and ends_at(hole)
            return Rest(hole, lost)
        hole = Hole(position, found[0], expected, found[1].base_offset)
        if ends_at is not None and ends_at(hole):
            return Rest(Hole(position, size, expected, expected), lost=True)
        segment.add_hole(hole)
        position, expected = hole.stop, hole.next_offset
        segment.size, segment.end = position, expected
        if segment.checked == begin:
            segment.checked = begin = position
