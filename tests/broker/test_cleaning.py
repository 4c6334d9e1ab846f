"""Compaction on a broker: when, what it leaves, and what channels and readers see of it."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.broker import (
    Answers,
    BrokerDisk,
    BrokerFixture,
    HeldBackground,
    LogKeeper,
    batch,
    only,
    refused,
)
from tests.fakes.taking import Taker
from tests.storage.batches import flip, segment_files
from tinymq.broker.peek import look
from tinymq.errors import InvalidRequest
from tinymq.storage import swap
from tinymq.storage.log import Log
from tinymq.wire.batch import split
from tinymq.wire.records import RecordBatch

HOUR = 3_600_000


@pytest.fixture(name="broker")
def fixture_broker(tmp_path: Path) -> BrokerFixture:
    """A broker with one topic that is compacted."""
    broker = BrokerFixture(tmp_path)
    broker.topic(retention_mode="compact", segment_bytes=4096, compact_tombstone_ms=HOUR)
    return broker


def put(broker: BrokerFixture, **rows: bytes | None) -> None:
    """Publish a record for each key."""
    only(publish(broker, *rows.values(), keys=[name.encode() for name in rows]))


def publish(broker: BrokerFixture, *values: bytes | None, **columns: Any) -> Answers:
    """Publish a batch."""
    answers: Answers = []
    topic = broker.meta.describe("t")
    broker.broker.produce(topic.id, 0, batch(*values, **columns), answers.append)
    broker.turn()
    return answers


def clean(broker: BrokerFixture) -> None:
    """Clean it all, its newest file too."""
    broker.operate("topic.compact", name="t")
    for _ in range(5):
        broker.turn()
        broker.clock.advance(0)


def held(broker: BrokerFixture) -> dict[bytes | None, bytes | None]:
    """The records that a reader gets, by key."""
    log = broker.partition().log
    found: dict[bytes | None, bytes | None] = {}
    offset = log.start_offset
    while offset < log.written_offset:
        chunk = log.read(offset, 1 << 20, log.written_offset)
        assert chunk is not None
        for _, data in split(chunk.data):
            for record in RecordBatch(bytes(data)):
                assert record.key not in found
                found[record.key] = record.value
        offset = chunk.next_offset
    return found


class TestPublishing:
    def test_without_a_key(self, broker: BrokerFixture) -> None:
        """A record without a key is refused whole with its batch, and the error says why."""
        error = refused(publish(broker, b"1", b"2", keys=[b"a", None]))
        assert isinstance(error, InvalidRequest)
        assert error.data == {"field": "retention.mode"}
        assert "record 1 of 2 has no key" in error.text
        assert isinstance(refused(publish(broker, b"1")), InvalidRequest)
        assert broker.partition().log.end_offset == 0

    def test_not_due_yet(self, broker: BrokerFixture) -> None:
        """So is one that is to come later."""
        error = refused(publish(broker, b"1", dues=[-5000]))
        assert isinstance(error, InvalidRequest)

    def test_other_modes(self, broker: BrokerFixture) -> None:
        """What has no key is taken under another mode, and stays when the mode comes back."""
        broker.operate("topic.alter", name="t", config={"retention.mode": "limits"})
        only(publish(broker, b"plain"))
        broker.operate("topic.alter", name="t", config={"retention.mode": "compact"})
        put(broker, a=b"1")
        put(broker, a=b"2")
        clean(broker)
        assert held(broker) == {None: b"plain", b"a": b"2"}

    def test_memory(self, broker: BrokerFixture) -> None:
        """A topic in memory has no files to clean."""
        with pytest.raises(InvalidRequest):
            broker.topic("m", storage="memory", retention_mode="compact")

    def test_metadata(self, broker: BrokerFixture) -> None:
        """Who asks where a topic is hears that offsets may be without a record."""
        broker.topic("plain")
        rows = {row[0]: row[3] for row in broker.metadata(names=["t", "plain"]).topics}
        assert rows["t"].get("compacted") is True
        assert "compacted" not in rows["plain"]


class TestWhen:
    def fill(self, broker: BrokerFixture, count: int = 12) -> None:
        """Publish about as many files as a third of the count."""
        for number in range(count):
            put(broker, a=b"%d" % number * 600, b=b"x" * 600)

    def test_by_the_clock(self, broker: BrokerFixture, logged: LogKeeper) -> None:
        """What is dirty enough is cleaned by itself, and told of."""
        broker.housekeeping.start()
        self.fill(broker)
        before = broker.partition().log.size_bytes
        broker.clock.advance(15)
        assert broker.partition().log.size_bytes < before / 2
        (row,) = broker.operate("topic.compact", name="t", dry_run=True)["compaction"]["partitions"]
        assert row["saved"] > before / 2
        assert row["cleaned_ms"] == broker.wall.now_ms
        assert [text for text in logged.texts if "cleaned up to offset" in text]

    def test_not_worth_it(self, broker: BrokerFixture) -> None:
        """What is not dirty enough waits until it is."""
        broker.operate("topic.alter", name="t", config={"compact.min.dirty": 60})
        for number in range(30):
            put(broker, **{f"k{number}": b"x" * 1200})
        clean(broker)
        for number in range(9):
            put(broker, **{f"k{number}": b"y" * 1200})
        size = broker.partition().log.size_bytes
        broker.broker.cleaning.look()
        assert broker.partition().log.size_bytes == size
        broker.operate("topic.alter", name="t", config={"compact.min.dirty": 5})
        broker.broker.cleaning.look()
        assert broker.partition().log.size_bytes < size

    def test_young_records(self, broker: BrokerFixture) -> None:
        """Records younger than the topic's lag stay, though newer ones are there."""
        broker.operate("topic.alter", name="t", config={"compact.lag.ms": 5000})
        self.fill(broker)
        size = broker.partition().log.size_bytes
        clean(broker)
        assert broker.partition().log.size_bytes == size
        broker.wall.now_ms += 5000
        clean(broker)
        assert held(broker) == {b"a": b"11" * 600, b"b": b"x" * 600}

    def test_newest_file_in_the_end(self, broker: BrokerFixture) -> None:
        """The newest file of a quiet topic is closed after an hour, if that is worth it."""
        put(broker, a=b"1")
        put(broker, a=b"2")
        broker.broker.cleaning.look()
        assert broker.partition().log.segment_count == 1
        broker.wall.now_ms += HOUR
        broker.broker.cleaning.look()
        assert held(broker) == {b"a": b"2"}

    def test_tombstones(self, broker: BrokerFixture) -> None:
        """A record without a value goes when it has stayed long enough, without other reason."""
        put(broker, a=b"1", b=b"1")
        put(broker, a=None)
        clean(broker)
        assert held(broker) == {b"a": None, b"b": b"1"}
        broker.wall.now_ms += HOUR - 1
        broker.broker.cleaning.look()
        assert b"a" in held(broker)
        broker.wall.now_ms += 1
        broker.broker.cleaning.look()
        assert held(broker) == {b"b": b"1"}

    def test_remembered(self, broker: BrokerFixture) -> None:
        """A restarted broker knows what is clean, and since when."""
        put(broker, a=b"1")
        put(broker, a=None)
        clean(broker)
        broker.kill()
        again = broker.again()
        rows = again.operate("topic.compact", name="t", dry_run=True)["compaction"]
        assert rows["dirty"] == 0
        again.wall.now_ms = broker.wall.now_ms + HOUR
        again.broker.cleaning.look()
        assert held(again) == {}

    def test_limits(self, broker: BrokerFixture) -> None:
        """The newest of each key stays for ever, or as long as the limits say."""
        put(broker, a=b"1")
        broker.operate("topic.alter", name="t", config={"retention.ms": 1000})
        broker.wall.now_ms += 2000
        broker.housekeeping.apply_retention()
        assert held(broker) == {b"a": b"1"}
        broker.operate("topic.alter", name="t", config={"retention.mode": "compact_limits"})
        broker.housekeeping.apply_retention()
        assert held(broker) == {}

    def test_not_compacted(self, broker: BrokerFixture) -> None:
        """A topic whose mode is another one is not cleaned, and who asks for it hears that."""
        broker.operate("topic.alter", name="t", config={"retention.mode": None})
        self.fill(broker)
        size = broker.partition().log.size_bytes
        broker.broker.cleaning.look()
        assert broker.partition().log.size_bytes == size
        with pytest.raises(InvalidRequest, match="not compacted"):
            broker.operate("topic.compact", name="t")

    def test_undo(self, broker: BrokerFixture) -> None:
        """A purge can be taken back after a cleaning, and nothing deleted comes back with it."""
        put(broker, a=b"1", b=b"1")
        clean(broker)
        put(broker, c=b"1")
        broker.operate("topic.purge", name="t", before=2)
        put(broker, a=None)
        clean(broker)
        broker.wall.now_ms += 2 * HOUR
        clean(broker)
        broker.operate("topic.undo_purge", name="t")
        clean(broker)
        found = held(broker)
        assert found[b"a"] is None
        assert (found[b"b"], found[b"c"]) == (b"1", b"1")


