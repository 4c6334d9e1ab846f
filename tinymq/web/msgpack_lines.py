"""MessagePack in the manner of JSON, on lines or in one line; duplicate keys are kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

import msgpack

from tinymq.web.json_lines import Indenter, Line, Token
from tinymq.web.plaintext import visible

_MOST_ITEMS: Final = 5000


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
    indenter = Indenter()
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
