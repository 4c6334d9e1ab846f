"""What waits in a partition, with the rest of the broker around it."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.broker.delays.stage import Stage
from tests.fakes.broker import Answers, BrokerDisk, HeldSyncer, LogKeeper, batch, refused
from tinymq.broker.delays.lateness import Lateness
from tinymq.broker.partition import Appended
from tinymq.broker.producers import RELEASES
from tinymq.errors import InvalidRequest, StateError, StorageFull, UnknownDelayed, WireError
from tinymq.limits import MIB
from tinymq.storage.disk import Space
from tinymq.storage.log import Log, LogConfig
from tinymq.wire.batch import split
from tinymq.wire.records import RecordBatch


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """Return a broker with a topic."""
    return Stage(tmp_path / "data")


def test_everything_of_a_message_comes_with_it(stage: Stage) -> None:
    """Key, headers, producer's time and time to live are those that were sent."""
    stage.publish(
        [-1000, -1000],
        b"a",
        b"b",
        keys=[b"k", None],
        headers=[[("h", b"1"), ("h", b"2")], []],
        times=[5, 6],
        ttls=[60_000, None],
    )
    stage.wait(1.02)
    partition = stage.broker.partition()
    chunk = partition.read(0, MIB, nowait=False)
    assert chunk is not None
    ((header, data),) = split(chunk.data)
    found = RecordBatch(data, header)
    assert found.values == [b"a", b"b"]
    assert found.keys == [b"k", None]
    assert found.headers == [(("h", b"1"), ("h", b"2")), ()]
    assert found.times == [5, 6]
    assert found.ttls == [60_000, None]
    assert found.ids == [bytes(16), bytes(15) + b"\1"]
    assert header.producer_id == RELEASES


def test_order(stage: Stage) -> None:
    """Messages of one moment come in the order of their due times, then of their ids."""
    now = stage.now
    dues = [now + 1009, now + 1001, now + 1009, now + 1005]
    stage.publish(dues, b"d1", b"a", b"d2", b"c")
    stage.wait(1.02)
    assert stage.values == [b"a", b"c", b"d1", b"d2"]


def test_nobody_claims_to_be_the_broker(stage: Stage) -> None:
    """A client's batch under the producer id of releases would make a start forget messages."""
    error = refused(stage.stage([-1000], b"x", producer=(RELEASES, 0, 0)))
    assert isinstance(error, InvalidRequest)
    answers: Answers = []
    topic = stage.broker.meta.describe("t").id
    data = batch(b"x", producer=(RELEASES, 0, 0), ids=[bytes(16)])
    stage.broker.broker.produce(topic, 0, data, answers.append)
    assert isinstance(refused(answers), InvalidRequest)


def test_late_ones_of_many(stage: Stage) -> None:
    """Thousands due within ten minutes: all come, and the last with the last tick."""
    rng = Random(3)
    for _ in range(20):
        stage.publish([-rng.randrange(1000, 600_000) for _ in range(100)])
    stage.wait(610, step=5)
    assert len(stage.values) == 2000
    lateness = stage.delays.releasing.lateness
    assert lateness.released == 2000


def test_memory_is_flat(stage: Stage) -> None:
    """What is due in an hour is in the index and nowhere in memory."""
    for _ in range(20):
        stage.publish([-3_600_000] * 100)
    stage.wait(30, step=1)
    memory = stage.delays.memory
    assert (len(memory.wheel), len(memory.ready), len(memory.ghosts)) == (0, 0, 0)
    assert (memory.count, stage.delays.follower.rows) == (2000, 2000)


def test_a_short_wait_costs_no_row(stage: Stage) -> None:
    """What comes before the index follows never gets into it."""
    for _ in range(20):
        stage.publish([-1000] * 10)
        stage.wait(2, step=0.5)
    assert len(stage.values) == 200
    assert stage.delays.follower.rows == 0


def test_a_full_disk(tmp_path: Path) -> None:
    """It takes nothing that is to wait; what is due meanwhile comes when there is space again."""
    disk = BrokerDisk()
    stage = Stage(tmp_path / "data", disk=disk)
    stage.publish([-1000], b"a")
    disk.free = Space(0, 1 << 41)
    stage.broker.housekeeping.look_at_space()
    assert isinstance(refused(stage.stage([-1000], b"b")), StorageFull)
    stage.wait(5, step=0.5)
    assert stage.values == []
    disk.free = Space(1 << 40, 1 << 41)
    stage.broker.housekeeping.look_at_space()
    stage.wait(1, step=0.5)
    assert stage.values == [b"a"]


