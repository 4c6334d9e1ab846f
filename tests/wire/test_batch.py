"""The record batch: what a broker takes, what it refuses, and what it stamps."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Any

import pytest
from google_crc32c import value as crc32c
from hypothesis import given
from hypothesis import strategies as st

from tinymq.errors import (
    BatchTooLarge,
    CorruptBatch,
    InvalidRequest,
    RequestError,
    ValueTooLarge,
)
from tinymq.limits import DEFAULT_LIMITS, KIB, Limits
from tinymq.wire.batch import (
    APPEND_TIME,
    BATCH_HEADER,
    COLUMNS,
    CONTROL,
    HAS_EXPIRY,
    HAS_IDS,
    HEADER_SIZE,
    NATIVE,
    SEQUENCE_MODULUS,
    TRANSACTIONAL,
    BatchHeader,
    Codec,
    build,
    checked_header,
    column_spans,
    read_header,
    sequence,
    split,
    stamp,
)
from tinymq.wire.codec import pack
from tinymq.wire.produced import check_produced
from tinymq.wire.records import encode_batch

NIL = b"\xc0"


def payload(*columns: bytes | None) -> bytes:
    """Put columns side by side, as they travel."""
    return bytes(pack([*columns, *[None] * (COLUMNS[0] - len(columns))]))


def good(count: int = 2, **fields: Any) -> bytes:
    """Build a batch of empty values."""
    return build(payload(None, None, None, pack([b""] * count)), count, NATIVE, **fields)


def altered(batch: bytes, *, crc: bool = True, **fields: int) -> bytes:
    """Change fields of a batch's header, and make the checksum fit again."""
    header = read_header(batch)._replace(**fields)
    changed = BATCH_HEADER.pack(*header) + batch[HEADER_SIZE:]
    if not crc:
        return changed
    return b"".join((changed[:17], struct.pack(">I", crc32c(changed[21:])), changed[21:]))


# --- the header ----------------------------------------------------------------


def test_header_byte_by_byte() -> None:
    """Each field stands where the document draws it."""
    batch = build(b"payload", 3, NATIVE | 4, timestamp=5, producer_id=6, base_sequence=8)

    assert (
        batch
        == (
            bytes(8)  # base offset
            + (49 + 7).to_bytes(4, "big")  # bytes after this field
            + b"\xff\xff\xff\xff"  # leader epoch -1
            + b"\x02"  # magic
            + crc32c(batch[21:]).to_bytes(4, "big")
            + b"\x80\x04"  # attributes
            + (2).to_bytes(4, "big")  # last offset delta
            + (5).to_bytes(8, "big")  # base timestamp
            + (5).to_bytes(8, "big")  # max timestamp
            + (6).to_bytes(8, "big")  # producer id
            + b"\xff\xff"  # producer epoch -1
            + (8).to_bytes(4, "big")  # base sequence
            + (3).to_bytes(4, "big")  # records
            + b"payload"
        )
    )


def test_header_says_where_the_batch_ends() -> None:
    """Sizes and offsets follow from the fields."""
    header = checked_header(altered(good(3), base_offset=10))

    assert header.size == len(good(3))
    assert (header.base_offset, header.last_offset, header.next_offset) == (10, 12, 13)
    assert (header.native, header.codec) == (True, Codec.NONE)


@given(st.binary(max_size=150), st.booleans())
def test_any_bytes_are_a_batch_or_a_documented_error(data: bytes, headed: bool) -> None:
    """Garbage never raises anything but the errors of a wrong batch."""
    if headed:
        data = BATCH_HEADER.pack(0, 49 + len(data), 0, 2, 0, NATIVE, 0, 0, 0, -1, -1, -1, 1) + data
        data = altered(data)
    with suppress(CorruptBatch):
        assert isinstance(checked_header(data), BatchHeader)
    with suppress(RequestError):
        check_produced(data, DEFAULT_LIMITS)
    with suppress(CorruptBatch):
        assert len(column_spans(data, 0)) == COLUMNS[-1]
    assert sum(len(piece) for _, piece in split(data)) <= len(data)


