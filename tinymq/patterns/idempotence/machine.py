"""
Lets through only messages that the state of an entity allows; others come again.

::

    guard = StateGuard({"new": {"paid", "cancelled"}, "paid": {"shipped"}}, initial="new")

    @guard.step
    def handle(message):            # header "state": what the entity becomes
        ...

A message that comes too early (``shipped`` before ``paid``) is sent back to be delivered
again later, a limited number of times; then it goes to the dead-letter topic.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Literal, Protocol

from attrs import frozen

from tinymq.client.core.handling import Reject, Requeue
from tinymq.errors import UsageError
from tinymq.patterns.idempotence.calling import SKIP, Handler, guarded
from tinymq.patterns.idempotence.identity import Read, as_text, by_key, header
from tinymq.patterns.idempotence.tables import KeyTable
from tinymq.patterns.sql import Connection, Dialect

#: A message of an entity that is in hand comes again after so long.
_AGAIN_S: Final = 0.2
#: Messages of groups whose deliveries are counted at a time.
_MOST_TRIES: Final = 10_000


class States(Protocol):
    """The state of each entity."""

    def state(self, entity: str, connection: Connection | None = None) -> str | None:
        """Tell the state of an entity, None if it has none yet."""

    def move(
        self, entity: str, before: str | None, after: str, connection: Connection | None = None
    ) -> bool:
        """Change a state, and say whether it was what it was thought to be."""


class MemoryStates:
    """The states, in memory: they are gone with the process."""

    def __init__(self) -> None:
        self._states: dict[str, str] = {}
        self._lock = threading.Lock()

    def state(self, entity: str, connection: Connection | None = None) -> str | None:
        """
        Tell the state of an entity, None if it has none yet.

        Args:
            entity: The entity.
            connection: Of no meaning here.
        """
        return self._states.get(entity)

    def move(
        self, entity: str, before: str | None, after: str, connection: Connection | None = None
    ) -> bool:
        """
        Change a state, and say whether it was what it was thought to be.

        Args:
            entity: The entity.
            before: What it is thought to be.
            after: What it becomes.
            connection: Of no meaning here.
        """
        with self._lock:
            if self._states.get(entity) != before:
                return False
            self._states[entity] = after
            return True


class TableStates(KeyTable):
    """
    The states, in a table: several processes share them, and they stay.

    Args:
        connect: Opens a connection, which does not commit by itself.
        dialect: The kind of database.
        guard: Whose states they are: each guard has its own.
        table: The name of the table.
        paramstyle: What the driver wants, if not what the dialect's usual one does.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        dialect: Dialect,
        guard: str,
        table: str = "tinymq_states",
        paramstyle: str | None = None,
    ) -> None:
        super().__init__(connect, dialect, guard, (table, "VARCHAR(160)"), paramstyle)

    def state(self, entity: str, connection: Connection | None = None) -> str | None:
        """
        Tell the state of an entity, None if it has none yet.

        Args:
            entity: The entity.
            connection: Where; otherwise in a transaction of its own.
        """
        found = self.read(entity, connection)
        return None if found is None else str(found)

    def move(
        self, entity: str, before: str | None, after: str, connection: Connection | None = None
    ) -> bool:
        """
        Change a state, and say whether it was what it was thought to be.

        Args:
            entity: The entity.
            before: What it is thought to be.
            after: What it becomes.
            connection: Where; otherwise in a transaction of its own.
        """
        if connection is None:
            with self.connections.transaction() as own:
                return self.move(entity, before, after, own)
        if before is None:
            statement = (
                f"INSERT INTO {self.table} (value, guard, entity) VALUES (?, ?, ?) "  # noqa: S608
                "ON CONFLICT (guard, entity) DO NOTHING"
            )
            values: tuple[str, ...] = (after, self.guard, entity)
        else:
            statement = (
                f"UPDATE {self.table} SET value = ? "  # noqa: S608
                "WHERE guard = ? AND entity = ? AND value = ?"
            )
            values = (after, self.guard, entity, before)
        return bool(self.run(connection, statement, values).rowcount)


