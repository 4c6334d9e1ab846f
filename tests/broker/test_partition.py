"""One partition: append times, epochs, positions, and what is refused."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.conftest import MakeBroker
from tests.fakes.broker import (
    BEGIN_MS,
    BrokerDisk,
    BrokerFixture,
    HeldSyncer,
    batch,
    only,
    refused,
    smaller_limits,
)
from tinymq.broker.partition import Partition
from tinymq.errors import (
    BatchTooLarge,
    CorruptBatch,
    InvalidRequest,
    LogTruncated,
    OffsetOutOfRange,
    PartitionOffline,
    StorageError,
    StorageFull,
    ValueTooLarge,
    WireError,
)
from tinymq.limits import DEFAULT_LIMITS
from tinymq.meta.registry import Topic
from tinymq.storage.memory import MemoryLog
from tinymq.topicconfig import TopicConfig
from tinymq.wire.batch import CONTROL, NATIVE, build, split
from tinymq.wire.messages import EARLIEST, LATEST


def in_memory(most: int = 1 << 20) -> Partition:
    """A partition without a disk."""
    config = TopicConfig(storage="memory")
    topic = Topic(id=bytes(16), name="m", partitions=1, config=config, created_ms=0, leaders=(1,))
    return Partition(topic, 0, MemoryLog(most), None, DEFAULT_LIMITS)


def error_for(partition: Partition, data: bytes) -> WireError:
    """What a producer hears of a batch."""
    answers: list[object] = []
    assert not partition.append(data, BEGIN_MS, answers.append)
    (answer,) = answers
    assert isinstance(answer, WireError)
    return answer


class TestAppend:
    def test_offsets(self, fixture: BrokerFixture) -> None:
        """Offsets count records from 0, without gaps, over batches of any size."""
        fixture.topic()
        places = [only(fixture.produce(*[b"v"] * count)).base_offset for count in (1, 3, 2, 5)]
        assert places == [0, 1, 4, 6]
        assert fixture.partition().high_watermark == 11

    def test_time(self, fixture: BrokerFixture) -> None:
        """The append time is the broker's, and never falls when its clock is set back."""
        fixture.topic()
        times = []
        for step in (0, 5000, -3_600_000, 1, 7_200_000):
            fixture.wall.now_ms += step
            times.append(only(fixture.produce(b"v")).timestamp)
        assert times == sorted(times)
        assert times[:2] == [BEGIN_MS, BEGIN_MS + 5000]
        assert times[2] == times[3] == times[1]
        fixture.kill()
        fixture.wall.now_ms = BEGIN_MS - 10**9
        after = fixture.again()
        assert only(after.produce(b"w")).timestamp == times[-1]
        stored = [
            header.max_timestamp
            for header, _ in split(after.fetch(("t", 0, 0), max_wait_ms=0).payload)
        ]
        assert stored == [*times, times[-1]]

    def test_retention_with_clock_set_back(self, fixture: BrokerFixture) -> None:
        """With the clock set back an hour retention removes nothing too early."""
        fixture.topic(retention_ms=1000)
        fixture.produce(b"a")
        fixture.wall.now_ms -= 3_600_000
        fixture.produce(b"b")
        fixture.housekeeping.apply_retention()
        assert fixture.values() == [b"a", b"b"]
        fixture.wall.now_ms = BEGIN_MS + 1001
        fixture.housekeeping.apply_retention()
        assert fixture.values() == []

    def test_damaged(self) -> None:
        """A batch with a flipped bit anywhere behind its epoch is refused."""
        good = batch(b"value", b"other")
        partition = in_memory()
        for position in range(21, len(good)):
            bad = bytearray(good)
            bad[position] ^= 4
            assert isinstance(error_for(partition, bytes(bad)), CorruptBatch)
        assert partition.log.end_offset == 0

    @given(st.binary(max_size=200))
    def test_garbage(self, data: bytes) -> None:
        """Any bytes in place of a batch get a typed error."""
        assert error_for(in_memory(), data).code >= 20

    def test_flags(self) -> None:
        """Attributes that are the broker's own are refused."""
        payload = batch(b"v")[61:]
        for attributes in (NATIVE | CONTROL, 0, NATIVE | 2, NATIVE | 1 << 13):
            error = error_for(in_memory(), build(payload, 1, attributes))
            assert isinstance(error, InvalidRequest)

    def test_too_large(self) -> None:
        """Each limit is named in its own error, and the next batch is taken."""
        partition = in_memory(1 << 26)
        many = error_for(partition, batch(*[b"x" * 200_000] * 6))
        assert isinstance(many, BatchTooLarge)
        assert many.data["limit"] == DEFAULT_LIMITS.batch
        one = error_for(partition, batch(b"x" * (DEFAULT_LIMITS.payload + 1)))
        assert isinstance(one, ValueTooLarge)
        assert one.data["limit"] == DEFAULT_LIMITS.value
        assert partition.append(batch(b"small"), BEGIN_MS, lambda answer: None)

    def test_topic_limit(self, fixture: BrokerFixture) -> None:
        """The longest value of the topic binds as well."""
        fixture.topic(max_value_bytes=1_000_000)
        error = refused(fixture.produce(b"x" * 1_300_000))
        assert isinstance(error, ValueTooLarge)
        assert error.data["limit"] == 1_000_000
        assert only(fixture.produce(b"x" * 1_000_000)).base_offset == 0

    def test_smaller_limits(self, make: MakeBroker) -> None:
        """Limits that were set lower are in force."""
        fixture = make(config=smaller_limits(batch=1000))
        fixture.topic()
        assert isinstance(refused(fixture.produce(*[b"x" * 100] * 20)), BatchTooLarge)


