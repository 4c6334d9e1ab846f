"""Handlers: what they are given, what they may say, and how they end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from queue import Queue
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorFromThreads
from twisted.internet.task import Clock
from zope.interface import implementer

from tests.client.test_subscription import Scene, Work, logged
from tinymq.client import Message, Reject, Requeue
from tinymq.client.core.fate import Fate
from tinymq.client.core.handling import Plan
from tinymq.client.core.handling import Work as InHand
from tinymq.client.core.message import QueueMessage
from tinymq.client.handling import Run
from tinymq.errors import LeaseLost, UnknownTopic, UsageError
from tinymq.wire.messages import FINISH
from tinymq.wire.records import Record

__all__ = ["logged"]


@pytest.fixture
def scene() -> Iterator[Scene]:
    """Set the scene, and see that nothing is left behind."""
    made = Scene()
    yield made
    made.end()


def verbs(scene: Scene) -> list[tuple[str, int, dict[str, Any]]]:
    """What became of messages."""
    return [(verb, offset, facts) for verb, _, offset, facts in scene.channel.settled]


def stop(scene: Scene) -> None:
    """End the subscription."""
    scene.done(scene.subscription.close())


class TestWords:
    """What a handler says by raising."""

    def test_reject_and_requeue(self, scene: Scene, logged: list[Any]) -> None:
        """They say what is to become of the message, and are no errors."""
        words = {
            b"a": Reject("cannot be read"),
            b"b": Requeue(30, failure=False),
            b"c": Requeue(reason="busy"),
            b"d": Requeue(-1),
        }

        def handle(message: Message) -> None:
            raise words[message.value or b""]

        running = scene.subscription.run(handle)
        scene.put(*words)
        stop(scene)
        scene.done(running)

        assert verbs(scene) == [
            ("reject", 0, {"x": "cannot be read"}),
            ("requeue", 1, {"d": 30_000, "f": False}),
            ("requeue", 2, {"x": "busy"}),
            ("requeue", 3, {}),
        ]
        assert logged == []

    def test_after_a_while(self, scene: Scene) -> None:
        """They mean the same when a coroutine raises them."""

        async def handle(message: Message) -> None:
            raise Reject("no")

        scene.subscription.run(handle)
        scene.put(b"a")
        stop(scene)

        assert verbs(scene) == [("reject", 0, {"x": "no"})]

    def test_what_was_settled_stays_so(self, scene: Scene) -> None:
        """A word that comes too late changes nothing."""

        def handle(message: Message) -> None:
            message.finish()
            raise Reject

        scene.subscription.run(handle)
        scene.put(b"a")
        stop(scene)

        assert verbs(scene) == [("finish", 0, {})]

    def test_without_leases(self, logged: list[Any]) -> None:
        """Nothing can be said of messages that are delivered at most once."""
        scene = Scene(create=False)
        scene.channel.delivery = "at_most_once"

        def handle(message: Message) -> None:
            raise Reject

        scene.subscription.run(handle)
        scene.put(b"a")
        stop(scene)
        scene.end()

        assert verbs(scene) == []


class TestBatches:
    """Handlers that are given several messages."""

    def test_as_a_whole(self, scene: Scene, logged: list[Any]) -> None:
        """What is there is given as lists, which are finished or come again as a whole."""
        sizes: list[int] = []

        def handle(messages: list[Message]) -> None:
            sizes.append(len(messages))
            if len(sizes) == 2:
                raise ValueError("no")

        scene.put(b"a", b"b", b"c", b"d", b"e")
        scene.subscription.run(handle, batch=3)
        stop(scene)

        assert sizes == [3, 2]
        assert scene.channel.offsets() == [0, 1, 2]
        assert scene.channel.offsets("requeue") == [3, 4]
        assert [event["work"].messages[0].offset for event in logged] == [3]
        assert "and 1 more" in repr(logged[0]["work"])

    def test_one_by_one(self, scene: Scene) -> None:
        """What the handler settles by itself stays so; the rest follows the whole."""

        async def handle(messages: list[Message]) -> None:
            messages[0].finish()
            messages[1].reject("this one")
            raise Requeue(5)

        scene.put(b"a", b"b", b"c")
        scene.subscription.run(handle, batch=100)
        stop(scene)

        assert sorted(verbs(scene), key=lambda row: row[1]) == [
            ("finish", 0, {}),
            ("reject", 1, {"x": "this one"}),
            ("requeue", 2, {"d": 5000}),
        ]

    def test_manual(self, scene: Scene) -> None:
        """Nothing is finished for a handler that does so by itself."""
        kept: list[Message] = []
        scene.put(b"a", b"b")
        scene.subscription.run(kept.extend, batch=10, manual=True)
        scene.pump()
        kept[1].finish()
        scene.pump()

        assert verbs(scene) == [("finish", 1, {})]


class TestLoss:
    """A handler whose message is lost."""

    def test_it_is_told(self, scene: Scene) -> None:
        """It hears of the loss while it runs, and others of the message are not touched."""
        work = Work()
        told: list[None] = []
        running = scene.subscription.run(work)
        scene.put(b"a")
        message = next(iter(scene.subscription._run._busy)).messages[0]  # type: ignore[union-attr]
        message.lost.addCallback(told.append)
        scene.puppet.take_back(1000, 1, back=False, tell=True)
        scene.pump()
        work.open[b"a"].callback(None)
        stop(scene)
        scene.done(running)

        assert told == [None]
        assert verbs(scene) == []

    def test_it_can_be_cancelled(self, scene: Scene, logged: list[Any]) -> None:
        """By choice it does not go on with what somebody else has by now."""
        work = Work()
        scene.subscription.run(work, cancel_lost=True)
        scene.put(b"a")
        scene.puppet.take_back(1000, 1, back=False, tell=True)
        scene.pump()
        scene.put(b"b")
        work.open[b"b"].callback(None)
        stop(scene)

        assert work.cancelled == [b"a"]
        assert scene.channel.offsets() == [1]
        assert logged == []

    def test_a_late_settle_is_no_error_of_the_handler(
        self, scene: Scene, logged: list[Any]
    ) -> None:
        """That it was late is counted; nobody is to look for a fault in the handler."""
        waiting: Deferred[None] = Deferred()

        async def handle(message: Message) -> None:
            await waiting
            message.finish()

        scene.subscription.run(handle)
        scene.put(b"a")
        scene.puppet.take_back(1000, 1, back=False, tell=True)
        scene.pump()
        waiting.callback(None)
        stop(scene)

        assert logged == []


@implementer(IReactorFromThreads)
class Threaded(Clock):
    """A clock that takes calls from threads, and makes them when told."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Queue[Any] = Queue()

    def callFromThread(  # noqa: N802
        self,
        callable: Callable[..., Any],  # noqa: A002 - Twisted's name
        *args: object,
        **kwargs: object,
    ) -> None:
        """Take a call."""
        self.asked.put((callable, args, kwargs))

    def callInThread(self, *_: Any) -> None:  # noqa: N802
        """Do nothing."""

    def turn(self) -> None:
        """Wait for a call, and make it."""
        call, args, named = self.asked.get(timeout=5)
        call(*args, **named)


