"""
A member and its coordinator: one long poll, whatever else the program does.

::

    JOINING --answer--> MEMBER --close--> LEAVING --answer, or time is up--> GONE
       ^                  |
       +- UnknownMember --+        anything that cannot be mended: GONE, and why

It asks any broker until one is the coordinator, follows NotCoordinator, and asks
another when its broker does not answer. Every answer says all that the member is to
read; every question says all that it has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from math import inf
from typing import Any, Final, Protocol
from uuid import uuid4

from tinymq.client.core.cluster import Cluster
from tinymq.client.core.connection import Done
from tinymq.client.core.group.names import learn_brokers
from tinymq.client.core.group.settings import GroupConfig, GroupMember
from tinymq.client.core.link import Link
from tinymq.client.core.lookups import may_repeat
from tinymq.errors import (
    ClientError,
    ClosedError,
    NotCoordinator,
    TinyMQError,
    UnknownMember,
)
from tinymq.wire.frames import Bytes
from tinymq.wire.messages import Member, MemberReply, PlanRow, Shares

#: What a coordinator says when nothing is to be done.
STABLE: Final = "stable"
#: Seconds between two questions, when answers come at once and say the same.
_CALM_S: Final = 0.1
#: So many in a row may come at once, whatever they say.
_QUICK: Final = 10
#: Brokers that may name one another before there is a pause.
_HOPS: Final = 3
#: Longest wait of a broker, in seconds.
_LONGEST_S: Final = 20.0
#: Longest pause while other brokers name one that does not answer: soon they name another.
_SEEK_S: Final = 0.5
#: Seconds for which a member reads on meanwhile, if its session is shorter: nobody gives away
#: what it has, or if somebody does, the partitions refuse what it commits.
_ALONE_S: Final = 10.0
#: So many seconds late, a look at the time says nothing of the coordinator.
_LATE_S: Final = 1.0


class Phase(Enum):
    """Where a member stands."""

    #: The coordinator does not know it yet.
    JOINING = "joining"
    #: It is known.
    MEMBER = "member"
    #: It says that it goes.
    LEAVING = "leaving"
    #: It asks nothing any more.
    GONE = "gone"


class Owner(Protocol):
    """Who reads what the member is given."""

    def owned(self) -> Shares:
        """Say all that is read and not given up."""

    def given(self, reply: MemberReply, now: float) -> None:
        """Take what the coordinator says."""

    def expelled(self, now: float) -> None:
        """Give up everything: others may have it."""

    def refused(self, error: TinyMQError, now: float) -> None:
        """There will be no member of this kind."""

    def divide(
        self, members: list[GroupMember], done: Callable[[list[PlanRow], float], None], now: float
    ) -> None:
        """Divide the partitions of the group, by the user's function."""


