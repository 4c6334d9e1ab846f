"""What is published to an exchange comes to its targets, once, and in order."""

from __future__ import annotations

import pytest

from tests.broker.routing.exchanging import (
    bind,
    drop_exchange,
    exchange_of,
    make_exchange,
    publish,
    records,
    router_of,
    settle,
    unbind,
    unroutable,
)
from tests.fakes.broker import BrokerFixture
from tinymq.broker.letters import facts_of
from tinymq.broker.routing.planning import MOST_RECORDS
from tinymq.errors import Overloaded
from tinymq.wire.batch import Codec


def test_copies_come_to_the_targets_of_their_keys(fixture: BrokerFixture) -> None:
    """Each record to the topics that a binding names for its key, and to no other."""
    exchange_of(fixture, "direct", "a", "b")
    bind(fixture.meta, "x", "b", "a")

    publish(fixture, b"a", b"b", b"a")
    settle(fixture)

    assert fixture.values("a") == [b"a", b"a"]
    assert fixture.values("b") == [b"a", b"b", b"a"]
    assert fixture.values("x") == [b"a", b"b", b"a"]
    assert router_of(fixture).routes.pending == 0


def test_several_bindings_to_one_target_are_one_copy(fixture: BrokerFixture) -> None:
    """A record that meets two bindings to a topic comes there once."""
    exchange_of(fixture, "topic", "a")
    bind(fixture.meta, "x", "a", "#")
    bind(fixture.meta, "x", "a", "a.*")

    publish(fixture, b"a.b", b"c")
    settle(fixture)

    assert fixture.values("a") == [b"a.b", b"c"]


def test_the_publisher_is_told_what_no_binding_takes(fixture: BrokerFixture) -> None:
    """As bits, of records that are stored all the same and come to the dead-letter topic."""
    exchange_of(fixture, "direct", "a")

    answers = publish(fixture, b"no", b"a", b"nor this", *([b"a"] * 7), b"no")
    settle(fixture)

    assert unroutable(answers) == bytes([0b101, 0b100])
    assert fixture.values("a") == [b"a"] * 8
    letters = records(fixture, "x.unroutable")
    assert [letter.value for letter in letters] == [b"no", b"nor this", b"no"]
    facts = facts_of(letters[1].headers)
    assert (facts.topic, facts.partition, facts.offset) == ("x", 0, 2)
    assert (facts.reason, facts.channel, facts.hops) == ("unroutable", "", 1)
    assert facts.topic_id == fixture.meta.describe("x").id


def test_nothing_is_told_when_all_is_taken(fixture: BrokerFixture) -> None:
    """The answer is that of any topic."""
    exchange_of(fixture, "direct", "a")

    answers = publish(fixture, b"a")
    settle(fixture)

    assert unroutable(answers) is None
    assert "x.unroutable" not in fixture.meta.registry.by_name


def test_copies_are_like_their_records(fixture: BrokerFixture) -> None:
    """Key, value, headers, the producer's time and the time to live."""
    exchange_of(fixture, "direct", "a")
    headers = [[("h", b"1"), ("h", b"2")], []]
    publish(fixture, b"a", b"a", values=[b"v", None], headers=headers, times=[5, 6], ttls=[9, None])
    settle(fixture)

    first, second = records(fixture, "a")
    assert (first.key, first.value, list(first.headers), first.created) == (
        b"a",
        b"v",
        headers[0],
        5,
    )
    assert (second.key, second.value, list(second.headers), second.created) == (b"a", None, [], 6)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("count", [1, 15, 16, 1500, MOST_RECORDS + 1])
def test_batches_of_any_length(fixture: BrokerFixture, count: int, codec: Codec) -> None:
    """As a whole, in parts, or as parts of a longer one, in their order."""
    exchange_of(fixture, "fanout", "a")
    exchange_of(fixture, "direct", "c", name="y")
    values = [b"%d" % number for number in range(count)]
    for name in ("x", "y"):
        publish(fixture, *([b"c"] * count), to=name, values=values, codec=codec)
        publish(fixture, *([b"c", b"d"] * 20), to=name, codec=codec)
    settle(fixture, 100)

    assert fixture.values("a") == [*values, *([b"c", b"d"] * 20)]
    assert fixture.values("c") == [*values, *([b"c"] * 20)]
    assert len(records(fixture, "y.unroutable")) == 20


def test_records_with_a_key_keep_their_order(fixture: BrokerFixture) -> None:
    """All of a key come to one partition; those without one come somewhere."""
    fixture.broker.neighbours.place = lambda key, partitions: int(key) % partitions  # type: ignore[method-assign]
    fixture.topic("a", 3)
    exchange_of(fixture, "fanout", "a")
    keys = [b"%d" % (number % 5) for number in range(50)]
    values = [b"%d" % number for number in range(50)]
    for at in range(0, 50, 5):
        publish(fixture, *keys[at : at + 5], values=values[at : at + 5])
    publish(fixture, None, None)
    publish(fixture, None)
    settle(fixture)

    found = [records(fixture, "a", index) for index in range(3)]
    for index, each in enumerate(found):
        assert {int(one.key or b"") % 3 for one in each if one.key} <= {index}
        numbers = [int(one.value or b"") for one in each if one.key]
        assert numbers == sorted(numbers)
    assert sum(map(len, found)) == 53


