"""How reports come to the board."""

from __future__ import annotations

from pathlib import Path

import pytest
from twisted.internet.defer import Deferred

from tests.fakes.broker import BrokerFixture, LogKeeper
from tests.fakes.cluster import Cluster, page, registry, report, topic
from tinymq.errors import ConnectionLost, StateError
from tinymq.figures.board import Board
from tinymq.figures.feeds import LocalFeed, Poller, deadline
from tinymq.figures.reports import MOST_ROWS, SLICE, Reporter

T = topic("t", 1, 2)


class TestLocalFeed:
    def test_exact_at_once(self, tmp_path: Path) -> None:
        """Whoever looks sees what was written in this very turn."""
        fixture = BrokerFixture(tmp_path / "data")
        made = fixture.topic("t", partitions=2)
        broker = fixture.broker
        board = Board(lambda: broker.meta.registry, fixture.clock, fixture.wall, broker.id)
        LocalFeed(Reporter(broker), board)
        for count in (1, 2):
            fixture.produce(b"a", partition=1)
            board.look()
            assert [each.report.end for each in board.places(made)] == [0, count]
        board.look()
        assert board.silent() == ()

    def test_more_than_a_slice(self, tmp_path: Path) -> None:
        """However many partitions moved, a look takes a slice of them, and some looks all."""
        fixture = BrokerFixture(tmp_path / "data")
        made = fixture.topic("t", partitions=2 * SLICE + 1, storage="memory")
        broker = fixture.broker
        board = Board(lambda: broker.meta.registry, fixture.clock, fixture.wall, broker.id)
        LocalFeed(Reporter(broker), board)

        def known() -> int:
            return sum(board.report((made.id, each)) is not None for each in range(made.partitions))

        assert [(board.look(), known()) for _ in range(4)] == [
            (True, 0),
            (True, SLICE),
            (True, 2 * SLICE),
            (False, 2 * SLICE + 1),
        ]

    def test_a_busy_broker_does_not_hold_who_looks(self, tmp_path: Path) -> None:
        """What moves while slices are brought belongs to the next round."""
        fixture = BrokerFixture(tmp_path / "data")
        made = fixture.topic("t", partitions=SLICE + 1, storage="memory")
        broker = fixture.broker
        board = Board(lambda: broker.meta.registry, fixture.clock, fixture.wall, broker.id)
        LocalFeed(Reporter(broker), board)
        assert [board.look() for _ in range(2)] == [True, True]
        broker.moved.update(broker.partitions())
        assert not board.look()
        assert board.report((made.id, SLICE)) is not None

    def test_a_topic_is_exact_whatever_waits(self, tmp_path: Path) -> None:
        """Who looks at one topic sees this moment, although much else has moved before."""
        fixture = BrokerFixture(tmp_path / "data")
        fixture.topic("many", partitions=2 * SLICE, storage="memory")
        made = fixture.topic("t", partitions=2, storage="memory")
        broker = fixture.broker
        board = Board(lambda: broker.meta.registry, fixture.clock, fixture.wall, broker.id)
        LocalFeed(Reporter(broker), board)
        for count in (1, 2):
            fixture.produce(b"a", partition=1)
            assert board.look()
            assert [each.report.end for each in board.places(made)] == [0, count]
            broker.moved.update(broker.partitions())


@pytest.fixture
def cluster() -> Cluster:
    """This process is the broker 1, and another is the broker 2."""
    cluster = Cluster(own=1)
    cluster.registry = registry(T, brokers=(1, 2))
    return cluster


@pytest.fixture
def poller(cluster: Cluster) -> Poller:
    """What asks the broker 2."""
    return Poller(cluster.board, lambda: cluster.registry, cluster.nodes, cluster.clock)


class TestPoller:
    def test_every_second(self, cluster: Cluster, poller: Poller) -> None:
        """Each other broker is asked once a second for what moved since its last answer."""
        poller.start()
        cluster.nodes.answer(2, page(4, (T, 1, report(5))))
        assert cluster.board.places(T)[1].report.end == 5
        cluster.clock.advance(1)
        assert cluster.nodes.asked == [
            (2, "node.report", {"since": 0, "limit": MOST_ROWS}),
            (2, "node.report", {"since": cluster.board.generation(2), "limit": MOST_ROWS}),
        ]
        poller.stop()
        assert cluster.clock.getDelayedCalls() == []
        assert cluster.nodes.open == []

    def test_pages(self, cluster: Cluster, poller: Poller) -> None:
        """Pages are asked for one after the other, without waiting for the next second."""
        poller.poll()
        cluster.nodes.answer(2, page(1, (T, 0, report(1)), more=True))
        cluster.nodes.answer(2, page(2, (T, 1, report(2))))
        assert [arguments["since"] & 0xFF for _, _, arguments in cluster.nodes.asked] == [0, 1]
        assert cluster.nodes.open == []

    def test_one_at_a_time(self, cluster: Cluster, poller: Poller) -> None:
        """A broker that owes an answer is not asked again until its time is over."""
        poller.start()
        cluster.clock.advance(1)
        assert len(cluster.nodes.asked) == 1
        cluster.clock.advance(1)
        assert cluster.nodes.cancelled == 1
        cluster.clock.advance(1)
        assert len(cluster.nodes.asked) == 2
        cluster.board.look()
        cluster.clock.advance(1)
        cluster.board.look()
        assert [each.name for each in cluster.board.silent()] == []
        cluster.clock.advance(3)
        cluster.board.look()
        assert [each.name for each in cluster.board.silent()] == ["b2"]
        poller.stop()

    @pytest.mark.parametrize("error", [ConnectionLost("gone"), StateError("no"), None])
    def test_failures(
        self, cluster: Cluster, poller: Poller, error: Exception | None, logged: LogKeeper
    ) -> None:
        """An error ends one question, not the asking; what cannot be read is logged."""
        poller.start()
        if error is None:
            cluster.nodes.open.pop(0).callback({"rows": 1})
        else:
            cluster.nodes.open.pop(0).errback(error)
        cluster.clock.advance(1)
        assert len(cluster.nodes.asked) == 2
        cluster.nodes.answer(2, page(1, (T, 1, report(5))))
        assert cluster.board.places(T)[1].report.end == 5
        poller.stop()
        assert len(logged.failures) == (error is None)

    def test_unreadable_again_and_again(
        self, cluster: Cluster, poller: Poller, logged: LogKeeper
    ) -> None:
        """A broker that nobody understands is told of once, not every second."""
        poller.start()
        for answer in ({"rows": 1}, {"rows": 1}, None, {"rows": 1}):
            if answer is None:
                cluster.nodes.answer(2, page(1))
            else:
                cluster.nodes.open.pop(0).callback(answer)
            cluster.clock.advance(1)
        poller.stop()
        assert len(logged.failures) == 2

    def test_stopped_while_asking(self, cluster: Cluster, poller: Poller) -> None:
        """What is under way is let go of, without a word."""
        poller.start()
        poller.stop()
        assert cluster.nodes.cancelled == 1
        assert cluster.clock.getDelayedCalls() == []


def test_deadline(cluster: Cluster) -> None:
    """An answer in time is passed on, and leaves no timer."""
    answer: Deferred[int] = Deferred()
    found: list[int] = []
    deadline(answer, 1, cluster.clock).addCallback(found.append)
    answer.callback(7)
    assert found == [7]
    assert cluster.clock.getDelayedCalls() == []
