"""
The groups that this broker coordinates: who their members are, and what each is to read.

All of it is in memory. When the broker goes, members ask another one and bring along what
they have, so nothing is lost but the history; see `tinymq.groups`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from attrs import define
from twisted.logger import Logger

from tinymq.broker.ports import Timer
from tinymq.errors import NotCoordinator, ShuttingDown, UnknownGroup, WireError
from tinymq.groups.group import Group
from tinymq.groups.membership import Membership, Poll
from tinymq.groups.places import coordinator_of
from tinymq.groups.topics import Topics
from tinymq.groups.values import Client, Now
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
#: Milliseconds between two looks at one group at least.
_GRAIN_MS: Final = 10
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
        self._moved_at = 0
        self._closed = False

    # --- life -----------------------------------------------------------------------

    def open(self) -> None:
        """Follow the MetaServer."""
        registry = self._broker.meta.registry
        self._topics = Topics(registry.topics, registry.by_name)
        self._moved_at = self.now().mono
        self._unwatch = self._broker.meta.watch(self._changed)

    def close(self) -> None:
        """Coordinate nothing any more; members ask another broker."""
        self._closed = True
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None
        for name in tuple(self._groups):
            self._drop(name, ShuttingDown("the coordinator stops; ask another broker"))

    def now(self) -> Now:
        """What time it is."""
        broker = self._broker
        return Now(int(broker.scheduler.seconds() * 1000), broker.wall())

    def _changed(self, before: Registry, after: Registry) -> None:
        if after.brokers.keys() != before.brokers.keys():
            self._moved_at = self.now().mono
            for name in tuple(self._groups):
                try:
                    self._check_place(name)
                except NotCoordinator as error:
                    self._drop(name, error)
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
                    self._arm(kept)

    def _drop(self, name: str, error: WireError) -> None:
        kept = self._groups.pop(name)
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
        return waiting

    def _made(self, info: GroupInfo, *, known: bool) -> _Kept:
        """Begin to coordinate a group, unless another request did meanwhile."""
        kept = self._groups.get(info.name)
        if kept is None:
            now = self.now()
            recent = now.mono - self._moved_at < RECENT_MS
            pause = PAUSE_MS if known and recent else 0
            group = Group(info.name, self._topics, now, pause)
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
        try:
            poll = kept.group.ask(request, client, self.now(), done)
        finally:
            self._arm(kept)
        waiting.group, waiting.poll = kept.group, poll

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
        self._arm(kept)

    # --- time -------------------------------------------------------------------------

    def _arm(self, kept: _Kept) -> None:
        """Look at a group when something is due."""
        group = kept.group
        if self._groups.get(group.name) is not kept:
            return
        due = group.due
        if group.empty_since is not None:
            forget = group.empty_since + FORGET_MS
            due = forget if due is None else min(due, forget)
        if due is None:
            self._stop(kept)
        elif kept.timer is None or due < kept.at:
            self._stop(kept)
            now = self.now().mono
            kept.at = max(due, now + _GRAIN_MS)
            kept.timer = self._broker.scheduler.callLater((kept.at - now) / 1000, self._look, kept)

    def _look(self, kept: _Kept) -> None:
        kept.timer = None
        group, now = kept.group, self.now()
        late = now.mono - kept.at
        group.tick(now, late if late > _LATE_MS else 0)
        if group.empty_since is not None and now.mono - group.empty_since >= FORGET_MS:
            self._drop(group.name, UnknownGroup(group=group.name))
        else:
            self._arm(kept)

    def _stop(self, kept: _Kept) -> None:
        timer, kept.timer = kept.timer, None
        if timer is not None and timer.active():
            timer.cancel()
