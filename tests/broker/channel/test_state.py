"""What a channel promises, one promise at a time."""

from __future__ import annotations

import pytest

from tinymq.broker.channel.core import LOOK_AHEAD
from tinymq.broker.channel.counts import count
from tinymq.broker.channel.history import History
from tinymq.broker.channel.lease import WHOLE, Delivery, Losses, lease_ids
from tinymq.broker.channel.ledger import describe, replay, snapshot
from tinymq.broker.channel.places import Places
from tinymq.broker.channel.returns import Requeue
from tinymq.broker.channel.runs import Runs
from tinymq.broker.channel.state import Channel
from tinymq.broker.channel.steering import Steering
from tinymq.channelpolicy import ChannelPolicy
from tinymq.errors import CorruptBatch

NOW = 1_000_000


def channel(**settings: str | int) -> Channel:
    """Return a channel whose settings are given with underscores."""
    policy = ChannelPolicy.from_mapping(
        {"jitter.percent": 0, **{name.replace("_", "."): v for name, v in settings.items()}}
    )
    return Channel(policy, lease_ids(1))


def offsets(deliveries: list[Delivery]) -> list[list[int]]:
    """Return the offsets of each delivery."""
    return [
        [one.base + bit for bit in range(one.bits.bit_length()) if one.bits >> bit & 1]
        for one in deliveries
    ]


def whole(deliveries: list[Delivery]) -> list[tuple[int, int]]:
    """Return what settles deliveries as they are."""
    return [(one.lease_id, WHOLE) for one in deliveries]


class TestLeases:
    def test_a_run_is_one_lease(self) -> None:
        """However many messages are given out, a run of them is one lease and one entry."""
        it = channel()

        found = it.take("ann", 1000, NOW, 5000)

        assert offsets(found) == [list(range(1000))]
        assert len(it.journal.drain()) == 1

    def test_a_late_settle_hits_nobody_else(self) -> None:
        """Who settles after its lease was over hears so, and the next holder's settle counts."""
        it = channel(lease_ms=1000)
        (late,) = it.take("ann", 1, NOW, 1)
        (told,) = it.custody.expire(NOW + 1000)
        it.custody.expire(NOW + 3000)
        (second,) = it.take("bob", 1, NOW + 3000, 1)

        refused = it.finish("ann", whole([late]), NOW + 3000)
        settled = it.finish("bob", whole([second]), NOW + 3000)

        assert (told.consumer, told.lease_id) == ("ann", late.lease_id)
        assert (refused.done, len(refused.late)) == (0, 1)
        assert settled == (1, [], [])

    def test_a_repeated_settle_is_no_late_one(self) -> None:
        """A settle whose confirmation was lost may be sent again, and is confirmed."""
        it = channel()
        (found,) = it.take("ann", 3, NOW, 3)

        for done in (1, 0):
            assert it.finish("ann", [(found.lease_id, 0b010)], NOW) == (done, [], [])
        it.finish("ann", whole([found]), NOW)
        assert it.finish("ann", whole([found]), NOW) == (0, [], [])

    def test_a_lease_that_was_never_written_down_is_lost(self) -> None:
        """What a killed broker gave out without writing it down cannot be settled later."""
        before = channel()
        before.take("ann", 1, NOW, 2)
        kept = before.journal.drain()
        (unwritten,) = before.take("ann", 1, NOW, 2)
        after = Channel(before.policy, lease_ids(2), replay(Places(), kept))
        after.custody.restarted(NOW, 100)
        assert len(after.finish("ann", whole([unwritten]), NOW).late) == 1

        after.take("bob", 1, NOW, 2)

        assert len(after.finish("ann", whole([unwritten]), NOW).late) == 1

    def test_nobody_settles_what_another_holds(self) -> None:
        """A lease is settled by its holder only."""
        it = channel()
        (found,) = it.take("ann", 1, NOW, 1)

        assert it.finish("bob", whole([found]), NOW).done == 0
        assert it.places.in_flight == 1

    def test_losses_are_forgotten_on_the_safe_side(self) -> None:
        """When too many leases were lost, the oldest count as lost whatever became of them."""
        losses = Losses(most=2)
        for lease in (1, 2, 3):
            losses.add(lease, 0b1)

        assert [losses.among(lease, 0b11) for lease in (1, 2, 3, 4)] == [0b11, 0b1, 0b1, 0]
        assert len(losses) == 2

    def test_stops_are_forgotten_on_the_safe_side(self) -> None:
        """After very many starts of a broker, leases of the first ones count as lost."""
        losses = Losses()
        firsts = [lease_ids(epoch)() for epoch in range(1, 30)]
        newest = 0
        for first in firsts:
            losses.issued(newest, first)
            newest = first + 5

        assert losses.among(firsts[0] + 1, 0b1) == 0b1
        assert losses.among(firsts[-2] + 1, 0b1) == 0
        assert losses.among(firsts[-2] + 9, 0b1) == 0b1

    def test_a_part_of_a_lease_is_renewed(self) -> None:
        """Messages that are renewed stay with their holder when the others go."""
        it = channel(lease_ms=1000)
        (found,) = it.take("ann", 3, NOW, 3)
        it.touch("ann", [(found.lease_id, 0b010)], NOW + 900)

        (told,) = it.custody.expire(NOW + 1000)

        assert told.bits == 0b101
        assert it.custody.expire(NOW + 1899) == []
        assert it.finish("ann", whole([found]), NOW + 1899).done == 1

    def test_renewing_never_shortens(self) -> None:
        """A short renewal leaves a long lease as it is."""
        it = channel(lease_ms=1000)
        (found,) = it.take("ann", 1, NOW, 1)
        it.touch("ann", whole([found]), NOW, 10)

        assert it.custody.expire(NOW + 999) == []

    def test_deadlines_of_ended_leases_take_no_room(self) -> None:
        """Millions of short leases leave nothing behind."""
        it = channel()
        for _ in range(5000):
            it.finish("ann", whole(it.take("ann", 1, NOW, 1 << 40)), NOW)

        assert len(it.custody._deadlines) <= 1002

    def test_look_ahead_is_bounded(self) -> None:
        """However much is waiting, so many messages are unsettled and no more."""
        it = channel()
        while it.take("ann", 10_000, NOW, 1 << 40):
            pass

        assert it.places.unsettled == LOOK_AHEAD
        assert "the most allowed" in count(it, 1 << 40).why


