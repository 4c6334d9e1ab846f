"""Messages whose time to live is over go to the dead-letter topic, whoever looks or does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgpack
import pytest
from twisted.internet.defer import Deferred

from tests.fakes.broker import Answers, BrokerFixture, batch, only, refused
from tests.fakes.taking import Taker
from tinymq.broker.hosted import Hosted
from tinymq.broker.letters import facts_of
from tinymq.errors import CorruptBatch, InvalidDelay
from tinymq.wire.batch import HAS_EXPIRY, PAYLOAD, Column, build, read_header, split
from tinymq.wire.records import RecordBatch

HOUR = 3_600_000


@pytest.fixture(name="broker")
def fixture_broker(tmp_path: Path) -> BrokerFixture:
    """A broker with one topic of one partition, and a channel that nobody consumes."""
    broker = BrokerFixture(tmp_path)
    broker.topic()
    broker.meta.create_channel("t", "c", {})
    return broker


def publish(broker: BrokerFixture, *values: bytes, ttl: int | None = None, **columns: Any) -> None:
    """Publish a batch, all of it with one time to live."""
    if ttl is not None:
        columns["ttls"] = [ttl] * len(values)
    only(send(broker, batch(*values, **columns)))


def send(broker: BrokerFixture, data: bytes) -> Answers:
    """Publish what is encoded."""
    answers: Answers = []
    broker.broker.produce(broker.meta.describe("t").id, 0, data, answers.append)
    settle(broker)
    return answers


def settle(broker: BrokerFixture) -> None:
    """Let the broker do what it does now."""
    for _ in range(12):
        broker.clock.advance(0)


def wait(broker: BrokerFixture, seconds: float) -> None:
    """Let time pass."""
    broker.wall.now_ms += round(seconds * 1000)
    broker.clock.advance(seconds)
    settle(broker)


def dead(broker: BrokerFixture, topic: str = "t.c.dead") -> list[tuple[bytes | None, str, int]]:
    """The dead letters: values, reasons and how often each was given out."""
    if topic not in broker.meta.registry.by_name:
        return []
    log = broker.partition(topic).log
    found: list[tuple[bytes | None, str, int]] = []
    while len(found) < log.written_offset:
        chunk = log.read(len(found), 1 << 20, log.written_offset)
        assert chunk is not None
        for header, data in split(chunk.data):
            assert not header.attributes & HAS_EXPIRY
            for record in RecordBatch(data, header):
                facts = facts_of(record.headers)
                found.append((record.value, facts.reason, facts.deliveries))
    return found


def values(broker: BrokerFixture, topic: str = "t.c.dead") -> list[bytes | None]:
    """The values of the dead letters, all of which expired."""
    letters = dead(broker, topic)
    assert {reason for _, reason, _ in letters} <= {"expired"}
    return [value for value, _, _ in letters]


def takes(broker: BrokerFixture, channel: str = "c", **given: Any) -> Taker:
    """A new client that takes messages."""
    taker = Taker(broker)
    taker.subscribe(channel, **given)
    return taker


def hosted_of(broker: BrokerFixture) -> Hosted:
    """The channels of the topic."""
    (found,) = broker.broker.channels.hosted_of(broker.meta.describe("t").id)
    return found


def ask(broker: BrokerFixture, operation: str, /, **arguments: Any) -> None:
    """Carry out an operation that waits for the disk."""
    outcome: list[Any] = []
    Deferred.fromCoroutine(broker.operations.run(operation, arguments)).addBoth(outcome.append)
    settle(broker)
    (result,) = outcome
    assert isinstance(result, dict), result


def info(broker: BrokerFixture, channel: str = "c") -> dict[str, Any]:
    """What is told of a channel."""
    found = broker.operate("channel.info", topic="t", name=channel)["channel"]
    assert isinstance(found, dict)
    return found


class TestWithoutConsumers:
    def test_of_the_topic(self, broker: BrokerFixture) -> None:
        """Nobody consumes, and the topic's time to live is acted upon to the millisecond."""
        broker.meta.alter_topic("t", {"ttl.ms": 2000})
        publish(broker, b"1", b"2")
        wait(broker, 1.999)
        before = values(broker)
        wait(broker, 0.001)

        assert before == []
        assert values(broker) == [b"1", b"2"]
        assert (info(broker)["lag"], info(broker)["given_up"]) == (0, 0)
        assert broker.values() == [b"1", b"2"], "who reads the log sees them still"

    def test_it_is_told(self, broker: BrokerFixture) -> None:
        """It is counted, and stands in the life of the message."""
        publish(broker, b"1", b"2", ttls=[1000, None])
        wait(broker, 1)
        found = info(broker)
        story = broker.operate("message.life", topic="t", partition=0, offset=0)
        what = [(each["what"], each["text"]) for each in story["events"]]

        assert (found["totals"]["expired"], found["totals"]["given_up"]) == (1, 1)
        assert what == [("expired", "its time to live was over"), ("dead_lettered", "")]

    def test_of_single_messages(self, broker: BrokerFixture) -> None:
        """A long time to live keeps no short one behind it waiting, and none is no end."""
        publish(broker, b"long", ttl=10_000)
        publish(broker, b"short", ttl=1000)
        publish(broker, b"1", b"2", b"3", ttls=[3000, None, 2000])
        found = []
        for _ in range(11):
            wait(broker, 1)
            found.append(values(broker))

        assert found[0] == [b"short"]
        assert found[1] == [b"short", b"3"]
        assert found[2] == [b"short", b"3", b"1"]
        assert found[8] == found[2]
        assert found[9] == [b"short", b"3", b"1", b"long"]
        assert info(broker)["lag"] == 1

    def test_the_shorter_one_counts(self, broker: BrokerFixture) -> None:
        """With both, whichever is over first."""
        broker.meta.alter_topic("t", {"ttl.ms": 2000})
        publish(broker, b"own", ttl=1000)
        publish(broker, b"topic's", ttl=5000)
        wait(broker, 1)
        first = values(broker)
        wait(broker, 1)

        assert first == [b"own"]
        assert values(broker) == [b"own", b"topic's"]

    def test_paused(self, broker: BrokerFixture) -> None:
        """A channel that is paused keeps nothing alive."""
        broker.meta.pause_channel("t", "c")
        publish(broker, b"1", ttl=1000)
        wait(broker, 1)

        assert values(broker) == [b"1"]

    def test_each_channel_for_itself(self, broker: BrokerFixture) -> None:
        """What one channel has finished expires in the other alone."""
        broker.meta.create_channel("t", "d", {})
        publish(broker, b"1", b"2", ttl=1000)
        taker = takes(broker)
        taker.finish(taker.take()[0])
        taker.unsubscribe()
        wait(broker, 1)

        assert values(broker) == [b"2"]
        assert values(broker, "t.d.dead") == [b"1", b"2"]

    def test_many_batches(self, broker: BrokerFixture) -> None:
        """Short batches share a place in memory, and each expires when it should."""
        for number in range(100):
            publish(broker, b"%d" % number, ttl=1000 + 10 * (number * 37 % 100))
        blocks = hosted_of(broker).expiry._blocks
        held = len(blocks)
        wait(broker, 1.495)
        half = len(values(broker))
        wait(broker, 1)

        assert held <= 4
        assert half == 50
        assert {*values(broker)} == {b"%d" % number for number in range(100)}
        assert len(values(broker)) == 100


