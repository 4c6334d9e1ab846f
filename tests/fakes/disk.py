"""Disks that fail on demand, or that count what is done to them."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Sequence

from typing_extensions import override

from tinymq.storage.disk import Disk, Piece, fail


class FaultyDisk(Disk):
    """
    A real disk that fails when it is told to, and never waits for syncs.

    Attributes:
        room: Bytes that can still be written, None for no bound; then ENOSPC.
        most: Bytes that one `writev` takes at most, None for no bound.
        failing: Names of methods to the errno that they fail with.
        descriptors: How many files can be open at a time, None for no bound.
        calls: How often each method was called.
        cached: Whether `pread_cached` finds anything.
    """

    def __init__(self) -> None:
        super().__init__()
        self.room: int | None = None
        self.most: int | None = None
        self.failing: dict[str, int] = {}
        self.descriptors: int | None = None
        self.calls: Counter[str] = Counter()
        self.cached = True
        self.opened: set[int] = set()

    def _called(self, name: str) -> None:
        self.calls[name] += 1
        if number := self.failing.get(name):
            fail(OSError(number, os.strerror(number)))

    @override
    def open(self, path: str, *, create: bool = False) -> int:
        self._called("open")
        if self.descriptors is not None and len(self.opened) >= self.descriptors:
            fail(OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
        descriptor = super().open(path, create=create)
        self.opened.add(descriptor)
        return descriptor

    @override
    def close(self, descriptor: int) -> None:
        super().close(descriptor)
        self.opened.discard(descriptor)

    @override
    def writev(self, descriptor: int, buffers: Sequence[Piece], position: int) -> int:
        self._called("writev")
        most = self.most if self.room is None else min(self.room, self.most or self.room)
        if most is None:
            return super().writev(descriptor, buffers, position)
        data = b"".join(buffers)
        if data and most == 0:
            fail(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        got = super().writev(descriptor, [data[:most]], position)
        if self.room is not None:
            self.room -= got
        return got

    @override
    def pread(self, descriptor: int, size: int, position: int) -> bytes:
        self._called("pread")
        return super().pread(descriptor, size, position)

    @override
    def pread_cached(self, descriptor: int, size: int, position: int) -> bytes | None:
        self._called("pread_cached")
        return super().pread(descriptor, size, position) if self.cached else None

    @override
    def truncate(self, descriptor: int, size: int) -> None:
        self._called("truncate")
        super().truncate(descriptor, size)

    @override
    def mkdir(self, path: str) -> None:
        self._called("mkdir")
        super().mkdir(path)

    @override
    def unlink(self, path: str) -> None:
        self._called("unlink")
        super().unlink(path)

    @override
    def read_file(self, path: str) -> bytes | None:
        self._called("read_file")
        return super().read_file(path)

    @override
    def fdatasync(self, descriptor: int) -> None:
        self._called("fdatasync")

    @override
    def fsync_dir(self, path: str) -> None:
        self._called("fsync_dir")

    @override
    def syncfs(self, path: str) -> None:
        self._called("syncfs")
