"""What the message ids of a batch are, by the rule of its topic."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Final, TypeAlias

from tinymq.broker.producers import is_own
from tinymq.topicconfig import HEADER_RULE
from tinymq.wire.batch import (
    CONTROL,
    HAS_DUE,
    HAS_IDS,
    TRANSACTIONAL,
    BatchHeader,
    Column,
    column_spans,
)
from tinymq.wire.frames import Bytes
from tinymq.wire.records import Headers, RecordBatch

#: Bytes of each id that is remembered.
ID_BYTES: Final = 16

#: Gives the id of each record, None for those without; None when no record has one.
Ids: TypeAlias = "Callable[[Bytes, BatchHeader], list[bytes | None] | None]"

#: Batches that were not published, or that come as a whole or not at all by other means.
_OTHERS: Final = CONTROL | TRANSACTIONAL | HAS_DUE


def ids_by(rule: str) -> Ids:
    """
    Return what finds ids by a rule.

    Args:
        rule: The setting `dedup.by`.
    """
    name = rule.removeprefix(HEADER_RULE)
    return _column if name == rule else _by_header(name)


def looked_at(header: BatchHeader) -> bool:
    """
    Say whether the records of a batch may be repeats at all.

    Args:
        header: Its header.
    """
    return (
        header.native
        and not header.attributes & _OTHERS
        and header.records > 0
        and not is_own(header.producer_id)
    )


def _column(batch: Bytes, header: BatchHeader) -> list[bytes | None] | None:
    if not header.attributes & HAS_IDS:
        return None
    return [
        each if each is None or len(each) == ID_BYTES else _digest(each)
        for each in RecordBatch(batch, header).ids
    ]


def _by_header(name: str) -> Ids:
    def find(batch: Bytes, header: BatchHeader) -> list[bytes | None] | None:
        if column_spans(batch)[Column.HEADERS] is None:
            return None
        found = [_of(row, name) for row in RecordBatch(batch, header).headers]
        return found if any(found) else None

    return find


def _of(headers: Headers, name: str) -> bytes | None:
    for each, value in headers:
        if each == name:
            return _digest(value)
    return None


def _digest(value: bytes) -> bytes:
    """Make ids of one length; nobody finds two values with the same one."""
    return blake2b(value, digest_size=ID_BYTES).digest()
