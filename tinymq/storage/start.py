"""
Where a log starts, and the purges that can still be undone: the file ``start``.

It is written only when the start is not simply the first segment's. It never
makes data unreadable when it cannot be read itself: the log then starts at its
first segment.
"""

from __future__ import annotations

import os
from typing import Final

from attrs import evolve, frozen

from tinymq.storage.disk import Disk
from tinymq.storage.sealed import Unreadable, seal, unseal

NAME: Final = "start"
_MAGIC: Final = b"TMQS"
_VERSION: Final = 1


@frozen
class Purge:
    """
    A purge whose files are still there.

    Attributes:
        before: Where the log started before it.
        to: Where it starts since.
        deadline: When the files go, milliseconds since the epoch.
    """

    before: int
    to: int
    deadline: int


@frozen
class Start:
    """
    Where a log starts.

    Attributes:
        offset: First readable offset; the next to be given is never below it.
        purges: Those that can be undone, oldest first.
    """

    offset: int = 0
    purges: tuple[Purge, ...] = ()

    @property
    def floor(self) -> int:
        """Segments wholly below this are of no use any more."""
        return self.purges[0].before if self.purges else self.offset

    def trimmed(self, offset: int) -> Start:
        """The start moved up; what a purge can still give back is kept."""
        return Start(max(self.offset, offset), self.purges)

    def removed(self, first: int) -> Start:
        """The start after all below an offset went for good."""
        purges = tuple(
            evolve(each, before=max(each.before, first)) for each in self.purges if each.to > first
        )
        return Start(max(self.offset, first), purges)

    def purged(self, to: int, deadline: int) -> Start:
        """The start after a purge."""
        return Start(to, (*self.purges, Purge(self.offset, to, deadline)))

    def undone(self) -> Start:
        """The start before the last purge."""
        return Start(self.purges[-1].before, self.purges[:-1])

    def finished(self, now_ms: int) -> Start:
        """The start without purges whose time to undo has passed."""
        return Start(self.offset, tuple(each for each in self.purges if each.deadline > now_ms))


def load(disk: Disk, folder: str) -> Start | None:
    """
    Read the start of a log.

    Returns:
        None when the file is there but damaged; the plain start when there is none.
    """
    path = os.path.join(folder, NAME)
    content = disk.read_file(path)
    if content is None:
        return Start()
    try:
        version, offset, purges = unseal(_MAGIC, content, path)
        if version != _VERSION:
            return None
        return Start(offset, tuple(Purge(*each) for each in purges))
    except (Unreadable, TypeError, ValueError):
        return None


def save(disk: Disk, folder: str, start: Start) -> None:
    """Write the start of a log durably, as one step."""
    purges = [[each.before, each.to, each.deadline] for each in start.purges]
    content = seal(_MAGIC, [_VERSION, start.offset, purges])
    disk.replace_file(os.path.join(folder, NAME), content)
