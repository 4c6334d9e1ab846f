"""The dedup window: which records are repeats, what is answered, and what a restart knows."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from tests.broker.conftest import MakeBroker
from tests.fakes.broker import (
    BEGIN_MS,
    Answers,
    BrokerFixture,
    HeldSyncer,
    batch,
    only,
    refused,
)
from tinymq.broker.partition import Appended
from tinymq.config import Config, ProducersConfig
from tinymq.errors import InvalidRequest, Overloaded, WireError
from tinymq.wire.batch import TRANSACTIONAL, build, read_header, split
from tinymq.wire.records import RecordBatch, encode_batch

HOUR = 3_600_000


def id_of(number: int) -> bytes:
    """A message id."""
    return number.to_bytes(16, "big")


def stage(broker: BrokerFixture, data: bytes) -> Answers:
    """Publish a batch in the present turn."""
    answers: Answers = []
    broker.broker.produce(broker.meta.describe("t").id, 0, data, answers.append)
    return answers


def publish(broker: BrokerFixture, *numbers: int, **columns: Any) -> Appended:
    """Publish records with ids, whose values are their numbers."""
    ids = [id_of(number) for number in numbers]
    answers = stage(broker, batch(*(b"%d" % number for number in numbers), ids=ids, **columns))
    broker.turn()
    return only(answers)


def values(broker: BrokerFixture) -> list[bytes | None]:
    """All values that are there."""
    return broker.values()


@pytest.fixture
def broker(fixture: BrokerFixture) -> BrokerFixture:
    """Return a broker with a topic that has a window of an hour."""
    fixture.topic(dedup_ms=HOUR)
    return fixture


class TestRepeats:
    def test_one(self, broker: BrokerFixture) -> None:
        """The same id again is answered as stored, with the offset of the first, and not stored."""
        assert publish(broker, 1).base_offset == 0
        assert publish(broker, 2).base_offset == 1
        again = publish(broker, 1)
        assert (again.base_offset, again.duplicate, [*again.known]) == (0, True, [(0, 0)])
        assert values(broker) == [b"1", b"2"]
        assert broker.partition().log.end_offset == 2

    def test_some(self, broker: BrokerFixture) -> None:
        """Of a batch the repeats alone are left out, and each is answered with its first offset."""
        publish(broker, 1, 2, 3)
        found = publish(broker, 4, 2, 5, 3)
        assert (found.base_offset, found.duplicate, [*found.known]) == (3, False, [(1, 1), (3, 2)])
        assert values(broker) == [b"1", b"2", b"3", b"4", b"5"]
        assert publish(broker, 5).known == [(0, 5)]

    def test_within_a_batch(self, broker: BrokerFixture) -> None:
        """Repeats inside one batch are found too."""
        found = publish(broker, 1, 1, 2, 1)
        assert [*found.known] == [(1, 0), (3, 0)]
        assert values(broker) == [b"1", b"2"]

    def test_without_ids(self, broker: BrokerFixture) -> None:
        """Records without an id are never repeats of each other."""
        for _ in range(2):
            broker.produce(b"same")
        ids: Any = [None, id_of(1), None]
        answers = [stage(broker, batch(b"a", b"b", b"c", ids=ids)) for _ in range(2)]
        broker.turn()
        assert [[*only(each).known] for each in answers] == [[], [(1, 3)]]
        assert values(broker) == [b"same", b"same", b"a", b"b", b"c", b"a", b"c"]

    def test_without_a_window(self, fixture: BrokerFixture) -> None:
        """A topic without the setting takes every record."""
        fixture.topic()
        publish(fixture, 1)
        assert not publish(fixture, 1).duplicate
        assert fixture.partition().dedup is None

    def test_idempotent(self, broker: BrokerFixture) -> None:
        """A producer's sequences stay whole when all records of a batch are repeats."""
        publish(broker, 1, 2)
        found = publish(broker, 1, 2, producer=(7, 0, 0))
        assert (found.base_offset, found.duplicate, [*found.known]) == (2, False, [(0, 0), (1, 1)])
        again = publish(broker, 1, 2, producer=(7, 0, 0))
        assert (again.base_offset, again.duplicate, [*again.known]) == (2, True, [(0, 0), (1, 1)])
        assert publish(broker, 3, producer=(7, 0, 2)).base_offset == 4
        assert values(broker) == [b"1", b"2", b"3"]
        broker.kill()
        after = broker.again()
        assert publish(after, 4, producer=(7, 0, 3)).base_offset == 5
        assert values(after) == [b"1", b"2", b"3", b"4"]

    def test_columns(self, broker: BrokerFixture) -> None:
        """What is stored of a batch keeps its keys, headers, times and times to live."""
        publish(broker, 2)
        columns: dict[str, Any] = {
            "keys": [b"k1", b"k2", None],
            "headers": [[("h", b"1")], [], [("h", b"3")]],
            "times": [10, 20, 30],
            "ttls": [1000, None, 3000],
            "codec": 4,
        }
        publish(broker, 1, 2, 3, **columns)
        data = broker.fetch(("t", 0, 1), max_wait_ms=0).payload
        ((_, stored),) = split(data)
        found = RecordBatch(stored)
        assert [*found.offsets] == [1, 3]
        assert found.values == [b"1", b"3"]
        assert found.keys == [b"k1", None]
        assert [[*each] for each in found.headers] == [[("h", b"1")], [("h", b"3")]]
        assert found.times == [10, 30]
        assert found.ttls == [1000, 3000]
        assert found.ids == [id_of(1), id_of(3)]

    def test_channel(self, broker: BrokerFixture) -> None:
        """Lag and readers pass over what was left out."""
        publish(broker, 1, 2, producer=(7, 0, 0))
        publish(broker, 1, 2, producer=(7, 0, 2))
        publish(broker, 2, 3, producer=(7, 0, 4))
        assert values(broker) == [b"1", b"2", b"3"]
        assert broker.fetch(("t", 0, 2), max_wait_ms=0).values == [b"3"]

    def test_transaction(self, broker: BrokerFixture) -> None:
        """What belongs to a transaction is not looked at: it may be taken back."""
        data = batch(b"1", ids=[id_of(1)], producer=(7, 0, 0))
        header = read_header(data)
        marked = build(
            data[61:],
            1,
            header.attributes | TRANSACTIONAL,
            producer_id=7,
            producer_epoch=0,
            base_sequence=0,
        )
        dedup = broker.partition().dedup
        assert dedup is not None
        assert dedup.ids(data, header) == [id_of(1)]
        assert dedup.ids(marked, read_header(marked)) is None


