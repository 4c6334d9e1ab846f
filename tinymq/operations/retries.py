"""Messages that wait for their next attempt in a channel, over all brokers."""

from __future__ import annotations

from typing import Any, Final

from typing_extensions import override

from tinymq.catalog import PUBLIC
from tinymq.errors import InvalidRequest
from tinymq.limits import LATEST_MS
from tinymq.meta.registry import Topic
from tinymq.node.partitions import check_partition
from tinymq.operation import Operation, Result, table
from tinymq.operations.delayed import EDGES, DelayedMessages, histogram, read_place
from tinymq.operations.written import written

#: Where a row stands in the list of all.
_PLACE: Final = ("due_ms", "partition", "offset")


class Retries(DelayedMessages):
    """What a channel retries belongs to what is not due yet."""

    def _channel_of(self, topic: str | None, channel: str) -> Topic:
        """
        Find the topic of a channel.

        Raises:
            InvalidRequest: No topic was named.
        """
        if topic is None:
            raise InvalidRequest(
                "a channel goes with the name of its topic: say topic, too", field="topic"
            )
        owner = self.find(topic)
        self._registry.channel(owner.id, channel)
        return owner

    @override
    async def _retries(
        self,
        topic: str | None,
        channel: str,
        partition: int | None,
        limit: int,
        after: str,
        **choice: Any,
    ) -> Result:
        """List what waits for its next attempt in a channel."""
        owner = self._channel_of(topic, channel)
        check_partition(owner.name, owner.partitions, partition)
        if choice.pop("schedule", None) is not None:
            raise InvalidRequest("no schedule has messages in a channel", field="schedule")
        answers = await self._ask_leaders(
            owner,
            "node.retries",
            partition,
            name=channel,
            limit=limit + 1,
            after=read_place(after, _PLACE),
            **choice,
        )
        rows = [row for each in answers.results.values() for row in each["messages"]]
        rows.sort(key=lambda row: tuple(row[key] for key in _PLACE))
        page, more = rows[:limit], len(rows) > limit
        return {
            "messages": [_shown(row) for row in page],
            "total": sum(each["total"] for each in answers.results.values()),
            "more": more,
            "after": "/".join(str(page[-1][key]) for key in _PLACE) if more else None,
            "silent": self._silence(answers),
        }

    @override
    async def _retry_histogram(self, topic: str | None, channel: str) -> Result:
        """Count what waits for its next attempt in a channel."""
        owner = self._channel_of(topic, channel)
        now = self._broker.channels.now()
        edges = [now, *(now + edge for edge in EDGES), LATEST_MS + 1]
        answers = await self._ask_leaders(owner, "node.retry_histogram", name=channel, edges=edges)
        told = list(answers.results.values())
        counts = [sum(each) for each in zip(*(each["counts"] for each in told), strict=True)]
        first = [each["next_ms"] for each in told if each["next_ms"] is not None]
        overdue = sum(each["overdue"] for each in told)
        return {
            **histogram(edges, counts or [0] * (len(edges) - 1), overdue, first),
            "silent": self._silence(answers),
        }

    async def wake(self, topic: str, name: str, partition: int, **wanted: Any) -> Result:
        """Let messages that wait for their next attempt come now."""
        return await self._reschedule(topic, name, partition, None, **wanted)

    async def delay(
        self,
        topic: str,
        name: str,
        partition: int,
        due_ms: int | None,
        delay_ms: int | None,
        **wanted: Any,
    ) -> Result:
        """Let messages that wait for their next attempt come at another time."""
        due = self._due(due_ms, delay_ms)
        told = await self._reschedule(topic, name, partition, due, **wanted)
        return {**told, "due_ms": due}

    async def _reschedule(
        self,
        topic: str,
        name: str,
        partition: int,
        due: int | None,
        *,
        offsets: list[int],
        dry_run: bool,
    ) -> Result:
        owner = self._channel_of(topic, name)
        check_partition(topic, owner.partitions, partition)
        if not offsets:
            raise InvalidRequest("say which messages, by their offsets", field="offsets")
        arguments = {
            "id": owner.id.hex(),
            "name": name,
            "partition": partition,
            "offsets": offsets,
            "due_ms": due,
            "dry_run": dry_run,
        }
        told = await self._ask_alone(owner.leader(partition), "node.reschedule", arguments)
        return {**told, "dry_run": dry_run}


def _shown(row: Result) -> Result:
    """What is told of one message."""
    key = written({"key": row["key"]}, "key")
    return {
        **row,
        "id": None,
        "why": "retry",
        "schedule": None,
        "key": key["key"],
        "encoding": key["key_encoding"],
    }


RETRY_OPERATIONS: Final[dict[str, Operation]] = table(
    PUBLIC["channel.wake"].by(Retries.wake),
    PUBLIC["channel.delay"].by(Retries.delay),
)
