"""
Keeps one message of each schedule waiting, on the broker that leads its partition.

A schedule is looked at whenever something happened to it, and then one step is taken
towards what should be, so that it does not matter where a crash came between::

    what waits was meant before, or must not wait    -> take it back
    the message that was meant came                  -> note it, and what was missed
    none is meant                                    -> mean the next one, write that down
    what is meant does not wait                      -> put it
    it waits                                         -> nothing

What is *meant* is a time and the lowest delay id that its message can have. It is written
down before the message is put, so that what was put just before a crash is not put twice:
then the delay log is asked whether a message with such an id was put.

A message that is due at once is never replaced: which of the two came would not be known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from attrs import define, field, frozen
from twisted.logger import Logger

from tinymq.broker.delays.shelf import SCHEDULE_HEADER
from tinymq.broker.ports import Timer
from tinymq.broker.schedules.book import Book, Entry, Place
from tinymq.broker.schedules.ports import Delays, Due
from tinymq.broker.schedules.store import DelayStore
from tinymq.cron import GRACE_MS, Cron, plan
from tinymq.errors import ShuttingDown, TinyMQError, WireError
from tinymq.wire.records import Headers, encode_batch

if TYPE_CHECKING:
    from tinymq.broker.broker import Broker
    from tinymq.broker.partition import Answer, Appended, Partition
    from tinymq.meta.registry import Schedule, Topic

#: Headers of every message of a schedule: its name, and the time that it stands for.
SCHEDULE: Final = SCHEDULE_HEADER
SCHEDULED: Final = "tinymq-scheduled"

#: Seconds before what failed is tried again, the first time and at most.
_RETRY_SECONDS: Final = 1.0
_MOST_RETRY_SECONDS: Final = 60.0
#: Seconds between two looks at whether people took a waiting message away.
_LOOK_SECONDS: Final = 5.0
#: Schedules that have such a look at a time.
_LOOKS: Final = 200
#: What comes so soon is on its way: it may be too late to take it back.
_SOON_MS: Final = 2000
#: A last run that lies so far ahead comes of a clock that was wrong.
_AHEAD_MS: Final = 3_600_000


@frozen
class Standing:
    """
    How a schedule is doing.

    Attributes:
        next_ms: When the next message comes; None if none will.
        last_ms: When the last message came; None if none did.
        runs: Messages so far.
        missed: Times that did not come.
        error: Why it does not run; empty if it does.
    """

    next_ms: int | None
    last_ms: int | None
    runs: int
    missed: int
    error: str


@define(eq=False)
class Line:
    """
    A schedule on its way from one message to the next.

    Attributes:
        place: Where it is.
        partition: Its partition.
        entry: What is remembered of it.
        schedule: As the MetaServer has it; None if it is gone.
        form: What it says, shortly.
        noted: Whether what is meant is written down.
        unsure: Whether it may have been put without a word of it here.
        busy: Whether a step is under way.
        fresh: Whether it was not looked at since the start: there may be runs to catch up.
        error: What is wrong; empty if nothing is.
        failures: How often in a row that was so.
        timer: Tries again.
    """

    place: Place
    partition: Partition
    entry: Entry
    schedule: Schedule | None = None
    form: str = ""
    noted: bool = True
    unsure: bool = True
    busy: bool = False
    fresh: bool = True
    error: str = ""
    failures: int = 0
    timer: Timer | None = field(default=None)


class Scheduling:
    """
    The schedules of a broker.

    Args:
        broker: The broker.

    Attributes:
        delays: Finds the waiting messages of a partition.
    """

    _log = Logger()

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        folder = broker.store.folder
        self._book = Book(folder.disk, folder.schedules, broker.scheduler, broker.background)
        self.delays: Callable[[Partition], Delays] = self._opened
        self._lines: dict[Place, Line] = {}
        self._timer: Timer | None = None
        self._looked = 0
        self._closed = False
        self._opened_all = False
        #: Told when the book is written, at a start: before anything is released.
        self._noting: list[Callable[[Exception | None], None]] | None = None

    # --- following ------------------------------------------------------------------

    def open(self) -> None:
        """Read what is remembered, and go on with it; nothing was released yet."""
        self._book.load()
        self._opened_all = True
        self._noting = []
        for topic in self._broker.meta.registry.topics.values():
            self.follow(topic)
        noting, self._noting = self._noting, None
        error = self._book.save_now() if noting else None
        for noted in noting:
            noted(error)

    def _opened(self, partition: Partition) -> Delays:
        found = self._broker.delaying.opened(partition)
        if found.hook is None:
            found.hook = partial(self.released, partition)
        return DelayStore(found)

    def follow(self, topic: Topic) -> None:
        """
        Have the schedules of a topic as the MetaServer has them.

        Args:
            topic: As it is now.
        """
        if not self._opened_all:  # what waits is not read yet
            return
        known = {each.mark: each for each in self._broker.meta.registry.schedules_of(topic.id)}
        for partition in self._broker.partitions_of(topic):
            index = partition.index
            here = {mark for mark, each in known.items() if each.partition == index}
            for mark in sorted(here.union(self._book.marks(topic.id, index))):
                schedule = known[mark] if mark in here else None
                self._follow(self._line((topic.id, index, mark), partition), schedule)
        self._watch()

    def _follow(self, line: Line, schedule: Schedule | None) -> None:
        if line.fresh or line.schedule != schedule:
            line.schedule = schedule
            line.form = "" if schedule is None else _form(schedule)
            self._turn(line)

    def _line(self, place: Place, partition: Partition) -> Line:
        line = self._lines.get(place)
        if line is None:
            entry = self._book.find(place)
            if entry is None:
                entry = self._book.add(place, volatile=partition.volatile)
                if partition.volatile or not self._book.whole:
                    entry.done_ms = self._now()  # nothing is known of what ran before
            line = self._lines[place] = Line(place, partition, entry)
        return line

    def drop(self, partition: Partition) -> None:
        """
        Let go of the schedules of a partition that is no longer here.

        Args:
            partition: Its topic was deleted.
        """
        topic_id, index = partition.key
        for place in [each for each in self._lines if each[:2] == (topic_id, index)]:
            self._end(self._lines[place])
        for mark in self._book.marks(topic_id, index):
            self._book.forget((topic_id, index, mark))

    def _end(self, line: Line) -> None:
        self._lines.pop(line.place, None)
        self._book.forget(line.place)
        if line.timer is not None and line.timer.active():
            line.timer.cancel()

    def close(self) -> None:
        """Do nothing more, and write what was not written yet."""
        self._closed = True
        timers = [self._timer, *(line.timer for line in self._lines.values())]
        for timer in timers:
            if timer is not None and timer.active():
                timer.cancel()
        self._timer = None
        self._book.close()

    def _watch(self) -> None:
        """Look at some schedules now and then: people may have taken a message away."""
        if self._lines and self._timer is None and not self._closed:
            self._timer = self._broker.scheduler.callLater(_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._timer = None
        lines = list(self._lines.values())
        first = self._looked % len(lines) if lines else 0
        self._looked = first + _LOOKS
        for line in lines[first : first + _LOOKS]:
            self._turn(line)
        self._watch()

    # --- what happens ----------------------------------------------------------------

    def released(self, partition: Partition, ids: Sequence[tuple[int, int, str]]) -> None:
        """
        Hear that messages came.

        Args:
            partition: Where.
            ids: The id, the due time and the schedule's mark of each.
        """
        for delay_id, due, mark in ids:
            line = self._lines.get((*partition.key, mark))
            if line is None:
                continue
            entry = line.entry
            if delay_id >= entry.floor or due > entry.done_ms:
                self._count(entry)  # else a start found once more what was told
            if delay_id >= entry.floor and entry.due_ms is not None:
                self._dealt(entry)
            # Else it was on its way when it was taken back.
            if line.timer is not None and line.timer.active():
                line.timer.cancel()
            self._turn(line)

    def _count(self, entry: Entry) -> None:
        entry.runs += 1
        entry.last_ms = self._now()
        self._book.touch()

    def _dealt(self, entry: Entry) -> None:
        """Note that nothing more is to come for the time that was meant."""
        entry.done_ms = max(entry.done_ms, entry.due_ms or 0)
        entry.due_ms = entry.id = None

    def run(self, schedule: Schedule, done: Answer) -> None:
        """
        Append the message of a schedule, now and besides its times.

        Args:
            schedule: The schedule.
            done: Called once, as `Broker.produce` does.
        """
        place = (schedule.topic_id, schedule.partition, schedule.mark)

        def answer(result: Appended | WireError) -> None:
            line = self._lines.get(place)
            if line is not None and not isinstance(result, WireError):
                self._count(line.entry)
            done(result)

        headers = (*_headers(schedule, self._now()), (SCHEDULE, schedule.name.encode()))
        batch = encode_batch([schedule.value], keys=[schedule.key], headers=[headers])
        self._broker.produce(schedule.topic_id, schedule.partition, batch, answer)

    def standing(self, schedule: Schedule) -> Standing | None:
        """
        Say how a schedule is doing.

        Args:
            schedule: The schedule.

        Returns:
            None if its partition is not here.
        """
        line = self._lines.get((schedule.topic_id, schedule.partition, schedule.mark))
        if line is None:
            return None
        entry, error = line.entry, line.error
        due = None if schedule.paused else self._waits(line)
        if not error and not schedule.paused and entry.done_ms > self._now() + _AHEAD_MS:
            error = "it ran at a time that is still to come: the clock was put back"
        return Standing(due, entry.last_ms, entry.runs, entry.missed, error)

    def _waits(self, line: Line) -> int | None:
        """When the message comes that waits: people may have moved it."""
        try:
            waiting = self.delays(line.partition).waiting(line.place[2])
        except (OSError, TinyMQError):
            return None
        return next((due for each, due in waiting if each >= line.entry.floor), line.entry.due_ms)

    # --- steps -----------------------------------------------------------------------

    def _turn(self, line: Line) -> None:
        """Take the next step of a schedule, if none is under way."""
        if self._rests(line):
            return
        try:
            # Opening tells what a start found to have come, and that takes steps of its own.
            delays = self.delays(line.partition)
            if not self._rests(line):
                self._step(line, delays)
        except (OSError, TinyMQError, ValueError) as error:
            self._failed(line, error)

    def _rests(self, line: Line) -> bool:
        """Whether a step is under way, or nothing is to be done now."""
        waits = line.timer is not None and line.timer.active()
        return line.busy or waits or self._closed or line.place not in self._lines

    def _step(self, line: Line, delays: Delays) -> None:
        entry, schedule = line.entry, line.schedule
        waiting = delays.waiting(line.place[2])
        if line.fresh and entry.floor > delays.next_id:
            # A power cut took the end of the log, and its ids are given again.
            entry.floor, entry.id, line.noted = delays.next_id, None, False
        if schedule is None or schedule.paused:
            self._rest(line, delays, waiting)
            return
        if not entry.form and waiting:
            self._adopt(line, waiting)
        meant = [each for each in waiting if entry.due_ms is not None and each[0] >= entry.floor]
        others = [each for each in waiting if each not in meant[:1]]
        if others:
            self._withdraw(line, delays, others)
        elif meant:
            self._meet(line, schedule, delays, meant[0])
        elif entry.due_ms is not None and self._is_put(line, delays):
            self._gone(line)
            self._mean(line, schedule, delays)
        elif entry.due_ms is None or entry.form != line.form:
            self._mean(line, schedule, delays)
        elif not line.noted:
            self._note(line)
        else:
            self._put(line, schedule, delays)

    def _rest(self, line: Line, delays: Delays, waiting: Sequence[tuple[int, int]]) -> None:
        """Let nothing wait; and remember nothing of a schedule that is gone."""
        if waiting:
            self._withdraw(line, delays, waiting)
        elif line.schedule is None:
            self._end(line)
        else:
            line.entry.due_ms = line.entry.id = None
            line.fresh, line.error = False, ""
            self._book.touch()

    def _adopt(self, line: Line, waiting: Sequence[tuple[int, int]]) -> None:
        """Take a waiting message for what was meant, where the book was lost."""
        entry = line.entry
        entry.floor, entry.due_ms = waiting[0]
        entry.form, entry.done_ms = line.form, entry.due_ms - 1

    def _meet(self, line: Line, schedule: Schedule, delays: Delays, meant: tuple[int, int]) -> None:
        """Let a message wait, unless it is not what is wanted any more."""
        entry, now = line.entry, self._now()
        delay_id, due = meant
        late = line.fresh and due == entry.due_ms and due <= now - GRACE_MS
        if late and self._plan(entry, schedule)[0] != entry.due_ms:
            self._mean(line, schedule, delays)
        elif entry.form == line.form:
            entry.id, line.fresh = delay_id, False
        elif line.fresh or due > now + _SOON_MS:
            self._mean(line, schedule, delays)
        else:  # it is about to come, and what comes cannot be taken back
            self._later(line, _RETRY_SECONDS)

    def _gone(self, line: Line) -> None:
        """Note that what was meant waits no more, though nobody said here that it came."""
        entry = line.entry
        assert entry.due_ms is not None
        same, over = entry.form == line.form, entry.due_ms <= self._now()
        if line.fresh and same and over:
            self._count(entry)  # it came just before the broker died
        if same or over:
            self._dealt(entry)

    def _is_put(self, line: Line, delays: Delays) -> bool:
        if line.unsure:  # the log knows better: a power cut may have taken what it was told of
            return delays.put_since(line.place[2], line.entry.floor)
        return line.entry.id is not None

    def _plan(self, entry: Entry, schedule: Schedule) -> tuple[int | None, int]:
        cron = Cron(schedule.cron, schedule.zone)
        done = max(entry.done_ms, schedule.since_ms)
        found = plan(cron, done, self._now(), schedule.catch_up)
        return found.due, found.missed

    def _withdraw(self, line: Line, delays: Delays, waiting: Sequence[tuple[int, int]]) -> None:
        """Take messages back."""
        ids = [each for each, _ in waiting]
        line.busy = True

        def done(found: list[int] | WireError) -> None:
            if not isinstance(found, WireError) and len(found) < len(ids):
                line.busy = False  # some are on their way: it will be told when they came
                self._later(line, _RETRY_SECONDS)
            else:
                self._stepped(line, found if isinstance(found, WireError) else None)

        delays.cancel(ids, done)

    def _mean(self, line: Line, schedule: Schedule, delays: Delays) -> None:
        """Choose the next time, and write it down before anything is put."""
        entry = line.entry
        due, missed = self._plan(entry, schedule)
        line.fresh = line.unsure = False
        entry.form, entry.floor, entry.id, entry.due_ms = line.form, delays.next_id, None, due
        if missed:
            # What was left out must not be counted again after the next start.
            entry.missed += missed
            entry.done_ms = max(entry.done_ms, min(self._now(), (due or self._now()) - 1))
        if due is None:
            line.error = "it never comes again"
            return
        self._note(line)

    def _note(self, line: Line) -> None:
        """Write down what is meant."""
        line.busy, line.noted = True, False
        floor = line.entry.floor

        def noted(error: Exception | None) -> None:
            line.noted = error is None and line.entry.floor == floor
            self._stepped(line, error)

        if line.partition.volatile:
            noted(None)
        elif self._noting is not None:
            self._noting.append(noted)
        else:
            self._book.save(noted)

    def _put(self, line: Line, schedule: Schedule, delays: Delays) -> None:
        due = line.entry.due_ms
        assert due is not None
        message = Due(schedule.key, schedule.value, _headers(schedule, due), due)
        floor = line.entry.floor
        line.busy = True

        def done(result: int | WireError) -> None:
            line.unsure = isinstance(result, WireError)
            if not isinstance(result, WireError) and line.entry.floor == floor:
                if line.entry.due_ms is not None:
                    line.entry.id = result
                self._book.touch()
            self._stepped(line, result if isinstance(result, WireError) else None)

        delays.put(message, line.place[2], done)

    def _stepped(self, line: Line, error: Exception | None) -> None:
        """End a step, and take the next one."""
        line.busy = False
        if error is not None:
            self._failed(line, error)
            return
        line.error, line.failures = "", 0
        if line.place in self._lines:
            self._turn(line)

    def _failed(self, line: Line, error: Exception) -> None:
        why = str(error)
        if line.error != why and not isinstance(error, ShuttingDown):
            self._log.error("schedule {mark}: {why}", mark=line.place[2], why=why)
        line.error = why
        line.failures += 1
        wait = _RETRY_SECONDS * 2.0 ** min(line.failures - 1, 10)
        self._later(line, min(wait, _MOST_RETRY_SECONDS))

    def _later(self, line: Line, seconds: float) -> None:
        """Look again after a while."""
        if not self._closed:
            line.timer = self._broker.scheduler.callLater(seconds, self._retry, line)

    def _retry(self, line: Line) -> None:
        line.timer = None
        if line.place in self._lines:
            self._turn(line)

    def _now(self) -> int:
        return self._broker.channels.now()


def _headers(schedule: Schedule, due_ms: int) -> Headers:
    """The headers of a message, but for the schedule's name: the delay log has its own."""
    given = [each for each in schedule.headers if each[0] not in (SCHEDULE, SCHEDULED)]
    return (*given, (SCHEDULED, b"%d" % due_ms))


def _form(schedule: Schedule) -> str:
    """What a schedule says, shortly."""
    return blake2b(schedule.encode(), digest_size=8).hexdigest()
