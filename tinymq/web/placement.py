"""Where the partitions of a topic are: by broker, with who carries more than a share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import frozen

from tinymq.stats import ClusterSnapshot, PartitionSnapshot, TopicSnapshot
from tinymq.web.verdict import SKEW


@frozen
class Place:
    """
    What one broker holds of a topic.

    Attributes:
        broker_id: Its id; -1 for partitions that nobody holds.
        name: Its name.
        zone: Where it stands; may be empty.
        partitions: What it holds.
        skew: Its rate against the mean of all brokers; None where that says nothing.
    """

    broker_id: int
    name: str
    zone: str
    partitions: tuple[PartitionSnapshot, ...]
    skew: float | None = None

    @property
    def messages(self) -> int:
        """How many records they hold."""
        return sum(one.messages for one in self.partitions)

    @property
    def bytes(self) -> int:
        """How many bytes."""
        return sum(one.bytes for one in self.partitions)

    @property
    def rate(self) -> float:
        """Records in, per second."""
        return sum(one.rates.messages_in for one in self.partitions)

    @property
    def hot(self) -> bool:
        """Whether it carries far more than its share."""
        return self.skew is not None and self.skew > SKEW

    @property
    def offline(self) -> int:
        """How many of them cannot be used."""
        return sum(one.state == "offline" for one in self.partitions)


def placement(topic: TopicSnapshot, cluster: ClusterSnapshot) -> list[Place]:
    """
    Group the partitions of a topic by the broker that holds them.

    Args:
        topic: Which topic.
        cluster: Knows the zones.

    Returns:
        By id of the broker.
    """
    zones = {one.id: one.zone for one in cluster.brokers}
    held: dict[tuple[int, str], list[PartitionSnapshot]] = {}
    for one in topic.partitions:
        held.setdefault((one.leader_id, one.leader), []).append(one)
    mean = topic.rates.messages_in / max(1, len(held))
    found = []
    for (broker_id, name), partitions in sorted(held.items()):
        rate = sum(one.rates.messages_in for one in partitions)
        skew = rate / mean if mean >= 1 and len(held) > 1 else None
        zone = zones.get(broker_id, "")
        found.append(Place(broker_id, name, zone, tuple(partitions), skew))
    return found


def reasons(topic: TopicSnapshot) -> list[tuple[str, list[int]]]:
    """
    Say why partitions are offline: each reason once, with the numbers it concerns.

    Args:
        topic: Which topic.
    """
    found: dict[str, list[int]] = {}
    for one in topic.partitions:
        if one.state == "offline":
            found.setdefault(one.reason, []).append(one.index)
    return list(found.items())


def ranges(numbers: Iterable[int], most: int = 8) -> str:
    """
    Write numbers in order, neighbours together: ``0-3, 7, 9``.

    Args:
        numbers: In rising order.
        most: Ranges that are written before only ``…`` follows.
    """
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    told = [f"{first}" if first == last else f"{first}-{last}" for first, last in found[:most]]
    return ", ".join([*told, "…"] if len(found) > most else told)


def led_here(leaders: Sequence[int], broker_id: int) -> str:
    """Write which partitions of a topic one broker leads."""
    return ranges(index for index, leader in enumerate(leaders) if leader == broker_id)
