"""The groups that a broker coordinates, over connections and with another broker beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.broker import BrokerFixture, Connection, error_of, outcome_of
from tests.fakes.two_brokers import TwoBrokers
from tinymq.errors import (
    InconsistentGroup,
    InvalidName,
    InvalidRequest,
    NotCoordinator,
    Overloaded,
    UnknownGroup,
    UnknownMember,
    WireError,
)
from tinymq.groups.places import coordinator_of
from tinymq.groups.values import MOST_PATTERNS
from tinymq.protocol import MOST_MEMBERS
from tinymq.wire.header import MessageType
from tinymq.wire.messages import Goodbye, Hello, Member, MemberReply


@pytest.fixture
def fixture(tmp_path: Path) -> BrokerFixture:
    """Return a broker with a topic of four partitions."""
    fixture = BrokerFixture(tmp_path / "data")
    fixture.topic("t", partitions=4)
    return fixture


class Reader:
    """
    A member on a connection of its own.

    Args:
        fixture: The broker.
        name: Its id.
        said: What it says each time.
    """

    def __init__(self, fixture: BrokerFixture, name: str, **said: Any) -> None:
        self.connection: Connection = fixture.connect(client_id=f"c-{name}")
        self.said: dict[str, Any] = {"group": "g", "member": name, "topics": ["t"], **said}
        self.reply = MemberReply(generation=0)
        self.open: dict[int, bool] = {}

    def say(self, **more: Any) -> None:
        """Say how it is, and wait for news."""
        self.post(generation=self.reply.generation, owned=self.reply.assigned, **more)

    def post(self, **more: Any) -> None:
        """Say something."""
        self.connection.post(Member(**{**self.said, "wait_ms": 5000, **more}))

    def hear(self) -> list[MemberReply | WireError]:
        """All that was answered since the last time."""
        found: list[MemberReply | WireError] = []
        for frame in self.connection.frames():
            if frame.type == MessageType.ERROR:
                found.append(error_of(frame))
            else:
                self.reply = MemberReply.from_meta(frame.split()[0])
                found.append(self.reply)
        return found

    def error(self) -> WireError:
        """The one answer, which is an error."""
        (found,) = self.hear()
        assert isinstance(found, WireError), found
        return found

    @property
    def partitions(self) -> list[int]:
        """What it is to read."""
        return [index for _, rows in self.reply.assigned for index, _ in rows]

    def join(self, fixture: BrokerFixture) -> None:
        """Come, and be given something."""
        self.say()
        self.hear()
        self.say()
        fixture.clock.advance(0.2)
        self.hear()
        self.say()


def test_a_member_is_given_what_there_is(fixture: BrokerFixture) -> None:
    """The first request makes the group; the next one waits until there is something to read."""
    reader = Reader(fixture, "a")
    reader.say()
    (reply,) = reader.hear()
    assert isinstance(reply, MemberReply)
    assert (reply.assigned, reply.state) == ([], "moving")
    assert "g" in fixture.meta.registry.groups
    reader.say()
    assert reader.hear() == []
    fixture.clock.advance(0.2)
    assert len(reader.hear()) == 1
    assert reader.partitions == [0, 1, 2, 3]


def test_a_request_ends_the_wait_of_the_one_before(fixture: BrokerFixture) -> None:
    """A member that says something while it waits hears twice: the old one again, and the new."""
    reader = Reader(fixture, "a")
    reader.join(fixture)
    assigned = reader.reply.assigned
    reader.say()
    assert len(reader.hear()) == 1
    assert reader.reply.assigned == assigned
    fixture.clock.advance(5)
    assert len(reader.hear()) == 1


def test_a_lost_connection_is_not_a_leave(fixture: BrokerFixture) -> None:
    """What a member has stays its own until its session is over, however its connection ended."""
    one, other = Reader(fixture, "a", session_ms=3000), Reader(fixture, "b")
    one.join(fixture)
    one.connection.post(Goodbye())
    one.connection.lose()
    other.join(fixture)
    assert other.partitions == []
    fixture.clock.pump([1] * 4)
    other.hear()
    assert other.partitions == [0, 1, 2, 3]


def test_a_member_that_leaves_frees_what_it_has(fixture: BrokerFixture) -> None:
    """What one leaves is given to the one who waits; to leave twice is no error."""
    one, other = Reader(fixture, "a"), Reader(fixture, "b")
    one.join(fixture)
    other.join(fixture)
    one.hear()
    one.post(leaves=True)
    assert [type(each) for each in one.hear()] == [MemberReply]
    fixture.clock.advance(0.2)
    other.hear()
    assert other.partitions == [0, 1, 2, 3]
    one.post(leaves=True)
    (reply,) = one.hear()
    assert isinstance(reply, MemberReply)


def test_leaving_makes_no_group(fixture: BrokerFixture) -> None:
    """Who leaves a group that nobody is in hears that it is done."""
    reader = Reader(fixture, "a")
    reader.post(leaves=True)
    (reply,) = reader.hear()
    assert isinstance(reply, MemberReply)
    assert not fixture.meta.registry.groups


def test_what_is_wrong_is_said(fixture: BrokerFixture) -> None:
    """Names, patterns, strategies and generations that cannot be are refused."""
    cases: list[tuple[dict[str, Any], type[WireError]]] = [
        ({"group": "a b"}, InvalidName),
        ({"patterns": ["("]}, InvalidRequest),
        ({"patterns": ["a"] * (MOST_PATTERNS + 1)}, InvalidRequest),
        ({"strategy": "best"}, InvalidRequest),
        ({"generation": 1 << 62}, InvalidRequest),
        ({"member": ""}, InvalidRequest),
    ]
    for said, kind in cases:
        reader = Reader(fixture, "a")
        reader.post(**said)
        assert type(reader.error()) is kind
    assert not fixture.broker.coordinating.groups()[0].members


def test_members_say_one_strategy(fixture: BrokerFixture) -> None:
    """Who says another one is told both."""
    Reader(fixture, "a").join(fixture)
    reader = Reader(fixture, "b", strategy="range")
    reader.say()
    error = reader.error()
    assert isinstance(error, InconsistentGroup)
    assert error.data == {"strategy": "cooperative-sticky", "wanted": "range"}


def test_requests_that_wait_are_bounded(fixture: BrokerFixture) -> None:
    """A connection has so many members that wait, and no more; an answer makes room."""
    connection = fixture.connect()
    for number in range(MOST_MEMBERS):
        said: dict[str, Any] = {"group": f"g{number}", "member": "m", "wait_ms": 5000}
        connection.post(Member(**said))
        (frame,) = connection.frames()
        connection.post(
            Member(**said, generation=MemberReply.from_meta(frame.split()[0]).generation)
        )
    assert connection.frames() == []
    connection.post(Member(group="g", member="m"))
    assert isinstance(error_of(connection.frames()[0]), Overloaded)
    fixture.clock.advance(6)
    assert len(connection.frames()) == MOST_MEMBERS
    connection.post(Member(group="g", member="m"))
    assert len(connection.frames()) == 1


def test_members_of_all_groups_are_bounded(
    fixture: BrokerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When members take too much memory no more come; those that are here go on, and make room."""
    monkeypatch.setattr("tinymq.broker.groups.coordinating.MOST_WEIGHT", 5000)
    first, second = Reader(fixture, "a"), Reader(fixture, "b", group="h")
    first.join(fixture)
    second.join(fixture)
    third = Reader(fixture, "c")
    second.join(fixture)
    for number in range(3):
        Reader(fixture, f"d{number}", group="h").say()
    third.say()
    assert isinstance(third.error(), Overloaded)
    second.say()
    assert all(isinstance(each, MemberReply) for each in second.hear())
    for number in range(3):
        Reader(fixture, f"d{number}", group="h").post(leaves=True)
    third.say()
    assert all(isinstance(each, MemberReply) for each in third.hear())


