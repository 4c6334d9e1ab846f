"""
What a broker tells of its partitions, to everybody who follows them.

Each follower asks for what moved since it asked last, and hears of nothing
else: ten thousand idle topics cost nothing. Every move of a partition gets a
number; a follower keeps the number up to which it knows all, together with a
token of this start of the broker, so that a restart is noticed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tinymq.broker.broker import Broker
from tinymq.broker.partition import Partition
from tinymq.maps import from_map, to_map
from tinymq.stats import BrokerSnapshot, Counters, Gap, PartitionReport
from tinymq.storage.memory import MemoryLog

if TYPE_CHECKING:
    from tinymq.meta.registry import Topic

#: A topic's id, and the number of a partition.
Key = tuple[bytes, int]

#: Most rows of one answer over the wire; an array of a message is not longer than 1024.
MOST_ROWS: Final = 500
#: Partitions that are looked at in one turn: some 2 ms.
SLICE: Final = 250
#: Most partitions that went away and are still told of; more, and everybody starts anew.
MOST_GONE: Final = 10_000
#: Most damaged ranges of one partition that are told.
MOST_GAPS: Final = 100

#: Where the token of a start stands in a generation; below it are the moves.
_SHIFT: Final = 43
_MOVES: Final = (1 << _SHIFT) - 1
_TOKENS: Final = 1 << 19


class Row(NamedTuple):
    """What is told of one partition."""

    topic_id: bytes
    partition: int
    report: PartitionReport


class Taken(NamedTuple):
    """
    One page of what moved.

    Attributes:
        generation: Up to where the follower knows all, to be given back.
        more: Whether there is another page.
        rows: Partitions that moved, as they are now.
        gone: Partitions that are here no more.
    """

    generation: int
    more: bool
    rows: list[Row]
    gone: list[Key]


def boot_of(generation: int) -> int:
    """Return what is alike in all generations of one start of a broker; 0 is none."""
    return generation >> _SHIFT


class Reporter:
    """
    Makes reports of a broker's partitions.

    Args:
        broker: The domain; it has one reporter. Partitions that move stand in its
            `moved`, which is emptied here and nowhere else.
        token: Chooses the number of a start, below the one given.
    """

    def __init__(self, broker: Broker, token: Callable[[int], int] = secrets.randbelow) -> None:
        self._broker = broker
        self._token = token
        self._boot = 0
        self._count = 0
        #: The last move of every partition, also of those that are gone; in order of moves.
        self._at: dict[Key, int] = {}
        self._gone: set[Key] = set()
        self._oldest: dict[Key, tuple[int, int]] = {}
        self._begin()
        self._number(partition.key for partition in broker.partitions())
        broker.dropped = self._drop

    def _begin(self) -> None:
        """Let every follower start anew."""
        boot = self._boot
        while self._boot == boot:
            self._boot = 1 + self._token(_TOKENS)

    @property
    def generation(self) -> int:
        """The last move that was numbered."""
        return self._boot << _SHIFT | self._count

    def gather(self) -> int:
        """Number what moved meanwhile, and tell how much that was."""
        keys = [partition.key for partition in self._broker.moved]
        self._number(keys)
        self._broker.moved.clear()
        return len(keys)

    def _number(self, keys: Iterable[Key]) -> None:
        at, count = self._at, self._count
        for key in keys:
            count += 1
            at.pop(key, None)  # so that it stands last
            at[key] = count
        self._count = count

    def _drop(self, partition: Partition) -> None:
        self._number([partition.key])
        self._gone.add(partition.key)
        self._oldest.pop(partition.key, None)
        if len(self._gone) > MOST_GONE:
            self._forget_gone()

    def _forget_gone(self) -> None:
        for key in self._gone:
            del self._at[key]
        self._gone.clear()
        self._begin()

    def take(self, since: int, limit: int = MOST_ROWS) -> Taken:
        """
        Tell what moved.

        A follower that is still on its way hears of new moves only behind its
        last page, so that it arrives however busy the broker is.

        Args:
            since: The generation of the last page; 0, or one of another start,
                means that nothing is known.
            limit: Most partitions.
        """
        number = self._known(since)
        if number == 0 or number >= self._count:
            self.gather()
        pending = self._moved_since(number)
        rows: list[Row] = []
        gone: list[Key] = []
        for key in pending[:limit]:
            partition = self._broker.held(*key)
            if partition is None:
                gone.append(key)
            else:
                rows.append(Row(*key, self._report(partition)))
        if len(pending) <= limit:
            return Taken(self.generation, False, rows, gone)
        return Taken(self._boot << _SHIFT | self._at[pending[limit - 1]], True, rows, gone)

    def of_topic(self, topic: Topic, since: int) -> list[Row]:
        """
        Tell what moved of one topic, as it is now; it will stand on a page as well.

        Args:
            topic: Which.
            since: As for `take`.
        """
        number, at, moved = self._known(since), self._at, self._broker.moved
        held = (self._broker.held(topic.id, index) for index in range(topic.partitions))
        return [
            Row(*each.key, self._report(each))
            for each in held
            if each is not None and (each in moved or at[each.key] > number)
        ]

    def _known(self, since: int) -> int:
        """Return the move up to which a follower knows all; 0 if it knows nothing."""
        return since & _MOVES if boot_of(since) == self._boot else 0

    def _moved_since(self, number: int) -> list[Key]:
        """Find the partitions whose last move came later, in order of moves."""
        newer = len(list(takewhile(number.__lt__, reversed(self._at.values()))))
        return list(islice(reversed(self._at), newer))[::-1]

    def _report(self, partition: Partition) -> PartitionReport:
        log, failure, window = partition.log, partition.failure, partition.log.undo_window
        newest, counted = log.max_timestamp, partition.counters
        until, back = window or (None, 0)
        return PartitionReport(
            log.start_offset,
            partition.stable_offset,
            log.size_bytes,
            self._oldest_of(partition),
            newest if newest >= 0 else None,
            log.dropped_records if isinstance(log, MemoryLog) else 0,
            "" if failure is None else str(failure),
            until,
            back,
            tuple(
                Gap(first=gap.start, end=gap.end, reason=gap.reason)
                for gap in log.report.damaged[:MOST_GAPS]
            ),
            Counters(counted.records_in, counted.records_out, counted.bytes_in, counted.bytes_out),
            *delayed_of(partition),
        )

    def _oldest_of(self, partition: Partition) -> int | None:
        """Remember it while the start stays: it may have to be read from the disk."""
        log, key = partition.log, partition.key
        known = self._oldest.get(key)
        if known is not None and known[0] == log.start_offset:
            return known[1]
        if log.start_offset == log.end_offset:
            return None
        found = log.oldest_timestamp
        if found is not None:
            self._oldest[key] = log.start_offset, found
        return found


# --- over the wire -----------------------------------------------------------


def to_wire(taken: Taken, snapshot: BrokerSnapshot) -> dict[str, Any]:
    """
    Turn a page into what msgpack can hold.

    Args:
        taken: The page.
        snapshot: What the broker says of itself.
    """
    return {
        "generation": taken.generation,
        "more": taken.more,
        "rows": [_row_to_list(row) for row in taken.rows],
        "gone": [list(key) for key in taken.gone],
        "broker": to_map(snapshot),
    }


def from_wire(result: dict[str, Any]) -> tuple[Taken, BrokerSnapshot]:
    """
    Read what `to_wire` gave, maybe that of a newer broker, which says more.

    Args:
        result: The answer of another broker.

    Raises:
        ValueError: It is no such thing.
    """
    try:
        taken = Taken(
            int(result["generation"]),
            bool(result["more"]),
            [_row_from_list(row) for row in result["rows"]],
            [(bytes(key[0]), int(key[1])) for key in result["gone"]],
        )
        return taken, from_map(result["broker"], BrokerSnapshot)
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError(f"this is no report of a broker: {error!r}") from error


def delayed_of(partition: Partition) -> tuple[int, int, int | None]:
    """
    Count what waits in a partition until it is due.

    Args:
        partition: The partition.

    Returns:
        How many messages are not due yet, how many are due and not out, and how late 99 of
        100 that came were at most, in milliseconds.
    """
    delays = partition.delays
    if delays is None:
        return 0, 0, None
    overdue = len(delays.memory.ready)
    late = delays.releasing.lateness.share(0.99)
    return max(0, delays.memory.count - overdue), overdue, late


def _row_to_list(row: Row) -> list[Any]:
    *plain, gaps, counters, delayed, overdue, late = row.report
    ranges = [[gap.first, gap.end, gap.reason] for gap in gaps]
    told = [delayed, overdue, late]
    return [row.topic_id, row.partition, *plain, ranges, list(counters), told]


_MAYBE: Final = (int, type(None))
#: What stands in the fields of a report before its gaps and its counters.
_PLAIN: Final[tuple[Any, ...]] = (int, int, int, _MAYBE, _MAYBE, int, str, _MAYBE, int)


def _row_from_list(row: list[Any]) -> Row:
    topic_id, partition, *fields = row
    plain, (ranges, counted, *later) = fields[: len(_PLAIN)], fields[len(_PLAIN) :]
    # An older broker does not tell of delayed messages.
    delayed, overdue, late, *_ = later[0] if later else (0, 0, None)
    counters = Counters(*counted[: len(Counters._fields)])
    numbers = (partition, *counters, delayed, overdue, 0 if late is None else late)
    if not all(map(isinstance, plain, _PLAIN)) or not all(type(each) is int for each in numbers):
        raise ValueError(f"this is no report of a partition: {row!r:.200}")
    gaps = tuple(Gap(first=first, end=end, reason=reason) for first, end, reason, *_ in ranges)
    report: PartitionReport = PartitionReport._make(
        (*plain, gaps, counters, delayed, overdue, late)
    )
    return Row(bytes(topic_id), partition, report)
