"""`tinymq schedule`: messages that come again and again."""

from __future__ import annotations

from typing import Any, Final

import click
from typing_extensions import override

from tinymq.cli.confirm import yes_option
from tinymq.cli.groups import Group
from tinymq.cli.operation import Arguments, complete, limit_option, operation_options
from tinymq.cli.output import (
    Column,
    Listing,
    Row,
    facts,
    key,
    list_options,
    output_option,
    show,
    tell_silent,
    written,
)
from tinymq.cli.paging import pages
from tinymq.cli.reply import carry_out, show_done
from tinymq.cli.session import Session, remote
from tinymq.cli.values import HEADER, iso


def _state(row: Row) -> str:
    if row["error"]:
        return str(row["error"])
    return "paused" if row["paused"] else "ok"


def _time(value: int | None) -> str:
    return "-" if value is None else iso(value)


COLUMNS: Final = (
    Column("NAME", key("name")),
    Column("TOPIC", key("topic")),
    Column("CRON", key("cron")),
    Column("ZONE", key("zone")),
    Column("NEXT", key("next_ms"), _time),
    Column("RUNS", key("runs"), right=True),
    Column("MISSED", key("missed"), right=True),
    Column("STATE", _state),
    Column("LAST", key("last_ms"), _time, wide=True),
    Column("CATCH-UP", key("catch_up"), wide=True),
    Column("PARTITION", key("partition"), right=True, wide=True),
    Column("BROKER", key("broker"), wide=True),
    Column("CREATED", key("created_ms"), _time, wide=True),
    Column("TEXT", key("text"), wide=True),
)


@click.group(cls=Group)
def schedule() -> None:
    """Send messages again and again, by schedules."""


class _Quoted(click.Command):
    """A verb whose last argument has spaces in it."""

    @override
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Say what is the matter when a shell made several words, or names of files, of it."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if "unexpected extra argument" not in error.message:
                raise
            text = "the expression is one argument: quote it, such as '0 3 * * *'"
            raise click.UsageError(text, ctx) from None


@schedule.command("add", cls=_Quoted)
@operation_options(
    "schedule.create",
    own={"headers": "given", "paused": "paused"},
    shorts={"key": "-k", "zone": "-z"},
)
@click.option(
    "-H", "--header", "given", type=HEADER, multiple=True, help="A header; may be repeated."
)
@click.option(
    "--paused/--no-paused",
    default=None,
    help="Whether it rests until it is resumed; one that exists stays as it is without this.",
)
@output_option
@remote
def add(
    session: Session,
    arguments: Arguments,
    given: tuple[tuple[str, bytes], ...],
    paused: bool | None,
    output: str,
) -> None:
    """
    Make a schedule, or give the one of this name another form.

    CRON has five fields: minute, hour, day of the month, month, day of the week;
    or it is @hourly, @daily, @weekly, @monthly or @yearly. Quote it, for shells make
    names of files of *: `tinymq schedule add nightly reports '0 3 * * *'`. TOPIC must
    be there.
    """
    if paused is not None:
        arguments["paused"] = paused
    headers = {name: value.decode("utf-8", "replace") for name, value in given}
    reply = session.operate("schedule.create", **arguments, headers=headers)
    _show_one(reply, output, _made(reply))
    if output in {"table", "wide"}:
        for name, old, new in reply["changes"]:
            click.echo(f"  {name}: {written(old)} -> {written(new)}")


def _made(reply: Row) -> str:
    found, dry = reply["schedule"], reply["dry_run"]
    if reply["created"]:
        verb = "would make" if dry else "made"
    elif reply["changes"]:
        verb = "would change" if dry else "changed"
    else:
        verb = "exists already:"
    following = f"; next at {iso(found['upcoming'][0])}" if found["upcoming"] else ""
    return f"{verb} {found['name']}: {_when(found)}{following}"


def _when(found: Row) -> str:
    return f"{found['text'] or found['cron']} ({found['zone']})"


@schedule.command("ls")
@operation_options("schedule.list", own={"limit": "limit"}, shorts={"topic": "-t"})
@limit_option
@list_options
@remote
def list_schedules(
    session: Session, arguments: Arguments, limit: int | None, columns: str, output: str
) -> None:
    """List schedules with when they come next, and what was missed."""
    document = pages(session, "schedule.list", arguments, limit)
    show(Listing(document["schedules"], COLUMNS, document), output, columns)
    tell_silent(document)