class TestTrouble:
    def test_full_disk(self, broker: BrokerFixture, logged: LogKeeper) -> None:
        """A cleaning that finds no room leaves all as it was, and is tried again later."""
        TestWhen().fill(broker)
        assert isinstance(broker.disk, BrokerDisk)
        files = len(list(Path(broker.partition().log.path).iterdir()))
        broker.disk.room = 100
        clean(broker)
        broker.disk.room = None
        assert len(held_rows(broker)) == 24
        names = [each.name for each in Path(broker.partition().log.path).iterdir()]
        assert len(names) <= files + 1
        assert not [name for name in names if "cleaned." in name or name == swap.NAME]
        assert [text for text in logged.texts if "was not cleaned" in text]
        broker.broker.cleaning.look()
        assert len(held_rows(broker)) == 24
        broker.wall.now_ms += 31_000
        broker.broker.cleaning.look()
        assert len(held(broker)) == 2

    def test_files_that_stay(self, broker: BrokerFixture) -> None:
        """What could not be removed after a swap goes before anything else is swapped."""
        TestWhen().fill(broker)
        assert isinstance(broker.disk, BrokerDisk)
        broker.disk.failing["unlink"] = errno.EIO
        clean(broker)
        broker.disk.failing.clear()
        log = broker.partition().log
        assert len(segment_files_of(log)) > log.segment_count
        broker.wall.now_ms += 31_000
        broker.broker.cleaning.look()
        broker.clock.advance(0)
        assert len(segment_files_of(log)) == log.segment_count
        assert len(held(broker)) == 2
        broker.kill()
        assert len(held(broker.again())) == 2

    def test_damage(self, broker: BrokerFixture, logged: LogKeeper) -> None:
        """A damaged file is told of once, and left as it is."""
        TestWhen().fill(broker)
        path = segment_files_of(broker.partition().log)[1]
        flip(path, 700)
        before = Path(path).read_bytes()
        clean(broker)
        clean(broker)
        assert Path(path).read_bytes() == before
        assert len([text for text in logged.texts if "is damaged at byte" in text]) == 1

    def test_deleted_meanwhile(self, tmp_path: Path) -> None:
        """A topic may be deleted while it is cleaned."""
        background = HeldBackground()
        broker = BrokerFixture(tmp_path, background=background)
        broker.topic(retention_mode="compact", segment_bytes=4096)
        TestWhen().fill(broker)
        broker.broker.cleaning.look()
        broker.operate("topic.delete", name="t")
        for _ in range(20):
            if background.waiting:
                background.release()
            broker.turn()
        broker.topic("other", retention_mode="compact")
        assert broker.operate("topic.compact", name="other")["compaction"]["bytes"] == 0

    def test_purged_meanwhile(self, tmp_path: Path) -> None:
        """Files that retention removed while they were cleaned do not come back."""
        background = HeldBackground()
        broker = BrokerFixture(tmp_path, background=background)
        broker.topic(retention_mode="compact", segment_bytes=4096, undo_ms=0)
        TestWhen().fill(broker)
        broker.broker.cleaning.look()
        background.release()
        broker.operate("topic.purge", name="t")
        broker.wall.now_ms += 1000
        broker.housekeeping.apply_retention()
        for _ in range(20):
            if background.waiting:
                background.release()
            broker.turn()
        assert held(broker) == {}
        assert broker.partition().log.report.damaged == ()


