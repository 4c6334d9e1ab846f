"""`tinymq group`: list, show, move, reset and remove consumer groups."""

from __future__ import annotations

import re
from typing import Any, Final

import click

from tinymq.catalog.groups import group_place
from tinymq.cli.confirm import yes_option
from tinymq.cli.groups import Group
from tinymq.cli.operation import Arguments, complete, limit_option, operation_options
from tinymq.cli.output import (
    Column,
    Listing,
    Row,
    counted,
    key,
    list_options,
    output_option,
    show,
    tell_silent,
)
from tinymq.cli.pace import span, trend
from tinymq.cli.paging import pages
from tinymq.cli.reply import carry_out, show_done, show_whole
from tinymq.cli.session import Session, remote
from tinymq.cli.values import Parsed, human_span, iso, parse_moment

#: Lists of members and topics are cut behind so many.
_NAMED: Final = 3


def _names(row: Row) -> str:
    found = row["topics"]
    more = f" +{len(found) - _NAMED}" if len(found) > _NAMED else ""
    return ",".join(found[:_NAMED]) + more


def _eta(row: Row) -> str | None:
    if row.get("clear_s") is not None:
        return human_span(row["clear_s"])
    return "grows" if (row.get("trend") or 0) > 0 else None


def _word(name: str) -> Any:
    """Take a text that may be empty."""
    return lambda row: row.get(name) or None


AGE: Final = Column("AGE", key("lag_s"), human_span, right=True)

COLUMNS: Final = (
    Column("NAME", key("name")),
    Column("STATE", key("state")),
    Column("MEMBERS", key("members"), right=True),
    Column("TOPICS", _names),
    Column("PARTITIONS", key("partitions"), right=True),
    Column("LAG", key("lag"), right=True),
    AGE,
    Column("TREND", key("trend"), trend, right=True),
    Column("ETA", _eta, right=True),
    Column("COMMITTED", key("committed_ms"), iso, wide=True),
    Column("STRATEGY", _word("strategy"), wide=True),
    Column("GENERATION", key("generation"), right=True, wide=True),
    Column("COORDINATOR", _word("coordinator"), wide=True),
    Column("CREATED", key("created_ms"), iso, wide=True),
    Column("STUCK", _word("stuck"), wide=True),
)

PARTITION_COLUMNS: Final = (
    Column("TOPIC", key("topic")),
    Column("PARTITION", key("partition"), right=True),
    Column("COMMITTED", key("committed"), right=True),
    Column("START", key("start"), right=True, wide=True),
    Column("END", key("end"), right=True),
    Column("LAG", key("lag"), right=True),
    AGE,
    Column("MEMBER", _word("member")),
    Column("GENERATION", key("generation"), right=True, wide=True),
    Column("TIME", key("committed_ms"), iso, wide=True),
    Column("NOTE", _word("note"), wide=True),
    Column("ERROR", _word("error")),
)

PLAN_COLUMNS: Final = (
    Column("TOPIC", key("topic")),
    Column("PARTITION", key("partition"), right=True),
    Column("BEFORE", key("before"), right=True),
    Column("AFTER", key("after"), right=True),
    Column("SKIPPED", key("skipped"), right=True),
    Column("REPLAYED", key("replayed"), right=True),
)


def _parse_place(text: str) -> str | int:
    """Read where a group is moved; a time may be written as people do."""
    if text.startswith("@") and not text[1:].isdigit():
        return f"@{parse_moment(text[1:])}"
    found: str | int = group_place(text)
    return found


def _parse_position(text: str) -> dict[str, Any]:
    """Read ``TOPIC:PARTITION:OFFSET``."""
    found = re.fullmatch(r"([^:]+):(\d+):(\d+)", text)
    if found is None:
        raise ValueError(f"{text!r} is not TOPIC:PARTITION:OFFSET")
    topic, partition, offset = found.groups()
    return {"topic": topic, "partition": int(partition), "offset": int(offset)}


_execute_option = click.option(
    "--execute", is_flag=True, help="Do it; without this the plan is only shown."
)


@click.group(cls=Group)
def group() -> None:
    """List, show, move, reset and remove consumer groups."""


@group.command("ls")
@operation_options("group.list", own={"limit": "limit"}, shorts={"topic": "-t"})
@limit_option
@list_options
@remote
def list_groups(
    session: Session, arguments: Arguments, limit: int | None, columns: str, output: str
) -> None:
    """List groups with their members, and how far they are behind."""
    document = pages(session, "group.list", arguments, limit)
    show(Listing(document["groups"], COLUMNS, document), output, columns)
    tell_silent(document)


@group.command("info")
@operation_options("group.info")
@output_option
@remote
def info(session: Session, arguments: Arguments, output: str) -> None:
    """Show one group: its members, its positions and its last rebalances."""
    reply = session.operate("group.info", **arguments)
    parts = Listing(reply["partitions"], PARTITION_COLUMNS, reply, "partition")
    whole = Listing([reply["group"]], COLUMNS, reply)
    show_whole(whole, _facts(reply), parts, output, inside=True)
    tell_silent(reply)


