"""One message of each schedule waits, and each time comes once."""

from __future__ import annotations

from random import Random

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.schedules.fakes import TOPIC, Life, Store
from tinymq.broker.letters import REDRIVEN, stripped
from tinymq.broker.partition import Partition
from tinymq.broker.schedules.ports import Delays
from tinymq.broker.schedules.scheduling import SCHEDULE, SCHEDULED, Standing
from tinymq.cron import GRACE_MS, Cron
from tinymq.errors import PartitionOffline
from tinymq.meta.registry import Schedule
from tinymq.wire.batch import split
from tinymq.wire.records import RecordBatch

MINUTE = 60_000
HOUR = 60 * MINUTE
#: A full hour.
BEGIN = 1_750_000_000_000 // HOUR * HOUR
HOURLY = Schedule(
    name="s",
    topic_id=TOPIC.id,
    partition=0,
    cron="0 * * * *",
    value=b"v",
    created_ms=BEGIN + 1,
    since_ms=BEGIN + 1,
)


def hours(first: int, last: int) -> list[int]:
    """The times of some hours."""
    return [BEGIN + hour * HOUR for hour in range(first, last + 1)]


@pytest.fixture
def life() -> Life:
    """Return a broker with an hourly schedule, a second after it was made."""
    return Life(Store(), BEGIN + 1000, [HOURLY])


def standing(life: Life, schedule: Schedule = HOURLY) -> Standing:
    """How the schedule is doing."""
    found = life.scheduling.standing(schedule)
    assert found is not None
    return found


class TestRuns:
    """Messages that come in time."""

    def test_one_waits(self, life: Life) -> None:
        """Of each schedule exactly one message waits: that of the next time."""
        assert life.waiting(HOURLY.mark) == [(0, BEGIN + HOUR)]
        assert standing(life) == Standing(BEGIN + HOUR, None, 0, 0, "")

    def test_each_time(self, life: Life) -> None:
        """When it came, the next one waits."""
        for _ in range(5):
            life.advance(3600)
        assert life.times == hours(1, 5)
        assert standing(life).runs == 5
        assert standing(life).next_ms == BEGIN + 6 * HOUR
        assert standing(life).last_ms == life.now()

    def test_message(self, life: Life) -> None:
        """Each has the schedule's message, and says of what and when it is."""
        schedule = attrs.evolve(HOURLY, key=b"k", headers=(("a", b"1"), (SCHEDULE, b"lie")))
        life.follow(schedule)
        (_, message) = life.store.messages
        assert message.due == (
            b"k",
            b"v",
            (("a", b"1"), (SCHEDULED, b"%d" % (BEGIN + HOUR))),
            BEGIN + HOUR,
        )

    def test_run_now(self, life: Life) -> None:
        """One that is sent now counts, and changes nothing of what waits."""
        answers: list[object] = []
        life.scheduling.run(HOURLY, answers.append)
        ((header, data),) = split(life.produced[0])
        assert RecordBatch(data, header).values == [b"v"]
        headers = dict(RecordBatch(data, header).headers[0])
        assert headers == {SCHEDULED: b"%d" % life.now(), SCHEDULE: b"s"}
        assert len(answers) == 1
        assert standing(life).runs == 1
        assert life.waiting(HOURLY.mark) == [(0, BEGIN + HOUR)]

    def test_sent_back(self) -> None:
        """A message that died and is sent back is still that of its time, and of no other."""
        headers = ((SCHEDULED, b"5"), (SCHEDULE, b"s"))
        again = stripped([*headers, ("tinymq-reason", b"failed")])
        assert [each for each in again if each[0] != REDRIVEN] == [*headers]

    def test_many(self, life: Life) -> None:
        """Schedules do not disturb each other."""
        others = [
            attrs.evolve(HOURLY, name=f"s{each}", cron=f"{each} * * * *") for each in range(20)
        ]
        life.follow(*others)
        life.advance(1200)
        life.advance(1200)
        life.advance(1200)
        assert len(life.times) == 20
        assert all(len(life.waiting(each.mark)) == 1 for each in others)


