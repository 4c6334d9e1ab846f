"""
What a power cut leaves: a journal of writes and syncs is replayed, and what was
not synced may be lost.

The rules are those of POSIX, with renames as one step:

- Content that an ``fdatasync`` covers is there. Of later writes to the file none,
  all, or a part is there: a prefix torn at any byte, or some pages of zeros.
- Names that an ``fsync`` of their folder covers are there. Of later changes in
  the folder any subset may have happened, in their order; a name may so lead to
  a file whose content is lost. A rename to another folder is certain once both
  folders are synced.
- ``syncfs`` covers everything.
"""

from __future__ import annotations

import os
from random import Random
from typing import Any, Final

import msgpack
from attrs import Factory, define

_PAGE: Final = 4096


@define(eq=False)
class _File:
    """A file: its writes in order, the first `safe` of which are on the disk."""

    changes: list[tuple[int, int, bytes | None]] = Factory(list)
    ends: list[int] = Factory(list)
    safe: int = 0
    length: int = 0

    def change(self, end: int, position: int, data: bytes | None) -> None:
        """Take a write, or a truncation when there are no data."""
        size = len(data) if data is not None else 0
        self.changes.append((position, size, data))
        self.ends.append(end)
        self.length = position if data is None else max(self.length, position + size)

    def sync(self, begun: int) -> None:
        safe = sum(1 for end in self.ends if end <= begun)
        self.safe = max(self.safe, safe)


@define(eq=False)
class _Change:
    """A change of names, in one folder or two: names removed, names set."""

    end: int
    gone: tuple[_Folder, str] | None
    come: tuple[_Folder, str, _Node] | None
    unsafe: set[_Folder]


@define(eq=False)
class _Folder:
    """A folder as the process saw it."""

    names: dict[str, _Node] = Factory(dict)
    safe: dict[str, _Node] = Factory(dict)


_Node = _File | _Folder


class _Replay:
    """Follows a journal."""

    def __init__(self) -> None:
        self.root = _Folder()
        self.files: dict[str, _File] = {}
        self.every: list[_File] = []
        self.changes: list[_Change] = []

    def _folder(self, path: str) -> _Folder:
        node: _Node = self.root
        for name in path.split("/") if path else []:
            assert isinstance(node, _Folder)
            node = node.names[name]
        assert isinstance(node, _Folder)
        return node

    def _split(self, path: str) -> tuple[_Folder, str]:
        folder, _, name = path.rpartition("/")
        return self._folder(folder), name

    def _change(
        self,
        end: int,
        gone: tuple[_Folder, str] | None,
        come: tuple[_Folder, str, _Node] | None,
    ) -> None:
        folders = set()
        if gone is not None:
            gone[0].names.pop(gone[1], None)
            folders.add(gone[0])
        if come is not None:
            come[0].names[come[1]] = come[2]
            folders.add(come[0])
        self.changes.append(_Change(end, gone, come, folders))

    def follow(self, entry: list[Any], end: int) -> None:
        """Take one entry of the journal, which ends at byte `end`."""
        getattr(self, f"_do_{entry[0]}")(end, *entry[1:])

    def _do_create(self, end: int, serial: str, path: str, _size: int) -> None:
        file = self.files[serial] = _File()
        self.every.append(file)
        folder, name = self._split(path)
        self._change(end, None, (folder, name, file))

    def _do_open(self, end: int, serial: str, path: str, size: int) -> None:
        folder, name = self._split(path)
        node = folder.names.get(name)
        if not isinstance(node, _File):
            # Made by other means than the disk; taken for empty and certain.
            node = folder.names[name] = folder.safe[name] = _File()
            self.every.append(node)
        self.files[serial] = node
        if node.length > size:
            # Noted, but the process was killed before it was made.
            node.change(end, size, None)

    def _do_write(self, end: int, serial: str, position: int, data: bytes) -> None:
        self.files[serial].change(end, position, data)

    def _do_truncate(self, end: int, serial: str, size: int) -> None:
        self.files[serial].change(end, size, None)

    def _do_mkdir(self, end: int, path: str) -> None:
        folder, name = self._split(path)
        self._change(end, None, (folder, name, _Folder()))

    def _do_unlink(self, end: int, path: str) -> None:
        self._change(end, self._split(path), None)

    def _do_rename(self, end: int, source: str, target: str) -> None:
        folder, name = self._split(source)
        self._change(end, (folder, name), (*self._split(target), folder.names[name]))

    def _do_fdatasync(self, end: int, serial: str, begun: int) -> None:
        self.files[serial].sync(begun)

    def _do_fsync_dir(self, end: int, path: str, begun: int) -> None:
        self._settle({self._folder(path)}, begun)

    def _do_syncfs(self, end: int, begun: int) -> None:
        for file in self.every:
            file.sync(begun)
        self._settle(None, begun)

    def _settle(self, folders: set[_Folder] | None, begun: int) -> None:
        """Make changes certain: those before `begun` in the folders, None for all."""
        left = []
        for change in self.changes:
            if change.end <= begun:
                change.unsafe -= change.unsafe if folders is None else folders
            if change.unsafe:
                left.append(change)
            else:
                _apply(change)
        self.changes = left