def test_an_exchange_behind_another(fixture: BrokerFixture) -> None:
    """Each hop has a log of its own."""
    exchange_of(fixture, "fanout", "a", name="y")
    exchange_of(fixture, "direct", "y", "b")

    answers = publish(fixture, b"y", b"b", b"c")
    settle(fixture)

    assert fixture.values("y") == fixture.values("a") == [b"y"]
    assert fixture.values("b") == [b"b"]
    assert unroutable(answers) == b"\x04"


def test_bindings_count_from_when_they_are_there(fixture: BrokerFixture) -> None:
    """What was planned before is not planned again."""
    exchange_of(fixture, "direct", "a")
    fixture.topic("b")
    publish(fixture, b"a")
    settle(fixture)
    first = bind(fixture.meta, "x", "b", "a")
    publish(fixture, b"a")
    settle(fixture)
    unbind(fixture.meta, "x", first)
    publish(fixture, b"a")
    settle(fixture)

    assert len(fixture.values("a")) == 3
    assert len(fixture.values("b")) == 1


def test_a_topic_that_becomes_an_exchange_begins_there(fixture: BrokerFixture) -> None:
    """What was published before is not routed, what comes then is."""
    topic = fixture.topic("x")
    fixture.topic("a")
    publish(fixture, b"a", values=[b"old"])
    settle(fixture)
    fixture.wall.now_ms += 1000
    make_exchange(fixture.meta, topic, since=fixture.wall.now_ms)
    bind(fixture.meta, "x", "a", "a")
    publish(fixture, b"a", values=[b"new"])
    settle(fixture)

    assert fixture.values("a") == [b"new"]

    drop_exchange(fixture.meta, topic)
    publish(fixture, b"a", values=[b"between"])
    settle(fixture)
    fixture.wall.now_ms += 1000
    make_exchange(fixture.meta, topic, since=fixture.wall.now_ms)
    bind(fixture.meta, "x", "a", "a")
    publish(fixture, b"a", values=[b"newer"])
    settle(fixture)

    assert fixture.values("a") == [b"new", b"newer"]


def test_an_exchange_made_anew_brings_what_was_planned(fixture: BrokerFixture) -> None:
    """In order, and by the numbers that it had."""
    topic = exchange_of(fixture, "fanout", "a")
    target = fixture.meta.describe("a").id
    publish(fixture, b"1")
    settle(fixture)
    router = router_of(fixture)
    fixture.partition("a").refusals["test"] = Overloaded("it is full")
    publish(fixture, b"2")
    settle(fixture)
    producer = router.carrier._producer()
    drop_exchange(fixture.meta, topic)
    fixture.wall.now_ms += 1000
    make_exchange(fixture.meta, topic, "fanout", since=fixture.wall.now_ms)
    bind(fixture.meta, "x", "a")
    settle(fixture)

    assert router.carrier._producer() == producer
    assert router.routes.lanes[target, 0].pending == 1
    fixture.partition("a").refusals.clear()
    publish(fixture, b"3")
    fixture.clock.advance(31)
    settle(fixture)
    assert fixture.values("a") == [b"1", b"2", b"3"]


@pytest.mark.parametrize("clean", [True, False])
def test_it_goes_on_where_it_was(fixture: BrokerFixture, clean: bool) -> None:
    """After a start nothing comes twice, and what was not copied yet comes."""
    exchange_of(fixture, "direct", "a")
    publish(fixture, b"a", values=[b"1"])
    settle(fixture)
    publish(fixture, b"a", values=[b"2"])
    fixture.turn()
    if clean:
        fixture.stop()
    else:
        fixture.kill()
    again = fixture.again()
    settle(again)
    publish(again, b"a", values=[b"3"])
    settle(again)

    assert again.values("a") == [b"1", b"2", b"3"]


def test_what_is_planned_is_brought_though_it_is_no_exchange(fixture: BrokerFixture) -> None:
    """Even after a restart; nothing is planned any more, and then it is a topic like any other."""
    topic = exchange_of(fixture, "fanout", "a")
    fixture.partition("a").refusals["test"] = Overloaded("it is full")
    publish(fixture, b"1")
    settle(fixture)
    drop_exchange(fixture.meta, topic)
    settle(fixture)
    fixture.kill()
    again = fixture.again()
    publish(again, b"2")
    settle(again)
    first = again.values("a")
    router = router_of(again)
    again.kill()
    last = again.again()
    settle(last)

    assert first == [b"1"]
    assert router.routes.pending == 0
    assert last.values("a") == [b"1"]
    assert router_of(last).routes.pending == 0


def test_memory_topics_are_exchanges_too(fixture: BrokerFixture) -> None:
    """Their copies are made in the same way, without a ledger."""
    exchange_of(fixture, "direct", "a", storage="memory")
    answers = publish(fixture, b"a", b"b")
    settle(fixture)

    assert unroutable(answers) == b"\x02"
    assert fixture.values("a") == [b"a"]
    assert len(records(fixture, "x.unroutable")) == 1


def test_what_is_not_due_yet_is_routed_when_it_is(fixture: BrokerFixture) -> None:
    """By the bindings of then; its publisher is not told of what no binding takes."""
    exchange_of(fixture, "direct", "a")
    answers = publish(fixture, b"a", b"b", values=[b"1", b"2"], dues=[-1000, -1000])
    settle(fixture)
    before = fixture.values("a")
    bind(fixture.meta, "x", "a", "b")
    for _ in range(3):
        fixture.wall.now_ms += 1000
        fixture.clock.advance(1)
        settle(fixture)

    assert before == []
    assert unroutable(answers) is None
    assert fixture.values("a") == [b"1", b"2"]
