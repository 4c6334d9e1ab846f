"""
How fast something goes: its counters, looked at now and then while they move.

Nobody counts anything for it. Who moves is looked at once a second; who does not
is not, and has stood still since the last look.
"""

from __future__ import annotations

from collections import deque
from typing import Final, TypeAlias

#: Milliseconds over which is averaged.
WINDOW_MS: Final = 10_000
#: Less says nothing.
_LEAST_MS: Final = 1000

#: Counters at one moment.
Counted: TypeAlias = tuple[int, ...]


class Pace:
    """Counters of one object at some moments of the last seconds."""

    __slots__ = ("_looks",)

    def __init__(self) -> None:
        self._looks: deque[tuple[int, Counted]] = deque()

    def note(self, now: int, counted: Counted) -> None:
        """
        Take a look.

        Args:
            now: The time.
            counted: The counters, of which there are always as many.
        """
        looks = self._looks
        if looks and looks[-1][1] == counted:
            return
        looks.append((now, counted))
        while len(looks) > 1 and looks[1][0] <= now - WINDOW_MS:
            looks.popleft()

    def rates(self, now: int, counted: Counted, least: int = _LEAST_MS) -> tuple[float, ...] | None:
        """
        Return by how much each counter grows in a second.

        Args:
            now: The time.
            counted: The counters as they are.
            least: Milliseconds that must be known.

        Returns:
            The mean of the last ten seconds, or of fewer if no more is known; None
            in the first second.
        """
        begin = now - WINDOW_MS
        before: tuple[int, Counted] | None = None
        for look in self._looks:
            if before is not None and look[0] > begin:
                break
            before = look
        if before is None or now - before[0] < least:
            return None
        passed = now - max(before[0], begin)
        return tuple(
            (new - old) * 1000 / passed for new, old in zip(counted, before[1], strict=True)
        )
