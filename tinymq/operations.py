"""
Every administrative operation, once.

The table `OPERATIONS` says of each its name, its parameters, the role that may
use it and whether it changes anything. The wire (OPERATE), the HTTP API and the
command line all come here, so that they cannot differ.
"""

from __future__ import annotations

import fnmatch
from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from attrs import frozen
from twisted.logger import Logger

from tinymq.broker.broker import Broker
from tinymq.broker.partition import Partition
from tinymq.errors import (
    InvalidRequest,
    NothingToUndo,
    StateError,
    StorageError,
    UnknownPartition,
    UnknownTopicId,
)
from tinymq.logs import LEVELS, Logs
from tinymq.storage.memory import MemoryLog
from tinymq.wire.fields import I64, Check, boolean, choice, integer, mapping, optional, text

if TYPE_CHECKING:
    from tinymq.meta.registry import Topic

Role = Literal["viewer", "operator", "admin"]
Result = dict[str, Any]

_NAME: Final = text(1024)
_NUMBER: Final = integer(-(1 << 62), I64)

#: Who acts while nobody has to say who they are.
ANONYMOUS: Final = "anonymous"

#: The default of a parameter that has none.
REQUIRED: Final = object()


@frozen
class Parameter:
    """
    A parameter of an operation.

    Attributes:
        name: Its name everywhere.
        check: What it may be.
        default: What a missing one means; without it the parameter is required.
    """

    name: str
    check: Check
    default: Any = REQUIRED


@frozen
class Operation:
    """
    One administrative operation.

    Attributes:
        name: Noun and verb, such as ``topic.create``.
        role: The least role that may use it.
        changes: Whether it changes anything; such a one takes ``dry_run``.
        parameters: What it takes.
        run: The method of `Operations`.
    """

    name: str
    role: Role
    changes: bool
    parameters: tuple[Parameter, ...]
    run: Callable[..., Result]

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """
        Check arguments.

        Args:
            given: By name.

        Raises:
            InvalidRequest: One is missing, unknown or wrong; the data's ``field`` names it.
        """
        known = {parameter.name for parameter in self.parameters}
        for name in given:
            if name not in known:
                raise InvalidRequest(
                    f"{self.name} takes {', '.join(sorted(known)) or 'nothing'}, not {name[:40]!r}",
                    field=name[:200],
                )
        found = {}
        for parameter in self.parameters:
            value = given.get(parameter.name, parameter.default)
            if value is REQUIRED:
                raise InvalidRequest(f"{self.name} needs {parameter.name}", field=parameter.name)
            if value is not parameter.default:
                try:
                    value = parameter.check(value)
                except ValueError as reason:
                    raise InvalidRequest(
                        f"{parameter.name} of {self.name} must be {reason}", field=parameter.name
                    ) from None
            found[parameter.name] = value
        return found


