"""
The seam between storage and the operating system.

Everything that storage does to a disk goes through a `Disk`, so that a test can
make it fail, and a power-loss run can record what was written and synced.
Positions are always given; no file has a cursor.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import itertools
import os
import threading
from collections.abc import Sequence
from typing import Final, NoReturn

import msgpack
from attrs import frozen
from typing_extensions import override

from tinymq.errors import StorageFull, TooManyOpenFiles

#: One buffer of several.
Piece = bytes | bytearray | memoryview

#: Most buffers of one `writev`.
IOV_MAX: Final = os.sysconf("SC_IOV_MAX") if "SC_IOV_MAX" in os.sysconf_names else 1024

#: Ends the name of a file that is not yet what it will be; removed at start.
TEMPORARY: Final = ".tmp"

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})
_NOT_CACHED = frozenset({errno.EAGAIN})
_NOT_SUPPORTED = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})
_NOWAIT: Final = getattr(os, "RWF_NOWAIT", 0)

_libc = ctypes.CDLL(None, use_errno=True)


@frozen
class Space:
    """
    Bytes of a file system.

    Attributes:
        free: What this process may still use.
        total: The size of the file system.
    """

    free: int
    total: int

    def low(self, reserve: int) -> bool:
        """Whether less than `reserve` bytes are free, so that publishing is refused."""
        return self.free < reserve


def fail(error: OSError) -> NoReturn:
    """
    Raise what an error of the operating system means to tinymq.

    Raises:
        StorageFull: No space, or no quota, is left.
        TooManyOpenFiles: No descriptor is left.
        OSError: Anything else, as it is.
    """
    if error.errno in _FULL:
        raise StorageFull(f"no space is left on the disk ({error.strerror})") from error
    if error.errno in _NO_DESCRIPTOR:
        raise TooManyOpenFiles(
            f"no file descriptor is left ({error.strerror}); raise `ulimit -n`"
        ) from error
    raise error


class Disk:
    """The real disk."""

    def __init__(self) -> None:
        self._nowait = bool(_NOWAIT)
        self._roots: dict[int, int] = {}

    # --- files ---------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> int:
        """
        Open a file for reading and writing.

        Args:
            path: The file.
            create: Make it when it does not exist.

        Returns:
            A descriptor.
        """
        try:
            return os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            if not create:
                raise
        except OSError as error:
            fail(error)
        return self._create(path)

    def _create(self, path: str) -> int:
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        except OSError as error:
            fail(error)

    def close(self, descriptor: int) -> None:
        """Close a descriptor."""
        os.close(descriptor)

    def writev(self, descriptor: int, buffers: Sequence[Piece], position: int) -> int:
        """
        Write buffers one behind the other, at most `IOV_MAX`.

        Returns:
            Bytes written, which may be fewer than given.
        """
        try:
            return os.pwritev(descriptor, buffers, position)
        except OSError as error:
            fail(error)

    def pread(self, descriptor: int, size: int, position: int) -> bytes:
        """Read up to `size` bytes; fewer come back only at the end of the file."""
        data = os.pread(descriptor, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        got = len(data)
        while got < size and (data := os.pread(descriptor, size - got, position + got)):
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def pread_cached(self, descriptor: int, size: int, position: int) -> bytes | None:
        """
        Read what the page cache has, without waiting for the disk.

        Returns:
            None when nothing is cached there; otherwise perhaps fewer bytes than
            wanted. Where the system cannot tell, this is a plain `pread`.
        """
        if not self._nowait:
            return self.pread(descriptor, size, position)
        buffer = bytearray(size)
        try:
            got = os.preadv(descriptor, [buffer], position, _NOWAIT)
        except OSError as error:
            if error.errno in _NOT_CACHED:
                return None
            if error.errno not in _NOT_SUPPORTED:
                raise
            self._nowait = False
            return self.pread(descriptor, size, position)
        return bytes(memoryview(buffer)[:got])

    def truncate(self, descriptor: int, size: int) -> None:
        """Cut a file, or lengthen it with zeros."""
        os.ftruncate(descriptor, size)

    def size(self, descriptor: int) -> int:
        """Bytes of an open file."""
        return os.fstat(descriptor).st_size

    # --- syncing -------------------------------------------------------------

    def fdatasync(self, descriptor: int) -> None:
        """Wait until a file's content is on the disk."""
        os.fdatasync(descriptor)

    def fsync_dir(self, path: str) -> None:
        """Wait until a folder's entries are on the disk."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            fail(error)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def watch(self, path: str) -> None:
        """
        Keep a descriptor on the file system of `path` for `syncfs`.

        It must be open before the writes, or the kernel would not tell of errors
        that happened between.
        """
        device = os.stat(path).st_dev
        if device not in self._roots:
            try:
                self._roots[device] = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except OSError as error:
                fail(error)

    def syncfs(self, path: str) -> None:
        """Wait until everything written to the file system of `path` is on the disk."""
        self.watch(path)
        if _libc.syncfs(self._roots[os.stat(path).st_dev]):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)

    def release(self) -> None:
        """Close the descriptors that `watch` keeps."""
        while self._roots:
            os.close(self._roots.popitem()[1])

    # --- names ---------------------------------------------------------------

    def rename(self, source: str, target: str) -> None:
        """Give a file or folder another name, replacing a file of that name."""
        os.rename(source, target)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        os.unlink(path)

    def mkdir(self, path: str) -> None:
        """Make one folder."""
        try:
            os.mkdir(path, 0o750)
        except FileExistsError:
            raise
        except OSError as error:
            fail(error)

    def rmdir(self, path: str) -> None:
        """Remove an empty folder."""
        os.rmdir(path)

    def make_folders(self, path: str) -> list[str]:
        """
        Make a folder and those above it that do not exist.

        Returns:
            The folders that got a new entry, to be synced.
        """
        missing = []
        while not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        for folder in reversed(missing):
            with contextlib.suppress(FileExistsError):
                self.mkdir(folder)
        return [os.path.dirname(folder) for folder in reversed(missing)]

    def remove_tree(self, path: str) -> None:
        """Remove a folder and everything in it."""
        for entry in self.scan(path):
            if entry.folder:
                self.remove_tree(entry.path)
            else:
                self.unlink(entry.path)
        self.rmdir(path)

    def exists(self, path: str) -> bool:
        """Whether there is something of this name."""
        return os.path.lexists(path)

    def scan(self, path: str) -> list[Entry]:
        """List a folder, by name; an absent folder is empty."""
        try:
            with os.scandir(path) as entries:
                found = [_entry(entry) for entry in entries]
        except FileNotFoundError:
            return []
        except OSError as error:
            fail(error)
        found.sort(key=lambda entry: entry.name)
        return found

    # --- whole files ---------------------------------------------------------

    def read_file(self, path: str) -> bytes | None:
        """Read a whole file; None when there is none."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            fail(error)
        try:
            return self.pread(descriptor, os.fstat(descriptor).st_size, 0)
        finally:
            os.close(descriptor)

    def write_file(self, path: str, content: bytes, *, durable: bool) -> None:
        """
        Write a whole file over whatever has this name.

        Args:
            path: The file.
            content: All of it.
            durable: Wait until the content is on the disk.
        """
        descriptor = self.open(path, create=True)
        try:
            self.truncate(descriptor, 0)
            position, view = 0, memoryview(content)
            while position < len(content):
                position += self.writev(descriptor, [view[position:]], position)
            if durable:
                self.fdatasync(descriptor)
        finally:
            self.close(descriptor)

    def replace_file(self, path: str, content: bytes, *, durable: bool = True) -> None:
        """
        Replace a file as one step: a crash leaves the old one or the new one.

        Args:
            path: The file.
            content: All of it.
            durable: Return only when content and name are on the disk.
        """
        temporary = path + TEMPORARY
        try:
            self.write_file(temporary, content, durable=durable)
            self.rename(temporary, path)
        except Exception:
            with contextlib.suppress(OSError):
                self.unlink(temporary)
            raise
        if durable:
            self.fsync_dir(os.path.dirname(path))

    def space(self, path: str) -> Space:
        """How full the file system of `path` is."""
        facts = os.statvfs(path)
        return Space(facts.f_bavail * facts.f_frsize, facts.f_blocks * facts.f_frsize)


