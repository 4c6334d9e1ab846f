"""
The data folder of a broker.

::

    DATA/format                   "tinymq 1"
    DATA/lock                     held by the running broker; its process id
    DATA/checkpoint               where the logs stood on the disk, kept now and then
    DATA/clean                    there only between a clean stop and the next start
    DATA/starts                   how often a broker with channels was started here
    DATA/schedules                which messages of schedules were meant to come, and came
    DATA/topics/<topic id>/<partition>/<data|ledger|delay>/   the logs
    DATA/topics/<topic id>/<partition>/epochs
    DATA/deleted/                 deleted topics on their way out

No user text ever becomes a name here.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from typing import Final, Literal, get_args

from tinymq.errors import ConfigError, StorageError, TooManyOpenFiles
from tinymq.storage import epochs
from tinymq.storage.checkpoint import CheckpointFile
from tinymq.storage.disk import TEMPORARY, Disk, Space
from tinymq.storage.epochs import EpochFile
from tinymq.storage.facts import LogPoint, SyncTicket
from tinymq.storage.files import DEFAULT_MAX_OPEN, FileCache
from tinymq.storage.forks import close_in_children

FORMAT: Final = 1
Kind = Literal["data", "ledger", "delay", "ids"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

_FORMAT_TEXT: Final = re.compile(rb"tinymq (\d+)\n")
_TOPIC: Final = re.compile(r"[0-9a-f]{32}")


class DataFolder:
    """
    An open, locked data folder. Make one with `DataFolder.open`.

    Attributes:
        path: The folder.
        disk: The disk.
        clean: Whether the last stop was clean.
        notes: One sentence for each thing that was set right when opening.
        files: Open files, for all logs in the folder.
    """

    def __init__(self, path: str, disk: Disk, lock: int, max_open: int) -> None:
        self.path = path
        self.disk = disk
        self.clean = False
        self.notes: list[str] = []
        self.files = FileCache(disk, max_open)
        self._lock: int | None = lock
        close_in_children(self)
        #: What marks the last stop as clean, as long as no log was opened since.
        self._marker: bytes | None = None
        self._checkpoint = CheckpointFile(disk, path)

    @classmethod
    def open(
        cls, path: str, disk: Disk | None = None, max_open: int = DEFAULT_MAX_OPEN
    ) -> DataFolder:
        """
        Open a data folder, making it when it does not exist, and lock it.

        Args:
            path: The folder.
            disk: The disk; the real one by default.
            max_open: Most log files kept open.

        Raises:
            ConfigError: It is not a folder, cannot be written, belongs to a
                running broker, or has a format that this version does not know.
        """
        disk = disk or Disk()
        path = os.path.abspath(path)
        try:
            return cls._open(path, disk, max_open)
        except OSError as error:
            raise ConfigError(_trouble(path, error)) from error
        except StorageError as error:
            raise ConfigError(f"the data folder {path} cannot be used: {error.text}") from error

    @classmethod
    def _open(cls, path: str, disk: Disk, max_open: int) -> DataFolder:
        for parent in disk.make_folders(path):
            disk.fsync_dir(parent)
        check_format(disk, path, new=True)
        lock = lock_folder(path)
        folder = cls(path, disk, lock, max_open)
        try:
            if not check_format(disk, path, new=True):
                disk.replace_file(folder._at("format"), b"tinymq %d\n" % FORMAT)
            for name in ("topics", "deleted"):
                if disk.make_folders(folder._at(name)):
                    disk.fsync_dir(path)
            folder._remove_temporaries()
            disk.watch(path)
            folder._load_checkpoint()
        except BaseException:
            os.close(lock)
            raise
        return folder

    def forked(self) -> None:
        """Let go of the lock in a forked child; its parent still has it."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    @property
    def schedules(self) -> str:
        """The file of what is remembered of schedules."""
        return self._at("schedules")

    def _at(self, *names: str) -> str:
        return os.path.join(self.path, *names)

    def _remove_temporaries(self) -> None:
        for entry in self.disk.scan(self.path):
            if entry.name.endswith(TEMPORARY):
                self.disk.unlink(entry.path)
                self.notes.append(f"{entry.path} was left half-written; removed")

    def _load_checkpoint(self) -> None:
        """Take the checkpoint, and note that from now on the last stop was not clean."""
        marker = self.disk.read_file(self._at("clean"))
        checkpoint = self._checkpoint
        if checkpoint.load():
            self.clean = checkpoint.nonce == marker
            self._marker = marker if self.clean else None
        elif checkpoint.damaged:
            self.notes.append("the checkpoint is damaged; looking at the files instead")
        elif not self.topics():
            # From the first log on there is one, so that none means damage.
            self._marker = checkpoint.save()
            checkpoint.load()
        if marker is not None:
            self.disk.unlink(self._at("clean"))
            self.disk.fsync_dir(self.path)
        if not self.clean:
            self.disk.syncfs(self.path)
        self.files.settled = True

    def close(
        self, *, clean: bool = False, checkpoints: Mapping[str, LogPoint] | None = None
    ) -> None:
        """
        Unlock the folder; all logs must be closed.

        If none was opened, the last stop stays what it was.

        Args:
            clean: Every log was synced, and has its point in `checkpoints`.
            checkpoints: Path of each log to `Log.checkpoint`.
        """
        try:
            if clean:
                self._mark_clean(checkpoints or {})
            elif self._marker is not None:  # a start that was given up changed nothing
                marker, self._marker = self._marker, None
                # Without it the next start looks at the files, which does no harm.
                with contextlib.suppress(OSError, StorageError):
                    self.disk.replace_file(self._at("clean"), marker)
        finally:
            self.files.close()
            self.disk.release()
            if self._lock is not None:
                os.close(self._lock)
            self._lock = None

    def _mark_clean(self, checkpoints: Mapping[str, LogPoint]) -> None:
        self.disk.replace_file(self._at("clean"), self.save_checkpoint(checkpoints))

    def save_checkpoint(self, checkpoints: Mapping[str, LogPoint]) -> bytes:
        """
        Keep where each log stands on the disk, so that recovery begins there.

        This waits for the disk.

        Args:
            checkpoints: Path of each log to `Log.checkpoint`.

        Returns:
            A number that names this checkpoint.
        """
        self._checkpoint.clear()
        for path, point in checkpoints.items():
            self._checkpoint.note(path, point)
        return self._checkpoint.save()

    def forget(self, path: str) -> None:
        """
        Leave a log out of the checkpoints from now on.

        Args:
            path: Its folder.
        """
        self._checkpoint.forget(path)

    def note(self, path: str, point: LogPoint) -> None:
        """Take the point of a log that changed into the next checkpoint."""
        self._checkpoint.note(path, point)

    def begin_checkpoint(self) -> SyncTicket | None:
        """
        Write what was noted, without waiting for the disk.

        Returns:
            A ticket for a `Syncer`, then for `end_checkpoint`; None when nothing
            changed, or when the checkpoint before is still on its way.

        Raises:
            StorageFull: There is no space; the old checkpoint stays.
        """
        return self._checkpoint.begin()

    def end_checkpoint(self, ticket: SyncTicket, error: OSError | None = None) -> None:
        """
        Let a synced checkpoint take the place of the one before.

        Args:
            ticket: From `begin_checkpoint`.
            error: Why the sync failed: the old checkpoint stays.

        Raises:
            OSError: Likewise, or it could not be renamed.
        """
        if self._lock is not None:
            self._checkpoint.end(ticket, error)
        else:  # another broker may be at work here
            self.disk.close(ticket.files[0].descriptor)

    def checkpoint(self, path: str) -> LogPoint | None:
        """
        What was last kept of the log in a folder; `Log.open` sees how far it fits.

        Whoever asks opens the log: from then on the last stop is not a clean one.

        Returns:
            None when nothing is known; a point of nothing for a log that is
            younger than the checkpoint.
        """
        self._marker = None
        return self._checkpoint.point(path, clean=self.clean)

    def count_start(self) -> int:
        """
        Count a start of the broker, durably; this waits for the disk.

        Returns:
            A number that is higher than at every start before.

        Raises:
            StorageFull: There is no space.
        """
        content = self.disk.read_file(self._at("starts")) or b""
        number = 1 + (int(content) if content.strip().isdigit() else 0)
        self.disk.replace_file(self._at("starts"), b"%d\n" % number)
        return number

    # --- topics --------------------------------------------------------------

    def partition_path(self, topic_id: bytes, partition: int, kind: Kind = "data") -> str:
        """The folder of a log."""
        assert len(topic_id) == 16, topic_id
        assert partition >= 0, partition
        assert kind in KINDS, kind
        return f"{self.path}/topics/{topic_id.hex()}/{partition}/{kind}"

    def epoch_file(self, topic_id: bytes, partition: int) -> EpochFile:
        """The epochs of a partition."""
        path = f"{self.path}/topics/{topic_id.hex()}/{partition}/{epochs.NAME}"
        return EpochFile(self.disk, path)

    def topics(self) -> list[bytes]:
        """The ids of all topics that have a folder."""
        return [
            bytes.fromhex(entry.name)
            for entry in self.disk.scan(self._at("topics"))
            if entry.folder and _TOPIC.fullmatch(entry.name)
        ]

    def partitions(self, topic_id: bytes) -> list[int]:
        """The partitions of a topic that have a folder."""
        entries = self.disk.scan(self._at("topics", topic_id.hex()))
        return sorted(int(each.name) for each in entries if each.folder and each.name.isdecimal())

    def create_topic(self, topic_id: bytes, partitions: int) -> None:
        """Make the folders of a topic's partitions durably; those that exist are kept."""
        parents: dict[str, None] = {}
        for partition in range(partitions):
            path = self._at("topics", topic_id.hex(), str(partition))
            parents.update(dict.fromkeys(self.disk.make_folders(path)))
        for parent in parents:
            self.disk.fsync_dir(parent)

    def delete_topic(self, topic_id: bytes) -> None:
        """
        Take a topic away durably; `empty_deleted` frees the space.

        Its logs must have forgotten their files.
        """
        source = self._at("topics", topic_id.hex())
        if not self.disk.exists(source):
            return
        for partition in self.partitions(topic_id):
            for kind in KINDS:
                self._checkpoint.forget(self.partition_path(topic_id, partition, kind))
        target = self._at("deleted", f"{topic_id.hex()}-{secrets.token_hex(4)}")
        self.disk.rename(source, target)
        self.disk.fsync_dir(self._at("topics"))
        self.disk.fsync_dir(self._at("deleted"))

    def empty_deleted(self) -> Iterator[str]:
        """
        Remove what was deleted, one folder for each step.

        Yields:
            The folder that is gone.
        """
        for entry in self.disk.scan(self._at("deleted")):
            with contextlib.suppress(FileNotFoundError):
                if entry.folder:
                    self.disk.remove_tree(entry.path)
                else:
                    self.disk.unlink(entry.path)
            yield entry.path

    def present(self) -> bool:
        """Whether the folder is still where it was; files that are open outlive their names."""
        return self.disk.exists(self._at("format"))

    def space(self) -> Space:
        """How full the file system is."""
        return self.disk.space(self.path)


