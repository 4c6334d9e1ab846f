"""What the exchange's log keeps for its router, what a full or slow disk does, what is removed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.broker.routing.exchanging import (
    exchange_of,
    publish,
    records,
    router_of,
    settle,
)
from tests.fakes.broker import BrokerDisk, BrokerFixture, HeldBackground, HeldSyncer, refused
from tinymq.broker.letters import facts_of
from tinymq.errors import Overloaded

HOUR = 3_600_000


def stuck(tmp_path: Path, **settings: Any) -> BrokerFixture:
    """A broker with an exchange whose log is short, and whose target takes nothing."""
    broker = BrokerFixture(tmp_path)
    exchange_of(broker, "fanout", "a", retention_ms=1000, segment_bytes=4096, **settings)
    broker.partition("a").refusals["test"] = Overloaded("it is full")
    for number in range(10):
        publish(broker, b"k", values=[b"%d" % number + bytes(3000)])
        settle(broker, 4)
    return broker


def age(broker: BrokerFixture, ms: int = HOUR) -> None:
    """Let time pass, and retention do its work."""
    broker.wall.now_ms += ms
    broker.housekeeping.apply_retention()
    settle(broker)


def free(broker: BrokerFixture) -> None:
    """Let the target take what it gets."""
    broker.partition("a").refusals.clear()
    broker.clock.advance(31)
    settle(broker)


def test_what_is_not_copied_stays(tmp_path: Path) -> None:
    """Retention removes it when its copies are there."""
    broker = stuck(tmp_path)
    age(broker)
    row = broker.operate("topic.info", name="x")["topic"]["partitions"][0]["held"]
    held = broker.partition("x").log.start_offset
    free(broker)
    age(broker)

    assert held == 0
    assert (row["channel"], row["offset"]) == ("tinymq.router", 0)
    assert len(broker.values("a")) == 10
    assert broker.partition("x").log.start_offset == 10


def test_what_is_held_too_long_is_a_dead_letter(tmp_path: Path) -> None:
    """The topic's choice is the default one: it goes on, and nothing is lost."""
    broker = stuck(tmp_path, hold_max_ms=60_000)
    age(broker)
    age(broker)

    letters = records(broker, "x.unroutable")
    assert [int((each.value or b"")[:1]) for each in letters] == list(range(10))
    assert {facts_of(each.headers).reason for each in letters} == {"retention"}
    assert broker.partition("x").log.start_offset == 10
    assert router_of(broker).routes.pending == 0
    free(broker)
    assert broker.values("a") == []


def test_producers_are_refused_meanwhile(tmp_path: Path) -> None:
    """Where the topic wants it so."""
    broker = stuck(tmp_path, hold_max_ms=60_000, hold_then="refuse")
    age(broker)

    refusal = refused(publish(broker, b"k"))
    assert "exchange info x" in refusal.text
    assert refusal.data["channel"] == "tinymq.router"
    free(broker)
    age(broker)
    assert len(broker.values("a")) == 10
    publish(broker, b"k")
    settle(broker)
    assert len(broker.values("a")) == 11


def test_what_is_dropped_is_counted(tmp_path: Path) -> None:
    """Where the topic wants it so; what comes later is copied."""
    broker = stuck(tmp_path, hold_max_ms=60_000, hold_then="drop")
    age(broker)
    publish(broker, b"k", values=[b"new"])
    settle(broker)
    free(broker)

    assert broker.values("a")[-1] == b"new"
    (row,) = broker.node.routers()["rows"]
    assert row["missing"] + len(broker.values("a")) == 11
    assert row["missing"] >= 9
    assert row["pending"] == 0


def test_what_was_purged_is_counted(fixture: BrokerFixture) -> None:
    """People took it away before it was copied."""
    exchange_of(fixture, "fanout", "a")
    fixture.partition("a").refusals["test"] = Overloaded("it is full")
    for number in range(5):
        publish(fixture, b"%d" % number)
        settle(fixture, 3)
    fixture.partition("x").purge(3, fixture.wall())
    free(fixture)

    assert fixture.values("a") == [b"3", b"4"]
    (row,) = fixture.node.routers()["rows"]
    assert (row["missing"], row["pending"], row["copied"]) == (3, 0, 2)


def test_a_slow_disk_is_not_waited_for(tmp_path: Path) -> None:
    """What is not in memory is read elsewhere, and then copied."""
    disk, background = BrokerDisk(), HeldBackground()
    broker = BrokerFixture(tmp_path, disk=disk, background=background)
    exchange_of(broker, "direct", "a")
    disk.cached = False
    publish(broker, b"a", b"b")
    settle(broker)
    before = router_of(broker).routes.cursor
    fetching = bool(background.waiting)
    for _ in range(40):
        if background.waiting:
            background.release()
        disk.cached = True
        settle(broker, 3)

    assert (before, fetching) == (0, True)
    assert broker.values("a") == [b"a"]
    assert len(records(broker, "x.unroutable")) == 1


def test_a_ledger_that_cannot_be_written(tmp_path: Path) -> None:
    """Nothing is brought before the plan is on the disk; it goes on when there is room."""
    disk = BrokerDisk()
    broker = BrokerFixture(tmp_path, disk=disk)
    exchange_of(broker, "fanout", "a")
    settle(broker)
    publish(broker, b"1")
    broker.turn()
    disk.room = 0
    settle(broker)
    router = router_of(broker)
    seen = router.routes.pending, broker.partition("a").log.end_offset
    disk.room = None
    broker.clock.advance(1)
    settle(broker)
    broker.clock.advance(1)
    settle(broker)

    assert broker.values("a") == [b"1"]
    assert router.routes.pending == 0
    assert seen == (1, 0)


def test_nothing_is_brought_before_its_plan_is_on_the_disk(
    held: BrokerFixture, syncer: HeldSyncer
) -> None:
    """Else a power cut could give its number to another record, which would look like a repeat."""
    exchange_of(held, "fanout", "a")
    settle(held)
    while syncer.groups:
        syncer.release()
        settle(held)
    publish(held, b"1")
    settle(held)
    seen: list[tuple[int, int]] = []
    for _ in range(4):
        router = router_of(held)
        seen.append((router.routes.cursor, held.partition("a").log.end_offset))
        if syncer.groups:
            syncer.release()
        settle(held)

    assert seen[:3] == [(0, 0), (1, 0), (1, 1)]
    assert held.values("a") == [b"1"]


@pytest.mark.parametrize("policy", ["interval", "os"])
def test_other_sync_policies(fixture: BrokerFixture, policy: str) -> None:
    """The plan is on the disk first, whatever the topic promises."""
    exchange_of(fixture, "fanout", "a", sync=policy)
    publish(fixture, b"1")
    settle(fixture)

    assert fixture.values("a") == [b"1"]
