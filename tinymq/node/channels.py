"""The channels of the partitions that a broker leads: where their messages are, and seeking."""

from __future__ import annotations

import fnmatch
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final, Protocol

from attrs import field, frozen

from tinymq.broker.broker import Broker
from tinymq.broker.channel.counts import Counts
from tinymq.broker.partition import Partition
from tinymq.catalog.figures import RATED, TOTALLED
from tinymq.errors import StateError
from tinymq.figures.channels import (
    Facts,
    clear_ms,
    merge,
    no_signs,
    sum_up,
)
from tinymq.meta.registry import Topic
from tinymq.node.partitions import topic_key
from tinymq.node.turns import Turns
from tinymq.operation import DRY, FILTER, PARTITION, Operation, Parameter, Result, table
from tinymq.wire.fields import I64, array, choice, integer, optional, text

#: Topics that are asked about at once: as many as a page of channels can be of.
MOST_TOPICS: Final = 500
SEEK_SUMS: Final = ("skipped", "revived", "lost")


@frozen(kw_only=True)
class ChannelRow:
    """
    A channel on one partition.

    Attributes:
        channel: Its name.
        partition: The partition's number.
        counts: Where its messages are.
        end: The offset behind the last message that is visible.
        consumers: How many are subscribed here.
        paused: Whether nothing is given out.
        undo_until_ms: Until when the last seek can be taken back; None if there is none.
        lag_ms: The age of the oldest unsettled message; None if there is none.
        totals: What it did since the broker started.
        pace: By how much a second its figures grow; None if that is not known yet.
        kept: Why what was given up is not in the dead-letter topic; empty if it will be.
    """

    channel: str
    partition: int
    counts: Counts
    end: int
    consumers: int
    paused: bool
    undo_until_ms: int | None
    lag_ms: int | None = None
    totals: Mapping[str, int] = field(factory=lambda: dict.fromkeys(TOTALLED, 0))
    pace: tuple[float, ...] | None = None
    kept: str = ""


@frozen(kw_only=True)
class SeekRow:
    """
    What a seek does, or would do, to a channel on one partition.

    Attributes:
        partition: The partition's number.
        cursor: The next offset that was new to it.
        skipped: Messages that are settled by it.
        revived: Settled messages that come again.
        lost: Messages in flight that their consumers lose.
        undo_until_ms: Until when it can be taken back.
    """

    partition: int
    cursor: int
    skipped: int
    revived: int
    lost: int
    undo_until_ms: int


class MemberHost(Protocol):
    """What knows the consumers of a broker."""

    def signs(self, topic_id: bytes, channel: str) -> Facts:
        """
        Tell what of a channel's consumers may explain its lag.

        Args:
            topic_id: The topic.
            channel: The channel.
        """


class ChannelHost(Protocol):
    """
    What keeps the channels of a broker's partitions.

    Which channels there are, their policies, and which are paused it hears from the
    registry (`ChannelInfo.policy`, `ChannelInfo.pause`), not from here.
    """

    def counts(self, topic_id: bytes, channel: str | None = None) -> Sequence[ChannelRow]:
        """
        Describe the channels of a topic on each partition that is here and open.

        Args:
            topic_id: The topic; none that is here is no error.
            channel: Only this one.
        """

    def members(self) -> MemberHost:
        """Look at the consumers of all channels."""

    def seek(
        self,
        topic_id: bytes,
        channel: str,
        cursors: Mapping[int, int],
        *,
        empty: bool = False,
        dry_run: bool,
    ) -> Awaitable[Sequence[SeekRow]]:
        """
        Let a channel begin anew on some partitions.

        Args:
            topic_id: The topic.
            channel: The channel.
            cursors: Where, by partition; each from the start of the log to what is visible.
            empty: Whether all is to be settled, also what is kept below the start of the log.
            dry_run: Only tell what would happen.

        Returns:
            A row for each, once it is as durable as the topic promises.
        """

    def undo_seek(
        self, topic_id: bytes, channel: str, partitions: Sequence[int], *, dry_run: bool
    ) -> Awaitable[Sequence[int]]:
        """
        Take the last seek back.

        Args:
            topic_id: The topic.
            channel: The channel.
            partitions: Where.
            dry_run: Only tell where there is one to take back.

        Returns:
            The partitions where there was one that was not too old.
        """


