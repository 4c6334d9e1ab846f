"""The words of groups, and their bounds."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol, TypeAlias

#: A partition: its topic's id, and its number.
Place: TypeAlias = tuple[bytes, int]

#: Most members of a group; the wire carries no more rows than that.
MOST_MEMBERS: Final = 1000
#: Most partitions that a group divides: one member may have to own them all, and what it
#: owns has to fit into one request.
MOST_PLACES: Final = 4000
#: Most patterns of a member.
MOST_PATTERNS: Final = 100
#: Bytes that the members of a group may hand to their own assignor, all together.
MOST_METADATA: Final = 512 * 1024
#: Rebalances that are remembered.
MOST_HISTORY: Final = 20

COOPERATIVE: Final = "cooperative-sticky"
OWN: Final = "own"
#: Those that first take everything from everybody.
EAGER: Final = frozenset({"range", "roundrobin", "sticky"})
#: How partitions can be divided.
STRATEGIES: Final = ("range", "roundrobin", "sticky", COOPERATIVE, OWN)


class Now(NamedTuple):
    """
    What time it is, in milliseconds.

    Attributes:
        mono: Since some moment; steps of the wall clock do not move it.
        wall: Since 1970.
    """

    mono: int
    wall: int


class TopicLike(Protocol):
    """What a group knows of a topic."""

    @property
    def id(self) -> bytes:
        """A topic made anew under an old name has another one."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def partitions(self) -> int:
        """How many there are."""


class Client(NamedTuple):
    """
    Who speaks for a member, for people.

    Attributes:
        name: What the client calls itself.
        address: Where it is.
    """

    name: str = ""
    address: str = ""
