"""Reading whole batches from a log: the hottest path, one `pread` a call."""

from __future__ import annotations

from collections.abc import Callable

from tinymq.storage.facts import Chunk
from tinymq.storage.scan import LENGTH_END, STEP, next_offset_at, walk, walk_checked
from tinymq.storage.segment import Segment
from tinymq.storage.segments import Segments
from tinymq.wire.batch import HEADER_SIZE

#: Reads so many bytes at a position; None when that would wait for the disk.
Fetch = Callable[[Segment, int, int], "bytes | None"]


def read_chunk(
    segments: Segments, offset: int, max_bytes: int, limit: int, fetch: Fetch
) -> Chunk | None:
    """
    Read the batches from the one that contains an offset on.

    Args:
        segments: The log's files.
        offset: Where to read.
        max_bytes: Most bytes, unless the first batch is longer.
        limit: Nothing that reaches this offset is read.
        fetch: Reads bytes of a segment.

    Returns:
        None when `fetch` gave None.
    """
    while offset < limit:
        segment = segments.find(offset)
        if segment is None or segment.base >= limit:
            return Chunk(b"", limit, limit)
        offset = max(offset, segment.base)
        try:
            position, base = segments.locate(segment, offset)
            hole = segment.hole_at(position) if segment.holes else None
            if hole is None:
                chunk = _read(segments, segment, position, base, (max_bytes, limit), fetch)
                if chunk is None or chunk.data:
                    return chunk
                hole = segment.hole_at(position)
                if hole is None:
                    return Chunk(b"", offset, offset)
        except FileNotFoundError:
            segments.missing(segment)
            offset = segment.end
        else:
            offset = max(offset, hole.next_offset)
    return Chunk(b"", offset, offset)


def _read(
    segments: Segments,
    segment: Segment,
    position: int,
    base: int,
    bounds: tuple[int, int],
    fetch: Fetch,
) -> Chunk | None:
    """Read at a batch; an empty chunk when it reaches the limit or was found damaged."""
    max_bytes, limit = bounds
    room = segment.good_until(position) - position
    data = fetch(segment, min(max(max_bytes, HEADER_SIZE), room), position)
    if data is None:
        return None
    stop, following, bad = _cut(segment, data, position, base, limit)
    if stop == 0 and not bad:
        whole = _size(data, limit)
        if whole == 0:
            return Chunk(b"", base, base) if len(data) >= HEADER_SIZE else None
        bad = whole > room
        if not bad:
            data = fetch(segment, whole, position)
            if data is None or len(data) < whole:
                return None
            stop, following, bad = _cut(segment, data, position, base, limit)
    if stop == 0:
        if bad:
            segments.damage(segment, position, base)
        return Chunk(b"", base, base)
    if position <= segment.checked < position + stop:
        segment.checked = position + stop
    segments.hint(following, position + stop)
    return Chunk(data if stop == len(data) else memoryview(data)[:stop], base, following)


def _size(data: bytes, limit: int) -> int:
    """Bytes of the batch at the start of the data; 0: header cut, or it reaches the limit."""
    if len(data) < HEADER_SIZE:
        return 0
    length: int = STEP.unpack_from(data)[1]
    if length < HEADER_SIZE - LENGTH_END:
        return 1 << 62
    return 0 if next_offset_at(data, 0) > limit else LENGTH_END + length


def _cut(
    segment: Segment, data: bytes, position: int, base: int, limit: int
) -> tuple[int, int, bool]:
    """Where the last whole batch ends, the offset behind it, and whether a bad one follows."""
    if segment.checked < position + len(data):
        return walk_checked(data, limit, base)
    entry = segment.index.last_within(position + len(data), limit) if segment.index else None
    if entry is None or entry[1] <= position:
        return *walk(data, limit), False
    stop, following = walk(data, limit, entry[1] - position)
    return stop, following if following >= 0 else entry[0], False
