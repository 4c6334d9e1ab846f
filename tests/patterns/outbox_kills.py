"""
Kills relays and business processes at every step, and says what was committed.

Run by test_outbox_kills.py: ``python -m tests.patterns.outbox_kills DSN URL TOPIC SEED ROUNDS``.
Every victim is a process of its own that sends itself SIGKILL at its step, or, in the random
rounds, is killed at any moment.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any, NoReturn

from attrs import evolve

from tinymq.patterns.outbox import POSTGRESQL, SQLITE, Outbox, Relay, RelayConfig, Step
from tinymq.sync import Client, ClientConfig

KEYS = ("a", "b", None)


def die() -> NoReturn:
    """End this process as the kernel does when memory is short."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


class Victims:
    """
    A database, a topic, and those who die over them.

    Args:
        dsn: A file of SQLite, or where PostgreSQL is.
        url: Where the broker is.
        topic: Its topic.
    """

    def __init__(self, dsn: str, url: str, topic: str) -> None:
        self.dsn, self.url, self.topic = dsn, url, topic
        self.postgres = dsn.startswith("host=")
        self.ahead = 0.0
        # Leases of the dead are over at once, since everybody's clock jumps after a death.
        dialect = evolve(POSTGRESQL, now="") if self.postgres else SQLITE
        self.outbox = Outbox(dialect, clock=lambda: time.time() + self.ahead)
        self._number = 0

    def connect(self) -> Any:
        """Open a connection."""
        if not self.postgres:
            return sqlite3.connect(self.dsn, timeout=30)
        import psycopg  # noqa: PLC0415 - not needed for SQLite

        return psycopg.connect(self.dsn)

    def prepare(self) -> None:
        """Make the tables."""
        with closing(self.connect()) as connection:
            self.outbox.create(connection)
            connection.execute("CREATE TABLE work (n INTEGER PRIMARY KEY)")
            connection.commit()

    def business(self, numbers: list[int], dies_after: int) -> None:
        """Do work and tell of it, and die after a statement."""
        with closing(self.connect()) as connection:
            done = 0

            def step() -> None:
                nonlocal done
                done += 1
                if done == dies_after:
                    die()

            for number in numbers:
                connection.execute(f"INSERT INTO work VALUES ({number})")
                step()
                key = KEYS[number % len(KEYS)]
                self.outbox.add(connection, self.topic, b"%d" % number, key)
                step()
            connection.commit()
            step()

    def businesses(self, many: list[list[int]]) -> None:
        """Do so several times, and live."""
        for numbers in many:
            self.business(numbers, 0)

    def relay(self, dies_at: Step | None) -> None:
        """Publish, and die at a step."""

        def step(now: Step) -> None:
            if now is dies_at:
                die()

        with Client(self.url, ClientConfig(deadline_s=10)) as client:
            way = Relay(self.outbox, self.connect, client, RelayConfig(batch=3), on_step=step)
            with way as relay:
                while relay.turn():
                    pass

    def numbers(self, count: int) -> list[int]:
        """Give numbers that nobody had."""
        self._number += count
        return [*range(self._number - count, self._number)]

    def every_step(self) -> None:
        """Have one victim for each step of both."""
        for dies_after in range(1, 6):  # four statements and the commit
            numbers = self.numbers(2)
            assert _forked(partial(self.business, numbers, dies_after)) == -signal.SIGKILL
        for step in Step:
            self.business(self.numbers(6), 0)
            self.ahead += 100
            assert _forked(partial(self.relay, step)) == -signal.SIGKILL

    def at_random(self, chance: random.Random) -> None:
        """Let two relays and a business process work, and kill them some time."""
        numbers = [self.numbers(3) for _ in range(5)]
        self.ahead += 100
        children = [
            _fork(partial(self.businesses, numbers)),
            *(_fork(lambda: self.relay(None)) for _ in range(2)),
        ]
        time.sleep(chance.uniform(0, 0.1))
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

    def finish(self) -> None:
        """Let one live, and say what was committed."""
        self.ahead += 100
        assert _forked(lambda: self.relay(None)) == 0
        with closing(self.connect()) as connection:
            rows = connection.execute("SELECT n FROM work ORDER BY n").fetchall()
            left, parked, _ = self.outbox.depth(connection)
        found = {"work": [row[0] for row in rows], "left": left, "parked": parked}
        sys.stdout.write(json.dumps(found))


def _fork(work: Callable[[], object]) -> int:
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    finally:
        os._exit(code)


def _forked(work: Callable[[], object]) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(_fork(work), 0)[1])


def main() -> None:
    """Do everything."""
    dsn, url, topic, seed, rounds = sys.argv[1:]
    chance = random.Random(seed)
    victims = Victims(dsn, url, topic)
    victims.prepare()
    victims.every_step()
    for _ in range(int(rounds)):
        victims.at_random(chance)
    victims.finish()


if __name__ == "__main__":
    main()
