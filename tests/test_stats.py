"""Snapshots: what a whole says of its parts."""

from __future__ import annotations

from attrs import evolve

from tinymq.stats import (
    BrokerSnapshot,
    ClusterSnapshot,
    PartitionSnapshot,
    SilentBroker,
    TopicSnapshot,
)


def test_topic_adds_up_its_partitions() -> None:
    """Totals of a topic are those of its partitions; unknown times do not count."""
    parts = (
        PartitionSnapshot(index=0, leader="a", start=5, end=9, bytes=10, oldest_ms=7),
        PartitionSnapshot(index=1, leader="a", start=0, end=2, bytes=1, last_write_ms=8),
    )
    topic = TopicSnapshot(id="0", name="t", created_ms=0, sync="always", partitions=parts)

    assert (topic.messages, topic.bytes, topic.oldest_ms, topic.last_write_ms) == (6, 11, 7, 8)


def test_clients_are_those_that_can_be_listed() -> None:
    """Neither those of a silent broker count, nor what the cluster's processes open themselves."""
    one = BrokerSnapshot(
        name="a", version="1", pid=1, started_ms=0, listen="", connections=9, own_connections=4
    )
    silent = (SilentBroker(id=2, name="b", listen="", since_ms=0),)
    cluster = ClusterSnapshot(name="c", taken_ms=0, brokers=(one, evolve(one, id=2, name="b")))

    assert (cluster.clients, evolve(cluster, silent=silent).clients) == (10, 5)
