"""
Which messages of a partition wait, as far as memory knows.

What comes soon is in the wheel; what comes later is in the index alone. The *reach* is the
line between: a due time and an id. Everything up to it that waits is in memory, and what lies
beyond it costs none, however much it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tinymq.broker.delays.wheel import Wheel

#: A due time and an id.
Reach = tuple[int, int]
#: Nothing is in memory.
NOWHERE: Final[Reach] = (-1, -1)


class Waiting:
    """
    The messages that wait.

    Args:
        now: The time.

    Attributes:
        wheel: Those that come soon.
        ready: Due times of those that are due, in the order in which they come.
        ghosts: Those whose row in the index is not to be believed, for they went, or come at
            another time; with the offset of the act that says so, -1 as long as it has none.
        elsewhere: Where messages lie that were copied forward, as far as they are in memory.
        reach: Up to here everything is in memory.
        count: How many wait.
        stored: About how many bytes they take in the delay log.
    """

    __slots__ = ("count", "elsewhere", "ghosts", "reach", "ready", "stored", "wheel")

    def __init__(self, now: int) -> None:
        self.wheel = Wheel(now)
        self.ready: dict[int, int] = {}
        self.ghosts: dict[int, int] = {}
        self.elsewhere: dict[int, int] = {}
        self.reach = NOWHERE
        self.count = self.stored = 0

    def due(self, number: int) -> int | None:
        """
        Say when a message is due that is in memory; None if it is not.

        Args:
            number: Its id.
        """
        found = self.wheel.due(number)
        return self.ready.get(number) if found is None else found

    def knows(self, number: int) -> bool:
        """
        Whether memory holds a message, or is not yet done with it.

        Args:
            number: Its id.
        """
        return number in self.wheel or number in self.ready or number in self.ghosts

    def put_all(self, ids: Sequence[int], dues: Sequence[int]) -> bool:
        """
        Take in messages that are new.

        Args:
            ids: Their ids.
            dues: Their due times.

        Returns:
            Whether some of them lie beyond the reach.
        """
        self.count += len(ids)
        reach = self.reach
        if max(dues) < reach[0]:
            self.wheel.insert_all(ids, dues)
            return False
        near = [(due, each) for due, each in zip(dues, ids, strict=True) if (due, each) <= reach]
        if near:
            self.wheel.insert_all([each for _, each in near], [due for due, _ in near])
        return len(near) < len(ids)

    def put(self, number: int, due: int) -> None:
        """
        Take in a message, whatever the reach.

        Args:
            number: Its id.
            due: When it is due.
        """
        self.wheel.insert(number, due)

    def take(self, number: int) -> int | None:
        """
        Take a message out of memory.

        Args:
            number: Its id.

        Returns:
            When it is due; None if it was not there.
        """
        due = self.wheel.due(number)
        if due is None:
            return self.ready.pop(number, None)
        self.wheel.cancel(number)
        return due

    def lies(self, number: int, offset: int) -> None:
        """
        Note where a message lies.

        Args:
            number: Its id.
            offset: In the delay log.
        """
        if offset != number:
            self.elsewhere[number] = offset

    def offset(self, number: int) -> int:
        """
        Say where a message lies that is in memory.

        Args:
            number: Its id.
        """
        return self.elsewhere.get(number, number)

    def ripen(self, now: int, most: int) -> None:
        """
        Let what is due be ready.

        Args:
            now: The time.
            most: About how much work.
        """
        found = self.wheel.advance(now, most)
        self.ready.update((number, due) for due, number in found)
