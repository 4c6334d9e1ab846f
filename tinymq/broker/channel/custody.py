"""Leases while time passes, and while their holders come and go."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from tinymq.broker.channel.core import Core
from tinymq.broker.channel.entries import BACK
from tinymq.broker.channel.lease import WHOLE, Lease, Lost, Settle, transaction_of
from tinymq.broker.channel.picking import Picker
from tinymq.broker.channel.returns import Failure, Requeue, Returns
from tinymq.limits import LATEST_MS

#: Deadlines of leases that ended are dropped when there are so many.
_STALE: Final = 1000


class _Absence(NamedTuple):
    """A consumer whose link was lost."""

    until: int
    #: Whether it held messages elsewhere, so that no message was lost alone.
    busy: bool
    #: Whether it was the broker that went away.
    blameless: bool


class Custody:
    """
    Keeps the leases of a channel.

    Args:
        core: The middle of the channel.
        returns: The way back of its messages.
        picker: Who chooses its messages.
    """

    def __init__(self, core: Core, returns: Returns, picker: Picker) -> None:
        self._core = core
        self._returns = returns
        self._picker = picker
        self._absent: dict[str, _Absence] = {}
        self._deadlines: list[tuple[int, list[int]]] = []
        self._timed = 0
        self._time_all()

    def expire(self, now: int, chance: float = 0.0) -> list[Lost]:
        """
        Take back leases whose time is over.

        A message whose lease ends with nobody else in it failed; of several,
        nobody can say which was at fault, so they come back one by one.

        Args:
            now: The time.
            chance: From 0 to 1, for the jitter of the back-off.

        Returns:
            Who is to be told what it lost.
        """
        places = self._core.places
        places.wake(now)
        if places.undo is not None and places.undo.until <= now:
            places.undo = None
        for consumer in [name for name, absence in self._absent.items() if absence.until <= now]:
            self._lapse(consumer, self._absent.pop(consumer), now, chance)
        lost: list[Lost] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            _, ids = heappop(self._deadlines)
            self._timed -= len(ids)
            for lease_id in ids:
                lease = places.leases.get(lease_id)
                if lease is not None and lease.holder not in self._absent:
                    lost += self._expire(lease, now, chance)
        return lost

    def _expire(self, lease: Lease, now: int, chance: float) -> list[Lost]:
        bits, holder = lease.overdue(now), lease.holder
        revoked: list[Lost] = []
        if now >= lease.deadline and bits != lease.bits:
            lease.go_on()
        if bits:
            self._picker.guard = None
            revoked = self._expired(lease, bits, now, chance)
        if lease.lease_id in self._core.places.leases:
            self.time(lease.deadline, [lease.lease_id])
        return [Lost(holder, lease.lease_id, bits), *revoked] if bits else []

    def _expired(self, lease: Lease, bits: int, now: int, chance: float) -> list[Lost]:
        count = bits.bit_count()
        self._core.counters.timed_out += count
        self._core.overdue.add(lease, bits, now)
        if count > 1:
            self._returns.suspect(lease, bits, now, "timeout")
        elif self._returns.fail(
            lease, bits, now, Failure("timeout", "", 1), Requeue(chance=chance)
        ):
            return []
        return self._returns.revoke(lease.holder, [(lease.base, bits)], now)

    def next_time(self) -> int | None:
        """Return when something will be due, or may be; None if nothing is."""
        times = [absence.until for absence in self._absent.values()]
        if self._deadlines:
            times.append(self._deadlines[0][0])
        if self._core.places.waiting:
            times.append(self._core.places.waiting[0][0])
        if self._core.places.undo is not None:
            times.append(self._core.places.undo.until)
        return min(times, default=None)

    def time(self, deadline: int, ids: list[int]) -> None:
        """
        Look after leases.

        Args:
            deadline: When they are over.
            ids: Which ones.
        """
        heappush(self._deadlines, (deadline, ids))
        self._timed += len(ids)
        if self._timed > 2 * len(self._core.places.leases) + _STALE:
            self._time_all()

    def _time_all(self) -> None:
        leases = self._core.places.leases.values()
        # What a transaction holds has no end by time.
        self._deadlines = [
            (lease.deadline, [lease.lease_id]) for lease in leases if lease.deadline < LATEST_MS
        ]
        heapify(self._deadlines)
        self._timed = len(self._deadlines)

    def lost(self, consumer: str, now: int, grace: int, *, busy: bool = False) -> None:
        """
        Keep what a consumer holds for a while: its link was lost.

        Args:
            consumer: Who it is.
            now: The time.
            grace: Milliseconds.
            busy: Whether it held messages of other partitions.
        """
        self._picker.let_go(consumer)
        if consumer in self._core.places.holders:
            self._absent[consumer] = _Absence(now + grace, busy, blameless=False)

    def restarted(self, now: int, grace: int) -> None:
        """
        Keep what all consumers hold for a while: the broker was away.

        Args:
            now: The time.
            grace: Milliseconds.
        """
        for consumer in self._core.places.holders:
            if transaction_of(consumer) is not None:
                continue  # it waits for what the coordinator decides
            self._absent[consumer] = _Absence(now + grace, busy=False, blameless=True)

    def resume(self, consumer: str, now: int) -> list[Settle]:
        """
        Let a consumer go on whose link was lost; its leases begin anew.

        Args:
            consumer: Who it is.
            now: The time.

        Returns:
            What it holds. It gives back what it does not know of.
        """
        holder = self._core.places.holders.get(consumer)
        if self._absent.pop(consumer, None) is None or holder is None:
            return []
        until = now + self._core.policy.lease_ms
        for lease_id in holder.leases:
            lease = self._core.places.leases[lease_id]
            lease.touch(WHOLE, until)
        self.time(until, list(holder.leases))
        return [(lease_id, self._core.places.leases[lease_id].bits) for lease_id in holder.leases]

    @property
    def absent(self) -> dict[str, int]:
        """The consumers whose leases are kept for them, and until when."""
        return {name: absence.until for name, absence in self._absent.items()}

    def _lapse(self, consumer: str, absence: _Absence, now: int, chance: float) -> None:
        """Take back what a consumer holds that did not return in time."""
        holder = self._core.places.holders.get(consumer)
        if holder is None:
            return
        self._core.counters.lost += holder.held
        by_itself = holder.held == 1 and not absence.busy
        for lease_id in list(holder.leases):
            lease = self._core.places.leases[lease_id]
            if absence.blameless:
                past = lease.history
                facts = (past.deliveries + 1, past.failures, past.alone)
                self._core.move(now, consumer, (BACK, lease_id, lease.bits, 1, *facts, "lost"))
            elif by_itself:
                self._returns.fail(
                    lease, lease.bits, now, Failure("lost", "", 1), Requeue(chance=chance)
                )
            else:
                self._returns.suspect(lease, lease.bits, now, "lost")

    def forget(self, consumer: str) -> None:
        """
        Keep nothing for a consumer any more, for it holds nothing.

        Args:
            consumer: Who it is.
        """
        self._absent.pop(consumer, None)
        self._picker.let_go(consumer)
