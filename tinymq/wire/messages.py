"""
The messages: what the meta map of each type holds, request and reply side by side.

Both sides read with the same classes. A missing optional key has its default,
an unknown key is ignored: that is how the protocol grows. docs/protocol.md
tells the same table to people who write clients in other languages.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar, Final, Self, TypeVar, dataclass_transform

from attrs import define
from typing_extensions import override

from tinymq.errors import InvalidRequest, MalformedFrame, WireError, from_wire
from tinymq.wire.fields import (
    EPOCH,
    I32,
    I64,
    OFFSET,
    PARTITION,
    POSITION,
    TOPIC_ID,
    Schema,
    array,
    binary,
    boolean,
    counts,
    integer,
    mapping,
    optional,
    row,
    text,
    told,
    wire,
    words,
)
from tinymq.wire.header import MessageType

#: Ask for the offset behind the last visible record.
LATEST: Final = -1
#: Ask for the first readable offset.
EARLIEST: Final = -2

#: Acknowledgement levels of PRODUCE.
ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, 2

NAME_BYTES: Final = 200
#: Most partitions of a topic, and most in one FETCH.
PARTITIONS: Final = 1000
#: Most topics in one METADATA reply.
PAGE: Final = 1000

_T = TypeVar("_T")

_NAME: Final = text(1024)  # the rule for names is the domain's and gives the better error


class Message:
    """Base of all messages."""

    type: ClassVar[MessageType]
    schema: ClassVar[Schema]
    #: Whether a broker's answer is read with it, so that its faults are not a request's.
    reply: ClassVar[bool] = False

    @classmethod
    def from_meta(cls, meta: dict[str, Any]) -> Self:
        """
        Read a message from the meta map of a frame.

        Raises:
            InvalidRequest: A field of a request is missing or wrong.
            MalformedFrame: The same, in a reply.
        """
        return cls(**cls.schema.read(meta, MalformedFrame if cls.reply else InvalidRequest))

    def to_meta(self) -> dict[str, Any]:
        """Build the meta map."""
        return self.schema.write(self)


@dataclass_transform(kw_only_default=True, field_specifiers=(wire,))
def message(kind: MessageType, *, reply: bool = False) -> Callable[[type[_T]], type[_T]]:
    """Make an attrs class of a message and register how it is read."""

    def decorate(cls: type[_T]) -> type[_T]:
        made: Any = define(cls, kw_only=True, slots=True)
        made.type = kind
        made.reply = reply
        made.schema = Schema.of(made)
        return made  # type: ignore[no-any-return]

    return decorate


# --- connection --------------------------------------------------------------


@message(MessageType.HELLO)
class Hello(Message):
    """The first request of a connection."""

    client_id: str = wire("c", text(200), default="")
    software: str = wire("s", text(200), default="")
    versions: list[int] | None = wire("v", array(integer(0, 255), 16), default=None)
    session: bytes | None = wire("n", optional(binary(16, 16)), default=None)
    heartbeat: int = wire("h", integer(1, 300), default=15)
    mechanism: str = wire("m", text(64), default="anonymous")


@message(MessageType.HELLO, reply=True)
class HelloReply(Message):
    """The broker's answer: who it is and what it allows."""

    broker_id: int = wire("b", integer(0, I32))
    name: str = wire("c", text(200))
    software: str = wire("s", text(200))
    cluster: bytes = wire("u", TOPIC_ID)
    session: bytes = wire("n", binary(16, 16))
    resumed: bool = wire("r", boolean, default=False)
    heartbeat: int = wire("h", integer(1, 300))
    limits: dict[str, int] = wire("l", counts)
    authenticate: bool = wire("a", boolean, default=False)


@message(MessageType.PING)
class Ping(Message):
    """Sign of life; request and reply are empty."""


@message(MessageType.GOODBYE)
class Goodbye(Message):
    """Told before the connection is closed in order."""

    reason: str = wire("x", text(1000), default="")


# --- records -----------------------------------------------------------------


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
    """Ask for a producer id; a transactional id is reserved for later."""

    transactional_id: str | None = wire("x", optional(text(NAME_BYTES)), default=None)


@message(MessageType.INIT_PRODUCER, reply=True)
class InitProducerReply(Message):
    """An id that nobody else has or will have."""

    producer_id: int = wire("p", integer(0, I64))
    epoch: int = wire("e", integer(0, 32_767))
    window: int = wire("w", integer(1, 65_535))


# --- work queue --------------------------------------------------------------

