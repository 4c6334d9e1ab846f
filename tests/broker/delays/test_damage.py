"""The index is damaged, or the log was cut: what waits comes all the same."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from tests.broker.delays.stage import Stage
from tests.fakes.broker import Answers, batch, only
from tinymq.broker.delays.index import INDEX_FILE, Index
from tinymq.errors import StorageFull
from tinymq.storage.facts import LogConfig
from tinymq.storage.log import Log

#: Bytes of a page of the index.
PAGE = 4096


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """Return a broker with a topic that waits for no disk."""
    return Stage(tmp_path / "data", {"sync": "os"})


def spoil(file: Path, table: str) -> None:
    """Let all pages of a table, or of an index of one, be zeros."""
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    query = "SELECT rootpage FROM sqlite_master WHERE name = ?"
    ((root,),) = connection.execute(query, (table,)).fetchall()
    connection.close()
    data = bytearray(file.read_bytes())
    data[(root - 1) * PAGE : root * PAGE] = bytes(PAGE)
    file.write_bytes(data)


@pytest.mark.parametrize("table", ["homes", "waiting", "by_due", "moved", "scheduled"])
def test_damage_that_a_start_finds(stage: Stage, table: str) -> None:
    """In whatever part and for whichever partition: the broker starts, and all come once."""
    stage.broker.meta.create_topic("u", 2, {"sync": "os"})
    first, second, third = (1000, 150_000, 300_000), (1500, 200_000, 900_000), (2000, 350_000)
    places = [("t", 0), ("u", 0), ("u", 1)]

    def publish(*delays: int) -> None:
        for name, number in places:
            answers: Answers = []
            data = batch(*(b"%d" % each for each in delays), dues=[-each for each in delays])
            topic = stage.broker.meta.describe(name).id
            stage.broker.broker.produce(topic, number, data, answers.append)
            stage.broker.clock.advance(0)
            assert only(answers).delayed

    publish(*first)
    stage.wait(15, step=1)
    publish(*second)
    stage.broker.kill()
    spoil(stage.broker.path / INDEX_FILE, table)
    stage.broker = stage.broker.again()
    stage.broker.clock.advance(0)
    publish(*third)
    stage.wait(1000, step=10)
    wanted = [b"%d" % each for each in (*first, *second, *third)]
    for name, number in places:
        assert sorted(filter(None, stage.broker.values(name, number))) == sorted(wanted)


def test_damage_while_far_ones_wait(stage: Stage) -> None:
    """An index that is begun anew while the broker runs is read again before it is believed."""
    delays = [-1000, *range(-180_000, -130_000, 10_000), -(10**6)]
    stage.publish(sorted(delays, reverse=True))
    stage.wait(15, step=1)
    stage.again()
    stage.delays.index._begin_anew()
    stage.wait(1000, step=10)
    assert stage.values == [b"%d" % each for each in sorted(delays, reverse=True)]


def test_ids_that_a_power_cut_took_back(stage: Stage) -> None:
    """They are given again when the whole log is gone; what has them now is new."""
    stage.publish([-10], b"old")
    stage.wait(1)
    stage.broker.kill()
    for each in stage.broker.path.rglob("delay"):
        shutil.rmtree(each)
    stage.broker = stage.broker.again()
    stage.publish([-5000], b"new")
    stage.again()
    stage.wait(10)
    assert stage.values == [b"old", b"new"]


def test_a_purge_into_the_middle(stage: Stage) -> None:
    """The data log is looked at wherever it begins, be that within what came together."""
    stage.publish([-10] * 5)
    stage.wait(1)
    stage.broker.partition().purge(2, stage.now)
    stage.broker.kill()
    for each in stage.broker.path.rglob("delay"):
        shutil.rmtree(each)
    stage.broker = stage.broker.again()
    stage.publish([-1000])
    stage.wait(2)
    assert stage.values[-1] == b"-1000"


@pytest.mark.parametrize("how", ["purge", "retention"])
def test_what_came_is_on_the_disk_before_it_goes(tmp_path: Path, how: str) -> None:
    """A power cut after that brings nothing back: the delay log knows of it."""
    stage = Stage(tmp_path / "data", {"sync": "os", "retention.ms": "1000"})
    log = stage.broker.partition().log
    assert isinstance(log, Log)
    log.config = LogConfig(segment_bytes=1)
    stage.publish([-10] * 3)
    stage.wait(0.1)
    assert not _safe(stage)
    if how == "purge":
        stage.broker.partition().purge(3, stage.now)
    else:
        stage.wait(2)
        stage.broker.produce(b"in the next file")
        log.sync()
        stage.broker.housekeeping.apply_retention()
    assert log.start_offset == 3
    assert _safe(stage)


def test_what_cannot_be_opened_at_the_start(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full just then keeps what waits for a while, and no longer."""
    stage.publish([-1000, -(10**6)], b"a", b"b")

    def full(*_: object) -> int:
        raise StorageFull("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(Index, "apply", full)
        stage.again(away=2)
        stage.wait(20, step=1)
        assert stage.values == []
    stage.wait(10, step=1)
    assert stage.values == [b"a"]
    assert stage.delays.memory.count == 1


def test_partitions_of_two_indexes(stage: Stage) -> None:
    """A topic in memory and one on the disk are not mixed up, each the first of its kind."""
    stage.broker.meta.create_topic("m", 1, {"storage": "memory"})
    for name in ("t", "m"):
        topic = stage.broker.meta.describe(name).id
        stage.broker.broker.produce(topic, 0, batch(name.encode(), dues=[-10]), lambda _: None)
        stage.broker.clock.advance(0)
    stage.wait(0.1)
    assert stage.broker.values("t") == [b"t"]
    assert stage.broker.values("m") == [b"m"]


def test_a_topic_that_goes_as_the_index_does(stage: Stage) -> None:
    """What is called as the deleted one was, in the index that is made anew, keeps its messages."""
    stage.broker.meta.create_topic("gone", 1, {"sync": "os"})
    for name in ("gone", "t"):
        topic = stage.broker.meta.describe(name).id
        data = batch(b"far", dues=[-300_000])
        stage.broker.broker.produce(topic, 0, data, lambda _: None)
        stage.broker.clock.advance(0)
    stage.wait(15, step=1)
    stage.broker.meta.delete_topic("gone")
    stage.delays.index._begin_anew()
    stage.broker.clock.advance(0)
    for _ in stage.delays.catch_up():
        pass
    stage.wait(400, step=1)
    assert stage.values == [b"far"]


def _safe(stage: Stage) -> bool:
    """Whether the delay log on the disk says of everything that it came."""
    return stage.delays.releasing.idle and not stage.delays.unsynced
