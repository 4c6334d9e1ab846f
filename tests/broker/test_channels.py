"""Channels of a broker, from the client's link down to the disk."""

from __future__ import annotations

from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import attrs
import pytest
from twisted.internet.defer import Deferred

from tests.fakes.broker import BrokerDisk, BrokerFixture, HeldBackground, HeldSyncer, batch
from tests.fakes.taking import Taker
from tinymq.broker.hosted import Hosted
from tinymq.broker.partition import Appended
from tinymq.broker.subscription import ALL_BITS
from tinymq.config import Config, SessionConfig
from tinymq.errors import (
    ChannelExists,
    InvalidRequest,
    Overloaded,
    StateError,
    UnknownChannel,
    UnknownPartition,
    UnknownSubscription,
    UnknownTopicId,
)
from tinymq.meta.entries import Put
from tinymq.meta.registry import channel_key
from tinymq.meta.store import Store
from tinymq.wire.batch import split
from tinymq.wire.messages import FINISH, Goodbye, Settle, Subscribe, Unsubscribe
from tinymq.wire.records import RecordBatch


@pytest.fixture(name="broker")
def fixture_broker(tmp_path: Path) -> BrokerFixture:
    """A broker with one topic of one partition."""
    broker = BrokerFixture(tmp_path)
    broker.topic()
    return broker


def takes(broker: BrokerFixture, **given: Any) -> Taker:
    """A new client that takes messages of the channel `c`."""
    taker = Taker(broker)
    taker.subscribe(**given)
    return taker


# --- delivery and settling --------------------------------------------------------


def test_what_was_published_before_and_after_is_delivered(broker: BrokerFixture) -> None:
    """A channel begins with the first message, and new ones come by themselves."""
    broker.produce(b"a", b"b")
    taker = takes(broker)
    before = taker.values

    broker.produce(b"c")
    taker.run()

    assert before == [b"a", b"b"]
    assert taker.values == [b"c"]


def test_a_channel_that_starts_at_the_latest_gets_only_what_comes_later(
    broker: BrokerFixture,
) -> None:
    """What was there when it was made is not delivered."""
    broker.produce(b"a")
    taker = takes(broker, start="latest")
    broker.produce(b"b")
    taker.run()

    assert taker.values == [b"b"]


def test_a_channel_can_start_at_a_time(broker: BrokerFixture) -> None:
    """The first message of that time or later is the first; before that, and later, too."""
    times = []
    for value in (b"a", b"b", b"c"):
        broker.wall.now_ms += 1000
        times.append(broker.wall.now_ms)
        broker.produce(value)

    assert takes(broker, channel="then", start=f"@{times[1]}").values == [b"b", b"c"]
    assert takes(broker, channel="before", start=f"@{times[0] - 5}").values == [b"a", b"b", b"c"]
    assert takes(broker, channel="later", start=f"@{times[2] + 5}").values == []


def test_a_channel_can_start_at_an_offset(broker: BrokerFixture) -> None:
    """Nothing before the offset is delivered."""
    broker.produce(b"a", b"b", b"c")

    assert takes(broker, start=2).values == [b"c"]


def test_the_reply_tells_the_policy(broker: BrokerFixture) -> None:
    """The client learns how long it may keep messages."""
    broker.meta.create_channel("t", "c", {"lease.ms": 5000, "order": "strict"})

    reply = Taker(broker).subscribe()

    assert (reply.lease_ms, reply.order, reply.delivery) == (5000, "strict", "at_least_once")
    assert reply.held == []


def test_finished_messages_are_counted_and_do_not_come_again(broker: BrokerFixture) -> None:
    """After all was finished nothing is left, and nothing is in flight."""
    broker.produce(b"a", b"b", b"c")
    taker = takes(broker)

    reply = taker.finish(*taker.take())
    taker.run(120)

    assert (reply.done, reply.late) == (3, [])
    assert taker.values == []


def test_a_sign_of_life_stirs_nothing(broker: BrokerFixture) -> None:
    """Clients that hold nothing send an empty settle now and then; no partition has work of it."""
    taker = takes(broker)
    turns: list[Hosted] = []
    (subscription,) = broker.broker.channels._subscriptions.values()
    (hosted,) = subscription.hosted.values()
    hosted.mark = lambda: turns.append(hosted)  # type: ignore[method-assign]
    reply = taker.finish()

    assert (reply.done, turns) == (0, [])


def test_two_channels_do_not_disturb_each_other(broker: BrokerFixture) -> None:
    """Each gets every message."""
    broker.produce(b"a")
    one, two = takes(broker), takes(broker, channel="d")
    one.finish(*one.take())

    assert two.values == [b"a"]


def test_two_consumers_share_what_there_is(broker: BrokerFixture) -> None:
    """Each message goes to one of them, and both get some."""
    one, two = takes(broker), takes(broker)
    broker.produce(*(b"%d" % number for number in range(10)))
    one.run()
    two.run()
    left, right = one.values, two.values

    assert sorted([*left, *right], key=str) == sorted((b"%d" % n for n in range(10)), key=str)
    assert len(left) == len(right) == 5