@frozen(kw_only=True)
class StateConfig:
    """
    What becomes of messages that the state does not allow.

    Attributes:
        delay_s: After so long they come again.
        most: Deliveries; the last one ends in the dead-letter topic.
        same: What becomes of a message whose state the entity is in already: ``finish``
            takes it for a repeat, ``again`` lets it come again as others (where ids were
            looked at before, it is none, but early).
    """

    delay_s: float = 1.0
    most: int = 20
    same: Literal["finish", "again"] = "finish"


class StateGuard:
    """
    Knows which state may follow which.

    Args:
        transitions: For each state those that may follow it.
        initial: The state of an entity that has none yet.
        target: Tells what a message makes of its entity.
        entity: Tells which that is.
        states: Where the states are kept; by default in memory.
        config: What becomes of other messages.

    Raises:
        UsageError: The initial state is none of those named.

    Attributes:
        early: Messages that were sent back.
        repeats: Messages whose entity was there already, and were left alone.
        given_up: Messages that were rejected in the end.
    """

    def __init__(
        self,
        transitions: Mapping[str, set[str]],
        initial: str,
        *,
        target: Read | None = None,
        entity: Read = by_key,
        states: States | None = None,
        config: StateConfig | None = None,
    ) -> None:
        named = {*transitions}.union(*transitions.values())
        if initial not in named:
            raise UsageError(f"no transition begins or ends in {initial!r}")
        self.transitions = {state: frozenset(others) for state, others in transitions.items()}
        self.initial = initial
        self.target = target or header("state")
        self.entity = entity
        self.states: States = states or MemoryStates()
        self.config = config or StateConfig()
        self.early = 0
        self.repeats = 0
        self.given_up = 0
        self._named = named
        self._in_hand: set[str] = set()
        self._tries: dict[tuple[str, int, int], int] = {}
        self._lock = threading.Lock()

    def step(self, handler: Handler) -> Handler:
        """
        Let a handler have only messages that their entity's state allows.

        The state changes after the handler's success; with states in a table, and within a
        transaction (`SeenStore.in_transaction` around this), in that transaction.

        Args:
            handler: Takes a message, and what a decorator around this gives.
        """
        return guarded(handler, self._step)

    @contextmanager
    def _step(self, message: Any, *rest: Any) -> Iterator[tuple[Any, ...] | None]:
        target, entity = as_text(self.target(message)), as_text(self.entity(message))
        if target not in self._named:
            raise Reject(f"there is no state {target}")
        where = rest[0] if rest and isinstance(self.states, TableStates) else None
        with self._hand(entity):
            before = self.states.state(entity, where)
            now = self.initial if before is None else before
            if target == now and self.config.same == "finish":
                self.repeats += 1
                yield SKIP
                return
            if target not in self.transitions.get(now, ()):
                self._put_off(message, f"{entity} is {now} and cannot become {target}")
            yield rest
            if not self.states.move(entity, before, target, where):
                raise Requeue(self.config.delay_s, "somebody else changed its state", failure=False)

    def _put_off(self, message: Any, reason: str) -> None:
        attempt = self._attempt(message)
        if attempt >= self.config.most:
            self.given_up += 1
            raise Reject(f"{reason}, after {attempt} deliveries")
        self.early += 1
        raise Requeue(self.config.delay_s, reason, failure=False)

    def _attempt(self, message: Any) -> int:
        """Tell how often a message came; a group does not know, so it is counted here."""
        told: int | None = getattr(message, "attempt", None)
        if told is not None:
            return told
        which = (message.topic, message.partition, message.offset)
        with self._lock:
            count = self._tries.pop(which, 0) + 1
            self._tries[which] = count
            if len(self._tries) > _MOST_TRIES:
                del self._tries[next(iter(self._tries))]
        return count

    @contextmanager
    def _hand(self, entity: str) -> Iterator[None]:
        with self._lock:
            if entity in self._in_hand:
                raise Requeue(_AGAIN_S, "another one is being handled", failure=False)
            self._in_hand.add(entity)
        try:
            yield
        finally:
            with self._lock:
                self._in_hand.discard(entity)
