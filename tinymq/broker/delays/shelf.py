"""Batches of delay logs that were read a moment ago, with the columns that were opened."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final

from tinymq.broker.delays.acts import unpack_id
from tinymq.broker.producers import COPIES, SCHEDULE_COPIES, SCHEDULES
from tinymq.errors import CorruptBatch
from tinymq.limits import MIB
from tinymq.wire.batch import HAS_DUE, BatchHeader, split
from tinymq.wire.frames import Bytes
from tinymq.wire.records import Headers, RecordBatch

if TYPE_CHECKING:
    from tinymq.storage.log import Log
    from tinymq.storage.memory import MemoryLog

#: Topic and number of a partition: what the index calls it may change, and there are two of them.
Home = tuple[bytes, int]
#: The header that says which schedule a message comes from, as NAME@CREATED.
SCHEDULE_HEADER: Final = "tinymq-schedule"
#: Bytes of batches that stay; the last one stays whatever it has.
_MOST_BYTES: Final = 16 * MIB
_MOST_BATCHES: Final = 64
#: A column may grow to anything that was taken once.
_INFLATED: Final = 1 << 31


class StoredBatch:
    """
    A batch of messages, its columns opened once and when they are asked for.

    Args:
        data: The batch as it is stored.
        header: Its header.
    """

    def __init__(self, data: Bytes, header: BatchHeader) -> None:
        self.header = header
        self._batch = RecordBatch(data, header, _INFLATED)

    @property
    def base(self) -> int:
        """Offset of the first record."""
        return self.header.base_offset

    @property
    def copied(self) -> bool:
        """Whether its messages lay elsewhere before."""
        return self.header.producer_id in (COPIES, SCHEDULE_COPIES)

    @property
    def scheduled(self) -> bool:
        """Whether its messages come from schedules."""
        return self.header.producer_id in (SCHEDULES, SCHEDULE_COPIES)

    @property
    def share(self) -> int:
        """Bytes of a record, about."""
        return self.header.size // max(1, self.header.records)

    @cached_property
    def ids(self) -> Sequence[int]:
        """The delay id of each record."""
        base = self.base
        if not self.copied:
            return range(base, base + self.header.records)
        return [unpack_id(each) for each in self._batch.ids]

    @cached_property
    def dues(self) -> list[int]:
        """When each record is due, as far as the batch knows."""
        return self._batch.dues

    @cached_property
    def keys(self) -> list[bytes | None]:
        """The key of each record."""
        return self._batch.keys

    @cached_property
    def values(self) -> list[bytes | None]:
        """The value of each record."""
        return self._batch.values

    @cached_property
    def headers(self) -> list[Headers]:
        """The headers of each record."""
        return self._batch.headers

    def sent(self, place: int) -> Headers:
        """
        Return the headers of a record as it has them when it comes.

        Args:
            place: Which record, from 0.
        """
        headers = self.headers[place]
        if not self.scheduled:
            return headers
        # Of the schedule, its name is enough there.
        return tuple(
            (name, value.rpartition(b"@")[0] if name == SCHEDULE_HEADER else value)
            for name, value in headers
        )

    @cached_property
    def times(self) -> list[int | None]:
        """The producer's time of each record."""
        return self._batch.times

    @cached_property
    def ttls(self) -> list[int | None]:
        """The time to live of each record."""
        return self._batch.ttls

    def schedule(self, place: int) -> str | None:
        """
        Say which schedule a record comes from.

        Args:
            place: Which record, from 0.
        """
        if not self.scheduled:
            return None
        found = (value for name, value in self.headers[place] if name == SCHEDULE_HEADER)
        return next((value.decode() for value in found), None)


class Shelf:
    """The batches of all delay logs of a broker that were read last."""

    def __init__(self) -> None:
        self._batches: OrderedDict[tuple[Home, int], StoredBatch] = OrderedDict()
        self._bases: dict[Home, list[int]] = {}
        self._bytes = 0

    def batch(self, home: Home, log: Log | MemoryLog, offset: int) -> StoredBatch:
        """
        Find the batch that a message lies in.

        Args:
            home: The partition.
            log: Its delay log.
            offset: Of the message.

        Raises:
            CorruptBatch: There is no message there that can be read.
            OSError, TinyMQError: The log cannot be read.
        """
        bases = self._bases.get(home)
        if bases:
            place = bisect_right(bases, offset)
            if place:
                key = home, bases[place - 1]
                found = self._batches[key]
                if offset < found.header.next_offset:
                    self._batches.move_to_end(key)
                    return found
        return self._read(home, log, offset)

    def _read(self, home: Home, log: Log | MemoryLog, offset: int) -> StoredBatch:
        if not log.start_offset <= offset < log.written_offset:
            raise CorruptBatch(f"the delay log does not reach to {offset}")
        chunk = log.read(offset, 1, log.written_offset)
        assert chunk is not None, "it was to wait for the disk"
        for header, data in split(chunk.data):
            if header.base_offset <= offset < header.next_offset and header.attributes & HAS_DUE:
                found = StoredBatch(bytes(data), header)
                self.put(home, found)
                return found
        raise CorruptBatch(f"no message lies at {offset} of the delay log")

    def put(self, home: Home, batch: StoredBatch) -> None:
        """
        Keep a batch for a while.

        Args:
            home: Its partition.
            batch: The batch.
        """
        key = home, batch.base
        if key in self._batches:
            return
        self._batches[key] = batch
        insort(self._bases.setdefault(home, []), batch.base)
        self._bytes += batch.header.size
        while len(self._batches) > 1 and (
            self._bytes > _MOST_BYTES or len(self._batches) > _MOST_BATCHES
        ):
            self._drop(next(iter(self._batches)))

    def _drop(self, key: tuple[Home, int]) -> None:
        gone = self._batches.pop(key)
        self._bytes -= gone.header.size
        bases = self._bases[key[0]]
        bases.remove(key[1])
        if not bases:
            del self._bases[key[0]]

    def forget(self, home: Home) -> None:
        """
        Forget the batches of a partition.

        Args:
            home: Which one.
        """
        for base in tuple(self._bases.get(home, ())):
            self._drop((home, base))
