"""Batches of messages that are handed out and settled together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from tests.client.queueing import QueuePuppet
from tests.client.stage import Stage
from tests.client.test_client import Results
from tests.client.test_subscription import Scene
from tinymq.client import MessageBatch
from tinymq.client.core.fate import Fate
from tinymq.client.stepping import _rest, begun
from tinymq.errors import ConnectionLost, LeaseLost, UsageError


@pytest.fixture
def scene() -> Iterator[Scene]:
    """Set the scene, and see that nothing is left behind."""
    made = Scene()
    yield made
    made.end()


def batch_of(scene: Scene, most: int = 100) -> MessageBatch:
    """Take a batch that must be there."""
    batch = scene.done(scene.subscription.next_batch(most))
    assert batch is not None
    return batch


class TestTaking:
    """What a batch holds."""

    def test_all_that_is_here(self, scene: Scene) -> None:
        """A batch has what is there, of several leases, in order."""
        scene.channel.run = 2
        scene.put(b"a", b"b", b"c")
        batch = batch_of(scene)

        assert batch.values == [b"a", b"b", b"c"]
        assert [record.offset for record in batch.records] == [0, 1, 2]
        assert (len(batch), batch.topic, batch.held, batch.is_lost) == (3, "t", True, False)
        assert "3 messages of t" in repr(batch)
        assert scene.subscription.in_flight == 3

    def test_no_more_than_asked_for(self, scene: Scene) -> None:
        """What is too many stays for the next call, be it for one message or for several."""
        scene.put(*[b"%d" % number for number in range(6)])

        assert batch_of(scene, 2).values == [b"0", b"1"]
        assert scene.take().value == b"2"
        assert batch_of(scene, 2).values == [b"3", b"4"]
        assert batch_of(scene, 2).values == [b"5"]

    def test_waiting(self, scene: Scene) -> None:
        """A call waits for the first message, or for its time to pass."""
        waiting = Results(scene.subscription.next_batch(), scene.subscription.next_batch(5, 1.0))
        scene.put(b"a")
        scene.clock.advance(2)

        assert [None if one is None else one.values for one in waiting.values] == [[b"a"], None]

    def test_misuse(self, scene: Scene) -> None:
        """A batch of no messages is refused."""
        with pytest.raises(UsageError, match="at least 1"):
            scene.done(scene.subscription.next_batch(0))


class TestSettling:
    """What becomes of a batch."""

    def test_as_a_whole(self, scene: Scene) -> None:
        """One settle for each lease, and one confirmation for all."""
        scene.put(b"a", b"b", b"c")
        batch = batch_of(scene)
        batch.finish()
        confirmed = Results(batch.confirmed())
        scene.pump()

        assert scene.channel.offsets() == [0, 1, 2]
        assert confirmed.values == [None]
        assert (batch.held, scene.subscription.in_flight) == (False, 0)
        with pytest.raises(UsageError, match="settled before"):
            batch.finish()

    @pytest.mark.parametrize(
        ("say", "verb", "facts"),
        [
            (lambda batch: batch.requeue(0.5, "no"), "requeue", {"d": 500, "x": "no"}),
            (lambda batch: batch.reject("bad"), "reject", {"x": "bad"}),
            (lambda batch: batch.give_back(), "give back", {}),
        ],
    )
    def test_in_other_ways(self, scene: Scene, say: Any, verb: str, facts: Any) -> None:
        """A batch comes again, or is given up, as single messages are."""
        scene.put(b"a", b"b")
        say(batch_of(scene))
        scene.pump()

        assert scene.channel.settled[:2] == [(verb, 0, 0, facts), (verb, 0, 1, facts)]

    def test_some_alone_and_the_rest_together(self, scene: Scene) -> None:
        """Whoever looks at the messages may settle some by themselves."""
        scene.put(b"a", b"b", b"c")
        batch = batch_of(scene)
        first, second, third = batch
        second.reject("bad")
        confirmed = Results(batch.confirmed())
        batch.finish()
        scene.pump()

        assert scene.channel.offsets("reject") == [1]
        assert scene.channel.offsets() == [0, 2]
        assert confirmed.values == [None]
        assert not first.held
        assert not third.held

    def test_touching(self, scene: Scene) -> None:
        """The work goes on, on all of it."""
        scene.put(b"a", b"b")
        batch = batch_of(scene)
        scene.clock.advance(1)
        batch.touch()
        scene.pump()

        assert scene.channel.offsets("touch") == [0, 1]
        assert batch.started == scene.clock.seconds()

    def test_some_is_lost(self, scene: Scene) -> None:
        """What is lost is told at once; the rest can be settled, and the batch knows."""
        scene.put(b"a", b"b")
        batch = batch_of(scene)
        lost = Results(batch.lost)
        (lease_id,) = scene.channel.leases
        scene.puppet.take_back(lease_id, 0b01)
        scene.pump()
        batch.finish()
        confirmed = Results(batch.confirmed())
        scene.pump()

        assert lost.values == [None]
        assert (batch.is_lost, batch.losses) == (True, 1)
        assert scene.channel.offsets() == [1]
        assert [type(error) for error in confirmed.errors] == [LeaseLost]

    def test_all_is_lost(self, scene: Scene) -> None:
        """Then nothing can be said of it any more."""
        scene.put(b"a")
        batch = batch_of(scene)
        (lease_id,) = scene.channel.leases
        scene.puppet.take_back(lease_id, 0b01)
        scene.pump()

        with pytest.raises(LeaseLost):
            batch.finish()

    def test_nothing_overtakes_a_batch_that_comes_again(self) -> None:
        """In strict order what stands behind it is given back."""
        puppet = QueuePuppet()
        puppet.channel.order = "strict"
        puppet.make("t", 1)
        stage = Stage(puppet)
        subscription = stage.client.subscription("t", "work")
        stage.pump()
        puppet.put(b"a", b"b", b"c")
        stage.pump()
        batch = stage.done(subscription.next_batch(2))
        assert batch is not None
        batch.requeue(0)
        stage.pump()

        assert puppet.channel.offsets("give back") == [2]
        stage.end()

    def test_at_most_once(self) -> None:
        """What the broker has settled is finished without a word, and cannot come again."""
        made = Scene()
        made.channel.delivery = "at_most_once"
        made.put(b"a")
        batch = batch_of(made)
        with pytest.raises(UsageError, match="at most once"):
            batch.requeue()
        batch.finish()

        assert made.done(batch.confirmed()) is None
        assert made.channel.settled == []
        made.end()


class TestFates:
    """What the broker said."""

    def test_of_some(self) -> None:
        """Those who are concerned hear why, the others that all is well."""
        fate, heard = Fate(0b011), list[Any]()
        fate.when_done(0b001, heard.append)
        fate.when_done(0b010, heard.append)
        error = ConnectionLost()

        assert fate.tell(0b110, error) == 1
        fate.when_done(0b010, heard.append)
        assert heard == [None, error, error]


class TestSteps:
    """Coroutines that may wait for nothing."""

    def test_no_wait(self) -> None:
        """What it returns comes out at once."""

        async def body() -> int:
            return 3

        assert begun(body()) == 3

    def test_an_error_before_it_waits(self) -> None:
        """It comes out of the first step."""

        async def body() -> None:
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            begun(body())

    def test_waiting(self) -> None:
        """Results and errors of what it waits for reach it, and its own end the Deferred."""
        first, second = Deferred[int](), Deferred[int]()

        async def body() -> str:
            found = await first
            try:
                await second
            except ValueError as error:
                return f"{found} {error}"
            return ""

        going: Any = begun(body())
        ended = Results(going)
        first.callback(1)
        second.errback(ValueError("two"))

        assert ended.values == ["1 two"]

    def test_cancelling(self) -> None:
        """What it waits for is cancelled."""
        cancelled: list[object] = []
        waiting: Deferred[None] = Deferred(cancelled.append)

        async def body() -> None:
            await waiting

        going: Any = begun(body())
        ended = Results(going)
        going.cancel()

        assert cancelled == [waiting]
        assert len(ended.errors) == 1


def test_what_is_let_go_of_ends_quietly() -> None:
    """Whichever of a coroutine and its rest is let go of first, nothing is raised."""

    async def waits() -> None:
        ended.append("begun")
        try:
            await Deferred()
        finally:
            ended.append("ended")

    for first in (True, False):
        ended: list[str] = []
        coroutine = waits()
        rest = _rest(coroutine, coroutine.send(None))
        next(rest)
        if first:
            coroutine.close()
        rest.close()
        assert ended == ["begun", "ended"]
