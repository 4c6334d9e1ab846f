"""`tinymq channel`: list, make, show, change, pause, seek, purge and remove channels."""

from __future__ import annotations

from typing import Any, Final

import click

from tinymq.catalog.figures import RATED
from tinymq.cli.confirm import yes_option
from tinymq.cli.groups import Group
from tinymq.cli.members import members
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
from tinymq.cli.pace import AGE, ETA, TREND, WHY, lag, per_second, rate, state
from tinymq.cli.paging import pages
from tinymq.cli.reply import carry_out, show_done, show_plan, show_whole
from tinymq.cli.retries import delay, wake
from tinymq.cli.session import Session, remote
from tinymq.cli.settings import Given, changes, set_option, show_changes, unset_option
from tinymq.cli.unsettled import peek
from tinymq.cli.values import DURATION, START, Position, iso, now_ms, with_unit

#: What a channel counts, in the order in which people read it.
COUNTS: Final = ("ready", "in_flight", "waiting", "parked", "given_up", "consumers")
#: Those and what else a list has of one that is there.
_UNKNOWN: Final = (*COUNTS, "lag", "rates", "config")


def place(row: Row) -> str:
    """Name a channel with its topic, for lists of names."""
    return f"{row['topic']}/{row['name']}"


def _partition_state(row: Row) -> str:
    """Say why nothing is given out of a partition, if that is so."""
    if row["state"] != "online":
        return f"offline: {row['reason']}"
    return str(row["why"] or "ok")


def _setting(name: str) -> Any:
    return lambda row: row["config"].get(name)


COLUMNS: Final = (
    Column("TOPIC", key("topic")),
    Column("CHANNEL", key("name")),
    Column("READY", key("ready"), right=True),
    Column("IN-FLIGHT", key("in_flight"), right=True),
    Column("WAITING", key("waiting"), right=True),
    Column("LAG", key("lag"), right=True),
    AGE,
    Column("CONSUMERS", key("consumers"), right=True),
    Column("STATE", state),
    TREND.wider(),
    ETA.wider(),
    Column("FINISHED/S", rate("finished_s"), per_second, right=True, wide=True),
    Column("PUBLISHED/S", rate("published_s"), per_second, right=True, wide=True),
    Column("PARKED", key("parked"), right=True, wide=True),
    Column("GIVEN-UP", key("given_up"), right=True, wide=True),
    Column("ORDER", _setting("order"), wide=True),
    Column("DELIVERY", _setting("delivery"), wide=True),
    Column("CREATED", key("created_ms"), iso, wide=True),
    WHY,
)

PARTITION_COLUMNS: Final = (
    Column("PARTITION", key("partition"), right=True),
    Column("FLOOR", key("floor"), right=True),
    Column("CURSOR", key("cursor"), right=True),
    Column("END", key("end"), right=True),
    Column("READY", key("ready"), right=True),
    Column("IN-FLIGHT", key("in_flight"), right=True),
    Column("WAITING", key("waiting"), right=True),
    Column("LAG", key("lag"), right=True),
    AGE,
    Column("STATE", _partition_state),
    TREND.wider(),
    ETA.wider(),
    Column("PARKED", key("parked"), right=True, wide=True),
    Column("GIVEN-UP", key("given_up"), right=True, wide=True),
    Column("CONSUMERS", key("consumers"), right=True, wide=True),
    Column("NEXT-DUE", key("next_due_ms"), iso, wide=True),
    Column("LEADER", key("leader"), wide=True),
)

SEEK_COLUMNS: Final = (
    Column("PARTITION", key("partition"), right=True),
    Column("CURSOR", key("cursor"), right=True),
    Column("NEW-CURSOR", key("new_cursor"), right=True),
    Column("SKIPPED", key("skipped"), right=True),
    Column("REVIVED", key("revived"), right=True),
    Column("LOST", key("lost"), right=True),
)

_set_option = set_option("attempts=5 or lease.ms=2m")


@click.group(cls=Group)
def channel() -> None:
    """List, make, change, steer and remove channels of topics."""


@channel.command("ls")
@operation_options("channel.list", own={"limit": "limit"}, shorts={"topic": "-t"})
@limit_option
@list_options
@remote
def list_channels(
    session: Session, arguments: Arguments, limit: int | None, columns: str, output: str
) -> None:
    """List channels with what they have to do."""
    document = pages(session, "channel.list", arguments, limit)
    rows = [{**row, "place": place(row)} for row in document["channels"]]
    show(Listing(rows, COLUMNS, document, "place"), output, columns)
    tell_silent(document)


