"""A broker and its blocking client in memory, for what only talks to a client."""

from __future__ import annotations

import fnmatch
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from attrs import Factory, define, frozen

from tests.fakes.memory_channels import MemoryChannels
from tests.fakes.memory_cluster import MemoryCluster
from tests.fakes.memory_queue import MemorySubscription
from tinymq.catalog import PUBLIC
from tinymq.client.core.offsets import Survey
from tinymq.client.core.results import Delayed
from tinymq.client.core.starts import At
from tinymq.errors import (
    ConnectionLost,
    DeadlineExceeded,
    LogTruncated,
    NothingToUndo,
    NotLeader,
    OffsetOutOfRange,
    TopicExists,
    UnknownTopic,
    UnknownTopicId,
)
from tinymq.names import valid_name
from tinymq.wire.records import Record

#: The fake's clock begins here, and rises by a second with each record.
BEGIN_MS = 1_750_000_000_000

Headers = Sequence[tuple[str, bytes]]


@define
class MemoryPartition:
    """Records by position; offsets begin at 0 and a purge moves the start."""

    records: list[Record] = Factory(list)
    start: int = 0
    purged_from: int | None = None


@define
class MemoryTopic:
    """A topic; `silent` are partitions whose broker does not answer."""

    name: str
    number: int
    config: dict[str, Any]
    partitions: list[MemoryPartition]
    silent: set[int] = Factory(set)

    def facts(self) -> dict[str, Any]:
        """Describe it as TOPIC of the operations."""
        rows = [
            _silent_facts(number) if number in self.silent else _partition_facts(number, each)
            for number, each in enumerate(self.partitions)
        ]
        return {
            "name": self.name,
            "id": f"{self.number:032x}",
            "created_ms": BEGIN_MS + self.number,
            "config": dict(self.config),
            "messages": sum((row["end"] or 0) - (row["start"] or 0) for row in rows),
            "bytes": sum(row["bytes"] or 0 for row in rows),
            "partitions": rows,
            "silent": ["far"] if self.silent else [],
        }


def _silent_facts(number: int) -> dict[str, Any]:
    facts = dict.fromkeys(("start", "end", "bytes", "oldest_ms", "newest_ms"))
    reason = "far does not answer"
    return {"partition": number, "leader": "far", **facts, "state": "offline", "reason": reason}


def _partition_facts(number: int, partition: MemoryPartition) -> dict[str, Any]:
    kept = partition.records[partition.start :]
    return {
        "partition": number,
        "leader": "memory",
        "start": partition.start,
        "end": len(partition.records),
        "bytes": sum(len(each.value or b"") for each in kept),
        "oldest_ms": kept[0].timestamp if kept else None,
        "newest_ms": kept[-1].timestamp if kept else None,
        "state": "online",
        "reason": "",
    }


