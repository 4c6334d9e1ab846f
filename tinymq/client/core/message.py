"""One message of a channel in the hands of a client."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol

from typing_extensions import override

from tinymq.errors import LeaseLost, TinyMQError, UsageError
from tinymq.wire.messages import FINISH, GIVE_BACK, REJECT, REQUEUE
from tinymq.wire.records import Headers, Record

#: Stands for the delay that the channel's back-off has, as None does.
DEFAULT_DELAY: Final = -1
#: Most characters of a reason that travels.
_REASON: Final = 1000


class Standing(Enum):
    """Where a message stands."""

    #: Not handed out yet.
    READY = "ready"
    #: In the hands of the caller.
    HELD = "held"
    #: The caller said what became of it.
    SETTLED = "settled"
    #: The broker knows it.
    CONFIRMED = "confirmed"
    #: Not held any more: somebody else may have it.
    LOST = "lost"


class Slot(NamedTuple):
    """
    The place of a message in a lease.

    Attributes:
        lease: The lease; 0 when the broker has settled the message already.
        bit: Which message of the lease.
        attempt: The number of this delivery, from 1.
        failures: How often the message failed before.
    """

    lease: int
    bit: int
    attempt: int
    failures: int


class Keeper(Protocol):
    """Who keeps the lease that a message is in."""

    def settle(self, message: QueueMessage, verb: int, facts: dict[str, Any]) -> None:
        """Tell the broker soon what became of a message."""

    def touch(self, message: QueueMessage) -> None:
        """Renew a message soon."""

    def taken(self) -> None:
        """A message without a lease was handed out."""


class QueueMessage:
    """
    A message that is yours until you settle it.

    While it is yours its lease is renewed by the client; `lost` says when that failed.
    It is settled once: `finish`, `requeue`, `reject` or `give_back`. What became of
    all messages of a turn travels in one frame.

    Args:
        topic: Name of the topic.
        partition: Number of the partition.
        record: What was published.
        slot: Its place in a lease.
        keeper: Who keeps the lease.

    Attributes:
        topic: Name of the topic.
        partition: Number of the partition.
        record: What was published.
        attempt: The number of this delivery, from 1.
        failures: How often it failed before.
        lease: The lease that it is in.
        bit: Which message of the lease.
        standing: Where it stands.
        started: When it was handed out or touched, on the client's clock; None before.
    """

    __slots__ = (
        "_confirmed",
        "_error",
        "_keeper",
        "_lost",
        "attempt",
        "bit",
        "failures",
        "lease",
        "partition",
        "record",
        "standing",
        "started",
        "topic",
    )

    def __init__(
        self, topic: str, partition: int, record: Record, slot: Slot, keeper: Keeper
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.record = record
        self.lease, self.bit, self.attempt, self.failures = slot
        self.standing = Standing.READY
        self.started: float | None = None
        self._keeper = keeper
        self._error: TinyMQError | None = None
        self._lost: list[Callable[[], None]] | None = None
        self._confirmed: list[Callable[[TinyMQError | None], None]] | None = None

    @override
    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.topic}/{self.partition} offset={self.offset} "
            f"attempt={self.attempt} {self.standing.value}>"
        )

    # --- what it says ----------------------------------------------------------

    @property
    def value(self) -> bytes | None:
        """Its value; None is a tombstone."""
        return self.record.value

    @property
    def key(self) -> bytes | None:
        """Its key, or None."""
        return self.record.key

    @property
    def headers(self) -> Headers:
        """Its headers."""
        return self.record.headers

    @property
    def offset(self) -> int:
        """Its place in the partition."""
        return self.record.offset

    @property
    def timestamp(self) -> int:
        """When the broker appended it, milliseconds since the epoch."""
        return self.record.timestamp

    @property
    def held(self) -> bool:
        """Whether it is still yours and not settled."""
        return self.standing in (Standing.READY, Standing.HELD)

    @property
    def is_lost(self) -> bool:
        """Whether its lease was lost, so that somebody else may have it."""
        return self.standing is Standing.LOST

    # --- what becomes of it ----------------------------------------------------

    def finish(self) -> None:
        """
        Settle it for good.

        Raises:
            LeaseLost: It is not yours any more.
            UsageError: It was settled before.
        """
        self._settle(FINISH, {})

    def requeue(
        self, delay_s: float | None = None, reason: str = "", *, failure: bool = True
    ) -> None:
        """
        Let it come again, as after an error.

        Args:
            delay_s: When; None, or -1, means as the channel's back-off says, or at
                once if it did not fail.
            reason: What went wrong, for the dead-letter topic.
            failure: Whether it failed, of which the channel allows so many.

        Raises:
            LeaseLost: It is not yours any more.
            UsageError: It was settled before, or the delay is negative.
        """
        facts: dict[str, Any] = {}
        if delay_s is not None and delay_s != DEFAULT_DELAY:
            if delay_s < 0:
                raise UsageError(f"a delay cannot be negative: {delay_s!r}")
            facts["d"] = round(delay_s * 1000)
        if reason:
            facts["x"] = reason[:_REASON]
        if not failure:
            facts["f"] = False
        self._settle(REQUEUE, facts)

    def reject(self, reason: str = "") -> None:
        """
        Give it up: it goes to the dead-letter topic.

        Args:
            reason: Why.

        Raises:
            LeaseLost: It is not yours any more.
            UsageError: It was settled before.
        """
        self._settle(REJECT, {"x": reason[:_REASON]} if reason else {})

    def give_back(self) -> None:
        """
        Let somebody else have it, as if it had not been delivered.

        Raises:
            LeaseLost: It is not yours any more.
            UsageError: It was settled before.
        """
        self._settle(GIVE_BACK, {})

    def touch(self) -> None:
        """
        Say that the work goes on: the time that a handler may take begins anew.

        Raises:
            LeaseLost: It is not yours any more.
            UsageError: It was settled before.
        """
        self._check()
        if self.lease:
            self._keeper.touch(self)

    def when_lost(self, call: Callable[[], None]) -> None:
        """
        Call when it is not yours any more without your doing.

        Args:
            call: What to call; at once if that has happened already.
        """
        if self.standing is Standing.LOST:
            call()
        elif self._lost is None:
            self._lost = [call]
        else:
            self._lost.append(call)

    def when_confirmed(self, call: Callable[[TinyMQError | None], None]) -> None:
        """
        Call when the broker has written down what became of it.

        Args:
            call: Told None, or why it did not take that, such as `LeaseLost`.
        """
        if self._error is not None or self.standing is Standing.CONFIRMED:
            call(self._error)
        elif self.standing is Standing.LOST:
            call(lost())
        elif self._confirmed is None:
            self._confirmed = [call]
        else:
            self._confirmed.append(call)

    # --- told by its keeper ----------------------------------------------------

    def keep_by(self, wrap: Callable[[Keeper], Keeper]) -> None:
        """
        Have it kept by somebody else.

        Args:
            wrap: Makes the new keeper of the old one.
        """
        self._keeper = wrap(self._keeper)

    def hand_out(self, now: float) -> None:
        """
        Note that it is in the caller's hands.

        Args:
            now: The time.
        """
        self.standing = Standing.HELD
        self.started = now
        if not self.lease:
            self._keeper.taken()

    def lose(self) -> None:
        """Note that it is not held any more."""
        self.standing = Standing.LOST
        calls, self._lost = self._lost, None
        for call in calls or ():
            call()
        self._tell(lost())

    def confirm(self, error: TinyMQError | None) -> None:
        """
        Note what the broker said of it.

        Args:
            error: Why it did not take what became of it, or None.
        """
        self.standing = Standing.CONFIRMED if error is None else Standing.LOST
        self._error = error
        self._tell(error)

    # --- inside ----------------------------------------------------------------

    def _tell(self, error: TinyMQError | None) -> None:
        calls, self._confirmed = self._confirmed, None
        for call in calls or ():
            call(error)

    def _check(self) -> None:
        if self.standing is Standing.LOST:
            raise lost()
        if not self.held:
            raise UsageError("the message was settled before")

    def _settle(self, verb: int, facts: dict[str, Any]) -> None:
        self._check()
        if self.lease:
            self.standing = Standing.SETTLED
            self._keeper.settle(self, verb, facts)
            return
        if verb in (REQUEUE, REJECT):
            raise UsageError("the channel delivers at most once: the message was settled before")
        self.confirm(None)


def lost() -> LeaseLost:
    """Make the error of a message that is not held any more."""
    return LeaseLost("the message is not held any more: its lease was over or taken back")
