"""Lists that are longer than one answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tinymq.catalog import PUBLIC
from tinymq.cli.operation import Arguments
from tinymq.cli.output import Row
from tinymq.cli.session import Session

#: Rows asked for at once.
PAGE: Final = 500


def pages(
    session: Session,
    operation: str,
    arguments: Arguments,
    limit: int | None = None,
    last: Callable[[Row], str] | None = None,
) -> dict[str, Any]:
    """
    Ask for page after page.

    Args:
        session: Where to ask.
        operation: A list; the catalog names the rows first in its result.
        arguments: Of the first page.
        limit: Most rows; None for all.
        last: Names the place behind a row, where the answer does not.

    Returns:
        The last answer, with the rows of all pages and the brokers that were silent in any.
    """
    what = next(iter(PUBLIC[operation].result))
    found: list[dict[str, Any]] = []
    silent: dict[str, None] = {}
    asked = dict(arguments)
    while True:
        size = PAGE if limit is None else min(PAGE, limit - len(found))
        reply = session.operate(operation, **{**asked, "limit": size})
        rows = reply[what]
        found += rows
        silent |= dict.fromkeys(reply.get("silent") or ())
        if not reply["more"] or not rows or len(found) == limit:
            return {**reply, what: found, "silent": list(silent)}
        asked["after"] = last(rows[-1]) if last else reply["after"]