def test_groups_without_members_are_forgotten(fixture: BrokerFixture) -> None:
    """A group that nobody is in any more leaves the memory; its record stays."""
    reader = Reader(fixture, "a")
    reader.join(fixture)
    reader.post(leaves=True)
    fixture.clock.advance(59)
    assert [each.name for each in fixture.broker.coordinating.groups()] == ["g"]
    fixture.clock.advance(2)
    assert fixture.broker.coordinating.groups() == []
    assert "g" in fixture.meta.registry.groups
    assert not [each for each in fixture.clock.calls if "_look" in str(each.func)]


def test_topics_change_under_members(fixture: BrokerFixture) -> None:
    """A member hears at once that its topic is gone, and gets the new one's partitions."""
    reader = Reader(fixture, "a")
    reader.join(fixture)
    fixture.meta.delete_topic("t")
    assert len(reader.hear()) == 1
    assert reader.partitions == []
    reader.say()
    topic = fixture.topic("t", partitions=2)
    fixture.clock.advance(0.2)
    assert len(reader.hear()) == 1
    assert [topic_id for topic_id, _ in reader.reply.assigned] == [topic.id]
    reader.say()
    fixture.meta.alter_topic("t", {}, partitions=3)
    fixture.clock.advance(0.2)
    assert len(reader.hear()) == 1
    assert reader.partitions == [0, 1, 2]


