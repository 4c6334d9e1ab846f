"""Records: publishing, reading, offsets by time, producer ids."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, Self

from typing_extensions import override

from tinymq.errors import InvalidRequest, MalformedFrame
from tinymq.wire.fields import (
    EPOCH,
    I32,
    I64,
    OFFSET,
    PARTITION,
    POSITION,
    TOPIC_ID,
    array,
    binary,
    boolean,
    integer,
    mapping,
    optional,
    row,
    text,
    wire,
)
from tinymq.wire.frames import Bytes
from tinymq.wire.header import MessageType
from tinymq.wire.messages.base import (
    IDENTITY,
    NAME_BYTES,
    PARTITIONS,
    Identity,
    Message,
    message,
)

#: Acknowledgement levels of PRODUCE.
ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, 2


@message(MessageType.PRODUCE)
class Produce(Message):
    """One record batch, in the payload, for one partition."""

    topic_id: bytes = wire("t", TOPIC_ID)
    partition: int = wire("p", PARTITION)
    acks: int = wire("a", integer(0, 2), default=ACKS_LEADER)


@message(MessageType.PRODUCE, reply=True)
class ProduceReply(Message):
    """The batch is stored as the topic's policy promises."""

    base_offset: int = wire("o", POSITION)
    timestamp: int = wire("d", POSITION)
    duplicate: bool = wire("r", boolean, default=False)
    volatile: bool = wire("v", boolean, default=False)
    delayed: bool = wire("y", boolean, default=False)
    unroutable: bytes | None = wire("u", optional(binary(0, 8192)), default=None)
    #: Records whose message ids were there before: place in the batch, and the first's offset;
    #: of more than `MOST_KNOWN` none, for all are in the payload.
    known: list[tuple[int, int]] | None = wire(
        "k", optional(array(row(integer(0, 65_535), POSITION), PARTITIONS)), default=None
    )


#: Most rows of `ProduceReply.known` that are not in the payload.
MOST_KNOWN: Final = PARTITIONS
_KNOWN: Final = struct.Struct(">HQ")


def known_rows(
    rows: Sequence[tuple[int, int]],
) -> tuple[list[tuple[int, int]] | None, tuple[bytes, ...]]:
    """
    Put rows of known records where they fit.

    Args:
        rows: Place and offset of each.

    Returns:
        The field of the reply, and the pieces of its payload.
    """
    if not rows:
        return None, ()
    if len(rows) <= MOST_KNOWN:
        return [*rows], ()
    return [], (b"".join([_KNOWN.pack(*each) for each in rows]),)


def read_known(reply: ProduceReply, payload: Bytes) -> list[tuple[int, int]]:
    """
    Find the rows of known records in a reply.

    Args:
        reply: The reply.
        payload: Its payload.

    Raises:
        MalformedFrame: The payload is not whole rows.
    """
    if reply.known is None or reply.known:
        return reply.known or []
    if len(payload) % _KNOWN.size:
        raise MalformedFrame(f"rows of known records have {_KNOWN.size} bytes each")
    return [*_KNOWN.iter_unpack(payload)]


#: A position to read from: partition, offset, epoch of the last record read or -1.
FetchPosition = tuple[int, int, int]
#: What came of it: partition, high watermark, start offset, next offset to ask for or -1,
#: bytes in the payload, error or None.
FetchResult = tuple[int, int, int, int, int, Any]


@message(MessageType.FETCH)
class Fetch(Message):
    """Batches from many partitions; answered when `min_bytes` are there or time is up."""

    topics: list[tuple[bytes, list[FetchPosition]]] = wire(
        "q", array(row(TOPIC_ID, array(row(PARTITION, OFFSET, EPOCH), PARTITIONS)), PARTITIONS)
    )
    max_wait_ms: int = wire("w", integer(0, 60_000), default=500)
    min_bytes: int = wire("n", integer(0, 1 << 24), default=1)
    max_bytes: int = wire("x", integer(1, 1 << 24), default=1 << 20)
    follower: int = wire("f", integer(-1, I32), default=-1)
    #: Whether records of transactions that are not decided yet are wanted too.
    uncommitted: bool = wire("u", boolean, default=False)

    @classmethod
    @override
    def from_meta(cls, meta: dict[str, Any]) -> Self:
        found = super().from_meta(meta)
        count = sum(len(rows) for _, rows in found.topics)
        if count > PARTITIONS:
            raise InvalidRequest(
                f"q must name at most {PARTITIONS} partitions over all topics, not {count}",
                field="q",
            )
        return found


@message(MessageType.FETCH, reply=True)
class FetchReply(Message):
    """The payload holds the batches of the partitions one after the other."""

    topics: list[tuple[bytes, list[FetchResult]]] = wire(
        "q",
        array(
            row(
                TOPIC_ID,
                array(
                    row(PARTITION, POSITION, POSITION, POSITION, OFFSET, optional(mapping)),
                    PARTITIONS,
                ),
            ),
            PARTITIONS,
        ),
    )
    #: Topic id, partition, and the transactions in the payload that were aborted, as producer
    #: ids and epochs: their batches are passed over.
    aborted: list[tuple[bytes, int, list[Identity]]] | None = wire(
        "x",
        optional(array(row(TOPIC_ID, PARTITION, array(IDENTITY, 1 << 16)), PARTITIONS)),
        default=None,
    )


@message(MessageType.OFFSETS)
class Offsets(Message):
    """Offsets by time in milliseconds, or `LATEST`, or `EARLIEST`."""

    topic_id: bytes = wire("t", TOPIC_ID)
    queries: list[tuple[int, int]] = wire("q", array(row(PARTITION, integer(-2, I64)), PARTITIONS))


@message(MessageType.OFFSETS, reply=True)
class OffsetsReply(Message):
    """Partition, offset, epoch, append time or -1, error or None."""

    results: list[tuple[int, int, int, int, Any]] = wire(
        "q", array(row(PARTITION, POSITION, EPOCH, POSITION, optional(mapping)), PARTITIONS)
    )


@message(MessageType.INIT_PRODUCER)
class InitProducer(Message):
    """
    Ask for a producer id.

    With a transactional id: for the next identity of that producer. Whoever had its
    last one is fenced, and the transaction that it left open is aborted.
    """

    transactional_id: str | None = wire("x", optional(text(NAME_BYTES)), default=None)
    #: After how many milliseconds an open transaction is aborted.
    timeout_ms: int = wire("w", integer(1, 24 * 3_600_000), default=60_000)


@message(MessageType.INIT_PRODUCER, reply=True)
class InitProducerReply(Message):
    """An id that nobody else has or will have."""

    producer_id: int = wire("p", integer(0, I64))
    epoch: int = wire("e", integer(0, 32_767))
    window: int = wire("w", integer(1, 65_535))
