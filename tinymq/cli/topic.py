"""`tinymq topic`: list, make, show, change, empty and remove topics."""

from __future__ import annotations

from typing import Any, Final

import click

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
    written,
)
from tinymq.cli.paging import pages
from tinymq.cli.reply import carry_out, show_done, show_plan, show_whole
from tinymq.cli.session import Session, remote
from tinymq.cli.settings import Given, changes, set_option, show_changes, unset_option
from tinymq.cli.values import START, Position, human_size, iso, with_unit


def _setting(name: str) -> Any:
    return lambda row: row.get("config", {}).get(name)


def _partitions(row: Row) -> int:
    found = row.get("partitions", 0)
    return found if isinstance(found, int) else len(found)


def _messages(row: Row) -> int | None:
    """Count what a partition holds; unknown while its broker is silent."""
    start, end = row.get("start"), row.get("end")
    return None if start is None or end is None else end - start


def _state(row: Row) -> str:
    state, reason, held = row.get("state"), row.get("reason"), row.get("held")
    if reason or not held:
        return f"{state}: {reason}" if reason else str(state)
    refusing = ", refuses producers" if held["refusing"] else ""
    size, since = human_size(held["bytes"]), iso(held["since_ms"])
    return f"{state}: holds {size} since {since} for {held['channel']}{refusing}"


COLUMNS: Final = (
    Column("NAME", key("name")),
    Column("PARTITIONS", _partitions, right=True),
    Column("MESSAGES", key("messages"), right=True),
    Column("BYTES", key("bytes"), human_size, right=True),
    Column("SYNC", _setting("sync"), wide=True),
    Column("STORAGE", _setting("storage"), wide=True),
    Column("CREATED", key("created_ms"), iso, wide=True),
    Column("ID", key("id"), wide=True),
)

PARTITION_COLUMNS: Final = (
    Column("PARTITION", key("partition"), right=True),
    Column("START", key("start"), right=True),
    Column("END", key("end"), right=True),
    Column("MESSAGES", _messages, right=True),
    Column("BYTES", key("bytes"), human_size, right=True),
    Column("OLDEST", key("oldest_ms"), iso),
    Column("NEWEST", key("newest_ms"), iso),
    Column("DELAYED", key("delayed"), right=True, wide=True),
    Column("STATE", _state),
    Column("LEADER", key("leader")),
)


def _changed(row: Row) -> str:
    """Write what is otherwise since a change."""
    first = [row["note"]] if row["note"] else []
    for each in row["settings"]:
        name, before, after = each["name"], each["before"], each["after"]
        told = after if before is None else f"{before} -> {after}"
        first.append(f"{name} = {told}" if before is None else f"{name} {told}")
    return ", ".join(first) or "-"


HISTORY_COLUMNS: Final = (
    Column("TIME", key("at_ms"), iso),
    Column("WHO", lambda row: row["who"] or "first use"),
    Column("FROM", lambda row: row["peer"] or "-"),
    Column("DID", key("act")),
    Column("WHAT", _changed),
)

PLAN_COLUMNS: Final = (
    Column("PARTITION", key("partition"), right=True),
    Column("START", key("start"), right=True),
    Column("NEW-START", key("new_start"), right=True),
    Column("MESSAGES", key("messages"), right=True),
    Column("BYTES", key("bytes"), human_size, right=True),
    Column("OLDEST", key("oldest_ms"), iso),
)
COMPACTION_COLUMNS: Final = (
    Column("PARTITION", key("partition"), right=True),
    Column("BYTES", key("bytes"), human_size, right=True),
    Column("DIRTY", key("dirty"), human_size, right=True),
    Column("CLEANED", key("cleaned_ms"), iso),
    Column("SAVED", key("saved"), human_size, right=True),
)


@click.group(cls=Group)
def topic() -> None:
    """List, make, change, empty and remove topics."""


