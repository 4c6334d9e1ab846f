"""Frames: any cutting gives the same frames, at linear cost, and lengths are checked first."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.measuring import joined_bytes, peak_bytes
from tinymq.errors import (
    BadMagic,
    FrameTooLarge,
    MalformedFrame,
    ProtocolError,
    UnsupportedVersion,
)
from tinymq.limits import DEFAULT_LIMITS
from tinymq.wire.frames import Frame, FrameDecoder, encode_frame
from tinymq.wire.header import HEADER, HEADER_SIZE, MAGIC, REPLY, VERSION, MessageType

LIMIT = DEFAULT_LIMITS.body

Seen = tuple[int, int, bytes]

frames_strategy = st.lists(
    st.tuples(st.integers(0, 255), st.integers(0, 2**32 - 1), st.binary(max_size=3000)),
    max_size=12,
)


def raw(type_: int, message_id: int, body: bytes) -> bytes:
    """Write a frame by hand."""
    return HEADER.pack(MAGIC, VERSION, type_, message_id, len(body)) + body


def seen(frame: Frame) -> Seen:
    """Take a frame apart for comparison."""
    return frame.type, frame.message_id, bytes(frame.body)


def feed_all(decoder: FrameDecoder, pieces: list[bytes]) -> list[Seen]:
    """Feed pieces one by one."""
    return [seen(frame) for piece in pieces for frame in decoder.feed(piece)]


# --- cutting -----------------------------------------------------------------


@given(frames_strategy, st.data())
def test_any_cutting_gives_the_same_frames(frames: list[Seen], data: st.DataObject) -> None:
    """Where a stream is cut makes no difference to what comes out."""
    stream = b"".join(raw(*frame) for frame in frames)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=30))
    pieces = [stream[a:b] for a, b in pairwise([0, *sorted(cuts), len(stream)])]
    decoder = FrameDecoder(LIMIT)

    assert feed_all(decoder, pieces) == frames
    assert decoder.buffered == 0


def test_one_byte_at_a_time() -> None:
    """Each frame comes with its last byte, and not before."""
    frames = [(1, 7, b""), (2, 8, b"x" * 50), (0xFF, 0, b"abcd"), (3, 9, b"")]
    decoder = FrameDecoder(LIMIT)
    found = []
    for frame in frames:
        *before, last = raw(*frame)
        assert feed_all(decoder, [bytes([byte]) for byte in before]) == []
        found += feed_all(decoder, [bytes([last])])

    assert found == frames


def test_a_thousand_frames_in_one_read() -> None:
    """A burst comes out whole and in order, with one look at its bytes."""
    frames = [(3, number, b"z" * (number % 40)) for number in range(1000)]
    stream = b"".join(raw(*frame) for frame in frames)
    decoder = FrameDecoder(LIMIT)
    found: list[Seen] = []

    copied = joined_bytes(lambda: found.extend(feed_all(decoder, [stream])))

    assert found == frames
    assert copied == len(stream)


def test_an_iterator_that_is_closed_early_goes_on_later() -> None:
    """Who stops after some frames of a burst gets the others by feeding nothing."""
    frames = [(3, number, b"body") for number in range(10)]
    decoder = FrameDecoder(LIMIT)
    stream = b"".join(raw(*frame) for frame in frames)
    found = []
    data = stream + raw(4, 1, b"torn")[:-2]
    for _ in range(5):
        reader = decoder.feed(data)
        found += [seen(next(reader)), seen(next(reader))]
        reader.close()
        data = b""

    assert found == frames
    assert decoder.buffered == HEADER_SIZE + 2
    assert feed_all(decoder, [b"", b"r", b"n"]) == [(4, 1, b"torn")]


def test_what_an_early_close_left_comes_before_new_bytes() -> None:
    """Bytes that arrive after an early close are put behind the rest, in any size."""
    decoder = FrameDecoder(LIMIT)
    reader = decoder.feed(raw(1, 1, b"") + raw(1, 2, b""))
    next(reader)
    reader.close()

    assert feed_all(decoder, [raw(1, 3, b"x" * 5000), b""]) == [
        (1, 2, b""),
        (1, 3, b"x" * 5000),
    ]


def test_nothing_fed_is_nothing_found() -> None:
    """Empty reads are harmless."""
    decoder = FrameDecoder(LIMIT)

    assert feed_all(decoder, [b"", b""]) == []
    assert decoder.buffered == 0


# --- cost --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "piece"), [(8 << 20, 1 << 12), (1 << 20, 1 << 10), (1 << 18, 100), (1 << 14, 1)]
)
def test_cost_is_linear_in_bytes(body: int, piece: int) -> None:
    """A long body in small pieces is joined once, whatever the size of the pieces."""
    stream = memoryview(raw(1, 1, bytes(body)))
    pieces = [bytes(stream[at : at + piece]) for at in range(0, len(stream), piece)]
    decoder = FrameDecoder(LIMIT)
    found: list[Seen] = []

    copied = joined_bytes(lambda: found.extend(feed_all(decoder, pieces)))

    assert found == [(1, 1, bytes(body))]
    assert copied <= len(stream) + piece * 2 + HEADER_SIZE * 13


def test_trickled_bytes_cost_no_more_than_bytes() -> None:
    """Pieces of two bytes are not kept as objects of thirty times their size."""
    size = 1 << 16
    decoder = FrameDecoder(LIMIT)
    head = raw(1, 1, bytes(size))[:HEADER_SIZE]
    feed_all(decoder, [head])

    peak = peak_bytes(lambda: feed_all(decoder, [b"ab"] * (size // 2 - 1)))

    assert decoder.buffered == HEADER_SIZE + size - 2
    assert peak < 8 * size  # the list of pieces itself is four of them


# --- lengths -----------------------------------------------------------------


@pytest.mark.parametrize("length", [0xFFFFFFFF, 0x80000000, LIMIT + 1])
def test_a_length_over_the_limit_is_refused_at_the_header(length: int) -> None:
    """No byte of a body that is too long is kept, however long the peer trickles."""
    decoder = FrameDecoder(LIMIT)
    header = HEADER.pack(MAGIC, VERSION, 1, 1, length)

    with pytest.raises(FrameTooLarge) as caught:
        feed_all(decoder, [header[:11], header[11:]])
    assert caught.value.data == {"limit": LIMIT}
    for _ in range(3):
        with pytest.raises(FrameTooLarge):
            feed_all(decoder, [b"trickle"])
    assert decoder.buffered == 0


def test_a_body_at_the_limit_is_taken() -> None:
    """The limit itself is allowed, and it may be changed between two frames of one read."""
    decoder = FrameDecoder(5)
    reader = decoder.feed(raw(1, 1, b"12345") + raw(1, 2, b"123456"))
    assert seen(next(reader)) == (1, 1, b"12345")
    decoder.limit = 6

    assert [seen(frame) for frame in reader] == [(1, 2, b"123456")]


def test_frames_before_a_wrong_one_come_out_first() -> None:
    """An error concerns what stands behind it, not what came before."""
    decoder = FrameDecoder(LIMIT)
    reader = decoder.feed(raw(1, 1, b"ok") + b"garbage that is long enough")

    assert seen(next(reader)) == (1, 1, b"ok")
    with pytest.raises(BadMagic):
        next(reader)


# --- foreign protocols ---------------------------------------------------------


FOREIGN = {
    "TLS ClientHello": bytes.fromhex("1603010200010001fc0303"),
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "SSH": b"SSH-2.0-OpenSSH_9.6\r\n",
    "zeros": bytes(12),
    "almost": b"TL",
}


@pytest.mark.parametrize("data", FOREIGN.values(), ids=FOREIGN)
def test_foreign_protocols_are_refused_on_two_bytes(data: bytes) -> None:
    """Neither the whole greeting nor its length is waited for."""
    for pieces in ([data], [data[:2]], [data[:1], data[1:2]]):
        decoder = FrameDecoder(LIMIT)
        with pytest.raises(BadMagic):
            feed_all(decoder, pieces)
        assert decoder.buffered == 0


def test_half_a_magic_is_waited_for() -> None:
    """One right byte is no reason to refuse."""
    decoder = FrameDecoder(LIMIT)

    assert feed_all(decoder, [b"T"]) == []
    assert decoder.buffered == 1


@pytest.mark.parametrize("version", [0, 2, 255])
def test_an_unknown_version_names_those_that_are_spoken(version: int) -> None:
    """The peer learns in text and in data which version to use."""
    decoder = FrameDecoder(LIMIT)

    with pytest.raises(UnsupportedVersion, match=f"version {version} .* use version 1") as caught:
        feed_all(decoder, [HEADER.pack(MAGIC, version, 1, 1, 0)])
    assert caught.value.data == {"versions": [1]}


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_give_frames_or_a_documented_error(data: bytes, good_start: bool) -> None:
    """Garbage never raises anything but the errors of the protocol."""
    decoder = FrameDecoder(1000)
    if good_start:
        data = HEADER.pack(MAGIC, VERSION, 1, 1, 4)[:8] + data
    with suppress(ProtocolError):
        for frame in decoder.feed(data):
            frame.split()
            assert repr(frame)


# --- bodies --------------------------------------------------------------------


@given(
    st.dictionaries(
        st.text("ab\u00e4\u2713", max_size=5), st.integers(-(2**63), 2**64 - 1), max_size=5
    ),
    st.lists(st.binary(max_size=50), max_size=4),
)
def test_a_body_comes_back(meta: dict[str, Any], payload: list[bytes]) -> None:
    """Meta and payload survive encoding; the payload's pieces become one."""
    (frame,) = FrameDecoder(LIMIT).feed(b"".join(encode_frame(1, 1, meta, payload)))

    found, rest = frame.split()

    assert (found, bytes(rest)) == (meta, b"".join(payload))