class Operations:
    """
    The operations on one broker.

    Args:
        broker: The domain.
        logs: Where log lines go, if their level can be changed.
    """

    _log = Logger()

    def __init__(self, broker: Broker, logs: Logs | None = None) -> None:
        self._broker = broker
        self._logs = logs

    def run(self, name: str, arguments: Mapping[str, Any], principal: str = ANONYMOUS) -> Result:
        """
        Carry out an operation by its name, and log a change with who made it.

        Args:
            name: As in `OPERATIONS`.
            arguments: By name.
            principal: On whose behalf.

        Returns:
            A map that msgpack and JSON can hold.

        Raises:
            InvalidRequest: There is no such operation, or an argument is wrong.
            UnknownTopicId: The topic of this name has not the id that was given.
            WireError: What the operation itself can fail with.
            StorageError: The disk failed.
        """
        operation = OPERATIONS.get(name)
        if operation is None:
            raise InvalidRequest(
                f"there is no operation {name[:40]!r}; there are {', '.join(OPERATIONS)}",
                field="name",
            )
        checked = operation.arguments(arguments)
        self._check_id(checked.get("name", ""), checked.pop("id", None))
        try:
            result = operation.run(self, **checked)
        except OSError as error:
            raise StorageError(f"{name} failed: {error.strerror or error}") from error
        if operation.changes and not checked["dry_run"]:
            self._log.info(
                "{principal} did {operation} {topic}",
                principal=principal,
                operation=name,
                topic=checked.get("name", ""),
            )
        return result

    def _check_id(self, name: str, topic_id: str | None) -> None:
        """Hold a caller to the topic that was meant, not to another one made under its name."""
        if topic_id is not None and self.find(name).id.hex() != topic_id:
            raise UnknownTopicId(f"the topic {name} is not the one with the id {topic_id}")

    # --- topics -----------------------------------------------------------------

    def find(self, name: str) -> Topic:
        """
        Find a topic by its name.

        Raises:
            InvalidName: The name breaks the rule.
            UnknownTopic: There is none.
        """
        return self._broker.meta.describe(name)

    def create(
        self, name: str, partitions: int | None, config: dict[str, Any], *, dry_run: bool
    ) -> Result:
        """Make a topic; one that exists with the same settings is no error."""
        existed = name in self._broker.meta.registry.by_name
        if dry_run:
            planned = self._broker.meta.create_topic(name, partitions, config, dry_run=True)
            row = {**topic_facts(planned), "partitions": planned.partitions}
            return {"topic": row, "created": not existed, "dry_run": True}
        topic = self._broker.create_topic(name, partitions, config)
        return {"topic": self.describe(topic), "created": not existed, "dry_run": False}

    def alter(
        self, name: str, partitions: int | None, config: dict[str, Any], *, dry_run: bool
    ) -> Result:
        """Change settings of a topic, or add partitions."""
        before = self.find(name)
        meta = self._broker.meta
        after = meta.alter_topic(name, config, partitions, dry_run=dry_run)
        old, new = before.config.to_mapping(), after.config.to_mapping()
        changes = [[key, old[key], new[key]] for key in new if old[key] != new[key]]
        if after.partitions != before.partitions:
            changes.append(["partitions", before.partitions, after.partitions])
        if not dry_run and changes:
            self._broker.open_topic(after)
        shown = before if dry_run else after
        return {"topic": self.describe(shown), "changes": changes, "dry_run": dry_run}

    def delete(self, name: str, *, dry_run: bool) -> Result:
        """Remove a topic with all its records."""
        topic = self.find(name)
        rows = [plan_row(each, each.log.end_offset) for each in self._broker.partitions_of(topic)]
        if not dry_run:
            self._broker.meta.delete_topic(name)
            self._broker.drop_topic(topic)
        return {"plan": plan(topic, rows, dry_run=dry_run)}

    def search(self, filter: str, after: str, limit: int) -> Result:  # noqa: A002 - the API's word
        """List topics in order of their names."""
        registry = self._broker.meta.registry
        matching = [
            name for name in registry.names if not filter or fnmatch.fnmatchcase(name, filter)
        ]
        first = bisect_right(matching, after)
        page = [registry.by_name[name] for name in matching[first : first + limit + 1]]
        rows = [
            {
                **topic_facts(topic),
                "partitions": topic.partitions,
                **self._totals(self._broker.partitions_of(topic)),
            }
            for topic in page[:limit]
        ]
        return {"topics": rows, "more": len(page) > limit, "total": len(matching)}

    def info(self, name: str) -> Result:
        """Describe one topic with its partitions."""
        return {"topic": self.describe(self.find(name))}

    def purge(
        self,
        name: str,
        partition: int | None,
        before: int | None,
        before_ms: int | None,
        keep: int | None,
        *,
        dry_run: bool,
    ) -> Result:
        """Move the start of a topic's logs; the files stay until the undo window has passed."""
        topic = self.find(name)
        if sum(each is not None for each in (before, before_ms, keep)) > 1:
            raise InvalidRequest("give one of before, before_ms and keep", field="before")
        now = self._broker.wall()
        rows = []
        for each in self.chosen(topic, partition):
            start = self._purge_start(each, before, before_ms, keep)
            rows.append(plan_row(each, start))
            if not dry_run and start > each.log.start_offset:
                each.purge(start, now)
        until = now + topic.config.undo_ms
        return {"plan": plan(topic, rows, dry_run=dry_run), "undo_until_ms": until}

    @staticmethod
    def _purge_start(
        partition: Partition, before: int | None, before_ms: int | None, keep: int | None
    ) -> int:
        log, visible = partition.log, partition.high_watermark
        start = visible
        if before is not None:
            start = before
        elif before_ms is not None:
            start = partition.offset_at(before_ms)[0]
        elif keep is not None:
            start = visible - keep
        return max(log.start_offset, min(start, visible))

    def undo_purge(self, name: str, partition: int | None, *, dry_run: bool) -> Result:
        """Bring back what the last purge took, while its window is open."""
        topic = self.find(name)
        chosen = self.chosen(topic, partition)
        undoable = [each for each in chosen if each.log.undo_window is not None]
        if not undoable:
            raise NothingToUndo(
                f"no purge of {name} can be undone; its files are gone or it never was"
            )
        if not dry_run:
            for each in undoable:
                each.log.undo_purge()
                each.moved.add(each)
        return {"topic": self.describe(topic), "dry_run": dry_run}

    def chosen(self, topic: Topic, partition: int | None) -> list[Partition]:
        """
        Find one partition, or all.

        Args:
            topic: Of which topic.
            partition: Its number, or None.

        Raises:
            UnknownPartition: There is no such partition.
        """
        partitions = self._broker.partitions_of(topic)
        if partition is None:
            return partitions
        if partition >= len(partitions):
            raise UnknownPartition(
                f"{topic.name} has partitions 0 to {len(partitions) - 1}, not {partition}",
                partitions=len(partitions),
            )
        return [partitions[partition]]

    def describe(self, topic: Topic) -> Result:
        """Describe a topic with its partitions, as a map."""
        partitions = self._broker.partitions_of(topic)
        leader = self._broker.config.broker.name
        return {
            **topic_facts(topic),
            **self._totals(partitions),
            "partitions": [partition_facts(each, leader) for each in partitions],
        }

    @staticmethod
    def _totals(partitions: list[Partition]) -> Result:
        return {
            "messages": sum(each.high_watermark - each.log.start_offset for each in partitions),
            "bytes": sum(each.log.size_bytes for each in partitions),
        }

    # --- the broker -------------------------------------------------------------

    def broker_info(self) -> Result:
        """Describe the broker, and whether it takes publishing."""
        broker = self._broker
        return {
            "broker": {
                "id": broker.id,
                "name": broker.config.broker.name,
                "host": broker.address[0],
                "port": broker.address[1],
                "topics": len(broker.meta.registry.topics),
                "partitions": len(broker.partitions()),
            },
            "ready": broker.ready is None,
            "reason": broker.ready,
        }

    def log_level(self, level: str, *, dry_run: bool) -> Result:
        """Change which log lines are written, until the next start."""
        if self._logs is None:
            raise StateError("this broker's log lines are written by somebody else")
        before = self._logs.level
        if not dry_run:
            self._logs.level = level
        return {"level": level, "before": before, "dry_run": dry_run}


