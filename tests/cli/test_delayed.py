"""`tinymq delayed`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.fakes.memory_broker import BEGIN_MS, MemoryBroker
from tinymq.cli.values import parse_ahead
from tinymq.errors import UnknownDelayed

DUE = 4_000_000_000_000


def row(number: int | None, **facts: Any) -> dict[str, Any]:
    """A message in a list."""
    return {
        "topic": "orders",
        "partition": 0,
        "id": number,
        "channel": None,
        "offset": None,
        "due_ms": DUE,
        "why": "publish",
        "attempt": 0,
        "schedule": None,
        "key": "k1",
        "encoding": "string",
        "size": 5,
        "taken_ms": BEGIN_MS,
        **facts,
    }


def page(*rows: dict[str, Any], **facts: Any) -> dict[str, Any]:
    """One page of a list."""
    told = {"messages": list(rows), "total": len(rows), "more": False, "after": None, "silent": []}
    return {**told, **facts}


def step(done: int, **facts: Any) -> dict[str, Any]:
    """What a step tells."""
    told = {"done": done, "failed": [], "more": False, "after": None, "silent": []}
    return {**told, "dry_run": False, **facts}


def acted(*done: int, missing: tuple[int, ...] = (), **facts: Any) -> dict[str, Any]:
    """What an act on single messages tells."""
    return {"done": list(done), "missing": list(missing), "dry_run": False, **facts}


def calls(broker: MemoryBroker, name: str) -> list[dict[str, Any]]:
    """What an operation was asked."""
    return [arguments for called, arguments in broker.calls if called == name]


def test_list(broker: MemoryBroker, run: Run) -> None:
    """Messages in order of their time, page after page, with names that other verbs take."""
    first = page(row(17), more=True, after="x")
    retry = row(None, offset=9, channel="mail", why="retry", attempt=2, key="AAE=")
    second = page(row(3, schedule="nightly", why="schedule"), {**retry, "encoding": "base64"})
    broker.answers["delayed.list"] = [first, {**second, "silent": ["b2"]}] * 2
    result = run("delayed", "ls", "-t", "orders", "--since", "2027-01-01T00:00Z", "--key", "k1")
    heading, *lines = (line.split() for line in result.stdout.splitlines())

    assert heading == ["MESSAGE", "DUE", "DUE-IN", "WHY", "KEY", "SIZE"]
    assert lines[1][3:5] == ["schedule", "nightly"]
    assert lines[2][3:5] == ["retry", "2"]
    assert [line[0] for line in lines] == ["orders/0~17", "orders/0~3", "orders/mail/0@9"]
    assert lines[0][1] == "2096-10-02T07:06:40.000Z"
    assert "b2 does not answer" in result.stderr
    assert run("delayed", "ls", "-o", "name").stdout.split()[1] == "orders/0~3"
    asked = calls(broker, "delayed.list")
    assert (asked[0]["topic"], asked[0]["key"]) == ("orders", "k1")
    assert asked[0]["since_ms"] == 1_798_761_600_000
    assert asked[1]["after"] == "x"


def test_list_of_nothing(broker: MemoryBroker, run: Run) -> None:
    """That nothing waits is said in words, and as an empty list to programs."""
    broker.answers["delayed.list"] = [page(), page()]

    assert run("delayed", "ls").stdout == "nothing waits until it is due\n"
    assert json.loads(run("delayed", "ls", "-o", "json").stdout)["messages"] == []


def test_show(broker: MemoryBroker, run: Run) -> None:
    """One message with its headers and its value."""
    headers = [{"name": "a", "value": "1", "value_encoding": "string"}]
    message = row(17, headers=headers, value="hello", value_encoding="string")
    told = {"message": message, "state": "waiting"}
    broker.answers["delayed.get"] = [told, told, UnknownDelayed("orders/0 has no such message")]
    shown = run("delayed", "show", "orders/0~17").stdout

    assert "2096-10-02T07:06:40.000Z, in " in shown
    assert all(word in shown for word in ("k1", "header a", "hello"))
    whole = json.loads(run("delayed", "show", "orders/0~17", "-o", "json").stdout)
    assert whole["message"]["value"] == "hello"
    gone = run("delayed", "show", "orders/0~17")
    assert gone.exit_code != 0
    assert "no such message" in gone.stderr
    assert calls(broker, "delayed.get")[0] == {"topic": "orders", "partition": 0, "id": 17}


def test_named_messages(broker: MemoryBroker, run: Run) -> None:
    """Named messages are done with partition by partition; those that are gone are told."""
    broker.answers["delayed.cancel"] = [acted(17, 18), acted(4, missing=(5,))]
    result = run(
        "delayed", "cancel", "orders/0~17", "orders/1~4", "orders/0~18", "orders/1~5", "--yes"
    )

    assert result.stdout == "3 messages were cancelled\n"
    assert "does not wait any more: orders/1~5" in result.stderr
    assert result.exit_code != 0
    assert [
        (asked["topic"], asked["partition"], asked["ids"], asked["dry_run"])
        for asked in calls(broker, "delayed.cancel")
    ] == [("orders", 0, [17, 18], False), ("orders", 1, [4, 5], False)]


def test_named_messages_come_now_or_later(broker: MemoryBroker, run: Run) -> None:
    """Nothing is lost by that, so nobody is asked."""
    broker.answers["delayed.now"] = [acted(17)]
    broker.answers["delayed.move"] = [acted(17, due_ms=DUE), acted(17, due_ms=DUE)]

    assert run("delayed", "now", "orders/0~17").stdout == "1 message was released\n"
    assert run("delayed", "move", "orders/0~17", "--delay", "5m").stdout == (
        "1 message was moved to 2096-10-02T07:06:40.000Z\n"
    )
    moved = run("delayed", "move", "orders/0~17", "--at", str(DUE), "--dry-run", "-o", "json")
    assert json.loads(moved.stdout)["done"] == ["orders/0~17"]
    one, two = calls(broker, "delayed.move")
    assert one["delay_ms"] == 300_000
    assert (two["due_ms"], two["dry_run"]) == (DUE, True)


def test_cancelling_is_asked_about(broker: MemoryBroker, run: Run) -> None:
    """Without a terminal nothing is cancelled unless --yes says so."""
    result = run("delayed", "cancel", "orders/0~17")

    assert result.exit_code == 2
    assert "1 message will be cancelled: give --yes" in result.stderr
    assert broker.calls == []


def test_all_that_fit(broker: MemoryBroker, run: Run) -> None:
    """All messages that fit a filter are done with step by step, and what stays is told."""
    stays = {"partition": 0, "id": 9, "why": "it just came"}
    broker.answers["delayed.apply"] = [step(100, more=True, after="a"), step(3, failed=[stays])]
    result = run(
        *("delayed", "move", "--topic", "orders", "--key", "k1", "--all", "--yes"),
        *("--at", "2027-01-01T09:00+01:00", "--until", str(DUE), "-p", "1"),
    )

    assert result.stdout == "103 delayed messages of orders were moved\n"
    assert "1 delayed message stays: it just came" in result.stderr
    one, two = calls(broker, "delayed.apply")
    assert one == {
        "act": "move",
        "topic": "orders",
        "partition": 1,
        "key": "k1",
        "until_ms": DUE,
        "due_ms": 1_798_790_400_000,
        "dry_run": False,
        "limit": 100,
    }
    assert two["after"] == "a"


def test_all_is_tried_first(broker: MemoryBroker, run: Run) -> None:
    """A dry run goes through all steps, and says what would happen."""
    broker.answers["delayed.apply"] = [step(100, more=True, after="a"), step(3)]
    result = run("delayed", "cancel", "-t", "orders", "--all", "--schedule", "n", "--dry-run")

    assert result.stdout == "103 delayed messages of orders would be cancelled\n"
    assert [asked["dry_run"] for asked in calls(broker, "delayed.apply")] == [True, True]


def test_nothing_fits(broker: MemoryBroker, run: Run) -> None:
    """Where there is nothing to do nobody is asked, and nothing is done."""
    broker.answers["delayed.apply"] = [step(0)]
    result = run("delayed", "cancel", "-t", "orders", "--all")

    assert (result.exit_code, result.stdout) == (0, "nothing of orders fits\n")
    assert [asked["dry_run"] for asked in calls(broker, "delayed.apply")] == [True]


def test_ctrl_c_tells_how_far_it_came(broker: MemoryBroker, run: Run) -> None:
    """When somebody stops it, it says what was done and how to go on."""
    broker.answers["delayed.apply"] = [step(100, more=True, after="a")]
    result = run("delayed", "now", "-t", "orders", "--all", "--yes")

    assert result.exit_code == 130
    assert "100 delayed messages were released" in result.stderr
    assert "all others wait as before" in result.stderr
    assert "--after a" in result.stderr


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("cancel",), "name messages, such as orders/0~17"),
        (("cancel", "--topic", "orders"), "--all"),
        (("cancel", "--all"), "--topic"),
        (("now", "orders/0~17", "--all"), "not both"),
        (("now", "orders/0~17", "--key", "k"), "not both"),
        (("now", "orders/mail/0@17"), "`channel wake`"),
        (("now", "orders/0/17"), "write TOPIC/PARTITION~ID"),
        (("show", "17"), "write TOPIC/PARTITION~ID"),
        (("move", "orders/0~17"), "give --delay or --at"),
        (("move", "orders/0~17", "--delay", "1s", "--at", str(DUE)), "give --delay or --at"),
        (("move", "orders/0~17", "--delay", "-1s"), "cannot be negative"),
    ],
)
def test_what_does_not_go_together(run: Run, words: tuple[str, ...], text: str) -> None:
    """A command line that means nothing is refused with one that does."""
    result = run("delayed", *words)

    assert result.exit_code == 2
    assert text in " ".join(result.stderr.split())


def test_histogram(broker: MemoryBroker, run: Run) -> None:
    """How many messages come when, without the times that have none, and the sum."""
    buckets = [
        {"from_ms": DUE + place * 60_000, "to_ms": DUE + (place + 1) * 60_000, "messages": count}
        for place, count in enumerate((80, 0, 1, 0))
    ]
    told = {"buckets": buckets, "total": 82, "overdue": 1, "next_ms": DUE, "silent": ["b2"]}
    none = {"buckets": [], "total": 0, "overdue": 0, "next_ms": None, "silent": []}
    broker.answers["delayed.histogram"] = [told, told, none]
    result = run("delayed", "histogram", "-t", "orders")
    _, *lines, end = result.stdout.splitlines()

    assert [line.count("#") for line in lines] == [40, 1]
    assert end == "82 messages wait, 1 overdue; the first is due at 2096-10-02T07:06:40.000Z"
    assert "b2 does not answer" in result.stderr
    assert json.loads(run("delayed", "histogram", "-o", "json").stdout)["total"] == 82
    assert run("delayed", "histogram").stdout == "nothing waits until it is due\n"


def test_times_ahead() -> None:
    """A duration is so long from now; anything else is a time."""
    assert parse_ahead("10m", BEGIN_MS) == BEGIN_MS + 600_000
    assert parse_ahead(str(DUE), BEGIN_MS) == DUE
    assert parse_ahead("2027-01-01T00:00Z", BEGIN_MS) == 1_798_761_600_000
    assert parse_ahead("2027-01-01T00:00", BEGIN_MS) == 1_798_761_600_000
