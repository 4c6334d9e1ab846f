"""Operations while a broker says nothing: who is silent is named, and nobody waits twice."""

from __future__ import annotations

import pytest

from tests.cluster.conftest import Make
from tests.fakes.whole_cluster import WholeCluster
from tinymq.cluster.nodes import ANSWER_SECONDS
from tinymq.errors import BrokerSilent, UnknownClient
from tinymq.stats import BROKER_CLIENT, META_CLIENT

#: Seconds after which the board knows of a silence.
KNOWN = 6


def filled(cluster: WholeCluster, partitions: int = 2) -> None:
    """Make a topic with a record in each partition, and let the board hear of it."""
    cluster.operate("b1", "topic.create", name="t", partitions=partitions)
    client = cluster.client("b1", "b2")
    for partition in range(partitions):
        cluster.publish(client, "t", b"value", partition=partition)
    cluster.advance(2)


def timed(cluster: WholeCluster, process: str, operation: str, **arguments: object) -> float:
    """How long an operation takes."""
    cluster.operate(process, "broker.info")
    began = cluster.now
    cluster.operate(process, operation, **arguments)
    return cluster.now - began


class TestTopics:
    @pytest.mark.parametrize("known", [True, False])
    def test_info(self, cluster: WholeCluster, known: bool) -> None:
        """Partitions of a silent leader are offline, with the reason and the last figures."""
        filled(cluster)
        cluster["b2"].still = True
        if known:
            cluster.advance(KNOWN)
        topic = cluster.operate("b1", "topic.info", name="t")["topic"]
        online, offline = topic["partitions"]
        assert topic["silent"] == ["b2"]
        assert (online["state"], online["leader"], online["end"]) == ("online", "b1", 1)
        assert (offline["state"], offline["leader"], offline["leader_id"]) == ("offline", "b2", 2)
        assert offline["reason"].startswith("b2 does not answer: ")
        assert ("not heard since" in offline["reason"]) == known
        assert (offline["start"], offline["end"]) == (0, 1)
        assert offline["bytes"] > 0
        assert topic["messages"] == 2

    def test_dead_leader(self, cluster: WholeCluster) -> None:
        """So they are when the leader is dead, and after a restart of the MetaServer."""
        filled(cluster)
        cluster["b2"].kill()
        cluster.advance(KNOWN)
        for _ in range(2):
            topic = cluster.operate("b1", "topic.info", name="t")["topic"]
            assert topic["partitions"][1]["state"] == "offline"
            assert topic["silent"] == ["b2"]
            cluster["meta"].restart()
            cluster.advance(KNOWN)

    def test_list(self, cluster: WholeCluster) -> None:
        """A list of topics says who is silent, and waits for nobody."""
        filled(cluster)
        cluster["b2"].still = True
        cluster.advance(KNOWN)
        assert timed(cluster, "b1", "topic.list") < 0.1
        found = cluster.operate("b1", "topic.list")
        assert found["silent"] == ["b2"]
        assert found["topics"][0]["messages"] == 2

    @pytest.mark.parametrize("known", [True, False])
    def test_purge(self, cluster: WholeCluster, known: bool) -> None:
        """A purge that one leader cannot do is not done at all."""
        filled(cluster)
        cluster["b2"].still = True
        if known:
            cluster.advance(KNOWN)
        for dry_run in (True, False):
            with pytest.raises(BrokerSilent, match=r"b2 leads partitions 1 of t .* nothing was"):
                cluster.operate("b1", "topic.purge", name="t", dry_run=dry_run)
        with pytest.raises(BrokerSilent, match="nothing was brought back"):
            cluster.operate("b1", "topic.undo_purge", name="t")
        cluster["b2"].still = False
        cluster.advance(5)
        assert cluster.operate("b1", "topic.info", name="t")["topic"]["messages"] == 2

    def test_purge_of_one_partition(self, cluster: WholeCluster) -> None:
        """A purge of one partition needs its leader only, and can be undone."""
        filled(cluster)
        cluster["b2"].still = True
        plan = cluster.operate("b1", "topic.purge", name="t", partition=0)["plan"]
        assert (plan["messages"], plan["silent"]) == (1, [])
        found = cluster.operate("b1", "topic.undo_purge", name="t", partition=0)
        assert found["topic"]["partitions"][0]["start"] == 0

    def test_purge_over_brokers(self, cluster: WholeCluster) -> None:
        """A purge and its undoing reach every leader."""
        filled(cluster, 4)
        plan = cluster.operate("b1", "topic.purge", name="t")["plan"]
        assert [row["partition"] for row in plan["partitions"]] == [0, 1, 2, 3]
        assert plan["messages"] == 4
        assert cluster.operate("b2", "topic.info", name="t")["topic"]["messages"] == 0
        cluster.operate("b2", "topic.undo_purge", name="t")
        assert cluster.operate("b2", "topic.info", name="t")["topic"]["messages"] == 4

    def test_delete(self, cluster: WholeCluster) -> None:
        """A deletion names who could not say what goes."""
        filled(cluster)
        cluster["b2"].still = True
        plan = cluster.operate("b1", "topic.delete", name="t", dry_run=True)["plan"]
        assert (plan["silent"], plan["messages"]) == (["b2"], 1)
        plan = cluster.operate("b1", "topic.delete", name="t")["plan"]
        assert plan["silent"] == ["b2"]
        cluster["b2"].still = False
        cluster.advance(1)
        assert not cluster["b2"].folders()


