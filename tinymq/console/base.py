"""What all parts of the console stand on."""

from __future__ import annotations

from tinymq.board import Board
from tinymq.broker.broker import Broker
from tinymq.broker.housekeeping import Housekeeping
from tinymq.feeds import LocalFeed
from tinymq.listing import Listing
from tinymq.meta.registry import Registry
from tinymq.operations import Operations
from tinymq.protocol import BrokerFactory
from tinymq.reports import Reporter
from tinymq.sampling import Sampler
from tinymq.vitals import Vitals


class Base:
    """
    The objects of one broker.

    Args:
        broker: The domain.
        operations: The administrative operations.
        factory: The connections.
        housekeeping: Knows the disk.
    """

    def __init__(
        self,
        broker: Broker,
        operations: Operations,
        factory: BrokerFactory,
        housekeeping: Housekeeping,
    ) -> None:
        self._broker = broker
        self._operations = operations
        self._vitals = Vitals(broker, housekeeping, factory)
        self._board = Board(self._registry, broker.scheduler, broker.wall, broker.id)
        LocalFeed(Reporter(broker), self._board)
        self._sampler = Sampler(self._board, self._registry, broker.scheduler, broker.wall)
        self._listing = Listing(self._board, self._sampler, self._registry, broker.wall)
        self._next = 0

    def _registry(self) -> Registry:
        return self._broker.meta.registry

    def start(self) -> None:
        """Begin to sample."""
        self._vitals.start()
        self._sampler.start()

    def stop(self) -> None:
        """End sampling."""
        self._vitals.stop()
        self._sampler.stop()
