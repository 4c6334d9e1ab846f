"""The producer of transactions with Deferreds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any

from twisted.internet.defer import Deferred, fail
from typing_extensions import override

from tinymq.client.core.cluster import Cluster
from tinymq.client.core.config import ProducerConfig
from tinymq.client.core.fork import Home
from tinymq.client.core.transactions.faces import TransactionFace
from tinymq.client.core.transactions.producing import TransactionsCore
from tinymq.client.core.transactions.transaction import TransactionCore
from tinymq.client.core.transactions.transforming import Taking, Transform
from tinymq.client.network import TwistedNetwork
from tinymq.errors import TinyMQError


class Transaction(TransactionFace):
    """
    A transaction: all of it counts, or nothing of it; made by `TransactionalProducer.begin`.

    Args:
        core: The transaction.
        home: The process in which the client was made.
        network: Clock and timer.
    """

    def __init__(self, core: TransactionCore, home: Home, network: TwistedNetwork) -> None:
        self._core = core
        self._home = home
        self._network = network

    def commit(self, timeout: float | None = None) -> Deferred[None]:
        """
        Let all of it count.

        The next transaction may begin before that is answered; it fails if this one does.

        Args:
            timeout: Seconds to wait; `ProducerConfig.deadline_s` by default.

        Returns:
            A Deferred that ends

            - with None when it is decided that all of it counts;
            - with `TransactionAborted` when nothing of it does; its cause says why. It can
              be tried again;
            - with `ProducerFenced` when another producer is at work under this name;
            - with `DeadlineExceeded` when nobody knows yet: the producer goes on asking;
            - with `UsageError` when it was ended, `ClosedError`, or `ForkedError`.
        """
        seconds = self._core.producer.config.deadline_s if timeout is None else timeout

        def begin(ended: Any, now: float) -> None:
            self._core.commit(ended, now, now + seconds)

        return self._end(begin)

    def abort(self) -> Deferred[None]:
        """
        Let nothing of it count.

        Returns:
            A Deferred that ends with None when that is so, with `ProducerFenced` when
            another producer is at work under this name, with `UsageError` when it was
            ended, with `ClosedError`, or `ForkedError`.
        """
        return self._end(self._core.abort)

    def flush(self) -> Deferred[None]:
        """
        Send what waits.

        Returns:
            A Deferred that ends with None when all that was sent so far is stored, or
            failed, which `commit` tells.
        """
        waiting: Deferred[None] = Deferred()
        try:
            self._home.check()
        except TinyMQError as error:
            return fail(error)
        self._core.desk.flush(lambda: waiting.callback(None), self._seconds())
        self._network.arm()
        return waiting

    def _end(self, begin: Callable[[Any, float], None]) -> Deferred[None]:
        waiting: Deferred[None] = Deferred()

        def ended(error: TinyMQError | None) -> None:
            if error is None:
                waiting.callback(None)
            else:
                waiting.errback(error)

        try:
            self._home.check()
            begin(ended, self._seconds())
        except TinyMQError as error:
            return fail(error)
        self._network.arm()
        return waiting

    @override
    def _enter(self) -> AbstractContextManager[object]:
        return self._checked()

    @contextmanager
    def _checked(self) -> Iterator[None]:
        self._home.check()
        yield

    @override
    def _seconds(self) -> float:
        return self._network.seconds()

    @override
    def _take(self, take: Callable[[float], None], now: float) -> None:
        take(now)
        self._network.stir(self._core.desk.drain)


class Block:
    """
    A transaction as an `async with`: committed at its end, aborted by an exception.

    Args:
        producer: Whose it is.
    """

    def __init__(self, producer: TransactionalProducer) -> None:
        self._producer = producer
        self._transaction: Transaction | None = None

    async def __aenter__(self) -> Transaction:
        self._transaction = self._producer.begin()
        return self._transaction

    async def __aexit__(
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
            await transaction.commit()
            return
        ending = transaction.abort()
        if not isinstance(error, GeneratorExit):
            await ending.addErrback(_never_mind)


class TransactionalProducer:
    """
    A producer whose records, positions and settles count together; made by
    `Client.transactional`.

    ::

        async with producer.transaction() as tx:
            tx.send("out", value)
            tx.commit_positions(group)

    Its name, the transactional id, is that of one program at a time: whoever comes last
    fences the others, and what they left open is aborted.

    Args:
        cluster: The brokers.
        name: The transactional id.
        config: Settings.
        timeout_s: After how long the brokers abort an open transaction.
        network: Clock and timer.
        home: The process in which the client was made.
        forget: Called when it is closed.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what the client and its producers share
        self,
        cluster: Cluster,
        name: str,
        config: ProducerConfig,
        timeout_s: float,
        network: TwistedNetwork,
        home: Home,
        forget: Callable[[TransactionalProducer], None],
    ) -> None:
        self.config = config
        self._network = network
        self._home = home
        self._forget = forget
        self._core = TransactionsCore(cluster, name, config, timeout_s, _deliver, network.seconds)
        self._network.arm()

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
        Begin a transaction, maybe while the last one is being decided.

        Raises:
            ClosedError: Producer or client was closed.
            ForkedError: This is another process.
            ProducerFenced: Another producer is at work under its name.
            UsageError: One is open.
        """
        self._home.check()
        made = Transaction(self._core.begin(self._network.seconds()), self._home, self._network)
        self._network.arm()
        return made

    def transaction(self) -> Block:
        """
        Make an `async with` of a transaction.

        It is committed at the end of the block, which raises what `Transaction.commit`
        tells; an exception in the block aborts it and comes out as it is.
        """
        return Block(self)

    def transform(
        self,
        source: Any,
        handler: Callable[[Any], Any],
        *,
        most: int = 1000,
        linger_s: float = 0.05,
    ) -> Deferred[None]:
        """
        Consume, process, produce: what comes counts exactly once.

        Each transaction holds what a handler made of some messages, and that they are done.
        If it is aborted they are handled again.

        Args:
            source: A `GroupConsumer` that commits nothing by itself, or a `Subscription`.
            handler: Takes a message; gives what is to be sent: `Out` or tuples (topic,
                value, key, headers), or None for nothing. It may be a coroutine function
                or return a Deferred.
            most: Messages of one transaction.
            linger_s: How long one waits for more of them.

        Returns:
            A Deferred that ends

            - with None when the source was closed;
            - with what the handler raised, whose messages count as not handled;
            - with `ProducerFenced` when another producer is at work under its name;
            - with what the source tells, such as `OffsetOutOfRange`;
            - with `ClosedError`, `ForkedError`, or `CancelledError`: what is open then
              is aborted.
        """
        try:
            self._home.check()
            taking = Taking(source, most, linger_s)
        except TinyMQError as error:
            return fail(error)
        work = Transform(self, handler, taking, (self._network.seconds, self._network.pause))
        return Deferred.fromCoroutine(work.run())

    def close(self) -> Deferred[None]:
        """
        Abort what is open, wait for what is being decided, and end.

        Returns:
            A Deferred that ends with None. It fails with `ForkedError` in another process
            and with nothing else.
        """
        try:
            self._home.check()
        except TinyMQError as error:
            return fail(error)
        waiting: Deferred[None] = Deferred()

        def closed() -> None:
            self._forget(self)
            waiting.callback(None)

        self._core.close(closed, self._network.seconds())
        self._network.arm()
        return waiting


def _deliver(topic: str, partition: int, batch: object) -> None:
    """Tell nobody of single records."""


def _never_mind(failure: object) -> None:
    """What the block raised says more."""