class Membership:
    """
    The member.

    Args:
        cluster: The brokers.
        group: Name of the group.
        wanted: Names and patterns of topics.
        config: Settings.
        owner: Who reads.

    Attributes:
        id: Its number, new at each start.
        generation: The newest of the group that it knows.
        phase: Where it stands.
        state: What the coordinator said last: ``stable`` or ``moving``.
        heard_at: When the coordinator last answered.
        why: Why none answers, or None.
    """

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        wanted: tuple[Sequence[str], Sequence[str]],
        config: GroupConfig,
        owner: Owner,
    ) -> None:
        self.id = uuid4().hex
        self.generation = 0
        self.phase = Phase.JOINING
        self.state = ""
        self.heard_at = -inf
        self.why: TinyMQError | None = None
        self._cluster = cluster
        self._group = group
        self._topics, self._patterns = list(wanted[0]), list(wanted[1])
        self._config = config
        self._owner = owner
        self._coordinator: int | None = None
        #: The link that a question is on its way over.
        self._asked: tuple[Link, Done] | None = None
        self._ticket = 0
        self._next_at = inf
        self._attempt = 0
        self._hops = 0
        #: Other brokers answered since the coordinator did.
        self._seeks = False
        #: How many members the group had, and in which generation.
        self._count = 0, 0
        #: Answers in a row that came at once, and until when no more are asked for.
        self._quick = 0
        self._calm_until = -inf
        self._wait_s = min(5.0, config.session_s / 3)
        self._last: MemberReply | None = None
        self._plan: tuple[int, list[PlanRow]] | None = None
        self._left: Callable[[float], None] | None = None
        self._leave_by = inf

    def join(self, now: float) -> None:
        """
        Begin.

        Args:
            now: The time.
        """
        self.heard_at = now
        self._ask(now)

    def say(self, now: float) -> None:
        """
        Tell the coordinator soon what is read now.

        Args:
            now: The time.
        """
        if self.phase is Phase.MEMBER:
            self._next_at = min(self._next_at, max(now, self._calm_until))

    def want_nothing(self) -> None:
        """Ask for no topic any more: what it still has it only gives up."""
        self._topics, self._patterns = [], []

    def fenced(self, generation: int, now: float) -> None:
        """
        Note that somebody was given something in a later generation.

        Args:
            generation: That one.
            now: The time.
        """
        self.generation = max(self.generation, generation)
        self.say(now)

    def leave(self, left: Callable[[float], None], by: float, now: float) -> None:
        """
        Say that it goes, and ask nothing more.

        Args:
            left: Called with the time when the coordinator knows, or time is up.
            by: When time is up.
            now: The time.
        """
        alone = self._cluster.link(self._coordinator).failing
        if self.phase is Phase.GONE or (self.phase is Phase.JOINING and alone):
            self.stop()
            left(now)
            return
        self.phase = Phase.LEAVING
        self._left, self._leave_by = left, by
        self._ask(now)

    def stop(self) -> None:
        """Ask nothing more, and say nothing."""
        self.phase = Phase.GONE
        self._withdraw()
        self._ticket += 1
        self._next_at = self._leave_by = inf
        self._left = None

    # --- time ------------------------------------------------------------------

    @property
    def wake_at(self) -> float:
        """When `tick` has something to do."""
        if self.phase is Phase.GONE:
            return inf
        if self.phase is Phase.LEAVING:
            return min(self._next_at, self._leave_by)
        return min(self._next_at, self._over_at)

    @property
    def _over_at(self) -> float:
        """When its session is over."""
        session = self._config.session_s
        return self.heard_at + (max(session, _ALONE_S) if self._seeks else session)

    def tick(self, now: float) -> None:
        """
        Do what is due.

        Args:
            now: The time.
        """
        if self.phase is Phase.GONE:
            return
        if self.phase is Phase.LEAVING:
            if now >= self._leave_by:
                self._gone(now)
                return
        elif now - self.wake_at > _LATE_S:
            # The program stood still, and has still to read what it was answered.
            session = self._config.session_s
            self.heard_at = max(self.heard_at, now - session * 2 / 3)
        if self.phase is not Phase.LEAVING and now >= self._over_at:
            # Nobody answers: the group may have gone on without this member by now. It asks as
            # who it was: if it is known, nobody waits until its former self is taken for dead.
            self.heard_at = now
            if self.phase is Phase.MEMBER:
                self._owner.expelled(now)
                self._next_at = now
        if now >= self._next_at:
            self._ask(now)

    def link_changed(self, now: float) -> None:
        """
        Ask somebody else, if the broker that is asked does not answer any more.

        Args:
            now: The time.
        """
        asked = self._asked
        if asked is not None and self._coordinator is not None and asked[0].failing:
            self._withdraw()
            self._ticket += 1
            self._coordinator = None
            self._later(now)

    # --- asking ----------------------------------------------------------------

    def _ask(self, now: float) -> None:
        self._next_at = inf
        self._ticket += 1
        ticket = self._ticket
        leaves = self.phase is Phase.LEAVING
        config = self._config
        plan = None
        if self._plan is not None and not leaves:
            generation, plan = self._plan
            self._plan = None
        else:
            generation = self.generation if self.phase is not Phase.JOINING else 0
        message = Member(
            group=self._group,
            member=self.id,
            generation=generation,
            leaves=leaves,
            instance=config.instance,
            topics=self._topics,
            patterns=self._patterns,
            strategy=config.strategy,
            session_ms=round(config.session_s * 1000),
            rebalance_ms=round(config.rebalance_s * 1000),
            owned=[] if leaves else self._owner.owned(),
            metadata=config.member_data,
            plan=plan,
            wait_ms=0 if leaves else round(self._wait_s * 1000),
            count=self._count[1] if generation and generation == self._count[0] else 0,
        )

        def told(reply: Any, _: Bytes, error: TinyMQError | None, now: float) -> None:
            if ticket != self._ticket:
                return  # a later question stands for this one
            self._asked = None
            if error is None:
                self._answered(reply, asked, now)
            else:
                self._failed(error, now)

        link = self._cluster.link(self._coordinator)
        if self._coordinator is not None and link.failing and not link.untried(now):
            # It may be gone for good, and another one look after the group already.
            self._coordinator = None
            self._later(now)
            return
        self._withdraw()
        asked = now
        self._asked = link, told
        until = now + self._wait_s + min(self._cluster.config.request_timeout_s, config.session_s)
        link.request(message.type, message.to_meta(), (), until, told, now)

    def _withdraw(self) -> None:
        """What is not on its way yet would make a member of the past, if it came."""
        asked, self._asked = self._asked, None
        if asked is not None:
            link, done = asked
            link.withdraw(done)

    def _answered(self, reply: MemberReply, asked: float, now: float) -> None:
        self._attempt = self._hops = 0
        self._seeks = False
        self.heard_at = now
        self.why = None
        if self.phase is Phase.LEAVING:
            self._gone(now)
            return
        self.phase = Phase.MEMBER
        self.generation = max(self.generation, reply.generation)
        self._count = reply.generation, reply.count
        self.state = reply.state
        self._wait_s = min(reply.interval_ms / 1000, self._config.session_s / 3, _LONGEST_S)
        self._quick = self._quick + 1 if now - asked < _CALM_S else 0
        if reply == self._last or self._quick > _QUICK:
            self._calm_until = asked + _CALM_S
        self._last = reply
        self._next_at = max(now, self._calm_until)
        if reply.members is not None:
            self._divide(reply, now)
        self._owner.given(reply, now)

    def _divide(self, reply: MemberReply, now: float) -> None:
        members = [GroupMember(*row) for row in reply.members or ()]
        generation = reply.generation

        def done(plan: list[PlanRow], now: float) -> None:
            self._plan = generation, plan
            self.say(now)

        self._owner.divide(members, done, now)

    def _failed(self, error: TinyMQError, now: float) -> None:
        self.why = error
        if isinstance(error, NotCoordinator):
            self._follow(error, now)
        elif isinstance(error, UnknownMember):
            if self.phase is Phase.LEAVING:
                self._gone(now)
            else:
                self._rejoin(now)
        elif isinstance(error, ClientError) or may_repeat(error):
            if isinstance(error, ClosedError):
                self.stop()
                return
            # It may be gone, and then another one looks after the group.
            self._coordinator = None
            self._cluster.refresh(now)
            self._later(now)
        elif self.phase is Phase.LEAVING:
            self._gone(now)
        else:
            self.stop()
            self._owner.refused(error, now)

    def _follow(self, error: NotCoordinator, now: float) -> None:
        """Ask the broker that was named."""
        named = error.data.get("broker")
        self._hops += 1
        self._seeks = True
        self._coordinator = named if type(named) is int and named >= 0 else None
        known = named in self._cluster.metadata.brokers
        if self._coordinator is None or self._hops > _HOPS:
            self._hops = 0
            self._later(now)
            return
        if known or named == self._cluster.seed.broker_id:
            self._next_at = now
            return
        ticket = self._ticket

        def learned(now: float) -> None:
            if ticket == self._ticket:
                known = named in self._cluster.metadata.brokers
                self._next_at = now
                if not known:
                    self._coordinator = None
                    self._later(now)

        learn_brokers(self._cluster, learned, now)

    def _later(self, now: float) -> None:
        self._attempt += 1
        if self._attempt == 1:
            self._next_at = now
            return
        delay = self._cluster.config.backoff.delay(self._attempt, self._cluster.chance())
        self._next_at = now + (min(delay, _SEEK_S) if self._seeks else delay)

    def _rejoin(self, now: float) -> None:
        """Begin anew, with nothing."""
        if self.phase is Phase.JOINING:
            self._later(now)
            return
        self.phase = Phase.JOINING
        self.id = uuid4().hex
        self._plan = self._last = None
        self._next_at = now
        self._owner.expelled(now)

    def _gone(self, now: float) -> None:
        left, self._left = self._left, None
        self.stop()
        if left is not None:
            left(now)
