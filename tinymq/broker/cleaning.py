"""Compaction: which partitions are cleaned, when, and what is told of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tinymq.broker.partition import Partition
from tinymq.errors import StateError

if TYPE_CHECKING:
    from tinymq.broker.broker import Broker


class Cleaning:
    """
    Has the logs of topics cleaned that are compacted.

    Args:
        broker: The broker.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def soon(self, partition: Partition) -> None:
        """
        Have a partition cleaned as soon as can be, its newest file too.

        Args:
            partition: One whose topic is compacted.
        """
        raise StateError("not yet")

    def facts(self, partition: Partition) -> dict[str, Any]:
        """
        Tell how much of a partition is to be cleaned, for people.

        Args:
            partition: One whose topic is compacted.
        """
        size = partition.log.size_bytes
        return {"bytes": size, "dirty": size, "cleaned_ms": None, "saved": 0}