class TestFailures:
    def test_maximum_attempts(self) -> None:
        """A message that fails too often is given up at once, even with a long delay."""
        it = channel(attempts=3)
        now = NOW
        for failures in range(3):
            (found,) = it.take("ann", 1, now, 1)
            assert (found.attempt, found.failures) == (failures + 1, failures)
            it.requeue("ann", whole([found]), now, Requeue(delay=3_600_000, text="bad"))
            now += 3_600_000

        (doom,) = Steering(it).dead_letters()
        assert (doom.reason, doom.text, doom.history) == ("failed", "bad", History(3, 3, False))
        assert it.places.unsettled == 0

    def test_attempts_do_not_wrap(self) -> None:
        """More than 16 bits of failures are counted, and a bound set later holds."""
        it = channel(attempts=1_000_000_000)
        it.places.cursor = 1
        it.places.put_ready(0, 1, History(65_530, 65_530, False))
        for _ in range(70):
            (found,) = it.take("ann", 1, NOW, 1)
            it.requeue("ann", whole([found]), NOW, Requeue(delay=0))
        Steering(it).alter({"attempts": 5}, NOW)

        (found,) = it.take("ann", 1, NOW, 1)
        it.requeue("ann", whole([found]), NOW, Requeue(delay=0))

        assert found.failures == 65_600
        assert len(Steering(it).dead_letters()) == 1

    def test_a_handler_that_hangs_is_given_up(self) -> None:
        """A message that is never settled is delivered as often as allowed, then given up."""
        it = channel(attempts=3, lease_ms=1000)
        now, deliveries = NOW, 0
        for _ in range(10):
            deliveries += len(it.take("ann", 1, now, 1))
            now += 700_000
            it.custody.expire(now)

        (doom,) = Steering(it).dead_letters()
        assert (deliveries, doom.reason) == (3, "timeout")

    def test_what_kills_its_consumer_is_found_among_its_neighbours(self) -> None:
        """The message that takes consumers down is given up; its neighbours lose no attempt."""
        it = channel(attempts=3)
        now, steering, done, alive = NOW, Steering(it), set[int](), 0
        for _ in range(200):
            name = f"process {alive}"
            now += 10_000
            found = offsets(it.take(name, 8, now, 8))
            if any(3 in run for run in found):
                it.custody.lost(name, now, 10_000)
                now += 700_000
                it.custody.expire(now)
                alive += 1
                continue
            held = it.places.holders.get(name)
            it.finish(name, [(one, WHOLE) for one in held.leases] if held else [], now)
            done.update(offset for run in found for offset in run)

        (doom,) = steering.dead_letters()
        assert (doom.base, doom.reason, doom.history) == (3, "lost", History(4, 3, False))
        assert done == {0, 1, 2, 4, 5, 6, 7}

    def test_what_must_be_alone_waits_for_a_consumer_that_holds_nothing(self) -> None:
        """A consumer with something in hand is emptied first; others go on meanwhile."""
        it = channel(lease_ms=1000)
        it.take("ann", 2, NOW, 2)
        it.custody.expire(NOW + 1000)
        for name in ("bob", "cyd", "dan"):
            it.take(name, 1, NOW + 1000, 5)
        it.finish("bob", [(one, WHOLE) for one in it.places.holders["bob"].leases], NOW + 1000)

        assert it.places.ready.alone == 0
        assert [len(it.take(name, 1, NOW + 1000, 9)) for name in ("cyd", "bob")] == [0, 1]

    def test_emptied_one_at_a_time(self) -> None:
        """While one consumer is emptied for messages to be given alone, others get the rest."""
        it = channel(lease_ms=1000)
        it.take("ann", 3, NOW, 3)
        held = {name: it.take(name, 1, NOW + 500, 9) for name in ("bob", "cyd")}
        it.custody.expire(NOW + 1000)

        assert it.take("bob", 5, NOW + 1000, 9) == []
        assert it.guard == "bob"
        assert offsets(it.take("cyd", 2, NOW + 1000, 9)) == [[5, 6]]
        it.finish("bob", whole(held["bob"]), NOW + 1000)
        assert offsets(it.take("bob", 5, NOW + 1000, 9)) == [[0]]
        it.leave("bob", NOW + 1000)
        assert it.guard is None

    def test_what_is_lost_with_messages_elsewhere_is_not_lost_alone(self) -> None:
        """A message lost with its consumer counts only if that held nothing else at all."""
        for busy, failures in ((True, 0), (False, 1)):
            it = channel()
            it.take("ann", 1, NOW, 1)
            it.custody.lost("ann", NOW, 100, busy=busy)
            it.custody.expire(NOW + 100)

            assert it.take("bob", 1, NOW + 5000, 1, busy=True) == []
            (found,) = it.take("bob", 1, NOW + 5000, 1)
            assert (found.attempt, found.failures) == (2, failures)

    def test_leaving_is_no_failure(self) -> None:
        """A consumer that leaves in good order counts as if it had not had the messages."""
        it = channel()
        it.take("ann", 5, NOW, 5)
        it.leave("ann", NOW)

        (found,) = it.take("bob", 5, NOW, 5)

        assert (found.attempt, offsets([found])) == (1, [[0, 1, 2, 3, 4]])

    def test_a_link_that_comes_back_in_time_loses_nothing(self) -> None:
        """Within the grace a consumer finds its leases as they were, with a new deadline."""
        it = channel(lease_ms=1000)
        (found,) = it.take("ann", 3, NOW, 3)
        it.custody.lost("ann", NOW, 10_000)
        assert it.custody.expire(NOW + 9000) == []

        assert it.custody.resume("ann", NOW + 9000) == [(found.lease_id, 0b111)]
        assert it.finish("ann", whole([found]), NOW + 9999).done == 3


