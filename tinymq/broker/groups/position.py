"""What is said and known of one group in one partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

#: Nothing was committed, or nobody was given the partition.
NONE: Final = -1


class Move(NamedTuple):
    """
    What one commit says.

    Attributes:
        group: The group, as `GroupInfo.mark`.
        generation: In which the partition was given to the member; -1 of who is none.
        offset: The first offset that was not handled.
        epoch: The leader epoch of the record before it, or -1.
        note: What the client wants to remember.
        member: Who commits; empty for who is no member.
        time: When, in milliseconds.
    """

    group: str
    generation: int
    offset: int
    epoch: int
    note: str
    member: str
    time: int


class Place(NamedTuple):
    """
    Where a group is, or was.

    Attributes:
        offset: The first offset that it has not handled; -1 if it has said nothing.
        epoch: The leader epoch of the record before it, or -1.
        note: What was remembered with it.
        time: When it was committed; -1 if it was not.
    """

    offset: int = NONE
    epoch: int = NONE
    note: str = ""
    time: int = NONE


class Position(NamedTuple):
    """
    All that is known of a group in the partition.

    Attributes:
        fence: The generation in which somebody was given the partition last; -1 if nobody was.
        taken: Whether that holds still: it does not after a move by hand.
        member: Who was given it, or committed last.
        place: Where it is.
        cut: Where it was before the log was cut back; -1 if it was not since the last commit.
        former: Where it was before it was moved by hand; None if it was not.
        until: Until when that can be taken back.
    """

    fence: int = NONE
    taken: bool = False
    member: str = ""
    place: Place = Place()
    cut: int = NONE
    former: Place | None = None
    until: int = 0

    def row(self) -> list[Any]:
        """Return it as it is stored."""
        former = None if self.former is None else [*self.former]
        return [
            self.fence,
            self.taken,
            self.member,
            [*self.place],
            self.cut,
            former,
            self.until,
        ]

    @classmethod
    def of(cls, row: Sequence[Any]) -> Position:
        """Read what `row` gave."""
        fence, taken, member, place, cut, former, until = row
        old = None if former is None else Place(*former)
        return cls(fence, taken, member, Place(*place), cut, old, until)

    def takes_back(self, now: int) -> bool:
        """Whether the last move by hand can be taken back."""
        return self.former is not None and now < self.until
