"""
Shows the bytes of a value: text, JSON, MessagePack, hex and base64.

Chooses how, and says why. One window of a value is shown at a time, and at most
so many of its lines are numbered.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Final, Literal, get_args

from attrs import frozen

from tinymq.web.json_lines import MOST_LINES, Line, Token, indent_json, is_json
from tinymq.web.msgpack_lines import indent_msgpack, is_msgpack
from tinymq.web.plaintext import is_text, to_text

Kind = Literal["json", "msgpack", "text", "hex", "base64"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
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
_CUT: Final = "Only its beginning is put on lines; "
_CONTENT_TYPES: Final[dict[str, Kind]] = {
    "application/json": "json",
    "application/msgpack": "msgpack",
    "application/x-msgpack": "msgpack",
    "application/vnd.msgpack": "msgpack",
    "text/plain": "text",
    "text/html": "text",
    "application/xml": "text",
}


@frozen(kw_only=True)
class Shown:
    """
    A value, or a window of it, ready to be written down.

    Attributes:
        kind: How it is shown.
        lines: For kinds that have numbered lines.
        block: For kinds that are one block of text.
        note: A sentence on what was left out or could not be read.
    """

    kind: Kind
    lines: tuple[Line, ...] = ()
    block: str = ""
    note: str = ""


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
