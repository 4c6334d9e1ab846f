"""Long polls: when they answer, with what, and what they leave behind."""

from __future__ import annotations

from typing_extensions import override

from tests.broker.conftest import MakeBroker
from tests.fakes.broker import (
    BrokerDisk,
    BrokerFixture,
    Fetched,
    HeldBackground,
    HeldSyncer,
    smaller_limits,
)
from tinymq.errors import (
    InternalError,
    OffsetOutOfRange,
    StorageError,
    UnknownPartition,
    UnknownTopicId,
)
from tinymq.wire.frames import Bytes
from tinymq.wire.messages import Fetch, FetchReply, error_from_meta


class BrokenDisk(BrokerDisk):
    """A disk whose reading has a fault of the program in it."""

    @override
    def pread_cached(self, descriptor: int, size: int, position: int) -> bytes | None:
        raise RuntimeError("a secret")


def watchers(fixture: BrokerFixture) -> int:
    """How many reads wait, over all partitions."""
    return sum(len(each.watchers) for each in fixture.broker.partitions())


class TestWaiting:
    def test_at_once(self, fixture: BrokerFixture) -> None:
        """What is there is answered before the call returns, and no timer is left."""
        fixture.topic()
        fixture.produce(b"a", b"b")
        found = fixture.fetch(("t", 0, 0))
        assert found.values == [b"a", b"b"]
        assert found.rows == [(0, 2, 0, 2, len(found.payload), None)]
        assert found.reader is not None
        assert found.reader.finished
        assert fixture.clock.getDelayedCalls() == []

    def test_advance(self, fixture: BrokerFixture) -> None:
        """A read at the end is woken by the next record."""
        fixture.topic()
        found = fixture.fetch(("t", 0, 0), max_wait_ms=60_000)
        assert found.reply is None
        fixture.produce(b"a")
        assert found.values == [b"a"]
        assert (fixture.clock.getDelayedCalls(), watchers(fixture)) == ([], 0)

    def test_time_is_up(self, fixture: BrokerFixture) -> None:
        """After max_wait an empty answer comes, which is no error; always the same."""
        fixture.topic()
        for _ in range(3):
            found = fixture.fetch(("t", 0, 0), max_wait_ms=500)
            fixture.clock.advance(0.499)
            assert found.reply is None
            fixture.clock.advance(0.002)
            assert found.rows == [(0, 0, 0, 0, 0, None)]
        assert watchers(fixture) == 0

    def test_no_wait(self, fixture: BrokerFixture) -> None:
        """Who does not want to wait is answered at once; so is who wants no bytes."""
        fixture.topic()
        assert fixture.fetch(("t", 0, 0), max_wait_ms=0).values == []
        assert fixture.fetch(("t", 0, 0), min_bytes=0).values == []

    def test_min_bytes(self, fixture: BrokerFixture) -> None:
        """A read waits until so many bytes are there, over all its partitions."""
        fixture.topic(partitions=2)
        found = fixture.fetch(("t", 0, 0), ("t", 1, 0), min_bytes=400, max_wait_ms=1000)
        fixture.produce(b"x" * 100)
        fixture.produce(b"x" * 100, partition=1)
        assert found.reply is None
        fixture.produce(b"x" * 100)
        assert len(found.values) == 3
        late = fixture.fetch(("t", 0, 2), min_bytes=1 << 20, max_wait_ms=1000)
        fixture.produce(b"y")
        fixture.clock.advance(1)
        assert late.values == [b"y"]

    def test_more_than_fits(self, make: MakeBroker) -> None:
        """A minimum above what one answer may hold does not wait for what it cannot get."""
        fixture = make(config=smaller_limits(fetch=1000))
        fixture.topic()
        found = fixture.fetch(("t", 0, 0), min_bytes=1 << 20, max_wait_ms=60_000)
        for _ in range(12):
            fixture.produce(b"x" * 100)
        assert len(found.values) >= 5

    def test_cancel(self, fixture: BrokerFixture) -> None:
        """A cancelled read is never answered and leaves nothing behind."""
        fixture.topic()
        found = fixture.fetch(("t", 0, 0), max_wait_ms=1000)
        assert found.reader is not None
        found.reader.cancel()
        found.reader.cancel()
        fixture.produce(b"a")
        fixture.clock.advance(2)
        assert (found.reply, watchers(fixture)) == (None, 0)
        assert fixture.clock.getDelayedCalls() == []

    def test_cancelled_by_another(self, fixture: BrokerFixture) -> None:
        """A read that is cancelled while others are woken is not answered."""
        fixture.topic()
        reads = [fixture.fetch(("t", 0, 0), max_wait_ms=1000) for _ in range(4)]
        for read in reads:

            def answer(reply: FetchReply, payload: list[Bytes], read: Fetched = read) -> None:
                for other in reads:
                    if other is not read and other.reader is not None:
                        other.reader.cancel()
                read(reply, payload)

            assert read.reader is not None
            read.reader._answer = answer
        fixture.produce(b"a")
        assert sum(read.answered for read in reads) == 1

    def test_many_readers(self, fixture: BrokerFixture) -> None:
        """One advance wakes everybody, each once."""
        fixture.topic()
        reads = [fixture.fetch(("t", 0, 0), max_wait_ms=1000) for _ in range(50)]
        fixture.produce(b"a")
        fixture.produce(b"b")
        assert {(read.answered, tuple(read.values)) for read in reads} == {(1, (b"a",))}


