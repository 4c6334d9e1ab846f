"""
Shows the bytes of a value: text, JSON, MessagePack, hex and base64.

Nothing is decoded into Python numbers and written back, so what is shown is
what is stored: ``1.00``, 2^63-1 and duplicate keys stay as they are. Work is
bounded: one window of a value, at most so many lines.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from typing import Final, Literal, NamedTuple

import msgpack
from attrs import frozen

Kind = Literal["json", "msgpack", "text", "hex", "base64"]
KINDS: Final[tuple[Kind, ...]] = ("json", "msgpack", "text", "hex", "base64")
NAMES: Final[dict[Kind, str]] = {
    "json": "JSON",
    "msgpack": "MessagePack",
    "text": "Text",
    "hex": "Hex",
    "base64": "Base64",
}
#: Bytes of a value that one page shows.
WINDOW: Final = 64 * 1024
#: A hex dump is five times as long as its bytes.
HEX_WINDOW: Final = 16 * 1024
#: Lines after which re-indenting ends and the rest follows as it is.
MOST_LINES: Final = 2000
#: Tokens after which it ends too: a hostile value has them all on one line.
MOST_TOKENS: Final = 4000
_CUT: Final = "Only its beginning is put on lines; "
_MOST_INDENT: Final = 24
_MOST_ITEMS: Final = 5000
_CONTENT_TYPES: Final[dict[str, Kind]] = {
    "application/json": "json",
    "application/msgpack": "msgpack",
    "application/x-msgpack": "msgpack",
    "application/vnd.msgpack": "msgpack",
    "text/plain": "text",
    "text/html": "text",
    "application/xml": "text",
}


class Token(NamedTuple):
    """A piece of a line. Strings are set off from the rest."""

    text: str
    string: bool = False


Line = tuple[Token, ...]


@frozen(kw_only=True)
class Shown:
    """
    A value, or a window of it, ready to be written down.

    Attributes:
        kind: How it is shown.
        guess: Why this kind was chosen; empty when it was asked for.
        lines: For kinds that have numbered lines.
        block: For kinds that are one block of text.
        note: A sentence on what was left out or could not be read.
    """

    kind: Kind
    guess: str = ""
    lines: tuple[Line, ...] = ()
    block: str = ""
    note: str = ""


# --- text --------------------------------------------------------------------

_CONTROLS: Final = {c: 0x2400 + c for c in range(32) if c not in {9, 10, 13}} | {0x7F: 0x2421}
#: Marks that reorder text; shown as their names so that a line cannot lie.
BIDI: Final = {c: f"<U+{c:04X}>" for c in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}


_MARKS: Final[dict[int, int | str]] = {**_CONTROLS, **BIDI}
#: Looking is far cheaper than translating, and mostly finds nothing.
_MARKED: Final = re.compile("[" + "".join(re.escape(chr(c)) for c in _MARKS) + "]")


def visible(text: str) -> str:
    """Make control and direction marks visible. Line ends and tabs stay."""
    return text.translate(_MARKS) if _MARKED.search(text) else text


def to_text(value: bytes) -> str:
    """Decode UTF-8; what is not UTF-8 becomes a replacement mark."""
    return visible(value.decode("utf-8", "replace"))


def one_line(value: bytes | None, most: int = 200) -> str:
    """
    Write the beginning of bytes in one line, for a list.

    Args:
        value: The bytes.
        most: Most characters.
    """
    if value is None:
        return ""
    text = value[: most * 4].decode("utf-8", "replace")
    if text.count("\N{REPLACEMENT CHARACTER}") > len(text) // 8 + 1:
        text = value[: most // 3].hex(" ")
    flat = " ".join(visible(text).split())
    return flat if len(flat) <= most else flat[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


def is_text(value: bytes) -> bool:
    """Whether bytes are UTF-8 without control characters; a cut end is forgiven."""
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.reason != "unexpected end of data":
            return False
        text = value[: error.start].decode("utf-8")
    return text.translate(_CONTROLS) == text


# --- JSON --------------------------------------------------------------------

_TOKEN: Final = re.compile(
    r"""[ \t\r\n]*(?:
        (?P<open>[\[{]) | (?P<close>[\]}]) | (?P<comma>,) | (?P<colon>:)
      | (?P<string>"(?:[^"\\]|\\.)*+") | (?P<other>[^ \t\r\n\[\]{},:"]+)
    )""",
    re.VERBOSE | re.DOTALL,
)


class _Indenter:
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
    indenter = _Indenter()
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


# --- MessagePack -------------------------------------------------------------


class _Pairs(list[tuple[object, object]]):
    """The pairs of a map, duplicates included, in order."""


def _unpack(value: bytes) -> object:
    return msgpack.unpackb(
        value,
        raw=False,
        unicode_errors="surrogateescape",
        strict_map_key=False,
        object_pairs_hook=_Pairs,
        timestamp=0,
        max_array_len=_MOST_ITEMS,
        max_map_len=_MOST_ITEMS,
    )


def _scalar(item: object) -> Token:
    if isinstance(item, str):
        safe = item.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        return Token(visible(json.dumps(safe, ensure_ascii=False)), string=True)
    if isinstance(item, bytes):
        return Token(f"h'{item.hex()}'")
    if isinstance(item, bool) or item is None:
        return Token({True: "true", False: "false", None: "null"}[item])
    if isinstance(item, msgpack.Timestamp):
        return Token(f"timestamp({item.seconds}.{item.nanoseconds:09d})")
    if isinstance(item, msgpack.ExtType):
        return Token(f"ext({item.code}, h'{item.data.hex()}')")
    return Token(repr(item))


def _msgpack_tokens(item: object) -> Iterator[tuple[str, str]]:
    if isinstance(item, _Pairs):
        yield from _bracketed("{", "}", item)
    elif isinstance(item, list):
        yield from _bracketed("[", "]", [(None, one) for one in item])
    else:
        token = _scalar(item)
        yield ("string" if token.string else "other"), token.text


def _bracketed(
    begin: str, end: str, pairs: list[tuple[object, object]]
) -> Iterator[tuple[str, str]]:
    yield "open", begin
    for index, (key, item) in enumerate(pairs):
        if index:
            yield "comma", ","
        if begin == "{":
            yield from _msgpack_tokens(key)
            yield "colon", ":"
        yield from _msgpack_tokens(item)
    yield "close", end


def indent_msgpack(value: bytes) -> tuple[tuple[Line, ...], bool]:
    """
    Write MessagePack in the manner of JSON.

    Returns:
        The lines, and whether they end before the value does.

    Raises:
        ValueError: It is not one whole MessagePack value, or too large a one.
    """
    indenter = _Indenter()
    try:
        for kind, text in _msgpack_tokens(_unpack(value)):
            indenter.feed(kind, text)
            if indenter.full:
                return indenter.finish("\N{HORIZONTAL ELLIPSIS}"), True
    except (msgpack.UnpackException, RecursionError, TypeError, OverflowError) as error:
        raise ValueError(str(error) or "not MessagePack") from error
    return indenter.finish(""), False


def msgpack_line(value: bytes, most: int) -> str | None:
    """
    Write the beginning of MessagePack in one line; work ends with the line.

    Args:
        value: One whole value.
        most: Most characters.

    Returns:
        The line; None when it is not MessagePack.
    """
    try:
        item = _unpack(value)
    except (ValueError, msgpack.UnpackException, RecursionError, TypeError, OverflowError):
        return None
    text = ""
    for kind, token in _msgpack_tokens(item):
        text += visible(token) + (" " if kind in {"comma", "colon"} else "")
        if len(text) > most:
            return text[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"
    return text


def begins_as_msgpack(value: bytes) -> bool:
    """Whether the first byte is that of a MessagePack map or array."""
    return bool(value) and (value[0] & 0xE0 == 0x80 or 0xDC <= value[0] <= 0xDF)


def is_msgpack(value: bytes) -> bool:
    """Whether bytes are one whole MessagePack map or array."""
    if not begins_as_msgpack(value):
        return False
    try:
        _unpack(value)
    except (ValueError, msgpack.UnpackException, RecursionError, TypeError):
        return False
    return True


# --- hex and base64 ----------------------------------------------------------


def dump_hex(value: bytes, first: int = 0) -> str:
    """
    Write a hex dump: offset, sixteen bytes, and their ASCII.

    Args:
        value: The bytes.
        first: The offset of the first one.
    """
    lines = []
    for place in range(0, len(value), 16):
        row = value[place : place + 16]
        text = "".join(chr(b) if 32 <= b < 127 else "." for b in row)
        lines.append(f"{first + place:08x}  {row[:8].hex(' '):23}  {row[8:].hex(' '):23}  {text}")
    return "\n".join(lines)


def dump_base64(value: bytes) -> str:
    """Write base64 in lines of 76 characters."""
    return base64.encodebytes(value).decode("ascii").rstrip("\n")


# --- choosing ----------------------------------------------------------------


def guess(value: bytes, whole: bool, content_type: str) -> tuple[Kind, str]:
    """
    Choose how to show a value.

    Args:
        value: A window that begins at its first byte.
        whole: Whether the window is all of it.
        content_type: What a header says, or nothing.

    Returns:
        The kind, and the reason in words.
    """
    named = content_type.split(";", maxsplit=1)[0].strip().lower()
    kind = _CONTENT_TYPES.get(named) or ("json" if named.endswith("+json") else None)
    if kind and (kind == "msgpack" or is_text(value)):
        return kind, "guessed from content-type"
    if whole and is_json(value):
        return "json", "guessed"
    if is_text(value):
        cut_json = not whole and value[:64].lstrip()[:1] in {b"{", b"["}
        return ("json" if cut_json else "text"), "guessed"
    if whole and is_msgpack(value):
        return "msgpack", "guessed"
    return "hex", "guessed"


def _lines(text: str) -> tuple[Line, ...]:
    lines = text.splitlines() or [""]
    shown = [(Token(line),) for line in lines[:MOST_LINES]]
    if len(lines) > MOST_LINES:
        shown.append((Token("\n".join(lines[MOST_LINES:])),))
    return tuple(shown)


def _show_msgpack(value: bytes) -> Shown:
    try:
        lines, cut = indent_msgpack(value)
        note = _CUT + "the rest is left out. Hex shows all of it." if cut else ""
        return Shown(kind="msgpack", lines=lines, note=note)
    except ValueError as error:
        return Shown(
            kind="msgpack",
            block=dump_hex(value[:HEX_WINDOW]),
            note=f"These bytes are not one whole MessagePack value of a size shown here: {error}. "
            "This is their hex dump.",
        )


def _show_json(value: bytes) -> Shown:
    lines, cut = indent_json(value.decode("utf-8", "replace"))
    return Shown(kind="json", lines=lines, note=_CUT + "the rest follows as it is." if cut else "")


_SHOW: Final[dict[Kind, Callable[[bytes, int], Shown]]] = {
    "json": lambda v, at: _show_json(v),
    "msgpack": lambda v, at: _show_msgpack(v),
    "text": lambda v, at: Shown(kind="text", lines=_lines(to_text(v))),
    "hex": lambda v, at: Shown(kind="hex", block=dump_hex(v, at)),
    "base64": lambda v, at: Shown(kind="base64", block=dump_base64(v)),
}


def show(value: bytes, kind: Kind, skip: int = 0) -> Shown:
    """
    Show a window of a value.

    Args:
        value: The window.
        kind: How to show it.
        skip: The offset of the window within the value.
    """
    return _SHOW[kind](value, skip)


def window_of(kind: Kind) -> int:
    """How many bytes a page of this kind shows."""
    return HEX_WINDOW if kind == "hex" else WINDOW