def test_a_delayed_message_comes_when_it_is_due(broker: BrokerFixture) -> None:
    """Not before, and then as the second attempt after a failure."""
    broker.produce(b"a")
    taker = takes(broker)
    taker.requeue(*taker.take(), d=5000)

    taker.run(4.9)
    early = taker.take()
    taker.run(0.2)
    (again,) = taker.take()

    assert early == []
    assert (again.value, again.attempt, again.failures) == (b"a", 2, 1)


def test_a_requeue_that_is_no_failure_counts_none(broker: BrokerFixture) -> None:
    """The consumer says that it wants the message later."""
    broker.produce(b"a")
    taker = takes(broker)
    taker.requeue(*taker.take(), d=0, f=False)

    (again,) = taker.take()

    assert (again.attempt, again.failures) == (2, 0)


def test_a_requeue_without_delay_backs_off(broker: BrokerFixture) -> None:
    """The policy says how long a message that failed waits."""
    broker.meta.create_channel("t", "c", {"backoff": ["10s"], "jitter.percent": 0})
    broker.produce(b"a")
    taker = takes(broker)
    taker.requeue(*taker.take(), x="no")

    taker.run(9.9)
    early = taker.values
    taker.run(0.2)

    assert (early, taker.values) == ([], [b"a"])


@pytest.mark.parametrize("facts", [{"d": -1}, {"d": "x"}, {"f": 1}, {"x": 1}])
def test_wrong_facts_are_refused(broker: BrokerFixture, facts: dict[str, Any]) -> None:
    """What makes no sense settles nothing."""
    broker.produce(b"a")
    taker = takes(broker)

    with pytest.raises(InvalidRequest):
        taker.requeue(*taker.take(), **facts)


def test_a_lease_that_is_over_is_told_and_the_message_comes_again(broker: BrokerFixture) -> None:
    """The consumer hears that it lost it; a settle that is late is told so, and does nothing."""
    broker.meta.create_channel("t", "c", {"lease.ms": 1000, "backoff": ["0s"]})
    broker.produce(b"a")
    taker = takes(broker)
    (first,) = taker.take()

    taker.run(1.1)
    reply = taker.finish(first)

    assert taker.lost == [(0, first.lease, b"\x01")]
    assert reply.done == 0
    assert [row[:2] for row in reply.late] == [(0, first.lease)]
    assert [each.value for each in taker.take()] == [b"a"]


def test_a_touched_lease_lives_on(broker: BrokerFixture) -> None:
    """A consumer that renews its leases keeps them."""
    broker.meta.create_channel("t", "c", {"lease.ms": 1000})
    broker.produce(b"a")
    taker = takes(broker)
    (first,) = taker.take()
    for _ in range(5):
        taker.run(0.9)
        taker.touch(first)

    assert taker.lost == []
    assert taker.finish(first).done == 1


def test_what_is_given_back_counts_as_not_delivered(broker: BrokerFixture) -> None:
    """It comes at once, as the first attempt again."""
    broker.produce(b"a")
    taker = takes(broker)
    taker.give_back(*taker.take())

    (again,) = taker.take()

    assert (again.value, again.attempt) == (b"a", 1)


# --- credit -----------------------------------------------------------------------


def test_no_more_is_delivered_than_was_granted(broker: BrokerFixture) -> None:
    """The rest comes with more credit, and a repeated grant changes nothing."""
    broker.produce(*(b"%d" % number for number in range(10)))
    taker = takes(broker, credit=4)
    first = taker.values
    taker.credit(8)
    second = taker.values
    taker.credit(8)

    assert (len(first), len(second), taker.values) == (4, 4, [])


def test_a_client_that_does_not_read_is_given_nothing_until_it_does(
    broker: BrokerFixture,
) -> None:
    """What waits in memory for one client is bounded; it comes when the client reads again."""
    taker = takes(broker, credit=10_000)
    taker.connection.transport.peer_reads = False
    for _ in range(40):
        broker.produce(*([bytes(50_000)] * 10))
        broker.clock.advance(0)
    most = taker.connection.transport.most

    taker.connection.transport.peer_reads = True
    for _ in range(60):
        taker.run()
        taker.connection.protocol.resumeProducing()

    assert most < 4_000_000
    assert len(taker.take()) == 400


# --- what the payload looks like ----------------------------------------------------


def test_batches_travel_as_they_are_stored_or_with_what_was_asked(broker: BrokerFixture) -> None:
    """A whole batch is the stored one; of a batch with little wanted only that comes."""
    broker.produce(*(b"%03d" % number for number in range(100)))
    taker = takes(broker, credit=200)
    messages = taker.take()
    stored = taker.payloads[0]
    taker.payloads.clear()

    taker.give_back(messages[3], messages[70])
    again = taker.take()

    assert stored == bytes(broker.partition().log.read(0, 1 << 20, 100).data)  # type: ignore[union-attr]
    assert [each.value for each in again] == [b"003", b"070"]
    ((header, _),) = split(taker.payloads[0])
    assert (header.records, header.base_offset, header.last_offset_delta) == (2, 0, 70)
    assert len(taker.payloads[0]) < len(stored)


def test_many_small_messages_are_delivered_with_few_messages(broker: BrokerFixture) -> None:
    """The cost of a delivery is that of a batch."""
    for _ in range(10):
        broker.produce(*([b"x" * 100] * 1000))
    taker = takes(broker, credit=10_000)

    assert len(taker.take()) == 10_000
    assert len(taker.payloads) <= 4


