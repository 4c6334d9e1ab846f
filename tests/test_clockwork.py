"""What is done again and again, or little by little."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from twisted.internet.task import Clock

from tinymq.clockwork import Clockwork


def test_again_and_again() -> None:
    """A call comes every while, and is told how late it is."""
    clock = Clock()
    late: list[float] = []
    Clockwork(clock).every(2, late.append)
    for seconds in (2, 1.5, 1):
        clock.advance(seconds)
    assert late == [0, 0.5]


def test_a_failing_call_comes_again() -> None:
    """One that fails once is called the next time."""
    clock = Clock()
    called: list[float] = []

    def fail(late: float) -> None:
        called.append(late)
        raise ZeroDivisionError

    Clockwork(clock).every(1, fail)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            clock.advance(1)
    assert len(called) == 2


def test_little_by_little() -> None:
    """The first step is taken at once, and each other one in another turn, up to the last."""
    clock = Clock()
    steps = iter(range(3))
    Clockwork(clock).in_turns(steps)
    (call,) = clock.getDelayedCalls()
    assert call.getTime() == clock.seconds()
    assert list(steps) == [1, 2]
    clock.advance(0)
    assert clock.getDelayedCalls() == []


def test_stopped() -> None:
    """What was begun ends, be it calls or steps."""
    clock = Clock()
    clockwork = Clockwork(clock)
    taken: list[int] = []

    def steps() -> Iterator[None]:
        for step in range(3):
            taken.append(step)
            yield

    clockwork.every(1, lambda late: taken.append(-1))
    clockwork.in_turns(steps())
    clockwork.stop()
    clock.advance(5)
    assert taken == [0]
    assert clock.getDelayedCalls() == []
