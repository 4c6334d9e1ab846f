"""Reading the files of a log that is cleaned, a window at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from tinymq.limits import MIB
from tinymq.storage.disk import Disk
from tinymq.storage.scan import LENGTH_END, STEP, good_at
from tinymq.storage.segment import segment_name
from tinymq.storage.tasks import Source
from tinymq.wire.batch import HEADER_SIZE, BatchHeader, read_header

#: Told of bytes that were read or written; may wait.
Pace = Callable[[int], None]

_WINDOW: Final = MIB


class BadBatch(Exception):
    """
    Bytes that are no batch, where one was due.

    Args:
        position: Where.
    """

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


class Sources:
    """
    Reads files.

    Args:
        disk: The disk.
        folder: The log's folder.
        pace: Told of bytes that are read.

    Attributes:
        read: Bytes that were read.
    """

    def __init__(self, disk: Disk, folder: str, pace: Pace) -> None:
        self._disk = disk
        self._folder = folder
        self._pace = pace
        self.read = 0

    def batches(self, source: Source) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """
        Yield the batches of a file, checking each.

        Raises:
            BadBatch: What follows is no batch, or not the one that is due.
        """
        if not source.sound:
            raise BadBatch(0)
        descriptor = self._open(source)
        try:
            data, origin, position, expected = b"", 0, 0, source.base
            while position < source.size:
                cursor, left = position - origin, source.size - position
                whole = _length(data, cursor)
                if whole < HEADER_SIZE or cursor + whole > len(data):
                    data = self._read(descriptor, min(_WINDOW, left), position)
                    origin, cursor, whole = position, 0, _length(data, 0)
                    if not HEADER_SIZE <= whole <= left:
                        raise BadBatch(position)
                    if whole > len(data):
                        data = self._read(descriptor, whole, position)
                header = good_at(data, cursor)
                if header is None or header.base_offset != expected:
                    raise BadBatch(position)
                yield position, header, memoryview(data)[cursor : cursor + header.size]
                position += header.size
                expected = header.next_offset
            if expected != source.end:
                raise BadBatch(position)
        finally:
            self._disk.close(descriptor)

    def headers(self, source: Source) -> Iterator[BatchHeader]:
        """
        Yield the headers of a file that may still grow; what is behind them is not checked.

        Raises:
            BadBatch: What follows is no batch, or not the one that is due.
        """
        descriptor = self._open(source)
        try:
            data, origin, position, expected = b"", 0, 0, source.base
            while position + HEADER_SIZE <= source.size:
                cursor = position - origin
                if cursor + HEADER_SIZE > len(data):
                    size = min(_WINDOW, source.size - position)
                    data, origin, cursor = self._read(descriptor, size, position), position, 0
                    if len(data) < HEADER_SIZE:
                        return
                header = read_header(data, cursor)
                if header.base_offset != expected or header.size < HEADER_SIZE:
                    raise BadBatch(position)
                yield header
                position += header.size
                expected = header.next_offset
        finally:
            self._disk.close(descriptor)

    def whole(self, source: Source) -> Iterator[bytes]:
        """Yield the bytes of a file, in pieces."""
        descriptor = self._open(source)
        try:
            for position in range(0, source.size, _WINDOW):
                yield self._read(descriptor, min(_WINDOW, source.size - position), position)
        finally:
            self._disk.close(descriptor)

    def _open(self, source: Source) -> int:
        return self._disk.open(f"{self._folder}/{segment_name(source.base)}")

    def _read(self, descriptor: int, size: int, position: int) -> bytes:
        self._pace(size)
        self.read += size
        return self._disk.pread(descriptor, size, position)


def _length(data: bytes, cursor: int) -> int:
    """Bytes of the batch at a place; 0 if that is not there."""
    if cursor + LENGTH_END > len(data):
        return 0
    return LENGTH_END + int(STEP.unpack_from(data, cursor)[1])
