"""Finding what is in flight: as much of it as a page can need, and how much there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

from tinymq.broker.channel.lease import Lease, owner_of
from tinymq.broker.channel.queue import Subscribers
from tinymq.broker.channel.runs import runs_in
from tinymq.broker.channel.whereabouts import deadlines
from tinymq.broker.hosted import Hosted

#: Since when, topic, channel, partition, offset: the order of lists.
Place: TypeAlias = tuple[int, str, str, int, int]


class Flight(NamedTuple):
    """A run of messages in the hands of one consumer, in the order of lists."""

    since: int
    topic: str
    channel: str
    partition: int
    start: int
    end: int
    holder: str
    attempt: int
    failures: int
    deadline: int
    state: str
    lease_ms: int

    def behind(self, after: Place | None) -> range:
        """
        Return the offsets that come behind a place.

        Args:
            after: The place; None is before everything.
        """
        if after is None or self[:4] > after[:4]:
            return range(self.start, self.end)
        if self[:4] < after[:4]:
            return range(0)
        return range(max(self.start, after[4] + 1), self.end)


class Search:
    """
    Looks for messages in flight.

    Args:
        limit: Most messages of a page.
        after: Behind which the page begins.
        attempts: Only those that were given out so often, or more often.
        latest: Only those that were given out then, or before.
        holds: Says whose messages are wanted, by the name of a consumer.

    Attributes:
        total: How many there are on all pages, where was looked.
    """

    def __init__(
        self,
        limit: int,
        after: Place | None,
        attempts: int,
        latest: int,
        holds: Callable[[str], bool],
    ) -> None:
        self._limit = limit
        self._after = after
        self._attempts = attempts
        self._latest = latest
        self._holds = holds
        self._found: list[Flight] = []
        self.total = 0

    def look(self, hosted: Hosted, channel: str, one: Subscribers, now: int) -> None:
        """
        Look at what a channel has in flight on a partition, and at what timed out lately.

        Args:
            hosted: The partition's channels.
            channel: Its name.
            one: The channel.
            now: The time.
        """
        place = (hosted.partition.topic.name, channel, hosted.index)
        left, since = self._limit, 0
        lease_ms = one.channel.policy.lease_ms
        for lease in one.channel.places.leases.values():
            if not self._wants(owner_of(lease.holder), lease.history.deliveries + 1, lease.since):
                continue
            self.total += lease.bits.bit_count()
            # What was given out later is on no page before that of those that are enough.
            if left <= 0 and lease.since > since:
                continue
            since = max(since, lease.since)
            left -= sum(map(self._add, _flights(lease, lease_ms, *place)))
        for gone in one.channel.overdue.lately(now):
            if self._wants(gone.holder, gone.attempt, gone.since):
                self.total += gone.bits.bit_count()
                facts = (
                    gone.holder,
                    gone.attempt,
                    gone.failures,
                    gone.deadline,
                    "timed_out",
                    lease_ms,
                )
                for start, end in runs_in(gone.base, gone.bits):
                    self._add(Flight._make((gone.since, *place, start, end, *facts)))

    def _wants(self, holder: str, attempt: int, since: int) -> bool:
        return attempt >= self._attempts and since <= self._latest and self._holds(holder)

    def _add(self, flight: Flight) -> int:
        count = len(flight.behind(self._after))
        if count:
            self._found.append(flight)
        return count

    def page(self) -> list[tuple[Flight, int]]:
        """Return the messages of the page with their offsets, in order."""
        self._found.sort()
        singles = ((one, offset) for one in self._found for offset in one.behind(self._after))
        return list(islice(singles, self._limit))


def _flights(lease: Lease, lease_ms: int, *place: Any) -> Iterator[Flight]:
    past = lease.history
    facts = (owner_of(lease.holder), past.deliveries + 1, past.failures)
    for bits, deadline in deadlines(lease):
        for start, end in runs_in(lease.base, bits):
            row = (lease.since, *place, start, end, *facts, deadline, "in_flight", lease_ms)
            yield Flight._make(row)
