"""What a broker does by the clock."""

from __future__ import annotations

import errno

import pytest

from tests.broker.conftest import MakeBroker
from tests.fakes.broker import (
    BEGIN_MS,
    BrokerDisk,
    BrokerFixture,
    HeldSyncer,
    LogKeeper,
    changed,
    only,
    refused,
)
from tinymq.broker.housekeeping import reserve_of
from tinymq.errors import NothingToUndo, StorageFull
from tinymq.limits import MIB
from tinymq.storage.disk import Space


def disk_of(fixture: BrokerFixture) -> BrokerDisk:
    """Its disk, whose space can be set."""
    assert isinstance(fixture.disk, BrokerDisk)
    return fixture.disk


class TestSpace:
    def test_reserve(self) -> None:
        """The reserve is the setting, but at most a twentieth of the disk."""
        assert reserve_of(Space(free=0, total=10**12), 256 * MIB) == 256 * MIB
        assert reserve_of(Space(free=0, total=20 * MIB), 256 * MIB) == MIB

    def test_refuses_early(self, fixture: BrokerFixture, logged: LogKeeper) -> None:
        """Below the reserve publishing is refused with the reason, for a while."""
        disk = disk_of(fixture)
        fixture.topic()
        fixture.produce(b"a")
        fixture.housekeeping.start()
        assert fixture.broker.ready is None
        disk.free = Space(free=100 * MIB, total=1 << 40)
        for _ in range(5):
            fixture.clock.advance(1)
        error = refused(fixture.produce(b"b"))
        assert isinstance(error, StorageFull)
        assert error.data == {"free": 100 * MIB, "reserve": 256 * MIB}
        assert "purge" in str(fixture.broker.ready)
        assert fixture.values() == [b"a"]
        disk.free = Space(free=300 * MIB, total=1 << 40)
        fixture.clock.advance(1)
        assert fixture.broker.ready is None
        assert only(fixture.produce(b"c")).base_offset == 1
        told = [text for text in logged.texts if "publishing is" in text]
        assert len(told) == 2

    def test_undo_windows_end(self, fixture: BrokerFixture) -> None:
        """On a full disk what was purged goes at once, undo window or not."""
        fixture.topic(segment_bytes=4096)
        for _ in range(5):
            fixture.produce(b"x" * 3000)
        fixture.operate("topic.purge", name="t")
        assert fixture.partition().log.size_bytes > 15_000
        disk_of(fixture).free = Space(free=0, total=1 << 40)
        fixture.housekeeping.look_at_space()
        assert fixture.partition().log.size_bytes == 0
        with pytest.raises(NothingToUndo):
            fixture.operate("topic.undo_purge", name="t")

    def test_no_byte_left(self, fixture: BrokerFixture) -> None:
        """Publishing is refused early even when the disk has no byte to end undo windows with."""
        disk = disk_of(fixture)
        fixture.topic()
        fixture.produce(b"a")
        fixture.operate("topic.purge", name="t")
        disk.free, disk.room = Space(free=0, total=1 << 40), 0
        fixture.housekeeping.look_at_space()
        assert fixture.broker.ready is not None

    def test_unknown_space(self, fixture: BrokerFixture, logged: LogKeeper) -> None:
        """A disk that does not tell its space is logged, and looked at again."""
        fixture.housekeeping.start()
        disk = disk_of(fixture)
        disk.failing["space"] = errno.EIO
        fixture.clock.advance(1)
        fixture.clock.advance(1)
        assert len([text for text in logged.texts if text.startswith("space failed")]) == 2
        disk.failing.clear()
        fixture.clock.advance(1)
        assert len(logged.texts) == 2


