"""How messages are chosen for a consumer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from tinymq.broker.channel.core import LOOK_AHEAD, Core
from tinymq.broker.channel.entries import ADMIT, PASS
from tinymq.broker.channel.history import NEW, History, Stretch, Stretches
from tinymq.broker.channel.lease import MOST_SPANNED, owner_of
from tinymq.broker.channel.places import Places
from tinymq.broker.channel.runs import bits_of

#: Messages that are put in order by key at a time.
_ADMITTED: Final = 1024

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


class Picker:
    """
    Chooses messages by the order of a channel.

    Args:
        core: The middle of the channel.

    Attributes:
        guard: Who is given nothing until it holds nothing, to be given a message alone.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self.guard: str | None = None

    def let_go(self, consumer: str) -> None:
        """
        Let somebody else be the guard.

        Args:
            consumer: Who goes.
        """
        if self.guard == consumer:
            self.guard = None

    def pick(self, consumer: str, credit: int, end: int, *, busy: bool, now: int) -> list[Pick]:
        """
        Choose messages for a consumer; each must then be given out.

        Args:
            consumer: Who asks.
            credit: How many messages at most.
            end: Offset behind the last that may be given out.
            busy: Whether it holds messages of other partitions.
            now: The time.
        """
        places = self._core.places
        holder = places.holders.get(consumer)
        if holder is not None and holder.alone:
            return []
        if not places.ready.alone:
            self.guard = None
        elif holder is None and not busy:
            picks = self._pick_alone(consumer)
            if picks:
                return picks
        elif self.guard is None or self.guard == consumer:
            # It is given nothing until it holds nothing, and then what must be alone.
            self.guard = consumer
            return []
        return self._pick_together(consumer, credit, end, now)

    def _pick_alone(self, consumer: str) -> list[Pick]:
        places, order = self._core.places, self._core.policy.order
        if order == "none":
            return first_alone(places.ready)
        if order == "strict":
            if places.leases:
                return []
            return [pick for pick in gathered(strictly(places, alone=True), 1)[0] if pick[2].alone]
        if places.order is None:
            return []
        found = places.order.pick(consumer, 1, places.ready, alone=True)
        return [(offset, 1, history) for offset, history in found]

    def _pick_together(self, consumer: str, credit: int, end: int, now: int) -> list[Pick]:
        places, order = self._core.places, self._core.policy.order
        if order == "key":
            return self._pick_by_key(consumer, credit, end, now)
        if order == "strict":
            if any(owner_of(name) != consumer for name in places.holders):
                return []
            picks, credit = gathered(strictly(places, alone=False), credit)
            given = sum(bits.bit_count() for _, bits, _ in picks)
            if places.waiting or given < places.ready.count:
                return picks
        elif places.ready:
            picks, credit = gathered(together(places.ready), credit)
        else:
            picks = []
        if credit and places.cursor < end:
            room = min(credit, self._core.room)
            if room > 0:
                more, _ = gathered(fresh(places, end), room)
                if not more:
                    self._core.move(now, "", (PASS, end))
                picks += more
        return picks

    def _pick_by_key(self, consumer: str, credit: int, end: int, now: int) -> list[Pick]:
        places = self._core.places
        if places.order is None:
            return []
        found = places.order.pick(consumer, credit, places.ready, alone=False)
        while len(found) < credit and places.cursor < end and places.unsettled < LOOK_AHEAD:
            behind = min(end, places.cursor + _ADMITTED)
            hidden = [edge for run in places.hidden.within(places.cursor, behind) for edge in run]
            self._core.move(now, "", (ADMIT, behind, hidden))
            # What was picked is still among the ready, but in no slot.
            found += places.order.pick(consumer, credit - len(found), places.ready, alone=False)
        found.sort()
        picks, _ = gathered(((offset, offset + 1, past) for offset, past in found), credit)
        return picks
