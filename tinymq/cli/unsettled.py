"""`tinymq channel peek`: the unsettled messages of a channel, looked at without any effect."""

from __future__ import annotations

from base64 import b64decode
from typing import Any, Final

import click

from tinymq.cli.operation import Arguments, operation_options
from tinymq.cli.output import Column, Listing, Row, key, list_options, show, tell_silent
from tinymq.cli.pace import span
from tinymq.cli.paging import pages
from tinymq.cli.render import text
from tinymq.cli.session import Session, remote
from tinymq.cli.values import human_size, iso, now_ms


def content(name: str) -> Any:
    """Take bytes of a row, as text for people."""

    def value(row: Row) -> str | None:
        found = row[name]
        return text(b64decode(found)) if found and row[f"{name}_encoding"] == "base64" else found

    return value


def until(name: str) -> Any:
    """Take how long it is until a time of a row; 0 when that has passed."""
    return lambda row: None if row[name] is None else max(0, row[name] - now_ms())


COLUMNS: Final = (
    Column("PARTITION", key("partition"), right=True),
    Column("OFFSET", key("offset"), right=True),
    Column("STATE", key("state")),
    Column("ATTEMPT", key("attempt"), right=True),
    Column("FAILURES", key("failures"), right=True),
    Column("DUE-IN", until("due_ms"), span, right=True),
    Column("LEASE", until("deadline_ms"), span, right=True),
    Column("SIZE", key("size"), human_size, right=True),
    Column("KEY", content("key")),
    Column("VALUE", content("preview")),
    Column("TIME", key("time_ms"), iso, wide=True),
)


@click.command()
@operation_options("channel.peek", own={"limit": "limit"}, shorts={"partition": "-p"})
@click.option(
    "-n", "--limit", type=click.IntRange(1), default=20, show_default=True, help="Most messages."
)
@list_options
@remote
def peek(session: Session, arguments: Arguments, limit: int, columns: str, output: str) -> None:
    """
    Look at the unsettled messages of a channel, in the order of the log.

    Nothing is taken and nothing changes, whoever works on them meanwhile.
    """
    document = pages(session, "channel.peek", arguments, limit)
    rows = [{**row, "place": f"{row['partition']}@{row['offset']}"} for row in document["messages"]]
    show(Listing(rows, COLUMNS, document, "place"), output, columns)
    tell_silent(document)
