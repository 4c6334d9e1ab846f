"""What the objects of every face tell of themselves, without asking a broker."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from tinymq.client.core.consumer import ConsumerCore
from tinymq.client.core.producer import ProducerCore
from tinymq.client.core.results import Account
from tinymq.client.core.starts import Mark
from tinymq.client.core.taking import Core


class ProducerFace:
    """A producer with its core."""

    _core: ProducerCore

    @property
    def pending(self) -> int:
        """Messages without an answer."""
        return self._core.pending

    @property
    def account(self) -> Account:
        """What became of every message so far."""
        return self._core.ledger.account


class ConsumerFace:
    """A consumer with its core."""

    _core: ConsumerCore
    #: Held while positions are read; the loop's own where threads share a consumer.
    _lock: AbstractContextManager[object] = nullcontext()

    @property
    def gaps(self) -> int:
        """Offsets that were missing so far."""
        return self._core.gaps

    @property
    def assigned(self) -> list[tuple[str, int]]:
        """Topic and partition of everything that is read."""
        return self._core.assigned

    def position(self, topic: str, partition: int) -> int:
        """
        Say which offset is handed out next, or -1 while that is not known.

        Args:
            topic: Name of the topic.
            partition: Number of the partition.
        """
        with self._lock:
            return self._core.position(topic, partition)

    def mark(self, topic: str, partition: int) -> Mark:
        """
        Say the same as `position`, with the epoch that belongs to it.

        Args:
            topic: Name of the topic.
            partition: Number of the partition.
        """
        with self._lock:
            return self._core.mark(topic, partition)

    def marks(self, topic: str) -> dict[int, Mark]:
        """
        Say where every partition stands: store it, and give it to `assign` as start.

        A consumer that starts there is told `LogTruncated` if records that it had
        read were lost in the meantime.

        Args:
            topic: Name of the topic.

        Returns:
            By partition; without those whose position is not known yet.
        """
        with self._lock:
            return self._core.marks(topic)


class SubscriptionFace:
    """A subscription with its core."""

    _core: Core

    @property
    def topic(self) -> str:
        """Name of the topic; of several, with commas between them."""
        return self._core.topic

    @property
    def channel(self) -> str:
        """Name of the channel."""
        return self._core.channel

    @property
    def in_flight(self) -> int:
        """Messages that were delivered and are not settled."""
        return self._core.in_flight

    @property
    def delivered(self) -> int:
        """Messages that were delivered so far."""
        return self._core.delivered

    @property
    def late(self) -> int:
        """Messages so far whose settle or renewal came when they were lost already."""
        return self._core.late
