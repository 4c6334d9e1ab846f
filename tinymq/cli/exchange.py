"""`tinymq exchange` and `tinymq binding`: which topics lead where, and on what terms."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
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
    note,
    output_option,
    show,
    tell_silent,
)
from tinymq.cli.pace import per_second
from tinymq.cli.paging import pages
from tinymq.cli.reply import carry_out, show_done, show_whole
from tinymq.cli.session import Session, remote
from tinymq.cli.settings import Given, set_option
from tinymq.cli.values import HEADER, iso


def terms(row: Row) -> str:
    """Say in one line what a message must meet to take a binding's way."""
    return row["rule"] or " ".join(row["headers"]) or (row["key"] or "")


def _state(row: Row) -> str:
    stuck = row.get("stuck") or ()
    return ", ".join(f"{each['target']}: {each['why']}" for each in stuck) or "ok"


COLUMNS: Final = (
    Column("NAME", key("name")),
    Column("KIND", key("kind")),
    Column("BINDINGS", key("bindings"), right=True),
    Column("IN/S", key("in_s"), per_second, right=True),
    Column("OUT/S", key("out_s"), per_second, right=True),
    Column("UNROUTABLE", key("unroutable"), right=True),
    Column("LAG", key("lag"), right=True),
    Column("STATE", _state),
    Column("DEAD-LETTER", key("dead_letter"), wide=True),
    Column("FAILED-RULES", key("failed"), right=True, wide=True),
    Column("CREATED", key("created_ms"), iso, wide=True),
)

BINDING_COLUMNS: Final = (
    Column("EXCHANGE", key("exchange")),
    Column("ID", key("id")),
    Column("TARGET", key("target")),
    Column("TAKES", terms),
    Column("CREATED", key("created_ms"), iso, wide=True),
)

PATH_COLUMNS: Final = (
    Column("EXCHANGE", key("exchange")),
    Column("BINDING", key("binding")),
    Column("TARGET", key("target")),
)

EDGE_COLUMNS: Final = (
    Column("EXCHANGE", key("from")),
    Column("TARGET", key("to")),
    Column("BINDINGS", key("bindings"), right=True),
    Column("TAKES", lambda row: row["label"] or "everything"),
)

_FIGURES: Final = ("in_s", "out_s", "unroutable", "failed", "lag")


@click.group(cls=Group)
def exchange() -> None:
    """List, make, change, try and remove exchanges."""


@exchange.command("ls")
@operation_options("exchange.list", own={"limit": "limit"})
@limit_option
@list_options
@remote
def list_exchanges(
    session: Session, arguments: Arguments, limit: int | None, columns: str, output: str
) -> None:
    """List exchanges with what they do."""
    document = pages(session, "exchange.list", arguments, limit)
    show(Listing(document["exchanges"], COLUMNS, document), output, columns)
    tell_silent(document)


@exchange.command("create")
@operation_options(
    "exchange.create",
    own={"config": "settings", "kind": "how"},
    shorts={"partitions": "-p"},
)
@click.option(
    "-k",
    "--kind",
    "how",
    type=click.Choice(["direct", "topic", "fanout", "headers", "rule"]),
    required=True,
    help="How bindings are found.",
)
@set_option("sync=os or retention.ms=7d")
@output_option
@remote
def create(session: Session, arguments: Arguments, how: str, settings: Given, output: str) -> None:
    """
    Make a topic an exchange; the topic is made if it is not there.

    One that is such an exchange already is left as it is, which is no error.
    """
    reply = session.operate("exchange.create", **arguments, kind=how, config=dict(settings))
    made = "made" if reply["created"] else "exists already:"
    if reply["dry_run"] and reply["created"]:
        made = "would make"
    _show_one(reply, f"{made} {arguments['name']}, a {how} exchange", output)


@exchange.command("info")
@operation_options("exchange.info")
@click.option("-b", "--bindings", is_flag=True, help="Show the first bindings, too.")
@output_option
@remote
def info(session: Session, arguments: Arguments, bindings: bool, output: str) -> None:
    """Show one exchange: what it does, and with -b its first bindings."""
    reply = session.operate("exchange.info", **arguments)
    found = reply["exchange"]
    whole = Listing([found], COLUMNS, reply)
    parts = Listing(reply["bindings"], BINDING_COLUMNS, name="id")
    show_whole(whole, _facts(found), parts, output, inside=bindings)
    if reply["more"] and bindings:
        click.echo(f"there are more: tinymq binding ls --exchange {found['name']}", err=True)
    tell_silent(found)


def _facts(found: Row) -> list[tuple[str, str]]:
    pairs = [(name, str(found[name])) for name in ("name", "kind", "bindings", "partitions")]
    pairs += [("created", iso(found["created_ms"])), ("dead letters", found["dead_letter"])]
    shown = [(name, found[name]) for name in _FIGURES if found[name] is not None]
    pairs += [(name.replace("_s", " a second"), str(value)) for name, value in shown]
    return [*pairs, ("state", _state(found))]


@exchange.command("alter")
@operation_options("exchange.alter")
@click.option("--default", is_flag=True, help="NAME.unroutable again.")
@output_option
@remote
def alter(session: Session, arguments: Arguments, default: bool, output: str) -> None:
    """Change where an exchange sends what no binding takes."""
    if default == ("dead_letter" in arguments):
        raise click.UsageError("say --dead-letter TOPIC or --default")
    reply = session.operate("exchange.alter", **arguments)
    verb = "would send" if reply["dry_run"] else "sends"
    target = reply["exchange"]["dead_letter"]
    _show_one(reply, f"{arguments['name']} {verb} what no binding takes to {target}", output)


