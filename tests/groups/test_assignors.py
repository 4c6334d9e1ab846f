"""How partitions are divided: each once, evenly, the same for the same, and with few moves."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinymq.groups.assignors import DIVIDES, Wishes, divide
from tinymq.groups.values import COOPERATIVE, Place

TOPICS = [b"t%d" % number for number in range(5)]

topics = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 12), max_size=5)
names = st.lists(st.sampled_from([f"m{n:02}" for n in range(12)]), unique=True, max_size=8)
strategies = st.sampled_from(sorted(DIVIDES))


def wishes_of(names: list[str], seed: int | None, topics: dict[bytes, int]) -> list[Wishes]:
    """Members that want everything, or with a seed only some of it."""
    random = Random(seed)
    return [
        Wishes(
            name,
            name,
            frozenset(topics if seed is None else (t for t in topics if random.random() < 0.6)),
        )
        for name in names
    ]


def counts(given: dict[Place, str], names: list[str]) -> list[int]:
    """How many each member has."""
    found = Counter(given.values())
    return [found[name] for name in names]


@given(strategies, topics, names, st.none() | st.integers(0, 999))
def test_each_partition_goes_to_one_who_wants_it(
    strategy: str, topics: dict[bytes, int], names: list[str], seed: int | None
) -> None:
    """All that somebody wants is given, to who wants it; the order of members does not matter."""
    wishes = wishes_of(names, seed, topics)
    given = divide(strategy, topics, wishes, {})
    wanted = {each for one in wishes for each in one.topics}
    assert set(given) == {(t, n) for t in wanted for n in range(topics[t])}
    by_name = {one.member: one.topics for one in wishes}
    assert all(place[0] in by_name[member] for place, member in given.items())
    assert given == divide(strategy, topics, wishes[::-1], {})


@given(st.sampled_from(["roundrobin", "sticky"]), topics, names.filter(bool))
def test_who_wants_the_same_gets_as_much(
    strategy: str, topics: dict[bytes, int], names: list[str]
) -> None:
    """Numbers differ by one at most."""
    found = counts(divide(strategy, topics, wishes_of(names, None, topics), {}), names)
    assert max(found) - min(found) <= 1


@given(topics, names.filter(bool))
def test_ranges_are_even_in_each_topic(topics: dict[bytes, int], names: list[str]) -> None:
    """Of each topic a member has neighbouring partitions, in numbers that differ by one."""
    given = divide("range", topics, wishes_of(names, None, topics), {})
    for topic, many in topics.items():
        here = [given[topic, index] for index in range(many)]
        found = [here.count(name) for name in names]
        assert max(found) - min(found) <= 1
        assert here == sorted(here)


@given(topics, names.filter(bool), names.filter(bool), st.integers(0, 999))
def test_few_move(topics: dict[bytes, int], old: list[str], new: list[str], seed: int) -> None:
    """Who stays keeps what it had, up to its even part; only as many move as have to."""
    random = Random(seed)
    had = {(t, n): random.choice(old) for t in topics for n in range(topics[t])}
    given = divide(COOPERATIVE, topics, wishes_of(new, None, topics), had)
    kept = sum(had[place] == member for place, member in given.items())
    each, more = divmod(len(given), len(new))
    before = sorted((list(had.values()).count(name) for name in new), reverse=True)
    most = sum(min(many, each + (rank < more)) for rank, many in enumerate(before))
    assert kept == most


@given(topics, names, st.integers(0, 999))
def test_what_is_balanced_stays(topics: dict[bytes, int], names: list[str], seed: int) -> None:
    """Divided again with nothing changed, nothing moves, whatever the members want."""
    wishes = wishes_of(names, seed, topics)
    given = divide("sticky", topics, wishes, {})
    assert divide("sticky", topics, wishes, given) == given


@given(topics, names, st.integers(0, 999), st.integers(0, 999))
def test_nobody_can_be_relieved(
    topics: dict[bytes, int], names: list[str], seed: int, other: int
) -> None:
    """Where members want different topics, no partition can go to one who has two fewer."""
    before = divide("sticky", topics, wishes_of(names, other, topics), {})
    wishes = wishes_of(names, seed, topics)
    given = divide("sticky", topics, wishes, before)
    load = Counter(given.values())
    for (topic, _), member in given.items():
        takers = [load[one.member] for one in wishes if topic in one.topics]
        assert load[member] - min(takers) <= 1


def test_help_may_go_through_others() -> None:
    """One is relieved by another that hands something on to a third."""
    topics = {b"a": 4, b"b": 2}
    wishes = [
        Wishes("m1", "m1", frozenset({b"a"})),
        Wishes("m2", "m2", frozenset({b"a", b"b"})),
        Wishes("m3", "m3", frozenset({b"b"})),
    ]
    had = {(b"a", n): "m1" for n in range(3)} | {(b"a", 3): "m2", (b"b", 0): "m2", (b"b", 1): "m3"}
    assert counts(divide("sticky", topics, wishes, had), ["m1", "m2", "m3"]) == [2, 2, 2]


def test_nobody_divides_nothing() -> None:
    """Without members, or without topics, there is nothing."""
    for strategy in DIVIDES:
        assert divide(strategy, {b"t": 3}, [], {}) == {}
        assert divide(strategy, {}, [Wishes("m", "m", frozenset())], {}) == {}


@pytest.mark.parametrize("strategy", ["sticky", "roundrobin", "range"])
def test_much_is_divided(strategy: str) -> None:
    """A group as large as there may be is divided in one go."""
    topics = {b"%d" % number: 1000 for number in range(4)}
    wishes = [Wishes(f"m{n}", f"m{n}", frozenset(topics)) for n in range(1000)]
    given = divide(strategy, topics, wishes, {})
    assert set(Counter(given.values()).values()) == {4}
