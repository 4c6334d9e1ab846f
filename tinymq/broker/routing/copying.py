"""
Making batches of what is planned.

A copy has the key, value, headers, producer's time, id and time to live of its record. A
batch that goes to a place as a whole is taken as it is stored, without opening it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from tinymq.broker.channel.history import NEW
from tinymq.broker.channel.marks import UNMARKED
from tinymq.broker.channel.places import Doom
from tinymq.broker.channel.runs import runs_in
from tinymq.broker.letters import PARKED, Origin
from tinymq.broker.routing.routes import Piece
from tinymq.errors import CorruptBatch
from tinymq.limits import MIB
from tinymq.wire.batch import HAS_DUE
from tinymq.wire.records import Headers, RecordBatch, encode_batch

if TYPE_CHECKING:
    from tinymq.broker.partition import Partition
    from tinymq.broker.window import Stored, Window

#: Records of one batch of copies, and their bytes, about.
MOST_TOGETHER: Final = 1000
BATCH_BYTES: Final = MIB // 2
#: A batch of so many records is taken as it is stored.
_LEAST_WHOLE: Final = 16
#: Batches whose columns are kept.
_OPENED: Final = 8


class Chunk(NamedTuple):
    """
    Records that are brought together.

    Attributes:
        first: The number of the first one.
        records: How many there are.
        batch: All of them; None if they do not exist any more, or cannot be read.
        unreadable: Whether they are there and cannot be read.
    """

    first: int
    records: int
    batch: bytes | None
    unreadable: bool = False


class _Columns(NamedTuple):
    """The columns of a batch."""

    offsets: Sequence[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[Headers]
    times: list[int | None]
    ttls: list[int | None]
    ids: list[bytes | None]


class _Rows:
    """The columns of a batch while it is made."""

    def __init__(self, first: int, most: int) -> None:
        self.first = first
        self.most = most
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.headers: list[Headers] = []
        self.times: list[int | None] = []
        self.ttls: list[int | None] = []
        self.ids: list[bytes | None] = []
        self.full = False
        self._size = 0

    def __len__(self) -> int:
        return len(self.values)

    def take(self, columns: _Columns, low: int, high: int, told: list[Headers] | None) -> int:
        """
        Take records.

        Args:
            columns: Of their batch.
            low: The place of the first one.
            high: The place behind the last one.
            told: Their headers, if others than they have.

        Returns:
            How many were taken; fewer when it is full.
        """
        high = min(high, low + self.most - len(self.values))
        # All records of a batch say when they were made, or none does.
        dated = (self.times[0] if self.times else columns.times[low]) is not None
        end = low
        while end < high and self._size < BATCH_BYTES:
            if (columns.times[end] is not None) is not dated:
                break
            self._size += len(columns.values[end] or b"") + len(columns.keys[end] or b"")
            self._size += sum(len(name) + len(value) for name, value in columns.headers[end])
            end += 1
        self.full = end < high or len(self.values) + end - low >= self.most
        self.keys += columns.keys[low:end]
        self.values += columns.values[low:end]
        self.headers += columns.headers[low:end] if told is None else told[: end - low]
        self.times += columns.times[low:end]
        self.ttls += columns.ttls[low:end]
        self.ids += columns.ids[low:end]
        return end - low

    def chunk(self, *, letters: bool) -> Chunk:
        """
        Make the batch.

        Args:
            letters: Whether they are dead letters, which do not expire.
        """
        times = [time for time in self.times if time is not None]
        ids = [each for each in self.ids if each is not None]
        timed = not letters and any(ttl is not None for ttl in self.ttls)
        batch = encode_batch(
            self.values,
            keys=self.keys if any(key is not None for key in self.keys) else None,
            headers=self.headers if any(self.headers) else None,
            times=times or None,
            ids=ids if len(ids) == len(self.ids) and not letters else None,
            ttls=self.ttls if timed else None,
        )
        return Chunk(self.first, len(self.values), batch)


class Copier:
    """
    Makes batches of the records of one partition.

    Args:
        partition: The partition.
        window: Reads it.
    """

    def __init__(self, partition: Partition, window: Window) -> None:
        self._partition = partition
        self._window = window
        self._opened: OrderedDict[int, _Columns] = OrderedDict()

    def let_go(self) -> None:
        """Keep nothing in memory: there is nothing to copy just now."""
        self._opened.clear()
        self._window.let_go()

    def gather(
        self, pieces: Iterable[Piece], origin: Origin | None, most: int = MOST_TOGETHER
    ) -> Chunk | None:
        """
        Make a batch of the first records of some pieces.

        Args:
            pieces: Those of one place, in order.
            origin: Where they come from, if they are dead letters.
            most: Most records.

        Returns:
            Records whose numbers are in a row; None if there are none.

        Raises:
            ColdPiece: In haste, the disk would have to be waited for.
        """
        rows: _Rows | None = None
        for piece in pieces:
            if rows is None:
                rows = _Rows(piece.first, most)
            elif rows.first + len(rows) != piece.first:
                break
            for run in runs_in(piece.base, piece.bits):
                gone = self._run(rows, piece, run, origin)
                if gone is not None and not len(rows):
                    return gone
                if gone is not None or rows.full:
                    return rows.chunk(letters=origin is not None)
        return None if rows is None else rows.chunk(letters=origin is not None)

    def _run(
        self, rows: _Rows, piece: Piece, run: tuple[int, int], origin: Origin | None
    ) -> Chunk | None:
        """Take a run of records; return those that are not there, if it comes upon some."""
        at, end = run
        while at < end:
            stored = self._window.batch_at(at, end)
            if stored is None or stored[0].base_offset > at:
                behind = end if stored is None else stored[0].base_offset
                return Chunk(rows.first, behind - at, None)
            behind = min(end, stored[0].next_offset)
            if origin is None and rows.most > 1 and not len(rows):
                whole = _whole(stored) if behind - at == stored[0].records else None
                if whole is not None:
                    return Chunk(rows.first, stored[0].records, whole)
            try:
                columns = self._columns(stored)
            except CorruptBatch:
                return Chunk(rows.first, behind - at, None, unreadable=True)
            offsets = columns.offsets
            low = bisect_left(offsets, at)
            if low == len(offsets) or offsets[low] != at:
                there = behind if low == len(offsets) else min(behind, offsets[low])
                return Chunk(rows.first, there - at, None)
            high = low + behind - at if type(offsets) is range else low + 1
            told = None
            if origin is not None:
                told = [
                    _told(origin._replace(offset=offsets[place]), columns.headers[place], piece)
                    for place in range(low, min(high, low + rows.most))
                ]
            at += rows.take(columns, low, high, told)
            if rows.full:
                return None
        return None

    def _columns(self, stored: Stored) -> _Columns:
        base = stored[0].base_offset
        found = self._opened.get(base)
        if found is None:
            batch = RecordBatch(stored[1], stored[0], self._partition.limits.inflated)
            found = self._opened[base] = _Columns(
                batch.offsets,
                batch.keys,
                batch.values,
                batch.headers,
                batch.times,
                batch.ttls,
                batch.ids,
            )
            if len(self._opened) > _OPENED:
                self._opened.popitem(last=False)
        return found


def _whole(stored: Stored) -> bytes | None:
    """Return a batch as it is stored, if it can be brought so."""
    header, data = stored
    plain = header.records == header.last_offset_delta + 1 and not header.attributes & HAS_DUE
    return bytes(data) if plain and header.records >= _LEAST_WHOLE else None


def _told(origin: Origin, before: Headers, piece: Piece) -> Headers:
    """Write the headers of a dead letter."""
    doom = Doom(0, origin.offset, 1, piece.reason, piece.text, NEW, piece.time)
    told = origin.told(before, doom, UNMARKED)
    return [*told, (PARKED, piece.parked.encode())] if piece.parked else told
