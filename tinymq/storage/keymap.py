"""
Which offset each key was seen at last, in memory that is bounded.

Keys are told by hashes of 16 bytes. The table is open: a hash lies at the place
that its first bytes name, or at the next free one, in two arrays without an
object for each. So a key takes 24 bytes, and about 36 with the room between.
"""

from __future__ import annotations

import os
from array import array
from hashlib import blake2b
from typing import Final

#: Bytes of a hash.
_WIDTH: Final = 16
#: Bytes of a place: hash and offset.
PLACE_BYTES: Final = _WIDTH + 8
#: Places at the beginning.
_LEAST: Final = 1 << 10
#: How full the table may be, in 16ths, before it grows, and when it cannot grow.
_GROWS: Final = 10
_FULL: Final = 14


class KeyMap:
    """
    The last offset of each key.

    Args:
        most_bytes: Memory that it may take, also while it grows.
    """

    def __init__(self, most_bytes: int) -> None:
        self._salt = os.urandom(16)
        self._most = most_bytes
        self._count = 0
        self._clear(_LEAST)

    def __len__(self) -> int:
        return self._count

    @property
    def size(self) -> int:
        """Bytes that it takes."""
        return len(self._offsets) * PLACE_BYTES

    def _clear(self, places: int) -> None:
        self._hashes = bytearray(places * _WIDTH)
        self._offsets = array("q", [-1]) * places
        self._mask = places - 1
        # Old and new are both there while it grows.
        self._can_grow = 3 * places * PLACE_BYTES <= self._most
        self._limit = places * (_GROWS if self._can_grow else _FULL) // 16

    def put(self, key: bytes, offset: int) -> bool:
        """
        Note where a key was seen.

        Args:
            key: The key.
            offset: Higher than all before.

        Returns:
            False if there is no room for another key.
        """
        found = blake2b(key, digest_size=_WIDTH, salt=self._salt).digest()
        place = self._place(found)
        if self._offsets[place] < 0:
            if self._count >= self._limit:
                if not self._can_grow:
                    return False
                self._grow()
                place = self._place(found)
            self._hashes[place * _WIDTH : (place + 1) * _WIDTH] = found
            self._count += 1
        self._offsets[place] = offset
        return True

    def get(self, key: bytes) -> int:
        """
        Say where a key was seen last.

        Args:
            key: The key.

        Returns:
            -1 if it never was.
        """
        return self._offsets[
            self._place(blake2b(key, digest_size=_WIDTH, salt=self._salt).digest())
        ]

    def _place(self, found: bytes) -> int:
        hashes, offsets, mask = self._hashes, self._offsets, self._mask
        place = int.from_bytes(found[:8], "little") & mask
        while offsets[place] >= 0:
            at = place * _WIDTH
            if hashes[at : at + _WIDTH] == found:
                break
            place = place + 1 & mask
        return place

    def _grow(self) -> None:
        hashes, offsets = self._hashes, self._offsets
        self._clear(2 * len(offsets))
        for old, offset in enumerate(offsets):
            if offset >= 0:
                found = bytes(hashes[old * _WIDTH : (old + 1) * _WIDTH])
                place = self._place(found)
                self._hashes[place * _WIDTH : (place + 1) * _WIDTH] = found
                self._offsets[place] = offset
