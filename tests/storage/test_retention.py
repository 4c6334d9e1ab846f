"""What goes from the front of a log, and when."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tests.fakes.disk import FaultyDisk
from tests.storage.batches import bases, fill, put, read_all, reopen, segment_files
from tinymq.errors import NothingToUndo
from tinymq.storage.log import Log


def test_trim_removes_whole_segments(log: Log) -> None:
    """Settled offsets go, the files that hold only such go too, and it lasts."""
    made = fill(log, 40)
    assert log.trim(25) > 0
    assert log.start_offset == 25
    assert made[25:] == read_all(log)
    assert int(os.path.basename(segment_files(log)[0])[:20]) <= 25
    found = reopen(log)
    assert found.start_offset == 25
    assert found.report.damaged == ()
    assert made[25:] == read_all(found)


def test_trim_goes_no_further_than_the_disk(log: Log) -> None:
    """The start is never ahead of what a power cut would leave."""
    fill(log, 3)
    put(log)
    log.write()
    log.trim(4)
    assert log.start_offset == 3
    assert log.trim(2) == 0


def test_expire_by_time(log: Log) -> None:
    """Segments go once their youngest message is too old."""
    made = fill(log, 40, time=1000)
    assert log.expire(1000 + 50, 40) > 0
    left = read_all(log)
    assert made[-len(left) :] == left
    assert log.start_offset == bases(left)[0]
    assert log.start_offset <= 11
    assert made[-len(left) :] == read_all(reopen(log))


def test_quiet_segment_expires(log: Log) -> None:
    """One message and silence: it is gone in time, and numbering goes on."""
    fill(log, 1, time=1000)
    assert log.expire(5999, 5000) == 0
    assert log.expire(6000, 5000) == 1
    assert (log.start_offset, log.end_offset, log.size_bytes) == (1, 1, 0)
    assert log.expire(7000, 5000) == 0
    found = reopen(log)
    assert (found.start_offset, found.end_offset) == (1, 1)
    assert bases(fill(found, 1, time=8000)) == [1]
    assert bases(read_all(found)) == [1]


def test_fresh_messages_never_expire(log: Log) -> None:
    """Retention that runs while messages come takes no fresh one."""
    for now in range(1000, 60_000, 500):
        put(log, time=now)
        log.write()
        log.sync()
        log.expire(now, 5000)
        times = [each.max_timestamp for each in log.headers()]
        assert times[-1] == now
        assert {each for each in range(max(1000, now - 4999), now + 1) if not each % 500} <= set(
            times
        )
    assert log.start_offset > 90


def test_clock_that_steps_back_expires_nothing(log: Log) -> None:
    """With a clock an hour back nothing is too old."""
    fill(log, 40, time=3_600_000)
    assert log.expire(0, 5000) == 0


def test_unsynced_segments_stay(log: Log) -> None:
    """What is not on the disk yet is not removed."""
    put(log, time=0)
    log.write()
    assert log.expire(10**6, 10) == 0


def test_expire_by_size(log: Log) -> None:
    """Segments go while more than the wanted bytes stay."""
    fill(log, 100)
    log.expire(0, None, 3000)
    assert 3000 <= log.size_bytes < 4010
    assert log.expire(0, None, 0) == log.segment_count or log.segment_count == 1
    assert log.end_offset == 100


def test_purge_and_undo(log: Log, disk: FaultyDisk) -> None:
    """A purge hides at once, keeps the files, lasts, and can be taken back."""
    made = fill(log, 40)
    size = log.size_bytes
    assert log.purge(25, 1000, 600) == 25
    assert (log.start_offset, log.size_bytes) == (25, size)
    assert made[25:] == read_all(log)
    assert log.finish_purges(1599) == 0
    found = reopen(log)
    assert found.start_offset == 25
    assert found.undo_purge() == 25
    assert made == read_all(found)
    assert reopen(found).start_offset == 0
    with pytest.raises(NothingToUndo):
        found.undo_purge()


def test_purge_becomes_final(log: Log) -> None:
    """After the window the files go, and nothing can be undone."""
    made = fill(log, 40)
    log.purge(25, 1000, 600)
    assert log.finish_purges(1600) > 0
    assert made[25:] == read_all(log) == read_all(reopen(log))
    with pytest.raises(NothingToUndo):
        log.undo_purge()


def test_purge_of_everything(log: Log) -> None:
    """An emptied log keeps its numbering, before and after the window."""
    fill(log, 40)
    assert log.purge(10**9, 1000, 600) == 40
    assert read_all(log) == []
    assert reopen(log).end_offset == 40
    log.finish_purges(1600)
    assert log.size_bytes == 0
    found = reopen(log)
    assert (found.start_offset, found.end_offset) == (40, 40)
    assert bases(fill(found, 1)) == [40]


def test_purges_in_a_row(log: Log) -> None:
    """Each purge has its own window and is undone in reverse order."""
    fill(log, 40)
    log.purge(10, 1000, 600)
    log.purge(30, 1100, 600)
    assert log.purge(20, 1100, 600) == 0
    log.finish_purges(1600)
    assert log.undo_purge() == 20
    assert log.start_offset == 10
    with pytest.raises(NothingToUndo):
        log.undo_purge()


def test_trim_keeps_what_can_be_undone(log: Log) -> None:
    """Settling on does not take the purged records away before their time."""
    made = fill(log, 40)
    log.purge(25, 1000, 600)
    assert log.trim(35) == 0
    assert reopen(log).start_offset == 35
    log.undo_purge()
    assert made == read_all(log)


@pytest.mark.parametrize("way", ["trim", "expire", "finish"])
def test_full_disk_can_be_emptied(log: Log, disk: FaultyDisk, way: str) -> None:
    """Segments go although the disk has no room for a single byte."""
    made = fill(log, 40, time=1000)
    if way == "finish":
        log.purge(30, 1000, 600)
    disk.room = 0
    if way == "trim":
        assert log.trim(30) > 0
    elif way == "expire":
        assert log.expire(1000 + 40, 10) > 0
    else:
        assert log.finish_purges(1600) > 0
    left = read_all(log)
    assert made[-len(left) :] == left
    disk.failing["open"] = errno.ENOSPC
    assert log.expire(10**6, 10) >= 0
    disk.room = None
    disk.failing.clear()
    assert log.expire(10**6, 10) > 0
    assert log.end_offset == reopen(log).end_offset == 40


def test_interrupted_removal_goes_on(log: Log) -> None:
    """Segments that a crash left below the start are removed at the next one."""
    fill(log, 40)
    kept = {path: Path(path).read_bytes() for path in segment_files(log)}
    log.trim(25)
    for path, content in kept.items():
        Path(path).write_bytes(content)
    found = reopen(log)
    assert int(os.path.basename(segment_files(found)[0])[:20]) <= 25
    assert len(segment_files(found)) < len(kept)
    assert found.start_offset == 25


def test_folded_segments_stay_for_a_while(log: Log) -> None:
    """What was folded is not readable, also after a start, but its files are there until late."""
    fill(log, 40)
    before = len(segment_files(log))
    log.fold(25, deadline=9000)
    log.fold(35, deadline=9500)
    found = reopen(log)
    assert (found.start_offset, len(segment_files(found))) == (35, before)
    assert found.parts()[0].base == found.kept_since[0] == 0
    assert found.finish_purges(9000) > 0
    assert 0 < found.kept_since[0] <= 25
    assert found.finish_purges(9500) > 0
    assert 25 < found.kept_since[0] <= 35
    assert len(found.parts()) == len(segment_files(found)) < before


def test_folded_segments_have_a_bound(log: Log) -> None:
    """The oldest go beyond a number of bytes; what is readable never does."""
    made = fill(log, 40)
    log.fold(30, deadline=9000)
    size = log.size_bytes
    assert log.let_go(size) == 0
    assert log.let_go(size // 3) > 0
    assert log.let_go(0) > 0
    assert log.kept_since[0] <= log.start_offset == 30
    assert made[30:] == read_all(log) == read_all(reopen(log))
