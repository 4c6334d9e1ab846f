"""
Records to columns and columns to records.

`RecordBatch` opens a column only when it is asked for, so that a reader who
wants values pays for values.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import Any, Final, NamedTuple

import zstandard
from typing_extensions import override

from tinymq.errors import CorruptBatch, InvalidRequest, UsageError
from tinymq.limits import DEFAULT_LIMITS, MIB
from tinymq.wire.batch import (
    HAS_DUE,
    HAS_EXPIRY,
    HAS_IDS,
    LENGTH_END,
    MAX_RECORDS,
    NATIVE,
    NO_PRODUCER,
    PAYLOAD,
    TRANSACTIONAL,
    BatchHeader,
    Codec,
    Column,
    build,
    checked_header,
    column_spans,
    stored,
)
from tinymq.wire.codec import pack, unpack_column
from tinymq.wire.frames import Bytes

#: Header names and values of one record, in order; names may repeat.
Headers = Sequence[tuple[str, bytes]]


class Record(NamedTuple):
    """
    One record as a consumer gets it.

    Attributes:
        offset: Its place in the partition.
        timestamp: When the broker appended it, milliseconds since the epoch.
        key: Key, or None.
        value: Value, or None for a tombstone.
        headers: Names and values in order.
        created: The producer's own time in milliseconds, or None.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    created: int | None

    @override
    def __repr__(self) -> str:
        size = "tombstone" if self.value is None else f"{len(self.value)} B"
        return f"<Record offset={self.offset} key={self.key!r:.40} {size}>"