class TestOrder:
    def test_a_message_that_comes_back_goes_first(self) -> None:
        """What is given back is given out before what comes after it."""
        it = channel()
        (one, two) = it.take("ann", 1, NOW, 9), it.take("ann", 1, NOW, 9)
        it.requeue("ann", whole(one), NOW, Requeue(delay=0))

        assert offsets(it.take("ann", 1, NOW, 9)) == [[0]]
        assert offsets(two) == [[1]]

    def test_order_after_a_consumer_died(self) -> None:
        """Messages of a consumer that is gone come again in their order."""
        it = channel(order="strict")
        it.take("ann", 5, NOW, 8)
        it.custody.lost("ann", NOW, 0)
        it.custody.expire(NOW)

        seen = []
        for _ in range(5):
            found = it.take("bob", 100, NOW, 8)
            seen += offsets(found)
            it.finish("bob", whole(found), NOW)
        assert seen == [[0], [1], [2], [3], [4]]
        assert offsets(it.take("bob", 100, NOW, 8)) == [[5, 6, 7]]

    def test_strict_order_waits(self) -> None:
        """In strict order what follows a message that waits is revoked, and waits too."""
        it = channel(order="strict")
        (found,) = it.take("ann", 3, NOW, 9)

        answer = it.requeue("ann", [(found.lease_id, 0b001)], NOW, Requeue(delay=500))

        assert [lost.bits for lost in answer.revoked] == [0b110]
        assert it.take("ann", 9, NOW, 9) == []
        assert "strict" in count(it, 9).why
        assert offsets(it.take("ann", 9, NOW + 500, 9)) == [[0], [1, 2], [3, 4, 5, 6, 7, 8]]

    def test_a_stuck_key_parks_only_itself(self) -> None:
        """While a message of a key waits, other keys go on, even those of the same slot."""
        it = channel(order="key")
        it.look(0, [0, 256, 0, 256, 1], NOW)
        (found,) = it.take("ann", 1, NOW, 5)
        it.requeue("ann", whole([found]), NOW, Requeue(delay=500))

        assert offsets(it.take("bob", 9, NOW, 5)) == [[1, 3, 4]]
        counts = count(it, 5)
        assert (counts.parked, counts.waiting, counts.in_flight) == (1, 1, 3)

    def test_a_slot_moves_when_nothing_of_it_is_in_flight(self) -> None:
        """Two consumers never hold messages of one key at a time."""
        it = channel(order="key")
        it.look(0, [0, 0, 1, 0], NOW)
        first = it.take("ann", 1, NOW, 4)

        assert offsets(it.take("bob", 9, NOW, 4)) == [[2]]
        it.finish("ann", whole(first), NOW)
        assert offsets(it.take("bob", 9, NOW, 4)) == [[1, 3]]

    def test_many_failing_keys_do_not_stop_the_rest(self) -> None:
        """A thousand parked messages of one key stand aside of all others."""
        it = channel(order="key")
        it.look(0, [7] * 2000 + list(range(100, 200)), NOW)
        found = it.take("ann", 1, NOW, 2100)
        it.requeue("ann", whole(found), NOW, Requeue(delay=500))

        assert sum(one.messages for one in it.take("ann", 500, NOW, 2100)) == 100


