"""
One log: batches appended at its end, read from anywhere, removed from its front.

How it grows is in `tinymq.storage.tail`, how it shrinks in `tinymq.storage.removal`
and, by key, in `tinymq.storage.replacing`.
Nothing here waits for the disk except reading and what says so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from tinymq.errors import (
    OffsetOutOfRange,
    PartitionOffline,
    StorageError,
)
from tinymq.storage import recovery
from tinymq.storage.facts import (
    DEFAULT_CONFIG,
    Chunk,
    Gap,
    LogConfig,
    LogPoint,
    Part,
    RecoveryReport,
    SyncTicket,
)
from tinymq.storage.files import FileCache
from tinymq.storage.reader import read_chunk
from tinymq.storage.replacing import Replacing
from tinymq.storage.segment import Segment
from tinymq.storage.start import Start
from tinymq.wire.batch import BatchHeader

__all__ = ["Chunk", "Gap", "Log", "LogConfig", "LogPoint", "RecoveryReport", "SyncTicket"]


class Log(Replacing):
    """A folder of segments. Make one with `Log.open`."""

    @classmethod
    def open(
        cls,
        files: FileCache,
        path: str,
        config: LogConfig = DEFAULT_CONFIG,
        checkpoint: LogPoint | None = None,
        on_batch: Callable[[BatchHeader], None] | None = None,
    ) -> Log:
        """
        Open a log, recovering it when it was not stopped cleanly.

        Args:
            files: Open files, shared by all logs of a broker.
            path: The folder; made with the first write.
            config: How the log is cut into files.
            checkpoint: What was last noted. When a clean stop noted it and it
                fits the files, none of them is opened. Beyond it a lost write
                ends the log; without one, nothing is taken for unsynced.
            on_batch: Told of each batch that recovery reads.

        Raises:
            TooManyOpenFiles: No descriptor is left; nothing was changed.
            StorageError: The folder cannot be read.
        """
        try:
            log = cls(*recovery.open_segments(files, path, config, checkpoint, on_batch))
        except OSError as error:
            raise StorageError(f"{path} cannot be opened: {error}") from error
        if checkpoint is not None and log.report.clean:
            log.max_timestamp = max(log.max_timestamp, checkpoint.max_timestamp)
        if checkpoint is not None:
            log._go_on_behind(checkpoint.end)
        return log

    def _go_on_behind(self, synced: int) -> None:
        """Never give an offset anew that was synced once, whatever became of its file."""
        if self.end_offset < synced:
            self.report.add_gap(Gap(self.end_offset, synced, 0, "missing"))
            self.end_offset = self.written_offset = self.synced_offset = synced

    @property
    def oldest_timestamp(self) -> int | None:
        """Append time of the first readable batch; None when there is none."""
        if self.start_offset >= self.written_offset:
            return None
        first = self._segments.find(self.start_offset)
        if first is not None and self.start_offset <= first.base and not first.holes:
            return first.first_time if first.size else None
        found = next(self.headers(self.start_offset), None)
        return None if found is None else found.max_timestamp

    @property
    def undo_window(self) -> tuple[int, int] | None:
        """Until when the last purge can be undone, and how many offsets would come back."""
        if not self._start.purges:
            return None
        last = self._start.purges[-1]
        return last.deadline, last.to - last.before

    def bytes_between(self, start: int, end: int) -> int:
        """
        Tell how many bytes the batches between two offsets take.

        Args:
            start: The batch that contains it counts whole.
            end: Likewise it does not count.
        """
        total = 0
        for segment in self._segments.all:
            if segment.end <= start:
                continue
            if segment.base >= end:
                break
            first = self._segments.locate(segment, start)[0] if start > segment.base else 0
            last = self._segments.locate(segment, end)[0] if end < segment.end else segment.size
            total += last - first
        return total

    # --- reading -------------------------------------------------------------

    def read(
        self, offset: int, max_bytes: int, limit_offset: int, *, nowait: bool = False
    ) -> Chunk | None:
        """
        Read whole batches, from the one that contains an offset on.

        Damage is noticed here (checksums are checked the first time that bytes
        are read which this process did not write): it is put aside, reported,
        and passed over.

        Args:
            offset: Where to read.
            max_bytes: Most bytes; the first batch comes whole all the same.
            limit_offset: No batch that reaches this offset is read, nor one that
                is not written yet.
            nowait: Give None rather than wait for the disk. Finding the place of
                an offset that does not continue an earlier read may wait.

        Returns:
            A chunk, empty when there is nothing below the limit; its
            `next_offset` then still passes over a gap.

        Raises:
            OffsetOutOfRange: Below the start or beyond the end.
            TooManyOpenFiles: No descriptor is left; try again later.
            StorageError: The disk cannot read.
        """
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} is not within {self.start_offset} to {self.end_offset}",
                start=self.start_offset,
                end=self.end_offset,
            )
        limit = min(limit_offset, self.written_offset)
        fetch = self._fetch_cached if nowait else self._segments.read
        return read_chunk(self._segments, offset, max_bytes, limit, fetch)

    def _fetch_cached(self, segment: Segment, size: int, position: int) -> bytes | None:
        file = self._segments.open(segment)
        return self._segments.disk.pread_cached(file.descriptor, size, position)

    def warmer(self, offset: int, max_bytes: int) -> Callable[[], None]:
        """
        Give a function that brings bytes into the page cache.

        It touches nothing of this object and may run in another thread; after
        it, ``read(..., nowait=True)`` finds its data.

        Args:
            offset: Where to read.
            max_bytes: How much.
        """
        segment = self._segments.find(offset)
        if segment is None:
            return lambda: None
        position, _ = self._segments.locate(segment, max(offset, segment.base))
        disk, path = self._segments.disk, segment.path

        def warm() -> None:
            with contextlib.suppress(OSError, StorageError):
                descriptor = disk.open(path)
                try:
                    disk.pread(descriptor, max_bytes, position)
                finally:
                    disk.close(descriptor)

        return warm

    def parts(self, since_ms: int = -1) -> list[Part]:
        """
        Tell where the batches lie, those below the start too, for who reads them elsewhere.

        Args:
            since_ms: Files that hold only what is older are left out.
        """
        return [
            Part(each.path, each.size, each.base, each.first_time)
            for each in self._segments.all
            if each.size and each.max_time >= since_ms
        ]

    @property
    def kept_since(self) -> tuple[int, int]:
        """The first offset whose bytes are still there, and the append time of its batch."""
        first = next((each for each in self._segments.all if each.size), None)
        if first is None:
            return self.end_offset, self.max_timestamp
        return first.base, first.first_time

    def headers(self, offset: int | None = None) -> Iterator[BatchHeader]:
        """
        Yield the headers of all good batches, checking each.

        Args:
            offset: Begin with the batch that contains this offset; with the
                first readable one by default.
        """
        offset = self.start_offset if offset is None else offset
        while (segment := self._segments.find(offset)) is not None:
            position, base = self._segments.locate(segment, offset)
            for _, header in self._segments.headers(segment, position, base):
                if header.base_offset >= self.written_offset:
                    return
                offset = max(offset, header.next_offset)
                yield header
            if not segment.replaced:
                offset = max(offset, segment.end)

    def offset_for_time(self, time_ms: int) -> tuple[int, int] | None:
        """
        Find the first batch that was appended at a time or later.

        Returns:
            Its first offset, not below the start, and its append time; None when
            all are older.
        """
        for segment in self._segments.all:
            if segment.max_time < time_ms or segment.end <= self.start_offset:
                continue
            base, position = self._segments.index(segment).before_time(time_ms) or (
                segment.base,
                0,
            )
            headers = self._segments.headers(
                segment, position, base, self._segments.window, segment.checked
            )
            for _, header in headers:
                late = header.max_timestamp >= time_ms and header.next_offset > self.start_offset
                if late and header.base_offset < self.written_offset:
                    return max(header.base_offset, self.start_offset), header.max_timestamp
        return None

    # --- cutting -------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """
        Cut everything from an offset on, and all that is staged.

        A batch that contains the offset goes whole. This waits for the disk. A
        checkpoint must be saved before anything is appended again: those saved
        before take the bytes that follow here for synced.

        Args:
            offset: The new end, at most; not below the start.
        """
        self._unstage()
        offset = max(offset, self.start_offset)
        if offset >= self.end_offset:
            return
        segments = self._segments
        while segments.last is not None and segments.last.base >= offset > 0:
            if len(segments.all) == 1:
                break
            segments.remove_last()
        segment = segments.last
        if segment is None:
            return
        if offset < segment.end:
            position, base = segments.locate(segment, offset)
            self._cut(segment, position, base)
        segments.disk.fsync_dir(self.path)
        end = max(segment.end, self.start_offset)
        if segment.end < end:
            # The first batch was purged in part and went: nothing is left to undo.
            self._save_start(Start(end))
        self.end_offset = self.written_offset = end
        self.synced_offset = min(self.synced_offset, end)
        if self._synced_last is not None and self._synced_last.end > segment.end:
            self._synced_last = segment.point
        self.max_timestamp = max(each.max_time for each in segments.all)

    def _cut(self, segment: Segment, position: int, base: int) -> None:
        segments = self._segments
        index = segments.index(segment)
        file = segments.open(segment)
        segments.disk.truncate(file.descriptor, position)
        segments.disk.fdatasync(file.descriptor)
        index.cut(position)
        segments.forget_hints()
        segments.size -= segment.size - position
        segment.holes = [each for each in segment.holes if each.position < position]
        segment.size, segment.end = position, base
        segment.checked = min(segment.checked, position)
        times = [each.max_timestamp for _, each in segments.headers(segment)]
        segment.max_time = max(times, default=-1)

    # --- stopping ------------------------------------------------------------

    def checkpoint(self) -> LogPoint:
        """
        What is on the disk; bytes written since the last sync are not counted.

        Raises:
            PartitionOffline: What is on the disk is not known.
        """
        if self.offline is not None:
            raise self.offline
        last = self._synced_last
        points = []
        for segment in self._segments.all:
            if segment.end > self.synced_offset:
                if last is not None and last.base == segment.base:
                    points.append(last)
                break
            points.append(segment.point)
        time = max((each.max_time for each in points), default=-1)
        self._noted = self.synced_offset
        rests = self.synced_offset == self.written_offset == self.end_offset
        if rests:
            time = max(time, self.max_timestamp)
        return LogPoint(self.start_offset, self.synced_offset, time, tuple(points), clean=rests)

    def close(self) -> None:
        """Close the files; what is staged is dropped, what is written stays as it is."""
        self._unstage()
        self._segments.close()
        if self.offline is None:
            self.offline = PartitionOffline(f"{self.path} is closed")

    def forget_files(self) -> None:
        """Close the descriptors before the folder is renamed or removed."""
        for segment in self._segments.all:
            self._segments.files.forget(segment.path)
