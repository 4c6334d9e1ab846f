"""
Writing a cleaned file: only once something of its first source changed.

Until then what is put is only counted, and when it changes the bytes so far are
copied from the source. So a file that loses nothing is read and not written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from tinymq.limits import KIB, MIB
from tinymq.storage import swap as swapping
from tinymq.storage.disk import Disk
from tinymq.storage.scan import MOST_RECORDS
from tinymq.storage.segment import Segment
from tinymq.storage.swap import Swap
from tinymq.wire.batch import BatchHeader, filler, read_header

#: Bytes that are written at a time.
_PIECE: Final = 256 * KIB
#: Bytes after which the disk is waited for, so that it has never much to do at once.
_SYNC: Final = 8 * MIB


class Mark(NamedTuple):
    """A place to go back to."""

    size: int
    end: int
    first_time: int
    max_time: int


class Run:
    """Batches side by side of which nothing stays."""

    def __init__(self) -> None:
        self._base = self._end = -1
        self._epoch = 0
        self._time = -1
        #: The batches, if all of them were fillers before; else None.
        self._fillers: list[tuple[int, bytes]] | None = []

    def copy(self) -> Run:
        """The same once more, to go back to."""
        other = Run()
        other._base, other._end = self._base, self._end
        other._epoch, other._time = self._epoch, self._time
        other._fillers = None if self._fillers is None else list(self._fillers)
        return other

    def add(self, header: BatchHeader, data: memoryview) -> None:
        """
        Take one more batch.

        Args:
            header: Its header.
            data: The batch.
        """
        if self._base < 0:
            self._base = header.base_offset
        self._end, self._time = header.next_offset, header.max_timestamp
        self._epoch = header.leader_epoch
        if header.records or header.producer_id >= 0 or self._fillers is None:
            self._fillers = None
        else:
            self._fillers.append((header.base_offset, bytes(data)))

    def end(self) -> tuple[list[bytes], bool]:
        """
        Begin anew.

        Returns:
            What stands for those that were taken, and whether it is something else than they.
        """
        if self._base < 0:
            return [], False
        starts = range(self._base, self._end, MOST_RECORDS)
        if self._fillers is not None and [base for base, _ in self._fillers] == list(starts):
            found, new = [data for _, data in self._fillers], False
        else:
            found, new = [self._filler(each) for each in starts], True
        self._base, self._fillers = -1, []
        return found, new

    def _filler(self, base: int) -> bytes:
        return filler(base, min(base + MOST_RECORDS, self._end), self._epoch, self._time)


class Output:
    """
    A cleaned file.

    Args:
        disk: The disk.
        folder: The log's folder.
        base: Its first offset.
        interval: Bytes between entries of its index.

    Attributes:
        differs: Whether something of a source changed.
        changed: Whether it is written, for that or because it has several sources.
        first: Gives the bytes of its first source.
    """

    def __init__(self, disk: Disk, folder: str, base: int, interval: int) -> None:
        self._disk = disk
        self._folder = folder
        self._interval = interval
        self._segment = Segment.at(folder, base)
        self._path = swapping.cleaned_path(folder, base)
        self._descriptor = -1
        self._buffer = bytearray()
        #: Bytes that are in the file, and those that the disk has.
        self._written = self._synced = 0
        self._finished = False
        self.changed = self.differs = False
        self.first: Callable[[], Iterator[bytes]] = lambda: iter(())

    @property
    def size(self) -> int:
        """Bytes so far."""
        return self._segment.size

    @property
    def times(self) -> tuple[int, int]:
        """Append time of the first batch, and the latest one."""
        return self._segment.first_time, self._segment.max_time

    def begin(self, content: Iterator[bytes]) -> None:
        """Go on with another source, so that it differs at any rate."""
        if not self.changed:
            self.first = lambda: content
            self._write()

    def change(self) -> None:
        """From here on something differs."""
        self.differs = True
        if not self.changed:
            self._write()

    def _write(self) -> None:
        self.changed = True
        self._descriptor = self._disk.open(self._path, create=True)
        self._disk.truncate(self._descriptor, 0)
        left = self.size
        for piece in self.first():
            if left <= 0:
                break
            self._buffer += piece[:left]
            left -= len(piece)
            self._flush(_PIECE)

    def put(self, batch: memoryview | bytes, pace: Callable[[int], None]) -> None:
        """
        Put a batch behind those that are there.

        Args:
            batch: A whole one.
            pace: Told of bytes that are written.
        """
        header = read_header(batch)
        self._segment.entered(
            header.base_offset, len(batch), header.next_offset, header.max_timestamp, self._interval
        )
        if self.changed:
            pace(len(batch))
            self._buffer += batch
            self._flush(_PIECE)

    def _flush(self, least: int) -> None:
        if len(self._buffer) < least:
            return
        view, position = memoryview(self._buffer), 0
        while position < len(view):
            position += self._disk.writev(
                self._descriptor, [view[position:]], self._written + position
            )
        view.release()
        self._written += len(self._buffer)
        self._buffer = bytearray()
        if self._written - self._synced >= _SYNC:
            self._disk.fdatasync(self._descriptor)
            self._synced = self._written

    def mark(self) -> Mark:
        """Remember where it ends."""
        segment = self._segment
        return Mark(segment.size, segment.end, segment.first_time, segment.max_time)

    def go_back(self, mark: Mark) -> None:
        """
        Take back what was put since.

        Args:
            mark: From `mark`.
        """
        segment = self._segment
        if self.changed:
            self._flush(1)
            self._disk.truncate(self._descriptor, mark.size)
            self._written = mark.size
            self._synced = min(self._synced, mark.size)
        if segment.index is not None:
            segment.index.cut(mark.size)
        segment.size, segment.end, segment.first_time, segment.max_time = mark

    def finish(self, pace: Callable[[int], None]) -> Swap:
        """
        Bring it to the disk with its index.

        Args:
            pace: Told of bytes that are written.

        Returns:
            What is meant with it.
        """
        self._flush(1)
        self._disk.fdatasync(self._descriptor)
        segment = self._segment
        if segment.index is not None:
            content = segment.index.encode(segment.facts)
            pace(len(content))
            path = swapping.cleaned_index_path(self._folder, segment.base)
            self._disk.write_file(path, content, durable=False)
        self._finished = True
        return Swap(segment.base, segment.end, segment.size)

    def close(self) -> None:
        """Close it; what was not finished is removed."""
        if self._descriptor >= 0:
            self._disk.close(self._descriptor)
            self._descriptor = -1
            if not self._finished:
                with suppress(FileNotFoundError):
                    self._disk.unlink(self._path)
