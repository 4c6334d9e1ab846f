"""Where the records of one transaction are batched and sent: a producer with lent identities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from typing_extensions import override

from tinymq.client.core.batches import Batch
from tinymq.client.core.cluster import Cluster
from tinymq.client.core.config import ProducerConfig
from tinymq.client.core.lane import Lane
from tinymq.client.core.ledger import Deliver, Ledger
from tinymq.client.core.producer import ProducerCore
from tinymq.client.core.sending import Sending
from tinymq.errors import TinyMQError
from tinymq.wire.messages import Identity

#: Batches in flight for one partition, until a broker has said how many it remembers.
WINDOW: Final = 64


class TransactionSending(Sending):
    """
    How the batches of a transaction travel.

    Its lanes wait for the identity of the transaction, and never get another one. Nothing
    is written, also not again, while something of the transaction before is to be written:
    partitions take nothing of a transaction after something of the next.
    """

    def __init__(self, cluster: Cluster, config: ProducerConfig, ledger: Ledger) -> None:
        super().__init__(cluster, config, ledger)
        #: Where something was sent to: topic ids and partitions.
        self.places: set[tuple[bytes, int]] = set()
        self.lent: Identity | None = None
        #: Told once of what makes it impossible to go on.
        self.failed: Callable[[TinyMQError, float], None] = _nobody
        #: Told when all that it has is written.
        self.written: Callable[[float], None] = _nothing
        #: How those of the transaction before travel, while some may have to be written again.
        self.before: TransactionSending | None = None
        #: Whether something was not written because of that.
        self.held = False
        self._lanes_waiting: list[Lane] = []
        self.most = WINDOW

    def lend(self, identity: Identity, window: int, now: float) -> None:
        """
        Let lanes write under an identity.

        Args:
            identity: Producer id and epoch.
            window: Batches in flight for one partition.
            now: The time.
        """
        self.lent, self.most = identity, window
        lanes, self._lanes_waiting = self._lanes_waiting, []
        for lane in lanes:
            lane.identified(identity, window, None, now)
        self._ledger.fire()

    def forget_waiting(self) -> None:
        """Let no lane wait any more."""
        self._lanes_waiting.clear()

    @property
    def under_way(self) -> bool:
        """Whether all that its lanes were given is written."""
        return all(lane.under_way for lane in self.lanes)

    @override
    def waits(self, lane: Lane) -> bool:
        before = self.before
        while before is not None:
            if not before.under_way:
                self.held = True
                return True
            before = before.before
        return False

    @override
    def identify(self, lane: Lane, now: float) -> None:
        if lane.renewed:
            # Only another identity would help, and there is none in a transaction.
            self.failed(lane.trouble or TinyMQError("a partition lost the transaction"), now)
        elif self.lent is None:
            self._lanes_waiting.append(lane)
        else:
            lane.identified(self.lent, self.most, None, now)

    @override
    def fly(self, lane: Lane, batch: Batch, now: float) -> None:
        batch.transactional = True
        self.places.add((lane.topic_id, lane.partition))
        super().fly(lane, batch, now)
        if lane.under_way:
            self.written(now)

    @override
    def settled(self, lane: Lane, batch: Batch) -> None:
        super().settled(lane, batch)
        if batch.error is not None:
            self.failed(batch.error, -1.0)


class Desk(ProducerCore):
    """
    The producer of one transaction at a time.

    Args:
        cluster: The brokers.
        config: Settings.
        deliver: Told of each settled batch of single records.
    """

    sending: TransactionSending

    def __init__(self, cluster: Cluster, config: ProducerConfig, deliver: Deliver) -> None:
        super().__init__(cluster, config, deliver, TransactionSending)
        # Its producer calls it, and only when there may be something to do.
        cluster.remove(self)

    @property
    def under_way(self) -> bool:
        """Whether all that it was given is written."""
        parked = any(route.parked for route in self._routes.values())
        return not parked and self.sending.under_way

    def go_on(self, now: float) -> None:
        """
        Write what waited for the transaction before.

        Args:
            now: The time.
        """
        self.sending.held = False
        for lane in self.sending.lanes:
            lane.drain(now)

    def give_up(self, error: TinyMQError, now: float) -> None:
        """
        Fail all that is not settled.

        Args:
            error: Why.
            now: The time.
        """
        self.sending.failed = _nobody
        self.sending.written = _nothing
        for route in tuple(self._routes.values()):
            while route.parked:
                self.ledger.lose(route.topic, route.parked.popleft().batch, error)
        for lane in self.sending.lanes:
            lane.give_up(error)
        self.gathering.forget()
        self.ledger.fire()

    def renew(self) -> None:
        """Forget the transaction that was; nothing of it is under way."""
        sending = self.sending
        sending.failed = _nobody
        sending.written = _nothing
        sending.before = None
        sending.held = False
        sending.lent = None
        sending.lanes.clear()
        sending.forget_waiting()
        sending.places = set()
        for route in self._routes.values():
            route.lanes.clear()
            route.delays.clear()
            route.sealed(-1)
            route.sticky = None


def _nobody(error: TinyMQError, now: float) -> None:
    """Tell nobody."""


def _nothing(now: float) -> None:
    """Tell nobody."""
