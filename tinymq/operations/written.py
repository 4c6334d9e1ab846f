"""How bytes of messages are told: as text where they are some, else as base64."""

from __future__ import annotations

import base64

from tinymq.operation import Result


def written(row: Result, *names: str) -> Result:
    """
    Write the bytes in a row, and beside each which way that was.

    Args:
        row: What is told of a message.
        *names: Fields that hold bytes, or None.

    Returns:
        The row, with a field ``…_encoding`` for each of them.
    """
    told = dict(row)
    for name in names:
        value, encoding = row[name], "string"
        if isinstance(value, bytes):
            text = _text(value)
            if text is None:
                value, encoding = base64.b64encode(value).decode(), "base64"
            else:
                value = text
        told |= {name: value, f"{name}_encoding": encoding}
    return told


def _text(value: bytes) -> str | None:
    """Read text, maybe cut within its last character; None if it is none."""
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        if error.reason != "unexpected end of data":
            return None
        text = value[: error.start].decode()
    return text if all(each.isprintable() or each in "\t\n\r" for each in text) else None
