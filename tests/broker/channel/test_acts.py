"""Acts of people on single messages, and looking at where messages are."""

from __future__ import annotations

from tinymq.broker.channel.acts import Act, act
from tinymq.broker.channel.lease import WHOLE, lease_ids
from tinymq.broker.channel.ledger import replay, snapshot
from tinymq.broker.channel.overdue import SHOWN_MS
from tinymq.broker.channel.places import Places
from tinymq.broker.channel.returns import Requeue
from tinymq.broker.channel.state import Channel
from tinymq.broker.channel.whereabouts import deadlines, whereabouts
from tinymq.channelpolicy import ChannelPolicy

POLICY = ChannelPolicy(lease_ms=1000, attempts=3, backoff=("1s",), jitter_percent=0)


def channel(**policy: str) -> Channel:
    """A channel with the policy of these tests."""
    return Channel(POLICY.altered(policy), lease_ids(1))


def test_a_lease_knows_since_when_it_is() -> None:
    """When messages were given out is known after a restart, from records and from snapshots."""
    it = channel()
    it.take("ann", 2, 500, 9)
    records = it.journal.drain()
    for places in (replay(Places(), records), replay(Places(), [snapshot(it.places, 900)])):
        (lease,) = places.leases.values()
        assert (lease.since, lease.deadline) == (500, 1500)


def test_what_people_finished_is_lost_to_its_holder_for_ever() -> None:
    """After a restart, too, the holder is refused as late, and the message is settled."""
    it = channel()
    (delivery,) = it.take("ann", 3, 0, 9)
    found = act(it, [1], Act("finish"), 10)
    again = Channel(POLICY, lease_ids(2), replay(Places(), it.journal.drain()))
    assert (found.done, found.missing) == ([1], [])
    assert found.lost == [("ann", delivery.lease_id, 2)]
    settled = again.finish("ann", [(delivery.lease_id, 2)], 20)
    assert (settled.done, settled.late) == (0, found.lost)
    assert again.finish("ann", [(delivery.lease_id, WHOLE)], 20).done == 2
    assert again.places.unsettled == 0


def test_a_thousand_at_once() -> None:
    """Messages of many leases and holders are found, in whatever order they are named."""
    it = channel()
    for number in range(50):
        it.take(f"c{number}", 1, 0, 50)
    found = act(it, range(60, -1, -1), Act("requeue"), 0)
    assert found.done == [*range(50)]
    assert found.missing == [*range(50, 61)]
    assert {lost.consumer for lost in found.lost} == {f"c{number}" for number in range(50)}
    assert (it.places.ready.count, it.places.in_flight) == (50, 0)


def test_who_waits_for_a_message_of_its_own_is_let_go() -> None:
    """A consumer that was to hold nothing, and was freed, does not keep others from serving."""
    it = channel()
    it.take("ann", 2, 0, 2)
    it.take("bob", 1, 500, 3)
    it.custody.expire(1000)
    assert it.take("bob", 1, 1000, 3) == []
    before = it.guard
    act(it, [2], Act("finish"), 1000)
    assert (before, it.guard) == ("bob", None)
    it.take("dan", 1, 1000, 4)
    assert len(it.take("cyd", 1, 1000, 4)) == 1


def test_what_timed_out_is_shown_for_a_while() -> None:
    """A lost lease is shown for ten seconds, and few of very many are kept."""
    it = channel()
    it.take("ann", 1, 0, 1)
    it.custody.expire(1000)
    (gone,) = it.overdue.lately(1000)
    assert (gone.holder, gone.base, gone.attempt, gone.since, gone.deadline) == (
        *("ann", 0, 1, 0, 1000),
    )
    assert it.overdue.charged() == {"ann": 1}
    assert it.overdue.charged() == {}
    assert list(it.overdue.lately(999 + SHOWN_MS))
    assert not list(it.overdue.lately(1000 + SHOWN_MS))
    assert not it.overdue


def test_places_in_order() -> None:
    """Every unsettled message is told once, with what it has been through."""
    it = channel()
    it.take("ann", 4, 0, 20)
    (lease,) = it.places.leases.values()
    it.requeue("ann", [(lease.lease_id, 1)], 0, Requeue(5000))
    it.requeue("ann", [(lease.lease_id, 2)], 0, Requeue(100))
    it.reject("ann", [(lease.lease_id, 4)], 0)
    it.places.skip(0, "", 6, 8)
    rows = list(whereabouts(it.places, 0, 9, 200))
    assert [(row.start, row.end, row.state, row.attempt, row.failures) for row in rows] == [
        (0, 1, "waiting", 1, 1),
        (1, 2, "ready", 1, 1),
        (2, 3, "given_up", 1, 1),
        (3, 4, "in_flight", 1, 0),
        (4, 6, "ready", 0, 0),
        (8, 9, "ready", 0, 0),
    ]
    assert (rows[0].due, rows[3].deadline) == (5000, 1000)
    assert [row.start for row in whereabouts(it.places, 5, 9, 200)] == [5, 8]


def test_what_stands_aside() -> None:
    """Messages behind one of their key are told as parked."""
    it = channel(order="key")
    it.look(0, [7, 7, 8], 0)
    it.take("ann", 1, 0, 3)
    (lease,) = it.places.leases.values()
    it.requeue("ann", [(lease.lease_id, WHOLE)], 0, Requeue(5000))
    it.take("ann", 5, 0, 3)
    states = {row.start: row.state for row in whereabouts(it.places, 0, 3, 0)}
    assert states == {0: "waiting", 1: "parked", 2: "in_flight"}


def test_parts_of_a_lease_have_deadlines_of_their_own() -> None:
    """A message that was renewed apart is told with its deadline."""
    it = channel()
    it.take("ann", 3, 0, 3)
    act(it, [1], Act("extend", 5000), 100)
    (lease,) = it.places.leases.values()
    assert deadlines(lease) == [(5, 1000), (2, 5100)]
