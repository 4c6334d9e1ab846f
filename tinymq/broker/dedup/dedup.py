"""
The dedup window of one partition: which records are repeats, and what a restart knows of it.

An id is known from its first append for as long as the topic says, whatever becomes of
the record. In memory that is `SeenIds`. After a restart it is what the log of ids says,
and the data log behind it: who removes records there calls `Dedup.secure` before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twisted.logger import Logger

from tinymq.broker.dedup.ids import ids_by, looked_at
from tinymq.broker.dedup.kept import READ_BYTES, Note, notes_in, write
from tinymq.broker.dedup.seen import Known, Room, Run, SeenIds
from tinymq.errors import CorruptBatch, StorageError, TinyMQError
from tinymq.limits import MIB
from tinymq.storage.log import Log
from tinymq.wire.batch import BatchHeader, split
from tinymq.wire.frames import Bytes
from tinymq.wire.records import RecordBatch

if TYPE_CHECKING:
    from tinymq.broker.partition import Partition

#: Ids that may wait for being written down, and ids of one note.
_MANY: Final = 20_000
#: Bytes of the data log that a start may have to look through.
_NOTE_BYTES: Final = 16 * MIB
#: Ids that are let go of at a time beside as many as come.
_MORE: Final = 1000
#: Ids that are let go of at a time while nothing is published.
_IDLE: Final = 50_000


class Dedup:
    """
    The window of one partition.

    Args:
        partition: The partition.
        room: How many ids all partitions may remember.
        log: The log of ids; None for a topic in memory.

    Attributes:
        rule: What is an id.
        seen: The ids.
    """

    _log = Logger()

    def __init__(self, partition: Partition, room: Room, log: Log | None) -> None:
        config = partition.topic.config
        assert config.dedup_ms is not None, "the topic has a window"
        self.partition = partition
        self.log = log
        self.rule = config.dedup_by
        self.seen = SeenIds(room, config.dedup_ms)
        self._ids = ids_by(self.rule)
        #: Below this offset of the data log all ids are in the log of ids.
        self._upto = 0

    # --- records -------------------------------------------------------------------

    def ids(self, batch: Bytes, header: BatchHeader) -> list[bytes | None] | None:
        """
        Find the ids of the records of a batch.

        Args:
            batch: A checked batch.
            header: Its header.

        Returns:
            None when there are none that matter here.

        Raises:
            CorruptBatch: The column cannot be read.
        """
        return self._ids(batch, header) if looked_at(header) else None

    def known(self, ids: list[bytes | None], base: int, time: int) -> Known:
        """
        Find the repeats among records that are about to be appended.

        Args:
            ids: Their ids.
            base: The offset that the first one would have.
            time: Their append time.

        Raises:
            Overloaded: No more ids can be remembered.
        """
        self.seen.expire(time, 2 * len(ids) + _MORE)
        known = self.seen.repeats(ids, base, time)
        self.seen.check_room(len(ids) - len(known), time)
        return known

    def took(self, ids: list[bytes | None], known: Known, base: int, time: int) -> None:
        """
        Remember the ids of a batch that was appended.

        Args:
            ids: Of its records, as it was sent.
            known: Those that were left out.
            base: Where it was appended.
            time: Its append time.
        """
        if known or None in ids:
            without = {place for place, _ in known}
            rows = [
                (each, base + place)
                for place, each in enumerate(ids)
                if each is not None and place not in without
            ]
            if rows:
                self.seen.add([each for each, _ in rows], [at for _, at in rows], time)
        else:
            self.seen.add(ids, range(base, base + len(ids)), time)  # type: ignore[arg-type]

    def take_back(self, offset: int) -> None:
        """
        Forget what was not written after all.

        Args:
            offset: The end of what was.
        """
        self.seen.take_back(offset)

    # --- keeping -------------------------------------------------------------------

    def look_after(self, now_ms: int) -> None:
        """
        Let go of what is over, though nothing is published.

        Args:
            now_ms: The time.
        """
        self.seen.expire(now_ms, _IDLE)
        if self.log is not None and self.log.offline is None:
            # By append times, which may be ahead of the clock.
            self.log.expire(now_ms, self.seen.ms)

    def note(self, *, all: bool = False) -> None:  # noqa: A002
        """
        Write down the ids of what is on the disk, if that is worth it; this does not wait.

        Args:
            all: Even if a start would have little to read without it.
        """
        data, log = self.partition.log, self.log
        if log is None or log.offline is not None or not isinstance(data, Log):
            return
        synced = data.synced_offset
        if synced <= self._upto:
            return
        fresh = self.seen.fresh
        many = len(fresh) and (all or sum(len(each.ids) for each in fresh) >= _MANY)
        if not (all or many or data.bytes_between(self._upto, synced) >= _NOTE_BYTES):
            return
        try:
            self._note(log, synced)
        except (OSError, TinyMQError) as error:
            # They are known here, and lie in the data log.
            self._log.warn(
                "ids of {where} are not kept: {error}", where=self.partition, error=error
            )

    def _note(self, log: Log, synced: int) -> None:
        fresh = self.seen.fresh
        time = log.max_timestamp
        while fresh and fresh[0].offsets[-1] < synced:
            runs: list[Run] = []
            count = 0
            for each in fresh:
                if each.offsets[-1] >= synced or (runs and count + len(each.ids) > _MANY):
                    break
                runs.append(each)
                count += len(each.ids)
            time = max(time, runs[-1].time)
            upto = runs[-1].offsets[-1] + 1
            write(log, Note(self.rule, upto, -1, runs), time)
            self._upto = upto
            for _ in runs:
                fresh.popleft()
        upto = min(synced, fresh[0].offsets[0]) if fresh else synced
        if upto > self._upto:
            write(log, Note(self.rule, upto, -1, []), time)
            self._upto = upto

    def secure(self) -> None:
        """
        Let the disk know all ids, before records go from the data log.

        This may wait for the disk. Where the disk refuses, a start knows less; space
        must be freed all the same.
        """
        log = self.log
        if log is None or log.offline is not None:
            return
        self.note(all=True)
        try:
            log.sync()
        except (OSError, TinyMQError) as error:
            self._log.error(
                "ids of {where} may be forgotten by a restart: {error}",
                where=self.partition,
                error=error,
            )

    # --- life ----------------------------------------------------------------------

    def begin(self) -> None:
        """Begin with nothing known, for the topic had no window before, or another rule."""
        self.seen.clear()
        log, data = self.log, self.partition.log
        if log is None or log.offline is not None or not isinstance(data, Log):
            return
        self._upto = data.end_offset
        try:
            log.sync()
            log.trim(log.end_offset)
            write(log, Note(self.rule, self._upto, -1, []), data.max_timestamp)
        except (OSError, TinyMQError) as error:
            self._log.warn(
                "ids of {where} are not kept: {error}", where=self.partition, error=error
            )

    def alter(self) -> None:
        """Follow the topic's settings."""
        config = self.partition.topic.config
        assert config.dedup_ms is not None, "the topic has a window"
        self.seen.ms = config.dedup_ms
        if config.dedup_by != self.rule:
            self.rule = config.dedup_by
            self._ids = ids_by(self.rule)
            self.begin()

    def recover(self) -> None:
        """Find out at a start what is known: from the log of ids, then from the data log."""
        data, log = self.partition.log, self.log
        if log is None or not isinstance(data, Log):
            return
        runs = self._kept(log, data.end_offset)
        oldest = data.max_timestamp - self.seen.ms
        for run in runs:
            if run.time > oldest and run.ids:
                self.seen.restore(run)
        found = data.offset_for_time(oldest + 1)
        offset = max(self._upto, data.start_offset, data.end_offset if found is None else found[0])
        self._read(data, offset)

    def _kept(self, log: Log, end: int) -> list[Run]:
        """Read the log of ids; what it says of offsets that were cut off is not believed."""
        runs: list[Run] = []
        try:
            for note in notes_in(log):
                if note.cut >= 0:
                    _cut(runs, note.cut)
                    self._upto = min(self._upto, note.cut)
                elif note.rule == self.rule:
                    runs += note.runs
                    self._upto = max(self._upto, note.upto)
        except (CorruptBatch, StorageError) as error:
            self._log.error("{where}: {error}", where=self.partition, error=error)
            self._upto = 0  # the data log says more
        if self._upto > end:
            _cut(runs, end)
            self._upto = end
            write(log, Note(self.rule, end, end, []), log.max_timestamp)
        return runs

    def _read(self, data: Log, offset: int) -> None:
        """Read ids from the data log."""
        while offset < data.written_offset:
            chunk = data.read(offset, READ_BYTES, data.written_offset)
            assert chunk is not None, "it was to wait for the disk"
            for header, batch in split(chunk.data):
                self._read_batch(batch, header)
            if chunk.next_offset <= offset:
                return
            offset = chunk.next_offset

    def _read_batch(self, batch: Bytes, header: BatchHeader) -> None:
        try:
            ids = self.ids(batch, header)
            if ids is None:
                return
            # Of a stored batch, whose records may have gaps between them.
            places = RecordBatch(batch, header).offsets
        except CorruptBatch as error:
            self._log.error("{where}: {error}", where=self.partition, error=error)
            return
        time = header.max_timestamp
        repeats = {place for place, _ in self.seen.repeats(ids, header.base_offset, time)}
        rows = [
            (each, at)
            for place, (each, at) in enumerate(zip(ids, places, strict=True))
            if each is not None and place not in repeats and at >= self._upto
        ]
        if rows:
            self.seen.add([each for each, _ in rows], [at for _, at in rows], time)


def _cut(runs: list[Run], offset: int) -> None:
    """Take out what lies at an offset or behind it."""
    for run in runs:
        count = sum(each < offset for each in run.offsets)
        if count < len(run.ids):
            del run.ids[count:]
            del run.offsets[count:]
