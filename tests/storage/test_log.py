"""Appending and reading: the plain cases."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.disk import FaultyDisk
from tests.storage.batches import SMALL, fill, make, put, read_all, reopen, segment_files
from tests.storage.conftest import MakeLog
from tinymq.errors import (
    InvalidRequest,
    OffsetOutOfRange,
    PartitionOffline,
    StorageError,
    StorageFull,
)
from tinymq.storage.disk import IOV_MAX, Disk
from tinymq.storage.files import FileCache
from tinymq.storage.log import Chunk, Log, LogConfig
from tinymq.storage.memory import MemoryLog
from tinymq.wire.batch import read_header


def test_bytes_on_disk(log: Log) -> None:
    """A segment holds the batches as they were stamped, and nothing else."""
    log.append(make(0, 2, 5, 7, 3), 0, 1, 7)
    log.write()
    (path,) = segment_files(log)
    assert os.path.basename(path) == "00000000000000000000.log"
    assert (
        bytes.fromhex(
            "0000000000000000 00000036 00000003 02 b7f31080 8008 00000001 0000000000000007"
            "0000000000000007 ffffffffffffffff ffff ffffffff 00000002 302e302e30"
        )
        == Path(path).read_bytes()
    )


def test_offsets_move_as_batches_go_down(log: Log) -> None:
    """End, written and synced offset rise one after the other."""
    put(log, 3)
    assert (log.end_offset, log.written_offset, log.synced_offset) == (3, 0, 0)
    log.write()
    assert (log.end_offset, log.written_offset, log.synced_offset) == (3, 3, 0)
    log.sync()
    assert (log.end_offset, log.written_offset, log.synced_offset) == (3, 3, 3)


def test_offsets_must_follow(log: Log) -> None:
    """A batch that does not continue the log is refused."""
    with pytest.raises(InvalidRequest):
        log.append(make(1), 1, 1, 0)


def test_read_back(log: Log) -> None:
    """What was appended is read back, over many segments."""
    made = fill(log, 50, 2)
    assert log.segment_count > 3
    assert made == read_all(log)


def test_pieces_are_written_without_joining(log: Log, disk: FaultyDisk) -> None:
    """A batch can come in pieces, and a turn's batches go down in one call."""
    first, second = make(0), make(1)
    log.append([first[:61], memoryview(first)[61:]], 0, 0, 5)
    log.append(bytearray(second), 1, 1, 5)
    log.write()
    assert disk.calls["writev"] == 1
    assert [first, second] == read_all(log)


def test_read_begins_with_the_batch_that_has_the_offset(log: Log) -> None:
    """An offset in the middle of a batch gives the whole batch."""
    made = fill(log, 4, 5)
    chunk = log.read(7, 1, 20)
    assert chunk == Chunk(made[1], 5, 10)


def test_a_batch_longer_than_wanted_comes_whole(log: Log) -> None:
    """The first batch is given however small the wish."""
    made = fill(log, 3, 1, 5000)
    assert Chunk(made[1], 1, 2) == log.read(1, 10, 3)


def test_read_stops_at_the_limit(log: Log) -> None:
    """No batch that reaches the limit is read, be it in the middle of one."""
    made = fill(log, 3, 4)
    assert Chunk(made[0], 0, 4) == log.read(0, 1000, 7)
    assert Chunk(b"", 4, 4) == log.read(4, 1000, 7)
    assert Chunk(b"", 0, 0) == log.read(0, 1000, 0)


def test_staged_batches_are_not_read(log: Log) -> None:
    """What is not written cannot be read, whatever the limit says."""
    put(log)
    assert Chunk(b"", 0, 0) == log.read(0, 1000, 10)


def test_read_outside(log: Log) -> None:
    """Offsets before the start and behind the end are told apart from an empty read."""
    fill(log, 30)
    log.trim(10)
    for offset in (9, 31):
        with pytest.raises(OffsetOutOfRange) as caught:
            log.read(offset, 1000, 100)
        assert caught.value.data == {"start": 10, "end": 30}
    assert Chunk(b"", 30, 30) == log.read(30, 1000, 100)


def test_one_pread_for_each_read_in_order(log: Log, disk: FaultyDisk) -> None:
    """Who reads on finds its place without looking for it."""
    fill(log, 5)
    assert log.read(0, 101, 5) is not None
    before = disk.calls["pread"]
    for offset in range(1, 5):
        chunk = log.read(offset, 101, 5)
        assert chunk is not None
        assert chunk.next_offset == offset + 1
    assert disk.calls["pread"] == before + 4


