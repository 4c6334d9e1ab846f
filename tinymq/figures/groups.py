"""
The rows of all consumer groups, for lists that are in order of a figure.

Brokers are asked when somebody looks. Where an answer is quick, every look waits for a
fresh one; where it is not, a look takes what was known last and asks anew beside it, and
while nobody looks, nobody asks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from tinymq.broker.ports import Scheduler, WallClock
from tinymq.figures.depths import Depths
from tinymq.stats import Depth

#: Seconds that an answer is good for.
FRESH_SECONDS: Final = 1.0
#: A look at all of them that took longer is not waited for again.
QUICK_SECONDS: Final = 0.25
#: So many times as long as a look took, the next one waits at least.
REST: Final = 10
#: Groups of one question, and of all lists.
PAGE: Final = 500
MOST: Final = 10_000

Row = Mapping[str, Any]
#: Asks for the groups behind one, by name.
Ask = Callable[[str], Awaitable[Row]]


class Crowd:
    """
    The rows of all groups.

    Args:
        ask: Carries out ``group.list`` for one page.
        scheduler: Tells the time that passes.
        wall: Tells the time.
    """

    _log = Logger()

    def __init__(self, ask: Ask, scheduler: Scheduler, wall: WallClock) -> None:
        self._ask = ask
        self._scheduler = scheduler
        self._wall = wall
        self._rows: list[Row] = []
        self._silent: tuple[str, ...] = ()
        self._looked = float("-inf")
        self._took = 0.0
        self._running: Deferred[None] | None = None
        self._waiting: list[Deferred[None]] = []
        #: How many messages were before each group.
        self._lags = Depths()

    async def rows(self) -> tuple[list[Row], tuple[str, ...]]:
        """Return all groups in order of their names, and the names of the silent brokers."""
        age = self._scheduler.seconds() - self._looked
        if age >= max(FRESH_SECONDS, REST * self._took if self._slow else 0):
            done: Deferred[None] = Deferred()
            if not self._slow:
                self._waiting.append(done)
            self._begin()
            if not self._slow:
                await done
        return self._rows, self._silent

    @property
    def _slow(self) -> bool:
        return self._looked >= 0 and self._took > QUICK_SECONDS

    def lag(self, group: Row) -> Depth:
        """
        Tell what the lag of a group was.

        Args:
            group: As ``group.info`` just told it, whole; that is taken in.
        """
        now = self._wall()
        if not group["silent"] and group["group"]["lag"] is not None:
            self._lags.see(now, group["group"]["name"], group["group"]["lag"])
        return self._lags.depth(group["group"]["name"], now)

    def stop(self) -> None:
        """Ask no more."""
        if self._running is not None:
            self._running.cancel()

    def _begin(self) -> None:
        if self._running is None:
            self._running = Deferred.fromCoroutine(self._ask_all())
            self._running.addBoth(self._ended)

    async def _ask_all(self) -> None:
        began = self._scheduler.seconds()
        rows: list[Row] = []
        silent: dict[str, None] = {}
        after = ""
        while len(rows) < MOST:
            page = await self._ask(after)
            rows += page["groups"]
            silent |= dict.fromkeys(page["silent"])
            after = page["after"] or ""
            if not page["more"] or not after:
                break
        self._rows, self._silent = rows, tuple(silent)
        now = self._wall()
        self._lags.keep({row["name"] for row in rows})
        if not silent:
            known = [(row["name"], row["lag"]) for row in rows if row["lag"] is not None]
            self._lags.look(now, known)
        self._looked = self._scheduler.seconds()
        self._took = self._looked - began

    def _ended(self, result: Failure | None) -> None:
        self._running = None
        waiting, self._waiting = self._waiting, []
        failed = result if isinstance(result, Failure) else None
        if failed and not waiting and not isinstance(failed.value, CancelledError):
            self._log.failure("Cannot look at all groups", failed)
        for each in waiting:
            if failed:
                each.errback(failed)
            else:
                each.callback(None)
