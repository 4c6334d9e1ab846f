"""Control batches: the marks in a log that end transactions."""

from __future__ import annotations

from typing import Final

from tinymq.broker.transactions.opened import Identity
from tinymq.wire.batch import (
    ABORTED,
    CONTROL,
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    NATIVE,
    TRANSACTIONAL,
    BatchHeader,
    stored,
)
from tinymq.wire.codec import pack
from tinymq.wire.frames import Bytes

#: No records: seven columns, all of them empty.
_PAYLOAD: Final = pack([None] * 7)


def control(
    identity: Identity, base_offset: int, leader_epoch: int, timestamp: int, *, aborted: bool
) -> list[Bytes]:
    """
    Make the batch that ends a transaction: one offset, and no record.

    Args:
        identity: The transaction.
        base_offset: Its offset.
        leader_epoch: The epoch in which it is appended.
        timestamp: Its append time.
        aborted: Whether the transaction was aborted.

    Returns:
        Pieces to be written in this order.
    """
    header = BatchHeader(
        base_offset,
        len(_PAYLOAD) + HEADER_SIZE - LENGTH_END,
        leader_epoch,
        MAGIC,
        0,
        NATIVE | CONTROL | TRANSACTIONAL | (ABORTED if aborted else 0),
        0,
        timestamp,
        timestamp,
        *identity,
        -1,
        0,
    )
    return stored(_PAYLOAD, header, base_offset, leader_epoch, timestamp)