@channel.command("create")
@operation_options("channel.create", own={"config": "settings"})
@_set_option
@output_option
@remote
def create(session: Session, arguments: Arguments, settings: Given, output: str) -> None:
    """
    Make a channel of a topic.

    One that exists with the same settings is left as it is, which is no error.
    """
    reply = session.operate("channel.create", **arguments, config=dict(settings))
    made = "made" if reply["created"] else "exists already:"
    if reply["dry_run"] and reply["created"]:
        made = "would make"
    _show_one(reply, output, f"{made} {_named(arguments)}")


@channel.command("info")
@operation_options("channel.info")
@click.option("-p", "--partitions", is_flag=True, help="Show the partitions too.")
@output_option
@remote
def info(session: Session, arguments: Arguments, partitions: bool, output: str) -> None:
    """Show one channel: where its messages are, its settings, and with -p its partitions."""
    found = session.operate("channel.info", **arguments)["channel"]
    whole = Listing([{**found, "place": place(found)}], COLUMNS, found, "place")
    parts = Listing(found["partitions"], PARTITION_COLUMNS, name="partition")
    show_whole(whole, _facts(found), parts, output, inside=partitions)
    tell_silent(found)


def _facts(found: Row) -> list[tuple[str, str]]:
    rates = [(name.removesuffix("_s").replace("_", " "), rate(name)(found)) for name in RATED]
    pairs = [
        ("topic", found["topic"]),
        ("name", found["name"]),
        ("created", iso(found["created_ms"])),
        ("started at", str(found["start"])),
        *[("stays", "while somebody subscribes")] * bool(found.get("temporary")),
        ("state", str(state(found))),
        *[("why", cause["text"]) for cause in found.get("why", ())],
        *[(name.replace("_", " "), str(found[name])) for name in COUNTS],
        ("lag", lag(found)),
        *[
            (name.removesuffix("_s"), per_second(value))
            for name, value in rates
            if value is not None
        ],
        ("dead letters", found.get("dead_letter", "-")),
    ]
    if found.get("undo_until_ms") is not None:
        pairs.append(("undo-seek until", iso(found["undo_until_ms"])))
    settings = sorted(found["config"].items())
    return pairs + [(name, with_unit(name, written(value))) for name, value in settings]


@channel.command("edit")
@operation_options("channel.alter", own={"config": "settings"})
@_set_option
@unset_option
@output_option
@remote
def edit(
    session: Session, arguments: Arguments, settings: Given, unset: tuple[str, ...], output: str
) -> None:
    """Change settings of a channel; what is in flight keeps its deadline."""
    config = changes(settings, unset)
    if not config:
        raise click.UsageError("say what to change: --set NAME=VALUE or --unset NAME")
    reply = session.operate("channel.alter", **arguments, config=config)
    show_changes(reply, _named(arguments), output)


@channel.command("rm")
@operation_options("channel.delete")
@yes_option
@output_option
@remote
def remove(session: Session, arguments: Arguments, yes: bool, output: str) -> None:
    """Remove a channel with what it knows; the messages stay in the topic."""

    def question(plan: Row) -> tuple[str, str]:
        what = f"channel {_named(arguments)} with {_amount(plan['channel'])} will be removed"
        return arguments["name"], what

    reply = carry_out(session, "channel.delete", arguments, None if yes else question)
    verb = "would remove" if reply["dry_run"] else "removed"
    _show_one(reply, output, f"{verb} {_named(arguments)} with {_amount(reply['channel'])}")


def _amount(found: Row) -> str:
    return counted(found["lag"], "message") + " left to do"


@channel.command("pause")
@operation_options("channel.pause", own={"until_ms": "length"})
@click.option("--for", "length", type=DURATION, help="Go on by itself after so long, such as 10m.")
@output_option
@remote
def pause(session: Session, arguments: Arguments, length: float | None, output: str) -> None:
    """Give nothing of a channel out; what is in flight can be settled."""
    if arguments["undo"] and length is not None:
        raise click.UsageError("--undo does not go with --for")
    if length is not None:
        arguments["until_ms"] = now_ms() + round(length * 1000)
    _pause(session, arguments, output)


