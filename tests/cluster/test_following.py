"""What brokers know of topics and each other while their MetaServer comes and goes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cluster.conftest import Make
from tests.fakes.whole_cluster import WholeCluster
from tinymq.errors import MetaUnavailable, StateError, WireError
from tinymq.meta.registry import Registry


def topic(cluster: WholeCluster, name: str = "t", partitions: int = 2) -> None:
    """Make a topic."""
    cluster.operate("meta", "topic.create", name=name, partitions=partitions)


class TestMetaServerAway:
    def test_serving_goes_on(self, cluster: WholeCluster) -> None:
        """Brokers publish and serve without the MetaServer, also those that start meanwhile."""
        topic(cluster)
        cluster["meta"].kill()
        cluster["b1"].restart()
        assert cluster["b1"].entered
        assert cluster.said("starting with what is known from before") == 1
        client = cluster.client("b1", "b2")
        cluster.publish(client, "t", b"one", b"two", b"three", b"four")
        assert set(cluster.read(client, "t", 4)) == {b"four", b"one", b"three", b"two"}

    def test_start_is_not_delayed(self, cluster: WholeCluster) -> None:
        """A MetaServer that refuses is not waited for, one that says nothing not for long."""
        cluster["meta"].kill()
        cluster["b1"].restart()
        assert cluster["b1"].entered
        cluster["b1"].kill()
        cluster.vanished.add(cluster["meta"].address[1])
        cluster["b1"].start()
        assert cluster.until(lambda: cluster["b1"].entered) <= 3

    def test_operations(self, cluster: WholeCluster) -> None:
        """Without the MetaServer, operations fail with what goes on, and may be repeated."""
        cluster["meta"].kill()
        for operation, arguments in (
            ("topic.create", {"name": "t"}),
            ("topic.list", {}),
            ("broker.list", {}),
        ):
            with pytest.raises(MetaUnavailable, match="publishing and reading go on") as caught:
                cluster.operate("b1", operation, **arguments)
            assert caught.value.retriable
        assert cluster.operate("b1", "broker.info")["broker"]["name"] == "b1"
        assert cluster.operate("b1", "broker.info", broker="b1")["broker"]["name"] == "b1"
        cluster["meta"].start()
        cluster.advance(3)
        assert cluster.operate("b1", "topic.create", name="t")["created"]
        assert cluster.said("answers again") == 2

    def test_said_once(self, cluster: WholeCluster) -> None:
        """A MetaServer that is away is one line in the log of each broker, not one a second."""
        cluster["meta"].kill()
        cluster.advance(60)
        assert cluster.said("does not answer") == 2

    def test_catching_up(self, cluster: WholeCluster) -> None:
        """A broker that was cut off learns what was made, changed and deleted meanwhile."""
        topic(cluster, "old")
        cluster.hold("b1", "meta")
        cluster.advance(25)
        topic(cluster, "new")
        cluster.operate("meta", "topic.alter", name="new", partitions=6)
        cluster.operate("meta", "topic.delete", name="old")
        assert list(cluster["b1"].registry.by_name) == ["old"]
        cluster.release("b1", "meta")
        cluster.advance(5)
        assert list(cluster["b1"].registry.by_name) == ["new"]
        assert cluster["b1"].topic("new") == cluster.meta.registry.by_name["new"]

    def test_catching_up_from_far_behind(self, cluster: WholeCluster) -> None:
        """So it does when more happened than the MetaServer's history holds."""
        meta = cluster.meta
        topic(cluster, "old")
        cluster.hold("b1", "meta")
        cluster.advance(25)
        cluster.operate("meta", "topic.delete", name="old")
        meta._compact(meta.revision)
        topic(cluster, "new")
        cluster.release("b1", "meta")
        cluster.advance(5)
        assert list(cluster["b1"].registry.by_name) == ["new"]
        assert list(cluster["b1"].registry.deleted) == list(meta.registry.deleted)


class TestMetaServerAnew:
    def test_restart(self, cluster: WholeCluster) -> None:
        """A restart of the MetaServer makes no broker unusable, not even for a moment."""
        topic(cluster)
        leases = {each.lease for each in cluster.meta.registry.brokers.values()}
        cluster["meta"].restart()
        for _ in range(60):
            cluster.advance(0.25)
            for name in ("meta", "b1", "b2"):
                assert sorted(cluster[name].registry.brokers) == [1, 2]
        assert {each.lease for each in cluster.meta.registry.brokers.values()} == leases
        cluster.publish(cluster.client("b1"), "t", b"v", partition=1)

    def test_restart_without_brokers(self, cluster: WholeCluster) -> None:
        """A MetaServer that finds brokers gone when it starts takes them for dead soon."""
        cluster["meta"].kill()
        cluster["b1"].kill()
        cluster["b2"].kill()
        cluster["meta"].start()
        assert cluster.until(lambda: not cluster.meta.registry.brokers) <= 16

    def test_older_backup(self, cluster: WholeCluster) -> None:
        """A MetaServer from an old backup costs no broker a topic or a record."""
        topic(cluster, "before")
        cluster["meta"].stop()
        data = Path(cluster["meta"].config.storage.data)
        shutil.copytree(data, data.with_name("backup"))
        cluster["meta"].start()
        cluster.advance(3)
        topic(cluster, "after", 4)
        client = cluster.client("b1", "b2")
        cluster.publish(client, "after", b"v", partition=0)
        cluster["meta"].stop()
        shutil.rmtree(data)
        data.with_name("backup").rename(data)
        cluster["meta"].start()
        cluster.advance(10)
        for name in ("b1", "b2"):
            assert sorted(cluster[name].registry.by_name) == ["after", "before"]
            cluster[name].restart()
            assert sorted(cluster[name].registry.by_name) == ["after", "before"]
        assert cluster.read(client, "after", 1) == [b"v"]
        assert sorted(cluster.meta.registry.brokers) == [1, 2]
        assert cluster.said("does not tell of topic after: it is kept") >= 2


