"""
The commit group: one write and one sync for everybody who is waiting.

A turn of the reactor stages batches; its end writes each partition once. For
partitions that promise the disk, one sync then covers every file written since
the last one, and while it runs the next group gathers in memory.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.logger import Logger

from tinymq.broker.partition import Partition
from tinymq.broker.ports import Scheduler, Timer
from tinymq.errors import PartitionOffline
from tinymq.storage.sync import Syncer, SyncTicket


class Committer:
    """
    Writes and syncs partitions in groups.

    Args:
        scheduler: Gives the end of the reactor's turn.
        syncer: Brings files to the disk.
    """

    _log = Logger()

    def __init__(self, scheduler: Scheduler, syncer: Syncer) -> None:
        self._scheduler = scheduler
        self._syncer = syncer
        self._staged: dict[Partition, None] = {}
        self._gathering: dict[Partition, None] = {}
        self._unsynced: dict[Partition, None] = {}
        self._turn: Timer | None = None
        self._syncing = False
        self._interval: Timer | None = None
        self._when_idle: list[Callable[[], None]] = []

    def staged(self, partition: Partition) -> None:
        """
        Say that a partition has something to be written.

        Args:
            partition: It is written at the end of this turn, or in the next
                group while a sync runs.
        """
        if partition.synced_policy:
            self._gathering[partition] = None
            if self._syncing:
                return
        else:
            self._staged[partition] = None
        if self._turn is None:
            self._turn = self._scheduler.callLater(0, self._end_of_turn)

    def write_staged(self) -> None:
        """
        Write now what does not wait for a sync.

        A connection calls it when it has handled what it read: one write for
        all that came together, and no turn of the reactor before the answer.
        """
        if not self._staged:
            return
        staged, self._staged = self._staged, {}
        for partition in staged:
            partition.write()
            if partition.topic.config.sync == "interval":
                self._sync_later(partition)

    def _end_of_turn(self) -> None:
        self._turn = None
        self.write_staged()
        if not self._syncing:
            self._start_group()
        self._tell_idle()

    def _start_group(self) -> None:
        group, self._gathering = self._gathering, {}
        tickets: dict[SyncTicket, Partition] = {}
        for partition in group:
            partition.write()
            self._begin(partition, tickets)
        self._sync(tickets)

    def _begin(self, partition: Partition, tickets: dict[SyncTicket, Partition]) -> None:
        ticket = partition.log.begin_sync()
        if ticket is not None:
            tickets[ticket] = partition

    def _sync(self, tickets: dict[SyncTicket, Partition]) -> None:
        if not tickets:
            return
        self._syncing = True

        def synced(results: dict[SyncTicket, OSError | None]) -> None:
            self._syncing = False
            for ticket, partition in tickets.items():
                self._end(partition, ticket, results.get(ticket))
            # What gathered meanwhile does not wait for another turn.
            if self._gathering:
                self._start_group()
            self._tell_idle()

        self._syncer.sync(tuple(tickets), synced)

    def _end(self, partition: Partition, ticket: SyncTicket, error: OSError | None) -> None:
        partition.log.end_sync(ticket, error)
        if error is None:
            partition.advance()
            return
        self._log.critical(
            "{partition} is offline: its files could not be synced: {error}",
            partition=partition,
            error=error,
        )
        partition.fail_waiting(
            PartitionOffline(
                f"{partition.topic.name}/{partition.index} is offline: sync failed: {error}; "
                "check the disk and restart the broker"
            )
        )

    def _sync_later(self, partition: Partition) -> None:
        self._unsynced[partition] = None
        if self._interval is None:
            delay = partition.topic.config.sync_interval_ms / 1000
            self._interval = self._scheduler.callLater(delay, self._sync_interval)

    def _sync_interval(self) -> None:
        self._interval = None
        if self._syncing:
            self._interval = self._scheduler.callLater(0.01, self._sync_interval)
            return
        self.sync_all(list(self._unsynced))
        self._unsynced.clear()

    def sync_all(self, partitions: list[Partition]) -> None:
        """
        Write and sync partitions whatever their policy, unless a sync is running.

        Args:
            partitions: Those to bring to the disk.
        """
        tickets: dict[SyncTicket, Partition] = {}
        for partition in partitions:
            partition.write()
            self._begin(partition, tickets)
        self._sync(tickets)

    @property
    def idle(self) -> bool:
        """Whether nothing is on its way to the disk."""
        return not (self._syncing or self._staged or self._gathering)

    def when_idle(self, call: Callable[[], None]) -> None:
        """
        Call something as soon as nothing is on its way to the disk.

        Args:
            call: Called once, maybe at once.
        """
        self._when_idle.append(call)
        self._tell_idle()

    def _tell_idle(self) -> None:
        if self.idle and self._when_idle:
            calls, self._when_idle = self._when_idle, []
            for call in calls:
                call()

    def stop(self) -> None:
        """Arm no more timers."""
        for timer in (self._turn, self._interval):
            if timer is not None and timer.active():
                timer.cancel()
        self._turn = self._interval = None
