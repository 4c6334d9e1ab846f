"""Group consumers through the blocking face, on real sockets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from threading import Event, Thread
from typing import Any

import pytest

from tests.client.grouping import Grouping
from tests.sync.server import Server
from tinymq.errors import ClosedError
from tinymq.sync import Client, ClientConfig, GroupConsumer
from tinymq.wire.records import encode_batch

PATIENCE = 5.0


class Scene:
    """A server with a coordinator, and a client."""

    def __init__(self) -> None:
        self.puppet = Grouping()
        self.puppet.make("t", 2)
        self.server = Server(self.puppet)
        self.client = Client(self.server.url, ClientConfig(connect_timeout_s=1))

    def put(self, *values: bytes, partition: int = 0) -> None:
        """Publish."""
        with self.server.lock:
            self.puppet.topics["t"].logs[partition].append(encode_batch(values))
            self.puppet.wake()

    def join(self, **settings: Any) -> GroupConsumer:
        """Make a member, and let it read what it is given."""
        consumer = self.client.group("g", ["t"], **settings)
        assert consumer.ready(PATIENCE)
        return consumer

    def offset(self, partition: int = 0) -> int:
        """What was committed."""
        with self.server.lock:
            return self.puppet.committed(partition).offset


@pytest.fixture
def scene() -> Iterator[Scene]:
    """Set the scene."""
    made = Scene()
    with made.server:
        yield made
        made.client.close()


def until(found: Any) -> None:
    """Wait for something that comes soon."""
    end = time.monotonic() + PATIENCE
    while not found():
        assert time.monotonic() < end
        time.sleep(0.002)


def test_loop(scene: Scene) -> None:
    """A loop ends when the consumer is closed, and what it handled is committed."""
    scene.put(b"a", b"b", b"c")
    seen: list[bytes | None] = []
    with scene.join() as consumer:
        for message in consumer:
            seen.append(message.value)
            if len(seen) == 3:
                message.done()
                consumer.close()
    assert seen == [b"a", b"b", b"c"]
    assert scene.offset() == 3


def test_commit_and_note(scene: Scene) -> None:
    """A batch that is done is committed with a note, which the next owner is told."""
    scene.put(b"a", b"b")
    told: list[Any] = []
    with scene.join(commit="manual") as consumer:
        batch = consumer.next_batch(PATIENCE)
        assert batch is not None
        batch.done()
        consumer.commit(note={("t", 0): "here"})
    with scene.join(on_assigned=told.extend):
        assert [(one.partition, one.offset, one.note) for one in told] == [
            (0, 2, "here"),
            (1, 0, ""),
        ]


def test_where_it_began_is_kept(scene: Scene) -> None:
    """The start of a group is committed before a message comes, with manual commits, too."""
    scene.put(b"a")
    with scene.join(start="latest", commit="manual"):
        assert scene.offset() == 1


def test_membership_goes_on_while_the_caller_is_busy(scene: Scene) -> None:
    """Others get their partitions though the caller of this member does something else."""
    told: list[int] = []

    def taken(shares: list[Any]) -> None:
        consumer.commit()  # which may wait here
        told.extend(one.partition for one in shares)

    consumer = scene.join(on_revoked=taken)
    with Client(scene.server.url) as client:
        other = client.group("g", ["t"])
        until(lambda: other.assigned == [("t", 1)])
        assert told == [1]
        assert consumer.assigned == [("t", 0)]


def test_run_in_threads(scene: Scene) -> None:
    """Handlers are at work at once, and all that they handled is committed."""
    scene.put(*[b"%d" % number for number in range(20)])
    consumer = scene.join()
    both = [Event(), Event()]
    seen: list[bytes | None] = []

    def handle(message: Any) -> None:
        if message.offset < 2:
            both[message.offset].set()
            assert both[1 - message.offset].wait(PATIENCE)
        seen.append(message.value)
        if len(seen) == 20:
            consumer.close(PATIENCE)

    thread = Thread(target=consumer.run, args=(handle,), kwargs={"concurrency": 3})
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert len(seen) == 20


def test_failing_handler(scene: Scene) -> None:
    """What a handler fails at ends the run, and comes again; or goes to a topic."""
    scene.put(b"a")
    consumer = scene.join()

    def fail(message: Any) -> None:
        raise LookupError

    with pytest.raises(LookupError):
        consumer.run(fail)
    assert consumer.floor("t", 0).offset == 0
    running = Thread(target=consumer.run, args=(fail,), kwargs={"on_error": "failed"})
    running.start()
    until(lambda: consumer.floor("t", 0).offset == 1)
    assert scene.puppet.values("failed") == [b"a"]
    consumer.close()
    running.join(PATIENCE)


def test_closed(scene: Scene) -> None:
    """A closed consumer says so; a time-out says None."""
    consumer = scene.join()
    assert consumer.next(0.01) is None
    consumer.close()
    with pytest.raises(ClosedError):
        consumer.next()


def test_positions(scene: Scene) -> None:
    """Positions are committed and looked at without being a member."""
    scene.put(b"a", b"b")
    positions = scene.client.positions("g")
    positions.commit("t", {0: 1}, "x")
    found = positions.committed("t")[0]
    assert (found.offset, found.note, found.lag) == (1, "x", 1)
