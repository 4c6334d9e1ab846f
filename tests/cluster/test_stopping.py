"""Processes that are stopped in the middle of something."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.conftest import Make
from tests.fakes.whole_cluster import WholeCluster
from tinymq.cluster.remote import LEAVE_SECONDS
from tinymq.connection import LINGER


def written(cluster: WholeCluster, name: str) -> dict[str, bytes]:
    """All files of a data folder that have to do with partitions."""
    data = Path(cluster[name].config.storage.data)
    apart = {"lock", "replica", "broker.id", "producer.ids"}
    return {
        str(file.relative_to(data)): file.read_bytes()
        for file in sorted(data.rglob("*"))
        if file.is_file() and file.name not in apart
    }


def filled(cluster: WholeCluster) -> None:
    """Make a topic with records at both brokers."""
    cluster.operate("meta", "topic.create", name="t", partitions=2)
    client = cluster.client("b1", "b2")
    for partition in (0, 1):
        cluster.publish(client, "t", b"one", b"two", partition=partition)
    cluster.run(client.close())


class TestWhileStarting:
    def test_waiting_on_the_first_start(self, make: Make) -> None:
        """A broker that waits for its MetaServer for the first time can be stopped."""
        cluster = make(1)
        cluster["b1"].start()
        cluster.advance(20)
        cluster["b1"].stop()
        assert cluster.ports == {}
        cluster.start()
        assert cluster["b1"].entered

    def test_connecting(self, make: Make) -> None:
        """So can one whose MetaServer's machine does not answer at all."""
        cluster = make(1)
        cluster.vanished.add(7800)
        cluster["b1"].start()
        cluster.advance(1)
        began = cluster.now
        cluster["b1"].stop()
        assert cluster.now - began < 3

    def test_registering(self, make: Make) -> None:
        """So can one whose registration is not answered; it has no number then."""
        cluster = make(1)
        cluster["meta"].start()
        cluster["meta"].still = True
        cluster["b1"].start()
        cluster.advance(1)
        cluster["b1"].stop()
        cluster["meta"].still = False
        cluster.advance(20)
        assert not cluster.meta.registry.brokers
        assert not Path(cluster["b1"].config.storage.data, "broker.id").exists()

    def test_learning(self, make: Make) -> None:
        """One that is registered and still learns leaves when it is stopped."""
        cluster = make(1)
        cluster["meta"].start()
        cluster["b1"].start(settle=False)
        cluster.until(lambda: cluster.meta.registry.brokers)
        assert not cluster["b1"].entered
        cluster["b1"].stop()
        assert not cluster.meta.registry.brokers

    @pytest.mark.parametrize("end", ["stop", "given up"])
    def test_held_number(self, cluster: WholeCluster, end: str) -> None:
        """One that never got to open its partitions writes nothing of them, however it ends."""
        filled(cluster)
        cluster["b1"].kill()
        before = written(cluster, "b1")
        assert any(name.endswith(".log") for name in before), list(before)
        twin = cluster.add("b1-twin", role="broker", meta=("meta",), data="other")
        twin.config = twin.config.changed({"broker.name": "b1"})
        cluster.advance(5)
        twin.start()
        assert twin.entered
        cluster["b1"].start()
        cluster.advance(5 if end == "stop" else 25)
        assert bool(cluster["b1"].reactor.ended) == (end == "given up")
        cluster["b1"].stop()
        assert written(cluster, "b1") == before
        twin.stop()
        cluster["b1"].start()
        assert cluster.said("after an unclean stop") > 0
        assert sorted(cluster.read(cluster.client("b1"), "t", 4), key=str) == [
            *(b"one", b"one"),
            *(b"two", b"two"),
        ]


