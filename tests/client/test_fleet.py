"""Producers and consumers on a cluster of several brokers, some of which are away."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.client.fleet import Fleet
from tests.client.test_consumer_core import Reader
from tests.client.test_core import Outcome
from tests.client.test_producer_core import Sender
from tinymq.client.core.address import Address
from tinymq.client.core.cluster import Cluster
from tinymq.client.core.config import ClientConfig
from tinymq.client.core.offsets import OffsetSearch
from tinymq.client.core.partitioners import key_partition
from tinymq.client.core.starts import LATEST
from tinymq.errors import (
    DeadlineExceeded,
    NotLeader,
    UnknownPartition,
    UnknownTopic,
    UnknownTopicId,
    UnreachableError,
)
from tinymq.wire.header import MessageType
from tinymq.wire.messages import (
    Fetch,
    InitProducer,
    MetadataReply,
    Offsets,
    Produce,
    TopicRow,
)
from tinymq.wire.records import encode_batch


def sender(fleet: Fleet, config: ClientConfig | None = None, **more: Any) -> Sender:
    """A producer that has sent one record to each partition of topic t."""
    made = Sender(cluster=(fleet.net, fleet.cluster(config)), **more)
    for partition in range(len(fleet.topics["t"].leaders)):
        made.send(b"first", partition=partition)
        made.go()
    assert len(made.stored) == len(fleet.topics["t"].leaders)
    return made


def reader(fleet: Fleet, **more: Any) -> Reader:
    """A consumer of all of topic t."""
    made = Reader(cluster=(fleet.net, fleet.cluster()), **more)
    made.assign()
    made.drain()
    return made


def put(fleet: Fleet, value: bytes, partition: int) -> None:
    """Store a record, and wake who waits for it."""
    topic = fleet.topics["t"]
    topic.logs[partition].append(encode_batch([value]))
    fleet.puppets[topic.leaders[partition]].wake()
    fleet.net.pump()


def key_for(partition: int, partitions: int) -> bytes:
    """A key that belongs to a partition."""
    keys = (b"%d" % number for number in range(1000))
    return next(key for key in keys if key_partition(key, partitions) == partition)


# --- the seed ------------------------------------------------------------------


def test_requests_go_to_the_leaders() -> None:
    """Each batch goes straight to the broker that leads its partition."""
    fleet = Fleet()
    fleet.make("t", 1, 2, 3)
    made = sender(fleet)

    assert [partition for _, partition, _ in made.stored] == [0, 1, 2]
    assert [puppet.kinds_of(Produce) for puppet in fleet.puppets.values()] == [1, 1, 1]
    assert len(fleet.net.dialed) == 3


def test_another_seed_address_is_used() -> None:
    """When the first address is dead from the start, the next one serves."""
    fleet = Fleet()
    fleet.make("t", 2, 2, 2)
    fleet.kill(1)
    made = Sender(cluster=(fleet.net, fleet.cluster(None, 1, 2)))
    made.send(b"a")
    made.go()
    fleet.net.advance(1)

    assert len(made.stored) == 1


def test_the_death_of_the_only_seed_is_survived() -> None:
    """A client that knows one address goes on with the brokers that it has heard of."""
    fleet = Fleet()
    fleet.make("t", 1, 2, 3)
    fleet.make("u", 3)
    cluster = fleet.cluster()
    known, later = Outcome(), Outcome()
    cluster.topic("t", fleet.net.now + 5, known.found, fleet.net.now)
    fleet.net.pump()
    assert [address.host for address in fleet.net.dialed] == ["b1"]
    fleet.kill(1)
    cluster.topic("u", fleet.net.now + 5, later.found, fleet.net.now)
    cluster.ask(InitProducer(), fleet.net.now + 5, later.done, fleet.net.now)
    fleet.net.advance(2)

    assert [len(later.replies), later.errors] == [2, []]
    assert fleet.net.dialed[-1].host in {"b2", "b3"}


def test_a_broker_that_was_away_is_remembered() -> None:
    """When all are dead, the first that comes back is found, though it was given up before."""
    fleet = Fleet()
    fleet.make("t", 1, 2, 3)
    made = sender(fleet)
    fleet.kill(2)
    fleet.net.advance(3)
    fleet.kill(1)
    fleet.kill(3)
    fleet.net.advance(3)
    fleet.start(2)
    outcome = Outcome()
    made.cluster.ask(InitProducer(), fleet.net.now + 20, outcome.done, fleet.net.now)
    fleet.net.advance(10)

    assert len(outcome.replies) == 1


def test_a_living_link_is_used_while_the_seed_is_away() -> None:
    """Questions to any broker take a link that is up, without waiting for the seed."""
    fleet = Fleet()
    fleet.make("t", 1, 2, 3)
    made = sender(fleet)
    fleet.net.hang = True
    fleet.kill(1)
    outcome = Outcome()
    made.cluster.ask(InitProducer(), fleet.net.now + 5, outcome.done, fleet.net.now)
    fleet.net.pump()

    assert len(outcome.replies) == 1


def test_a_seed_that_stands_still() -> None:
    """While a broker owes an answer and says nothing, others are asked, and preferred."""
    fleet = Fleet()
    fleet.make("t", 1, 2, 3)
    made = sender(fleet, ClientConfig(request_timeout_s=4))
    fleet.puppets[1].deaf = {int(kind) for kind in MessageType if kind is not MessageType.HELLO}
    outcome = Outcome()
    made.cluster.ask(InitProducer(), fleet.net.now + 10, outcome.done, fleet.net.now)
    fleet.net.advance(6)

    assert [len(outcome.replies), outcome.errors] == [1, []]
    assert made.cluster.failing == {1}
    assert "connected and does not answer" in str(made.cluster.trouble("t", 0))
    for _ in range(6):
        made.send(b"anywhere")
        made.go()
    assert len(fleet.topics["t"].logs[0].headers) == 1
    fleet.puppets[1].deaf = set()
    made.send(b"x", partition=0)
    made.go()
    assert made.cluster.failing == frozenset()
    made.check()


def test_a_broker_that_stands_still_is_asked_for_news() -> None:
    """Metadata is read anew, so that it is known when such a broker was taken for dead."""
    fleet = Fleet()
    fleet.make("t", 1, 2, 3)
    made = sender(fleet, deadline_s=3)
    fleet.puppets[2].deaf = {int(kind) for kind in MessageType if kind is not MessageType.HELLO}
    made.send(b"in doubt", partition=1)
    made.go()
    fleet.live.discard(2)
    fleet.revision += 1
    fleet.net.advance(4)
    assert [DeadlineExceeded] == [type(error) for _, error in made.failed]
    made.send(b"certainly not stored", partition=1)
    made.go()
    fleet.net.advance(4)
    assert [DeadlineExceeded, NotLeader] == [type(error) for _, error in made.failed]


def test_a_broker_that_moved_is_followed() -> None:
    """A broker that comes back at another address is found by the metadata."""
    fleet = Fleet()
    fleet.make("t", 1, 2)
    made = sender(fleet)
    consumer = Reader(cluster=(fleet.net, made.cluster))
    consumer.assign()
    consumer.drain()
    fleet.kill(2)
    made.send(b"waits", partition=1)
    made.go()
    fleet.net.advance(3)
    fleet.start(2, Address("elsewhere", 7801))
    fleet.net.advance(5)

    assert made.stored[-1] == (b"waits", 1, 1)
    assert consumer.drain() == [b"waits"]
    fleet.kill(1)
    fleet.start(1, Address("new", 7802))
    made.send(b"seed", partition=0)
    made.go()
    fleet.net.advance(5)
    assert made.stored[-1] == (b"seed", 0, 1)


def test_a_lone_broker_is_reached_where_the_user_said() -> None:
    """The address that a broker tells of itself is not tried instead: a relay may be between."""
    fleet = Fleet(1)
    fleet.make("t", 1)
    fleet.net.puppets = {Address("relay", 1): fleet.puppets[1]}
    cluster = Cluster([Address("relay", 1)], ClientConfig(), fleet.net, lambda: 0.5)
    fleet.net.made = cluster
    made = Sender(cluster=(fleet.net, cluster))
    made.send(b"a")
    made.go()
    fleet.net.up = False
    fleet.cut(1)
    made.send(b"b")
    made.go()
    fleet.net.advance(5)
    fleet.net.up = True
    fleet.net.advance(5)

    assert len(made.stored) == 2
    assert set(fleet.net.dialed) == {Address("relay", 1)}


def test_another_broker_at_an_old_address() -> None:
    """A broker that took over the place of another is not taken for it."""
    fleet = Fleet()
    fleet.make("t", 1, 2, 3)
    made = sender(fleet)
    fleet.kill(2)
    fleet.kill(3)
    made.send(b"waits", partition=1)
    made.go()
    fleet.net.puppets[fleet.places[2]] = fleet.puppets[3]
    fleet.net.advance(5)
    assert fleet.puppets[3].kinds_of(Produce) == 1
    fleet.start(2, Address("elsewhere", 2))
    fleet.start(3, Address("b2", 7800))
    fleet.net.advance(5)
    made.send(b"x", partition=2)
    made.go()
    fleet.net.advance(5)

    assert made.stored[3:] == [(b"waits", 1, 1), (b"x", 2, 1)]
    assert fleet.puppets[3].kinds_of(Produce) == 2


def test_a_broker_that_moves_while_its_link_is_up() -> None:
    """The client goes to the address that the metadata name, and repeats what was on its way."""
    fleet = Fleet()
    fleet.make("t", 1, 2)
    made = sender(fleet)
    fleet.puppets[2].deaf = {int(Produce.type)}
    made.send(b"x", partition=1)
    made.go()
    fleet.start(2, Address("elsewhere", 2))
    made.cluster.refresh(fleet.net.now)
    fleet.puppets[2].deaf = set()
    fleet.net.advance(3)

    assert made.stored[2:] == [(b"x", 1, 1)]
    assert fleet.net.dialed[-1] == Address("elsewhere", 2)


@pytest.mark.parametrize("acks", ["leader", "none"])
def test_what_waits_for_the_seed_goes_to_nobody_else(acks: str) -> None:
    """Records for the dead seed wait for it, also when another broker takes its part."""
    fleet = Fleet(2)
    fleet.make("t", 1)
    made = sender(fleet, acks=acks)
    fleet.kill(1, noticed=False)
    made.send(b"x", partition=0)
    made.go()
    fleet.net.advance(3)
    assert fleet.puppets[2].kinds_of(Produce) == 0
    fleet.start(1)
    fleet.net.advance(5)

    assert fleet.puppets[1].values("t") == [b"first", b"x"]


# --- producers -----------------------------------------------------------------


@pytest.mark.parametrize("noticed", [True, False])
def test_records_for_a_dead_broker_fail_by_name(noticed: bool) -> None:
    """After the deadline the error says which partition of which topic, and whose it is."""
    fleet = Fleet()
    fleet.make("t", 1, 2, 3)
    made = sender(fleet, deadline_s=20)
    fleet.kill(2, noticed=noticed)
    made.send(b"x", partition=1)
    made.go()
    fleet.net.advance(19)
    assert made.failed == []
    fleet.net.advance(1.1)
    ((_, error),) = made.failed

    assert isinstance(error, (NotLeader, UnreachableError))
    assert error.retriable
    for word in ("partition 1", "topic t", "name2 (2)"):
        assert word in str(error)
    made.send(b"y", partition=2)
    made.go()
    assert made.stored[-1][:2] == (b"y", 2)


def test_a_lost_answer_keeps_its_uncertainty() -> None:
    """A record that may be stored is not said to be safe to repeat."""
    fleet = Fleet()
    fleet.make("t", 1, 2)
    made = sender(fleet, deadline_s=20)
    fleet.puppets[2].mute = {int(Produce.type)}
    made.send(b"x", partition=1)
    made.go()
    fleet.kill(2)
    fleet.net.advance(20.1)
    ((_, error),) = made.failed

    assert isinstance(error, DeadlineExceeded)
    assert not error.retriable
    assert "partition 1" in str(error)


@pytest.mark.parametrize("partitioner", ["sticky", "round_robin"])
@pytest.mark.parametrize("noticed", [True, False])
def test_records_without_key_avoid_a_dead_broker(partitioner: str, noticed: bool) -> None:
    """As soon as the link is lost, records that may go anywhere go to the living."""
    fleet = Fleet()
    fleet.make("t", 1, 2, 3)
    made = sender(fleet, partitioner=partitioner)
    fleet.kill(2, noticed=noticed)
    fleet.net.advance(0.5)
    for number in range(12):
        made.send(b"%d" % number)
        made.go()

    assert len(made.stored) == 3 + 12
    assert {partition for _, partition, _ in made.stored[3:]} == {0, 2}
    fleet.start(2)
    fleet.net.advance(70)
    for number in range(12):
        made.send(b"%d" % number)
        made.go()
    assert {partition for _, partition, _ in made.stored[15:]} == {0, 1, 2}


def test_records_with_a_key_wait_for_their_broker() -> None:
    """A key belongs to one partition, so its records wait, in order."""
    fleet = Fleet()
    fleet.make("t", 1, 2, 3)
    made = sender(fleet)
    fleet.kill(2)
    fleet.net.advance(1)
    for value in (b"a", b"b", b"c"):
        made.send(value, key=key_for(1, 3))
        made.go()
    fleet.net.advance(10)
    assert len(made.stored) == 3
    fleet.start(2)
    fleet.net.advance(5)

    assert made.stored[3:] == [(b"a", 1, 1), (b"b", 1, 2), (b"c", 1, 3)]


def test_zone() -> None:
    """Records without key go to the client's zone, and elsewhere when nobody is there."""
    fleet = Fleet()
    fleet.zones = {"1": "east", "2": "west", "3": "west"}
    fleet.make("t", 1, 2, 3)
    made = sender(fleet, ClientConfig(zone="west"))

    def sent() -> set[int]:
        before = len(made.stored)
        for number in range(12):
            made.send(b"%d" % number)
            made.go()
        assert len(made.stored) == before + 12
        return {partition for _, partition, _ in made.stored[before:]}

    assert sent() == {1, 2}
    made.send(b"k", key=key_for(0, 3))
    made.go()
    assert made.stored[-1][1] == 0
    for number in (2, 3):
        fleet.kill(number)
        fleet.net.advance(1)
        expected = {2} if number == 2 else {0}
        assert sent() == expected
    fleet.start(3)
    fleet.zones["1"] = "west"
    fleet.net.advance(70)
    assert sent() == {0, 2}