@given(st.integers(0, len(good()) - 1), st.integers(1, 255))
def test_no_changed_byte_goes_unseen(place: int, mask: int) -> None:
    """A byte that was changed anywhere behind the epoch makes the batch corrupt."""
    batch = bytearray(good())
    batch[place] ^= mask

    if place in range(8) or place in range(12, 16):
        checked_header(batch)  # offset and epoch are the broker's to set
    else:
        with pytest.raises(CorruptBatch):
            checked_header(batch)


@given(st.data())
def test_a_cut_batch_is_corrupt(data: st.DataObject) -> None:
    """No prefix of a batch is a batch, and nothing may follow it."""
    batch = good()
    end = data.draw(st.integers(0, len(batch) - 1))

    for wrong in (batch[:end], batch + b"x"):
        with pytest.raises(CorruptBatch):
            checked_header(wrong)


@pytest.mark.parametrize(
    ("records", "last_offset_delta"), [(-1, 0), (1, -1), (0, -1), (3, 1), (2**31 - 1, 5)]
)
def test_counts_that_contradict_each_other(records: int, last_offset_delta: int) -> None:
    """More records than offsets, and numbers below zero, are corrupt."""
    with pytest.raises(CorruptBatch):
        checked_header(altered(good(), records=records, last_offset_delta=last_offset_delta))


def test_a_stored_batch_may_have_gaps() -> None:
    """Compaction takes records out, down to none, and leaves the offsets."""
    for records in (0, 1, 2):
        assert checked_header(altered(good(), records=records)).records == records


def test_another_magic_is_corrupt() -> None:
    """Only version 2 of the format is known."""
    with pytest.raises(CorruptBatch, match="magic 2, not 1"):
        checked_header(altered(good(), magic=1))


# --- what a broker takes ---------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 65_535])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_good_batches_are_taken(count: int, kind: Any) -> None:
    """From one record to the most, in any kind of buffer."""
    assert check_produced(kind(good(count)), DEFAULT_LIMITS).records == count


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"records": 1}, "count"),
        ({"records": 0}, "count"),
        ({"records": 65_536, "last_offset_delta": 65_535}, "count"),
        ({"attributes": 0}, "attributes"),
        ({"attributes": NATIVE | CONTROL | TRANSACTIONAL}, "attributes"),
        ({"attributes": NATIVE | CONTROL}, "attributes"),
        ({"attributes": NATIVE | 1 << 6}, "attributes"),
        ({"attributes": NATIVE | 1 << 12}, "attributes"),
        ({"attributes": NATIVE | HAS_IDS}, "attributes"),
        ({"attributes": NATIVE | HAS_EXPIRY}, "attributes"),
        ({"attributes": NATIVE | Codec.SNAPPY}, "codec"),
        ({"attributes": NATIVE | Codec.LZ4}, "codec"),
        ({"attributes": NATIVE | 7}, "codec"),
        ({"producer_id": 5}, "sequence"),
        ({"producer_id": 5, "producer_epoch": 0}, "sequence"),
        ({"producer_id": 5, "base_sequence": 0}, "sequence"),
        ({"producer_id": -2, "producer_epoch": 0, "base_sequence": 0}, "sequence"),
    ],
)
def test_headers_that_producers_may_not_send(fields: dict[str, Any], named: str) -> None:
    """Reserved bits, other codecs, gaps and half an identity are refused by name."""
    with pytest.raises(InvalidRequest) as caught:
        check_produced(altered(good(), **fields), DEFAULT_LIMITS)
    assert caught.value.data == {"field": named}


