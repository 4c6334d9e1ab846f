"""Schedules on a whole broker: with its delay log, over stops and kills."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.delays.stage import Stage
from tests.broker.lives import LateSyncer
from tests.fakes.broker import BEGIN_MS, BrokerDisk
from tinymq.broker.producers import SCHEDULES
from tinymq.broker.schedules.scheduling import SCHEDULE, SCHEDULED
from tinymq.meta.registry import Schedule
from tinymq.wire.batch import split
from tinymq.wire.records import RecordBatch

MINUTE = 60_000
#: The first full minute after a fixture begins.
FIRST = (BEGIN_MS // MINUTE + 1) * MINUTE


def begin(path: Path, cron: str = "* * * * *", **more: Any) -> Stage:
    """A broker with a schedule."""
    held = {name: more.pop(name) for name in ("disk", "syncer") if name in more}
    stage = Stage(path, more.pop("config", None), **held)
    topic = stage.broker.meta.describe("t")
    schedule = Schedule(name="s", topic_id=topic.id, partition=0, cron=cron, value=b"v", **more)
    stage.broker.meta.put_schedule(schedule)
    settle(stage)
    return stage


def settle(stage: Stage) -> None:
    """Let all happen that does not wait for time."""
    for _ in range(30):
        stage.broker.clock.advance(0)


def sleep(stage: Stage, seconds: int) -> None:
    """Let time pass."""
    for _ in range(seconds // 10):
        stage.wait(10, step=10)
        settle(stage)


def times(stage: Stage) -> list[int]:
    """The times of the messages in the topic."""
    partition = stage.broker.partition()
    found = []
    chunk = partition.log.read(0, 1 << 20, partition.high_watermark)
    for header, data in [] if chunk is None else split(chunk.data):
        for headers in RecordBatch(data, header).headers:
            assert [name for name, _ in headers] == [SCHEDULED, SCHEDULE]
            assert dict(headers)[SCHEDULE] == b"s"
            found.append(int(dict(headers)[SCHEDULED]))
    return found


def row(stage: Stage) -> dict[str, Any]:
    """What people are told of it."""
    found: dict[str, Any] = stage.broker.operate("schedule.info", name="s")["schedule"]
    return found


def test_each_minute(tmp_path: Path) -> None:
    """A message comes each minute, and one waits, which people can see."""
    stage = begin(tmp_path / "data")
    assert row(stage)["next_ms"] == FIRST
    waiting = stage.broker.operate("delayed.list", topic="t")["messages"]
    assert [each["due_ms"] for each in waiting] == [FIRST]
    sleep(stage, 180)
    assert times(stage) == [FIRST, FIRST + MINUTE, FIRST + 2 * MINUTE]
    assert row(stage)["runs"] == 3
    assert stage.values == [b"v"] * 3


@pytest.mark.parametrize("sync", ["os", "interval"])
def test_no_sync_is_waited_for(tmp_path: Path, sync: str) -> None:
    """Where a topic waits for no disk, its schedules do not; a kill counts nothing twice."""
    stage = begin(tmp_path / "data", config={"sync": sync})
    sleep(stage, 180)
    assert times(stage) == [FIRST, FIRST + MINUTE, FIRST + 2 * MINUTE]
    stage.again()
    sleep(stage, 60)
    assert len(times(stage)) == 4
    assert row(stage)["runs"] == 4


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    ("catch_up", "come", "missed"), [("skip", 0, 5), ("once", 1, 4), ("all", 5, 0)]
)
def test_away(tmp_path: Path, clean: bool, catch_up: str, come: int, missed: int) -> None:
    """After a while away, it does as the schedule says."""
    stage = begin(tmp_path / "data", "*/2 * * * *", catch_up=catch_up)
    first = FIRST if FIRST % (2 * MINUTE) == 0 else FIRST + MINUTE
    sleep(stage, 30)
    stage.again(clean=clean, away=(first - stage.now) / 1000 + 9 * 60)
    settle(stage)
    sleep(stage, 10)
    assert len(times(stage)) == come
    assert (row(stage)["missed"], row(stage)["runs"]) == (missed, come)
    sleep(stage, 120)
    assert len(times(stage)) == come + 1


def test_killed_while_it_comes(tmp_path: Path) -> None:
    """A start finds that it came: one message waits for the next time, and no more."""
    disk = BrokerDisk()
    syncer = LateSyncer(disk)
    stage = begin(tmp_path / "data", disk=disk, syncer=syncer)
    for _ in range(3):
        while syncer.groups:
            syncer.release()
        settle(stage)
    stage.wait((FIRST - stage.now) / 1000 + 1, step=1)
    assert syncer.groups
    assert times(stage) == []
    stage.broker.kill()
    stage.broker = stage.broker.again()
    settle(stage)
    assert times(stage) == [FIRST]
    put = [each for each in stage.delays.log.headers() if each.producer_id == SCHEDULES]
    assert len(put) == 2


def test_memory(tmp_path: Path) -> None:
    """On a topic in memory it comes as well."""
    stage = begin(tmp_path / "data", config={"storage": "memory"})
    sleep(stage, 120)
    assert times(stage) == [FIRST, FIRST + MINUTE]


def test_cancelled_by_people(tmp_path: Path) -> None:
    """Who cancels the waiting message takes one time away."""
    stage = begin(tmp_path / "data")
    (waiting,) = stage.broker.operate("delayed.list", topic="t")["messages"]
    stage.delays.cancel([waiting["id"]], lambda found: None)
    sleep(stage, 120)
    assert times(stage) == [FIRST + MINUTE]


def test_pause_and_delete(tmp_path: Path) -> None:
    """What is paused, or gone, leaves nothing waiting."""
    stage = begin(tmp_path / "data")
    for act in ("pause", "resume", "delete"):
        stage.broker.operate(f"schedule.{act}", name="s")
        settle(stage)
        count = stage.broker.operate("delayed.list", topic="t")["total"]
        assert count == (1 if act == "resume" else 0)


def test_run_now(tmp_path: Path) -> None:
    """A message that is sent now has the headers of the others."""
    stage = begin(tmp_path / "data")
    answers: list[object] = []
    schedule = stage.broker.meta.describe_schedule("s")
    stage.broker.broker.scheduling.run(schedule, answers.append)
    settle(stage)
    assert len(answers) == 1
    assert times(stage) == [stage.now]
    assert row(stage)["runs"] == 1


@given(seed=st.integers(0, 1 << 32), catch_up=st.sampled_from(("skip", "once", "all")))
def test_kills(tmp_path_factory: pytest.TempPathFactory, seed: int, catch_up: str) -> None:
    """Killed at any moment, a broker sends each time once, or counts it as missed."""
    random = Random(seed)
    stage = begin(tmp_path_factory.mktemp("kills"), catch_up=catch_up)
    for _ in range(random.randint(1, 5)):
        for _ in range(random.randint(0, 12)):
            if random.random() < 0.5:
                seconds = random.choice((1, 10, 30, 61))
                stage.broker.wall.now_ms += seconds * 1000
                stage.broker.clock.advance(seconds)
            else:
                stage.broker.turn()
        stage.again(clean=random.random() < 0.2, away=random.choice((0, 1, 30, 300)))
    settle(stage)
    sleep(stage, 10)
    found, told = times(stage), row(stage)
    wanted = range(FIRST, stage.now + 1, MINUTE)
    assert found == sorted(set(found))
    assert {*found} <= {*wanted}
    assert len(found) + told["missed"] == len(wanted)
    assert told["error"] == ""
    if catch_up == "all":
        assert found == [*wanted]
