"""The group consumer with Deferreds, against a puppet coordinator."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred

from tests.client.grouping import Grouping
from tests.client.puppet import APPENDED_MS
from tests.client.stage import Stage
from tinymq.client import EARLIEST, At
from tinymq.client.core.group.asking import Asking
from tinymq.client.group import GroupConsumer
from tinymq.errors import (
    ConfigError,
    InconsistentGroup,
    OffsetOutOfRange,
    UnknownTopicId,
    UsageError,
)
from tinymq.wire.header import MessageType
from tinymq.wire.records import encode_batch


class Play:
    """A stage with a group, and a topic of some partitions."""

    def __init__(self, partitions: int = 1, **config: Any) -> None:
        self.puppet = Grouping()
        self.puppet.make("t", partitions)
        self.stage = Stage(self.puppet, **config)

    def put(self, *values: bytes, partition: int = 0, **columns: Any) -> None:
        """Store a batch."""
        log = self.puppet.topics["t"].logs[partition]
        log.append(encode_batch(values, **columns))
        self.puppet.wake()

    def join(self, **settings: Any) -> GroupConsumer:
        """Make a member, and let it read what it is given."""
        consumer = self.stage.client.group("g", ["t"], **settings)
        self.stage.done(consumer.ready())
        return consumer

    def take(self, consumer: GroupConsumer) -> Any:
        """Take a message that is there."""
        return self.stage.done(consumer.next())

    def end(self) -> None:
        """Close all."""
        self.stage.end()


@pytest.fixture
def play() -> Play:
    """A topic of one partition."""
    return Play()


def test_read_and_commit(play: Play) -> None:
    """What is done is committed after a while, and no more."""
    play.put(b"a", b"b", b"c")
    consumer = play.join()
    first, second = play.take(consumer), play.take(consumer)
    assert (first.value, second.value) == (b"a", b"b")
    first.done()
    play.stage.advance(6)
    assert play.puppet.committed().offset == 1
    assert not second.is_done
    second.done()
    assert play.stage.done(consumer.commit(note="here")) is None
    assert play.puppet.committed().offset == 2
    assert play.puppet.committed().note == "here"
    play.end()


def test_go_on_where_it_was_committed(play: Play) -> None:
    """The next member reads behind what was committed, and is told the note."""
    play.put(b"a", b"b", b"c")
    place = play.puppet.committed()
    place.offset, place.note = 2, "checkpoint"
    told: list[Any] = []
    consumer = play.join(on_assigned=told.extend)
    assert play.take(consumer).value == b"c"
    assert [(one.topic, one.partition, one.offset, one.note) for one in told] == [
        ("t", 0, 2, "checkpoint")
    ]
    play.end()


def test_out_of_order(play: Play) -> None:
    """Messages that are done in any order are committed up to the first that is not."""
    play.put(*[b"%d" % number for number in range(5)])
    play.put(*[b"%d" % number for number in range(5, 10)])
    consumer = play.join()
    messages = [play.take(consumer) for _ in range(10)]
    for place in (9, 3, 1, 2, 7):
        messages[place].done()
    assert consumer.floor("t", 0).offset == 0
    messages[0].done()
    assert consumer.floor("t", 0).offset == 4
    for place in (4, 5, 6, 8):
        messages[place].done()
    assert consumer.floor("t", 0).offset == 10
    play.end()


def test_share_with_another(play: Play) -> None:
    """A partition moves to a newcomer when what was handed out of it is done."""
    play = Play(2)
    told: list[tuple[str, list[int]]] = []

    def note(what: str) -> Any:
        return lambda shares: told.append((what, [one.partition for one in shares]))

    for partition in (0, 1):
        play.put(b"a", b"b", partition=partition)
    one = play.join(on_assigned=note("given"), on_revoked=note("taken"))
    assert one.assigned == [("t", 0), ("t", 1)]
    messages = [play.take(one) for _ in range(4)]
    messages[0].done()
    other = play.join()
    assert other.assigned == []
    assert one.assigned == [("t", 0), ("t", 1)]
    for message in messages[1:]:
        message.done()
    play.stage.advance(0.2)
    assert one.assigned == [("t", 0)]
    assert other.assigned == [("t", 1)]
    assert told == [("given", [0, 1]), ("taken", [1])]
    assert play.puppet.committed(1).offset == 2
    play.put(b"c", partition=1)
    assert play.take(other).value == b"c"
    play.end()


def test_slow_handler_loses_its_partition() -> None:
    """What is not done in time is lost, and what is done of it then counts no more."""
    play = Play(2)
    play.put(b"a", partition=1)
    lost: list[Any] = []
    one = play.join(on_lost=lost.extend, rebalance_s=10)
    message = play.take(one)
    other = play.join()
    play.stage.advance(9.5)
    assert [share.partition for share in lost] == [1]
    assert message.is_lost
    message.done()
    assert play.puppet.committed(1).offset in (-1, 0)
    assert play.take(other).value == b"a"
    play.end()


def test_close_leaves(play: Play) -> None:
    """A consumer that is closed has committed what is done, and left."""
    play.put(b"a", b"b")
    consumer = play.join()
    play.take(consumer).done()
    play.take(consumer)
    closing = consumer.close()
    assert play.stage.done(closing) is None
    assert play.puppet.committed().offset == 1
    assert play.puppet.live == []
    play.end()


def test_loop_counts_the_last(play: Play) -> None:
    """A loop says done of a message when it asks for the next, not when it fails."""
    play.put(b"a", b"b", b"c")
    consumer = play.join()

    async def loop() -> None:
        async for message in consumer:
            if message.value == b"c":
                raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 - it is our own
        play.stage.done(Deferred.fromCoroutine(loop()))
    assert consumer.floor("t", 0).offset == 2
    play.end()


def test_batches(play: Play) -> None:
    """Batches are handed out as they are stored, and are done as a whole."""
    play.put(b"a", b"b")
    play.put(b"c")
    consumer = play.join(commit="batch")
    batch = play.stage.done(consumer.next_batch())
    assert batch is not None
    assert batch.values == [b"a", b"b"]
    batch.done()
    play.stage.pump()
    assert play.puppet.committed().offset == 2
    play.end()


def test_run(play: Play) -> None:
    """A handler is given every message, several at once, those of one key in order."""
    play.put(b"a", b"b", b"c", b"d", keys=[b"k", b"k", b"l", None])
    consumer = play.join()
    waiting: dict[bytes, Deferred[None]] = {}

    def handle(message: Any) -> Deferred[None]:
        waiting[message.value] = Deferred()
        return waiting[message.value]

    consumer.run(handle, concurrency=3)
    play.stage.pump()
    assert sorted(waiting) == [b"a", b"c", b"d"]
    waiting[b"a"].callback(None)
    play.stage.pump()
    assert sorted(waiting) == [b"a", b"b", b"c", b"d"]
    for name in (b"b", b"c", b"d"):
        waiting[name].callback(None)
    assert consumer.floor("t", 0).offset == 4
    play.end()


def test_failing_handler_stops(play: Play) -> None:
    """A handler that fails ends `run`, and its message comes again to the next one."""
    play.put(b"a", b"b")
    consumer = play.join()

    def handle(message: Any) -> None:
        if message.value == b"b":
            raise LookupError

    with pytest.raises(LookupError):
        play.stage.done(consumer.run(handle))
    assert consumer.floor("t", 0).offset == 1
    seen: list[bytes] = []
    consumer.run(lambda message: seen.append(message.value))
    play.stage.pump()
    assert seen == [b"b"]
    play.end()


def test_retry_then_dead_letter(play: Play) -> None:
    """After its retries a message goes where the user said, and the group goes on."""
    play.put(b"a", b"b")
    consumer = play.join()
    seen: list[bytes] = []

    def handle(message: Any) -> None:
        seen.append(message.value)
        if message.value == b"a":
            raise LookupError("no such customer")

    consumer.run(handle, retries=2, on_error="failed")
    play.stage.advance(5)
    assert seen == [b"a", b"a", b"a", b"b"]
    assert play.puppet.values("failed") == [b"a"]
    assert consumer.floor("t", 0).offset == 2
    play.end()


def test_failing_message_keeps_its_key_in_order() -> None:
    """When a partition is given up behind a failure, what follows it by key is not handled."""
    play = Play(2)
    play.put(b"a", b"b", b"other", keys=[b"k", b"k", b"x"], partition=1)
    first = play.join()
    seen: list[bytes] = []

    def handle(message: Any) -> None:
        seen.append(message.value)
        if message.value == b"a":
            raise LookupError("not now")

    first.run(handle, concurrency=4, retries=1000)
    play.stage.pump()
    second = play.join()
    play.stage.advance(60)
    assert set(second.assigned) == {("t", 1)}
    assert b"b" not in seen
    assert play.take(second).value == b"a"
    play.end()


def test_failing_message_is_not_done_at_a_revoke() -> None:
    """A message that fails again and again comes to the next owner, and is never skipped."""
    play = Play(2)
    play.put(b"a", partition=1)
    one = play.join()

    def handle(message: Any) -> None:
        raise LookupError

    one.run(handle, retries=1000)
    play.stage.advance(1)
    other = play.join()
    play.stage.advance(12)
    assert other.assigned == [("t", 1)]
    assert play.take(other).value == b"a"
    play.end()


def test_fenced(play: Play) -> None:
    """A partition whose position was moved by hand is dropped, and taken over anew."""
    play.put(b"a", b"b", b"c")
    lost: list[Any] = []
    consumer = play.join(on_lost=lost.extend)
    play.take(consumer).done()
    place = play.puppet.committed()
    place.fence, place.offset = 1000, 2
    waiting = consumer.commit()
    with pytest.raises(Exception, match="given this partition"):
        play.stage.done(waiting)
    assert [share.partition for share in lost] == [0]
    play.puppet.members[consumer.member].shares.clear()
    play.puppet.generation = 1000
    play.puppet.answer_polls()
    play.stage.advance(1)
    assert play.take(consumer).value == b"c"
    play.end()


def test_position_of_what_is_given_up(play: Play) -> None:
    """Of a partition that is to be given up, no more counts as handed out than was."""
    play.put(b"a", b"b", b"c")
    consumer = play.join(commit="manual")
    message = play.take(consumer)
    play.puppet.give(play.puppet.members[consumer.member])
    play.stage.advance(0.1)
    assert consumer.position("t", 0) == message.offset + 1 == 1
    (row,) = consumer.shares().rows
    assert row.offset == 1
    play.end()


def test_kept_after_all(play: Play) -> None:
    """What was let go of while a partition was to be given up comes again if it is kept."""
    play.put(b"a", b"b", b"c")
    consumer = play.join()
    first, _ = play.take(consumer), play.take(consumer)
    member = play.puppet.members[consumer.member]
    shares = dict(member.shares)
    play.puppet.give(member)
    play.stage.advance(0.1)
    first.let_go()
    play.stage.advance(0.1)
    member.shares = shares
    play.puppet.answer_polls()
    play.stage.advance(1)
    assert [play.take(consumer).value for _ in range(3)] == [b"a", b"b", b"c"]
    play.end()


def test_unknown_member_joins_anew(play: Play) -> None:
    """A member that the coordinator has forgotten loses everything, and joins anew."""
    play.put(b"a")
    lost: list[Any] = []
    consumer = play.join(on_lost=lost.extend)
    assert play.take(consumer).value == b"a"
    before = consumer.member
    play.stage.advance(1)
    play.puppet.forget(play.puppet.members[before])
    play.stage.advance(1)
    assert len(lost) == 1
    assert consumer.member != before
    assert play.take(consumer).value == b"a"
    play.end()


def test_out_of_range_is_told(play: Play) -> None:
    """A committed position that is no more there is an error with the valid range."""
    play.put(b"a", b"b", b"c")
    play.puppet.topics["t"].logs[0].start = 2
    play.puppet.committed().offset = 1
    consumer = play.join()
    waiting = consumer.next()
    play.stage.pump()
    with pytest.raises(OffsetOutOfRange) as caught:
        play.stage.done(waiting)
    assert caught.value.data["start"] == 2
    assert caught.value.data["end"] == 3
    consumer.seek("t", 0, EARLIEST)
    play.stage.pump()
    play.end()


def test_log_cut(play: Play) -> None:
    """Who wants to jump when the log was cut reads from its start, and commits from there."""
    play.put(b"a", b"b", b"c")
    play.put(b"d", b"e")
    place = play.puppet.committed()
    place.offset, place.epoch = 5, 0
    play.puppet.topics["t"].logs[0].cut(3)
    consumer = play.join(out_of_range="earliest")
    first = play.take(consumer)
    assert first.value == b"a"
    first.done()
    assert consumer.floor("t", 0).offset == 1
    play.end()


def test_topic_made_anew(play: Play) -> None:
    """A topic that was deleted and made anew is told of, and then read from its start."""
    play.put(b"a")
    consumer = play.join(start="latest")
    play.puppet.make("t", 1)
    play.put(b"new")
    play.puppet.answer_polls()
    play.stage.advance(2)
    with pytest.raises(UnknownTopicId) as caught:
        play.stage.done(consumer.next())
    assert caught.value.data["end"] == 1
    assert play.take(consumer).value == b"new"
    play.end()


def test_link_lost(play: Play) -> None:
    """After a lost link the member is the same, and goes on reading."""
    play.put(b"a")
    consumer = play.join()
    assert play.take(consumer).value == b"a"
    before = consumer.member
    play.stage.cut()
    play.stage.advance(1)
    play.put(b"b")
    assert play.take(consumer).value == b"b"
    assert consumer.member == before
    play.end()


def test_silence_is_loss(play: Play) -> None:
    """A member that hears nothing for its session knows that others may go on."""
    play.put(b"a")
    lost: list[Any] = []
    consumer = play.join(on_lost=lost.extend, session_s=10)
    play.stage.up = False
    play.stage.cut()
    play.stage.advance(11)
    assert len(lost) == 1
    play.puppet.members.clear()
    play.stage.up = True
    play.stage.advance(5)
    assert play.take(consumer).value == b"a"
    play.end()


def test_refused(play: Play) -> None:
    """A member that does not fit into the group is told so by every call."""
    play.puppet.refuse = lambda request: (
        InconsistentGroup() if request.type is MessageType.MEMBER else None
    )
    consumer = play.stage.client.group("g", ["t"])
    with pytest.raises(InconsistentGroup):
        play.stage.done(consumer.next())
    play.end()


def test_pause_and_resume(play: Play) -> None:
    """Nothing is handed out of a partition that is paused, also not of an opened batch."""
    play.put(b"a", b"b")
    consumer = play.join()
    assert play.take(consumer).value == b"a"
    consumer.pause("t")
    waiting = consumer.next(timeout=1)
    play.stage.advance(1)
    assert play.stage.done(waiting) is None
    consumer.resume("t")
    assert play.take(consumer).value == b"b"
    play.end()


def test_not_too_far_ahead(play: Play) -> None:
    """A partition waits for a message that is not done, and goes on when it is."""
    for number in range(10):
        play.put(b"%d" % number)
    consumer = play.join(max_ahead=4)
    messages = [play.take(consumer) for _ in range(5)]
    waiting = consumer.next(timeout=1)
    play.stage.advance(1)
    assert play.stage.done(waiting) is None
    for message in messages:
        message.done()
    play.stage.pump()
    assert play.take(consumer).value == b"5"
    play.end()


def test_taken_away_before_its_leader_answers(play: Play) -> None:
    """Nobody is asked any more about a partition that was taken away meanwhile."""
    play.puppet.deaf = {MessageType.COMMITTED}
    consumer = play.stage.client.group("g", ["t"])
    play.stage.advance(1)
    assert consumer.assigned == []
    (member,) = play.puppet.live
    assert len(member.owned) == 1
    play.puppet.give(member)
    play.stage.advance(1)
    assert member.owned == {}
    parts = play.stage.client._cluster._parts
    assert not any(isinstance(part, Asking) for part in parts)
    play.end()


def test_positions(play: Play) -> None:
    """Positions are committed and looked at without being a member."""
    play.put(b"a", b"b")
    positions = play.stage.client.positions("g")
    assert play.stage.done(positions.committed("t"))[0].mark is None
    play.stage.done(positions.commit("t", {0: 1}, note="x"))
    found = play.stage.done(positions.committed("t"))[0]
    assert (found.offset, found.note, found.start, found.end, found.lag) == (1, "x", 0, 2, 1)
    play.end()


@pytest.mark.parametrize(
    ("start", "values"),
    [
        ("earliest", [b"a", b"b"]),
        ("latest", []),
        (1, [b"b"]),
        (At(0), [b"a", b"b"]),
        (At(APPENDED_MS + 1), []),
        (f"@{APPENDED_MS + 1}", []),
    ],
)
def test_starts(play: Play, start: Any, values: list[bytes]) -> None:
    """A group that has committed nothing begins where it is told, and what comes is read."""
    play.put(b"a", b"b")
    consumer = play.join(start=start)
    play.stage.pump()
    play.put(b"c")
    found = [play.take(consumer).value for _ in range(len(values) + 1)]
    assert found == [*values, b"c"]
    play.end()


@pytest.mark.parametrize("commit", ["periodic", "batch", "manual"])
def test_where_it_began_is_kept(play: Play, commit: str) -> None:
    """Where `latest` was is committed at once, so that who comes after a crash skips nothing."""
    play.put(b"a")
    told: list[Any] = []
    first = play.join(start="latest", commit=commit, on_assigned=told.extend)
    assert play.puppet.committed().offset == 1
    assert [one.offset for one in told] == [1]
    play.put(b"b")
    assert play.take(first).value == b"b"
    play.puppet.forget(play.puppet.live[0])
    second = play.join(start="latest", commit=commit)
    assert play.take(second).value == b"b"
    play.end()


@pytest.mark.parametrize("end", ["back", "done"])
def test_lost_while_a_transaction_is_decided(play: Play, end: str) -> None:
    """What a transaction has is not part of the next one, though its partition went meanwhile."""
    play.put(b"a", b"b", b"c")
    consumer = play.join(commit="manual")
    message = play.take(consumer)
    shares = consumer.shares()
    assert [row.offset for row in shares.rows] == [1]
    play.stage.advance(1)
    play.puppet.forget(play.puppet.members[consumer.member])
    play.stage.advance(1)
    assert message.is_lost
    getattr(shares, end)()
    assert [row for row in consumer.shares().rows if row.offset > 0] == []
    play.end()


def test_handed_out_behind_a_transaction_and_lost(play: Play) -> None:
    """What was handed out behind what a transaction has is part of the next one."""
    play.put(b"a", b"b", b"c")
    consumer = play.join(commit="manual")
    play.take(consumer)
    shares = consumer.shares()
    message = play.take(consumer)
    play.stage.advance(1)
    play.puppet.forget(play.puppet.members[consumer.member])
    play.stage.advance(1)
    assert message.is_lost
    shares.done()
    assert [row.offset for row in consumer.shares().rows if row.offset > 0] == [2]
    play.end()


@pytest.mark.parametrize("commit", ["periodic", "batch"])
def test_transactions_have_positions_for_themselves(play: Play, commit: str) -> None:
    """A consumer that commits by itself is refused by transactions, and told what to do."""
    consumer = play.join(commit=commit)
    producer = play.stage.client.transactional("t1")
    with pytest.raises(UsageError, match='commit="manual"'):
        consumer.shares()
    with pytest.raises(UsageError, match='commit="manual"'):
        play.stage.done(producer.transform(consumer, print))
    play.end()


def test_topic_made_anew_begins_by_its_own_rule(play: Play) -> None:
    """In a topic with a successor the start that is committed is where `out_of_range` jumps."""
    play.put(b"a")
    consumer = play.join(start="latest", out_of_range="earliest", commit="manual")
    del play.puppet.topics["t"]
    play.puppet.make("t", 1)
    play.put(b"new")
    play.puppet.deal = True
    play.puppet.answer_polls()
    play.stage.advance(5)
    assert play.take(consumer).value == b"new"
    assert play.puppet.committed().offset == 0
    play.end()


def test_wrong_words(play: Play) -> None:
    """What cannot be meant is refused at once."""
    for settings in ({"commit": "never"}, {"strategy": "own"}, {"nonsense": 1}, {"start": "@x"}):
        with pytest.raises(ConfigError):
            play.stage.client.group("g", ["t"], **settings)
    consumer = play.join()
    for plan in ({"concurrency": 0}, {"on_error": "no topic!"}, {"threads": 2, "manual": True}):
        with pytest.raises(UsageError):
            play.stage.done(consumer.run(print, **plan))
    with pytest.raises(UsageError):
        consumer.seek("t", 7, 0)
    with pytest.raises(UsageError):
        play.stage.done(consumer.commit(note="x" * 5000))
    with pytest.raises(UsageError):
        play.stage.client.group("g")
    with pytest.raises(UsageError):
        play.stage.client.group("g", "t")
    play.end()
