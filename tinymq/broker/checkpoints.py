"""
Running checkpoints: what a start after a kill or a power cut need not look at.

A checkpoint is made in steps that never hold the reactor for long, however many
partitions there are: what no policy synced is synced, the partitions that changed
are noted, with what they know of their producers, and the file is written, synced
and renamed. Only what was synced before is noted, so it may be late but not wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from weakref import WeakKeyDictionary

from twisted.logger import Logger

from tinymq.broker.committer import Committer
from tinymq.broker.partition import Partition
from tinymq.broker.partitions import PartitionStore
from tinymq.broker.ports import Scheduler, Timer
from tinymq.errors import TinyMQError
from tinymq.storage.log import Log
from tinymq.storage.memory import MemoryLog
from tinymq.storage.sync import Syncer, SyncTicket

#: Seconds that the reactor is held at a time.
SLICE_SECONDS: Final = 0.002
#: Partitions whose sync is begun at once.
SYNC_GROUP: Final = 256


class Checkpoints:
    """
    Makes checkpoints, one at a time.

    Args:
        scheduler: Gives the turns of the reactor.
        committer: Syncs what no policy does.
        syncer: Brings the checkpoint itself to the disk.
        store: Notes partitions.
    """

    _log = Logger()

    def __init__(
        self, scheduler: Scheduler, committer: Committer, syncer: Syncer, store: PartitionStore
    ) -> None:
        self._scheduler = scheduler
        self._committer = committer
        self._syncer = syncer
        self._store = store
        #: What was noted of each partition: where its log starts, is synced, its files.
        self._noted: WeakKeyDictionary[Partition, tuple[int, ...]] = WeakKeyDictionary()
        #: The steps that are left; each tells whether a sync must end before the next.
        self._steps: Iterator[bool] = iter(())
        self._at_work = False
        self._timer: Timer | None = None

    def begin(self, partitions: list[Partition]) -> None:
        """
        Begin one, unless the one before is still on its way.

        Args:
            partitions: All of them.
        """
        if not self._at_work:
            self._at_work = True
            self._steps = self._work(partitions)
            self._go_on()

    def stop(self) -> None:
        """Leave what is on its way undone."""
        self._steps = iter(())
        if self._timer is not None and self._timer.active():
            self._timer.cancel()

    def _go_on(self) -> None:
        until = self._scheduler.seconds() + SLICE_SECONDS
        try:
            for wait in self._steps:
                if wait:
                    self._committer.after_sync(self._next_turn)
                    return
                if self._scheduler.seconds() >= until:
                    self._next_turn()
                    return
        except (OSError, TinyMQError) as error:
            self._failed(error)
        self._at_work = False

    def _next_turn(self) -> None:
        self._timer = self._scheduler.callLater(0, self._go_on)

    def _failed(self, error: Exception) -> None:
        # Nothing is lost: the next start reads more.
        self._log.warn("no checkpoint was written: {error}", error=error)

    def _work(self, partitions: list[Partition]) -> Iterator[bool]:
        unsynced: list[Partition] = []
        for partition in partitions:
            if partition.failure is None and partition.unsynced:
                unsynced.append(partition)
            if len(unsynced) == SYNC_GROUP:
                self._committer.sync_all(unsynced)
                unsynced = []
                yield True
            yield False
        if unsynced:
            self._committer.sync_all(unsynced)
            yield True
        for partition in partitions:
            self._note(partition)
            yield False
        ticket = self._store.folder.begin_checkpoint()
        if ticket is not None:
            self._syncer.sync((ticket,), self._synced)

    def _note(self, partition: Partition) -> None:
        log = partition.log
        if not isinstance(log, Log) or partition.failure is not None:
            return
        state = _state(log)
        if partition.ledger is not None:
            state += _state(partition.ledger.log)
        if partition.delays is not None:
            partition.delays.note()
            state += _state(partition.delays.log)
        if partition.dedup is not None and partition.dedup.log is not None:
            partition.dedup.note()
            state += _state(partition.dedup.log)
        if self._noted.get(partition) != state:
            self._store.note(partition)
            self._noted[partition] = state

    def _synced(self, results: dict[SyncTicket, OSError | None]) -> None:
        for ticket, error in results.items():
            try:
                self._store.folder.end_checkpoint(ticket, error)
            except OSError as failure:
                self._failed(failure)


def _state(log: Log | MemoryLog) -> tuple[int, ...]:
    return log.start_offset, log.synced_offset, log.segment_count, log.size_bytes
