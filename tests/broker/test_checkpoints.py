"""Running checkpoints, and what a start after a kill or a power cut makes of them."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.task import Clock
from typing_extensions import override

from tests.fakes.broker import BrokerDisk, BrokerFixture, HeldSyncer, LogKeeper, only
from tinymq.broker.checkpoints import Checkpoints
from tinymq.broker.partitions import OFTEN
from tinymq.errors import LogTruncated
from tinymq.storage.log import Log

SECTOR = 512


class SlowClock(Clock):
    """A clock on which every look takes a millisecond."""

    turns = 0

    @override
    def seconds(self) -> float:
        self.rightNow += 0.001
        return super().seconds()

    @override
    def callLater(self, delay: float, callable: Any, *args: Any, **kw: Any) -> IDelayedCall:
        self.turns += 1
        return super().callLater(delay, callable, *args, **kw)


def disk_of(fixture: BrokerFixture) -> BrokerDisk:
    """Its disk, which can be made to fail."""
    assert isinstance(fixture.disk, BrokerDisk)
    return fixture.disk


def logs(fixture: BrokerFixture) -> list[Log]:
    """The logs of all partitions."""
    return [each.log for each in fixture.broker.partitions() if isinstance(each.log, Log)]


def test_nothing_changed(fixture: BrokerFixture) -> None:
    """Only partitions that changed are noted, and without any nothing is written."""
    fixture.topic(partitions=3)
    home = f"{fixture.path}/topics/{fixture.meta.describe('t').id.hex()}"
    fixture.produce(b"a", producer=(7, 0, 0))
    fixture.produce(b"a", producer=(7, 0, 0), partition=1)
    fixture.housekeeping.checkpoint()
    before = fixture.disk.read_file(f"{fixture.path}/checkpoint")
    for index in (0, 1):
        fixture.disk.unlink(f"{home}/{index}/producers")
    fixture.housekeeping.checkpoint()
    assert before == fixture.disk.read_file(f"{fixture.path}/checkpoint")
    fixture.produce(b"b", producer=(7, 0, 1))
    fixture.housekeeping.checkpoint()
    assert before != fixture.disk.read_file(f"{fixture.path}/checkpoint")
    assert fixture.disk.exists(f"{home}/0/producers")
    assert not fixture.disk.exists(f"{home}/1/producers")


def test_many_producers(fixture: BrokerFixture) -> None:
    """Many producers are stored once a new segment was begun, and not each time."""
    fixture.topic(segment_bytes=4096)
    path = f"{fixture.path}/topics/{fixture.meta.describe('t').id.hex()}/0/producers"
    for producer in range(OFTEN + 1):
        fixture.stage(b"a", producer=(producer, 0, 0))
    fixture.turn()
    fixture.housekeeping.checkpoint()
    fixture.disk.unlink(path)
    fixture.produce(b"b", producer=(7, 0, 1))
    fixture.housekeeping.checkpoint()
    assert not fixture.disk.exists(path)
    fixture.produce(b"x" * 4000, producer=(7, 0, 2))
    fixture.housekeeping.checkpoint()
    assert fixture.disk.exists(path)


def test_in_slices(fixture: BrokerFixture) -> None:
    """However many partitions there are, the reactor is held for a slice at a time."""
    fixture.topic(partitions=50)
    for index in range(50):
        fixture.produce(b"a", partition=index, producer=(7, 0, 0))
    clock = SlowClock()
    broker = fixture.broker
    checkpoints = Checkpoints(clock, broker.committer, broker.syncer, broker.store)
    checkpoints.begin(broker.partitions())
    checkpoints.begin(broker.partitions())
    clock.advance(0)
    assert not clock.calls
    assert clock.turns >= 50
    fixture.kill()
    assert [each.report.scanned_bytes for each in logs(fixture.again())] == [0] * 50


def test_stop_in_between(fixture: BrokerFixture) -> None:
    """A stop leaves a checkpoint that is on its way undone."""
    fixture.topic(partitions=50)
    clock = SlowClock()
    broker = fixture.broker
    checkpoints = Checkpoints(clock, broker.committer, broker.syncer, broker.store)
    checkpoints.begin(broker.partitions())
    assert clock.calls
    checkpoints.stop()
    assert not clock.calls


def test_one_at_a_time(held: BrokerFixture, syncer: HeldSyncer) -> None:
    """While one is on its way to the disk no other is written."""
    held.topic()
    path = f"{held.path}/checkpoint"
    for _ in range(2):
        held.produce(b"a")
        syncer.groups.reverse()
        syncer.release()
        held.housekeeping.checkpoint()
    assert len(syncer.groups) == 1
    before = held.disk.read_file(path)
    syncer.release()
    first = held.disk.read_file(path)
    assert first != before
    held.housekeeping.checkpoint()
    syncer.release()
    assert held.disk.read_file(path) != first


@pytest.mark.parametrize("name", ["fdatasync", "writev"])
def test_failing_disk(fixture: BrokerFixture, logged: LogKeeper, name: str) -> None:
    """When it cannot be written or synced, the old one stays, and the next one is tried."""
    fixture.topic()
    fixture.produce(b"a")
    fixture.housekeeping.checkpoint()
    before = fixture.disk.read_file(f"{fixture.path}/checkpoint")
    fixture.produce(b"b")
    disk = disk_of(fixture)
    disk.failing[name] = errno.ENOSPC if name == "writev" else errno.EIO
    fixture.housekeeping.checkpoint()
    disk.failing.clear()
    assert any("no checkpoint was written" in text for text in logged.texts)
    assert before == fixture.disk.read_file(f"{fixture.path}/checkpoint")
    assert not fixture.disk.exists(f"{fixture.path}/checkpoint.tmp")
    fixture.housekeeping.checkpoint()
    assert before != fixture.disk.read_file(f"{fixture.path}/checkpoint")


def test_after_the_end(held: BrokerFixture, syncer: HeldSyncer) -> None:
    """A checkpoint whose sync ends after the folder was closed replaces nothing."""
    held.topic()
    held.produce(b"a")
    syncer.release()
    held.housekeeping.checkpoint()
    held.kill()
    before = held.disk.read_file(f"{held.path}/checkpoint")
    syncer.release()
    assert before == held.disk.read_file(f"{held.path}/checkpoint")


def test_kill_with_a_checkpoint_in_the_middle(fixture: BrokerFixture) -> None:
    """
    Recovery reads what lies behind the checkpoint, and every batch is still known.

    That holds for what came before it, behind it, and from idle producers.
    """
    fixture.topic(segment_bytes=4096)
    value = b"x" * 500
    fixture.produce(value, producer=(8, 0, 0))
    for place in range(20):
        fixture.produce(value, producer=(7, 0, place))
    fixture.housekeeping.checkpoint()
    for place in range(20, 23):
        fixture.produce(value, producer=(7, 0, place))
    (size,) = {each.size for each in logs(fixture)[0].headers()}
    fixture.kill()
    after = fixture.again()
    report = logs(after)[0].report
    assert (report.scanned_bytes, report.records) == (3 * size, 3)
    assert only(after.produce(value, producer=(8, 0, 0))).base_offset == 0
    for place in range(23):
        answer = only(after.produce(value, producer=(7, 0, place)))
        assert (answer.duplicate, answer.base_offset) == (True, place + 1)
    assert not only(after.produce(value, producer=(7, 0, 23))).duplicate
    assert len(after.values()) == 25


def test_recovery_is_a_checkpoint(fixture: BrokerFixture) -> None:
    """What one start has read the next one need not, though it is killed at once."""
    fixture.topic()
    fixture.produce(b"a")
    fixture.kill()
    second = fixture.again()
    assert logs(second)[0].report.records == 1
    second.kill()
    assert logs(second.again())[0].report.records == 0


def test_resent_in_order_after_a_power_cut(held: BrokerFixture, syncer: HeldSyncer) -> None:
    """
    Of three batches in flight the middle one is lost: the producer sends two again, in order.

    Kept behind the hole, the third would be taken for a duplicate and the second
    for out of order.
    """
    held.topic()
    held.produce(b"before", producer=(7, 0, 0))
    syncer.release()
    answers = [held.stage(b"%d" % place * 1000, producer=(7, 0, place)) for place in (1, 2, 3)]
    held.turn()
    held.store.store_producers(held.broker.partitions())
    (path,) = held.path.glob("topics/*/0/data/*.log")
    position = logs(held)[0]._segments.locate(logs(held)[0]._segments.all[0], 2)[0]
    held.kill()
    assert answers == [[], [], []]
    with path.open("r+b") as file:
        file.seek(position + -position % SECTOR)
        file.write(bytes(SECTOR))
    after = held.again()
    (log,) = logs(after)
    assert (log.end_offset, log.report.damaged) == (2, ())
    assert after.partition().epoch_due
    assert only(after.produce(b"1" * 1000, producer=(7, 0, 1))).duplicate
    for place in (2, 3):
        answer = only(after.produce(b"%d" % place * 1000, producer=(7, 0, place)))
        assert (answer.duplicate, answer.base_offset) == (False, place)
    assert after.values() == [b"before", *(b"%d" % place * 1000 for place in (1, 2, 3))]
    assert after.partition().epoch == 1


def test_the_cut_is_told(held: BrokerFixture, syncer: HeldSyncer, logged: LogKeeper) -> None:
    """An unsynced end that was cut is one line of the log; a reader beyond it is told."""
    held.topic(sync="os")
    for place in range(3):
        held.produce(b"%d" % place * 1000)
    (path,) = held.path.glob("topics/*/0/data/*.log")
    assert held.fetch(("t", 0, 2, 0)).values == [b"2" * 1000]
    held.kill()
    with path.open("r+b") as file:
        file.seek(2 * SECTOR + SECTOR)
        file.write(bytes(SECTOR))
    after = held.again()
    assert len([text for text in logged.texts if "cut an unsynced end" in text]) == 1
    after.produce(b"other")
    assert isinstance(after.fetch(("t", 0, 3, 0)).error, LogTruncated)