class TestBrokers:
    def test_list(self, cluster: WholeCluster) -> None:
        """A list of brokers has the silent and the dead ones, with the reason."""
        filled(cluster)
        rows = cluster.operate("b2", "broker.list")["brokers"]
        assert [(row["name"], row["state"]) for row in rows] == [("b1", "ready"), ("b2", "ready")]
        cluster["b2"].still = True
        found = cluster.operate("b1", "broker.list")
        assert found["silent"] == ["b2"]
        assert [row["state"] for row in found["brokers"]] == ["ready", "silent"]
        cluster["b2"].kill()
        cluster.advance(KNOWN)
        row = cluster.operate("b1", "broker.list")["brokers"][1]
        assert (row["name"], row["state"], row["partitions"]) == ("b2", "silent", 1)
        assert row["reason"]
        assert row["version"]

    def test_one_deadline(self, make: Make) -> None:
        """Several silent brokers cost one deadline together, and nothing once they are known."""
        cluster = make(4).start()
        cluster.operate("b1", "topic.create", name="t", partitions=4)
        cluster.advance(2)
        for name in ("b2", "b3", "b4"):
            cluster[name].still = True
        assert timed(cluster, "b1", "broker.list") <= ANSWER_SECONDS + 0.1
        cluster.advance(KNOWN)
        for operation, arguments in (
            ("broker.list", {}),
            ("client.list", {}),
            ("topic.info", {"name": "t"}),
        ):
            assert timed(cluster, "b1", operation, **arguments) < 0.1, operation

    def test_info(self, cluster: WholeCluster) -> None:
        """Any process describes any broker, by name or number; a silent one is an error."""
        assert cluster.operate("b1", "broker.info")["broker"]["name"] == "b1"
        assert cluster.operate("b1", "broker.info", broker="b2")["broker"]["id"] == 2
        assert cluster.operate("b2", "broker.info", broker=1)["broker"]["name"] == "b1"
        assert cluster.operate("meta", "broker.info")["broker"]["name"] == "meta"
        assert cluster.operate("b2", "broker.info", broker="meta")["broker"]["id"] == 0
        cluster["b2"].still = True
        with pytest.raises(BrokerSilent, match="b2 does not answer"):
            cluster.operate("b1", "broker.info", broker="b2")

    def test_draining_is_shown(self, cluster: WholeCluster) -> None:
        """A draining broker is shown as one, and drained only once."""
        first = cluster.operate("b1", "broker.drain", broker="b2")
        again = cluster.operate("b1", "broker.drain", broker="b2")
        assert (first["changed"], again["changed"]) == (True, False)
        row = cluster.operate("b1", "broker.list")["brokers"][1]
        assert (row["draining"], row["state"]) == (True, "draining")

    def test_log_level(self, cluster: WholeCluster) -> None:
        """What a broker refuses comes back as its error, through any process."""
        for asked in ("meta", "b1", "b2"):
            with pytest.raises(Exception, match="log lines are written by somebody else"):
                cluster.operate(asked, "broker.log_level", broker="b2", level="debug")


