"""Random spells of a bad endpoint, with kills: nothing is lost, nothing is settled unproven."""

from __future__ import annotations

import random

import pytest

from tests.cluster.conftest import Make
from tests.push.net import OK, Request, Wire, answer
from tests.push.town import HOOK, Town

#: What the endpoint may do with a request; None is nothing at all.
MOODS = (
    *((OK,) * 4),
    answer("500 Oops"),
    answer("503 Busy", Retry_After="3"),
    answer("307 There", Location=HOOK),
    b"HTTP/1.1 2",
    b"",
    None,
)


def test_nothing_is_lost(make: Make) -> None:
    """Each message gets its 2xx in the end, and none is settled before it had one."""
    play(make, 0, 2)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100))
def test_nothing_is_lost_for_long(make: Make, seed: int) -> None:
    """The same, longer and often."""
    play(make, seed, 12)


def play(make: Make, seed: int, rounds: int) -> None:
    """Publish, kill and wait, and look at what became of all that."""
    chance = random.Random(seed)
    taken: set[bytes] = set()

    def behave(request: Request, wire: Wire) -> None:
        said = chance.choice(MOODS) if unwell else OK
        if said == b"":
            wire.end()
        elif said is not None:
            if said == OK:
                taken.add(request.body)
            wire._net.callLater(chance.choice((0, 0, 0.2)), wire.say, said)

    unwell = True
    town = Town(make(), behave)
    config = {"attempts": 10_000, "backoff": ["1s"], "lease.ms": 5000}
    town.prepare(partitions=3, timeout_ms=1000, concurrency=3, give_up=1000, config=config)
    sent = 0
    for _ in range(rounds):
        for _ in range(chance.randrange(4)):
            town.publish(b"%d" % sent, partition=chance.randrange(3))
            sent += 1
        town.cluster.advance(chance.choice((0.1, 1, 4)))
        broker = chance.choice(("b1", "b2", "meta", ""))
        if broker:
            process = town.cluster[broker]
            process.kill() if chance.random() < 0.6 else process.stop()
            if chance.random() < 0.3:
                town.cluster.advance(chance.choice((0.5, 6)))
            town.start(broker)
            town.cluster.advance(0.5)
        if not town.cluster.run(_lag_is_known(town)):
            continue
        assert town.lag >= sent - len(taken)
    unwell = False
    town.cluster.advance(60)
    town.cluster.until(lambda: len(taken) == sent, 600)
    town.cluster.advance(30)
    assert town.lag == 0
    assert taken == {b"%d" % number for number in range(sent)}


async def _lag_is_known(town: Town) -> bool:
    """Whether every broker answers, so that the lag is of all partitions."""
    told = await town.client.admin.channel("t", "c")
    return not told["channel"]["silent"]
