"""One consumer of a channel, as a broker sees it over all of its partitions."""

from __future__ import annotations

from typing import Final

from tinymq.broker.channel.credit import Credit
from tinymq.broker.channel.pace import Pace

_NO_BOUND: Final = 1 << 62


class Consumer:
    """
    A subscription of a session to a channel.

    Args:
        name: Made of session and subscription, so the same after a reconnect.
        window: How many messages it wants in flight at most.

    Attributes:
        in_flight: What it holds, in all partitions of this broker.
        ready: Whether its link takes more just now.
        most: How many messages to send in this turn, whatever its credit.
        empties: For whose sake it is given nothing by others until it holds
            nothing: a message of a partition must be given out alone.
        finished: Messages that it settled for good.
        requeued: Messages that it gave back to come again.
        rejected: Messages that it gave up.
        timed_out: Messages that it kept for too long.
        pace: How fast it finishes, and is done with messages in whatever way.
    """

    __slots__ = (
        "credit",
        "empties",
        "finished",
        "in_flight",
        "most",
        "name",
        "pace",
        "ready",
        "rejected",
        "requeued",
        "timed_out",
    )

    def __init__(self, name: str, window: int) -> None:
        self.name = name
        self.credit = Credit(window)
        self.in_flight = 0
        self.ready = True
        self.most = _NO_BOUND
        self.empties: object | None = None
        self.finished = 0
        self.requeued = 0
        self.rejected = 0
        self.timed_out = 0
        self.pace = Pace()

    @property
    def done(self) -> tuple[int, int]:
        """How many messages it finished, and with how many it was done in whatever way."""
        return self.finished, self.finished + self.requeued + self.rejected

    @property
    def room(self) -> int:
        """How many messages to send now."""
        return min(self.most, self.credit.usable(self.in_flight)) if self.ready else 0