def test_append_time_may_be_claimed() -> None:
    """The broker sets this bit anyway, so a copied batch may have it."""
    batch = altered(good(), attributes=NATIVE | APPEND_TIME)

    assert check_produced(batch, DEFAULT_LIMITS).attributes & APPEND_TIME


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ((pack([0, 1]), None, None, pack([b"", b""])), "deltas"),
        ((None, None, None, pack([b"", b""]), None, pack([bytes(16)] * 2)), "attributes"),
        ((None, None, None, pack([b"", b""]), None, None, pack([5, 6])), "attributes"),
    ],
)
def test_columns_that_producers_may_not_send(columns: tuple[bytes | None], named: str) -> None:
    """Offsets are the broker's, and bits say truly which columns are there."""
    with pytest.raises(InvalidRequest) as caught:
        check_produced(build(payload(*columns), 2, NATIVE), DEFAULT_LIMITS)
    assert caught.value.data == {"field": named}


def test_expiry_may_be_sent() -> None:
    """The column and its bit together are taken."""
    batch = build(
        payload(None, None, None, pack([b""]), None, None, pack([5])), 1, NATIVE | HAS_EXPIRY
    )

    assert check_produced(batch, DEFAULT_LIMITS).records == 1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x96" + NIL * 6,
        b"\x98" + NIL * 8,
        b"\xdc\x00\x07" + NIL * 7,
        b"\x97" + NIL * 6,
        b"\x97" + NIL * 8,
        b"\x97" + NIL * 6 + b"\x01",
        b"\x97" + NIL * 6 + b"\xa0",
        b"\x97" + NIL * 6 + b"\xc4",
        b"\x97" + NIL * 6 + b"\xc4\x05abcd",
        b"\x97" + NIL * 6 + b"\xc6\xff\xff\xff\xffabcd",
        b"\x97" + b"\xc6\xff\xff\xff\xff" + NIL * 6,
    ],
)
def test_payloads_that_are_not_columns(data: bytes) -> None:
    """Another number of columns, other types, and lengths that lie are corrupt."""
    with pytest.raises(CorruptBatch):
        check_produced(build(data, 1, NATIVE), DEFAULT_LIMITS)


def test_columns_are_found_without_decoding() -> None:
    """Spans point at the content of bins of each width of length."""
    columns = [None, b"abc", b"", b"x" * 300, b"y" * 70_000, None, b"\xc1", b"due"]
    data = b"front" + pack(columns)

    spans = column_spans(data, 5)

    assert column_spans(b"front" + pack(columns[:7]), 5) == [*spans[:7], None]
    assert [None if span is None else data[slice(*span)] for span in spans] == columns


# --- limits --------------------------------------------------------------------