def test_many_topics_are_looked_at_in_turns(fixture: BrokerFixture) -> None:
    """A member with a pattern is heard when all topics were looked at, some in each turn."""
    for number in range(150):
        fixture.topic(f"x{number}")
    reader = Reader(fixture, "a", topics=[], patterns=["x[^9]*"])
    reader.say()
    turns = 0
    while not reader.hear():
        fixture.turn()
        turns += 1
    assert turns == 3
    reader.say()
    fixture.clock.advance(0.2)
    reader.hear()
    assert len(reader.partitions) == 126
    gone = Reader(fixture, "b", topics=[], patterns=["x[^8]*"])
    gone.say()
    gone.connection.lose()
    fixture.clock.pump([0] * 5)
    assert [*fixture.broker.coordinating.groups()[0].members] == ["a"]


def test_a_deleted_group_ends(fixture: BrokerFixture) -> None:
    """Members of a group that is deleted hear that, and their next request makes it anew."""
    reader = Reader(fixture, "a")
    reader.join(fixture)
    fixture.meta.delete_group("g")
    assert isinstance(reader.error(), UnknownGroup)
    assert fixture.broker.coordinating.groups() == []
    reader.say()
    assert len(reader.hear()) == 1
    assert "g" in fixture.meta.registry.groups


def test_a_stopping_broker_lets_its_members_go(fixture: BrokerFixture) -> None:
    """Nobody waits for a broker that stops, and no timer is left."""
    reader = Reader(fixture, "a")
    reader.join(fixture)
    fixture.broker.coordinating.close()
    assert reader.error().retriable
    reader.say()
    assert reader.error().retriable
    assert not [each for each in fixture.clock.calls if "_look" in str(each.func)]


# --- operations -----------------------------------------------------------------------


def test_a_member_is_sent_away(fixture: BrokerFixture) -> None:
    """An operator sends a member away, by id or instance; it is told why, others get its part."""
    one, other = Reader(fixture, "a", instance="one"), Reader(fixture, "b")
    one.join(fixture)
    other.join(fixture)
    planned = fixture.operate("group.evict", name="g", member="one", dry_run=True)
    assert (planned["member"]["id"], planned["dry_run"]) == ("a", True)
    one.hear()
    one.say()
    one.hear()
    one.say()
    other.hear()
    other.say()
    done = fixture.operate("group.evict", name="g", member="one", reason="too slow")
    assert done["member"]["client"] == "c-a"
    error = one.hear()[-1]
    assert isinstance(error, UnknownMember)
    assert "too slow" in error.text
    fixture.clock.advance(0.2)
    other.hear()
    assert other.partitions == [0, 1, 2, 3]
    with pytest.raises(UnknownMember):
        fixture.operate("group.evict", name="g", member="one")
    with pytest.raises(UnknownGroup):
        fixture.operate("group.evict", name="none", member="one")


