"""
Bringing decisions to the partitions that wait for them, on whichever broker those are.

What cannot be brought is tried again until it is done: a broker that is away is waited
for. Decisions for partitions of one broker travel together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from attrs import define
from twisted.logger import Logger

from tinymq.broker.transactions.deciding import Decided, Place
from tinymq.broker.transactions.opened import Identity
from tinymq.errors import UnknownTopicId, WireError
from tinymq.wire.messages import error_from_meta, error_meta

if TYPE_CHECKING:
    from tinymq.broker.broker import Broker
    from tinymq.broker.ports import Timer

#: Seconds until what failed is tried again: at first, and at most.
AGAIN_SECONDS: Final = 0.1
MOST_SECONDS: Final = 5.0
#: Decisions that travel together.
MOST_TOGETHER: Final = 500
#: A topic that nobody has heard of for so many seconds will not come any more.
UNKNOWN_SECONDS: Final = 600.0


@define(eq=False)
class _Way:
    """A decision on its way to a partition."""

    row: Decided
    done: Callable[[Place], None]
    since: float


class _Line:
    """What goes to one broker, in order."""

    __slots__ = ("again", "busy", "pause", "resting", "ways")

    def __init__(self) -> None:
        self.ways: dict[tuple[Place, Identity], _Way] = {}
        self.busy = False
        #: What failed, and is tried again after a pause; it keeps no other from going.
        self.resting: list[_Way] = []
        self.pause = 0.0
        self.again: Timer | None = None


class Bringing:
    """
    Brings decisions to partitions.

    Args:
        broker: The broker that decided.
    """

    _log = Logger()

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._lines: dict[int, _Line] = {}
        self._closed = False

    def bring(
        self,
        identity: Identity,
        places: Iterable[Place],
        done: Callable[[Place], None],
        *,
        commit: bool,
    ) -> None:
        """
        Bring a decision to partitions.

        Args:
            identity: The transaction.
            places: The partitions.
            done: Called once for each, when it has done what was decided, or is no more.
            commit: Whether it counts.
        """
        now = self._broker.scheduler.seconds()
        touched: dict[int, None] = {}
        for place in places:
            way = _Way(Decided(place, identity, commit), done, now)
            leader = self._put(way)
            if leader is not None:
                touched[leader] = None
        for leader in touched:
            self._go_on(leader)

    def close(self) -> None:
        """Bring nothing any more."""
        self._closed = True
        for line in self._lines.values():
            if line.again is not None and line.again.active():
                line.again.cancel()
        self._lines.clear()

    def _put(self, way: _Way) -> int | None:
        """Put a decision into the line of the partition's leader; tell which that is."""
        topic_id, index = way.row.place
        registry = self._broker.meta.registry
        topic = registry.topics.get(topic_id)
        waited = self._broker.scheduler.seconds() - way.since
        if topic is None and topic_id not in registry.deleted and waited < UNKNOWN_SECONDS:
            leader = 0  # it may be so new that it was not heard of here
        elif topic is None or index >= topic.partitions:
            way.done(way.row.place)
            return None
        else:
            leader = topic.leaders[index]
        line = self._lines.setdefault(leader, _Line())
        line.ways[way.row.place, way.row.identity] = way
        return leader

    def _go_on(self, leader: int) -> None:
        line = self._lines.get(leader)
        if line is None or line.busy or self._closed:
            return
        ways = [*islice(line.ways.values(), MOST_TOGETHER)]
        if not ways:
            if line.again is None:
                del self._lines[leader]
            return
        line.busy = True
        told = partial(self._told, leader, line, ways)
        if not leader:
            told([UnknownTopicId("it is not known yet")] * len(ways))
        elif leader == self._broker.id:
            self._broker.deciding.decide_all([each.row for each in ways], told)
        else:
            rows = [written(each.row) for each in ways]
            answered = partial(self._answered, ways, told)
            self._broker.neighbours.ask(leader, "node.decide", {"rows": rows}, answered)

    @staticmethod
    def _answered(
        ways: Sequence[_Way],
        told: Callable[[Sequence[WireError | None]], None],
        result: dict[str, object] | WireError,
    ) -> None:
        if isinstance(result, WireError):
            told([result] * len(ways))
        else:
            told(failures(result, len(ways)))

    def _told(
        self, leader: int, line: _Line, ways: Sequence[_Way], found: Sequence[WireError | None]
    ) -> None:
        line.busy = False
        if self._closed:
            return
        failed: WireError | None = None
        for way, error in zip(ways, found, strict=True):
            del line.ways[way.row.place, way.row.identity]
            if error is None:
                way.done(way.row.place)
            else:
                failed = error
                line.resting.append(way)
        if failed is not None:
            self._log.debug("decisions wait for broker {id}: {error}", id=leader, error=failed)
            if line.again is None:
                line.pause = min(MOST_SECONDS, 2 * line.pause or AGAIN_SECONDS)
                line.again = self._broker.scheduler.callLater(line.pause, self._again, line)
        elif not line.resting:
            line.pause = 0.0
        self._go_on(leader)

    def _again(self, line: _Line) -> None:
        line.again = None
        resting, line.resting = line.resting, []
        # Their leaders may be others by now, or their topics gone.
        for leader in dict.fromkeys(map(self._put, resting)):
            if leader is not None:
                self._go_on(leader)


def written(row: Decided) -> list[object]:
    """
    Write a decision as it travels between brokers.

    Args:
        row: The decision.
    """
    topic_id, index = row.place
    return [topic_id.hex(), index, *row.identity, row.commit]


def outcome(found: Sequence[WireError | None]) -> dict[str, object]:
    """
    Write what became of decisions as it travels.

    Args:
        found: For each nothing, or what is wrong.
    """
    failed = [[at, error_meta(error)] for at, error in enumerate(found) if error is not None]
    return {"failed": failed}


def failures(result: dict[str, object], count: int) -> list[WireError | None]:
    """
    Read what became of decisions.

    Args:
        result: From `outcome`.
        count: How many there were.
    """
    found: list[WireError | None] = [None] * count
    failed = result["failed"]
    assert isinstance(failed, list), failed
    for at, meta in failed:
        found[at] = error_from_meta(meta)
    return found
