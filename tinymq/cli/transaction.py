"""`tinymq transaction`: transactions that are under way, and aborting one."""

from __future__ import annotations

from typing import Final

import click

from tinymq.cli.confirm import confirm, yes_option
from tinymq.cli.groups import Group
from tinymq.cli.operation import Arguments, complete, limit_option, operation_options
from tinymq.cli.output import (
    Column,
    Listing,
    Row,
    key,
    list_options,
    note,
    output_option,
    show,
    write_json,
)
from tinymq.cli.paging import pages
from tinymq.cli.session import Session, remote
from tinymq.cli.values import human_span, iso, now_ms
from tinymq.names import broker_called

#: Partitions that stand in a line.
_MOST_SHOWN: Final = 3


def _identity(row: Row) -> str:
    return f"{row['producer_id']}:{row['epoch']}"


def _age(row: Row) -> float:
    return (now_ms() - int(row["since_ms"])) / 1000


def _left(row: Row) -> float | None:
    """Seconds until it is aborted; those that are decided take as long as it takes."""
    return int(row["timeout_ms"]) / 1000 - _age(row) if row["state"] == "open" else None


def _partitions(row: Row) -> str:
    found = [f"{each['topic']}/{each['partition']}" for each in row["partitions"]]
    more = len(found) - _MOST_SHOWN
    return ", ".join(found[:_MOST_SHOWN]) + (f", {more} more" if more > 0 else "")


COLUMNS: Final = (
    Column("TRANSACTIONAL-ID", key("transactional_id")),
    Column("TRANSACTION", _identity),
    Column("STATE", key("state")),
    Column("AGE", _age, human_span, right=True),
    Column("ABORTED-IN", _left, human_span, right=True),
    Column("PARTITIONS", _partitions),
    Column("CLIENT", key("client")),
    Column("SINCE", key("since_ms"), iso, wide=True),
)


@click.group(cls=Group)
def transaction() -> None:
    """Show transactions that are under way, and abort one."""


@transaction.command("ls")
@operation_options("transaction.list", own={"limit": "limit"})
@limit_option
@list_options
@remote
def list_transactions(
    session: Session, arguments: Arguments, limit: int | None, columns: str, output: str
) -> None:
    """
    List the transactions that are open, or decided but not known everywhere yet.

    One that has just begun may be missing for about a second.
    """
    reply = pages(session, "transaction.list", arguments, limit)
    document = {name: reply[name] for name in ("transactions", "more", "silent")}
    show(Listing(reply["transactions"], COLUMNS, document, "transactional_id"), output, columns)
    for name in reply["silent"]:
        note(f"{broker_called(name)} did not answer; transactions that it decides are not listed")


@transaction.command("abort")
@operation_options("transaction.abort")
@yes_option
@output_option
@remote
def abort_transaction(session: Session, arguments: Arguments, yes: bool, output: str) -> None:
    """
    Abort the transaction that a producer has open.

    Nothing of it counts. The producer hears of it when it wants to commit, and begins anew.
    """
    name, dry_run = str(arguments["transactional_id"]), arguments["dry_run"]
    if not dry_run:
        confirm(name, f"the open transaction of {name} will be aborted", yes=yes)
    reply = session.operate("transaction.abort", **arguments)
    if output in {"json", "ndjson"}:
        write_json(reply, indent=2 if output == "json" else None)
    elif output in {"csv", "name"}:
        show(Listing([reply["transaction"]], COLUMNS, name="transactional_id"), output)
    else:
        done = "would abort" if dry_run else "aborted"
        click.echo(f"{done} transaction {_identity(reply['transaction'])} of {name}")


complete(transaction)
