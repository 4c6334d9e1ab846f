"""The parts of transactions by themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.transactions.stage import Stage, transactional
from tests.fakes.broker import HeldSyncer
from tinymq.broker.transactions.bringing import UNKNOWN_SECONDS
from tinymq.broker.transactions.controls import control
from tinymq.broker.transactions.deciding import Decided, Place
from tinymq.broker.transactions.opened import NEVER, Open, Transactions
from tinymq.broker.transactions.producing import Ended, Producing, decoded, encoded
from tinymq.errors import CorruptBatch, StateError, UnknownTopicId, WireError
from tinymq.storage.facts import Chunk
from tinymq.wire.batch import checked_header, read_header, stamp
from tinymq.wire.records import RecordBatch

ONE, TWO = (1, 0), (2, 7)


def stored(identity: tuple[int, int], base: int, *values: bytes) -> bytes:
    """A batch of a transaction as it lies in a log."""
    data = transactional(*values, identity=identity, sequence=0)
    return b"".join(stamp(data, read_header(data), base, 0, 5))


class TestOpened:
    """What a partition knows."""

    def test_the_oldest(self) -> None:
        """The first record of the oldest open one; then of the next."""
        found = Transactions()
        assert found.first == NEVER
        found.begin(ONE, 3, 100)
        found.begin(TWO, 5, 101)
        found.begin(ONE, 8, 102)
        assert (found.first, found.open[ONE]) == (3, Open(3, 100))
        found.end(ONE, 9, 20, aborted=False)
        assert (found.first, found.aborted) == (5, {})
        found.end(TWO, 10, 20, aborted=True)
        assert (found.first, found.aborted) == (NEVER, {TWO: (5, 10)})
        found.end(TWO, 11, 20, aborted=False)
        assert found.aborted

    def test_taking_back(self) -> None:
        """What was not written has not begun."""
        found = Transactions()
        found.begin(ONE, 3, 100)
        found.begin(TWO, 5, 101)
        found.take_back(4)
        assert (found.first, [*found.open]) == (3, [ONE])
        found.take_back(0)
        assert found.first == NEVER

    def test_snapshots(self) -> None:
        """They say what was so at an offset, though more is known by now."""
        found = Transactions()
        found.begin(ONE, 3, 100)
        found.begin(TWO, 5, 101)
        found.end(ONE, 7, 4, aborted=True)
        for offset, opened, aborted in (
            (3, [], []),
            (5, [ONE], []),
            (7, [ONE, TWO], []),
            (8, [TWO], [ONE]),
        ):
            again = Transactions()
            again.restore(found.snapshot(offset))
            assert ([*again.open], [*again.aborted]) == (opened, aborted)
            assert again.first == (again.open[opened[0]].first if opened else NEVER)

    def test_forgetting(self) -> None:
        """Aborted ones are forgotten with their files, the oldest first."""
        found = Transactions()
        for number in range(4):
            found.begin((number, 0), 10 * number, 1)
            found.end((number, 0), 10 * number + 1, 99, aborted=True)
        found.forget(21)
        assert [*found.aborted] == [(2, 0), (3, 0)]

    def test_chunks(self) -> None:
        """Those of a chunk are told, and it is cut before too many."""
        found = Transactions()
        data, base = b"", 0
        for number in range(3):
            data += stored((number, 0), base, b"x")
            found.begin((number, 0), base, 1)
            data += b"".join(control((number, 0), base + 1, 0, 5, aborted=True))
            found.end((number, 0), base + 1, 99, aborted=True)
            base += 2
        chunk = Chunk(data, 0, base)
        assert found.within(chunk, 9) == (chunk, [(0, 0), (1, 0), (2, 0)])
        cut, told = found.within(chunk, 2)
        assert (told, cut.next_offset) == ([(0, 0), (1, 0)], 4)
        assert chunk.data[: len(cut.data)] == cut.data
        assert found.within(Chunk(b"", 6, 6), 9)[1] == []

    def test_control_batches(self) -> None:
        """They check, take one offset, and have nothing in them."""
        data = b"".join(control(TWO, 41, 3, 99, aborted=False))
        header = checked_header(data)
        assert (header.base_offset, header.next_offset, header.records) == (41, 42, 0)
        batch = RecordBatch(data, header)
        assert (list(batch), list(batch.offsets), batch.keys, batch.values) == ([], [], [], [])


class TestProducing:
    """What is written down of a producer."""

    def test_round_trip(self) -> None:
        """All of it is read again."""
        topic = bytes(16)
        one = Producing(17, 3, 1000, 5, "teller", Ended((17, 2), True, "producer", (17, 3)))
        for each in (one, one.after((17, 4), 6, "fence", commit=False), Producing(1, 0, 1, 1)):
            undone: dict[tuple[int, int], list[Place]] = {(17, 2): [(topic, 0), (topic, 3)]}
            assert decoded(encoded(each, undone)) == (each, undone)

    def test_what_is_remembered(self) -> None:
        """The last that its producer ended stays known until the next of these."""
        one = Producing(17, 3, 1000, 5).after((17, 4), 6, "producer", commit=True)
        two = one.after((17, 5), 7, "fence", commit=False)
        three = two.after((17, 6), 8, "timeout", commit=False)
        assert two.told == three.told == one.last
        assert three.after((17, 7), 9, "producer", commit=True).told is None

    @pytest.mark.parametrize("value", [b"", b"\x91\x02", b"\xc1", b"\x98\x01"])
    def test_nonsense(self, value: bytes) -> None:
        """What is no such record is said to be none."""
        with pytest.raises(CorruptBatch):
            decoded(value)


class TestBringing:
    """Decisions on their way."""

    @pytest.fixture
    def stage(self, tmp_path: Path) -> Stage:
        """Return a broker."""
        return Stage(tmp_path / "data", 2)

    def test_a_topic_that_nobody_knows(self, stage: Stage) -> None:
        """It may come yet; if it does not for long, nothing is left to do."""
        done: list[Place] = []
        place = bytes(16), 0
        stage.broker.transacting.bringing.bring(ONE, [place], done.append, commit=True)
        stage.settle(60)
        assert done == []
        for _ in range(120):
            stage.settle(UNKNOWN_SECONDS / 100)
        assert done == [place]

    def test_a_partition_that_there_is_not(self, stage: Stage) -> None:
        """It has nothing to do."""
        done: list[Place] = []
        place = stage.meta.describe("t").id, 9
        stage.broker.transacting.bringing.bring(ONE, [place], done.append, commit=True)
        assert done == [place]

    def test_one_that_fails_keeps_no_other(self, stage: Stage) -> None:
        """What can be done is done, and the rest is tried again."""
        one = stage.init()
        stage.send(one, b"a", index=0)
        stage.send(one, b"b", index=1)
        stage.partition("t", 0).closed = UnknownTopicId("away")
        stage.end(one, [0, 1])
        assert stage.seen(1) == [b"b"]
        (row,) = stage.operate("transaction.list")["transactions"]
        assert row["partitions"] == [{"topic": "t", "partition": 0}]
        stage.partition("t", 0).closed = None
        stage.settle(6)
        assert stage.seen(0) == [b"a"]
        assert stage.operate("transaction.list")["transactions"] == []

    def test_partitions_that_are_not_here(self, stage: Stage) -> None:
        """A broker says what it does not lead."""
        found: list[object] = []
        rows = [Decided((bytes(16), 0), ONE, commit=True)]
        stage.broker.deciding.decide_all(rows, found.extend)
        assert isinstance(found[0], WireError)

    def test_a_ledger_that_cannot_be_read(self, stage: Stage) -> None:
        """Readers see what was decided; whoever decided is told that not all is done."""
        one = stage.init()
        stage.send(one, b"a")
        partition = stage.partition()
        stage.broker.channels._unopened[partition.key] = "it is damaged"
        found: list[WireError | None] = []
        stage.broker.deciding.decide(Decided(partition.key, one, commit=True), found.append)
        stage.settle()
        assert stage.seen() == [b"a"]
        assert isinstance(found[0], StateError)


def test_a_decision_is_on_the_disk(tmp_path: Path) -> None:
    """Before the coordinator forgets a commit, it is on the disk, whatever the topic promises."""
    syncer = HeldSyncer()
    stage = Stage(tmp_path / "data", 1, syncer=syncer)
    stage.topic("os", 1, sync="os")
    partition = stage.partition("os")
    answers: list[object] = []
    data = transactional(b"a", identity=ONE, sequence=0)
    stage.broker.produce(partition.topic.id, 0, data, answers.append)
    stage.settle()
    done: list[object] = []
    stage.broker.deciding.decide(Decided(partition.key, ONE, commit=True), done.append)
    stage.settle()
    assert partition.stable_offset == 2
    assert done == []
    while syncer.groups:
        syncer.release()
        stage.settle()
    assert done == [None]
