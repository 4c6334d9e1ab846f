"""Subscriptions through the blocking face, on real sockets."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from tests.client.queueing import PuppetChannel, QueuePuppet
from tests.sync.server import Server
from tinymq.client.core.message import Standing
from tinymq.errors import (
    ClosedError,
    DeadlineExceeded,
    LeaseLost,
    UnknownChannel,
    UsageError,
)
from tinymq.sync import Client, ClientConfig, Message, Subscription, SubscriptionConfig

PATIENCE = 5.0


class Scene:
    """A server with a channel, a client, and a subscription."""

    def __init__(self) -> None:
        self.puppet = QueuePuppet()
        self.puppet.make("t", 1)
        self.server = Server(self.puppet)
        self.client = Client(self.server.url, ClientConfig(connect_timeout_s=1))

    @property
    def channel(self) -> PuppetChannel:
        """The channel."""
        return self.puppet.channel

    def begin(self, **config: object) -> Subscription:
        """Subscribe."""
        settings = SubscriptionConfig(**config)  # type: ignore[arg-type]
        subscription = self.client.subscription("t", "work", settings)
        subscription.ready()
        return subscription

    def put(self, *values: bytes) -> None:
        """Publish."""
        with self.server.lock:
            self.puppet.put(*values)

    def do(self, call: Callable[[], object]) -> None:
        """Let the puppet do something."""
        with self.server.lock:
            call()


@pytest.fixture
def scene() -> Iterator[Scene]:
    """Set the scene."""
    made = Scene()
    with made.server:
        yield made
        made.client.close()


def take(subscription: Subscription) -> Message:
    """Take a message that must come."""
    message = subscription.next(PATIENCE)
    assert message is not None
    return message


def started(call: Callable[[], object]) -> threading.Thread:
    """Call in a thread."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


def until(done: Callable[[], object]) -> None:
    """Wait until another thread has done something."""
    glance = threading.Event()
    for _ in range(1000):
        if done():
            return
        glance.wait(0.002)
    raise AssertionError("it was not done in time")


def ended(thread: threading.Thread) -> bool:
    """Wait until a thread has ended."""
    thread.join(PATIENCE)
    return not thread.is_alive()


def test_iteration(scene: Scene) -> None:
    """Messages come until the subscription is closed."""
    scene.put(b"a", b"b", b"c")
    found = []
    with scene.begin() as subscription:
        for message in subscription:
            found.append(message.value)
            message.finish()
            if len(found) == 3:
                subscription.settled()
                break

    assert found == [b"a", b"b", b"c"]
    assert scene.channel.offsets() == [0, 1, 2]
    assert list(subscription) == []
    with pytest.raises(ClosedError):
        subscription.next()


def test_confirmed_and_lost(scene: Scene) -> None:
    """A settle can be waited for, and the loss of a message."""
    scene.put(b"a", b"b", b"c")
    subscription = scene.begin()
    one, two, three = (take(subscription) for _ in range(3))
    one.finish()
    one.confirmed(PATIENCE)
    scene.do(lambda: scene.puppet.take_back(1000, 2, back=False, tell=False))
    two.requeue()
    with pytest.raises(LeaseLost):
        two.confirmed(PATIENCE)
    with pytest.raises(DeadlineExceeded):
        three.confirmed(0.01)
    assert not three.lost(0.01)
    scene.do(lambda: scene.puppet.lose(back=False))

    assert three.lost(PATIENCE)
    assert (subscription.late, subscription.in_flight) == (1, 0)


def test_leases_are_renewed_while_the_caller_is_busy(scene: Scene) -> None:
    """The client's thread does it, without a call."""
    scene.channel.lease_ms = 60
    scene.put(b"a")
    subscription = scene.begin()
    message = take(subscription)
    until(lambda: "touch" in [row[0] for row in scene.channel.settled])
    message.touch()
    message.finish()
    message.confirmed(PATIENCE)

    assert message.standing is Standing.CONFIRMED


def test_time_outs(scene: Scene) -> None:
    """A call without a message ends with its time."""
    subscription = scene.begin()

    assert subscription.next(0) is None
    assert subscription.next(0.01) is None


