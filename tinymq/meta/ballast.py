"""
A file that is given up when the disk is full, so that something can still be deleted.

To delete a topic is to write that it is deleted. On a disk without a free byte that
fails, and an operator who wants to make room stands before a closed door.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tinymq.limits import KIB

#: Enough for some dozens of small transactions of SQLite.
SIZE: Final = 256 * KIB

#: Seconds between attempts to lay it by.
RETRY_SECONDS: Final = 30.0

#: It is laid by when so many times its size is free.
_ROOM: Final = 8


class Ballast:
    """
    The file.

    Args:
        file: Its name.
        monotonic: The clock, in seconds.
    """

    def __init__(self, file: Path, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.file = file
        self._monotonic = monotonic
        self._held: bool | None = None
        self._next = 0.0

    def release(self) -> bool:
        """Give it up, and say whether there was something to give up."""
        self._next = self._monotonic() + RETRY_SECONDS
        self._held = False
        try:
            self.file.unlink()
        except OSError:
            return False
        return True

    def restore(self) -> None:
        """Lay it by if it is not there and there is room; call it now and then."""
        if self._held or self._monotonic() < self._next:
            return
        self._next = self._monotonic() + RETRY_SECONDS
        try:
            self._held = self._is_whole() or self._write()
        except OSError:
            self._held = False
            with contextlib.suppress(OSError):
                self.file.unlink(missing_ok=True)

    def _is_whole(self) -> bool:
        return self.file.exists() and self.file.stat().st_size == SIZE

    def _write(self) -> bool:
        space = os.statvfs(self.file.parent)
        if space.f_bavail * space.f_frsize < _ROOM * SIZE:
            return False
        # Not zeros: some file systems give those no room.
        self.file.write_bytes(os.urandom(SIZE))
        return True
