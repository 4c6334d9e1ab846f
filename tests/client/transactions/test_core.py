"""Transactional producers without I/O, against a puppet that is a coordinator."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from tests.client.puppet import CoreNetwork
from tests.client.transactions.banker import Banker
from tinymq.client.core.address import Address
from tinymq.client.core.config import ProducerConfig
from tinymq.client.core.lane import Lane
from tinymq.client.core.transactions.producing import TransactionsCore
from tinymq.client.core.transactions.transaction import Stage, TransactionCore
from tinymq.errors import (
    ClosedError,
    DeadlineExceeded,
    FencedGeneration,
    InternalError,
    InvalidTransaction,
    ProducerFenced,
    StateError,
    StorageFull,
    TinyMQError,
    TransactionAborted,
    UnknownProducer,
    UsageError,
    WireError,
)
from tinymq.wire.batch import TRANSACTIONAL
from tinymq.wire.header import MessageType
from tinymq.wire.messages import (
    AHEAD,
    Commit,
    EndTransaction,
    InitProducer,
    Message,
    Produce,
    error_meta,
)

SECOND = Address("127.0.0.2", 7800)


class Stand:
    """A producer of transactions on a puppet network."""

    def __init__(self, **config: Any) -> None:
        self.banker = Banker()
        self.net = CoreNetwork(self.banker)
        self.banker.make("t", 2)
        self.cluster = self.net.cluster()
        self.core = TransactionsCore(
            self.cluster, "one", ProducerConfig(**config), 60.0, lambda *_: None, self.clock
        )
        self.told: list[TinyMQError | None] = []

    def clock(self) -> float:
        """Tell the time."""
        return self.net.now

    def begin(self) -> TransactionCore:
        """Begin a transaction."""
        return self.core.begin(self.net.now)

    def send(self, one: TransactionCore, *values: bytes, partition: int = 0) -> None:
        """Send records with it."""
        one.desk.append_many("t", values, None, None, partition, lambda _: None, self.net.now)

    def commit(self, one: TransactionCore, within: float = 30.0) -> None:
        """Commit it; what comes of it is in `told`."""
        one.commit(self.told.append, self.net.now, self.net.now + within)

    def work(self, *values: bytes) -> TransactionCore:
        """Send and commit some values."""
        one = self.begin()
        self.send(one, *values)
        self.commit(one)
        return one

    def ends(self) -> list[EndTransaction]:
        """Every END_TRANSACTION that was seen."""
        return [each for each in self.banker.seen if isinstance(each, EndTransaction)]


@pytest.fixture
def stand() -> Stand:
    """Return a producer of transactions."""
    return Stand()


class TestWay:
    def test_what_travels(self, stand: Stand) -> None:
        """Batches say that they are part of it, under its identity; the end names all places."""
        one = stand.work(b"a", b"b")
        stand.net.pump()
        assert stand.told == [None]
        assert one.stage is Stage.COMMITTED
        log = stand.banker.topics["t"].logs[0]
        (header,) = log.headers
        assert header.attributes & TRANSACTIONAL
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (16, 0, 0)
        (end,) = stand.ends()
        assert end.topics == [(stand.banker.topics["t"].id, [0])]
        assert end.commit
        assert [
            each.timeout_ms for each in stand.banker.seen if isinstance(each, InitProducer)
        ] == [60_000]

    def test_identities(self, stand: Stand) -> None:
        """Each transaction has the identity that the end of the last gave, from sequence 0."""
        for _ in range(3):
            stand.work(b"x")
            stand.net.pump()
        assert stand.banker.ended == [((16, 0), True), ((16, 1), True), ((16, 2), True)]
        headers = stand.banker.topics["t"].logs[0].headers
        assert [(each.producer_epoch, each.base_sequence) for each in headers] == [
            (0, 0),
            (1, 0),
            (2, 0),
        ]

    def test_ahead(self, stand: Stand) -> None:
        """The next ones are sent while one is decided, and then decided together."""
        first = stand.begin()
        stand.net.pump()
        stand.banker.mute.add(MessageType.END_TRANSACTION)
        stand.send(first, b"a")
        stand.commit(first)
        second = stand.work(b"b")
        third = stand.work(b"c")
        stand.net.pump()
        assert stand.banker.values("t") == [b"a", b"b", b"c"]
        assert (first.stage, second.stage, third.stage) == (
            Stage.ENDING,
            Stage.READY,
            Stage.READY,
        )
        assert len(stand.ends()) == 1
        stand.banker.mute.clear()
        stand.net.advance(30)
        assert stand.told == [None] * 3
        assert [epoch for (_, epoch), _ in stand.banker.ended] == [0, 1, 2]
        assert [len(each.more) for each in stand.ends()] == [0, 0, 1]

    def test_as_many_as_are_known(self, stand: Stand) -> None:
        """No more are under way than identities that nobody else is given."""
        stand.net.pump()
        stand.banker.mute.add(MessageType.END_TRANSACTION)
        every = [stand.work(b"%d" % number) for number in range(AHEAD + 3)]
        stand.net.pump()
        assert len(stand.banker.values("t")) == AHEAD
        assert every[AHEAD].identity is None
        stand.banker.mute.clear()
        stand.net.advance(30)
        assert stand.told == [None] * (AHEAD + 3)
        assert [epoch for (_, epoch), _ in stand.banker.ended] == [*range(AHEAD + 3)]

    def test_empty_in_between(self, stand: Stand) -> None:
        """One with nothing in it has its turn, so that those behind have their identities."""
        stand.net.pump()
        stand.banker.mute.add(MessageType.END_TRANSACTION)
        stand.work(b"a")
        stand.work(b"b")
        stand.commit(stand.begin())
        stand.work(b"c")
        stand.net.pump()
        stand.banker.mute.clear()
        stand.net.advance(30)
        assert stand.told == [None] * 4
        assert stand.banker.values("t") == [b"a", b"b", b"c"]

    def test_order_after_a_failure(self, stand: Stand) -> None:
        """What has to be written again is written before anything of the next transaction."""
        stand.net.pump()
        refusals: list[WireError] = [StorageFull("no room")]

        def refuse(request: Message) -> WireError | None:
            return refusals.pop() if isinstance(request, Produce) and refusals else None

        stand.banker.refuse = refuse
        first, second = stand.work(b"a"), stand.begin()
        stand.net.pump()
        stand.send(second, b"b")
        stand.commit(second)
        stand.net.pump()
        assert not stand.banker.values("t")
        stand.net.advance(30)
        assert stand.told == [None, None]
        assert stand.banker.values("t") == [b"a", b"b"]
        assert first.identity is not None
        assert second.identity == (first.identity[0], first.identity[1] + 1)

    def test_order_over_several(self, stand: Stand) -> None:
        """What waits for a transaction waits also behind one that goes elsewhere."""
        stand.net.pump()
        refusals: list[WireError] = [StorageFull("no room")]

        def refuse(request: Message) -> WireError | None:
            return refusals.pop() if isinstance(request, Produce) and refusals else None

        stand.banker.refuse = refuse
        stand.work(b"a")
        for value, partition in ((b"b", 1), (b"c", 0)):
            one = stand.begin()
            stand.net.pump()
            stand.send(one, value, partition=partition)
            stand.commit(one)
        stand.net.pump()
        stand.net.advance(30)
        assert stand.told == [None] * 3
        assert stand.banker.values("t", 0) == [b"a", b"c"]

    def test_nobody_waits_any_longer(self, stand: Stand) -> None:
        """What it has is told after its deadline, too: nobody knows yet, and then it counts."""
        stand.banker.mute.add(MessageType.INIT_PRODUCER)
        one = stand.begin()
        one.positions("billing", {("t", 0): 17})
        stand.commit(one, within=1.0)
        stand.net.advance(2)
        assert [type(error) for error in stand.told] == [DeadlineExceeded]
        stand.banker.mute.clear()
        stand.net.advance(60)
        assert len(stand.banker.commits) == 1
        assert one.stage is Stage.COMMITTED

    def test_aborted_together(self, stand: Stand) -> None:
        """If the first was aborted by others, those that were to be decided with it are, too."""
        stand.net.pump()
        stand.banker.mute.add(MessageType.END_TRANSACTION)
        for value in (b"a", b"b", b"c"):
            stand.work(value)
        stand.net.pump()
        stand.banker.aborts.add((16, 0))
        stand.banker.mute.clear()
        stand.net.advance(30)
        assert [type(error) for error in stand.told] == [TransactionAborted] * 3
        stand.work(b"d")
        stand.net.advance(5)
        assert stand.told[3:] == [None]
        assert len([each for each in stand.banker.seen if isinstance(each, InitProducer)]) == 2

    @pytest.mark.parametrize("how", ["aborts", "fences", "closes"])
    def test_very_many_aborted_together(self, stand: Stand, how: str) -> None:
        """However many are begun: they fail in their order, one after the other."""
        stand.net.pump()
        stand.banker.mute.add(MessageType.END_TRANSACTION)
        every = [stand.work(b"%d" % number) for number in range(1000)]
        order: list[int] = []
        for number, one in enumerate(every):
            one._ended = lambda error, number=number: order.append(number)
        stand.net.pump()
        if how == "aborts":
            stand.banker.aborts.add((16, 0))
        elif how == "fences":
            stand.banker.current["one"] = (16, 10 * AHEAD)
        else:
            stand.cluster.close(stand.net.now)
        stand.banker.mute.clear()
        stand.net.advance(20)
        assert order == [*range(1000)]
        assert not stand.core._chain

    def test_begun_when_it_is_told(self, stand: Stand) -> None:
        """Who hears that one was aborted may begin anew: that one does not fail with the others."""
        stand.net.pump()
        stand.banker.mute.add(MessageType.END_TRANSACTION)
        first = stand.work(b"a")
        for value in (b"b", b"c"):
            stand.work(value)
        stand.net.pump()

        def again(error: TinyMQError | None) -> None:
            stand.work(b"d")

        first._ended = again
        stand.banker.aborts.add((16, 0))
        stand.banker.mute.clear()
        stand.net.advance(30)
        assert [type(error) for error in stand.told] == [TransactionAborted] * 2 + [type(None)]
        assert stand.banker.values("t")[-1] == b"d"

    def test_last_epoch(self, stand: Stand) -> None:
        """Nobody knows what comes behind the last epoch before it is told."""
        stand.net.pump()
        stand.core._identity = (16, 32_767)
        stand.banker.current["one"] = (16, 32_767)
        stand.banker.mute.add(MessageType.END_TRANSACTION)
        stand.work(b"a")
        stand.work(b"b")
        stand.net.pump()
        assert stand.banker.values("t") == [b"a"]

    def test_empty_behind_the_last_epoch(self, stand: Stand) -> None:
        """One with nothing in it, of which nobody knows who it is, is not decided with others."""
        stand.net.pump()
        stand.core._identity = stand.banker.current["one"] = (16, 32_766)
        stand.banker.mute.add(MessageType.END_TRANSACTION)
        stand.work(b"a")
        stand.work(b"b")
        stand.commit(stand.begin())
        stand.net.pump()
        stand.banker.mute.clear()
        stand.net.advance(40)
        assert stand.told == [None] * 3
        assert [epoch for (_, epoch), _ in stand.banker.ended] == [32_766, 32_767]

    def test_several_partitions(self, stand: Stand) -> None:
        """All places are named once, where it has records or positions."""
        one = stand.begin()
        stand.send(one, b"a", partition=1)
        stand.send(one, b"b", partition=1)
        one.positions("billing", {("t", 0): 17, ("t", 1): 18})
        stand.commit(one)
        stand.net.pump()
        assert stand.told == [None]
        (commit,) = stand.banker.commits
        assert commit.transaction == (16, 0)
        assert (commit.group, commit.member) == ("billing", "")
        (row,) = commit.topics
        assert sorted(row[1]) == [(0, -1, 17, -1, ""), (1, -1, 18, -1, "")]
        assert stand.ends()[0].topics == [(stand.banker.topics["t"].id, [0, 1])]

    @pytest.mark.parametrize("how", ["seal", "drain"])
    def test_closed_while_the_first_is_written(
        self, stand: Stand, monkeypatch: pytest.MonkeyPatch, how: str
    ) -> None:
        """A link that fails as soon as it is written to has open batches closed meanwhile."""
        stand.net.pump()
        one = stand.begin()
        for partition in (0, 1):
            one.desk.append("t", b"x", None, None, partition, None, stand.net.now, None)
        stand.net.pump()
        for partition in (0, 1):
            one.desk.append("t", b"x", None, None, partition, None, stand.net.now, None)
        gathering = one.desk.gathering
        drain = Lane.drain
        drained: list[int] = []

        def failing(lane: Lane, now: float) -> None:
            drained.append(lane.partition)
            if len(drained) == 1:
                gathering.drain(inf)
            drain(lane, now)

        monkeypatch.setattr(Lane, "drain", failing)
        getattr(gathering, how)(inf if how == "drain" else stand.net.now)
        monkeypatch.undo()
        assert {*drained} == {0, 1}
        stand.commit(one)
        stand.net.advance(1)
        assert stand.told == [None]

    def test_wrong_positions(self, stand: Stand) -> None:
        """What is no position is refused at once."""
        one = stand.begin()
        wrong: list[Any] = [{"t": 1}, {("t", -1): 1}, {("t", 0): -1}, {("t", 0): "1"}, {(1, 0): 1}]
        for each in wrong:
            with pytest.raises(UsageError, match="mapping of"):
                one.positions("g", each)


class TestCoordinator:
    def test_elsewhere(self, stand: Stand) -> None:
        """Another broker that is named is asked, also one that nobody knew."""
        other = Banker(2)
        stand.net.puppets[SECOND] = other
        stand.banker.coordinator = 2
        stand.banker.brokers = [
            (1, "127.0.0.1", 7800, "one"),
            (2, str(SECOND.host), SECOND.port, "two"),
        ]
        other.brokers = stand.banker.brokers
        stand.work(b"a")
        stand.net.advance(5)
        assert stand.told == [None]
        assert other.ended == [((16, 0), True)]
        assert not stand.banker.ended

    def test_moves(self, stand: Stand) -> None:
        """When the coordinator is away another one is asked for, until one answers."""
        one = stand.begin()
        stand.send(one, b"a")
        stand.net.pump()
        refusals: list[WireError] = [StateError("loading"), StateError("loading")]

        def refuse(request: Message) -> WireError | None:
            return refusals.pop() if isinstance(request, EndTransaction) and refusals else None

        stand.banker.refuse = refuse
        stand.commit(one)
        stand.net.pump()
        assert stand.told == []
        stand.net.advance(5)
        assert stand.told == [None]

    @pytest.mark.parametrize("deliver", [True, False])
    def test_lost_end(self, stand: Stand, deliver: bool) -> None:
        """An end whose answer is lost is sent again, and answered like the first."""
        one = stand.begin()
        stand.send(one, b"a")
        stand.net.pump()
        stand.banker.mute.add(MessageType.END_TRANSACTION)
        stand.commit(one)
        if deliver:
            stand.net.pump()
        stand.net.cut()
        stand.banker.mute.clear()
        stand.net.advance(10)
        assert stand.told == [None]
        assert stand.banker.ended == [((16, 0), True)]
        stand.work(b"b")
        stand.net.advance(1)
        assert stand.told == [None, None]

    def test_internal(self, stand: Stand) -> None:
        """After an error that says nothing about the outcome it is asked again."""
        one = stand.begin()
        stand.send(one, b"a")
        stand.net.pump()
        errors: list[WireError] = [InternalError()]

        def refuse(request: Message) -> WireError | None:
            return errors.pop() if isinstance(request, EndTransaction) and errors else None

        stand.banker.refuse = refuse
        stand.commit(one)
        stand.net.advance(10)
        assert stand.told == [None]

    def test_nobody_answers(self, stand: Stand) -> None:
        """After its time a commit says that nobody knows; the producer goes on asking."""
        one = stand.begin()
        stand.send(one, b"a")
        stand.net.pump()
        stand.banker.mute.add(MessageType.END_TRANSACTION)
        stand.commit(one, within=20)
        stand.net.advance(25)
        (error,) = stand.told
        assert isinstance(error, DeadlineExceeded)
        assert "nobody knows yet" in str(error)
        assert one.stage.value == "ending"
        stand.banker.mute.clear()
        stand.net.advance(20)
        assert one.stage.value == "committed"
        assert stand.told == [error]


class TestFailures:
    def test_aborted(self, stand: Stand) -> None:
        """What was aborted meanwhile raises, and so does what was begun behind it."""
        one = stand.begin()
        stand.send(one, b"a")
        stand.net.pump()
        stand.banker.aborts.add((16, 0))
        stand.commit(one)
        following = stand.work(b"b")
        stand.net.advance(5)
        assert [type(each) for each in stand.told] == [TransactionAborted] * 2
        assert following.stage is Stage.ABORTED
        assert not stand.banker.ended
        stand.work(b"again")
        stand.net.advance(5)
        assert stand.told[2] is None
        ((identity, commit),) = stand.banker.ended
        assert commit
        assert identity[1] > 1, "nobody else ever had it"

    @pytest.mark.parametrize("error", [StorageFull(), InvalidTransaction()])
    def test_a_record(self, error: WireError) -> None:
        """A record that cannot be stored makes all of it fail; the error says why."""
        stand = Stand(deadline_s=5.0)
        bad: list[bool] = [True]
        stand.banker.refuse = lambda request: (
            error if isinstance(request, Produce) and bad else None
        )
        stand.work(b"a")
        stand.net.advance(10)
        (told,) = stand.told
        assert isinstance(told, TransactionAborted)
        assert type(told.__cause__) is type(error)
        assert stand.banker.ended == [((16, 0), False)]
        bad.clear()
        stand.work(b"b")
        stand.net.advance(1)
        assert stand.told[1] is None
        assert stand.banker.values("t") == [b"b"]

    def test_lost_partition(self, stand: Stand) -> None:
        """A partition that knows nothing of it any more cannot be mended."""
        one = stand.begin()
        stand.send(one, b"a")
        stand.net.pump()
        log = stand.banker.topics["t"].logs[0]
        log.producers.clear()
        stand.send(one, b"b")
        stand.commit(one)
        stand.net.advance(5)
        (told,) = stand.told
        assert isinstance(told, TransactionAborted)
        assert isinstance(told.__cause__, UnknownProducer)
        assert stand.banker.ended == [((16, 0), False)]

    def test_a_position(self, stand: Stand) -> None:
        """A position that is refused makes all of it fail."""
        fault = error_meta(FencedGeneration("somebody else has it"))
        carry_out = stand.banker._message

        def message(request: Message, payload: Any) -> Message | None:
            reply: Any = carry_out(request, payload)
            if isinstance(request, Commit):
                reply.topics = [(reply.topics[0][0], [(0, fault)])]
            return reply  # type: ignore[no-any-return]

        stand.banker._message = message  # type: ignore[method-assign]
        one = stand.begin()
        stand.send(one, b"a")
        one.positions("g", {("t", 0): 5})
        stand.commit(one)
        stand.net.pump()
        (told,) = stand.told
        assert isinstance(told, TransactionAborted)
        assert isinstance(told.__cause__, FencedGeneration)

    def test_fenced(self, stand: Stand) -> None:
        """Who is fenced can do nothing any more, and what it began fails."""
        one = stand.begin()
        stand.send(one, b"a")
        stand.net.pump()
        stand.banker.current["one"] = (16, 2)
        stand.commit(one)
        stand.work(b"b")
        stand.net.pump()
        assert [type(each) for each in stand.told] == [ProducerFenced] * 2
        assert "close it" in str(stand.told[0])
        with pytest.raises(ProducerFenced):
            stand.begin()
        done: list[bool] = []
        stand.core.close(lambda: done.append(True), stand.net.now)
        stand.net.pump()
        assert done == [True]

    def test_refused(self) -> None:
        """A producer that is refused for good says so."""
        stand = Stand()
        stand.banker.refuse = lambda request: (
            InvalidTransaction("not here") if isinstance(request, InitProducer) else None
        )
        stand.work(b"a")
        stand.net.pump()
        (told,) = stand.told
        assert isinstance(told, InvalidTransaction)
        with pytest.raises(InvalidTransaction, match="not here"):
            stand.begin()


class TestEnd:
    def test_close(self, stand: Stand) -> None:
        """Closing aborts what is open, and waits for what is being decided."""
        stand.work(b"a")
        stand.net.pump()
        one = stand.begin()
        stand.send(one, b"b")
        stand.net.pump()
        done: list[bool] = []
        stand.core.close(lambda: done.append(True), stand.net.now)
        stand.net.pump()
        assert done == [True]
        assert stand.banker.ended == [((16, 0), True), ((16, 1), False)]
        with pytest.raises(ClosedError):
            stand.begin()

    def test_client_closed(self, stand: Stand) -> None:
        """When the client is closed everything ends with that."""
        stand.banker.mute.add(MessageType.END_TRANSACTION)
        stand.work(b"a")
        stand.net.pump()
        stand.cluster.close(stand.net.now)
        (told,) = stand.told
        assert isinstance(told, ClosedError)

    def test_client_closed_while_several_are_decided(self, stand: Stand) -> None:
        """What was asked may come to count: nobody says that it was aborted."""
        stand.net.pump()
        stand.banker.mute.add(MessageType.END_TRANSACTION)
        for value in (b"a", b"b", b"c"):
            stand.work(value)
        stand.net.pump()
        stand.cluster.close(stand.net.now)
        assert [type(error) for error in stand.told] == [ClosedError] * 3

    def test_client_closed_by_who_hears(self, stand: Stand) -> None:
        """Who hears that his transaction counts may close the client, though more are decided."""
        stand.net.pump()
        stand.banker.mute.add(MessageType.END_TRANSACTION)
        stand.work(b"a")
        second = stand.work(b"b")
        stand.work(b"c")
        stand.net.pump()
        second._ended = lambda error: stand.cluster.close(stand.net.now)
        stand.banker.mute.clear()
        stand.net.advance(30)
        assert [type(error) for error in stand.told] == [type(None), ClosedError]

    def test_config(self) -> None:
        """Transactions need acks and sequences."""
        for config in ({"acks": "none"}, {"idempotent": False}):
            with pytest.raises(UsageError, match="idempotent"):
                Stand(**config)
        for timeout in (0.0, 90_000.0):
            with pytest.raises(UsageError, match="timeout_s"):
                TransactionsCore(
                    CoreNetwork().cluster(),
                    "one",
                    ProducerConfig(),
                    timeout,
                    lambda *_: None,
                    lambda: 0.0,
                )
