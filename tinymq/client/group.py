"""The group consumer with Deferreds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import iscoroutine
from typing import Any, Generic, TypeVar

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from typing_extensions import override

from tinymq.client.core.cluster import Cluster
from tinymq.client.core.fork import Home
from tinymq.client.core.group.consumer import GroupCore
from tinymq.client.core.group.faces import GroupConsumerFace
from tinymq.client.core.group.handed import GroupBatch, GroupMessage
from tinymq.client.core.group.hands import GroupFace
from tinymq.client.core.group.settings import GroupConfig, Share
from tinymq.client.core.group.working import STOP, GroupPlan
from tinymq.client.group_handling import GroupRun, Handler
from tinymq.client.line import Line, Waiter, pass_to, teller
from tinymq.client.network import TwistedNetwork
from tinymq.client.producer import Producer
from tinymq.errors import ClosedError, DeadlineExceeded, TinyMQError, UsageError

T = TypeVar("T", bound=GroupMessage | GroupBatch)


class Handed(Generic[T]):
    """
    A loop over what a group consumer hands out.

    What was given last is done when the next is asked for, or the consumer has ended:
    so nothing is that the body of the loop failed at, or left the loop with.

    Args:
        take: Waits for the next.
    """

    def __init__(self, take: Callable[[], Deferred[T | None]]) -> None:
        self._take = take
        self._last: T | None = None

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        last, self._last = self._last, None
        if last is not None:
            last.done()
        try:
            found = await self._take()
        except ClosedError:
            raise StopAsyncIteration from None
        assert found is not None
        self._last = found
        return found


class GroupConsumer(GroupConsumerFace):
    """
    Reads topics together with the other members of its group; made by `Client.group`.

    ::

        consumer = client.group("billing", topics=["orders"])
        async for message in consumer:
            bill(message.value)

    or, with several messages at work at once::

        await consumer.run(bill, concurrency=10)

    Each partition is read by one member at a time. A message counts when it is done:
    a loop says that of the last one when it asks for the next, `run` when the handler
    has ended well, and everybody else by `GroupMessage.done`. What is done is
    committed as `GroupConfig.commit` says.

    Args:
        cluster: The brokers.
        name: Name of the group.
        wanted: Names and patterns of topics.
        config: Settings.
        clock: The reactor, and the network that wakes the cluster.
        home: The process in which the client was made.
        hooks: Called when it is closed; makes a producer for dead letters.
    """

    _log = Logger()

    def __init__(  # noqa: PLR0913, PLR0917 - what the client and its consumers share
        self,
        cluster: Cluster,
        name: str,
        wanted: tuple[Sequence[str], Sequence[str]],
        config: GroupConfig,
        clock: tuple[IReactorTime, TwistedNetwork],
        home: Home,
        hooks: tuple[Callable[[GroupConsumer], None], Callable[[], Producer]],
    ) -> None:
        self.config = config
        self._reactor, self._network = clock
        self._home = home
        self._forget, self._make_producer = hooks
        self._line: Line[Any] = Line(self._reactor)
        self._serving = False
        self._run: GroupRun | None = None
        self._closing: Deferred[None] | None = None
        face = GroupFace(self.serve, self._soon, self.seconds, self._call)
        self._core = GroupCore(cluster, name, wanted, config, face)
        self._core.begin(self.seconds())
        self._network.arm()

    # --- taking ----------------------------------------------------------------

    def ready(self) -> Deferred[None]:
        """
        Wait until it reads what the group gave it; that may be nothing.

        Returns:
            A Deferred that ends

            - with None when it does;
            - with the error of a broker that refused the member;
            - with `ClosedError` or `ForkedError`.
        """
        waiting: Deferred[None] = Deferred()
        try:
            self._home.check()
        except TinyMQError as error:
            return fail(error)
        self._core.ready_when(teller(waiting), self.seconds())
        self._network.arm()
        return waiting

    def next(self, timeout: float | None = None) -> Deferred[GroupMessage | None]:
        """
        Get the next message; several calls are served in turn.

        Args:
            timeout: Seconds to wait for one; None waits for ever, or as long as
                `GroupConfig.give_up_s` says.

        Returns:
            A Deferred that ends

            - with a `GroupMessage`: say `done` of it;
            - with None when `timeout` has passed;
            - with what happened to one partition, whose data say which:
              `OffsetOutOfRange` and `LogTruncated` with the valid range, or another of
              the broker's errors. The other partitions go on, this one after `seek` or
              `resume`. `UnknownTopicId` says that the topic was deleted, or made anew,
              and then all goes on with the new one;
            - with the error of a broker that refused the member, such as
              `InconsistentGroup`: then there is nothing more;
            - with `UnreachableError`, `ConnectionLost`, `NotLeader` or `DeadlineExceeded`
              when no broker answered for `GroupConfig.give_up_s`, if that is set;
            - with `ClosedError`, `ForkedError`, or `CancelledError`.
        """
        return self._next(timeout, 1)

    def next_batch(self, timeout: float | None = None) -> Deferred[GroupBatch | None]:
        """
        Get the next messages of one partition, as they are stored: the fast way.

        Args:
            timeout: Seconds to wait for them; None waits for ever, or as long as
                `GroupConfig.give_up_s` says.

        Returns:
            A Deferred that ends

            - with a `GroupBatch`: say `done` of it;
            - as that of `next` otherwise.
        """
        return self._next(timeout, None)

    def __aiter__(self) -> AsyncIterator[GroupMessage]:
        return Handed(self.next)

    def batches(self) -> AsyncIterator[GroupBatch]:
        """Loop over batches instead of messages."""
        return Handed(self.next_batch)

    def _next(self, timeout: float | None, most: int | None) -> Deferred[Any]:
        try:
            self._home.check()
            found = None if self._line else self._take(most)
        except TinyMQError as error:
            return fail(error)
        if found is not None:
            return succeed(found)
        waiter = self._line.join(timeout, most)
        if timeout is None:
            self._watch(waiter)
        self._network.arm()
        return waiter.deferred

    # --- handling --------------------------------------------------------------

    def run(  # noqa: PLR0913 - words for each way of handling
        self,
        handler: Handler,
        *,
        concurrency: int = 1,
        batches: bool = False,
        manual: bool = False,
        threads: int = 0,
        retries: int = 0,
        on_error: str = STOP,
    ) -> Deferred[None]:
        """
        Call a function with each message, until `close`.

        A message is done when its handler has ended well. Messages of one key, and with
        `batches` those of one partition, are handled one after the other, in order.

        Args:
            handler: Takes a `GroupMessage`, or a `GroupBatch` with `batches`. It may be a
                coroutine function or return a Deferred, and then the message is
                handled until that has ended.
            concurrency: How many handlers are at work at once at most.
            batches: Give it whole batches.
            manual: Whether the handler says `done` by itself, perhaps later; not in threads.
            threads: Call it in so many threads, for it blocks.
            retries: How often it is called again with what it failed at, with growing
                waits. A message whose partition is to be given up is not tried again:
                the next owner has it.
            on_error: What comes then: ``stop`` ends `run` with the error, and the message
                comes again to whoever reads its partition then; ``skip`` logs it and
                goes on; any other word is the name of a topic to which the message goes
                as a dead letter, before it counts as done.

        Returns:
            A Deferred that ends

            - with None when the consumer was closed;
            - with what the handler raised;
            - with the errors of `next`;
            - with `UsageError` when another handler is at work;
            - with `ForkedError`, or `CancelledError`: what is being handled is cancelled
              then, and is not done.
        """
        try:
            if self._run is not None and not self._run.ended:
                raise UsageError("the consumer has a handler already")
            plan = GroupPlan(
                concurrency=concurrency,
                batches=batches,
                manual=manual,
                threads=threads,
                retries=retries,
                on_error=on_error,
            )
            self._home.check()
            producer = None if plan.letters is None else self._make_producer()
            self._run = run = GroupRun(handler, plan, self, (self._core, self._reactor, producer))
        except TinyMQError as error:
            return fail(error)
        self.serve()
        return run.done

    # --- what is done ----------------------------------------------------------

    def commit(
        self,
        positions: Mapping[tuple[str, int], int] | None = None,
        note: str | Mapping[tuple[str, int], str] | None = None,
    ) -> Deferred[None]:
        """
        Commit what is done, and wait until the brokers have it.

        Args:
            positions: By topic and partition: all that was handed out below these offsets
                is done, and only these partitions are committed.
            note: Text to be committed with it, at most 4096 bytes, for all partitions or
                for some: who reads on finds it in `Share.note`. It stays until there is
                another.

        Returns:
            A Deferred that ends

            - with None when it is on disk;
            - with `FencedGeneration` when somebody else reads one of the partitions by
              now, or another of the broker's errors;
            - with `UnreachableError`, `NotLeader` or `DeadlineExceeded` after
              `GroupConfig.deadline_s`;
            - with `UsageError` when one of the partitions is not assigned; `ClosedError`
              or `ForkedError`.
        """
        waiting: Deferred[None] = Deferred()
        try:
            self._home.check()
            self._core.commit(teller(waiting), self.seconds(), positions, note)
        except TinyMQError as error:
            return fail(error)
        self._network.arm()
        return waiting

    # --- the end ---------------------------------------------------------------

    def close(self, within_s: float = 0.0) -> Deferred[None]:
        """
        Hand out nothing more, commit what is done, and leave the group.

        What `run` is handling may end within the time; then its handlers are cancelled.
        What is not done by then comes again, to another member.

        Args:
            within_s: Seconds for what was handed out; a handler that waits for the end
                waits for itself so long.

        Returns:
            A Deferred that ends with None when the brokers know everything, or after
            `GroupConfig.leave_s` more. It never fails.
        """
        if self._closing is None:
            self._closing = Deferred()
            busy = self._run is not None and self._run.busy
            self._core.close(self._left, within_s, self.seconds())
            if busy and self._run is not None:
                self._run.finish(within_s)
            self._network.arm()
        waiting: Deferred[None] = Deferred()
        self._closing.addCallback(pass_to(waiting))
        return waiting

    def _left(self) -> None:
        self._forget(self)
        if self._run is not None:
            self._run.end(self._core.failed)
        if self._closing is None:  # the client was closed under it
            self._closing = Deferred()
        self._closing.callback(None)

    # --- for what calls handlers -----------------------------------------------

    @property
    def closing(self) -> bool:
        """Whether it is about to end."""
        return self._closing is not None

    def seconds(self) -> float:
        """The time."""
        return self._network.seconds()

    def again(self) -> None:
        """Go on at the end of the turn."""
        self._network.later(self.serve)

    def serve(self) -> None:
        """Give waiting calls what is ready, and then the handler."""
        if self._serving:
            return
        self._serving = True
        self._network.send()  # what is fetched ahead comes while what is here is handled
        try:
            while self._line:
                try:
                    found = self._take(self._line.wanted)
                except TinyMQError as error:
                    self._line.fail(error)
                    continue
                if found is None:
                    break
                self._line.serve(found)
        finally:
            self._serving = False
        if self._run is not None and not self._run.ended:
            self._run.feed()

    # --- inside ----------------------------------------------------------------

    @contextmanager
    @override
    def _acting(self) -> Iterator[float]:
        self._home.check()
        yield self.seconds()
        self._network.arm()

    def _take(self, most: int | None) -> GroupMessage | GroupBatch | None:
        core = self._core
        found = core.take_batch() if most is None else core.take()
        if found is not None:
            core.more(self.seconds())
        return found

    def _soon(self) -> None:
        self._network.arm()

    def _call(
        self,
        function: Callable[[list[Share]], Any],
        shares: list[Share],
        then: Callable[[], None],
    ) -> None:
        """Call the user, and go on when what that returned has ended."""
        try:
            result = function(shares)
        except Exception:  # noqa: BLE001 - anything may come out of it
            self._log.failure("A callback of group {group} failed", group=self.group)
            then()
            return
        if iscoroutine(result):
            result = Deferred.fromCoroutine(result)
        if not isinstance(result, Deferred):
            then()
            return
        result.addErrback(self._complain)
        result.addCallback(lambda _: self._called(then))

    def _called(self, then: Callable[[], None]) -> None:
        then()
        self._network.arm()

    def _complain(self, failure: Failure) -> None:
        self._log.failure("A callback of group {group} failed", failure, group=self.group)

    def _watch(self, waiter: Waiter[Any]) -> None:
        """Fail the call when no broker answers for too long."""
        if self.config.give_up_s is None:
            return
        now = self._reactor.seconds()
        until = max(waiter.since, self._core.heard_at) + self.config.give_up_s
        if now >= until:
            error = self._core.why or DeadlineExceeded("no broker answered within the deadline")
            self._line.fail(error, waiter)
            return
        waiter.timer = self._reactor.callLater(until - now, self._watch, waiter)
