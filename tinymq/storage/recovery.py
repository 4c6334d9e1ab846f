"""
Opening a log: from a checkpoint as far as it fits the files, then by looking.

The last segment is read and checked from where the checkpoint ends, or from its
beginning, and so is every segment that was written after the checkpoint. Of the
others the checkpoint, or else the index file, is taken at its word when the size
fits, and their batches are checked when they are first read.

What cannot be read is never deleted. Damage leaves a gap, and what follows it
stays readable. Only where nothing is known to have been synced, a write that a
power cut kept from the disk ends the log: nothing behind it was promised, and
its producer will send it again, in order.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import zip_longest

from tinymq.errors import StorageError, StorageFull
from tinymq.storage import index as index_file
from tinymq.storage import start as start_file
from tinymq.storage import swap
from tinymq.storage.disk import TEMPORARY, Entry
from tinymq.storage.facts import Gap, LogConfig, LogPoint, RecoveryReport
from tinymq.storage.files import FileCache
from tinymq.storage.lost import looks_lost, looks_short
from tinymq.storage.scan import good_batches, scan_segment
from tinymq.storage.segment import BAD_SUFFIX, Hole, Segment, SegmentPoint, base_of
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
        checkpoint: What was last noted of it. None: nothing is known, so nothing
            is taken for unsynced.
        on_batch: Told of each batch that is scanned.

    Returns:
        The segments, whose report says what was found, and where the log starts.
    """
    report = RecoveryReport()
    segments = Segments(files, folder, config, report)
    entries = files.disk.scan(folder)
    if any(each.name == swap.NAME for each in entries):
        report.note(swap.recover(files.disk, folder))
        entries = files.disk.scan(folder)
    entries = _tidy(segments, entries)
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
    # The start is never ahead of what is synced.
    synced = max(checkpoint.end, start.offset) if checkpoint is not None else None
    _Recovery(segments, start, points, synced, on_batch).recover(found)
    _remove_old_copies(segments, entries)
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


def _remove_old_copies(segments: Segments, entries: list[Entry]) -> None:
    """Remove copies of bad bytes whose place in the log expired."""
    first = segments.all[0].base if segments.all else 0
    for entry in entries:
        name = entry.name
        if name.endswith(BAD_SUFFIX) and name[:20].isdecimal() and int(name[:20]) < first:
            with suppress(FileNotFoundError):
                segments.disk.unlink(entry.path)


