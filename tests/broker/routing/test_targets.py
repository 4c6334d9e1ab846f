"""Targets that take nothing, are gone, or will never take it: nothing is lost, all is told."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred

from tests.broker.routing.exchanging import (
    bind,
    exchange_of,
    make_exchange,
    publish,
    records,
    router_of,
    settle,
)
from tests.fakes.broker import BrokerFixture
from tinymq.broker.letters import facts_of
from tinymq.broker.routing import router as routers
from tinymq.errors import Overloaded


def jam(broker: BrokerFixture, name: str, *, free: bool = False) -> None:
    """Let a topic take nothing, or everything again."""
    refusals = broker.partition(name).refusals
    if free:
        refusals.clear()
    else:
        refusals["test"] = Overloaded("it is full")


def row(broker: BrokerFixture) -> dict[str, Any]:
    """What the router of the only exchange tells."""
    (found,) = broker.node.routers()["rows"]
    return dict(found)


def test_a_full_target_holds_up_no_other(fixture: BrokerFixture) -> None:
    """Its copies wait, are told of, and come in order when it takes them."""
    exchange_of(fixture, "fanout", "a", "b")
    jam(fixture, "a")
    for number in range(5):
        publish(fixture, b"%d" % number)
        settle(fixture)

    assert fixture.values("a") == []
    assert fixture.values("b") == [b"0", b"1", b"2", b"3", b"4"]
    told = row(fixture)
    (stuck,) = told["stuck"]
    assert (stuck["target"], stuck["why"], stuck["pending"]) == ("a", "it is full", 5)
    assert (told["cursor"], told["end"], told["pending"]) == (5, 5, 5)

    jam(fixture, "a", free=True)
    fixture.clock.advance(31)
    settle(fixture)
    assert fixture.values("a") == fixture.values("b")
    assert row(fixture)["stuck"] == []
    assert row(fixture)["copied"] == 10


def test_so_much_waits_and_no_more(fixture: BrokerFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the router waits, for all of its targets, and says so."""
    monkeypatch.setattr(routers, "MOST_PENDING", 10)
    exchange_of(fixture, "fanout", "a", "b")
    jam(fixture, "a")
    for number in range(20):
        publish(fixture, b"%d" % number)
        settle(fixture)

    told = row(fixture)
    assert (told["pending"], told["waiting"], told["cursor"], told["end"]) == (10, True, 10, 20)
    assert len(fixture.values("b")) == 10

    jam(fixture, "a", free=True)
    fixture.clock.advance(31)
    settle(fixture)
    assert fixture.values("a") == fixture.values("b") == [b"%d" % each for each in range(20)]
    assert not row(fixture)["waiting"]


def test_the_list_of_exchanges_tells_of_it(fixture: BrokerFixture) -> None:
    """Lag, what no binding took, rates, and where messages cannot go, and why."""
    exchange_of(fixture, "direct", "a", "b", partitions=2)
    fixture.topic("t")
    for index in (0, 1):
        publish(fixture, b"a", b"b", b"c", index=index)
    settle(fixture)
    jam(fixture, "a")
    for _ in range(4):
        publish(fixture, b"a", b"b")
        settle(fixture)
        fixture.clock.advance(1)
        settle(fixture)

    (told,) = fixture.operate("exchange.list")["exchanges"]
    (stuck,) = told["stuck"]
    assert (told["unroutable"], told["lag"], told["failed"]) == (2, 0, 0)
    assert told["in_s"] > told["out_s"] > 0
    assert (stuck["target"], stuck["why"]) == ("a", "it is full")
    assert stuck["since_ms"] > 0


def test_copies_for_a_deleted_target_are_dead_letters(fixture: BrokerFixture) -> None:
    """With a reason, in order, once."""
    exchange_of(fixture, "fanout", "a", "b")
    jam(fixture, "a")
    for number in range(3):
        publish(fixture, b"%d" % number)
        settle(fixture)
    fixture.meta.delete_topic("a")
    fixture.clock.advance(31)
    settle(fixture)

    letters = records(fixture, "x.unroutable")
    assert [each.value for each in letters] == [b"0", b"1", b"2"]
    assert {facts_of(each.headers).reason for each in letters} == {"target_deleted"}
    assert row(fixture)["pending"] == 0
    assert router_of(fixture).routes.lanes.keys() == {
        ("x.unroutable", 0),
        (fixture.meta.describe("b").id, 0),
    }


