"""The blocking consumer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf
from types import TracebackType
from typing import Self

from tinymq.client.core.config import ConsumerConfig
from tinymq.client.core.consumer import ConsumerCore
from tinymq.client.core.delivered import ConsumerBatch
from tinymq.client.core.faces import ConsumerFace
from tinymq.client.core.offsets import OffsetSearch
from tinymq.client.core.starts import EARLIEST, LATEST, Start
from tinymq.errors import ClosedError, DeadlineExceeded, TinyMQError, UsageError
from tinymq.sync.loop import Loop

_GRACE_S = 1.0


def _ignore() -> None:
    """The loop looks by itself."""


class Consumer(ConsumerFace):
    """
    Reads partitions in order; made by `Client.consumer`, a context manager.

    ::

        consumer.assign("orders", start=EARLIEST)
        for batch in consumer:
            handle(batch.values)

    Args:
        loop: Shared with the client.
        config: Settings.
        forget: Called when it is closed.
    """

    def __init__(
        self, loop: Loop, config: ConsumerConfig, forget: Callable[[Consumer], None]
    ) -> None:
        self.config = config
        self._loop = loop
        self._lock = loop.lock
        self._forget = forget
        self._core = ConsumerCore(loop.cluster, config, _ignore)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def assign(
        self,
        topic: str,
        partitions: Iterable[int] | None = None,
        start: Start | Mapping[int, Start] = EARLIEST,
    ) -> None:
        """
        Read partitions of a topic, beside those that are read already.

        Args:
            topic: Name of the topic.
            partitions: Which; None means all, also those added later.
            start: `EARLIEST`, `LATEST`, an offset, a `Mark`, `At` a time, or a mapping
                that gives one of these for some partitions; all others, and those
                added later, start at `EARLIEST`. The words ``"earliest"`` and
                ``"latest"`` do as well.

        Raises:
            WireError: The broker's error, such as `UnknownTopic`; nothing is
                assigned then.
            DeadlineExceeded: Or `UnreachableError`, after
                `ConsumerConfig.deadline_s`.
            UsageError: An argument is wrong.
        """
        ended: list[TinyMQError | None] = []
        loop = self._loop
        with loop.lock:
            loop.check()
            now = loop.now()
            self._core.assign(topic, partitions, start, ended.append, now)
            if not loop.run(lambda: ended, now + self.config.deadline_s + _GRACE_S):
                raise DeadlineExceeded("the starts were not found within the deadline")
        error = ended[0]
        if error is not None:
            raise error

    def unassign(self, topic: str, partitions: Iterable[int] | None = None) -> None:
        """
        Stop reading.

        Args:
            topic: Name of the topic.
            partitions: Which; None means all.
        """
        with self._loop.lock:
            self._core.unassign(topic, partitions)

    def next_batch(self, timeout: float | None = None) -> ConsumerBatch | None:
        """
        Get the next batch.

        Args:
            timeout: Seconds to wait for one; None waits for ever, or as long as
                `ConsumerConfig.give_up_s` says.

        Returns:
            The batch, or None when `timeout` has passed.

        Raises:
            OffsetOutOfRange: Or `LogTruncated`, with the valid range;
                `UnknownTopicId`, `CorruptBatch`, or another of the broker's errors.
                It concerns the partition that its data name: the others go on,
                this one after `seek` or `resume`.
            UnreachableError: Or `ConnectionLost`, `NotLeader`, `DeadlineExceeded`: no
                broker answered for `ConsumerConfig.give_up_s`, if that is set; the
                next call goes on.
            UsageError: Nothing is assigned, or everything is paused and no
                `timeout` was given.
            ClosedError: The consumer was closed.
        """
        loop, core = self._loop, self._core
        with loop.lock:
            loop.check()
            batch = core.take()
            if batch is None:
                batch = self._wait(timeout)
            if batch is not None:
                core.more(loop.now())
            return batch

    def __iter__(self) -> Iterator[ConsumerBatch]:
        return self

    def __next__(self) -> ConsumerBatch:
        try:
            batch = self.next_batch()
        except ClosedError:
            raise StopIteration from None
        assert batch is not None
        return batch

    def pause(self, topic: str, partitions: Iterable[int] | None = None) -> None:
        """
        Hand out nothing more of some partitions.

        Args:
            topic: Name of the topic.
            partitions: Which; None means all.
        """
        with self._loop.lock:
            self._core.pause(topic, partitions, self._loop.now())

    def resume(self, topic: str, partitions: Iterable[int] | None = None) -> None:
        """
        Go on after `pause`, or try again after an error, at the same position.

        Args:
            topic: Name of the topic.
            partitions: Which; None means all.
        """
        with self._loop.lock:
            self._core.resume(topic, partitions, self._loop.now())

    def seek(self, topic: str, partition: int, start: Start) -> None:
        """
        Go on elsewhere; what was fetched is dropped.

        Args:
            topic: Name of the topic.
            partition: Number of the partition.
            start: `EARLIEST`, `LATEST`, an offset, a `Mark`, or `At` a time.
        """
        with self._loop.lock:
            self._core.seek(topic, partition, start, self._loop.now())

    def end_offsets(self, topic: str, partitions: Iterable[int] | None = None) -> dict[int, int]:
        """
        Ask for the offsets behind the last visible records.

        Args:
            topic: Name of the topic.
            partitions: Which; None means all.

        Raises:
            WireError: The broker's error, such as `UnknownTopic`.
            DeadlineExceeded: Or `UnreachableError`, after
                `ConsumerConfig.deadline_s`.
        """
        ended: list[tuple[dict[int, int] | None, TinyMQError | None]] = []
        loop = self._loop
        with loop.lock:
            loop.check()
            now = loop.now()
            deadline = now + self.config.deadline_s
            search = OffsetSearch(
                loop.cluster, deadline, lambda found, error: ended.append((found, error))
            )
            search.start(topic, partitions, LATEST, now)
            if not loop.run(lambda: ended, deadline + _GRACE_S):
                raise DeadlineExceeded("no answer within the deadline")
        found, error = ended[0]
        if error is not None:
            raise error
        return found or {}

    def close(self) -> None:
        """Stop reading."""
        with self._loop.lock:
            self._core.close()
            self._forget(self)

    # --- inside ----------------------------------------------------------------

    def _wait(self, timeout: float | None) -> ConsumerBatch | None:
        """Wait for a batch, an error, the time-out, or a broker silent for too long."""
        loop, core = self._loop, self._core
        since = loop.now()
        if timeout is None and core.quiet:
            raise UsageError("everything is paused; resume something, or give a timeout")
        until = inf if timeout is None else since + timeout
        patience = inf if self.config.give_up_s is None else self.config.give_up_s
        while True:
            stuck = core.stuck
            if stuck is not None:
                raise stuck
            silent = inf if timeout is not None else max(since, core.fetching.heard_at) + patience
            loop.run(lambda: core.waiting or core.stuck is not None, min(until, silent))
            batch = core.take()
            now = loop.now()
            if batch is not None or now >= until:
                return batch
            if timeout is None and now >= max(since, core.fetching.heard_at) + patience:
                raise core.fetching.why or DeadlineExceeded(
                    "no broker answered within the deadline"
                )
