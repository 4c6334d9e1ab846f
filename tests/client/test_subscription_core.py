"""The subscription without I/O, against a puppet broker with a channel."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.client.fleet import Fleet
from tests.client.puppet import CoreNetwork
from tests.client.queueing import FleetQueuePuppet, PuppetLease, QueuePuppet
from tinymq.client.core.address import Address
from tinymq.client.core.config import SubscriptionConfig
from tinymq.client.core.message import QueueMessage
from tinymq.client.core.starts import At
from tinymq.client.core.subscription import SubscriptionCore
from tinymq.client.core.taking import Face
from tinymq.errors import (
    ClosedError,
    ConfigError,
    DeadlineExceeded,
    InvalidDelay,
    InvalidRequest,
    LeaseLost,
    Overloaded,
    StateError,
    TinyMQError,
    UnknownChannel,
    UnknownTopic,
    UnknownTopicId,
    UsageError,
)
from tinymq.wire.frames import encode_frame
from tinymq.wire.header import MessageType
from tinymq.wire.messages import (
    Credit,
    Deliver,
    Message,
    Settle,
    Subscribe,
    Unsubscribe,
)
from tinymq.wire.messages import LeaseLost as LeaseLostMessage
from tinymq.wire.records import encode_batch


class Worker:
    """A subscription core on a puppet network, and what it handed out."""

    def __init__(
        self, partitions: int = 1, puppet: QueuePuppet | None = None, **config: Any
    ) -> None:
        self.puppet = puppet or QueuePuppet()
        self.channel = self.puppet.channel
        self.net = CoreNetwork(self.puppet)
        if "t" not in self.puppet.topics and partitions:
            self.puppet.make("t", partitions)
        self.cluster = self.net.cluster()
        self.woken = self.soons = 0
        self.core = SubscriptionCore(
            self.cluster,
            ("t", "work"),
            SubscriptionConfig(**config),
            Face(QueueMessage, self.wake, self.soon),
        )
        self.core.begin(self.net.now)
        self.net.pump()

    def wake(self) -> None:
        """Count."""
        self.woken += 1

    def soon(self) -> None:
        """Count."""
        self.soons += 1

    def take(self) -> QueueMessage:
        """Take a message that must be there."""
        message = self.core.take(self.net.now)
        assert message is not None
        return message

    def take_all(self) -> list[QueueMessage]:
        """Take whatever is there."""
        return list(iter(lambda: self.core.take(self.net.now), None))

    def seen(self, kind: type[Any]) -> list[Any]:
        """The requests of a kind."""
        return [request for request in self.puppet.seen if isinstance(request, kind)]

    def close(self) -> list[str]:
        """Close, and give back what `done` adds to."""
        ended: list[str] = []
        self.core.close(lambda: ended.append("ended"), self.net.now)
        return ended


class TestTaking:
    """Messages come under leases."""

    def test_messages_come_in_order(self) -> None:
        """What is published is handed out with all that belongs to it."""
        worker = Worker()
        worker.puppet.put(b"a", b"b")
        worker.net.pump()

        first, second = worker.take_all()

        assert (first.value, second.value) == (b"a", b"b")
        assert (first.topic, first.partition, first.offset) == ("t", 0, 0)
        assert (first.attempt, first.failures, first.key, first.headers) == (1, 0, None, ())
        assert first.held
        assert "t/0 offset=0 attempt=1 held" in repr(first)
        assert worker.core.in_flight == worker.core.delivered == 2
        assert worker.core.take(worker.net.now) is None

    def test_only_leased_offsets_are_handed_out(self) -> None:
        """A batch that comes as it is stored may hold messages of others."""
        worker = Worker(max_in_flight=1)
        worker.puppet.topics["t"].logs[0].append(_batch(b"a", b"b", b"c"))
        worker.channel.ready = [(0, 1)]
        worker.puppet.deliver()
        worker.net.pump()

        assert [message.value for message in worker.take_all()] == [b"b"]

    def test_a_lease_with_holes(self) -> None:
        """Bits say which offsets are meant."""
        worker = Worker()
        worker.puppet.topics["t"].logs[0].append(_batch(b"a", b"b", b"c", b"d"))
        worker.channel.ready = [(0, 1), (0, 3)]
        worker.puppet.deliver()
        worker.net.pump()

        one, two = worker.take_all()
        two.finish()
        worker.net.pump()

        assert (one.value, two.value) == (b"b", b"d")
        assert worker.channel.offsets() == [3]

    def test_what_asks_for_the_channel(self) -> None:
        """SUBSCRIBE names channel, credit, and where a new channel begins."""
        worker = Worker(max_in_flight=7, start="latest", create=False)

        (request,) = worker.seen(Subscribe)

        assert (request.channel, request.credit, request.start) == ("work", 7, "latest")
        assert (request.create, request.partitions) == (False, None)

    def test_who_waits_is_woken(self) -> None:
        """Each delivery wakes."""
        worker = Worker()
        worker.puppet.put(b"a")
        assert not worker.core.waiting
        worker.net.pump()

        assert worker.woken == 1
        assert worker.core.waiting

    def test_at_most_once(self) -> None:
        """Without a lease there is nothing to settle, and finishing is allowed."""
        worker = Worker(max_in_flight=2)
        worker.channel.delivery = "at_most_once"
        worker.puppet.put(b"a", b"b", b"c")
        worker.net.pump()
        assert worker.core.in_flight == 2

        first, second = worker.take(), worker.take()
        first.finish()
        second.touch()
        told: list[Any] = []
        first.when_confirmed(told.append)

        assert told == [None]
        with pytest.raises(UsageError, match="at most once"):
            second.requeue()
        assert worker.seen(Settle) == []

    def test_at_most_once_goes_on(self) -> None:
        """Handing out such messages makes room for others."""
        worker = Worker(max_in_flight=2)
        worker.channel.delivery = "at_most_once"
        worker.puppet.put(b"a", b"b", b"c", b"d", b"e")
        found = []
        for _ in range(5):
            worker.net.pump()
            found.append(worker.take().value)
            worker.core.more(worker.net.now)

        assert found == [b"a", b"b", b"c", b"d", b"e"]


class TestSettling:
    """What became of messages travels in one frame of a turn."""

    def test_one_frame_for_a_turn(self) -> None:
        """All finishes of a turn are one row with one lease."""
        worker = Worker()
        worker.puppet.put(b"a", b"b", b"c")
        worker.net.pump()

        for message in worker.take_all():
            message.finish()
        worker.net.pump()

        (request,) = worker.seen(Settle)
        ((partition, verb, leases, facts),) = request.rows
        assert (partition, verb, facts) == (0, 0, {})
        assert [bits for _, bits in leases] == [b"\x07"]
        assert worker.channel.offsets() == [0, 1, 2]
        assert worker.core.in_flight == 0
        assert worker.core.settled_all
        assert worker.soons == 2  # once for the settles, once for their answer

    def _settled(self, worker: Worker) -> list[int]:
        """How many messages each frame settled."""
        return [
            sum(int.from_bytes(bits or b"", "little").bit_count() for _, bits in leases)
            for request in worker.seen(Settle)
            for _, _, leases, _ in request.rows
        ]

    def test_turns_wait_for_an_answer(self) -> None:
        """What is finished before the broker has answered goes in one frame then."""
        worker = Worker(max_in_flight=40)
        worker.puppet.put(*[b"v"] * 5)
        worker.net.pump()

        for message in worker.take_all():
            message.finish()
            worker.core.pump(worker.net.now)
        worker.net.pump()

        assert self._settled(worker) == [1, 4]
        assert worker.channel.offsets() == [0, 1, 2, 3, 4]
        assert worker.core.settled_all

    def test_no_answer_is_waited_for_long(self) -> None:
        """A broker that does not answer soon is told what was finished since then."""
        worker = Worker(max_in_flight=40)
        worker.puppet.put(*[b"v"] * 4)
        worker.net.pump()

        now, (one, two, three, four) = worker.net.now, worker.take_all()
        one.finish()
        worker.core.pump(now)
        two.finish()
        worker.core.pump(now)
        assert now < worker.core.wake_at <= now + 0.1
        now = worker.core.wake_at
        worker.core.tick(now)
        three.finish()
        worker.core.pump(now)
        four.finish()
        worker.core.pump(now)
        worker.net.pump()

        assert self._settled(worker) == [1, 1, 2]

    def test_settles_go_with_credit(self) -> None:
        """What makes room for more does not wait for an answer."""
        worker = Worker(max_in_flight=40)
        worker.puppet.put(*[b"v"] * 40)
        worker.net.pump()

        messages = worker.take_all()
        for turn in (messages[:1], messages[1:10], messages[10:11]):
            for message in turn:
                message.finish()
            worker.core.pump(worker.net.now)
        worker.net.pump()

        assert self._settled(worker) == [1, 9, 1]

    def test_only_what_is_finished_waits(self) -> None:
        """What comes again does not wait for an answer, nor does anything that keeps an order."""
        worker = Worker(max_in_flight=40)
        worker.puppet.put(*[b"v"] * 3)
        worker.net.pump()
        one, two, three = worker.take_all()
        one.finish()
        worker.core.pump(worker.net.now)
        two.requeue()
        worker.core.pump(worker.net.now)
        three.requeue()
        worker.core.pump(worker.net.now)
        worker.net.pump()
        assert self._settled(worker) == [1, 1, 1]

        puppet = QueuePuppet()
        puppet.channel.order = "key"
        ordered = Worker(puppet=puppet, max_in_flight=40)
        puppet.put(*[b"v"] * 3)
        ordered.net.pump()
        for message in ordered.take_all():
            message.finish()
            ordered.core.pump(ordered.net.now)
        ordered.net.pump()
        assert self._settled(ordered) == [1, 1, 1]

    def test_every_verb(self) -> None:
        """Requeue, reject and give back say what they are told."""
        worker = Worker()
        worker.puppet.put(b"a", b"b", b"c", b"d", b"e", b"f")
        worker.net.pump()

        one, two, three, four, five, six = worker.take_all()
        one.requeue()
        two.requeue(1.5, "later")
        three.reject("no good")
        four.give_back()
        five.reject()
        six.requeue(2, failure=False)
        worker.net.pump()

        assert worker.channel.settled == [
            ("requeue", 0, 0, {}),
            ("requeue", 0, 1, {"d": 1500, "x": "later"}),
            ("reject", 0, 2, {"x": "no good"}),
            ("give back", 0, 3, {}),
            ("reject", 0, 4, {}),
            ("requeue", 0, 5, {"d": 2000, "f": False}),
        ]

    def test_messages_come_again_at_a_time(self) -> None:
        """A time is told apart from delays; nonsense leaves the message as it was."""
        worker = Worker()
        worker.puppet.put(b"a", b"b")
        worker.net.pump()
        one, two = worker.take(), worker.take()
        wrong: list[tuple[dict[str, Any], type[TinyMQError], str]] = [
            ({"delay_s": -2}, InvalidDelay, "negative"),
            ({"delay_s": float("nan")}, InvalidDelay, "nan"),
            ({"delay_s": 10**12}, InvalidDelay, "year 9999"),
            ({"delay_s": "5m"}, UsageError, "seconds"),
            ({"delay_s": 1, "at": 1}, UsageError, "not both"),
            ({"at": 1.5}, UsageError, "whole number"),
        ]
        for given, kind, words in wrong:
            with pytest.raises(kind, match=words):
                one.requeue(**given)
        one.requeue(at=datetime(2027, 1, 1, 8, tzinfo=UTC), reason="closed")
        two.requeue(timedelta(minutes=1))
        worker.net.pump()

        assert worker.channel.settled == [
            ("requeue", 0, 0, {"a": 1_798_790_400_000, "x": "closed"}),
            ("requeue", 0, 1, {"d": 60_000}),
        ]

    def test_a_message_is_settled_once(self) -> None:
        """Settling again is a mistake that is told."""
        worker = Worker()
        worker.puppet.put(b"a")
        worker.net.pump()
        message = worker.take()
        message.finish()

        with pytest.raises(UsageError, match="settled before"):
            message.finish()
        with pytest.raises(UsageError, match="settled before"):
            message.touch()
        assert not message.held

    def test_a_confirmation(self) -> None:
        """The broker's answer is told to whom it concerns, before or after it came."""
        worker = Worker()
        worker.puppet.put(b"a")
        worker.net.pump()
        message = worker.take()
        told: list[Any] = []
        message.when_confirmed(told.append)
        message.when_confirmed(told.append)
        message.finish()
        assert told == []
        worker.net.pump()
        message.when_confirmed(told.append)

        assert told == [None, None, None]

    def test_a_settle_that_is_late(self) -> None:
        """Whoever settles what was lost hears of it, and is counted."""
        worker = Worker()
        worker.puppet.put(b"a", b"b")
        worker.net.pump()
        (lease_id,) = worker.channel.leases
        worker.puppet.take_back(lease_id, 1, tell=False)
        one, two = worker.take(), worker.take()
        told: list[Any] = []
        for message in (one, two):
            message.when_confirmed(told.append)
            message.finish()
        worker.net.pump()

        assert isinstance(told[0], LeaseLost)
        assert told[1] is None
        assert one.is_lost
        assert worker.core.late == 1

    def test_settles_of_several_kinds_that_are_late(self) -> None:
        """Of messages of one lease that was lost none is confirmed, whatever was said of each."""
        worker = Worker()
        worker.puppet.put(b"a", b"b", b"c")
        worker.net.pump()
        (lease_id,) = worker.channel.leases
        worker.puppet.take_back(lease_id, 0b111, tell=False)
        told: list[Any] = []
        one, two, three = worker.take_all()
        for message in (one, two, three):
            message.when_confirmed(told.append)
        one.finish()
        two.requeue()
        three.reject()
        worker.net.pump()

        assert [type(each) for each in told] == [LeaseLost] * 3
        assert worker.core.late == 3

    def test_long_frames_are_cut(self) -> None:
        """However much a turn settles, no frame is longer than a broker takes."""
        worker = Worker()
        worker.channel.run = 1
        worker.puppet.put(*[b"v"] * 300)
        worker.net.pump()

        for place, message in enumerate(worker.take_all()):
            message.reject(f"{place} {'x' * 500}")
        worker.net.pump()

        frames = worker.seen(Settle)
        assert len(frames) > 2
        assert max(len(_packed(frame)) for frame in frames) < 60_000
        assert len(worker.channel.offsets("reject")) == 300

    def test_everything_is_confirmed(self) -> None:
        """Waiting for all settles ends when the broker has them."""
        worker = Worker()
        worker.puppet.put(b"a")
        worker.net.pump()
        told: list[str] = []
        worker.core.when_settled(lambda: told.append("first"))
        worker.take().finish()
        worker.core.when_settled(lambda: told.append("second"))
        assert told == ["first"]
        worker.net.pump()

        assert told == ["first", "second"]

    def test_a_busy_broker_is_asked_again(self) -> None:
        """A refusal that passes is no end."""
        worker = Worker()
        worker.puppet.put(b"a")
        worker.net.pump()
        worker.puppet.refuse = _refusing(Settle, Overloaded("busy"))
        worker.take().finish()
        worker.net.pump()
        assert worker.channel.offsets() == []
        worker.puppet.refuse = lambda request: None
        worker.net.advance(1)

        assert worker.channel.offsets() == [0]

    def test_a_settle_that_is_refused(self) -> None:
        """A refusal for good is told and said."""
        worker = Worker()
        worker.puppet.put(b"a")
        worker.net.pump()
        worker.puppet.refuse = _refusing(Settle, InvalidRequest("no"))
        told: list[Any] = []
        message = worker.take()
        message.when_confirmed(told.append)
        message.finish()
        worker.net.pump()

        assert [type(error) for error in told] == [InvalidRequest]
        assert "does not take a settle" in worker.net.said[-1]


