"""A few messages that are not settled do not keep a long log: they go into the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from tests.fakes.broker import BrokerFixture, Wall
from tests.fakes.taking import Taken, Taker
from tinymq.broker import ledger as ledgers
from tinymq.broker import stragglers
from tinymq.broker.hosted import Hosted

HOUR = 3_600_000
TOTAL = 40


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let it be worth it for little."""
    monkeypatch.setattr(stragglers, "_LEAST_FREED", 10_000)


def make(path: Path, **policy: Any) -> tuple[BrokerFixture, Taker, list[Taken]]:
    """A consumer that has taken all messages of a topic with many files."""
    broker = BrokerFixture(path)
    broker.topic(retention_ms=1000, segment_bytes=4096)
    broker.meta.create_channel("t", "c", policy)
    for number in range(TOTAL):
        broker.produce(b"%d" % number + bytes(3000), b"%d-second" % number)
    taker = Taker(broker)
    taker.subscribe(credit=10 * TOTAL)
    messages = taker.take()
    while len(messages) < 2 * TOTAL:
        taker.run()
        messages += taker.take()
    return broker, taker, messages


def hosted_of(broker: BrokerFixture) -> Hosted:
    """The channels of the only partition."""
    found = broker.broker.channels.hosted(broker.meta.describe("t").id, 0)
    assert found is not None
    return found


def age(broker: BrokerFixture, ms: int = HOUR) -> None:
    """Let time pass, and retention do its work."""
    broker.wall.now_ms += ms
    broker.housekeeping.apply_retention()
    broker.clock.pump([0] * 12)


def start_of(broker: BrokerFixture) -> int:
    """The first offset that is kept in the log."""
    return broker.partition().log.start_offset


def values(messages: list[Taken]) -> dict[int, bytes]:
    """The beginning of each value, by offset."""
    return {each.offset: (each.value or b"")[:9].rstrip(b"\0") for each in messages}


def left_over(
    broker: BrokerFixture, taker: Taker, messages: list[Taken], *late: int, **facts: Any
) -> None:
    """Finish all but some, which come again after some time."""
    taker.finish(*(each for each in messages if each.offset not in late))
    taker.requeue(*(messages[offset] for offset in late), **{"d": 20_000, "x": "no", **facts})
    age(broker)


