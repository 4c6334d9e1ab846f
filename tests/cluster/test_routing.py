"""Exchanges where several brokers lead partitions, and one of them is away."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.routing.exchanging import bind, make_exchange
from tests.cluster.test_deadletters import KNOWN, lead
from tests.fakes.whole_cluster import WholeCluster
from tinymq.client import Client


def exchange(cluster: WholeCluster, leader: str = "b1", **targets: str) -> Client:
    """Make the exchange `x` and topics bound to it, with the brokers that lead them."""
    lead(cluster, "x", leader)
    make_exchange(cluster.meta, cluster.meta.describe("x"), "fanout")
    for name, each in targets.items():
        lead(cluster, name, each)
        bind(cluster.meta, "x", name)
    cluster.advance(1)
    return cluster.client("b1", "b2")


def stuck(cluster: WholeCluster, broker: str = "b1") -> list[dict[str, Any]]:
    """What is stuck of the exchange at a broker."""
    (hosted,) = (each for each in cluster[broker].broker.channels.all() if each.router)
    assert hosted.router is not None
    found: list[dict[str, Any]] = hosted.router.told(hosted.now)["stuck"]
    return found


def check(cluster: WholeCluster, client: Client, target: str, *values: bytes) -> None:
    """See that a topic has some values and no more."""
    assert cluster.read(client, target, len(values)) == [*values]
    topic = cluster.meta.describe(target)
    leader = next(each for each in ("b1", "b2") if cluster[each].broker.id == topic.leaders[0])
    assert cluster[leader].broker.partition(topic.id, 0).log.end_offset == len(values)


def test_copies_come_to_partitions_of_other_brokers(cluster: WholeCluster) -> None:
    """Long ones too, in order and once."""
    client = exchange(cluster, a="b1", b="b2")
    values = [b"a", b"b" * 200_000, b"c"]
    cluster.publish(client, "x", *values)
    cluster.advance(1)

    check(cluster, client, "a", *values)
    check(cluster, client, "b", *values)


@pytest.mark.parametrize("moment", range(0, 24, 3))
def test_the_broker_of_a_target_dies_in_between(cluster: WholeCluster, moment: int) -> None:
    """At whatever moment: the other target gets its copies, this one when it is back, once."""
    client = exchange(cluster, a="b1", b="b2")
    producer = client.producer()
    sent = [cluster.begin(producer.send("x", value)) for value in (b"1", b"2", b"3")]
    for _ in range(moment):
        cluster._move()
    cluster["b2"].kill()
    cluster.advance(KNOWN)

    check(cluster, client, "a", b"1", b"2", b"3")
    cluster["b2"].start()
    cluster.advance(40)
    check(cluster, client, "b", b"1", b"2", b"3")
    assert all(sent)


@pytest.mark.parametrize("moment", range(0, 24, 3))
def test_the_broker_of_the_exchange_dies_in_between(cluster: WholeCluster, moment: int) -> None:
    """What it had brought it does not bring again."""
    client = exchange(cluster, a="b1", b="b2")
    producer = client.producer()
    sent = [cluster.begin(producer.send("x", value)) for value in (b"1", b"2", b"3")]
    for _ in range(moment):
        cluster._move()
    cluster["b1"].kill()
    cluster.advance(KNOWN)
    cluster["b1"].start()
    cluster.advance(40)
    assert all(sent)

    check(cluster, client, "a", b"1", b"2", b"3")
    check(cluster, client, "b", b"1", b"2", b"3")


def test_the_broker_of_a_target_is_away(cluster: WholeCluster) -> None:
    """Copies for it wait, and it is said why; the others do not wait for it."""
    client = exchange(cluster, a="b1", b="b2")
    cluster["b2"].kill()
    cluster.advance(KNOWN)
    cluster.publish(client, "x", b"1")
    cluster.advance(1)
    (told,) = stuck(cluster)
    check(cluster, client, "a", b"1")

    assert (told["target"], told["pending"]) == ("b", 1)
    assert "not there" in told["why"] or "does not answer" in told["why"]

    cluster["b2"].start()
    cluster.advance(40)
    check(cluster, client, "b", b"1")
    assert not stuck(cluster)


def test_a_lost_answer_is_no_second_copy(cluster: WholeCluster) -> None:
    """The link between the brokers is cut when the copy is there and its answer is not."""
    client = exchange(cluster, b="b2")
    cluster.publish(client, "x", b"1")
    target = cluster["b2"].topic("b")
    cluster.until(lambda: cluster["b2"].broker.partition(target.id, 0).log.end_offset)
    cluster.cut("b1", "b2")
    cluster.advance(40)
    cluster.publish(client, "x", b"2")
    cluster.advance(1)

    check(cluster, client, "b", b"1", b"2")
