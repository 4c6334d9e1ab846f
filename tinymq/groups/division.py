"""
When the partitions of a group are divided anew, and by whom.

Changes that come one after another are taken together: partitions are divided a moment
after the first of them. A group that begins anew waits until its members have said what
they have.
"""

from __future__ import annotations

from typing import Final

from attrs import define

from tinymq.errors import InvalidRequest
from tinymq.groups.assignors import Wishes, divide
from tinymq.groups.membership import Membership
from tinymq.groups.moves import Moves
from tinymq.groups.plans import Plan, checked_plan
from tinymq.groups.strategies import Strategy
from tinymq.groups.topics import Topics
from tinymq.groups.values import EAGER, MOST_PLACES, OWN, Now

#: Milliseconds in which more changes may come before partitions are divided anew.
SETTLE_MS: Final = 100
#: Milliseconds until a plan is asked for again, after one that was refused.
REFUSED_MS: Final = 1000


@define
class _Asked:
    """A member that was asked to divide the partitions: since when, and in which generation."""

    member: Membership
    since: int
    generation: int
    told: bool = False


class Division(Moves):
    """
    How a group comes to its shares.

    Args:
        topics: The topics that there are.
        collecting: Until when nothing is given out, None if there is nobody to wait for.

    Attributes:
        strategy: By which it divides.
        stuck: What keeps the group from its best, for people; empty if nothing does.
        read: Partitions of the topics that are divided, in order of the topics' names.
    """

    def __init__(self, topics: Topics, collecting: int | None) -> None:
        super().__init__()
        self.strategy = Strategy()
        self.stuck = ""
        self.read: dict[bytes, int] = {}
        self._topics = topics
        self._collecting = collecting
        self._replan_at: int | None = None
        #: Whether it has divided anything yet; until then it may not know all its members.
        self._divided = False
        #: Who came from another coordinator, or left, while they are waited for.
        self._came: set[str] = set()
        #: How many members the group had, as those who came say, after the generation of that.
        self._expected = (0, 0)
        self._asked: _Asked | None = None
        self._passed_over: set[str] = set()

    def topic_name(self, topic_id: bytes) -> str:
        """Name a topic; empty if it is no more."""
        topic = self._topics.by_id.get(topic_id)
        return "" if topic is None else topic.name

    def topic_names(self) -> list[str]:
        """Name the topics that are divided."""
        return [name for name in map(self.topic_name, self.read) if name]

    @property
    def moving(self) -> bool:
        """Whether partitions change hands, or are about to."""
        return (
            self._replan_at is not None
            or self._collecting is not None
            or self._asked is not None
            or self.emptying
            or bool(self.givers)
        )

    @property
    def soon(self) -> int | None:
        """When partitions are to move, or be taken, on the monotonic clock; None if never."""
        times = [
            min(each.leaving.values()) + each.request.rebalance_ms
            for each in self.givers
            if each.leaving
        ]
        if self._collecting is not None:
            times.append(self._collecting)
        elif self._replan_at is not None:
            times.append(self._replan_at)
        if self._asked is not None:
            times.append(self._asked.since + self._asked.member.request.rebalance_ms)
        return min(times, default=None)

    def _replan(self, now: Now, why: str) -> None:
        """Divide anew before long, for what has changed."""
        self.history.begin(why, now)
        if self._replan_at is None:
            self._replan_at = now.mono + SETTLE_MS

    def _settle(self, now: Now) -> None:
        """Divide anew if it is time for that, and give what is free."""
        if self._collecting is not None:
            if not (self._all_came() or (self.owner and self._all_claimed())):
                return
            self._collecting = None
            self._came.clear()
        if self._replan_at is not None:
            emptied = self.emptying and not self.owner
            if now.mono < self._replan_at and not emptied:
                return
            self._divide(now)
        self.give(now)
        if not self.moving:
            self.history.end(now)

    def _all_came(self) -> bool:
        """Whether all members are here that the group had with another coordinator."""
        return len(self._came) >= self._expected[1] > 0

    def _all_claimed(self) -> bool:
        read, _ = self._readable()
        return all((topic, each) in self.owner for topic, n in read.items() for each in range(n))

    def _readable(self) -> tuple[dict[bytes, int], str]:
        """Find the topics that are divided, and say what is too much."""
        wanted = frozenset[bytes]().union(*(each.topics for each in self.members.values()))
        topics = sorted((self._topics.by_id[each] for each in wanted), key=lambda each: each.name)
        read: dict[bytes, int] = {}
        total = 0
        for topic in topics:
            total += topic.partitions
            if total <= MOST_PLACES:
                read[topic.id] = topic.partitions
        if total > MOST_PLACES:
            return read, (
                f"its topics have {total} partitions, and a group reads at most {MOST_PLACES}: "
                "some are read by nobody"
            )
        return read, ""

    def _divide(self, now: Now) -> None:
        self._replan_at, self._divided = None, True
        self.read, much = self._readable()
        if much or self.strategy.name != OWN:  # what is wrong with a plan stands until the next
            self.stuck = much
        if not self.members:
            self.target = {}
            return
        if self.strategy.name == OWN:
            self._ask_plan(now)
            return
        owned = {place: member.id for place, member in self.owner.items()}
        wishes = [Wishes(each.id, each.order, each.topics) for each in self.members.values()]
        name = self.strategy.name
        target = divide(name, self.read, wishes, self.had if self.emptying else owned)
        self.aim(target, now, eager=name in EAGER)

    # --- the members' own assignor ------------------------------------------------

    def _ask_plan(self, now: Now) -> None:
        able = [
            each
            for each in self.members.values()
            if each.request.strategy == OWN and not each.absent
        ]
        fresh = [each for each in able if each.id not in self._passed_over]
        if not fresh:
            self._passed_over.clear()
        self._asked = None
        for member in (fresh or able)[:1]:
            self._asked = _Asked(member, now.mono, self.rise(now))
            self.dirty[member] = None

    def _take_plan(
        self, member: Membership, plan: Plan, known: int, now: Now
    ) -> InvalidRequest | None:
        """Divide as a member says that was asked for it, or say what is wrong with its plan."""
        asked = self._asked
        if asked is None or asked.member is not member or known < asked.generation:
            return None  # of a question that is no longer asked
        wishes = {each.id: each.topics for each in self.members.values()}
        self._asked = None
        try:
            target = checked_plan(plan, self.read, wishes)
        except InvalidRequest as error:
            self.stuck = f"{member.label}: {error.text}"
            self._replan_at = now.mono + REFUSED_MS
            return error
        self.stuck = self._readable()[1]
        self.aim(target, now, eager=False)
        return None

    def _plan_rows(self) -> list[tuple[str, str, list[str], bytes]]:
        names = {topic: self._topics.by_id[topic].name for topic in self.read}
        return [
            (
                each.id,
                each.request.instance or "",
                sorted(names[topic] for topic in each.topics if topic in names),
                each.request.metadata,
            )
            for each in self.members.values()
        ]

    # --- time ---------------------------------------------------------------------

    def _take_overdue(self, now: Now) -> None:
        """Take partitions from members that take too long, and ask another one for a plan."""
        for member in list(self.givers):
            for place, since in list(member.leaving.items()):
                if now.mono - since >= member.request.rebalance_ms:
                    self.stuck = f"{member.label} took too long to give up partitions"
                    self.take(member, place)
        asked = self._asked
        if asked is not None and now.mono - asked.since >= asked.member.request.rebalance_ms:
            self.stuck = f"{asked.member.label} was asked for a plan and sent none"
            self._passed_over.add(asked.member.id)
            self._asked, self._replan_at = None, now.mono
