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

from tinymq.broker.channel.core import Core
from tinymq.broker.channel.custody import Custody
from tinymq.broker.channel.entries import (
    BACK,
    FINISH,
    HOLD,
    LEASE,
    ONE,
    SKIP,
    TAKE,
    WAIT,
)
from tinymq.broker.channel.lease import (
    WHOLE,
    Delivery,
    Lease,
    Lost,
    Settle,
    owner_of,
    transaction_of,
)
from tinymq.broker.channel.picking import Pick, Picker
from tinymq.broker.channel.places import Places
from tinymq.broker.channel.returns import BACK_OFF, Failure, Requeue, Returns, Settled
from tinymq.broker.channel.runs import Run
from tinymq.channelpolicy import ChannelPolicy


class Channel(Core):
    """
    A channel on one partition.

    Args:
        policy: How it treats its messages.
        next_lease: Gives a lease id, as `lease_ids` does.
        places: Where its messages are; from the ledger, or all of them new.

    Attributes:
        custody: Its leases while time passes and consumers come and go.
    """

    def __init__(
        self, policy: ChannelPolicy, next_lease: Callable[[], int], places: Places | None = None
    ) -> None:
        super().__init__(policy, Places() if places is None else places)
        self._next_lease = next_lease
        self._picker = Picker(self)
        self._returns = Returns(self)
        self.custody = Custody(self, self._returns, self._picker)

    @property
    def guard(self) -> str | None:
        """Who is given nothing until it holds nothing, to be given a message alone."""
        return self._picker.guard

    def unguard(self, consumer: str) -> None:
        """
        Let somebody else be the guard: what this one held was taken from it.

        Args:
            consumer: Who it was.
        """
        self._picker.let_go(consumer)

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
        picks = self._picker.pick(
            consumer, credit, min(end, self.looking.end(end)), busy=busy, now=now
        )
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
        self.custody.time(deadline, ids)
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
        places, done = self.places, 0
        late: list[Lost] = []
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
            elif hit & (hit - 1):
                entries.append((FINISH, lease_id, hit))
            elif hit:
                entries.append((ONE, lease_id, hit.bit_length() - 1))
            if bits not in (hit, WHOLE):
                self._late(consumer, lease_id, bits & ~held, late)
            done += hit.bit_count()
        self.counters.finished += done
        return Settled(done, late, [])

    def hold(
        self, consumer: str, settles: Iterable[Settle], now: int, identity: tuple[int, int]
    ) -> Settled:
        """
        Let a transaction hold messages until it is decided whether they are finished.

        Args:
            consumer: Who holds them now, and does not any more.
            settles: Leases and bits.
            now: The time.
            identity: Producer id and epoch of the transaction.
        """
        late, done = list[Lost](), 0
        for lease, hit in self._held(consumer, settles, late):
            held = (HOLD, lease.lease_id, hit, self._next_lease(), *identity)
            self.move(now, consumer, held)
            done += hit.bit_count()
        return Settled(done, late, [])

    def decide(self, identity: tuple[int, int], now: int, *, commit: bool) -> list[Lost]:
        """
        Settle what a transaction holds, or let it come again: nobody failed, but it was delivered.

        Args:
            identity: Producer id and epoch of the transaction.
            now: The time.
            commit: Whether it counts.

        Returns:
            What consumers are to be told: what would overtake what comes again.
        """
        places, lost = self.places, list[Lost]()
        for name in [each for each in places.holders if transaction_of(each) == identity]:
            returned: list[tuple[int, int]] = []
            for lease_id in list(places.holders[name].leases):
                lease = places.leases[lease_id]
                bits, past = lease.bits, lease.history
                if commit:
                    self.move(now, name, (FINISH, lease_id))
                    self.counters.finished += bits.bit_count()
                else:
                    facts = (past.deliveries + 1, past.failures, int(past.alone))
                    said = ("transaction", "its transaction was aborted")
                    self.move(now, name, (BACK, lease_id, bits, 0, *facts, *said))
                    self.counters.returned += bits.bit_count()
                    returned.append((lease.base, bits))
            lost += self._returns.revoke(owner_of(name), returned, now)
        return lost

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
                if self._returns.fail(lease, hit, now, Failure("failed", how.text, 0), how):
                    continue
            else:
                past = lease.history
                facts = (lease.lease_id, hit, 0, past.deliveries + 1, past.failures, 0)
                delayed = (WAIT, *facts, how.delay) if how.delay else (BACK, *facts)
                self.move(now, consumer, delayed)
            returned.append((lease.base, hit))
        self.counters.requeued += done
        return Settled(done, late, self._returns.revoke(consumer, returned, now))

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
            self._returns.give_up(lease, hit, now, Failure("rejected", text, 0))
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

    def leave(self, consumer: str, now: int, settles: Sequence[Settle] | None = None) -> Settled:
        """
        Take back what a consumer did not begin with; it counts as not delivered.

        Args:
            consumer: Who leaves, or gives some back.
            now: The time.
            settles: What it gives back; all that it holds by default.
        """
        if settles is None:
            self.custody.forget(consumer)
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
        return Settled(done, late, self._returns.revoke(consumer, returned, now))

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
            if bits not in (hit, WHOLE):
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


def _coded(bits: int) -> int:
    """Write bits in a row as their negative number."""
    count = bits.bit_count()
    return -count if count == bits.bit_length() else bits