# --- consumers -----------------------------------------------------------------


@pytest.mark.parametrize("noticed", [True, False])
def test_the_living_partitions_are_read_on(noticed: bool) -> None:
    """A dead broker stops its own partitions only; they go on when it is back."""
    fleet = Fleet()
    fleet.make("t", 1, 2, 3)
    made = reader(fleet)
    fleet.kill(2, noticed=noticed)
    fleet.net.advance(100)
    put(fleet, b"one", 0)
    put(fleet, b"three", 2)
    assert sorted(made.drain()) == [b"one", b"three"]  # type: ignore[type-var]
    assert made.core.stuck is None
    fleet.topics["t"].logs[1].append(encode_batch([b"two"]))
    fleet.start(2, Address("moved", 1))
    fleet.net.advance(15)

    assert made.drain() == [b"two"]


def test_lost_and_back_are_said_once() -> None:
    """The log tells once that a broker is lost, and once that it is back."""
    fleet = Fleet()
    fleet.make("t", 1, 2, 3)
    made = reader(fleet)
    fleet.kill(2)
    for _ in range(20):
        fleet.net.advance(3)
        for number in (1, 3):
            fleet.puppets[number].wake(empty=True)
    (lost,) = fleet.net.said
    assert lost.startswith("connection to broker name2 (2) lost, trying again: ")
    fleet.start(2)
    fleet.net.advance(8)
    put(fleet, b"two", 1)

    assert fleet.net.said[1:] == ["connection to broker name2 (2) is back"]
    made.cluster.close(fleet.net.now)
    assert len(fleet.net.said) == 2


