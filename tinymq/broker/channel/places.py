"""
Where each message of a channel is: the state, and the moves between its places.

::

     settled | ready | in flight | waiting | parked | doomed      not given out yet
    ---------------------------------------------------------|--------------------->
                                                           cursor

Below the cursor every message is in exactly one place, and what is in none is
settled; above it a message is new unless it was settled ahead. Each move is
one entry of the ledger, and making the moves of its entries again is the only way
in which a restarted broker gets its state back: what happened and what is read again cannot differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple, TypeAlias

from tinymq.broker.channel.history import NEW, History, Stretch, Stretches
from tinymq.broker.channel.lease import WHOLE, Lease, Losses, held_by, owner_of, transaction_of
from tinymq.broker.channel.marks import Marks
from tinymq.broker.channel.order import KeyOrder
from tinymq.broker.channel.runs import Run, Runs, bits_of, cut, lowest, runs_in
from tinymq.limits import LATEST_MS

#: When it is due, the offset of bit 0, which offsets, what they have been through.
Waiting: TypeAlias = tuple[int, int, int, History]
#: Given a base and bits, says which of them.
Chosen: TypeAlias = Callable[[int, int], int]


class Doom(NamedTuple):
    """
    Messages that were given up: they go to the dead-letter topic, then are settled.

    Attributes:
        number: The sequence of the first one among all that this channel gave
            up here; as an idempotent producer the channel writes none twice.
        base: The offset of bit 0, which is set.
        bits: Which offsets.
        reason: One word.
        text: What the consumer said, if it did.
        history: What they have been through.
        time: When they were given up.
        who: The consumer that had them last; empty if none had.
    """

    number: int
    base: int
    bits: int
    reason: str
    text: str
    history: History
    time: int
    who: str = ""

    @property
    def runs(self) -> list[Run]:
        """Which offsets, as runs."""
        return [*runs_in(self.base, self.bits)]


class Undo(NamedTuple):
    """
    What a seek changed.

    Attributes:
        skipped: What it settled.
        revived: What was settled and came back by it.
        until: Until when it can be taken back.
    """

    skipped: tuple[Stretch, ...]
    revived: tuple[Run, ...]
    until: int

    def trimmed(self, start: int, sparing: Runs) -> Undo:
        """
        Leave out what exists no more.

        Args:
            start: What lies below is gone,
            sparing: but for this.
        """
        skipped: list[Stretch] = []
        for first, behind, history in self.skipped:
            spare = sparing.within(first, min(behind, start)) if first < start else ()
            skipped += ((low, high, history) for low, high in spare)
            if behind > start:
                skipped.append((max(first, start), behind, history))
        return self._replace(skipped=tuple(skipped))


class Holder:
    """What one consumer holds."""

    __slots__ = ("alone", "held", "leases")

    def __init__(self) -> None:
        self.leases: dict[int, None] = {}
        #: Messages, in all leases.
        self.held = 0
        #: Whether it is a message given out alone: all that it holds, to the end.
        self.alone = False


class Places:
    """
    The state of a channel on one partition.

    Args:
        start: The first offset that it gives out.

    Attributes:
        cursor: The next offset that was not given out yet.
        ahead: What is settled at or behind the cursor.
        hidden: What will never be given out, as those who looked ahead said; not kept.
        ready: What was given out before, or stood aside, and may be given out.
        leases: What is in flight.
        waiting: A heap of what comes back later.
        doomed: What is on its way to the dead-letter topic, by its first offset.
        holders: What each consumer holds.
        losses: Which leases ended without being settled.
        undo: What the last seek changed.
        order: The index of keys, while it is needed and complete.
        marks: What is remembered of single messages.
    """

    def __init__(self, start: int = 0) -> None:
        self.cursor = start
        self.ahead = Runs()
        self.hidden = Runs()
        self.ready = Stretches()
        self.leases: dict[int, Lease] = {}
        self.in_flight = 0
        self.waiting: list[Waiting] = []
        self.delayed = 0
        self.doomed: dict[int, Doom] = {}
        self.dooming = 0
        #: How many messages were ever given up.
        self.given_up = 0
        self.holders: dict[str, Holder] = {}
        self.losses = Losses()
        self.newest_lease = 0
        self.undo: Undo | None = None
        self.paused = False
        self.policy: dict[str, Any] | None = None
        self.order: KeyOrder | None = None
        self.marks = Marks()

    @property
    def unsettled(self) -> int:
        """How many messages below the cursor are not settled, but for those given up."""
        parked = self.order.parked.count if self.order is not None else 0
        return self.ready.count + self.in_flight + self.delayed + parked

    @property
    def floor(self) -> int:
        """The offset below which everything is settled, so that nothing of it is needed."""
        # What is settled ahead is passed with the next delivery, which may never come.
        start, end = next(iter(self.ahead), (self.cursor, self.cursor))
        lows = [end if start <= self.cursor else self.cursor]
        lows += (lease.first for lease in self.leases.values())
        lows += (base for _, base, _, _ in self.waiting)
        lows += self.doomed
        if self.ready:
            lows.append(self.ready.first)
        if self.order is not None and self.order.parked:
            lows.append(self.order.parked.first)
        if self.undo is not None:
            lows += (start for start, _, _ in self.undo.skipped)
        return min(lows)

    # --- giving out ----------------------------------------------------------

    def lease(  # noqa: PLR0913, PLR0917 - as it stands in the ledger
        self,
        now: int,
        who: str,
        lease_id: int,
        base: int,
        bits: int,
        deliveries: int,
        failures: int,
        alone: int,
        term: int,
    ) -> None:
        """Give messages to a consumer; fewer bits than none stand for so many in a row."""
        if bits < 0:
            bits = (1 << -bits) - 1
        self._claim(base, bits)
        history = NEW if not deliveries else History(deliveries, failures, alone != 0)
        self._hold(Lease(lease_id, who, base, bits, history, now + term, now))
        self.holders[who].alone = alone != 0

    def _hold(self, lease: Lease) -> None:
        """Take up a new lease."""
        lease_id, who, bits = lease.lease_id, lease.holder, lease.bits
        self.leases[lease_id] = lease
        self.losses.issued(self.newest_lease, lease_id)
        self.newest_lease = max(self.newest_lease, lease_id)
        holder = self.holders.get(who)
        if holder is None:
            holder = self.holders[who] = Holder()
        holder.leases[lease_id] = None
        count = bits.bit_count()
        holder.held += count
        self.in_flight += count
        if self.order is not None:
            self.order.fly(owner_of(who), lease.base, bits)

    def take(self, now: int, who: str, base: int, bits: int) -> None:
        """Give messages to a consumer and settle them by that."""
        if bits < 0:
            bits = (1 << -bits) - 1
        self._claim(base, bits)
        if self.order is not None:
            self.order.gone(base, bits)

    def _claim(self, base: int, bits: int) -> None:
        """Take messages from where they are: from beyond the cursor, or from those ready."""
        if base >= self.cursor:
            self.pass_to(0, "", base + bits.bit_length())
            return
        runs = list(runs_in(base, bits))
        for (start, end), found in zip(runs, self.ready.remove_all(runs), strict=True):
            if found < end - start:
                # Read again: its time had come when it was given out.
                self.take_waiting(partial(cut, start=start, end=end))

    def pass_to(self, now: int, who: str, cursor: int) -> None:
        """Move the cursor; what it passes is settled unless it is put somewhere."""
        if self.ahead:
            self.ahead.remove(self.cursor, cursor)
        if self.hidden:
            self.hidden.remove(self.cursor, cursor)
        self.cursor = cursor

    def admit(self, now: int, who: str, end: int, hidden: Iterable[int]) -> None:
        """Move the cursor and let what it passes be ready, but for what is hidden."""
        edges = iter(hidden)
        for start, behind in zip(edges, edges, strict=True):
            self.ahead.add(start, behind)
        fresh = list(self.ahead.missing(self.cursor, end))
        self.pass_to(now, who, end)
        for start, behind in fresh:
            self.put_ready(start, behind, NEW)

    # --- coming back ---------------------------------------------------------

    def finish(self, now: int, who: str, lease_id: int, bits: int = WHOLE, lost: int = 0) -> None:
        """Settle messages in flight; to the loss of their holder, if that did not ask for it."""
        lease = self.leases.get(lease_id)
        if lease is not None:
            hit = self.settle(lease, bits)
            if lost:
                self.losses.add(lease_id, hit)

    def finish_one(self, now: int, who: str, lease_id: int, bit: int) -> None:
        """Settle a single message in flight."""
        self.finish(now, who, lease_id, 1 << bit)

    def settle(self, lease: Lease, bits: int) -> int:
        """
        Settle messages in flight.

        Args:
            lease: A lease that is held.
            bits: Which of its messages.

        Returns:
            Those that were not settled before.
        """
        hit = self._land(lease, bits)
        if self.order is not None:
            self.order.gone(lease.base, hit)
        return hit

    def _land(self, lease: Lease, bits: int) -> int:
        """Take messages out of a lease; it ends with its last one."""
        held = lease.bits
        hit = held & bits
        count = hit.bit_count()
        holder = self.holders[lease.holder]
        if hit == held:
            lease_id = lease.lease_id
            del self.leases[lease_id], holder.leases[lease_id]
            if not holder.leases:
                del self.holders[lease.holder]
        else:
            lease.bits = held ^ hit
        holder.held -= count
        self.in_flight -= count
        if self.order is not None:
            self.order.land(lease.base, hit)
        return hit

    def hold(
        self, now: int, who: str, lease_id: int, bits: int, held_id: int, *identity: int
    ) -> None:
        """Let a transaction hold messages in flight, by a lease of its own that never ends."""
        lease = self.leases.get(lease_id)
        hit = 0 if lease is None else self._land(lease, bits)
        if lease is not None and hit:
            low, holder = lowest(hit), held_by(who, *identity)
            history = lease.history
            self._hold(
                Lease(held_id, holder, lease.base + low, hit >> low, history, LATEST_MS, now)
            )

    def held(self) -> dict[tuple[int, int], int]:
        """The transactions that hold messages, each with the time since when."""
        found: dict[tuple[int, int], int] = {}
        for name, holder in self.holders.items():
            identity = transaction_of(name)
            if identity is not None:
                since = self.leases[next(iter(holder.leases))].since
                found[identity] = min(found.get(identity, since), since)
        return found

    def leave(self, lease_id: int, bits: int, lost: int) -> tuple[int, int]:
        """Take messages from a lease, and remember it if that is news to the holder."""
        lease = self.leases.get(lease_id)
        if lease is None:
            return 0, 0
        hit = self._land(lease, bits)
        if lost:
            self.losses.add(lease_id, hit)
        return lease.base, hit

    def back(  # noqa: PLR0913, PLR0917 - as it stands in the ledger
        self,
        now: int,
        who: str,
        lease_id: int,
        bits: int,
        lost: int,
        deliveries: int,
        failures: int,
        alone: int,
        *said: str,
    ) -> None:
        """Let messages in flight be ready again; what is said of it is for people."""
        base, hit = self.leave(lease_id, bits, lost)
        if failures:
            self.mark_failed(now, base, hit)
        history = History(deliveries, failures, alone != 0)
        for start, end in runs_in(base, hit):
            self.put_ready(start, end, history)

    def wait(  # noqa: PLR0913, PLR0917 - as it stands in the ledger
        self,
        now: int,
        who: str,
        lease_id: int,
        bits: int,
        lost: int,
        deliveries: int,
        failures: int,
        alone: int,
        delay: int,
        *said: str,
    ) -> None:
        """Let messages in flight come back later; what is said of it is for people."""
        base, hit = self.leave(lease_id, bits, lost)
        if not hit:
            return
        if failures:
            self.mark_failed(now, base, hit)
        self.put_waiting((now + delay, base, hit, History(deliveries, failures, alone != 0)))

    def put_waiting(self, group: Waiting) -> None:
        """
        Let messages wait.

        Args:
            group: When they are due, which they are, and their history.
        """
        due, base, bits, history = group
        # The first bit is set, so that no two groups have the same base.
        low = lowest(bits)
        heappush(self.waiting, (due, base + low, bits >> low, history))
        self.delayed += bits.bit_count()
        if self.order is not None:
            self.order.delay(base, bits)

    def put_ready(self, start: int, end: int, history: History) -> None:
        """
        Let messages be given out.

        Args:
            start: The first of them.
            end: The offset behind the last.
            history: What they have been through.
        """
        self.ready.put(start, end, history)
        if self.order is not None:
            self.order.ready(start, end)

    def wake(self, now: int) -> None:
        """
        Let those be ready whose time has come; this needs no entry, for the time is known.

        Args:
            now: The time.
        """
        while self.waiting and self.waiting[0][0] <= now:
            _, base, bits, history = heappop(self.waiting)
            self.delayed -= bits.bit_count()
            freed = [] if self.order is None else self.order.wake(base, bits)
            for start, end in runs_in(base, bits):
                self.put_ready(start, end, history)
            for offset, past in freed:
                self.put_ready(offset, offset + 1, past)

    def waits(self, start: int, end: int) -> list[Stretch]:
        """
        Return what waits of a run.

        Args:
            start: First offset.
            end: Offset behind the last.
        """
        return [
            (first, behind, history)
            for _, base, bits, history in self.waiting
            for first, behind in runs_in(base, cut(base, bits, start, end))
        ]

    def take_waiting(self, chosen: Chosen) -> list[Stretch]:
        """
        Take out what waits and is chosen, of all groups in one go: there may be very many.

        Args:
            chosen: Says which messages of a group.
        """
        kept: list[Waiting] = []
        taken: list[Stretch] = []
        for due, base, bits, history in self.waiting:
            hit = chosen(base, bits)
            taken += ((first, behind, history) for first, behind in runs_in(base, hit))
            left = bits ^ hit
            if left:
                low = lowest(left)
                kept.append((due, base + low, left >> low, history))
        if taken:
            heapify(kept)
            self.waiting = kept
            self.delayed -= sum(behind - first for first, behind, _ in taken)
        return taken

    def reschedule(self, now: int, who: str, due: int, edges: Iterable[int]) -> None:
        """
        Let what waits come at another time.

        Args:
            now: The time.
            who: Nobody.
            due: When.
            edges: Where runs of messages begin and end, in turn; others stay as they are.
        """
        numbers = iter(edges)
        chosen = Runs(zip(numbers, numbers, strict=True))
        for start, end, history in sorted(self.take_waiting(chosen.cut)):
            bits = bits_of(end - start)
            for offset, past in [] if self.order is None else self.order.wake(start, bits):
                self.put_ready(offset, offset + 1, past)
            self.put_waiting((due, start, bits, history))

    # --- marks ----------------------------------------------------------------------

    def mark_failed(self, now: int, base: int, bits: int) -> None:
        """Remember when messages failed that never did before."""
        self.marks.fail(runs_in(base, bits), now)
        self.prune_marks()

    def prune_marks(self) -> None:
        """Forget marks of what was settled, when there are many."""
        if self.marks.too_many(self.unsettled + self.dooming):
            kept = Runs((start, end) for start, end, _ in self.open())
            for doom in self.doomed.values():
                for start, end in doom.runs:
                    kept.add(start, end)
            self.marks.keep(kept, self.cursor, self.ahead)

    # --- steering ----------------------------------------------------------------

    def gather(self) -> None:
        """Let parked messages be ready: before a change that the index of keys does not follow."""
        if self.order is not None:
            for start, end, history in list(self.order.parked):
                self.order.parked.remove(start, end)
                self.ready.put(start, end, history)

    def take_out(self, start: int, end: int) -> list[Stretch]:
        """
        Take out what is ready, parked or waiting of a run.

        Args:
            start: First offset.
            end: Offset behind the last.
        """
        self.gather()
        taken = self.ready.remove(start, end)
        taken += self.take_waiting(partial(cut, start=start, end=end))
        if self.order is not None:
            self.order.rebuild(self)
        return taken

    def take_out_all(self, runs: Runs) -> None:
        """
        Take out what is ready, parked or waiting of many runs, at the price of one.

        Args:
            runs: Which offsets.
        """
        self.gather()
        self.ready.remove_all(list(runs))
        if self.waiting:
            self.take_waiting(runs.cut)
        if self.order is not None:
            self.order.rebuild(self)

    def skip(self, now: int, who: str, start: int, end: int) -> None:
        """Settle a run wherever it is, but for what is in flight or given up."""
        self.take_out(start, end)
        self.ahead.add(max(start, self.cursor), end)

    def drop_leases(self, start: int, end: int) -> None:
        """
        Settle what is in flight of a run, to the loss of its holders.

        Args:
            start: First offset.
            end: Offset behind the last.
        """
        self.drop(partial(cut, start=start, end=end))

    def drop(self, chosen: Chosen) -> None:
        """
        Settle what is in flight and chosen, to the loss of its holders.

        Args:
            chosen: Says which messages of a lease.
        """
        for lease in list(self.leases.values()):
            hit = chosen(lease.base, lease.bits)
            if hit:
                self.losses.add(lease.lease_id, self._land(lease, hit))

    def open(self) -> list[Stretch]:
        """Everything below the cursor that is not settled, in order."""
        found = [*self.ready]
        if self.order is not None:
            found += self.order.parked
        for _, base, bits, history in self.waiting:
            found += ((start, end, history) for start, end in runs_in(base, bits))
        for lease in self.leases.values():
            past = lease.history._replace(deliveries=lease.history.deliveries + 1)
            found += ((start, end, past) for start, end in runs_in(lease.base, lease.bits))
        return sorted(found)

    def pause(self, now: int, who: str, paused: int) -> None:
        """Give out nothing, or go on."""
        self.paused = bool(paused)

    def alter(self, now: int, who: str, policy: dict[str, Any]) -> None:
        """Note the policy in force."""
        self.policy = policy
