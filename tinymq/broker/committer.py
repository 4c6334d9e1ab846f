"""
The commit group: one write and one sync for everybody who is waiting.

A turn of the reactor stages batches; its end writes each partition once. For
partitions that promise the disk, one sync then covers every file written since
the last one, and while it runs the next group gathers in memory. Where few logs
are busy a second group goes beside the first: what was published does not wait
until a ledger is synced. No log is in two groups at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from twisted.logger import Logger

from tinymq.broker.delays.delays import Delays
from tinymq.broker.ledger import Ledger
from tinymq.broker.partition import Partition
from tinymq.broker.ports import Scheduler, Timer
from tinymq.storage.sync import Syncer, SyncTicket

#: Seconds of writing before others have their turn.
TURN_SECONDS: Final = 0.05
#: Seconds by which a timer may fire early.
_TICK: Final = 0.001
#: Groups that are synced at a time,
_GROUPS: Final = 2
#: and logs in them; more are one group, for its one sync costs less than two.
_BESIDE: Final = 4

#: What is written and synced.
Written: TypeAlias = Partition | Ledger | Delays


class _Group:
    """
    What is being synced together.

    Attributes:
        tickets: Each with what was written.
        after: Called when it has ended.
    """

    __slots__ = ("after", "tickets")

    def __init__(self, tickets: dict[SyncTicket, Written]) -> None:
        self.tickets = tickets
        self.after: list[Callable[[], None]] = []


class Committer:
    """
    Writes and syncs partitions in groups.

    Args:
        scheduler: Gives the end of the reactor's turn.
        syncer: Brings files to the disk.

    Attributes:
        begun: Called before something is written at the end of a turn, or those hear who waited
            for a sync.
        ended: Called after it.
    """

    _log = Logger()

    def __init__(self, scheduler: Scheduler, syncer: Syncer) -> None:
        self._scheduler = scheduler
        self._syncer = syncer
        self._staged: dict[Written, None] = {}
        self._gathering: dict[Written, None] = {}
        #: When those are to be synced whose policy is to do it now and then.
        self._due: dict[Written, float] = {}
        self.begun: Callable[[], None] = lambda: None
        self.ended: Callable[[], None] = lambda: None
        self._turn: Timer | None = None
        self._held = False
        #: What is being synced, and in which groups.
        self._syncing: dict[Written, None] = {}
        self._groups: list[_Group] = []
        self._interval: Timer | None = None
        self._interval_at = 0.0
        self._when_idle: list[Callable[[], None]] = []

    def staged(self, partition: Written) -> None:
        """
        Say that a partition, or its ledger, has something to be written.

        Args:
            partition: It is written at the end of this turn, or in the next
                group while a sync runs.
        """
        if partition.synced_policy:
            self._gathering[partition] = None
        else:
            self._staged[partition] = None
        if not self._held:
            self._arm_turn()

    def _arm_turn(self) -> None:
        """See to it that the turn has an end, if there is anything for it to do."""
        if self._turn is None and (self._staged or self._may_start):
            self._turn = self._scheduler.callLater(0, self._end_of_turn)

    def hold(self) -> None:
        """Wait with what is staged for `write_staged`, which is about to be called."""
        self._held = True

    def write_staged(self) -> None:
        """
        Write now what does not wait for a sync.

        A connection calls it when it has handled what it read: one write for
        all that came together, and no turn of the reactor before the answer.
        """
        self._held = False
        if self._staged:
            self._write()
        self._arm_turn()

    def _write(self) -> None:
        staged, self._staged = self._staged, {}
        until = self._scheduler.seconds() + TURN_SECONDS
        for partition in staged:
            if self._scheduler.seconds() > until:
                self._staged[partition] = None
                continue
            partition.write()
            if partition.synced_policy:  # since its topic was altered
                self._gathering[partition] = None
            elif partition.topic.config.sync == "interval":
                self._sync_later(partition)

    def end_turn(self) -> None:
        """Write what is staged, and begin to sync; a turn of the reactor ends."""
        if self._turn is not None:
            self._turn.cancel()
        self._end_of_turn()

    def _end_of_turn(self) -> None:
        self._turn = None
        self.begun()
        if self._staged:
            self._write()
        self._start_group()
        self._arm_turn()
        self._tell_idle()
        self.ended()

    @property
    def _may_start(self) -> bool:
        """Whether a group can be synced now."""
        if not (self._gathering and self._syncing):
            return bool(self._gathering)
        fresh = sum(each not in self._syncing for each in self._gathering)
        room = len(self._groups) < _GROUPS and len(self._syncing) + fresh <= _BESIDE
        return room and fresh > 0

    def _start_group(self) -> None:
        if not self._may_start:
            return
        group = [each for each in self._gathering if each not in self._syncing]
        for partition in group:
            del self._gathering[partition]
        # Whoever is told something meanwhile may have more to be written.
        self._syncing.update(dict.fromkeys(group))
        one = _Group(self._written(group))
        if one.tickets:
            self._groups.append(one)
            self._syncer.sync(tuple(one.tickets), lambda results: self._synced(one, results))

    def _written(self, group: list[Written]) -> dict[SyncTicket, Written]:
        """Write a group, and return what of it is to be synced."""
        tickets: dict[SyncTicket, Written] = {}
        until = self._scheduler.seconds() + TURN_SECONDS
        for partition in group:
            if tickets and self._scheduler.seconds() > until:
                # The first write of a log makes files, and each of them waits for the disk.
                del self._syncing[partition]
                self._gathering[partition] = None
                continue
            self._due.pop(partition, None)
            partition.write()
            ticket = partition.log.begin_sync() if partition.failure is None else None
            if ticket is not None:
                tickets[ticket] = partition
            else:
                del self._syncing[partition]
                partition.advance()  # another sync may have covered it
        return tickets

    def _synced(self, group: _Group, results: Mapping[SyncTicket, OSError | None]) -> None:
        self.begun()
        self._groups.remove(group)
        for partition in group.tickets.values():
            del self._syncing[partition]
        for ticket, partition in group.tickets.items():
            self._end(partition, ticket, results.get(ticket))
        for call in group.after:
            call()
        # What gathered meanwhile does not wait for another turn.
        self._start_group()
        self._arm_turn()
        self._tell_idle()
        self.ended()

    def _end(self, partition: Written, ticket: SyncTicket, error: OSError | None) -> None:
        partition.log.end_sync(ticket, error)
        if error is not None and partition.closed is None:
            self._log.critical(
                "{partition} is offline: its files could not be synced: {error}; "
                "check the disk and restart the broker",
                partition=partition,
                error=error,
            )
        partition.advance()

    # --- syncing now and then ---------------------------------------------------

    def _sync_later(self, partition: Written) -> None:
        if partition not in self._due:
            delay = partition.topic.config.sync_interval_ms / 1000
            due = self._due[partition] = self._scheduler.seconds() + delay
            self._arm(due)

    def _arm(self, due: float) -> None:
        """See to it that the timer fires at a time, or before."""
        if self._interval is not None:
            if self._interval_at <= due:
                return
            self._interval.cancel()
        self._interval_at = due
        delay = max(0.0, due - self._scheduler.seconds())
        self._interval = self._scheduler.callLater(delay, self._sync_due)

    def _sync_due(self) -> None:
        self._interval = None
        now = self._scheduler.seconds() + _TICK
        self._sync(partition for partition, due in tuple(self._due.items()) if due <= now)
        later = min((due for due in self._due.values() if due > now), default=None)
        if later is not None:
            self._arm(later)

    def sync_all(self, partitions: list[Partition]) -> None:
        """
        Write and sync partitions whatever their policy; now, or when the sync under way ends.

        Args:
            partitions: Those to bring to the disk, with the logs beside their data.
        """
        ledgers = [each.ledger for each in partitions if each.ledger is not None]
        delays = [each.delays for each in partitions if each.delays is not None]
        self._sync((*partitions, *ledgers, *delays))

    def _sync(self, written: Iterable[Written]) -> None:
        self._gathering.update(dict.fromkeys(written))
        self._start_group()
        self._arm_turn()

    # --- the end ------------------------------------------------------------------

    def forget(self, partition: Written) -> None:
        """
        Leave a partition alone from now on.

        Args:
            partition: It was closed.
        """
        for waiting in (self._staged, self._gathering, self._due):
            waiting.pop(partition, None)

    def after_sync(self, call: Callable[[], None]) -> None:
        """
        Call something when no sync is at work on what is there now.

        Args:
            call: Called once, maybe at once.
        """
        left = len(self._groups)
        if not left:
            call()

        def ended() -> None:
            nonlocal left
            left -= 1
            if not left:
                call()

        for group in self._groups:
            group.after.append(ended)

    @property
    def idle(self) -> bool:
        """Whether nothing is on its way to the disk."""
        return not (self._groups or self._staged or self._gathering)

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
