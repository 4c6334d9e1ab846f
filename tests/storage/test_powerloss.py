"""Power cuts at any moment: what was synced is there, once and in order."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from random import Random

from attrs import Factory, define
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.disk import FaultyDisk
from tests.storage.batches import make, read_all
from tinymq.storage.disk import RecordingDisk
from tinymq.storage.files import FileCache
from tinymq.storage.folder import DataFolder
from tinymq.storage.log import Log, LogConfig, SyncTicket
from tinymq.storage.powerloss import replay
from tinymq.wire.batch import read_header

TOPIC = bytes(range(16))
CONFIG = LogConfig(segment_bytes=900, index_interval=150)

_APPEND = st.tuples(st.just("append"), st.integers(1, 4), st.integers(10, 400))
_PLAIN = st.sampled_from(
    [
        "write",
        "sync",
        "begin",
        "end",
        "checkpoint",
        "note",
        "kill",
        "stop",
        "finish",
        "undo",
        "cut",
        "expire",
    ]
).map(lambda name: (name,))
_TO = st.tuples(st.sampled_from(["purge", "trim", "fold", "forget"]), st.floats(0, 1))
_ACTIONS = st.lists(st.one_of(_APPEND, _APPEND, _PLAIN, _TO), max_size=30)


@define(slots=False)
class Model:
    """A broker of one log, and what it promised."""

    root: str
    journal: str
    now: int = 1000
    batches: dict[int, bytes] = Factory(dict)
    ticket: SyncTicket | None = None

    def start(self) -> None:
        """Open the folder and its log, as a new process would."""
        self.disk = RecordingDisk(self.journal, self.root, real=False)
        self.folder = DataFolder.open(self.root, self.disk)
        self.path = self.folder.partition_path(TOPIC, 0)
        self.log = Log.open(self.folder.files, self.path, CONFIG, self.folder.checkpoint(self.path))
        self._do_checkpoint()
        self.batches = {
            base: each for base, each in self.batches.items() if base < self.log.end_offset
        }

    def do(self, name: str, *arguments: float) -> None:
        """Do one action."""
        getattr(self, f"_do_{name}")(*arguments)

    def _do_append(self, count: int, size: int) -> None:
        self.now += 1
        base = self.log.end_offset
        batch = make(base, count, size, self.now)
        self.log.append(batch, base, base + count - 1, self.now)
        self.batches[base] = batch

    def _do_write(self) -> None:
        self.log.write()

    def _do_sync(self) -> None:
        self.log.write()
        self.log.sync()

    def _do_begin(self) -> None:
        if self.ticket is None:
            self.ticket = self.log.begin_sync()

    def _do_end(self) -> None:
        ticket, self.ticket = self.ticket, None
        if ticket is not None:
            for folder in ticket.folders:
                self.disk.fsync_dir(folder)
            for file in ticket.files:
                self.disk.fdatasync(file.descriptor)
            self.log.end_sync(ticket)

    def _do_checkpoint(self) -> None:
        self.folder.save_checkpoint({self.path: self.log.checkpoint()})

    def _do_note(self) -> None:
        self.folder.note(self.path, self.log.checkpoint())
        ticket = self.folder.begin_checkpoint()
        if ticket is not None:
            self.disk.fdatasync(ticket.files[0].descriptor)
            self.folder.end_checkpoint(ticket)

    def _do_kill(self) -> None:
        self._do_end()
        self.folder.close()
        self.start()

    def _do_stop(self) -> None:
        self._do_end()
        self._do_sync()
        points = {self.path: self.log.checkpoint()}
        self.log.close()
        self.folder.close(clean=True, checkpoints=points)
        self.start()
        assert self.log.report.clean == bool(points[self.path].segments or self.folder.clean)

    def _do_purge(self, where: float) -> None:
        self._do_end()
        start = self.log.start_offset
        self.log.purge(start + int((self.log.end_offset - start) * where), self.now, 3)

    def _do_trim(self, where: float) -> None:
        start = self.log.start_offset
        self.log.trim(start + int((self.log.end_offset - start) * where))

    def _do_fold(self, where: float) -> None:
        start = self.log.start_offset
        self.log.fold(start + int((self.log.end_offset - start) * where), self.now + 3)

    def _do_forget(self, where: float) -> None:
        self.log.let_go(int(3000 * where))

    def _do_finish(self) -> None:
        self.log.finish_purges(self.now)

    def _do_expire(self) -> None:
        self.log.expire(self.now, 8, 1500)

    def _do_undo(self) -> None:
        if self.log._start.purges:
            self.log.undo_purge()

    def _do_cut(self) -> None:
        self._do_end()
        self.log.truncate_to(self.log.end_offset - 1)
        self._do_checkpoint()
        self.batches = {
            base: each
            for base, each in self.batches.items()
            if read_header(each).next_offset <= self.log.end_offset
        }


def expected(model: Model, start: int, end: int) -> list[bytes]:
    """The batches that lie between two offsets, whole or in part."""
    return [
        batch
        for base, batch in sorted(model.batches.items())
        if read_header(batch).next_offset > start and base < end
    ]


@given(_ACTIONS, st.integers(0, 2**32))
def test_synced_survives_a_power_cut(actions: list[tuple[str, float]], seed: int) -> None:
    """
    Every synced batch is there exactly once and in order, and writing goes on behind it.

    Of what was not synced, what is there is a prefix: lost writes leave no hole.
    """
    home = tempfile.mkdtemp()
    try:
        model = Model(os.path.join(home, "data"), os.path.join(home, "journal"))
        os.mkdir(model.root)
        model.start()
        for action in actions:
            model.do(*action)
        start, synced = model.log.start_offset, model.log.synced_offset
        after = os.path.join(home, "after")
        replay(model.journal, after, Random(seed))
        check_survivor(model, after, start, synced)
        model.folder.close()
    finally:
        shutil.rmtree(home)


def check_survivor(model: Model, root: str, start: int, synced: int) -> None:
    """Open what a power cut left, and compare it with what was promised."""
    folder = DataFolder.open(root, FaultyDisk())
    path = folder.partition_path(TOPIC, 0)
    log = Log.open(folder.files, path, CONFIG, folder.checkpoint(path))
    assert log.start_offset <= max(start, synced)
    assert log.end_offset >= synced
    found = read_all(log, max(start, log.start_offset))
    appended = expected(model, max(start, log.start_offset), model.log.end_offset)
    assert found == appended[: len(found)]
    wanted = expected(model, max(start, log.start_offset), synced)
    assert found[: len(wanted)] == wanted
    assert log.report.damaged == ()
    batch = make(log.end_offset, 2, 50, 10**6)
    base = log.end_offset
    log.append(batch, base, base + 1, 10**6)
    log.write()
    log.sync()
    assert read_all(log, base) == [batch]
    log.close()
    folder.close()


def test_a_neighbours_folder(tmp_path: Path) -> None:
    """A synced log survives though the folder above it was made by a log that never synced."""
    root = tmp_path / "data"
    root.mkdir()
    disk = RecordingDisk(str(tmp_path / "journal"), str(root), real=False)
    folder = DataFolder.open(str(root), disk)
    first, second = (
        Log.open(folder.files, folder.partition_path(TOPIC, partition)) for partition in (0, 1)
    )
    for log in (first, second):
        log.append(make(0), 0, 0, 5)
        log.write()
    second.sync()
    for seed in range(20):
        after = tmp_path / f"after{seed}"
        replay(str(tmp_path / "journal"), str(after), Random(seed))
        path = second.path.replace(str(root), str(after))
        assert read_all(Log.open(FileCache(FaultyDisk()), path)) == [make(0)]
    folder.close()
