"""Logs of keyed records, transactions among them, and what compaction must leave of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.fakes.disk import FaultyDisk
from tinymq.storage import swap
from tinymq.storage.compaction import clean
from tinymq.storage.disk import Disk
from tinymq.storage.files import FileCache
from tinymq.storage.log import Log, LogConfig
from tinymq.storage.tasks import Cleaned, Damaged, Done, Event, Source, Task
from tinymq.wire.batch import (
    ABORTED,
    CONTROL,
    NATIVE,
    TRANSACTIONAL,
    Codec,
    read_header,
    split,
    stored,
)
from tinymq.wire.records import RecordBatch, encode_batch

CONFIG = LogConfig(segment_bytes=1200, index_interval=150)

#: Key and value.
Row = tuple[bytes | None, bytes | None]


class Kept(NamedTuple):
    """A record as a reader gets it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    time: int


class Keyed:
    """
    A log, and the dictionary that it stands for.

    Args:
        log: The log.

    Attributes:
        rows: Every record that was appended and counts, by offset.
        now: The time of the next batch.
    """

    def __init__(self, log: Log) -> None:
        self.log = log
        self.rows: dict[int, Kept] = {}
        self.now = log.max_timestamp + 1 if log.max_timestamp >= 0 else 1000
        self.pending: dict[tuple[int, int], dict[int, Kept]] = {}
        self.sequences: dict[tuple[int, int], int] = {}

    def put(
        self,
        *rows: Row,
        codec: Codec = Codec.NONE,
        producer: tuple[int, int] | None = None,
        transactional: bool = False,
    ) -> int:
        """Stage a batch, and return its first offset."""
        self.now += 1
        base, values = self.log.end_offset, [value for _, value in rows]
        headers = [(("at", b"%d" % (base + place)),) for place in range(len(rows))]
        sequence = self.sequences.get(producer, 0) if producer is not None else -1
        made = encode_batch(
            values,
            keys=[key for key, _ in rows],
            headers=headers,
            times=[self.now] * len(rows),
            ids=[b"%016d" % (base + place) for place in range(len(rows))],
            codec=codec,
            producer_id=producer[0] if producer else -1,
            producer_epoch=producer[1] if producer else -1,
            base_sequence=sequence,
        )
        header = read_header(made)
        if transactional:
            header = header._replace(attributes=header.attributes | TRANSACTIONAL)
        self._append(made[61:], header.last_offset_delta, header, base)
        found = {
            base + place: Kept(key, value, headers[place], self.now)
            for place, (key, value) in enumerate(rows)
        }
        if producer is not None:
            self.sequences[producer] = sequence + len(rows)
        if transactional and producer is not None:
            self.pending.setdefault(producer, {}).update(found)
        else:
            self.rows.update(found)
        return base

    def end(self, producer: tuple[int, int], *, commit: bool) -> None:
        """End a transaction."""
        self.now += 1
        made = encode_batch([b"end"], keys=[b"\0\0"])
        attributes = NATIVE | CONTROL | TRANSACTIONAL | (0 if commit else ABORTED)
        header = read_header(made)._replace(
            attributes=attributes, producer_id=producer[0], producer_epoch=producer[1]
        )
        self._append(made[61:], 0, header, self.log.end_offset)
        found = self.pending.pop(producer, {})
        if commit:
            self.rows.update(found)

    def _append(self, payload: bytes, delta: int, header: object, base: int) -> None:
        pieces = stored(payload, header, base, 0, self.now)  # type: ignore[arg-type]
        self.log.append(pieces, base, base + delta, self.now)

    def sync(self) -> None:
        """Bring it to the disk."""
        self.log.write()
        self.log.sync()

    def close_file(self) -> None:
        """Bring it to the disk, and begin another file."""
        self.sync()
        self.log.close_file()

    @property
    def stable(self) -> int:
        """The offset behind which a transaction is open."""
        opened = (min(each) for each in self.pending.values() if each)
        return min(opened, default=self.log.synced_offset)

    def task(self, **options: object) -> Task:
        """What is to be cleaned now."""
        sources = self.log.sources(self.log.start_offset, self.stable)
        end = sources[-1].end if sources else 0
        return Task(
            folder=self.log.path,
            sources=tuple(sources),
            behind=tuple(self.log.files_from(end)),
            **{"segment_bytes": 1200, "interval": 150, **options},  # type: ignore[arg-type]
        )

    def clean(self, disk: Disk | None = None, **options: object) -> Cleaning:
        """Clean it, every file taking its place at once."""
        cleaning = Cleaning(self.log, self.task(**options), disk or FaultyDisk())
        cleaning.run()
        return cleaning

    def expected(self, until: int, gone: int = 0) -> dict[int, Kept]:
        """What must be there once all below an offset was cleaned, without old tombstones."""
        newest = {
            row.key: offset
            for offset, row in sorted(self.rows.items())
            if offset < until and row.key is not None
        }
        return {
            offset: row
            for offset, row in self.rows.items()
            if (row.key is None or offset >= until or newest[row.key] == offset)
            and not (row.value is None and row.key is not None and offset < gone)
        }


