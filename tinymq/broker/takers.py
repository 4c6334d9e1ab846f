"""
Who takes messages of the channels of one partition: coming, going, and hearing of losses.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from tinymq.broker.channel.entries import NAMED
from tinymq.broker.channel.lease import WHOLE, Lost
from tinymq.broker.channel.ledger import Journal
from tinymq.broker.channel.queue import Queue, Subscribers
from tinymq.broker.partition import Partition
from tinymq.broker.subscription import Subscription

if TYPE_CHECKING:
    from tinymq.broker.broker import Broker
    from tinymq.broker.hosted import Hosted
    from tinymq.broker.pacing import Pacing


class Host(Protocol):
    """What the channels of a partition ask of those of the broker."""

    broker: Broker
    #: Looks at what moves.
    pacing: Pacing

    def now(self) -> int:
        """Milliseconds since the epoch; no step of the wall clock moves it."""

    @property
    def resting(self) -> bool:
        """Whether nothing is given out any more."""

    def next_lease(self) -> int:
        """Give out a lease id."""

    def mark(self, hosted: Hosted) -> None:
        """Let a partition have its turn."""


class Takers:
    """
    Who takes messages of the channels of one partition.

    Args:
        host: All channels of this broker.
        partition: The partition.

    Attributes:
        queue: The channels.
        subscriptions: Those who take messages here, by the name of their consumer.
    """

    def __init__(self, host: Host, partition: Partition) -> None:
        self.partition = partition
        self.queue = Queue(host.next_lease)
        self.subscriptions: dict[str, Subscription] = {}
        self._host = host

    @property
    def index(self) -> int:
        """The partition's number."""
        return self.partition.index

    @property
    def _grace_ms(self) -> int:
        """Milliseconds for which leases are kept for a session whose link was lost."""
        return self._host.broker.config.session.grace_seconds * 1000

    def mark(self) -> None:
        """Let it have its turn."""
        raise NotImplementedError

    def leave(self, subscription: Subscription) -> None:
        """
        Let a subscription go; what it holds comes back at once.

        Args:
            subscription: It takes messages here.
        """
        one = self.queue.channels[subscription.channel]
        one.leave(subscription.consumer, self._host.now())
        self._forget(subscription)
        self.mark()

    def lost(self, subscription: Subscription) -> None:
        """
        Keep what a subscription holds for a while: its link was lost.

        Args:
            subscription: It takes messages here.
        """
        one = self.queue.channels[subscription.channel]
        one.lost(subscription.consumer, self._host.now(), self._grace_ms)
        self._forget(subscription)
        self.mark()

    def give_back(self, subscription: Subscription, lease_id: int) -> None:
        """
        Take back a lease that its holder is not told of.

        Args:
            subscription: It takes messages here.
            lease_id: The lease.
        """
        settles = [(lease_id, WHOLE)]
        self.channel_of(subscription).give_back(subscription.consumer, settles, self._host.now())
        self.mark()

    def channel_of(self, subscription: Subscription) -> Subscribers:
        """
        Return the channel that a subscription takes from.

        Args:
            subscription: It takes messages here.
        """
        return self.queue.channels[subscription.channel]

    def take_away(self, one: Subscribers, lost: Sequence[Lost]) -> None:
        """
        Count what was taken from consumers, and tell them.

        Args:
            one: The channel that took it.
            lost: What is not in the hands of its holders any more.
        """
        one.losing(lost)
        self.losing(lost)

    def losing(self, lost: Iterable[Lost]) -> None:
        """
        Tell consumers what they do not hold any more.

        Args:
            lost: What the channel said; it has counted it.
        """
        told: dict[str, list[tuple[int, int]]] = {}
        for one in lost:
            told.setdefault(one.consumer, []).append((one.lease_id, one.bits))
        for name, leases in told.items():
            subscription = self.subscriptions.get(name)
            if subscription is not None:
                subscription.lost(self.index, leases)
                subscription.mark()

    def _tell_all(self, one: Subscribers, subscription: Subscription) -> None:
        """Tell a subscription that it lost everything that it holds here."""
        holder = one.channel.places.holders.get(subscription.name)
        if holder is not None:
            leases = one.channel.places.leases
            held = [(each, leases[each].bits) for each in holder.leases]
            subscription.consumer.in_flight -= holder.held
            subscription.lost(self.index, held)

    def _of(self, channel: str) -> list[Subscription]:
        return [each for each in self.subscriptions.values() if each.channel == channel]

    def _forget(self, subscription: Subscription) -> None:
        self.subscriptions.pop(subscription.name, None)
        subscription.hosted.pop(self.index, None)


def put_name(journal: Journal, subscription: Subscription, now: int) -> None:
    """Write down whose a consumer is, for people."""
    if subscription.known_as:
        journal.of(now, subscription.name).append((NAMED, subscription.known_as))