def topic_facts(topic: Topic) -> Result:
    """What a topic is, without what it holds."""
    return {
        "name": topic.name,
        "id": topic.id.hex(),
        "created_ms": topic.created_ms,
        "config": topic.config.to_mapping(),
    }


def partition_facts(partition: Partition, leader: str) -> Result:
    """What a partition holds."""
    log, failure = partition.log, partition.failure
    newest = log.max_timestamp
    return {
        "partition": partition.index,
        "leader": leader,
        "start": log.start_offset,
        "end": partition.high_watermark,
        "bytes": log.size_bytes,
        "oldest_ms": log.oldest_timestamp,
        "newest_ms": newest if newest >= 0 else None,
        "dropped": log.dropped_records if isinstance(log, MemoryLog) else 0,
        "state": "online" if failure is None else "offline",
        "reason": str(failure or ""),
    }


def plan_row(partition: Partition, start: int) -> Result:
    """What moving a partition's start takes away."""
    log = partition.log
    first, last = log.start_offset, min(start, partition.high_watermark)
    return {
        "partition": partition.index,
        "start": first,
        "new_start": start,
        "messages": max(0, last - first),
        "bytes": log.bytes_between(first, last) if last > first else 0,
        "oldest_ms": log.oldest_timestamp if last > first else None,
    }


def plan(topic: Topic, rows: list[Result], *, dry_run: bool) -> Result:
    """Sum up what an operation takes away."""
    return {
        "topic": topic.name,
        "partitions": rows,
        "messages": sum(row["messages"] for row in rows),
        "bytes": sum(row["bytes"] for row in rows),
        "dry_run": dry_run,
    }


_DRY = Parameter("dry_run", boolean, default=False)
_WHICH = Parameter("name", _NAME)
_PARTITION = Parameter("partition", optional(integer(0, I64)), default=None)
_COUNT = Parameter("partitions", optional(_NUMBER), default=None)
#: The id of the topic that is meant, so that one made anew under its name is left alone.
_ID = Parameter("id", optional(text(32)), default=None)
_CONFIG = Parameter("config", mapping, default={})

#: Every operation by its name.
OPERATIONS: Final[dict[str, Operation]] = {
    operation.name: operation
    for operation in (
        Operation(
            "topic.create", "operator", True, (_WHICH, _COUNT, _CONFIG, _DRY), Operations.create
        ),
        Operation(
            "topic.alter", "operator", True, (_WHICH, _ID, _COUNT, _CONFIG, _DRY), Operations.alter
        ),
        Operation("topic.delete", "admin", True, (_WHICH, _ID, _DRY), Operations.delete),
        Operation(
            "topic.list",
            "viewer",
            False,
            (
                Parameter("filter", text(200), default=""),
                Parameter("after", _NAME, default=""),
                Parameter("limit", integer(1, 500), default=100),
            ),
            Operations.search,
        ),
        Operation("topic.info", "viewer", False, (_WHICH,), Operations.info),
        Operation(
            "topic.purge",
            "admin",
            True,
            (
                _WHICH,
                _ID,
                _PARTITION,
                Parameter("before", optional(integer(0, I64)), default=None),
                Parameter("before_ms", optional(integer(0, I64)), default=None),
                Parameter("keep", optional(integer(0, I64)), default=None),
                _DRY,
            ),
            Operations.purge,
        ),
        Operation(
            "topic.undo_purge",
            "admin",
            True,
            (_WHICH, _ID, _PARTITION, _DRY),
            Operations.undo_purge,
        ),
        Operation("broker.info", "viewer", False, (), Operations.broker_info),
        Operation(
            "broker.log_level",
            "admin",
            True,
            (Parameter("level", choice(*LEVELS)), _DRY),
            Operations.log_level,
        ),
    )
}
