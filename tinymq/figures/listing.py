"""
The list of all topics, kept by what moved.

A dashboard asks for it every few seconds, and with ten thousand topics nearly
all of them are what they were: only rows of topics that moved are made anew.
Whoever reads looks first. Where very many topics move, a look makes some rows, and
the others in turns of their own: they are shown as they were at the look before.
"""

from __future__ import annotations

from heapq import nlargest
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Literal

from attrs import evolve, frozen

from tinymq.broker.ports import Scheduler, WallClock
from tinymq.clockwork import Clockwork
from tinymq.figures.board import Board
from tinymq.figures.history import RATE_MS
from tinymq.figures.sampling import Sampler
from tinymq.names import own_topic
from tinymq.stats import IDLE, OfflinePartition, Sync, TopicRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tinymq.meta.registry import Registry, Topic

#: What rows of one turn may cost, in partitions: some 4 ms.
SLICE: Final = 4000
#: What a row costs beside its partitions.
_ROW: Final = 20

_BUSY: Final = attrgetter("rates.messages_in")
_LARGE: Final = attrgetter("bytes")


@frozen
class _Entry:
    """A row, what it was made from, and what it says of trouble."""

    topic: Topic
    row: TopicRow
    offline: tuple[OfflinePartition, ...]
    damaged: bool


class Listing:
    """
    Rows of all topics.

    Args:
        board: What brokers reported.
        sampler: Knows which topics moved, and how fast.
        registry: Tells which topics there are.
        scheduler: Calls in later turns.
        wall: Tells the time.
    """

    def __init__(
        self,
        board: Board,
        sampler: Sampler,
        registry: Callable[[], Registry],
        scheduler: Scheduler,
        wall: WallClock,
    ) -> None:
        self._board = board
        self._sampler = sampler
        self._registry = registry
        self._wall = wall
        self._clockwork = Clockwork(scheduler)
        self._moved = board.follow()
        self._known = registry().topics
        self._entries: dict[bytes, _Entry] = {}
        #: Topics whose rows are to be made anew, those first that have waited longest.
        self._stale: dict[bytes, None] = dict.fromkeys(self._known)
        self._renewing = False
        #: Topics whose rate is not zero yet: theirs falls without their moving.
        self._busy: set[bytes] = set()
        #: The step of the rates at which those were looked at.
        self._step = 0

    def start(self) -> None:
        """Make the rows of all topics, so that nobody has to wait for them."""
        self._renew_later()

    def stop(self) -> None:
        """Make no more rows in later turns."""
        self._clockwork.stop()

    def rows(self, *, own: bool = False) -> list[TopicRow]:
        """
        Every topic's row, as of the last look, without series.

        Args:
            own: With the topics that are the brokers' own.
        """
        rows = (entry.row for entry in self._entries.values())
        return [row for row in rows if own or not own_topic(row.name)]

    def offline(self) -> list[OfflinePartition]:
        """The partitions that are offline."""
        return [each for entry in self._entries.values() for each in entry.offline]

    def damaged(self) -> list[str]:
        """The names of topics with damaged ranges, in order."""
        return sorted(entry.row.name for entry in self._entries.values() if entry.damaged)

    def top(self, by: Literal["bytes", "messages_in"], most: int) -> tuple[TopicRow, ...]:
        """
        The topics that have most of something, and any of it.

        Args:
            by: Of what.
            most: How many.
        """
        key = _LARGE if by == "bytes" else _BUSY
        return tuple(self.with_series(row) for row in nlargest(most, self.rows(), key) if key(row))

    def with_series(self, row: TopicRow) -> TopicRow:
        """
        Complete a row that is shown.

        Args:
            row: From `rows`.
        """
        topic = self._registry().topic(row.name)
        series = self._sampler.history.series(topic.id, self._wall())
        return evolve(row, series=series)

    def look(self) -> None:
        """Bring all rows up to date; call it before reading."""
        self._board.look()
        self._note_topics()
        self._note_stale()
        self._renew()
        if self._stale:
            self._renew_later()

    def _note_topics(self) -> None:
        """Note which topics came, changed and went; those that came have their rows at once."""
        topics = self._registry().topics
        if topics is self._known and len(self._entries) == len(topics):
            return
        self._known, entries = topics, self._entries
        for topic_id, topic in topics.items():
            entry = entries.get(topic_id)
            if entry is None or entry.topic is not topic:
                self._make(topic)
        for topic_id in entries.keys() - topics.keys():
            del entries[topic_id]
            self._busy.discard(topic_id)

    def _note_stale(self) -> None:
        """Note what moved, and whose rate may have fallen since."""
        sampler, step = self._sampler, self._wall() // RATE_MS
        self._stale.update(dict.fromkeys(topic_id for topic_id, _ in self._moved))
        self._stale.update(dict.fromkeys(sampler.moved_topics))
        self._moved.clear()
        sampler.moved_topics.clear()
        if step != self._step:
            self._step = step
            self._stale.update(dict.fromkeys(self._busy))

    def _renew_later(self) -> None:
        if not self._renewing:
            self._clockwork.in_turns(self._slices())

    def _slices(self) -> Iterator[None]:
        self._renewing = True
        try:
            while self._stale:
                yield
                self._renew()
        finally:
            self._renewing = False

    def _renew(self) -> None:
        """Make some rows anew."""
        left = SLICE
        while self._stale and left > 0:
            topic_id = next(iter(self._stale))
            topic = self._known.get(topic_id)
            if topic is None:
                del self._stale[topic_id]
            else:
                self._make(topic)
                left -= _ROW + topic.partitions

    def _make(self, topic: Topic) -> None:
        self._stale.pop(topic.id, None)
        self._entries[topic.id] = self._entry(topic)

    def _entry(self, topic: Topic) -> _Entry:
        places = self._board.reported(topic)
        reports = [place.report for place in places]
        offline = tuple(
            OfflinePartition(topic=topic.name, partition=place.partition, reason=place.reason)
            for place in places
            if place.reason
        )
        rates = self._sampler.history.rates(topic.id, self._wall())
        (self._busy.discard if rates == IDLE else self._busy.add)(topic.id)
        row = TopicRow(
            name=topic.name,
            partitions=topic.partitions,
            messages=sum(report.messages for report in reports),
            bytes=sum(report.bytes for report in reports),
            sync=sync_of(topic),
            rates=rates,
            last_write_ms=max(
                (report.newest_ms for report in reports if report.newest_ms is not None),
                default=None,
            ),
            offline=len(offline),
            leaders=topic.leaders,
        )
        return _Entry(topic, row, offline, any(report.gaps for report in reports))


def sync_of(topic: Topic) -> Sync:
    """What an acknowledgement of a topic means, in a word."""
    return "memory" if topic.config.storage == "memory" else topic.config.sync
