"""
The sparse index of a segment: where about an offset or a time lies.

In memory three arrays, on disk a file beside the segment. The file is a cache
and nothing else: when it is lost, damaged or does not fit its segment, it is
made anew from the segment::

     0       4        8          16     24    32           40         48       52
    +-------+--------+----------+------+-----+------------+----------+--------+----
    | "TMQX"| crc32c | base     | size | end | first time | max time | entries| ...
    +-------+--------+----------+------+-----+------------+----------+--------+----
      4s      u32      i64        i64    i64   i64          i64        u32

Then all offsets, all positions and all append times, i64 each. The checksum
covers everything behind it.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple

from google_crc32c import value as crc_value

SUFFIX: Final = ".index"

_HEAD: Final = struct.Struct(">4sI")
_FACTS: Final = struct.Struct(">qqqqqI")
_ENTRY_SIZE: Final = 24
_MAGIC: Final = b"TMQX"


class SegmentFacts(NamedTuple):
    """What an index file says of its segment."""

    base: int
    size: int
    end: int
    first_time: int
    max_time: int


class Index:
    """Some of the batches of a segment: offset, position, append time; all rising."""

    __slots__ = ("offsets", "positions", "times")

    def __init__(self) -> None:
        self.offsets: array[int] = array("q")
        self.positions: array[int] = array("q")
        self.times: array[int] = array("q")

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, offset: int, position: int, time: int) -> None:
        """Enter a batch that lies behind all that were entered."""
        self.offsets.append(offset)
        self.positions.append(position)
        self.times.append(time)

    def last_position(self) -> int:
        """Position of the last entry, or one that makes the next batch be entered."""
        return self.positions[-1] if self.positions else -(1 << 62)

    def before(self, offset: int) -> tuple[int, int] | None:
        """Offset and position of the last entry not behind an offset."""
        place = bisect_right(self.offsets, offset)
        return (self.offsets[place - 1], self.positions[place - 1]) if place else None

    def before_time(self, time: int) -> tuple[int, int] | None:
        """Offset and position of the last entry that is older than a time."""
        place = bisect_left(self.times, time)
        return (self.offsets[place - 1], self.positions[place - 1]) if place else None

    def last_within(self, end: int, limit: int) -> tuple[int, int] | None:
        """Offset and position of the last entry neither behind position `end` nor `limit`."""
        place = min(bisect_right(self.positions, end), bisect_right(self.offsets, limit))
        return (self.offsets[place - 1], self.positions[place - 1]) if place else None

    def cut(self, position: int) -> None:
        """Drop the entries from a position on."""
        place = bisect_left(self.positions, position)
        del self.offsets[place:], self.positions[place:], self.times[place:]

    def encode(self, facts: SegmentFacts) -> bytes:
        """The content of the index file."""
        columns = (self.offsets, self.positions, self.times)
        body = _FACTS.pack(*facts, len(self)) + b"".join(map(_pack, columns))
        return _HEAD.pack(_MAGIC, crc_value(body)) + body


def decode(content: bytes) -> tuple[SegmentFacts, Index] | None:
    """
    Read an index file.

    Returns:
        None when it is damaged.
    """
    body = content[_HEAD.size :]
    if len(body) < _FACTS.size:
        return None
    magic, crc = _HEAD.unpack_from(content)
    *facts, count = _FACTS.unpack_from(body)
    if magic != _MAGIC or len(body) != _FACTS.size + count * _ENTRY_SIZE or crc != crc_value(body):
        return None
    index = Index()
    width = count * _ENTRY_SIZE // 3
    for place, column in enumerate((index.offsets, index.positions, index.times)):
        start = _FACTS.size + place * width
        column.frombytes(body[start : start + width])
        if sys.byteorder == "little":
            column.byteswap()
    return SegmentFacts(*facts), index


def _pack(column: array[int]) -> bytes:
    swapped = array("q", column)
    if sys.byteorder == "little":
        swapped.byteswap()
    return swapped.tobytes()
