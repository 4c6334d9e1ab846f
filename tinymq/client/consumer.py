"""The consumer with Deferreds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping

from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IReactorTime

from tinymq.client.core.cluster import Cluster
from tinymq.client.core.config import ConsumerConfig
from tinymq.client.core.consumer import ConsumerCore
from tinymq.client.core.delivered import ConsumerBatch
from tinymq.client.core.faces import ConsumerFace
from tinymq.client.core.fork import Home
from tinymq.client.core.offsets import OffsetSearch
from tinymq.client.core.starts import EARLIEST, LATEST, Start
from tinymq.client.line import Line, Waiter
from tinymq.client.network import TwistedNetwork
from tinymq.errors import ClosedError, DeadlineExceeded, TinyMQError


class Consumer(ConsumerFace):
    """
    Reads partitions in order; made by `Client.consumer`.

    ::

        await consumer.assign("orders", start=EARLIEST)
        async for batch in consumer:
            handle(batch.values)

    Args:
        cluster: The brokers.
        config: Settings.
        clock: The reactor, and the network that wakes the cluster.
        home: The process in which the client was made.
        forget: Called when it is closed.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        clock: tuple[IReactorTime, TwistedNetwork],
        home: Home,
        forget: Callable[[Consumer], None],
    ) -> None:
        self.config = config
        self._cluster = cluster
        self._reactor, self._network = clock
        self._seconds = self._network.seconds
        self._home = home
        self._forget = forget
        self._line: Line[ConsumerBatch] = Line(self._reactor)
        self._serving = False
        self._core = ConsumerCore(cluster, config, self._serve)

    def assign(
        self,
        topic: str,
        partitions: Iterable[int] | None = None,
        start: Start | Mapping[int, Start] = EARLIEST,
    ) -> Deferred[None]:
        """
        Read partitions of a topic, beside those that are read already.

        Args:
            topic: Name of the topic.
            partitions: Which; None means all, also those added later.
            start: `EARLIEST`, `LATEST`, an offset, a `Mark`, `At` a time, or a mapping
                that gives one of these for some partitions; all others, and those
                added later, start at `EARLIEST`. The words ``"earliest"`` and
                ``"latest"`` do as well.

        Returns:
            A Deferred that ends

            - with None when every start is known as an offset, save that of
              partitions whose broker is away while others answer: they follow
              by themselves;
            - with `UnknownTopic`, `UnknownPartition` or another of the broker's
              errors; nothing is assigned then;
            - with `DeadlineExceeded` or `UnreachableError` after
              `ConsumerConfig.deadline_s`;
            - with `UsageError`, `ClosedError`, `ForkedError`, or `CancelledError`.
        """
        waiting: Deferred[None] = Deferred()

        def told(error: TinyMQError | None) -> None:
            if error is None:
                waiting.callback(None)
            else:
                waiting.errback(error)

        try:
            self._home.check()
            self._core.assign(topic, partitions, start, told, self._seconds())
        except TinyMQError as error:
            return fail(error)
        self._network.arm()
        return waiting

    def unassign(self, topic: str, partitions: Iterable[int] | None = None) -> None:
        """
        Stop reading; who waits hears `UsageError` when nothing is left to wait for.

        Args:
            topic: Name of the topic.
            partitions: Which; None means all.
        """
        self._core.unassign(topic, partitions)

    def next_batch(self, timeout: float | None = None) -> Deferred[ConsumerBatch | None]:
        """
        Get the next batch; several calls are served in turn.

        Args:
            timeout: Seconds to wait for one; None waits for ever, or as long as
                `ConsumerConfig.give_up_s` says.

        Returns:
            A Deferred that ends

            - with a `ConsumerBatch`;
            - with None when `timeout` has passed;
            - with what happened to one partition, whose data say which:
              `OffsetOutOfRange` and `LogTruncated` with the valid range,
              `UnknownTopicId`, `CorruptBatch`, or another of the broker's errors.
              The other partitions go on, this one after `seek` or `resume`;
            - with `UnreachableError`, `ConnectionLost`, `NotLeader` or `DeadlineExceeded`
              when no broker answered for `ConsumerConfig.give_up_s`, if that is set;
              the next call goes on;
            - with `UsageError` when nothing is assigned;
            - with `ClosedError`, `ForkedError`, or `CancelledError`.
        """
        try:
            self._home.check()
            if not self._line:
                batch = self._core.take()
                if batch is not None:
                    return self._at_once(batch)
                stuck = self._core.stuck
                if stuck is not None:
                    return fail(stuck)
        except TinyMQError as error:
            return fail(error)
        waiter = self._line.join(timeout)
        if timeout is None:
            self._watch(waiter, self._seconds())
        self._network.arm()
        return waiter.deferred

    def __aiter__(self) -> AsyncIterator[ConsumerBatch]:
        return self

    async def __anext__(self) -> ConsumerBatch:
        try:
            batch = await self.next_batch()
        except ClosedError:
            raise StopAsyncIteration from None
        assert batch is not None
        return batch

    def pause(self, topic: str, partitions: Iterable[int] | None = None) -> None:
        """
        Hand out nothing more of some partitions.

        Args:
            topic: Name of the topic.
            partitions: Which; None means all.
        """
        self._core.pause(topic, partitions, self._seconds())
        self._network.arm()

    def resume(self, topic: str, partitions: Iterable[int] | None = None) -> None:
        """
        Go on after `pause`, or try again after an error, at the same position.

        Args:
            topic: Name of the topic.
            partitions: Which; None means all.
        """
        self._core.resume(topic, partitions, self._seconds())
        self._network.arm()

    def seek(self, topic: str, partition: int, start: Start) -> None:
        """
        Go on elsewhere; what was fetched is dropped.

        Args:
            topic: Name of the topic.
            partition: Number of the partition.
            start: `EARLIEST`, `LATEST`, an offset, a `Mark`, or `At` a time.
        """
        self._core.seek(topic, partition, start, self._seconds())
        self._network.arm()

    def end_offsets(
        self, topic: str, partitions: Iterable[int] | None = None
    ) -> Deferred[dict[int, int]]:
        """
        Ask for the offsets behind the last visible records.

        Args:
            topic: Name of the topic.
            partitions: Which; None means all.

        Returns:
            A Deferred that ends

            - with the offset of each partition;
            - with `UnknownTopic` or another of the broker's errors;
            - with `DeadlineExceeded` or `UnreachableError` after
              `ConsumerConfig.deadline_s`;
            - with `ClosedError`, `ForkedError`, or `CancelledError`.
        """
        waiting: Deferred[dict[int, int]] = Deferred()

        def known(found: dict[int, int] | None, error: TinyMQError | None) -> None:
            if error is not None:
                waiting.errback(error)
            else:
                waiting.callback(found or {})

        try:
            self._home.check()
        except TinyMQError as error:
            return fail(error)
        now = self._seconds()
        search = OffsetSearch(self._cluster, now + self.config.deadline_s, known)
        search.start(topic, partitions, LATEST, now)
        self._network.arm()
        return waiting

    def close(self) -> None:
        """Stop reading; waiting calls end with `ClosedError`."""
        self._core.close()
        self._forget(self)

    # --- inside ----------------------------------------------------------------

    def _at_once(self, batch: ConsumerBatch) -> Deferred[ConsumerBatch | None]:
        self._core.more(self._seconds())
        done: Deferred[ConsumerBatch | None] = Deferred()
        done.callback(batch)
        return done

    def _serve(self) -> None:
        """Give waiting calls what is ready, outermost call only."""
        if self._serving:
            return
        self._serving = True
        self._network.send()  # what is fetched ahead comes while what is here is handled
        try:
            while self._line:
                error: TinyMQError | None = None
                batch: ConsumerBatch | None = None
                try:
                    batch = self._core.take()
                except TinyMQError as found:
                    error = found
                if batch is None and error is None:
                    error = self._core.stuck
                if batch is None and error is None:
                    break
                if error is not None:
                    self._line.fail(error)
                else:
                    self._core.more(self._seconds())
                    self._line.serve(batch)
        finally:
            self._serving = False

    def _watch(self, waiter: Waiter[ConsumerBatch], now: float) -> None:
        """Fail the call when no broker answers for too long."""
        if self.config.give_up_s is None:
            return
        until = max(waiter.since, self._core.fetching.heard_at) + self.config.give_up_s
        if now >= until:
            error = self._core.fetching.why or DeadlineExceeded(
                "no broker answered within the deadline"
            )
            self._line.fail(error, waiter)
            return
        waiter.timer = self._reactor.callLater(until - now, self._still, waiter)

    def _still(self, waiter: Waiter[ConsumerBatch]) -> None:
        self._watch(waiter, self._seconds())
