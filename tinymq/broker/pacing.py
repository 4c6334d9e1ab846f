"""Looking at the counters of channels once a second, while they move and only then."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from tinymq.broker.ports import Scheduler, Timer

if TYPE_CHECKING:
    from tinymq.broker.hosted import Hosted

#: Seconds between two looks at what moves.
LOOK_SECONDS: Final = 1.0
#: Channels that are looked at before others have their turn: some milliseconds.
_LOOKED_AT: Final = 500


class Pacing:
    """
    Sees to it that what moves is looked at, so that its rates are known.

    Args:
        scheduler: Calls once a second.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        #: What had a turn since the last look.
        self._moved: dict[Hosted, None] = {}
        #: What is being looked at, in several turns.
        self._looked_at: dict[Hosted, None] = {}
        self._timer: Timer | None = None
        self._closed = False

    @property
    def resting(self) -> bool:
        """Whether nothing moves, so that no look is due."""
        return self._timer is None

    def moved(self, hosted: Iterable[Hosted]) -> None:
        """
        Note that channels had their turn.

        Args:
            hosted: The channels of some partitions.
        """
        if self._closed:
            return
        self._moved.update(dict.fromkeys(hosted))
        if self._timer is None:
            self._timer = self._scheduler.callLater(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self._looked_at:
            self._looked_at, self._moved = self._moved, {}
        looked = 0
        while self._looked_at and looked < _LOOKED_AT:
            looked += self._looked_at.popitem()[0].note()
        if self._looked_at:
            self._timer = self._scheduler.callLater(0, self._look)
        elif self._moved:
            self._timer = self._scheduler.callLater(LOOK_SECONDS, self._look)

    def forget(self, hosted: Hosted) -> None:
        """
        Do not look at what is gone.

        Args:
            hosted: The channels of a partition.
        """
        self._moved.pop(hosted, None)
        self._looked_at.pop(hosted, None)

    def close(self) -> None:
        """Look at nothing any more."""
        self._closed = True
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None
        self._moved.clear()
        self._looked_at.clear()
