"""One subscription of a session: its consumer, where it takes messages, and its link."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Protocol

from tinymq.broker.channel.consumer import Consumer
from tinymq.broker.channel.lease import MOST_SPANNED, WHOLE
from tinymq.wire.messages import Deliver, Ended, LeaseLost, LeaseRow, error_meta

if TYPE_CHECKING:
    from tinymq.broker.hosted import Hosted
    from tinymq.errors import WireError
    from tinymq.stats import ClientSnapshot
    from tinymq.wire.frames import Bytes

#: Rows in one message at most.
MOST_ROWS: Final = 100
#: Leases in the answer to SUBSCRIBE at most.
MOST_HELD: Final = 1000
#: Milliseconds for which it is known whose a consumer was, and how many are known at most.
_KNOWN_MS: Final = 120_000
_MOST_KNOWN: Final = 1000
#: All bits that a lease may have.
ALL_BITS: Final = bytes([255]) * (MOST_SPANNED // 8)


class Link(Protocol):
    """
    A connection, as a subscription sees it.

    Attributes:
        peer: The address of its other end.
    """

    peer: str

    @property
    def client_id(self) -> str:
        """What the client calls itself."""

    def deliver(self, deliver: Deliver, payload: list[Bytes], messages: int) -> None:
        """
        Send messages.

        Args:
            deliver: What they are.
            payload: The batches that they are in.
            messages: How many there are.
        """

    def lease_lost(self, lost: LeaseLost) -> None:
        """
        Tell that leases were lost.

        Args:
            lost: Which ones.
        """

    def ended(self, ended: Ended) -> None:
        """
        Tell that a subscription is over, and let go of it.

        Args:
            ended: Which one, and why.
        """

    def snapshot(self, origin_ms: int) -> ClientSnapshot:
        """
        Say who is there, and whether it takes what is sent.

        Args:
            origin_ms: The wall clock when the scheduler's was 0.
        """


class Subscription:
    """
    One subscription of a session.

    Args:
        name: Of its consumer: the session and the number.
        number: The client's number for it.
        topic_id: The topic.
        channel: The channel's name.
        partitions: Those it takes from; None for all that are here.
        window: How many messages it takes at first.
        link: Its connection.

    Attributes:
        consumer: Its credit and what it holds.
        client_id: What its client calls itself.
        known_as: That, or the client's address where it has no name; for people.
        hosted: Where it takes messages, by the partition's number.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - as in SUBSCRIBE
        self,
        name: str,
        number: int,
        topic_id: bytes,
        channel: str,
        partitions: frozenset[int] | None,
        window: int,
        link: Link,
    ) -> None:
        self.number = number
        self.topic_id = topic_id
        self.channel = channel
        self.partitions = partitions
        self.link: Link | None = link
        self.client_id = link.client_id
        self.known_as = link.client_id or link.peer
        self.consumer = Consumer(name, window)
        self.hosted: dict[int, Hosted] = {}

    @property
    def name(self) -> str:
        """The consumer's name."""
        return self.consumer.name

    def wants(self, index: int) -> bool:
        """
        Whether it takes messages of a partition.

        Args:
            index: The partition's number.
        """
        return self.partitions is None or index in self.partitions

    def mark(self) -> None:
        """Let all its partitions have their turn: it may take more than before."""
        for hosted in self.hosted.values():
            hosted.mark()

    def lost(self, index: int, leases: Iterable[tuple[int, int]]) -> None:
        """
        Tell its client that it does not hold something any more.

        Args:
            index: The partition's number.
            leases: Leases and bits.
        """
        rows = [(index, lease_id, packed(bits)) for lease_id, bits in leases]
        for first in range(0, len(rows), MOST_ROWS):
            if self.link is not None:
                part = rows[first : first + MOST_ROWS]
                self.link.lease_lost(LeaseLost(subscription=self.number, rows=part))

    def end(self, why: WireError) -> None:
        """
        Tell its client that it is over; what it lost was told before.

        Args:
            why: A reason for programs and for people.
        """
        if self.link is not None:
            self.link.ended(Ended(subscription=self.number, error=error_meta(why)))


class Gone:
    """Whose the consumers were that are gone, for as long as people may ask: bounded."""

    def __init__(self) -> None:
        self._found: OrderedDict[str, tuple[int, ClientSnapshot]] = OrderedDict()

    def add(self, consumer: str, client: ClientSnapshot, now: int) -> None:
        """
        Remember whose a consumer was.

        Args:
            consumer: Its name.
            client: Who is gone.
            now: The time.
        """
        self._found.pop(consumer, None)
        self._found[consumer] = now + _KNOWN_MS, client
        while self._found:
            until, _ = next(iter(self._found.values()))
            if until > now and len(self._found) <= _MOST_KNOWN:
                break
            self._found.popitem(last=False)

    def find(self, consumer: str) -> ClientSnapshot | None:
        """
        Say whose a consumer was.

        Args:
            consumer: Its name.
        """
        found = self._found.get(consumer)
        return None if found is None else found[1]


def packed(bits: int) -> bytes:
    """
    Write bits of a lease as they travel.

    Args:
        bits: Which ones, or `WHOLE`.
    """
    if bits == WHOLE:
        return ALL_BITS
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def unpacked(bits: bytes | None) -> int:
    """
    Read bits of a lease.

    Args:
        bits: As they travelled; None for all.
    """
    return WHOLE if bits is None else int.from_bytes(bits, "little")


def row_of(index: int, lease_id: int, bits: int) -> LeaseRow:
    """
    Write a lease as it travels.

    Args:
        index: The partition's number.
        lease_id: The lease.
        bits: Which of its messages.
    """
    return index, lease_id, packed(bits)
