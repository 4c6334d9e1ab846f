"""The last rebalances of a group, for people."""

from __future__ import annotations

from collections import deque

from attrs import define

from tinymq.groups.values import MOST_HISTORY, Now

#: Characters of a reason.
_MOST_WHY = 300


@define
class Rebalance:
    """
    A rebalance.

    Attributes:
        at_ms: When it began, since 1970.
        why: What it was for.
        began: The same moment on the monotonic clock.
        took_ms: How long it took; None while it goes on.
        moved: Partitions that somebody was given who had not had them before.
    """

    at_ms: int
    why: str
    began: int
    took_ms: int | None = None
    moved: int = 0


class History:
    """The last rebalances, the newest last."""

    def __init__(self) -> None:
        self.rows: deque[Rebalance] = deque(maxlen=MOST_HISTORY)

    @property
    def open(self) -> Rebalance | None:
        """The one that goes on."""
        return self.rows[-1] if self.rows and self.rows[-1].took_ms is None else None

    def begin(self, why: str, now: Now) -> None:
        """Begin one, or give the one that goes on another reason."""
        going = self.open
        if going is None:
            self.rows.append(Rebalance(now.wall, why, now.mono))
        elif why not in going.why and len(going.why) < _MOST_WHY:
            going.why = f"{going.why}; {why}"

    def moved(self, many: int) -> None:
        """Count partitions that went to somebody else."""
        if (going := self.open) is not None:
            going.moved += many

    def end(self, now: Now) -> None:
        """End the one that goes on."""
        if (going := self.open) is not None:
            going.took_ms = now.mono - going.began
