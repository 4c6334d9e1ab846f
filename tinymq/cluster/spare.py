"""Producer ids put by for when the MetaServer is away, also across a restart."""

from __future__ import annotations

from typing import Final

from twisted.logger import Logger

from tinymq.storage.folder import DataFolder

#: First id and number of ids, as text.
SPARE_FILE: Final = "producer.ids"


class SpareIds:
    """
    A block of producer ids of which none was given out.

    Its file is gone before the first of them is: ids of a block that is in use when
    the process dies are lost, never given out twice.

    Args:
        folder: The data folder.
    """

    _log = Logger()

    def __init__(self, folder: DataFolder) -> None:
        self._folder = folder
        self._path = f"{folder.path}/{SPARE_FILE}"
        self._ids = self._read()

    def _read(self) -> range | None:
        content = self._folder.disk.read_file(self._path)
        try:
            first, count = map(int, bytes(content or b"").split())
        except ValueError:
            return None
        return range(first, first + count)

    def __bool__(self) -> bool:
        """Whether there are any."""
        return self._ids is not None

    def put(self, ids: range) -> None:
        """
        Put a block by.

        Args:
            ids: The block.
        """
        self._ids = ids
        try:
            self._folder.disk.replace_file(self._path, b"%d %d\n" % (ids.start, len(ids)))
        except OSError as error:
            self._log.warn("producer ids cannot be put by: {error}", error=error)

    def take(self) -> range | None:
        """
        Take the block away.

        Returns:
            The block; None if there is none, or its file cannot be removed.
        """
        ids, self._ids = self._ids, None
        disk = self._folder.disk
        try:
            if disk.exists(self._path):
                disk.unlink(self._path)
                disk.fsync_dir(self._folder.path)
        except OSError as error:
            self._log.warn("producer ids that were put by are lost: {error}", error=error)
            return None
        return ids
