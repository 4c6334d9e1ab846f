"""`tinymq node`: the brokers of a cluster, and which of them get no new partitions."""

from __future__ import annotations

import fnmatch
from typing import Any, Final

import click

from tinymq.cli.confirm import confirm, yes_option
from tinymq.cli.failure import Failed
from tinymq.cli.groups import Group
from tinymq.cli.operation import Arguments, complete, operation_options
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
    show,
    write_json,
)
from tinymq.cli.session import Session, remote
from tinymq.cli.values import host_port, human_size, human_span, iso, now_ms


def _address(row: Row) -> str | None:
    host = row.get("host")
    return host_port(host, row.get("port")) if host else row.get("listen")


def _state(row: Row) -> str | None:
    state, reason = row.get("state"), row.get("reason")
    return f"{state}: {reason}" if state and reason else state


def _uptime(row: Row) -> float | None:
    """Give seconds since the start."""
    if row.get("uptime") is not None:
        return float(row["uptime"])
    started = row.get("started_ms")
    return None if started is None else (now_ms() - started) / 1000


def _lag(milliseconds: float) -> str:
    return f"{milliseconds:.1f} ms"


COLUMNS: Final = (
    Column("ID", key("id"), right=True),
    Column("NAME", key("name")),
    Column("ROLE", key("role")),
    Column("ZONE", lambda row: row.get("zone") or None),
    Column("ADDRESS", _address),
    Column("STATE", _state),
    Column("PARTITIONS", key("partitions"), right=True),
    Column("BYTES", key("bytes"), human_size, right=True),
    Column("CONNECTIONS", key("connections"), right=True),
    Column("UPTIME", _uptime, human_span, right=True),
    Column("VERSION", key("version"), wide=True),
    Column("STARTED", key("started_ms"), iso, wide=True),
    Column("MEMORY", key("memory"), human_size, right=True, wide=True),
    Column("MEMORY-LIMIT", key("memory_limit"), human_size, right=True, wide=True),
    Column("DISK-FREE", key("disk_free"), human_size, right=True, wide=True),
    Column("DISK-TOTAL", key("disk_total"), human_size, right=True, wide=True),
    Column("FILES", key("files"), right=True, wide=True),
    Column("FILES-LIMIT", key("files_limit"), right=True, wide=True),
    Column("DESCRIPTORS", key("descriptors"), right=True, wide=True),
    Column("DESCRIPTORS-LIMIT", key("descriptors_limit"), right=True, wide=True),
    Column("REACTOR-LAG", key("reactor_lag_ms"), _lag, right=True, wide=True),
)


@click.group(cls=Group)
def node() -> None:
    """Show the brokers of a cluster, and drain one."""


def brokers_of(session: Session) -> list[dict[str, Any]]:
    """Ask for all brokers."""
    found: list[dict[str, Any]] = session.operate("broker.list")["brokers"]
    return found


def find_broker(session: Session, text: str) -> dict[str, Any]:
    """
    Find a broker by its number or name.

    A name that looks like a number is found when no broker has that number.

    Raises:
        Failed: There is none, or several have the name.
    """
    rows = brokers_of(session)
    found = [row for row in rows if str(row.get("id")) == text]
    found = found or [row for row in rows if row.get("name") == text]
    if len(found) == 1:
        return found[0]
    if found:
        numbers = ", ".join(str(row.get("id")) for row in found)
        raise Failed(f"several brokers are named {text}", f"say which by its number: {numbers}")
    raise Failed(f"there is no broker {text}", "`tinymq node ls` lists the brokers")


@node.command("ls")
@operation_options("broker.list")
@click.option("--filter", "pattern", default="", metavar="GLOB", help="Of names: 'broker-*'.")
@click.option(
    "--sort",
    type=click.Choice(["id", "name", "zone", "bytes", "partitions", "connections"]),
    default="id",
    show_default=True,
    help="The order; numbers of what a broker holds with the largest first.",
)
@list_options
@remote
def list_nodes(
    session: Session, arguments: Arguments, pattern: str, sort: str, columns: str, output: str
) -> None:
    """List the brokers of the cluster."""
    reply = session.operate("broker.list", **arguments)
    rows = [row for row in reply["brokers"] if fnmatch.fnmatchcase(row["name"], pattern or "*")]
    if sort in {"id", "name", "zone"}:
        rows.sort(key=lambda row: (row.get(sort) or (0 if sort == "id" else ""), row["name"]))
    else:
        rows.sort(key=lambda row: (-(row.get(sort) or 0), row["name"]))
    show(Listing(rows, COLUMNS, {**reply, "brokers": rows}), output, columns)


@node.command("info")
@operation_options("broker.info", own={"broker": "broker"})
@click.argument("broker", metavar="NAME|ID")
@output_option
@remote
def info(session: Session, arguments: Arguments, broker: str, output: str) -> int:
    """
    Show one broker.

    The exit status is 1 when it is silent or takes no publishing.
    """
    row = find_broker(session, broker)
    if row.get("state") == "silent":
        reply: dict[str, Any] = {"broker": row, "ready": False, "reason": row.get("reason")}
    else:
        reply = session.operate("broker.info", **arguments, broker=str(row["id"]))
    found = {**row, **reply["broker"]}
    if output in {"csv", "ndjson", "name"}:
        show(Listing([found], COLUMNS), output)
    elif output == "json":
        write_json({**reply, "broker": found})
    else:
        ready = "yes" if reply["ready"] else f"no: {reply.get('reason') or 'unknown'}"
        facts([("ready", ready), *flat(found).items()])
    return 0 if reply["ready"] else 1


@node.command("drain")
@operation_options("broker.drain", own={"broker": "broker"})
@click.argument("broker", metavar="NAME|ID")
@yes_option
@output_option
@remote
def drain(session: Session, arguments: Arguments, broker: str, yes: bool, output: str) -> None:
    """
    Let a broker get no new partitions.

    It keeps those that it has, and serves them. `undrain` takes it back.
    """
    row = find_broker(session, broker)
    if not arguments["dry_run"] and not arguments["undo"]:
        confirm(str(row["name"]), f"broker {row['name']} will get no new partitions", yes=yes)
    _drain(session, row, output, arguments)


@node.command("undrain")
@operation_options("broker.drain", own={"broker": "broker", "undo": "broker"})
@click.argument("broker", metavar="NAME|ID")
@output_option
@remote
def undrain(session: Session, arguments: Arguments, broker: str, output: str) -> None:
    """Let a drained broker get new partitions again; the same as `drain --undo`."""
    _drain(session, find_broker(session, broker), output, {**arguments, "undo": True})


def _drain(session: Session, row: Row, output: str, arguments: Arguments) -> None:
    undo, dry_run = arguments["undo"], arguments["dry_run"]
    reply = session.operate("broker.drain", **arguments, broker=str(row["id"]))
    if output in {"json", "ndjson"}:
        write_json(reply, indent=2 if output == "json" else None)
    elif output in {"csv", "name"}:
        show(Listing([row], COLUMNS), output)
    else:
        does = ("would get" if dry_run else "gets") + (" new" if undo else " no new")
        held = row.get("partitions")
        kept = "" if undo or held is None else f"; it keeps the {held} that it has"
        click.echo(f"{row['name']} {does} partitions{' again' if undo else ''}{kept}")
    if not undo and not dry_run and output == "table":
        note(f"`tinymq node undrain {row['name']}` takes it back")


complete(node)
