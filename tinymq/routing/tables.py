"""The tables of the five kinds of exchanges: from a message to the topics that get it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias

from typing_extensions import override

from tinymq.conditions import Condition, matches
from tinymq.routing.rules import Input, Rule, RuleFailedError, compiled
from tinymq.routing.trie import Trie
from tinymq.routing.values import Binding, Exchange, Kind

Headers: TypeAlias = Sequence[tuple[str, bytes]]
_NOTHING: Final[frozenset[str]] = frozenset()


class Table(Protocol):
    """
    The bindings of one exchange, arranged so that those that are met are found fast.

    Attributes:
        looks_at: What it needs to know of a message: some of key, headers and value.
        failed: How often a rule failed on a message, which then did not match.
        failure: What happened when one failed last; empty if none did.
    """

    looks_at: frozenset[str]
    failed: int
    failure: str

    def targets(self, key: bytes | None, headers: Headers, value: bytes | None) -> tuple[str, ...]:
        """
        Say where a message goes.

        Args:
            key: Its key.
            headers: Its headers; may be empty if the table does not look at them.
            value: Its value, or None if the table does not look at it.

        Returns:
            Names of topics, each once, in order.
        """

    def met(self, key: bytes | None, headers: Headers, value: bytes | None) -> Iterator[Binding]:
        """
        Yield the bindings that a message meets, in order of their targets; slow, for people.

        Args:
            key: Its key.
            headers: Its headers.
            value: Its value.
        """


def table(exchange: Exchange, bindings: Iterable[Binding] | None = None) -> Table:
    """
    Arrange the bindings of an exchange.

    Args:
        exchange: The exchange.
        bindings: Its bindings, if those are others than it holds.
    """
    found = exchange.bindings.values() if bindings is None else bindings
    return _TABLES[exchange.kind](tuple(found))


class _Base:
    looks_at: frozenset[str] = _NOTHING
    failed = 0
    failure = ""

    def __init__(self, bindings: Sequence[Binding]) -> None:
        self._bindings = bindings

    def met(self, key: bytes | None, headers: Headers, value: bytes | None) -> Iterator[Binding]:
        """Yield the bindings that a message meets: those whose own table leads somewhere."""
        kind, targets = type(self), {*self.targets(key, headers, value)}
        near = sorted(
            (each for each in self._bindings if each.target in targets),
            key=lambda each: (each.target, each.id),
        )
        return (each for each in near if kind((each,)).targets(key, headers, value))

    def targets(self, key: bytes | None, headers: Headers, value: bytes | None) -> tuple[str, ...]:
        raise NotImplementedError


class Fanout(_Base):
    """Every binding takes every message."""

    def __init__(self, bindings: Sequence[Binding]) -> None:
        super().__init__(bindings)
        self._targets = _names(each.target for each in bindings)

    @override
    def targets(self, key: bytes | None, headers: Headers, value: bytes | None) -> tuple[str, ...]:
        return self._targets


class Direct(_Base):
    """A binding takes the messages of its key."""

    looks_at = frozenset({"key"})

    def __init__(self, bindings: Sequence[Binding]) -> None:
        super().__init__(bindings)
        found: dict[bytes, set[str]] = {}
        for each in bindings:
            found.setdefault(_key(each), set()).add(each.target)
        self._targets = {key: _names(targets) for key, targets in found.items()}

    @override
    def targets(self, key: bytes | None, headers: Headers, value: bytes | None) -> tuple[str, ...]:
        return self._targets.get(key or b"", ())


class Topic(_Base):
    """A binding takes the messages whose key is like its pattern."""

    looks_at = frozenset({"key"})

    def __init__(self, bindings: Sequence[Binding]) -> None:
        super().__init__(bindings)
        self._trie = Trie()
        for each in bindings:
            self._trie.add(_key(each), each.target)

    @override
    def targets(self, key: bytes | None, headers: Headers, value: bytes | None) -> tuple[str, ...]:
        return _names(self._trie.find(key or b""))


#: The conditions of bindings, and where those lead that have exactly these.
_Group: TypeAlias = tuple[tuple[Condition, ...], tuple[str, ...]]


class HeaderTable(_Base):
    """
    A binding takes the messages that meet all its conditions.

    Each binding that has a condition ``name=value`` is found by one of them, the one that
    the fewest bindings have; only those without any are looked at for every message.
    """

    looks_at = frozenset({"headers"})

    def __init__(self, bindings: Sequence[Binding]) -> None:
        super().__init__(bindings)
        same: dict[tuple[str, ...], set[str]] = {}
        for each in bindings:
            same.setdefault(each.terms.headers, set()).add(each.target)
        groups = [(tuple(map(Condition.parse, texts)), _names(same[texts])) for texts in same]
        often = Counter(pair for conditions, _ in groups for pair in _pairs(conditions))
        self._by_pair: dict[tuple[str, bytes], list[_Group]] = {}
        self._others: list[_Group] = []
        for conditions, targets in groups:
            pairs = _pairs(conditions)
            if not pairs:
                self._others.append((conditions, targets))
                continue
            first = min(pairs, key=lambda pair: (often[pair], pair))
            rest = tuple(each for each in conditions if _pair(each) != first)
            self._by_pair.setdefault(first, []).append((rest, targets))

    @override
    def targets(self, key: bytes | None, headers: Headers, value: bytes | None) -> tuple[str, ...]:
        found: set[str] = set()
        for conditions, targets in self._others:
            if matches(conditions, headers):
                found.update(targets)
        for pair in headers:
            for conditions, targets in self._by_pair.get(tuple(pair), ()):  # type: ignore[arg-type]
                if not conditions or matches(conditions, headers):
                    found.update(targets)
        return _names(found)


def _pair(condition: Condition) -> tuple[str, bytes] | None:
    return (condition.name, condition.value) if condition.test == "equal" else None


def _pairs(conditions: Iterable[Condition]) -> list[tuple[str, bytes]]:
    return [pair for each in conditions if (pair := _pair(each)) is not None]


class RuleTable(_Base):
    """A binding takes the messages that its rule is true of."""

    def __init__(self, bindings: Sequence[Binding]) -> None:
        super().__init__(bindings)
        same: dict[str, set[str]] = {}
        for each in bindings:
            same.setdefault(each.terms.rule or "", set()).add(each.target)
        self._rules: list[tuple[Rule, tuple[str, ...]]] = []
        for text, targets in same.items():
            try:
                self._rules.append((compiled(text), _names(targets)))
            except ValueError as error:  # it was made by another version
                self._note(text, error)
        self._variables = frozenset(name for rule, _ in self._rules for name in rule.looks_at)
        wanted = {"size": "value", "json": "value"}
        self.looks_at = frozenset(wanted.get(name, name) for name in self._variables)

    @override
    def targets(self, key: bytes | None, headers: Headers, value: bytes | None) -> tuple[str, ...]:
        given = Input(key, headers, value, self._variables)
        found: set[str] = set()
        for rule, targets in self._rules:
            try:
                if rule.matches(given):
                    found.update(targets)
            except RuleFailedError as error:
                self._note(rule.text, error)
        return _names(found)

    def _note(self, text: str, error: Exception) -> None:
        self.failed += 1
        self.failure = f"{text[:100]}: {error}"


def _key(binding: Binding) -> bytes:
    return (binding.terms.key or "").encode("utf-8", "surrogatepass")


def _names(found: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(found)))


_TABLES: Final[Mapping[Kind, Callable[[Sequence[Binding]], Table]]] = MappingProxyType(
    {
        "direct": Direct,
        "topic": Topic,
        "fanout": Fanout,
        "headers": HeaderTable,
        "rule": RuleTable,
    }
)
