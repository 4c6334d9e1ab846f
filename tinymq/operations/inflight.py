"""Members of channels, and single messages of running channels, over all brokers."""

from __future__ import annotations

import base64
from typing import Any, Final

from tinymq.catalog import PUBLIC
from tinymq.errors import InvalidRequest
from tinymq.node.partitions import check_partition
from tinymq.operation import Operation, Result, table
from tinymq.operations.channels import Channels

#: What a message in flight is sorted by, and its place in the list of them.
_PLACE: Final = ("since_ms", "topic", "channel", "partition", "offset")


class InFlight(Channels):
    """Who takes messages, what they hold, and what becomes of it."""

    async def members(self, topic: str, name: str) -> Result:
        """List who takes messages of a channel: who holds most comes first."""
        owner, _ = self._find_channel(topic, name)
        answers = await self._ask_leaders(owner, "node.channel_members", name=name)
        rows = [row for each in answers.results.values() for row in each["members"]]
        rows.sort(key=lambda row: (-row["in_flight"], row["client_id"], row["broker_id"]))
        return {"members": rows, "silent": self._silence(answers)}

    async def peek(
        self,
        topic: str,
        name: str,
        partition: int | None,
        state: str,
        limit: int,
        after: str | None,
    ) -> Result:
        """Look at unsettled messages of a channel in order, without any effect."""
        owner, _ = self._find_channel(topic, name)
        check_partition(topic, owner.partitions, partition)
        answers = await self._ask_leaders(
            owner,
            "node.channel_peek",
            partition,
            name=name,
            state=state,
            after=_read(after, int, int),
            limit=limit + 1,
        )
        rows = [row for each in answers.results.values() for row in each["messages"]]
        rows.sort(key=lambda row: (row["partition"], row["offset"]))
        page = rows[:limit]
        more = len(rows) > limit
        return {
            "messages": [_written(_written(row, "key"), "preview") for row in page],
            "more": more,
            "after": f"{page[-1]['partition']}/{page[-1]['offset']}" if more else None,
            "silent": self._silence(answers),
        }

    async def in_flight(self, topic: str | None, channel: str | None, **wanted: Any) -> Result:
        """List messages in the hands of consumers, the oldest first."""
        limit = wanted["limit"]
        after = _read(wanted["after"], int, str, str, int, int)
        arguments = {**wanted, "name": channel, "after": after, "limit": limit + 1}
        if topic is None:
            registry = self._registry
            led = {leader for each in registry.topics.values() for leader in each.leaders}
            answers = await self._ask(led, "node.in_flight", arguments)
        else:
            answers = await self._ask_leaders(self.find(topic), "node.in_flight", **arguments)
        rows = [row for each in answers.results.values() for row in each["messages"]]
        rows.sort(key=lambda row: tuple(row[key] for key in _PLACE))
        page = rows[:limit]
        more = len(rows) > limit
        return {
            "messages": [_written(row, "key") for row in page],
            "more": more,
            "after": "/".join(str(page[-1][key]) for key in _PLACE) if more else None,
            "total": sum(each["total"] for each in answers.results.values()),
            "silent": self._silence(answers),
        }

    async def settle(self, topic: str, name: str, partition: int, **wanted: Any) -> Result:
        """Requeue, finish, extend or give up messages in flight."""
        owner, _ = self._find_channel(topic, name)
        check_partition(topic, owner.partitions, partition)
        if not wanted["offsets"]:
            raise InvalidRequest("say which messages, by their offsets", field="offsets")
        arguments = {"id": owner.id.hex(), "name": name, "partition": partition, **wanted}
        told = await self._ask_alone(owner.leader(partition), "node.settle_in_flight", arguments)
        return {**told, "dry_run": wanted["dry_run"]}


def _read(after: str | None, *kinds: type) -> list[Any] | None:
    """
    Read where a page begins.

    Raises:
        InvalidRequest: No page said so.
    """
    if not after:
        return None
    parts = after.split("/")
    try:
        return [kind(part) for kind, part in zip(kinds, parts, strict=True)]
    except ValueError:
        raise InvalidRequest("after is what the page before said", field="after") from None


def _written(row: Result, name: str) -> Result:
    """Write bytes as text where they are some, else as base64, and say which it is."""
    value, encoding = row[name], "string"
    if isinstance(value, bytes):
        text = _text(value)
        if text is None:
            value, encoding = base64.b64encode(value).decode(), "base64"
        else:
            value = text
    return {**row, name: value, f"{name}_encoding": encoding}


def _text(value: bytes) -> str | None:
    """Read text, maybe cut within its last character; None if it is none."""
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        if error.reason != "unexpected end of data":
            return None
        text = value[: error.start].decode()
    return text if all(each.isprintable() or each in "\t\n\r" for each in text) else None


INFLIGHT_OPERATIONS: Final[dict[str, Operation]] = table(
    PUBLIC["channel.members"].by(InFlight.members),
    PUBLIC["channel.peek"].by(InFlight.peek),
    PUBLIC["inflight.list"].by(InFlight.in_flight),
    PUBLIC["inflight.settle"].by(InFlight.settle),
)
