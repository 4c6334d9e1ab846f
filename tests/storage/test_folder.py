"""The data folder: lock, format, clean stops, topics."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tests.fakes.disk import FaultyDisk
from tests.storage.batches import SMALL, fill, flip, read_all
from tinymq.errors import ConfigError
from tinymq.storage.disk import Space
from tinymq.storage.epochs import EpochFile
from tinymq.storage.folder import DataFolder
from tinymq.storage.log import Log, LogPoint

TOPIC = bytes(range(16))


def listing(path: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {
        str(each.relative_to(path)): each.read_bytes() for each in path.rglob("*") if each.is_file()
    }


def test_new_folder(tmp_path: Path, disk: FaultyDisk) -> None:
    """A folder is made with its parents, on paths with spaces and other scripts."""
    path = tmp_path / "a b" / "Größe データ"
    folder = DataFolder.open(str(path), disk)
    assert {"format", "lock", "checkpoint", "topics", "deleted"} == set(os.listdir(path))
    assert not folder.clean
    assert Space(10, 20).low(11)
    assert not folder.space().low(1)
    folder.close()
    DataFolder.open(str(path), disk).close()


def test_second_broker_is_refused(tmp_path: Path, disk: FaultyDisk) -> None:
    """The lock names who holds it, and is gone with its holder."""
    folder = DataFolder.open(str(tmp_path), disk)
    with pytest.raises(ConfigError, match=f"process id {os.getpid()}"):
        DataFolder.open(str(tmp_path), disk)
    folder.close()
    DataFolder.open(str(tmp_path), disk).close()


@pytest.mark.parametrize("content", [b"tinymq 2\n", b"tinymq 99\n", b"", b"other"])
def test_other_format_is_refused(tmp_path: Path, disk: FaultyDisk, content: bytes) -> None:
    """A folder of another version is refused with a reason, and not touched."""
    DataFolder.open(str(tmp_path), disk).close()
    (tmp_path / "format").write_bytes(content)
    (tmp_path / "clean").write_bytes(b"x")
    before = listing(tmp_path)
    with pytest.raises(ConfigError, match=r"format"):
        DataFolder.open(str(tmp_path), disk)
    assert before == listing(tmp_path)


def test_strange_folder_is_refused(tmp_path: Path, disk: FaultyDisk) -> None:
    """A folder with other people's files is not taken for a new data folder."""
    (tmp_path / "thesis.txt").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"thesis\.txt"):
        DataFolder.open(str(tmp_path), disk)
    assert os.listdir(tmp_path) == ["thesis.txt"]


def test_file_instead_of_folder(tmp_path: Path, disk: FaultyDisk) -> None:
    """A path that is a file is one clear line."""
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ConfigError, match="is a file"):
            DataFolder.open(str(path), disk)


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EIO, errno.ENOSPC])
def test_folder_that_cannot_be_made(tmp_path: Path, disk: FaultyDisk, number: int) -> None:
    """A disk that is read-only, forbidden, broken or full is one clear line."""
    disk.failing["mkdir"] = number
    with pytest.raises(
        ConfigError, match=r"^the data folder .* cannot be (written|used): "
    ) as caught:
        DataFolder.open(str(tmp_path / "data"), disk)
    assert "\n" not in str(caught.value)


def test_half_written_files_go(tmp_path: Path, disk: FaultyDisk) -> None:
    """Temporary files are removed and noted."""
    DataFolder.open(str(tmp_path), disk).close()
    (tmp_path / "checkpoint.tmp").write_bytes(b"")
    folder = DataFolder.open(str(tmp_path), disk)
    assert not (tmp_path / "checkpoint.tmp").exists()
    assert len(folder.notes) == 1
    folder.close()


def test_clean_stop(tmp_path: Path, disk: FaultyDisk) -> None:
    """A clean stop is believed once."""
    folder = DataFolder.open(str(tmp_path), disk)
    path = folder.partition_path(TOPIC, 3)
    log = Log.open(folder.files, path, SMALL)
    made = fill(log, 20)
    point = log.checkpoint()
    log.close()
    folder.close(clean=True, checkpoints={path: point})

    folder = DataFolder.open(str(tmp_path), disk)
    assert folder.clean
    assert folder.checkpoint(path) == point
    assert folder.checkpoint(folder.partition_path(TOPIC, 4)) == LogPoint(0, 0, -1, ())
    log = Log.open(folder.files, path, SMALL, folder.checkpoint(path))
    assert log.report.clean
    assert made == read_all(log)
    folder.close()

    folder = DataFolder.open(str(tmp_path), disk)
    assert not folder.clean
    log = Log.open(folder.files, path, SMALL, folder.checkpoint(path))
    assert not log.report.clean
    assert made == read_all(log)
    folder.close()


def test_a_start_that_is_given_up_on_a_full_disk(tmp_path: Path, disk: FaultyDisk) -> None:
    """What cannot be written then is no error: the next start looks at the files."""
    folder = DataFolder.open(str(tmp_path), disk)
    disk.room = 0
    folder.close()
    disk.room = None
    folder = DataFolder.open(str(tmp_path), disk)
    assert not folder.clean
    folder.close()


