"""Topics that are made, changed and deleted over several brokers."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.cluster.conftest import Make
from tests.fakes.whole_cluster import WholeCluster
from tinymq.errors import StateError, StorageFull, UnknownTopic
from tinymq.operations.base import SPREAD_SECONDS
from tinymq.storage.disk import Space


def led(cluster: WholeCluster, name: str = "t") -> Counter[int]:
    """How many partitions of a topic each broker leads."""
    return Counter(cluster.meta.registry.by_name[name].leaders)


def opened(cluster: WholeCluster, broker: str, name: str = "t") -> list[int]:
    """The partitions of a topic that are open at a broker."""
    topic = cluster.meta.registry.by_name[name]
    return [each.index for each in cluster[broker].broker.partitions_of(topic)]


def filled(cluster: WholeCluster) -> None:
    """Make a topic that has a partition with a record at each of two brokers."""
    cluster.operate("b1", "topic.create", name="t", partitions=2)
    client = cluster.client("b1", "b2")
    for partition in (0, 1):
        cluster.publish(client, "t", b"old", partition=partition)


class TestCreate:
    @pytest.mark.parametrize("asked", ["meta", "b1", "b2"])
    def test_open_when_answered(self, cluster: WholeCluster, asked: str) -> None:
        """When the creator is answered, all leaders have opened the partitions."""
        states: list[list[int]] = []

        def look(result: dict[str, object]) -> None:
            states.extend(opened(cluster, each) for each in ("b1", "b2"))

        waiting = cluster.ask(asked, "topic.create", name="t", partitions=4)
        cluster.run(waiting.addCallback(look))
        assert sorted(states) == [[0, 2], [1, 3]]

    def test_just_registered(self, make: Make) -> None:
        """A leader that has registered but not yet asked for news is waited for, too."""
        cluster = make(1)
        cluster["meta"].start()
        cluster["b1"].start(settle=False)
        cluster.until(lambda: cluster.meta.registry.brokers)
        cluster.operate("meta", "topic.create", name="t")
        assert opened(cluster, "b1") == [0]

    def test_lagging_broker(self, cluster: WholeCluster) -> None:
        """A broker that does not follow delays the answer by two seconds, and no more."""
        cluster.operate("meta", "topic.list")
        cluster["b2"].still = True
        began = cluster.now
        result = cluster.operate("meta", "topic.create", name="t", partitions=2)
        rows = {row["leader"]: row for row in result["topic"]["partitions"]}
        assert rows["b1"]["state"] == "online"
        assert rows["b2"]["state"] == "offline"
        # It is then asked how its partitions are, which has a time limit of its own.
        assert SPREAD_SECONDS <= cluster.now - began <= SPREAD_SECONDS + 3
        cluster["b2"].still = False
        cluster.advance(1)
        assert opened(cluster, "b2") == [1]

    def test_leader_that_went(self, cluster: WholeCluster) -> None:
        """A leader that dies while it is waited for is waited for no more."""
        cluster.operate("meta", "topic.list")
        cluster["b2"].still = True
        waiting = cluster.begin(cluster.ask("meta", "topic.create", name="t", partitions=2))
        cluster.advance(0.5)
        assert waiting == []
        cluster["b2"].kill()
        cluster.advance(0.1)
        (result,) = waiting
        assert result["topic"]["silent"] == ["b2"]

    def test_dry_run(self, cluster: WholeCluster) -> None:
        """A dry run makes nothing."""
        result = cluster.operate("b1", "topic.create", name="t", dry_run=True)
        assert result["created"]
        assert not cluster.meta.registry.topics

    def test_again(self, cluster: WholeCluster) -> None:
        """Making what exists through another broker is no error."""
        first = cluster.operate("b1", "topic.create", name="t")
        second = cluster.operate("b2", "topic.create", name="t")
        assert (first["created"], second["created"]) == (True, False)
        assert first["topic"]["id"] == second["topic"]["id"]


class TestPlacement:
    def test_even(self, make: Make) -> None:
        """Partitions are spread evenly, over many topics as over those of one."""
        cluster = make(3).start()
        for number in range(9):
            cluster.operate("meta", "topic.create", name=f"t{number}")
        cluster.operate("meta", "topic.create", name="wide", partitions=12)
        assert sorted(cluster.meta.registry.led.values()) == [7, 7, 7]
        assert sorted(led(cluster, "wide").values()) == [4, 4, 4]

    def test_drained(self, cluster: WholeCluster) -> None:
        """A draining broker gets no new partitions, until its draining is undone."""
        cluster.operate("b2", "broker.drain", broker="b1")
        cluster.operate("b1", "topic.create", name="t", partitions=4)
        assert led(cluster) == {2: 4}
        cluster["meta"].restart()
        cluster.advance(3)
        cluster.operate("b1", "topic.create", name="u", partitions=2)
        assert led(cluster, "u") == {2: 2}
        cluster.operate("b2", "broker.drain", broker="1", undo=True)
        cluster.operate("b1", "topic.create", name="v", partitions=2)
        assert led(cluster, "v") == {1: 2}
        for broker in ("b1", "b2"):
            cluster.operate("b2", "broker.drain", broker=broker)
        with pytest.raises(StateError, match="every broker is draining"):
            cluster.operate("b1", "topic.create", name="w")

    def test_refusing(self, cluster: WholeCluster) -> None:
        """A broker whose disk is full gets no new partitions while others have space."""
        cluster["b1"].ground.room.free = Space(free=0, total=1 << 40)
        cluster.advance(7)
        assert isinstance(cluster["b1"].broker.refusing, StorageFull)
        cluster.operate("b1", "topic.create", name="t", partitions=4)
        assert led(cluster) == {2: 4}

    def test_gone(self, cluster: WholeCluster) -> None:
        """A broker that is gone gets no partitions, not even while it may come back."""
        cluster["b1"].kill()
        cluster.operate("b2", "topic.create", name="t", partitions=2)
        assert led(cluster) == {2: 2}
        cluster["b2"].kill()
        cluster.advance(20)
        with pytest.raises(StateError):
            cluster.operate("meta", "topic.create", name="u")


class TestAlter:
    def test_partitions_added(self, cluster: WholeCluster) -> None:
        """Added partitions are open when the change is answered, the old ones stay."""
        cluster.operate("b1", "topic.create", name="t", partitions=2)
        cluster.publish(cluster.client("b1"), "t", b"v", partition=0)
        result = cluster.operate("b2", "topic.alter", name="t", partitions=5)
        assert result["changes"] == [["partitions", 2, 5]]
        assert sorted(opened(cluster, "b1") + opened(cluster, "b2")) == [0, 1, 2, 3, 4]
        assert sum(row["messages"] for row in [result["topic"]]) == 1

    def test_settings(self, cluster: WholeCluster) -> None:
        """Changed settings hold at every leader."""
        cluster.operate("b1", "topic.create", name="t", partitions=2)
        cluster.operate("b1", "topic.alter", name="t", config={"retention.ms": 1234})
        for name in ("b1", "b2"):
            (partition,) = cluster[name].broker.partitions()
            assert partition.topic.config.retention_ms == 1234


class TestDelete:
    def test_folders_go(self, cluster: WholeCluster) -> None:
        """Deleting a topic removes its folders at all brokers."""
        filled(cluster)
        assert cluster["b1"].folders()
        plan = cluster.operate("b2", "topic.delete", name="t")["plan"]
        cluster.advance(1)
        assert plan["silent"] == []
        assert not cluster["b1"].folders()
        assert not cluster["b2"].folders()

    @pytest.mark.parametrize("away", ["killed", "cut off"])
    def test_leader_away(self, cluster: WholeCluster, away: str) -> None:
        """A deletion while a leader is away is carried out when it is back."""
        filled(cluster)
        if away == "killed":
            cluster["b2"].kill()
        else:
            cluster.hold("b2", "meta")
        cluster.advance(20)
        plan = cluster.operate("b1", "topic.delete", name="t")["plan"]
        assert plan["silent"] == ["b2"]
        assert cluster["b2"].folders()
        if away == "killed":
            cluster["b2"].start()
        else:
            cluster.release("b2", "meta")
        cluster.advance(5)
        assert not cluster["b2"].folders()
        assert cluster["b2"].broker.partitions() == []

    def test_name_used_again(self, cluster: WholeCluster) -> None:
        """A broker that missed it all does not mix a deleted topic with one made under its name."""
        filled(cluster)
        cluster["b2"].kill()
        cluster.advance(5)
        cluster.operate("b1", "topic.delete", name="t")
        cluster["b2"].start()
        made = cluster.operate("b1", "topic.create", name="t", partitions=2)
        assert made["topic"]["messages"] == 0
        assert not cluster["b2"].folders()
        assert opened(cluster, "b2") == [1]


class TestFirstUse:
    @pytest.mark.parametrize("asked", ["meta", "b1", "b2"])
    def test_any_process(self, cluster: WholeCluster, asked: str) -> None:
        """The first use of a topic makes it, whichever process hears of it."""
        client = cluster.client(asked)
        cluster.publish(client, "new", b"v")
        assert cluster.read(client, "new", 1) == [b"v"]

    def test_known_to_the_asked(self, cluster: WholeCluster) -> None:
        """The broker that is asked answers once it knows the topic itself."""
        for number in range(4):
            found = cluster.run(cluster.client("b1").metadata([f"t{number}"], create=True))
            assert f"t{number}" in cluster["b1"].registry.by_name
            assert list(found) == [f"t{number}"]

    def test_not_allowed(self, make: Make) -> None:
        """Where first use makes no topics, brokers make none either."""
        cluster = make(1, topics__auto_create=False).start()
        with pytest.raises(UnknownTopic):
            cluster.run(cluster.client("b1", deadline_s=2).metadata(["t"], create=True))
        assert not cluster.meta.registry.topics

    def test_metaserver_away(self, cluster: WholeCluster) -> None:
        """While the MetaServer is away the first use waits, and works when it is back."""
        cluster["meta"].kill()
        client = cluster.client("b1", deadline_s=60)
        waiting = cluster.begin(client.metadata(["t"], create=True))
        cluster.advance(15)
        assert waiting == []
        cluster["meta"].start()
        cluster.advance(15)
        assert list(waiting[0]) == ["t"]
