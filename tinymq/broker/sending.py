"""How deliveries become messages to clients, with the batches that they are in."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tinymq.broker.channel.lease import WHOLE, Delivery
from tinymq.broker.channel.queue import Subscribers
from tinymq.broker.channel.runs import Run, Runs, runs_in
from tinymq.broker.subscription import MOST_ROWS, Subscription, packed
from tinymq.errors import TinyMQError, WireError
from tinymq.wire.messages import Deliver, DeliveryRow

if TYPE_CHECKING:
    from tinymq.broker.hosted import Hosted
    from tinymq.wire.frames import Bytes


class _Parcel(NamedTuple):
    """What goes to one subscription in one message."""

    rows: list[DeliveryRow]
    payload: list[Bytes]
    messages: int


class Sending:
    """
    Sends what the channels of one partition give out.

    Args:
        hosted: The channels.
    """

    def __init__(self, hosted: Hosted) -> None:
        self._hosted = hosted

    def send(self, one: Subscribers, deliveries: list[Delivery], now: int) -> None:
        """
        Send messages.

        Args:
            one: Their channel.
            deliveries: Which ones, and to whom.
            now: The time.

        Raises:
            OSError, TinyMQError: They cannot be read; what was not sent was taken back.
        """
        by_consumer: dict[str, list[Delivery]] = {}
        for delivery in deliveries:
            by_consumer.setdefault(delivery.consumer, []).append(delivery)
        for consumer, mine in by_consumer.items():
            subscription = self._hosted.subscriptions[consumer]
            for first in range(0, len(mine), MOST_ROWS):
                part = mine[first : first + MOST_ROWS]
                try:
                    parcel = self._pack(one, subscription, part, now)
                except (OSError, TinyMQError):
                    self._take_back(one, subscription, mine[first:], now)
                    raise
                self._post(subscription, parcel, at_once=bool(part[0].lease_id))

    def _take_back(
        self, one: Subscribers, subscription: Subscription, unsent: list[Delivery], now: int
    ) -> None:
        consumer = subscription.consumer
        settles = [(each.lease_id, WHOLE) for each in unsent if each.lease_id]
        one.give_back(consumer, settles, now)
        consumer.credit.use(-sum(each.messages for each in unsent))

    def _pack(
        self, one: Subscribers, subscription: Subscription, deliveries: list[Delivery], now: int
    ) -> _Parcel:
        runs: list[Run] = sorted(
            run for each in deliveries for run in runs_in(each.base, each.bits)
        )
        payload, missing = self._hosted.window.collect(_joined(runs))
        gone = Runs(missing)
        rows: list[DeliveryRow] = []
        for each in deliveries:
            bits = each.bits
            if gone:
                bits = self._without(one, subscription, each, gone, now)
            if bits:
                rows.append(_row(each, bits, now))
        return _Parcel(rows, payload, sum(row[3] for row in rows))

    def _without(
        self,
        one: Subscribers,
        subscription: Subscription,
        delivery: Delivery,
        gone: Runs,
        now: int,
    ) -> int:
        """Settle what does not exist of a delivery, and return the rest of it."""
        absent = 0
        for start, end in gone.within(delivery.base, delivery.end):
            absent |= ((1 << end - start) - 1) << start - delivery.base
        absent &= delivery.bits
        if absent:
            subscription.consumer.credit.use(-absent.bit_count())
            if delivery.lease_id:
                one.missing(subscription.consumer, delivery.lease_id, absent, now)
        return delivery.bits & ~absent

    def _post(self, subscription: Subscription, parcel: _Parcel, *, at_once: bool) -> None:
        if not parcel.rows:
            return
        deliver = Deliver(
            subscription=subscription.number, partition=self._hosted.index, rows=parcel.rows
        )
        if at_once:
            self._sent(subscription, deliver, parcel, None)
        else:
            # What counts as settled when it leaves must not come again after a crash.
            self._hosted.ledger.when_safe(partial(self._sent, subscription, deliver, parcel))

    def _sent(
        self,
        subscription: Subscription,
        deliver: Deliver,
        parcel: _Parcel,
        error: WireError | None,
    ) -> None:
        if error is None and subscription.link is not None:
            counters = self._hosted.partition.counters
            counters.records_out += parcel.messages
            counters.bytes_out += sum(map(len, parcel.payload))
            self._hosted.partition.moved.add(self._hosted.partition)
            subscription.link.deliver(deliver, parcel.payload, parcel.messages)


def _joined(runs: list[Run]) -> list[Run]:
    """Join runs that touch."""
    found: list[Run] = []
    for start, end in runs:
        if found and found[-1][1] >= start:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _row(delivery: Delivery, bits: int, now: int) -> DeliveryRow:
    count = bits.bit_count()
    whole = count == bits.bit_length()
    return (
        delivery.lease_id,
        delivery.base,
        None if whole else packed(bits),
        count,
        delivery.attempt,
        delivery.failures,
        max(0, delivery.deadline - now) if delivery.lease_id else 0,
    )
