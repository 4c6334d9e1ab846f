"""`tinymq lookup`: several MetaServers asked, their answers merged."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

import pytest
from click.testing import CliRunner, Result

from tests.fakes.memory_broker import MemoryBroker, MemoryClient
from tinymq.cli.app import root
from tinymq.cli.session import Session
from tinymq.errors import InvalidRequest, UnreachableError

A, B, C = "10.0.0.1:7800", "10.0.0.2:7800", "[::1]:7900"
Ask = Callable[..., Result]


def node(name: str, number: int, **facts: Any) -> dict[str, Any]:
    """Describe a node."""
    row = {"node": bytes([number]) * 16, "name": name, "host": f"10.1.0.{number}", "port": 7800}
    return {**row, "zone": "", "since_ms": 1_750_000_000_000 + number, **facts}


@pytest.fixture
def servers() -> dict[str, MemoryBroker]:
    """Return three MetaServers by place; the third does not answer."""
    servers = {place: MemoryBroker() for place in (A, B, C)}
    servers[C].failure = UnreachableError("nobody is there")
    return servers


@pytest.fixture
def ask(servers: dict[str, MemoryBroker]) -> Ask:
    """Return what runs `tinymq lookup`."""

    def connect(url: str, timeout: float) -> Any:
        return cast("Any", MemoryClient(servers[url.removeprefix("tinymq://")]))

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(
            root,
            ["lookup", *arguments],
            obj=Session(connect, explain=lambda url: None),
            prog_name="tinymq",
        )

    return run


def test_topics_are_merged(servers: dict[str, MemoryBroker], ask: Ask) -> None:
    """Each topic comes once, whoever knows it; every page is asked for."""
    servers[A].answers["lookup.list"] = [
        {"topics": ["a", "b"], "more": True},
        {"topics": ["c"], "more": False},
    ]
    servers[B].answers["lookup.list"] = [{"topics": ["b", "d"], "more": False}]
    result = ask("ls", "--meta", f"{A}, {B}", "-o", "json")
    document = json.loads(result.stdout)
    assert [row["name"] for row in document["topics"]] == ["a", "b", "c", "d"]
    assert document["topics"][1]["known_by"] == [A, B]
    assert document["silent"] == []
    assert servers[A].calls[1] == ("lookup.list", {"after": "b", "limit": 500})


def test_nodes_are_merged(servers: dict[str, MemoryBroker], ask: Ask) -> None:
    """A node that several MetaServers know comes once, with the time of the first."""
    east, west = node("east", 1), node("west", 2, zone="b", host="::2")
    servers[A].answers["lookup.find"] = [{"nodes": [west, east]}]
    servers[B].answers["lookup.find"] = [{"nodes": [{**east, "since_ms": 1_740_000_000_000}]}]
    result = ask("find", "orders", "--meta", f"{A},{B}", "-o", "wide")
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[0] == ["NAME", "ADDRESS", "ZONE", "SINCE", "NODE", "KNOWN-BY"]
    assert lines[1][:4] == ["east", "tinymq://10.1.0.1:7800", "-", "2025-02-19T21:20:00.000Z"]
    assert lines[1][4:] == ["01" * 16, f"{A},", B]
    assert lines[2][:3] == ["west", "tinymq://[::2]:7800", "b"]


def test_names_are_urls(servers: dict[str, MemoryBroker], ask: Ask) -> None:
    """The names of nodes can be given to --url."""
    servers[A].answers["lookup.find"] = [{"nodes": [node("east", 1)]}]
    assert ask("find", "orders", "--meta", A, "-o", "name").stdout == "tinymq://10.1.0.1:7800\n"


def test_silent_ones_are_named(servers: dict[str, MemoryBroker], ask: Ask) -> None:
    """Who does not answer, or does not know the question, is named; the others count."""
    servers[A].answers["lookup.find"] = [{"nodes": [node("east", 1)]}]
    servers[B].answers["lookup.find"] = [InvalidRequest("there is no operation")]
    result = ask("find", "orders", "--meta", f"{A},{B},{C}", "-o", "json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["silent"] == [
        {"place": B, "reason": "there is no operation"},
        {"place": C, "reason": "nobody is there"},
    ]
    assert result.stderr == (
        f"{B} did not answer: there is no operation\n{C} did not answer: nobody is there\n"
    )


def test_nobody_answers(ask: Ask) -> None:
    """When all are silent the status is that of a broker that cannot be reached."""
    for arguments in (["ls"], ["find", "orders"]):
        result = ask(*arguments, "--meta", C)
        assert result.exit_code == 3
        assert f"no MetaServer answered: {C}: nobody is there" in result.stderr


def test_nobody_has_it(servers: dict[str, MemoryBroker], ask: Ask) -> None:
    """A topic that no node announces is status 1."""
    servers[A].answers["lookup.find"] = [{"nodes": []}]
    result = ask("find", "orders", "--meta", A)
    assert (result.exit_code, "no node announces the topic orders" in result.stderr) == (1, True)


def test_places(servers: dict[str, MemoryBroker], ask: Ask) -> None:
    """Without --meta those of the URL are asked; what is no place is a usage error."""
    servers[A].answers["lookup.list"] = [{"topics": ["a"], "more": False}]
    assert ask("ls", "--url", f"tinymq://{A}", "-o", "name").stdout == "a\n"
    assert ask("ls", "--meta", "a b:c").exit_code == 2
