"""What the pages of delays, schedules, exchanges and push endpoints have in common."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Any

from twisted.web.http import Request

from tinymq.catalog import PUBLIC
from tinymq.errors import UnknownTopic
from tinymq.web import publishing
from tinymq.web.base import Answer
from tinymq.web.input import moment, query_of, text
from tinymq.web.render import segment, shell_quoted
from tinymq.web.routes import ROUTES
from tinymq.web.sheet import Call
from tinymq.web.sheets import Sheets, length_of


def due_of(fields: Mapping[str, str], name: str, now_ms: int) -> int | None:
    """
    Read a time: as one, or as how far off it is, such as 10m.

    Args:
        fields: Of a form or a query.
        name: Of the field.
        now_ms: What a length is counted from.

    Returns:
        Milliseconds since 1970; None when nothing is said.
    """
    given = text(fields, name).strip()
    if given[-1:].lower() in {*"smhd"}:
        length = length_of({name: given.removeprefix("+")}, name)
        return None if length is None else now_ms + length
    return moment({name: given}, name)


def bytes_of(value: str | None, encoding: str = "string") -> bytes | None:
    """
    Read bytes as an operation tells them.

    Args:
        value: The text; None is no value.
        encoding: ``string``, or ``base64`` where they are no text.
    """
    if value is None:
        return None
    raw = value.encode("utf-8", "replace")
    if encoding != "base64":
        return raw
    try:
        return base64.b64decode(raw)
    except binascii.Error:
        return raw


def headers_of(told: Any) -> list[tuple[str, bytes]]:
    """
    Read headers as an operation tells them: a map, pairs, or rows of name and value.

    Args:
        told: The headers.
    """
    found = []
    for each in told.items() if isinstance(told, Mapping) else told or ():
        if isinstance(each, Mapping):
            name, value = each["name"], each["value"]
            encoding = each.get("encoding") or each.get("value_encoding") or "string"
        else:
            (name, value), encoding = each[:2], "string"
        found.append((str(name), bytes_of(str(value), encoding) or b""))
    return found


def header_lines(fields: Mapping[str, str], name: str = "headers") -> dict[str, str]:
    """
    Read headers that were written one a line, as name: value.

    Args:
        fields: Of a form or a query.
        name: Of the field.
    """
    return dict(publishing.header_lines(text(fields, name), name))


def call_of(name: str, parts: Mapping[str, str], body: Mapping[str, Any] | None = None) -> Call:
    """
    Write the same call of the HTTP API.

    Args:
        name: Of the operation.
        parts: The parts of its address, as they are.
        body: What is sent, without what is not said.
    """
    kept = {key: value for key, value in (body or {}).items() if value is not None}
    return Call(name, {key: segment(value) for key, value in parts.items()}, kept)


def cli_of(
    name: str, words: Iterable[object] = (), flags: Mapping[str, object] | None = None
) -> str:
    """
    Write the command that does the same.

    Args:
        name: Of the operation.
        words: What follows the words of the command.
        flags: Flags and their values; those without a value are left out.
    """
    found = ["tinymq", *(PUBLIC[name].cli or ()), *(shell_quoted(str(word)) for word in words)]
    for flag, value in (flags or {}).items():
        if value not in (None, "", False):
            found.append(f"--{flag}" + ("" if value is True else f" {shell_quoted(str(value))}"))
    return " ".join(found)


def curl_of(origin: str, name: str, parts: Mapping[str, str], query: str = "") -> str:
    """
    Write the command that asks the HTTP API the same.

    Args:
        origin: The address of this server.
        name: Of an operation that only looks.
        parts: The parts of its address, as they are.
        query: Begins with a question mark, or is empty; the mark alone is left out.
    """
    path = ROUTES[name].path
    for key, value in parts.items():
        path = path.replace(f"{{{key}}}", segment(str(value)))
    asked = query.removesuffix("?")
    return f"curl '{origin}{path}{asked}'"


class Flow(Sheets):
    """Shows pages about what waits and where it goes."""

    def _show(self, request: Request, template: str, current: str, **values: Any) -> bytes:
        """Show a page; the query of the address is at hand."""
        values.setdefault("query", query_of(request))
        values.setdefault("silent", ())
        return self._renderer.page(
            request,
            template,
            self._console.cluster(),
            current=current,
            flow=True,
            curl_of=curl_of,
            cli_of=cli_of,
            **values,
        )

    def _wrong(self, request: Request, error: Exception | None, topic: str = "") -> Answer | None:
        """
        Say what is wrong with a form that is shown again.

        Args:
            request: What is answered.
            error: What is wrong; None if nothing is.
            topic: The field that names a topic.
        """
        if error is None:
            return None
        answer = Answer(error)
        if isinstance(error, UnknownTopic):
            answer.field = answer.field or topic
        request.setResponseCode(answer.status)
        return answer