@topic.command("ls")
@operation_options("topic.list", own={"limit": "limit"})
@click.option(
    "--sort",
    type=click.Choice(["name", "messages", "bytes", "partitions"]),
    default="name",
    show_default=True,
    help="The order; all but names with the largest first.",
)
@limit_option
@list_options
@remote
def list_topics(
    session: Session, arguments: Arguments, sort: str, limit: int | None, columns: str, output: str
) -> None:
    """List topics."""
    # An order other than by name needs all of them.
    document = pages(
        session, "topic.list", arguments, limit if sort == "name" else None, lambda row: row["name"]
    )
    found = document["topics"]
    if sort != "name":
        found.sort(key=lambda row: (-row[sort], row["name"]))
        document |= {"topics": found[:limit], "more": len(found[:limit]) < len(found)}
    show(Listing(document["topics"], COLUMNS, document), output, columns)
    tell_silent(document)


@topic.command("create")
@operation_options("topic.create", own={"config": "settings"}, shorts={"partitions": "-p"})
@set_option("sync=os or retention.ms=7d")
@output_option
@remote
def create(session: Session, arguments: Arguments, settings: Given, output: str) -> None:
    """
    Make a topic.

    One that exists with the same settings is left as it is, which is no error.
    """
    reply = session.operate("topic.create", **arguments, config=dict(settings))
    made = "made" if reply["created"] else "exists already:"
    if reply["dry_run"]:
        made = "would make"
    count = counted(_partitions(reply["topic"]), "partition")
    listing = Listing([reply["topic"]], COLUMNS, reply)
    show_done(f"{made} {arguments['name']} with {count}", listing, output)


@topic.command("info")
@operation_options("topic.info")
@click.option("-p", "--partitions", is_flag=True, help="Show the partitions too.")
@output_option
@remote
def info(session: Session, arguments: Arguments, partitions: bool, output: str) -> None:
    """Show one topic: its settings, and with -p its partitions."""
    found = session.operate("topic.info", **arguments)["topic"]
    parts = Listing(found.get("partitions", []), PARTITION_COLUMNS, name="partition")
    whole = Listing([found], COLUMNS, found)
    show_whole(whole, _facts(found), parts, output, inside=partitions)
    tell_silent(found)


def _facts(found: Row) -> list[tuple[str, str]]:
    pairs = [
        ("name", found["name"]),
        ("id", str(found.get("id", "-"))),
        ("created", iso(found["created_ms"]) if found.get("created_ms") else "-"),
        ("partitions", str(_partitions(found))),
        ("messages", str(found.get("messages", "-"))),
        ("bytes", human_size(found.get("bytes", 0))),
    ]
    settings = sorted(found.get("config", {}).items())
    return pairs + [(name, with_unit(name, written(value))) for name, value in settings]


@topic.command("edit")
@operation_options("topic.alter", own={"config": "settings"}, shorts={"partitions": "-p"})
@set_option("retention.ms=7d or segment.bytes=64MB")
@unset_option
@output_option
@remote
def edit(
    session: Session, arguments: Arguments, settings: Given, unset: tuple[str, ...], output: str
) -> None:
    """Change settings of a topic, or give it more partitions."""
    config = changes(settings, unset)
    if "partitions" not in arguments and not config:
        raise click.UsageError("say what to change: --set NAME=VALUE, --unset NAME or -p N")
    reply = session.operate("topic.alter", **arguments, config=config)
    show_changes(reply, arguments["name"], output)


@topic.command("history")
@operation_options("topic.history", own={"limit": "limit"})
@limit_option
@list_options
@remote
def history(
    session: Session, arguments: Arguments, limit: int | None, columns: str, output: str
) -> None:
    """Show who changed what about a topic, the newest first."""
    document = pages(session, "topic.history", arguments, limit)
    show(Listing(document["changes"], HISTORY_COLUMNS, document), output, columns)


@topic.command("rm")
@operation_options("topic.delete", own={"name": "names"})
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@yes_option
@output_option
@remote
def remove(
    session: Session, arguments: Arguments, names: tuple[str, ...], yes: bool, output: str
) -> None:
    """Remove topics with all their records."""
    if "id" in arguments and len(names) > 1:
        raise click.UsageError("--id goes with one NAME")

    def question(plan: Row) -> tuple[str, str]:
        name = plan["plan"]["topic"]
        return name, f"topic {name} with {_amount(plan['plan'])} will be removed"

    for name in names:
        asked = {"name": name, **arguments}
        reply = carry_out(session, "topic.delete", asked, None if yes else question)
        verb = "would remove" if arguments["dry_run"] else "removed"
        _show_plan(reply, output, f"{verb} {name} with {_amount(reply['plan'])}")


