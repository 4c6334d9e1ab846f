"""
Patterns of topic names: regular expressions that take linear time, whatever they are.

The library that carries out rules carries out these too, and compiles an expression anew
each time it is asked. So names are asked about many at a time where the expression allows
it: a block of which nothing matches, or everything does, needs no closer look.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from tinymq.errors import InvalidRequest
from tinymq.names import own_topic
from tinymq.routing.regexcost import regex_cost

if TYPE_CHECKING:
    import cel

#: Most of `regex_cost` of a pattern.
MOST_COST: Final = 500
#: Names in the largest block.
_BLOCK: Final = 256
#: Names that are looked at in one go where each is looked at by itself.
_SOME: Final = 64
#: So few names are looked at one by one.
_FEW: Final = 3
#: Expressions that cannot match the end of a line, so that each name is a line for them.
_PLAIN: Final = re.compile(
    r"(?:[\w .|*+?){},\]^$-]|\(\?:|\(\?i\)|\((?!\?)|\[(?!\^)|\\[.dw-])*", re.ASCII
)


class Pattern:
    """
    A pattern, and the names that match it.

    Args:
        text: The regular expression.

    Raises:
        InvalidRequest: It is none, or too large.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        #: The names that match, of those that were looked at.
        self.names: set[str] = set()
        #: Names that are still to be looked at.
        self.pending: list[str] = []
        _check(text)
        plain = _PLAIN.fullmatch(text) is not None
        if plain:  # names are of ASCII, and its classes are compiled twenty times as fast
            text = text.replace(r"\d", "[0-9]").replace(r"\w", "[0-9A-Za-z_]")
        self._one = _program(rf"\A(?:{text})\z")
        self._any = _program(rf"(?m)^(?:{text})$") if plain else None
        self._all = _program(rf"(?m)\A(?:(?:{text})\n)+\z") if plain else None

    def begin(self, names: Iterable[str]) -> None:
        """Have names to look at, little by little."""
        shown = (name for name in names if not own_topic(name))
        self.pending = sorted(shown, reverse=True)

    def step(self) -> None:
        """Look at some of the names that are still to be looked at: a few milliseconds' worth."""
        many = _SOME if self._any is None else _BLOCK
        self._look(self.pending[: -many - 1 : -1])
        del self.pending[-many:]

    def came(self, names: Iterable[str]) -> None:
        """Look at topics that came."""
        for name in names:
            if not own_topic(name) and _matches(self._one, name):
                self.names.add(name)

    def went(self, names: Iterable[str]) -> None:
        """Forget topics."""
        self.names.difference_update(names)

    def _look(self, names: Sequence[str]) -> None:
        if self._any is None or self._all is None or len(names) <= _FEW:
            self.names.update(name for name in names if _matches(self._one, name))
        elif _matches(self._any, "\n".join(names)):
            if _matches(self._all, "\n".join(names) + "\n"):
                self.names.update(names)
            else:
                half = len(names) // 2
                self._look(names[:half])
                self._look(names[half:])


class Patterns:
    """The patterns that somebody holds, each once."""

    def __init__(self) -> None:
        self._held: WeakValueDictionary[str, Pattern] = WeakValueDictionary()

    def begun(self, text: str, names: Iterable[str]) -> Pattern:
        """
        Return a pattern, which may have names that it has still to look at.

        Args:
            text: The regular expression.
            names: All names that there are, if it is new here.

        Raises:
            InvalidRequest: It is none, or too large.
        """
        found = self._held.get(text)
        if found is None:
            found = self._held[text] = Pattern(text)
            found.begin(names)
        return found

    def follow(self, came: Iterable[str], went: Iterable[str]) -> None:
        """Tell all of them which names came and went."""
        for pattern in tuple(self._held.values()):
            pattern.went(went)
            pattern.came(came)


def _check(text: str) -> None:
    try:
        large = regex_cost(text) > MOST_COST
        # Alone first, so that no bracket of it closes ours.
        why = "it is too large; repeat less often, or ask for less" if large else ""
        if not large:
            _matches(_program(text), "")
    except ValueError as error:
        why = str(error)
    if why:
        raise InvalidRequest(f"the pattern {text[:60]!a}: {why}", field="r")


@lru_cache(maxsize=100)
def _program(expression: str) -> cel.Program:
    import cel  # noqa: PLC0415 - takes 200 ms, which only those pay who have patterns

    return cel.compile(f"name.matches({_literal(expression)})")


def _literal(text: str) -> str:
    """Write a text as the language of rules has it."""
    safe = (each if each.isascii() and each.isalnum() else f"\\U{ord(each):08x}" for each in text)
    return f'"{"".join(safe)}"'


def _matches(program: cel.Program, text: str) -> bool:
    try:
        return program.execute({"name": text}) is True
    except BaseException as error:
        if isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError)):
            raise
        # The library's panics are no Exception.
        line = str(error).partition("\nerror: ")[2].partition(". Check function")[0]
        raise ValueError(line[:200] or "it cannot be read") from None
