"""docs/http.md lists what is served."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from tinymq.operation import Parameter
from tinymq.web.routes import ROUTES

FILE: Final = Path(__file__).parents[2] / "docs" / "http.md"
_BEGIN: Final = "<!-- table: routes -->\n"
_END: Final = "<!-- end of table: routes -->\n"
_HEAD: Final = (
    "| address | role | what it does | query | body | command |\n|---|---|---|---|---|---|\n"
)


def names(parameters: list[Parameter]) -> str:
    """Write names as the document does."""
    return ", ".join(f"`{each.name}`" for each in parameters)


def table() -> str:
    """The table of routes as it must be."""
    lines = []
    for route in ROUTES.values():
        inside = names(route.in_body)
        if route.body is not None:
            inside = ", ".join(f"`{name}`" for name in route.body["properties"])
        cells = (
            f"`{route.method} {route.path}`",
            route.role,
            route.text,
            names(route.in_query),
            inside,
            f"`{route.cli}`" if route.cli else "",
        )
        lines.append(f"| {' | '.join(cells)} |\n")
    return _HEAD + "".join(lines)


def test_routes() -> None:
    """Each route is told with its role, text, arguments and command, in the table's order."""
    before, rest = FILE.read_text(encoding="utf-8").split(_BEGIN)
    written, after = rest.split(_END)
    if os.environ.get("TINYMQ_WRITE_DOCS"):
        FILE.write_text(before + _BEGIN + table() + _END + after, encoding="utf-8")
        written = table()
    assert written == table()
