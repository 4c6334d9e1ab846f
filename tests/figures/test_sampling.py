"""Watching what brokers report, once a second."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from twisted.internet.task import Clock

from tests.fakes.broker import BrokerFixture
from tests.fakes.cluster import Cluster, registry, report, topic
from tinymq.broker.ports import Timer
from tinymq.figures.board import Board
from tinymq.figures.feeds import LocalFeed
from tinymq.figures.history import History
from tinymq.figures.reports import SLICE, Reporter
from tinymq.figures.sampling import WHOLE, Sampler, broker_key

T = topic("t", 1, 2)
MANY = topic("many", *[1] * (2 * SLICE + 1))


@pytest.fixture
def fixture(tmp_path: Path) -> BrokerFixture:
    """Return a broker with a topic in memory."""
    fixture = BrokerFixture(tmp_path / "data")
    fixture.topic(storage="memory", partitions=2)
    return fixture


def sampler_of(fixture: BrokerFixture) -> Sampler:
    """The sampler of one broker."""
    broker = fixture.broker
    board = Board(lambda: broker.meta.registry, fixture.clock, fixture.wall, broker.id)
    LocalFeed(Reporter(broker), board)
    return Sampler(board, lambda: broker.meta.registry, fixture.clock, fixture.wall)


def second(fixture: BrokerFixture, sampler: Sampler, count: int = 1) -> None:
    """Let seconds pass."""
    for _ in range(count):
        fixture.wall.now_ms += 1000
        sampler.sample()


class TestOneBroker:
    def test_rates(self, fixture: BrokerFixture) -> None:
        """Rates of the broker, a topic and a partition come from the counters."""
        sampler = sampler_of(fixture)
        topic = fixture.meta.describe("t")
        for _ in range(10):
            fixture.produce(b"a", b"b")
            fixture.produce(b"c", partition=1)
            second(fixture, sampler)
        rates = sampler.history.rates
        now = fixture.wall()
        for key in (WHOLE, broker_key(1), topic.id):
            assert rates(key, now).messages_in == pytest.approx(3, rel=0.2)
        rate = sampler.partitions.rates((topic.id, 1), now)
        assert rate.messages_in == pytest.approx(1, rel=0.2)
        second(fixture, sampler, 20)
        assert rates(WHOLE, fixture.wall()).messages_in == 0

    def test_deleted(self, fixture: BrokerFixture) -> None:
        """A topic deleted by anybody is forgotten, and the sums do not fall with it."""
        sampler = sampler_of(fixture)
        fixture.topic("other", storage="memory")
        fixture.produce(b"a", topic="other")
        for _ in range(5):
            fixture.produce(b"a", b"b")
        second(fixture, sampler)
        topic = fixture.meta.describe("t")
        fixture.operate("topic.delete", name="t")
        second(fixture, sampler, 20)
        assert sampler.history.rates(WHOLE, fixture.wall()).messages_in == 0
        assert topic.id not in {topic_id for topic_id, _ in sampler._last}
        assert len(sampler.partitions) == 1
        fixture.produce(b"b", topic="other")
        second(fixture, sampler)
        fixture.wall.now_ms += 2000
        rate = sampler.history.rates(WHOLE, fixture.wall()).messages_in
        assert rate == pytest.approx(0.1, rel=0.2)

    def test_every_second(self, fixture: BrokerFixture) -> None:
        """It samples by itself."""
        sampler = sampler_of(fixture)
        sampler.start()
        fixture.produce(b"a")
        fixture.clock.advance(1)
        fixture.wall.now_ms += 2000
        assert sampler.history.rates(WHOLE, fixture.wall()).messages_in > 0
        sampler.stop()
        assert fixture.clock.getDelayedCalls() == []


class TestSlices:
    @pytest.fixture
    def cluster(self) -> Cluster:
        """A broker elsewhere with more partitions than a slice has."""
        cluster = Cluster()
        cluster.registry = registry(MANY, brokers=(1,))
        cluster.say(1, 1)
        return cluster

    @staticmethod
    def move(cluster: Cluster, number: int) -> None:
        """Let one record come into each partition."""
        rows = ((MANY, index, report(number, number)) for index in range(MANY.partitions))
        cluster.say(1, number, *rows)

    def test_a_turn_is_short(self, cluster: Cluster) -> None:
        """A turn takes no more than a slice, and all turns together take everything."""
        clock = TurnByTurn()
        sampler = Sampler(cluster.board, lambda: cluster.registry, clock, cluster.wall)
        self.move(cluster, 1)
        sampler.sample()
        taken = [len(sampler._last)]
        while clock.calls:
            clock.calls.pop(0)()
            taken.append(len(sampler._last))
        assert taken == [SLICE, 2 * SLICE, 2 * SLICE + 1]
        cluster.clock.advance(2)
        (rate,) = sampler.history.series(WHOLE, cluster.wall()).values
        assert rate * 2 == 2 * SLICE + 1

    def test_one_look_at_a_time(self, cluster: Cluster) -> None:
        """A look that is not over when the next one is due takes its place."""
        clock = TurnByTurn()
        sampler = Sampler(cluster.board, lambda: cluster.registry, clock, cluster.wall)
        self.move(cluster, 1)
        sampler.sample()
        sampler.sample()
        assert (len(clock.calls), len(sampler._last)) == (1, SLICE)

    def test_what_is_shown_first_has_its_curves(self, cluster: Cluster) -> None:
        """However many partitions are busy, the whole and its topics have their curves."""
        sampler = Sampler(cluster.board, lambda: cluster.registry, cluster.clock, cluster.wall)
        sampler.partitions = History(cluster.wall(), most=2)
        self.move(cluster, 1)
        sampler.sample()
        cluster.clock.advance(0)
        cluster.clock.advance(2)
        for key in (WHOLE, MANY.id):
            assert sampler.history.series(key, cluster.wall()).values == (SLICE + 0.5,)
        assert len(sampler.partitions) == 2
        rates = [
            sampler.partitions.rates((MANY.id, index), cluster.wall()).messages_in
            for index in range(MANY.partitions)
        ]
        assert set(rates) == {0.5}

    def test_stopped_half_way(self, cluster: Cluster) -> None:
        """Whoever stops it is not called any more."""
        sampler = Sampler(cluster.board, lambda: cluster.registry, cluster.clock, cluster.wall)
        self.move(cluster, 1)
        sampler.start()
        sampler.sample()
        assert len(cluster.clock.getDelayedCalls()) == 2
        sampler.stop()
        assert cluster.clock.getDelayedCalls() == []


class TurnByTurn:
    """Keeps what is to be done in the next turn."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], object]] = []

    def seconds(self) -> float:
        """Return the time, which stands."""
        return 0.0

    def callLater(self, delay: float, callable: Callable[..., object], *args: object) -> Timer:  # noqa: A002, N802 - Twisted's names
        """Keep a call."""
        self.calls.append(lambda: callable(*args))
        return Clock().callLater(delay, callable, *args)


