"""Opening, checkpointing and closing partitions: the domain's way to the data folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from twisted.logger import Logger

from tinymq.broker.dedup.dedup import Dedup
from tinymq.broker.dedup.kept import SEEN_CONFIG
from tinymq.broker.dedup.seen import Room
from tinymq.broker.delays.delays import DELAY_CONFIG
from tinymq.broker.delays.index import INDEX_FILE, Index
from tinymq.broker.ledger import LEDGER_CONFIG
from tinymq.broker.partition import Partition
from tinymq.broker.ports import Background
from tinymq.broker.producers import ProducerTable
from tinymq.broker.snapshots import load_producers, save_producers
from tinymq.broker.transactions.opened import Identity, identity_of
from tinymq.config import DEFAULT_CONFIG, ProducersConfig
from tinymq.errors import StorageError, TinyMQError
from tinymq.limits import Limits
from tinymq.storage.epochs import EpochFile
from tinymq.storage.facts import Gap, LogConfig
from tinymq.storage.folder import DataFolder
from tinymq.storage.log import Log
from tinymq.storage.memory import MemoryLog
from tinymq.wire.batch import TRANSACTIONAL, BatchHeader

if TYPE_CHECKING:
    from tinymq.meta.registry import Topic


#: Up to so many producers of a partition are stored with every checkpoint, more
#: when it began a new segment: packing them takes time.
OFTEN: Final = 100


class PartitionStore:
    """
    Partitions in a data folder.

    Args:
        folder: The data folder.
        limits: The limits in force.
        producers: How many producers are remembered, and for how long.
    """

    _log = Logger()

    def __init__(
        self,
        folder: DataFolder,
        limits: Limits,
        producers: ProducersConfig = DEFAULT_CONFIG.producers,
    ) -> None:
        self.folder = folder
        self._limits = limits
        self._producers = producers
        #: Segments of each log when its producers were last stored.
        self._stored: dict[Partition, int] = {}
        #: How many message ids all dedup windows may remember.
        self.room = Room(producers.dedup_ids)
        #: Views of what is not due yet, by whether they are for topics in memory.
        self._indexes: dict[bool, Index] = {}

    def open(self, topic: Topic, index: int) -> Partition:
        """
        Open a partition, recovering its log after an unclean stop.

        Args:
            topic: Its topic.
            index: Its number.

        Raises:
            StorageError: Its folder cannot be read.
        """
        producers = ProducerTable(
            self._limits.producer_window,
            self._producers.remembered,
            self._producers.forget_seconds * 1000,
        )
        if topic.config.storage == "memory":
            memory = MemoryLog(topic.config.memory_bytes)
            partition = Partition(topic, index, memory, None, self._limits, producers)
            if topic.config.dedup_ms is not None:
                partition.dedup = self._open_dedup(partition)
            return partition
        path = self.folder.partition_path(topic.id, index)
        seen: list[BatchHeader] = []
        log = Log.open(
            self.folder.files,
            path,
            LogConfig(segment_bytes=topic.config.segment_bytes),
            self.folder.checkpoint(path),
            seen.append,
        )
        try:
            epochs = self.folder.epoch_file(topic.id, index)
        except OSError as error:
            raise StorageError(f"the epochs beside {path} cannot be read: {error}") from error
        partition = Partition(topic, index, log, epochs, self._limits, producers)
        if log.end_offset:
            self._recall_producers(partition, log, epochs, seen)
        # Without a clean stop the end may have been cut: what is appended from
        # here on belongs to a new epoch.
        partition.epoch_due = epochs.current < 0 or not log.report.clean
        self._report(partition, log)
        if topic.config.dedup_ms is not None:
            partition.dedup = self._open_dedup(partition)
            partition.dedup.recover()
        return partition

    def _open_dedup(self, partition: Partition) -> Dedup:
        """Make the dedup window of a partition, with its log where there is one on the disk."""
        if partition.volatile:
            return Dedup(partition, self.room, None)
        path = self.folder.partition_path(*partition.key, "ids")
        log = Log.open(self.folder.files, path, SEEN_CONFIG, self.folder.checkpoint(path))
        self._report(partition, log)
        return Dedup(partition, self.room, log)

    def open_ledger(self, partition: Partition) -> Log:
        """
        Open the ledger log of a partition, recovering it after an unclean stop.

        Args:
            partition: One with a log on the disk.

        Raises:
            StorageError: Its folder cannot be read.
        """
        path = self.folder.partition_path(*partition.key, "ledger")
        log = Log.open(self.folder.files, path, LEDGER_CONFIG, self.folder.checkpoint(path))
        self._report(partition, log)
        return log

    def has_ledger(self, partition: Partition) -> bool:
        """
        Say whether a partition ever had channels, or groups that read it.

        Args:
            partition: Any.
        """
        path = self.folder.partition_path(*partition.key, "ledger")
        return not partition.volatile and self.folder.disk.exists(path)

    def has_delays(self, partition: Partition) -> bool:
        """
        Say whether a partition ever had messages that were not due yet.

        Args:
            partition: The partition.
        """
        path = self.folder.partition_path(*partition.key, "delay")
        return not partition.volatile and self.folder.disk.exists(path)

    def open_delays(self, partition: Partition) -> Log | MemoryLog:
        """
        Open the delay log of a partition, recovering it after an unclean stop.

        Args:
            partition: The partition.

        Raises:
            StorageError: Its folder cannot be read.
        """
        if partition.volatile:
            # Nothing of it may be dropped: what it holds is bounded by who fills it.
            return MemoryLog(1 << 62)
        path = self.folder.partition_path(*partition.key, "delay")
        log = Log.open(self.folder.files, path, DELAY_CONFIG, self.folder.checkpoint(path))
        self._report(partition, log)
        return log

    def open_index(self, background: Background, *, volatile: bool) -> Index:
        """
        Open the view of what is not due yet.

        Args:
            background: Where its pages are moved to their places.
            volatile: Whether it is for topics in memory.
        """
        if volatile not in self._indexes:
            file = None if volatile else Path(self.folder.path) / INDEX_FILE
            self._indexes[volatile] = Index.open(file, background)
        return self._indexes[volatile]

    def close_index(self) -> None:
        """Close the views of what is not due yet."""
        while self._indexes:
            self._indexes.popitem()[1].close()

    def _recall_producers(
        self, partition: Partition, log: Log, epochs: EpochFile, seen: list[BatchHeader]
    ) -> None:
        """Rebuild what is known of producers from the snapshot and the headers behind it."""
        known = load_producers(
            self.folder.disk,
            _home(log),
            partition.producers,
            log.end_offset,
            epochs,
            partition.mortal,
            partition.transactions,
        )
        if known >= log.end_offset:
            return
        behind = _side_by_side(seen)
        # Of a file that was cleaned the checkpoint says other bytes, and not of those behind it:
        # then it is read, and they are not.
        whole = behind and behind[-1].next_offset >= log.end_offset
        if whole and behind[0].base_offset <= known:
            headers: Iterable[BatchHeader] = (each for each in behind if each.base_offset >= known)
        else:
            headers = log.headers(known)  # purged ones too, as long as they lie there
        for header in headers:
            partition.remember(header)
        opened = partition.transactions.open
        gone = {each for each, (first, _) in opened.items() if _cleaned(log, each, first)}
        if gone:
            partition.transactions.drop(gone)

    def _report(self, partition: Partition, log: Log) -> None:
        report = log.report
        if partition.epochs is not None and partition.epochs.damaged:
            self._log.warn("{partition}: its list of epochs is damaged", partition=partition)
        if report.unsynced_bytes:
            self._log.warn(
                "{partition}: cut an unsynced end of {size} bytes, for a write was lost in it; "
                "it lies in .bad files, the log ends at {end}",
                partition=partition,
                size=report.unsynced_bytes,
                end=log.end_offset,
            )
        if report.truncated_bytes:
            self._log.warn(
                "{partition}: cut a torn tail of {size} bytes; the log ends at {end}",
                partition=partition,
                size=report.truncated_bytes,
                end=log.end_offset,
            )
        for gap in report.damaged:
            self._tell(partition, gap)
        # What no start looks at shows when somebody reads there.
        report.on_gap = partial(self._tell, partition)

    def _tell(self, partition: Partition, gap: Gap) -> None:
        self._log.error(
            "{partition}: offsets {start} to {end} are {reason}; later records are readable",
            partition=partition,
            start=gap.start,
            end=gap.end - 1,
            reason=gap.reason,
        )

    def configure(self, partition: Partition) -> None:
        """
        Let a partition's log follow its topic's settings.

        Args:
            partition: Its topic was altered.
        """
        config = partition.topic.config
        if isinstance(partition.log, MemoryLog):
            partition.log.max_bytes = config.memory_bytes
        else:
            partition.log.config = LogConfig(segment_bytes=config.segment_bytes)
        if config.dedup_ms is None:
            self._close_dedup(partition)
        elif partition.dedup is not None:
            partition.dedup.alter()
        else:
            partition.dedup = self._open_dedup(partition)
            partition.dedup.begin()

    def _close_dedup(self, partition: Partition) -> None:
        """Forget the window of a partition: its topic has none any more."""
        dedup, partition.dedup = partition.dedup, None
        if dedup is not None:
            dedup.seen.clear()
            if dedup.log is not None:
                self.folder.forget(dedup.log.path)
                dedup.log.close()

    def delete(self, topic: Topic, partitions: Iterable[Partition] = ()) -> None:
        """
        Take away the files of a topic, whose partitions are closed; `empty` frees the space.

        Args:
            topic: As it was.
            partitions: Those of it that were open.
        """
        for partition in partitions:
            self._stored.pop(partition, None)
            _close(partition)
            self._close_dedup(partition)
        self._take_away(topic.id, topic.name)

    def take_away_deleted(self, topic_ids: Iterable[bytes]) -> None:
        """
        Take away what a kill left of topics while they were deleted.

        Args:
            topic_ids: The ids of deleted topics.
        """
        for topic_id in topic_ids:
            self._take_away(topic_id, topic_id.hex())

    def _take_away(self, topic_id: bytes, name: str) -> None:
        try:
            self.folder.delete_topic(topic_id)
        except (OSError, TinyMQError) as error:
            # The next start tries again.
            self._log.error("files of {topic} stay for now: {error}", topic=name, error=error)

    def empty(self) -> list[str]:
        """
        Free the space of deleted topics; may run in another thread.

        Returns:
            The folders that are gone.
        """
        removed: list[str] = []
        with suppress(OSError, TinyMQError):
            removed.extend(self.folder.empty_deleted())
        return removed

    def opened(self, partitions: Iterable[Partition]) -> None:
        """
        Keep where the logs stand after recovery; all that it found is synced.

        Args:
            partitions: All of them.
        """
        points = {
            log.path: log.checkpoint()
            for each in partitions
            if each.failure is None
            for log in _logs(each)
            if log.offline is None
        }
        try:
            self.folder.save_checkpoint(points)
        except (OSError, TinyMQError) as error:
            # The one before still holds, it only says less.
            self._log.warn("no checkpoint was written: {error}", error=error)

    def note(self, partition: Partition) -> None:
        """
        Take where a partition stands on the disk into the next checkpoint.

        Args:
            partition: One with a log on the disk.
        """
        log = partition.log
        assert isinstance(log, Log), partition
        known = len(partition.producers) + len(partition.transactions.aborted)
        if known <= OFTEN or log.segment_count != self._stored.get(partition):
            self._store_producers(partition, log)
        for each in _logs(partition):
            if each.offline is None:
                self.folder.note(each.path, each.checkpoint())

    def store_producers(self, partitions: Iterable[Partition]) -> None:
        """
        Store what partitions know of their producers.

        Args:
            partitions: Those to store.
        """
        for partition in partitions:
            if isinstance(partition.log, Log):
                self._store_producers(partition, partition.log)

    def _store_producers(self, partition: Partition, log: Log) -> None:
        """Store what is synced, so that no power cut leaves the log behind it."""
        # That nobody is known is worth storing, too: else each start looks for them.
        if not log.written_offset:
            return
        try:
            save_producers(
                self.folder.disk,
                _home(log),
                partition.producers,
                log.synced_offset,
                partition.epoch,
                partition.mortal,
                partition.transactions,
            )
        except (OSError, TinyMQError) as error:
            # Nothing is lost: the next start reads more headers.
            self._log.warn(
                "producers of {partition} were not stored: {error}",
                partition=partition,
                error=error,
            )
        else:
            self._stored[partition] = log.segment_count

    def close(self, partitions: Iterable[Partition]) -> None:
        """
        Close everything after a sync, and note where a next start may go on.

        Args:
            partitions: All of them.
        """
        points = {}
        clean = True
        for partition in partitions:
            if partition.delays is not None:
                partition.delays.finish()
            if partition.dedup is not None:
                partition.dedup.secure()
        self.close_index()
        self.store_producers(partitions)
        try:
            self.folder.disk.syncfs(self.folder.path)
        except OSError as error:
            clean = False
            self._log.warn(
                "{data} could not be synced: {error}", data=self.folder.path, error=error
            )
        for partition in partitions:
            for log in _logs(partition):
                try:
                    points[log.path] = log.checkpoint()
                except TinyMQError as error:
                    clean = False
                    self._log.warn("{partition}: {error}", partition=partition, error=error)
            _close(partition)
        self.folder.close(clean=clean, checkpoints=points)


def _logs(partition: Partition) -> Iterator[Log]:
    """The logs of a partition that lie on the disk."""
    if isinstance(partition.log, Log):
        yield partition.log
    if partition.ledger is not None and isinstance(partition.ledger.log, Log):
        yield partition.ledger.log
    if partition.delays is not None and isinstance(partition.delays.log, Log):
        yield partition.delays.log
    if partition.dedup is not None and partition.dedup.log is not None:
        yield partition.dedup.log


def _close(partition: Partition) -> None:
    partition.log.close()
    if partition.ledger is not None:
        partition.ledger.log.close()
    if partition.delays is not None:
        partition.delays.log.close()
    if partition.dedup is not None and partition.dedup.log is not None:
        partition.dedup.log.close()


def _home(log: Log) -> str:
    """The partition's folder, in which its logs lie."""
    return _parent(log.path)


def _parent(path: str) -> str:
    return str(Path(path).parent)


def _cleaned(log: Log, identity: Identity, first: int) -> bool:
    """
    Say whether a transaction that was open by the snapshot was decided, and then cleaned.

    Compaction leaves what is open alone, and takes the end of one away with the rest.
    """
    header = next(log.headers(first), None)
    if header is None or not header.base_offset <= first < header.next_offset:
        return False  # it is damaged, or was removed
    ours = header.attributes & TRANSACTIONAL and identity_of(header) == identity
    return not ours


def _side_by_side(seen: list[BatchHeader]) -> list[BatchHeader]:
    """Leave out what was read of earlier files, if files between were not read."""
    at = len(seen)
    while at > 1 and seen[at - 2].next_offset == seen[at - 1].base_offset:
        at -= 1
    return seen[max(0, at - 1) :]