class Channels:
    """What is done with channels; only partitions that are here count."""

    _broker: Broker
    #: What keeps them; None in a process that has none.
    channel_host: ChannelHost | None = None

    def channels(self, id: str, name: str | None) -> Result:  # noqa: A002 - the wire's word
        """Describe a topic's channels, or one of them, by partition; and that one's consumers."""
        rows = [channel_facts(row) for row in self._counted(topic_key(id), name)]
        signs = no_signs()
        if name is not None and self.channel_host is not None:
            signs = self.channel_host.members().signs(topic_key(id), name)
        return {"partitions": rows, "signs": signs}

    async def channel_totals(self, ids: list[str], filter: str) -> Result:  # noqa: A002 - the API's word
        """Sum up the channels of those topics that are known here, by topic and channel."""
        members = None if self.channel_host is None else self.channel_host.members()
        turns, rows = Turns(self._broker.scheduler), list[Result]()
        for each in ids:
            if turns.over:
                await turns.next()
            if topic_key(each) in self._broker.meta.registry.topics:
                rows += self._totals(each, filter, members)
        return {"channels": rows}

    def _totals(self, topic_id: str, pattern: str, members: MemberHost | None) -> list[Result]:
        found: dict[str, list[Result]] = {}
        for row in self._counted(topic_key(topic_id)):
            if not pattern or fnmatch.fnmatchcase(row.channel, pattern):
                found.setdefault(row.channel, []).append(channel_facts(row))
        totals = [{"id": topic_id, "channel": name, **sum_up(rows)} for name, rows in found.items()]
        if members is not None:
            for total in totals:
                merge(total["signs"], members.signs(topic_key(topic_id), total["channel"]))
        return totals

    def _counted(self, topic_id: bytes, channel: str | None = None) -> Sequence[ChannelRow]:
        self._broker.meta.registry.topic_of(topic_id)
        return () if self.channel_host is None else self.channel_host.counts(topic_id, channel)

    async def channel_seek(
        self,
        id: str,  # noqa: A002 - the wire's word
        name: str,
        partition: int | None,
        to: str,
        at: int,
        *,
        dry_run: bool,
    ) -> Result:
        """Let a channel begin anew; see `seek_rows` for what is told of it."""
        topic, host = self._channel(id, name)
        cursors = {each.index: _cursor(each, to, at) for each in self._places(topic, partition)}
        rows = await host.seek(topic.id, name, cursors, empty=to == "latest", dry_run=dry_run)
        return {"partitions": seek_rows(rows, cursors)}

    async def channel_undo_seek(
        self,
        id: str,  # noqa: A002 - the wire's word
        name: str,
        partition: int | None,
        *,
        dry_run: bool,
    ) -> Result:
        """Take the last seek of a channel back."""
        topic, host = self._channel(id, name)
        indexes = [each.index for each in self._places(topic, partition)]
        return {"undone": list(await host.undo_seek(topic.id, name, indexes, dry_run=dry_run))}

    def _places(self, topic: Topic, index: int | None) -> list[Partition]:
        partitions = self._broker.partitions_of(topic)
        return [each for each in partitions if index in (None, each.index)]

    def _channel(self, topic_id: str, name: str) -> tuple[Topic, ChannelHost]:
        """
        Find a channel and who keeps it.

        Raises:
            UnknownTopicId: There is no such topic here.
            UnknownChannel: Or no such channel.
            StateError: This process keeps none.
        """
        registry = self._broker.meta.registry
        topic = registry.topic_of(topic_key(topic_id))
        registry.channel(topic.id, name)
        if self.channel_host is None:
            raise StateError("this process keeps no channels")
        return topic, self.channel_host