class TestRetention:
    def test_time(self, fixture: BrokerFixture) -> None:
        """A quiet topic's last records go with time, also those of the last file."""
        fixture.topic(retention_ms=5000)
        fixture.housekeeping.start()
        fixture.produce(b"a")
        fixture.wall.now_ms += 4000
        fixture.clock.advance(30)
        assert fixture.values() == [b"a"]
        fixture.wall.now_ms += 1001
        fixture.clock.advance(30)
        partition = fixture.partition()
        assert (partition.log.start_offset, partition.high_watermark) == (1, 1)
        assert only(fixture.produce(b"b")).base_offset == 1
        assert fixture.values() == [b"b"]

    def test_under_load(self, held: BrokerFixture, syncer: HeldSyncer) -> None:
        """While records are on their way to the disk, retention takes none of them."""
        held.topic(retention_ms=1)
        held.produce(b"a")
        held.wall.now_ms += 10_000
        held.housekeeping.apply_retention()
        staged = held.stage(b"b")
        held.housekeeping.apply_retention()
        held.turn()
        syncer.release()
        syncer.release()
        assert only(staged).base_offset == 1
        assert b"b" in held.values()

    def test_bytes(self, fixture: BrokerFixture) -> None:
        """A topic keeps its newest bytes, in whole files."""
        fixture.topic(segment_bytes=4096, retention_bytes=10_000)
        for place in range(10):
            fixture.produce(b"%d" % place * 3000)
        fixture.housekeeping.apply_retention()
        kept = [(value or b"")[:1] for value in fixture.values()]
        assert kept[-1] == b"9"
        assert 3 <= len(kept) <= 5

    def test_memory(self, fixture: BrokerFixture) -> None:
        """Topics in memory lose old records as well."""
        fixture.topic(storage="memory", retention_ms=1000)
        fixture.produce(b"a")
        fixture.wall.now_ms += 1001
        fixture.housekeeping.apply_retention()
        assert fixture.values() == []

    def test_one_fails(self, fixture: BrokerFixture, logged: LogKeeper) -> None:
        """A partition whose files cannot be removed does not keep the others."""
        fixture.topic("a", retention_ms=1, segment_bytes=4096)
        fixture.topic("b", storage="memory", retention_ms=1)
        for name in ("a", "b"):
            fixture.produce(b"v" * 4000, topic=name)
            fixture.produce(b"v" * 4000, topic=name)
        fixture.wall.now_ms += 10
        disk_of(fixture).failing["unlink"] = errno.EIO
        fixture.housekeeping.apply_retention()
        assert fixture.values("b") == []
        assert any("retention of <Partition a/0> failed" in text for text in logged.texts)

    def test_purges_finish(self, fixture: BrokerFixture) -> None:
        """The files of a purge go when it can no longer be undone."""
        fixture.topic(undo_ms=60_000, retention_ms=None)
        fixture.produce(b"a")
        fixture.operate("topic.purge", name="t")
        fixture.wall.now_ms = BEGIN_MS + 59_999
        fixture.housekeeping.apply_retention()
        assert fixture.partition().log.undo_window is not None
        fixture.wall.now_ms += 1
        fixture.housekeeping.apply_retention()
        assert fixture.partition().log.undo_window is None
        assert fixture.partition().log.size_bytes == 0


class TestLife:
    def test_stop(self, fixture: BrokerFixture) -> None:
        """After the stop no timer is left."""
        fixture.housekeeping.start()
        fixture.housekeeping.stop()
        assert fixture.clock.getDelayedCalls() == []


class TestCheckpoint:
    def test_recovery_begins_there(self, fixture: BrokerFixture) -> None:
        """After a kill only what came behind the last checkpoint is looked at."""
        fixture.topic(partitions=2)
        for _ in range(20):
            fixture.produce(b"x" * 5000)
        fixture.produce(b"other", partition=1)
        fixture.housekeeping.checkpoint()
        fixture.produce(b"behind", producer=(7, 0, 0))
        fixture.kill()
        after = fixture.again()
        scanned = [each.log.report.scanned_bytes for each in after.broker.partitions()]
        assert (0 < scanned[0] < 1000, scanned[1]) == (True, 0)
        assert after.values()[-1] == b"behind"
        assert len(after.values()) == 21
        assert only(after.produce(b"behind", producer=(7, 0, 0))).duplicate

    def test_nothing_new(self, fixture: BrokerFixture) -> None:
        """An idle broker stores nothing anew."""
        fixture.topic()
        fixture.produce(b"a")
        fixture.housekeeping.checkpoint()
        before = disk_of(fixture).calls["writev"]
        fixture.housekeeping.checkpoint()
        assert disk_of(fixture).calls["writev"] == before

    def test_syncs(self, make: MakeBroker, syncer: HeldSyncer) -> None:
        """What the policy os left unsynced is on the disk after the interval."""
        fixture = make(syncer=syncer, config=changed(storage__checkpoint_seconds=7))
        fixture.topic(sync="os")
        fixture.produce(b"a")
        fixture.housekeeping.start()
        fixture.clock.advance(6.9)
        assert syncer.begun == 0
        fixture.clock.advance(0.2)
        syncer.release()
        assert not fixture.partition().unsynced
