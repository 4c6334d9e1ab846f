"""`tinymq dlq`: list dead letters, look at them, send them back, drop or export them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

import click

from tinymq.cli.groups import Group
from tinymq.cli.operation import Arguments, complete, limit_option, operation_options
from tinymq.cli.output import (
    Column,
    Listing,
    Row,
    counted,
    json_text,
    key,
    note,
    output_option,
    show,
    tell_silent,
    with_times,
)
from tinymq.cli.paging import PAGE, pages
from tinymq.cli.reading import Part, bounded, until_end
from tinymq.cli.render import document
from tinymq.cli.session import Session, remote
from tinymq.cli.steps import Work, carry_on, pace_options
from tinymq.cli.unsettled import content
from tinymq.cli.values import Parsed, human_size, iso, now_ms, parse_time

_TIME: Final = Parsed("time", lambda text: parse_time(text, now_ms()))

#: What these verbs take in their own way.
_TIMES: Final = {"since_ms": "since", "until_ms": "until"}
_STEPS: Final = {**_TIMES, "offsets": "places", "limit": "most"}


def _state(row: Row) -> str:
    """Say what is the matter with a dead-letter topic."""
    if row["kept_why"]:
        return f"KEPT: {row['kept_why']}"
    if row["loop"]:
        return f"LOOP: {row['loop']}"
    return "parking" if row["parking"] else "ok"


def _rate(value: float) -> str:
    return f"{value:.1f}/s"


COLUMNS: Final = (
    Column("TARGET", key("target")),
    Column("FROM", lambda row: ", ".join(row["topics"]) or None),
    Column("CHANNEL", key("channel")),
    Column("MESSAGES", key("messages"), right=True),
    Column("OLDEST", key("oldest_ms"), iso),
    Column("NEW", key("per_s"), _rate, right=True),
    Column("KEPT", key("kept"), right=True),
    Column("STATE", _state),
    Column("NEWEST", key("newest_ms"), iso, wide=True),
)
_GROUPS: Final = (
    Column("COUNT", key("count"), right=True),
    Column("REASON", key("reason")),
    Column("TOPIC", key("topic")),
    Column("CHANNEL", key("channel")),
    Column("ERROR", key("text")),
)


def place(row: Row) -> str:
    """Name a dead letter as ``--offset`` takes it."""
    return f"{row['partition']}:{row['offset']}"


def _origin(row: Row) -> str:
    """Say where a dead letter comes from."""
    return f"{row['topic']}/{row['origin_partition']}@{row['origin_offset']}"


LETTERS: Final = (
    Column("PLACE", place),
    Column("FROM", _origin),
    Column("CHANNEL", key("channel")),
    Column("REASON", key("reason")),
    Column("ATTEMPTS", key("attempts"), right=True),
    Column("GIVEN-UP", key("last_ms"), iso),
    Column("SENT-BACK", key("redriven"), right=True),
    Column("LOOP", lambda row: "LOOP" if row["loop"] else ""),
    Column("ERROR", key("text")),
    Column("FAILURES", key("failures"), right=True, wide=True),
    Column("FIRST-FAILURE", key("first_ms"), iso, wide=True),
    Column("CLIENT", key("client"), wide=True),
    Column("HOPS", key("hops"), right=True, wide=True),
    Column("KEY", content("key"), wide=True),
    Column("SIZE", key("size"), human_size, right=True, wide=True),
    Column("VALUE", content("preview"), wide=True),
)


def _time_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add what chooses by time."""
    for option in (
        click.option("--until", type=_TIME, help="Only those given up before: ISO-8601 or 10m."),
        click.option("--since", type=_TIME, help="Only those given up since: ISO-8601 or 10m."),
    ):
        function = option(function)
    return function


