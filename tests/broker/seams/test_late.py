"""Batches of transactions that come when nobody remembers their producer any more."""

from __future__ import annotations

from pathlib import Path

from tests.broker.test_cleaning_transactions import Table
from tests.broker.transactions.stage import Stage, transactional
from tests.fakes.broker import Answers, refused
from tinymq.broker.transactions.opened import Identity
from tinymq.errors import TransactionAborted, UnknownProducer


def late(stage: Stage, identity: Identity, key: bytes = b"k") -> Answers:
    """Send the first batch of a transaction once more, its producer forgotten for lack of room."""
    partition = stage.partition()
    partition.producers.restore([])
    answers: Answers = []
    data = transactional(b"late", identity=identity, sequence=0, keys=[key])
    stage.broker.produce(partition.topic.id, 0, data, answers.append)
    stage.settle()
    for _ in range(4):
        stage.settle(2)
    return answers


def test_what_was_committed_stays(tmp_path: Path) -> None:
    """A copy that is aborted takes nothing from the transaction that was committed before."""
    stage = Stage(tmp_path / "data", 1)
    one = stage.init()
    stage.send(one, b"committed")
    stage.end(one)
    late(stage, one)
    assert not stage.partition().transactions.open
    assert stage.seen() == [b"committed"]
    late(stage, one)
    stage.kill()
    stage = stage.again()
    assert stage.seen() == [b"committed"]
    assert stage.partition().stable_offset == stage.partition().high_watermark


def test_what_was_committed_is_not_cleaned_away(tmp_path: Path) -> None:
    """Compaction tells the copy that was aborted from what was committed before."""
    table = Table(tmp_path / "data")
    one = table.stage.init()
    table.put((b"a", b"1"), identity=one)
    table.end(one, commit=True)
    late(table.stage, one, b"a")
    for _ in range(3):
        assert table.seen() == table.newest == {b"a": (0, b"1")}
        table.clean()
    table.kill()
    assert table.seen() == table.newest


def test_what_was_aborted_is_known(tmp_path: Path) -> None:
    """A copy of what was aborted is refused, and what was aborted stays unseen."""
    stage = Stage(tmp_path / "data", 1)
    one = stage.init()
    stage.send(one, b"aborted")
    stage.end(one, commit=False)
    assert isinstance(refused(late(stage, one)), TransactionAborted)
    assert stage.seen() == []


def test_what_is_open_is_known(tmp_path: Path) -> None:
    """A copy of what is open is not stored a second time in the same transaction."""
    stage = Stage(tmp_path / "data", 1)
    one = stage.init()
    stage.send(one, b"open")
    assert isinstance(refused(late(stage, one)), UnknownProducer)
    stage.end(one)
    assert stage.seen() == [b"open"]