def test_pages_that_are_not_in_memory_are_fetched_elsewhere(tmp_path: Path) -> None:
    """Nobody waits for the disk; what is gone from memory at once comes all the same."""
    disk, background = BrokerDisk(), HeldBackground()
    broker = BrokerFixture(tmp_path, disk=disk, background=background)
    broker.topic()
    broker.produce(b"a", b"b")
    disk.cached = False
    taker = takes(broker)
    early = taker.values
    while background.waiting:
        background.release()
    taker.run()

    assert early == []
    assert taker.values == [b"a", b"b"]


# --- coming and going -----------------------------------------------------------------


def test_unsubscribing_gives_back_what_is_held(broker: BrokerFixture) -> None:
    """Another consumer has it at once, as if it had not been delivered."""
    broker.produce(b"a")
    one, two = takes(broker), takes(broker)
    (held,) = one.take()
    one.unsubscribe()
    two.run()
    (again,) = two.take()

    assert (again.value, again.attempt) == (b"a", 1)
    number = one.post(FINISH, held)
    one.run()
    assert isinstance(one.error(number), UnknownSubscription)


def test_a_client_that_says_goodbye_gives_back_what_it_holds(broker: BrokerFixture) -> None:
    """Nobody waits for it to return."""
    broker.produce(b"a")
    one, two = takes(broker), takes(broker)
    one.take()
    one.connection.send(Goodbye.type, 0, Goodbye(reason="done").to_meta())
    two.run()

    assert [(each.value, each.attempt) for each in two.take()] == [(b"a", 1)]


def test_a_lost_link_keeps_its_messages_for_a_while(broker: BrokerFixture) -> None:
    """They come to another consumer when the session did not return in time."""
    broker.produce(b"a", b"b")
    one, two = takes(broker), takes(broker)
    one.take()
    one.connection.lose()
    two.run(9)
    early = two.values
    two.run(2)
    messages = two.take()
    two.finish(*messages)
    later = two.take()

    assert early == []
    assert sorted(each.value or b"" for each in [*messages, *later]) == [b"a", b"b"]


def test_a_session_that_returns_goes_on_with_its_leases(broker: BrokerFixture) -> None:
    """It is told what it holds, and what it settles then counts."""
    broker.produce(b"a", b"b")
    one = takes(broker)
    messages = one.take()
    session = one.connection.protocol.session
    one.connection.lose()

    two = Taker(broker, broker.connect(session=session))
    reply = two.subscribe()
    settled = two.finish(*messages)

    assert reply.held == [(0, messages[0].lease, b"\x03")]
    assert settled.done == 2
    assert two.take() == []


def test_a_session_that_connects_twice_moves_its_subscription(broker: BrokerFixture) -> None:
    """The connection that the broker still held is closed, and its leases are the new one's."""
    broker.produce(b"a")
    one = takes(broker)
    messages = one.take()

    two = Taker(broker, broker.connect(session=one.connection.protocol.session))
    reply = two.subscribe()

    assert [row[1] for row in reply.held] == [messages[0].lease]
    assert one.connection.closed
    assert two.finish(*messages).done == 1


def test_a_subscription_number_is_used_once(broker: BrokerFixture) -> None:
    """Two of one number on one connection would be one consumer."""
    taker = takes(broker)

    with pytest.raises(InvalidRequest):
        taker.subscribe()


def test_two_subscriptions_of_one_connection_are_two_consumers(broker: BrokerFixture) -> None:
    """Each has its own number, credit and messages."""
    broker.produce(b"a", b"b")
    one = Taker(broker)
    one.subscribe(credit=1)
    first = one.values
    two = Taker(broker, one.connection, number=2)
    two.subscribe(credit=1)

    assert (first, two.values) == ([b"a"], [b"b"])


# --- what is refused --------------------------------------------------------------------


def test_a_channel_must_be_there_unless_it_may_be_made(broker: BrokerFixture) -> None:
    """The client says whether it may be."""
    with pytest.raises(UnknownChannel):
        Taker(broker).subscribe(create=False)


def test_unknown_topics_and_partitions_are_refused(broker: BrokerFixture) -> None:
    """As everywhere else."""
    taker = Taker(broker)
    number = taker.connection.post(
        Subscribe(subscription=1, topic_id=bytes(16), channel="c", credit=1)
    )
    taker.read()

    assert isinstance(taker.error(number), UnknownTopicId)
    with pytest.raises(UnknownPartition):
        taker.subscribe(partitions=[7])


def test_leases_of_a_partition_that_is_not_subscribed_are_late(broker: BrokerFixture) -> None:
    """They are not held, and the connection lives."""
    taker = takes(broker)
    row: Any = (5, FINISH, [(77, None)], {})
    number = taker.connection.post(Settle(subscription=1, rows=[row]))
    taker.run()

    meta = taker.reply(number).split()[0]
    assert meta == {"d": 0, "l": [[5, 77, ALL_BITS]]}


# --- the disk -----------------------------------------------------------------------------


