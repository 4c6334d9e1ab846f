"""Retention waits for channels, as long as the topic lets it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.broker.groups.reading import GroupReader
from tests.fakes.broker import BrokerDisk, BrokerFixture, only, refused
from tests.fakes.taking import Taker
from tinymq.broker import holding as holdings
from tinymq.broker.hosted import Hosted
from tinymq.broker.partition import Appended
from tinymq.errors import Overloaded, WireError
from tinymq.meta.registry import channel_key
from tinymq.meta.store import Store
from tinymq.storage.disk import Space

HOUR = 3_600_000


def make(tmp_path: Path, disk: BrokerDisk | None = None, **settings: Any) -> BrokerFixture:
    """A broker with a topic that keeps records for a second, in small files."""
    broker = BrokerFixture(tmp_path, disk=disk)
    broker.topic(**{"retention_ms": 1000, "segment_bytes": 4096, **settings})
    return broker


def hosted_of(broker: BrokerFixture) -> Hosted:
    """The channels of the only partition."""
    found = broker.broker.channels.hosted(broker.meta.describe("t").id, 0)
    assert found is not None
    return found


def fill(broker: BrokerFixture, batches: int = 10) -> None:
    """Publish a file or so with each batch."""
    for number in range(batches):
        answer = broker.produce(b"%d" % number + bytes(3000))
        assert isinstance(answer[0], Appended), answer


def age(broker: BrokerFixture, ms: int = HOUR) -> None:
    """Let time pass, and retention do its work."""
    broker.wall.now_ms += ms
    broker.housekeeping.apply_retention()
    for _ in range(8):
        broker.clock.advance(0)


def start_of(broker: BrokerFixture) -> int:
    """The first offset that is kept."""
    return broker.partition().log.start_offset


def counts(broker: BrokerFixture, name: str = "c") -> Any:
    """What a channel counted."""
    return hosted_of(broker).queue.channels[name].channel.counters


def test_what_is_not_settled_stays(tmp_path: Path) -> None:
    """Retention removes whole files, but none that a channel still needs."""
    broker = make(tmp_path)
    fill(broker)
    taker = Taker(broker)
    taker.subscribe()
    messages = taker.take()
    taker.finish(*messages[:6])
    age(broker)
    held = start_of(broker)
    row = broker.operate("topic.info", name="t")["topic"]["partitions"][0]["held"]
    taker.finish(*messages[6:])
    age(broker)

    assert 0 < held <= 6
    assert (row["channel"], row["offset"]) == ("c", 6)
    assert row["bytes"] > 9000
    assert row["since_ms"] > 0
    assert row["refusing"] is False
    assert start_of(broker) == 10
    assert broker.operate("topic.info", name="t")["topic"]["partitions"][0]["held"] is None


def test_the_slowest_channel_counts(tmp_path: Path) -> None:
    """One that has settled everything does not let go of what another one needs."""
    broker = make(tmp_path)
    fill(broker)
    quick, slow = Taker(broker), Taker(broker)
    quick.subscribe()
    slow.subscribe(channel="slow", credit=0)
    quick.finish(*quick.take())
    age(broker)
    held = start_of(broker)
    broker.operate("channel.delete", topic="t", name="slow")
    age(broker)

    assert held == 0
    assert start_of(broker) == 10


def test_hold_lasts_over_a_restart(tmp_path: Path) -> None:
    """What was held back is still there, and delivered."""
    broker = make(tmp_path)
    fill(broker, 3)
    Taker(broker).subscribe(credit=0)
    age(broker)
    broker.kill()

    again = broker.again()
    age(again)
    taker = Taker(again)
    taker.subscribe()
    taker.run(11)

    assert len(taker.values) == 3


def test_what_is_too_old_goes_to_the_dead_letter_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the bound it is given up, in flight or not, told, buried, and then removed."""
    monkeypatch.setattr(holdings, "_MOST_GIVEN_UP", 3)
    broker = make(tmp_path, hold_max_ms=2 * HOUR)
    fill(broker)
    taker = Taker(broker)
    taker.subscribe(credit=2)
    first, second = taker.take()
    age(broker)
    kept = start_of(broker)
    age(broker, 2 * HOUR)
    for _ in range(10):
        broker.clock.advance(0)
    taker.read()
    reply = taker.finish(first)

    dead = broker.partition("t.c.dead").log.end_offset
    assert kept == 0
    assert dead == 10
    assert start_of(broker) == 10
    assert {lost[1] for lost in taker.lost} == {first.lease, second.lease}
    assert (reply.done, len(reply.late)) == (0, 1)
    assert counts(broker).given_up == 10
    assert b"retention" in broker.fetch(("t.c.dead", 0, 0), max_wait_ms=0).payload


