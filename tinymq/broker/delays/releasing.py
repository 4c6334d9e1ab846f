"""
Appending what is due to the data log, once.

A message that is due is appended with its delay id. When that is on the disk, an act in the
delay log says so; a crash between the two is no matter, for the next start reads the data log
from where it was looked at last. Nothing waits for the act, so it costs no sync of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from attrs import define, field
from twisted.logger import Logger

from tinymq.broker.delays.acts import pack_id, unpack_id
from tinymq.broker.delays.lateness import Lateness
from tinymq.broker.delays.shelf import StoredBatch
from tinymq.broker.producers import RELEASES
from tinymq.errors import CorruptBatch, ShuttingDown, WireError
from tinymq.limits import MIB
from tinymq.wire.batch import Codec, split
from tinymq.wire.records import RecordBatch, encode_batch

if TYPE_CHECKING:
    from tinymq.broker.delays.delays import Delays
    from tinymq.broker.partition import Appended, Partition

#: Records, and bytes, that are appended in one batch at most.
_MOST_TOGETHER: Final = 500
_MOST_BYTES: Final = MIB // 2
#: Seconds for which batches are read that messages lie in, each perhaps in another one.
_GATHER_SECONDS: Final = 0.004
#: Bytes on their way to the disk before more is appended.
_MOST_UNDER_WAY: Final = 16 * MIB
#: Milliseconds before what was refused is tried again.
_AGAIN_MS: Final = 500
_READ_BYTES: Final = MIB


@define(eq=False)
class Leaving:
    """
    Messages that are in the data log, and not surely on the disk.

    Attributes:
        end: The offset behind them there.
        dues: When each was due, by its id, in order.
        schedules: Which of them come from which schedule.
        size: Their bytes.
        stored: The bytes that they took in the delay log.
        visible: Whether readers see them.
    """

    end: int
    dues: dict[int, int]
    schedules: dict[int, str]
    size: int
    stored: int
    visible: bool = field(default=False)


class Releasing:
    """
    Appends what is due in one partition.

    Args:
        delays: What waits there.
    """

    _log = Logger()

    def __init__(self, delays: Delays) -> None:
        self._delays = delays
        self._waiting = delays.memory
        self._leaving: deque[Leaving] = deque()
        self._under_way = 0
        #: Until when nothing is tried, for something was refused.
        self.held_until = 0
        self.lateness = Lateness()

    @property
    def idle(self) -> bool:
        """Whether nothing is on its way."""
        return not self._leaving

    @property
    def may_go_on(self) -> bool:
        """Whether waiting for a while is all that can be done; else an answer goes on."""
        refusing = self._delays.refusing
        if isinstance(refusing, ShuttingDown):
            return False
        return self._under_way <= _MOST_UNDER_WAY

    def turn(self, now: int) -> bool:
        """
        Append some of what is due.

        Args:
            now: The time.

        Returns:
            Whether there is more that can be appended now.
        """
        delays, waiting = self._delays, self._waiting
        if not waiting.ready or now < self.held_until or self._under_way > _MOST_UNDER_WAY:
            return False
        refusing = delays.refusing
        if refusing is not None:
            if not isinstance(refusing, ShuttingDown):
                self.held_until = now + _AGAIN_MS
            return False
        self._append(_Gathered(delays))
        return bool(waiting.ready)

    def _append(self, gathered: _Gathered) -> None:
        delays, waiting = self._delays, self._waiting
        for number in gathered.lost:
            waiting.ready.pop(number)
            waiting.ghosts[number] = -1
        if gathered.lost:
            self._log.error(
                "{partition}: {count} messages that were due cannot be read, and are lost; the "
                "first is {first}",
                partition=delays.partition,
                count=len(gathered.lost),
                first=gathered.lost[0],
            )
            delays.lose(gathered.lost)
        if not gathered.dues:
            return
        partition = delays.partition
        batch = gathered.batch(partition.producers.expected(RELEASES))
        base = partition.log.end_offset
        leaving = Leaving(
            base + len(gathered.dues),
            gathered.dues,
            gathered.schedules,
            len(batch),
            gathered.stored,
        )
        for number in gathered.dues:
            del waiting.ready[number]
        waiting.ghosts.update(dict.fromkeys(gathered.dues, -1))
        self._leaving.append(leaving)
        self._under_way += leaving.size
        partition.place(batch, delays.wall(), partial(self._answer, leaving))
        delays.host.broker.committer.staged(partition)

    def _answer(self, leaving: Leaving, found: Appended | WireError) -> None:
        delays = self._delays
        self._under_way -= leaving.size
        if isinstance(found, WireError):
            self._leaving.remove(leaving)
            self._back(leaving)
            self.held_until = delays.host.now() + _AGAIN_MS
        else:
            leaving.visible = True
            self._waiting.count -= len(leaving.dues)
            self._waiting.stored -= leaving.stored
            self.lateness.note(delays.host.now(), [*leaving.dues.values()])
            self.data_moved()
            delays.came(leaving)
        delays.mark()

    def _back(self, leaving: Leaving) -> None:
        """Let messages wait again that did not get into the data log."""
        waiting = self._waiting
        for number in leaving.dues:
            waiting.ghosts.pop(number, None)
        waiting.ready = {**leaving.dues, **waiting.ready}

    def leaving(self, schedule: str) -> list[tuple[int, int]]:
        """
        Say which messages of a schedule are on their way into the topic.

        Args:
            schedule: Which one, as NAME@CREATED.

        Returns:
            Ids and due times.
        """
        return [
            (number, each.dues[number])
            for each in self._leaving
            if not each.visible
            for number, name in each.schedules.items()
            if name == schedule
        ]

    def data_moved(self) -> None:
        """Look what of the data log is on the disk."""
        synced = self._delays.partition.log.synced_offset
        while self._leaving and self._leaving[0].visible and self._leaving[0].end <= synced:
            self._delays.went(self._leaving.popleft())


class _Gathered:
    """The next messages that are due, as one batch."""

    def __init__(self, delays: Delays) -> None:
        waiting = delays.memory
        self.dues: dict[int, int] = {}
        self.schedules: dict[int, str] = {}
        self.lost: list[int] = []
        self.stored = 0
        self._places: list[tuple[StoredBatch, int]] = []
        timed: bool | None = None
        size = 0
        seconds = delays.host.broker.scheduler.seconds
        until = seconds() + _GATHER_SECONDS
        for number, due in islice(waiting.ready.items(), _MOST_TOGETHER):
            if (self.dues or self.lost) and seconds() >= until:
                break
            try:
                batch, place = _found(delays, number)
                value, has_time = batch.values[place], batch.times[place] is not None
            except CorruptBatch:
                self.lost.append(number)
                continue
            size += len(value or b"") + 64
            if self.dues and (size > _MOST_BYTES or timed != has_time):
                break
            timed = has_time
            self.dues[number] = due
            self._places.append((batch, place))
            self.stored += batch.share
            schedule = batch.schedule(place)
            if schedule is not None:
                self.schedules[number] = schedule

    def batch(self, sequence: int) -> bytes:
        """Make the batch, as an idempotent producer would."""
        places = self._places
        keys = [batch.keys[place] for batch, place in places]
        headers = [batch.sent(place) for batch, place in places]
        ttls = [batch.ttls[place] for batch, place in places]
        times = [time for batch, place in places if (time := batch.times[place]) is not None]
        packed = any(batch.header.codec for batch, _ in places)
        return encode_batch(
            [batch.values[place] for batch, place in places],
            keys=None if not any(key is not None for key in keys) else keys,
            headers=headers if any(headers) else None,
            ttls=ttls if any(ttl is not None for ttl in ttls) else None,
            times=times or None,
            ids=[pack_id(number) for number in self.dues],
            codec=Codec.ZSTD if packed else Codec.NONE,
            producer_id=RELEASES,
            producer_epoch=0,
            base_sequence=sequence,
        )


def _found(delays: Delays, number: int) -> tuple[StoredBatch, int]:
    """
    Find where a message lies; where the index says, or where its id says that it lay first.

    Raises:
        CorruptBatch: It is at neither place, or cannot be read.
    """
    for offset in dict.fromkeys((delays.memory.offset(number), number)):
        with suppress(CorruptBatch):
            batch = delays.batch(offset)
            if batch.ids[offset - batch.base] == number:
                return batch, offset - batch.base
    raise CorruptBatch(f"message {number} is not in the delay log")


def released_in(
    partition: Partition, start: int, pause: Callable[[], None] = lambda: None
) -> Iterator[int]:
    """
    Read which messages are in a data log that waited before.

    Args:
        partition: The partition.
        start: From which offset on.
        pause: Called now and then.

    Yields:
        Their delay ids.
    """
    log = partition.log
    for header in log.headers(max(start, log.start_offset)):
        if header.producer_id != RELEASES or header.next_offset <= start:
            continue
        # It may begin below the start, which a purge moved into its middle.
        chunk = log.read(max(header.base_offset, log.start_offset), 1, log.written_offset)
        assert chunk is not None, "it was to wait for the disk"
        for found, data in split(chunk.data):
            if found.base_offset == header.base_offset:
                yield from map(unpack_id, RecordBatch(data, found, _INFLATED).ids)
        pause()


_INFLATED: Final = 1 << 31
