"""Threads that wait for the disk: whoever waits for one is always told."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import pytest
from twisted.logger import globalLogPublisher

from tests.fakes.broker import LogKeeper
from tinymq.ground import ThreadBackground


class Reactor:
    """The one thing that is asked of a reactor."""

    def __init__(self) -> None:
        self.calls: SimpleQueue[tuple[Callable[..., object], tuple[Any, ...]]] = SimpleQueue()

    def callFromThread(self, call: Callable[..., object], *args: Any) -> None:  # noqa: N802
        """Take a call to be made by `run`."""
        self.calls.put((call, args))

    def run(self, count: int) -> None:
        """Make so many calls."""
        for _ in range(count):
            call, args = self.calls.get(timeout=10)
            call(*args)


@pytest.mark.parametrize(
    ("error", "calls", "failures"), [(None, 1, 0), (OSError(), 1, 0), (ValueError("odd"), 2, 1)]
)
def test_done_is_called(error: Exception | None, calls: int, failures: int) -> None:
    """However the work ended, who waits hears of it; what nobody expected is logged."""
    reactor, told, logged = Reactor(), [], LogKeeper()
    background = ThreadBackground(reactor)

    def work() -> None:
        if error is not None:
            raise error

    globalLogPublisher.addObserver(logged)
    try:
        background.submit(work, lambda: told.append("done"))
        reactor.run(calls)
    finally:
        globalLogPublisher.removeObserver(logged)
        background.stop()

    assert told == ["done"]
    assert len(logged.failures) == failures
    assert reactor.calls.empty()