@topic.command("purge")
@operation_options(
    "topic.purge", own={"before": "before", "before_ms": "before"}, shorts={"partition": "-p"}
)
@click.option("--before", type=START, help="Remove the records before this offset or @TIME.")
@click.option("--undo", is_flag=True, help="Bring back what the last purge took: `undo-purge`.")
@yes_option
@output_option
@remote
def purge(
    session: Session,
    arguments: Arguments,
    before: Position | None,
    undo: bool,
    yes: bool,
    output: str,
) -> None:
    """
    Remove records of a topic: all, or those before a point.

    For a while the purge can be undone with --undo.
    """
    if undo:
        if before is not None or "keep" in arguments:
            raise click.UsageError("--undo goes with neither --before nor --keep")
        _undo(session, arguments, output)
        return
    name = arguments["name"]
    arguments |= _point(before, arguments.pop("keep", None))

    def question(plan: Row) -> tuple[str, str]:
        return name, f"{_amount(plan['plan'])} of topic {name} will be removed"

    reply = carry_out(session, "topic.purge", arguments, None if yes else question)
    dry_run, until = arguments["dry_run"], reply.get("undo_until_ms")
    verb = "would remove" if dry_run else "removed"
    undoing = "" if dry_run or not until else f"; --undo brings it back until {iso(until)}"
    _show_plan(reply, output, f"{verb} {_amount(reply['plan'])} of {name}{undoing}")


@topic.command("undo-purge")
@operation_options("topic.undo_purge", shorts={"partition": "-p"})
@output_option
@remote
def undo_purge(session: Session, arguments: Arguments, output: str) -> None:
    """Bring back what the last purge took, while its window is open."""
    _undo(session, arguments, output)


@topic.command("compact")
@operation_options("topic.compact", shorts={"partition": "-p"})
@output_option
@remote
def compact(session: Session, arguments: Arguments, output: str) -> None:
    """Have the log of a topic that is compacted cleaned soon, its newest file too."""
    found = session.operate("topic.compact", **arguments)["compaction"]
    verb = "would clean" if arguments["dry_run"] else "cleaning"
    sentence = (
        f"{verb} {found['topic']}: {human_size(found['dirty'])} of "
        f"{human_size(found['bytes'])} were never cleaned"
    )
    rows = [{"topic": found["topic"], **row} for row in found["partitions"]]
    show_plan(sentence, Listing(rows, COMPACTION_COLUMNS, found, "topic"), output)
    tell_silent(found)


def _undo(session: Session, arguments: Arguments, output: str) -> None:
    name, reply = arguments["name"], session.operate("topic.undo_purge", **arguments)
    found = reply["topic"]
    sentence = f"{name} holds {counted(found.get('messages', 0), 'message')} again"
    if arguments["dry_run"]:
        sentence = f"would bring back what the last purge of {name} took"
    show_done(sentence, Listing([found], COLUMNS, reply), output)


def _point(before: Position | None, keep: int | None) -> dict[str, int]:
    """Give the arguments of `topic.purge` that say which records go."""
    if before is not None and keep is not None:
        raise click.UsageError("give --before or --keep, not both")
    if keep is not None:
        return {"keep": keep}
    if before is None or before.kind == "latest":
        return {}
    if before.kind == "last":
        return {"keep": before.value}
    if before.kind == "time":
        return {"before_ms": before.value}
    return {"before": before.value}


def _show_plan(reply: Row, output: str, sentence: str) -> None:
    plan = reply["plan"]
    rows = [{"topic": plan["topic"], **row} for row in plan["partitions"]]
    show_plan(sentence, Listing(rows, PLAN_COLUMNS, reply, "topic"), output)
    tell_silent(plan)


def _amount(plan: Row) -> str:
    return f"{counted(plan['messages'], 'message')} ({human_size(plan['bytes'])})"


complete(topic)
