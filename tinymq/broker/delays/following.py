"""
The index follows the delay log of a partition, a few records at a time.

It is behind on purpose: a message that comes after a moment never gets into it. Whoever
asks the index first lets it catch up.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from twisted.logger import Logger

from tinymq.broker.delays.acts import CANCELLED, MOVED, NOTED, RELEASED, Act, read
from tinymq.broker.delays.index import Changes, Index, Rebuilt, Row
from tinymq.broker.delays.shelf import StoredBatch
from tinymq.broker.delays.waiting import NOWHERE, Reach, Waiting
from tinymq.errors import CorruptBatch
from tinymq.limits import MIB
from tinymq.wire.batch import HAS_DUE, BatchHeader, split
from tinymq.wire.frames import Bytes
from tinymq.wire.records import RecordBatch

if TYPE_CHECKING:
    from tinymq.storage.log import Log
    from tinymq.storage.memory import MemoryLog

#: Records that are followed before others have their turn, about.
STEP: Final = 500
_READ_BYTES: Final = MIB // 8
#: As `_READ_BYTES`, while the broker starts.
_START_BYTES: Final = 4 * MIB
_EVERYTHING: Final = 1 << 40
#: More rows than there can be: they are counted when the index has caught up.
_UNCOUNTED: Final = 1 << 60
#: The index is so much behind, in milliseconds, if nobody asks it; and a little more,
_LAG_MS: Final = 11_000
#: for what comes within this time is followed together.
_TOGETHER_MS: Final = 1000


class Follower:
    """
    Lets the index follow one delay log.

    Args:
        name: Of the partition, for people.
        log: The delay log.
        index: The view.
        key: Topic and number of the partition.
        waiting: What memory knows.

    Attributes:
        home: What the partition is called in the index.
        upto: Everything before this offset of the log is in the index.
        seen: Everything before this offset was taken into memory, as far as it belongs there.
        noted: How far the data log was looked at, as `upto` knows.
        rows: How many rows the index has.
        stored: How many bytes they took when that was counted.
    """

    _log = Logger()

    def __init__(
        self,
        name: str,
        log: Log | MemoryLog,
        index: Index,
        key: tuple[bytes, int],
        waiting: Waiting,
    ) -> None:
        self._name = name
        self._stored = log
        self._index = index
        self._key = key
        self._waiting = waiting
        self.home = 0
        self.upto = self.seen = self.noted = self.rows = self.stored = 0
        #: From which offset on messages were divided by which reach.
        self._marks: list[tuple[int, Reach]] = [(0, NOWHERE)]
        #: Until when which offsets came.
        self._times: deque[tuple[int, int]] = deque()
        #: Up to here the index is to follow without being asked.
        self._wanted = 0

    # --- the start -----------------------------------------------------------------

    def recover(self) -> None:
        """
        Bring the index up to the log; memory is empty.

        Raises:
            Rebuilt: The index was begun anew meanwhile; this has to be done again.
        """
        log, begun = self._stored, self._index.begun
        self._open_home()
        self.seen = log.written_offset
        self.rows = _UNCOUNTED
        while self.upto < self.seen:
            before = self.upto
            self._step(_EVERYTHING, _START_BYTES, self.seen)
            if self._index.begun != begun:
                raise Rebuilt
            if self.upto == before:
                break
        self.upto = max(self.upto, self.seen)
        self._count()

    def _open_home(self) -> None:
        log = self._stored
        self.home, self.upto, self.noted = self._index.home(*self._key)
        if not log.start_offset <= self.upto <= log.written_offset:
            if self.upto:
                self._log.warn(
                    "{name}: the index of what is not due yet does not fit its log; "
                    "it is made anew",
                    name=self._name,
                )
            self._index.clear(self.home)
            self.upto, self.noted = log.start_offset, 0
        self._marks = [(0, NOWHERE)]
        self._count()

    def _count(self) -> None:
        self.rows, self.stored = self._index.totals(self.home)

    def rebuilt(self) -> None:
        """Follow from the start of the log: the index was begun anew."""
        log = self._stored
        self.home, self.upto, self.noted = self._index.home(*self._key)
        self.upto = log.start_offset
        reach = self._waiting.reach
        self._marks = [(0, NOWHERE), (self.seen, reach)]
        self.rows = _UNCOUNTED

    # --- the reach -------------------------------------------------------------------

    def reached(self) -> None:
        """Note that messages are divided by another reach from now on."""
        if self._marks[-1][0] == self.seen:
            self._marks.pop()
        self._marks.append((self.seen, self._waiting.reach))

    @property
    def untold(self) -> int:
        """From which offset on the index is not told of what came before it followed so far."""
        divided = (offset for offset, reach in self._marks if reach != NOWHERE)
        return max(self.upto, next(divided, _EVERYTHING))

    def _reach_at(self, offset: int) -> Reach:
        return self._marks[bisect_right(self._marks, offset, key=_offset) - 1][1]

    # --- following ---------------------------------------------------------------------

    @property
    def behind(self) -> bool:
        """Whether the log has more than the index."""
        return self.upto < self.seen

    def saw(self, end: int, now: int) -> None:
        """
        Note that memory took in everything up to an offset.

        Args:
            end: The offset.
            now: The time.
        """
        self.seen = end
        if self._times and now - self._times[-1][1] < _TOGETHER_MS:
            self._times[-1] = end, self._times[-1][1]
        else:
            self._times.append((end, now))

    def next_time(self) -> int | None:
        """Say when there is something to follow; None if nothing is behind."""
        if self.upto < self._wanted:
            return 0
        return self._times[0][1] + _LAG_MS if self._times else None

    def follow(self, now: int) -> bool:
        """
        Follow some records of those that are old enough.

        Args:
            now: The time.

        Returns:
            Whether there are more of these.

        Raises:
            StorageFull: The index cannot be written.
        """
        while self._times and self._times[0][1] + _LAG_MS <= now:
            self._wanted = self._times.popleft()[0]
        before = self.upto
        if self.upto < self._wanted:
            self._step(STEP, _READ_BYTES, min(self._wanted, self.seen))
        return before < self.upto < self._wanted

    def catch_up(self) -> Iterator[None]:
        """
        Bring the index up to what was there when this began, step by step.

        Raises:
            StorageFull: The index cannot be written.
        """
        end = self.seen
        while self.upto < end:
            before, begun = self.upto, self._index.begun
            self.step()
            if self.upto == before and self._index.begun == begun:
                return
            yield

    def step(self, most: int = STEP) -> bool:
        """
        Follow some records.

        Args:
            most: How many, about.

        Returns:
            Whether there are more.

        Raises:
            StorageFull: The index cannot be written.
        """
        before = self.upto
        if self.behind:
            with suppress(Rebuilt):  # `rebuilt` was called
                self._step(most, _READ_BYTES, self.seen)
        return self.behind and self.upto != before

    def _step(self, most: int, size: int, end: int) -> None:
        chunk = self._stored.read(max(self.upto, self._stored.start_offset), size, end)
        if chunk is None:
            return
        part = _Part(self._waiting, self.upto)
        for header, data in split(chunk.data):
            if part.work >= most:
                break
            try:
                if header.attributes & HAS_DUE:
                    self._messages(part, header, data, most)
                else:
                    self._acts(part, header, data)
            except CorruptBatch as error:
                self._log.error(
                    "{name}: offsets {start} to {end} of the delay log cannot be read: {error}",
                    name=self._name,
                    start=header.base_offset,
                    end=header.last_offset,
                    error=error,
                )
                part.upto = header.next_offset
            if part.upto < header.next_offset:
                break  # the rest of a long batch is for the next step
        else:
            part.upto = max(part.upto, chunk.next_offset)
        self._apply(part)

    def _messages(self, part: _Part, header: BatchHeader, data: Bytes, most: int) -> None:
        batch = StoredBatch(bytes(data), header)
        first = max(0, part.upto - header.base_offset)
        end = min(header.records, first + max(1, most - part.work))
        reach, waiting = self._reach_at(header.base_offset), self._waiting
        part.work += 1 + (end - first) // 8
        ids, dues = batch.ids, batch.dues
        if batch.copied:
            chosen = list(range(first, end))
        else:
            chosen = [
                place
                for place in range(first, end)
                if (dues[place], ids[place]) > reach or waiting.knows(ids[place])
            ]
            if reach != NOWHERE:
                part.late += (ids[place] for place in chosen if (dues[place], ids[place]) > reach)
        if chosen:
            self._rows(part, batch, chosen)
        part.upto = header.base_offset + end
        if end == header.records:
            part.upto = header.next_offset

    def _rows(self, part: _Part, batch: StoredBatch, chosen: list[int]) -> None:
        ids, dues, keys, values = batch.ids, batch.dues, batch.keys, batch.values
        taken, share, base = batch.header.max_timestamp, batch.share, batch.base
        part.work += len(chosen)
        rows = part.copied if batch.copied else part.fresh
        scheduled = batch.scheduled
        for place in chosen:
            rows[ids[place]] = Row(
                ids[place],
                dues[place],
                base + place,
                len(values[place] or b""),
                share,
                taken,
                keys[place],
                batch.schedule(place) if scheduled else None,
            )

    def _acts(self, part: _Part, header: BatchHeader, data: Bytes) -> None:
        batch = RecordBatch(data, header)
        for offset, value in zip(batch.offsets, batch.values, strict=True):
            if offset >= part.upto and value is not None:
                act = read(value)
                part.work += 1 + len(act.ids) // 8
                part.act(offset, act, rows=self.rows > 0)
        part.upto = header.next_offset

    def _apply(self, part: _Part) -> None:
        noted = max(self.noted, part.noted)
        changes = Changes(
            [*part.fresh.values()], [*part.copied.values()], part.gone, part.moved.items()
        )
        self.rows += self._index.apply(self.home, changes, part.upto, noted)
        self.upto, self.noted = part.upto, noted
        if self.rows > _UNCOUNTED // 2 and not self.behind:
            self._count()
        while len(self._marks) > 1 and self._marks[1][0] <= self.upto:
            del self._marks[0]
        waiting = self._waiting
        for offset, numbers in part.settled:
            for each in numbers:
                if waiting.ghosts.get(each) == offset:
                    del waiting.ghosts[each]
        for each in part.late:
            row = part.fresh.get(each)
            # The reach passed it before the index knew it.
            if row and (row.due, row.id) <= waiting.reach and not waiting.knows(each):
                waiting.put(each, row.due)


def _offset(mark: tuple[int, Reach]) -> int:
    return mark[0]


class _Part:
    """What a part of the log changes."""

    def __init__(self, waiting: Waiting, upto: int) -> None:
        self._waiting = waiting
        self.upto = upto
        self.work = 0
        self.noted = 0
        self.fresh: dict[int, Row] = {}
        self.copied: dict[int, Row] = {}
        #: Those of them that lay beyond the reach when they came.
        self.late: list[int] = []
        self.gone: list[int] = []
        self.moved: dict[int, int] = {}
        self.settled: list[tuple[int, list[int]]] = []

    def act(self, offset: int, act: Act, *, rows: bool) -> None:
        """Take an act into account."""
        if act.kind in (RELEASED, NOTED):
            self.noted = max(self.noted, act.number)
        ids = list(act.ids)
        if act.kind in (RELEASED, CANCELLED):
            for each in ids:
                fresh = self.fresh.pop(each, None)
                copied = self.copied.pop(each, None)
                self.moved.pop(each, None)
                if copied is not None or (fresh is None and rows):
                    self.gone.append(each)
        elif act.kind == MOVED:
            for each in ids:
                if each in self.fresh:
                    self.fresh[each] = self.fresh[each]._replace(due=act.number)
                else:
                    self.moved[each] = act.number
                    if each in self.copied:
                        self.copied[each] = self.copied[each]._replace(due=act.number)
        self.settled.append((offset, ids))
