"""
Watching what all brokers report, once a second: what goes through them.

The work is cut into slices of some milliseconds, so that nobody waits for it
however many partitions move.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from tinymq.broker.ports import Scheduler, WallClock
from tinymq.clockwork import Clockwork
from tinymq.figures.board import Board
from tinymq.figures.history import History, growth
from tinymq.figures.reports import SLICE, Key
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
        #: Of topics, of brokers, and of all together.
        self.history = History(wall())
        #: Of partitions: they take no curves from what is looked at more.
        self.partitions = History(wall())
        #: Topics whose rates may have changed; whoever shows them empties the set.
        self.moved_topics: set[bytes] = set()
        self._moved = board.follow()
        self._last: dict[Key, Counters] = {}
        self._known = registry().topics
        self._clockwork = Clockwork(scheduler)
        self._sampling = False

    def start(self) -> None:
        """Begin."""
        self._clockwork.every(SAMPLE_SECONDS, lambda late: self.sample())

    def stop(self) -> None:
        """End."""
        self._clockwork.stop()

    def sample(self) -> None:
        """
        Take the counters of the partitions that did something since the last time.

        The first slice is taken at once, the others in turns of their own.
        """
        if not self._sampling:  # else the last look is not over yet
            self._clockwork.in_turns(self._slices())

    def _slices(self) -> Iterator[None]:
        self._sampling = True
        try:
            while self._slice():
                yield
        finally:
            self._sampling = False
        topics = self._registry().topics
        if topics is not self._known:
            self._known = topics
            self._forget_deleted()

    def _slice(self) -> bool:
        """Take some partitions, and tell whether there are more."""
        more = self._board.look()
        moved = [self._moved.pop() for _ in range(min(SLICE, len(self._moved)))]
        self.moved_topics.update(topic_id for topic_id, _ in moved)
        grown = list(self._growth(moved))
        self.history.grow(self._wall(), self._sums(grown))
        self.partitions.grow(self._wall(), ((key, more) for key, _, more in grown))
        return more or len(self._moved) > 0

    def _growth(self, moved: Iterable[Key]) -> Iterator[tuple[Key, int, Counters]]:
        """Tell which partitions grew, at which broker, by how much."""
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
            if now != before:
                yield key, broker, growth(before, now)

    @staticmethod
    def _sums(grown: Iterable[tuple[Key, int, Counters]]) -> Iterator[tuple[Hashable, Counters]]:
        """Add up what grew: of all, of brokers, of topics, in the order of their importance."""
        whole: list[Counters] = []
        brokers: defaultdict[Hashable, list[Counters]] = defaultdict(list)
        topics: defaultdict[Hashable, list[Counters]] = defaultdict(list)
        for (topic_id, _), broker, more in grown:
            whole.append(more)
            brokers[broker_key(broker)].append(more)
            topics[topic_id].append(more)
        groups = {WHOLE: whole, **brokers, **topics} if whole else {}
        for group, growths in groups.items():
            yield group, Counters(*map(sum, zip(*growths, strict=True)))

    def _forget_deleted(self) -> None:
        """Drop everything about deleted topics, but for what they added to their brokers."""
        for key in [each for each in self._last if each[0] not in self._known]:
            del self._last[key]
            self.partitions.forget(key)
            self.history.forget(key[0])