class TestManyBrokers:
    @pytest.fixture
    def cluster(self) -> Cluster:
        """Two brokers elsewhere."""
        cluster = Cluster()
        cluster.registry = registry(T, brokers=(1, 2))
        return cluster

    @staticmethod
    def counted(history: History, key: object, cluster: Cluster) -> int:
        """How many records came in, as the history knows it."""
        cluster.clock.advance(2)
        series = history.series(key, cluster.wall())
        return round(sum(series.values) * series.step_ms / 1000)

    def test_a_broker_that_ran_before(self, cluster: Cluster) -> None:
        """What a broker had counted before it was first heard is no burst of now."""
        sampler = Sampler(cluster.board, lambda: cluster.registry, cluster.clock, cluster.wall)
        cluster.say(1, 1, (T, 0, report(0, 1_000_000)))
        sampler.sample()
        cluster.say(1, 2, (T, 0, report(0, 1_000_005)))
        sampler.sample()
        assert self.counted(sampler.history, WHOLE, cluster) == 5

    def test_a_new_partition(self, cluster: Cluster) -> None:
        """What a new partition of a known broker had counted came since."""
        sampler = Sampler(cluster.board, lambda: cluster.registry, cluster.clock, cluster.wall)
        cluster.say(1, 1)
        cluster.say(1, 2, (T, 0, report(0, 7)))
        sampler.sample()
        assert self.counted(sampler.history, WHOLE, cluster) == 7

    def test_a_restarted_broker(self, cluster: Cluster) -> None:
        """Counters that begin anew are no fall: what they count came since."""
        sampler = Sampler(cluster.board, lambda: cluster.registry, cluster.clock, cluster.wall)
        cluster.say(1, 1)
        cluster.say(2, 1)
        cluster.say(1, 2, (T, 0, report(0, 10)))
        cluster.say(2, 2, (T, 1, report(0, 100)))
        sampler.sample()
        cluster.say(1, 1, (T, 0, report(0, 3)), boot=2)
        sampler.sample()
        assert self.counted(sampler.partitions, (T.id, 0), cluster) == 13
        assert self.counted(sampler.history, broker_key(1), cluster) == 13
        assert self.counted(sampler.history, T.id, cluster) == 113
        assert self.counted(sampler.history, WHOLE, cluster) == 113
