"""
The ids that a partition has seen, with the offsets at which they came first.

They lie in runs, in order of their append times: what comes out of the window goes
from the front, a run at a time. A dictionary finds the run of an id; the offset is
looked for in it only when the id comes again, which is rare, but then it may be
all of a batch that comes again.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence

from tinymq.errors import Overloaded

#: Rows of a place in a batch and the offset of the first.
Known = list[tuple[int, int]]


class Room:
    """
    How many ids all partitions of a broker may remember.

    Args:
        most: So many.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0


class Run:
    """Ids that were appended at the same time, with their offsets, rising."""

    __slots__ = ("ids", "offsets", "time")

    def __init__(self, time: int) -> None:
        self.time = time
        self.ids: list[bytes] = []
        self.offsets: array[int] = array("q")

    def offset(self, id: bytes) -> int:  # noqa: A002 - of a message
        """Say where an id of it came first."""
        return self.offsets[self.ids.index(id)]


class Firsts:
    """Finds where many ids came first: at the second one of a run, by an index made for it."""

    def __init__(self) -> None:
        self._known: dict[Run, dict[bytes, int]] = {}

    def offset(self, run: Run, id: bytes) -> int:  # noqa: A002 - of a message
        """
        Say where an id came first.

        Args:
            run: The run that it is in.
            id: The id.
        """
        known = self._known.get(run)
        if known is None:
            self._known[run] = {}
            return run.offset(id)
        if not known:
            known.update(zip(run.ids, run.offsets, strict=True))
        return known[id]


class SeenIds:
    """
    The ids of one partition.

    Args:
        room: How many all may remember.
        ms: For how long an id is known.
    """

    def __init__(self, room: Room, ms: int) -> None:
        self.ms = ms
        self._room = room
        self._at: dict[bytes, Run] = {}
        self._runs: deque[Run] = deque()
        #: Runs of which nothing is in the log of ids.
        self.fresh: deque[Run] = deque()

    def __len__(self) -> int:
        return len(self._at)

    @property
    def held(self) -> int:
        """How many ids are held, those included that came again after their time."""
        return sum(len(each.ids) for each in self._runs)

    def repeats(self, ids: Sequence[bytes | None], base: int, time: int) -> Known:
        """
        Find the records that were there before, or earlier in the same batch.

        Args:
            ids: Of the records of a batch.
            base: The offset that its first one would have.
            time: Its append time.

        Returns:
            Place in the batch, and offset of the first.
        """
        at = self._at
        given = [each for each in ids if each is not None] if None in ids else ids
        if at.keys().isdisjoint(given) and len({*given}) == len(given):
            return []
        found: Known = []
        firsts = Firsts()
        first: dict[bytes, int] = {}
        for place, each in enumerate(ids):
            if each is None:
                continue
            run = at.get(each)
            if run is not None and run.time + self.ms > time:
                found.append((place, firsts.offset(run, each)))
            elif (offset := first.setdefault(each, base + place)) != base + place:
                found.append((place, offset))
        return found

    def before(self, ids: Sequence[bytes | None], base: int) -> Known:
        """
        Find out which records of a stored batch were left out of it.

        Args:
            ids: Of the records of the batch, as it was sent.
            base: Where it is stored.
        """
        found: Known = []
        firsts = Firsts()
        for place, each in enumerate(ids):
            run = None if each is None else self._at.get(each)
            if run is not None and each is not None:
                offset = firsts.offset(run, each)
                if offset < base + place:
                    found.append((place, offset))
        return found

    def check_room(self, count: int, time: int) -> None:
        """
        See whether more can be remembered, and let go of all that is over if need be.

        Args:
            count: How many.
            time: The time.

        Raises:
            Overloaded: They cannot.
        """
        room = self._room
        if room.taken + count > room.most:
            self.expire(time, room.taken)
        if room.taken + count > room.most:
            raise Overloaded(
                f"the dedup windows of this broker hold {room.taken} message ids and may hold "
                f"{room.most} (producers.dedup_ids); wait, or shorten dedup.ms of its topics",
                limit=room.most,
                name="producers.dedup_ids",
            )

    def add(self, ids: Iterable[bytes], offsets: Iterable[int], time: int) -> None:
        """
        Remember ids.

        Args:
            ids: None of them is a repeat.
            offsets: As many, rising, behind all before.
            time: Their append time.
        """
        run = self.fresh[-1] if self.fresh else None
        if run is None or run.time != time:
            run = Run(time)
            self._runs.append(run)
            self.fresh.append(run)
        before = len(run.ids)
        run.ids += ids
        run.offsets.extend(offsets)
        new = run.ids[before:] if before else run.ids
        self._at.update(dict.fromkeys(new, run))
        self._room.taken += len(new)

    def restore(self, run: Run) -> None:
        """
        Take over ids from before a restart.

        Args:
            run: Behind those before, and in the log of ids.
        """
        self._runs.append(run)
        self._at.update(dict.fromkeys(run.ids, run))
        self._room.taken += len(run.ids)

    def expire(self, time: int, most: int) -> None:
        """
        Let go of ids whose time is over.

        Args:
            time: The time.
            most: About how many at a time.
        """
        runs = self._runs
        while runs and most > 0 and runs[0].time + self.ms <= time:
            run = runs.popleft()
            if self.fresh and self.fresh[0] is run:
                self.fresh.popleft()
            most -= len(run.ids)
            self._drop(run, run.ids)

    def take_back(self, offset: int) -> None:
        """
        Forget what was not written after all.

        Args:
            offset: The end of what was.
        """
        runs = self._runs
        while runs:
            run = runs[-1]
            cut = bisect_left(run.offsets, offset)
            if cut == len(run.ids):
                return
            self._drop(run, run.ids[cut:])
            del run.ids[cut:]
            del run.offsets[cut:]
            if run.ids:
                return
            runs.pop()
            if self.fresh and self.fresh[-1] is run:
                self.fresh.pop()

    def clear(self) -> None:
        """Forget everything."""
        self._room.taken -= self.held
        self._at.clear()
        self._runs.clear()
        self.fresh.clear()

    def _drop(self, run: Run, ids: Iterable[bytes]) -> None:
        at = self._at
        count = 0
        for each in ids:
            count += 1
            if at.get(each) is run:
                del at[each]
        self._room.taken -= count
