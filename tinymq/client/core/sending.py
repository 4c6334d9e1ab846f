"""How the batches of a producer travel: lanes, links, producer ids, look-ups."""

from __future__ import annotations

from typing import Any

from tinymq.client.core.batches import Batch
from tinymq.client.core.cluster import Cluster
from tinymq.client.core.config import ACKS, CODECS, ProducerConfig
from tinymq.client.core.identities import Identities
from tinymq.client.core.lane import Lane
from tinymq.client.core.ledger import Ledger
from tinymq.client.core.link import Link
from tinymq.client.core.metadata import TopicInfo
from tinymq.client.core.routes import Route
from tinymq.errors import ClientError, MalformedFrame, TinyMQError, UnknownPartition, UsageError
from tinymq.wire.frames import Bytes
from tinymq.wire.header import MessageType
from tinymq.wire.messages import Produce, read_known


class Sending:
    """
    What the lanes of one producer need.

    Args:
        cluster: The brokers.
        config: Settings.
        ledger: Told of settled batches.

    Attributes:
        lanes: Every lane.
        acks: The level, as it travels.
        codec: The compression.
        quiet: Nobody confirms anything.
    """

    def __init__(self, cluster: Cluster, config: ProducerConfig, ledger: Ledger) -> None:
        self.lanes: list[Lane] = []
        self.acks = ACKS[config.acks]
        self.codec = CODECS[config.codec]
        self.quiet = config.acks == "none"
        self._cluster = cluster
        self._config = config
        self._ledger = ledger
        self._idempotent = config.idempotent and not self.quiet
        self._identities = Identities(cluster, config.deadline_s, ledger.fire)

    def lane(self, route: Route, partition: int, *, delayed: bool = False) -> Lane:
        """
        Find or make the lane to a partition.

        Args:
            route: Of a topic that is known.
            partition: Number of the partition.
            delayed: Whether for records that are not due yet; the broker counts
                their sequences apart.

        Raises:
            UnknownPartition: The topic has no such partition.
            UsageError: It is no number.
        """
        lanes = route.delays if delayed else route.lanes
        known = lanes.get(partition)
        if known is not None:
            return known
        info = route.info
        assert info is not None
        if type(partition) is not int or partition < 0:
            raise UsageError(f"a partition is a number from 0, not {partition!r}")
        if partition >= info.partitions:
            raise _no_partition(info, partition)
        window = self._config.in_flight
        if self._idempotent:
            window = min(window, self._cluster.limits.producer_window)
        lane = Lane(route.topic, info.id, partition, self, window, idempotent=self._idempotent)
        lanes[partition] = lane
        self.lanes.append(lane)
        return lane

    # --- the lanes' calls --------------------------------------------------------

    def fly(self, lane: Lane, batch: Batch, now: float) -> None:
        """
        Write a batch.

        Args:
            lane: Its lane.
            batch: The batch.
            now: The time.
        """
        data = batch.encode(self.codec, lane.identity, now)

        link = self._cluster.reach(lane.topic, lane.partition)
        if link is None:
            error = self._cluster.metadata.leaderless(lane.topic, lane.partition)
            lane.answered(batch, None, error, now)
            return

        def answered(reply: Any, payload: Bytes, error: TinyMQError | None, now: float) -> None:
            if reply is not None and reply.known is not None:
                try:
                    reply.known = read_known(reply, payload)
                except MalformedFrame as malformed:
                    reply, error = None, malformed
            self.returned(lane, batch, reply, error, now)

        meta = Produce(topic_id=lane.topic_id, partition=lane.partition, acks=self.acks).to_meta()
        link.request(
            MessageType.PRODUCE, meta, (data,), batch.deadline, answered, now, quiet=self.quiet
        )

    def returned(
        self, lane: Lane, batch: Batch, reply: Any, error: TinyMQError | None, now: float
    ) -> None:
        """
        Take the answer to a batch; an error that no broker gave names the one that should have.

        Args:
            lane: Its lane.
            batch: The batch.
            reply: Where it is stored.
            error: Or why it is not, as far as is known.
            now: The time.
        """
        if isinstance(error, ClientError):
            error = self._cluster.metadata.unreachable(lane.topic, lane.partition, error)
        lane.answered(batch, reply, error, now)
        self._ledger.fire()

    def clear(self, lane: Lane) -> bool:
        """
        Say whether the link takes more.

        Args:
            lane: Whose link.
        """
        return not self.link(lane).paused

    def waits(self, lane: Lane) -> bool:
        """
        Say whether nothing may be written now.

        Args:
            lane: Who asks.
        """
        return False

    def link(self, lane: Lane) -> Link:
        """
        Find the link to the leader of a partition, or any while nobody leads it.

        Args:
            lane: The partition.
        """
        return self._cluster.reach(lane.topic, lane.partition) or self._cluster.link(None)

    def led(self, lane: Lane) -> bool:
        """
        Say whether somebody leads a partition, as far as is known.

        Args:
            lane: The partition.
        """
        return self._cluster.metadata.leader(lane.topic, lane.partition) != -1

    def settled(self, lane: Lane, batch: Batch) -> None:
        """
        Note that a batch is stored, or failed for good.

        Args:
            lane: Its lane.
            batch: The batch.
        """
        self._ledger.settle(lane.topic, lane.partition, batch)

    def identify(self, lane: Lane, now: float) -> None:
        """
        Get a producer id that a lane never had.

        Args:
            lane: The lane.
            now: The time.
        """
        self._identities.give(lane, now)

    def locate(self, lane: Lane, now: float) -> None:
        """
        Look a topic up anew.

        Args:
            lane: The lane that asks.
            now: The time.
        """

        def found(info: TopicInfo | None, error: TinyMQError | None, now: float) -> None:
            if info is None:
                assert error is not None
                lane.give_up(error)
            elif lane.partition >= info.partitions:
                lane.give_up(_no_partition(info, lane.partition))
            else:
                lane.located(info.id, now)
            self._ledger.fire()

        deadline = now + self._config.deadline_s
        self._cluster.topic(lane.topic, deadline, found, now, fresh=True)

    def refresh(self, now: float) -> None:
        """
        Ask for the leaders anew.

        Args:
            now: The time.
        """
        self._cluster.refresh(now)

    def delay(self, attempt: int) -> float:
        """
        Say how long to wait.

        Args:
            attempt: How many attempts have failed.
        """
        return self._config.backoff.delay(attempt, self._cluster.chance())


def _no_partition(info: TopicInfo, partition: int) -> TinyMQError:
    return UnknownPartition(
        f"topic {info.name} has {info.partitions} partitions and no number {partition}",
        topic=info.name,
        partition=partition,
    )
