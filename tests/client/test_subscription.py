"""The Deferred face of subscriptions, over transports in memory and a fake clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import ILogObserver, LogEvent, LogLevel, globalLogPublisher
from zope.interface import provider

from tests.client.queueing import PuppetChannel, QueuePuppet
from tests.client.stage import Stage
from tests.client.test_client import Results
from tinymq.client import Message, SubscriptionConfig
from tinymq.client.core.fork import Process
from tinymq.errors import (
    ClosedError,
    ForkedError,
    LeaseLost,
    UnknownChannel,
    UsageError,
)
from tinymq.wire.header import MessageType


class Scene(Stage):
    """A stage with a channel and a subscription to it."""

    puppet: QueuePuppet

    def __init__(self, **config: Any) -> None:
        super().__init__(QueuePuppet())
        self.puppet.make("t", 1)
        self.subscription = self.client.subscription("t", "work", SubscriptionConfig(**config))
        self.pump()

    @property
    def channel(self) -> PuppetChannel:
        """The channel."""
        return self.puppet.channel

    def put(self, *values: bytes) -> None:
        """Publish, and let it arrive."""
        self.puppet.put(*values)
        self.pump()

    def take(self) -> Message:
        """Take a message that must be there."""
        message = self.done(self.subscription.next())
        assert message is not None
        return message


@pytest.fixture
def scene() -> Iterator[Scene]:
    """Set the scene, and see that nothing is left behind."""
    made = Scene()
    yield made
    made.end()


@pytest.fixture
def logged() -> Iterator[list[LogEvent]]:
    """Gather what is logged as an error."""
    found: list[LogEvent] = []

    @provider(ILogObserver)
    def observe(event: LogEvent) -> None:
        if event["log_level"] is LogLevel.critical:
            found.append(event)

    globalLogPublisher.addObserver(observe)
    yield found
    globalLogPublisher.removeObserver(observe)


class Work:
    """A handler that ends when a test says so."""

    def __init__(self) -> None:
        self.open: dict[bytes | None, Deferred[None]] = {}
        self.cancelled: list[bytes | None] = []

    def __call__(self, message: Message) -> Deferred[None]:
        """Begin."""
        waiting: Deferred[None] = Deferred(lambda _: self.cancelled.append(message.value))
        self.open[message.value] = waiting
        return waiting


def test_many_idle_subscriptions_have_one_timer(scene: Scene) -> None:
    """A client is woken for the first of what is due, however much there is."""
    for number in range(20):
        scene.client.subscription("t", f"work-{number}")
    scene.pump()
    scene.advance(1)

    assert len(scene.channel.subscriptions) == 21
    assert len(scene.clock.getDelayedCalls()) <= 1


class TestTaking:
    """Messages one by one."""

    def test_iteration(self, scene: Scene) -> None:
        """Messages come until the subscription is closed."""
        found: list[bytes | None] = []

        async def read() -> None:
            async for message in scene.subscription:
                found.append(message.value)
                message.finish()

        reading = Deferred.fromCoroutine(read())
        scene.put(b"a", b"b")
        scene.put(b"c")
        scene.done(scene.subscription.close())
        scene.done(reading)

        assert found == [b"a", b"b", b"c"]
        assert scene.channel.offsets() == [0, 1, 2]

    def test_waiting_in_turn(self, scene: Scene) -> None:
        """Whoever asked first is served first; time ends a call, and so does cancelling."""
        late = Results(scene.subscription.next(timeout=1.0))
        scene.advance(2)
        first, gone = scene.subscription.next(timeout=5.0), scene.subscription.next()
        results = Results(first, gone)
        gone.cancel()
        scene.put(b"a")

        assert late.values == [None]
        assert [message.value for message in results.values] == [b"a"]
        assert [type(error) for error in results.errors] == [CancelledError]

    def test_figures(self, scene: Scene) -> None:
        """A subscription tells of itself."""
        scene.put(b"a", b"b")
        scene.take().finish()
        scene.pump()
        subscription = scene.subscription

        assert (subscription.topic, subscription.channel) == ("t", "work")
        assert (subscription.in_flight, subscription.delivered, subscription.late) == (1, 2, 0)

    def test_ready(self, scene: Scene) -> None:
        """The first word of a broker can be waited for."""
        assert scene.done(scene.subscription.ready()) is None
        scene.done(scene.subscription.close())
        results = Results(scene.subscription.ready(), scene.subscription.next())

        assert [type(error) for error in results.errors] == [ClosedError, ClosedError]

    def test_no_channel(self) -> None:
        """An error of the broker ends whatever waits, and later calls."""
        stage = Stage(QueuePuppet())
        puppet = stage.puppet
        assert isinstance(puppet, QueuePuppet)
        puppet.make("t", 1)
        puppet.channel.exists = False
        subscription = stage.client.subscription("t", "c", SubscriptionConfig(create=False))
        results = Results(subscription.next(), subscription.ready(), subscription.run(print))
        stage.pump()
        later = Results(subscription.next())

        assert [type(error) for error in results.errors] == [UnknownChannel] * 3
        assert [type(error) for error in later.errors] == [UnknownChannel]
        stage.end()

    def test_another_process(self, scene: Scene) -> None:
        """In the child of a fork nothing works."""
        process = Process()
        home = scene.subscription._home
        home._process = process
        process.pid += 1
        results = Results(
            scene.subscription.next(), scene.subscription.ready(), scene.subscription.run(print)
        )
        process.pid -= 1

        assert [type(error) for error in results.errors] == [ForkedError] * 3


class TestMessages:
    """What a message tells."""

    def test_lost(self, scene: Scene) -> None:
        """A Deferred fires when the lease is lost."""
        scene.put(b"a")
        message = scene.take()
        lost = Results(message.lost)
        assert message.lost is message.lost
        scene.puppet.lose(back=False)
        scene.pump()

        assert lost.values == [None]
        assert message.is_lost

    def test_confirmed(self, scene: Scene) -> None:
        """A settle can be waited for, and its failure heard."""
        scene.put(b"a", b"b")
        one, two = scene.take(), scene.take()
        one.finish()
        assert scene.done(one.confirmed()) is None
        scene.puppet.take_back(1000, 2, back=False, tell=False)
        two.finish()
        results = Results(two.confirmed())
        dropped = two.confirmed()
        dropped.addErrback(lambda _: None)
        dropped.cancel()
        scene.pump()

        assert [type(error) for error in results.errors] == [LeaseLost]
        assert scene.subscription.late == 1

    def test_settled(self, scene: Scene) -> None:
        """All settles so far can be waited for together."""
        scene.put(b"a", b"b")
        scene.take().finish()
        scene.take().finish()
        scene.done(scene.subscription.settled())

        assert scene.channel.offsets() == [0, 1]

    def test_leases_are_renewed_while_the_caller_works(self, scene: Scene) -> None:
        """The client's own clock does it."""
        scene.put(b"a")
        message = scene.take()
        scene.advance(130)
        message.finish()
        scene.pump()

        assert scene.channel.offsets("touch") == [0] * 6
        assert scene.channel.offsets() == [0]


