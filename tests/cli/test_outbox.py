"""`tinymq outbox`: a relay as a command, and what was put aside."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import tinymq
from tinymq.cli.app import root
from tinymq.cli.session import Session
from tinymq.client.core.config import ProducerConfig
from tinymq.client.core.results import Sent
from tinymq.errors import InvalidRequest
from tinymq.patterns.outbox import SQLITE, Outbox
from tinymq.verify.process import BrokerProcess

ROOT = Path(tinymq.__file__).parent.parent


class Shop:
    """A database with an outbox, and a broker that refuses some of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.outbox = Outbox(SQLITE)
        self.published: list[bytes] = []
        self.admin = self
        with closing(sqlite3.connect(path)) as connection:
            self.outbox.create(connection)
            connection.commit()

    def add(self, *values: bytes) -> list[str]:
        """Write messages."""
        with closing(sqlite3.connect(self.path)) as connection, connection:
            return [self.outbox.add(connection, "t", value) for value in values]

    def producer(self, config: ProducerConfig) -> Shop:
        """Be the producer of the client, too."""
        return self

    def send_batch(self, topic: str, values: list[bytes], *rest: Any, ids: Any = None) -> Sent:
        """Take values, but for bad ones."""
        if b"bad" in values:
            raise InvalidRequest("it is bad")
        self.published += values
        return Sent(len(values), [])

    def topic(self, name: str) -> dict[str, Any]:
        """Describe a topic."""
        return {"topic": {"config": {"dedup.ms": 1000}}}

    def close(self) -> None:
        """Nothing is left to be done."""

    def run(self, *arguments: str) -> Result:
        """Run the command."""
        client: Any = self
        session = Session(lambda url, timeout: client)
        return CliRunner().invoke(root, ["outbox", *arguments], obj=session, prog_name="tinymq")


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """Return a shop."""
    return Shop(tmp_path / "shop.db")


def test_run(shop: Shop) -> None:
    """What waits is published, and the rest is told."""
    shop.add(b"1", b"bad", b"2")
    result = shop.run("run", str(shop.path), "--once", "--park-after", "1")

    assert (result.exit_code, sorted(shop.published)) == (0, [b"1", b"2"])
    assert "published 2 messages, put 1 aside" in result.stderr


def test_what_was_put_aside(shop: Shop) -> None:
    """It is listed with its error, and can be tried anew or deleted."""
    bad, worse = shop.add(b"bad", b"bad")
    shop.add(b"1")
    shop.run("run", str(shop.path), "--once", "--park-after", "1")
    shop.add(b"2")
    result = shop.run("ls", f"sqlite:///{shop.path}")
    assert "InvalidRequest: it is bad" in result.stdout
    assert "1 messages wait, the oldest for 0 s; 2 were put aside" in result.stderr
    told = json.loads(shop.run("ls", str(shop.path), "-o", "json").stdout)
    assert [row["id"] for row in told["messages"]] == [bad, worse]

    assert shop.run("release", str(shop.path), bad).exit_code == 0
    assert shop.run("discard", str(shop.path), worse).exit_code == 0
    again = shop.run("discard", str(shop.path), bad)
    assert (again.exit_code, "not put aside" in again.stderr) == (1, True)


def test_no_outbox(shop: Shop, tmp_path: Path) -> None:
    """Where there is no file, or no table in it, the first line says what to do."""
    result = shop.run("ls", str(tmp_path / "none.db"))
    assert (result.exit_code, "there is no file" in result.stderr) == (1, True)
    result = shop.run("run", str(shop.path), "--table", "other")
    assert (result.exit_code, "no such table: other" in result.stderr) == (1, True)
    assert "tinymq outbox tables" in result.stderr


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_tables(shop: Shop, kind: str) -> None:
    """The statements can be piped into the database's own shell."""
    result = shop.run("tables", kind, "--table", "mine")
    assert result.exit_code == 0
    assert result.stdout.startswith("CREATE TABLE IF NOT EXISTS mine (seq ")
    if kind == "sqlite":
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.executescript(result.stdout)
            assert Outbox(SQLITE, table="mine").depth(connection).waiting == 0


@pytest.mark.process
def test_until_a_signal(shop: Shop, tmp_path: Path) -> None:
    """As a process it publishes what comes, and ends cleanly when it is asked to."""
    with BrokerProcess(tmp_path / "data") as broker:
        command = [sys.executable, "-W", "error", "-m", "tinymq", "outbox", "run", str(shop.path)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TINYMQ_URL": broker.url}
        relay = subprocess.Popen(
            [*command, "--poll", "50ms"], env=environment, stderr=subprocess.PIPE, text=True
        )
        shop.add(b"1", b"2")
        end = time.monotonic() + 30
        with closing(sqlite3.connect(shop.path)) as connection:
            while shop.outbox.depth(connection).waiting and time.monotonic() < end:
                time.sleep(0.02)
        relay.send_signal(signal.SIGTERM)
        told = relay.communicate(timeout=30)[1]

    assert relay.returncode == 0
    assert "published 2 messages" in told
    assert "has no dedup window" in told
