"""Messages that are not due yet, over all brokers: looking at them, and what becomes of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from tinymq.catalog import PUBLIC
from tinymq.catalog.delayed import ACTS
from tinymq.errors import InvalidDelay, InvalidRequest, StateError, WireError
from tinymq.limits import LATEST_MS
from tinymq.meta.registry import Topic
from tinymq.node.partitions import check_partition
from tinymq.operation import Operation, Result, table
from tinymq.operations.base import Answers
from tinymq.operations.leaders import Leaders
from tinymq.operations.written import written

_MINUTE: Final = 60_000
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_YEAR: Final = 365 * _DAY
#: Where the bars of a histogram end, in milliseconds from now.
EDGES: Final = (
    *(each * _MINUTE for each in (1, 2, 3, 5, 10, 15, 20, 30, 45)),
    *(each * _HOUR for each in (1, 2, 3, 4, 6, 8, 12, 18)),
    *(each * _DAY for each in (1, 2, 3, 4, 5, 6, 7, 10, 14, 21, 30, 60, 90, 120, 180, 270)),
    *(each * _YEAR for each in (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000)),
)

#: Where a row stands in the list of all.
_PLACE: Final = ("due_ms", "topic", "partition", "id")


class DelayedMessages(Leaders):
    """Messages that are not due yet, over all brokers."""

    # --- looking --------------------------------------------------------------------

    async def delayed(
        self,
        topic: str | None,
        partition: int | None,
        channel: str | None,
        limit: int,
        after: str,
        **choice: Any,
    ) -> Result:
        """List messages that are not due yet, in order of their time."""
        if channel is not None:
            return await self._retries(topic, channel, partition, limit, after, **choice)
        answers = await self._delayed(topic, partition, limit, after, **choice)
        rows, more = _page(answers, limit)
        return {
            "messages": [_shown(row) for row in rows],
            "total": sum(each["total"] for each in answers.results.values()),
            "more": more,
            "after": _after(rows[-1]) if more else None,
            "silent": self._silence(answers),
        }

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
        raise StateError("what a channel retries cannot be listed yet")

    async def _delayed(
        self, topic: str | None, partition: int | None, limit: int, after: str, **choice: Any
    ) -> Answers:
        """Ask for one row more than a page has, by everybody."""
        arguments = {
            "choice": {key: value for key, value in choice.items() if value is not None},
            "partition": partition,
            "limit": limit + 1,
            "after": read_place(after, _PLACE),
        }
        if topic is None:
            return await self._ask(self._everybody(), "node.delayed_list", arguments)
        owner = self.find(topic)
        check_partition(topic, owner.partitions, partition)
        leaders = owner.leaders if partition is None else (owner.leader(partition),)
        return await self._ask(leaders, "node.delayed_list", {"id": owner.id.hex(), **arguments})

    def _everybody(self) -> set[int]:
        return {leader for each in self._registry.topics.values() for leader in each.leaders}

    async def delayed_histogram(self, topic: str | None, channel: str | None) -> Result:
        """Count messages that are not due yet by when they are."""
        if channel is not None:
            return await self._retry_histogram(topic, channel)
        now = self._broker.channels.now()
        edges = [now, *(now + edge for edge in EDGES), LATEST_MS + 1]
        arguments: dict[str, Any] = {"edges": edges}
        leaders = self._everybody()
        if topic is not None:
            owner = self.find(topic)
            leaders, arguments["id"] = {*owner.leaders}, owner.id.hex()
        answers = await self._ask(leaders, "node.delayed_histogram", arguments)
        counts = [0] * (len(edges) - 1)
        overdue, first = 0, list[int]()
        for told in answers.results.values():
            overdue += told["overdue"]
            counts = [a + b for a, b in zip(counts, told["counts"], strict=True)]
            if told["next_ms"] is not None:
                first.append(told["next_ms"])
        return {**histogram(edges, counts, overdue, first), "silent": self._silence(answers)}

    async def _retry_histogram(self, topic: str | None, channel: str) -> Result:
        """Count what waits for its next attempt in a channel."""
        raise StateError("what a channel retries cannot be counted yet")

    async def delayed_message(self, topic: str, partition: int, id: int) -> Result:  # noqa: A002
        """Look at one message that is not due yet."""
        owner = self.find(topic)
        check_partition(topic, owner.partitions, partition)
        arguments = {"id": owner.id.hex(), "partition": partition, "delayed": id}
        told = await self._ask_alone(owner.leader(partition), "node.delayed_get", arguments)
        row = told["message"]
        headers = [
            written({"name": name, "value": value}, "value") for name, value in row["headers"]
        ]
        message = {**_shown(row), **written({"value": row["value"]}, "value"), "headers": headers}
        return {"message": message, "state": "waiting"}

    # --- what becomes of them ---------------------------------------------------------

    async def cancel_delayed(
        self, topic: str, partition: int, ids: list[int], *, dry_run: bool
    ) -> Result:
        """Cancel messages; they never come."""
        return await self._act(topic, partition, ids, "cancel", None, dry_run=dry_run)

    async def delayed_now(
        self, topic: str, partition: int, ids: list[int], *, dry_run: bool
    ) -> Result:
        """Let messages come now."""
        return await self._act(topic, partition, ids, "now", None, dry_run=dry_run)

    async def move_delayed(
        self,
        topic: str,
        partition: int,
        ids: list[int],
        due_ms: int | None,
        delay_ms: int | None,
        *,
        dry_run: bool,
    ) -> Result:
        """Let messages come at another time."""
        due = self._due(due_ms, delay_ms)
        told = await self._act(topic, partition, ids, "move", due, dry_run=dry_run)
        return {**told, "due_ms": due}

    def _due(self, due_ms: int | None, delay_ms: int | None) -> int:
        """
        Say when messages that are moved come then.

        Raises:
            InvalidRequest: It is not said, or twice.
            InvalidDelay: It is beyond what can be kept.
        """
        if (due_ms is None) == (delay_ms is None):
            raise InvalidRequest("give one of due_ms and delay_ms", field="due_ms")
        due = self._broker.channels.now() + delay_ms if delay_ms is not None else due_ms
        assert due is not None, "one of them is given"
        if due > LATEST_MS:
            raise InvalidDelay(
                f"a message can wait until {LATEST_MS} (the end of the year 9999), not {due}",
                limit=LATEST_MS,
            )
        return due

    async def _act(
        self,
        topic: str,
        partition: int,
        ids: list[int],
        act: str,
        due: int | None,
        *,
        dry_run: bool,
    ) -> Result:
        owner = self.find(topic)
        check_partition(topic, owner.partitions, partition)
        if not ids:
            raise InvalidRequest("say which messages, by their ids", field="ids")
        told = await self._acted(owner, partition, ids, act, due, dry_run=dry_run)
        return {**told, "dry_run": dry_run}

    async def _acted(
        self,
        owner: Topic,
        partition: int,
        ids: list[int],
        act: str,
        due: int | None,
        *,
        dry_run: bool,
    ) -> Result:
        arguments = {
            "id": owner.id.hex(),
            "partition": partition,
            "ids": ids,
            "act": act,
            "due_ms": due,
            "dry_run": dry_run,
        }
        return await self._ask_alone(owner.leader(partition), "node.delayed_act", arguments)

    async def apply_to_delayed(
        self,
        act: str,
        topic: str,
        partition: int | None,
        limit: int,
        after: str,
        *,
        dry_run: bool,
        **choice: Any,
    ) -> Result:
        """Do something with the messages that fit a filter, one step."""
        due_ms, delay_ms = choice.pop("due_ms"), choice.pop("delay_ms")
        if act != "move" and (due_ms is not None or delay_ms is not None):
            raise InvalidRequest("only move takes due_ms and delay_ms", field="due_ms")
        due, place = None, after
        if act == "move":
            place, begun = _begun(after)
            due = self._due(due_ms, delay_ms)
            if delay_ms is not None and begun is not None:
                due = self._due(begun, None)
        answers = await self._delayed(topic, partition, limit, place, **choice)
        rows, more = _page(answers, limit)
        by_partition: dict[int, list[int]] = defaultdict(list)
        for row in rows:
            if row["due_ms"] != due:  # else an earlier step moved it there
                by_partition[row["partition"]].append(row["id"])
        done, failed, owner = 0, list[Result](), self.find(topic)
        for index, ids in sorted(by_partition.items()):
            try:
                told = await self._acted(owner, index, ids, act, due, dry_run=dry_run)
            except WireError as error:
                failed += ({"partition": index, "id": each, "why": error.text} for each in ids)
            else:
                done += len(told["done"])
        return {
            "done": done,
            "failed": failed,
            "more": more,
            "after": _after(rows[-1], due) if more else None,
            "silent": self._silence(answers),
            "dry_run": dry_run,
        }


def histogram(edges: list[int], counts: list[int], overdue: int, first: list[int]) -> Result:
    """
    Tell counts of messages by their times.

    Args:
        edges: Where the bars begin, and where the last one ends.
        counts: How many messages are in each.
        overdue: How many are due and not out.
        first: When the first come that somebody knows.
    """
    last = max((place for place, count in enumerate(counts) if count), default=-1)
    return {
        "buckets": [
            {"from_ms": edges[place], "to_ms": edges[place + 1], "messages": counts[place]}
            for place in range(last + 1)
        ],
        "total": sum(counts) + overdue,
        "overdue": overdue,
        "next_ms": min(first, default=None),
    }


def _page(answers: Answers, limit: int) -> tuple[list[Result], bool]:
    rows = [row for each in answers.results.values() for row in each["messages"]]
    rows.sort(key=lambda row: tuple(row[key] for key in _PLACE))
    return rows[:limit], len(rows) > limit


def _after(row: Result, due: int | None = None) -> str:
    """Write the place behind which the next page begins, and where messages are moved to."""
    place = "/".join(str(row[key]) for key in _PLACE)
    return place if due is None else f"{place}@{due}"


def _begun(after: str) -> tuple[str, int | None]:
    """
    Read where a step begins, and to which time the steps before moved messages.

    All steps move to one time, by which what was moved is known when it is met again: else
    it would be moved on by a later step, and so on for ever.

    Raises:
        InvalidRequest: No step said so.
    """
    place, at, due = after.partition("@")
    if at and not (place and due.isascii() and due.isdigit() and len(due) < 20):
        raise InvalidRequest("after is what the step before said", field="after")
    return place, int(due) if at else None


def read_place(after: str, names: Sequence[str]) -> list[Any] | None:
    """
    Read where a page begins.

    Args:
        after: What the page before said; empty for the first one.
        names: What it is made of; all but the topic are whole numbers.

    Raises:
        InvalidRequest: No page said so.
    """
    if not after:
        return None
    parts = after.split("/")
    if len(parts) != len(names) or not all(
        name == "topic" or (part.isascii() and part.isdigit() and len(part) < 20)
        for name, part in zip(names, parts, strict=True)
    ):
        raise InvalidRequest("after is what the page before said", field="after")
    return [part if name == "topic" else int(part) for name, part in zip(names, parts, strict=True)]


def _shown(row: Result) -> Result:
    """What is told of one message."""
    schedule = row["schedule"]
    told = {
        "topic": row["topic"],
        "partition": row["partition"],
        "id": row["id"],
        "channel": None,
        "offset": None,
        "due_ms": row["due_ms"],
        "why": "publish" if schedule is None else "schedule",
        "attempt": 0,
        "schedule": None if schedule is None else schedule.rpartition("@")[0],
        "size": row["size"],
        "taken_ms": row["taken_ms"],
    }
    key = written({"key": row["key"]}, "key")
    return {**told, "key": key["key"], "encoding": key["key_encoding"]}


assert set(ACTS) == {"cancel", "now", "move"}

DELAYED_OPERATIONS: Final[dict[str, Operation]] = table(
    PUBLIC["delayed.list"].by(DelayedMessages.delayed),
    PUBLIC["delayed.histogram"].by(DelayedMessages.delayed_histogram),
    PUBLIC["delayed.get"].by(DelayedMessages.delayed_message),
    PUBLIC["delayed.cancel"].by(DelayedMessages.cancel_delayed),
    PUBLIC["delayed.now"].by(DelayedMessages.delayed_now),
    PUBLIC["delayed.move"].by(DelayedMessages.move_delayed),
    PUBLIC["delayed.apply"].by(DelayedMessages.apply_to_delayed),
)
