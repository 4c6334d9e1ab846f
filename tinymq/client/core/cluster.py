"""
All links of one client, and what it knows about topics.

Faces own the sockets and the clock: they implement `Network`, feed the links,
call `tick` when `wake_at` has come, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from math import inf
from typing import Any

from tinymq.client.core.address import Address
from tinymq.client.core.config import ClientConfig
from tinymq.client.core.connection import Done
from tinymq.client.core.link import Link, Phase
from tinymq.client.core.lookups import Found, Lookups, may_repeat
from tinymq.client.core.metadata import MetadataCache
from tinymq.client.core.parts import Part
from tinymq.client.core.ports import Network
from tinymq.errors import BrokerSilent, ClientError, ClosedError, DeadlineExceeded, TinyMQError
from tinymq.limits import Limits
from tinymq.wire.frames import Bytes
from tinymq.wire.messages import Message


class _Again:
    """A request that is repeated until its deadline."""

    __slots__ = ("at", "attempt", "broker", "deadline", "done", "hold", "message", "why")

    def __init__(
        self, message: Message, broker: int | None, deadline: float, hold: float, done: Done
    ) -> None:
        self.message = message
        self.broker = broker
        self.deadline = deadline
        self.hold = hold
        self.done = done
        self.attempt = 0
        self.at = inf
        #: What the last attempt came to: says more than that time is up.
        self.why: TinyMQError | None = None


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
        seed: The link to whichever broker of `addresses` answers, or else one
            of those that the metadata named.
        closed: Whether `close` was called.
        report: Logs an error of the caller's own code.
        numbers: Numbers of subscriptions.
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
        self.numbers = count(1)
        self._network = network
        self._parts: list[Part] = []
        self._others: dict[int, Link] = {}
        self._again: set[_Again] = set()
        self.seed = self._link(addresses)
        self.seed.patient = config.wait_for_broker
        self._lookups = Lookups(self._any, self.metadata, config, self._delay)
        self._cluster_id: bytes | None = None

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
        if broker is None:
            return self._any()
        known = self._others.get(broker)
        if known is not None:
            return known
        place = self.metadata.brokers.get(broker)
        if broker == self.seed.broker_id or place is None:
            return self.seed
        made = self._others[broker] = self._link([place])
        made.expected = broker
        return made

    def reach(self, topic: str, partition: int) -> Link | None:
        """
        Find the link to the leader of a partition.

        Args:
            topic: Name of the topic.
            partition: Number of the partition.

        Returns:
            The link; one to any broker when nothing is known; None when it is
            known that no live broker leads the partition.
        """
        leader = self.metadata.leader(topic, partition)
        if leader is None:
            return self._any()
        return self.link(leader) if leader >= 0 else None

    def trouble(self, topic: str, partition: int) -> TinyMQError | None:
        """
        Say why nothing is heard of a partition, if its broker is away.

        Args:
            topic: Name of the topic.
            partition: Number of the partition.
        """
        link = self.reach(topic, partition)
        if link is None:
            return self.metadata.leaderless(topic, partition)
        error = link.trouble
        if isinstance(error, ClientError):
            return self.metadata.unreachable(topic, partition, error)
        return error

    @property
    def failing(self) -> frozenset[int]:
        """The brokers that were tried in vain since they last answered."""
        found = {broker for broker, link in self._others.items() if link.failing}
        seed = self.seed.broker_id
        if seed is not None and seed not in self._others and self.seed.failing:
            found.add(seed)
        return frozenset(found)

    @property
    def near(self) -> frozenset[int]:
        """The brokers of the client's zone."""
        zone = self.config.zone
        if not zone:
            return frozenset()
        return frozenset(number for number, name in self.metadata.zones.items() if name == zone)

    def _any(self) -> Link:
        """The seed, unless it is away and another broker is there."""
        seed = self.seed
        if not seed.failing:
            return seed
        others = self._others.values()
        up = (link for link in others if link.phase is Phase.UP and not link.failing)
        return next(up, seed)

    def say(self, text: str) -> None:
        """
        Write a line for people into the log.

        Args:
            text: The line.
        """
        self._network.say(text)

    # --- requests --------------------------------------------------------------

    def ask(
        self,
        message: Message,
        deadline: float,
        done: Done,
        now: float,
        *,
        broker: int | None = None,
        hold: float = 0.0,
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
            hold: Seconds for which a broker may hold its answer.
        """
        if self.closed:
            done(None, b"", ClosedError("the client was closed"), now)
            return
        self._try(_Again(message, broker, deadline, hold, done), now)

    def ask_once(self, message: Message, deadline: float, done: Done, now: float) -> None:
        """
        Ask, and report a lost answer as lost.

        Args:
            message: The request.
            deadline: When to give up.
            done: Told how it ended.
            now: The time.
        """
        self._any().request(message.type, message.to_meta(), (), deadline, done, now)

    def _try(self, again: _Again, now: float) -> None:
        again.at = inf
        until = min(again.deadline, now + self.config.request_timeout_s + again.hold)

        def answered(reply: Any, payload: Bytes, error: TinyMQError | None, now: float) -> None:
            # Who says that a broker is silent has waited for it already.
            final = isinstance(error, BrokerSilent)
            if error is None or final or not may_repeat(error) or self.closed:
                again.done(reply, payload, error, now)
                return
            if again.why is not None and isinstance(error, DeadlineExceeded):
                error = again.why
            again.why = error
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
        if self.closed and (fresh or self.metadata.get(name) is None):
            found(None, ClosedError("the client was closed"), now)
            return
        self._lookups.topic(name, deadline, found, now, create=create, fresh=fresh)

    def refresh(self, now: float) -> None:
        """
        Ask for every known topic soon, because something did not fit.

        Args:
            now: The time.
        """
        self._lookups.refresh(now)

    def heard(self, revision: int, now: float) -> None:
        """
        Note that the metadata have this revision somewhere; ask soon if that is newer.

        Args:
            revision: The revision.
            now: The time.
        """
        self._lookups.heard(revision, now)

    # --- time and end ----------------------------------------------------------

    @property
    def wake_at(self) -> float:
        """When `tick` has something to do."""
        at = self._lookups.wake_at
        for link in self.links:
            at = min(at, link.wake_at)
        for again in self._again:
            at = min(at, again.at, again.deadline)
        for part in self._parts:
            at = min(at, part.wake_at)
        return at

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
        if self._lookups.tick(now):
            self._move_links(now)
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
        for link in self.links:
            link.close(now)
        error = ClosedError("the client was closed")
        again, self._again = self._again, set()
        for one in again:
            one.done(None, b"", error, now)
        self._lookups.close(error, now)
        parts, self._parts = self._parts, []
        for part in parts:
            part.cluster_closed(now)

    def _link(self, addresses: Sequence[Address]) -> Link:
        link = Link(addresses, self.config, self._network, self.chance)
        link.watchers.append(self._link_changed)
        return link

    def _move_links(self, now: float) -> None:
        """Follow brokers that have another address now."""
        places = self.metadata.brokers
        seed = self.seed
        # Its own broker was reached where the user said, perhaps through a relay.
        seed.spares = [
            place
            for broker, place in self.metadata.places.items()
            if broker != seed.broker_id and place not in seed.addresses
        ]
        for broker, link in self._others.items():
            if broker in places:
                link.move([places[broker]], now)
            link.wanted = broker in places and bool(self._parts)
        seed.wanted = len(places) > 1 and seed.broker_id in places and bool(self._parts)

    def _link_changed(self, link: Link, now: float) -> None:
        if link.failing:
            self._lookups.refresh(now)
        elif link.cluster_id is not None and link.cluster_id != self._cluster_id:
            if self._cluster_id is not None:
                self.metadata.forget_revision()
                self._lookups.refresh(now)
            self._cluster_id = link.cluster_id
        for part in tuple(self._parts):
            part.link_changed(now)