class TestGivingUp:
    def test_rejected(self) -> None:
        """What is rejected goes to the dead-letter topic once, with the reason, then is settled."""
        it = channel()
        steering = Steering(it)
        found = it.take("ann", 3, NOW, 3)
        it.reject("ann", [(found[0].lease_id, 0b101)], NOW, "no such user")

        (doom,) = steering.dead_letters()
        assert steering.dead_letters() == []
        assert (doom.number, doom.base, doom.bits, doom.text) == (0, 0, 0b101, "no such user")
        steering.unburied(doom)
        assert steering.dead_letters() == [doom]
        steering.buried(doom, NOW)
        assert count(it, 3).doomed == 0
        assert it.places.floor == 1

    def test_numbers_go_on_after_a_restart(self) -> None:
        """What was given up but not yet appended is told again with the same numbers."""
        it = channel()
        found = it.take("ann", 3, NOW, 3)
        it.reject("ann", [(found[0].lease_id, 0b011)], NOW)
        it.reject("ann", [(found[0].lease_id, 0b100)], NOW)
        before = Steering(it).dead_letters()

        again = Channel(it.policy, lease_ids(2), replay(Places(), it.journal.drain()))

        assert Steering(again).dead_letters() == before
        assert [doom.number for doom in before] == [0, 2]

    def test_too_long(self) -> None:
        """Beyond its length the oldest messages of a channel are given up."""
        it = channel(max_length=10)
        steering = Steering(it)
        held = it.take("ann", 2, NOW, 14)

        assert not steering.shorten(14, NOW)

        (doom,) = steering.dead_letters()
        assert (doom.base, doom.bits, doom.reason) == (2, 0b1111, "length")
        assert steering.excess(14) == 0
        assert it.finish("ann", whole(held), NOW).done == 2
        assert offsets(it.take("ann", 99, NOW, 14)) == [list(range(6, 14))]

    def test_too_long_and_refusing(self) -> None:
        """A channel that refuses does so as soon as no more fit, and gives nothing up."""
        it = channel(max_length=10, overflow="refuse")

        assert not Steering(it).shorten(9, NOW)
        assert Steering(it).shorten(10, NOW)
        assert Steering(it).shorten(14, NOW)
        assert it.places.given_up == 0

    def test_too_much_is_held(self) -> None:
        """What is held is left, what is not goes, and no producer is refused for it."""
        it = channel(max_length=1)
        it.take("ann", 2, NOW, 3)

        assert not Steering(it).shorten(3, NOW)
        assert [(doom.base, doom.bits) for doom in Steering(it).dead_letters()] == [(2, 1)]

    def test_expired_while_nobody_consumes(self) -> None:
        """What expires is given up without a consumer, in front and in the middle."""
        it = channel()
        steering = Steering(it)

        assert list(steering.expire(Runs([(5, 8)]), NOW)) == []

        assert [doom.base for doom in steering.dead_letters()] == [5]
        assert offsets(it.take("ann", 99, NOW, 10)) == [[0, 1, 2, 3, 4, 8, 9]]


