"""Channels of a partition and their consumers: turns, credit, records."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinymq.broker.channel.consumer import Consumer
from tinymq.broker.channel.credit import Credit
from tinymq.broker.channel.lease import WHOLE, Delivery, lease_ids
from tinymq.broker.channel.queue import Queue, Subscribers, read_ledger
from tinymq.broker.channel.returns import Requeue
from tinymq.channelpolicy import ChannelPolicy

NOW = 1_000_000
POLICY = ChannelPolicy(lease_ms=1000, jitter_percent=0)


def subscribed(*windows: int) -> tuple[Queue, Subscribers, list[Consumer]]:
    """Return a queue with one channel and consumers of these windows."""
    queue = Queue(lease_ids(1))
    channel = queue.make("mail", POLICY, 0, NOW)
    consumers = [Consumer(f"consumer {at}", window) for at, window in enumerate(windows)]
    for consumer in consumers:
        channel.join(consumer, NOW)
    return queue, channel, consumers


def shares(deliveries: list[Delivery]) -> dict[str, int]:
    """Return how many messages each consumer got."""
    found = Counter[str]()
    for delivery in deliveries:
        found[delivery.consumer] += delivery.messages
    return dict(found)


def test_credit_cannot_be_miscounted() -> None:
    """What is granted twice or out of order is granted once."""
    credit = Credit(10)
    credit.use(10)

    assert [credit.grant(granted) for granted in (15, 15, 12)] == [True, False, False]
    assert credit.left == 5


def test_little_credit_waits_for_more() -> None:
    """Under a quarter of the window nothing is sent, unless nothing is in flight."""
    credit = Credit(100)
    credit.use(80)

    assert [credit.usable(80), credit.usable(0)] == [0, 20]
    credit.grant(105)
    assert credit.usable(80) == 25


@pytest.mark.parametrize("window", range(1, 33))
def test_a_small_window_is_used_to_the_last(window: int) -> None:
    """Whoever works long on all but one is given one more, however they came."""
    _, channel, consumers = subscribed(window)

    given = [sum(shares(channel.deliver(NOW, end)).values()) for end in range(1, window + 2)]

    assert given == [1] * window + [0]
    assert consumers[0].in_flight == window


def test_equal_parts() -> None:
    """What there is goes to all consumers in equal parts, as far as they take it."""
    _, channel, _ = subscribed(1000, 1000, 10)

    assert shares(channel.deliver(NOW, 310)) == {
        "consumer 0": 150,
        "consumer 1": 150,
        "consumer 2": 10,
    }


def test_turns() -> None:
    """A single message goes to another consumer each time."""
    _, channel, consumers = subscribed(5, 5, 5)

    seen = [shares(channel.deliver(NOW, end)) for end in (1, 2, 3, 4)]

    assert [name for found in seen for name in found] == [
        "consumer 0",
        "consumer 1",
        "consumer 2",
        "consumer 0",
    ]
    assert [consumer.in_flight for consumer in consumers] == [2, 1, 1]


def test_never_above_the_window() -> None:
    """A consumer never holds more than its window, and gets more when it settles."""
    _, channel, (consumer,) = subscribed(8)
    found = channel.deliver(NOW, 100)
    assert (consumer.in_flight, channel.deliver(NOW, 100)) == (8, [])

    channel.finish(consumer, [(one.lease_id, WHOLE) for one in found], NOW)
    assert channel.deliver(NOW, 100) == []
    consumer.credit.grant(16)

    assert shares(channel.deliver(NOW, 100)) == {"consumer 0": 8}


def test_a_slow_link_gets_nothing() -> None:
    """A consumer whose link takes no more is passed over, and that is said."""
    _, channel, (consumer,) = subscribed(8)
    consumer.ready = False

    assert channel.deliver(NOW, 5) == []
    assert channel.counts(5).why == "the links of its consumers take no more"


def test_why_nothing_comes() -> None:
    """The question why nothing is delivered has an answer each time."""
    queue, channel, (consumer,) = subscribed(2)
    assert channel.counts(0).why == "it has no messages"
    channel.deliver(NOW, 5)
    assert "as many as they asked for" in channel.counts(5).why
    channel.leave(consumer, NOW)
    assert channel.counts(5).why == "nobody consumes it"
    assert queue.floor == 0


def test_what_is_in_flight_ends_at_none() -> None:
    """Whatever way messages take, the consumer's count of them ends at none."""
    queue, channel, consumers = subscribed(10, 10)
    first, second = consumers
    mine = [one for one in channel.deliver(NOW, 20) if one.consumer == first.name]
    lease = mine[0].lease_id
    channel.finish(first, [(lease, 0b1)], NOW)
    channel.requeue(first, [(lease, 0b10)], NOW, Requeue())
    channel.reject(first, [(lease, 0b100)], NOW, "")
    channel.give_back(first, [(lease, 0b1000)], NOW)
    channel.missing(first, lease, 0b10000, NOW)
    assert first.in_flight == 5

    due = queue.next_time()
    assert due == NOW + 1000
    (told,) = queue.expire(due)

    assert (told.channel, len(told.lost)) == ("mail", 2)
    assert [first.in_flight, second.in_flight] == [0, 0]
    assert [consumer.in_flight for consumer in consumers] == [0, 0]


