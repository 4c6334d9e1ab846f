"""What people, retention and time do with a channel, beside its consumers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from tinymq.broker.channel.entries import (
    BURY,
    DISCARD,
    DOOM,
    EXPIRE,
    PASS,
    PAUSE,
    POLICY,
    RECALL,
    RESCHEDULE,
    REVIVE,
    SEEK,
    SKIP,
    TRIM,
    UNDO,
)
from tinymq.broker.channel.history import NEW, Stretch
from tinymq.broker.channel.lease import MOST_SPANNED, Lost
from tinymq.broker.channel.picking import fresh
from tinymq.broker.channel.places import Doom
from tinymq.broker.channel.runs import Run, Runs, cut, runs_in
from tinymq.broker.channel.seeking import difference
from tinymq.broker.channel.state import Channel
from tinymq.channelpolicy import ChannelPolicy
from tinymq.dotted import Given

#: Milliseconds in which a seek can be taken back.
UNDO_MS: Final = 600_000
#: Why messages are given up whose time to live is over.
EXPIRED: Final = "expired"
#: Runs in one entry of the ledger.
_MOST_ROWS: Final = 1000

#: Given runs in order, says which of them match no filter.
Hidden: TypeAlias = Callable[[list[Run]], Iterable[Run]]


class Preview(NamedTuple):
    """
    What a seek would do.

    Attributes:
        skipped: Messages that would be settled by it.
        revived: Settled messages that would come again.
        lost: Messages in flight that their consumers would lose.
    """

    skipped: int
    revived: int
    lost: int


class Revived(NamedTuple):
    """
    What came of sending messages back.

    Attributes:
        there: They come again, or were unsettled already.
        dying: They are still on their way to the dead-letter topic.
    """

    there: list[int]
    dying: list[int]


class Steering:
    """
    The other side of a channel.

    Args:
        channel: The channel.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._handed: set[int] = set()

    # --- the policy, and pausing -------------------------------------------------

    def alter(self, given: Mapping[str, Given], now: int) -> ChannelPolicy:
        """
        Change the policy.

        Args:
            given: Dotted names and values.
            now: The time.

        Returns:
            The new policy.

        Raises:
            InvalidRequest: It does not fit; nothing was changed.
        """
        channel = self._channel
        new = channel.policy.altered(given)
        channel.move(now, "", (POLICY, new.to_mapping()))
        old, channel.policy = channel.policy, new
        if (old.order, old.filter) != (new.order, new.filter):
            channel.looking.begin(new)
        return new

    def pause(self, paused: bool, now: int) -> None:
        """
        Give out nothing, or go on; settles are taken all the same.

        Args:
            paused: Which.
            now: The time.
        """
        if self._channel.places.paused != paused:
            self._channel.move(now, "", (PAUSE, int(paused)))

    # --- seeking -------------------------------------------------------------------

    def preview(self, cursor: int) -> Preview:
        """
        Tell what a seek would do.

        Args:
            cursor: Where it would go.
        """
        places = self._channel.places
        skipped, revived = difference(places, cursor)
        return Preview(
            sum(end - start for start, end, _ in skipped),
            sum(end - start for start, end in revived),
            places.in_flight,
        )

    def seek(self, cursor: int, now: int, window: int = UNDO_MS) -> list[Lost]:
        """
        Begin anew at an offset: what lies before is settled, what lies behind comes again.

        Args:
            cursor: Where; at most the end of what is visible.
            now: The time.
            window: Milliseconds in which it can be taken back.

        Returns:
            Who is to be told what it lost.
        """
        held = self._all_held()
        self._channel.move(now, "", (SEEK, cursor, window))
        self._channel.looking.begin(self._channel.policy)
        return held

    def empty(self, end: int, now: int, window: int = UNDO_MS) -> list[Lost]:
        """
        Settle everything.

        Args:
            end: Offset behind the last message that is visible.
            now: The time.
            window: Milliseconds in which it can be taken back.
        """
        return self.seek(end, now, window)

    def undo(self, now: int) -> list[Lost] | None:
        """
        Take the last seek back; what was settled since then stays settled.

        Args:
            now: The time.

        Returns:
            Who is to be told what it lost, or None if it is too late.
        """
        undo = self._channel.places.undo
        if undo is None or undo.until <= now:
            return None
        before = self._all_held()
        self._channel.move(now, "", (UNDO,))
        self._channel.looking.begin(self._channel.policy)
        return self._gone(before)

    def _all_held(self) -> list[Lost]:
        leases = self._channel.places.leases.values()
        return [Lost(lease.holder, lease.lease_id, lease.bits) for lease in leases]

    def _gone(self, before: list[Lost]) -> list[Lost]:
        """Return what is not held any more of what was."""
        leases = self._channel.places.leases
        left = ((one, leases.get(one.lease_id)) for one in before)
        gone = (
            one._replace(bits=one.bits & ~(0 if lease is None else lease.bits))
            for one, lease in left
        )
        return [one for one in gone if one.bits]

    # --- messages that will never be given out ---------------------------------------

    def skip(self, start: int, end: int, now: int) -> None:
        """
        Settle what does not exist, wherever it is; in flight it is found out by itself.

        Args:
            start: The first offset.
            end: The offset behind the last.
            now: The time.
        """
        self._channel.move(now, "", (SKIP, start, end))
        self._channel.counters.skipped += end - start

    def trim(self, start: int, now: int, spared: Sequence[int] = ()) -> list[Lost]:
        """
        Settle everything below the start of the log, even what is in flight.

        Args:
            start: The new start.
            now: The time.
            spared: Offsets that are there all the same.

        Returns:
            Who is to be told what it lost.
        """
        places = self._channel.places
        if places.floor >= start:
            return []
        before = self._all_held()
        unsettled = places.unsettled + places.dooming
        ahead = sum(b - a for a, b, _ in fresh(places, start))
        self._channel.move(now, "", (TRIM, start, list(spared)) if spared else (TRIM, start))
        gone = unsettled - places.unsettled - places.dooming
        self._channel.counters.skipped += gone + ahead
        return self._gone(before)

    def discard(self, start: int, end: int, reason: str, now: int) -> list[Run]:
        """
        Give messages up that nobody holds.

        Args:
            start: The first offset.
            end: The offset behind the last.
            reason: One word for the dead-letter topic.
            now: The time.

        Returns:
            What is in flight, and may have to be given up when it comes back.
        """
        places = self._channel.places
        kept = places.order.parked.within(start, end) if places.order is not None else ()
        found = [*places.ready.within(start, end), *kept]
        found += (row for row in places.waits(start, end))
        found += (
            (max(start, first), min(end, behind), history)
            for first, behind, history in fresh(places, max(end, places.cursor))
            if behind > start
        )
        self._discard(sorted(found), reason, now)
        return sorted(
            (max(start, first), min(end, behind))
            for lease in places.leases.values()
            for first, behind in runs_in(lease.base, lease.bits)
            if first < end and behind > start
        )

    def expire(self, due: Runs, now: int, hidden: Hidden | None = None) -> Runs:
        """
        Give messages up whose time to live is over and whom nobody holds.

        What was sent back from the dead-letter topic was given up once, and stays.

        Args:
            due: Which messages.
            now: The time.
            hidden: Says which of some runs match no filter; those stay for who looks at them.

        Returns:
            What is in flight of it, and has to be given up when it comes back.
        """
        rows = _joined(self._expired(due, hidden))
        for at in range(0, len(rows), _MOST_ROWS):
            facts = [number for row in rows[at : at + _MOST_ROWS] for number in row]
            self._channel.move(now, "", (EXPIRE, EXPIRED, facts))
        count = sum(end - start for start, end, _, _ in rows)
        self._channel.counters.expired += count
        self._channel.counters.given_up += count
        return self.flying(due)

    def pass_over(self, due: Runs, now: int, hidden: Hidden | None = None) -> None:
        """
        Settle messages whose time to live was over before they could be wanted here.

        Args:
            due: Which messages.
            now: The time.
            hidden: As in `expire`.
        """
        for start, end, _, _ in _joined(self._expired(due, hidden)):
            self.skip(start, end, now)

    def _expired(self, due: Runs, hidden: Hidden | None) -> list[Stretch]:
        """Find what is due and in nobody's hands, in order, each with its history."""
        places, found = self._channel.places, list[Stretch]()
        for start, end in due:
            if start < places.cursor:
                found += places.ready.within(start, end)
                if places.order is not None:
                    found += places.order.parked.within(start, end)
            for run in places.ahead.missing(max(start, places.cursor), end):
                found += ((*new, NEW) for new in places.hidden.missing(*run))
        if places.waiting and due and due.first < places.cursor:
            found += (
                (first, behind, history)
                for _, base, bits, history in places.waiting
                for first, behind in runs_in(base, due.cut(base, bits))
            )
        spared = Runs(
            (each, each + 1) for start, end in due for each in places.marks.redriven(start, end)
        )
        if hidden is not None:
            for run in hidden([(row[0], row[1]) for row in sorted(found) if row[2] == NEW]):
                spared.add(*run)
        if spared:
            found = [
                (*run, history)
                for start, end, history in found
                for run in spared.missing(start, end)
            ]
        return sorted(found)

    def flying(self, wanted: Runs) -> Runs:
        """
        Return what is in flight.

        Args:
            wanted: Of these messages.
        """
        found = Runs()
        if wanted and wanted.first < self._channel.places.cursor:
            for lease in self._channel.places.leases.values():
                for run in runs_in(lease.base, wanted.cut(lease.base, lease.bits)):
                    found.add(*run)
        return found

    def _discard(self, stretches: list[Stretch], reason: str, now: int) -> None:
        for start, end, history in stretches:
            for first in range(start, end, MOST_SPANNED):
                behind = min(end, first + MOST_SPANNED)
                counts = (history.deliveries, history.failures)
                self._channel.move(now, "", (DISCARD, first, behind, reason, *counts))
                self._channel.counters.given_up += behind - first

    def abandon(self, end: int, most: int, reason: str, now: int) -> list[Lost]:
        """
        Give up the oldest messages below an offset, also those in flight.

        Args:
            end: The offset.
            most: Give up so many at a time, and those in flight with them.
            reason: One word for the dead-letter topic.
            now: The time.

        Returns:
            Who is to be told what it lost.
        """
        places = self._channel.places
        kept = places.order.parked if places.order is not None else ()
        found = [*places.ready, *kept, *places.waits(0, end), *fresh(places, end)]
        chosen: list[Stretch] = []
        for start, behind, history in sorted(found):
            stop = min(behind, end, start + most)
            if stop > start:
                chosen.append((start, stop, history))
                most -= stop - start
        self._discard(chosen, reason, now)
        lost: list[Lost] = []
        for lease in list(places.leases.values()):
            hit = cut(lease.base, lease.bits, 0, end)
            if hit:
                counts = (lease.history.deliveries + 1, lease.history.failures)
                entry = (DOOM, lease.lease_id, hit, 1, *counts, reason, "")
                lost.append(Lost(lease.holder, lease.lease_id, hit))
                self._channel.move(now, lease.holder, entry)
                self._channel.counters.given_up += hit.bit_count()
        return lost

    def excess(self, end: int) -> int:
        """
        Return by how many messages the channel is longer than it may be; negative: what fits.

        Args:
            end: Offset behind the last message that is visible.
        """
        longest = self._channel.policy.max_length
        if longest is None:
            return 0
        places = self._channel.places
        length = sum(behind - start for start, behind, _ in fresh(places, end))
        return length + places.unsettled - longest

    def shorten(self, end: int, now: int) -> bool:
        """
        Give up the oldest messages that are too many, if the policy is to do so.

        What is in flight or waits is left as it is. When that alone is too much, as
        after the limit was lowered, all others are given up, and nobody is refused.

        Args:
            end: Offset behind the last message that is visible.
            now: The time.

        Returns:
            Whether producers are refused, for there is no room for another message.
        """
        policy = self._channel.policy
        if policy.max_length is None:
            return False
        excess = self.excess(end)
        if policy.overflow == "refuse":
            return excess >= 0
        if excess <= 0:
            return False
        places = self._channel.places
        chosen: list[Stretch] = []
        for start, behind, history in [*places.ready, *fresh(places, end)]:
            if excess:
                stop = min(behind, start + excess)
                chosen.append((start, stop, history))
                excess -= stop - start
        self._discard(chosen, "length", now)
        return False

    # --- messages that wait --------------------------------------------------------------

    def reschedule(
        self, offsets: Iterable[int], due: int, now: int, *, dry_run: bool = False
    ) -> list[int]:
        """
        Let messages that wait for their next attempt come at another time.

        Args:
            offsets: Which ones.
            due: When; at once if that is now.
            now: The time.
            dry_run: Only say with which it would be done.

        Returns:
            Those that wait.
        """
        places = self._channel.places
        places.wake(now)
        wanted, found = Runs((offset, offset + 1) for offset in offsets), Runs()
        for _, base, bits, _ in places.waiting:
            for run in runs_in(base, wanted.cut(base, bits)):
                found.add(*run)
        if found and not dry_run:
            edges = [edge for run in found for edge in run]
            self._channel.move(now, "", (RESCHEDULE, due, edges))
        return [offset for run in found for offset in range(*run)]

    # --- dead letters ------------------------------------------------------------------

    def dead_letters(self) -> list[Doom]:
        """Return what is to be appended to the dead-letter topic, each once, in this order."""
        doomed = self._channel.places.doomed.values()
        found = sorted(doom for doom in doomed if doom.base not in self._handed)
        self._handed.update(doom.base for doom in found)
        return found

    def buried(self, doom: Doom, now: int) -> None:
        """
        Settle messages: they are in the dead-letter topic.

        Args:
            doom: One of `dead_letters`.
            now: The time.
        """
        self._handed.discard(doom.base)
        self._channel.move(now, "", (BURY, doom.base))

    def unburied(self, doom: Doom) -> None:
        """
        Let messages be among the dead letters again: they could not be appended.

        Args:
            doom: One of `dead_letters`.
        """
        self._handed.discard(doom.base)

    def recall(self, doom: Doom, now: int) -> None:
        """
        Let messages be ready again that were given up, for nobody takes them.

        Args:
            doom: One of `dead_letters`.
            now: The time.
        """
        self._handed.discard(doom.base)
        self._channel.move(now, "", (RECALL, doom.base))
        self._channel.looking.begin(self._channel.policy)

    # --- coming back from the dead --------------------------------------------------

    def revive(self, offsets: Mapping[int, int], now: int) -> Revived:
        """
        Let settled messages come again as if they had never failed.

        Args:
            offsets: Which ones, and how often each was sent back with this time. What
                is unsettled stays as it is, so that to do this twice does no harm.
            now: The time.
        """
        places = self._channel.places
        doomed = Runs(run for doom in places.doomed.values() for run in doom.runs)
        dying = [offset for offset in offsets if offset in doomed]
        wanted: dict[int, list[int]] = {}
        for offset, redriven in sorted(offsets.items()):
            if offset not in doomed:
                wanted.setdefault(redriven, []).append(offset)
        for redriven, some in wanted.items():
            for base, bits in _packs(some):
                self._channel.move(now, "", (REVIVE, base, bits, redriven))
        if wanted:
            self._channel.looking.begin(self._channel.policy)
        return Revived([offset for offset in offsets if offset not in doomed], dying)

    def standing(self, end: int) -> list[Run]:
        """
        Return what is unsettled and in nobody's hands, in order.

        Args:
            end: Offset behind the last message that is visible.
        """
        places = self._channel.places
        found = Runs((start, behind) for start, behind, _ in places.ready)
        for start, behind, _ in fresh(places, end):
            found.add(start, behind)
        return list(found)

    def settle(self, runs: Iterable[Run], now: int) -> None:
        """
        Settle messages that people dealt with, wherever they are but in flight or given up.

        Args:
            runs: Which ones.
            now: The time.
        """
        places = self._channel.places
        for start, end in runs:
            self._channel.move(now, "", (SKIP, start, end))
        for start, end in places.ahead:
            if start <= places.cursor < end:
                self._channel.move(now, "", (PASS, end))
            break


def _joined(stretches: list[Stretch]) -> list[tuple[int, int, int, int]]:
    """Write runs with how often they were given out and failed, as few as can be."""
    rows: list[tuple[int, int, int, int]] = []
    for start, end, history in stretches:
        if rows and rows[-1][1:] == (start, history.deliveries, history.failures):
            start = rows.pop()[0]  # noqa: PLW2901 - they touch
        while start < end:
            behind = min(end, start + MOST_SPANNED)
            rows.append((start, behind, history.deliveries, history.failures))
            start = behind  # noqa: PLW2901 - the rest of a long stretch
    return rows


def _packs(offsets: list[int]) -> list[tuple[int, int]]:
    """Write sorted offsets as bases and bits, of no more than a lease may span."""
    packs: list[tuple[int, int]] = []
    for offset in offsets:
        if packs and offset - packs[-1][0] < MOST_SPANNED:
            base, bits = packs[-1]
            packs[-1] = base, bits | 1 << offset - base
        else:
            packs.append((offset, 1))
    return packs