class Cleaning:
    """
    A run of the cleaner on a log.

    Args:
        log: The log.
        task: What is to be cleaned.
        disk: The disk.
    """

    def __init__(self, log: Log, task: Task, disk: Disk) -> None:
        self.log = log
        self.task = task
        self.disk = disk
        self.events: list[Event] = []

    def run(self, between: Callable[[], None] = lambda: None) -> None:
        """Let every cleaned file take its place."""
        for event in clean(self.disk, self.task):
            self.events.append(event)
            if isinstance(event, Cleaned):
                assert self.log.swap(event)
                between()
                others = [base for base, _ in event.sources[1:]]
                swap.finish(self.disk, self.task.folder, others)

    @property
    def done(self) -> Done:
        """How it ended."""
        found = self.events[-1]
        assert isinstance(found, Done)
        return found

    @property
    def cleaned(self) -> list[Cleaned]:
        """The files that took their place."""
        return [each for each in self.events if isinstance(each, Cleaned)]

    @property
    def damaged(self) -> list[Damaged]:
        """The files that were left alone."""
        return [each for each in self.events if isinstance(each, Damaged)]


def opened(path: str, config: LogConfig = CONFIG) -> Keyed:
    """Open a log of keyed records."""
    return Keyed(Log.open(FileCache(FaultyDisk()), path, config))


def batches(log: Log, start: int | None = None) -> Iterator[tuple[int, RecordBatch]]:
    """Yield every batch that can be read, checking that no offset is missing."""
    offset = log.start_offset if start is None else start
    following = None
    while offset < log.written_offset:
        chunk = log.read(offset, 400, log.written_offset)
        assert chunk is not None
        assert chunk.next_offset > offset, "reading does not get on"
        for header, data in split(chunk.data):
            assert following in {None, header.base_offset}, "an offset is in no batch"
            following = header.next_offset
            yield header.attributes, RecordBatch(bytes(data))
        offset = chunk.next_offset
    assert following in {None, log.written_offset}
    assert log.report.damaged == ()


def visible(log: Log, start: int | None = None) -> dict[int, Kept]:
    """What a reader sees who skips aborted transactions."""
    found: dict[int, Kept] = {}
    opened: dict[tuple[int, int], dict[int, Kept]] = {}
    for attributes, batch in batches(log, start):
        identity = batch.header.producer_id, batch.header.producer_epoch
        if attributes & CONTROL:
            rows = opened.pop(identity, {})
            found.update({} if attributes & ABORTED else rows)
            continue
        rows = {
            record.offset: Kept(record.key, record.value, tuple(record.headers), record.timestamp)
            for record in batch
        }
        for offset, message_id in zip(batch.offsets, batch.ids, strict=True):
            assert message_id == b"%016d" % offset
        if attributes & TRANSACTIONAL:
            opened.setdefault(identity, {}).update(rows)
        else:
            found.update(rows)
    start = log.start_offset if start is None else start
    return {offset: row for offset, row in sorted(found.items()) if offset >= start}


def source_of(log: Log, base: int) -> Source:
    """A file of a log."""
    return next(each for each in log.files_from(0) if each.base == base)