class TestOrder:
    """Nothing overtakes a message that comes again."""

    def begin(self, order: str) -> Worker:
        """Begin with a channel of this order."""
        puppet = QueuePuppet()
        puppet.channel.order = order
        return Worker(puppet=puppet)

    def test_strict(self) -> None:
        """What was not handed out yet goes back behind it."""
        worker = self.begin("strict")
        worker.puppet.put(b"a", b"b", b"c", b"d")
        worker.net.pump()
        one, two = worker.take(), worker.take()
        two.requeue()
        assert worker.take_all() == []
        worker.net.pump()

        assert one.held
        assert worker.channel.offsets("give back") == [2, 3]
        assert worker.core.late == 0

    def test_by_key(self) -> None:
        """Only messages of the same key do."""
        worker = self.begin("key")
        log = worker.puppet.topics["t"].logs[0]
        log.append(encode_batch([b"a", b"b", b"c"], keys=[b"k", b"l", b"k"]))
        worker.channel.ready = [(0, 0), (0, 1), (0, 2)]
        worker.puppet.deliver()
        worker.net.pump()
        worker.take().give_back()
        worker.net.pump()

        assert [message.value for message in worker.take_all()] == [b"b"]
        assert worker.channel.offsets("give back") == [0, 2]

    @pytest.mark.parametrize("order", ["none", "key", "strict"])
    def test_what_comes_meanwhile(self, order: str) -> None:
        """It is not handed out before the broker knows what comes again, and takes it back."""
        worker = self.begin(order)
        worker.puppet.put(b"a", b"b")
        worker.net.pump()
        worker.puppet.mute.add(MessageType.SETTLE)
        worker.take().requeue()
        worker.net.pump()
        worker.puppet.put(b"c")
        worker.net.pump()
        early = [message.value for message in worker.take_all()]
        worker.puppet.mute.clear()
        worker.net.advance(worker.cluster.config.request_timeout_s + 5)
        later = [message.value for message in worker.take_all()]

        assert (early, later) == (([b"b", b"c"], []) if order == "none" else ([], [b"c"]))

    def test_what_comes_behind_what_was_lost_on_its_way(self) -> None:
        """When a link is back, what it lost is given back before more is handed out."""
        worker = self.begin("strict")
        worker.puppet.put(b"a")
        worker.net.pump()
        worker.take().finish()
        worker.net.pump()
        (subscription,) = worker.channel.subscriptions
        worker.channel.leases[7] = PuppetLease(0, 1, 1, subscription)
        worker.net.cut()
        worker.puppet.mute.add(MessageType.SETTLE)
        worker.net.advance(10)
        worker.puppet.put(b"b", b"c")
        worker.net.pump()
        early = worker.take_all()
        worker.puppet.mute.clear()
        worker.net.advance(worker.cluster.config.request_timeout_s + 5)

        assert early == []
        assert worker.channel.offsets("give back") == [1]
        assert worker.take().value == b"b"


