"""The log in memory: bounded, counted, with the face of the other."""

from __future__ import annotations

import inspect

import pytest

from tests.storage.batches import make
from tinymq.errors import InvalidRequest, NothingToUndo, OffsetOutOfRange, PartitionOffline
from tinymq.storage.facts import Chunk
from tinymq.storage.log import Log
from tinymq.storage.memory import MemoryLog
from tinymq.wire.batch import read_header


def fill(log: MemoryLog, batches: int, count: int = 1, time: int = 1000) -> list[bytes]:
    """Write batches of 101 bytes, each a millisecond after the one before."""
    made = []
    for place in range(batches):
        batch = make(log.end_offset, count, 40, time + place)
        log.append(batch, log.end_offset, log.end_offset + count - 1, time + place)
        made.append(batch)
    log.write()
    return made


def test_same_face() -> None:
    """Everything public of a log on disk is there, with the same parameters."""
    for name, member in inspect.getmembers(Log):
        if not name.startswith("_") and name != "open":
            other = getattr(MemoryLog, name, None) or getattr(MemoryLog(), name)
            if inspect.isfunction(member):
                assert list(inspect.signature(member).parameters) == list(
                    inspect.signature(other).parameters
                )
    assert {*vars(MemoryLog()), *dir(MemoryLog)} >= {
        name for each in Log.__mro__[1:4] for name in vars(each) if not name.startswith("_")
    }


def test_oldest_go_when_full() -> None:
    """A full log drops its oldest batches and counts them."""
    log = MemoryLog(500)
    made = fill(log, 10, 2)
    assert (log.start_offset, log.end_offset, log.size_bytes) == (12, 20, 404)
    assert (log.dropped_records, log.dropped_bytes) == (12, 606)
    assert Chunk(b"".join(made[6:]), 12, 20) == log.read(12, 10_000, 20)
    with pytest.raises(OffsetOutOfRange):
        log.read(11, 1, 20)


def test_one_batch_stays() -> None:
    """A batch over the bound is kept until the next."""
    log = MemoryLog(1)
    fill(log, 2)
    assert (log.start_offset, log.size_bytes) == (1, 101)


def test_staged_is_not_read() -> None:
    """What is staged becomes readable with the write."""
    log = MemoryLog()
    batch = make(0)
    log.append([batch[:61], memoryview(batch)[61:]], 0, 0, 5)
    assert Chunk(b"", 0, 0) == log.read(0, 100, 9)
    assert (log.synced_offset, log.staged_bytes) == (0, len(batch))
    log.write()
    assert Chunk(batch, 0, 1) == log.read(0, 100, 9)
    assert log.begin_sync() is None
    assert log.synced_offset == 1


def test_offsets_must_follow() -> None:
    """A batch that does not continue the log is refused, and any after closing."""
    log = MemoryLog()
    with pytest.raises(InvalidRequest):
        log.append(make(1), 1, 1, 0)
    log.close()
    with pytest.raises(PartitionOffline):
        log.append(make(0), 0, 0, 0)
    with pytest.raises(PartitionOffline):
        log.write()


def test_times() -> None:
    """Seeking by time and expiry by time and size work as on disk."""
    log = MemoryLog()
    made = fill(log, 20, 2, time=1000)
    assert log.offset_for_time(1005) == (10, 1005)
    assert log.offset_for_time(1020) is None
    assert log.expire(1105, 100) == 6
    assert log.offset_for_time(0) == (12, 1006)
    assert log.expire(0, None, 500) == 9
    assert log.size_bytes == 505
    assert [read_header(each) for each in made[15:]] == list(log.headers())
    assert log.expire(10**6, 1) == 5
    assert (log.start_offset, log.end_offset, log.size_bytes) == (40, 40, 0)


def test_bytes_between() -> None:
    """Whole batches are counted, the one with the second offset not, as on disk."""
    log = MemoryLog(2000)
    fill(log, 30, 2)
    assert log.start_offset == 22
    assert log.bytes_between(0, 60) == log.size_bytes == 19 * 101
    assert log.bytes_between(25, 31) == 3 * 101
    assert log.bytes_between(30, 30) == log.bytes_between(40, 30) == log.bytes_between(60, 99) == 0
    log.truncate_to(51)
    fill(log, 1, 2)
    assert log.bytes_between(22, 52) == log.size_bytes == 15 * 101
    assert log.bytes_between(50, 52) == 101


def test_trim_purge_and_cut() -> None:
    """Moving the start, taking it back, and cutting the end work as on disk."""
    log = MemoryLog()
    fill(log, 20)
    assert log.trim(5) == 5
    assert log.trim(5) == 0
    assert log.purge(10, 1000, 100) == 5
    assert log.purge(10, 1000, 100) == 0
    assert log.start_offset == 10
    assert log.undo_purge() == 5
    with pytest.raises(NothingToUndo):
        log.undo_purge()
    log.purge(10, 1000, 100)
    assert log.finish_purges(1099) == 0
    assert log.finish_purges(1100) == 5
    log.truncate_to(15)
    assert (log.start_offset, log.end_offset, log.size_bytes) == (10, 15, 505)
    fill(log, 1)
    assert log.end_offset == 16
    assert log.checkpoint().segments == ()
    log.warmer(10, 100)()
