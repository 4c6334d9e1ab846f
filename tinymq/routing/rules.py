"""
Rules: conditions of bindings in CEL, the Common Expression Language.

A rule is text of users that runs in the broker. The language has no loops but its macros
(`all`, `exists`, `exists_one`, `map`, `filter`), no names but those that are given to it,
and its regular expressions take linear time. What could still take long or much is refused
when the rule is made (see `check_rule`), or fails on a message (`Input`): then the rule
does not match, and the failure is counted.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakValueDictionary

from attrs import frozen

from tinymq.errors import InvalidRequest
from tinymq.routing.ruletext import MACROS, MOST_SEARCHED, MOST_VALUE, RuleText

if TYPE_CHECKING:
    import cel

#: What a rule can look at.
VARIABLES: Final = ("key", "headers", "size", "value", "json")
#: Longest rule, in characters.
MOST_RULE: Final = 1000
#: Most macros of a rule; one may stand within another.
MOST_MACROS: Final = 3
#: How often a rule with macros may mention values that may be large.
MOST_LARGE: Final = 10
#: Most additions of a rule: each may double what it is given.
MOST_PLUS: Final = 8
#: Deepest nesting of the JSON that a rule looks at, and most values in it: each is made
#: anew for the library, at 2 us.
MOST_DEPTH: Final = 64
MOST_PARTS: Final = 20_000
#: Most of elements times characters of a rule with macros: what one message may cost.
MOST_WORK: Final = 5_000_000

#: Likewise, of all rules of an exchange together.
MOST_SPENT: Final = 50_000_000
#: Bytes that a regular expression, or a search, goes through while a character is carried out.
_STEPS: Final = 20

_TYPES: Final = {"int", "uint", "double", "bool", "string", "list", "map", "null_type", "type"}
_FUNCTIONS: Final = {
    *("size", "startsWith", "endsWith", "contains", "matches", "has", "type"),
    *("int", "uint", "double", "string", "timestamp", "duration"),
    *("getFullYear", "getMonth", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear"),
    *("getHours", "getMinutes", "getSeconds", "getMilliseconds"),
}


class RuleFailedError(Exception):
    """A rule cannot be applied to a message; the text says why."""


@frozen(slots=False, eq=False)
class Rule:
    """
    A rule, compiled.

    Attributes:
        text: The rule.
        looks_at: The variables that it mentions.
        program: What is carried out.
        facts: What is known of its text.
    """

    text: str
    looks_at: frozenset[str]
    program: cel.Program
    facts: RuleText

    def matches(self, given: Input) -> bool:
        """
        Whether a message meets it.

        Args:
            given: The message.

        Raises:
            RuleFailedError: The rule cannot be applied to it.
        """
        given.check(self)
        try:
            found = self.program.execute(given.context)
        except BaseException as error:
            if isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError)):
                raise
            # The library's panics are no Exception.
            raise RuleFailedError(f"{type(error).__name__}: {str(error)[:200]}") from None
        return found is True


def check_rule(text: str) -> Rule:
    """
    Compile a rule, or say what is wrong with it.

    Args:
        text: The rule.

    Raises:
        InvalidRequest: It is no rule, or may take too long; the text says what to do.
    """
    try:
        return compiled(text)
    except ValueError as error:
        raise InvalidRequest(f"the rule {text[:60]!r}: {error}", field="rule") from None


#: Those that some table holds, so that a rule is compiled once however many there are.
_HELD: Final[WeakValueDictionary[str, Rule]] = WeakValueDictionary()


def compiled(text: str) -> Rule:
    """
    Compile a rule; each distinct one once.

    Args:
        text: The rule.

    Raises:
        ValueError: It is none, or may take too long.
    """
    found = _HELD.get(text)
    if found is None:
        found = _HELD[text] = _compiled(text)
    return found


@lru_cache(maxsize=500)
def _compiled(text: str) -> Rule:
    if len(text) > MOST_RULE:
        raise ValueError(f"it has {len(text)} characters, and {MOST_RULE} are allowed")
    facts = RuleText.read(text)
    _check_bounds(facts)
    found = _program(text)
    variables, functions = set(found.variables()), set(found.functions())
    _check_names(variables, functions, facts)
    # What is no truth value fails before it is turned into something of Python, which
    # may be large; the line ends keep a comment from swallowing the rest.
    program = _program(f"(\n{text}\n) ? true : false")
    return Rule(text, frozenset(variables & {*VARIABLES}), program, facts)


def _program(text: str) -> cel.Program:
    import cel  # noqa: PLC0415 - takes 200 ms, which only those pay who have rules

    try:
        return cel.compile(text)
    except BaseException as error:
        if isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError)):
            raise
        raise ValueError(_reason(str(error))) from None


def _reason(text: str) -> str:
    """Keep the part of the library's error that says where and what."""
    line = text.partition("ERROR: ")[2].partition("\n")[0].partition(" expecting ")[0]
    return line.removeprefix("<input>:")[:200] or "it cannot be read"


def _check_bounds(facts: RuleText) -> None:
    if facts.macros > MOST_MACROS:
        raise ValueError(f"it has {facts.macros} macros ({', '.join(MACROS)}), not {MOST_MACROS}")
    if facts.depth > 2:
        raise ValueError("a macro may stand within another, but no third within that")
    if facts.macros and facts.large > MOST_LARGE:
        raise ValueError(
            f"with macros it mentions large values {facts.large} times, "
            f"and {MOST_LARGE} are allowed"
        )
    if facts.pluses > MOST_PLUS:
        raise ValueError(f"it has {facts.pluses} additions, and {MOST_PLUS} are allowed")
    if facts.inside:
        raise ValueError(
            f"{facts.inside} cannot stand within a macro, where it would run for each element"
        )
    if facts.fault:
        raise ValueError(facts.fault)


