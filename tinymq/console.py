"""
The broker as the dashboard sees it: frozen snapshots out, operations in.

Implements `tinymq.web.port.Console`. What changes something goes through
`tinymq.operations`, as everywhere.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import psutil
from attrs import evolve
from twisted.internet.defer import Deferred

from tinymq import __version__
from tinymq.broker.broker import Broker
from tinymq.broker.housekeeping import Housekeeping, reserve_of
from tinymq.broker.partition import Appended, Partition
from tinymq.broker.peek import Effort, Seen, look
from tinymq.client.core.partitioners import key_partition
from tinymq.errors import OffsetOutOfRange, ValueTooLarge, WireError
from tinymq.operations import Operations, Result
from tinymq.protocol import BrokerFactory
from tinymq.sampling import WHOLE, Sampler
from tinymq.stats import (
    BrokerSnapshot,
    ClusterSnapshot,
    ConfigRow,
    Gap,
    OfflinePartition,
    PartitionSnapshot,
    Sync,
    TopicRow,
    TopicSnapshot,
    UndoWindow,
)
from tinymq.web.port import (
    At,
    Headers,
    MessageView,
    Newest,
    Oldest,
    Page,
    Plan,
    PlanPart,
    Position,
    RecordView,
    Scanned,
    SettingChange,
    Since,
    Start,
    TopicPage,
    TopicQuery,
    select,
)
from tinymq.wire.batch import BatchHeader, Codec
from tinymq.wire.records import Record, encode_batch

if TYPE_CHECKING:
    from tinymq.meta.registry import Topic

_KEY_SHOWN: Final = 1024
_VALUE_SHOWN: Final = 512
_LISTED: Final = 20
_TOP: Final = 5


class BrokerConsole:
    """
    One broker with its MetaServer, as a console.

    Args:
        broker: The domain.
        operations: The administrative operations.
        factory: The connections.
        housekeeping: Knows the disk.
    """

    def __init__(
        self,
        broker: Broker,
        operations: Operations,
        factory: BrokerFactory,
        housekeeping: Housekeeping,
    ) -> None:
        self._broker = broker
        self._operations = operations
        self._factory = factory
        self._housekeeping = housekeeping
        self._sampler = Sampler(broker)
        self._process = psutil.Process()
        self._next = 0

    def start(self) -> None:
        """Begin to sample."""
        self._sampler.start()

    def stop(self) -> None:
        """End sampling."""
        self._sampler.stop()

    # --- looking ----------------------------------------------------------------

    def cluster(self) -> ClusterSnapshot:
        """Look at the whole cluster."""
        broker, history, now = self._broker, self._sampler.history, self._broker.wall()
        rows = [self._row(topic) for topic in broker.meta.registry.topics.values()]
        partitions = broker.partitions()
        offline = [each for each in partitions if each.failure is not None]
        damaged = sorted({each.topic.name for each in partitions if each.log.report.damaged})
        return ClusterSnapshot(
            name=broker.config.cluster.name,
            label=broker.config.cluster.env,
            taken_ms=now,
            brokers=(self._snapshot(now),),
            topics=len(rows),
            partitions=len(partitions),
            messages=sum(row.messages for row in rows),
            bytes=sum(row.bytes for row in rows),
            offline=tuple(
                OfflinePartition(
                    topic=each.topic.name, partition=each.index, reason=str(each.failure)
                )
                for each in offline[:_LISTED]
            ),
            offline_count=len(offline),
            damaged=tuple(damaged[:_LISTED]),
            largest=self._top(rows, "bytes"),
            busiest=self._top(rows, "messages_in"),
            rates=history.rates(WHOLE, now),
            recent=history.trail(WHOLE, now),
            long=history.trail(WHOLE, now, "long"),
        )

    def _top(self, rows: list[TopicRow], field: Any) -> tuple[TopicRow, ...]:
        query = TopicQuery(sort=field, reverse=True, page_size=_TOP)
        items = select(rows, query, self._enriched).items
        return tuple(
            row for row in items if (row.bytes if field == "bytes" else row.rates.messages_in)
        )

    def _snapshot(self, now: int) -> BrokerSnapshot:
        broker, space = self._broker, self._housekeeping.space
        host, port = broker.address
        with self._process.oneshot():
            memory, descriptors = self._process.memory_info().rss, self._process.num_fds()
        return BrokerSnapshot(
            name=broker.config.broker.name,
            version=__version__,
            pid=os.getpid(),
            started_ms=self._sampler.started_ms,
            listen=f"tinymq://{host}:{port}",
            memory=memory,
            memory_limit=psutil.virtual_memory().total,
            disk_total=space.total if space else None,
            disk_used=space.total - space.free if space else None,
            disk_free=space.free if space else None,
            disk_reserve=(
                reserve_of(space, broker.config.storage.reserve_bytes) if space else None
            ),
            descriptors=descriptors,
            descriptors_limit=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            reactor_lag_ms=self._sampler.lateness_ms,
            connections=len(self._factory.connections),
            refusing=broker.ready,
            rates=self._sampler.history.rates(WHOLE, now),
        )

    def ready(self) -> str | None:
        """Say why publishing is refused, or None when it is not."""
        return self._broker.ready

    def topics(self, query: TopicQuery) -> TopicPage:
        """List topics."""
        rows = [self._row(topic) for topic in self._broker.meta.registry.topics.values()]
        return select(rows, query, self._enriched)

    def _row(self, topic: Topic) -> TopicRow:
        partitions = self._broker.partitions_of(topic)
        newest = max((each.log.max_timestamp for each in partitions), default=-1)
        return TopicRow(
            name=topic.name,
            partitions=topic.partitions,
            messages=sum(each.high_watermark - each.log.start_offset for each in partitions),
            bytes=sum(each.log.size_bytes for each in partitions),
            sync=_sync(topic),
            rates=self._sampler.history.rates(topic.id, self._broker.wall()),
            last_write_ms=newest if newest >= 0 else None,
            offline=sum(each.failure is not None for each in partitions),
        )

    def _enriched(self, row: TopicRow) -> TopicRow:
        topic = self._broker.meta.registry.topic(row.name)
        series = self._sampler.history.series(topic.id, self._broker.wall())
        return evolve(row, series=series)

    def topic(self, name: str) -> TopicSnapshot:
        """Look at one topic."""
        topic = self._operations.find(name)
        history, now = self._sampler.history, self._broker.wall()
        partitions = self._broker.partitions_of(topic)
        windows = [each.log.undo_window for each in partitions]
        open_windows = [each for each in windows if each is not None and each[0] > now]
        undo = None
        if open_windows:
            undo = UndoWindow(
                until_ms=max(until for until, _ in open_windows),
                records=sum(records for _, records in open_windows),
            )
        return TopicSnapshot(
            id=topic.id.hex(),
            name=topic.name,
            created_ms=topic.created_ms,
            sync=_sync(topic),
            config=tuple(
                ConfigRow(row.name, row.value, row.default)
                for row in topic.config.rows(self._broker.config.defaults)
            ),
            partitions=tuple(self._partition(each, now) for each in partitions),
            rates=history.rates(topic.id, now),
            recent=history.trail(topic.id, now),
            undo=undo,
        )

    def _partition(self, partition: Partition, now: int) -> PartitionSnapshot:
        log, failure = partition.log, partition.failure
        history, key = self._sampler.history, (partition.topic.id, partition.index)
        return PartitionSnapshot(
            index=partition.index,
            leader=self._broker.config.broker.name,
            start=log.start_offset,
            end=partition.high_watermark,
            bytes=log.size_bytes,
            rates=history.rates(key, now),
            series=history.series(key, now),
            oldest_ms=log.oldest_timestamp,
            last_write_ms=log.max_timestamp if log.max_timestamp >= 0 else None,
            state="online" if failure is None else "offline",
            reason=str(failure or ""),
            gaps=tuple(
                Gap(first=gap.start, end=gap.end, reason=gap.reason) for gap in log.report.damaged
            ),
        )

    # --- messages ---------------------------------------------------------------

    async def browse(
        self, topic: str, partition: int | None, start: Start, limit: int, max_bytes: int
    ) -> Page:
        """Read records without any side effect."""
        found = self._operations.find(topic)
        chosen = self._chosen(found, partition)
        share = max(64 * 1024, max_bytes // max(1, len(chosen)))
        notes: list[str] = []
        looked: list[tuple[Partition, Seen]] = []
        effort = Effort()
        for each in chosen:
            first = _first(each, start, limit, notes)
            try:
                looked.append((each, look(each, first, limit, share, effort)))
            except WireError as error:
                notes.append(f"partition {each.index} cannot be read: {error.text}")
        newest = isinstance(start, Newest)
        views = [_view(each.index, record) for each, seen in looked for record, _ in seen.records]
        views.sort(key=lambda view: (view.time_ms, view.partition, view.offset), reverse=newest)
        skipped = sum(seen.skipped for _, seen in looked)
        if skipped:
            notes.append(f"{skipped} batches cannot be shown")
        if effort.left <= 0 and not all(seen.complete for _, seen in looked):
            notes.append("only a part of the compressed batches is shown")
        return Page(
            records=tuple(views[:limit]),
            scanned=tuple(
                Scanned(
                    partition=each.index,
                    first=seen.first,
                    end=seen.end,
                    log_start=each.log.start_offset,
                    log_end=each.high_watermark,
                )
                for each, seen in looked
            ),
            note="; ".join(notes),
        )

    def _chosen(self, topic: Topic, partition: int | None) -> list[Partition]:
        return self._operations.chosen(topic, partition)

    async def message(
        self, topic: str, partition: int, offset: int, skip: int, length: int
    ) -> MessageView:
        """Read one record with a window of its value."""
        (place,) = self._chosen(self._operations.find(topic), partition)
        log, visible = place.log, place.high_watermark
        if not log.start_offset <= offset < visible:
            raise OffsetOutOfRange(
                f"{topic}/{partition} holds offsets {log.start_offset} to {visible - 1}",
                start=log.start_offset,
                end=visible,
            )
        seen = look(place, offset, 1, self._broker.limits.payload)
        if not seen.records or seen.records[0][0].offset != offset:
            raise OffsetOutOfRange(
                f"{topic}/{partition} has no record at offset {offset}; it may lie in a gap",
                start=log.start_offset,
                end=visible,
            )
        record, header = seen.records[0]
        return self._message_view(topic, place, record, header, (skip, length))

    @staticmethod
    def _message_view(
        topic: str,
        place: Partition,
        record: Record,
        header: BatchHeader,
        window: tuple[int, int],
    ) -> MessageView:
        skip, length = window
        value, offset = record.value, record.offset
        idempotent = header.producer_id >= 0
        return MessageView(
            topic=topic,
            partition=place.index,
            offset=offset,
            time_ms=record.timestamp,
            size=len(value or b""),
            key=record.key,
            headers=tuple(record.headers),
            produced_ms=record.created,
            skip=skip,
            value=None if value is None else value[skip : skip + length],
            stored=header.size,
            codec=Codec(header.codec).name.lower(),
            batch_records=header.records,
            leader_epoch=header.leader_epoch,
            producer_id=header.producer_id if idempotent else None,
            sequence=header.base_sequence + offset - header.base_offset if idempotent else None,
            previous=offset - 1 if offset > place.log.start_offset else None,
            next=offset + 1 if offset + 1 < place.high_watermark else None,
        )

    async def publish(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        partition: int | None,
    ) -> Position:
        """Append one record, durable as the topic's policy says."""
        found = self._operations.find(topic)
        limits = self._broker.limits
        for name, size, most in (
            ("value", len(value or b""), min(limits.value, found.config.max_value_bytes)),
            ("key", len(key or b""), limits.key),
            ("headers", sum(len(n.encode()) + len(v) for n, v in headers), limits.headers),
        ):
            if size > most:
                raise ValueTooLarge(
                    f"the {name} has {size} bytes; the limit is {most}", field=name, limit=most
                )
        index = self._place(found, key) if partition is None else partition
        batch = encode_batch(
            [value],
            keys=None if key is None else [key],
            headers=[headers] if headers else None,
            times=self._broker.wall(),
        )
        done: Deferred[Appended | WireError] = Deferred()
        self._broker.produce(found.id, index, batch, done.callback)
        result = await done
        if isinstance(result, WireError):
            raise result
        return Position(
            partition=index,
            offset=result.base_offset,
            time_ms=result.timestamp,
            durable=not result.volatile and found.config.sync == "always",
        )

    def _place(self, topic: Topic, key: bytes | None) -> int:
        if key is not None:
            return key_partition(key, topic.partitions)
        self._next += 1
        return self._next % topic.partitions

    # --- changes ----------------------------------------------------------------

    async def create_topic(
        self, name: str, partitions: int, config: Mapping[str, str], *, dry_run: bool
    ) -> Plan:
        """Make a topic."""
        result = self._operations.run(
            "topic.create",
            {"name": name, "partitions": partitions, "config": dict(config), "dry_run": dry_run},
        )
        topic = result["topic"]
        default = self._broker.config.defaults.to_mapping()
        changes = [
            SettingChange(name=key, before=None, after=_text(value))
            for key, value in topic["config"].items()
            if value != default[key]
        ]
        warnings = () if result["created"] else ("It exists already, with these settings.",)
        return Plan(
            action="create",
            topic=name,
            applied=not dry_run,
            changes=(
                SettingChange(name="partitions", before=None, after=str(partitions)),
                *changes,
            ),
            warnings=warnings,
        )

    async def alter_topic(
        self, name: str, config: Mapping[str, str | None], *, dry_run: bool
    ) -> Plan:
        """Change settings."""
        result = self._operations.run(
            "topic.alter", {"name": name, "config": dict(config), "dry_run": dry_run}
        )
        return Plan(
            action="alter",
            topic=name,
            applied=not dry_run,
            changes=tuple(
                SettingChange(name=key, before=_text(old), after=_text(new))
                for key, old, new in result["changes"]
            ),
        )

    async def delete_topic(self, name: str, *, dry_run: bool) -> Plan:
        """Remove a topic with all its records."""
        gone = self._broker.partitions_of(self._operations.find(name))
        result = self._operations.run("topic.delete", {"name": name, "dry_run": dry_run})
        if not dry_run:
            self._sampler.forget(gone)
        return _plan("delete", result["plan"])

    async def purge(
        self, topic: str, partition: int | None, before: At | Since | None, *, dry_run: bool
    ) -> Plan:
        """Move the start of the log, so that records before it are gone."""
        arguments: dict[str, Any] = {"name": topic, "partition": partition, "dry_run": dry_run}
        if isinstance(before, At):
            arguments["before"] = before.offset
        elif isinstance(before, Since):
            arguments["before_ms"] = before.ms
        result = self._operations.run("topic.purge", arguments)
        return _plan("purge", result["plan"], result["undo_until_ms"])

    async def undo_purge(self, topic: str) -> Plan:
        """Bring back what the last purge took."""
        before = self._operations.info(topic)["topic"]
        result = self._operations.run("topic.undo_purge", {"name": topic})["topic"]
        return Plan(
            action="undo",
            topic=topic,
            applied=True,
            records=result["messages"] - before["messages"],
            bytes=result["bytes"] - before["bytes"],
        )


