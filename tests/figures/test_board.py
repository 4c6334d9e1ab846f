"""What all brokers reported, and which of them say nothing any more."""

from __future__ import annotations

import pytest

from tests.fakes.broker import BEGIN_MS
from tests.fakes.cluster import Cluster, registry, report, topic

T = topic("t", 1, 2)


@pytest.fixture
def cluster() -> Cluster:
    """Two brokers, each with a partition of one topic."""
    cluster = Cluster()
    cluster.registry = registry(T, brokers=(1, 2))
    return cluster


def test_brokers_are_merged(cluster: Cluster) -> None:
    """A topic's places are those of all its brokers, in order."""
    cluster.say(2, 1, (T, 1, report(5)))
    cluster.say(1, 1, (T, 0, report(3)))
    cluster.board.look()
    places = cluster.board.places(T)
    assert [(each.partition, each.leader, each.report.end) for each in places] == [
        (0, 1, 3),
        (1, 2, 5),
    ]
    assert [each.reason for each in places] == ["", ""]
    assert [cluster.board.name(each.leader) for each in places] == ["b1", "b2"]
    assert list(cluster.board.brokers()) == [1, 2]


def test_not_reported_yet(cluster: Cluster) -> None:
    """A partition that was made a moment ago is empty, not offline."""
    cluster.board.look()
    assert [(each.report.end, each.reason) for each in cluster.board.places(T)] == [
        (0, ""),
        (0, ""),
    ]


def test_silence(cluster: Cluster) -> None:
    """Who says nothing for three seconds is named, with its last figures, until it speaks."""
    cluster.say(1, 1, (T, 0, report(3)))
    cluster.say(2, 1, (T, 1, report(5)))
    cluster.clock.advance(1)
    cluster.say(1, 1)
    cluster.clock.advance(1.9)
    cluster.board.look()
    assert cluster.board.silent() == ()
    cluster.clock.advance(0.1)
    cluster.board.look()
    (silent,) = cluster.board.silent()
    assert (silent.id, silent.name, silent.since_ms) == (2, "b2", BEGIN_MS)
    assert silent.listen == "tinymq://192.0.2.1:7802"
    online, offline = cluster.board.places(T)
    assert online.reason == ""
    assert offline.reason == "b2 does not answer since 15:06:40 UTC"
    assert offline.report.end == 5
    assert cluster.board.silent_leaders(T) == ("b2",)
    assert cluster.board.silent_leaders(topic("u", 1)) == ()
    cluster.say(2, 1)
    cluster.board.look()
    assert cluster.board.silent() == ()
    assert cluster.board.silent_leaders(T) == ()
    assert cluster.board.places(T)[1].reason == ""


def test_the_wall_clock_does_not_silence(cluster: Cluster) -> None:
    """A step of the wall clock is no silence, and since when stays what it was."""
    cluster.say(1, 1)
    cluster.say(2, 1)
    stepped = [3_600_000]
    cluster.board._wall = lambda: cluster.wall() + stepped[0]
    cluster.board.look()
    assert cluster.board.silent() == ()
    cluster.clock.advance(4)
    cluster.board.look()
    since = {each.since_ms for each in cluster.board.silent()}
    stepped[0] = 0
    cluster.board.look()
    assert {each.since_ms for each in cluster.board.silent()} == since


def test_never_heard(cluster: Cluster) -> None:
    """A broker that leads partitions and was never heard is silent after its grace."""
    cluster.registry = registry(T, brokers=(1,))
    cluster.board.look()
    cluster.clock.advance(3)
    cluster.say(1, 1)
    cluster.board.look()
    (silent,) = cluster.board.silent()
    assert (silent.id, silent.name, silent.since_ms) == (2, "b2", BEGIN_MS)


def test_left(cluster: Cluster) -> None:
    """A broker that left is silent at once if it leads anything, and else is forgotten."""
    cluster.registry = registry(T, brokers=(1, 2, 3))
    for number in (1, 2, 3):
        cluster.say(number, 1)
    cluster.registry = registry(T, brokers=(1,), revision=2)
    cluster.board.look()
    assert [each.name for each in cluster.board.silent()] == ["b2"]
    assert list(cluster.board.brokers()) == [1, 2]


def test_the_own_broker_is_never_silent() -> None:
    """The broker of this process needs no sign of life."""
    cluster = Cluster(own=1)
    cluster.registry = registry(T, brokers=(1, 2))
    cluster.say(1, 1)
    cluster.clock.advance(60)
    cluster.board.look()
    cluster.clock.advance(60)
    cluster.board.look()
    assert [each.id for each in cluster.board.silent()] == [2]


def test_deleted(cluster: Cluster) -> None:
    """Rows of a deleted topic are forgotten, and late ones are not taken."""
    cluster.say(1, 1, (T, 0, report(3)))
    cluster.registry = registry(brokers=(1, 2), revision=2)
    cluster.board.look()
    assert cluster.board.report((T.id, 0)) is None
    cluster.say(1, 2, (T, 0, report(4)))
    assert cluster.board.report((T.id, 0)) is None


def test_gone(cluster: Cluster) -> None:
    """A broker takes back its own rows only."""
    cluster.say(1, 1, (T, 0, report(3)), (T, 1, report(4)))
    cluster.say(2, 1, (T, 1, report(5)))
    cluster.say(1, 2, gone=((T, 0), (T, 1)))
    assert cluster.board.report((T.id, 0)) is None
    assert cluster.board.report((T.id, 1)) is not None


def test_restarted(cluster: Cluster) -> None:
    """What a broker said before its restart stays until it has said everything anew."""
    cluster.registry = registry(T, topic("u", 1, 1), brokers=(1, 2))
    u = topic("u", 1, 1)
    cluster.say(1, 9, (T, 0, report(3)), (u, 0, report(3)), (u, 1, report(3)))
    assert cluster.board.generation(1) & 0xFF == 9
    cluster.say(1, 1, (u, 0, report(1)), boot=2, more=True)
    assert cluster.board.report((T.id, 0)) is not None
    cluster.say(1, 2, (u, 1, report(1)), boot=2)
    assert cluster.board.report((T.id, 0)) is None
    assert cluster.board.report((u.id, 0)) is not None
    assert cluster.board.generation(7) == 0


def test_followers(cluster: Cluster) -> None:
    """Each follower has what moved, and all of a broker that fell silent."""
    cluster.say(1, 1, (T, 0, report(3)))
    cluster.board.look()
    mine = cluster.board.follow()
    assert mine == {(T.id, 0)}
    mine.clear()
    cluster.say(2, 1, (T, 1, report(3)))
    assert mine == {(T.id, 1)}
    assert cluster.board.follow() == {(T.id, 0), (T.id, 1)}
    mine.clear()
    cluster.board.look()
    assert mine == set()
    cluster.clock.advance(3)
    cluster.say(2, 1)
    cluster.board.look()
    assert mine == {(T.id, 0)}
    mine.clear()
    cluster.say(1, 1)
    cluster.board.look()
    assert mine == {(T.id, 0)}