class TestHandlers:
    """Functions that are called with each message."""

    def test_plain_functions(self, scene: Scene) -> None:
        """A message is finished when its handler returns."""
        found: list[bytes | None] = []
        scene.subscription.run(lambda message: found.append(message.value))
        scene.put(b"a", b"b")

        assert found == [b"a", b"b"]
        assert scene.channel.offsets() == [0, 1]

    def test_coroutines(self, scene: Scene) -> None:
        """A message is finished when its coroutine has ended."""
        work = Work()

        async def handle(message: Message) -> None:
            await work(message)

        scene.subscription.run(handle)
        scene.put(b"a")
        assert scene.channel.offsets() == []
        work.open[b"a"].callback(None)
        scene.pump()

        assert scene.channel.offsets() == [0]

    def test_no_more_at_once_than_wanted(self, scene: Scene) -> None:
        """The next message is begun when another has ended."""
        work = Work()
        scene.subscription.run(work, concurrency=2)
        scene.put(b"a", b"b", b"c")
        assert list(work.open) == [b"a", b"b"]
        work.open[b"b"].callback(None)
        scene.pump()

        assert list(work.open) == [b"a", b"b", b"c"]
        assert scene.channel.offsets() == [1]

    def test_a_failure(self, scene: Scene, logged: list[LogEvent]) -> None:
        """The message comes again, with the reason; it is logged, and work goes on."""

        def handle(message: Message) -> None:
            if message.value == b"a":
                raise KeyError("no")

        scene.subscription.run(handle)
        scene.put(b"a", b"b")

        assert scene.channel.settled == [
            ("requeue", 0, 0, {"x": "KeyError: 'no'"}),
            ("finish", 0, 1, {}),
        ]
        assert [event["log_failure"].type for event in logged] == [KeyError]

    def test_a_failure_later(self, scene: Scene, logged: list[LogEvent]) -> None:
        """A Deferred that fails counts as well."""
        work = Work()
        scene.subscription.run(work)
        scene.put(b"a")
        work.open[b"a"].errback(ValueError("bad"))
        scene.pump()

        assert scene.channel.settled == [("requeue", 0, 0, {"x": "ValueError: bad"})]
        assert len(logged) == 1

    def test_a_handler_that_settles(self, scene: Scene, logged: list[LogEvent]) -> None:
        """What the handler says of a message stands, also when it fails after that."""

        def handle(message: Message) -> None:
            message.reject("no use")
            if message.value == b"b":
                raise RuntimeError

        scene.subscription.run(handle)
        scene.put(b"a", b"b")

        assert scene.channel.settled == [
            ("reject", 0, 0, {"x": "no use"}),
            ("reject", 0, 1, {"x": "no use"}),
        ]
        assert len(logged) == 1

    def test_by_hand(self, scene: Scene) -> None:
        """With `manual` nothing is settled unless the handler says so."""
        kept: list[Message] = []
        scene.subscription.run(kept.append, manual=True)
        scene.put(b"a", b"b")
        kept[1].finish()
        scene.pump()

        assert scene.channel.offsets() == [1]
        assert kept[0].held

    def test_a_lost_message(self, scene: Scene) -> None:
        """A handler that goes on without its lease settles nothing."""
        work = Work()
        scene.subscription.run(work)
        scene.put(b"a")
        scene.puppet.lose(back=False)
        scene.pump()
        work.open[b"a"].callback(None)
        scene.pump()

        assert scene.channel.settled == []

    def test_many_messages_in_slices(self, scene: Scene) -> None:
        """Plain handlers give way to others after a while."""
        seen: list[int] = []

        def handle(message: Message) -> None:
            seen.append(message.offset)
            scene.clock.rightNow += 0.002

        scene.subscription.run(handle)
        scene.puppet.put(*[b"v"] * 100)
        scene._exchange(*scene.joins[0])
        in_one_turn = len(seen)
        scene.pump()

        assert in_one_turn == 5
        assert len(seen) == 100

    def test_one_slice_for_all_that_came(self, scene: Scene) -> None:
        """Many deliveries that come together do not keep leases from being renewed."""
        seen: list[int] = []

        def handle(message: Message) -> None:
            seen.append(message.offset)
            scene.clock.rightNow += 0.02

        scene.subscription.run(handle)
        for _ in range(5):
            scene.puppet.put(b"v")
        scene._exchange(*scene.joins[0])
        in_one_turn = len(seen)
        scene.pump()

        assert in_one_turn == 1
        assert seen == [0, 1, 2, 3, 4]

    def test_one_handler(self, scene: Scene) -> None:
        """A second handler is refused, and a senseless number of them."""
        scene.subscription.run(print)
        other = scene.client.subscription("t", "other")
        results = Results(scene.subscription.run(print), other.run(print, concurrency=0))

        assert [type(error) for error in results.errors] == [UsageError, UsageError]

    def test_cancelling(self, scene: Scene, logged: list[LogEvent]) -> None:
        """What is handled goes back, and nothing more is begun."""
        work = Work()
        running = scene.subscription.run(work)
        results = Results(running)
        scene.put(b"a", b"b")
        running.cancel()
        scene.pump()

        assert [type(error) for error in results.errors] == [CancelledError]
        assert work.cancelled == [b"a"]
        assert scene.channel.offsets("give back") == [0]
        assert scene.take().value == b"b"


