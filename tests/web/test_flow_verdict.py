"""What the overview says of delays, exchanges and push endpoints."""

from __future__ import annotations

from typing import Any

import pytest

from tests.web.client import Client
from tests.web.content import lively
from tests.web.flow import NOW, FakeFlow, endpoint_row, exchange_row
from tests.web.queues import queue_of
from tinymq.web.flow_verdict import Flowing, flow_problems


def due(overdue: int, ms: int | None) -> dict[str, Any]:
    """Make what the histogram says."""
    return {"overdue": overdue, "next_ms": None if ms is None else NOW - ms, "total": 9}


def test_nothing_known_is_no_problem() -> None:
    """Nor is what goes well."""
    assert flow_problems(Flowing(), NOW) == []
    well = Flowing(
        delayed=due(0, -5000),
        exchanges=[exchange_row("x", "topic", 1)],
        endpoints=[endpoint_row("t", "c", "https://a.example")],
    )
    assert flow_problems(well, NOW) == []


@pytest.mark.parametrize(
    ("overdue", "late", "level"),
    [(3, 4_999, None), (3, 5_000, "warn"), (1, 60_000, "bad"), (0, None, None)],
)
def test_late_messages_are_told_by_how_late(
    overdue: int, late: int | None, level: str | None
) -> None:
    """One turn of the reactor is no news."""
    found = flow_problems(Flowing(delayed=due(overdue, late)), NOW)

    assert [problem.level for problem in found] == ([level] if level else [])
    if level == "bad":
        assert found[0].title == "1 delayed message is overdue"
        assert found[0].detail == "The first was due 1 m ago and is not out yet."


def test_three_are_named_and_the_rest_counted() -> None:
    """Each name is a part of an address, whatever it holds."""
    stuck = [{"target": "t", "why": "offline", "since_ms": None}] * 2
    many = [exchange_row(f"x/{i}", "topic", 1, stuck=stuck) for i in range(5)]
    halted = [endpoint_row("a/b", f"c{i}", "u", state="paused", why="by hand") for i in range(4)]
    found = flow_problems(Flowing(exchanges=many, endpoints=halted), NOW)

    assert [problem.title for problem in found] == [
        *(f"Exchange x/{i} is stuck" for i in range(3)),
        "2 more exchanges stuck",
        *(f"Push of channel c{i} of topic a/b is paused" for i in range(3)),
        "1 more push endpoint paused or offline",
    ]
    assert found[0].link == "/exchanges/x%2F0"
    assert found[0].detail == "It waits: t takes nothing: offline. So do 1 more targets."
    assert found[4].link == "/topics/a%2Fb/channels/c0/push"
    assert found[4].detail == "By hand. Its messages wait."


@pytest.mark.parametrize(
    ("names", "part"),
    [
        (["t.c.dead"], "Channels gave them up."),
        (["x.unroutable"], "No binding of an exchange took them."),
        (["t.c.dead", "x.unroutable"], "Channels gave them up, or no binding of an exchange took"),
    ],
)
def test_dead_letters_say_whence_they_came(names: list[str], part: str) -> None:
    """What an exchange could not route was given up by nobody."""
    console = lively()
    console.flow, console.queue.channels = FakeFlow(), []
    console.queue.queues = [queue_of(name, "t", "c", 3) for name in names]

    assert part in Client(console).get("/").shown