def encode_batch(  # noqa: PLR0913 - the columns of a batch
    values: Sequence[bytes | None],
    *,
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[Headers] | None = None,
    times: Sequence[int] | int | None = None,
    ids: Sequence[bytes | None] | None = None,
    ttls: Sequence[int | None] | None = None,
    dues: Sequence[int] | None = None,
    codec: Codec = Codec.NONE,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> bytes:
    """
    Encode records as one native batch.

    Args:
        values: The values; None is a tombstone.
        keys: As many keys, or None when no record has one.
        headers: As many header lists, or None when no record has headers.
        times: The producer's times in milliseconds, one for all or one each.
        ids: As many 16-byte message ids, of which some may be None, or None.
        ttls: As many times to live in milliseconds from the append time, or None.
        dues: As many due times in milliseconds since the epoch, a delay as the
            number below 0 of its milliseconds; None is due at once.
        codec: Compression of values and headers: none, gzip or zstd.
        producer_id: From INIT_PRODUCER, or -1.
        producer_epoch: From INIT_PRODUCER, or -1.
        base_sequence: Sequence of the first record, or -1.
        transactional: Whether it is part of the transaction of this id and epoch.

    Returns:
        The batch, ready for PRODUCE.

    Raises:
        UsageError: No values, or a column with another number of items. Nobody
            could read such a batch, and the broker does not look inside.
        InvalidRequest: The codec is not used in native batches.
    """
    count = len(values)
    given = (values, keys, headers, ids, ttls, dues, None if isinstance(times, int) else times)
    for column in given:
        if column is not None and not 0 < len(column) == count:
            raise UsageError(f"a batch of {count} values has a column of {len(column)} items")
    packed_values = compress(pack(values), codec)
    packed_headers = None if headers is None else compress(pack(headers), codec)
    columns = [
        None,
        None if times is None else pack(times),
        None if keys is None else pack(keys),
        packed_values,
        packed_headers,
        None if ids is None else pack(ids),
        None if ttls is None else pack(ttls),
    ]
    flags = (HAS_IDS if ids is not None else 0) | (HAS_EXPIRY if ttls is not None else 0)
    if dues is not None:
        columns.append(pack(dues))
        flags |= HAS_DUE
    if transactional:
        flags |= TRANSACTIONAL
    newest = 0 if times is None else times if isinstance(times, int) else max(times)
    return build(
        pack(columns),
        count,
        NATIVE | codec | flags,
        timestamp=newest,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


class RecordBatch:
    """
    A stored batch, its columns opened on demand.

    Args:
        buffer: Exactly one batch.
        header: Its header, if it was read and checked already.
        inflated: Most bytes that a compressed column may grow to.

    Raises:
        CorruptBatch: Here or at the first look at a column, when the bytes
            contradict themselves.
    """

    __slots__ = ("_buffer", "_inflated", "_spans", "header")

    def __init__(
        self,
        buffer: Bytes,
        header: BatchHeader | None = None,
        inflated: int = DEFAULT_LIMITS.inflated,
    ) -> None:
        self.header = checked_header(buffer) if header is None else header
        if not self.header.native:
            raise CorruptBatch("only native batches can be read here")
        if not 0 <= self.header.records <= MAX_RECORDS:
            raise CorruptBatch(f"a native batch cannot have {self.header.records} records")
        self._buffer = memoryview(buffer)
        self._spans = column_spans(self._buffer)
        self._inflated = inflated

    def __len__(self) -> int:
        return self.header.records

    @property
    def timestamp(self) -> int:
        """When the broker appended it, milliseconds since the epoch."""
        return self.header.max_timestamp

    @property
    def offsets(self) -> Sequence[int]:
        """The offset of each record."""
        base, last = self.header.base_offset, self.header.last_offset_delta
        deltas = self._column(Column.DELTAS)
        if deltas is None:
            deltas = range(self.header.records)
        elif deltas != sorted({*deltas}):
            raise CorruptBatch("the offsets of the batch do not rise")
        if deltas and not 0 <= deltas[0] <= deltas[-1] <= last:
            raise CorruptBatch(f"the offsets of the batch do not lie in 0 to {last}")
        if type(deltas) is range:
            return range(base, base + len(deltas))
        return [base + delta for delta in deltas]

    @property
    def values(self) -> list[bytes | None]:
        """The value of each record; None is a tombstone."""
        values: list[bytes | None] | None = self._column(Column.VALUES)
        return [None] * self.header.records if values is None else values

    @property
    def keys(self) -> list[bytes | None]:
        """The key of each record."""
        keys: list[bytes | None] | None = self._column(Column.KEYS)
        return [None] * self.header.records if keys is None else keys

    @property
    def headers(self) -> list[Headers]:
        """The headers of each record."""
        rows = self._column(Column.HEADERS)
        if rows is None:
            return [()] * self.header.records
        return [tuple(map(_pair, row)) if row else () for row in rows]

    @property
    def times(self) -> list[int | None]:
        """The producer's own time of each record, or None."""
        times = self._column(Column.TIMES)
        if times is None or isinstance(times, int):
            return [times] * self.header.records
        return list(times)

    @property
    def ids(self) -> list[bytes | None]:
        """The message id of each record, or None."""
        ids: list[bytes | None] | None = self._column(Column.IDS)
        return [None] * self.header.records if ids is None else ids

    @property
    def ttls(self) -> list[int | None]:
        """The time to live of each record in milliseconds from its append time, or None."""
        ttls: list[int | None] | None = self._column(Column.EXPIRY)
        return [None] * self.header.records if ttls is None else ttls

    @property
    def dues(self) -> list[int]:
        """
        When each record is due, milliseconds since the epoch.

        A number below 0 is a delay, from when the broker takes the batch; 0 is at once.
        """
        dues: list[int] | None = self._column(Column.DUE)
        return [0] * self.header.records if dues is None else dues

    def __iter__(self) -> Iterator[Record]:
        """Make the records as they are asked for, without a line of Python for each."""
        return self.columns(self.offsets, self.values)(0, self.header.records)

    def columns(
        self, offsets: Sequence[int], values: list[bytes | None]
    ) -> Callable[[int, int], Iterator[Record]]:
        """
        Open all columns, and return what makes records of a part of them.

        Args:
            offsets: Of this batch.
            values: Of this batch.

        Returns:
            Takes the place of a first record and the one behind a last.
        """
        times, keys = self._column(Column.TIMES), self._column(Column.KEYS)
        headers = None if self._spans[Column.HEADERS] is None else self.headers
        timestamp = self.header.max_timestamp

        def records(low: int, high: int) -> Iterator[Record]:
            rows = zip(
                offsets[low:high],
                repeat(timestamp),
                repeat(None) if keys is None else keys[low:high],
                values[low:high],
                repeat(()) if headers is None else headers[low:high],
                times[low:high] if type(times) is list else repeat(times),
                strict=False,  # every column was found to have one item for each record
            )
            return map(_new_record, rows)

        return records

    def _column(self, column: Column) -> Any:
        span = self._spans[column]
        if span is None:
            return None
        data: Bytes = self._buffer[span[0] : span[1]]
        count = self.header.records
        if column in _COMPRESSED:
            data = decompress(data, self.header.codec, self._inflated)
        try:
            found = unpack_column(data, count)
        except ValueError as error:
            raise CorruptBatch(f"column {column.name.lower()} cannot be read: {error}") from error
        if column is Column.TIMES and type(found) is int:
            return found
        if type(found) is not list or len(found) != count:
            raise CorruptBatch(f"column {column.name.lower()} has not one item for each record")
        if not _ITEMS[column].issuperset(map(type, found)):
            raise CorruptBatch(f"column {column.name.lower()} holds items of a wrong type")
        return found


#: `tuple.__new__` needs no frame of Python, unlike the class itself.
_new_record: Final[Callable[[tuple[Any, ...]], Record]] = partial(
    tuple.__new__,
    Record,
)

_COMPRESSED: Final = (Column.VALUES, Column.HEADERS)

_NONE: Final = type(None)
#: What the items of each column may be.
_ITEMS: Final = {
    Column.DELTAS: frozenset({int}),
    Column.TIMES: frozenset({int}),
    Column.KEYS: frozenset({bytes, _NONE}),
    Column.VALUES: frozenset({bytes, _NONE}),
    Column.HEADERS: frozenset({list, _NONE}),
    Column.IDS: frozenset({bytes, _NONE}),
    Column.EXPIRY: frozenset({int, _NONE}),
    Column.DUE: frozenset({int}),
}


def _pair(item: Any) -> tuple[str, bytes]:
    if type(item) is list and len(item) == 2:
        name, value = item
        if type(name) is str and type(value) is bytes:
            return name, value
    raise CorruptBatch("a header of the batch is not a pair of a name and bytes")


def compress(data: bytes, codec: int) -> bytes:
    """
    Compress a column.

    Args:
        data: The packed column.
        codec: A number of `Codec`.

    Raises:
        InvalidRequest: This codec is not used in native batches.
    """
    if codec == Codec.NONE:
        return data
    if codec == Codec.ZSTD:
        return zstandard.compress(data)
    if codec == Codec.GZIP:
        return zlib.compress(data, level=1, wbits=31)
    raise InvalidRequest(f"codec {codec} is not used in native batches; use none, gzip or zstd")


def decompress(data: Bytes, codec: int, limit: int) -> Bytes:
    """
    Decompress a column, and never to more than `limit` bytes.

    Args:
        data: The compressed column.
        codec: A number of `Codec`.
        limit: Most bytes of the result.

    Raises:
        CorruptBatch: Not in this codec, or larger than the limit.
    """
    if codec == Codec.NONE:
        return data
    try:
        if codec == Codec.ZSTD:
            return _decompress_zstd(data, limit)
        if codec == Codec.GZIP:
            return _decompress_gzip(data, limit)
    except (zstandard.ZstdError, zlib.error) as error:
        raise CorruptBatch(f"a column cannot be decompressed: {error}") from error
    raise CorruptBatch(f"codec {codec} is not used in native batches")


#: What RFC 8878 asks of every decoder; a larger window would be memory for the asking.
_ZSTD_WINDOW: Final = 8 * MIB


def _decompress_zstd(data: Bytes, limit: int) -> bytes:
    """One frame; where it says its size, no more than that is set aside."""
    if zstandard.frame_content_size(data) > limit:
        raise _over(limit)
    inflater = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
    return inflater.decompress(data, max_output_size=limit, allow_extra_data=False)


def _decompress_gzip(data: Bytes, limit: int) -> bytes:
    """One member, with its checksum."""
    inflater = zlib.decompressobj(wbits=31)
    found = inflater.decompress(data, limit + 1)
    if len(found) > limit:
        raise _over(limit)
    if not inflater.eof or inflater.unused_data:
        raise CorruptBatch("the compressed column does not end where it should")
    return found


def _over(limit: int) -> CorruptBatch:
    return CorruptBatch(f"a column decompresses to more than the limit of {limit} bytes")


__all__ = [
    "HAS_EXPIRY",
    "Headers",
    "Record",
    "RecordBatch",
    "compress",
    "decompress",
    "encode_batch",
]


class Opened:
    """
    A batch whose columns were opened, to make shorter ones of it.

    Args:
        batch: The batch, as it is stored.
    """

    __slots__ = ("_columns", "_header", "offsets")

    def __init__(self, batch: RecordBatch) -> None:
        self._header = batch.header
        self.offsets = batch.offsets
        self._columns = [
            None if column is Column.DELTAS else _items(batch, column) for column in Column
        ]

    def pick(self, places: Sequence[int]) -> list[Bytes]:
        """
        Make a batch of some of its records, which keep offsets and times.

        Records in a row become a batch that begins with the first of them.

        Args:
            places: Which ones, counted from 0, rising.

        Returns:
            The pieces of the batch, not compressed.
        """
        header, base, offsets = self._header, self._header.base_offset, self.offsets
        first, last = places[0], places[-1]
        if last - first + 1 == len(places):
            part = slice(first, last + 1)
            columns = [
                items if items is None or type(items) is int else items[part]
                for items in self._columns
            ]
            chosen: Sequence[int] = offsets[part]
        else:
            columns = [
                items if items is None or type(items) is int else [items[p] for p in places]
                for items in self._columns
            ]
            chosen = [offsets[place] for place in places]
        packed = [None if items is None else pack(items) for items in columns]
        if packed[Column.DUE] is None:
            del packed[Column.DUE]
        if chosen[-1] - chosen[0] + 1 == len(places):
            base = chosen[0]
        else:
            packed[Column.DELTAS] = pack([offset - base for offset in chosen])
        found = header._replace(
            attributes=header.attributes & ~_CODECS,
            last_offset_delta=chosen[-1] - base,
            base_sequence=-1 if header.base_sequence < 0 else header.base_sequence + first,
            records=len(places),
        )
        return stored(pack(packed), found, base, header.leader_epoch, header.max_timestamp)

    def thin(self, places: Sequence[int]) -> bytes:
        """
        Make the same batch with some of its records only, of no transaction.

        All else stays: the offsets and sequences that it takes, times, codec.

        Args:
            places: Which ones, counted from 0, rising.
        """
        header, base = self._header, self._header.base_offset
        packed: list[bytes | None] = []
        for column, items in enumerate(self._columns):
            if items is None or type(items) is int:
                packed.append(None if items is None else pack(items))
                continue
            content = pack([items[place] for place in places])
            if column in _COMPRESSED:
                content = bytes(compress(content, header.codec))
            packed.append(content)
        if packed[Column.DUE] is None:
            del packed[Column.DUE]
        packed[Column.DELTAS] = pack([self.offsets[place] - base for place in places])
        found = header._replace(attributes=header.attributes & ~TRANSACTIONAL, records=len(places))
        pieces = stored(pack(packed), found, base, header.leader_epoch, header.max_timestamp)
        return b"".join(pieces)

    def keep(self, places: Sequence[int]) -> tuple[bytes, BatchHeader]:
        """
        Make a batch of some of its records that takes as many offsets and sequences as it.

        Args:
            places: Which ones, counted from 0, rising; maybe none.

        Returns:
            The columns, not compressed, and the header to be stamped before them.
        """
        header = self._header
        flags = header.attributes & ~_CODECS
        if places:
            packed = [
                None
                if items is None
                else pack(items if type(items) is int else [items[place] for place in places])
                for items in self._columns
            ]
            packed[Column.DELTAS] = pack([*places])
            if packed[Column.DUE] is None:
                del packed[Column.DUE]
        else:
            packed = [None] * Column.DUE
            flags &= ~(HAS_IDS | HAS_EXPIRY | HAS_DUE)
        payload = pack(packed)
        length = len(payload) + PAYLOAD - LENGTH_END
        return payload, header._replace(attributes=flags, records=len(places), length=length)


#: The bits of the attributes that name a codec.
_CODECS: Final = 0x7


def _items(batch: RecordBatch, column: Column) -> Any:
    return batch._column(column)  # noqa: SLF001 - as it stands in the batch
