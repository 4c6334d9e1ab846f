"""What is done to the processes of a trial and to their links, one after the other."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from tinymq.verify.fleet import META, Fleet
from tinymq.verify.history.cast import Actor
from tinymq.verify.history.proxy import Doors

#: How often each is chosen.
_WEIGHTS: Final = {
    "kill a client": 6,
    "leave": 4,
    "pause a client": 2,
    "kill a broker": 2,
    "kill the MetaServer": 1,
    "cut links": 3,
    "hold links": 1,
}
#: Seconds between two strikes, and until what was struck comes back.
_BETWEEN: Final = (0.2, 1.2)
_AWAY: Final = (0.2, 3.0)
#: Seconds that a client stands still: longer than its session, now and then.
_STILL: Final = (2.0, 12.0)


class Strikes:
    """
    Strikes until the time is over.

    Args:
        fleet: The brokers.
        actors: The clients that may be struck.
        doors: In front of the brokers.
        ports: The door of each broker.
        chance: Decides.

    Attributes:
        figures: How often what was done.
    """

    def __init__(
        self,
        fleet: Fleet,
        actors: Sequence[Actor],
        doors: Doors,
        ports: dict[str, int],
        chance: random.Random,
    ) -> None:
        self._fleet = fleet
        self._actors = list(actors)
        self._doors = doors
        self._ports = ports
        self._chance = chance
        #: What brings back what was struck, and when.
        self._due: list[tuple[float, Callable[[], None]]] = []
        self._away: set[str] = set()
        self.figures: Counter[str] = Counter()

    def run(self, seconds: float, tell: Callable[[str], None]) -> None:
        """
        Strike.

        Args:
            seconds: For how long.
            tell: Told before each strike.
        """
        end = time.monotonic() + seconds
        following = time.monotonic()
        while time.monotonic() < end:
            self._bring_back(time.monotonic())
            for actor in self._actors:
                actor.check()
            if time.monotonic() >= following:
                kind = self._chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
                if self._strike(kind):
                    self.figures[kind] += 1
                    tell(kind)
                following = time.monotonic() + self._chance.uniform(*_BETWEEN)
            time.sleep(0.02)
        self._bring_back(float("inf"))

    def _bring_back(self, now: float) -> None:
        for row in [row for row in self._due if row[0] <= now]:
            self._due.remove(row)
            row[1]()

    def _later(self, what: str, seconds: tuple[float, float], back: Callable[[], None]) -> None:
        self._away.add(what)

        def come_back() -> None:
            self._away.discard(what)
            back()

        self._due.append((time.monotonic() + self._chance.uniform(*seconds), come_back))

    def _strike(self, kind: str) -> bool:
        if kind in {"kill a client", "leave", "pause a client"}:
            return self._strike_client(kind)
        if kind == "kill the MetaServer":
            return self._kill(META)
        broker = self._chance.choice(self._fleet.brokers)
        if kind == "kill a broker":
            return self._kill(broker)
        port = self._ports[broker]
        if kind == "cut links":
            self._doors.cut(port)
            return True
        if f"door {port}" in self._away:
            return False
        self._doors.hold(port)
        self._later(f"door {port}", _AWAY, lambda: self._doors.let(port))
        return True

    def _strike_client(self, kind: str) -> bool:
        actor = self._chance.choice(self._actors)
        if actor.name in self._away or not actor.alive:
            return False
        if kind == "pause a client":
            actor.pause()
            self._later(actor.name, _STILL, actor.resume)
            return True
        if kind == "kill a client":
            actor.kill()
        else:
            actor.ask_to_stop()

        def again() -> None:
            actor.stop()
            actor.start()

        self._later(actor.name, _AWAY, again)
        return True

    def _kill(self, name: str) -> bool:
        """Kill a process of the cluster, unless one is away already."""
        if self._away & {*self._fleet.brokers, META}:
            return False
        process = self._fleet.processes[name]
        process.kill()

        def again() -> None:
            process.launch()
            process.wait()

        self._later(name, _AWAY, again)
        return True
