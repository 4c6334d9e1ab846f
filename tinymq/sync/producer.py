"""The blocking producer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, overload

from tinymq.client.core.batches import Batch, Group
from tinymq.client.core.config import ProducerConfig
from tinymq.client.core.faces import ProducerFace
from tinymq.client.core.messageids import MessageId
from tinymq.client.core.outcomes import outcomes
from tinymq.client.core.partitioners import Key
from tinymq.client.core.producer import ProducerCore
from tinymq.client.core.results import Account, Delayed, Position, Sent
from tinymq.client.core.timing import Moment, Span, Timing, timing_of, timings_of
from tinymq.errors import BufferFull, DeadlineExceeded, TinyMQError
from tinymq.sync.express import Express
from tinymq.sync.loop import Loop

#: Time beyond its deadline in which a call must end; the core ends it before.
_GRACE_S = 1.0
#: Oneway records between two looks at what came back.
_GLANCE_EVERY = 64


class _Answer:
    """What became of one record."""

    __slots__ = ("error", "position")

    def __init__(self) -> None:
        self.position: Position | Delayed | None = None
        self.error: TinyMQError | None = None

    def note(self, told: Position | Delayed | TinyMQError) -> None:
        """Note it."""
        if isinstance(told, TinyMQError):
            self.error = told
        else:
            self.position = told


class Producer(ProducerFace):
    """
    Sends records and waits; made by `Client.producer`, a context manager.

    `send` has one record on its way at a time; `send_batch` cuts its records
    into batches and keeps up to `ProducerConfig.in_flight` of them on their way.

    Args:
        loop: Shared with the client.
        config: Settings.
        forget: Called when it is closed.
    """

    def __init__(
        self, loop: Loop, config: ProducerConfig, forget: Callable[[Producer], None]
    ) -> None:
        self.config = config
        self._loop = loop
        self._forget = forget
        self._core = ProducerCore(loop.cluster, config, _deliver)
        self._express = Express(loop, self._core)
        self._oneway = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

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
    ) -> Position: ...

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
    ) -> Delayed: ...

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
    ) -> Position | Delayed: ...

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
    ) -> Any:
        """
        Send one record, and wait until it is stored.

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
            Where it is stored: a `Position`, or `Delayed` when it waits until it is due.

        Raises:
            InvalidDelay: A delay, due time or time to live is out of its range.
            Unroutable: The topic is an exchange and no binding takes the record.
            ValueTooLarge: Over a limit, which the error names.
            WireError: The broker's error, such as `UnknownTopic`, or `StorageFull`
                after `ProducerConfig.deadline_s` of trying.
            DeadlineExceeded: Or `UnreachableError`, after the same time; the record
                may be stored after all.
            ClosedError: The producer was closed.
            ForkedError: This is another process.
        """
        loop = self._loop
        answer = _Answer()
        with loop.lock:
            loop.check()
            loop.hear()
            now = loop.now()
            strayed = False
            timing = None
            if not (delay is None and at is None and ttl is None and id is None):
                timing = timing_of(delay, at, ttl, now, id)
            if headers is None and partition is None and timing is None:
                position = self._express.send(topic, value, key, answer, now)
                if position is not None:
                    return position
                strayed = self._express.strayed
            if not strayed:
                self._append(topic, value, key, headers, partition, answer, now, timing)
                self._core.seal(now)
            self._wait(
                lambda: answer.position is not None or answer.error is not None,
                now + self.config.deadline_s,
            )
        if answer.error is not None:
            raise answer.error
        assert answer.position is not None
        return answer.position

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
    ) -> Sent:
        """
        Send many records, and wait until all are stored.

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

        Raises:
            PartlySent: A part was not stored; the error says what became of each.
            TinyMQError: As `send`, when none was stored. A record over a limit is
                found before anything is sent.
        """
        loop = self._loop
        ended: list[Group] = []
        with loop.lock:
            loop.check()
            loop.hear()
            now = loop.now()
            core = self._core
            timing = timings_of(delay, at, ttl, now, ids)
            self._with_room(
                lambda now: core.append_many(
                    topic, values, keys, headers, partition, ended.append, now, timing
                ),
                now,
            )
            self._wait(lambda: ended, loop.now() + self.config.deadline_s)
        return ended[0].result()

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
        Send one record, and hear of it only in `account`, `flush` and `close`.

        With `ProducerConfig.linger_ms` records gather into batches; since nothing
        runs between calls, the last of them go with the next call or `flush`.

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
            BufferFull: `ProducerConfig.buffer_bytes` are held, and `on_full` says so.
            TinyMQError: As `send`, for what is found before sending.
        """
        loop = self._loop
        with loop.lock:
            loop.check()
            now = loop.now()
            timing = timing_of(delay, at, ttl, now, id)
            self._append(topic, value, key, headers, partition, None, now, timing)
            self._core.drain(now)
            self._oneway += 1
            if not self._oneway % _GLANCE_EVERY:
                loop.glance()

    def flush(self) -> Account:
        """Send what waits, and return the account when all is settled."""
        loop = self._loop
        ended: list[bool] = []
        with loop.lock:
            loop.check()
            now = loop.now()
            self._core.flush(lambda: ended.append(True), now)
            self._wait(lambda: ended, now + self.config.deadline_s)
            return self._core.ledger.account

    def close(self) -> Account:
        """
        Take no more records, settle those taken, within `ProducerConfig.deadline_s`.

        Returns:
            What became of every message.
        """
        loop = self._loop
        ended: list[bool] = []
        with loop.lock:
            loop.check()
            if not self._core.finished:
                now = loop.now()
                self._core.close(lambda: ended.append(True), now)
                self._wait(lambda: ended, now + self.config.deadline_s)
                self._forget(self)
            return self._core.ledger.account

    # --- inside ----------------------------------------------------------------

    def _append(  # noqa: PLR0913, PLR0917 - the fields of a record
        self,
        topic: str,
        value: Any,
        key: Key | None,
        headers: Any,
        partition: int | None,
        token: _Answer | None,
        now: float,
        timing: Timing | None,
    ) -> None:
        core = self._core
        try:
            core.append(topic, value, key, headers, partition, token, now, timing)
        except BufferFull:
            self._with_room(
                lambda now: core.append(topic, value, key, headers, partition, token, now, timing),
                now,
            )

    def _with_room(self, take: Callable[[float], None], now: float) -> None:
        """Take records, and wait for room if there is none and the settings say so."""
        deadline = now + self.config.deadline_s
        core, loop = self._core, self._loop
        while True:
            try:
                take(loop.now())
            except BufferFull:
                held = core.ledger.held
                if self.config.on_full == "error":
                    raise
                if not loop.run(lambda: core.ledger.held < held, deadline):  # noqa: B023 - used at once
                    raise
            else:
                return

    def _wait(self, done: Callable[[], object], deadline: float) -> None:
        if not self._loop.run(done, deadline + _GRACE_S):
            raise DeadlineExceeded("the call did not end within its deadline")


def _deliver(topic: str, partition: int, batch: Batch) -> None:
    if batch.error is None and batch.mixed:
        for answer, told in zip(batch.tokens or (), outcomes(topic, partition, batch), strict=True):
            if answer is not None:
                answer.note(told)
        return
    offset, step = batch.base_offset, int(batch.base_offset >= 0)
    for answer in batch.tokens or ():
        if answer is not None:
            answer.error = batch.error
            if batch.error is None:
                answer.position = Position(
                    topic, partition, offset, batch.timestamp, batch.volatile
                )
        offset += step