def test_assignment_while_a_broker_is_away() -> None:
    """What is there is read at once; the start of the rest is found when its broker is back."""
    fleet = Fleet()
    fleet.make("t", 1, 2, 3)
    for partition in range(3):
        fleet.topics["t"].logs[partition].append(encode_batch([b"%d" % partition]))
    fleet.kill(2)
    made = reader(fleet)

    assert made.assigned == [None]
    assert sorted(made.core.marks("t")) == [0, 2]
    fleet.start(2)
    fleet.net.advance(5)
    assert made.drain() == [b"1"]


@pytest.mark.parametrize("noticed", [True, False])
def test_assignment_when_nobody_leads(noticed: bool) -> None:
    """When no partition can be looked up the assignment ends at its deadline."""
    fleet = Fleet()
    fleet.make("t", 2)
    fleet.kill(2, noticed=noticed)
    made = Reader(cluster=(fleet.net, fleet.cluster()), deadline_s=5)
    made.assign()
    fleet.net.advance(11)
    (error,) = made.assigned

    assert isinstance(error, (NotLeader, UnreachableError))
    assert made.core.assigned == []


def test_end_offsets_of_a_dead_broker() -> None:
    """They come when the broker is back in time; else the error names what is missing."""
    fleet = Fleet()
    fleet.make("t", 1, 2, 3)
    found: list[Any] = []
    cluster = fleet.cluster()

    def search() -> None:
        one = OffsetSearch(cluster, fleet.net.now + 10, lambda *end: found.append(end))
        one.start("t", None, LATEST, fleet.net.now)
        fleet.net.pump()

    fleet.kill(2)
    search()
    fleet.net.advance(11)
    ((_, error),) = found
    assert isinstance(error, (NotLeader, UnreachableError))
    assert "partition 1 of topic t" in str(error)
    search()
    fleet.net.advance(2)
    fleet.start(2)
    fleet.net.advance(6)
    assert found[1:] == [({0: 0, 1: 0, 2: 0}, None)]


