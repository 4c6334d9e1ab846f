"""Idempotence: a batch that comes again is never a second record."""

from __future__ import annotations

import pytest

from tests.broker.conftest import MakeBroker
from tests.fakes.broker import (
    BrokerDisk,
    BrokerFixture,
    HeldSyncer,
    Sequenced,
    batch,
    changed,
    only,
    refused,
)
from tinymq.broker.producers import ProducerTable
from tinymq.errors import OutOfOrderSequence, ProducerFenced, StorageFull, UnknownProducer
from tinymq.wire.batch import SEQUENCE_MODULUS, BatchHeader, checked_header, read_header
from tinymq.wire.records import encode_batch


def header(sequence: int, count: int = 1, *, epoch: int = 0, producer: int = 7) -> BatchHeader:
    """The header of a producer's batch."""
    return read_header(batch(*[b"v"] * count, producer=(producer, epoch, sequence)))


class TestTable:
    def test_unsequenced(self) -> None:
        """A batch without a producer id is never a duplicate and leaves no trace."""
        table = ProducerTable()
        plain = read_header(batch(b"v"))
        assert table.duplicate_of(plain) is None
        table.record(plain, 0, 1)
        assert len(table) == 0

    def test_duplicate(self) -> None:
        """A batch that is remembered is found by its first sequence and its length."""
        table = ProducerTable()
        for place in range(5):
            table.record(header(place), 100 + place, 1)
        assert [table.duplicate_of(header(place)) for place in range(5)] == [
            100,
            101,
            102,
            103,
            104,
        ]
        assert table.duplicate_of(header(5)) is None

    def test_other_length(self) -> None:
        """A repeat that is cut otherwise is no duplicate: it says what was due."""
        table = ProducerTable()
        table.record(header(0, 3), 0, 1)
        with pytest.raises(OutOfOrderSequence) as caught:
            table.duplicate_of(header(0, 2))
        assert caught.value.data == {"expected": 3}

    def test_gap(self) -> None:
        """A batch after a missing one is refused, naming the sequence that is due."""
        table = ProducerTable()
        table.record(header(0), 0, 1)
        with pytest.raises(OutOfOrderSequence) as caught:
            table.duplicate_of(header(2))
        assert caught.value.data == {"expected": 1}

    def test_unknown(self) -> None:
        """A producer that nobody remembers must begin at 0."""
        with pytest.raises(UnknownProducer) as caught:
            ProducerTable().duplicate_of(header(3))
        assert caught.value.data == {"expected": 0}

    def test_fenced(self) -> None:
        """An older epoch is over; a newer one begins at 0 and takes its place."""
        table = ProducerTable()
        table.record(header(0, epoch=1), 0, 1)
        with pytest.raises(ProducerFenced):
            table.duplicate_of(header(1, epoch=0))
        with pytest.raises(OutOfOrderSequence):
            table.duplicate_of(header(1, epoch=2))
        assert table.duplicate_of(header(0, epoch=2)) is None
        table.record(header(0, epoch=2), 1, 1)
        with pytest.raises(ProducerFenced):
            table.duplicate_of(header(1, epoch=1))

    def test_wrap(self) -> None:
        """Sequences go on at 0 behind 2^31 - 1, and repeats across the edge are found."""
        table = ProducerTable()
        last = SEQUENCE_MODULUS - 2
        table.record(header(last, 4), 10, 1)
        assert table.duplicate_of(header(2)) is None
        table.record(header(2), 14, 1)
        assert table.duplicate_of(header(last, 4)) == 10
        assert table.duplicate_of(header(2)) == 14

    def test_window(self) -> None:
        """At least the last 64 batches are remembered, and far older ones are refused."""
        table = ProducerTable(64)
        for place in range(1000):
            table.record(header(place), place, 1)
        assert [table.duplicate_of(header(place)) for place in range(936, 1000)] == list(
            range(936, 1000)
        )
        with pytest.raises(OutOfOrderSequence):
            table.duplicate_of(header(100))

    def test_whole_window_taken_back(self) -> None:
        """When a whole window is refused, the batch before it still says what is due."""
        table = ProducerTable(64)
        for place in range(300):
            table.record(header(place), place, 1)
        table.take_back(300 - 64)
        assert table.duplicate_of(header(300 - 64)) is None
        assert table.duplicate_of(header(300 - 65)) == 300 - 65

    def test_all_taken_back(self) -> None:
        """A producer whose only batches are taken back begins anew."""
        table = ProducerTable()
        table.record(header(0), 5, 1)
        table.take_back(5)
        assert len(table) == 0
        assert table.duplicate_of(header(0)) is None

    def test_most(self) -> None:
        """Over the bound the producer that is idle for longest goes."""
        table = ProducerTable(most=3)
        for producer in (1, 2, 3):
            table.record(header(0, producer=producer), producer, 1)
        table.record(header(1, producer=1), 4, 1)
        table.record(header(0, producer=4), 5, 1)
        assert len(table) == 3
        with pytest.raises(UnknownProducer):
            table.duplicate_of(header(1, producer=2))
        assert table.duplicate_of(header(1, producer=1)) == 4

    def test_idle(self) -> None:
        """Producers are forgotten after their time, from the longest idle on."""
        table = ProducerTable(forget_ms=100)
        table.record(header(0, producer=1), 0, 1000)
        table.record(header(0, producer=2), 1, 1050)
        table.forget_idle(1100)
        assert len(table) == 2
        table.forget_idle(1101)
        assert len(table) == 1

    def test_snapshot(self) -> None:
        """A snapshot brings everything back."""
        table, again = ProducerTable(), ProducerTable()
        for producer in (1, 2):
            for place in range(3):
                table.record(header(place, producer=producer), 10 * producer + place, 5)
        again.restore(table.snapshot())
        assert again.snapshot() == table.snapshot()
        assert again.duplicate_of(header(1, producer=2)) == 21


