"""
Looking at stored logs without a broker, and setting them right: ``tinymq log``.

Everything is a generator of frozen values; nothing prints. `dump` and `verify`
only read, and may look at a running broker's files, whose last batches may then
be half-written. `repair` takes the data folder's lock.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import zip_longest
from typing import Final

from attrs import frozen

from tinymq.errors import ConfigError
from tinymq.storage import index as index_file
from tinymq.storage import start as start_file
from tinymq.storage import swap
from tinymq.storage.checkpoint import point_below
from tinymq.storage.disk import TEMPORARY, Disk
from tinymq.storage.facts import DEFAULT_CONFIG, Gap
from tinymq.storage.files import FileCache
from tinymq.storage.folder import KINDS, check_format, lock_folder
from tinymq.storage.log import Log
from tinymq.storage.scan import Read, scan_segment
from tinymq.storage.segment import Hole, Segment, base_of
from tinymq.wire.batch import BatchHeader

_TOPIC: Final = re.compile(r"[0-9a-f]{32}")


@frozen
class Place:
    """
    A log in the file system.

    Attributes:
        path: Its folder.
        topic: The topic's id in hexadecimal, empty when the path does not tell.
        partition: The partition, -1 when the path does not tell.
        kind: ``data``, ``ledger`` or ``delay``, empty when the path does not tell.
    """

    path: str
    topic: str
    partition: int
    kind: str


@frozen
class DumpedBatch:
    """
    A batch, or bytes that are none.

    Attributes:
        place: The log.
        file: The segment's file name.
        position: Where in the file.
        size: Bytes.
        header: The batch's header, None for bytes that are no good batch.
        problem: What is wrong with the bytes, empty for a good batch.
    """

    place: Place
    file: str
    position: int
    size: int
    header: BatchHeader | None
    problem: str = ""


@frozen(kw_only=True)
class LogFacts:
    """
    What lies in one log.

    Attributes:
        place: The log.
        start: First readable offset.
        end: The next offset to be given.
        records: Records that can be read; compaction leaves fewer than offsets.
        batches: Batches that can be read.
        size: Bytes of all segments.
        segments: How many files.
        oldest: Append time of the first readable batch, -1 without one.
        newest: Latest append time, -1 without one.
        gaps: Offsets that cannot be shown.
        torn: Bytes of a torn tail, which the next start cuts off.
        indexes: How many index files fit, and how many do not.
        unreadable: Files of state that are damaged.
        left_over: Half-written files, which the next start removes.
        purged: Offsets of purges that can still be undone.
    """

    place: Place
    start: int
    end: int
    records: int
    batches: int
    size: int
    segments: int
    oldest: int
    newest: int
    gaps: tuple[Gap, ...]
    torn: int
    indexes: tuple[int, int]
    unreadable: tuple[str, ...]
    left_over: tuple[str, ...]
    purged: int

    @property
    def sound(self) -> bool:
        """Whether nothing is lost and nothing wants repair; a torn tail is only a crash's."""
        return not self.gaps and not self.unreadable and not self.indexes[1]


@frozen
class TopicFacts:
    """
    What lies in one topic's data logs.

    Attributes:
        topic: Its id in hexadecimal.
        partitions: How many have a log.
        records: Records that can be read; compaction leaves fewer than offsets.
        size: Bytes.
        missing: Offsets that cannot be shown.
    """

    topic: str
    partitions: int
    records: int
    size: int
    missing: int


@frozen
class Repair:
    """
    One thing that was set right, or would be.

    Attributes:
        path: The file or folder.
        action: ``cut``, ``set aside``, ``index`` or ``remove``.
        detail: One sentence.
    """

    path: str
    action: str
    detail: str


def find_logs(path: str) -> list[Place]:
    """
    Find the logs in a data folder, a topic's folder, a partition's, or a log's own.

    Raises:
        ConfigError: There are none, or the data folder's format is unknown.
    """
    path = os.path.abspath(path)
    disk = Disk()
    if not os.path.isdir(path):
        raise ConfigError(f"{path} is not a folder")
    if os.path.exists(os.path.join(path, "format")):
        check_format(disk, path, new=False)
        path = os.path.join(path, "topics")
        return sorted(_below(disk, path), key=lambda place: place.path)
    found = list(_below(disk, path))
    if not found:
        raise ConfigError(f"{path} is neither a data folder of tinymq nor a log")
    return sorted(found, key=lambda place: place.path)


