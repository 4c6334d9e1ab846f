"""Messages that guards are given, and the three kinds of handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from twisted.internet.defer import Deferred, succeed

from tinymq.patterns.idempotence.calling import Handler


class Message:
    """
    A message of a channel.

    Attributes:
        fate: What became of it: "", "finished", "requeued", "rejected" or "given back".
        reason: Why.
    """

    topic = "t"
    partition = 0
    timestamp = 1_800_000_000_000

    def __init__(
        self,
        offset: int = 0,
        key: bytes | None = b"k",
        headers: Iterable[tuple[str, bytes]] = (),
        attempt: int = 1,
    ) -> None:
        self.offset = offset
        self.key = key
        self.headers = tuple(headers)
        self.attempt = attempt
        self.value = b"%d" % offset
        self.held = True
        self.is_lost = False
        self.fate = ""
        self.reason = ""
        self._lost: list[Callable[[], None]] = []

    def _settle(self, fate: str, reason: str = "") -> None:
        assert self.held, f"it was {self.fate} already"
        self.held, self.fate, self.reason = False, fate, reason

    def finish(self) -> None:
        """Note it."""
        self._settle("finished")

    def requeue(
        self,
        delay_s: float | None = None,
        reason: str = "",
        *,
        failure: bool = True,
        at: Any = None,
    ) -> None:
        """Note it."""
        self._settle("requeued", reason)

    def reject(self, reason: str = "") -> None:
        """Note it."""
        self._settle("rejected", reason)

    def give_back(self) -> None:
        """Note it."""
        self._settle("given back")

    def when_lost(self, call: Callable[[], None]) -> None:
        """Call when it is lost."""
        self._lost.append(call)

    def again(self) -> Message:
        """Make its next delivery."""
        made = Message(self.offset, self.key, self.headers, self.attempt + 1)
        made.partition = self.partition
        return made

    def lose(self) -> None:
        """Lose it."""
        self.held, self.is_lost = False, True
        for call in self._lost:
            call()


class GroupMessage:
    """A message of a group."""

    def __init__(self, inner: Message) -> None:
        self.topic, self.partition, self.offset = inner.topic, inner.partition, inner.offset
        self.key, self.headers, self.value = inner.key, inner.headers, inner.value
        self.timestamp = inner.timestamp
        self.is_done = False
        self.is_lost = False

    def done(self) -> None:
        """Note it."""
        assert not self.is_done
        self.is_done = True


def version(number: int, key: bytes = b"k") -> Message:
    """Make a message with a version."""
    return Message(number, key, [("version", b"%d" % number)])


def plain(work: Handler) -> Handler:
    """Make a plain handler."""
    return work


def coroutine(work: Handler) -> Handler:
    """Make a coroutine function that waits."""

    async def handle(*arguments: Any) -> Any:
        await asyncio.sleep(0)
        return work(*arguments)

    return handle


def deferring(work: Handler) -> Handler:
    """Make a handler that returns a Deferred."""

    def handle(*arguments: Any) -> Deferred[Any]:
        return succeed(None).addCallback(lambda _: work(*arguments))

    return handle


#: The kinds of handlers.
KINDS = [plain, coroutine, deferring]


def run(handler: Handler, *arguments: Any) -> Any:
    """Call a handler, and wait for it, whatever kind it is."""
    result = handler(*arguments)
    if isinstance(result, Deferred):
        found: list[Any] = []
        result.addBoth(found.append)
        (value,) = found
        if hasattr(value, "raiseException"):
            value.raiseException()
        return value
    if asyncio.iscoroutine(result):
        return asyncio.run(_awaited(result))
    return result


async def _awaited(result: Any) -> Any:
    return await result
