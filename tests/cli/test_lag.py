"""`tinymq lag`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.fakes.memory_broker import MemoryBroker
from tinymq.cli import lag
from tinymq.errors import ConnectionLost


@pytest.fixture
def work(broker: MemoryBroker) -> MemoryBroker:
    """Return a broker with three channels, one of them with nothing to do."""
    broker.channels.make("audit", "copy", cursor=3)
    broker.channels.make("orders", "done", cursor=10)
    broker.channels.make("orders", "work", cursor=1, consumers=2)
    return broker


def test_the_largest_first(work: MemoryBroker, run: Run) -> None:
    """Channels are listed by their lag, with its age, where it goes, and until when."""
    lines = [line.split() for line in run("lag").stdout.splitlines()]
    assert lines[0] == [
        *("TOPIC", "CHANNEL", "GROUP", "LAG", "AGE", "TREND", "ETA", "FINISHED/S", "CONSUMERS"),
        "STATE",
    ]
    assert lines[1] == [
        *("orders", "work", "-", "9", "2s", "-2.0/s", "3s", "1.5/s", "2", "consuming"),
    ]
    assert [line[1] for line in lines[1:]] == ["work", "copy", "done"]


def test_which_ones(work: MemoryBroker, run: Run) -> None:
    """A topic, a pattern, or only those with something to do."""
    assert run("lag", "orders", "-o", "name").stdout.split() == ["orders/work", "orders/done"]
    assert run("lag", "--filter", "c*", "-o", "name").stdout == "audit/copy\n"
    names = run("lag", "--only-lagging", "--sort", "age", "-o", "name").stdout.split()
    assert names == ["audit/copy", "orders/work"]
    found = json.loads(run("lag", "orders", "-o", "json").stdout)
    assert found["channels"][0]["trend_s"] == -2.0


def test_groups(work: MemoryBroker, run: Run) -> None:
    """Consumer groups stand among the channels, with the same figures."""
    work.groups = [
        group("g", lag=100, lag_s=61.5, trend=2.0, stuck="nobody reads", topics=["orders", "x"]),
        group("idle"),
        group("lost", lag=None),
    ]
    lines = [line.split() for line in run("lag").stdout.splitlines()]
    assert lines[1][:8] == ["orders,x", "-", "g", "100", "1m2s", "+2.0/s", "grows", "-"]
    assert [line[1:3] for line in lines[2:]] == [
        *(["work", "-"], ["copy", "-"], ["-", "idle"], ["-", "lost"], ["done", "-"]),
    ]
    assert lines[-2][3] == "-", "nobody knows how far it is"
    assert run("lag", "--only-lagging", "-o", "name").stdout.split("\n")[0] == "group g"
    document = json.loads(run("lag", "orders", "-o", "json").stdout)
    assert [row["name"] for row in document["groups"]] == ["g"]
    assert "nobody reads" in run("lag", "-o", "wide").stdout
    result = run("lag", "--fail-over", "50")
    assert (result.exit_code, result.stderr) == (1, "group g has 100 left to do\n")


def group(name: str, **facts: Any) -> dict[str, Any]:
    """A row of a group."""
    return {
        "name": name,
        "state": "empty",
        "members": 0,
        "topics": [],
        "partitions": 1,
        "lag": 0,
        **dict.fromkeys(("lag_s", "trend", "clear_s", "committed_ms")),
        "coordinator": "b1",
        "strategy": "",
        "generation": 0,
        "created_ms": 1,
        "stuck": "",
        **facts,
    }


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (["--fail-over", "9"], 0, ""),
        (["--fail-over", "8"], 1, "orders/work has 9 left to do\n"),
        (["--max-age", "3s"], 0, ""),
        (["--max-age", "2s", "--only-lagging", "--filter", "c*"], 1, "a message that is 2s old\n"),
        ([], 0, ""),
    ],
)
def test_bounds(work: MemoryBroker, run: Run, words: list[str], status: int, told: str) -> None:
    """Whoever watches it is told by the exit status."""
    result = run("lag", *words)
    assert (result.exit_code, result.stderr.endswith(told)) == (status, True)
    assert bool(told) == bool(result.stderr)


def test_silence(work: MemoryBroker, run: Run) -> None:
    """Where a broker is silent nobody can say that all is well."""
    work.channels.find("orders", "done").silent = True
    assert run("lag").exit_code == 0
    assert run("lag", "--fail-over", "100").exit_code == 3
    assert run("lag", "--fail-over", "1").exit_code == 1


def test_watch(work: MemoryBroker, run: Run) -> None:
    """It looks again and again, over an outage too, and Ctrl-C is a good end."""

    def outage() -> None:
        work.failure = ConnectionLost("gone")
        work.idle.append(mended)

    def mended() -> None:
        work.failure = None

    work.idle.append(outage)
    result = run("lag", "--watch", "-i", "7s", "--columns", "channel")
    assert result.exit_code == 0
    assert result.stdout.split().count("work") == 2
    assert "connected again" in result.stderr
    assert work.pauses == [7.0, 0.5, 7.0]


def test_watch_for_programs(work: MemoryBroker, run: Run) -> None:
    """As JSON each look is a line for each channel, and nothing else."""
    lines = run("lag", "-w", "-o", "json").stdout.splitlines()
    assert [json.loads(line)["name"] for line in lines] == ["work", "copy", "done"]


def test_watch_on_a_terminal(work: MemoryBroker, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal a look takes the place of the one before."""
    monkeypatch.setattr(lag, "on_terminal", lambda: True)
    assert run("lag", "-w", color=True).stdout.startswith("\x1b[H\x1b[2J")


def test_what_does_not_go_together(work: MemoryBroker, run: Run) -> None:
    """What never ends has no exit status to tell anything by."""
    assert run("lag", "-w", "--fail-over", "1").exit_code == 2
