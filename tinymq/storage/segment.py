"""
One file of a log: batches one behind the other, named by the first offset.

Nothing is opened or read for a segment until it is used.
"""

from __future__ import annotations

import os
import re
from typing import Final, NamedTuple

from attrs import Factory, define, frozen

from tinymq.storage import index as index_file
from tinymq.storage.index import Index, SegmentFacts

SUFFIX: Final = ".log"
BAD_SUFFIX: Final = ".bad"

_NAME = re.compile(r"(\d{20})\.log")


def segment_name(base: int) -> str:
    """The file name of the segment that begins with an offset."""
    return f"{base:020d}{SUFFIX}"


def base_of(name: str) -> int | None:
    """The offset in a segment's file name; None when it is not one."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


@frozen
class Hole:
    """
    Bytes of a segment that are not readable batches.

    Attributes:
        position: The first such byte.
        stop: The byte behind the last.
        offset: The first offset that is missing.
        next_offset: The first offset that is readable again.
    """

    position: int
    stop: int
    offset: int
    next_offset: int


class SegmentPoint(NamedTuple):
    """What a checkpoint keeps of a segment; `holes` are four numbers each."""

    base: int
    end: int
    size: int
    first_time: int
    max_time: int
    holes: tuple[tuple[int, int, int, int], ...] = ()


@define(eq=False)
class Segment:
    """
    A segment as memory knows it.

    Attributes:
        path: The file.
        base: Offset in its name.
        end: Offset behind its last record.
        size: Bytes that are good or known to be holes.
        first_time: Append time of the first batch, -1 when there is none.
        max_time: Latest append time, -1 when there is none.
        checked: Up to this position checksums were seen to be right, or this
            process wrote the bytes.
        index: The sparse index once it was needed.
        holes: Damage, by position.
        replaced: Another file took its place; who is still reading it begins anew.
    """

    path: str
    base: int
    end: int
    size: int = 0
    first_time: int = -1
    max_time: int = -1
    checked: int = 0
    index: Index | None = None
    holes: list[Hole] = Factory(list)
    replaced: bool = False

    @classmethod
    def at(cls, folder: str, base: int) -> Segment:
        """An empty segment."""
        return cls(os.path.join(folder, segment_name(base)), base, base, index=Index())

    @property
    def index_path(self) -> str:
        """The index file beside it."""
        return self.path.removesuffix(SUFFIX) + index_file.SUFFIX

    def bad_path(self, hole: Hole) -> str:
        """The file that keeps the bytes of a hole."""
        return self.bad_path_at(hole.position)

    def bad_path_at(self, position: int, another: str = "") -> str:
        """The file that keeps bad bytes from a position on, or another one for them."""
        return f"{self.path.removesuffix(SUFFIX)}.{position}{another}{BAD_SUFFIX}"

    @property
    def facts(self) -> SegmentFacts:
        """What goes into the index file."""
        return SegmentFacts(self.base, self.size, self.end, self.first_time, self.max_time)

    @property
    def point(self) -> SegmentPoint:
        """What goes into a checkpoint."""
        holes = tuple(
            (each.position, each.stop, each.offset, each.next_offset) for each in self.holes
        )
        return SegmentPoint(self.base, self.end, self.size, self.first_time, self.max_time, holes)

    @classmethod
    def restored(cls, folder: str, point: SegmentPoint, interval: int) -> Segment:
        """The segment of a checkpoint; a short one needs no index file."""
        segment = cls.at(folder, point.base)
        segment.size, segment.end = point.size, point.end
        segment.first_time, segment.max_time = point.first_time, point.max_time
        segment.holes = [Hole(*each) for each in point.holes]
        if point.size > interval or point.holes:
            segment.index = None
        elif point.size and segment.index is not None:
            segment.index.add(point.base, 0, point.first_time)
        return segment

    def hole_at(self, position: int) -> Hole | None:
        """The hole that begins at a position."""
        for hole in self.holes:
            if hole.position == position:
                return hole
        return None

    def good_until(self, position: int) -> int:
        """Where the next hole behind a position begins, or the segment ends."""
        for hole in self.holes:
            if hole.position > position:
                return hole.position
        return self.size

    def add_hole(self, hole: Hole) -> None:
        """Note damage that was found."""
        self.holes.append(hole)
        self.holes.sort(key=lambda each: each.position)

    def entered(self, offset: int, size: int, next_offset: int, time: int, interval: int) -> None:
        """Note a batch that was written, or found, at the end."""
        position = self.size
        index = self.index
        if index is not None and position - index.last_position() >= interval:
            index.add(offset, position, max(time, self.max_time))
        if self.first_time < 0:
            self.first_time = time
        self.max_time = max(self.max_time, time)
        self.size = position + size
        self.end = next_offset