class TestEpochs:
    def test_clean(self, fixture: BrokerFixture) -> None:
        """A clean stop begins no new epoch."""
        fixture.topic()
        fixture.produce(b"a")
        assert fixture.partition().epoch == 0
        fixture.stop()
        after = fixture.again()
        after.produce(b"b")
        assert after.partition().epoch == 0

    def test_unclean(self, fixture: BrokerFixture) -> None:
        """After an unclean stop the first append begins a new epoch, which its batch carries."""
        fixture.topic()
        fixture.produce(b"a")
        fixture.kill()
        after = fixture.again()
        assert after.partition().epoch == 0
        after.produce(b"b")
        assert after.partition().epoch == 1
        headers = [header for header, _ in split(after.fetch(("t", 0, 0), max_wait_ms=0).payload)]
        assert [header.leader_epoch for header in headers] == [0, 1]

    @pytest.mark.parametrize(
        ("number", "kind"), [(errno.ENOSPC, StorageFull), (errno.EIO, StorageError)]
    )
    def test_cannot_be_written(
        self, fixture: BrokerFixture, number: int, kind: type[WireError]
    ) -> None:
        """Nothing is appended in an epoch that could not be written; it is tried again."""
        fixture.topic()
        fixture.produce(b"a")
        fixture.kill()
        after = fixture.again()
        disk = after.disk
        assert isinstance(disk, BrokerDisk)
        disk.failing["open"] = number
        assert isinstance(refused(after.produce(b"b")), kind)
        disk.failing.clear()
        assert only(after.produce(b"b")).base_offset == 1
        assert after.partition().epoch == 1

    def test_lost(self, fixture: BrokerFixture) -> None:
        """When the list of epochs is damaged, the next epoch is still a new one."""
        fixture.topic()
        for _ in range(3):
            fixture.produce(b"a")
            fixture.kill()
            fixture = fixture.again()
        fixture.produce(b"b")
        assert fixture.partition().epoch == 3
        fixture.kill()
        (path,) = fixture.path.glob("topics/*/0/epochs")
        path.write_bytes(b"nonsense")
        after = fixture.again()
        after.produce(b"c")
        assert after.partition().epoch == 4

    def test_truncated(self, fixture: BrokerFixture) -> None:
        """A reader of records that did not survive is told, before and after new ones."""
        fixture.topic()
        for place in range(4):
            fixture.produce(b"v%d" % place)
        fixture.kill()
        (segment,) = fixture.path.glob("topics/*/0/data/*.log")
        with segment.open("r+b") as file:
            file.truncate(segment.stat().st_size // 2)
        after = fixture.again()
        for _ in range(2):
            error = after.fetch(("t", 0, 4, 0)).error
            assert isinstance(error, LogTruncated)
            assert error.data == {"start": 0, "end": 2}
            assert after.fetch(("t", 0, 2, 0), max_wait_ms=0).error is None
            for _ in range(3):
                after.produce(b"new")
        # Without an epoch the same number names the new record.
        assert after.fetch(("t", 0, 4), max_wait_ms=0).values == [b"new"] * 4
        assert after.fetch(("t", 0, 5, 1), max_wait_ms=0).error is None

    def test_several_cuts(self, fixture: BrokerFixture) -> None:
        """A position of an old epoch is held against the end of that epoch, not of a later one."""
        fixture.topic()
        fixture.produce(b"a")
        fixture.kill()
        second = fixture.again()
        second.produce(b"b")
        second.kill()
        third = second.again()
        third.produce(b"c")
        third.produce(b"d")
        error = third.fetch(("t", 0, 3, 0)).error
        assert isinstance(error, LogTruncated)
        assert error.data["end"] == 1
        assert isinstance(third.fetch(("t", 0, 3, 1)).error, LogTruncated)
        assert third.fetch(("t", 0, 3, 2), max_wait_ms=0).values == [b"d"]


class TestPositions:
    def test_epochs(self, fixture: BrokerFixture) -> None:
        """A position that was looked up has the epoch of the record before it, for FETCH."""
        fixture.topic()
        fixture.topic("memory", storage="memory")
        assert fixture.partition().offset_at(LATEST) == (0, -1, -1)
        for _ in range(2):
            fixture.produce(b"a")
        fixture.produce(b"a", topic="memory")
        fixture.kill()
        fixture = fixture.again()
        assert fixture.partition().offset_at(LATEST) == (2, 0, -1)
        fixture.wall.now_ms += 1000
        time_ms = fixture.wall()
        fixture.produce(b"b")
        fixture.produce(b"c")
        partition = fixture.partition()
        assert partition.offset_at(EARLIEST) == (0, -1, -1)
        assert partition.offset_at(time_ms)[:2] == (2, 0)
        assert partition.offset_at(LATEST) == (4, 1, -1)
        fixture.operate("topic.purge", name="t", before=2)
        assert partition.offset_at(EARLIEST) == (2, 0, -1)
        fixture.produce(b"a", topic="memory")
        assert fixture.partition("memory").offset_at(LATEST) == (1, 0, -1)
        fixture.kill()
        (path,) = fixture.path.glob("topics/*/0/epochs")
        path.write_bytes(b"nonsense")
        assert fixture.again().partition().offset_at(LATEST) == (4, -1, -1)

    def test_out_of_range(self, fixture: BrokerFixture) -> None:
        """Below the start and behind the end there is an error with the valid range."""
        fixture.topic()
        for _ in range(5):
            fixture.produce(b"v")
        fixture.operate("topic.purge", name="t", before=3)
        for offset in (0, 2, 6, 1 << 62):
            error = fixture.fetch(("t", 0, offset)).error
            assert isinstance(error, OffsetOutOfRange)
            assert error.data == {"start": 3, "end": 5}
        assert fixture.fetch(("t", 0, 5), max_wait_ms=0).error is None

    def test_by_time(self, fixture: BrokerFixture) -> None:
        """Earliest, latest, a time between, before the first and behind the last."""
        fixture.topic()
        for _ in range(4):
            fixture.produce(b"v")
            fixture.wall.now_ms += 1000
        find = fixture.partition().offset_at
        assert find(EARLIEST) == (0, -1, -1)
        assert find(LATEST) == (4, 0, -1)
        assert find(0) == (0, -1, BEGIN_MS)
        assert find(BEGIN_MS + 1500) == (2, 0, BEGIN_MS + 2000)
        assert find(BEGIN_MS + 10**6) == (4, 0, -1)

    def test_by_time_within_purged(self, fixture: BrokerFixture) -> None:
        """A time that only purged records have gives the start."""
        fixture.topic()
        for _ in range(3):
            fixture.produce(b"v", b"w")
            fixture.wall.now_ms += 1000
        fixture.operate("topic.purge", name="t", before=3)
        assert fixture.partition().offset_at(0)[0] == 3

    def test_by_time_below_the_watermark(self, held: BrokerFixture, syncer: HeldSyncer) -> None:
        """A record that is not visible yet is not found by its time."""
        held.topic()
        held.produce(b"a")
        assert held.partition().offset_at(0) == (0, -1, -1)
        syncer.release()
        assert held.partition().offset_at(0) == (0, -1, BEGIN_MS)


class TestLife:
    def test_close(self, held: BrokerFixture) -> None:
        """Closing answers all who wait, lets go of watchers, and takes no more."""
        held.topic()
        partition = held.partition()
        waiting = held.produce(b"a")
        fetch = held.fetch(("t", 0, 0), max_wait_ms=1000)
        partition.close()
        assert isinstance(refused(waiting), PartitionOffline)
        assert isinstance(fetch.error, PartitionOffline)
        assert partition.watchers == set()
        assert isinstance(refused(held.produce(b"b")), PartitionOffline)
        assert partition.idle

    def test_name(self, fixture: BrokerFixture) -> None:
        """A partition is called by topic and number in logs."""
        fixture.topic("orders", partitions=3)
        assert repr(fixture.partition("orders", 2)) == "<Partition orders/2>"

    def test_unreadable(self, fixture: BrokerFixture) -> None:
        """A disk that cannot read is a typed error of that partition."""
        disk = fixture.disk
        assert isinstance(disk, BrokerDisk)
        fixture.topic(partitions=2)
        fixture.produce(b"a")
        fixture.produce(b"b", partition=1)
        disk.failing["pread_cached"] = errno.EIO
        found = fixture.fetch(("t", 0, 0))
        assert isinstance(found.error, StorageError)
        disk.failing.clear()
        assert fixture.fetch(("t", 0, 0)).values == [b"a"]

    def test_counters(self, fixture: BrokerFixture) -> None:
        """What came in and went out is counted in records and bytes."""
        fixture.topic()
        fixture.produce(b"a", b"b")
        data = fixture.fetch(("t", 0, 1), max_wait_ms=0)
        counters = fixture.partition().counters
        assert (counters.records_in, counters.records_out) == (2, 1)
        assert counters.bytes_in == counters.bytes_out == len(data.payload)