class Keeper:
    """Keeps messages, and notes what is said of them."""

    topic, partition, lease_id, base, attempt, failures = "t", 0, 7, 0, 1, 0

    def __init__(self) -> None:
        self.said: list[tuple[int, int]] = []
        self.threads: set[int] = set()

    def settle(self, message: QueueMessage, verb: int, facts: dict[str, Any]) -> Fate:
        """Note it, and take it."""
        self.said.append((message.offset, verb))
        self.threads.add(threading.get_ident())
        fate = Fate(1 << message.bit)
        fate.tell(0, None)
        return fate

    def finish(self, message: QueueMessage) -> Fate:
        """Note it, and take it."""
        return self.settle(message, FINISH, {})

    def touch(self, message: QueueMessage) -> None:
        """Note it."""
        self.said.append((message.offset, -1))


class Shelf:
    """Messages for a run."""

    topic, channel, closing = "t", "work", False

    def __init__(self, *values: bytes) -> None:
        self.keeper = Keeper()
        self.clock = Threaded()
        self.messages = [_message(place, value, self.keeper) for place, value in enumerate(values)]
        self.left = list(self.messages)
        self.run: Run | None = None

    def take(self, now: float) -> QueueMessage | None:
        """Take one."""
        return self.left.pop(0) if self.left else None

    def seconds(self) -> float:
        """The time."""
        return self.clock.seconds()

    def serve(self) -> None:
        """Go on."""
        assert self.run is not None
        self.run.feed()

    def later(self, call: Callable[[], None]) -> None:
        """Nobody else has a turn here."""
        call()


def _message(offset: int, value: bytes, keeper: Keeper) -> QueueMessage:
    return QueueMessage(Record(offset, 0, None, value, (), None), keeper, 0)


