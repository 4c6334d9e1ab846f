"""Single messages of the running channels of a broker: looking at them, and acting on them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import islice
from typing import Any, Final

from tinymq.broker.broker import Broker
from tinymq.broker.channel.acts import Act, act
from tinymq.broker.channel.whereabouts import Whereabouts, whereabouts
from tinymq.broker.glimpse import Glimpse, Glimpses
from tinymq.broker.hosted import Hosted
from tinymq.catalog.inflight import ACTS, MOST_OFFSETS, STATES
from tinymq.errors import StateError
from tinymq.meta.registry import Topic
from tinymq.node.flights import Flight, Search
from tinymq.node.hosting import tell, when_safe
from tinymq.node.members import Members, who
from tinymq.node.partitions import topic_key
from tinymq.node.turns import Turns
from tinymq.operation import DRY, PARTITION, Operation, Parameter, Result, table
from tinymq.wire.fields import I64, array, choice, integer, optional, row, text
from tinymq.wire.fields import PARTITION as PARTITION_FIELD

#: Bytes of a key, and of a value, that are told.
_KEY_SHOWN: Final = 256
_VALUE_SHOWN: Final = 200
#: Rows of one answer; an array of a message is not longer than 1024.
_MOST_ROWS: Final = 501


class InFlight:
    """What is done with single messages that are unsettled here."""

    _broker: Broker

    def channel_members(self, id: str, name: str) -> Result:  # noqa: A002 - the wire's word
        """Describe who takes messages of a channel here."""
        topic = self._broker.meta.registry.topic_of(topic_key(id))
        return {"members": Members(self._broker).rows(topic.id, name)}

    # --- looking at a channel ---------------------------------------------------------

    async def channel_peek(
        self,
        id: str,  # noqa: A002 - the wire's word
        name: str,
        partition: int | None,
        state: str,
        *,
        after: list[int] | None,
        limit: int,
    ) -> Result:
        """Look at unsettled messages in order of partition and offset, without any effect."""
        topic = self._topic(id, name)
        first = (-1, -1) if after is None else (after[0], after[1])
        glimpses, rows = Glimpses(), list[Result]()
        turns = Turns(self._broker.scheduler)
        for hosted in self._broker.channels.hosted_of(topic.id):
            if partition not in (None, hosted.index) or hosted.index < first[0]:
                continue
            if len(rows) >= limit:
                break
            if turns.over:
                await turns.next()
            start = first[1] + 1 if hosted.index == first[0] else 0
            rows += self._peek(hosted, name, start, state, limit - len(rows), glimpses)
        return {"messages": rows}

    def _peek(
        self, hosted: Hosted, name: str, start: int, state: str, limit: int, glimpses: Glimpses
    ) -> list[Result]:
        one = hosted.queue.channels.get(name)
        if one is None:
            return []
        now, end = self._broker.channels.now(), hosted.partition.stable_offset
        found = whereabouts(one.channel.places, start, end, now)
        singles = (
            (offset, run)
            for run in found
            if state in ("any", run.state)
            for offset in range(run.start, run.end)
        )
        page = list(islice(singles, limit))
        seen = glimpses.of(hosted.partition, [offset for offset, _ in page])
        return [_peeked(hosted.index, offset, run, seen.get(offset)) for offset, run in page]

    # --- what is in flight --------------------------------------------------------------

    async def in_flight(self, id: str | None, **wanted: Any) -> Result:  # noqa: A002 - the wire's word
        """List messages in the hands of consumers, the oldest first; and say how many there are."""
        found = self._search(wanted)
        await self._look(found, None if id is None else topic_key(id), wanted["name"])
        page = found.page()
        seen = self._glimpses(page)
        members = {flight.holder: self._who(flight.holder) for flight, _ in page}
        rows = [
            {
                "topic": flight.topic,
                "channel": flight.channel,
                "partition": flight.partition,
                "offset": offset,
                **members[flight.holder],
                "attempt": flight.attempt,
                "failures": flight.failures,
                "since_ms": flight.since,
                "deadline_ms": flight.deadline,
                "lease_ms": flight.lease_ms,
                "state": flight.state,
                **_record(seen.get((flight.topic, flight.partition, offset))),
            }
            for flight, offset in page
        ]
        return {"messages": rows, "total": found.total}

    def _search(self, wanted: Mapping[str, Any]) -> Search:
        client, after = wanted["client"], wanted["after"]
        latest = self._broker.channels.now() - wanted["older_ms"]

        @cache
        def holds(holder: str) -> bool:
            return client is None or self._who(holder)["client_id"] == client

        place = None if after is None else tuple(after)
        return Search(wanted["limit"], place, wanted["attempts"], latest, holds)

    async def _look(self, search: Search, topic_id: bytes | None, channel: str | None) -> None:
        """Look at all channels that are wanted, many of them in several turns of the reactor."""
        channels, turns = self._broker.channels, Turns(self._broker.scheduler)
        places = channels.all() if topic_id is None else channels.hosted_of(topic_id)
        for hosted in places:
            if turns.over:
                await turns.next()
            for name, one in hosted.queue.channels.items():
                idle = not one.channel.places.leases and not one.channel.overdue
                if not idle and channel in (None, name):
                    search.look(hosted, name, one, channels.now())

    def _who(self, holder: str) -> Result:
        facts = who(self._broker.channels.client_named(holder), self._broker)
        if self._broker.channels.subscription(holder) is None:
            facts["client"] = None
        del facts["agent"]
        return facts

    def _glimpses(self, page: list[tuple[Flight, int]]) -> dict[tuple[str, int, int], Glimpse]:
        glimpses = Glimpses()
        places: dict[tuple[str, int], list[int]] = {}
        for flight, offset in page:
            places.setdefault((flight.topic, flight.partition), []).append(offset)
        found: dict[tuple[str, int, int], Glimpse] = {}
        for (topic, index), offsets in places.items():
            known = self._broker.meta.registry.by_name.get(topic)
            partition = None if known is None else self._broker.held(known.id, index)
            if partition is not None:
                seen = glimpses.of(partition, sorted({*offsets}))
                found |= {(topic, index, offset): each for offset, each in seen.items()}
        return found

    # --- acting on it -------------------------------------------------------------------

    async def settle_in_flight(
        self,
        id: str,  # noqa: A002 - the wire's word
        name: str,
        partition: int,
        **wanted: Any,
    ) -> Result:
        """Do something with messages in the hands of consumers, and tell these what they lost."""
        topic = self._topic(id, name)
        hosted = self._broker.channels.hosted(topic.id, partition)
        one = None if hosted is None else hosted.queue.channels.get(name)
        if hosted is None or one is None:
            raise StateError(f"{name} is not open on partition {partition} of {topic.name}")
        verb, dry_run = wanted["act"], wanted["dry_run"]
        ms = wanted["extend_ms"] if verb == "extend" else wanted["delay_ms"]
        what = Act(verb, ms, wanted["reason"])
        now = self._broker.channels.now()
        acted = act(one.channel, wanted["offsets"], what, now, dry_run=dry_run)
        told = {"done": acted.done, "missing": acted.missing}
        if dry_run or not acted.done:
            return told
        tell(hosted, one, acted.lost)
        done: Result = await when_safe([hosted], told)
        return done

    def _topic(self, topic_id: str, name: str) -> Topic:
        registry = self._broker.meta.registry
        topic = registry.topic_of(topic_key(topic_id))
        registry.channel(topic.id, name)
        return topic


def _peeked(partition: int, offset: int, run: Whereabouts, seen: Glimpse | None) -> Result:
    value = None if seen is None or seen.value is None else seen.value[:_VALUE_SHOWN]
    return {
        "partition": partition,
        "offset": offset,
        "state": run.state,
        "attempt": run.attempt,
        "failures": run.failures,
        "due_ms": run.due,
        "deadline_ms": run.deadline,
        "time_ms": None if seen is None else seen.time,
        **_record(seen),
        "preview": value,
    }


def _record(seen: Glimpse | None) -> Result:
    if seen is None:
        return {"size": None, "key": None}
    key = None if seen.key is None else seen.key[:_KEY_SHOWN]
    return {"size": len(seen.value or b""), "key": key}


_ID: Final = Parameter("id", text(32))
_NAME: Final = Parameter("name", text(1024))
_WHOLE: Final = integer(0, I64)
_MOST: Final = Parameter("limit", integer(1, _MOST_ROWS))

INFLIGHT_OPERATIONS: Final[dict[str, Operation]] = table(
    Operation("node.channel_members", "cluster", False, (_ID, _NAME), InFlight.channel_members),
    Operation(
        "node.channel_peek",
        "cluster",
        False,
        (
            _ID,
            _NAME,
            PARTITION,
            Parameter("state", choice(*STATES), default="any"),
            Parameter("after", optional(row(_WHOLE, _WHOLE)), default=None),
            _MOST,
        ),
        InFlight.channel_peek,
    ),
    Operation(
        "node.in_flight",
        "cluster",
        False,
        (
            Parameter("id", optional(text(32)), default=None),
            Parameter("name", optional(text(1024)), default=None),
            Parameter("client", optional(text(1024)), default=None),
            Parameter("attempts", _WHOLE, default=1),
            Parameter("older_ms", _WHOLE, default=0),
            Parameter(
                "after",
                optional(row(_WHOLE, text(1024), text(1024), _WHOLE, _WHOLE)),
                default=None,
            ),
            _MOST,
        ),
        InFlight.in_flight,
    ),
    Operation(
        "node.settle_in_flight",
        "cluster",
        True,
        (
            _ID,
            _NAME,
            Parameter("partition", PARTITION_FIELD),
            Parameter("offsets", array(_WHOLE, MOST_OFFSETS)),
            Parameter("act", choice(*ACTS)),
            Parameter("delay_ms", _WHOLE, default=0),
            Parameter("extend_ms", optional(_WHOLE), default=None),
            Parameter("reason", text(200), default=""),
            DRY,
        ),
        InFlight.settle_in_flight,
    ),
)
