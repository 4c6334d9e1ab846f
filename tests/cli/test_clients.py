"""`tinymq clients`: listed with the slow ones first, shown, and hung up on."""

from __future__ import annotations

import json
import time

import pytest

from tests.cli.conftest import Run
from tests.fakes.memory_broker import MemoryBroker
from tests.fakes.memory_cluster import broker_row, client_row
from tinymq.cli import output
from tinymq.errors import ConnectionLost

EVIL = "\x1b]0;owned\x07\x1b[2Jevil\u202e\x9b31m\n"


@pytest.fixture(autouse=True)
def cluster(broker: MemoryBroker) -> None:
    """Give two brokers a few clients, two of which are slow."""
    broker.cluster.brokers = [broker_row(1, "broker-1"), broker_row(2, "broker-2")]
    now = time.time_ns() // 1_000_000
    broker.cluster.clients = [
        client_row(1, 1, messages_in=5, messages_out=6),
        client_row(1, 2, slow_since_ms=now - 5_000, buffered=2 << 20),
        client_row(2, 1, client_id="billing-1", slow_since_ms=now - 3_700_000),
    ]


def test_list_has_slow_clients_first(run: Run) -> None:
    """The longest slow client comes first, and is marked."""
    lines = run("clients", "ls").output.splitlines()
    assert lines[0].split()[:4] == ["CLIENT", "CLIENT-ID", "ADDRESS", "STATE"]
    assert [line.split()[0] for line in lines[1:]] == ["broker-2/1", "broker-1/2", "broker-1/1"]
    assert "SLOW for 1h1m" in lines[1]
    assert "SLOW for" in lines[2]
    assert "2.0 MiB" in lines[2]
    assert lines[3].split()[3:6] == ["ok", "5", "6"]


def test_list_is_narrowed_down(run: Run) -> None:
    """By broker, by client id, to the slow ones, and to a number."""
    names = ("-o", "name")
    assert run("clients", "ls", "--broker", "2", *names).output == "broker-2/1\n"
    assert run("clients", "ls", "--filter", "billing-*", *names).output == "broker-2/1\n"
    assert run("clients", "ls", "--slow", *names).output == "broker-2/1\nbroker-1/2\n"
    document = json.loads(run("clients", "ls", "--limit", "1", "-o", "json").output)
    assert (document["total"], document["more"]) == (3, True)
    assert "place" not in document["clients"][0]
    rows = run("clients", "ls", "--columns", "client,user", "-o", "csv").output.splitlines()
    assert rows == ["client,user", *(f"broker-{n},anonymous" for n in ("2/1", "1/2", "1/1"))]


def test_list_goes_on_page_after_page(broker: MemoryBroker, run: Run) -> None:
    """A slow client on the last page comes first all the same."""
    broker.cluster.page = 2
    assert run("clients", "ls", "-o", "name").output.splitlines()[0] == "broker-2/1"
    pages = [arguments.get("after") for name, arguments in broker.calls if name == "client.list"]
    assert pages == ["", "1/2"]


def test_silent_brokers_are_named(broker: MemoryBroker, run: Run) -> None:
    """A list that is not whole says so, to people and to programs."""
    broker.cluster.silent = ["broker-3"]
    result = run("clients", "ls", "-o", "json")
    assert json.loads(result.stdout)["silent"] == ["broker-3"]
    assert result.stderr == "broker-3 did not answer; its clients are not listed\n"


@pytest.mark.parametrize("form", ["table", "wide", "json", "ndjson", "csv", "name"])
def test_no_client_id_reaches_a_terminal_raw(
    broker: MemoryBroker, run: Run, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """Whatever a client calls itself, no form of output moves a terminal's cursor."""
    broker.cluster.clients = [client_row(1, 1, client_id=EVIL, agent=EVIL, user=EVIL)]
    broker.cluster.silent = [EVIL]
    monkeypatch.setattr(output, "on_terminal", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    for arguments in (["clients", "ls"], ["clients", "info", "broker-1/1"]):
        result = run(*arguments, "-o", form)
        assert result.exit_code == 0
        shown = (result.stdout + result.stderr).replace("\n", "").replace("\r", "")
        assert shown.isprintable()


def test_json_keeps_every_character(broker: MemoryBroker, run: Run) -> None:
    """What is escaped in JSON is the same text to programs."""
    broker.cluster.clients = [client_row(1, 1, client_id=EVIL + "é😀\U000e0001")]
    found = json.loads(run("clients", "info", "broker-1/1", "-o", "json").output)
    assert found["client_id"] == EVIL + "é😀\U000e0001"


def test_an_error_with_a_client_id_is_one_safe_line(broker: MemoryBroker, run: Run) -> None:
    """What the broker says about a client is escaped, too."""
    broker.failure = ConnectionLost(f"the client {EVIL} went away")
    result = run("clients", "ls")
    assert result.stderr.count("\n") == 1
    assert result.stderr.removesuffix("\n").isprintable()


def test_info(run: Run) -> None:
    """One client is shown with its place and its state."""
    lines = run("clients", "info", "broker-1/2").output.splitlines()
    assert lines[0].split() == ["client", "broker-1/2"]
    assert "SLOW" in lines[1]
    assert run("clients", "info", "2/1", "-o", "name").output == "broker-2/1\n"


def test_which_client(broker: MemoryBroker, run: Run) -> None:
    """A number alone is enough where there is one broker only."""
    several = run("clients", "info", "1")
    assert (several.exit_code, "several brokers" in several.stderr) == (1, True)
    broker.cluster.brokers.pop()
    assert run("clients", "info", "1", "-o", "name").output == "broker-1/1\n"
    assert run("clients", "info", "broker-1/x").exit_code == 2
    assert run("clients", "info", "/1").exit_code == 2
    unknown = run("clients", "info", "broker-9/1")
    assert unknown.exit_code == 1
    assert "(hint: `tinymq node ls` lists the brokers)" in unknown.stderr


def test_kick(broker: MemoryBroker, run: Run) -> None:
    """A client is hung up on when it was confirmed, and not in a dry run."""
    tried = run("clients", "kick", "broker-2/1", "--dry-run")
    assert tried.output == ("would close the connection of broker-2/1 (billing-1, 10.0.0.1:4000)\n")
    assert run("clients", "kick", "broker-2/1").exit_code == 2
    assert len(broker.cluster.clients) == 3
    done = run("clients", "kick", "broker-2/1", "--yes", "--reason", "too slow")
    assert done.output.startswith("closed the connection of broker-2/1 ")
    assert broker.calls[-1] == (
        "client.kick",
        {"broker": "broker-2", "id": 1, "reason": "too slow", "dry_run": False},
    )
    assert len(broker.cluster.clients) == 2
    gone = run("clients", "kick", "broker-2/1", "--yes")
    assert gone.exit_code == 1
    assert (
        json.loads(run("clients", "kick", "1/1", "--yes", "-o", "json").output)["dry_run"] is False
    )
    assert run("clients", "kick", "1/2", "--yes", "-o", "name").output == "broker-1/2\n"
