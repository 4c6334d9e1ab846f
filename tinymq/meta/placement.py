"""Which broker leads a new partition: for now, the one that leads the fewest."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heapreplace

from tinymq.errors import StateError


def place(count: int, load: Mapping[int, int]) -> tuple[int, ...]:
    """
    Choose the leaders of new partitions.

    Args:
        count: How many partitions are new.
        load: Every live broker's id to how many partitions it leads.

    Returns:
        A broker's id for each partition, spread so that load evens out.

    Raises:
        StateError: No broker is there.
    """
    if not load:
        raise StateError("no broker is registered yet; try again in a moment")
    heap = [(led, broker) for broker, led in load.items()]
    heapify(heap)
    leaders = []
    for _ in range(count):
        led, broker = heap[0]
        leaders.append(broker)
        heapreplace(heap, (led + 1, broker))
    return tuple(leaders)