def test_a_start_that_cannot_open_it(stage: Stage, logged: LogKeeper) -> None:
    """Until it can be opened nobody is told that nothing waits; then it comes, without a start."""
    stage.publish([-1000], b"a")
    stage.broker.stop()
    (folder,) = stage.broker.path.glob("topics/*/0/delay")
    away = folder.rename(folder.with_name("away"))
    folder.touch()
    stage.broker = stage.broker.again()
    with pytest.raises(StateError, match="t/0 is not open"):
        stage.delays.mark()
    stage.wait(12, step=1)
    assert len([text for text in logged.texts if "not open" in text]) == 1
    folder.unlink()
    away.rename(folder)
    stage.wait(6, step=1)
    assert stage.values == [b"a"]


def test_retention_leaves_it_alone(stage: Stage) -> None:
    """What waits longer than records are kept comes all the same."""
    stage.publish([-30 * 24 * 3_600_000], b"a")
    stage.broker.produce(b"old")
    stage.wait(29 * 24 * 3600, step=24 * 3600)
    stage.broker.housekeeping.apply_retention()
    assert stage.values == []
    stage.wait(24 * 3600 + 1, step=24 * 3600)
    assert stage.values == [b"a"]


def test_a_deleted_topic_takes_it_along(stage: Stage) -> None:
    """Nothing of it comes, and its rows go from the index."""
    stage.publish([-1000, -(10**7)], b"a", b"b")
    stage.wait(0.1)
    list(stage.delays.catch_up())
    index, home = stage.delays.index, stage.delays.follower.home
    assert index.count(home, None, None) == 2
    stage.broker.meta.delete_topic("t")
    stage.wait(1, step=0.1)
    assert index.count(home, None, None) == 0
    assert stage.broker.broker.delaying.all() == []


def test_the_front_is_let_go(stage: Stage) -> None:
    """One message for next year holds no file of what came and went behind it."""
    stage.publish([-(10**10)], b"next year", keys=[b"k"])
    log = stage.delays.log
    assert isinstance(log, Log)
    log.config = LogConfig(segment_bytes=5000)
    stage.delays.freeing.least = 8000
    for _ in range(30):
        stage.publish([-1000] * 20)
        stage.wait(30, step=15)
    stage.broker.housekeeping.checkpoint()
    stage.wait(5, step=1)
    assert stage.delays.freeing.copied > 0
    assert log.size_bytes < 30_000
    (row,) = stage.delays.rows(None, None, None, 5)
    assert (row.id, row.key) == (0, b"k")
    assert row.offset > 0
    assert stage.delays.record(row).value == b"next year"
    stage.again()
    stage.wait(10**7, step=10**6)
    assert stage.values[-1] == b"next year"
    assert stage.values.count(b"next year") == 1


def test_put_for_a_schedule(stage: Stage) -> None:
    """Whoever keeps schedules hears of each release, of one that a start found out, too."""
    delays = stage.broker.broker.delaying.opened(stage.broker.partition())
    done: list[list[int] | WireError] = []
    heard: list[tuple[int, int, str]] = []
    delays.hook = heard.extend
    due = stage.now + 1000
    delays.put([(b"k", b"v", [("h", b"1")], due)], "daily@5", done.append)
    delays.put([(None, b"w", [], due + 10**6)], "daily@5", done.append)
    stage.broker.clock.advance(0)
    assert done == [[0], [1]]
    assert delays.scheduled("daily@5") == [(0, due), (1, due + 10**6)]
    rows = stage.broker.operate("delayed.list", schedule="daily")["messages"]
    assert [(row["why"], row["schedule"]) for row in rows] == [("schedule", "daily")] * 2
    stage.wait(1.02)
    assert (stage.values, heard) == ([b"v"], [(0, due, "daily@5")])
    assert delays.scheduled("daily@5") == [(1, due + 10**6)]


def test_a_release_that_a_start_finds(tmp_path: Path) -> None:
    """Killed between the two writes: it does not come again, and its schedule hears of it."""
    syncer = HeldSyncer()
    stage = Stage(tmp_path / "data", syncer=syncer)
    delays = stage.broker.broker.delaying.opened(stage.broker.partition())
    due = stage.now + 1000
    delays.put([(None, b"v", [], due)], "daily@5", lambda done: None)
    stage.broker.clock.advance(0)
    syncer.release()
    stage.wait(1.02)
    assert syncer.groups  # it is written, and on its way to the disk
    stage.again()
    assert stage.values == [b"v"]
    heard: list[tuple[int, int, str]] = []
    stage.delays.hook = heard.extend
    assert heard == [(0, due, "daily@5")]
    stage.wait(5, step=1)
    assert stage.values == [b"v"]


