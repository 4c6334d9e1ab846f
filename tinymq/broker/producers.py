"""
What a partition remembers of its idempotent producers (seed 0, "idempotence").

For each producer id the last batches are kept with their sequences and offsets.
A batch that comes again is answered with the offset of the first one, so a
retry is never a second record. The table is rebuilt from the headers in the
log, from a snapshot on, and so needs no log of its own.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from tinymq.errors import (
    InvalidRequest,
    InvalidTransaction,
    OutOfOrderSequence,
    ProducerFenced,
    TransactionAborted,
    UnknownProducer,
    WireError,
)
from tinymq.wire.batch import NO_PRODUCER, SEQUENCE_MODULUS, BatchHeader

#: Producers a partition remembers at most; the longest idle go first.
MOST_PRODUCERS: Final = 10_000
#: A producer is forgotten after this time without a batch.
FORGET_AFTER_MS: Final = 7 * 24 * 3600 * 1000

#: The brokers' own producers of delayed messages; clients may not use their ids.
RELEASES: Final = (1 << 62) + 1
SCHEDULES: Final = (1 << 62) + 2
COPIES: Final = (1 << 62) + 3
SCHEDULE_COPIES: Final = (1 << 62) + 4
_OWN: Final = frozenset((RELEASES, SCHEDULES, COPIES, SCHEDULE_COPIES))


def is_own(producer_id: int) -> bool:
    """
    Say whether a batch is of the broker itself.

    Args:
        producer_id: The batch's.
    """
    return producer_id in _OWN


def refuse_own(header: BatchHeader) -> None:
    """
    Refuse a batch that claims to be of the broker itself.

    Args:
        header: Its header.

    Raises:
        InvalidRequest: It does.
    """
    if is_own(header.producer_id):
        raise InvalidRequest(
            f"producer id {header.producer_id} is the broker's own", field="producer_id"
        )


class _Producer:
    """One producer: its epoch, and its last batches as (first, next, offset)."""

    __slots__ = ("batches", "ended", "epoch", "seen_ms")

    def __init__(self, epoch: int, keep: int) -> None:
        self.epoch = epoch
        self.batches: deque[tuple[int, int, int]] = deque(maxlen=keep)
        self.seen_ms = 0
        #: Where the transaction of this epoch ended, and whether it was aborted.
        self.ended: tuple[int, bool] | None = None

    def find(self, first: int, following: int) -> int | None:
        """Find the offset of a batch by its first sequence, and the one behind its last."""
        for batch_first, batch_next, offset in self.batches:
            if batch_first == first and batch_next == following:
                return offset
        return None


class ProducerTable:
    """
    The producers of one partition.

    Args:
        window: Batches that a producer may have in flight; twice as many are
            kept, so that a refused write that takes back a whole window leaves
            the sequence known.
        most: Producers remembered at most; the longest idle go first.
        forget_ms: A producer is forgotten after this time without a batch.
    """

    def __init__(
        self, window: int = 64, most: int = MOST_PRODUCERS, forget_ms: int = FORGET_AFTER_MS
    ) -> None:
        self._keep = 2 * window
        self._most = most
        self._forget_ms = forget_ms
        # In order of last use, so that the longest idle is found at the front.
        self._producers: dict[int, _Producer] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def remembers(self, producer_id: int) -> bool:
        """
        Say whether something is known of a producer.

        Args:
            producer_id: Its id.
        """
        return producer_id in self._producers

    def duplicate_of(self, header: BatchHeader) -> int | None:
        """
        Find out what a batch is to this partition.

        Args:
            header: Header of a batch that arrived.

        Returns:
            None for a batch to be appended, or the offset at which it lies already.

        Raises:
            UnknownProducer: The producer is not remembered and does not start at 0.
            ProducerFenced: The epoch is older than the newest seen.
            OutOfOrderSequence: A batch in between is missing, or this one is
                older than what is remembered.
            TransactionAborted, InvalidTransaction: Its transaction is over.
        """
        producer_id, first = header.producer_id, header.base_sequence
        if producer_id == NO_PRODUCER:
            return None
        known = self._producers.get(producer_id)
        if known is None:
            if first:
                raise UnknownProducer(
                    f"producer {producer_id} is not remembered here; start a new one", expected=0
                )
            return None
        if header.producer_epoch < known.epoch:
            raise ProducerFenced(
                f"epoch {header.producer_epoch} of producer {producer_id} is over; "
                f"epoch {known.epoch} is at work"
            )
        if header.producer_epoch > known.epoch:
            expected = 0
        else:
            expected = known.batches[-1][1]
            following = (first + header.records) % SEQUENCE_MODULUS
            found = None if first == expected else known.find(first, following)
            if found is not None:
                return found
            if known.ended is not None:
                raise _over(header, aborted=known.ended[1])
        if first != expected:
            raise OutOfOrderSequence(
                f"producer {producer_id} sent sequence {first} where {expected} was due",
                expected=expected,
            )
        return None

    def expect(self, producer_id: int, first: int) -> None:
        """
        Let one of the broker's own producers go on at a sequence, if it is not behind already.

        Args:
            producer_id: A reserved one, whose epoch is 0.
            first: The sequence of its next record.
        """
        known = self._producers.get(producer_id)
        expected = 0 if known is None else known.batches[-1][1]
        ahead = (first - expected) % SEQUENCE_MODULUS
        if 0 < ahead < SEQUENCE_MODULUS // 2:
            known = self._producers[producer_id] = _Producer(0, self._keep)
            known.batches.append((first, first, -1))

    def expected(self, producer_id: int) -> int:
        """
        Say which sequence comes next.

        Args:
            producer_id: One of the broker's own.
        """
        known = self._producers.get(producer_id)
        return 0 if known is None else known.batches[-1][1]

    def record(self, header: BatchHeader, base_offset: int, timestamp: int) -> None:
        """
        Remember a batch that was appended.

        Args:
            header: Its header; the offset in it does not count.
            base_offset: Where it was appended.
            timestamp: Its append time in milliseconds.
        """
        producer_id = header.producer_id
        if producer_id == NO_PRODUCER:
            return
        known = self._producers.pop(producer_id, None)
        if known is None or known.epoch != header.producer_epoch:
            known = _Producer(header.producer_epoch, self._keep)
        first = header.base_sequence
        # Records may be missing in it, by compaction; they had sequences all the same.
        following = (first + header.last_offset_delta + 1) % SEQUENCE_MODULUS
        known.batches.append((first, following, base_offset))
        known.seen_ms = timestamp
        self._producers[producer_id] = known
        if len(self._producers) > self._most:
            del self._producers[next(iter(self._producers))]

    def end(self, identity: tuple[int, int], offset: int, *, aborted: bool) -> None:
        """
        Take no more batches of a transaction: it is over here.

        Args:
            identity: Producer id and epoch.
            offset: Where its control batch is.
            aborted: Whether it was aborted.
        """
        known = self._producers.get(identity[0])
        if known is not None and known.epoch == identity[1]:
            known.ended = offset, aborted

    def take_back(self, offset: int) -> None:
        """
        Forget what was appended at or behind an offset.

        Args:
            offset: The end of what really was written.
        """
        for producer_id, known in list(self._producers.items()):
            if known.ended is not None and known.ended[0] >= offset:
                known.ended = None
            while known.batches and known.batches[-1][2] >= offset:
                known.batches.pop()
            if not known.batches:
                del self._producers[producer_id]

    def forget_idle(self, now_ms: int) -> None:
        """
        Forget producers that were idle for long.

        Args:
            now_ms: The wall clock.
        """
        for producer_id, known in list(self._producers.items()):
            if now_ms - known.seen_ms <= self._forget_ms:
                break
            del self._producers[producer_id]

    def snapshot(self) -> list[Any]:
        """Everything, as plain lists that msgpack can store."""
        return [
            [
                *(producer_id, known.epoch, known.seen_ms, [*map(list, known.batches)]),
                *([] if known.ended is None else known.ended),
            ]
            for producer_id, known in self._producers.items()
        ]

    def restore(self, snapshot: list[Any]) -> None:
        """
        Take over a snapshot.

        Args:
            snapshot: From `snapshot`.
        """
        self._producers.clear()
        for producer_id, epoch, seen_ms, batches, *ended in snapshot:
            known = _Producer(epoch, self._keep)
            known.seen_ms = seen_ms
            known.ended = (ended[0], ended[1]) if ended else None
            known.batches.extend((first, following, offset) for first, following, offset in batches)
            if known.batches:
                self._producers[producer_id] = known


def _over(header: BatchHeader, *, aborted: bool) -> WireError:
    """Say why a batch comes too late for its transaction."""
    identity = f"transaction {header.producer_id}:{header.producer_epoch}"
    if aborted:
        return TransactionAborted(f"{identity} was aborted; begin another one")
    return InvalidTransaction(f"{identity} was committed, and takes no more records")