#: What a SETTLE does with messages.
FINISH, REQUEUE, REJECT, TOUCH, GIVE_BACK = range(5)

_SUBSCRIPTION: Final = integer(0, (1 << 32) - 1)
_LEASE: Final = integer(0, (1 << 64) - 1)
#: Which messages of a lease: bit 0 of the first byte is the lease's base offset.
_BITS: Final = binary(0, 512)
#: Partition, lease, bits.
LeaseRow = tuple[int, int, bytes]
_LEASE_ROWS: Final = array(row(PARTITION, _LEASE, _BITS), PARTITIONS)


#: Where a channel may begin, besides at an offset.
START_WORDS: Final = r"earliest|latest|@\d{1,16}"


@told(
    "earliest, latest, an offset or @MILLISECONDS",
    {"type": ["string", "integer"], "pattern": f"^({START_WORDS})$", "minimum": 0},
)
def start_place(value: Any) -> str | int:
    """Where a channel begins: words, an offset, or the first message of a time or later."""
    if type(value) is str and re.fullmatch(START_WORDS, value):
        return value
    if type(value) is int and 0 <= value <= I64:
        return value
    raise ValueError(start_place.must)


@message(MessageType.SUBSCRIBE)
class Subscribe(Message):
    """Take messages of a channel; the same again after a lost link goes on with its leases."""

    subscription: int = wire("s", _SUBSCRIPTION)
    topic_id: bytes = wire("t", TOPIC_ID)
    channel: str = wire("n", _NAME)
    partitions: list[int] | None = wire("p", optional(array(PARTITION, PARTITIONS)), default=None)
    credit: int = wire("w", integer(0, I32))
    create: bool = wire("c", boolean, default=False)
    start: str | int = wire("g", start_place, default="earliest")
    temporary: bool = wire("e", boolean, default=False)


@message(MessageType.SUBSCRIBE, reply=True)
class SubscribeReply(Message):
    """The policy's times, and what this subscription still holds from before."""

    lease_ms: int = wire("l", integer(0, I64))
    handler_ms: int | None = wire("h", optional(integer(0, I64)), default=None)
    order: str = wire("o", text(32), default="none")
    delivery: str = wire("d", text(32), default="at_least_once")
    held: list[LeaseRow] = wire("r", _LEASE_ROWS, default=[])


@message(MessageType.CREDIT)
class Credit(Message):
    """How many messages may have been delivered since SUBSCRIBE, in all."""

    subscription: int = wire("s", _SUBSCRIPTION)
    granted: int = wire("u", integer(0, I64))


#: Lease, base offset, bits or None for all of count, count, attempt, failures, term in ms.
DeliveryRow = tuple[int, int, Any, int, int, int, int]


@message(MessageType.DELIVER)
class Deliver(Message):
    """Messages of one partition; the payload holds the batches that they are in."""

    subscription: int = wire("s", _SUBSCRIPTION)
    partition: int = wire("p", PARTITION)
    rows: list[DeliveryRow] = wire(
        "q",
        array(
            row(
                _LEASE,
                OFFSET,
                optional(_BITS),
                integer(1, I32),
                integer(1, I32),
                integer(0, I32),
                integer(0, I64),
            ),
            PARTITIONS,
        ),
    )


#: Partition, verb, leases with their bits (None for all that is left), facts.
SettleRow = tuple[int, int, list[tuple[int, Any]], dict[str, Any]]


@message(MessageType.SETTLE)
class Settle(Message):
    """What became of messages; facts are d, a delay, or a, a time, and x, a reason."""

    subscription: int = wire("s", _SUBSCRIPTION)
    rows: list[SettleRow] = wire(
        "q",
        array(
            row(
                PARTITION,
                integer(FINISH, GIVE_BACK),
                array(row(_LEASE, optional(_BITS)), PARTITIONS),
                mapping,
            ),
            PARTITIONS,
        ),
    )


@message(MessageType.SETTLE, reply=True)
class SettleReply(Message):
    """How many messages were settled, and which were not held any more."""

    done: int = wire("d", integer(0, I64))
    late: list[LeaseRow] = wire("l", _LEASE_ROWS, default=[])


@message(MessageType.LEASE_LOST)
class LeaseLost(Message):
    """What the client does not hold any more."""

    subscription: int = wire("s", _SUBSCRIPTION)
    rows: list[LeaseRow] = wire("q", _LEASE_ROWS)


