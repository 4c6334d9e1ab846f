"""
How far a log was cleaned, and when: the file ``cleaned``.

It is only a hint. When it is lost or cannot be read, all is taken for never
cleaned, and records without a value stay longer.
"""

from __future__ import annotations

import os
from typing import Final

from attrs import evolve, frozen

from tinymq.storage.disk import Disk
from tinymq.storage.sealed import Unreadable, seal, unseal
from tinymq.storage.tasks import Done

NAME: Final = "cleaned"
_MAGIC: Final = b"TMQK"
_VERSION: Final = 1
#: Cleanings that are remembered.
_MOST_ROUNDS: Final = 16


@frozen
class Cleanliness:
    """
    How far a log was cleaned.

    Attributes:
        until: Below this offset of each key only one record was left.
        start: Where the log started then.
        at_ms: When that was; 0: never.
        tombstones: Records without a value that stayed.
        gone: Below this offset they were removed.
        rounds: Cleanings that read all below an offset, and when, the oldest first.
    """

    until: int = 0
    start: int = 0
    at_ms: int = 0
    tombstones: int = 0
    gone: int = 0
    rounds: tuple[tuple[int, int], ...] = ()

    def seen(self, start: int, end: int) -> Cleanliness:
        """
        What of it is true of a log as it is now.

        Args:
            start: Where the log starts.
            end: Where it ends.
        """
        if start < self.start:
            # A purge was taken back: what came with it was never looked at.
            return Cleanliness(at_ms=self.at_ms)
        return self if self.until <= end else Cleanliness()

    def after(self, done: Done, gone: int, start: int, now_ms: int, stay_ms: int) -> Cleanliness:
        """
        How it is after a cleaning.

        Args:
            done: What came of it.
            gone: Below this offset records without a value went.
            start: Where the log started.
            now_ms: The time.
            stay_ms: How long records without a value stay.
        """
        old = [each for each in self.rounds if each[1] <= now_ms - stay_ms]
        rounds = [*old[-1:], *self.rounds[len(old) :]]
        if done.sound:
            rounds.append((done.until, now_ms))
        while len(rounds) > _MOST_ROUNDS:
            # Without one of them it is as if that had been done when the next was.
            inner = range(1, len(rounds) - 1)
            del rounds[min(inner, key=lambda at: rounds[at + 1][1] - rounds[at - 1][1])]
        return evolve(
            self,
            until=max(self.until, done.until),
            start=start,
            at_ms=now_ms,
            tombstones=done.tombstones,
            gone=gone,
            rounds=tuple(rounds),
        )

    def tombstones_below(self, now_ms: int, stay_ms: int) -> int:
        """
        Say below which offset records without a value have stayed long enough.

        Args:
            now_ms: The time.
            stay_ms: How long they stay after all that is older was removed.
        """
        old = (until for until, at_ms in self.rounds if at_ms <= now_ms - stay_ms)
        return max(old, default=0)


def load(disk: Disk, folder: str) -> Cleanliness:
    """
    Read how far a log was cleaned.

    Args:
        disk: The disk.
        folder: The log's folder.
    """
    path = os.path.join(folder, NAME)
    try:
        content = disk.read_file(path)
        if content is None:
            return Cleanliness()
        version, until, start, at_ms, tombstones, gone, found = unseal(_MAGIC, content, path)
        if version != _VERSION:
            return Cleanliness()
        rounds = tuple((below, when) for below, when in found)
        return Cleanliness(until, start, at_ms, tombstones, gone, rounds)
    except (OSError, Unreadable, TypeError, ValueError):
        return Cleanliness()


def save(disk: Disk, folder: str, value: Cleanliness) -> None:
    """
    Write how far a log was cleaned; nobody waits for the disk.

    Args:
        disk: The disk.
        folder: The log's folder.
        value: How far.
    """
    rounds = [list(each) for each in value.rounds]
    numbers = [value.until, value.start, value.at_ms, value.tombstones, value.gone]
    content = seal(_MAGIC, [_VERSION, *numbers, rounds])
    disk.replace_file(os.path.join(folder, NAME), content, durable=False)
