"""Watching what all brokers report, once a second: what goes through them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from tinymq.board import Board
from tinymq.broker.ports import Scheduler, WallClock
from tinymq.clockwork import Clockwork
from tinymq.history import History, growth
from tinymq.reports import Key
from tinymq.stats import NOTHING, Counters

if TYPE_CHECKING:
    from tinymq.meta.registry import Registry

#: Seconds between two samples of the counters.
SAMPLE_SECONDS: Final = 1.0

#: The key of all brokers together in the history.
WHOLE: Final = "cluster"


def broker_key(broker_id: int) -> Hashable:
    """
    Return the key of a broker in the history.

    Args:
        broker_id: Its number.
    """
    return "broker", broker_id


class Sampler:
    """
    Feeds the history of a cluster.

    Args:
        board: What brokers reported.
        registry: Tells which topics there are.
        scheduler: Calls once a second.
        wall: Stamps the history.
    """

    def __init__(
        self,
        board: Board,
        registry: Callable[[], Registry],
        scheduler: Scheduler,
        wall: WallClock,
    ) -> None:
        self._board = board
        self._registry = registry
        self._wall = wall
        self.history = History(wall())
        #: Topics whose rates may have changed; whoever shows them empties the set.
        self.moved_topics: set[bytes] = set()
        self._moved = board.follow()
        self._last: dict[Key, Counters] = {}
        self._known = registry().topics
        self._clockwork = Clockwork(scheduler)

    def start(self) -> None:
        """Begin."""
        self._clockwork.every(SAMPLE_SECONDS, lambda late: self.sample())

    def stop(self) -> None:
        """End."""
        self._clockwork.stop()

    def sample(self) -> None:
        """Take the counters of the partitions that did something since the last time."""
        self._board.look()
        moved = tuple(self._moved)
        self._moved.clear()
        self.moved_topics.update(topic_id for topic_id, _ in moved)
        self.history.grow(self._wall(), self._growth(moved))
        topics = self._registry().topics
        if topics is not self._known:
            self._known = topics
            self._forget_deleted()

    def _growth(self, moved: Iterable[Key]) -> Iterator[tuple[Hashable, Counters]]:
        groups: defaultdict[Hashable, list[int]] = defaultdict(lambda: [0] * len(NOTHING))
        for key in moved:
            found = self._board.report(key)
            if found is None:
                continue
            report, broker, fresh = found
            now, before = report.counters, self._last.get(key)
            self._last[key] = now
            if before is None:
                # Of a broker that ran before this process, nobody knows since when.
                before = NOTHING if fresh else now
            if now == before:
                continue
            grown = growth(before, now)
            for group in (key[0], broker_key(broker), WHOLE):
                total = groups[group]
                total[0] += grown[0]
                total[1] += grown[1]
                total[2] += grown[2]
                total[3] += grown[3]
            yield key, grown
        for group, total in groups.items():
            yield group, Counters(*total)

    def _forget_deleted(self) -> None:
        """Drop everything about deleted topics, but for what they added to their brokers."""
        for key in [each for each in self._last if each[0] not in self._known]:
            del self._last[key]
            self.history.forget(key)
            self.history.forget(key[0])
