"""What becomes of messages whose log begins behind them."""

from __future__ import annotations

from collections.abc import Iterable

from tinymq.broker.channel.places import Places
from tinymq.broker.channel.runs import Runs, bits_of, cut


def trim(places: Places, now: int, who: str, start: int, spared: Iterable[int] = ()) -> None:
    """
    Settle all that lies below an offset, for it exists no more.

    What is given up stays so, and what is spared stays where it is.

    Args:
        places: Where messages are.
        now: The time.
        who: Nobody.
        start: The offset.
        spared: Offsets that are there all the same.
    """
    sparing = Runs((offset, offset + 1) for offset in spared)

    def gone(base: int, bits: int) -> int:
        hit = cut(base, bits, 0, start)
        if hit and sparing:
            for first, behind in sparing.within(base, base + hit.bit_length()):
                hit &= ~(bits_of(behind - first) << first - base)
        return hit

    places.drop(gone)
    if start > places.cursor:
        places.pass_to(now, who, start)
    places.gather()
    for first, behind in sparing.missing(0, start):
        places.ready.remove(first, behind)
    places.take_waiting(gone)
    if places.order is not None:
        places.order.rebuild(places)
    if places.undo is not None:
        places.undo = places.undo.trimmed(start, sparing)