class TestInHands:
    def test_it_may_be_finished(self, broker: BrokerFixture) -> None:
        """Who holds a message that expires may finish it."""
        publish(broker, b"1", b"2", ttl=1000)
        taker = takes(broker, credit=1)
        (held,) = taker.take()
        taker.run(2)
        reply = taker.finish(held)

        assert (reply.done, reply.late) == (1, [])
        assert values(broker) == [b"2"]

    @pytest.mark.parametrize("how", ["requeue", "give_back", "unsubscribe", "link", "lease"])
    def test_it_expires_when_it_comes_back(self, broker: BrokerFixture, how: str) -> None:
        """However it comes back: it is given to nobody else."""
        publish(broker, b"1", ttl=1000)
        taker = takes(broker)
        (held,) = taker.take()
        taker.run(2)
        before = values(broker)
        if how == "link":
            taker.connection.lose()
        elif how == "unsubscribe":
            taker.unsubscribe()
        elif how != "lease":
            getattr(taker, how)(held)
        other = takes(broker)
        other.run(70)

        assert before == []
        assert other.values == []
        given = 0 if how in {"give_back", "unsubscribe"} else 1
        assert dead(broker) == [(b"1", "expired", given)]

    def test_waiting_for_the_next_attempt(self, broker: BrokerFixture) -> None:
        """A retry that waits expires, with what it has been through."""
        publish(broker, b"1", b"2", ttls=[1000, None])
        taker = takes(broker)
        taker.requeue(*taker.take(), d=60_000)
        wait(broker, 1)

        assert dead(broker) == [(b"1", "expired", 1)]
        assert info(broker)["waiting"] == 1

    @pytest.mark.parametrize("order", ["key", "strict"])
    def test_in_order(self, broker: BrokerFixture, order: str) -> None:
        """What stands aside behind an expired message of its key goes on without it."""
        broker.meta.create_channel("t", "o", {"order": order})
        taker = takes(broker, "o")
        publish(broker, b"1", b"2", b"3", keys=[b"k", b"k", b"k"], ttls=[2000, 1000, None])
        taker.run()
        one, *others = taker.take()
        taker.give_back(*others)
        taker.requeue(one, d=60_000)
        taker.take()
        wait(broker, 1)
        first = values(broker, "t.o.dead")
        wait(broker, 1)
        taker.run()

        assert first == [b"2"]
        assert values(broker, "t.o.dead") == [b"2", b"1"]
        assert taker.values == [b"3"]

    def test_at_most_once(self, broker: BrokerFixture) -> None:
        """What was not delivered yet expires; what was is settled."""
        broker.meta.create_channel("t", "once", {"delivery": "at_most_once"})
        publish(broker, b"1", b"2", ttl=1000)
        taker = takes(broker, "once", credit=1)
        taker.run(2)

        assert taker.values == [b"1"]
        assert values(broker, "t.once.dead") == [b"2"]

    def test_what_matches_no_filter(self, broker: BrokerFixture) -> None:
        """A message that a channel would never give out is no dead letter of it."""
        broker.meta.create_channel("t", "f", {"filter": ["kind=a"]})
        rows = [[("kind", b"a")], [("kind", b"b")]]
        publish(broker, b"1", b"2", headers=rows, ttl=1000)
        publish(broker, b"3", b"4", headers=rows)
        wait(broker, 1)
        taker = takes(broker, "f")

        assert values(broker, "t.f.dead") == [b"1"]
        assert taker.values == [b"3"]