class TestChanges:
    """What people do."""

    def test_another_time(self, life: Life) -> None:
        """Another expression takes the waiting message back, and puts its own."""
        life.follow(attrs.evolve(HOURLY, cron="30 * * * *", since_ms=life.now()))
        assert [due for _, due in life.waiting(HOURLY.mark)] == [BEGIN + HOUR // 2]
        life.advance(3600)
        assert life.times == [BEGIN + HOUR // 2]

    def test_another_value(self, life: Life) -> None:
        """Another value comes at the same time, in the place of the old one."""
        life.follow(attrs.evolve(HOURLY, value=b"new"))
        life.advance(3600)
        assert [each.due.value for each in life.store.came] == [b"new"]

    def test_a_change_in_the_last_moment(self, life: Life) -> None:
        """What is about to come is not replaced, so that it does not come twice."""
        life.clock.advance(3598.5)
        life.follow(attrs.evolve(HOURLY, value=b"new"))
        life.advance(1)
        life.advance(3600)
        assert [each.due.value for each in life.store.came] == [b"v", b"new"]
        assert life.times == hours(1, 2)

    def test_pause(self, life: Life) -> None:
        """While it is paused nothing comes, and what would have come is not missed."""
        paused = attrs.evolve(HOURLY, paused=True, since_ms=life.now())
        life.follow(paused)
        assert life.waiting(HOURLY.mark) == []
        life.advance(3 * 3600)
        life.follow(attrs.evolve(HOURLY, since_ms=life.now()))
        life.advance(3600)
        assert life.times == hours(4, 4)
        assert (standing(life).missed, standing(life).runs) == (0, 1)

    def test_deleted(self, life: Life) -> None:
        """A schedule that is gone leaves nothing behind."""
        life.follow()
        life.scheduling.close()
        assert life.waiting(HOURLY.mark) == []
        again = Life(life.store, life.now(), [])
        assert again.scheduling.standing(HOURLY) is None
        assert again.scheduling._book.marks(TOPIC.id, 0) == []

    def test_made_anew(self, life: Life) -> None:
        """One that is made anew under the name is another, and counts from nothing."""
        life.advance(3600)
        anew = attrs.evolve(HOURLY, created_ms=life.now(), since_ms=life.now())
        life.follow(anew)
        assert life.waiting(HOURLY.mark) == []
        assert standing(life, anew).runs == 0
        life.advance(3600)
        assert life.times == hours(1, 2)

    def test_taken_away_by_people(self, life: Life) -> None:
        """Who takes the waiting message away takes one time away."""
        life.cancel([0], lambda error: None)
        life.settle()
        life.clock.advance(6)
        life.settle()
        assert [due for _, due in life.waiting(HOURLY.mark)] == [BEGIN + 2 * HOUR]
        assert standing(life).runs == 0

    def test_moved_by_people(self, life: Life) -> None:
        """A message that was moved comes at its new time, and the next one follows."""
        message = life.store.messages[0]
        message.due = message.due._replace(due_ms=BEGIN + HOUR // 4)
        assert standing(life).next_ms == BEGIN + HOUR // 4
        life.advance(1200)
        assert life.times == hours(1, 1)
        life.advance(7200)
        assert life.times == hours(1, 2)

    def test_topic_deleted(self, life: Life) -> None:
        """With its topic it is forgotten."""
        life.scheduling.drop(life.partition)
        assert life.scheduling.standing(HOURLY) is None
        assert life.scheduling._book.marks(TOPIC.id, 0) == []


class TestStarts:
    """A broker that was away."""

    @pytest.mark.parametrize(
        ("catch_up", "at_once", "missed"),
        [("skip", [], 3), ("once", [3], 2), ("all", [1, 2, 3], 0)],
    )
    def test_missed(self, catch_up: str, at_once: list[int], missed: int) -> None:
        """What was missed is counted, comes once, or comes, as the schedule says."""
        schedule = attrs.evolve(HOURLY, catch_up=catch_up)
        life = Life(Store(), BEGIN + 1000, [schedule])
        again = Life(life.store, BEGIN + 3 * HOUR + 10 * MINUTE, [schedule])
        again.advance(0)
        assert again.times == [BEGIN + hour * HOUR for hour in at_once]
        again.advance(3600)
        assert again.times[len(at_once) :] == hours(4, 4)
        assert standing(again, schedule).missed == missed
        assert standing(again, schedule).runs == len(at_once) + 1

    @pytest.mark.parametrize("catch_up", ["skip", "once", "all"])
    def test_a_little_late(self, catch_up: str) -> None:
        """A restart of some seconds misses nothing."""
        schedule = attrs.evolve(HOURLY, catch_up=catch_up)
        life = Life(Store(), BEGIN + 1000, [schedule])
        again = Life(life.store, BEGIN + HOUR + GRACE_MS // 2, [schedule])
        again.advance(0)
        assert again.times == hours(1, 1)
        assert standing(again, schedule).missed == 0

    def test_clean_stop(self, life: Life) -> None:
        """What is counted outlives a stop."""
        life.advance(3600)
        life.scheduling.close()
        again = Life(life.store, life.now(), [HOURLY])
        assert standing(again).runs == 1
        again.advance(3600)
        assert again.times == hours(1, 2)

    def test_clock_put_back(self, life: Life) -> None:
        """With a clock that was put back, no time comes a second time."""
        life.advance(3600)
        life.advance(3600)
        life.scheduling.close()
        again = Life(life.store, BEGIN + 1000, [HOURLY])
        assert standing(again).next_ms == BEGIN + 3 * HOUR
        for _ in range(4):
            again.advance(3600)
        assert again.times == hours(1, 4)

    def test_clock_was_wrong(self, life: Life) -> None:
        """One that ran at times that are still to come says why it waits."""
        life.clock.advance(50 * 3600)
        life.release()
        life.settle()
        life.scheduling.close()
        again = Life(life.store, BEGIN + 1000, [HOURLY])
        assert "the clock was put back" in standing(again).error

    def test_changed_meanwhile(self, life: Life) -> None:
        """A change that was made while the broker was away holds when it is back."""
        changed = attrs.evolve(HOURLY, value=b"new")
        again = Life(life.store, BEGIN + HOUR // 2, [changed])
        again.advance(1800)
        assert [each.due.value for each in again.store.came] == [b"new"]

    def test_paused_and_resumed_meanwhile(self, life: Life) -> None:
        """Times before it was resumed are not missed."""
        resumed = attrs.evolve(HOURLY, since_ms=BEGIN + 5 * HOUR + 1)
        again = Life(life.store, BEGIN + 5 * HOUR + 10 * MINUTE, [resumed])
        again.advance(3000)
        assert again.times == hours(6, 6)
        assert standing(again, resumed).missed == 0

    @pytest.mark.parametrize("catch_up", ["skip", "once", "all"])
    def test_book_lost(self, catch_up: str) -> None:
        """Without the book, what waits comes, and nothing comes a second time."""
        schedule = attrs.evolve(HOURLY, catch_up=catch_up)
        life = Life(Store(), BEGIN + 1000, [schedule])
        life.advance(3600)
        life.store.content = b"rubbish"
        again = Life(life.store, life.now(), [schedule])
        assert len(again.waiting(schedule.mark)) == 1
        again.advance(3600)
        assert again.times == hours(1, 2)

    @pytest.mark.parametrize("catch_up", ["skip", "once", "all"])
    def test_everything_lost(self, catch_up: str) -> None:
        """With nothing left at all, it begins with the next time."""
        schedule = attrs.evolve(HOURLY, catch_up=catch_up)
        life = Life(Store(), BEGIN + 5 * HOUR + 1000, [schedule])
        life.advance(3600)
        assert life.times == hours(6, 6)
        assert standing(life, schedule).missed == 0

    def test_volatile(self) -> None:
        """On a topic in memory it runs as well, and nothing is written."""
        life = Life(Store(), BEGIN + 1000, [HOURLY], volatile=True)
        life.advance(3600)
        life.scheduling.close()
        assert life.times == hours(1, 1)
        again = Life(Store(life.store.content), BEGIN + 5 * HOUR + 1000, [HOURLY], volatile=True)
        assert standing(again).runs == 0
        again.advance(3600)
        assert again.times == hours(6, 6)


class TestTrouble:
    """A disk that is full."""

    def test_full(self, life: Life) -> None:
        """It says what is wrong, and goes on when there is room; nothing comes twice."""
        life.store.full = True
        life.advance(3600)
        assert "no space" in standing(life).error
        life.advance(1)
        life.store.full = False
        for _ in range(70):
            life.advance(1)
        assert standing(life).error == ""
        life.advance(3600)
        assert life.times == hours(1, 2)

    def test_no_delays(self, life: Life) -> None:
        """Where no message can wait, it says so."""

        def offline(partition: Partition) -> Delays:
            raise PartitionOffline("its disk is gone")

        life.scheduling.delays = offline
        life.follow(HOURLY, attrs.evolve(HOURLY, name="other"))
        other = life.schedules[1]
        assert standing(life, other).error == "its disk is gone"

    def test_never_again(self) -> None:
        """What does not come again says so."""
        end = 253_402_300_799_000
        schedule = attrs.evolve(HOURLY, cron="0 0 1 1 *", since_ms=end)
        life = Life(Store(), end, [schedule])
        assert standing(life, schedule).error == "it never comes again"


@given(
    seed=st.integers(0, 1 << 32),
    catch_up=st.sampled_from(("skip", "once", "all")),
    cron=st.sampled_from(("0 * * * *", "*/10 * * * *", "0 */4 * * *")),
)
def test_each_time_once(seed: int, catch_up: str, cron: str) -> None:
    """
    Over kills and power cuts, each time comes once or was missed, as the schedule says.

    The disk does one thing after the other, and what it has not done is lost with a kill.
    """
    random = Random(seed)
    schedule = attrs.evolve(HOURLY, cron=cron, catch_up=catch_up)
    store, now = Store(), BEGIN + 1000
    Life(store, now, [schedule]).scheduling.close()
    for _ in range(random.randint(1, 6)):
        life = Life(store, now, [schedule], held=True)
        for _ in range(random.randint(0, 40)):
            if random.random() < 0.15:
                life.clock.advance(random.choice((1, 60, 601, 3600)))
            if random.random() < 0.2:
                life.put_another()
            life.step(random)
        store.cut(random)
        now = life.now() + random.choice((0, 1000, 30_000, HOUR // 2, 5 * HOUR))
    life = Life(store, now, [schedule])
    life.advance(0)
    life.advance(0)
    found = standing(life, schedule)
    wanted = [due for due in Cron(cron).upcoming(BEGIN + 1, 500) if due <= life.now()]
    assert life.times == sorted(set(life.times))
    assert set(life.times) <= set(wanted)
    assert len(life.times) + found.missed == len(wanted)
    assert found.runs == len(life.times)
    if catch_up == "all":
        assert life.times == wanted
    if catch_up == "once" and wanted:
        assert life.times[-1] == wanted[-1]
