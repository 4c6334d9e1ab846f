"""What was tried and what was acknowledged: the memory of those who publish."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Sequence

from attrs import frozen

from tinymq.verify.numbered import Mark, Place


@frozen
class Receipt:
    """
    What one answer of the broker promises.

    Attributes:
        producer: Who published.
        first: Number of the first record.
        count: How many records.
        offset: Where the first of them is.
    """

    producer: int
    first: int
    count: int
    offset: int


class Journal:
    """
    Keeps account for many producers in many threads.

    Attributes:
        refused: By topic and kind of error, how many calls failed.
        topics_tried: Topics whose making was asked for.
        topics: Topics whose making was acknowledged.
        broken: What ended a thread that should have gone on.
        power_cuts: How often the power was cut, noted before a broker starts again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tried: dict[Place, Counter[int]] = defaultdict(Counter)
        self._receipts: dict[Place, list[Receipt]] = defaultdict(list)
        self._acknowledged = 0
        self.refused: Counter[tuple[str, type[Exception]]] = Counter()
        self.topics_tried: set[str] = set()
        self.topics: set[str] = set()
        self.broken: list[str] = []
        self.power_cuts = 0

    @property
    def acknowledged(self) -> int:
        """How many records were acknowledged so far."""
        return self._acknowledged

    def begin(self, place: Place, producer: int, count: int) -> list[Mark]:
        """Number the records of a call before it is made."""
        with self._lock:
            first = self._tried[place][producer]
            self._tried[place][producer] = first + count
        return [Mark(producer, number) for number in range(first, first + count)]

    def acknowledge(self, place: Place, receipt: Receipt) -> None:
        """Keep what the broker promised."""
        with self._lock:
            self._receipts[place].append(receipt)
            self._acknowledged += receipt.count

    def refuse(self, topic: str, error: Exception) -> None:
        """Keep that a call failed; its records may be stored or not."""
        with self._lock:
            self.refused[topic, type(error)] += 1

    def tried(self, place: Place, producer: int) -> int:
        """Tell how many records a producer has sent there, acknowledged or not."""
        with self._lock:
            return self._tried[place][producer]

    def places(self) -> list[Place]:
        """List the partitions with at least one receipt."""
        with self._lock:
            return sorted(place for place, receipts in self._receipts.items() if receipts)

    def receipts(self, place: Place, start: int = 0, end: int | None = None) -> Sequence[Receipt]:
        """List the receipts of a partition in the order of their arrival."""
        with self._lock:
            return self._receipts[place][start:end]

    def counts(self) -> dict[Place, int]:
        """Tell how many receipts each partition has now."""
        with self._lock:
            return {place: len(receipts) for place, receipts in self._receipts.items()}
