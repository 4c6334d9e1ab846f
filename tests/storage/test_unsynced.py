"""What a power cut leaves of bytes that were not synced: a lost write ends the log."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.fakes.disk import FaultyDisk
from tests.storage.batches import (
    SMALL,
    bases,
    fill,
    flip,
    put,
    read_all,
    reopen,
    segment_files,
)
from tests.storage.conftest import MakeLog
from tinymq.errors import StorageError
from tinymq.storage.facts import Gap
from tinymq.storage.log import Log, LogConfig, LogPoint
from tinymq.wire.batch import NATIVE, build, read_header, stamp

WIDE = LogConfig(segment_bytes=1 << 20, index_interval=200)
#: Of a log that is younger than the checkpoint.
YOUNG = LogPoint(0, 0, -1, ())
SECTOR = 512


def lose(path: str, start: int, size: int = SECTOR) -> None:
    """Put zeros where a write did not reach the disk."""
    with open(path, "r+b") as file:
        size = min(size, os.path.getsize(path) - start)
        file.seek(start)
        file.write(bytes(size))


def running(log: Log) -> LogPoint:
    """The checkpoint of a log while its broker runs."""
    return LogPoint.from_list(log.checkpoint().to_list())


def copies(log: Log) -> dict[str, bytes]:
    """The files with what was set aside."""
    return {each.name: each.read_bytes() for each in sorted(Path(log.path).glob("*.bad"))}


def goes_on(log: Log, config: LogConfig) -> None:
    """A log takes records behind its end, and a further start finds them all."""
    before = read_all(log)
    after = fill(log, 3)
    found = reopen(log, config, running(log))
    assert before + after == read_all(found)
    assert found.report.notes == ()


def test_a_lost_write_ends_the_log(new_log: MakeLog) -> None:
    """Behind the checkpoint, what follows a lost write goes aside, and numbering goes on there."""
    log = new_log(WIDE)
    made = fill(log, 3, size=700)
    point = running(log)
    made += fill(log, 5, size=700)
    (path,) = segment_files(log)
    position = sum(map(len, made[:4]))
    lose(path, position + -position % SECTOR)
    content = Path(path).read_bytes()
    found = reopen(log, WIDE, point)
    assert made[:4] == read_all(found)
    assert (found.end_offset, found.synced_offset) == (4, 4)
    assert found.report.damaged == ()
    assert found.report.truncated_bytes == 0
    assert found.report.unsynced_bytes == len(content) - position
    assert found.report.notes[0].startswith("unsynced end cut: a write of offset 4 was lost; ")
    assert copies(found) == {f"{0:020d}.{position}.bad": content[position:]}
    goes_on(found, WIDE)


@pytest.mark.parametrize("known", [True, False])
def test_what_was_synced_is_never_cut(new_log: MakeLog, known: bool) -> None:
    """Below the checkpoint, and without one, a batch of zeros is damage: later records stay."""
    log = new_log(WIDE)
    made = fill(log, 5, size=700)
    point = running(log) if known else None
    made += fill(log, 2, size=700)
    lose(segment_files(log)[0], 1024)
    found = reopen(log, WIDE, point)
    assert [made[0], *made[3:]] == read_all(found)
    (gap,) = found.report.damaged
    assert (gap.start, gap.end) == (1, 3)
    assert found.report.unsynced_bytes == 0


@pytest.mark.parametrize("size", [20, 40, 460, 700, 3000])
@pytest.mark.parametrize("config", [WIDE, SMALL], ids=["one", "rolled"])
@pytest.mark.parametrize("synced", [0, 1, 3])
def test_every_sector(
    new_log: MakeLog, tmp_path: Path, size: int, config: LogConfig, synced: int
) -> None:
    """Whichever sector is lost, in whichever file: what is left is a prefix without a gap."""
    log = new_log(config)
    made = fill(log, synced, size=size)
    point = running(log)
    made += fill(log, 9, size=size)
    log.forget_files()
    safe = {f"{each.base:020d}.log": each.size for each in point.segments}
    for path in segment_files(log):
        name = os.path.basename(path)
        for start in range(0, os.path.getsize(path), SECTOR):
            begin = max(start, safe.get(name, 0))
            if begin >= start + SECTOR:
                continue
            copy = tmp_path / "copy"
            shutil.copytree(log.path, copy)
            lose(str(copy / name), begin, start + SECTOR - begin)
            found = Log.open(log._segments.files, str(copy), config, point)
            left = read_all(found)
            assert made[: len(left)] == left
            assert synced <= len(left) == found.end_offset
            assert found.report.damaged == ()
            assert fill(found, 1) == read_all(found, len(left))
            found.forget_files()
            shutil.rmtree(copy)


@pytest.mark.parametrize("rest", [0, 150, 190, 404])
def test_short_file_that_is_not_the_last(log: Log, rest: int) -> None:
    """A file whose end was lost, within a batch or between two, ends the log as well."""
    made = fill(log, 30)
    first, *others = segment_files(log)
    sizes = sum(map(os.path.getsize, others))
    os.truncate(first, rest)
    found = reopen(log, SMALL, YOUNG)
    assert made[: rest // 101] == read_all(found)
    assert found.report.damaged == ()
    assert found.report.unsynced_bytes == sizes + rest % 101
    later = [f"{Path(path).stem}.0.bad" for path in others]
    assert set(later) <= set(copies(found))
    assert segment_files(found) == [first]
    goes_on(found, SMALL)


def test_lost_name(log: Log) -> None:
    """A file that is not there behind the checkpoint ends the log; below it, it is a gap."""
    fill(log, 9)
    point = running(log)
    fill(log, 30)
    second = segment_files(log)[1]
    os.unlink(second)
    found = reopen(log, SMALL, point)
    assert bases(read_all(found)) == list(range(9))
    assert found.report.damaged == ()
    fill(found, 30)
    point = found.checkpoint()
    os.unlink(second)
    found = reopen(found, SMALL, point)
    assert (Gap(9, 18, 0, "missing"),) == found.report.damaged


@pytest.mark.parametrize("field", [7, 10, 11, 16, 18, 59, 70])
@pytest.mark.parametrize("segment", [0, 1, -1])
@pytest.mark.parametrize("batch", [0, 5, 8])
def test_a_flipped_bit_is_no_lost_write(log: Log, field: int, segment: int, batch: int) -> None:
    """Behind the checkpoint too, a flipped bit costs its batch only."""
    made = fill(log, 26)
    path = segment_files(log)[segment]
    batch = min(batch, os.path.getsize(path) // 101 - 2) if segment < 0 else batch
    with Path(path).open("rb") as file:
        lost = read_header(file.read(61)).base_offset + batch
    flip(path, 101 * batch + field)
    found = reopen(log, SMALL, YOUNG)
    assert made[:lost] + made[lost + 1 :] == read_all(found)
    (gap,) = found.report.damaged
    assert (gap.start, gap.end) == (lost, lost + 1)
    assert found.report.unsynced_bytes == 0


@pytest.mark.parametrize("known", [True, False])
def test_a_flipped_bit_among_zeros(new_log: MakeLog, known: bool) -> None:
    """A batch that holds zeros itself looks lost when damaged: only the checkpoint saves more."""
    log = new_log(WIDE)
    made = fill(log, 2)
    batch = build(bytes(2000), 1, NATIVE)
    batch = b"".join(stamp(batch, read_header(batch), 2, 0, 1000))
    log.append(batch, 2, 2, 1000)
    made += [batch, *fill(log, 2)]
    point = running(log) if known else YOUNG
    fill(log, 1)
    (path,) = segment_files(log)
    flip(path, 250)
    log.forget_files()
    found = reopen(log, WIDE, LogPoint(point.start, point.end, -1, ()))
    left = read_all(found)
    if known:
        assert left[:4] == made[:2] + made[3:]
    else:
        assert left == made[:2]
        assert len(copies(found)) == 1


def test_intact_zeros_are_nothing(new_log: MakeLog) -> None:
    """Batches full of zeros behind the checkpoint are read like any others."""
    log = new_log(WIDE)
    batch = build(bytes(3000), 1, NATIVE)
    for base in range(3):
        made = b"".join(stamp(batch, read_header(batch), base, 0, 1000))
        log.append(made, base, base, 1000)
    log.write()
    log.sync()
    assert reopen(log, WIDE, YOUNG).end_offset == 3


def test_the_index_of_unsynced_bytes_is_not_believed(log: Log) -> None:
    """An index may reach the disk though its segment did not: then the segment is read."""
    fill(log, 30, size=339)  # 400 bytes each, two to a file
    log.close()
    first = segment_files(log)[0]
    assert os.path.exists(first.removesuffix(".log") + ".index")
    lose(first, SECTOR)
    found = reopen(log, SMALL, YOUNG)
    assert bases(read_all(found)) == [0]
    assert not os.path.exists(first.removesuffix(".log") + ".index")
    goes_on(found, SMALL)


def test_cut_twice_at_one_place(new_log: MakeLog) -> None:
    """What was set aside at a place is kept when the log is cut there again."""
    log = new_log(WIDE)
    fill(log, 1, size=451)
    point = running(log)
    for count in (1, 2, 3):
        fill(log, 5, size=700 + count)
        lose(segment_files(log)[0], SECTOR)
        log = reopen(log, WIDE, point)
        assert log.end_offset == 1
        assert len(copies(log)) == count


def test_copies_go_with_their_place(log: Log) -> None:
    """Once the log begins behind what was cut, the copies go at the next start."""
    fill(log, 30)
    lose(segment_files(log)[0], SECTOR)
    found = reopen(log, SMALL, YOUNG)
    names = set(copies(found))
    assert len(names) == 4
    fill(found, 40)
    found.trim(25)
    left = set(copies(reopen(found, SMALL, found.checkpoint())))
    assert left == {name for name in names if int(name[:20]) >= found._segments.all[0].base}
    assert left < names


def test_full_disk(new_log: MakeLog) -> None:
    """Without space for the copy the log is cut all the same, and says so."""
    log = new_log(WIDE)
    made = fill(log, 6, size=700)
    lose(segment_files(log)[0], 1024)
    disk = FaultyDisk()
    disk.room = 0
    found = reopen(log, WIDE, YOUNG, disk)
    assert made[:1] == read_all(found)
    assert "without a copy" in found.report.notes[0]
    assert copies(found) == {}


def test_interrupted_cut(log: Log) -> None:
    """A start that dies while it cuts leaves the same cut to the next one."""
    made = fill(log, 30)
    lose(segment_files(log)[0], SECTOR)
    disk = FaultyDisk()
    disk.failing["truncate"] = 5
    with pytest.raises(StorageError):
        reopen(log, SMALL, YOUNG, disk)
    found = reopen(log, SMALL, YOUNG)
    assert made[:5] == read_all(found)
    assert len(segment_files(found)) == 1


def test_nothing_below_the_start_is_cut(log: Log) -> None:
    """A purge syncs first: what lies below it was synced, whatever the checkpoint says."""
    fill(log, 12)
    log.purge(10, 0, 1000)
    lose(segment_files(log)[0], SECTOR)
    found = reopen(log, SMALL, YOUNG)
    assert (found.start_offset, found.end_offset) == (10, 12)
    assert bases(read_all(found)) == [10, 11]


def test_a_torn_tail_is_no_cut(log: Log) -> None:
    """Zeros with nothing good behind them are a torn tail, as ever."""
    made = fill(log, 12)
    path = segment_files(log)[-1]
    os.truncate(path, os.path.getsize(path) + 4096)
    found = reopen(log, SMALL, YOUNG)
    assert made == read_all(found)
    assert (found.report.truncated_bytes, found.report.unsynced_bytes) == (4096, 0)
    assert copies(found) == {}


def test_retention_of_what_no_checkpoint_knows(log: Log) -> None:
    """Segments younger than the checkpoint go only once the start says that they may."""
    fill(log, 30)
    first = segment_files(log)[0]
    kept = Path(first).read_bytes()
    assert log.expire(10**6, None, 1000) == 2
    Path(first).write_bytes(kept)  # as if only the other name's removal had reached the disk
    found = reopen(log, SMALL, YOUNG)
    assert (found.start_offset, found.end_offset) == (18, 30)
    assert bases(read_all(found)) == list(range(18, 30))


def test_retention_of_what_it_knows(log: Log) -> None:
    """Retention costs no sync where a checkpoint was made since."""
    fill(log, 30)
    log.checkpoint()
    log.expire(10**6, None, 1000)
    assert not os.path.exists(os.path.join(log.path, "start"))


def test_the_first_name_is_certain(new_log: MakeLog, disk: FaultyDisk) -> None:
    """Before a log that was never synced gets a second file, its first one's name is synced."""
    log = new_log()
    for _ in range(25):
        put(log)
    log.write()
    assert disk.calls["fsync_dir"] == 1
    log.sync()
    disk.calls.clear()
    for _ in range(25):
        put(log)
    log.write()
    assert disk.calls["fsync_dir"] == 0