def test_dropping_is_counted(tmp_path: Path) -> None:
    """A topic may let go of it; the channel says how much it was."""
    broker = make(tmp_path, hold_max_ms=2 * HOUR, hold_then="drop")
    fill(broker)
    Taker(broker).subscribe(credit=0)
    age(broker)
    kept = start_of(broker)
    age(broker, 2 * HOUR)

    assert kept == 0
    assert start_of(broker) == 10
    assert counts(broker).skipped == 10
    assert counts(broker).given_up == 0


def test_refusing_names_the_channel_and_ends_by_itself(tmp_path: Path) -> None:
    """Producers hear what to do; they are taken again when the channel has gone on."""
    broker = make(tmp_path, hold_max_bytes=8000, hold_then="refuse")
    broker.topic("other")
    fill(broker)
    taker = Taker(broker)
    taker.subscribe()
    messages = taker.take()
    age(broker)
    error = refused(broker.produce(b"x"))
    row = broker.operate("topic.info", name="t")["topic"]["partitions"][0]["held"]
    other = only(broker.produce(b"y", topic="other"))
    taker.finish(*messages)

    assert isinstance(error, Overloaded)
    assert error.retriable
    assert error.data == {"channel": "c", "partition": 0, "offset": 0}
    assert "hold.then" in error.text
    assert row["refusing"] is True
    assert other.base_offset == 0
    assert only(broker.produce(b"z")).base_offset == 10
    assert start_of(broker) == 10


@pytest.mark.parametrize(
    "config", [{"hold.max.bytes": None}, {"hold.then": "drop"}, {"hold.then": "dead_letter"}]
)
def test_who_alters_the_topic_is_not_kept_waiting(tmp_path: Path, config: dict[str, Any]) -> None:
    """What the refusal says helps at once, not with the next round of retention."""
    broker = make(tmp_path, hold_max_bytes=8000, hold_then="refuse")
    fill(broker)
    taker = Taker(broker)
    taker.subscribe()
    taker.take()
    age(broker)
    assert isinstance(refused(broker.produce(b"x")), Overloaded)

    broker.operate("topic.alter", name="t", config=config)
    for _ in range(8):
        broker.clock.advance(0)

    assert only(broker.produce(b"z")).base_offset == 10


def test_a_disk_that_fills_ends_the_hold_of_those_with_the_most(tmp_path: Path) -> None:
    """What is held back goes when the disk is needed, and a topic with little keeps it."""
    disk = BrokerDisk()
    broker = make(tmp_path, disk, hold_then="drop")
    broker.topic("small", retention_ms=1000, segment_bytes=4096, hold_then="drop")
    fill(broker)
    broker.produce(b"s", topic="small")
    Taker(broker).subscribe(credit=0)
    Taker(broker).subscribe(topic="small", credit=0)
    age(broker)
    reserve = broker.config.storage.reserve_bytes
    disk.free = Space(free=reserve + 20_000, total=1 << 41)
    broker.housekeeping.look_at_space()
    age(broker)
    age(broker)
    before = start_of(broker)
    disk.free = Space(free=reserve + 5_000, total=1 << 41)
    broker.housekeeping.look_at_space()
    age(broker)
    age(broker)

    assert before == 0
    assert start_of(broker) == 10
    assert broker.partition("small").log.start_offset == 0


