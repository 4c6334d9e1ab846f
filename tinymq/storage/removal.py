"""
The front of a log, from which it is removed: by retention, by a trim, by a purge.

A purge moves the start and keeps the files for a while, so that it can be taken
back; a fold does the same for those who read the files themselves. None of these
needs free space to remove files.
"""

from __future__ import annotations

from tinymq.errors import NothingToUndo, StorageFull, TooManyOpenFiles
from tinymq.storage import start as start_file
from tinymq.storage.facts import Due
from tinymq.storage.start import Start
from tinymq.storage.tail import Tail


class Removal(Tail):
    """The front of a log; `tinymq.storage.log.Log` is the whole."""

    def trim(self, to_offset: int) -> int:
        """
        Move the start up and remove the segments that lie wholly below it.

        Args:
            to_offset: The new start; nothing beyond what is synced is trimmed.

        Returns:
            Segments removed.
        """
        to_offset = min(to_offset, self.synced_offset)
        if to_offset <= self.start_offset:
            return 0
        self._move_start(self._start.trimmed(to_offset))
        return self._remove_below(self._start.floor)

    def fold(self, to_offset: int, deadline: int) -> None:
        """
        Move the start up; the segments below stay for a while, for `parts` alone.

        Args:
            to_offset: The new start; nothing beyond what is synced is folded.
            deadline: When `finish_purges` removes them, milliseconds since the epoch.
        """
        to_offset = min(to_offset, self.synced_offset)
        if to_offset > self.start_offset:
            before = Start(self.start_offset, self._start.purges)
            self._move_start(before.purged(to_offset, deadline))

    def let_go(self, most_bytes: int) -> int:
        """
        Remove the oldest segments below the start, while they hold more than so many bytes.

        Args:
            most_bytes: What may stay.

        Returns:
            Segments removed.
        """
        below = [each for each in self._segments.all[:-1] if each.end <= self.start_offset]
        size = sum(each.size for each in below)
        count = 0
        for segment in below:
            if size <= most_bytes:
                break
            size -= segment.size
            count += 1
        if count:
            self._remove(count)
        return count

    def expire(
        self,
        now_ms: int,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
        below: int | None = None,
    ) -> int:
        """
        Remove the segments that retention no longer keeps.

        By time a segment goes when its youngest message is too old, the last one
        too; by size only while more than the wanted bytes stay.

        Args:
            now_ms: The time.
            retention_ms: How long messages are kept; None: for ever.
            retention_bytes: How many bytes are kept; None: all.
            below: Segments that reach beyond this offset stay at any rate.

        Returns:
            Segments removed.
        """
        segments = self._segments
        gone = self._count_due(now_ms, retention_ms, retention_bytes)
        while below is not None and gone and segments.all[gone - 1].end > below:
            gone -= 1
        if gone == len(segments.all):
            gone = self._keep_last(gone)
        if gone:
            self._remove(gone)
        return gone

    def due(
        self, now_ms: int, retention_ms: int | None = None, retention_bytes: int | None = None
    ) -> list[Due]:
        """
        Tell what `expire` would remove, oldest first.

        Args:
            now_ms: The time.
            retention_ms: As for `expire`.
            retention_bytes: As for `expire`.
        """
        count = self._count_due(now_ms, retention_ms, retention_bytes)
        return [
            Due(each.end, each.size, each.first_time, each.max_time)
            for each in self._segments.all[:count]
        ]

    def remove_below(self, offset: int) -> int:
        """
        Remove the segments that lie wholly below an offset, but for the last.

        Returns:
            Segments removed.
        """
        return self._remove_below(min(offset, self.synced_offset))

    def _count_due(self, now_ms: int, retention_ms: int | None, retention_bytes: int | None) -> int:
        segments = self._segments
        gone = 0
        if retention_ms is not None:
            for segment in segments.all:
                if segment.max_time > now_ms - retention_ms or segment.end > self.synced_offset:
                    break
                gone += 1
        if retention_bytes is not None:
            left = segments.size - sum(each.size for each in segments.all[:gone])
            for segment in segments.all[gone:-1]:
                left -= segment.size
                if left < retention_bytes or segment.end > self.synced_offset:
                    break
                gone += 1
        return gone

    def _keep_last(self, gone: int) -> int:
        """Begin an empty segment, so that its name keeps the numbering when the others go."""
        last = self._segments.last
        if last is None or self._staged:
            return max(gone - 1, 0)
        if not last.size or not self._begin_empty():
            return gone - 1
        return gone

    def _begin_empty(self) -> bool:
        """Begin an empty segment durably; False when the disk has no room even for that."""
        try:
            self._roll(self.end_offset)
        except (StorageFull, TooManyOpenFiles):
            return False
        self._segments.disk.fsync_dir(self.path)
        return True

    def _remove(self, count: int) -> None:
        following = self._segments.all[count].base
        if following > self._noted:
            # No checkpoint knows these segments: if only some of their names went in
            # a power cut, recovery would take that for a lost write.
            self._move_start(self._start.removed(following))
        for _ in range(count):
            self._segments.remove_first()
        first = self._segments.all[0].base
        self.start_offset = max(self.start_offset, first)
        # Not written: the first file's name says as much at the next start.
        self._start = self._start.removed(first) if self._start != Start() else self._start

    def _remove_below(self, offset: int) -> int:
        count = 0
        for segment in self._segments.all[:-1]:
            if segment.end > offset:
                break
            count += 1
        if count:
            self._remove(count)
        return count

    def _move_start(self, start: Start) -> None:
        """Move the start up; a full disk must not keep segments from being removed."""
        try:
            self._save_start(start)
        except StorageFull:
            self._set_start(start)

    def _save_start(self, start: Start) -> None:
        if start == self._start:
            return
        if self._made:
            start_file.save(self._segments.disk, self.path, start)
        self._set_start(start)

    def _set_start(self, start: Start) -> None:
        self._start = start
        first = self._segments.all[0].base if self._segments.all else start.offset
        self.start_offset = max(start.offset, first)

    def purge(self, to_offset: int, now_ms: int, undo_ms: int) -> int:
        """
        Make everything below an offset unreadable, and keep the files for a while.

        What is purged is synced first, so that the start is never ahead of the
        log; this waits for the disk.

        Args:
            to_offset: The new start, at most the end.
            now_ms: The time.
            undo_ms: How long `undo_purge` can take it back.

        Returns:
            How many offsets were purged.
        """
        self.write()
        self.sync()
        before = self.start_offset
        to_offset = min(to_offset, self.written_offset)
        if to_offset <= before:
            return 0
        self._save_start(Start(before, self._start.purges).purged(to_offset, now_ms + undo_ms))
        return to_offset - before

    def undo_purge(self) -> int:
        """
        Take the last purge back.

        Returns:
            How many offsets are readable again.

        Raises:
            NothingToUndo: There was none, or its time has passed.
        """
        if not self._start.purges:
            raise NothingToUndo("no purge of this log can be undone any more")
        before = self.start_offset
        self._save_start(self._start.undone())
        return before - self.start_offset

    def finish_purges(self, now_ms: int) -> int:
        """
        Remove the files of purges whose time to undo has passed.

        Returns:
            Segments removed.
        """
        if not self._start.purges or self._start.purges[0].deadline > now_ms:
            return 0
        self._move_start(self._start.finished(now_ms))
        floor = self._start.floor
        last = self._segments.last
        if last is not None and last.size and last.end <= floor and not self._staged:
            self._begin_empty()
        return self._remove_below(floor)