def lock_folder(path: str) -> int:
    """
    Lock a data folder for this process.

    Returns:
        A descriptor that holds the lock while it is open.

    Raises:
        ConfigError: Another process has it.
    """
    name = os.path.join(path, "lock")
    try:
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    except OSError as error:
        if error.errno in {errno.EMFILE, errno.ENFILE}:
            raise TooManyOpenFiles from error
        raise
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(descriptor)
        raise ConfigError(
            f"the data folder {path} is in use by the broker with process id {holder}; "
            "stop that one, or choose another folder"
        ) from error
    except OSError:
        os.close(descriptor)
        raise
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def check_format(disk: Disk, path: str, *, new: bool) -> bool:
    """
    Check that a data folder has a format that this version knows; change nothing.

    Args:
        disk: The disk.
        path: The data folder.
        new: An empty folder will do.

    Returns:
        Whether the format is noted there.

    Raises:
        ConfigError: It is of another version, or no data folder.
    """
    name = os.path.join(path, "format")
    content = disk.read_file(name)
    if content is None:
        strange = [
            entry.name
            for entry in disk.scan(path)
            if entry.name != "lock" and not entry.name.endswith(TEMPORARY)
        ]
        if strange or not new:
            raise ConfigError(
                f"{path} is not a data folder of tinymq: it has no file named format"
                + (f" but {strange[0]}" if strange else "")
            )
        return False
    match = _FORMAT_TEXT.fullmatch(content)
    if match is None:
        raise ConfigError(f"{name} is not readable; the data folder was not touched")
    if int(match[1]) != FORMAT:
        raise ConfigError(
            f"the data folder {path} has format {int(match[1])}, this version of tinymq knows "
            f"only {FORMAT}; use the version that wrote it. Nothing was changed"
        )
    return True


def _trouble(path: str, error: OSError) -> str:
    if isinstance(error, (NotADirectoryError, FileExistsError)):
        return f"the data folder {path} is a file, or lies below one"
    if isinstance(error, PermissionError) or error.errno == errno.EROFS:
        return f"the data folder {path} cannot be written: {error.strerror}"
    return f"the data folder {path} cannot be used: {error.strerror or error}"
