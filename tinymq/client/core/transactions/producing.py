"""
A producer of transactions: its identity, and its transactions one behind the other.

The coordinator gives the identity of the first transaction, and with the end of each
that of the next. While a transaction is stored and decided the next ones may be sent
under the identities that they will have. Those that are ready while the coordinator
decides wait for its answer, and then are decided together: one request, and one record
and one sync of the coordinator, for as many as came meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice, takewhile
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
    AHEAD,
    NAME_BYTES,
    EndTransaction,
    Identity,
    InitProducer,
    Message,
    Metadata,
    Topics,
)

#: Epochs are 15 bits; what comes behind the last one has another producer id.
LAST_EPOCH: Final = 32_767
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
        #: How many have their identities, the first ones.
        self._known = 0
        #: The first of those that are being decided.
        self._ending: TransactionCore | None = None
        #: Somebody goes on with what is first, as soon as all of them were told.
        self._proceeding = False
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
        desk.link_changed(now)  # others may be preferred since it was used
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

    def wrote(self, one: TransactionCore, now: float) -> None:
        """
        Go on with the transaction behind one of which more was written.

        Args:
            one: Maybe all of it.
            now: The time.
        """
        after = one.after
        if after is None:
            return
        if after.identity is None:
            self._give(now)
            return
        while after is not None:
            if after.desk.sending.held:
                self.later(after)
            after = after.after

    def _give(self, now: float) -> None:
        """Give transactions their identities, as far as these are known."""
        while self._known < len(self._chain):
            following = self._following(now)
            if following is None:
                return
            one = self._chain[self._known]
            self._known += 1
            one.lend(following, self._window, now)

    def _following(self, now: float) -> Identity | None:
        """Tell the identity of the first transaction that has none, if that is known."""
        at = self._known
        if not at:
            if self._identity is None:
                self._init(now)
            return self._identity
        before = self._chain[at - 1]
        assert before.identity is not None, "it is the last one that has"
        producer, epoch = before.identity
        if at >= AHEAD or not before.written or epoch == LAST_EPOCH:
            return None
        return producer, epoch + 1

    def ready(self, one: TransactionCore, now: float) -> None:
        """
        Have a transaction decided, if it is its turn.

        Args:
            one: It is to count, and all of it is acknowledged.
            now: The time.
        """
        self._release(one)
        self.proceed(now)

    def _release(self, one: TransactionCore) -> None:
        """Let nothing wait for a transaction of which nothing is to be written any more."""
        after = one.after
        if after is not None:
            after.desk.sending.before = one.desk.sending.before
            if after.desk.sending.held:
                self.later(after)

    def proceed(self, now: float) -> None:
        """
        Have decided what is first and can be decided, unless something is being decided.

        Args:
            now: The time.
        """
        if self._proceeding or self.cluster.closed:
            return
        self._proceeding = True
        try:
            self._proceed(now)
        finally:
            self._proceeding = False

    def _proceed(self, now: float) -> None:
        while self._chain and self._ending is None:
            first = self._chain[0]
            if first.stage is Stage.ABORTING:
                if first.empty or first.orphan or self.fatal is not None:
                    first.ended(first.wrong, now, commit=False)
                else:
                    self._end([first], now, commit=False)
            elif first.stage is Stage.READY:
                run = [*takewhile(_can_end, self._chain)][:AHEAD]
                if first.empty and not (len(self._chain) > 1 and self._chain[1].identity):
                    first.ended(None, now, commit=True)
                else:
                    self._end(run, now, commit=True)
            else:
                return

    def _end(self, run: list[TransactionCore], now: float, *, commit: bool) -> None:
        """Have transactions decided that follow each other, from the first one on."""
        identity, *following = [one.identity for one in run if one.identity is not None]
        assert len(following) == len(run) - 1, "all of them wait for nothing but this"
        topics, *more = map(_topics, run)
        message = EndTransaction(
            transactional_id=self.name,
            transaction=identity,
            commit=commit,
            topics=topics,
            more=more,
        )

        def told(reply: Any, error: TinyMQError | None, now: float) -> None:
            if self.cluster.closed:
                return  # `cluster_closed` tells them, and those behind
            self._ending = None
            if error is None:
                for one, next_one in zip(run, [*following, reply.identity], strict=True):
                    if not self._chain:
                        return  # somebody who heard of the one before closed the client
                    self._identity = next_one
                    one.ended(None, now, commit=commit)
            else:
                for one in run[1:]:
                    one.stage = Stage.READY
                run[0].ended(self._why(error), now, commit=commit)
            self.proceed(now)

        for one in run:
            one.stage = Stage.ENDING
        self._identity = None
        self._ending = run[0]
        self.errands.run(self._at_coordinator(message), told, inf, now)

    def _why(self, error: TinyMQError) -> TinyMQError:
        """Say why a transaction does not count that its coordinator did not decide as wished."""
        if isinstance(error, ProducerFenced):
            return self._fence(error)
        if isinstance(error, (ClosedError, TransactionAborted)):
            return error
        aborted = TransactionAborted(f"{self.name} was aborted: {error}")
        aborted.__cause__ = error
        return aborted

    def over(self, one: TransactionCore, now: float) -> None:
        """
        Go on with the next, for a transaction is over.

        Args:
            one: The first.
            now: The time.
        """
        assert self._chain[0] is one, "those behind wait for it"
        self._chain.popleft()
        self._known -= one.identity is not None
        self._release(one)
        broken = one.stage is Stage.ABORTED
        ahead = self._chain[0].identity if self._chain else None
        if ahead is not None and (broken or ahead != self._identity):
            # It was sent under an identity that it does not have: only a new one is sure
            # to be nobody's.
            self._chain[0].orphan = True
            self._identity = None
            broken = True
        one.desk.renew()
        if one.desk.finished:
            self._desks.remove(one.desk)
        else:
            self._free.append(one.desk)
        if broken and not one.swept:
            self._sweep(now)
        self._give(now)
        self._end_closing(now)

    def _sweep(self, now: float) -> None:
        """
        Let all those fail that are behind one that does not count.

        They are over one after the other when that was told, in a loop, for there may be
        very many. Who begins meanwhile is behind them, and does not fail.
        """
        was, self._proceeding = self._proceeding, True
        error = self.fatal or TransactionAborted("the transaction before this one was aborted")
        try:
            for each in tuple(self._chain):
                each.swept = True
                each.fail(error, now)
        finally:
            self._proceeding = was

    def later(self, one: TransactionCore) -> None:
        """
        Let a transaction go on, once those are done who are at work now.

        Args:
            one: The transaction.
        """
        self._later.append(one)

    def _fence(self, error: TinyMQError) -> TinyMQError:
        self.fatal = ProducerFenced(
            f"another producer is at work under the transactional id {self.name}; this one can do "
            "nothing any more: close it, and see that only one is started"
        )
        self.fatal.__cause__ = error
        return self.fatal

    # --- the coordinator ---------------------------------------------------------------

    def _init(self, now: float) -> None:
        if self._asking or self._identity is not None or self.closed:
            return
        if self._ending is not None:
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
        waits = [self.errands.wake_at]
        waits += [desk.wake_at for desk in self._at_work]
        waits += [one.wake_at for one in self._chain]
        return min(waits)

    @property
    def _at_work(self) -> list[Desk]:
        """
        Those that can do something by themselves.

        Of the others each waits for the one before, and its deadlines come later.
        """
        found = [one.desk for one in islice(self._chain, self._known + 1)]
        current = self.current
        if current is not None and current.desk is not found[-1]:
            found.append(current.desk)  # its batches may have to be closed
        return found

    def tick(self, now: float) -> None:
        """
        Do what is due.

        Args:
            now: The time.
        """
        later, self._later = self._later, []
        for one in later:
            one.go_on(now)
            if one.desk.sending.held:
                one.desk.go_on(now)
        self.errands.tick(now)
        for desk in self._at_work:
            if desk.wake_at <= now:
                desk.tick(now)
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
        for desk in self._at_work:
            desk.link_changed(now)
        self.tick(now)

    def topics_changed(self, now: float) -> None:
        """
        Take over new partitions, and identities of topics that were made anew.

        Args:
            now: The time.
        """
        for desk in tuple(self._desks):
            desk.topics_changed(now)

    def cluster_closed(self, now: float) -> None:
        """
        Fail everything, because the client was closed.

        Args:
            now: The time.
        """
        self.closed = True
        error = ClosedError("the client was closed")
        chain, self._chain = self._chain, deque()
        self._ending, self._known = None, 0
        self.errands.give_up(error, now)
        for one in chain:
            # Also of those that wait: what was asked may have been decided.
            one.tell(error)
        for desk in self._desks:
            desk.cluster_closed(now)

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


def _can_end(one: TransactionCore) -> bool:
    """Say whether nothing is missing; one with nothing in it may be ready before it is anybody."""
    return one.stage is Stage.READY and one.identity is not None


def _topics(one: TransactionCore) -> Topics:
    """Say where a transaction has something."""
    found: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(one.desk.sending.places):
        found.setdefault(topic_id, []).append(partition)
    return [*found.items()]
