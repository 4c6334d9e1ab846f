"""Batches and logs for tests."""

from __future__ import annotations

import os

from tests.fakes.disk import FaultyDisk
from tinymq.storage.disk import Disk
from tinymq.storage.files import FileCache
from tinymq.storage.log import Log, LogConfig, LogPoint
from tinymq.wire.batch import NATIVE, BatchHeader, build, read_header, split, stamp

SMALL = LogConfig(segment_bytes=1000, index_interval=200)


def make(base: int, count: int = 1, size: int = 40, time: int = 1000, epoch: int = 0) -> bytes:
    """A stamped batch whose payload tells its offset."""
    payload = (b"%d." % base) * (size // len(b"%d." % base) + 1)
    batch = build(payload[:size], count, NATIVE)
    return b"".join(stamp(batch, read_header(batch), base, epoch, time))


def put(log: Log, count: int = 1, size: int = 40, time: int = 1000) -> bytes:
    """Stage the next batch of a log."""
    batch = make(log.end_offset, count, size, time)
    log.append(batch, log.end_offset, log.end_offset + count - 1, time)
    return batch


def fill(log: Log, batches: int, count: int = 1, size: int = 40, time: int = 1000) -> list[bytes]:
    """Write and sync batches, each a millisecond after the one before."""
    made = [put(log, count, size, time + place) for place in range(batches)]
    log.write()
    log.sync()
    return made


def read_all(log: Log, start: int | None = None, max_bytes: int = 300) -> list[bytes]:
    """Everything that can be read, batch by batch."""
    found: list[bytes] = []
    offset = log.start_offset if start is None else start
    while offset < log.written_offset:
        chunk = log.read(offset, max_bytes, log.written_offset)
        assert chunk is not None
        assert chunk.next_offset > offset, "reading does not get on"
        found += [bytes(data) for _, data in split(chunk.data)]
        offset = chunk.next_offset
    return found


def headers(batches: list[bytes]) -> list[BatchHeader]:
    """Their headers."""
    return [read_header(batch) for batch in batches]


def bases(batches: list[bytes]) -> list[int]:
    """Their first offsets."""
    return [read_header(batch).base_offset for batch in batches]


def reopen(
    log: Log, config: LogConfig = SMALL, point: LogPoint | None = None, disk: Disk | None = None
) -> Log:
    """Open the folder of a log again, as after a kill."""
    log.forget_files()
    return Log.open(FileCache(disk or FaultyDisk()), log.path, config, point)


def segment_files(log: Log) -> list[str]:
    """The segments of a log, in order."""
    return sorted(
        os.path.join(log.path, name) for name in os.listdir(log.path) if name.endswith(".log")
    )


def flip(path: str, position: int, bit: int = 1) -> None:
    """Flip a bit of a file."""
    with open(path, "r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ bit]))
