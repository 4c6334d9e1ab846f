"""
Who has which partition of a group, who is to have it, and the way from the one to the other.

::

    free --given--> owned --to be somebody else's--> leaving --let go, gone, time is up--> free
                      ^                                 |
                      +----------- its again -----------+

- Each partition has one owner or none: it is given to nobody before the last owner let it go,
  left, was silent for too long, or took too long.
- A share has the group's generation in which it was given. The generation rises with each
  new division and each time that something is given.
- The eager strategies take everything from everybody before they give anything.
"""

from __future__ import annotations

from collections.abc import Mapping

from tinymq.groups.history import History
from tinymq.groups.membership import Membership
from tinymq.groups.values import Now, Place, TopicLike


class Moves:
    """
    Shares of a group.

    Attributes:
        members: By id.
        owner: Who has each partition that somebody has.
        target: Who is to have each partition that somebody wants.
        generation: The group's.
        emptying: Whether everything is taken from everybody.
        had: Meanwhile, who had what.
        givers: Members that are to give something up.
        dirty: Members for whom there may be something new.
        history: The last rebalances.
    """

    def __init__(self) -> None:
        self.members: dict[str, Membership] = {}
        self.owner: dict[Place, Membership] = {}
        self.target: dict[Place, str] = {}
        self.generation = 0
        self.emptying = False
        self.had: dict[Place, str] = {}
        self.givers: dict[Membership, None] = {}
        self.dirty: dict[Membership, None] = {}
        self.history = History()
        #: Who was given each partition last, and in which generation.
        self._last: dict[Place, tuple[str, int]] = {}

    def rise(self, now: Now, known: int = 0) -> int:
        """
        Raise the generation above all that anybody may have heard of.

        Args:
            now: What time it is: it rises over coordinators, too.
            known: What a member knows.
        """
        self.generation = max(self.generation + 1, now.wall, known + 1)
        return self.generation

    def claim(self, member: Membership, place: Place, generation: int) -> None:
        """
        Let a member that comes have what it says it has, if nobody has it in a later generation.

        Args:
            member: Who says so.
            place: The partition.
            generation: In which it was given it.
        """
        holder = self.owner.get(place)
        if generation < self._last.get(place, ("", 0))[1]:
            return
        if holder is not None:
            if generation <= holder.shares[place]:
                return
            self.take(holder, place)
        self._give(member, place, generation)

    def take(self, member: Membership, place: Place) -> None:
        """Take a partition from its owner."""
        del member.shares[place]
        del self.owner[place]
        self._stay(member, place)
        self.dirty[member] = None

    def aim(self, target: Mapping[Place, str], now: Now, *, eager: bool) -> None:
        """
        Begin to bring partitions to those who are to have them.

        Args:
            target: Who is to have which.
            now: What time it is.
            eager: Take all from all first, unless everybody has what it is to have.
        """
        self.rise(now)
        self.target = dict(target)
        owned = {place: member.id for place, member in self.owner.items()}
        if eager and owned and owned != self.target and not self.emptying:
            self.emptying, self.had = True, owned
        elif not eager:
            self.emptying = False
        for place, member in self.owner.items():
            if not self.emptying and self.target.get(place) == member.id:
                self._stay(member, place)
            elif place not in member.leaving:
                member.leaving[place] = now.mono
                self.givers[member] = None
                self.dirty[member] = None

    def give(self, now: Now) -> None:
        """Give what is free to those who are to have it."""
        if self.emptying and self.owner:
            return
        self.emptying, self.had = False, {}
        free = [
            (place, self.members[name])
            for place, name in self.target.items()
            if place not in self.owner and name in self.members
        ]
        if free:
            generation = self.rise(now)
            self.history.moved(
                sum(self._last.get(place, ("", 0))[0] != member.order for place, member in free)
            )
            for place, member in free:
                self._give(member, place, generation)

    def hand_over(self, former: Membership, member: Membership, now: Now) -> None:
        """
        Give a member all that another one has, which is its former self.

        Args:
            former: Who had it.
            member: Who gets it.
            now: What time it is.
        """
        generation = self.rise(now)
        for place in list(former.shares):
            leaves = place in former.leaving
            self.take(former, place)
            if not leaves:
                self._give(member, place, generation)
        self.target = _renamed(self.target, former.id, member.id)
        self.had = _renamed(self.had, former.id, member.id)

    def drop_missing(self, topics: Mapping[bytes, TopicLike]) -> bool:
        """
        Take away partitions that are no more.

        Args:
            topics: All that there are, by id.

        Returns:
            Whether there were some.
        """

        def missing(place: Place) -> bool:
            topic = topics.get(place[0])
            return topic is None or place[1] >= topic.partitions

        gone = [place for place in self.owner if missing(place)]
        for place in gone:
            self.take(self.owner[place], place)
        self.target = {place: each for place, each in self.target.items() if not missing(place)}
        self.had = {place: each for place, each in self.had.items() if not missing(place)}
        self._last = {place: each for place, each in self._last.items() if not missing(place)}
        return bool(gone)

    def _give(self, member: Membership, place: Place, generation: int) -> None:
        member.shares[place] = generation
        self.owner[place] = member
        self._last[place] = member.order, generation
        self.dirty[member] = None

    def _stay(self, member: Membership, place: Place) -> None:
        if member.leaving.pop(place, None) is not None:
            self.dirty[member] = None
            if not member.leaving:
                self.givers.pop(member, None)


def _renamed(owners: Mapping[Place, str], old: str, new: str) -> dict[Place, str]:
    return {place: new if name == old else name for place, name in owners.items()}
