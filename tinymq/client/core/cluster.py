"""
All links of one client, and what it knows about topics.

Faces own the sockets and the clock: they implement `Network`, feed the links,
call `tick` when `wake_at` has come, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any, Final, Protocol

from tinymq.client.core.address import Address
from tinymq.client.core.config import ClientConfig
from tinymq.client.core.connection import Done
from tinymq.client.core.link import Link, Network
from tinymq.client.core.metadata import MetadataCache, TopicInfo
from tinymq.errors import (
    ClosedError,
    DeadlineExceeded,
    TinyMQError,
    UnknownTopic,
)
from tinymq.limits import Limits
from tinymq.wire.frames import Bytes
from tinymq.wire.messages import Message, Metadata, MetadataReply

#: Most names in one METADATA request.
_MOST_NAMES: Final = 100

#: Told what is known about a topic, or why nothing is.
Found = Callable[[TopicInfo | None, TinyMQError | None, float], None]


class Part(Protocol):
    """A producer or consumer as the cluster sees it."""

    @property
    def wake_at(self) -> float:
        """When `tick` has something to do."""

    def tick(self, now: float) -> None:
        """Do what is due."""

    def link_changed(self, now: float) -> None:
        """A link came up, went down or takes more."""

    def topics_changed(self, now: float) -> None:
        """The metadata was read anew."""

    def cluster_closed(self, now: float) -> None:
        """Nothing works any more; end every pending call."""


class _Want:
    """One caller that waits for a topic."""

    __slots__ = ("create", "deadline", "found", "fresh")

    def __init__(self, create: bool, fresh: bool, deadline: float, found: Found) -> None:
        self.create = create
        self.fresh = fresh
        self.deadline = deadline
        self.found = found


class _Again:
    """A request that is repeated until its deadline."""

    __slots__ = ("at", "attempt", "broker", "deadline", "done", "message")

    def __init__(self, message: Message, broker: int | None, deadline: float, done: Done) -> None:
        self.message = message
        self.broker = broker
        self.deadline = deadline
        self.done = done
        self.attempt = 0
        self.at = inf


class Cluster:
    """
    The brokers as one client sees them.

    Args:
        addresses: Where to start.
        config: Settings of the client.
        network: Connects.
        chance: Gives random numbers from 0 to 1, for back-off.

    Attributes:
        metadata: What is known about topics.
        seed: The link to whichever broker of `addresses` answers.
        closed: Whether `close` was called.
        report: Logs an error of the caller's own code.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        config: ClientConfig,
        network: Network,
        chance: Callable[[], float],
    ) -> None:
        self.config = config
        self.chance = chance
        self.metadata = MetadataCache()
        self.closed = False
        self.report = network.report
        self._network = network
        self._parts: list[Part] = []
        self._others: dict[int, Link] = {}
        self._again: set[_Again] = set()
        self._wanted: dict[str, list[_Want]] = {}
        self._asking = False
        self._ask_wait = 0.0
        self._ask_failures = 0
        self._cursor = 0
        self._changed = False
        self._why: TinyMQError | None = None
        self._refresh_at = inf
        self.seed = self._link(addresses)
        self.seed.patient = config.wait_for_broker

    @property
    def limits(self) -> Limits:
        """The limits that the seed broker told."""
        return self.seed.limits

    @property
    def links(self) -> list[Link]:
        """Every link."""
        return [self.seed, *self._others.values()]

    def add(self, part: Part) -> None:
        """
        Call a producer or consumer on ticks and changes.

        Args:
            part: The producer or consumer.
        """
        self._parts.append(part)

    def remove(self, part: Part) -> None:
        """
        Stop calling it.

        Args:
            part: From `add`.
        """
        if part in self._parts:
            self._parts.remove(part)

    def link(self, broker: int | None) -> Link:
        """
        Find or make the link to a broker.

        Args:
            broker: Its number; None means any.
        """
        seed = self.seed
        if broker is None or broker == seed.broker_id:
            return seed
        known = self._others.get(broker)
        place = self.metadata.brokers.get(broker)
        if place is None:
            return known or seed
        if known is None:
            known = self._others[broker] = self._link([place])
        known.addresses = [place]
        return known

    # --- requests --------------------------------------------------------------

    def ask(
        self,
        message: Message,
        deadline: float,
        done: Done,
        now: float,
        *,
        broker: int | None = None,
    ) -> None:
        """
        Ask, and ask again after every failure that may pass, until the deadline.

        Only for requests that may be repeated without harm.

        Args:
            message: The request.
            deadline: When to give up.
            done: Told how it ended.
            now: The time.
            broker: Whom to ask; None means any.
        """
        if self.closed:
            done(None, b"", ClosedError("the client was closed"), now)
            return
        self._try(_Again(message, broker, deadline, done), now)

    def ask_once(self, message: Message, deadline: float, done: Done, now: float) -> None:
        """
        Ask, and report a lost answer as lost.

        Args:
            message: The request.
            deadline: When to give up.
            done: Told how it ended.
            now: The time.
        """
        self.seed.request(message.type, message.to_meta(), (), deadline, done, now)

    def _try(self, again: _Again, now: float) -> None:
        again.at = inf
        until = min(again.deadline, now + self.config.request_timeout_s)

        def answered(reply: Any, payload: Bytes, error: TinyMQError | None, now: float) -> None:
            if error is None or not self._may_repeat(error) or self.closed:
                again.done(reply, payload, error, now)
                return
            again.attempt += 1
            again.at = now + self._delay(again.attempt)
            if again.at >= again.deadline:
                again.done(None, b"", error, now)
                return
            self._again.add(again)

        link = self.link(again.broker)
        link.request(again.message.type, again.message.to_meta(), (), until, answered, now)

    def _delay(self, attempt: int) -> float:
        return self.config.backoff.delay(attempt, self.chance())

    @staticmethod
    def _may_repeat(error: TinyMQError) -> bool:
        return isinstance(error, DeadlineExceeded) or bool(getattr(error, "retriable", False))

    # --- topics ----------------------------------------------------------------

    def topic(
        self,
        name: str,
        deadline: float,
        found: Found,
        now: float,
        *,
        create: bool = False,
        fresh: bool = False,
    ) -> None:
        """
        Look up a topic, from the cache or by asking.

        Args:
            name: Its name.
            deadline: When to give up.
            found: Told what is known.
            now: The time.
            create: Make it where there is none.
            fresh: Ask in any case.
        """
        known = None if fresh else self.metadata.get(name)
        if known is not None:
            found(known, None, now)
            return
        if self.closed:
            found(None, ClosedError("the client was closed"), now)
            return
        self._wanted.setdefault(name, []).append(_Want(create, fresh, deadline, found))
        self._ask_metadata(now)

    def refresh(self, now: float) -> None:
        """
        Ask for every known topic soon, because something did not fit.

        Args:
            now: The time.
        """
        self._refresh_at = min(self._refresh_at, now)

    def _ask_metadata(self, now: float) -> None:
        if self._asking or self.closed or now < self._ask_wait:
            return
        names = list(self._wanted)[:_MOST_NAMES]
        create = bool(names) and all(want.create for want in self._wanted[names[0]])
        if names:  # creating and looking up are asked for apart
            names = [name for name in names if self._creates(name) is create]
        elif now >= self._refresh_at:
            names = self.metadata.names[self._cursor : self._cursor + _MOST_NAMES]
            self._cursor += len(names)
            if self._cursor >= len(self.metadata):
                self._cursor = 0
                self._refresh_at = now + self.config.metadata_age_s
            if not names:
                return
        else:
            return
        self._asking = True
        until = now + self.config.request_timeout_s
        deadlines = [want.deadline for name in names for want in self._wanted.get(name, ())]
        message = Metadata(names=names, create=create)

        def told(reply: Any, _payload: Bytes, error: TinyMQError | None, now: float) -> None:
            self._told(names, reply, error, now)

        until = min([until, *deadlines]) if deadlines else until
        self.seed.request(message.type, message.to_meta(), (), until, told, now)

    def _creates(self, name: str) -> bool:
        return all(want.create for want in self._wanted[name])

    def _told(self, names: list[str], reply: Any, error: TinyMQError | None, now: float) -> None:
        self._asking = False
        found: dict[str, TopicInfo | TinyMQError] = {}
        if isinstance(reply, MetadataReply):
            found = self.metadata.apply(reply)
            self._why = None
            for name in names:
                if name not in found:
                    self.metadata.drop(name)
                    found[name] = UnknownTopic(f"there is no topic {name}")
        elif error is not None:
            found = dict.fromkeys(names, error)
        again = False
        for name in names:
            again |= self._settle(name, found[name], now)
        if again or error is not None:
            self._ask_failures += 1
            self._ask_wait = now + self._delay(self._ask_failures)
            if error is not None:
                self.refresh(now)  # what is known may be old; it is used all the same
        else:
            self._ask_failures = 0
            self._ask_wait = 0.0
            if self._refresh_at == inf:
                self._refresh_at = now + self.config.metadata_age_s
        if error is None:
            self._changed = True

    def _settle(self, name: str, answer: TopicInfo | TinyMQError, now: float) -> bool:
        """Tell those who wait for a topic; say whether some go on waiting."""
        waiting = self._wanted.pop(name, [])
        if isinstance(answer, TopicInfo):
            for want in waiting:
                want.found(answer, None, now)
            return False
        if self._may_repeat(answer) and not self.closed:
            # Overdue ones are told by `tick`.
            if waiting:
                self._wanted.setdefault(name, []).extend(waiting)
                self._why = answer
            return bool(waiting)
        for want in waiting:
            want.found(None, answer, now)
        return False

    # --- time and end ----------------------------------------------------------

    @property
    def wake_at(self) -> float:
        """When `tick` has something to do."""
        at = self._metadata_at
        for link in self.links:
            at = min(at, link.wake_at)
        for again in self._again:
            at = min(at, again.at, again.deadline)
        for part in self._parts:
            at = min(at, part.wake_at)
        return at

    @property
    def _metadata_at(self) -> float:
        if self._changed:
            return -inf
        if self.closed:
            return inf
        at = min((one.deadline for many in self._wanted.values() for one in many), default=inf)
        if self._asking:
            return at
        ask = -inf if self._wanted else self._refresh_at
        return min(at, max(ask, self._ask_wait))

    def tick(self, now: float) -> None:
        """
        Do what is due, in links, metadata, producers and consumers.

        Args:
            now: The time.
        """
        for link in self.links:
            link.tick(now)
        for again in [one for one in self._again if one.at <= now]:
            self._again.discard(again)
            self._try(again, now)
        self._expire_wants(now)
        self._ask_metadata(now)
        if self._changed:
            self._changed = False
            for part in tuple(self._parts):
                part.topics_changed(now)
        for part in tuple(self._parts):
            if part.wake_at <= now:
                part.tick(now)

    def close(self, now: float) -> None:
        """
        End everything; every pending call is told `ClosedError`.

        Args:
            now: The time.
        """
        if self.closed:
            return
        self.closed = True
        self._changed = False
        for link in self.links:
            link.close(now)
        error = ClosedError("the client was closed")
        again, self._again = self._again, set()
        for one in again:
            one.done(None, b"", error, now)
        wanted, self._wanted = self._wanted, {}
        for want in [one for many in wanted.values() for one in many]:
            want.found(None, error, now)
        parts, self._parts = self._parts, []
        for part in parts:
            part.cluster_closed(now)

    def _expire_wants(self, now: float) -> None:
        for name in list(self._wanted):
            wants = self._wanted[name]
            overdue = [want for want in wants if want.deadline <= now]
            if not overdue:
                continue
            left = [want for want in wants if want.deadline > now]
            if left:
                self._wanted[name] = left
            else:
                del self._wanted[name]
            error = self._why or DeadlineExceeded(f"nothing was heard about topic {name} in time")
            for want in overdue:
                want.found(None, error, now)

    def _link(self, addresses: Sequence[Address]) -> Link:
        link = Link(addresses, self.config, self._network, self.chance)
        link.watchers.append(self._link_changed)
        return link

    def _link_changed(self, now: float) -> None:
        for part in tuple(self._parts):
            part.link_changed(now)
