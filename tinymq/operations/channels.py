"""Making, describing, changing, pausing, seeking and deleting channels."""

from __future__ import annotations

import fnmatch
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Final

from tinymq.broker.letters import dead_letter_topic
from tinymq.catalog import PUBLIC
from tinymq.catalog.channels import CHANNEL_NAME, CHANNEL_START, WHOSE
from tinymq.errors import InvalidRequest, NothingToUndo, StateError
from tinymq.figures.channels import SUMMED, Facts, merge, standing, sum_up
from tinymq.meta.registry import ChannelInfo, Start, Topic
from tinymq.names import OWN_CHANNELS, group_of, instance_of, users_channel
from tinymq.node.channels import SEEK_SUMS, ChannelRows
from tinymq.operation import Operation, Parameter, Result, table
from tinymq.operations.base import Answers, only_one
from tinymq.operations.leaders import Leaders, listed
from tinymq.wire.fields import boolean, optional, text

#: What only its broker can tell of a channel on a partition.
_TOLD: Final = (*SUMMED, "consumers", "floor", "cursor", "end", "paused")
_MAYBE: Final = (
    *("next_due_ms", "undo_until_ms", "why"),
    *("rates", "totals", "lag_ms", "trend_s", "clear_ms"),
)
#: What is told of a channel on all partitions.
_WHOLE: Final = (*SUMMED, "consumers", "rates", "totals", "lag_ms", "trend_s")

#: Most characters of a channel as the store holds it.
_STORED: Final = 65_536

#: Topic and name, by which lists are in order.
_Place = tuple[str, str]


