"""
The overview's first sentence: what is wrong, by how much, and where to look.

Thresholds are few and named. A healthy cluster has no problem, and no
problem is reported without a figure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal
from urllib.parse import quote

from attrs import frozen

from tinymq.stats import (
    Backlog,
    BrokerSnapshot,
    ClusterSnapshot,
    OfflinePartition,
    PartitionSnapshot,
    TopicSnapshot,
)
from tinymq.web.channels import sentence
from tinymq.web.format import duration, number, plural, rate, size

#: Shares of a limit from which a person should look.
MEMORY_SHARE: Final = 0.85
DESCRIPTOR_SHARE: Final = 0.85
#: Free disk, as a multiple of the reserve, below which it is filling.
RESERVES_LEFT: Final = 1.25
#: A timer later than this means that the reactor is overloaded.
REACTOR_LAG_MS: Final = 50.0

#: A partition that takes so many times the mean is skewed, in a topic with traffic.
SKEW: Final = 1.7

#: Brokers that one sentence names.
_NAMED: Final = 3

Level = Literal["bad", "warn"]

#: What is said of channels that do not do enough although somebody is subscribed.
_NO_HEADWAY: Final = {"stuck": "is stuck", "falling_behind": "is falling behind"}


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
            f"/brokers/{broker.id}",
            "See limits",
            "Refusing",
        )
    yield from _disk(broker)
    if _near(broker.memory, broker.memory_limit, MEMORY_SHARE):
        yield Problem(
            "warn",
            f"Memory of {broker.name} is filling",
            f"{size(broker.memory)} of {size(broker.memory_limit)} used.",
            f"/brokers/{broker.id}",
            "See limits",
            "Memory filling",
        )
    if _near(broker.descriptors, broker.descriptors_limit, DESCRIPTOR_SHARE):
        yield Problem(
            "warn",
            f"{broker.name} is running out of descriptors",
            f"{number(broker.descriptors)} of {number(broker.descriptors_limit)} are open. "
            "New connections are refused when none is left.",
            f"/brokers/{broker.id}",
            "See limits",
            "Descriptors low",
        )
    if broker.reactor_lag_ms is not None and broker.reactor_lag_ms >= REACTOR_LAG_MS:
        yield Problem(
            "warn",
            f"{broker.name} is overloaded",
            f"One timer in a hundred runs {broker.reactor_lag_ms:.0f} ms late or more.",
            f"/brokers/{broker.id}",
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


def _offline(cluster: ClusterSnapshot) -> Iterator[Problem]:
    """Name partitions that cannot be used, one for each reason; the rarest reason is the news."""
    if not cluster.offline:
        return
    by_reason: dict[str, list[OfflinePartition]] = {}
    for one in cluster.offline:
        by_reason.setdefault(one.reason, []).append(one)
    told = [alike[0] for alike in sorted(by_reason.values(), key=len)[:_NAMED]]
    yield Problem(
        "bad",
        f"{plural(cluster.offline_count, 'partition')} offline",
        " ".join(f"{one.topic} / {one.partition}: {_sentence(one.reason)}" for one in told),
        f"/topics/{quote(told[0].topic, safe='')}/partitions",
        "See why",
    )


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


def _taking(live: Sequence[BrokerSnapshot]) -> Iterator[Problem]:
    """Notice when no broker is left that new partitions could go to."""
    holding = [broker for broker in live if broker.role != "meta"]
    if holding and all(broker.draining for broker in holding):
        yield Problem(
            "bad",
            "No broker takes new partitions",
            "All that answer are draining, so topics cannot be made.",
            "/brokers",
            "See brokers",
        )


def _slow(live: Sequence[BrokerSnapshot]) -> Iterator[Problem]:
    """Notice clients that take no more."""
    slow = [broker for broker in live if broker.slow_clients]
    count = sum(broker.slow_clients for broker in slow)
    if count:
        where = ", ".join(f"{broker.slow_clients:,} on {broker.name}" for broker in slow[:_NAMED])
        yield Problem(
            "warn",
            f"{plural(count, 'client')} {'takes' if count == 1 else 'take'} no more",
            f"{where}. What is sent to them waits in the broker's memory.",
            "/clients?own=true",
            "See which",
        )


def draining(cluster: ClusterSnapshot) -> str:
    """Name the brokers that get no new partitions; empty when there is none."""
    names = [broker.name for broker in cluster.brokers if broker.draining]
    if not names:
        return ""
    told = ", ".join(names[:_NAMED])
    if len(names) > _NAMED:
        told += f" and {len(names) - _NAMED:,} more"
    verb, gets = ("is", "gets") if len(names) == 1 else ("are", "get")
    return f"{told} {verb} draining and {gets} no new partitions."


def tightest(cluster: ClusterSnapshot) -> tuple[str, int] | None:
    """Find the broker with the least disk left before it refuses: its name and the bytes."""
    left = [
        (max(0, broker.disk_free - broker.disk_reserve), broker.name)
        for broker in cluster.brokers
        if broker.disk_free is not None
        and broker.disk_reserve is not None
        and broker.role != "meta"
    ]
    if not left:
        return None
    room, name = min(left)
    return name, room


def skewed(topic: TopicSnapshot) -> PartitionSnapshot | None:
    """Find the partition that takes far more than its share; None when there is none."""
    mean = topic.rates.messages_in / max(1, len(topic.partitions))
    hottest = max(topic.partitions, key=lambda one: one.rates.messages_in, default=None)
    if hottest is None or mean < 1 or hottest.rates.messages_in <= SKEW * mean:
        return None
    return hottest


def _channels(backlog: Backlog) -> Iterator[Problem]:
    """Name the channels in which messages wait for nothing, the largest lag first."""
    for row in backlog.troubled[:_NAMED]:
        place = f"channel {row['name']} of topic {row['topic']}"
        stuck = row["state"] in _NO_HEADWAY
        waits = f"{plural(row['lag'], 'message waits', 'messages wait')}"
        behind = "" if row["lag_ms"] is None else f", the oldest for {duration(row['lag_ms'])}"
        why = f" {sentence(row['why'][0])}" if stuck and row["why"] else ""
        if row["state"] == "falling_behind":
            behind += f", {rate(row['trend_s'])} a second more"
        yield Problem(
            "bad" if stuck else "warn",
            f"{place[0].upper()}{place[1:]} {_NO_HEADWAY.get(row['state'], 'has no consumers')}",
            f"{waits}{behind}.{why}",
            f"/topics/{quote(row['topic'], safe='')}/channels/{quote(row['name'], safe='')}",
            "See why",
        )
    more = backlog.troubled_count - _NAMED
    if more > 0:
        title = f"{plural(more, 'more channel')} stuck, falling behind or without consumers"
        link = "/channels?sort=lag&reverse=true"
        yield Problem("warn", title, "Messages wait in them.", link, "See all")


def _whence(names: Sequence[str]) -> str:
    """Say how messages came to topics of dead letters."""
    # An exchange keeps what no binding takes in a topic of this name, if it is not told otherwise.
    unroutable = sum(name.endswith(".unroutable") for name in names)
    if not unroutable:
        return "Channels gave them up."
    channels = "" if unroutable == len(names) else "Channels gave them up, or no "
    return f"{channels or 'No '}binding of an exchange took them."


def _dead_letters(backlog: Backlog) -> Iterator[Problem]:
    """Count what was given up and waits for somebody."""
    if not backlog.dead_letters:
        return
    where = ", ".join(f"{count:,} in {name}" for name, count in backlog.dead_queues[:_NAMED])
    link = "/dead-letters"
    if len(backlog.dead_queues) == 1:
        link += f"/{quote(backlog.dead_queues[0][0], safe='')}"
    title = plural(backlog.dead_letters, "dead letter")
    yield Problem(
        "warn",
        title,
        f"{where}. {_whence([name for name, _ in backlog.dead_queues])}",
        link,
        "See why",
    )


def problems(
    cluster: ClusterSnapshot,
    backlog: Backlog | None = None,
    others: Iterable[Problem] = (),
) -> list[Problem]:
    """
    Say what is wrong, the worst first.

    Args:
        cluster: The look that is judged.
        backlog: What all channels hold, where that is known.
        others: What is known to be wrong besides.
    """
    silent = {one.id for one in cluster.silent}
    live = [broker for broker in cluster.brokers if broker.id not in silent]
    found = [problem for broker in live for problem in problems_of(broker)]
    found += [
        Problem(
            "bad",
            f"{one.name} does not answer",
            f"Last heard {duration(cluster.taken_ms - one.since_ms)} ago. "
            "Its partitions cannot be used; its figures are the last known.",
            f"/brokers/{one.id}",
            "See the broker",
        )
        for one in cluster.silent[:_NAMED]
    ]
    if len(cluster.silent) > _NAMED:
        more = len(cluster.silent) - _NAMED
        title = f"{plural(more, 'more broker')} silent"
        found.append(Problem("bad", title, "They do not answer.", "/brokers", "See all"))
    found += _taking(live)
    found += _slow(live)
    found += _offline(cluster)
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
    if backlog is not None:
        found += [*_channels(backlog), *_dead_letters(backlog)]
    found += others
    return sorted(found, key=lambda problem: problem.level != "bad")
