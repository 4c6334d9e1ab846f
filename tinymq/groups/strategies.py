"""
By which strategy a group divides, and how a rolling deploy takes it to another.

All members of a group say the same strategy; who says another one is refused. It is not
refused in a rolling deploy, which is: a static member comes again in place of itself, or a
member went in the last `ROLLING_MS` (one newcomer for each). The group goes on with the
strategy that it had until no member says that any more, then goes over to the new one.
There are never more than these two.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tinymq.errors import InconsistentGroup, InvalidRequest
from tinymq.groups.values import MOST_MEMBERS, STRATEGIES, Now

#: Milliseconds for which the place of a member that went is open for another strategy.
ROLLING_MS: Final = 60_000


class Strategy:
    """
    The strategy of one group.

    Attributes:
        name: By which it divides; empty before the first member.
        coming: To which it is on the way, in a rolling deploy.
    """

    def __init__(self) -> None:
        self.name = ""
        self.coming = ""
        self._openings: list[int] = []

    def admit(self, group: str, said: str, now: Now, *, replaces: bool) -> None:
        """
        Let a member in that says a strategy.

        Args:
            group: The group's name.
            said: What the member says.
            now: What time it is.
            replaces: It comes in place of one that was here, or there is no telling.

        Raises:
            InvalidRequest: There is no such strategy.
            InconsistentGroup: The others say another one, and nobody went.
        """
        if said not in STRATEGIES:
            raise InvalidRequest(
                f"there is no strategy {said[:64]!a}; take one of {', '.join(STRATEGIES)}",
                field="s",
            )
        if not self.name:
            self.name = said
        if said == self.name:
            return
        since = now.mono - ROLLING_MS
        self._openings = [each for each in self._openings if each >= since]
        third = self.coming not in ("", said)
        if third or not (replaces or self._openings):
            others = f"{self.name} and now {self.coming}" if third else self.name
            raise InconsistentGroup(
                f"the members of {group} say that partitions are divided by {others}, and this "
                f"one says {said}; restart them one after another, or stop them all first",
                strategy=self.name,
                wanted=said,
            )
        if not replaces:
            self._openings.pop(0)
        self.coming = said

    def left(self, now: Now) -> None:
        """Note that a member went, whose place is open for a while."""
        self._openings.append(now.mono)
        del self._openings[:-MOST_MEMBERS]

    def settle(self, said: Iterable[str]) -> bool:
        """
        Go over to what the members say, if nobody says the old one any more.

        Args:
            said: What each member says.

        Returns:
            Whether the group divides by another strategy than before.
        """
        strategies = set(said)
        if self.coming not in strategies:
            self.coming = ""
        if not strategies or self.name in strategies:
            return False
        self.name, self.coming = self.coming or min(strategies), ""
        return True
