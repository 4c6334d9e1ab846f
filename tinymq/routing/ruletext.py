"""
What can be said of a rule by reading its text, without carrying it out.

The library that carries rules out tells the names that one mentions, but not how it is
built, and cannot be stopped. So what bounds the time of a rule is read off its words.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from attrs import define, field, frozen

from tinymq.routing.regexcost import regex_cost

#: The words that go through the elements of a list or a map.
MACROS: Final = ("all", "exists", "exists_one", "map", "filter")
_MACROS: Final = {*MACROS, "existsOne", "transformList", "transformMap", "transformMapEntry"}
#: Variables that may be large.
_LARGE: Final = {"headers", "value", "json"}
_WORDS_OF_LITERALS: Final = {"true", "false", "null"}
#: Most bytes of a value that a rule looks at, of one with macros, and of one with a
#: regular expression (of its key and headers, too).
MOST_VALUE: Final = 256 * 1024
MOST_WALKED: Final = 64 * 1024
MOST_SEARCHED: Final = 32 * 1024
#: Most of `regex_cost` of all regular expressions of a rule.
MOST_SEARCH: Final = 500

_TOKEN: Final = re.compile(
    r"""
    (?P<space> \s+ | //[^\n]* )
    | (?P<text> [rRbB]{0,2} (?:
        '''(?:[^\\]|\\.)*?'''
        | \"""(?:[^\\]|\\.)*?\"""
        | '(?:[^'\\\n]|\\.)*'
        | "(?:[^"\\\n]|\\.)*"
      ))
    | (?P<name> [A-Za-z_][A-Za-z0-9_]* )
    | (?P<number> [0-9][0-9A-Za-z_.]* )
    | (?P<sign> . )
    """,
    re.VERBOSE | re.DOTALL,
)
#: A raw text ends at the first quote, whatever stands before it.
_RAW: Final = re.compile(
    r"""[bB]?[rR][bB]?(?:'''.*?'''|\"""(?:.*?)\"""|'[^'\n]*'|"[^"\n]*")""", re.DOTALL
)
_ESCAPES: Final = re.compile(r"\\(.)", re.DOTALL)
_KNOWN: Final = {"\\": "\\", "'": "'", '"': '"', "n": "\n", "t": "\t", "r": "\r"}


class _Token(NamedTuple):
    kind: str
    text: str


_END: Final = _Token("end", "")


@frozen
class RuleText:
    """
    What is known of a rule by its text.

    Attributes:
        length: In characters.
        macros: How many macros it has.
        depth: How deep macros stand within one another.
        pluses: How many additions it has.
        large: How often it mentions what may be large.
        searches: How many regular expressions it has.
        search_cost: How large they are, see `regex_cost`.
        commas: How many commas.
        bound: What macros call the elements.
        private: Names of functions that begin as no function does.
        inside: What stands within a macro and may not.
        fault: What else is wrong.
    """

    length: int
    macros: int
    depth: int
    pluses: int
    large: int
    searches: int
    search_cost: int
    commas: int
    bound: frozenset[str]
    private: frozenset[str]
    inside: str
    fault: str

    @classmethod
    def read(cls, text: str) -> RuleText:
        """
        Read a rule.

        Args:
            text: The rule; one that is no CEL gives something, too.
        """
        reader = _Reader(_tokens(text))
        reader.run()
        return cls(
            length=len(text),
            macros=reader.macros,
            depth=reader.deepest,
            pluses=reader.pluses,
            large=reader.large,
            searches=reader.searches,
            search_cost=reader.cost,
            commas=reader.commas,
            bound=frozenset(reader.bound),
            private=frozenset(reader.private),
            inside=reader.inside,
            fault=reader.fault,
        )

    @property
    def most_value(self) -> int:
        """Most bytes of a value that the rule may look at."""
        if self.searches:
            return MOST_SEARCHED
        return MOST_WALKED if self.macros else MOST_VALUE

    def work(self, elements: int) -> int:
        """
        Return about how many characters are carried out for one message.

        Args:
            elements: As many as its longest list has, or its largest map.
        """
        longest = max(elements, self.commas + 1) * (self.pluses + 1)
        return int(longest ** max(self.depth, 1)) * max(self.macros, 1) * self.length


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    at = 0
    while at < len(text):
        match = _RAW.match(text, at)
        if match is not None:
            found.append(_Token("text", match.group()))
        else:
            match = _TOKEN.match(text, at)
            assert match is not None, "any character is a sign"
            if match.lastgroup != "space":
                found.append(_Token(str(match.lastgroup), match.group()))
        at = match.end()
    return found


@define
class _Reader:
    """Goes through the words once."""

    tokens: list[_Token]
    macros: int = 0
    deepest: int = 0
    pluses: int = 0
    large: int = 0
    searches: int = 0
    commas: int = 0
    cost: int = 0
    bound: set[str] = field(factory=set)
    private: set[str] = field(factory=set)
    inside: str = ""
    fault: str = ""
    #: The brackets that are open: "macro", "list" (a literal) or "".
    open: list[str] = field(factory=list)

    def run(self) -> None:
        """Go through them."""
        for at, token in enumerate(self.tokens):
            before = self.tokens[at - 1] if at else _END
            if token.kind == "name":
                self._name(at, token.text, before)
            elif token.kind == "sign":
                self._sign(token.text, at, before)

    @property
    def depth(self) -> int:
        """How many macros are open."""
        return self.open.count("macro")

    def _next(self, at: int, by: int = 1) -> _Token:
        return self.tokens[at + by] if at + by < len(self.tokens) else _END

    def _name(self, at: int, name: str, before: _Token) -> None:
        called = self._next(at).text == "("
        field_of = before.text == "."
        if called and name.startswith("_"):
            self.private.add(name)
        if called and name == "matches":
            self._search(at, field_of=field_of)
        large = not called and not field_of and name in _LARGE
        self.large += large
        if not self.depth:
            return
        if large:
            self._refuse(name)
        if called and name in {"matches", "string"}:
            self._refuse(f"{name}()")
        if "list" in self.open and name not in _WORDS_OF_LITERALS:
            self._refuse("a list of other things than plain values")

    def _search(self, at: int, *, field_of: bool) -> None:
        self.searches += 1
        argument, end = self._next(at, 2), self._next(at, 3)
        if not field_of or argument.kind != "text" or end.text != ")":
            self.fault = self.fault or "write matches as TEXT.matches('PATTERN'), with a plain text"
            return
        try:
            self.cost += regex_cost(_plain(argument.text))
        except ValueError as error:
            self.fault = self.fault or str(error)
        if self.cost > MOST_SEARCH:
            self.fault = self.fault or (
                "the regular expression is too large; repeat less often, or ask for less"
            )

    def _sign(self, sign: str, at: int, before: _Token) -> None:
        if sign == ",":
            self.commas += 1
        elif sign == "+":
            self.pluses += 1
            if self.depth:
                self._refuse("+")
        elif sign == "`":
            self.fault = self.fault or "names in ` are not known here; write map['name']"
        elif sign in "([{":
            self._opened(sign, at, before)
        elif sign in ")]}" and self.open:
            self.open.pop()

    def _opened(self, sign: str, at: int, before: _Token) -> None:
        kind = ""
        if sign == "(" and before.kind == "name" and before.text in _MACROS:
            kind = "macro"
            self.macros += 1
            if self._next(at).kind == "name" and self._next(at, 2).text == ",":
                self.bound.add(self._next(at).text)
        elif sign == "[" and not _is_value(before):
            kind = "list"
        elif sign == "{" and _is_value(before):
            self.fault = self.fault or "only maps stand in {}, no messages"
        elif sign == "{" and self.depth:
            self._refuse("{")
        self.open.append(kind)
        self.deepest = max(self.deepest, self.depth)

    def _refuse(self, what: str) -> None:
        self.inside = self.inside or what


def _is_value(before: _Token) -> bool:
    """Whether a bracket after this takes an element, and begins no list."""
    return (before.kind in {"name", "text"} and before.text != "in") or before.text in {
        ")",
        "]",
        "}",
    }


def _plain(token: str) -> str:
    """Return what a text says that stands in a rule."""
    quote = min(at for mark in "'\"" if (at := token.find(mark)) >= 0)
    marks, body = token[:quote].lower(), token[quote:]
    if "b" in marks:
        raise ValueError("a regular expression is a text, not bytes")
    width = 3 if body[:3] in {"'''", '"""'} else 1
    body = body[width:-width]
    if "r" in marks:
        return body
    return _ESCAPES.sub(_unescaped, body)


def _unescaped(match: re.Match[str]) -> str:
    found = _KNOWN.get(match.group(1))
    if found is None:
        raise ValueError(r"write the regular expression as a raw text, such as r'\d'")
    return found
