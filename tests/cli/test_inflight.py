"""`tinymq inflight`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.fakes.memory_broker import MemoryBroker
from tinymq.cli import inflight as verbs

ROW: dict[str, Any] = {
    "topic": "orders",
    "channel": "mail",
    "partition": 0,
    "offset": 5,
    "broker": "b1",
    "broker_id": 1,
    "client": 7,
    "client_id": "mailer",
    "address": "10.0.0.1:4000",
    "attempt": 2,
    "failures": 1,
    "since_ms": 1,
    "deadline_ms": 2,
    "lease_ms": 1,
    "state": "in_flight",
    "size": 3,
    "key": "tea",
    "key_encoding": "string",
}


def reply(done: list[int], missing: list[int] | None = None) -> dict[str, Any]:
    """What the operation answers."""
    return {"done": done, "missing": missing or [], "dry_run": False}


def test_list(broker: MemoryBroker, run: Run) -> None:
    """What consumers hold is listed, by names that the other verbs take."""
    page = {"messages": [ROW], "more": False, "after": None, "total": 1, "silent": []}
    broker.answers["inflight.list"] = [page, page]
    options = ("-t", "orders", "-c", "mail", "--client", "mailer", "--older", "30s")
    lines = run("inflight", "ls", *options).stdout.splitlines()
    assert lines[1].split()[:5] == ["orders/mail/0@5", "mailer", "b1/7", "2", "1"]
    assert broker.calls[0][1] == {
        "topic": "orders",
        "channel": "mail",
        "client": "mailer",
        "attempts": 1,
        "older_ms": 30_000,
        "limit": 500,
    }
    assert run("inflight", "ls", "-o", "name").stdout == "orders/mail/0@5\n"


@pytest.mark.parametrize(
    ("words", "arguments", "told"),
    [
        (["requeue", "--delay", "2m"], {"act": "requeue", "delay_ms": 120_000}, "given out again"),
        (["finish"], {"act": "finish"}, "settled"),
        (["touch", "--for", "1h"], {"act": "extend", "extend_ms": 3_600_000}, "kept longer"),
        (["dlq", "--reason", "bad"], {"act": "dead_letter", "reason": "bad"}, "given up"),
        (["settle", "finish"], {"act": "finish"}, "settled"),
        (["settle", "requeue", "--delay", "0"], {"act": "requeue", "delay_ms": 0}, "given out"),
    ],
)
def test_each_act(
    broker: MemoryBroker, run: Run, words: list[str], arguments: dict[str, Any], told: str
) -> None:
    """Messages are named one by one, and asked for partition by partition."""
    broker.answers["inflight.settle"] = [reply([5, 6]), reply([7])]
    places = ["orders/mail/0@5", "orders/mail/0@6", "orders/mail/0@5", "orders/mail/1@7"]
    yes = [] if "touch" in words else ["--yes"]
    result = run("inflight", *words, *places, *yes)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith(f"3 messages were {told}")
    common = {"topic": "orders", "name": "mail", "reason": "", "dry_run": False, **arguments}
    assert [call for _, call in broker.calls] == [
        {**common, "partition": 0, "offsets": [5, 6]},
        {**common, "partition": 1, "offsets": [7]},
    ]


def test_what_is_gone(broker: MemoryBroker, run: Run) -> None:
    """What is not in flight any more is named, and the exit status says so."""
    broker.answers["inflight.settle"] = [reply([], [5])] * 2
    result = run("inflight", "finish", "orders/mail/0@5", "--yes")
    assert (result.exit_code, result.stdout) == (1, "0 messages were settled\n")
    assert result.stderr == "not in flight any more: orders/mail/0@5\n"
    found = json.loads(run("inflight", "finish", "orders/mail/0@5", "-y", "-o", "json").stdout)
    assert found == {"done": [], "missing": ["orders/mail/0@5"], "dry_run": False}


def test_nothing_without_a_yes(broker: MemoryBroker, run: Run) -> None:
    """Where nobody can be asked nothing is done; a dry run needs no yes."""
    broker.answers["inflight.settle"] = [reply([5])]
    result = run("inflight", "dlq", "orders/mail/0@5")
    assert (result.exit_code, broker.calls) == (2, [])
    assert "1 message will be given up" in result.stderr
    tried = run("inflight", "dlq", "orders/mail/0@5", "--dry-run")
    assert tried.stdout == "1 message would be given up\n"


def test_many(broker: MemoryBroker, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than one call takes are asked for in several."""
    monkeypatch.setattr(verbs, "MOST_OFFSETS", 2)
    broker.answers["inflight.settle"] = [reply([0, 1]), reply([2])]
    places = [f"orders/mail/0@{offset}" for offset in range(3)]
    result = run("inflight", "finish", *places, "--yes", "-o", "name")
    assert result.stdout.split() == places


def test_a_channel_of_one_instance(broker: MemoryBroker, run: Run) -> None:
    """The name of a channel may have the sign in it that stands before an offset."""
    broker.answers["inflight.settle"] = [reply([5])]
    assert run("inflight", "touch", "orders/mail@me/0@5").exit_code == 0
    assert broker.calls[0][1]["name"] == "mail@me"


@pytest.mark.parametrize("place", ["orders/mail", "orders/mail/0", "mail/0@5", "a/b/c@5", "a/b/0@"])
def test_no_message(broker: MemoryBroker, run: Run, place: str) -> None:
    """What names no message is a usage error."""
    assert run("inflight", "finish", place, "--yes").exit_code == 2
    assert broker.calls == []