class TestHeaders:
    @pytest.fixture
    def publish(self, fixture: BrokerFixture) -> Callable[..., Appended]:
        """Return what publishes records with some headers."""
        fixture.topic(dedup_ms=HOUR, dedup_by="header:order-id")

        def publish(*headers: list[tuple[str, bytes]]) -> Appended:
            data = encode_batch([b"v"] * len(headers), headers=headers)
            answers = stage(fixture, data)
            fixture.turn()
            return only(answers)

        return publish

    def test_exact(self, publish: Callable[..., Appended]) -> None:
        """The name and the bytes count exactly, whatever their length; ids do not."""
        publish([("order-id", b"17")])
        assert publish([("other", b"1"), ("order-id", b"17")]).known == [(0, 0)]
        for other in (
            ("order-id", b"17 "),
            ("Order-Id", b"17"),
            ("order-id", b"017"),
            ("order-id", b""),
        ):
            assert not publish([other]).duplicate
        assert publish([("order-id", b"")]).duplicate
        long = b"x" * 5000
        assert not publish([("order-id", long)]).duplicate
        assert not publish([("order-id", long + b"y")]).duplicate
        assert publish([("order-id", long)]).duplicate

    def test_first(self, publish: Callable[..., Appended]) -> None:
        """Of several headers of the name the first counts; records without it are no repeats."""
        publish([("order-id", b"1"), ("order-id", b"2")])
        assert publish([("order-id", b"1")]).duplicate
        assert not publish([("order-id", b"2")]).duplicate
        assert not publish([], []).duplicate
        assert not publish([("x", b"1")]).duplicate


