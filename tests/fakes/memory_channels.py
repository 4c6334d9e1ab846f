"""Channels of a broker in memory, as its operations describe them."""

from __future__ import annotations

from typing import Any

from attrs import Factory, define

from tinymq.catalog.figures import RATED, TOTALLED
from tinymq.channelpolicy import ChannelPolicy
from tinymq.errors import NothingToUndo, UnknownChannel
from tinymq.names import group_of, instance_of, valid_channel

#: The fake's clock stands here.
NOW_MS = 1_750_000_000_000
#: What it does.
PACE: dict[str, Any] = {
    "rates": dict.fromkeys(RATED, 1.5),
    "totals": dict.fromkeys(TOTALLED, 7),
    "lag_ms": 2500,
    "trend_s": -2.0,
    "clear_ms": 3000,
}


@define
class MemoryChannel:
    """A channel of a topic with one partition of ten messages."""

    topic: str
    name: str
    start: str | int = "earliest"
    temporary: bool = False
    policy: ChannelPolicy = Factory(ChannelPolicy)
    paused: dict[str, Any] | None = None
    cursor: int = 0
    before: int | None = None
    end: int = 10
    consumers: int = 0
    silent: bool = False

    def row(self) -> dict[str, Any]:
        """Describe it as a row of a list."""
        counts = dict.fromkeys(("in_flight", "waiting", "parked", "given_up"), 0)
        return {
            "topic": self.topic,
            "name": self.name,
            "created_ms": NOW_MS,
            "start": self.start,
            "temporary": self.temporary,
            "group": group_of(self.name),
            "instance": instance_of(self.name),
            "config": {
                name: list(value) if isinstance(value, tuple) else value
                for name, value in self.policy.to_mapping().items()
            },
            "paused": self.paused,
            "ready": self.end - self.cursor,
            **counts,
            "lag": self.end - self.cursor,
            "consumers": self.consumers,
            **PACE,
            "state": "paused" if self.paused else "consuming",
            "why": [{"cause": "paused", "text": "paused by ana"}] if self.paused else [],
        }

    def facts(self) -> dict[str, Any]:
        """Describe it as CHANNEL."""
        row = self.row()
        told = ("ready", "in_flight", "waiting", "parked", "given_up", "lag", "consumers")
        place = {
            "partition": 0,
            "leader": "memory",
            "leader_id": 1,
            "state": "online",
            "reason": "",
            **{name: row[name] for name in told},
            "floor": self.cursor,
            "cursor": self.cursor,
            "end": self.end,
            "paused": self.paused is not None,
            **PACE,
            "next_due_ms": None,
            "undo_until_ms": None,
            "why": "it is paused" if self.paused else "",
        }
        if self.silent:
            known = ("partition", "leader", "leader_id")
            place |= dict.fromkeys(place.keys() - set(known))
            place |= {"leader": "far", "state": "offline", "reason": "far does not answer"}
        more = {"dead_letter": f"{self.topic}.{self.name}.dead", "undo_until_ms": None}
        return {**row, **more, "partitions": [place], "silent": ["far"] if self.silent else []}


