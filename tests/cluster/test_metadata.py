"""Where clients are told that topics are."""

from __future__ import annotations

import socket

import pytest

from tests.cluster.conftest import Make
from tests.fakes.broker import only_of
from tests.fakes.whole_cluster import WholeCluster
from tinymq.wire.messages import Metadata, MetadataReply


def ask(cluster: WholeCluster, process: str, *names: str) -> MetadataReply:
    """Ask a process for metadata, as they travel."""
    replies: list[MetadataReply] = []
    cluster[process].broker.metadata(Metadata(names=list(names) or None), replies.append)
    return MetadataReply.from_meta(only_of(replies).to_meta())


def test_leaders(cluster: WholeCluster) -> None:
    """Partitions of dead brokers have no leader, wherever one asks, until they are back."""
    cluster.operate("b1", "topic.create", name="t", partitions=3)
    for process in ("meta", "b1", "b2"):
        assert ask(cluster, process, "t").topics[0][2] == [1, 2, 1]
    cluster["b1"].kill()
    cluster.advance(5)
    for process in ("meta", "b2"):
        assert ask(cluster, process, "t").topics[0][2] == [-1, 2, -1]
        assert [row[0] for row in ask(cluster, process).brokers] == [2]
    cluster["b1"].start()
    for process in ("meta", "b1", "b2"):
        assert ask(cluster, process, "t").topics[0][2] == [1, 2, 1]


def test_zones(make: Make) -> None:
    """The zones of live brokers are told, also those of the MetaServer's own process."""
    cluster = make(0)
    cluster.processes.clear()
    cluster.add("home", role="all", cluster__zone="north")
    cluster.add("b2", role="broker", meta=("home",), cluster__zone="south")
    cluster.add("b3", role="broker", meta=("home",))
    cluster.start()
    for process in ("home", "b2", "b3"):
        assert ask(cluster, process).zones == {"1": "north", "2": "south"}
    assert [row["zone"] for row in cluster.operate("b3", "broker.list")["brokers"]] == [
        "north",
        "south",
        "",
    ]
    cluster["b2"].stop()
    assert ask(cluster, "b3").zones == {"1": "north"}


def test_no_zones(cluster: WholeCluster) -> None:
    """Where nobody stands anywhere, no zones are told."""
    assert not ask(cluster, "b1").zones


def test_moved(cluster: WholeCluster) -> None:
    """A broker's new address is told everywhere, and clients follow."""
    cluster.operate("b1", "topic.create", name="t", partitions=2)
    client = cluster.client("b1")
    cluster.publish(client, "t", b"one", partition=1)
    cluster["b2"].stop()
    listen = ("tcp:7899:interface=127.0.0.1",)
    cluster["b2"].config = cluster["b2"].config.changed({"network.listen": listen})
    cluster["b2"].start()
    for process in ("meta", "b1", "b2"):
        places = {row[0]: row[1:3] for row in ask(cluster, process).brokers}
        assert places[2] == ("127.0.0.1", 7899)
    cluster.publish(client, "t", b"two", partition=1)


@pytest.mark.parametrize("interface", ["0.0.0.0", "::"])
def test_everywhere(make: Make, interface: str) -> None:
    """A broker that listens everywhere tells its machine's name, and local tools the loopback."""
    cluster = make(0)
    escaped = interface.replace(":", "\\:")
    cluster.add(
        "b1",
        role="broker",
        meta=("meta",),
        network__listen=(f"tcp:7850:interface={escaped}",),
        network__insecure=True,
    )
    cluster.start()
    assert ask(cluster, "meta").brokers[0][1:3] == (socket.gethostname(), 7850)
    assert cluster.said("clients connect to tinymq://127.0.0.1:7800") == 1
    assert cluster["b1"].told()["listen"] == "tinymq://127.0.0.1:7850"


def test_advertised(make: Make) -> None:
    """What a broker is told to advertise is what others are told."""
    cluster = make(0)
    cluster.add("b1", role="broker", meta=("meta",), network__advertise="b1.example")
    cluster.add("b2", role="broker", meta=("meta",), network__advertise="b2.example:99")
    cluster.start()
    found = {row[3]: row[1:3] for row in ask(cluster, "meta").brokers}
    assert found == {"b1": ("b1.example", 7801), "b2": ("b2.example", 99)}
