"""The life of a message that another broker leads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from tests.fakes.broker import batch
from tests.fakes.two_brokers import TwoBrokers
from tinymq.errors import BrokerSilent


@pytest.fixture
def two(tmp_path: Path) -> Iterator[TwoBrokers]:
    """Two brokers, each of which leads a partition of a topic with a channel."""
    two = TwoBrokers(tmp_path)
    topic = two.here.topic("t", partitions=2)
    two.here.meta.create_channel("t", "c", {})
    for index in range(2):
        broker = two.here.broker if topic.leaders[index] == 1 else two.broker
        broker.produce(topic.id, index, batch(b"a"), lambda _: None)
    two.here.clock.pump([0] * 6)
    yield two
    two.close()


def asked(two: TwoBrokers, partition: int) -> Any:
    """What is told of the first message of a partition, or why nothing is."""
    done: list[Any] = []
    arguments = {"topic": "t", "partition": partition, "offset": 0}
    Deferred.fromCoroutine(two.here.operations.run("message.life", arguments)).addBoth(done.append)
    two.here.clock.pump([0] * 6)
    (one,) = done
    return one


def test_the_leader_is_asked(two: TwoBrokers) -> None:
    """Only the broker that leads the partition knows, and only that one is asked."""
    leaders = two.here.meta.describe("t").leaders
    for index in range(2):
        two.asked.clear()
        told = asked(two, index)
        assert told["channels"] == [{"channel": "c", "state": "new"}]
        assert two.asked == ([] if leaders[index] == 1 else ["node.message_life"])


def test_a_leader_that_says_nothing(two: TwoBrokers) -> None:
    """What is not known is not made up."""
    far = two.here.meta.describe("t").leaders.index(2)
    two.trouble = BrokerSilent("away")
    found = asked(two, far)
    assert isinstance(found, Failure)
    assert found.check(BrokerSilent)
