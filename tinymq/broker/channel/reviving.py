"""Coming back of messages that were given up: settled ones, and those on their way."""

from __future__ import annotations

from tinymq.broker.channel.history import NEW, History, Stretches
from tinymq.broker.channel.places import Places
from tinymq.broker.channel.runs import Runs, runs_in


def revive(places: Places, now: int, who: str, base: int, bits: int, redriven: int) -> None:
    """
    Let settled messages come again as if they had never failed; others stay as they are.

    Args:
        places: Where messages are.
        now: The time.
        who: Nobody.
        base: The offset of bit 0.
        bits: Which offsets.
        redriven: How often they were sent back with this time.
    """
    closed = settled(places, base, base + bits.bit_length())
    for start, end in runs_in(base, bits):
        runs = [*closed.within(start, end)]
        for first, behind in runs:
            _put_back(places, first, behind, NEW)
            _not_skipped(places, first, behind)
        places.marks.revive(runs, redriven)
    places.prune_marks()


def recall(places: Places, now: int, who: str, base: int) -> None:
    """
    Let messages that were given up be ready again: they went nowhere.

    Args:
        places: Where messages are.
        now: The time.
        who: Nobody.
        base: The first of them.
    """
    doom = places.doomed.pop(base, None)
    if doom is not None:
        places.dooming -= doom.bits.bit_count()
        for start, end in doom.runs:
            _put_back(places, start, end, doom.history)


def settled(places: Places, start: int, end: int) -> Runs:
    """
    Return what is settled of a run, and is not on its way to the dead-letter topic.

    Args:
        places: Where messages are.
        start: First offset.
        end: Offset behind the last.
    """
    closed = Runs(places.ahead.within(start, end))
    closed.add(start, min(end, places.cursor))
    for first, behind, _ in places.open() if start < places.cursor else ():
        closed.remove(first, behind)
    for doom in places.doomed.values():
        for first, behind in doom.runs:
            closed.remove(first, behind)
    return closed


def _put_back(places: Places, start: int, end: int, history: History) -> None:
    """Let settled messages be unsettled; the index of keys has to be made anew."""
    places.gather()
    places.order = None
    behind = min(end, places.cursor)
    if start < behind:
        places.ready.put(start, behind, history)
    places.ahead.remove(max(start, places.cursor), end)


def _not_skipped(places: Places, start: int, end: int) -> None:
    """Let an undo of the last seek not bring back what came back already."""
    if places.undo is not None:
        skipped = Stretches()
        for stretch in places.undo.skipped:
            skipped.put(*stretch)
        skipped.remove(start, end)
        places.undo = places.undo._replace(skipped=tuple(skipped))
