"""The rows of all groups: asked for when somebody looks, page by page, and remembered."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from tinymq.errors import StateError
from tinymq.figures.groups import Crowd

NOW = 1_795_962_726_000


def row(name: str, lag: int = 0) -> dict[str, Any]:
    """Make a group in a list."""
    return {"name": name, "lag": lag}


class Asked:
    """What answers `group.list`: at once, or when it is told to."""

    def __init__(self, *pages: list[dict[str, Any]]) -> None:
        self.pages = list(pages)
        self.asked: list[str] = []
        self.held: list[Deferred[None]] = []
        self.holds = False
        self.silent: list[str] = []
        self.failure: Exception | None = None

    async def __call__(self, after: str) -> dict[str, Any]:
        """Answer with the page behind a name."""
        self.asked.append(after)
        if self.holds:
            waiting: Deferred[None] = Deferred()
            self.held.append(waiting)
            await waiting
        if self.failure is not None:
            raise self.failure
        index = 0 if not after else [page[-1]["name"] for page in self.pages].index(after) + 1
        more = index + 1 < len(self.pages)
        page = self.pages[index]
        last = page[-1]["name"] if more else None
        return {"groups": page, "more": more, "after": last, "silent": self.silent}


def make(asked: Asked) -> tuple[Crowd, Clock]:
    """Make a crowd with a clock that is set."""
    clock = Clock()
    return Crowd(asked, clock, lambda: NOW + round(clock.seconds() * 1000)), clock


def look(crowd: Crowd) -> list[Any]:
    """Look at all rows; the list fills when they are there."""
    found: list[Any] = []
    Deferred.fromCoroutine(crowd.rows()).addBoth(found.append)
    return found


def test_all_pages_are_asked_for() -> None:
    """One behind the other, and not again at once."""
    asked = Asked([row("a"), row("b")], [row("c")])
    crowd, clock = make(asked)
    ((rows, silent),) = look(crowd)
    assert ([each["name"] for each in rows], silent) == (["a", "b", "c"], ())
    look(crowd)
    assert asked.asked == ["", "b"]
    clock.advance(1.1)
    look(crowd)
    assert len(asked.asked) == 4


def test_slow_looks_are_not_waited_for() -> None:
    """The first look waits; those after a slow one take what is known, and asks rest longer."""
    asked = Asked([row("a")])
    asked.holds = True
    crowd, clock = make(asked)
    first, second = look(crowd), look(crowd)
    assert (first, second, len(asked.asked)) == ([], [], 1)
    clock.advance(2)
    asked.held[0].callback(None)
    assert len(first) == len(second) == 1
    clock.advance(5)
    assert len(look(crowd)) == 1
    assert len(asked.asked) == 1
    asked.pages = [[row("b")]]
    clock.advance(16)
    ((rows, _),) = look(crowd)
    assert ([each["name"] for each in rows], len(asked.asked)) == (["a"], 2)
    asked.held[1].callback(None)
    ((rows, _),) = look(crowd)
    assert [each["name"] for each in rows] == ["b"]


def test_lags_are_remembered() -> None:
    """Looks at all, and at one, make its curve; what is told in part does not."""
    asked = Asked([row("a", 10)])
    crowd, clock = make(asked)
    look(crowd)
    clock.advance(4)
    told: dict[str, Any] = {"group": row("a", 30), "silent": []}
    assert crowd.lag(told).recent.values == (10, 20, 30)
    clock.advance(2)
    assert crowd.lag({"group": row("a", 1), "silent": ["mq-2"]}).recent.values == (10, 20, 30)
    asked.silent, asked.pages = ["mq-2"], [[row("a", 2)]]
    clock.advance(2)
    assert look(crowd)[0][1] == ("mq-2",)
    assert crowd.lag({"group": row("a", 1), "silent": ["mq-2"]}).recent.values == (10, 20, 30)


def test_failures_are_told() -> None:
    """Who waits hears why; the next look asks again."""
    asked = Asked([row("a")])
    asked.failure = StateError("not now")
    crowd, _ = make(asked)
    (failure,) = look(crowd)
    assert isinstance(failure.value, StateError)
    asked.failure = None
    ((rows, _),) = look(crowd)
    assert len(rows) == 1


@pytest.mark.filterwarnings("error")
def test_stopping_ends_a_look() -> None:
    """What is under way is let go of."""
    asked = Asked([row("a")])
    asked.holds = True
    crowd, _ = make(asked)
    found = look(crowd)
    crowd.stop()
    assert len(found) == 1
    crowd.stop()
