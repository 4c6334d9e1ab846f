"""
One group: its members, their sessions, and the answers to what they say.

A member says MEMBER again and again, and each request says all that it has, so the group
can be begun anew anywhere: what members bring along is taken as it is (*claims*), and what
nobody brings is given out only after a while, when all have had time to come.

The methods answer through callbacks, before they return or in a later call; `due` says when
`tick` is to be called. Nothing here knows what time it is.
"""

from __future__ import annotations

from copy import copy
from typing import Final

from tinymq.errors import (
    FencedGeneration,
    InvalidRequest,
    Overloaded,
    UnknownMember,
    WireError,
)
from tinymq.groups.division import Division
from tinymq.groups.membership import Answer, Membership, Poll, rows_of, shares_of
from tinymq.groups.patterns import Pattern
from tinymq.groups.strategies import Strategy
from tinymq.groups.topics import Topics
from tinymq.groups.values import (
    MOST_MEMBERS,
    MOST_METADATA,
    MOST_PATTERNS,
    Client,
    Now,
    Place,
)
from tinymq.limits import LATEST_MS
from tinymq.wire.messages import Member, MemberReply

#: Milliseconds that members have to come with what they have, at the most: links of those that
#: saw a broker die are dialled again after a while, and they read on meanwhile. Who has not come
#: when its session is over reads nothing any more.
CLAIM_MS: Final = 10_000
#: Milliseconds that they have at least.
LEAST_CLAIM_MS: Final = 1000
#: Milliseconds after which a member without a long poll asks again, while something moves.
HURRY_MS: Final = 500
#: Members that went, and are told so if they come back.
_MOST_PAST: Final = 1000