@pytest.mark.parametrize("noticed", [True, False])
def test_offsets_of_the_brokers_that_answer(noticed: bool) -> None:
    """A silent broker does not keep back the others; one known to be away is not waited for."""
    fleet = Fleet()
    fleet.make("t", 1, 2, 3)
    ends: list[Any] = []
    cluster = fleet.cluster()
    fleet.kill(2, noticed=noticed)
    begun = fleet.net.now
    search = OffsetSearch(
        cluster, begun + 10, lambda _, error: ends.append((error, fleet.net.now)), partial=True
    )
    search.start("t", None, LATEST, begun)
    fleet.net.pump()
    fleet.net.advance(11)
    ((error, at),) = ends
    assert search.found == {0: 0, 2: 0}
    assert list(search.faults) == [1]
    assert "partition 1 of topic t" in str(search.faults[1])
    if noticed:
        assert (error, at) == (None, begun)
    else:
        assert isinstance(error, (NotLeader, UnreachableError))


# --- metadata ------------------------------------------------------------------


@pytest.mark.parametrize("noticed", [True, False])
def test_no_storm_of_questions(noticed: bool) -> None:
    """However much waits for a dead broker, metadata and brokers are asked with pauses."""
    fleet = Fleet()
    fleet.make("t", *[1, 2, 3] * 20)
    made = Reader(cluster=(fleet.net, fleet.cluster()))
    made.assign()
    made.drain()
    writer = Sender(cluster=(fleet.net, made.cluster))
    for partition in range(60):
        writer.send(b"x", partition=partition)
        writer.go()
    made.drain()
    fleet.kill(2, noticed=noticed)
    for partition in range(60):
        writer.send(b"y", partition=partition)
        writer.go()
    asked, dialed = fleet.asked(), len(fleet.net.dialed)
    fleet.net.advance(28)

    assert 5 <= fleet.asked() - asked <= 28
    assert len(fleet.net.dialed) - dialed <= 28
    assert len(writer.failed) == 0


