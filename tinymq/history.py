"""
What went through each object of a broker in the last minutes and hours, in bounded memory.

The growth of counters goes in, `tinymq.stats` values come out: rates, and small curves.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Hashable, Iterable
from typing import Final

from tinymq.stats import IDLE, Counters, Rates, Series, Span, Trail

#: Step and number of values of each span: ten minutes, and six hours.
SPANS: Final[dict[Span, tuple[int, int]]] = {"recent": (2_000, 300), "long": (60_000, 360)}
#: Values of the recent span that a current rate is averaged over: ten seconds.
RATE_STEPS: Final = 5
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


class History:
    """
    Bounded memory of what went through each object: rates and small curves.

    Feed it about once a second with the growth of the objects that changed;
    an idle object costs nothing. Rings are kept for the `most` objects that
    were busy last, 10 KiB each. The clock is an argument of every call.

    Args:
        started_ms: When counting began. Objects stood at zero then.
        most: How many objects keep their rings.
    """

    def __init__(self, started_ms: int, most: int = 1000) -> None:
        self._started = started_ms
        self._most = most
        self._rings: OrderedDict[Hashable, dict[Span, _Ring]] = OrderedDict()
        self._evicted: set[Hashable] = set()

    def __len__(self) -> int:
        return len(self._rings)

    def grow(self, now_ms: int, growths: Iterable[tuple[Hashable, Counters]]) -> None:
        """
        Take in by how much objects grew.

        Args:
            now_ms: The time of the look.
            growths: Objects and their growth; those that stood still may be left out.
        """
        for key, grown in growths:
            for span, ring in self._rings_of(key, now_ms).items():
                ring.add(now_ms // SPANS[span][0], grown)
        while len(self._rings) > self._most:
            self._evicted.add(self._rings.popitem(last=False)[0])

    def forget(self, key: Hashable) -> None:
        """Drop everything about an object that was deleted."""
        self._rings.pop(key, None)
        self._evicted.discard(key)

    def rates(self, key: Hashable, now_ms: int) -> Rates:
        """Current rates of an object: the mean of the last ten seconds."""
        rings = self._rings.get(key)
        if rings is None:
            return IDLE
        step = SPANS["recent"][0]
        now = now_ms // step
        # Counting may have begun less than ten seconds ago.
        slots = min(RATE_STEPS, max(1, now - self._started // step))
        return rings["recent"].mean(now, slots, slots * step / 1000)

    def trail(self, key: Hashable, now_ms: int, span: Span = "recent") -> Trail:
        """The curves of an object; zeros if it was known to be idle."""
        return Trail(*(self._series(key, now_ms, span, field) for field in range(_FIELDS)))

    def series(self, key: Hashable, now_ms: int, span: Span = "recent") -> Series:
        """Records in, per second: the curve of a sparkline."""
        return self._series(key, now_ms, span, 0)

    def _series(self, key: Hashable, now_ms: int, span: Span, field: int) -> Series:
        step, size = SPANS[span]
        now = now_ms // step
        rings = self._rings.get(key)
        if rings is not None:
            values = rings[span].read(field, now)
        elif key in self._evicted:
            values = []
        else:
            values = [0.0] * min(size, now - self._started // step)
        return Series(step, now * step, tuple(value * 1000 / step for value in values))

    def _rings_of(self, key: Hashable, now_ms: int) -> dict[Span, _Ring]:
        rings = self._rings.get(key)
        if rings is None:
            first = now_ms if key in self._evicted else self._started
            self._evicted.discard(key)
            rings = {s: _Ring(first // step, size) for s, (step, size) in SPANS.items()}
            self._rings[key] = rings
        self._rings.move_to_end(key)
        return rings