@channel.command("resume")
@operation_options("channel.pause", own={"until_ms": "", "reason": "", "undo": ""})
@output_option
@remote
def resume(session: Session, arguments: Arguments, output: str) -> None:
    """Let a channel go on that was paused: `pause --undo`."""
    _pause(session, {**arguments, "undo": True}, output)


def _pause(session: Session, arguments: Arguments, output: str) -> None:
    reply = session.operate("channel.pause", **arguments)
    word = "going on" if arguments["undo"] else "paused"
    if not reply["changed"]:
        sentence = f"{_named(arguments)} was {word} already"
    elif reply["dry_run"]:
        sentence = f"{_named(arguments)} would be {word}"
    else:
        sentence = f"{_named(arguments)} is {word}"
    _show_one(reply, output, sentence)


@channel.command("seek")
@operation_options(
    "channel.seek", own={"to": "where", "time_ms": "where"}, shorts={"partition": "-p"}
)
@click.option(
    "--to", "where", type=START, help="Where: earliest, latest, an offset, or @TIME such as @10m."
)
@yes_option
@output_option
@remote
def seek(
    session: Session, arguments: Arguments, where: Position | None, yes: bool, output: str
) -> None:
    """
    Begin anew at a point: what lies before is settled, the rest comes again.

    For a while it can be taken back with undo-seek.
    """
    _move(session, "channel.seek", {**arguments, **_point(where)}, yes, output)


def _point(where: Position | None) -> dict[str, str | int]:
    """Give the arguments of `channel.seek` that say where it goes."""
    if where is None or where.kind == "last":
        raise click.UsageError("say where: --to earliest, latest, an OFFSET, or @TIME")
    if where.kind == "time":
        return {"time_ms": where.value}
    return {"to": where.value if where.kind == "offset" else where.kind}


@channel.command("purge")
@operation_options("channel.empty", shorts={"partition": "-p"})
@yes_option
@output_option
@remote
def purge(session: Session, arguments: Arguments, yes: bool, output: str) -> None:
    """
    Settle all messages of a channel; the topic keeps them.

    For a while it can be taken back with undo-seek.
    """
    _move(session, "channel.empty", arguments, yes, output)


def _move(session: Session, operation: str, arguments: Arguments, yes: bool, output: str) -> None:
    """Ask, move a channel, and tell what that did."""

    def question(reply: Row) -> tuple[str, str]:
        return arguments["name"], f"{_named(arguments)}: {_sum(reply['plan'], 'will be')}"

    reply = carry_out(session, operation, arguments, None if yes else question)
    plan = reply["plan"]
    verb = "would be" if plan["dry_run"] else "were"
    parts = Listing(plan["partitions"], SEEK_COLUMNS, reply, "partition")
    show_plan(f"{_named(arguments)}: {_sum(plan, verb)}", parts, output)
    tell_silent(plan)


def _sum(plan: Row, verb: str) -> str:
    """Say in words what a seek does."""
    text = f"{counted(plan['skipped'], 'message')} {verb} settled, {plan['revived']} brought back"
    return text + (f", {plan['lost']} taken from consumers" if plan["lost"] else "")


@channel.command("undo-seek")
@operation_options("channel.undo_seek", shorts={"partition": "-p"})
@output_option
@remote
def undo_seek(session: Session, arguments: Arguments, output: str) -> None:
    """Take back what the last seek or emptying did, while its window is open."""
    reply = session.operate("channel.undo_seek", **arguments)
    where = counted(len(reply["undone"]), "partition")
    if reply["dry_run"]:
        sentence = f"would take the last seek of {_named(arguments)} back on {where}"
    else:
        sentence = f"{_named(arguments)} has {_amount(reply['channel'])} again"
    _show_one(reply, output, sentence)


def _show_one(reply: Row, output: str, sentence: str) -> None:
    """Show a reply that is about one channel."""
    found = reply["channel"]
    row = {**dict.fromkeys(_UNKNOWN), **found, "place": place(found)}
    show_done(sentence, Listing([row], COLUMNS, reply, "place"), output)
    tell_silent(found)


def _named(arguments: Arguments) -> str:
    return f"{arguments['topic']}/{arguments['name']}"


channel.add_command(members)
channel.add_command(peek)
channel.add_command(wake)
channel.add_command(delay)
complete(channel)
