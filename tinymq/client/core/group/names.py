"""Which topics bear the ids that a coordinator speaks of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import inf
from typing import Any

from tinymq.client.core.cluster import Cluster
from tinymq.client.core.metadata import TopicInfo
from tinymq.errors import TinyMQError
from tinymq.wire.frames import Bytes
from tinymq.wire.messages import Metadata, MetadataReply

#: Sorts behind every name, so that a page from here on has brokers and no topics.
_BEHIND_ALL = "~"


class TopicNames:
    """
    Finds topics by their ids: those that a member names, and with patterns all others.

    Args:
        cluster: The brokers.
        topics: The names that the member says.
        patterns: Whether it says patterns too.
        found: Called with the time when one more is known.

    Attributes:
        wake_at: When `tick` has something to do.
    """

    def __init__(
        self,
        cluster: Cluster,
        topics: Sequence[str],
        patterns: bool,
        found: Callable[[float], None],
    ) -> None:
        self.wake_at = inf
        self._cluster = cluster
        self._topics = topics
        self._patterns = patterns
        self._found = found
        self._wanted: set[bytes] = set()
        self._asking = 0
        self._attempt = 0
        #: The names seen so far; what they stand for may have changed.
        self._names: dict[bytes, str] = {}

    def get(self, topic_id: bytes) -> TopicInfo | None:
        """
        Say which topic it is, if that is known.

        Args:
            topic_id: Its id.
        """
        name = self._names.get(topic_id)
        info = None if name is None else self._cluster.metadata.get(name)
        if info is not None and info.id == topic_id:
            return info
        for name in self._cluster.metadata.names:
            info = self._cluster.metadata.get(name)
            if info is not None and info.id == topic_id:
                self._names[topic_id] = name
                return info
        return None

    def want(self, ids: Iterable[bytes], now: float) -> None:
        """
        Look until these are known; those that were wanted before are not any more.

        Args:
            ids: Ids of topics.
            now: The time.
        """
        self._wanted = set(ids)
        self._attempt = 0
        if self._wanted and not self._asking:
            self._ask(now)

    def tick(self, now: float) -> None:
        """
        Ask again.

        Args:
            now: The time.
        """
        self.wake_at = inf
        if self._wanted and not self._asking:
            self._ask(now)

    # --- inside ----------------------------------------------------------------

    def _ask(self, now: float) -> None:
        deadline = now + self._cluster.config.deadline_s
        self._asking = len(self._topics) + self._patterns
        for name in self._topics:
            self._cluster.topic(name, deadline, self._looked, now, fresh=True)
        if self._patterns:
            self._list("", now)

    def _list(self, after: str, now: float) -> None:
        message = Metadata(names=None, after=after)
        deadline = now + self._cluster.config.deadline_s
        self._cluster.ask(message, deadline, self._listed, now)

    def _listed(self, reply: Any, _: Bytes, error: TinyMQError | None, now: float) -> None:
        if not isinstance(reply, MetadataReply):
            self._end(now)
            return
        deadline = now + self._cluster.config.deadline_s
        for name, topic_id, *_rest in reply.topics:
            if topic_id in self._wanted and name not in self._topics:
                self._asking += 1
                self._cluster.topic(name, deadline, self._looked, now, fresh=True)
        if reply.more and reply.topics:
            self._list(reply.topics[-1][0], now)
        else:
            self._end(now)

    def _looked(self, info: TopicInfo | None, error: TinyMQError | None, now: float) -> None:
        self._end(now)

    def _end(self, now: float) -> None:
        """One question is answered; ask again later if something is missing after the last."""
        self._asking -= 1
        if self._asking or self._cluster.closed:
            return
        missing = {one for one in self._wanted if self.get(one) is None}
        known, self._wanted = self._wanted - missing, missing
        if missing:
            self._attempt += 1
            backoff = self._cluster.config.backoff
            self.wake_at = now + backoff.delay(self._attempt, self._cluster.chance())
        if known:
            self._found(now)


def learn_brokers(cluster: Cluster, then: Callable[[float], None], now: float) -> None:
    """
    Ask which brokers there are.

    Args:
        cluster: The brokers.
        then: Called with the time when they are known, or not.
        now: The time.
    """
    deadline = now + cluster.config.request_timeout_s
    told = partial(_learned, cluster, then)
    cluster.ask(Metadata(names=None, after=_BEHIND_ALL), deadline, told, now)


def _learned(
    cluster: Cluster,
    then: Callable[[float], None],
    reply: Any,
    _: Bytes,
    error: TinyMQError | None,
    now: float,
) -> None:
    if isinstance(reply, MetadataReply) and not reply.topics:
        cluster.metadata.apply(reply)
    then(now)
