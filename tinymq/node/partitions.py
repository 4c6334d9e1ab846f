"""The partitions that a broker leads: how they are, purging, and taking that back."""

from __future__ import annotations

from typing import Any, Final

from tinymq.broker.broker import Broker
from tinymq.broker.partition import Partition
from tinymq.errors import InvalidRequest, NothingToUndo, UnknownPartition
from tinymq.figures.reports import delayed_of
from tinymq.names import users_topic
from tinymq.operation import BEFORE, DRY, PARTITION, Operation, Parameter, Result, table
from tinymq.storage.memory import MemoryLog
from tinymq.wire.fields import text


class Partitions:
    """What is done with partitions; only those that are here count."""

    _broker: Broker

    def partitions(self, id: str) -> Result:  # noqa: A002 - the wire's word
        """Describe the partitions of a topic."""
        return {"partitions": [self._facts(each) for each in self._chosen(id, None)]}

    def _facts(self, partition: Partition) -> Result:
        hosted = self._broker.channels.hosted(*partition.key)
        held = None if hosted is None else hosted.holding.told()
        waiting = zip(("delayed", "overdue", "late_ms"), delayed_of(partition), strict=True)
        return {**partition_facts(partition), **dict(waiting), "held": held}

    def purge(
        self,
        id: str,  # noqa: A002 - the wire's word
        partition: int | None,
        before: int | None,
        before_ms: int | None,
        keep: int | None,
        *,
        dry_run: bool,
    ) -> Result:
        """Move the start of logs; the files stay until the undo window has passed."""
        if sum(each is not None for each in (before, before_ms, keep)) > 1:
            raise InvalidRequest("give one of before, before_ms and keep", field="before")
        now = self._broker.wall()
        rows = []
        for each in self._chosen(id, partition):
            users_topic(each.topic.name)
            start = _purge_start(each, before, before_ms, keep)
            rows.append(plan_row(each, start))
            if dry_run:
                continue
            if start > each.log.start_offset:
                each.purge(start, now)
            self._broker.channels.purged(each, start if before is None else before)
        return {"partitions": rows}

    def undo_purge(self, id: str, partition: int | None, *, dry_run: bool) -> Result:  # noqa: A002
        """Bring back what the last purge took, while its window is open."""
        chosen = self._chosen(id, partition)
        undoable = [each for each in chosen if each.log.undo_window is not None]
        if not dry_run:
            for each in undoable:
                each.log.undo_purge()
                each.moved.add(each)
        return {"undone": len(undoable)}

    def compact(self, id: str, partition: int | None, *, dry_run: bool) -> Result:  # noqa: A002
        """Have partitions cleaned soon, or tell what that would do."""
        cleaning, rows = self._broker.cleaning, []
        for each in self._chosen(id, partition):
            rows.append({"partition": each.index, **cleaning.facts(each)})
            if not dry_run:
                cleaning.soon(each)
        return {"partitions": rows}

    def holdings(self, id: str) -> Result:  # noqa: A002 - the wire's word
        """Tell what a topic's deletion takes away here."""
        chosen = self._chosen(id, None)
        return {"partitions": [plan_row(each, each.log.end_offset) for each in chosen]}

    def _chosen(self, topic_id: str, index: int | None) -> list[Partition]:
        topic = self._broker.meta.registry.topic_of(topic_key(topic_id))
        partitions = self._broker.partitions_of(topic)
        return [each for each in partitions if index in (None, each.index)]


def topic_key(topic_id: str) -> bytes:
    """
    Read a topic's id as it travels in arguments.

    Raises:
        InvalidRequest: It is no id.
    """
    try:
        return bytes.fromhex(topic_id)
    except ValueError:
        raise InvalidRequest(f"{topic_id!r} is no topic's id", field="id") from None


def check_partition(name: str, count: int, partition: int | None) -> None:
    """
    Check the number of a partition.

    Raises:
        UnknownPartition: There is no such partition.
    """
    if partition is not None and partition >= count:
        raise UnknownPartition(
            f"{name} has partitions 0 to {count - 1}, not {partition}", partitions=count
        )


def nothing_to_undo(name: str) -> NothingToUndo:
    """Say that no purge can be taken back."""
    return NothingToUndo(f"no purge of {name} can be undone; its files are gone or it never was")


def _purge_start(
    partition: Partition, before: int | None, before_ms: int | None, keep: int | None
) -> int:
    log, visible = partition.log, partition.stable_offset
    start = visible
    if before is not None:
        start = before
    elif before_ms is not None:
        start = partition.offset_at(before_ms)[0]
    elif keep is not None:
        start = visible - keep
    return max(log.start_offset, min(start, visible))


def partition_facts(partition: Partition) -> Result:
    """What a partition holds."""
    log, failure = partition.log, partition.failure
    newest = log.max_timestamp
    return {
        "partition": partition.index,
        "start": log.start_offset,
        "end": partition.stable_offset,
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
    first, last = log.start_offset, min(start, partition.stable_offset)
    return {
        "partition": partition.index,
        "start": first,
        "new_start": start,
        "messages": max(0, last - first),
        "bytes": log.bytes_between(first, last) if last > first else 0,
        "oldest_ms": log.oldest_timestamp if last > first else None,
    }


_ID: Final = Parameter("id", text(32))

PARTITION_OPERATIONS: Final[dict[str, Operation]] = table(
    Operation("node.partitions", "cluster", False, (_ID,), Partitions.partitions),
    Operation("node.holdings", "cluster", False, (_ID,), Partitions.holdings),
    Operation("node.purge", "cluster", True, (_ID, PARTITION, *BEFORE, DRY), Partitions.purge),
    Operation("node.undo_purge", "cluster", True, (_ID, PARTITION, DRY), Partitions.undo_purge),
    Operation("node.compact", "cluster", True, (_ID, PARTITION, DRY), Partitions.compact),
)

#: What `tinymq.operations` does with rows of partitions.
Rows = list[dict[str, Any]]
