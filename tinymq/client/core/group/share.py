"""
A partition that a member has.

::

    TAKING --COMMITTED--> OPENING --on_assigned--> READING --not assigned any more--+
      |                                              |                              |
      +--- not assigned any more, or fenced ---------+--> GONE <-- committed -- CLOSING
                                                            ^                       ^
                                              time is up ---+-- DRAINING -- drained-+
"""

from __future__ import annotations

from enum import Enum
from math import inf
from typing import TYPE_CHECKING

from tinymq.client.core.cursor import Cursor
from tinymq.client.core.group.asking import Asking, Spot
from tinymq.client.core.group.settings import Share
from tinymq.client.core.group.tally import Tally
from tinymq.client.core.group.transactions import ShareRow
from tinymq.client.core.metadata import TopicInfo
from tinymq.client.core.starts import Mark, Place

if TYPE_CHECKING:
    from tinymq.client.core.group.committing import Waiter


class Stage(Enum):
    """Where a share stands."""

    #: It was given; the leader is asked where the group goes on.
    TAKING = "taking"
    #: The user is told.
    OPENING = "opening"
    #: It is read.
    READING = "reading"
    #: Nothing more is handed out; what was is waited for.
    DRAINING = "draining"
    #: The user is told, and then the last commit is made.
    CLOSING = "closing"
    #: It is not ours any more.
    GONE = "gone"


class HeldShare:
    """
    One share.

    Args:
        topic_id: Identity of the topic.
        partition: Number of the partition.
        generation: In which it was given.

    Attributes:
        stage: Where it stands.
        info: The topic, once it is known.
        asked: Asks its leader where to go on, or None.
        cursor: Reads it, or None.
        tally: What was handed out of it.
        place: Where reading is to begin, or None as long as nobody said it.
        committed: What the leader has, or None.
        note: Goes with commits.
        noted: The note that the leader has.
        until: When what was handed out is not waited for any more.
        paused: Whether the user paused it.
        held: Whether it waits for something that was handed out long ago.
        flying: What a commit on its way says, or None.
        waiters: Who waits for that.
        following: Who waits for the commit after it.
    """

    __slots__ = (
        "asked",
        "committed",
        "cursor",
        "flying",
        "following",
        "generation",
        "held",
        "info",
        "note",
        "noted",
        "partition",
        "paused",
        "place",
        "stage",
        "tally",
        "topic_id",
        "until",
        "waiters",
    )

    def __init__(self, topic_id: bytes, partition: int, generation: int) -> None:
        self.topic_id = topic_id
        self.partition = partition
        self.generation = generation
        self.stage = Stage.TAKING
        self.info: TopicInfo | None = None
        self.asked: Asking | None = None
        self.cursor: Cursor | None = None
        self.tally = Tally()
        self.place: Place | None = None
        self.committed: Mark | None = None
        self.note = ""
        self.noted = ""
        self.until = inf
        self.paused = False
        self.held = False
        self.flying: tuple[Mark, str] | None = None
        self.waiters: list[Waiter] = []
        self.following: list[Waiter] = []

    @property
    def topic(self) -> str:
        """Name of the topic, or ``""`` before it is known."""
        return "" if self.info is None else self.info.name

    @property
    def where(self) -> tuple[str, int]:
        """Topic and partition."""
        return self.topic, self.partition

    @property
    def spot(self) -> Spot:
        """The partition of this very topic."""
        return Spot(self.topic, self.topic_id, self.partition)

    @property
    def floor(self) -> Mark | None:
        """Where all before is done, or None while nothing is known."""
        tally, cursor = self.tally, self.cursor
        floor = tally.floor
        if len(tally):
            return floor
        # What nobody will ever see is passed as well.
        if self.stage in (Stage.DRAINING, Stage.CLOSING):
            return self.place if isinstance(self.place, Mark) else floor
        return cursor.mark if cursor is not None and cursor.position >= 0 else floor

    @property
    def dirty(self) -> bool:
        """Whether there is something that the leader does not have."""
        floor = self.floor
        if floor is None or self.stage in (Stage.TAKING, Stage.OPENING, Stage.GONE):
            return False
        known = self.committed
        return known is None or known.offset != floor.offset or self.note != self.noted

    @property
    def ahead(self) -> bool:
        """Whether something was handed out that is not committed."""
        floor, start = self.tally.floor, self.tally.start
        if len(self.tally):
            return True
        return floor is not None and start is not None and floor.offset > start.offset

    @property
    def told(self) -> Share:
        """The share, as users see it."""
        mark = self.floor or self.committed or Mark(-1)
        return Share(self.topic, self.partition, *mark, self.note)

    def row(self, mark: Mark) -> ShareRow:
        """
        Say what a transaction commits of it.

        Args:
            mark: What would be handed out next.
        """
        return ShareRow(*self.spot, self.generation, *mark, self.note)

    def end(self) -> None:
        """It is not ours any more."""
        self.stage = Stage.GONE
        self.tally.end_here()
        if self.asked is not None:
            self.asked.cancel([self.spot])
