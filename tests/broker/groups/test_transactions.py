"""Positions that count with a transaction, and what transactions leave in the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.groups.reading import GroupReader, hosted_of
from tests.broker.transactions.stage import Stage
from tinymq.errors import UnstablePosition


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """Return a broker with ten messages."""
    found = Stage(tmp_path / "data", 1)
    found.produce(*[b"x"] * 10)
    return found


@pytest.mark.parametrize("commit", [True, False])
def test_decided_with_it(stage: Stage, commit: bool) -> None:
    """A position moves when its transaction is committed, and does not when it is aborted."""
    reader, identity = GroupReader(stage), stage.init()
    reader.taken(5)
    reader.commit(2, 5)
    assert reader.commit(7, 5, transaction=identity) is None
    assert isinstance(reader.committed(6).error, UnstablePosition)
    stage.end(identity, commit=commit)
    found = reader.committed(6)
    assert (found.offset, found.error) == (7 if commit else 2, None)
    assert not hosted_of(stage).positions.held


@pytest.mark.parametrize("sync", ["always", "os"])
def test_over_a_restart(tmp_path: Path, sync: str) -> None:
    """What was held when the broker was killed is decided after the start."""
    stage = Stage(tmp_path / "data", 1)
    stage.meta.alter_topic("t", {"sync": sync})
    stage.produce(*[b"x"] * 10)
    identity = stage.init()
    assert GroupReader(stage).commit(7, transaction=identity) is None
    stage.kill()
    again = stage.again()
    assert [*hosted_of(again).positions.held] == [identity]
    again.end(identity)
    assert GroupReader(again).committed().offset == 7


def test_nobody_decides(stage: Stage) -> None:
    """A transaction that nobody ends is aborted in time, and the partition is free again."""
    identity = stage.init(timeout_ms=5000)
    reader = GroupReader(stage)
    assert reader.commit(7, transaction=identity) is None
    for _ in range(20):
        stage.settle(1)
    found = GroupReader(stage).committed(6)
    assert (found.offset, found.error) == (-1, None)


def test_gaps_keep_no_lag(stage: Stage) -> None:
    """Who has passed what was aborted, and the marks of ends, is not behind."""
    reader, identity = GroupReader(stage), stage.init()
    stage.send(identity, b"a", b"b")
    reader.commit(10)
    (row,) = stage.carry_out("group.info", name="g")["partitions"]
    assert (row["end"], row["lag"], row["lag_s"]) == (10, 0, None), "it is not decided yet"
    stage.end(identity, commit=False)
    end = stage.partition().stable_offset
    assert end == 13
    assert reader.committed().end == end
    assert reader.commit(end) is None
    assert stage.carry_out("group.info", name="g")["group"]["lag"] == 0
