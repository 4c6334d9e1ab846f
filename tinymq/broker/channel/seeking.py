"""Going to another offset, and taking that back without losing what was done since."""

from __future__ import annotations

from tinymq.broker.channel.history import NEW, Stretch
from tinymq.broker.channel.places import Places, Undo
from tinymq.broker.channel.runs import Run, Runs, runs_in


def difference(places: Places, cursor: int) -> tuple[list[Stretch], list[Run]]:
    """
    Return what a seek would settle, and which settled messages would come again.

    Args:
        places: Where messages are.
        cursor: Where it would go.
    """
    open_now = places.open()
    skipped = [stretch for stretch in open_now if stretch[0] < cursor]
    skipped = [(start, min(end, cursor), history) for start, end, history in skipped]
    skipped += ((start, end, NEW) for start, end in places.ahead.missing(places.cursor, cursor))
    closed = Runs([(cursor, places.cursor)])
    for start, end in places.ahead:
        closed.add(max(start, cursor), end)
    for start, end, _ in open_now:
        closed.remove(start, end)
    for doom in places.doomed.values():
        for start, end in runs_in(doom.base, doom.bits):
            closed.remove(start, end)
    return skipped, list(closed)


def seek(places: Places, now: int, who: str, cursor: int, window: int) -> None:
    """
    Begin anew at an offset: all below is settled, all behind comes again.

    Args:
        places: Where messages are.
        now: The time.
        who: Nobody.
        cursor: Where.
        window: Milliseconds in which it can be taken back.
    """
    places.wake(now)
    skipped, revived = difference(places, cursor)
    places.undo = Undo(tuple(skipped), tuple(revived), now + window)
    places.drop_leases(0, places.cursor)
    places.take_out(0, places.cursor)
    # What was given up stays so.
    places.ahead = Runs(
        (max(start, cursor), end)
        for doom in places.doomed.values()
        for start, end in runs_in(doom.base, doom.bits)
    )
    places.hidden = Runs()
    places.cursor = cursor


def take_back(places: Places, now: int, who: str) -> None:
    """
    Undo the last seek; what was settled since stays settled.

    Args:
        places: Where messages are.
        now: The time.
        who: Nobody.
    """
    undo, places.undo = places.undo, None
    if undo is None:
        return
    places.gather()
    for start, end in undo.revived:
        places.drop_leases(start, min(end, places.cursor))
        places.skip(now, who, start, end)
    for stretch in undo.skipped:
        places.ready.put(*stretch)
    # Their keys are not known any more: the index is made anew when they are.
    places.order = None
