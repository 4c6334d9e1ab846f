"""
How many messages were in each channel in the last minutes and hours, in bounded memory.

Rates can be had of counters at any time; how deep a queue was is known only of the
moments at which somebody looked. Between two looks the line is straight.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Container, Hashable, Iterable
from math import isnan, nan
from typing import Final

from attrs import define, field

from tinymq.figures.history import IDLE_MS, SPANS
from tinymq.stats import Depth, Series, Span

_STEP: Final = {span: step for span, (step, _) in SPANS.items()}


class _Ring:
    """The last `size` slots of one object: what was seen last in each, if anything was."""

    __slots__ = ("size", "slot", "values")

    def __init__(self, slot: int, size: int) -> None:
        self.slot = slot
        self.size = size
        self.values = array("f", [nan]) * size

    def put(self, slot: int, value: float) -> None:
        """Put into a slot, clearing those that were skipped. A clock set back is ignored."""
        values, size = self.values, self.size
        for skipped in range(max(self.slot, slot - size) + 1, slot):
            values[skipped % size] = nan
        if slot >= self.slot:
            values[slot % size] = value
            self.slot = slot

    def read(self, now: int) -> tuple[float, ...]:
        """Every slot from the first that is known to the last, those between filled in."""
        found: list[float] = []
        unknown = 0
        for slot in range(max(now, self.slot) - self.size + 1, self.slot + 1):
            value = self.values[slot % self.size]
            if isnan(value):
                unknown += 1
                continue
            if found:
                before = found[-1]
                step = (value - before) / (unknown + 1)
                found += [before + step * i for i in range(1, unknown + 1)]
            found.append(value)
            unknown = 0
        return tuple(found)


@define
class _Known:
    """What one object is remembered by; `changed` is when it did last, or was asked for."""

    rings: tuple[tuple[int, _Ring], ...]
    value: float = nan
    changed: int = field(default=0)

    def put(self, now_ms: int, value: float) -> None:
        """Take in a look."""
        for step, ring in self.rings:
            ring.put(now_ms // step, value)
        self.value = value


class Depths:
    """
    Bounded memory of how deep queues were. The clock is an argument of every call.

    Each takes 3 KiB. Where there are more than `most`, one that did not change for
    a minute gives its place to another.

    Args:
        most: How many are kept.
    """

    def __init__(self, most: int = 1000) -> None:
        self._most = most
        #: By when they changed last.
        self._known: OrderedDict[Hashable, _Known] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def look(self, now_ms: int, depths: Iterable[tuple[Hashable, int]]) -> None:
        """
        Take in a look at all.

        Args:
            now_ms: The time of the look.
            depths: What is how deep. Where places are short, the deepest get them.
        """
        others = []
        for key, depth in depths:
            known = self._known.get(key)
            if known is None:
                others.append((key, depth))
            else:
                self._put(now_ms, key, known, depth)
        for key, depth in sorted(others, key=lambda other: -other[1])[: self._most]:
            if len(self._known) >= self._most and not self._give_way(now_ms):
                return
            self._put(now_ms, key, self._admit(now_ms, key), depth)

    def see(self, now_ms: int, key: Hashable, depth: int) -> None:
        """
        Take in a look at one, which is kept since somebody wants to see it.

        Args:
            now_ms: The time of the look.
            key: Which.
            depth: How deep it is.
        """
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= self._most:
                self._known.popitem(last=False)
            known = self._admit(now_ms, key)
        self._put(now_ms, key, known, depth)
        self._touch(now_ms, key, known)

    def _admit(self, now_ms: int, key: Hashable) -> _Known:
        known = _Known(tuple((step, _Ring(now_ms // step, size)) for step, size in SPANS.values()))
        self._known[key] = known
        return known

    def _put(self, now_ms: int, key: Hashable, known: _Known, depth: int) -> None:
        changed = depth != known.value
        known.put(now_ms, depth)
        if changed:
            self._touch(now_ms, key, known)

    def _touch(self, now_ms: int, key: Hashable, known: _Known) -> None:
        known.changed = now_ms
        self._known.move_to_end(key)

    def _give_way(self, now_ms: int) -> bool:
        """Drop the one that changed least recently, if that was long ago."""
        idlest = next(iter(self._known))
        if now_ms - self._known[idlest].changed < IDLE_MS:
            return False
        del self._known[idlest]
        return True

    def keep(self, keys: Container[Hashable]) -> None:
        """Drop all but these: the others were deleted."""
        for key in [key for key in self._known if key not in keys]:
            del self._known[key]

    def depth(self, key: Hashable, now_ms: int) -> Depth:
        """Tell how deep one was; without values if nobody knows."""
        return Depth(self._series(key, now_ms, "recent"), self._series(key, now_ms, "long"))

    def _series(self, key: Hashable, now_ms: int, span: Span) -> Series:
        step = _STEP[span]
        known = self._known.get(key)
        if known is None:
            return Series(step, now_ms)
        ring = dict(known.rings)[step]
        return Series(step, min(now_ms, (ring.slot + 1) * step), ring.read(now_ms // step))
