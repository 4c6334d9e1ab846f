"""Gaps between moments, and calls that take too long."""

from __future__ import annotations

import pytest
from twisted.internet.task import Clock

from tinymq.verify.beats import Beats


@pytest.fixture
def clock() -> Clock:
    """Return a clock that stands still."""
    return Clock()


@pytest.fixture
def beats(clock: Clock) -> Beats:
    """Return beats of one name at 1, 2, 5 and 6 seconds."""
    beats = Beats(clock.seconds)
    for seconds in (1, 1, 3, 1):
        clock.advance(seconds)
        beats.beat("some")
    return beats


@pytest.mark.parametrize(
    ("start", "end", "gap"),
    [(0, 10, 4), (1, 6, 3), (1.5, 4, 2), (3, 5.5, 3), (5.5, 6, 1), (7, 9, 3), (0, 0.5, 0.5)],
)
def test_gap(beats: Beats, start: float, end: float, gap: float) -> None:
    """The longest gap begins with the last beat before the start, and ends at the end."""
    assert beats.gap("some", start, end) == gap


def test_gaps_of_several(beats: Beats) -> None:
    """Of several names the worst counts; one that never moved has one gap only."""
    assert beats.longest_gap(["some", "none"], 0, 8) == 8
    assert beats.longest_gap([], 0, 8) == 0


def test_first(beats: Beats) -> None:
    """The first beat since a moment is found, if there is one."""
    assert beats.first("some", 2.5) == 5
    assert beats.first("some", 5) == 5
    assert beats.first("some", 6.5) is None


def test_calls(beats: Beats, clock: Clock) -> None:
    """The longest call of each kind is kept, and every one that broke its deadline is told."""
    beats.took("send", clock.seconds() - 2, 3)
    beats.took("send", clock.seconds() - 1, 3)
    assert (beats.longest, beats.overruns) == ({"send": 2}, [])
    clock.advance(10)
    beats.took("send", clock.seconds() - 10, 3)
    assert beats.overruns == [("send", 10)]
