"""Messages that wait for their next attempt in the channels of a broker's partitions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from heapq import nsmallest
from typing import Any, Final

from tinymq.broker.broker import Broker
from tinymq.broker.channel.history import History
from tinymq.broker.channel.places import Places, Waiting
from tinymq.broker.channel.queue import Subscribers
from tinymq.broker.channel.runs import offsets_in
from tinymq.broker.glimpse import Glimpse, Glimpses
from tinymq.broker.hosted import Hosted
from tinymq.catalog.inflight import MOST_OFFSETS
from tinymq.errors import StateError
from tinymq.meta.registry import Topic
from tinymq.node.hosting import when_safe
from tinymq.node.partitions import topic_key
from tinymq.node.turns import Turns
from tinymq.operation import DRY, PARTITION, Operation, Parameter, Result, table
from tinymq.wire.fields import I64, array, integer, optional, row, text
from tinymq.wire.fields import PARTITION as PARTITION_FIELD

#: Messages that are looked at together for their keys.
_TOGETHER: Final = 500
#: Bytes of a key that are told.
_KEY_SHOWN: Final = 256

#: When a message comes, its partition, its offset.
_Place = tuple[int, int, int]


class Retries:
    """What is done with messages that wait for their next attempt; only here."""

    _broker: Broker

    async def retries(
        self,
        id: str,  # noqa: A002 - the wire's word
        name: str,
        partition: int | None,
        limit: int,
        after: _Place | None,
        **choice: Any,
    ) -> Result:
        """List messages in order of their time, and count all that fit."""
        topic, key = self._topic_of(id, name), choice.pop("key")
        turns, glimpses = Turns(self._broker.scheduler), Glimpses()
        wanted = None if key is None else key.encode()
        found: list[tuple[_Place, History, Glimpse | None]] = []
        total = 0
        for hosted, one in self._channels(topic, name):
            if partition not in (None, hosted.index):
                continue
            if turns.over:
                await turns.next()
            groups = _chosen(one.channel.places, **choice)
            if wanted is None:
                total += sum(bits.bit_count() for _, _, bits, _ in groups)
                rows = _rows(_first(groups, hosted.index, limit, after), hosted.index)
            else:
                rows = _of_key(hosted, _rows(groups, hosted.index), wanted, glimpses)
                total += len(rows)
            behind = (each for each in rows if after is None or each[0] > tuple(after))
            page = nsmallest(limit, behind)
            seen = glimpses.of(hosted.partition, sorted(place[2] for place, _ in page))
            found += ((place, past, seen.get(place[2])) for place, past in page)
        found.sort(key=lambda each: each[0])
        messages = [_told(topic.name, name, *each) for each in found[:limit]]
        return {"messages": messages, "total": total}

    async def retry_histogram(self, id: str, name: str, edges: list[int]) -> Result:  # noqa: A002
        """Count messages between times."""
        counts = [0] * (len(edges) - 1)
        overdue, first = 0, list[int]()
        turns = Turns(self._broker.scheduler)
        for _, one in self._channels(self._topic_of(id, name), name):
            if turns.over:
                await turns.next()
            for due, _, bits, _ in one.channel.places.waiting:
                place = bisect_right(edges, due) - 1
                if place < 0:
                    overdue += bits.bit_count()
                elif place < len(counts):
                    counts[place] += bits.bit_count()
            first += (each[0] for each in one.channel.places.waiting[:1])
        return {"counts": counts, "overdue": overdue, "next_ms": min(first, default=None)}

    async def reschedule(
        self,
        id: str,  # noqa: A002 - the wire's word
        name: str,
        partition: int,
        offsets: list[int],
        due_ms: int | None,
        *,
        dry_run: bool,
    ) -> Result:
        """Let messages come now, or at another time."""
        topic = self._topic_of(id, name)
        hosted = self._broker.channels.hosted(topic.id, partition)
        one = None if hosted is None else hosted.queue.channels.get(name)
        if hosted is None or one is None:
            raise StateError(f"{name} is not open on partition {partition} of {topic.name}")
        now = self._broker.channels.now()
        due = now if due_ms is None else max(now, due_ms)
        done = one.steering.reschedule(offsets, due, now, dry_run=dry_run)
        told = {"done": done, "missing": sorted({*offsets}.difference(done))}
        if dry_run or not done:
            return told
        hosted.mark()
        safe: Result = await when_safe([hosted], told)
        return safe

    def _topic_of(self, topic_id: str, name: str) -> Topic:
        registry = self._broker.meta.registry
        topic = registry.topic_of(topic_key(topic_id))
        registry.channel(topic.id, name)
        return topic

    def _channels(self, topic: Topic, name: str) -> Iterator[tuple[Hosted, Subscribers]]:
        for hosted in self._broker.channels.hosted_of(topic.id):
            one = hosted.queue.channels.get(name)
            if one is not None:
                yield hosted, one


def _chosen(places: Places, since_ms: int | None, until_ms: int | None) -> list[Waiting]:
    """Return the groups of messages that wait and come between times, in no order."""
    low, high = since_ms or 0, I64 if until_ms is None else until_ms
    return [each for each in places.waiting if low <= each[0] < high]


def _first(
    groups: list[Waiting], index: int, limit: int, after: _Place | None
) -> Iterable[Waiting]:
    """Leave out groups that cannot have one of the first messages behind a place."""
    if after is not None:
        due, home, last = after
        groups = [
            each
            for each in groups
            if (each[0], index, each[1] + each[2].bit_length() - 1) > (due, home, last)
        ]
    near = nsmallest(limit, groups)
    if len(near) < limit:
        return near
    due = near[-1][0]
    # Offsets of groups that come together may lie between one another.
    end = max(base + bits.bit_length() for at, base, bits, _ in near if at == due)
    return (each for each in groups if each[:2] < (due, end))


def _rows(groups: Iterable[Waiting], index: int) -> list[tuple[_Place, History]]:
    """Write groups out, message by message."""
    return [
        ((due, index, offset), history)
        for due, base, bits, history in groups
        for offset in offsets_in(base, bits)
    ]


def _of_key(
    hosted: Hosted, rows: list[tuple[_Place, History]], key: bytes, glimpses: Glimpses
) -> list[tuple[_Place, History]]:
    """Leave out what has another key; of very many, those that come first are looked at."""
    found: list[tuple[_Place, History]] = []
    rows.sort()
    for at in range(0, len(rows), _TOGETHER):
        some = rows[at : at + _TOGETHER]
        seen = glimpses.of(hosted.partition, sorted(place[2] for place, _ in some))
        found += (each for each in some if _key(seen.get(each[0][2])) == key)
    return found


def _key(seen: Glimpse | None) -> bytes | None:
    return None if seen is None else seen.key


def _told(
    topic: str, channel: str, place: _Place, past: History, seen: Glimpse | None
) -> Mapping[str, Any]:
    due, index, offset = place
    key = _key(seen)
    return {
        "topic": topic,
        "channel": channel,
        "partition": index,
        "offset": offset,
        "due_ms": due,
        "attempt": past.deliveries,
        "key": None if key is None else key[:_KEY_SHOWN],
        "size": 0 if seen is None else len(seen.value or b""),
        "taken_ms": None if seen is None else seen.time,
    }


_ID: Final = Parameter("id", text(32))
_NAME: Final = Parameter("name", text(1024))
_WHOLE: Final = integer(0, I64)
_MAYBE: Final = optional(_WHOLE)

RETRY_OPERATIONS: Final[dict[str, Operation]] = table(
    Operation(
        "node.retries",
        "cluster",
        False,
        (
            _ID,
            _NAME,
            PARTITION,
            Parameter("key", optional(text(1 << 16)), default=None),
            Parameter("since_ms", _MAYBE, default=None),
            Parameter("until_ms", _MAYBE, default=None),
            Parameter("limit", integer(1, 501)),
            Parameter("after", optional(row(_WHOLE, _WHOLE, _WHOLE)), default=None),
        ),
        Retries.retries,
    ),
    Operation(
        "node.retry_histogram",
        "cluster",
        False,
        (_ID, _NAME, Parameter("edges", array(_WHOLE, 100))),
        Retries.retry_histogram,
    ),
    Operation(
        "node.reschedule",
        "cluster",
        True,
        (
            _ID,
            _NAME,
            Parameter("partition", PARTITION_FIELD),
            Parameter("offsets", array(_WHOLE, MOST_OFFSETS)),
            Parameter("due_ms", _MAYBE, default=None),
            DRY,
        ),
        Retries.reschedule,
    ),
)