def test_a_message_is_alone_over_all_partitions() -> None:
    """Who is to be given a message alone is given nothing by other partitions until then."""
    consumer = Consumer("ann", 10)
    one, other = (Queue(lease_ids(epoch)).make("mail", POLICY, 0, NOW) for epoch in (1, 2))
    for channel in (one, other):
        channel.join(consumer, NOW)
    gone = Consumer("bob", 10)
    one.consumers.insert(0, gone)
    gone.credit.window = 10
    one.channel.take("bob", 4, NOW, 4)
    one.lost(gone, NOW, 0)
    one.expire(NOW)
    (held,) = other.deliver(NOW, 1)

    assert one.deliver(NOW, 4) == []
    assert other.deliver(NOW, 2) == []
    other.finish(consumer, [(held.lease_id, WHOLE)], NOW)
    (alone,) = one.deliver(NOW, 4)
    assert (alone.messages, alone.attempt) == (1, 2)
    one.leave(consumer, NOW)
    assert other.deliver(NOW, 2) != []


def test_the_ledger_of_a_partition_holds_all_its_channels() -> None:
    """Channels are told apart in the ledger, and those deleted are passed over."""
    queue, channel, (consumer,) = subscribed(10)
    other = queue.make("news", POLICY, 3, NOW)
    other.join(Consumer("bob", 2), NOW)
    found = channel.deliver(NOW, 10)
    other.deliver(NOW, 10)
    records = queue.records()
    channel.finish(consumer, [(found[0].lease_id, WHOLE)], NOW)
    records += queue.records()
    assert queue.records() == []

    places = read_ledger(records, ["mail", "news"])

    assert [places[name].floor for name in ("mail", "news")] == [10, 3]
    assert places["news"].in_flight == 2
    queue.close("mail")
    assert read_ledger(queue.snapshots(NOW), ["news"])["news"].in_flight == 2
    assert queue.floor == 3


def test_a_channel_made_again_is_new() -> None:
    """A channel that was deleted and made again has nothing of the one before."""
    queue, channel, _ = subscribed(10)
    channel.deliver(NOW, 10)
    records = queue.records()
    queue.close("mail")
    queue.make("mail", POLICY, 7, NOW)

    places = read_ledger(records + queue.records(), ["mail", "unknown"])

    assert (places["mail"].cursor, places["mail"].in_flight) == (7, 0)
    assert "unknown" not in places


def test_a_consumer_comes_back_after_a_restart() -> None:
    """A consumer finds what it held when the broker is back, and its credit counts it."""
    queue, channel, (consumer,) = subscribed(10)
    channel.deliver(NOW, 10)
    places = read_ledger(queue.records(), ["mail"])

    again = Queue(lease_ids(2)).open("mail", POLICY, places["mail"])
    again.channel.custody.restarted(NOW, 10_000)
    back = Consumer(consumer.name, 10)

    assert [bits for _, bits in again.join(back, NOW + 500)] == [0b1111111111]
    assert back.in_flight == 10


ACTS = ["publish", "finish", "fail", "touch", "lose", "leave", "wait", "block"]


@given(
    st.sampled_from(["none", "strict"]),
    st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 4), st.integers(1, 255))),
)
def test_never_above_the_limit_and_never_stuck(  # noqa: C901, PLR0912, PLR0915 - one act after the other
    order: str, acts: list[tuple[str, int, int]]
) -> None:
    """Whatever five consumers do, none holds more than it wants, and in the end all is settled."""
    queue = Queue(lease_ids(1))
    policy = ChannelPolicy.from_mapping({"order": order, "lease.ms": 1000, "backoff": "1s"})
    channel = queue.make("mail", policy, 0, NOW)
    consumers = [Consumer(f"consumer {at}", window) for at, window in enumerate((1, 2, 5, 8, 20))]
    for consumer in consumers:
        channel.join(consumer, NOW)
    now, end = NOW, 0

    def check() -> None:
        holders = channel.channel.places.holders
        for consumer in consumers:
            held = holders[consumer.name].held if consumer.name in holders else 0
            if consumer in channel.consumers:
                assert consumer.in_flight == held
            assert consumer.in_flight <= consumer.credit.window
            consumer.credit.grant(consumer.credit.delivered - held + consumer.credit.window)
        channel.deliver(now, end)

    for act, at, bits in acts:
        consumer = consumers[at]
        holder = channel.channel.places.holders.get(consumer.name)
        settles = [(lease, bits) for lease in list(holder.leases)[-2:]] if holder else []
        if act == "publish":
            end += bits
        elif act == "finish":
            channel.finish(consumer, settles, now)
        elif act == "fail":
            channel.requeue(consumer, settles, now, Requeue(delay=bits % 3 * 500))
        elif act == "touch":
            channel.channel.touch(consumer.name, settles, now)
        elif act == "wait":
            now += bits * 20
            queue.expire(now)
        elif act == "block":
            consumer.ready = bits % 2 == 0
        elif consumer not in channel.consumers:
            consumers[at] = Consumer(consumer.name, consumer.credit.window)
            held = channel.join(consumers[at], now)
            # A client asks for as much as it has room for beside what it holds.
            consumers[at].credit.granted -= sum(bits.bit_count() for _, bits in held)
        elif act == "lose":
            channel.lost(consumer, now, bits)
        else:
            channel.leave(consumer, now)
        check()

    last = Consumer("last", 50)
    for consumer in tuple(channel.consumers):
        channel.leave(consumer, now)
    channel.join(last, now)
    while channel.channel.places.floor < end:
        for one in channel.deliver(now, end):
            channel.finish(last, [(one.lease_id, WHOLE)], now)
        last.credit.grant(last.credit.delivered - last.in_flight + 50)
        for doom in channel.steering.dead_letters():
            channel.steering.buried(doom, now)
        now += 100
        queue.expire(now)
    assert last.in_flight == 0
    assert channel.channel.places.in_flight == 0
