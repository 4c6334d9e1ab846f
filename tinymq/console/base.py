"""What all parts of the console stand on."""

from __future__ import annotations

import psutil

from tinymq.broker.broker import Broker
from tinymq.broker.housekeeping import Housekeeping
from tinymq.listing import Listing
from tinymq.operations import Operations
from tinymq.protocol import BrokerFactory
from tinymq.sampling import Sampler


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
        self._factory = factory
        self._housekeeping = housekeeping
        self._sampler = Sampler(broker)
        self._listing = Listing(broker, self._sampler)
        self._process = psutil.Process()
        self._next = 0

    def start(self) -> None:
        """Begin to sample."""
        self._sampler.start()

    def stop(self) -> None:
        """End sampling."""
        self._sampler.stop()