class TestOverTime:
    @pytest.mark.parametrize("stop", [False, True])
    @pytest.mark.parametrize("own", [False, True])
    def test_it_expires_while_the_broker_is_away(
        self, broker: BrokerFixture, stop: bool, own: bool
    ) -> None:
        """What is over at the start is given up before anybody gets it, the rest in time."""
        if not own:
            broker.meta.alter_topic("t", {"ttl.ms": 1000})
        publish(broker, b"1", ttl=1000 if own else None)
        wait(broker, 0.9)
        publish(broker, b"2", ttl=1000 if own else None)
        publish(broker, b"3", ttl=HOUR if own else None)
        broker.stop() if stop else broker.kill()
        broker.wall.now_ms += 500
        broker = broker.again()
        taker = takes(broker)
        found = taker.values
        taker.unsubscribe()
        wait(broker, 0.499)
        first = values(broker)
        wait(broker, 0.001)

        assert found == [b"2", b"3"]
        assert first == [b"1"]
        assert values(broker) == [b"1", b"2"] + [b"3"] * (not own)

    @pytest.mark.parametrize("step", [-HOUR, HOUR])
    @pytest.mark.parametrize("own", [False, True])
    def test_the_wall_clock_is_set(self, broker: BrokerFixture, step: int, own: bool) -> None:
        """A wall clock that is set while the broker runs moves nothing."""
        if not own:
            broker.meta.alter_topic("t", {"ttl.ms": 4000})
        publish(broker, b"1", ttl=4000 if own else None)
        wait(broker, 2)
        broker.wall.now_ms += step
        publish(broker, b"2", ttl=4000 if own else None)
        wait(broker, 1.999)
        none = values(broker)
        wait(broker, 0.001)
        first = values(broker)
        wait(broker, 1.999)
        still = values(broker)
        wait(broker, 1.1)

        assert none == []
        assert first == still == [b"1"]
        assert values(broker) == [b"1", b"2"]

    def test_a_clock_that_was_ahead_before_the_start(self, broker: BrokerFixture) -> None:
        """What came with times ahead holds up nothing that comes after the clock was set right."""
        broker.meta.alter_topic("t", {"ttl.ms": 4000})
        broker.wall.now_ms += HOUR
        publish(broker, b"1")
        broker.stop()
        broker.wall.now_ms -= HOUR
        after = broker.again()
        wait(after, 1)
        publish(after, b"2")
        wait(after, 2.9)
        none = values(after)
        wait(after, 0.2)
        first = values(after)
        wait(after, 1)

        assert (none, first) == ([], [b"1"])
        assert values(after) == [b"1", b"2"]

    def test_altered_while_it_runs(self, broker: BrokerFixture) -> None:
        """It counts from the append of each message, whenever the topic was altered."""
        publish(broker, b"1")
        wait(broker, 3)
        publish(broker, b"2")
        broker.meta.alter_topic("t", {"ttl.ms": HOUR})
        settle(broker)
        none = values(broker)
        broker.meta.alter_topic("t", {"ttl.ms": 2000})
        settle(broker)
        shorter = values(broker)
        broker.meta.alter_topic("t", {"ttl.ms": None})
        wait(broker, 100)
        never = values(broker)
        broker.meta.alter_topic("t", {"ttl.ms": 5000})
        settle(broker)

        assert none == []
        assert shorter == never == [b"1"]
        assert values(broker) == [b"1", b"2"]

    @pytest.mark.parametrize("own", [False, True])
    def test_a_channel_that_is_new(self, broker: BrokerFixture, own: bool) -> None:
        """What expired before a channel was made is none of its messages, and no dead letter."""
        if not own:
            broker.meta.alter_topic("t", {"ttl.ms": 1000})
        publish(broker, b"1", ttl=1000 if own else None)
        wait(broker, 1)
        publish(broker, b"2", ttl=HOUR if own else None)
        broker.meta.create_channel("t", "new", {}, "earliest")
        taker = takes(broker, "new")

        assert taker.values == [b"2"]
        assert values(broker, "t.new.dead") == []

    @pytest.mark.parametrize("own", [False, True])
    def test_seek_back(self, broker: BrokerFixture, own: bool) -> None:
        """What was settled and has expired since does not come again, and is no dead letter."""
        if not own:
            broker.meta.alter_topic("t", {"ttl.ms": 2000})
        publish(broker, b"1", b"2", ttl=2000 if own else None)
        taker = takes(broker)
        first, second = taker.take()
        taker.finish(first)
        wait(broker, 1)
        publish(broker, b"3", ttl=2000 if own else None)
        taker.run()
        taker.finish(*taker.take())
        wait(broker, 1)
        ask(broker, "channel.seek", topic="t", name="c", to="earliest")
        taker.run()
        again = taker.take()
        taker.run(1)
        taker.requeue(*again)
        taker.run(60)

        assert [each.value for each in again] == [b"3"]
        assert [value for value, _, _ in dead(broker)] == [b"2", b"3"]
        assert second.offset == 1

    def test_sent_back_from_the_dead(self, broker: BrokerFixture) -> None:
        """People who send an expired message back want it to be done."""
        publish(broker, b"1", ttl=1000)
        wait(broker, 1)
        hosted_of(broker).queue.channels["c"].steering.revive({0: 1}, hosted_of(broker).now)
        hosted_of(broker).mark()
        wait(broker, 5)

        assert takes(broker).values == [b"1"]
        assert values(broker) == [b"1"]


