"""Frames that say what no client would: each is answered, and nobody else is harmed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from twisted.logger import globalLogPublisher

from tests.conftest import LONG
from tests.fakes.broker import BrokerFixture, Connection, LogKeeper, batch
from tinymq.limits import LATEST_MS
from tinymq.wire.header import REPLY, MessageType
from tinymq.wire.messages import (
    REPLIES,
    Commit,
    Committed,
    CommittedReply,
    EndTransaction,
    InitProducer,
    Member,
    MemberReply,
    Message,
)

I64 = (1 << 63) - 1
NAMES = ("g", "h", "", "tinymq.x", "no/name", "x" * 65, "x" * 300, "\x00", "ü" * 40, "@1", "g@1")
NUMBERS = (
    -2,
    -1,
    0,
    1,
    7,
    32_767,
    32_768,
    1 << 31,
    LATEST_MS,
    LATEST_MS + 1,
    I64,
    I64 + 1,
    (1 << 64) - 1,
)
ODD: tuple[Any, ...] = (
    None,
    True,
    "",
    "x" * 5000,
    b"",
    b"x" * 5000,
    1.5,
    [],
    {},
    [[]],
    [None],
    {"a": [1]},
    -1,
)


class Foe:
    """
    Somebody who sends anything.

    Args:
        chance: Decides what.
        topics: Ids of topics that there are.
    """

    def __init__(self, chance: Random, topics: list[bytes]) -> None:
        self.chance = chance
        self.topics = [*topics, b"\0" * 16, b"\xff" * 16]

    def _number(self) -> int:
        return self.chance.choice(NUMBERS)

    def _name(self) -> str:
        return self.chance.choice(NAMES)

    def _shares(self) -> list[Any]:
        return [
            (self.chance.choice(self.topics), [(self._number(), self._number()) for _ in range(2)])
            for _ in range(self.chance.randint(0, 3))
        ]

    def _identity(self) -> tuple[int, int]:
        return self._number(), self._number()

    def meta(self) -> tuple[int, dict[str, Any]]:
        """Make a frame."""
        chance = self.chance
        make: Any = chance.choice(
            (self._member, self._commit, self._committed, self._end, self._init)
        )
        message: Message = make()
        meta = message.to_meta()
        for _ in range(chance.choice((0, 0, 1, 2))):
            key = chance.choice([*meta, "zz"]) if meta else "zz"
            if chance.randrange(4) == 0:
                meta.pop(key, None)
            else:
                meta[key] = chance.choice(ODD)
        return message.type, meta

    def _member(self) -> Message:
        chance = self.chance
        return Member(
            group=self._name(),
            member=chance.choice(("m1", "evil", "", "x" * 65)),
            generation=self._number(),
            leaves=chance.randrange(8) == 0,
            instance=chance.choice((None, None, "i", "")),
            topics=chance.choice((["t"], ["t"] * 200, ["no/t"], [])),
            patterns=chance.choice(([], [], [".*"], ["("], ["a{999}{999}"], ["(a*)*$"])),
            strategy=chance.choice(("range", "own", "cooperative-sticky", "evil", "")),
            session_ms=chance.choice((1000, 45_000, 1 << 40)),
            owned=self._shares(),
            metadata=b"x" * chance.choice((0, 4096, 5000)),
            plan=chance.choice((None, None, [], [("m1", self._shares())])),
            wait_ms=chance.choice((0, 0, 1000)),
        )

    def _commit(self) -> Message:
        chance = self.chance
        rows = [
            (
                self._number(),
                self._number(),
                self._number(),
                chance.choice((-1, 0, 5, (1 << 31) - 1)),
                chance.choice(("", "n" * 4096, "\x00", "ü" * 2048)),
            )
            for _ in range(3)
        ]
        return Commit(
            group=self._name(),
            member=chance.choice(("m1", "evil", "")),
            topics=[(chance.choice(self.topics), rows) for _ in range(chance.randint(0, 3))],
            transaction=chance.choice((None, self._identity())),
        )

    def _committed(self) -> Message:
        return Committed(
            group=self._name(), member=self.chance.choice(("m1", "evil")), topics=self._shares()
        )

    def _end(self) -> Message:
        topics = [(self.chance.choice(self.topics), [self._number()]) for _ in range(2)]
        return EndTransaction(
            transactional_id=self._name(),
            transaction=self._identity(),
            commit=self.chance.randrange(2) == 0,
            topics=topics,
        )

    def _init(self) -> Message:
        return InitProducer(
            transactional_id=self._name(),
            timeout_ms=self.chance.choice((0, 1000, 60_000, I64)),
        )


@pytest.fixture
def log() -> Iterator[LogKeeper]:
    """What is logged."""
    keeper = LogKeeper()
    globalLogPublisher.addObserver(keeper)
    yield keeper
    globalLogPublisher.removeObserver(keeper)


def answer(broker: BrokerFixture, connection: Connection, message: Message) -> Message:
    """What is answered, which is no error."""
    number = connection.post(message)
    for _ in range(20):
        broker.clock.advance(0)
    (frame,) = (each for each in connection.frames() if each.message_id == number)
    assert frame.type == message.type | REPLY, frame.split()
    return REPLIES[message.type].from_meta(frame.split()[0])


@pytest.mark.parametrize("seed", range(200 if LONG else 3))
def test_anything(tmp_path: Path, log: LogKeeper, seed: int) -> None:
    """Whatever is sent has one answer, the connection lives, and another group goes on."""
    broker = BrokerFixture(tmp_path / "data")
    topics = [broker.topic(name, 4).id for name in ("t", "u")]
    data = batch(*[b"v"] * 10)
    broker.broker.produce(topics[0], 0, data, lambda told: None)
    foe, good = broker.connect(), broker.connect()
    answer(broker, good, Member(group="good", member="m1", topics=["t"]))
    broker.clock.advance(2)
    told: Any = answer(broker, good, Member(group="good", member="m1", topics=["t"]))
    ((_, shares),) = told.assigned
    answer(broker, good, Committed(group="good", member="m1", topics=[(topics[0], shares)]))
    rows = [(0, shares[0][1], 5, -1, "mine")]
    answer(broker, good, Commit(group="good", member="m1", topics=[(topics[0], rows)]))

    made = Foe(Random(seed), topics)
    open_ones: set[int] = set()
    for number in range(1, 400 if LONG else 80):
        type_, meta = made.meta()
        foe.send(type_, number, meta)
        open_ones.add(number)
        for _ in range(3):
            broker.clock.advance(0)
        for frame in foe.frames():
            assert frame.type in {type_ | REPLY, MessageType.ERROR} or frame.message_id != number
            open_ones.discard(frame.message_id)
        assert not foe.closed, (type_, meta)
    broker.clock.advance(30)
    broker.clock.advance(1)
    open_ones -= {frame.message_id for frame in foe.frames()}
    assert not open_ones
    assert not log.failures, log.failures[0]

    told = answer(
        broker,
        good,
        Member(
            group="good", member="m1", topics=["t"], generation=told.generation, owned=told.assigned
        ),
    )
    assert isinstance(told, MemberReply)
    found = answer(broker, good, Committed(group="good", topics=[(topics[0], [(0, -1)])]))
    assert isinstance(found, CommittedReply)
    assert found.topics[0][1][0][1:4] == (5, -1, "mine")
    broker.kill()
    broker = broker.again()
    found = answer(
        broker, broker.connect(), Committed(group="good", topics=[(topics[0], [(0, -1)])])
    )
    assert isinstance(found, CommittedReply)
    assert found.topics[0][1][0][1:4] == (5, -1, "mine")
