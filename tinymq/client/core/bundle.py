"""Messages of a channel that a client was handed together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from typing_extensions import override

from tinymq.client.core.fate import Confirmed
from tinymq.client.core.held import Maker, Part
from tinymq.client.core.message import QueueMessage, facts_of, lost
from tinymq.client.core.parcels import values_in
from tinymq.client.core.timing import Moment, Span
from tinymq.errors import TinyMQError, UsageError
from tinymq.wire.messages import FINISH, GIVE_BACK, REJECT, REQUEUE
from tinymq.wire.records import Record


class QueueBatch:
    """
    Messages that are yours until you settle them, all at once or one by one.

    While they are yours their leases are renewed. `finish`, `requeue`, `reject` and
    `give_back` are about all that you have not settled and not lost. Whoever looks at
    `messages` may settle some by themselves, and the rest together.

    Args:
        parts: The messages by lease.
        make: Makes messages.
        now: The time.

    Attributes:
        started: When it was handed out or touched, on the client's clock.
        losses: How many messages were lost.
    """

    __slots__ = (
        "_confirmed",
        "_error",
        "_flying",
        "_length",
        "_lost",
        "_make",
        "_messages",
        "_parts",
        "losses",
        "started",
    )

    def __init__(self, parts: Sequence[Part], make: Maker, now: float) -> None:
        self.started = now
        self.losses = 0
        self._parts = parts
        self._make = make
        self._length = 0
        for part in parts:
            part.batch = self
            self._length += part.bits.bit_count()
        self._messages: list[QueueMessage] | None = None
        self._lost: list[Callable[[], None]] = []
        self._confirmed: list[Confirmed] = []
        #: Parts and messages whose settle is not confirmed.
        self._flying = 0
        self._error: TinyMQError | None = None

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[QueueMessage]:
        return iter(self.messages)

    @override
    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._length} messages of {self.topic}>"

    # --- what it says ----------------------------------------------------------

    @property
    def topic(self) -> str:
        """Name of the topic."""
        return self._parts[0].lease.topic

    @property
    def lease(self) -> int:
        """The first lease that it is of; 0 when the brokers have settled it already."""
        return self._parts[0].lease.lease_id

    @property
    def values(self) -> list[bytes | None]:
        """The value of each message; None is a tombstone."""
        return values_in(span for part in self._parts for span in part.spans)

    @property
    def records(self) -> list[Record]:
        """What was published."""
        spans = (span for part in self._parts for span in part.spans)
        return [record for pack, low, high in spans for record in pack.records(low, high)]

    @property
    def messages(self) -> list[QueueMessage]:
        """The messages one by one, but for those that were settled or lost before."""
        if self._messages is None:
            self._messages = [
                message
                for part in self._parts
                if part.bits
                for message in part.lease.alone(part, self._make)
            ]
            self._flying += len(self._messages)
            for message in self._messages:
                message.when_confirmed(self.confirm)
        return self._messages

    @property
    def held(self) -> bool:
        """Whether some of it is still yours and not settled."""
        return any(part.bits for part in self._parts) or any(
            message.held for message in self._messages or ()
        )

    @property
    def is_lost(self) -> bool:
        """Whether the lease of some of it was lost, so that somebody else may have it."""
        return self.losses > 0 or any(message.is_lost for message in self._messages or ())

    # --- what becomes of it ----------------------------------------------------

    def finish(self) -> None:
        """
        Settle for good what is still yours.

        Raises:
            LeaseLost: Nothing is yours any more.
            UsageError: It was settled before.
        """
        self._settle(FINISH, {})

    def requeue(
        self,
        delay_s: Span | None = None,
        reason: str = "",
        *,
        failure: bool = True,
        at: Moment | None = None,
    ) -> None:
        """
        Let what is still yours come again, as after an error.

        Args:
            delay_s: When, in seconds or as a timedelta; None, or -1, means as the
                channel's back-off says, or at once if it did not fail.
            reason: What went wrong, for the dead-letter topic.
            failure: Whether it failed, of which the channel allows so many.
            at: When instead: a datetime with its zone, or milliseconds since the epoch.

        Raises:
            LeaseLost: Nothing is yours any more.
            InvalidDelay: It is negative, no number, or beyond the year 9999.
            UsageError: It was settled before, or delay and time are both given.
        """
        self._settle(REQUEUE, facts_of(delay_s, reason, failure=failure, at=at))

    def reject(self, reason: str = "") -> None:
        """
        Give up what is still yours: it goes to the dead-letter topic.

        Args:
            reason: Why.

        Raises:
            LeaseLost: Nothing is yours any more.
            UsageError: It was settled before.
        """
        self._settle(REJECT, facts_of(None, reason, failure=True))

    def give_back(self) -> None:
        """
        Let somebody else have what is still yours, as if it had not been delivered.

        Raises:
            LeaseLost: Nothing is yours any more.
            UsageError: It was settled before.
        """
        self._settle(GIVE_BACK, {})

    def touch(self) -> None:
        """
        Say that the work goes on: the time that a handler may take begins anew.

        Raises:
            LeaseLost: Nothing is yours any more.
            UsageError: It was settled before.
        """
        self._check()
        for part in self._parts:
            if part.bits and part.lease.lease_id:
                part.lease.touch_part(part)
        for message in self._messages or ():
            if message.held:
                message.touch()

    def when_lost(self, call: Callable[[], None]) -> None:
        """
        Call when some of it is not yours any more without your doing.

        Args:
            call: What to call, once; at once if that has happened already.
        """
        if self.losses:
            call()
        else:
            self._lost.append(call)

    def when_confirmed(self, call: Confirmed) -> None:
        """
        Call when the brokers have written down what became of it.

        Args:
            call: Told None, or why they did not take that, such as `LeaseLost`.
        """
        if self._flying or self.held:
            self._confirmed.append(call)
        else:
            call(self._error)

    # --- told by its keeper ----------------------------------------------------

    def lose(self, count: int) -> None:
        """
        Note that some messages are not held any more.

        Args:
            count: How many.
        """
        self.losses += count
        self._error = self._error or lost()
        calls, self._lost = self._lost, []
        for call in calls:
            call()
        self._tell()

    def confirm(self, error: TinyMQError | None) -> None:
        """
        Note what a broker said of some of it.

        Args:
            error: Why it did not take what became of it, or None.
        """
        self._flying -= 1
        self._error = self._error or error
        self._tell()

    # --- inside ----------------------------------------------------------------

    def _tell(self) -> None:
        if self._confirmed and not self._flying and not self.held:
            calls, self._confirmed = self._confirmed, []
            for call in calls:
                call(self._error)

    def _check(self) -> None:
        if not self.held:
            if self.is_lost:
                raise lost()
            raise UsageError("the messages were settled before")

    def _settle(self, verb: int, facts: dict[str, Any]) -> None:
        self._check()
        if verb in (REQUEUE, REJECT) and not self._parts[0].lease.lease_id:
            raise UsageError("the channel delivers at most once: it was settled before")
        for part in self._parts:
            if part.bits:
                self._flying += 1
                if part.lease.lease_id:
                    bits = part.bits
                    fate = part.lease.settle_part(part, verb, facts)
                    fate.when_done(bits, self.confirm)
                else:
                    part.bits = 0
                    self.confirm(None)
        for message in self._messages or ():
            if message.held:
                message.settle(verb, facts)
