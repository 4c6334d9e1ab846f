"""The next snapshot in the making, from the events of the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import MappingProxyType
from typing import Any, Final

import attrs

from tinymq.meta.endpoint import Endpoint
from tinymq.meta.entries import Entry, Event
from tinymq.meta.registry import BrokerInfo, ChannelInfo, GroupInfo, Registry, Schedule, Topic
from tinymq.routing import Binding, Exchange

#: Hexadecimal digits of a topic's id.
_HEX: Final = 32


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
        self._touched: set[bytes] = set()
        self._draining = base.draining
        #: Channels by name, of the topics some of whose channels changed.
        self._channels: dict[bytes, dict[str, ChannelInfo]] = {}
        #: Exchanges that changed, without their bindings; None is one that is gone.
        self._exchanges: dict[bytes, Exchange | None] = {}
        #: Bindings by id, of the exchanges some of whose bindings changed.
        self._bindings: dict[bytes, dict[str, Binding]] = {}

    def put_topic(self, topic: Topic) -> None:
        """Add a topic, or put it in the place of an older form of itself."""
        self._take_out(topic.id)
        self._part("topics")[topic.id] = topic
        self._part("by_name")[topic.name] = topic
        self._touched.add(topic.id)
        self._count(topic, 1)

    def keep_topic(self, topic: Topic) -> None:
        """Add a topic that nobody tells of any more; another one of its name goes first."""
        if topic.id not in self._part("topics"):
            self._part("topics")[topic.id] = topic
            self._part("by_name").setdefault(topic.name, topic)
            self._count(topic, 1)

    def touch(self, topic_ids: Iterable[bytes]) -> None:
        """Say that topics came, changed or went, though not by a call here."""
        self._touched.update(topic_ids)

    def knows(self, part: str, key: object) -> bool:
        """Whether a part of the snapshot to be has a key."""
        return key in self._changed.get(part, getattr(self._base, part))

    def drop_topic(self, topic_id: bytes) -> None:
        """Remove a topic with its channels and what it is as an exchange, if it is there."""
        self.drop_exchange(topic_id)
        if self._base.channels_of(topic_id) or self._channels.get(topic_id):
            self._channels[topic_id] = {}
            self._touched.add(topic_id)
        for place in [each for each in self._base.endpoints if each[0] == topic_id]:
            self.drop_endpoint(*place)
        self._take_out(topic_id)

    def _take_out(self, topic_id: bytes) -> None:
        topic = self._part("topics").pop(topic_id, None)
        if topic is None:
            return
        self._touched.add(topic_id)
        named = self._part("by_name").get(topic.name)
        if named is not None and named.id == topic_id:
            del self._part("by_name")[topic.name]
        self._count(topic, -1)

    def _count(self, topic: Topic, by: int) -> None:
        led = self._part("led")
        for leader in topic.leaders:
            led[leader] = led.get(leader, 0) + by

    def put_channel(self, topic_id: bytes, channel: ChannelInfo) -> None:
        """Add a channel, or its new form; of a topic that may come later."""
        self._channels_of(topic_id)[channel.name] = channel

    def has_channel(self, topic_id: bytes, name: str) -> bool:
        """Whether the snapshot to be has a channel."""
        found = self._channels.get(topic_id)
        return name in (self._base.channels_of(topic_id) if found is None else found)

    def drop_channel(self, topic_id: bytes, name: str) -> None:
        """Remove a channel, if it is there."""
        self._channels_of(topic_id).pop(name, None)

    def _channels_of(self, topic_id: bytes) -> dict[str, ChannelInfo]:
        self._touched.add(topic_id)
        if topic_id not in self._channels:
            self._channels[topic_id] = {**self._base.channels_of(topic_id)}
        return self._channels[topic_id]

    def put_exchange(self, topic_id: bytes, exchange: Exchange) -> None:
        """Let a topic be an exchange, or give it another form; its bindings stay as they are."""
        self._touched.add(topic_id)
        self._exchanges[topic_id] = exchange

    def drop_exchange(self, topic_id: bytes) -> None:
        """Let a topic be no exchange, if it is one; its bindings go as well."""
        if topic_id in self._base.exchanges or self._exchanges.get(topic_id):
            self._touched.add(topic_id)
            self._exchanges[topic_id] = None
            self._bindings[topic_id] = {}

    def put_binding(self, topic_id: bytes, binding: Binding) -> None:
        """Add a binding; of an exchange that may come later."""
        self._bindings_of(topic_id)[binding.id] = binding

    def drop_binding(self, topic_id: bytes, binding_id: str) -> None:
        """Remove a binding, if it is there."""
        self._bindings_of(topic_id).pop(binding_id, None)

    def _bindings_of(self, topic_id: bytes) -> dict[str, Binding]:
        self._touched.add(topic_id)
        if topic_id not in self._bindings:
            exchange = self._base.exchanges.get(topic_id)
            bindings = MappingProxyType({}) if exchange is None else exchange.bindings
            self._bindings[topic_id] = bindings.copy()  # type: ignore[attr-defined]
        return self._bindings[topic_id]

    def put_endpoint(self, topic_id: bytes, endpoint: Endpoint) -> None:
        """Say where the messages of a channel are sent to."""
        self._part("endpoints")[topic_id, endpoint.channel] = endpoint

    def drop_endpoint(self, topic_id: bytes, channel: str) -> None:
        """Send the messages of a channel nowhere."""
        self._part("endpoints").pop((topic_id, channel), None)

    def put_schedule(self, schedule: Schedule) -> None:
        """Add a schedule, or its new form; of a topic that may come later."""
        self.drop_schedule(schedule.name)
        self._touched.add(schedule.topic_id)
        self._part("schedules")[schedule.name] = schedule

    def drop_schedule(self, name: str) -> None:
        """Remove a schedule, if it is there."""
        gone = self._part("schedules").pop(name, None)
        if gone is not None:
            self._touched.add(gone.topic_id)

    def put_group(self, group: GroupInfo) -> None:
        """Add a consumer group."""
        self._part("groups")[group.name] = group

    def drop_group(self, name: str) -> None:
        """Remove a consumer group, if it is there."""
        self._part("groups").pop(name, None)

    def put_broker(self, broker: BrokerInfo) -> None:
        """Add a broker, or its new form."""
        self._part("brokers")[broker.id] = broker

    def drop_broker(self, broker_id: int) -> None:
        """Remove a broker, if it is there."""
        self._part("brokers").pop(broker_id, None)

    def put_known(self, broker: BrokerInfo) -> None:
        """Remember how a broker registered last."""
        self._part("known")[broker.id] = broker

    def drop_known(self, broker_id: int) -> None:
        """Forget a broker that is gone and leads nothing."""
        self._part("known").pop(broker_id, None)

    def put_draining(self, broker_id: int, *, draining: bool) -> None:
        """Say whether a broker gets no new partitions."""
        self._draining -= {broker_id}
        if draining:
            self._draining |= {broker_id}

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
        base = self._base
        return bool(
            self._changed
            or self._channels
            or self._exchanges
            or self._bindings
            or self._cluster != base.cluster
            or self._draining != base.draining
        )

    def _part(self, name: str) -> dict[Any, Any]:
        if name not in self._changed:
            # `dict(proxy)` would go key by key: 16 times as long with 10 000 topics.
            self._changed[name] = getattr(self._base, name).copy()
        return self._changed[name]

    def finish(self, revision: int) -> Registry:
        """Return the snapshot."""
        if self._channels:
            part = self._part("channels")
            part.update((key, MappingProxyType(named)) for key, named in self._channels.items())
            for topic_id, named in self._channels.items():
                if not named:
                    del part[topic_id]
        if self._exchanges or self._bindings:
            self._finish_exchanges(self._part("exchanges"))
        return attrs.evolve(
            self._base,
            revision=revision,
            cluster=self._cluster,
            draining=self._draining,
            touched=frozenset(self._touched),
            **{name: MappingProxyType(part) for name, part in self._changed.items()},
        )

    def _finish_exchanges(self, part: dict[bytes, Exchange]) -> None:
        for topic_id in {*self._exchanges, *self._bindings}:
            before = self._base.exchanges.get(topic_id)
            exchange = self._exchanges.get(topic_id, before)
            if exchange is None:  # bindings alone are nothing
                part.pop(topic_id, None)
                continue
            bindings = before.bindings if before is not None else exchange.bindings
            if topic_id in self._bindings:
                bindings = MappingProxyType(self._bindings[topic_id])
            part[topic_id] = attrs.evolve(exchange, bindings=bindings)


def follow(draft: Draft, event: Event) -> None:
    """Carry one change of the store over to a snapshot."""
    kind, _, rest = event.key.partition("/")
    carry = _KINDS.get(kind)
    if carry is not None:
        carry(draft, rest, event.entry)


def _follow_topic(draft: Draft, rest: str, entry: Entry | None) -> None:
    topic_id = bytes.fromhex(rest)
    if entry is None:
        draft.drop_topic(topic_id)
    else:
        draft.put_topic(Topic.decode(topic_id, entry.value))


def _follow_channel(draft: Draft, rest: str, entry: Entry | None) -> None:
    topic_id, name = bytes.fromhex(rest[:_HEX]), rest[_HEX + 1 :]
    if entry is None:
        draft.drop_channel(topic_id, name)
    else:
        draft.put_channel(topic_id, ChannelInfo.decode(name, entry.value, entry.lease))


def _follow_exchange(draft: Draft, rest: str, entry: Entry | None) -> None:
    topic_id = bytes.fromhex(rest)
    if entry is None:
        draft.drop_exchange(topic_id)
    else:
        draft.put_exchange(topic_id, Exchange.decode(entry.value))


def _follow_binding(draft: Draft, rest: str, entry: Entry | None) -> None:
    topic_id, binding = bytes.fromhex(rest[:_HEX]), rest[_HEX + 1 :]
    if entry is None:
        draft.drop_binding(topic_id, binding)
    else:
        draft.put_binding(topic_id, Binding.decode(binding, entry.value))


def _follow_schedule(draft: Draft, name: str, entry: Entry | None) -> None:
    if entry is None:
        draft.drop_schedule(name)
    else:
        draft.put_schedule(Schedule.decode(name, entry.value))


def _follow_group(draft: Draft, name: str, entry: Entry | None) -> None:
    if entry is None:
        draft.drop_group(name)
    else:
        draft.put_group(GroupInfo.decode(name, entry.value))


def _follow_broker(draft: Draft, rest: str, entry: Entry | None) -> None:
    if entry is None:
        draft.drop_broker(int(rest))
    else:
        draft.put_broker(BrokerInfo.decode(int(rest), entry.value, entry.lease))


def _follow_known(draft: Draft, rest: str, entry: Entry | None) -> None:
    if entry is None:
        draft.drop_known(int(rest))
    else:
        draft.put_known(BrokerInfo.decode(int(rest), entry.value, 0))


def _follow_drain(draft: Draft, rest: str, entry: Entry | None) -> None:
    draft.put_draining(int(rest), draining=entry is not None)


def _follow_deleted(draft: Draft, rest: str, entry: Entry | None) -> None:
    draft.put_deleted(bytes.fromhex(rest), int(entry.value) if entry else None)


def _follow_cluster(draft: Draft, rest: str, entry: Entry | None) -> None:
    if entry is not None:
        draft.put_cluster(bytes.fromhex(entry.value.decode()))


def _follow_endpoint(draft: Draft, rest: str, entry: Entry | None) -> None:
    topic_id, channel = bytes.fromhex(rest[:_HEX]), rest[_HEX + 1 :]
    if entry is None:
        draft.drop_endpoint(topic_id, channel)
    else:
        draft.put_endpoint(topic_id, Endpoint.decode(channel, entry.value))


#: By what stands before the slash of a key.
_KINDS: Final[dict[str, Callable[[Draft, str, Entry | None], None]]] = {
    "topic": _follow_topic,
    "channel": _follow_channel,
    "exchange": _follow_exchange,
    "binding": _follow_binding,
    "push": _follow_endpoint,
    "schedule": _follow_schedule,
    "group": _follow_group,
    "broker": _follow_broker,
    "known": _follow_known,
    "drain": _follow_drain,
    "deleted": _follow_deleted,
    "cluster": _follow_cluster,
}
