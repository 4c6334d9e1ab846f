"""What goes wrong on the way: cold disks, letters that nobody takes, logs that were cut, stops."""

from __future__ import annotations

from pathlib import Path

import attrs

from tests.broker.routing.exchanging import (
    bind,
    exchange_of,
    publish,
    records,
    router_of,
    settle,
)
from tests.broker.routing.test_judging import slow
from tests.fakes.broker import (
    Answers,
    BrokerDisk,
    BrokerFixture,
    HeldBackground,
    batch,
    only,
    refused,
)
from tinymq.broker.letters import facts_of
from tinymq.broker.partition import Appended
from tinymq.broker.routing import carrying
from tinymq.errors import Overloaded, ShuttingDown, WireError
from tinymq.meta.entries import Put
from tinymq.meta.registry import Topic


def free(broker: BrokerFixture, *names: str) -> None:
    """Let topics take what they get, and let time pass."""
    for name in names:
        broker.partition(name).refusals.clear()
    broker.clock.advance(31)
    settle(broker)


def test_old_records_are_fetched_for_the_place_that_wants_them(tmp_path: Path) -> None:
    """A target that was away for long needs what is in memory no more; others go on meanwhile."""
    disk, background = BrokerDisk(), HeldBackground()
    broker = BrokerFixture(tmp_path, disk=disk, background=background)
    exchange_of(broker, "fanout", "a", "b")
    broker.partition("a").refusals["test"] = Overloaded("it is full")
    for number in range(3):
        publish(broker, b"%d" % number)
        settle(broker)
    disk.cached = False
    router_of(broker).window.let_go()
    background.waiting.clear()
    free(broker, "a")
    before = broker.partition("a").log.end_offset, len(background.waiting)
    background.release()
    settle(broker)
    disk.cached = True

    assert before == (0, 1)
    assert broker.values("a") == broker.values("b") == [b"0", b"1", b"2"]


def test_a_dead_letter_that_is_never_taken_is_parked(fixture: BrokerFixture) -> None:
    """The dead-letter topic takes short ones only."""
    fixture.topic("x.unroutable", max_value_bytes=100)
    exchange_of(fixture, "direct", "a")
    publish(fixture, *[b"k"] * 3, values=[b"1", b"2" * 1000, b"3"])
    settle(fixture, 60)

    assert fixture.values("x.unroutable") == [b"1", b"3"]
    (parked,) = records(fixture, "x.parking")
    facts = facts_of(parked.headers)
    assert (parked.value, facts.reason) == (b"2" * 1000, "unroutable")
    assert "max.value.bytes of x.unroutable" in facts.parked


def test_a_parking_place_that_never_takes_it_is_stuck(fixture: BrokerFixture) -> None:
    """Nothing is lost; it is said what is wrong."""
    for name in ("x.unroutable", "x.parking"):
        fixture.topic(name, max_value_bytes=100)
    exchange_of(fixture, "direct", "a")
    publish(fixture, b"k", values=[b"2" * 1000])
    settle(fixture, 60)

    (row,) = fixture.node.routers()["rows"]
    assert row["stuck"][0]["target"] == "x.parking"
    assert "max.value.bytes of x.parking" in row["stuck"][0]["why"]
    assert row["pending"] == 1


def test_a_dead_letter_topic_that_cannot_be_made(fixture: BrokerFixture) -> None:
    """The letters wait until it can."""
    exchange_of(fixture, "direct", "a")
    meta = fixture.broker.meta
    ensure = meta.ensure_dead_letters
    meta.ensure_dead_letters = lambda origin, name, done: done(Overloaded("too many topics"))  # type: ignore[method-assign]
    publish(fixture, b"k", b"a")
    settle(fixture)
    (row,) = fixture.node.routers()["rows"]
    meta.ensure_dead_letters = ensure  # type: ignore[method-assign]
    fixture.clock.advance(2)
    settle(fixture)

    assert (row["stuck"][0]["target"], row["stuck"][0]["why"]) == (
        "x.unroutable",
        "too many topics",
    )
    assert fixture.values("a") == [b"a"]
    assert fixture.values("x.unroutable") == [b"k"]


def test_a_target_that_goes_while_its_copies_are_under_way(fixture: BrokerFixture) -> None:
    """They become dead letters, whatever came of them there."""
    exchange_of(fixture, "fanout", "a")
    target = fixture.meta.describe("a")
    waiting = list[object]()
    fixture.broker.neighbours.bring = lambda leader, letters, done: waiting.append(done)  # type: ignore[method-assign,assignment]
    made = fixture.meta.describe("a")
    lead_elsewhere(fixture, made)
    publish(fixture, b"1")
    settle(fixture)
    (done,) = waiting
    fixture.meta.delete_topic("a")
    done(Overloaded("gone"))  # type: ignore[operator]
    settle(fixture)

    (letter,) = records(fixture, "x.unroutable")
    assert letter.value == b"1"
    assert target.id.hex() in facts_of(letter.headers).text


