"""
A partition: its log, who wrote to it and who waits for it; what readers see is in `readable`.

::

    start          high watermark      written        end
      |  visible to readers  |  on its way to  |  staged in  |
      |                      |  the disk       |  memory     |

With the policy ``always`` a record becomes visible, and is acknowledged, when
it is on disk; otherwise when it was handed to the operating system. Both are
woken by the same advance, so no reader sees what may still be lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from twisted.logger import Logger
from typing_extensions import override

from tinymq.broker.mortal import Mortal, Steps, check_ttls
from tinymq.broker.producers import ProducerTable, refuse_own
from tinymq.broker.readable import Readable
from tinymq.broker.transactions.controls import control
from tinymq.broker.transactions.opened import Identity, identity_of
from tinymq.errors import (
    InvalidRequest,
    PartitionOffline,
    StateError,
    StorageError,
    StorageFull,
    ValueTooLarge,
    WireError,
)
from tinymq.limits import Limits
from tinymq.storage.epochs import EpochFile
from tinymq.storage.log import Log
from tinymq.storage.memory import MemoryLog
from tinymq.wire.batch import (
    ABORTED,
    CONTROL,
    HAS_DUE,
    HAS_EXPIRY,
    NO_PRODUCER,
    PAYLOAD,
    TRANSACTIONAL,
    BatchHeader,
    Column,
    column_spans,
    read_header,
    stamp,
)
from tinymq.wire.frames import Bytes
from tinymq.wire.produced import check_produced
from tinymq.wire.records import Opened, RecordBatch

if TYPE_CHECKING:
    from tinymq.broker.dedup.dedup import Dedup
    from tinymq.broker.delays.delays import Delays
    from tinymq.broker.ledger import Ledger
    from tinymq.broker.routing.judging import Judge
    from tinymq.meta.registry import Topic


#: Most bytes that msgpack needs for one value beside the value itself.
VALUE_OVERHEAD: Final = 10


class Appended(NamedTuple):
    """
    A batch has its place.

    Attributes:
        base_offset: Offset of its first record.
        timestamp: Append time in milliseconds; -1 for a duplicate.
        duplicate: It was there before.
        volatile: It is kept in memory only.
        unroutable: Of an exchange: which of its records no binding takes, as bits; None if
            all are taken, or if that is not known yet.
        delayed: It waits until it is due, and the base offset is the id of its first message.
        known: Records that were there before and were left out: place in the batch, and offset
            of the first one.
    """

    base_offset: int
    timestamp: int
    duplicate: bool
    volatile: bool
    unroutable: bytes | None = None
    delayed: bool = False
    known: Sequence[tuple[int, int]] = ()


#: Called once with what came of a batch.
Answer = Callable[["Appended | WireError"], None]
#: Called once: with nothing, or with what is wrong.
Told = Callable[["WireError | None"], None]


class Partition(Readable):
    """
    One partition that this broker leads.

    Args:
        topic: The topic it belongs to.
        index: Its number.
        log: The data log.
        epochs: The leader epochs and where they began.
        limits: The limits in force.
        producers: What is known of producers; nothing by default.
    """

    _log = Logger()

    def __init__(
        self,
        topic: Topic,
        index: int,
        log: Log | MemoryLog,
        epochs: EpochFile | None,
        limits: Limits,
        producers: ProducerTable | None = None,
    ) -> None:
        super().__init__(topic, index, log, epochs)
        #: The topic's id, which stays, and the number.
        self.key = topic.id, index
        self.limits = limits
        self.producers = ProducerTable(limits.producer_window) if producers is None else producers
        #: What its channels did, once there are some.
        self.ledger: Ledger | None = None
        #: Looks through what is published, where its topic is an exchange.
        self.judge: Judge | None = None
        #: What is not due yet, once there is something.
        self.delays: Delays | None = None
        #: Which message ids it knows, where its topic has a dedup window.
        self.dedup: Dedup | None = None
        #: Why publishing is refused here, by cause.
        self.refusals: dict[str, WireError] = {}
        #: Who is told when the high watermark rises or the partition goes away.
        self.watchers: set[Callable[[], None]] = set()
        #: Where it says that its figures changed; the broker's set once it is open.
        self.moved: set[Partition] = set()
        #: Set when the start was unclean: the next append opens a new epoch.
        self.epoch_due = False
        #: Where there are messages with a time to live of their own.
        self.mortal = Mortal()
        #: What the wall clock did while they were appended; None if nobody wants to know.
        self.steps: Steps | None = None
        #: Batches with such messages that were taken since somebody emptied this: first offset,
        #: the one behind, and when the first is over by append time; None if nobody does.
        self.mortals: list[tuple[int, int, int]] | None = None
        #: Who waits for the control batches that are on their way to the disk.
        self._ending: dict[Identity, list[Told]] = {}
        self._waiting: deque[tuple[int, Appended, Answer]] = deque()
        self._newest = log.max_timestamp

    @property
    def full(self) -> WireError | None:
        """Why publishing is refused here, as when a channel is as long as it may be."""
        return next(iter(self.refusals.values()), None)

    @property
    def epoch(self) -> int:
        """The leader epoch in which records are appended now."""
        return 0 if self.epochs is None else max(0, self.epochs.current)

    @override
    def changed(self) -> None:
        self.moved.add(self)

    @override
    def __repr__(self) -> str:
        return f"<Partition {self.topic.name}/{self.index}>"

    # --- writing ------------------------------------------------------------

    def append(self, batch: Bytes, now_ms: int, answer: Answer) -> bool:
        """
        Stage a producer's batch; it is written and acknowledged by a later `write`.

        Args:
            batch: Exactly one batch as the producer sent it.
            now_ms: The wall clock; append times never fall.
            answer: Called once, later or at once: with the place of the batch,
                or with an error.

        Returns:
            Whether something is to be written now.
        """
        try:
            header = check_produced(batch, self.limits)
            if header.attributes & HAS_DUE:
                raise StateError("messages that are not due yet do not go into the data log")
            refuse_own(header)
            if header.attributes & HAS_EXPIRY:
                check_ttls(batch, header, now_ms)
            known = self.producers.duplicate_of(header)
            if header.attributes & TRANSACTIONAL and not self.producers.remembers(
                header.producer_id
            ):
                self.transactions.check_new(identity_of(header))
            failure = self.failure
            if known is not None and known + header.records <= self.high_watermark:
                answer(self._again(batch, header, known))
            elif failure is not None:
                # Not raised: it is kept, and would gather the frames of all who hear it.
                answer(failure)
            elif known is not None:
                self._wait(known + header.records, self._again(batch, header, known), answer)
            else:
                self.check_values(batch, header)
                if self.epoch_due:
                    self._open_epoch()
                if self.dedup is not None and self.judge is None:
                    return self._stage_new(self.dedup, batch, header, now_ms, answer)
                self._stage(batch, header, now_ms, answer)
                return True
        except WireError as error:
            answer(error)
        return False

    def place(self, batch: Bytes, now_ms: int, answer: Answer) -> None:
        """
        Stage a batch of the broker's own, whose records were held to all limits before.

        Args:
            batch: Exactly one batch.
            now_ms: The wall clock.
            answer: Called once, as `append` does.
        """
        failure = self.failure
        try:
            if failure is None:
                if self.epoch_due:
                    self._open_epoch()
                self._stage(batch, read_header(batch), now_ms, answer)
        except WireError as error:
            failure = error
        if failure is not None:
            answer(failure)

    def check_values(self, batch: Bytes, header: BatchHeader) -> None:
        """
        Hold records to what the topic allows, as far as that shows without opening values.

        Of several records it is their mean; the client looks at each.

        Args:
            batch: The batch.
            header: Its header.

        Raises:
            ValueTooLarge: They are longer.
            InvalidRequest: A record has no key, where of each key the newest is kept.
        """
        if self.topic.config.compacts:
            self._check_keys(batch, header)
        most = self.topic.config.max_value_bytes
        if most >= self.limits.value:
            return  # the batch was held to that already
        span = column_spans(batch)[Column.VALUES]
        size = 0 if span is None else span[1] - span[0]
        if size > header.records * (most + VALUE_OVERHEAD):
            raise ValueTooLarge(
                f"{header.records} records have values of {size} bytes; "
                f"max.value.bytes of {self.topic.name} is {most}",
                limit=most,
                name="max.value.bytes",
            )

    def _check_keys(self, batch: Bytes, header: BatchHeader) -> None:
        keys = RecordBatch(batch, header).keys
        if None in keys:
            name, mode = self.topic.name, self.topic.config.retention_mode
            raise InvalidRequest(
                f"record {keys.index(None)} of {len(keys)} has no key; retention.mode of {name} "
                f"is {mode}, which keeps the newest record of each key: give it one",
                field="retention.mode",
            )

    def _again(self, batch: Bytes, header: BatchHeader, base: int) -> Appended:
        """What is said of a batch that lies at an offset already."""
        known: Sequence[tuple[int, int]] = ()
        if self.dedup is not None:
            ids = self.dedup.ids(batch, header)
            known = () if ids is None else self.dedup.seen.before(ids, base)
        return Appended(base, -1, duplicate=True, volatile=self.volatile, known=known)

    def _stage_new(
        self, dedup: Dedup, batch: Bytes, header: BatchHeader, now_ms: int, answer: Answer
    ) -> bool:
        """Stage what of a batch is no repeat; say whether there is anything to be written."""
        ids = dedup.ids(batch, header)
        base, time = self.log.end_offset, max(now_ms, self._newest)
        known = [] if ids is None else dedup.known(ids, base, time)
        if len(known) == header.records and header.producer_id == NO_PRODUCER:
            found = Appended(known[0][1], -1, duplicate=True, volatile=self.volatile, known=known)
            self._wait(1 + max(first for _, first in known), found, answer)
            return False
        if known:
            gone = {place for place, _ in known}
            opened = Opened(RecordBatch(batch, header, self.limits.inflated))
            places = [place for place in range(header.records) if place not in gone]
            payload, header = opened.keep(places)
            batch = bytes(batch[:PAYLOAD]) + payload
        self._stage(batch, header, now_ms, answer, known)
        if ids is not None:
            dedup.took(ids, known, base, time)
        return True

    def _stage(
        self,
        batch: Bytes,
        header: BatchHeader,
        now_ms: int,
        answer: Answer,
        known: Sequence[tuple[int, int]] = (),
    ) -> None:
        base = self.log.end_offset
        following = base + header.last_offset_delta + 1
        timestamp = max(now_ms, self._newest)
        self.log.append(
            stamp(batch, header, base, self.epoch, timestamp), base, following - 1, timestamp
        )
        self._newest = timestamp
        self.producers.record(header, base, timestamp)
        if header.attributes & TRANSACTIONAL:
            self.transactions.begin(identity_of(header), base, timestamp)
        if header.attributes & HAS_EXPIRY:
            self._note_ttls(batch, header, base, timestamp)
        if self.steps is not None and (self.mortal or self.topic.config.ttl_ms is not None):
            self.steps.note(base, timestamp)
        found = Appended(base, timestamp, duplicate=False, volatile=self.volatile, known=known)
        self._waiting.append((following, found, answer))
        self.changed()
        self.counters.records_in += header.records
        self.counters.bytes_in += header.size

    def decide(self, identity: Identity, now_ms: int, done: Told, *, commit: bool) -> bool:
        """
        Stage the control batch that ends a transaction; a later `write` writes it.

        Args:
            identity: The transaction; one that is not open needs nothing.
            now_ms: The wall clock.
            done: Called once, maybe before this returns, when readers see what was decided,
                or with what is wrong: then it is still open.
            commit: Whether it counts.

        Returns:
            Whether something is to be written now.
        """
        failure = self.failure
        if identity in self._ending:
            self._ending[identity].append(done)
        elif failure is not None or identity not in self.transactions.open:
            done(failure)
        else:
            try:
                if self.epoch_due:
                    self._open_epoch()
                self._end(identity, now_ms, commit=commit)
            except WireError as error:
                done(error)
                return False
            self._ending[identity] = [done]
            return True
        return False

    def _end(self, identity: Identity, now_ms: int, *, commit: bool) -> None:
        base, timestamp = self.log.end_offset, max(now_ms, self._newest)
        pieces = control(identity, base, self.epoch, timestamp, aborted=not commit)
        self.log.append(pieces, base, base, timestamp)
        self._newest = timestamp
        self.producers.end(identity, base, aborted=not commit)

        def answer(found: Appended | WireError) -> None:
            waiting, failure = self._ending.pop(identity), None
            if isinstance(found, WireError):
                failure = found
            else:
                synced = self.log.synced_offset
                self.transactions.forget(self._kept_since)
                self.transactions.end(identity, base, synced, aborted=not commit)
            for told in waiting:
                told(failure)

        place = Appended(base, timestamp, duplicate=False, volatile=self.volatile)
        self._waiting.append((base + 1, place, answer))
        self.changed()

    @property
    def _kept_since(self) -> int:
        """No batch below this offset can ever be read again, not even after an undo."""
        log = self.log
        if isinstance(log, Log):
            return log.kept_since[0]
        return 0 if log.undo_window is not None else log.start_offset

    def _note_ttls(self, batch: Bytes, header: BatchHeader, base: int, timestamp: int) -> None:
        """Remember that there are messages with a time to live, and when the first is over."""
        following = base + header.last_offset_delta + 1
        self.mortal.add(base, following)
        if self.mortals is not None:
            ttls = [ttl for ttl in RecordBatch(batch, header).ttls if ttl is not None]
            if ttls:
                self.mortals.append((base, following, timestamp + min(ttls)))

    def _wait(self, following: int, found: Appended, answer: Answer) -> None:
        """Answer a duplicate together with the first one, which may be on its way to the disk."""
        if following <= self.high_watermark:
            answer(found)
            return
        place = next(
            (at for at, row in enumerate(self._waiting) if row[0] > following), len(self._waiting)
        )
        self._waiting.insert(place, (following, found, answer))

    def when_visible(self, done: Callable[[WireError | None], None]) -> None:
        """
        Call something when all that is staged now is as safe as the topic promises.

        Args:
            done: Called once, maybe before this returns, with what keeps it from being so.
        """
        end, failure = self.log.end_offset, self.failure
        if failure is not None or end <= self.high_watermark:
            done(failure)
            return
        found = Appended(end, -1, duplicate=True, volatile=self.volatile)

        def answer(told: Appended | WireError) -> None:
            done(told if isinstance(told, WireError) else None)

        self._waiting.append((end, found, answer))

    def _open_epoch(self) -> None:
        if self.epochs is not None:
            try:
                self.epochs.bump(self.log.end_offset, self._least_epoch())
            except OSError as error:
                raise StorageError(
                    f"the epochs of {self.topic.name}/{self.index} cannot be written: {error}"
                ) from error
        self.epoch_due = False

    def _least_epoch(self) -> int:
        """The lowest epoch that is new, when the list of those before was lost."""
        if self.epochs is None or not self.epochs.damaged:
            return 0
        used = (each.leader_epoch for each in self.log.headers())
        return 1 + max(used, default=-1)

    def write(self) -> None:
        """Hand everything staged to the operating system."""
        if self.failure is None:
            try:
                self.log.write()
            except WireError as error:
                self._take_back(error)
        if self.log.offline is not None or not self.synced_policy:
            self.advance()

    def _take_back(self, error: WireError) -> None:
        """Refuse what was staged and could not be written."""
        written = self.log.written_offset
        if not isinstance(error, StorageFull):
            self._log.error("{partition} cannot be written: {error}", partition=self, error=error)
        self.producers.take_back(written)
        self.transactions.take_back(written)
        if self.dedup is not None:
            self.dedup.take_back(written)
        if self.mortals:
            self.mortals = [each for each in self.mortals if each[1] <= written]
        refused: list[Answer] = []
        while self._waiting and self._waiting[-1][0] > written:
            refused.append(self._waiting.pop()[2])
        for answer in reversed(refused):
            answer(error)

    def advance(self) -> None:
        """Acknowledge what became visible, wake who waits for it, or tell all of the failure."""
        self.changed()
        visible = self.high_watermark
        waiting = self._waiting
        if waiting and waiting[0][0] <= visible:
            while waiting and waiting[0][0] <= visible:
                _, found, answer = waiting.popleft()
                answer(found)
            self._wake()
        if waiting and self.failure is not None:
            self.fail_waiting(self.failure)
        if self.delays is not None:
            self.delays.data_moved()

    def fail_waiting(self, error: WireError) -> None:
        """
        Answer everything that waits with an error.

        Args:
            error: What to tell; the outcome of these batches is unknown.
        """
        while self._waiting:
            self._waiting.popleft()[2](error)
        self._wake()

    def _wake(self) -> None:
        for watcher in tuple(self.watchers):
            watcher()

    @property
    def unsynced(self) -> bool:
        """Whether something was written that is not on disk yet."""
        behind = self.ledger is not None and self.ledger.unsynced
        behind = behind or (self.delays is not None and self.delays.unsynced)
        return behind or self.log.synced_offset != self.log.written_offset

    @property
    def idle(self) -> bool:
        """Whether nothing waits for an acknowledgement."""
        return not self._waiting

    # --- removing -----------------------------------------------------------

    def purge(self, start: int, now_ms: int) -> int:
        """
        Move the start of the log; the files stay until the undo window has passed.

        This may wait for the disk.

        Args:
            start: The new start, at most the stable offset.
            now_ms: The wall clock.

        Returns:
            How many offsets are gone.

        Raises:
            StorageError: The disk refused; nothing was purged.
        """
        # The log would write what is staged, and nobody would hear how that went.
        self.write()
        try:
            if self.delays is not None:
                self.delays.secure()
            if self.dedup is not None:
                self.log.sync()
                self.dedup.secure()
            return self.log.purge(start, now_ms, self.topic.config.undo_ms)
        finally:
            self.changed()
            self.advance()

    # --- life ---------------------------------------------------------------

    def remember(self, batch: BatchHeader) -> None:
        """
        Take a batch into account that was found in the log at start.

        Args:
            batch: Its header, with the offset it has.
        """
        if batch.attributes & HAS_EXPIRY:
            self.mortal.add(batch.base_offset, batch.next_offset)
        base, identity = batch.base_offset, identity_of(batch)
        if batch.attributes & CONTROL:
            aborted = bool(batch.attributes & ABORTED)
            self.producers.end(identity, base, aborted=aborted)
            self.transactions.end(identity, base, self.log.synced_offset, aborted=aborted)
        elif batch.native:
            self.producers.record(batch, base, batch.max_timestamp)
            if batch.attributes & TRANSACTIONAL:
                self.transactions.begin(identity, base, batch.max_timestamp)

    def close(self, reason: WireError | None = None) -> None:
        """
        Take no more batches and let go of everybody.

        Args:
            reason: What those who wait are told.
        """
        self.closed = reason or PartitionOffline("the partition was closed")
        self.fail_waiting(self.closed)
        if self.delays is not None:
            self.delays.close(self.closed)
        self.watchers.clear()
