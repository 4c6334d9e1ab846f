"""`tinymq node`: brokers listed, shown and drained."""

from __future__ import annotations

import json

import pytest
from click.testing import _NamedTextIOWrapper

from tests.cli.conftest import Run
from tests.fakes.memory_broker import MemoryBroker
from tests.fakes.memory_cluster import broker_row


@pytest.fixture(autouse=True)
def brokers(broker: MemoryBroker) -> None:
    """Give the cluster three brokers."""
    broker.cluster.brokers = [
        broker_row(2, "east", zone="a", partitions=7, bytes=2048, connections=3),
        broker_row(1, "west", zone="b", partitions=9),
        broker_row(3, "north", state="silent", reason="silent since 12:00"),
    ]


def test_list(run: Run) -> None:
    """The brokers come in the order of their numbers, with what is wrong."""
    lines = run("node", "ls").output.splitlines()
    assert lines[0].split() == [
        "ID", "NAME", "ROLE", "ZONE", "ADDRESS", "STATE", "PARTITIONS", "BYTES", "CONNECTIONS",
        "UPTIME",
    ]  # fmt: skip
    assert [line.split()[1] for line in lines[1:]] == ["west", "east", "north"]
    assert lines[2].split()[:9] == [
        "2", "east", "broker", "a", "127.0.0.1:7812", "ready", "7", "2.0", "KiB",
    ]  # fmt: skip
    assert "silent: silent since 12:00" in lines[3]


def test_list_is_filtered_sorted_and_has_all_forms(run: Run) -> None:
    """The list has the options and the forms of every list."""
    assert run("node", "ls", "--filter", "*st", "-o", "name").output == "west\neast\n"
    assert run("node", "ls", "--sort", "bytes", "-o", "name").output == "east\nnorth\nwest\n"
    assert run("node", "ls", "--sort", "name", "-o", "name").output == "east\nnorth\nwest\n"
    assert run("node", "ls", "--columns", "name,zone").output.splitlines()[3] == "north  -"
    document = json.loads(run("node", "ls", "-o", "json").output)
    assert document["brokers"][0]["started"] == "2025-06-15T15:06:40.000Z"
    wide = run("node", "ls", "-o", "wide").output
    assert "5.0 GiB    10.0 GiB" in wide
    assert "0.2 ms" in wide
    limits = run("node", "ls", "--columns", "files,files-limit,memory-limit", "-o", "csv").output
    assert limits.splitlines()[1] == "3,512,"


def test_a_cluster_without_a_broker(broker: MemoryBroker, run: Run) -> None:
    """A list of nothing is its heading."""
    broker.cluster.brokers = []
    assert run("node", "ls").output.startswith("ID  NAME")


@pytest.mark.parametrize("which", ["east", "2"])
def test_info(run: Run, which: str) -> None:
    """A broker is found by its name and by its number."""
    result = run("node", "info", which)
    assert result.exit_code == 0
    assert result.output.splitlines()[0].split() == ["ready", "yes"]
    assert "disk_free" in result.output
    assert json.loads(run("node", "info", which, "-o", "json").output)["broker"]["id"] == 2
    assert run("node", "info", which, "-o", "name").output == "east\n"


def test_info_of_a_silent_broker(broker: MemoryBroker, run: Run) -> None:
    """Of a silent broker is told what is known, without asking it; the status is 1."""
    result = run("node", "info", "north")
    assert result.exit_code == 1
    assert "no: silent since 12:00" in result.output
    assert [name for name, _ in broker.calls] == ["broker.list"]


def test_no_such_broker(broker: MemoryBroker, run: Run) -> None:
    """An unknown name, and a name that several have, are refused with what to do."""
    result = run("node", "info", "south")
    assert (result.exit_code, result.stderr) == (
        1,
        "error: there is no broker south (hint: `tinymq node ls` lists the brokers)\n",
    )
    broker.cluster.brokers.append(broker_row(4, "east"))
    assert "say which by its number: 2, 4" in run("node", "info", "east").stderr
    broker.cluster.brokers.append(broker_row(5, "1"))
    assert run("node", "info", "1", "-o", "name").output == "west\n"


def test_drain(broker: MemoryBroker, run: Run) -> None:
    """Draining is tried, asked about, done, and taken back."""
    tried = run("node", "drain", "east", "--dry-run")
    assert tried.output == "east would get no new partitions; it keeps the 7 that it has\n"
    assert broker.cluster.brokers[0]["state"] == "ready"
    refused = run("node", "drain", "east")
    assert refused.exit_code == 2
    assert "give --yes" in refused.stderr
    done = run("node", "drain", "east", "--yes")
    assert done.stdout == "east gets no new partitions; it keeps the 7 that it has\n"
    assert done.stderr == "`tinymq node undrain east` takes it back\n"
    assert broker.cluster.brokers[0]["state"] == "draining"
    undone = run("node", "undrain", "2")
    assert undone.output == "east gets new partitions again\n"
    assert broker.calls[-1] == ("broker.drain", {"broker": "2", "undo": True, "dry_run": False})


def test_drain_for_programs(run: Run) -> None:
    """JSON is the answer of the API, and the name is the broker's."""
    document = json.loads(run("node", "drain", "east", "--yes", "-o", "json").output)
    assert document == {"broker": "east", "draining": True, "dry_run": False}
    assert run("node", "undrain", "east", "-o", "name").output == "east\n"


def test_drain_asks_for_the_name(
    broker: MemoryBroker, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal the broker's name is to be typed."""
    monkeypatch.setattr(_NamedTextIOWrapper, "isatty", lambda stream: True, raising=False)
    assert run("node", "drain", "2", stdin="west\n").exit_code == 1
    assert broker.cluster.brokers[0]["state"] == "ready"
    assert run("node", "drain", "2", stdin="east\n").exit_code == 0