def test_a_settle_is_confirmed_when_it_is_on_disk(tmp_path: Path) -> None:
    """Not while the sync is under way."""
    syncer = HeldSyncer()
    broker = BrokerFixture(tmp_path, syncer=syncer)
    broker.topic()

    def release() -> None:
        broker.clock.advance(0)
        while syncer.groups:
            syncer.release()
            broker.clock.advance(0)

    broker.produce(b"a")
    release()
    taker = Taker(broker)
    topic_id = broker.meta.describe("t").id
    taker.connection.post(
        Subscribe(subscription=1, topic_id=topic_id, channel="c", create=True, credit=9)
    )
    for _ in range(4):
        release()
    taker.run()
    messages = taker.take()
    number = taker.post(FINISH, *messages)
    taker.run()
    early = number in taker.replies
    release()
    taker.run()

    assert not early
    assert number in taker.replies


def test_at_most_once_waits_for_the_disk(tmp_path: Path) -> None:
    """What counts as settled when it leaves is on disk before it leaves."""
    syncer = HeldSyncer()
    broker = BrokerFixture(tmp_path, syncer=syncer)
    broker.topic()
    broker.meta.create_channel("t", "c", {"delivery": "at_most_once"})
    taker = Taker(broker)

    def release() -> None:
        for _ in range(4):
            broker.clock.advance(0)
            while syncer.groups:
                syncer.release()

    topic_id = broker.meta.describe("t").id
    taker.connection.post(Subscribe(subscription=1, topic_id=topic_id, channel="c", credit=9))
    release()
    broker.produce(b"a")
    syncer.release()
    taker.run()
    early = taker.values
    release()
    taker.run()
    (message,) = taker.take()
    broker.kill()

    again = broker.again()
    other = takes(again)

    assert early == []
    assert (message.lease, message.value) == (0, b"a")
    assert other.values == []


def test_finished_messages_stay_finished_after_a_kill(broker: BrokerFixture) -> None:
    """What was settled with confirmation never comes back; all else does, with its attempts."""
    broker.produce(b"a", b"b", b"c", b"d")
    taker = takes(broker)
    first, second, third, _ = taker.take()
    taker.requeue(second, d=0)
    taker.take()
    reply = taker.finish(first, third)
    broker.kill()

    again = broker.again()
    other = takes(again)
    other.run(11)
    found = {each.value: (each.attempt, each.failures) for each in other.take()}

    assert reply.done == 2
    assert found == {b"b": (3, 1), b"d": (2, 0)}


def test_a_session_finds_its_leases_after_a_restart(broker: BrokerFixture) -> None:
    """A broker that was killed for a moment costs nobody a message."""
    broker.produce(b"a", b"b")
    taker = takes(broker)
    messages = taker.take()
    session = taker.connection.protocol.session
    broker.kill()

    again = broker.again()
    other = Taker(again, again.connect(session=session))
    reply = other.subscribe()

    assert reply.held == [(0, messages[0].lease, b"\x03")]
    assert other.finish(*messages).done == 2


def test_lease_ids_are_never_given_twice(broker: BrokerFixture) -> None:
    """Not even by a broker that was killed before it wrote anything."""
    broker.produce(b"a")
    first = takes(broker).take()[0].lease
    broker.kill()
    again = broker.again()
    other = takes(again)
    other.run(11)

    assert other.take()[0].lease >> 44 > first >> 44


def test_lease_ids_rise_even_if_the_count_of_starts_is_lost(broker: BrokerFixture) -> None:
    """The ledgers know of older leases."""
    first = 0
    for _ in range(3):
        broker.produce(b"a")
        first = takes(broker).take()[0].lease
        broker.kill()
        broker = broker.again()
    (broker.path / "starts").unlink()
    other = takes(broker)
    other.run(11)

    assert other.take()[0].lease > first


def test_a_clean_stop_keeps_channels(broker: BrokerFixture) -> None:
    """The next start knows what was settled, delayed and given up."""
    broker.produce(b"a", b"b", b"c")
    taker = takes(broker)
    first, second, _ = taker.take()
    taker.finish(first)
    taker.requeue(second, d=60_000)
    taker.unsubscribe()
    broker.stop()

    again = broker.again()
    other = takes(again)
    soon = other.values
    other.run(61)

    assert again.folder.clean
    assert (soon, other.values) == ([b"c"], [b"b"])


def test_a_channel_that_the_store_lost_comes_back_with_its_name(
    broker: BrokerFixture, tmp_path: Path
) -> None:
    """A store restored from a backup does not know it; made again, it goes on where it was."""
    broker.meta.create_channel("t", "other")
    broker.produce(b"a", b"b", b"c")
    taker = takes(broker)
    first, _, _ = taker.take()
    taker.finish(first)
    key = channel_key(broker.meta.describe("t").id, "c")
    broker.stop()
    (file,) = tmp_path.glob("**/meta.sqlite")
    store = Store(file)
    assert store.delete(key)
    store.close()
    third = broker.again()
    for hosted in third.broker.channels.hosted_of(third.meta.describe("t").id):
        hosted.ledger.behind = True  # the next batch is a snapshot, before which all is let go
    takes(third, channel="other")
    third.kill()

    last = takes(third.again())
    last.run(15)
    assert last.values == [b"b", b"c"]


