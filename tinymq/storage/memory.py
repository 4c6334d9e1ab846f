"""
A log in memory: the face of `Log`, bounded, gone with the process.

When it is full the oldest batches go, counted; nothing waits and nothing fails.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from typing import Final

from attrs import define

from tinymq.errors import InvalidRequest, NothingToUndo, OffsetOutOfRange, PartitionOffline
from tinymq.limits import MIB
from tinymq.storage.disk import Piece
from tinymq.storage.facts import Chunk, Due, LogPoint, Part, RecoveryReport, SyncTicket
from tinymq.storage.tasks import Cleaned, Source
from tinymq.wire.batch import BatchHeader, read_header

DEFAULT_MAX_BYTES: Final = 64 * MIB


@define
class _Batch:
    data: bytes
    base: int
    following: int
    time: int
    #: Bytes that were ever written before it.
    position: int = 0


@define
class _Purge:
    before: int
    to: int
    deadline: int


class MemoryLog:
    """
    Batches in memory.

    Args:
        max_bytes: Most bytes kept, and a little less once it was full; at least
            one batch stays.
        name: What it is called in errors.

    Attributes:
        start_offset: First readable offset.
        end_offset: The next offset to be given, staged batches counted.
        written_offset: Everything below it is readable.
        max_timestamp: Latest append time, -1 when there was none; never falls.
        offline: Set once it is closed.
        size_bytes: Bytes kept.
        dropped_records: Offsets that went because it was full.
        dropped_bytes: Their bytes.
        report: Always empty: there is nothing to recover.
    """

    def __init__(self, max_bytes: int = DEFAULT_MAX_BYTES, name: str = "a memory log") -> None:
        self.path = name
        self.max_bytes = max_bytes
        self.start_offset = self.end_offset = self.written_offset = 0
        self.max_timestamp = -1
        self.offline: PartitionOffline | None = None
        self.size_bytes = self.staged_bytes = 0
        self._position = 0
        self.dropped_records = self.dropped_bytes = 0
        self.report = RecoveryReport(clean=True)
        self._batches: list[_Batch] = []
        self._staged: list[_Batch] = []
        self._purges: list[_Purge] = []

    @property
    def synced_offset(self) -> int:
        """What counts as safe: everything written, for there is no disk."""
        return self.written_offset

    @property
    def segment_count(self) -> int:
        """There are no files."""
        return 0

    @property
    def oldest_timestamp(self) -> int | None:
        """Append time of the first readable batch, as `Log.oldest_timestamp`."""
        place = self._place(self.start_offset)
        return self._batches[place].time if place < len(self._batches) else None

    @property
    def undo_window(self) -> tuple[int, int] | None:
        """The last purge, as `Log.undo_window`."""
        if not self._purges:
            return None
        last = self._purges[-1]
        return last.deadline, last.to - last.before

    def bytes_between(self, start: int, end: int) -> int:
        """Tell how many bytes lie between two offsets, as `Log.bytes_between`."""
        return max(0, self._position_at(end) - self._position_at(start))

    def _position_at(self, offset: int) -> int:
        place = self._place(offset)
        return self._batches[place].position if place < len(self._batches) else self._position

    def append(
        self,
        batch: Piece | Sequence[Piece],
        base_offset: int,
        last_offset: int,
        timestamp: int,
    ) -> None:
        """Stage a stamped batch, as `Log.append` does."""
        if self.offline is not None:
            raise self.offline
        if base_offset != self.end_offset or last_offset < base_offset:
            raise InvalidRequest(
                f"offsets {base_offset} to {last_offset} do not follow {self.end_offset}"
            )
        pieces = (batch,) if isinstance(batch, (bytes, bytearray, memoryview)) else batch
        data = b"".join(pieces)
        self.max_timestamp = max(self.max_timestamp, timestamp)
        self._staged.append(_Batch(data, base_offset, last_offset + 1, self.max_timestamp))
        self.end_offset = last_offset + 1
        self.staged_bytes += len(data)

    def write(self) -> None:
        """Make staged batches readable, and drop the oldest ones over the bound."""
        if self.offline is not None:
            raise self.offline
        for each in self._staged:
            each.position = self._position
            self._position += len(each.data)
        self._batches += self._staged
        self._staged = []
        self.size_bytes += self.staged_bytes
        self.staged_bytes = 0
        self.written_offset = self.end_offset
        over = self.size_bytes - self.max_bytes
        if over > 0:
            # A little more, so that the list is not moved up with every write.
            over += self.max_bytes // 32
        count = 0
        while over > 0 and count < len(self._batches) - 1:
            over -= len(self._batches[count].data)
            count += 1
        if count:
            before, size = self.start_offset, self.size_bytes
            self._drop(count)
            self.dropped_records += self.start_offset - before
            self.dropped_bytes += size - self.size_bytes

    def _drop(self, count: int) -> None:
        gone = self._batches[:count]
        del self._batches[:count]
        self.size_bytes -= sum(len(each.data) for each in gone)
        self.start_offset = max(self.start_offset, gone[-1].following)

    def begin_sync(self) -> SyncTicket | None:
        """There is never anything to sync."""
        return None

    def end_sync(self, ticket: SyncTicket, error: OSError | None = None) -> None:
        """Never called, for there are no tickets."""

    def sync(self) -> None:
        """There is nothing to sync."""

    def _place(self, offset: int) -> int:
        """Place of the batch with an offset, or of the next one."""
        place = bisect_right(self._batches, offset, key=lambda each: each.base)
        return place - 1 if place and offset < self._batches[place - 1].following else place

    def read(
        self, offset: int, max_bytes: int, limit_offset: int, *, nowait: bool = False
    ) -> Chunk | None:
        """Read whole batches, as `Log.read` does; never None."""
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} is not within {self.start_offset} to {self.end_offset}",
                start=self.start_offset,
                end=self.end_offset,
            )
        found: list[bytes] = []
        first = following = offset
        for place in range(self._place(offset), len(self._batches)):
            batch = self._batches[place]
            max_bytes -= len(batch.data)
            if batch.following > limit_offset or (found and max_bytes < 0):
                break
            if not found:
                first = batch.base
            found.append(batch.data)
            following = batch.following
        data = found[0] if len(found) == 1 else b"".join(found)
        return Chunk(data, first, following)

    def warmer(self, offset: int, max_bytes: int) -> Callable[[], None]:
        """There is no disk to wait for."""
        return lambda: None

    def headers(self, offset: int | None = None) -> Iterator[BatchHeader]:
        """Yield the headers of the batches from the one with an offset on."""
        offset = self.start_offset if offset is None else offset
        for batch in self._batches[self._place(offset) :]:
            yield read_header(batch.data)

    def offset_for_time(self, time_ms: int) -> tuple[int, int] | None:
        """Find the first readable batch of a time or later, as `Log.offset_for_time` does."""
        place = bisect_left(self._batches, time_ms, key=lambda each: each.time)
        place = max(place, self._place(self.start_offset))
        if place == len(self._batches):
            return None
        return max(self._batches[place].base, self.start_offset), self._batches[place].time

    def trim(self, to_offset: int) -> int:
        """
        Move the start up and drop the batches wholly below it.

        Returns:
            Batches dropped.
        """
        to_offset = min(to_offset, self.written_offset)
        if to_offset <= self.start_offset:
            return 0
        self.start_offset = to_offset
        self._purges.clear()
        return self._drop_below(to_offset)

    def fold(self, to_offset: int, deadline: int) -> None:
        """Move the start up; memory keeps nothing below it."""
        self.trim(to_offset)

    def let_go(self, most_bytes: int) -> int:
        """Remove nothing: nothing is kept below the start."""
        return 0

    def parts(self, since_ms: int = -1) -> list[Part]:
        """Tell of no files."""
        return []

    @property
    def kept_since(self) -> tuple[int, int]:
        """The first offset that is there, and the append time of its batch, as `Log`."""
        time = self.oldest_timestamp
        return self.start_offset, self.max_timestamp if time is None else time

    def _drop_below(self, offset: int) -> int:
        count = sum(1 for _ in takewhile(lambda each: each.following <= offset, self._batches))
        if count:
            self._drop(count)
        return count

    def expire(
        self,
        now_ms: int,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
        below: int | None = None,
    ) -> int:
        """
        Drop the batches that retention no longer keeps, as `Log.expire`.

        Returns:
            Batches dropped.
        """
        count = self._count_due(now_ms, retention_ms, retention_bytes)
        while below is not None and count and self._batches[count - 1].following > below:
            count -= 1
        if count:
            self._drop(count)
        return count

    def due(
        self, now_ms: int, retention_ms: int | None = None, retention_bytes: int | None = None
    ) -> list[Due]:
        """Tell what `expire` would drop, oldest first."""
        count = self._count_due(now_ms, retention_ms, retention_bytes)
        return [
            Due(each.following, len(each.data), each.time, each.time)
            for each in self._batches[:count]
        ]

    def remove_below(self, offset: int) -> int:
        """Drop the batches that lie wholly below an offset."""
        return self._drop_below(min(offset, self.written_offset))

    def _count_due(self, now_ms: int, retention_ms: int | None, retention_bytes: int | None) -> int:
        count = 0
        if retention_ms is not None:
            oldest = now_ms - retention_ms
            count = sum(1 for _ in takewhile(lambda each: each.time <= oldest, self._batches))
        if retention_bytes is not None:
            left = self.size_bytes - sum(len(each.data) for each in self._batches[:count])
            for batch in self._batches[count:-1]:
                left -= len(batch.data)
                if left < retention_bytes:
                    break
                count += 1
        return count

    def purge(self, to_offset: int, now_ms: int, undo_ms: int) -> int:
        """Make everything below an offset unreadable, as `Log.purge` does."""
        self.write()
        before = self.start_offset
        to_offset = min(to_offset, self.written_offset)
        if to_offset <= before:
            return 0
        self._purges.append(_Purge(before, to_offset, now_ms + undo_ms))
        self.start_offset = to_offset
        return to_offset - before

    def undo_purge(self) -> int:
        """Take the last purge back, as `Log.undo_purge` does."""
        if not self._purges:
            raise NothingToUndo("no purge of this log can be undone any more")
        before = self.start_offset
        first = self._batches[0].base if self._batches else before
        self.start_offset = min(before, max(self._purges.pop().before, first))
        return before - self.start_offset

    def finish_purges(self, now_ms: int) -> int:
        """
        Drop what was purged and can no longer be taken back.

        Returns:
            Batches dropped.
        """
        over = [each for each in self._purges if each.deadline <= now_ms]
        if not over:
            return 0
        self._purges = [each for each in self._purges if each.deadline > now_ms]
        floor = self._purges[0].before if self._purges else self.start_offset
        return self._drop_below(min(floor, self.start_offset))

    def truncate_to(self, offset: int) -> None:
        """Cut everything from an offset on; a batch that contains it goes whole."""
        self._staged, self.staged_bytes = [], 0
        if offset < self.written_offset:
            place = self._place(offset)
            self._position = self._position_at(offset)
            self.size_bytes -= sum(len(each.data) for each in self._batches[place:])
            offset = self._batches[place].base if place < len(self._batches) else offset
            del self._batches[place:]
            self.written_offset = max(offset, self.start_offset)
        self.end_offset = self.written_offset

    def sources(self, start: int, end: int) -> list[Source]:
        """There are no files to clean."""
        return []

    def files_from(self, offset: int) -> list[Source]:
        """There are no files."""
        return []

    def time_of(self, end: int) -> int:
        """There are no files."""
        return -1

    def close_file(self) -> bool:
        """There are no files."""
        return False

    def swap(self, cleaned: Cleaned) -> bool:
        """There are no files."""
        return False

    def checkpoint(self) -> LogPoint:
        """The state without content; it fits no files."""
        return LogPoint(self.start_offset, self.end_offset, self.max_timestamp, ())

    def close(self) -> None:
        """Forget everything."""
        self._batches, self._staged = [], []
        if self.offline is None:
            self.offline = PartitionOffline(f"{self.path} is closed")

    def forget_files(self) -> None:
        """There are no files."""
