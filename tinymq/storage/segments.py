"""
The segments of one log, and how a place in them is found.

Reads of consecutive offsets find their place in a small table of hints; others
go through the sparse index and walk at most one interval of batch headers.
"""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from tinymq.errors import StorageError
from tinymq.limits import KIB, MIB
from tinymq.storage import index as index_file
from tinymq.storage.disk import Disk
from tinymq.storage.facts import Gap, LogConfig, RecoveryReport
from tinymq.storage.files import FileCache, OpenFile
from tinymq.storage.index import Index
from tinymq.storage.scan import Read, find_good, good_batches
from tinymq.storage.segment import Hole, Segment
from tinymq.wire.batch import BatchHeader

_MOST_HINTS: Final = 64


class Segments:
    """
    The files of a log, by offset.

    Args:
        files: Open files, shared by all logs.
        folder: The log's folder.
        config: How the log is cut.
        report: Told of damage.
    """

    def __init__(
        self, files: FileCache, folder: str, config: LogConfig, report: RecoveryReport
    ) -> None:
        self.files = files
        self.folder = folder
        self.config = config
        self.report = report
        self.all: list[Segment] = []
        self.bases: list[int] = []
        self.size = 0
        #: Offset and position of what was written last: readers at the end want it next.
        self.tail: tuple[int, int] = (-1, 0)
        self._hints: dict[int, int] = {}

    @property
    def disk(self) -> Disk:
        """The disk."""
        return self.files.disk

    @property
    def window(self) -> int:
        """Bytes to read where one place is looked for."""
        return self.config.index_interval + 2 * KIB

    @property
    def last(self) -> Segment | None:
        """The segment that is appended to."""
        return self.all[-1] if self.all else None

    def add(self, segment: Segment) -> None:
        """Append a segment."""
        self.all.append(segment)
        self.bases.append(segment.base)
        self.size += segment.size

    def find(self, offset: int) -> Segment | None:
        """The segment with an offset, or the next one where there is a gap."""
        place = bisect_right(self.bases, offset) - 1
        if place >= 0 and offset < self.all[place].end:
            return self.all[place]
        return self.all[place + 1] if place + 1 < len(self.all) else None

    def read(self, segment: Segment, size: int, position: int) -> bytes:
        """
        Read from a segment.

        Raises:
            StorageError: The disk fails.
            TooManyOpenFiles: No descriptor is left.
            FileNotFoundError: The file went away.
        """
        file = self.files.get(segment.path)
        try:
            return self.disk.pread(file.descriptor, size, position)
        except OSError as error:
            raise StorageError(f"{segment.path} cannot be read: {error.strerror}") from error

    def reader(self, segment: Segment) -> Read:
        """A function that reads from a segment."""
        return lambda position, size: self.read(segment, size, position)

    # --- finding -------------------------------------------------------------

    def hint(self, offset: int, position: int) -> None:
        """Remember where a batch begins that will likely be read next."""
        hints = self._hints
        if len(hints) >= _MOST_HINTS and offset not in hints:
            del hints[next(iter(hints))]
        hints[offset] = position

    def forget_hints(self) -> None:
        """Forget them: positions changed."""
        self._hints.clear()
        self.tail = (-1, 0)

    def locate(self, segment: Segment, offset: int) -> tuple[int, int]:
        """
        Find the batch that contains an offset, or the hole it lies in.

        Returns:
            Its position and its first offset.
        """
        if offset <= segment.base:
            return 0, segment.base
        if offset == self.tail[0]:
            return self.tail[1], offset
        hinted = self._hints.get(offset)
        if hinted is not None:
            return hinted, offset
        base, position = self.index(segment).before(offset) or (segment.base, 0)
        for hole in segment.holes:
            if hole.offset <= offset < hole.next_offset:
                return hole.position, hole.offset
            if hole.position >= position and offset >= hole.next_offset:
                base, position = hole.next_offset, hole.stop
        for at, header in self.headers(segment, position, base, self.window):
            position, base = at, header.base_offset
            if header.next_offset > offset:
                break
        return position, base

    # --- the index -----------------------------------------------------------

    def index(self, segment: Segment) -> Index:
        """The sparse index of a segment: from memory, its file, or made anew."""
        if segment.index is None:
            segment.index = self._load_index(segment) or self._build_index(segment)
        return segment.index

    def _load_index(self, segment: Segment) -> Index | None:
        content = self.disk.read_file(segment.index_path)
        loaded = index_file.decode(content) if content else None
        if loaded is None or loaded[0][:3] != segment.facts[:3]:
            return None
        return loaded[1]

    def _build_index(self, segment: Segment) -> Index:
        index, time = Index(), -1
        for position, header in self.headers(segment):
            time = max(time, header.max_timestamp)
            if position - index.last_position() >= self.config.index_interval:
                index.add(header.base_offset, position, time)
        segment.checked = segment.size
        return index

    def save_index(self, segment: Segment) -> None:
        """Write the index file of a closed segment; it is only a cache, so failing is no harm."""
        index = segment.index
        if index is None or len(index) < 2 or segment.holes:
            return
        with contextlib.suppress(OSError, StorageError):
            content = index.encode(segment.facts)
            self.disk.replace_file(segment.index_path, content, durable=False)

    def headers(
        self,
        segment: Segment,
        position: int = 0,
        expected: int | None = None,
        window: int = MIB,
        trusted: int = 0,
    ) -> Iterator[tuple[int, BatchHeader]]:
        """
        Yield the good batches of a segment, passing over holes.

        Args:
            segment: The segment.
            position: Where a batch or a hole begins.
            expected: Offset of that batch; the segment's first by default.
            window: Bytes that are read at a time.
            trusted: Up to this position only headers are read, and not checked.

        Yields:
            Position and header.
        """
        if segment.replaced:
            return
        try:
            self.open(segment)
        except FileNotFoundError:
            self.missing(segment)
            return
        read = self.reader(segment)
        following = segment.base if expected is None else expected
        while position < segment.size:
            hole = segment.hole_at(position)
            if hole is not None:
                position, following = hole.stop, hole.next_offset
                continue
            until = segment.good_until(position)
            batches = good_batches(read, position, until, following, window=window, trusted=trusted)
            for at, header in batches:
                position, following = at + header.size, header.next_offset
                yield at, header
                if self._went(segment):
                    return
            if position < until:
                self.damage(segment, position, following)

    def _went(self, segment: Segment) -> bool:
        """Whether another file took the place of one while somebody read it."""
        return segment.replaced

    # --- damage --------------------------------------------------------------

    def damage(self, segment: Segment, position: int, expected: int) -> Hole:
        """
        Put a bad batch aside and note the offsets that are missing.

        Args:
            segment: The segment.
            position: Where the bad batch starts.
            expected: The offset it should have had.
        """
        read = self.reader(segment)
        found = find_good(read, position, segment.size, expected, segment.end)
        if found is None:
            hole = Hole(position, segment.size, expected, segment.end)
        else:
            hole = Hole(position, found[0], expected, found[1].base_offset)
        segment.add_hole(hole)
        self.put_aside(segment, hole)
        return hole

    def put_aside(self, segment: Segment, hole: Hole) -> None:
        """Copy the bytes of a hole into a file of their own, once, and report the gap."""
        path = segment.bad_path(hole)
        if not self.disk.exists(path):
            content = self.read(segment, hole.stop - hole.position, hole.position)
            try:
                self.disk.replace_file(path, content, durable=False)
            except (OSError, StorageError):
                path = ""
        if hole.next_offset > hole.offset:
            size = hole.stop - hole.position
            self.report.add_gap(Gap(hole.offset, hole.next_offset, size, "damaged", path))

    def missing(self, segment: Segment) -> None:
        """Note that the file of a segment went away."""
        if segment.hole_at(0) is None and segment.size:
            segment.holes = [Hole(0, segment.size, segment.base, segment.end)]
            self.report.add_gap(Gap(segment.base, segment.end, 0, "missing"))

    # --- files ---------------------------------------------------------------

    def replace(self, first: int, count: int, segment: Segment) -> None:
        """
        Put a cleaned file in the place of some others, of which the first has its name now.

        Args:
            first: The place of the first one.
            count: How many there are.
            segment: The cleaned one.
        """
        for old in self.all[first : first + count]:
            old.replaced = True
            self.size -= old.size
            self.files.forget(old.path)
        self.all[first : first + count] = [segment]
        self.bases[first : first + count] = [segment.base]
        self.size += segment.size
        self.forget_hints()

    def roll(self, base: int) -> Segment:
        """
        Close the last segment and begin another.

        Raises:
            StorageFull: No space; nothing changed.
            TooManyOpenFiles: No descriptor; nothing changed.
            StorageError: A file of this name has content.
        """
        segment = Segment.at(self.folder, base)
        file = self.files.get(segment.path, create=True)
        if self.disk.size(file.descriptor):
            raise StorageError(f"{segment.path} is in the way of a new segment")
        if self.last is not None:
            self.save_index(self.last)
        self.add(segment)
        return segment

    def open(self, segment: Segment) -> OpenFile:
        """The open file of a segment."""
        return self.files.get(segment.path)

    def remove_first(self) -> Segment:
        """Remove the oldest segment's files."""
        segment = self.all.pop(0)
        del self.bases[0]
        self.remove(segment)
        return segment

    def remove_last(self) -> Segment:
        """Remove the newest segment's files."""
        segment = self.all.pop()
        del self.bases[-1]
        self.remove(segment)
        return segment

    def remove(self, segment: Segment) -> None:
        """Remove a segment's files; the list is the caller's."""
        self.size -= segment.size
        self.forget_hints()
        self.files.forget(segment.path)
        for path in (segment.path, segment.index_path, *map(segment.bad_path, segment.holes)):
            with contextlib.suppress(FileNotFoundError):
                self.disk.unlink(path)

    def close(self) -> None:
        """Write the last index and close the files."""
        if self.last is not None:
            self.save_index(self.last)
        for segment in self.all:
            self.files.forget(segment.path)

    def path(self, name: str) -> str:
        """A file in the log's folder."""
        return os.path.join(self.folder, name)
