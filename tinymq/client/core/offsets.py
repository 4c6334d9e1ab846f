"""Ask for offsets of a whole topic: earliest, latest, or by time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Any

from attrs import frozen

from tinymq.client.core.cluster import Cluster
from tinymq.client.core.lookups import may_repeat
from tinymq.client.core.metadata import TopicInfo
from tinymq.errors import (
    ClientError,
    ClosedError,
    TinyMQError,
    UnknownPartition,
    UnknownTopicId,
)
from tinymq.wire.frames import Bytes
from tinymq.wire.messages import Offsets, error_from_meta

#: Told partition -> offset, or why not.
Known = Callable[[dict[int, int] | None, TinyMQError | None], None]
#: What a leader says that lags behind, or of a topic that is gone: the metadata decide.
_MOVED = (UnknownTopicId, UnknownPartition)


@frozen
class Survey:
    """
    What was found of a topic of which some brokers may be silent.

    Attributes:
        offsets: By partition.
        faults: Why the others are not known, by partition.
    """

    offsets: dict[int, int]
    faults: dict[int, TinyMQError]


class OffsetSearch:
    """
    One question to all leaders of a topic, repeated where that may help.

    Args:
        cluster: The brokers.
        deadline: When to give up.
        done: Told once.
        partial: Whether one partition may fail while the others go on; one without
            a live leader is not waited for then.

    Attributes:
        found: The offset of each partition whose leader answered.
        faults: Why the others are not known.
        wake_at: When `tick` has something to do.
    """

    def __init__(
        self, cluster: Cluster, deadline: float, done: Known, *, partial: bool = False
    ) -> None:
        self.found: dict[int, int] = {}
        self.faults: dict[int, TinyMQError] = {}
        self.wake_at = inf
        self._partial = partial
        self._cluster = cluster
        self._deadline = deadline
        self._done: Known | None = done
        self._topic = ""
        self._query = 0
        self._left: set[int] | None = None
        self._open = 0
        self._attempt = 0
        self._id: bytes | None = None
        self._why: TinyMQError | None = None

    def start(self, topic: str, partitions: Iterable[int] | None, query: int, now: float) -> None:
        """
        Ask.

        Args:
            topic: Name of the topic.
            partitions: Which; None means all.
            query: `EARLIEST`, `LATEST`, or milliseconds since the epoch.
            now: The time.
        """
        self._topic, self._query = topic, query
        self._left = None if partitions is None else set(partitions)
        self._cluster.add(self)
        self._cluster.topic(topic, self._deadline, self._look, now)

    # --- the cluster's calls ---------------------------------------------------

    def tick(self, now: float) -> None:
        """
        Ask for what is missing, or give up.

        Args:
            now: The time.
        """
        self.wake_at = inf
        if now >= self._deadline:
            self._end(self._why)
        else:
            self._cluster.topic(self._topic, self._deadline, self._look, now, fresh=True)

    def link_changed(self, now: float) -> None:
        """Do nothing: requests wait for their links by themselves."""

    def topics_changed(self, now: float) -> None:
        """Do nothing: the next attempt takes what is known then."""

    def cluster_closed(self, now: float) -> None:
        """
        End.

        Args:
            now: The time.
        """
        self._end(ClosedError("the client was closed"))

    # --- inside ----------------------------------------------------------------

    def _look(self, info: TopicInfo | None, error: TinyMQError | None, now: float) -> None:
        if info is None:
            self._end(error)
            return
        if isinstance(self._why, _MOVED) and info.id != self._id:
            self._end(self._why)  # made anew in the meantime
            return
        if self._left is None:
            self._left = set(range(info.partitions))
        by_leader: dict[int | None, list[tuple[int, int]]] = {}
        for number in sorted(self._left):
            leader = info.leaders[number] if 0 <= number < info.partitions else None
            by_leader.setdefault(leader, []).append((number, self._query))
        self._id = info.id
        self._open = len(by_leader)
        if not by_leader:
            self._end(None)
        for leader, queries in by_leader.items():
            self._ask(info, leader, queries, now)

    def _ask(
        self, info: TopicInfo, leader: int | None, queries: list[tuple[int, int]], now: float
    ) -> None:
        metadata = self._cluster.metadata
        numbers = [number for number, _ in queries]

        def told(reply: Any, _payload: Bytes, error: TinyMQError | None, now: float) -> None:
            if isinstance(error, ClientError):
                error = metadata.unreachable(info.name, numbers[0], error)
            rows = [] if error is not None else reply.results
            faults: dict[int, TinyMQError | None] = dict.fromkeys(numbers, error)
            for partition, offset, _epoch, _time, fault in rows:
                faults[partition] = None if fault is None else error_from_meta(fault)
                self.found[partition] = offset
            self._answered(info, faults, now)

        if leader == -1:
            away = {number: metadata.leaderless(info.name, number) for number in numbers}
            self._answered(info, away, now)
            return
        message = Offsets(topic_id=info.id, queries=queries)
        self._cluster.ask(message, self._deadline, told, now, broker=leader)

    def _answered(
        self, info: TopicInfo, faults: Mapping[int, TinyMQError | None], now: float
    ) -> None:
        assert self._left is not None
        self._open -= 1
        for number, fault in faults.items():
            if fault is None:
                self._left.discard(number)
                self.faults.pop(number, None)
                continue
            self.found.pop(number, None)
            self.faults[number] = self._why = fault
            lags = isinstance(fault, _MOVED) and number < info.partitions
            away = self._partial and info.leaders[number : number + 1] == (-1,)
            if away or not (lags or may_repeat(fault)):
                if self._partial:
                    self._left.discard(number)
                    continue
                self._end(fault)
                return
        if self._open:
            return
        if not self._left:
            self._end(None)
        elif now >= self._deadline:
            self._end(self._why)
        else:
            self._attempt += 1
            backoff = self._cluster.config.backoff
            at = now + backoff.delay(self._attempt, self._cluster.chance())
            self.wake_at = min(self._deadline, at)

    def _end(self, error: TinyMQError | None) -> None:
        done, self._done = self._done, None
        self.wake_at = inf
        self._cluster.remove(self)
        if done is not None:
            done(None if error is not None else self.found, error)