class TestWhileFollowing:
    def test_waiting_for_news(self, cluster: WholeCluster) -> None:
        """The usual stop takes no time worth mentioning."""
        filled(cluster)
        cluster.advance(2)
        began = cluster.now
        cluster["b1"].stop()
        assert cluster.now - began < 0.5
        assert sorted(cluster.meta.registry.brokers) == [2]

    def test_metaserver_away(self, cluster: WholeCluster) -> None:
        """A broker whose MetaServer is known to be away does not wait for it."""
        filled(cluster)
        cluster["meta"].kill()
        cluster.advance(1)
        began = cluster.now
        cluster["b1"].stop()
        assert cluster.now - began < 0.5

    def test_metaserver_stands_still(self, cluster: WholeCluster) -> None:
        """One that says nothing is not waited for for long."""
        filled(cluster)
        cluster["meta"].still = True
        began = cluster.now
        cluster["b1"].stop()
        assert cluster.now - began <= LEAVE_SECONDS + LINGER + 0.1

    def test_pausing(self, cluster: WholeCluster) -> None:
        """A broker between two attempts can be stopped."""
        cluster["meta"].kill()
        for moment in (0.05, 0.3, 1.7, 8.1):
            cluster.advance(moment)
            cluster["b1"].restart()
            assert cluster["b1"].entered

    def test_first_use_under_way(self, cluster: WholeCluster) -> None:
        """Who waits for a topic to be made is not left hanging."""
        cluster["meta"].still = True
        waiting = cluster.begin(cluster.client("b1", deadline_s=20).metadata(["new"], create=True))
        cluster.advance(1)
        cluster["b1"].stop()
        cluster.advance(25)
        assert len(waiting) == 1

    def test_operation_under_way(self, cluster: WholeCluster) -> None:
        """Nor who waits for an answer of the MetaServer."""
        cluster["meta"].still = True
        waiting = cluster.begin(cluster.ask("b1", "topic.create", name="t"))
        cluster.advance(1)
        cluster["b1"].stop()
        cluster.advance(30)
        with pytest.raises(Exception, match=r"stopping|connection"):
            cluster.result(waiting)


class TestMetaServer:
    def test_while_brokers_wait(self, cluster: WholeCluster) -> None:
        """A MetaServer that stops ends what waits for it; brokers try to reach it again."""
        filled(cluster)
        waiting = cluster.begin(
            cluster.ask("meta", "cluster.watch", revision=cluster.meta.revision, wait_ms=60_000)
        )
        cluster.settle()
        began = cluster.now
        cluster["meta"].stop()
        assert cluster.now - began < 2
        cluster["meta"].start()
        cluster.advance(3)
        assert sorted(cluster.meta.registry.brokers) == [1, 2]
        del waiting

    def test_while_it_asks(self, cluster: WholeCluster) -> None:
        """One that waits for a broker's answer does not wait any longer."""
        filled(cluster)
        cluster["b1"].still = True
        cluster.begin(cluster.ask("meta", "topic.info", name="t"))
        cluster.advance(0.5)
        cluster["meta"].stop()
        cluster["b1"].still = False

    def test_while_a_topic_is_spread(self, cluster: WholeCluster) -> None:
        """One that waits for leaders to follow does not wait any longer."""
        cluster["b1"].still = True
        cluster.begin(cluster.ask("meta", "topic.create", name="t", partitions=2))
        cluster.advance(0.5)
        cluster["meta"].stop()
        cluster["b1"].still = False

    def test_whole_cluster(self, cluster: WholeCluster) -> None:
        """All are stopped at the same time, in any order, and started in any order."""
        filled(cluster)
        for order in (("meta", "b1", "b2"), ("b2", "meta", "b1"), ("b1", "b2", "meta")):
            for name in order:
                cluster[name].stop()
            for name in reversed(order):
                cluster[name].start()
            cluster.advance(3)
            assert sorted(cluster.meta.registry.brokers) == [1, 2]
        assert len(cluster.read(cluster.client("b1"), "t", 4)) == 4


def test_lookup_mode(make: Make) -> None:
    """An independent broker is stopped while its lookup servers are there, away, or silent."""
    cluster = make(0)
    cluster.add("away", role="meta")
    cluster.add("node", role="all", meta=("meta", "away"))
    cluster.start("meta", "node")
    cluster["node"].restart()
    cluster.advance(3)
    cluster["meta"].still = True
    cluster["node"].restart()
    cluster.advance(7)
    cluster["node"].stop()
