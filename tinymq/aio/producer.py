"""The producer for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, overload

from tinymq.aio.network import LoopNetwork, give, refuse
from tinymq.client.core.batches import Batch, Group
from tinymq.client.core.config import ProducerConfig
from tinymq.client.core.faces import ProducerFace
from tinymq.client.core.messageids import MessageId
from tinymq.client.core.outcomes import outcomes
from tinymq.client.core.partitioners import Key
from tinymq.client.core.producer import ProducerCore
from tinymq.client.core.results import Account, Delayed, Position, Sent
from tinymq.client.core.timing import Moment, Span, timing_of, timings_of
from tinymq.errors import TinyMQError, Unroutable

_new_tuple: Callable[..., Any] = tuple.__new__


class Producer(ProducerFace):
    """
    Sends records; made by `Client.producer`, an asynchronous context manager.

    Records of one turn of the loop travel together, in batches of one partition.
    `send` costs one future for each record; `send_batch` is the fast way.

    Leaving an `async with`, also by an error or a cancellation, closes the producer:
    what was taken is sent and settled, within `ProducerConfig.deadline_s`, and the
    error comes out as it is. What could not be stored is told by the futures of
    `send` and in `account`; leaving raises nothing of its own.

    Args:
        network: Loop and cluster.
        config: Settings.
        forget: Called when it is closed.
    """

    def __init__(
        self, network: LoopNetwork, config: ProducerConfig, forget: Callable[[Producer], None]
    ) -> None:
        self.config = config
        self._network = network
        self._forget = forget
        self._core = ProducerCore(network.cluster, config, _deliver)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @overload
    def send(
        self,
        topic: str,
        value: bytes | bytearray | memoryview | None,
        key: Key | None = None,
        headers: Any = None,
        partition: int | None = None,
        *,
        ttl: Span | None = None,
        id: MessageId | None = None,
    ) -> asyncio.Future[Position]: ...

    @overload
    def send(
        self,
        topic: str,
        value: bytes | bytearray | memoryview | None,
        key: Key | None = None,
        headers: Any = None,
        partition: int | None = None,
        *,
        at: Moment,
        ttl: Span | None = None,
        id: MessageId | None = None,
    ) -> asyncio.Future[Delayed]: ...

    @overload
    def send(
        self,
        topic: str,
        value: bytes | bytearray | memoryview | None,
        key: Key | None = None,
        headers: Any = None,
        partition: int | None = None,
        *,
        delay: Span | None,
        at: Moment | None = None,
        ttl: Span | None = None,
        id: MessageId | None = None,
    ) -> asyncio.Future[Position | Delayed]: ...

    def send(  # noqa: PLR0913 - the fields of a record
        self,
        topic: str,
        value: bytes | bytearray | memoryview | None,
        key: Key | None = None,
        headers: Any = None,
        partition: int | None = None,
        *,
        delay: Span | None = None,
        at: Moment | None = None,
        ttl: Span | None = None,
        id: MessageId | None = None,  # noqa: A002 - its name everywhere
    ) -> asyncio.Future[Any]:
        """
        Send one record, also when the future is awaited later or never.

        Args:
            topic: Name of the topic.
            value: Its value; None is a tombstone.
            key: Its key; equal keys go to the same partition.
            headers: Pairs of name and bytes, or a mapping.
            partition: Its partition, or None to choose one.
            delay: How long it waits, counted from this call: seconds or a timedelta; 0
                is an ordinary record.
            at: When it comes instead: a datetime with its zone, or milliseconds since
                the epoch; what is past comes at once.
            ttl: How long it lives in channels from when it comes: seconds or a
                timedelta.
            id: Its message id, by which a topic with a dedup window knows it again: 16
                bytes, a UUID, or any text.

        Returns:
            A future that ends

            - with the `Position` at which it is stored, or with `Delayed` when it
              waits until it is due;
            - with `Unroutable` when the topic is an exchange and no binding takes it;
            - with `BufferFull` at once, when `ProducerConfig.buffer_bytes` are held;
            - with `ValueTooLarge`, `InvalidName`, `InvalidDelay` or `UsageError` at
              once, for this record alone;
            - with the broker's error, such as `UnknownTopic` or `StorageFull`, the
              latter after `ProducerConfig.deadline_s` of trying;
            - with `DeadlineExceeded` or `UnreachableError` after the same time:
              the record may be stored after all;
            - with `ClosedError` when producer or client is closed before;
            - with `CancelledError` when who waits is cancelled: the record may be
              stored.

        Raises:
            UsageError: Not in the loop of the client; `ForkedError` in another
                process.
        """
        network = self._network
        network.check()
        waiting: asyncio.Future[Any] = network.future()
        now = network.seconds()
        try:
            if delay is None and at is None and ttl is None and id is None:
                self._core.append(topic, value, key, headers, partition, waiting, now)
            else:
                timing = timing_of(delay, at, ttl, now, id)
                self._core.append(topic, value, key, headers, partition, waiting, now, timing)
        except TinyMQError as error:
            waiting.set_exception(error)
        else:
            network.stir(self._core.drain)
        return waiting

    def send_batch(  # noqa: PLR0913 - the fields of a record
        self,
        topic: str,
        values: Sequence[bytes | bytearray | memoryview | None],
        keys: Sequence[Key | None] | None = None,
        headers: Sequence[Any] | None = None,
        partition: int | None = None,
        *,
        delay: Span | Sequence[Span | None] | None = None,
        at: Moment | Sequence[Moment | None] | None = None,
        ttl: Span | Sequence[Span | None] | None = None,
        ids: Sequence[MessageId | None] | None = None,
    ) -> asyncio.Future[Sent]:
        """
        Send many records with one future; they are cut into batches.

        Args:
            topic: Name of the topic.
            values: Their values.
            keys: As many keys, or None.
            headers: As many headers, or None.
            partition: The partition of all, or None to choose: by key, otherwise
                one for each batch.
            delay: As for `send`, one for all or as many; None among them is at once.
            at: As for `send`, one for all or as many; None among them is at once.
            ttl: As for `send`, one for all or as many.
            ids: As many message ids; None among them is none.

        Returns:
            A future that ends with `Sent` when all are stored, with `PartlySent`
            when a part is, and otherwise as that of `send`. A record over a limit
            is found before anything is sent.

        Raises:
            UsageError: As `send`.
        """
        network = self._network
        network.check()
        waiting: asyncio.Future[Sent] = network.future()

        def done(group: Group) -> None:
            try:
                give(waiting, group.result())
            except TinyMQError as error:
                refuse(waiting, error)

        now = network.seconds()
        try:
            timing = timings_of(delay, at, ttl, now, ids)
            self._core.append_many(topic, values, keys, headers, partition, done, now, timing)
        except TinyMQError as error:
            waiting.set_exception(error)
        else:
            network.stir()
        return waiting

    def send_oneway(  # noqa: PLR0913 - the fields of a record
        self,
        topic: str,
        value: bytes | bytearray | memoryview | None,
        key: Key | None = None,
        headers: Any = None,
        partition: int | None = None,
        *,
        delay: Span | None = None,
        at: Moment | None = None,
        ttl: Span | None = None,
        id: MessageId | None = None,  # noqa: A002 - its name everywhere
    ) -> None:
        """
        Send one record and hear of it only in `account`, `flush` and `close`.

        Nothing is to be awaited.

        Args:
            topic: Name of the topic.
            value: Its value.
            key: Its key.
            headers: Pairs of name and bytes, or a mapping.
            partition: Its partition.
            delay: As for `send`.
            at: As for `send`.
            ttl: As for `send`.
            id: As for `send`.

        Raises:
            BufferFull: `ProducerConfig.buffer_bytes` are held.
            ClosedError: The producer was closed.
            InvalidDelay: A delay, due time or time to live is out of its range.
            UsageError: A field is of the wrong type, or as `send`.
            ValueTooLarge: Over a limit.
        """
        network = self._network
        network.check()
        now = network.seconds()
        timing = timing_of(delay, at, ttl, now, id)
        self._core.append(topic, value, key, headers, partition, None, now, timing)
        network.stir(self._core.drain)

    async def flush(self) -> Account:
        """
        Send what waits.

        Returns:
            The account so far, when everything taken before is settled, each
            message within its deadline.

        Raises:
            CancelledError: Its task was cancelled; what was taken is sent all the same.
            UsageError: As `send`, and nothing else.
        """
        network = self._network
        network.check()
        waiting: asyncio.Future[None] = network.future()
        self._core.flush(lambda: give(waiting, None), network.seconds())
        network.stir()
        await waiting
        return self.account

    async def close(self) -> Account:
        """
        Take no more records, and settle those taken, also when this is cancelled.

        Returns:
            The account of every message, within `ProducerConfig.deadline_s`.

        Raises:
            CancelledError: Its task was cancelled; closing goes on, and can be waited
                for again.
            UsageError: As `send`, and nothing else.
        """
        network = self._network
        network.check()
        if not self._core.finished:
            waiting: asyncio.Future[None] = network.future()

            def closed() -> None:
                self._forget(self)
                give(waiting, None)

            self._core.close(closed, network.seconds())
            network.stir()
            await waiting
        return self.account


def _deliver(topic: str, partition: int, batch: Batch) -> None:
    """Answer the calls of a batch of single records."""
    tokens: list[asyncio.Future[Any] | None] = batch.tokens or []
    error = batch.error
    if error is not None:
        for waiting in tokens:
            if waiting is not None:
                refuse(waiting, error)
        return
    if batch.mixed:
        for waiting, told in zip(tokens, outcomes(topic, partition, batch), strict=True):
            if waiting is not None:
                if isinstance(told, Unroutable):
                    refuse(waiting, told)
                else:
                    give(waiting, told)
        return
    offset, timestamp, volatile = batch.base_offset, batch.timestamp, batch.volatile
    step = int(offset >= 0)
    for waiting in tokens:
        if waiting is not None and not waiting.done():
            place = (topic, partition, offset, timestamp, volatile, False)
            waiting.set_result(_new_tuple(Position, place))
        offset += step