class Channels(Leaders):
    """Channels over all brokers."""

    def _find_channel(self, topic: str, name: str) -> tuple[Topic, ChannelInfo]:
        """
        Find a channel by its names.

        Raises:
            InvalidName: One breaks the rule.
            UnknownTopic, UnknownChannel: There is none.
        """
        return self.find(topic), self._meta.describe_channel(topic, name)

    async def create_channel(
        self,
        topic: str,
        name: str,
        config: dict[str, Any],
        start: Start | None,
        *,
        temporary: bool,
        dry_run: bool,
    ) -> Result:
        """Make a channel; one that exists with the same settings is no error."""
        self._check_running()
        owner = self.find(topic)
        existed = name in self._registry.channels_of(owner.id)
        channel = self._meta.create_channel(
            topic, name, config, start, temporary=temporary or None, dry_run=dry_run
        )
        told = {"created": not existed, "dry_run": dry_run}
        if dry_run:
            return {"channel": self._facts(owner, channel), **told}
        await self._spread(owner)
        return {"channel": await self._describe_channel(owner, channel), **told}

    async def ensure_channel(
        self, topic: str, name: str, start: Start | None, *, temporary: bool
    ) -> Result:
        """Make a channel for its first use at a broker elsewhere."""
        self._check_running()
        self._meta.ensure_channel(topic, name, start, temporary=temporary)
        await self._spread(self.find(topic))
        return {"revision": self._revision}

    async def keep_channel(self, topic_id: str, name: str, stored: str, push: str | None) -> Result:
        """Take back a channel that a broker elsewhere knows, after a backup was restored."""
        self._check_running()
        try:
            endpoint = None if push is None else push.encode()
            kept = self._meta.keep_channel(bytes.fromhex(topic_id), name, stored.encode(), endpoint)
        except (KeyError, TypeError, ValueError):
            raise InvalidRequest("that is no channel", field="stored") from None
        return {"kept": kept}

    async def alter_channel(
        self, topic: str, name: str, config: dict[str, Any], *, dry_run: bool
    ) -> Result:
        """Change settings of a channel."""
        owner, before = self._find_channel(topic, name)
        after = self._meta.alter_channel(topic, name, config, dry_run=dry_run)
        old, new = before.policy.to_mapping(), after.policy.to_mapping()
        changes = [[key, old[key], new[key]] for key in new if old[key] != new[key]]
        if not dry_run and changes:
            await self._spread(owner)
        shown = await self._describe_channel(owner, before if dry_run else after)
        return {"channel": shown, "changes": changes, "dry_run": dry_run}

    async def delete_channel(self, topic: str, name: str, *, dry_run: bool) -> Result:
        """Remove a channel; brokers that are away do it when they are back."""
        owner, channel = self._find_channel(topic, name)
        was = await self._describe_channel(owner, channel)
        if not dry_run:
            self._meta.delete_channel(topic, name)
            await self._spread(owner)
        return {"channel": was, "dry_run": dry_run}

    async def pause_channel(
        self,
        topic: str,
        name: str,
        until_ms: int | None,
        reason: str,
        *,
        undo: bool,
        dry_run: bool,
    ) -> Result:
        """Give nothing of a channel out, or go on."""
        owner, before = self._find_channel(topic, name)
        after = self._meta.pause_channel(topic, name, until_ms, reason, undo=undo, dry_run=dry_run)
        if not dry_run and after != before:
            await self._spread(owner)
        shown = await self._describe_channel(owner, before if dry_run else after)
        now = self._broker.wall()
        changed = before.paused_at(now) != after.paused_at(now)
        return {"channel": shown, "changed": changed, "dry_run": dry_run}

    # --- looking ------------------------------------------------------------------

    async def channel_info(self, topic: str, name: str) -> Result:
        """Describe one channel with its partitions."""
        return {"channel": await self._describe_channel(*self._find_channel(topic, name))}

    async def channels(
        self,
        topic: str | None,
        filter: str,  # noqa: A002 - the API's word
        after: str,
        limit: int,
    ) -> Result:
        """List channels in order of topic and name."""
        places = self._places_of(topic, filter)
        first = bisect_right(places, _place(after))
        page = places[first : first + limit]
        rows, silent = await self.channel_rows(page, filter)
        more = len(places) > first + limit
        return {
            "channels": rows,
            "more": more,
            "after": "/".join(page[-1]) if more else None,
            "total": len(places),
            "silent": silent,
        }

    async def channel_rows(
        self, page: Sequence[_Place], pattern: str = ""
    ) -> tuple[list[Result], list[str]]:
        """
        Describe channels, each in one row.

        Args:
            page: Their topics and names, of at most 500 topics.
            pattern: Which names the brokers need to look at.

        Returns:
            The rows of those that still are, and the names of the silent brokers.
        """
        owners = self._owners(page)
        leaders = {leader for owner in owners.values() for leader in owner.leaders}
        ids = [owner.id.hex() for owner in owners.values()]
        answers = await self._ask(leaders, "node.channel_totals", {"ids": ids, "filter": pattern})
        sums = _summed(answers)
        rows = []
        for name, channel in page:
            owner = owners.get(name)
            info = None if owner is None else self._registry.channels_of(owner.id).get(channel)
            if owner is not None and info is not None:  # nobody deleted it in the meantime
                told = sum_up(sums.get((owner.id.hex(), channel), ()))
                offline = self._offline(owner, answers)
                rows.append(self._whole(self._facts(owner, info), told, offline))
        return rows, self._silence(answers)

    def _owners(self, page: Sequence[_Place]) -> dict[str, Topic]:
        """Find the topics of channels, as far as they still are."""
        topics = self._registry.by_name
        return {name: topics[name] for name, _ in page if name in topics}

    def _places_of(self, topic: str | None, pattern: str) -> list[_Place]:
        """Say where the channels are that match a pattern, in order."""
        registry = self._registry
        owners = registry.channels if topic is None else [self.find(topic).id]
        return sorted(
            (registry.topics[topic_id].name, name)
            for topic_id in owners
            if topic_id in registry.topics
            for name in registry.channels_of(topic_id)
            if not name.startswith(OWN_CHANNELS)
            and (not pattern or fnmatch.fnmatchcase(name, pattern))
        )

    async def _describe_channel(self, topic: Topic, channel: ChannelInfo) -> Result:
        """Describe a channel with its partitions, as a map."""
        answers = await self._ask_leaders(topic, "node.channels", name=channel.name)
        told = sum_up(answers.rows.values())
        for each in answers.results.values():
            merge(told["signs"], each["signs"])
        return {
            **self._whole(self._facts(topic, channel), told, self._offline(topic, answers)),
            "dead_letter": dead_letter_topic(topic.name, channel.name, channel.policy.dead_letter),
            "undo_until_ms": told["undo_until_ms"],
            "partitions": self._channel_rows(topic, answers),
            "silent": self._silence(answers),
        }

    def _whole(self, facts: Result, told: Facts, offline: dict[str, str]) -> Result:
        """Describe a channel as a whole: what it is, what it does, and why it does not do more."""
        now = self._broker.wall()
        kept = {key: told[key] for key in _WHOLE}
        return {**facts, **kept, **standing(told, facts["paused"], offline, now)}

    def _offline(self, topic: Topic, answers: Answers) -> dict[str, str]:
        """Say which brokers that lead partitions of a topic do not answer, and why."""
        leaders = {*topic.leaders}
        return {
            self._broker_name(each): why
            for each, why in sorted(answers.silent.items())
            if each in leaders
        }

    def _channel_rows(self, topic: Topic, answers: Answers) -> ChannelRows:
        known = answers.rows
        rows = []
        for index, leader in enumerate(topic.leaders):
            name, row = self._broker_name(leader), known.get(index)
            place = {"partition": index, "leader": name, "leader_id": leader}
            if row is not None:
                told = {key: row[key] for key in (*_TOLD, *_MAYBE)}
                rows.append({**place, "state": "online", "reason": "", **told})
                continue
            why = answers.silent.get(leader)
            reason = f"{name} does not answer: {why}" if why else f"{name} has not opened it yet"
            nothing = dict.fromkeys((*_TOLD, *_MAYBE))
            rows.append({**place, "state": "offline", "reason": reason, **nothing})
        return rows

    def _facts(self, topic: Topic, channel: ChannelInfo) -> Result:
        """What a channel is, without where its messages are."""
        pause = channel.pause if channel.paused_at(self._broker.wall()) else None
        paused = pause and {
            "since_ms": pause.since_ms,
            "until_ms": pause.until_ms,
            "reason": pause.reason,
        }
        return {
            "topic": topic.name,
            "name": channel.name,
            "created_ms": channel.created_ms,
            "start": channel.start,
            "temporary": channel.temporary,
            "group": group_of(channel.name),
            "instance": instance_of(channel.name),
            "config": channel.policy.to_mapping(),
            "paused": paused,
        }

    # --- seeking ------------------------------------------------------------------

    async def seek(
        self,
        topic: str,
        name: str,
        partition: int | None,
        to: str | int | None,
        time_ms: int | None,
        *,
        dry_run: bool,
    ) -> Result:
        """Begin anew at a point: what lies before is settled, the rest comes again."""
        only_one(to=to, time_ms=time_ms)
        if time_ms is not None:
            return await self._seek(topic, name, partition, "time", time_ms, dry_run=dry_run)
        if isinstance(to, int):
            return await self._seek(topic, name, partition, "offset", to, dry_run=dry_run)
        if to not in {"earliest", "latest"}:
            raise InvalidRequest(
                "give as to: earliest, latest or an offset; or time_ms", field="to"
            )
        return await self._seek(topic, name, partition, str(to), 0, dry_run=dry_run)

    async def empty(self, topic: str, name: str, partition: int | None, *, dry_run: bool) -> Result:
        """Settle all messages of a channel; it can be taken back a while."""
        return await self._seek(topic, name, partition, "latest", 0, dry_run=dry_run)

    async def _seek(
        self, topic: str, name: str, partition: int | None, to: str, at: int, *, dry_run: bool
    ) -> Result:
        owner, _ = self._find_channel(topic, users_channel(name))
        await self._need_channel(owner, name, partition, "moved")
        answers = await self._ask_leaders(
            owner, "node.channel_seek", partition, name=name, to=to, at=at, dry_run=dry_run
        )
        rows = [row for _, row in sorted(answers.rows.items())]
        plan = {
            "topic": topic,
            "channel": name,
            "partitions": rows,
            **{key: sum(row[key] for row in rows) for key in SEEK_SUMS},
            "silent": self._silence(answers),
            "dry_run": dry_run,
        }
        return {"plan": plan}

    async def _need_channel(
        self, topic: Topic, name: str, partition: int | None, done: str
    ) -> None:
        """Refuse to do half of something: it must be there on every partition."""
        await self._need_all(topic, partition, done)
        answers = await self._ask_leaders(topic, "node.channels", partition, name=name)
        wanted = range(topic.partitions) if partition is None else [partition]
        missing = [index for index in wanted if index not in answers.rows]
        if missing:
            raise StateError(
                f"{name} is not open on partitions {listed(missing)} of {topic.name}; "
                f"nothing was {done}, try again in a moment",
                partitions=missing,
            )

    async def undo_seek(
        self, topic: str, name: str, partition: int | None, *, dry_run: bool
    ) -> Result:
        """Take back what the last seek or emptying did, while its window is open."""
        owner, channel = self._find_channel(topic, users_channel(name))
        await self._need_channel(owner, name, partition, "taken back")
        answers = await self._ask_leaders(
            owner, "node.channel_undo_seek", partition, name=name, dry_run=dry_run
        )
        undone = sorted(index for each in answers.results.values() for index in each["undone"])
        if not undone:
            raise NothingToUndo(
                f"no seek of {topic}/{name} can be taken back: there was none, "
                "it was taken back before, or it is too long ago"
            )
        shown = await self._describe_channel(owner, channel)
        return {"channel": shown, "undone": undone, "dry_run": dry_run}