def refusing(cluster: WholeCluster, name: str) -> WireError | None:
    """Why a broker takes no records."""
    return cluster[name].broker.refusing


class TestOtherCluster:
    def other(self, cluster: WholeCluster) -> None:
        """Put another cluster's MetaServer in the place of ours."""
        cluster["meta"].stop()
        data = Path(cluster["meta"].config.storage.data)
        data.rename(data.with_name("ours"))
        cluster["meta"].start()

    def test_start(self, cluster: WholeCluster) -> None:
        """A broker of another cluster does not start, and says why."""
        topic(cluster)
        cluster["b1"].stop()
        self.other(cluster)
        cluster["b1"].start()
        cluster.advance(25)
        assert ("stop",) in cluster["b1"].reactor.ended
        assert cluster.said("this data folder belongs to the cluster") >= 1

    def test_running(self, cluster: WholeCluster) -> None:
        """A broker that runs keeps what it has, takes no records, and goes on when ours is back."""
        topic(cluster)
        ours = cluster["b1"].registry
        self.other(cluster)
        for _ in range(30):
            cluster.advance(0.5)
        assert isinstance(refusing(cluster, "b1"), StateError)
        assert cluster["b1"].registry.topics == ours.topics
        assert not cluster.meta.registry.topics
        cluster["meta"].stop()
        data = Path(cluster["meta"].config.storage.data)
        shutil.rmtree(data)
        data.with_name("ours").rename(data)
        cluster["meta"].start()
        cluster.advance(5)
        assert refusing(cluster, "b1") is None
        assert sorted(cluster.meta.registry.brokers) == [1, 2]


class TestFirstStart:
    def test_waits_for_ever(self, make: Make) -> None:
        """A broker that never knew anything waits for its MetaServer, and says so now and then."""
        cluster = make(1)
        cluster["b1"].start()
        cluster.advance(600)
        assert not cluster["b1"].entered
        assert not cluster["b1"].reactor.ended
        assert 50 <= cluster.said("waiting for the MetaServer at 127.0.0.1:7800") <= 61
        cluster["meta"].start()
        assert cluster.until(lambda: cluster["b1"].entered) <= 3

    def test_takes_nobody_before(self, make: Make) -> None:
        """Until it knows what it leads, a broker takes no client."""
        cluster = make(1)
        cluster["b1"].start()
        asking = cluster.begin(cluster.ask("b1", "broker.info"))
        cluster.advance(1)
        assert asking == []
        cluster["meta"].start()
        cluster.advance(3)
        assert asking[0]["ready"]

    def test_several_metaservers(self, make: Make) -> None:
        """Of several addresses, whichever answers is the MetaServer's."""
        cluster = make(0)
        cluster.add("gone", role="meta")
        cluster.add("b1", role="broker", meta=("gone", "meta"))
        cluster.start("meta", "b1")
        assert cluster.until(lambda: cluster["b1"].entered) <= 1
        cluster["meta"].restart()
        cluster.advance(10)
        assert cluster.operate("b1", "topic.list")["total"] == 0


def test_full_disk(cluster: WholeCluster) -> None:
    """A broker whose disk is full follows all the same, and says once that it keeps nothing."""
    cluster["b1"].ground.room.room = 0
    topic(cluster, "a")
    cluster.advance(12)
    topic(cluster, "b")
    cluster.advance(12)
    assert sorted(cluster["b1"].registry.by_name) == ["a", "b"]
    assert cluster.said("what is known of topics cannot be kept") == 1
    assert cluster.said("cannot be followed") == 0
    cluster["b1"].ground.room.room = None
    cluster.advance(6)
    cluster["b1"].kill()
    cluster["meta"].kill()
    cluster["b1"].start()
    assert sorted(cluster["b1"].registry.by_name) == ["a", "b"]


def test_mistakes_of_ours(cluster: WholeCluster) -> None:
    """Whatever goes wrong when a broker takes news, it follows on and says what happened."""

    def stumble(before: Registry, after: Registry) -> None:
        raise ValueError("a mistake")

    unwatch = cluster["b1"].far.directory.watch(stumble)
    for number in range(5):
        topic(cluster, f"t{number}")
        cluster.advance(10)
    unwatch()
    cluster.advance(5)
    assert len(cluster["b1"].registry.by_name) == 5
    assert sorted(cluster.meta.registry.brokers) == [1, 2]
    assert len(cluster.logged.failures) == 5
    cluster.logged.events.clear()


def test_name_of_one_that_was_given_none(make: Make) -> None:
    """A broker without a name of its own is called by its number, also after a lonely start."""
    cluster = make(1, broker__name="tinymq").start()
    cluster["b1"].stop()
    cluster["meta"].stop()
    cluster["b1"].start()
    cluster["meta"].start()
    cluster.advance(3)
    assert cluster["b1"].broker.name == "broker-1"