class TestSizes:
    def test_one_batch_above(self, fixture: BrokerFixture) -> None:
        """The first batch comes even if it is longer than max_bytes; nothing else then."""
        fixture.topic()
        fixture.produce(b"x" * 5000)
        fixture.produce(b"y")
        assert [len(each or b"") for each in fixture.fetch(("t", 0, 0), max_bytes=1).values] == [
            5000
        ]

    def test_max_bytes(self, fixture: BrokerFixture) -> None:
        """Whole batches come up to max_bytes, over all partitions in their order."""
        fixture.topic(partitions=3)
        for index in range(3):
            for _ in range(4):
                fixture.produce(b"x" * 100, partition=index)
        size = len(fixture.fetch(("t", 0, 3)).payload)
        found = fixture.fetch(("t", 0, 0), ("t", 1, 0), ("t", 2, 0), max_bytes=6 * size)
        assert [row[4] for row in found.rows] == [4 * size, 2 * size, 0]
        assert [row[1] for row in found.rows] == [4, 4, 4]

    def test_limit(self, make: MakeBroker) -> None:
        """The broker's limit of an answer holds whatever is asked for."""
        fixture = make(config=smaller_limits(fetch=1000))
        fixture.topic()
        for _ in range(50):
            fixture.produce(b"x" * 100)
        assert len(fixture.fetch(("t", 0, 0), max_bytes=1 << 24).payload) <= 1000

    def test_within_a_batch(self, fixture: BrokerFixture) -> None:
        """An offset within a batch gives the whole batch."""
        fixture.topic()
        fixture.produce(b"a", b"b", b"c")
        assert fixture.fetch(("t", 0, 2)).values == [b"a", b"b", b"c"]

    def test_segments(self, fixture: BrokerFixture) -> None:
        """A reader walks through all segments, batch by batch."""
        fixture.topic(segment_bytes=4096)
        for place in range(30):
            fixture.produce(b"%05d" % place * 200)
        assert [int((value or b"")[:5]) for value in fixture.values()] == list(range(30))


