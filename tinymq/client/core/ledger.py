"""
What a producer holds, and what became of it.

Every record taken is counted under a generation; a flush ends the generation
and waits until nothing of it, and of those before, is left.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable

from tinymq.client.core.batches import Batch
from tinymq.client.core.outcomes import left_over
from tinymq.client.core.results import MOST_FAILURES_KEPT, Account, Failed
from tinymq.errors import BufferFull, TinyMQError

#: Told that a batch of single records is settled; the face fires its tokens.
Deliver = Callable[[str, int, Batch], None]


class Ledger:
    """
    The accounts of one producer.

    Args:
        bound: Most bytes that may be held.
        deliver: Told of each settled batch of single records.
        quiet: Nobody confirms anything.

    Attributes:
        pending: Records without an answer.
        held: Bytes of them.
        generation: Counts flushes.
    """

    def __init__(self, bound: int, deliver: Deliver, *, quiet: bool) -> None:
        self.pending = 0
        self.held = 0
        self.generation = 0
        self._bound = bound
        self._deliver = deliver
        self._quiet = quiet
        self._counts: defaultdict[int, int] = defaultdict(int)
        self._settled: deque[tuple[str, int, Batch]] = deque()
        self._firing = False
        self._flushes: deque[tuple[int, Callable[[], None]]] = deque()
        self._sent = 0
        self._unconfirmed = 0
        self._failures = 0
        self._failed: list[Failed] = []

    @property
    def account(self) -> Account:
        """What became of every record so far."""
        return Account(
            sent=self._sent,
            unconfirmed=self._unconfirmed,
            failed_count=self._failures,
            failed=tuple(self._failed),
            pending=self.pending,
        )

    # --- records in ------------------------------------------------------------

    def admit(self, size: int, count: int) -> None:
        """
        Count records that are taken.

        Args:
            size: Their bytes.
            count: How many.

        Raises:
            BufferFull: Too much is held already.
        """
        held = self.held
        if held and held + size > self._bound:
            raise BufferFull(
                f"{held} bytes wait for their answer and {size} more are over buffer_bytes "
                f"({self._bound}); wait for answers, or raise it"
            )
        self.held = held + size
        self.pending += count
        self._counts[self.generation] += count

    def force(self, size: int, count: int) -> None:
        """
        Count records whatever is held.

        Args:
            size: Their bytes.
            count: How many.
        """
        self.held += size
        self.pending += count
        self._counts[self.generation] += count

    def dismiss(self, size: int, count: int, generation: int) -> None:
        """
        Take back what was counted.

        Args:
            size: Bytes.
            count: Records.
            generation: Under which they were counted.
        """
        self.held -= size
        self.pending -= count
        left = self._counts[generation] - count
        if left:
            self._counts[generation] = left
        else:
            del self._counts[generation]

    # --- records out -----------------------------------------------------------

    def landed(self) -> None:
        """Count a record that was stored without having been admitted."""
        self._sent += 1

    def settle(self, topic: str, partition: int, batch: Batch) -> None:
        """
        Note that a batch is stored, or failed for good; `fire` tells.

        Args:
            topic: Where it went.
            partition: Where it went; -1 if it never had a place.
            batch: The batch.
        """
        self._settled.append((topic, partition, batch))

    def lose(self, topic: str, batch: Batch, error: TinyMQError) -> None:
        """
        Fail records that never came into a lane.

        Args:
            topic: Where they should have gone.
            batch: The records.
            error: Why.
        """
        batch.error = error
        if batch.group is not None:
            batch.group.expected = 1
        self.settle(topic, -1, batch)

    def fire(self) -> None:
        """Tell about settled batches, outermost call only: being told leads to new calls."""
        settled = self._settled
        if self._firing or not (settled or self._flushes):
            return
        self._firing = True
        try:
            while settled:
                topic, partition, batch = settled.popleft()
                self._count(topic, partition, batch)
                if batch.group is not None:
                    batch.group.settle(batch, partition)
                else:
                    self._deliver(topic, partition, batch)
        finally:
            self._firing = False
        while self._flushes and not self._unfinished(self._flushes[0][0]):
            _, done = self._flushes.popleft()
            done()

    def flush(self, done: Callable[[], None]) -> None:
        """
        End a generation, and tell when all of it is settled.

        Args:
            done: Told once.
        """
        self._flushes.append((self.generation, done))
        self.generation += 1

    def _unfinished(self, generation: int) -> bool:
        return any(one <= generation for one in self._counts)

    def _count(self, topic: str, partition: int, batch: Batch) -> None:
        count = len(batch.values)
        self.dismiss(batch.size, count, batch.generation)
        error = batch.error
        if error is not None:
            self._failures += count
            room = max(0, MOST_FAILURES_KEPT - len(self._failed))
            self._failed += [Failed(topic, value, error) for value in batch.values[:room]]
        elif self._quiet:
            self._unconfirmed += count
        else:
            if batch.unroutable is not None:
                astray = left_over(topic, partition, batch)
                count -= len(astray)
                self._failures += len(astray)
                self._failed += astray[: max(0, MOST_FAILURES_KEPT - len(self._failed))]
            self._sent += count