def test_the_payload_is_not_copied_when_it_is_encoded() -> None:
    """What is large goes out as the object that it is."""
    payload = bytearray(1000)

    _, piece = encode_frame(1, 1, {}, [payload])

    assert piece is payload


@pytest.mark.parametrize(
    "body",
    [
        b"\0",
        b"\0\0\0",
        b"\0\0\0\1",
        b"\0\0\0\2\x80",
        b"\xff\xff\xff\xff\x80",
        (65537).to_bytes(4, "big") + bytes(65537),
    ],
)
def test_a_body_that_breaks_the_layout(body: bytes) -> None:
    """A meta length that is cut, beyond the frame or over its limit is refused."""
    with pytest.raises(MalformedFrame):
        Frame(1, 1, body).split()


def test_an_empty_meta_may_be_left_out() -> None:
    """A meta length of 0 and an empty body both mean an empty map."""
    assert Frame(1, 1, b"").split() == ({}, b"")
    assert Frame(1, 1, b"\0\0\0\0payload").split() == ({}, b"payload")


@pytest.mark.parametrize(
    ("type_", "shown"),
    [
        (MessageType.PRODUCE, "<PRODUCE id=4 body=3 B>"),
        (MessageType.FETCH | REPLY, "<FETCH reply id=4 body=3 B>"),
        (MessageType.ERROR, "<ERROR id=4 body=3 B>"),
        (0x7E, "<0x7e id=4 body=3 B>"),
        (0xFE, "<0xfe reply id=4 body=3 B>"),
    ],
)
def test_frames_are_shown_without_their_bytes(type_: int, shown: str) -> None:
    """A frame in a log says what it is and how long, and no more."""
    assert repr(Frame(type_, 4, b"abc")) == shown
