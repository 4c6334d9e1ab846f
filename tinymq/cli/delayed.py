"""`tinymq delayed`: list messages that are not due yet, cancel, release or move them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import click

from tinymq.catalog import PUBLIC
from tinymq.catalog.delayed import MOST_IDS
from tinymq.cli.confirm import confirm
from tinymq.cli.failure import REFUSED
from tinymq.cli.groups import Group
from tinymq.cli.operation import Arguments, complete, limit_option, operation_options
from tinymq.cli.output import (
    Column,
    Listing,
    Row,
    counted,
    facts,
    key,
    list_options,
    note,
    output_option,
    show,
    tell_passed,
    tell_silent,
    write_json,
)
from tinymq.cli.pace import span
from tinymq.cli.paging import pages
from tinymq.cli.reply import show_plan
from tinymq.cli.session import Session, remote
from tinymq.cli.steps import Work, carry_on, pace_options, were
from tinymq.cli.unsettled import content, until
from tinymq.cli.values import (
    DELAY,
    MOMENT,
    MOMENT_TEXT,
    Parsed,
    human_size,
    iso,
    now_ms,
    parse_ahead,
)

#: Signs of the longest bar of a histogram.
_BAR: Final = 40
#: What is done, and is being done, to be said.
_WORDS: Final = {
    "cancel": ("cancelled", "cancelling"),
    "now": ("released", "releasing"),
    "move": ("moved", "moving"),
}
#: Parameters of the operation on single messages, as the verbs take them.
_OWN: Final = dict.fromkeys(("topic", "partition", "ids"), "places")
_TIMES: Final = {"since_ms": "since", "until_ms": "until"}
#: How the operation on all that fit calls what these verbs take.
_FILTERS: Final = ("topic", "partition", "key", "schedule", "after")

_TIME: Final = "then: ISO-8601, UTC without a zone, or 10m for in ten minutes."
_AHEAD: Final = Parsed("time", lambda text: parse_ahead(text, now_ms()))


def place(row: Row) -> str:
    """Name a message as the verbs take it; one that a channel retries as `channel wake` does."""
    if row["id"] is None:
        return f"{row['topic']}/{row['channel']}/{row['partition']}@{row['offset']}"
    return f"{row['topic']}/{row['partition']}~{row['id']}"


def _why(row: Row) -> str:
    """Say why it waits, with the attempt or the schedule that it is."""
    return " ".join(str(each) for each in (row["why"], row["attempt"], row["schedule"]) if each)


def _key(row: Row) -> Any:
    return content("key")({"key": row["key"], "key_encoding": row["encoding"]})


COLUMNS: Final = (
    Column("MESSAGE", place),
    Column("DUE", key("due_ms"), iso),
    Column("DUE-IN", until("due_ms"), span, right=True),
    Column("WHY", _why),
    Column("KEY", _key),
    Column("SIZE", key("size"), human_size, right=True),
    Column("ATTEMPT", lambda row: row["attempt"] or None, right=True, wide=True),
    Column("SCHEDULE", key("schedule"), wide=True),
    Column("CHANNEL", key("channel"), wide=True),
    Column("TAKEN", key("taken_ms"), iso, wide=True),
)
_ACTED: Final = (Column("MESSAGE", key("message")), Column("RESULT", key("result")))
_BUCKETS: Final = (
    Column("FROM", key("from_ms"), iso),
    Column("IN", until("from_ms"), span, right=True),
    Column("TO", until("to_ms"), span, right=True),
    Column("MESSAGES", key("messages"), right=True),
    Column("", key("bar")),
)


def _due_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add what chooses by due time."""
    for option in (
        click.option("--until", type=_AHEAD, help=f"Only those due before {_TIME}"),
        click.option("--since", type=_AHEAD, help=f"Only those due from {_TIME}"),
    ):
        function = option(function)
    return function


