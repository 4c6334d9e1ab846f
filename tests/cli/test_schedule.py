"""`tinymq schedule`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.fakes.memory_broker import MemoryBroker

ROW: dict[str, Any] = {
    "name": "nightly",
    "topic": "orders",
    "partition": 1,
    "cron": "0 3 * * *",
    "zone": "Europe/Berlin",
    "catch_up": "skip",
    "paused": False,
    "created_ms": 1_750_000_000_000,
    "next_ms": 1_750_100_400_000,
    "last_ms": None,
    "runs": 0,
    "missed": 3,
    "text": "At 03:00 every day",
    "broker": "b1",
    "error": "",
}
WHOLE: dict[str, Any] = {
    **ROW,
    "key": "k",
    "value": "tea",
    "value_encoding": "string",
    "headers": {"a": "b"},
    "upcoming": [1_750_100_400_000, 1_750_186_800_000],
}
REPLY: dict[str, Any] = {"schedule": WHOLE, "silent": [], "dry_run": False}


def test_add(broker: MemoryBroker, run: Run) -> None:
    """It is told when its messages come, in words, and when the next one does."""
    broker.answers["schedule.create"] = [{**REPLY, "created": True, "changes": []}]
    options = ("--zone", "Europe/Berlin", "--value", "tea", "-k", "k", "-H", "a:b", "--paused")
    result = run("schedule", "add", "nightly", "orders", "0 3 * * *", *options)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == (
        "made nightly: At 03:00 every day (Europe/Berlin); next at 2025-06-16T19:00:00.000Z\n"
    )
    assert broker.calls[0][1] == {
        "name": "nightly",
        "topic": "orders",
        "cron": "0 3 * * *",
        "zone": "Europe/Berlin",
        "key": "k",
        "value": "tea",
        "encoding": "string",
        "catch_up": "skip",
        "dry_run": False,
        "paused": True,
        "headers": {"a": "b"},
    }


def test_change(broker: MemoryBroker, run: Run) -> None:
    """What changes is told line by line."""
    changes = [["cron", "0 2 * * *", "0 3 * * *"]]
    broker.answers["schedule.create"] = [
        {**REPLY, "created": False, "changes": changes},
        {**REPLY, "created": False, "changes": changes, "dry_run": True},
        {**REPLY, "created": False, "changes": []},
    ]
    words = ("schedule", "add", "nightly", "orders", "0 3 * * *")
    assert run(*words).stdout.splitlines()[1] == "  cron: 0 2 * * * -> 0 3 * * *"
    assert run(*words, "--dry-run").stdout.startswith("would change nightly:")
    assert run(*words).stdout.startswith("exists already: nightly:")
    assert "paused" not in broker.calls[0][1]


def test_an_expression_without_quotes(broker: MemoryBroker, run: Run) -> None:
    """Who forgets the quotes is told of them, not of arguments that are too many."""
    result = run("schedule", "add", "nightly", "orders", "0", "3", "README.md", "docs", "docs")

    assert (result.exit_code, broker.calls) == (2, [])
    assert "quote it, such as '0 3 * * *'" in result.stderr
    assert "No such option" in run("schedule", "add", "a", "b", "@daily", "--never").stderr


def test_list(broker: MemoryBroker, run: Run) -> None:
    """A list says what comes next, what was missed, and what is wrong."""
    page: dict[str, Any] = {"more": False, "after": None, "total": 3, "silent": []}
    rows = [ROW, {**ROW, "name": "p", "paused": True, "next_ms": None}, {**ROW, "error": "full"}]
    broker.answers["schedule.list"] = [{**page, "schedules": rows}] * 2
    lines = run("schedule", "ls", "-t", "orders").stdout.splitlines()
    assert " ".join(lines[0].split()) == "NAME TOPIC CRON ZONE NEXT RUNS MISSED STATE"
    assert [line.split()[-1] for line in lines[1:]] == ["ok", "paused", "full"]
    assert run("schedule", "ls", "-o", "name").stdout.splitlines()[0] == "nightly"


def test_info(broker: MemoryBroker, run: Run) -> None:
    """One is shown with its message and its next times."""
    binary = {**WHOLE, "value": "/w==", "value_encoding": "base64", "runs": None}
    broker.answers["schedule.info"] = [REPLY, {**REPLY, "schedule": binary}, REPLY]
    text = run("schedule", "info", "nightly").stdout
    for word in ("At 03:00 every day", "orders/1", "tea", "header a", "2025-06-17T19:00:00.000Z"):
        assert word in text
    assert "base64:/w==" in run("schedule", "info", "nightly").stdout
    assert json.loads(run("schedule", "info", "nightly", "-o", "json").stdout)["value"] == "tea"


@pytest.mark.parametrize(
    ("verb", "changed", "dry", "told"),
    [
        ("pause", True, False, "nightly is paused\n"),
        ("pause", False, False, "nightly was paused already\n"),
        ("resume", True, False, "nightly is going on\n"),
        ("resume", True, True, "nightly would be going on\n"),
    ],
)
def test_pause(
    broker: MemoryBroker, run: Run, verb: str, changed: bool, dry: bool, told: str
) -> None:
    """It rests and goes on."""
    broker.answers[f"schedule.{verb}"] = [{**REPLY, "changed": changed, "dry_run": dry}]
    assert run("schedule", verb, "nightly").stdout == told


def test_run(broker: MemoryBroker, run: Run) -> None:
    """It is told where the message is."""
    sent = {"topic": "orders", "partition": 1, "offset": 7, "time_ms": 5, "dry_run": False}
    planned = {**sent, "offset": None, "time_ms": None, "dry_run": True}
    broker.answers["schedule.run"] = [sent, planned]
    told = run("schedule", "run", "nightly").stdout
    assert told == "sent the message of nightly to orders/1@7\n"
    told = run("schedule", "run", "nightly", "--dry-run").stdout
    assert told == "would send the message of nightly to orders/1\n"


def test_remove(broker: MemoryBroker, run: Run) -> None:
    """Its name is to be typed, unless that is said to be needless."""
    broker.answers["schedule.delete"] = [REPLY]
    assert run("schedule", "rm", "nightly", "--yes").stdout == "removed nightly\n"
    assert broker.calls[0][1] == {"name": "nightly", "dry_run": False}
    broker.answers["schedule.delete"] = [{**REPLY, "dry_run": True}]
    assert run("schedule", "rm", "nightly", "--dry-run").stdout == "would remove nightly\n"
    broker.answers["schedule.delete"] = [REPLY]
    assert run("schedule", "rm", "nightly").exit_code == 2
