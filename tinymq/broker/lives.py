"""
Reading what the ledger of a partition says of one message.

The files are read elsewhere, a piece at a time, and looked through here in
small steps: a ledger may be hundreds of megabytes, and others want their turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tinymq.broker.channel.life import Happening, Life
from tinymq.broker.groups.positions import GROUPS_KEY
from tinymq.broker.routing.routes import ROUTES_KEY
from tinymq.errors import CorruptBatch, StorageError, WireError
from tinymq.limits import KIB
from tinymq.storage.disk import Disk
from tinymq.storage.facts import Part
from tinymq.wire.batch import split
from tinymq.wire.records import RecordBatch

#: Bytes that are read at a time, unless a batch is longer.
_PIECE_BYTES: Final = 256 * KIB
#: A longer batch than this is none.
_LONGEST: Final = 1 << 30
#: Keys of what says nothing of single messages.
_OTHERS: Final = frozenset({ROUTES_KEY, GROUPS_KEY})


class Lives:
    """
    What all channels of a partition did with one message.

    Args:
        disk: The files are on it.
        parts: The files of the ledger, in order.
        offset: The message.

    Attributes:
        incomplete: Whether something could not be read.
    """

    def __init__(self, disk: Disk, parts: Sequence[Part], offset: int) -> None:
        self._disk = disk
        self._parts = list(parts)
        self._offset = offset
        self._position = 0
        self._size = _PIECE_BYTES
        self._data: bytes | None = None
        self._lives: dict[bytes, Life] = {}
        self.incomplete = False

    @property
    def more(self) -> bool:
        """Whether there is more to read."""
        return bool(self._parts)

    def read(self) -> None:
        """Read the next piece, in another thread; nothing else is called meanwhile."""
        part = self._parts[0]
        size = min(self._size, part.size - self._position)
        self._data = None
        try:
            descriptor = self._disk.open(part.path)
            try:
                self._data = self._disk.pread(descriptor, size, self._position)
            finally:
                self._disk.close(descriptor)
        except (OSError, StorageError):
            return  # retention has just removed it, or no descriptor is left

    def take(self) -> Iterator[None]:
        """Look through what was read, in steps of less than a millisecond or so."""
        part, data = self._parts[0], self._data
        if data is None:
            self.incomplete = True
            self._next_part()
            return
        taken = 0
        for header, batch in split(data):
            taken += header.size
            try:
                found = RecordBatch(batch, header)
                rows = [*zip(found.keys, found.values, strict=True)]
            except WireError:
                self.incomplete = True
                continue
            yield
            for key, value in rows:
                if key and key not in _OTHERS and value is not None:
                    self._take(key, value)
                    yield
        self._position += taken
        if taken:
            self._size = _PIECE_BYTES
        elif self._position + len(data) < part.size and self._size < _LONGEST:
            self._size *= 4  # a longer batch
        else:
            self.incomplete = self.incomplete or self._position < part.size
            self._next_part()
            return
        if self._position >= part.size:
            self._next_part()

    def _next_part(self) -> None:
        self._parts.pop(0)
        self._position, self._size, self._data = 0, _PIECE_BYTES, None

    def _take(self, key: bytes, value: bytes) -> None:
        life = self._lives.get(key)
        if life is None:
            life = self._lives[key] = Life(self._offset)
        try:
            life.read(value)
        except CorruptBatch:
            self.incomplete = True

    def happenings(self) -> list[tuple[str, Happening]]:
        """Return what happened, in order of time, with the channel's name."""
        found = [
            (key.decode("utf-8", "replace").rpartition("@")[0], happening)
            for key, life in self._lives.items()
            for happening in life.happenings
        ]
        return sorted(found, key=lambda each: each[1].time)

    @property
    def shortened(self) -> bool:
        """Whether more happened than is kept."""
        return any(life.count > len(life.happenings) for life in self._lives.values())
