"""Kills and power cuts at every step of a cleaning."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from typing_extensions import override

from tests.fakes.disk import FaultyDisk
from tests.storage.keyed import CONFIG, Cleaning, Kept, Keyed, visible
from tinymq.storage.disk import Piece, RecordingDisk
from tinymq.storage.facts import LogPoint
from tinymq.storage.files import FileCache
from tinymq.storage.log import Log
from tinymq.storage.powerloss import replay

#: Ways in which what was not synced goes, for each step.
SEEDS = 3


class Killed(BaseException):
    """The process is gone."""


class MortalDisk(RecordingDisk):
    """
    A disk whose process is killed at one of its steps.

    Args:
        journal: Where to note writes and syncs.
        root: The folder.
    """

    def __init__(self, journal: Path, root: Path) -> None:
        super().__init__(str(journal), str(root), real=False)
        self.left: int | None = None
        self.steps = 0

    def _step(self) -> None:
        self.steps += 1
        if self.left is not None:
            if self.left <= 0:
                raise Killed
            self.left -= 1

    @override
    def writev(self, descriptor: int, buffers: Sequence[Piece], position: int) -> int:
        self._step()
        return super().writev(descriptor, buffers, position)

    @override
    def truncate(self, descriptor: int, size: int) -> None:
        self._step()
        super().truncate(descriptor, size)

    @override
    def fdatasync(self, descriptor: int) -> None:
        self._step()
        super().fdatasync(descriptor)

    @override
    def fsync_dir(self, path: str) -> None:
        self._step()
        super().fsync_dir(path)

    @override
    def rename(self, source: str, target: str) -> None:
        self._step()
        super().rename(source, target)

    @override
    def unlink(self, path: str) -> None:
        self._step()
        super().unlink(path)

    @override
    def _create(self, path: str) -> int:
        self._step()
        return super()._create(path)


class Scene:
    """
    A log with something to clean, on a disk that notes everything.

    Args:
        home: A folder for it.
    """

    def __init__(self, home: Path) -> None:
        self.home, self.root = home, home / "data"
        self.root.mkdir(parents=True)
        self.disk = MortalDisk(home / "journal", self.root)
        self.path = str(self.root / "log")
        self.keyed = Keyed(Log.open(FileCache(self.disk), self.path, CONFIG))
        keyed = self.keyed
        for number in range(14):
            keyed.put((b"k%d" % (number % 2), b"x" * 60), (b"once%d" % number, b"y" * 30))
            if number == 4:
                keyed.put((b"k0", b"gone" * 9), producer=(7, 0), transactional=True)
            if number == 9:
                keyed.end((7, 0), commit=False)
        keyed.put((b"once3", None), (b"k1", b"z"))
        for number in range(14):
            keyed.put((b"k%d" % (number % 2), b"x" * 60), (b"k2", b"y" * 100))
        keyed.close_file()
        self.point = keyed.log.checkpoint()
        keyed.put((b"open", b"1"))
        keyed.sync()

    def clean(self, left: int | None) -> bool:
        """Clean, and be killed after so many steps; say whether it ended before that."""
        self.disk.left, self.disk.steps = left, 0
        try:
            Cleaning(self.keyed.log, self.keyed.task(), self.disk).run()
        except Killed:
            return False
        finally:
            self.disk.left = None
        return True

    def end(self) -> None:
        """Let go of it."""
        self.keyed.log.forget_files()
        self.disk.release()


def check(path: str, scene: Scene, point: LogPoint | None) -> None:
    """Open what was left: nothing is lost and nothing came back, and it can be cleaned."""
    rows, needed = scene.keyed.rows, scene.keyed.expected(scene.keyed.log.synced_offset)
    for known in (point, None):
        log = Log.open(FileCache(FaultyDisk()), path, CONFIG, known)
        assert (log.start_offset, log.end_offset) == (0, scene.keyed.log.end_offset)
        assert log.report.damaged == ()
        assert log.report.unsynced_bytes == log.report.truncated_bytes == 0
        _between(visible(log), needed, rows)
        log.forget_files()
    keyed = Keyed(Log.open(FileCache(FaultyDisk()), path, CONFIG, point))
    keyed.clean()
    keyed.clean()
    closed = keyed.log.sources(0, keyed.log.end_offset)[-1].end
    expected = scene.keyed.expected(closed)
    assert visible(keyed.log) == expected
    names = [each.name for each in Path(path).iterdir()]
    assert not [name for name in names if "cleaned" in name or name == "swap"]
    keyed.log.forget_files()


def _between(found: dict[int, Kept], needed: dict[int, Kept], rows: dict[int, Kept]) -> None:
    assert {offset: found.get(offset) for offset in needed} == needed
    assert {offset: rows.get(offset) for offset in found} == found


def _steps(home: Path) -> int:
    scene = Scene(home)
    assert scene.clean(None)
    steps = scene.disk.steps
    assert scene.keyed.log.segment_count < len(scene.point.segments)
    scene.end()
    return steps


def _cut_everywhere(home: Path, every: int, seeds: int) -> None:
    for left in range(0, _steps(home / "whole"), every):
        scene = Scene(home / f"{left}")
        assert not scene.clean(left)
        for seed in range(seeds):
            after = scene.home / f"after{seed}"
            replay(str(scene.home / "journal"), str(after), Random(seed + 100 * left))
            check(str(after / "log"), scene, scene.point)
        check(scene.path, scene, scene.point)
        scene.end()
        shutil.rmtree(scene.home)


def test_killed_at_some_steps(tmp_path: Path) -> None:
    """A kill or a power cut loses nothing, brings nothing back, and leaves nothing behind."""
    _cut_everywhere(tmp_path, 4, 1)


@pytest.mark.long
def test_killed_at_every_step(tmp_path: Path) -> None:
    """Likewise at every single write, sync, rename and removal, in several ways."""
    _cut_everywhere(tmp_path, 1, 25)


def test_power_cut_after_it_all(tmp_path: Path) -> None:
    """What a cleaning left is on the disk when it has ended."""
    scene = Scene(tmp_path / "scene")
    assert scene.clean(None)
    for seed in range(5):
        after = tmp_path / f"after{seed}"
        replay(str(scene.home / "journal"), str(after), Random(seed))
        check(str(after / "log"), scene, scene.point)
    scene.end()