class TestCredit:
    """Never more in flight than wanted."""

    def test_no_more_than_wanted(self) -> None:
        """Only a settle brings more."""
        worker = Worker(max_in_flight=2)
        worker.puppet.put(b"a", b"b", b"c", b"d")
        worker.net.pump()
        one, _ = worker.take_all()
        one.finish()
        worker.net.pump()

        assert [message.value for message in worker.take_all()] == [b"c"]
        assert [request.granted for request in worker.seen(Credit)] == [3]
        assert worker.core.in_flight == 2

    def test_credit_waits_until_it_is_worth_it(self) -> None:
        """Less than a quarter of the window is not told, as long as something is here."""
        worker = Worker(max_in_flight=100)
        worker.puppet.put(*[b"v"] * 150)
        worker.net.pump()
        messages = worker.take_all()
        for message in messages[:24]:
            message.finish()
        worker.net.pump()
        assert worker.seen(Credit) == []
        messages[24].finish()
        worker.net.pump()

        assert [request.granted for request in worker.seen(Credit)] == [125]

    def test_a_small_window_is_used_to_the_last(self) -> None:
        """Who works long on all but one asks for one more."""
        worker = Worker(max_in_flight=8)
        worker.puppet.put(*[b"v"] * 10)
        worker.net.pump()
        worker.take_all()[3].finish()
        worker.net.pump()

        assert [request.granted for request in worker.seen(Credit)] == [9]
        assert worker.core.in_flight == 8

    def test_credit_is_told_when_it_lets_a_broker_go_on(self) -> None:
        """What is left and what is new are worth a frame together."""
        worker = Worker(max_in_flight=100)
        worker.puppet.put(*[b"v"] * 80)
        worker.net.pump()
        for message in worker.take_all()[:5]:
            message.finish()
        worker.net.pump()

        assert [request.granted for request in worker.seen(Credit)] == [105]

    def test_large_messages_are_fewer(self) -> None:
        """Bytes bound what is asked for, once it is known how large messages are."""
        worker = Worker(max_in_flight=100, buffer_bytes=10_000)
        worker.puppet.put(*[bytes(1000)] * 100)
        worker.net.pump()
        for message in worker.take_all():
            message.finish()
        worker.net.pump()

        assert [request.granted for request in worker.seen(Credit)] == [109]

    def test_lost_messages_make_room(self) -> None:
        """What is not held any more is not in flight."""
        worker = Worker(max_in_flight=2)
        worker.puppet.put(b"a", b"b")
        worker.net.pump()
        worker.puppet.lose(back=False)
        worker.puppet.put(b"c", b"d")
        worker.net.pump()

        assert [message.value for message in worker.take_all()] == [b"c", b"d"]


