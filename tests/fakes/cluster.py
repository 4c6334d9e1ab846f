"""A registry that is set by hand, brokers that say what they are told to, and their board."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from tests.fakes.broker import BEGIN_MS
from tinymq.config import DEFAULT_CONFIG
from tinymq.figures.board import Board
from tinymq.figures.reports import Row, Taken, to_wire
from tinymq.meta.registry import BrokerInfo, Registry, Topic
from tinymq.stats import BrokerSnapshot, Counters, PartitionReport

BOOT = 1 << 43


def topic(name: str, *leaders: int) -> Topic:
    """A topic whose partitions are led by these brokers."""
    return Topic(
        id=name.encode().ljust(16, b"\0"),
        name=name,
        partitions=len(leaders),
        config=DEFAULT_CONFIG.defaults,
        created_ms=BEGIN_MS,
        leaders=leaders,
    )


def registry(*topics: Topic, brokers: tuple[int, ...] = (), revision: int = 1) -> Registry:
    """What there is: topics, and live brokers with these numbers, called b1, b2 …"""
    led: dict[int, int] = {}
    for each in topics:
        for leader in each.leaders:
            led[leader] = led.get(leader, 0) + 1
    return Registry(
        revision=revision,
        topics={each.id: each for each in topics},
        by_name={each.name: each for each in topics},
        brokers={number: info(number) for number in brokers},
        known={number: info(number) for number in (*led, *brokers)},
        led=led,
    )


def info(number: int) -> BrokerInfo:
    """A live broker."""
    return BrokerInfo(
        id=number,
        name=f"b{number}",
        host="192.0.2.1",
        port=7800 + number,
        incarnation=1,
        started_ms=BEGIN_MS,
        lease=number,
    )


def snapshot(number: int) -> BrokerSnapshot:
    """What a broker says of itself."""
    return BrokerSnapshot(
        id=number,
        name=f"b{number}",
        version="1",
        pid=number,
        started_ms=BEGIN_MS,
        listen=f"tinymq://192.0.2.1:{7800 + number}",
    )


def report(end: int = 0, messages_in: int = 0, **fields: Any) -> PartitionReport:
    """What a broker says of a partition."""
    return PartitionReport(0, end, 10 * end, counters=Counters(messages_in), **fields)


def page(
    number: int,
    *rows: tuple[Topic, int, PartitionReport],
    boot: int = 1,
    more: bool = False,
    gone: tuple[tuple[Topic, int], ...] = (),
) -> Taken:
    """A page of what moved."""
    return Taken(
        boot * BOOT + number,
        more,
        [Row(each.id, partition, found) for each, partition, found in rows],
        [(each.id, partition) for each, partition in gone],
    )


class Cluster:
    """
    A board with what is around it.

    Args:
        own: The broker of this process.
    """

    def __init__(self, own: int = 0) -> None:
        self.clock = Clock()
        self.registry = registry()
        self.board = Board(lambda: self.registry, self.clock, self.wall, own)
        self.nodes = AskedNodes()

    def wall(self) -> int:
        """The wall clock."""
        return BEGIN_MS + round(self.clock.seconds() * 1000)

    def say(self, broker_id: int, number: int, *rows: Any, **more: Any) -> None:
        """Let a broker report."""
        self.board.feed(broker_id, page(number, *rows, **more), snapshot(broker_id))


class AskedNodes:
    """Brokers that answer when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, str, dict[str, Any]]] = []
        self.open: list[Deferred[dict[str, Any]]] = []
        self.cancelled = 0

    def ask(
        self, broker_id: int, operation: str, arguments: Mapping[str, Any]
    ) -> Deferred[dict[str, Any]]:
        """Keep the question."""
        self.asked.append((broker_id, operation, dict(arguments)))
        answer: Deferred[dict[str, Any]] = Deferred(self._cancel)
        self.open.append(answer)
        return answer

    def _cancel(self, answer: Deferred[dict[str, Any]]) -> None:
        self.cancelled += 1
        self.open.remove(answer)

    def answer(self, broker_id: int, taken: Taken) -> None:
        """Answer the oldest question."""
        self.open.pop(0).callback(to_wire(taken, snapshot(broker_id)))
