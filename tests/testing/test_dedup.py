"""Dedup windows from client to disk: what producers are told of repeats."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from uuid import uuid4

import pytest

from tinymq.client import ProducerConfig
from tinymq.testing import InProcessBroker


def values(broker: InProcessBroker) -> list[bytes | None]:
    """What the topic holds."""
    return [record.value for record in broker.records("t")]


def test_send(tinymq_broker: InProcessBroker) -> None:
    """A message that is sent again with its id is told as a duplicate, by another client too."""
    broker = tinymq_broker
    broker.create_topic("t", 4, dedup_ms=60_000)
    ids = [str(uuid4()) for _ in range(20)]
    firsts = [broker.run(broker.client().producer().send("t", b"v", id=each)) for each in ids]
    assert not any(each.duplicate for each in firsts)
    assert len({each.partition for each in firsts}) > 1
    producer = broker.client().producer()
    again = [broker.run(producer.send("t", b"v", id=each)) for each in ids]
    assert all(each.duplicate for each in again)
    assert [each[:3] for each in again] == [each[:3] for each in firsts]
    assert len(values(broker)) == 20
    assert producer.account.sent == 20


def test_send_batch(tinymq_broker: InProcessBroker) -> None:
    """Of many, even more than fit into a reply's meta part, the repeats are told by themselves."""
    broker = tinymq_broker
    broker.create_topic("t", 1, dedup_ms=60_000)
    producer = broker.client().producer()
    ids = [f"id {number}" for number in range(3000)]
    broker.run(producer.send_batch("t", [b"%d" % n for n in range(3000)], ids=ids))
    more = [*ids[:2000], *(f"new {number}" for number in range(10))]
    sent = broker.run(producer.send_batch("t", [b"x"] * 2010, ids=more))
    assert sent.count == 2010
    assert sent.duplicates == [(0, 0, 2000)]
    assert sent.positions == [(0, 5000, 10)]
    assert len(values(broker)) == 3010
    consumer = broker.client().consumer()
    broker.run(consumer.assign("t"))
    count = 0
    while count < 3010:
        batch = broker.run(consumer.next_batch())
        assert batch is not None
        count += len(batch)
    assert count == 3010
    assert not consumer.gaps


def test_header(tinymq_broker: InProcessBroker) -> None:
    """Records without key come to one partition by the header that is their id."""
    broker = tinymq_broker
    broker.create_topic("t", 8, dedup_ms=60_000, dedup_by="header:order")
    repeats = []
    for _ in range(3):
        producer = broker.client().producer()
        sent = broker.run(
            producer.send_batch(
                "t", [b"a", b"b", b"c"], headers=[{"order": b"%d" % n} for n in range(3)]
            )
        )
        broker.run(producer.send("t", b"d", headers={"order": b"4"}))
        broker.run(producer.send("t", b"e", headers={"other": b"4"}))
        repeats.append(sum(count for _, _, count in sent.duplicates))
    assert repeats == [0, 3, 3]
    assert sorted(value for value in values(broker) if value) == [
        b"a",
        b"b",
        b"c",
        b"d",
        b"e",
        b"e",
        b"e",
    ]


def test_channel(tinymq_broker: InProcessBroker) -> None:
    """What was handled is known in spite of that, after a restart too; channels pass over gaps."""
    broker = tinymq_broker
    broker.create_topic("t", 1, dedup_ms=600_000)
    producer = broker.client().producer()
    broker.run(producer.send("t", b"one", id="1"))
    broker.run(producer.send_batch("t", [b"again", b"two"], ids=["1", "2"]))
    subscription = broker.client().subscription("t", "c")
    for expected in (b"one", b"two"):
        message = broker.run(subscription.next())
        assert message is not None
        assert message.value == expected
        message.finish()
    broker.settle()
    broker.run(broker.client().admin.purge("t"))
    broker.restart()
    assert broker.run(broker.client().producer().send("t", b"three", id="1")).duplicate
    assert broker.run(broker.client().producer().send("t", b"three", id="2")).duplicate


def life(seed: int, steps: int) -> None:
    """Publish ids again and again, with kills, power cuts, purges and retention in between."""
    random = Random(seed)
    with InProcessBroker() as broker:
        broker.create_topic("t", 2, dedup_ms=3_600_000, segment_bytes=4096, retention_ms=60_000)
        first: dict[str, tuple[int, int]] = {}
        for step in range(steps):
            act = random.random()
            if act < 0.06:
                ends: list[Callable[[], None]] = [broker.kill, broker.stop]
                ends.append(partial(broker.power_cut, step))
                random.choice(ends)()
                broker.restart()
            elif act < 0.1:
                broker.jump(seconds=random.choice([1, 40]))
            client = broker.client()
            if 0.1 < act < 0.13:
                broker.run(client.admin.purge("t"))
            if act < 0.16:
                broker.advance(31)  # checkpoints and retention
            ids = [f"id {random.randrange(steps)}" for _ in range(random.randint(1, 30))]
            producer = client.producer(ProducerConfig(idempotent=random.random() < 0.5))
            for each in {*ids[:2]}:
                told = broker.run(producer.send("t", b"v", id=each))
                assert told.duplicate == (each in first)
                place = told.partition, told.offset
                assert first.setdefault(each, place) == place
            sent = broker.run(producer.send_batch("t", [b"w"] * len(ids), ids=ids))
            new = {each for each in ids if each not in first}
            assert sum(count for *_, count in sent.positions) == len(new)
            for each in new:
                told = broker.run(producer.send("t", b"x", id=each))
                assert told.duplicate
                first[each] = told.partition, told.offset
            broker.run(client.close())


@pytest.mark.parametrize("seed", range(2))
def test_random(seed: int) -> None:
    """Whatever happens in between, no id is stored twice, and its place stays the same."""
    life(seed, 20)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 110))
def test_random_long(seed: int) -> None:
    """So it is for a long time."""
    life(seed, 100)
