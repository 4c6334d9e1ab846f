"""One member of a group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from attrs import define, field

from tinymq.errors import WireError
from tinymq.groups.patterns import Pattern
from tinymq.groups.topics import Topics
from tinymq.groups.values import Client, Now, Place, TopicLike
from tinymq.wire.messages import Member, MemberReply, Shares

#: Told the answer to one request of a member, once.
Answer: TypeAlias = Callable[[MemberReply | WireError], None]

#: Milliseconds after which a member says something again at the latest.
MOST_INTERVAL: Final = 5000
#: About how many bytes a member takes, and each topic and share of it besides.
_BYTES: Final = 2000
_EACH: Final = 100
#: Characters of an id that people are shown; it has 32 of chance.
_SHOWN: Final = 8


@define(eq=False)
class Poll:
    """
    A request that waits for something to do.

    Attributes:
        answer: Told the answer.
        until: When it is answered at the latest, on the monotonic clock.
        waits: Whether it waits at all.
    """

    answer: Answer
    until: int
    waits: bool


@define(eq=False)
class Membership:
    """
    One member.

    Attributes:
        id: What it calls itself.
        request: What it said when it said something new, last.
        client: Who speaks for it.
        since: When it came.
        heard: When it was heard last.
        entered: The generation of the group when it came.
        patterns: Its patterns.
        topics: The ids of the topics that it wants, as they are now.
        shares: What it has, with the generation in which it was given it.
        leaving: What it is to give up of that, since when.
        told: What it was told last that it is to have; None before the first time.
        told_generation: The generation of the group in that answer.
        poll: Its request that waits.
        absent: It said that it goes, and its place is kept for its instance.
    """

    id: str
    request: Member
    client: Client
    since: Now
    heard: Now
    entered: int
    patterns: list[Pattern] = field(factory=list)
    topics: frozenset[bytes] = frozenset()
    shares: dict[Place, int] = field(factory=dict)
    leaving: dict[Place, int] = field(factory=dict)
    told: dict[Place, int] | None = None
    told_generation: int = -1
    poll: Poll | None = None
    absent: bool = False

    @property
    def order(self) -> str:
        """What members are sorted by: a restart of a static one leaves it where it was."""
        return self.request.instance or self.id

    @property
    def label(self) -> str:
        """What people call it: its instance, or its client and the beginning of its id."""
        return self.request.instance or f"{self.client.name} {self.id[:_SHOWN]}".strip()

    @property
    def weight(self) -> int:
        """About how many bytes it takes here."""
        said = self.request
        names = sum(map(len, said.topics)) + sum(map(len, said.patterns))
        return _BYTES + names + len(said.metadata) + _EACH * (len(said.topics) + len(self.shares))

    @property
    def session(self) -> int:
        """Milliseconds of silence after which it is taken for dead."""
        return self.request.session_ms

    @property
    def interval(self) -> int:
        """Milliseconds after which it says something again at the latest."""
        return min(self.session // 3, MOST_INTERVAL)

    @property
    def due_at(self) -> int:
        """When its request is to be answered, or else its session is over."""
        return self.heard.mono + self.session if self.poll is None else self.poll.until

    @property
    def due(self) -> dict[Place, int]:
        """What it is to have: all that it has, but for what it is to give up."""
        if not self.leaving:
            return dict(self.shares)
        return {place: each for place, each in self.shares.items() if place not in self.leaving}

    def says(self, other: Member) -> bool:
        """Whether a request says what it said before, but for what it has."""
        mine = self.request
        return (
            mine.topics == other.topics
            and mine.patterns == other.patterns
            and mine.strategy == other.strategy
            and mine.metadata == other.metadata
            and mine.session_ms == other.session_ms
            and mine.rebalance_ms == other.rebalance_ms
            and mine.instance == other.instance
        )

    def resolve(self, topics: Topics) -> frozenset[bytes]:
        """Find the topics that it wants now."""
        names = set(self.request.topics).union(*(each.names for each in self.patterns))
        found: list[TopicLike] = [topics.by_name[name] for name in names if name in topics.by_name]
        return frozenset(each.id for each in found)


def rows_of(shares: dict[Place, int]) -> Shares:
    """Write shares as they travel."""
    rows: dict[bytes, list[tuple[int, int]]] = {}
    for (topic, partition), generation in sorted(shares.items()):
        rows.setdefault(topic, []).append((partition, generation))
    return list(rows.items())


def shares_of(rows: Shares) -> dict[Place, int]:
    """Read shares as they travelled."""
    return {(topic, partition): each for topic, shares in rows for partition, each in shares}
