"""
What becomes of messages that are not due yet, as it is written in the delay log.

A batch with due times holds messages; a batch without holds *acts*, one in each value: the
msgpack array of a kind, the time, the ids as runs of a first one and a count, and a number
that the kind needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgpack

from tinymq.errors import CorruptBatch

#: They are in the data log, which was looked at up to the number.
RELEASED: Final = 0
#: They never come.
CANCELLED: Final = 1
#: They come at another time, the number.
MOVED: Final = 2
#: The data log was looked at up to the number.
NOTED: Final = 3


class Act(NamedTuple):
    """
    Something that became of messages.

    Attributes:
        kind: What.
        time: When, milliseconds since the epoch.
        ids: Of which ones.
        number: An offset of the data log, or a due time.
    """

    kind: int
    time: int
    ids: Sequence[int]
    number: int = 0


def write(act: Act) -> bytes:
    """
    Write an act as the value of a record.

    Args:
        act: The act.
    """
    packed: bytes = msgpack.packb([act.kind, act.time, _runs(act.ids), act.number])
    return packed


def read(value: bytes) -> Act:
    """
    Read an act.

    Args:
        value: Of a record.

    Raises:
        CorruptBatch: It is none.
    """
    try:
        kind, time, runs, number = msgpack.unpackb(value)
        ids = [each for first, count in runs for each in range(first, first + count)]
        return Act(int(kind), int(time), ids, int(number))
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise CorruptBatch(f"a record of the delay log cannot be read: {error}") from error


def _runs(ids: Iterable[int]) -> list[list[int]]:
    found: list[list[int]] = []
    for each in ids:
        if found and sum(found[-1]) == each:
            found[-1][1] += 1
        else:
            found.append([each, 1])
    return found


#: Bytes before the id in the ids column of a batch.
_MARK: Final = bytes(8)


def pack_id(number: int) -> bytes:
    """
    Write a delay id as a message id.

    Args:
        number: The delay id.
    """
    return _MARK + number.to_bytes(8, "big")


def unpack_id(written: bytes | None) -> int:
    """
    Read a delay id from a message id.

    Args:
        written: From a batch of the broker itself.

    Raises:
        CorruptBatch: It is none.
    """
    if written is None or len(written) != 16 or written[:8] != _MARK:
        raise CorruptBatch("a batch of the delay log has an id that is none")
    return int.from_bytes(written[8:], "big")
