"""
Reads queries, forms and JSON bodies. Odd input is a `BadInput` with its field.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

from twisted.web.http import Request

from tinymq.web.security import header

_MOST_FIELDS: Final = 2000
MOST_OFFSET: Final = 2**63 - 1
MOST_BROKER: Final = 2**31 - 1
T = TypeVar("T", bound=str)


class BadInput(Exception):
    """
    A field cannot be used as it is.

    Args:
        field: Its name.
        text: What is wrong with it, and what would be right.
        status: Of the answer.
    """

    def __init__(self, field: str, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.field = field
        self.text = text
        self.status = status


def _pairs(raw: bytes, what: str) -> dict[str, str]:
    try:
        found = parse_qsl(
            raw.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=_MOST_FIELDS,
        )
    except ValueError as error:
        raise BadInput(what, f"the {what} cannot be read: {error}") from error
    return dict(found)


def query_of(request: Request) -> dict[str, str]:
    """Read the query of the address; of a repeated field, the last one."""
    _, _, raw = request.uri.partition(b"?")
    return _pairs(raw, "query")


def body_of(request: Request, most: int) -> bytes:
    """
    Read a whole body.

    Args:
        request: Where from.
        most: Longest body that is taken.

    Raises:
        BadInput: It is longer.
    """
    content = request.content
    if content is None:
        return b""
    if getattr(request, "oversize", False) or content.seek(0, 2) > most:
        raise BadInput("body", f"the body is longer than the limit of {most:,} bytes", 413)
    content.seek(0)
    body: bytes = content.read()
    return body


def media_type(request: Request) -> str:
    """Read the media type of the body, without parameters."""
    return (header(request, "content-type") or "").split(";", maxsplit=1)[0].strip().lower()


def form_of(request: Request, most: int) -> dict[str, str]:
    """Read an HTML form."""
    if media_type(request) != "application/x-www-form-urlencoded":
        raise BadInput("content-type", "send a form as application/x-www-form-urlencoded", 415)
    return _pairs(body_of(request, most), "body")


def json_of(request: Request, most: int) -> dict[str, Any]:
    """
    Read a JSON object. Bodies of other media types are refused.

    A page of another site can make a browser send a form or plain text, but
    not JSON; so this is a part of the defence, not pedantry.
    """
    if media_type(request) != "application/json":
        raise BadInput("content-type", "send JSON as application/json", 415)
    try:
        value = json.loads(body_of(request, most) or b"{}")
    except RecursionError:
        raise BadInput("body", "the JSON is nested too deeply") from None
    except ValueError as error:
        raise BadInput("body", f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadInput("body", "the body must be a JSON object")
    return value


# --- fields ------------------------------------------------------------------


def integer(values: Mapping[str, Any], field: str, low: int, high: int) -> int | None:
    """
    Read a whole number, from text or JSON.

    Returns:
        The number; None when the field is missing or empty.
    """
    value = values.get(field)
    if value is None or value == "":
        return None
    if isinstance(value, str):
        text = value.strip().replace(",", "")
        if not text.removeprefix("-").isascii() or not text.removeprefix("-").isdigit():
            raise BadInput(field, f"{field} must be a whole number")
        value = int(text) if len(text) <= 20 else high + 1
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadInput(field, f"{field} must be a whole number")
    if not low <= value <= high:
        raise BadInput(field, f"{field} must be from {low:,} to {high:,}")
    return value


def text(values: Mapping[str, Any], field: str, default: str = "") -> str:
    """Read a string."""
    value = values.get(field)
    if value is None:
        return default
    if not isinstance(value, str):
        raise BadInput(field, f"{field} must be a string")
    return value


def choice(values: Mapping[str, Any], field: str, among: Sequence[T], default: T) -> T:
    """Read one of a few words."""
    value = text(values, field) or default
    for one in among:
        if one == value:
            return one
    raise BadInput(field, f"{field} must be one of {', '.join(among)}")


def check_typed(form: Mapping[str, str], name: str) -> None:
    """
    Make sure that somebody typed what they are about to change.

    Args:
        form: What was filled in.
        name: What must stand in its field ``typed``.

    Raises:
        BadInput: Something else does.
    """
    if form.get("typed", "") != name:
        raise BadInput("typed", f"type {name} to confirm; nothing was changed")


def truth(values: Mapping[str, Any], field: str) -> bool:
    """Read a yes or no; missing is no."""
    value = values.get(field)
    if value is None or value is False or value is True:
        return bool(value)
    word = value.lower() if isinstance(value, str) else "?"
    if word in {"", "false", "0", "no"}:
        return False
    if word in {"true", "1", "yes", "on"}:
        return True
    raise BadInput(field, f"{field} must be true or false")


def moment(values: Mapping[str, Any], field: str) -> int | None:
    """
    Read a time: ISO 8601 (UTC when no zone is given) or milliseconds.

    Returns:
        Milliseconds since the epoch; None when the field is missing or empty.
    """
    value = values.get(field)
    if value is None or value == "":
        return None
    if not isinstance(value, str) or value.strip().isdigit():
        return integer(values, field, 0, MOST_OFFSET)
    try:
        at = datetime.fromisoformat(value.strip().removesuffix("UTC").strip())
    except ValueError:
        raise BadInput(
            field, f"{field} must be a time such as 2026-11-29T14:32:06Z or milliseconds"
        ) from None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return max(0, int(at.timestamp() * 1000))
