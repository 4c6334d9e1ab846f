"""
What one producer sends to one partition: order, sequence, repetition.

::

    queue (no sequence yet) -> window (sequence given; flying or to be repeated)

Each record that is told as stored is stored once, even if bytes of a connection
that was lost arrive later, for nobody can call them back. Three rules see to it:

- After a failure nothing new flies until every flying batch has its answer and
  those in the window were written again, first to last, with the same sequences:
  a batch that was stored already is answered as a duplicate.
- A batch whose fate is unknown, because an answer was lost, fails at its
  deadline, and keeps its place all the same while a live batch is in the window:
  it is written again with it. Leaving a gap would make the broker deny those
  behind, so that they are written under a new id; and the bytes of the old
  connection would then find the place for all of them. When nothing live is left
  the window is forgotten, and the lane goes on under a new producer id, under
  which nothing was ever written. What certainly is not stored leaves its place.
- Live batches get their sequences anew, under a new producer id, only when the
  broker said of every batch in the window, after it was last written, that it is
  not stored. Since all before them had their last word, that is so only when
  the broker forgot the producer, or lost what it had; late bytes fit no better.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import inf
from typing import Protocol

from tinymq.client.core.batches import Batch
from tinymq.client.core.window import Window
from tinymq.errors import (
    ClosedError,
    DeadlineExceeded,
    NotLeader,
    OutOfOrderSequence,
    ProducerFenced,
    RequestError,
    StateError,
    StorageFull,
    TinyMQError,
    UnknownPartition,
    UnknownProducer,
    UnknownTopic,
    UnknownTopicId,
    UnreachableError,
    WireError,
)
from tinymq.wire.messages import ProduceReply

_MOVED = (UnknownTopicId, UnknownTopic, UnknownPartition)
_UNKNOWN = (UnknownProducer, ProducerFenced)
#: Answers after which a batch is not stored, as far as this attempt goes.
_NOT_STORED = (RequestError, StateError, StorageFull, UnreachableError)


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

    def waits(self, lane: Lane) -> bool:
        """Whether nothing may be written now; `Lane.drain` is called when that is over."""

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
        self._idempotent = idempotent
        self._queue: deque[Batch] = deque()
        self._window = Window(window, numbered=idempotent)
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
        return self.open is None and not self._queue and not self._window

    @property
    def under_way(self) -> bool:
        """Whether all that it was given is written, and nothing of it is to be written again."""
        window = self._window
        return (
            self.open is None
            and not self._queue
            and window.flying == len(window)
            and not self._recovering
        )

    @property
    def trouble(self) -> TinyMQError | None:
        """Why batches were not stored, as far as is known."""
        return self._why

    @property
    def unacked(self) -> int:
        """Batches with a sequence and without a last word."""
        return len(self._window)

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
        if self._draining or self._locating or not (self._queue or self._window):
            return
        if self._way.waits(self):
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
        queue, window, way = self._queue, self._window, self._way
        while queue and len(window) < window.limit and not self._recovering and way.clear(self):
            batch = queue.popleft()
            window.admit(batch)
            self._fly(batch, now)

    @property
    def calm(self) -> bool:
        """Whether a batch that is written now is the only one on its way."""
        return not (
            self._queue
            or self._window
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
        self._window.admit(batch)
        self._window.took_off(batch)

    def landed(self, batch: Batch) -> None:
        """
        Note that the batch of `launch` is stored.

        Args:
            batch: The batch.
        """
        self._window.came_down(batch)
        self._window.remove(batch)
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
        self._window.came_down(batch)
        if error is None:
            self._stored(batch, reply)
        else:
            self._failed(batch, error, now)
        self.drain(now)

    def identified(
        self, identity: tuple[int, int] | None, window: int, error: TinyMQError | None, now: float
    ) -> None:
        """
        Take a producer id; batches in the window get their sequences anew.

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
        self._window.narrow(window)
        self._window.renumber()
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
        if self._window.flying:  # their answers will ask again
            return
        self.topic_id = topic_id
        if self._window:
            self._recovering = True
            self._renew = self._idempotent
            for batch in self._window:
                batch.refused = True
        else:
            self._window.clear()
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
        gone = [*self._window.live, *self._queue]
        self._queue.clear()
        if self._window:
            self._begin_anew()
        for batch in gone:
            self._settle(batch, error)

    @property
    def wake_at(self) -> float:
        """When `tick` has something to do."""
        at = self.open_until
        if self._queue:
            at = min(at, self._queue[0].deadline)
        head = self._window.head
        if head is not None and not head.flying:
            at = min(at, head.deadline)
        needs = self._recovering or (self._idempotent and self.identity is None)
        busy = self._window.flying or self._locating or self._identifying
        if needs and not busy and not self._way.waits(self):
            at = min(at, self._retry_at) if self._queue or head is not None else at
        return at

    def tick(self, now: float) -> None:
        """
        Give up what is overdue and go on with the rest.

        Args:
            now: The time.
        """
        if self.open_until <= now:
            self.seal()
        late = [one for one in self._window if not one.flying and one.deadline <= now]
        if late:
            self._give_up(late, None)
        while self._queue and self._queue[0].deadline <= now:
            batch = self._queue.popleft()
            self._settle(batch, self._overdue(batch))
        self.drain(now)

    def batches(self) -> Iterable[Batch]:
        """Every batch that is not settled, in order, without the open one."""
        return (*self._window, *self._queue)

    def check_invariants(self) -> None:
        """Check what the head of this module promises."""
        self._window.check_invariants()
        assert not any(batch.flying for batch in self._queue)
        assert len({id(batch) for batch in self.batches()}) == len(self._window) + self.queued

    # --- inside ----------------------------------------------------------------

    def _fly(self, batch: Batch, now: float) -> None:
        self._window.took_off(batch)
        self._way.fly(self, batch, now)

    def _recover(self, now: float) -> None:
        """Write the batches in the window again, first to last."""
        if self._window.flying or now < self._retry_at:
            return
        if self._renew:
            self._renew = False
            if all(batch.refused for batch in self._window):
                self._identify_anew()
                self._identifying = True
                self._way.identify(self, now)
                if self.identity is None:
                    return
        self._recovering = False
        for batch in tuple(self._window):
            self._fly(batch, now)
            if self._recovering:
                return

    def _stored(self, batch: Batch, reply: ProduceReply | None) -> None:
        self._window.remove(batch)
        self._failures = 0
        self._why = None
        if batch.error is not None:  # given up before; those behind it needed it
            return
        if reply is not None:
            batch.base_offset = reply.base_offset
            batch.timestamp = reply.timestamp
            batch.volatile = reply.volatile
            batch.unroutable = reply.unroutable
            batch.known = dict(reply.known or ())
        self._way.settled(self, batch)
        if self._window and not self._window.live:
            self._begin_anew()

    def _failed(self, batch: Batch, error: TinyMQError, now: float) -> None:
        batch.refused = isinstance(error, RequestError)
        batch.lost = batch.lost or not isinstance(error, _NOT_STORED)
        if self._idempotent and isinstance(error, (OutOfOrderSequence, *_UNKNOWN)):
            # Behind a failed batch that is only a consequence; at the head it
            # means that the broker's memory and ours differ.
            if batch is self._window.head or isinstance(error, _UNKNOWN):
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
            overdue = isinstance(error, DeadlineExceeded)
            if overdue and self._why is None:
                self._why = error
            self._give_up([batch], None if overdue else error)

    def _give_up(self, gone: list[Batch], error: TinyMQError | None) -> None:
        """Fail batches, for their deadline without an error; see the head of this module."""
        window = self._window
        told = [batch for batch in gone if batch.error is None]
        for batch in told:
            batch.error = error or self._overdue(batch)
        for batch in gone:
            if not (batch.lost and self._idempotent):
                window.remove(batch)
        self._recovering = True
        live = window.live
        if live:
            until = min(batch.deadline for batch in live)
            for batch in gone:
                batch.deadline = until
        elif window:
            self._begin_anew()
        else:
            window.reuse(gone[0])
        for batch in told:
            self._way.settled(self, batch)

    def _begin_anew(self) -> None:
        """Forget the window; what follows has an id under which nothing was written."""
        self._window.clear()
        self._recovering = self._renew = False
        if self._idempotent:
            self._identify_anew()

    def _identify_anew(self) -> None:
        self.identity = None
        self.renewed = True

    def _settle(self, batch: Batch, error: TinyMQError) -> None:
        batch.error = error
        self._way.settled(self, batch)

    def _wait(self, now: float) -> None:
        """Start recovering after a pause, one pause for all that failed together."""
        if not self._recovering or now >= self._retry_at:
            self._failures += 1
            self._retry_at = now + self._way.delay(self._failures)
        self._recovering = True

    def _overdue(self, batch: Batch) -> TinyMQError:
        """Say why a batch was not stored in time; the broker's reason only if it is certain."""
        why = self._why
        if isinstance(why, (ClosedError, UnreachableError)):
            return why
        if isinstance(why, WireError) and not batch.lost:
            return why
        if why is None:
            return DeadlineExceeded("the batch was not answered within its deadline")
        error = DeadlineExceeded(f"the batch was not stored within its deadline: {why}")
        error.__cause__ = why
        return error
