"""The producer with Deferreds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count, repeat
from typing import Any, overload

from twisted.internet.defer import Deferred, fail, succeed

from tinymq.client.core.batches import Batch, Group
from tinymq.client.core.cluster import Cluster
from tinymq.client.core.config import ProducerConfig
from tinymq.client.core.faces import ProducerFace
from tinymq.client.core.fork import Home
from tinymq.client.core.messageids import MessageId
from tinymq.client.core.outcomes import outcomes
from tinymq.client.core.partitioners import Key
from tinymq.client.core.producer import ProducerCore
from tinymq.client.core.results import Account, Delayed, Position, Sent
from tinymq.client.core.timing import Moment, Span, Timing, timing_of, timings_of
from tinymq.client.network import TwistedNetwork
from tinymq.errors import TinyMQError, Unroutable

_new_tuple: Callable[..., Any] = tuple.__new__


class Producer(ProducerFace):
    """
    Sends records; made by `Client.producer`.

    Records of one reactor turn travel together, in batches of one partition.
    `send` costs one Deferred for each record; `send_batch` is the fast way.

    Args:
        cluster: The brokers.
        config: Settings.
        network: Clock and timer.
        home: The process in which the client was made.
        forget: Called when it is closed.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ProducerConfig,
        network: TwistedNetwork,
        home: Home,
        forget: Callable[[Producer], None],
    ) -> None:
        self.config = config
        self._network = network
        self._home = home
        self._forget = forget
        self._core = ProducerCore(cluster, config, _deliver)
        self._seconds = network.seconds
        self._turning = False
        self._closing: Deferred[Account] | None = None

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
    ) -> Deferred[Position]: ...

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
    ) -> Deferred[Delayed]: ...

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
    ) -> Deferred[Position | Delayed]: ...

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
    ) -> Deferred[Any]:
        """
        Send one record.

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
            A Deferred that ends

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
            - with `ClosedError` when producer or client is closed before, and with
              `ForkedError` in another process;
            - with `CancelledError` when it is cancelled: the record may be stored.
        """
        if not (delay is None and at is None and ttl is None and id is None):
            try:
                timing = timing_of(delay, at, ttl, self._seconds(), id)
            except TinyMQError as error:
                return fail(error)
            return self.send_timed(topic, value, key, headers, timing, partition)
        waiting: Deferred[Any] = Deferred()
        try:
            self._home.check()
            self._core.append(topic, value, key, headers, partition, waiting, self._seconds())
        except TinyMQError as error:
            return fail(error)
        if not self._turning:
            self._turn()
        return waiting

    def send_timed(
        self,
        topic: str,
        value: bytes | bytearray | memoryview | None,
        key: Key | None,
        headers: Any,
        timing: Timing | None,
        partition: int | None = None,
    ) -> Deferred[Position | Delayed]:
        """
        Send one record whose times were read before.

        Args:
            topic: Name of the topic.
            value: Its value; None is a tombstone.
            key: Its key.
            headers: Pairs of name and bytes, or a mapping.
            timing: When it comes, counted on this reactor's clock, and how long it lives.
            partition: Its partition, or None to choose one.

        Returns:
            A Deferred that ends as that of `send`.
        """
        waiting: Deferred[Position | Delayed] = Deferred()
        try:
            self._home.check()
            now = self._seconds()
            self._core.append(topic, value, key, headers, partition, waiting, now, timing)
        except TinyMQError as error:
            return fail(error)
        if not self._turning:
            self._turn()
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
    ) -> Deferred[Sent]:
        """
        Send many records with one Deferred; they are cut into batches.

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
            A Deferred that ends

            - with `Sent` when all are stored;
            - with `PartlySent` when a part is not, which says what became of each;
            - as that of `send`, when none is stored. A record over a limit is
              found before anything is sent.
        """
        waiting: Deferred[Sent] = Deferred()

        def done(group: Group) -> None:
            try:
                sent = group.result()
            except TinyMQError as error:
                waiting.errback(error)
            else:
                waiting.callback(sent)

        try:
            self._home.check()
            now = self._seconds()
            timing = timings_of(delay, at, ttl, now, ids)
            self._core.append_many(topic, values, keys, headers, partition, done, now, timing)
        except TinyMQError as error:
            return fail(error)
        self._network.arm()
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
            ForkedError: This is another process.
            InvalidDelay: A delay, due time or time to live is out of its range.
            UsageError: A field is of the wrong type.
            ValueTooLarge: Over a limit.
        """
        self._home.check()
        now = self._seconds()
        timing = timing_of(delay, at, ttl, now, id)
        self._core.append(topic, value, key, headers, partition, None, now, timing)
        if not self._turning:
            self._turn()

    def flush(self) -> Deferred[Account]:
        """
        Send what waits.

        Returns:
            A Deferred that ends with the account so far, when everything taken
            before is settled, each message within its deadline. It fails with
            `ForkedError` in another process and with nothing else.
        """
        waiting: Deferred[Account] = Deferred()
        try:
            self._home.check()
        except TinyMQError as error:
            return fail(error)
        self._core.flush(lambda: _fire(waiting, self._core.ledger.account), self._seconds())
        self._network.arm()
        return waiting

    def close(self) -> Deferred[Account]:
        """
        Take no more records, and settle those taken.

        Returns:
            A Deferred that ends with the account of every message, within
            `ProducerConfig.deadline_s`. It fails with `ForkedError` in another
            process and with nothing else.
        """
        try:
            self._home.check()
        except TinyMQError as error:
            return fail(error)
        if self._core.finished:
            return succeed(self._core.ledger.account)
        waiting: Deferred[Account] = Deferred()

        def closed() -> None:
            self._forget(self)
            _fire(waiting, self._core.ledger.account)

        self._core.close(closed, self._seconds())
        self._network.arm()
        return waiting

    def _turn(self) -> None:
        """Send at the end of this turn of the reactor."""
        self._turning = True
        self._network.later(self._drain)

    def _drain(self) -> None:
        self._turning = False
        self._network.hold()
        self._core.drain(self._seconds())
        self._network.send()
        self._network.arm()


def _fire(waiting: Deferred[Account], account: Account) -> None:
    waiting.callback(account)


def _deliver(topic: str, partition: int, batch: Batch) -> None:
    """Fire the Deferreds of a batch of single records."""
    tokens: list[Deferred[Any] | None] = batch.tokens or []
    error = batch.error
    if error is not None:
        for waiting in tokens:
            if waiting is not None:
                waiting.errback(error)
        return
    if batch.mixed:
        for waiting, told in zip(tokens, outcomes(topic, partition, batch), strict=True):
            if waiting is not None:
                if isinstance(told, Unroutable):
                    waiting.errback(told)
                else:
                    waiting.callback(told)
        return
    base, timestamp, volatile = batch.base_offset, batch.timestamp, batch.volatile
    offsets = count(base) if base >= 0 else repeat(base)
    for waiting, offset in zip(tokens, offsets, strict=False):
        if waiting is not None:
            waiting.callback(
                _new_tuple(Position, (topic, partition, offset, timestamp, volatile, False))
            )
