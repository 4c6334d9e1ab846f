"""
The fixed header of 12 bytes that starts every frame.

::

     0      2     3     4            8            12
    +------+-----+-----+------------+------------+----------
    | "TM" | ver | typ | message id | body bytes | body ...
    +------+-----+-----+------------+------------+----------
      u16    u8    u8       u32          u32       big-endian

The message id pairs a reply with its request on this connection and is not the
identity of a message: that is topic id, partition and offset. Id 0 asks for no
reply.
"""

from __future__ import annotations

import struct
from enum import IntEnum, unique
from typing import Final

HEADER: Final = struct.Struct(">HBBII")
HEADER_SIZE: Final = HEADER.size
MAGIC: Final = 0x544D
VERSION: Final = 1

#: Set in the type of a reply; the other seven bits are the request's.
REPLY: Final = 0x80

#: The highest message id; ids count up and wrap to 1.
MAX_MESSAGE_ID: Final = 0xFFFF_FFFF


@unique
class MessageType(IntEnum):
    """The types of requests; a reply has `REPLY` added, an error is `ERROR`."""

    #: First frame of a connection: who is there, which versions, which session.
    HELLO = 0x01
    #: Credentials; reserved until there is something to prove.
    AUTH = 0x02
    #: Sign of life, answered at once.
    PING = 0x03
    #: "I am about to close, and this is why"; never answered.
    GOODBYE = 0x04
    #: One record batch for one partition.
    PRODUCE = 0x10
    #: Record batches of many partitions from given positions; waits for data.
    FETCH = 0x11
    #: Offsets by time, earliest or latest.
    OFFSETS = 0x12
    #: A producer id for an idempotent producer.
    INIT_PRODUCER = 0x13
    #: Takes messages of a channel from one broker, or goes on after a lost link.
    SUBSCRIBE = 0x14
    #: How many messages may have been delivered up to now, in all; never answered.
    CREDIT = 0x15
    #: Messages under leases; from the broker, never answered.
    DELIVER = 0x16
    #: What became of messages.
    SETTLE = 0x17
    #: Leases that the client does not hold any more; from the broker, never answered.
    LEASE_LOST = 0x18
    #: The end of a subscription; what it held is given back.
    UNSUBSCRIBE = 0x19
    #: A subscription is over, and why; from the broker, never answered.
    ENDED = 0x1A
    #: Topics and brokers: what a client needs to find a partition.
    METADATA = 0x20
    #: One administrative operation by its name.
    OPERATE = 0x21
    #: A member of a consumer group: joining, a sign of life, what it has, leaving.
    MEMBER = 0x30
    #: How far a group has read in partitions of one broker.
    COMMIT = 0x31
    #: Where a group goes on in partitions of one broker.
    COMMITTED = 0x32
    #: The end of a transaction.
    END_TRANSACTION = 0x33
    #: A reply that carries an error instead of a result; with id 0 it concerns
    #: the connection as a whole.
    ERROR = 0xFF
