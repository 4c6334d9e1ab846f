"""
How far consumer groups are behind in one partition, and how fast that changes.

What was committed is looked at first, and the end of the partition second: so nobody is
ahead of the end, and nothing that is behind is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tinymq.broker.channel.pace import Pace
from tinymq.broker.groups.positions import NONE

if TYPE_CHECKING:
    from tinymq.broker.groups.positions import Position
    from tinymq.broker.hosted import Hosted


class Standing(NamedTuple):
    """
    How a group stands in a partition.

    Attributes:
        position: Where it is.
        start: First offset that can be read.
        end: The offset behind the last one that can be read.
        lag: Messages behind its position that are there, all of them while a member has the
            partition and has said nothing; None if nobody has it, and it has no position.
        missed: Messages behind it that were removed before it read them.
        trend_s: By how many messages a second the lag grows; None if that is not known yet.
        unstable: Whether a transaction that is not decided would move it.
    """

    position: Position
    start: int
    end: int
    lag: int | None
    missed: int
    trend_s: float | None
    unstable: bool

    @property
    def unread(self) -> int:
        """Where the first message is that it has not read."""
        return max(self.start, self.position.place.offset)


class GroupFigures:
    """
    The figures of the groups that read one partition.

    Args:
        hosted: The place of their positions.
    """

    def __init__(self, hosted: Hosted) -> None:
        self._hosted = hosted
        self._paces: dict[str, Pace] = {}

    def note(self, now: int) -> int:
        """
        Look how far each group is.

        Args:
            now: The time.

        Returns:
            How many there are.
        """
        known = self._hosted.positions.known
        for group, position in known.items():
            pace = self._paces.get(group)
            if pace is None:
                pace = self._paces[group] = Pace()
            pace.note(now, self._counted(position))
        for group in [group for group in self._paces if group not in known]:
            del self._paces[group]
        return len(known)

    def _counted(self, position: Position) -> tuple[int, int]:
        return self._hosted.partition.stable_offset, max(0, position.place.offset)

    def standing(self, group: str) -> Standing:
        """
        Say how a group stands.

        Args:
            group: Its mark.
        """
        positions, partition = self._hosted.positions, self._hosted.partition
        position = positions.of(group)
        offset = position.place.offset
        start, end = partition.log.start_offset, partition.stable_offset
        nowhere = offset == NONE and not position.taken
        pace = self._paces.get(group)
        rates = None
        if pace is not None and not nowhere:
            rates = pace.rates(self._hosted.now, self._counted(position))
        return Standing(
            position,
            start,
            end,
            None if nowhere else max(0, end - max(start, offset)),
            0 if offset == NONE else max(0, start - offset),
            None if rates is None else rates[0] - rates[1],
            positions.unstable(group),
        )
