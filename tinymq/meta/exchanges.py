"""
The MetaServer's operations on exchanges: which topics are some, and where they lead.

Messages are copied by the brokers of the exchange; here is only what they go by.

A message never comes back to where it was: a binding, or a dead-letter target, that would
close a circle is refused. What is looked at for that and what is written is one
transaction, so that no two clients can close one together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from tinymq.config import DEFAULT_CONFIG, Config
from tinymq.errors import (
    InvalidName,
    InvalidRequest,
    Overloaded,
    TopicExists,
    UnknownBinding,
    UnknownTopic,
)
from tinymq.meta.channels import Channels
from tinymq.meta.entries import Compare, Delete, Put, Write, prefix
from tinymq.meta.following import Clocks
from tinymq.meta.registry import Topic
from tinymq.meta.store import Store
from tinymq.names import valid_name
from tinymq.routing import (
    UNROUTABLE,
    Binding,
    Exchange,
    Kind,
    Terms,
    binding_id,
    binding_key,
    exchange_key,
)

#: Most bindings of an exchange.
MOST_BINDINGS: Final = 20_000

#: Written with everything that could close a circle, and compared before.
_GUARD: Final = "routing"
#: Of one transaction, which is told to replicas in one piece.
_MOST_WRITES: Final = 1000


class Exchanges(Channels):
    """The operations on exchanges and their bindings."""

    def __init__(
        self,
        store: Store,
        config: Config = DEFAULT_CONFIG,
        clocks: Clocks | None = None,
        history: int = 1000,
    ) -> None:
        super().__init__(store, config, clocks, history)
        self._forget_bindings()

    def describe_exchange(self, name: str) -> tuple[Topic, Exchange]:
        """
        Return an exchange and its topic.

        Args:
            name: Its name.

        Raises:
            InvalidName: It cannot be a name.
            UnknownTopic: There is no such topic.
            UnknownExchange: The topic is no exchange.
        """
        exchange = self.registry.exchange(valid_name(name))
        return self.registry.topic(name), exchange

    def make_exchange(
        self, topic: Topic, kind: Kind, dead_letter: str | None = None, *, dry_run: bool = False
    ) -> Exchange:
        """
        Let a topic be an exchange, or return the one it is if that is what is asked for.

        Args:
            topic: The topic; in a dry run it may not be there.
            kind: How bindings are found.
            dead_letter: Topic for what no binding takes; None for the default.
            dry_run: Check everything and return what would be, but write nothing.

        Raises:
            InvalidName: The name of the dead-letter topic breaks the rule, or is too long.
            InvalidRequest: Messages would go round in a circle.
            TopicExists: It is an exchange of another kind, or with another dead-letter topic.
        """
        existing = self.registry.exchanges.get(topic.id)
        if existing is not None:
            _check_same(topic.name, existing, kind, dead_letter)
            return existing
        target = self._dead_letter_of(topic.name, dead_letter)
        seen = self._seen()
        self._check_way(topic.name, target, "the dead-letter topic")
        made = Exchange(kind=kind, dead_letter=target, created_ms=self._now_ms())
        if not dry_run:
            self._forget_bindings(topic.id)
            key = exchange_key(topic.id)
            self._write_way(seen, [Compare(key, 0)], [Put(key, made.encode())])
        return made

    def alter_exchange(
        self, name: str, dead_letter: str | None, *, dry_run: bool = False
    ) -> Exchange:
        """
        Change where an exchange sends what no binding takes.

        Args:
            name: Its name.
            dead_letter: The topic; None for the default.
            dry_run: Check everything and return what would be, but write nothing.

        Raises:
            UnknownTopic, UnknownExchange: There is no such exchange.
            InvalidName, InvalidRequest: As `make_exchange`.
        """
        topic, exchange = self.describe_exchange(name)
        target = self._dead_letter_of(name, dead_letter)
        seen = self._seen()
        self._check_way(name, target, "the dead-letter topic")
        new = attrs.evolve(exchange, dead_letter=target)
        if target != exchange.dead_letter and not dry_run:
            self._write_way(seen, [], [Put(exchange_key(topic.id), new.encode())])
        return new

    def delete_exchange(self, name: str, *, force: bool = False, dry_run: bool = False) -> Exchange:
        """
        Let an exchange be a plain topic again, and return what it was.

        Args:
            name: Its name.
            force: Delete the bindings that lead to it as well.
            dry_run: Check everything and return what would go, but write nothing.

        Raises:
            UnknownTopic, UnknownExchange: There is no such exchange.
            InvalidRequest: Bindings lead to it, and they are not to be deleted.
        """
        topic, exchange = self.describe_exchange(name)
        leading = list(self._bindings_to(name))
        if leading and not force:
            origin = self.registry.topics[leading[0][0]].name
            raise InvalidRequest(
                f"{len(leading)} bindings lead to {name}, the first from {origin}; delete them "
                "first (`tinymq binding ls --target "
                f"{name}`), or all of them with it by force",
                field="force",
                bindings=len(leading),
            )
        if not dry_run:
            self._delete_all([Delete(exchange_key(topic.id))], self._routes_of(topic))
        return exchange

    # --- bindings

    def add_binding(
        self, name: str, target: str, terms: Terms, *, dry_run: bool = False
    ) -> tuple[Binding, bool]:
        """
        Add a binding, or return the one there is.

        Args:
            name: The exchange.
            target: The topic that it leads to.
            terms: What a message must meet.
            dry_run: Check everything and return what would be, but write nothing.

        Returns:
            The binding, and whether it was not there.

        Raises:
            UnknownTopic, UnknownExchange: There is no such exchange, or no such target.
            InvalidRequest: The terms are not those of this kind, or messages would go
                round in a circle.
            Overloaded: The exchange has as many as it may have.
        """
        topic, exchange = self.describe_exchange(name)
        terms.check(exchange.kind)
        if valid_name(target) not in self.registry.by_name:
            raise UnknownTopic(
                f"there is no topic {target} to bind to; "
                f"make it first with `tinymq topic create {target}`",
                topic=target,
            )
        key, existing = _place_of(exchange, target, terms)
        if existing is not None:
            return existing, False
        seen = self._seen()
        self._check_way(name, target, "the binding")
        if len(exchange.bindings) >= MOST_BINDINGS:
            raise Overloaded(
                f"{name} has {MOST_BINDINGS} bindings, the most that an exchange has; "
                "delete some, or bind it to another exchange that has the rest",
                limit=MOST_BINDINGS,
            )
        made = Binding(id=key, target=target, terms=terms, created_ms=self._now_ms())
        if not dry_run:
            stored = binding_key(topic.id, key)
            self._write_way(seen, [Compare(stored, 0)], [Put(stored, made.encode())])
        return made, True

    def delete_binding(self, name: str, binding: str, *, dry_run: bool = False) -> Binding:
        """
        Delete a binding and return what it was.

        Args:
            name: The exchange.
            binding: Its id.
            dry_run: Check everything and return what would go, but write nothing.

        Raises:
            UnknownTopic, UnknownExchange: There is no such exchange.
            UnknownBinding: It has no such binding.
        """
        topic, exchange = self.describe_exchange(name)
        found = exchange.bindings.get(binding)
        if found is None:
            raise UnknownBinding(
                f"{name} has no binding {binding[:64]!a}; `tinymq binding ls --exchange {name}` "
                "lists them",
                exchange=name,
            )
        if not dry_run:
            self._write([], [Delete(binding_key(topic.id, binding))], vital=True)
        return found

    def _bindings_to(self, name: str) -> Iterator[tuple[bytes, Binding]]:
        """Yield the bindings that lead to a topic, with the id of their exchange."""
        for topic_id, exchange in self.registry.exchanges.items():
            if name in exchange.targets and topic_id in self.registry.topics:
                for binding in exchange.bindings.values():
                    if binding.target == name:
                        yield topic_id, binding

    def _routes_of(self, topic: Topic) -> list[Write]:
        """Return what takes all bindings of a topic and all that lead to it out of the store."""
        leading = self._bindings_to(topic.name)
        found: list[Write] = [Delete(binding_key(of, binding.id)) for of, binding in leading]
        exchange = self.registry.exchanges.get(topic.id)
        own = () if exchange is None else exchange.bindings
        return found + [Delete(binding_key(topic.id, binding)) for binding in own]

    def _delete_all(self, first: Sequence[Write], others: Sequence[Write]) -> None:
        """
        Delete something with all that belongs to it.

        What is first goes in one transaction. The others follow in pages, since one
        transaction is told to replicas in one piece; those that a crash leaves belong
        to nothing, and are forgotten at the next start.
        """
        self._write([], first, vital=True)
        for at in range(0, len(others), _MOST_WRITES):
            self._write([], others[at : at + _MOST_WRITES], vital=True)

    def _forget_bindings(self, topic_id: bytes | None = None) -> None:
        """Delete the bindings that a crash left: of exchanges, or to topics, that are gone."""
        text = "binding/" if topic_id is None else binding_key(topic_id, "")
        left: list[Write] = []
        for entry in self._store.range(*prefix(text)):
            _, owner, binding = entry.key.split("/")
            exchange = self.registry.exchanges.get(bytes.fromhex(owner))
            found = None if exchange is None else exchange.bindings.get(binding)
            if found is None or found.target not in self.registry.by_name:
                left.append(Delete(entry.key))
        self._delete_all([], left)

    # --- circles

    def _dead_letter_of(self, name: str, dead_letter: str | None) -> str:
        target = name + UNROUTABLE if dead_letter is None else dead_letter
        if dead_letter is None and len(target) > self._config.limits.name:
            raise InvalidName(
                f"{name[:40]!r}... with {UNROUTABLE} behind it is too long for a name; "
                "say as dead_letter which topic gets what no binding takes",
                length=len(target),
            )
        if valid_name(target) not in self.registry.by_name:
            self._check_length(target)
        return target

    def _check_way(self, name: str, target: str, what: str) -> None:
        """Refuse a way after which messages would go round in a circle."""
        way = self._way(target, name)
        if way is not None:
            circle = " -> ".join([name, *way])
            raise InvalidRequest(
                f"{what} would let messages go round in a circle: {circle}; "
                "take another target, or remove one of these ways first",
                field="dead_letter" if "dead" in what else "target",
                circle=[name, *way],
            )

    def _way(self, start: str, goal: str) -> list[str] | None:
        """Return how messages get from one topic to another; None if they do not."""
        came: dict[str, str] = {start: ""}
        here = [start]
        while here and goal not in came:
            there = []
            for name in here:
                for target in sorted(self._leads_to(name)):
                    if target not in came:
                        came[target] = name
                        there.append(target)
            here = there
        if goal not in came:
            return None
        way, at = [goal], goal
        while came[at]:
            at = came[at]
            way.append(at)
        return way[::-1]

    def _leads_to(self, name: str) -> frozenset[str]:
        topic = self.registry.by_name.get(name)
        exchange = None if topic is None else self.registry.exchanges.get(topic.id)
        return frozenset() if exchange is None else exchange.leads_to

    def _seen(self) -> int:
        """Return when a way was made last."""
        guard = self._store.get(_GUARD)
        return 0 if guard is None else guard.modified

    def _write_way(self, seen: int, compares: Sequence[Compare], writes: Sequence[Write]) -> None:
        """Write something on condition that no way was made since circles were looked for."""
        self._write([*compares, Compare(_GUARD, seen)], [*writes, Put(_GUARD, b"")])


def _place_of(exchange: Exchange, target: str, terms: Terms) -> tuple[str, Binding | None]:
    """Return the id of a binding, and the binding if it is there."""
    for attempt in range(len(exchange.bindings) + 1):
        place = binding_id(target, terms, attempt)
        found = exchange.bindings.get(place)
        if found is None or found.is_same(target, terms):
            return place, found
    raise AssertionError("one more id than there are bindings is free")


def _check_same(name: str, existing: Exchange, kind: Kind, dead_letter: str | None) -> None:
    if existing.kind != kind:
        raise TopicExists(
            f"{name} is a {existing.kind} exchange, not {kind}; "
            f"remove it first with `tinymq exchange rm {name}`, which keeps its messages",
            field="kind",
            existing=existing.kind,
            wanted=kind,
        )
    if dead_letter is not None and dead_letter != existing.dead_letter:
        raise TopicExists(
            f"{name} sends what no binding takes to {existing.dead_letter}, not {dead_letter}; "
            f"change that with `tinymq exchange alter {name} --dead-letter {dead_letter}`",
            field="dead_letter",
            existing=existing.dead_letter,
            wanted=dead_letter,
        )