def _cursor(partition: Partition, to: str, at: int) -> int:
    """Find where a seek goes on a partition."""
    first, visible = partition.log.start_offset, partition.stable_offset
    if to == "earliest":
        return first
    if to == "latest":
        return visible
    wanted = partition.offset_at(at)[0] if to == "time" else at
    return max(first, min(wanted, visible))


def channel_facts(row: ChannelRow) -> Result:
    """What is told of a channel on one partition."""
    counts = row.counts
    return {
        "channel": row.channel,
        "partition": row.partition,
        "ready": counts.fresh + counts.ready,
        "in_flight": counts.in_flight,
        "waiting": counts.waiting,
        "parked": counts.parked,
        "given_up": counts.doomed,
        "lag": counts.backlog,
        "floor": counts.floor,
        "cursor": counts.cursor,
        "end": row.end,
        "consumers": row.consumers,
        "paused": row.paused,
        "next_due_ms": counts.next_due,
        "undo_until_ms": row.undo_until_ms,
        "why": counts.why,
        **_pace_of(row),
        "signs": _signs_of(row),
    }


def _pace_of(row: ChannelRow) -> Result:
    """What a channel does on one partition."""
    rates, trend = dict[str, float | None](dict.fromkeys(RATED)), None
    if row.pace is not None:
        *found, trend = row.pace
        rates = dict(zip(RATED, found, strict=True))
    return {
        "rates": rates,
        "totals": dict(row.totals),
        "lag_ms": row.lag_ms,
        "trend_s": trend,
        "clear_ms": clear_ms(row.counts.backlog, trend),
    }


def _signs_of(row: ChannelRow) -> Facts:
    """What may explain a lag."""
    counts, index = row.counts, row.partition
    return {
        **no_signs(),
        "partitions": 1,
        "most": [counts.backlog, index],
        "full": [index] if counts.full else [],
        "worst": None if counts.worst is None else [counts.worst[0], index, counts.worst[1]],
        "kept": [row.kept] if row.kept else [],
        "next_due": counts.next_due,
        "alone": counts.alone,
    }


def seek_rows(rows: Sequence[SeekRow], cursors: Mapping[int, int]) -> list[Result]:
    """What is told of a seek."""
    return [
        {
            "partition": row.partition,
            "cursor": row.cursor,
            "new_cursor": cursors[row.partition],
            "skipped": row.skipped,
            "revived": row.revived,
            "lost": row.lost,
            "undo_until_ms": row.undo_until_ms,
        }
        for row in rows
    ]


_ID: Final = Parameter("id", text(32))
_NAME: Final = Parameter("name", text(1024))
#: Where a seek can go.
SEEKS: Final = ("earliest", "latest", "offset", "time")

CHANNEL_OPERATIONS: Final[dict[str, Operation]] = table(
    Operation(
        "node.channels",
        "cluster",
        False,
        (_ID, Parameter("name", optional(text(1024)), default=None)),
        Channels.channels,
    ),
    Operation(
        "node.channel_totals",
        "cluster",
        False,
        (Parameter("ids", array(text(32), MOST_TOPICS)), FILTER),
        Channels.channel_totals,
    ),
    Operation(
        "node.channel_seek",
        "cluster",
        True,
        (
            _ID,
            _NAME,
            PARTITION,
            Parameter("to", choice(*SEEKS)),
            Parameter("at", integer(0, I64), default=0),
            DRY,
        ),
        Channels.channel_seek,
    ),
    Operation(
        "node.channel_undo_seek",
        "cluster",
        True,
        (_ID, _NAME, PARTITION, DRY),
        Channels.channel_undo_seek,
    ),
)

#: What `tinymq.operations` does with rows of channels.
ChannelRows = list[dict[str, Any]]
