"""
What a write leaves that a power cut kept from the disk: zeros, or a short file.

A file's length and its later pages may reach the disk before earlier ones. A
sector that did not holds what was there before: behind the old end of the file,
zeros. Flipped bits look different, unless what was written held zeros itself.
"""

from __future__ import annotations

from typing import Final

from google_crc32c import value as crc_value

from tinymq.storage.scan import CHECKED_FROM, LENGTH_END, Read
from tinymq.storage.segment import Hole
from tinymq.wire.batch import HEADER_SIZE, MAGIC, read_header

#: What a disk writes whole or not at all.
SECTOR: Final = 512

_ZEROS: Final = bytes(SECTOR)
_WINDOW: Final = 1 << 20
_OFFSET_SIZE: Final = 8
_MAGIC_AT: Final = 16


def looks_lost(read: Read, hole: Hole, size: int) -> bool:
    """
    Tell whether bad bytes hold a sector that was never written.

    Args:
        read: Reads the file.
        hole: The bad bytes; they begin where a batch was due.
        size: Bytes of the file.
    """
    to_boundary = -hole.position % SECTOR
    head = read(hole.position, min(to_boundary, size - hole.position))
    if head and not any(head) and _must_differ(hole.offset, len(head)):
        return True
    position = hole.position + to_boundary
    stop = min(size, hole.stop + -hole.stop % SECTOR)
    while position < stop:
        data = read(position, min(_WINDOW, stop - position))
        if not data:
            break
        if _has_empty_sector(data):
            return True
        position += _WINDOW
    return False


def _must_differ(offset: int, size: int) -> bool:
    """Whether the first bytes of the batch with an offset cannot all be zeros."""
    return size > _MAGIC_AT or any(offset.to_bytes(_OFFSET_SIZE, "big")[:size])


def _has_empty_sector(data: bytes) -> bool:
    """Whether a sector of the data is all zeros; the last one may be short."""
    short = len(data) % SECTOR
    if short and not any(data[-short:]):
        return True
    place = data.find(_ZEROS)
    while place >= 0:
        place += -place % SECTOR
        if data[place : place + SECTOR] == _ZEROS:
            return True
        place = data.find(_ZEROS, place)
    return False


def looks_short(read: Read, hole: Hole, size: int) -> bool:
    """
    Tell whether a file ends within the batch that a hole begins with.

    A flipped bit in the batch's length looks alike, but its checksum is right up
    to the end of the file.

    Args:
        read: Reads the file.
        hole: Bad bytes up to the end of the file.
        size: Bytes of the file.
    """
    rest = size - hole.position
    if rest < HEADER_SIZE:
        return True
    header = read_header(read(hole.position, HEADER_SIZE))
    if header.magic != MAGIC or header.base_offset != hole.offset:
        return False
    if header.length + LENGTH_END <= rest:
        return False
    checked = read(hole.position + CHECKED_FROM, rest - CHECKED_FROM)
    return bool(crc_value(checked) != header.crc)
