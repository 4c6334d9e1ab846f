"""Messages that are not due yet: what went wrong with them elsewhere."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.broker.delays.stage import Stage
from tests.fakes.broker import LogKeeper, only, refused
from tests.fakes.taking import Taker
from tinymq.broker.channels import Channels
from tinymq.broker.delays.index import INDEX_FILE
from tinymq.broker.delays.shelf import StoredBatch
from tinymq.broker.partition import Appended
from tinymq.errors import InvalidDelay, WireError
from tinymq.limits import LATEST_MS
from tinymq.wire.messages import FINISH

DAY = 24 * 3600


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """Return a broker with a topic."""
    return Stage(tmp_path / "data")


def test_it_comes_when_it_is_due(stage: Stage) -> None:
    """Not before, and one tick late at most; the answer is the id of the first message."""
    first = stage.publish([-1000, -2005], b"a", b"b")
    assert first == 0
    assert stage.values == []
    stage.wait(0.99)
    assert stage.values == []
    stage.wait(0.01)
    assert stage.values == [b"a"]
    stage.wait(1.0)
    assert stage.values == [b"a"]
    stage.wait(0.01)
    assert stage.values == [b"a", b"b"]
    assert stage.delays.memory.count == 0


def test_at_once(stage: Stage) -> None:
    """A due time of 0, or in the past, is now."""
    stage.publish([0, 5, stage.now - 1000], b"a", b"b", b"c")
    stage.wait(0.01)
    assert stage.values == [b"a", b"b", b"c"]


@pytest.mark.parametrize("days", [49.71, 49.72, 60, 400, 36500])
def test_long_delays(stage: Stage, days: float) -> None:
    """Around 2^32 ms, after months and centuries: held to the time, never early."""
    stage.publish([-round(days * DAY * 1000)], b"far")
    stage.wait(days * DAY - 1, step=days * DAY / 7)
    assert stage.values == []
    stage.wait(0.99)
    assert stage.values == []
    stage.wait(0.02)
    assert stage.values == [b"far"]


@pytest.mark.parametrize("due", [LATEST_MS + 1, 1 << 62, -(1 << 62), (1 << 63) - 1, -(1 << 63)])
def test_beyond_what_can_be_kept(stage: Stage, due: int) -> None:
    """Refused with the limit named; the rest of the broker does not notice."""
    error = refused(stage.stage([due], b"x"))
    assert isinstance(error, InvalidDelay)
    assert str(LATEST_MS) in error.text
    assert error.data["limit"] == LATEST_MS
    stage.publish([LATEST_MS], b"last")
    assert stage.delays.memory.count == 1


def test_due_while_the_broker_was_down(stage: Stage) -> None:
    """It comes once, right after the start."""
    stage.publish([-5000], b"a")
    stage.again(away=10)
    assert stage.values == [b"a"]
    stage.again(away=10)
    assert stage.values == [b"a"]


@pytest.mark.parametrize("clean", [True, False])
def test_a_restart_forgets_no_time(stage: Stage, clean: bool) -> None:
    """What was to come in a minute still comes then, after a stop and after a kill."""
    stage.publish([-60_000], b"a")
    stage.wait(5)
    stage.again(clean=clean)
    stage.wait(54.9, step=0.1)
    assert stage.values == []
    stage.wait(0.2)
    assert stage.values == [b"a"]


def test_many_days(stage: Stage) -> None:
    """Two days of messages with a delay of 30 s: all come, and none is late."""
    count = 0
    for _ in range(2 * DAY // 1800):
        stage.publish([-30_000] * 2, b"%d" % count, b"%d" % (count + 1))
        count += 2
        stage.wait(1800, step=900)
    assert len(stage.values) == count
    assert stage.delays.memory.count == 0
    assert count == len({*stage.values})


@pytest.mark.parametrize("clean", [True, False])
def test_the_index_after_many_restarts(stage: Stage, clean: bool) -> None:
    """Near and far, before and behind what the index knew: none is missing."""
    wanted = set()
    for life in range(4):
        for number, delay in enumerate((1000, 100_000, 300_000, 10**7, 10**8)):
            value = b"%d-%d" % (life, number)
            stage.publish([-delay], value)
            wanted.add(value)
        stage.broker.housekeeping.checkpoint()
        stage.wait(20, step=1)
        stage.again(clean=clean)
    stage.wait(2 * 10**5, step=100)
    assert sorted(filter(None, stage.values)) == sorted(wanted)


def test_stopped_in_the_middle_of_a_burst(stage: Stage) -> None:
    """What is out stays out once, and the rest comes after the next start."""
    for start in range(0, 10_000, 1000):
        stage.publish([-1000] * 1000, *(b"%d" % (start + each) for each in range(1000)))
    stage.broker.wall.now_ms += 1000
    stage.broker.clock.rightNow += 1.001
    for _ in range(3):
        stage.broker.turn()
    out = len(stage.values)
    assert 0 < out < 10_000
    stage.again(clean=True)
    for _ in range(50):
        stage.broker.clock.advance(0)
    assert sorted(stage.values, key=lambda value: int(value or b"")) == [
        b"%d" % each for each in range(10_000)
    ]


def test_a_burst_comes_in_slices(stage: Stage) -> None:
    """Ten thousand at once do not keep others from their turn."""
    for start in range(0, 10_000, 1000):
        stage.publish([-1000] * 1000, *(b"%d" % (start + each) for each in range(1000)))
    stage.broker.wall.now_ms += 1000
    stage.broker.clock.rightNow += 1.001
    most = 0
    for _ in range(30):
        before = len(stage.values)
        stage.broker.turn()
        most = max(most, len(stage.values) - before)
    assert 0 < most <= 5000
    assert stage.values == [b"%d" % each for each in range(10_000)]


@pytest.mark.parametrize("spoil", ["bytes", "version", "gone", "ahead", "place"])
def test_a_damaged_index(stage: Stage, logged: LogKeeper, spoil: str) -> None:
    """What is wrong in it comes from the log, and nothing is missing or comes twice."""
    stage.publish([-1000, -200_000, -(10**9)], b"a", b"b", b"c")
    stage.wait(30, step=1)
    stage.broker.stop()
    file = stage.broker.path / INDEX_FILE
    if spoil == "bytes":
        file.write_bytes(b"x" * file.stat().st_size)
    elif spoil == "gone":
        file.unlink()
    else:
        connection = sqlite3.connect(file)
        if spoil == "version":
            connection.execute("PRAGMA user_version = 99")
        elif spoil == "place":
            connection.execute("UPDATE waiting SET place = place + 1")
        else:
            connection.execute("UPDATE homes SET upto = 1000")
        connection.commit()
        connection.close()
    stage.broker = stage.broker.again()
    assert len([text for text in logged.texts if "anew" in text]) == (
        spoil not in ("gone", "place")
    )
    stage.wait(200, step=1)
    assert stage.values == [b"a", b"b"]
    stage.wait(10**6, step=10**3)
    assert stage.values == [b"a", b"b", b"c"]


def test_an_index_that_is_damaged_while_it_runs(stage: Stage, logged: LogKeeper) -> None:
    """It is made anew from the log, and everything comes once."""
    stage.publish([-1000, -50_000, -200_000, -(10**7)], b"a", b"b", b"c", b"d")
    stage.wait(20, step=1)
    stage.delays.index._connection.execute("DROP TABLE waiting")
    stage.publish([-1000, -(10**6)], b"e", b"f")
    assert len(stage.broker.operate("delayed.list")["messages"]) == 5
    stage.wait(300, step=1)
    assert stage.values == [b"a", b"e", b"b", b"c"]
    assert len([text for text in logged.texts if "anew" in text]) == 1
    stage.again()
    stage.wait(10**7, step=10**5)
    assert stage.values == [b"a", b"e", b"b", b"c", b"f", b"d"]


@pytest.mark.parametrize("page", range(2, 8))
def test_a_damaged_page_of_the_index(stage: Stage, page: int) -> None:
    """Wherever damage begins, the broker starts, and nothing is missing or comes twice."""
    for start in range(0, 600, 100):
        values = [b"%d" % (start + each) for each in range(100)]
        stage.publish([-1000, *[-200_000] * 99], *values)
    stage.wait(30, step=1)
    stage.broker.stop()
    file = stage.broker.path / INDEX_FILE
    with file.open("r+b") as handle:
        handle.seek(16)
        size = int.from_bytes(handle.read(2), "big")
        assert file.stat().st_size >= page * size
        handle.seek((page - 1) * size)
        handle.write(b"\xaa" * size)
    stage.broker = stage.broker.again()
    stage.wait(200, step=1)
    assert sorted(stage.values, key=lambda value: int(value or b"")) == [
        b"%d" % each for each in range(600)
    ]


def test_not_a_part_of_a_millisecond_early(stage: Stage) -> None:
    """However the clocks lie to each other at a start, the wall clock shows at least the time."""
    stage.broker.clock.rightNow = 100.0009
    channels = Channels(stage.broker.broker)
    stage.broker.clock.rightNow += 0.0002
    assert channels.now() <= stage.broker.wall.now_ms


def test_the_clock_is_set_back(stage: Stage) -> None:
    """Steps of the wall clock move nothing while the broker runs."""
    stage.publish([-60_000], b"late")
    stage.broker.wall.now_ms -= 3_600_000
    stage.broker.produce(b"at once")
    assert stage.values == [b"at once"]
    stage.wait(59.9, step=0.1)
    assert stage.values == [b"at once"]
    stage.broker.wall.now_ms += 7_200_000
    stage.wait(0.05)
    assert stage.values == [b"at once"]
    stage.wait(0.1)
    assert stage.values == [b"at once", b"late"]


def test_idempotent(stage: Stage) -> None:
    """A batch that comes again is answered with the first one's ids, also after a restart."""
    producer = (7, 0, 0)
    first = stage.publish([-1000, -1000], b"a", b"b", producer=producer)
    again = only(stage.stage([-1000, -1000], b"a", b"b", producer=producer))
    assert (again.base_offset, again.duplicate, again.delayed) == (first, True, True)
    for clean in (True, False):
        stage.again(clean=clean)
        again = only(stage.stage([-1000, -1000], b"a", b"b", producer=producer))
        assert (again.base_offset, again.duplicate) == (first, True)
    stage.wait(2)
    assert stage.values == [b"a", b"b"]


