"""Records as text, as JSON and in a format of the user's own."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from tinymq.cli.failure import USAGE, Failed
from tinymq.cli.output import printable
from tinymq.cli.values import human_size, iso

if TYPE_CHECKING:
    from tinymq.wire.records import Record

#: Bytes of a value that `peek` and `tail` show.
PREVIEW: Final = 200
_NOTHING: Final[Mapping[str, Any]] = {}


@frozen
class Placed:
    """
    A record with where it came from.

    Attributes:
        topic: Its topic.
        partition: Its partition.
        record: The record.
        more: What else JSON shows of it.
    """

    topic: str
    partition: int
    record: Record
    more: Mapping[str, Any] = _NOTHING


Form = Callable[[Placed], bytes]


def text(data: bytes | None) -> str:
    """Write bytes as text; those that are not UTF-8 escaped, and nothing for None."""
    return "" if data is None else data.decode("utf-8", "backslashreplace")


def value_line(placed: Placed) -> bytes:
    """Write the value as it is, and a newline."""
    return (placed.record.value or b"") + b"\n"


def safe_value_line(placed: Placed) -> bytes:
    """Write the value for a terminal, so that it cannot move the cursor."""
    shown = text(placed.record.value).split("\n")
    return "\n".join(printable(line.replace("\t", "    ")) for line in shown).encode() + b"\n"


def preview_line(placed: Placed) -> bytes:
    """Write place, time, key, headers and the beginning of the value on one line."""
    record = placed.record
    parts = [f"{placed.partition}@{record.offset}", iso(record.timestamp)]
    if record.key is not None:
        parts.append(f"key={printable(text(record.key))}")
    parts += [f"{name}:{printable(text(value))}" for name, value in record.headers]
    if record.value is None:
        parts.append("(tombstone)")
    else:
        parts.append(printable(text(record.value[:PREVIEW])))
        if len(record.value) > PREVIEW:
            parts.append(f"… ({human_size(len(record.value))})")
    return "  ".join(parts).encode() + b"\n"


def _encoded(data: bytes | None) -> tuple[str | None, str | None]:
    """Give a value for JSON, and ``base64`` when it is not UTF-8."""
    if data is None:
        return None, None
    try:
        return data.decode(), "string"
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"


def document(placed: Placed) -> dict[str, Any]:
    """Give a record for JSON; nothing is lost, whatever its bytes are."""
    record = placed.record
    key, key_encoding = _encoded(record.key)
    value, value_encoding = _encoded(record.value)
    headers = []
    for name, content in record.headers:
        shown, encoding = _encoded(content)
        headers.append({"name": name, "value": shown, "encoding": encoding})
    return {
        "topic": placed.topic,
        "partition": placed.partition,
        "offset": record.offset,
        "time_ms": record.timestamp,
        "created_ms": record.created,
        "key": key,
        "key_encoding": key_encoding,
        "headers": headers,
        "size": 0 if record.value is None else len(record.value),
        "value": value,
        "value_encoding": value_encoding,
        **placed.more,
    }


# --- the user's own format ---------------------------------------------------

#: What each letter after a percent sign stands for.
TOKENS: Final[dict[str, Form]] = {
    "t": lambda placed: placed.topic.encode(),
    "p": lambda placed: b"%d" % placed.partition,
    "o": lambda placed: b"%d" % placed.record.offset,
    "k": lambda placed: placed.record.key or b"",
    "v": lambda placed: placed.record.value or b"",
    "h": lambda placed: b",".join(
        name.encode() + b":" + value for name, value in placed.record.headers
    ),
    "d": lambda placed: iso(placed.record.timestamp).encode(),
    "T": lambda placed: b"%d" % placed.record.timestamp,
    "K": lambda placed: b"%d" % len(placed.record.key or b""),
    "S": lambda placed: b"%d" % len(placed.record.value or b""),
    "%": lambda placed: b"%",
}

FORMAT_HELP: Final = (
    r"Such as '%k %v\n': %t topic, %p partition, %o offset, %k key, %v value as raw bytes, "
    r"%h headers, %d time, %T the same in ms, %K and %S sizes of key and value, %%; \n \t \0 \xNN."
)

_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


def compile_format(pattern: str) -> Form:
    """
    Prepare a format.

    Args:
        pattern: See `FORMAT_HELP`.

    Returns:
        What writes one record so. Nothing is added, not even a newline.

    Raises:
        Failed: It holds a letter or an escape that means nothing.
    """
    forms: list[Form] = []
    literal = bytearray()
    place = 0
    while place < len(pattern):
        mark = pattern[place]
        if mark == "%":
            forms += _constant(literal)
            forms.append(_token(pattern[place + 1 : place + 2]))
            place += 2
        elif mark == "\\":
            data, used = _escape(pattern[place + 1 :])
            literal += data
            place += 1 + used
        else:
            literal += mark.encode("utf-8", "surrogateescape")
            place += 1
    forms += _constant(literal)
    return lambda placed: b"".join(form(placed) for form in forms)


def _constant(literal: bytearray) -> list[Form]:
    """Turn gathered text into a form, and begin anew."""
    if not literal:
        return []
    data = bytes(literal)
    literal.clear()
    return [lambda placed: data]


def _token(letter: str) -> Form:
    if letter not in TOKENS or not letter:
        raise Failed(f"%{letter} means nothing in a format", FORMAT_HELP, USAGE)
    return TOKENS[letter]


def _escape(rest: str) -> tuple[bytes, int]:
    r"""Read what follows a backslash; return the bytes and how much was read."""
    if rest[:1] in _ESCAPES and rest:
        return _ESCAPES[rest[0]], 1
    if rest[:1] == "x":
        try:
            return bytes.fromhex(rest[1:3]), 3
        except ValueError:
            pass
    raise Failed(f"\\{rest[:1]} means nothing in a format", FORMAT_HELP, USAGE)
