"""
The table of limits: every number that a peer's input is checked against.

One place, so that the protocol document, the HELLO reply and the code can
never differ. Sizes are bytes, times are seconds unless a name says otherwise.
"""

from __future__ import annotations

from typing import Final

from attrs import field, frozen
from attrs.validators import ge, le

KIB: Final = 1024
MIB: Final = 1024 * 1024

#: The longest value that a setting may allow.
MAX_VALUE_CEILING: Final = 128 * MIB

#: Deepest nesting of a msgpack value that is decoded from a peer.
MAX_NESTING: Final = 8

#: The last moment for which a message can be kept, in milliseconds since 1970: the end of the
#: year 9999.
LATEST_MS: Final = 253_402_300_799_999


def _size(default: int, most: int) -> int:
    return field(default=default, validator=[ge(1), le(most)], metadata={"most": most})


@frozen(kw_only=True)
class Limits:
    """
    The limits in force on one broker, told to every client in HELLO's reply.

    Attributes:
        hello: Longest HELLO body.
        hello_seconds: Time from connecting to a complete HELLO.
        meta: Longest msgpack part of any frame.
        batch: Longest record batch with more than one record.
        value: Longest value; a value over `batch` travels as a batch of one.
        records: Most records in a batch.
        key: Longest key.
        headers: Longest headers of one record, all together.
        header_count: Most headers of one record.
        name: Longest name of a new topic, in bytes.
        partitions: Most partitions of a topic.
        fetch: Most payload bytes in one FETCH reply.
        outgoing: Most bytes buffered for one connection that does not read.
        producer_window: Batches of one producer and partition that the broker
            remembers, so the most that a producer may have in flight there.
        heartbeat_seconds: Longest interval of heartbeats that a client may have;
            a peer silent for three intervals is taken for dead.
        inflated: Most bytes that one batch may decompress to.
    """

    hello: int = _size(4 * KIB, 4 * KIB)
    hello_seconds: int = _size(5, 60)
    meta: int = _size(64 * KIB, 64 * KIB)
    batch: int = _size(MIB, 16 * MIB)
    value: int = _size(16 * MIB, MAX_VALUE_CEILING)
    records: int = _size(65_535, 65_535)
    key: int = _size(64 * KIB, 64 * KIB)
    headers: int = _size(64 * KIB, 64 * KIB)
    header_count: int = _size(128, 128)
    name: int = _size(200, 200)
    partitions: int = _size(1000, 1000)
    fetch: int = _size(MIB, 16 * MIB)
    outgoing: int = _size(4 * MIB, 64 * MIB)
    producer_window: int = _size(64, 64)
    heartbeat_seconds: int = _size(15, 300)
    inflated: int = _size(32 * MIB, MAX_VALUE_CEILING)

    @property
    def overhead(self) -> int:
        """Most bytes of a batch of one record beside its value."""
        return self.key + self.headers + KIB

    @property
    def payload(self) -> int:
        """Most payload bytes of a request: one batch with the longest value."""
        return max(self.batch, self.value + self.overhead)

    @property
    def body(self) -> int:
        """Most bytes after the header of a request."""
        return 4 + self.meta + self.payload


DEFAULT_LIMITS: Final = Limits()