def done_of(found: list[list[int] | WireError]) -> list[int]:
    """The ids with which something was done."""
    (done,) = found
    assert isinstance(done, list), done
    return done


def test_cancel(stage: Stage) -> None:
    """What was cancelled never comes, near or far; who asks again hears that it is gone."""
    first = stage.publish([-1000, -1000, -(10**6), -(10**6)], b"a", b"b", b"c", b"d")
    found: list[list[int] | WireError] = []
    stage.delays.cancel([first, first + 2, 99], found.append)
    stage.broker.clock.advance(0)
    assert sorted(done_of(found)) == [first, first + 2]
    found.clear()
    stage.delays.cancel([first, first + 2], found.append)
    assert done_of(found) == []
    stage.again()
    stage.wait(2000, step=1)
    assert stage.values == [b"b", b"d"]


def test_move(stage: Stage) -> None:
    """What was moved comes at its new time, from near to far and back, and after a restart."""
    first = stage.publish([-1000, -(10**6), -2000], b"a", b"b", b"c")
    found: list[list[int] | WireError] = []
    stage.delays.move([first], stage.now + 2 * 10**6, found.append)
    stage.delays.move([first + 1], stage.now + 3000, found.append)
    stage.broker.clock.advance(0)
    assert found == [[first], [first + 1]]
    stage.wait(2.01)
    assert stage.values == [b"c"]
    stage.again()
    stage.wait(1.1)
    assert stage.values == [b"c", b"b"]
    stage.wait(2 * 10**3, step=1)
    assert stage.values == [b"c", b"b", b"a"]


