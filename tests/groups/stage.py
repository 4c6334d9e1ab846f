"""A group, its coordinator and its members in memory, with a clock that is set by hand."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Iterable
from typing import Any

from attrs import define, field, frozen

from tinymq.errors import FencedGeneration, UnknownMember, WireError
from tinymq.groups.group import Group
from tinymq.groups.membership import Poll, rows_of, shares_of
from tinymq.groups.topics import Topics
from tinymq.groups.values import Client, Now, Place
from tinymq.wire.messages import Member, MemberReply

#: The wall clock begins here.
BEGIN_MS = 1_750_000_000_000


@frozen
class FakeTopic:
    """A topic."""

    id: bytes
    name: str
    partitions: int


def topic(name: str, partitions: int, version: int = 0) -> FakeTopic:
    """Make a topic; another version is one made anew."""
    return FakeTopic(f"{name}/{version}".encode().ljust(16, b".")[:16], name, partitions)


def topics_of(*found: FakeTopic) -> Topics:
    """What there is."""
    return Topics({each.id: each for each in found}, {each.name: each for each in found})


@define(eq=False)
class Person:
    """
    A member, and what it believes.

    Attributes:
        name: Its id.
        instance: Its static name.
        holds: What it reads, with generations.
        draining: What it gives up, until when.
        generation: What it knows of the group.
        drain_ms: How long it takes to give something up.
        mute: It says nothing until then.
        answers: Everything that it heard.
    """

    name: str
    wanted: list[str]
    instance: str | None = None
    strategy: str = "cooperative-sticky"
    patterns: list[str] = field(factory=list)
    session_ms: int = 10_000
    rebalance_ms: int = 5_000
    holds: dict[Place, int] = field(factory=dict)
    draining: dict[Place, int] = field(factory=dict)
    generation: int = 0
    #: How many members it knows of, and since which generation.
    count: tuple[int, int] = 0, 0
    drain_ms: int = 0
    mute: int = 0
    waits: bool = False
    poll: Poll | None = None
    answers: list[MemberReply | WireError] = field(factory=list)
    begun: int = 0
    speaks_at: int | None = None
    over: bool = False
    #: Answers on their way, with when they arrive; and how often its connection was lost.
    coming: deque[tuple[int, MemberReply | WireError]] = field(factory=deque)

    @property
    def owned(self) -> dict[Place, int]:
        """All that it may still be reading."""
        return self.holds


class Stage:
    """A coordinator, and members that do what they are told."""

    def __init__(self, *found: FakeTopic, pause_ms: int = 0) -> None:
        self.now = Now(0, BEGIN_MS)
        self.topics = topics_of(*found)
        self.group = Group("g", self.topics, self.now, pause_ms)
        self.people: dict[str, Person] = {}
        #: Of each partition, the latest generation of who took it over.
        self.fences: Counter[Place] = Counter()
        self.idle: dict[Place, int] = {}
        self.most_idle = 0
        self.taken = 0
        #: Whether two may hold a partition: some have been robbed.
        self.robbed = False
        #: Decides how long answers take; at once if there is none.
        self.latency: random.Random | None = None

    # --- what members do ------------------------------------------------------------

    def join(self, name: str, *wanted: str, **more: Any) -> Person:
        """Let somebody come."""
        person = Person(name, list(wanted), **more)
        self.people[name] = person
        self.say(person)
        return person

    def say(self, person: Person, *, leaves: bool = False, **more: Any) -> None:
        """Let somebody say how it is."""
        request = Member(
            group="g",
            member=person.name,
            generation=person.generation,
            leaves=leaves,
            instance=person.instance,
            topics=person.wanted,
            patterns=person.patterns,
            strategy=person.strategy,
            session_ms=person.session_ms,
            rebalance_ms=person.rebalance_ms,
            owned=rows_of(person.owned),
            wait_ms=5000,
            count=person.count[1] if person.generation == person.count[0] else 0,
            **more,
        )
        person.waits = True
        group = self.group

        def answer(reply: MemberReply | WireError) -> None:
            if self.group is not group or self.people.get(person.name) is not person:
                return
            if self.latency is None:
                self.hear(person, reply)
            else:
                person.coming.append((self.now.mono + self.latency.randrange(80), reply))

        try:
            person.poll = group.ask(request, Client("c", "1.2.3.4:5"), self.now, answer)
        except WireError as error:
            answer(error)

    def hear(self, person: Person, reply: MemberReply | WireError) -> None:
        """Let somebody hear an answer."""
        person.answers.append(reply)
        if isinstance(reply, FencedGeneration):
            person.over = True
            person.holds.clear()
            person.draining.clear()
            return
        if isinstance(reply, WireError):
            assert isinstance(reply, UnknownMember), reply
            person.holds.clear()
            person.draining.clear()
            person.generation = 0
            person.speaks_at = self.now.mono + 100
            return
        person.generation, person.count = reply.generation, (reply.generation, reply.count)
        person.speaks_at = self.now.mono
        assigned = shares_of(reply.assigned)
        for place, generation in assigned.items():
            person.draining.pop(place, None)
            if person.holds.get(place) != generation:
                self._take_over(person, place, generation)
        for place in person.holds.keys() - assigned.keys() - person.draining.keys():
            person.draining[place] = self.now.mono + person.drain_ms

    def _take_over(self, person: Person, place: Place, generation: int) -> None:
        if generation < self.fences[place]:
            person.holds.pop(place, None)
            person.generation = max(person.generation, self.fences[place])
            return
        self.fences[place] = generation
        person.holds[place] = generation
        self.taken += 1

    def crash(self, name: str) -> None:
        """Let somebody die without a word."""
        person = self.people.pop(name)
        if person.poll is not None:
            self.group.hang_up(person.poll)

    def leave(self, name: str) -> None:
        """Let somebody go in good order."""
        person = self.people.pop(name)
        person.holds.clear()
        self.say(person, leaves=True)

    def lose(self, name: str) -> None:
        """Let somebody's connection be lost, with all answers that are on their way."""
        person = self.people[name]
        if person.poll is not None:
            self.group.hang_up(person.poll)
            person.poll = None
        person.coming.clear()
        person.speaks_at = max(self.now.mono + 20, person.mute)

    def silence(self, name: str, ms: int) -> None:
        """Let somebody hear and say nothing for a while."""
        person = self.people[name]
        person.mute = self.now.mono + ms
        if person.poll is not None:
            self.group.hang_up(person.poll)
            person.poll = None
        person.coming.clear()
        person.speaks_at = person.mute
        person.waits = False

    # --- time -------------------------------------------------------------------------

    def run(self, ms: int, step: int = 20) -> None:
        """Let time pass."""
        end = self.now.mono + ms
        while self.now.mono < end:
            self.now = Now(self.now.mono + step, self.now.wall + step)
            due = self.group.due
            if due is not None and self.now.mono >= due:
                self.group.tick(self.now)
            for person in list(self.people.values()):
                self._act(person)
            self.check()

    def _act(self, person: Person) -> None:
        while person.coming and person.coming[0][0] <= self.now.mono:
            self.hear(person, person.coming.popleft()[1])
        if person.over or self.now.mono < person.mute:
            return
        drained = [place for place, until in person.draining.items() if until <= self.now.mono]
        for place in drained:
            del person.draining[place]
            person.holds.pop(place, None)
        drained += self._commit(person)
        due = person.speaks_at is not None and self.now.mono >= person.speaks_at
        if drained or due:
            person.speaks_at = None
            self.say(person)

    def _commit(self, person: Person) -> list[Place]:
        """Let somebody commit, once a second, and drop what it is refused for."""
        if self.now.mono % 1000:
            return []
        late = [place for place, each in person.holds.items() if each < self.fences[place]]
        for place in late:
            person.generation = max(person.generation, self.fences[place])
            del person.holds[place]
            person.draining.pop(place, None)
        return late

    def fail_over(self, chance: random.Random | None = None, pause_ms: int = 1000) -> None:
        """Let the coordinator die: members come to another one in some order."""
        self.group = Group("g", self.topics, self.now, pause_ms)
        for person in self.people.values():
            person.poll = None
            person.coming.clear()
            wait = 0 if chance is None else chance.randrange(1000)
            person.speaks_at = max(self.now.mono + 20 + wait, person.mute)

    def set_topics(self, *found: FakeTopic) -> None:
        """Let the topics be others."""
        before = self.topics.by_id
        by_id = {each.id: each for each in found}
        touched = [*before.keys(), *by_id.keys()]
        changed = self.topics.follow(by_id, {each.name: each for each in found}, touched)
        self.group.follow(changed, self.now)

    # --- what must hold ---------------------------------------------------------------

    def check(self) -> None:
        """Nothing is read by two with one right, and by two at all only after a robbery."""
        holders: dict[Place, list[Person]] = {}
        for person in self.people.values():
            for place in person.holds:
                holders.setdefault(place, []).append(person)
        for place, several in holders.items():
            rights = [each.holds[place] for each in several]
            assert len(rights) == len(set(rights)), (place, several)
            assert self.robbed or len(several) == 1, (place, [each.name for each in several])
        for place in self.places():
            if place in holders or not self.people:
                self.idle.pop(place, None)
            else:
                since = self.idle.setdefault(place, self.now.mono)
                self.most_idle = max(self.most_idle, self.now.mono - since)

    def places(self) -> Iterable[Place]:
        """Every partition that there is."""
        return [
            (each.id, partition)
            for each in self.topics.by_id.values()
            for partition in range(each.partitions)
        ]

    def who(self) -> dict[Place, str]:
        """Who reads what."""
        return {place: person.name for person in self.people.values() for place in person.holds}

    def settled(self, *, even: bool = True) -> None:
        """Everything is read by somebody, evenly, and nothing moves any more."""
        assert not self.group.moving
        assert self.group.history.open is None
        people = [each for each in self.people.values() if not each.over]
        assert set(self.who()) == set(self.places())
        counts = [len(each.holds) for each in people]
        assert sum(counts) == len(set(self.who()))
        assert not even or max(counts) - min(counts) <= 1
        for person in people:
            assert not person.draining
            assert self.group.members[person.name].shares == person.holds
            # What it would commit is not refused.
            assert all(each >= self.fences[place] for place, each in person.holds.items())