def test_not_leader_leads_to_a_refresh() -> None:
    """A broker that does not lead a partition makes the client ask who does."""
    fleet = Fleet()
    topic = fleet.make("t", 1, 2)
    made = sender(fleet)
    consumer = Reader(cluster=(fleet.net, made.cluster))
    consumer.assign()
    consumer.drain()
    topic.leaders[1] = 1
    fleet.revision += 1
    fleet.puppets[2].wake(empty=True)
    made.send(b"moved", partition=1)
    made.go()
    fleet.net.advance(2)

    assert made.stored[-1] == (b"moved", 1, 1)
    assert consumer.drain() == [b"moved"]


def test_lagging_metadata_changes_nothing() -> None:
    """A broker that lags behind can neither take away a topic nor its partitions."""
    fleet = Fleet()
    fleet.make("t", 1, 1)
    cluster = fleet.cluster()
    outcome = Outcome()
    cluster.topic("t", fleet.net.now + 5, outcome.found, fleet.net.now)
    fleet.net.pump()
    older: list[list[TopicRow]] = [[], [("t", b"0" * 16, [1], {}, None)]]
    for topics in older:
        fleet.puppets[1].believes = MetadataReply(revision=1, brokers=[], topics=topics)
        cluster.topic("t", fleet.net.now + 5, outcome.found, fleet.net.now, fresh=True)
        fleet.net.pump()

    assert outcome.errors == []
    assert [info.partitions for info in outcome.replies] == [2, 2, 2]


