"""Positions of groups that count with a transaction."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.transactions.stage import Stage
from tests.fakes.broker import only_of
from tinymq.broker.transactions.opened import Identity
from tinymq.errors import WireError
from tinymq.wire.messages import Commit, CommitReply, Committed, CommittedReply, error_from_meta


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """Return a broker with some messages."""
    found = Stage(tmp_path / "data", 1)
    found.produce(b"a", b"b", b"c")
    return found


def commit(stage: Stage, offset: int, transaction: Identity | None = None) -> None:
    """Say COMMIT for a group without members."""
    topic_id = stage.meta.describe("t").id
    request = Commit(
        group="g", topics=[(topic_id, [(0, -1, offset, -1, "")])], transaction=transaction
    )
    found: list[CommitReply | WireError] = []
    stage.broker.committing.commit(request, found.append)
    stage.settle()
    reply = only_of(found)
    assert isinstance(reply, CommitReply), reply
    error = reply.topics[0][1][0][1]
    if error is not None:
        raise error_from_meta(error)


def position(stage: Stage) -> int | str:
    """Where the group is, or why nobody knows."""
    topic_id = stage.meta.describe("t").id
    found: list[CommittedReply | WireError] = []
    stage.broker.committing.committed(
        Committed(group="g", topics=[(topic_id, [(0, -1)])]), found.append
    )
    stage.settle()
    reply = only_of(found)
    assert isinstance(reply, CommittedReply), reply
    row = reply.topics[0][1][0]
    return row[1] if row[7] is None else type(error_from_meta(row[7])).__name__


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("kept", [False, True])
def test_it_counts_with_the_transaction(stage: Stage, kept: bool, crash: bool) -> None:
    """It moves the group when the transaction is committed, and not when it is aborted."""
    commit(stage, 1)
    one = stage.init()
    commit(stage, 3, one)
    if crash:
        stage.kill()
        stage = stage.again()
    assert position(stage) == "UnstablePosition"
    stage.end(one, commit=kept)
    assert position(stage) == (3 if kept else 1)
    stage.kill()
    stage = stage.again()
    assert position(stage) == (3 if kept else 1)
    stage.kill()


def test_nobody_ends_it(stage: Stage) -> None:
    """A transaction with nothing but positions is aborted when it takes too long."""
    commit(stage, 1)
    one = stage.init(timeout_ms=3000)
    commit(stage, 2, one)
    for _ in range(6):
        stage.settle(1)
    assert position(stage) == 1


def test_records_and_positions(stage: Stage) -> None:
    """Readers see the records when the group has moved, and not before."""
    one = stage.init()
    commit(stage, 3, one)
    stage.send(one, b"x")
    assert stage.seen() == [b"a", b"b", b"c"]
    stage.end(one)
    assert (position(stage), stage.seen()) == (3, [b"a", b"b", b"c", b"x"])
