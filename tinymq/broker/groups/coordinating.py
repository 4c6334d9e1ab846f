"""
The groups that this broker coordinates: who their members are, and what each is to read.

All of it is in memory. When the broker goes, members ask another one and bring along what
they have, so nothing is lost but the history; see `tinymq.groups`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from attrs import define
from twisted.logger import Logger

from tinymq.broker.ports import Timer
from tinymq.errors import NotCoordinator, Overloaded, ShuttingDown, UnknownGroup, WireError
from tinymq.groups.group import Group
from tinymq.groups.membership import Membership, Poll
from tinymq.groups.patterns import Pattern
from tinymq.groups.places import coordinator_of
from tinymq.groups.topics import Topics
from tinymq.groups.values import MOST_PATTERNS, Client, Now
from tinymq.meta.membership import LOST_SECONDS
from tinymq.names import valid_name
from tinymq.wire.messages import Member, MemberReply

if TYPE_CHECKING:
    from tinymq.broker.broker import Broker
    from tinymq.meta.registry import GroupInfo, Registry

#: Milliseconds after a change among the brokers, and after the start, in which members may
#: be on their way here from another coordinator.
RECENT_MS: Final = 10_000
#: Milliseconds that a group which was there before then waits for them.
PAUSE_MS: Final = 1000
#: Milliseconds for which a group without members is remembered.
FORGET_MS: Final = 60_000
#: Bytes that members of all groups take, about: some 30 000 of them.
MOST_WEIGHT: Final = 64 * 1024 * 1024
#: Names of topics that are looked at for patterns in one turn; there may be ten thousand.
AT_ONCE: Final = 100
#: Milliseconds between two looks at one group at least, and at one with many members.
_GRAIN_MS: Final = 10
_COARSE_MS: Final = 100
_MANY: Final = 100
#: So many milliseconds late, a look says nothing of members: the process stood still.
_LATE_MS: Final = 1000


@define(eq=False)
class Waiting:
    """
    A request of a member that is not answered yet.

    Attributes:
        gone: Nobody wants the answer any more.
    """

    group: Group | None = None
    poll: Poll | None = None
    gone: bool = False

    def cancel(self) -> None:
        """Want the answer no more; the member has its session to come back."""
        self.gone = True
        if self.group is not None and self.poll is not None:
            self.group.hang_up(self.poll)
        self.group = self.poll = None


@define(eq=False)
class _Kept:
    """A group, and when it is looked at next."""

    group: Group
    created_ms: int
    members: int = 0
    weight: int = 0
    timer: Timer | None = None
    at: int = 0


class Coordinating:
    """
    The groups that are coordinated here.

    Args:
        broker: The broker.
    """

    _log = Logger()

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._groups: dict[str, _Kept] = {}
        self._topics = Topics({}, {})
        self._unwatch: Callable[[], None] | None = None
        #: Looking through topics goes on with these.
        self._turns: dict[Iterator[None], Timer] = {}
        self._weight = 0
        self._moved_at = 0
        #: Since when members may have been without the coordinator that they had.
        self._alone_at = 0
        self._closed = False

    # --- life -----------------------------------------------------------------------

    def open(self) -> None:
        """Follow the MetaServer."""
        registry = self._broker.meta.registry
        self._topics = Topics(registry.topics, registry.by_name)
        self._moved_at = self._alone_at = self.now().mono
        self._unwatch = self._broker.meta.watch(self._changed)

    def close(self) -> None:
        """Coordinate nothing any more; members ask another broker."""
        self._closed = True
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None
        for timer in self._turns.values():
            timer.cancel()
        self._turns.clear()
        for name in tuple(self._groups):
            self._drop(name, ShuttingDown("the coordinator stops; ask another broker"))

    def now(self) -> Now:
        """What time it is."""
        broker = self._broker
        return Now(int(broker.scheduler.seconds() * 1000), broker.wall())

    def _changed(self, before: Registry, after: Registry) -> None:
        if after.brokers.keys() != before.brokers.keys():
            self._move(gone=bool(before.brokers.keys() - after.brokers.keys()))
        if after.groups is not before.groups:
            for name, kept in tuple(self._groups.items()):
                there = after.groups.get(name)
                if there is None or there.created_ms != kept.created_ms:
                    self._drop(name, UnknownGroup(f"the group {name} was deleted", group=name))
        if after.topics is not before.topics:
            changed = self._topics.follow(after.topics, after.by_name, after.touched)
            if changed:
                for kept in tuple(self._groups.values()):
                    kept.group.follow(changed, self.now())
                    self._arm(kept, kept.group.soon)

    def _move(self, *, gone: bool) -> None:
        """Let go of the groups that others coordinate now; one that is gone was lost before."""
        self._moved_at = self.now().mono
        self._alone_at = self._moved_at - (round(LOST_SECONDS * 1000) if gone else 0)
        for name in tuple(self._groups):
            try:
                self._check_place(name)
            except NotCoordinator as error:
                self._drop(name, error)

    def _drop(self, name: str, error: WireError) -> None:
        kept = self._groups.pop(name)
        self._weigh(kept, 0, 0)
        self._stop(kept)
        kept.group.close(error)

    # --- members --------------------------------------------------------------------

    def member(
        self, request: Member, client: Client, done: Callable[[MemberReply | WireError], None]
    ) -> Waiting:
        """
        Hear a member of a group.

        Args:
            request: What it says.
            client: Who speaks for it.
            done: Told the answer, once, maybe before this returns.

        Returns:
            What takes the request back.

        Raises:
            NotCoordinator: Another broker looks after the group; the data say which.
            WireError: It is refused.
        """
        waiting = Waiting()
        self._check_place(valid_name(request.group))
        patterns = [self._topics.begun(each) for each in request.patterns[:MOST_PATTERNS]]
        if sum(len(each.pending) for each in patterns) > AT_ONCE:
            self._turn(self._look_through(patterns, request, client, done, waiting))
        else:
            self._enter(request, client, done, waiting)
        return waiting

    def _turn(self, steps: Iterator[None]) -> None:
        """Take one step now, and each other one in a turn of its own."""
        self._turns.pop(steps, None)
        if next(steps, steps) is not steps:
            self._turns[steps] = self._broker.scheduler.callLater(0, self._turn, steps)

    def _look_through(
        self,
        patterns: list[Pattern],
        request: Member,
        client: Client,
        done: Callable[[MemberReply | WireError], None],
        waiting: Waiting,
    ) -> Iterator[None]:
        """Look which topics patterns mean, and then hear the member."""
        for pattern in patterns:
            while pattern.pending:
                pattern.step()
                yield
        if not waiting.gone:
            try:
                self._check_place(request.group)
                self._enter(request, client, done, waiting)
            except WireError as error:
                done(error.with_traceback(None))

    def _enter(
        self,
        request: Member,
        client: Client,
        done: Callable[[MemberReply | WireError], None],
        waiting: Waiting,
    ) -> None:
        kept = self._groups.get(request.group)
        if kept is not None:
            self._ask(kept, request, client, done, waiting)
        elif request.leaves:
            done(MemberReply(generation=request.generation))
        else:
            known = request.group in self._broker.meta.registry.groups

            def there(found: GroupInfo | WireError) -> None:
                if waiting.gone:
                    return
                if isinstance(found, WireError):
                    done(found)
                    return
                try:
                    self._check_place(request.group)
                    self._ask(self._made(found, known=known), request, client, done, waiting)
                except WireError as error:
                    done(error.with_traceback(None))

            self._broker.meta.ensure_group(request.group, there)

    def _made(self, info: GroupInfo, *, known: bool) -> _Kept:
        """Begin to coordinate a group, unless another request did meanwhile."""
        kept = self._groups.get(info.name)
        if kept is None:
            now = self.now()
            recent = now.mono - self._moved_at < RECENT_MS
            pause = PAUSE_MS if known and recent else 0
            alone = now.mono - self._alone_at if pause else 0
            group = Group(info.name, self._topics, now, pause, alone)
            kept = self._groups[info.name] = _Kept(group, info.created_ms)
        return kept

    def _ask(
        self,
        kept: _Kept,
        request: Member,
        client: Client,
        done: Callable[[MemberReply | WireError], None],
        waiting: Waiting,
    ) -> None:
        group = kept.group
        if self._weight > MOST_WEIGHT and request.member not in group.members:
            raise Overloaded(f"{self._broker.name} has as many members of groups as it can have")
        try:
            poll = group.ask(request, client, self.now(), done)
            waiting.group, waiting.poll = group, poll
        finally:
            # Of the others nothing is due earlier than before.
            member = group.members.get(request.member)
            self._arm(kept, group.soon, None if member is None else member.due_at)

    def _check_place(self, name: str) -> None:
        """
        Look whether this broker coordinates a group.

        Raises:
            NotCoordinator: It does not.
            ShuttingDown: It does not any more.
        """
        if self._closed:
            raise ShuttingDown("the coordinator stops; ask another broker")
        broker = self._broker
        place = coordinator_of(name, broker.meta.registry.brokers)
        if place != broker.id:
            raise NotCoordinator(
                f"the group {name} is looked after by broker {place}, not by {broker.id}"
                if place >= 0
                else f"no broker looks after the group {name} yet; ask again",
                broker=place,
            )

    # --- what is known ----------------------------------------------------------------

    def group(self, name: str) -> Group | None:
        """
        Return a group that is coordinated here; None if it has had no members lately.

        Args:
            name: Its name.

        Raises:
            NotCoordinator: Another broker looks after it.
        """
        self._check_place(name)
        kept = self._groups.get(name)
        return None if kept is None else kept.group

    def groups(self) -> list[Group]:
        """Return all groups that are coordinated here, in order of their names."""
        return [kept.group for _, kept in sorted(self._groups.items())]

    def evict(self, name: str, member: Membership, reason: str) -> None:
        """
        Send a member away; what it reads is others' at once.

        Args:
            name: The group.
            member: Which.
            reason: What it is told, for people.
        """
        kept = self._groups[name]
        kept.group.evict(member, reason, self.now())
        self._arm(kept, kept.group.soon)

    # --- time -------------------------------------------------------------------------

    def _arm(self, kept: _Kept, *times: int | None) -> None:
        """Look at a group when something is due, at one of some times at the latest."""
        group = kept.group
        if self._groups.get(group.name) is not kept:
            return
        if len(group.members) != kept.members:
            self._weigh(
                kept, len(group.members), sum(each.weight for each in group.members.values())
            )
        dues = [each for each in times if each is not None]
        if group.empty_since is not None:
            dues.append(group.empty_since + FORGET_MS)
        if dues and (kept.timer is None or min(dues) < kept.at):
            self._stop(kept)
            now = self.now().mono
            grain = _GRAIN_MS if len(group.members) <= _MANY else _COARSE_MS
            kept.at = max(min(dues), now + grain)
            kept.timer = self._broker.scheduler.callLater((kept.at - now) / 1000, self._look, kept)

    def _look(self, kept: _Kept) -> None:
        kept.timer = None
        group, now = kept.group, self.now()
        late = now.mono - kept.at
        group.tick(now, late if late > _LATE_MS else 0)
        if group.empty_since is not None and now.mono - group.empty_since >= FORGET_MS:
            self._drop(group.name, UnknownGroup(group=group.name))
        else:
            self._arm(kept, group.due)

    def _weigh(self, kept: _Kept, members: int, weight: int) -> None:
        self._weight += weight - kept.weight
        kept.members, kept.weight = members, weight

    def _stop(self, kept: _Kept) -> None:
        timer, kept.timer = kept.timer, None
        if timer is not None and timer.active():
            timer.cancel()
