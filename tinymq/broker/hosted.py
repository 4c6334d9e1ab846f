"""
All channels of one partition on this broker: their queue, their ledger, and what they send.

Where consumer groups are in the partition stands in the same ledger.

In a turn of the reactor partitions are marked; at its end each gives out what its
consumers take, in one go, and hands its ledger to the committer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from random import random
from typing import TYPE_CHECKING, Final

from twisted.logger import Logger
from typing_extensions import override

from tinymq.broker.burying import Burying
from tinymq.broker.channel.ledger import Journal, replay, snapshot
from tinymq.broker.channel.places import Places
from tinymq.broker.channel.queue import LedgerRecord
from tinymq.broker.channel.surviving import cut_back
from tinymq.broker.expiry import Expiry
from tinymq.broker.giving import Giving
from tinymq.broker.glimpse import Aging
from tinymq.broker.groups.figures import GroupFigures
from tinymq.broker.groups.positions import GROUPS_KEY, Positions
from tinymq.broker.holding import Holding
from tinymq.broker.ledger import History, Ledger, records_in
from tinymq.broker.partition import Partition
from tinymq.broker.ports import Scheduler, Timer
from tinymq.broker.routing.router import Router
from tinymq.broker.routing.routes import ROUTES_KEY
from tinymq.broker.stragglers import KEPT_KEY, Stragglers
from tinymq.broker.subscription import Subscription
from tinymq.broker.takers import Host, Takers, put_name
from tinymq.broker.window import Window
from tinymq.errors import CorruptBatch, UnknownTopicId, WireError
from tinymq.meta.registry import group_mark, mark_of
from tinymq.wire.messages import start_time

if TYPE_CHECKING:
    from tinymq.meta.registry import ChannelInfo
    from tinymq.storage.log import Log

#: At the end of the key of a channel that goes with its last consumer.
_TEMPORARY: Final = b"~"


class Hosted(Takers):
    """
    The channels of one partition.

    Args:
        host: All channels of this broker.
        partition: The partition.
        log: Its ledger log; None for a topic in memory.

    Attributes:
        infos: What the MetaServer says of each.
        positions: How far consumer groups are.
        strangers: Marks of groups among them that the MetaServer neither knows nor has deleted:
            it may have been restored from a backup.
    """

    _log = Logger()

    def __init__(self, host: Host, partition: Partition, log: Log | None) -> None:
        super().__init__(host, partition)
        self.infos: dict[str, ChannelInfo] = {}
        self.positions = Positions()
        self.strangers: set[str] = set()
        self.group_figures = GroupFigures(self)
        storage = host.broker.config.storage
        history = History(storage.history_seconds * 1000, storage.history_bytes)
        self.ledger = Ledger(partition, log, self._records, self._snapshots, host.now, history)
        # Where groups are tells nothing of single messages, and there may be very many commits.
        self.ledger.has_lives = lambda: bool(self.queue.channels)
        self.window = Window(partition)
        self.aging = Aging(partition)
        self._stored = log
        #: Channels of the ledger that the MetaServer neither knows nor has deleted, by their
        #: keys there: it may have been restored from a backup. They come back with their names.
        self._kept: dict[bytes, Places] = {}
        self._start = 0
        self._timer: Timer | None = None
        self._timer_at = 0
        #: When something was given out last; who waited longer comes first.
        self.gave_at = 0
        self._giving = Giving(host.broker, self)
        self.burying = Burying(host.broker, self)
        self.stragglers = Stragglers(host.broker, self)
        self.window.kept = self.stragglers.kept
        self.holding = Holding(host.broker, self)
        #: Copies what is published to other topics, where this one is an exchange.
        self.router: Router | None = None
        self.expiry = Expiry(host.broker, self)
        partition.ledger = self.ledger
        partition.watchers.add(self._moved)

    @override
    def __repr__(self) -> str:
        return f"<Channels of {self.partition.topic.name}/{self.partition.index}>"

    @override
    def mark(self) -> None:
        self._host.mark(self)

    def _moved(self) -> None:
        """Let it have its turn if somebody waits for what is published; groups ask for it."""
        if self.queue.channels or self.router is not None:
            self._host.mark(self)
        elif self.positions.known:
            self._host.pacing.moved((self,))

    def clock(self) -> int:
        """Tell the channels' time."""
        return self._host.now()

    # --- which channels there are ------------------------------------------------

    def recover(self, infos: Mapping[str, ChannelInfo]) -> None:
        """
        Take over from the ledger what channels did before this start.

        Args:
            infos: The channels that there are.
        """
        if self._stored is None:
            return
        end = self.partition.log.end_offset
        wanted = {_key(info): name for name, info in infos.items()}
        found = self._replayed(self._stored, wanted)
        for key, places in found.items():
            name = wanted.get(key)
            if cut_back(places, end):
                self.ledger.behind = True
                self._log.warn(
                    "{hosted}: channel {name} was ahead of the log, which was cut to {end}",
                    hosted=self,
                    name=key.decode(),
                    end=end,
                )
            if name is None:
                self._kept[key] = places
                self._log.warn(
                    "{hosted}: nobody knows the channel {key} of the ledger; it is kept",
                    hosted=self,
                    key=key.decode(),
                )
            else:
                self._open(infos[name], places)
        cut = self._recover_groups(end)
        if (self.router is not None and self.router.recovered(end)) or cut:
            # Other records will have these offsets: nobody may read of the old ones again.
            self.ledger.behind = True
            self.ledger.write_through()

    def _recover_groups(self, end: int) -> bool:
        """Forget groups that were deleted, and say whether others were beyond the end."""
        self.strangers = self.positions.marks()
        self.follow_groups(self.strangers)
        cut = self.positions.cut_back(end)
        for mark in cut:
            self._log.warn(
                "{hosted}: group {group} was ahead of the log, which was cut to {end}",
                hosted=self,
                group=mark.rpartition("@")[0],
                end=end,
            )
        for mark in sorted(self.strangers):
            self._log.warn(
                "{hosted}: nobody knows the group {group} of the ledger; its position is kept",
                hosted=self,
                group=mark,
            )
        return bool(cut)

    def follow_groups(self, marks: Iterable[str]) -> None:
        """
        Have the groups that the MetaServer has.

        Args:
            marks: Those that may have come or gone.
        """
        registry = self._host.broker.meta.registry
        for mark in [*marks]:
            if not self.positions.knows(mark):
                self.strangers.discard(mark)
                continue
            info = registry.groups.get(mark.rpartition("@")[0])
            if info is not None and info.mark == mark:
                self.strangers.discard(mark)
            elif group_mark(mark) in registry.deleted:
                self.strangers.discard(mark)
                self.positions.forget(mark)
                self.mark()
            elif info is not None:
                # Nobody deleted it: the MetaServer lost it, and somebody made it anew.
                self.strangers.discard(mark)
                self.positions.rename(mark, info.mark)
                self._log.info("{hosted}: group {group} is back", hosted=self, group=info.name)
                self.mark()
            else:
                self.strangers.add(mark)

    def _replayed(self, log: Log, wanted: Mapping[bytes, str]) -> dict[bytes, Places]:
        """Read the ledger, and return the channels in it by their keys."""
        found: dict[bytes, Places] = {}
        lost = 0
        for key, value in records_in(log):
            if key == KEPT_KEY:
                self.stragglers.restore(value)
                continue
            if key == ROUTES_KEY:
                self._routed().restore(value)
                continue
            if key == GROUPS_KEY:
                lost += self._restored(value)
                continue
            if key not in wanted and self._is_over(key):
                continue
            try:
                found[key] = replay(found.get(key) or Places(), [value])
            except CorruptBatch:
                lost += 1
        if lost:
            self._log.error(
                "{hosted}: {lost} records of the ledger do not fit; messages may come again",
                hosted=self,
                lost=lost,
            )
        return found

    def _restored(self, value: bytes) -> int:
        """Take over what a record says of groups, and return how many could not be read."""
        try:
            self.positions.restore(value)
        except CorruptBatch:
            return 1
        return 0

    def _routed(self) -> Router:
        """Return the router, a new one if there is none."""
        if self.router is None:
            self.router = Router(self._host.broker, self)
        return self.router

    def _open(self, info: ChannelInfo, places: Places) -> None:
        """Let a channel go on from where it was."""
        one = self.queue.open(info.name, info.policy, places)
        now = self._host.now()
        one.channel.custody.restarted(now, self._grace_ms)
        one.note(now, self.partition.log.end_offset)
        self.infos[info.name] = info

    def _is_over(self, key: bytes) -> bool:
        """Say whether a channel of the ledger was deleted, or was temporary."""
        if key.endswith(_TEMPORARY):
            return True
        name, _, created = key.decode().rpartition("@")
        if not created.isdigit():
            return False
        mark = mark_of(self.partition.topic.id, name, int(created))
        return mark in self._host.broker.meta.registry.deleted

    def follow(self, infos: Mapping[str, ChannelInfo]) -> list[Subscription]:
        """
        Make, alter and forget channels.

        Args:
            infos: The channels that there are.

        Returns:
            The subscriptions whose channel is gone.
        """
        gone: list[Subscription] = []
        for name, old in tuple(self.infos.items()):
            new = infos.get(name)
            if new is None or new.created_ms != old.created_ms:
                one = self.queue.channels[name]
                gone += self.close_channel(name)
                if new is not None and not self._is_over(_key(old)):
                    # Nobody deleted it: the MetaServer lost it, and somebody made it anew.
                    self._kept[_key(old)] = one.channel.places
        for name, info in infos.items():
            old_info = self.infos.get(name)
            if old_info is None:
                self._make(info)
            elif info.policy != old_info.policy:
                one = self.queue.channels[name]
                one.steering.alter(_given(info), self._host.now())
            self.infos[name] = info
        self._pause(self._host.now())
        exchange = self._host.broker.meta.registry.exchanges.get(self.partition.topic.id)
        if exchange is not None or self.router is not None:
            self._routed().follow(exchange)
        self.mark()
        return gone

    @property
    def unknown(self) -> list[tuple[str, Places]]:
        """The channels of the ledger that the MetaServer may know again, and their states."""
        for each in self._kept.values():
            if each.undo is not None and each.undo.until <= self._host.now():
                each.undo = None  # nobody else looks after them
        return [(key.decode().rpartition("@")[0], each) for key, each in self._kept.items()]

    def _pause(self, now: int) -> None:
        """Give nothing out where the MetaServer says so; some pauses end by themselves."""
        for name, info in self.infos.items():
            self.queue.channels[name].steering.pause(info.paused_at(now), now)

    def _make(self, info: ChannelInfo) -> None:
        kept = [key for key in self._kept if key.decode().rpartition("@")[0] == info.name]
        if kept:
            newest = max(kept, key=lambda key: int(key.decode().rpartition("@")[2]))
            self._open(info, self._kept[newest])
            for key in kept:
                del self._kept[key]
            self.ledger.behind = True  # it has another key by now
            self._start = -1  # it did not hear what went meanwhile
            self._log.info("{hosted}: channel {name} is back", hosted=self, name=info.name)
            return
        start = info.start
        offset = start if isinstance(start, int) else self.partition.offset_at(start_time(start))[0]
        low, high = self.partition.log.start_offset, self.partition.stable_offset
        now = self._host.now()
        self.queue.make(info.name, info.policy, max(low, min(offset, high)), now).note(now, high)
        self.expiry.made(info.name, now)

    def close_channel(self, name: str) -> list[Subscription]:
        """
        Forget a channel, with those who take its messages.

        Args:
            name: Its name.
        """
        gone = self._of(name)
        one = self.queue.channels.get(name)
        for subscription in gone:
            if one is not None:
                self._tell_all(one, subscription)
            self._forget(subscription)
        self.queue.close(name)
        self.aging.forget(name)
        self.expiry.forget(name)
        self.infos.pop(name, None)
        # What the ledger still says of it must not outlive the memory of its deletion.
        self.ledger.behind = True
        return gone

    def join(self, subscription: Subscription) -> list[tuple[int, int]]:
        """
        Let a subscription take messages.

        Args:
            subscription: Of a channel that is here.

        Returns:
            What it still holds: leases and bits.
        """
        one = self.queue.channels[subscription.channel]
        self.subscriptions[subscription.name] = subscription
        subscription.hosted[self.index] = self
        self.mark()
        now = self._host.now()
        put_name(one.channel.journal, subscription, now)
        return one.join(subscription.consumer, now)

    def stop(self) -> None:
        """Do nothing by the clock any more."""
        self.burying.stop()
        if self.router is not None:
            self.router.stop()
        self.expiry.stop()
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None

    def close(self) -> None:
        """Let go of everything: the partition is gone."""
        self.stop()
        for name in tuple(self.queue.channels):
            self.close_channel(name)
        self.partition.watchers.discard(self._moved)
        topic = self.partition.topic.name
        self.ledger.close(UnknownTopicId(f"topic {topic} was deleted"))

    # --- its turn --------------------------------------------------------------------

    def turn(self) -> None:
        """Give out what consumers take, and write down what happened."""
        if self.partition.closed is not None:
            return
        now = self._host.now()
        self.holding.turn(now)
        self.trim(now)
        self._pause(now)
        working = self.ledger.failure is None and not self._host.resting
        if working:
            self.expiry.turn(now)
            self._giving.turn(now)
        self.burying.turn(now)
        if self.router is not None and not self._host.resting:
            self.router.turn(now)
        self.written()
        self._arm(now, self.expiry.next_time() if working else None)

    def written(self) -> None:
        """Hand the ledger to the committer."""
        self._host.broker.committer.staged(self.ledger)

    def trim(self, now: int) -> None:
        """
        Settle what retention or a purge took away.

        Args:
            now: The time.
        """
        start = self.partition.log.start_offset
        if start > self._start:
            self._start = start
            for one in self.queue.channels.values():
                self.take_away(one, one.steering.trim(start, now, self.stragglers.offsets))

    def purged(self, below: int) -> None:
        """
        Settle what people took away, even if it was kept for a channel.

        Args:
            below: All below this offset is gone.
        """
        self._start = -1
        if self.stragglers.forget(below):
            # No file says that these are gone: a crash must not bring them back.
            self.trim(self._host.now())
            self.ledger.write_through()
        self.mark()

    def note(self) -> int:
        """Look how far each channel and each group is, and return how many there are."""
        now, high = self._host.now(), self.partition.stable_offset
        for one in self.queue.channels.values():
            one.note(now, high)
        if self.router is not None:
            self.router.note(now)
        return len(self.queue.channels) + self.group_figures.note(now)

    # --- time --------------------------------------------------------------------------

    def _arm(self, now: int, expiry: int | None) -> None:
        """See to it that what time does is done in time."""
        pauses = (info.pause.until_ms for info in self.infos.values() if info.pause is not None)
        times = [
            self.queue.next_time(),
            expiry,
            *(until for until in pauses if until and until > now),
        ]
        due = min((time for time in times if time is not None), default=None)
        if due is None or (self._timer is not None and self._timer_at <= due):
            return
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer_at = due
        delay = max(0, due - now) / 1000
        self._timer = self._host.broker.scheduler.callLater(delay, self._due)

    def _due(self) -> None:
        self._timer = None
        for due in self.queue.expire(self._host.now(), random()):  # noqa: S311 - jitter
            self.losing(due.lost)
        self.mark()

    # --- the ledger ----------------------------------------------------------------------

    def _records(self) -> list[LedgerRecord]:
        found = self._keyed(self.queue.records())
        if self.router is not None:
            found += self.router.records()
        found += ((GROUPS_KEY, value) for value in self.positions.drain())
        return found + self.stragglers.records(self._host.now())

    def _snapshots(self) -> list[LedgerRecord]:
        now, journal = self._host.now(), Journal()
        found = self.queue.snapshots(now)
        for subscription in self.subscriptions.values():
            # What lies before may be forgotten, and with it who is who.
            put_name(journal, subscription, now)
            found += ((subscription.channel.encode(), each) for each in journal.drain())
        kept = [(key, snapshot(places, now)) for key, places in self._kept.items()]
        if self.router is not None:
            kept += self.router.snapshot()
        kept += ((GROUPS_KEY, value) for value in self.positions.snapshot())
        return self._keyed(found) + kept + self.stragglers.snapshot(now)

    def _keyed(self, records: list[LedgerRecord]) -> list[LedgerRecord]:
        """Name channels so that one made anew is not taken for the one before."""
        keys = {name.encode(): _key(info) for name, info in self.infos.items()}
        return [(keys[name], value) for name, value in records if name in keys]

    def settled(self, tell: Callable[[WireError | None], None]) -> None:
        """
        Call something when all that happened here is as safe as the topic promises.

        Args:
            tell: Called once, later.
        """
        self.ledger.when_safe(tell)
        self.mark()

    def synced(self, tell: Callable[[WireError | None], None]) -> None:
        """
        Call something when all that happened here is on the disk, whatever the topic promises.

        Args:
            tell: Called once, later.
        """
        self.ledger.when_synced(tell)
        self.mark()

    def held(self) -> dict[tuple[int, int], int]:
        """The transactions that hold messages or positions, each with the time since when."""
        found = self.positions.held_since()
        for one in self.queue.channels.values():
            for identity, since in one.channel.places.held().items():
                found[identity] = min(found.get(identity, since), since)
        return found

    def decide(self, identity: tuple[int, int], *, commit: bool) -> bool:
        """
        Settle what a transaction holds, or let it come again; move positions, or do not.

        Args:
            identity: Producer id and epoch of the transaction.
            commit: Whether it counts.

        Returns:
            Whether it held anything.
        """
        now, found = self._host.now(), self.positions.decide(identity, commit)
        for one in self.queue.channels.values():
            if identity in one.channel.places.held():
                found = True
                self.take_away(one, one.channel.decide(identity, now, commit=commit))
        if found:
            self.mark()
        return found

    @property
    def now(self) -> int:
        """The channels' time."""
        return self._host.now()

    @property
    def scheduler(self) -> Scheduler:
        """Gives the time that passes."""
        return self._host.broker.scheduler


def _key(info: ChannelInfo) -> bytes:
    return f"{info.name}@{info.created_ms}".encode() + _TEMPORARY * info.temporary


def _given(info: ChannelInfo) -> dict[str, str | int | tuple[str, ...] | None]:
    return dict(info.policy.to_mapping())
