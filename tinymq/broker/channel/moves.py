"""
The moves of messages between their places, by the kind of entry that stands for them.

What a channel does and what is read back from its ledger go through the same
functions, so that the two cannot differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tinymq.broker.channel.dooming import bury, discard, doom, expire
from tinymq.broker.channel.entries import (
    ADMIT,
    BACK,
    BURY,
    DISCARD,
    DOOM,
    EXPIRE,
    FINISH,
    HOLD,
    LEASE,
    NAMED,
    ONE,
    PASS,
    PAUSE,
    POLICY,
    RECALL,
    RESCHEDULE,
    REVIVE,
    SEEK,
    SKIP,
    TAKE,
    TRIM,
    UNDO,
    WAIT,
    Entry,
)
from tinymq.broker.channel.places import Places
from tinymq.broker.channel.reviving import recall, revive
from tinymq.broker.channel.seeking import seek, take_back
from tinymq.broker.channel.trimming import trim


def _nothing(places: Places, now: int, who: str, *facts: object) -> None:
    """Change nothing: the entry is for people."""


_MOVES: Final[dict[int, Callable[..., None]]] = {
    LEASE: Places.lease,
    TAKE: Places.take,
    FINISH: Places.finish,
    BACK: Places.back,
    WAIT: Places.wait,
    DOOM: doom,
    DISCARD: discard,
    BURY: bury,
    SKIP: Places.skip,
    TRIM: trim,
    PASS: Places.pass_to,
    ADMIT: Places.admit,
    SEEK: seek,
    UNDO: take_back,
    PAUSE: Places.pause,
    POLICY: Places.alter,
    ONE: Places.finish_one,
    HOLD: Places.hold,
    NAMED: _nothing,
    REVIVE: revive,
    RECALL: recall,
    EXPIRE: expire,
    RESCHEDULE: Places.reschedule,
}


def apply(places: Places, now: int, who: str, entry: Entry) -> None:
    """
    Make a move.

    Args:
        places: Where messages are.
        now: When.
        who: The consumer that it is about, or nobody.
        entry: Its kind, and what belongs to it.
    """
    _MOVES[entry[0]](places, now, who, *entry[1:])
