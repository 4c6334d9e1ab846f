"""Consumer groups and transactions."""

from __future__ import annotations

from typing import Any, Final

from tinymq.wire.fields import (
    EPOCH,
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
from tinymq.wire.header import MessageType
from tinymq.wire.messages.base import (
    IDENTITY,
    NAME,
    NAME_BYTES,
    PARTITIONS,
    Identity,
    Message,
    message,
    start_place,
)

#: Longest text that is kept with a commit, and longest word of a member to its assignor.
NOTE_BYTES: Final = 4096
#: Most transactions of one producer that are under way, each with an epoch of its own.
AHEAD: Final = 64
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
#: Topic ids and partitions.
Topics = list[tuple[bytes, list[int]]]
_TOPICS: Final = array(row(TOPIC_ID, array(PARTITION, PARTITIONS)), PARTITIONS)
#: Member, and the partitions that it is to have.
PlanRow = tuple[str, Topics]
_PLAN: Final = array(row(_MEMBER, _TOPICS), MOST_MEMBERS)


@message(MessageType.MEMBER)
class Member(Message):
    """
    A member of a group says that it lives, what it wants and what it has.

    The answer comes at once when there is something to do, else after `wait_ms`.
    A later request of the same member ends the wait of the one before.
    """

    group: str = wire("g", NAME)
    #: Chosen by the client, unique and new at each start: 1 to 64 characters.
    member: str = wire("m", text(64))
    #: What it knows of the group: 0 when it joins.
    generation: int = wire("e", integer(0, I64), default=0)
    #: It leaves; nothing of it is kept but the place of a static one.
    leaves: bool = wire("v", boolean, default=False)
    #: Of a static member: the name by which it has its partitions again after a restart.
    instance: str | None = wire("i", optional(text(NAME_BYTES)), default=None)
    topics: list[str] = wire("t", array(NAME, MOST_WANTED), default=[])
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
    #: How many members the group had in that generation; 0 is not known.
    count: int = wire("n", integer(0, MOST_MEMBERS), default=0)


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
                row(_MEMBER, text(NAME_BYTES), array(NAME, PARTITIONS), binary(0, NOTE_BYTES)),
                MOST_MEMBERS,
            )
        ),
        default=None,
    )
    #: How many members the group has; 0 is not known.
    count: int = wire("n", integer(0, MOST_MEMBERS), default=0)


#: Partition, generation of the share or -1 of nobody's, offset, epoch before it, note.
CommitRow = tuple[int, int, int, int, str]


@message(MessageType.COMMIT)
class Commit(Message):
    """How far a group has read; what lies below the offset will not be read again."""

    group: str = wire("g", NAME)
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
    transaction: Identity | None = wire("x", optional(IDENTITY), default=None)


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

    group: str = wire("g", NAME)
    member: str = wire("m", text(64), default="")
    topics: Shares = wire("q", _SHARES)
    #: What is committed by taking over where nothing was; None commits nothing.
    start: str | int | None = wire("s", optional(start_place), default=None)


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


@message(MessageType.END_TRANSACTION)
class EndTransaction(Message):
    """
    Commit or abort; all that belongs to it was acknowledged before.

    It is decided when this is answered, and visible in all its partitions soon after.
    A commit may be one of several transactions that follow each other.
    """

    transactional_id: str = wire("i", text(NAME_BYTES))
    transaction: Identity = wire("x", IDENTITY)
    commit: bool = wire("c", boolean)
    #: Where it has records, commits or settles.
    topics: Topics = wire("q", _TOPICS, default=[])
    #: The same of those with the epochs behind, which are committed together with it.
    more: list[Topics] = wire("m", array(_TOPICS, AHEAD - 1), default=[])


@message(MessageType.END_TRANSACTION, reply=True)
class EndTransactionReply(Message):
    """The producer's identity for the transaction behind the last, which may begin at once."""

    identity: Identity = wire("x", IDENTITY)
