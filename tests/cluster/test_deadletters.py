"""Dead letters where several brokers lead partitions, and one of them is away."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from tests.fakes.whole_cluster import WholeCluster
from tinymq.client import Client
from tinymq.client.subscription import Subscription
from tinymq.meta.entries import Put

#: Seconds after which a silence is known, and a dead broker is taken for dead.
KNOWN = 6


def lead(cluster: WholeCluster, name: str, *leaders: str, partitions: int = 1) -> None:
    """Make a topic that some brokers lead."""
    topic = cluster.meta.create_topic(name, partitions, dry_run=True)
    ids = tuple(cluster[each].broker.id for each in leaders)
    made = attrs.evolve(topic, leaders=ids, partitions=len(ids))
    key = topic.id.hex()
    writes = [Put(f"topic/{key}", made.encode()), Put(f"name/{name}", key.encode())]
    cluster.meta._write([], writes)
    cluster.advance(1)


async def reject(subscription: Subscription, count: int) -> None:
    """Take messages and give them up."""
    async for message in subscription:
        message.reject("no")
        count -= 1
        if not count:
            break


def give_up(cluster: WholeCluster, *values: bytes) -> tuple[Client, Subscription]:
    """Publish messages to the topic `t`, and let its channel `c` give them up."""
    client = cluster.client("b1", "b2")
    cluster.publish(client, "t", *values)
    subscription = client.subscription("t", "c")
    cluster.run(reject(subscription, len(values)))
    return client, subscription


def standing(cluster: WholeCluster, target: str) -> dict[str, Any]:
    """A dead-letter topic as the list of them has it."""
    rows = cluster.operate("b1", "dlq.list")["queues"]
    return next(row for row in rows if row["target"] == target)


def test_they_are_written_where_they_come_from(cluster: WholeCluster) -> None:
    """A dead-letter topic that is made for them has the leaders of its origin."""
    lead(cluster, "t", "b1", "b2", "b1")
    _, subscription = give_up(cluster, *(b"%d" % number for number in range(9)))
    cluster.advance(1)
    cluster.run(subscription.close())

    dead = cluster.meta.describe("t.c.dead")
    assert dead.leaders == cluster.meta.describe("t").leaders
    row = standing(cluster, "t.c.dead")
    assert (row["messages"], row["kept"], row["kept_why"]) == (9, 0, "")


def test_a_topic_that_another_broker_leads_gets_them(cluster: WholeCluster) -> None:
    """Over the way between brokers, long ones too, in order and once."""
    lead(cluster, "t", "b1")
    lead(cluster, "graves", "b2")
    cluster.operate("b1", "channel.create", topic="t", name="c", config={"dead.letter": "graves"})
    values = [b"a", b"b" * 200_000, b"c"]
    client, subscription = give_up(cluster, *values)
    cluster.advance(1)
    cluster.run(subscription.close())

    assert cluster.read(client, "graves", 3) == values
    assert standing(cluster, "graves")["messages"] == 3


@pytest.mark.parametrize("moment", range(6))
def test_its_broker_dies_in_between(cluster: WholeCluster, moment: int) -> None:
    """At whatever moment: what was given up is kept and named, and written once when it is back."""
    lead(cluster, "t", "b1")
    lead(cluster, "graves", "b2")
    cluster.operate("b1", "channel.create", topic="t", name="c", config={"dead.letter": "graves"})
    client = cluster.client("b1", "b2")
    cluster.publish(client, "t", b"a", b"b", b"c")
    subscription = client.subscription("t", "c")
    begun = cluster.begin(reject(subscription, 3))
    for _ in range(5 * moment):
        cluster._move()
    cluster["b2"].kill()
    cluster.advance(KNOWN)
    assert begun
    kept = standing(cluster, "graves")
    cluster["b2"].start()
    cluster.advance(20)
    cluster.run(subscription.close())

    assert kept["kept"] == 3 or moment
    if kept["kept"]:
        assert "not there" in kept["kept_why"] or "does not answer" in kept["kept_why"]
    assert cluster.read(client, "graves", 3) == [b"a", b"b", b"c"]
    row = standing(cluster, "graves")
    assert (row["messages"], row["kept"], row["kept_why"]) == (3, 0, "")


@pytest.mark.parametrize("moment", [0, 2, 4])
def test_the_broker_of_their_origin_dies_in_between(cluster: WholeCluster, moment: int) -> None:
    """What it had written it does not write again."""
    lead(cluster, "t", "b1")
    lead(cluster, "graves", "b2")
    cluster.operate("b1", "channel.create", topic="t", name="c", config={"dead.letter": "graves"})
    client, subscription = give_up(cluster, b"a", b"b", b"c")
    for _ in range(3 * moment):
        cluster._move()
    cluster["b1"].kill()
    cluster.advance(KNOWN)
    cluster["b1"].start()
    cluster.advance(12)
    cluster.begin(reject(subscription, 3))  # some may come again
    cluster.advance(12)
    cluster.run(subscription.close())

    assert cluster.read(client, "graves", 3) == [b"a", b"b", b"c"]
    assert standing(cluster, "graves")["messages"] == 3


def test_a_lost_answer_is_no_second_letter(cluster: WholeCluster) -> None:
    """The link between the brokers is cut when the letter is there and its answer is not."""
    lead(cluster, "t", "b1")
    lead(cluster, "graves", "b2")
    cluster.operate("b1", "channel.create", topic="t", name="c", config={"dead.letter": "graves"})
    client, subscription = give_up(cluster, b"a")
    graves = cluster["b2"].topic("graves")
    cluster.until(lambda: cluster["b2"].broker.partition(graves.id, 0).log.end_offset)
    cluster.cut("b1", "b2")
    cluster.advance(20)
    cluster.run(subscription.close())

    assert cluster.read(client, "graves", 1) == [b"a"]
    row = standing(cluster, "graves")
    assert (row["messages"], row["kept"]) == (1, 0)


def test_sent_back_over_brokers(cluster: WholeCluster) -> None:
    """The letters lie with one broker, their origin with another, and the copies with both."""
    lead(cluster, "t", "b1")
    lead(cluster, "graves", "b2")
    lead(cluster, "other", "b1", "b2")
    cluster.operate("b1", "channel.create", topic="t", name="c", config={"dead.letter": "graves"})
    client, subscription = give_up(cluster, b"a", b"b", b"c")
    cluster.advance(1)
    back = cluster.operate("b1", "dlq.redrive", target="graves", limit=1)
    again = cluster.run(take(subscription, 1))
    cluster.run(subscription.close())
    sent = cluster.operate("b2", "dlq.redrive", target="graves", to="other", after=back["after"])

    assert (back["done"], back["failed"], again) == (1, [], [b"a"])
    assert (sent["done"], sent["failed"]) == (2, [])
    assert standing(cluster, "graves")["messages"] == 0
    assert sorted(map(str, cluster.read(client, "other", 2))) == ["b'b'", "b'c'"]


async def take(subscription: Subscription, count: int) -> list[bytes | None]:
    """Take messages and finish them."""
    found: list[bytes | None] = []
    async for message in subscription:
        found.append(message.value)
        message.finish()
        if len(found) == count:
            break
    return found


def test_a_silent_origin_lets_letters_stay(cluster: WholeCluster) -> None:
    """Nothing is settled that did not come back; when the broker is there it does."""
    lead(cluster, "t", "b1")
    lead(cluster, "graves", "b2")
    cluster.operate("b1", "channel.create", topic="t", name="c", config={"dead.letter": "graves"})
    _, subscription = give_up(cluster, b"a")
    cluster.advance(1)
    cluster.run(subscription.close())
    cluster["b1"].still = True
    cluster.advance(KNOWN)
    told = cluster.operate("meta", "dlq.redrive", target="graves")
    cluster["b1"].still = False
    cluster.advance(KNOWN)

    assert told["done"] == 0
    assert "b1 does not answer" in told["failed"][0]["why"]
    assert cluster.operate("b2", "dlq.redrive", target="graves")["done"] == 1


def test_letters_of_a_silent_broker_are_missing(cluster: WholeCluster) -> None:
    """The others are told, and who did not answer."""
    lead(cluster, "t", "b1", "b2")
    client = cluster.client("b1", "b2")
    for partition in range(2):
        cluster.publish(client, "t", b"%d" % partition, partition=partition)
    subscription = client.subscription("t", "c")
    cluster.run(reject(subscription, 2))
    cluster.advance(1)
    cluster.run(subscription.close())
    cluster["b2"].still = True
    cluster.advance(KNOWN)
    told = cluster.operate("meta", "dlq.messages", target="t.c.dead")
    listed = cluster.operate("meta", "dlq.list")
    cluster["b2"].still = False
    cluster.advance(KNOWN)

    assert ([row["preview"] for row in told["messages"]], told["silent"]) == (["0"], ["b2"])
    assert (listed["queues"][0]["messages"], listed["silent"]) == (1, ["b2"])


def test_a_repeat_in_other_pieces_is_no_second_letter(cluster: WholeCluster) -> None:
    """The broker that has some of the letters says which, and gets only the others."""
    lead(cluster, "t", "b1")
    lead(cluster, "graves", "b2")
    cluster.operate("b1", "channel.create", topic="t", name="c", config={"dead.letter": "graves"})
    client = cluster.client("b1", "b2")
    cluster.publish(client, "t", b"a", b"b", b"c")
    subscription = client.subscription("t", "c")
    cluster.run(reject(subscription, 1))
    graves = cluster["b2"].topic("graves")
    cluster.until(lambda: cluster["b2"].broker.partition(graves.id, 0).log.end_offset)
    cluster.cut("b1", "b2")  # b1 does not know that the first is there
    cluster.run(reject(subscription, 2))
    cluster.advance(20)
    cluster.run(subscription.close())

    assert cluster.read(client, "graves", 3) == [b"a", b"b", b"c"]
    row = standing(cluster, "graves")
    assert (row["messages"], row["kept"]) == (3, 0)


@pytest.mark.parametrize("moment", [0, 3, 6, 9])
@pytest.mark.parametrize("who", ["meta", "b1", "b2"])
@pytest.mark.parametrize("to", ["origin", "other"])
def test_a_death_in_the_middle_of_sending_back(
    cluster: WholeCluster, who: str, moment: int, to: str
) -> None:
    """Whoever dies, and when: asked once more, every message is there, and a copy only once."""
    lead(cluster, "t", "b1")
    lead(cluster, "graves", "b2")
    lead(cluster, "other", "b1")
    cluster.operate("b1", "channel.create", topic="t", name="c", config={"dead.letter": "graves"})
    client, subscription = give_up(cluster, b"a", b"b")
    cluster.advance(1)
    cluster.run(subscription.close())
    cluster.begin(cluster.ask("meta", "dlq.redrive", target="graves", to=to))
    for _ in range(moment):
        cluster._move()
    cluster[who].kill()
    cluster.advance(KNOWN)
    cluster[who].start()
    cluster.advance(KNOWN)
    told = cluster.operate("b2", "dlq.redrive", target="graves", to=to)
    again = client.subscription("t" if to == "origin" else "other", "c")
    found = cluster.run(take(again, 2))
    cluster.run(again.close())

    assert told["failed"] == []
    assert sorted(map(str, found)) == ["b'a'", "b'b'"]
    assert standing(cluster, "graves")["messages"] == 0
    if to == "other":
        topic = cluster["b1"].topic("other")
        assert cluster["b1"].broker.partition(topic.id, 0).high_watermark == 2
