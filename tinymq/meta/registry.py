"""
What topics and brokers there are: immutable snapshots.

A reader takes a `Registry` and may keep it; it never changes under the reader's
hands. A change makes a new snapshot, which replaces the old one in one step.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

import attrs
from attrs import field, frozen

from tinymq.errors import UnknownPartition, UnknownTopic, UnknownTopicId
from tinymq.topicconfig import TopicConfig


@frozen(kw_only=True)
class Topic:
    """
    A topic.

    Attributes:
        id: 16 random bytes; a topic made anew under an old name has another.
        name: The name.
        partitions: How many there are.
        config: Its settings, all of them.
        created_ms: When it was made.
        leaders: The broker of each partition.
    """

    id: bytes
    name: str
    partitions: int
    config: TopicConfig
    created_ms: int
    leaders: tuple[int, ...]

    def leader(self, partition: int) -> int:
        """
        Return the broker of a partition.

        Raises:
            UnknownPartition: There is no such partition.
        """
        if not 0 <= partition < self.partitions:
            raise UnknownPartition(
                f"{self.name} has the partitions 0 to {self.partitions - 1}, not {partition}",
                topic=self.name,
                partitions=self.partitions,
            )
        return self.leaders[partition]

    def encode(self) -> bytes:
        """Return the topic as it is stored."""
        return _json(
            name=self.name,
            config=self.config.to_mapping(),
            created_ms=self.created_ms,
            leaders=self.leaders,
        )

    @classmethod
    def decode(cls, topic_id: bytes, stored: bytes) -> Topic:
        """Read what `encode` gave."""
        facts = json.loads(stored)
        return cls(
            id=topic_id,
            name=facts["name"],
            partitions=len(facts["leaders"]),
            config=TopicConfig.from_stored(facts["config"]),
            created_ms=facts["created_ms"],
            leaders=tuple(facts["leaders"]),
        )


@frozen(kw_only=True)
class BrokerInfo:
    """
    A live broker.

    Attributes:
        id: Its number, kept in its data folder.
        name: Its name.
        host: Where clients reach it.
        port: And at which port.
        incarnation: Rises with each of its starts.
        started_ms: When it registered.
        lease: What its registration lives by.
    """

    id: int
    name: str
    host: str
    port: int
    incarnation: int
    started_ms: int
    lease: int

    def encode(self) -> bytes:
        """Return the broker as it is stored."""
        return _json(
            name=self.name,
            host=self.host,
            port=self.port,
            incarnation=self.incarnation,
            started_ms=self.started_ms,
        )

    @classmethod
    def decode(cls, broker_id: int, stored: bytes, lease: int) -> BrokerInfo:
        """Read what `encode` gave."""
        facts = json.loads(stored)
        names = ("name", "host", "port", "incarnation", "started_ms")
        return cls(id=broker_id, lease=lease, **{name: facts[name] for name in names})


def _json(**facts: Any) -> bytes:
    return json.dumps(facts, separators=(",", ":")).encode()


def _none() -> Mapping[Any, Any]:
    return MappingProxyType({})


@frozen(kw_only=True)
class Registry:
    """
    One snapshot.

    Attributes:
        revision: The store's revision that made it.
        cluster: 16 random bytes, the identity of all this.
        topics: Topics by id.
        by_name: Topics by name.
        brokers: Live brokers by id.
        led: How many partitions every broker leads, live or not.
        deleted: When a topic was deleted, in ms, by its id. Only what stands
            here may have its folders removed; an id that is unknown may not.
    """

    revision: int = 0
    cluster: bytes = bytes(16)
    topics: Mapping[bytes, Topic] = field(factory=_none)
    by_name: Mapping[str, Topic] = field(factory=_none)
    brokers: Mapping[int, BrokerInfo] = field(factory=_none)
    led: Mapping[int, int] = field(factory=_none)
    deleted: Mapping[bytes, int] = field(factory=_none)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of all topics, in order."""
        return tuple(sorted(self.by_name))

    @property
    def load(self) -> dict[int, int]:
        """How many partitions every live broker leads."""
        return {broker: self.led.get(broker, 0) for broker in self.brokers}

    def topic(self, name: str) -> Topic:
        """
        Return a topic by its name.

        Raises:
            UnknownTopic: There is none.
        """
        found = self.by_name.get(name)
        if found is None:
            raise UnknownTopic(f"there is no topic {name[:200]!a}", topic=name[:200])
        return found

    def topic_of(self, topic_id: bytes) -> Topic:
        """
        Return a topic by its id.

        Raises:
            UnknownTopicId: There is none: it was deleted, and perhaps made anew.
        """
        found = self.topics.get(topic_id)
        if found is None:
            raise UnknownTopicId(
                f"there is no topic with the id {topic_id[:16].hex()}; refresh the metadata"
            )
        return found

    def page(self, after: str, limit: int) -> tuple[Topic, ...]:
        """Return at most so many topics whose names follow `after`, in order."""
        first = bisect_right(self.names, after)
        return tuple(self.by_name[name] for name in self.names[first : first + limit])


class Draft:
    """
    The next snapshot in the making.

    A part is copied when it is first changed, so that a change of one topic
    costs one copy of the tables of topics and nothing else.

    Args:
        base: The snapshot to start from; it stays as it is.
    """

    def __init__(self, base: Registry) -> None:
        self._base = base
        self._changed: dict[str, dict[Any, Any]] = {}
        self._cluster = base.cluster

    def put_topic(self, topic: Topic) -> None:
        """Add a topic, or put it in the place of an older form of itself."""
        self.drop_topic(topic.id)
        self._part("topics")[topic.id] = topic
        self._part("by_name")[topic.name] = topic
        self._count(topic, 1)

    def drop_topic(self, topic_id: bytes) -> None:
        """Remove a topic, if it is there."""
        topic = self._part("topics").pop(topic_id, None)
        if topic is None:
            return
        if self._part("by_name")[topic.name].id == topic_id:
            del self._part("by_name")[topic.name]
        self._count(topic, -1)

    def _count(self, topic: Topic, by: int) -> None:
        led = self._part("led")
        for leader in topic.leaders:
            led[leader] = led.get(leader, 0) + by

    def put_broker(self, broker: BrokerInfo) -> None:
        """Add a broker, or its new form."""
        self._part("brokers")[broker.id] = broker

    def drop_broker(self, broker_id: int) -> None:
        """Remove a broker, if it is there."""
        self._part("brokers").pop(broker_id, None)

    def put_deleted(self, topic_id: bytes, at_ms: int | None) -> None:
        """Remember that a topic was deleted; None forgets it."""
        if at_ms is None:
            self._part("deleted").pop(topic_id, None)
        else:
            self._part("deleted")[topic_id] = at_ms

    def put_cluster(self, cluster: bytes) -> None:
        """Set the identity of all this."""
        self._cluster = cluster

    @property
    def is_changed(self) -> bool:
        """Whether the next snapshot differs from its base."""
        return bool(self._changed) or self._cluster != self._base.cluster

    def _part(self, name: str) -> dict[Any, Any]:
        if name not in self._changed:
            self._changed[name] = dict(getattr(self._base, name))
        return self._changed[name]

    def finish(self, revision: int) -> Registry:
        """Return the snapshot."""
        parts = {name: MappingProxyType(part) for name, part in self._changed.items()}
        return attrs.evolve(self._base, revision=revision, cluster=self._cluster, **parts)
