"""Brokers and clients of the fake cluster."""

from __future__ import annotations

import random
from collections.abc import Sequence

from attrs import evolve

from tests.web.fakes import GB, NOW, FakeConsole
from tinymq.stats import (
    BROKER_CLIENT,
    META_CLIENT,
    BrokerSnapshot,
    ClientSnapshot,
    Counters,
    Rates,
    SilentBroker,
)

DAY = 86_400_000
AGENTS = ("tinymq-python/0.3.0 aio", "tinymq-python/0.3.0 twisted", "tinymq-cli/0.3.0")
NAMES = ("billing", "checkout", "sessionizer", "thumbs", "smtp", "archive", "search-index")


def three() -> tuple[BrokerSnapshot, ...]:
    """Make three brokers in three zones; the first one is also the MetaServer."""
    first = evolve(
        FakeConsole().broker,
        zone="eu-1a",
        files=412,
        files_limit=4096,
        incarnation=3,
        version="0.3.0",
    )
    second = evolve(
        first,
        id=2,
        name="mq-2",
        role="broker",
        zone="eu-1b",
        pid=4802,
        listen="tinymq://10.0.2.2:7800",
        memory=int(4.7 * GB),
        disk_used=288 * GB,
        disk_free=212 * GB,
        descriptors=1455,
        reactor_lag_ms=1.7,
        heard_ms=NOW - 1200,
        incarnation=2,
        connections=14,
    )
    third = evolve(
        second,
        id=3,
        name="mq-3",
        zone="eu-1c",
        pid=3977,
        listen="tinymq://10.0.3.2:7800",
        started_ms=NOW - 12 * DAY,
        memory=int(4.9 * GB),
        disk_used=298 * GB,
        disk_free=202 * GB,
        descriptors=1460,
        reactor_lag_ms=1.2,
        heard_ms=NOW - 3400,
        connections=11,
    )
    return first, second, third


def connected(brokers: Sequence[BrokerSnapshot], count: int = 64) -> list[ClientSnapshot]:
    """Make clients of every kind: producers, consumers, idle ones, and none that is slow."""
    rng = random.Random(11)
    found = []
    for number in range(count):
        broker = brokers[number % len(brokers)]
        into = rng.choice((0.0, 0.0, 12.4, 88.1, 301.7)) * rng.uniform(0.6, 1.4)
        out = 0.0 if into else rng.choice((0.0, 240.2, 1180.6)) * rng.uniform(0.6, 1.4)
        age = rng.randint(40_000, 9 * DAY)
        found.append(
            ClientSnapshot(
                broker=broker.name,
                broker_id=broker.id,
                id=1000 + number,
                client_id=f"{NAMES[number % 7]}-{number // 7 + 1}",
                address=f"10.0.{4 + number % 3}.{20 + number}:{40_000 + 97 * number}",
                agent=AGENTS[number % 3],
                protocol="tinymq/1",
                since_ms=NOW - age,
                heard_ms=NOW - rng.randint(20, 9000),
                counters=Counters(
                    int(into * age / 1000),
                    int(out * age / 1000),
                    int(into * age / 1000 * 927),
                    int(out * age / 1000 * 927),
                ),
                rates=Rates(into, out, into * 927, out * 927),
                buffered=rng.choice((0, 0, 18_540)) if out else 0,
                pending=rng.choice((0, 9270)) if into else 0,
                waiting=0 if into else 3,
            )
        )
    return found


def inner(brokers: Sequence[BrokerSnapshot]) -> list[ClientSnapshot]:
    """Make the connections that the cluster's processes open themselves; the first is asked."""
    first, *others = brokers
    rows = connected((first, *others, *([first] * len(others))), 1 + 2 * len(others))[1:]
    return [
        evolve(
            one,
            id=9000 + one.id,
            client_id=BROKER_CLIENT if one.broker_id == first.id else META_CLIENT,
            rates=Rates(),
        )
        for one in rows
    ]


def slowed(client: ClientSnapshot, seconds: int, buffered: int) -> ClientSnapshot:
    """Make a client take no more."""
    return evolve(client, slow_since_ms=NOW - 1000 * seconds, buffered=buffered)


def silenced(broker: BrokerSnapshot, seconds: int) -> SilentBroker:
    """Say that a broker has not been heard for so long."""
    return SilentBroker(
        id=broker.id, name=broker.name, listen=broker.listen, since_ms=NOW - 1000 * seconds
    )
