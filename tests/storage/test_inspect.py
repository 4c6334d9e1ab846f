"""The offline tools: what is there, and setting it right."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.fakes.disk import FaultyDisk
from tests.storage.batches import SMALL, fill, flip, read_all, segment_files
from tests.storage.keyed import Cleaning, opened
from tinymq.errors import ConfigError
from tinymq.storage import inspect
from tinymq.storage.facts import Gap
from tinymq.storage.folder import DataFolder
from tinymq.storage.log import Log
from tinymq.wire.batch import read_header

TOPIC = bytes(range(16))


@pytest.fixture
def data(tmp_path: Path, disk: FaultyDisk) -> Path:
    """Return a data folder of one topic: 24 batches of two records, and a ledger."""
    path = tmp_path / "data"
    folder = DataFolder.open(str(path), disk)
    for kind, count in (("data", 24), ("ledger", 3)):
        log = Log.open(folder.files, folder.partition_path(TOPIC, 1, kind), SMALL)  # type: ignore[arg-type]
        fill(log, count, 2)
        log.close()
    folder.close()
    return path


@pytest.fixture
def log_path(data: Path) -> str:
    """Return the folder of its data log."""
    return str(data / "topics" / TOPIC.hex() / "1" / "data")


def files(path: str) -> list[str]:
    """The segments of a log."""
    return sorted(str(each) for each in Path(path).glob("*.log"))


def test_find_logs(data: Path, log_path: str) -> None:
    """Logs are found from the data folder, a topic, a partition, or directly."""
    found = inspect.find_logs(str(data))
    assert [(each.kind, each.partition) for each in found] == [("data", 1), ("ledger", 1)]
    assert {TOPIC.hex()} == {each.topic for each in found}
    assert found == inspect.find_logs(str(data / "topics" / TOPIC.hex()))
    assert found[:1] == inspect.find_logs(log_path)


def test_nothing_to_look_at(tmp_path: Path, data: Path) -> None:
    """A path without logs, or of another version, is one clear line."""
    for path in (tmp_path / "absent", data / "deleted"):
        with pytest.raises(ConfigError):
            inspect.find_logs(str(path))
    (data / "format").write_bytes(b"tinymq 9\n")
    with pytest.raises(ConfigError, match="format 9"):
        inspect.find_logs(str(data))


def test_copied_log(tmp_path: Path, log_path: str) -> None:
    """A log's folder that was copied elsewhere can be looked at."""
    target = tmp_path / "copy"
    target.mkdir()
    for path in files(log_path):
        (target / Path(path).name).write_bytes(Path(path).read_bytes())
    (facts,) = inspect.verify(str(target))
    assert (facts.records, facts.place.topic, facts.place.partition) == (48, "", -1)
    assert list(inspect.repair(str(target))) == []


def test_verify_sound(data: Path) -> None:
    """Records, bytes and times of each topic."""
    facts, ledger = inspect.verify(str(data))
    assert facts.sound
    assert (facts.start, facts.end, facts.records, facts.batches) == (0, 48, 48, 24)
    assert (facts.size, facts.segments, facts.oldest, facts.newest) == (24 * 101, 3, 1000, 1023)
    assert facts.indexes == (3, 0)
    assert (facts.torn, facts.gaps, facts.left_over) == (0, (), ())
    assert ledger.records == 6
    (topic,) = inspect.topics(inspect.verify(str(data)))
    assert topic == inspect.TopicFacts(TOPIC.hex(), 1, 48, 2424, 0)


def test_verify_changes_nothing(data: Path, log_path: str) -> None:
    """Looking at damaged files leaves them as they are."""
    flip(files(log_path)[0], 101 + 80)
    os.truncate(files(log_path)[-1], 150)
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    list(inspect.verify(str(data)))
    list(inspect.dump(str(data)))
    list(inspect.repair(str(data), dry_run=True))
    assert before == {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}


