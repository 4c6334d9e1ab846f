"""Groups of real consumers on a real broker in memory, in bad weather."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from typing_extensions import override

from tinymq.client import Client
from tinymq.client.group import GroupConsumer
from tinymq.testing import InProcessBroker

SEED = 7


class Weather:
    """
    A broker, members that come and go, and what they handled.

    Attributes:
        seen: Offsets handled, by topic and partition, in order.
        at: When something of a partition was handled last.
    """

    def __init__(self, broker: InProcessBroker, partitions: int, **settings: Any) -> None:
        self.broker = broker
        self.settings = {"commit_s": 0.05, "rebalance_s": 5.0, "session_s": 6.0, **settings}
        broker.create_topic("t", partitions)
        self.sender = broker.client()
        self.producer = self.sender.producer()
        self.members: list[tuple[Client, GroupConsumer]] = []
        self.seen: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        self.at: dict[tuple[str, int], float] = {}
        self.sent = 0

    def put(self, count: int = 1) -> None:
        """Publish some messages with keys."""
        for _ in range(count):
            self.producer.send("t", b"%d" % self.sent, b"%d" % (self.sent % 50)).addErrback(_drop)
            self.sent += 1

    def join(self, **more: Any) -> GroupConsumer:
        """Let one more member in."""
        client = self.broker.client()
        consumer = client.group("g", ["t"], **{**self.settings, **more})
        self.members.append((client, consumer))
        return consumer

    def leave(self, place: int) -> None:
        """Let a member leave in peace."""
        client, _ = self.members.pop(place)
        client.close()

    def crash(self, place: int) -> None:
        """Let a member vanish without a word."""
        client, consumer = self.members.pop(place)
        self.broker.cut(client)
        core = consumer._core
        core.membership.stop()
        for share in tuple(core.hands.shares.values()):
            core.hands.drop(share)
        client.close()

    def handle(self, _: GroupConsumer, message: Any) -> None:
        """Note what was handled."""
        where = message.topic, message.partition
        self.seen[where].append(message.offset)
        self.at[where] = self.broker.clock.seconds()
        message.done()

    def work(self, most: int = 1000) -> None:
        """Let every member handle what it has."""
        for _, consumer in self.members:
            for _ in range(most):
                message = consumer._core.take()
                if message is None:
                    break
                consumer._core.more(self.broker.clock.seconds())
                self.handle(consumer, message)

    def handled(self) -> int:
        """How many records were handled at least once."""
        return sum(len(set(offsets)) for offsets in self.seen.values())

    def lag(self) -> int:
        """How far the group is behind."""
        found = self.broker.run(self.sender.positions("g").committed("t"))
        return sum(one.lag for one in found.values())

    def stored(self) -> int:
        """How many records there are."""
        return len(self.broker.records("t"))

    def end(self) -> None:
        """Close all."""
        for client, _ in self.members:
            self.broker.run(client.close())
        self.broker.run(self.sender.close())


def _drop(_: object) -> None:
    """It is told elsewhere."""


@pytest.fixture
def broker() -> Iterator[InProcessBroker]:
    """A broker."""
    with InProcessBroker() as made:
        yield made


def churn(weather: Weather, seconds: float, random: Random) -> None:
    """Commit every 10 ms while members join and leave every 500 ms."""
    clock = weather.broker.clock
    idle = 0.0
    for step in range(round(seconds * 100)):
        if step % 50 == 0:
            if len(weather.members) > 1 and random.random() < 0.5:
                weather.leave(random.randrange(len(weather.members)))
            elif len(weather.members) < 6:
                weather.join()
        if step % 5 == 0:
            weather.put(4)
        weather.work()
        for _, consumer in weather.members:
            consumer.commit_soon()
        weather.broker.advance(0.01)
        for where in [("t", one) for one in range(4)]:
            idle = max(idle, clock.seconds() - weather.at.setdefault(where, clock.seconds()))
    assert idle <= 2.0, idle


def settle(weather: Weather) -> None:
    """Let everything be handled and committed."""
    for _ in range(200):
        weather.work()
        weather.broker.advance(0.1)
        if weather.handled() == weather.sent and not weather.lag():
            break
    assert weather.handled() == weather.sent
    assert weather.lag() == 0


def test_commits_while_members_come_and_go(broker: InProcessBroker) -> None:
    """Nobody falls silent while there is something to read, and nothing is left unread."""
    weather = Weather(broker, 4)
    weather.join()
    churn(weather, 4, Random(SEED))
    settle(weather)
    weather.end()


@pytest.mark.long
def test_commits_while_members_come_and_go_for_a_minute(broker: InProcessBroker) -> None:
    """The same, for as long as it takes to meet what is rare."""
    weather = Weather(broker, 4)
    weather.join()
    churn(weather, 60, Random(SEED + 1))
    settle(weather)
    weather.end()


class Patient(Weather):
    """Members that hold what they were given for a while, and are done in any order."""

    def __init__(self, broker: InProcessBroker, partitions: int, seed: int, **more: Any) -> None:
        super().__init__(broker, partitions, **more)
        self.random = Random(seed)
        self.held: dict[GroupConsumer, list[Any]] = {}
        self.first: dict[tuple[str, int], int] = {}
        self.floors: dict[int, int] = {}

    @override
    def handle(self, consumer: GroupConsumer, message: Any) -> None:
        """Take it into the hand."""
        where = message.topic, message.partition
        before = self.first.get(where, -1)
        assert message.offset <= before + 1, (where, before, message.offset)
        self.first[where] = max(before, message.offset)
        self.held.setdefault(consumer, []).append(message)

    def finish(self, share: float) -> None:
        """Be done with some of what is in hand, in any order."""
        live = {consumer for _, consumer in self.members}
        for consumer in tuple(self.held):
            messages = self.held[consumer]
            if consumer not in live:
                del self.held[consumer]
                continue
            self.random.shuffle(messages)
            for _ in range(round(len(messages) * share)):
                message = messages.pop()
                if not message.is_lost:
                    self.seen[message.topic, message.partition].append(message.offset)
                message.done()

    def look(self) -> None:
        """Commits never go back, and never beyond what was handled."""
        found = self.broker.run(self.sender.positions("g").committed("t"))
        for number, one in found.items():
            assert one.offset >= self.floors.get(number, -1), "a commit went back"
            self.floors[number] = one.offset
            done = set(self.seen["t", number])
            assert all(offset in done for offset in range(one.offset)), "not done, but committed"


def live(weather: Patient, steps: int) -> None:
    """Let things happen."""
    broker, random = weather.broker, weather.random
    for _ in range(steps):
        match random.randrange(12):
            case 0 | 1 if len(weather.members) < 5:
                weather.join(commit=random.choice(("periodic", "batch")))
            case 2 if weather.members:
                weather.leave(random.randrange(len(weather.members)))
            case 3 if weather.members:
                weather.crash(random.randrange(len(weather.members)))
            case 4:
                broker.cut()
            case 5 if random.random() < 0.2:
                broker.kill()
                broker.advance(random.random() * 3)
                broker.restart()
            case _:
                weather.put(random.randrange(20))
        weather.work(random.randrange(40))
        weather.finish(random.random())
        broker.advance(random.choice((0.01, 0.1, 0.5, 2.0)))
        if random.random() < 0.2:
            weather.look()


def rest(weather: Patient) -> None:
    """In the end all is handled and committed."""
    if not weather.members:
        weather.join()
    for _ in range(400):
        weather.work()
        weather.finish(1.0)
        weather.broker.advance(0.1)
        if weather.handled() >= weather.stored() and not weather.lag():
            break  # what was handled by those that crashed was handled again
    assert weather.handled() == weather.stored()
    assert weather.lag() == 0
    weather.look()


@pytest.mark.parametrize("seed", range(3))
def test_any_weather(broker: InProcessBroker, seed: int) -> None:
    """Whatever happens, no record is skipped, no commit goes back, and all is read."""
    weather = Patient(broker, 3, seed)
    live(weather, 40)
    rest(weather)
    weather.end()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 140))
def test_any_weather_for_long(broker: InProcessBroker, seed: int) -> None:
    """The same, over and over."""
    weather = Patient(broker, 4, seed)
    live(weather, 400)
    rest(weather)
    weather.end()


@pytest.mark.parametrize("static", [False, True])
def test_rolling_deploy(broker: InProcessBroker, static: bool) -> None:
    """While six members are replaced one after the other, reading goes on, and it ends."""
    weather = Weather(broker, 12, session_s=20.0, commit_s=0.5)
    names = [f"m{number}" for number in range(6)]
    for name in names:
        weather.join(instance=name if static else None)
    broker.advance(5)
    before = sorted(where for _, member in weather.members for where in member.assigned)
    shares = {
        name: member.assigned for name, (_, member) in zip(names, weather.members, strict=True)
    }
    last = broker.clock.seconds()
    for name in names:
        weather.leave(0)
        broker.advance(0.3)
        weather.join(instance=name if static else None)
        for _ in range(9):
            weather.put(5)
            handled = weather.handled()
            weather.work()
            broker.advance(0.2)
            if weather.handled() > handled:
                last = broker.clock.seconds()
            assert broker.clock.seconds() - last < 5.0
    settle(weather)
    assert sorted(where for _, one in weather.members for where in one.assigned) == before
    if static:
        again = {name: one.assigned for name, (_, one) in zip(names, weather.members, strict=True)}
        assert again == shares
    weather.end()
