"""A channel at the puppet broker: leases, credit and settles as a test wants them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

from attrs import Factory, define
from typing_extensions import override

from tests.client.fleet import FleetPuppet
from tests.client.puppet import Answer, Line, Puppet
from tinymq.errors import NotLeader, UnknownChannel, UnknownSubscription, WireError
from tinymq.wire.frames import Bytes, encode_frame
from tinymq.wire.messages import (
    TOUCH,
    Credit,
    Deliver,
    Ended,
    LeaseLost,
    LeaseRow,
    Message,
    Settle,
    SettleReply,
    Subscribe,
    SubscribeReply,
    Unsubscribe,
    UnsubscribeReply,
    error_meta,
)
from tinymq.wire.records import encode_batch

VERBS = ("finish", "requeue", "reject", "touch", "give back")


def as_row(bits: int) -> bytes:
    """Write bits as they travel."""
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


@define
class PuppetLease:
    """A lease."""

    partition: int
    base: int
    bits: int
    subscription: int


@define
class PuppetSubscription:
    """A subscription at the puppet."""

    line: Line
    topic_id: bytes
    granted: int
    delivered: int = 0
    ended: bool = False


@define
class PuppetChannel:
    """The one channel of a puppet; offsets to be delivered, leases, and what came of all."""

    lease_ms: int = 60_000
    handler_ms: int | None = None
    delivery: str = "at_least_once"
    order: str = "none"
    exists: bool = True
    #: Most messages of one lease.
    run: int = 100
    ready: list[tuple[int, int]] = Factory(list)
    leases: dict[int, PuppetLease] = Factory(dict)
    lost: dict[int, int] = Factory(dict)
    subscriptions: dict[int, PuppetSubscription] = Factory(dict)
    #: Verb, partition, offset and facts, in order.
    settled: list[tuple[str, int, int, dict[str, Any]]] = Factory(list)

    def offsets(self, verb: str = "finish") -> list[int]:
        """The offsets that were settled in a way."""
        return [offset for one, _, offset, _ in self.settled if one == verb]


class Queueing(Puppet):
    """A puppet with a channel."""

    channel: PuppetChannel
    _leases: Any

    def begin(self) -> None:
        """Make the channel."""
        self.channel = PuppetChannel()
        self._leases = count(1000 * self.number)

    def put(self, *values: bytes, topic: str = "t", partition: int = 0) -> None:
        """Store a batch, and deliver it."""
        offset, _ = self.topics[topic].logs[partition].append(encode_batch(values))
        self.channel.ready += [(partition, offset + place) for place in range(len(values))]
        self.deliver()

    def deliver(self) -> None:
        """Give out what may be given out."""
        channel = self.channel
        for number, subscription in channel.subscriptions.items():
            while channel.ready and subscription.delivered < subscription.granted:
                self._give(number, subscription)

    def _give(self, number: int, subscription: PuppetSubscription) -> None:
        channel = self.channel
        most = min(channel.run, subscription.granted - subscription.delivered)
        partition, base = channel.ready[0]
        taken = [one for one in channel.ready if one[0] == partition][:most]
        taken = [one for one in taken if 0 <= one[1] - base < channel.run]
        channel.ready = [one for one in channel.ready if one not in taken]
        bits = sum(1 << offset - base for _, offset in taken)
        once = channel.delivery == "at_most_once"
        lease_id = 0 if once else next(self._leases)
        if not once:
            channel.leases[lease_id] = PuppetLease(partition, base, bits, number)
        subscription.delivered += len(taken)
        whole = bits == (1 << len(taken)) - 1
        row = (
            lease_id,
            base,
            None if whole else as_row(bits),
            len(taken),
            1,
            0,
            0 if once else channel.lease_ms,
        )
        message = Deliver(subscription=number, partition=partition, rows=[row])
        data = self._records(subscription.topic_id, partition, taken[0][1], taken[-1][1])
        self.push(number, message, (data,))

    def _records(self, topic_id: bytes, partition: int, first: int, last: int) -> bytes:
        log = self.find(topic_id).logs[partition]
        pairs = zip(log.headers, log.batches, strict=True)
        return b"".join(
            batch
            for header, batch in pairs
            if header.next_offset > first and header.base_offset <= last
        )

    def push(self, number: int, message: Message, payload: Sequence[Bytes] = ()) -> None:
        """Send what nobody asked for."""
        line = self.channel.subscriptions[number].line
        if line.alive:
            line.send(encode_frame(message.type, 0, message.to_meta(), payload))

    def end_all(self, why: WireError) -> None:
        """End every subscription, and tell."""
        for number in tuple(self.channel.subscriptions):
            self.push(number, Ended(subscription=number, error=error_meta(why)))
        self.channel.subscriptions.clear()

    def lose(self, *, back: bool = True) -> None:
        """Take back every lease, and tell."""
        for lease_id, lease in tuple(self.channel.leases.items()):
            self.take_back(lease_id, lease.bits, back=back)

    def take_back(self, lease_id: int, bits: int, *, back: bool = True, tell: bool = True) -> None:
        """Take back a part of a lease, and tell or not."""
        lease = self.channel.leases[lease_id]
        lease.bits &= ~bits
        self.channel.lost[lease_id] = self.channel.lost.get(lease_id, 0) | bits
        if not lease.bits:
            del self.channel.leases[lease_id]
        if back:
            self.channel.ready += self._places(lease, bits)
        if tell:
            rows: list[LeaseRow] = [(lease.partition, lease_id, as_row(bits))]
            self.push(lease.subscription, LeaseLost(subscription=lease.subscription, rows=rows))

    def _places(self, lease: PuppetLease, bits: int) -> list[tuple[int, int]]:
        places = range(bits.bit_length())
        return [(lease.partition, lease.base + bit) for bit in places if bits >> bit & 1]

    # --- requests --------------------------------------------------------------

    @override
    def _carry_out(
        self, line: Line, message_id: int, request: Message, payload: Bytes
    ) -> Answer | None:
        match request:
            case Subscribe():
                self.reply(line, request.type, message_id, (self._subscribe(line, request), ()))
                self.deliver()
                return None
            case Credit():
                subscription = self._subscription(request.subscription, line)
                subscription.granted = max(subscription.granted, request.granted)
                self.deliver()
                return None
            case Settle():
                self._subscription(request.subscription, line)
                reply = self._settle(request)
                return reply, ()
            case Unsubscribe():
                self._subscription(request.subscription, line).ended = True
                del self.channel.subscriptions[request.subscription]
                self._give_back(request.subscription)
                self.deliver()
                return UnsubscribeReply(), ()
        return super()._carry_out(line, message_id, request, payload)

    def _subscription(self, number: int, line: Line) -> PuppetSubscription:
        found = self.channel.subscriptions.get(number)
        if found is None or found.line is not line:
            raise UnknownSubscription
        return found

    def _subscribe(self, line: Line, request: Subscribe) -> SubscribeReply:
        channel, number = self.channel, request.subscription
        topic = self.find(request.topic_id)
        if self.number not in topic.leaders:
            raise NotLeader
        if not channel.exists and not request.create:
            raise UnknownChannel(f"no channel {request.channel}")
        channel.subscriptions[number] = PuppetSubscription(line, request.topic_id, request.credit)
        return SubscribeReply(
            lease_ms=channel.lease_ms,
            handler_ms=channel.handler_ms,
            delivery=channel.delivery,
            order=channel.order,
            held=[
                (lease.partition, lease_id, as_row(lease.bits))
                for lease_id, lease in channel.leases.items()
                if lease.subscription == number
            ],
        )

    def _give_back(self, number: int) -> None:
        for lease_id, lease in tuple(self.channel.leases.items()):
            if lease.subscription == number:
                del self.channel.leases[lease_id]
                self.channel.ready += self._places(lease, lease.bits)

    def _settle(self, request: Settle) -> SettleReply:
        done, late = 0, []
        for partition, verb, leases, facts in request.rows:
            for lease_id, row in leases:
                lease = self.channel.leases.get(lease_id)
                held = 0 if lease is None else lease.bits
                bits = held if row is None else int.from_bytes(row, "little")
                gone = self.channel.lost.get(lease_id, 0) & (bits if row is not None else -1)
                if (row is not None and gone) or (row is None and lease is None and gone):
                    late.append((partition, lease_id, as_row(gone)))
                if lease is not None:
                    done += self._settle_one(lease_id, lease, bits & held, verb, facts)
        return SettleReply(done=done, late=late)

    def _settle_one(
        self, lease_id: int, lease: PuppetLease, bits: int, verb: int, facts: dict[str, Any]
    ) -> int:
        for partition, offset in self._places(lease, bits):
            self.channel.settled.append((VERBS[verb], partition, offset, facts))
        if verb != TOUCH:
            lease.bits &= ~bits
            if not lease.bits:
                del self.channel.leases[lease_id]
        return bits.bit_count()


class QueuePuppet(Queueing):
    """One broker with a channel."""

    def __init__(self, number: int = 1) -> None:
        super().__init__(number)
        self.begin()


class FleetQueuePuppet(Queueing, FleetPuppet):
    """A broker of a fleet, with a channel of its own partitions."""

    def __init__(self, fleet: Any, number: int) -> None:
        super().__init__(fleet, number)
        self.begin()
