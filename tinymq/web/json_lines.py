"""
JSON on lines, token by token: nothing is decoded and written back.

So what is shown is what is stored: ``1.00``, 2^63-1 and duplicate keys stay as
they are. Work is bounded by tokens and by lines.
"""

from __future__ import annotations

import json
import re
from typing import Final, NamedTuple

from tinymq.web.plaintext import visible

#: Lines after which re-indenting ends and the rest follows as it is.
MOST_LINES: Final = 2000
#: Tokens after which it ends too: a hostile value has them all on one line.
MOST_TOKENS: Final = 4000
_MOST_INDENT: Final = 24


class Token(NamedTuple):
    """A piece of a line. Strings are set off from the rest."""

    text: str
    string: bool = False


Line = tuple[Token, ...]

_TOKEN: Final = re.compile(
    r"""[ \t\r\n]*(?:
        (?P<open>[\[{]) | (?P<close>[\]}]) | (?P<comma>,) | (?P<colon>:)
      | (?P<string>"(?:[^"\\]|\\.)*+") | (?P<other>[^ \t\r\n\[\]{},:"]+)
    )""",
    re.VERBOSE | re.DOTALL,
)


class Indenter:
    """Puts JSON tokens on lines. Tokens are written as they were read."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self._line: list[Token] = []
        self._depth = 0
        self._fresh = False
        self._tokens = 0

    @property
    def full(self) -> bool:
        """Whether enough work was done for one page."""
        return self._tokens >= MOST_TOKENS or len(self.lines) >= MOST_LINES

    def _break(self) -> None:
        self.lines.append(_joined(self._line))
        self._line = [Token("  " * min(self._depth, _MOST_INDENT))]

    def feed(self, kind: str, text: str) -> None:
        """Add one token."""
        self._tokens += 1
        if kind == "close":
            self._depth = max(0, self._depth - 1)
            if not self._fresh:
                self._break()
        elif self._fresh:
            self._break()
        self._fresh = kind == "open"
        self._line.append(Token(visible(text), kind == "string"))
        if kind == "open":
            self._depth += 1
        elif kind == "comma":
            self._break()
        elif kind == "colon":
            if len(self._line) > 1:
                self._line[-2] = Token(self._line[-2].text)
            self._line.append(Token(" "))

    def finish(self, rest: str) -> tuple[Line, ...]:
        """End with what could not be read as a token."""
        if rest.strip():
            self._line.append(Token(visible(rest)))
        return (*self.lines, _joined(self._line))


def _joined(line: list[Token]) -> Line:
    """Join neighbours that are shown alike: fewer pieces to write down."""
    found: list[Token] = []
    for text, string in line:
        if found and not string and not found[-1].string:
            found[-1] = Token(found[-1].text + text)
        else:
            found.append(Token(text, string))
    return tuple(found)


def indent_json(text: str) -> tuple[tuple[Line, ...], bool]:
    """
    Put JSON on lines without touching one token.

    Args:
        text: JSON, whole or cut off anywhere. Text that is not JSON comes back
            as it is, from where it stops being JSON.

    Returns:
        The lines, and whether re-indenting ended early. The rest then follows
        as it is, so that nothing is missing.
    """
    indenter = Indenter()
    position = 0
    while not indenter.full:
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            break
        indenter.feed(match.lastgroup, match[match.lastgroup])
        position = match.end()
    return indenter.finish(text[position:]), indenter.full and position < len(text)


def is_json(value: bytes) -> bool:
    """Whether bytes are one JSON object, array or string, as far as can be told."""
    begin = value[:64].lstrip()[:1]
    if begin not in {b"{", b"[", b'"'}:
        return False
    try:
        json.loads(value, parse_int=str, parse_float=str)
    except RecursionError:
        return True
    except ValueError:
        return False
    return True


def json_member(text: str, name: str) -> str:
    """
    Cut the value of a member out of a JSON object, as it is written there.

    Args:
        text: Valid JSON, an object.
        name: The member; of duplicates the last one counts, as in Python.

    Returns:
        The text of the value; empty when there is no such member.
    """
    found, position, depth = "", 0, 0
    key, begin = "", -1
    while match := _TOKEN.match(text, position):
        kind = match.lastgroup or ""
        if kind == "close":
            depth -= 1
        if begin >= 0 and ((kind == "comma" and depth == 1) or (kind == "close" and depth == 0)):
            found, begin = text[begin : match.start(kind)].strip(), -1
        if kind == "colon" and depth == 1 and begin < 0 and json.loads(key) == name:
            begin = match.end()
        if kind == "open":
            depth += 1
        key = match[kind] if kind == "string" and depth == 1 else key
        position = match.end()
    return found
