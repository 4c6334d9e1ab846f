"""The blocking group consumer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from math import inf
from threading import Event, RLock
from time import monotonic
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

from typing_extensions import override

from tinymq.client.core.group.consumer import GroupCore
from tinymq.client.core.group.faces import GroupConsumerFace
from tinymq.client.core.group.handed import GroupBatch, GroupMessage
from tinymq.client.core.group.hands import GroupFace
from tinymq.client.core.group.settings import GroupConfig, Share
from tinymq.client.core.group.tally import Slip
from tinymq.client.core.group.working import STOP, GroupPlan, Item
from tinymq.errors import ClosedError, DeadlineExceeded, TinyMQError, UsageError
from tinymq.sync.group_handling import GroupRun, Handler
from tinymq.sync.keeper import Keeper
from tinymq.sync.loop import Loop
from tinymq.sync.producer import Producer
from tinymq.wire.records import Record

_GRACE_S: Final = 1.0

T = TypeVar("T", bound=GroupMessage | GroupBatch)


class Message(GroupMessage):
    """A message of a group; every thread may say that it is done."""

    __slots__ = ("_lock",)
    _lock: RLock

    @override
    def done(self) -> None:
        with self._lock:
            super().done()

    @override
    def let_go(self) -> None:
        with self._lock:
            super().let_go()


class Batch(GroupBatch):
    """A batch of a group; every thread may say that it is done."""

    __slots__ = ("_lock",)
    _lock: RLock

    @property
    @override
    def messages(self) -> list[GroupMessage]:
        made: list[GroupMessage] = []
        for index, record in enumerate(self, self._first):
            message = Message(record, self._slip, index)
            message._lock = self._lock  # noqa: SLF001 - its own class
            made.append(message)
        return made

    @override
    def done(self) -> None:
        with self._lock:
            super().done()

    @override
    def let_go(self) -> None:
        with self._lock:
            super().let_go()


class Handed(Generic[T]):
    """
    A loop over what a group consumer hands out.

    What was given last is done when the next is asked for, or the consumer has ended:
    so nothing is that the body of the loop failed at, or left the loop with.

    Args:
        take: Waits for the next.
    """

    def __init__(self, take: Callable[[], T | None]) -> None:
        self._take: Callable[[], T | None] = take
        self._last: T | None = None

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        last, self._last = self._last, None
        if last is not None:
            last.done()
        try:
            found = self._take()
        except ClosedError:
            raise StopIteration from None
        assert found is not None
        self._last = found
        return found


class GroupConsumer(GroupConsumerFace):
    """
    Reads topics together with the other members of its group; made by `Client.group`.

    ::

        with client.group("billing", topics=["orders"]) as consumer:
            for message in consumer:
                bill(message.value)

    or, with several threads at work::

        consumer.run(bill, concurrency=10)

    Each partition is read by one member at a time. A message counts when it is done:
    a loop says that of the last one when it asks for the next, `run` when the handler
    has ended well, and everybody else by `GroupMessage.done`. What is done is
    committed as `GroupConfig.commit` says.

    A thread of the client keeps the membership meanwhile, whatever the caller does.
    The functions `on_assigned`, `on_revoked` and `on_lost` are called in a thread of
    their own, one after the other.

    Args:
        shared: The client's loop, and the thread that serves it.
        name: Name of the group.
        wanted: Names and patterns of topics.
        config: Settings.
        hooks: Called when it is closed; makes a producer for dead letters.
    """

    def __init__(
        self,
        shared: tuple[Loop, Keeper],
        name: str,
        wanted: tuple[Sequence[str], Sequence[str]],
        config: GroupConfig,
        hooks: tuple[Callable[[GroupConsumer], None], Callable[[], Producer]],
    ) -> None:
        self.config = config
        self._loop, self._keeper = shared
        self._lock = self._loop.lock
        self._forget, self._make_producer = hooks
        self._arrived = Event()
        self._run: GroupRun | None = None
        self._left: Event | None = None
        self._caller: ThreadPoolExecutor | None = None
        face = GroupFace(
            self._arrived.set,
            self._keeper.ring,
            self._loop.now,
            self._call,
            self._make,
            self._make_batch,
        )
        self._core = GroupCore(self._loop.cluster, name, wanted, config, face)
        self._keeper.start()
        self._core.begin(self._loop.now())
        self._keeper.ring()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- taking ----------------------------------------------------------------

    def ready(self, timeout: float | None = None) -> bool:
        """
        Wait until it reads what the group gave it; that may be nothing.

        Args:
            timeout: Seconds to wait; None waits for ever.

        Returns:
            Whether it does.

        Raises:
            WireError: A broker refused the member.
            ClosedError: The consumer was closed.
            ForkedError: This is another process.
        """
        event, found = Event(), list[TinyMQError]()

        def told(error: TinyMQError | None) -> None:
            if error is not None:
                found.append(error)
            event.set()

        with self._lock:
            self._loop.check()
            self._core.ready_when(told, self._loop.now())
            self._keeper.ring()
        event.wait(timeout)
        if found:
            raise found[0]
        return event.is_set()

    def next(self, timeout: float | None = None) -> Message | None:
        """
        Get the next message.

        Args:
            timeout: Seconds to wait for one; None waits for ever, or as long as
                `GroupConfig.give_up_s` says.

        Returns:
            The message, or None when `timeout` has passed.

        Raises:
            OffsetOutOfRange: Or `LogTruncated`, with the valid range, or another of the
                broker's errors. It concerns the partition that its data name: the
                others go on, this one after `seek` or `resume`.
            UnknownTopicId: A topic was deleted, or made anew, and then all goes on with
                the new one.
            InconsistentGroup: Or another error of a broker that refused the member:
                then there is nothing more.
            UnreachableError: Or `ConnectionLost`, `NotLeader`, `DeadlineExceeded`: no
                broker answered for `GroupConfig.give_up_s`, if that is set.
            ClosedError: The consumer was closed.
            ForkedError: This is another process.
        """
        found = self._next(self._core.take, timeout)
        assert found is None or isinstance(found, Message)
        return found

    def next_batch(self, timeout: float | None = None) -> Batch | None:
        """
        Get the next messages of one partition, as they are stored: the fast way.

        Args:
            timeout: Seconds to wait for them; None waits for ever, or as long as
                `GroupConfig.give_up_s` says.

        Returns:
            The batch, or None when `timeout` has passed.

        Raises:
            TinyMQError: As `next`.
        """
        found = self._next(self._core.take_batch, timeout)
        assert found is None or isinstance(found, Batch)
        return found

    def __iter__(self) -> Iterator[Message]:
        return Handed(self.next)

    def batches(self) -> Iterator[Batch]:
        """Loop over batches instead of messages."""
        return Handed(self.next_batch)

    # --- handling --------------------------------------------------------------

    def run(
        self,
        handler: Handler,
        *,
        concurrency: int = 1,
        batches: bool = False,
        manual: bool = False,
        retries: int = 0,
        on_error: str = STOP,
    ) -> None:
        """
        Call a function with each message, in threads, until the consumer is closed.

        A message is done when its handler has returned. Messages of one key, and with
        `batches` those of one partition, are handled one after the other, in order.
        Close the consumer from another thread, or from a handler; `run` returns when the
        handlers have ended.

        Args:
            handler: Takes a `Message`, or a `Batch` with `batches`.
            concurrency: How many handlers are at work at once at most, each in a thread.
            batches: Give it whole batches.
            manual: Whether the handler says `done` by itself, perhaps later.
            retries: How often it is called again with what it failed at, with growing
                waits. A message whose partition is to be given up is not tried again:
                the next owner has it.
            on_error: What comes then: ``stop`` ends `run` with the error, and the message
                comes again to whoever reads its partition then; ``skip`` logs it and
                goes on; any other word is the name of a topic to which the message goes
                as a dead letter, before it counts as done.

        Raises:
            Exception: What the handler raised.
            TinyMQError: As `next`.
            UsageError: Another handler is at work; `ForkedError` in another process.
        """
        plan = GroupPlan(
            concurrency=concurrency,
            batches=batches,
            manual=manual,
            retries=retries,
            on_error=on_error,
        )
        with self._lock:
            self._loop.check()
            if self._run is not None:
                raise UsageError("the consumer has a handler already")
            producer = None if plan.letters is None else self._make_producer()
            run = self._run = GroupRun(handler, plan, self, (self._loop, self._core, producer))
        try:
            run.go()
        finally:
            self._run = None
            if producer is not None:
                producer.close()

    # --- what is done ----------------------------------------------------------

    def commit(
        self,
        positions: Mapping[tuple[str, int], int] | None = None,
        note: str | Mapping[tuple[str, int], str] | None = None,
    ) -> None:
        """
        Commit what is done, and wait until the brokers have it.

        Args:
            positions: By topic and partition: all that was handed out below these offsets
                is done, and only these partitions are committed.
            note: Text to be committed with it, at most 4096 bytes, for all partitions or
                for some: who reads on finds it in `Share.note`. It stays until there is
                another.

        Raises:
            FencedGeneration: Somebody else reads one of the partitions by now; or
                another of the broker's errors.
            DeadlineExceeded: Or `UnreachableError`, `NotLeader`, after
                `GroupConfig.deadline_s`.
            UsageError: One of the partitions is not assigned; `ClosedError`,
                `ForkedError`.
        """
        event, found = Event(), list[TinyMQError]()

        def told(error: TinyMQError | None) -> None:
            if error is not None:
                found.append(error)
            event.set()

        with self._lock:
            self._loop.check()
            self._core.commit(told, self._loop.now(), positions, note)
            self._keeper.ring()
        if not event.wait(self.config.deadline_s + _GRACE_S):
            raise DeadlineExceeded("no answer within the deadline")
        if found:
            raise found[0]

    # --- the end ---------------------------------------------------------------

    def close(self, within_s: float = 0.0) -> None:
        """
        Hand out nothing more, commit what is done, and leave the group.

        What `run` is handling may end within the time. What is not done by then comes
        again, to another member; threads cannot be cancelled. It returns when the brokers
        know everything, or after `GroupConfig.leave_s` more; at once from within a
        handler, whose message may then end within the time like all others.

        Args:
            within_s: Seconds for what was handed out.

        Raises:
            ForkedError: This is another process.
        """
        with self._lock:
            self._loop.check()
            left = self._left
            if left is None:
                left = self._left = Event()
                self._core.close(self._ended, within_s, self._loop.now())
                if self._run is not None:
                    self._run.halt()
                self._keeper.ring()
            if self._run is not None and self._run.is_mine:
                return
        left.wait(self.config.leave_s + within_s + _GRACE_S)

    def _ended(self) -> None:
        assert self._left is not None
        self._keeper.stop()
        self._forget(self)
        if self._caller is not None:
            self._caller.shutdown(wait=False)
        self._left.set()

    # --- inside ----------------------------------------------------------------

    @contextmanager
    @override
    def _acting(self) -> Iterator[float]:
        with self._lock:
            self._loop.check()
            yield self._loop.now()
            self._keeper.ring()

    def take(self, batches: bool, free: Callable[[], bool]) -> Item | None:
        """
        Wait for what a handler is given, or until something else may be done.

        Args:
            batches: Whether that is a batch.
            free: Whether something else may be done.
        """
        take = self._core.take_batch if batches else self._core.take
        return self._next(take, None, free)

    def wake(self) -> None:
        """Let `take` look whether something else may be done."""
        self._arrived.set()

    def report(self, item: Item, error: BaseException) -> None:
        """
        Tell people that a handler failed.

        Args:
            item: What it had in hand.
            error: What it raised.
        """
        if isinstance(error, Exception):
            what = f"the handler of group {self.group} failed at {item!r}"
            self._loop.network.report(what, error)

    def _next(
        self,
        take: Callable[[], Item | None],
        timeout: float | None,
        free: Callable[[], bool] | None = None,
    ) -> Item | None:
        since = monotonic()
        until = inf if timeout is None else since + timeout
        while True:
            with self._lock:
                self._loop.check()
                if free is not None and free():
                    return None
                found = take()
                if found is not None:
                    self._core.more(self._loop.now())
                    return found
                self._arrived.clear()
                silent = self._silent(since) if timeout is None else inf
            left = min(until, silent) - monotonic()
            if left > 0:
                self._arrived.wait(left if left < inf else None)
            elif silent < inf:
                raise self._core.why or DeadlineExceeded("no broker answered within the deadline")
            else:
                return None

    def _silent(self, since: float) -> float:
        """When a call that waits fails, for no broker answers."""
        patience = self.config.give_up_s
        if patience is None:
            return inf
        ago = self._loop.now() - self._core.heard_at
        return max(since, monotonic() - ago) + patience

    def _make(self, record: Record, slip: Slip, index: int) -> Message:
        message = Message(record, slip, index)
        message._lock = self._loop.lock  # noqa: SLF001 - its own class
        return message

    def _make_batch(self, slip: Slip, first: int) -> Batch:
        batch = Batch(slip, first)
        batch._lock = self._loop.lock  # noqa: SLF001 - its own class
        return batch

    def _call(
        self,
        function: Callable[[list[Share]], Any],
        shares: list[Share],
        then: Callable[[], None],
    ) -> None:
        """Call the user in a thread that holds no lock, for he may wait there."""
        if self._caller is None:
            self._caller = ThreadPoolExecutor(1, "tinymq-group")
        self._caller.submit(self._called, function, shares, then)

    def _called(
        self,
        function: Callable[[list[Share]], Any],
        shares: list[Share],
        then: Callable[[], None],
    ) -> None:
        try:
            function(shares)
        except Exception as error:  # noqa: BLE001 - anything may come out of it
            self._loop.network.report(f"a callback of group {self.group} failed", error)
        with self._lock:
            then()
            self._keeper.ring()
