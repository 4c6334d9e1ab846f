"""Messages of a channel whose topic is led by several brokers."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.fakes.whole_cluster import WholeCluster
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
    cluster["b2"].restart()
    cluster.advance(10)
    found += cluster.run(take(subscription, 2))
    cluster.run(subscription.close())
    left = cluster.operate("b2", "channel.info", topic="t", name="c")["channel"]["lag"]

    assert cluster.said("does not tell of channel t/c: it is kept") >= 2
    assert (told["created_ms"], told["config"]["attempts"]) == (made["channel"]["created_ms"], 7)
    assert sorted(found, key=str) == [b"0", b"1", b"later", b"later"]
    assert left == 0
