"""Kills and power cuts at every step of a transaction, of whoever takes part in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from errno import EIO
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner

from tests.broker.transactions.ring import Member, Ring
from tests.broker.transactions.stage import Stage, transactional
from tests.fakes.broker import BrokerDisk, batch
from tests.fakes.taking import Taker
from tinymq.broker.partition import Appended, Partition
from tinymq.broker.transactions.opened import Identity
from tinymq.broker.transactions.places import place_of
from tinymq.cli.log import log
from tinymq.errors import StorageFull, WireError
from tinymq.names import TRANSACTIONS
from tinymq.wire.messages import (
    FINISH,
    EndTransaction,
    EndTransactionReply,
    Hello,
    InitProducerReply,
    Settle,
)

NAME = "bank"


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[Ring]:
    """Return three brokers, each with a partition of `t`, which has a channel."""
    found = Ring(tmp_path, Random(4))
    found.topic("t", 3)
    found.meta.ensure_channel("t", "c", "earliest", temporary=False)
    yield found
    found.close()


class Story:
    """
    A transaction with a record in every partition and a settle in one, step by step.

    Args:
        ring: The brokers.
        commit: How its producer ends it.
    """

    def __init__(self, ring: Ring, *, commit: bool) -> None:
        self.ring = ring
        self.topic_id = ring.meta.describe("t").id
        ring.meta.ensure_topic(TRANSACTIONS)
        self._ask(lambda: self._plain(b"m"))
        self.taker = Taker(ring.members[1], ring.members[1].connect())  # type: ignore[arg-type]
        self.taker.connection.ask(Hello())
        self.taker.subscribe_soon("c", "t")
        ring.settle()
        self.taker.read()
        (self.taken,) = self.taker.take()
        identity = self._ask(self._init)
        assert isinstance(identity, InitProducerReply)
        self.identity: Identity = identity.producer_id, identity.epoch
        for index in range(3):
            assert isinstance(self._ask(lambda index=index: self._send(index)), Appended)
        rows: list[Any] = [(0, FINISH, [(self.taken.lease, self.taken.bit)], {})]
        self.taker.connection.post(Settle(subscription=1, rows=rows, transaction=self.identity))
        ring.settle()
        self.ended: list[EndTransactionReply | WireError] = []
        self.coordinator.broker.transacting.end(
            EndTransaction(
                transactional_id=NAME,
                transaction=self.identity,
                commit=commit,
                topics=[(self.topic_id, [0, 1, 2])],
            ),
            self.ended.append,
        )

    @property
    def coordinator(self) -> Member:
        """The broker that decides."""
        return self.ring.leader(TRANSACTIONS, place_of(NAME))

    def _ask(self, ask: Any) -> Any:
        answers = ask()
        for _ in range(20):
            if answers:
                break
            self.ring.settle()
        (answer,) = answers
        return answer

    def _init(self) -> list[Any]:
        answers: list[Any] = []
        self.coordinator.broker.transacting.init_producer(NAME, 5000, "", answers.append)
        return answers

    def _plain(self, value: bytes) -> list[Any]:
        answers: list[Any] = []
        self.ring.members[1].broker.produce(self.topic_id, 0, batch(value), answers.append)
        return answers

    def _send(self, index: int) -> list[Any]:
        answers: list[Any] = []
        data = transactional(b"%d" % index, identity=self.identity, sequence=0)
        self.ring.leader("t", index).broker.produce(self.topic_id, index, data, answers.append)
        return answers

    def steps(self, count: int) -> None:
        """Let a part of what follows happen, the smallest pieces there are one by one."""
        done = 0
        while done < count:
            before = done
            for member in self.ring.running:
                member.clock.advance(0)
                done += 1
                if done >= count:
                    return
                while member.syncer.groups:
                    member.syncer.release()
                    done += 1
                    if done >= count:
                        return
            self.ring.deliver()
            done += 1
            assert done > before

    def partitions(self) -> list[Partition]:
        """The partitions of the topic."""
        return [
            self.ring.leader("t", index).broker.partition(self.topic_id, index)
            for index in range(3)
        ]


@pytest.mark.parametrize(
    ("commit", "step"),
    [*((True, step) for step in (0, 1, 2, 3, 4, 6, 9, 14)), *((False, step) for step in (1, 3, 6))],
)
@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("whose", ["coordinator", "first", "second"])
def test_every_step(ring: Ring, step: int, whose: str, power: bool, commit: bool) -> None:
    """All partitions say the same in the end, and what the producer was told."""
    story = Story(ring, commit=commit)
    story.steps(step)
    victim = {
        "coordinator": story.coordinator,
        "first": ring.members[1],
        "second": ring.members[2],
    }[whose]
    told = [each for each in story.ended if isinstance(each, EndTransactionReply)]
    if power:
        victim.cut_power(step)
    else:
        victim.kill()
    ring.settle(1)
    victim.start()
    for _ in range(12):
        ring.settle(1)
    partitions = story.partitions()
    assert [each.transactions.open for each in partitions] == [{}, {}, {}]
    aborted = {story.identity in each.transactions.aborted for each in partitions}
    assert len(aborted) == 1
    (hosted,) = ring.members[1].broker.channels.hosted_of(story.topic_id)
    places = hosted.queue.channels["c"].channel.places
    assert not places.held()
    settled = places.floor > story.taken.offset
    assert settled is not aborted.pop()
    if told:
        assert settled is commit
    elif not commit:
        assert not settled


@pytest.mark.parametrize("stop", [True, False])
def test_the_checkpoint(tmp_path: Path, stop: bool) -> None:
    """What is open and what was aborted comes back from the checkpoint, and from what is behind."""
    stage = Stage(tmp_path / "data", 1)
    one = stage.init()
    stage.send(one, b"a")
    two = stage.end(one, commit=False)
    stage.send(two, b"b")
    stage.housekeeping.checkpoint()
    stage.settle()
    three = stage.end(two)
    stage.send(three, b"c")
    for _ in range(2):
        stage.stop() if stop else stage.kill()
        stage = stage.again()
        partition = stage.partition()
        assert partition.transactions.open.keys() == {three}
        assert partition.transactions.aborted == {one: (0, 1)}
        assert partition.stable_offset == 4
        assert stage.seen() == [b"b"]
    stage.sequences[three, 0] = 1
    stage.send(three, b"d")
    stage.end(three)
    assert stage.seen() == [b"b", b"c", b"d"]
    stage.kill()


@pytest.mark.parametrize("stop", [True, False])
def test_fences_after_a_start(tmp_path: Path, stop: bool) -> None:
    """Repeats are known after a start, and late records of what is over are refused."""
    stage = Stage(tmp_path / "data", 1)
    one = stage.init()
    stage.send(one, b"a")
    stage.end(one)
    stage.stop() if stop else stage.kill()
    stage = stage.again()
    assert stage.send(one, b"a") == 0
    with pytest.raises(WireError, match="was committed"):
        stage.send(one, b"late")
    stage.kill()


def test_writes_that_are_refused(tmp_path: Path) -> None:
    """With a full disk nothing is decided or ended by halves, and all is when there is room."""
    disk = BrokerDisk()
    stage = Stage(tmp_path / "data", 1, disk=disk)
    one = stage.init()
    stage.send(one, b"a")
    disk.room = 0
    with pytest.raises(StorageFull):
        stage.end(one)
    disk.room = None
    request = EndTransaction(
        transactional_id=NAME,
        transaction=one,
        commit=True,
        topics=[(stage.meta.describe("t").id, [0])],
    )
    # It is decided, and the disk is full before its partition hears of it.
    stage.broker.transacting.end(request, lambda reply: setattr(disk, "room", 0))
    stage.settle(1)
    assert stage.partition().transactions.open.keys() == {one}
    assert stage.seen() == []
    disk.room = None
    for _ in range(5):
        stage.settle(1)
    assert stage.seen() == [b"a"]
    stage.kill()


def test_a_sync_that_fails(tmp_path: Path) -> None:
    """Nobody knows what is on the disk then: nothing is decided until another start looks."""
    disk = BrokerDisk()
    stage = Stage(tmp_path / "data", 1, disk=disk)
    one = stage.init()
    stage.send(one, b"a")
    disk.failing["fdatasync"] = EIO
    with pytest.raises(WireError):
        stage.end(one)
    with pytest.raises(WireError):
        stage.end(one)
    for _ in range(3):
        stage.settle(1)
    assert stage.partition().transactions.open.keys() == {one}
    disk.failing.clear()
    stage.kill()
    stage = stage.again()
    stage.end(one)  # it was written, and only its answer was missing
    assert stage.seen() == [b"a"]
    stage.kill()


def test_it_is_seen_in_the_files(tmp_path: Path) -> None:
    """Who looks into the files sees which batch belongs to which transaction, and how it ended."""
    stage = Stage(tmp_path / "data", 1)
    one = stage.init()
    stage.send(one, b"a")
    two = stage.end(one, commit=False)
    stage.send(two, b"b")
    stage.end(two)
    path = stage.folder.partition_path(*stage.partition().key)
    stage.kill()
    folder = tmp_path / "data"
    found = CliRunner().invoke(log, ["dump", str(folder), "-o", "json"])
    rows = [row for row in json.loads(found.stdout) if row["log"] == "t/0"]
    names = [row["transaction"] for row in rows]
    first, second = f"{one[0]}:{one[1]}", f"{two[0]}:{two[1]}"
    assert names == [first, f"{first} aborted", second, f"{second} committed"], path
