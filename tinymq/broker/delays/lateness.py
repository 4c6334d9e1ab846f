"""How late messages came: counts by time, small and of one size."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

#: Milliseconds up to which a count goes; there is one more for what is later still.
BOUNDS: Final = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(1000, 2000, 5000, 10_000, 60_000, 600_000, 3_600_000),
)


class Lateness:
    """Counts messages by how late they came."""

    __slots__ = ("counts", "most", "released")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.released = 0
        self.most = 0

    def note(self, now: int, dues: list[int]) -> None:
        """
        Count messages that readers see now.

        Args:
            now: The time.
            dues: When each was due.
        """
        if not dues:
            return
        counts = self.counts
        for due in dues:
            counts[bisect_left(BOUNDS, now - due)] += 1
        self.released += len(dues)
        self.most = max(self.most, now - min(dues))

    def share(self, part: float) -> int | None:
        """
        Say within how many milliseconds a part of all came; None if none did.

        Args:
            part: Such as 0.99.
        """
        wanted, found = part * self.released, 0
        for place, count in enumerate(self.counts):
            found += count
            if found and found >= wanted:
                return BOUNDS[place] if place < len(BOUNDS) else self.most
        return None
