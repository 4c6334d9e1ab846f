"""One message of a channel in the hands of a client."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from typing_extensions import override

from tinymq.client.core.fate import Confirmed, Fate
from tinymq.client.core.timing import Moment, Span, at_ms, delay_ms
from tinymq.errors import LeaseLost, TinyMQError, UsageError
from tinymq.wire.messages import FINISH, GIVE_BACK, REJECT, REQUEUE
from tinymq.wire.records import Headers, Record

if TYPE_CHECKING:
    from tinymq.client.core.branch import Branch
    from tinymq.client.core.held import HeldLease

#: Stands for the delay that the channel's back-off has, as None does.
DEFAULT_DELAY: Final = -1
#: The fate of what was settled without asking the broker.
_TAKEN: Final = Fate()
_TAKEN.tell(0, None)
#: Most characters of a reason that travels.
_REASON: Final = 1000


class Standing(Enum):
    """Where a message stands."""

    #: In the hands of the caller.
    HELD = "held"
    #: The caller said what became of it.
    SETTLED = "settled"
    #: The broker knows it.
    CONFIRMED = "confirmed"
    #: Not held any more: somebody else may have it.
    LOST = "lost"


class Keeper(Protocol):
    """The lease that a message is in."""

    @property
    def topic(self) -> str:
        """Name of the topic."""

    @property
    def partition(self) -> int:
        """Number of the partition."""

    @property
    def lease_id(self) -> int:
        """Its number; 0 when the broker has settled the message already."""

    @property
    def base(self) -> int:
        """The offset of its first bit."""

    @property
    def attempt(self) -> int:
        """The number of this delivery."""

    @property
    def failures(self) -> int:
        """How often its messages failed before."""

    def finish(self, message: QueueMessage) -> Fate:
        """Settle a message for good, and return what the broker says of that."""

    def settle(self, message: QueueMessage, verb: int, facts: dict[str, Any]) -> Fate:
        """Tell the broker soon what became of a message; return what it says of that."""

    def touch(self, message: QueueMessage) -> None:
        """Renew a message soon."""


class QueueMessage:
    """
    A message that is yours until you settle it.

    While it is yours its lease is renewed by the client; `lost` says when that failed.
    It is settled once: `finish`, `requeue`, `reject` or `give_back`. What became of
    all messages of a turn travels in one frame, at its end or a few milliseconds later.

    Args:
        record: What was published.
        keeper: The lease that it is in.
        now: The time.

    Attributes:
        record: What was published.
        held: Whether it is still yours and not settled.
        started: When it was handed out or touched, on the client's clock.
    """

    __slots__ = ("_confirmed", "_fate", "_keeper", "_lost", "held", "record", "started")

    def __init__(self, record: Record, keeper: Keeper, now: float) -> None:
        self.record = record
        self.held = True
        self.started = now
        self._keeper = keeper
        #: What the broker says of its settle; None before.
        self._fate: Fate | None = None
        self._lost: list[Callable[[], None]] | None = None
        self._confirmed: list[Confirmed] | None = None

    @override
    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.topic}/{self.partition} offset={self.offset} "
            f"attempt={self.attempt} {self.standing.value}>"
        )

    # --- what it says ----------------------------------------------------------

    @property
    def topic(self) -> str:
        """Name of the topic."""
        return self._keeper.topic

    @property
    def partition(self) -> int:
        """Number of the partition."""
        return self._keeper.partition

    @property
    def attempt(self) -> int:
        """The number of this delivery, from 1."""
        return self._keeper.attempt

    @property
    def failures(self) -> int:
        """How often it failed before."""
        return self._keeper.failures

    @property
    def lease(self) -> int:
        """The lease that it is in; 0 when the broker has settled it already."""
        return self._keeper.lease_id

    @property
    def bit(self) -> int:
        """Which message of the lease it is."""
        return self.record.offset - self._keeper.base

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
    def standing(self) -> Standing:
        """Where it stands."""
        if self.held:
            return Standing.HELD
        if self._fate is None:
            return Standing.LOST
        if not self._fate.done:
            return Standing.SETTLED
        wrong = self._fate.error_of(1 << self.bit)
        return Standing.CONFIRMED if wrong is None else Standing.LOST

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
        if not self.held:
            self._check()
        self.held = False
        keeper = self._keeper
        if keeper.lease_id:
            self._fate = keeper.finish(self)
            if self._confirmed is not None:
                self._hand_over(self._fate)
        else:
            self._take()

    def requeue(
        self,
        delay_s: Span | None = None,
        reason: str = "",
        *,
        failure: bool = True,
        at: Moment | None = None,
    ) -> None:
        """
        Let it come again, as after an error.

        Args:
            delay_s: When, in seconds or as a timedelta; None, or -1, means as the
                channel's back-off says, or at once if it did not fail.
            reason: What went wrong, for the dead-letter topic.
            failure: Whether it failed, of which the channel allows so many.
            at: When instead: a datetime with its zone, or milliseconds since the epoch.

        Raises:
            LeaseLost: It is not yours any more.
            InvalidDelay: It is negative, no number, or beyond the year 9999.
            UsageError: It was settled before, or delay and time are both given.
        """
        self.settle(REQUEUE, facts_of(delay_s, reason, failure=failure, at=at))

    def reject(self, reason: str = "") -> None:
        """
        Give it up: it goes to the dead-letter topic.

        Args:
            reason: Why.

        Raises:
            LeaseLost: It is not yours any more.
            UsageError: It was settled before.
        """
        self.settle(REJECT, facts_of(None, reason, failure=True))

    def give_back(self) -> None:
        """
        Let somebody else have it, as if it had not been delivered.

        Raises:
            LeaseLost: It is not yours any more.
            UsageError: It was settled before.
        """
        self.settle(GIVE_BACK, {})

    def touch(self) -> None:
        """
        Say that the work goes on: the time that a handler may take begins anew.

        Raises:
            LeaseLost: It is not yours any more.
            UsageError: It was settled before.
        """
        self._check()
        if self._keeper.lease_id:
            self._keeper.touch(self)

    def when_lost(self, call: Callable[[], None]) -> None:
        """
        Call when it is not yours any more without your doing.

        Args:
            call: What to call; at once if that has happened already.
        """
        if self.is_lost:
            call()
        elif self._lost is None:
            self._lost = [call]
        else:
            self._lost.append(call)

    def when_confirmed(self, call: Confirmed) -> None:
        """
        Call when the broker has written down what became of it.

        Args:
            call: Told None, or why it did not take that, such as `LeaseLost`.
        """
        if self._fate is not None:
            self._fate.when_done(1 << self.bit, call)
        elif not self.held:
            call(lost())
        elif self._confirmed is None:
            self._confirmed = [call]
        else:
            self._confirmed.append(call)

    def settle(self, verb: int, facts: dict[str, Any]) -> None:
        """
        Say what became of it.

        Args:
            verb: A verb of SETTLE.
            facts: More about that.

        Raises:
            LeaseLost: It is not yours any more.
            UsageError: It was settled before.
        """
        if verb == FINISH:
            self.finish()
            return
        self._check()
        if self._keeper.lease_id:
            self.held = False
            self._fate = self._keeper.settle(self, verb, facts)
            self._hand_over(self._fate)
            return
        if verb in (REQUEUE, REJECT):
            raise UsageError("the channel delivers at most once: the message was settled before")
        self.held = False
        self._take()

    # --- transactions -------------------------------------------------------------

    def check_held(self) -> None:
        """
        See whether it may be settled.

        Raises:
            LeaseLost: It is not yours any more.
            UsageError: It was settled before.
        """
        self._check()

    @property
    def branch(self) -> Branch:
        """
        The part of the subscription that it came from.

        Raises:
            UsageError: It is handled in a thread of its own.
        """
        found: Branch | None = getattr(self._keeper, "branch", None)
        if found is None:
            raise UsageError("a message in a thread's hands cannot be part of a transaction")
        return found

    def taken(self) -> None:
        """Note that it was settled with a transaction, which its broker knows."""
        if self.held:
            self.held = False
            cast("HeldLease", self._keeper).release(self)
            self._take()

    def gone(self) -> None:
        """Note that it is not held any more, since its transaction had it and was aborted."""
        if self.held:
            cast("HeldLease", self._keeper).release(self)
            self.lose()

    # --- told by its keeper ----------------------------------------------------

    def keep_by(self, wrap: Callable[[Keeper], Keeper]) -> None:
        """
        Have it kept by somebody else.

        Args:
            wrap: Makes the new keeper of the old one.
        """
        self._keeper = wrap(self._keeper)

    def lose(self) -> None:
        """Note that it is not held any more."""
        self.held = False
        calls, self._lost = self._lost, None
        for call in calls or ():
            call()
        self._tell(lost())

    # --- inside ----------------------------------------------------------------

    def _hand_over(self, fate: Fate) -> None:
        """Let those who wait hear what the broker will say."""
        calls, self._confirmed = self._confirmed, None
        for call in calls or ():
            fate.when_done(1 << self.bit, call)

    def _take(self) -> None:
        """Settle it without a word to the broker, who has done so already."""
        self._fate = _TAKEN
        self._tell(None)

    def _tell(self, error: TinyMQError | None) -> None:
        calls, self._confirmed = self._confirmed, None
        for call in calls or ():
            call(error)

    def _check(self) -> None:
        if self.held:
            return
        if self.is_lost:
            raise lost()
        raise UsageError("the message was settled before")


def facts_of(
    delay_s: Span | None, reason: str, *, failure: bool, at: Moment | None = None
) -> dict[str, Any]:
    """
    Write down how a message is settled.

    Args:
        delay_s: When it comes again; None, or `DEFAULT_DELAY`, as the channel says.
        reason: What went wrong.
        failure: Whether it failed.
        at: When it comes again instead.

    Raises:
        InvalidDelay: It is negative, no number, or beyond the year 9999.
        UsageError: Delay and time are both given, or of another type.
    """
    facts: dict[str, Any] = {}
    if at is not None:
        if delay_s is not None:
            raise UsageError("give a delay or a time, not both")
        facts["a"] = at_ms(at)
    elif delay_s is not None and delay_s != DEFAULT_DELAY:
        facts["d"] = delay_ms(delay_s)
    if reason:
        facts["x"] = reason[:_REASON]
    if not failure:
        facts["f"] = False
    return facts


def lost() -> LeaseLost:
    """Make the error of a message that is not held any more."""
    return LeaseLost("the message is not held any more: its lease was over or taken back")
