"""
The router of one partition of an exchange: reads the log, plans copies, has them brought.

What it knows is part of the partition's ledger, and written and synced in the same groups
as what channels do. Retention waits for it as for a channel.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from twisted.logger import Logger

from tinymq.broker.channel.pace import Pace
from tinymq.broker.routing.carrying import Carrier
from tinymq.broker.routing.counts import Counts
from tinymq.broker.routing.judging import Judge
from tinymq.broker.routing.planning import Planner, Why
from tinymq.broker.routing.routes import BEGIN, PLAN, ROUTES_KEY, Routes
from tinymq.broker.window import ColdPiece, Window
from tinymq.errors import CorruptBatch, TinyMQError
from tinymq.limits import MIB
from tinymq.names import OWN_CHANNELS

if TYPE_CHECKING:
    from tinymq.broker.broker import Broker
    from tinymq.broker.channel.queue import LedgerRecord
    from tinymq.broker.hosted import Hosted
    from tinymq.routing import Exchange

#: What holds files back for it is called so where channels are named.
ROUTER: Final = f"{OWN_CHANNELS}router"
#: Copies that are planned and not brought, and their bytes, about; then the router waits.
MOST_PENDING: Final = 100_000
MOST_BYTES: Final = 64 * MIB
#: Rows of what is stuck, for people.
_MOST_STUCK: Final = 20
_RETENTION: Final = Why("retention", "its target did not take it before it was too old or too much")


class Router:
    """
    Routes what is published to one partition.

    Args:
        broker: The broker.
        hosted: The partition, with its ledger.

    Attributes:
        routes: What is planned.
        carrier: Brings it.
        counts: What was done since the start.
        window: Reads the partition.
    """

    _log = Logger()

    def __init__(self, broker: Broker, hosted: Hosted) -> None:
        self._broker = broker
        self._hosted = hosted
        partition = hosted.partition
        self.routes = Routes()
        self.counts = Counts()
        window = Window(partition)
        self.window = window
        self._planner = Planner(broker, partition, window)
        self.carrier = Carrier(broker, hosted, self, self._planner)
        self._judge = Judge(broker.routing.judging, partition, hosted.mark)
        self._pace = Pace()
        #: Where a piece of the log begins that is being fetched, or was just now.
        self._warm = -1
        self._fetching = False
        self._stopped = False
        #: Whether so much is pending that nothing more is planned.
        self.waiting = False

    # --- life -------------------------------------------------------------------------

    def restore(self, value: bytes) -> None:
        """
        Take over a record of the ledger.

        Args:
            value: Of a record with `ROUTES_KEY`.
        """
        try:
            self.routes.restore(value)
        except CorruptBatch as error:
            self._log.error("{hosted}: {error}", hosted=self._hosted, error=error)

    def recovered(self, end: int) -> bool:
        """
        Go on after a start.

        Args:
            end: The end of the log.

        Returns:
            Whether some of what was planned did not survive.
        """
        lost = self.routes.cut_back(end)
        if lost:
            self._log.warn(
                "{hosted}: the router was ahead of the log, which was cut to {end}",
                hosted=self._hosted,
                end=end,
            )
        self.carrier.ready(iter(self.routes.lanes))
        return lost

    def follow(self, exchange: Exchange | None) -> None:
        """
        Hear what the topic is now.

        Args:
            exchange: None if it is no exchange any more; what is planned is brought all the same.
        """
        partition = self._hosted.partition
        partition.judge = None if exchange is None else self._judge
        if exchange is None or exchange.created_ms == self.routes.since:
            self._hosted.mark()
            return
        start = partition.log.start_offset
        if partition.topic.created_ms < exchange.created_ms:
            start = max(start, partition.offset_at(exchange.created_ms)[0])
        born = self.routes.born or max(1, self._broker.channels.now())
        self.routes.change([BEGIN, exchange.created_ms, born, start])
        self._hosted.mark()

    def stop(self) -> None:
        """Do nothing by the clock any more."""
        self._stopped = True
        self._hosted.partition.judge = None
        self.carrier.stop()

    # --- turns ------------------------------------------------------------------------

    def turn(self, now: int) -> None:
        """
        Plan some more, and bring what is planned.

        Args:
            now: The time.
        """
        if self._stopped or self._hosted.ledger.failure is not None:
            return
        self._trim()
        self._plan(now)
        self.carrier.turn(now)

    @property
    def _active(self) -> bool:
        """Whether the topic is an exchange."""
        return self._hosted.partition.judge is not None

    def _trim(self) -> None:
        """Pass over what was purged, or dropped because it was too much."""
        start = self._hosted.partition.log.start_offset
        if self._active and self.routes.cursor < start:
            lost = start - self.routes.cursor
            self.counts.missing += lost
            self._log.warn(
                "{hosted}: {count} records went before they were routed",
                hosted=self._hosted,
                count=lost,
            )
            self.routes.change([PLAN, start, []])

    def _plan(self, now: int) -> None:
        partition, routes = self._hosted.partition, self.routes
        if not self._active or self._fetching or routes.cursor >= partition.stable_offset:
            return
        sight = self._broker.routing.tables.sight(partition.topic.id)
        self.waiting = self.full
        if sight is None or self.waiting:
            return
        before = routes.cursor
        try:
            with self.window.hasty(self._warm):
                plan = self._planner.plan(routes, sight)
        except ColdPiece as cold:
            self._fetch(cold.offset)
            return
        except (OSError, TinyMQError) as error:
            self._log.error("{hosted} cannot be routed: {error}", hosted=self._hosted, error=error)
            self._fetching = True
            self._broker.scheduler.callLater(1.0, self._fetched)
            return
        self._warm = -1
        if plan.cursor <= before:
            return
        self.counts.add(plan)
        rows = routes.numbered(plan.pieces(now))
        routes.plan += 1
        routes.change([PLAN, plan.cursor, rows])
        self._judge.forget(plan.cursor)
        if rows:
            self.carrier.ready((row[0], row[1]) for row in rows)
            self.carrier.when_safe()
        if plan.cursor < partition.stable_offset:
            self._hosted.mark()

    def _fetch(self, offset: int) -> None:
        """Bring a piece of the log into memory, and go on then."""
        self._warm, self._fetching = offset, True
        self._broker.background.submit(self.window.warmer(offset), self._fetched)

    def _fetched(self) -> None:
        self._fetching = False
        if not self._stopped:
            self._hosted.mark()

    @property
    def full(self) -> bool:
        """Whether as much is pending as may be."""
        pending, log = self.routes.pending, self._hosted.partition.log
        if pending >= MOST_PENDING:
            return True
        mean = log.size_bytes / max(1, log.written_offset - log.start_offset)
        return pending * mean >= MOST_BYTES

    # --- retention ----------------------------------------------------------------------

    @property
    def floor(self) -> int | None:
        """The offset below which nothing of the log is needed; None if all may go."""
        planned = self.routes.floor if self.routes.pending else None
        if not self._active:
            return planned
        return self.routes.cursor if planned is None else min(planned, self.routes.cursor)

    def give_up(self, beyond: int, now: int) -> None:
        """
        Let old copies that their targets do not take be dead letters.

        Args:
            beyond: Those below this offset.
            now: The time.
        """
        for lane in tuple(self.routes.lanes.values()):
            if lane.pieces and isinstance(lane.place[0], bytes) and lane.pieces[0].base < beyond:
                self.carrier.give_up(lane, _RETENTION, now, below=beyond)

    # --- what is seen -------------------------------------------------------------------

    def note(self, now: int) -> None:
        """
        Look at the counters.

        Args:
            now: The time.
        """
        self._pace.note(now, self._counted)

    @property
    def _counted(self) -> tuple[int, int]:
        return self.counts.routed, self.counts.copied

    def told(self, now: int) -> dict[str, Any]:
        """
        Say how it goes, for people.

        Args:
            now: The time.
        """
        partition, counts = self._hosted.partition, self.counts
        rates = self._pace.rates(now, self._counted) or (0.0, 0.0)
        sight = self._broker.routing.tables.sight(partition.topic.id)
        return {
            "topic_id": partition.topic.id.hex(),
            "partition": partition.index,
            "cursor": self.routes.cursor,
            "end": partition.stable_offset,
            "pending": self.routes.pending,
            "waiting": self.waiting and self.full,
            "routed": counts.routed,
            "copied": counts.copied,
            "unroutable": counts.unroutable,
            "letters": counts.letters,
            "missing": counts.missing + counts.unreadable,
            "failed": 0 if sight is None else sight.table.failed,
            "failure": "" if sight is None else sight.table.failure,
            "in_s": round(rates[0], 3),
            "out_s": round(rates[1], 3),
            "stuck": self._stuck(),
        }

    def kept(self) -> Iterator[tuple[str, int, str]]:
        """Yield the topics for which dead letters are kept: name, how many, and why."""
        for place, lane in self.routes.lanes.items():
            if isinstance(place[0], str) and lane.pending:
                stuck = self.carrier.stuck.get(place)
                yield place[0], lane.pending, "" if stuck is None else stuck.why

    def _stuck(self) -> list[dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for place, stuck in self.carrier.stuck.items():
            lane = self.routes.lanes.get(place)
            if lane is None or not lane.pending:
                continue
            target = self.carrier.named(place)
            if target not in found and len(found) >= _MOST_STUCK:
                continue
            row = found.setdefault(
                target,
                {"target": target, "why": stuck.why, "since_ms": stuck.since_ms, "pending": 0},
            )
            row["pending"] += lane.pending
            row["since_ms"] = min(row["since_ms"], stuck.since_ms)
        return [*found.values()]

    # --- the ledger ----------------------------------------------------------------------

    def records(self) -> list[LedgerRecord]:
        """Return what is to be written."""
        return [(ROUTES_KEY, value) for value in self.routes.drain()]

    def snapshot(self) -> list[LedgerRecord]:
        """Return what stands for everything before."""
        self.routes.forget(self._broker.meta.registry.deleted)
        return [(ROUTES_KEY, value) for value in self.routes.snapshot()]
