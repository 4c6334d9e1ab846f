"""Random lives of a group: its members do what members do, and so does everything else."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping

from tests.groups.stage import FakeTopic, Person, Stage, topic

#: What may happen, and how often.
WEIGHTS: Mapping[str, int] = {
    "join": 6,
    "leave": 4,
    "crash": 2,
    "silence": 2,
    "restart": 3,
    "slow": 2,
    "fail_over": 2,
    "topics": 2,
    "fence": 2,
    "twin": 1,
    "lose": 2,
    "evict": 1,
    "wait": 8,
}
#: Of these, nobody is robbed: no partition is ever read by two.
ORDERLY = ("join", "leave", "crash", "restart", "fail_over", "topics", "fence", "lose", "wait")
STRATEGIES = ("cooperative-sticky", "cooperative-sticky", "sticky", "range", "roundrobin")


class Life:
    """
    One life.

    Args:
        seed: Decides everything.
        steps: How many things happen.
        orderly: Whether only such things happen of which nobody is robbed.
    """

    def __init__(self, seed: int, steps: int, *, orderly: bool) -> None:
        self.random = random.Random(seed)
        self.steps = steps
        self.orderly = orderly
        self.done: Counter[str] = Counter()
        self.strategy = self.random.choice(STRATEGIES)
        self.version = 0
        self.found = [topic("t", self.random.randrange(1, 9)), topic("u", 3)]
        self.stage = Stage(*self.found)
        self.stage.latency = self.random if self.random.random() < 0.7 else None
        self.names = iter(f"m{number}" for number in range(10_000))
        self.instances = [f"i{number}" for number in range(4)]
        self.generation = 0

    def play(self) -> Counter[str]:
        """Live it."""
        acts: dict[str, Callable[[], None]] = {
            name: getattr(self, f"do_{name}") for name in WEIGHTS
        }
        names = ORDERLY if self.orderly else tuple(WEIGHTS)
        weights = [WEIGHTS[name] for name in names]
        for _ in range(self.steps):
            name = self.random.choices(names, weights)[0]
            self.done[name] += 1
            acts[name]()
            self.stage.run(self.random.choice((20, 100, 400)))
            assert self.stage.group.generation >= self.generation or name == "fail_over"
            self.generation = self.stage.group.generation
        self._rest()
        return self.done

    def _rest(self) -> None:
        """Nothing happens any more: all that is there is read, and nothing moves."""
        stage = self.stage
        for person in stage.people.values():
            person.drain_ms = min(person.drain_ms, 1000)
        stage.run(40_000)
        if not [each for each in stage.people.values() if not each.over]:
            self._come(instance=None)
            stage.run(40_000)
        stage.settled(even=self.strategy != "range")
        stage.robbed = False
        taken = stage.taken
        stage.run(6000)
        stage.settled(even=self.strategy != "range")
        assert stage.taken == taken

    # --- what may happen ----------------------------------------------------------------

    def _come(self, instance: str | None) -> Person:
        return self.stage.join(
            next(self.names),
            *(("t", "u") if self.strategy in ("range", "sticky") else ("t",)),
            instance=instance,
            patterns=["u|x.*"],
            strategy=self.strategy,
            drain_ms=self.random.choice((0, 0, 20, 300)),
        )

    def _one(self) -> Person | None:
        people = [each for each in self.stage.people.values() if not each.over]
        return self.random.choice(people) if people else None

    def do_join(self) -> None:
        """Somebody comes."""
        if len(self.stage.people) < 12:
            self._come(None)

    def do_leave(self) -> None:
        """Somebody goes in good order."""
        if (person := self._one()) is not None:
            self.stage.robbed |= self.stage.now.mono < person.mute
            self.stage.leave(person.name)

    def do_lose(self) -> None:
        """Somebody's connection is lost, with the answers on it."""
        if (person := self._one()) is not None:
            self.stage.lose(person.name)

    def do_crash(self) -> None:
        """Somebody dies without a word."""
        if (person := self._one()) is not None:
            self.stage.crash(person.name)

    def do_silence(self) -> None:
        """Somebody hears and says nothing for a while."""
        if (person := self._one()) is not None:
            ms = self.random.choice((500, 3000, 12_000))
            self.stage.robbed |= ms > 5000
            self.stage.silence(person.name, ms)

    def do_restart(self) -> None:
        """A static member dies or goes, and comes again."""
        instance = self.random.choice(self.instances)
        for person in [each for each in self.stage.people.values() if each.instance == instance]:
            if self.random.random() < 0.5:
                self.stage.crash(person.name)
            else:
                self.stage.leave(person.name)
        self.stage.run(self.random.choice((0, 200)))
        self._come(instance)

    def do_twin(self) -> None:
        """A second process of one instance: the newer wins."""
        living = [each.instance for each in self.stage.people.values() if each.instance]
        if living:
            self.stage.robbed = True
            self._come(self.random.choice(living))

    def do_slow(self) -> None:
        """Somebody gives up slowly from now on."""
        if (person := self._one()) is not None:
            person.drain_ms = self.random.choice((2000, 7000))
            self.stage.robbed |= person.drain_ms >= person.rebalance_ms

    def do_fail_over(self) -> None:
        """The coordinator dies."""
        # Who comes when all was given out already is late.
        pause_ms = 1500 if self.orderly else self.random.choice((0, 1000))
        self.stage.robbed |= not self.orderly
        self.stage.fail_over(self.random, pause_ms)
        self.generation = 0

    def do_topics(self) -> None:
        """A topic gets partitions, is made anew, comes or goes."""
        found: list[FakeTopic] = list(self.found)
        which = self.random.randrange(4)
        if which == 0:
            found[0] = topic("t", found[0].partitions + 1, self.version)
        elif which == 1:
            self.version += 1
            found[0] = topic("t", found[0].partitions, self.version)
        elif which == 2:
            found = [*found[:2], topic("x1", 2)]
        else:
            found = found[:2]
        self.found = found
        self.stage.set_topics(*found)

    def do_fence(self) -> None:
        """Somebody moves a position by hand, so a member hears that it is fenced."""
        if (person := self._one()) is not None and person.holds:
            place = self.random.choice(sorted(person.holds))
            fence = max(self.stage.fences[place] + 1, self.stage.now.wall)
            self.stage.fences[place] = fence
            person.holds.pop(place)
            person.draining.pop(place, None)
            person.generation = max(person.generation, fence)
            if self.stage.now.mono >= person.mute:
                self.stage.say(person)

    def do_evict(self) -> None:
        """Somebody is sent away."""
        if (person := self._one()) is not None and person.name in self.stage.group.members:
            self.stage.robbed = True
            self.stage.group.evict(self.stage.group.find(person.name), "test", self.stage.now)

    def do_wait(self) -> None:
        """Nothing happens."""
        self.stage.run(self.random.choice((100, 1000, 3000)))


def live(seed: int, steps: int = 30) -> Counter[str]:
    """Live a life, every other one an orderly one, and say what happened in it."""
    return Life(seed, steps, orderly=seed % 2 == 0).play()
