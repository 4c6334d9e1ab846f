"""
Stragglers: a few messages for whose sake a long log would have to stay.

They are copied into the ledger, and are given out from there with the same
offset, body and attempts; then the files in which they were can go.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from heapq import merge
from typing import TYPE_CHECKING, Final

import msgpack
from twisted.logger import Logger

from tinymq.broker.channel.entries import KEEP
from tinymq.broker.channel.life import where
from tinymq.broker.channel.places import Places
from tinymq.broker.channel.queue import LedgerRecord
from tinymq.broker.channel.runs import Run, Runs, runs_in
from tinymq.broker.window import ColdPiece, Stored
from tinymq.errors import TinyMQError, WireError
from tinymq.limits import MIB
from tinymq.storage.facts import Due
from tinymq.wire.batch import HAS_EXPIRY, checked_header, read_header, stamp
from tinymq.wire.records import RecordBatch, encode_batch

if TYPE_CHECKING:
    from tinymq.broker.broker import Broker
    from tinymq.broker.hosted import Hosted

#: The key of copies in the ledger; no channel is called so.
KEPT_KEY: Final = b"tinymq.kept@0"
#: Messages of a partition that are kept so, and their bytes.
_MOST_KEPT: Final = 100
_MOST_BYTES: Final = MIB
#: It is worth it for so many bytes of files,
_LEAST_FREED: Final = MIB
#: and for so many times the bytes that are copied.
_WORTH: Final = 10


class Stragglers:
    """
    Messages of a partition that are in its ledger.

    Args:
        broker: The broker.
        hosted: The channels.

    Attributes:
        kept: Each as a batch, by offset.
    """

    _log = Logger()

    def __init__(self, broker: Broker, hosted: Hosted) -> None:
        self._broker = broker
        self._hosted = hosted
        self.kept: dict[int, Stored] = {}
        self._copied: dict[int, Stored] = {}
        self._fresh: list[int] = []
        self._busy = False
        #: What turned out not to be worth it ended here.
        self._refused = -1

    @property
    def offsets(self) -> list[int]:
        """Which messages are kept, in order."""
        return sorted(self.kept)

    def forget(self, below: int) -> bool:
        """
        Keep nothing below an offset any more, and copy nothing of it.

        Args:
            below: The offset.

        Returns:
            Whether there was something.
        """
        found = [each for each in self.kept if each < below]
        for offset in found:
            del self.kept[offset]
        for offset in [each for each in self._copied if each < below]:
            del self._copied[offset]
        self._fresh = [each for each in self._fresh if each >= below]
        return bool(found)

    def needed_by(self, places: Places, below: int) -> list[int]:
        """
        Return which of the messages that are kept a channel has not settled.

        Args:
            places: The channel's state.
            below: Only those below this offset.
        """
        return [
            offset
            for offset in self.offsets
            if offset < below and where(places, offset) not in {"settled", "given_up"}
        ]

    # --- what channels need --------------------------------------------------------

    def lowest(self, places: Places) -> int:
        """
        Return the offset below which a channel needs nothing of the log.

        Args:
            places: The channel's state.
        """
        if not self.kept:
            return places.floor
        kept = Runs((offset, offset + 1) for offset in self.offsets)
        first = (
            start for run in _needed(places) for start, _ in kept.missing(*run) if run[0] < run[1]
        )
        return min(next(first, places.cursor), places.cursor)

    def _prune(self) -> None:
        """Keep only what a channel still needs."""
        if not self.kept:
            return
        channels = [one.channel.places for one in self._hosted.queue.channels.values()]
        channels += (places for _, places in self._hosted.unknown)
        first, behind = min(self.kept), max(self.kept) + 1
        unneeded = Runs([(first, behind)])
        for places in channels:
            # Each channel is looked through once: it may hold very much beside these few.
            for start, end in _needed(places):
                unneeded.remove(start, end)
            for start, end in places.ahead.missing(places.cursor, behind):
                unneeded.remove(start, end)
        for offset in self.offsets:
            if offset in unneeded:
                del self.kept[offset]

    # --- copying -------------------------------------------------------------------

    def consider(self, rows: Sequence[Due]) -> None:
        """
        Begin to copy what holds files back, if it is little and they are long.

        Args:
            rows: Files that retention would remove, and cannot.
        """
        ledger = self._hosted.ledger
        if self._busy or not ledger.stored or ledger.failure is not None:
            return
        self._prune()
        offsets, beyond = self._little()
        chosen = [row for row in rows if row.end <= beyond]
        if not chosen or sum(row.size for row in chosen) < _LEAST_FREED:
            return
        end = chosen[-1].end
        wanted = [offset for offset in offsets if offset < end]
        if wanted and end != self._refused:
            self._busy, self._copied = True, {}
            self._copy(wanted, end, sum(row.size for row in chosen))

    def _little(self) -> tuple[list[int], int]:
        """Return the oldest messages that are needed, and how far these are all there are."""
        channels = [one.channel.places for _, one in self._hosted.holding.holders()]
        channels += (places for _, places in self._hosted.unknown)
        beyond = min((places.cursor for places in channels), default=0)
        if any(places.undo is not None for places in channels):
            return [], 0  # that would have to be copied, too, and is over soon
        found: list[int] = []
        for start, end in merge(*map(_needed, channels)):
            for offset in range(start, end):
                if offset in self.kept or (found and offset <= found[-1]):
                    continue
                if len(found) + len(self.kept) >= _MOST_KEPT:
                    return found, min(beyond, offset)
                found.append(offset)
        return found, beyond

    def _copy(self, wanted: list[int], end: int, freed: int, warm: int = -1) -> None:
        """Copy messages; what is not in memory is fetched by the background."""
        window = self._hosted.window
        most = min(_MOST_BYTES - _size(self.kept), freed // _WORTH)
        size = _size(self._copied)
        try:
            with window.hasty(warm):
                for offset in wanted:
                    if offset not in self._copied and size <= most:
                        stored = _alone(window.batch_at(offset, offset + 1), offset)
                        if stored is not None:
                            self._copied[offset] = stored
                            size += len(stored[1])
        except ColdPiece as cold:
            fetched = partial(self._copy, wanted, end, freed, cold.offset)
            self._broker.background.submit(window.warmer(cold.offset), fetched)
            return
        except (OSError, TinyMQError) as error:
            self._log.warn("{hosted}: stragglers stay: {error}", hosted=self._hosted, error=error)
            self._busy, self._copied = False, {}
            return
        if size > most:
            self._refused, self._busy, self._copied = end, False, {}
            return
        self._fresh = sorted(self._copied)
        # Whatever the topic promises of new records, the files have been on the disk for long.
        self._hosted.ledger.when_synced(self._safe)
        self._hosted.mark()

    def _safe(self, error: WireError | None) -> None:
        """Let the files go: the copies are on the disk."""
        self._busy = False
        if error is None and self._hosted.partition.closed is None:
            self.kept.update(self._copied)
            partition = self._hosted.partition
            if self._hosted.holding.apply(self._broker.wall()):
                partition.moved.add(partition)
                self._log.info(
                    "{hosted}: {count} messages that hold files back are in the ledger now",
                    hosted=self._hosted,
                    count=len(self._copied),
                )
            self._hosted.mark()
        self._copied = {}

    # --- the ledger ----------------------------------------------------------------

    def records(self, now: int) -> list[LedgerRecord]:
        """
        Return what is to be written: copies that are new.

        Args:
            now: The time.
        """
        fresh, self._fresh = self._fresh, []
        return [_record(now, offset, self._copied[offset]) for offset in fresh]

    def snapshot(self, now: int) -> list[LedgerRecord]:
        """
        Return all copies that are needed.

        Args:
            now: The time.
        """
        self._prune()
        every = {**self.kept, **self._copied}
        self._fresh = []
        return [_record(now, offset, every[offset]) for offset in sorted(every)]

    def restore(self, value: bytes) -> None:
        """
        Take over what is in the ledger.

        Args:
            value: Of a record with `KEPT_KEY`.
        """
        try:
            for kind, offset, data in msgpack.unpackb(value)[2]:
                if kind == KEEP:
                    header = checked_header(data)
                    self.kept[offset] = header, memoryview(data)
                    if header.attributes & HAS_EXPIRY:
                        self._hosted.partition.mortal.add(offset, offset + 1)
        except (msgpack.UnpackException, LookupError, TypeError, ValueError, WireError) as error:
            self._log.error(
                "{hosted}: a message in the ledger cannot be read: {error}",
                hosted=self._hosted,
                error=error,
            )


def _size(copies: dict[int, Stored]) -> int:
    return sum(len(data) for _, data in copies.values())


def _needed(places: Places) -> Iterator[Run]:
    """Yield what a channel needs below its cursor, in order; runs may overlap."""
    found: list[Run] = [(start, end) for start, end, _ in places.open()]
    for doom in places.doomed.values():
        found += runs_in(doom.base, doom.bits)
    if places.undo is not None:
        found += ((start, end) for start, end, _ in places.undo.skipped)
    return iter(sorted(found))


def _alone(stored: Stored | None, offset: int) -> Stored | None:
    """Make a batch of one message, at its own offset; None if it does not exist."""
    if stored is None or not stored[0].base_offset <= offset < stored[0].next_offset:
        return None
    batch = RecordBatch(stored[1], stored[0])
    if offset not in batch.offsets:
        return None
    at = batch.offsets.index(offset)
    time, message_id, ttl = batch.times[at], batch.ids[at], batch.ttls[at]
    made = encode_batch(
        [batch.values[at]],
        keys=[batch.keys[at]],
        headers=[batch.headers[at]],
        times=None if time is None else [time],
        ids=None if message_id is None else [message_id],
        ttls=None if ttl is None else [ttl],
    )
    epoch, appended = stored[0].leader_epoch, stored[0].max_timestamp
    data = b"".join(stamp(made, read_header(made), offset, epoch, appended))
    return read_header(data), memoryview(data)


def _record(now: int, offset: int, stored: Stored) -> LedgerRecord:
    return KEPT_KEY, msgpack.packb([now, "", [[KEEP, offset, bytes(stored[1])]]])