class TestLosing:
    """A message that is not ours any more says so."""

    def test_it_is_told_at_once(self) -> None:
        """Who has the message hears of it, and cannot settle it."""
        worker = Worker()
        worker.puppet.put(b"a")
        worker.net.pump()
        message = worker.take()
        told: list[str] = []
        message.when_lost(lambda: told.append("before"))
        message.when_lost(lambda: told.append("again"))
        worker.puppet.lose(back=False)
        worker.net.pump()
        message.when_lost(lambda: told.append("after"))

        assert told == ["before", "again", "after"]
        assert message.is_lost
        with pytest.raises(LeaseLost):
            message.finish()
        errors: list[Any] = []
        message.when_confirmed(errors.append)
        assert isinstance(errors[0], LeaseLost)

    def test_what_was_not_handed_out_is_dropped(self) -> None:
        """A message that is lost while it waits is never handed out."""
        worker = Worker()
        worker.puppet.put(b"a", b"b")
        worker.net.pump()
        (lease_id,) = worker.channel.leases
        worker.puppet.take_back(lease_id, 1, back=False)
        worker.net.pump()

        assert [message.value for message in worker.take_all()] == [b"b"]

    def test_unknown_leases_are_ignored(self) -> None:
        """What is told of leases that nobody holds changes nothing."""
        worker = Worker()
        worker.puppet.put(b"a")
        worker.net.pump()
        (number,) = worker.channel.subscriptions
        message = LeaseLostMessage(subscription=number, rows=[(0, 99, b"\x01")])
        worker.puppet.push(number, message)
        worker.net.pump()

        assert worker.take().held


class TestRenewing:
    """Leases are renewed while work goes on."""

    def test_at_a_third(self) -> None:
        """Whatever is held is touched whole, again and again."""
        worker = Worker()
        worker.puppet.put(b"a", b"b")
        worker.net.pump()
        worker.net.advance(59)

        assert [request.rows for request in worker.seen(Settle)] == [
            [(0, 3, [(1000, None)], {})],
            [(0, 3, [(1000, None)], {})],
        ]

    def test_only_what_is_held(self) -> None:
        """Nothing in flight, nothing renewed."""
        worker = Worker()
        worker.puppet.put(b"a")
        worker.net.pump()
        worker.take().finish()
        worker.net.advance(59)

        assert worker.channel.offsets("touch") == []

    def test_no_longer_than_a_handler_may_take(self) -> None:
        """From the moment a message is handed out its time is bounded; waiting is not."""
        worker = Worker()
        worker.channel.handler_ms = 50_000
        worker.net.cut()
        worker.net.pump()
        worker.puppet.put(b"a", b"b")
        worker.net.advance(1)
        worker.take()
        worker.net.advance(100)

        touched = worker.channel.offsets("touch")
        assert (touched.count(0), touched.count(1)) == (2, 5)

    def test_a_touch_begins_anew(self) -> None:
        """A handler that says it goes on has its time again."""
        worker = Worker()
        worker.channel.handler_ms = 50_000
        worker.net.cut()
        worker.net.pump()
        worker.puppet.put(b"a")
        worker.net.advance(1)
        message = worker.take()
        worker.net.advance(38)
        before = worker.channel.offsets("touch").count(0)
        message.touch()
        worker.net.advance(45)

        assert (before, worker.channel.offsets("touch").count(0)) == (1, 5)

    def test_a_shorter_term(self) -> None:
        """A lease that is shorter than the last ones is renewed in time."""
        worker = Worker()
        worker.channel.lease_ms = 6000
        worker.puppet.put(b"a")
        worker.net.advance(2)

        assert worker.channel.offsets("touch") == [0]

    def test_a_renewal_that_is_late(self) -> None:
        """If the broker says that a lease is lost, so it is."""
        worker = Worker()
        worker.puppet.put(b"a")
        worker.net.pump()
        message = worker.take()
        worker.puppet.take_back(1000, 1, back=False, tell=False)
        worker.net.advance(20)

        assert message.is_lost