class Group(Division):
    """
    One group, as its coordinator has it.

    Args:
        name: Its name.
        topics: The topics that there are.
        now: What time it is.
        pause_ms: How long nothing is given out: there may be members who have not come yet.
        alone_ms: How long these may have had no coordinator.
    """

    def __init__(
        self, name: str, topics: Topics, now: Now, pause_ms: int = 0, alone_ms: int = 0
    ) -> None:
        super().__init__(topics, now.mono + pause_ms if pause_ms else None)
        self._alone_since = now.mono - alone_ms
        self.name = name
        self._born = now.mono
        #: Since when it has no members.
        self.empty_since: int | None = now.mono
        self._instances: dict[str, Membership] = {}
        self._past: dict[str, WireError] = {}

    # --- what members say ---------------------------------------------------------

    def ask(self, request: Member, client: Client, now: Now, answer: Answer) -> Poll | None:
        """
        Hear a member.

        Args:
            request: What it says.
            client: Who speaks for it.
            now: What time it is.
            answer: Told the answer, once, maybe before this returns.

        Returns:
            What waits, to be given to `hang_up` if nobody wants the answer any more.

        Raises:
            WireError: It is refused; then nothing has changed.
        """
        # Members were told where it is, and must not be refused for what another one claimed.
        if request.generation > max(LATEST_MS, self.generation):
            raise InvalidRequest("no group is in such a generation", field="e")
        member = self.members.get(request.member)
        if request.leaves:
            self._goes(member, request, now)
            self._flush()
            answer(MemberReply(generation=self.generation))
            return None
        if member is None:
            member = self._enter(request, client, now)
            self._note(request)
        elif not (member.says(request) or _restarts(request)):
            self._change(member, request, now)
        member.heard, member.client, member.absent = now, client, False
        self.generation = max(self.generation, request.generation)
        kept = member.due if _restarts(request) else {}
        self._let_go(member, kept | shares_of(request.owned), request.generation)
        refused = None
        if request.plan is not None:
            refused = self._take_plan(member, request.plan, request.generation, now)
        self._settle(now)
        former, member.poll = member.poll, None
        if former is not None:
            former.answer(self._repeated(member))
        if refused is None:
            wait = min(request.wait_ms, member.interval)
            member.poll = Poll(answer, now.mono + wait, wait > 0)
            heard = request.generation == member.told_generation
            if not (heard and request.wait_ms) or self._news(member):
                self._answer(member)
        self._flush()
        if refused is not None:
            raise refused
        return member.poll

    def hang_up(self, poll: Poll) -> None:
        """Forget a request whose connection is gone; its member has its session to come back."""
        for member in self.members.values():
            if member.poll is poll:
                member.poll = None

    def _goes(self, member: Membership | None, request: Member, now: Now) -> None:
        if member is None:
            self._note(request)
            self._settle(now)
            return
        left = UnknownMember(f"{member.label} left the group {self.name}")
        self._drop_poll(member, left)
        if member.request.instance is None:
            self._past_one(member, left)
            self._remove(member, f"{member.label} left", now)
            self._settle(now)
            return
        # Its instance may come back: what it has stays its own until its session is over.
        for place in list(member.leaving):
            self.take(member, place)
        member.absent, member.heard = True, now
        self._settle(now)

    def _enter(self, request: Member, client: Client, now: Now) -> Membership:
        past = self._past.get(request.member)
        if past is not None and (request.generation or isinstance(past, FencedGeneration)):
            raise _again(past)
        if not request.member:
            raise InvalidRequest("a member has a name of 1 to 64 characters", field="m")
        former = self._former(request)
        if len(self.members) >= MOST_MEMBERS and former is None:
            raise Overloaded(
                f"the group {self.name} has {MOST_MEMBERS} members, the most there are"
            )
        claims = request.generation > 0 and former is None
        member = self._made(request, client, now, replaces=former is not None or claims)
        self._past.pop(request.member, None)
        self.empty_since = None
        if former is not None:
            self._replace(former, member, now)
            self._claim(member, request)
            return member
        if claims and (not self._divided or self._collecting is not None):
            until = self._alone_since + min(request.session_ms, CLAIM_MS)
            self._collecting = max(self._collecting or 0, until, self._born + LEAST_CLAIM_MS)
        self.members[member.id] = member
        if request.instance is not None:
            self._instances[request.instance] = member
        self._claim(member, request)
        self._replan(now, f"{member.label} {'came back' if claims else 'joined'}")
        return member

    def _note(self, request: Member) -> None:
        """Note who came from another coordinator, or left it, while the group gathers."""
        if self._collecting is None:
            return
        if request.generation:
            self._came.add(request.member)
        if request.count:
            self._expected = max(self._expected, (request.generation, request.count))

    def _claim(self, member: Membership, request: Member) -> None:
        """Let a member that was in the group before have what it brings along."""
        if not request.generation:
            return
        for place, generation in shares_of(request.owned).items():
            topic = self._topics.by_id.get(place[0])
            if topic is not None and place[1] < topic.partitions:
                self.claim(member, place, generation)

    def _former(self, request: Member) -> Membership | None:
        """
        Find the member whose instance is begun anew.

        Raises:
            FencedGeneration: It is the other way round: the one that is here is newer.
        """
        former = self._instances.get(request.instance) if request.instance else None
        if former is not None and 0 < request.generation <= former.entered:
            raise _fenced(former.request.instance or "", former.id)
        return former

    def _made(self, request: Member, client: Client, now: Now, *, replaces: bool) -> Membership:
        """Make a member, if what it says can be."""
        patterns = self._patterns_of(request)
        self._weigh(request)
        self.strategy.admit(self.name, request.strategy, now, replaces=replaces)
        said = _wishes(request)
        entered = max(self.generation, request.generation)
        made = Membership(request.member, said, client, now, now, entered, patterns)
        made.topics = made.resolve(self._topics)
        return made

    def _weigh(self, request: Member) -> None:
        spent = sum(len(each.request.metadata) for each in self.members.values())
        if spent + len(request.metadata) > MOST_METADATA and request.metadata:
            raise Overloaded(
                f"the members of {self.name} have {MOST_METADATA} bytes of metadata together, "
                "the most there are"
            )

    def _patterns_of(self, request: Member) -> list[Pattern]:
        if len(request.patterns) > MOST_PATTERNS:
            raise InvalidRequest(f"a member has at most {MOST_PATTERNS} patterns", field="r")
        return [self._topics.pattern(each) for each in request.patterns]

    def _replace(self, former: Membership, member: Membership, now: Now) -> None:
        """Put a static member in the place of its former self: nothing moves for that."""
        instance = former.request.instance or ""
        del self.members[former.id]
        self.members[member.id] = self._instances[instance] = member
        fenced = _fenced(instance, member.id)
        self._past_one(former, fenced)
        self._drop_poll(former, fenced)
        self.hand_over(former, member, now)
        member.entered = self.generation
        self.givers.pop(former, None)
        if self._asked is not None and self._asked.member is former:
            self._asked = None
            self._replan(now, f"{instance} came again")
        elif former.topics != member.topics or not former.says(member.request):
            self._replan(now, f"{instance} came again and wants something else")
        self._change_strategy(now)

    def _change(self, member: Membership, request: Member, now: Now) -> None:
        """Have a member that wants something else than before."""
        patterns = self._patterns_of(request)
        if request.instance != member.request.instance:
            raise InvalidRequest("a member's instance stays what it was", field="i")
        if request.strategy != member.request.strategy:
            alone = len(self.members) == 1
            self.strategy.admit(self.name, request.strategy, now, replaces=alone)
        self._weigh(request)
        member.request = _wishes(request)
        member.patterns = patterns
        member.topics = member.resolve(self._topics)
        goes = not (request.topics or request.patterns)
        self._replan(now, f"{member.label} {'is leaving' if goes else 'wants something else'}")
        self._change_strategy(now)

    def _change_strategy(self, now: Now) -> None:
        if self.strategy.settle(each.request.strategy for each in self.members.values()):
            self._replan(now, f"it goes over to {self.strategy.name}")

    def _let_go(self, member: Membership, owned: dict[Place, int], known: int) -> None:
        """Take back what a member has no more, of what it knows that it had."""
        for place, generation in list(member.shares.items()):
            said = owned.get(place)
            if said is not None:
                member.shares[place] = max(generation, said)
            elif known >= generation:
                self.take(member, place)

    # --- members that go ----------------------------------------------------------

    def evict(self, member: Membership, reason: str, now: Now) -> None:
        """
        Send a member away; what it has is others' at once.

        Args:
            member: Which.
            reason: What it is told, for people.
            now: What time it is.
        """
        error = UnknownMember(f"{member.id} was sent away from {self.name}: {reason}")
        self._past_one(member, error)
        self._drop_poll(member, error)
        self._remove(member, f"{member.label} was sent away: {reason}", now)
        self._flush()

    def find(self, name: str) -> Membership:
        """
        Find a member.

        Args:
            name: Its id, or its instance.

        Raises:
            UnknownMember: There is none.
        """
        found = self.members.get(name) or self._instances.get(name)
        if found is None:
            raise UnknownMember(f"{self.name} has no member {name[:100]!a}", member=name[:100])
        return found

    def close(self, error: WireError) -> None:
        """
        End everything: another broker looks after the group from now on, or nobody does.

        Args:
            error: What those who wait are told.
        """
        for member in self.members.values():
            self._drop_poll(member, error)
        self.members.clear()
        self._instances.clear()
        self.owner.clear()
        self.dirty.clear()

    def _remove(self, member: Membership, why: str, now: Now) -> None:
        del self.members[member.id]
        for place in list(member.shares):
            self.take(member, place)
        self.givers.pop(member, None)
        self.dirty.pop(member, None)
        if member.request.instance is not None:
            self._instances.pop(member.request.instance, None)
        if self._asked is not None and self._asked.member is member:
            self._asked = None
        self.strategy.left(now)
        if not self.members:
            self.empty_since, self.strategy = now.mono, Strategy()
        self._replan(now, why)
        self._change_strategy(now)

    def _drop_poll(self, member: Membership, error: WireError) -> None:
        poll, member.poll = member.poll, None
        if poll is not None:
            poll.answer(_again(error))

    def _past_one(self, member: Membership, error: WireError) -> None:
        self._past[member.id] = error
        if len(self._past) > _MOST_PAST:
            del self._past[next(iter(self._past))]

    # --- time ---------------------------------------------------------------------

    @property
    def due(self) -> int | None:
        """When `tick` is to be called, on the monotonic clock; None if never."""
        times = [member.due_at for member in self.members.values()]
        if (soon := self.soon) is not None:
            times.append(soon)
        return min(times, default=None)

    def tick(self, now: Now, late: int = 0) -> None:
        """
        Do what is due.

        Args:
            now: What time it is.
            late: Milliseconds for which nobody could be heard, since the process stood still.
        """
        for member in list(self.members.values()):
            if late:
                member.heard = member.heard._replace(mono=member.heard.mono + late)
            silent = now.mono - member.heard.mono
            if silent >= member.session:
                self._drop_poll(member, UnknownMember(f"{member.id} was silent for too long"))
                self._remove(member, f"{member.label} was silent for {silent / 1000:.0f} s", now)
        self._take_overdue(now)
        if self._collecting is not None and now.mono >= self._collecting:
            self._collecting = None
            self._came.clear()
        self._settle(now)
        for member in list(self.members.values()):
            if member.poll is not None and now.mono >= member.poll.until:
                self._answer(member)
        self._flush()

    def follow(self, changed: frozenset[str], now: Now) -> None:
        """
        Have the topics as they are now.

        Args:
            changed: The names of those that came, went or changed.
            now: What time it is.
        """
        concerned = [
            each
            for each in self.members.values()
            if each.patterns or not changed.isdisjoint(each.request.topics)
        ]
        if not concerned:
            return
        for member in concerned:
            member.topics = member.resolve(self._topics)
        if self.drop_missing(self._topics.by_id):
            self.rise(now)
        read, _ = self._readable()
        if read != self.read and self._replan_at is None:
            names = sorted(changed)
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            self._replan(now, f"topics changed: {', '.join(names[:3])}{more}")
        self._settle(now)
        self._flush()

    # --- answers ------------------------------------------------------------------

    @property
    def _count(self) -> int:
        """How many members there are; 0 as long as some may not have come yet."""
        return len(self.members) if self._collecting is None else 0

    def _news(self, member: Membership) -> bool:
        asked = self._asked
        if asked is not None and asked.member is member and not asked.told:
            return True
        return member.told != member.due

    def _answer(self, member: Membership) -> None:
        """Answer the request that waits."""
        poll, member.poll = member.poll, None
        if poll is None:
            return
        member.told, member.told_generation = member.due, self.generation
        hurry = self.moving and not poll.waits
        rows = None
        if self._asked is not None and self._asked.member is member:
            rows, self._asked.told = self._plan_rows(), True
        poll.answer(
            MemberReply(
                generation=self.generation,
                assigned=rows_of(member.told),
                state="moving" if self.moving else "stable",
                interval_ms=min(member.interval, HURRY_MS) if hurry else member.interval,
                members=rows,
                count=self._count,
            )
        )

    def _repeated(self, member: Membership) -> MemberReply:
        """What a member was told before, for a request that is out of date."""
        return MemberReply(
            generation=max(member.told_generation, 0),
            assigned=rows_of(member.told or {}),
            state="moving",
            interval_ms=member.interval,
            count=self._count,
        )

    def _flush(self) -> None:
        """Answer those who wait and for whom there is something new."""
        dirty, self.dirty = self.dirty, {}
        for member in dirty:
            if member.poll is not None and self._news(member):
                self._answer(member)


def _wishes(request: Member) -> Member:
    """Keep what a request says of its member, not what it says of the moment."""
    kept = copy(request)
    kept.owned, kept.plan, kept.count = [], None, 0
    return kept


def _restarts(request: Member) -> bool:
    """Whether a static member is about to go: it wants nothing more, and its place is kept."""
    return request.instance is not None and not (request.topics or request.patterns)


def _fenced(instance: str, newer: str) -> FencedGeneration:
    return FencedGeneration(
        f"the instance {instance} was begun anew as {newer}; this one is to stop",
        instance=instance,
        member=newer,
    )


def _again(error: WireError) -> WireError:
    """Copy an error that is kept, which must not gather the frames of all who hear it."""
    return type(error)(error.text, **error.data)
