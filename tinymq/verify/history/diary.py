"""What one process was told and when: lines in a file, which outlive a kill."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

#: What a process may write down.
KINDS: Final = frozenset(
    (
        *("try", "ack", "begin", "got", "done", "commit", "end"),
        *("finish", "confirmed", "seen", "moved", "abort", "doubt"),
    )
)


class Event(NamedTuple):
    """
    One line.

    Attributes:
        at: When, in seconds of the clock that all processes of the machine share.
        actor: Who wrote it; a process that was started again has the same name.
        life: Which start of it.
        kind: One of `KINDS`.
        facts: What belongs to it.
    """

    at: float
    actor: str
    life: int
    kind: str
    facts: dict[str, Any]


class Diary:
    """
    Writes events, each with one call of the system, so that a kill loses none before it.

    Args:
        path: The file; it is added to.
        clock: Tells the time.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(self, kind: str, **facts: Any) -> None:
        """
        Write one event down.

        Args:
            kind: One of `KINDS`.
            facts: What belongs to it.
        """
        self.note_all(kind, (facts,))

    def note_all(self, kind: str, rows: Iterable[dict[str, Any]]) -> None:
        """
        Write several events of one kind and moment down.

        Args:
            kind: One of `KINDS`.
            rows: What belongs to each.
        """
        assert kind in KINDS, kind
        at = self._clock()
        lines = [json.dumps({"at": at, "kind": kind, **facts}) + "\n" for facts in rows]
        if lines:  # with one call: a kill takes all of it or nothing
            os.write(self._descriptor, "".join(lines).encode())

    def close(self) -> None:
        """Write no more."""
        os.close(self._descriptor)


def events(path: Path) -> Iterator[Event]:
    """
    Read a diary.

    Args:
        path: The file, named ACTOR.LIFE.

    Yields:
        The events, in order; a line that a kill cut off is left out.
    """
    actor, _, life = path.name.rpartition(".")
    for line in path.read_text("utf-8").splitlines(keepends=True):
        if not line.endswith("\n"):
            return
        found = json.loads(line)
        yield Event(found.pop("at"), actor, int(life), found.pop("kind"), found)


def all_events(folder: Path) -> list[Event]:
    """
    Read all diaries of a folder.

    Args:
        folder: Where they are.

    Returns:
        Their events in order of time.
    """
    found = [each for path in sorted(folder.iterdir()) for each in events(path)]
    return sorted(found, key=lambda event: event.at)
