"""
The messages of one partition that are not due yet.

To the committer it is like a partition: batches are staged in the delay log, written and
synced in its groups, and answered when they are safe; only then memory takes them in. What
becomes of them is gathered as acts and written in the same groups.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from attrs import define, field
from twisted.logger import Logger
from typing_extensions import override

from tinymq.broker.delays.acting import Done, Pending, offline
from tinymq.broker.delays.acts import NOTED, RELEASED, Act
from tinymq.broker.delays.freeing import Freeing
from tinymq.broker.delays.index import Index, Rebuilt
from tinymq.broker.delays.releasing import Leaving, Releasing
from tinymq.broker.delays.shelf import SCHEDULE_HEADER
from tinymq.broker.delays.taking import checked_dues, with_dues
from tinymq.broker.delays.timing import AGAIN_MS, Timing
from tinymq.broker.mortal import check_ttls
from tinymq.broker.partition import Answer, Appended
from tinymq.broker.producers import SCHEDULES, refuse_own
from tinymq.errors import StorageFull, TinyMQError, WireError
from tinymq.limits import MIB
from tinymq.storage.facts import LogConfig
from tinymq.storage.log import Log
from tinymq.wire.batch import HAS_EXPIRY, PAYLOAD, BatchHeader, read_header
from tinymq.wire.frames import Bytes
from tinymq.wire.produced import check_produced
from tinymq.wire.records import Headers, encode_batch

if TYPE_CHECKING:
    from tinymq.broker.delays.delaying import Delaying
    from tinymq.broker.partition import Partition
    from tinymq.storage.memory import MemoryLog

#: How the log is cut into files: they are let go one by one.
DELAY_CONFIG: Final = LogConfig(segment_bytes=16 * MIB)
#: Time enough for everything that is done now and then.
_SOON_MS: Final = 10_000
#: So many producers are kept with every checkpoint at most.
OFTEN: Final = 100
#: Bytes of the data log after which it is worth noting how far it was looked at.
_NOTE_BYTES: Final = 16 * MIB
#: Seconds that a stop waits for the index; the next start has the rest to do.
_FINISH_SECONDS: Final = 2.0

#: Told what was released of schedules: id, due time, schedule.
Released = Callable[[list[tuple[int, int, str]]], None]
#: A record that is to wait: key, value, headers, due time.
Wanted = tuple[bytes | None, bytes | None, Headers, int]


@define(eq=False)
class _Staged:
    """
    A batch that is on its way to the disk.

    Attributes:
        end: The offset behind it.
        found: What its producer is told.
        answer: Tells it.
        dues: When its messages are due; None for one that was there before.
        size: Its bytes.
    """

    end: int
    found: Appended
    answer: Answer
    dues: list[int] | None
    size: int = field(default=0)


class Delays(Timing):
    """
    What waits in a partition.

    Args:
        host: All that waits.
        partition: The partition.
        log: Its delay log.
        index: The view of what waits.
    """

    _log = Logger()

    def __init__(
        self, host: Delaying, partition: Partition, log: Log | MemoryLog, index: Index
    ) -> None:
        super().__init__(host, partition, log, index)
        self.releasing = Releasing(self)
        self.freeing = Freeing(self)
        self._staged: deque[_Staged] = deque()
        #: How far the data log was looked at, as the delay log says.
        self._noted = 0
        self._producers_kept = -1
        #: Whether messages may be in the log that memory did not take in.
        self._torn = False
        self._hook: Released | None = None
        self._unheard: list[tuple[int, int, str]] = []

    @override
    def _staged_more(self) -> None:
        self.host.broker.committer.staged(self)

    # --- what the committer asks -------------------------------------------------------

    @property
    def synced_policy(self) -> bool:
        """Whether somebody waits for the disk."""
        if not self._always:
            return False
        return bool(self._staged) or any(each.failed for each in self._acts) or self._promised

    @property
    def _promised(self) -> bool:
        return any(each.failed for _, acts in self._written for each in acts)

    def write(self) -> None:
        """Hand everything staged to the operating system."""
        failure = self.failure
        if failure is not None:
            self._fail(failure)
            return
        try:
            self._stage_acts()
            self._delay_log.write()
        except TinyMQError as error:
            self._take_back(error)
        if self._delay_log.offline is not None or not self._always:
            self.advance()

    def _take_back(self, error: TinyMQError) -> None:
        """Refuse what was staged and could not be written."""
        found = error if isinstance(error, WireError) else offline(error)
        written = self._delay_log.written_offset
        if not isinstance(error, StorageFull):
            self._log.error("{delays} cannot be written: {error}", delays=self, error=error)
        self.producers.take_back(written)
        refused: list[_Staged] = []
        while self._staged and self._staged[-1].end > written:
            refused.append(self._staged.pop())
        acts: list[Pending] = []
        while self._written and self._written[-1][0] > written:
            acts[:0] = self._written.pop()[1]
        self._acts = [*acts, *self._acts]
        self._refuse_acts(found)
        self._held_until = self.host.now() + AGAIN_MS
        for each in reversed(refused):
            each.answer(found)
        self.mark()

    def advance(self) -> None:
        """Take in what became safe, and answer; or tell all of the failure."""
        visible, now = self.visible, self.host.now()
        staged, written = self._staged, self._written
        self.partition.moved.add(self.partition)
        while staged and staged[0].end <= visible:
            each = staged.popleft()
            if each.dues is not None:
                self._take_in(each, now)
            each.answer(each.found)
        if visible > self.follower.seen:
            self.follower.saw(visible, now)
        while written and written[0][0] <= visible:
            end, acts = written.popleft()
            for pending in acts:
                if pending.safe is not None:
                    pending.safe(end)
        if self.failure is not None:
            self._fail(self.failure)
        self.mark()

    def _take_in(self, each: _Staged, now: int) -> None:
        assert each.dues is not None, "it is new"
        self._widen(now)
        base = each.found.base_offset
        self.memory.stored += each.size
        if self.memory.put_all(range(base, base + len(each.dues)), each.dues):
            self._far_end = each.end
        self.follower.saw(each.end, now)

    def _fail(self, error: WireError) -> None:
        """Tell everybody who waits."""
        staged, self._staged = self._staged, deque()
        # Some may be in the log all the same: what is left of it is for the next start.
        self._torn = self._torn or any(each.dues is not None for each in staged)
        acts = [each for _, group in self._written for each in group if each.failed is not None]
        self._written = deque(
            (end, [each for each in group if each.failed is None]) for end, group in self._written
        )
        self._refuse_acts(error)
        for one in acts:
            assert one.failed is not None, "they were chosen so"
            one.failed(error)
        for each in staged:
            each.answer(error)

    # --- taking --------------------------------------------------------------------------

    def take(self, batch: Bytes, answer: Answer) -> bool:
        """
        Stage a producer's batch of messages that are not due yet.

        Args:
            batch: Exactly one batch as the producer sent it.
            answer: Called once, later or at once: with the id of the first message as its
                base offset, or with an error.

        Returns:
            Whether something is to be written now.
        """
        try:
            header = check_produced(batch, self.partition.limits)
            refuse_own(header)
            if header.attributes & HAS_EXPIRY:
                check_ttls(batch, header, self.host.now())
            known = self.producers.duplicate_of(header)
            failure = self.partition.failure or self.failure
            if known is not None and known + header.records <= self.visible:
                answer(self._found(known, -1, duplicate=True))
            elif failure is not None:
                answer(failure)
            elif known is not None:
                self._wait_with_first(header, known, answer)
            else:
                self.partition.check_values(batch, header)
                self._check_room(header.size)
                dues = checked_dues(batch, header, self.host.now())
                self._stage(with_dues(batch, header, dues), header, dues, answer)
                return True
        except WireError as error:
            answer(error)
        return False

    def _check_room(self, size: int) -> None:
        """
        Hold a topic in memory to its bound: what waits may not be dropped.

        Raises:
            StorageFull: It is reached.
        """
        most = self.topic.config.memory_bytes
        if not self.stored and self._delay_log.size_bytes + size > most:
            self._make_room()
            if self._delay_log.size_bytes + size > most:
                raise StorageFull(
                    f"what waits in {self.topic.name}/{self.partition.index} fills its memory; "
                    f"memory.bytes is {most}"
                )

    def _make_room(self) -> None:
        """Let go of what came of a topic in memory; nothing waits for a disk there."""
        now = self.host.now()
        for _ in self.follower.catch_up():
            pass
        while self.freeing.turn(now + _SOON_MS):
            pass

    def _found(self, base: int, time: int, *, duplicate: bool) -> Appended:
        return Appended(
            base, time, duplicate=duplicate, volatile=self.partition.volatile, delayed=True
        )

    def _stage(self, payload: bytes, header: BatchHeader, dues: list[int], answer: Answer) -> None:
        base = self._delay_log.end_offset
        now = self._append(payload, header, base)
        self.producers.record(header, base, now)
        found = self._found(base, now, duplicate=False)
        self._staged.append(_Staged(base + header.records, found, answer, dues, header.size))

    def _wait_with_first(self, header: BatchHeader, base: int, answer: Answer) -> None:
        """Answer a duplicate together with the first one, which is on its way to the disk."""
        end = base + header.records
        place = next(
            (at for at, each in enumerate(self._staged) if each.end > end), len(self._staged)
        )
        self._staged.insert(
            place, _Staged(end, self._found(base, -1, duplicate=True), answer, None)
        )

    def copy(self, batch: bytes, answer: Answer) -> None:
        """
        Stage messages that wait already and lie further in front.

        Args:
            batch: They, with their ids.
            answer: Called once, when they are as safe as the topic promises.
        """
        header, base = read_header(batch), self._delay_log.end_offset
        now = self._append(batch[PAYLOAD:], header, base)
        found = self._found(base, now, duplicate=True)
        self._staged.append(_Staged(base + header.records, found, answer, None))
        self._staged_more()

    def put(self, records: Sequence[Wanted], schedule: str | None, done: Done) -> None:
        """
        Let records of the broker itself wait.

        Args:
            records: Key, value, headers and due time of each.
            schedule: The schedule that they come from, as NAME@CREATED, or None.
            done: Told their ids when they are safe, or why there are none.
        """
        count = len(records)

        def answer(found: Appended | WireError) -> None:
            if isinstance(found, WireError):
                done(found)
            else:
                done([*range(found.base_offset, found.base_offset + count)])

        mark = () if schedule is None else ((SCHEDULE_HEADER, schedule.encode()),)
        headers = [(*given, *mark) for _, _, given, _ in records]
        failure = self.partition.failure or self.failure or self.host.refusing(self.partition)
        try:
            if failure is not None:
                raise failure.with_traceback(None)
            batch = encode_batch(
                [value for _, value, _, _ in records],
                keys=[key for key, _, _, _ in records],
                headers=headers,
                dues=[due for _, _, _, due in records],
                producer_id=-1 if schedule is None else SCHEDULES,
            )
            header = read_header(batch)
            self._check_room(header.size)
            dues = checked_dues(batch, header, self.host.now())
            self._stage(with_dues(batch, header, dues), header, dues, answer)
        except WireError as error:
            done(error)
            return
        self._staged_more()

    # --- releasing -------------------------------------------------------------------------

    def went(self, leaving: Leaving) -> None:
        """
        Write down that messages are in the data log, for they are safe there.

        Args:
            leaving: The messages.
        """
        self._noted = max(self._noted, leaving.end)
        for number in leaving.dues:
            self.memory.elsewhere.pop(number, None)
        act = Act(RELEASED, self.host.now(), sorted(leaving.dues), leaving.end)
        self._write(Pending(act))

    def came(self, leaving: Leaving) -> None:
        """
        Tell of schedules whose messages readers see, as safe as the topic promises.

        Args:
            leaving: The messages; a topic that waits for no sync may sync them much later.
        """
        if leaving.schedules:
            self._tell(
                [(number, leaving.dues[number], name) for number, name in leaving.schedules.items()]
            )

    @property
    def hook(self) -> Released | None:
        """Told when scheduled messages came, as safe as the topic promises; some at a start."""
        return self._hook

    @hook.setter
    def hook(self, hook: Released | None) -> None:
        self._hook = hook
        unheard, self._unheard = self._unheard, []
        if unheard:
            self._tell(unheard)

    def _tell(self, released: list[tuple[int, int, str]]) -> None:
        if self._hook is None:
            self._unheard += released
        else:
            self._hook(released)

    def data_moved(self) -> None:
        """Look what of the data log is on the disk by now."""
        self.releasing.data_moved()

    def secure(self) -> None:
        """
        Let the disk know what came, before records go from which a start would see it.

        This may wait for the disk.

        Raises:
            StorageError: It refused.
        """
        if not self.stored or self.failure is not None or self.partition.failure is not None:
            return
        if not self.releasing.idle:
            self.partition.log.sync()
            self.partition.advance()
        if self._acts or self.unsynced:
            self.write()
            self._delay_log.sync()
            self.advance()

    def note(self) -> None:
        """Note what a start would have to read otherwise."""
        log = self.partition.log
        if self.stored and self.failure is None and len(self.producers) <= OFTEN:
            with suppress(TinyMQError, Rebuilt):
                self.keep_producers()
        if self._can_note and log.bytes_between(self._noted, log.synced_offset) > _NOTE_BYTES:
            self._note()

    @property
    def _can_note(self) -> bool:
        idle = self.releasing.idle and self.failure is None and self.stored
        return idle and self.partition.failure is None

    def _note(self) -> None:
        self._noted = self.partition.log.synced_offset
        self._write(Pending(Act(NOTED, self.host.now(), (), self._noted)))

    # --- life --------------------------------------------------------------------------------

    def recover(self, read: Callable[[int], list[int]]) -> None:
        """
        Take over what waited before this start.

        Args:
            read: Reads which messages are in the data log, from an offset on.
        """
        follower, log = self.follower, self._delay_log
        follower.recover()
        self._recall_producers()
        self.memory.count, self.memory.stored = follower.rows, follower.stored
        self._noted = follower.noted
        if self.partition.volatile or self.failure is not None:
            return
        data_end = self.partition.log.written_offset
        if data_end <= self._noted:
            return
        # All of them, for the index may be made anew; but none that a cut took back.
        end = log.end_offset
        came = read(self._noted)
        ids = sorted({number for number in came if number < end})
        there = self.index.find(follower.home, ids) if ids else {}
        if came or log.written_offset:
            # At once, before an id that a cut took back is given again.
            self._noted = data_end
            act = Act(RELEASED, self.host.now(), ids, data_end)
            self._acts.append(Pending(act))
            self._stage_acts()
            self._staged_more()
        self.memory.count -= len(there)
        self._unheard += (
            (row.id, row.due, row.schedule) for row in there.values() if row.schedule is not None
        )

    def _recall_producers(self) -> None:
        log = self._delay_log
        known = self.host.recall_producers(self)
        for header in log.headers(max(known, log.start_offset)):
            if header.base_offset >= known:
                self.producers.record(header, header.base_offset, header.max_timestamp)
        self._producers_kept = known

    def finish(self) -> None:
        """Leave everything so that the next start has nothing to do; this waits for the disk."""
        self.stop()
        log = self._delay_log
        if not isinstance(log, Log) or log.offline is not None:
            return
        try:
            self.releasing.data_moved()
            if self.releasing.idle and self.partition.log.synced_offset > self._noted:
                self._noted = self.partition.log.synced_offset
                self._acts.append(Pending(Act(NOTED, self.host.now(), (), self._noted)))
            self._stage_acts()
            log.write()
            log.sync()
            if not self._torn:
                self.follower.saw(log.synced_offset, self.host.now())
            seconds = self.host.broker.scheduler.seconds
            until = seconds() + _FINISH_SECONDS
            for _ in self.follower.catch_up():
                if seconds() > until:
                    break
            self.keep_producers()
        except (OSError, TinyMQError, Rebuilt) as error:
            # The next start reads more.
            self._log.warn("{delays}: {error}", delays=self, error=error)

    def keep_producers(self, *, durable: bool = False) -> None:
        """
        Keep what is known of producers, so that a start need not look for it.

        Args:
            durable: Whether the batches go from which it could be read again.
        """
        if durable or self._producers_kept != self.follower.upto:
            self._producers_kept = self.follower.upto
            self.host.keep_producers(self, durable=durable)

    def close(self, reason: WireError) -> None:
        """
        Let go of everybody.

        Args:
            reason: What they are told.
        """
        self.stop()
        self._fail(reason)
