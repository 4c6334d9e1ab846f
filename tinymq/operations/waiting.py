"""Waiting for something to change, for no longer than somebody wants to know of it."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred

from tinymq.broker.ports import Scheduler
from tinymq.caller import LOCAL, Caller

#: Has a callback called whenever something may have changed; returns what ends that.
Watch = Callable[[Callable[..., None]], Callable[[], None]]


async def until(
    watch: Watch,
    holds: Callable[[], bool],
    seconds: float,
    scheduler: Scheduler,
    caller: Caller = LOCAL,
) -> bool:
    """
    Wait until something holds, time is up, or nobody waits any more.

    Args:
        watch: Tells when to look again.
        holds: What is waited for.
        seconds: For how long.
        scheduler: Measures them.
        caller: Who wants to know; nothing is left behind when they go.

    Returns:
        Whether it holds.
    """
    if holds():
        return True
    waiting: Deferred[None] = Deferred()

    def wake() -> None:
        if not waiting.called:
            waiting.callback(None)

    def look(*_: object) -> None:
        if holds():
            wake()

    unwatch, stay = watch(look), caller.on_gone(wake)
    timer = scheduler.callLater(seconds, wake)
    try:
        await waiting
    finally:
        unwatch()
        stay()
        if timer.active():
            timer.cancel()
    return holds()
