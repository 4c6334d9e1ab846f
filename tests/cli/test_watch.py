"""`tinymq watch`: changes as they happen, through outages."""

from __future__ import annotations

import json
import re

import pytest

from tests.cli.conftest import Run
from tests.fakes.memory_broker import MemoryBroker
from tinymq.errors import ConnectionLost, InvalidRequest, ShuttingDown

MADE = {"what": "topic", "name": "orders", "change": "made"}
GONE = {"what": "broker", "name": "east", "change": "gone"}


@pytest.fixture(autouse=True)
def answers(broker: MemoryBroker) -> None:
    """Let two changes happen, one after the other, with a pause between them."""
    broker.answers["cluster.watch"] = [
        {"revision": 7, "changes": [{"what": "topic", "name": "old", "change": "made"}]},
        {"revision": 8, "changes": [MADE]},
        {"revision": 8, "changes": []},
        {"revision": 9, "changes": [GONE]},
    ]


def test_changes_as_text(broker: MemoryBroker, run: Run) -> None:
    """Each change is a line with its time; what was before the start is not told."""
    result = run("watch")
    assert result.exit_code == 0
    lines = [re.sub(r"^\S+Z  ", "", line) for line in result.stdout.splitlines()]
    assert lines == ["topic    made     orders", "broker   gone     east"]
    revisions = [arguments["revision"] for _, arguments in broker.calls]
    assert revisions == [None, 7, 8, 8, 9]
    assert broker.calls[1][1]["wait_ms"] == 7000


def test_changes_as_json(run: Run) -> None:
    """Each change is an object on a line of its own."""
    first, _ = (json.loads(line) for line in run("watch", "-o", "json").stdout.splitlines())
    assert first | MADE == first
    assert set(first) == {"time_ms", "time", "what", "name", "change"}


def test_some_changes(run: Run) -> None:
    """Changes are chosen by name and kind, and counted."""
    assert run("watch", "--only", "broker").stdout.endswith("gone     east\n")
    assert run("watch", "--filter", "x*").stdout == ""


def test_an_end(broker: MemoryBroker, run: Run) -> None:
    """With --max it stops by itself."""
    assert len(run("watch", "--max", "1").stdout.splitlines()) == 1
    assert len(broker.answers["cluster.watch"]) == 2


def test_an_outage(broker: MemoryBroker, run: Run) -> None:
    """An outage is told once and waited for, and what changed meanwhile is told behind it."""
    broker.idle = [lambda: None] * 3
    broker.answers["cluster.watch"][2:2] = [
        ConnectionLost("it went away"),
        ConnectionLost("it went away"),
        ShuttingDown("it stops"),
    ]
    result = run("watch")
    assert result.stdout.endswith("gone     east\n")
    assert result.stderr == "connection lost, trying again (it went away)\nconnected again\n"
    assert broker.pauses == [0.5, 1.0, 2.0]


def test_a_broker_that_knows_no_watching(broker: MemoryBroker, run: Run) -> None:
    """What does not pass by waiting is the end."""
    broker.answers["cluster.watch"][1] = InvalidRequest("there is no operation")
    result = run("watch")
    assert (result.exit_code, result.stderr) == (1, "error: there is no operation\n")


def test_nobody_at_the_beginning(broker: MemoryBroker, run: Run) -> None:
    """When nobody answers at first, that is an error at once."""
    broker.down = True
    assert run("watch").exit_code == 3
    assert broker.pauses == []
