"""Watching a running broker once a second: what went through it, and how late its timers run."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from tinymq.broker.broker import Broker
from tinymq.broker.partition import Partition
from tinymq.broker.ports import Timer
from tinymq.history import History
from tinymq.stats import Counters

#: Seconds between two samples of the counters.
SAMPLE_SECONDS: Final = 1.0
#: Seconds between two looks at the reactor's lateness.
LAG_SECONDS: Final = 0.1
#: How many looks the percentile is taken from: a minute.
LAG_LOOKS: Final = 600

#: The key of the whole broker in the history.
WHOLE: Final = "broker"


class Sampler:
    """
    Feeds the history of a broker.

    Args:
        broker: The domain.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.started_ms = broker.wall()
        self.history = History(self.started_ms)
        self._lateness: deque[float] = deque(maxlen=LAG_LOOKS)
        #: Topics whose figures changed; whoever shows them empties the set.
        self.moved_topics: set[bytes] = set()
        self._last: dict[Partition, Counters] = {}
        self._topics: dict[bytes, Counters] = {}
        self._whole = Counters()
        self._known = broker.meta.registry.topics
        self._timers: dict[str, Timer] = {}

    def start(self) -> None:
        """Begin."""
        self._every("sample", SAMPLE_SECONDS, lambda late: self.sample())
        self._every("lag", LAG_SECONDS, self._lateness.append)

    def stop(self) -> None:
        """End."""
        for timer in self._timers.values():
            if timer.active():
                timer.cancel()
        self._timers.clear()

    def _every(self, name: str, seconds: float, call: Callable[[float], None]) -> None:
        scheduler = self._broker.scheduler

        def arm() -> None:
            due = scheduler.seconds() + seconds

            def fire() -> None:
                late = scheduler.seconds() - due
                arm()
                call(late)

            self._timers[name] = scheduler.callLater(seconds, fire)

        arm()

    def sample(self) -> None:
        """Take the counters of the partitions that did something since the last time."""
        moved = list(self._broker.moved)
        self._broker.moved.clear()
        self.moved_topics.update(partition.topic.id for partition in moved)
        self.history.sample(self._broker.wall(), self._growth(moved))
        topics = self._broker.meta.registry.topics
        if topics is not self._known:
            self._known = topics
            self._forget_deleted()

    def _growth(self, moved: list[Partition]) -> Iterator[tuple[object, Counters]]:
        topics: set[bytes] = set()
        for partition in moved:
            now, before = _counters(partition), self._last.get(partition, Counters())
            if now == before:
                continue
            topic_id = partition.topic.id
            growth = Counters(*(new - old for new, old in zip(now, before, strict=True)))
            self._whole = _sum(self._whole, growth)
            if not self._is_here(partition):
                continue  # deleted meanwhile: it counts for the whole alone
            self._last[partition] = now
            self._topics[topic_id] = _sum(self._topics.get(topic_id, Counters()), growth)
            topics.add(topic_id)
            yield (topic_id, partition.index), now
        for topic_id in topics:
            yield topic_id, self._topics[topic_id]
        yield WHOLE, self._whole

    def _is_here(self, partition: Partition) -> bool:
        return partition.topic.id in self._broker.meta.registry.topics

    def _forget_deleted(self) -> None:
        """Drop everything about deleted topics, but for the broker's sum."""
        for partition in [each for each in self._last if not self._is_here(each)]:
            del self._last[partition]
            self._topics.pop(partition.topic.id, None)
            self.history.forget((partition.topic.id, partition.index))
            self.history.forget(partition.topic.id)

    @property
    def lateness_ms(self) -> float | None:
        """The 99th percentile of how late a timer ran in the last minute, in milliseconds."""
        if not self._lateness:
            return None
        ordered = sorted(self._lateness)
        return max(0.0, ordered[int(len(ordered) * 0.99)] * 1000)


def _sum(one: Counters, other: Counters) -> Counters:
    return Counters(*(left + right for left, right in zip(one, other, strict=True)))


def _counters(partition: Partition) -> Counters:
    live = partition.counters
    return Counters(live.records_in, live.records_out, live.bytes_in, live.bytes_out)
