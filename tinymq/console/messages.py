"""Single records: looking at them, and publishing one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twisted.internet.defer import Deferred

from tinymq.broker.partition import Appended, Partition
from tinymq.broker.peek import Effort, Seen, look
from tinymq.client.core.partitioners import key_partition
from tinymq.console.base import Base
from tinymq.errors import OffsetOutOfRange, ValueTooLarge, WireError
from tinymq.node.partitions import check_partition
from tinymq.web.port import (
    Headers,
    MessageView,
    Newest,
    Oldest,
    Page,
    Position,
    RecordView,
    Scanned,
    Since,
    Start,
)
from tinymq.wire.batch import BatchHeader, Codec
from tinymq.wire.records import Record, encode_batch

if TYPE_CHECKING:
    from tinymq.meta.registry import Topic

#: Bytes of a key, and of a value, that a list of records holds.
_KEY_SHOWN: Final = 1024
_VALUE_SHOWN: Final = 512


class Messages(Base):
    """Records in and out, one by one or a page at a time."""

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
        check_partition(topic.name, topic.partitions, partition)
        partitions = self._broker.partitions_of(topic)
        return [each for each in partitions if partition in (None, each.index)]

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
            f"partition {partition.index} can be read from offsets {low} to {visible}; "
            f"shown from {nearest}"
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
