"""Which processes of a cluster die, how, and in which order they come back."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Final, Literal

from attrs import frozen

from tinymq.verify.fleet import META

#: SIGKILL, SIGTERM, or SIGSTOP and later SIGCONT.
How = Literal["kill", "stop", "pause"]

#: Seconds for which something is away at least: longer than the deadline of a
#: producer's call, so that such a deadline passes.
AWAY: Final = 6.0
#: How many cases the matrix has, and its short form.
CASES: Final = 10
SHORT_CASES: Final = 2
#: Seconds of standing still: longer than a broker's lease.
STILL: Final = 20.0


@frozen(kw_only=True)
class Case:
    """
    One entry of the matrix.

    Attributes:
        name: For people.
        victims: Who is struck, all at once.
        revived: In which order they are started again; each must serve before the
            next one follows.
        how: What is done to them.
        seconds: How long they are away at least.
    """

    name: str
    victims: tuple[str, ...]
    revived: tuple[str, ...]
    how: How = "kill"
    seconds: float = AWAY

    @property
    def brokers(self) -> tuple[str, ...]:
        """The brokers among the victims."""
        return tuple(name for name in self.victims if name != META)

    @property
    def strikes_meta(self) -> bool:
        """Whether the MetaServer is among the victims."""
        return META in self.victims


def one(name: str, how: How = "kill", seconds: float = AWAY) -> Case:
    """Make a case that strikes one process."""
    words = {"kill": "SIGKILL", "stop": "SIGTERM", "pause": f"SIGSTOP {seconds:.0f} s"}[how]
    return Case(name=f"{words} {name}", victims=(name,), revived=(name,), how=how, seconds=seconds)


def together(first: str, second: str) -> Case:
    """Make a case that kills two processes at once."""
    names = (first, second)
    return Case(name=f"SIGKILL {first} and {second}", victims=names, revived=names)


def without_meta(broker: str) -> Case:
    """Make a case in which a broker dies and comes back while the MetaServer is away."""
    return Case(
        name=f"SIGKILL {broker}, back without {META}",
        victims=(META, broker),
        revived=(broker, META),
    )


def matrix(brokers: Sequence[str], chance: random.Random) -> list[Case]:
    """
    Give every case once, in an order that chance decides.

    Args:
        brokers: Their names, at least two.
        chance: Decides the order, and which broker is struck where one is enough.
    """
    pair = chance.sample(list(brokers), 2)
    cases = [
        *(one(name) for name in brokers),
        one(META),
        together(META, chance.choice(brokers)),
        without_meta(chance.choice(brokers)),
        together(pair[0], pair[1]),
        one(chance.choice(brokers), "stop"),
        one(META, "stop"),
        one(chance.choice(brokers), "pause", STILL),
    ]
    chance.shuffle(cases)
    return cases


def short(brokers: Sequence[str], chance: random.Random) -> list[Case]:
    """Give a few cases that take less than a minute."""
    chosen = chance.choice(brokers)
    return [one(chosen), without_meta(chance.choice(brokers))]


def rounds(brokers: Sequence[str], count: int, chance: random.Random) -> Iterator[Case]:
    """Give the whole matrix several times, each time in another order; the short form for 0."""
    if count == 0:
        yield from short(brokers, chance)
    for _ in range(count):
        yield from matrix(brokers, chance)
