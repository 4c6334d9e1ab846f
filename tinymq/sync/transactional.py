"""The blocking producer of transactions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from math import inf
from types import TracebackType
from typing import Any, Final, Self

from typing_extensions import override

from tinymq.client.core.config import ProducerConfig
from tinymq.client.core.transactions.faces import TransactionFace
from tinymq.client.core.transactions.producing import TransactionsCore
from tinymq.client.core.transactions.transaction import TransactionCore
from tinymq.client.core.transactions.transforming import Taking, send_all
from tinymq.errors import (
    BufferFull,
    ClosedError,
    DeadlineExceeded,
    TinyMQError,
    TransactionAborted,
)
from tinymq.sync.loop import Loop

#: Time beyond its deadline in which a call must end; the core ends it before.
_GRACE_S: Final = 1.0
#: Seconds for which a transform keeps others from using its client.
_POLL_S: Final = 0.2
#: Records between two looks at what came back.
_GLANCE_EVERY: Final = 64


class Transaction(TransactionFace):
    """
    A transaction: all of it counts, or nothing of it; made by `TransactionalProducer.begin`.

    Records gather into batches, which are sent when they are full, by `flush`, and by
    `commit`.

    Args:
        core: The transaction.
        loop: Shared with the client.
    """

    def __init__(self, core: TransactionCore, loop: Loop) -> None:
        self._core = core
        self._loop = loop
        self._sent = 0

    def commit(self, timeout: float | None = None) -> None:
        """
        Let all of it count.

        Args:
            timeout: Seconds to wait; `ProducerConfig.deadline_s` by default.

        Raises:
            TransactionAborted: Nothing of it does; its cause says why. It can be tried
                again.
            ProducerFenced: Another producer is at work under this name.
            DeadlineExceeded: Nobody knows yet: the producer goes on asking.
            UsageError: It was ended.
        """
        seconds = self._core.producer.config.deadline_s if timeout is None else timeout

        def begin(ended: Any, now: float) -> None:
            self._core.commit(ended, now, now + seconds)

        self._end(begin, seconds)

    def abort(self) -> None:
        """
        Let nothing of it count.

        Raises:
            ProducerFenced: Another producer is at work under this name.
            DeadlineExceeded: No coordinator answered within `ProducerConfig.deadline_s`; it
                is aborted all the same, at the latest when its time is up.
            UsageError: It was ended.
        """
        self._end(self._core.abort, self._core.producer.config.deadline_s)

    def flush(self) -> None:
        """Wait until all that was sent so far is stored, or failed, which `commit` tells."""
        ended: list[bool] = []
        loop = self._loop
        with self._enter():
            now = loop.now()
            self._core.desk.flush(lambda: ended.append(True), now)
            self._wait(lambda: ended, now + self._core.producer.config.deadline_s)

    def _end(self, begin: Callable[[Any, float], None], seconds: float) -> None:
        ended: list[TinyMQError | None] = []
        with self._enter():
            now = self._loop.now()
            begin(ended.append, now)
            self._wait(lambda: ended, now + seconds)
        if ended[0] is not None:
            raise ended[0]

    def _wait(self, done: Callable[[], object], deadline: float) -> None:
        if not self._loop.run(done, deadline + _GRACE_S):
            raise DeadlineExceeded("the call did not end within its deadline")

    @override
    def _enter(self) -> AbstractContextManager[object]:
        return self._locked()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._loop.lock:
            self._loop.check()
            yield

    @override
    def _seconds(self) -> float:
        return self._loop.now()

    @override
    def _take(self, take: Callable[[float], None], now: float) -> None:
        core, loop = self._core, self._loop
        deadline = now + core.producer.config.deadline_s
        while True:
            try:
                take(loop.now())
            except BufferFull:
                held = core.desk.ledger.held
                if core.producer.config.on_full == "error":
                    raise
                core.desk.seal(loop.now())
                if not loop.run(lambda: core.desk.ledger.held < held, deadline):  # noqa: B023
                    raise
            else:
                break
        self._sent += 1
        if not self._sent % _GLANCE_EVERY:
            loop.glance()


class Block:
    """
    A transaction as a `with`: committed at its end, aborted by an exception.

    Args:
        producer: Whose it is.
    """

    def __init__(self, producer: TransactionalProducer) -> None:
        self._producer = producer
        self._transaction: Transaction | None = None

    def __enter__(self) -> Transaction:
        self._transaction = self._producer.begin()
        return self._transaction

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        transaction = self._transaction
        assert transaction is not None, "it was entered"
        if not transaction.open:
            return  # the block ended it by itself
        if error is None:
            transaction.commit()
            return
        with suppress(TinyMQError):
            transaction.abort()


class TransactionalProducer:
    """
    A producer whose records, positions and settles count together; made by
    `Client.transactional`, a context manager.

    ::

        with producer.transaction() as tx:
            tx.send("out", value)
            tx.commit_positions(group)

    Its name, the transactional id, is that of one program at a time: whoever comes last
    fences the others, and what they left open is aborted.

    Args:
        loop: Shared with the client.
        name: The transactional id.
        config: Settings.
        timeout_s: After how long the brokers abort an open transaction.
        forget: Called when it is closed.
    """

    def __init__(
        self,
        loop: Loop,
        name: str,
        config: ProducerConfig,
        timeout_s: float,
        forget: Callable[[TransactionalProducer], None],
    ) -> None:
        self.config = config
        self._loop = loop
        self._forget = forget
        self._core = TransactionsCore(loop.cluster, name, config, timeout_s, _deliver, loop.now)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def name(self) -> str:
        """The transactional id."""
        return self._core.name

    @property
    def fenced(self) -> bool:
        """Whether another producer is at work under its name, so that it can do nothing."""
        return self._core.fatal is not None

    def begin(self) -> Transaction:
        """
        Begin a transaction.

        Raises:
            ClosedError: Producer or client was closed.
            ForkedError: This is another process.
            ProducerFenced: Another producer is at work under its name.
            UsageError: One is open.
        """
        with self._loop.lock:
            self._loop.check()
            return Transaction(self._core.begin(self._loop.now()), self._loop)

    def transaction(self) -> Block:
        """
        Make a `with` of a transaction.

        It is committed at the end of the block, which raises what `Transaction.commit`
        raises; an exception in the block aborts it and comes out as it is.
        """
        return Block(self)

    def transform(
        self,
        source: Any,
        handler: Callable[[Any], Any],
        *,
        most: int = 1000,
        linger_s: float = 0.05,
    ) -> None:
        """
        Consume, process, produce until the source is closed: what comes counts exactly once.

        Each transaction holds what a handler made of some messages, and that they are done.
        If it is aborted they are handled again.

        Args:
            source: A `GroupConsumer` that commits nothing by itself, or a `Subscription`;
                another thread, or the handler, may close it.
            handler: Takes a message; gives what is to be sent: `Out` or tuples (topic,
                value, key, headers), or None for nothing.
            most: Messages of one transaction.
            linger_s: How long one waits for more of them.

        Raises:
            ProducerFenced: Another producer is at work under its name.
            ClosedError: Producer or client was closed.
            Exception: What the handler raised, whose messages count as not handled, or what
                the source told, such as `OffsetOutOfRange`.
        """
        taking = Taking(source, most, linger_s)
        failures = 0
        try:
            while True:
                messages = self._first(taking)
                if messages is None:
                    return
                if self._once(taking, messages, handler):
                    failures = 0
                else:
                    failures += 1
                    time.sleep(self.config.backoff.delay(failures, 0.5))
        finally:
            taking.give_back()

    @staticmethod
    def _first(taking: Taking) -> list[Any] | None:
        """The messages with which a transaction begins; None at the end."""
        kept = taking.kept()
        if kept:
            return kept
        while True:
            try:
                # Not for ever: others may use the client meanwhile, above all to close it.
                found = taking.found(taking.ask(_POLL_S))
            except ClosedError:
                return None
            if found:
                return found

    def _once(self, taking: Taking, messages: list[Any], handler: Callable[[Any], Any]) -> bool:
        """Carry out one transaction, and say whether it counts."""
        joined = False
        transaction = self.begin()
        try:
            until = self._loop.now() + taking.linger_s
            while messages:
                for message in messages:
                    send_all(transaction, handler(message))
                messages = []
                if taking.count < taking.most:
                    with suppress(ClosedError):
                        messages = taking.found(taking.ask(max(0.0, until - self._loop.now())))
            taking.join(transaction)
            joined = True
            transaction.commit(inf)
        except BaseException as error:
            if transaction.open:
                with suppress(TinyMQError):
                    transaction.abort()
            taking.aborted(joined=joined)
            if isinstance(error, TransactionAborted):
                return False
            raise
        taking.committed()
        return True

    def close(self) -> None:
        """Abort what is open, wait for what is being decided, and end."""
        loop = self._loop
        ended: list[bool] = []
        with loop.lock:
            loop.check()
            now = loop.now()
            self._core.close(lambda: ended.append(True), now)
            loop.run(lambda: ended, now + self.config.deadline_s)
            self._forget(self)


def _deliver(topic: str, partition: int, batch: object) -> None:
    """Tell nobody of single records."""
