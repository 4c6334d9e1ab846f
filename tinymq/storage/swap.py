"""
How a cleaned file takes the place of those that it was made from.

The cleaned file is written beside them under another name and synced, then the
file ``swap`` says what is meant, then comes one rename, and when that is on the
disk those behind the first one go. A start after a crash finds ``swap`` and
either the cleaned file under its own name, so that nothing happened yet, or not,
so that the rest is done. Nothing that was synced is removed before what stands
in for it is synced under its last name.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

from attrs import frozen

from tinymq.storage import index as index_file
from tinymq.storage.disk import TEMPORARY, Disk
from tinymq.storage.sealed import Unreadable, seal, unseal
from tinymq.storage.segment import SUFFIX, base_of, segment_name

NAME: Final = "swap"
_MAGIC: Final = b"TMQW"
_VERSION: Final = 1


@frozen
class Swap:
    """
    What is meant to take whose place.

    Attributes:
        base: The first offset of the cleaned file, and of the first one that it replaces.
        end: The offset behind all of them.
        size: Bytes of the cleaned file.
    """

    base: int
    end: int
    size: int


def cleaned_path(folder: str, base: int) -> str:
    """The name of a cleaned file until it takes its place."""
    return os.path.join(folder, f"{base:020d}.cleaned{TEMPORARY}")


def cleaned_index_path(folder: str, base: int) -> str:
    """The name of its index until then."""
    return os.path.join(folder, f"{base:020d}.cleaned-index{TEMPORARY}")


def segment_path(folder: str, base: int) -> str:
    """The name of a segment."""
    return os.path.join(folder, segment_name(base))


def index_path(folder: str, base: int) -> str:
    """The index of a segment."""
    return segment_path(folder, base).removesuffix(SUFFIX) + index_file.SUFFIX


def prepare(disk: Disk, folder: str, swap: Swap) -> None:
    """
    Say durably what is meant; the cleaned file is synced already.

    Args:
        disk: The disk.
        folder: The log's folder.
        swap: What is meant.
    """
    disk.fsync_dir(folder)
    content = seal(_MAGIC, [_VERSION, swap.base, swap.end, swap.size])
    disk.replace_file(os.path.join(folder, NAME), content)


def rename(disk: Disk, folder: str, base: int) -> None:
    """
    Let a cleaned file take its place; the index is a cache and comes first or not at all.

    Args:
        disk: The disk.
        folder: The log's folder.
        base: The file's first offset.
    """
    with suppress(OSError):
        disk.rename(cleaned_index_path(folder, base), index_path(folder, base))
    disk.rename(cleaned_path(folder, base), segment_path(folder, base))


def finish(disk: Disk, folder: str, others: list[int]) -> None:
    """
    Remove what was replaced, after the rename.

    Args:
        disk: The disk.
        folder: The log's folder.
        others: The bases of all files that were replaced but the first.
    """
    disk.fsync_dir(folder)
    for base in others:
        for path in (segment_path(folder, base), index_path(folder, base)):
            with suppress(FileNotFoundError):
                disk.unlink(path)
    if others:
        disk.fsync_dir(folder)
    _forget(disk, folder)


def abandon(disk: Disk, folder: str) -> None:
    """
    Remove what was made and did not take its place.

    Args:
        disk: The disk.
        folder: The log's folder.
    """
    # First what is meant, or a start would take the cleaned file for renamed.
    _forget(disk, folder)
    for entry in disk.scan(folder):
        if entry.name.endswith(TEMPORARY) and ".cleaned" in entry.name:
            with suppress(FileNotFoundError):
                disk.unlink(entry.path)


def _forget(disk: Disk, folder: str) -> None:
    with suppress(FileNotFoundError):
        disk.unlink(os.path.join(folder, NAME))
        disk.fsync_dir(folder)


def recover(disk: Disk, folder: str) -> str:
    """
    Go on where a crash ended, before anything of a log is looked at.

    Args:
        disk: The disk.
        folder: The log's folder.

    Returns:
        What was done, in a sentence.
    """
    others = replaced(disk, folder)
    if others is None:
        abandon(disk, folder)
        return f"a cleaned file of {folder} had not taken its place; removed"
    finish(disk, folder, others)
    return f"a cleaned file of {folder} has taken its place"


def replaced(disk: Disk, folder: str) -> list[int] | None:
    """
    Say which files count no more, for a cleaned one took their place.

    Args:
        disk: The disk.
        folder: The log's folder.

    Returns:
        Their bases; None if nothing took a place.
    """
    path = os.path.join(folder, NAME)
    content = disk.read_file(path)
    if content is None:
        return None
    try:
        version, base, end, size = unseal(_MAGIC, content, path)
        entries = {each.name: each for each in disk.scan(folder)}
        first = entries.get(segment_name(base))
        if version != _VERSION or first is None or first.size != size:
            return None
    except (Unreadable, TypeError, ValueError):
        return None
    if os.path.basename(cleaned_path(folder, base)) in entries:
        return None
    bases = [found for name in entries if (found := base_of(name)) is not None]
    return [each for each in bases if base < each < end]
