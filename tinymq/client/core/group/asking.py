"""
One question about many partitions: each leader is asked for its own, and again where
that may help. COMMIT and COMMITTED are asked so, by members and by others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Any, NamedTuple, Protocol

from tinymq.client.core.cluster import Cluster
from tinymq.client.core.lookups import may_repeat
from tinymq.client.core.metadata import TopicInfo
from tinymq.client.core.starts import EARLIEST, LATEST, At, Mark, Place
from tinymq.errors import (
    ClientError,
    ClosedError,
    DeadlineExceeded,
    NotLeader,
    TinyMQError,
    UnknownPartition,
    UnknownTopic,
    UnknownTopicId,
)
from tinymq.wire.frames import Bytes
from tinymq.wire.messages import Commit as CommitRequest
from tinymq.wire.messages import Committed, Message, error_from_meta

#: Errors after which the topic must be looked up anew.
_MOVED = (UnknownTopicId, UnknownTopic, UnknownPartition)


class Spot(NamedTuple):
    """
    A partition, of the topic that bore the name when it was looked up.

    Attributes:
        topic: Name of the topic.
        id: Its identity.
        partition: Number of the partition.
    """

    topic: str
    id: bytes
    partition: int


class Found(NamedTuple):
    """
    What a leader said of a partition.

    Attributes:
        spot: Which one.
        row: Its row of the answer, or None.
        error: Why there is none, or None.
    """

    spot: Spot
    row: Any
    error: TinyMQError | None


class Question(Protocol):
    """What is asked."""

    def message(self, rows: list[tuple[bytes, list[Any]]]) -> Message:
        """Make the request to one leader."""


class Asking:
    """
    A question on its way.

    Args:
        cluster: The brokers.
        question: What is asked.
        told: Called with what is known for good, and the time, perhaps several times;
            once for every partition.
        deadline: When to give up.

    Attributes:
        wake_at: When `tick` has something to do.
    """

    def __init__(
        self,
        cluster: Cluster,
        question: Question,
        told: Callable[[list[Found], float], None],
        deadline: float = inf,
    ) -> None:
        self.wake_at = deadline
        self._cluster = cluster
        self._question = question
        self._told = told
        self._deadline = deadline
        self._left: dict[Spot, Any] = {}
        #: Those that no request is on its way for.
        self._idle: set[Spot] = set()
        self._why: dict[Spot, TinyMQError] = {}
        self._attempt = 0

    def start(self, rows: Mapping[Spot, Any], now: float) -> None:
        """
        Ask.

        Args:
            rows: What is asked of each partition, as it travels.
            now: The time.
        """
        self._left.update(rows)
        self._idle.update(rows)
        self._cluster.add(self)
        self._send(now)

    def cancel(self, spots: Iterable[Spot]) -> None:
        """
        Ask no more of some partitions; nothing is told of them.

        Args:
            spots: Which.
        """
        for spot in spots:
            self._left.pop(spot, None)
            self._idle.discard(spot)
        self._rest()

    # --- the cluster's calls ---------------------------------------------------

    def tick(self, now: float) -> None:
        """
        Ask for what is missing, or give up.

        Args:
            now: The time.
        """
        self.wake_at = self._deadline
        if now >= self._deadline:
            late = DeadlineExceeded("no answer within the deadline")
            self._tell([Found(spot, None, self._why.get(spot, late)) for spot in self._left], now)
        else:
            self._send(now)

    def link_changed(self, now: float) -> None:
        """Do nothing: requests wait for their links by themselves."""

    def topics_changed(self, now: float) -> None:
        """
        Ask those whose leader may be known now.

        Args:
            now: The time.
        """
        if self._idle:
            self._send(now)

    def cluster_closed(self, now: float) -> None:
        """
        End.

        Args:
            now: The time.
        """
        error = ClosedError("the client was closed")
        self._tell([Found(spot, None, error) for spot in self._left], now)

    # --- inside ----------------------------------------------------------------

    def _send(self, now: float) -> None:
        metadata = self._cluster.metadata
        by_leader: dict[int | None, list[Spot]] = {}
        away = False
        for spot in sorted(self._idle):
            leader = metadata.leader(spot.topic, spot.partition)
            if leader == -1:
                self._why[spot] = metadata.leaderless(spot.topic, spot.partition)
                away = True
            else:
                by_leader.setdefault(leader, []).append(spot)
        if away:
            self._later(now)
            self._cluster.refresh(now)
        for leader, spots in by_leader.items():
            self._idle.difference_update(spots)
            self._ask(leader, spots, now)

    def _ask(self, leader: int | None, spots: list[Spot], now: float) -> None:
        topics: dict[bytes, list[Any]] = {}
        for spot in spots:
            topics.setdefault(spot.id, []).append(self._left[spot])
        message = self._question.message(list(topics.items()))
        asked = {(spot.id, spot.partition): spot for spot in spots}

        def told(reply: Any, _payload: Bytes, error: TinyMQError | None, now: float) -> None:
            rows = {}
            if error is None:
                rows = {(one, row[0]): row for one, many in reply.topics for row in many}
            self._answered(asked, rows, error, now)

        until = min(self._deadline, now + self._cluster.config.request_timeout_s)
        link = self._cluster.link(leader)
        link.request(message.type, message.to_meta(), (), until, told, now)

    def _answered(
        self,
        asked: dict[tuple[bytes, int], Spot],
        rows: dict[tuple[bytes, int], Any],
        error: TinyMQError | None,
        now: float,
    ) -> None:
        known: list[Found] = []
        again = False
        for key, spot in asked.items():
            if spot not in self._left:
                continue
            row: Any = rows.get(key)
            why = error
            if row is not None and row[-1] is not None:
                row, why = None, error_from_meta(row[-1])
            elif row is None and why is None:
                why = UnknownPartition("the broker said nothing of this partition")
            if why is None:
                known.append(Found(spot, row, None))
            elif isinstance(why, _MOVED):
                self._look(spot, why, now)
            elif may_repeat(why) and not self._cluster.closed:
                self._why[spot] = why
                self._idle.add(spot)
                again = True
                if isinstance(why, (NotLeader, ClientError)):
                    self._cluster.refresh(now)
            else:
                known.append(Found(spot, None, why))
        if again:
            self._later(now)
        self._tell(known, now)

    def _look(self, spot: Spot, error: TinyMQError, now: float) -> None:
        """Look the topic up: a broker that lags behind may not have heard of it yet."""
        self._why[spot] = error

        def found(info: TopicInfo | None, wrong: TinyMQError | None, now: float) -> None:
            if spot not in self._left:
                return
            same = info is not None and info.id == spot.id and spot.partition < info.partitions
            if same or (info is None and not isinstance(wrong, _MOVED)):
                self._idle.add(spot)
                self._later(now)
            else:
                self._tell([Found(spot, None, error)], now)

        deadline = min(self._deadline, now + self._cluster.config.deadline_s)
        self._cluster.topic(spot.topic, deadline, found, now, fresh=True)

    def _later(self, now: float) -> None:
        self._attempt += 1
        delay = self._cluster.config.backoff.delay(self._attempt, self._cluster.chance())
        self.wake_at = min(self.wake_at, now + delay)

    def _tell(self, known: list[Found], now: float) -> None:
        for one in known:
            self._left.pop(one.spot, None)
            self._idle.discard(one.spot)
        self._rest()
        if known:
            self._told(known, now)

    def _rest(self) -> None:
        if not self._left:
            self.wake_at = inf
            self._cluster.remove(self)


class TakeOver:
    """
    Where a group goes on; with a member, it takes the partitions over.

    Args:
        group: Name of the group.
        member: Who asks, or ``""``.
        start: What is committed by taking over where nothing was; None commits nothing.
    """

    def __init__(self, group: str, member: str = "", start: Place | None = None) -> None:
        self._group = group
        self._member = member
        self._start = None if start is None else _said(start)

    def message(self, rows: list[tuple[bytes, list[Any]]]) -> Message:
        """
        Make the request to one leader.

        Args:
            rows: Topic ids, and rows of partition and generation.
        """
        return Committed(group=self._group, member=self._member, topics=rows, start=self._start)


def _said(start: Place) -> str | int:
    """A start as it travels."""
    if isinstance(start, At):
        return f"@{start.ms}"
    if isinstance(start, Mark):
        return start.offset
    return {LATEST: "latest", EARLIEST: "earliest"}.get(start, start)


class Commit:
    """
    How far a group has read.

    Args:
        group: Name of the group.
        member: Who commits, or ``""``.
    """

    def __init__(self, group: str, member: str = "") -> None:
        self._group = group
        self._member = member

    def message(self, rows: list[tuple[bytes, list[Any]]]) -> Message:
        """
        Make the request to one leader.

        Args:
            rows: Topic ids, and rows of partition, generation, offset, epoch and note.
        """
        return CommitRequest(group=self._group, member=self._member, topics=rows)


__all__ = ["Asking", "Commit", "Found", "Spot", "TakeOver"]