class MemoryBroker:
    """
    Topics in memory, and the operations on them.

    Attributes:
        topics: By name.
        calls: Each operation with its arguments, in order.
        ready: Whether publishing is taken.
        log_level: Of the least important log lines that are written.
        down: Every call fails with `ConnectionLost`.
        idle: What happens each time a reader has read everything; when there is
            nothing left to happen the reader is interrupted as by Ctrl-C.
        failure: Raised by every call, when set.
        patient: Readers that have read everything wait for another thread to
            publish, instead of being interrupted.
        cluster: The brokers and the clients that there are said to be.
        channels: The channels of its topics.
        subscriptions: What was subscribed, in order.
        losing: Offsets of messages that subscriptions lose at once.
        rest: Never set; for who waits.
        stranger: What is told when somebody else answers in the broker's place.
        pauses: The seconds of each wait of `pause`.
        answers: What operations without a method of their own answer, one after
            the other; after the last one somebody presses Ctrl-C.
        delayed: What waits, in order of its ids: topic, partition, value, when it
            comes, its time to live.
    """

    def __init__(self) -> None:
        self.topics: dict[str, MemoryTopic] = {}
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.ready = True
        self.log_level = "info"
        self.down = False
        self.idle: list[Callable[[], None]] = []
        self.failure: Exception | None = None
        self.patient = False
        self.cluster = MemoryCluster()
        self.channels = MemoryChannels()
        self.subscriptions: list[MemorySubscription] = []
        self.losing: set[int] = set()
        self.rest = threading.Event()
        self.stranger: Exception | None = None
        self.pauses: list[float] = []
        self.delayed: list[tuple[str, int, bytes | None, int, float | None]] = []
        self.answers: dict[str, list[dict[str, Any] | Exception]] = {}
        #: Rows of consumer groups, in order of their names.
        self.groups: list[dict[str, Any]] = []
        self.lock = threading.RLock()
        self.arrived = threading.Condition(self.lock)
        self._time = BEGIN_MS

    def pause(self, seconds: float) -> None:
        """Let something happen while somebody waits; with nothing left, Ctrl-C does."""
        self.pauses.append(seconds)
        if not self.idle:
            raise KeyboardInterrupt
        self.idle.pop(0)()

    def check(self) -> None:
        """Fail if the broker is to fail."""
        if self.failure is not None:
            raise self.failure
        if self.down:
            raise ConnectionLost("the broker went away")

    def find(self, name: str) -> MemoryTopic:
        """Find a topic, or raise."""
        valid_name(name)
        if name not in self.topics:
            raise UnknownTopic(f"there is no topic {name}")
        return self.topics[name]

    def make(self, name: str, partitions: int = 1, **config: Any) -> MemoryTopic:
        """Make a topic."""
        valid_name(name)
        topic = MemoryTopic(
            name,
            len(self.topics),
            {"sync": "always", "storage": "disk", **config},
            [MemoryPartition() for _ in range(partitions)],
        )
        self.topics[name] = topic
        return topic

    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int = 0,
        headers: Headers = (),
    ) -> int:
        """Append a record and return its offset."""
        with self.lock:
            records = self.find(topic).partitions[partition].records
            self._time += 1000
            records.append(Record(len(records), self._time, key, value, headers, None))
            self.arrived.notify_all()
            return len(records) - 1

    def operate(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Carry out an operation."""
        with self.lock:
            self.check()
            self.calls.append((name, arguments))
            if name in self.answers:
                return self._answer(name)
            checked = PUBLIC[name].arguments(arguments)
            if name.startswith("channel."):
                return self.channels.operate(name.removeprefix("channel."), checked)
            method = getattr(self, "_" + name.replace(".", "_"))
            if name.startswith("topic.") and checked.pop("id", None):
                raise UnknownTopicId("the topic is not the one with this id")
            result: dict[str, Any] = method(**checked)
            return result

    def _answer(self, name: str) -> dict[str, Any]:
        if not self.answers[name]:
            raise KeyboardInterrupt
        answer = self.answers[name].pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _group_list(
        self,
        topic: str | None,
        filter: str,  # noqa: A002 - the API's word
        after: str,
        limit: int,
    ) -> dict[str, Any]:
        rows = [
            row
            for row in self.groups
            if fnmatch.fnmatch(row["name"], filter or "*")
            and topic in (None, *row["topics"])
            and row["name"] > after
        ]
        return {"groups": rows[:limit], "more": False, "after": None, "silent": []}

    def _topic_create(
        self,
        name: str,
        partitions: int | None = None,
        config: Mapping[str, Any] | None = None,
        *,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        existed = name in self.topics
        if existed and partitions not in {None, len(self.topics[name].partitions)}:
            raise TopicExists(f"topic {name} exists with other partitions")
        topic = self.topics[name] if existed else self.make(name, partitions or 1, **(config or {}))
        if dry_run and not existed:
            del self.topics[name]
        return {"topic": topic.facts(), "created": not existed, "dry_run": dry_run}

    def _topic_alter(
        self, name: str, partitions: int | None, config: Mapping[str, Any], *, dry_run: bool
    ) -> dict[str, Any]:
        topic = self.find(name)
        changes = [
            [setting, topic.config.get(setting), value]
            for setting, value in config.items()
            if topic.config.get(setting) != value
        ]
        if not dry_run:
            topic.config.update(config)
        return {"topic": topic.facts(), "changes": changes, "dry_run": dry_run}

    def _topic_list(self, filter: str = "", after: str = "", limit: int = 100) -> dict[str, Any]:  # noqa: A002 - the API's word
        names = sorted(name for name in self.topics if fnmatch.fnmatch(name, filter or "*"))
        page = [name for name in names if name > after]
        rows = []
        for name in page[:limit]:
            facts = self.topics[name].facts()
            del facts["silent"]
            rows.append({**facts, "partitions": len(facts["partitions"])})
        return {"topics": rows, "more": len(page) > limit, "total": len(names)}

    def _topic_info(self, name: str) -> dict[str, Any]:
        return {"topic": self.find(name).facts()}

    def _plan(self, topic: MemoryTopic, starts: Mapping[int, int], *, dry: bool) -> dict[str, Any]:
        rows = []
        for number, start in starts.items():
            partition = topic.partitions[number]
            gone = partition.records[partition.start : start]
            rows.append(
                {
                    "partition": number,
                    "start": partition.start,
                    "new_start": start,
                    "messages": len(gone),
                    "bytes": sum(len(each.value or b"") for each in gone),
                    "oldest_ms": gone[0].timestamp if gone else None,
                }
            )
        return {
            "topic": topic.name,
            "partitions": rows,
            "messages": sum(row["messages"] for row in rows),
            "bytes": sum(row["bytes"] for row in rows),
            "dry_run": dry,
        }

    def _topic_delete(self, name: str, *, dry_run: bool) -> dict[str, Any]:
        topic = self.find(name)
        ends = {number: len(each.records) for number, each in enumerate(topic.partitions)}
        plan = self._plan(topic, ends, dry=dry_run)
        if not dry_run:
            del self.topics[name]
        return {"plan": plan}

    def _topic_purge(
        self,
        name: str,
        partition: int | None,
        before: int | None = None,
        before_ms: int | None = None,
        keep: int | None = None,
        *,
        dry_run: bool,
    ) -> dict[str, Any]:
        topic = self.find(name)
        starts = {}
        for number, each in enumerate(topic.partitions):
            end = len(each.records)
            if before_ms is not None:
                before = sum(record.timestamp < before_ms for record in each.records)
            start = end - keep if keep is not None else end if before is None else before
            if partition in {None, number}:
                starts[number] = min(max(start, each.start), end)
        plan = self._plan(topic, starts, dry=dry_run)
        if not dry_run:
            for number, start in starts.items():
                topic.partitions[number].purged_from = topic.partitions[number].start
                topic.partitions[number].start = start
        return {"plan": plan, "undo_until_ms": BEGIN_MS + 600_000}

    def _topic_undo_purge(
        self, name: str, partition: int | None, *, dry_run: bool
    ) -> dict[str, Any]:
        topic = self.find(name)
        undoable = [each for each in topic.partitions if each.purged_from is not None]
        if not undoable:
            raise NothingToUndo(f"no purge of {name} can be undone")
        if not dry_run:
            for each in undoable:
                each.start, each.purged_from = each.purged_from or 0, None
        return {"topic": topic.facts(), "dry_run": dry_run}

    def _topic_compact(self, name: str, partition: int | None, *, dry_run: bool) -> dict[str, Any]:
        topic = self.find(name)
        rows = [
            {"partition": number, "bytes": 0, "dirty": 0, "cleaned_ms": None, "saved": 0}
            for number, _ in enumerate(topic.partitions)
            if partition in {None, number}
        ]
        facts = {"topic": name, "partitions": rows, "bytes": 0, "dirty": 0, "silent": []}
        return {"compaction": {**facts, "dry_run": dry_run}}

    def _broker_log_level(
        self, level: str, broker: str | None = None, *, dry_run: bool = False
    ) -> dict[str, Any]:
        before = self.log_level
        if not dry_run:
            self.log_level = level
        return {"level": level, "before": before, "dry_run": dry_run}

    def _broker_list(self) -> dict[str, Any]:
        return self.cluster.list()

    def _broker_drain(
        self, broker: str, *, undo: bool = False, dry_run: bool = False
    ) -> dict[str, Any]:
        return self.cluster.drain(broker, undo=undo, dry_run=dry_run)

    def _client_list(
        self,
        broker: str | None = None,
        filter: str = "",  # noqa: A002 - the API's word
        after: str | None = None,
        limit: int = 100,
    ) -> dict[str, Any]:
        return self.cluster.search(broker, filter, after, limit)

    def _client_info(self, broker: str, id: int) -> dict[str, Any]:  # noqa: A002 - the API's word
        return self.cluster.client(broker, id)

    def _client_kick(
        self,
        broker: str,
        id: int,  # noqa: A002 - the API's word
        reason: str | None = None,
        *,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        return self.cluster.kick(broker, id, dry_run=dry_run)

    def _broker_info(self, broker: str | None = None) -> dict[str, Any]:
        if broker is not None:
            return self.cluster.info(broker)
        return {
            "broker": {"id": 1, "name": "memory", "topics": len(self.topics)},
            "ready": self.ready,
            "reason": None if self.ready else "the disk is full",
        }


# --- the client ------------------------------------------------------------------


@frozen
class MemorySent:
    """What `send_batch` returns."""

    count: int
    positions: list[tuple[int, int, int]]
    volatile: bool = False
    delayed: list[tuple[int, int, int]] = Factory(list)
    duplicates: list[tuple[int, int, int]] = Factory(list)


@frozen
class MemoryPosition:
    """What `send` returns."""

    partition: int
    offset: int
    volatile: bool
    duplicate: bool = False


@frozen
class MemoryBatch:
    """Some records of one partition."""

    topic: str
    partition: int
    records: Sequence[Record]

    @property
    def values(self) -> list[bytes | None]:
        """All values."""
        return [record.value for record in self.records]

    @property
    def next_offset(self) -> int:
        """The offset after the last one."""
        return self.records[-1].offset + 1

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)


@frozen
class MemoryInfo:
    """What METADATA tells of a topic."""

    partitions: int


class MemoryClient:
    """The blocking client of a `MemoryBroker`."""

    def __init__(self, broker: MemoryBroker) -> None:
        self.broker = broker
        self.admin = MemoryAdmin(broker)
        self.closed = False

    def producer(self, config: Any = None) -> MemoryProducer:
        """Make a producer."""
        return MemoryProducer(self.broker, config)

    def consumer(self, config: Any = None) -> MemoryConsumer:
        """Make a consumer."""
        return MemoryConsumer(self.broker)

    def subscription(
        self, topics: str | Sequence[str], channel: str, config: Any
    ) -> MemorySubscription:
        """Take messages of a channel."""
        made = MemorySubscription(self.broker, topics, channel, config)
        made.lost = self.broker.losing
        self.broker.subscriptions.append(made)
        return made

    def metadata(self, topics: Sequence[str]) -> dict[str, MemoryInfo]:
        """Describe topics."""
        self.broker.check()
        return {name: MemoryInfo(len(self.broker.find(name).partitions)) for name in topics}

    def survey(
        self, topic: str, partitions: Sequence[int], time_ms: int, within_s: float
    ) -> Survey:
        """Ask for offsets; partitions of a silent broker are named."""
        self.broker.check()
        found = self.broker.find(topic)
        start = At(time_ms) if time_ms >= 0 else time_ms
        return Survey(
            {
                number: _resolve(found.partitions[number], start)
                for number in partitions
                if number not in found.silent
            },
            {
                number: NotLeader("it has no live leader")
                for number in partitions
                if number in found.silent
            },
        )

    def close(self) -> None:
        """Remember that it was closed."""
        self.closed = True


class MemoryAdmin:
    """Administrative calls."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker

    def operate(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        """Carry out an operation."""
        return self._broker.operate(name, arguments)

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Make a topic."""
        return self.operate("topic.create", name=name, partitions=partitions, config=config or {})


class MemoryProducer:
    """Appends at once."""

    def __init__(self, broker: MemoryBroker, config: Any) -> None:
        self._broker = broker
        self.config = config

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        **times: Any,
    ) -> MemoryPosition | Delayed:
        """Append one record, or have it wait."""
        sent = self.send_batch(
            topic, [value], None if key is None else [key], [headers or ()], partition, **times
        )
        if sent.delayed:
            due = self._broker.delayed[-1][3]
            return Delayed(topic, sent.delayed[0][0], sent.delayed[0][1], due)
        volatile = self._broker.topics[topic].config["storage"] == "memory"
        return MemoryPosition(partition or 0, sent.positions[0][1], volatile)

    def send_batch(
        self,
        topic: str,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Headers] | None = None,
        partition: int | None = None,
        *,
        delay: float | None = None,
        at: int | None = None,
        ttl: float | None = None,
    ) -> MemorySent:
        """Append all, to partition 0 when nothing else is said, or have them wait."""
        broker, place = self._broker, partition or 0
        if delay or at:
            due = at or BEGIN_MS + int((delay or 0) * 1000)
            first = len(broker.delayed)
            broker.delayed += [(topic, place, value, due, ttl) for value in values]
            return MemorySent(len(values), [], delayed=[(place, first, len(values))])
        with broker.lock:
            broker.check()
            if topic not in broker.topics and self.config.create_topics:
                broker.make(topic)
            offsets = [
                broker.append(
                    topic,
                    value,
                    None if keys is None else keys[number],
                    place,
                    () if headers is None else headers[number],
                )
                for number, value in enumerate(values)
            ]
            volatile = broker.topics[topic].config["storage"] == "memory"
        return MemorySent(len(values), [(place, offsets[0], len(offsets))], volatile)

    def close(self) -> None:
        """Do nothing."""


class MemoryConsumer:
    """Yields at most three records at a time."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._next: dict[tuple[str, int], int] = {}
        self._paused: set[tuple[str, int]] = set()
        self.closed = False

    def assign(self, topic: str, partitions: Sequence[int] | None = None, start: Any = -2) -> None:
        """Begin reading."""
        found = self._broker.find(topic)
        for number in range(len(found.partitions)) if partitions is None else partitions:
            partition = found.partitions[number]
            begin = start[number] if isinstance(start, Mapping) else start
            self._next[topic, number] = _resolve(partition, begin)

    def unassign(self, topic: str, partitions: Sequence[int]) -> None:
        """Forget these."""
        for partition in partitions:
            del self._next[topic, partition]

    def pause(self, topic: str, partitions: Sequence[int]) -> None:
        """Read these no more."""
        self._paused.update((topic, partition) for partition in partitions)

    def end_offsets(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        """Where these end."""
        self._broker.check()
        found = self._broker.find(topic).partitions
        return {number: len(found[number].records) for number in partitions}

    def position(self, topic: str, partition: int) -> int:
        """Where reading goes on."""
        return self._next[topic, partition]

    def __iter__(self) -> Iterator[MemoryBatch]:
        while True:
            batch = self.next_batch()
            if batch is not None:
                yield batch

    def next_batch(self, timeout: float | None = None) -> MemoryBatch | None:
        """Give the next batch; with a timeout wait for no longer than that."""
        with self._broker.lock:
            batch = self._some()
            if batch is None and timeout is not None:
                self._broker.arrived.wait(timeout)
                return self._some()
            return self._wait() if batch is None else batch

    def _wait(self) -> MemoryBatch | None:
        if self._broker.idle:
            self._broker.idle.pop(0)()
        elif not self._broker.patient:
            raise KeyboardInterrupt
        elif not self._broker.arrived.wait(10):
            raise DeadlineExceeded("nothing arrived")
        return self._some()

    def _some(self) -> MemoryBatch | None:
        self._broker.check()
        for place in sorted(set(self._next) - self._paused):
            topic, number = place
            first = self._next[place]
            everything = self._broker.find(topic).partitions[number].records
            if first > len(everything):
                raise LogTruncated("cut back", topic=topic, partition=number)
            records = everything[first : first + 3]
            if records:
                self._next[place] = first + len(records)
                return MemoryBatch(topic, number, records)
        return None

    def close(self) -> None:
        """Remember that it was closed."""
        self.closed = True


def _resolve(partition: MemoryPartition, start: Any) -> int:
    end = len(partition.records)
    if start == -2:
        return partition.start
    if start == -1:
        return end
    if not isinstance(start, int):
        return sum(record.timestamp < start.ms for record in partition.records)
    if not partition.start <= start <= end:
        raise OffsetOutOfRange(f"the partition holds {partition.start} to {end}, not {start}")
    return start
