"""
The record batch: what travels, lies on disk, is replicated and is read as one.

The header is that of Kafka's record batch v2, so that both kinds of payload can
lie in one log::

     0        8       12      16    17     21     23      27       35
    +--------+-------+-------+-----+------+------+-------+--------+--------+
    | base   |length | leader|magic| crc  |attri-|last   |base    |max     |
    | offset |after12| epoch | =2  | 32C  |butes |delta  |time ms |time ms |
    +--------+-------+-------+-----+------+------+-------+--------+--------+
      i64      i32     i32     i8    u32    i16    i32     i64      i64
    43       51     53       57     61
    +--------+------+--------+------+----------
    |producer|prod. | base   |count | payload ...
    |id      |epoch |sequence|      |
    +--------+------+--------+------+----------
      i64      i16    i32      i32

The checksum covers everything from the attributes on; offset and epoch lie
before it, so a broker can set them without touching it.

The native payload is a msgpack array of seven columns, each nil or a ``bin``
that holds a msgpack value of its own: offset deltas, producer times, keys,
values, headers, message ids, expiry. Messages that are not due yet have an
eighth, their due times. The broker opens only the column that a feature needs,
and values never.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from google_crc32c import extend as crc_extend
from google_crc32c import value as crc_value

from tinymq.errors import CorruptBatch
from tinymq.limits import KIB, Limits
from tinymq.wire.frames import Bytes

BATCH_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE: Final = BATCH_HEADER.size
#: The last field of the header: the number of records.
_RECORDS: Final = struct.Struct(">i")
MAGIC: Final = 2

#: Where the length field ends; the length counts what follows it.
LENGTH_END: Final = 12
#: Where the checksum starts to count.
CHECKED_FROM: Final = 21
#: Where the payload starts.
PAYLOAD: Final = HEADER_SIZE

#: Sequence numbers are 31 bits and wrap to 0.
SEQUENCE_MODULUS: Final = 1 << 31

NO_PRODUCER: Final = -1

#: For each column None, or where the content of its ``bin`` starts and ends.
Spans = list[tuple[int, int] | None]

CODEC_MASK: Final = 0x7
APPEND_TIME: Final = 1 << 3
TRANSACTIONAL: Final = 1 << 4
CONTROL: Final = 1 << 5
#: Of a control batch: the transaction that it ends was aborted.
ABORTED: Final = 1 << 11
HAS_DUE: Final = 1 << 12
HAS_IDS: Final = 1 << 13
HAS_EXPIRY: Final = 1 << 14
#: Bit 15 of a signed 16-bit field.
NATIVE: Final = -(1 << 15)

_ATTRIBUTES_TO_END = struct.Struct(">hiqqqhii")


class Codec(IntEnum):
    """How the columns of values and headers are compressed."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


#: Codecs that native payloads may use.
NATIVE_CODECS: Final = frozenset({Codec.NONE, Codec.GZIP, Codec.ZSTD})


class Column(IntEnum):
    """The places of the columns in a native payload; the last is there when it is used."""

    DELTAS = 0
    TIMES = 1
    KEYS = 2
    VALUES = 3
    HEADERS = 4
    IDS = 5
    EXPIRY = 6
    DUE = 7


#: Columns of a payload, without and with due times.
COLUMNS: Final = (Column.DUE, len(Column))
#: Most records in one native batch, whatever a header claims.
MAX_RECORDS: Final = 65_535


class BatchHeader(NamedTuple):
    """The header of a record batch; times are milliseconds since the epoch."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.length + LENGTH_END

    @property
    def last_offset(self) -> int:
        """Offset of the last record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Offset behind the last record."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def native(self) -> bool:
        """Whether the payload is columns."""
        return self.attributes < 0

    @property
    def codec(self) -> int:
        """The compression, as a number of `Codec`."""
        return self.attributes & CODEC_MASK


def read_header(buffer: Bytes, position: int = 0) -> BatchHeader:
    """
    Read a batch header without checking anything.

    Args:
        buffer: At least `HEADER_SIZE` bytes from `position` on.
        position: Where the batch starts.
    """
    return BatchHeader._make(BATCH_HEADER.unpack_from(buffer, position))


