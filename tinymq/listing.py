"""
The list of all topics, kept by what moved.

A dashboard asks for it every few seconds, and with ten thousand topics nearly
all of them are what they were: only rows of topics that moved are made anew.
"""

from __future__ import annotations

from heapq import nlargest
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Literal

from attrs import evolve, frozen

from tinymq.broker.broker import Broker
from tinymq.broker.partition import Partition
from tinymq.sampling import Sampler
from tinymq.stats import IDLE, Sync, TopicRow

if TYPE_CHECKING:
    from tinymq.meta.registry import Topic

_BUSY: Final = attrgetter("rates.messages_in")
_LARGE: Final = attrgetter("bytes")


@frozen
class _Entry:
    """A row, what it was made from, and what it says of trouble."""

    topic: Topic
    row: TopicRow
    offline: tuple[Partition, ...]
    damaged: bool


class Listing:
    """
    Rows of all topics.

    Args:
        broker: The domain.
        sampler: Knows which topics moved, and how fast.
    """

    def __init__(self, broker: Broker, sampler: Sampler) -> None:
        self._broker = broker
        self._sampler = sampler
        self._entries: dict[bytes, _Entry] = {}
        #: Topics whose rate is not zero yet: theirs falls without their moving.
        self._busy: set[bytes] = set()

    def rows(self) -> list[TopicRow]:
        """Every topic's row, as it is now, without series."""
        self._refresh()
        return [entry.row for entry in self._entries.values()]

    def offline(self) -> list[Partition]:
        """The partitions that are offline."""
        self._refresh()
        return [each for entry in self._entries.values() for each in entry.offline]

    def damaged(self) -> list[str]:
        """The names of topics with damaged ranges, in order."""
        self._refresh()
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
        topic = self._broker.meta.registry.topic(row.name)
        series = self._sampler.history.series(topic.id, self._broker.wall())
        return evolve(row, series=series)

    def _refresh(self) -> None:
        sampler, topics = self._sampler, self._broker.meta.registry.topics
        stale = {partition.topic.id for partition in self._broker.moved}
        stale |= sampler.moved_topics | self._busy
        sampler.moved_topics.clear()
        entries = self._entries
        for topic_id, topic in topics.items():
            entry = entries.get(topic_id)
            if entry is None or entry.topic is not topic or topic_id in stale:
                entries[topic_id] = self._entry(topic)
        if len(entries) != len(topics):
            for topic_id in entries.keys() - topics.keys():
                del entries[topic_id]
                self._busy.discard(topic_id)

    def _entry(self, topic: Topic) -> _Entry:
        partitions = self._broker.partitions_of(topic)
        newest = max((each.log.max_timestamp for each in partitions), default=-1)
        offline = tuple(each for each in partitions if each.failure is not None)
        rates = self._sampler.history.rates(topic.id, self._broker.wall())
        (self._busy.discard if rates == IDLE else self._busy.add)(topic.id)
        row = TopicRow(
            name=topic.name,
            partitions=topic.partitions,
            messages=sum(each.high_watermark - each.log.start_offset for each in partitions),
            bytes=sum(each.log.size_bytes for each in partitions),
            sync=sync_of(topic),
            rates=rates,
            last_write_ms=newest if newest >= 0 else None,
            offline=len(offline),
        )
        return _Entry(topic, row, offline, any(each.log.report.damaged for each in partitions))


def sync_of(topic: Topic) -> Sync:
    """What an acknowledgement of a topic means, in a word."""
    return "memory" if topic.config.storage == "memory" else topic.config.sync
