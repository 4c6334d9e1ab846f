"""A peer's msgpack is decoded within limits, or refused."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.measuring import peak_bytes
from tinymq.errors import MalformedFrame
from tinymq.wire.codec import MAX_ARRAY, MAX_MAP, MAX_META, pack, unpack_column, unpack_meta

MIB = 1 << 20
FEW = 10 * MIB


def full(start: bytes, filling: bytes) -> bytes:
    """Fill a map of one key up to the limit of meta."""
    start = b"\x81\xa1a" + start
    return start + filling * ((MAX_META - len(start)) // len(filling))


HOSTILE = {
    "nested arrays that claim 65 535 items": full(b"", b"\xdc\xff\xff"),
    "nested arrays that claim the most allowed": full(b"", b"\xdc" + MAX_ARRAY.to_bytes(2, "big")),
    "nested arrays that claim 4 G items": full(b"", b"\xdd\xff\xff\xff\xff"),
    "nested arrays of one": full(b"", b"\x91"),
    "nested maps": full(b"", b"\x81\xa1a"),
    "nested maps that claim the most allowed": full(b"", b"\xde\x10\x00\xa1a"),
    "maps that claim 4 G items": full(b"", b"\xdf\xff\xff\xff\xff"),
    "empty arrays": full(b"\xdc\xff\xf0", b"\x90"),
    "arrays of empty arrays": full(b"\xdc\x00\x80", b"\xdc\x04\x00" + b"\x90" * 1024),
    "arrays of empty maps": full(b"\xdc\x00\x80", b"\xdc\x04\x00" + b"\x80" * 1024),
    "strings that claim 4 GB": full(b"", b"\xdb\xff\xff\xff\xff"),
    "bins that claim 4 GB": full(b"", b"\xc6\xff\xff\xff\xff"),
    "extensions": full(b"", b"\xd4\x01\x00"),
    "extensions that claim 4 GB": full(b"", b"\xc9\xff\xff\xff\xff\x01"),
    "timestamps": full(b"", b"\xd6\xff\x00\x00\x00\x00"),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_hostile_meta_stays_small(data: bytes) -> None:
    """64 KiB of the worst msgpack cost a few MB at most, and end as a documented error or a map."""

    def decode() -> None:
        with suppress(MalformedFrame):
            unpack_meta(data)

    assert peak_bytes(decode) < FEW


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("count", [1, MAX_ARRAY, MAX_ARRAY + 1, 65_535])
def test_hostile_columns_stay_small(data: bytes, count: int) -> None:
    """The same holds for a column, however many records the batch claims."""
    data = data[3:]

    def decode() -> None:
        with suppress(ValueError):
            unpack_column(data, count)

    assert peak_bytes(decode) < FEW


def test_a_long_meta_is_refused_before_it_is_decoded() -> None:
    """A map of 16 MiB of empty arrays costs nothing, for nobody looks into it."""
    data = b"\xdf\x00\x20\x00\x00" + b"\xa0\x90" * (8 * MIB)

    def decode() -> None:
        with pytest.raises(MalformedFrame, match=f"limit is {MAX_META}"):
            unpack_meta(data)

    assert peak_bytes(decode) < 64 * 1024


@given(st.binary(max_size=300))
def test_any_meta_is_a_map_or_malformed(data: bytes) -> None:
    """Garbage gives a map with string keys or MalformedFrame."""
    try:
        meta = unpack_meta(data)
    except MalformedFrame:
        return
    assert all(type(key) is str for key in meta)


@given(st.binary(max_size=300), st.sampled_from([0, 1, 3, 300, 5000]))
def test_any_column_is_a_value_or_an_error(data: bytes, count: int) -> None:
    """Garbage in a column gives a value or ValueError, by the short way and the long one."""
    with suppress(ValueError):
        unpack_column(data, count)


@pytest.mark.parametrize(
    "value",
    [
        [],
        None,
        7,
        "text",
        {1: 2},
        {b"k": 1},
        {"k": msgpack.ExtType(1, b"x")},
        {"k": msgpack.Timestamp(1)},
        {"k": [0] * (MAX_ARRAY + 1)},
        {str(number): 0 for number in range(MAX_MAP + 1)},
    ],
    ids=lambda value: f"{value!r:.20}",
)
def test_meta_that_is_not_taken(value: Any) -> None:
    """Other values than maps, other keys than strings, extensions and long arrays are refused."""
    with pytest.raises(MalformedFrame):
        unpack_meta(msgpack.packb(value))


@pytest.mark.parametrize(
    "data", [b"\x81", b"\x81\xa1k", b"\x80\x80", b"\xc1", b"\x81\xa2\xc3\x28\x01"]
)
def test_meta_that_is_not_msgpack(data: bytes) -> None:
    """Cut maps, bytes behind the map, the unused byte and wrong UTF-8 are refused."""
    with pytest.raises(MalformedFrame):
        unpack_meta(data)


def test_an_empty_meta_is_an_empty_map() -> None:
    """No bytes at all stand for an empty map."""
    assert unpack_meta(b"") == {}


def test_packing_goes_on_after_a_failure() -> None:
    """What could not be packed leaves nothing behind in what is packed next."""
    with pytest.raises(TypeError):
        pack({"a": object()})

    assert pack({"a": b"b"}) == b"\x81\xa1a\xc4\x01b"


@pytest.mark.parametrize("count", [3, MAX_ARRAY, MAX_ARRAY + 1, 65_535])
def test_columns_come_back(count: int) -> None:
    """Short and long columns are decoded alike; a number may stand for all items."""
    column = [b"x", None] * (count // 2) + [b""] * (count % 2)

    assert unpack_column(pack(column), count) == column
    assert unpack_column(pack(1 << 40), count) == 1 << 40


@pytest.mark.parametrize("count", [3, MAX_ARRAY + 1])
@pytest.mark.parametrize("damage", [b"\x01", b"\xc4", b"\xdc"])
def test_columns_end_where_they_say(count: int, damage: bytes) -> None:
    """A column that is cut, or that goes on behind its array, is refused."""
    column = pack([b"x"] * count)

    for wrong in (column[:-1], column + damage):
        with pytest.raises(ValueError):  # noqa: PT011 - texts are msgpack's
            unpack_column(wrong, count)
