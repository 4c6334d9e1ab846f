"""Records and columns: what was put in comes out, and what does not fit is refused."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.measuring import peak_bytes
from tests.wire.test_batch import altered, payload
from tinymq.errors import CorruptBatch, InvalidRequest, UsageError
from tinymq.limits import DEFAULT_LIMITS
from tinymq.wire.batch import (
    HAS_DUE,
    HAS_EXPIRY,
    NATIVE,
    Codec,
    Column,
    build,
    read_header,
)
from tinymq.wire.codec import pack
from tinymq.wire.produced import check_produced
from tinymq.wire.records import Opened, Record, RecordBatch, compress, encode_batch

MIB = 1 << 20

codecs = st.sampled_from([Codec.NONE, Codec.GZIP, Codec.ZSTD])
small = st.binary(max_size=20)
row = st.tuples(
    st.none() | small,
    st.none() | small,
    st.lists(st.tuples(st.text("abc\u00e4", max_size=5), small), max_size=3),
    st.integers(0, 2**60),
    st.binary(min_size=16, max_size=16),
)

READERS: dict[str, Callable[[RecordBatch], object]] = {
    "offsets": lambda batch: list(batch.offsets),
    "values": lambda batch: batch.values,
    "keys": lambda batch: batch.keys,
    "headers": lambda batch: batch.headers,
    "times": lambda batch: batch.times,
    "ids": lambda batch: batch.ids,
    "records": list,
}

COLUMN_OF = {
    "offsets": Column.DELTAS,
    "times": Column.TIMES,
    "keys": Column.KEYS,
    "values": Column.VALUES,
    "headers": Column.HEADERS,
    "ids": Column.IDS,
}


def with_column(column: Column, content: bytes, count: int) -> bytes:
    """Build a batch in which one column holds these bytes."""
    columns: list[bytes | None] = [None] * 7
    columns[column] = content
    return build(pack(columns), count, NATIVE)


@given(st.lists(row, min_size=1, max_size=20), codecs, st.sets(st.integers(0, 3)))
def test_records_come_back(rows: list[Any], codec: Codec, left_out: set[int]) -> None:
    """Every column, or its absence, survives encoding in each codec."""
    values, *columns = map(list, zip(*rows, strict=True))
    keys, headers, times, ids = (
        None if place in left_out else column for place, column in enumerate(columns)
    )
    none: list[Any] = [None] * len(rows)

    data = encode_batch(values, keys=keys, headers=headers, times=times, ids=ids, codec=codec)
    check_produced(data, DEFAULT_LIMITS)
    batch = RecordBatch(data)

    assert len(batch) == len(rows)
    assert batch.values == values
    assert batch.keys == (keys or none)
    assert batch.headers == [tuple(row) for row in headers or [()] * len(rows)]
    assert batch.times == (times or none)
    assert batch.ids == (ids or none)
    assert batch.timestamp == (max(times) if times else 0)


def test_records_one_by_one() -> None:
    """Iteration gives records with offsets, append time and all else."""
    data = encode_batch([b"v", None], keys=[b"k", None], headers=[[("h", b"x")], []], times=7)
    batch = RecordBatch(altered(data, base_offset=40, max_timestamp=99))

    first, second = batch

    assert (first.offset, first.timestamp, first.created) == (40, 99, 7)
    assert (first.key, first.value, first.headers) == (b"k", b"v", (("h", b"x"),))
    assert (second.offset, second.key, second.value, second.headers) == (41, None, None, ())


def test_records_are_shown_without_their_values() -> None:
    """A record in a log says its offset, a little of its key, and its size."""
    assert repr(Record(5, 0, b"k", b"secret", (), None)) == "<Record offset=5 key=b'k' 6 B>"
    assert "tombstone" in repr(Record(5, 0, None, None, (), None))
    assert len(repr(Record(5, 0, b"k" * 1000, b"", (), None))) < 80


def test_a_value_at_its_limit_is_a_batch_of_one() -> None:
    """A value of exactly the limit is taken, with the longest key beside it."""
    limits = DEFAULT_LIMITS
    data = encode_batch([bytes(limits.value)], keys=[bytes(limits.key)])

    assert check_produced(data, limits).records == 1
    assert RecordBatch(data).values == [bytes(limits.value)]


def test_the_most_records() -> None:
    """65 535 records in one batch are read by the long way, and one more is refused."""
    values: list[bytes | None] = [b"v"] * 65_535

    assert RecordBatch(encode_batch(values)).values == values
    with pytest.raises(CorruptBatch, match="65536 records"):
        RecordBatch(encode_batch([*values, b"v"]))


def test_a_known_header_is_not_checked_again() -> None:
    """Who read the header already passes it on, and a checksum is not computed twice."""
    data = bytearray(encode_batch([b"a"]))
    data[17] ^= 1

    assert RecordBatch(data, read_header(data)).values == [b"a"]
    with pytest.raises(CorruptBatch, match="checksum"):
        RecordBatch(data)


@pytest.mark.parametrize(
    "columns",
    [
        {"values": []},
        {"values": [b"a"], "keys": []},
        {"values": [b"a"], "keys": [b"k", b"l"]},
        {"values": [b"a"], "headers": []},
        {"values": [b"a"], "ids": []},
        {"values": [b"a"], "times": []},
    ],
)
def test_columns_of_other_lengths_are_not_sent(columns: dict[str, Any]) -> None:
    """A batch that nobody could read is refused where it is made."""
    with pytest.raises(UsageError):
        encode_batch(columns.pop("values"), **columns)


@pytest.mark.parametrize("codec", [Codec.SNAPPY, Codec.LZ4, 9])
def test_other_codecs_are_not_used(codec: int) -> None:
    """Codecs of Kafka that native batches do not have are refused where a batch is made."""
    with pytest.raises(InvalidRequest, match="use none, gzip or zstd"):
        compress(b"data", codec)


# --- hostile columns -------------------------------------------------------------


def test_only_native_batches_are_read() -> None:
    """A batch without the native bit is not columns."""
    with pytest.raises(CorruptBatch, match="only native"):
        RecordBatch(altered(encode_batch([b"a"]), attributes=0))


@pytest.mark.parametrize("records", [2**31 - 1, 65_536, -1])
def test_a_claimed_count_costs_nothing(records: int) -> None:
    """A header that claims two thousand million records sets no room aside for them."""
    data = encode_batch([b"a"])
    header = read_header(data)._replace(records=records, last_offset_delta=records - 1)

    def look() -> None:
        with pytest.raises(CorruptBatch):
            RecordBatch(data, header)

    assert peak_bytes(look) < MIB


WRONG: dict[str, list[Any]] = {
    "offsets": [[0], [1, 0], [0, 0], [0, 2], [-1, 0], [0, None], [0, b""], 0, [0, 0.5], [0, True]],
    "times": [[1], [1, None], [1, b""], b"", [1, 1.5], {}, None, "1"],
    "keys": [[b""], [b"", b"", b""], [b"", ""], [b"", 1], [b"", []], b"", 2, ["", ""]],
    "values": [[b""], [b"", b"", b""], [b"", ""], [b"", 1], [b"", []], [b"", 1.5], None, b"ab"],
    "headers": [
        [[]],
        [[], [["n", b"v", b"w"]]],
        [[], [["n"]]],
        [[], [[b"n", b"v"]]],
        [[], [["n", 1 << 40]]],
        [[], [["n", "v"]]],
        [[], [["n", None]]],
        [[], ["nv"]],
        [[], [1]],
        [[], 1],
        [[], "ab"],
        [[], {}],
        7,
    ],
    "ids": [[b""], [1, 2], [b"", "x"], 3],
}


@pytest.mark.parametrize(
    ("reader", "value"), [(name, value) for name, values in WRONG.items() for value in values]
)
def test_columns_that_hold_something_else(reader: str, value: Any) -> None:
    """Wrong types, numbers of items and orders are corrupt, and cost nothing."""
    batch = RecordBatch(with_column(COLUMN_OF[reader], pack(value), 2))

    def look() -> None:
        with pytest.raises(CorruptBatch):
            READERS[reader](batch)

    assert peak_bytes(look) < MIB


def test_no_record_lies_behind_the_last_offset() -> None:
    """Without offsets of their own, as many records as offsets are needed."""
    data = encode_batch([b"a", b"b"])
    header = read_header(data)._replace(last_offset_delta=0)

    with pytest.raises(CorruptBatch, match="0 to 0"):
        list(RecordBatch(data, header).offsets)


def test_offsets_after_compaction() -> None:
    """A column of deltas says which offsets are left, maybe none."""
    data = altered(with_column(Column.DELTAS, pack([1, 4]), 2), base_offset=7, last_offset_delta=5)
    empty = altered(with_column(Column.DELTAS, pack([]), 2), records=0)

    assert list(RecordBatch(data).offsets) == [8, 11]
    assert list(RecordBatch(empty).offsets) == []


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | small | st.text("a", max_size=3),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=8,
)


@given(
    st.lists(st.none() | small | anything.map(pack), min_size=7, max_size=7),
    st.integers(0, 6),
    st.sampled_from([NATIVE, NATIVE | Codec.GZIP, NATIVE | Codec.ZSTD, NATIVE | 2, NATIVE | 7]),
)
def test_any_columns_are_read_or_corrupt(columns: list[Any], count: int, attributes: int) -> None:
    """Whatever stands in the columns gives items or CorruptBatch, and nothing else."""
    batch = RecordBatch(
        altered(build(pack(columns), 1, attributes), records=count, last_offset_delta=count)
    )
    for read in READERS.values():
        with suppress(CorruptBatch):
            read(batch)


@pytest.mark.parametrize("count", [1, 1024, 65_535])
@pytest.mark.parametrize("reader", COLUMN_OF)
@pytest.mark.parametrize("filling", [b"\xdc\x04\x00", b"\xdc\xff\xff", b"\x90", b"\x91"])
def test_hostile_columns_stay_small(reader: str, count: int, filling: bytes) -> None:
    """64 KiB of the worst msgpack in a column cost a few MB at most."""
    content = b"\xdc" + count.to_bytes(2, "big") + filling * (65_536 // len(filling))
    batch = RecordBatch(with_column(COLUMN_OF[reader], content, count))

    def look() -> None:
        with suppress(CorruptBatch):
            READERS[reader](batch)

    assert peak_bytes(look) < 10 * MIB


def test_a_batch_needs_its_columns() -> None:
    """A payload that is not columns is corrupt at the first look."""
    with pytest.raises(CorruptBatch):
        RecordBatch(build(payload()[:-1], 1, NATIVE))


def test_times_to_come_and_to_live() -> None:
    """Due times, delays and times to live are columns that flags tell of."""
    batch = RecordBatch(encode_batch([b"a", b"b"], ttls=[5, None], dues=[1_900_000_000_000, -250]))
    bare = RecordBatch(encode_batch([b"a"]))

    assert batch.header.attributes & (HAS_DUE | HAS_EXPIRY) == HAS_DUE | HAS_EXPIRY
    assert (batch.ttls, batch.dues) == ([5, None], [1_900_000_000_000, -250])
    assert (bare.ttls, bare.dues) == ([None], [0])
    assert not bare.header.attributes & (HAS_DUE | HAS_EXPIRY)
    check_produced(encode_batch([b"a"], dues=[0]), DEFAULT_LIMITS)


def test_due_times_go_with_the_records_that_are_picked() -> None:
    """A shorter batch keeps the due times of its records, and one without has no column."""
    timed = RecordBatch(encode_batch([b"a", b"b", b"c"], dues=[1, 2, 3]))
    found = RecordBatch(b"".join(Opened(timed).pick([0, 2])))
    bare = RecordBatch(b"".join(Opened(RecordBatch(encode_batch([b"a", b"b"]))).pick([1])))

    assert (found.dues, found.values) == ([1, 3], [b"a", b"c"])
    assert (bare.dues, bare.values) == ([0], [b"b"])
