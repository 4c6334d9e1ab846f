"""Members of a group on several brokers, of which one looks after the group."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.cluster.conftest import Make
from tests.fakes.whole_cluster import WholeCluster
from tinymq.client.group import GroupConsumer
from tinymq.groups.places import coordinator_of


class Town:
    """Three brokers, a topic with partitions on each, and members of one group."""

    def __init__(self, cluster: WholeCluster) -> None:
        self.cluster = cluster
        self.cluster.operate("b1", "topic.create", name="t", partitions=6)
        self.sender = cluster.client("b1", "b2", "b3")
        self.members: list[GroupConsumer] = []
        self.seen: list[bytes | None] = []
        self.idle: dict[int, float] = {}
        self.sent = 0

    def join(self, **settings: Any) -> GroupConsumer:
        """Let a member in."""
        client = self.cluster.client("b1", "b2", "b3")
        member = client.group("g", ["t"], commit_s=0.2, **settings)
        self.members.append(member)
        return member

    def put(self, *partitions: int) -> None:
        """Publish one message to each of some partitions."""
        for partition in partitions or range(6):
            self.cluster.publish(self.sender, "t", b"%d" % self.sent, partition=partition)
            self.sent += 1

    def work(self) -> None:
        """Let all members handle what there is."""
        for member in self.members:
            while (message := member._core.take()) is not None:
                member._core.more(member.seconds())
                self.seen.append(message.value)
                message.done()

    def go(self, seconds: float) -> None:
        """Let time pass, while members work."""
        for _ in range(round(seconds * 10)):
            self.cluster.advance(0.1)
            self.work()

    @property
    def coordinator(self) -> str:
        """Name of the broker that looks after the group."""
        live = {
            self.cluster[name].broker.id: name
            for name in ("b1", "b2", "b3")
            if self.cluster[name].running
        }
        return live[coordinator_of("g", live)]

    def owners(self) -> dict[int, int]:
        """Which member reads each partition."""
        return {
            partition: place
            for place, member in enumerate(self.members)
            for _, partition in member.assigned
        }


def test_the_coordinator_dies(make: Make) -> None:
    """When the coordinator is killed, all go on with what they have, and nothing moves."""
    town = Town(make(3).start())
    town.join()
    town.join()
    town.go(5)
    town.put()
    town.go(1)
    before = town.owners()
    dead = town.coordinator
    town.cluster[dead].kill()
    town.go(10)
    assert town.owners() == before
    assert sorted(before) == list(range(6))
    town.cluster[dead].start()
    town.go(10)
    town.put()
    town.go(3)
    assert town.owners() == before
    assert len(town.seen) == len(set(town.seen)) == town.sent


def test_a_member_joins_while_the_coordinator_is_away(make: Make) -> None:
    """Another broker looks after the group: a newcomer is given its part there."""
    town = Town(make(3).start())
    town.join()
    town.go(5)
    dead = town.coordinator
    leaders = town.cluster.meta.describe("t").leaders
    led = {at for at, number in enumerate(leaders) if number == town.cluster[dead].broker.id}
    town.cluster[dead].kill()
    town.join()
    town.go(15)
    # Nobody takes over what the dead broker leads; who had it before keeps it.
    old, new = ({partition for _, partition in member.assigned} for member in town.members)
    assert len(old) == 3
    assert new == set(range(6)) - old - led
    town.cluster[dead].start()
    town.go(10)
    assert [len(member.assigned) for member in town.members] == [3, 3]


def storm(town: Town, random: Random, steps: int) -> None:
    """Brokers die and come back, members come and go, and messages are published."""
    names = ("b1", "b2", "b3")
    down: str | None = None
    for _ in range(steps):
        match random.randrange(8):
            case 0 if down is None:
                down = random.choice(names)
                town.cluster[down].kill()
            case 1 if down is not None:
                town.cluster[down].start()
                down = None
            case 2 if len(town.members) < 4:
                town.join(session_s=6.0)
            case 3 if len(town.members) > 1:
                town.members.pop(random.randrange(len(town.members))).close()
            case 4 | 5 if down is None:
                town.put(*random.sample(range(6), 2))
        town.go(random.choice((0.1, 0.5, 2.0)))
    if down is not None:
        town.cluster[down].start()


@pytest.mark.parametrize("seed", range(2))
def test_brokers_die_and_members_come_and_go(make: Make, seed: int) -> None:
    """Whatever dies, every message is handled, and all is committed in the end."""
    town = Town(make(3).start())
    town.join(session_s=6.0)
    town.go(3)
    storm(town, Random(seed), 25)
    town.go(20)
    assert {int(value or b"") for value in town.seen} == set(range(town.sent))
    found = town.cluster.run(town.sender.positions("g").committed("t"))
    assert sum(one.lag for one in found.values()) == 0
    assert sorted(town.owners()) == list(range(6))
