"""
Plans of what changes something in the work queue: what they show, and the form that does it.

One template writes all of them, so that each says what would happen, before and
after, with the same call for a terminal, and has one button.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from attrs import field, frozen

from tinymq.catalog import PUBLIC
from tinymq.web.routes import ROUTES, WITH_BODY


def command(name: str) -> str:
    """
    Write the beginning of the command line that carries an operation out.

    Args:
        name: Of the operation.
    """
    return " ".join(("tinymq", *(PUBLIC[name].cli or ())))


@frozen
class Figure:
    """A number with its name above it and its context below."""

    name: str
    value: str
    sub: str = ""
    unit: str = ""
    title: str = ""


@frozen
class Entry:
    """A field that the plan asks for."""

    name: str
    label: str
    value: str = ""
    hint: str = ""
    most: int = 200


@frozen
class Tick:
    """Something that a person must agree to with a tick."""

    name: str
    label: str


@frozen(kw_only=True)
class Sheet:
    """
    A plan.

    Attributes:
        title: What would be done to what.
        current: Which entry of the menu it belongs to.
        crumbs: Words and addresses of the pages above.
        action: Where the form goes.
        cancel: Where the way back leads.
        back: What the way back says.
        button: What the button says; empty when there is nothing to do.
        danger: Whether it cannot be taken back, or takes something away.
        figures: What it is about, in numbers.
        notes: What happens, in sentences.
        warnings: Sentences that a person should read first.
        changes: Rows of what, before and after.
        heads: Heads of the table by parts; the first column is a name, the others numbers.
        rows: Its rows.
        entries: Fields to fill in.
        ticks: What must be agreed to.
        fields: What the form carries along.
        typed: What must be typed to confirm; empty when nothing must.
        call: The route of the API that does the same, and its parts and body.
        cli: The command that does the same.
    """

    title: str
    current: str = "channels"
    crumbs: Sequence[tuple[str, str]] = ()
    action: str
    cancel: str
    back: str = "Cancel"
    button: str
    danger: bool = False
    figures: Sequence[Figure] = ()
    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()
    changes: Sequence[tuple[str, str, str]] = ()
    heads: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    entries: Sequence[Entry] = ()
    ticks: Sequence[Tick] = ()
    fields: Mapping[str, str] = field(factory=dict)
    typed: str = ""
    call: Call | None = None
    cli: str = ""


@frozen
class Call:
    """
    A call of the HTTP API.

    Attributes:
        name: Of the route.
        parts: The parts of its address, encoded.
        body: What is sent; empty where nothing is.
    """

    name: str
    parts: Mapping[str, str]
    body: Mapping[str, Any] = field(factory=dict)

    @property
    def method(self) -> str:
        """Its HTTP method."""
        return ROUTES[self.name].method

    @property
    def path(self) -> str:
        """Its address."""
        path = ROUTES[self.name].path
        for name, value in self.parts.items():
            path = path.replace(f"{{{name}}}", value)
        if self.method not in WITH_BODY and self.body:
            path += f"?{urlencode(self.body)}"
        return path

    @property
    def json(self) -> str:
        """The body as JSON."""
        return json.dumps(self.body, ensure_ascii=False)
