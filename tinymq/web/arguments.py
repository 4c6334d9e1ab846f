"""Reads the arguments of an operation from a request."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from twisted.web.http import Request

from tinymq.operation import Operation, Parameter
from tinymq.web.input import BadInput, body_of, json_of, media_type, query_of, truth

#: What has no effect may be a POST, too, where it takes more than fits into an address.
_WITH_BODY: Final = frozenset({b"PUT", b"POST", b"PATCH", b"DELETE"})
_WHOLE: Final = re.compile(r"-?[0-9]{1,20}")


def arguments_of(
    operation: Operation, request: Request, path: Mapping[str, str], most: int
) -> dict[str, Any]:
    """
    Collect arguments from the address, its query and a JSON body.

    What looks at nothing but the address has no body; of what changes something,
    a body may only be missing where no page can send such a request by itself.

    Args:
        operation: What takes them; checks them later.
        request: Where from.
        path: Those that are a part of the address.
        most: Longest body that is taken.

    Raises:
        BadInput: One is said twice, or cannot be read.
    """
    known = {parameter.name: parameter for parameter in operation.parameters}
    texts: dict[str, str] = dict(path)
    for name, text in query_of(request).items():
        if name in texts:
            raise BadInput(name, f"{name} is a part of the address already")
        texts[name] = text
    found = {
        name: from_text(known[name], text) if name in known else text
        for name, text in texts.items()
    }
    if request.method not in _WITH_BODY or _is_empty(request, most):
        return found
    body = json_of(request, most)
    try:
        json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise BadInput("body", "the body holds half a character") from None
    for name, value in body.items():
        if name in found:
            raise BadInput(name, f"{name} is said in the address already")
        found[name] = value
    return found


def _is_empty(request: Request, most: int) -> bool:
    # A page of another site can make a browser send a POST without a body, but no other
    # method; so a POST must say that it is JSON in any case.
    no_post = request.method != b"POST"
    return no_post and not media_type(request) and not body_of(request, most)


def from_text(parameter: Parameter, text: str) -> Any:
    """
    Read a value that was written as text.

    Args:
        parameter: What it is for.
        text: As it stands in an address.

    Raises:
        BadInput: It is no value of this type; its bounds are checked later.
    """
    kinds = parameter.check.schema["type"]
    if not text and "null" in kinds:
        return None
    if "string" in kinds:
        return text
    if "integer" in kinds:
        if not _WHOLE.fullmatch(text):
            raise BadInput(parameter.name, f"{parameter.name} must be {parameter.check.must}")
        return int(text)
    if "boolean" in kinds:
        return truth({parameter.name: text}, parameter.name)
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise BadInput(parameter.name, f"{parameter.name} must be JSON") from None
