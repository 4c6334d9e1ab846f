"""
Compaction: of each key only the newest record stays.

Pure code over the closed files of one log; it runs in a process of its own. One
pass reads what was never cleaned and notes the last offset of each key, as far
as the memory goes. The other reads all from the start of the log, and writes
cleaned files beside those that lose something; whoever asked for it lets each
take its place before the next is begun.

Every offset stays in some batch, so that a missing one is damage as ever: a
batch that lost records keeps the offsets and sequences that it took, and what
lies between batches that stay is taken by batches of no records. What cannot be
read is left as it is, and so is the whole file if its bytes are damaged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from attrs import define, field

from tinymq.errors import CorruptBatch
from tinymq.storage import swap as swapping
from tinymq.storage.disk import Disk
from tinymq.storage.keymap import KeyMap
from tinymq.storage.rewriting import Output, Run
from tinymq.storage.sourcing import BadBatch, Pace, Sources
from tinymq.storage.tasks import Cleaned, Damaged, Done, Event, Source, Task
from tinymq.wire.batch import (
    ABORTED,
    CONTROL,
    HEADER_SIZE,
    TRANSACTIONAL,
    BatchHeader,
    decided,
    hollow,
)
from tinymq.wire.records import Opened, RecordBatch

#: Bytes that a transaction takes in memory until it is known how it ended.
_TRANSACTION_BYTES: Final = 250
#: Of the memory, what is for transactions.
_TRANSACTION_SHARE: Final = 8
#: Producers whose last batch is known; of others more batches stay than need be.
_MOST_PRODUCERS: Final = 100_000

#: A transaction: producer id and epoch.
_Identity = tuple[int, int]


@define(kw_only=True)
class _State:
    """What the second pass knows at a place in the log; it may have to go back to one."""

    #: Transactions with batches before this place that say so.
    open: set[_Identity] = field(factory=set)
    records: int = 0
    tombstones: int = 0

    def copy(self) -> _State:
        return _State(open=set(self.open), records=self.records, tombstones=self.tombstones)


def clean(disk: Disk, task: Task, pace: Pace = lambda size: None) -> Iterator[Event]:
    """
    Clean a log.

    Whoever gets a `Cleaned` lets it take its place (or gives up, and asks for no more)
    before the next event is asked for.

    Args:
        disk: The disk.
        task: What is to be done.
        pace: Told of bytes that are read or written.

    Yields:
        What happened; `Done` is the last.

    Raises:
        StorageError: A file went away, or the disk refused.
        OSError: Likewise.
    """
    return _Cleaner(disk, task, pace).run()


class _Cleaner:
    def __init__(self, disk: Disk, task: Task, pace: Pace) -> None:
        self._disk = disk
        self._task = task
        self._pace = pace
        self._keys = KeyMap(task.memory - task.memory // _TRANSACTION_SHARE)
        self._most_ends = task.memory // _TRANSACTION_SHARE // _TRANSACTION_BYTES
        #: How transactions ended, and where: whether they were committed; None until somebody
        #: looked. A copy of a batch that came very late is a transaction for itself.
        self._ends: dict[_Identity, list[tuple[int, bool]]] | None = None
        self._count = 0
        #: Of each producer in what was never cleaned its last batch of records, and its last.
        self._last: dict[int, tuple[int, int]] = {}
        self._until = task.sources[-1].end if task.sources else task.dirty
        self._damaged: dict[int, int] = {}
        self._sources = Sources(disk, task.folder, pace)
        self._written = 0
        self._state = _State()
        #: What goes at the end of the file at work.
        self._run = Run()
        #: Whether all before the file at work was read.
        self._sound = True

    def run(self) -> Iterator[Event]:
        for source in self._task.sources:
            if source.end > self._task.dirty and not self._learn(source):
                break
        yield from self._rewrite()
        state = self._state
        yield Done(
            self._until,
            state.tombstones,
            self._sound,
            len(self._keys),
            state.records,
            self._sources.read,
            self._written,
            self._keys.size,
        )

    # --- the first pass ------------------------------------------------------

    def _learn(self, source: Source) -> bool:
        """Note the keys of a file; False when there is no room for more."""
        try:
            for _, header, data in self._sources.batches(source):
                if header.next_offset > self._task.dirty and not self._note(header, data):
                    self._until = header.base_offset
                    return False
        except BadBatch as bad:
            # What was noted of it is true all the same.
            self._damaged[source.base] = bad.position
        return True

    def _note(self, header: BatchHeader, data: memoryview) -> bool:
        if header.producer_id >= 0:
            self._note_producer(header)
        if not header.records or header.attributes & CONTROL:
            return True
        if header.attributes & TRANSACTIONAL:
            committed = self._ended(header)
            if committed is None:
                return False
            if not committed:
                return True
        try:
            batch = RecordBatch(data, header)
            rows = zip(batch.offsets, batch.keys, strict=True)
            return all(key is None or self._keys.put(key, offset) for offset, key in rows)
        except (CorruptBatch, ValueError):
            return True

    def _note_producer(self, header: BatchHeader) -> None:
        """Note its last batch; that a transaction ended says nothing of its sequences."""
        producer, offset = header.producer_id, header.base_offset
        records, last = self._last.get(producer, (-1, -1))
        if last >= 0 or len(self._last) < _MOST_PRODUCERS:
            control = header.attributes & CONTROL
            self._last[producer] = (records if control else offset), offset

    def _ended(self, header: BatchHeader) -> bool | None:
        """Say whether the transaction of a batch was committed; None if that is not known."""
        if self._ends is None:
            self._ends = {}
            begin = [each for each in self._task.sources if each.end > self._task.dirty]
            for source in (*begin, *self._task.behind):
                if not self._look_for_ends(source, self._ends):
                    break
        return self._end_of(header, self._ends)

    @staticmethod
    def _end_of(header: BatchHeader, ends: dict[_Identity, list[tuple[int, bool]]]) -> bool | None:
        found = ends.get((header.producer_id, header.producer_epoch), ())
        return next((committed for at, committed in found if at > header.base_offset), None)

    def _look_for_ends(self, source: Source, ends: dict[_Identity, list[tuple[int, bool]]]) -> bool:
        try:
            for header in self._sources.headers(source):
                if header.attributes & CONTROL:
                    identity = header.producer_id, header.producer_epoch
                    committed = not header.attributes & ABORTED
                    ends.setdefault(identity, []).append((header.base_offset, committed))
                    self._count += 1
                    if self._count >= self._most_ends:
                        return False
        except BadBatch:
            pass  # what lies behind in it may have ended, and nobody knows
        return True

    # --- the second pass -----------------------------------------------------

    def _rewrite(self) -> Iterator[Event]:
        sources = [each for each in self._task.sources if each.base < self._until]
        at, share, alone = 0, 1.0, -1
        while at < len(sources):
            first = sources[at]
            output = Output(self._disk, self._task.folder, first.base, self._task.interval)
            before, self._run = self._state.copy(), Run()
            try:
                try:
                    self._copy(first, output)
                except BadBatch as bad:
                    self._state, self._sound = before, False
                    yield Damaged(first.base, bad.position)
                    at += 1
                    continue
                taken, share = [first], output.size / max(1, first.size)
                at += 1
                while (
                    at < len(sources)
                    and first.base != alone
                    and self._joins(output, taken[-1], sources[at], share)
                ):
                    size = output.size
                    if not self._join(sources[at], output, taken[-1]):
                        break
                    share = (output.size - size) / max(1, sources[at].size)
                    taken.append(sources[at])
                    at += 1
                self._put_run(output)
                records = self._state.records - before.records
                if len(taken) > 1 and output.size == first.size:
                    # A start could not tell the one from the other: then it is not joined.
                    self._state, alone = before, first.base
                    at -= len(taken)
                elif output.differs or len(taken) > 1:
                    yield self._finished(output, taken, records)
            finally:
                output.close()

    def _joins(self, output: Output, before: Source, source: Source, share: float) -> bool:
        """Say whether it is worth trying to put another file behind what is there."""
        most = self._task.segment_bytes
        if source.base != before.end or source.base in self._damaged:
            return False
        worth = output.changed or output.size <= most // 2
        return worth and output.size + int(source.size * share) <= most

    def _join(self, source: Source, output: Output, before: Source) -> bool:
        """Put another file behind; False if it turned out too long or damaged."""
        state, run, mark = self._state.copy(), self._run.copy(), output.mark()
        try:
            self._copy(source, output, before)
            fits = output.size + HEADER_SIZE <= self._task.segment_bytes
        except BadBatch:
            fits = False  # it is looked at again, alone
        if not fits:
            self._state, self._run = state, run
            output.go_back(mark)
        return fits

    def _finished(self, output: Output, taken: Sequence[Source], records: int) -> Cleaned:
        swap = output.finish(self._pace)
        self._written += swap.size
        swapping.prepare(self._disk, self._task.folder, swap)
        sources = tuple((each.base, each.size) for each in taken)
        times = output.times
        return Cleaned(swap.base, swap.end, swap.size, *times, sources, records)

    def _copy(self, source: Source, output: Output, before: Source | None = None) -> None:
        """Write what stays of a file."""
        if before is not None:
            output.begin(self._sources.whole(before))
        else:
            output.first = lambda: self._sources.whole(source)
        for _, header, data in self._sources.batches(source):
            kept = self._kept(header, data)
            if kept is None:
                self._run.add(header, data)
                continue
            self._put_run(output)
            if kept is not data:
                output.change()
            output.put(kept, self._pace)

    def _put_run(self, output: Output) -> None:
        batches, new = self._run.end()
        if new:
            output.change()
        for batch in batches:
            output.put(batch, self._pace)

    # --- what stays ----------------------------------------------------------

    def _kept(self, header: BatchHeader, data: memoryview) -> memoryview | bytes | None:
        """Say what stays of a batch: itself, another one, or nothing."""
        if header.base_offset >= self._until:
            return data
        if header.attributes & CONTROL:
            return data if self._needed(header) or self._remembers(header) else None
        ended = header.attributes & TRANSACTIONAL != 0
        if ended:
            identity = header.producer_id, header.producer_epoch
            self._state.open.add(identity)
            committed = None if self._ends is None else self._end_of(header, self._ends)
            if committed is None:
                self._sound = False  # who reads it must know how it ended
                return data
            if not committed:
                self._state.records += header.records
                return hollow(header) if self._remembers(header) else None
        return self._newest(header, data, ended=ended) if header.native else data

    def _needed(self, header: BatchHeader) -> bool:
        """Whether the end of a transaction tells something of batches that are still there."""
        identity = header.producer_id, header.producer_epoch
        needed = identity in self._state.open
        self._state.open.discard(identity)
        return needed or not self._task.markers or not self._sound

    def _remembers(self, header: BatchHeader) -> bool:
        """Whether a batch is what is known of its producer, if the table of them is lost."""
        if header.producer_id < 0 or header.max_timestamp < self._task.since:
            return False
        records, last = self._last.get(header.producer_id, (-1, -1))
        return (last if header.attributes & CONTROL else records) <= header.base_offset

    def _newest(
        self, header: BatchHeader, data: memoryview, *, ended: bool
    ) -> memoryview | bytes | None:
        try:
            batch = RecordBatch(data, header)
            places = self._places(batch) if header.records else []
            fewer = 0 < len(places) < header.records
            thin = Opened(batch).thin(places) if fewer else None
        except (CorruptBatch, ValueError):
            return data  # nobody knows what is in it
        self._state.records += header.records - len(places)
        if thin is not None:
            return thin
        if header.records and not places:
            return hollow(header) if self._remembers(header) else None
        if not places and not self._remembers(header):
            return None
        return decided(data) if ended else data

    def _places(self, batch: RecordBatch) -> list[int]:
        """Say which records of a batch stay."""
        offsets, get = batch.offsets, self._keys.get
        rows = enumerate(zip(offsets, batch.keys, strict=True))
        places = [place for place, (offset, key) in rows if key is None or get(key) <= offset]
        return self._without_tombstones(batch, offsets, places)

    def _without_tombstones(
        self, batch: RecordBatch, offsets: Sequence[int], places: list[int]
    ) -> list[int]:
        if not places:
            return places
        values, keys = batch.values, batch.keys
        found = {each for each in places if values[each] is None and keys[each] is not None}
        if not found:
            return places
        below = self._task.tombstones if self._sound else 0
        gone = {each for each in found if offsets[each] < below}
        self._state.tombstones += len(found) - len(gone)
        return [each for each in places if each not in gone] if gone else places
