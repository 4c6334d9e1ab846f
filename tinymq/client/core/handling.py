"""What handlers are given, and what becomes of it when they have ended."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import iscoroutine
from typing import Any

from attrs import frozen
from typing_extensions import override

from tinymq.client.core.fate import Fate
from tinymq.client.core.message import Keeper, QueueMessage, lost
from tinymq.client.core.timing import Moment, Span
from tinymq.errors import LeaseLost, TinyMQError, UsageError


class Reject(Exception):
    """
    Raised by a handler: the message is given up, and goes to the dead-letter topic.

    Args:
        reason: Why.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class Requeue(Exception):
    """
    Raised by a handler: the message comes again.

    Args:
        delay_s: When, in seconds or as a timedelta; None means as the channel's
            back-off says, or at once if it did not fail.
        reason: What went wrong, for the dead-letter topic.
        failure: Whether it failed, of which the channel allows so many.
        at: When instead: a datetime with its zone, or milliseconds since the epoch.
    """

    def __init__(
        self,
        delay_s: Span | None = None,
        reason: str = "",
        *,
        failure: bool = True,
        at: Moment | None = None,
    ) -> None:
        super().__init__(reason)
        self.delay_s = delay_s
        self.reason = reason
        self.failure = failure
        self.at = at


@frozen(kw_only=True)
class Plan:
    """
    How handlers are called.

    Attributes:
        concurrency: How many at once at most.
        manual: Whether handlers settle by themselves.
        batch: Most messages that one is given, as a list; None gives each one message.
        threads: In how many threads of their own they are called; 0 is none.
        cancel_lost: Whether one is cancelled when its messages are not held any more.
    """

    concurrency: int = 1
    manual: bool = False
    batch: int | None = None
    threads: int = 0
    cancel_lost: bool = False

    def __attrs_post_init__(self) -> None:
        for name, least in (("concurrency", 1), ("batch", 1), ("threads", 0)):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < least):
                raise UsageError(f"{name} must be at least {least}, not {value!r}")
        if self.threads and self.concurrency not in {1, self.threads}:
            raise UsageError(
                "threads say how many handlers are at work at once: leave out concurrency"
            )

    @property
    def at_once(self) -> int:
        """How many handlers are at work at once at most."""
        return self.threads or self.concurrency


class Work:
    """
    What one call of a handler has in hand.

    Args:
        messages: At least one.
        plan: How handlers are called.

    Attributes:
        messages: The same.
    """

    __slots__ = ("_plan", "messages")

    def __init__(self, messages: list[Any], plan: Plan) -> None:
        self.messages: list[Any] = messages
        self._plan = plan

    @override
    def __repr__(self) -> str:
        first, *others = self.messages
        return f"{first!r} and {len(others)} more" if others else repr(first)

    @property
    def given(self) -> Any:
        """What the handler is called with."""
        return self.messages[0] if self._plan.batch is None else self.messages

    @property
    def lost(self) -> bool:
        """Whether none of the messages is held any more, without the handler's doing."""
        return all(message.is_lost for message in self.messages)

    @property
    def held(self) -> list[Any]:
        """The messages that are still held and not settled."""
        return [message for message in self.messages if message.held]

    def ended(self) -> None:
        """Settle what the handler left, for it has ended well."""
        if not self._plan.manual:
            for message in self.held:
                message.finish()

    def failed(self, error: BaseException) -> bool:
        """
        Settle what the handler left, for it has not.

        Args:
            error: What it raised.

        Returns:
            Whether people should hear of it.
        """
        for message in self.held:
            if message.lease:
                _settle(message, error)
        return not isinstance(error, (Reject, Requeue)) and not self._was_lost(error)

    def _was_lost(self, error: BaseException) -> bool:
        """Whether it only says that a message was lost, which is counted elsewhere."""
        lost = any(message.is_lost for message in self.messages)
        return lost and isinstance(error, LeaseLost)

    def give_back(self) -> None:
        """Let others have what the handler left."""
        for message in self.held:
            message.give_back()

    def when_lost(self, call: Callable[[], object]) -> None:
        """
        Call when none of the messages is held any more, without the handler's doing.

        Args:
            call: What to call, once.
        """
        left = len(self.messages)

        def lost() -> None:
            nonlocal left
            left -= 1
            if not left:
                call()

        for message in self.messages:
            message.when_lost(lost)

    def from_thread(self, call: Callable[[Callable[[], None]], None]) -> None:
        """
        Let the messages be settled by another thread.

        Args:
            call: Carries something out in the thread of the client.
        """
        for message in self.messages:
            message.keep_by(partial(_thread_keeper, message, call))


