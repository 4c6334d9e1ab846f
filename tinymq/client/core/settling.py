"""
What became of messages, on its way to one broker.

Everything of a turn goes into one frame, as far as it fits; what is finished may wait
for the answer to the one before. A frame that was not answered is sent again with the
next one: the broker confirms what it has settled already, and refuses what was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from attrs import define

from tinymq.client.core.fate import Fate
from tinymq.client.core.held import Bits, HeldLease
from tinymq.client.core.message import lost
from tinymq.errors import TinyMQError
from tinymq.wire.messages import FINISH, GIVE_BACK, REQUEUE, TOUCH, SettleReply, SettleRow

#: All that is left of a lease.
WHOLE: Final = -1
#: Most leases and most rows of a frame.
_MOST: Final = 1000
#: Most bytes of the meta part of a frame, as far as they are counted here.
_BYTES: Final = 40_000
#: Bytes of a row and of a lease, at most, beside what is counted.
_ROW, _LEASE = 32, 16

#: Partition, verb, delay in milliseconds (a time as a number below 0), reason, whether it failed.
_Key = tuple[int, int, int | None, str, bool]


class _Share:
    """The messages of one lease that have the same fate."""

    __slots__ = ("bits", "fates")

    def __init__(self) -> None:
        self.bits = 0
        self.fates: list[Fate] = []

    def add(self, fate: Fate) -> Fate:
        """Take more messages."""
        self.bits |= fate.bits
        self.fates.append(fate)
        return fate

    def tell(self, gone: int, error: TinyMQError | None) -> int:
        """Tell them what the broker said; return how many it did not take."""
        return sum(fate.tell(gone, error) for fate in self.fates)


@define(eq=False)
class SettleFrame:
    """
    One frame's worth.

    Attributes:
        shares: What is in it.
        first: The number of the first return that may be in it; see `Settling.returned`.
    """

    shares: dict[_Key, dict[int, _Share]]
    first: int

    @property
    def rows(self) -> list[SettleRow]:
        """The rows of the message."""
        return [
            (
                partition,
                verb,
                [(lease, as_bytes(share.bits)) for lease, share in leases.items()],
                _facts(delay, reason, failure=failure),
            )
            for (partition, verb, delay, reason, failure), leases in self.shares.items()
        ]

    @property
    def leases(self) -> Iterable[tuple[int, _Share]]:
        """The leases in it, with what is said of them."""
        for leases in self.shares.values():
            yield from leases.items()


class Settling:
    """
    What one broker is still to be told.

    Args:
        late: Called with a lease and bits that the broker says are not held.

    Attributes:
        returns: How often something was said that makes messages come again.
    """

    def __init__(self, late: Callable[[int, int], None]) -> None:
        self._late = late
        self.returns = 0
        #: The number of the first return that may be among what was not sent.
        self._first = 1
        self._pending: dict[_Key, dict[int, _Share]] = {}
        self._flying: set[SettleFrame] = set()
        #: Leases of which something was finished since the last frame.
        self._finishing: list[HeldLease] = []

    @property
    def pending(self) -> bool:
        """Whether something was not sent."""
        return bool(self._pending or self._finishing)

    @property
    def patient(self) -> bool:
        """Whether a frame was not answered, and nothing but what was finished was not sent."""
        return bool(self._flying and not self._pending)

    @property
    def idle(self) -> bool:
        """Whether everything was confirmed."""
        return not (self._pending or self._finishing or self._flying)

    def finishing(self, lease: HeldLease) -> None:
        """
        Take what is finished of a lease up to the end of the turn.

        Args:
            lease: The lease.
        """
        self._finishing.append(lease)

    def _gather(self) -> None:
        leases, self._finishing = self._finishing, []
        for lease in leases:
            key = (lease.partition, FINISH, None, "", True)
            self._share(self._pending, key, lease.lease_id).add(lease.gather())

    @property
    def returned(self) -> int:
        """
        How many returns, from the first on, the broker knows of.

        What it delivered before it knew may stand behind what comes again.
        """
        firsts = [frame.first for frame in self._flying]
        return (
            min([self._first, *firsts] if self._pending else firsts, default=self.returns + 1) - 1
        )

    def add(self, which: Bits, verb: int, facts: dict[str, Any]) -> Fate:
        """
        Take what became of messages.

        Args:
            which: The messages.
            verb: What became of them.
            facts: More about that.

        Returns:
            What the broker says of it.
        """
        self._note(verb)
        key = (
            which.partition,
            verb,
            -facts["a"] if "a" in facts else facts.get("d"),
            facts.get("x", ""),
            facts.get("f", True),
        )
        return self._share(self._pending, key, which.lease).add(Fate(which.bits))

    def add_bits(self, partition: int, verb: int, lease: int, bits: int) -> None:
        """
        Take something of a lease for which there are no messages here.

        Args:
            partition: Number of the partition.
            verb: What is to be said.
            lease: The lease.
            bits: Which of its messages, or `WHOLE`.
        """
        self._note(verb)
        share = self._share(self._pending, (partition, verb, None, "", True), lease)
        share.bits |= bits

    def bits_of(self, lease: int) -> int:
        """
        Say which messages of a lease were settled and not confirmed.

        Args:
            lease: The lease.
        """
        self._gather()
        found = 0
        for shares in (self._pending, *(frame.shares for frame in self._flying)):
            for key, leases in shares.items():
                if lease in leases and key[1] != TOUCH:
                    found |= leases[lease].bits
        return found

    def take(self) -> list[SettleFrame]:
        """Take the frames to be sent, at least one; each must come back to one of the next."""
        self._gather()
        pending, self._pending = self._pending, {}
        first, self._first = self._first, self.returns + 1
        frames: list[SettleFrame] = []
        shares: dict[_Key, dict[int, _Share]] = {}
        count = size = 0
        for key, leases in pending.items():
            for lease, share in leases.items():
                fresh = key not in shares
                needed = _LEASE + share.bits.bit_length() // 8
                needed += (_ROW + 4 * len(key[3])) if fresh else 0
                if count >= _MOST or (count and size + needed > _BYTES):
                    frames.append(SettleFrame(shares, first))
                    shares, count, size = {}, 0, 0
                shares.setdefault(key, {})[lease] = share
                count += 1
                size += needed
        if shares or not frames:
            frames.append(SettleFrame(shares, first))
        self._flying.update(frames)
        return frames

    def answered(self, frame: SettleFrame, reply: SettleReply) -> int:
        """
        Take the broker's answer.

        Args:
            frame: From `take`.
            reply: What it said.

        Returns:
            How many messages were settled too late.
        """
        self._flying.discard(frame)
        late: dict[int, int] = {}
        for _, lease, row in reply.late:
            # Messages of one lease may have had several fates, with a row for each.
            late[lease] = late.get(lease, 0) | int.from_bytes(row, "little")
        count = 0
        error = lost() if late else None
        for lease, share in frame.leases:
            count += share.tell(late.get(lease, 0), error)
        for lease, bits in late.items():
            self._late(lease, bits)
        return count

    def back(self, frame: SettleFrame) -> None:
        """
        Take back a frame that may not have arrived, to send it again.

        Args:
            frame: From `take`.
        """
        self._flying.discard(frame)
        self._first = min(self._first, frame.first)
        for key, leases in frame.shares.items():
            if key[1] == TOUCH:
                continue  # the next ones say the same
            for lease, share in leases.items():
                known = self._share(self._pending, key, lease)
                known.bits |= share.bits
                known.fates += share.fates

    def refused(self, frame: SettleFrame, error: TinyMQError) -> None:
        """
        Note that a frame will never be taken.

        Args:
            frame: From `take`.
            error: Why.
        """
        self._flying.discard(frame)
        for _, share in frame.leases:
            share.tell(WHOLE, error)

    def give_up(self, error: TinyMQError) -> int:
        """
        Tell all that was not confirmed that it never will be.

        Args:
            error: Why.

        Returns:
            How many messages that concerned.
        """
        self._gather()
        frames = [SettleFrame(self._pending, self._first), *self._flying]
        self._pending, self._flying = {}, set()
        return sum(share.tell(WHOLE, error) for frame in frames for _, share in frame.leases)

    def _note(self, verb: int) -> None:
        if verb in (REQUEUE, GIVE_BACK):
            self.returns += 1

    def _share(self, shares: dict[_Key, dict[int, _Share]], key: _Key, lease: int) -> _Share:
        leases = shares.get(key)
        if leases is None:
            leases = shares[key] = {}
        share = leases.get(lease)
        if share is None:
            share = leases[lease] = _Share()
        return share


def as_bytes(bits: int) -> bytes | None:
    """
    Write bits as they travel.

    Args:
        bits: The bits, or `WHOLE`.
    """
    return None if bits < 0 else bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def _facts(delay: int | None, reason: str, *, failure: bool) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    if delay is not None and delay < 0:
        facts["a"] = -delay
    elif delay is not None:
        facts["d"] = delay
    if reason:
        facts["x"] = reason
    if not failure:
        facts["f"] = False
    return facts
