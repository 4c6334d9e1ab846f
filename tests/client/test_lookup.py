"""Consumers and producers of independent nodes, over transports in memory."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred

from tests.client.test_client import Results
from tests.client.town import Town
from tinymq.client import (
    EARLIEST,
    LATEST,
    ClientConfig,
    ConsumerBatch,
    LookupConsumer,
    ProducerConfig,
)
from tinymq.errors import (
    ClosedError,
    InvalidDelay,
    OffsetOutOfRange,
    TooFewCopies,
    UnknownTopicId,
    UnreachableError,
    UsageError,
    ValueTooLarge,
)
from tinymq.wire.header import MessageType
from tinymq.wire.records import RecordBatch, encode_batch


def put(town: Town, name: str, *values: bytes, topic: str = "t") -> None:
    """Store a batch at a node, and announce its topic as before."""
    node = town.nodes[name]
    if topic not in node.topics:
        node.make(topic)
    node.topics[topic].logs[0].append(encode_batch(values))
    node.wake()
    town.pump()


class Reading:
    """Collects what a consumer hands out."""

    def __init__(self, town: Town, consumer: LookupConsumer) -> None:
        self.found: list[tuple[str, bytes | None]] = []
        self.errors: list[Any] = []
        self.consumer = consumer
        self.ended = Deferred.fromCoroutine(self._run())
        town.pump()

    async def _run(self) -> None:
        while True:
            try:
                batch = await self.consumer.next_batch()
            except ClosedError:
                return
            except Exception as error:  # noqa: BLE001 - kept for the test
                self.errors.append(error)
                continue
            assert batch is not None
            assert batch.node is not None
            self.found += [(batch.node.name, value) for value in batch.values]

    def take(self) -> list[tuple[str, bytes | None]]:
        """What came since the last time."""
        found, self.found = self.found, []
        return sorted(found, key=str)


# --- nodes ---------------------------------------------------------------------


def test_nodes() -> None:
    """The nodes that all lookup servers together name, each once."""
    town = Town()
    town.rows["s1"]["t"] = ["n1", "n2"]
    town.rows["s2"]["t"] = ["n2", "n3"]
    nodes = town.done(town.lookup.nodes("t"))
    assert sorted(node.name for node in nodes) == ["n1", "n2", "n3"]
    assert town.done(town.lookup.nodes("nix")) == []
    asked = town.asked()
    town.done(town.lookup.nodes("t"))
    assert town.asked() == asked
    town.end()


def test_one_lookup_server_is_enough() -> None:
    """A dead or silent server delays an answer by a moment, and takes nothing away."""
    town = Town()
    town.announce("t", "n1")
    town.kill("s1")
    results = Results(town.lookup.nodes("t"))
    town.advance(0.6)
    assert [[node.name for node in nodes] for nodes in results.values] == [["n1"]]
    town.end()


def test_no_lookup_server_at_all() -> None:
    """What was known stays known; what was not is an error."""
    town = Town(refresh_s=5)
    town.announce("t", "n1")
    town.done(town.lookup.nodes("t"))
    for name in town.servers:
        town.kill(name)
    town.advance(20)
    results = Results(town.lookup.nodes("t"), town.lookup.nodes("u"))
    town.advance(5)

    assert [[node.name for node in nodes] for nodes in results.values] == [["n1"]]
    assert [UnreachableError] == [type(error) for error in results.errors]
    town.end()
    assert [ClosedError] == [type(error) for error in Results(town.lookup.nodes("t")).errors]
    with pytest.raises(ClosedError):
        town.lookup.consumer("t")
    with pytest.raises(ClosedError):
        town.lookup.producer()


# --- consumers -----------------------------------------------------------------


def test_reads_every_node() -> None:
    """Nodes are read as they appear and left when they vanish; records tell their node."""
    town = Town(refresh_s=5)
    put(town, "n1", b"a")
    put(town, "n2", b"b")
    town.announce("t", "n1", "n2")
    reading = Reading(town, town.lookup.consumer("t"))
    assert reading.take() == [("n1", b"a"), ("n2", b"b")]
    put(town, "n3", b"c")
    town.announce("t", "n2", "n3")
    town.advance(6)
    put(town, "n1", b"unread")
    put(town, "n2", b"d")

    assert reading.take() == [("n2", b"d"), ("n3", b"c")]
    assert sorted(node.name for node in reading.consumer.nodes) == ["n2", "n3"]
    town.announce("t", "n1", "n2", "n3")
    town.advance(6)
    assert reading.take() == [("n1", b"unread")]
    marks = reading.consumer.marks()
    assert {one[:2]: mark[0].offset for one, mark in marks.items()} == {"n1": 2, "n2": 2, "n3": 1}
    town.end()
    assert reading.errors == []


def test_a_node_that_dies_and_moves() -> None:
    """The lookup servers are asked when a link fails, and a node at a new place is read on."""
    town = Town(refresh_s=1000)
    put(town, "n1", b"a")
    put(town, "n2", b"b")
    town.announce("t", "n1", "n2")
    reading = Reading(town, town.lookup.consumer("t"))
    reading.take()
    asked = town.asked()
    town.kill("n1")
    town.advance(8)
    assert 2 <= town.asked() - asked <= 20
    put(town, "n2", b"on")
    assert reading.take() == [("n2", b"on")]
    put(town, "n1", b"back")
    town.places["n1"] = town.places["n1"]._replace(port=9)
    place = town.places["n1"]
    town.nodes["n1"].brokers = [(1, place.host, place.port, "n1")]
    town.start("n1")
    town.advance(8)

    assert reading.take() == [("n1", b"back")]
    town.end()


def test_latest_means_from_now_on() -> None:
    """Old records are left out, and those of a node heard of later are not."""
    town = Town(refresh_s=5)
    put(town, "n1", b"old")
    town.announce("t", "n1")
    reading = Reading(town, town.lookup.consumer("t", LATEST))
    put(town, "n1", b"new")
    put(town, "n2", b"since")
    town.announce("t", "n1", "n2")
    town.advance(6)

    assert reading.take() == [("n1", b"new"), ("n2", b"since")]
    town.end()


def test_an_error_at_one_node() -> None:
    """It is told with the name of the node, and the others go on."""
    town = Town(refresh_s=5)
    put(town, "n1", b"a")
    put(town, "n2", b"b")
    town.announce("t", "n1", "n2")
    reading = Reading(town, town.lookup.consumer("t", EARLIEST))
    reading.take()
    town.nodes["n1"].topics["t"].logs[0].start = 5
    town.nodes["n1"].wake()
    put(town, "n2", b"c")
    assert reading.take() == [("n2", b"c")]
    (error,) = reading.errors
    assert isinstance(error, OffsetOutOfRange)
    assert error.data["node"] == "n1"
    town.nodes["n1"].make("t")
    town.advance(6)
    reading.errors.clear()
    town.end()


def test_a_topic_is_announced_before_it_can_be_read() -> None:
    """A node that does not know its topic yet is tried again in the next round."""
    town = Town(refresh_s=5)
    town.announce("t", "n1")
    reading = Reading(town, town.lookup.consumer("t"))
    assert reading.consumer.nodes == []
    put(town, "n1", b"a")
    town.advance(6)

    assert [reading.take(), reading.errors] == [[("n1", b"a")], []]
    town.end()


def test_a_topic_made_anew_at_a_node() -> None:
    """It is told, and read from its start afterwards."""
    town = Town(refresh_s=5)
    put(town, "n1", b"a")
    town.announce("t", "n1")
    reading = Reading(town, town.lookup.consumer("t"))
    reading.take()
    town.nodes["n1"].make("t")
    town.nodes["n1"].wake()
    town.advance(1)
    (error,) = reading.errors
    assert isinstance(error, UnknownTopicId)
    put(town, "n1", b"b")
    town.advance(6)

    assert reading.take() == [("n1", b"b")]
    town.end()


def test_batches_nobody_took() -> None:
    """What lies ready when the consumer is closed is left at its node, and its mark before it."""
    town = Town()
    put(town, "n1", b"a")
    put(town, "n2", b"b")
    town.announce("t", "n1", "n2")
    consumer = town.lookup.consumer("t")
    batch = town.done(consumer.next_batch())
    assert batch is not None
    iterated: Deferred[list[ConsumerBatch]] = Deferred.fromCoroutine(_all(consumer))
    town.pump()
    put(town, "n1", b"c")
    put(town, "n2", b"d")
    town.end()

    assert len(town.done(iterated)) == 3


def test_next_batch_waits() -> None:
    """A call ends with its time-out, can be cancelled, and ends when the consumer is closed."""
    town = Town()
    consumer = town.lookup.consumer("t")
    timed, cancelled, closed = (consumer.next_batch(one) for one in (1.0, None, None))
    results = Results(timed, closed)
    cancelled.addErrback(lambda failure: None)
    cancelled.cancel()
    town.advance(2)
    assert results.values == [None]
    iterated: Deferred[list[ConsumerBatch]] = Deferred.fromCoroutine(_all(consumer))
    consumer.close()
    consumer.close()
    consumer._readers.follow()

    assert [ClosedError] == [type(error) for error in results.errors]
    assert town.done(iterated) == []
    assert [ClosedError] == [type(error) for error in Results(consumer.next_batch()).errors]
    town.end()


async def _all(consumer: LookupConsumer) -> list[ConsumerBatch]:
    return [batch async for batch in consumer]


# --- producers -----------------------------------------------------------------


def values(town: Town, name: str) -> list[bytes | None]:
    """What a node stored."""
    topics = town.nodes[name].topics
    return topics["t"].logs[0].values() if "t" in topics else []


def test_sends_to_its_zone() -> None:
    """A node of the client's zone is taken; without one there, another."""
    town = Town(client=ClientConfig(zone="east"))
    town.zones = {"n1": "west", "n2": "east", "n3": "west"}
    town.announce("t", "n1", "n2", "n3")
    producer = town.lookup.producer()
    for _ in range(4):
        (stored,) = town.done(producer.send("t", b"x"))
        assert stored.node.name == "n2"
    town.kill("n2")
    sent = Results(producer.send("t", b"y"))
    town.advance(6)

    assert sent.values[0][0].node.name in {"n1", "n3"}
    assert len(values(town, "n2")) == 4
    town.end()