def test_a_channel_that_is_made_anew_without_having_been_deleted_goes_on(
    broker: BrokerFixture,
) -> None:
    """A broker that runs while the store is restored loses no more than one that does not."""
    broker.produce(b"a", b"b", b"c")
    taker = takes(broker)
    first, _, _ = taker.take()
    taker.finish(first)
    info = broker.meta.describe_channel("t", "c")
    new = attrs.evolve(info, created_ms=info.created_ms + 5)
    key = channel_key(broker.meta.describe("t").id, "c")
    broker.meta._write([], [Put(key, new.encode())])
    other = takes(broker)
    other.run(15)
    values = other.values
    broker.kill()
    last = takes(broker.again())
    last.run(15)

    assert values == [b"b", b"c"]
    assert last.values == [b"b", b"c"]


def test_a_channel_that_was_deleted_does_not_come_back(broker: BrokerFixture) -> None:
    """Not after a restart either; one of its name begins anew."""
    broker.meta.create_channel("t", "other")
    broker.produce(b"a", b"b")
    taker = takes(broker)
    taker.finish(*taker.take())
    broker.meta.delete_channel("t", "c")
    broker.kill()

    again = broker.again()
    assert takes(again).values == [b"a", b"b"]
    again.meta.delete_channel("t", "c")
    again.clock.advance(0)
    again.meta.forget_deleted(1 << 60)
    again.stop()
    assert takes(again.again()).values == [b"a", b"b"]


def test_a_topic_in_memory_has_channels_too(tmp_path: Path) -> None:
    """Messages are delivered and settled; a stop loses all at once."""
    broker = BrokerFixture(tmp_path)
    broker.topic("m", storage="memory")
    broker.produce(b"a", b"b", topic="m")
    taker = takes(broker, topic="m")
    first, _ = taker.take()
    reply = taker.finish(first)
    broker.kill()

    again = broker.again()
    again.produce(b"c", topic="m")
    other = takes(again, topic="m")

    assert reply.done == 1
    assert other.values == [b"c"]


# --- topics, partitions and channels come and go ---------------------------------------------


def test_a_deleted_topic_ends_its_subscriptions(broker: BrokerFixture) -> None:
    """What was held is lost, and the connection lives."""
    broker.produce(b"a")
    taker = takes(broker)
    (held,) = taker.take()
    broker.operate("topic.delete", name="t")
    taker.run()
    number = taker.post(FINISH, held)
    taker.run()

    assert [row[:2] for row in taker.lost] == [(0, held.lease)]
    assert isinstance(taker.error(number), UnknownSubscription)
    broker.topic()
    broker.produce(b"new")
    taker.subscribe()
    assert taker.values == [b"new"]


def test_who_is_idle_is_told_that_its_channel_was_deleted(broker: BrokerFixture) -> None:
    """In the same turn, without a word of its own, and only those of that channel."""
    idle, other = takes(broker), takes(broker, channel="other")
    broker.meta.delete_channel("t", "c")
    idle.read()
    other.run()

    assert [type(why) for why, _ in idle.ended] == [UnknownChannel]
    assert "channel c of topic t was deleted" in str(idle.ended[0][0])
    assert other.ended == []


def test_what_is_lost_everywhere_is_told_before_the_end(tmp_path: Path) -> None:
    """The leases of all partitions first, then once that it is over."""
    broker = BrokerFixture(tmp_path)
    broker.topic("t", 3)
    for index in range(3):
        broker.produce(b"x", partition=index)
    taker, again = takes(broker), takes(broker, channel="again")
    broker.meta.delete_channel("t", "c")
    taker.read()
    broker.operate("topic.delete", name="t")
    again.read()

    assert [(type(why), lost) for why, lost in taker.ended] == [(UnknownChannel, 3)]
    assert [(type(why), lost) for why, lost in again.ended] == [(UnknownTopicId, 3)]


def test_who_ends_it_is_not_told_that_it_ended(broker: BrokerFixture) -> None:
    """Nor is anybody after UNSUBSCRIBE."""
    taker = takes(broker)
    taker.unsubscribe()
    broker.meta.delete_channel("t", "c")
    broker.operate("topic.delete", name="t")
    taker.run()

    assert taker.ended == []


def test_who_leaves_when_the_channel_is_deleted_is_answered(broker: BrokerFixture) -> None:
    """UNSUBSCRIBE on its way finds nothing, and the connection lives."""
    taker = takes(broker)
    broker.meta.delete_channel("t", "c")
    number = taker.connection.post(Unsubscribe(subscription=1))
    taker.credit(500)

    assert [type(why) for why, _ in taker.ended] == [UnknownChannel]
    assert isinstance(taker.error(number), UnknownSubscription)
    taker.subscribe()


def test_a_number_that_another_connection_took_over(broker: BrokerFixture) -> None:
    """Whoever had it is told, and may come again."""
    taker = takes(broker)
    (subscription,) = broker.broker.channels.subscriptions()
    session = bytes.fromhex(subscription.name.partition(":")[0])
    topic_id = broker.meta.describe("t").id
    request = Subscribe(subscription=1, topic_id=topic_id, channel="c", credit=1)
    other, told = broker.connect().protocol, list[Any]()
    broker.broker.channels.subscribe(request, session, other, lambda *found: told.append(found))
    taker.run()
    (again,) = broker.broker.channels.subscriptions()

    assert [type(why) for why, _ in taker.ended] == [StateError]
    assert again.link is other


