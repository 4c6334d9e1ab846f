"""The disk seam, its journal, and what a power cut makes of it."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from typing_extensions import override

from tests.fakes.disk import FaultyDisk
from tinymq.errors import StorageFull, TooManyOpenFiles
from tinymq.storage.disk import Disk, RecordingDisk, fail
from tinymq.storage.index import Index, SegmentFacts, decode
from tinymq.storage.powerloss import replay
from tinymq.storage.sealed import Unreadable, seal, unseal

#: Does something to a disk below a folder.
Script = Callable[[Disk, str], None]


def survivors(
    tmp_path: Path, script: Script, tries: int = 40
) -> set[tuple[tuple[str, bytes], ...]]:
    """All that power cuts at the end of a script left, in so many tries."""
    root = tmp_path / "root"
    root.mkdir()
    disk = RecordingDisk(str(tmp_path / "journal"), str(root), real=False)
    script(disk, str(root))
    disk.release()
    found = set()
    for seed in range(tries):
        target = tmp_path / f"after{seed}"
        replay(str(tmp_path / "journal"), str(target), Random(seed))
        found.add(
            tuple(
                (str(path.relative_to(target)), path.read_bytes() if path.is_file() else b"/")
                for path in sorted(target.rglob("*"))
            )
        )
    return found


def test_synced_file_in_a_synced_folder_survives(tmp_path: Path) -> None:
    """Content and name need a sync each; then nothing else is possible."""

    def script(disk: Disk, root: str) -> None:
        file = disk.open(f"{root}/a", create=True)
        disk.writev(file, [b"12", b"34"], 0)
        disk.fdatasync(file)
        disk.fsync_dir(root)
        disk.close(file)

    assert {(("a", b"1234"),)} == survivors(tmp_path, script)


def test_name_without_a_sync_may_be_lost(tmp_path: Path) -> None:
    """A synced file of a folder that was not synced is there or not."""

    def script(disk: Disk, root: str) -> None:
        file = disk.open(f"{root}/a", create=True)
        disk.writev(file, [b"12"], 0)
        disk.fdatasync(file)

    assert {(), (("a", b"12"),)} == survivors(tmp_path, script)


def test_unsynced_bytes_may_be_torn(tmp_path: Path) -> None:
    """What follows the last sync is lost, kept, torn anywhere, or has holes."""

    def script(disk: Disk, root: str) -> None:
        file = disk.open(f"{root}/a", create=True)
        disk.writev(file, [b"12"], 0)
        disk.syncfs(root)
        disk.writev(file, [b"34"], 2)
        disk.writev(file, [b"56"], 4)

    found = {content for ((_, content),) in survivors(tmp_path, script, 200)}
    assert all(each.startswith(b"12") for each in found)
    assert found >= {b"12", b"123", b"1234", b"12345", b"123456", b"12\0\0\0\0"}


def test_writes_during_a_sync_are_not_covered(tmp_path: Path) -> None:
    """A write that is noted before the sync's end but after its beginning is not safe."""

    class Slow(RecordingDisk):
        @override
        def _note(self, *entry: object) -> None:
            if entry[0] == "fdatasync":
                self.writev(descriptor, [b"late"], 0)
            super()._note(*entry)

    root = tmp_path / "root"
    root.mkdir()
    disk = Slow(str(tmp_path / "journal"), str(root), real=False)
    descriptor = disk.open(f"{root}/a", create=True)
    disk.fsync_dir(str(root))
    disk.fdatasync(descriptor)
    disk.close(descriptor)
    disk.release()
    found = set()
    for seed in range(30):
        replay(str(tmp_path / "journal"), str(tmp_path / f"{seed}"), Random(seed))
        found.add((tmp_path / f"{seed}" / "a").read_bytes())
    assert b"" in found


def test_journal_goes_on_after_a_kill(tmp_path: Path) -> None:
    """A write that was noted but never made does not come back."""
    root = tmp_path / "root"
    root.mkdir()
    for content in (b"1", b"2"):
        disk = RecordingDisk(str(tmp_path / "journal"), str(root), real=False)
        file = disk.open(f"{root}/a", create=True)
        disk.writev(file, [content], disk.size(file))
        disk.fsync_dir(str(root))
        disk._note("write", disk._serials[file], disk.size(file), b"never made")
        disk.close(file)
        disk.release()
    disk = RecordingDisk(str(tmp_path / "journal"), str(root), real=False)
    disk.fdatasync(disk.open(f"{root}/a"))
    disk.release()
    replay(str(tmp_path / "journal"), str(tmp_path / "after"), Random(0))
    assert (tmp_path / "after" / "a").read_bytes() == b"12"


def test_replace_is_one_step(tmp_path: Path) -> None:
    """A file that is replaced durably is the new one; before that the old or the new."""

    def script(disk: Disk, root: str) -> None:
        disk.replace_file(f"{root}/a", b"old")
        disk.write_file(f"{root}/a.tmp", b"new", durable=True)
        disk.rename(f"{root}/a.tmp", f"{root}/a")

    found = {dict(each)["a"] for each in survivors(tmp_path, script)}
    assert {b"old", b"new"} == found


