"""
What one producer sends to one partition: order, sequence, repetition.

::

    queue (no sequence yet) -> unacked (sequence given; flying or to be repeated)

Invariants, checked by `Lane.check_invariants` in tests:

- sequences in `unacked` are contiguous while nothing is given up;
- at most `window` batches are in `unacked`, so the broker remembers them all;
- after a failure nothing new flies until every flying batch has its answer and
  the unacked ones were written again, first to last, with the same sequences:
  a batch that was stored already is answered as a duplicate;
- sequences are given anew, under a new producer id, only when the broker said
  of every unacked batch, after it was last written, that it is not stored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import pairwise
from math import inf
from typing import Protocol

from tinymq.client.core.batches import Batch
from tinymq.errors import (
    ClosedError,
    DeadlineExceeded,
    NotLeader,
    OutOfOrderSequence,
    ProducerFenced,
    RequestError,
    TinyMQError,
    UnknownPartition,
    UnknownProducer,
    UnknownTopic,
    UnknownTopicId,
    UnreachableError,
    WireError,
)
from tinymq.wire.batch import SEQUENCE_MODULUS
from tinymq.wire.messages import ProduceReply

_MOVED = (UnknownTopicId, UnknownTopic, UnknownPartition)
_UNKNOWN = (UnknownProducer, ProducerFenced)


class Way(Protocol):
    """What a lane needs from its producer."""

    def fly(self, lane: Lane, batch: Batch, now: float) -> None:
        """Write a batch; `Lane.answered` is called with what came of it."""

    def clear(self, lane: Lane) -> bool:
        """Whether the link takes more."""

    def settled(self, lane: Lane, batch: Batch) -> None:
        """A batch is stored, or failed for good."""

    def identify(self, lane: Lane, now: float) -> None:
        """Get a producer id that this lane never had; `Lane.identified` takes it."""

    def locate(self, lane: Lane, now: float) -> None:
        """Look the topic up anew; `Lane.located` or `Lane.give_up` is called."""

    def refresh(self, now: float) -> None:
        """The leader may have changed."""

    def delay(self, attempt: int) -> float:
        """How long to wait after so many failures."""


class Lane:
    """
    The way of one producer to one partition.

    Args:
        topic: Name of the topic.
        topic_id: Its identity.
        partition: Number of the partition.
        way: The producer.
        window: Most unacked batches.
        idempotent: Whether batches have sequences.

    Attributes:
        identity: Producer id and epoch, or None.
        renewed: It had an identity that must not be used any more.
        open: The batch that still takes records, or None.
        open_until: When it is closed.
    """

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        partition: int,
        way: Way,
        window: int,
        *,
        idempotent: bool,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.identity: tuple[int, int] | None = None
        self.renewed = False
        self.open: Batch | None = None
        self.open_until = inf
        self._way = way
        self._window = window
        self._most = window
        self._idempotent = idempotent
        self._queue: deque[Batch] = deque()
        self._unacked: deque[Batch] = deque()
        self._flying = 0
        self._next_sequence = 0
        self._recovering = False
        self._renew = False
        self._draining = False
        self._identifying = False
        self._locating = False
        self._failures = 0
        self._retry_at = -inf
        self._why: TinyMQError | None = None

    @property
    def idle(self) -> bool:
        """Whether nothing is open, queued or unacked."""
        return self.open is None and not self._queue and not self._unacked

    @property
    def unacked(self) -> int:
        """Batches with a sequence and without a last word."""
        return len(self._unacked)

    @property
    def queued(self) -> int:
        """Batches that wait for their turn."""
        return len(self._queue)

    def seal(self) -> None:
        """Close the open batch."""
        if self.open is not None:
            self._queue.append(self.open)
            self.open = None
            self.open_until = inf

    def add(self, batch: Batch) -> None:
        """
        Queue a closed batch, behind what is open.

        Args:
            batch: The batch.
        """
        self.seal()
        self._queue.append(batch)

    def drain(self, now: float) -> None:
        """
        Write what may be written.

        Args:
            now: The time.
        """
        if self._draining or self._locating or not (self._queue or self._unacked):
            return
        self._draining = True
        try:
            self._drain(now)
        finally:
            self._draining = False

    def _drain(self, now: float) -> None:
        if self._idempotent and self.identity is None:
            if not self._identifying and now >= self._retry_at:
                self._identifying = True
                self._way.identify(self, now)
            if self.identity is None:
                return
        if self._recovering:
            self._recover(now)
        queue, unacked, way = self._queue, self._unacked, self._way
        while queue and len(unacked) < self._window and not self._recovering and way.clear(self):
            batch = queue.popleft()
            if self._idempotent:
                batch.sequence = self._next_sequence
                self._next_sequence = (self._next_sequence + len(batch)) % SEQUENCE_MODULUS
            unacked.append(batch)
            self._fly(batch, now)

    @property
    def calm(self) -> bool:
        """Whether a batch that is written now is the only one on its way."""
        return not (
            self._queue
            or self._unacked
            or self.open is not None
            or self._recovering
            or self._locating
            or (self._idempotent and self.identity is None)
        )

    def launch(self, batch: Batch) -> None:
        """
        Note that a calm lane's caller writes a batch by himself.

        Args:
            batch: The batch; it is given its sequence.
        """
        if self._idempotent:
            batch.sequence = self._next_sequence
            self._next_sequence = (batch.sequence + len(batch.values)) % SEQUENCE_MODULUS
        batch.flying = True
        batch.attempts = 1
        self._flying = 1
        self._unacked.append(batch)

    def landed(self) -> None:
        """Note that the batch of `launch` is stored."""
        self._unacked.clear()
        self._flying = 0
        self._failures = 0

    def answered(
        self, batch: Batch, reply: ProduceReply | None, error: TinyMQError | None, now: float
    ) -> None:
        """
        Take the answer to a batch.

        Args:
            batch: The batch.
            reply: Where it was stored.
            error: Or why it was not, as far as is known.
            now: The time.
        """
        if not batch.flying:
            return
        batch.flying = False
        self._flying -= 1
        if error is None:
            self._stored(batch, reply)
        else:
            self._failed(batch, error, now)
        self.drain(now)

    def identified(
        self, identity: tuple[int, int] | None, window: int, error: TinyMQError | None, now: float
    ) -> None:
        """
        Take a producer id; unacked batches get their sequences anew.

        Args:
            identity: Producer id and epoch, or None when none could be had.
            window: Batches that the broker remembers.
            error: Why there is none.
            now: The time.
        """
        self._identifying = False
        if identity is None:
            self._why = error
            self._wait(now)
            return
        self.identity = identity
        self._window = min(self._most, window)
        self._next_sequence = 0
        for batch in self._unacked:
            batch.data = None
            batch.sequence = self._next_sequence
            self._next_sequence = (self._next_sequence + len(batch)) % SEQUENCE_MODULUS
        self.drain(now)

    def located(self, topic_id: bytes, now: float) -> None:
        """
        Go on, with the topic as it is now.

        Args:
            topic_id: Its identity; a new one means a new log, where nothing of
                this producer is stored.
            now: The time.
        """
        was_locating, self._locating = self._locating, False
        if topic_id == self.topic_id:
            if was_locating:
                self._wait(now)
            return
        if self._flying:  # their answers will ask again
            return
        self.topic_id = topic_id
        self._next_sequence = 0
        if self._unacked:
            self._recovering = True
            self._renew = self._idempotent
            for batch in self._unacked:
                batch.refused = True
        self._retry_at = -inf
        self.drain(now)

    def give_up(self, error: TinyMQError) -> None:
        """
        Fail everything.

        Args:
            error: Why.
        """
        self._locating = False
        self.seal()
        self._recovering = self._recovering or bool(self._unacked)
        gone = [*self._unacked, *self._queue]
        self._unacked.clear()
        self._queue.clear()
        self._flying = 0
        for batch in gone:
            batch.flying = False
            self._settle(batch, error)

    @property
    def wake_at(self) -> float:
        """When `tick` has something to do."""
        at = self.open_until
        if self._queue:
            at = min(at, self._queue[0].deadline)
        if self._unacked and not self._unacked[0].flying:
            at = min(at, self._unacked[0].deadline)
        needs = self._recovering or (self._idempotent and self.identity is None)
        if needs and not (self._flying or self._locating or self._identifying):
            at = min(at, self._retry_at) if self._queue or self._unacked else at
        return at

    def tick(self, now: float) -> None:
        """
        Give up what is overdue and go on with the rest.

        Args:
            now: The time.
        """
        if self.open_until <= now:
            self.seal()
        for batch in [one for one in self._unacked if not one.flying and one.deadline <= now]:
            self._unacked.remove(batch)
            self._settle(batch, self._overdue())
            self._recovering = True
        while self._queue and self._queue[0].deadline <= now:
            self._settle(self._queue.popleft(), self._overdue())
        self.drain(now)

    def batches(self) -> Iterable[Batch]:
        """Every batch that is not settled, in order, without the open one."""
        return (*self._unacked, *self._queue)

    def check_invariants(self) -> None:
        """Check what the head of this module promises."""
        assert self._flying == sum(batch.flying for batch in self._unacked)
        assert len(self._unacked) <= self._most
        assert not any(batch.flying for batch in self._queue)
        assert len({id(batch) for batch in self.batches()}) == len(self._unacked) + self.queued
        if self._idempotent:
            for one, other in pairwise(self._unacked):
                step = (other.sequence - one.sequence) % SEQUENCE_MODULUS
                assert len(one) <= step < SEQUENCE_MODULUS // 2

    # --- inside ----------------------------------------------------------------

    def _fly(self, batch: Batch, now: float) -> None:
        batch.flying = True
        batch.refused = False
        batch.attempts += 1
        self._flying += 1
        self._way.fly(self, batch, now)

    def _recover(self, now: float) -> None:
        """Write the unacked batches again, first to last."""
        if self._flying or now < self._retry_at:
            return
        if self._renew:
            self._renew = False
            if all(batch.refused for batch in self._unacked):
                self.identity = None
                self.renewed = True
                self._identifying = True
                self._way.identify(self, now)
                if self.identity is None:
                    return
        self._recovering = False
        for batch in tuple(self._unacked):
            self._fly(batch, now)
            if self._recovering:
                return

    def _stored(self, batch: Batch, reply: ProduceReply | None) -> None:
        unacked = self._unacked
        if unacked[0] is batch:
            unacked.popleft()
        else:
            unacked.remove(batch)
        self._failures = 0
        self._why = None
        if reply is not None:
            batch.base_offset = reply.base_offset
            batch.timestamp = reply.timestamp
            batch.volatile = reply.volatile
        self._way.settled(self, batch)

    def _failed(self, batch: Batch, error: TinyMQError, now: float) -> None:
        batch.refused = isinstance(error, RequestError)
        if self._idempotent and isinstance(error, (OutOfOrderSequence, *_UNKNOWN)):
            # Behind a failed batch that is only a consequence; at the head it
            # means that the broker's memory and ours differ.
            if batch is self._unacked[0] or isinstance(error, _UNKNOWN):
                self._renew = True
                self._why = error
                self._wait(now)
            self._recovering = True
        elif isinstance(error, _MOVED):
            self._recovering = True
            if not self._locating:
                self._locating = True
                self._why = error
                self._way.locate(self, now)
        elif getattr(error, "retriable", False):
            self._why = error
            self._wait(now)
            if isinstance(error, NotLeader):
                self._way.refresh(now)
        else:
            self._drop(batch, error)

    def _drop(self, batch: Batch, error: TinyMQError) -> None:
        """Fail one batch for good; those behind it find the gap by asking."""
        self._unacked.remove(batch)
        if batch.refused and batch.attempts == 1 and not self._unacked:
            self._next_sequence = max(batch.sequence, 0)  # never stored, nothing behind it
        else:
            self._recovering = self._idempotent or self._recovering
        if isinstance(error, DeadlineExceeded):
            error = self._overdue()
        self._settle(batch, error)

    def _settle(self, batch: Batch, error: TinyMQError) -> None:
        batch.error = error
        self._way.settled(self, batch)

    def _wait(self, now: float) -> None:
        """Start recovering after a pause, one pause for all that failed together."""
        if not self._recovering or now >= self._retry_at:
            self._failures += 1
            self._retry_at = now + self._way.delay(self._failures)
        self._recovering = True

    def _overdue(self) -> TinyMQError:
        why = self._why
        if isinstance(why, (WireError, ClosedError, UnreachableError)):
            return why
        if why is None:
            return DeadlineExceeded("the batch was not answered within its deadline")
        error = DeadlineExceeded(f"the batch was not stored within its deadline: {why}")
        error.__cause__ = why
        return error
