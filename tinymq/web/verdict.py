"""
The overview's first sentence: what is wrong, by how much, and where to look.

Thresholds are few and named. A healthy cluster has no problem, and no
problem is reported without a figure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal
from urllib.parse import quote

from attrs import frozen

from tinymq.stats import BrokerSnapshot, ClusterSnapshot, PartitionSnapshot, TopicSnapshot
from tinymq.web.format import number, plural, size

#: Shares of a limit from which a person should look.
MEMORY_SHARE: Final = 0.85
DESCRIPTOR_SHARE: Final = 0.85
#: Free disk, as a multiple of the reserve, below which it is filling.
RESERVES_LEFT: Final = 1.25
#: A timer later than this means that the reactor is overloaded.
REACTOR_LAG_MS: Final = 50.0

#: A partition that takes so many times the mean is skewed, in a topic with traffic.
SKEW: Final = 1.7

Level = Literal["bad", "warn"]


@frozen
class Problem:
    """
    Something that a person should act on.

    Attributes:
        level: ``bad`` when something does not work, ``warn`` when it soon may not.
        title: What is so.
        detail: The figures.
        link: Where to look; empty when there is nothing more to see.
        label: The text of the link.
        word: What a table says of the broker; empty when it is not a broker's.
    """

    level: Level
    title: str
    detail: str
    link: str = ""
    label: str = ""
    word: str = ""


def problems_of(broker: BrokerSnapshot) -> Iterator[Problem]:
    """Say what is wrong with one broker."""
    if broker.refusing is not None:
        yield Problem(
            "bad",
            f"{broker.name} refuses to publish",
            f"{broker.refusing} Consumers are still served.",
            "#brokers",
            "See limits",
            "Refusing",
        )
    yield from _disk(broker)
    if _near(broker.memory, broker.memory_limit, MEMORY_SHARE):
        yield Problem(
            "warn",
            f"Memory of {broker.name} is filling",
            f"{size(broker.memory)} of {size(broker.memory_limit)} used.",
            "#brokers",
            "See limits",
            "Memory filling",
        )
    if _near(broker.descriptors, broker.descriptors_limit, DESCRIPTOR_SHARE):
        yield Problem(
            "warn",
            f"{broker.name} is running out of descriptors",
            f"{number(broker.descriptors)} of {number(broker.descriptors_limit)} are open. "
            "New connections are refused when none is left.",
            "#brokers",
            "See limits",
            "Descriptors low",
        )
    if broker.reactor_lag_ms is not None and broker.reactor_lag_ms >= REACTOR_LAG_MS:
        yield Problem(
            "warn",
            f"{broker.name} is overloaded",
            f"One timer in a hundred runs {broker.reactor_lag_ms:.0f} ms late or more.",
            "#brokers",
            "See limits",
            "Slow",
        )


def _near(used: int | None, limit: int | None, share: float) -> bool:
    return used is not None and bool(limit) and used >= share * (limit or 0)


def _disk(broker: BrokerSnapshot) -> Iterator[Problem]:
    if broker.refusing is not None or not broker.disk_reserve or broker.disk_free is None:
        return
    if broker.disk_free < RESERVES_LEFT * broker.disk_reserve:
        left = max(0, broker.disk_free - broker.disk_reserve)
        yield Problem(
            "warn",
            f"Disk of {broker.name} is filling",
            f"{size(left)} left before publishers are refused.",
            "/topics?sort=bytes&reverse=true",
            "See what fills it",
            "Disk filling",
        )


def skewed(topic: TopicSnapshot) -> PartitionSnapshot | None:
    """Find the partition that takes far more than its share; None when there is none."""
    mean = topic.rates.messages_in / max(1, len(topic.partitions))
    hottest = max(topic.partitions, key=lambda one: one.rates.messages_in, default=None)
    if hottest is None or mean < 1 or hottest.rates.messages_in <= SKEW * mean:
        return None
    return hottest


def problems(cluster: ClusterSnapshot) -> list[Problem]:
    """
    Say what is wrong, the worst first.

    Args:
        cluster: The look that is judged.
    """
    found = [problem for broker in cluster.brokers for problem in problems_of(broker)]
    found += [
        Problem("bad", f"{name} does not answer", "Its figures are missing from this page.")
        for name in cluster.silent
    ]
    if cluster.offline:
        first = cluster.offline[0]
        found.append(
            Problem(
                "bad",
                f"{plural(cluster.offline_count, 'partition')} offline",
                f"{first.topic} / {first.partition}: {first.reason}",
                f"/topics/{quote(first.topic, safe='')}/partitions",
                "See why",
            )
        )
    if cluster.damaged:
        found.append(
            Problem(
                "warn",
                f"Damaged offsets in {plural(len(cluster.damaged), 'topic')}",
                f"{', '.join(cluster.damaged[:3])}. What is behind the damage stays readable.",
                f"/topics/{quote(cluster.damaged[0], safe='')}/partitions",
                "See which",
            )
        )
    return sorted(found, key=lambda problem: problem.level != "bad")