def _sync(topic: Topic) -> Sync:
    return "memory" if topic.config.storage == "memory" else topic.config.sync


def _first(partition: Partition, start: Start, limit: int, notes: list[str]) -> int:
    """Where to begin, and a note when that is not what was asked for."""
    low, visible = partition.log.start_offset, partition.high_watermark
    if isinstance(start, Newest):
        return max(low, visible - limit)
    if isinstance(start, Oldest):
        return low
    if isinstance(start, Since):
        return partition.offset_at(start.ms)[0]
    if not low <= start.offset <= visible:
        nearest = min(max(start.offset, low), visible)
        notes.append(
            f"partition {partition.index} holds offsets {low} to {visible}; shown from {nearest}"
        )
        return nearest
    return start.offset


def _view(partition: int, record: Record) -> RecordView:
    return RecordView(
        partition=partition,
        offset=record.offset,
        time_ms=record.timestamp,
        key=None if record.key is None else record.key[:_KEY_SHOWN],
        size=len(record.value or b""),
        headers=tuple(record.headers),
        preview=None if record.value is None else record.value[:_VALUE_SHOWN],
    )


def _plan(action: Any, result: Result, undo_until_ms: int | None = None) -> Plan:
    parts = tuple(
        PlanPart(
            partition=row["partition"],
            first=row["start"],
            end=row["new_start"],
            records=row["messages"],
            bytes=row["bytes"],
            oldest_ms=row["oldest_ms"],
        )
        for row in result["partitions"]
    )
    oldest = [part.oldest_ms for part in parts if part.oldest_ms is not None]
    return Plan(
        action=action,
        topic=result["topic"],
        applied=not result["dry_run"],
        records=result["messages"],
        bytes=result["bytes"],
        oldest_ms=min(oldest, default=None),
        parts=parts,
        undo_until_ms=undo_until_ms,
    )


def _text(value: object) -> str:
    return "none" if value is None else str(value)
