"""Consume, process, produce: what a transform takes, gives and does, in every face."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from inspect import isawaitable
from math import inf
from typing import Any, Final, NamedTuple

from tinymq.client.core.partitioners import Key
from tinymq.client.core.transactions.faces import TransactionFace
from tinymq.errors import ClosedError, TinyMQError, TransactionAborted, UsageError

#: Longest wait for more messages of one transaction.
LONGEST_LINGER_S: Final = 3600.0


class Out(NamedTuple):
    """
    A record that a handler wants to be sent.

    Attributes:
        topic: Name of the topic.
        value: Its value; None is a tombstone.
        key: Its key.
        headers: Pairs of name and bytes, or a mapping.
        partition: Its partition, or None to choose one.
    """

    topic: str
    value: bytes | None
    key: Key | None = None
    headers: Any = None
    partition: int | None = None


#: What a handler gives: one record, several, or nothing.
Outs = Out | tuple[Any, ...] | Iterable[Out | tuple[Any, ...]] | None


def send_all(transaction: TransactionFace, given: Any) -> None:
    """
    Send what a handler gave.

    Args:
        transaction: With which.
        given: What it gave.

    Raises:
        UsageError: That is no record.
    """
    for one in outs_of(given):
        transaction.send(*one)


def outs_of(given: Any) -> list[Out]:
    """
    Read what a handler gave.

    Args:
        given: One record, several, or None.

    Raises:
        UsageError: It is something else.
    """
    if given is None:
        return []
    if isinstance(given, tuple) and given and isinstance(given[0], str):
        given = (given,)
    try:
        return [one if isinstance(one, Out) else Out(*one) for one in given]
    except TypeError:
        raise UsageError(
            "a handler of transform gives records as Out or (topic, value, key, headers), a list "
            f"of them, or None, not {given!r:.100}"
        ) from None


class Taking:
    """
    What a transform took from its source and has not committed.

    Args:
        source: A group consumer or a subscription.
        most: Messages of one transaction.
        linger_s: How long one waits for more of them.

    Raises:
        UsageError: The source is something else, or commits by itself; a number is wrong.
    """

    def __init__(self, source: Any, most: int, linger_s: float) -> None:
        if most < 1:
            raise UsageError(f"a transaction has at least 1 message, not {most!r}")
        if not 0 <= linger_s <= LONGEST_LINGER_S:
            raise UsageError(f"linger_s is from 0 to {LONGEST_LINGER_S:.0f}, not {linger_s!r}")
        self.source = source
        self.most = most
        self.linger_s = linger_s
        self.grouped = hasattr(source, "shares")
        if not self.grouped and not hasattr(source, "channel"):
            raise UsageError("transform reads a group consumer or a subscription")
        if self.grouped:
            source.config.check_transactional(source.group)
        #: Of the present transaction.
        self.count = 0
        self._messages: list[Any] = []
        #: To be handled before anything that comes: their transaction was aborted.
        self._again: deque[Any] = deque()

    def ask(self, timeout: float | None) -> Any:
        """
        Ask the source for more.

        Args:
            timeout: Seconds to wait; None waits for ever.

        Returns:
            What its face returns: what is wanted, or something to wait for.
        """
        if self.grouped:
            return self.source.next_batch(timeout)
        return self.source.next(timeout)

    def found(self, given: Any) -> list[Any]:
        """
        Take what the source gave.

        Args:
            given: A message, a batch, or None.

        Returns:
            Messages to be handled.
        """
        messages = [] if given is None else given.messages if self.grouped else [given]
        self.count += len(messages)
        if not self.grouped:
            self._messages += messages
        return list(messages)

    def kept(self) -> list[Any]:
        """Take what is to be handled again, without asking the source."""
        held = [each for each in self._again if each.held]
        kept, self._again = held[: self.most], deque(held[self.most :])
        self._messages += kept
        self.count += len(kept)
        return kept

    def join(self, transaction: TransactionFace) -> None:
        """
        Let it be part of a transaction that all of it is done.

        Args:
            transaction: The transaction.
        """
        if self.grouped:
            transaction.commit_positions(self.source)
        else:
            transaction.finish(*self._messages)

    def committed(self) -> None:
        """All of it counts."""
        self._messages.clear()
        self.count = 0

    def aborted(self, *, joined: bool) -> None:
        """
        Nothing of it counts: handle it again.

        Args:
            joined: Whether it was part of the transaction.
        """
        self.count = 0
        if self.grouped:
            if not joined:
                with suppress(ClosedError):
                    self.source.shares().back()
            return
        self._again.extendleft(reversed(self._messages))
        self._messages.clear()

    def give_back(self) -> None:
        """Let somebody else have what is not done."""
        for message in (*self._messages, *self._again):
            if message.held:
                with suppress(TinyMQError):
                    message.give_back()
        self._messages.clear()
        self._again.clear()


class Transform:
    """
    Consume, process, produce, where things are awaited.

    Args:
        producer: Begins transactions.
        handler: Makes records of a message.
        taking: What is taken.
        clock: Tells the time, and waits.
    """

    def __init__(
        self,
        producer: Any,
        handler: Callable[[Any], Any],
        taking: Taking,
        clock: tuple[Callable[[], float], Callable[[float], Awaitable[object]]],
    ) -> None:
        self._producer = producer
        self._handler = handler
        self._taking = taking
        self._seconds, self._pause = clock

    async def run(self) -> None:
        """
        Work until the source is closed.

        Raises:
            ProducerFenced: Another producer is at work under this name.
            Exception: What the handler raised, or the source told.
        """
        backoff, failures = self._producer.config.backoff, 0
        try:
            while True:
                messages = await self._first()
                if messages is None:
                    return
                if await self._once(messages):
                    failures = 0
                else:
                    failures += 1
                    await self._pause(backoff.delay(failures, 0.5))
        finally:
            self._taking.give_back()

    async def _first(self) -> list[Any] | None:
        """The messages with which a transaction begins; None at the end."""
        taking = self._taking
        kept = taking.kept()
        if kept:
            return kept
        while True:
            try:
                found = taking.found(await taking.ask(None))
            except ClosedError:
                return None
            if found:
                return found

    async def _once(self, messages: list[Any]) -> bool:
        """Carry out one transaction, and say whether it counts."""
        taking, joined = self._taking, False
        transaction = self._producer.begin()
        try:
            until = self._seconds() + taking.linger_s
            while messages:
                for message in messages:
                    send_all(transaction, await _result(self._handler(message)))
                messages = []
                if taking.count < taking.most:
                    messages = await self._more(until)
            taking.join(transaction)
            joined = True
            await transaction.commit(inf)
        except TransactionAborted:
            if transaction.open:
                await transaction.abort()
            taking.aborted(joined=joined)
            return False
        except BaseException as error:
            if transaction.open:
                ending = transaction.abort()
                if not isinstance(error, GeneratorExit):
                    await _quietly(ending)
            taking.aborted(joined=joined)
            raise
        taking.committed()
        return True

    async def _more(self, until: float) -> list[Any]:
        """More messages, if some come in time."""
        left = max(0.0, until - self._seconds())
        try:
            return self._taking.found(await self._taking.ask(left))
        except ClosedError:
            return []


async def _quietly(ending: Awaitable[object]) -> None:
    """Wait for an end; what the caller raises says more."""
    with suppress(TinyMQError):
        await ending


async def _result(given: Any) -> Any:
    return await given if isawaitable(given) or hasattr(given, "addCallbacks") else given
