"""Opening, recovering and closing partitions, and runs of kills and power cuts."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest

from tests.broker.conftest import MakeBroker
from tests.conftest import LONG
from tests.fakes.broker import (
    Answers,
    BrokerDisk,
    BrokerFixture,
    LogKeeper,
    changed,
    only,
)
from tinymq.broker.partition import Appended
from tinymq.errors import StorageError
from tinymq.storage.disk import RecordingDisk
from tinymq.storage.powerloss import replay


def descriptors() -> int:
    """How many files this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


class TestOpen:
    def test_clean(self, fixture: BrokerFixture) -> None:
        """After a clean stop nothing is scanned, and everything is as it was."""
        fixture.topic(partitions=3)
        for index in range(3):
            fixture.produce(b"%d" % index, partition=index)
        fixture.stop()
        after = fixture.again()
        assert after.folder.clean
        assert {each.log.report.scanned_bytes for each in after.broker.partitions()} == {0}
        assert [after.values("t", index) for index in range(3)] == [[b"0"], [b"1"], [b"2"]]

    def test_torn(self, fixture: BrokerFixture, logged: LogKeeper) -> None:
        """A torn tail is cut with a warning; numbering goes on behind the last good one."""
        fixture.topic()
        for place in range(5):
            fixture.produce(b"value-%d" % place)
        fixture.kill()
        (segment,) = fixture.path.glob("topics/*/0/data/*.log")
        os.truncate(segment, segment.stat().st_size - 3)
        after = fixture.again()
        assert any("torn tail" in text for text in logged.texts)
        assert only(after.produce(b"new")).base_offset == 4
        assert after.values() == [b"value-0", b"value-1", b"value-2", b"value-3", b"new"]

    def test_damaged(self, fixture: BrokerFixture, logged: LogKeeper) -> None:
        """A flipped bit costs the one batch it is in, and is told."""
        fixture.topic()
        for place in range(5):
            fixture.produce(b"value-%d" % place)
        fixture.kill()
        (segment,) = fixture.path.glob("topics/*/0/data/*.log")
        content = bytearray(segment.read_bytes())
        content[len(content) // 2] ^= 8
        segment.write_bytes(content)
        after = fixture.again()
        assert after.values() == [b"value-0", b"value-1", b"value-3", b"value-4"]
        assert any("offsets 2 to 2 are damaged" in text for text in logged.texts)

    def test_damaged_epochs(self, fixture: BrokerFixture, logged: LogKeeper) -> None:
        """A damaged list of epochs is told, and costs no record."""
        fixture.topic()
        fixture.produce(b"a")
        fixture.stop()
        (path,) = fixture.path.glob("topics/*/0/epochs")
        path.write_bytes(b"x")
        after = fixture.again()
        assert any("epochs is damaged" in text for text in logged.texts)
        assert after.values() == [b"a"]

    def test_unreadable_epochs(self, fixture: BrokerFixture) -> None:
        """A list of epochs that the disk cannot read is a typed error."""
        disk = fixture.disk
        assert isinstance(disk, BrokerDisk)
        topic = fixture.topic()
        disk.failing["read_file"] = errno.EIO
        with pytest.raises(StorageError):
            fixture.store.open(topic, 0)

    def test_memory(self, fixture: BrokerFixture) -> None:
        """A topic in memory is there after a restart, and empty."""
        fixture.topic(storage="memory")
        fixture.produce(b"a")
        fixture.stop()
        after = fixture.again()
        assert after.values() == []
        assert only(after.produce(b"b")).base_offset == 0

    def test_many(self, make: MakeBroker) -> None:
        """Many topics of one message start again with few open files."""
        count = 10_000 if LONG else 100
        fixture = make(config=changed(storage__max_open_files=16))
        for place in range(count):
            fixture.topic(f"t{place}")
            fixture.stage(b"v", topic=f"t{place}")
            if place % 10 == 9:
                fixture.turn()
        fixture.kill()
        begun = descriptors()
        after = fixture.again()
        disk = after.disk
        assert isinstance(disk, BrokerDisk)
        assert len(after.broker.partitions()) == count
        assert len(disk.opened) <= 16
        assert descriptors() <= begun + 16 + 8
        assert {after.partition(f"t{place}").high_watermark for place in range(count)} == {1}


class TestClose:
    def test_full_disk(self, fixture: BrokerFixture, logged: LogKeeper) -> None:
        """A full disk keeps the producers' snapshot out, and nothing else is lost."""
        disk = fixture.disk
        assert isinstance(disk, BrokerDisk)
        fixture.topic()
        fixture.produce(b"a", producer=(7, 0, 0))
        partitions = fixture.broker.partitions()
        disk.failing["writev"] = errno.ENOSPC
        fixture.store.store_producers(partitions)
        disk.failing.clear()
        assert any("were not stored" in text for text in logged.texts)
        fixture.stop()
        after = fixture.again()
        assert only(after.produce(b"a", producer=(7, 0, 0))).duplicate

    def test_offline(self, fixture: BrokerFixture) -> None:
        """With a partition offline the stop is not clean: the next start looks at the files."""
        disk = fixture.disk
        assert isinstance(disk, BrokerDisk)
        fixture.topic()
        fixture.produce(b"a")
        disk.failing["fdatasync"] = errno.EIO
        fixture.produce(b"b")
        disk.failing.clear()
        fixture.stop()
        after = fixture.again()
        assert not after.folder.clean
        assert after.values()[0] == b"a"


# --- kills and power cuts ------------------------------------------------------------


class Trial:
    """
    A broker under a random load, and what it promised.

    Attributes:
        acknowledged: Value to (partition, offset) of what was acknowledged.
        sent: Every value ever sent.
    """

    def __init__(self, fixture: BrokerFixture, chance: random.Random) -> None:
        self.fixture = fixture
        self.chance = chance
        self.acknowledged: dict[bytes, tuple[int, int]] = {}
        self.sent: list[bytes] = []
        self._waiting: list[tuple[bytes, int, Answers]] = []

    def run(self, steps: int) -> None:
        """Publish, purge nothing, roll, checkpoint, retain; some turns see several batches."""
        for _ in range(steps):
            for _ in range(self.chance.randrange(1, 4)):
                value = b"%06d" % len(self.sent) * self.chance.choice((1, 30, 200))
                index = self.chance.randrange(2)
                self.sent.append(value)
                self._waiting.append((value, index, self.fixture.stage(value, partition=index)))
            if self.chance.random() < 0.8:
                self.fixture.turn()
            if self.chance.random() < 0.1:
                self.fixture.housekeeping.checkpoint()
            self.collect()

    def collect(self) -> None:
        """Note what was acknowledged."""
        for value, index, answers in self._waiting:
            if answers and isinstance(answers[0], Appended):
                self.acknowledged[value] = index, answers[0].base_offset
        self._waiting = [each for each in self._waiting if not each[2]]

    def check(self, after: BrokerFixture) -> None:
        """All that was acknowledged is where it was promised; nothing appears that was not sent."""
        found = [after.values("t", index) for index in range(2)]
        for value, (index, offset) in self.acknowledged.items():
            assert found[index][offset] == value
        assert {value for values in found for value in values} <= set(self.sent)


@pytest.mark.parametrize("seed", range(200 if LONG else 4))
def test_kills(make: MakeBroker, seed: int) -> None:
    """After kills at random moments all that was acknowledged is there, at its offset."""
    chance = random.Random(seed)
    fixture = make()
    fixture.topic(partitions=2, segment_bytes=4096)
    trial = Trial(fixture, chance)
    for _ in range(4):
        trial.run(chance.randrange(1, 12))
        trial.fixture.kill()
        trial.fixture = trial.fixture.again()
        trial.check(trial.fixture)


@pytest.mark.parametrize("seed", range(200 if LONG else 4))
def test_power_cuts(tmp_path: Path, seed: int) -> None:
    """After power cuts all that was acknowledged is there: what no sync covered may go."""
    chance = random.Random(seed)
    data = tmp_path / "data"
    disk = RecordingDisk(str(tmp_path / "journal"), str(data), real=False)
    fixture = BrokerFixture(data, disk=disk)
    fixture.topic(partitions=2, segment_bytes=4096)
    trial = Trial(fixture, chance)
    trial.run(chance.randrange(5, 25))
    journal = (tmp_path / "journal").read_bytes()
    for cut in range(4):
        (tmp_path / "copy").write_bytes(journal)
        target = tmp_path / f"cut-{cut}"
        replay(str(tmp_path / "copy"), str(target), random.Random(chance.random()))
        # The MetaServer's own file is SQLite's matter; tests/meta cuts its power.
        for file in data.glob("meta.sqlite*"):
            (target / file.name).write_bytes(file.read_bytes())
        after = BrokerFixture(target)
        trial.check(after)
        before = len(after.values())
        assert only(after.produce(b"new")).base_offset == before
        after.kill()