def test_sends_later() -> None:
    """What waits at a node that was found late waits no longer for that."""
    town = Town()
    town.announce("t", "n1", "n2")
    town.kill("n1")
    producer = town.lookup.producer()
    sent = Results(*[producer.send("t", b"x", delay=60, ttl=9) for _ in range(2)])
    wrong = Results(producer.send("t", b"x", delay=-1))
    town.advance(10)
    batches = town.nodes["n2"].topics["t"].delays[0].batches
    dues = [due for batch in batches for due in RecordBatch(batch).dues]

    assert [str(one[0].position) for one in sent.values] == ["t/0~0", "t/0~1"]
    assert all(-60_000 <= due < -49_000 for due in dues)
    assert [type(error) for error in wrong.errors] == [InvalidDelay]
    town.end()


def test_fails_over() -> None:
    """A node that refuses connections or falls silent is left for another."""
    town = Town()
    town.announce("t", "n1", "n2", "n3")
    town.kill("n1")
    town.nodes["n2"].mute = {MessageType.PRODUCE}
    producer = town.lookup.producer()
    sent = Results(*[producer.send("t", b"%d" % number) for number in range(6)])
    town.advance(20)

    assert sent.errors == []
    assert {stored.node.name for (stored,) in sent.values} == {"n3"}
    assert len(values(town, "n3")) == 6
    town.nodes["n2"].mute = set()
    town.end()