class TestSteering:
    def test_paused(self) -> None:
        """A paused channel gives out nothing, and takes settles."""
        it = channel()
        steering = Steering(it)
        found = it.take("ann", 1, NOW, 9)
        steering.pause(True, NOW)

        assert it.take("ann", 5, NOW, 9) == []
        assert count(it, 9).why == "it is paused"
        assert it.finish("ann", whole(found), NOW).done == 1
        steering.pause(False, NOW)
        assert offsets(it.take("ann", 2, NOW, 9)) == [[1, 2]]

    def test_seek_and_undo(self) -> None:
        """A seek says before what it will do, and can be taken back without doing work twice."""
        it = channel()
        steering = Steering(it)
        it.finish("ann", whole(it.take("ann", 5, NOW, 10)), NOW)

        assert steering.preview(8) == (3, 0, 0)
        steering.seek(8, NOW)
        it.finish("ann", whole(it.take("ann", 5, NOW, 10)), NOW)
        assert steering.undo(NOW) == []
        assert offsets(it.take("ann", 9, NOW, 10)) == [[5, 6, 7]]

        assert steering.preview(0) == (0, 7, 3)
        (lost,) = steering.seek(0, NOW)
        assert lost.consumer == "ann"
        assert steering.undo(NOW + 600_000) is None

    def test_seek_over_what_was_given_up(self) -> None:
        """What was given up does not come again by a seek; what was skipped ahead does."""
        it = channel()
        steering = Steering(it)
        steering.expire(Runs([(2, 6)]), NOW)
        steering.skip(8, 9, NOW)

        assert steering.preview(4) == (2, 1, 0)
        steering.seek(4, NOW)
        assert offsets(it.take("ann", 99, NOW, 10)) == [[6, 7, 8, 9]]
        steering.undo(NOW)
        it.leave("ann", NOW)
        assert offsets(it.take("ann", 99, NOW, 10)) == [[0, 1, 6, 7, 9]]

    def test_empty(self) -> None:
        """An emptied channel goes on with what comes next."""
        it = channel()
        Steering(it).empty(9, NOW)

        assert count(it, 9).backlog == 0
        assert offsets(it.take("ann", 5, NOW, 11)) == [[9, 10]]

    def test_retention_takes_what_is_in_flight_too(self) -> None:
        """Messages that exist no more are settled wherever they are, and their holders are told."""
        it = channel()
        steering = Steering(it)
        (found,) = it.take("ann", 4, NOW, 9)
        it.requeue("ann", [(found.lease_id, 0b1)], NOW, Requeue(delay=500))
        it.leave("ann", NOW, [(found.lease_id, 0b10)])

        (told,) = steering.trim(3, NOW)

        assert (told.consumer, told.bits) == ("ann", 0b100)
        assert (it.places.floor, it.places.unsettled) == (3, 1)
        assert it.counters.skipped == 3
        assert steering.trim(3, NOW) == []
        steering.trim(6, NOW)
        assert offsets(it.take("ann", 9, NOW, 9)) == [[6, 7, 8]]

    def test_retention_passes_over_very_many_that_wait_in_one_go(self) -> None:
        """What waits one by one costs a trim one look at each, not one at all others for each."""
        it = channel()
        it.places.pass_to(NOW, "", 6000)
        for offset in range(6000):
            it.places.put_waiting((NOW + 500 + offset, offset, 1, History(1, 1, False)))

        Steering(it).trim(5999, NOW, spared=[7])

        assert [(start, end) for start, end, _ in it.places.waits(0, 6000)] == [
            (7, 8),
            (5999, 6000),
        ]
        assert (it.places.delayed, it.places.unsettled) == (2, 2)

    def test_an_altered_filter_holds_for_what_was_not_given_out(self) -> None:
        """With a new filter all that nobody had yet is looked at again."""
        it = channel()
        held = it.take("ann", 2, NOW, 6)
        it.leave("ann", NOW, whole(held))
        Steering(it).alter({"filter": "kind"}, NOW)
        assert it.take("ann", 9, NOW, 6) == []
        assert "looked at" in count(it, 6).why

        assert it.looking.wanted(6) == (0, 2)
        it.look(0, [0, 0], NOW, [(0, 1)])
        assert it.looking.wanted(6) == (2, 6)
        it.look(2, [0] * 4, NOW, [(3, 6)])

        assert offsets(it.take("ann", 9, NOW, 6)) == [[1], [2]]

    def test_scattered_messages_are_looked_at_together(self) -> None:
        """One look tells of all that a batch holds, and nothing is kept of what is settled."""
        it = channel()
        (found,) = it.take("ann", 9, NOW, 9)
        it.finish("ann", [(found.lease_id, 0b1010)], NOW)
        it.leave("ann", NOW, [(found.lease_id, 0b111110101)])

        Steering(it).alter({"order": "key"}, NOW)
        assert it.looking.wanted(9) == (0, 9)
        it.look(0, [7, 1, 7, 1, 7], NOW)
        assert it.looking.wanted(9) == (5, 9)
        it.look(5, [8, 7, 8, 7], NOW)

        assert offsets(it.take("ann", 3, NOW, 9)) == [[0, 2, 4]]
        assert offsets(it.take("bob", 9, NOW, 9)) == [[5, 7]]

    def test_at_most_once(self) -> None:
        """Delivered at most once, a message is settled in the ledger before it is sent."""
        it = channel(delivery="at_most_once")
        (found,) = it.take("ann", 5, NOW, 5)

        assert (found.lease_id, it.places.unsettled, it.places.floor) == (0, 0, 5)
        assert replay(Places(), it.journal.drain()).floor == 5


