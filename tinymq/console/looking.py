"""Snapshots of the cluster, of topics and of partitions."""

from __future__ import annotations

import os
import resource
from typing import Final

import psutil

from tinymq import __version__
from tinymq.broker.housekeeping import reserve_of
from tinymq.broker.partition import Partition
from tinymq.console.base import Base
from tinymq.listing import sync_of
from tinymq.sampling import WHOLE
from tinymq.stats import (
    BrokerSnapshot,
    ClusterSnapshot,
    ConfigRow,
    Gap,
    OfflinePartition,
    PartitionSnapshot,
    TopicSnapshot,
    UndoWindow,
)
from tinymq.web.port import TopicPage, TopicQuery, select

#: Most names of offline partitions, and of damaged topics, in one snapshot.
_LISTED: Final = 20
#: Topics in the lists of the largest and of the busiest.
_TOP: Final = 5


class Looking(Base):
    """What pages show of the broker; nothing here changes anything."""

    def cluster(self) -> ClusterSnapshot:
        """Look at the whole cluster."""
        broker, history, now = self._broker, self._sampler.history, self._broker.wall()
        rows, offline = self._listing.rows(), self._listing.offline()
        return ClusterSnapshot(
            name=broker.config.cluster.name,
            label=broker.config.cluster.env,
            taken_ms=now,
            brokers=(self._snapshot(now),),
            topics=len(rows),
            partitions=sum(row.partitions for row in rows),
            messages=sum(row.messages for row in rows),
            bytes=sum(row.bytes for row in rows),
            offline=tuple(
                OfflinePartition(
                    topic=each.topic.name, partition=each.index, reason=str(each.failure)
                )
                for each in offline[:_LISTED]
            ),
            offline_count=len(offline),
            damaged=tuple(self._listing.damaged()[:_LISTED]),
            largest=self._listing.top("bytes", _TOP),
            busiest=self._listing.top("messages_in", _TOP),
            rates=history.rates(WHOLE, now),
            recent=history.trail(WHOLE, now),
            long=history.trail(WHOLE, now, "long"),
        )

    def _snapshot(self, now: int) -> BrokerSnapshot:
        broker, space = self._broker, self._housekeeping.space
        host, port = broker.address
        with self._process.oneshot():
            memory, descriptors = self._process.memory_info().rss, self._process.num_fds()
        return BrokerSnapshot(
            name=broker.config.broker.name,
            version=__version__,
            pid=os.getpid(),
            started_ms=self._sampler.started_ms,
            listen=f"tinymq://{host}:{port}",
            memory=memory,
            memory_limit=psutil.virtual_memory().total,
            disk_total=space.total if space else None,
            disk_used=space.total - space.free if space else None,
            disk_free=space.free if space else None,
            disk_reserve=(
                reserve_of(space, broker.config.storage.reserve_bytes) if space else None
            ),
            descriptors=descriptors,
            descriptors_limit=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            reactor_lag_ms=self._sampler.lateness_ms,
            connections=len(self._factory.connections),
            refusing=broker.ready,
            rates=self._sampler.history.rates(WHOLE, now),
        )

    def ready(self) -> str | None:
        """Say why publishing is refused, or None when it is not."""
        return self._broker.ready

    def topics(self, query: TopicQuery) -> TopicPage:
        """List topics."""
        return select(self._listing.rows(), query, self._listing.with_series)

    def topic(self, name: str) -> TopicSnapshot:
        """Look at one topic."""
        topic = self._operations.find(name)
        history, now = self._sampler.history, self._broker.wall()
        partitions = self._broker.partitions_of(topic)
        windows = [each.log.undo_window for each in partitions]
        open_windows = [each for each in windows if each is not None and each[0] > now]
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
            partitions=tuple(self._partition(each, now) for each in partitions),
            rates=history.rates(topic.id, now),
            recent=history.trail(topic.id, now),
            undo=undo,
        )

    def _partition(self, partition: Partition, now: int) -> PartitionSnapshot:
        log, failure = partition.log, partition.failure
        history, key = self._sampler.history, (partition.topic.id, partition.index)
        return PartitionSnapshot(
            index=partition.index,
            leader=self._broker.config.broker.name,
            start=log.start_offset,
            end=partition.high_watermark,
            bytes=log.size_bytes,
            rates=history.rates(key, now),
            series=history.series(key, now),
            oldest_ms=log.oldest_timestamp,
            last_write_ms=log.max_timestamp if log.max_timestamp >= 0 else None,
            state="online" if failure is None else "offline",
            reason=str(failure or ""),
            gaps=tuple(
                Gap(first=gap.start, end=gap.end, reason=gap.reason) for gap in log.report.damaged
            ),
        )
