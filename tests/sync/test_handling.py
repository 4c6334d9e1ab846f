"""Handlers in threads: batches, and what they may say."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sync.server import Server
from tests.sync.test_subscription import Scene, ended, started, until
from tinymq.sync import Message, Reject, Requeue


@pytest.fixture
def scene() -> Iterator[Scene]:
    """Set the scene."""
    made = Scene()
    assert isinstance(made.server, Server)
    with made.server:
        yield made
        made.client.close()


def test_words(scene: Scene) -> None:
    """A handler says by raising what is to become of a message, and that is no error."""
    words = {b"a": Reject("no"), b"b": Requeue(30), b"c": Requeue(failure=False)}

    def handle(message: Message) -> None:
        raise words[message.value or b""]

    subscription = scene.begin()
    thread = started(lambda: subscription.run(handle, concurrency=2))
    scene.put(*words)
    until(lambda: len(scene.channel.settled) == 3)
    subscription.close()

    assert ended(thread)
    found = sorted((offset, verb, facts) for verb, _, offset, facts in scene.channel.settled)
    assert found == [
        (0, "reject", {"x": "no"}),
        (1, "requeue", {"d": 30_000}),
        (2, "requeue", {"f": False}),
    ]


def test_batches(scene: Scene) -> None:
    """What is there is given as lists; what the handler does not settle is settled as a whole."""
    sizes: list[int] = []

    def handle(messages: list[Message]) -> None:
        sizes.append(len(messages))
        messages[0].reject()
        if len(messages) < 3:
            raise ValueError("no")

    subscription = scene.begin()
    scene.put(b"a", b"b", b"c", b"d", b"e")
    until(lambda: subscription.in_flight == 5)
    thread = started(lambda: subscription.run(handle, batch=3))
    until(lambda: len(scene.channel.settled) == 5)
    subscription.close()

    assert ended(thread)
    assert sizes == [3, 2]
    assert sorted((offset, verb) for verb, _, offset, _ in scene.channel.settled) == [
        (0, "reject"),
        (1, "finish"),
        (2, "finish"),
        (3, "reject"),
        (4, "requeue"),
    ]