class TestErrors:
    def test_each_partition(self, fixture: BrokerFixture) -> None:
        """The rows keep the order of the request, and a bad one fails no other."""
        topic = fixture.topic(partitions=2)
        fixture.produce(b"a", partition=1)
        request = Fetch(
            topics=[
                (b"?" * 16, [(0, 0, -1)]),
                (topic.id, [(5, 0, -1), (1, 0, -1), (0, 9, -1)]),
            ]
        )
        found = fixture.fetch_ids(request)
        errors = [row[5] and type(error_from_meta(row[5])) for row in found.rows]
        assert errors == [UnknownTopicId, UnknownPartition, None, OffsetOutOfRange]
        assert [row[0] for row in found.rows] == [0, 5, 1, 0]
        assert found.values == [b"a"]

    def test_error_ends_waiting(self, fixture: BrokerFixture) -> None:
        """A read with one bad position does not wait for the others."""
        fixture.topic(partitions=2)
        found = fixture.fetch(("t", 0, 0), ("t", 1, 7), max_wait_ms=60_000)
        assert found.reply is not None

    def test_nothing(self, fixture: BrokerFixture) -> None:
        """A read of nothing is answered when its time is up."""
        found = fixture.fetch_ids(Fetch(topics=[], max_wait_ms=100))
        fixture.clock.advance(0.1)
        assert found.rows == []

    def test_deleted(self, fixture: BrokerFixture) -> None:
        """A waiting read of a deleted topic is told; the new topic has another id."""
        old = fixture.topic()
        fixture.topic("other")
        found = fixture.fetch(("other", 0, 0), ("t", 0, 0), max_wait_ms=60_000)
        fixture.operate("topic.delete", name="t")
        assert error_from_meta(found.rows[1][5]).code == UnknownTopicId.code
        assert watchers(fixture) == 0
        new = fixture.topic()
        assert new.id != old.id
        stale = fixture.fetch_ids(Fetch(topics=[(old.id, [(0, 0, -1)])]))
        assert isinstance(stale.error, UnknownTopicId)

    def test_unexpected(self, make: MakeBroker) -> None:
        """A fault while reading is logged and told blandly; whoever woke the read goes on."""
        fixture = make(disk=BrokenDisk())
        fixture.topic()
        found = fixture.fetch(("t", 0, 0), max_wait_ms=1000)
        answers = fixture.produce(b"a")
        assert len(answers) == 1
        assert isinstance(found.error, InternalError)
        assert "secret" not in found.error.text


class TestVisible:
    def test_watermark(self, held: BrokerFixture, syncer: HeldSyncer) -> None:
        """No read goes beyond the high watermark, though bytes lie behind it."""
        held.topic()
        held.produce(b"a")
        syncer.release()
        held.produce(b"b")
        found = held.fetch(("t", 0, 0))
        assert (found.values, found.rows[0][1]) == ([b"a"], 1)
        waiting = held.fetch(("t", 0, 1), max_wait_ms=1000)
        assert waiting.reply is None
        syncer.release()
        assert waiting.values == [b"b"]


