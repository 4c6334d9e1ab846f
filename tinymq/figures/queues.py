"""
The rows of all channels, for lists that are in order of a figure, and added up.

Brokers tell the figures of channels when they are asked. Where there are few,
every look asks for all of them. Where there are very many, a look takes what was
known last and asks anew in turns of their own, some channels at a time, so that a
page never waits for thirty thousand of them; and while nobody looks, nobody asks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from heapq import nlargest
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from tinymq.broker.ports import Scheduler, WallClock
from tinymq.figures.depths import Depths
from tinymq.names import DEAD_LETTERS, OWN_CHANNELS
from tinymq.stats import Backlog, Depth

if TYPE_CHECKING:
    from tinymq.meta.registry import Registry

#: Seconds after which figures are asked for anew, if somebody looks.
FRESH_SECONDS: Final = 2.0
#: Channels that are asked about in one turn.
AT_ONCE: Final = 100
#: So many times as long as a look at all of them took, the next one waits at least.
REST: Final = 10
#: Topics and channels that lists of the worst have.
_WORST: Final = 5
_TROUBLED: Final = 20
_DRAWN: Final = ("ready", "in_flight")
_SUMS: Final = ("ready", "in_flight", "waiting", "given_up")
_TROUBLE: Final = frozenset({"stuck", "falling_behind", "no_consumers"})

#: Topic and name.
Place = tuple[str, str]
Row = dict[str, Any]


class Rows(Protocol):
    """Whoever describes channels."""

    def __call__(
        self, page: Sequence[Place], pattern: str = ""
    ) -> Awaitable[tuple[list[Row], list[str]]]:
        """Describe some channels, and name the brokers that were silent."""


class Queues:
    """
    The rows of all channels.

    Args:
        registry: Tells which channels there are.
        describe: Asks the brokers about some of them.
        scheduler: Calls in later turns.
        wall: Tells the time.
    """

    _log = Logger()

    def __init__(
        self,
        registry: Callable[[], Registry],
        describe: Rows,
        scheduler: Scheduler,
        wall: WallClock,
    ) -> None:
        self._registry = registry
        self.describe = describe
        self._scheduler = scheduler
        self._wall = wall
        self._rows: list[Row] = []
        self._silent: tuple[str, ...] = ()
        self._backlog: Backlog | None = None
        self._looked = float("-inf")
        self._took = 0.0
        self._running: Deferred[None] | None = None
        self._waiting: list[Deferred[None]] = []
        self._known: tuple[object, object] = (None, None)
        self._places: list[Place] = []
        #: The channels that count what is left of dead letters.
        self._graves: list[Place] = []
        self._dead: list[tuple[str, int]] = []
        #: How many messages were not settled, by channel, and of all together by where they are.
        self._lags = Depths()
        self._sums = Depths()

    def places(self) -> list[Place]:
        """Say which channels there are, in order of topic and name."""
        registry = self._registry()
        if self._known[0] is not registry.channels or self._known[1] is not registry.topics:
            self._known = registry.channels, registry.topics
            places = sorted(
                (registry.topics[topic_id].name, name)
                for topic_id, names in registry.channels.items()
                if topic_id in registry.topics
                for name in names
            )
            self._places = [each for each in places if not each[1].startswith(OWN_CHANNELS)]
            self._graves = [each for each in places if each[1] == DEAD_LETTERS]
            self._lags.keep({*self._places})
        return self._places

    async def rows(self) -> tuple[list[Row], tuple[str, ...]]:
        """Return the rows of all channels in order, and the names of the silent brokers."""
        await self._look()
        return self._rows, self._silent

    @property
    def few(self) -> bool:
        """Whether every look may ask for all of them."""
        return len(self.places()) + len(self._graves) <= AT_ONCE

    def known(self) -> list[Row]:
        """Return the rows that are known, and see to it that they stay so."""
        self._look_soon()
        return self._rows

    async def backlog(self) -> Backlog:
        """Add up all channels."""
        await self._look()
        if self._backlog is None:
            self._backlog = self._sum()
        return self._backlog

    def lag(self, channel: Mapping[str, Any]) -> Depth:
        """
        Tell what the lag of a channel was.

        Args:
            channel: As ``channel.info`` just told it; that is taken in.
        """
        now = self._wall()
        place = channel["topic"], channel["name"]
        if not channel["silent"]:
            self._lags.see(now, place, channel["lag"])
        return self._lags.depth(place, now)

    def stop(self) -> None:
        """Ask no more."""
        if self._running is not None:
            self._running.cancel()

    async def _look(self) -> None:
        """Wait for fresh figures where that is quick, else see to it that they come."""
        done: Deferred[None] | None = None
        if self._looked < 0 or self.few:
            done = Deferred()
            self._waiting.append(done)
        self._look_soon()
        if done is not None:
            await done

    def _look_soon(self) -> None:
        age = self._scheduler.seconds() - self._looked
        if self._running is None and (self.few or age >= max(FRESH_SECONDS, REST * self._took)):
            self._running = Deferred.fromCoroutine(self._ask_all())
            self._running.addBoth(self._ended)

    async def _ask_all(self) -> None:
        silent: set[str] = set()
        began = self._scheduler.seconds()
        places = self.places()
        graves = self._graves
        rows = await self._ask_some([*places, *graves], silent)
        own = [row for row in rows if row["name"].startswith(OWN_CHANNELS)]
        dead = [(row["topic"], row["lag"]) for row in own if row["lag"]]
        self._dead = sorted(dead, key=lambda row: (-row[1], row[0]))
        self._rows = [row for row in rows if not row["name"].startswith(OWN_CHANNELS)]
        self._silent = tuple(sorted(silent))
        self._backlog = None
        self._remember()
        self._looked = self._scheduler.seconds()
        self._took = self._looked - began

    def _remember(self) -> None:
        """Keep what is known in full; a part of the lag would look like a fall of it."""
        now, rows = self._wall(), self._rows
        if self._silent:
            rows = [row for row in rows if not any(w["cause"] == "offline" for w in row["why"])]
        else:
            self._sums.look(now, [(key, sum(map(itemgetter(key), rows))) for key in _DRAWN])
        self._lags.look(now, [((row["topic"], row["name"]), row["lag"]) for row in rows])

    async def _ask_some(self, places: Sequence[Place], silent: set[str]) -> list[Row]:
        rows: list[Row] = []
        for first in range(0, len(places), AT_ONCE):
            if first:
                await self._turn()
            some, missing = await self.describe(places[first : first + AT_ONCE])
            rows += some
            silent.update(missing)
        return rows

    def _turn(self) -> Deferred[None]:
        later: Deferred[None] = Deferred()
        self._scheduler.callLater(0, later.callback, None)
        return later

    def _ended(self, result: Failure | None) -> None:
        self._running = None
        waiting, self._waiting = self._waiting, []
        if (
            isinstance(result, Failure)
            and not waiting
            and not isinstance(result.value, CancelledError)
        ):
            self._log.failure("Cannot look at all channels", result)
        for each in waiting:
            if isinstance(result, Failure):
                each.errback(result)
            else:
                each.callback(None)

    def _sum(self) -> Backlog:
        rows, now = self._rows, self._wall()
        troubled = [row for row in rows if row["state"] in _TROUBLE and row["lag"]]
        lagging = [row for row in rows if row["lag"]]
        late = [row for row in lagging if row["lag_ms"] is not None]
        lag = itemgetter("lag")
        return Backlog(
            taken_ms=now,
            channels=len(rows),
            **{key: sum(map(itemgetter(key), rows)) for key in _SUMS},
            dead_letters=sum(count for _, count in self._dead),
            dead_queues=tuple(self._dead[:_WORST]),
            worst=tuple(nlargest(_WORST, lagging, lag)),
            latest=max(late, key=itemgetter("lag_ms"), default=None),
            troubled=tuple(nlargest(_TROUBLED, troubled, lag)),
            troubled_count=len(troubled),
            silent=self._silent,
            ready_depth=self._sums.depth("ready", now),
            in_flight_depth=self._sums.depth("in_flight", now),
        )