def record_count(batch: Bytes) -> int:
    """
    Look how many records a batch says that it has, without reading anything else.

    Args:
        batch: A batch, checked or not.
    """
    at = HEADER_SIZE - _RECORDS.size
    return int(_RECORDS.unpack_from(batch, at)[0]) if len(batch) >= HEADER_SIZE else 0


def waits(batch: Bytes) -> bool:
    """
    Look whether a batch says that its records wait until they are due.

    Args:
        batch: A batch, checked or not.
    """
    at = CHECKED_FROM
    return len(batch) >= HEADER_SIZE and bool(batch[at] & (HAS_DUE >> 8))


def checked_header(buffer: Bytes) -> BatchHeader:
    """
    Read the header of exactly one batch and check it against the bytes.

    Args:
        buffer: The whole batch and nothing else.

    Raises:
        CorruptBatch: Length, magic, counts or checksum do not fit.
    """
    size = len(buffer)
    if size < HEADER_SIZE:
        raise CorruptBatch(f"a record batch has at least {HEADER_SIZE} bytes, not {size}")
    header = read_header(buffer)
    if header.length + LENGTH_END != size:
        raise CorruptBatch(f"the batch says {header.length + LENGTH_END} bytes and has {size}")
    if header.magic != MAGIC:
        raise CorruptBatch(f"record batches have magic {MAGIC}, not {header.magic}")
    if header.last_offset_delta < 0 or not 0 <= header.records <= header.last_offset_delta + 1:
        raise CorruptBatch(
            f"{header.records} records do not lie on {header.last_offset_delta + 1} offsets"
        )
    crc = crc_value(bytes(buffer[CHECKED_FROM:]))  # the C function takes bytes alone
    if crc != header.crc:
        raise CorruptBatch(f"checksum {crc:08x} of the batch is not the {header.crc:08x} it says")
    return header


def column_spans(buffer: Bytes, start: int = PAYLOAD) -> Spans:
    """
    Find the columns of a native batch without decoding them.

    Args:
        buffer: The whole batch.
        start: Where the payload starts.

    Returns:
        The span of each column.

    Raises:
        CorruptBatch: The payload is not seven or eight columns that fill it exactly.
    """
    spans: Spans = []
    size = len(buffer)
    try:
        count = buffer[start] - 0x90
        if count not in COLUMNS:
            raise CorruptBatch("a native payload is a msgpack array of seven or eight columns")
        position = start + 1
        for _ in range(count):
            kind = buffer[position]
            if kind == 0xC0:
                spans.append(None)
                position += 1
                continue
            width = _BIN_LENGTHS[kind]
            begin = position + 1 + width
            position = begin + int.from_bytes(buffer[position + 1 : begin], "big")
            spans.append((begin, position))
    except (IndexError, KeyError) as error:
        raise CorruptBatch("a column of the batch is neither nil nor a bin") from error
    if position != size:
        raise CorruptBatch("the columns of the batch do not end where the batch ends")
    if count == Column.DUE:
        spans.append(None)
    elif spans[Column.DUE] is None:
        raise CorruptBatch("an eighth column of a batch is due times, and never nil")
    return spans


#: First byte of a msgpack ``bin`` to the width of its length.
_BIN_LENGTHS: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4}


def stamp(
    buffer: Bytes, header: BatchHeader, base_offset: int, leader_epoch: int, timestamp: int
) -> list[Bytes]:
    """
    Give a checked native batch its place in a log.

    Args:
        buffer: The batch as it came.
        header: Its header.
        base_offset: Offset of the first record.
        leader_epoch: The epoch in which it is appended.
        timestamp: Append time, milliseconds since the epoch, not below that of
            the batch before.

    Returns:
        Pieces to be written in this order.
    """
    return stored(bytes(buffer[PAYLOAD:]), header, base_offset, leader_epoch, timestamp)


def stored(
    payload: bytes, header: BatchHeader, base_offset: int, leader_epoch: int, timestamp: int
) -> list[Bytes]:
    """
    Put a header before the payload of a batch that is in a log.

    Args:
        payload: The columns.
        header: What is to be said of them; length and checksum are made anew.
        base_offset: Offset of the first record.
        leader_epoch: The epoch in which it was appended.
        timestamp: Append time, milliseconds since the epoch.

    Returns:
        Pieces of the batch, in this order.
    """
    checked = _ATTRIBUTES_TO_END.pack(
        header.attributes | APPEND_TIME,
        header.last_offset_delta,
        timestamp,
        timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.records,
    )
    crc = crc_extend(crc_value(checked), payload)
    length = len(payload) + HEADER_SIZE - LENGTH_END
    head = _TO_CRC.pack(base_offset, length, leader_epoch, MAGIC, crc) + checked
    return [head, payload]


