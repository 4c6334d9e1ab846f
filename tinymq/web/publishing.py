"""Reads the record that a form or a program wants to publish."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from math import ceil
from typing import Any, Final

from attrs import frozen

from tinymq.limits import LATEST_MS
from tinymq.settings import parse_duration
from tinymq.web.input import BadInput, choice, integer, moment, text, truth
from tinymq.web.json_lines import json_member
from tinymq.web.plaintext import is_text, visible
from tinymq.web.port import Headers, MessageView, Times

MOST_PARTITION: Final = 2**31 - 1
#: Bytes of a request whose payload is cut out as JSON, token by token.
MOST_JSON: Final = 64 * 1024
_MOST_HEADERS: Final = 128
#: What a request of the JSON API may say, and one whose body is the value itself.
_IN_QUERY: Final = ("key", "partition", "delay_ms", "at_ms", "ttl_ms")
_IN_JSON: Final = ("payload", "payload_encoding", "key_encoding", "headers", *_IN_QUERY)


@frozen(kw_only=True)
class Wish:
    """A record to be published."""

    value: bytes | None
    key: bytes | None
    headers: Headers
    partition: int | None
    times: Times

    @property
    def told(self) -> tuple[bytes | None, bytes | None, Headers, int | None, Times]:
        """As `Console.publish` takes it."""
        return self.value, self.key, self.headers, self.partition, self.times


def _times(values: Mapping[str, Any]) -> Times:
    """Read when a record comes and how long it lives, in milliseconds."""
    delay = integer(values, "delay_ms", 0, LATEST_MS)
    at = integer(values, "at_ms", 0, LATEST_MS)
    if delay is not None and at is not None:
        raise BadInput("at_ms", "give delay_ms or at_ms, not both")
    return Times(_due(delay, at), integer(values, "ttl_ms", 1, LATEST_MS))


def _due(delay: int | None, at: int | None) -> int:
    return -(delay or 0) if at is None else max(1, at)


def _duration(form: Mapping[str, str], field: str) -> int | None:
    """Read a duration as people write it; in milliseconds."""
    given = text(form, field).strip()
    if not given:
        return None
    try:
        found = ceil(parse_duration(given) * 1000)
    except ValueError as error:
        raise BadInput(field, str(error)) from None
    if found > LATEST_MS:
        raise BadInput(field, "this ends after the year 9999")
    return found


def _times_of_form(form: Mapping[str, str]) -> Times:
    """Read the same as people write it."""
    delay, ttl, at = _duration(form, "delay"), _duration(form, "ttl"), moment(form, "at")
    if at is not None and not 0 <= at <= LATEST_MS:
        raise BadInput("at", "a time lies from 1970 to the end of the year 9999")
    if delay and at is not None:
        raise BadInput("at", "give a delay or a time, not both")
    if ttl == 0:
        raise BadInput("ttl", "a time to live is above zero")
    return Times(_due(delay, at), ttl)


def _encoded(field: str, value: str, encoding: str) -> bytes:
    try:
        if encoding == "base64":
            return base64.b64decode("".join(value.split()), validate=True)
        return value.encode("utf-8")
    except binascii.Error as error:
        raise BadInput(field, f"{field} is not base64: {error}") from error
    except UnicodeEncodeError:
        raise BadInput(field, f"{field} holds half a character, which cannot be stored") from None


def _unix_lines(value: str) -> str:
    return value.replace("\r\n", "\n")


def _header_lines(value: str) -> Headers:
    found = []
    for line in _unix_lines(value).split("\n"):
        if not line.strip():
            continue
        name, colon, rest = line.partition(":")
        if not colon or not name.strip():
            raise BadInput("headers", "write one header a line, as name: value")
        found.append((name.strip(), _encoded("headers", rest.strip(), "text")))
    return tuple(found)


def from_form(form: Mapping[str, str]) -> Wish:
    """
    Read the publish form. Browsers end lines with CR LF; LF is published.

    Args:
        form: Its fields.
    """
    encodings = ("text", "base64")
    encoding = choice(form, "encoding", encodings, "text")
    value = _unix_lines(text(form, "value"))
    key = text(form, "key")
    key_encoding = choice(form, "key_encoding", encodings, "text")
    return Wish(
        value=None if truth(form, "tombstone") else _encoded("value", value, encoding),
        key=_encoded("key", key, key_encoding) if key else None,
        headers=_header_lines(text(form, "headers")),
        partition=integer(form, "partition", 0, MOST_PARTITION),
        times=_times_of_form(form),
    )


def _json_headers(given: object) -> Headers:
    if given is None:
        return ()
    pairs = list(given.items()) if isinstance(given, dict) else given
    if not isinstance(pairs, list) or len(pairs) > _MOST_HEADERS:
        raise BadInput("headers", f"headers must be an object of at most {_MOST_HEADERS} strings")
    found = []
    for pair in pairs:
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise BadInput("headers", "headers must be an object, or a list of [name, value]")
        name, value = pair
        if not isinstance(name, str) or not isinstance(value, str):
            raise BadInput("headers", "names and values of headers must be strings")
        _encoded("headers", name, "string")
        found.append((name, _encoded("headers", value, "string")))
    return tuple(found)


def _known(given: Mapping[str, Any], names: tuple[str, ...]) -> None:
    """Refuse what means nothing: a ``delay`` passed over would be a message that comes at once."""
    for name in given:
        if name not in names:
            taken = ", ".join(sorted(names))
            raise BadInput(name[:100], f"publishing takes {taken}, not {name[:100]!r}")


def from_json(body: Mapping[str, Any], raw: bytes) -> Wish:
    """
    Read a publish request of the JSON API.

    Args:
        body: The decoded request.
        raw: Its text; JSON payloads are cut out of it, so that no number changes.
    """
    _known(body, _IN_JSON)
    if "payload" not in body:
        raise BadInput("payload", "payload is missing; null publishes a tombstone")
    encoding = choice(body, "payload_encoding", ("string", "base64", "json"), "string")
    if encoding == "json":
        if len(raw) > MOST_JSON:
            raise BadInput(
                "payload",
                f"a JSON payload is limited to {MOST_JSON:,} bytes; send a longer one as a string",
                413,
            )
        value: bytes | None = json_member(raw.decode("utf-8"), "payload").encode("utf-8")
    elif body["payload"] is None:
        value = None
    else:
        value = _encoded("payload", text(body, "payload"), encoding)
    key = body.get("key")
    key_encoding = choice(body, "key_encoding", ("string", "base64"), "string")
    return Wish(
        value=value,
        key=None if key is None else _encoded("key", text(body, "key"), key_encoding),
        headers=_json_headers(body.get("headers")),
        partition=integer(body, "partition", 0, MOST_PARTITION),
        times=_times(body),
    )


def from_bytes(body: bytes, query: Mapping[str, str]) -> Wish:
    """
    Read a publish request whose body is the value itself.

    Args:
        body: The value.
        query: May name a key, a partition, when it comes and how long it lives.
    """
    _known(query, _IN_QUERY)
    key = query.get("key")
    return Wish(
        value=body,
        key=None if key is None else _encoded("key", key, "string"),
        headers=(),
        partition=integer(query, "partition", 0, MOST_PARTITION),
        times=_times(query),
    )


def _editable(value: bytes) -> bool:
    """Whether a form gives back exactly these bytes."""
    if not is_text(value) or b"\r" in value:
        return False
    text = value.decode("utf-8", "ignore")
    return visible(text) == text


def copied(message: MessageView) -> tuple[dict[str, str], str]:
    """
    Fill in the publish form with a message.

    Returns:
        The fields, and a sentence on what is not in them; mostly empty.
    """
    value, key = message.value or b"", message.key or b""
    as_text, key_as_text = _editable(value), _editable(key)
    kept = [
        f"{name}: {content.decode()}"
        for name, content in message.headers
        if _editable(name.encode() + content)
        and not {":", "\n"} & set(name)
        and content == content.strip()
        and b"\n" not in content
    ]
    values = {
        "encoding": "text" if as_text else "base64",
        "value": value.decode("utf-8", "ignore") if as_text else base64.b64encode(value).decode(),
        "tombstone": "on" if message.value is None else "",
        "key": key.decode("utf-8", "ignore") if key_as_text else base64.b64encode(key).decode(),
        "key_encoding": "text" if key_as_text else "base64",
        "headers": "\n".join(kept),
    }
    notes = []
    if len(value) != message.size:
        notes.append("The value is longer than a form can carry: only its beginning is here.")
    if len(kept) != len(message.headers):
        notes.append("Headers that a form cannot carry unchanged were left out.")
    return values, " ".join(notes)
