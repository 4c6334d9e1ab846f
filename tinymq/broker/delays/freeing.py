"""
Letting go of the front of a delay log: what still waits there is copied to its end.

A log is let go from its front alone, and one message for next year would hold all that came
and went behind it. So when more of the log is gone than waits, and it is worth it, what waits
in the first file is copied forward, with its id, and the file goes. That costs no more than
was written before: the log is never much longer than twice what waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tinymq.broker.delays.acts import pack_id
from tinymq.broker.delays.index import Row
from tinymq.broker.delays.shelf import StoredBatch
from tinymq.broker.partition import Appended
from tinymq.broker.producers import COPIES, SCHEDULE_COPIES
from tinymq.errors import CorruptBatch, WireError
from tinymq.limits import MIB
from tinymq.storage.log import Log
from tinymq.wire.batch import Codec
from tinymq.wire.records import encode_batch

if TYPE_CHECKING:
    from tinymq.broker.delays.delays import Delays

#: So many bytes may be gone before anything is copied.
LEAST_BYTES: Final = 64 * MIB
#: Milliseconds between two looks.
_LOOK_MS: Final = 1000
#: Messages that are copied in one batch, and bytes, about.
_MOST_TOGETHER: Final = 500
_MOST_BYTES: Final = MIB // 2
#: A log in memory has no files: its front is a part of it.
_PARTS: Final = 8


class Freeing:
    """
    Frees the space of what came.

    Args:
        delays: What waits in a partition.

    Attributes:
        least: So many bytes may be gone before anything is copied.
        copied: How many messages were copied.
        removed: How many files, or parts of memory, went.
    """

    def __init__(self, delays: Delays) -> None:
        self._delays = delays
        self._look_at = 0
        self._flying = False
        self._copied_end = 0
        self.least = LEAST_BYTES
        self.copied = 0
        self.removed = 0

    def turn(self, now: int) -> bool:
        """
        Free some space.

        Args:
            now: The time.

        Returns:
            Whether there is more to do at once.

        Raises:
            OSError, TinyMQError: The disk or the index refuses.
        """
        if self._flying or now < self._look_at:
            return False
        more = self._free()
        if not more:
            self._look_at = now + _LOOK_MS
        return more

    def rebuilt(self) -> None:
        """Copy nothing before the index has heard again of all that went."""
        self._copied_end = max(self._copied_end, self._delays.follower.seen)

    def _free(self) -> bool:
        delays = self._delays
        front = self._front()
        if front is None or delays.failure is not None:
            return False
        if delays.follower.upto < max(front[1], self._copied_end):
            # What was copied lies elsewhere once the index has followed.
            return self._copied_end > delays.follower.upto and delays.follower.step()
        rows = delays.lying_in(*front, _MOST_TOGETHER)
        if not rows:
            return self._remove(front[1])
        if not self._worth_it:
            return False
        self._copy([row for row in rows if row.id not in delays.memory.ghosts])
        return False

    def _front(self) -> tuple[int, int] | None:
        """Where the first file begins and ends, if it is not the last one."""
        log = self._delays.log
        if isinstance(log, Log):
            parts = log.parts()
            return (log.start_offset, parts[1].base) if len(parts) > 1 else None
        size = 0
        for header in log.headers():
            size += header.size
            if size * _PARTS >= log.size_bytes and header.next_offset < log.written_offset:
                return log.start_offset, header.next_offset
        return None

    @property
    def _worth_it(self) -> bool:
        gone = self._delays.log.size_bytes - self._delays.stored_bytes
        least = self.least if self._delays.stored else 0
        return gone > max(least, self._delays.stored_bytes)

    def _remove(self, end: int) -> bool:
        delays = self._delays
        log = delays.log
        if log.synced_offset < max(end, self._copied_end):
            return False
        delays.keep_producers(durable=True)
        before = log.start_offset
        # Where it starts is on the disk before the files go: a power cut may bring some back.
        log.trim(end)
        self.removed += log.start_offset > before
        return log.start_offset > before

    def _copy(self, rows: list[Row]) -> None:
        """Copy messages to the end of the log; only those of one kind, and not too many bytes."""
        chosen: list[tuple[Row, StoredBatch, int]] = []
        kind: tuple[bool, bool] | None = None
        size = 0
        for row in rows:
            try:
                batch = self._delays.batch(row.offset)
                place = row.offset - batch.base
                this = batch.scheduled, batch.times[place] is None
            except CorruptBatch:
                self._delays.lose([row.id])
                continue
            size += batch.share
            if chosen and (this != kind or size > _MOST_BYTES):
                break
            kind = this
            chosen.append((row, batch, place))
        if kind is not None:
            self._stage(chosen, scheduled=kind[0])

    def _stage(self, chosen: list[tuple[Row, StoredBatch, int]], *, scheduled: bool) -> None:
        headers = [batch.headers[place] for _, batch, place in chosen]
        times = [time for _, batch, place in chosen if (time := batch.times[place]) is not None]
        batch = encode_batch(
            [batch.values[place] for _, batch, place in chosen],
            keys=[batch.keys[place] for _, batch, place in chosen],
            headers=headers if any(headers) else None,
            times=times or None,
            ttls=[batch.ttls[place] for _, batch, place in chosen],
            ids=[pack_id(row.id) for row, _, _ in chosen],
            dues=[row.due for row, _, _ in chosen],
            codec=Codec.ZSTD if any(batch.header.codec for _, batch, _ in chosen) else Codec.NONE,
            producer_id=SCHEDULE_COPIES if scheduled else COPIES,
        )
        ids = [row.id for row, _, _ in chosen]

        def answer(found: Appended | WireError) -> None:
            self._flying = False
            self._look_at = 0
            if isinstance(found, WireError):
                self._look_at = self._delays.host.now() + _LOOK_MS
                return
            memory = self._delays.memory
            for offset, number in enumerate(ids, found.base_offset):
                if memory.knows(number):
                    memory.lies(number, offset)
            self.copied += len(ids)
            self._copied_end = found.base_offset + len(ids)

        self._flying = True
        self._delays.copy(batch, answer)
