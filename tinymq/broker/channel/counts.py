"""What a channel did and where its messages are: for pages, metrics, and the question why."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from attrs import frozen

if TYPE_CHECKING:
    from tinymq.broker.channel.places import Places
    from tinymq.broker.channel.state import Channel


#: Runs of messages at which is looked for one that fails.
_LOOKED_AT: Final = 1000


class Counters:
    """What a channel did on a partition since the broker started; only ever rising."""

    __slots__ = (
        "expired",
        "finished",
        "first_deliveries",
        "given_up",
        "late",
        "lost",
        "missing",
        "redeliveries",
        "rejected",
        "requeued",
        "returned",
        "skipped",
        "timed_out",
    )

    def __init__(self) -> None:
        self.first_deliveries = 0
        self.redeliveries = 0
        self.finished = 0
        self.requeued = 0
        self.rejected = 0
        self.timed_out = 0
        self.lost = 0
        self.returned = 0
        self.given_up = 0
        self.expired = 0
        self.missing = 0
        self.skipped = 0
        self.late = 0

    def delivered(self, attempt: int, count: int) -> None:
        """
        Count messages given out.

        Args:
            attempt: The number of their delivery.
            count: How many.
        """
        if attempt == 1:
            self.first_deliveries += count
        else:
            self.redeliveries += count

    @property
    def totals(self) -> dict[str, int]:
        """What pages and metrics show of it."""
        return {
            "delivered": self.first_deliveries + self.redeliveries,
            "redelivered": self.redeliveries,
            "finished": self.finished,
            "requeued": self.requeued,
            "rejected": self.rejected,
            "timed_out": self.timed_out,
            "lost": self.lost,
            "given_up": self.given_up,
            "expired": self.expired,
            "skipped": self.skipped,
            "late": self.late,
        }


@frozen(kw_only=True)
class Counts:
    """
    Where the messages of a channel are on one partition.

    Attributes:
        fresh: Never given out.
        ready: Given out before, or passed over, and ready now.
        alone: Those of them that are given out one by one.
        in_flight: In the hands of consumers.
        absent: Those of them whose consumer lost its link.
        leases: In how many leases.
        waiting: Waiting for their next attempt.
        next_due: When the first of them is ready, or None.
        parked: Standing aside behind one of their key.
        doomed: On their way to the dead-letter topic.
        floor: Below it everything is settled.
        cursor: The next offset that is new.
        oldest: The lowest offset that is not settled; None if there is none.
        full: Whether no more may be unsettled below the cursor.
        worst: Failures and offset of the message that failed most, of those first looked at.
        why: Why nothing is given out just now; empty if something can be.
    """

    fresh: int
    ready: int
    alone: int
    in_flight: int
    absent: int
    leases: int
    waiting: int
    next_due: int | None
    parked: int
    doomed: int
    floor: int
    cursor: int
    why: str
    oldest: int | None = None
    full: bool = False
    worst: tuple[int, int] | None = None

    @property
    def backlog(self) -> int:
        """Messages that are not settled, but for those given up."""
        return self.fresh + self.ready + self.in_flight + self.waiting + self.parked


def count(channel: Channel, end: int) -> Counts:
    """
    Count the messages of a channel.

    Args:
        channel: The channel.
        end: Offset behind the last message that is visible.
    """
    places = channel.places
    hidden = places.hidden.intersect(places.ahead).count
    passed = places.ahead.count + places.hidden.count - hidden
    absent = [
        places.holders[name].held for name in channel.custody.absent if name in places.holders
    ]
    parked = 0 if places.order is None else places.order.parked.count
    return Counts(
        fresh=max(0, end - places.cursor - passed),
        ready=places.ready.count,
        alone=places.ready.alone,
        in_flight=places.in_flight,
        absent=sum(absent),
        leases=len(places.leases),
        waiting=places.delayed,
        next_due=places.waiting[0][0] if places.waiting else None,
        parked=parked,
        doomed=places.dooming,
        floor=places.floor,
        cursor=places.cursor,
        oldest=_oldest(places, end),
        full=channel.room <= 0,
        worst=_worst(places),
        why=next(_reasons(channel, end), ""),
    )


def figures(channel: Channel, end: int) -> tuple[int, ...]:
    """
    Return what rates are made of, in the order of `RATED`, and the lag.

    Args:
        channel: The channel.
        end: Offset behind the last message that is visible.
    """
    counters, places = channel.counters, channel.places
    # What is hidden and settled ahead counts twice here, which is rare and does not move.
    fresh = end - places.cursor - places.ahead.count - places.hidden.count
    return (
        counters.first_deliveries + counters.redeliveries,
        counters.finished,
        counters.requeued,
        counters.timed_out,
        end,
        counters.expired,
        max(0, fresh) + places.unsettled,
    )


def _oldest(places: Places, end: int) -> int | None:
    """Find the lowest offset that is not settled; what was given up has left."""
    lowest = [base for _, base, _, _ in places.waiting]
    # Leases are in the order in which they were given out, not in that of offsets.
    lowest += (lease.first for lease in places.leases.values())
    if places.ready:
        lowest.append(places.ready.first)
    if places.order is not None and places.order.parked:
        lowest.append(places.order.parked.first)
    if lowest:
        return min(lowest)
    beyond = places.ahead.missing(places.cursor, end)
    return next((first for run in beyond for first, _ in places.hidden.missing(*run)), None)


def _worst(places: Places) -> tuple[int, int] | None:
    """Find a message that failed often."""
    found = [
        (lease.history.failures, lease.first)
        for lease in islice(places.leases.values(), _LOOKED_AT)
    ]
    found += ((past.failures, base) for _, base, _, past in islice(places.waiting, _LOOKED_AT))
    found += ((past.failures, start) for start, _, past in islice(places.ready, _LOOKED_AT))
    failures, offset = max(found, default=(0, 0), key=itemgetter(0))
    return (failures, offset) if failures else None


def _reasons(channel: Channel, end: int) -> Iterator[str]:
    """Yield why nothing is given out, the best reason first."""
    places, ready = channel.places, channel.places.ready
    if places.paused:
        yield "it is paused"
    if channel.looking.incomplete:
        yield "its messages are being looked at again"
    if channel.policy.order == "strict" and (places.leases or places.waiting):
        yield "the order is strict, and what comes before is in flight or waits"
    if ready.count > ready.alone:
        return
    if ready.alone and places.cursor >= end:
        yield "what is left was lost with its consumer and waits for one that holds nothing"
    if places.cursor < end:
        if channel.room <= 0:
            yield f"{places.unsettled} messages are not settled, which is the most allowed"
        if channel.looking.end(end) <= places.cursor:
            yield "messages are being looked at"
    else:
        yield _where_all_is(places)


def _where_all_is(places: Places) -> str:
    if places.in_flight:
        return "all messages are in the hands of consumers"
    if places.doomed and not places.delayed:
        return "what is left was given up and is on its way to the dead-letter topic"
    return "all messages wait for their next attempt" if places.delayed else "it has no messages"