class TestLinks:
    """Links are lost and come back."""

    def test_work_goes_on_over_a_lost_link(self) -> None:
        """The same session and number find the leases again."""
        worker = Worker(max_in_flight=2)
        worker.puppet.put(b"a", b"b")
        worker.net.pump()
        one, two = worker.take_all()
        worker.net.cut()
        worker.net.pump()
        one.finish()
        worker.net.pump()

        first, second = worker.seen(Subscribe)
        assert first.subscription == second.subscription
        assert (first.credit, second.credit) == (2, 0)
        assert worker.puppet.hellos[1].session == b"s" * 16
        assert two.held
        assert worker.channel.offsets() == [0]

    def test_the_log_tells_of_a_lost_link_once(self) -> None:
        """One line when the broker goes, however often it is tried, and one when it is back."""
        worker = Worker()
        worker.net.up = False
        worker.net.cut()
        worker.net.advance(20)
        (lost,) = worker.net.said
        worker.net.up = True
        worker.net.advance(20)

        assert re.match(r"t: connection to .* lost, trying again: ", lost)
        assert worker.net.said[1:] == [f"{lost.partition(' lost,')[0]} is back"]

    def test_the_log_says_nothing_of_an_end(self) -> None:
        """Who leaves loses no link."""
        worker = Worker()
        worker.close()
        worker.net.advance(1)
        worker.net.cut()
        worker.net.advance(20)

        assert worker.net.said == []

    def test_settles_wait_for_the_link(self) -> None:
        """What is settled without a link is told later."""
        worker = Worker()
        worker.puppet.put(b"a")
        worker.net.pump()
        worker.net.up = False
        worker.net.cut()
        worker.net.advance(1)
        worker.take().finish()
        worker.net.advance(1)
        worker.net.up = True
        worker.net.advance(5)

        assert worker.channel.offsets() == [0]

    @pytest.mark.parametrize("deliver", [True, False])
    def test_a_settle_on_a_lost_link_is_told_again(self, *, deliver: bool) -> None:
        """Whether it arrived or not, it is confirmed in the end."""
        worker = Worker()
        worker.puppet.put(b"a")
        worker.net.pump()
        message = worker.take()
        told: list[Any] = []
        message.when_confirmed(told.append)
        message.finish()
        worker.core.pump(worker.net.now)
        worker.net.cut(deliver=deliver)
        assert told == []
        worker.net.pump()

        assert told == [None]
        assert worker.channel.offsets() == [0]

    def test_what_was_lost_meanwhile(self) -> None:
        """What the broker does not hold for us any more is lost."""
        worker = Worker()
        worker.puppet.put(b"a", b"b")
        worker.net.pump()
        one, two = worker.take_all()
        worker.net.cut()
        worker.puppet.take_back(1000, 1, back=False)
        worker.net.pump()

        assert (one.is_lost, two.is_lost) == (True, False)

    def test_what_never_arrived_is_given_back(self) -> None:
        """A delivery that was lost with the link goes back at once."""
        worker = Worker()
        worker.puppet.put(b"a")
        worker.net.cut()
        worker.net.pump()

        assert worker.channel.offsets("give back") == [0]
        assert worker.take_all() == []

    def test_what_is_being_settled_is_not_given_back(self) -> None:
        """A settle that waits is told, and nothing else of its message."""
        worker = Worker()
        worker.puppet.put(b"a", b"b")
        worker.net.pump()
        worker.take().finish()
        worker.net.cut()
        worker.net.pump()

        assert [row[:3] for row in worker.channel.settled] == [("finish", 0, 0)]

    def test_a_broker_that_forgot(self) -> None:
        """An unknown subscription is made again."""
        worker = Worker()
        worker.puppet.put(b"a")
        worker.net.pump()
        worker.channel.subscriptions.clear()
        worker.take().finish()
        worker.net.advance(1)

        assert len(worker.seen(Subscribe)) == 2
        assert worker.channel.offsets() == [0]

    def test_a_channel_that_was_deleted(self) -> None:
        """Even who holds nothing notices it, and does not make it anew."""
        worker = Worker()
        worker.channel.exists = False
        worker.puppet.end_all(UnknownChannel("it was deleted"))
        worker.net.pump()

        with pytest.raises(UnknownChannel):
            worker.core.take(worker.net.now)

    def test_a_topic_that_was_deleted(self) -> None:
        """Who holds nothing notices that, too, and without a word of its own."""
        worker = Worker(create_topics=False)
        del worker.puppet.topics["t"]
        worker.puppet.end_all(UnknownTopicId("it was deleted"))
        worker.net.pump()

        with pytest.raises(UnknownTopic):
            worker.core.take(worker.net.now)

    def test_a_subscription_that_was_taken_over(self) -> None:
        """It joins again after a while, and keeps what is held still."""
        worker = Worker()
        worker.puppet.put(b"a")
        worker.net.pump()
        message = worker.take()
        worker.puppet.end_all(StateError("another connection has it"))
        worker.net.pump()
        before = len(worker.seen(Subscribe))
        worker.net.advance(1)
        message.finish()
        worker.net.pump()

        assert (before, len(worker.seen(Subscribe))) == (1, 2)
        assert worker.channel.offsets() == [0]

    def test_a_settle_and_the_end_cross(self) -> None:
        """Its refusal says nothing new, and what the next SUBSCRIBE promised holds."""
        worker = Worker(max_in_flight=2)
        worker.puppet.put(b"a")
        worker.net.pump()
        worker.take().finish()
        worker.puppet.end_all(UnknownChannel("it was made anew"))
        worker.core.pump(worker.net.now)
        worker.net.pump()
        worker.net.pump()
        worker.puppet.put(b"b", b"c")
        worker.net.pump()

        assert len(worker.seen(Subscribe)) == 2
        assert [message.value for message in worker.take_all()] == [b"b", b"c"]
        assert worker.channel.offsets() == [0]

    @pytest.mark.parametrize("first", ["broker", "client"])
    def test_both_sides_end_it(self, first: str) -> None:
        """It ends once, at once, whoever was first."""
        worker = Worker()
        worker.channel.exists = False
        if first == "broker":
            worker.puppet.end_all(UnknownChannel("it was deleted"))
        ended = worker.close()
        if first == "client":
            worker.puppet.end_all(UnknownChannel("it was deleted"))
        worker.net.pump()

        assert ended == ["ended"]
        assert len(worker.seen(Subscribe)) == 1

    def test_leaving_a_channel_that_is_gone_waits_for_nobody(self) -> None:
        """What was settled cannot be told any more, and that is said."""
        worker = Worker(leave_s=60.0)
        worker.puppet.put(b"a")
        worker.net.pump()
        told: list[Any] = []
        message = worker.take()
        message.finish()
        message.when_confirmed(told.append)
        worker.channel.exists = False
        worker.puppet.end_all(UnknownChannel("it was deleted"))
        ended = worker.close()
        worker.net.pump()

        assert ended == ["ended"]
        assert [type(each) for each in told] == [UnknownChannel]

    def test_a_broker_that_is_slow_to_let_join(self) -> None:
        """SUBSCRIBE is repeated."""
        puppet = QueuePuppet()
        puppet.refuse = _refusing(Subscribe, Overloaded("busy"))
        worker = Worker(puppet=puppet)
        worker.net.advance(1)
        puppet.refuse = lambda request: None
        worker.net.advance(5)
        puppet.put(b"a")
        worker.net.pump()

        assert worker.take().value == b"a"

    def test_foreign_pushes_are_ignored(self) -> None:
        """What comes for another subscription, or is of an unknown type, changes nothing."""
        worker = Worker()
        worker.puppet.put(b"a")
        worker.net.pump()
        (number,) = worker.channel.subscriptions
        line = worker.channel.subscriptions[number].line
        stray = Deliver(subscription=number + 1, partition=0, rows=[])
        line.send(encode_frame(stray.type, 0, stray.to_meta()))
        line.send(encode_frame(0x7E, 0, {}))
        worker.net.pump()

        assert worker.take().held
        assert len(worker.seen(Subscribe)) == 1

    def test_a_push_that_makes_no_sense_ends_the_link(self) -> None:
        """The link begins anew, and with it what is held."""
        worker = Worker()
        (number,) = worker.channel.subscriptions
        line = worker.channel.subscriptions[number].line
        line.send(encode_frame(MessageType.DELIVER, 0, {"s": number}))
        worker.net.advance(1)

        assert len(worker.seen(Subscribe)) == 2