class TestCold:
    def cold(self, make: MakeBroker, background: HeldBackground) -> BrokerFixture:
        """A broker whose pages are never in memory."""
        fixture = make(background=background)
        background.waiting.clear()
        disk = fixture.disk
        assert isinstance(disk, BrokerDisk)
        fixture.topic(partitions=2)
        fixture.produce(b"a")
        fixture.produce(b"b", partition=1)
        disk.cached = False
        return fixture

    def test_background(self, make: MakeBroker) -> None:
        """A cold read is answered after the background has touched the disk, counted once."""
        background = HeldBackground()
        fixture = self.cold(make, background)
        found = fixture.fetch(("t", 0, 0), ("t", 1, 0))
        assert found.reply is None
        fixture.produce(b"c")
        background.release()
        assert found.values == [b"a", b"c", b"b"]
        counters = [each.counters.records_out for each in fixture.broker.partitions()]
        assert counters == [2, 1]
        assert background.waiting == []

    def test_second_partition(self, make: MakeBroker) -> None:
        """When only the second partition is cold, the first is not counted twice."""
        background = HeldBackground()
        fixture = self.cold(make, background)
        fixture.topic("memory", storage="memory")
        fixture.produce(b"m", topic="memory")
        found = fixture.fetch(("memory", 0, 0), ("t", 1, 0))
        background.release()
        assert found.values == [b"m", b"b"]
        assert fixture.partition("memory").counters.records_out == 1

    def test_connection_lost(self, make: MakeBroker) -> None:
        """A read whose connection went while it was in the background is forgotten."""
        background = HeldBackground()
        fixture = self.cold(make, background)
        found = fixture.fetch(("t", 0, 0))
        assert found.reader is not None
        found.reader.cancel()
        background.release()
        assert found.reply is None
        assert fixture.partition().counters.records_out == 0

    def test_full_meanwhile(self, make: MakeBroker) -> None:
        """A peer that stopped reading meanwhile gets nothing, and the read is its own again."""
        background = HeldBackground()
        fixture = self.cold(make, background)
        found = fixture.fetch(("t", 0, 0))
        found.full = True
        background.release()
        assert found.reply is None
        assert found.reader is not None
        assert found.reader.finished

    def test_deleted_meanwhile(self, make: MakeBroker) -> None:
        """A topic deleted while a read of it was in the background is told as such."""
        background = HeldBackground()
        fixture = self.cold(make, background)
        found = fixture.fetch(("t", 0, 0))
        fixture.operate("topic.delete", name="t")
        background.release()
        assert isinstance(found.error, UnknownTopicId)


class TestDamage:
    def test_at_the_end(self, fixture: BrokerFixture) -> None:
        """In damage at the end a reader is told at once where to go on, and waits there."""
        fixture.topic()
        for place in range(3):
            fixture.produce(b"value-%d" % place)
        fixture.stop()
        (segment,) = fixture.path.glob("topics/*/0/data/*.log")
        content = bytearray(segment.read_bytes())
        content[-1] ^= 1
        segment.write_bytes(content)
        after = fixture.again()
        assert after.fetch(("t", 0, 0)).values == [b"value-0", b"value-1"]
        told = after.fetch(("t", 0, 2), max_wait_ms=1000)
        assert told.rows == [(0, 3, 0, 3, 0, None)]
        found = after.fetch(("t", 0, 3), max_wait_ms=1000)
        assert found.reply is None
        after.produce(b"later")
        assert found.values == [b"later"]
        again = after.fetch(("t", 0, 2), max_wait_ms=0)
        assert again.values == [b"later"]

    def test_nothing_but_damage(self, fixture: BrokerFixture) -> None:
        """A log of which nothing is left to read is told as one gap, and leaves no timer."""
        fixture.topic()
        fixture.produce(b"value")
        fixture.stop()
        (segment,) = fixture.path.glob("topics/*/0/data/*.log")
        content = bytearray(segment.read_bytes())
        content[-1] ^= 1
        segment.write_bytes(content)
        after = fixture.again()
        found = after.fetch(("t", 0, 0), max_wait_ms=1000)
        assert found.rows == [(0, 1, 0, 1, 0, None)]
        assert after.clock.getDelayedCalls() == []

    def test_segment_gone(self, fixture: BrokerFixture) -> None:
        """A segment whose file went away is a gap: the rest is served, nothing spins."""
        fixture.topic(segment_bytes=4096)
        for place in range(8):
            fixture.produce(b"%d" % place * 1500)
        segments = sorted(fixture.path.glob("topics/*/0/data/*.log"))
        assert len(segments) == 4
        fixture.stop()
        segments[1].unlink()
        after = fixture.again()
        assert [(value or b"")[:1] for value in after.values()] == [b"0", b"1"] + [
            b"%d" % place for place in range(4, 8)
        ]
        error = after.fetch(("t", 0, 3), max_wait_ms=0).error
        assert not isinstance(error, StorageError)