@message(MessageType.UNSUBSCRIBE)
class Unsubscribe(Message):
    """The end of a subscription."""

    subscription: int = wire("s", _SUBSCRIPTION)


@message(MessageType.UNSUBSCRIBE, reply=True)
class UnsubscribeReply(Message):
    """All that it held was given back."""


@message(MessageType.ENDED)
class Ended(Message):
    """A subscription is over on the broker's side; the error says why."""

    subscription: int = wire("s", _SUBSCRIPTION)
    error: dict[str, Any] = wire("e", mapping)


# --- topics ------------------------------------------------------------------


@message(MessageType.METADATA)
class Metadata(Message):
    """
    Topics by name, or page by page.

    Without names the topics behind `after` are listed in order of their names,
    as many as fit; the reply's `more` says whether to ask again.
    """

    names: list[str] | None = wire("n", optional(array(_NAME, 100)), default=None)
    after: str = wire("k", _NAME, default="")
    create: bool = wire("c", boolean, default=False)


#: Name, topic id, leader of each partition, configuration, error or None.
TopicRow = tuple[str, bytes, list[int], dict[str, Any], Any]
#: Broker id, host, port, name.
BrokerRow = tuple[int, str, int, str]


@message(MessageType.METADATA, reply=True)
class MetadataReply(Message):
    """What a client needs to find a partition."""

    revision: int = wire("r", integer(0, I64))
    brokers: list[BrokerRow] = wire(
        "b", array(row(integer(0, I32), text(300), integer(0, 65_535), text(200)), 1000)
    )
    topics: list[TopicRow] = wire(
        "t",
        array(
            row(
                _NAME,
                binary(0, 16),
                array(integer(-1, I32), PARTITIONS),
                mapping,
                optional(mapping),
            ),
            PAGE,
        ),
    )
    more: bool = wire("m", boolean, default=False)
    #: Broker id, as text, to the broker's zone; those without one are left out.
    zones: dict[str, str] | None = wire("z", words, default=None)


@message(MessageType.OPERATE)
class Operate(Message):
    """One administrative operation of operations.py, such as ``topic.create``."""

    name: str = wire("o", text(100))
    arguments: dict[str, Any] | None = wire("a", mapping, default=None)


@message(MessageType.OPERATE, reply=True)
class OperateReply(Message):
    """The result is a msgpack map in the payload, since it may be long."""


# --- errors ------------------------------------------------------------------


@message(MessageType.ERROR, reply=True)
class Error(Message):
    """An error as it travels; the same map stands inside FETCH's and OFFSETS' rows."""

    code: int = wire("e", integer(0, 65_535))
    text: str = wire("x", text(4000), default="")
    retriable: bool = wire("r", boolean, default=False)
    fatal: bool = wire("f", boolean, default=False)
    data: dict[str, Any] | None = wire("d", mapping, default=None)


def error_meta(error: WireError) -> dict[str, Any]:
    """Turn an error into the map that travels."""
    return Error(
        code=error.code,
        text=error.text[:1000].encode("utf-8", "replace").decode(),
        retriable=error.retriable,
        fatal=error.fatal,
        data=error.data or None,
    ).to_meta()


def error_from_meta(meta: dict[str, Any]) -> WireError:
    """Turn the map that travelled back into an error."""
    found = Error.from_meta(meta)
    error = from_wire(found.code, found.text)
    error.data = found.data or {}  # not as keywords: a peer chooses the names
    if type(error) is WireError:
        error.__dict__.update(retriable=found.retriable, fatal=found.fatal)
    return error


#: Type to the class of its request, for everything that a client may ask.
REQUESTS: Final[dict[int, type[Message]]] = {
    cls.type: cls
    for cls in (
        Hello,
        Ping,
        Goodbye,
        Produce,
        Fetch,
        Offsets,
        InitProducer,
        Subscribe,
        Credit,
        Settle,
        Unsubscribe,
        Metadata,
        Operate,
    )
}

#: Type to the class of what a broker sends by itself.
PUSHES: Final[dict[int, type[Message]]] = {cls.type: cls for cls in (Deliver, LeaseLost, Ended)}

#: Type of the request to the class of its reply.
REPLIES: Final[dict[int, type[Message]]] = {
    cls.type: cls
    for cls in (
        HelloReply,
        Ping,
        ProduceReply,
        FetchReply,
        OffsetsReply,
        InitProducerReply,
        SubscribeReply,
        SettleReply,
        UnsubscribeReply,
        MetadataReply,
        OperateReply,
    )
}