def test_a_deleted_topic_can_be_subscribed_again_at_once(broker: BrokerFixture) -> None:
    """The number of the subscription is free when its topic is gone."""
    taker = takes(broker)
    broker.operate("topic.delete", name="t")
    broker.topic()
    broker.produce(b"new")
    taker.subscribe()

    assert taker.values == [b"new"]


def test_a_settle_under_way_is_not_confirmed_when_its_topic_goes(tmp_path: Path) -> None:
    """Nobody knows whether it was on disk, and nobody needs to."""
    syncer = HeldSyncer()
    broker = BrokerFixture(tmp_path, syncer=syncer)
    broker.topic(sync="os")
    broker.produce(b"a")
    taker = takes(broker)
    messages = taker.take()
    broker.operate("topic.alter", name="t", config={"sync": "always"})
    number = taker.post(FINISH, *messages)
    taker.run()
    broker.operate("topic.delete", name="t")
    taker.run()

    assert isinstance(taker.error(number), UnknownTopicId)


def test_a_deleted_channel_ends_its_subscriptions(broker: BrokerFixture) -> None:
    """One made anew under its name begins anew, even if nobody was there to see it."""
    broker.produce(b"a")
    taker = takes(broker)
    taker.finish(*taker.take())
    broker.meta.delete_channel("t", "c")
    number = taker.post(FINISH)
    taker.run()
    gone = taker.error(number)
    broker.wall.now_ms += 1
    broker.meta.create_channel("t", "c")

    assert isinstance(gone, UnknownSubscription)
    assert takes(broker).values == [b"a"]


def test_new_partitions_are_subscribed_by_themselves(broker: BrokerFixture) -> None:
    """A subscription of all partitions has those that come later."""
    taker = takes(broker)
    broker.meta.alter_topic("t", {}, partitions=2)
    broker.produce(b"a", partition=1)
    taker.run()
    messages = taker.take()

    assert [(each.partition, each.value) for each in messages] == [(1, b"a")]
    assert taker.finish(*messages).done == 1


def test_credit_is_of_all_partitions_together(tmp_path: Path) -> None:
    """A window is a window, however many partitions there are."""
    broker = BrokerFixture(tmp_path)
    broker.topic("t", 3)
    for index in range(3):
        broker.produce(*([b"x"] * 10), partition=index)

    assert len(takes(broker, credit=15).take()) == 15


def test_an_altered_policy_holds_at_once(broker: BrokerFixture) -> None:
    """The next lease is as long as the policy says by then."""
    taker = takes(broker)
    broker.meta.alter_channel("t", "c", {"lease.ms": 1000})
    broker.produce(b"a")
    taker.run()
    taker.run(1.1)

    assert len(taker.lost) == 1


def test_what_a_purge_took_away_is_lost_to_its_holder(broker: BrokerFixture) -> None:
    """It does not come again, and its settle is late."""
    broker.produce(b"a")
    broker.produce(b"b")
    taker = takes(broker)
    broker.operate("topic.purge", name="t")
    broker.produce(b"c")
    taker.take()
    taker.run()

    assert [row[0] for row in taker.lost] == [0]
    assert taker.values == [b"c"]


# --- order and filters -------------------------------------------------------------------------


def test_a_filter_lets_through_what_matches(broker: BrokerFixture) -> None:
    """The others are settled as they are passed."""
    broker.meta.create_channel("t", "c", {"filter": ["kind=good"]})
    topic = broker.meta.describe("t").id
    headers = [[("kind", b"good")], [("kind", b"bad")], [], [("kind", b"good")]]
    broker.broker.produce(
        topic, 0, batch(b"a", b"b", b"c", b"d", headers=headers), lambda answer: None
    )
    broker.turn()

    assert takes(broker).values == [b"a", b"d"]


def test_messages_of_a_key_stay_in_order(broker: BrokerFixture) -> None:
    """While one of a key is in flight the next of it goes to the same consumer or waits."""
    broker.meta.create_channel("t", "c", {"order": "key"})
    topic = broker.meta.describe("t").id
    one, two = takes(broker, credit=4), takes(broker, credit=4)
    keys = [b"k", b"k", b"l", b"k"]
    broker.broker.produce(
        topic, 0, batch(b"k1", b"k2", b"l1", b"k3", keys=keys), lambda answer: None
    )
    broker.turn()
    one.run()
    two.run()
    holders = [{(each.value or b"")[:1] for each in taker.take()} for taker in (one, two)]

    assert holders[0] | holders[1] == {b"k", b"l"}
    assert not holders[0] & holders[1]


# --- dead letters -----------------------------------------------------------------------------


def test_a_rejected_message_goes_to_the_dead_letter_topic(broker: BrokerFixture) -> None:
    """With its value, where it comes from, and why it is there; then it is settled."""
    broker.produce(b"a", b"b")
    taker = takes(broker)
    first, second = taker.take()
    taker.reject(second, reason="broken")
    taker.finish(first)
    taker.run()
    letters = takes(broker, topic="t.c.dead", channel="look")
    log = broker.partition("t.c.dead").log
    ((_, data),) = split(log.read(0, 1 << 20, 1).data)  # type: ignore[union-attr]

    assert letters.values == [b"b"]
    told = dict(RecordBatch(data).headers[0])
    assert told["tinymq-reason"] == b"rejected"
    assert told["tinymq-text"] == b"broken"
    assert told["tinymq-offset"] == b"1"
    hosted = broker.broker.channels.hosted(broker.meta.describe("t").id, 0)
    assert hosted is not None
    assert hosted.queue.channels["c"].channel.places.dooming == 0


