"""
A hierarchical timing wheel: what is due when, for any number of entries and any length of time.

Think of the second hand of a clock whose dial has 12 slots. It stands at 2, and something is
to happen 3 ticks later: it is put into slot 5, and when the hand gets there, it is done. To
put it in, and to take it out again, costs the same however much is in the wheel: nobody sorts
anything, and nobody looks at it until the hand is there::

         now 2, delay 3
            |
    0  1  2  3  4  5  6  7  8  9 10 11        slots of one tick
                   ^ slot 5

What is 30 ticks away does not fit on this dial. A second one does for it what the hour hand
does for the minutes: each of its 12 slots stands for a whole round of the first, so it reaches
144 ticks. 2 + 30 = 32 lies in round 2, at slot 8 there: it is put into slot 2 of the second
dial. When the first hand has gone round and the second comes to 2, that slot is opened, and
what is in it is put where it belongs on the first dial, into slot 8::

    level 1:    0 [1] 2 ...        slots of 12 ticks      32 = 2 * 12 + 8
    level 0:    ... 8 ...          slots of 1 tick

A third dial reaches 12 times further, and so on. Hours, minutes and seconds are three such
dials. A dial is made when something is so far away that it needs it: the wheel has no last one,
and nothing is too far. Written down in base 12, the time of an entry has a digit for each dial,
and the dial that it stands on is that of the highest digit in which its time differs from now.
So an entry moves down at most once for each dial, however long it waits, and where it stands
follows from the two times alone.

Here the dials have 64 slots, and a tick is 10 ms. An entry is due at the first tick that is not
before its time: never early, and at most one tick late. Whoever turns the wheel is told when
its next slot with something in it comes, and needs one timer, set to that: a wheel of which
nothing is due for an hour costs nothing for an hour. A slot is a set, so that taking an entry
out costs the same as putting it in; the key of an entry is a whole number.

`Wheel` knows no clock; it is told the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

#: Milliseconds of a tick.
TICK_MS: Final = 10
#: Slots of a dial.
SLOTS: Final = 64


class Wheel:
    """
    Entries by their time.

    Args:
        now_ms: The time.
        slots: Slots of each dial.
        tick_ms: Milliseconds of a tick.
    """

    __slots__ = ("_dials", "_due", "_now", "_rest", "_ripe", "_slots", "_tick")

    def __init__(self, now_ms: int = 0, slots: int = SLOTS, tick_ms: int = TICK_MS) -> None:
        self._slots = slots
        self._tick = tick_ms
        #: The tick at which the hands stand: all before it has been given out.
        self._now = now_ms // tick_ms
        #: By dial: what is in each slot that is not empty.
        self._dials: list[dict[int, set[int]]] = [{}]
        #: When each entry is due, in milliseconds.
        self._due: dict[int, int] = {}
        #: What is still to be moved down of a slot that was opened.
        self._rest: set[int] = set()
        #: What is still to be given out of a slot that is due, in order.
        self._ripe: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, key: int) -> bool:
        return key in self._due

    def due(self, key: int) -> int | None:
        """
        Say when an entry is due, None if it is not in the wheel.

        Args:
            key: Its key.
        """
        return self._due.get(key)

    def keys(self) -> Iterable[int]:
        """Return the keys of all entries, in no order."""
        return self._due.keys()

    # --- putting in and taking out ---------------------------------------------------

    def insert(self, key: int, due_ms: int) -> None:
        """
        Put an entry in; one with this key that is there already moves.

        Args:
            key: Its key.
            due_ms: Its time; the past is due at once.
        """
        if key in self._due:
            self.cancel(key)
        self._due[key] = due_ms
        self._slot(due_ms).add(key)

    def insert_all(self, keys: Sequence[int], dues_ms: Sequence[int]) -> None:
        """
        Put many new entries in.

        Args:
            keys: Their keys, none of which is in the wheel.
            dues_ms: As many times.
        """
        if len({*dues_ms}) == 1:
            # As when a batch has one delay: a slot takes all of them in one go.
            due = dues_ms[0]
            self._due.update(dict.fromkeys(keys, due))
            self._slot(due).update(keys)
            return
        self._due.update(zip(keys, dues_ms, strict=True))
        for key, due in zip(keys, dues_ms, strict=True):
            self._slot(due).add(key)

    def cancel(self, key: int) -> bool:
        """
        Take an entry out.

        Args:
            key: Its key.

        Returns:
            Whether it was there.
        """
        due = self._due.pop(key, None)
        if due is None:
            return False
        if key in self._ripe:
            del self._ripe[key]
            return True
        if key in self._rest:
            self._rest.discard(key)
            return True
        dial, number = self._place(due)
        slot = self._dials[dial][number]
        slot.discard(key)
        if not slot:
            del self._dials[dial][number]
        return True

    def _place(self, due_ms: int) -> tuple[int, int]:
        """The dial and the slot of a time: where its highest digit differs from now."""
        tick = max(-(-due_ms // self._tick), self._now)
        slots, here, dial = self._slots, self._now, 0
        number = tick % slots
        tick //= slots
        here //= slots
        while tick != here:
            dial += 1
            number = tick % slots
            tick //= slots
            here //= slots
        return dial, number

    def _slot(self, due_ms: int) -> set[int]:
        dial, number = self._place(due_ms)
        while dial >= len(self._dials):
            self._dials.append({})
        found = self._dials[dial].get(number)
        if found is None:
            found = self._dials[dial][number] = set()
        return found

    # --- turning -----------------------------------------------------------------------

    def next_ms(self) -> int | None:
        """
        Say when the next slot comes that has something in it; None if nothing is in the wheel.

        Nothing is due before, and maybe nothing then: it may be a slot that is only opened.
        """
        if self._rest or self._ripe:
            return self._now * self._tick
        found = self._next()
        return None if found is None else found[2] * self._tick

    def _next(self) -> tuple[int, int, int] | None:
        """The dial, the slot and the tick of what comes next."""
        width, above = 1, self._now
        for dial, slots in enumerate(self._dials):
            above //= self._slots
            if slots:
                # All on a lower dial comes before anything on a higher one.
                number = min(slots)
                return dial, number, max((above * self._slots + number) * width, self._now)
            width *= self._slots
        return None

    def advance(self, now_ms: int, most: int | None = None) -> list[tuple[int, int]]:
        """
        Turn the hands to a time.

        Args:
            now_ms: The time; one in the past changes nothing.
            most: About how many entries are given out or moved down before this returns; the
                hands then stand before the time, and `next_ms` is not later than it.

        Returns:
            The times and keys of what is due, in order; it is not in the wheel any more.
        """
        until, work = now_ms // self._tick, 0
        found: list[tuple[int, int]] = []
        while most is None or work < most:
            left = None if most is None else most - work
            if self._ripe:
                given = self._give_out(left)
                found += given
                work += len(given)
                continue
            if self._rest:
                work += self._move_down(left)
                continue
            following = self._next()
            if following is None or following[2] > until:
                self._now = max(self._now, until)
                break
            dial, number, tick = following
            slot = self._dials[dial].pop(number)
            self._now = max(self._now, tick)
            if dial:
                self._rest = slot
            else:
                # All of it may be due in one millisecond: it is put in order fast, by numbers
                # alone, and what takes longer is done in parts.
                self._ripe = dict.fromkeys(sorted(sorted(slot), key=self._due.__getitem__))
        return found

    def _give_out(self, most: int | None) -> list[tuple[int, int]]:
        ripe, pop = self._ripe, self._due.pop
        if most is None or most >= len(ripe):
            self._ripe = {}
            return [(pop(key), key) for key in ripe]
        keys = [*islice(ripe, most)]
        for key in keys:
            del ripe[key]
        return [(pop(key), key) for key in keys]

    def _move_down(self, most: int | None) -> int:
        rest, due = self._rest, self._due
        count = len(rest) if most is None else min(len(rest), most)
        for _ in range(count):
            key = rest.pop()
            self._slot(due[key]).add(key)
        return count
