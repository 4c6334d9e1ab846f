"""`tinymq clients`: who is connected, who is slow, and hanging up on one of them."""

from __future__ import annotations

from typing import Any, Final

import click

from tinymq.cli.confirm import confirm, yes_option
from tinymq.cli.failure import Failed
from tinymq.cli.groups import Group
from tinymq.cli.operation import Arguments, complete, limit_option, operation_options
from tinymq.cli.output import (
    Column,
    Listing,
    Row,
    facts,
    flat,
    key,
    list_options,
    note,
    output_option,
    printable,
    show,
    write_json,
)
from tinymq.cli.paging import pages
from tinymq.cli.session import Session, remote
from tinymq.cli.values import human_size, human_span, iso, now_ms
from tinymq.names import broker_called


def _counter(name: str) -> Any:
    """Take a number that was counted, which may stand in a map of its own."""
    return lambda row: row.get(name, (row.get("counters") or {}).get(name))


def _rate(name: str) -> Any:
    return lambda row: (row.get("rates") or {}).get(name)


def _per_second(value: float) -> str:
    return f"{value:.1f}/s"


def place(row: Row) -> str:
    """Name a client as `info` and `kick` take it: its broker and its number there."""
    return f"{row.get('broker') or row.get('broker_id')}/{row['id']}"


def _state(row: Row) -> str:
    """Say whether a client takes what it is sent."""
    slow = row.get("slow_since_ms")
    return "ok" if slow is None else f"SLOW for {human_span((now_ms() - slow) / 1000)}"


def _silence(row: Row) -> float | None:
    heard = row.get("heard_ms")
    return None if heard is None else (now_ms() - heard) / 1000


COLUMNS: Final = (
    Column("CLIENT", place),
    Column("CLIENT-ID", key("client_id")),
    Column("ADDRESS", key("address")),
    Column("STATE", _state),
    Column("MESSAGES-IN", _counter("messages_in"), right=True),
    Column("MESSAGES-OUT", _counter("messages_out"), right=True),
    Column("BUFFERED", key("buffered"), human_size, right=True),
    Column("PENDING", key("pending"), human_size, right=True),
    Column("WAITING", key("waiting"), right=True),
    Column("AGENT", key("agent"), wide=True),
    Column("PROTOCOL", key("protocol"), wide=True),
    Column("USER", key("user"), wide=True),
    Column("SINCE", key("since_ms"), iso, wide=True),
    Column("SILENT", _silence, human_span, right=True, wide=True),
    Column("BYTES-IN", _counter("bytes_in"), human_size, right=True, wide=True),
    Column("BYTES-OUT", _counter("bytes_out"), human_size, right=True, wide=True),
    Column("IN/S", _rate("messages_in"), _per_second, right=True, wide=True),
    Column("OUT/S", _rate("messages_out"), _per_second, right=True, wide=True),
)


@click.group(cls=Group)
def clients() -> None:
    """Show who is connected, and hang up on a client."""


@clients.command("ls")
@operation_options("client.list", own={"limit": "limit"})
@click.option("--slow", is_flag=True, help="Only clients that take no more.")
@limit_option
@list_options
@remote
def list_clients(
    session: Session,
    arguments: Arguments,
    slow: bool,
    limit: int | None,
    columns: str,
    output: str,
) -> None:
    """
    List the clients of all brokers, those that are slow first.

    A slow client does not read what it is sent, or not as fast as it comes.
    """
    reply = pages(session, "client.list", arguments)
    # One that came while the pages were asked for may stand on two of them.
    each = {place(row): row for row in reply["clients"]}.values()
    found = [row for row in each if row.get("slow_since_ms") is not None or not slow]
    found.sort(key=_slow_first)
    shown = [{**row, "place": place(row)} for row in found[:limit]]
    document = {
        "clients": found[:limit],
        "more": len(shown) < len(found),
        "total": len(found),
        "silent": reply["silent"],
    }
    show(Listing(shown, COLUMNS, document, "place"), output, columns)
    for name in reply["silent"]:
        note(f"{broker_called(name)} did not answer; its clients are not listed")


def _slow_first(row: Row) -> tuple[float, str, int]:
    """Order by how long a client is slow; then by broker and number."""
    slow = row.get("slow_since_ms")
    return (float("inf") if slow is None else slow, str(row.get("broker")), row["id"])


def find_client(session: Session, text: str) -> tuple[str, int]:
    """
    Read the broker and the number of a client.

    Args:
        session: Where to ask.
        text: ``BROKER/NUMBER``; without a broker when there is only one.

    Raises:
        Failed: There are several brokers, and none was said.
        UsageError: It is no such text.
    """
    name, slash, number = text.rpartition("/")
    if not (number.isascii() and number.isdigit()) or bool(slash) != bool(name):
        raise click.UsageError(f"{text!r} is no client: write BROKER/NUMBER as `clients ls` does")
    if name:
        return name, int(number)
    rows = session.operate("broker.list")["brokers"]
    if len(rows) != 1:
        raise Failed("there are several brokers", "write BROKER/NUMBER as `tinymq clients ls` does")
    return str(rows[0]["id"]), int(number)


_which = click.argument("client", metavar="BROKER/NUMBER")


@clients.command("info")
@operation_options("client.info", own={"broker": "client", "id": "client"})
@_which
@output_option
@remote
def info(session: Session, arguments: Arguments, client: str, output: str) -> None:
    """Show one client."""
    broker, number = find_client(session, client)
    found = _ask(session, broker, number, **arguments)
    if output in {"table", "wide"}:
        facts([("client", place(found)), ("state", _state(found)), *flat(found).items()])
    elif output == "json":
        write_json(found)
    else:
        show(Listing([{**found, "place": place(found)}], COLUMNS, name="place"), output)


def _ask(session: Session, broker: str, number: int, **more: Any) -> dict[str, Any]:
    reply = session.operate("client.info", broker=broker, id=number, **more)
    found: dict[str, Any] = reply["client"]
    return {"broker": broker, **found}


@clients.command("kick")
@operation_options("client.kick", own={"broker": "client", "id": "client"})
@_which
@yes_option
@output_option
@remote
def kick(session: Session, arguments: Arguments, client: str, yes: bool, output: str) -> None:
    """
    Close a client's connection.

    Nothing forbids it to connect again, and most clients do so at once.
    """
    dry_run = arguments["dry_run"]
    broker, number = find_client(session, client)
    found = _ask(session, broker, number)
    who = f"{place(found)} ({printable(str(found.get('client_id') or 'no id'))}"
    who += f", {printable(str(found.get('address') or 'no address'))})"
    if not dry_run:
        confirm(place(found), f"the connection of client {who} will be closed", yes=yes)
    reply = session.operate("client.kick", **arguments, broker=broker, id=number)
    if output in {"json", "ndjson"}:
        write_json(reply, indent=2 if output == "json" else None)
    elif output in {"csv", "name"}:
        show(Listing([{**found, "place": place(found)}], COLUMNS, name="place"), output)
    else:
        click.echo(f"{'would close' if dry_run else 'closed'} the connection of {who}")


complete(clients)
