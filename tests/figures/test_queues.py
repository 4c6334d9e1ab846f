"""The rows of all channels: asked for when somebody looks, in turns where there are many."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import pytest
from attrs import define, evolve, field
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import globalLogPublisher
from twisted.python.failure import Failure

from tests.fakes.broker import LogKeeper
from tinymq.channelpolicy import DEFAULT_POLICY
from tinymq.figures.queues import AT_ONCE, Place, Queues, Row
from tinymq.meta.registry import ChannelInfo, Registry, Topic
from tinymq.names import DEAD_LETTERS
from tinymq.topicconfig import DEFAULT_TOPIC

T = TypeVar("T")


@define
class Brokers:
    """Who describes channels; `asked` has how many each call was about."""

    asked: list[int] = field(factory=list)
    silent: list[str] = field(factory=list)
    failure: Exception | None = None
    lag: int = 5
    offline: set[str] = field(factory=set)

    async def __call__(
        self, page: Sequence[Place], pattern: str = ""
    ) -> tuple[list[Row], list[str]]:
        """Describe some."""
        self.asked.append(len(page))
        if self.failure is not None:
            raise self.failure
        rows = [
            {
                "topic": topic,
                "name": name,
                "lag_ms": 5,
                "why": [{"cause": "offline"}] if name in self.offline else [],
                "state": "stuck" if name == "bad" else "consuming",
                "lag": self.lag + len(topic),
                **dict.fromkeys(("ready", "in_flight", "waiting", "given_up"), 2),
            }
            for topic, name in page
        ]
        return rows, self.silent


def registry_of(topics: int, *names: str) -> Registry:
    """Make topics that have channels of some names."""
    found = {}
    channels = {}
    for index in range(topics):
        topic_id = index.to_bytes(16, "big")
        found[topic_id] = Topic(
            id=topic_id,
            name=f"t{index:05}",
            created_ms=1,
            config=DEFAULT_TOPIC,
            leaders=(1,),
            partitions=1,
        )
        channels[topic_id] = {
            name: ChannelInfo(name=name, created_ms=1, policy=DEFAULT_POLICY, start="earliest")
            for name in names
        }
    return Registry(topics=found, channels=channels)


@define
class Scene:
    """Queues with what they stand on."""

    registry: Registry
    clock: Clock = field(factory=Clock)
    brokers: Brokers = field(factory=Brokers)
    queues: Queues = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.queues = Queues(
            lambda: self.registry, self.brokers, self.clock, lambda: round(self.clock.seconds())
        )

    def begin(self, work: Coroutine[Any, Any, T]) -> list[Any]:
        """Begin to wait for something; what comes stands in the list."""
        found: list[Any] = []
        Deferred.fromCoroutine(work).addBoth(found.append)
        return found

    def take(self, work: Coroutine[Any, Any, T]) -> T:
        """Take what is there at once."""
        (found,) = self.begin(work)
        if isinstance(found, Failure):
            found.raiseException()
        result: T = found
        return result


def test_few_are_asked_for_at_every_look() -> None:
    """Each look is fresh, and nobody asks while nobody looks."""
    scene = Scene(registry_of(3, "a", "bad"))
    scene.clock.advance(60)
    assert scene.brokers.asked == []

    scene.brokers.silent = ["mq-2"]
    rows, silent = scene.take(scene.queues.rows())
    scene.brokers.lag = 7
    backlog = scene.take(scene.queues.backlog())

    assert [(row["topic"], row["name"]) for row in rows][:2] == [("t00000", "a"), ("t00000", "bad")]
    assert silent == backlog.silent == ("mq-2",)
    assert (backlog.channels, backlog.ready, backlog.troubled_count) == (6, 12, 3)
    assert backlog.worst[0]["lag"] == 13
    assert scene.brokers.asked == [6, 6]


def test_many_are_asked_for_in_turns() -> None:
    """The first look waits for all of them; later ones take what is known, and ask behind."""
    scene = Scene(registry_of(AT_ONCE, "a", "b", "c"))
    first = scene.begin(scene.queues.rows())
    assert first == []
    for _ in range(3):
        scene.clock.advance(0)
    assert len(first[0][0]) == 3 * AT_ONCE
    assert scene.brokers.asked == [AT_ONCE] * 3

    scene.take(scene.queues.rows())
    assert len(scene.brokers.asked) == 3
    scene.clock.advance(2)
    scene.brokers.lag = 50
    old, _ = scene.take(scene.queues.rows())
    assert old[0]["lag"] == 11
    for _ in range(3):
        scene.clock.advance(0)
    assert scene.queues.known()[0]["lag"] == 56


def test_looks_that_take_long_are_rare() -> None:
    """A look at all takes a tenth of the time at most, however many there are."""
    scene = Scene(registry_of(AT_ONCE + 1, "a"))
    first = scene.begin(scene.queues.rows())
    scene.clock.advance(1)
    assert first
    asked = len(scene.brokers.asked)

    scene.clock.advance(9)
    scene.queues.known()
    assert len(scene.brokers.asked) == asked
    scene.clock.advance(1)
    scene.queues.known()
    assert len(scene.brokers.asked) > asked


def test_names_follow_the_registry() -> None:
    """A channel that was made or deleted changes the names at once, without a look."""
    scene = Scene(registry_of(2, "a"))
    assert scene.queues.places() == [("t00000", "a"), ("t00001", "a")]

    scene.registry = evolve(registry_of(1, "b"), revision=5)

    assert scene.queues.places() == [("t00000", "b")]


def test_failed_look_is_told_to_who_waits() -> None:
    """And the next look asks again."""
    scene = Scene(registry_of(1, "a"))
    scene.brokers.failure = RuntimeError("no")
    with pytest.raises(RuntimeError):
        scene.take(scene.queues.rows())

    scene.brokers.failure = None

    assert len(scene.take(scene.queues.rows())[0]) == 1


def test_failed_look_behind_is_logged() -> None:
    """Nobody waits for it, so the log has it, and what was known stays."""
    scene = Scene(registry_of(AT_ONCE + 1, "a"))
    first = scene.begin(scene.queues.rows())
    scene.clock.advance(0)
    assert first
    keeper = LogKeeper()
    globalLogPublisher.addObserver(keeper)
    try:
        scene.brokers.failure = RuntimeError("no")
        scene.clock.advance(3)
        assert len(scene.queues.known()) == AT_ONCE + 1
    finally:
        globalLogPublisher.removeObserver(keeper)
    assert keeper.texts[0].startswith("Cannot look at all channels")


def test_stop_ends_a_look() -> None:
    """A look in turns is not carried on."""
    scene = Scene(registry_of(AT_ONCE + 1, "a"))
    waiting = scene.begin(scene.queues.rows())

    scene.queues.stop()

    assert isinstance(waiting[0], Failure)
    scene.clock.advance(0)
    assert scene.brokers.asked == [AT_ONCE]


def test_dead_letters_are_counted_apart() -> None:
    """What is left of dead letters is a sum of its own, and no channel of people."""
    scene = Scene(registry_of(7, "a", DEAD_LETTERS))

    backlog = scene.take(scene.queues.backlog())

    assert (backlog.channels, len(scene.queues.places())) == (7, 7)
    assert (backlog.dead_letters, len(backlog.dead_queues)) == (7 * 11, 5)


def test_looks_are_remembered() -> None:
    """Every look adds a point to the lag of each channel, and to the sums; none is asked for."""
    scene = Scene(registry_of(2, "a"))
    scene.take(scene.queues.backlog())
    scene.clock.advance(2000)
    scene.brokers.lag = 9
    backlog = scene.take(scene.queues.backlog())
    told = {"topic": "t00001", "name": "a", "lag": 40, "silent": []}

    assert backlog.ready_depth is not None
    assert backlog.in_flight_depth is not None
    for depth in (backlog.ready_depth, backlog.in_flight_depth):
        assert list(depth.recent.values) == [4, 4]
    scene.clock.advance(2000)
    assert scene.queues.lag(told).recent.values == (11, 15, 40)
    assert scene.brokers.asked == [2, 2]


def test_looks_that_miss_a_part_are_not_remembered() -> None:
    """While a broker is silent, the sums and the channels that it has a part of get no point."""
    scene = Scene(registry_of(1, "a", "b"))
    scene.take(scene.queues.backlog())
    scene.clock.advance(2000)
    scene.brokers.silent = ["mq-2"]
    scene.brokers.offline = {"a"}
    backlog = scene.take(scene.queues.backlog())

    told = {"topic": "t00000", "lag": 1, "silent": ["mq-2"]}
    lags = [scene.queues.lag({**told, "name": name}).recent.values for name in ("a", "b")]
    assert lags == [(11,), (11, 11)]
    assert backlog.ready_depth is not None
    assert len(backlog.ready_depth.recent.values) == 1


def test_channel_that_is_made_again_has_no_past() -> None:
    """What was known of a deleted one of the same name is forgotten."""
    scene = Scene(registry_of(1, "a"))
    scene.take(scene.queues.rows())
    scene.registry = registry_of(1, "b")
    scene.take(scene.queues.rows())
    scene.registry = registry_of(1, "a")

    told = {"topic": "t00000", "name": "a", "lag": 1, "silent": ["mq-2"]}
    assert scene.queues.lag(told).recent.values == ()
