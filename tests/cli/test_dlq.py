"""`tinymq dlq`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.fakes.memory_broker import BEGIN_MS, MemoryBroker
from tinymq.cli import dlq as verbs

DEAD = "orders.work.dead"


def queue(**facts: Any) -> dict[str, Any]:
    """A dead-letter topic in a list."""
    return {
        "target": DEAD,
        "topics": ["orders"],
        "channel": "work",
        "messages": 3,
        "oldest_ms": BEGIN_MS,
        "newest_ms": BEGIN_MS + 1000,
        "per_s": 0.5,
        "kept": 0,
        "kept_why": "",
        "parking": False,
        "loop": "",
        **facts,
    }


def letter(offset: int, partition: int = 0, **facts: Any) -> dict[str, Any]:
    """A dead letter."""
    return {
        "partition": partition,
        "offset": offset,
        "topic": "orders",
        "origin_partition": 0,
        "origin_offset": 7,
        "channel": "work",
        "reason": "failed",
        "text": "boom",
        "attempts": 10,
        "failures": 10,
        "client": "w1",
        "first_ms": BEGIN_MS,
        "last_ms": BEGIN_MS,
        "hops": 1,
        "redriven": 0,
        "loop": False,
        "key": None,
        "key_encoding": "string",
        "size": 5,
        "preview": "hello",
        "preview_encoding": "string",
        **facts,
    }


def step(done: int, **facts: Any) -> dict[str, Any]:
    """What a step tells."""
    return {
        "done": done,
        "skipped": 0,
        "failed": [],
        "loops": 0,
        "more": False,
        "after": None,
        "silent": [],
        "dry_run": False,
        **facts,
    }


def page(*rows: dict[str, Any], **facts: Any) -> dict[str, Any]:
    """What a look at messages tells."""
    groups = [
        {"reason": "failed", "topic": "orders", "channel": "work", "text": "boom", "count": 2}
    ]
    told = {"groups": groups, "messages": list(rows), "scanned": len(rows), "silent": []}
    return {**told, "more": False, "after": None, **facts}


def test_list(broker: MemoryBroker, run: Run) -> None:
    """Each dead-letter topic with what is in it, and what is the matter; page after page."""
    first = {"queues": [queue()], "more": True, "after": DEAD, "total": 2, "silent": []}
    kept = queue(target="x", topics=[], channel=None, kept=2, kept_why="b2 is away", per_s=None)
    second = {"queues": [kept], "more": False, "after": None, "total": 2, "silent": ["b2"]}
    broker.answers["dlq.list"] = [first, second, first, second, first]
    result = run("dlq", "ls")
    heading, one, two = (line.split() for line in result.stdout.splitlines())

    assert heading == [
        *("TARGET", "FROM", "CHANNEL", "MESSAGES", "OLDEST", "NEW", "KEPT", "STATE"),
    ]
    assert one[:4] == [DEAD, "orders", "work", "3"]
    assert one[5:] == ["0.5/s", "0", "ok"]
    assert " ".join(two[6:]) == "2 KEPT: b2 is away"
    assert "b2 does not answer" in result.stderr
    assert run("dlq", "ls", "-o", "name").stdout.split() == [DEAD, "x"]
    assert json.loads(run("dlq", "ls", "--limit", "1", "-o", "json").stdout)["total"] == 2


def test_list_of_nothing(broker: MemoryBroker, run: Run) -> None:
    """That there are none is said in words."""
    broker.answers["dlq.list"] = [
        {"queues": [], "more": False, "after": None, "total": 0, "silent": []}
    ]
    assert run("dlq", "ls").stdout == "no dead letters: no channel has given a message up\n"


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        ({"loop": "a -> b -> a"}, "LOOP: a -> b -> a"),
        ({"parking": True}, "parking"),
    ],
)
def test_states(broker: MemoryBroker, run: Run, facts: dict[str, Any], state: str) -> None:
    """A parking place and a circle are named."""
    broker.answers["dlq.list"] = [
        {"queues": [queue(**facts)], "more": False, "after": None, "total": 1, "silent": []}
    ]
    assert run("dlq", "ls").stdout.splitlines()[1].endswith(state)


def test_show(broker: MemoryBroker, run: Run) -> None:
    """Groups first, then one by one, with a warning of loops; filters are passed on."""
    rows = letter(1), letter(2, loop=True, redriven=1)
    broker.answers["dlq.messages"] = [page(*rows, more=True, after="0:2"), page(*rows), page()]
    result = run("dlq", "show", DEAD, "--channel", "work", "--since", "2026-01-01", "--text", "b")
    lines = result.stdout.splitlines()

    assert lines[1].split() == ["2", "failed", "orders", "work", "boom"]
    assert lines[4].split()[:4] == ["0:1", "orders/0@7", "work", "failed"]
    assert "1 message of these came back" in result.stderr
    assert "--after 0:2" in result.stderr
    assert broker.calls[0][1] == {
        "target": DEAD,
        "channel": "work",
        "text": "b",
        "since_ms": 1_767_225_600_000,
        "after": "",
        "limit": 100,
    }
    assert run("dlq", "show", DEAD, "-o", "name").stdout.split() == ["0:1", "0:2"]
    assert "no dead letters of this kind" in run("dlq", "show", DEAD).stdout


def test_redrive(broker: MemoryBroker, run: Run) -> None:
    """Step by step, from where the one before ended, until there is no more."""
    broker.answers["dlq.redrive"] = [
        step(100, more=True, after="0:99"),
        step(20, loops=1),
    ]
    result = run("dlq", "redrive", DEAD, "--yes", "--reason", "failed", "--until", "2026-01-01")

    assert result.stdout == f"120 dead letters of {DEAD} were sent back\n"
    assert "1 message came back or went in circles before" in result.stderr
    first, second = (arguments for _, arguments in broker.calls)
    assert (first["reason"], first["until_ms"], first["to"]) == (
        *("failed", 1_767_225_600_000, "origin"),
    )
    assert "after" not in first
    assert (second["after"], second["limit"], second["dry_run"]) == ("0:99", 100, False)


def test_a_rate_is_kept(broker: MemoryBroker, run: Run) -> None:
    """Steps are as small as the rate, and wait for each other."""
    broker.answers["dlq.redrive"] = [step(10, more=True, after="0:9"), step(10)]
    broker.idle.append(lambda: None)
    result = run("dlq", "redrive", DEAD, "--yes", "--rate", "10/s")

    assert result.exit_code == 0
    assert [arguments["limit"] for _, arguments in broker.calls] == [10, 10]
    assert broker.pauses == [pytest.approx(1.0, abs=0.2)]


@pytest.mark.parametrize("text", ["0", "fast", "3/x", "-1"])
def test_no_rate(run: Run, text: str) -> None:
    """What is no rate is a wrong command line."""
    assert run("dlq", "redrive", DEAD, "--yes", "--rate", text).exit_code == 2


def test_stopped(broker: MemoryBroker, run: Run) -> None:
    """Ctrl-C stops between steps, says where it stands, and how to go on."""
    broker.answers["dlq.redrive"] = [step(100, more=True, after="0:99")]
    result = run("dlq", "redrive", DEAD, "--yes")

    assert result.exit_code == 130
    assert "stopped after 1 step: 100 dead letters were sent back" in result.stderr
    assert "nothing is lost" in result.stderr
    assert "--after 0:99" in result.stderr


def test_what_stays_is_told(broker: MemoryBroker, run: Run) -> None:
    """With the reason, and an exit status that says that not all is done."""
    failed = [{"partition": 0, "offset": at, "why": "it is away"} for at in (3, 4)]
    broker.answers["dlq.redrive"] = [step(1, failed=failed, silent=["b2"])] * 2
    result = run("dlq", "redrive", DEAD, "--yes")

    assert result.exit_code == 1
    assert "2 dead letters stay: it is away" in result.stderr
    assert "b2 does not answer" in result.stderr
    told = json.loads(run("dlq", "redrive", DEAD, "--yes", "-o", "json").stdout)
    assert (told["done"], told["failed"]) == (1, failed)


def test_a_dry_run_counts_all(broker: MemoryBroker, run: Run) -> None:
    """Every page is looked at, and nothing else."""
    broker.answers["dlq.redrive"] = [
        step(100, more=True, after="0:99", dry_run=True),
        step(5, loops=2, dry_run=True),
    ]
    result = run("dlq", "redrive", DEAD, "--dry-run", "--offset", "0:1", "--offset", "1:2")

    assert result.stdout == (
        f"105 dead letters of {DEAD} would be sent back; 2 of them came back or went in "
        "circles before\n"
    )
    assert [arguments["dry_run"] for _, arguments in broker.calls] == [True, True]
    assert broker.calls[0][1]["offsets"] == ["0:1", "1:2"]


def test_nobody_is_asked_without_a_terminal(broker: MemoryBroker, run: Run) -> None:
    """Without --yes there must be somebody who can say it."""
    broker.answers["dlq.drop"] = [step(3, dry_run=True)]
    result = run("dlq", "drop", DEAD)

    assert result.exit_code == 2
    assert f"3 dead letters of {DEAD} will be dropped: give --yes" in result.stderr
    assert [arguments["dry_run"] for _, arguments in broker.calls] == [True]


def test_drop(broker: MemoryBroker, run: Run) -> None:
    """At most so many."""
    broker.answers["dlq.drop"] = [step(2, more=True, after="0:1")]
    result = run("dlq", "drop", DEAD, "--yes", "--max", "2")

    assert result.stdout == f"2 dead letters of {DEAD} were dropped\n"
    assert [arguments["limit"] for _, arguments in broker.calls] == [2]


def test_export(broker: MemoryBroker, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole values and headers, byte by byte, of the letters that are still there."""
    monkeypatch.setattr(verbs, "PAGE", 2)
    broker.make(DEAD, 2)
    for number in range(5):
        headers = [("tinymq-reason", b"failed"), ("raw", b"\xff")]
        broker.append(DEAD, b"%d" % number, None, number % 2, headers)
    broker.append(DEAD, b"\xfe" * 3)
    broker.answers["dlq.messages"] = [
        page(letter(0), letter(2), more=True, after="0:2"),
        page(letter(3), letter(0, 1)),
    ]
    lines = [json.loads(line) for line in run("dlq", "export", DEAD).stdout.splitlines()]

    assert [(line["partition"], line["offset"]) for line in lines] == [
        *((0, 0), (0, 2), (0, 3), (1, 0)),
    ]
    assert [line["value"] for line in lines] == ["0", "4", "/v7+", "1"]
    assert lines[2]["value_encoding"] == "base64"
    assert lines[0]["headers"][1] == {"name": "raw", "value": "/w==", "encoding": "base64"}
    assert [arguments["limit"] for _, arguments in broker.calls] == [2, 2]
    assert [name for name, _ in broker.calls] == ["dlq.messages"] * 2