@pytest.mark.parametrize("storage", ["disk", "memory"])
def test_settled_segments_go_at_once_if_the_topic_says_so(tmp_path: Path, storage: str) -> None:
    """Without channels the limits hold; with some, what all have settled goes."""
    broker = make(tmp_path, retention_ms=HOUR, retention_mode="settled", storage=storage)
    fill(broker)
    age(broker, 1000)
    without = start_of(broker)
    taker = Taker(broker)
    taker.subscribe()
    messages = taker.take()
    taker.finish(*messages[:6])
    age(broker, 1000)
    some = start_of(broker)
    age(broker)

    assert without == 0
    assert 4 <= some <= 6
    assert 4 <= start_of(broker) <= 6


def test_a_purge_settles_what_is_pending_and_tells_its_holder(tmp_path: Path) -> None:
    """People may remove what a channel needs; nobody is given an empty message for it."""
    broker = make(tmp_path)
    fill(broker)
    taker = Taker(broker)
    taker.subscribe(credit=4)
    messages = taker.take()
    broker.operate("topic.purge", name="t", before=8)
    taker.run()
    taker.credit(100)
    late = taker.finish(messages[0])

    assert [lost[0] for lost in taker.lost]
    assert (late.done, len(late.late)) == (0, 1)
    assert [each.offset for each in taker.take()] == [8, 9]
    assert counts(broker).skipped == 8


