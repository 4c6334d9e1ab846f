"""Messages of a channel whose topic is led by several brokers."""

from __future__ import annotations

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