def valued(size: int, count: int = 1) -> bytes:
    """Build a batch of exactly this size."""
    rest = len(encode_batch([bytes(size)] * count)) - size * count
    batch = encode_batch([bytes((size - rest) // count)] * count)
    missing = size - len(batch)
    batch = encode_batch(
        [bytes((size - rest) // count)] * (count - 1) + [bytes((size - rest) // count + missing)]
    )
    assert len(batch) == size
    return batch


LIMITS = Limits(batch=4 * KIB, value=64 * KIB)


def test_several_records_are_held_to_the_batch_limit() -> None:
    """Just at the limit is taken; a byte more names the batch limit."""
    check_produced(valued(LIMITS.batch, 3), LIMITS)

    with pytest.raises(BatchTooLarge, match="batch limit is 4096") as caught:
        check_produced(valued(LIMITS.batch + 1, 3), LIMITS)
    assert caught.value.data == {"limit": 4096, "name": "batch"}


def test_one_record_is_held_to_the_value_limit() -> None:
    """A value over the batch limit travels alone; beyond its own limit, that one is named."""
    value, key, headers = bytes(LIMITS.value), bytes(LIMITS.key), bytes(LIMITS.headers - 1)
    check_produced(encode_batch([value]), LIMITS)
    check_produced(encode_batch([value], keys=[key], headers=[[("h", headers)]]), LIMITS)

    with pytest.raises(ValueTooLarge, match="value limit is 65536") as caught:
        check_produced(encode_batch([bytes(LIMITS.payload)]), LIMITS)
    assert caught.value.data == {"limit": 65536, "name": "value"}


# --- stamping ------------------------------------------------------------------


@given(
    st.integers(0, 2**62),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**62),
    st.sampled_from([Codec.NONE, Codec.GZIP, Codec.ZSTD]),
)
def test_a_stamped_batch_is_whole(offset: int, epoch: int, timestamp: int, codec: Codec) -> None:
    """Stamping sets place and time, fits the checksum, and changes nothing else."""
    batch = encode_batch(
        [b"a", None],
        keys=[b"k", b""],
        times=[1, 2],
        codec=codec,
        producer_id=3,
        producer_epoch=1,
        base_sequence=4,
    )
    before = check_produced(batch, DEFAULT_LIMITS)

    stamped = b"".join(stamp(batch, before, offset, epoch, timestamp))
    after = checked_header(stamped)

    assert after == before._replace(
        base_offset=offset,
        leader_epoch=epoch,
        crc=after.crc,
        attributes=before.attributes | APPEND_TIME,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
    )
    assert stamped[HEADER_SIZE:] == batch[HEADER_SIZE:]


# --- sequences -----------------------------------------------------------------


def test_sequences_wrap_behind_31_bits() -> None:
    """A batch may begin at the last sequence and reach over the wrap."""
    batch = good(3, producer_id=1, producer_epoch=0, base_sequence=SEQUENCE_MODULUS - 1)

    header = check_produced(batch, DEFAULT_LIMITS)

    assert header.base_sequence == 0x7FFFFFFF
    assert (header.base_sequence + header.records) % SEQUENCE_MODULUS == 2
    with pytest.raises(struct.error):
        good(1, producer_id=1, producer_epoch=0, base_sequence=SEQUENCE_MODULUS)


def test_a_batch_is_given_another_place_in_its_sequence() -> None:
    """After a new producer id the same records are sent under it."""
    batch = good(2, timestamp=9, producer_id=1, producer_epoch=2, base_sequence=3)

    assert sequence(batch, 5, 6, 7) == good(
        2, timestamp=9, producer_id=5, producer_epoch=6, base_sequence=7
    )


# --- runs of batches -------------------------------------------------------------


def test_a_run_is_cut_into_batches() -> None:
    """Whole batches come out as views; a torn last one is left out."""
    batches = [good(1), good(3), good(2)]
    run = b"".join(batches)

    assert [bytes(piece) for _, piece in split(run)] == batches
    assert [header.records for header, _ in split(run + good(9)[:-1])] == [1, 3, 2]
    assert [header.records for header, _ in split(run + good(9)[: HEADER_SIZE - 1])] == [1, 3, 2]
    assert split(b"") == []


@pytest.mark.parametrize("length", [-(2**31), -12, 0, HEADER_SIZE - 13])
def test_a_length_that_is_too_short_ends_the_run(length: int) -> None:
    """A length that would lead backwards or nowhere stops the cutting."""
    assert split(altered(good(), crc=False, length=length)) == []


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("key", {"keys": [bytes(DEFAULT_LIMITS.key + 10)]}),
        ("headers", {"headers": [[("a", bytes(DEFAULT_LIMITS.headers + 2000))]]}),
    ],
)
def test_longest_key_and_headers(name: str, columns: dict[str, Any]) -> None:
    """A key or headers over their limit are refused by the broker, too, and named."""
    with pytest.raises(ValueTooLarge) as caught:
        check_produced(encode_batch([b"v"], **columns), DEFAULT_LIMITS)
    assert caught.value.data == {"limit": getattr(DEFAULT_LIMITS, name), "name": name}


def test_value_over_its_limit() -> None:
    """A value one byte over the limit is refused, one at the limit is taken."""
    limits = Limits(value=100_000, batch=50_000)
    check_produced(encode_batch([bytes(100_000)]), limits)
    with pytest.raises(ValueTooLarge):
        check_produced(encode_batch([bytes(100_006)]), limits)
