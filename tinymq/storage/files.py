"""
Open files, bounded: one `FileCache` is shared by all logs of a broker.

A file that is not yet synced, or that a sync is at work on, stays open: the
kernel reports a failed write-back only to descriptors that were open before.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from typing import Final

from attrs import define

from tinymq.errors import TooManyOpenFiles
from tinymq.storage.disk import Disk

DEFAULT_MAX_OPEN: Final = 256


@define(eq=False)
class OpenFile:
    """
    An open file.

    Attributes:
        path: Its name when it was opened.
        descriptor: Its descriptor, -1 once closed.
        dirty: Written since the last sync began.
        pins: Syncs at work on it.
        forgotten: To be closed with the last pin.
    """

    path: str
    descriptor: int
    dirty: bool = False
    pins: int = 0
    forgotten: bool = False

    @property
    def idle(self) -> bool:
        """Whether it may be closed."""
        return not self.dirty and not self.pins


class FileCache:
    """
    Opens files on demand and closes those that were not used for longest.

    Args:
        disk: The disk.
        max_open: Most files kept open; unsynced ones may exceed it.
    """

    def __init__(self, disk: Disk, max_open: int = DEFAULT_MAX_OPEN) -> None:
        self.disk = disk
        self.max_open = max_open
        #: Whether all that lay on the disk at start was synced, so that no log need do it.
        self.settled = False
        self._files: OrderedDict[str, OpenFile] = OrderedDict()

    def __len__(self) -> int:
        return len(self._files)

    def get(self, path: str, *, create: bool = False) -> OpenFile:
        """
        Give the open file of this name, opening it if need be.

        Args:
            path: The file.
            create: Make it when it does not exist.

        Raises:
            TooManyOpenFiles: No descriptor is left, even with idle files closed.
            FileNotFoundError: There is no such file.
        """
        file = self._files.get(path)
        if file is not None:
            self._files.move_to_end(path)
            return file
        if len(self._files) >= self.max_open:
            self._close_idle(len(self._files) - self.max_open + 1)
        try:
            descriptor = self.disk.open(path, create=create)
        except TooManyOpenFiles:
            if not self._close_idle(max(1, len(self._files) // 2)):
                raise
            descriptor = self.disk.open(path, create=create)
        file = self._files[path] = OpenFile(path, descriptor)
        return file

    def pin(self, file: OpenFile) -> None:
        """Keep a dirty file open while a sync is at work on it; new writes are dirty anew."""
        file.dirty = False
        file.pins += 1

    def unpin(self, file: OpenFile) -> None:
        """End what `pin` began."""
        file.pins -= 1
        if file.forgotten and not file.pins:
            self._close(file)
        if len(self._files) > self.max_open:
            self._close_idle(len(self._files) - self.max_open)

    def forget(self, path: str) -> None:
        """Close a file that is removed or renamed, once no sync is at work on it."""
        file = self._files.pop(path, None)
        if file is None:
            return
        file.forgotten = True
        file.dirty = False
        if not file.pins:
            self._close(file)

    def close(self) -> None:
        """Close all files."""
        for path in list(self._files):
            self.forget(path)

    def _close_idle(self, wanted: int) -> int:
        idle = []
        for path, file in self._files.items():
            if file.idle:
                idle.append(path)
                if len(idle) == wanted:
                    break
        for path in idle:
            self._close(self._files.pop(path))
        return len(idle)

    def _close(self, file: OpenFile) -> None:
        descriptor, file.descriptor = file.descriptor, -1
        if descriptor >= 0:
            with contextlib.suppress(OSError):
                self.disk.close(descriptor)