def test_longer_than_a_lease(stage: Stage) -> None:
    """A delay of two minutes and leases of five seconds: one delivery, after two minutes."""
    stage.broker.meta.create_channel("t", "c", {"lease.ms": 5000})
    taker = Taker(stage.broker)
    taker.subscribe()
    stage.publish([-120_000], b"a")
    seen = []
    for second in range(130):
        stage.wait(1, step=1)
        taken = taker.take()
        seen += [(second, each.value) for each in taken]
        taker.settle(FINISH, *taken)
    assert len(seen) == 1
    assert seen[0][0] in (119, 120, 121)


def test_operations(stage: Stage) -> None:
    """Listing, counting, looking, moving and cancelling, page by page."""
    stage.publish([-1000 * (each + 1) for each in range(5)], keys=[b"k%d" % e for e in range(5)])
    operate = stage.broker.operate
    page = operate("delayed.list", limit=2)
    assert [row["id"] for row in page["messages"]] == [0, 1]
    assert (page["total"], page["more"]) == (5, True)
    page = operate("delayed.list", topic="t", limit=3, after=page["after"])
    assert [row["id"] for row in page["messages"]] == [2, 3, 4]
    assert (page["more"], page["after"]) == (False, None)
    assert [row["key"] for row in operate("delayed.list", key="k3")["messages"]] == ["k3"]
    told = operate("delayed.get", topic="t", partition=0, id=4)
    assert (told["message"]["value"], told["state"]) == ("-5000", "waiting")
    bars = operate("delayed.histogram")
    assert (bars["total"], bars["buckets"][0]["messages"]) == (5, 5)
    assert bars["next_ms"] == stage.now + 1000


def test_slow_reads_do_not_hold_the_reactor(stage: Stage) -> None:
    """Messages that lie in many batches are released a few at a time, and all come."""
    for _ in range(20):
        stage.publish([-1000])
    shelf, clock = stage.delays.host.shelf, stage.broker.clock
    read = shelf._read

    def slow(*where: Any) -> StoredBatch:
        clock.rightNow += 0.001
        return read(*where)

    shelf._read = slow  # type: ignore[assignment, method-assign]
    stage.wait(1.1)
    assert len(stage.values) == 20
    assert len([*stage.broker.partition().log.headers()]) >= 4


def test_memory_topics(tmp_path: Path) -> None:
    """They wait in memory, and the answer says so."""
    stage = Stage(tmp_path / "data", {"storage": "memory"})
    answers = stage.stage([-1000, -(10**6)], b"a", b"b")
    stage.broker.clock.advance(0)
    assert isinstance(answers[0], Appended)
    assert answers[0].volatile
    stage.wait(1.01)
    assert stage.values == [b"a"]
    stage.wait(1000, step=1)
    assert stage.values == [b"a", b"b"]