@schedule.command("info")
@operation_options("schedule.info")
@output_option
@remote
def info(session: Session, arguments: Arguments, output: str) -> None:
    """Show one schedule: its message, what it did, and its next ten times."""
    reply = session.operate("schedule.info", **arguments)
    found = reply["schedule"]
    if output in {"table", "wide"}:
        facts(_facts(found))
    else:
        show(Listing([found], COLUMNS, found), output)
    tell_silent(reply)


def _facts(found: Row) -> list[tuple[str, str]]:
    pairs = [
        ("name", found["name"]),
        ("topic", f"{found['topic']}/{found['partition']}"),
        ("cron", found["cron"]),
        ("zone", found["zone"]),
        *[("in words", found["text"])] * bool(found["text"]),
        ("catch-up", found["catch_up"]),
        ("state", _state(found)),
        ("created", iso(found["created_ms"])),
        ("last", _time(found["last_ms"])),
        *[(name, _number(found[name])) for name in ("runs", "missed")],
        ("broker", found["broker"]),
        *[("key", found["key"])] * (found["key"] is not None),
        ("value", _value(found)),
    ]
    pairs += [(f"header {name}", value) for name, value in found["headers"].items()]
    return pairs + [("next" if not at else "", iso(ms)) for at, ms in enumerate(found["upcoming"])]


def _number(value: Any) -> str:
    return "-" if value is None else str(value)


def _value(found: Row) -> str:
    return found["value"] if found["value_encoding"] == "string" else f"base64:{found['value']}"


@schedule.command("pause")
@operation_options("schedule.pause")
@output_option
@remote
def pause(session: Session, arguments: Arguments, output: str) -> None:
    """Let a schedule rest: no message comes, and none counts as missed."""
    _pause(session, "pause", arguments, output)


@schedule.command("resume")
@operation_options("schedule.resume")
@output_option
@remote
def resume(session: Session, arguments: Arguments, output: str) -> None:
    """Let a paused schedule go on with the next time that comes."""
    _pause(session, "resume", arguments, output)


def _pause(session: Session, act: str, arguments: Arguments, output: str) -> None:
    reply = session.operate(f"schedule.{act}", **arguments)
    word = "paused" if act == "pause" else "going on"
    verb = "would be" if reply["dry_run"] else "is"
    sentence = f"{arguments['name']} {verb} {word}"
    if not reply["changed"]:
        sentence = f"{arguments['name']} was {word} already"
    _show_one(reply, output, sentence)


@schedule.command("run")
@operation_options("schedule.run")
@output_option
@remote
def run(session: Session, arguments: Arguments, output: str) -> None:
    """Send the message of a schedule once, now; its times stay as they are."""
    reply = session.operate("schedule.run", **arguments)
    place = f"{reply['topic']}/{reply['partition']}"
    if reply["dry_run"]:
        sentence = f"would send the message of {arguments['name']} to {place}"
    else:
        sentence = f"sent the message of {arguments['name']} to {place}@{reply['offset']}"
    columns = [Column(name.upper(), key(name)) for name in ("topic", "partition", "offset")]
    show_done(sentence, Listing([reply], columns, reply, "topic"), output)


@schedule.command("rm")
@operation_options("schedule.delete")
@yes_option
@output_option
@remote
def remove(session: Session, arguments: Arguments, yes: bool, output: str) -> None:
    """Remove a schedule; messages that came are left."""

    def question(plan: Row) -> tuple[str, str]:
        found = plan["schedule"]
        what = f"schedule {found['name']} for {found['topic']} will be removed: {_when(found)}"
        return arguments["name"], what

    reply = carry_out(session, "schedule.delete", arguments, None if yes else question)
    verb = "would remove" if reply["dry_run"] else "removed"
    _show_one(reply, output, f"{verb} {arguments['name']}")


def _show_one(reply: Row, output: str, sentence: str) -> None:
    """Show a reply that is about one schedule."""
    show_done(sentence, Listing([reply["schedule"]], COLUMNS, reply), output)
    tell_silent(reply)


complete(schedule)