def test_a_new_topic_is_looked_for_at_a_lagging_broker() -> None:
    """A broker that has heard less than the client is asked again about what it does not know."""
    fleet = Fleet()
    fleet.make("t", 1)
    cluster = fleet.cluster()
    known, new = Outcome(), Outcome()
    cluster.topic("t", fleet.net.now + 5, known.found, fleet.net.now)
    fleet.net.pump()
    fleet.make("new", 1)
    fleet.puppets[1].believes = MetadataReply(revision=1, brokers=[], topics=[])
    cluster.topic("new", fleet.net.now + 5, new.found, fleet.net.now)
    fleet.net.advance(1)
    assert new.replies + new.errors == []
    fleet.puppets[1].believes = None
    fleet.net.advance(3)
    assert len(new.replies) == 1

    fleet.puppets[1].believes = MetadataReply(revision=1, brokers=[], topics=[])
    cluster.topic("never", fleet.net.now + 5, new.found, fleet.net.now)
    fleet.net.advance(5)
    assert [UnknownTopic] == [type(error) for error in new.errors]


def test_another_cluster_at_the_address() -> None:
    """When the data were thrown away the revision begins anew, and is believed."""
    fleet = Fleet(1)
    fleet.make("t", 1)
    fleet.revision = 100
    made = sender(fleet)
    fleet.cut(1)
    fleet.make("t", 1)
    fleet.revision = 3
    fleet.puppets[1].cluster = b"c" * 16
    made.send(b"anew")
    made.go()
    fleet.net.advance(3)

    assert fleet.puppets[1].values("t") == [b"anew"]


def test_a_higher_revision_leads_to_a_refresh() -> None:
    """An answer about one topic that shows that others changed makes the client read them."""
    fleet = Fleet(1)
    topic = fleet.make("t", 1)
    cluster = fleet.cluster()
    cluster.topic("t", fleet.net.now + 5, Outcome().found, fleet.net.now)
    fleet.net.pump()
    topic.leaders.append(1)
    fleet.make("u", 1)
    cluster.topic("u", fleet.net.now + 5, Outcome().found, fleet.net.now)
    fleet.net.advance(3)
    known = cluster.metadata.get("t")

    assert known is not None
    assert known.partitions == 2
    asked = fleet.asked()
    fleet.revision += 1
    cluster.heard(fleet.revision, fleet.net.now)
    cluster.heard(1, fleet.net.now)
    fleet.net.advance(3)
    assert fleet.asked() == asked + 1


