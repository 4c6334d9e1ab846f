"""
The life of one message in one channel, read from what the channel wrote down.

Records of the ledger go in, in order, and what happened to the message comes
out. The ledger names leases, not messages, so this follows the one lease that
holds the message, and where it is between leases.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgpack

from tinymq.broker.channel.entries import (
    ADMIT,
    BACK,
    BURY,
    DISCARD,
    DOOM,
    EXPIRE,
    FINISH,
    HOLD,
    LEASE,
    NAMED,
    ONE,
    OPERATOR,
    PASS,
    RECALL,
    RESCHEDULE,
    REVIVE,
    SEEK,
    SKIP,
    TAKE,
    TRIM,
    UNDO,
    WAIT,
)
from tinymq.broker.channel.lease import WHOLE
from tinymq.broker.channel.ledger import replay, unpack_bits
from tinymq.broker.channel.places import Places
from tinymq.broker.channel.runs import lowest
from tinymq.errors import CorruptBatch

#: Where a message of a channel is.
State: TypeAlias = Literal["new", "ready", "in_flight", "waiting", "parked", "given_up", "settled"]

#: Happenings that are kept of one message; the latest.
MOST_KEPT: Final = 500

#: An integer in an entry has no more bits than this.
_NARROW: Final = 64
_UNSETTLED: Final = ("new", "ready", "in_flight", "waiting", "parked")
_AT_REST: Final = ("new", "ready", "waiting", "parked")


class Happening(NamedTuple):
    """
    Something that happened to a message.

    Attributes:
        time: When.
        what: One word.
        attempt: Which delivery it is about; 0 if about none.
        client: What the client called itself; None if it is about none, or not known.
        text: More about it, for people.
    """

    time: int
    what: str
    attempt: int
    client: str | None
    text: str


def where(places: Places, offset: int) -> State:
    """
    Say where a message of a channel is.

    Args:
        places: The channel's state.
        offset: The message.
    """
    if any(_has(lease.base, lease.bits, offset) for lease in places.leases.values()):
        return "in_flight"
    if any(_has(base, bits, offset) for _, base, bits, _ in places.waiting):
        return "waiting"
    if any(_has(doom.base, doom.bits, offset) for doom in places.doomed.values()):
        return "given_up"
    if places.ready.at(offset) is not None:
        return "ready"
    if places.order is not None and places.order.parked.at(offset) is not None:
        return "parked"
    gone = offset < places.cursor or offset in places.ahead or offset in places.hidden
    return "settled" if gone else "new"


def _has(base: int, bits: int, offset: int) -> bool:
    return offset >= base and bool(bits >> offset - base & 1)


class Life:
    """
    The life of a message in a channel.

    Args:
        offset: The message.

    Attributes:
        happenings: The latest, in order.
        count: How many there were.
        state: Where it is; None while that is not known.
    """

    def __init__(self, offset: int) -> None:
        self.happenings: deque[Happening] = deque(maxlen=MOST_KEPT)
        self.count = 0
        self.state: State | None = None
        self._offset = offset
        #: Of the lease that it is in: id, base, what is held of it, and when it was to be over.
        self._lease = -1
        self._base = self._held = self._due = 0
        self._attempt = 0
        #: The first offset of what it was given up with.
        self._doom = -1
        self._sought: State | None = None
        self._names: dict[str, str] = {}
        self._now = 0
        self._who = ""
        #: What concerns the message only when it is in that lease.
        self._of_lease: dict[int, Callable[..., None]] = {
            FINISH: self._finished,
            ONE: self._finished_one,
            BACK: self._back,
            WAIT: self._waits,
            DOOM: self._doomed,
            HOLD: self._held_back,
        }
        self._others: dict[int, Callable[..., None]] = {
            TAKE: self._taken,
            DISCARD: self._discarded,
            EXPIRE: self._expired,
            BURY: self._buried,
            SKIP: self._skipped,
            TRIM: self._trimmed,
            PASS: self._passed,
            ADMIT: self._admitted,
            SEEK: self._seek,
            UNDO: self._undone,
            NAMED: self._named,
            REVIVE: self._revived,
            RECALL: self._recalled,
            RESCHEDULE: self._rescheduled,
        }

    def read(self, value: bytes) -> None:
        """
        Take a record of the channel.

        Args:
            value: The value of a record of the ledger.

        Raises:
            CorruptBatch: It cannot be read.
        """
        try:
            self._now, who, entries = msgpack.unpackb(value, strict_map_key=False)
            if who is None:
                self._restore(replay(Places(), [value]))
                return
            self._who = who
            offset, lease_id = self._offset, self._lease
            of_lease, others = self._of_lease, self._others
            for entry in entries:
                kind = entry[0]
                if kind == LEASE:
                    # Nearly all are of other messages, so this is found out at once.
                    bits, beyond = entry[3], offset - entry[2]
                    if beyond >= 0 and (type(bits) is bytes or beyond < max(-bits, _NARROW)):
                        self._given(*entry[1:])
                        lease_id = self._lease
                elif kind in of_lease:
                    if entry[1] == lease_id:
                        of_lease[kind](*entry[1:])
                        lease_id = self._lease
                elif kind in others:
                    others[kind](*entry[1:])
        except (msgpack.UnpackException, LookupError, TypeError, ValueError) as error:
            raise CorruptBatch(f"a record of the ledger cannot be read: {error}") from error

    def _tell(self, what: str, text: str = "", *, attempt: int | None = None) -> None:
        client = self._names.get(self._who)
        number = self._attempt if attempt is None else attempt
        self.happenings.append(Happening(self._now, what, number, client, text))
        self.count += 1

    def _end(self, state: State) -> None:
        self.state = state
        self._lease = -1

    def _restore(self, places: Places) -> None:
        """Go on from a snapshot."""
        self._end(where(places, self._offset))
        for lease in places.leases.values():
            if _has(lease.base, lease.bits, self._offset):
                self._lease, self._base, self._held = lease.lease_id, lease.base, lease.bits
                self._attempt, self._due = lease.history.deliveries + 1, lease.deadline
        for doom in places.doomed.values():
            if _has(doom.base, doom.bits, self._offset):
                self._doom = doom.base

    # --- giving out -------------------------------------------------------------------

    def _given(  # noqa: PLR0913, PLR0917 - as it stands in the ledger
        self,
        lease_id: int,
        base: int,
        bits: Any,
        deliveries: int,
        failures: int,
        alone: int,
        term: int,
    ) -> None:
        held = _whole(bits)
        if _has(base, held, self._offset):
            self._lease, self._base, self._held = lease_id, base, held
            self._attempt, self._due = deliveries + 1, self._now + term
            self.state = "in_flight"
            self._tell("delivered", f"after {failures} failures" if failures else "")

    def _taken(self, base: int, bits: Any) -> None:
        if _has(base, _whole(bits), self._offset):
            self._attempt += 1
            self._tell("delivered", "settled by that, for the channel delivers at most once")
            self._end("settled")

    # --- settling ---------------------------------------------------------------------

    def _leaves(self, bits: Any) -> bool:
        """Whether the message is among those that leave its lease; the others do at any rate."""
        mask = unpack_bits(bits)
        hit = self._held & mask
        if _has(self._base, hit, self._offset):
            return True
        self._held ^= hit
        return False

    def _finished(self, lease_id: int, bits: Any = WHOLE, lost: int = 0) -> None:
        if self._leaves(bits):
            self._tell("finished", "by people, while its holder had it" if lost else "")
            self._end("settled")

    def _held_back(self, lease_id: int, bits: Any, held_id: int, *identity: int) -> None:
        """Go on with the lease of a transaction: it is decided later what happens."""
        hit = self._held & unpack_bits(bits)
        if self._leaves(bits):
            low = lowest(hit)
            self._lease, self._base, self._held = held_id, self._base + low, hit >> low

    def _finished_one(self, lease_id: int, bit: int) -> None:
        self._finished(lease_id, 1 << bit)

    def _back(  # noqa: PLR0913, PLR0917 - as it stands in the ledger
        self,
        lease_id: int,
        bits: Any,
        lost: int,
        deliveries: int,
        failures: int,
        alone: int,
        why: str = "",
        text: str = "",
    ) -> None:
        if self._leaves(bits):
            self._tell(self._cause(lost, deliveries, why), text)
            self._end("ready")

    def _waits(  # noqa: PLR0913, PLR0917 - as it stands in the ledger
        self,
        lease_id: int,
        bits: Any,
        lost: int,
        deliveries: int,
        failures: int,
        alone: int,
        delay: int,
        why: str = "",
        text: str = "",
    ) -> None:
        if self._leaves(bits):
            later = f"comes again in {delay / 1000:g} s"
            self._tell(self._cause(lost, deliveries, why), f"{text}; {later}" if text else later)
            self._end("waiting")

    def _cause(self, lost: int, deliveries: int, why: str) -> str:
        """Say why it came back."""
        if deliveries < self._attempt:
            return "given_back"
        if why in {"timeout", "lost"}:
            return "timed_out" if why == "timeout" else "lost"
        if lost and why != OPERATOR:  # written by an older version
            return "timed_out" if self._now >= self._due else "lost"
        return "requeued"

    def _rescheduled(self, due: int, edges: Sequence[int]) -> None:
        runs = zip(edges[::2], edges[1::2], strict=True)
        if any(start <= self._offset < end for start, end in runs):
            later = max(0, due - self._now) / 1000
            self._tell("rescheduled", f"comes again in {later:g} s" if later else "", attempt=0)
            self.state = "waiting"

    # --- giving up --------------------------------------------------------------------

    def _doomed(  # noqa: PLR0913, PLR0917 - as it stands in the ledger
        self,
        lease_id: int,
        bits: Any,
        lost: int,
        deliveries: int,
        failures: int,
        reason: str,
        text: str,
    ) -> None:
        hit = self._held & unpack_bits(bits)
        if self._leaves(bits):
            said = f"{reason}: {text}" if text else reason
            self._tell("rejected" if reason == "rejected" else "given_up", said)
            self._doom = self._base + lowest(hit)
            self._end("given_up")

    def _discarded(self, start: int, end: int, reason: str, *counts: int) -> None:
        if start <= self._offset < end:
            self._tell("given_up", reason, attempt=0)
            self._doom = start
            self._end("given_up")

    def _expired(self, reason: str, facts: Sequence[int]) -> None:
        for start, end in zip(facts[::4], facts[1::4], strict=True):
            if start <= self._offset < end:
                self._tell("expired", "its time to live was over", attempt=0)
                self._doom = start
                self._end("given_up")
                return

    def _buried(self, base: int) -> None:
        if base == self._doom and self.state == "given_up":
            self._tell("dead_lettered")
            self._end("settled")

    def _recalled(self, base: int) -> None:
        if base == self._doom and self.state == "given_up":
            self._tell("revived", "it could not be sent where it was to go", attempt=0)
            self._end("ready")

    def _revived(self, base: int, bits: Any, redriven: int) -> None:
        if self.state == "settled" and _has(base, unpack_bits(bits), self._offset):
            times = "" if redriven == 1 else f", {redriven} times by now"
            self._tell("revived", f"sent back from the dead-letter topic{times}", attempt=0)
            self._attempt = 0
            self._end("ready")

    # --- steering ---------------------------------------------------------------------

    def _settled(self, what: str, text: str) -> None:
        self._tell(what, text, attempt=0)
        self._end("settled")

    def _skipped(self, start: int, end: int) -> None:
        if start <= self._offset < end and self.state in _AT_REST:
            self._settled("skipped", "it is not there, or matches no filter")

    def _trimmed(self, start: int, spared: Sequence[int] = ()) -> None:
        if self._offset < start and self._offset not in spared and self.state in _UNSETTLED:
            self._settled("removed", "retention or a purge took it from the log")

    def _passed(self, cursor: int) -> None:
        if self._offset < cursor and self.state == "new":
            self._settled("skipped", "the channel passed over it")

    def _admitted(self, end: int, hidden: list[int]) -> None:
        if self._offset >= end or self.state != "new":
            return
        self.state = "ready"
        edges = iter(hidden)
        if any(start <= self._offset < behind for start, behind in zip(edges, edges, strict=True)):
            self._settled("skipped", "it is not there, or matches no filter")

    def _seek(self, cursor: int, window: int) -> None:
        self._sought = None
        if self._offset < cursor and self.state in _UNSETTLED:
            self._sought = self.state
            self._settled("skipped", f"the channel was sent to offset {cursor}")
        elif self._offset >= cursor and self.state != "given_up":
            text = f"the channel was sent to offset {cursor}"
            if self.state == "settled":
                self._sought = self.state
                self._tell("revived", text, attempt=0)
            elif self.state == "in_flight":
                self._tell("lost", text)
            self._end("new")

    def _undone(self) -> None:
        before, self._sought = self._sought, None
        if before == "settled" and self.state in _UNSETTLED:
            self._settled("skipped", "the seek was taken back")
        elif before is not None and before != "settled" and self.state == "settled":
            self._tell("revived", "the seek was taken back", attempt=0)
            self._end("ready")

    def _named(self, client: str) -> None:
        self._names[self._who] = client


def _whole(bits: Any) -> int:
    """Read the bits of a delivery; fewer than none stand for so many in a row."""
    found = unpack_bits(bits)
    return (1 << -found) - 1 if found < 0 else found
