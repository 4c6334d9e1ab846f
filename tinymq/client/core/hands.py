"""What one broker has put into the hands of a client: leases, and their messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tinymq.client.core.held import Bits, HeldLease, Holder
from tinymq.client.core.message import QueueMessage
from tinymq.client.core.parcels import bits_of, packs_of
from tinymq.errors import CorruptBatch
from tinymq.limits import Limits
from tinymq.wire.frames import Bytes
from tinymq.wire.messages import PARTITIONS, Deliver, SubscribeReply
from tinymq.wire.records import Record


class Arrival(NamedTuple):
    """
    What came with one DELIVER.

    Attributes:
        leases: What can be handed out.
        total: How many messages there were.
        missing: What cannot be read.
        wrong: Why, if it is damaged.
    """

    leases: list[HeldLease]
    total: int
    missing: list[Bits]
    wrong: CorruptBatch | None


class Hands:
    """
    The leases that a client holds of one broker.

    Args:
        holder: Counts the messages that came and are not settled.

    Attributes:
        each: Bytes of a message, about; 0 before the first.
    """

    def __init__(self, holder: Holder) -> None:
        self.each = 0.0
        self._holder = holder
        self._leases: dict[int, HeldLease] = {}

    @property
    def held(self) -> int:
        """Messages that came and are not settled."""
        return self._holder.held

    def take(self, deliver: Deliver, payload: Bytes, limits: Limits, epoch: int) -> Arrival:
        """
        Take a delivery.

        Args:
            deliver: What it says.
            payload: The batches that the messages are in.
            limits: Bound what a batch may inflate to.
            epoch: Which SUBSCRIBE it came after.
        """
        packs, wrong = packs_of(payload, limits)
        found: list[HeldLease] = []
        missing: list[Bits] = []
        total = 0
        for row in deliver.rows:
            lease = HeldLease(row, deliver.partition, epoch, packs, self._holder)
            bits = bits_of(row[2], row[3])
            total += bits.bit_count()
            lacks = bits ^ lease.fill(bits)
            if lease.left:
                found.append(lease)
                self._holder.held += lease.left
                if lease.lease_id:
                    self._leases[lease.lease_id] = lease
            if lacks:
                missing.append(Bits(deliver.partition, lease.lease_id, lacks))
        each = len(payload) / max(1, total)
        self.each = each if not self.each else self.each + (each - self.each) / 8
        return Arrival(found, total, missing, wrong)

    def forget(self, lease: HeldLease) -> None:
        """
        Hold a lease no longer, of which nothing is left.

        Args:
            lease: The lease.
        """
        self._leases.pop(lease.lease_id, None)

    def hold_back(self, record: Record, partition: int, *, by_key: bool) -> list[Bits]:
        """
        Hand out no more what stands behind a message.

        Args:
            record: The message.
            partition: Number of its partition.
            by_key: Whether only messages of its key do.

        Returns:
            What that was.
        """
        found: list[Bits] = []
        for lease in tuple(self._leases.values()):
            if lease.partition == partition and lease.left:
                bits = lease.behind(record.offset, record.key, by_key=by_key)
                if bits:
                    lease.drop(bits)
                    found.append(Bits(lease.partition, lease.lease_id, bits))
                    if lease.over:
                        self.forget(lease)
        return found

    def release(self, message: QueueMessage) -> None:
        """
        Hold a message no longer.

        Args:
            message: The message, which has a lease.
        """
        self._leases[message.lease].release(message)

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
        return 0 if lease is None else lease.lose(bits)

    def lose_all(self) -> None:
        """Hold nothing any longer."""
        for lease in tuple(self._leases.values()):
            lease.lose(lease.bits)

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
            bits = 0 if lease.over else lease.renewable(now, handler_s)
            if bits:
                yield Bits(lease.partition, lease.lease_id, bits)
