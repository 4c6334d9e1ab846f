"""
The log of ids: what a start cannot read from the data log, or not so soon.

Each record holds ids that came since the record before, and the offset below which
all ids of the data log are in this log. So a start reads this log, and of the data
log what lies behind that offset. It is written now and then, and waits for the disk
only before records go from the data log.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgpack

from tinymq.broker.dedup.ids import ID_BYTES
from tinymq.broker.dedup.seen import Run
from tinymq.errors import CorruptBatch
from tinymq.limits import MIB
from tinymq.storage.facts import LogConfig
from tinymq.storage.log import Log
from tinymq.wire.batch import read_header, split, stamp
from tinymq.wire.records import RecordBatch, encode_batch

#: How the log is cut into files: they go one by one, when their time is over.
SEEN_CONFIG: Final = LogConfig(segment_bytes=8 * MIB)
#: Bytes read at a time.
READ_BYTES: Final = 4 * MIB


class Note(NamedTuple):
    """
    One record of the log.

    Attributes:
        rule: What was an id then.
        upto: The ids of all records of the data log below this offset are known from here.
        cut: Offsets from here on were taken back, if this is no -1.
        runs: Ids and offsets, by time.
    """

    rule: str
    upto: int
    cut: int
    runs: list[Run]


def write(log: Log, note: Note, time: int) -> None:
    """
    Append a note and hand it to the operating system.

    Args:
        log: The log of ids.
        note: What is to be kept.
        time: The time of the youngest of its ids, or later.

    Raises:
        TinyMQError: It cannot be written.
    """
    rows = [[run.time, _packed(run.offsets), b"".join(run.ids)] for run in note.runs]
    value = msgpack.packb([note.upto, note.cut, rows])
    batch = encode_batch([value], keys=[note.rule.encode()])
    base = log.end_offset
    time = max(time, log.max_timestamp)
    log.append(stamp(batch, read_header(batch), base, 0, time), base, base, time)
    log.write()


def notes_in(log: Log) -> Iterator[Note]:
    """
    Read a log of ids from its start.

    Args:
        log: The log.
    """
    offset = log.start_offset
    while offset < log.written_offset:
        chunk = log.read(offset, READ_BYTES, log.written_offset)
        assert chunk is not None, "it was to wait for the disk"
        for header, data in split(chunk.data):
            batch = RecordBatch(data, header)
            for key, value in zip(batch.keys, batch.values, strict=True):
                yield _note(key or b"", value or b"")
        if chunk.next_offset <= offset:
            return
        offset = chunk.next_offset


def _packed(offsets: array[int]) -> list[int] | bytes:
    """Offsets that follow one another as the first and their number, others in bytes."""
    if offsets[-1] - offsets[0] + 1 == len(offsets):
        return [offsets[0], len(offsets)]
    swapped = array("q", offsets)
    swapped.byteswap()
    return swapped.tobytes()


def _note(key: bytes, value: bytes) -> Note:
    try:
        upto, cut, rows = msgpack.unpackb(value, max_array_len=1 << 24)
        return Note(key.decode(), upto, cut, [_run(*row) for row in rows])
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise CorruptBatch(f"a record of the log of ids cannot be read: {error}") from error


def _run(time: int, offsets: list[int] | bytes, ids: bytes) -> Run:
    run = Run(time)
    if isinstance(offsets, bytes):
        run.offsets.frombytes(offsets)
        run.offsets.byteswap()
    else:
        first, count = offsets
        run.offsets.extend(range(first, first + count))
    run.ids += [ids[at : at + ID_BYTES] for at in range(0, len(ids), ID_BYTES)]
    if len(run.ids) != len(run.offsets):
        raise CorruptBatch("a record of the log of ids has not one offset for each id")
    return run
