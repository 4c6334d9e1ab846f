"""Messages of the partitions that a broker leads which are not due yet."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from heapq import merge
from typing import Any, Final

from twisted.internet.defer import Deferred

from tinymq.broker.broker import Broker
from tinymq.broker.delays.delays import Delays
from tinymq.broker.delays.index import Row
from tinymq.catalog.delayed import ACTS, MOST_IDS, MOST_STEP
from tinymq.errors import UnknownDelayed, WireError
from tinymq.node.partitions import topic_key
from tinymq.node.turns import Turns
from tinymq.operation import PARTITION as ANY_PARTITION
from tinymq.operation import Operation, Parameter, Result, table
from tinymq.wire.fields import (
    I64,
    PARTITION,
    array,
    boolean,
    choice,
    integer,
    mapping,
    optional,
    row,
    text,
)

#: Rows that are looked at before others have their turn.
_ROWS: Final = 1000
#: A place in the list of all: due time, topic, partition, id.
_Place = tuple[int, str, int, int]


class DelayedMessages:
    """What is done with messages that are not due yet; only partitions that are here count."""

    _broker: Broker

    # --- looking ----------------------------------------------------------------

    async def delayed(
        self,
        id: str | None,  # noqa: A002 - the wire's word
        partition: int | None,
        choice: dict[str, Any],
        limit: int,
        after: _Place | None,
    ) -> Result:
        """List messages in order of their time, and count all that fit."""
        turns = Turns(self._broker.scheduler)
        wanted = Wanted(**choice)
        found: list[tuple[_Place, Delays, Row]] = []
        total = 0
        for delays in self._delays(id, partition):
            view = _View(delays, wanted, limit, after)
            for _ in view.look():
                if turns.over:
                    await turns.next()
            total += view.total
            found = list(merge(found, view.found, key=_place_of))[:limit]
        return {"messages": [_told(delays, each) for _, delays, each in found], "total": total}

    def _delays(self, topic_id: str | None, index: int | None) -> list[Delays]:
        chosen = self._broker.delaying.all()
        key = None if topic_id is None else topic_key(topic_id)
        self._broker.delaying.check(key, index)
        if key is not None:
            self._broker.meta.registry.topic_of(key)
            chosen = [each for each in chosen if each.partition.topic.id == key]
        return [each for each in chosen if index in (None, each.partition.index)]

    async def delayed_histogram(
        self,
        id: str | None,  # noqa: A002 - the wire's word
        edges: list[int],
    ) -> Result:
        """Count messages between times."""
        turns = Turns(self._broker.scheduler)
        counts = [0] * (len(edges) - 1)
        overdue, first = 0, list[int]()
        for delays in self._delays(id, None):
            for _ in delays.catch_up():
                if turns.over:
                    await turns.next()
            overdue += delays.count(None, edges[0])
            soonest = delays.next_due()
            if soonest is None:
                continue
            first.append(soonest)
            begin = max(0, bisect_right(edges, soonest) - 1)
            for place in range(begin, len(counts)):
                counts[place] += delays.count(edges[place], edges[place + 1])
                if turns.over:
                    await turns.next()
        return {"counts": counts, "overdue": overdue, "next_ms": min(first, default=None)}

    async def delayed_message(self, id: str, partition: int, delayed: int) -> Result:  # noqa: A002
        """Look at one message with its value."""
        place = self._broker.partition(topic_key(id), partition)
        delays = self._broker.delaying.of(place)
        if delays is not None:
            await self._caught_up(delays)
        found = None if delays is None else delays.find([delayed]).get(delayed)
        if delays is None or found is None:
            raise UnknownDelayed(f"{place.topic.name}/{partition}~{delayed} does not wait any more")
        record = delays.record(found)
        headers = [list(each) for each in record.headers]
        return {"message": {**_told(delays, found), "value": record.value, "headers": headers}}

    async def _caught_up(self, delays: Delays) -> None:
        turns = Turns(self._broker.scheduler)
        for _ in delays.catch_up():
            if turns.over:
                await turns.next()

    # --- what becomes of them ------------------------------------------------------

    async def act_on_delayed(
        self,
        id: str,  # noqa: A002 - the wire's word
        partition: int,
        ids: list[int],
        act: str,
        due_ms: int | None,
        *,
        dry_run: bool,
    ) -> Result:
        """Cancel, release or move messages; answered when that is as safe as the topic promises."""
        place = self._broker.partition(topic_key(id), partition)
        delays = self._broker.delaying.of(place)
        wanted = list(dict.fromkeys(ids))
        if delays is None:
            return {"done": [], "missing": wanted}
        await self._caught_up(delays)
        if dry_run:
            there = delays.find(wanted)
            done = [each for each in wanted if each in there]
        else:
            waiting: Deferred[list[int] | WireError] = Deferred()
            if act == "cancel":
                delays.cancel(wanted, waiting.callback)
            else:
                due = self._broker.channels.now() if act == "now" else due_ms
                assert due is not None, "who moves says where to"
                delays.move(wanted, due, waiting.callback)
            told = await waiting
            if isinstance(told, WireError):
                raise told
            done = told
        gone = {*wanted}.difference(done)
        return {"done": done, "missing": [each for each in wanted if each in gone]}


class Wanted:
    """
    Which messages are wanted.

    Args:
        key: Only those with this key.
        since_ms: Only those due then, or later.
        until_ms: Only those due before.
        schedule: Only those of the schedule of this name.
    """

    def __init__(
        self,
        key: str | None = None,
        since_ms: int | None = None,
        until_ms: int | None = None,
        schedule: str | None = None,
    ) -> None:
        self._key = None if key is None else key.encode()
        self._schedule = None if schedule is None else f"{schedule}@"
        self.since, self.until = since_ms, until_ms

    @property
    def by_time_only(self) -> bool:
        """Whether the index alone knows them, and how many there are."""
        return self._key is None and self._schedule is None

    def fits(self, each: Row) -> bool:
        """
        Whether this is one of them, but for its time.

        Args:
            each: One that waits.
        """
        if self._key is not None and each.key != self._key:
            return False
        return self._schedule is None or (each.schedule or "").startswith(self._schedule)


class _View:
    """What is seen of one partition."""

    def __init__(self, delays: Delays, wanted: Wanted, limit: int, after: _Place | None) -> None:
        self._delays = delays
        self._wanted = wanted
        self._limit = limit
        self._name, self._index = delays.partition.topic.name, delays.partition.index
        self._start = _start(after, self._name, self._index)
        self.found: list[tuple[_Place, Delays, Row]] = []
        self.total = 0

    def look(self) -> Iterator[None]:
        """Look, with a pause after each piece of work."""
        delays, wanted = self._delays, self._wanted
        yield from delays.catch_up()
        quick = wanted.by_time_only
        if quick:
            self.total = delays.count(wanted.since, wanted.until)
            yield
        place = self._start if quick else None
        while True:
            rows = delays.rows(place, wanted.since, wanted.until, _ROWS)
            self._take([each for each in rows if wanted.fits(each)], count=not quick)
            if len(rows) < _ROWS or (quick and len(self.found) >= self._limit):
                return
            place = rows[-1].due, rows[-1].id
            yield

    def _take(self, rows: list[Row], *, count: bool) -> None:
        if count:
            self.total += len(rows)
            start = self._start
            rows = [each for each in rows if start is None or (each.due, each.id) > start]
        room = self._limit - len(self.found)
        self.found += (
            ((each.due, self._name, self._index, each.id), self._delays, each)
            for each in rows[:room]
        )


def _start(after: _Place | None, name: str, index: int) -> tuple[int, int] | None:
    """Behind which of its messages a page begins in a partition; None for its first one."""
    if after is None:
        return None
    due, topic, partition, last = after
    if (name, index) < (topic, partition):
        return due, I64
    if (name, index) > (topic, partition):
        return due, -1
    return due, last


def _place_of(found: tuple[_Place, Delays, Row]) -> _Place:
    return found[0]


def _told(delays: Delays, each: Row) -> Result:
    return {
        "topic": delays.partition.topic.name,
        "partition": delays.partition.index,
        "id": each.id,
        "due_ms": each.due,
        "schedule": each.schedule,
        "key": each.key,
        "size": each.size,
        "taken_ms": each.taken,
    }


_WHOLE: Final = integer(0, I64)
_ID: Final = Parameter("id", text(32))
_MAYBE_ID: Final = Parameter("id", optional(text(32)), default=None)
_INDEX: Final = Parameter("partition", PARTITION)

DELAYED_OPERATIONS: Final[dict[str, Operation]] = table(
    Operation(
        "node.delayed_list",
        "cluster",
        False,
        (
            _MAYBE_ID,
            ANY_PARTITION,
            Parameter("choice", mapping, default={}),
            Parameter("limit", integer(1, MOST_STEP + 1)),
            Parameter("after", optional(row(_WHOLE, text(1024), PARTITION, _WHOLE)), default=None),
        ),
        DelayedMessages.delayed,
    ),
    Operation(
        "node.delayed_histogram",
        "cluster",
        False,
        (_MAYBE_ID, Parameter("edges", array(_WHOLE, 100))),
        DelayedMessages.delayed_histogram,
    ),
    Operation(
        "node.delayed_get",
        "cluster",
        False,
        (_ID, _INDEX, Parameter("delayed", _WHOLE)),
        DelayedMessages.delayed_message,
    ),
    Operation(
        "node.delayed_act",
        "cluster",
        True,
        (
            _ID,
            _INDEX,
            Parameter("ids", array(_WHOLE, MOST_IDS)),
            Parameter("act", choice(*ACTS)),
            Parameter("due_ms", optional(_WHOLE), default=None),
            Parameter("dry_run", boolean, default=False),
        ),
        DelayedMessages.act_on_delayed,
    ),
)
