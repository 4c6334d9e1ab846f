"""How messages are chosen for a consumer, where no index of keys is needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from tinymq.broker.channel.history import NEW, History, Stretch, Stretches
from tinymq.broker.channel.lease import MOST_SPANNED
from tinymq.broker.channel.places import Places
from tinymq.broker.channel.runs import bits_of

#: The offset of bit 0, which offsets, and what all of them have been through.
Pick: TypeAlias = tuple[int, int, History]


def gathered(stretches: Iterable[Stretch], credit: int) -> tuple[list[Pick], int]:
    """
    Make as few picks as can be.

    Args:
        stretches: What may be chosen, in order.
        credit: How many messages at most.

    Returns:
        The picks, and how many messages they leave of the credit.
    """
    picks: list[Pick] = []
    base, bits, past = -1, 0, NEW
    for start, end, history in stretches:
        while start < end and credit:
            if base >= 0 and (history != past or start - base >= MOST_SPANNED):
                picks.append((base, bits, past))
                base = -1
            if base < 0:
                base, bits, past = start, 0, history
            behind = min(end, start + credit, base + MOST_SPANNED)
            bits |= bits_of(behind - start) << (start - base)
            credit -= behind - start
            start = behind  # noqa: PLW2901 - the rest of a long stretch
        if not credit:
            break
    if base >= 0:
        picks.append((base, bits, past))
    return picks, credit


def fresh(places: Places, end: int) -> Iterator[Stretch]:
    """
    Yield what was not given out yet.

    Args:
        places: Where messages are.
        end: Offset behind the last that can be read.
    """
    for start, behind in places.ahead.missing(places.cursor, end):
        if not places.hidden:
            yield start, behind, NEW
            continue
        for first, last in places.hidden.missing(start, behind):
            yield first, last, NEW


def together(ready: Stretches) -> Iterator[Stretch]:
    """Yield what is ready and need not be given out alone."""
    return (stretch for stretch in ready if not stretch[2].alone)


def first_alone(ready: Stretches) -> list[Pick]:
    """Pick the first message that is given out alone."""
    for start, _, history in ready:
        if history.alone:
            return [(start, 1, history)]
    return []


def strictly(places: Places, *, alone: bool) -> Iterator[Stretch]:
    """
    Yield what is ready and comes before everything that waits.

    Args:
        places: Where messages are.
        alone: Whether a message that is given out alone may be first.
    """
    barrier = min((base for _, base, _, _ in places.waiting), default=places.cursor)
    for start, end, history in places.ready:
        if start >= barrier:
            return
        if not history.alone:
            yield start, min(end, barrier), history
        else:
            if alone:
                yield start, start + 1, history
            return
        alone = False
