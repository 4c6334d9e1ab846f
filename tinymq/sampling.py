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
        self._last: dict[Partition, Counters] = {}
        self._gone = Counters()
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
        """Take the counters of every partition that did something."""
        self.forget(list(self._last.keys() - set(self._broker.partitions())))
        self.history.sample(self._broker.wall(), self._changed())

    def _changed(self) -> Iterator[tuple[object, Counters]]:
        topics: dict[bytes, list[int]] = {}
        whole = list(self._gone)
        moved: set[bytes] = set()
        for partition in self._broker.partitions():
            now = _counters(partition)
            if not any(now):
                continue
            total = topics.setdefault(partition.topic.id, [0, 0, 0, 0])
            for place, value in enumerate(now):
                total[place] += value
                whole[place] += value
            if self._last.get(partition) != now:
                self._last[partition] = now
                moved.add(partition.topic.id)
                yield (partition.topic.id, partition.index), now
        for topic_id in moved:
            yield topic_id, Counters(*topics[topic_id])
        yield WHOLE, Counters(*whole)

    def forget(self, partitions: list[Partition]) -> None:
        """
        Drop everything about partitions of a deleted topic, but for the broker's sum.

        Args:
            partitions: As they were.
        """
        for partition in partitions:
            self._last.pop(partition, None)
            done = zip(self._gone, _counters(partition), strict=True)
            self._gone = Counters(*(old + new for old, new in done))
            self.history.forget((partition.topic.id, partition.index))
            self.history.forget(partition.topic.id)

    @property
    def lateness_ms(self) -> float | None:
        """The 99th percentile of how late a timer ran in the last minute, in milliseconds."""
        if not self._lateness:
            return None
        ordered = sorted(self._lateness)
        return max(0.0, ordered[int(len(ordered) * 0.99)] * 1000)


def _counters(partition: Partition) -> Counters:
    live = partition.counters
    return Counters(live.records_in, live.records_out, live.bytes_in, live.bytes_out)
