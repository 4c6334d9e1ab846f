"""
A channel on one partition: what its consumers may do with it.

Deliveries, settles, time and the comings and goings of consumers are decided
here; each decision is one or more moves of `tinymq.broker.channel.places`, and
each move is written to the journal before anybody hears of it. All operations
cost by the run: a lease of a thousand messages is one object, one entry, one
settle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from tinymq.broker.channel.counts import Counters
from tinymq.broker.channel.entries import (
    ADMIT,
    BACK,
    DOOM,
    FINISH,
    LEASE,
    PASS,
    SKIP,
    TAKE,
    WAIT,
    Entry,
)
from tinymq.broker.channel.lease import WHOLE, Delivery, Lease, Lost, Settle
from tinymq.broker.channel.ledger import Journal
from tinymq.broker.channel.looking import Looking
from tinymq.broker.channel.moves import apply
from tinymq.broker.channel.picking import Pick, first_alone, fresh, gathered, strictly, together
from tinymq.broker.channel.places import Places
from tinymq.broker.channel.policy import ChannelPolicy
from tinymq.broker.channel.runs import Run, cut, offsets_in

#: Most messages below the cursor that are not settled.
LOOK_AHEAD: Final = 100_000
#: Messages that are put in order by key at a time.
_ADMITTED: Final = 1024
#: Deadlines of leases that ended are dropped when there are so many.
_STALE: Final = 1000
#: What a consumer says about a failure is cut to this.
_LONGEST_TEXT: Final = 1000
_FAR: Final = 1 << 63


class Requeue(NamedTuple):
    """
    How messages are given back.

    Attributes:
        delay: Milliseconds, or None for the back-off of the policy.
        failure: Whether it counts as a failure, as when a handler raised.
        text: What went wrong, for the dead-letter topic.
        chance: From 0 to 1, for the jitter of the back-off.
    """

    delay: int | None = None
    failure: bool = True
    text: str = ""
    chance: float = 0.0


#: As the policy says.
BACK_OFF: Final = Requeue()


class Settled(NamedTuple):
    """
    What came of a settle.

    Attributes:
        done: How many messages it settled, gave back or renewed.
        late: What the consumer had lost before.
        revoked: What is taken from consumers because of it, to keep the order.
    """

    done: int
    late: list[Lost]
    revoked: list[Lost]


class _Absence(NamedTuple):
    """A consumer whose link was lost."""

    until: int
    #: Whether it held messages elsewhere, so that no message was lost alone.
    busy: bool
    #: Whether it was the broker that went away.
    blameless: bool


class Channel:
    """
    A channel on one partition.

    Args:
        policy: How it treats its messages.
        next_lease: Gives a lease id, as `lease_ids` does.
        places: Where its messages are; from the ledger, or all of them new.

    Attributes:
        counters: What it did since the broker started.
        looking: What is known about messages that must be looked at.
    """

    def __init__(
        self, policy: ChannelPolicy, next_lease: Callable[[], int], places: Places | None = None
    ) -> None:
        self.policy = policy
        self.places = Places() if places is None else places
        self.journal = Journal()
        self.counters = Counters()
        self.looking = Looking(self.places, policy)
        self._next_lease = next_lease
        self._absent: dict[str, _Absence] = {}
        #: Who works through the messages that are given out alone.
        self._guard: str | None = None
        self._deadlines: list[tuple[int, list[int]]] = []
        self._timed = 0
        self._time_all()

    def move(self, now: int, who: str, entry: Entry) -> None:
        """
        Make a move and write it down.

        Args:
            now: The time.
            who: The consumer that it is about, or nobody.
            entry: The move.
        """
        self.journal.of(now, who).append(entry)
        apply(self.places, now, who, entry)

    # --- giving out ------------------------------------------------------------

    def take(
        self, consumer: str, credit: int, now: int, end: int, *, busy: bool = False
    ) -> list[Delivery]:
        """
        Give messages to a consumer.

        Args:
            consumer: Who it is; the same name is the same consumer, for ever.
            credit: How many messages it takes.
            now: The time.
            end: Offset behind the last message that is visible.
            busy: Whether it holds messages of other partitions, so that it can
                be given no message alone.

        Returns:
            What to send. Deliveries without a lease must not leave before the
            journal is on disk.
        """
        places = self.places
        if places.paused or credit <= 0 or self.looking.incomplete:
            return []
        places.wake(now)
        picks = self._pick(consumer, credit, min(end, self.looking.end(end)), busy=busy, now=now)
        if not picks:
            return []
        if self.policy.delivery == "at_most_once":
            return self._take(consumer, picks, now)
        return self._lease(consumer, picks, now)

    def _lease(self, consumer: str, picks: list[Pick], now: int) -> list[Delivery]:
        places, entries, term = self.places, self.journal.of(now, consumer), self.policy.lease_ms
        deadline = now + term
        deliveries, ids = [], []
        for base, bits, history in picks:
            lease_id = self._next_lease()
            entry = (LEASE, lease_id, base, _coded(bits), *history, term)
            entries.append(entry)
            places.lease(now, consumer, *entry[1:])
            attempt = history.deliveries + 1
            deliveries.append(
                Delivery(lease_id, consumer, base, bits, attempt, history.failures, deadline)
            )
            ids.append(lease_id)
            self.counters.delivered(attempt, bits.bit_count())
        self._time(deadline, ids)
        return deliveries

    def _take(self, consumer: str, picks: list[Pick], now: int) -> list[Delivery]:
        entries, deliveries = self.journal.of(now, consumer), []
        for base, bits, history in picks:
            entries.append((TAKE, base, _coded(bits)))
            self.places.take(now, consumer, base, bits)
            attempt = history.deliveries + 1
            deliveries.append(Delivery(0, consumer, base, bits, attempt, history.failures, 0))
            self.counters.delivered(attempt, bits.bit_count())
        return deliveries

    def _pick(self, consumer: str, credit: int, end: int, *, busy: bool, now: int) -> list[Pick]:
        places = self.places
        holder = places.holders.get(consumer)
        if holder is not None and holder.alone:
            return []
        if not places.ready.alone:
            self._guard = None
        elif holder is None and not busy:
            picks = self._pick_alone(consumer)
            if picks:
                return picks
        elif self._guard is None or self._guard == consumer:
            # It is given nothing until it holds nothing, and then what must be alone.
            self._guard = consumer
            return []
        return self._pick_together(consumer, credit, end, now)

    def _pick_alone(self, consumer: str) -> list[Pick]:
        places, order = self.places, self.policy.order
        if order == "none":
            return first_alone(places.ready)
        if order == "strict":
            if places.leases:
                return []
            return [pick for pick in gathered(strictly(places, alone=True), 1)[0] if pick[2].alone]
        if places.order is None:
            return []
        found = places.order.pick(consumer, 1, places.ready, alone=True)
        return [(offset, 1, history) for offset, history in found]

    def _pick_together(self, consumer: str, credit: int, end: int, now: int) -> list[Pick]:
        places, order = self.places, self.policy.order
        if order == "key":
            return self._pick_by_key(consumer, credit, end, now)
        if order == "strict":
            if any(name != consumer for name in places.holders):
                return []
            picks, credit = gathered(strictly(places, alone=False), credit)
            given = sum(bits.bit_count() for _, bits, _ in picks)
            if places.waiting or given < places.ready.count:
                return picks
        elif places.ready:
            picks, credit = gathered(together(places.ready), credit)
        else:
            picks = []
        if credit and places.cursor < end:
            room = min(credit, self.room)
            if room > 0:
                more, _ = gathered(fresh(places, end), room)
                if not more:
                    self.move(now, "", (PASS, end))
                picks += more
        return picks

    def _pick_by_key(self, consumer: str, credit: int, end: int, now: int) -> list[Pick]:
        places = self.places
        if places.order is None:
            return []
        found = places.order.pick(consumer, credit, places.ready, alone=False)
        while len(found) < credit and places.cursor < end and places.unsettled < LOOK_AHEAD:
            behind = min(end, places.cursor + _ADMITTED)
            hidden = [edge for run in places.hidden.within(places.cursor, behind) for edge in run]
            self.move(now, "", (ADMIT, behind, hidden))
            # What was picked is still among the ready, but in no slot.
            found += places.order.pick(consumer, credit - len(found), places.ready, alone=False)
        found.sort()
        picks, _ = gathered(((offset, offset + 1, past) for offset, past in found), credit)
        return picks

    def look(self, start: int, keys: Sequence[int], now: int, hidden: Iterable[Run] = ()) -> None:
        """
        Learn what `looking` wanted to know.

        Args:
            start: Where the look began, at what was wanted.
            keys: A hash of the key of each message from there on, as many as
                were looked at; any numbers where only the filter counts. A
                message without key has one of its own.
            now: The time.
            hidden: What matches no filter, or does not exist.
        """
        for first, behind in self.looking.tell(start, keys, hidden):
            self.move(now, "", (SKIP, first, behind))

    # --- settling --------------------------------------------------------------

    def finish(self, consumer: str, settles: Iterable[Settle], now: int) -> Settled:
        """
        Settle messages for good.

        Args:
            consumer: Who holds them.
            settles: Leases and bits.
            now: The time.
        """
        places, late, done = self.places, list[Lost](), 0
        leases, entries = places.leases, self.journal.of(now, consumer)
        for lease_id, bits in settles:
            lease = leases.get(lease_id)
            if lease is None or lease.holder != consumer:
                self._late(consumer, lease_id, bits, late)
                continue
            held = lease.bits
            hit = places.settle(lease, bits)
            if hit == held:
                entries.append((FINISH, lease_id))
            elif hit:
                entries.append((FINISH, lease_id, hit))
            if bits not in {hit, WHOLE}:
                self._late(consumer, lease_id, bits & ~held, late)
            done += hit.bit_count()
        self.counters.finished += done
        return Settled(done, late, [])

    def requeue(
        self, consumer: str, settles: Iterable[Settle], now: int, how: Requeue = BACK_OFF
    ) -> Settled:
        """
        Let messages come again, or give them up when they failed too often.

        Args:
            consumer: Who holds them.
            settles: Leases and bits.
            now: The time.
            how: With which delay, and whether they failed.
        """
        late: list[Lost] = []
        returned: list[tuple[int, int]] = []
        done = 0
        for lease, hit in self._held(consumer, settles, late):
            done += hit.bit_count()
            if how.failure:
                if self._fail(lease, hit, now, _Failure("failed", how.text, 0), how):
                    continue
            else:
                past = lease.history
                facts = (lease.lease_id, hit, 0, past.deliveries + 1, past.failures, 0)
                delayed = (WAIT, *facts, how.delay) if how.delay else (BACK, *facts)
                self.move(now, consumer, delayed)
            returned.append((lease.base, hit))
        self.counters.requeued += done
        return Settled(done, late, self._revoke(consumer, returned, now))

    def reject(self, consumer: str, settles: Iterable[Settle], now: int, text: str = "") -> Settled:
        """
        Give messages up: they go to the dead-letter topic.

        Args:
            consumer: Who holds them.
            settles: Leases and bits.
            now: The time.
            text: Why.
        """
        late: list[Lost] = []
        done = 0
        for lease, hit in self._held(consumer, settles, late):
            done += hit.bit_count()
            self._give_up(lease, hit, now, _Failure("rejected", text, 0))
        self.counters.rejected += done
        return Settled(done, late, [])

    def touch(
        self, consumer: str, settles: Iterable[Settle], now: int, term: int | None = None
    ) -> Settled:
        """
        Renew leases.

        Args:
            consumer: Who holds them.
            settles: Leases and bits.
            now: The time.
            term: Milliseconds from now; the policy's by default.
        """
        late: list[Lost] = []
        until = now + (self.policy.lease_ms if term is None else term)
        done = sum(
            lease.touch(hit, until).bit_count()
            for lease, hit in self._held(consumer, settles, late)
        )
        return Settled(done, late, [])

    def missing(self, lease_id: int, bits: int, now: int) -> int:
        """
        Settle messages of a lease that turned out not to exist.

        Args:
            lease_id: A lease just given out.
            bits: Which of its offsets hold no message.
            now: The time.

        Returns:
            How many there were.
        """
        lease = self.places.leases.get(lease_id)
        hit = 0 if lease is None else lease.bits & bits
        if lease is not None and hit:
            self.move(now, lease.holder, (FINISH, lease_id, hit))
        self.counters.missing += hit.bit_count()
        return hit.bit_count()

    def _held(
        self, consumer: str, settles: Iterable[Settle], late: list[Lost]
    ) -> Iterator[tuple[Lease, int]]:
        """Yield the leases that a consumer really holds, with the bits that it means."""
        for lease_id, bits in settles:
            lease = self.places.leases.get(lease_id)
            if lease is None or lease.holder != consumer:
                self._late(consumer, lease_id, bits, late)
                continue
            hit = lease.bits & bits
            if bits not in {hit, WHOLE}:
                self._late(consumer, lease_id, bits & ~hit, late)
            if hit:
                yield lease, hit

    def _late(self, consumer: str, lease_id: int, bits: int, late: list[Lost]) -> None:
        """Find out whether what is not held was lost; if not, it was settled before."""
        lost = self.places.losses.among(lease_id, bits)
        if lease_id > self.places.newest_lease or self._is_anothers(consumer, lease_id):
            lost = bits
        if lost:
            late.append(Lost(consumer, lease_id, lost))
            self.counters.late += 1

    def _is_anothers(self, consumer: str, lease_id: int) -> bool:
        lease = self.places.leases.get(lease_id)
        return lease is not None and lease.holder != consumer

    # --- failing ---------------------------------------------------------------

    def _fail(self, lease: Lease, bits: int, now: int, why: _Failure, how: Requeue) -> bool:
        """Count a failure of each message; tell whether they were given up."""
        past = lease.history
        failures = past.failures + 1
        if failures >= self.policy.attempts:
            self._give_up(lease, bits, now, why)
            return True
        delay = self.policy.delay(failures, how.chance) if how.delay is None else how.delay
        # What took its holder down, or hung, drags no neighbours with it next time.
        facts = (lease.lease_id, bits, why.lost, past.deliveries + 1, failures, why.lost)
        self.move(now, lease.holder, (WAIT, *facts, delay) if delay > 0 else (BACK, *facts))
        return False

    def _give_up(self, lease: Lease, bits: int, now: int, why: _Failure) -> None:
        past = lease.history
        text = why.text[:_LONGEST_TEXT]
        counts = (past.deliveries + 1, past.failures + 1)
        entry = (DOOM, lease.lease_id, bits, why.lost, *counts, why.reason, text)
        self.move(now, lease.holder, entry)
        self.counters.given_up += bits.bit_count()

    def _suspect(self, lease: Lease, bits: int, now: int) -> None:
        """Let messages come back one by one, for only one of them can be at fault."""
        past = lease.history
        entry = (BACK, lease.lease_id, bits, 1, past.deliveries + 1, past.failures, 1)
        self.move(now, lease.holder, entry)

    def _revoke(self, consumer: str, returned: Sequence[tuple[int, int]], now: int) -> list[Lost]:
        """Take back what would overtake messages that come again."""
        revoked: list[Lost] = []
        if self.policy.order == "none" or not returned:
            return revoked
        holder = self.places.holders.get(consumer)
        for lease_id in list(holder.leases) if holder is not None else ():
            lease = self.places.leases[lease_id]
            hit = self._overtaking(lease, returned)
            if hit:
                entry = (BACK, lease_id, hit, 1, *lease.history)
                self.move(now, consumer, entry)
                revoked.append(Lost(consumer, lease_id, hit))
        return revoked

    def _overtaking(self, lease: Lease, returned: Sequence[tuple[int, int]]) -> int:
        order = self.places.order
        if order is None:
            first = min(base + (bits & -bits).bit_length() - 1 for base, bits in returned)
            return cut(lease.base, lease.bits, first + 1, _FAR)
        keys = order.first_of(returned)
        return sum(
            1 << offset - lease.base
            for offset in offsets_in(lease.base, lease.bits)
            if keys.get(order.keys[offset], offset) < offset
        )

    # --- time --------------------------------------------------------------------

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
        places = self.places
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
            self._guard = None
            revoked = self._expired(lease, bits, now, chance)
        if lease.lease_id in self.places.leases:
            self._time(lease.deadline, [lease.lease_id])
        return [Lost(holder, lease.lease_id, bits), *revoked] if bits else []

    def _expired(self, lease: Lease, bits: int, now: int, chance: float) -> list[Lost]:
        count = bits.bit_count()
        self.counters.timed_out += count
        if count > 1:
            self._suspect(lease, bits, now)
        elif self._fail(lease, bits, now, _Failure("timeout", "", 1), Requeue(chance=chance)):
            return []
        return self._revoke(lease.holder, [(lease.base, bits)], now)

    def next_time(self) -> int | None:
        """Return when something will be due, or may be; None if nothing is."""
        times = [absence.until for absence in self._absent.values()]
        if self._deadlines:
            times.append(self._deadlines[0][0])
        if self.places.waiting:
            times.append(self.places.waiting[0][0])
        if self.places.undo is not None:
            times.append(self.places.undo.until)
        return min(times, default=None)

    def _time(self, deadline: int, ids: list[int]) -> None:
        heappush(self._deadlines, (deadline, ids))
        self._timed += len(ids)
        if self._timed > 2 * len(self.places.leases) + _STALE:
            self._time_all()

    def _time_all(self) -> None:
        leases = self.places.leases.values()
        self._deadlines = [(lease.deadline, [lease.lease_id]) for lease in leases]
        heapify(self._deadlines)
        self._timed = len(self._deadlines)

    # --- consumers that come and go ----------------------------------------------

    def leave(self, consumer: str, now: int, settles: Sequence[Settle] | None = None) -> Settled:
        """
        Take back what a consumer did not begin with; it counts as not delivered.

        Args:
            consumer: Who leaves, or gives some back.
            now: The time.
            settles: What it gives back; all that it holds by default.
        """
        if settles is None:
            self._absent.pop(consumer, None)
            holder = self.places.holders.get(consumer)
            settles = [(one, WHOLE) for one in holder.leases] if holder is not None else ()
        late: list[Lost] = []
        returned: list[tuple[int, int]] = []
        done = 0
        for lease, hit in self._held(consumer, settles, late):
            self.move(now, consumer, (BACK, lease.lease_id, hit, 1, *lease.history))
            returned.append((lease.base, hit))
            done += hit.bit_count()
        self.counters.returned += done
        self._let_go(consumer)
        return Settled(done, late, self._revoke(consumer, returned, now))

    def lost(self, consumer: str, now: int, grace: int, *, busy: bool = False) -> None:
        """
        Keep what a consumer holds for a while: its link was lost.

        Args:
            consumer: Who it is.
            now: The time.
            grace: Milliseconds.
            busy: Whether it held messages of other partitions.
        """
        self._let_go(consumer)
        if consumer in self.places.holders:
            self._absent[consumer] = _Absence(now + grace, busy, blameless=False)

    def restarted(self, now: int, grace: int) -> None:
        """
        Keep what all consumers hold for a while: the broker was away.

        Args:
            now: The time.
            grace: Milliseconds.
        """
        for consumer in self.places.holders:
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
        holder = self.places.holders.get(consumer)
        if self._absent.pop(consumer, None) is None or holder is None:
            return []
        until = now + self.policy.lease_ms
        for lease_id in holder.leases:
            lease = self.places.leases[lease_id]
            lease.touch(WHOLE, until)
        self._time(until, list(holder.leases))
        return [(lease_id, self.places.leases[lease_id].bits) for lease_id in holder.leases]

    @property
    def guard(self) -> str | None:
        """Who is given nothing until it holds nothing, to be given a message alone."""
        return self._guard

    @property
    def room(self) -> int:
        """How many more messages may be unsettled below the cursor."""
        return LOOK_AHEAD - self.places.unsettled

    @property
    def absent(self) -> tuple[str, ...]:
        """The consumers whose leases are kept for them."""
        return tuple(self._absent)

    def _lapse(self, consumer: str, absence: _Absence, now: int, chance: float) -> None:
        """Take back what a consumer holds that did not return in time."""
        holder = self.places.holders.get(consumer)
        if holder is None:
            return
        self.counters.lost += holder.held
        by_itself = holder.held == 1 and not absence.busy
        for lease_id in list(holder.leases):
            lease = self.places.leases[lease_id]
            if absence.blameless:
                past = lease.history
                facts = (past.deliveries + 1, past.failures, past.alone)
                self.move(now, consumer, (BACK, lease_id, lease.bits, 1, *facts))
            elif by_itself:
                self._fail(lease, lease.bits, now, _Failure("lost", "", 1), Requeue(chance=chance))
            else:
                self._suspect(lease, lease.bits, now)

    def _let_go(self, consumer: str) -> None:
        if self._guard == consumer:
            self._guard = None


class _Failure(NamedTuple):
    """Why a message failed, and whether its lease was lost by that."""

    reason: str
    text: str
    lost: int


def _coded(bits: int) -> int:
    """Write bits in a row as their negative number."""
    count = bits.bit_count()
    return -count if count == bits.bit_length() else bits