P: Sequenced = (7, 0, 0)


def at(sequence: int, producer: int = 7, epoch: int = 0) -> Sequenced:
    """A place in the sequence of a producer."""
    return producer, epoch, sequence


class TestBroker:
    def test_resent(self, fixture: BrokerFixture) -> None:
        """A resent batch is answered with the first offset and stored once."""
        fixture.topic()
        first = only(fixture.produce(b"a", b"b", producer=P))
        fixture.produce(b"c", producer=at(2))
        again = only(fixture.produce(b"a", b"b", producer=P))
        assert (again.base_offset, again.duplicate) == (first.base_offset, True)
        assert fixture.values() == [b"a", b"b", b"c"]

    def test_resent_on_the_way(self, held: BrokerFixture, syncer: HeldSyncer) -> None:
        """A repeat of a batch that is not on disk yet waits for the disk with the first."""
        held.topic()
        first = held.produce(b"a", producer=P)
        again = held.produce(b"a", producer=P)
        later = held.produce(b"b", producer=at(1))
        third = held.produce(b"a", producer=P)
        assert (first, again, later, third) == ([], [], [], [])
        syncer.release()
        assert only(first).base_offset == only(again).base_offset == only(third).base_offset == 0
        assert not only(first).duplicate
        assert only(again).duplicate
        assert later == []
        syncer.release()
        assert only(later).base_offset == 1

    def test_gap_then_order(self, fixture: BrokerFixture) -> None:
        """A gap is refused, and resending in order from it succeeds."""
        fixture.topic()
        fixture.produce(b"a", producer=P)
        assert isinstance(refused(fixture.produce(b"c", producer=at(2))), OutOfOrderSequence)
        assert only(fixture.produce(b"b", producer=at(1))).base_offset == 1
        assert only(fixture.produce(b"c", producer=at(2))).base_offset == 2

    def test_after_stop(self, fixture: BrokerFixture) -> None:
        """A clean restart keeps what is known of producers."""
        fixture.topic()
        fixture.produce(b"a", producer=P)
        fixture.stop()
        after = fixture.again()
        assert only(after.produce(b"a", producer=P)).duplicate
        assert only(after.produce(b"b", producer=at(1))).base_offset == 1

    def test_after_stop_and_purge(self, fixture: BrokerFixture) -> None:
        """Idempotence outlives the records: after a purge and a restart a repeat is known."""
        fixture.topic()
        fixture.produce(b"a", producer=P)
        fixture.operate("topic.purge", name="t")
        fixture.stop()
        after = fixture.again()
        assert only(after.produce(b"a", producer=P)).duplicate
        after.kill()
        third = after.again()
        assert only(third.produce(b"a", producer=P)).duplicate

    def test_killed_between_store_and_ack(self, held: BrokerFixture) -> None:
        """A batch that was written but not acknowledged before a kill is stored once."""
        held.topic()
        answer = held.produce(b"a", producer=P)
        assert answer == []
        held.kill()
        after = held.again()
        assert only(after.produce(b"a", producer=P)).base_offset == 0
        assert after.values() == [b"a"]

    def test_after_roll_and_kill(self, fixture: BrokerFixture) -> None:
        """Snapshot and headers behind it together know all: many segments, then a kill."""
        fixture.topic(segment_bytes=4096)
        value = b"x" * 1500
        for place in range(10):
            fixture.produce(value, producer=at(place))
        fixture.housekeeping.checkpoint()
        assert len(list(fixture.path.glob("topics/*/0/producers"))) == 1
        for place in range(10, 20):
            fixture.produce(value, producer=at(place))
        fixture.produce(b"other", producer=at(0, producer=8))
        fixture.kill()
        after = fixture.again()
        for place in range(20):
            answer = only(after.produce(value, producer=at(place)))
            assert (answer.duplicate, answer.base_offset) == (True, place)
        assert only(after.produce(b"other", producer=at(0, producer=8))).base_offset == 20
        assert len(after.values()) == 21

    def test_snapshot_with_staged(self, held: BrokerFixture, syncer: HeldSyncer) -> None:
        """A snapshot made while batches wait in memory does not make them seem stored."""
        held.topic(segment_bytes=4096)
        for place in range(4):
            held.produce(b"x" * 3000, producer=at(place))
            syncer.release()
        held.produce(b"written", producer=at(4))
        lost = held.produce(b"staged", producer=at(5))
        held.store.store_producers(held.broker.partitions())
        held.kill()
        assert lost == []
        after = held.again()
        assert not only(after.produce(b"staged", producer=at(5))).duplicate
        assert after.values()[-2:] == [b"written", b"staged"]

    def test_snapshot_beyond_a_cut(self, fixture: BrokerFixture) -> None:
        """A snapshot of what a power cut took is not believed, also once the log has grown."""
        fixture.topic()
        for place in range(4):
            fixture.produce(b"v%d" % place, producer=at(place))
        fixture.store.store_producers(fixture.broker.partitions())
        fixture.kill()
        (segment,) = fixture.path.glob("topics/*/0/data/*.log")
        size = segment.stat().st_size
        with segment.open("r+b") as file:
            file.truncate(size - size // 2)
        cut = fixture.again()
        assert cut.values() == [b"v0", b"v1"]
        for place in range(3):
            cut.produce(b"other", producer=at(place, producer=9))
        cut.kill()
        after = cut.again()
        assert not only(after.produce(b"v2", producer=at(2))).duplicate
        assert not only(after.produce(b"v3", producer=at(3))).duplicate
        assert after.values()[-2:] == [b"v2", b"v3"]

    @pytest.mark.parametrize("content", [b"", b"\xc1", b"\x93\x01\x02\x03", b"\x80"])
    def test_bad_snapshot(self, fixture: BrokerFixture, content: bytes) -> None:
        """A snapshot that cannot be read is made up for from the log."""
        fixture.topic()
        fixture.produce(b"a", producer=P)
        fixture.kill()
        (home,) = fixture.path.glob("topics/*/0")
        (home / "producers").write_bytes(content)
        after = fixture.again()
        assert only(after.produce(b"a", producer=P)).duplicate

    def test_idle_producer(self, make: MakeBroker) -> None:
        """After the time set, an idle producer is told so, and a new id goes on."""
        fixture = make(config=changed(producers__forget_seconds=60))
        fixture.topic()
        fixture.produce(b"a", producer=P)
        fixture.wall.now_ms += 60_001
        fixture.housekeeping.apply_retention()
        assert isinstance(refused(fixture.produce(b"b", producer=at(1))), UnknownProducer)
        new = fixture.new_producer()
        place = (new.producer_id, new.epoch, 0)
        assert only(fixture.produce(b"b", producer=place)).base_offset == 1
        assert only(fixture.produce(b"b", producer=place)).duplicate

    def test_remembered(self, make: MakeBroker) -> None:
        """The number of producers remembered is the setting's."""
        fixture = make(config=changed(producers__remembered=16))
        fixture.topic()
        for producer in range(20):
            fixture.produce(b"a", producer=at(0, producer=producer))
        assert len(fixture.partition().producers) == 16

    def test_refused_window(self, held: BrokerFixture, syncer: HeldSyncer) -> None:
        """A whole window refused by a full disk is resent in order, and stored once."""
        disk = held.disk
        assert isinstance(disk, BrokerDisk)
        held.topic()
        for place in range(100):
            held.produce(b"v%d" % place, producer=at(place))
            syncer.release()
        running = held.produce(b"v100", producer=at(100))
        disk.room = 0
        window = [held.stage(b"v%d" % place, producer=at(place)) for place in range(101, 164)]
        syncer.release()
        assert only(running).base_offset == 100
        assert {type(refused(answers)) for answers in window} == {StorageFull}
        disk.room = None
        again = [held.stage(b"v%d" % place, producer=at(place)) for place in range(101, 164)]
        held.turn()
        syncer.release()
        assert [only(answers).base_offset for answers in again] == list(range(101, 164))
        assert held.values() == [b"v%d" % place for place in range(164)]

    def test_ids(self, make: MakeBroker) -> None:
        """Producer ids are never given out twice, block after block and start after start."""
        fixture = make(config=changed(producers__id_block=3))
        given = [fixture.new_producer().producer_id for _ in range(4)]
        fixture.kill()
        after = fixture.again()
        given += [after.new_producer().producer_id for _ in range(4)]
        assert len(set(given)) == 8
        assert after.new_producer().window == 64


def test_a_broker_s_own_producer_goes_on_where_it_is() -> None:
    """What was forgotten of it does not stop it, and what is known is not forgotten."""
    table = ProducerTable(5)
    table.expect(9, 0)
    assert len(table) == 0
    table.expect(9, 7)
    table.expect(9, 3)
    header = checked_header(encode_batch([b"v"], producer_id=9, producer_epoch=0, base_sequence=7))

    assert table.duplicate_of(header) is None
    table.record(header, 100, 1)
    assert table.duplicate_of(header) == 100