def test_a_start_that_is_given_up(tmp_path: Path, disk: FaultyDisk) -> None:
    """Whoever opens a folder and no log leaves the last stop what it was."""
    DataFolder.open(str(tmp_path), disk).close()
    folder = DataFolder.open(str(tmp_path), disk)
    assert folder.clean
    path = folder.partition_path(TOPIC, 3)
    log = Log.open(folder.files, path, SMALL, folder.checkpoint(path))
    fill(log, 20)
    point = log.checkpoint()
    log.close()
    folder.close(clean=True, checkpoints={path: point})
    for _ in range(2):
        folder = DataFolder.open(str(tmp_path), disk)
        assert folder.clean
        assert not (tmp_path / "clean").exists()
        folder.close()
    folder = DataFolder.open(str(tmp_path), disk)
    folder.checkpoint(path)
    folder.close()
    for _ in range(2):
        folder = DataFolder.open(str(tmp_path), disk)
        assert not folder.clean
        folder.close()


def test_checkpoint_while_running(tmp_path: Path, disk: FaultyDisk) -> None:
    """A checkpoint of a running broker shortens recovery and claims no clean stop."""
    folder = DataFolder.open(str(tmp_path), disk)
    path = folder.partition_path(TOPIC, 0, "ledger")
    log = Log.open(folder.files, path)
    made = fill(log, 20)
    folder.save_checkpoint({path: log.checkpoint()})
    made += fill(log, 1)
    folder.close()
    folder = DataFolder.open(str(tmp_path), disk)
    log = Log.open(folder.files, path, checkpoint=folder.checkpoint(path))
    assert not log.report.clean
    assert log.report.scanned_bytes == len(made[-1])
    assert made == read_all(log)
    folder.close()


@pytest.mark.parametrize("name", ["checkpoint", "clean"])
def test_damaged_checkpoint(tmp_path: Path, disk: FaultyDisk, name: str) -> None:
    """A checkpoint or marker that is damaged makes the start an unclean one, no more."""
    folder = DataFolder.open(str(tmp_path), disk)
    path = folder.partition_path(TOPIC, 0)
    log = Log.open(folder.files, path)
    made = fill(log, 5)
    points = {path: log.checkpoint()}
    log.close()
    folder.close(clean=True, checkpoints=points)
    flip(str(tmp_path / name), 9)
    folder = DataFolder.open(str(tmp_path), disk)
    assert not folder.clean
    assert made == read_all(Log.open(folder.files, path, checkpoint=folder.checkpoint(path)))
    folder.close()


def test_topics(tmp_path: Path, disk: FaultyDisk) -> None:
    """Topics are named by id, come back after a restart, and go in two steps."""
    folder = DataFolder.open(str(tmp_path), disk)
    folder.create_topic(TOPIC, 3)
    folder.create_topic(TOPIC, 4)
    assert disk.calls["fsync_dir"] >= 3
    folder.close()
    folder = DataFolder.open(str(tmp_path), disk)
    assert folder.topics() == [TOPIC]
    assert folder.partitions(TOPIC) == [0, 1, 2, 3]
    path = folder.partition_path(TOPIC, 3, "delay")
    assert str(tmp_path / "topics" / TOPIC.hex() / "3" / "delay") == path
    fill(Log.open(folder.files, path), 3)
    folder.delete_topic(TOPIC)
    folder.delete_topic(TOPIC)
    assert folder.topics() == []
    (tmp_path / "deleted" / "stray").write_bytes(b"")
    assert len(list(folder.empty_deleted())) == 2
    assert os.listdir(tmp_path / "deleted") == []
    folder.close()


def test_paths_are_never_user_text(tmp_path: Path, disk: FaultyDisk) -> None:
    """Nothing but a 16-byte id and a number makes a path."""
    folder = DataFolder.open(str(tmp_path), disk)
    for topic in (b"../../x", b"", b"x" * 17):
        with pytest.raises(AssertionError):
            folder.partition_path(topic, 0)
    assert folder.partition_path(b"../../../../../x", 0).startswith(str(tmp_path / "topics"))
    assert ".." not in folder.partition_path(b"../../../../../x", 0)
    folder.close()


def test_epochs(tmp_path: Path, disk: FaultyDisk) -> None:
    """Epochs rise, last, know their offsets, and are cut with the log."""
    folder = DataFolder.open(str(tmp_path), disk)
    epochs = folder.epoch_file(TOPIC, 0)
    assert epochs.current == -1
    assert [epochs.bump(0), epochs.bump(10), epochs.bump(25)] == [0, 1, 2]
    epochs = folder.epoch_file(TOPIC, 0)
    assert list(epochs.entries) == [(0, 0), (1, 10), (2, 25)]
    assert [epochs.at(offset) for offset in (0, 9, 10, 99)] == [0, 0, 1, 2]
    assert [epochs.end_of(epoch, 30) for epoch in (0, 1, 2, 9)] == [10, 25, 30, 30]
    epochs.truncate_to(25)
    assert epochs.current == 1
    assert epochs.bump(10) == 2
    assert list(epochs.entries) == [(0, 0), (2, 10)]
    folder.close()


def test_damaged_epochs(tmp_path: Path, disk: FaultyDisk) -> None:
    """A list that cannot be read says so, and goes on above a given epoch."""
    path = str(tmp_path / "epochs")
    epochs = EpochFile(disk, path)
    epochs.bump(0)
    flip(path, 9)
    epochs = EpochFile(disk, path)
    assert epochs.damaged
    assert epochs.at(5) == -1
    assert epochs.bump(100, least=7) == 7


def test_starts_are_counted(tmp_path: Path) -> None:
    """Each number is higher than those before; a file that cannot be read begins anew."""
    folder = DataFolder.open(str(tmp_path))
    numbers = [folder.count_start(), folder.count_start()]
    folder.close()
    (tmp_path / "starts").write_bytes(b"x")
    folder = DataFolder.open(str(tmp_path))
    again = folder.count_start()
    folder.close()

    assert (numbers, again) == ([1, 2], 1)
