"""Snapshots of the cluster, of topics and of partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from attrs import evolve

from tinymq.console.base import Base
from tinymq.figures.board import Place
from tinymq.figures.listing import sync_of
from tinymq.figures.sampling import WHOLE, broker_key
from tinymq.names import asks_for_own
from tinymq.stats import (
    BrokerSnapshot,
    ClusterSnapshot,
    ConfigRow,
    PartitionSnapshot,
    TopicSnapshot,
    UndoWindow,
)
from tinymq.web.port import TopicPage, TopicQuery, select

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Most names of offline partitions, and of damaged topics, in one snapshot.
_LISTED: Final = 20
#: Topics in the lists of the largest and of the busiest.
_TOP: Final = 5


class Looking(Base):
    """What pages show of the broker; nothing here changes anything."""

    def cluster(self) -> ClusterSnapshot:
        """Look at the whole cluster."""
        broker, history, now = self._broker, self._sampler.history, self._broker.wall()
        self._listing.look()
        rows, offline = self._listing.rows(), self._listing.offline()
        return ClusterSnapshot(
            name=broker.config.cluster.name,
            label=broker.config.cluster.env,
            taken_ms=now,
            brokers=tuple(self._brokers(now)),
            silent=self.board.silent(),
            topics=len(rows),
            partitions=sum(row.partitions for row in rows),
            messages=sum(row.messages for row in rows),
            bytes=sum(row.bytes for row in rows),
            offline=tuple(offline[:_LISTED]),
            offline_count=len(offline),
            damaged=tuple(self._listing.damaged()[:_LISTED]),
            largest=self._listing.top("bytes", _TOP),
            busiest=self._listing.top("messages_in", _TOP),
            rates=history.rates(WHOLE, now),
            recent=history.trail(WHOLE, now),
            long=history.trail(WHOLE, now, "long"),
            channels=len(self.queues.places()),
            groups=len(self._registry().groups),
        )

    def _brokers(self, now: int) -> Iterator[BrokerSnapshot]:
        """Every broker as it was last heard, this process first."""
        rates, draining = self._sampler.history.rates, self._registry().draining
        found: list[tuple[BrokerSnapshot, int | None]] = [(self._node.vitals.snapshot(), None)]
        for snapshot, seconds in self.board.brokers().values():
            found.append((snapshot, now - round(seconds * 1000)))
        for snapshot, heard_ms in found:
            yield evolve(
                snapshot,
                rates=rates(broker_key(snapshot.id), now),
                draining=snapshot.id in draining,
                heard_ms=heard_ms,
            )

    def ready(self) -> str | None:
        """Say why publishing is refused, or None when it is not."""
        return self._broker.ready

    def topics(self, query: TopicQuery) -> TopicPage:
        """List topics."""
        self._listing.look()
        rows = self._listing.rows(own=asks_for_own(query.name))
        page = select(rows, query, self._listing.with_series)
        silent = self.board.silent()
        return evolve(page, silent=tuple(each.name for each in silent)) if silent else page

    def topic(self, name: str) -> TopicSnapshot:
        """Look at one topic."""
        topic = self._operations.find(name)
        history, now = self._sampler.history, self._broker.wall()
        self.board.look()
        places = self.board.places(topic)
        open_windows = [
            (place.report.undo_until_ms, place.report.undo_records)
            for place in places
            if place.report.undo_until_ms is not None and place.report.undo_until_ms > now
        ]
        undo = None
        if open_windows:
            undo = UndoWindow(
                until_ms=max(until for until, _ in open_windows),
                records=sum(records for _, records in open_windows),
            )
        return TopicSnapshot(
            id=topic.id.hex(),
            name=topic.name,
            created_ms=topic.created_ms,
            sync=sync_of(topic),
            config=tuple(
                ConfigRow(row.name, row.value, row.default, row.text, row.allowed)
                for row in topic.config.rows(self._broker.config.defaults)
            ),
            partitions=tuple(self._partition(each, now) for each in places),
            rates=history.rates(topic.id, now),
            recent=history.trail(topic.id, now),
            undo=undo,
            silent=self.board.silent_leaders(topic),
        )

    def _partition(self, place: Place, now: int) -> PartitionSnapshot:
        report, history = place.report, self._sampler.partitions
        key = place.topic.id, place.partition
        return PartitionSnapshot(
            index=place.partition,
            leader=self.board.name(place.leader),
            leader_id=place.leader,
            start=report.start,
            end=report.end,
            bytes=report.bytes,
            rates=history.rates(key, now),
            series=history.series(key, now),
            oldest_ms=report.oldest_ms,
            last_write_ms=report.newest_ms,
            state="offline" if place.reason else "online",
            reason=place.reason,
            gaps=report.gaps,
            delayed=report.delayed,
            overdue=report.overdue,
            late_ms=report.late_ms,
        )
