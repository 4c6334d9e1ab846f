"""
How deliveries become messages to clients, with the batches that they are in.

What lies on the disk and not in memory is fetched elsewhere; until it is there,
deliveries of the channel wait in order, and nothing new is given out.
"""

from __future__ import annotations

from collections import deque
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from twisted.logger import Logger

from tinymq.broker.channel.lease import WHOLE, Delivery
from tinymq.broker.channel.queue import Subscribers
from tinymq.broker.channel.runs import Run, Runs, runs_in
from tinymq.broker.ports import Background
from tinymq.broker.subscription import MOST_ROWS, Subscription, packed
from tinymq.broker.window import ColdPiece
from tinymq.errors import TinyMQError, WireError
from tinymq.wire.messages import Deliver, DeliveryRow

if TYPE_CHECKING:
    from tinymq.broker.hosted import Hosted
    from tinymq.wire.frames import Bytes


#: How often something is fetched into memory before it is waited for.
_MOST_TRIES: Final = 8


class _Parcel(NamedTuple):
    """What goes to one subscription in one message."""

    rows: list[DeliveryRow]
    payload: list[Bytes]
    messages: int


class _Late(NamedTuple):
    """What waits for the disk."""

    subscription: Subscription
    deliveries: list[Delivery]


class Sending:
    """
    Sends what the channels of one partition give out.

    Args:
        background: Waits for the disk.
        hosted: The channels.
    """

    _log = Logger()

    def __init__(self, background: Background, hosted: Hosted) -> None:
        self._background = background
        self._hosted = hosted
        #: What waits for the disk, in order, by channel.
        self._late: dict[Subscribers, deque[_Late]] = {}

    def behind(self, one: Subscribers) -> bool:
        """
        Whether something of a channel waits for the disk.

        Args:
            one: The channel.
        """
        return one in self._late

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
                if one in self._late:
                    self._late[one].append(_Late(subscription, part))
                    continue
                try:
                    with self._hosted.window.hasty():
                        parcel = self._pack(one, subscription, part, now)
                except ColdPiece as cold:
                    self._late[one] = deque([_Late(subscription, part)])
                    self._fetch(one, cold.offset, 0)
                    continue
                except (OSError, TinyMQError):
                    self._take_back(one, subscription, mine[first:], now)
                    raise
                self._post(subscription, parcel, at_once=bool(part[0].lease_id))

    # --- what waits for the disk ---------------------------------------------------

    def _fetch(self, one: Subscribers, offset: int, tries: int) -> None:
        """Bring what the first of those that wait needs into memory."""
        warm = self._hosted.window.warmers(_runs(self._late[one][0].deliveries), offset)
        self._background.submit(warm, partial(self._fetched, one, offset, tries + 1))

    def _fetched(self, one: Subscribers, offset: int, tries: int) -> None:
        """Send what waited, as far as it is there now."""
        if self._hosted.partition.closed is not None:
            del self._late[one]
            return
        waiting = self._late[one]
        while waiting:
            subscription = waiting[0].subscription
            left = self._still_held(one, *waiting[0])
            waiting[0] = _Late(subscription, left)
            try:
                # What is gone from memory as fast as it comes is waited for in the end.
                patient = tries >= _MOST_TRIES
                with nullcontext() if patient else self._hosted.window.hasty(offset):
                    parcel = self._pack(one, subscription, left, self._hosted.now)
            except ColdPiece as cold:
                self._fetch(one, cold.offset, tries)
                return
            except (OSError, TinyMQError) as error:
                self._log.error(
                    "{hosted} cannot be read: {error}", hosted=self._hosted, error=error
                )
                self._take_back(one, subscription, left, self._hosted.now)
            else:
                if self._hosted.subscriptions.get(subscription.name) is subscription:
                    self._post(subscription, parcel, at_once=not left or bool(left[0].lease_id))
            waiting.popleft()
            tries = 0
        del self._late[one]
        self._hosted.mark()

    def _still_held(
        self, one: Subscribers, subscription: Subscription, deliveries: list[Delivery]
    ) -> list[Delivery]:
        """Leave out what its consumer has lost while it waited."""
        leases = one.channel.places.leases
        found: list[Delivery] = []
        for each in deliveries:
            bits = each.bits
            if each.lease_id:
                lease = leases.get(each.lease_id)
                bits = 0 if lease is None else lease.bits & bits
            subscription.consumer.credit.use(bits.bit_count() - each.messages)
            if bits:
                found.append(each._replace(bits=bits))
        return found

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
        payload, missing = self._hosted.window.collect(_runs(deliveries))
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


def _runs(deliveries: list[Delivery]) -> list[Run]:
    """Return what deliveries hold; runs that touch are one."""
    found: list[Run] = []
    for start, end in sorted(run for each in deliveries for run in runs_in(each.base, each.bits)):
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