def _summed(answers: Answers) -> dict[tuple[str, str], list[Result]]:
    """Collect what brokers told of channels, by topic id and name."""
    found: dict[tuple[str, str], list[Result]] = {}
    for answer in answers.results.values():
        for row in answer["channels"]:
            found.setdefault((row["id"], row["channel"]), []).append(row)
    return found


def _place(after: str) -> _Place:
    """
    Read where a page begins.

    Args:
        after: ``TOPIC/CHANNEL``, or a topic, behind all of whose channels it begins.
    """
    topic, slash, name = after.partition("/")
    return (topic, name) if slash or not topic else (topic, "\U0010ffff")


CHANNEL_OPERATIONS: Final[dict[str, Operation]] = table(
    PUBLIC["channel.create"].by(Channels.create_channel),
    PUBLIC["channel.alter"].by(Channels.alter_channel),
    PUBLIC["channel.delete"].by(Channels.delete_channel),
    PUBLIC["channel.list"].by(Channels.channels),
    PUBLIC["channel.info"].by(Channels.channel_info),
    PUBLIC["channel.pause"].by(Channels.pause_channel),
    PUBLIC["channel.seek"].by(Channels.seek),
    PUBLIC["channel.undo_seek"].by(Channels.undo_seek),
    PUBLIC["channel.empty"].by(Channels.empty),
    Operation(
        "meta.ensure_channel",
        "cluster",
        True,
        (
            WHOSE,
            CHANNEL_NAME,
            CHANNEL_START,
            Parameter("temporary", boolean, default=False),
        ),
        Channels.ensure_channel,
    ),
    Operation(
        "meta.keep_channel",
        "cluster",
        True,
        (
            Parameter("topic_id", text(32)),
            CHANNEL_NAME,
            Parameter("stored", text(_STORED)),
            Parameter("push", optional(text(2 * _STORED)), default=None),
        ),
        Channels.keep_channel,
    ),
)