def test_follows_a_node() -> None:
    """A node that is announced at another address is found there; one that is gone is let go."""
    town = Town(refresh_s=5)
    town.announce("t", "n1")
    producer = town.lookup.producer()
    town.done(producer.send("t", b"a"))
    town.kill("n1")
    place = town.places["n1"] = town.places["n1"]._replace(port=9)
    town.nodes["n1"].brokers = [(1, place.host, place.port, "n1")]
    town.start("n1")
    town.advance(6)
    town.done(producer.send("t", b"b"))
    assert values(town, "n1") == [b"a", b"b"]
    town.kill("n1")
    town.announce("t", "n2")
    town.advance(6)
    (stored,) = town.done(producer.send("t", b"c"))

    assert stored.node.name == "n2"
    town.advance(6)
    town.end()


def test_copies() -> None:
    """Each record is stored at as many different nodes as wanted, or the error says how many."""
    town = Town()
    town.announce("t", "n1", "n2", "n3")
    producer = town.lookup.producer(copies=2)
    stored = town.done(producer.send("t", b"x", key=b"k"))
    assert len({one.node.name for one in stored}) == 2
    assert sum(values(town, name) == [b"x"] for name in town.nodes) == 2
    town.kill("n1")
    sent = Results(producer.send("t", b"y"))
    town.advance(10)
    assert {one.node.name for one in sent.values[0]} == {"n2", "n3"}
    town.kill("n2")
    sent = Results(producer.send("t", b"z"))
    town.advance(20)
    (error,) = sent.errors

    assert isinstance(error, TooFewCopies)
    assert "1 of 2 copies were stored" in str(error)
    assert [one.node.name for one in error.stored] == ["n3"]
    town.end()


def test_a_topic_that_no_node_has() -> None:
    """It is made at a node that has other topics, if the settings allow that."""
    town = Town()
    producer = town.lookup.producer()
    sent = Results(producer.send("t", b"x"))
    town.pump()
    assert [UnreachableError] == [type(error) for error in sent.errors]
    town.announce("u", "n2")
    (stored,) = town.done(producer.send("t", b"x"))
    assert stored.node.name == "n2"
    strict = town.lookup.producer(ProducerConfig(create_topics=False))
    sent = Results(strict.send("nix", b"x"))
    town.pump()
    assert [UnreachableError] == [type(error) for error in sent.errors]
    many = town.lookup.producer(copies=2)
    sent = Results(many.send("t", b"x"))
    town.pump()
    assert [TooFewCopies] == [type(error) for error in sent.errors]
    town.end()


def test_wrong_records_and_the_end() -> None:
    """What no node would take is refused at once; closing settles what was taken."""
    town = Town()
    town.announce("t", "n1")
    with pytest.raises(UsageError):
        town.lookup.producer(copies=0)
    producer = town.lookup.producer()
    sent = Results(producer.send("t", b"x" * (1 << 25)), producer.send("t", 7))
    town.pump()
    assert {ValueTooLarge, UsageError} == {type(error) for error in sent.errors}
    sent = Results(producer.send("t", b"last"))
    town.done(producer.close())
    late = Results(producer.send("t", b"late"))

    assert len(sent.values) == 1
    assert [ClosedError] == [type(error) for error in late.errors]
    town.end()