class MemoryChannels:
    """
    All channels.

    Attributes:
        found: By topic and name.
    """

    def __init__(self) -> None:
        self.found: dict[tuple[str, str], MemoryChannel] = {}

    def make(self, topic: str, name: str, **facts: Any) -> MemoryChannel:
        """Make a channel."""
        made = self.found[topic, name] = MemoryChannel(topic, valid_channel(name), **facts)
        return made

    def find(self, topic: str, name: str) -> MemoryChannel:
        """Find a channel, or raise."""
        if (topic, name) not in self.found:
            raise UnknownChannel(f"the topic {topic} has no channel {name}")
        return self.found[topic, name]

    def operate(self, verb: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Carry out an operation with checked arguments."""
        method = getattr(self, f"_{verb}")
        result: dict[str, Any] = method(**arguments)
        return result

    def _create(
        self,
        topic: str,
        name: str,
        config: dict[str, Any],
        start: Any,
        *,
        temporary: bool,
        dry_run: bool,
    ) -> dict[str, Any]:
        created = (topic, name) not in self.found
        if created:
            policy = ChannelPolicy.from_mapping(config)
            start = start or ("latest" if temporary else "earliest")
            self.make(topic, name, policy=policy, start=start, temporary=temporary)
        channel = self.find(topic, name).facts()
        if created and dry_run:
            del self.found[topic, name]
            facts = ("topic", "name", "created_ms", "start", "temporary", "group", "instance")
            channel = {fact: channel[fact] for fact in (*facts, "config", "paused")}
        return {"channel": channel, "created": created, "dry_run": dry_run}

    def _alter(
        self, topic: str, name: str, config: dict[str, Any], *, dry_run: bool
    ) -> dict[str, Any]:
        channel = self.find(topic, name)
        before, after = channel.policy, channel.policy.altered(config)
        old, new = before.to_mapping(), after.to_mapping()
        if not dry_run:
            channel.policy = after
        changes = [
            [key, *(list(each) if isinstance(each, tuple) else each for each in (old[key], value))]
            for key, value in new.items()
            if old[key] != value
        ]
        return {"channel": channel.facts(), "changes": changes, "dry_run": dry_run}

    def _delete(self, topic: str, name: str, *, dry_run: bool) -> dict[str, Any]:
        channel = self.find(topic, name)
        if not dry_run:
            del self.found[topic, name]
        return {"channel": channel.facts(), "dry_run": dry_run}

    def _list(
        self,
        topic: str | None,
        filter: str,  # noqa: A002 - the API's word
        after: str,
        limit: int,
    ) -> dict[str, Any]:
        places = sorted(
            place
            for place in self.found
            if topic in (None, place[0]) and (not filter or place[1].startswith(filter[:-1]))
        )
        rest = [place for place in places if "/".join(place) > after]
        more = len(rest) > limit
        return {
            "channels": [self.found[place].row() for place in rest[:limit]],
            "more": more,
            "after": "/".join(rest[limit - 1]) if more else None,
            "total": len(places),
            "silent": ["far"] if any(each.silent for each in self.found.values()) else [],
        }

    def _info(self, topic: str, name: str) -> dict[str, Any]:
        return {"channel": self.find(topic, name).facts()}

    def _pause(
        self,
        topic: str,
        name: str,
        until_ms: int | None,
        reason: str,
        *,
        undo: bool,
        dry_run: bool,
    ) -> dict[str, Any]:
        channel = self.find(topic, name)
        changed = (channel.paused is None) != undo
        if not dry_run:
            pause = {"since_ms": NOW_MS, "until_ms": until_ms, "reason": reason}
            channel.paused = None if undo else pause
        return {"channel": channel.facts(), "changed": changed, "dry_run": dry_run}

    def _seek(
        self,
        topic: str,
        name: str,
        partition: int | None,
        to: str | int | None,
        time_ms: int | None,
        *,
        dry_run: bool,
    ) -> dict[str, Any]:
        channel, places = self.find(topic, name), {"earliest": 0, "latest": 10}
        cursor = to if isinstance(to, int) else places.get(to or "", 5)
        row = {
            "partition": 0,
            "cursor": channel.cursor,
            "new_cursor": cursor,
            "skipped": max(0, cursor - channel.cursor),
            "revived": max(0, channel.cursor - cursor),
            "lost": channel.consumers,
            "undo_until_ms": NOW_MS + 600_000,
        }
        if not dry_run:
            channel.before, channel.cursor = channel.cursor, cursor
        sums = {key: row[key] for key in ("skipped", "revived", "lost")}
        plan = {"topic": topic, "channel": name, "partitions": [row], **sums}
        return {"plan": {**plan, "silent": [], "dry_run": dry_run}}

    def _empty(
        self, topic: str, name: str, partition: int | None, *, dry_run: bool
    ) -> dict[str, Any]:
        return self._seek(topic, name, partition, "latest", None, dry_run=dry_run)

    def _undo_seek(
        self, topic: str, name: str, partition: int | None, *, dry_run: bool
    ) -> dict[str, Any]:
        channel = self.find(topic, name)
        if channel.before is None:
            raise NothingToUndo(f"no seek of {topic}/{name} can be taken back")
        if not dry_run:
            channel.cursor, channel.before = channel.before, None
        return {"channel": channel.facts(), "undone": [0], "dry_run": dry_run}
