"""
Producer ids put by for when the MetaServer is away, also across a restart.

Which ids this broker was ever given is remembered beside them: a MetaServer that was
restored from an older backup is told, and gives none of them out once more.
"""

from __future__ import annotations

from typing import Final

from twisted.logger import Logger

from tinymq.errors import TinyMQError
from tinymq.storage.folder import DataFolder

#: The first id that is put by, how many there are, and the first id never given to this broker.
SPARE_FILE: Final = "producer.ids"


class SpareIds:
    """
    A block of producer ids of which none was given out.

    It is taken out of its file before the first of them is used: ids of a block that is
    in use when the process dies are lost, never given out twice.

    Args:
        folder: The data folder.

    Attributes:
        end: All ids that this broker was ever given are lower.
    """

    _log = Logger()

    def __init__(self, folder: DataFolder) -> None:
        self._disk = folder.disk
        self._path = f"{folder.path}/{SPARE_FILE}"
        self._ids = range(0)
        self.end = 0
        try:
            content = bytes(self._disk.read_file(self._path) or b"")
            first, count, self.end = map(int, content.split())
        except ValueError:
            return
        self._ids = range(first, first + count)

    def __len__(self) -> int:
        return len(self._ids)

    def put(self, ids: range) -> None:
        """
        Put a block by.

        Args:
            ids: The block.
        """
        self._ids = ids
        self.given(ids)

    def given(self, ids: range) -> None:
        """
        Remember that this broker was given ids.

        Args:
            ids: The ids.
        """
        self.end = max(self.end, ids.stop)
        self._write()

    def take(self) -> range:
        """
        Take the block away.

        Returns:
            The block; nothing if there is none, or its file cannot be changed.
        """
        ids, self._ids = self._ids, range(0)
        return ids if not ids or self._write() else range(0)

    def _write(self) -> bool:
        content = b"%d %d %d\n" % (self._ids.start, len(self._ids), self.end)
        try:
            self._disk.replace_file(self._path, content)
        except (OSError, TinyMQError) as error:
            self._log.warn("producer ids cannot be put by: {error}", error=error)
            return False
        return True
