"""`tinymq group`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.test_lag import group
from tests.fakes.memory_broker import MemoryBroker
from tinymq.cli.values import now_ms
from tinymq.errors import GroupBusy, UnknownGroup

NOW = 1_750_000_000_000
ROW = group(
    "g",
    state="stable",
    members=2,
    topics=["a", "b", "c", "d"],
    lag=1500,
    lag_s=75.0,
    trend=-3.0,
    clear_s=500.0,
    strategy="range",
    generation=7,
    created_ms=NOW,
    stuck="it is stuck",
)
INFO: dict[str, Any] = {
    "group": ROW,
    "members": [
        {
            "id": "m1",
            "instance": "one",
            "client": "app",
            "address": "192.0.2.1:5",
            "since_ms": NOW,
            "heard_ms": NOW,
            "topics": ["a"],
            "partitions": 1,
            "draining": 0,
            "state": "stable",
        }
    ],
    "partitions": [
        {
            "topic": "a",
            "partition": 0,
            "committed": 4,
            "epoch": 0,
            "note": "",
            "committed_ms": NOW,
            "start": 0,
            "end": 10,
            "lag": 6,
            "lag_s": 2.0,
            "member": "m1",
            "generation": 7,
            "draining": False,
            "error": "",
        }
    ],
    "rebalances": [{"at_ms": NOW, "took_ms": 1500, "moved": 3, "why": "m1 joined"}],
    "undo_until_ms": NOW,
    "silent": [],
}
PLAN: dict[str, Any] = {
    "plan": [
        {
            "topic": "a",
            "partition": 0,
            "before": 4,
            "after": 9,
            "skipped": 5,
            "replayed": 0,
        },
        {
            "topic": "a",
            "partition": 1,
            "before": None,
            "after": 2,
            "skipped": 0,
            "replayed": 0,
        },
    ],
    "done": False,
    "undo_until_ms": NOW,
    "dry_run": True,
    "silent": [],
}


def test_ls(broker: MemoryBroker, run: Run) -> None:
    """Groups are listed with their members and how far they are behind."""
    broker.groups = [ROW, group("idle")]
    lines = [line.split() for line in run("group", "ls").stdout.splitlines()]
    assert lines[0] == [
        *("NAME", "STATE", "MEMBERS", "TOPICS", "PARTITIONS", "LAG", "AGE", "TREND", "ETA"),
    ]
    assert lines[1] == [
        *("g", "stable", "2", "a,b,c", "+1", "1", "1500", "1m15s", "-3.0/s", "8m20s"),
    ]
    assert "it is stuck" in run("group", "ls", "-o", "wide").stdout
    assert run("group", "ls", "-o", "name").stdout == "g\nidle\n"


def test_info(broker: MemoryBroker, run: Run) -> None:
    """One is shown with its members, its partitions and its rebalances."""
    broker.answers["group.info"] = [INFO] * 3
    told = run("group", "info", "g").stdout
    for text in (
        "1500, oldest 1m15s, -3.0/s, clear in 8m20s",
        "m1 (one): app at 192.0.2.1:5, 1 partition, stable",
        "2025-06-15T15:06:40.000Z: m1 joined; 3 partitions moved, took 2s",
        "it is stuck",
    ):
        assert text in told
    assert told.splitlines()[-1].split() == ["a", "0", "4", "10", "6", "2s", "m1", "-"]
    assert json.loads(run("group", "info", "g", "-o", "json").stdout)["group"]["lag"] == 1500
    (line,) = run("group", "info", "g", "-o", "ndjson").stdout.splitlines()
    assert json.loads(line)["committed"] == 4


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (("--to", "latest"), {"to": "latest"}),
        (("--to", "-5", "-t", "a", "-p", "1"), {"to": "-5", "topic": "a", "partition": 1}),
        (("--to", "7"), {"to": 7}),
        (("--to", "@2025-06-15T15:06:40Z"), {"to": "@1750000000000"}),
        (("--from-group", "h"), {"from_group": "h"}),
        (
            ("--position", "a:0:5", "--position", "b:1:6", "--force"),
            {
                "positions": [
                    {"topic": "a", "partition": 0, "offset": 5},
                    {"topic": "b", "partition": 1, "offset": 6},
                ],
                "force": True,
            },
        ),
    ],
)
def test_seek(
    broker: MemoryBroker, run: Run, words: tuple[str, ...], asked: dict[str, Any]
) -> None:
    """The plan is shown, and nothing is done until that is said."""
    broker.answers["group.seek"] = [PLAN, {**PLAN, "done": True, "dry_run": False}]
    planned = run("group", "seek", "g", *words).stdout.splitlines()
    assert planned[1].split() == ["a", "0", "4", "9", "5", "0"]
    assert planned[2].split() == ["a", "1", "-", "2", "0", "0"]
    unless = "" if "--force" in words else ", if no member reads"
    assert planned[-1] == (
        "would move g in 2 partitions: 5 messages skipped, 0 to come again; "
        f"--execute does it{unless}"
    )
    done = run("group", "seek", "g", *words, "--execute").stdout.splitlines()
    assert done[-1].startswith("moved g in 2 partitions: 5 messages skipped")
    assert done[-1].endswith("; `tinymq group undo g --execute` until 2025-06-15T15:06:40.000Z")
    given = {"name": "g", "force": False, **asked}
    assert broker.calls == [
        ("group.seek", {**given, "dry_run": True}),
        ("group.seek", {**given, "dry_run": False}),
    ]


@pytest.mark.parametrize(
    "words",
    [
        ("--to", "soon"),
        ("--to", "@soon"),
        ("--position", "a:0"),
        ("--partition", "x"),
        (),
        ("--to", "3", "--from-group", "h"),
        ("--to", "3", "--partition", "0"),
    ],
)
def test_nowhere(broker: MemoryBroker, run: Run, words: tuple[str, ...]) -> None:
    """What is no place is refused before anybody is asked."""
    assert run("group", "seek", "g", *words).exit_code == 2
    assert broker.calls == []


def test_members_refuse(broker: MemoryBroker, run: Run) -> None:
    """What keeps it from being done is told."""
    broker.answers["group.seek"] = [GroupBusy("group g has 2 members reading")]
    result = run("group", "seek", "g", "--to", "0", "--execute")
    assert result.exit_code == 1
    assert "2 members reading" in result.stderr


@pytest.mark.parametrize(
    ("verb", "act", "told"),
    [
        ("undo", "undo_seek", "moved g in 2 partitions: 5 messages skipped, 0 to come again"),
        ("reset", "reset", "forgot the place of g in 2 partitions"),
    ],
)
def test_undo_and_reset(broker: MemoryBroker, run: Run, verb: str, act: str, told: str) -> None:
    """They are planned like a seek; where there is nothing to move that is told."""
    done = {**PLAN, "done": True, "dry_run": False, "undo_until_ms": None}
    broker.answers[f"group.{act}"] = [PLAN, done, {**PLAN, "plan": []}]
    planned = run("group", verb, "g").stdout.splitlines()[-1]
    assert planned.endswith("; --execute does it, if no member reads")
    assert run("group", verb, "g", "--execute").stdout.splitlines()[-1] == told
    assert "nothing of g is to be moved" in run("group", verb, "g").stdout
    assert [arguments["dry_run"] for _, arguments in broker.calls] == [True, False, True]


def test_time_ago(broker: MemoryBroker, run: Run) -> None:
    """A time may be so long ago, as everywhere on the command line."""
    broker.answers["group.seek"] = [PLAN]
    assert run("group", "seek", "g", "--to", "@10m").exit_code == 0
    ((_, arguments),) = broker.calls
    ago_ms = now_ms() - int(arguments["to"].removeprefix("@"))
    assert 10 * 60_000 <= ago_ms < 20 * 60_000


def test_unknown(broker: MemoryBroker, run: Run) -> None:
    """Who misspells a group is told where to look."""
    broker.answers["group.info"] = [UnknownGroup("there is no group 'h'")]
    assert "`tinymq group ls`" in run("group", "info", "h").stderr


def test_member_without_client_name(broker: MemoryBroker, run: Run) -> None:
    """A program that has given itself no name leaves no hole."""
    member = {**INFO["members"][0], "client": ""}
    broker.answers["group.info"] = [{**INFO, "members": [member]}]
    assert "m1 (one): 192.0.2.1:5, 1 partition" in run("group", "info", "g").stdout


def test_rm(broker: MemoryBroker, run: Run) -> None:
    """Nobody loses the places of a group by a slip."""
    broker.answers["group.delete"] = [
        {"group": ROW, "dry_run": True},
        {"group": ROW, "dry_run": False},
        {"group": ROW, "dry_run": True},
    ]
    assert run("group", "rm", "g").exit_code == 2
    assert run("group", "rm", "g", "-y").stdout == "removed g\n"
    assert run("group", "rm", "g", "--dry-run").stdout == "would remove g\n"
    assert [arguments["dry_run"] for _, arguments in broker.calls] == [True, False, True]