def test_verify_damage(data: Path, log_path: str) -> None:
    """Flipped bits, missing files and torn tails are told apart."""
    first, second, last = files(log_path)
    flip(first, 101 + 80)
    os.unlink(second)
    os.truncate(last, os.path.getsize(last) - 1)
    (Path(log_path) / "start").write_bytes(b"rubbish")
    (Path(log_path) / "x.tmp").write_bytes(b"")
    facts, _ = inspect.verify(str(data))
    assert not facts.sound
    bad = os.path.join(log_path, "00000000000000000000.101.bad")
    assert (Gap(2, 4, 101, "damaged", bad), Gap(18, 36, 0, "missing")) == facts.gaps
    assert facts.torn == 100
    assert facts.records == 48 - 2 - 18 - 2
    assert len(facts.unreadable) == len(facts.left_over) == 1
    (topic,) = inspect.topics(inspect.verify(log_path))
    assert topic.missing == 20


def test_verify_start(data: Path, log_path: str, disk: FaultyDisk) -> None:
    """Purged records are not counted, but told of while they can come back."""
    folder = DataFolder.open(str(data), disk)
    log = Log.open(folder.files, log_path, SMALL)
    log.purge(11, 1000, 100)
    log.close()
    folder.close()
    facts, _ = inspect.verify(str(data))
    assert (facts.start, facts.records, facts.purged) == (11, 37, 11)


def test_dump(log_path: str) -> None:
    """Every batch is shown, and every run of bytes that is none, in order."""
    first, *_, last = files(log_path)
    flip(first, 101 + 80)
    os.truncate(last, os.path.getsize(last) - 1)
    shown = list(inspect.dump(log_path))
    assert len(shown) == 24
    assert [each.problem for each in shown if each.header is None] == [
        "damaged, offset 2 expected",
        "torn tail",
    ]
    assert [
        (each.position, each.header.base_offset if each.header else -1) for each in shown[:3]
    ] == [(0, 0), (101, -1), (202, 4)]
    assert shown[0].header == read_header(Path(first).read_bytes())
    assert shown[-1].size == 100


def test_repair(data: Path, log_path: str, disk: FaultyDisk) -> None:
    """Torn tails are cut, damage is put aside, indexes are made anew; a second time is idle."""
    first, second, last = files(log_path)
    flip(first, 101 + 80)
    os.truncate(last, os.path.getsize(last) - 1)
    os.truncate(second.replace(".log", ".index"), 50)
    (Path(log_path) / "x.tmp").write_bytes(b"")
    planned = list(inspect.repair(str(data), dry_run=True))
    assert [each.action for each in planned] == ["cut", "set aside", "index", "remove"]
    assert planned == list(inspect.repair(str(data)))
    assert list(inspect.repair(str(data))) == []
    facts, _ = inspect.verify(str(data))
    assert (facts.torn, facts.indexes[1], facts.left_over) == (0, 0, ())
    folder = DataFolder.open(str(data), disk)
    log = Log.open(folder.files, log_path, SMALL)
    assert len(read_all(log)) == 22
    assert segment_files(log) == [first, second, last]
    folder.close()


def test_repair_needs_the_lock(data: Path, log_path: str, disk: FaultyDisk) -> None:
    """A running broker's files are not repaired, whatever the path says."""
    folder = DataFolder.open(str(data), disk)
    for path in (str(data), log_path):
        with pytest.raises(ConfigError, match="in use"):
            list(inspect.repair(path))
    folder.close()


def test_cleaned_log(tmp_path: Path) -> None:
    """A log that was compacted is sound, and has fewer records than offsets; in a swap too."""
    keyed = opened(str(tmp_path / "log"))
    for number in range(40):
        keyed.put((b"k%d" % (number % 2), b"x" * 50))
    keyed.close_file()
    seen = []

    def between() -> None:
        seen.append(next(iter(inspect.verify(keyed.log.path))))

    cleaning = Cleaning(keyed.log, keyed.task(), FaultyDisk())
    cleaning.run(between)
    (facts,) = inspect.verify(keyed.log.path)
    for each in (*seen, facts):
        assert each.sound
        assert (each.start, each.end, each.records) == (0, 40, 2)
    assert len(seen) == 1
    found = [each.header for each in inspect.dump(keyed.log.path)]
    assert [header.records for header in found if header] == [0, 1, 1]
