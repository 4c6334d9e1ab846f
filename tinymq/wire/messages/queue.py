"""The work queue: subscriptions, deliveries, settling."""

from __future__ import annotations

from typing import Any, Final

from tinymq.wire.fields import (
    I32,
    I64,
    OFFSET,
    PARTITION,
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
    PARTITIONS,
    Identity,
    Message,
    message,
    start_place,
)

#: What a SETTLE does with messages.
FINISH, REQUEUE, REJECT, TOUCH, GIVE_BACK = range(5)

_SUBSCRIPTION: Final = integer(0, (1 << 32) - 1)
_LEASE: Final = integer(0, (1 << 64) - 1)
#: Which messages of a lease: bit 0 of the first byte is the lease's base offset.
_BITS: Final = binary(0, 512)
#: Partition, lease, bits.
LeaseRow = tuple[int, int, bytes]
_LEASE_ROWS: Final = array(row(PARTITION, _LEASE, _BITS), PARTITIONS)


@message(MessageType.SUBSCRIBE)
class Subscribe(Message):
    """Take messages of a channel; the same again after a lost link goes on with its leases."""

    subscription: int = wire("s", _SUBSCRIPTION)
    topic_id: bytes = wire("t", TOPIC_ID)
    channel: str = wire("n", NAME)
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
    transaction: Identity | None = wire("x", optional(IDENTITY), default=None)


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
