"""
Which targets a record has: the exchanges of the MetaServer, and tables made of their bindings.

A table is made when it is needed first, and again when the exchange or its bindings changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from tinymq.routing import Binding, Exchange, Table, table
from tinymq.wire.records import Headers, RecordBatch

if TYPE_CHECKING:
    from tinymq.broker.broker import Broker
    from tinymq.meta.registry import Registry, Topic

#: Keys, and names of their targets, that are remembered of one table.
_MOST_KEYS: Final = 50_000
#: Sets of names, and these names, whose topics are remembered.
_MOST_SETS: Final = 50_000

#: A table of so many bindings is not made anew for one more,
_LARGE: Final = 500
#: until these are more than such a part of it.
_PART: Final = 10

#: Names of topics, each once.
Names = tuple[str, ...]


class _Grown:
    """
    A large table, and a small one of the bindings that came since it was made.

    Args:
        base: The large one.
        exchange: As it is now.
        added: The bindings.
    """

    def __init__(self, base: Table, exchange: Exchange, added: Iterable[Binding]) -> None:
        self._parts = base, table(exchange, added)
        self.looks_at = base.looks_at | self._parts[1].looks_at

    @property
    def failed(self) -> int:
        """How often a rule failed."""
        return sum(each.failed for each in self._parts)

    @property
    def failure(self) -> str:
        """What happened when one failed last."""
        return self._parts[1].failure or self._parts[0].failure

    def targets(self, key: bytes | None, headers: Headers, value: bytes | None) -> Names:
        """Say where a message goes."""
        found, more = (each.targets(key, headers, value) for each in self._parts)
        return tuple(sorted({*found, *more})) if more else found


class Sight:
    """
    The table of one exchange, and what it said before.

    Args:
        exchange: The exchange.
        before: How it was before, if that is known.
    """

    def __init__(self, exchange: Exchange, before: Sight | None = None) -> None:
        self.exchange = exchange
        #: Of which bindings the large table is, and that table.
        self._base = None if before is None else before.grown(exchange)
        if self._base is None:
            self._base = exchange.bindings, table(exchange)
        known, base = self._base
        self.table: Table | _Grown = base
        if len(known) < len(exchange.bindings):
            added = (each for key, each in exchange.bindings.items() if key not in known)
            self.table = _Grown(base, exchange, added)
        looks = self.table.looks_at
        self._key, self._headers = "key" in looks, "headers" in looks
        self._value = "value" in looks
        #: What the table says is the same for equal keys, if it looks at nothing else.
        self._memory: dict[bytes | None, Names] | None = None if looks - {"key"} else {}
        self._size = 0

    def grown(self, exchange: Exchange) -> tuple[Mapping[str, Binding], Table] | None:
        """
        Return the large table, if the exchange only has some bindings more by now.

        Args:
            exchange: As it is now.
        """
        assert self._base is not None, "it was made at first"
        known, now = self._base[0], exchange.bindings
        more = len(now) - len(known)
        if len(known) < _LARGE or not 0 <= more <= len(known) // _PART:
            return None
        same = exchange.kind == self.exchange.kind and known.items() <= now.items()
        return self._base if same else None

    @property
    def at_once(self) -> int:
        """How many records are looked at before it is time to see how late it is."""
        return 1 if self.exchange.kind == "rule" else 32

    @property
    def constant(self) -> bool:
        """Whether all records have the same targets."""
        return not (self._key or self._headers or self._value)

    def look(self, batch: RecordBatch) -> Look:
        """
        Open the columns of a batch that the table looks at.

        Args:
            batch: The batch.

        Raises:
            CorruptBatch: They cannot be read.
        """
        return Look(
            batch.keys if self._key else None,
            batch.headers if self._headers else None,
            batch.values if self._value else None,
        )

    def targets(self, look: Look, at: int) -> Names:
        """
        Find the targets of a record.

        Args:
            look: Its batch.
            at: Its place there.
        """
        key = None if look.keys is None else look.keys[at]
        memory = self._memory
        if memory is not None:
            found = memory.get(key)
            if found is None:
                found = self.table.targets(key, (), None)
                self._size += 1 + len(found)
                if self._size > _MOST_KEYS:
                    memory.clear()
                    self._size = 1 + len(found)
                memory[key] = found
            return found
        headers: Headers = () if look.headers is None else look.headers[at]
        return self.table.targets(key, headers, None if look.values is None else look.values[at])


class Look(NamedTuple):
    """The columns of a batch that a table looks at."""

    keys: Sequence[bytes | None] | None
    headers: Sequence[Headers] | None
    values: Sequence[bytes | None] | None


class Tables:
    """
    The tables of a broker.

    Args:
        broker: The broker, whose MetaServer knows the exchanges.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._made: dict[bytes, Sight] = {}
        self._resolved: dict[Names, tuple[Topic, ...]] = {}
        self._registry: Registry | None = None
        self._size = 0

    def sight(self, topic_id: bytes) -> Sight | None:
        """
        Return the table of an exchange as it is now; None if the topic is none.

        Args:
            topic_id: The topic's id.
        """
        exchange = self._broker.meta.registry.exchanges.get(topic_id)
        if exchange is None:
            self._made.pop(topic_id, None)
            return None
        known = self._made.get(topic_id)
        if known is None or known.exchange is not exchange:
            known = self._made[topic_id] = Sight(exchange, known)
        return known

    def topics(self, names: Names) -> tuple[Topic, ...]:
        """
        Return the topics of some names, as far as there are any.

        Args:
            names: The names.
        """
        registry = self._broker.meta.registry
        if registry is not self._registry or self._size > _MOST_SETS:
            self._registry, self._size = registry, 0
            self._resolved.clear()
        found = self._resolved.get(names)
        if found is None:
            by_name = registry.by_name
            known = (by_name.get(name) for name in names)
            found = self._resolved[names] = tuple(each for each in known if each is not None)
            self._size += 1 + len(names)
        return found
