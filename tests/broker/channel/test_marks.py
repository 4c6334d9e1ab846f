"""What is remembered of single messages, and their coming back."""

from __future__ import annotations

import pytest

from tinymq.broker.channel.lease import WHOLE, lease_ids
from tinymq.broker.channel.ledger import replay, snapshot
from tinymq.broker.channel.marks import UNMARKED, Mark
from tinymq.broker.channel.places import Places
from tinymq.broker.channel.returns import Requeue
from tinymq.broker.channel.state import Channel
from tinymq.broker.channel.steering import Steering
from tinymq.channelpolicy import ChannelPolicy


@pytest.fixture
def channel() -> Channel:
    """Return a channel."""
    return Channel(ChannelPolicy(attempts=3), lease_ids(1))


def take(channel: Channel, count: int, now: int = 0, end: int = 100_000) -> list[tuple[int, int]]:
    """Take messages, and return what settles them."""
    return [(each.lease_id, WHOLE) for each in channel.take("ann", count, now, end)]


def test_the_first_failure_is_remembered_until_the_message_is_buried(channel: Channel) -> None:
    """Later ones change nothing; a snapshot keeps it."""
    for now in (10, 20, 30):
        channel.requeue("ann", take(channel, 2, now), now, Requeue(delay=0))
        assert channel.places.marks.of(1) == Mark(10, 0)
    assert replay(Places(), [snapshot(channel.places, 40)]).marks.of(1) == Mark(10, 0)
    steering = Steering(channel)
    (doom,) = steering.dead_letters()
    assert doom.who == "ann"
    assert replay(Places(), [snapshot(channel.places, 40)]).doomed == channel.places.doomed
    steering.buried(doom, 40)
    assert len(channel.places.marks) == 0


def test_what_was_finished_is_forgotten_in_the_end(channel: Channel) -> None:
    """However many messages fail once, what is remembered stays bounded."""
    for start in range(0, 5000, 100):
        channel.requeue("ann", take(channel, 100, start), start, Requeue(delay=0))
        channel.finish("ann", take(channel, 100, start), start)
    assert len(channel.places.marks) <= 1200
    assert channel.places.unsettled == 0


def test_marks_of_what_is_unsettled_stay(channel: Channel) -> None:
    """When others are let go."""
    channel.requeue("ann", take(channel, 1, 7), 7, Requeue(delay=10**9))
    for start in range(0, 3000, 100):
        channel.requeue("ann", take(channel, 100, 10), 10 + start, Requeue(delay=0))
        channel.finish("ann", take(channel, 100, 10), 10 + start)
    assert channel.places.marks.of(0) == Mark(7, 0)
    assert channel.places.marks.of(1) == UNMARKED


def test_a_message_that_was_sent_back_begins_anew(channel: Channel) -> None:
    """It fails first when it fails again, and it is known how often it was sent back."""
    steering = Steering(channel)
    channel.reject("ann", take(channel, 2), 5)
    (doom,) = steering.dead_letters()
    assert steering.revive({0: 1}, 6) == ([], [0])
    steering.buried(doom, 7)
    assert steering.revive({0: 1, 5: 1}, 8) == ([0, 5], [])
    (delivery,) = channel.take("ann", 1, 9, 10)
    assert (delivery.base, delivery.attempt, delivery.failures) == (0, 1, 0)
    channel.requeue("ann", [(delivery.lease_id, WHOLE)], 10, Requeue(delay=0))
    assert channel.places.marks.of(0) == Mark(10, 1)
    assert channel.places.marks.of(5) == UNMARKED


def test_what_was_sent_back_is_not_brought_back_twice(channel: Channel) -> None:
    """A seek settled it, it was revived, and then the seek is taken back."""
    steering = Steering(channel)
    steering.seek(5, 0, 1000)
    steering.revive({2: 1}, 1)
    steering.undo(2)
    found = channel.take("ann", 10, 3, 5)
    assert sum(each.messages for each in found) == 5


def test_what_stands_is_settled_where_it_is(channel: Channel) -> None:
    """The cursor follows, so that what is dealt with costs nothing."""
    steering = Steering(channel)
    steering.settle([(3, 5)], 0)
    assert steering.standing(8) == [(0, 3), (5, 8)]
    steering.settle([(0, 3), (5, 6)], 0)
    assert (channel.places.cursor, list(channel.places.ahead)) == (6, [])
    assert steering.standing(8) == [(6, 8)]