def test_a_group_is_described(fixture: BrokerFixture) -> None:
    """The coordinator says who is there, who has what, and what moved."""
    reader = Reader(fixture, "a", patterns=["x.*"])
    reader.join(fixture)
    fixture.clock.advance(0.1)
    ask = fixture.nodes.ask
    group = outcome_of(ask(1, "node.group", {"name": "g"}))["group"]
    (member,) = group.pop("members")
    assert (member["topics"], member["partitions"], member["state"]) == (["t", "x.*"], 4, "stable")
    (shares,) = group.pop("shares")
    assert shares["partitions"] == [["a", group["generation"], False]] * 4
    (rebalance,) = group.pop("rebalances")
    assert rebalance["moved"] == 4
    assert rebalance["why"] == "c-a a joined"
    assert rebalance["took_ms"] is not None
    short = outcome_of(ask(1, "node.groups", {}))
    (row,) = short["groups"]
    assert row == {name: group.get(name, 1) for name in row}
    assert outcome_of(ask(1, "node.group", {"name": "other"})) == {"group": None}


# --- several brokers --------------------------------------------------------------------


@pytest.fixture
def two(tmp_path: Path) -> Iterator[TwoBrokers]:
    """Return two brokers, with a topic."""
    two = TwoBrokers(tmp_path)
    two.here.topic("t", partitions=4)
    yield two
    two.close()


def name_at(broker: int) -> str:
    """A group that one of two brokers coordinates."""
    return next(f"g{n}" for n in range(100) if coordinator_of(f"g{n}", (1, 2)) == broker)


def test_another_broker_is_named(two: TwoBrokers) -> None:
    """A broker that does not coordinate a group says who does."""
    reader = Reader(two.here, "a", group=name_at(2))
    reader.say()
    error = reader.error()
    assert isinstance(error, NotCoordinator)
    assert error.data == {"broker": 2}


def test_a_group_moves_with_its_broker(two: TwoBrokers) -> None:
    """Members of a broker that goes bring what they have to another one, and keep it."""
    name = name_at(2)
    there = Reader(two.here, "a", group=name)
    there.connection = Connection(two.factory)
    there.connection.ask(Hello())
    there.join(two.here)
    before = there.reply
    assert there.partitions == [0, 1, 2, 3]
    two.here.meta.leave(two.here.meta.registry.brokers[2])
    error = there.error()
    assert isinstance(error, NotCoordinator)
    assert error.data == {"broker": 1}
    here = Reader(two.here, "a", group=name)
    here.reply = before
    here.say()
    here.hear()
    assert here.reply.assigned == before.assigned
    here.say()
    two.here.clock.advance(4)
    here.hear()
    assert here.reply.assigned == before.assigned
    new = Reader(two.here, "b", group=name)
    new.join(two.here)
    here.hear()
    assert len(here.partitions) == 2


def test_a_newcomer_waits_for_those_before(two: TwoBrokers) -> None:
    """Where a group was before, nothing is given out until its members had time to come."""
    name = name_at(2)
    two.here.meta.ensure_group(name)
    two.here.meta.leave(two.here.meta.registry.brokers[2])
    reader = Reader(two.here, "a", group=name)
    reader.join(two.here)
    assert reader.partitions == []
    two.here.clock.advance(1)
    reader.hear()
    assert reader.partitions == [0, 1, 2, 3]
