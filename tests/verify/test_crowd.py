"""The traffic of verify-cluster: numbering, receipts, and keys for each broker."""

from __future__ import annotations

import itertools
from typing import Any, cast

import pytest
from twisted.internet.task import Clock

from tinymq.client.core.partitioners import key_partition
from tinymq.client.core.results import Position, Sent
from tinymq.errors import ConnectionLost
from tinymq.sync import Client
from tinymq.verify.beats import Beats
from tinymq.verify.crowd import Crowd, Lead, Stage, Writer, named
from tinymq.verify.journal import Journal
from tinymq.verify.numbered import Mark, Place, mark_of

LEAD = Lead({Place("t", number): f"b{1 + number % 3}" for number in range(6)})


class Producer:
    """Stores everything in partition 1, behind one another, unless it is to fail."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.failing = False
        self.scattered = False

    def _take(self, values: list[bytes]) -> int:
        if self.failing:
            raise ConnectionLost
        first = len(self.values)
        self.values += values
        return first

    def send(self, topic: str, value: bytes, key: Any, *, partition: int | None) -> Position:
        """Store one."""
        return Position(topic, 1, self._take([value]), 0, volatile=False)

    def send_batch(self, topic: str, values: list[bytes], keys: Any, *, partition: Any) -> Sent:
        """Store several."""
        first = self._take(values)
        runs = [(1, first, len(values))]
        return Sent(
            len(values), [(0, 9, 1), (1, first, len(values) - 1)] if self.scattered else runs
        )


@pytest.fixture
def producer() -> Producer:
    """Return a producer."""
    return Producer()


@pytest.fixture
def stage(producer: Producer) -> Stage:
    """Return what threads know."""
    return Stage(lambda first: "", Journal(), Beats(Clock().seconds), LEAD, 1)


@pytest.fixture
def writer(stage: Stage, producer: Producer) -> Writer:
    """Return a writer with that producer."""

    class Connection:
        """A client with that producer."""

        def producer(self, config: Any) -> Producer:
            """Give the producer."""
            return producer

    return Writer(stage, cast("Client", Connection()), "send", 1.0)


def test_receipts(stage: Stage, writer: Writer, producer: Producer) -> None:
    """Records are numbered through the topic, and the receipt says where they are."""
    assert writer.send("t") == [Place("t", 1)]
    assert writer.send("t", 3, partition=1) == [Place("t", 1)]
    marks = [mark_of(named("t"), value) for value in producer.values]
    assert marks == [Mark(0, number) for number in range(4)]
    receipts = stage.journal.receipts(Place("t", 1))
    assert [(each.first, each.count, each.offset) for each in receipts] == [(0, 1, 0), (1, 3, 1)]


def test_after_a_failure(stage: Stage, writer: Writer, producer: Producer) -> None:
    """After a call that failed the numbers begin anew, under another name."""
    producer.failing = True
    with pytest.raises(ConnectionLost):
        writer.send("t")
    producer.failing = False
    writer.send("t")
    assert mark_of(named("t"), producer.values[0]) == Mark(1, 0)
    assert stage.journal.refused == {("t", ConnectionLost): 1}
    assert ConnectionLost in stage.words


def test_a_batch_that_was_scattered(stage: Stage, writer: Writer, producer: Producer) -> None:
    """When a batch lies in two places nobody knows which record is where: no receipt."""
    producer.scattered = True
    assert writer.send("t", 3) == [Place("t", 0), Place("t", 1)]
    assert stage.journal.places() == []


def test_keys_of_a_broker() -> None:
    """Each broker gets keys for each of its partitions."""
    keys = LEAD.keys("b2", 6)
    assert [key_partition(key, 6) for _, key in keys] == [1, 1, 4, 4]
    assert LEAD.of("b2") == [Place("t", 1), Place("t", 4)]


def test_streams(stage: Stage) -> None:
    """For each broker there is writing and reading to be watched."""
    crowd = Crowd(stage, ("b1", "b2"))
    assert crowd.streams(("b2",)) == ["keyed b2", "read b2"]
    assert crowd.partitions == 4
    assert set(crowd.readers) == set(LEAD.leaders)
    crowd.stop()


def test_names_are_never_used_twice(stage: Stage) -> None:
    """Writers have names that nobody had before."""
    assert list(itertools.islice(stage.names, 3)) == [0, 1, 2]
