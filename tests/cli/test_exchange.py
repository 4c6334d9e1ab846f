"""`tinymq exchange` and `tinymq binding`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.fakes.memory_broker import BEGIN_MS, MemoryBroker
from tinymq.errors import TopicExists

BOUND: dict[str, Any] = {
    "id": "0011aabb",
    "exchange": "orders",
    "target": "eu-orders",
    "key": "eu.#",
    "headers": [],
    "rule": None,
    "created_ms": BEGIN_MS,
}


def facts(**more: Any) -> dict[str, Any]:
    """What an exchange is."""
    return {
        "name": "orders",
        "kind": "topic",
        "bindings": 2,
        "dead_letter": "orders.unroutable",
        "created_ms": BEGIN_MS,
        **more,
    }


def row(**more: Any) -> dict[str, Any]:
    """What an exchange is and does."""
    figures = {"in_s": 12.0, "out_s": 24.5, "unroutable": 3, "failed": 1, "lag": 7, "stuck": []}
    return facts(**figures, **more) if "stuck" not in more else {**facts(**figures), **more}


def made(broker: MemoryBroker, name: str, **more: Any) -> None:
    """Let an operation answer once with what an exchange is."""
    told = {"exchange": facts(), "created": True, "dry_run": False, **more}
    broker.answers.setdefault(name, []).append(told)


def asked(broker: MemoryBroker) -> tuple[str, dict[str, Any]]:
    """Return the last operation, with its arguments."""
    found: tuple[str, dict[str, Any]] = broker.calls[-1]
    return found


def test_list(broker: MemoryBroker, run: Run) -> None:
    """Each exchange with what it does, and where messages cannot go; page after page."""
    stuck = [{"target": "t", "why": "it is full", "since_ms": BEGIN_MS}]
    quiet = dict.fromkeys(("in_s", "out_s", "unroutable", "failed", "lag"))
    first = {"exchanges": [row()], "more": True, "after": "orders", "total": 2, "silent": []}
    last = {**first, "exchanges": [{**row(stuck=stuck), **quiet, "name": "z"}], "more": False}
    broker.answers["exchange.list"] = [first, {**last, "silent": ["b2"]}]
    result = run("exchange", "ls")
    heading, one, two = (line.split() for line in result.stdout.splitlines())

    assert heading == [
        *("NAME", "KIND", "BINDINGS", "IN/S", "OUT/S", "UNROUTABLE", "LAG", "STATE"),
    ]
    assert one[:3] == ["orders", "topic", "2"]
    assert one[-1] == "ok"
    assert " ".join(two[-4:]) == "t: it is full"
    assert "b2 does not answer" in result.stderr


def test_create(broker: MemoryBroker, run: Run) -> None:
    """What was made is said; the same again is no error, and a dry run says so."""
    made(broker, "exchange.create")
    made(broker, "exchange.create", created=False)
    made(broker, "exchange.create", dry_run=True)
    command = ("exchange", "create", "orders", "--kind", "topic", "--set", "sync=os")
    assert run(*command).stdout == "made orders, a topic exchange\n"
    assert asked(broker) == (
        "exchange.create",
        {"name": "orders", "kind": "topic", "config": {"sync": "os"}, "dry_run": False},
    )
    assert run(*command).stdout.startswith("exists already: orders")
    assert run(*command, "--dry-run").stdout.startswith("would make orders")
    assert run("exchange", "create", "orders").exit_code == 2


def test_another_kind(broker: MemoryBroker, run: Run) -> None:
    """What an error says itself of what to do, no hint contradicts."""
    why = "orders is a rule exchange; remove it first with `tinymq exchange rm orders`"
    broker.answers["exchange.create"] = [TopicExists(why, field="kind")]
    result = run("exchange", "create", "orders", "--kind", "topic")
    assert (result.exit_code, result.stderr) == (1, f"error: {why}\n")


def test_info(broker: MemoryBroker, run: Run) -> None:
    """One exchange is told in facts, and with -b its first bindings."""
    whole = {**row(), "partitions": 2, "silent": []}
    broker.answers["exchange.info"] = [
        {"exchange": whole, "bindings": [BOUND], "more": True} for _ in range(2)
    ]
    told = run("exchange", "info", "orders").stdout
    assert "orders.unroutable" in told
    assert "in a second" in told
    assert "0011aabb" not in told
    result = run("exchange", "info", "orders", "-b")
    assert "0011aabb" in result.stdout
    assert "tinymq binding ls --exchange orders" in result.stderr


def test_alter(broker: MemoryBroker, run: Run) -> None:
    """The dead-letter topic is said, or the default asked for; neither or both is refused."""
    made(broker, "exchange.alter")
    made(broker, "exchange.alter", dry_run=True)
    told = run("exchange", "alter", "orders", "--dead-letter", "orders.unroutable").stdout
    assert told == "orders sends what no binding takes to orders.unroutable\n"
    told = run("exchange", "alter", "orders", "--default", "--dry-run").stdout
    assert told.startswith("orders would send")
    assert "dead_letter" not in {
        name for name, value in asked(broker)[1].items() if value is not None
    }
    assert run("exchange", "alter", "orders").exit_code == 2
    assert run("exchange", "alter", "orders", "--default", "--dead-letter", "x").exit_code == 2


def test_remove(broker: MemoryBroker, run: Run) -> None:
    """A person types the name; what went is said."""
    made(broker, "exchange.delete", dry_run=True)
    made(broker, "exchange.delete")
    made(broker, "exchange.delete")
    refused = run("exchange", "rm", "orders")
    assert refused.exit_code == 2
    told = run("exchange", "rm", "orders", "--yes", "--force").stdout
    assert told == "orders is a plain topic; 2 bindings gone\n"
    assert asked(broker)[1]["force"]


def test_where_to(broker: MemoryBroker, run: Run, tmp_path: Path) -> None:
    """Where a message would go is told with its ways, and rules that fail on stderr."""
    told = {
        "targets": ["eu-orders"],
        "path": [{"exchange": "orders", "binding": "0011aabb", "target": "eu-orders"}],
        "unroutable": False,
        "dead_letter": "orders.unroutable",
        "failures": [],
    }
    lost = {**told, "path": [], "unroutable": True, "failures": ["orders: json.total: no"]}
    broker.answers["exchange.test"] = [told, told, lost, told, told]
    file = tmp_path / "value"
    file.write_text("{}")
    command = ("exchange", "test", "orders", "--key", "eu.de")
    result = run(*command, "-H", "region:eu", "--value", f"@{file}")
    assert result.stdout.splitlines()[0] == "goes to eu-orders"
    assert asked(broker)[1] == {
        "name": "orders",
        "key": "eu.de",
        "headers": [["region", "eu"]],
        "value": "{}",
        "encoding": "string",
    }
    file.write_bytes(b"\xff")
    assert run(*command, "--value", f"@{file}").exit_code == 0
    assert (asked(broker)[1]["value"], asked(broker)[1]["encoding"]) == ("/w==", "base64")
    result = run(*command)
    assert result.stdout.startswith("no binding takes it; it goes to orders.unroutable\n")
    assert "a rule fails on it: orders: json.total: no" in result.stderr
    assert json.loads(run(*command, "-o", "json").stdout)["targets"] == ["eu-orders"]
    assert "write name:value" in run(*command, "-H", "region").stderr
    assert run(*command, "-H", "region:a=b").exit_code == 0
    assert asked(broker)[1]["headers"] == [["region", "a=b"]]
    assert run(*command, "-v", f"@{tmp_path}/nothing").exit_code == 2


def test_topology(broker: MemoryBroker, run: Run) -> None:
    """What leads where is told to people and to machines."""
    way = {"from": "orders", "to": "eu", "id": "1", "bindings": 1, "dead_letter": False}
    told: dict[str, Any] = {
        "nodes": [],
        "edges": [{**way, "label": "eu.#"}, {**way, "label": ""}],
        "left_out": {"nodes": 0, "edges": 2},
    }
    broker.answers["exchange.topology"] = [told, told]
    assert json.loads(run("exchange", "topology", "-o", "json").stdout) == told
    shown = run("exchange", "topology", "-e", "orders")
    assert [line.split() for line in shown.stdout.splitlines()[1:]] == [
        ["orders", "eu", "1", "eu.#"],
        ["orders", "eu", "1", "everything"],
    ]
    assert "2 ways left out" in shown.stderr


def test_a_header_is_no_condition(broker: MemoryBroker, run: Run) -> None:
    """NAME:VALUE, as publishing takes it, would be a condition that no message meets."""
    result = run("binding", "add", "orders", "eu-orders", "-H", "region:eu")

    assert (result.exit_code, broker.calls) == (2, [])
    assert "write --header NAME=VALUE" in result.stderr


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--key", "eu.#"), {"key": "eu.#"}),
        (("-H", "region=eu", "-H", "!test"), {"headers": ["region=eu", "!test"]}),
        (("--rule", "json.total > 100"), {"rule": "json.total > 100"}),
        ((), {}),
    ],
)
def test_add(
    broker: MemoryBroker, run: Run, options: tuple[str, ...], expected: dict[str, Any]
) -> None:
    """A binding has the terms that are said, and what was made of it is told."""
    broker.answers["binding.add"] = [{"binding": BOUND, "created": True, "dry_run": False}]
    result = run("binding", "add", "orders", "eu-orders", *options)
    assert result.stdout == "added orders -> eu-orders, 0011aabb\n"
    assert asked(broker)[1] == {
        "exchange": "orders",
        "target": "eu-orders",
        "dry_run": False,
        **expected,
    }


def test_bindings(broker: MemoryBroker, run: Run) -> None:
    """Bindings are listed with what they take, and removed by their ids."""
    rule = {**BOUND, "id": "1", "key": None, "rule": "json.total > 100"}
    headers = {**BOUND, "id": "2", "key": None, "headers": ["a=b", "!c"]}
    every = {**BOUND, "id": "3", "key": None}
    page = {"bindings": [BOUND, rule, headers, every], "more": False, "after": None, "total": 4}
    broker.answers["binding.list"] = [page, page]
    lines = run("binding", "ls", "-e", "orders").stdout.splitlines()
    assert [line.split(maxsplit=3)[3:] for line in lines] == [
        ["TAKES"],
        ["eu.#"],
        ["json.total > 100"],
        ["a=b !c"],
        [],
    ]
    assert run("binding", "ls", "-o", "name").stdout.split() == ["0011aabb", "1", "2", "3"]
    broker.answers["binding.delete"] = [{"binding": BOUND, "dry_run": False}]
    told = run("binding", "rm", "orders", "0011aabb").stdout
    assert told == "removed orders -> eu-orders, 0011aabb\n"
