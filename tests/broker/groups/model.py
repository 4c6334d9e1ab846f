"""A simple model of the positions of groups in one partition: what must be so after each act."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

#: Producer id and epoch.
Identity = tuple[int, int]
NOWHERE: list[Any] = [-1, -1, "", -1]


class One:
    """A group: who has the partition, where it is, and where it was before somebody moved it."""

    def __init__(self) -> None:
        self.fence = -1
        self.taken = False
        self.member = ""
        self.place = [*NOWHERE]
        self.cut = -1
        self.former: list[Any] | None = None
        self.until = 0

    def row(self) -> list[Any]:
        """All of it."""
        return [
            *(self.fence, self.taken, self.member, self.place),
            *(self.cut, self.former, self.until),
        ]


class Model:
    """All groups of a partition, and what transactions would move."""

    def __init__(self) -> None:
        self.groups: dict[str, One] = {}
        self.held: dict[Identity, list[list[Any]]] = {}

    def of(self, group: str) -> One:
        """A group, a new one if there is none."""
        return self.groups.setdefault(group, One())

    def refuses(self, group: str, generation: int) -> bool:
        """Whether somebody may not commit."""
        one = self.groups.get(group, One())
        return one.taken if generation < 0 else generation < one.fence

    def unstable(self, group: str) -> bool:
        """Whether a transaction would move it."""
        return any(row[0] == group for rows in self.held.values() for row in rows)

    def take(self, group: str, generation: int, member: str) -> bool:
        """Give the partition to a member; say whether that is refused."""
        known = self.groups.get(group, One())
        if generation < known.fence:
            return False
        if generation == known.fence and known.taken and known.member not in {"", member}:
            return False
        one = self.of(group)
        if not one.taken or generation > one.fence:
            one.fence, one.taken, one.member = generation, True, member
        return True

    def commit(self, row: list[Any]) -> None:
        """Carry out a commit that was allowed when it was taken."""
        group, generation, offset, epoch, note, member, time = row
        one = self.of(group)
        older = generation < one.fence
        if generation > one.fence:
            one.fence, one.taken = generation, True
        if offset >= one.place[0]:
            one.place, one.cut = [offset, epoch, note, time], -1
            if not older:
                one.member = member

    def hold(self, identity: Identity, row: list[Any]) -> None:
        """Take a commit that counts with a transaction."""
        rows = self.held.setdefault(identity, [])
        group, generation, offset = row[:3]
        others = [each for each in rows[1:] if each[0] == group]
        if any(each[2] > offset and each[1] >= generation for each in others):
            return
        kept = [each for each in others if each[2] > offset or each[1] > generation]
        rows[1:] = [each for each in rows[1:] if each[0] != group or each in kept]
        rows.append(row)

    def decide(self, identity: Identity, commit: bool) -> None:
        """End a transaction."""
        for row in self.held.pop(identity, []):
            if commit:
                self.commit(row)

    def move(self, group: str, place: list[Any], until: int, former: list[Any] | None) -> None:
        """Move by hand."""
        before, one = self.of(group), One()
        one.fence = before.fence + (before.fence >= 0)
        one.place, one.former, one.until = place, former, until
        self.groups[group] = one

    def forget(self, group: str) -> None:
        """Forget a group."""
        self.groups.pop(group, None)
        for identity, rows in [*self.held.items()]:
            self.held[identity] = [row for row in rows if row[0] != group]
            if not self.held[identity]:
                del self.held[identity]

    def cut(self, end: int) -> Model:
        """What is left of it when the log ends there."""
        left = deepcopy(self)
        for one in left.groups.values():
            if one.former is not None:
                one.former[0] = min(one.former[0], end)
            if one.place[0] > end:
                one.cut, one.place[0] = one.place[0], end
        for rows in left.held.values():
            for row in rows:
                row[2] = min(row[2], end)
        return left

    def facts(self) -> list[Any]:
        """Everything, in the form in which the broker tells it."""
        known = sorted((group, one.row()) for group, one in self.groups.items())
        return [known, sorted(self.held.items())]


def among(facts: list[Any], models: Iterable[Model], end: int) -> bool:
    """Whether the broker knows what one of some models says, cut back to the end of the log."""
    return any(facts == model.cut(end).facts() for model in models)
