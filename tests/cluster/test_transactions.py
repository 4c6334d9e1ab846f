"""Transactions over brokers that talk to each other over links, and die."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.transactions.stage import transactional
from tests.cluster.test_deadletters import lead
from tests.fakes.whole_cluster import WholeCluster
from tinymq.broker.broker import Broker
from tinymq.broker.partition import Appended
from tinymq.broker.transactions.opened import Identity
from tinymq.broker.transactions.places import place_of
from tinymq.errors import NotCoordinator, WireError
from tinymq.names import TRANSACTIONS
from tinymq.wire.messages import EndTransaction, EndTransactionReply, InitProducerReply


def init(cluster: WholeCluster, process: str, name: str = "bank") -> Any:
    """Say INIT_PRODUCER to a broker."""
    found: list[InitProducerReply | WireError] = []
    cluster[process].broker.transacting.init_producer(name, 5000, "", found.append)
    cluster.advance(2)
    (reply,) = found
    return reply


def coordinator(cluster: WholeCluster, name: str = "bank") -> tuple[str, str, Identity]:
    """Find the coordinator of a name, and another broker; begin a transaction there."""
    reply = init(cluster, "b1", name)
    here, there = "b1", "b2"
    if isinstance(reply, NotCoordinator):
        assert reply.data == {"broker": cluster["b2"].broker.id}
        here, there = there, here
        reply = init(cluster, here, name)
    assert isinstance(reply, InitProducerReply), reply
    return here, there, (reply.producer_id, reply.epoch)


def publish(cluster: WholeCluster, process: str, identity: Identity, index: int) -> None:
    """Publish a record in a transaction."""
    broker: Broker = cluster[process].broker
    found: list[Appended | WireError] = []
    data = transactional(b"%d" % index, identity=identity, sequence=0)
    broker.produce(cluster.meta.describe("t").id, index, data, found.append)
    cluster.settle()
    assert isinstance(found[0], Appended), found


def end(cluster: WholeCluster, process: str, identity: Identity) -> list[Any]:
    """Commit a transaction of two partitions, without waiting."""
    found: list[EndTransactionReply | WireError] = []
    cluster[process].broker.transacting.end(
        EndTransaction(
            transactional_id="bank",
            transaction=identity,
            commit=True,
            topics=[(cluster.meta.describe("t").id, [0, 1])],
        ),
        found.append,
    )
    return found


def stable(cluster: WholeCluster, process: str, index: int) -> int:
    """How far readers see."""
    return cluster[process].broker.partition(cluster.meta.describe("t").id, index).stable_offset


def test_partitions_elsewhere(cluster: WholeCluster) -> None:
    """A commit reaches the partitions of other brokers over the links between them."""
    lead(cluster, "t", "b1", "b2")
    here, _, identity = coordinator(cluster)
    publish(cluster, "b1", identity, 0)
    publish(cluster, "b2", identity, 1)
    assert (stable(cluster, "b1", 0), stable(cluster, "b2", 1)) == (0, 0)
    found = end(cluster, here, identity)
    cluster.advance(1)
    assert (stable(cluster, "b1", 0), stable(cluster, "b2", 1)) == (2, 2)
    assert [each.identity for each in found] == [(identity[0], identity[1] + 1)]


@pytest.mark.parametrize("moment", range(6))
def test_the_other_broker_dies(cluster: WholeCluster, moment: int) -> None:
    """Whenever it dies: it is told when it is back, and nobody else waits."""
    lead(cluster, "t", "b1", "b2")
    here, there, identity = coordinator(cluster)
    publish(cluster, "b1", identity, 0)
    publish(cluster, "b2", identity, 1)
    end(cluster, here, identity)
    for _ in range(moment):
        cluster._move()
    cluster[there].kill()
    cluster.advance(8)
    mine, theirs = (0, 1) if here == "b1" else (1, 0)
    assert stable(cluster, here, mine) == 2
    rows = cluster.operate("meta", "transaction.list")["transactions"]
    assert [row["state"] for row in rows] in ([], ["committing"])
    cluster[there].start()
    cluster.advance(15)
    assert stable(cluster, there, theirs) == 2
    assert cluster.operate("meta", "transaction.list")["transactions"] == []


@pytest.mark.parametrize("moment", range(6))
def test_the_coordinator_dies(cluster: WholeCluster, moment: int) -> None:
    """Whenever it dies: both partitions say the same when it is back."""
    lead(cluster, "t", "b1", "b2")
    here, _, identity = coordinator(cluster)
    publish(cluster, "b1", identity, 0)
    publish(cluster, "b2", identity, 1)
    answered = end(cluster, here, identity)
    for _ in range(moment):
        cluster._move()
    cluster[here].kill()
    cluster.advance(8)
    cluster[here].start()
    cluster.advance(20)
    partitions = [
        cluster[process].broker.partition(cluster.meta.describe("t").id, index)
        for process, index in (("b1", 0), ("b2", 1))
    ]
    assert [each.transactions.open for each in partitions] == [{}, {}]
    aborted = [identity in each.transactions.aborted for each in partitions]
    assert aborted in ([True, True], [False, False])
    if answered:
        assert aborted == [False, False]


def test_people(cluster: WholeCluster) -> None:
    """Wherever people ask, they see what is open, and abort it."""
    lead(cluster, "t", "b1", "b2")
    _, _, identity = coordinator(cluster)
    publish(cluster, "b1", identity, 0)
    publish(cluster, "b2", identity, 1)
    cluster.advance(3)
    (row,) = cluster.operate("b1", "transaction.list")["transactions"]
    assert row["partitions"] == [{"topic": "t", "partition": index} for index in (0, 1)]
    cluster.operate("b2", "transaction.abort", transactional_id="bank")
    cluster.advance(2)
    assert (stable(cluster, "b1", 0), stable(cluster, "b2", 1)) == (2, 2)
    with pytest.raises(WireError):
        cluster.operate("b2", "transaction.abort", transactional_id="nobody")


def test_the_topic_is_made_once(cluster: WholeCluster) -> None:
    """Many who begin at once find one topic, with its partitions on all brokers."""
    found: list[Any] = []
    for number in range(8):
        name = f"p{number}"
        for process in ("b1", "b2"):
            cluster[process].broker.transacting.init_producer(name, 5000, "", found.append)
    cluster.advance(3)
    topic = cluster.meta.describe(TRANSACTIONS)
    assert (topic.partitions, len(set(topic.leaders))) == (16, 2)
    good = [each for each in found if isinstance(each, InitProducerReply)]
    assert len(good) == 8
    assert {each.producer_id % 16 for each in good} == {place_of(f"p{each}") for each in range(8)}