def test_what_failed_too_often_goes_to_the_dead_letter_topic_once(broker: BrokerFixture) -> None:
    """Not twice, though the broker is killed in between."""
    broker.meta.create_channel("t", "c", {"attempts": 1, "dead.letter": "graves"})
    broker.produce(b"a", b"b")
    taker = takes(broker)
    taker.requeue(*taker.take(), x="no")
    taker.run()
    broker.kill()

    again = broker.again()
    again.clock.advance(0)
    takes(again).run(10)

    assert again.values("graves") == [b"a", b"b"]


def test_a_channel_that_is_too_long_gives_up_its_oldest(broker: BrokerFixture) -> None:
    """They go to the dead-letter topic."""
    broker.meta.create_channel("t", "c", {"max.length": 2})
    broker.produce(b"a", b"b", b"c")
    for _ in range(6):
        broker.clock.advance(0)

    assert broker.values("t.c.dead") == [b"a"]
    assert takes(broker).values == [b"b", b"c"]


def test_a_channel_that_is_too_long_refuses_producers(broker: BrokerFixture) -> None:
    """Until enough is settled, if its policy is that."""
    broker.meta.create_channel("t", "c", {"max.length": 2, "overflow": "refuse"})
    broker.produce(b"a", b"b", b"c")
    broker.clock.advance(0)
    refused = broker.produce(b"d")
    taker = takes(broker)
    taker.finish(*taker.take())
    taken = broker.produce(b"d")

    assert isinstance(refused[0], Overloaded)
    assert isinstance(taken[0], Appended)


def test_a_dead_letter_topic_elsewhere_keeps_what_was_given_up(broker: BrokerFixture) -> None:
    """Nothing is lost: while its leader is away it waits, and is tried again."""
    broker.meta.create_channel("t", "c", {"dead.letter": "graves"})
    broker.produce(b"a")
    taker = takes(broker)
    graves = attrs.evolve(broker.topic("graves"), leaders=(99,))
    broker.meta._write([], [Put(f"topic/{graves.id.hex()}", graves.encode())])
    broker.broker._partitions.pop((graves.id, 0))
    taker.reject(*taker.take())
    taker.run(6)
    hosted = broker.broker.channels.hosted(broker.meta.describe("t").id, 0)
    assert hosted is not None
    kept = hosted.burying.kept.copy()
    here = attrs.evolve(graves, leaders=(broker.broker.id,))
    broker.meta._write([], [Put(f"topic/{graves.id.hex()}", here.encode())])
    taker.run(10)

    assert kept == {"graves": "broker 99 is not there"}
    assert broker.values("graves") == [b"a"]


# --- operations ------------------------------------------------------------------------------


def test_operations_tell_where_messages_are(broker: BrokerFixture) -> None:
    """What is in flight and what is left is told by the broker that has it."""
    broker.produce(b"a", b"b", b"c")
    takes(broker, credit=1)

    (facts,) = broker.operate("channel.info", topic="t", name="c")["channel"]["partitions"]

    assert (facts["ready"], facts["in_flight"], facts["consumers"]) == (2, 1, 1)


def test_a_paused_channel_gives_nothing_out(broker: BrokerFixture) -> None:
    """Until it goes on."""
    taker = takes(broker)
    broker.operate("channel.pause", topic="t", name="c")
    broker.produce(b"a")
    taker.run()
    paused = taker.values
    broker.operate("channel.pause", topic="t", name="c", undo=True)
    taker.run()

    assert (paused, taker.values) == ([], [b"a"])


def test_a_pause_ends_by_itself(broker: BrokerFixture) -> None:
    """At its time, and not before."""
    taker = takes(broker)
    until = broker.wall() + 5000
    broker.operate("channel.pause", topic="t", name="c", until_ms=until)
    broker.produce(b"a")
    taker.run(4.9)
    paused = taker.values
    taker.run(0.2)

    assert (paused, taker.values) == ([], [b"a"])


def test_a_seek_brings_messages_back_and_can_be_undone(broker: BrokerFixture) -> None:
    """What was settled comes again; undone, it is settled."""
    broker.produce(b"a", b"b")
    taker = takes(broker)
    taker.finish(*taker.take())
    broker.clock.advance(0)
    hosting = broker.node.channel_host
    assert hosting is not None
    topic = broker.meta.describe("t").id
    rows: list[Any] = []
    Deferred.fromCoroutine(given_back(hosting.seek(topic, "c", {0: 0}, dry_run=False))).addCallback(
        rows.append
    )
    taker.run()
    again = taker.take()
    undone: list[Any] = []
    Deferred.fromCoroutine(
        given_back(hosting.undo_seek(topic, "c", [0], dry_run=False))
    ).addCallback(undone.append)
    taker.run()

    assert [each.value for each in again] == [b"a", b"b"]
    assert rows[0][0].revived == 2
    assert undone == [[0]]
    assert [row[1] for row in taker.lost] == [again[0].lease]


async def given_back(answer: Awaitable[Any]) -> Any:
    """Wait for something."""
    return await answer