def test_answers_wait_for_the_disk(tmp_path: Path) -> None:
    """Neither a publish nor a cancel is answered before; nothing comes before, either."""
    syncer = HeldSyncer()
    stage = Stage(tmp_path / "data", syncer=syncer)
    answers = stage.stage([0], b"a")
    stage.wait(1)
    assert answers == []
    assert stage.values == []
    syncer.release()
    assert isinstance(answers[0], Appended)
    stage.wait(0.02)
    done: list[list[int] | WireError] = []
    stage.delays.cancel([0], done.append)
    assert done == [[]]  # it is on its way into the data log
    syncer.release()
    assert stage.values == [b"a"]


def test_what_is_unknown(stage: Stage) -> None:
    """A message that came, or never was, is named with its place."""
    stage.publish([0], b"a")
    stage.wait(0.02)
    for number in (0, 7):
        with pytest.raises(UnknownDelayed, match=f"t/0~{number} does not wait"):
            stage.broker.operate("delayed.get", topic="t", partition=0, id=number)


def test_apply(stage: Stage) -> None:
    """All that fit a filter are cancelled, moved or released, step by step."""
    stage.publish([-(10**6)] * 6, keys=[b"a", b"b"] * 3)
    operate = stage.broker.operate
    step = operate("delayed.apply", act="cancel", topic="t", key="a", limit=2, dry_run=True)
    assert (step["done"], step["more"]) == (2, True)
    step = stage.operate("delayed.apply", act="now", topic="t", key="a", limit=500)
    assert (step["done"], step["more"], step["failed"]) == (3, False, [])
    stage.wait(0.05)
    assert len(stage.values) == 3
    assert [row["key"] for row in operate("delayed.list")["messages"]] == ["b"] * 3
    told = stage.operate("delayed.move", topic="t", partition=0, ids=[1, 0], delay_ms=5000)
    assert (told["done"], told["missing"]) == ([1], [0])
    with pytest.raises(InvalidRequest):
        operate("delayed.move", topic="t", partition=0, ids=[1])


def test_what_was_done_is_logged(stage: Stage, logged: LogKeeper) -> None:
    """With the messages, or the topic, that it was about."""
    stage.publish([-(10**6)] * 7)
    stage.operate("delayed.cancel", topic="t", partition=0, ids=[0])
    stage.operate("delayed.now", topic="t", partition=0, ids=[1, 2, 3, 4, 5, 6])
    stage.operate("delayed.apply", act="cancel", topic="t")
    done = [text for text in logged.texts if " did " in text]

    assert [text.partition(" did ")[2] for text in done] == [
        "delayed.cancel t/0~0",
        "delayed.now t/0~1,2,3,4,5,...",
        "delayed.apply t",
    ]


def test_a_move_step_by_step_moves_each_once(stage: Stage) -> None:
    """What was moved further down the list is known when a later step meets it again."""
    stage.publish([-(10**6)] * 5 + [-(10**8)] * 2)
    moved, due = 0, set()
    after: str | None = ""
    for _ in range(20):
        step = stage.operate(
            "delayed.apply", act="move", topic="t", delay_ms=10**7, limit=2, after=after
        )
        moved += step["done"]
        rows = stage.broker.operate("delayed.list", topic="t")["messages"]
        due |= {row["due_ms"] for row in rows if 10**7 <= row["due_ms"] - stage.now + 1000 < 10**8}
        after = step["after"]
        if not step["more"]:
            break
        stage.wait(0.02)
    assert (moved, after, len(due)) == (7, None, 1), "all steps of a move have one time"
    for wrong in ("x@5", "1/t/0/1@x", "@5"):
        with pytest.raises(InvalidRequest):
            stage.broker.operate("delayed.apply", act="move", topic="t", delay_ms=5, after=wrong)


def test_reports(stage: Stage) -> None:
    """What waits, and how late it comes, is told with the partition's figures."""
    stage.publish([-1000, -5000], b"a", b"b")
    stage.wait(1.02)
    (row,) = stage.broker.node.reporter.take(0).rows
    assert (row.report.delayed, row.report.overdue) == (1, 0)
    assert row.report.late_ms is not None
    assert row.report.late_ms <= 20


def test_lateness() -> None:
    """Counts by time, of one size however many there are."""
    late = Lateness()
    assert late.share(0.99) is None
    late.note(1000, [1000] * 98 + [990, 0])
    assert (late.share(0.5), late.share(0.99), late.share(1.0)) == (1, 10, 1000)
