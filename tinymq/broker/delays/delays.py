"""
The messages of one partition that are not due yet.

To the committer it is like a partition: batches are staged in the delay log, written and
synced in its groups, and answered when they are safe; only then memory takes them in. What
becomes of them is gathered as acts and written in the same groups.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from attrs import define, field
from twisted.logger import Logger
from typing_extensions import override

from tinymq.broker.delays.acts import CANCELLED, MOVED, NOTED, RELEASED, Act, write
from tinymq.broker.delays.following import Follower
from tinymq.broker.delays.freeing import Freeing
from tinymq.broker.delays.index import Index, Rebuilt, Row
from tinymq.broker.delays.releasing import Leaving, Releasing
from tinymq.broker.delays.shelf import SCHEDULE_HEADER, StoredBatch
from tinymq.broker.delays.taking import checked_dues, with_dues
from tinymq.broker.delays.waiting import Waiting
from tinymq.broker.mortal import check_ttls
from tinymq.broker.partition import Answer, Appended
from tinymq.broker.producers import SCHEDULES, ProducerTable, refuse_own
from tinymq.broker.sidelog import SideLog
from tinymq.errors import PartitionOffline, StorageFull, TinyMQError, WireError
from tinymq.limits import MIB
from tinymq.storage.facts import LogConfig
from tinymq.storage.log import Log
from tinymq.wire.batch import (
    HAS_EXPIRY,
    PAYLOAD,
    BatchHeader,
    check_produced,
    checked_header,
    read_header,
    stored,
)
from tinymq.wire.frames import Bytes
from tinymq.wire.records import Headers, Record, encode_batch

if TYPE_CHECKING:
    from tinymq.broker.delays.delaying import Delaying
    from tinymq.broker.partition import Partition
    from tinymq.broker.ports import Timer
    from tinymq.storage.memory import MemoryLog

#: How the log is cut into files: they are let go one by one.
DELAY_CONFIG: Final = LogConfig(segment_bytes=16 * MIB)
#: What comes within so many milliseconds is in memory,
HORIZON_MS: Final = 120_000
#: but no longer than so many milliseconds when there are so many.
_NARROW_MS: Final = 5000
_MANY: Final = 100_000
#: Rows that are read from the index before others have their turn.
_LOAD: Final = 500
#: Slices of work in one turn, and seconds of them, before others have theirs.
_SLICES: Final = 4
_TURN_SECONDS: Final = 0.004
#: Entries of the wheel that are touched in a slice.
_RIPEN: Final = 2000
#: Milliseconds before a full disk is tried again.
_AGAIN_MS: Final = 500
#: Time enough for everything that is done now and then.
_SOON_MS: Final = 10_000
#: So many producers are kept with every checkpoint at most.
OFTEN: Final = 100
#: Bytes of the data log after which it is worth noting how far it was looked at.
_NOTE_BYTES: Final = 16 * MIB

#: Told the ids with which it was done, or why it was not.
Done = Callable[["list[int] | WireError"], None]
#: Told what was released of schedules: id, due time, schedule.
Released = Callable[[list[tuple[int, int, str]]], None]
#: A record that is to wait: key, value, headers, due time.
Wanted = tuple[bytes | None, bytes | None, Headers, int]


@define(eq=False)
class _Pending:
    """
    An act that is on its way to the disk.

    Attributes:
        act: The act.
        safe: Called when it is there.
        failed: Called if it could not be written; without it, it is tried again.
    """

    act: Act
    safe: Callable[[int], None] | None = field(default=None)
    failed: Callable[[WireError], None] | None = field(default=None)


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


class Delays(SideLog):
    """
    What waits in a partition.

    Args:
        host: All that waits.
        partition: The partition.
        log: Its delay log.
        index: The view of what waits.

    Attributes:
        memory: What is in memory of it.
        follower: Lets the index follow the log.
        releasing: Appends what is due.
    """

    _log = Logger()

    def __init__(
        self, host: Delaying, partition: Partition, log: Log | MemoryLog, index: Index
    ) -> None:
        super().__init__(partition, log if isinstance(log, Log) else None)
        self.host = host
        self._delay_log = log
        self._index = index
        self.memory = Waiting(host.now())
        self.follower = Follower(
            f"{partition.topic.name}/{partition.index}",
            log,
            index,
            partition.key,
            self.memory,
            host.shelf,
        )
        self.releasing = Releasing(self)
        self.freeing = Freeing(self)
        self.producers = ProducerTable(partition.limits.producer_window)
        self._staged: deque[_Staged] = deque()
        self._acts: list[_Pending] = []
        self._written: deque[tuple[int, list[_Pending]]] = deque()
        #: Up to here the index must be before memory may reach further.
        self._far_end = 0
        #: How far the data log was looked at, as the delay log says.
        self._noted = 0
        self._held_until = 0
        self._timer: Timer | None = None
        self._timer_at = 0
        self._stopped = False
        self._producers_kept = -1
        self._hook: Released | None = None
        self._unheard: list[tuple[int, int, str]] = []

    @override
    def __repr__(self) -> str:
        return f"<Delays of {self.partition.topic.name}/{self.partition.index}>"

    # --- what the committer asks -------------------------------------------------------

    @property
    @override
    def log(self) -> Log | MemoryLog:
        """The delay log."""
        return self._delay_log

    @property
    def _always(self) -> bool:
        return self.topic.config.sync == "always" and self.stored

    @property
    def synced_policy(self) -> bool:
        """Whether somebody waits for the disk."""
        if not self._always:
            return False
        return bool(self._staged) or any(each.failed for each in self._acts) or self._promised

    @property
    def _promised(self) -> bool:
        return any(each.failed for _, acts in self._written for each in acts)

    @property
    def visible(self) -> int:
        """Offset behind the last record of the log that is as safe as the topic promises."""
        log = self._delay_log
        return log.synced_offset if self._always else log.written_offset

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

    def _stage_acts(self) -> None:
        if not self._acts:
            return
        log, acts = self._delay_log, self._acts
        batch = encode_batch([write(each.act) for each in acts])
        base = log.end_offset
        self._append(batch[PAYLOAD:], checked_header(batch), base)
        self._acts = []
        self._written.append((log.end_offset, acts))
        ghosts, indexed = self.memory.ghosts, self.follower.upto
        for offset, each in enumerate(acts, base):
            ids = each.act.ids
            if each.act.kind == RELEASED:
                # Of those that the index has not it will not hear.
                for number in ids:
                    if number >= indexed:
                        ghosts.pop(number, None)
                ids = [number for number in ids if number < indexed]
            if each.act.kind != NOTED:
                ghosts.update(dict.fromkeys(ids, offset))

    def _append(self, payload: bytes, header: BatchHeader, base: int) -> int:
        log = self._delay_log
        now = max(self.host.now(), log.max_timestamp)
        pieces = stored(payload, header, base, self.partition.epoch, now)
        log.append(pieces, base, base + header.records - 1, now)
        return now

    def _take_back(self, error: TinyMQError) -> None:
        """Refuse what was staged and could not be written."""
        found = error if isinstance(error, WireError) else _offline(error)
        written = self._delay_log.written_offset
        if not isinstance(error, StorageFull):
            self._log.error("{delays} cannot be written: {error}", delays=self, error=error)
        self.producers.take_back(written)
        refused: list[_Staged] = []
        while self._staged and self._staged[-1].end > written:
            refused.append(self._staged.pop())
        acts: list[_Pending] = []
        while self._written and self._written[-1][0] > written:
            acts[:0] = self._written.pop()[1]
        self._acts = [*acts, *self._acts]
        self._refuse_acts(found)
        self._held_until = self.host.now() + _AGAIN_MS
        for each in reversed(refused):
            each.answer(found)
        self.mark()

    def _refuse_acts(self, error: WireError) -> None:
        """Tell those who wait for acts; what nobody waits for is tried again."""
        acts, self._acts = self._acts, []
        for each in acts:
            if each.failed is None:
                self._acts.append(each)
        for each in acts:
            if each.failed is not None:
                each.failed(error)

    def advance(self) -> None:
        """Take in what became safe, and answer; or tell all of the failure."""
        visible, now = self.visible, self.host.now()
        staged, written = self._staged, self._written
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
        self.host.broker.committer.staged(self)

    @property
    def stored_bytes(self) -> int:
        """About how many bytes of the log wait."""
        return max(0, self.memory.stored)

    def lying_in(self, low: int, high: int, limit: int) -> list[Row]:
        """
        Find what waits in a part of the log; the index must have followed it.

        Args:
            low: Where the part begins.
            high: Where it ends.
            limit: Most rows.
        """
        return self._index.lying_in(self.follower.home, low, high, limit)

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
        self.host.broker.committer.staged(self)

    # --- what becomes of messages -----------------------------------------------------------

    def cancel(self, ids: Sequence[int], done: Done) -> None:
        """
        Let messages never come.

        Args:
            ids: Which ones; those that do not wait are passed over.
            done: Told with which it was done, when that is as safe as the topic promises.
        """
        self._act(CANCELLED, ids, 0, done)

    def move(self, ids: Sequence[int], due: int, done: Done) -> None:
        """
        Let messages come at another time.

        Args:
            ids: Which ones; those that do not wait are passed over.
            due: When, milliseconds since the epoch.
            done: Told with which it was done, when that is as safe as the topic promises.
        """
        self._act(MOVED, ids, due, done)

    def _act(self, kind: int, ids: Sequence[int], due: int, done: Done) -> None:
        failure = self.failure
        try:
            found = {} if failure is not None else self._pick(ids)
        except TinyMQError as error:
            failure, found = error if isinstance(error, WireError) else _offline(error), {}
        if failure is not None or not found:
            done([] if failure is None else failure)
            return
        waiting = self.memory
        held = {number: waiting.take(number) is not None for number in found}
        waiting.ghosts.update(dict.fromkeys(found, -1))
        stored = waiting.stored * len(found) // max(1, waiting.count)
        waiting.count -= len(found)
        waiting.stored -= stored

        def safe(end: int) -> None:
            if kind == MOVED:
                waiting.count += len(found)
                waiting.stored += stored
                self._place(found, due, end)
            done([*found])

        def failed(error: WireError) -> None:
            waiting.count += len(found)
            waiting.stored += stored
            for number, before in found.items():
                waiting.ghosts.pop(number, None)
                if held[number] or (before, number) <= waiting.reach:
                    waiting.put(number, before)
            done(error)

        self._write(_Pending(Act(kind, self.host.now(), sorted(found), due), safe, failed))

    def _place(self, ids: dict[int, int], due: int, end: int) -> None:
        """Let messages that were moved wait in their new place."""
        for number in ids:
            if (due, number) <= self.memory.reach:
                self.memory.put(number, due)
            else:
                # The index has it there once it has followed so far.
                self._far_end = max(self._far_end, end)

    def _write(self, pending: _Pending) -> None:
        self._acts.append(pending)
        self.host.broker.committer.staged(self)

    def _pick(self, ids: Sequence[int]) -> dict[int, int]:
        """Find those messages that wait, and when they are due."""
        waiting = self.memory
        found: dict[int, int] = {}
        others: list[int] = []
        for number in dict.fromkeys(ids):
            due = waiting.due(number)
            if due is not None:
                found[number] = due
            elif number not in waiting.ghosts:
                others.append(number)
        if others:
            for number, row in self._rows_of(others).items():
                if not waiting.knows(number):
                    found[number] = row.due
                    waiting.lies(number, row.offset)
        return found

    def _rows_of(self, ids: Sequence[int]) -> dict[int, Row]:
        for _ in self.follower.catch_up():
            pass
        while True:
            try:
                return self._index.find(self.follower.home, ids)
            except Rebuilt:
                for _ in self.follower.catch_up():
                    pass

    # --- releasing ----------------------------------------------------------------------------

    @property
    def refusing(self) -> WireError | None:
        """Why nothing can be appended to the data log now, or None."""
        return self.partition.failure or self.host.refusing(self.partition)

    def wall(self) -> int:
        """The wall clock, for append times."""
        return self.host.broker.wall()

    def batch(self, offset: int) -> StoredBatch:
        """
        Read the batch that a message lies in.

        Args:
            offset: Of the message in the delay log.

        Raises:
            CorruptBatch: It is not there.
        """
        return self.host.shelf.batch(self.follower.home, self._delay_log, offset)

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
        self._write(_Pending(act))
        if leaving.schedules:
            self._tell(
                [(number, leaving.dues[number], name) for number, name in leaving.schedules.items()]
            )

    def lose(self, ids: list[int]) -> None:
        """
        Write down that messages cannot be read any more.

        Args:
            ids: Which ones.
        """
        self.memory.count -= len(ids)
        self._write(_Pending(Act(CANCELLED, self.host.now(), ids)))

    @property
    def hook(self) -> Released | None:
        """Told when the release of scheduled messages is safe, whenever that was found."""
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
        self._write(_Pending(Act(NOTED, self.host.now(), (), self._noted)))

    # --- time ---------------------------------------------------------------------------------

    def mark(self) -> None:
        """Let it have its turn."""
        self._arm_at(0)

    def _turn(self) -> None:
        self._timer = None
        if self.closed is not None or self._stopped:
            return
        scheduler = self.host.broker.scheduler
        until = scheduler.seconds() + _TURN_SECONDS
        more = True
        for _ in range(_SLICES):
            more = self._slice(self.host.now())
            if not more or scheduler.seconds() >= until:
                break
        if more:
            self.mark()
        else:
            self._arm(self.host.now())

    def _slice(self, now: int) -> bool:
        """Do a piece of all there is to do, and say whether there is more."""
        self.memory.ripen(now, _RIPEN)
        more = self.releasing.turn(now)
        if now >= self._held_until:
            try:
                more = self._load(now) or more
                more = self.follower.follow(now) or more
                more = self.freeing.turn(now) or more
            except Rebuilt:
                more = True
            except (OSError, TinyMQError) as error:
                self._held_until = now + _AGAIN_MS
                self._log.warn("{delays}: {error}", delays=self, error=error)
            if self._acts:
                self.host.broker.committer.staged(self)
        soon = self.memory.wheel.next_ms()
        return more or (soon is not None and soon <= now)

    def _arm(self, now: int) -> None:
        waiting = self.memory
        times = [waiting.wheel.next_ms()]
        follow = self.follower.next_time()
        if follow is not None:
            times.append(max(follow, self._held_until))
        if waiting.ready and self.releasing.may_go_on:
            times.append(max(now, self.releasing.held_until))
        if self.follower.rows or self._far_end > self.follower.upto:
            times.append(max(waiting.reach[0] - self._margin[0], self._held_until))
        if self._acts:
            times.append(self._held_until)
        found = [time for time in times if time is not None]
        if found:
            # There was nothing to do just now: no turn that comes at once will find more.
            self._arm_at(max(min(found), now + 1))

    def _arm_at(self, due: int) -> None:
        """See to it that the next turn is at a time, or before; 0 is as soon as possible."""
        if self._stopped or (self._timer is not None and self._timer_at <= due):
            return
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer_at = due
        delay = max(0, due - self.host.now()) / 1000 if due else 0
        self._timer = self.host.broker.scheduler.callLater(delay, self._turn)

    @property
    def _margin(self) -> tuple[int, int]:
        """When the reach moves, before it is needed, and how far: less if there is much."""
        many = len(self.memory.wheel) + len(self.memory.ready) > _MANY
        far = _NARROW_MS if many else HORIZON_MS
        return far // 2, far

    def _widen(self, now: int) -> bool:
        """Let memory reach further where nothing lies beyond; say whether it reaches."""
        waiting = self.memory
        if waiting.reach[0] > now + self._margin[0]:
            return True
        if self.follower.rows or self._far_end > self.follower.upto:
            return False
        waiting.reach = now + HORIZON_MS, -1
        self.follower.reached()
        return True

    def _load(self, now: int) -> bool:
        """Take some of what comes soon from the index; say whether there is more."""
        waiting = self.memory
        if self._widen(now):
            return False
        if self._far_end > self.follower.upto:
            return self.follower.step()
        target = now + self._margin[1]
        rows = self._index.rows(self.follower.home, waiting.reach, None, target, _LOAD)
        for row in rows:
            if waiting.knows(row.id):
                continue
            waiting.put(row.id, row.due)
            waiting.lies(row.id, row.offset)
        more = len(rows) == _LOAD
        waiting.reach = (rows[-1].due, rows[-1].id) if more else (target, -1)
        self.follower.reached()
        return more

    # --- looking ------------------------------------------------------------------------------

    def catch_up(self) -> Iterator[None]:
        """Bring the index up to the log, step by step; ask nothing else before."""
        return self.follower.catch_up()

    def rows(
        self, after: tuple[int, int] | None, since: int | None, until: int | None, limit: int
    ) -> list[Row]:
        """
        Return messages that wait, in order of their time; the index must have caught up.

        Args:
            after: Only those behind this due time and id.
            since: Only those that are due then, or later.
            until: Only those that are due before.
            limit: Most rows.
        """
        ghosts, found = self.memory.ghosts, list[Row]()
        while len(found) < limit:
            try:
                rows = self._index.rows(self.follower.home, after, since, until, limit)
            except Rebuilt:
                self._rows_of(())
                continue
            found += (row for row in rows if row.id not in ghosts)
            if len(rows) < limit:
                break
            after = rows[-1].due, rows[-1].id
        return found[:limit]

    def count(self, since: int | None, until: int | None) -> int:
        """
        Count messages, as `rows` finds them.

        Args:
            since: Only those that are due then, or later.
            until: Only those that are due before.
        """
        try:
            found = self._index.count(self.follower.home, since, until)
            ghosts = self._index.find(self.follower.home, [*self.memory.ghosts])
        except Rebuilt:
            self._rows_of(())
            return self.count(since, until)
        low, high = since or 0, until
        gone = (row for row in ghosts.values() if row.due >= low)
        return found - sum(high is None or row.due < high for row in gone)

    def next_due(self) -> int | None:
        """Say when the first message comes; the index must have caught up."""
        found = self.rows(None, None, None, 1)
        return found[0].due if found else None

    def find(self, ids: Sequence[int]) -> dict[int, Row]:
        """
        Find messages that wait.

        Args:
            ids: Which ones.
        """
        ghosts = self.memory.ghosts
        return {each: row for each, row in self._rows_of(ids).items() if each not in ghosts}

    def scheduled(self, schedule: str) -> list[tuple[int, int]]:
        """
        Find what waits for a schedule.

        Args:
            schedule: Which one, as NAME@CREATED.

        Returns:
            Ids and due times.
        """
        self._rows_of(())
        try:
            rows = self._index.of_schedule(self.follower.home, schedule)
        except Rebuilt:
            return self.scheduled(schedule)
        return [(row.id, row.due) for row in rows if row.id not in self.memory.ghosts]

    def record(self, row: Row) -> Record:
        """
        Read a message with its value.

        Args:
            row: From the index.
        """
        batch = self.batch(row.offset)
        place = row.offset - batch.base
        return Record(
            row.id,
            row.taken,
            batch.keys[place],
            batch.values[place],
            batch.headers[place],
            batch.times[place],
        )

    # --- life -----------------------------------------------------------------------------------

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
        ids = sorted({number for number in read(self._noted) if number < end})
        there = self._index.find(follower.home, ids) if ids else {}
        if log.written_offset:
            # At once, before an id that a cut took back is given again.
            self._noted = data_end
            act = Act(RELEASED, self.host.now(), ids, data_end)
            self._acts.append(_Pending(act))
            self._stage_acts()
            self.host.broker.committer.staged(self)
        self.memory.count -= len(there)
        self._unheard += (
            (row.id, row.due, row.schedule) for row in there.values() if row.schedule is not None
        )

    def rebuilt(self) -> None:
        """Let the index, which was begun anew, follow the log from its start."""
        self.follower.rebuilt()
        # Until it knows everything again, memory would find nothing further on.
        self._far_end = max(self._far_end, self.follower.seen)
        self.mark()

    def _recall_producers(self) -> None:
        known, packed = self._index.producers(self.follower.home)
        self.producers = self.host.producers(self.partition, packed)
        log = self._delay_log
        if known > log.written_offset:
            known, self.producers = 0, self.host.producers(self.partition, None)
        for header in log.headers(max(known, log.start_offset)):
            if header.base_offset >= known:
                self.producers.record(header, header.base_offset, header.max_timestamp)
        self._producers_kept = known

    def stop(self) -> None:
        """Do nothing by the clock any more."""
        self._stopped = True
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None

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
                self._acts.append(_Pending(Act(NOTED, self.host.now(), (), self._noted)))
            self._stage_acts()
            log.write()
            log.sync()
            self.follower.saw(log.synced_offset, self.host.now())
            for _ in self.follower.catch_up():
                pass
            self.keep_producers()
        except (OSError, TinyMQError, Rebuilt) as error:
            # The next start reads more.
            self._log.warn("{delays}: {error}", delays=self, error=error)

    def keep_producers(self) -> None:
        """Keep what is known of producers, so that a start need not look for it."""
        if self._producers_kept != self.follower.upto:
            self._producers_kept = self.follower.upto
            self.host.keep_producers(self)

    def close(self, reason: WireError) -> None:
        """
        Let go of everybody.

        Args:
            reason: What they are told.
        """
        self.stop()
        self._fail(reason)


def _offline(error: TinyMQError) -> WireError:
    return PartitionOffline(str(error))
