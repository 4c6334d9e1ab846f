"""Leases that time took away lately: pages show them a little longer, and members are charged."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from tinymq.broker.channel.lease import Lease

#: Milliseconds for which they are shown.
SHOWN_MS: Final = 10_000
#: Leases that are remembered at most.
_MOST: Final = 1000


class TimedOut(NamedTuple):
    """
    What was lost by time.

    Attributes:
        at: When.
        holder: Who held it.
        base: The offset of bit 0.
        bits: Which offsets.
        attempt: The number of their delivery.
        failures: How often they had failed before it.
        since: When they were given out.
        deadline: When the lease was over.
    """

    at: int
    holder: str
    base: int
    bits: int
    attempt: int
    failures: int
    since: int
    deadline: int


class Overdue:
    """What a channel on a partition lost by time; bounded, and not kept over a restart."""

    __slots__ = ("_charged", "_rows")

    def __init__(self) -> None:
        self._rows: deque[TimedOut] = deque(maxlen=_MOST)
        self._charged: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._rows)

    def add(self, lease: Lease, bits: int, now: int) -> None:
        """
        Remember a loss.

        Args:
            lease: As it was before.
            bits: What of it is lost.
            now: The time.
        """
        past = lease.history
        self._rows.append(
            TimedOut(
                now,
                lease.holder,
                lease.base,
                bits,
                past.deliveries + 1,
                past.failures,
                lease.since,
                lease.deadline,
            )
        )
        self._charged[lease.holder] = self._charged.get(lease.holder, 0) + bits.bit_count()

    def charged(self) -> dict[str, int]:
        """Return how many messages each consumer lost since the last call."""
        charged, self._charged = self._charged, {}
        return charged

    def lately(self, now: int) -> Iterator[TimedOut]:
        """
        Yield what is still shown, the oldest loss first.

        Args:
            now: The time.
        """
        while self._rows and self._rows[0].at + SHOWN_MS <= now:
            self._rows.popleft()
        yield from self._rows