def test_nowait_gives_none(log: Log, disk: FaultyDisk) -> None:
    """A read that must not wait says so when the page cache has nothing."""
    made = fill(log, 1)
    assert Chunk(made[0], 0, 1) == log.read(0, 1000, 1, nowait=True)
    disk.cached = False
    assert log.read(0, 1000, 1, nowait=True) is None


def test_real_page_cache(tmp_path: Path) -> None:
    """On the real disk freshly written bytes are found without waiting, or it cannot tell."""
    log = Log.open(FileCache(Disk()), str(tmp_path / "data"), SMALL)
    made = fill(log, 3)
    log.warmer(0, 1000)()
    chunk = log.read(0, 1000, 3, nowait=True)
    assert chunk is not None
    assert bytes(chunk.data) == b"".join(made)
    log.close()


def test_many_pieces_are_written_in_several_calls(new_log: MakeLog, disk: FaultyDisk) -> None:
    """More batches than the system takes at once are split."""
    log = new_log(LogConfig())
    made = [put(log, size=1) for _ in range(IOV_MAX + 5)]
    log.write()
    assert disk.calls["writev"] == 2
    assert made == read_all(log)


def test_short_writes_are_continued(log: Log, disk: FaultyDisk) -> None:
    """A disk that takes a few bytes at a time gets them all."""
    disk.most = 37
    made = fill(log, 20)
    assert made == read_all(log)


def test_segments_roll_by_age(new_log: MakeLog) -> None:
    """A batch that is much younger than its segment begins another."""
    log = new_log(LogConfig(segment_ms=100))
    for time in (1000, 1099, 1100, 1150, 1300):
        put(log, time=time)
    log.write()
    assert log.segment_count == 3


def test_closed_log_takes_nothing(log: Log) -> None:
    """After closing, appending and writing are refused."""
    log.close()
    with pytest.raises(PartitionOffline):
        log.append(make(0), 0, 0, 0)
    with pytest.raises(PartitionOffline):
        log.write()


def test_headers(log: Log) -> None:
    """Headers can be walked from any offset, without payloads."""
    made = fill(log, 30, 3)
    assert [read_header(each) for each in made] == list(log.headers())
    assert [read_header(each) for each in made[5:]] == list(log.headers(16))


def test_offset_for_time(log: Log) -> None:
    """A time finds the first batch appended then or later."""
    fill(log, 40, 2, time=1000)
    assert log.offset_for_time(0) == (0, 1000)
    assert log.offset_for_time(1017) == (34, 1017)
    assert log.offset_for_time(1039) == (78, 1039)
    assert log.offset_for_time(1040) is None
    log.trim(35)
    assert log.offset_for_time(0) == (35, 1017)


def test_oldest_and_sizes(log: Log) -> None:
    """The oldest readable time and the bytes between offsets, on disk as in memory."""
    memory = MemoryLog()
    assert log.oldest_timestamp is memory.oldest_timestamp is None
    fill(log, 40, 2, time=1000)
    for header in log.headers():
        batch = make(header.base_offset, 2, 40, header.max_timestamp)
        memory.append(batch, header.base_offset, header.last_offset, header.max_timestamp)
    memory.write()
    each: Log | MemoryLog
    for each in (log, memory):
        assert (each.oldest_timestamp, each.undo_window) == (1000, None)
        assert each.bytes_between(0, 80) == 4040
        assert each.bytes_between(4, 60) == 28 * 101
        each.purge(31, 5000, 600)
        assert (each.oldest_timestamp, each.undo_window) == (1015, (5600, 31))
        each.purge(80, 5000, 600)
        assert (each.oldest_timestamp, each.undo_window) == (None, (5600, 49))


def test_time_reads_headers(new_log: MakeLog, disk: FaultyDisk) -> None:
    """Of batches that were checked before, only the headers are read."""
    log = new_log(LogConfig(segment_bytes=8_000_000))
    for time in range(1000, 1005):
        put(log, size=1_000_000, time=time)
    log.write()
    seen: list[int] = []
    pread = disk.pread

    def counted(descriptor: int, size: int, position: int) -> bytes:
        seen.append(size)
        return pread(descriptor, size, position)

    disk.pread = counted  # type: ignore[method-assign]
    assert log.offset_for_time(1003) == (3, 1003)
    assert sum(seen) < 100_000


