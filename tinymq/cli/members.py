"""`tinymq channel members`: who takes messages of a channel, and who of them is slow."""

from __future__ import annotations

from typing import Final

import click

from tinymq.cli.operation import Arguments, operation_options
from tinymq.cli.output import Column, Listing, Row, key, list_options, show, tell_silent
from tinymq.cli.pace import per_second, span
from tinymq.cli.session import Session, remote
from tinymq.cli.values import iso


def client_of(row: Row) -> str | None:
    """Name the connection of a consumer, as `tinymq clients` does."""
    return None if row["client"] is None else f"{row['broker']}/{row['client']}"


def _partitions(row: Row) -> str:
    return ",".join(map(str, row["partitions"]))


def _state(row: Row) -> str:
    if row["absent_until_ms"] is not None:
        return f"absent; its messages are kept until {iso(row['absent_until_ms'])}"
    return f"SLOW: {row['slow']}" if row["slow"] else "ok"


COLUMNS: Final = (
    Column("CLIENT", client_of),
    Column("CLIENT-ID", key("client_id")),
    Column("PARTITIONS", _partitions),
    Column("CREDIT", key("credit"), right=True),
    Column("IN-FLIGHT", key("in_flight"), right=True),
    Column("OLDEST", key("oldest_ms"), span, right=True),
    Column("FINISHED/S", key("finished_s"), per_second, right=True),
    Column("STATE", _state),
    Column("ADDRESS", key("address"), wide=True),
    Column("AGENT", key("agent"), wide=True),
    Column("DELIVERED", key("delivered"), right=True, wide=True),
    Column("FINISHED", key("finished"), right=True, wide=True),
    Column("REQUEUED", key("requeued"), right=True, wide=True),
    Column("TIMED-OUT", key("timed_out"), right=True, wide=True),
)


@click.command()
@operation_options("channel.members")
@list_options
@remote
def members(session: Session, arguments: Arguments, columns: str, output: str) -> None:
    """List who takes messages of a channel, with what each holds."""
    reply = session.operate("channel.members", **arguments)
    rows = [{**row, "place": client_of(row) or row["client_id"]} for row in reply["members"]]
    show(Listing(rows, COLUMNS, reply, "place"), output, columns)
    tell_silent(reply)
