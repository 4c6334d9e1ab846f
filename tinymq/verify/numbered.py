"""Values that say who wrote them, where, and as which; and that cannot be mistaken."""

from __future__ import annotations

import zlib
from typing import Final, NamedTuple

from typing_extensions import override

#: One value in so many is large, so that batches of several sizes are torn.
_LARGE_ONE_IN: Final = 61
_LARGE: Final = 6000
_SMALL: Final = 300


class Place(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    @override
    def __str__(self) -> str:
        """As people write it."""
        return f"{self.topic}/{self.partition}"


class Mark(NamedTuple):
    """Who wrote a record, and as its which one in this partition, from 0."""

    producer: int
    number: int


def value_of(place: Place, mark: Mark) -> bytes:
    """Make the one value that a record of this mark has."""
    head = b"%d %s/%d %d " % (mark.producer, place.topic.encode(), place.partition, mark.number)
    check = zlib.crc32(head)
    size = check % (_SMALL if check % _LARGE_ONE_IN else _LARGE)
    return head + (b"%08x" % check) * (1 + size // 8)


def mark_of(place: Place, value: bytes | None) -> Mark | None:
    """Tell whose value this is; None when not every byte is as it was written."""
    try:
        producer, _, number, _ = (value or b"").split(b" ", 3)
        mark = Mark(int(producer), int(number))
    except ValueError:
        return None
    return mark if value_of(place, mark) == value else None
