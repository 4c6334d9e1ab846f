"""A disk that fills up and fails when told, and a syncer that can be held."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from random import Random

from typing_extensions import override

from tinymq.storage.disk import Piece, RecordingDisk, Space, fail
from tinymq.storage.facts import SyncTicket
from tinymq.storage.powerloss import replay
from tinymq.storage.sync import Done, InlineSyncer

#: The size that the disk pretends to have.
TOTAL = 1 << 40

#: What is not written through the disk: SQLite's files, and the lock.
_APART = ("meta.sqlite", "lock")


class StageDisk(RecordingDisk):
    """
    A disk whose syncs cost nothing, which notes what a power cut would take.

    Args:
        journal: Where to note writes and syncs.
        root: The data folder.

    Attributes:
        full: Whether no byte can be written.
    """

    def __init__(self, journal: Path, root: Path) -> None:
        super().__init__(str(journal), str(root), real=False)
        self.full = False

    def _check(self) -> None:
        if self.full:
            fail(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))

    @override
    def writev(self, descriptor: int, buffers: Sequence[Piece], position: int) -> int:
        self._check()
        return super().writev(descriptor, buffers, position)

    @override
    def mkdir(self, path: str) -> None:
        self._check()
        super().mkdir(path)

    @override
    def _create(self, path: str) -> int:
        self._check()
        return super()._create(path)

    @override
    def space(self, path: str) -> Space:
        return Space(0 if self.full else TOTAL // 2, TOTAL)


class GatedSyncer:
    """
    Syncs at once, unless it is held or told to fail.

    Args:
        disk: The disk.

    Attributes:
        held: Whether syncs wait for `release`.
        failing: How many of the next syncs fail.
    """

    def __init__(self, disk: StageDisk) -> None:
        self._inline = InlineSyncer(disk)
        self._waiting: list[tuple[Sequence[SyncTicket], Done]] = []
        self.held = False
        self.failing = 0

    def sync(self, tickets: Sequence[SyncTicket], done: Done) -> None:
        """Sync, fail, or wait."""
        if self.held:
            self._waiting.append((tickets, done))
        elif self.failing:
            self.failing -= 1
            error = OSError(errno.EIO, os.strerror(errno.EIO))
            done(dict.fromkeys(tickets, error))
        else:
            self._inline.sync(tickets, done)

    def release(self) -> None:
        """Do what waits, and hold nothing more."""
        self.held = False
        waiting, self._waiting = self._waiting, []
        for tickets, done in waiting:
            self.sync(tickets, done)

    def close(self) -> None:
        """Do nothing: there are no threads."""


def lay_out(source: Path, target: Path, journal: Path) -> None:
    """
    Make a data folder anew, so that its journal tells of everything in it.

    Args:
        source: What the folder is to hold; may not exist.
        target: The folder, which must not exist.
        journal: Where the journal begins.
    """
    journal.unlink(missing_ok=True)
    target.mkdir(parents=True)
    disk = StageDisk(journal, target)
    for place, folders, files in os.walk(source):
        inside = target / Path(place).relative_to(source)
        for name in sorted(folders):
            disk.mkdir(str(inside / name))
        for name in sorted(files):
            if name.startswith(_APART):
                shutil.copy2(Path(place, name), inside / name)
            else:
                content = Path(place, name).read_bytes()
                disk.write_file(str(inside / name), content, durable=True)
        disk.fsync_dir(str(inside))
    disk.release()


def cut_power(data: Path, journal: Path, seed: int) -> None:
    """
    Leave of a data folder what a power cut leaves.

    The MetaServer's store is SQLite's own matter and is taken as it is.

    Args:
        data: The folder; nothing may be open in it.
        journal: What its disks noted.
        seed: Decides what is lost of what was not synced.
    """
    left, old = data.with_name(data.name + ".left"), data.with_name(data.name + ".old")
    replay(str(journal), str(left), Random(seed))  # noqa: S311 - no secret
    data.rename(old)
    for file in old.glob("meta.sqlite*"):
        shutil.copy2(file, left / file.name)
    lay_out(left, data, journal)
    shutil.rmtree(left)
    shutil.rmtree(old)
