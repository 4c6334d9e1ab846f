"""All messages of a broker that are not due yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinymq.broker.delays.delays import Delays

if TYPE_CHECKING:
    from tinymq.broker.broker import Broker
    from tinymq.broker.partition import Partition


class Delaying:
    """
    What waits in the partitions of a broker.

    Args:
        broker: The broker.
    """

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._delays: dict[tuple[bytes, int], Delays] = {}

    def all(self) -> list[Delays]:
        """Return those of all partitions that have some."""
        return [*self._delays.values()]

    def of(self, partition: Partition) -> Delays | None:
        """
        Find those of a partition, None if it never had one.

        Args:
            partition: The partition.
        """
        return self._delays.get(partition.key)