class TestLedger:
    def test_long_bits_are_short_in_the_ledger(self) -> None:
        """A single settle far inside a long lease costs a few bytes."""
        it = channel()
        (found,) = it.take("ann", 4096, NOW, 4096)
        it.journal.drain()

        it.finish("ann", [(found.lease_id, 1 << 4000), (found.lease_id, 3 << 4000)], NOW)
        it.finish("ann", [(found.lease_id, 5 << 4010)], NOW)
        it.requeue("ann", [(found.lease_id, 1 << 63 | 1 << 64)], NOW, Requeue(delay=7))
        (value,) = it.journal.drain()

        assert len(value) < 80
        time, who, entries = describe(value)
        assert (time, who, [entry[2] for entry in entries]) == (
            NOW,
            "ann",
            [4000, 4001, 5 << 4010, 1 << 63 | 1 << 64],
        )

    def test_a_snapshot_is_all(self) -> None:
        """A snapshot stands for everything before it."""
        it = channel(lease_ms=1000)
        steering = Steering(it)
        (found,) = it.take("ann", 100, NOW, 100)
        it.finish("ann", [(found.lease_id, 0b1010)], NOW)
        it.requeue("ann", [(found.lease_id, 0b100)], NOW)
        it.reject("ann", [(found.lease_id, 0b1)], NOW)
        it.leave("ann", NOW, [(found.lease_id, 1 << 80)])
        steering.seek(50, NOW)
        steering.alter({"attempts": 4}, NOW)
        it.take("bob", 70, NOW, 100)

        value = snapshot(it.places, NOW)
        again = replay(Places(), [value])

        assert snapshot(again, NOW) == value
        assert (again.in_flight, again.undo) == (50, it.places.undo)
        assert ChannelPolicy.from_stored(again.policy or {}) == it.policy
        assert describe(value) == (NOW, None, [])

    @pytest.mark.parametrize(
        "value", [b"", b"\x93\x01\xc0\x91\x09", b"\x91\x01", b"\x93\x01\xa0\x91\x91\x63"]
    )
    def test_what_cannot_be_read_is_said(self, value: bytes) -> None:
        """A record that is none of a ledger, or of another version, is an error."""
        with pytest.raises(CorruptBatch):
            replay(Places(), [value])
