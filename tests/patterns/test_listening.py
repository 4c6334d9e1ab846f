"""A relay wakes when PostgreSQL tells of a commit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.fakes.postgres import needs_postgres
from tests.patterns.conftest import Base
from tests.patterns.outboxes import Stage
from tinymq.errors import UsageError
from tinymq.patterns.outbox import Listener, RelayConfig

pytestmark = [pytest.mark.process, needs_postgres()]


def until(true: Callable[[], object]) -> None:
    """Wait for something that a thread does."""
    event = threading.Event()
    for _ in range(4000):
        if true():
            return
        event.wait(0.005)
    raise AssertionError("it never happened")


def test_a_commit_wakes_it(pg: Base) -> None:
    """A message is published at once although the relay would look in an hour only, also after
    the connection that listens was lost.
    """
    stage = Stage(pg, notify=True)
    relay = stage.relay(RelayConfig(poll_s=3600)).start()
    connections: list[Any] = []

    def connect() -> Any:
        connections.append(pg.connect())
        return connections[-1]

    with Listener(relay, connect, glance_s=0.05, retry_s=0.01) as listener:
        assert listener.listening.wait(20)
        stage.add(b"1")
        until(lambda: stage.topics.values == [b"1"])
        with stage.work() as connection:
            lost = connections[-1].info.backend_pid
            connection.execute(f"SELECT pg_terminate_backend({lost})")
        until(lambda: len(connections) > 1 and listener.listening.is_set())
        stage.add(b"2")
        until(lambda: stage.topics.values == [b"1", b"2"])
    stage.close()


def test_nobody_tells(pg: Base) -> None:
    """Who listens to an outbox that tells nobody hears what to do."""
    with pytest.raises(UsageError, match="notify=True"):
        Listener(Stage(pg).relay(), pg.connect)
