"""
The channels of one partition, and who consumes them.

Consumers take turns: what there is goes to all that have credit in equal
parts, and whoever was first is last the next time. One consumer belongs to the
queues of many partitions, but its credit and what it holds are counted once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import attrs

from tinymq.broker.channel.consumer import Consumer
from tinymq.broker.channel.counts import Counts, count, figures
from tinymq.broker.channel.lease import Delivery, Lost, Settle
from tinymq.broker.channel.ledger import replay, snapshot
from tinymq.broker.channel.pace import Pace
from tinymq.broker.channel.places import Places
from tinymq.broker.channel.returns import Requeue, Settled
from tinymq.broker.channel.state import Channel
from tinymq.broker.channel.steering import Steering
from tinymq.channelpolicy import ChannelPolicy

#: A record of the ledger: the name of the channel, and what it did.
LedgerRecord = tuple[bytes, bytes]


class Subscribers:
    """
    A channel of one partition and its consumers.

    Args:
        channel: The channel.

    Attributes:
        steering: The other side of the channel.
        consumers: Those who take messages, in the order of their turns.
        pace: How fast it goes.
    """

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.pace = Pace()
        self.steering = Steering(channel)
        self.consumers: list[Consumer] = []

    def join(self, consumer: Consumer, now: int) -> list[Settle]:
        """
        Let a consumer take messages.

        Args:
            consumer: Who joins, or comes back.
            now: The time.

        Returns:
            What it holds from before; it gives back what it does not know of.
        """
        held = self.channel.custody.resume(consumer.name, now)
        if consumer not in self.consumers:
            self.consumers.append(consumer)
            consumer.in_flight += sum(bits.bit_count() for _, bits in held)
            consumer.pace.note(now, consumer.done)
        return held

    def deliver(self, now: int, end: int) -> list[Delivery]:
        """
        Give out what consumers take.

        Args:
            now: The time.
            end: Offset behind the last message that is visible.

        Returns:
            What to send, in this order.
        """
        self.release()
        found: list[Delivery] = []
        asked = [consumer for consumer in self.consumers if consumer.room]
        available = self.available(end)
        while asked and available > 0:
            share = -(-available // len(asked))
            given = 0
            for consumer in tuple(asked):
                count = self._give(consumer, share, now, end, found)
                if not count or not consumer.room:
                    asked.remove(consumer)
                given += count
            available -= given
        return found

    def release(self) -> list[Consumer]:
        """
        Let other partitions give to consumers again that were to be given a message alone.

        Returns:
            Those consumers, if no such message is left.
        """
        if self.channel.places.ready.alone:
            return []
        found = [consumer for consumer in self.consumers if consumer.empties is self]
        for consumer in found:
            consumer.empties = None
        return found

    def _give(
        self, consumer: Consumer, share: int, now: int, end: int, found: list[Delivery]
    ) -> int:
        if consumer.empties not in {None, self}:
            return 0
        elsewhere = consumer.in_flight - self._held(consumer)
        deliveries = self.channel.take(
            consumer.name, min(share, consumer.room), now, end, busy=elsewhere > 0
        )
        count = sum(delivery.messages for delivery in deliveries)
        empties = self.channel.places.ready.alone and self.channel.guard == consumer.name
        consumer.empties = self if empties else None
        if count:
            found += deliveries
            consumer.credit.use(count)
            consumer.most -= count
            if self.channel.policy.delivery == "at_least_once":
                consumer.in_flight += count
            # Who was given something is asked last the next time.
            self.consumers.remove(consumer)
            self.consumers.append(consumer)
        return count

    def _held(self, consumer: Consumer) -> int:
        holder = self.channel.places.holders.get(consumer.name)
        return 0 if holder is None else holder.held

    def available(self, end: int) -> int:
        """
        Say how many messages there are at most; some may have to wait.

        Args:
            end: Offset behind the last message that is visible.
        """
        places = self.channel.places
        return max(0, end - places.cursor) + places.ready.count + places.delayed

    # --- settling ----------------------------------------------------------------

    def finish(self, consumer: Consumer, settles: Iterable[Settle], now: int) -> Settled:
        """
        Settle messages for good.

        Args:
            consumer: Who holds them.
            settles: Leases and bits.
            now: The time.
        """
        settled = self._counted(consumer, self.channel.finish(consumer.name, settles, now))
        consumer.finished += settled.done
        return settled

    def hold(
        self,
        consumer: Consumer,
        settles: Iterable[Settle],
        now: int,
        identity: tuple[int, int],
    ) -> Settled:
        """
        Let a transaction hold messages until it is decided whether they are finished.

        Args:
            consumer: Who holds them now.
            settles: Leases and bits.
            now: The time.
            identity: Producer id and epoch of the transaction.
        """
        held = self.channel.hold(consumer.name, settles, now, identity)
        settled = self._counted(consumer, held)
        consumer.finished += settled.done
        return settled

    def requeue(
        self, consumer: Consumer, settles: Iterable[Settle], now: int, how: Requeue
    ) -> Settled:
        """
        Let messages come again.

        Args:
            consumer: Who holds them.
            settles: Leases and bits.
            now: The time.
            how: With which delay, and whether they failed.
        """
        settled = self._counted(consumer, self.channel.requeue(consumer.name, settles, now, how))
        consumer.requeued += settled.done
        return settled

    def reject(self, consumer: Consumer, settles: Iterable[Settle], now: int, text: str) -> Settled:
        """
        Give messages up.

        Args:
            consumer: Who holds them.
            settles: Leases and bits.
            now: The time.
            text: Why.
        """
        settled = self._counted(consumer, self.channel.reject(consumer.name, settles, now, text))
        consumer.rejected += settled.done
        return settled

    def give_back(self, consumer: Consumer, settles: list[Settle] | None, now: int) -> Settled:
        """
        Take back what a consumer did not begin with.

        Args:
            consumer: Who holds it.
            settles: Leases and bits; all that it holds by default.
            now: The time.
        """
        return self._counted(consumer, self.channel.leave(consumer.name, now, settles))

    def missing(self, consumer: Consumer, lease_id: int, bits: int, now: int) -> None:
        """
        Settle messages of a delivery that turned out not to exist.

        Args:
            consumer: For whom they were.
            lease_id: Its lease.
            bits: Which of its offsets hold no message.
            now: The time.
        """
        consumer.in_flight -= self.channel.missing(lease_id, bits, now)

    def _counted(self, consumer: Consumer, settled: Settled) -> Settled:
        consumer.in_flight -= settled.done
        self.losing(settled.revoked)
        return settled

    def losing(self, lost: Sequence[Lost]) -> None:
        """
        Count what consumers hold no more without having settled it.

        Args:
            lost: What they are to be told.
        """
        if not lost:
            return  # as with nearly every settle
        names = {consumer.name: consumer for consumer in self.consumers}
        for one in lost:
            if one.consumer in names:
                names[one.consumer].in_flight -= one.bits.bit_count()

    def expire(self, now: int, chance: float = 0.0) -> list[Lost]:
        """
        Take back leases whose time is over.

        Args:
            now: The time.
            chance: From 0 to 1, for the jitter of the back-off.

        Returns:
            Who is to be told what it lost.
        """
        lost = self.channel.custody.expire(now, chance)
        self.losing(lost)
        charged = self.channel.overdue.charged()
        for consumer in self.consumers if charged else ():
            consumer.timed_out += charged.get(consumer.name, 0)
        return lost

    # --- coming and going ----------------------------------------------------------

    def leave(self, consumer: Consumer, now: int) -> None:
        """
        Let a consumer go in good order; what it holds comes back as if it had not had it.

        Args:
            consumer: Who goes.
            now: The time.
        """
        self.give_back(consumer, None, now)
        self._forget(consumer)

    def lost(self, consumer: Consumer, now: int, grace: int) -> None:
        """
        Keep what a consumer holds for a while: its link was lost.

        Args:
            consumer: Who it is.
            now: The time.
            grace: Milliseconds.
        """
        held = self._held(consumer)
        self.channel.custody.lost(consumer.name, now, grace, busy=consumer.in_flight > held)
        self._forget(consumer)

    def _forget(self, consumer: Consumer) -> None:
        if consumer in self.consumers:
            self.consumers.remove(consumer)
        if consumer.empties is self:
            consumer.empties = None

    # --- what is known of it ---------------------------------------------------------

    def note(self, now: int, end: int) -> None:
        """
        Look how far it and its consumers are.

        Args:
            now: The time.
            end: Offset behind the last message that is visible.
        """
        self.pace.note(now, figures(self.channel, end))
        for consumer in self.consumers:
            consumer.pace.note(now, consumer.done)

    def counts(self, end: int) -> Counts:
        """
        Return where its messages are.

        Args:
            end: Offset behind the last message that is visible.
        """
        found = count(self.channel, end)
        if found.why or not found.backlog:
            return found
        why = ""
        if not self.consumers:
            why = "nobody consumes it"
        elif not any(consumer.ready for consumer in self.consumers):
            why = "the links of its consumers take no more"
        elif not any(consumer.room for consumer in self.consumers):
            why = "its consumers hold as many as they asked for"
        return attrs.evolve(found, why=why)


class Due(NamedTuple):
    """What time did to a channel."""

    channel: str
    lost: list[Lost]


class Queue:
    """
    All channels of one partition.

    Args:
        next_lease: Gives a lease id, as `lease_ids` does.

    Attributes:
        channels: Each with its consumers, by name.
    """

    def __init__(self, next_lease: Callable[[], int]) -> None:
        self._next_lease = next_lease
        self.channels: dict[str, Subscribers] = {}
        self._made: list[LedgerRecord] = []

    def make(self, name: str, policy: ChannelPolicy, start: int, now: int) -> Subscribers:
        """
        Make a channel that is new, even if one of this name is in the ledger.

        Args:
            name: Its name.
            policy: How it treats its messages.
            start: The first offset that it gives out.
            now: The time.
        """
        found = self.open(name, policy, Places(start))
        self._made.append((name.encode(), snapshot(found.channel.places, now)))
        return found

    def open(self, name: str, policy: ChannelPolicy, places: Places) -> Subscribers:
        """
        Take over a channel from the ledger.

        Args:
            name: Its name.
            policy: How it treats its messages.
            places: Where its messages are, from `read_ledger`.
        """
        found = Subscribers(Channel(policy, self._next_lease, places))
        self.channels[name] = found
        return found

    def close(self, name: str) -> None:
        """
        Forget a channel that was deleted.

        Args:
            name: Its name.
        """
        gone = self.channels.pop(name, None)
        for consumer in gone.consumers if gone is not None else ():
            if consumer.empties is gone:
                consumer.empties = None

    @property
    def floor(self) -> int | None:
        """The offset below which no channel needs anything; None if there is no channel."""
        floors = (one.channel.places.floor for one in self.channels.values())
        return min(floors, default=None)

    def next_time(self) -> int | None:
        """Return when `expire` is due; None if nothing is."""
        times = (one.channel.custody.next_time() for one in self.channels.values())
        return min((time for time in times if time is not None), default=None)

    def expire(self, now: int, chance: float = 0.0) -> list[Due]:
        """
        Take back leases whose time is over.

        Args:
            now: The time.
            chance: From 0 to 1, for the jitter of the back-off.
        """
        due = [Due(name, one.expire(now, chance)) for name, one in self.channels.items()]
        return [one for one in due if one.lost]

    def records(self) -> list[LedgerRecord]:
        """Return what is to be written to the ledger: keys and values of records, in order."""
        records, self._made = self._made, []
        records += (
            (name.encode(), value)
            for name, one in self.channels.items()
            for value in one.channel.journal.drain()
        )
        return records

    def snapshots(self, now: int) -> list[LedgerRecord]:
        """
        Return records that stand for all before them; `records` must be empty.

        Args:
            now: The time.
        """
        return [
            (name.encode(), snapshot(one.channel.places, now))
            for name, one in self.channels.items()
        ]


def read_ledger(records: Iterable[LedgerRecord], names: Iterable[str]) -> dict[str, Places]:
    """
    Read the ledger of a partition.

    Args:
        records: Keys and values, in order.
        names: The channels that exist; records of others are passed over, for
            those were deleted.

    Returns:
        Where the messages of each channel are. A channel without a record was
        never made here: the broker stopped before, and makes it now.

    Raises:
        CorruptBatch: A record cannot be read.
    """
    wanted = {name.encode(): name for name in names}
    found: dict[str, Places] = {}
    for key, value in records:
        name = wanted.get(key)
        if name is not None:
            found[name] = replay(found.get(name) or Places(), [value])
    return found
