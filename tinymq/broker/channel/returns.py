"""How messages come back that were given out: failed, suspected, revoked, or given up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from tinymq.broker.channel.core import Core
from tinymq.broker.channel.entries import BACK, DOOM, WAIT
from tinymq.broker.channel.lease import Lease, Lost
from tinymq.broker.channel.runs import cut, lowest, offsets_in

#: What a consumer says about a failure is cut to this.
_LONGEST_TEXT: Final = 1000
#: Likewise of a failure after which the message comes again: that is said of each.
_LONGEST_SAID: Final = 200
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


class Failure(NamedTuple):
    """Why a message failed, and whether its lease was lost by that."""

    reason: str
    text: str
    lost: int


class Returns:
    """
    The way back of messages of a channel.

    Args:
        core: The middle of the channel.
    """

    def __init__(self, core: Core) -> None:
        self._core = core

    def fail(self, lease: Lease, bits: int, now: int, why: Failure, how: Requeue) -> bool:
        """
        Count a failure of each message.

        Args:
            lease: Their lease.
            bits: Which of its messages.
            now: The time.
            why: What happened.
            how: With which delay they come again.

        Returns:
            Whether they were given up.
        """
        past = lease.history
        failures = past.failures + 1
        if failures >= self._core.policy.attempts:
            self.give_up(lease, bits, now, why)
            return True
        delay = self._core.policy.delay(failures, how.chance) if how.delay is None else how.delay
        # What took its holder down, or hung, drags no neighbours with it next time.
        facts = (lease.lease_id, bits, why.lost, past.deliveries + 1, failures, why.lost)
        said = (why.reason, why.text[:_LONGEST_SAID]) if why.text or why.lost else ()
        entry = (WAIT, *facts, delay, *said) if delay > 0 else (BACK, *facts, *said)
        self._core.move(now, lease.holder, entry)
        return False

    def give_up(self, lease: Lease, bits: int, now: int, why: Failure) -> None:
        """
        Give messages up, whatever the maximum.

        Args:
            lease: Their lease.
            bits: Which of its messages.
            now: The time.
            why: What happened.
        """
        past = lease.history
        text = why.text[:_LONGEST_TEXT]
        counts = (past.deliveries + 1, past.failures + 1)
        entry = (DOOM, lease.lease_id, bits, why.lost, *counts, why.reason, text)
        self._core.move(now, lease.holder, entry)
        self._core.counters.given_up += bits.bit_count()

    def suspect(self, lease: Lease, bits: int, now: int, reason: str) -> None:
        """
        Let messages come back one by one, for only one of them can be at fault.

        Args:
            lease: Their lease.
            bits: Which of its messages.
            now: The time.
            reason: One word.
        """
        past = lease.history
        entry = (BACK, lease.lease_id, bits, 1, past.deliveries + 1, past.failures, 1, reason)
        self._core.move(now, lease.holder, entry)

    def revoke(self, consumer: str, returned: Sequence[tuple[int, int]], now: int) -> list[Lost]:
        """
        Take back what would overtake messages that come again.

        Args:
            consumer: Who held them.
            returned: Messages, as the offset of bit 0 and bits.
            now: The time.

        Returns:
            What the consumer is to be told.
        """
        revoked: list[Lost] = []
        if self._core.policy.order == "none" or not returned:
            return revoked
        holder = self._core.places.holders.get(consumer)
        for lease_id in list(holder.leases) if holder is not None else ():
            lease = self._core.places.leases[lease_id]
            hit = self._overtaking(lease, returned)
            if hit:
                entry = (BACK, lease_id, hit, 1, *lease.history)
                self._core.move(now, consumer, entry)
                revoked.append(Lost(consumer, lease_id, hit))
        return revoked

    def _overtaking(self, lease: Lease, returned: Sequence[tuple[int, int]]) -> int:
        order = self._core.places.order
        if order is None:
            first = min(base + lowest(bits) for base, bits in returned)
            return cut(lease.base, lease.bits, first + 1, _FAR)
        keys = order.first_of(returned)
        return sum(
            1 << offset - lease.base
            for offset in offsets_in(lease.base, lease.bits)
            if keys.get(order.keys[offset], offset) < offset
        )