class TestThreads:
    """Handlers that block, in threads of their own."""

    def begin(self, shelf: Shelf, handler: Any, **options: Any) -> Run:
        """Let a handler run."""
        rooms: Any = (shelf, shelf.clock)
        shelf.run = Run(handler, Plan(**options), shelf, rooms)
        shelf.run.feed()
        return shelf.run

    def test_several_at_once(self) -> None:
        """As many are at work as there are threads, and the reactor waits for none."""
        shelf = Shelf(b"a", b"b", b"c")
        meet = threading.Barrier(3)
        names: set[str] = set()

        def handle(message: QueueMessage) -> None:
            names.add(threading.current_thread().name)
            if message.value != b"c":
                meet.wait(5)

        run = self.begin(shelf, handle, threads=2)
        meet.wait(5)
        for _ in range(3):
            shelf.clock.turn()
        run.end(None)

        assert sorted(shelf.keeper.said) == [(0, 0), (1, 0), (2, 0)]
        assert all(name.startswith("tinymq-handler") for name in names)
        assert run.ended

    def test_settled_in_the_thread(self) -> None:
        """What a handler says there is carried out in the reactor's thread."""
        shelf = Shelf(b"a", b"b")

        def handle(message: QueueMessage) -> None:
            if message.value == b"a":
                message.reject("no")
            else:
                message.touch()
                raise Requeue(1)

        run = self.begin(shelf, handle, threads=1)
        for _ in range(4):
            shelf.clock.turn()
        run.end(None)

        assert shelf.keeper.said == [(0, 2), (1, -1), (1, 1)]
        assert shelf.keeper.threads == {threading.get_ident()}

    def test_what_is_lost_before_it_begins_is_left(self) -> None:
        """A thread does not begin with what somebody else has by now."""
        shelf = Shelf(b"a", b"b")
        begun, go = threading.Event(), threading.Event()
        found: list[bytes | None] = []

        def handle(message: QueueMessage) -> None:
            found.append(message.value)
            begun.set()
            go.wait(5)

        run = self.begin(shelf, handle, threads=1, cancel_lost=True)
        begun.wait(5)
        for message in shelf.messages:
            message.lose()
        go.set()
        shelf.clock.turn()
        run.cancel()
        shelf.clock.turn()
        run.end(None)

        assert found == [b"a"]
        assert shelf.keeper.said == []

    def test_errors(self, logged: list[Any]) -> None:
        """What is raised in the thread is told, with its text to the broker."""
        shelf = Shelf(b"a")

        def handle(message: QueueMessage) -> None:
            raise ValueError("no")

        run = self.begin(shelf, handle, threads=1)
        shelf.clock.turn()
        run.end(None)

        assert shelf.keeper.said == [(0, 1)]
        assert len(logged) == 1

    def test_a_coroutine_function(self, logged: list[Any]) -> None:
        """It would never be awaited there: that is said, and the message comes again."""
        shelf = Shelf(b"a")

        async def handle(message: QueueMessage) -> None:
            raise AssertionError

        run = self.begin(shelf, handle, threads=1)
        shelf.clock.turn()
        run.end(None)

        assert shelf.keeper.said == [(0, 1)]
        assert "not for threads" in str(logged[0]["log_failure"].value)

    def test_a_reactor_without_threads(self) -> None:
        """That is said at once."""
        shelf = Shelf()
        rooms: Any = (shelf, Clock())
        with pytest.raises(UsageError, match="no threads"):
            Run(print, Plan(threads=1), shelf, rooms)

    def test_a_settle_that_crosses_a_loss(self) -> None:
        """A message that was lost before the reactor's thread heard of it is left alone."""
        shelf, calls = Shelf(b"a"), list[Any]()
        message = shelf.messages[0]
        told: list[Any] = []
        InHand([message], Plan()).from_thread(calls.append)
        message.touch()
        message.finish()
        message.when_confirmed(told.append)
        message.lose()
        for call in calls:
            call()

        assert shelf.keeper.said == []
        assert message.is_lost
        assert [type(error) for error in told] == [LeaseLost]


class TestPlans:
    """How handlers are called."""

    @pytest.mark.parametrize(
        "options", [{"concurrency": 0}, {"batch": 0}, {"threads": -1}, {"batch": 1.5}]
    )
    def test_misuse(self, scene: Scene, options: dict[str, Any]) -> None:
        """Senseless numbers are refused."""
        with pytest.raises(UsageError, match="must be at least"):
            scene.done(scene.subscription.run(print, **options))

    def test_threads_or_concurrency(self) -> None:
        """They are the same thing, so both can only be one number."""
        with pytest.raises(UsageError, match="leave out concurrency"):
            Plan(threads=2, concurrency=3)
        assert Plan(threads=2).at_once == Plan(threads=2, concurrency=2).at_once == 2

    def test_a_loss_is_told_once_for_a_batch(self) -> None:
        """When none of it is held any more."""
        shelf, told = Shelf(b"a", b"b"), list[int]()
        work = InHand(list(shelf.messages), Plan(batch=2))
        work.when_lost(lambda: told.append(1))
        shelf.messages[0].lose()
        before = [*told]
        shelf.messages[1].lose()

        assert (before, told) == ([], [1])
        assert work.lost
        assert not work.failed(LeaseLost("late"))
        assert work.failed(UnknownTopic("x"))