def test_times_never_fall(log: Log) -> None:
    """A clock that steps back lowers no time of the log, and seeking stays right."""
    put(log, time=5000)
    put(log, time=1000)
    assert log.max_timestamp == 5000
    log.write()
    assert log.offset_for_time(4000) == (0, 5000)


def test_disk_full_leaves_whole_batches(log: Log, disk: FaultyDisk) -> None:
    """What does not fit is un-staged, nothing torn stays, and writing goes on later."""
    made = fill(log, 2)
    size = os.path.getsize(segment_files(log)[0])
    disk.room = 150
    put(log)
    put(log)
    with pytest.raises(StorageFull):
        log.write()
    assert (log.end_offset, log.written_offset, log.staged_bytes) == (2, 2, 0)
    assert os.path.getsize(segment_files(log)[0]) == size
    assert made == read_all(log)
    disk.room = None
    made += fill(log, 3)
    assert made == read_all(log) == read_all(reopen(log))


def test_disk_full_at_a_roll(log: Log, disk: FaultyDisk) -> None:
    """A segment that cannot be begun leaves the log as it was."""
    made = fill(log, 9)
    disk.failing["open"] = errno.ENOSPC
    put(log)
    with pytest.raises(StorageFull):
        log.write()
    assert log.end_offset == 9
    disk.failing.clear()
    made += fill(log, 3)
    assert made == read_all(log)


def test_failed_write_takes_the_log_offline(log: Log, disk: FaultyDisk) -> None:
    """An error of the device is not a full disk: nothing is taken any more."""
    made = fill(log, 1)
    disk.failing["writev"] = errno.EIO
    put(log)
    with pytest.raises(PartitionOffline):
        log.write()
    disk.failing.clear()
    with pytest.raises(PartitionOffline):
        put(log)
    assert made == read_all(log)


def test_cut_back_that_fails_takes_the_log_offline(log: Log, disk: FaultyDisk) -> None:
    """When not even the torn end can be cut off, the log must not go on."""
    disk.room, disk.failing["truncate"] = 10, errno.EIO
    put(log)
    with pytest.raises(PartitionOffline):
        log.write()
    assert isinstance(log.offline, PartitionOffline)


def test_truncate(log: Log) -> None:
    """A log is cut at a batch, and goes on from there."""
    made = fill(log, 30, 2)
    log.truncate_to(25)
    assert log.end_offset == 24
    assert made[:12] == read_all(log)
    made[12:] = fill(log, 20, 2)
    assert made == read_all(log) == read_all(reopen(log))


def test_folder_that_cannot_be_read(tmp_path: Path) -> None:
    """A log whose folder is a file is an error of storage with the path in it."""
    (tmp_path / "data").write_bytes(b"")
    with pytest.raises(StorageError, match="data cannot be opened"):
        Log.open(FileCache(Disk()), str(tmp_path / "data"))


def test_unreadable_bytes(log: Log, disk: FaultyDisk) -> None:
    """A device that cannot read is an error, and no damage."""
    fill(log, 3)
    disk.failing["pread"] = errno.EIO
    with pytest.raises(StorageError, match="cannot be read"):
        log.read(0, 100, 3)
    assert log.report.damaged == ()
    assert log.offline is None


_SIZES = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 300)), min_size=1, max_size=30)


@given(_SIZES, st.data())
def test_same_as_in_memory(sizes: list[tuple[int, int]], data: st.DataObject) -> None:
    """A log on disk reads like a log in memory, at any offset, size and limit."""
    with tempfile.TemporaryDirectory() as home:
        log = Log.open(FileCache(FaultyDisk()), home, SMALL)
        memory = MemoryLog()
        for count, size in sizes:
            batch = make(log.end_offset, count, size)
            for each in (log, memory):
                each.append(batch, each.end_offset, each.end_offset + count - 1, 1000)
        log.write()
        memory.write()
        logs = [log, reopen(log)]
        for _ in range(10):
            offset = data.draw(st.integers(0, log.end_offset))
            limit = data.draw(st.integers(0, log.end_offset))
            most = data.draw(st.integers(0, 2000))
            wanted = memory.read(offset, most, limit)
            assert wanted is not None
            for each in logs:
                chunk = each.read(offset, most, limit)
                assert chunk is not None
                assert bytes(chunk.data) == bytes(wanted.data)[: len(chunk.data)]
                assert bool(chunk.data) == bool(wanted.data)
                assert (chunk.start, chunk.data == b"") == (wanted.start, wanted.data == b"")
        assert read_all(log) == read_all(logs[1])
        for each in logs:
            each.close()