def held_rows(broker: BrokerFixture) -> list[bytes | None]:
    """All values that a reader gets."""
    return broker.values()


def segment_files_of(log: object) -> list[str]:
    """The segments of a log."""
    assert isinstance(log, Log)
    return segment_files(log)


class TestChannels:
    def test_old_one_in_flight(self, broker: BrokerFixture) -> None:
        """A message in flight whose record went is settled as ever, and the newer one comes."""
        put(broker, k=b"v1")
        taker = Taker(broker)
        taker.subscribe()
        (delivery,) = taker.take()
        put(broker, k=b"v2")
        clean(broker)
        assert held(broker) == {b"k": b"v2"}

        reply = taker.finish(delivery)
        assert (reply.done, reply.late) == (1, [])
        (newer,) = taker.take()
        assert (newer.value, newer.offset, newer.attempt) == (b"v2", 1, 1)
        taker.finish(newer)
        taker.run(120)
        assert taker.values == []

    def test_not_redelivered(self, broker: BrokerFixture) -> None:
        """One whose time ran out does not come again when its record went."""
        put(broker, k=b"v1")
        put(broker, other=b"o1")
        taker = Taker(broker)
        taker.subscribe()
        taker.take()
        put(broker, k=b"v2")
        clean(broker)

        taker.run(120)

        found = [(each.offset, each.value) for each in taker.take()]
        assert {*found} == {(1, b"o1"), (2, b"v2")}

    def test_retries_and_dead_letters(self, broker: BrokerFixture) -> None:
        """What waits for another attempt, or is given up, is settled when its record went."""
        broker.meta.create_channel("t", "c", {"attempts": 1})
        put(broker, later=b"1", bad=b"1", good=b"1")
        taker = Taker(broker)
        taker.subscribe()
        later, bad, good = taker.take()
        taker.requeue(later, d=5000)
        put(broker, later=b"2", bad=b"2")
        clean(broker)
        taker.reject(bad)
        taker.finish(good)
        taker.finish(*taker.take())
        taker.run(60)
        assert taker.values == []
        info = broker.operate("channel.info", topic="t", name="c")["channel"]
        assert [info[each] for each in ("in_flight", "ready")] == [0, 0]

    def test_passes_over_what_went(self, broker: BrokerFixture) -> None:
        """A channel that begins at the start gets the newest of each key, and settles the rest."""
        for number in range(400):
            put(broker, **{f"k{number % 3}": b"%d" % number})
        clean(broker)
        clean(broker)
        taker = Taker(broker)
        taker.subscribe(start="earliest")

        assert taker.values == [b"397", b"398", b"399"]
        info = broker.operate("channel.info", topic="t", name="c")["channel"]
        assert info["in_flight"] == 3

    @pytest.mark.parametrize("config", [{"order": "key"}, {"order": "strict"}])
    def test_orders(self, broker: BrokerFixture, config: dict[str, str]) -> None:
        """Channels that keep an order go on over what went."""
        broker.meta.create_channel("t", "c", config)
        for number in range(60):
            put(broker, **{f"k{number % 3}": b"%d" % number})
        clean(broker)
        taker = Taker(broker)
        taker.subscribe()
        found = list(taker.values)
        for _ in range(5):
            taker.finish(*taker.take())
            taker.run(1)
            found += taker.values
        assert sorted({value for value in found if value}) == [b"57", b"58", b"59"]