def test_no_channel(scene: Scene) -> None:
    """An error of the broker ends whatever waits."""
    scene.channel.exists = False
    subscription = scene.client.subscription("t", "c", SubscriptionConfig(create=False))
    calls: list[Callable[[], object]] = [
        subscription.ready,
        subscription.next,
        lambda: subscription.run(print),
    ]
    for call in calls:
        with pytest.raises(UnknownChannel):
            call()


def test_handlers(scene: Scene) -> None:
    """Threads handle messages at once; what fails comes again; a handler may close."""
    subscription = scene.begin()
    together = threading.Barrier(2)

    def work(message: Message) -> None:
        if message.value == b"bad":
            raise ValueError("bad")
        if message.value == b"end":
            subscription.close(PATIENCE)
            return
        together.wait(PATIENCE)

    running = started(lambda: subscription.run(work, concurrency=2))
    scene.put(b"a", b"b", b"bad")
    until(lambda: len(scene.channel.settled) == 3)
    scene.put(b"end")

    assert ended(running)
    assert sorted(scene.channel.settled, key=lambda row: row[2])[:3] == [
        ("finish", 0, 0, {}),
        ("finish", 0, 1, {}),
        ("requeue", 0, 2, {"x": "ValueError: bad"}),
    ]


def test_closing_while_handlers_work(scene: Scene) -> None:
    """They may end within the time; what they have then is settled."""
    subscription = scene.begin()
    begun, go_on = threading.Event(), threading.Event()

    def work(message: Message) -> None:
        begun.set()
        go_on.wait(PATIENCE)

    running = started(lambda: subscription.run(work))
    scene.put(b"a", b"b")
    assert begun.wait(PATIENCE)
    closing = started(lambda: subscription.close(PATIENCE))
    go_on.set()

    assert ended(closing)
    assert ended(running)
    assert scene.channel.offsets() == [0]


def test_a_handler_that_goes_on_has_lost_its_message(scene: Scene) -> None:
    """A thread cannot be cancelled, but its message goes back."""
    subscription = scene.begin()
    begun, go_on = threading.Event(), threading.Event()

    def work(message: Message) -> None:
        begun.set()
        go_on.wait(PATIENCE)

    running = started(lambda: subscription.run(work))
    scene.put(b"a")
    assert begun.wait(PATIENCE)
    subscription.close()
    go_on.set()

    assert ended(running)
    assert scene.channel.offsets() == []
    assert scene.channel.ready == [(0, 0)]


def test_misuse(scene: Scene) -> None:
    """A second handler is refused, and a senseless number of them."""
    subscription = scene.begin()
    running = started(lambda: subscription.run(print))
    with pytest.raises(UsageError, match="at least 1"):
        subscription.run(print, concurrency=0)
    until(lambda: subscription._run is not None)
    with pytest.raises(UsageError, match="already"):
        subscription.run(print)
    subscription.close()

    assert ended(running)


def test_the_thread_ends_with_the_last_subscription(scene: Scene) -> None:
    """Nothing is left behind, and a later subscription has a thread of its own."""
    first, second = scene.begin(), scene.begin()
    first.close()
    scene.put(b"a")
    take(second).finish()
    second.close()
    third = scene.begin()
    scene.put(b"b")
    assert take(third).value == b"b"
    third.close()
    keepers = [one for one in threading.enumerate() if one.name == "tinymq-keeper"]

    assert all(map(ended, keepers))


def test_batches(scene: Scene) -> None:
    """Messages are handed out and settled together; some may be settled by themselves."""
    with scene.begin() as subscription:
        assert subscription.next_batch(timeout=0.001) is None
        scene.put(b"a", b"b", b"c")
        batch = subscription.next_batch(2, PATIENCE)
        rest = subscription.next_batch(timeout=PATIENCE)
        assert batch is not None
        assert rest is not None
        batch.touch()
        batch.messages[1].reject("no")
        batch.finish()
        batch.confirmed(PATIENCE)
        scene.do(lambda: scene.puppet.lose(back=False))
        assert rest.lost(PATIENCE)
        with pytest.raises(LeaseLost):
            rest.finish()
        with pytest.raises(UsageError, match="at least 1"):
            subscription.next_batch(0)

    assert batch.values == [b"a", b"b"]
    assert scene.channel.offsets() == [0]
    assert scene.channel.offsets("reject") == [1]
