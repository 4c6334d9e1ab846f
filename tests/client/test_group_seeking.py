"""A member whose coordinator is gone, while other brokers still name it."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from tinymq.client.core.address import Address
from tinymq.client.core.config import ClientConfig
from tinymq.client.core.group.membership import Membership
from tinymq.client.core.group.settings import GroupConfig
from tinymq.client.core.link import Link
from tinymq.errors import NotCoordinator, UnreachableError
from tinymq.wire.messages import MemberReply

#: The broker that coordinates, and one that says so.
COORDINATOR, OTHER = 2, 1


class Teller:
    """A link to a broker that is asked, and told what to say."""

    def __init__(self) -> None:
        self.failing = False
        self.waiting: list[Any] = []

    def untried(self, _: float) -> bool:
        """Somebody tries it always."""
        return False

    def request(self, *request: Any) -> None:
        """Keep a question."""
        self.waiting.append(request[4])

    def withdraw(self, done: Any) -> None:
        """Forget a question."""
        self.waiting.remove(done)

    def say(self, reply: Any, error: Any, now: float) -> int:
        """Answer all who wait, and count them."""
        waiting, self.waiting = self.waiting, []
        for done in waiting:
            done(reply, b"", error, now)
        return len(waiting)


class DeadNetwork:
    """Refuses every connection, and counts them."""

    def __init__(self) -> None:
        self.dials: list[float] = []
        self.link: Any = None

    def dial(self, link: Any, _: Address, now: float) -> None:
        """Begin to connect."""
        self.dials.append(now)
        self.link = link

    def refuse(self, now: float) -> None:
        """Refuse what was begun."""
        link, self.link = self.link, None
        if link is not None:
            link.failed(UnreachableError("refused"), now)

    def hang_up(self, _: Any) -> None:
        """Connect no longer."""

    def report(self, what: str, error: Exception) -> None:
        """Nothing is to be reported."""
        raise AssertionError(what) from error

    def say(self, text: str) -> None:
        """Nobody reads it."""


class Brokers:
    """The other broker, and the one that coordinates."""

    def __init__(self, coordinator: Any) -> None:
        self.config = ClientConfig()
        self.other = Teller()
        self.coordinator = coordinator
        self.seed = SimpleNamespace(broker_id=OTHER)
        self.metadata = SimpleNamespace(brokers={OTHER: None, COORDINATOR: None})

    def link(self, broker: int | None) -> Any:
        """The link to one."""
        return self.coordinator if broker == COORDINATOR else self.other

    def chance(self) -> float:
        """No chance."""
        return 0.5

    def refresh(self, now: float) -> None:
        """There is nothing new."""


class Reader:
    """Who reads what the member is given."""

    def __init__(self) -> None:
        self.expulsions: list[float] = []

    def owned(self) -> Any:
        """Nothing."""
        return []

    def given(self, reply: MemberReply, now: float) -> None:
        """Read it."""

    def expelled(self, now: float) -> None:
        """Read nothing more."""
        self.expulsions.append(now)


def member_of(brokers: Any, reader: Any) -> Membership:
    """Make a member with a short session."""
    return Membership(brokers, "g", (["t"], []), GroupConfig(session_s=4.0), reader)


def test_a_coordinator_that_is_named_again_is_dialled_again() -> None:
    """Though nobody else wants anything from it, it is tried as often as it is named."""
    network = DeadNetwork()
    config = ClientConfig()
    link = Link([Address("a", 1)], config, network, lambda: 0.5)
    brokers = Brokers(link)
    member = member_of(brokers, Reader())
    link.watchers.append(lambda _, now: member.link_changed(now))
    member.join(0.0)
    for step in range(200):
        now = step / 20
        brokers.other.say(None, NotCoordinator(broker=COORDINATOR), now)
        network.refuse(now)
        link.tick(now)
        if now >= member.wake_at:
            member.tick(now)
    assert len(network.dials) >= 5
    assert network.dials[-1] > 7.0


def test_a_member_reads_on_while_its_dead_coordinator_is_named() -> None:
    """A short session does not end its reading before brokers know of another coordinator."""
    brokers, reader = Brokers(Teller()), Reader()
    member = member_of(brokers, reader)
    member.join(0.0)
    brokers.other.say(None, NotCoordinator(broker=COORDINATOR), 0.0)
    member.tick(0.0)
    reply = MemberReply(generation=7, count=3)
    assert brokers.coordinator.say(reply, None, 0.1) == 1
    brokers.coordinator.failing = True
    asked = []
    for step in range(2, 120):
        now = step / 10
        if brokers.other.say(None, NotCoordinator(broker=COORDINATOR), now):
            asked.append(now)
        if now >= member.wake_at:
            member.tick(now)
    assert max(later - one for one, later in pairwise(asked)) <= 1.2
    assert len(reader.expulsions) == 1
    assert 10.0 <= reader.expulsions[0] <= 10.3


def test_a_member_whose_coordinator_says_nothing_stops_in_time() -> None:
    """If it is there and does not answer, it may give to others what the member reads."""
    brokers, reader = Brokers(Teller()), Reader()
    member = member_of(brokers, reader)
    member.join(0.0)
    brokers.other.say(None, NotCoordinator(broker=COORDINATOR), 0.0)
    member.tick(0.0)
    brokers.coordinator.say(MemberReply(generation=7, count=3), None, 0.1)
    for step in range(2, 60):
        if step / 10 >= member.wake_at:
            member.tick(step / 10)
    assert reader.expulsions[0] <= 4.2