def test_what_a_target_will_never_take_is_a_dead_letter(fixture: BrokerFixture) -> None:
    """The one that is too long; those around it come."""
    fixture.topic("a", max_value_bytes=100)
    exchange_of(fixture, "fanout", "a")
    publish(fixture, *[b"k"] * 3, values=[b"1", b"2" * 1000, b"3"])
    settle(fixture, 60)

    assert fixture.values("a") == [b"1", b"3"]
    (letter,) = records(fixture, "x.unroutable")
    assert letter.value == b"2" * 1000
    facts = facts_of(letter.headers)
    assert facts.reason == "refused"
    assert "max.value.bytes of a" in facts.text


def test_dead_letters_that_are_kept_are_told(fixture: BrokerFixture) -> None:
    """When their topic does not take them, the list of dead letters says how many, and why."""
    exchange_of(fixture, "direct", "a")
    fixture.topic("x.unroutable")
    jam(fixture, "x.unroutable")
    publish(fixture, b"b", b"c")
    settle(fixture)

    (queue,) = fixture.operate("dlq.list")["queues"]
    assert (queue["target"], queue["kept"], queue["kept_why"]) == ("x.unroutable", 2, "it is full")


def test_records_without_a_key_go_round_a_stuck_partition(fixture: BrokerFixture) -> None:
    """They come to the partitions that take them."""
    topic = fixture.topic("a", 2)
    exchange_of(fixture, "fanout", "a")
    fixture.broker.partition(topic.id, 0).refusals["test"] = Overloaded("it is full")
    for _ in range(10):
        publish(fixture, None)
        settle(fixture)

    assert len(fixture.values("a", 1)) >= 9


def test_unroutable_letters_in_circles_are_parked(fixture: BrokerFixture) -> None:
    """Two exchanges whose dead letters go to one another: bounded, and nothing is lost."""
    for name, other in (("x", "y"), ("y", "x")):
        make_exchange(fixture.meta, fixture.topic(name), "direct", other)
    for number in range(0, 1000, 100):
        values = [b"%d" % each for each in range(number, number + 100)]
        publish(fixture, *[b"k"] * 100, values=values)
    settle(fixture, 200)

    parked = records(fixture, "y.parking")
    assert [each.value for each in parked] == [b"%d" % each for each in range(1000)]
    assert len(records(fixture, "x")) == len(records(fixture, "y")) == 1000
    assert facts_of(parked[0].headers).hops == 2
    assert "circles" in facts_of(parked[0].headers).parked


def test_queues_that_overflow_into_one_another_are_bounded(fixture: BrokerFixture) -> None:
    """Each message is somewhere in the end, and none goes round for ever."""
    for name, other in (("p", "q"), ("q", "p")):
        exchange_of(fixture, "fanout", f"{name}-queue", name=name)
        policy: dict[str, str | int | list[str]] = {"max.length": 1, "dead.letter": other}
        fixture.meta.create_channel(f"{name}-queue", "c", policy)
    for number in range(40):
        publish(fixture, b"%d" % number, to="p")
    for _ in range(12):
        fixture.clock.advance(1)
        settle(fixture, 10)

    names = [name for name in fixture.meta.registry.by_name if name.endswith(".parking")]
    found: set[bytes] = set()
    for name in (*names, "p-queue", "q-queue"):
        found |= {each.value or b"" for each in records(fixture, name)}
    assert found == {b"%d" % number for number in range(40)}
    sizes = [len(records(fixture, name)) for name in ("p", "q", "p-queue", "q-queue")]
    assert max(sizes) <= 160


def test_sent_back_letters_are_routed_anew(fixture: BrokerFixture) -> None:
    """Once there is a binding, what was unroutable comes to its target."""
    exchange_of(fixture, "direct", "a")
    publish(fixture, b"b", values=[b"1"])
    publish(fixture, b"b", values=[b"2"])
    settle(fixture)
    fixture.clock.advance(1)
    (queue,) = fixture.operate("dlq.list")["queues"]
    assert (queue["target"], queue["messages"]) == ("x.unroutable", 2)
    assert (queue["topics"], queue["channel"], queue["kept"]) == (["x"], None, 0)
    bind(fixture.meta, "x", "a", "b")

    begun = fixture.operations.run("dlq.redrive", {"target": "x.unroutable", "limit": 100})
    result: list[Any] = []
    Deferred.fromCoroutine(begun).addBoth(result.append)
    for _ in range(30):
        fixture.clock.advance(0.1)
        settle(fixture, 5)

    assert sorted(fixture.values("a")) == [b"1", b"2"]  # type: ignore[type-var]
    assert result[0]["failed"] == []
    (queue,) = fixture.operate("dlq.list")["queues"]
    assert queue["messages"] == 0
