"""
What went through each object of a broker in the last minutes and hours, in bounded memory.

The growth of counters goes in, `tinymq.stats` values come out: rates, and small curves.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Hashable, Iterable
from typing import Final

from attrs import frozen

from tinymq.stats import IDLE, Counters, Rates, Series, Span, Trail

#: Step and number of values of each span: ten minutes, and six hours.
SPANS: Final[dict[Span, tuple[int, int]]] = {"recent": (2_000, 300), "long": (60_000, 360)}
#: Step and number of values that a current rate is averaged over: ten seconds.
RATE_MS: Final = 2_000
RATE_STEPS: Final = 5
#: How long an object must have been idle to lose its curves to another one. Were
#: it less, more busy objects than there are curves would take them from each
#: other at every look, and nobody would have one.
IDLE_MS: Final = 60_000
_FIELDS: Final = len(Counters._fields)
_EMPTY: Final = array("f", bytes(4 * _FIELDS))


def growth(before: Counters, now: Counters) -> Counters:
    """
    Tell by how much counters grew.

    Args:
        before: As they were.
        now: As they are. Below what they were they count from zero again: their
            owner was started anew.
    """
    grown = Counters(now[0] - before[0], now[1] - before[1], now[2] - before[2], now[3] - before[3])
    return now if min(grown) < 0 else grown


class _Ring:
    """The last `size` slots of one object: four growths each, as floats."""

    __slots__ = ("first", "size", "slot", "values")

    def __init__(self, first: int, size: int) -> None:
        self.first = self.slot = first
        self.size = size
        self.values = array("f", bytes(4 * _FIELDS * size))

    def add(self, slot: int, growth: Counters) -> None:
        """Add to a slot, clearing those that were skipped. A clock set back is ignored."""
        values = self.values
        if slot > self.slot:
            for skipped in range(max(self.slot, slot - self.size) + 1, slot + 1):
                place = skipped % self.size * _FIELDS
                values[place : place + _FIELDS] = _EMPTY
            self.slot = slot
        place = self.slot % self.size * _FIELDS
        values[place] += growth[0]
        values[place + 1] += growth[1]
        values[place + 2] += growth[2]
        values[place + 3] += growth[3]

    def read(self, field: int, now: int) -> list[float]:
        """One field's growth in each finished slot before `now`, oldest first."""
        first = max(self.first, now - self.size)
        lowest = self.slot - self.size
        return [
            self.values[slot % self.size * _FIELDS + field] if lowest < slot <= self.slot else 0.0
            for slot in range(first, now)
        ]

    def mean(self, now: int, slots: int, seconds: float) -> Rates:
        """The growth per second over the last finished slots before `now`."""
        first = max(now - slots, self.slot - self.size + 1)
        if self.slot < first:
            return IDLE
        sums = [0.0] * _FIELDS
        for slot in range(first, min(now, self.slot + 1)):
            place = slot % self.size * _FIELDS
            for field in range(_FIELDS):
                sums[field] += self.values[place + field]
        return Rates(*(total / seconds for total in sums))


@frozen
class _Curves:
    """What one object is remembered by, besides its current rate."""

    recent: _Ring
    long: _Ring


class History:
    """
    Bounded memory of what went through each object: rates and small curves.

    Feed it about once a second with the growth of the objects that changed;
    an idle object costs nothing. Every object has its current rate, for 200
    bytes. Curves take 10 KiB each and are kept of `most` objects: whoever has
    them keeps them, and loses them to another one only after being idle for a
    minute. The clock is an argument of every call.

    Args:
        started_ms: When counting began. Objects stood at zero then.
        most: How many objects have curves.
    """

    def __init__(self, started_ms: int, most: int = 1000) -> None:
        self._started = started_ms
        self._most = most
        #: The last ten seconds, and the slot that is being filled, of all that were ever busy.
        self._now: dict[Hashable, _Ring] = {}
        #: By when they were busy last.
        self._curves: OrderedDict[Hashable, _Curves] = OrderedDict()

    def __len__(self) -> int:
        return len(self._curves)

    def grow(self, now_ms: int, growths: Iterable[tuple[Hashable, Counters]]) -> None:
        """
        Take in by how much objects grew.

        Args:
            now_ms: The time of the look.
            growths: Objects and their growth; those that stood still may be left
                out. Where curves are short, those that come first get them.
        """
        rate_slot = now_ms // RATE_MS
        recent_slot, long_slot = (now_ms // step for step, _ in SPANS.values())
        for key, grown in growths:
            curves = self._curves.get(key)
            if curves is None:
                curves = self._admit(key, now_ms)
            else:
                self._curves.move_to_end(key)
            ring = self._now.get(key)
            if ring is None:
                ring = self._now[key] = _Ring(self._started // RATE_MS, RATE_STEPS + 1)
            ring.add(rate_slot, grown)
            if curves is not None:
                curves.recent.add(recent_slot, grown)
                curves.long.add(long_slot, grown)

    def _admit(self, key: Hashable, now_ms: int) -> _Curves | None:
        """Give curves to an object that is busy and has none, if there are any."""
        if len(self._curves) >= self._most:
            idlest = next(iter(self._curves))
            if now_ms - self._now[idlest].slot * RATE_MS < IDLE_MS:
                return None
            del self._curves[idlest]
        # What went through it before, while it had no curves, nobody knows.
        first = now_ms if key in self._now else self._started
        curves = _Curves(*(_Ring(first // step, size) for step, size in SPANS.values()))
        self._curves[key] = curves
        return curves

    def forget(self, key: Hashable) -> None:
        """Drop everything about an object that was deleted."""
        self._curves.pop(key, None)
        self._now.pop(key, None)

    def rates(self, key: Hashable, now_ms: int) -> Rates:
        """Current rates of an object: the mean of the last ten seconds."""
        ring = self._now.get(key)
        if ring is None:
            return IDLE
        now = now_ms // RATE_MS
        # Counting may have begun less than ten seconds ago.
        slots = min(RATE_STEPS, max(1, now - self._started // RATE_MS))
        return ring.mean(now, slots, slots * RATE_MS / 1000)

    def trail(self, key: Hashable, now_ms: int, span: Span = "recent") -> Trail:
        """The curves of an object; zeros if it was known to be idle."""
        return Trail(*(self._series(key, now_ms, span, field) for field in range(_FIELDS)))

    def series(self, key: Hashable, now_ms: int, span: Span = "recent") -> Series:
        """Records in, per second: the curve of a sparkline."""
        return self._series(key, now_ms, span, 0)

    def _series(self, key: Hashable, now_ms: int, span: Span, field: int) -> Series:
        step, size = SPANS[span]
        now = now_ms // step
        curves = self._curves.get(key)
        if curves is not None:
            ring = curves.recent if span == "recent" else curves.long
            values = ring.read(field, now)
        elif key in self._now:
            values = []
        else:
            values = [0.0] * min(size, now - self._started // step)
        return Series(step, now * step, tuple(value * 1000 / step for value in values))
