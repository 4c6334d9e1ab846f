"""
Messages whose time to live is over: one index of a partition, for all its channels.

A topic's ``ttl.ms`` needs no index, for append times rise with offsets: there is a *front*,
and what lies below it has expired. Times to live of single messages are in a column of
their batch. Of each batch, or of several short ones in a row, the index knows when the first
message expires; only then is the column opened. So a long time to live keeps no short one
behind it waiting, and memory goes by batches, not by messages.

::

     expired | front                     noted as they are published
    ---------|----------[ block ]--[ block ]----------[ block ]------->
                   ^ scanned after a start, a seek, or for a channel that is new

What is in flight when it expires stays with its holder, and expires when it comes back. Time
is the channels': a wall clock that is set while the broker runs moves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from twisted.logger import Logger

from tinymq.broker.blocks import STALE, Blocks
from tinymq.broker.channel.entries import SEEK, UNDO
from tinymq.broker.channel.runs import Run, Runs
from tinymq.broker.mortal import Steps
from tinymq.broker.window import ColdPiece, Stored
from tinymq.conditions import matches
from tinymq.errors import CorruptBatch, TinyMQError
from tinymq.names import OWN_CHANNELS
from tinymq.wire.batch import HAS_EXPIRY
from tinymq.wire.records import RecordBatch

if TYPE_CHECKING:
    from tinymq.broker.broker import Broker
    from tinymq.broker.channel.queue import Subscribers
    from tinymq.broker.hosted import Hosted
    from tinymq.broker.ports import Timer

#: Seconds that the reactor is held at a time.
_SLICE_SECONDS: Final = 0.004
#: Milliseconds until a time is looked at again that is not known better.
_AGAIN_MS: Final = 1000
#: Seconds until a partition is tried again that could not be read.
_AGAIN_SECONDS: Final = 1.0


class _Scan:
    """How far the log was looked through for one channel."""

    __slots__ = ("at", "end", "passing")

    def __init__(self, at: int, end: int, passing: int | None) -> None:
        self.at = at
        self.end = end
        #: What expired by then is passed over: it was settled, or never wanted.
        self.passing = passing


class Expiry:
    """
    Gives up what expires in the channels of one partition.

    Args:
        broker: The broker.
        hosted: The channels.

    Attributes:
        behind: Whether there is something due that is not done yet.
    """

    _log = Logger()

    def __init__(self, broker: Broker, hosted: Hosted) -> None:
        self._broker = broker
        self._hosted = hosted
        self._partition = hosted.partition
        self._partition.mortals = []
        self.behind = False
        #: Below it all messages have outlived the topic's time to live; when the next one does.
        self._front = 0
        self._front_due: int | None = None
        self._ttl: int | None = None
        #: When the first message does that is kept in the ledger.
        self._kept_due: int | None = None
        self._blocks = Blocks(self._read)
        #: Where the blocks are complete: what was scanned, and all from an offset on.
        self._covered = Runs()
        self._noted = self._partition.log.end_offset
        self._steps = self._partition.steps = Steps(hosted.clock)
        #: The last append time at the start, and the time then. One that lies ahead is of a
        #: clock that was set right since: it counts as then, or it would hold up what follows.
        self._before = self._partition.log.max_timestamp, hosted.clock()
        #: Channels that begin anew, and until when what expired is passed over.
        self._fresh: dict[str, int | None] = {}
        #: Up to where each channel has done what the front says.
        self._done: dict[str, int] = {}
        self._scans: dict[str, _Scan] = {}
        self._due: dict[str, Runs] = {}
        self._passed: dict[str, Runs] = {}
        #: What expired in the hands of consumers.
        self._held: dict[str, Runs] = {}
        self._warming: int | None = None
        self._warm = -1
        self._later: Timer | None = None

    # --- channels that come and go -----------------------------------------------------

    def made(self, name: str, now: int) -> None:
        """
        Hear of a new channel: what has expired by now is none of its messages.

        Args:
            name: Its name.
            now: The time.
        """
        self._fresh[name] = now

    def forget(self, name: str) -> None:
        """
        Forget a channel.

        Args:
            name: Its name.
        """
        for each in (self._fresh, self._done, self._scans, self._due, self._passed, self._held):
            each.pop(name, None)

    def stop(self) -> None:
        """Try nothing again."""
        if self._later is not None and self._later.active():
            self._later.cancel()
        self._later = None

    def limit(self, name: str) -> int | None:
        """
        Say how far a channel may give out: what lies beyond may have expired.

        Args:
            name: Its name.

        Returns:
            An offset, -1 if nothing may be given out now; None if there is no limit.
        """
        if self.behind or name in self._due or name in self._passed:
            return None if name.startswith(OWN_CHANNELS) else -1
        scan = self._scans.get(name)
        if scan is None:
            return None
        cursor = self._hosted.queue.channels[name].channel.places.cursor
        return scan.at if scan.at >= min(cursor, scan.end) else -1

    def next_time(self) -> int | None:
        """Return when something expires; None if nothing does, or it is being seen to."""
        if self.behind or self._later is not None or not self._active:
            return None
        times = (self._front_due, self._kept_due, self._blocks.next_due)
        return min((time for time in times if time is not None), default=None)

    @property
    def _active(self) -> bool:
        partition = self._partition
        return partition.topic.config.ttl_ms is not None or bool(partition.mortal)

    def _users(self) -> list[tuple[str, Subscribers]]:
        """The channels in which messages expire: all but the brokers' own."""
        channels = self._hosted.queue.channels.items()
        return [each for each in channels if not each[0].startswith(OWN_CHANNELS)]

    # --- its turn ----------------------------------------------------------------------

    def turn(self, now: int) -> None:
        """
        Give up what has expired.

        Args:
            now: The time.
        """
        if not self._active:
            self._fresh.clear()
            return
        users = self._users()
        if not users:
            self._rest()
            return
        self._note()
        self.behind = False
        if self._later is not None:
            return
        try:
            self._begin(users, now)
            self.behind = self._work(users, now)
            if self.behind:
                self._hosted.mark()
        except ColdPiece as cold:
            self.behind = True
            self._fetch(cold.offset)
        except (OSError, TinyMQError) as error:
            self._unreadable(error)
        if self._blocks.many:
            self._prune(users)

    def _rest(self) -> None:
        """Know nothing: there is no channel."""
        self._blocks.clear()
        self._covered = Runs()
        self._noted = self._partition.log.end_offset
        if self._partition.mortals:
            self._partition.mortals.clear()

    def _unreadable(self, error: Exception) -> None:
        if self._partition.closed is None:
            self._log.error(
                "{hosted}: what expires cannot be read: {error}", hosted=self._hosted, error=error
            )
            self._later = self._broker.scheduler.callLater(_AGAIN_SECONDS, self._again)

    def _again(self) -> None:
        self._later = None
        self._hosted.mark()

    def _fetch(self, offset: int) -> None:
        """Bring a piece of the log into memory, and go on then."""
        if self._warming is None:
            self._warming = offset
            warm = self._hosted.window.warmer(offset)
            self._broker.background.submit(warm, self._fetched)

    def _fetched(self) -> None:
        self._warm, self._warming = -1 if self._warming is None else self._warming, None
        self._hosted.mark()

    # --- what is published, and the topic's time to live ----------------------------------

    def _note(self) -> None:
        """Take what was published."""
        partition, high = self._partition, self._partition.stable_offset
        noted = partition.mortals
        if noted:
            partition.mortals = [each for each in noted if each[1] > high]
            for base, end, due in noted:
                if end <= high:
                    self._blocks.put(due + self._steps.delta(base), base, end)

    def _advance(self, now: int) -> None:
        """Move the front on to where the topic's time to live is not over."""
        ttl, high = self._partition.topic.config.ttl_ms, self._partition.stable_offset
        if ttl != self._ttl:
            self._ttl, self._front, self._front_due, self._kept_due = ttl, 0, None, None
        if ttl is None or (self._front_due or 0) > now:
            return
        if self._front_due is None and self._front >= high:
            return
        front = self._front
        while True:
            step, following = self._steps.find(front)
            since = now - ttl - step.delta + 1
            newest, began = self._before
            ahead = not step.delta and newest > began
            if ahead and since > began:
                since = max(since, newest + 1)
            if since <= 0:
                self._front, self._front_due = front, now + 1 - since
                return
            found, _, time = self._partition.offset_at(since)
            if following is None or found < following:
                break
            front = following
        if found >= front and time >= 0:
            due = (min(time, began) if ahead and time <= newest else time) + step.delta + ttl
        else:
            due = max(step.time + step.delta + ttl, now + _AGAIN_MS)
        self._front = max(front, found)
        self._front_due = due if self._front < high else None

    # --- beginning ---------------------------------------------------------------------

    def _begin(self, users: list[tuple[str, Subscribers]], now: int) -> None:
        """See what the front, seeks and messages that came back ask of each channel."""
        self._advance(now)
        if self._kept_due is not None and self._kept_due <= now:
            self._kept_due = None
            start = min(self._front, self._partition.log.start_offset)
            for name, _ in users:
                self._add(self._due, name, self._below(0, start, now))
        for name, one in users:
            if one.channel.turned:
                self._turned(name, one.channel.turned, now)
            if name in self._fresh or name not in self._done:
                self._start(name, one, self._fresh.pop(name, None), now)
            elif self._done[name] < self._front:
                self._add(self._due, name, self._below(self._done[name], self._front, now))
                self._done[name] = self._front

    def _turned(self, name: str, turned: set[int], now: int) -> None:
        """Look again at what came back: what expired in hands, or behind a seek."""
        if UNDO in turned:
            self._fresh[name] = None
        elif SEEK in turned:
            self._fresh[name] = now
        turned.clear()
        self._add(self._due, name, self._held.pop(name, ()))

    def _start(self, name: str, one: Subscribers, passing: int | None, now: int) -> None:
        """Look at a channel from its first unsettled message on."""
        floor, mortal = one.channel.places.floor, self._partition.mortal
        where = self._due if passing is None else self._passed
        self._add(where, name, self._below(floor, self._front, now))
        self._done[name] = self._front
        low, high = max(floor, mortal.first), min(mortal.end, self._partition.log.end_offset)
        self._scans.pop(name, None)
        if low < high:
            self._scans[name] = _Scan(low, high, passing)

    def _below(self, start: int, end: int, now: int) -> Iterable[Run]:
        """What expired of a run below the front; what is kept in the ledger may be younger."""
        found, ttl = Runs([(start, end)]), self._ttl
        for offset, (header, _) in self._hosted.stragglers.kept.items():
            if offset in found and ttl is not None:
                due = header.max_timestamp + self._steps.delta(offset) + ttl
                if due > now:
                    found.remove(offset, offset + 1)
                    self._kept_due = min(self._kept_due or due, due)
        return found

    @staticmethod
    def _add(where: dict[str, Runs], name: str, runs: Iterable[Run]) -> None:
        for start, end in runs:
            where.setdefault(name, Runs()).add(start, end)

    # --- the work ----------------------------------------------------------------------

    def _work(self, users: list[tuple[str, Subscribers]], now: int) -> bool:
        """Do what is due, for a moment; return whether there is more."""
        until = self._broker.scheduler.seconds() + _SLICE_SECONDS
        cold: ColdPiece | None = None
        more = False
        try:
            with self._hosted.window.hasty(self._warm):
                more = self._expire_blocks(users, now, until) or self._scan_all(now, until)
        except ColdPiece as error:
            cold = error
        with self._hosted.window.hasty(self._warm):
            for name, one in users:
                if name in self._due or name in self._passed:
                    self._act(name, one, now)
        if cold is not None:
            raise cold
        return more

    def _act(self, name: str, one: Subscribers, now: int) -> None:
        """Give up what is due in a channel, and pass over what is none of its messages."""
        hidden = partial(self._hidden, one) if one.channel.policy.filter else None
        due, passed = self._due.get(name), self._passed.get(name)
        if due is not None:
            held = one.steering.expire(due, now, hidden)
            del self._due[name]
            self._add(self._held, name, held)
        if passed is not None:
            # What was in hands when it expired was given up just now, or is in hands still.
            one.steering.pass_over(passed, now, hidden)
            self._add(self._held, name, one.steering.flying(passed))
            del self._passed[name]
        held_now = self._held.get(name)
        if held_now is not None and held_now.count > 2 * one.channel.places.in_flight + STALE:
            self._held[name] = one.steering.flying(held_now)

    def _hidden(self, one: Subscribers, runs: list[Run]) -> Iterator[Run]:
        """Yield what matches no filter of a channel."""
        conditions = one.channel.policy.conditions
        for header, data in self._hosted.window.over(runs):
            batch = RecordBatch(data, header)
            for offset, headers in zip(batch.offsets, batch.headers, strict=True):
                if not matches(conditions, headers):
                    yield offset, offset + 1

    def _expire_blocks(self, users: list[tuple[str, Subscribers]], now: int, until: float) -> bool:
        """Open what is due; return whether there is more."""
        while (over := self._blocks.expire(now)) is not None:
            for name, _ in users:
                self._add(self._due, name, over)
            if self._broker.scheduler.seconds() > until:
                return (self._blocks.next_due or now + 1) <= now
        return False

    def _read(self, base: int, end: int) -> list[tuple[int, int]]:
        """Read when each message of a batch expires, the first one first."""
        found: list[tuple[int, int]] = []
        for stored in self._hosted.window.over([(base, end)]):
            found += self._lives_of(stored)
        return sorted(each for each in found if base <= each[1] < end)

    def _lives_of(self, stored: Stored) -> list[tuple[int, int]]:
        header, data = stored
        if not header.attributes & HAS_EXPIRY:
            return []
        born = header.max_timestamp + self._steps.delta(header.base_offset)
        try:
            batch = RecordBatch(data, header)
            rows = zip(batch.ttls, batch.offsets, strict=True)
            return [(born + ttl, offset) for ttl, offset in rows if ttl is not None]
        except (CorruptBatch, ValueError) as error:
            self._log.error(
                "{hosted}: when the messages from offset {offset} on expire cannot be read: "
                "{error}",
                hosted=self._hosted,
                offset=header.base_offset,
                error=error,
            )
            return []

    # --- scanning ----------------------------------------------------------------------

    def _scan_all(self, now: int, until: float) -> bool:
        """Look through the log for channels that begin anew; return whether there is more."""
        while self._scans:
            if not self._scan(now):
                return False
            if self._broker.scheduler.seconds() > until:
                return bool(self._scans)
        return False

    def _scan(self, now: int) -> bool:
        """Look at one batch; return False if the next one is not visible yet."""
        scans = self._scans
        at, end = min(each.at for each in scans.values()), max(each.end for each in scans.values())
        stored = self._hosted.window.batch_at(at, end)
        behind = min(end, self._partition.stable_offset)
        if stored is not None:
            behind = stored[0].next_offset
            self._scanned(stored, now)
        elif behind <= at < self._partition.log.end_offset:
            return False
        for name, scan in tuple(scans.items()):
            scan.at = max(scan.at, behind)
            if scan.at >= min(scan.end, self._partition.log.end_offset):
                del scans[name]
        return True

    def _scanned(self, stored: Stored, now: int) -> None:
        header = stored[0]
        base, end = header.base_offset, header.next_offset
        lives = sorted(self._lives_of(stored))
        if base < self._noted and not [*self._covered.within(base, base + 1)]:
            self._covered.add(base, end)
            left = next((due for due, _ in lives if due > now), None)
            if left is not None:
                self._blocks.put(left, base, end)
        for name, scan in self._scans.items():
            if scan.at >= end:
                continue
            passing = -1 if scan.passing is None else scan.passing
            gone = ((each, each + 1) for due, each in lives if due <= passing)
            self._add(self._passed, name, gone)
            over = ((each, each + 1) for due, each in lives if passing < due <= now)
            self._add(self._due, name, over)

    def _prune(self, users: list[tuple[str, Subscribers]]) -> None:
        """Forget what every channel has settled."""
        floor = min(one.channel.places.floor for _, one in users)
        self._blocks.prune(floor)
        self._covered.remove(0, floor)
        self._noted = max(self._noted, floor)
