"""A running channel in a cluster is seen and steered as one, whatever broker leads what."""

from __future__ import annotations

from typing import Any

from tests.fakes.whole_cluster import WholeCluster
from tinymq.client.subscription import Message

#: Seconds after which a silence is known.
KNOWN = 6
ONE = {"topic": "t", "name": "work"}


def begin(cluster: WholeCluster) -> tuple[Any, list[Message]]:
    """Make a topic with two messages at each broker, and somebody who holds them all."""
    cluster.operate("b1", "topic.create", name="t", partitions=2)
    cluster.operate("b1", "channel.create", **ONE)
    client = cluster.client("b1", "b2")
    for partition in range(2):
        cluster.publish(client, "t", b"a", b"b", partition=partition)
    subscription = client.subscription("t", "work")
    messages = [cluster.run(subscription.next()) for _ in range(4)]
    return subscription, [each for each in messages if each is not None]


def test_seen_as_one(cluster: WholeCluster) -> None:
    """Members of all brokers, what they hold, and sums over all partitions."""
    _, messages = begin(cluster)
    members = cluster.operate("b1", "channel.members", **ONE)["members"]
    assert sorted((each["broker"], each["partitions"], each["in_flight"]) for each in members) == [
        ("b1", [0], 2),
        ("b2", [1], 2),
    ]
    rows = cluster.operate("b2", "inflight.list", topic="t")
    assert rows["total"] == 4
    assert {(row["broker"], row["partition"]) for row in rows["messages"]} == {("b1", 0), ("b2", 1)}
    page = cluster.operate("b1", "inflight.list", limit=3)
    rest = cluster.operate("b1", "inflight.list", limit=3, after=page["after"])
    assert len(page["messages"]) + len(rest["messages"]) == 4
    peeked = cluster.operate("b1", "channel.peek", **ONE)["messages"]
    assert [(row["partition"], row["offset"]) for row in peeked] == [(0, 0), (0, 1), (1, 0), (1, 1)]

    messages[0].finish()
    cluster.advance(2)
    channel = cluster.operate("b1", "channel.info", **ONE)["channel"]
    assert (channel["lag"], channel["totals"]["delivered"], channel["totals"]["finished"]) == (
        *(3, 4, 1),
    )
    assert channel["rates"]["finished_s"] > 0
    (row,) = cluster.operate("b2", "channel.list")["channels"]
    assert (row["totals"], row["state"]) == (channel["totals"], "consuming")


def test_steered_where_it_is(cluster: WholeCluster) -> None:
    """An act reaches the broker of the message, and its holder hears of it."""
    _, messages = begin(cluster)
    taken = next(each for each in messages if (each.partition, each.offset) == (1, 0))
    told = cluster.operate(
        "b1", "inflight.settle", **ONE, partition=1, offsets=[0, 5], act="finish"
    )
    assert told == {"done": [0], "missing": [5], "dry_run": False}
    cluster.advance(1)
    assert taken.is_lost
    assert cluster.operate("b1", "channel.info", **ONE)["channel"]["lag"] == 3


def test_a_silent_leader(cluster: WholeCluster) -> None:
    """A broker that does not answer is named as a cause; what the others know is told."""
    begin(cluster)
    cluster["b2"].still = True
    cluster.advance(KNOWN)
    channel = cluster.operate("b1", "channel.info", **ONE)["channel"]
    assert channel["why"][0]["cause"] == "offline"
    assert channel["why"][0]["text"].startswith("b2, which leads partitions of it, does not answer")
    (row,) = cluster.operate("b1", "channel.list")["channels"]
    assert row["why"][0]["cause"] == "offline"
    for name, more in (
        ("channel.members", ONE),
        ("channel.peek", ONE),
        ("inflight.list", {}),
    ):
        told = cluster.operate("b1", name, **more)
        assert told["silent"] == ["b2"]
        assert told.get("messages") or told.get("members")
    cluster["b2"].still = False
    cluster.advance(KNOWN)
