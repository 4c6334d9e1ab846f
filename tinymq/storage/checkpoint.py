"""
The file ``checkpoint``: where every log stood on the disk when it was written.

It is always a little old and never ahead: what it says was synced was synced.
Each log's row is kept packed, so that writing the file costs joining bytes, and
a running broker replaces only the rows of logs that changed.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from typing import Any, Final

import msgpack

from tinymq.errors import StorageError
from tinymq.storage.disk import TEMPORARY, Disk
from tinymq.storage.facts import LogPoint, SyncTicket
from tinymq.storage.files import OpenFile
from tinymq.storage.sealed import Unreadable, seal_packed, unseal

NAME: Final = "checkpoint"
_MAGIC: Final = b"TMQC"
_NOTHING: Final = LogPoint(0, 0, -1, ())


class CheckpointFile:
    """
    The checkpoint of a data folder.

    Args:
        disk: The disk.
        root: The data folder.

    Attributes:
        nonce: Names the checkpoint that was read; None without one.
        damaged: It is there but cannot be read.
    """

    def __init__(self, disk: Disk, root: str) -> None:
        self._disk = disk
        self._root = root
        self._path = os.path.join(root, NAME)
        self._rows: dict[str, bytes] = {}
        self._points: dict[str, Any] | None = None
        self._changed = False
        self._writing = False
        self.nonce: bytes | None = None
        self.damaged = False

    def load(self) -> bool:
        """
        Read it.

        Returns:
            Whether there is one that can be believed.
        """
        content = self._disk.read_file(self._path)
        if content is None:
            return False
        try:
            self.nonce, points = unseal(_MAGIC, content, self._path)
            self._points = dict(points)
        except (Unreadable, TypeError, ValueError):
            self.nonce, self.damaged = None, True
        return not self.damaged

    def point(self, path: str, *, clean: bool) -> LogPoint | None:
        """
        What was noted of the log in a folder.

        Args:
            path: The log's folder.
            clean: Nothing was written after it.

        Returns:
            None when nothing is known. A log that a believed checkpoint does not
            know was made after it: nothing of it was synced then.
        """
        if self._points is None:
            return None
        point = self._points.get(os.path.relpath(path, self._root))
        if point is None:
            return _NOTHING
        try:
            return LogPoint.from_list(point, clean=clean)
        except (TypeError, ValueError):
            return None

    # --- writing -------------------------------------------------------------

    def note(self, path: str, point: LogPoint) -> None:
        """Take where a log stands now into the next one that is written."""
        name = os.path.relpath(path, self._root)
        self._rows[name] = msgpack.packb(name) + msgpack.packb(point.to_list())
        self._changed = True

    def forget(self, path: str) -> None:
        """Leave a log out from now on, for it is gone."""
        if self._rows.pop(os.path.relpath(path, self._root), None) is not None:
            self._changed = True

    def clear(self) -> None:
        """Leave all logs out."""
        self._rows.clear()

    def save(self) -> bytes:
        """
        Write it durably, as one step; this waits for the disk.

        Returns:
            Its nonce.
        """
        nonce, content = self._content()
        self._disk.replace_file(self._path, content)
        self._changed = False
        return nonce

    def begin(self) -> SyncTicket | None:
        """
        Write it beside the old one, without waiting.

        Returns:
            What must be synced before `end`; None when nothing changed, or when
            the one before is not done yet.

        Raises:
            StorageFull: There is no space; the old one stays.
        """
        if not self._changed or self._writing:
            return None
        temporary = self._path + TEMPORARY
        self._changed = False
        try:
            self._disk.write_file(temporary, self._content()[1], durable=False)
            descriptor = self._disk.open(temporary)
        except BaseException:
            self._changed = True
            with contextlib.suppress(OSError):
                self._disk.unlink(temporary)
            raise
        self._writing = True
        return SyncTicket((OpenFile(temporary, descriptor),), (), 0)

    def end(self, ticket: SyncTicket, error: OSError | None) -> None:
        """
        Let it take the place of the old one; whichever a power cut leaves is true.

        Args:
            ticket: From `begin`.
            error: Why it could not be synced: then the old one stays.

        Raises:
            OSError: Likewise, or its name could not be changed.
        """
        (file,) = ticket.files
        self._writing = False
        self._disk.close(file.descriptor)
        try:
            if error is not None:
                raise error
            self._disk.rename(file.path, self._path)
        except OSError:
            self._changed = True
            with contextlib.suppress(OSError):
                self._disk.unlink(file.path)
            raise

    def _content(self) -> tuple[bytes, bytes]:
        nonce = secrets.token_bytes(16)
        packer = msgpack.Packer(autoreset=False)
        packer.pack_array_header(2)
        packer.pack(nonce)
        packer.pack_map_header(len(self._rows))
        return nonce, seal_packed(_MAGIC, b"".join((packer.bytes(), *self._rows.values())))


def point_below(disk: Disk, root: str, path: str) -> LogPoint | None:
    """
    What the checkpoint of a data folder says of a log, for tools.

    Args:
        disk: The disk.
        root: The data folder.
        path: The log's folder.
    """
    file = CheckpointFile(disk, root)
    with contextlib.suppress(OSError, StorageError):
        file.load()
    return file.point(path, clean=False)
