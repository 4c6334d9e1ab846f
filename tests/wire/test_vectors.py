"""The golden vectors: what other languages test against is what this code does."""

from __future__ import annotations

from typing import Any

import pytest

from tests.wire.vectors import VECTORS, from_json
from tinymq.errors import BY_CODE, WireError
from tinymq.limits import DEFAULT_LIMITS
from tinymq.wire.batch import Codec, checked_header, read_header, stamp
from tinymq.wire.codec import pack
from tinymq.wire.frames import FrameDecoder, encode_frame
from tinymq.wire.header import REPLY, MessageType
from tinymq.wire.messages import PUSHES, REPLIES, REQUESTS, Error, Message
from tinymq.wire.produced import check_produced
from tinymq.wire.records import RecordBatch, encode_batch


def rows(part: str) -> pytest.MarkDecorator:
    """Run a test for each vector of one part of the file."""
    return pytest.mark.parametrize(
        "vector", [pytest.param(row, id=row["name"]) for row in VECTORS[part]]
    )


def message_class(type_: int) -> type[Message] | None:
    """Find the class that reads the meta of a frame of this type."""
    if type_ == MessageType.ERROR:
        return Error
    if type_ & REPLY:
        return REPLIES[type_ & ~REPLY]
    return {**REQUESTS, **PUSHES}.get(type_)


@rows("frames")
def test_frame_is_encoded_to_these_bytes(vector: dict[str, Any]) -> None:
    """Type, id, meta and payload give exactly the bytes in the file."""
    payload = [vector["payload"]] if vector["payload"] else []
    pieces = encode_frame(vector["type"], vector["message_id"], vector["meta"], payload)

    assert b"".join(pieces).hex() == vector["bytes"].hex()


@rows("frames")
def test_frame_is_decoded_from_these_bytes(vector: dict[str, Any]) -> None:
    """The bytes in the file give exactly its type, id, meta and payload."""
    (frame,) = FrameDecoder(DEFAULT_LIMITS.body).feed(vector["bytes"])

    meta, payload = frame.split()

    assert frame.type == vector["type"]
    assert frame.message_id == vector["message_id"]
    assert meta == vector["meta"]
    assert bytes(payload) == vector["payload"]


@rows("frames")
def test_message_reads_and_writes_this_meta(vector: dict[str, Any]) -> None:
    """The class of the type takes the meta, and writes the same one in the same order."""
    cls = message_class(vector["type"])
    if cls is None:
        assert vector["name"] == "unknown-type"
        return

    assert pack(cls.from_meta(vector["meta"]).to_meta()) == pack(vector["meta"])


def test_vectors_cover_every_type() -> None:
    """Each request, each reply and the error frame has a vector at least."""
    types = {vector["type"] for vector in VECTORS["frames"]}

    assert types >= {*REQUESTS, *PUSHES, *(type_ | REPLY for type_ in REPLIES), MessageType.ERROR}


@rows("batches")
def test_batch_is_encoded_to_these_bytes(vector: dict[str, Any]) -> None:
    """Columns give exactly the bytes in the file, unless a compressor has a say in it."""
    batch = encode_batch(
        vector["values"],
        keys=vector.get("keys"),
        headers=vector.get("headers"),
        times=vector.get("times"),
        ids=vector.get("ids"),
        codec=Codec[vector["codec"].upper()],
        producer_id=vector["producer_id"],
        producer_epoch=vector["producer_epoch"],
        base_sequence=vector["base_sequence"],
    )

    if vector["repeatable"]:
        assert batch.hex() == vector["bytes"].hex()
    else:
        assert RecordBatch(batch).values == vector["values"]


@rows("batches")
def test_batch_is_decoded_from_these_bytes(vector: dict[str, Any]) -> None:
    """A broker takes the bytes in the file, and a reader finds the columns in them."""
    header = check_produced(vector["bytes"], DEFAULT_LIMITS)
    batch = RecordBatch(vector["bytes"])
    count = len(vector["values"])
    times = vector.get("times")

    assert (header.crc, header.attributes & 0xFFFF) == (
        vector["crc"],
        vector["attributes"] & 0xFFFF,
    )
    assert batch.values == vector["values"]
    assert batch.keys == vector.get("keys", [None] * count)
    assert [[list(pair) for pair in row] for row in batch.headers] == vector.get(
        "headers", [[]] * count
    )
    assert batch.times == (times if isinstance(times, list) else [times] * count)
    assert batch.ids == vector.get("ids", [None] * count)


@rows("stamped")
def test_stamped_batch_has_these_bytes(vector: dict[str, Any]) -> None:
    """The broker stores exactly the bytes in the file, and they fit their checksum."""
    (origin,) = [row["bytes"] for row in VECTORS["batches"] if row["name"] == vector["of"]]

    pieces = stamp(
        origin,
        read_header(origin),
        vector["base_offset"],
        vector["leader_epoch"],
        vector["timestamp"],
    )

    assert b"".join(pieces).hex() == vector["bytes"].hex()
    assert checked_header(vector["bytes"]).base_offset == vector["base_offset"]


@rows("broken")
def test_broken_bytes_are_refused_with_this_code(vector: dict[str, Any]) -> None:
    """Wrong bytes give the documented error, in the decoder or in the body."""
    decoder = FrameDecoder(DEFAULT_LIMITS.body)

    with pytest.raises(WireError) as caught:
        [frame.split() for frame in decoder.feed(vector["bytes"])]

    assert type(caught.value) is BY_CODE[vector["code"]]


def test_json_of_bytes() -> None:
    """Only strings with the prefix are bytes, at any depth."""
    assert from_json({"a": ["hex:00ff", "hex", 1, None]}) == {"a": [b"\x00\xff", "hex", 1, None]}