class TestPublish:
    @pytest.mark.parametrize("ttl", [0, -1, 253_402_300_799_999])
    def test_no_time_to_live(self, broker: BrokerFixture, ttl: int) -> None:
        """What is not above zero, or ends beyond the year 9999, is refused."""
        error = refused(send(broker, batch(b"1", b"2", ttls=[ttl, None])))

        assert isinstance(error, InvalidDelay)

    def test_of_what_comes_later(self, broker: BrokerFixture) -> None:
        """A time to live begins when a message comes, and is looked at before it waits."""
        error = refused(send(broker, batch(b"1", dues=[-5000], ttls=[0])))
        only(send(broker, batch(b"2", dues=[-5000], ttls=[2000])))
        wait(broker, 5)
        there = broker.values()
        wait(broker, 1.9)
        early = values(broker)
        wait(broker, 0.2)

        assert isinstance(error, InvalidDelay)
        assert there == [b"2"]
        assert early == []
        assert values(broker) == [b"2"]

    def test_too_few(self, broker: BrokerFixture) -> None:
        """Each record has its place in the column."""
        whole = batch(b"1", b"2", ttls=[5, 5])
        columns = msgpack.unpackb(whole[PAYLOAD:])
        columns[Column.EXPIRY] = msgpack.packb([5])
        short = build(msgpack.packb(columns), 2, read_header(whole).attributes)
        error = refused(send(broker, short))

        assert isinstance(error, CorruptBatch)
