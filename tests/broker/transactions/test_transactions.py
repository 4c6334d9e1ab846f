"""Transactions of one broker: what readers see, what producers hear, and what is fenced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from tests.broker.transactions.stage import Stage, transactional
from tests.fakes.broker import Answers, error_of, refused
from tinymq.broker.peek import look
from tinymq.broker.transactions.coordinator import FORGET_MS
from tinymq.broker.transactions.opened import Identity
from tinymq.broker.transactions.places import place_of, place_of_producer
from tinymq.broker.transactions.producing import LAST_EPOCH
from tinymq.errors import (
    InvalidRequest,
    InvalidTransaction,
    NotCoordinator,
    OutOfOrderSequence,
    Overloaded,
    ProducerFenced,
    TransactionAborted,
    UnknownProducer,
    UnknownTopicId,
    WireError,
)
from tinymq.names import TRANSACTIONS
from tinymq.protocol import MOST_ENDS
from tinymq.wire.messages import (
    AHEAD,
    LATEST,
    EndTransaction,
    EndTransactionReply,
    InitProducer,
    InitProducerReply,
    Offsets,
    Produce,
)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """Return a broker."""
    return Stage(tmp_path / "data")


class TestReaders:
    """What readers see of records in transactions."""

    def test_nothing_is_seen_before_it_is_decided(self, stage: Stage) -> None:
        """Records of an open transaction, and all that comes behind them, wait."""
        stage.produce(b"before")
        one = stage.init()
        stage.send(one, b"a", b"b")
        stage.produce(b"behind")
        assert stage.seen() == [b"before"]
        assert stage.partition().stable_offset == 1
        stage.end(one)
        assert stage.seen() == [b"before", b"a", b"b", b"behind"]
        assert stage.partition().stable_offset == stage.partition().high_watermark == 5

    def test_nothing_of_an_aborted_one_is_seen(self, stage: Stage) -> None:
        """However late the abort comes: its records are passed over, others are not."""
        one = stage.init()
        stage.send(one, b"a")
        stage.produce(b"other")
        stage.settle(0.2)
        assert stage.seen() == []
        two = stage.end(one, commit=False)
        assert stage.seen() == [b"other"]
        stage.send(two, b"c")
        stage.end(two)
        assert stage.seen() == [b"other", b"c"]

    def test_all_partitions_together(self, stage: Stage) -> None:
        """A commit counts in every partition that it names."""
        one = stage.init()
        stage.send(one, b"a", index=0)
        stage.send(one, b"b", index=1)
        stage.end(one, [0, 1])
        assert (stage.seen(0), stage.seen(1)) == ([b"a"], [b"b"])

    def test_uncommitted(self, stage: Stage) -> None:
        """Who wants uncommitted records sees all, and is told of no aborted ones."""
        one = stage.init()
        stage.send(one, b"a")
        got = stage.fetch(("t", 0, 0), max_wait_ms=0, uncommitted=True)
        assert (got.values, got.rows[0][1]) == ([b"a"], 1)
        stage.end(one, commit=False)
        got = stage.fetch(("t", 0, 0), max_wait_ms=0, uncommitted=True)
        assert got.reply is not None
        assert (got.values, got.reply.aborted) == ([b"a"], None)

    def test_a_waiting_reader_is_woken(self, stage: Stage) -> None:
        """A long poll ends when the stable offset rises, and not before."""
        one = stage.init()
        got = stage.fetch(("t", 0, 0), max_wait_ms=50_000)
        stage.send(one, b"a")
        assert got.reply is None
        stage.end(one)
        assert got.values == [b"a"]

    def test_latest(self, stage: Stage) -> None:
        """The latest offset is that of the last that can be seen."""
        one = stage.init()
        stage.produce(b"x")
        stage.send(one, b"a")
        topic_id = stage.meta.describe("t").id
        found = stage.broker.offsets(Offsets(topic_id=topic_id, queries=[(0, LATEST)]))
        assert found.results[0][1] == 1

    def test_many_aborted_ones(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        """An answer names no more than fit, and ends before the first that does not."""
        monkeypatch.setattr("tinymq.broker.reading.MOST_ABORTED", 2)
        one = stage.init()
        for number in range(5):
            stage.send(one, b"%d" % number)
            one = stage.end(one, commit=False)
        got = stage.fetch(("t", 0, 0), max_wait_ms=0)
        assert got.reply is not None
        assert got.reply.aborted is not None
        assert len(got.reply.aborted[0][2]) == 2
        assert got.rows[0][3] == 4
        assert stage.seen() == []

    def test_browsing(self, stage: Stage) -> None:
        """People see what readers see."""
        one = stage.init()
        stage.send(one, b"a")
        two = stage.end(one, commit=False)
        stage.send(two, b"b")
        stage.end(two)
        stage.send(stage.init(), b"open")
        seen = look(stage.partition(), 0, 10, 1 << 20)
        assert ([each.value for each, _ in seen.records], seen.end) == ([b"b"], 4)
        rows = stage.operate("topic.info", name="t")["topic"]["partitions"]
        assert rows[0]["end"] == 4

    def test_purge(self, stage: Stage) -> None:
        """A purge takes what can be seen, and leaves an open transaction alone."""
        stage.produce(b"x")
        one = stage.init()
        stage.send(one, b"a")
        stage.operate("topic.purge", name="t")
        assert stage.partition().log.start_offset == 1
        stage.end(one)
        assert stage.seen() == [b"a"]

    def test_a_topic_in_memory(self, tmp_path: Path) -> None:
        """Topics in memory have transactions, too; what had to go of an open one is gone."""
        stage = Stage(tmp_path / "data")
        stage.meta.delete_topic("t")
        stage.topic("t", 1, storage="memory", memory_bytes=65_536)
        one = stage.init()
        stage.send(one, b"a" * 40_000)
        assert stage.seen() == []
        two = stage.end(one)
        assert stage.seen() == [b"a" * 40_000]
        stage.send(two, b"b" * 40_000)
        stage.send(two, b"c" * 40_000)
        partition = stage.partition()
        assert partition.stable_offset == partition.log.start_offset
        stage.end(two)
        assert stage.seen() == [b"c" * 40_000]


class TestProducers:
    """What producers of transactions hear."""

    def test_identities(self, stage: Stage) -> None:
        """Each transaction has the next epoch; the producer id says where it is looked after."""
        one = stage.init()
        assert place_of_producer(one[0]) == place_of("bank")
        assert stage.end(one, []) == (one[0], one[1] + 1)
        # Nobody has the identities that the fenced one may have begun to use.
        assert stage.init() == (one[0], one[1] + 1 + AHEAD)
        assert stage.init("other")[0] != one[0]

    def test_several(self, stage: Stage) -> None:
        """Transactions that follow each other are committed together, each where it has records."""
        one = stage.init()
        two, three, four = ((one[0], one[1] + at) for at in (1, 2, 3))
        stage.send(one, b"a", index=0)
        stage.send(two, b"b", index=1)
        stage.send(three, b"c", index=0)
        topic_id = stage.meta.describe("t").id
        found: list[EndTransactionReply | WireError] = []

        def say(count: int, identity: Identity = one, *, commit: bool = True) -> Any:
            places = [[(topic_id, [0])], [(topic_id, [1])], [(topic_id, [0])]][:count]
            request = EndTransaction(
                transactional_id="bank",
                transaction=identity,
                commit=commit,
                topics=places[0],
                more=places[1:],
            )
            stage.broker.transacting.end(request, found.append)
            stage.settle()
            reply = found.pop()
            return reply.identity if isinstance(reply, EndTransactionReply) else type(reply)

        assert say(2, commit=False) is InvalidTransaction
        assert say(3) == four
        assert stage.seen(0) == [b"a", b"c"]
        assert stage.seen(1) == [b"b"]
        assert say(3) == four  # the answer may have been lost
        for other in (1, 2):
            assert say(other) is InvalidTransaction, other
        assert say(1, two) is ProducerFenced
        stage.put(four, b"d")
        assert say(1, four) == (four[0], four[1] + 1)

    def test_several_of_the_last_epochs(self, stage: Stage) -> None:
        """Nothing is committed of a run that goes beyond the last epoch."""
        one = stage.init()
        (entry,) = [
            each for seat in stage.broker.transacting.seats for each in seat._by_producer.values()
        ]
        assert entry.state is not None
        entry.state = evolve(entry.state, epoch=LAST_EPOCH - 1)
        last = one[0], LAST_EPOCH - 1
        found: list[EndTransactionReply | WireError] = []
        for more, wanted in ((2, InvalidTransaction), (1, EndTransactionReply)):
            found.clear()
            request = EndTransaction(
                transactional_id="bank", transaction=last, commit=True, topics=[], more=[[]] * more
            )
            for _ in range(2):
                stage.broker.transacting.end(request, found.append)
                stage.settle()
            assert [type(each) for each in found] == [wanted] * 2
        reply = found[0]
        assert isinstance(reply, EndTransactionReply)
        assert reply.identity[0] != one[0]

    def test_nobody_ends_those_behind(self, stage: Stage) -> None:
        """What was begun ahead gets free, too, when its producer dies: also behind an empty one."""
        one = stage.init(timeout_ms=3000)
        stage.send((one[0], one[1] + 1), b"x")
        stage.send((one[0], one[1] + 2), b"y", index=1)
        stage.settle(2)
        assert stage.partition("t", 0).transactions.open
        for _ in range(5):
            stage.settle(1)
        assert not stage.partition("t", 0).transactions.open
        assert not stage.partition("t", 1).transactions.open
        assert stage.seen(0) == stage.seen(1) == []
        following = stage.init()
        assert following[1] >= one[1] + 2 * AHEAD

    def test_the_last_epoch(self, stage: Stage) -> None:
        """Behind the last epoch comes another producer id of the same place."""
        one = stage.init()
        seats = stage.broker.transacting.seats
        (entry,) = [each for seat in seats for each in seat._by_producer.values()]
        assert entry.state is not None
        entry.state = entry.state.after((one[0], 32_767), 0, "producer", commit=True)
        two = stage.end((one[0], 32_767), [])
        assert (two[0] != one[0], two[1]) == (True, 0)
        assert place_of_producer(two[0]) == place_of_producer(one[0])
        stage.send(two, b"a")
        stage.end(two)
        assert stage.seen() == [b"a"]

    def test_repeats_of_batches(self, stage: Stage) -> None:
        """A batch that comes again is answered with its offset, also after the decision."""
        one = stage.init()
        stage.produce(b"x")
        stage.send(one, b"a")
        for _ in range(2):
            stage.sequences.clear()
            assert stage.send(one, b"a") == 1
            stage.end(one)
        assert stage.seen() == [b"x", b"a"]

    def test_repeats_of_the_end(self, stage: Stage) -> None:
        """An end that is said again is answered alike; the contrary is refused."""
        one = stage.init()
        stage.send(one, b"a")
        two = stage.end(one)
        assert stage.end(one) == two
        with pytest.raises(InvalidTransaction):
            stage.end(one, commit=False)
        three = stage.end(two, commit=False)
        assert stage.end(two, commit=False) == three
        with pytest.raises(TransactionAborted):
            stage.end(two)
        with pytest.raises(ProducerFenced):
            stage.end(one)

    def test_said_twice_at_once(self, stage: Stage) -> None:
        """An end that comes again before the first is on the disk waits for it."""
        one = stage.init()
        stage.send(one, b"a")
        found = [*stage.ending(one), *stage.ending(one)]
        assert found == []
        first, second = stage.ending(one), stage.ending(one)
        stage.settle()
        assert first == second

    def test_very_many_at_once(self, stage: Stage) -> None:
        """However many wait for one name, each has its answer."""
        one = stage.init()
        found = [stage.ending((one[0], one[1] + 9)) for _ in range(3000)]
        first = stage.ending(one, [])
        found += [stage.ending((one[0], one[1] + 9)) for _ in range(3000)]
        stage.settle()
        assert isinstance(first[0], EndTransactionReply)
        assert all(isinstance(each[0], InvalidTransaction) for each in found)

    def test_fencing(self, stage: Stage) -> None:
        """A second producer of the name ends the first, whose transaction is aborted."""
        one = stage.init()
        stage.send(one, b"a")
        two = stage.init()
        with pytest.raises(ProducerFenced):
            stage.end(one)
        with pytest.raises(ProducerFenced):
            stage.end(one, commit=False)
        stage.send(two, b"b")
        assert isinstance(refused_now(stage, one), ProducerFenced)
        stage.end(two)
        stage.settle(2.5)
        assert stage.seen() == [b"b"]

    def test_too_late(self, stage: Stage) -> None:
        """A transaction that is over takes no more records."""
        one = stage.init()
        stage.send(one, b"a")
        stage.end(one, commit=False)
        assert isinstance(refused_now(stage, one), TransactionAborted)
        two = (one[0], one[1] + 1)
        stage.send(two, b"b")
        stage.end(two)
        assert isinstance(refused_now(stage, two), InvalidTransaction)

    def test_order_within(self, stage: Stage) -> None:
        """Every transaction begins at sequence 0, and has no gaps."""
        one = stage.init()
        stage.sequences[one, 0] = 5
        with pytest.raises(WireError):
            stage.send(one, b"x")
        stage.sequences[one, 0] = 0
        stage.send(one, b"a")
        stage.sequences[one, 0] = 2
        with pytest.raises(OutOfOrderSequence):
            stage.send(one, b"x")

    def test_the_table_of_producers_stays_small(self, stage: Stage) -> None:
        """However many transactions a producer had, it is remembered once."""
        one = stage.init()
        for _ in range(50):
            stage.send(one, b"a")
            one = stage.end(one)
        assert len(stage.partition().producers) == 1
        assert stage.partition().transactions.open == {}

    def test_what_cannot_be_part_of_it(self, stage: Stage) -> None:
        """Messages that are not due, and batches of nobody, are refused."""
        one = stage.init()
        topic_id = stage.meta.describe("t").id
        for given in ({"dues": [1]}, {}):
            identity, sequence = (one, 0) if given else ((-1, -1), -1)
            data = transactional(b"x", identity=identity, sequence=sequence, **given)
            answers: Answers = []
            stage.broker.produce(topic_id, 0, data, answers.append)
            assert isinstance(refused(answers), InvalidTransaction)

    def test_errors(self, stage: Stage) -> None:
        """What nobody knows is refused by name."""
        one = stage.init()
        with pytest.raises(UnknownProducer):
            stage.end(one, name="nobody")
        with pytest.raises(InvalidTransaction):
            stage.end((one[0], one[1] + 7))
        with pytest.raises(WireError):
            stage.end(one, [99])

    def test_a_topic_that_was_deleted(self, stage: Stage) -> None:
        """It keeps no transaction from being committed elsewhere."""
        one = stage.init()
        stage.send(one, b"a")
        topic = stage.meta.describe("t")
        stage.meta.delete_topic("t")
        stage.topic("t", 2)
        found: list[EndTransactionReply | WireError] = []
        for topic_id in (topic.id, bytes(16)):
            stage.broker.transacting.end(
                EndTransaction(
                    transactional_id="bank",
                    transaction=one,
                    commit=True,
                    topics=[(topic_id, [0])],
                ),
                found.append,
            )
            stage.settle()
        assert not isinstance(found[0], WireError)
        assert isinstance(found[1], UnknownTopicId)


def refused_now(stage: Stage, identity: tuple[int, int]) -> WireError:
    """Publish in a transaction, and return why that is refused."""
    answers = stage.put(identity, b"late")
    stage.settle()
    return refused(answers)


class TestTime:
    """Transactions that nobody ends."""

    def test_time_out(self, stage: Stage) -> None:
        """A transaction that takes too long is aborted, and its producer hears of it."""
        one = stage.init(timeout_ms=5000)
        stage.send(one, b"a")
        stage.settle(4)
        assert stage.seen() == []
        assert stage.partition().transactions.open
        for _ in range(4):
            stage.settle(1)
        assert not stage.partition().transactions.open
        with pytest.raises(TransactionAborted):
            stage.end(one)
        two = stage.end(one, commit=False)
        stage.send(two, b"b")
        stage.end(two)
        assert stage.seen() == [b"b"]

    def test_one_that_nobody_knows(self, stage: Stage) -> None:
        """A transaction of no producer that was ever named is aborted by itself."""
        stage.send((4711, 3), b"a")
        for _ in range(4):
            stage.settle(1)
        assert not stage.partition().transactions.open
        assert stage.seen() == []

    def test_forgetting(self, stage: Stage) -> None:
        """Producers that were idle for very long are forgotten, unless something is open."""
        one, two = stage.init(), stage.init("busy", 24 * 3_600_000)
        stage.send(two, b"a")
        stage.settle(2)
        stage.wall.now_ms += FORGET_MS + 1
        for seat in stage.broker.transacting.seats:
            seat.forget_idle()
        stage.settle()
        with pytest.raises(UnknownProducer):
            stage.end(one)
        assert stage.end(two, name="busy")

    def test_people(self, stage: Stage) -> None:
        """People see what is open, and abort it."""
        one = stage.init()
        stage.send(one, b"a", index=1)
        stage.settle(2)
        (row,) = stage.operate("transaction.list")["transactions"]
        assert (row["transactional_id"], row["state"]) == ("bank", "open")
        assert (row["producer_id"], row["epoch"], row["client"]) == (*one, "test")
        assert row["partitions"] == [{"topic": "t", "partition": 1}]
        stage.carry_out("transaction.abort", transactional_id="bank", dry_run=True)
        assert stage.operate("transaction.list")["transactions"]
        stage.carry_out("transaction.abort", transactional_id="bank")
        stage.settle(1)
        assert stage.operate("transaction.list")["transactions"] == []
        assert not stage.partition("t", 1).transactions.open
        with pytest.raises(TransactionAborted):
            stage.end(one)


class TestOwnTopic:
    """The topic in which it is kept."""

    def test_it_is_nobody_elses(self, stage: Stage) -> None:
        """People publish nothing to it, and change nothing of it."""
        stage.init()
        answers = stage.produce(b"x", topic=TRANSACTIONS)
        assert isinstance(refused(answers), InvalidRequest)
        for operation, given in (
            ("topic.delete", {}),
            ("topic.purge", {}),
            ("topic.alter", {"config": {"retention.ms": 1}}),
            ("topic.create", {}),
        ):
            with pytest.raises(WireError):
                stage.operate(operation, name=TRANSACTIONS, **given)

    def test_another_coordinator(self, stage: Stage) -> None:
        """A broker that does not look after a name says who does."""
        stage.init()
        stage.broker.id = 2
        with pytest.raises(NotCoordinator) as caught:
            stage.init()
        assert caught.value.data == {"broker": 1}


class TestWire:
    """What a connection asks."""

    def test_a_whole_transaction(self, stage: Stage) -> None:
        """INIT_PRODUCER, PRODUCE and END_TRANSACTION, as they travel."""
        connection = stage.connect(client_id="teller")
        connection.post(InitProducer(transactional_id="bank"))
        stage.settle()
        (frame,) = connection.frames()
        reply = InitProducerReply.from_meta(frame.split()[0])
        identity = reply.producer_id, reply.epoch
        topic_id = stage.meta.describe("t").id
        data = transactional(b"a", identity=identity, sequence=0)
        connection.post(Produce(topic_id=topic_id, partition=0), data)
        stage.settle(2)
        connection.frames()
        (row,) = stage.operate("transaction.list")["transactions"]
        assert row["client"] == "teller"
        ending = EndTransaction(
            transactional_id="bank", transaction=identity, commit=True, topics=[(topic_id, [0])]
        )
        connection.post(ending)
        stage.settle()
        (frame,) = connection.frames()
        found = EndTransactionReply.from_meta(frame.split()[0])
        assert found.identity == (identity[0], identity[1] + 1)
        assert stage.seen() == [b"a"]

    def test_too_many_at_once(self, stage: Stage) -> None:
        """A connection that asks without waiting is told so."""
        connection = stage.connect()
        for _ in range(MOST_ENDS + 1):
            connection.post(InitProducer(transactional_id="bank"))
        (frame,) = connection.frames()
        assert isinstance(error_of(frame), Overloaded)
        stage.settle()
        assert len(connection.frames()) == MOST_ENDS