def _apply(change: _Change) -> None:
    if change.gone is not None:
        change.gone[0].safe.pop(change.gone[1], None)
    if change.come is not None:
        change.come[0].safe[change.come[1]] = change.come[2]


def replay(journal: str, target: str, rng: Random) -> None:
    """
    Make the folder that a power cut at the journal's end leaves.

    Args:
        journal: From a `tinymq.storage.disk.RecordingDisk`.
        target: Where to make it; must not exist.
        rng: Decides what is lost.
    """
    state = _Replay()
    with open(journal, "rb") as file:
        unpacker = msgpack.Unpacker(file, max_buffer_size=1 << 31, strict_map_key=False)
        for entry in unpacker:
            state.follow(entry, unpacker.tell())
    chance = rng.choice((0.0, 0.5, 0.9, 1.0))
    for change in state.changes:
        if rng.random() < chance:
            _apply(change)
    os.makedirs(target)
    _make(state.root, target, rng, set())


def _make(folder: _Folder, path: str, rng: Random, made: set[_Node]) -> None:
    for name, node in sorted(folder.safe.items()):
        if node in made:
            # An earlier rename was lost and a later one was not.
            continue
        made.add(node)
        at = os.path.join(path, name)
        if isinstance(node, _Folder):
            os.mkdir(at)
            _make(node, at, rng, made)
        else:
            with open(at, "wb") as file:
                file.write(_content(node, rng))


def _content(file: _File, rng: Random) -> bytes:
    content = bytearray()
    for change in file.changes[: file.safe]:
        _write(content, change)
    risky = file.changes[file.safe :]
    if not risky:
        return bytes(content)
    fate = rng.choice(("lost", "kept", "torn", "holes"))
    if fate == "lost":
        return bytes(content)
    if fate == "torn":
        risky = risky[: rng.randrange(len(risky)) + 1]
        position, size, data = risky[-1]
        if data is not None:
            size = rng.randrange(size + 1)
            risky[-1] = (position, size, data[:size])
    safe = len(content)
    for change in risky:
        _write(content, change)
    if fate == "holes" and len(content) > safe:
        _punch(content, safe, rng)
    return bytes(content)


def _write(content: bytearray, change: tuple[int, int, bytes | None]) -> None:
    position, size, data = change
    if data is None:
        del content[position:]
        content.extend(bytes(position - len(content)))
        return
    content.extend(bytes(max(0, position - len(content))))
    content[position : position + size] = data


def _punch(content: bytearray, safe: int, rng: Random) -> None:
    """Lose some pages of what was not synced; the length got to the disk before them."""
    page = rng.choice((_PAGE, 512))
    for start in range(safe // page * page, len(content), page):
        if rng.random() < 0.5:
            begin, end = max(start, safe), min(start + page, len(content))
            content[begin:end] = bytes(end - begin)
