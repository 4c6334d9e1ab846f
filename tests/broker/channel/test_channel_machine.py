"""Whatever happens to a channel in whatever order, it stays what a list of messages would be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from typing_extensions import override

from tests.broker.channel.model import Message, Model
from tests.conftest import LONG
from tinymq.broker.channel.acts import Act, Verb, act
from tinymq.broker.channel.counts import count
from tinymq.broker.channel.lease import WHOLE, Lost, lease_ids
from tinymq.broker.channel.ledger import replay, snapshot
from tinymq.broker.channel.places import Doom, Places
from tinymq.broker.channel.returns import Requeue
from tinymq.broker.channel.runs import Run, Runs, offsets_in
from tinymq.broker.channel.state import Channel
from tinymq.broker.channel.steering import Steering
from tinymq.channelpolicy import ChannelPolicy

GRACE = 500
CONSUMERS = st.sampled_from(["ann", "bob", "cyd"])
#: Three of them share a slot.
KEYS = st.sampled_from([0, 256, 512, 1, 2])
FRACTION = st.integers(0, 1000)
#: Of what would drown all else.
RARELY = st.integers(0, 4).map(lambda chance: chance == 4)
POLICY = ChannelPolicy(lease_ms=1000, attempts=3, backoff=("1s", "2s"), jitter_percent=0)


class ChannelMachine(RuleBasedStateMachine):
    """Does the same to a channel and to its model."""

    done: ClassVar[Counter[str]] = Counter()

    @initialize(
        order=st.sampled_from(["none", "key", "strict"]),
        delivery=st.sampled_from(["at_least_once"] * 5 + ["at_most_once"]),
        filtered=st.sampled_from([False, False, True]),
        keys=st.lists(KEYS, min_size=8, max_size=12),
        hide=st.integers(0, 1 << 12),
    )
    def begin(self, order: str, delivery: str, filtered: bool, keys: list[int], hide: int) -> None:
        """Make a channel."""
        given = {"order": order, "delivery": delivery, "filter": "wanted" if filtered else ""}
        policy = POLICY.altered(given)
        self.epoch = 1
        self.now = 1_000_000
        self.model = Model(policy)
        self.channel = Channel(policy, lease_ids(self.epoch))
        self.steering = Steering(self.channel)
        self.written: list[bytes] = []
        self.points: list[tuple[int, Model]] = [(0, self.model.copy())]
        self.handed: list[Doom] = []
        #: Leases that consumers may still speak of.
        self.spoken: list[tuple[str, int, int]] = []
        event(f"order {order}")
        self.said("channels " + order)
        self.said("examples")
        self.append(keys, hide)

    @classmethod
    def said(cls, what: str, how_many: int = 1) -> None:
        """Count what was tried."""
        cls.done[what] += how_many

    # --- what is there -----------------------------------------------------------

    def order_known(self) -> bool:
        """Whether the channel knows the keys of what is in flight."""
        return self.channel.policy.order != "key" or self.channel.places.order is not None

    def within(self, fraction: int, low: int, high: int) -> int:
        """Choose a number."""
        return low + fraction * (high - low + 1) // 1001

    def choose(self, fraction: int, consumer: str) -> tuple[str, int] | None:
        """Choose a lease, mostly one that somebody holds, and who speaks of it."""
        live = self.model.live()
        if live and fraction % 4:
            lease = live[fraction * len(live) // 1001]
            return self.model.leases[lease].holder, lease
        spoken = [lease for _, lease, _ in self.spoken[-5:]]
        return (consumer, spoken[fraction * len(spoken) // 1001]) if spoken else None

    # --- messages come -------------------------------------------------------------

    @rule(keys=st.lists(KEYS, min_size=4, max_size=12), hide=st.integers(0, 1 << 12))
    def publish(self, keys: list[int], hide: int) -> None:
        """Append messages."""
        self.append(keys, hide)

    def append(self, keys: list[int], hide: int) -> None:
        """Append messages, unless there are very many."""
        if self.model.end + len(keys) > 200:
            return
        for at, key in enumerate(keys):
            hidden = bool(self.model.policy.filter) and bool(hide >> at & 1)
            self.model.messages.append(Message(self.model.end, key, hidden))
        self.said("messages", len(keys))

    @rule(most=st.integers(1, 50))
    def look(self, most: int) -> None:
        """Tell the channel what it wants to know, or a part of it."""
        self.look_once(most)

    def look_at_all(self) -> None:
        """Tell the channel everything it wants to know."""
        while self.channel.looking.wanted(self.model.end):
            self.look_once(50)

    def look_once(self, most: int) -> None:
        """Tell the channel what it wants to know, as far as it goes."""
        wanted = self.channel.looking.wanted(self.model.end)
        if wanted is None:
            return
        start, end = wanted
        end = min(end, start + most)
        rows = self.model.messages[start:end]
        hidden = [(m.offset, m.offset + 1) for m in rows if m.hidden]
        self.channel.look(start, [m.key for m in rows], self.now, hidden)

    # --- consumers -------------------------------------------------------------------

    @rule(
        consumer=CONSUMERS,
        credit=st.sampled_from([1, 2, 3, 5, 8, 100]),
        busy=st.sampled_from([False] * 4 + [True]),
        looked=st.booleans(),
    )
    def take(self, consumer: str, credit: int, busy: bool, looked: bool) -> None:
        """Let a consumer have messages."""
        self.take_some(consumer, credit, busy, looked)

    @rule(takes=st.lists(st.integers(0, 9), min_size=3, max_size=3))
    def take_all(self, takes: list[int]) -> None:
        """Let all consumers have messages."""
        self.all_take(takes)

    @rule(takes=st.lists(st.integers(0, 9), min_size=3, max_size=3))
    def take_again(self, takes: list[int]) -> None:
        """Let all consumers have messages; whatever rules are left out, one of these is not."""
        self.all_take(takes)

    def usual(self) -> None:
        """Do what happens most: messages come and go out."""
        self.append([0, 256, 1], 0)
        self.all_take([3, 2, 1])

    def all_take(self, takes: list[int]) -> None:
        """Let all consumers have messages, and check them."""
        for consumer, credit in zip(("ann", "bob", "cyd"), takes, strict=True):
            self.take_some(consumer, credit, busy=False, looked=True)

    def take_some(self, consumer: str, credit: int, busy: bool, looked: bool) -> None:
        """Let a consumer have messages, and check them."""
        if consumer in self.model.absent:
            return
        if looked:
            self.look_at_all()
        found = self.channel.take(consumer, credit, self.now, self.model.end, busy=busy)
        assert sum(delivery.messages for delivery in found) <= credit
        self.model.take(consumer, found, self.now, busy)
        self.spoken += ((consumer, one.lease_id, one.bits) for one in found if one.lease_id)
        self.said("deliveries", sum(delivery.messages for delivery in found))
        self.said("leases", len(found))

    def settles(
        self, consumer: str, fraction: int, bits: int
    ) -> tuple[str, list[tuple[int, int]], list[Message], list[Lost]] | None:
        """Choose who settles what, and say what should come of it."""
        chosen = self.choose(fraction, consumer)
        if chosen is None:
            return None
        consumer, lease = chosen
        known = self.model.leases.get(lease)
        mine = known is not None and known.holder == consumer
        messages = self.model.of(lease, bits) if mine else []
        return consumer, [(lease, bits)], messages, self.model.late(consumer, lease, bits)

    BITS = st.one_of(
        st.just(WHOLE),
        st.integers(0, 7).map(lambda bit: 1 << bit),
        st.integers(1, 255),
    )

    @rule(consumer=CONSUMERS, fraction=FRACTION, bits=BITS)
    def finish(self, consumer: str, fraction: int, bits: int) -> None:
        """Settle messages for good."""
        chosen = self.settles(consumer, fraction, bits)
        if chosen is None:
            return
        consumer, settles, messages, late = chosen
        found = self.channel.finish(consumer, settles, self.now)
        assert found == (len(messages), late, [])
        self.model.finish(messages)
        self.said("finished", len(messages))
        self.said("late settles", len(late))

    @rule(consumer=CONSUMERS)
    def finish_all(self, consumer: str) -> None:
        """Settle everything that a consumer holds, as one list."""
        held = self.model.held(consumer)
        settles = [(lease, WHOLE) for lease in sorted({m.lease for m in held})]
        assert self.channel.finish(consumer, settles, self.now) == (len(held), [], [])
        self.model.finish(held)
        self.said("finished", len(held))

    @rule(
        consumer=CONSUMERS,
        fraction=FRACTION,
        bits=BITS,
        delay=st.sampled_from([None, 0, 700, 5000]),
        failure=st.booleans(),
    )
    def requeue(
        self, consumer: str, fraction: int, bits: int, delay: int | None, failure: bool
    ) -> None:
        """Let messages come again."""
        self.give_again(consumer, fraction, bits, delay, failure)

    def give_again(
        self, consumer: str, fraction: int, bits: int, delay: int | None, failure: bool
    ) -> None:
        """Requeue, and check what becomes of it."""
        chosen = self.settles(consumer, fraction, bits)
        if chosen is None:
            return
        consumer, settles, messages, late = chosen
        self.model.keys_known = self.order_known()
        found = self.channel.requeue(consumer, settles, self.now, Requeue(delay, failure))
        self.model.requeue(messages, self.now, delay, failure)
        revoked = self.model.revoke(consumer, [m for m in messages if m.state != "doomed"])
        assert found == (len(messages), late, revoked)
        self.said("requeued", len(messages))
        self.said("revoked leases", len(revoked))

    @rule(fraction=FRACTION, delay=st.sampled_from([0, 700]))
    def fail_one(self, fraction: int, delay: int) -> None:
        """Let a handler fail."""
        self.give_again("ann", fraction, WHOLE, delay, failure=True)

    @rule(consumer=CONSUMERS, fraction=FRACTION, bits=BITS)
    def reject(self, consumer: str, fraction: int, bits: int) -> None:
        """Give messages up."""
        chosen = self.settles(consumer, fraction, bits)
        if chosen is None:
            return
        consumer, settles, messages, late = chosen
        assert self.channel.reject(consumer, settles, self.now, "no") == (len(messages), late, [])
        self.model.reject(messages)
        self.said("rejected", len(messages))

    @rule(consumer=CONSUMERS, fraction=FRACTION, bits=BITS, term=st.sampled_from([100, 700, 1000]))
    def touch(self, consumer: str, fraction: int, bits: int, term: int) -> None:
        """Renew leases."""
        chosen = self.settles(consumer, fraction, bits)
        if chosen is None:
            return
        consumer, settles, messages, late = chosen
        assert self.channel.touch(consumer, settles, self.now, term) == (len(messages), late, [])
        if messages:
            self.model.touch(settles[0][0], messages, self.now + term)
        self.said("touched", len(messages))

    @rule(consumer=CONSUMERS, fraction=FRACTION, bits=BITS)
    def give_back(self, consumer: str, fraction: int, bits: int) -> None:
        """Give back what was not begun with."""
        chosen = self.settles(consumer, fraction, bits)
        if chosen is None:
            return
        consumer, settles, messages, late = chosen
        self.model.keys_known = self.order_known()
        found = self.channel.leave(consumer, self.now, settles)
        self.model.leave(messages)
        assert found == (len(messages), late, self.model.revoke(consumer, messages))
        self.said("given back", len(messages))

    @rule(really=RARELY, consumer=CONSUMERS)
    def leave(self, really: bool, consumer: str) -> None:
        """Leave in good order."""
        if not really:
            self.usual()
            return
        held = self.model.held(consumer)
        assert self.channel.leave(consumer, self.now) == (len(held), [], [])
        self.model.leave(held)
        self.model.absent.pop(consumer, None)
        self.said("left")

    @rule(consumer=CONSUMERS, busy=st.booleans())
    def disconnect(self, consumer: str, busy: bool) -> None:
        """Lose the link."""
        self.channel.custody.lost(consumer, self.now, GRACE, busy=busy)
        if self.model.held(consumer):
            self.model.absent[consumer] = (self.now + GRACE, busy, False)
            self.said("disconnected")

    @rule(consumer=CONSUMERS)
    def resume(self, consumer: str) -> None:
        """Come back to what is still held."""
        held = self.channel.custody.resume(consumer, self.now)
        if self.model.absent.pop(consumer, None) is None:
            assert held == []
            return
        mine = sorted({m.lease for m in self.model.held(consumer)})
        assert sorted(held) == [
            (lease, self.model.bits(lease, self.model.of(lease, WHOLE))) for lease in mine
        ]
        for lease in mine:
            messages = self.model.of(lease, WHOLE)
            self.model.touch(lease, messages, self.now + self.model.policy.lease_ms)
        self.said("resumed")

    @precondition(lambda self: self.model.live())
    @rule(really=RARELY, fraction=FRACTION, bit=st.integers(0, 7))
    def missing(self, really: bool, fraction: int, bit: int) -> None:
        """Find a gap in the log when messages are read."""
        if not really:
            self.usual()
            return
        live = self.model.live()
        lease = live[fraction * len(live) // 1001]
        messages = self.model.of(lease, 1 << bit)
        assert self.channel.missing(lease, 1 << bit, self.now) == len(messages)
        self.model.finish(messages)

    # --- time ------------------------------------------------------------------------

    @rule(ms=st.sampled_from([1, 99, 300, 400, 600, 1000, 1001, 2500]))
    def pass_time(self, ms: int) -> None:
        """Let time pass."""
        self.now += ms
        self.tick()

    def tick(self) -> None:
        """Let what is due happen."""
        self.model.keys_known = self.order_known()
        told = self.channel.custody.expire(self.now)
        self.model.expire(told, self.now)
        due = self.channel.custody.next_time()
        assert due is None or due > self.now
        self.said("leases lost by time", len(told))

    # --- steering ----------------------------------------------------------------------

    @rule(
        fraction=FRACTION,
        span=st.integers(1, 6),
        verb=st.sampled_from(["requeue", "finish", "extend", "dead_letter"]),
        ms=st.sampled_from([0, 700, 5000]),
        dry_run=st.sampled_from([False, False, False, True]),
    )
    def act(self, fraction: int, span: int, verb: Verb, ms: int, dry_run: bool) -> None:
        """Let people do something with messages that are in flight, whoever holds them."""
        held = [m for m in self.model.messages if m.state == "leased"]
        if not held:
            self.usual()
            return
        first = held[fraction * len(held) // 1001].offset
        wanted = range(first, min(self.model.end, first + span))
        messages = [m for m in held if m.offset in wanted]
        self.model.keys_known = self.order_known()
        found = act(self.channel, wanted, Act(verb, ms, "why"), self.now, dry_run=dry_run)
        assert found.done == [m.offset for m in messages]
        assert found.missing == sorted(set(wanted).difference(found.done))
        told = [] if dry_run else self.model.act(messages, verb, ms, self.now)
        assert sorted(found.lost) == sorted(told)
        self.said(f"{verb} by people", 0 if dry_run else len(messages))

    @rule(really=RARELY, paused=st.booleans())
    def pause(self, really: bool, paused: bool) -> None:
        """Pause, or go on."""
        if not really:
            self.usual()
            return
        self.steering.pause(paused, self.now)
        self.model.paused = paused

    @rule(really=RARELY, fraction=FRACTION, window=st.sampled_from([500, 100_000]))
    def seek(self, really: bool, fraction: int, window: int) -> None:
        """Begin anew at another offset."""
        if not really:
            self.usual()
            return
        cursor = self.within(fraction, self.model.start, self.model.end)
        skipped, revived = self.model.difference(cursor)
        held = [m for m in self.model.messages if m.state == "leased"]
        preview = self.steering.preview(cursor)
        if not self.model.policy.filter:
            assert preview == (len(skipped), len(revived), len(held))
        told = self.steering.seek(cursor, self.now, window)
        assert sorted(told) == sorted(
            Lost(
                self.model.leases[lease].holder,
                lease,
                self.model.bits(lease, self.model.of(lease, WHOLE)),
            )
            for lease in self.model.live()
        )
        self.model.seek(cursor, self.now, window)
        self.said("seeks")

    @rule()
    def undo(self) -> None:
        """Take the last seek back."""
        possible = self.model.undo is not None
        told = self.steering.undo(self.now)
        assert (told is not None) == possible
        if told is None:
            return
        before = {lease: self.model.of(lease, WHOLE) for lease in self.model.live()}
        self.model.take_back()
        gone = {
            lease: [m for m in messages if self.model.messages[m.offset].state != "leased"]
            for lease, messages in before.items()
        }
        assert sorted(told) == sorted(
            Lost(self.model.leases[lease].holder, lease, self.model.bits(lease, messages))
            for lease, messages in gone.items()
            if messages
        )
        self.said("undone seeks")

    @rule(really=RARELY, fraction=st.integers(0, 200))
    def trim(self, really: bool, fraction: int) -> None:
        """Lose the oldest messages to retention."""
        if not really:
            self.usual()
            return
        start = self.within(fraction, self.model.start, self.model.end)
        before = self.model.live()
        self.steering.trim(start, self.now)
        self.model.trim(start)
        self.said("leases trimmed", len(before) - len(self.model.live()))

    @rule(really=RARELY, first=FRACTION, length=st.integers(1, 5))
    def skip(self, really: bool, first: int, length: int) -> None:
        """Find a gap in the log."""
        if not really:
            self.usual()
            return
        start = self.within(first, self.model.start, self.model.end)
        end = min(start + length, self.model.end)
        if start < end:
            self.steering.skip(start, end, self.now)
            self.model.skip(start, end)

    @rule(
        really=RARELY,
        chosen=st.sets(st.integers(0, 15), min_size=1),
        first=FRACTION,
        passing=st.booleans(),
    )
    def expire(self, really: bool, chosen: set[int], first: int, passing: bool) -> None:
        """Let the time to live of some messages be over, or have been before a seek."""
        start = self.within(first, self.model.start, self.model.end)
        offsets = sorted(start + each for each in chosen if start + each < self.model.end)
        if not really or not offsets:
            self.usual()
            return
        due = Runs((offset, offset + 1) for offset in offsets)
        hidden = [offset for offset in offsets if self.model.messages[offset].hidden]

        def hides(runs: list[Run]) -> list[Run]:
            return [run for run in runs_of(hidden) for _ in Runs(runs).within(*run)]

        if passing:
            self.steering.pass_over(due, self.now, hides)
            found = self.steering.flying(due)
        else:
            found = self.steering.expire(due, self.now, hides)
        held = self.model.outlive(offsets, hidden, passing=passing)
        assert [offset for run in found for offset in range(*run)] == held
        self.said("expired", len(offsets))

    @rule(
        first=FRACTION,
        length=st.integers(1, 12),
        ms=st.sampled_from([0, 1, 500, 5000]),
        dry_run=st.booleans(),
    )
    def reschedule(self, first: int, length: int, ms: int, dry_run: bool) -> None:
        """Let what waits come at another time."""
        every = [m.offset for m in self.model.messages if m.state == "waiting"]
        if not every:
            self.usual()
            return
        start = max(0, every[self.within(first, 0, len(every) - 1)] - length // 2)
        some = self.model.messages[start : start + length]
        waiting = [m for m in some if m.state == "waiting" and m.due > self.now]
        found = self.steering.reschedule(
            [m.offset for m in some], self.now + ms, self.now, dry_run=dry_run
        )
        assert found == [m.offset for m in waiting]
        for message in [] if dry_run else waiting:
            message.due = self.now + ms
        self.said("rescheduled", 0 if dry_run else len(waiting))

    @rule(
        really=RARELY,
        order=st.sampled_from(["none", "key", "strict"]),
        attempts=st.sampled_from([2, 3, 5]),
        lease=st.sampled_from([500, 1000, 2000]),
    )
    def alter(self, really: bool, order: str, attempts: int, lease: int) -> None:
        """Change the policy while the channel runs."""
        if not really:
            self.usual()
            return
        given: dict[str, str | int] = {"order": order, "attempts": attempts, "lease.ms": lease}
        self.model.policy = self.steering.alter(given, self.now)
        self.said("altered policies")

    @rule(well=st.booleans())
    def bury(self, well: bool) -> None:
        """Append what was given up to the dead-letter topic, or fail to."""
        for doom in self.steering.dead_letters():
            for offset in offsets_in(doom.base, doom.bits):
                message = self.model.messages[offset]
                assert message.state == "doomed"
                assert doom.history[:2] == (message.deliveries, message.failures)
                if well:
                    message.state, message.redriven = "settled", False
            if well:
                self.steering.buried(doom, self.now)
                self.said("buried", doom.bits.bit_count())
            else:
                self.steering.unburied(doom)

    @rule(really=RARELY, first=FRACTION, length=st.integers(1, 12))
    def revive(self, really: bool, first: int, length: int) -> None:
        """Send messages back from the dead-letter topic; twice is as good as once."""
        start = self.within(first, self.model.start, self.model.end)
        some = self.model.messages[start : start + length]
        offsets = [message.offset for message in some if not message.hidden]
        if not really or not offsets:
            self.usual()
            return
        expected = self.model.revive(offsets)
        for _ in range(2):
            assert self.steering.revive(dict.fromkeys(offsets, 1), self.now) == expected
        self.said("revived", len(expected[0]))

    @rule(really=RARELY)
    def recall(self, really: bool) -> None:
        """Take back what was given up, for nobody takes it."""
        dooms = self.steering.dead_letters()
        if not really or not dooms:
            for doom in dooms:
                self.steering.unburied(doom)
            self.usual()
            return
        for doom in dooms:
            for offset in offsets_in(doom.base, doom.bits):
                message = self.model.messages[offset]
                message.state = "open"
                if offset >= self.channel.places.cursor:
                    message.renew()
            self.steering.recall(doom, self.now)
        self.said("recalled", len(dooms))

    # --- the ledger -----------------------------------------------------------------------

    @rule()
    def sync(self) -> None:
        """Bring the ledger to the disk: nothing before it can be lost."""
        self.points = self.points[-1:]

    @rule(really=RARELY)
    def fold(self, really: bool) -> None:
        """Write a snapshot in place of all records."""
        if not really:
            self.usual()
            return
        self.written = [snapshot(self.channel.places, self.now)]
        self.points = [(1, self.granted(self.model.copy()))]
        self.said("snapshots")

    @staticmethod
    def granted(model: Model) -> Model:
        """A snapshot keeps the deadlines that leases have, but not those of parts."""
        for lease in model.leases.values():
            lease.granted = lease.deadline
        return model

    @rule(really=RARELY, fraction=FRACTION)
    def kill(self, really: bool, fraction: int) -> None:
        """Kill the broker: what was not synced is lost from some record on."""
        if not really:
            self.usual()
            return
        kept, model = self.points[fraction * len(self.points) // 1001]
        messages = self.model.messages
        self.written = self.written[:kept]
        places = replay(Places(), self.written)
        # The log of messages itself is on disk.
        model = model.copy()
        model.messages += (
            Message(m.offset, m.key, m.hidden) for m in messages[len(model.messages) :]
        )
        for lease in model.leases.values():
            lease.deadline, lease.touched, lease.touched_until = lease.granted, set(), 0
        self.epoch += 1
        self.model = model
        self.channel = Channel(self.model.policy, lease_ids(self.epoch), places)
        self.steering = Steering(self.channel)
        self.channel.custody.restarted(self.now, GRACE)
        model.absent = {
            model.leases[lease].holder: (self.now + GRACE, False, True) for lease in model.live()
        }
        self.points = [(kept, model.copy())]
        if kept < len(self.written):
            self.said("records lost", len(self.written) - kept)
        self.said("kills")
        self.tick()

    # --- what always holds ------------------------------------------------------------------

    @invariant()
    def compare(self) -> None:
        """Each message is where it should be, and the ledger says the same."""
        self.said("steps")
        self.written += self.channel.journal.drain()
        if self.points[-1][0] != len(self.written):
            self.points.append((len(self.written), self.model.copy()))
        else:
            self.points[-1] = (len(self.written), self.model.copy())
        found = where(self.channel.places, self.model.end, self.now)
        expected = {m.offset: self.expected(m) for m in self.model.messages}
        for message in self.model.messages:
            if message.hidden and message.state != "leased":
                assert found.pop(message.offset)[0] in {"open", "settled"}
                del expected[message.offset]
        assert found == expected
        self.check_sums(self.channel.places)

    def expected(self, message: Message) -> tuple[Any, ...]:
        """Return where a message should be, as `where` has it."""
        history = (message.deliveries, message.failures, message.alone)
        if message.state == "waiting" and message.due <= self.now:
            return ("open", *history)
        if message.state == "waiting":
            return ("waiting", *history, message.due)
        if message.state == "leased":
            return ("leased", *history, message.lease)
        return (message.state, *history) if message.state == "open" else (message.state,)

    @staticmethod
    def check_sums(places: Places) -> None:
        """What is counted is what is there."""
        leases = places.leases.values()
        assert places.in_flight == sum(lease.bits.bit_count() for lease in leases)
        assert places.delayed == sum(bits.bit_count() for _, _, bits, _ in places.waiting)
        assert places.dooming == sum(doom.bits.bit_count() for doom in places.doomed.values())
        held = Counter[str]()
        for lease in leases:
            held[lease.holder] += lease.bits.bit_count()
            assert lease.lease_id in places.holders[lease.holder].leases
        assert dict(held) == {name: holder.held for name, holder in places.holders.items()}
        assert all(start >= places.cursor for start, _ in places.ahead)
        assert not [*places.ahead.missing(places.cursor, places.floor)]

    @override
    def teardown(self) -> None:
        """Whatever happened, what is left comes to somebody who asks, in the end."""
        if not hasattr(self, "channel"):
            return
        self.steering.pause(False, self.now)
        self.model.paused = False
        for consumer in ("ann", "bob", "cyd"):
            held = self.model.held(consumer)
            self.channel.leave(consumer, self.now)
            self.model.leave(held)
        self.model.absent.clear()
        for _ in range(2 * self.model.end + 20):
            self.look_at_all()
            found = self.channel.take("dan", 7, self.now, self.model.end)
            self.model.take("dan", found, self.now, busy=False)
            held = self.model.held("dan")
            self.channel.finish("dan", [(one.lease_id, WHOLE) for one in found], self.now)
            self.model.finish(held)
            if not found:
                due = self.channel.custody.next_time()
                if due is None:
                    break
                self.now = due
                self.tick()
        counts = count(self.channel, self.model.end)
        left = [m for m in self.model.messages if m.state not in {"settled", "doomed"}]
        assert [m for m in left if not m.hidden] == []
        assert counts.backlog == 0
        dooming = "what is left was given up and is on its way to the dead-letter topic"
        assert counts.why == (dooming if counts.doomed else "it has no messages")


def runs_of(offsets: list[int]) -> list[Run]:
    """Write offsets as runs of one."""
    return [(offset, offset + 1) for offset in offsets]


def where(  # noqa: C901 - one place after the other
    places: Places, end: int, now: int
) -> dict[int, tuple[Any, ...]]:
    """Return where each message is, checking that it is in one place only."""
    found: dict[int, tuple[Any, ...]] = {}

    def put(offset: int, *facts: Any) -> None:
        assert offset not in found, (offset, found[offset], facts)
        found[offset] = facts

    parked = places.order.parked if places.order is not None else ()
    for start, behind, history in [*places.ready, *parked]:
        for offset in range(start, behind):
            put(offset, "open", *history)
    for lease in places.leases.values():
        for offset in offsets_in(lease.base, lease.bits):
            put(offset, "leased", *lease.history, lease.lease_id)
    for due, base, bits, history in places.waiting:
        for offset in offsets_in(base, bits):
            put(offset, *(("open", *history) if due <= now else ("waiting", *history, due)))
    assert all(offset < places.cursor for offset in found)
    for doom in places.doomed.values():
        for offset in offsets_in(doom.base, doom.bits):
            put(offset, "doomed")
            assert offset < places.cursor or offset in places.ahead
    for offset in range(end):
        settled = offset < places.cursor or offset in places.ahead
        found.setdefault(offset, ("settled",) if settled else ("open", 0, 0, False))
    return found


TestChannelMachine = ChannelMachine.TestCase
TestChannelMachine.settings = settings(
    max_examples=200 if LONG else 40,
    stateful_step_count=100 if LONG else 40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module", autouse=True)
def _statistics(request: pytest.FixtureRequest) -> Iterator[None]:
    """Print what was tried; in the short form only where output is not captured."""
    ChannelMachine.done.clear()
    yield
    text = ", ".join(f"{what} {many}" for what, many in sorted(ChannelMachine.done.items()))
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled() if LONG else nullcontext():
        print(f"\nchannel machine: {text}")  # noqa: T201