class TestOthers:
    def test_delayed(self, broker: BrokerFixture) -> None:
        """A message that came when it was due does not come once more, though its record went."""
        only(publish(broker, b"1", keys=[b"a"], dues=[-1000]))
        broker.wall.now_ms += 2000
        broker.clock.advance(2)
        assert held(broker) == {b"a": b"1"}
        put(broker, a=b"2")
        clean(broker)
        broker.kill()
        again = broker.again()
        again.clock.advance(2)
        assert held(again) == {b"a": b"2"}

    def test_exchange(self, broker: BrokerFixture) -> None:
        """Each record of an exchange is copied, also one that a newer one replaced."""
        broker.topic("copies")
        broker.carry_out("exchange.create", name="t", kind="fanout")
        broker.carry_out("binding.add", exchange="t", target="copies")
        for number in range(10):
            put(broker, a=b"%d" % number)
        clean(broker)
        broker.clock.pump([0.1] * 20)
        clean(broker)
        assert broker.values("copies") == [b"%d" % number for number in range(10)]
        assert held(broker) == {b"a": b"9"}

    def test_checkpoint(self, broker: BrokerFixture) -> None:
        """After a kill nothing is read that a checkpoint behind the cleaning knows."""
        TestWhen().fill(broker)
        clean(broker)
        broker.housekeeping.checkpoint()
        for _ in range(5):
            broker.clock.advance(1)
        broker.kill()
        log = broker.again().partition().log
        assert (log.report.scanned_bytes, log.report.damaged) == (0, ())

    def test_looking(self, broker: BrokerFixture) -> None:
        """A look at an offset whose record went says so, and a look behind it finds the next."""
        put(broker, a=b"1")
        put(broker, b=b"1")
        put(broker, a=b"2")
        clean(broker)
        found = look(broker.partition(), 0, 5, 1 << 20)
        assert [record.offset for record, _ in found.records] == [1, 2]
        topic = broker.operate("topic.info", name="t")["topic"]
        assert (topic["messages"], topic["partitions"][0]["end"]) == (3, 3)

    def test_producers(self, broker: BrokerFixture) -> None:
        """A producer is known after a kill, though none of its records and no table is left."""
        told = broker.new_producer()
        only(publish(broker, b"1", keys=[b"a"], producer=(told.producer_id, 0, 0)))
        only(publish(broker, b"1", b"1", keys=[b"a", b"b"], producer=(told.producer_id, 0, 1)))
        put(broker, a=b"2", b=b"2")
        clean(broker)
        broker.housekeeping.checkpoint()
        home = Path(broker.partition().log.path).parent
        broker.kill()
        (home / "producers").unlink(missing_ok=True)
        again = broker.again()
        answer = publish(again, b"3", keys=[b"a"], producer=(told.producer_id, 0, 3))
        assert only(answer).duplicate is False
        repeated = publish(again, b"3", keys=[b"a"], producer=(told.producer_id, 0, 3))
        assert only(repeated).duplicate is True

    def test_message_ids(self, broker: BrokerFixture) -> None:
        """An id is known as long as its window is open, though its record went."""
        config = {"dedup.ms": HOUR, "dedup.by": "id"}
        broker.operate("topic.alter", name="t", config=config)
        only(publish(broker, b"1", keys=[b"a"], ids=[b"1" * 16]))
        put(broker, a=b"2")
        clean(broker)
        broker.kill()
        again = broker.again()
        only(publish(again, b"1", keys=[b"a"], ids=[b"1" * 16]))
        assert held(again) == {b"a": b"2"}
