"""Settings on the command line: given, returned to their defaults, and what that changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click

from tinymq.cli.output import Column, Listing, Row, key, show, written
from tinymq.cli.values import SETTING

#: Names with values, as they were typed.
Given = tuple[tuple[str, str], ...]

CHANGE_COLUMNS: Final = (
    Column("SETTING", key("setting")),
    Column("OLD", lambda row: written(row["old"])),
    Column("NEW", lambda row: written(row["new"])),
)


def set_option(example: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """
    Add ``--set``.

    Args:
        example: Settings that the help shows.
    """
    return click.option(
        "-s",
        "--set",
        "settings",
        type=SETTING,
        multiple=True,
        help=f"A setting, such as {example}; may be repeated.",
    )


unset_option = click.option(
    "--unset", multiple=True, metavar="NAME", help="A setting to return to its default."
)


def changes(settings: Given, unset: tuple[str, ...]) -> dict[str, str | None]:
    """Join what is to be set and what is to be as by default."""
    return {**dict.fromkeys(unset), **dict(settings)}


def show_changes(reply: Row, name: str, output: str) -> None:
    """
    Show what an operation changed.

    Args:
        reply: Its answer.
        name: Of what was changed.
        output: One of the forms of output.
    """
    rows = [{"setting": what, "old": old, "new": new} for what, old, new in reply["changes"]]
    if not rows and output in {"table", "wide"}:
        click.echo(f"{name} has these settings already; nothing changed")
    else:
        show(Listing(rows, CHANGE_COLUMNS, reply, "setting"), output)