class TestUnreadable:
    """What cannot be read is not passed over in silence."""

    def test_a_missing_record(self) -> None:
        """A message whose record did not come fails, and the log says so."""
        worker = Worker()
        worker.puppet.topics["t"].logs[0].append(_batch(b"a"))
        worker.channel.ready = [(0, 0), (0, 1)]
        worker.puppet.deliver()
        worker.net.pump()

        assert [message.value for message in worker.take_all()] == [b"a"]
        assert worker.channel.offsets("requeue") == [1]
        assert "1 messages of t/0 cannot be read" in worker.net.said[-1]

    def test_a_damaged_batch(self) -> None:
        """A checksum that is wrong fails the messages of its batch only."""
        worker = Worker()
        log = worker.puppet.topics["t"].logs[0]
        worker.puppet.put(b"a")
        worker.net.pump()
        log.append(_batch(b"b"))
        log.append(_batch(b"c"))
        log.batches[1] = log.batches[1][:-1] + b"\xff"
        worker.channel.ready = [(0, 1), (0, 2)]
        worker.puppet.deliver()
        worker.net.pump()

        assert [message.value for message in worker.take_all()] == [b"a", b"c"]
        assert worker.channel.offsets("requeue") == [1]


class TestBeginning:
    """A subscription begins when the broker lets it."""

    def test_ready(self) -> None:
        """Who waits for the first word hears it, also later."""
        worker = Worker()
        told: list[Any] = []
        worker.core.ready_when(told.append, worker.net.now)
        assert told == [None]

    def test_ready_later(self) -> None:
        """Who asks before the broker answered is told then."""
        worker = Worker()
        worker.net.up = False
        worker.net.cut()
        worker.net.pump()
        told: list[Any] = []
        worker.core.ready_when(told.append, worker.net.now)
        worker.net.up = True
        worker.net.advance(3)
        assert told == [None]

    def test_nobody_answers(self) -> None:
        """After a while whoever waits is told why, and the subscription goes on trying."""
        worker = Worker(deadline_s=2.0)
        worker.net.up = False
        worker.net.cut()
        worker.net.pump()
        told: list[Any] = []
        worker.core.ready_when(told.append, worker.net.now)
        worker.net.advance(60)
        assert isinstance(told[0], TinyMQError)
        worker.net.up = True
        worker.net.advance(5)
        worker.puppet.put(b"a")
        worker.net.pump()

        assert worker.take().value == b"a"

    def test_no_such_topic(self) -> None:
        """A topic that does not exist ends it."""
        worker = Worker(partitions=0)

        with pytest.raises(UnknownTopic, match=r"the first publish makes it.*create_topics=True"):
            worker.core.take(worker.net.now)
        told: list[Any] = []
        worker.core.ready_when(told.append, worker.net.now)
        assert isinstance(told[0], UnknownTopic)

    def test_a_topic_is_made(self) -> None:
        """If wanted, the topic is made."""
        worker = Worker(partitions=0, create_topics=True)

        assert "t" in worker.puppet.topics
        assert len(worker.seen(Subscribe)) == 1

    def test_no_such_channel(self) -> None:
        """A channel that does not exist and is not to be made ends it."""
        puppet = QueuePuppet()
        puppet.channel.exists = False
        worker = Worker(puppet=puppet, create=False)

        with pytest.raises(UnknownChannel):
            worker.core.take(worker.net.now)

    def test_a_topic_that_was_made_anew(self) -> None:
        """Its channels are gone with the old one, and that is told."""
        worker = Worker()
        worker.puppet.make("t", 1)
        worker.net.cut()
        worker.net.advance(5)

        with pytest.raises(UnknownTopicId, match="made anew"):
            worker.core.take(worker.net.now)

    def test_a_start_at_a_time(self) -> None:
        """The broker is told the time."""
        assert SubscriptionConfig(start=At(1_750_000_000_000)).begins == "@1750000000000"

    @pytest.mark.parametrize("start", [-1, "middle", "@", True, 1.5, At(-1)])
    def test_a_wrong_start(self, start: Any) -> None:
        """Only words, offsets and times are taken."""
        with pytest.raises(ConfigError, match="start"):
            SubscriptionConfig(start=start)


