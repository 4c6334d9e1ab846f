"""
How the partitions of a group are divided among its members.

Plain functions of what they are given: the same members with the same wishes get the
same partitions, in whatever order they came.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heapreplace
from itertools import chain, cycle, islice
from typing import Final

from attrs import frozen

from tinymq.groups.values import COOPERATIVE, Place


@frozen
class Wishes:
    """
    What a member wants.

    Attributes:
        member: Its id.
        order: What members are sorted by: the instance of a static one, so that a
            restart changes nothing, else its id.
        topics: The ids of its topics.
    """

    member: str
    order: str
    topics: frozenset[bytes]


#: Topic to its number of partitions, in order of the topics' names.
Topics = Mapping[bytes, int]
#: Who has, or is to have, a partition.
Owners = Mapping[Place, str]
Divides = Callable[[Topics, Sequence[Wishes], Owners], dict[Place, str]]


def divide(
    strategy: str, topics: Topics, wishes: Sequence[Wishes], had: Owners
) -> dict[Place, str]:
    """
    Divide partitions among members.

    Args:
        strategy: One of `DIVIDES`.
        topics: How many partitions each topic has.
        wishes: What the members want.
        had: Who had what before.

    Returns:
        Who is to have each partition that somebody wants.
    """
    ordered = sorted(wishes, key=lambda one: (one.order, one.member))
    return DIVIDES[strategy](topics, ordered, had)


def by_range(topics: Topics, wishes: Sequence[Wishes], had: Owners) -> dict[Place, str]:
    """Give each member neighbouring partitions, of each topic for itself."""
    given: dict[Place, str] = {}
    for topic, many in topics.items():
        members = [one.member for one in wishes if topic in one.topics]
        if not members:
            continue
        each, more = divmod(many, len(members))
        counts = (each + (index < more) for index in range(len(members)))
        owners = chain.from_iterable(
            [member] * count for member, count in zip(members, counts, strict=True)
        )
        given.update(zip(_places(topic, many), owners, strict=True))
    return given


def by_turns(topics: Topics, wishes: Sequence[Wishes], had: Owners) -> dict[Place, str]:
    """Deal the partitions of all topics like cards; who does not want one is passed over."""
    given: dict[Place, str] = {}
    circle = cycle(wishes)
    for topic, many in topics.items():
        if any(topic in one.topics for one in wishes):
            wanting = (one.member for one in circle if topic in one.topics)
            given.update(zip(_places(topic, many), islice(wanting, many), strict=True))
    return given


def sticky(topics: Topics, wishes: Sequence[Wishes], had: Owners) -> dict[Place, str]:
    """Leave with each member what it had, as far as the numbers allow."""
    wanted: dict[bytes, list[str]] = {}
    for one in wishes:
        for topic in one.topics:
            wanted.setdefault(topic, []).append(one.member)
    takers = {topic: wanted[topic] for topic in topics if topic in wanted}
    held: dict[str, list[Place]] = {one.member: [] for one in wishes}
    free: list[Place] = []
    for topic, members in takers.items():
        allowed = set(members)
        for place in _places(topic, topics[topic]):
            owner = had.get(place)
            if owner in allowed and owner is not None:
                held[owner].append(place)
            else:
                free.append(place)
    if all(len(members) == len(held) for members in takers.values()):
        _fill_alike(held, free)
    else:
        _fill_apart(held, free, takers)
    return {place: member for member, places in held.items() for place in places}


def _places(topic: bytes, many: int) -> list[Place]:
    return [(topic, partition) for partition in range(many)]


def _fill_alike(held: dict[str, list[Place]], free: list[Place]) -> None:
    """Bring members who want the same to numbers that differ by one at most."""
    if not held:
        return
    total = len(free) + sum(map(len, held.values()))
    each, more = divmod(total, len(held))
    # Those that have most keep one more, so that the fewest move.
    ranked = sorted(held, key=lambda member: -len(held[member]))
    surplus: list[Place] = []
    for rank, member in enumerate(ranked):
        most = each + (rank < more)
        surplus += held[member][most:]
        del held[member][most:]
    loads = [(len(held[member]), index) for index, member in enumerate(held)]
    names = list(held)
    heapify(loads)
    for place in chain(free, surplus):
        count, index = loads[0]
        held[names[index]].append(place)
        heapreplace(loads, (count + 1, index))


def _fill_apart(
    held: dict[str, list[Place]], free: list[Place], takers: Mapping[bytes, list[str]]
) -> None:
    """Bring members who want different topics as near to each other as these allow."""
    # What few can take is given out first.
    for place in sorted(free, key=lambda place: len(takers[place[0]])):
        held[min(takers[place[0]], key=lambda member: len(held[member]))].append(place)
    moved = True
    while moved:
        moved = False
        for member in sorted(held, key=lambda each: -len(held[each])):
            while (path := _path(member, held, takers)) is not None:
                moved = True
                for giver, topic, taker in path:
                    held[taker].append(_take(held[giver], topic))


def _path(
    member: str, held: Mapping[str, list[Place]], takers: Mapping[bytes, list[str]]
) -> list[tuple[str, bytes, str]] | None:
    """
    Find the shortest way from a member to one that has two fewer at least.

    Each step hands one partition on, so only the numbers at both ends change.
    """
    enough = len(held[member]) - 2
    before: dict[str, tuple[str, bytes]] = {}
    seen: set[bytes] = set()
    waiting = deque([member])
    while waiting:
        giver = waiting.popleft()
        for topic in dict.fromkeys(topic for topic, _ in held[giver]):
            if topic in seen:
                continue
            seen.add(topic)
            for taker in takers[topic]:
                if taker == member or taker in before:
                    continue
                before[taker] = giver, topic
                if len(held[taker]) <= enough:
                    return _steps(member, taker, before)
                waiting.append(taker)
    return None


def _steps(
    first: str, last: str, before: Mapping[str, tuple[str, bytes]]
) -> list[tuple[str, bytes, str]]:
    steps: list[tuple[str, bytes, str]] = []
    while last != first:
        giver, topic = before[last]
        steps.append((giver, topic, last))
        last = giver
    return steps


def _take(places: list[Place], topic: bytes) -> Place:
    """Take away the last one of a topic."""
    index = max(index for index, place in enumerate(places) if place[0] == topic)
    return places.pop(index)


#: What carries out each strategy, but for that of the members themselves.
DIVIDES: Final[Mapping[str, Divides]] = {
    "range": by_range,
    "roundrobin": by_turns,
    "sticky": sticky,
    COOPERATIVE: sticky,
}