def _below(disk: Disk, path: str) -> Iterator[Place]:
    entries = disk.scan(path)
    if os.path.basename(path) in KINDS or any(base_of(each.name) is not None for each in entries):
        yield _place(path)
        return
    for entry in entries:
        if entry.folder:
            yield from _below(disk, entry.path)


def _place(path: str) -> Place:
    *_, topic, partition, kind = ("", "", "", *path.split(os.sep))
    if kind in KINDS and partition.isdecimal() and _TOPIC.fullmatch(topic):
        return Place(path, topic, int(partition), kind)
    return Place(path, "", -1, "")


@contextmanager
def _reading(path: str) -> Iterator[Read]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    disk = Disk()
    try:
        yield lambda position, size: disk.pread(descriptor, size, position)
    finally:
        os.close(descriptor)


@frozen
class _Scanned:
    """A segment that was read to its end."""

    segment: Segment
    size: int
    rest: Hole | None
    last: bool


def _scan(
    place: Place, on_batch: Callable[[Segment, BatchHeader], None] | None = None
) -> Iterator[_Scanned]:
    disk = Disk()
    gone = swap.replaced(disk, place.path) or ()
    entries = [
        each
        for each in disk.scan(place.path)
        if (found := base_of(each.name)) is not None and found not in gone
    ]
    for entry, following in zip_longest(entries, entries[1:]):
        base = int(entry.name[:20])
        ceiling = int(following.name[:20]) if following is not None else None
        segment = Segment.at(place.path, base)

        def tell(header: BatchHeader, segment: Segment = segment) -> None:
            if on_batch is not None:
                on_batch(segment, header)

        with suppress(FileNotFoundError), _reading(entry.path) as read:
            rest = scan_segment(
                read,
                segment,
                entry.size,
                interval=DEFAULT_CONFIG.index_interval,
                ceiling=ceiling,
                on_batch=tell,
            )
            yield _Scanned(segment, entry.size, rest.hole if rest else None, ceiling is None)


def dump(path: str) -> Iterator[DumpedBatch]:
    """
    Yield every batch below a path, and every run of bytes that is none.

    Args:
        path: A data folder, a topic's, or a log's.

    Raises:
        ConfigError: There is no log.
    """
    for place in find_logs(path):
        found: list[DumpedBatch] = []

        def batch(
            segment: Segment,
            header: BatchHeader,
            place: Place = place,
            found: list[DumpedBatch] = found,
        ) -> None:
            name = os.path.basename(segment.path)
            position = segment.size - header.size
            found.append(DumpedBatch(place, name, position, header.size, header))

        for scanned in _scan(place, batch):
            name = os.path.basename(scanned.segment.path)
            for hole in (*scanned.segment.holes, *((scanned.rest,) if scanned.rest else ())):
                torn = hole is scanned.rest and scanned.last
                problem = "torn tail" if torn else f"damaged, offset {hole.offset} expected"
                size = hole.stop - hole.position
                found.append(DumpedBatch(place, name, hole.position, size, None, problem))
            yield from sorted(found, key=lambda each: each.position)
            found.clear()


def verify(path: str) -> Iterator[LogFacts]:
    """
    Read and check everything below a path.

    Args:
        path: A data folder, a topic's, or a log's.

    Yields:
        The facts of one log after the other.

    Raises:
        ConfigError: There is no log.
    """
    for place in find_logs(path):
        yield _verify(place)


def _verify(place: Place) -> LogFacts:
    disk = Disk()
    start = start_file.load(disk, place.path)
    begin = start.offset if start is not None else 0
    headers: list[tuple[int, int, int, int]] = []
    scanned = list(
        _scan(
            place,
            lambda _, header: headers.append(
                (header.base_offset, header.next_offset, header.max_timestamp, header.records)
            ),
        )
    )
    begin = max(begin, scanned[0].segment.base if scanned else 0)
    readable = [each for each in headers if each[1] > begin]
    last = scanned[-1] if scanned else None
    return LogFacts(
        place=place,
        start=begin,
        end=max(begin, last.segment.end if last is not None else 0),
        records=sum(min(count, end - max(base, begin)) for base, end, _, count in readable),
        batches=len(readable),
        size=sum(each.size for each in scanned),
        segments=len(scanned),
        oldest=readable[0][2] if readable else -1,
        newest=max((time for _, _, time, _ in headers), default=-1),
        gaps=tuple(_gaps(scanned, begin)),
        torn=last.rest.stop - last.rest.position if last is not None and last.rest else 0,
        indexes=_indexes(disk, scanned),
        unreadable=() if start is not None else (os.path.join(place.path, start_file.NAME),),
        left_over=tuple(
            each.path for each in disk.scan(place.path) if each.name.endswith(TEMPORARY)
        ),
        purged=start.offset - start.floor if start is not None else 0,
    )


