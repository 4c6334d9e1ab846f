"""
A producer of transactions: its identity, and its transactions one behind the other.

The coordinator gives the identity of the first transaction, and with the end of each
that of the next. While a transaction is being decided the next one may be sent under
the identity that it will have: then the time of that decision costs nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from typing import Any, Final

from tinymq.client.core.cluster import Cluster
from tinymq.client.core.config import ProducerConfig
from tinymq.client.core.ledger import Deliver
from tinymq.client.core.transactions.desk import WINDOW, Desk
from tinymq.client.core.transactions.errands import Attempt, Errands, Told
from tinymq.client.core.transactions.transaction import Stage, TransactionCore
from tinymq.errors import (
    ClientError,
    ClosedError,
    DeadlineExceeded,
    InternalError,
    NotCoordinator,
    ProducerFenced,
    StateError,
    TinyMQError,
    TransactionAborted,
    UsageError,
)
from tinymq.wire.frames import Bytes
from tinymq.wire.messages import (
    NAME_BYTES,
    EndTransaction,
    Identity,
    InitProducer,
    Message,
    Metadata,
)

#: Epochs are 15 bits; what comes behind the last one has another producer id.
_LAST_EPOCH: Final = 32_767
#: Shortest and longest time-out of a transaction, in seconds.
_LEAST_S: Final = 0.001
_LONGEST_S: Final = 24 * 3600


class TransactionsCore:
    """
    A producer of transactions without I/O.

    Args:
        cluster: The brokers.
        name: The transactional id.
        config: Settings.
        timeout_s: After how long an open transaction is aborted.
        deliver: Told of each settled batch of single records.
        seconds: The clock.

    Attributes:
        name: The transactional id.
        config: Settings.
        cluster: The brokers.
        errands: What is tried again and again.
        fatal: Why it can do nothing any more, or None.
        ahead: Whether the next transaction is sent while one is being decided.

    Raises:
        UsageError: The name or the time-out is none.
    """

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        config: ProducerConfig,
        timeout_s: float,
        deliver: Deliver,
        seconds: Callable[[], float],
    ) -> None:
        if not name or len(str(name).encode()) > NAME_BYTES:
            raise UsageError(f"a transactional id has 1 to {NAME_BYTES} bytes, not {name!r:.100}")
        if not _LEAST_S <= timeout_s <= _LONGEST_S:
            raise UsageError(f"timeout_s is from {_LEAST_S} to {_LONGEST_S}, not {timeout_s!r:.60}")
        if config.acks == "none" or not config.idempotent:
            raise UsageError("a producer of transactions is idempotent, and asks for acks")
        self.name = name
        self.config = config
        self.cluster = cluster
        self.errands = Errands(cluster)
        self.fatal: TinyMQError | None = None
        self.ahead = True
        self.closed = False
        self._timeout_ms = max(1, round(timeout_s * 1000))
        self._deliver = deliver
        self._desks: list[Desk] = []
        self._free: list[Desk] = []
        self._chain: deque[TransactionCore] = deque()
        self._identity: Identity | None = None
        self._window = WINDOW
        self._asking = False
        self._coordinator: int | None = None
        self._later: list[TransactionCore] = []
        self._closing: list[Any] = []
        self.seconds = seconds
        cluster.add(self)
        self._init(seconds())

    @property
    def pending(self) -> int:
        """Records without an answer."""
        return sum(desk.pending for desk in self._desks)

    @property
    def current(self) -> TransactionCore | None:
        """The open transaction."""
        last = self._chain[-1] if self._chain else None
        return last if last is not None and last.stage is Stage.OPEN else None

    # --- transactions ------------------------------------------------------------------

    def check(self) -> None:
        """
        See whether it can do anything.

        Raises:
            ClosedError: It was closed.
            ProducerFenced: Another one is at work under its name.
        """
        if self.closed or self.cluster.closed:
            raise ClosedError("the producer was closed")
        if self.fatal is not None:
            raise self.fatal.with_traceback(None)

    def begin(self, now: float) -> TransactionCore:
        """
        Begin a transaction.

        Args:
            now: The time.

        Raises:
            ClosedError: It was closed.
            ProducerFenced: Another one is at work under its name.
            UsageError: One is open.
        """
        self.check()
        if self.current is not None:
            raise UsageError("a transaction is open: commit or abort it first")
        desk = self._free.pop() if self._free else self._desk()
        before = self._chain[-1] if self._chain else None
        made = TransactionCore(self, desk, before, now)
        self._chain.append(made)
        self._give(now)
        return made

    def _desk(self) -> Desk:
        desk = Desk(self.cluster, self.config, self._deliver)
        self._desks.append(desk)
        return desk

    def wanted(self, now: float) -> None:
        """
        Get an identity for who needs one.

        Args:
            now: The time.
        """
        self._give(now)

    def _give(self, now: float) -> None:
        """Give the next transaction its identity, if that is known."""
        before: TransactionCore | None = None
        for one in tuple(self._chain):
            if one.identity is None:
                if before is None:
                    if self._identity is not None:
                        one.lend(self._identity, self._window, now)
                    else:
                        self._init(now)
                elif self.ahead and before.stage is Stage.ENDING and before.wrong is None:
                    assert before.identity is not None, "it has ended"
                    producer, epoch = before.identity
                    if epoch < _LAST_EPOCH:
                        one.lend((producer, epoch + 1), self._window, now)
                return
            before = one

    def end(self, one: TransactionCore, now: float, *, commit: bool) -> None:
        """
        Have a transaction decided.

        Args:
            one: It is the first, and all of it is acknowledged, or it is to be aborted.
            now: The time.
            commit: Whether it is to count.
        """
        topics: dict[bytes, list[int]] = {}
        for topic_id, partition in sorted(one.desk.sending.places):
            topics.setdefault(topic_id, []).append(partition)
        assert one.identity is not None, "it has places"
        message = EndTransaction(
            transactional_id=self.name,
            transaction=one.identity,
            commit=commit,
            topics=[*topics.items()],
        )

        def told(reply: Any, error: TinyMQError | None, now: float) -> None:
            if error is None:
                self._identity = reply.identity
            elif isinstance(error, ProducerFenced):
                self._fence(error)
                error = self.fatal
            elif not isinstance(error, ClosedError):
                self._identity = None
                if not isinstance(error, TransactionAborted):
                    cause, error = error, TransactionAborted(f"{self.name} was aborted: {error}")
                    error.__cause__ = cause
            one.ended(error, now, commit=commit)

        self._identity = None
        self.errands.run(self._at_coordinator(message), told, inf, now)
        self._give(now)

    def over(self, one: TransactionCore, now: float) -> None:
        """
        Go on with the next, for a transaction is over.

        Args:
            one: The first.
            now: The time.
        """
        self._chain.remove(one)
        followers = [*self._chain]
        for each in followers:
            if each.before is one:
                each.before = None
        broken = one.stage is Stage.ABORTED
        ahead = followers[0].identity if followers else None
        if ahead is not None and (broken or ahead != self._identity):
            # It was sent under an identity that it does not have: only a new one is sure
            # to be nobody's.
            followers[0].orphan = True
            self._identity = None
            broken = True
        one.desk.renew()
        if one.desk.finished:
            self._desks.remove(one.desk)
        else:
            self._free.append(one.desk)
        if self.fatal is not None:
            for each in followers:
                each.fail(self.fatal, now)
        elif broken and followers:
            error = TransactionAborted("the transaction before this one was aborted")
            for each in followers:
                each.fail(error, now)
        for each in followers:
            each.go_on(now)
        self._give(now)
        self._end_closing(now)

    def later(self, one: TransactionCore) -> None:
        """
        Let a transaction go on, once those are done who are at work now.

        Args:
            one: The transaction.
        """
        self._later.append(one)

    def _fence(self, error: TinyMQError) -> None:
        self.fatal = ProducerFenced(
            f"another producer is at work under the transactional id {self.name}; this one can do "
            "nothing any more: close it, and see that only one is started"
        )
        self.fatal.__cause__ = error

    # --- the coordinator ---------------------------------------------------------------

    def _init(self, now: float) -> None:
        if self._asking or self._identity is not None or self.closed:
            return
        if any(each.stage is Stage.ENDING for each in self._chain):
            return  # its answer says what comes next
        self._asking = True
        message = InitProducer(transactional_id=self.name, timeout_ms=self._timeout_ms)

        def told(reply: Any, error: TinyMQError | None, now: float) -> None:
            self._asking = False
            if error is not None:
                if not isinstance(error, ClosedError):
                    self.fatal = error
                for each in tuple(self._chain):
                    each.fail(error, now)
                return
            self._identity = reply.producer_id, reply.epoch
            self._window = reply.window
            self._give(now)

        self.errands.run(self._at_coordinator(message), told, inf, now)

    def _at_coordinator(self, message: Message) -> Attempt:
        def attempt(told: Told, until: float, now: float) -> None:
            def answered(reply: Any, _: Bytes, error: TinyMQError | None, now: float) -> None:
                if isinstance(error, NotCoordinator):
                    self._follow(error, (told, until), now)
                    return
                if isinstance(error, (ClientError, DeadlineExceeded)):
                    self._coordinator = None
                if isinstance(error, InternalError):
                    error = StateError(str(error))  # nobody knows what was done: ask again
                told(reply, error, now)

            link = self.cluster.link(self._coordinator)
            link.request(message.type, message.to_meta(), (), until, answered, now)

        return attempt

    def _follow(self, error: NotCoordinator, call: tuple[Told, float], now: float) -> None:
        """Remember who is the coordinator, and learn where it is."""
        told, until = call
        named = error.data.get("broker")
        self._coordinator = named if type(named) is int and named >= 0 else None
        cluster = self.cluster
        if named in cluster.metadata.brokers or named == cluster.seed.broker_id:
            told(None, error, now)
            return

        def learned(reply: Any, _: Bytes, wrong: TinyMQError | None, now: float) -> None:
            if wrong is None:
                cluster.metadata.apply(reply)
            told(None, error, now)

        question = Metadata(names=[])
        cluster.link(None).request(question.type, question.to_meta(), (), until, learned, now)

    # --- the cluster's calls -------------------------------------------------------------

    @property
    def wake_at(self) -> float:
        """When `tick` has something to do."""
        if self._later:
            return -inf
        waits = (each.wake_at for each in self._chain)
        return min(self.errands.wake_at, *waits) if self._chain else self.errands.wake_at

    def tick(self, now: float) -> None:
        """
        Do what is due.

        Args:
            now: The time.
        """
        later, self._later = self._later, []
        for one in later:
            one.go_on(now)
        self.errands.tick(now)
        for one in [each for each in self._chain if each.wake_at <= now]:
            one.overdue(
                DeadlineExceeded(
                    "nobody knows yet whether the transaction counts: its coordinator did not "
                    "answer in time; the producer goes on asking"
                )
            )

    def link_changed(self, now: float) -> None:
        """
        Try again what a lost link kept from its end.

        Args:
            now: The time.
        """
        self.tick(now)

    def topics_changed(self, now: float) -> None:
        """Do nothing: desks hear of it themselves."""

    def cluster_closed(self, now: float) -> None:
        """
        Fail everything, because the client was closed.

        Args:
            now: The time.
        """
        self.closed = True
        error = ClosedError("the client was closed")
        self.errands.give_up(error, now)
        for one in tuple(self._chain):
            one.tell(error)
        self._chain.clear()

    def close(self, done: Any, now: float) -> None:
        """
        Abort what is open, wait for what is being decided, and end.

        Args:
            done: Told once.
            now: The time.
        """
        self.closed = True
        self._closing.append(done)
        current = self.current
        if current is not None:
            current.abort(lambda _: None, now, ClosedError("the producer was closed"))
        self._end_closing(now)

    def _end_closing(self, now: float) -> None:
        if not self.closed or self._chain:
            return
        self.errands.give_up(ClosedError("the producer was closed"), now)
        self.cluster.remove(self)
        closing, self._closing = self._closing, []
        left = len(self._desks)

        def closed() -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                for done in closing:
                    done()

        if not self._desks:
            closed()
        for desk in tuple(self._desks):
            desk.close(closed, now)
        self._desks.clear()
