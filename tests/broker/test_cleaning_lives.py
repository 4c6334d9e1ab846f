"""Lives of a compacted topic with a channel, with kills, power cuts and purges in any order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from random import Random
from typing import Any

import pytest

from tests.conftest import LONG
from tinymq.errors import TinyMQError
from tinymq.testing import InProcessBroker

#: Key and value.
Row = tuple[bytes, bytes | None]


class Life:
    """
    One life.

    Args:
        broker: The broker.
        seed: Decides everything.
    """

    def __init__(self, broker: InProcessBroker, seed: int) -> None:
        self.broker = broker
        self.chance = Random(seed)
        self.rows: dict[int, Row] = {}
        self.newest: dict[bytes, int] = {}
        self.handled: set[int] = set()
        self.settled: set[int] = set()
        self.holding: list[Any] = []
        #: What a reader of the log made of it.
        self.table: dict[bytes, int] = {}
        broker.create_topic(
            "t",
            retention_mode="compact",
            segment_bytes=4096,
            compact_min_dirty=self.chance.choice([0, 30, 70]),
            compact_tombstone_ms=self.chance.choice([0, 60_000]),
        )
        self._connect()

    def _connect(self) -> None:
        self.client = self.broker.client()
        self.producer = self.client.producer()
        self.subscription = self.client.subscription("t", "c")
        self.consumer = self.client.consumer()
        self.broker.run(self.consumer.assign("t"))
        self.holding = []

    def publish(self) -> None:
        """Publish some records, and wait until they are safe."""
        for _ in range(self.chance.randint(1, 12)):
            key = b"k%d" % self.chance.randrange(7)
            value = None
            if self.chance.random() < 0.85:
                value = b"%d" % len(self.rows) + b"." * self.chance.randrange(400)
            position = self.broker.run(self.producer.send("t", value, key=key))
            self.rows[position.offset] = key, value
            self.newest[key] = max(position.offset, self.newest.get(key, -1))

    def take(self) -> None:
        """Take some messages, and settle them in one way or another."""
        for _ in range(self.chance.randint(1, 10)):
            message = self.broker.run(self.subscription.next(0.5))
            if message is None:
                break
            assert self.rows[message.offset] == (message.key, message.value)
            self.handled.add(message.offset)
            fate = self.chance.random()
            if fate < 0.6:
                message.finish()
                self.settled.add(message.offset)
            elif fate < 0.8:
                message.requeue(self.chance.choice([0, 5, 40]))
            else:
                self.holding.append(message)
        while self.holding and self.chance.random() < 0.5:
            with suppress(TinyMQError):  # its lease may be over
                self.holding.pop(0).finish()

    def read(self) -> None:
        """Read on where a reader of the log is; it meets no gap, and nothing twice."""
        for _ in range(self.chance.randint(1, 4)):
            batch = self.broker.run(self.consumer.next_batch(1))
            if batch is None:
                break
            for record in batch:
                assert record.key is not None
                assert self.rows[record.offset] == (record.key, record.value)
                assert record.offset > max(self.table.values(), default=-1)
                self.table[record.key] = record.offset
        assert self.consumer.gaps == 0

    def wait(self) -> None:
        """Let time pass: the broker cleans when it likes."""
        self.broker.advance(self.chance.randint(1, 40))

    def clean(self) -> None:
        """Have it cleaned now."""
        self.broker.run(self.client.admin.operate("topic.compact", name="t"))
        self.broker.advance(1)

    def kill(self) -> None:
        """Kill the broker, and start it again."""
        self.broker.kill()
        self.broker.restart()

    def cut(self) -> None:
        """Cut the power, and start it again."""
        self.broker.power_cut(self.chance.randrange(1 << 30))
        self.broker.restart()

    def stop(self) -> None:
        """Stop it in order, and start it again."""
        self.broker.restart()

    def check(self) -> None:
        """Compare what is there with what was published."""
        found = {each.offset: (each.key, each.value) for each in self.broker.records("t")}
        assert {offset: self.rows[offset] for offset in found} == found
        for key, offset in self.newest.items():
            if self.rows[offset][1] is not None:
                assert found[offset] == self.rows[offset]
            elif offset not in found:
                assert not [each for each in found if found[each][0] == key]

    def end(self) -> None:
        """Clean all there is, and let the channel come to its end."""
        self.clean()
        self.clean()
        self.check()
        found = self.broker.records("t")
        assert len(found) == len({each.key for each in found})
        while max(self.table.values(), default=-1) < max(
            (each.offset for each in found), default=-1
        ):
            self.read()
        for key, offset in self.newest.items():
            assert self.table.get(key) == offset or self.rows[offset][1] is None
        self.broker.run(self.subscription.close())
        subscription = self.broker.client().subscription("t", "c")
        while (message := self.broker.run(subscription.next(100))) is not None:
            assert self.rows[message.offset] == (message.key, message.value)
            self.handled.add(message.offset)
            message.finish()
        assert {each.offset for each in found} <= self.handled


@contextmanager
def life(seed: int) -> Iterator[Life]:
    """A life on a broker of its own."""
    with InProcessBroker(seed=seed) as broker:
        yield Life(broker, seed)


def live(seed: int, steps: int) -> None:
    """Live it."""
    with life(seed) as one:
        for _ in range(steps):
            name = one.chance.choices(
                ["publish", "take", "read", "wait", "clean", "kill", "cut", "stop"],
                [8, 6, 4, 3, 3, 1, 1, 1],
            )[0]
            getattr(one, name)()
            if one.chance.random() < 0.3:
                one.check()
        one.end()


@pytest.mark.parametrize("seed", range(100 if LONG else 3))
def test_lives(seed: int) -> None:
    """The newest of each key is kept and comes through the channel, whatever happens meanwhile."""
    live(seed, 60 if LONG else 25)
