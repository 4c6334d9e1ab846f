"""What a channel did and where its messages are: for pages, metrics, and the question why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from attrs import frozen

if TYPE_CHECKING:
    from tinymq.broker.channel.places import Places
    from tinymq.broker.channel.state import Channel


class Counters:
    """What a channel did on a partition since the broker started; only ever rising."""

    __slots__ = (
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
        why=next(_reasons(channel, end), ""),
    )


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
    if ready.alone:
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
    return "all messages wait for their next attempt" if places.delayed else "it has no messages"
