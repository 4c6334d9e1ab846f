"""A lease in the hands of a client, and what was handed out of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tinymq.client.core.fate import Fate
from tinymq.client.core.message import QueueMessage
from tinymq.client.core.parcels import Pack, Span, bits_at, runs_of, spans_of
from tinymq.wire.messages import DeliveryRow
from tinymq.wire.records import Record

if TYPE_CHECKING:
    from tinymq.client.core.branch import Branch
    from tinymq.client.core.bundle import QueueBatch

#: Makes a message: what was published, the lease that it is in, the time.
Maker = Callable[[Record, "HeldLease", float], QueueMessage]
#: Makes a batch: its messages by lease, what makes a message, the time.
BatchMaker = Callable[[list["Part"], Maker, float], "QueueBatch"]


class Bits(NamedTuple):
    """
    Some messages of a lease.

    Attributes:
        partition: Number of the partition.
        lease: The lease.
        bits: Which ones; -1 for all that is left.
    """

    partition: int
    lease: int
    bits: int


class Holder(Protocol):
    """Who holds leases: the part of a subscription that one broker serves."""

    held: int
    branch: Branch

    @property
    def topic(self) -> str:
        """Name of the topic."""

    def settle(self, message: QueueMessage, verb: int, facts: dict[str, Any]) -> Fate:
        """Tell the broker soon what became of a message."""

    def settle_part(self, part: Part, verb: int, facts: dict[str, Any]) -> Fate:
        """Tell the broker soon what became of messages."""

    def touch(self, message: QueueMessage) -> None:
        """Renew a message soon."""

    def touch_part(self, part: Part) -> None:
        """Renew messages soon."""

    def finishing(self, lease: HeldLease) -> None:
        """Tell the broker soon what was finished of a lease."""

    def ended(self, lease: HeldLease) -> None:
        """Nothing of a lease is held any more."""


class Part:
    """
    Messages of one lease that were handed out together.

    Args:
        lease: Their lease.
        bits: Which of its messages.
        spans: Where they are.

    Attributes:
        lease: Their lease.
        bits: What is neither settled nor lost, nor was asked for one by one.
        spans: Where all of them are.
        batch: What they were handed out with.
    """

    __slots__ = ("batch", "bits", "lease", "spans")

    batch: QueueBatch

    def __init__(self, lease: HeldLease, bits: int, spans: list[Span]) -> None:
        self.lease = lease
        self.bits = bits
        self.spans = spans

    def first_of_keys(self, *, by_key: bool) -> list[Record]:
        """
        Return the first message that is held.

        Args:
            by_key: Of each key, rather than of all.
        """
        found: dict[bytes | None, Record] = {}
        base = self.lease.base
        for pack, low, high in self.spans:
            for record in pack.records(low, high):
                if self.bits >> record.offset - base & 1:
                    found.setdefault(record.key if by_key else None, record)
        return [*found.values()]


class HeldLease:
    """
    Messages of one partition that came under one lease.

    A message is made of what came when it is handed out, not before.

    Args:
        row: What DELIVER says of it.
        partition: Number of the partition.
        epoch: Which SUBSCRIBE it came after.
        packs: The batches that came with it.
        holder: Who holds it.

    Attributes:
        lease_id: What settles name; 0 when the broker has settled it already.
        base: The offset of its first bit.
        attempt: The number of this delivery.
        failures: How often its messages failed before.
        topic: Name of the topic.
        left: How many messages were not handed out yet.
        messages: What was handed out one by one and is not settled.
        parts: What was handed out together and is not settled.
    """

    __slots__ = (
        "_fate",
        "_finished",
        "_fresh",
        "_holder",
        "_packs",
        "_passed",
        "_records",
        "attempt",
        "base",
        "epoch",
        "failures",
        "lease_id",
        "left",
        "messages",
        "partition",
        "parts",
        "topic",
    )

    def __init__(
        self,
        row: DeliveryRow,
        partition: int,
        epoch: int,
        packs: Sequence[Pack],
        holder: Holder,
    ) -> None:
        self.lease_id, self.base, _, _, self.attempt, self.failures, _ = row
        self.partition = partition
        self.epoch = epoch
        self.topic = holder.topic
        self.messages: dict[QueueMessage, None] = {}
        self.parts: dict[Part, None] = {}
        #: The offsets of what was finished in this turn, and what the broker will say of it.
        self._finished: list[int] = []
        self._fate: Fate | None = None
        self.left = 0
        self._holder = holder
        self._packs = packs
        #: What was not handed out yet when the line of records was made.
        self._fresh = 0
        #: The offset behind the last message that was handed out one by one.
        self._passed = 0
        self._records: Iterator[Record] | None = None

    def fill(self, bits: int) -> int:
        """
        Take what came.

        Args:
            bits: What the broker says that there is.

        Returns:
            What there really is.
        """
        spans, found = spans_of(self._packs, self.base, bits)
        self._fresh = found
        self.left = found.bit_count()
        self._records = self._line(spans)
        return found

    @staticmethod
    def _line(spans: list[Span]) -> Iterator[Record]:
        return chain.from_iterable(pack.records(low, high) for pack, low, high in spans)

    @property
    def fresh(self) -> int:
        """What was not handed out yet."""
        passed = self._passed - self.base
        return self._fresh >> passed << passed if passed > 0 else self._fresh

    @property
    def bits(self) -> int:
        """What is not settled."""
        found = self.fresh
        if self.messages:
            found |= bits_at(self.base, [one.record.offset for one in self.messages])
        for part in self.parts:
            found |= part.bits
        return found

    @property
    def over(self) -> bool:
        """Whether nothing of it is held."""
        return not (self.left or self.messages or self.parts)

    # --- handing out -----------------------------------------------------------

    def next(self, make: Maker, now: float) -> QueueMessage:
        """
        Hand out one message; there must be one left.

        Args:
            make: Makes it.
            now: The time.
        """
        records = self._records
        if records is None:
            records = self._records = self._line(spans_of(self._packs, self.base, self.fresh)[0])
        record = next(records)
        self._passed = record.offset + 1
        self.left -= 1
        message = make(record, self, now)
        if self.lease_id:
            self.messages[message] = None
        else:
            self._holder.held -= 1
        return message

    def part(self, most: int) -> Part:
        """
        Hand out messages together; there must be some left.

        Args:
            most: How many at most.
        """
        fresh = bits = self.fresh
        if self.left > most:
            bits = 0
            for start, end in runs_of(0, fresh):
                count = min(end - start, most)
                bits |= (1 << count) - 1 << start
                most -= count
                if not most:
                    break
        found = Part(self, bits, spans_of(self._packs, self.base, bits)[0])
        self._drop(fresh, bits)
        if self.lease_id:
            self.parts[found] = None
        else:
            self._holder.held -= bits.bit_count()
        return found

    def drop(self, bits: int) -> int:
        """
        Hand something out no more.

        Args:
            bits: Which messages.

        Returns:
            Those that were not handed out yet.
        """
        fresh = self.fresh
        hit = fresh & bits
        if hit:
            self._drop(fresh, hit)
            self._holder.held -= hit.bit_count()
        return hit

    def _drop(self, fresh: int, bits: int) -> None:
        self._fresh = fresh ^ bits
        self._records = None
        self.left -= bits.bit_count()

    def behind(self, offset: int, key: bytes | None, *, by_key: bool) -> int:
        """
        Say what was not handed out and stands behind a message.

        Args:
            offset: Of the message.
            key: Of the message.
            by_key: Whether only messages of its key do.
        """
        start = max(0, offset + 1 - self.base)
        bits = self.fresh >> start << start
        if bits and by_key:
            records = self._line(spans_of(self._packs, self.base, bits)[0])
            offsets = [one.offset for one in records if one.key == key]
            bits = bits_at(self.base, offsets) if offsets else 0
        return bits

    # --- what becomes of its messages -------------------------------------------

    def finish(self, message: QueueMessage) -> Fate:
        """
        Settle a message for good; the broker is told at the end of the turn.

        Args:
            message: The message.

        Returns:
            What the broker says of that.
        """
        del self.messages[message]
        holder, fate = self._holder, self._fate
        holder.held -= 1
        self._finished.append(message.record.offset)
        if fate is None:
            fate = self._fate = Fate()
            holder.finishing(self)
        return fate

    def gather(self) -> Fate:
        """Take what was finished in this turn."""
        finished, self._finished = self._finished, []
        fate, self._fate = self._fate, None
        if self.over:
            self._holder.ended(self)
        assert fate is not None
        fate.bits = bits_at(self.base, finished)
        return fate

    def settle(self, message: QueueMessage, verb: int, facts: dict[str, Any]) -> Fate:
        """
        Tell the broker soon what became of a message.

        Args:
            message: The message.
            verb: What became of it.
            facts: More about that.
        """
        return self._holder.settle(message, verb, facts)

    def settle_part(self, part: Part, verb: int, facts: dict[str, Any]) -> Fate:
        """
        Tell the broker soon what became of messages.

        Args:
            part: The messages.
            verb: What became of them.
            facts: More about that.
        """
        return self._holder.settle_part(part, verb, facts)

    def touch(self, message: QueueMessage) -> None:
        """
        Renew a message soon.

        Args:
            message: The message.
        """
        self._holder.touch(message)

    def touch_part(self, part: Part) -> None:
        """
        Renew messages soon.

        Args:
            part: The messages.
        """
        self._holder.touch_part(part)

    def alone(self, part: Part, make: Maker) -> list[QueueMessage]:
        """
        Make messages of what was handed out together: each is settled by itself from now on.

        Args:
            part: The messages.
            make: Makes them.
        """
        started = part.batch.started
        spans = spans_of(self._packs, self.base, part.bits)[0]
        made = [make(record, self, started) for record in self._line(spans)]
        part.bits = 0
        self.parts.pop(part, None)
        if self.lease_id:
            self.messages.update(dict.fromkeys(made))
        return made

    @property
    def branch(self) -> Branch:
        """The part of a subscription that holds it."""
        return self._holder.branch

    def release(self, message: QueueMessage) -> None:
        """
        Hold a message no longer.

        Args:
            message: The message, which was handed out.
        """
        del self.messages[message]
        self._let_go(1)

    def release_part(self, part: Part, bits: int) -> None:
        """
        Hold messages no longer.

        Args:
            part: The messages, which were handed out.
            bits: Which of them.
        """
        part.bits &= ~bits
        if not part.bits:
            del self.parts[part]
        self._let_go(bits.bit_count())

    def _let_go(self, count: int) -> None:
        self._holder.held -= count
        if self.over:
            self._holder.ended(self)

    def lose(self, bits: int) -> int:
        """
        Hold messages no longer, and tell them.

        Args:
            bits: Which ones.

        Returns:
            How many were held.
        """
        dropped = self.drop(bits)
        lost = [one for one in self.messages if bits >> one.bit & 1]
        parts = [(part, part.bits & bits) for part in self.parts if part.bits & bits]
        for message in lost:
            del self.messages[message]
        count = len(lost)
        for part, hit in parts:
            part.bits ^= hit
            if not part.bits:
                del self.parts[part]
            count += hit.bit_count()
        self._let_go(count)
        for message in lost:
            message.lose()
        for part, hit in parts:
            part.batch.lose(hit.bit_count())
        return count + dropped.bit_count()

    def renewable(self, now: float, handler_s: float | None) -> int:
        """
        Say which messages are to be renewed.

        Args:
            now: The time.
            handler_s: How long a handler may have a message, or None.

        Returns:
            Their bits; -1 when it is all that is left, 0 when it is none.
        """
        if handler_s is None:
            return -1
        since = now - handler_s
        found = 0
        for message in self.messages:
            if message.started <= since:
                found |= 1 << message.bit
        for part in self.parts:
            if part.batch.started <= since:
                found |= part.bits
        return self.bits & ~found if found else -1
