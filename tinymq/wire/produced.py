"""What a producer's batch must be, before it may be stored."""

from __future__ import annotations

from typing import Final

from tinymq.errors import BatchTooLarge, InvalidRequest, InvalidTransaction, ValueTooLarge
from tinymq.limits import Limits
from tinymq.wire.batch import (
    APPEND_TIME,
    CODEC_MASK,
    HAS_DUE,
    HAS_EXPIRY,
    HAS_IDS,
    NATIVE,
    NATIVE_CODECS,
    NO_PRODUCER,
    TRANSACTIONAL,
    BatchHeader,
    Codec,
    Column,
    Spans,
    checked_header,
    column_spans,
)
from tinymq.wire.frames import Bytes

#: Bits that producers may set.
_PRODUCER_ALLOWED: Final = (
    NATIVE | HAS_DUE | HAS_IDS | HAS_EXPIRY | TRANSACTIONAL | APPEND_TIME | CODEC_MASK
)
#: Columns whose presence an attribute bit tells, so that a reader need not look.
_FLAGS: Final = {Column.IDS: HAS_IDS, Column.EXPIRY: HAS_EXPIRY, Column.DUE: HAS_DUE}
#: Most bytes that msgpack needs beside an item: its own head, and that of an array.
_ITEM: Final = 5


def check_produced(buffer: Bytes, limits: Limits) -> BatchHeader:
    """
    Check a batch that a producer sent, before it may be stored.

    Args:
        buffer: The payload of a PRODUCE request.
        limits: The limits in force.

    Returns:
        Its header.

    Raises:
        CorruptBatch: The bytes contradict themselves.
        BatchTooLarge: Several records, together over the batch limit.
        ValueTooLarge: A single record over the limit of a value.
        InvalidRequest: Flags, codec or counts that producers may not use.
        InvalidTransaction: It cannot be part of a transaction.
    """
    header = checked_header(buffer)
    _check_size(header, limits)
    attributes = header.attributes
    if attributes & ~_PRODUCER_ALLOWED or not header.native:
        raise InvalidRequest(
            f"attributes 0x{attributes & 0xFFFF:04x} are not a producer's to use",
            field="attributes",
        )
    if header.codec not in NATIVE_CODECS:
        raise InvalidRequest(
            f"codec {header.codec} is not taken in native batches; use none, gzip or zstd",
            field="codec",
        )
    if header.producer_id != NO_PRODUCER and (
        min(header.producer_id, header.producer_epoch, header.base_sequence) < 0
    ):
        raise InvalidRequest(
            "an idempotent batch needs a producer id, an epoch and a sequence", field="sequence"
        )
    if attributes & TRANSACTIONAL:
        _check_transactional(header)
    spans = column_spans(buffer)
    _check_columns(header, spans)
    if header.size > limits.key:
        _check_lengths(header, spans, limits)
    return header


def _check_transactional(header: BatchHeader) -> None:
    if header.producer_id == NO_PRODUCER:
        raise InvalidTransaction("a batch of a transaction needs a producer id, epoch and sequence")
    if header.attributes & HAS_DUE:
        raise InvalidTransaction(
            "messages that are not due yet cannot be part of a transaction; publish them without"
        )


def _check_size(header: BatchHeader, limits: Limits) -> None:
    size, count = header.size, header.records
    if not 1 <= count <= limits.records or count != header.last_offset_delta + 1:
        raise InvalidRequest(
            f"a batch has 1 to {limits.records} records and no gaps, not {count} records "
            f"over {header.last_offset_delta + 1} offsets",
            field="count",
        )
    if size > limits.batch:
        if count > 1:
            raise BatchTooLarge(
                f"the batch of {count} records has {size} bytes; the batch limit is "
                f"{limits.batch}: send fewer records in a batch",
                limit=limits.batch,
                name="batch",
            )
        if size > limits.payload:
            raise ValueTooLarge(
                f"the record has {size} bytes; the value limit is {limits.value}",
                limit=limits.value,
                name="value",
            )


def _check_columns(header: BatchHeader, spans: Spans) -> None:
    if spans[Column.DELTAS] is not None:
        raise InvalidRequest("a produced batch has no column of offset deltas", field="deltas")
    for column, flag in _FLAGS.items():
        if (spans[column] is not None) != bool(header.attributes & flag):
            raise InvalidRequest(
                f"column {column.name.lower()} and its attribute bit do not agree",
                field="attributes",
            )


def _check_lengths(header: BatchHeader, spans: Spans, limits: Limits) -> None:
    """
    Hold keys, headers and values to their limits without opening a column.

    Of several records it is the sum; who produces them looks at each.
    """
    bounds = [(Column.KEYS, "key", limits.key + _ITEM)]
    if header.codec == Codec.NONE:
        most = limits.headers + limits.header_count * 2 * _ITEM
        bounds += [
            (Column.HEADERS, "headers", most),
            (Column.VALUES, "value", limits.value + _ITEM),
        ]
    for column, name, most in bounds:
        span = spans[column]
        if span is not None and span[1] - span[0] > header.records * most + _ITEM:
            raise ValueTooLarge(
                f"the column {column.name.lower()} of {header.records} records has "
                f"{span[1] - span[0]} bytes; the {name} limit is {getattr(limits, name)} each",
                limit=getattr(limits, name),
                name=name,
            )
