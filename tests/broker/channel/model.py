"""
A channel in the simplest form: a list of messages with states.

It does not choose who gets what; it says whether a choice was right, and what
must become of every message after each operation.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy

from attrs import define, evolve, field

from tinymq.broker.channel.lease import WHOLE, Delivery, Lost
from tinymq.channelpolicy import ChannelPolicy


@define
class Message:
    """One message: where it is, and what it has been through."""

    offset: int
    key: int
    hidden: bool = False
    state: str = "open"
    deliveries: int = 0
    failures: int = 0
    alone: bool = False
    lease: int = 0
    due: int = 0
    redriven: bool = False

    def renew(self) -> None:
        """Forget what it has been through."""
        self.state, self.deliveries, self.failures, self.alone = "open", 0, 0, False


@define
class ModelLease:
    """What a lease covers, and until when."""

    holder: str
    base: int
    granted: int
    deadline: int
    touched: set[int] = field(factory=set)
    touched_until: int = 0


@define
class Model:
    """What a channel should be."""

    policy: ChannelPolicy
    messages: list[Message] = field(factory=list)
    leases: dict[int, ModelLease] = field(factory=dict)
    lost: dict[int, set[int]] = field(factory=dict)
    #: Consumer to when its leases lapse, whether it was busy, whether it is blameless.
    absent: dict[str, tuple[int, bool, bool]] = field(factory=dict)
    paused: bool = False
    start: int = 0
    #: Until when, what was skipped, what was revived.
    undo: tuple[int, list[Message], list[int]] | None = None
    #: Offsets in the order in which they were given up.
    given_up: list[int] = field(factory=list)
    #: Whether the keys of what is in flight are known.
    keys_known: bool = True

    def copy(self) -> Model:
        """Return a model that has gone through the same."""
        return deepcopy(self)

    # --- looking ---------------------------------------------------------------

    @property
    def end(self) -> int:
        """Offset behind the last message."""
        return len(self.messages)

    def held(self, consumer: str) -> list[Message]:
        """Return what a consumer holds."""
        return [m for m in self.messages if m.state == "leased" and self.holder(m) == consumer]

    def holder(self, message: Message) -> str:
        """Return who holds a message."""
        return self.leases[message.lease].holder

    def of(self, lease: int, bits: int) -> list[Message]:
        """Return the messages of a lease that are meant and held."""
        known = self.leases.get(lease)
        if known is None:
            return []
        return [
            m
            for m in self.messages
            if m.state == "leased" and m.lease == lease and bits >> (m.offset - known.base) & 1
        ]

    def bits(self, lease: int, messages: Iterable[Message]) -> int:
        """Return the bits of messages in a lease."""
        return sum(1 << m.offset - self.leases[lease].base for m in messages)

    def live(self) -> list[int]:
        """Return the leases that hold something."""
        return sorted({m.lease for m in self.messages if m.state == "leased"})

    def key(self, message: Message) -> int:
        """Return what must stay in order together."""
        return 0 if self.policy.order == "strict" else message.key

    # --- giving out --------------------------------------------------------------

    def take(self, consumer: str, deliveries: list[Delivery], now: int, busy: bool) -> None:
        """Check what a consumer was given, and give it."""
        before = self.held(consumer)
        assert not (self.paused and deliveries)
        if any(m.alone for m in before):
            assert deliveries == [], "whoever holds a message alone holds nothing else"
        given: list[Message] = []
        for delivery in deliveries:
            assert delivery.consumer == consumer
            assert delivery.bits & 1
            for offset in range(delivery.base, delivery.end):
                if not delivery.bits >> (offset - delivery.base) & 1:
                    continue
                message = self.messages[offset]
                due = message.state == "waiting" and message.due <= now
                assert message.state == "open" or due, message
                assert not message.hidden
                assert delivery.attempt == message.deliveries + 1
                assert delivery.failures == message.failures
                given.append(message)
                self._give(message, delivery, consumer, now)
        if any(m.alone for m in given):
            assert len(given) == 1
            assert not before
            assert not busy
        self._check_order(consumer, given)

    def _give(self, message: Message, delivery: Delivery, consumer: str, now: int) -> None:
        if self.policy.delivery == "at_most_once":
            assert delivery.lease_id == 0
            message.state = "settled"
            return
        assert delivery.deadline == now + self.policy.lease_ms
        message.state, message.lease = "leased", delivery.lease_id
        self.leases[delivery.lease_id] = ModelLease(
            consumer, delivery.base, delivery.deadline, delivery.deadline
        )

    def _check_order(self, consumer: str, given: list[Message]) -> None:
        if self.policy.order == "none":
            return
        for message in given:
            for earlier in self.messages[: message.offset]:
                if self.key(earlier) != self.key(message) or earlier.hidden:
                    continue
                assert earlier.state in {"leased", "settled", "doomed"}, (earlier, message)
                if earlier.state == "leased":
                    assert self.holder(earlier) == consumer, (earlier, message)

    # --- settling ------------------------------------------------------------------

    def late(self, consumer: str, lease: int, bits: int) -> list[Lost]:
        """Return what a consumer is told to have lost when it settles."""
        known = self.leases.get(lease)
        if known is None:
            return [Lost(consumer, lease, bits)]
        alive = lease in self.live()
        if alive and known.holder != consumer:
            return [Lost(consumer, lease, bits)]
        gone = sum(1 << offset - known.base for offset in self.lost.get(lease, ()))
        if alive and bits == WHOLE:
            return []
        held = self.bits(lease, self.of(lease, bits))
        lost = gone & bits & ~held
        return [Lost(consumer, lease, lost)] if lost else []

    def lose(self, message: Message) -> None:
        """Note that a holder has a message no more, without having settled it."""
        self.lost.setdefault(message.lease, set()).add(message.offset)

    def finish(self, messages: list[Message]) -> None:
        """Settle messages."""
        for message in messages:
            message.state = "settled"

    def requeue(self, messages: list[Message], now: int, delay: int | None, failure: bool) -> None:
        """Let messages of one lease come again."""
        for message in messages:
            if failure:
                self._fail(message, now, delay, alone=False)
            else:
                message.deliveries += 1
                message.alone = False
                self._delay(message, now, delay or 0)

    def _fail(self, message: Message, now: int, delay: int | None, *, alone: bool) -> None:
        message.deliveries += 1
        message.failures += 1
        if message.failures >= self.policy.attempts:
            self.doom(message)
            return
        message.alone = alone
        self._delay(
            message, now, self.policy.delay(message.failures, 0.0) if delay is None else delay
        )

    def _delay(self, message: Message, now: int, delay: int) -> None:
        message.state = "waiting" if delay else "open"
        message.due = now + delay

    def doom(self, message: Message) -> None:
        """Give a message up."""
        message.state, message.alone = "doomed", False
        self.given_up.append(message.offset)

    def reject(self, messages: list[Message]) -> None:
        """Give messages up at their consumer's word."""
        for message in messages:
            message.deliveries += 1
            message.failures += 1
            self.doom(message)

    def leave(self, messages: list[Message]) -> None:
        """Take messages back as if they had not been given out."""
        for message in messages:
            message.state = "open"
            self.lose(message)

    def touch(self, lease: int, messages: list[Message], until: int) -> None:
        """Renew a lease, or a part of it."""
        known = self.leases[lease]
        if len(messages) == len(self.of(lease, WHOLE)):
            known.deadline = max(known.deadline, until)
        elif messages:
            known.touched |= {m.offset for m in messages}
            known.touched_until = max(known.touched_until, until)

    def revoke(self, consumer: str, returned: list[Message]) -> list[Lost]:
        """Take back what would overtake messages that come again."""
        if self.policy.order == "none" or not returned:
            return []
        first: dict[int, int] = {}
        for message in returned:
            key = self.key(message) if self.keys_known else 0
            first[key] = min(first.get(key, message.offset), message.offset)
        revoked: dict[int, list[Message]] = {}
        for message in self.held(consumer):
            key = self.key(message) if self.keys_known else 0
            if first.get(key, message.offset) < message.offset:
                revoked.setdefault(message.lease, []).append(message)
        told = [
            Lost(consumer, lease, self.bits(lease, messages))
            for lease, messages in sorted(revoked.items())
        ]
        for messages in revoked.values():
            self.leave(messages)
        return told

    def act(self, messages: list[Message], verb: str, ms: int, now: int) -> list[Lost]:
        """Do with messages in flight what people want; return what their holders are told."""
        told: list[Lost] = []
        returned: dict[str, list[Message]] = {}
        for lease in sorted({m.lease for m in messages}):
            mine = [m for m in messages if m.lease == lease]
            holder = self.leases[lease].holder
            if verb == "extend":
                self.touch(lease, mine, now + ms)
                continue
            told.append(Lost(holder, lease, self.bits(lease, mine)))
            for message in mine:
                self.lose(message)
                if verb == "requeue":
                    message.deliveries += 1
                    self._delay(message, now, ms)
                    returned.setdefault(holder, []).append(message)
            if verb == "finish":
                self.finish(mine)
            elif verb == "dead_letter":
                self.reject(mine)
        for holder, back in returned.items():
            told += self.revoke(holder, back)
        return told

    # --- time ----------------------------------------------------------------------

    def expire(self, told: list[Lost], now: int) -> None:
        """Check what consumers are told to have lost by time, and take it back."""
        if self.undo is not None and self.undo[0] <= now:
            self.undo = None
        for consumer in [name for name, (until, _, _) in self.absent.items() if until <= now]:
            self._lapse(consumer, now)
        told = list(told)
        while told:
            lost = told.pop(0)
            overdue = self._overdue(lost.lease_id, now)
            assert self.bits(lost.lease_id, overdue) == lost.bits
            assert self.leases[lost.lease_id].holder == lost.consumer
            for revoked in self._time_out(lost, overdue, now):
                assert told.pop(0) == revoked
        for lease in self.live():
            if self.leases[lease].holder not in self.absent:
                assert self._overdue(lease, now) == []

    def _overdue(self, lease: int, now: int) -> list[Message]:
        known = self.leases[lease]
        held = self.of(lease, WHOLE)
        if now < known.deadline:
            return []
        if now < known.touched_until:
            left = [m for m in held if m.offset in known.touched]
            overdue = [m for m in held if m.offset not in known.touched]
            if left and not overdue:
                known.deadline, known.touched = known.touched_until, set()
            return overdue
        return held

    def _time_out(self, lost: Lost, overdue: list[Message], now: int) -> list[Lost]:
        known = self.leases[lost.lease_id]
        if len(overdue) < len(self.of(lost.lease_id, WHOLE)):
            known.deadline, known.touched = known.touched_until, set()
        for message in overdue:
            self.lose(message)
            if len(overdue) == 1:
                self._fail(message, now, None, alone=True)
            else:
                message.deliveries += 1
                message.state, message.alone = "open", True
        back = [m for m in overdue if m.state != "doomed"]
        return self.revoke(lost.consumer, back)

    def _lapse(self, consumer: str, now: int) -> None:
        _, busy, blameless = self.absent.pop(consumer)
        held = self.held(consumer)
        for message in held:
            self.lose(message)
            if blameless:
                message.deliveries += 1
                message.state = "open"
            elif len(held) == 1 and not busy:
                self._fail(message, now, None, alone=True)
            else:
                message.deliveries += 1
                message.state, message.alone = "open", True

    # --- steering --------------------------------------------------------------------

    def difference(self, cursor: int) -> tuple[list[Message], list[int]]:
        """Return what a seek would settle, and what it would revive."""
        skipped = [
            evolve(m, deliveries=m.deliveries + (m.state == "leased"), state="open")
            for m in self.messages[:cursor]
            if m.state in {"open", "leased", "waiting"}
        ]
        return skipped, [m.offset for m in self.messages[cursor:] if m.state == "settled"]

    def seek(self, cursor: int, now: int, window: int) -> None:
        """Begin anew at an offset."""
        self.undo = (now + window, *self.difference(cursor))
        for message in self.messages:
            if message.state == "leased":
                self.lose(message)
            if message.state != "doomed":
                message.renew()
                if message.offset < cursor:
                    message.state = "settled"

    def take_back(self) -> None:
        """Undo the last seek."""
        assert self.undo is not None
        _, skipped, revived = self.undo
        for offset in revived:
            message = self.messages[offset]
            if message.state == "leased":
                self.lose(message)
            if message.state != "doomed":
                message.state = "settled"
        for message in skipped:
            self.messages[message.offset] = message
        self.undo = None

    def trim(self, start: int) -> None:
        """Settle all that lies below an offset."""
        self.start = start
        for message in self.messages[:start]:
            if message.state == "leased":
                self.lose(message)
            if message.state != "doomed":
                message.state = "settled"
        if self.undo is not None:
            until, skipped, revived = self.undo
            self.undo = (until, [m for m in skipped if m.offset >= start], revived)

    def skip(self, start: int, end: int) -> None:
        """Settle what nobody holds of a run."""
        for message in self.messages[start:end]:
            if message.state in {"open", "waiting"}:
                message.state = "settled"

    def revive(self, offsets: list[int]) -> tuple[list[int], list[int]]:
        """Let settled messages come again; return those that do or did, and those that die."""
        messages = [self.messages[offset] for offset in offsets]
        back = [m.offset for m in messages if m.state == "settled"]
        for offset in back:
            self.messages[offset].renew()
            self.messages[offset].redriven = True
        if self.undo is not None:
            until, skipped, revived = self.undo
            self.undo = until, [m for m in skipped if m.offset not in back], revived
        dying = [m.offset for m in messages if m.state == "doomed"]
        return [offset for offset in offsets if offset not in dying], dying

    def outlive(self, offsets: list[int], hidden: list[int], *, passing: bool) -> list[int]:
        """Give up, or pass over, what nobody holds of some messages; return what is in flight."""
        held = []
        for message in (self.messages[offset] for offset in offsets):
            spared = message.redriven or message.offset in hidden
            if message.state in {"open", "waiting"} and not spared:
                if passing:
                    message.state = "settled"
                else:
                    self.doom(message)
            elif message.state == "leased":
                held.append(message.offset)
        return held
