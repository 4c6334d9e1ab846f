"""Which autonomous brokers announced which topics."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.meta.fakes import FakeTime
from tinymq.errors import InvalidName, InvalidRequest, Overloaded
from tinymq.meta.lookup import CALL_TOPICS, Announcements, Bounds, Node


def node(number: int, **facts: Any) -> Node:
    """Return a node."""
    base = Node(id=bytes([number]) * 16, name=f"n{number}", host="h", port=number + 1)
    return attrs.evolve(base, **facts)


@pytest.fixture
def known(clock: FakeTime) -> Announcements:
    """Return announcements of nobody."""
    return Announcements(clock, clock)


def found(known: Announcements, topic: str) -> list[str]:
    """Return the names of the nodes that have a topic."""
    return [each.name for each in known.find(topic)]


def test_announce(known: Announcements, clock: FakeTime) -> None:
    """Whoever announces a topic is found by it, with address and since when."""
    assert known.announce(node(1, zone="east"), ["a", "b"]) == 2
    since = int(clock.now * 1000)
    clock.advance(1)
    assert known.announce(node(2), ["b", "b"]) == 1
    assert known.find("a") == (node(1, zone="east", since_ms=since),)
    assert found(known, "b") == ["n1", "n2"]
    assert known.find("c") == ()
    assert [each.name for each in known.nodes()] == ["n1", "n2"]
    assert known.topics() == (("a", "b"), False)


def test_what_is_said_later(known: Announcements, clock: FakeTime) -> None:
    """More topics add up, gone ones go, and a node that moved has its new address."""
    known.announce(node(1), ["a", "b"])
    since = int(clock.now * 1000)
    clock.advance(1)
    assert known.announce(node(1, port=99), ["c"], ["a", "unknown"]) == 2
    assert known.find("b") == (node(1, port=99, since_ms=since),)
    assert known.topics() == (("b", "c"), False)
    assert known.announce(node(1), ["c", "d"], replace=True) == 2
    assert known.topics() == (("c", "d"), False)
    assert known.announce(node(1), replace=True) == 0
    assert known.topics() == ((), False)
    assert len(known.nodes()) == 1


def test_silence(known: Announcements, clock: FakeTime) -> None:
    """A node that says nothing is forgotten with its topics; one that does is not."""
    known.announce(node(1), ["a", "b"])
    known.announce(node(2), ["b"])
    clock.advance(10)
    known.announce(node(2))
    clock.advance(5)
    assert [each.name for each in known.expire()] == ["n1"]
    assert known.expire() == ()
    assert known.find("a") == ()
    assert found(known, "b") == ["n2"]
    assert known.announce(node(1)) == 0


def test_a_lost_link(known: Announcements, clock: FakeTime) -> None:
    """A node whose link ended is soon forgotten, unless it comes back in time."""
    for number in (1, 2):
        known.announce(node(number), ["a"])
        known.lost(node(number).id)
    known.lost(bytes(16))
    clock.advance(2)
    known.announce(node(2))
    clock.advance(1)
    known.expire()
    assert found(known, "a") == ["n2"]
    clock.advance(11)
    known.expire()
    assert found(known, "a") == ["n2"]


def test_an_old_link_that_ends_late(known: Announcements, clock: FakeTime) -> None:
    """The end of a link means nothing when the node was heard over a newer one."""
    old, new = object(), object()
    known.announce(node(1), ["a"], link=old)
    known.announce(node(1), link=new)
    known.lost(node(1).id, old)
    clock.advance(5)
    known.expire()
    assert found(known, "a") == ["n1"]
    known.lost(node(1).id, new)
    clock.advance(3)
    known.expire()
    assert found(known, "a") == []


def test_pages(known: Announcements) -> None:
    """Names are told in order, page by page, and pages are bounded."""
    for first in range(0, 1200, 400):
        known.announce(node(first // 400), [f"t{n:04}" for n in range(first, first + 400)])
    names, more = known.topics()
    assert (len(names), more) == (CALL_TOPICS, True)
    assert known.topics(names[-1], 1) == (("t0500",), True)
    assert known.topics("t0999", 10_000) == (tuple(f"t{n}" for n in range(1000, 1200)), False)
    assert known.topics("t1199") == ((), False)
    assert known.topics("", 0) == (("t0000",), True)


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": b"short"},
        {"host": ""},
        {"host": "h" * 256},
        {"port": 0},
        {"port": 65536},
        {"name": "../x"},
        {"zone": "a b"},
    ],
)
def test_what_is_no_node(known: Announcements, wrong: dict[str, object]) -> None:
    """What cannot be a broker's is refused."""
    with pytest.raises((InvalidRequest, InvalidName)):
        known.announce(node(1, **wrong), ["a"])
    assert known.nodes() == ()


def test_bad_topics(known: Announcements) -> None:
    """A bad name, or too many at once, refuse the whole call."""
    known.announce(node(1), ["a"])
    with pytest.raises(InvalidName):
        known.announce(node(1), ["b", "../x"], ["a"], replace=True)
    with pytest.raises(InvalidRequest, match="500"):
        known.announce(node(1), ["b"] * 400, ["b"] * 101)
    with pytest.raises(InvalidName):
        known.find("..")
    assert known.topics() == (("a",), False)


def test_bounds(clock: FakeTime) -> None:
    """No flood of nodes or topics is kept, and what was known stays."""
    known = Announcements(clock, clock, Bounds(nodes=2, topics=3, pairs=4))
    known.announce(node(1), ["a", "b", "c"])
    known.announce(node(2), ["a"])
    for number, topics in ((3, []), (1, ["d"]), (2, ["b"])):
        with pytest.raises(Overloaded):
            known.announce(node(number), topics)
    known.announce(node(1), ["a", "b"], ["c"])
    known.announce(node(2), ["b"])
    clock.advance(20)
    known.expire()
    known.announce(node(3), ["x", "y", "z"])
    assert known.topics() == (("x", "y", "z"), False)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.lists(st.sampled_from("abcd"), max_size=4),
            st.lists(st.sampled_from("abcd"), max_size=4),
            st.booleans(),
        ),
        max_size=20,
    )
)
def test_as_in_a_model(calls: list[tuple[int, list[str], list[str], bool]]) -> None:
    """Whatever is said in whatever order, both ways of asking agree with what was said."""
    known = Announcements()
    model: dict[str, set[str]] = defaultdict(set)
    for number, topics, gone, replace in calls:
        said = model[f"n{number}"]
        if replace:
            said.clear()
        said.difference_update(gone)
        said.update(topics)
        assert known.announce(node(number), topics, gone, replace=replace) == len(said)
        assert known.topics()[0] == tuple(sorted(set().union(*model.values())))
    for topic in "abcd":
        assert set(found(known, topic)) == {name for name, said in model.items() if topic in said}
