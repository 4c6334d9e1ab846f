"""What transactions of every face have in common: what belongs to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from tinymq.client.core.messageids import MessageId
from tinymq.client.core.partitioners import Key
from tinymq.client.core.timing import Span, timing_of, timings_of
from tinymq.client.core.transactions.transaction import Shares, Stage, TransactionCore

if TYPE_CHECKING:
    from tinymq.client.core.message import QueueMessage
    from tinymq.client.core.starts import Mark


class Sharing(Protocol):
    """A group consumer."""

    def shares(self) -> Shares:
        """Say what was handed out and is not committed."""


class TransactionFace:
    """
    A transaction: all of it counts, or nothing of it.

    Sending tells nothing by itself. What a broker refuses makes the transaction fail.
    """

    _core: TransactionCore

    @property
    def open(self) -> bool:
        """Whether more can be added."""
        return self._core.stage is Stage.OPEN

    @property
    def committed(self) -> bool:
        """Whether all of it counts."""
        return self._core.stage is Stage.COMMITTED

    def send(  # noqa: PLR0913 - the fields of a record
        self,
        topic: str,
        value: bytes | bytearray | memoryview | None,
        key: Key | None = None,
        headers: Any = None,
        partition: int | None = None,
        *,
        ttl: Span | None = None,
        id: MessageId | None = None,  # noqa: A002 - its name everywhere
    ) -> None:
        """
        Send one record with it.

        Args:
            topic: Name of the topic.
            value: Its value; None is a tombstone.
            key: Its key; equal keys go to the same partition.
            headers: Pairs of name and bytes, or a mapping.
            partition: Its partition, or None to choose one.
            ttl: How long it lives in channels from when it is appended.
            id: Its message id; it is stored, but repeats are not looked for.

        Raises:
            BufferFull: `ProducerConfig.buffer_bytes` wait for their answer: wait for
                `flush`.
            TransactionAborted: It failed already.
            ProducerFenced: Another producer is at work under this name.
            UsageError: It was ended, or a field is of the wrong type.
            ValueTooLarge: Over a limit.
        """
        with self._enter():
            self._core.check()
            now = self._seconds()
            timing = timing_of(None, None, ttl, now, id)

            def take(now: float) -> None:
                self._core.desk.append(topic, value, key, headers, partition, None, now, timing)

            self._take(take, now)

    def send_batch(  # noqa: PLR0913 - the fields of a record
        self,
        topic: str,
        values: Sequence[bytes | bytearray | memoryview | None],
        keys: Sequence[Key | None] | None = None,
        headers: Sequence[Any] | None = None,
        partition: int | None = None,
        *,
        ttl: Span | Sequence[Span | None] | None = None,
        ids: Sequence[MessageId | None] | None = None,
    ) -> None:
        """
        Send many records with it; the fast way.

        Args:
            topic: Name of the topic.
            values: Their values.
            keys: As many keys, or None.
            headers: As many headers, or None.
            partition: The partition of all, or None to choose: by key, otherwise one
                for each batch.
            ttl: As for `send`, one for all or as many.
            ids: As many message ids; None among them is none.

        Raises:
            TinyMQError: As `send`.
        """
        with self._enter():
            self._core.check()
            now = self._seconds()
            timing = timings_of(None, None, ttl, now, ids)

            def take(now: float) -> None:
                self._core.desk.append_many(
                    topic, values, keys, headers, partition, _nobody, now, timing
                )

            self._take(take, now)

    def positions(self, group: str, positions: Mapping[tuple[str, int], int | Mark]) -> None:
        """
        Commit positions of a group with it, by hand.

        Args:
            group: Name of the group.
            positions: By topic and partition the first offset that is not handled, or
                a `Mark` with the epoch of the record before it.

        Raises:
            TinyMQError: As `send`.
        """
        with self._enter():
            self._core.positions(group, positions)

    def commit_positions(self, consumer: Sharing) -> None:
        """
        Commit with it what a group consumer has handed out so far.

        If the transaction is aborted, that is handed out again.

        Args:
            consumer: Made with ``commit="manual"``, so that it commits nothing by itself.

        Raises:
            UsageError: It commits by itself; other errors as `send`.
        """
        with self._enter():
            self._core.commit_shares(consumer.shares())

    def finish(self, *messages: QueueMessage) -> None:
        """
        Finish messages of a channel with it.

        They stay yours until it is committed. If that fails they come again.

        Args:
            messages: Of a subscription, and not settled.

        Raises:
            LeaseLost: One is not yours any more.
            TinyMQError: As `send`.
        """
        with self._enter():
            for message in messages:
                self._core.finish(message)

    # --- the face's ---------------------------------------------------------------------

    def _enter(self) -> AbstractContextManager[object]:
        """Check that the call may be made here, and keep others out meanwhile."""
        raise NotImplementedError

    def _seconds(self) -> float:
        """Tell the time."""
        raise NotImplementedError

    def _take(self, take: Callable[[float], None], now: float) -> None:
        """Take records, and have them sent."""
        raise NotImplementedError


def _nobody(group: object) -> None:
    """Tell nobody: that its transaction failed says enough."""
