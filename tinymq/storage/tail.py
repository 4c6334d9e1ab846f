"""
The growing end of a log: staging, writing, and what syncing made certain.

::

    floor          start                    synced     written     end
      | undo window  |  readable              |           |         |
      v              v                        v           v         v
    --[..............[========================[-----------[ staged  [

``append`` stages, ``write`` hands to the kernel in one call, ``begin_sync`` and
``end_sync`` frame a sync that a `Syncer` does. Nothing here waits for the disk
except what says so.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from tinymq.errors import (
    InvalidRequest,
    PartitionOffline,
    StorageError,
    StorageFull,
    TinyMQError,
    TooManyOpenFiles,
)
from tinymq.storage.disk import IOV_MAX, Piece
from tinymq.storage.facts import RecoveryReport, SyncTicket
from tinymq.storage.files import OpenFile
from tinymq.storage.segment import Segment
from tinymq.storage.segments import Segments
from tinymq.storage.start import Start

#: Pieces, size, base offset, offset behind it, append time.
_Staged = tuple[Sequence[Piece], int, int, int, int]


class Tail:
    """
    The end of a log; `tinymq.storage.log.Log` is the whole.

    Args:
        segments: The files.
        start: Where the log starts.

    Attributes:
        path: The folder.
        config: How the log is cut into files.
        start_offset: First readable offset.
        end_offset: The next offset to be given, staged batches counted.
        written_offset: Everything below it was handed to the kernel.
        synced_offset: Everything below it is on the disk.
        max_timestamp: Latest append time, -1 when there was none; never falls.
        offline: Why the log takes nothing any more, None while it does.
    """

    def __init__(self, segments: Segments, start: Start) -> None:
        last = segments.last
        self.path = segments.folder
        self.config = segments.config
        self._segments = segments
        self._start = start
        first = segments.all[0].base if segments.all else 0
        self.start_offset = max(start.offset, first)
        end = max(start.offset, last.end if last is not None else 0)
        self.end_offset = self.written_offset = self.synced_offset = end
        self.max_timestamp = max((each.max_time for each in segments.all), default=-1)
        self.offline: TinyMQError | None = None
        self._staged: list[_Staged] = []
        self._dirty: list[OpenFile] = []
        self._dirty_folders: list[str] = []
        self._syncing: list[SyncTicket] = []
        self._made = self._named = bool(segments.all)
        #: Up to here a checkpoint knows the log, or will in a moment.
        self._noted = end
        self._synced_last = last.point if last is not None else None

    @property
    def report(self) -> RecoveryReport:
        """What opening found, and what reading found since."""
        return self._segments.report

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments, purged ones that can be undone counted."""
        return self._segments.size

    @property
    def staged_bytes(self) -> int:
        """Bytes that wait for `write`."""
        return sum(each[1] for each in self._staged)

    @property
    def segment_count(self) -> int:
        """How many files the batches lie in."""
        return len(self._segments.all)

    # --- appending -----------------------------------------------------------

    def append(
        self,
        batch: Piece | Sequence[Piece],
        base_offset: int,
        last_offset: int,
        timestamp: int,
    ) -> None:
        """
        Stage a stamped batch; `write` writes it.

        Args:
            batch: The bytes, whole or in pieces; not to be changed until written.
            base_offset: Its first offset; must be `end_offset`.
            last_offset: Its last offset.
            timestamp: Append time, milliseconds since the epoch.

        Raises:
            PartitionOffline: The log takes nothing any more.
        """
        if self.offline is not None:
            raise self.offline
        if base_offset != self.end_offset or last_offset < base_offset:
            raise InvalidRequest(
                f"offsets {base_offset} to {last_offset} do not follow {self.end_offset}"
            )
        pieces = (batch,) if isinstance(batch, (bytes, bytearray, memoryview)) else batch
        size = sum(map(len, pieces))
        following = last_offset + 1
        self._staged.append((pieces, size, base_offset, following, timestamp))
        self.end_offset = following
        self.max_timestamp = max(self.max_timestamp, timestamp)

    def write(self) -> None:
        """
        Hand all staged batches to the kernel.

        Raises:
            StorageFull: What could not be written is un-staged: `end_offset` is
                `written_offset` again, and the file ends with a whole batch.
            TooManyOpenFiles: Likewise.
            PartitionOffline: The disk failed; the log takes nothing any more.
        """
        if self.offline is not None:
            raise self.offline
        staged = self._staged
        try:
            while staged:
                segment = self._room(staged[0])
                run = self._run(segment)
                self._write_run(segment, staged[:run])
                del staged[:run]
        except StorageError:
            self._unstage()
            raise
        except OSError as error:
            self._unstage()
            raise self._fail("written", error) from error

    def _room(self, first: _Staged) -> Segment:
        """The segment that the next batch goes to, a new one when need be."""
        _, size, base, _, timestamp = first
        segment = self._segments.last
        if segment is not None and segment.end == base:
            full = segment.size and segment.size + size > self.config.segment_bytes
            if not full and not self._too_old(segment.first_time, timestamp):
                if segment.index is None:
                    self._segments.index(segment)
                return segment
        return self._roll(base)

    def _too_old(self, first_time: int, timestamp: int) -> bool:
        age = self.config.segment_ms
        return age is not None and 0 <= first_time <= timestamp - age

    def _roll(self, base: int) -> Segment:
        if not self._made:
            self._segments.disk.make_folders(self.path)
            self._dirty_folders += _above(self.path)
            self._made = True
        if not self._named and self._segments.all:
            # Once: or the first name could be lost while the second is kept, and
            # the log would seem to begin there.
            self._segments.disk.fsync_dir(self.path)
            self._named = True
        segment = self._segments.roll(base)
        self._dirty_folders.append(self.path)
        return segment

    def _run(self, segment: Segment) -> int:
        """How many staged batches go into the segment, at least one."""
        room = self.config.segment_bytes - segment.size
        first_time = segment.first_time if segment.size else self._staged[0][4]
        count = 0
        for _, size, _, _, timestamp in self._staged:
            room -= size
            if count and (room < 0 or self._too_old(first_time, timestamp)):
                break
            count += 1
        return count

    def _write_run(self, segment: Segment, run: Sequence[_Staged]) -> None:
        file = self._segments.open(segment)
        buffers = [piece for each in run for piece in each[0]]
        try:
            self._write_all(file, buffers, segment.size)
        except (OSError, StorageFull):
            try:
                self._segments.disk.truncate(file.descriptor, segment.size)
            except OSError as error:
                raise self._fail("cut back after a failed write", error) from error
            raise
        if not file.dirty:
            file.dirty = True
            self._dirty.append(file)
        segments, start, interval = self._segments, segment.size, self.config.index_interval
        segments.tail = (run[0][2], start)
        for _, size, base, following, timestamp in run:
            segment.entered(base, size, following, timestamp, interval)
        segments.size += segment.size - start
        if segment.checked == start:
            segment.checked = segment.size
        self.written_offset = segment.end

    def _write_all(self, file: OpenFile, buffers: list[Piece], position: int) -> None:
        disk = self._segments.disk
        while buffers:
            part = buffers[:IOV_MAX]
            wanted = sum(map(len, part))
            got = disk.writev(file.descriptor, part, position)
            position += got
            if got == wanted:
                if len(part) == len(buffers):
                    return
                del buffers[:IOV_MAX]
            elif got:
                buffers = _behind(buffers, got)
            else:
                raise StorageFull("the disk takes no more bytes")

    def _unstage(self) -> None:
        self._staged.clear()
        self.end_offset = self.written_offset

    def _fail(self, what: str, error: OSError) -> PartitionOffline:
        offline = PartitionOffline(
            f"{self.path} could not be {what} ({error.strerror or error}); it stays offline "
            "until the broker is started again"
        )
        if self.offline is None:
            self.offline = offline
        return offline

    # --- syncing -------------------------------------------------------------

    def begin_sync(self) -> SyncTicket | None:
        """
        Say what must be synced so that everything written so far is on the disk.

        Returns:
            A ticket for a `Syncer`, then for `end_sync`; None when there is
            nothing to do. What another ticket is at work on is in it too: that
            one may fail, or end later.
        """
        if self.written_offset == self.synced_offset and not self._dirty:
            return None
        waiting = [file for ticket in self._syncing for file in ticket.files]
        files = tuple(each for each in (*waiting, *self._dirty) if not each.forgotten)
        files = tuple({id(each): each for each in files}.values())
        for file in files:
            self._segments.files.pin(file)
        entered = [folder for ticket in self._syncing for folder in ticket.folders]
        folders = tuple(dict.fromkeys((*entered, *self._dirty_folders)))
        self._dirty, self._dirty_folders = [], []
        last = self._segments.last
        point = last.point if last is not None else None
        ticket = SyncTicket(files, folders, self.written_offset, point)
        self._syncing.append(ticket)
        return ticket

    def end_sync(self, ticket: SyncTicket, error: OSError | None = None) -> None:
        """
        Take the result of a sync.

        Args:
            ticket: From `begin_sync`.
            error: Why it failed. The log then goes offline for good: what the
                kernel could not write is gone, and a second try would succeed
                without it.
        """
        if ticket in self._syncing:
            self._syncing.remove(ticket)
        for file in ticket.files:
            self._segments.files.unpin(file)
        if error is not None:
            self._unstage()
            self._fail("synced", error)
        elif self.offline is None and ticket.end > self.synced_offset:
            self._named = True
            self.synced_offset = min(ticket.end, self.written_offset)
            self._synced_last = ticket.last

    def sync(self) -> None:
        """
        Sync at once, waiting for the disk.

        Raises:
            PartitionOffline: It failed.
        """
        ticket = self.begin_sync()
        if ticket is None:
            return
        disk = self._segments.disk
        failed: OSError | None = None
        try:
            for folder in ticket.folders:
                disk.fsync_dir(folder)
            for file in ticket.files:
                disk.fdatasync(file.descriptor)
        except OSError as error:
            failed = error
        except TooManyOpenFiles:
            self._dirty_folders[:0] = ticket.folders
            self._mark_dirty(ticket.files)
            ticket.end = -1  # it made nothing certain
            self.end_sync(ticket)
            raise
        self.end_sync(ticket, failed)
        if self.offline is not None:
            raise self.offline

    def _mark_dirty(self, files: Sequence[OpenFile]) -> None:
        for file in files:
            if not file.dirty:
                file.dirty = True
                self._dirty.append(file)


def _above(path: str) -> list[str]:
    """
    The folders whose entries lead to a new log: partition, topic, all topics.

    Those that another log made are among them: its sync may come later than ours.
    """
    found: list[str] = []
    for _ in range(3):
        path = os.path.dirname(path)
        found.append(path)
    return found


def _behind(buffers: list[Piece], got: int) -> list[Piece]:
    """The buffers without their first `got` bytes."""
    for place, piece in enumerate(buffers):
        if got < len(piece):
            return [memoryview(piece)[got:], *buffers[place + 1 :]]
        got -= len(piece)
    return []
