"""Ask for offsets of a whole topic: earliest, latest, or by time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tinymq.client.core.cluster import Cluster
from tinymq.client.core.metadata import TopicInfo
from tinymq.errors import TinyMQError
from tinymq.wire.frames import Bytes
from tinymq.wire.messages import Offsets, error_from_meta

#: Told partition -> offset, or why not.
Known = Callable[[dict[int, int] | None, TinyMQError | None], None]


class OffsetSearch:
    """
    One question to all leaders of a topic.

    Args:
        cluster: The brokers.
        deadline: When to give up.
        done: Told once.
    """

    def __init__(self, cluster: Cluster, deadline: float, done: Known) -> None:
        self._cluster = cluster
        self._deadline = deadline
        self._done: Known | None = done
        self._found: dict[int, int] = {}
        self._open = 0

    def start(self, topic: str, partitions: Iterable[int] | None, query: int, now: float) -> None:
        """
        Ask.

        Args:
            topic: Name of the topic.
            partitions: Which; None means all.
            query: `EARLIEST`, `LATEST`, or milliseconds since the epoch.
            now: The time.
        """

        def found(info: TopicInfo | None, error: TinyMQError | None, now: float) -> None:
            if info is None:
                self._end(error)
                return
            numbers = range(info.partitions) if partitions is None else list(partitions)
            by_leader: dict[int, list[tuple[int, int]]] = {}
            for number in numbers:
                leader = info.leaders[number] if 0 <= number < info.partitions else -1
                by_leader.setdefault(leader, []).append((number, query))
            self._open = len(by_leader)
            if not by_leader:
                self._end(None)
            for leader, queries in by_leader.items():
                self._ask(info.id, leader, queries, now)

        self._cluster.topic(topic, self._deadline, found, now)

    def _ask(
        self, topic_id: bytes, leader: int, queries: list[tuple[int, int]], now: float
    ) -> None:
        broker = leader if leader >= 0 else None
        message = Offsets(topic_id=topic_id, queries=queries)
        self._cluster.ask(message, self._deadline, self._answered, now, broker=broker)

    def _answered(self, reply: Any, _payload: Bytes, error: TinyMQError | None, now: float) -> None:
        self._open -= 1
        if error is not None:
            self._cluster.refresh(now)
            self._end(error)
            return
        for partition, offset, _epoch, _time, fault in reply.results:
            if fault is not None:
                self._cluster.refresh(now)
                self._end(error_from_meta(fault))
                return
            self._found[partition] = offset
        if not self._open:
            self._end(None)

    def _end(self, error: TinyMQError | None) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(None if error is not None else self._found, error)