class TestClosing:
    """A clean stop."""

    def test_handlers_may_end(self, scene: Scene) -> None:
        """Within the time, handlers end and their messages are settled."""
        work = Work()
        running = Results(scene.subscription.run(work))
        scene.put(b"a", b"b")
        closing = Results(scene.subscription.close(5.0), scene.subscription.close())
        scene.advance(3)
        assert closing.values == []
        work.open[b"a"].callback(None)
        scene.pump()

        assert closing.values == [None, None]
        assert running.values == [None]
        assert scene.channel.offsets() == [0]
        assert list(work.open) == [b"a"]

    def test_handlers_that_take_too_long(self, scene: Scene, logged: list[LogEvent]) -> None:
        """They are cancelled, and what they had goes back."""
        work = Work()
        running = Results(scene.subscription.run(work))
        scene.put(b"a")
        closing = Results(scene.subscription.close(5.0))
        scene.advance(6)

        assert closing.values == running.values == [None]
        assert work.cancelled == [b"a"]
        assert scene.channel.ready == [(0, 0)] or scene.channel.offsets("give back") == [0]
        assert logged == []

    def test_with_the_client(self) -> None:
        """Closing the client tells settles first."""
        scene = Scene()
        scene.put(b"a", b"b")
        scene.take().finish()
        scene.end()

        assert scene.channel.offsets() == [0]
        assert scene.channel.ready == [(0, 1)] or scene.channel.offsets("give back") == [1]
        with pytest.raises(ClosedError):
            scene.client.subscription("t", "work")

    def test_a_broker_that_does_not_answer(self, scene: Scene) -> None:
        """It is not waited for longer than said."""
        scene.put(b"a")
        scene.take().finish()
        scene.puppet.deaf = {MessageType.SETTLE}
        closing = Results(scene.subscription.close())
        scene.advance(4)
        assert closing.values == []
        scene.advance(2)

        assert closing.values == [None]
