"""
What a client holds of one broker: its leases, and what the broker is still to be told of them.

Where an order is kept, nothing of it may be overtaken: what stands behind a message that
comes again is given back, and what came before the broker knew of that waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any

from tinymq.client.core.bundle import QueueBatch
from tinymq.client.core.fate import Fate
from tinymq.client.core.hands import Hands
from tinymq.client.core.held import Bits, HeldLease, Part
from tinymq.client.core.message import QueueMessage
from tinymq.client.core.settling import SettleFrame, Settling
from tinymq.wire.messages import GIVE_BACK, REQUEUE, TOUCH, SettleReply
from tinymq.wire.records import Record

if TYPE_CHECKING:
    from tinymq.client.core.branch import Branch


class Custody:
    """
    The leases of one broker that are held.

    Args:
        topic: Name of the topic.
        told: Called when something is to be told at the end of the turn.

    Attributes:
        topic: Name of the topic.
        held: Messages that came and are not settled.
        late: Messages whose settle came too late, so far.
        order: Which order the channel keeps.
        hands: The leases.
        settling: What the broker is to be told.
    """

    #: The part of a subscription whose leases these are.
    branch: Branch

    def __init__(self, topic: str, told: Callable[[], None]) -> None:
        self.topic = topic
        self.held = 0
        self.late = 0
        self.order = "none"
        self.hands = Hands(self)
        self.settling = Settling(self._late)
        self._told = told
        self._touched: list[QueueMessage | QueueBatch] = []
        #: In an order that is kept, what came while the broker did not know of all returns,
        #: each with their number then: it may stand behind what comes again.
        self._kept: deque[tuple[int, list[HeldLease]]] = deque()

    @property
    def patient(self) -> bool:
        """Whether what is to be told may wait for an answer: nothing comes after it."""
        return self.order == "none" and self.settling.patient

    def finishing(self, lease: HeldLease) -> None:
        """
        Tell the broker soon what was finished of a lease.

        Args:
            lease: It gathers that.
        """
        self.settling.finishing(lease)
        self._told()

    def settle(self, message: QueueMessage, verb: int, facts: dict[str, Any]) -> Fate:
        """
        Tell the broker soon what became of a message.

        Args:
            message: The message.
            verb: What became of it.
            facts: More about that.

        Returns:
            What the broker says of it.
        """
        which = Bits(message.partition, message.lease, 1 << message.bit)
        fate = self.settling.add(which, verb, facts)
        self.hands.release(message)
        if verb in (REQUEUE, GIVE_BACK) and self.order != "none":
            self._hold_back(message.record, message.partition)
        self._told()
        return fate

    def settle_part(self, part: Part, verb: int, facts: dict[str, Any]) -> Fate:
        """
        Tell the broker soon what became of messages that were handed out together.

        Args:
            part: The messages.
            verb: What became of them.
            facts: More about that.

        Returns:
            What the broker says of it.
        """
        again = verb in (REQUEUE, GIVE_BACK) and self.order != "none"
        records = part.first_of_keys(by_key=self.order == "key") if again else ()
        lease, bits = part.lease, part.bits
        fate = self.settling.add(Bits(lease.partition, lease.lease_id, bits), verb, facts)
        lease.release_part(part, bits)
        for record in records:
            self._hold_back(record, lease.partition)
        self._told()
        return fate

    def ended(self, lease: HeldLease) -> None:
        """
        Hold a lease no longer.

        Args:
            lease: Nothing of it is held any more.
        """
        self.hands.forget(lease)

    def give_back(self, lease: HeldLease) -> None:
        """
        Give back what was not handed out of a lease.

        Args:
            lease: The lease.
        """
        bits = lease.drop(lease.fresh)
        if bits:
            self.settling.add_bits(lease.partition, GIVE_BACK, lease.lease_id, bits)
            self._told()
        if lease.over:
            self.ended(lease)

    def _hold_back(self, record: Record, partition: int) -> None:
        """What stands behind a message that comes again must not overtake it."""
        by_key = self.order == "key"
        for part in self.hands.hold_back(record, partition, by_key=by_key):
            self.settling.add_bits(part.partition, GIVE_BACK, part.lease, part.bits)

    def touch(self, message: QueueMessage) -> None:
        """
        Renew a message soon.

        Args:
            message: The message.
        """
        self._touched.append(message)
        self.settling.add_bits(message.partition, TOUCH, message.lease, 1 << message.bit)
        self._told()

    def touch_part(self, part: Part) -> None:
        """
        Renew messages soon that were handed out together.

        Args:
            part: The messages.
        """
        self._touched.append(part.batch)
        self.settling.add_bits(part.lease.partition, TOUCH, part.lease.lease_id, part.bits)
        self._told()

    def _late(self, lease_id: int, bits: int) -> None:
        self.late += self.hands.lose(lease_id, bits)

    def lose(self, lease_id: int, bits: int) -> None:
        """
        Hold messages no longer, for the broker has taken them back.

        Args:
            lease_id: Their lease.
            bits: Which ones.
        """
        self.hands.lose(lease_id, bits)

    def lose_all(self) -> None:
        """Hold nothing any longer."""
        self.hands.lose_all()

    def answered(self, frame: SettleFrame, reply: SettleReply) -> None:
        """
        Take the broker's answer to what it was told.

        Args:
            frame: What it was told.
            reply: What it said.
        """
        late = self.settling.answered(frame, reply)
        self.late += late

    # --- handing out -------------------------------------------------------------

    def keep(self, leases: list[HeldLease]) -> None:
        """
        Take what came; `let_out` says when it may be handed out.

        Args:
            leases: The leases.
        """
        self._kept.append((self.settling.returns, leases))

    def let_out(self) -> list[HeldLease]:
        """Take what may be handed out, since it cannot overtake anything."""
        known = inf if self.order == "none" else self.settling.returned
        found: list[HeldLease] = []
        while self._kept and self._kept[0][0] <= known:
            found += self._kept.popleft()[1]
        return found

    # --- renewing ----------------------------------------------------------------

    def renewed(self, now: float) -> None:
        """
        Let the time of what was touched begin anew: the broker is told now.

        Args:
            now: The time.
        """
        for touched in self._touched:
            touched.started = now
        self._touched.clear()

    def renew(self, now: float, handler_s: float | None) -> None:
        """
        Renew all that is in the caller's hands, and what waits for him.

        Args:
            now: The time.
            handler_s: How long a handler may have a message, or None.
        """
        for part in self.hands.renewals(now, handler_s):
            self.settling.add_bits(part.partition, TOUCH, part.lease, part.bits)

    def return_unknown(self, parts: list[Bits]) -> None:
        """
        Give back what the broker holds for us and we do not know: it was lost on its way.

        Args:
            parts: What that is.
        """
        for part in parts:
            self.settling.add_bits(part.partition, GIVE_BACK, part.lease, part.bits)
