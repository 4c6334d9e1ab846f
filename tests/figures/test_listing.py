"""The list of all topics."""

from __future__ import annotations

import pytest
from typing_extensions import override

from tests.fakes.cluster import Cluster, registry, report, topic
from tinymq.figures.listing import Listing, _Entry
from tinymq.figures.sampling import Sampler
from tinymq.meta.registry import Topic
from tinymq.stats import Gap, TopicRow

T, U = topic("t", 1, 2), topic("u", 1)


@pytest.fixture
def cluster() -> Cluster:
    """Two brokers with two topics."""
    cluster = Cluster()
    cluster.registry = registry(T, U, brokers=(1, 2))
    cluster.say(1, 1, (T, 0, report(3, newest_ms=5)), (U, 0, report(9)))
    cluster.say(2, 1, (T, 1, report(4, newest_ms=7)))
    return cluster


class CountedListing(Listing):
    """Counts the rows that are made."""

    def __init__(self, cluster: Cluster) -> None:
        sampler = Sampler(cluster.board, lambda: cluster.registry, cluster.clock, cluster.wall)
        super().__init__(
            cluster.board, sampler, lambda: cluster.registry, cluster.clock, cluster.wall
        )
        self.sampler = sampler
        self.made: list[str] = []

    @override
    def rows(self, *, own: bool = False) -> list[TopicRow]:
        """Look first."""
        self.look()
        return super().rows(own=own)

    @override
    def _entry(self, topic: Topic) -> _Entry:
        self.made.append(topic.name)
        return super()._entry(topic)


def test_sums(cluster: Cluster) -> None:
    """A row is the sum of a topic's partitions, wherever they are."""
    listing = CountedListing(cluster)
    row = {each.name: each for each in listing.rows()}["t"]
    assert (row.messages, row.bytes, row.last_write_ms, row.offline) == (7, 70, 7, 0)
    assert row.leaders == (1, 2)


def test_only_what_moved(cluster: Cluster) -> None:
    """A row is made anew when its topic moved, and not before."""
    listing = CountedListing(cluster)
    listing.rows()
    listing.made.clear()
    listing.rows()
    assert listing.made == []
    cluster.say(2, 2, (T, 1, report(8)))
    assert {each.name: each.messages for each in listing.rows()} == {"t": 11, "u": 9}
    assert listing.made == ["t"]


def test_very_many(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where many topics move, a look makes some rows, and later turns the others."""
    many = [topic(f"t{number}", 1) for number in range(5)]
    cluster.registry = registry(*many, brokers=(1,), revision=2)
    cluster.say(1, 2, *((each, 0, report(1)) for each in many))
    listing = CountedListing(cluster)
    assert [row.messages for row in listing.rows()] == [1] * 5
    monkeypatch.setattr("tinymq.figures.listing.SLICE", 42)
    cluster.say(1, 3, *((each, 0, report(2)) for each in many))
    assert sum(row.messages for row in listing.rows()) == 5 + 2
    assert sum(row.messages for row in listing.rows()) == 5 + 4
    cluster.clock.advance(0)
    listing.made.clear()
    assert sum(row.messages for row in listing.rows()) == 5 + 5
    assert listing.made == []
    assert cluster.clock.getDelayedCalls() == []


def test_made_before_anybody_looks(cluster: Cluster) -> None:
    """Once it was started, the first who looks does not wait for the rows of all topics."""
    listing = CountedListing(cluster)
    listing.start()
    cluster.clock.advance(0)
    assert sorted(listing.made) == ["t", "u"]
    cluster.say(1, 2, (T, 0, report(4)))
    listing.start()
    listing.stop()
    assert cluster.clock.getDelayedCalls() == []


def test_falling_rates(cluster: Cluster) -> None:
    """A row whose rate falls is made anew until it stands at zero."""
    listing = CountedListing(cluster)
    cluster.say(1, 2, (U, 0, report(9, 50)))
    listing.sampler.sample()
    cluster.clock.advance(2)
    assert {each.name: each.rates.messages_in for each in listing.rows()}["u"] > 0
    cluster.say(1, 2)
    cluster.say(2, 1)
    cluster.clock.advance(20)
    cluster.say(1, 2)
    cluster.say(2, 1)
    assert {each.name: each.rates.messages_in for each in listing.rows()}["u"] == 0
    listing.made.clear()
    listing.rows()
    assert listing.made == []


def test_silent_broker(cluster: Cluster) -> None:
    """Partitions of a silent broker count as offline with its name; figures stay."""
    listing = CountedListing(cluster)
    listing.rows()
    cluster.clock.advance(3)
    cluster.say(1, 1)
    rows = {each.name: each for each in listing.rows()}
    assert (rows["t"].offline, rows["t"].messages, rows["u"].offline) == (1, 7, 0)
    (offline,) = listing.offline()
    assert (offline.topic, offline.partition) == ("t", 1)
    assert offline.reason == "b2 does not answer since 15:06:40 UTC"
    cluster.say(2, 1)
    listing.look()
    assert listing.offline() == []


def test_damage_and_deletion(cluster: Cluster) -> None:
    """Damaged topics are named in order, and deleted ones are gone."""
    listing = CountedListing(cluster)
    gap = (Gap(first=0, end=1),)
    cluster.say(1, 2, (U, 0, report(9, gaps=gap)), (T, 0, report(9, gaps=gap)))
    listing.look()
    assert listing.damaged() == ["t", "u"]
    cluster.registry = registry(U, brokers=(1, 2), revision=2)
    assert [each.name for each in listing.rows()] == ["u"]


def test_top(cluster: Cluster) -> None:
    """The largest topics come first, with their series; idle ones are not busy."""
    listing = CountedListing(cluster)
    assert [each.name for each in listing.top("bytes", 5)] == ["u", "t"]
    assert listing.top("bytes", 1)[0].series is not None
    assert listing.top("messages_in", 5) == ()
