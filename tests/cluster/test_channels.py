"""Channels in a cluster: known everywhere, and steered as one whatever broker leads what."""

from __future__ import annotations

import pytest

from tests.fakes.channels import FakeChannels
from tests.fakes.whole_cluster import WholeCluster
from tinymq.errors import BrokerSilent, UnknownChannel

#: Seconds after which a silence is known.
KNOWN = 6
ONE = {"topic": "t", "name": "work"}


@pytest.fixture
def hosts(cluster: WholeCluster) -> dict[str, FakeChannels]:
    """Give every broker channels, and the cluster a topic with a message on each."""
    hosts = {}
    for name in ("b1", "b2"):
        service = cluster[name].service
        hosts[name] = service._node.channel_host = FakeChannels(service.broker)
    cluster.operate("b1", "topic.create", name="t", partitions=2)
    client = cluster.client("b1", "b2")
    for partition in range(2):
        cluster.publish(client, "t", b"value", partition=partition)
    return hosts


def test_known_everywhere(cluster: WholeCluster, hosts: dict[str, FakeChannels]) -> None:
    """A channel that one broker is asked for is known to all when the answer comes."""
    made = cluster.operate("b2", "channel.create", **ONE, config={"attempts": 3})["channel"]
    assert [row["state"] for row in made["partitions"]] == ["online", "online"]
    assert [row["leader"] for row in made["partitions"]] == ["b1", "b2"]
    assert made["lag"] == 2
    topic = cluster.meta.describe("t").id
    for name in ("b1", "b2"):
        assert cluster[name].registry.channel(topic, "work").policy.attempts == 3
    cluster.operate("b1", "channel.alter", **ONE, config={"attempts": 4})
    assert cluster["b2"].registry.channel(topic, "work").policy.attempts == 4
    (row,) = cluster.operate("b1", "channel.list")["channels"]
    assert (row["name"], row["lag"]) == ("work", 2)
    cluster.operate("b2", "channel.delete", **ONE)
    assert cluster["b1"].registry.channels == {}
    with pytest.raises(UnknownChannel):
        cluster.operate("b1", "channel.info", **ONE)


def test_moved_as_one(cluster: WholeCluster, hosts: dict[str, FakeChannels]) -> None:
    """A seek reaches every leader; one partition is moved where it is."""
    cluster.operate("b1", "channel.create", **ONE)
    plan = cluster.operate("b2", "channel.empty", **ONE)["plan"]
    assert [row["partition"] for row in plan["partitions"]] == [0, 1]
    assert (plan["skipped"], plan["silent"]) == (2, [])
    assert cluster.operate("b1", "channel.undo_seek", **ONE)["undone"] == [0, 1]
    cluster.operate("b1", "channel.seek", **ONE, to="latest", partition=1)
    assert cluster.operate("b1", "channel.info", **ONE)["channel"]["lag"] == 1


def test_a_silent_leader(cluster: WholeCluster, hosts: dict[str, FakeChannels]) -> None:
    """With a silent leader nothing is moved, what is unknown is null, and a pause holds later."""
    cluster.operate("b1", "channel.create", **ONE)
    cluster["b2"].still = True
    cluster.advance(KNOWN)
    with pytest.raises(BrokerSilent, match=r"b2 leads partitions 1 of t .* nothing was moved"):
        cluster.operate("b1", "channel.empty", **ONE)
    assert hosts["b1"].cursors == {}
    plan = cluster.operate("b1", "channel.seek", **ONE, to="latest", partition=0)["plan"]
    assert plan["skipped"] == 1
    paused = cluster.operate("b1", "channel.pause", **ONE, reason="upgrade")["channel"]
    assert (paused["silent"], paused["lag"]) == (["b2"], 0)
    assert paused["paused"]["reason"] == "upgrade"
    known, unknown = paused["partitions"]
    assert (known["state"], known["paused"], known["lag"]) == ("online", True, 0)
    assert (unknown["state"], unknown["paused"], unknown["lag"]) == ("offline", None, None)
    assert unknown["reason"].startswith("b2 does not answer")
    assert cluster.operate("b1", "channel.list")["silent"] == ["b2"]
    cluster["b2"].still = False
    cluster.advance(KNOWN)
    rows = cluster.operate("b1", "channel.info", **ONE)["channel"]["partitions"]
    assert [row["paused"] for row in rows] == [True, True]


def test_a_restart(cluster: WholeCluster, hosts: dict[str, FakeChannels]) -> None:
    """Channels outlive the MetaServer's restart, and a broker that starts without it."""
    cluster.operate("b1", "channel.create", **ONE, start="latest")
    topic = cluster.meta.describe("t").id
    cluster["meta"].restart()
    cluster.advance(KNOWN)
    assert cluster["b1"].registry.channel(topic, "work").start == "latest"
    cluster["meta"].kill()
    cluster["b2"].restart()
    cluster.advance(1)
    assert cluster["b2"].registry.channel(topic, "work").start == "latest"