def test_channels_that_cannot_be_opened_hold_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they need is not known, so nothing goes."""
    broker = make(tmp_path)
    fill(broker)
    Taker(broker).subscribe(credit=0)
    broker.kill()

    def refuse(*_: object) -> None:
        raise OSError("no")

    monkeypatch.setattr("tinymq.broker.partitions.PartitionStore.open_ledger", refuse)
    again = broker.again()
    age(again)

    assert start_of(again) == 0


def test_an_overflow_is_buried_without_any_consumer(tmp_path: Path) -> None:
    """The oldest beyond max.length go to the dead-letter topic, and publishing goes on."""
    broker = make(tmp_path)
    broker.meta.create_channel("t", "c", {"max.length": 3})
    answers: list[Appended | WireError] = []
    for number in range(10):
        answers += broker.produce(b"%d" % number)
        for _ in range(6):
            broker.clock.advance(0)

    assert all(isinstance(answer, Appended) for answer in answers)
    assert broker.partition("t.c.dead").log.end_offset == 7
    taker = Taker(broker)
    taker.subscribe()
    assert taker.values == [b"7", b"8", b"9"]


def test_a_temporary_channel_holds_nothing(tmp_path: Path) -> None:
    """It goes on with what is there."""
    broker = make(tmp_path)
    broker.meta.create_channel("t", "c", {}, "earliest", temporary=True)
    fill(broker)
    taker = Taker(broker)
    taker.subscribe(credit=0)
    age(broker)
    broker.produce(b"new")
    taker.credit(10)

    assert start_of(broker) == 10
    assert taker.values == [b"new"]
    assert counts(broker).skipped == 10


def test_a_channel_that_the_store_lost_holds_what_it_needs(tmp_path: Path) -> None:
    """It may come back with its messages; nothing of them is given up, but they age as others."""
    broker = make(tmp_path, hold_max_ms=3 * HOUR)
    fill(broker)
    taker = Taker(broker)
    taker.subscribe()
    taker.finish(*taker.take()[:4])
    key = channel_key(broker.meta.describe("t").id, "c")
    broker.stop()
    store = Store(tmp_path / "meta.sqlite")
    assert store.delete(key)
    store.close()
    again = broker.again()
    again.meta.create_channel("t", "other", {"dead.letter": "x"})
    again.clock.pump([0] * 6)
    other = Taker(again)
    other.subscribe(channel="other")
    other.finish(*other.take())
    age(again)
    held = start_of(again)
    row = again.operate("topic.info", name="t")["topic"]["partitions"][0]["held"]
    age(again, 4 * HOUR)

    assert 0 < held <= 4
    assert row["channel"] == "c"
    assert start_of(again) == 10


class TestGroups:
    """Consumer groups count where the topic keeps what is not settled."""

    def test_what_a_group_has_not_read_stays(self, tmp_path: Path) -> None:
        """Files go when every group has passed, and not before; who is it is told."""
        broker = make(tmp_path, retention_mode="settled")
        fill(broker)
        GroupReader(broker).commit(5)
        GroupReader(broker, "other").commit(9)
        age(broker)
        held = start_of(broker)
        row = broker.operate("topic.info", name="t")["topic"]["partitions"][0]["held"]
        GroupReader(broker).commit(10)
        age(broker)

        assert 0 < held <= 5
        assert (row["channel"], row["offset"], row["refusing"]) == ("group g", 5, False)
        assert held < start_of(broker) <= 9

    def test_given_and_nothing_read(self, tmp_path: Path) -> None:
        """A group counts from when a member was given the partition."""
        broker = make(tmp_path, retention_mode="settled")
        fill(broker)
        GroupReader(broker).taken(5)
        age(broker)
        held = start_of(broker)
        broker.carry_out("group.delete", name="g")
        age(broker)

        assert held == 0
        assert start_of(broker) == 10

    def test_topics_with_limits_wait_for_no_group(self, tmp_path: Path) -> None:
        """There groups hold nothing, and hear what is there."""
        broker = make(tmp_path)
        fill(broker)
        GroupReader(broker).commit(5)
        age(broker)

        found = GroupReader(broker).committed()
        assert (found.offset, found.start, found.end) == (5, 10, 10)

    def test_with_a_channel(self, tmp_path: Path) -> None:
        """Who is behind the others counts, a channel or a group."""
        broker = make(tmp_path, retention_mode="settled")
        fill(broker)
        taker = Taker(broker)
        taker.subscribe()
        taker.finish(*taker.take())
        GroupReader(broker).commit(5)
        age(broker)
        assert 0 < start_of(broker) <= 5

    @pytest.mark.parametrize("how", ["drop", "dead_letter"])
    def test_beyond_the_bound(self, tmp_path: Path, how: str) -> None:
        """What may not be held any longer goes; the group is told, and its position stays."""
        broker = make(tmp_path, retention_mode="settled", hold_max_ms=2 * HOUR, hold_then=how)
        fill(broker)
        reader = GroupReader(broker)
        reader.commit(5)
        age(broker)
        kept = start_of(broker)
        age(broker, 2 * HOUR)
        found = reader.committed()
        (row,) = broker.carry_out("group.info", name="g")["partitions"]

        assert 0 < kept <= 5
        assert (found.offset, found.start) == (5, 10)
        assert row["error"] == "5 messages before offset 10 were removed before the group read them"
        fill(broker, 2)
        age(broker)
        assert start_of(broker) == 10, "it counts again"

    def test_refusal(self, tmp_path: Path) -> None:
        """Producers are refused with a word on which group it is and what to do."""
        broker = make(tmp_path, retention_mode="settled", hold_max_ms=HOUR, hold_then="refuse")
        fill(broker)
        reader = GroupReader(broker)
        reader.commit(5)
        age(broker, 2 * HOUR)
        error = refused(broker.produce(b"x"))
        assert isinstance(error, Overloaded)
        assert "group g has not read offset 5" in error.text
        assert "tinymq group seek g" in error.text
        reader.commit(10)
        age(broker)
        only(broker.produce(b"x"))