def _step_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add what verbs take that go on step by step."""
    for option in (
        pace_options,
        click.option(
            "--offset",
            "places",
            multiple=True,
            metavar="PARTITION:OFFSET",
            help="Only this one, as `dlq show` names it; may be repeated.",
        ),
        _time_options,
    ):
        function = option(function)
    return function


@click.group(cls=Group)
def dlq() -> None:
    """List dead letters, send them back, drop or export them."""


@dlq.command("ls")
@operation_options("dlq.list", own={"limit": "limit"}, shorts={"topic": "-t"})
@limit_option
@click.option("--columns", default="", metavar="A,B", help="Which columns to show.")
@output_option
@remote
def list_queues(
    session: Session, arguments: Arguments, limit: int | None, columns: str, output: str
) -> None:
    """List dead-letter topics with how much is in them."""
    document_ = pages(session, "dlq.list", arguments, limit)
    found = document_["queues"]
    if not found and output in {"table", "wide"}:
        click.echo("no dead letters: no channel has given a message up")
    else:
        show(Listing(found, COLUMNS, document_, "target"), output, columns)
    tell_silent(document_)


@dlq.command("show")
@operation_options("dlq.messages", own=_TIMES)
@_time_options
@output_option
@remote
def show_letters(
    session: Session, arguments: Arguments, since: int | None, until: int | None, output: str
) -> None:
    """Look at dead letters: how many are alike, then one by one."""
    reply = session.operate("dlq.messages", **_timed(arguments, since, until))
    rows = reply["messages"]
    if output not in {"table", "wide"}:
        named = [{**row, "place": place(row)} for row in rows]
        show(Listing(named, LETTERS, reply, "place"), output)
    elif not rows:
        click.echo(f"no dead letters of this kind in {arguments['target']}")
    else:
        show(Listing(reply["groups"], _GROUPS), output)
        click.echo()
        show(Listing(rows, LETTERS), output)
        loops = sum(row["loop"] for row in rows)
        if loops:
            note(f"{counted(loops, 'message')} of these came back or went in circles before")
        if reply["more"]:
            note(f"there are more: --after {reply['after']}")
    tell_silent(reply)


def _timed(arguments: Arguments, since: int | None, until: int | None) -> Arguments:
    times = {"since_ms": since, "until_ms": until}
    return {**arguments, **{name: at for name, at in times.items() if at is not None}}


# --- step by step ---------------------------------------------------------------------------


def _begin(
    session: Session,
    operation: str,
    arguments: Arguments,
    words: tuple[str, str],
    options: dict[str, Any],
) -> int:
    """Begin work with the options that all of it has."""
    dry_run = arguments.pop("dry_run")
    given = _timed(arguments, options["since"], options["until"])
    if options["places"]:
        given["offsets"] = list(options["places"])
    target = str(given["target"])
    others = f"are still in {target}"
    work = Work(
        operation, given, options["rate"], options["most"], words, "dead letter", target, others
    )
    return carry_on(session, work, dry_run=dry_run, yes=options["yes"], output=options["output"])


@dlq.command("redrive")
@operation_options("dlq.redrive", own=_STEPS)
@_step_options
@remote
def redrive(session: Session, arguments: Arguments, **options: Any) -> int:
    """
    Send dead letters back to the channels that gave them up, or to a topic.

    Each is there before it counts as settled here, so stopping loses nothing.
    """
    return _begin(session, "dlq.redrive", arguments, ("sent back", "sending back"), options)


@dlq.command("drop")
@operation_options("dlq.drop", own=_STEPS)
@_step_options
@remote
def drop(session: Session, arguments: Arguments, **options: Any) -> int:
    """
    Settle dead letters without doing anything with them.

    They stay in the topic's log until that is purged, but count as dealt with.
    """
    return _begin(session, "dlq.drop", arguments, ("dropped", "dropping"), options)


# --- to a file ------------------------------------------------------------------------------


@dlq.command("export")
@operation_options("dlq.messages", own={**_TIMES, "limit": "most"})
@_time_options
@click.option("--max", "most", type=click.IntRange(1), help="Stop after so many.")
@remote
def export(
    session: Session,
    arguments: Arguments,
    since: int | None,
    until: int | None,
    most: int | None,
) -> None:
    """
    Write dead letters to stdout as JSON, one a line, whole and with all headers.

    Nothing changes: they are still there.
    """
    given = _timed(arguments, since, until)
    written = 0
    while True:
        size = PAGE if most is None else min(PAGE, most - written)
        reply = session.operate("dlq.messages", **{**given, "limit": size})
        written += _write(session, given["target"], reply["messages"])
        tell_silent(reply)
        if not reply["more"] or written == most:
            break
        given["after"] = reply["after"]


def _write(session: Session, target: str, rows: list[Row]) -> int:
    """Read dead letters from the log, and write them."""
    wanted = {(row["partition"], row["offset"]) for row in rows}
    parts = [
        Part(partition, min(offsets), max(offsets) + 1)
        for partition in sorted({partition for partition, _ in wanted})
        if (offsets := [offset for where, offset in wanted if where == partition])
    ]
    consumer = bounded(session)
    written = 0
    try:
        for records in until_end(session, consumer, target, parts):
            for placed in records:
                if (placed.partition, placed.record.offset) in wanted:
                    line = json_text(with_times(document(placed)))
                    sys.stdout.buffer.write(line.encode() + b"\n")
                    written += 1
    finally:
        consumer.close()
    sys.stdout.buffer.flush()
    return written


complete(dlq)