def _gaps(scanned: list[_Scanned], begin: int) -> Iterator[Gap]:
    known = begin
    for each in scanned:
        segment = each.segment
        if known < segment.base:
            yield Gap(known, segment.base, 0, "missing")
        holes = segment.holes if each.last or each.rest is None else [*segment.holes, each.rest]
        known = segment.end
        for hole in holes:
            if begin < hole.next_offset and hole.offset < hole.next_offset:
                size, path = hole.stop - hole.position, segment.bad_path(hole)
                yield Gap(hole.offset, hole.next_offset, size, "damaged", path)
            known = max(known, hole.next_offset)
        known = max(known, begin)


def _indexes(disk: Disk, scanned: list[_Scanned]) -> tuple[int, int]:
    fitting = others = 0
    for each in scanned:
        content = disk.read_file(each.segment.index_path)
        if content is None:
            continue
        loaded = index_file.decode(content)
        # The index of the last segment is written at a stop, and older afterwards.
        if loaded is not None and (loaded[0].size == each.size or each.last):
            fitting += 1
        else:
            others += 1
    return fitting, others


def topics(facts: Iterator[LogFacts]) -> Iterator[TopicFacts]:
    """
    Sum up the data logs of each topic.

    Args:
        facts: From `verify`.
    """
    by_topic: dict[str, list[LogFacts]] = {}
    for each in facts:
        if each.place.kind == "data":
            by_topic.setdefault(each.place.topic, []).append(each)
    for topic, logs in by_topic.items():
        yield TopicFacts(
            topic,
            len(logs),
            sum(each.records for each in logs),
            sum(each.size for each in logs),
            sum(gap.offsets for each in logs for gap in each.gaps),
        )


def repair(path: str, *, dry_run: bool = False) -> Iterator[Repair]:
    """
    Cut torn tails, set damage aside, make indexes anew, remove half-written files.

    Args:
        path: A data folder, a topic's, or a log's.
        dry_run: Only say what would be done.

    Yields:
        Each thing, once it is done.

    Raises:
        ConfigError: There is no log, or a broker is running on the data folder.
    """
    places = find_logs(path)
    data = _data_folder(os.path.abspath(path))
    lock = lock_folder(data) if data is not None else None
    try:
        for place in places:
            yield from _repair(place, data, dry_run=dry_run)
    finally:
        if lock is not None:
            os.close(lock)


def _data_folder(path: str) -> str | None:
    """The data folder that a path lies in."""
    while not os.path.exists(os.path.join(path, "format")):
        above = os.path.dirname(path)
        if above == path:
            return None
        path = above
    return path


def _repair(place: Place, data: str | None, *, dry_run: bool) -> Iterator[Repair]:
    facts = _verify(place)
    wanted = [*_wanted(facts)]
    if wanted and not dry_run:
        disk = Disk()
        for entry in disk.scan(place.path):
            if entry.name.endswith(index_file.SUFFIX):
                disk.unlink(entry.path)
        point = point_below(disk, data, place.path) if data is not None else None
        log = Log.open(FileCache(disk), place.path, checkpoint=point)
        log.close()
        disk.release()
    yield from wanted


def _wanted(facts: LogFacts) -> Iterator[Repair]:
    path = facts.place.path
    if facts.torn:
        yield Repair(path, "cut", f"a torn tail of {facts.torn} bytes")
    for gap in facts.gaps:
        if gap.path and not os.path.exists(gap.path):
            detail = f"offsets {gap.start} to {gap.end - 1}, {gap.size} bytes"
            yield Repair(gap.path, "set aside", detail)
    if facts.indexes[1]:
        yield Repair(path, "index", f"{facts.indexes[1]} index files do not fit; made anew")
    for left in facts.left_over:
        yield Repair(left, "remove", "half-written")
