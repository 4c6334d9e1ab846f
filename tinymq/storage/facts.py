"""The values that a log takes and gives: configuration, checkpoint, report, chunk, ticket."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from attrs import define, field, frozen
from attrs.validators import ge

from tinymq.limits import KIB, MIB
from tinymq.storage.files import OpenFile
from tinymq.storage.segment import SegmentPoint


@frozen(kw_only=True)
class LogConfig:
    """
    How a log is cut into files.

    Attributes:
        segment_bytes: A segment is closed before it grows over this, unless a
            single batch is longer.
        segment_ms: A segment is closed when a batch is appended that is so much
            younger than its first; None: never by age.
        index_interval: Bytes between two entries of the index.
    """

    segment_bytes: int = field(default=64 * MIB, validator=ge(1))
    segment_ms: int | None = None
    index_interval: int = field(default=16 * KIB, validator=ge(1))


DEFAULT_CONFIG = LogConfig()


@frozen
class LogPoint:
    """
    What a log has on the disk: up to there nothing need be scanned at the next start.

    Attributes:
        start: First readable offset.
        end: The next offset to be given.
        max_timestamp: Latest append time, -1 when there was none.
        segments: Every segment.
        clean: Nothing was written after it.
    """

    start: int
    end: int
    max_timestamp: int
    segments: tuple[SegmentPoint, ...]
    clean: bool = False

    def to_list(self) -> list[Any]:
        """As plain lists and numbers."""
        segments = [[*each[:5], [list(hole) for hole in each.holes]] for each in self.segments]
        return [self.start, self.end, self.max_timestamp, segments]

    @classmethod
    def from_list(cls, value: list[Any], *, clean: bool = False) -> LogPoint:
        """What `to_list` gave; whether it is a clean stop's is another's to know."""
        start, end, timestamp, segments = value
        return cls(start, end, timestamp, tuple(map(_segment_point, segments)), clean)


def _segment_point(value: list[Any]) -> SegmentPoint:
    base, end, size, first_time, max_time, holes = value
    return SegmentPoint(base, end, size, first_time, max_time, tuple(map(tuple, holes)))


@frozen
class Gap:
    """
    Offsets that a log once gave and cannot show.

    Attributes:
        start: First missing offset.
        end: First offset that is readable again, or the next to be given.
        size: Damaged bytes, 0 for a missing segment.
        reason: ``damaged`` or ``missing``.
        path: Where the damaged bytes were put aside, empty when there are none.
    """

    start: int
    end: int
    size: int
    reason: str
    path: str = ""

    @property
    def offsets(self) -> int:
        """How many offsets are missing."""
        return self.end - self.start


@define
class RecoveryReport:
    """
    What opening a log found, and what reading it found since.

    Attributes:
        clean: The checkpoint is that of a clean stop and fits; nothing was scanned.
        scanned_bytes: Bytes read and checked.
        truncated_bytes: Length of the torn tail that was cut off.
        unsynced_bytes: Length of the unsynced end that was cut off and kept aside.
        records: Offsets seen while scanning.
        damaged: Offset gaps, by offset.
        notes: One sentence for each thing that was set right.
        on_gap: Told of each gap that is found from now on.
    """

    clean: bool = False
    scanned_bytes: int = 0
    truncated_bytes: int = 0
    unsynced_bytes: int = 0
    records: int = 0
    damaged: tuple[Gap, ...] = ()
    notes: tuple[str, ...] = ()
    on_gap: Callable[[Gap], None] | None = field(default=None, eq=False, repr=False)

    def add_gap(self, gap: Gap) -> None:
        """Note missing offsets, once."""
        if all(gap.start != each.start for each in self.damaged):
            self.damaged = tuple(sorted((*self.damaged, gap), key=lambda each: each.start))
            if self.on_gap is not None:
                self.on_gap(gap)

    def note(self, text: str) -> None:
        """Note what was set right."""
        self.notes = (*self.notes, text)


class Chunk(NamedTuple):
    """
    Whole batches as stored.

    `data` is empty when there is nothing to read: then `next_offset` may still
    lie beyond the offset asked for, when all between is a gap.

    Attributes:
        data: The batches.
        start: Offset of the first record in it, at or before the one asked for,
            or behind it when a gap was skipped.
        next_offset: Where to read on.
    """

    data: bytes | memoryview
    start: int
    next_offset: int


@define(eq=False)
class SyncTicket:
    """
    What one sync of one log has to make durable.

    Attributes:
        files: Open files with unsynced bytes, pinned until `Log.end_sync`.
        folders: Folders with new entries.
        end: Everything below this offset is on disk once the sync succeeded.
        last: What the last segment then holds on disk, None without one.
    """

    files: tuple[OpenFile, ...]
    folders: tuple[str, ...]
    end: int
    last: SegmentPoint | None = None


class Part(NamedTuple):
    """
    A file of a log, for who reads it elsewhere.

    Attributes:
        path: The file; retention may remove it at any time.
        size: Bytes that are written.
        base: Its first offset.
        first_time: Append time of its first batch.
    """

    path: str
    size: int
    base: int
    first_time: int


class Due(NamedTuple):
    """
    A file, or a batch in memory, that retention no longer keeps.

    Attributes:
        end: Offset behind its last record.
        size: Its bytes.
        first_time: Append time of its first batch.
        max_time: Latest append time.
    """

    end: int
    size: int
    first_time: int
    max_time: int