class TestIdling:
    """What a subscription costs that has nothing to do."""

    def test_an_idle_one_asks_seldom(self) -> None:
        """Six times an hour, and first somewhere within the first ten minutes."""
        worker = Worker()
        worker.net.advance(299)
        early = len(worker.seen(Settle))
        worker.net.advance(2)
        first = len(worker.seen(Settle))
        worker.net.advance(3600)

        assert (early, first, len(worker.seen(Settle))) == (0, 1, 7)

    def test_one_that_holds_something_renews_in_time(self) -> None:
        """A third of the lease; when nothing is held any more it is idle again."""
        worker = Worker()
        worker.puppet.put(b"a")
        worker.net.pump()
        message = worker.take()
        worker.net.advance(61)
        renewed = len(worker.seen(Settle))
        message.finish()
        worker.net.advance(200)

        assert renewed == 3
        assert len(worker.seen(Settle)) == 4
        assert worker.channel.offsets() == [0]

    def test_what_was_missed_is_noticed_in_the_end(self) -> None:
        """A broker that lost it without a word is asked within minutes."""
        worker = Worker()
        worker.channel.subscriptions.clear()
        worker.channel.exists = False
        worker.net.advance(600)

        with pytest.raises(UnknownChannel):
            worker.core.take(worker.net.now)

    def test_a_broker_that_restarts(self) -> None:
        """An idle one is there again with the link, and needs no SETTLE for that."""
        worker = Worker()
        worker.net.up = False
        worker.net.cut()
        worker.channel.subscriptions.clear()
        worker.net.advance(3)
        worker.net.up = True
        worker.net.advance(20)
        worker.puppet.put(b"a")
        worker.net.pump()

        assert worker.take().value == b"a"
        assert worker.seen(Settle) == []


class TestEnding:
    """Leaving in good order."""

    def test_what_is_held_is_given_back(self) -> None:
        """Settles are told first, then the rest goes back."""
        worker = Worker()
        worker.puppet.put(b"a", b"b", b"c")
        worker.net.pump()
        one, two = worker.take(), worker.take()
        one.finish()
        ended = worker.close()
        assert ended == []
        worker.net.pump()

        assert ended == ["ended"]
        assert worker.channel.offsets() == [0]
        assert worker.channel.ready == [(0, 1), (0, 2)]
        assert two.is_lost
        assert worker.channel.subscriptions == {}
        with pytest.raises(ClosedError):
            worker.core.take(worker.net.now)
        assert worker.close() == ["ended"]

    def test_draining(self) -> None:
        """What was not handed out goes back, and what was can still be settled."""
        worker = Worker()
        worker.puppet.put(b"a", b"b")
        worker.net.pump()
        message = worker.take()
        worker.core.drain(worker.net.now)
        worker.net.pump()
        assert worker.channel.offsets("give back") == [1]
        message.finish()
        worker.net.pump()

        assert worker.channel.offsets() == [0]
        assert worker.seen(Unsubscribe) != []

    def test_what_comes_while_draining_goes_back(self) -> None:
        """A delivery that was on its way is not kept."""
        worker = Worker()
        worker.puppet.put(b"a")
        worker.net.pump()
        worker.take()
        worker.core.drain(worker.net.now)
        worker.puppet.put(b"b")
        worker.net.pump()

        assert worker.channel.offsets("give back") == [1]

    def test_a_broker_that_is_away(self) -> None:
        """It is not waited for longer than said; what it was not told is counted."""
        worker = Worker(leave_s=3.0)
        worker.puppet.put(b"a")
        worker.net.pump()
        message = worker.take()
        told: list[Any] = []
        message.when_confirmed(told.append)
        worker.net.up = False
        worker.net.cut()
        message.finish()
        ended = worker.close()
        worker.net.advance(2)
        assert ended == []
        worker.net.advance(2)

        assert ended == ["ended"]
        assert isinstance(told[0], DeadlineExceeded)
        assert "1 messages may come again" in worker.net.said[-1]

    def test_nothing_to_tell_a_broker_that_is_away(self) -> None:
        """Then there is nothing to wait for."""
        worker = Worker()
        worker.net.up = False
        worker.net.cut()
        worker.net.pump()

        assert worker.close() == ["ended"]

    def test_the_client_is_closed(self) -> None:
        """Everything ends at once, and who waits is told."""
        worker = Worker()
        worker.puppet.put(b"a", b"b")
        worker.net.pump()
        one, two = worker.take_all()
        told: list[Any] = []
        one.when_confirmed(told.append)
        one.finish()
        worker.cluster.close(worker.net.now)

        assert isinstance(told[0], ClosedError)
        assert two.is_lost
        with pytest.raises(LeaseLost):
            two.finish()
        with pytest.raises(ClosedError):
            worker.core.take(worker.net.now)

    def test_an_answer_after_the_end(self) -> None:
        """A broker that lets us join too late is told that we left."""
        puppet = QueuePuppet()
        puppet.deaf = {MessageType.SUBSCRIBE}
        worker = Worker(puppet=puppet)
        (request,) = worker.seen(Subscribe)
        ended = worker.close()
        assert ended == ["ended"]
        line = worker.net.wires[0].line
        puppet.deaf = set()
        reply = puppet._subscribe(line, request)
        puppet.reply(line, MessageType.SUBSCRIBE, 3, (reply, ()))
        worker.net.pump()

        assert len(worker.seen(Unsubscribe)) == 1

    def test_messages_without_lease_are_not_dropped_in_silence(self) -> None:
        """At most once means that what is not handed out is gone, and the log says so."""
        worker = Worker()
        worker.channel.delivery = "at_most_once"
        worker.puppet.put(b"a", b"b")
        worker.net.pump()
        worker.core.drain(worker.net.now)
        worker.close()

        assert "2 messages were not handed out" in worker.net.said[-1]