def _check_names(variables: set[str], functions: set[str], facts: RuleText) -> None:
    strange = variables - {*VARIABLES} - _TYPES - facts.bound
    if strange:
        raise ValueError(f"there is no {min(strange)}; a rule looks at {', '.join(VARIABLES)}")
    shadowed = facts.bound & {*VARIABLES}
    if shadowed:
        raise ValueError(f"a macro cannot call its elements {min(shadowed)}")
    called = {name for name in functions if name[0] not in "_@!-"} | facts.private
    strange = called - _FUNCTIONS
    if strange:
        raise ValueError(f"there is no function {min(strange)}")


class Input:
    """
    A message as rules see it; what is costly is done once for all of them.

    Args:
        key: The record's key.
        headers: Its headers.
        value: Its value.
        wanted: The variables that some rule mentions.
    """

    def __init__(
        self,
        key: bytes | None,
        headers: Sequence[tuple[str, bytes]],
        value: bytes | None,
        wanted: frozenset[str],
    ) -> None:
        self._key = key or b""
        self._headers = headers
        self._value = value or b""
        self._wanted = wanted
        #: What rules have cost so far. It is counted, not measured, so that the same
        #: message goes the same ways on a slow machine, and after a crash.
        self._spent = 0

    def check(self, rule: Rule) -> None:
        """
        Make sure that a rule takes no long time.

        Raises:
            RuleFailedError: The message is too large for it.
        """
        facts = rule.facts
        if rule.looks_at & {"value", "json"} and len(self._value) > facts.most_value:
            raise RuleFailedError(f"the value has more than {facts.most_value} bytes")
        if "json" in rule.looks_at and self._json.parts > MOST_PARTS:
            raise RuleFailedError(f"the value has more than {MOST_PARTS} parts as JSON")
        if facts.searches and (len(self._key) > MOST_SEARCHED or self._longest > MOST_SEARCHED):
            raise RuleFailedError(f"key or headers have more than {MOST_SEARCHED} bytes")
        work = facts.length
        if facts.macros:
            work = facts.work(self._elements)
            if work > MOST_WORK:
                raise RuleFailedError(
                    "the message has too many elements for the macros of the rule"
                )
        # What is added up is as long as all of it, and copied again with each addition.
        longer = facts.pluses + 1
        if facts.searches:
            longest = len(self._key) + len(self._value) + self._longest
            work += facts.search_cost * longest * longer // _STEPS
        elif rule.looks_at & {"value", "json"}:
            work += len(self._value) * longer * longer // _STEPS
        if self._spent + work > MOST_SPENT:
            raise RuleFailedError("all rules of the exchange together take too long on the message")
        self._spent += work

    @cached_property
    def _longest(self) -> int:
        return max((len(value) for _, value in self._headers), default=0)

    @cached_property
    def _elements(self) -> int:
        """As many as the longest list has, or the largest map."""
        return max(self._json.longest, len(self._headers))

    @cached_property
    def _json(self) -> _Json:
        """The value as JSON; null is what is none."""
        if len(self._value) > MOST_VALUE:
            return _NO_JSON
        try:
            return _measured(json.loads(self._value))
        except (ValueError, RecursionError):
            return _NO_JSON

    @cached_property
    def context(self) -> cel.Context:
        """The variables, as far as they are wanted; what no rule mentions is not opened."""
        import cel  # noqa: PLC0415

        made = {name: make(self) for name, make in _MADE.items() if name in self._wanted}
        try:
            return cel.Context(made)
        except Exception:  # noqa: BLE001 - whatever the library cannot take
            # JSON can say what CEL cannot: numbers of 400 digits, halves of characters. Other
            # rules must not fail with it, and none may try again what took long.
            return cel.Context({**made, "json": None})


def _key_of(given: Input) -> str:
    return _text(given._key)  # noqa: SLF001


def _headers_of(given: Input) -> Mapping[str, str]:
    return {name: _text(value) for name, value in given._headers}  # noqa: SLF001


def _size_of(given: Input) -> int:
    return len(given._value)  # noqa: SLF001


def _value_of(given: Input) -> str | None:
    if len(given._value) > MOST_VALUE:  # noqa: SLF001
        return None
    try:
        return given._value.decode()  # noqa: SLF001
    except UnicodeDecodeError:
        return None


def _json_of(given: Input) -> Any:
    return given._json.value  # noqa: SLF001


class _Json(NamedTuple):
    """A value as JSON: what it is, the length of its longest list or map, how many values."""

    value: Any
    longest: int
    parts: int


_NO_JSON: Final = _Json(None, 0, 0)


def _measured(found: object) -> _Json:
    """Measure JSON; what is nested too deep, or has too many parts, is left out."""
    level: list[Any] = [found] if type(found) in (dict, list) else []
    longest, parts = 0, 1
    for _ in range(MOST_DEPTH):
        if not level:
            return _Json(found, longest, parts)
        sizes = [*map(len, level)]
        longest, parts = max(longest, *sizes), parts + sum(sizes)
        if parts > MOST_PARTS:
            return _Json(None, 0, parts)
        level = [
            item
            for holder in level
            for item in (holder.values() if type(holder) is dict else holder)
            if type(item) in (dict, list)
        ]
    return _NO_JSON


def _text(value: bytes) -> str:
    """Write bytes as text: as they are, or in base64 where they are none."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return b64encode(value).decode()


_MADE: Final[Mapping[str, Callable[[Input], Any]]] = {
    "key": _key_of,
    "headers": _headers_of,
    "size": _size_of,
    "value": _value_of,
    "json": _json_of,
}
