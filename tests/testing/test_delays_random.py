"""Delays, whatever happens: lost answers, kills, power cuts, cancelling, moving."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import LONG
from tinymq.client import Client, Delayed, Producer, ProducerConfig
from tinymq.errors import ConnectionLost, TinyMQError
from tinymq.testing import InProcessBroker

#: How many stories are played, and of how many steps.
SEEDS = range(200 if LONG else 3)
STEPS = 80 if LONG else 20
#: Longest delays, seconds; the longest of them wait outside of memory at first.
DELAYS = (0.001, 0.5, 1, 7, 30, 119, 121, 400, 1000)


class Story:
    """
    One run of a broker with a publisher who changes his mind.

    Attributes:
        since: From when each record may come, on the fake clock.
        told: What `send` said of each record.
        seen: When each record was first seen in the topic.
        gone: Those that were cancelled.
        hurried: Those that were let go before their time.
        unsure: Those of which a change may have been made or not.
    """

    def __init__(self, broker: InProcessBroker, seed: int) -> None:
        self.broker = broker
        self.rng = random.Random(seed)
        broker.create_topic("t", self.rng.choice([1, 3]))
        self.client: Client = broker.client()
        self.producer: Producer = self.client.producer(ProducerConfig(deadline_s=300))
        self.since: dict[bytes, float] = {}
        self.told: dict[bytes, Any] = {}
        self.seen: dict[bytes, float] = {}
        self.gone: set[bytes] = set()
        self.hurried: set[bytes] = set()
        self.unsure: set[bytes] = set()

    @property
    def now(self) -> float:
        """The time."""
        return self.broker.clock.seconds()

    def play(self) -> None:
        """Do a step, and let some time pass."""
        steps: list[Callable[[], None]] = [self.send] * 5 + [
            self.lose,
            self.end,
            *[self.change] * 3,
        ]
        self.rng.choice(steps)()
        self.broker.advance(self.rng.random() * self.rng.choice([0.01, 1, 10]))
        self.look()

    def look(self) -> None:
        """Note what has come."""
        for record in self.broker.records("t"):
            assert record.value is not None
            self.seen.setdefault(record.value, self.now)

    def send(self) -> None:
        """Send some records."""
        for _ in range(self.rng.randint(1, 4)):
            value = b"%d" % len(self.since)
            delay = self.rng.choice(DELAYS) * self.rng.random() + 0.001
            self.since[value] = self.now + delay
            key = self.rng.choice([None, "a", "b"])
            self._note(value, self.producer.send("t", value, key=key, delay=delay))

    def _note(self, value: bytes, sending: Any) -> None:
        def told(result: Any) -> None:
            self.told[value] = getattr(result, "value", result)

        sending.addBoth(told)

    def lose(self) -> None:
        """Lose answers."""
        self.broker.drop_acknowledgements(self.rng.randint(1, 2), cut=self.rng.random() < 0.7)

    def end(self) -> None:
        """End the broker, and start it again after a while."""
        self.rng.choice([self.broker.kill, self.broker.stop, self.broker.power_cut])()
        self.broker.advance(self.rng.random() * 20)
        self.broker.restart()

    def change(self) -> None:
        """Cancel, let go, or move a record that is known to wait, or to have come."""
        known = [value for value, told in self.told.items() if isinstance(told, Delayed)]
        if not known:
            return
        value, delay = self.rng.choice(known), self.rng.random() * 300
        place, admin = self.told[value], self.client.admin
        self.look()
        came, begun = value in self.seen, self.now
        act = self.rng.choice(["cancel", "now", "move"])
        try:
            if act == "move":
                found = self.broker.run(admin.move_delayed(place, delay=delay))
            else:
                call = admin.cancel_delayed if act == "cancel" else admin.delayed_now
                found = self.broker.run(call(place))
        except ConnectionLost:
            self.unsure.add(value)
            return
        if not found["done"]:
            late = came or self.now >= self.since[value]
            assert late or value in self.gone | self.hurried | self.unsure
            return
        assert not came
        assert value not in self.gone
        if act == "cancel":
            self.gone.add(value)
        elif act == "now":
            self.hurried.add(value)
        else:
            self.hurried.discard(value)
            self.since[value] = begun + delay

    def finish(self) -> None:
        """Wait for the last, and check what came of each."""
        self.broker.keep_acknowledgements()
        for _ in range(10):
            self.broker.jump(seconds=140)
            self.look()
        came = [record.value for record in self.broker.records("t")]
        failed = {value for value, told in self.told.items() if isinstance(told, TinyMQError)}
        assert len(came) == len(set(came)), "nothing comes twice"
        assert set(self.told) == set(self.since), "every sender hears something"
        assert set(self.since) - set(came) <= self.gone | self.unsure | failed, "nothing is lost"
        assert not self.gone & set(came), "what was cancelled never comes"
        early = {value for value, at in self.seen.items() if at < self.since[value] - 1e-6}
        assert early <= self.hurried | self.unsure, "nothing comes early"
        assert self.broker.run(self.client.admin.list_delayed("t"))["total"] == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_each_message_comes_once_in_its_time(seed: int) -> None:
    """Whatever is lost, killed or changed: once, never early, and not when it was cancelled."""
    with InProcessBroker(seed=seed) as broker:
        story = Story(broker, seed)
        for _ in range(STEPS):
            story.play()
        story.finish()
