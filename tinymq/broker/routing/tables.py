"""
Which targets a record has: the exchanges of the MetaServer, and tables made of their bindings.

A table is made when it is needed first. When the exchange or its bindings changed it takes
over the changes, which costs a hundredth of making it anew; it is the same table then, so a
sight of before must not be asked any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from tinymq.routing import Exchange, Table, table
from tinymq.wire.records import Headers, RecordBatch

if TYPE_CHECKING:
    from tinymq.broker.broker import Broker
    from tinymq.meta.registry import Registry, Topic

#: Keys, and names of their targets, that are remembered of one table.
_MOST_KEYS: Final = 50_000
#: Sets of names, and these names, whose topics are remembered.
_MOST_SETS: Final = 50_000

#: Names of topics, each once.
Names = tuple[str, ...]


class Sight:
    """
    The table of one exchange, and what it said before.

    Args:
        exchange: The exchange.
        before: The sight of how it was before, if there is one; it is over with that.
    """

    def __init__(self, exchange: Exchange, before: Sight | None = None) -> None:
        self.exchange = exchange
        self.table: Table = table(exchange, before=None if before is None else before.table)
        looks = self.table.looks_at
        self._key, self._headers = "key" in looks, "headers" in looks
        self._value = "value" in looks
        #: What the table says is the same for equal keys, if it looks at nothing else.
        self._memory: dict[bytes | None, Names] | None = None if looks - {"key"} else {}
        self._size = 0

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
            self._forget()
        return known

    def _forget(self) -> None:
        """Forget the tables of exchanges that are gone: nobody asks for them again."""
        exchanges = self._broker.meta.registry.exchanges
        for gone in self._made.keys() - exchanges.keys():
            del self._made[gone]

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
