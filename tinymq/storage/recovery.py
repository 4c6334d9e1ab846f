"""
Opening a log: from a checkpoint as far as it fits the files, then by looking.

The last segment is read and checked from where the checkpoint ends, or from its
beginning. Of the others the checkpoint, or else the index file, is taken at its
word when the size fits, and their batches are checked when they are first read.
What cannot be read is never deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import zip_longest

from tinymq.errors import StorageError
from tinymq.storage import index as index_file
from tinymq.storage import start as start_file
from tinymq.storage.disk import TEMPORARY, Entry
from tinymq.storage.facts import Gap, LogConfig, LogPoint, RecoveryReport
from tinymq.storage.files import FileCache
from tinymq.storage.scan import good_batches, scan_segment
from tinymq.storage.segment import Hole, Segment, SegmentPoint, base_of
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
    points = {each.base: each for each in checkpoint.segments} if checkpoint else {}
    fits = found == {base: point.size for base, point in points.items()}
    report.clean = fits and checkpoint is not None and checkpoint.clean
    if not fits and checkpoint is not None and checkpoint.clean:
        report.note(f"the checkpoint does not fit the files of {folder}; looking at them")
    _recover(segments, found, start, points, on_batch)
    if found and not report.clean and not files.settled:
        files.disk.syncfs(folder)
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


def _recover(
    segments: Segments,
    found: dict[int, int],
    start: Start,
    points: dict[int, SegmentPoint],
    on_batch: OnBatch | None,
) -> None:
    bases = sorted(found)
    for base, ceiling in zip_longest(bases, bases[1:]):
        if ceiling is not None and ceiling <= start.floor:
            segments.remove(Segment.at(segments.folder, base))
            continue
        size = found[base]
        segment = (
            _by_point(segments, points.get(base), size, ceiling)
            or _by_index(segments, base, size, ceiling)
            or _by_scan(segments, base, size, ceiling, points.get(base), on_batch)
        )
        before = segments.last
        known = max(before.end, start.offset) if before is not None else base
        if known < base:
            segments.report.add_gap(Gap(known, base, 0, "missing"))
        segments.add(segment)


def _by_point(
    segments: Segments, point: SegmentPoint | None, size: int, ceiling: int | None
) -> Segment | None:
    """A segment that is as long as the checkpoint says."""
    if point is None or point.size != size or (ceiling is not None and point.end > ceiling):
        return None
    segment = Segment.restored(segments.folder, point, segments.config.index_interval)
    for hole in segment.holes:
        size = hole.stop - hole.position
        path = segment.bad_path(hole)
        segments.report.add_gap(Gap(hole.offset, hole.next_offset, size, "damaged", path))
    return segment


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
    segments: Segments,
    base: int,
    size: int,
    ceiling: int | None,
    point: SegmentPoint | None,
    on_batch: OnBatch | None,
) -> Segment:
    segment = Segment.at(segments.folder, base)
    if point is not None and _continues(segments, point, size, ceiling):
        segment = Segment.restored(segments.folder, point, segments.config.index_interval)
        segments.index(segment)
    report, begin = segments.report, segment.size

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
    report.scanned_bytes += size - begin
    for hole in segment.holes:
        segments.put_aside(segment, hole)
    if rest is None:
        return segment
    if ceiling is None:
        _cut_tail(segments, segment, rest)
    else:
        segment.add_hole(rest)
        segment.size, segment.end = rest.stop, rest.next_offset
        segments.put_aside(segment, rest)
    return segment


def _continues(segments: Segments, point: SegmentPoint, size: int, ceiling: int | None) -> bool:
    """Whether a good batch lies where the checkpoint says that the segment went on."""
    if point.size > size:
        return False
    read = segments.reader(Segment.at(segments.folder, point.base))
    return next(good_batches(read, point.size, size, point.end, ceiling), None) is not None


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