def lead_elsewhere(fixture: BrokerFixture, topic: Topic) -> None:
    """Let another broker lead a topic."""
    moved = attrs.evolve(topic, leaders=(7,) * topic.partitions)
    fixture.meta._write([], [Put(f"topic/{topic.id.hex()}", moved.encode())])


def test_a_log_that_was_cut(tmp_path: Path) -> None:
    """What did not survive is forgotten; other records have its offsets, and come once."""
    disk = BrokerDisk()
    broker = BrokerFixture(tmp_path, disk=disk)
    exchange_of(broker, "fanout", "a")
    broker.partition("a").refusals["test"] = Overloaded("it is full")
    for number in range(4):
        publish(broker, b"%d" % number)
        settle(broker)
    routes = router_of(broker).routes
    lane = next(iter(routes.lanes.values()))
    log = broker.partition("x").log
    path = next(Path(log.path).glob("*.log"))
    size = path.stat().st_size
    broker.kill()
    with path.open("r+b") as file:
        file.truncate(size * 2 // 4)
    again = broker.again()
    router = router_of(again)
    end = again.partition("x").log.end_offset
    seen = router.routes.cursor, router.routes.pending, router.routes.lanes[lane.place].next
    publish(again, b"new")
    settle(again)

    assert seen == (end, end, 4)
    assert end < 4
    assert again.values("a") == [*(b"%d" % number for number in range(end)), b"new"]


def test_answers_at_the_end(fixture: BrokerFixture) -> None:
    """Who waits for what is not looked through hears that nobody knows; it may come again."""
    slow(fixture)
    answers = publish(fixture, *[b"a"] * 99)
    fixture.turn()
    fixture.broker.routing.close()

    assert isinstance(refused(answers), ShuttingDown)


def test_a_table_that_breaks_holds_up_nobody(fixture: BrokerFixture) -> None:
    """The batch is answered, and the next one, too."""
    table = slow(fixture)
    first = publish(fixture, *[b"a"] * 99)
    fixture.turn()
    table.targets = broken  # type: ignore[method-assign,assignment]
    settle(fixture, 2)

    assert isinstance(first[0], Appended)
    assert only(first).unroutable is None


def broken(*_: object) -> tuple[str, ...]:
    """Break."""
    raise RuntimeError


def test_a_batch_that_cannot_be_stored_is_looked_through_no_more(fixture: BrokerFixture) -> None:
    """Its answer is the error, at once."""
    table = slow(fixture)
    found: Answers = []
    partition = fixture.partition("x")
    tell = partition.judge
    assert tell is not None
    stored = tell.begin(batch(*[b"v"] * 50, keys=[b"a"] * 50), found.append)
    error: WireError = Overloaded("no")
    stored(error)
    settle(fixture)

    assert found == [error]
    assert table.asked == 2
    assert not tell.open


def test_a_plan_is_asked_for_again(tmp_path: Path) -> None:
    """A ledger that could not be synced at first."""
    disk = BrokerDisk()
    broker = BrokerFixture(tmp_path, disk=disk)
    exchange_of(broker, "fanout", "a")
    settle(broker)
    publish(broker, b"1")
    broker.turn()
    carrier = router_of(broker).carrier
    carrier._synced(0, Overloaded("later"))
    broker.clock.advance(carrying.AGAIN_SECONDS)
    settle(broker)

    assert broker.values("a") == [b"1"]


def test_damage_is_passed_over(tmp_path: Path) -> None:
    """Records that cannot be read any more are counted; those behind them come."""
    broker = BrokerFixture(tmp_path)
    exchange_of(broker, "direct", "a")
    bind(broker.meta, "x", "a", "b")
    for number in range(5):
        publish(broker, b"a", values=[b"%d" % number * 500])
        broker.turn()
        for hosted in broker.broker.channels.all():
            broker.broker.channels._marked.pop(hosted, None)
    path = next(Path(broker.partition("x").log.path).glob("*.log"))
    broker.kill()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    again = broker.again()
    settle(again)

    values = again.values("a")
    (row,) = again.node.routers()["rows"]
    assert values == [b"%d" % number * 500 for number in (0, 1, 3, 4)]
    assert (row["missing"], row["pending"], row["cursor"]) == (1, 0, 5)