def _facts(reply: Row) -> list[tuple[str, str]]:
    found = reply["group"]
    told = ["-" if found["lag"] is None else f"{found['lag']}"]
    if found["lag_s"] is not None:
        told.append(f"oldest {human_span(found['lag_s'])}")
    if found["trend"] is not None:
        told.append(trend(found["trend"]))
    if found["clear_s"] is not None and found["lag"]:
        told.append(f"clear in {human_span(found['clear_s'])}")
    pairs = [
        ("name", found["name"]),
        ("state", found["state"]),
        ("topics", ", ".join(found["topics"]) or "-"),
        ("lag", ", ".join(told)),
        ("strategy", found["strategy"] or "-"),
        ("generation", str(found["generation"])),
        ("coordinator", found["coordinator"] or "-"),
        ("created", iso(found["created_ms"])),
    ]
    if found["stuck"]:
        pairs.append(("stuck", found["stuck"]))
    if reply["undo_until_ms"] is not None:
        pairs.append(("undo until", iso(reply["undo_until_ms"])))
    pairs += _series("members", map(_member, reply["members"]))
    return pairs + _series("rebalances", map(_rebalance, reply["rebalances"]))


def _series(title: str, lines: Any) -> list[tuple[str, str]]:
    return [(title if not at else "", line) for at, line in enumerate(lines)]


def _member(row: Row) -> str:
    instance = f" ({row['instance']})" if row["instance"] else ""
    has = counted(row["partitions"], "partition")
    return f"{row['id']}{instance}: {row['client']} at {row['address']}, {has}, {row['state']}"


def _rebalance(row: Row) -> str:
    took = "goes on" if row["took_ms"] is None else f"took {span(row['took_ms'])}"
    moved = counted(row["moved"], "partition")
    return f"{iso(row['at_ms'])}: {row['why']}; {moved} moved, {took}"


@group.command("seek")
@operation_options(
    "group.seek",
    own={"to": "where", "positions": "given", "dry_run": "execute"},
    shorts={"topic": "-t", "partition": "-p"},
)
@click.option(
    "--to",
    "where",
    type=Parsed("place", _parse_place),
    help="To earliest, latest, an offset, @TIME, or so many messages on (+N) or back (-N).",
)
@click.option(
    "--position",
    "given",
    type=Parsed("topic:partition:offset", _parse_position),
    multiple=True,
    help="To this offset in this partition; may be repeated.",
)
@_execute_option
@output_option
@remote
def seek(
    session: Session,
    arguments: Arguments,
    where: str | int | None,
    given: tuple[dict[str, Any], ...],
    execute: bool,
    output: str,
) -> None:
    """
    Move a group to another place, when the plan is right.

    Without --execute it only shows what would be skipped and what would come again. Members
    must be stopped, or --force given: then they go on from the new place. It can be taken
    back by `tinymq group undo` for a while.
    """
    if where is not None:
        arguments["to"] = where
    if given:
        arguments["positions"] = list(given)
    _plan(session, "seek", arguments, output, execute=execute)


@group.command("undo")
@operation_options("group.undo_seek", own={"dry_run": "execute"})
@_execute_option
@output_option
@remote
def undo(session: Session, arguments: Arguments, execute: bool, output: str) -> None:
    """Take back what the last seek, or reset, did."""
    _plan(session, "undo_seek", arguments, output, execute=execute)


@group.command("reset")
@operation_options("group.reset", own={"dry_run": "execute"}, shorts={"topic": "-t"})
@_execute_option
@output_option
@remote
def reset(session: Session, arguments: Arguments, execute: bool, output: str) -> None:
    """Forget the positions of a group; its members begin as if they were new."""
    _plan(session, "reset", arguments, output, execute=execute)


def _plan(session: Session, act: str, arguments: Arguments, output: str, *, execute: bool) -> None:
    reply = session.operate(f"group.{act}", **arguments, dry_run=not execute)
    show(Listing(reply["plan"], PLAN_COLUMNS, reply, "partition"), output)
    if output in {"table", "wide"}:
        click.echo(_sentence(arguments["name"], reply))
    tell_silent(reply)


def _sentence(name: str, reply: Row) -> str:
    rows = reply["plan"]
    if not rows:
        return f"nothing of {name} is to be moved; name a topic to give it a first place there"
    skipped, replayed = (sum(row[each] for row in rows) for each in ("skipped", "replayed"))
    told = f"{name} in {counted(len(rows), 'partition')}"
    what = f"{counted(skipped, 'message')} skipped, {replayed} to come again"
    if not reply["done"]:
        return f"would move {told}: {what}; --execute does it"
    until = reply["undo_until_ms"]
    undoing = "" if until is None else f"; `tinymq group undo {name}` until {iso(until)}"
    return f"moved {told}: {what}{undoing}"


@group.command("rm")
@operation_options("group.delete")
@yes_option
@output_option
@remote
def remove(session: Session, arguments: Arguments, yes: bool, output: str) -> None:
    """Remove a group with its positions; messages are left."""

    def question(plan: Row) -> tuple[str, str]:
        found = plan["group"]
        has = counted(found["partitions"], "partition")
        return found["name"], f"group {found['name']} will be removed: its place in {has} is lost"

    reply = carry_out(session, "group.delete", arguments, None if yes else question)
    verb = "would remove" if reply["dry_run"] else "removed"
    show_done(f"{verb} {arguments['name']}", Listing([reply["group"]], COLUMNS, reply), output)


complete(group)
