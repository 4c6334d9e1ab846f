"""The twelve bytes that start each frame."""

from __future__ import annotations

import pytest

from tinymq.wire.frames import FrameDecoder, encode_frame
from tinymq.wire.header import (
    HEADER,
    HEADER_SIZE,
    MAGIC,
    MAX_MESSAGE_ID,
    REPLY,
    VERSION,
    MessageType,
)


def test_header_byte_by_byte() -> None:
    """Magic, version, type, id and length stand where the document draws them."""
    (piece,) = encode_frame(MessageType.PING, 0x01020304, {"k": 1})

    assert piece == (
        b"TM"  # magic
        b"\x01"  # version
        b"\x03"  # type
        b"\x01\x02\x03\x04"  # message id
        b"\x00\x00\x00\x08"  # bytes that follow
        b"\x00\x00\x00\x04\x81\xa1k\x01"  # meta length, meta
    )


def test_sizes_and_constants() -> None:
    """The numbers that clients in other languages copy."""
    assert (HEADER_SIZE, HEADER.size) == (12, 12)
    assert MAGIC.to_bytes(2, "big") == b"TM"
    assert VERSION == 1


def test_types_are_requests_or_the_error() -> None:
    """Bit 7 is free in every type but the error's, which only ever is a reply."""
    assert [kind for kind in MessageType if kind & REPLY] == [MessageType.ERROR]


@pytest.mark.parametrize("message_id", [0, 1, 0x7FFFFFFF, 0x80000000, MAX_MESSAGE_ID])
def test_every_id_comes_back(message_id: int) -> None:
    """Ids are 32 bits without a sign, up to the last one before the wrap."""
    data = b"".join(encode_frame(MessageType.PING, message_id))
    (frame,) = FrameDecoder(0).feed(data)

    assert frame.message_id == message_id


def test_ids_end_at_32_bits() -> None:
    """The id behind the last one is no id: who counts must wrap to 1."""
    with pytest.raises(Exception, match="format requires"):
        encode_frame(MessageType.PING, MAX_MESSAGE_ID + 1)