@frozen
class Entry:
    """
    One name in a folder.

    Attributes:
        name: The name.
        path: The name with the folder before it.
        folder: Whether it is a folder.
        size: Bytes of a file, 0 for a folder.
    """

    name: str
    path: str
    folder: bool
    size: int


def _entry(entry: os.DirEntry[str]) -> Entry:
    folder = entry.is_dir(follow_symlinks=False)
    return Entry(entry.name, entry.path, folder, 0 if folder else entry.stat().st_size)


class RecordingDisk(Disk):
    """
    A disk that also appends every change and every sync to a journal.

    `tinymq.storage.powerloss.replay` makes from the journal what a power cut
    would have left. The journal is a stream of msgpack arrays. A sync is noted
    after it returned, together with the length that the journal had when it
    began: nothing noted later is covered by it. Several processes may continue
    one journal, one after the other, also after a kill: a write is noted before
    it is made, and an open file's size tells which were.

    Args:
        journal: The journal's file.
        root: Only what happens below this folder is noted. It must be empty when
            the journal begins.
        real: Whether syncs are really done; a test that only replays has no need.
    """

    def __init__(self, journal: str, root: str, *, real: bool = True) -> None:
        super().__init__()
        self._root = os.path.abspath(root)
        self._real = real
        self._lock = threading.Lock()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._journal = os.open(journal, flags, 0o640)
        self._length = os.fstat(self._journal).st_size
        self._serial = itertools.count()
        self._serials: dict[int, str] = {}
        self._writing: int | None = None

    @property
    def _begun(self) -> int:
        """Up to where the journal is covered by a sync that begins now."""
        writing = self._writing
        return self._length if writing is None else writing

    def _note(self, *entry: object) -> None:
        content = msgpack.packb(entry)
        with self._lock:
            self._length += os.write(self._journal, content)

    def _inside(self, path: str) -> str | None:
        """A path below the root, as it is noted; None outside."""
        path = os.path.abspath(path)
        if path == self._root:
            return ""
        return path[len(self._root) + 1 :] if path.startswith(self._root + os.sep) else None

    def _opened(self, kind: str, path: str, descriptor: int) -> None:
        inside = self._inside(path)
        if inside is not None:
            serial = f"{os.getpid()}-{next(self._serial)}"
            self._serials[descriptor] = serial
            self._note(kind, serial, inside, os.fstat(descriptor).st_size)

    @override
    def open(self, path: str, *, create: bool = False) -> int:
        descriptor = super().open(path, create=create)
        if descriptor not in self._serials:
            self._opened("open", path, descriptor)
        return descriptor

    @override
    def _create(self, path: str) -> int:
        descriptor = super()._create(path)
        self._opened("create", path, descriptor)
        return descriptor

    @override
    def close(self, descriptor: int) -> None:
        self._serials.pop(descriptor, None)
        super().close(descriptor)

    @override
    def writev(self, descriptor: int, buffers: Sequence[Piece], position: int) -> int:
        serial = self._serials.get(descriptor)
        if serial is None:
            return super().writev(descriptor, buffers, position)
        self._writing = self._length
        try:
            self._note("write", serial, position, b"".join(buffers))
            return super().writev(descriptor, buffers, position)
        finally:
            self._writing = None

    @override
    def truncate(self, descriptor: int, size: int) -> None:
        super().truncate(descriptor, size)
        if serial := self._serials.get(descriptor):
            self._note("truncate", serial, size)

    @override
    def fdatasync(self, descriptor: int) -> None:
        begun, serial = self._begun, self._serials.get(descriptor)
        if self._real:
            super().fdatasync(descriptor)
        if serial:
            self._note("fdatasync", serial, begun)

    @override
    def fsync_dir(self, path: str) -> None:
        begun = self._begun
        if self._real:
            super().fsync_dir(path)
        if (inside := self._inside(path)) is not None:
            self._note("fsync_dir", inside, begun)

    @override
    def syncfs(self, path: str) -> None:
        begun = self._begun
        if self._real:
            super().syncfs(path)
        self._note("syncfs", begun)

    @override
    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        old, new = self._inside(source), self._inside(target)
        if old is not None and new is not None:
            self._note("rename", old, new)

    @override
    def unlink(self, path: str) -> None:
        super().unlink(path)
        if (inside := self._inside(path)) is not None:
            self._note("unlink", inside)

    @override
    def rmdir(self, path: str) -> None:
        super().rmdir(path)
        if (inside := self._inside(path)) is not None:
            self._note("unlink", inside)

    @override
    def mkdir(self, path: str) -> None:
        super().mkdir(path)
        if inside := self._inside(path):
            self._note("mkdir", inside)

    @override
    def release(self) -> None:
        super().release()
        os.close(self._journal)