@pytest.mark.parametrize("order", ["none", "key", "strict"])
def test_they_come_from_the_ledger(tmp_path: Path, order: str) -> None:
    """The files go, and the messages come with the same offset, value and attempts."""
    broker, taker, messages = make(tmp_path, order=order)
    if order == "none":
        left_over(broker, taker, messages, 3, 6, 7, 20)
    else:
        left_over(broker, taker, messages, 3)
    start = start_of(broker)
    kept = hosted_of(broker).stragglers.offsets
    taker.run(21)
    again = taker.take()
    reply = taker.finish(*again)
    age(broker)

    assert start == start_of(broker) == 2 * TOTAL
    assert kept == [3, 6, 7, 20] if order == "none" else kept == [3]
    assert [each.offset for each in again] == kept
    assert values(again) == {
        offset: b"%d-second" % (offset // 2) if offset % 2 else b"%d" % (offset // 2)
        for offset in kept
    }
    assert {(each.attempt, each.failures) for each in again} == {(2, 1)}
    assert (reply.done, reply.late) == (len(kept), [])
    assert hosted_of(broker).stragglers.offsets == kept
    hosted_of(broker).stragglers.snapshot(0)
    assert hosted_of(broker).stragglers.offsets == []


def test_they_outlive_a_kill_and_a_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever happens to the ledger, they are there and come once."""
    monkeypatch.setattr(ledgers, "_GROWN_BYTES", 100)
    broker, taker, messages = make(tmp_path)
    left_over(broker, taker, messages, 3, 20)
    broker.produce(b"new")
    for message in taker.take():
        taker.finish(message)
    hosted_of(broker).ledger.behind = True
    hosted_of(broker).written()
    broker.clock.pump([0] * 6)
    start = start_of(broker)
    broker.kill()

    again = broker.again()
    other = Taker(again)
    other.subscribe()
    other.run(30)
    found = other.take()
    other.finish(*found)
    again.kill()
    last = Taker(again.again())
    last.subscribe()
    last.run(60)

    assert start > 70
    assert {3, 20} <= values(found).keys()
    assert values(found)[3] == b"1-second"
    assert values(found)[20] == b"10"
    assert last.values == []


def test_what_is_in_flight_stays_with_its_holder(tmp_path: Path) -> None:
    """Its lease goes on, and the settle is taken."""
    broker, taker, messages = make(tmp_path)
    taker.finish(*(each for each in messages if each.offset != 5))
    age(broker)
    start = start_of(broker)
    reply = taker.finish(messages[5])

    assert start == 2 * TOTAL
    assert taker.lost == []
    assert (reply.done, reply.late) == (1, [])


def test_they_are_buried_as_others_are(tmp_path: Path) -> None:
    """What fails for the last time has its body in the dead-letter topic."""
    broker, taker, messages = make(tmp_path, attempts=2)
    left_over(broker, taker, messages, 3)
    taker.run(21)
    taker.requeue(*taker.take(), x="again")
    broker.clock.pump([0] * 12)

    assert start_of(broker) == 2 * TOTAL
    assert broker.values("t.c.dead") == [b"1-second"]


def test_a_purge_takes_them_too(tmp_path: Path) -> None:
    """People who remove everything have removed them."""
    broker, taker, messages = make(tmp_path)
    left_over(broker, taker, messages, 3, 20)
    broker.operate("topic.purge", name="t", before=20)
    broker.clock.pump([0] * 6)
    some = hosted_of(broker).queue.channels["c"].counts(2 * TOTAL).backlog
    broker.operate("topic.purge", name="t")
    broker.clock.pump([0] * 6)
    taker.run(60)

    assert some == 1
    assert taker.values == []
    assert hosted_of(broker).queue.channels["c"].counts(2 * TOTAL).backlog == 0


def test_many_or_large_ones_stay_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is for little that holds up much."""
    monkeypatch.setattr(stragglers, "_MOST_KEPT", 3)
    broker, taker, messages = make(tmp_path)
    left_over(broker, taker, messages, 2, 10, 12, 14, 16, 18)
    few = start_of(broker)
    monkeypatch.setattr(stragglers, "_MOST_KEPT", 100)
    monkeypatch.setattr(stragglers, "_MOST_BYTES", 4000)
    age(broker)

    assert few <= 14
    assert start_of(broker) == few


def test_another_channel_that_is_behind_keeps_the_log(tmp_path: Path) -> None:
    """What a channel has not even begun with is no straggler."""
    broker, taker, messages = make(tmp_path)
    broker.meta.create_channel("t", "late", {})
    left_over(broker, taker, messages, 3)

    assert start_of(broker) == 0
    assert hosted_of(broker).stragglers.offsets == []


def operated(broker: BrokerFixture, name: str, /, **arguments: Any) -> None:
    """Carry out an operation that waits for the disk."""
    done: list[Any] = []
    Deferred.fromCoroutine(broker.operations.run(name, arguments)).addCallback(done.append)
    broker.clock.pump([0] * 6)
    assert done


def rest_of(broker: BrokerFixture) -> list[int]:
    """The offsets that a new consumer is given."""
    other = Taker(broker)
    other.subscribe(credit=10 * TOTAL)
    other.run(60)
    return sorted({each.offset for each in other.take()})


def test_who_goes_back_to_the_beginning_keeps_them(tmp_path: Path) -> None:
    """They are the first that there are; only what was settled of them stays so."""
    broker, taker, messages = make(tmp_path)
    left_over(broker, taker, messages, 3, 20)
    taker.run(21)
    taker.finish(*(each for each in taker.take() if each.offset == 3))
    broker.produce(b"new")
    plan = broker.operate("channel.seek", topic="t", name="c", to="earliest", dry_run=True)
    operated(broker, "channel.seek", topic="t", name="c", to="earliest")
    taker.unsubscribe()

    assert plan["plan"]["skipped"] == 0
    assert rest_of(broker) == [20, 2 * TOTAL]


def test_emptying_settles_them_until_it_is_taken_back(tmp_path: Path) -> None:
    """A restart in between loses nothing of that."""
    broker, taker, messages = make(tmp_path)
    left_over(broker, taker, messages, 3, 20)
    operated(broker, "channel.empty", topic="t", name="c")
    taker.run(30)
    emptied = taker.values
    broker.kill()
    again = broker.again(wall=Wall(broker.broker.channels.now()))
    again.clock.pump([0] * 6)
    operated(again, "channel.undo_seek", topic="t", name="c")

    assert emptied == []
    assert rest_of(again) == [3, 20]


def test_a_crash_brings_back_nothing_that_was_purged(tmp_path: Path) -> None:
    """Not even in the turn of the purge, of which no other file needs to know."""
    broker, taker, messages = make(tmp_path)
    left_over(broker, taker, messages, 3, 20)
    broker.operate("topic.purge", name="t", before=10)
    broker.kill()

    assert rest_of(broker.again()) == [20]


def test_what_is_purged_while_it_is_copied_is_gone(tmp_path: Path) -> None:
    """The copy that is on its way to the disk is of no use any more."""
    broker, taker, messages = make(tmp_path)
    taker.finish(*(each for each in messages if each.offset != 3))
    broker.clock.pump([0] * 6)
    broker.wall.now_ms += HOUR
    broker.housekeeping.apply_retention()
    broker.operate("topic.purge", name="t", before=10)
    broker.clock.pump([0] * 6)

    assert hosted_of(broker).stragglers.offsets == []
    assert hosted_of(broker).queue.channels["c"].counts(2 * TOTAL).backlog == 0


def test_all_of_them_together_are_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept bounds what may be copied, and what turns out too long is let go."""
    broker, taker, messages = make(tmp_path)
    left_over(broker, taker, messages, 2)
    monkeypatch.setattr(stragglers, "_MOST_BYTES", 6000)
    for number in range(10):
        broker.produce(b"%d" % number + bytes(3000))
    last = taker.take()
    while len(last) < 11:
        taker.run(21)
        last += taker.take()
    taker.finish(*(each for each in last if each.offset in range(84, 90)))
    taker.requeue(*(each for each in last if each.offset in (80, 82)), d=60_000)
    age(broker)
    held = hosted_of(broker).stragglers

    assert held.offsets == [2]
    assert held._copied == {}
    assert len(held.snapshot(0)) == 1