def _thread_keeper(
    message: QueueMessage, call: Callable[[Callable[[], None]], None], keeper: Keeper
) -> ThreadKeeper:
    made = ThreadKeeper(keeper, call)
    message.when_lost(made.lose)
    return made


def call_in_thread(handler: Callable[[Any], object], work: Work) -> None:
    """
    Call a handler in a thread of its own, unless its messages were lost on the way there.

    Args:
        handler: A plain function.
        work: What it has in hand.

    Raises:
        UsageError: It is a coroutine function, which has no business there.
    """
    result = None if work.lost else handler(work.given)
    if iscoroutine(result):
        result.close()
        raise UsageError("a coroutine function is not for threads: leave out threads=")


def _settle(message: QueueMessage, error: BaseException) -> None:
    match error:
        case Reject():
            message.reject(error.reason)
        case Requeue():
            message.requeue(error.delay_s, error.reason, failure=error.failure, at=error.at)
        case _:
            message.requeue(reason=reason_of(error))


def reason_of(error: BaseException) -> str:
    """
    Say in a line why a handler failed, for the dead-letter topic.

    Args:
        error: What it raised.
    """
    return f"{type(error).__name__}: {error}"


class ThreadKeeper:
    """
    Keeps a message that is in the hands of another thread.

    Args:
        keeper: Who keeps them.
        call: Carries something out in the thread of that one.
    """

    def __init__(self, keeper: Keeper, call: Callable[[Callable[[], None]], None]) -> None:
        self._keeper = keeper
        self._call = call
        self._lost = False

    @property
    def topic(self) -> str:
        """Name of the topic."""
        return self._keeper.topic

    @property
    def partition(self) -> int:
        """Number of the partition."""
        return self._keeper.partition

    @property
    def lease_id(self) -> int:
        """Its number; 0 when the broker has settled the message already."""
        return self._keeper.lease_id

    @property
    def base(self) -> int:
        """The offset of its first bit."""
        return self._keeper.base

    @property
    def attempt(self) -> int:
        """The number of this delivery."""
        return self._keeper.attempt

    @property
    def failures(self) -> int:
        """How often its messages failed before."""
        return self._keeper.failures

    def finish(self, message: QueueMessage) -> Fate:
        """
        Settle a message for good, if it was not lost meanwhile.

        Args:
            message: The message.

        Returns:
            What the broker says of that.
        """
        return self._fate(message, lambda: self._keeper.finish(message))

    def settle(self, message: QueueMessage, verb: int, facts: dict[str, Any]) -> Fate:
        """
        Tell the broker soon what became of a message, if it was not lost meanwhile.

        Args:
            message: The message.
            verb: What became of it.
            facts: More about that.

        Returns:
            What the broker says of it.
        """
        return self._fate(message, lambda: self._keeper.settle(message, verb, facts))

    def _fate(self, message: QueueMessage, say: Callable[[], Fate]) -> Fate:
        bit = 1 << message.bit
        found = Fate(bit)

        def told(error: TinyMQError | None) -> None:
            found.tell(bit if error is not None else 0, error)

        def settle() -> None:
            if self._lost:
                told(lost())
            else:
                say().when_done(bit, told)

        self._call(settle)
        return found

    def touch(self, message: QueueMessage) -> None:
        """
        Renew a message soon, if it was not lost meanwhile.

        Args:
            message: The message.
        """
        self._call(partial(self._touch, message))

    def _touch(self, message: QueueMessage) -> None:
        if message.held:
            self._keeper.touch(message)

    def lose(self) -> None:
        """Note that the message was lost."""
        self._lost = True
