"""`tinymq message`: what became of a single message."""

from __future__ import annotations

from typing import Any, Final

import click

from tinymq.cli.groups import Group
from tinymq.cli.operation import Arguments, complete, operation_options
from tinymq.cli.output import Column, Listing, key, note, output_option, show
from tinymq.cli.session import Session, remote
from tinymq.cli.values import iso

COLUMNS: Final = (
    Column("TIME", key("time_ms"), iso),
    Column("CHANNEL", key("channel")),
    Column("WHAT", key("what")),
    Column("ATTEMPT", lambda row: row["attempt"] or None, right=True),
    Column("CLIENT-ID", key("client_id")),
    Column("TEXT", lambda row: row["text"] or None),
)


@click.group(cls=Group)
def message() -> None:
    """Look at what became of single messages."""


@message.command("life")
@operation_options("message.life")
@click.option("--columns", default="", metavar="A,B", help="Which columns to show.")
@output_option
@remote
def life(session: Session, arguments: Arguments, columns: str, output: str) -> None:
    """Tell what the channels of a topic did with one message."""
    found: dict[str, Any] = session.operate("message.life", **arguments)
    show(Listing(found["events"], COLUMNS, found, "channel"), output, columns)
    for each in found["channels"]:
        note(f"{each['channel']}: {each['state']}")
    if found["since_ms"] is not None:
        note(f"what happened before {iso(found['since_ms'])} has been forgotten")
    if found["more"]:
        note("there was more than could be read or shown")


complete(message)