class _Recovery:
    """
    Opens the segments of one log, one after the other.

    Args:
        segments: To be filled.
        start: Where the log starts.
        points: What the checkpoint says of segments, by base.
        synced: Everything below this offset was synced; None when that is not known.
        on_batch: Told of each batch that is scanned.
    """

    def __init__(
        self,
        segments: Segments,
        start: Start,
        points: dict[int, SegmentPoint],
        synced: int | None,
        on_batch: OnBatch | None,
    ) -> None:
        self._segments = segments
        self._start = start
        self._points = points
        self._synced = synced
        self._on_batch = on_batch
        self._report = segments.report

    def recover(self, found: dict[int, int]) -> None:
        """
        Open them.

        Args:
            found: Size of each segment's file, by base.
        """
        segments, bases = self._segments, sorted(found)
        for place, (base, ceiling) in enumerate(zip_longest(bases, bases[1:])):
            if ceiling is not None and ceiling <= self._start.floor:
                segments.remove(Segment.at(segments.folder, base))
                continue
            segment, rest = self._open(base, found[base], ceiling)
            before = segments.last
            known = max(before.end, self._start.offset) if before is not None else base
            if known < base:
                self._report.add_gap(Gap(known, base, 0, "missing"))
            segments.add(segment)
            following = {later: found[later] for later in bases[place + 1 :]}
            if rest is None and ceiling is not None and self._unsynced(segment.end, ceiling):
                # The end of the file, or the name of the next one, was lost.
                rest = Hole(segment.size, segment.size, segment.end, segment.end)
            if rest is not None:
                self._cut(segment, rest, following)
                return

    def _open(self, base: int, size: int, ceiling: int | None) -> tuple[Segment, Hole | None]:
        """A segment, and what of it and behind it was never synced and is to be cut."""
        point = self._points.get(base)
        known = self._by_point(point, size, ceiling) or self._by_index(base, size, ceiling)
        return (known, None) if known is not None else self._by_scan(base, size, ceiling, point)

    def _unsynced(self, offset: int, ceiling: int | None = None) -> bool:
        """Whether what is missing at an offset, and before `ceiling`, was perhaps never synced."""
        if self._synced is None or offset < self._synced:
            return False
        return ceiling is None or offset < ceiling

    def _by_point(
        self, point: SegmentPoint | None, size: int, ceiling: int | None
    ) -> Segment | None:
        """A segment that is as long as the checkpoint says."""
        if point is None or point.size != size or (ceiling is not None and point.end > ceiling):
            return None
        segments = self._segments
        segment = Segment.restored(segments.folder, point, segments.config.index_interval)
        for hole in segment.holes:
            size = hole.stop - hole.position
            path = segment.bad_path(hole)
            self._report.add_gap(Gap(hole.offset, hole.next_offset, size, "damaged", path))
        return segment

    def _by_index(self, base: int, size: int, ceiling: int | None) -> Segment | None:
        """A closed segment whose index file fits it, and that was synced."""
        segment = Segment.at(self._segments.folder, base)
        if ceiling is None or (self._synced is not None and ceiling > self._synced):
            return None
        content = self._segments.disk.read_file(segment.index_path)
        loaded = index_file.decode(content) if content else None
        if loaded is None:
            return None
        facts, _ = loaded
        if facts.base != base or facts.size != size or facts.end > ceiling:
            return None
        segment.size, segment.end = size, facts.end
        segment.first_time, segment.max_time = facts.first_time, facts.max_time
        segment.index = None
        return segment

    def _by_scan(
        self, base: int, size: int, ceiling: int | None, point: SegmentPoint | None
    ) -> tuple[Segment, Hole | None]:
        segments, report = self._segments, self._report
        segment = Segment.at(segments.folder, base)
        if point is not None and self._continues(point, size, ceiling):
            segment = Segment.restored(segments.folder, point, segments.config.index_interval)
            segments.index(segment)
        begin, read = segment.size, segments.reader(segment)

        def count(header: BatchHeader) -> None:
            report.records += header.last_offset_delta + 1
            if self._on_batch is not None:
                self._on_batch(header)

        def lost(hole: Hole) -> bool:
            if not self._unsynced(hole.offset):
                return False
            return looks_lost(read, hole, size) or (
                hole.stop == size and ceiling is not None and looks_short(read, hole, size)
            )

        rest = scan_segment(
            read,
            segment,
            size,
            interval=segments.config.index_interval,
            ceiling=ceiling,
            on_batch=count,
            ends_at=lost,
        )
        report.scanned_bytes += size - begin
        for hole in segment.holes:
            segments.put_aside(segment, hole)
        if rest is None:
            return segment, None
        if rest.lost:
            return segment, rest.hole
        if ceiling is None:
            self._cut_torn(segment, rest.hole)
        else:
            segment.add_hole(rest.hole)
            segment.size, segment.end = rest.hole.stop, rest.hole.next_offset
            segments.put_aside(segment, rest.hole)
        return segment, None

    def _continues(self, point: SegmentPoint, size: int, ceiling: int | None) -> bool:
        """Whether a good batch lies where the checkpoint says that the segment went on."""
        if point.size > size:
            return False
        read = self._segments.reader(Segment.at(self._segments.folder, point.base))
        return next(good_batches(read, point.size, size, point.end, ceiling), None) is not None

    # --- cutting -------------------------------------------------------------

    def _cut_torn(self, segment: Segment, rest: Hole) -> None:
        """Cut a torn tail off the last segment, and wait until it is off."""
        self._truncate(segment, rest.position)
        size = rest.stop - rest.position
        self._report.truncated_bytes += size
        self._report.note(f"cut a torn tail of {size} bytes off {segment.path}")

    def _cut(self, segment: Segment, rest: Hole, following: dict[int, int]) -> None:
        """
        End the log where a write was lost, and keep a copy of what lies behind.

        Later segments go first, the last one before the others: a crash in
        between leaves what is cut in the same place at the next start.

        Args:
            segment: The last one that stays.
            rest: What of it goes.
            following: Those behind it with their sizes, by base.
        """
        segments, disk = self._segments, self._segments.disk
        size, copied = rest.stop - rest.position, True
        if size:
            copied = self._copy(segment, rest)
            with suppress(FileNotFoundError):
                disk.unlink(segment.index_path)
        for base in sorted(following, reverse=True):
            later = Segment.at(segments.folder, base)
            segments.files.forget(later.path)
            disk.rename(later.path, self._free(later, 0))
            with suppress(FileNotFoundError):
                disk.unlink(later.index_path)
            size += following[base]
        disk.fsync_dir(segments.folder)
        self._truncate(segment, rest.position)
        self._report.unsynced_bytes += size
        self._report.note(
            f"unsynced end cut: a write of offset {rest.offset} was lost; {size} bytes of "
            f"{segment.path} and behind it went "
            + ("into .bad files" if copied else "without a copy, for the disk is full")
        )

    def _copy(self, segment: Segment, rest: Hole) -> bool:
        """Copy what will be cut; a disk that has no room for it must not prevent the start."""
        content = self._segments.read(segment, rest.stop - rest.position, rest.position)
        try:
            path = self._free(segment, rest.position)
            self._segments.disk.replace_file(path, content)
        except StorageFull:
            return False
        return True

    def _free(self, segment: Segment, position: int) -> str:
        """A name for a copy that no file has: what was cut before at this place is kept."""
        path = segment.bad_path_at(position)
        number = 1
        while self._segments.disk.exists(path):
            number += 1
            path = segment.bad_path_at(position, f"-{number}")
        return path

    def _truncate(self, segment: Segment, position: int) -> None:
        file = self._segments.open(segment)
        disk = self._segments.disk
        try:
            disk.truncate(file.descriptor, position)
            disk.fdatasync(file.descriptor)
        except OSError as error:
            raise StorageError(f"{segment.path} cannot be cut: {error.strerror}") from error
