"""
The leader epochs of a partition, with the first offset of each.

An epoch begins at every unclean start, so that a position from before a cut is
told apart from the same number given anew.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from tinymq.storage.disk import Disk
from tinymq.storage.sealed import Unreadable, seal, unseal

NAME: Final = "epochs"
_MAGIC: Final = b"TMQE"
_VERSION: Final = 1


class EpochFile:
    """
    A durable list of (epoch, first offset).

    Args:
        disk: The disk.
        path: The file; its folder is made with the first `bump`.

    Attributes:
        damaged: Whether the file was there but could not be read; the list is
            then empty, and the next `bump` needs a floor.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self.damaged = False
        self._entries: list[tuple[int, int]] = []
        content = disk.read_file(path)
        if content is not None:
            try:
                version, entries = unseal(_MAGIC, content, path)
                self._entries = [(int(epoch), int(offset)) for epoch, offset in entries]
                self.damaged = version != _VERSION
            except (Unreadable, TypeError, ValueError):
                self.damaged = True

    @property
    def entries(self) -> tuple[tuple[int, int], ...]:
        """All epochs with their first offsets, rising."""
        return tuple(self._entries)

    @property
    def current(self) -> int:
        """The latest epoch, -1 when there is none."""
        return self._entries[-1][0] if self._entries else -1

    def bump(self, start_offset: int, least: int = 0) -> int:
        """
        Begin a new epoch, durably.

        Args:
            start_offset: The next offset to be given.
            least: The new epoch is not below this, for a list that was lost.

        Returns:
            The new epoch.
        """
        epoch = max(self.current + 1, least)
        kept = [each for each in self._entries if each[1] < start_offset]
        self._save([*kept, (epoch, start_offset)])
        return epoch

    def at(self, offset: int) -> int:
        """The epoch in which an offset was given, -1 when that is before the first."""
        place = bisect_right(self._entries, offset, key=lambda each: each[1])
        return self._entries[place - 1][0] if place else -1

    def end_of(self, epoch: int, log_end: int) -> int:
        """
        The offset behind the last of an epoch.

        Args:
            epoch: The epoch; of an unknown one, the end of the one before it.
            log_end: The end of the log, which is the end of the latest epoch.
        """
        place = bisect_right(self._entries, epoch, key=lambda each: each[0])
        return self._entries[place][1] if place < len(self._entries) else log_end

    def truncate_to(self, offset: int) -> None:
        """Drop the epochs that began at an offset or behind it, durably."""
        kept = [each for each in self._entries if each[1] < offset]
        if kept != self._entries:
            self._save(kept)

    def _save(self, entries: list[tuple[int, int]]) -> None:
        folder = self._path.rpartition("/")[0]
        for parent in self._disk.make_folders(folder):
            self._disk.fsync_dir(parent)
        pairs = [list(each) for each in entries]
        self._disk.replace_file(self._path, seal(_MAGIC, [_VERSION, pairs]))
        self._entries = entries