@pytest.mark.parametrize("error", [UnknownTopicId, UnknownPartition])
def test_a_leader_that_lags_is_asked_again(error: type[UnknownTopicId | UnknownPartition]) -> None:
    """A leader may hear of a new topic or partition later than the client does."""
    fleet = Fleet()
    fleet.make("t", 1, 2)
    lagging = True
    fleet.puppets[2].refuse = lambda request: (
        error() if lagging and isinstance(request, (Produce, Offsets, Fetch)) else None
    )
    cluster = fleet.cluster()
    writer = Sender(cluster=(fleet.net, cluster))
    consumer = Reader(cluster=(fleet.net, cluster))
    ends: list[Any] = []
    for partition in (0, 1):
        writer.send(b"%d" % partition, partition=partition)
    writer.go()
    consumer.assign()
    search = OffsetSearch(cluster, fleet.net.now + 10, lambda *end: ends.append(end))
    search.start("t", None, LATEST, fleet.net.now)
    fleet.net.advance(2)
    assert writer.failed + consumer.assigned + ends == []
    lagging = False
    fleet.net.advance(4)

    assert [len(writer.stored), consumer.assigned] == [2, [None]]
    assert sorted(consumer.drain()) == [b"0", b"1"]  # type: ignore[type-var]
    assert [error for _, error in ends] == [None]
    assert fleet.asked() < 20


def test_a_topic_made_anew_is_told() -> None:
    """When the metadata say that the topic is another one, the consumer hears of it."""
    fleet = Fleet()
    fleet.make("t", 1)
    made = reader(fleet)
    fleet.make("t", 1)
    fleet.puppets[1].wake(empty=True)
    fleet.net.advance(2)

    with pytest.raises(UnknownTopicId):
        made.take()


@pytest.mark.parametrize("seed", range(5))
def test_brokers_that_come_and_go(seed: int) -> None:
    """Whoever dies, moves or is cut off, and when: each record is stored once and read once."""
    rng = random.Random(seed)
    fleet = Fleet()
    fleet.make("t", 1, 2, 3, 1, 2, 3)
    cluster = fleet.cluster()
    writer = Sender(cluster=(fleet.net, cluster), deadline_s=10_000)
    consumer = Reader(cluster=(fleet.net, cluster))
    consumer.assign()
    sent: list[bytes] = []
    found: list[bytes | None] = []
    for step in range(40):
        number = rng.randint(1, 3)
        up = number in fleet.live and fleet.places[number] in fleet.net.puppets
        match rng.randint(0, 4):
            case 0 if up:
                fleet.kill(number, noticed=rng.random() < 0.5)
            case 1 if up:
                fleet.cut(number)
            case 2 if not up:
                moved = Address(f"b{number}", 8000 + step)
                fleet.start(number, rng.choice([None, moved]) if number > 1 else None)
        for _ in range(rng.randint(0, 3)):
            sent.append(b"%d" % len(sent))
            writer.send(sent[-1], key=rng.choice([None, b"k", b"l", b"m"]))
        writer.core.drain(fleet.net.now)
        fleet.net.advance(rng.random() * 3)
        found += consumer.drain()
    for number in fleet.puppets:
        if fleet.places[number] not in fleet.net.puppets or number not in fleet.live:
            fleet.start(number)
    for _ in range(20):
        fleet.net.advance(2)
        for puppet in fleet.puppets.values():
            puppet.wake(empty=True)
        found += consumer.drain()

    assert writer.failed == []
    assert sorted(value for value, _, _ in writer.stored) == sorted(sent)
    stored = [value for log in fleet.topics["t"].logs for value in log.values()]
    assert sorted(map(str, stored)) == sorted(map(str, sent)) == sorted(map(str, found))
