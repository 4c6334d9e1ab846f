"""What a message is known by, and what else guards read off it."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Final

from tinymq.client.core.handling import Reject
from tinymq.patterns.outbox.outbox import MESSAGE_ID

#: Reads something off a message.
Read = Callable[[Any], Any]

#: Characters of a text that are kept as they are; longer ones are hashed.
_MOST: Final = 150


def message_id(message: Any) -> str:
    """
    Tell the id in the header `MESSAGE_ID`, as an outbox writes it, or else the place.

    An id tells a message that was *published* twice; the place only one that was *delivered*
    twice.

    Args:
        message: The message.
    """
    found = _header(message, MESSAGE_ID)
    return place(message) if found is None else as_text(found)


def place(message: Any) -> str:
    """
    Tell where the message is stored, and since when, so that a topic made anew has others.

    Args:
        message: The message.
    """
    return f"{message.topic}/{message.partition}@{message.offset}/{message.timestamp}"


def header(name: str) -> Read:
    """
    Read a header; a message without it is rejected.

    Args:
        name: Its name.
    """

    def read(message: Any) -> bytes:
        found = _header(message, name)
        if found is None:
            raise Reject(f"it has no header {name}")
        return found

    return read


def number_header(name: str) -> Read:
    """
    Read a header with a whole number, in decimal digits; other messages are rejected.

    Args:
        name: Its name.
    """
    text = header(name)

    def read(message: Any) -> int:
        found = text(message)
        try:
            return int(found)
        except ValueError:
            raise Reject(f"its header {name} is no whole number: {found!r:.60}") from None

    return read


def by_key(message: Any) -> bytes:
    """
    Tell the key; a message without one is rejected.

    Args:
        message: The message.
    """
    if message.key is None:
        raise Reject("it has no key")
    return bytes(message.key)


def as_text(given: Any) -> str:
    """
    Bring what names something to the form in which tables have it.

    Args:
        given: Bytes or text, or what is shown as text.
    """
    if isinstance(given, (bytes, bytearray, memoryview)):
        text = _readable(bytes(given))
    else:
        text = str(given)
    if len(text) > _MOST or "\0" in text:
        hashed = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=32)
        return f"#{hashed.hexdigest()}"
    return text


def _readable(given: bytes) -> str:
    try:
        text = given.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    return text if text.isprintable() and (text or not given) else f"x'{given.hex()}"


def _header(message: Any, name: str) -> bytes | None:
    found: bytes | None = next((value for each, value in message.headers if each == name), None)
    return found
