"""The waiting of the blocking client: what is due is done, however busy its callers are."""

from __future__ import annotations

from typing import Any, cast

from twisted.internet.task import Clock

from tinymq.client.core.cluster import Cluster
from tinymq.sync.loop import Loop
from tinymq.sync.network import SocketNetwork


class Due:
    """Something that is due again and again, a while after it was done."""

    def __init__(self, clock: Clock, period: float) -> None:
        self.wake_at = 0.0
        self.done = 0
        self._clock = clock
        self._period = period

    def tick(self, now: float) -> None:
        """Do it."""
        self.done += 1
        self.wake_at = now + self._period


class Sockets:
    """One socket that always has something to read, which takes a millisecond."""

    patience = 0.0

    def __init__(self, clock: Clock) -> None:
        self.found: list[Any] = []
        self.read: list[Any] = []
        self._clock = clock

    def __len__(self) -> int:
        return 1

    def wait(self, timeout: float) -> list[Any]:
        """Find something at once."""
        self._clock.advance(0.001 if timeout else 0.0)
        return self.found

    def work(self, found: list[Any], now: float) -> None:
        """Read it."""
        self.read += found


def loop_of(clock: Clock, due: Due) -> Loop:
    """Make a loop over these."""
    loop = Loop(cast("SocketNetwork", Sockets(clock)), clock.seconds)
    loop.cluster = cast("Cluster", due)
    return loop


def test_calls_that_never_wait() -> None:
    """Links come back and metadata is read anew, though every call has its answer at once."""
    clock = Clock()
    due = Due(clock, 0.1)
    loop = loop_of(clock, due)
    for _ in range(1000):
        answers = iter([False, True])
        assert loop.run(lambda answers=answers: next(answers), clock.seconds() + 1)  # type: ignore[misc]
    assert 1 <= clock.seconds() <= 1.1
    assert due.done >= 10
    for _ in range(1000):
        clock.advance(0.001)
        assert loop.run(lambda: True, clock.seconds() + 1)
    assert due.done >= 19


def test_nothing_is_due() -> None:
    """While nothing is due a call that has its answer does nothing else."""
    clock = Clock()
    due = Due(clock, 1000.0)
    loop = loop_of(clock, due)
    for _ in range(100):
        assert loop.run(lambda: True, clock.seconds() + 1)
        clock.advance(0.1)
    assert due.done == 1


def test_what_came_between_two_calls() -> None:
    """Before anything is written the news are read, such as the end of a connection."""
    clock = Clock()
    loop = loop_of(clock, Due(clock, 1.0))
    sockets = cast("Sockets", loop.network)
    loop.hear()
    assert sockets.read == []
    sockets.found = ["the end"]
    loop.hear()
    assert sockets.read == ["the end"]
