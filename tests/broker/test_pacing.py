"""Counters are looked at while they move, a part at a time, and never otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.task import Clock

from tinymq.broker.pacing import Pacing


class Moving:
    """Channels of a partition that count how often they were looked at."""

    def __init__(self, channels: int = 1, told: Callable[[], object] = list) -> None:
        self.channels = channels
        self.looks = 0
        self._told = told

    def note(self) -> int:
        """Look at them."""
        self.looks += 1
        self._told()
        return self.channels


def test_who_moves_is_looked_at_once() -> None:
    """However often something moves in a second, it is looked at once, and then never again."""
    clock, busy, idle = Clock(), Moving(), Moving()
    pacing: Any = Pacing(clock)
    for _ in range(7):
        pacing.moved([busy])
        clock.advance(0.125)
    assert busy.looks == 0
    clock.advance(0.125)
    assert (busy.looks, idle.looks, pacing.resting) == (1, 0, True)
    clock.advance(100)
    assert busy.looks == 1
    assert clock.calls == []


def test_many_take_turns() -> None:
    """Of very many some are looked at in each turn; what moves meanwhile waits for a second."""
    clock = Clock()
    pacing: Any = Pacing(clock)
    seen: list[str] = []

    def told() -> None:
        if not seen:
            clock.callLater(0, seen.append, "somebody else")
            pacing.moved(many)
        seen.append("look")

    many = [Moving(300, told) for _ in range(5)]
    pacing.moved(many)
    clock.advance(1)
    assert seen == ["look", "look", "somebody else", "look", "look", "look"]
    clock.advance(0.875)
    assert [each.looks for each in many] == [1] * 5
    clock.advance(0.125)
    assert [each.looks for each in many] == [2] * 5


def test_end() -> None:
    """What is gone is not looked at, and after the end nothing is."""
    clock, gone, here = Clock(), Moving(), Moving()
    pacing: Any = Pacing(clock)
    pacing.moved([gone, here])
    pacing.forget(gone)
    clock.advance(1)
    assert (gone.looks, here.looks) == (0, 1)
    pacing.moved([here])
    pacing.close()
    pacing.moved([here])
    clock.advance(5)
    assert (here.looks, clock.calls) == (1, [])
