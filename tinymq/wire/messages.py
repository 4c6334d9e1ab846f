"""
The messages: what the meta map of each type holds, request and reply side by side.

Both sides read with the same classes. A missing optional key has its default,
an unknown key is ignored: that is how the protocol grows. docs/protocol.md
tells the same table to people who write clients in other languages.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
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
from tinymq.wire.frames import Bytes
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


#: Producer id and epoch: of a transaction, they are its own.
Identity = tuple[int, int]
_IDENTITY: Final = row(integer(0, I64), integer(0, 32_767))

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
        optional(array(row(TOPIC_ID, PARTITION, array(_IDENTITY, 1 << 16)), PARTITIONS)),
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
    #: The transaction with which it is decided whether these are finished.
    transaction: Identity | None = wire("x", optional(_IDENTITY), default=None)


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


# --- groups ------------------------------------------------------------------

#: Longest text that is kept with a commit, and longest word of a member to its assignor.
NOTE_BYTES: Final = 4096
#: Most topics, or patterns, that one member asks for, and most members of a group.
MOST_WANTED: Final = 1000
MOST_MEMBERS: Final = 1000

_MEMBER: Final = text(256)
_GENERATION: Final = integer(-1, I64)
#: Partition, and the generation in which it was given to the member.
Share = tuple[int, int]
#: Topic id and shares.
Shares = list[tuple[bytes, list[Share]]]
_SHARES: Final = array(row(TOPIC_ID, array(row(PARTITION, _GENERATION), PARTITIONS)), PARTITIONS)
#: Member, and the partitions that it is to have.
PlanRow = tuple[str, list[tuple[bytes, list[int]]]]
_PLAN: Final = array(
    row(_MEMBER, array(row(TOPIC_ID, array(PARTITION, PARTITIONS)), PARTITIONS)), MOST_MEMBERS
)


@message(MessageType.MEMBER)
class Member(Message):
    """
    A member of a group says that it lives, what it wants and what it has.

    The answer comes at once when there is something to do, else after `wait_ms`.
    A later request of the same member ends the wait of the one before.
    """

    group: str = wire("g", _NAME)
    #: Chosen by the client, unique and new at each start: 1 to 64 characters.
    member: str = wire("m", text(64))
    #: What it knows of the group: 0 when it joins.
    generation: int = wire("e", integer(0, I64), default=0)
    #: It leaves; nothing of it is kept but the place of a static one.
    leaves: bool = wire("v", boolean, default=False)
    #: Of a static member: the name by which it has its partitions again after a restart.
    instance: str | None = wire("i", optional(text(NAME_BYTES)), default=None)
    topics: list[str] = wire("t", array(_NAME, MOST_WANTED), default=[])
    #: Regular expressions (RE2) of whole topic names.
    patterns: list[str] = wire("r", array(text(1000), MOST_WANTED), default=[])
    strategy: str = wire("s", text(64), default="cooperative-sticky")
    session_ms: int = wire("l", integer(1000, 3_600_000), default=45_000)
    rebalance_ms: int = wire("b", integer(1000, 3_600_000), default=60_000)
    #: What it reads now; what it was told to give up is in here until it is drained.
    owned: Shares = wire("o", _SHARES, default=[])
    #: For its own assignor, whatever that needs.
    metadata: bytes = wire("d", binary(0, NOTE_BYTES), default=b"")
    #: With the strategy "own": what its assignor decided, in the generation that asked for it.
    plan: list[PlanRow] | None = wire("p", optional(_PLAN), default=None)
    wait_ms: int = wire("w", integer(0, 60_000), default=0)


@message(MessageType.MEMBER, reply=True)
class MemberReply(Message):
    """What a member is to read, and what the group waits for."""

    generation: int = wire("e", integer(0, I64))
    #: All that it is to read; what it owns and does not stand here, it drains and gives up.
    assigned: Shares = wire("a", _SHARES, default=[])
    #: stable: nothing is to be done; moving: partitions change hands.
    state: str = wire("s", text(32), default="stable")
    #: How soon it is to say something again at the latest.
    interval_ms: int = wire("h", integer(1, 3_600_000), default=5000)
    #: Whom its own assignor is to divide the partitions among: member, instance, topics
    #: that it wants, metadata. Only with the strategy "own", and for one of the members.
    members: list[tuple[str, str, list[str], bytes]] | None = wire(
        "c",
        optional(
            array(
                row(_MEMBER, text(NAME_BYTES), array(_NAME, PARTITIONS), binary(0, NOTE_BYTES)),
                MOST_MEMBERS,
            )
        ),
        default=None,
    )


#: Partition, generation of the share or -1 of nobody's, offset, epoch before it, note.
CommitRow = tuple[int, int, int, int, str]


@message(MessageType.COMMIT)
class Commit(Message):
    """How far a group has read; what lies below the offset will not be read again."""

    group: str = wire("g", _NAME)
    member: str = wire("m", text(64), default="")
    topics: list[tuple[bytes, list[CommitRow]]] = wire(
        "q",
        array(
            row(
                TOPIC_ID,
                array(row(PARTITION, _GENERATION, OFFSET, EPOCH, text(NOTE_BYTES)), PARTITIONS),
            ),
            PARTITIONS,
        ),
    )
    #: The transaction with which it is decided whether this counts.
    transaction: Identity | None = wire("x", optional(_IDENTITY), default=None)


@message(MessageType.COMMIT, reply=True)
class CommitReply(Message):
    """Partition, and what is wrong with its commit or None."""

    topics: list[tuple[bytes, list[tuple[int, Any]]]] = wire(
        "q",
        array(row(TOPIC_ID, array(row(PARTITION, optional(mapping)), PARTITIONS)), PARTITIONS),
    )


@message(MessageType.COMMITTED)
class Committed(Message):
    """
    Where a group goes on.

    With a generation the partition is taken over: commits of older ones are refused
    from now on. With -1 it is only looked at.
    """

    group: str = wire("g", _NAME)
    member: str = wire("m", text(64), default="")
    topics: Shares = wire("q", _SHARES)


#: Partition, offset or -1 if nothing was committed, epoch before it, note, when in ms or -1,
#: first offset that can be read, the one behind the last, error or None.
CommittedRow = tuple[int, int, int, str, int, int, int, Any]


@message(MessageType.COMMITTED, reply=True)
class CommittedReply(Message):
    """What was committed last in each partition."""

    topics: list[tuple[bytes, list[CommittedRow]]] = wire(
        "q",
        array(
            row(
                TOPIC_ID,
                array(
                    row(
                        PARTITION,
                        POSITION,
                        EPOCH,
                        text(NOTE_BYTES),
                        POSITION,
                        POSITION,
                        POSITION,
                        optional(mapping),
                    ),
                    PARTITIONS,
                ),
            ),
            PARTITIONS,
        ),
    )


# --- transactions ------------------------------------------------------------


@message(MessageType.END_TRANSACTION)
class EndTransaction(Message):
    """
    Commit or abort; all that belongs to it was acknowledged before.

    It is decided when this is answered, and visible in all its partitions soon after.
    """

    transactional_id: str = wire("i", text(NAME_BYTES))
    transaction: Identity = wire("x", _IDENTITY)
    commit: bool = wire("c", boolean)
    #: Where it has records, commits or settles.
    topics: list[tuple[bytes, list[int]]] = wire(
        "q", array(row(TOPIC_ID, array(PARTITION, PARTITIONS)), PARTITIONS), default=[]
    )


@message(MessageType.END_TRANSACTION, reply=True)
class EndTransactionReply(Message):
    """The producer's identity for its next transaction, which may begin at once."""

    identity: Identity = wire("x", _IDENTITY)


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
        Member,
        Commit,
        Committed,
        EndTransaction,
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
        MemberReply,
        CommitReply,
        CommittedReply,
        EndTransactionReply,
        MetadataReply,
        OperateReply,
    )
}