def _which_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add what says which messages: their names, or what they have in common."""
    texts = {each.name: each.text for each in PUBLIC["delayed.apply"].parameters}
    for option in (
        pace_options,
        click.option("--after", help=texts["after"]),
        _due_options,
        click.option("--schedule", help=texts["schedule"]),
        click.option("--key", help=texts["key"]),
        click.option("-p", "--partition", type=click.IntRange(0), help=texts["partition"]),
        click.option("-t", "--topic", help="Those of this topic; with --all."),
        click.option("--all", "every", is_flag=True, help="All that fit, step by step."),
        click.argument("places", metavar="TOPIC/PARTITION~ID...", nargs=-1),
    ):
        function = option(function)
    return function


@click.group(cls=Group)
def delayed() -> None:
    """List, cancel, release or move messages not due yet."""


@delayed.command("ls")
@operation_options(
    "delayed.list", own={"limit": "limit", **_TIMES}, shorts={"topic": "-t", "channel": "-c"}
)
@_due_options
@limit_option
@list_options
@remote
def list_messages(  # noqa: PLR0913, PLR0917 - options
    session: Session,
    arguments: Arguments,
    since: int | None,
    until: int | None,
    limit: int | None,
    columns: str,
    output: str,
) -> None:
    """
    List messages that are not due yet, in order of their time.

    `-o name` writes them as the other verbs take them.
    """
    document = pages(session, "delayed.list", _timed(arguments, since, until), limit)
    rows = [{**row, "place": place(row)} for row in document["messages"]]
    if not rows and output in {"table", "wide"}:
        click.echo("nothing waits until it is due")
    else:
        show(Listing(rows, COLUMNS, document, "place"), output, columns)
    tell_silent(document)


@delayed.command("show")
@operation_options("delayed.get", own={**dict.fromkeys(("topic", "partition", "id"), "place")})
@click.argument("place", metavar="TOPIC/PARTITION~ID")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table")
@remote
def show_message(session: Session, arguments: Arguments, place: str, output: str) -> None:
    """Look at one message that is not due yet."""
    (((topic, partition), (number,)),) = parse_places([place]).items()
    reply = session.operate("delayed.get", **arguments, topic=topic, partition=partition, id=number)
    if output == "json":
        write_json(reply)
        return
    row = reply["message"]
    told = [
        ("message", place),
        ("due", f"{iso(row['due_ms'])}, in {span(max(0, row['due_ms'] - now_ms()))}"),
        ("taken", None if row["taken_ms"] is None else iso(row["taken_ms"])),
        ("schedule", row["schedule"]),
        ("key", _key(row)),
        *((f"header {each['name']}", content("value")(each)) for each in row["headers"]),
        ("size", human_size(row["size"])),
        ("value", content("value")(row)),
    ]
    facts([(name, value) for name, value in told if value is not None])


@delayed.command("histogram")
@operation_options("delayed.histogram", shorts={"topic": "-t", "channel": "-c"})
@output_option
@remote
def histogram(session: Session, arguments: Arguments, output: str) -> None:
    """Count the messages that are not due yet by when they are."""
    reply = session.operate("delayed.histogram", **arguments)
    most = max((row["messages"] for row in reply["buckets"]), default=0)
    rows = [
        {**row, "bar": "#" * -(-row["messages"] * _BAR // most) if most else ""}
        for row in reply["buckets"]
    ]
    if output not in {"table", "wide"}:
        show(Listing(reply["buckets"], _BUCKETS[:-1], reply, "from_ms"), output)
    else:
        filled = [row for row in rows if row["messages"]]
        if filled:
            show(Listing(filled, _BUCKETS), output)
        click.echo(_summary(reply))
    tell_silent(reply)


def _summary(reply: Row) -> str:
    if not reply["total"]:
        return "nothing waits until it is due"
    late = f", {reply['overdue']} overdue" if reply["overdue"] else ""
    first = f"; the first is due at {iso(reply['next_ms'])}" if reply["next_ms"] else ""
    verb = "waits" if reply["total"] == 1 else "wait"
    return f"{counted(reply['total'], 'message')} {verb}{late}{first}"


# --- what becomes of them -------------------------------------------------------------------


@delayed.command("cancel")
@operation_options("delayed.cancel", own=_OWN)
@_which_options
@remote
def cancel(session: Session, arguments: Arguments, **options: Any) -> int:
    """
    Cancel messages that are not due yet; they never come.

    Named one by one, or with --topic and --all everything that fits.
    """
    return _act(session, "cancel", arguments, options)


@delayed.command("now")
@operation_options("delayed.now", own=_OWN)
@_which_options
@remote
def now(session: Session, arguments: Arguments, **options: Any) -> int:
    """
    Let messages that are not due yet come now.

    Named one by one, or with --topic and --all everything that fits.
    """
    return _act(session, "now", arguments, options)


@delayed.command("move")
@operation_options("delayed.move", own={**_OWN, "due_ms": "at", "delay_ms": "delay"})
@click.option("--delay", type=DELAY, help="They come so long from now: 5m, 1h30m.")
@click.option("--at", type=MOMENT, help=f"They come then: {MOMENT_TEXT}")
@_which_options
@remote
def move(
    session: Session, arguments: Arguments, delay: float | None, at: int | None, **options: Any
) -> int:
    """
    Let messages that are not due yet come at another time.

    Named one by one, or with --topic and --all everything that fits.
    """
    if (delay is None) == (at is None):
        raise click.UsageError("give --delay or --at")
    when = {"due_ms": at} if delay is None else {"delay_ms": round(delay * 1000)}
    status = _act(session, "move", {**arguments, **when}, options)
    tell_passed(at)
    return status


def parse_places(texts: Sequence[str]) -> dict[tuple[str, int], list[int]]:
    """
    Read ``TOPIC/PARTITION~ID``, as `delayed ls` and `pub` write it.

    Raises:
        UsageError: One is no such place.
    """
    found: dict[tuple[str, int], list[int]] = {}
    for each in texts:
        name, _, number = each.rpartition("~")
        topic, _, partition = name.rpartition("/")
        if not (topic and all(one.isascii() and one.isdecimal() for one in (partition, number))):
            retried = "@" in each
            raise click.UsageError(
                f"{each!r} is no delayed message; "
                + ("what a channel retries is for `channel wake` and `channel delay`; " * retried)
                + "write TOPIC/PARTITION~ID, such as orders/0~17, as `delayed ls`"
            )
        found.setdefault((topic, int(partition)), []).append(int(number))
    return {home: list(dict.fromkeys(ids)) for home, ids in found.items()}


def _timed(arguments: Arguments, since: int | None, until: int | None) -> Arguments:
    times = {"since_ms": since, "until_ms": until}
    return {**arguments, **{name: at for name, at in times.items() if at is not None}}


def _act(session: Session, act: str, arguments: Arguments, options: dict[str, Any]) -> int:
    """Do it with those that are named, or with all that fit."""
    which = {name: options[name] for name in _FILTERS if options[name] is not None}
    which = _timed(which, options["since"], options["until"])
    if options["places"]:
        if which or options["every"]:
            raise click.UsageError("name messages, or give --topic and --all, not both")
        return _act_named(session, act, arguments, options)
    if not (options["every"] and options["topic"]):
        raise click.UsageError("name messages, such as orders/0~17, or give --topic NAME and --all")
    dry_run = arguments.pop("dry_run")
    work = Work(
        "delayed.apply",
        {"act": act, **which, **arguments},
        options["rate"],
        options["most"],
        _WORDS[act],
        "delayed message",
        options["topic"],
        "wait as before",
    )
    return carry_on(session, work, dry_run=dry_run, yes=options["yes"], output=options["output"])


def _act_named(session: Session, act: str, arguments: Arguments, options: dict[str, Any]) -> int:
    """Do it partition by partition, and tell what was done and what does not wait any more."""
    places, word = parse_places(options["places"]), _WORDS[act][0]
    count = sum(map(len, places.values()))
    if act == "cancel" and not arguments["dry_run"]:
        name = options["places"][0] if count == 1 else str(count)
        confirm(name, f"{counted(count, 'message')} will be {word}", yes=options["yes"])
    rows: list[dict[str, Any]] = []
    times: list[int] = []
    for (topic, partition), ids in places.items():
        for first in range(0, len(ids), MOST_IDS):
            reply = session.operate(
                f"delayed.{act}",
                topic=topic,
                partition=partition,
                ids=ids[first : first + MOST_IDS],
                **arguments,
            )
            times += [reply["due_ms"]] if reply.get("due_ms") else []
            for result in ("done", "missing"):
                rows += [
                    {"message": f"{topic}/{partition}~{each}", "result": result}
                    for each in reply[result]
                ]
    word += f" to {iso(times[0])}" if times else ""
    return _tell(rows, options["output"], word, dry_run=arguments["dry_run"])


def _tell(rows: Sequence[Row], output: str, word: str, *, dry_run: bool) -> int:
    by_result = {
        result: [row["message"] for row in rows if row["result"] == result]
        for result in ("done", "missing")
    }
    count = len(by_result["done"])
    verb = "would be" if dry_run else were(count)
    listing = Listing(rows, _ACTED, {**by_result, "dry_run": dry_run}, "message")
    show_plan(f"{counted(count, 'message')} {verb} {word}", listing, output)
    if not by_result["missing"]:
        return 0
    note(f"does not wait any more: {', '.join(by_result['missing'])}")
    return REFUSED


complete(delayed)
delayed.commands["apply"].hidden = True  # one step of what `--all` does
