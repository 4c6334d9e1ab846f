"""Messages of a channel whose topic is led by several brokers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.fakes.whole_cluster import WholeCluster
from tinymq.client import SubscriptionConfig
from tinymq.client.subscription import Subscription


async def take(subscription: Subscription, count: int) -> list[bytes | None]:
    """Take messages and finish them."""
    found: list[bytes | None] = []
    async for message in subscription:
        found.append(message.value)
        message.finish()
        if len(found) == count:
            break
    return found


def test_a_channel_is_made_by_its_first_consumer_and_spans_brokers(cluster: WholeCluster) -> None:
    """Each broker delivers what it leads; what is settled stays so after a kill."""
    cluster.operate("b1", "topic.create", name="t", partitions=2)
    client = cluster.client("b1", "b2")
    for partition in range(2):
        cluster.publish(client, "t", b"%d" % partition, partition=partition)
    subscription = client.subscription("t", "c")
    found = cluster.run(take(subscription, 2))
    cluster.advance(1)

    cluster["b2"].kill()
    cluster["b2"].start()
    cluster.advance(10)
    cluster.publish(client, "t", b"2", partition=1)
    again = cluster.run(take(subscription, 1))
    cluster.run(subscription.close())

    assert sorted(found, key=str) == [b"0", b"1"]
    assert again == [b"2"]


def channels(cluster: WholeCluster, process: str = "b1") -> list[str]:
    """The names of all channels."""
    return [row["name"] for row in cluster.operate(process, "channel.list")["channels"]]


class TestTemporary:
    """Channels that go with their last consumer."""

    @pytest.fixture
    def subscription(self, cluster: WholeCluster) -> Subscription:
        """A subscription to a temporary channel."""
        cluster.operate("b1", "topic.create", name="t", partitions=2)
        client = cluster.client("b1", "b2")
        cluster.publish(client, "t", b"before", partition=0)
        subscription = client.subscription("t", "c", SubscriptionConfig(temporary=True))
        cluster.run(subscription.ready())
        cluster.advance(1)
        return subscription

    def test_it_stays_as_long_as_somebody_subscribes(
        self, cluster: WholeCluster, subscription: Subscription
    ) -> None:
        """It begins at the latest message, and goes some seconds after its last consumer."""
        cluster.advance(60)
        cluster.publish(cluster.clients[-1], "t", b"after", partition=0)
        found = cluster.run(take(subscription, 1))
        before = channels(cluster)
        cluster.run(subscription.close())
        cluster.advance(9)
        soon = channels(cluster)
        cluster.advance(8)

        assert found == [b"after"]
        assert before == soon == ["c"]
        assert channels(cluster) == []

    @pytest.mark.parametrize("process", ["meta", "b1"])
    def test_nothing_is_left_behind_by_a_restart(
        self, cluster: WholeCluster, subscription: Subscription, process: str
    ) -> None:
        """A process that is killed meanwhile does not make it stay."""
        cluster.begin(subscription.close())
        cluster.advance(0.5)
        cluster[process].kill()
        cluster.advance(20)
        cluster[process].start()
        cluster.advance(20)

        assert channels(cluster) == []

    @pytest.mark.parametrize("process", ["meta", "b1"])
    def test_a_restart_does_not_end_it(
        self, cluster: WholeCluster, subscription: Subscription, process: str
    ) -> None:
        """A process that is back soon finds it, with all that came meanwhile."""
        cluster[process].kill()
        cluster.advance(5)
        cluster.publish(cluster.clients[-1], "t", b"meanwhile", partition=1)
        cluster[process].start()
        cluster.advance(30)
        cluster.publish(cluster.clients[-1], "t", b"after", partition=0)
        found = cluster.run(take(subscription, 2))
        cluster.run(subscription.close())

        assert sorted(found, key=str) == [b"after", b"meanwhile"]

    def test_a_broker_without_its_metaserver_lets_consumers_come_back(
        self, cluster: WholeCluster, subscription: Subscription
    ) -> None:
        """A link that is lost meanwhile does not end it."""
        cluster["meta"].kill()
        cluster.advance(5)
        cluster.cut("b1", "tester")
        cluster.cut("b2", "tester")
        cluster.advance(5)
        cluster.publish(cluster.clients[-1], "t", b"meanwhile", partition=0)
        found = cluster.run(take(subscription, 1))
        cluster["meta"].start()
        cluster.advance(20)
        cluster.run(subscription.close())

        assert found == [b"meanwhile"]


def test_a_metaserver_from_an_old_backup_costs_no_channel(cluster: WholeCluster) -> None:
    """Brokers go on with it, tell the MetaServer of it, and deleted ones stay deleted."""
    cluster.operate("b1", "topic.create", name="t", partitions=2)
    cluster.operate("b1", "channel.create", topic="t", name="gone")
    cluster["meta"].stop()
    data = Path(cluster["meta"].config.storage.data)
    shutil.copytree(data, data.with_name("backup"))
    cluster["meta"].start()
    cluster.advance(3)
    client = cluster.client("b1", "b2")
    made = cluster.operate("b1", "channel.create", topic="t", name="c", config={"attempts": 7})
    cluster.operate(
        "b1", "push.set", topic="t", name="c", url="http://93.184.215.14/", timeout_ms=7000
    )
    cluster.operate("b1", "push.pause", topic="t", name="c", reason="later")
    cluster.operate("b1", "channel.delete", topic="t", name="gone")
    for partition in range(2):
        cluster.publish(client, "t", b"%d" % partition, b"later", partition=partition)
    subscription = client.subscription("t", "c")
    found = cluster.run(take(subscription, 2))
    cluster.advance(1)

    cluster["meta"].stop()
    shutil.rmtree(data)
    data.with_name("backup").rename(data)
    cluster["meta"].start()
    cluster.advance(10)
    told = cluster.operate("b1", "channel.info", topic="t", name="c")["channel"]
    endpoint = cluster.operate("b1", "push.info", topic="t", name="c")["endpoint"]
    cluster["b2"].restart()
    cluster.advance(10)
    found += cluster.run(take(subscription, 2))
    cluster.run(subscription.close())
    left = cluster.operate("b2", "channel.info", topic="t", name="c")["channel"]["lag"]

    assert cluster.said("does not tell of channel t/c: it is kept") >= 2
    assert (told["created_ms"], told["config"]["attempts"]) == (made["channel"]["created_ms"], 7)
    assert sorted(found, key=str) == [b"0", b"1", b"later", b"later"]
    assert (endpoint["timeout_ms"], endpoint["state"], endpoint["why"]) == (7000, "paused", "later")
    assert left == 0
