"""
The MetaServer: every operation on topics, brokers and producer ids.

::

    topic/ID        the topic                     name/NAME      its id
    deleted/ID      when, in ms                   broker/N       a live broker, on a lease
    incarnation/N   starts of broker N so far     brokers        the last broker id given out
    producers       the first producer id free    cluster        the cluster's id
    known/N         how broker N registered last  drain/N        N gets no new partitions
    channel/ID/C    the channel C of the topic of this id
    exchange/ID     what the topic of this id is as an exchange
    binding/ID/B    its binding B         routing        written with what could close a circle
    push/ID/C       where the messages of this channel are sent to
    schedule/NAME   a message that comes again and again
    group/NAME      a consumer group
    history/ID/N    the change N of the topic of this id: see `history`

An operation checks, writes one transaction, and returns when it is on disk.
What it changed is then seen by everybody as one new `Registry`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from tinymq.channelpolicy import DEFAULT_POLICY
from tinymq.errors import InvalidRequest, Overloaded, TopicExists, UnknownTopicId
from tinymq.limits import MAX_VALUE_CEILING
from tinymq.meta.channels import DEFAULT_START
from tinymq.meta.endpoints import Endpoints
from tinymq.meta.entries import Compare, Delete, Put, Write
from tinymq.meta.exchanges import Exchanges
from tinymq.meta.following import ID_BYTES, Clocks
from tinymq.meta.groups import Groups
from tinymq.meta.history import History, changed_rows, texts_of
from tinymq.meta.membership import BROKER_SECONDS, LOST_SECONDS
from tinymq.meta.observers import Observer
from tinymq.meta.placement import place
from tinymq.meta.registry import ChannelInfo, Topic, channel_key
from tinymq.meta.schedules import Schedules
from tinymq.names import (
    DEAD_LETTERS,
    TRANSACTION_PLACES,
    TRANSACTIONS,
    users_topic,
    valid_name,
)
from tinymq.routing import Exchange, Kind, exchange_key
from tinymq.topicconfig import TopicConfig

__all__ = ["BROKER_SECONDS", "LOST_SECONDS", "Clocks", "MetaServer", "Observer", "Settings"]

#: What a request may hold as settings of a topic.
Settings = Mapping[str, str | int | None]

_MOST_IDS: Final = 1_000_000

#: Settings of the topic of transactions.
_TRANSACTIONS: Final[Settings] = {
    "sync": "always",
    "retention.mode": "compact",
    "segment.bytes": 16 * 1024 * 1024,
}
#: Settings of a topic for dead letters: nothing goes away by itself, or does not fit.
_DEAD: Final[Settings] = {
    "storage": "disk",
    "retention.ms": None,
    "retention.bytes": None,
    "max.value.bytes": MAX_VALUE_CEILING,
}

#: Of one transaction, which is told to replicas in one piece.
_MOST_WRITES: Final = 1000


class MetaServer(Exchanges, Endpoints, Schedules, Groups, History):
    """
    The operations.

    Args:
        store: Where everything is kept; closed by its owner.
        config: The defaults of topics, and the limits.
        clocks: The sources of time and chance.
        history: How many revisions a watcher may be behind.
    """

    # --- topics

    def describe(self, name: str) -> Topic:
        """
        Return a topic by its name.

        Raises:
            InvalidName: It cannot be a name.
            UnknownTopic: There is no such topic.
        """
        return self.registry.topic(valid_name(name))

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        settings: Settings | None = None,
        *,
        dry_run: bool = False,
    ) -> Topic:
        """
        Make a topic, or return the one there is if it is what the caller asks for.

        Only what the caller says is compared with an existing topic, so that a
        client may declare a topic at each start whatever the defaults are.

        Args:
            name: The name.
            partitions: How many; the broker's default if not given.
            settings: Settings that differ from the broker's defaults.
            dry_run: Check everything and return what would be, but write nothing.

        Raises:
            InvalidName: The name breaks the rule.
            InvalidRequest: The number of partitions, or a setting.
            TopicExists: It exists and differs; the data says in which field.
            Overloaded: There are as many topics as there may be.
            StateError: No broker is there to lead it, or all are draining.
        """
        name = users_topic(valid_name(name))
        config = TopicConfig.from_mapping(settings or {}, self._config.defaults)
        count = self._config.topics.partitions if partitions is None else partitions
        self._check_count(count)
        existing = self.registry.by_name.get(name)
        if existing is not None:
            _check_same(existing, partitions, config, settings or {})
            return existing
        self._check_length(name)
        self._check_most()
        topic = Topic(
            id=self._clocks.entropy(ID_BYTES),
            name=name,
            partitions=count,
            config=config,
            created_ms=self._now_ms(),
            leaders=place(count, self.standings()),
        )
        if not dry_run:
            self._add_topic(topic)
        return topic

    def _check_most(self) -> None:
        most = self._config.topics.most
        if len(self.registry.topics) >= most:
            raise Overloaded(
                f"there are {most} topics, the most that topics.most allows; "
                "delete some, or raise the setting",
                limit=most,
            )

    def _add_topic(self, topic: Topic) -> None:
        name, key = f"name/{topic.name}", topic.id.hex()
        plain = texts_of(attrs.evolve(topic, config=self._config.defaults))
        plain["partitions"] = ""  # how many is always told
        rows = tuple((row, None, text) for row, _, text in changed_rows(plain, texts_of(topic)))
        noted = self._noted(topic.id, "created", rows)
        writes = [Put(f"topic/{key}", topic.encode()), Put(name, key.encode()), *noted]
        self._write([Compare(name, 0), Compare(f"topic/{key}", 0)], writes)

    def ensure_dead_letters(self, origin: str, name: str) -> Topic:
        """
        Return a topic for dead letters with the channel that knows which are still there.

        One that is made by this has the partitions and leaders of its origin, so that
        brokers write to themselves, and keeps what it gets until people deal with it.

        Args:
            origin: The topic that they come from.
            name: The name of the topic for them.

        Raises:
            InvalidName: One of the names cannot be one.
            UnknownTopic: There is no such origin.
            Overloaded: There are as many topics as there may be.
        """
        like, topic = self.describe(origin), self.registry.by_name.get(valid_name(name))
        if topic is None:
            self._check_most()
            topic = Topic(
                id=self._clocks.entropy(ID_BYTES),
                name=name,
                partitions=like.partitions,
                config=TopicConfig.from_mapping(_DEAD, self._config.defaults),
                created_ms=self._now_ms(),
                leaders=like.leaders,
            )
            self._add_topic(topic)
        if DEAD_LETTERS not in self.registry.channels_of(topic.id):
            self._last_made_ms = max(self._now_ms(), self._last_made_ms + 1)
            made = ChannelInfo(
                name=DEAD_LETTERS,
                policy=DEFAULT_POLICY,
                start=DEFAULT_START,
                created_ms=self._last_made_ms,
            )
            key = channel_key(topic.id, DEAD_LETTERS)
            self._write([Compare(key, 0)], [Put(key, made.encode())])
        return topic

    def ensure_topic(self, name: str) -> Topic:
        """
        Return a topic for its first use: made by it, where that is allowed.

        Raises:
            UnknownTopic: There is none, and first use does not make topics.
            InvalidName: As `create_topic`.
        """
        if name == TRANSACTIONS and name not in self.registry.by_name:
            return self._make_transactions()
        if valid_name(name) in self.registry.by_name or not self._config.topics.auto_create:
            return self.registry.topic(name)
        return self.create_topic(name)

    def _make_transactions(self) -> Topic:
        """Make the topic in which brokers keep what was decided of transactions."""
        self._check_most()
        topic = Topic(
            id=self._clocks.entropy(ID_BYTES),
            name=TRANSACTIONS,
            partitions=TRANSACTION_PLACES,
            config=TopicConfig.from_mapping(_TRANSACTIONS),
            created_ms=self._now_ms(),
            leaders=place(TRANSACTION_PLACES, self.standings()),
        )
        self._add_topic(topic)
        return topic

    def create_exchange(
        self,
        name: str,
        kind: Kind,
        dead_letter: str | None = None,
        partitions: int | None = None,
        settings: Settings | None = None,
        *,
        dry_run: bool = False,
    ) -> tuple[Topic, Exchange]:
        """
        Make a topic an exchange; the topic is made if it is not there.

        Args:
            name: The name.
            kind: How bindings are found.
            dead_letter: Topic for what no binding takes; None for the default.
            partitions: As `create_topic`.
            settings: As `create_topic`.
            dry_run: Check everything and return what would be, but write nothing.

        Raises:
            InvalidName, InvalidRequest, TopicExists, Overloaded, StateError: As
                `create_topic` and `make_exchange`; nothing was written.
        """
        topic = self.create_topic(name, partitions, settings, dry_run=True)
        exchange = self.make_exchange(topic, kind, dead_letter, dry_run=True)
        if dry_run:
            return topic, exchange
        topic = self.create_topic(name, partitions, settings)
        return topic, self.make_exchange(topic, kind, dead_letter)

    def alter_topic(
        self,
        name: str,
        settings: Settings | None = None,
        partitions: int | None = None,
        *,
        dry_run: bool = False,
    ) -> Topic:
        """
        Change settings of a topic, or raise its number of partitions; all or nothing.

        With more partitions keys may map to others from then on: the order of
        one key's records holds before and after, not across.

        Args:
            name: The name.
            settings: The settings to change.
            partitions: How many there shall be; a topic never loses one.
            dry_run: Check everything and return what would be, but write nothing.

        Returns:
            The topic as it is afterwards.

        Raises:
            UnknownTopic: There is no such topic.
            InvalidRequest: A setting is unknown, wrong or fixed, or the number
                is below the present one, or too high.
            StateError: No broker is there to lead new partitions.
        """
        topic = self.describe(users_topic(name))
        config = topic.config.altered(settings or {}, self._config.defaults)
        leaders = topic.leaders
        if partitions is not None and partitions != topic.partitions:
            self._check_more(topic, partitions)
            leaders += place(partitions - topic.partitions, self.standings(), leaders)
        new = attrs.evolve(topic, config=config, partitions=len(leaders), leaders=leaders)
        if new != topic and not dry_run:
            act = "partitions" if new.config == topic.config else "altered"
            rows = changed_rows(texts_of(topic), texts_of(new))
            put = Put(f"topic/{topic.id.hex()}", new.encode())
            self._write([], [put, *self._noted(topic.id, act, rows)])
        return new

    def _check_more(self, topic: Topic, partitions: int) -> None:
        self._check_count(partitions)
        if partitions < topic.partitions:
            raise InvalidRequest(
                f"{topic.name} has {topic.partitions} partitions; a topic never loses one",
                field="partitions",
                low=topic.partitions,
                high=self._config.limits.partitions,
            )

    def delete_topic(self, name: str, topic_id: bytes | None = None) -> Topic:
        """
        Delete a topic with its channels, schedules, bindings and those that lead to it.

        Returns what it was.

        Args:
            name: The name.
            topic_id: If given, delete only the topic of this id.

        Raises:
            UnknownTopic: There is no such topic.
            UnknownTopicId: The name's topic is another one by now.
        """
        topic = self.describe(users_topic(name))
        if topic_id is not None and topic_id != topic.id:
            raise UnknownTopicId(f"{name} is another topic by now; refresh the metadata")
        key = topic.id.hex()
        at = Put(f"deleted/{key}", str(self._now_ms()).encode())
        gone = Delete(f"topic/{key}"), Delete(f"name/{topic.name}")
        exchange = [Delete(exchange_key(topic.id))] * (topic.id in self.registry.exchanges)
        owned = [*self._deletes_of(topic), *self._schedule_deletes(topic)]
        owned += self._history_deletes(topic.id)
        first: list[Write] = [*owned, *exchange, *gone, at]
        self._delete_all(first, self._routes_of(topic))
        return topic

    def forget_deleted(self, before_ms: int) -> None:
        """Forget the topics deleted before a time, when no broker holds files of them."""
        old = [topic_id for topic_id, at in self.registry.deleted.items() if at < before_ms]
        for first in range(0, len(old), _MOST_WRITES):
            some = old[first : first + _MOST_WRITES]
            gone = [Delete(f"deleted/{topic_id.hex()}") for topic_id in some]
            self._write([], gone, vital=True)

    def _check_count(self, count: object) -> None:
        most = self._config.limits.partitions
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= most:
            raise InvalidRequest(
                f"a topic has 1 to {most} partitions, not {str(count)[:40]}",
                field="partitions",
                low=1,
                high=most,
            )

    # --- producer ids

    def producer_ids(self, block: int | None = None) -> range:
        """
        Return producer ids that were never given out and never will be.

        They are lost, not reused, if this process or its caller dies: 63 bits
        last for every crash there will be.

        Args:
            block: How many; the configured number if not given.
        """
        count = self._config.producers.id_block if block is None else block
        if not 1 <= count <= _MOST_IDS:
            raise InvalidRequest(f"1 to {_MOST_IDS} ids at a time, not {count}", field="block")
        first = self._count_up("producers", count)
        return range(first, first + count)

    def skip_producers(self, end: int) -> None:
        """
        Give out no producer id that was given out before this store was restored from a backup.

        Args:
            end: All ids that somebody was given are lower.
        """
        behind = end - self._count("producers")
        if behind > 0:
            self._count_up("producers", behind)


def _check_same(
    existing: Topic, partitions: int | None, wanted: TopicConfig, said: Settings
) -> None:
    if partitions is not None and partitions != existing.partitions:
        raise TopicExists(
            f"{existing.name} exists with {existing.partitions} partitions, not {partitions}",
            field="partitions",
            existing=existing.partitions,
            wanted=partitions,
        )
    has, wants = existing.config.to_mapping(), wanted.to_mapping()
    for name in said:
        if has[name] != wants[name]:
            raise TopicExists(
                f"{existing.name} exists with {name} = {has[name]}, not {wants[name]}",
                field=name,
                existing=has[name],
                wanted=wants[name],
            )
