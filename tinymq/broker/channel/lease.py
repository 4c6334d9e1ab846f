"""
A lease: messages that a consumer holds until it settles them or its time is over.

A lease covers a short set of offsets, all with the same history. Settles name
the lease and the bits they mean; `WHOLE` means whatever is left. A lease id is
never given twice, not even by a broker that was killed, so a late settle can
never hit a message that somebody else holds by now.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Final, NamedTuple, TypeAlias

from typing_extensions import override

from tinymq.broker.channel.history import History
from tinymq.broker.channel.runs import lowest

#: All bits: what is left of a lease.
WHOLE: Final = -1
#: Most offsets that one lease spans: settling the last one by itself handles this many bits.
MOST_SPANNED: Final = 4096
#: Bits of a lease id below the epoch: 200 days of a million leases a second.
_COUNTED: Final = 44
_EPOCHS: Final = 1 << (64 - _COUNTED)
#: Leases whose loss is remembered for those who settle too late.
_MOST_LOST: Final = 10_000
#: Stops of a broker that are remembered for the same reason.
_MOST_GAPS: Final = 16

#: Begins the names of holders that are transactions: they hold until they are decided.
_TRANSACTION: Final = "transaction/"

#: A lease id, and the bits of it that are meant.
Settle: TypeAlias = tuple[int, int]


def lease_ids(epoch: int) -> Callable[[], int]:
    """
    Return what gives out the lease ids of one broker.

    Args:
        epoch: Rises with each start of the broker.
    """
    return count((epoch % _EPOCHS << _COUNTED) + 1).__next__


def held_by(consumer: str, producer_id: int, epoch: int) -> str:
    """
    Name the holder of what a consumer settled with a transaction.

    Args:
        consumer: Who had it.
        producer_id: Of the transaction.
        epoch: Of the transaction.
    """
    return f"{_TRANSACTION}{producer_id}/{epoch}/{consumer}"


def transaction_of(holder: str) -> tuple[int, int] | None:
    """
    Say which transaction a holder is; None if it is a consumer.

    Args:
        holder: Its name.
    """
    if not holder.startswith(_TRANSACTION):
        return None
    _, producer_id, epoch, _ = holder.split("/", 3)
    return int(producer_id), int(epoch)


def owner_of(holder: str) -> str:
    """
    Say which consumer something was given to, though a transaction may hold it now.

    Args:
        holder: Name of the holder.
    """
    return holder.split("/", 3)[3] if holder.startswith(_TRANSACTION) else holder


def epoch_of(lease_id: int) -> int:
    """
    Return the epoch of the broker that gave a lease out.

    Args:
        lease_id: The lease.
    """
    return lease_id >> _COUNTED


class Lease:
    """
    Messages in the hands of a consumer.

    Args:
        lease_id: Unique for ever.
        holder: The consumer.
        base: The offset of bit 0.
        bits: What is not settled yet; never empty.
        history: What the messages had been through before they were given out.
        deadline: When they come back.
        since: When they were given out.

    Attributes:
        touched: The bits whose deadline was moved apart from the others.
        touched_until: Their deadline.
    """

    __slots__ = (
        "base",
        "bits",
        "deadline",
        "history",
        "holder",
        "lease_id",
        "since",
        "touched",
        "touched_until",
    )

    def __init__(  # noqa: PLR0913, PLR0917 - it is made in one place
        self,
        lease_id: int,
        holder: str,
        base: int,
        bits: int,
        history: History,
        deadline: int,
        since: int,
    ) -> None:
        self.lease_id = lease_id
        self.holder = holder
        self.base = base
        self.bits = bits
        self.history = history
        self.deadline = deadline
        self.since = since
        self.touched = 0
        self.touched_until = 0

    @override
    def __repr__(self) -> str:
        return f"<Lease {self.lease_id:x} of {self.holder} base={self.base} bits={self.bits:b}>"

    @property
    def first(self) -> int:
        """The lowest offset of what is not settled yet."""
        return self.base + lowest(self.bits)

    def touch(self, bits: int, until: int) -> int:
        """
        Move the deadline of all or some of what is left; never to an earlier time.

        Args:
            bits: Which ones. Those touched apart from others share one deadline.
            until: The new deadline.

        Returns:
            The bits that are still held.
        """
        held = self.bits & bits
        if held == self.bits:
            self.deadline = max(self.deadline, until)
        elif held:
            self.touched |= held
            self.touched_until = max(self.touched_until, until)
        return held

    def overdue(self, now: int) -> int:
        """
        Return the bits whose time is over.

        Args:
            now: The time.
        """
        if now < self.deadline:
            return 0
        if self.touched_until > now:
            return self.bits & ~self.touched
        return self.bits

    def go_on(self) -> None:
        """Let the part that was touched go on by its own deadline."""
        self.deadline = max(self.deadline, self.touched_until)
        self.touched = 0


class Delivery(NamedTuple):
    """
    A run of messages to be sent to a consumer.

    Attributes:
        lease_id: What settles must name; 0 when they are settled already, and
            then the frame waits until the ledger is on disk.
        consumer: Whom it is for.
        base: The offset of bit 0.
        bits: Which offsets.
        attempt: The number of this delivery, from 1.
        failures: How often they failed before.
        deadline: When the lease is over; 0 without a lease.
    """

    lease_id: int
    consumer: str
    base: int
    bits: int
    attempt: int
    failures: int
    deadline: int

    @property
    def messages(self) -> int:
        """How many messages it has."""
        return self.bits.bit_count()

    @property
    def end(self) -> int:
        """The offset behind the last."""
        return self.base + self.bits.bit_length()


class Lost(NamedTuple):
    """
    What a consumer does not hold any more, and is to be told.

    Attributes:
        consumer: Who held it.
        lease_id: The lease.
        bits: Which of its messages.
    """

    consumer: str
    lease_id: int
    bits: int


class Losses:
    """
    Which leases were lost, so that late settles are told apart from repeated ones.

    A settle whose confirmation was lost with the link is sent again, and must
    be confirmed; one whose lease was over must be refused. Only the losses are
    remembered, which are few. What was pushed out of this memory is refused.

    Args:
        most: Leases remembered at most.
    """

    __slots__ = ("_bits", "_most", "forgotten", "gaps")

    def __init__(self, most: int = _MOST_LOST) -> None:
        self._bits: dict[int, int] = {}
        self._most = most
        #: The highest lease id whose loss was forgotten.
        self.forgotten = -1
        #: Between these lease ids a broker stopped: who holds one of them was never written down.
        self.gaps: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._bits)

    def add(self, lease_id: int, bits: int) -> None:
        """
        Remember a loss.

        Args:
            lease_id: The lease.
            bits: What its holder has no more.
        """
        self._bits[lease_id] = self._bits.get(lease_id, 0) | bits
        if len(self._bits) > self._most:
            oldest = next(iter(self._bits))
            del self._bits[oldest]
            self.forgotten = max(self.forgotten, oldest)

    def among(self, lease_id: int, bits: int) -> int:
        """
        Return the bits that were lost.

        Args:
            lease_id: A lease.
            bits: Bits of it that are settled already, or lost.
        """
        known = self._bits.get(lease_id)
        if known is not None:
            return known & bits
        unknown = any(low < lease_id < high for low, high in self.gaps)
        return bits if unknown or lease_id <= self.forgotten else 0

    def issued(self, newest: int, lease_id: int) -> None:
        """
        Notice a broker's stop: leases may have been given out that are not known.

        Args:
            newest: The lease known before.
            lease_id: The one given out now.
        """
        if newest >> _COUNTED == lease_id >> _COUNTED:
            return
        self.gaps.append((newest, lease_id))
        if len(self.gaps) > _MOST_GAPS:
            self.forgotten = max(self.forgotten, self.gaps.pop(0)[1] - 1)

    def rows(self) -> list[tuple[int, int]]:
        """Everything that is remembered: lease ids and bits."""
        return list(self._bits.items())

    def restore(
        self, forgotten: int, gaps: list[tuple[int, int]], rows: list[tuple[int, int]]
    ) -> None:
        """
        Take over a snapshot.

        Args:
            forgotten: The highest lease id forgotten.
            gaps: Where a broker stopped.
            rows: Lease ids and bits.
        """
        self.forgotten = forgotten
        self.gaps = gaps
        self._bits = dict(rows)
