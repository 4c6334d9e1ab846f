"""
The batches of a lane that have their place in its sequence, and no last word yet.

Three kinds of batches are in a window, told apart by two marks:

- *flying*: written, and not answered; the others are to be written again;
- *given up* (it has an error): its failure was told at its deadline, but nobody
  knows whether the broker has it, or will find it yet in a connection that is
  half dead. It keeps its place for the sake of those behind it: see `lane`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import pairwise

from tinymq.client.core.batches import Batch
from tinymq.wire.batch import SEQUENCE_MODULUS


class Window:
    """
    The unacked batches of one lane.

    Args:
        most: How many there may be.
        numbered: Whether batches have sequences.

    Attributes:
        limit: How many there may be now.
        flying: How many are flying.
    """

    __slots__ = ("_batches", "_most", "_next", "_numbered", "flying", "limit")

    def __init__(self, most: int, *, numbered: bool) -> None:
        self.limit = most
        self.flying = 0
        self._most = most
        self._numbered = numbered
        self._batches: deque[Batch] = deque()
        self._next = 0

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._batches)

    @property
    def head(self) -> Batch | None:
        """The first batch."""
        return self._batches[0] if self._batches else None

    @property
    def live(self) -> list[Batch]:
        """Those whose fate was not told yet."""
        return [batch for batch in self._batches if batch.error is None]

    def narrow(self, window: int) -> None:
        """
        Keep to what a broker remembers.

        Args:
            window: Batches of one producer.
        """
        self.limit = min(self._most, window)

    def admit(self, batch: Batch) -> None:
        """
        Give a batch its place behind all others.

        Args:
            batch: The batch.
        """
        if self._numbered:
            batch.sequence = self._next
            self._next = (batch.sequence + len(batch.values)) % SEQUENCE_MODULUS
        self._batches.append(batch)

    def took_off(self, batch: Batch) -> None:
        """
        Note that a batch is written.

        Args:
            batch: The batch.
        """
        batch.flying = True
        batch.refused = False
        batch.attempts += 1
        self.flying += 1

    def came_down(self, batch: Batch) -> None:
        """
        Note that a batch is answered, or will not be.

        Args:
            batch: The batch.
        """
        if batch.flying:
            batch.flying = False
            self.flying -= 1

    def remove(self, batch: Batch) -> None:
        """
        Take out a batch that has its last word.

        Args:
            batch: The batch.
        """
        if self._batches[0] is batch:
            self._batches.popleft()
        else:
            self._batches.remove(batch)

    def reuse(self, batch: Batch) -> None:
        """
        Give the next batch the sequence of one that was removed from the end.

        Args:
            batch: It was never stored.
        """
        self._next = max(batch.sequence, 0)

    def clear(self) -> None:
        """Forget everything; sequences begin anew."""
        for batch in self._batches:
            batch.flying = False
        self._batches.clear()
        self.flying = 0
        self._next = 0

    def renumber(self) -> None:
        """Give the live ones their sequences anew, from 0; the others are forgotten."""
        live = self.live
        self.clear()
        for batch in live:
            batch.data = None
            self.admit(batch)

    def check_invariants(self) -> None:
        """Check what this module promises."""
        assert self.flying == sum(batch.flying for batch in self._batches)
        assert len(self._batches) <= self._most
        assert not self._batches or self.live
        if self._numbered:
            for one, other in pairwise(self._batches):
                step = (other.sequence - one.sequence) % SEQUENCE_MODULUS
                assert len(one) <= step < SEQUENCE_MODULUS // 2
