"""The public names of the wire, used as a client or a broker uses them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_type

from tinymq.errors import WireError
from tinymq.limits import DEFAULT_LIMITS
from tinymq.wire.batch import BatchHeader, Codec, read_header, split, stamp
from tinymq.wire.frames import Bytes, Frame, FrameDecoder, encode_frame
from tinymq.wire.header import REPLY, MessageType
from tinymq.wire.messages import (
    EARLIEST,
    REPLIES,
    REQUESTS,
    Fetch,
    FetchReply,
    Hello,
    HelloReply,
    Message,
    MetadataReply,
    Offsets,
    Produce,
    ProduceReply,
    error_from_meta,
    error_meta,
)
from tinymq.wire.produced import check_produced
from tinymq.wire.records import Headers, Record, RecordBatch, encode_batch


def requests(topic_id: bytes) -> list[Message]:
    """Build requests by keyword; defaults may be left out."""
    return [
        Hello(),
        Hello(client_id="a", versions=[1], session=None),
        Produce(topic_id=topic_id, partition=0),
        Fetch(topics=[(topic_id, [(0, 5, -1)])], max_wait_ms=0),
        Offsets(topic_id=topic_id, queries=[(0, EARLIEST)]),
    ]


def wrong_requests() -> list[Message]:
    """Build requests that a type checker refuses."""
    return [
        Produce(partition=0),  # type: ignore[call-arg]
        Produce(topic_id="text", partition=0),  # type: ignore[arg-type]
        Hello("a"),  # type: ignore[call-arg]
        Fetch(topics=[(b"", [(0, 5)])]),  # type: ignore[list-item]
    ]


def sent(request: Message, message_id: int, payload: list[Bytes]) -> list[Bytes]:
    """Encode a request."""
    return encode_frame(request.type, message_id, request.to_meta(), payload)


def received(decoder: FrameDecoder, data: bytes) -> None:
    """Decode whatever came."""
    frames = decoder.feed(data)
    for frame in frames:
        assert_type(frame, Frame)
        assert_type(frame.message_id, int)
        meta, payload = frame.split()
        assert_type(meta, dict[str, Any])
        assert_type(payload, Bytes)
        if frame.type == MessageType.ERROR:
            raise error_from_meta(meta)
        cls = (REPLIES if frame.type & REPLY else REQUESTS)[frame.type & ~REPLY]
        assert_type(cls.from_meta(meta), Message)
    frames.close()


def replies(meta: dict[str, Any]) -> None:
    """Read replies; each field has its type."""
    assert_type(HelloReply.from_meta(meta).limits, dict[str, int])
    assert_type(ProduceReply.from_meta(meta).duplicate, bool)
    for topic_id, rows in FetchReply.from_meta(meta).topics:
        assert_type(topic_id, bytes)
        for partition, high_watermark, start, following, size, error in rows:
            assert_type((partition, high_watermark, start), tuple[int, int, int])
            assert_type((following, size), tuple[int, int])
            if error is not None:
                assert_type(error_from_meta(error), WireError)
    for name, topic_id, leaders, config, _error in MetadataReply.from_meta(meta).topics:
        assert_type((name, topic_id, leaders), tuple[str, bytes, list[int]])
        assert_type(config, dict[str, Any])


def batches(run: bytes) -> None:
    """Encode, check, stamp, cut and read record batches."""
    batch = encode_batch([b"a", None], keys=[None, b"k"], headers=[[("h", b"v")], ()], times=5)
    assert_type(batch, bytes)
    header = check_produced(memoryview(batch), DEFAULT_LIMITS)
    assert_type(header, BatchHeader)
    assert_type(read_header(batch).next_offset, int)
    assert_type(stamp(batch, header, 0, 0, 0), list[Bytes])
    for found, view in split(run):
        records = RecordBatch(view, found)
        assert_type(records.values, list[bytes | None])
        assert_type(records.keys, list[bytes | None])
        assert_type(records.headers, list[Headers])
        assert_type(records.times, list[int | None])
        assert_type(records.offsets, Sequence[int])
        for record in records:
            assert_type(record, Record)
            assert_type(record.created, int | None)
    encode_batch([b"a"], codec=Codec.ZSTD)
    encode_batch(["a"])  # type: ignore[list-item]


def errors(error: WireError) -> dict[str, Any]:
    """Send an error."""
    return error_meta(error)
