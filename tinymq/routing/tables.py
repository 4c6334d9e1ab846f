"""The tables of the five kinds of exchanges: from a message to the topics that get it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias

from attrs import define, field
from typing_extensions import override

from tinymq.conditions import Condition, matches
from tinymq.routing.rules import Input, Rule, RuleFailedError, compiled
from tinymq.routing.trie import Trie
from tinymq.routing.values import Binding, Exchange, Kind

Headers: TypeAlias = Sequence[tuple[str, bytes]]
#: Names of topics, each once, in order.
Names: TypeAlias = tuple[str, ...]
#: Name and value of a header.
Pair: TypeAlias = tuple[str, bytes]
_NOTHING: Final[frozenset[str]] = frozenset()
_EMPTY: Final[Mapping[tuple[str, ...], _Group]] = MappingProxyType({})


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

    def targets(self, key: bytes | None, headers: Headers, value: bytes | None) -> Names:
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


def table(
    exchange: Exchange, bindings: Iterable[Binding] | None = None, *, before: Table | None = None
) -> Table:
    """
    Arrange the bindings of an exchange.

    Args:
        exchange: The exchange.
        bindings: Its bindings, if those are others than it holds.
        before: The table that the exchange had before it changed; what is new in it is
            carried over to that table, which costs less than to make all anew.
    """
    wanted = exchange.bindings
    if bindings is not None:
        wanted = {each.id: each for each in bindings}
    made = _TABLES[exchange.kind]
    found = before if type(before) is made else made()
    found.change(wanted)
    return found


class _Base:
    """What all tables have: the bindings that they hold, and how these change."""

    looks_at: frozenset[str] = _NOTHING
    failed = 0
    failure = ""

    def __init__(self) -> None:
        self._held: dict[str, Binding] = {}

    def change(self, wanted: Mapping[str, Binding]) -> None:
        """
        Hold other bindings from now on.

        Args:
            wanted: All of them, by their ids.
        """
        held = self._held
        gone = [each for key, each in held.items() if wanted.get(key) is not each]
        new = [each for key, each in wanted.items() if held.get(key) is not each]
        for each in gone:
            self._take_out(each)
            del held[each.id]
        for each in new:
            self._put_in(each)
            held[each.id] = each

    def met(self, key: bytes | None, headers: Headers, value: bytes | None) -> Iterator[Binding]:
        """Yield the bindings that a message meets: those whose own table leads somewhere."""
        targets = {*self.targets(key, headers, value)}
        near = sorted(
            (each for each in self._held.values() if each.target in targets),
            key=lambda each: (each.target, each.id),
        )
        for each in near:
            alone = type(self)()
            alone.change({each.id: each})
            if alone.targets(key, headers, value):
                yield each

    def targets(self, key: bytes | None, headers: Headers, value: bytes | None) -> Names:
        """Say where a message goes."""
        raise NotImplementedError

    def _put_in(self, binding: Binding) -> None:
        raise NotImplementedError

    def _take_out(self, binding: Binding) -> None:
        raise NotImplementedError


class Fanout(_Base):
    """Every binding takes every message."""

    def __init__(self) -> None:
        super().__init__()
        self._targets: Names | None = ()

    @override
    def targets(self, key: bytes | None, headers: Headers, value: bytes | None) -> Names:
        if self._targets is None:
            self._targets = _names(each.target for each in self._held.values())
        return self._targets

    @override
    def _put_in(self, binding: Binding) -> None:
        self._targets = None

    @override
    def _take_out(self, binding: Binding) -> None:
        self._targets = None


class Direct(_Base):
    """A binding takes the messages of its key."""

    looks_at = frozenset({"key"})

    def __init__(self) -> None:
        super().__init__()
        self._sets: dict[bytes, set[str]] = {}
        #: Those that were asked for, in order.
        self._known: dict[bytes, Names] = {}

    @override
    def targets(self, key: bytes | None, headers: Headers, value: bytes | None) -> Names:
        found = self._known.get(key or b"")
        if found is None:
            bound = self._sets.get(key or b"")
            if bound is None:
                return ()
            found = self._known[key or b""] = _names(bound)
        return found

    @override
    def _put_in(self, binding: Binding) -> None:
        key = _key(binding)
        self._sets.setdefault(key, set()).add(binding.target)
        self._known.pop(key, None)

    @override
    def _take_out(self, binding: Binding) -> None:
        key = _key(binding)
        targets = self._sets[key]
        targets.remove(binding.target)
        if not targets:
            del self._sets[key]
        self._known.pop(key, None)


class Topic(_Base):
    """A binding takes the messages whose key is like its pattern."""

    looks_at = frozenset({"key"})

    def __init__(self) -> None:
        super().__init__()
        self._trie = Trie()

    @override
    def targets(self, key: bytes | None, headers: Headers, value: bytes | None) -> Names:
        return _names(self._trie.find(key or b""))

    @override
    def _put_in(self, binding: Binding) -> None:
        self._trie.add(_key(binding), binding.target)

    @override
    def _take_out(self, binding: Binding) -> None:
        self._trie.remove(_key(binding), binding.target)


@define
class _Group:
    """
    The bindings with the same conditions.

    Attributes:
        first: The pair of name and value by which they are found; None if there is none.
        rest: The other conditions.
        targets: Where they lead.
    """

    first: Pair | None
    rest: tuple[Condition, ...]
    targets: set[str] = field(factory=set)


class HeaderTable(_Base):
    """
    A binding takes the messages that meet all its conditions.

    Each binding that has a condition ``name=value`` is found by one of them, the one that
    the fewest bindings are found by; only those without any are looked at each time.
    """

    looks_at = frozenset({"headers"})

    def __init__(self) -> None:
        super().__init__()
        #: By the texts of their conditions.
        self._groups: dict[tuple[str, ...], _Group] = {}
        self._by_pair: dict[Pair | None, dict[tuple[str, ...], _Group]] = {}

    @override
    def targets(self, key: bytes | None, headers: Headers, value: bytes | None) -> Names:
        found: set[str] = set()
        for pair in (None, *headers):
            for group in self._by_pair.get(pair, _EMPTY).values():
                if not group.rest or matches(group.rest, headers):
                    found |= group.targets
        return _names(found)

    @override
    def _put_in(self, binding: Binding) -> None:
        texts = binding.terms.headers
        group = self._groups.get(texts)
        if group is None:
            group = self._groups[texts] = self._group(texts)
            self._by_pair.setdefault(group.first, {})[texts] = group
        group.targets.add(binding.target)

    def _group(self, texts: tuple[str, ...]) -> _Group:
        conditions = [Condition.parse(text) for text in texts]
        pairs = [pair for each in conditions if (pair := _pair(each)) is not None]
        if not pairs:
            return _Group(None, tuple(conditions))
        first = min(pairs, key=lambda pair: (len(self._by_pair.get(pair, ())), pair))
        return _Group(first, tuple(each for each in conditions if _pair(each) != first))

    @override
    def _take_out(self, binding: Binding) -> None:
        texts = binding.terms.headers
        group = self._groups[texts]
        group.targets.remove(binding.target)
        if not group.targets:
            del self._groups[texts]
            found = self._by_pair[group.first]
            del found[texts]
            if not found:
                del self._by_pair[group.first]


def _pair(condition: Condition) -> Pair | None:
    return (condition.name, condition.value) if condition.test == "equal" else None


class RuleTable(_Base):
    """A binding takes the messages that its rule is true of."""

    def __init__(self) -> None:
        super().__init__()
        #: Rules by their texts, and where each leads; an error is what cannot be compiled.
        self._rules: dict[str, tuple[Rule | RuleFailedError, set[str]]] = {}
        #: The variables that some rule mentions.
        self._variables: frozenset[str] = _NOTHING

    @override
    def change(self, wanted: Mapping[str, Binding]) -> None:
        super().change(wanted)
        rules = [rule for rule, _ in self._rules.values() if isinstance(rule, Rule)]
        self._variables = frozenset(name for rule in rules for name in rule.looks_at)
        needs = {"size": "value", "json": "value"}
        self.looks_at = frozenset(needs.get(name, name) for name in self._variables)

    @override
    def targets(self, key: bytes | None, headers: Headers, value: bytes | None) -> Names:
        given = Input(key, headers, value, self._variables)
        found: set[str] = set()
        for text, (rule, targets) in self._rules.items():
            try:
                if isinstance(rule, RuleFailedError):
                    raise rule.with_traceback(None)
                if rule.matches(given):
                    found |= targets
            except RuleFailedError as error:
                self.failed += 1
                self.failure = f"{text[:100]}: {error}"
        return _names(found)

    @override
    def _put_in(self, binding: Binding) -> None:
        text = binding.terms.rule or ""
        if text not in self._rules:
            rule: Rule | RuleFailedError
            try:
                rule = compiled(text)
            except ValueError as error:  # it was made by another version
                rule = RuleFailedError(str(error))
            self._rules[text] = rule, set()
        self._rules[text][1].add(binding.target)

    @override
    def _take_out(self, binding: Binding) -> None:
        text = binding.terms.rule or ""
        targets = self._rules[text][1]
        targets.remove(binding.target)
        if not targets:
            del self._rules[text]


def _key(binding: Binding) -> bytes:
    return (binding.terms.key or "").encode("utf-8", "surrogatepass")


def _names(found: Iterable[str]) -> Names:
    return tuple(sorted(set(found)))


_TABLES: Final[Mapping[Kind, type[_Base]]] = MappingProxyType(
    {
        "direct": Direct,
        "topic": Topic,
        "fanout": Fanout,
        "headers": HeaderTable,
        "rule": RuleTable,
    }
)