def test_folders_and_removals(tmp_path: Path) -> None:
    """Folders survive when their parent was synced; removals may be undone."""

    def script(disk: Disk, root: str) -> None:
        for parent in disk.make_folders(f"{root}/x/y"):
            disk.fsync_dir(parent)
        disk.replace_file(f"{root}/x/y/a", b"1")
        disk.truncate(disk.open(f"{root}/x/y/a"), 0)
        disk.syncfs(root)
        disk.remove_tree(f"{root}/x/y")

    found = survivors(tmp_path, script)
    assert (("x", b"/"),) in found
    assert (("x", b"/"), ("x/y", b"/"), ("x/y/a", b"")) in found


def test_renamed_folder(tmp_path: Path) -> None:
    """A rename to another folder is certain once both are synced."""

    def script(disk: Disk, root: str) -> None:
        disk.make_folders(f"{root}/topics/t")
        disk.make_folders(f"{root}/deleted")
        disk.syncfs(root)
        disk.rename(f"{root}/topics/t", f"{root}/deleted/t")
        disk.fsync_dir(f"{root}/topics")
        disk.fsync_dir(f"{root}/deleted")

    (only,) = survivors(tmp_path, script)
    assert [name for name, _ in only] == ["deleted", "deleted/t", "topics"]


def test_failed_replace_leaves_the_old_file(tmp_path: Path, disk: FaultyDisk) -> None:
    """A full disk leaves the old state and no temporary file."""
    path = str(tmp_path / "a")
    disk.replace_file(path, b"old")
    disk.room = 2
    with pytest.raises(StorageFull):
        disk.replace_file(path, b"newer")
    assert os.listdir(tmp_path) == ["a"]
    assert disk.read_file(path) == b"old"


def test_real_syncs(tmp_path: Path) -> None:
    """The calls that wait for the disk exist and work here."""
    disk = Disk()
    file = disk.open(str(tmp_path / "a"), create=True)
    disk.writev(file, [b"x"], 0)
    disk.fdatasync(file)
    disk.fsync_dir(str(tmp_path))
    disk.syncfs(str(tmp_path))
    assert disk.size(file) == 1
    assert disk.pread_cached(file, 10, 0) in {b"x", None}
    assert disk.pread(file, 10, 0) == b"x"
    disk.close(file)
    disk.release()


@pytest.fixture
def no_descriptors() -> Iterator[None]:
    """Let this process open no further file."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("no_descriptors")
@pytest.mark.parametrize(
    "use",
    [
        lambda disk, path: disk.open(f"{path}/a", create=True),
        lambda disk, path: disk.open("/dev/null"),
        lambda disk, path: disk.scan(path),
        lambda disk, path: disk.read_file("/dev/null"),
        lambda disk, path: disk.fsync_dir(path),
        lambda disk, path: disk.syncfs(path),
    ],
)
def test_no_descriptor_is_never_taken_for_absence(
    tmp_path: Path, use: Callable[[Disk, str], object]
) -> None:
    """Whatever is opened, running out of descriptors is its own error."""
    with pytest.raises(TooManyOpenFiles, match="ulimit"):
        use(Disk(), str(tmp_path))


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, StorageFull),
        (errno.EDQUOT, StorageFull),
        (errno.ENFILE, TooManyOpenFiles),
        (errno.EIO, OSError),
    ],
)
def test_errors_have_names(number: int, kind: type[Exception]) -> None:
    """What the system says becomes an error of tinymq where it means one."""
    with pytest.raises(kind):
        fail(OSError(number, os.strerror(number)))


def test_sealed() -> None:
    """A file of state is what was written, or unreadable."""
    content = seal(b"TEST", [1, {"a": b"b"}])
    assert unseal(b"TEST", content, "x") == [1, {"a": b"b"}]
    for wrong in (content[:-1], content + b"x", b"", b"NOPE" + content[4:]):
        with pytest.raises(Unreadable, match="x is damaged"):
            unseal(b"TEST", wrong, "x")


def test_index_bytes() -> None:
    """The index file is as documented, and any flipped bit is noticed."""
    index = Index()
    index.add(5, 0, 100)
    index.add(9, 16, 103)
    facts = SegmentFacts(5, 40, 12, 100, 104)
    content = index.encode(facts)
    assert content[:4] == b"TMQX"
    numbers = [int.from_bytes(content[at : at + 8], "big") for at in range(8, 48, 8)]
    assert numbers == [5, 40, 12, 100, 104]
    assert content[48:52] == b"\0\0\0\2"
    numbers = [int.from_bytes(content[at : at + 8], "big") for at in range(52, 100, 8)]
    assert numbers == [5, 9, 0, 16, 100, 103]
    decoded = decode(content)
    assert decoded is not None
    assert decoded[0] == facts
    assert decoded[1].before(8) == (5, 0)
    assert decoded[1].before(4) is None
    assert decoded[1].before_time(103) == (5, 0)
    assert decoded[1].last_within(20, 100) == (9, 16)
    for place in range(len(content)):
        assert decode(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :]) is None
        assert decode(content[:place]) is None
