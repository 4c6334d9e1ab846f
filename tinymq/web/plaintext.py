"""Bytes as text that cannot lie: control marks and marks that turn its direction are shown."""

from __future__ import annotations

import re
from typing import Final

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
