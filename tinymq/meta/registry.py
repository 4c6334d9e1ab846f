"""
What topics and brokers there are: immutable snapshots.

A reader takes a `Registry` and may keep it; it never changes under the reader's
hands. A change makes a new snapshot, which replaces the old one in one step.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from bisect import bisect_right
from collections.abc import Mapping
from functools import cached_property
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import attrs
from attrs import field, frozen

from tinymq.channelpolicy import ChannelPolicy
from tinymq.errors import (
    UnknownChannel,
    UnknownEndpoint,
    UnknownExchange,
    UnknownGroup,
    UnknownPartition,
    UnknownSchedule,
    UnknownTopic,
    UnknownTopicId,
)
from tinymq.meta.endpoint import Endpoint
from tinymq.names import own_topic
from tinymq.routing import Exchange
from tinymq.topicconfig import TopicConfig

#: Where a channel begins on each partition: "earliest", "latest" or an offset.
Start: TypeAlias = str | int


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


@frozen
class Pause:
    """
    That a channel gives nothing out, for a while or until somebody lets it go on.

    Attributes:
        since_ms: When it began.
        until_ms: When it ends by itself; None if it does not.
        reason: Why, for people.
    """

    since_ms: int
    until_ms: int | None = None
    reason: str = ""


@frozen(kw_only=True)
class ChannelInfo:
    """
    A channel of a topic.

    Attributes:
        name: The name, which is its topic's matter: two topics may have channels of one name.
        policy: How it treats its messages.
        start: Where it began.
        created_ms: When it was made; one that is made anew under the name has another.
        pause: Whether it gives nothing out; brokers look at `paused_at` for that.
        lease: What a temporary channel lives by; 0 for one that stays until it is deleted.
    """

    name: str
    policy: ChannelPolicy
    start: Start
    created_ms: int
    pause: Pause | None = None
    lease: int = 0

    @property
    def temporary(self) -> bool:
        """Whether it goes with its last consumer."""
        return self.lease != 0

    def paused_at(self, now_ms: int) -> bool:
        """Whether it gives nothing out at a time; a pause may end by itself."""
        pause = self.pause
        return pause is not None and (pause.until_ms is None or now_ms < pause.until_ms)

    def encode(self) -> bytes:
        """Return the channel as it is stored."""
        return _json(
            policy=self.policy.to_mapping(),
            start=self.start,
            created_ms=self.created_ms,
            pause=self.pause and attrs.astuple(self.pause),
        )

    @classmethod
    def decode(cls, name: str, stored: bytes, lease: int = 0) -> ChannelInfo:
        """Read what `encode` gave."""
        facts = json.loads(stored)
        pause = facts.get("pause")
        return cls(
            name=name,
            policy=ChannelPolicy.from_stored(facts["policy"]),
            start=facts["start"],
            created_ms=facts["created_ms"],
            pause=pause and Pause(*pause),
            lease=lease,
        )


@frozen(kw_only=True)
class BrokerInfo:
    """
    A broker, as it registered.

    Attributes:
        id: Its number, kept in its data folder.
        name: Its name.
        host: Where clients reach it.
        port: And at which port.
        incarnation: Rises with each of its starts.
        started_ms: When it registered.
        lease: What its registration lives by.
        zone: Where it stands: a rack, a data centre; may be empty.
        version: The tinymq that it runs; empty if it did not say.
    """

    id: int
    name: str
    host: str
    port: int
    incarnation: int
    started_ms: int
    lease: int
    zone: str = ""
    version: str = ""

    def encode(self) -> bytes:
        """Return the broker as it is stored."""
        return _json(
            name=self.name,
            host=self.host,
            port=self.port,
            incarnation=self.incarnation,
            started_ms=self.started_ms,
            zone=self.zone,
            version=self.version,
        )

    @classmethod
    def decode(cls, broker_id: int, stored: bytes, lease: int) -> BrokerInfo:
        """Read what `encode` gave."""
        facts = json.loads(stored)
        names = ("name", "host", "port", "incarnation", "started_ms")
        later = {name: facts.get(name, "") for name in ("zone", "version")}
        return cls(id=broker_id, lease=lease, **{name: facts[name] for name in names}, **later)


@frozen(kw_only=True)
class Schedule:
    """
    A message that comes again and again.

    Attributes:
        name: Its name.
        topic_id: The topic that its messages go to.
        partition: The partition; it stays when the topic gets more of them.
        cron: When they come.
        zone: The time zone that this is about.
        key: Key of its messages, or None.
        value: Their value.
        headers: Their headers.
        catch_up: What becomes of runs that were missed.
        paused: Whether it rests.
        created_ms: When it was made; one that is made anew under the name has another.
        since_ms: Times before this are not its: when it was made, changed or let go on.
    """

    name: str
    topic_id: bytes
    partition: int
    cron: str
    zone: str = "UTC"
    key: bytes | None = None
    value: bytes = b""
    headers: tuple[tuple[str, bytes], ...] = ()
    catch_up: str = "skip"
    paused: bool = False
    created_ms: int = 0
    since_ms: int = 0

    @property
    def mark(self) -> str:
        """What tells its messages from those of another that had its name before."""
        return f"{self.name}@{self.created_ms}"

    @property
    def store_key(self) -> str:
        """Its key in the store."""
        return f"schedule/{self.name}"

    @property
    def size(self) -> int:
        """About how many bytes a message has."""
        headers = sum(len(name) + len(value) for name, value in self.headers)
        return len(self.value) + len(self.key or b"") + headers

    def encode(self) -> bytes:
        """Return the schedule as it is stored."""
        return _json(
            topic=self.topic_id.hex(),
            partition=self.partition,
            cron=self.cron,
            zone=self.zone,
            key=None if self.key is None else b64encode(self.key).decode(),
            value=b64encode(self.value).decode(),
            headers=[[name, b64encode(value).decode()] for name, value in self.headers],
            catch_up=self.catch_up,
            paused=self.paused,
            created_ms=self.created_ms,
            since_ms=self.since_ms,
        )

    @classmethod
    def decode(cls, name: str, stored: bytes) -> Schedule:
        """Read what `encode` gave."""
        facts = json.loads(stored)
        plain = ("partition", "cron", "zone", "catch_up", "paused", "created_ms", "since_ms")
        return cls(
            name=name,
            topic_id=bytes.fromhex(facts["topic"]),
            key=None if facts["key"] is None else b64decode(facts["key"]),
            value=b64decode(facts["value"]),
            headers=tuple((header, b64decode(value)) for header, value in facts["headers"]),
            **{each: facts[each] for each in plain},
        )


@frozen(kw_only=True)
class GroupInfo:
    """
    A consumer group. Where it is in each partition is kept by the partition's broker.

    Attributes:
        name: Its name, for all topics.
        created_ms: When it was made; one that is made anew under the name has another.
    """

    name: str
    created_ms: int

    @property
    def mark(self) -> str:
        """What tells its positions from those of another that had its name before."""
        return f"{self.name}@{self.created_ms}"

    @property
    def store_key(self) -> str:
        """Its key in the store."""
        return f"group/{self.name}"

    def encode(self) -> bytes:
        """Return the group as it is stored."""
        return _json(created_ms=self.created_ms)

    @classmethod
    def decode(cls, name: str, stored: bytes) -> GroupInfo:
        """Read what `encode` gave."""
        return cls(name=name, created_ms=json.loads(stored)["created_ms"])


def group_mark(mark: str) -> bytes:
    """
    Return the id under which a deleted group is remembered, among those of deleted topics.

    Args:
        mark: Its name and when it was made, as `GroupInfo.mark`.
    """
    return blake2b(b"group/" + mark.encode(), digest_size=16).digest()


def mark_of(topic_id: bytes, channel: str, created_ms: int) -> bytes:
    """
    Return the id under which a deleted channel is remembered, among those of deleted topics.

    Args:
        topic_id: Its topic's id.
        channel: Its name.
        created_ms: When it was made; one made anew under its name is another.
    """
    text = f"{channel}@{created_ms}".encode()
    return blake2b(topic_id + text, digest_size=16).digest()


def channel_key(topic_id: bytes, name: str) -> str:
    """Return the key of a channel in the store."""
    return f"channel/{topic_id.hex()}/{name}"


def _json(**facts: Any) -> bytes:
    return json.dumps(facts, separators=(",", ":")).encode()


_NONE: Final[Mapping[Any, Any]] = MappingProxyType({})


def _none() -> Mapping[Any, Any]:
    return _NONE


@frozen(kw_only=True)
class Registry:
    """
    One snapshot.

    Attributes:
        revision: The store's revision that made it.
        cluster: 16 random bytes, the identity of all this.
        topics: Topics by id.
        by_name: Topics by name.
        channels: Channels by name, by the id of their topic; only of topics that have some.
        exchanges: Exchanges with their bindings, by the id of their topic.
        endpoints: Where the messages of a channel are sent to, by its topic's id and its name.
        schedules: Schedules by name.
        groups: Consumer groups by name.
        brokers: Live brokers by id.
        known: Every broker that ever registered, live or not, as it did so last.
        draining: The numbers of brokers that get no new partitions.
        led: How many partitions every broker leads, live or not.
        deleted: When a topic was deleted, in ms, by its id. Only what stands
            here may have its folders removed; an id that is unknown may not.
        touched: Ids of the topics that came, changed or went with this
            snapshot, or had a channel, an exchange or a schedule that did, so that nobody
            needs to compare ten thousand.
    """

    revision: int = 0
    cluster: bytes = bytes(16)
    topics: Mapping[bytes, Topic] = field(factory=_none)
    by_name: Mapping[str, Topic] = field(factory=_none)
    channels: Mapping[bytes, Mapping[str, ChannelInfo]] = field(factory=_none)
    exchanges: Mapping[bytes, Exchange] = field(factory=_none)
    endpoints: Mapping[tuple[bytes, str], Endpoint] = field(factory=_none)
    schedules: Mapping[str, Schedule] = field(factory=_none)
    groups: Mapping[str, GroupInfo] = field(factory=_none)
    brokers: Mapping[int, BrokerInfo] = field(factory=_none)
    known: Mapping[int, BrokerInfo] = field(factory=_none)
    draining: frozenset[int] = frozenset()
    led: Mapping[int, int] = field(factory=_none)
    deleted: Mapping[bytes, int] = field(factory=_none)
    touched: frozenset[bytes] = frozenset()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of all topics but the brokers' own, in order."""
        return tuple(sorted(name for name in self.by_name if not own_topic(name)))

    @cached_property
    def _schedules_by_topic(self) -> Mapping[bytes, tuple[Schedule, ...]]:
        found: dict[bytes, list[Schedule]] = {}
        for _, schedule in sorted(self.schedules.items()):
            found.setdefault(schedule.topic_id, []).append(schedule)
        return {topic_id: tuple(each) for topic_id, each in found.items()}

    def schedules_of(self, topic_id: bytes) -> tuple[Schedule, ...]:
        """Return the schedules of a topic, in order of their names."""
        return self._schedules_by_topic.get(topic_id, ())

    def schedule(self, name: str) -> Schedule:
        """
        Return a schedule by its name.

        Raises:
            UnknownSchedule: There is none.
        """
        found = self.schedules.get(name)
        if found is None:
            raise UnknownSchedule(f"there is no schedule {name[:200]!a}", schedule=name[:200])
        return found

    def group(self, name: str) -> GroupInfo:
        """
        Return a consumer group by its name.

        Raises:
            UnknownGroup: There is none.
        """
        found = self.groups.get(name)
        if found is None:
            raise UnknownGroup(f"there is no group {name[:200]!a}", group=name[:200])
        return found

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

    def channels_of(self, topic_id: bytes) -> Mapping[str, ChannelInfo]:
        """Return the channels of a topic by name; none if there is no such topic."""
        return self.channels.get(topic_id, _NONE)

    def channel(self, topic_id: bytes, name: str) -> ChannelInfo:
        """
        Return a channel by its name.

        Raises:
            UnknownChannel: The topic has none of this name.
        """
        found = self.channels_of(topic_id).get(name)
        if found is None:
            topic = self.topics.get(topic_id)
            where = f"the topic {topic.name}" if topic is not None else "this topic"
            raise UnknownChannel(f"{where} has no channel {name[:200]!a}", channel=name[:200])
        return found

    def exchange(self, name: str) -> Exchange:
        """
        Return the exchange that a topic is.

        Raises:
            UnknownTopic: There is no such topic.
            UnknownExchange: It is none.
        """
        if name not in self.by_name:
            raise UnknownTopic(
                f"there is no exchange {name[:200]!a}, nor a topic of this name; "
                "`tinymq exchange create` makes one",
                topic=name[:200],
            )
        found = self.exchanges.get(self.topic(name).id)
        if found is None:
            raise UnknownExchange(
                f"the topic {name} is no exchange; "
                f"`tinymq exchange create {name} --kind KIND` makes it one",
                exchange=name,
            )
        return found

    def endpoint(self, topic_id: bytes, channel: str) -> Endpoint:
        """
        Return the push endpoint of a channel.

        Raises:
            UnknownEndpoint: It has none.
        """
        found = self.endpoints.get((topic_id, channel))
        if found is None:
            raise UnknownEndpoint(
                f"the channel {channel[:200]!a} has no push endpoint", channel=channel[:200]
            )
        return found

    def page(self, after: str, limit: int) -> tuple[Topic, ...]:
        """Return at most so many of `names` that follow `after`, with their topics, in order."""
        first = bisect_right(self.names, after)
        return tuple(self.by_name[name] for name in self.names[first : first + limit])
