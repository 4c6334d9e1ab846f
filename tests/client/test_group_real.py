"""Group consumers on a real broker in memory: what must hold in each case."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from tinymq.client import GroupMember
from tinymq.client.group import GroupConsumer
from tinymq.errors import (
    FencedGeneration,
    InconsistentGroup,
    TransactionAborted,
    UnknownTopicId,
)
from tinymq.testing import InProcessBroker


@pytest.fixture
def broker() -> Iterator[InProcessBroker]:
    """A broker."""
    with InProcessBroker() as made:
        yield made


class Crew:
    """Members of one group, and what is published for them."""

    def __init__(self, broker: InProcessBroker, **topics: int) -> None:
        self.broker = broker
        for name, partitions in topics.items():
            broker.create_topic(name, partitions)
        self.client = broker.client()
        self.producer = self.client.producer()

    def put(self, topic: str, *values: bytes, partition: int | None = None) -> None:
        """Publish."""
        self.broker.run(self.producer.send_batch(topic, values, partition=partition))

    def join(self, topics: Sequence[str] = ("t",), **settings: Any) -> GroupConsumer:
        """Make a member with a client of its own."""
        config: Any = {"commit_s": 0.1, **settings}
        member = self.broker.client().group("g", topics, **config)
        self.broker.run(member.ready())
        return member

    def take(self, member: GroupConsumer, timeout: float = 1.0) -> Any:
        """Take a message, or None."""
        return self.broker.run(member.next(timeout))

    def drain(self, member: GroupConsumer) -> list[bytes | None]:
        """Take and do all that is there."""
        found: list[bytes | None] = []
        while (message := self.take(member, 0.6)) is not None:
            found.append(message.value)
            message.done()
        return found

    def committed(self, topic: str = "t") -> list[int]:
        """What the group has committed."""
        found = self.broker.run(self.client.positions("g").committed(topic))
        return [one.offset for one in found.values()]


def test_failing_message_comes_to_the_next_owner(broker: InProcessBroker) -> None:
    """A message that its handler always fails at is never counted as done by a move."""
    crew = Crew(broker, t=2)
    crew.put("t", b"bad", partition=1)
    crew.put("t", b"bad", partition=0)

    def fail(message: Any) -> None:
        raise LookupError

    one = crew.join()
    one.run(fail, retries=10_000)
    broker.advance(1)
    other = crew.join()
    broker.advance(15)
    assert len(other.assigned) == 1
    assert crew.take(other).value == b"bad"
    assert set(crew.committed()) <= {0, -1}


def test_any_order_through_moves(broker: InProcessBroker) -> None:
    """Messages done in any order, while members come and go, are all committed in the end."""
    crew = Crew(broker, t=1)
    for first in range(0, 1000, 100):
        crew.put("t", *[b"%d" % number for number in range(first, first + 100)])
    random = Random(3)
    members = [crew.join()]
    held: list[Any] = []
    for _ in range(200):
        reader = next((one for one in members if one.assigned), members[0])
        while (message := reader._core.take()) is not None:
            reader._core.more(broker.clock.seconds())
            held.append(message)
        random.shuffle(held)
        for message in held[:40]:
            message.done()
        held = [message for message in held[40:] if not message.is_lost]
        if random.random() < 0.1:
            members.append(broker.client().group("g", ["t"], commit_s=0.1))
        if len(members) > 1 and random.random() < 0.1:
            members.pop(random.randrange(len(members))).close()
        broker.advance(0.1)
        if crew.committed() == [1000]:
            break
    assert crew.committed() == [1000]


def test_two_topics_take_turns(broker: InProcessBroker) -> None:
    """Of two sources with steady traffic neither waits for the other."""
    crew = Crew(broker, a=1, b=1)
    member = crew.join(["a", "b"], prefetch_bytes=1, max_bytes=100)
    last = {"a": 0.0, "b": 0.0}
    start = broker.clock.seconds()
    for step in range(100):
        crew.put("a", b"x" * 50)
        crew.put("b", b"y" * 50)
        message = crew.take(member)
        message.done()
        last[message.topic] = broker.clock.seconds() - start
        assert step < 4 or abs(last["a"] - last["b"]) <= 1.0


def test_topic_deleted_and_made_anew(broker: InProcessBroker) -> None:
    """A topic made anew under a group is told of, and the group goes on with the new one."""
    crew = Crew(broker, t=1)
    crew.put("t", b"old")
    member = crew.join()
    assert crew.drain(member) == [b"old"]
    broker.run(crew.client.admin.delete_topic("t"))
    broker.create_topic("t", 1)
    crew.put("t", b"new")
    with pytest.raises(UnknownTopicId):
        crew.take(member, 10)
    assert crew.drain(member) == [b"new"]
    broker.advance(1)
    assert crew.committed() == [1]


def test_topic_made_anew_with_a_jump_wanted(broker: InProcessBroker) -> None:
    """Who wants to jump is not told, and goes on at once."""
    crew = Crew(broker, t=1)
    crew.put("t", b"old")
    member = crew.join(out_of_range="earliest")
    assert crew.drain(member) == [b"old"]
    broker.run(crew.client.admin.delete_topic("t"))
    broker.create_topic("t", 1)
    crew.put("t", b"new")
    assert crew.take(member, 10).value == b"new"


def test_broker_restarts(broker: InProcessBroker) -> None:
    """After its broker was killed and is back, a member goes on, and skips nothing."""
    crew = Crew(broker, t=2)
    crew.put("t", b"a", b"b", partition=0)
    member = crew.join()
    assert crew.drain(member) == [b"a", b"b"]
    before = member.member
    broker.advance(1)
    broker.kill()
    broker.advance(2)
    broker.restart()
    broker.advance(3)
    crew.put("t", b"c", partition=0)
    assert crew.drain(member) == [b"c"]
    assert member.member == before
    broker.advance(1)
    assert crew.committed() == [3, 0]


def test_patterns(broker: InProcessBroker) -> None:
    """Topics that fit a pattern are read, also those that are made later."""
    crew = Crew(broker, **{"shop-a": 1, "other": 1})
    crew.put("shop-a", b"1")
    member = broker.client().group("g", patterns=["shop-.*"], commit_s=0.1)
    broker.run(member.ready())
    assert member.assigned == [("shop-a", 0)]
    broker.create_topic("shop-b", 2)
    crew.put("shop-b", b"2", partition=1)
    broker.advance(5)
    assert sorted(crew.drain(member), key=str) == [b"1", b"2"]
    assert len(member.assigned) == 3


def test_topic_that_comes_later(broker: InProcessBroker) -> None:
    """A topic that is not there yet is read as soon as it is."""
    crew = Crew(broker)
    member = broker.client().group("g", ["t"])
    broker.run(member.ready())
    assert member.assigned == []
    broker.create_topic("t", 1)
    crew.put("t", b"a")
    assert crew.take(member, 10).value == b"a"


def test_own_assignor(broker: InProcessBroker) -> None:
    """A function of the user divides the partitions, on behalf of all members."""
    crew = Crew(broker, t=4)
    asked: list[list[bytes]] = []

    def divide(
        members: Sequence[GroupMember], topics: Mapping[str, int]
    ) -> dict[str, list[tuple[str, int]]]:
        asked.append([one.data for one in members])
        big = next((one for one in members if one.data == b"big"), members[0])
        return {big.id: [("t", number) for number in range(topics["t"])]}

    settings: Any = {"strategy": "own", "assignor": divide}
    small = crew.join(member_data=b"small", **settings)
    assert len(small.assigned) == 4
    big = broker.client().group("g", ["t"], member_data=b"big", **settings)
    broker.advance(5)
    assert (len(small.assigned), len(big.assigned)) == (0, 4)
    assert sorted(asked[-1]) == [b"big", b"small"]


def test_members_must_agree(broker: InProcessBroker) -> None:
    """A member that wants partitions divided in another way is refused."""
    crew = Crew(broker, t=1)
    crew.join()
    other = broker.client().group("g", ["t"], strategy="range")
    with pytest.raises(InconsistentGroup):
        broker.run(other.next())


def test_static_member_keeps_its_partitions(broker: InProcessBroker) -> None:
    """A static member that is back soon has what it had, and nobody else was given it."""
    crew = Crew(broker, t=4)
    one = crew.join(instance="one")
    moved: list[Any] = []
    two = crew.join(instance="two", on_assigned=moved.extend)
    broker.advance(5)
    mine, others = one.assigned, two.assigned
    moved.clear()
    broker.run(one.close())
    broker.advance(3)
    again = crew.join(instance="one")
    broker.advance(3)
    assert again.assigned == mine
    assert two.assigned == others
    assert moved == []


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky"])
def test_eager_strategies(broker: InProcessBroker, strategy: str) -> None:
    """With the eager strategies all is taken from everybody, and divided anew."""
    crew = Crew(broker, t=4)
    one = crew.join(strategy=strategy)
    assert len(one.assigned) == 4
    two = crew.join(strategy=strategy)
    broker.advance(5)
    assert sorted(one.assigned + two.assigned) == [("t", number) for number in range(4)]
    assert len(two.assigned) == 2


def test_not_a_member_cannot_commit_under_one(broker: InProcessBroker) -> None:
    """Positions may be committed from outside only while nobody reads the partition."""
    crew = Crew(broker, t=1)
    crew.put("t", b"a", b"b")
    positions = crew.client.positions("g")
    broker.run(positions.commit("t", {0: 1}))
    member = crew.join()
    assert crew.take(member).value == b"b"
    with pytest.raises(FencedGeneration):
        broker.run(positions.commit("t", {0: 0}))


def test_shares_for_a_transaction(broker: InProcessBroker) -> None:
    """What was handed out and is not committed can be put into a transaction, or comes again."""
    crew = Crew(broker, t=1)
    crew.put("t", b"a", b"b")
    member = crew.join(commit="manual")
    assert crew.take(member).value == b"a"
    shares = member.shares()
    (row,) = shares.rows
    assert (shares.group, row.topic, row.partition, row.offset) == ("g", "t", 0, 1)
    shares.back()
    assert crew.take(member).value == b"a"
    shares = member.shares()
    shares.done()
    assert member.floor("t", 0).offset == 1
    assert member.shares().rows == ()


def test_where_latest_was_is_kept_from_the_first_moment(broker: InProcessBroker) -> None:
    """The next owner begins where `latest` was for the first, though that one committed nothing."""
    crew = Crew(broker, t=1)
    crew.put("t", b"before")
    one = crew.join(start="latest", commit="manual")
    assert crew.committed() == [1]
    crew.put("t", b"a", b"b")
    assert crew.take(one).value == b"a"
    broker.run(one.close())
    crew.put("t", b"c")
    other = crew.join(start="latest", commit="manual")
    assert [crew.take(other).value for _ in range(3)] == [b"a", b"b", b"c"]


def test_what_was_lost_in_hand_cannot_be_part_of_a_transaction(broker: InProcessBroker) -> None:
    """Results of messages whose partition somebody else got meanwhile do not count."""
    crew = Crew(broker, t=1)
    crew.put("t", b"a", b"b")
    broker.create_topic("results")
    member = crew.join(commit="manual")
    assert [crew.take(member).value for _ in range(2)] == [b"a", b"b"]
    seek = crew.client.admin.operate("group.seek", name="g", to="earliest", force=True)
    broker.run(seek)
    broker.advance(7)  # it is told, and has the partition again
    crew.put("t", b"c")
    producer = crew.client.transactional("worker")
    again = [crew.take(member).value for _ in range(2)]
    transaction = producer.begin()
    transaction.send("results", b"a, b")
    transaction.commit_positions(member)
    with pytest.raises(TransactionAborted):
        broker.run(transaction.commit())
    assert again == [b"a", b"b"]
    assert crew.committed() == [0]
    assert crew.drain(member) == [b"a", b"b", b"c"]
    transaction = producer.begin()
    transaction.commit_positions(member)
    broker.run(transaction.commit())
    assert crew.committed() == [3]


def test_an_aborted_transaction_gives_back_what_was_done(broker: InProcessBroker) -> None:
    """What its messages were called done for did not happen: they all come again."""
    crew = Crew(broker, t=1)
    crew.put("t", b"a", b"b", b"c", b"d")
    member = crew.join(commit="manual")
    crew.take(member).done()
    broker.run(member.commit())
    for _ in range(2):
        crew.take(member).done()
    member.shares().back()
    assert crew.take(member).value == b"b"
    member.seek("t", 0, 2)
    crew.take(member).done()
    member.shares().back()
    assert crew.take(member).value == b"c"


def test_an_aborted_transaction_in_a_move_leaves_all_to_the_next(broker: InProcessBroker) -> None:
    """What it would have committed is not committed by the one after it."""
    crew = Crew(broker, t=2)
    for partition in (0, 1):
        crew.put("t", b"a", b"b", b"c", partition=partition)
    member = crew.join(commit="manual", on_revoked=lambda _: Deferred())
    for _ in range(6):
        crew.take(member)
    broker.client().group("g", ["t"], commit="manual")
    broker.advance(1)
    member.shares().back()
    broker.advance(1)
    crew.take(member)
    assert [row.offset for row in member.shares().rows if row.offset > 0] == [1]


def test_a_transaction_commits_no_more_than_was_handed_out(broker: InProcessBroker) -> None:
    """Of a batch that is given up half way, the other half is for the next owner."""
    crew = Crew(broker, t=2)
    for partition in (0, 1):
        crew.put("t", b"a", b"b", b"c", partition=partition)
    member = crew.join(commit="manual")
    assert [crew.take(member).value for _ in range(4)] == [b"a", b"b", b"c", b"a"]
    other = broker.client().group("g", ["t"], commit="manual")
    broker.advance(1)
    shares = member.shares()
    assert sorted(row.offset for row in shares.rows) == [1, 3]
    assert other.assigned == []


def test_a_key_stays_in_order_when_its_message_is_left_to_the_next(broker: InProcessBroker) -> None:
    """What waits behind a message that is given up in a move is not handled before it."""
    crew = Crew(broker, t=2)
    for partition in (0, 1):
        values = (b"bad", b"behind")
        sent = crew.producer.send_batch("t", values, [b"k", b"k"], partition=partition)
        broker.run(sent)
    handled: list[bytes] = []

    def handle(message: Any) -> None:
        if message.value == b"bad":
            raise LookupError
        handled.append(message.value)

    one = crew.join()
    one.run(handle, concurrency=4, retries=10_000)
    broker.advance(1)
    other = crew.join()
    broker.advance(15)
    assert handled == []
    assert [crew.take(other).value for _ in range(2)] == [b"bad", b"behind"]


def test_what_was_left_to_the_next_comes_again_if_there_is_none(broker: InProcessBroker) -> None:
    """A partition that does not move after all is read again from what was given up."""
    crew = Crew(broker, t=2)
    for partition in (0, 1):
        crew.put("t", b"slow", b"bad", partition=partition)
    slow: list[Deferred[None]] = []
    failing = True
    handled: list[bytes] = []

    def handle(message: Any) -> Deferred[None] | None:
        if message.value == b"slow" and failing:
            slow.append(Deferred())
            return slow[-1]
        if failing:
            raise LookupError
        handled.append(message.value)
        return None

    one = crew.join()
    one.run(handle, concurrency=4, retries=10_000)
    broker.advance(1)
    other = broker.client().group("g", ["t"])
    broker.advance(15)
    failing = False
    broker.run(other.close())
    broker.advance(1)
    for each in slow:
        each.callback(None)
    broker.advance(15)
    assert handled.count(b"bad") == 2
    assert crew.committed() == [2, 2]


def test_handlers_end_before_the_end(broker: InProcessBroker) -> None:
    """A consumer that closes waits for its handlers, commits and leaves."""
    crew = Crew(broker, t=1)
    crew.put("t", b"a", b"b", b"c")
    member = crew.join()
    waiting: list[Deferred[None]] = []

    def handle(message: Any) -> Deferred[None]:
        waiting.append(Deferred())
        return waiting[-1]

    running = member.run(handle, concurrency=2)
    broker.advance(1)
    assert len(waiting) == 2
    closing = member.close(within_s=10)
    broker.advance(1)
    waiting[0].callback(None)
    waiting[1].callback(None)
    broker.run(closing)
    broker.run(running)
    assert crew.committed() == [2]


def test_instance_begun_anew_elsewhere(broker: InProcessBroker) -> None:
    """Of two programs with the same instance the older one is told to stop, and does."""
    crew = Crew(broker, t=1)
    one = crew.join(instance="a")
    two = crew.join(instance="a")
    with pytest.raises(FencedGeneration, match="begun anew"):
        broker.run(one.next())
    assert (one.assigned, two.assigned) == ([], [("t", 0)])


def test_moved_by_hand(broker: InProcessBroker) -> None:
    """A member that has nothing to commit goes on where its position was moved to."""
    crew = Crew(broker, t=2)
    crew.put("t", b"a", b"b", partition=0)
    member = crew.join()
    assert crew.drain(member) == [b"a", b"b"]
    broker.advance(1)
    operate = crew.client.admin.operate
    broker.run(operate("group.seek", name="g", topic="t", to="earliest", force=True))
    assert crew.take(member, 10).value == b"a"


def test_checkpoint(broker: InProcessBroker) -> None:
    """A note that was committed comes back to the next owner, who may seek before he reads."""
    crew = Crew(broker, t=1)
    crew.put("t", b"a", b"b", b"c")
    member = crew.join(commit="manual")
    assert crew.take(member).value == b"a"
    broker.run(member.commit({("t", 0): 1}, note="state after a"))
    broker.run(member.close())
    told: list[Any] = []

    def given(shares: list[Any]) -> None:
        told.extend(shares)
        again.seek("t", 0, 2)

    again = broker.client().group("g", ["t"], on_assigned=given)
    assert crew.take(again, 10).value == b"c"
    assert [(one.offset, one.note) for one in told] == [(1, "state after a")]
