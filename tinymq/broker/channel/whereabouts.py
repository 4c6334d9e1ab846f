"""Where the unsettled messages of a channel are, for people: looking at it changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias

from tinymq.broker.channel.history import History
from tinymq.broker.channel.lease import Lease
from tinymq.broker.channel.picking import fresh
from tinymq.broker.channel.places import Places
from tinymq.broker.channel.runs import cut, runs_in

State: TypeAlias = Literal["ready", "in_flight", "waiting", "parked", "given_up"]


class Whereabouts(NamedTuple):
    """
    A run of messages that are in the same place.

    Attributes:
        start: The first of them.
        end: The offset behind the last.
        state: Where they are.
        attempt: How often they were given out.
        failures: How often that failed.
        due: When they come again, if they wait.
        deadline: When their lease is over, if they are in flight.
    """

    start: int
    end: int
    state: State
    attempt: int
    failures: int
    due: int | None = None
    deadline: int | None = None


def whereabouts(places: Places, start: int, end: int, now: int) -> list[Whereabouts]:
    """
    Tell where messages are.

    Args:
        places: The state of their channel.
        start: The first offset of interest.
        end: Offset behind the last message that is visible.
        now: The time.

    Returns:
        Runs in order; what is in none is settled, or will never be given out.
    """
    found = [_of(*run, "ready") for run in places.ready.within(start, end)]
    if places.order is not None:
        found += (_of(*run, "parked") for run in places.order.parked.within(start, end))
    for due, base, bits, past in places.waiting:
        # What is due is ready, and the next who asks will find that out.
        state: State = "waiting" if due > now else "ready"
        for first, behind in runs_in(base, cut(base, bits, start, end)):
            found.append(_of(first, behind, past, state, due if due > now else None))
    for lease in places.leases.values():
        found += _held(lease, start, end)
    for doom in places.doomed.values():
        for first, behind in runs_in(doom.base, cut(doom.base, doom.bits, start, end)):
            found.append(_of(first, behind, doom.history, "given_up"))
    for first, behind, past in fresh(places, end):
        if behind > start:
            found.append(_of(max(first, start), behind, past, "ready"))
    return sorted(found)


def _of(start: int, end: int, past: History, state: State, due: int | None = None) -> Whereabouts:
    return Whereabouts(start, end, state, past.deliveries, past.failures, due)


def _held(lease: Lease, start: int, end: int) -> Iterator[Whereabouts]:
    past = lease.history
    for bits, deadline in deadlines(lease):
        for first, behind in runs_in(lease.base, cut(lease.base, bits, start, end)):
            yield Whereabouts(
                *(first, behind, "in_flight"),
                *(past.deliveries + 1, past.failures, None, deadline),
            )


def deadlines(lease: Lease) -> list[tuple[int, int]]:
    """
    Tell when what a lease holds comes back.

    Args:
        lease: The lease.

    Returns:
        Bits and deadlines; a part that was renewed apart has one of its own.
    """
    apart = lease.bits & lease.touched if lease.touched_until > lease.deadline else 0
    found = [(lease.bits & ~apart, lease.deadline), (apart, lease.touched_until)]
    return [each for each in found if each[0]]
