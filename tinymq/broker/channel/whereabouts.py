"""Where the unsettled messages of a channel are, for people: looking at it changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush, merge
from operator import itemgetter
from typing import Literal, NamedTuple, TypeAlias

from tinymq.broker.channel.history import History
from tinymq.broker.channel.lease import Lease
from tinymq.broker.channel.picking import fresh
from tinymq.broker.channel.places import Doom, Places, Waiting
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


def whereabouts(places: Places, start: int, end: int, now: int) -> Iterator[Whereabouts]:
    """
    Tell where messages are.

    Whoever wants to know of a few pays for a few: of many leases only their places
    are put in order, and those that are come to are looked into.

    Args:
        places: The state of their channel; it must not change meanwhile.
        start: The first offset of interest.
        end: Offset behind the last message that is visible.
        now: The time.

    Returns:
        Runs in order; what is in none is settled, or will never be given out.
    """
    parked = () if places.order is None else places.order.parked.within(start, end)
    beyond = (
        (max(first, start), behind, past)
        for first, behind, past in fresh(places, end)
        if behind > start
    )
    return merge(
        (_of(*run, "ready") for run in places.ready.within(start, end)),
        (_of(*run, "parked") for run in parked),
        (_of(*run, "ready") for run in beyond),
        _scattered(places, start, end, now),
    )


def _of(start: int, end: int, past: History, state: State, due: int | None = None) -> Whereabouts:
    return Whereabouts(start, end, state, past.deliveries, past.failures, due)


def _scattered(places: Places, start: int, end: int, now: int) -> Iterator[Whereabouts]:
    """Yield what lies in groups that are in no order, in order."""
    groups: list[tuple[int, Lease | Doom | Waiting]] = [
        *((each.base, each) for each in places.leases.values()),
        *((each.base, each) for each in places.doomed.values()),
        *((each[1], each) for each in places.waiting),
    ]
    groups.sort(key=itemgetter(0))
    heap: list[Whereabouts] = []
    for base, group in groups:
        while heap and heap[0].start < base:
            yield heappop(heap)
        if base >= end:
            break
        for run in _runs(group, start, end, now):
            heappush(heap, run)
    while heap:
        yield heappop(heap)


def _runs(group: Lease | Doom | Waiting, start: int, end: int, now: int) -> Iterator[Whereabouts]:
    if isinstance(group, Lease):
        past = group.history
        facts = (past.deliveries + 1, past.failures, None)
        for bits, deadline in deadlines(group):
            for first, behind in runs_in(group.base, cut(group.base, bits, start, end)):
                yield Whereabouts(first, behind, "in_flight", *facts, deadline)
    elif isinstance(group, Doom):
        for first, behind in runs_in(group.base, cut(group.base, group.bits, start, end)):
            yield _of(first, behind, group.history, "given_up")
    else:
        due, base, bits, past = group
        # What is due is ready, and the next who asks will find that out.
        state: State = "waiting" if due > now else "ready"
        for first, behind in runs_in(base, cut(base, bits, start, end)):
            yield _of(first, behind, past, state, due if due > now else None)


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
