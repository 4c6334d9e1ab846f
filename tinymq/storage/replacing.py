"""The middle of a log: closed files, whose place cleaned ones take."""

from __future__ import annotations

from bisect import bisect_left

from tinymq.storage import swap as swapping
from tinymq.storage.removal import Removal
from tinymq.storage.segment import Segment
from tinymq.storage.tasks import Cleaned, Source


class Replacing(Removal):
    """The closed files of a log; `tinymq.storage.log.Log` is the whole."""

    def sources(self, start: int, end: int) -> list[Source]:
        """
        Tell which closed files may be cleaned: what is in them is on the disk.

        Args:
            start: Files wholly below it are left out.
            end: Likewise those that reach beyond it.
        """
        end = min(end, self.synced_offset)
        return [
            Source(each.base, each.end, each.size, sound=not each.holes)
            for each in self._segments.all[:-1]
            if each.end > start and each.end <= end and each.size
        ]

    def files_from(self, offset: int) -> list[Source]:
        """
        Tell of the files from one on, the last one too, as far as they are written.

        Args:
            offset: The first offset of the first of them.
        """
        return [
            Source(each.base, each.end, each.size, sound=not each.holes)
            for each in self._segments.all
            if each.base >= offset and each.size
        ]

    def time_of(self, end: int) -> int:
        """
        Tell the latest append time in a closed file.

        Args:
            end: The offset behind its last record.
        """
        return max((each.max_time for each in self._segments.all if each.end == end), default=-1)

    def close_file(self) -> bool:
        """
        Begin an empty file, so that the last one is closed; this waits for the disk.

        Returns:
            Whether the last one has something and is closed now.
        """
        last = self._segments.last
        if self.offline is not None or last is None or not last.size or self._staged:
            return False
        return self._begin_empty()

    def swap(self, cleaned: Cleaned) -> bool:
        """
        Let a cleaned file take the place of those that it was made from.

        It is on the disk; `tinymq.storage.swap.finish` has to follow, in another thread.

        Args:
            cleaned: The file.

        Returns:
            False if it cannot: they are not what they were.
        """
        segments, count = self._segments, len(cleaned.sources)
        first = bisect_left(segments.bases, cleaned.base)
        old = segments.all[first : first + count]
        same = tuple((each.base, each.size) for each in old) == cleaned.sources
        closed = first + count < len(segments.all) and cleaned.end <= self.synced_offset
        if self.offline is not None or not same or not closed or any(each.holes for each in old):
            return False
        if old[-1].end != cleaned.end or (count > 1 and cleaned.size == old[0].size):
            return False
        swapping.rename(segments.disk, self.path, cleaned.base)
        segment = Segment.at(self.path, cleaned.base)
        segment.size, segment.end, segment.index = cleaned.size, cleaned.end, None
        segment.first_time, segment.max_time = cleaned.first_time, cleaned.max_time
        segments.replace(first, count, segment)
        return True
