"""Positions of a group, without being a member."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Any, NamedTuple

from tinymq.client.core.cluster import Cluster
from tinymq.client.core.group.asking import Asking, Commit, Found, Question, Spot, TakeOver
from tinymq.client.core.metadata import TopicInfo
from tinymq.client.core.starts import Mark
from tinymq.errors import ClosedError, TinyMQError, UnknownPartition, UsageError
from tinymq.names import valid_name
from tinymq.wire.messages import NOTE_BYTES

#: Whose commit is nobody's: no member's.
_NOBODY = -1


class CommittedPosition(NamedTuple):
    """
    What a group has committed in one partition.

    Attributes:
        offset: The first one that was not handled, or -1 if nothing was committed.
        epoch: Epoch of the record before it, or -1.
        note: What was committed with it.
        time_ms: When, milliseconds since the epoch, or -1.
        start: The first offset that can be read.
        end: The offset behind the last one that can be read.
    """

    offset: int
    epoch: int
    note: str
    time_ms: int
    start: int
    end: int

    @property
    def mark(self) -> Mark | None:
        """Where to go on, as a start for `Consumer.assign`; None if nothing was committed."""
        return None if self.offset < 0 else Mark(self.offset, self.epoch)

    @property
    def lag(self) -> int:
        """Offsets from there to the end; from the start, if nothing was committed."""
        return max(0, self.end - max(self.offset, self.start))


#: Told what was found by partition, or why not.
Known = Callable[[dict[int, CommittedPosition] | None, TinyMQError | None], None]
#: What may be committed: an offset, or one with its epoch.
Offset = int | Mark | tuple[int, int]
#: What is asked of a partition, and what is answered, as it travels.
_Row = tuple[Any, ...]


class PositionCalls:
    """
    Asks for positions, and commits some.

    Args:
        cluster: The brokers.
        group: Name of the group.
    """

    def __init__(self, cluster: Cluster, group: str) -> None:
        self.group = valid_name(group)
        self._cluster = cluster

    def committed(
        self, topic: str, partitions: Iterable[int] | None, known: Known, now: float
    ) -> float:
        """
        Ask what was committed.

        Args:
            topic: Name of the topic.
            partitions: Which; None means all.
            known: Told once.
            now: The time.

        Returns:
            When it is given up.
        """
        rows = None if partitions is None else {one: (one, _NOBODY) for one in partitions}

        def told(found: dict[int, _Row] | None, error: TinyMQError | None) -> None:
            rows = None
            if found is not None:
                rows = {one: CommittedPosition(*row[1:7]) for one, row in sorted(found.items())}
            known(rows, error)

        return _Call(self._cluster, TakeOver(self.group), rows, told).start(topic, now)

    def commit(
        self,
        topic: str,
        positions: Mapping[int, Offset],
        note: str,
        done: Callable[[TinyMQError | None], None],
        now: float,
    ) -> float:
        """
        Commit positions.

        Args:
            topic: Name of the topic.
            positions: By partition.
            note: Goes with them.
            done: Told once.
            now: The time.

        Returns:
            When it is given up.

        Raises:
            UsageError: A position is none, or the note is too long.
        """
        if len(note.encode()) > NOTE_BYTES:
            raise UsageError(f"a note has at most {NOTE_BYTES} bytes")
        rows = {one: (one, _NOBODY, *_mark(place), note) for one, place in positions.items()}

        def told(_: dict[int, _Row] | None, error: TinyMQError | None) -> None:
            done(error)

        return _Call(self._cluster, Commit(self.group), rows, told).start(topic, now)


class _Call:
    """One question about partitions of one topic, of which the first failure is the answer."""

    def __init__(
        self,
        cluster: Cluster,
        question: Question,
        rows: dict[int, _Row] | None,
        told: Callable[[dict[int, _Row] | None, TinyMQError | None], None],
    ) -> None:
        self._cluster = cluster
        self._question = question
        self._rows = rows
        self._told = told
        self._answers: dict[int, _Row] = {}
        self._spots: dict[Spot, _Row] = {}
        self._asking: Asking | None = None
        self._deadline = inf

    def start(self, topic: str, now: float) -> float:
        """Look the topic up, and ask."""
        self._deadline = now + self._cluster.config.deadline_s
        self._cluster.topic(topic, self._deadline, self._found, now)
        return self._deadline

    def _found(self, info: TopicInfo | None, error: TinyMQError | None, now: float) -> None:
        if info is None:
            self._told(None, error or ClosedError("the client was closed"))
            return
        rows = self._rows
        if rows is None:
            rows = {one: (one, _NOBODY) for one in range(info.partitions)}
        for number in rows:
            if not 0 <= number < info.partitions:
                self._told(None, _no_partition(info, number))
                return
        self._spots = {Spot(info.name, info.id, number): row for number, row in rows.items()}
        if not rows:
            self._told({}, None)
            return
        self._asking = Asking(self._cluster, self._question, self._heard, self._deadline)
        self._asking.start(self._spots, now)

    def _heard(self, several: list[Found], now: float) -> None:
        for one in several:
            if one.error is not None:
                asking, self._asking = self._asking, None
                if asking is not None:
                    asking.cancel(list(self._spots))
                    self._told(None, one.error)
                return
            self._answers[one.spot.partition] = one.row
        if len(self._answers) == len(self._spots):
            self._told(self._answers, None)


def _mark(given: Offset) -> Mark:
    mark = Mark(given) if isinstance(given, int) else Mark(*given)
    if type(mark.offset) is not int or mark.offset < 0 or mark.epoch < -1:
        raise UsageError(f"a position is an offset, or a Mark, not {given!r:.100}")
    return mark


def _no_partition(info: TopicInfo, partition: int) -> TinyMQError:
    return UnknownPartition(
        f"topic {info.name} has {info.partitions} partitions and no number {partition}",
        topic=info.name,
        partition=partition,
    )