class TestClients:
    def test_list(self, cluster: WholeCluster) -> None:
        """Clients of all processes are listed, page by page, also when a broker is silent."""
        filled(cluster)
        for name in ("b1", "b2"):
            client = cluster.client(name, client_id=f"mine-{name}")
            cluster.run(client.admin.operate("broker.info"))
        found = cluster.operate("b1", "client.list", filter="mine-*")
        assert [(row["broker"], row["client_id"]) for row in found["clients"]] == [
            ("b1", "mine-b1"),
            ("b2", "mine-b2"),
        ]
        first = cluster.operate("b1", "client.list", filter="mine-*", limit=1)
        assert first["more"]
        rest = cluster.operate("b1", "client.list", filter="mine-*", after=first["after"])
        assert [row["client_id"] for row in rest["clients"]] == ["mine-b2"]
        cluster["b2"].still = True
        cluster.advance(KNOWN)
        found = cluster.operate("b1", "client.list", filter="mine-*")
        assert [row["client_id"] for row in found["clients"]] == ["mine-b1"]
        assert found["silent"] == ["b2"]

    def test_the_clusters_own_say_so(self, cluster: WholeCluster) -> None:
        """All connections of a cluster that nobody uses are named after its own processes."""
        cluster.advance(KNOWN)
        names = [row["client_id"] for row in cluster.operate("b1", "client.list")["clients"]]
        assert {META_CLIENT, BROKER_CLIENT} == set(names) - {""}  # who asks gives no name
        told = cluster.operate("meta", "client.list", broker="b2")["clients"]
        assert [row["client_id"] for row in told] == [META_CLIENT]

    def test_kick(self, cluster: WholeCluster) -> None:
        """A client of another broker is described and sent away through any process."""
        client = cluster.client("b2", client_id="mine")
        cluster.run(client.admin.operate("broker.info"))
        (row,) = cluster.operate("b1", "client.list", broker="b2", filter="mine")["clients"]
        place = {"broker": "b2", "id": row["id"]}
        assert cluster.operate("b1", "client.info", **place)["client"]["client_id"] == "mine"
        cluster.operate("b1", "client.kick", **place, dry_run=True)
        assert cluster.operate("b1", "client.info", **place)["client"]["client_id"] == "mine"
        cluster.operate("b1", "client.kick", **place, reason="go")
        with pytest.raises(UnknownClient):
            cluster.operate("b1", "client.info", **place)
        cluster["b2"].still = True
        with pytest.raises(BrokerSilent, match="b2 does not answer"):
            cluster.operate("b1", "client.kick", **place)


def test_another_broker_at_the_address(cluster: WholeCluster) -> None:
    """A broker that starts at the address of a dead one is not taken for it."""
    filled(cluster)
    cluster.advance(KNOWN)
    before = cluster.operate("meta", "topic.list")["topics"][0]["messages"]
    one, two = cluster["b1"], cluster["b2"]
    place = one.config.network.listen
    one.kill()
    two.kill()
    two.config = two.config.changed({"network.listen": place})
    two.start()
    for _ in range(12):
        cluster.advance(0.5)
        rows = cluster.operate("meta", "broker.list")["brokers"]
        assert [(row["name"], row["state"]) for row in rows] == [("b1", "silent"), ("b2", "ready")]
        assert cluster.operate("meta", "topic.list")["topics"][0]["messages"] == before


def test_a_namesake(cluster: WholeCluster) -> None:
    """A broker that lost its data folder is another one; which of them is gone can be told."""
    filled(cluster)
    cluster["b2"].kill()
    cluster.advance(KNOWN)
    cluster.add("heir", role="broker", meta=("meta",), broker__name="b2").start()
    cluster.advance(1)
    assert cluster.said("b2 is broker 3 now; broker 2, which had this name, is gone") == 1
    topic = cluster.operate("meta", "topic.info", name="t")["topic"]
    assert topic["silent"] == ["b2 (broker 2)"]
    assert topic["partitions"][1]["leader"] == "b2 (broker 2)"
    assert topic["partitions"][1]["reason"].startswith("b2 (broker 2) does not answer")