@exchange.command("rm")
@operation_options("exchange.delete")
@yes_option
@output_option
@remote
def remove(session: Session, arguments: Arguments, yes: bool, output: str) -> None:
    """Let an exchange be a plain topic again: its bindings go, its messages stay."""

    def question(plan: Row) -> tuple[str, str]:
        found = plan["exchange"]
        what = f"exchange {found['name']} with {counted(found['bindings'], 'binding')}"
        return found["name"], f"{what} will be a plain topic again"

    reply = carry_out(session, "exchange.delete", arguments, None if yes else question)
    verb = "would be" if reply["dry_run"] else "is"
    count = counted(reply["exchange"]["bindings"], "binding")
    _show_one(reply, f"{arguments['name']} {verb} a plain topic; {count} gone", output)


def _show_one(reply: Row, sentence: str, output: str) -> None:
    row = {**dict.fromkeys(_FIGURES), "stuck": [], **reply["exchange"]}
    show_done(sentence, Listing([row], COLUMNS, reply), output)


@exchange.command("test")
@operation_options(
    "exchange.test",
    own={"headers": "pairs", "value": "content"},
    shorts={"key": "-k"},
)
@click.option("-H", "--header", "pairs", type=HEADER, multiple=True, help="May be repeated.")
@click.option("-v", "--value", "content", help="The value; @FILE reads it from a file.")
@output_option
@remote
def test(
    session: Session,
    arguments: Arguments,
    pairs: tuple[tuple[str, bytes], ...],
    content: str | None,
    output: str,
) -> None:
    """Say where a message would go, through all exchanges; none is published."""
    if content is not None:
        arguments |= _value(content)
    headers = [[name, value.decode("utf-8", "replace")] for name, value in pairs]
    reply = session.operate("exchange.test", **arguments, headers=headers)
    if output in {"table", "wide"}:
        if reply["unroutable"]:
            click.echo(f"no binding takes it; it goes to {reply['dead_letter']}")
        else:
            click.echo(f"goes to {', '.join(reply['targets'])}")
        click.echo()
    show(Listing(reply["path"], PATH_COLUMNS, reply, "target"), output)
    for failure in reply["failures"]:
        click.echo(f"a rule fails on it: {failure}", err=True)


@exchange.command("topology")
@operation_options("exchange.topology", shorts={"exchange": "-e"})
@output_option
@remote
def topology(session: Session, arguments: Arguments, output: str) -> None:
    """Show which exchanges and topics lead where."""
    reply = session.operate("exchange.topology", **arguments)
    show(Listing(reply["edges"], EDGE_COLUMNS, reply, "to"), output)
    if reply["left_out"]["edges"]:
        note(f"{counted(reply['left_out']['edges'], 'way')} left out; choose with --exchange")


def _value(content: str) -> Arguments:
    """Make the arguments for a value; what is no text in a file becomes base64."""
    if not content.startswith("@"):
        return {"value": content}
    try:
        found = Path(content[1:]).read_bytes()
    except OSError as error:
        raise click.UsageError(f"{content[1:]} cannot be read: {error.strerror}") from None
    try:
        return {"value": found.decode()}
    except UnicodeDecodeError:
        return {"value": b64encode(found).decode(), "encoding": "base64"}


@click.group(cls=Group)
def binding() -> None:
    """List, add and remove bindings of exchanges."""


@binding.command("ls")
@operation_options("binding.list", own={"limit": "limit"}, shorts={"exchange": "-e"})
@limit_option
@list_options
@remote
def list_bindings(
    session: Session, arguments: Arguments, limit: int | None, columns: str, output: str
) -> None:
    """List bindings with what they take."""
    document = pages(session, "binding.list", arguments, limit)
    show(Listing(document["bindings"], BINDING_COLUMNS, document, "id"), output, columns)


@binding.command("add")
@operation_options("binding.add", own={"headers": "conditions"}, shorts={"key": "-k"})
@click.option(
    "-H",
    "--header",
    "conditions",
    multiple=True,
    metavar="CONDITION",
    help="NAME=VALUE, NAME!=VALUE, NAME or !NAME; all of several must hold.",
)
@output_option
@remote
def add(session: Session, arguments: Arguments, conditions: tuple[str, ...], output: str) -> None:
    """
    Let messages of EXCHANGE go to TARGET, too.

    Such as `--key 'eu.#'`, `--header region=eu`, or `--rule 'json.total > 100'`.
    """
    for each in conditions:
        if ":" in each and "=" not in each:
            raise click.UsageError(
                f"{each!r} would ask for a header of this whole name; write --header NAME=VALUE"
            )
    asked: dict[str, Any] = {**arguments, **({"headers": list(conditions)} if conditions else {})}
    reply = session.operate("binding.add", **asked)
    made = "added" if reply["created"] else "is there already:"
    if reply["dry_run"] and reply["created"]:
        made = "would add"
    _show_binding(reply, made, output)


@binding.command("rm")
@operation_options("binding.delete", own={"id": "where"})
@click.argument("where", metavar="ID")
@output_option
@remote
def remove_binding(session: Session, arguments: Arguments, where: str, output: str) -> None:
    """Remove a binding by its id, which `binding ls` shows."""
    reply = session.operate("binding.delete", **arguments, id=where)
    _show_binding(reply, "would remove" if reply["dry_run"] else "removed", output)


def _show_binding(reply: Row, verb: str, output: str) -> None:
    found = reply["binding"]
    sentence = f"{verb} {found['exchange']} -> {found['target']}, {found['id']}"
    show_done(sentence, Listing([found], BINDING_COLUMNS, reply, "id"), output)


complete(exchange)
complete(binding)
