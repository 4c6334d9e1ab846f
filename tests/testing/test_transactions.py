"""Transactions from client to disk: all or nothing."""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from itertools import count as count_up
from random import Random
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from tinymq.client import ConsumerConfig, SubscriptionConfig
from tinymq.client.core.transactions.transforming import Out
from tinymq.errors import (
    ClosedError,
    FencedGeneration,
    ProducerFenced,
    TransactionAborted,
    UsageError,
    ValueTooLarge,
)
from tinymq.testing import InProcessBroker


def _give(given: object, _message: object) -> object:
    return given


def run(broker: InProcessBroker, coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Carry out a coroutine that awaits Deferreds."""
    return broker.run(Deferred.fromCoroutine(coroutine))


def read(
    broker: InProcessBroker, topic: str = "t", isolation: str = "committed"
) -> list[bytes | None]:
    """What a consumer sees of a topic, up to its end."""
    client = broker.client()
    consumer = client.consumer(ConsumerConfig(isolation=isolation))
    broker.run(consumer.assign(topic))
    found: list[bytes | None] = []
    while True:
        batch = broker.run(consumer.next_batch(timeout=0.6))
        if batch is None:
            assert not consumer.gaps
            broker.run(client.close())
            return found
        found += batch.values


@pytest.fixture
def broker(tinymq_broker: InProcessBroker) -> InProcessBroker:
    """Return a broker with two topics."""
    tinymq_broker.create_topic("t")
    tinymq_broker.create_topic("u", 3)
    return tinymq_broker


class TestBlocks:
    def test_commit(self, broker: InProcessBroker) -> None:
        """What is sent in a block is seen when it has ended, and not before."""
        producer = broker.client().transactional("one")

        async def work() -> None:
            async with producer.transaction() as tx:
                tx.send("t", b"a")
                tx.send_batch("u", [b"1", b"2", b"3"], keys=[b"x", b"y", b"z"])
                await tx.flush()
                assert tx.open

        run(broker, work())
        assert read(broker) == [b"a"]
        assert sorted(value or b"" for value in read(broker, "u")) == [b"1", b"2", b"3"]

    def test_unseen(self, broker: InProcessBroker) -> None:
        """While a transaction is open only those see it who ask for that."""
        producer = broker.client().transactional("one")
        tx = producer.begin()
        tx.send("t", b"a")
        broker.run(tx.flush())
        broker.run(broker.client().producer().send("t", b"behind"))
        assert read(broker) == []
        assert read(broker, isolation="uncommitted") == [b"a", b"behind"]
        broker.run(tx.commit())
        assert tx.committed
        assert read(broker) == [b"a", b"behind"]

    def test_exception(self, broker: InProcessBroker) -> None:
        """An exception in the block aborts it, and comes out as it is."""
        producer = broker.client().transactional("one")

        async def work() -> None:
            async with producer.transaction() as tx:
                tx.send("t", b"a")
                await tx.flush()
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            run(broker, work())
        broker.run(broker.client().producer().send("t", b"b"))
        assert read(broker) == [b"b"]
        assert read(broker, isolation="uncommitted") == [b"a", b"b"]

    def test_a_test_sees_what_readers_see(self, broker: InProcessBroker) -> None:
        """What a test looks at holds nothing of an aborted transaction, nor of an open one."""
        producer = broker.client().transactional("one")
        tx = producer.begin()
        tx.send("t", b"a")
        broker.run(tx.flush())
        broker.run(tx.abort())
        broker.run(broker.client().producer().send("t", b"b"))
        tx = producer.begin()
        tx.send("t", b"c")
        broker.run(tx.flush())
        assert [each.value for each in broker.records("t")] == [b"b"]

    def test_one_after_the_other(self, broker: InProcessBroker) -> None:
        """Many transactions of one producer come in their order; aborted ones leave nothing."""
        producer = broker.client().transactional("one")

        async def work() -> None:
            for number in range(20):
                tx = producer.begin()
                tx.send_batch("t", [b"%d" % number] * 3)
                await (tx.abort() if number % 3 == 1 else tx.commit())

        run(broker, work())
        assert read(broker) == [b"%d" % n for n in range(20) for _ in range(3) if n % 3 != 1]

    def test_ahead(self, broker: InProcessBroker) -> None:
        """The next one may begin while the last is being decided."""
        producer = broker.client().transactional("one")
        ends = []
        for number in range(10):
            tx = producer.begin()
            tx.send_batch("t", [b"%d" % number] * 2)
            ends.append(tx.commit())
        for end in ends:
            broker.run(end)
        assert read(broker) == [b"%d" % n for n in range(10) for _ in range(2)]

    def test_empty(self, broker: InProcessBroker) -> None:
        """A transaction without anything in it asks nobody."""
        producer = broker.client().transactional("one")
        broker.run(producer.begin().commit())
        broker.run(producer.begin().abort())
        tx = producer.begin()
        tx.send("t", b"a")
        broker.run(tx.commit())
        assert read(broker) == [b"a"]

    def test_misuse(self, broker: InProcessBroker) -> None:
        """One at a time, and nothing after its end; what is wrong is told at once."""
        producer = broker.client().transactional("one")
        tx = producer.begin()
        with pytest.raises(UsageError, match="commit or abort it first"):
            producer.begin()
        with pytest.raises(ValueTooLarge):
            tx.send("t", b"x", b"k" * 70_000)
        broker.run(tx.commit())
        with pytest.raises(UsageError, match="begin another one"):
            tx.send("t", b"x")
        with pytest.raises(UsageError, match="committed"):
            broker.run(tx.commit())
        for name in ("", "x" * 201):
            with pytest.raises(UsageError, match="transactional id"):
                broker.client().transactional(name)
        broker.run(producer.close())
        with pytest.raises(ClosedError):
            producer.begin()


class TestFencing:
    def test_fenced(self, broker: InProcessBroker) -> None:
        """A second producer of the same name aborts what the first has open, and stops it."""
        first = broker.client().transactional("one")
        tx = first.begin()
        tx.send("t", b"old")
        broker.run(tx.flush())
        second = broker.client().transactional("one")
        after = second.begin()
        after.send("t", b"new")
        broker.run(after.commit())
        with pytest.raises(ProducerFenced, match="another producer is at work"):
            broker.run(tx.commit())
        assert first.fenced
        with pytest.raises(ProducerFenced):
            first.begin()
        broker.advance(20)  # until the partition asks what became of it
        assert read(broker) == [b"new"]
        broker.run(first.close())

    def test_late(self, broker: InProcessBroker) -> None:
        """A transaction that takes too long is aborted, and can be tried again."""
        producer = broker.client().transactional("one", timeout_s=10)
        tx = producer.begin()
        tx.send("t", b"late")
        broker.run(tx.flush())
        broker.advance(40)
        with pytest.raises(TransactionAborted):
            broker.run(tx.commit())
        again = producer.begin()
        again.send("t", b"again")
        broker.run(again.commit())
        assert read(broker) == [b"again"]


class TestTrouble:
    @pytest.mark.parametrize("lost", ["cut", "kill", "power_cut"])
    def test_between(self, broker: InProcessBroker, lost: str) -> None:
        """A lost link, or a broker that comes back, in the middle changes nothing."""
        producer = broker.client().transactional("one")
        tx = producer.begin()
        tx.send("t", b"a")
        broker.run(tx.flush())
        getattr(broker, lost)()
        if lost != "cut":
            broker.restart()
        tx.send("t", b"b")
        broker.run(tx.commit())
        assert read(broker) == [b"a", b"b"]


class TestSettles:
    @pytest.mark.parametrize("commit", [True, False])
    def test_finish(self, broker: InProcessBroker, commit: bool) -> None:
        """A message of a channel is finished if the transaction counts; else it stays ours."""
        broker.run(broker.client().producer().send_batch("t", [b"1", b"2"]))
        client = broker.client()
        subscription = client.subscription("t", "c")
        producer = client.transactional("one")
        messages = [broker.run(subscription.next()) for _ in range(2)]
        tx = producer.begin()
        tx.finish(*[message for message in messages if message])
        tx.send("u", b"both")
        if commit:
            broker.run(tx.commit())
            assert [message.standing.value for message in messages if message] == ["confirmed"] * 2
        else:
            broker.run(tx.abort())
            assert all(message.held for message in messages if message)
        broker.run(client.close())
        broker.advance(5)
        again = broker.client().subscription("t", "c")
        found = [broker.run(again.next(1)) for _ in range(2)]
        assert [each and each.value for each in found] == ([None] * 2 if commit else [b"1", b"2"])
        assert read(broker, "u") == ([b"both"] if commit else [])

    def test_comes_again(self, broker: InProcessBroker) -> None:
        """When the commit fails the message is lost, and comes again."""
        broker.run(broker.client().producer().send("t", b"1"))
        client = broker.client()
        subscription = client.subscription("t", "c")
        producer = client.transactional("one", timeout_s=5)
        message = broker.run(subscription.next())
        assert message is not None
        tx = producer.begin()
        tx.send("u", b"out")
        broker.run(tx.flush())
        broker.advance(10)
        tx.finish(message)
        with pytest.raises(TransactionAborted):
            broker.run(tx.commit())
        assert message.is_lost
        again = broker.run(subscription.next())
        assert again is not None
        assert (again.value, again.attempt, again.failures) == (b"1", 2, 0)
        tx = producer.begin()
        tx.finish(again)
        broker.run(tx.commit())
        assert again.standing.value == "confirmed"
        assert broker.run(subscription.next(30)) is None

    def test_lost(self, broker: InProcessBroker) -> None:
        """A message that is not ours any more makes the transaction fail."""
        broker.run(broker.client().producer().send("t", b"1"))
        client = broker.client()
        subscription = client.subscription("t", "c")
        message = broker.run(subscription.next())
        assert message is not None
        tx = client.transactional("one").begin()
        tx.finish(message)
        tx.send("u", b"out")
        message.give_back()
        with pytest.raises(TransactionAborted):
            broker.run(tx.commit())
        with pytest.raises(UsageError, match="settled before"):
            client.transactional("two").begin().finish(message)
        assert read(broker, "u") == []


class TestTransform:
    def test_channel(self, broker: InProcessBroker) -> None:
        """What comes from a channel is handled, and what is made of it is sent, once."""
        broker.run(broker.client().producer().send_batch("t", [b"%d" % n for n in range(50)]))
        client = broker.client()
        subscription = client.subscription("t", "c", SubscriptionConfig(max_in_flight=10))
        producer = client.transactional("one")

        async def double(message: Any) -> list[tuple[Any, ...]] | None:
            if message.value == b"13":
                return None
            return [("u", message.value, message.key), Out("u", message.value, partition=1)]

        working = producer.transform(subscription, double, most=7, linger_s=0.01)
        for step in range(40):
            broker.advance(0.1)
            if step in {3, 5}:
                broker.cut()
        broker.run(subscription.close())
        broker.run(working)
        expected = sorted(b"%d" % n for n in range(50) if n != 13)
        assert sorted(value or b"" for value in read(broker, "u")) == sorted(expected * 2)

    def test_handler_fails(self, broker: InProcessBroker) -> None:
        """What a handler raises ends the transform; its messages come again to others."""
        broker.run(broker.client().producer().send_batch("t", [b"1", b"2", b"3"]))
        client = broker.client()
        subscription = client.subscription("t", "c")
        producer = client.transactional("one")

        def fail(message: Any) -> Any:
            if message.value == b"3":
                raise ZeroDivisionError
            return "u", message.value

        with pytest.raises(ZeroDivisionError):
            broker.run(producer.transform(subscription, fail))
        assert read(broker, "u") == []
        found = [broker.run(subscription.next()) for _ in range(3)]
        assert sorted(each.value or b"" for each in found if each) == [b"1", b"2", b"3"]

    def test_wrong(self, broker: InProcessBroker) -> None:
        """What is no record, and what is no source, is refused."""
        broker.run(broker.client().producer().send("t", b"1"))
        client = broker.client()
        producer = client.transactional("one")
        for given in (5, [5], [("t",)]):
            subscription = client.subscription("t", "c")
            with pytest.raises(UsageError, match="gives records as Out"):
                broker.run(producer.transform(subscription, partial(_give, given)))
            broker.run(subscription.close())
        with pytest.raises(UsageError, match="reads a group consumer or a subscription"):
            broker.run(producer.transform(client.consumer(), print))

    def test_fenced(self, broker: InProcessBroker) -> None:
        """An instance that was fenced stops, and says so."""
        client = broker.client()
        subscription = client.subscription("t", "c")
        working = client.transactional("one").transform(
            subscription, lambda each: ("u", each.value)
        )
        broker.settle()
        other = broker.client().transactional("one")
        tx = other.begin()
        tx.send("u", b"other")
        broker.run(tx.commit())
        broker.run(broker.client().producer().send("t", b"1"))
        with pytest.raises(ProducerFenced):
            broker.run(working)
        broker.advance(20)
        assert read(broker, "u") == [b"other"]
        broker.run(subscription.close())
        again = broker.run(broker.client().subscription("t", "c").next())
        assert again is not None
        assert again.value == b"1"


class TestGroups:
    def test_lost_partitions(self, broker: InProcessBroker) -> None:
        """What was made of messages that somebody else has by now does not count."""
        broker.run(broker.client().producer().send_batch("t", [b"1", b"2"]))
        client = broker.client()
        group = client.group("g", ["t"], commit="manual")
        producer = client.transactional("one")
        batch = broker.run(group.next_batch())
        assert batch is not None
        broker.run(client.admin.evict_member("g", group.member))
        broker.advance(10)
        assert batch.is_lost
        tx = producer.begin()
        tx.send_batch("u", batch.values)
        tx.commit_positions(group)
        with pytest.raises(TransactionAborted) as caught:
            broker.run(tx.commit())
        assert isinstance(caught.value.__cause__, FencedGeneration)
        again = broker.run(group.next_batch())
        assert again is not None
        tx = producer.begin()
        tx.send_batch("u", again.values)
        tx.commit_positions(group)
        broker.run(tx.commit())
        assert read(broker, "u") == [b"1", b"2"]
        broker.run(group.close())

    def test_positions(self, broker: InProcessBroker) -> None:
        """Positions count with the transaction; if it is aborted all is handed out again."""
        broker.run(broker.client().producer().send_batch("t", [b"%d" % n for n in range(10)]))
        client = broker.client()
        group = client.group("g", ["t"], commit="manual")
        producer = client.transactional("one")
        values: list[bytes | None] = []
        for commit in (False, True):
            values = []
            tx = producer.begin()
            while len(values) < 10:
                batch = broker.run(group.next_batch())
                assert batch is not None
                values += batch.values
            assert values == [b"%d" % n for n in range(10)]
            tx.send_batch("u", values)
            tx.commit_positions(group)
            broker.run(tx.commit() if commit else tx.abort())
        assert broker.run(group.next_batch(1)) is None
        assert sorted(value or b"" for value in read(broker, "u")) == sorted(
            value or b"" for value in values
        )
        broker.run(group.close())
        broker.run(broker.client().producer().send("t", b"more"))
        again = broker.client().group("g", ["t"])
        message = broker.run(again.next())
        assert message is not None
        assert message.value == b"more"

    def test_by_hand(self, broker: InProcessBroker) -> None:
        """Positions can be given by hand, for a group whose members read elsewhere."""
        broker.run(broker.client().producer().send_batch("t", [b"%d" % n for n in range(10)]))
        client = broker.client()

        async def work() -> None:
            producer = client.transactional("one")
            async with producer.transaction() as tx:
                tx.send("u", b"x")
                tx.positions("billing", {("t", 0): 7})

        run(broker, work())
        broker.settle()
        message = broker.run(broker.client().group("billing", ["t"]).next())
        assert message is not None
        assert message.value == b"7"


def _ended(failure: Failure) -> None:
    failure.trap(ProducerFenced, ClosedError, CancelledError)


def transform_life(seed: int, count: int) -> None:  # noqa: C901, PLR0915 - one life
    """Copy a topic exactly once, whatever happens to brokers, links and instances."""
    random = Random(seed)
    with InProcessBroker() as broker:
        broker.create_topic("t", 3)
        broker.create_topic("u", 2)
        grouped = random.random() < 0.6
        running: list[tuple[Any, Any, Deferred[None]]] = []
        instances = count_up()
        sent = 0

        def handle(message: Any) -> Any:
            return [("u", message.value, message.key), ("u", message.value, b"again")]

        def start() -> None:
            client = broker.client()
            if grouped:
                source: Any = client.group("g", ["t"], commit="manual", session_s=5.0)
                name = f"copier {next(instances) % 3}"
            else:
                source = client.subscription("t", "c")
                name = f"copier {next(instances) % 2}"
            producer = client.transactional(name, timeout_s=10)
            work = producer.transform(source, handle, most=random.randint(1, 20), linger_s=0.01)
            work.addErrback(_ended)
            running.append((client, source, work))

        start()
        publisher = broker.client().producer()
        for _ in range(count):
            act = random.random()
            if act < 0.5:
                some = [b"%d" % n for n in range(sent, sent + random.randint(1, 15))]
                broker.run(publisher.send_batch("t", some, keys=some))
                sent += len(some)
            elif act < 0.6:
                broker.cut()
            elif act < 0.66:
                random.choice([broker.kill, broker.stop, broker.power_cut])()
                broker.restart()
            elif act < 0.72 and len(running) < 3:
                start()
            elif act < 0.78 and running:
                client, source, work = running.pop(random.randrange(len(running)))
                if random.random() < 0.5:
                    work.cancel()
                broker.run(source.close())
                broker.run(client.close())
            broker.advance(random.choice([0.0, 0.05, 0.3, 2.0]))
        for client, source, _ in running:
            broker.run(source.close())
            broker.run(client.close())
        running.clear()
        broker.advance(30)
        start()
        for _ in range(60):
            broker.advance(1)
            if len(read(broker, "u")) >= 2 * sent:
                break
        found = sorted(value or b"" for value in read(broker, "u"))
        assert found == sorted([b"%d" % n for n in range(sent)] * 2)


@pytest.mark.parametrize("seed", range(2))
def test_exactly_once(seed: int) -> None:
    """Through kills, lost links and fenced instances each message has its results once."""
    transform_life(seed, 12)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 130))
def test_exactly_once_long(seed: int) -> None:
    """So it is for a long time."""
    transform_life(seed, 80)
