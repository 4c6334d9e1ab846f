"""
Compaction: which partitions are cleaned, when, and how cleaned files take their place.

One partition at a time, the worst first. Reading and writing is another one's
work (`tinymq.broker.workers`); here is what needs the log: which files may be
cleaned, and the moment in which one takes the place of others. Channels hold
nothing back from it: the newest record of a key is what counts, and what was
handed out before is settled as ever.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from attrs import define, field
from twisted.logger import Logger

from tinymq.broker.partition import Partition
from tinymq.broker.swapping import Job
from tinymq.broker.workers import ThreadWorker, Worker
from tinymq.errors import TinyMQError
from tinymq.storage import cleanliness
from tinymq.storage import swap as swapping
from tinymq.storage.cleanliness import Cleanliness
from tinymq.storage.facts import DEFAULT_CONFIG
from tinymq.storage.tasks import Damaged, Done, Source, Task

if TYPE_CHECKING:
    from tinymq.broker.broker import Broker

#: Milliseconds until a partition is tried again that could not be cleaned; doubled each time.
_AGAIN_MS: Final = 30_000
_MOST_DOUBLED: Final = 8
#: A newest file with something to clean is closed when it is so old.
_CLOSE_AFTER_MS: Final = 3_600_000


@define(eq=False)
class _Record:
    """What is known of the cleaning of a partition."""

    clean: Cleanliness
    #: Somebody asked for it, or the last round did not get to the end.
    wanted: bool = False
    saved: int = 0
    failures: int = 0
    not_before: int = 0
    #: Damaged files that were told of.
    told: set[int] = field(factory=set)
    #: Files that a cleaned one replaced and that could not be removed: they must go first.
    left: list[int] | None = None


class Cleaning:
    """
    Has the logs of topics cleaned that are compacted.

    Args:
        broker: The broker.

    Attributes:
        worker: Cleans files.
    """

    _log = Logger()

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.worker: Worker = ThreadWorker(broker.background, broker.store.folder.disk)
        self._records: WeakKeyDictionary[Partition, _Record] = WeakKeyDictionary()
        self._job: Job | None = None
        self._closed = False

    # --- for people ----------------------------------------------------------

    def soon(self, partition: Partition) -> None:
        """
        Have a partition cleaned as soon as can be, its newest file too.

        Args:
            partition: One whose topic is compacted.
        """
        record = self._record(partition)
        record.wanted, record.not_before = True, 0

        def synced() -> None:
            if partition.failure is None:
                self._close_file(partition)
                self.look()

        self._broker.committer.sync_all([partition])
        self._broker.committer.after_sync(synced)

    def facts(self, partition: Partition) -> dict[str, Any]:
        """
        Tell how much of a partition is to be cleaned, for people.

        Args:
            partition: One whose topic is compacted.
        """
        record, log = self._record(partition), partition.log
        clean = self._clean(partition, record)
        dirty = sum(each.size for each in log.files_from(0) if each.end > clean.until)
        return {
            "bytes": log.size_bytes,
            "dirty": dirty,
            "cleaned_ms": clean.at_ms or None,
            "saved": record.saved,
        }

    # --- by the clock --------------------------------------------------------

    def look(self) -> None:
        """Begin with the partition for which it is worth most, unless one is at work."""
        if self._job is not None or self._closed:
            return
        now, best = self._broker.wall(), None
        for partition in self._broker.partitions():
            if not partition.topic.config.compacts or partition.failure is not None:
                continue
            try:
                share = self._worth(partition, now)
            except (OSError, TinyMQError) as error:
                self._failed(partition, str(error))
                continue
            if share is not None and (best is None or share > best[0]):
                best = share, partition
        if best is None:
            self.worker.rest()
        else:
            self._begin(best[1], now)

    def close(self) -> None:
        """Leave what is at work, and begin nothing more."""
        self._closed, self._job = True, None
        self.worker.stop()
        self.worker.rest()

    def _record(self, partition: Partition) -> _Record:
        record = self._records.get(partition)
        if record is None:
            disk, path = self._broker.store.folder.disk, partition.log.path
            record = self._records[partition] = _Record(cleanliness.load(disk, path))
        return record

    def _clean(self, partition: Partition, record: _Record) -> Cleanliness:
        log = partition.log
        record.clean = record.clean.seen(log.start_offset, log.end_offset)
        return record.clean

    def _worth(self, partition: Partition, now: int) -> float | None:
        """Say how much of a partition is dirty, as a share; None if it is left for now."""
        record, config = self._record(partition), partition.topic.config
        if now < record.not_before or self._broker.channels.unopened(partition):
            return None
        clean = self._clean(partition, record)
        self._close_old(partition, clean, now)
        sources = self._sources(partition, now)
        size = sum(each.size for each in sources)
        dirty = sum(each.size for each in sources if each.end > clean.until)
        if not size:
            return None
        if record.wanted:
            return 2.0
        if dirty and 100 * dirty >= config.compact_min_dirty * size:
            return dirty / size
        below = self._tombstones(partition, clean, now)
        return 0.0 if clean.tombstones and below > clean.gone else None

    def _sources(self, partition: Partition, now: int) -> list[Source]:
        """Say which files may be cleaned."""
        log, config = partition.log, partition.topic.config
        end = partition.stable_offset
        hosted = self._broker.channels.hosted(*partition.key)
        if hosted is not None and hosted.router is not None and hosted.router.floor is not None:
            end = min(end, hosted.router.floor)  # each record goes to the targets, not the newest
        sources = log.sources(log.start_offset, end)
        while sources and log.time_of(sources[-1].end) > now - config.compact_lag_ms:
            sources.pop()
        return sources

    def _tombstones(self, partition: Partition, clean: Cleanliness, now: int) -> int:
        """Say below which offset records without a value may go."""
        if partition.log.undo_window is not None:
            return 0  # what they hide may come back
        return clean.tombstones_below(now, partition.topic.config.compact_tombstone_ms)

    def _close_old(self, partition: Partition, clean: Cleanliness, now: int) -> None:
        """Close a newest file that has been open for long, where that makes it worth cleaning."""
        log, config = partition.log, partition.topic.config
        files = log.files_from(0)
        if not files or files[-1].end <= clean.until or log.end_offset != log.synced_offset:
            return
        dirty = sum(each.size for each in files if each.end > clean.until)
        size = sum(each.size for each in files)
        # The last file with something in it may be closed already.
        since = log.max_timestamp if len(files) == 1 else log.time_of(files[-2].end)
        old = since <= now - max(_CLOSE_AFTER_MS, config.compact_lag_ms)
        if old and 100 * dirty >= config.compact_min_dirty * size:
            self._close_file(partition)

    def _close_file(self, partition: Partition) -> None:
        try:
            partition.log.close_file()
        except (OSError, TinyMQError) as error:
            self._failed(partition, str(error))

    # --- one partition -------------------------------------------------------

    def _begin(self, partition: Partition, now: int) -> None:
        record, config = self._record(partition), partition.topic.config
        if record.left is not None:
            self._finish(partition, record, record.left)
            return
        settings, storage = self._broker.config, partition.log
        clean, sources = self._clean(partition, record), self._sources(partition, now)
        try:
            if partition.delays is not None:
                partition.delays.secure()  # that they came is told by records that may go
            if partition.dedup is not None:
                partition.dedup.secure()  # so are their ids
        except (OSError, TinyMQError) as error:
            self._failed(partition, str(error))
            return
        task = Task(
            folder=storage.path,
            sources=tuple(sources),
            behind=tuple(storage.files_from(sources[-1].end)),
            dirty=clean.until,
            tombstones=self._tombstones(partition, clean, now),
            markers=storage.undo_window is None,
            since=now - settings.producers.forget_seconds * 1000,
            memory=settings.compaction.memory_bytes,
            rate=settings.compaction.rate_bytes,
            segment_bytes=config.segment_bytes,
            interval=DEFAULT_CONFIG.index_interval,
        )
        record.wanted = False
        self._job = Job(self._broker, self, partition, task)
        self.worker.begin(task, self._job.told)

    def _finish(self, partition: Partition, record: _Record, others: list[int]) -> None:
        """Remove what could not be removed before; nothing is swapped until it is gone."""
        disk, failed = self._broker.store.folder.disk, list[str]()

        def work() -> None:
            try:
                swapping.finish(disk, partition.log.path, others)
            except (OSError, TinyMQError) as error:
                failed.append(str(error))

        def done() -> None:
            if failed:
                self.failed(partition, failed[0])
                return
            record.left, record.not_before = None, 0
            self._broker.scheduler.callLater(0, self.look)

        record.not_before = self._broker.wall() + _AGAIN_MS
        self._broker.background.submit(work, done)

    def left_over(self, partition: Partition, others: list[int], reason: str) -> None:
        """
        Take that replaced files could not be removed.

        Args:
            partition: Whose they are.
            others: Their bases.
            reason: Why.
        """
        self._record(partition).left = others
        self.failed(partition, reason)

    def ended(self, partition: Partition, task: Task, done: Done, saved: int) -> None:
        """
        Take what came of a cleaning.

        Args:
            partition: What was cleaned.
            task: What was asked for.
            done: What came of it.
            saved: Bytes that went.
        """
        self._job = None
        record, now = self._record(partition), self._broker.wall()
        start, config = partition.log.start_offset, partition.topic.config
        stay = config.compact_tombstone_ms
        record.clean = found = record.clean.after(done, task.tombstones, start, now, stay)
        record.saved += saved
        if done.sound and partition.log.undo_window is None:
            # Of what was clean before: who read it while it was there is done with it.
            end = min(task.dirty, done.until)
            partition.transactions.forget_cleaned(task.sources[0].base, end)
        stuck = done.until <= task.dirty < task.sources[-1].end
        record.failures = record.failures + 1 if stuck else 0
        record.not_before = now + self._pause(record) if stuck else 0
        record.wanted = record.wanted or (not stuck and done.until < task.sources[-1].end)
        partition.moved.add(partition)
        folder = self._broker.store.folder
        save = partial(_save, folder.disk, partition.log.path, found)
        self._broker.background.submit(save, lambda: None)
        self._log.info(
            "{partition}: cleaned up to offset {until}: {records} records went and {saved} bytes; "
            "{keys} keys, {memory} bytes of memory, {read} read, {written} written",
            partition=partition,
            saved=saved,
            **done._asdict(),
        )
        self._broker.scheduler.callLater(0, self.look)

    def failed(self, partition: Partition, reason: str) -> None:
        """
        Take that a cleaning ended before its time.

        Args:
            partition: What was to be cleaned.
            reason: Why; empty if that is nobody's fault.
        """
        self._job = None
        if reason:
            self._failed(partition, reason)
        self._broker.scheduler.callLater(0, self.look)

    def _failed(self, partition: Partition, reason: str) -> None:
        record = self._record(partition)
        record.failures += 1
        record.not_before = self._broker.wall() + self._pause(record)
        self._log.warn(
            "{partition} was not cleaned, and is tried again: {reason}",
            partition=partition,
            reason=reason,
        )

    def _pause(self, record: _Record) -> int:
        return int(_AGAIN_MS * 2 ** min(record.failures - 1, _MOST_DOUBLED))

    def damaged(self, partition: Partition, found: Damaged) -> None:
        """
        Tell of a file that is left alone, once.

        Args:
            partition: Where it is.
            found: The file.
        """
        told = self._record(partition).told
        if found.base not in told:
            told.add(found.base)
            self._log.error(
                "{partition}: the file that begins with offset {base} is damaged at byte "
                "{position}; it is not cleaned, and records without a value stay behind it",
                partition=partition,
                **found._asdict(),
            )


def _save(disk: Any, path: str, clean: Cleanliness) -> None:
    """Write down how far a log was cleaned; that it is not is no harm."""
    try:
        cleanliness.save(disk, path, clean)
    except (OSError, TinyMQError):
        return