class TestBrokers:
    """Partitions on several brokers."""

    def test_the_share_of_each(self) -> None:
        """The most in flight is split over the brokers that lead partitions."""
        crew = Crew(1, 2, 3, most=8)

        assert crew.credits() == {1: 3, 2: 3, 3: 2}

    def test_all_of_them_deliver(self) -> None:
        """Messages of all partitions come, and each is settled where it came from."""
        crew = Crew(1, 2)
        crew.put(1, b"a", partition=0)
        crew.put(2, b"b", partition=1)
        for message in crew.take_all():
            message.finish()
        crew.fleet.net.pump()

        assert [puppet.channel.settled[0][:2] for puppet in crew.queues()[:2]] == [
            ("finish", 0),
            ("finish", 1),
        ]

    def test_fewer_than_brokers(self) -> None:
        """Unused shares move on, so that messages of every broker come soon."""
        crew = Crew(1, 2, 3, most=1)
        crew.put(3, b"c", partition=2)
        crew.put(2, b"b", partition=1)
        found = []
        for _ in range(12):
            for message in crew.take_all():
                found.append(message.value)
                message.finish()
            crew.fleet.net.advance(0.25)

        assert {*found} == {b"b", b"c"}
        assert len(found) == 2
        assert sum(len(puppet.channel.subscriptions) for puppet in crew.queues()) == 1

    def test_a_broker_that_nobody_reaches_keeps_no_share(self) -> None:
        """Though it is believed to be there; and nothing piles up for it."""
        crew = Crew(2, 3, most=1)
        crew.fleet.kill(2, noticed=False)
        crew.put(3, b"c", partition=1)
        crew.fleet.net.advance(2)
        (message,) = crew.take_all()
        message.finish()
        crew.fleet.net.advance(60)

        assert message.value == b"c"
        assert max(link.waiting for link in crew.cluster.links) < 40

    def test_a_share_in_use_stays(self) -> None:
        """A message in somebody's hands keeps its share, and no more than wanted are out."""
        crew = Crew(1, 2, most=1)
        crew.put(1, b"a", partition=0)
        crew.put(2, b"b", partition=1)
        (message,) = crew.take_all()
        crew.fleet.net.advance(3)
        assert crew.take_all() == []
        message.finish()
        crew.fleet.net.advance(1)

        assert len(crew.take_all()) == 1

    def test_a_broker_that_restarts(self) -> None:
        """The others go on, and it is joined again when it is back."""
        crew = Crew(1, 2)
        crew.fleet.kill(2)
        crew.put(1, b"a", partition=0)
        crew.fleet.net.advance(3)
        assert [message.value for message in crew.take_all()] == [b"a"]
        crew.fleet.start(2)
        crew.fleet.net.advance(10)
        crew.put(2, b"b", partition=1)

        assert [message.value for message in crew.take_all()] == [b"b"]

    def test_a_broker_at_another_address(self) -> None:
        """It is found there, with what it holds for us."""
        crew = Crew(1, 2)
        crew.put(2, b"b", partition=1)
        (message,) = crew.take_all()
        crew.fleet.kill(2)
        crew.fleet.net.advance(2)
        crew.fleet.start(2, Address("elsewhere", 7800))
        crew.fleet.net.advance(10)
        message.finish()
        crew.fleet.net.pump()

        assert crew.queue(2).channel.offsets() == [0]

    def test_a_partition_that_moved(self) -> None:
        """Another broker leads it: that one is joined, and the old one is left."""
        crew = Crew(1, 2)
        crew.topic.leaders[1] = 3
        crew.fleet.revision += 1
        crew.fleet.puppets[1].revision += 1
        crew.cluster.refresh(crew.fleet.net.now)
        crew.fleet.net.advance(5)

        assert crew.credits().keys() == {1, 2, 3}
        assert [len(puppet.channel.subscriptions) for puppet in crew.queues()] == [1, 0, 1]

    @pytest.mark.parametrize("held", [1, 30, 100])
    def test_a_broker_that_joins_gets_its_share_and_nobody_more(self, held: int) -> None:
        """What is promised and held is never more than allowed, and the new one has its part."""
        crew = Crew(1, 1, most=100)
        crew.put(1, *[b"v"] * held, partition=0)
        messages = crew.take_all()
        crew.move(1, 2)
        most = [crew.promised]
        for _ in range(20):
            for message in messages[:10]:
                message.finish()
            messages = messages[10:]
            crew.fleet.net.advance(0.1)
            most.append(crew.promised)
        crew.put(2, *[b"v"] * 60, partition=1)
        crew.put(1, *[b"v"] * 60, partition=0)

        assert max(most) <= 100
        assert crew.promised == crew.core.in_flight >= 75
        assert [len(crew.queue(number).channel.leases) > 0 for number in (1, 2)] == [True, True]

    def test_one_credit_serves_all_brokers(self) -> None:
        """With steady traffic everywhere, no broker waits longer than a second for its turn."""
        crew = Crew(1, 2, most=1)
        for number in (1, 2):
            crew.put(number, *[b"v"] * 50, partition=number - 1)
        served: dict[int, list[float]] = {0: [0.0], 1: [0.0]}
        for step in range(60):
            for message in crew.take_all():
                served[message.partition].append(step / 10)
                message.finish()
            assert crew.promised <= 1
            crew.fleet.net.advance(0.1)
        waits = [
            later - sooner
            for times in served.values()
            for sooner, later in zip(times, [*times[1:], 6.0], strict=True)
        ]

        assert max(waits) <= 1


class Crew:
    """A subscription core on a fleet."""

    def __init__(self, *leaders: int, most: int = 100) -> None:
        self.fleet = Fleet(3, FleetQueuePuppet)
        self.topic = self.fleet.make("t", *leaders)
        self.cluster = self.fleet.cluster()
        config = SubscriptionConfig(max_in_flight=most)
        self.core = SubscriptionCore(
            self.cluster, ("t", "work"), config, Face(QueueMessage, _nothing, _nothing)
        )
        self.core.begin(self.fleet.net.now)
        self.fleet.net.pump()

    def queue(self, number: int) -> FleetQueuePuppet:
        """A broker."""
        found = self.fleet.puppets[number]
        assert isinstance(found, FleetQueuePuppet)
        return found

    def queues(self) -> list[FleetQueuePuppet]:
        """All brokers."""
        return [self.queue(number) for number in sorted(self.fleet.puppets)]

    def move(self, partition: int, number: int) -> None:
        """Let a partition be led by another broker, and the client hear of it."""
        self.topic.leaders[partition] = number
        self.fleet.revision += 1
        for puppet in self.fleet.puppets.values():
            puppet.revision += 1
        self.cluster.refresh(self.fleet.net.now)
        self.fleet.net.advance(3)

    @property
    def promised(self) -> int:
        """How many messages brokers may have delivered and not settled, by their own count."""
        return sum(
            sum(lease.bits.bit_count() for lease in queue.channel.leases.values())
            + sum(one.granted - one.delivered for one in queue.channel.subscriptions.values())
            for queue in self.queues()
        )

    def put(self, number: int, *values: bytes, partition: int) -> None:
        """Store a batch at a broker, and let it arrive."""
        self.queue(number).put(*values, partition=partition)
        self.fleet.net.pump()

    def take_all(self) -> list[QueueMessage]:
        """Take whatever is there."""
        return list(iter(lambda: self.core.take(self.fleet.net.now), None))

    def credits(self) -> dict[int, int]:
        """The first credit of each broker that was joined."""
        return {
            puppet.number: request.credit
            for puppet in self.queues()
            for request in puppet.seen
            if isinstance(request, Subscribe)
        }


def _nothing() -> None:
    """Nobody waits."""


def _batch(*values: bytes) -> bytes:
    return encode_batch(values)


def _packed(message: Message) -> bytes:
    return b"".join(map(bytes, encode_frame(message.type, 1, message.to_meta())))


def _refusing(kind: type[Message], error: Any) -> Any:
    return lambda request: error if isinstance(request, kind) else None