_TO_CRC: Final = struct.Struct(">qiibI")
#: A payload of no records: seven columns that are nil.
_NOTHING: Final = bytes([0x97, *[0xC0] * Column.DUE])
#: What of the attributes means something where there are no records.
_EMPTY_KEPT: Final = NATIVE | APPEND_TIME


def hollow(header: BatchHeader) -> bytes:
    """
    Make a batch of no records that takes the offsets and sequences of another.

    Args:
        header: Of the other, which is in a log.
    """
    attributes = header.attributes & _EMPTY_KEPT | NATIVE
    found = header._replace(attributes=attributes, records=0)
    pieces = stored(_NOTHING, found, header.base_offset, header.leader_epoch, header.max_timestamp)
    return b"".join(pieces)


def filler(base: int, end: int, leader_epoch: int, timestamp: int) -> bytes:
    """
    Make a batch of no records, of no producer, for offsets whose records are gone.

    Args:
        base: The first offset.
        end: The offset behind the last.
        leader_epoch: The epoch of the last record that was there.
        timestamp: Its append time.
    """
    return hollow(
        BatchHeader(
            base_offset=base,
            length=0,
            leader_epoch=leader_epoch,
            magic=MAGIC,
            crc=0,
            attributes=NATIVE,
            last_offset_delta=end - base - 1,
            base_timestamp=timestamp,
            max_timestamp=timestamp,
            producer_id=NO_PRODUCER,
            producer_epoch=-1,
            base_sequence=-1,
            records=0,
        )
    )


def decided(batch: Bytes) -> bytes:
    """
    Make a batch of a transaction that was committed one of no transaction.

    Args:
        batch: As it is stored.
    """
    header = read_header(batch)
    found = header._replace(attributes=header.attributes & ~TRANSACTIONAL)
    payload = bytes(batch[PAYLOAD:])
    base, epoch = header.base_offset, header.leader_epoch
    return b"".join(stored(payload, found, base, epoch, header.max_timestamp))


def build(  # noqa: PLR0913 - the fields of the header
    payload: bytes,
    count: int,
    attributes: int,
    *,
    timestamp: int = 0,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """
    Put a header before a payload, as a producer sends it.

    Args:
        payload: The columns.
        count: Records in it.
        attributes: Flags and codec.
        timestamp: Producer's time in milliseconds; the broker overwrites it.
        producer_id: From INIT_PRODUCER, or -1.
        producer_epoch: From INIT_PRODUCER, or -1.
        base_sequence: Sequence of the first record, or -1.

    Returns:
        The batch with base offset 0 and epoch -1.
    """
    checked = _ATTRIBUTES_TO_END.pack(
        attributes,
        count - 1,
        timestamp,
        timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    crc = crc_extend(crc_value(checked), payload)
    length = len(payload) + HEADER_SIZE - LENGTH_END
    return b"".join((_TO_CRC.pack(0, length, -1, MAGIC, crc), checked, payload))


def sequence(batch: bytes, producer_id: int, producer_epoch: int, base_sequence: int) -> bytes:
    """
    Give a built batch another place in its producer's sequence.

    Args:
        batch: A batch from `build`.
        producer_id: The new producer id.
        producer_epoch: The new epoch.
        base_sequence: The new sequence of the first record.
    """
    header = read_header(batch)
    return build(
        batch[PAYLOAD:],
        header.records,
        header.attributes,
        timestamp=header.base_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def split(buffer: Bytes) -> list[tuple[BatchHeader, memoryview]]:
    """
    Cut a run of batches, as FETCH returns it, without checking them.

    Args:
        buffer: Whole batches; a torn last one is left out.
    """
    view, position, size = memoryview(buffer), 0, len(buffer)
    found = []
    while size - position >= HEADER_SIZE:
        header = read_header(view, position)
        end = position + header.size
        if end > size or header.size < HEADER_SIZE:
            break
        found.append((header, view[position:end]))
        position = end
    return found


assert _TO_CRC.size == CHECKED_FROM
assert Limits().payload > KIB
