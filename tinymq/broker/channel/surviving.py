"""What is left of a channel when the end of its log did not survive a crash."""

from __future__ import annotations

from tinymq.broker.channel.places import Places
from tinymq.broker.channel.runs import Runs


def cut_back(places: Places, end: int) -> bool:
    """
    Forget everything about messages that do not exist any more.

    Other messages will get their offsets, which nobody has settled.

    Args:
        places: Where the messages of a channel are.
        end: The end of the log.

    Returns:
        Whether there was something to forget.
    """
    beyond = [run for run in places.ahead if run[1] > end]
    doomed = [doom for doom in places.doomed.values() if doom.base + doom.bits.bit_length() > end]
    if places.cursor <= end and not beyond:
        return False
    behind = max([places.cursor, *(run[1] for run in beyond)])
    places.drop_leases(end, behind)
    places.marks.forget([(end, behind)])
    places.take_out(end, behind)
    for doom in doomed:
        kept = doom.bits & ((1 << max(0, end - doom.base)) - 1)
        places.dooming -= (doom.bits & ~kept).bit_count()
        if kept:
            places.doomed[doom.base] = doom._replace(bits=kept)
        else:
            del places.doomed[doom.base]
    places.ahead = Runs((start, min(last, end)) for start, last in places.ahead if start < end)
    places.cursor = min(places.cursor, end)
    places.undo = None
    return True
