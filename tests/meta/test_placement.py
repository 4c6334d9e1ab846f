"""Where new partitions go."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinymq.errors import StateError
from tinymq.meta.placement import Standing, place

STANDINGS = st.dictionaries(
    st.integers(1, 9), st.builds(Standing, st.integers(0, 40), st.integers(0, 3)), min_size=1
)


@given(st.integers(0, 60), STANDINGS, st.lists(st.integers(1, 9), max_size=20))
def test_load_evens_out(count: int, standings: dict[int, Standing], has: list[int]) -> None:
    """Who gets a partition is about the least loaded, or those have twice their share."""
    leaders = place(count, standings, has)
    assert len(leaders) == count
    assert set(leaders) <= set(standings)
    assert leaders == place(count, standings, has)
    taken = Counter(leaders) + Counter(has)
    most = 2 * -(-(count + len(has)) // len(standings))
    assert all(taken[broker] <= most for broker in leaders)
    after = {broker: led + leaders.count(broker) for broker, (led, _) in standings.items()}
    open_ones = [led for broker, led in after.items() if taken[broker] < most]
    least = min(open_ones, default=1000)
    assert all(after[broker] <= least + max(2, least // 10) + 1 for broker in leaders)


@given(
    st.integers(0, 60),
    st.dictionaries(st.integers(1, 9), st.integers(50, 52), min_size=1),
)
def test_a_topic_is_spread_evenly(count: int, led: dict[int, int]) -> None:
    """Among brokers that are about equal, each takes as many partitions of a topic as any."""
    leaders = Counter(place(count, {broker: Standing(n) for broker, n in led.items()}))
    shares = [leaders[broker] for broker in led]
    assert max(shares) - min(shares) <= 1


@given(st.lists(st.integers(1, 12), max_size=30), st.integers(1, 6))
def test_many_topics(counts: list[int], brokers: int) -> None:
    """Brokers that began equal stay so, however many partitions each topic has."""
    led = Counter(dict.fromkeys(range(brokers), 0))
    for count in counts:
        leaders = Counter(place(count, {broker: Standing(led[broker]) for broker in led}))
        assert max(leaders.values()) - min(leaders[broker] for broker in led) <= 1
        led.update(leaders)
        assert max(led.values()) - min(led.values()) <= 1


def test_ties() -> None:
    """Of brokers that lead as many, the one with fewer bytes comes first, then the lower id."""
    assert place(3, {3: Standing(1, 5), 2: Standing(1, 5), 4: Standing(1, 4)}) == (4, 2, 3)


def test_a_new_broker() -> None:
    """An empty broker gets more of what is made next, but not all of it."""
    standings = {1: Standing(100), 2: Standing(100), 3: Standing(0)}
    assert place(1, standings) == (3,)
    assert sorted(place(6, standings)) == [1, 2, 3, 3, 3, 3]


def test_more_partitions() -> None:
    """What a topic gets later goes where it has least."""
    equal = {1: Standing(5), 2: Standing(4), 3: Standing(4)}
    assert place(2, equal, (2, 1)) == (3, 2)
    assert place(1, equal, (9, 3)) == (2,)


def test_nobody_there() -> None:
    """Without brokers there is no place."""
    with pytest.raises(StateError):
        place(1, {})
