"""Open files are bounded, and running out of them harms nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.fakes.disk import FaultyDisk
from tests.storage.batches import fill, put, read_all
from tests.storage.conftest import MakeLog
from tinymq.errors import TooManyOpenFiles
from tinymq.storage.files import FileCache


def test_longest_unused_goes_first(disk: FaultyDisk, tmp_path: Path) -> None:
    """The cache keeps the files that were used last."""
    files = FileCache(disk, 2)
    for name in ("a", "b", "a", "c"):
        files.get(str(tmp_path / name), create=True)
    assert len(files) == len(disk.opened) == 2
    disk.calls.clear()
    files.get(str(tmp_path / "a"))
    assert disk.calls["open"] == 0


def test_unsynced_files_stay(disk: FaultyDisk, tmp_path: Path) -> None:
    """A file is not closed before its bytes are on the disk, even over the bound."""
    files = FileCache(disk, 1)
    dirty = files.get(str(tmp_path / "a"), create=True)
    dirty.dirty = True
    pinned = files.get(str(tmp_path / "b"), create=True)
    files.pin(pinned)
    files.get(str(tmp_path / "c"), create=True)
    assert min(dirty.descriptor, pinned.descriptor) >= 0
    assert len(files) == 3
    files.unpin(pinned)
    files.get(str(tmp_path / "d"), create=True)
    assert pinned.descriptor == -1


def test_forgotten_while_pinned(disk: FaultyDisk, tmp_path: Path) -> None:
    """A file that is removed during a sync is closed when the sync ends."""
    files = FileCache(disk)
    file = files.get(str(tmp_path / "a"), create=True)
    files.pin(file)
    files.forget(file.path)
    assert file.descriptor >= 0
    files.unpin(file)
    assert file.descriptor == -1
    files.close()
    assert not disk.opened


def test_no_descriptor_left(new_log: MakeLog, disk: FaultyDisk) -> None:
    """Many logs on few descriptors fail for a while, lose nothing and recover."""
    logs = [new_log(name=f"{place}/data", max_open=1000) for place in range(40)]
    disk.descriptors = 10
    made: dict[int, list[bytes]] = {}
    refused = 0
    for place, log in enumerate(logs):
        batch = put(log)
        try:
            log.write()
            made[place] = [batch]
        except TooManyOpenFiles:
            refused += 1
            assert log.end_offset == 0
    assert 0 < refused < 40
    before = sorted(
        name for log in logs if os.path.isdir(log.path) for name in os.listdir(log.path)
    )
    disk.descriptors = None
    for place, log in enumerate(logs):
        made.setdefault(place, []).append(put(log))
        log.write()
        log.sync()
        assert log.offline is None
        assert made[place] == read_all(log)
        assert log.report.damaged == ()
    after = sorted(name for log in logs for name in os.listdir(log.path))
    assert {"00000000000000000000.log"} == set(before) | set(after)


def test_reading_without_a_descriptor(new_log: MakeLog, disk: FaultyDisk) -> None:
    """A reader hears of it as a passing error, and nothing is called damaged."""
    log = new_log(max_open=2)
    made = fill(log, 40)
    disk.descriptors = 0
    with pytest.raises(TooManyOpenFiles):
        read_all(log)
    disk.descriptors = None
    assert made == read_all(log)
    assert log.report.damaged == ()
