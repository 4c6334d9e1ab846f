"""Starting after a stop that was not clean, and after damage."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.fakes.disk import FaultyDisk
from tests.storage.batches import (
    SMALL,
    bases,
    fill,
    flip,
    make,
    put,
    read_all,
    reopen,
    segment_files,
)
from tests.storage.conftest import MakeLog
from tinymq.storage.facts import Gap
from tinymq.storage.files import FileCache
from tinymq.storage.log import Log, LogConfig, LogPoint
from tinymq.wire.batch import BatchHeader, read_header

#: Fields of the header that recovery must see damage in; the epoch is not covered.
FIELDS = {"base": 7, "length": 11, "magic": 16, "crc": 18, "count": 59, "payload": 70}


def test_unclean_start_reads_the_last_segment(log: Log) -> None:
    """Everything written before a kill is there, and only the last file was scanned."""
    made = fill(log, 50)
    found = reopen(log)
    assert made == read_all(found)
    assert found.end_offset == found.synced_offset == 50
    assert found.report.scanned_bytes == os.path.getsize(segment_files(log)[-1])
    assert not found.report.clean


def test_clean_start_opens_nothing(log: Log) -> None:
    """With a fitting checkpoint no file is opened or read."""
    made = fill(log, 50)
    point = LogPoint.from_list(log.checkpoint().to_list(), clean=True)
    log.close()
    disk = FaultyDisk()
    found = reopen(log, SMALL, point, disk)
    assert found.report.clean
    assert found.report.scanned_bytes == 0
    assert not disk.calls
    assert (found.start_offset, found.end_offset, found.size_bytes) == (0, 50, log.size_bytes)
    assert made == read_all(found)
    assert fill(found, 5) == read_all(found, 50)


@pytest.mark.parametrize("cut", range(1, 102))
def test_torn_tail_is_cut(log: Log, cut: int) -> None:
    """However much of the last batch is lost, numbering goes on after the last good one."""
    made = fill(log, 8)
    path = segment_files(log)[-1]
    size = os.path.getsize(path)
    os.truncate(path, size - cut)
    found = reopen(log)
    assert found.end_offset == 7
    assert found.report.truncated_bytes == 101 - cut
    assert found.report.damaged == ()
    assert os.path.getsize(path) == size - 101
    assert made[:7] + fill(found, 2) == read_all(found)
    assert bases(read_all(reopen(found))) == list(range(9))


def test_garbage_behind_the_end_is_cut(log: Log) -> None:
    """Zeros or noise behind the last batch are a torn tail."""
    made = fill(log, 1)
    for noise in (bytes(500), b"\x02" * 500, bytes(range(256)) * 2):
        path = segment_files(log)[-1]
        with Path(path).open("ab") as file:
            file.write(noise)
        found = reopen(log)
        assert found.report.truncated_bytes == len(noise)
        assert made == read_all(found)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("bit", [1, 128])
@pytest.mark.parametrize("segment", [0, -1])
def test_flipped_bit(log: Log, field: str, bit: int, segment: int) -> None:
    """Only the record with the flipped bit is missing, it is reported, all else read."""
    made = fill(log, 24)
    path = segment_files(log)[segment]
    with Path(path).open("rb") as file:
        first = read_header(file.read(61)).base_offset
    flip(path, 101 + FIELDS[field], bit)
    lost = first + 1
    found = reopen(log)
    assert found.end_offset == 24
    assert [each for each in made if read_header(each).base_offset != lost] == read_all(found)
    gap: Gap
    (gap,) = found.report.damaged
    assert (gap.start, gap.end, gap.size, gap.reason) == (lost, lost + 1, 101, "damaged")
    assert os.path.getsize(gap.path) == 101
    assert fill(found, 3) == read_all(found, 24)
    for where in (lost, lost - 1):
        chunk = found.read(where, 1, 24)
        assert chunk is not None
        assert chunk.start == (lost + 1 if where == lost else where)
    again = reopen(found)
    assert len(read_all(again)) == 26
    assert [gap] == list(again.report.damaged)


def test_flipped_bit_found_without_a_restart(log: Log) -> None:
    """After a clean start damage shows when it is read."""
    made = fill(log, 24)
    point = log.checkpoint()
    log.close()
    flip(segment_files(log)[0], 101 + 80)
    found = reopen(log, SMALL, point)
    assert list(found.report.damaged) == []
    assert made[:1] + made[2:] == read_all(found)
    assert [gap.start for gap in found.report.damaged] == [1]
    assert read_all(reopen(found, SMALL, found.checkpoint())) == made[:1] + made[2:]


def test_damage_at_the_end_of_an_old_segment(log: Log) -> None:
    """A bad batch with nothing behind it in its file is no torn tail when another file follows."""
    fill(log, 24)
    path = segment_files(log)[0]
    last = os.path.getsize(path) - 1
    flip(path, last)
    found = reopen(log)
    assert len(read_all(found)) == 23
    assert [(gap.start, gap.end) for gap in found.report.damaged] == [(8, 9)]


def test_two_bad_batches_in_a_row(log: Log) -> None:
    """Neighbouring damage is one gap."""
    fill(log, 24)
    path = segment_files(log)[-1]
    flip(path, 80)
    flip(path, 101 + 80)
    found = reopen(log)
    assert len(read_all(found)) == 22
    (gap,) = found.report.damaged
    assert gap.offsets == 2


def test_lost_index(log: Log) -> None:
    """Without the index, or with half of one, every record is found."""
    made = fill(log, 50)
    log.close()
    names = [name for name in os.listdir(log.path) if name.endswith(".index")]
    assert len(names) > 2
    for place, name in enumerate(names):
        path = os.path.join(log.path, name)
        if place % 2:
            os.unlink(path)
        else:
            os.truncate(path, os.path.getsize(path) - 7)
    for point in (None, log.checkpoint() if log.offline is None else None):
        found = reopen(log, SMALL, point)
        assert made == read_all(found)
        for offset in range(50):
            chunk = found.read(offset, 1, 50)
            assert chunk is not None
            assert chunk.start == offset


def test_stale_index(log: Log) -> None:
    """An index that ends before its segment does is not believed."""
    fill(log, 5)
    log.close()
    kept = {
        name: Path(log.path, name).read_bytes()
        for name in os.listdir(log.path)
        if name.endswith(".index")
    }
    found = reopen(log)
    fill(found, 20)
    found.close()
    for name, content in kept.items():
        Path(log.path, name).write_bytes(content)
    assert list(range(25)) == bases(read_all(reopen(found)))


def test_old_checkpoint_put_back(log: Log) -> None:
    """An old checkpoint is only where looking begins; nothing is overwritten."""
    made = fill(log, 5)
    point = LogPoint.from_list(log.checkpoint().to_list(), clean=True)
    made += fill(log, 30)
    found = reopen(log, SMALL, point)
    assert not found.report.clean
    assert found.end_offset == 35
    made += fill(found, 2)
    assert made == read_all(found)


def test_checkpoint_shortens_the_scan(new_log: MakeLog) -> None:
    """Only what was written after the checkpoint is scanned."""
    log = new_log(LogConfig())
    fill(log, 5)
    point = log.checkpoint()
    made = fill(log, 2)
    seen: list[BatchHeader] = []
    log.forget_files()
    found = Log.open(FileCache(FaultyDisk()), log.path, LogConfig(), point, seen.append)
    assert found.report.scanned_bytes == sum(map(len, made))
    assert [each.base_offset for each in seen] == [5, 6]
    assert found.report.records == 2


def test_checkpoint_that_fits_no_batch(new_log: MakeLog) -> None:
    """A checkpoint that points into the middle of a batch is not followed."""
    log = new_log(LogConfig())
    made = fill(log, 5)
    point = log.checkpoint()
    (last,) = point.segments
    wrong = LogPoint(0, 4, 0, (last._replace(size=last.size - 150, end=4),))
    found = reopen(log, LogConfig(), wrong)
    assert made == read_all(found)
    assert found.report.damaged == ()


def test_missing_middle_segment(log: Log) -> None:
    """A file that is gone is one gap, and reading goes on behind it."""
    made = fill(log, 40)
    path = segment_files(log)[1]
    first, end = int(Path(path).stem), int(Path(segment_files(log)[2]).stem)
    os.unlink(path)
    found = reopen(log)
    assert (Gap(first, end, 0, "missing"),) == found.report.damaged
    assert made[:first] + made[end:] == read_all(found)
    assert [name for name in os.listdir(log.path) if name.endswith(".bad")] == []
    chunk = found.read(first, 1000, 40)
    assert chunk is not None
    assert chunk.start == end


@pytest.mark.parametrize("gone", [1, 2, 99], ids=["last", "two", "all"])
def test_missing_last_segments(log: Log, gone: int) -> None:
    """Offsets that were synced once are never given again, though their files are gone."""
    made = fill(log, 40)
    log.sync()
    point = log.checkpoint()
    log.close()
    paths = segment_files(log)[-gone:]
    first = int(Path(paths[0]).stem)
    for path in paths:
        os.unlink(path)
    found = reopen(log, SMALL, point)
    assert (Gap(first, 40, 0, "missing"),) == found.report.damaged
    assert (found.end_offset, found.synced_offset) == (40, 40)
    added = fill(found, 3)
    found.sync()
    assert made[:first] + added == read_all(found)
    again = reopen(found, SMALL, point)
    assert again.end_offset == 43
    assert made[:first] + added == read_all(again)


def test_segment_that_goes_while_open(log: Log) -> None:
    """A file that disappears under a running broker is one gap too."""
    made = fill(log, 40)
    point = log.checkpoint()
    log.close()
    found = reopen(log, SMALL, point)
    path = segment_files(log)[1]
    first, end = int(Path(path).stem), int(Path(segment_files(log)[2]).stem)
    os.unlink(path)
    assert made[:first] + made[end:] == read_all(found)
    assert made[:first] + made[end:] == read_all(found)
    assert (Gap(first, end, 0, "missing"),) == found.report.damaged


def test_gap_before_the_limit(log: Log) -> None:
    """A reader whose limit lies in a gap gets past it."""
    fill(log, 40)
    path = segment_files(log)[-2]
    first, end = int(Path(path).stem), int(Path(segment_files(log)[-1]).stem)
    os.unlink(path)
    found = reopen(log)
    chunk = found.read(first, 1000, first + 2)
    assert chunk is not None
    assert (chunk.data, chunk.next_offset) == (b"", first + 2)
    assert end > first + 2


def test_half_written_files_are_removed(log: Log) -> None:
    """Temporary files go at the next start, old state stays."""
    made = fill(log, 20)
    log.trim(12)
    left = Path(log.path, "start.tmp")
    left.write_bytes(b"")
    found = reopen(log)
    assert not left.exists()
    assert found.start_offset == 12
    assert made[12:] == read_all(found)


def test_damaged_start_file_deletes_nothing(log: Log) -> None:
    """Metadata that cannot be read makes more readable, never less."""
    fill(log, 20)
    log.purge(12, 0, 1000)
    flip(os.path.join(log.path, "start"), 10)
    found = reopen(log)
    assert found.start_offset == 0
    assert len(read_all(found)) == 20
    assert "damaged" in found.report.notes[0]


def test_all_segments_gone(log: Log) -> None:
    """When only the start is known, numbering goes on there."""
    fill(log, 20)
    log.trim(12)
    for path in segment_files(log):
        os.unlink(path)
    found = reopen(log)
    assert (found.start_offset, found.end_offset) == (12, 12)
    batch = put(found)
    found.write()
    assert [batch] == read_all(found)
    assert bases([batch]) == [12]


def test_overlapping_segment(log: Log) -> None:
    """Offsets that another file begins with are not given twice."""
    made = fill(log, 6)
    path = os.path.join(log.path, "00000000000000000004.log")
    with Path(path).open("wb") as file:
        file.write(b"".join(made[4:]))
    found = reopen(log)
    assert list(range(6)) == bases(read_all(found))


def test_batch_of_another_place(log: Log) -> None:
    """A good batch whose offset does not fit its place is damage."""
    made = fill(log, 3)
    (path,) = segment_files(log)
    with Path(path).open("r+b") as file:
        file.seek(101)
        file.write(make(9))
    found = reopen(log)
    assert [made[0], made[2]] == read_all(found)


def test_many_small_logs_stay_closed(new_log: MakeLog, disk: FaultyDisk) -> None:
    """Logs of one message cost no descriptor and no index file."""
    logs = [new_log(name=f"{place}/data", max_open=16) for place in range(100)]
    points = []
    for each in logs:
        fill(each, 1)
        points.append(LogPoint.from_list(each.checkpoint().to_list(), clean=True))
        each.close()
    assert not disk.opened
    disk.calls.clear()
    files = FileCache(disk)
    found = [
        Log.open(files, each.path, SMALL, point) for each, point in zip(logs, points, strict=True)
    ]
    assert not disk.calls
    assert {1} == {each.end_offset for each in found}
    assert {1} == {len(os.listdir(each.path)) for each in found}
