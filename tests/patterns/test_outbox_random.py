"""Relays that overlap, fail and lose their leases at random: everything once, and in order."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import LONG
from tests.patterns.conftest import sqlite_base
from tests.patterns.outboxes import Stage
from tinymq.errors import InvalidRequest, StorageFull, TinyMQError, UnreachableError
from tinymq.patterns.outbox import Relay, RelayConfig, Row, Step

KEYS = ["a", "b", "c", None]


class Failure(Exception):
    """A relay dies, as far as that can be had in memory."""


class Town:
    """
    Two relays, at each of whose steps anything may happen.

    Args:
        path: For the database.
        chance: Decides what.
    """

    def __init__(self, path: Path, chance: random.Random) -> None:
        self.chance = chance
        self.stage = Stage(sqlite_base(path))
        self.expected: list[tuple[str | None, bytes]] = []
        self.depth = 0
        self.wild = True
        self.stage.topics.refuse = self.refuse
        config = RelayConfig(batch=3, park_after=10_000, retry_s=1, most_retry_s=5)
        self.relays = [self.stage.relay(config, on_step=self.step) for _ in range(2)]

    def refuse(self, row: Row) -> TinyMQError | None:
        """Refuse some rows, for some time."""
        if not self.wild or self.chance.random() < 0.8:
            return None
        return self.chance.choice([StorageFull(), InvalidRequest(), UnreachableError()])

    def step(self, step: Step) -> None:
        """Let something happen, or nothing; not while the database is locked."""
        if not self.wild or step in {Step.TAKEN, Step.NOTED}:
            if self.wild and self.chance.random() < 0.05:
                raise Failure
            return
        what = self.chance.choices(
            ["nothing", "other", "add", "time", "lease", "death"], [50, 20, 10, 10, 5, 5]
        )[0]
        if what == "other" and self.depth < 2:
            self.turn(self.chance.choice(self.relays))
        elif what == "add":
            self.add()
        elif what == "time":
            self.stage.time += self.chance.random() * 4
        elif what == "lease":
            self.stage.time += 20
        elif what == "death":
            raise Failure

    def turn(self, relay: Relay) -> None:
        """Let a relay go through the lanes, as far as it gets."""
        self.depth += 1
        try:
            relay.turn()
        except (Failure, UnreachableError):
            pass
        finally:
            self.depth -= 1

    def add(self) -> None:
        """Write a message."""
        key, value = self.chance.choice(KEYS), b"%d" % len(self.expected)
        self.stage.add(value, key=key)
        self.expected.append((key, value))

    def calm(self) -> None:
        """Let nothing happen any more until all is published."""
        self.wild = False
        for _ in range(50):
            self.stage.time += 20
            self.turn(self.relays[0])
            if not self.stage.left:
                return


@settings(max_examples=2000 if LONG else 8)
@given(seed=st.integers(0, 2**32 - 1))
def test_random_lives(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whatever happens at whichever step, each message is stored once, those of a key in order,
    and the outbox is empty in the end.
    """
    town = Town(tmp_path_factory.mktemp("town") / "base.db", random.Random(seed))
    for _ in range(8):
        town.add()
    for _ in range(12):
        town.turn(town.chance.choice(town.relays))
    town.calm()
    stored = [
        (None if row.key is None else row.key.decode(), row.value)
        for row in town.stage.topics.stored
    ]
    town.stage.close()
    town.stage.base.close()

    assert Counter(stored) == Counter(town.expected)
    assert town.stage.left == 0
    for key in KEYS[:3]:
        assert [each for each in stored if each[0] == key] == [
            each for each in town.expected if each[0] == key
        ]