# --- temporary channels, and instances ---------------------------------------------


def test_those_with_one_instance_share_and_others_get_everything(broker: BrokerFixture) -> None:
    """Within a group the same id is unicast, and different ids are broadcast."""
    shared = [takes(broker, channel="cache@1", credit=1) for _ in range(2)]
    other = takes(broker, channel="cache@2")
    broker.produce(b"a", b"b")
    for taker in (*shared, other):
        taker.run()

    assert sorted(value or b"" for taker in shared for value in taker.values) == [b"a", b"b"]
    assert other.values == [b"a", b"b"]


def test_instances_of_a_group_have_one_dead_letter_topic(broker: BrokerFixture) -> None:
    """What an instance's channel gives up goes where that of its group goes."""
    broker.produce(b"a")
    for number in range(2):
        taker = takes(broker, channel=f"cache@{number}")
        taker.reject(*taker.take(), reason="no")
        taker.run(1)

    (grave,) = broker.broker.partitions_of(broker.meta.describe("t.cache.dead"))
    assert grave.log.end_offset == 2


def test_a_temporary_channel_is_told_to_be_in_use(broker: BrokerFixture) -> None:
    """The broker says what its subscribed temporary channels live by, and of no others."""
    taker = takes(broker, temporary=True)
    takes(broker, channel="stays")
    lease = broker.meta.describe_channel("t", "c").lease
    used = broker.broker.channels.used_leases()
    taker.unsubscribe()

    assert used == [lease]
    assert broker.broker.channels.used_leases() == []


def test_a_channel_that_stays_is_not_taken_for_a_temporary_one(broker: BrokerFixture) -> None:
    """Who wants a temporary channel is told when the one there is durable."""
    takes(broker)
    with pytest.raises(ChannelExists, match="temporary"):
        takes(broker, temporary=True)


def test_how_long_a_session_may_be_away_is_a_setting(tmp_path: Path) -> None:
    """What a client had in hand is given to others after the grace of the broker."""
    config = Config(session=SessionConfig(grace_seconds=3))
    broker = BrokerFixture(tmp_path, config=config)
    broker.topic()
    broker.produce(b"a")
    away = takes(broker)
    other = takes(broker)
    away.connection.lose()
    other.run(2.5)
    before = other.values
    other.run(1)
    other.run(2)  # and its back-off

    assert before == []
    assert other.values == [b"a"]


# --- nobody waits for the slow ------------------------------------------------------


def test_who_never_reads_slows_nobody(broker: BrokerFixture) -> None:
    """Publishing and other consumers go on beside a subscription that takes no bytes."""
    stuck, good = takes(broker, credit=1000), takes(broker, channel="d", credit=1000)
    stuck.connection.protocol.pauseProducing()
    sent = stuck.connection.transport.value()
    for number in range(200):
        assert len(broker.produce(b"%d" % number)) == 1
        good.run()
        good.finish(*good.take())

    assert stuck.connection.transport.value() == sent
    assert stuck.fixture.broker.channels.subscriptions()[0].consumer.in_flight == 0
    stuck.connection.protocol.resumeProducing()
    stuck.run()
    assert len(stuck.take()) == 200


def test_who_never_reads_leaves_the_messages_to_others(broker: BrokerFixture) -> None:
    """Of two consumers of a channel the one that takes bytes gets all that is new."""
    stuck, good = takes(broker), takes(broker)
    stuck.connection.protocol.pauseProducing()
    for _ in range(50):
        broker.produce(b"x")
    good.run()

    assert len(good.take()) == 50


def test_a_single_credit_goes_round(tmp_path: Path) -> None:
    """With one credit for two partitions with steady traffic none waits for more than a second."""
    broker = BrokerFixture(tmp_path)
    broker.topic(partitions=2)
    taker = takes(broker, credit=1)
    waited = {0: 0.0, 1: 0.0}
    counts = {0: 0, 1: 0}
    for granted in range(2, 202):
        broker.produce(b"a", partition=0)
        broker.produce(b"b", partition=1)
        taker.run(0.05)
        for index in waited:
            waited[index] += 0.05
        messages = taker.take()
        assert len(messages) <= 1
        for message in messages:
            waited[message.partition] = 0
            counts[message.partition] += 1
        assert max(waited.values()) < 1
        taker.finish(*messages)
        taker.credit(granted)

    assert abs(counts[0] - counts[1]) <= 2


def test_credit_never_counts_over_what_was_granted(broker: BrokerFixture) -> None:
    """However messages come back, no more are given out than the consumer wants at most."""
    window = 4
    broker.produce(*[b"x"] * 60)
    taker = takes(broker, credit=window)
    (subscription,) = broker.broker.channels.subscriptions()
    held: list[Any] = []
    given = 0
    for turn in range(60):
        held += taker.take()
        assert len(held) <= window
        assert subscription.consumer.credit.left <= window - subscription.consumer.in_flight
        assert subscription.consumer.in_flight == len(held)
        if not held:
            break
        message = held.pop(0)
        given += 1
        if turn % 3 == 0:
            taker.finish(message)
        elif turn % 3 == 1:
            taker.requeue(message, d=0)
        else:
            taker.give_back(message)
        taker.credit(window + given)

    assert given == 60