class TestTime:
    def test_expires(self, broker: BrokerFixture) -> None:
        """An id is known for the window, from its first append on, to the millisecond."""
        publish(broker, 1)
        broker.wall.now_ms = BEGIN_MS + HOUR - 1
        assert publish(broker, 1).duplicate
        broker.wall.now_ms = BEGIN_MS + HOUR
        assert not publish(broker, 1).duplicate

    def test_no_refresh(self, broker: BrokerFixture) -> None:
        """A repeat does not make an id known for longer."""
        publish(broker, 1)
        for minutes in (20, 40, 59):
            broker.wall.now_ms = BEGIN_MS + minutes * 60_000
            assert publish(broker, 1).duplicate
        broker.wall.now_ms = BEGIN_MS + HOUR
        assert publish(broker, 1).base_offset == 1
        broker.wall.now_ms += 1
        assert publish(broker, 1).known == [(0, 1)]

    def test_forgotten(self, broker: BrokerFixture) -> None:
        """What is over takes no memory, though nothing is published any more."""
        publish(broker, *range(100))
        dedup = broker.partition().dedup
        assert dedup is not None
        assert len(dedup.seen) == broker.store.room.taken == 100
        broker.wall.now_ms += HOUR
        broker.housekeeping.apply_retention()
        assert len(dedup.seen) == broker.store.room.taken == 0

    def test_altered(self, broker: BrokerFixture) -> None:
        """The window can be altered while it is at work; what is over stays over."""
        publish(broker, 1)
        broker.wall.now_ms += HOUR // 2
        broker.meta.alter_topic("t", {"dedup.ms": HOUR // 4})
        assert not publish(broker, 1).duplicate
        broker.meta.alter_topic("t", {"dedup.ms": 10 * HOUR})
        broker.wall.now_ms += 5 * HOUR
        assert publish(broker, 1).known == [(0, 1)]
        broker.meta.alter_topic("t", {"dedup.ms": None})
        assert not publish(broker, 1).duplicate
        broker.meta.alter_topic("t", {"dedup.ms": HOUR})
        assert not publish(broker, 1).duplicate
        assert publish(broker, 1).duplicate

    def test_another_rule(self, broker: BrokerFixture) -> None:
        """With another rule the window begins anew, also for a start."""
        publish(broker, 1)
        broker.meta.alter_topic("t", {"dedup.by": "header:id"})
        assert not publish(broker, 1).duplicate
        broker.meta.alter_topic("t", {"dedup.by": "id"})
        assert not publish(broker, 1).duplicate
        assert publish(broker, 1).known == [(0, 2)]
        broker.kill()
        assert publish(broker.again(), 1).known == [(0, 2)]

    def test_settings(self, fixture: BrokerFixture) -> None:
        """A rule that is none is refused, with what there is."""
        for rule in ("key", "header:", "id:x", "headers:x"):
            with pytest.raises(InvalidRequest, match="id or header:NAME"):
                fixture.topic(dedup_by=rule)


class TestWaiting:
    @pytest.fixture
    def broker(self, make: MakeBroker, syncer: HeldSyncer) -> BrokerFixture:
        """Return a broker whose syncs wait to be told."""
        broker = make(syncer=syncer)
        broker.topic(dedup_ms=HOUR)
        return broker

    def test_together(self, broker: BrokerFixture, syncer: HeldSyncer) -> None:
        """A repeat of a record that is on its way to the disk is answered together with it."""
        first = stage(broker, batch(b"1", ids=[id_of(1)]))
        again = stage(broker, batch(b"1", ids=[id_of(1)]))
        broker.turn()
        later = stage(broker, batch(b"1", ids=[id_of(1)]))
        broker.turn()
        assert [*first, *again, *later] == []
        syncer.release()
        assert only(first).base_offset == 0
        assert [*only(again).known] == [*only(later).known] == [(0, 0)]

    def test_refused(self, broker: BrokerFixture) -> None:
        """A first that could not be written is not known, and its repeat is refused with it."""
        disk: Any = broker.disk
        disk.failing["writev"] = errno.ENOSPC
        first = stage(broker, batch(b"1", ids=[id_of(1)]))
        again = stage(broker, batch(b"1", ids=[id_of(1)]))
        broker.turn()
        assert isinstance(refused(first), WireError)
        assert isinstance(refused(again), WireError)
        del disk.failing["writev"]
        retry = stage(broker, batch(b"1", ids=[id_of(1)]))
        broker.turn()
        syncer: Any = broker.syncer
        syncer.release()
        assert not only(retry).duplicate


class TestFull:
    def test_refused(self, make: MakeBroker) -> None:
        """No id is forgotten before its time: at the limit new ids are refused, repeats are not."""
        config = Config(producers=ProducersConfig(dedup_ids=1000))
        broker = make(config=config)
        broker.topic(dedup_ms=HOUR)
        publish(broker, *range(1000))
        answers = stage(broker, batch(b"new", ids=[id_of(5000)]))
        error = refused(answers)
        assert isinstance(error, Overloaded)
        assert "producers.dedup_ids" in error.text
        assert publish(broker, 5, 17).duplicate
        broker.produce(b"no id")
        broker.wall.now_ms += HOUR
        assert not publish(broker, 5000).duplicate
        broker.meta.delete_topic("t")
        assert broker.store.room.taken == 0


class TestLater:
    def test_purged(self, broker: BrokerFixture) -> None:
        """An id is known though its record was purged; that it was purged can be undone."""
        publish(broker, 1, 2)
        broker.carry_out("topic.purge", name="t", dry_run=False)
        assert publish(broker, 1).known == [(0, 0)]
        assert values(broker) == []
        broker.carry_out("topic.undo_purge", name="t", dry_run=False)
        assert publish(broker, 2).known == [(0, 1)]
        assert values(broker) == [b"1", b"2"]
        broker.carry_out("topic.purge", name="t", dry_run=False)
        broker.wall.now_ms += 30 * 60_000
        broker.housekeeping.apply_retention()
        broker.kill()
        after = broker.again()
        assert publish(after, 2).known == [(0, 1)]

    def test_retention(self, fixture: BrokerFixture) -> None:
        """An id is known though retention removed its record, after a restart too."""
        fixture.topic(dedup_ms=10 * HOUR, retention_ms=HOUR)
        publish(fixture, 1, 2)
        fixture.wall.now_ms += 2 * HOUR
        fixture.housekeeping.apply_retention()
        assert fixture.partition().log.start_offset == 2
        assert publish(fixture, 1).known == [(0, 0)]
        fixture.kill()
        after = fixture.again()
        assert publish(after, 1).known == [(0, 0)]
        after.stop()
        assert publish(after.again(), 2).known == [(0, 1)]


class TestRestart:
    @pytest.mark.parametrize("end", ["kill", "stop"])
    def test_known(self, broker: BrokerFixture, end: str) -> None:
        """A restart forgets nothing, be it in the log of ids or only in the data log."""
        publish(broker, 1, 2, 1)
        broker.housekeeping.checkpoint()
        publish(broker, 2, 3, producer=(7, 0, 0))
        for _ in range(2):
            getattr(broker, end)()
            broker = broker.again()
            for number, offset in ((1, 0), (2, 1), (3, 4)):
                assert publish(broker, number).known == [(0, offset)]

    def test_times(self, broker: BrokerFixture) -> None:
        """A restart does not make an id known for longer."""
        publish(broker, 1)
        broker.wall.now_ms += HOUR // 2
        publish(broker, 2)
        broker.stop()
        after = broker.again()
        after.wall.now_ms = BEGIN_MS + HOUR
        assert not publish(after, 1).duplicate
        assert publish(after, 2).duplicate
        after.kill()
        after = after.again()
        assert publish(after, 1).known == [(0, 2)]

    def test_many(self, broker: BrokerFixture) -> None:
        """Many ids are written down in parts, and those files go whose time is over."""
        for place in range(5):
            publish(broker, *range(place * 10_000, (place + 1) * 10_000))
            broker.wall.now_ms += 1
            broker.housekeeping.checkpoint()
        broker.kill()
        after = broker.again()
        assert publish(after, 1, 49_999, 20_000).known == [(0, 1), (1, 49_999), (2, 20_000)]

    def test_memory(self, fixture: BrokerFixture) -> None:
        """A topic in memory has a window as long as it has records."""
        fixture.topic(storage="memory", dedup_ms=HOUR)
        publish(fixture, 1)
        assert publish(fixture, 1).duplicate
        fixture.kill()
        assert not publish(fixture.again(), 1).duplicate
