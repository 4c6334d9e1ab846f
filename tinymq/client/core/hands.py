"""What one broker has put into the hands of a client: leases, and their messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tinymq.client.core.message import QueueMessage, Slot, Standing
from tinymq.client.core.parcels import offsets_of, records_of
from tinymq.errors import CorruptBatch
from tinymq.limits import Limits
from tinymq.wire.frames import Bytes
from tinymq.wire.messages import PARTITIONS, Deliver, SubscribeReply
from tinymq.wire.records import Record

#: Makes a message: partition, record, and its place in a lease.
Make = Callable[[int, Record, Slot], QueueMessage]


class Bits(NamedTuple):
    """
    Some messages of a lease.

    Attributes:
        partition: Number of the partition.
        lease: The lease.
        bits: Which ones; -1 for all that is left.
    """

    partition: int
    lease: int
    bits: int


class Arrival(NamedTuple):
    """
    What came with one DELIVER.

    Attributes:
        messages: What can be handed out.
        total: How many messages there were.
        missing: What cannot be read.
        wrong: Why, if it is damaged.
    """

    messages: list[QueueMessage]
    total: int
    missing: list[Bits]
    wrong: CorruptBatch | None


class HeldLease:
    """
    Messages of one partition that came under one lease.

    Args:
        lease_id: What settles name.
        partition: Number of the partition.
        epoch: Which SUBSCRIBE it came after.

    Attributes:
        messages: What is not settled, by bit.
    """

    __slots__ = ("epoch", "lease_id", "messages", "partition")

    def __init__(self, lease_id: int, partition: int, epoch: int) -> None:
        self.lease_id = lease_id
        self.partition = partition
        self.epoch = epoch
        self.messages: dict[int, QueueMessage] = {}

    @property
    def bits(self) -> int:
        """What is not settled."""
        found = 0
        for bit in self.messages:
            found |= 1 << bit
        return found

    def renewable(self, now: float, handler_s: float | None) -> int:
        """
        Say which messages are to be renewed.

        Args:
            now: The time.
            handler_s: How long a handler may have a message, or None.

        Returns:
            Their bits; -1 when it is all that is left.
        """
        if handler_s is None:
            return -1
        since = now - handler_s
        over = [
            bit
            for bit, message in self.messages.items()
            if message.started is not None and message.started <= since
        ]
        if not over:
            return -1
        found = self.bits
        for bit in over:
            found &= ~(1 << bit)
        return found


class Hands:
    """
    The leases that a client holds of one broker.

    Attributes:
        held: Messages that came and are not settled.
        each: Bytes of a message, about; 0 before the first.
    """

    def __init__(self) -> None:
        self.held = 0
        self.each = 0.0
        self._leases: dict[int, HeldLease] = {}

    def take(
        self, deliver: Deliver, payload: Bytes, limits: Limits, epoch: int, make: Make
    ) -> Arrival:
        """
        Take a delivery.

        Args:
            deliver: What it says.
            payload: The batches that the messages are in.
            limits: Bound what a batch may inflate to.
            epoch: Which SUBSCRIBE it came after.
            make: Makes messages.
        """
        records, wrong = records_of(payload, limits)
        found: list[QueueMessage] = []
        missing: list[Bits] = []
        count = 0
        for lease_id, base, row, size, attempt, failures, _term in deliver.rows:
            lease = HeldLease(lease_id, deliver.partition, epoch)
            lacks = 0
            for bit, offset in offsets_of(base, row, size):
                count += 1
                record = records.get(offset)
                if record is None:
                    lacks |= 1 << bit
                    continue
                made = make(deliver.partition, record, Slot(lease_id, bit, attempt, failures))
                found.append(made)
                lease.messages[bit] = made
            self.held += len(lease.messages)
            if lease_id and lease.messages:
                self._leases[lease_id] = lease
            if lacks:
                missing.append(Bits(deliver.partition, lease_id, lacks))
        each = len(payload) / max(1, count)
        self.each = each if not self.each else self.each + (each - self.each) / 8
        return Arrival(found, count, missing, wrong)

    def release(self, message: QueueMessage) -> None:
        """
        Hold a message no longer.

        Args:
            message: The message, which has a lease.
        """
        lease = self._leases[message.lease]
        del lease.messages[message.bit]
        if not lease.messages:
            del self._leases[message.lease]
        self.held -= 1

    def behind(self, message: QueueMessage, *, by_key: bool) -> list[QueueMessage]:
        """
        Find what was not handed out and stands behind a message.

        Args:
            message: The message.
            by_key: Whether only messages of its key do.
        """
        return [
            other
            for lease in self._leases.values()
            if lease.partition == message.partition
            for other in lease.messages.values()
            if other.standing is Standing.READY
            and other.offset > message.offset
            and (not by_key or other.key == message.key)
        ]

    def lose(self, lease_id: int, bits: int) -> int:
        """
        Hold messages no longer, and tell them.

        Args:
            lease_id: Their lease.
            bits: Which ones.

        Returns:
            How many were held.
        """
        lease = self._leases.get(lease_id)
        messages = () if lease is None else tuple(lease.messages.items())
        lost = [message for bit, message in messages if bits >> bit & 1]
        for message in lost:
            self.release(message)
        for message in lost:
            message.lose()
        return len(lost)

    def lose_all(self) -> None:
        """Hold nothing any longer."""
        for lease in tuple(self._leases.values()):
            self.lose(lease.lease_id, lease.bits)

    def compare(
        self, reply: SubscribeReply, epoch: int, settled: Callable[[int], int]
    ) -> Iterator[Bits]:
        """
        Bring together what the broker holds for us, and what is held here.

        Args:
            reply: What the broker holds.
            epoch: Of its SUBSCRIBE; what came after it is not in it.
            settled: Says which messages of a lease are being settled.

        Yields:
            What is not known here: it was lost on its way.
        """
        theirs: dict[int, int] = {}
        for partition, lease_id, row in reply.held:
            bits = theirs[lease_id] = int.from_bytes(row, "little")
            lease = self._leases.get(lease_id)
            ours = 0 if lease is None else lease.bits
            unknown = bits & ~(ours | settled(lease_id))
            if unknown:
                yield Bits(partition, lease_id, unknown)
        if len(reply.held) >= PARTITIONS:
            return  # perhaps not all were told; touching the others will show
        for lease in tuple(self._leases.values()):
            if lease.epoch < epoch:
                self.lose(lease.lease_id, lease.bits & ~theirs.get(lease.lease_id, 0))

    def renewals(self, now: float, handler_s: float | None) -> Iterator[Bits]:
        """
        Say what is to be renewed.

        Args:
            now: The time.
            handler_s: How long a handler may have a message, or None.
        """
        for lease in self._leases.values():
            bits = lease.renewable(now, handler_s)
            if bits:
                yield Bits(lease.partition, lease.lease_id, bits)
