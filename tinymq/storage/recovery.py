"""
Opening a log: from a checkpoint that fits the files, or by looking at them.

Without a fitting checkpoint the last segment is read and checked; of the others
the index file is taken at its word when it fits, and their batches are checked
when they are first read. What cannot be read is never deleted.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

from tinymq.errors import StorageError
from tinymq.storage import index as index_file
from tinymq.storage import start as start_file
from tinymq.storage.disk import TEMPORARY, Entry
from tinymq.storage.facts import Gap, LogConfig, LogPoint, RecoveryReport, SegmentPoint
from tinymq.storage.files import FileCache
from tinymq.storage.index import Index
from tinymq.storage.scan import scan_segment
from tinymq.storage.segment import Hole, Segment, base_of, segment_name
from tinymq.storage.segments import Segments
from tinymq.storage.start import Start
from tinymq.wire.batch import BatchHeader

OnBatch = Callable[[BatchHeader], None]


def open_segments(
    files: FileCache,
    folder: str,
    config: LogConfig,
    checkpoint: LogPoint | None,
    on_batch: OnBatch | None,
) -> tuple[Segments, Start]:
    """
    Open the files of a log.

    Args:
        files: Open files, shared by all logs.
        folder: The log's folder; it need not exist.
        config: How the log is cut.
        checkpoint: What the last clean stop noted.
        on_batch: Told of each batch that is scanned.

    Returns:
        The segments, whose report says what was found, and where the log starts.
    """
    report = RecoveryReport()
    segments = Segments(files, folder, config, report)
    entries = _tidy(segments, files.disk.scan(folder))
    found = {base: each.size for each in entries if (base := base_of(each.name)) is not None}
    start = Start()
    if any(each.name == start_file.NAME for each in entries):
        loaded = start_file.load(files.disk, folder)
        if loaded is None:
            report.note(f"{segments.path(start_file.NAME)} is damaged; starting at the first file")
        start = loaded or start
    if checkpoint is not None and _fits(checkpoint, found):
        _restore(segments, checkpoint)
        report.clean = True
        return segments, start
    if checkpoint is not None:
        report.note(f"the checkpoint does not fit the files of {folder}; looking at them")
    if found:
        _recover(segments, found, start, on_batch)
    return segments, start


def _tidy(segments: Segments, entries: list[Entry]) -> list[Entry]:
    """Remove what a crash left half-made."""
    kept = []
    for entry in entries:
        if entry.name.endswith(TEMPORARY) and not entry.folder:
            with suppress(FileNotFoundError):
                segments.disk.unlink(entry.path)
            segments.report.note(f"{entry.path} was left half-written; removed")
        else:
            kept.append(entry)
    return kept


def _fits(checkpoint: LogPoint, found: dict[int, int]) -> bool:
    return found == {each.base: each.size for each in checkpoint.segments}


def _restore(segments: Segments, checkpoint: LogPoint) -> None:
    interval = segments.config.index_interval
    for point in checkpoint.segments:
        segment = Segment(
            os.path.join(segments.folder, segment_name(point.base)),
            point.base,
            point.end,
            point.size,
            point.first_time,
            point.max_time,
            index=_small_index(point, interval),
            holes=[Hole(*each) for each in point.holes],
        )
        segments.add(segment)
        for hole in segment.holes:
            segments.report.add_gap(
                Gap(
                    hole.offset,
                    hole.next_offset,
                    hole.stop - hole.position,
                    "damaged",
                    segment.bad_path(hole),
                )
            )


def _small_index(point: SegmentPoint, interval: int) -> Index | None:
    """The index of a segment that is too short for a file of its own."""
    if point.size > interval or point.holes:
        return None
    index = Index()
    if point.size:
        index.add(point.base, 0, point.first_time)
    return index


def _recover(
    segments: Segments, found: dict[int, int], start: Start, on_batch: OnBatch | None
) -> None:
    bases = sorted(found)
    ceilings = [*bases[1:], None]
    for base, ceiling in zip(bases, ceilings, strict=True):
        if ceiling is not None and ceiling <= start.floor:
            segments.remove(Segment.at(segments.folder, base))
            continue
        segment = _by_index(segments, base, found[base], ceiling)
        if segment is None:
            segment = _by_scan(segments, base, found[base], ceiling, on_batch)
        before = segments.last
        if before is not None and before.end < base:
            segments.report.add_gap(Gap(before.end, base, 0, "missing"))
        segments.add(segment)
    if not segments.files.settled:
        segments.disk.syncfs(segments.folder)


def _by_index(segments: Segments, base: int, size: int, ceiling: int | None) -> Segment | None:
    """A closed segment whose index file fits it."""
    segment = Segment.at(segments.folder, base)
    content = segments.disk.read_file(segment.index_path) if ceiling is not None else None
    loaded = index_file.decode(content) if content else None
    if loaded is None or ceiling is None:
        return None
    facts, _ = loaded
    if facts.base != base or facts.size != size or facts.end > ceiling:
        return None
    segment.size, segment.end = size, facts.end
    segment.first_time, segment.max_time = facts.first_time, facts.max_time
    segment.index = None
    return segment


def _by_scan(
    segments: Segments, base: int, size: int, ceiling: int | None, on_batch: OnBatch | None
) -> Segment:
    segment = Segment.at(segments.folder, base)
    report = segments.report
    before = report.records

    def count(header: BatchHeader) -> None:
        report.records += header.last_offset_delta + 1
        if on_batch is not None:
            on_batch(header)

    rest = scan_segment(
        segments.reader(segment),
        segment,
        size,
        interval=segments.config.index_interval,
        ceiling=ceiling,
        on_batch=count,
    )
    report.scanned_bytes += size
    for hole in segment.holes:
        segments.put_aside(segment, hole)
    if rest is None:
        return segment
    if ceiling is None:
        _cut_tail(segments, segment, rest)
    elif report.records > before or rest.next_offset > rest.offset:
        segment.add_hole(rest)
        segment.size, segment.end = rest.stop, rest.next_offset
        segments.put_aside(segment, rest)
    return segment


def _cut_tail(segments: Segments, segment: Segment, rest: Hole) -> None:
    """Cut a torn tail off the last segment, and wait until it is off."""
    file = segments.open(segment)
    try:
        segments.disk.truncate(file.descriptor, rest.position)
        segments.disk.fdatasync(file.descriptor)
    except OSError as error:
        raise StorageError(f"{segment.path} cannot be cut: {error.strerror}") from error
    size = rest.stop - rest.position
    segments.report.truncated_bytes += size
    segments.report.note(f"cut a torn tail of {size} bytes off {segment.path}")
