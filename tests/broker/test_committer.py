"""Nothing is visible or acknowledged before its policy says so, and groups form by themselves."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.fakes.broker import (
    Answers,
    BrokerDisk,
    BrokerFixture,
    HeldSyncer,
    batch,
    only,
    refused,
)
from tinymq.errors import PartitionOffline, StorageFull, TooManyOpenFiles, UnknownTopicId

BROKEN = OSError(errno.EIO, "Input/output error")


class TestAlways:
    def test_held(self, held: BrokerFixture, syncer: HeldSyncer) -> None:
        """Before its sync a record is neither acknowledged nor visible to anybody."""
        held.topic()
        answers = held.produce(b"a")
        waiting = held.fetch(("t", 0, 0), max_wait_ms=1000)
        partition = held.partition()
        assert (answers, waiting.reply) == ([], None)
        assert (partition.log.written_offset, partition.high_watermark) == (1, 0)
        assert partition.offset_at(-1)[0] == 0
        assert held.operate("topic.info", name="t")["topic"]["messages"] == 0
        syncer.release()
        assert only(answers).base_offset == 0
        assert waiting.values == [b"a"]

    def test_one_turn(self, held: BrokerFixture, syncer: HeldSyncer) -> None:
        """Everything that comes within a turn is one write and one sync."""
        disk = held.disk
        assert isinstance(disk, BrokerDisk)
        held.topic()
        answers = [held.stage(b"v") for _ in range(10)]
        before = disk.calls["writev"]
        held.turn()
        assert (disk.calls["writev"] - before, syncer.begun) == (1, 1)
        syncer.release()
        assert [only(each).base_offset for each in answers] == list(range(10))

    def test_next_group(self, held: BrokerFixture, syncer: HeldSyncer) -> None:
        """What comes during a sync gathers in memory and is the next group, at once."""
        held.topic()
        first = held.produce(b"a")
        second, third = held.produce(b"b"), held.produce(b"c")
        assert (syncer.begun, held.partition().log.written_offset) == (1, 1)
        syncer.release()
        assert syncer.begun == 2
        assert (len(first), second, third) == (1, [], [])
        syncer.release()
        assert [only(each).base_offset for each in (second, third)] == [1, 2]
        assert held.broker.committer.idle

    def test_beside(self, held: BrokerFixture, syncer: HeldSyncer) -> None:
        """While one log is synced another need not wait for it, and itself is in one group only."""
        held.topic(partitions=2)
        first, again = held.produce(b"a"), held.produce(b"b")
        beside = held.produce(b"c", partition=1)
        assert [len(tickets) for tickets, _ in syncer.groups] == [1, 1]
        syncer.groups.reverse()
        syncer.release()
        assert (first, again, only(beside).base_offset) == ([], [], 0)
        syncer.release()
        assert (only(first).base_offset, again) == (0, [])
        syncer.release()
        assert only(again).base_offset == 1
        assert held.broker.committer.idle

    def test_not_beside(self, held: BrokerFixture, syncer: HeldSyncer) -> None:
        """Where many logs are busy they gather, and one sync covers them."""
        held.topic(partitions=9)
        running = held.produce(b"a")
        answers = [held.produce(b"v", partition=index) for index in range(1, 9)]
        assert syncer.begun < 4
        while syncer.groups:
            syncer.release()
        assert syncer.begun < 6
        assert [only(each).base_offset for each in (running, *answers)] == [0] * 9

    def test_after_all_that_run(self, held: BrokerFixture, syncer: HeldSyncer) -> None:
        """Who waits for syncs waits for each that runs, and for none that begins later."""
        held.topic(partitions=2)
        told: list[int] = []
        held.produce(b"a")
        held.produce(b"b", partition=1)
        held.produce(b"c")
        held.broker.committer.after_sync(lambda: told.append(1))
        syncer.release()
        assert (told, len(syncer.groups)) == ([], 2)
        syncer.release()
        assert (told, len(syncer.groups)) == ([1], 1)
        syncer.release()

    def test_many_partitions(self, held: BrokerFixture, syncer: HeldSyncer) -> None:
        """One sync covers all partitions that were written since the last."""
        held.topic(partitions=5)
        answers = [held.stage(b"v", partition=index) for index in range(5)]
        held.turn()
        ((tickets, _),) = syncer.groups
        assert len(tickets) == 5
        syncer.release()
        assert [only(each).base_offset for each in answers] == [0] * 5

    def test_producing_from_an_answer(self, fixture: BrokerFixture) -> None:
        """Who publishes from within an acknowledgement is served like everybody."""
        topic = fixture.topic()
        second: list[Answers] = []

        def answered(result: object) -> None:
            second.append(fixture.stage(b"b"))

        fixture.broker.produce(topic.id, 0, batch(b"a"), answered)
        fixture.turn()
        fixture.turn()
        assert [only(each).base_offset for each in second] == [1]
        assert fixture.values() == [b"a", b"b"]

    def test_failed_sync(self, held: BrokerFixture, syncer: HeldSyncer) -> None:
        """A failed sync takes the partition offline: all hear it, and nothing succeeds later."""
        held.topic(partitions=2)
        running = held.produce(b"a", producer=(7, 0, 0))
        gathered = held.stage(b"b", producer=(7, 0, 1))
        other = held.stage(b"c", partition=1)
        waiting = held.fetch(("t", 0, 0), max_wait_ms=60_000)
        held.turn()
        syncer.release(BROKEN)
        assert isinstance(refused(running), PartitionOffline)
        assert isinstance(refused(gathered), PartitionOffline)
        assert waiting.reply is None
        syncer.release()
        assert only(other).base_offset == 0
        for sequence in (0, 1, 2):  # the first two are remembered, but not on disk
            again = held.produce(b"x", producer=(7, 0, sequence))
            assert isinstance(refused(again), PartitionOffline)
        assert held.partition().high_watermark == 0
        assert held.operate("topic.info", name="t")["topic"]["partitions"][0]["state"] == "offline"
        held.broker.committer.sync_all(held.broker.partitions())
        assert held.broker.committer.idle

    def test_offline_keeps_nothing(self, held: BrokerFixture, syncer: HeldSyncer) -> None:
        """An offline partition answers a thousand producers without keeping their batches."""
        held.topic()
        held.produce(b"a")
        syncer.release(BROKEN)
        held.produce(b"b")
        held.produce(b"c")
        error = refused(held.produce(b"d"))
        length, place = 0, error.__traceback__
        while place is not None:
            length, place = length + 1, place.tb_next
        assert length <= 2

    def test_offline_after_restart(self, held: BrokerFixture, syncer: HeldSyncer) -> None:
        """A restart brings an offline partition back with what its disk holds."""
        held.topic()
        held.produce(b"a")
        syncer.release()
        held.produce(b"b")
        syncer.release(BROKEN)
        held.stop()
        after = held.again()
        assert not after.folder.clean
        assert after.values()[0] == b"a"
        assert only(after.produce(b"c")).base_offset == len(after.values()) - 1

    def test_write_fails_midway(self, held: BrokerFixture, syncer: HeldSyncer) -> None:
        """When a later part of a group cannot be written, the first is not left waiting."""
        disk = held.disk
        assert isinstance(disk, BrokerDisk)
        held.topic(segment_bytes=4096)
        running = held.produce(b"x" * 3000)
        first, second = held.stage(b"y" * 900), held.stage(b"z" * 3000)
        held.turn()
        disk.room = 1000
        disk.failing["truncate"] = errno.EIO
        syncer.release()
        assert only(running).base_offset == 0
        assert isinstance(refused(first), PartitionOffline)
        assert isinstance(refused(second), PartitionOffline)
        assert held.broker.committer.idle


class TestFull:
    def test_recovers(self, fixture: BrokerFixture) -> None:
        """A full disk refuses what is staged, tears nothing; with space all goes on."""
        disk = fixture.disk
        assert isinstance(disk, BrokerDisk)
        fixture.topic()
        fixture.produce(b"a")
        disk.room = 30
        refusals = [fixture.stage(b"b"), fixture.stage(b"c")]
        fixture.turn()
        assert {type(refused(each)) for each in refusals} == {StorageFull}
        partition = fixture.partition()
        assert partition.log.end_offset == partition.high_watermark == 1
        assert fixture.values() == [b"a"]
        disk.room = None
        assert only(fixture.produce(b"d")).base_offset == 1
        fixture.kill()
        after = fixture.again()
        assert after.partition().log.report.truncated_bytes == 0
        assert after.values() == [b"a", b"d"]

    def test_part_of_a_group(self, held: BrokerFixture, syncer: HeldSyncer) -> None:
        """Of a group that fits in part, what was written is acknowledged, the rest refused."""
        disk = held.disk
        assert isinstance(disk, BrokerDisk)
        held.topic(segment_bytes=4096)
        fits, too_much = held.stage(b"x" * 3000), held.stage(b"y" * 3000)
        disk.room = 4000
        held.turn()
        assert isinstance(refused(too_much), StorageFull)
        assert fits == []
        syncer.release()
        assert only(fits).base_offset == 0

    def test_repeat_of_a_refused_batch(self, held: BrokerFixture, syncer: HeldSyncer) -> None:
        """A repeat that waited with its first one is refused with it."""
        disk = held.disk
        assert isinstance(disk, BrokerDisk)
        held.topic()
        first = held.stage(b"a", producer=(7, 0, 0))
        again = held.stage(b"a", producer=(7, 0, 0))
        disk.room = 0
        held.turn()
        assert isinstance(refused(first), StorageFull)
        assert isinstance(refused(again), StorageFull)
        assert syncer.groups == []

    def test_no_descriptor(self, fixture: BrokerFixture) -> None:
        """Without a descriptor a batch is refused for now, and the next one goes well."""
        disk = fixture.disk
        assert isinstance(disk, BrokerDisk)
        fixture.topic()
        disk.failing["open"] = errno.EMFILE
        error = refused(fixture.produce(b"a"))
        assert isinstance(error, TooManyOpenFiles)
        assert error.retriable
        disk.failing.clear()
        assert only(fixture.produce(b"b")).base_offset == 0

    def test_purge_with_staged(self, held: BrokerFixture, syncer: HeldSyncer) -> None:
        """A purge on a full disk refuses what is staged, which is never acknowledged later."""
        disk = held.disk
        assert isinstance(disk, BrokerDisk)
        held.topic()
        held.produce(b"a")
        syncer.release()
        lost = held.stage(b"b", producer=(7, 0, 0))
        disk.room = 0
        with pytest.raises(StorageFull):
            held.operate("topic.purge", name="t")
        assert isinstance(refused(lost), StorageFull)
        disk.room = None
        kept = held.produce(b"c", producer=(8, 0, 0))
        syncer.release()
        assert only(kept).base_offset == 1
        assert len(lost) == 1
        assert held.values() == [b"a", b"c"]

    def test_purge_syncs(self, held: BrokerFixture, syncer: HeldSyncer) -> None:
        """What a purge brings to the disk on its way is acknowledged."""
        held.topic()
        held.produce(b"a")
        syncer.release()
        answers = held.stage(b"b")
        held.operate("topic.purge", name="t")
        held.turn()
        while syncer.groups:
            syncer.release()
        assert only(answers).base_offset == 1
        assert held.values() == [b"b"]

    def test_purge_during_a_sync(self, held: BrokerFixture, syncer: HeldSyncer) -> None:
        """A purge while a sync runs makes nothing certain that it did not sync itself."""
        disk = held.disk
        assert isinstance(disk, BrokerDisk)
        held.topic()
        held.produce(b"a")
        syncer.release()
        running = held.produce(b"b")
        before = disk.calls["fdatasync"]
        held.operate("topic.purge", name="t")
        assert disk.calls["fdatasync"] - before == 2  # the log, and its new start
        syncer.release()
        assert only(running).base_offset == 1
        assert held.broker.committer.idle

    def test_purge_whose_sync_fails(self, held: BrokerFixture, syncer: HeldSyncer) -> None:
        """When the disk fails under a purge, nobody who waits is told of success."""
        disk = held.disk
        assert isinstance(disk, BrokerDisk)
        held.topic()
        held.produce(b"a")
        syncer.release()
        running = held.produce(b"b")
        disk.failing["fdatasync"] = errno.EIO
        with pytest.raises(PartitionOffline):
            held.operate("topic.purge", name="t")
        assert isinstance(refused(running), PartitionOffline)
        syncer.release()
        assert held.partition().high_watermark == 1
        assert held.broker.committer.idle


class TestOther:
    def test_os(self, held: BrokerFixture, syncer: HeldSyncer) -> None:
        """With sync = os a record is acknowledged and visible once written, with no sync."""
        held.topic(sync="os")
        assert only(held.produce(b"a")).base_offset == 0
        assert held.values() == [b"a"]
        assert syncer.begun == 0
        held.housekeeping.checkpoint()
        assert syncer.begun == 1

    def test_write_staged(self, held: BrokerFixture) -> None:
        """A connection that handled its input has what need not wait written at once."""
        held.topic(sync="os")
        answers = held.stage(b"a")
        assert answers == []
        held.broker.committer.write_staged()
        assert only(answers).base_offset == 0
        held.turn()

    def test_memory(self, held: BrokerFixture, syncer: HeldSyncer) -> None:
        """A topic in memory says so in each acknowledgement."""
        held.topic(storage="memory")
        assert only(held.produce(b"a")).volatile
        assert held.values() == [b"a"]
        assert syncer.begun == 0

    def test_interval(self, held: BrokerFixture, syncer: HeldSyncer) -> None:
        """With sync = interval records are acknowledged once written, and synced later."""
        held.topic(sync="interval", sync_interval_ms=200)
        assert only(held.produce(b"a")).base_offset == 0
        held.clock.advance(0.19)
        assert syncer.begun == 0
        held.clock.advance(0.02)
        assert syncer.begun == 1
        syncer.release()
        assert not held.partition().unsynced
        held.clock.advance(10)
        assert syncer.begun == 1

    def test_intervals(self, held: BrokerFixture, syncer: HeldSyncer) -> None:
        """Each topic is synced after its own interval, whichever was written first."""
        held.topic("slow", sync="interval", sync_interval_ms=60_000)
        held.topic("fast", sync="interval", sync_interval_ms=100)
        held.produce(b"a", topic="slow")
        held.produce(b"b", topic="fast")
        held.clock.advance(0.11)
        ((tickets, _),) = syncer.groups
        assert len(tickets) == 1
        syncer.release()
        assert held.partition("slow").unsynced
        assert not held.partition("fast").unsynced
        held.clock.advance(60)
        syncer.release()
        assert not held.partition("slow").unsynced

    def test_interval_under_load(self, held: BrokerFixture, syncer: HeldSyncer) -> None:
        """Syncs that never pause do not keep an interval, or a checkpoint, from its sync."""
        held.topic("busy")
        held.topic("now-and-then", sync="interval", sync_interval_ms=100)
        held.topic("os", sync="os")
        held.produce(b"a", topic="busy")
        held.produce(b"b", topic="now-and-then")
        held.produce(b"c", topic="os")
        held.housekeeping.checkpoint()
        for _ in range(3):
            held.produce(b"d", topic="busy")
            held.clock.advance(0.1)
            syncer.release()
        assert not held.partition("now-and-then").unsynced
        assert not held.partition("os").unsynced
        assert not held.broker.committer.idle

    def test_failed_interval(self, held: BrokerFixture, syncer: HeldSyncer) -> None:
        """When a later sync fails, the partition takes no more."""
        held.topic(sync="interval", sync_interval_ms=100)
        assert only(held.produce(b"a")).base_offset == 0
        held.clock.advance(0.1)
        syncer.release(BROKEN)
        assert isinstance(refused(held.produce(b"b")), PartitionOffline)

    @pytest.mark.parametrize("policy", ["os", "interval"])
    def test_altered_to_always(self, held: BrokerFixture, syncer: HeldSyncer, policy: str) -> None:
        """When a topic begins to promise the disk, what was written is synced at once."""
        held.topic(sync=policy)
        held.produce(b"a")
        staged = held.stage(b"b")
        held.operate("topic.alter", name="t", config={"sync": "always"})
        assert syncer.begun == 1
        syncer.release()
        held.turn()
        while syncer.groups:
            syncer.release()
        assert only(staged).base_offset == 1
        assert held.values() == [b"a", b"b"]

    def test_altered_in_the_turn(self, held: BrokerFixture, syncer: HeldSyncer) -> None:
        """A batch staged before the alteration, with nothing else to sync, is synced too."""
        held.topic(sync="os")
        staged = held.stage(b"a")
        partition = held.partition()
        partition.topic = held.meta.alter_topic("t", {"sync": "always"})
        held.turn()
        assert staged == []
        syncer.release()
        assert only(staged).base_offset == 0

    def test_altered_to_os(self, held: BrokerFixture, syncer: HeldSyncer) -> None:
        """When a topic no longer promises the disk, nobody is left waiting."""
        held.topic()
        running, gathered = held.produce(b"a"), held.produce(b"b")
        held.operate("topic.alter", name="t", config={"sync": "os"})
        while syncer.groups:
            syncer.release()
        assert [only(each).base_offset for each in (running, gathered)] == [0, 1]


class TestIdle:
    def test_when_idle(self, held: BrokerFixture, syncer: HeldSyncer) -> None:
        """Who asks is told once nothing is on its way to the disk; at once if so already."""
        told: list[int] = []
        held.broker.committer.when_idle(lambda: told.append(0))
        held.topic()
        held.stage(b"a")
        held.broker.committer.when_idle(lambda: told.append(1))
        held.turn()
        assert told == [0]
        syncer.release()
        assert told == [0, 1]

    def test_stop(self, held: BrokerFixture) -> None:
        """After a stop no timer is left."""
        held.topic(sync="interval")
        held.produce(b"a")
        held.stage(b"b")
        held.broker.committer.stop()
        held.broker.committer.stop()
        assert held.clock.getDelayedCalls() == []


class TestDelete:
    def test_while_syncing(self, held: BrokerFixture, syncer: HeldSyncer, tmp_path: Path) -> None:
        """A topic deleted while it is synced goes when the sync ended, and harms no other."""
        topic = held.topic("gone", partitions=2)
        held.topic("stays")
        held.topic("next")
        running = held.produce(b"a", topic="gone")
        staged = held.stage(b"b", topic="gone", partition=1)
        other = held.stage(b"c", topic="next")
        folder = tmp_path / "data" / "topics" / topic.id.hex()
        held.operate("topic.delete", name="gone")
        assert isinstance(refused(running), UnknownTopicId)
        assert isinstance(refused(staged), UnknownTopicId)
        assert folder.exists()
        held.turn()
        syncer.release()
        assert not folder.exists()
        assert len(syncer.groups) == 1
        syncer.release()
        assert only(other).base_offset == 0
        assert held.broker.committer.idle
        assert not list((tmp_path / "data" / "deleted").iterdir())

    def test_staged(self, fixture: BrokerFixture) -> None:
        """A topic deleted within the turn of a publish leaves nothing to be written."""
        fixture.topic(sync="os")
        staged = fixture.stage(b"a")
        fixture.operate("topic.delete", name="t")
        fixture.turn()
        assert isinstance(refused(staged), UnknownTopicId)
        assert fixture.broker.committer.idle

    def test_interval(self, held: BrokerFixture, syncer: HeldSyncer) -> None:
        """A topic deleted before its interval has passed is not synced any more."""
        held.topic(sync="interval", sync_interval_ms=100)
        held.produce(b"a")
        held.operate("topic.delete", name="t")
        held.clock.advance(1)
        assert syncer.begun == 0
        assert held.clock.getDelayedCalls() == []
