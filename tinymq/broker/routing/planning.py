"""
Planning copies: which records go to which partitions.

Each record is planned under one state of the table. Records with a key go to the partition
where clients put that key; those without one go to a partition together, batch by batch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from twisted.logger import Logger

from tinymq.broker.letters import Origin
from tinymq.broker.routing.routes import Piece, Place, Routes, bits_at, offsets_of
from tinymq.broker.routing.tables import Look, Names, Sight
from tinymq.broker.window import ColdPiece, Stored, Window
from tinymq.errors import CorruptBatch
from tinymq.routing import UNROUTABLE
from tinymq.wire.batch import BatchHeader
from tinymq.wire.frames import Bytes
from tinymq.wire.records import Headers, RecordBatch

if TYPE_CHECKING:
    from tinymq.broker.broker import Broker
    from tinymq.broker.partition import Partition
    from tinymq.meta.registry import Topic

#: Records of one plan, and copies, about: a plan is one record of the ledger.
MOST_RECORDS: Final = 4000
MOST_COPIES: Final = 20_000
#: Seconds for which is planned before others have their turn.
PLAN_SECONDS: Final = 0.005


class Why(NamedTuple):
    """
    Why records are dead letters.

    Attributes:
        reason: One word.
        text: A sentence.
    """

    reason: str
    text: str = ""


#: Of what no binding takes.
NO_BINDING: Final = Why("unroutable", "no binding takes it")


class Plan:
    """What goes where, while it is found out."""

    def __init__(self, cursor: int) -> None:
        self.cursor = cursor
        self.copies: defaultdict[Place, list[int]] = defaultdict(list)
        self.letters: defaultdict[tuple[Place, Why, str], list[int]] = defaultdict(list)
        self.records = self.count = 0
        self.unroutable = self.stayed = self.missing = self.unreadable = 0

    @property
    def full(self) -> bool:
        """Whether it is as long as it may be."""
        return self.records >= MOST_RECORDS or self.count >= MOST_COPIES

    def pieces(self, now: int) -> Iterable[tuple[Place, Piece]]:
        """
        Yield the pieces, without numbers.

        Args:
            now: The time.
        """
        for place, offsets in self.copies.items():
            offsets.sort()
            yield place, Piece(0, offsets[0], _bits(offsets), time=now)
        for (place, why, parked), offsets in self.letters.items():
            offsets.sort()
            yield place, Piece(0, offsets[0], _bits(offsets), *why, parked=parked, time=now)


def _bits(offsets: list[int]) -> int:
    base = offsets[0]
    if offsets[-1] - base + 1 == len(offsets):
        return (1 << len(offsets)) - 1
    return bits_at([offset - base for offset in offsets])


class _Opened:
    """A batch whose columns are opened once, when they are needed first."""

    def __init__(self, batch: RecordBatch) -> None:
        self.header = batch.header
        self.offsets = batch.offsets
        self._batch = batch
        self._look: tuple[Sight, Look] | None = None

    @cached_property
    def keys(self) -> list[bytes | None]:
        """The key of each record."""
        return self._batch.keys

    @cached_property
    def headers(self) -> list[Headers]:
        """The headers of each record."""
        return self._batch.headers

    def look(self, sight: Sight) -> Look:
        """Open what a table looks at."""
        if self._look is None or self._look[0] is not sight:
            self._look = sight, sight.look(self._batch)
        return self._look[1]


class Planner:
    """
    Plans the copies of one partition.

    Args:
        broker: The broker.
        partition: The partition.
        window: Reads it.
    """

    _log = Logger()

    def __init__(self, broker: Broker, partition: Partition, window: Window) -> None:
        self._broker = broker
        self._partition = partition
        self._window = window
        #: The next partition of each topic for records without a key.
        self._turns: dict[bytes, int] = {}
        #: Places that take nothing just now: who has no key goes elsewhere.
        self.stuck: set[Place] = set()
        #: The batch that was looked at last: a long one is planned in several turns.
        self._last: _Opened | None = None

    def plan(self, routes: Routes, sight: Sight) -> Plan:
        """
        Plan some more.

        Args:
            routes: What is planned by now.
            sight: The table.

        Raises:
            ColdPiece: In haste, the disk would have to be waited for before anything is planned.
        """
        seconds = self._broker.scheduler.seconds
        until = seconds() + PLAN_SECONDS
        high, judge = self._partition.stable_offset, self._partition.judge
        looked = None if judge is None else judge.end
        if looked is not None:
            high = min(high, looked)  # the others are looked at now, and need not be twice
        found = Plan(routes.cursor)
        while found.cursor < high and not found.full:
            try:
                stored = self._window.batch_at(found.cursor, high)
            except ColdPiece:
                if found.cursor == routes.cursor:
                    raise
                break
            if stored is None:
                found.missing += high - found.cursor
                found.cursor = high
                break
            if stored[0].base_offset > found.cursor:
                found.missing += stored[0].base_offset - found.cursor
                found.cursor = stored[0].base_offset
            self._take(found, stored, sight, until)
            if seconds() >= until:
                break
        return found

    def _take(self, plan: Plan, stored: Stored, sight: Sight, until: float) -> None:
        """Plan the records of a batch, from the cursor on, as far as there is time."""
        header, data = stored
        try:
            batch = self._opened(header, data)
            offsets = batch.offsets
            low = bisect_left(offsets, plan.cursor)
            groups, high = self._grouped(plan, batch, low, sight, until)
            for names, places in groups.items():
                self._place(plan, batch, names, places)
        except CorruptBatch as error:
            plan.unreadable += header.next_offset - plan.cursor
            self._log.error(
                "{partition}: offsets {start} to {end} cannot be routed: {error}",
                partition=self._partition,
                start=plan.cursor,
                end=header.next_offset - 1,
                error=error,
            )
            plan.cursor = header.next_offset
            return
        plan.records += high - low
        if high < len(offsets):
            plan.cursor = offsets[high]
        else:
            plan.cursor, self._last = header.next_offset, None

    def _opened(self, header: BatchHeader, data: Bytes) -> _Opened:
        last = self._last
        if last is None or last.header != header:
            batch = RecordBatch(data, header, self._partition.limits.inflated)
            last = self._last = _Opened(batch)
        return last

    def _grouped(
        self, plan: Plan, batch: _Opened, low: int, sight: Sight, until: float
    ) -> tuple[dict[Names, Sequence[int]], int]:
        """Put records with the same targets together; say how far it came."""
        count = batch.header.records
        most = min(count, low + max(1, MOST_RECORDS - plan.records))
        copies = max(1, MOST_COPIES - plan.count)
        if sight.constant:
            names = sight.targets(batch.look(sight), 0)
            end = min(most, low + max(1, copies // max(1, len(names))))
            return {names: range(low, end)}, end
        judge = self._partition.judge
        known = None if judge is None else judge.known(batch.header.base_offset, sight)
        look = batch.look(sight) if known is None else None
        seconds = self._broker.scheduler.seconds
        groups: dict[Names, list[int]] = {}
        end = low
        while end < most and copies > 0:
            names = sight.targets(look, end) if look is not None else known[end] if known else ()
            groups.setdefault(names, []).append(end)
            copies -= len(names)
            end += 1
            if not (end - low) % sight.at_once and seconds() >= until:
                break
        return {**groups}, end

    def _place(self, plan: Plan, batch: _Opened, names: Names, places: Sequence[int]) -> None:
        """Say where records with the same targets go."""
        offsets = batch.offsets
        topics = self._broker.routing.tables.topics(names)
        if not topics:
            plan.unroutable += len(places)
            headers = batch.headers
            plain = [at for at in places if not headers[at]]
            self._bury(plan, [offsets[at] for at in plain], (), NO_BINDING)
            if len(plain) < len(places):
                for at in places:
                    if headers[at]:
                        self._bury(plan, [offsets[at]], headers[at], NO_BINDING)
            return
        plan.count += len(topics) * len(places)
        for topic in topics:
            if topic.partitions == 1:
                plan.copies[topic.id, 0] += (offsets[at] for at in places)
                continue
            self._spread(plan, topic, batch, places)

    def _spread(self, plan: Plan, topic: Topic, batch: _Opened, places: Sequence[int]) -> None:
        """Choose among the partitions of a topic."""
        keys, offsets = batch.keys, batch.offsets
        spots: dict[bytes | None, int] = {}
        place = self._broker.neighbours.place
        for at in places:
            key = keys[at]
            index = spots.get(key)
            if index is None:
                index = self._turn(topic) if key is None else place(key, topic.partitions)
                spots[key] = index
            plan.copies[topic.id, index].append(offsets[at])

    def _turn(self, topic: Topic) -> int:
        """Return the next partition for records without a key."""
        index = self._turns.get(topic.id, self._partition.index)
        for _ in range(topic.partitions):
            index = (index + 1) % topic.partitions
            if (topic.id, index) not in self.stuck:
                break
        self._turns[topic.id] = index
        return index

    # --- dead letters -----------------------------------------------------------------

    @property
    def dead_letter(self) -> str:
        """The name of the topic for what no binding takes."""
        topic = self._partition.topic
        sight = self._broker.routing.tables.sight(topic.id)
        given = "" if sight is None else sight.exchange.dead_letter
        return given or f"{topic.name}{UNROUTABLE}"

    def origin(self, offset: int, target: str) -> Origin:
        """
        Say where a dead letter comes from.

        Args:
            offset: Its offset.
            target: Where it goes.
        """
        topic = self._partition.topic
        return Origin(topic.name, topic.id, self._partition.index, offset, "", target)

    def _bury(self, plan: Plan, offsets: list[int], headers: Headers, why: Why) -> None:
        """Plan dead letters, which have the same headers."""
        if not offsets:
            return
        target, parked = self.origin(offsets[0], self.dead_letter).way_out(headers)
        if not target:
            plan.stayed += len(offsets)  # they were parked here already
            return
        plan.count += len(offsets)
        plan.letters[self.place_of(target), why, parked] += offsets

    def place_of(self, target: str) -> Place:
        """
        Say where in a dead-letter topic letters go.

        Args:
            target: Its name; it may be made yet, with as many partitions as this topic.
        """
        topic, index = self._broker.meta.registry.by_name.get(target), self._partition.index
        return target, index if topic is None else index % topic.partitions

    def give_up(self, routes: Routes, pieces: Iterable[Piece], why: Why) -> Plan:
        """
        Plan dead letters in place of copies that are not brought.

        Args:
            routes: What is planned by now.
            pieces: The copies.
            why: Why they are not brought.

        Raises:
            ColdPiece: In haste, the disk would have to be waited for.
        """
        found = Plan(routes.cursor)
        opened: tuple[int, RecordBatch, list[Headers]] | None = None
        for piece in pieces:
            for offset in offsets_of(piece):
                stored = self._window.batch_at(offset, offset + 1)
                if stored is None or stored[0].base_offset > offset:
                    found.missing += 1
                    continue
                try:
                    if opened is None or opened[0] != stored[0].base_offset:
                        batch = RecordBatch(stored[1], stored[0], self._partition.limits.inflated)
                        opened = stored[0].base_offset, batch, batch.headers
                    offsets = opened[1].offsets
                    at = bisect_left(offsets, offset)
                    if at == len(offsets) or offsets[at] != offset:
                        found.missing += 1
                        continue
                except CorruptBatch:
                    found.unreadable += 1
                    continue
                self._bury(found, [offset], opened[2][at], why)
        return found
