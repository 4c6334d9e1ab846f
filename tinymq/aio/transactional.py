"""The producer of transactions for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from types import TracebackType
from typing import Any, Self

from typing_extensions import override

from tinymq.aio.network import LoopNetwork, give, refuse
from tinymq.client.core.config import ProducerConfig
from tinymq.client.core.transactions.faces import TransactionFace
from tinymq.client.core.transactions.producing import TransactionsCore
from tinymq.client.core.transactions.transaction import TransactionCore
from tinymq.client.core.transactions.transforming import Taking, Transform
from tinymq.errors import TinyMQError


class Transaction(TransactionFace):
    """
    A transaction: all of it counts, or nothing of it; made by `TransactionalProducer.begin`.

    Args:
        core: The transaction.
        network: Loop and cluster.
    """

    def __init__(self, core: TransactionCore, network: LoopNetwork) -> None:
        self._core = core
        self._network = network

    def commit(self, timeout: float | None = None) -> asyncio.Future[None]:
        """
        Let all of it count, also when the future is awaited later.

        The next transaction may begin before that is answered; it fails if this one does.

        Args:
            timeout: Seconds to wait; `ProducerConfig.deadline_s` by default.

        Returns:
            A future that ends

            - with None when it is decided that all of it counts;
            - with `TransactionAborted` when nothing of it does; its cause says why. It can
              be tried again;
            - with `ProducerFenced` when another producer is at work under this name;
            - with `DeadlineExceeded` when nobody knows yet: the producer goes on asking;
            - with `ClosedError` when the client was closed.

        Raises:
            UsageError: It was ended, or this is not the client's loop.
        """
        seconds = self._core.producer.config.deadline_s if timeout is None else timeout

        def begin(ended: Any, now: float) -> None:
            self._core.commit(ended, now, now + seconds)

        return self._end(begin)

    def abort(self) -> asyncio.Future[None]:
        """
        Let nothing of it count.

        Returns:
            A future that ends with None when that is so, with `ProducerFenced` when
            another producer is at work under this name, or with `ClosedError`.

        Raises:
            UsageError: As `commit`.
        """
        return self._end(self._core.abort)

    async def flush(self) -> None:
        """Wait until all that was sent so far is stored, or failed, which `commit` tells."""
        self._network.check()
        waiting: asyncio.Future[None] = self._network.future()
        self._core.desk.flush(lambda: give(waiting, None), self._seconds())
        self._network.stir()
        await waiting

    def _end(self, begin: Callable[[Any, float], None]) -> asyncio.Future[None]:
        self._network.check()
        waiting: asyncio.Future[None] = self._network.future()

        def ended(error: TinyMQError | None) -> None:
            if error is None:
                give(waiting, None)
            else:
                refuse(waiting, error)

        begin(ended, self._seconds())
        self._network.stir()
        return waiting

    @override
    def _enter(self) -> AbstractContextManager[object]:
        return self._checked()

    @contextmanager
    def _checked(self) -> Iterator[None]:
        self._network.check()
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
        with suppress(TinyMQError):
            # Also when it is cancelled: the brokers should hear of it.
            await asyncio.shield(transaction.abort())


class TransactionalProducer:
    """
    A producer whose records, positions and settles count together; made by
    `Client.transactional`, an asynchronous context manager.

    ::

        async with producer.transaction() as tx:
            tx.send("out", value)
            tx.commit_positions(group)

    Its name, the transactional id, is that of one program at a time: whoever comes last
    fences the others, and what they left open is aborted.

    Args:
        network: Loop and cluster.
        name: The transactional id.
        config: Settings.
        timeout_s: After how long the brokers abort an open transaction.
        forget: Called when it is closed.
    """

    def __init__(
        self,
        network: LoopNetwork,
        name: str,
        config: ProducerConfig,
        timeout_s: float,
        forget: Callable[[TransactionalProducer], None],
    ) -> None:
        self.config = config
        self._network = network
        self._forget = forget
        self._core = TransactionsCore(
            network.cluster, name, config, timeout_s, _deliver, network.seconds
        )
        network.stir()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

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
            ProducerFenced: Another producer is at work under its name.
            UsageError: One is open, or this is not the client's loop.
        """
        self._network.check()
        made = Transaction(self._core.begin(self._network.seconds()), self._network)
        self._network.stir()
        return made

    def transaction(self) -> Block:
        """
        Make an `async with` of a transaction.

        It is committed at the end of the block, which raises what `Transaction.commit`
        tells; an exception in the block aborts it and comes out as it is.
        """
        return Block(self)

    async def transform(
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
            source: A `GroupConsumer` that commits nothing by itself, or a `Subscription`.
            handler: Takes a message; gives what is to be sent: `Out` or tuples (topic,
                value, key, headers), or None for nothing. It may be a coroutine function.
            most: Messages of one transaction.
            linger_s: How long one waits for more of them.

        Raises:
            ProducerFenced: Another producer is at work under its name.
            ClosedError: Producer or client was closed.
            CancelledError: Its task was cancelled; what was open is aborted.
            Exception: What the handler raised, whose messages count as not handled, or what
                the source told, such as `OffsetOutOfRange`.
        """
        self._network.check()
        taking = Taking(source, most, linger_s)
        await Transform(self, handler, taking, (self._network.seconds, asyncio.sleep)).run()

    async def close(self) -> None:
        """Abort what is open, wait for what is being decided, and end."""
        self._network.check()
        waiting: asyncio.Future[None] = self._network.future()

        def closed() -> None:
            self._forget(self)
            give(waiting, None)

        self._core.close(closed, self._network.seconds())
        self._network.stir()
        await waiting


def _deliver(topic: str, partition: int, batch: object) -> None:
    """Tell nobody of single records."""
