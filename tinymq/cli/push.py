"""`tinymq push`: where the messages of channels are sent to, and how that goes."""

from __future__ import annotations

import os
from typing import Any, Final

import click

from tinymq.cli.confirm import yes_option
from tinymq.cli.failure import REFUSED
from tinymq.cli.groups import Group
from tinymq.cli.operation import Arguments, complete, limit_option, operation_options
from tinymq.cli.output import (
    Column,
    Listing,
    Row,
    key,
    list_options,
    output_option,
    printable,
    show,
    tell_silent,
    write_json,
)
from tinymq.cli.pace import per_second
from tinymq.cli.paging import pages
from tinymq.cli.reply import carry_out, show_done, show_whole
from tinymq.cli.session import Session, remote
from tinymq.cli.values import DURATION, Parsed, iso
from tinymq.webhook import SECRET_BYTES, new_secret


def place(row: Row) -> str:
    """Name the channel whose messages are sent."""
    return f"{row['topic']}/{row['channel']}"


def _state(row: Row) -> str:
    return f"{row['state']}: {row['why']}" if row["why"] else str(row["state"])


def _time(value: Any) -> str:
    return f"{value:.0f}ms" if value < 1000 else f"{value / 1000:.1f}s"


COLUMNS: Final = (
    Column("TOPIC", key("topic")),
    Column("CHANNEL", key("channel")),
    Column("URL", key("url")),
    Column("IN-FLIGHT", key("in_flight"), right=True),
    Column("DELIVERED", key("delivered"), right=True),
    Column("FAILED", key("failed"), right=True),
    Column("STATUS", key("last_status"), right=True),
    Column("P50", key("p50_ms"), _time, right=True),
    Column("P95", key("p95_ms"), _time, right=True),
    Column("STATE", _state),
    Column("DELIVERED/S", key("delivered_s"), per_second, right=True, wide=True),
    Column("FAILED/S", key("failed_s"), per_second, right=True, wide=True),
    Column("SINCE", key("since_ms"), iso, wide=True),
    Column("RETRY-AT", key("retry_at_ms"), iso, wide=True),
    Column("LAST-ERROR", key("last_error"), wide=True),
)


def _header(text: str) -> tuple[str, str]:
    name, colon, content = text.partition(":")
    if not colon or not name:
        raise ValueError(f"{text[:20]!r} is no header; write name:value")
    return name.strip(), content.strip()


_HEADER: Final = Parsed("name:value", _header)


@click.group(cls=Group)
def push() -> None:
    """Have messages of channels sent to URLs."""


@push.command("set")
@operation_options(
    "push.set",
    own={
        "url": "endpoint",  # --url is where the broker is
        "secret": "secret_file",
        "timeout_ms": "within",  # --timeout is that of the command
        "headers": "header",
    },
)
@click.argument("endpoint", metavar="URL")
@click.option(
    "--secret-file",
    type=click.File(),
    help="Take what requests are signed with from a file; - is stdin. Without it the present "
    "secret stays, or one is made and shown once.",
)
@click.option(
    "--new-secret",
    is_flag=True,
    help="Make another secret and show it once, such as when the present one was lost.",
)
@click.option(
    "--answer-within",
    "within",
    type=DURATION,
    help="How long an answer may take.  [default: 10s]",
)
@click.option(
    "--header",
    type=_HEADER,
    multiple=True,
    help="Add a header to each request; values are never shown again. May be repeated. Without "
    "it the present ones stay.",
)
@click.option("--no-headers", is_flag=True, help="Add no headers any more.")
@output_option
@remote
def set_endpoint(
    session: Session,
    arguments: Arguments,
    endpoint: str,
    output: str,
    **how: Any,
) -> None:
    """
    Send the messages of a channel to a URL.

    What was set before is replaced, and a pause ends.
    """
    if how["secret_file"] is not None:
        arguments["secret"] = how["secret_file"].read().strip()
    made = ""
    if how["new_secret"]:
        if "secret" in arguments:
            raise click.UsageError("give --secret-file or --new-secret, not both")
        arguments["secret"] = made = new_secret(os.urandom(SECRET_BYTES))
    if how["within"] is not None:
        arguments["timeout_ms"] = round(how["within"] * 1000)
    if how["header"] or how["no_headers"]:
        arguments["headers"] = dict(how["header"])
    reply = session.operate("push.set", **arguments, url=endpoint)
    words = "would be" if reply["dry_run"] else "is"
    sentence = f"{_named(arguments)} {words} sent to {reply['endpoint']['url']}"
    if made and not reply["dry_run"]:
        reply = {**reply, "secret": made}
    if reply["secret"]:
        sentence += f"\nsecret, shown only now: {reply['secret']}"
    _show_one(reply, output, sentence)


@push.command("ls")
@operation_options("push.list", own={"limit": "limit"}, shorts={"topic": "-t"})
@limit_option
@list_options
@remote
def list_endpoints(
    session: Session, arguments: Arguments, limit: int | None, columns: str, output: str
) -> None:
    """List push endpoints with how they do."""
    document = pages(session, "push.list", arguments, limit)
    rows = [{**row, "place": place(row)} for row in document["endpoints"]]
    show(Listing(rows, COLUMNS, document, "place"), output, columns)
    tell_silent(document)


@push.command("info")
@operation_options("push.info")
@output_option
@remote
def info(session: Session, arguments: Arguments, output: str) -> None:
    """Show the push endpoint of a channel: where it is, how it does, what went wrong last."""
    reply = session.operate("push.info", **arguments)
    found = reply["endpoint"]
    whole = Listing([{**found, "place": place(found)}], COLUMNS, reply, "place")
    show_whole(whole, _facts(found), Listing((), ()), output, inside=False)
    tell_silent(reply)


def _facts(found: Row) -> list[tuple[str, str]]:
    pairs = [
        ("topic", found["topic"]),
        ("channel", found["channel"]),
        ("url", found["url"]),
        ("state", _state(found)),
        ("since", iso(found["since_ms"])),
        ("set", iso(found["set_ms"])),
        ("time-out", _time(found["timeout_ms"])),
        ("concurrency", f"{found['concurrency']} at each broker"),
        ("gives up", f"after {found['give_up']} failures in a row"),
        ("headers", ", ".join(found["headers"]) or "none"),
        ("in flight", str(found["in_flight"])),
        ("delivered", f"{found['delivered']} ({per_second(found['delivered_s'])})"),
        ("failed", f"{found['failed']} ({per_second(found['failed_s'])})"),
        ("last status", "-" if found["last_status"] is None else str(found["last_status"])),
        ("last error", found["last_error"] or "none"),
    ]
    for name, field, write in (
        ("last error at", "last_error_ms", iso),
        ("median", "p50_ms", _time),
        ("95 of 100 within", "p95_ms", _time),
        ("asked to wait until", "retry_at_ms", iso),
    ):
        if found[field] is not None:
            pairs.append((name, write(found[field])))
    return pairs


@push.command("rm")
@operation_options("push.delete")
@yes_option
@output_option
@remote
def remove(session: Session, arguments: Arguments, yes: bool, output: str) -> None:
    """Send the messages of a channel nowhere any more; they stay in the channel."""

    def question(plan: Row) -> tuple[str, str]:
        what = f"messages of {_named(arguments)} will not be sent to {plan['endpoint']['url']}"
        return arguments["name"], what

    reply = carry_out(session, "push.delete", arguments, None if yes else question)
    words = "would not be" if reply["dry_run"] else "is not"
    _show_one(reply, output, f"{_named(arguments)} {words} sent anywhere any more")


@push.command("pause")
@operation_options("push.pause")
@output_option
@remote
def pause(session: Session, arguments: Arguments, output: str) -> None:
    """Send nothing to an endpoint until it is resumed; its messages wait."""
    reply = session.operate("push.pause", **arguments)
    words = "would be" if reply["dry_run"] else "is"
    _show_one(reply, output, f"{_named(arguments)} {words} paused")


@push.command("resume")
@operation_options("push.resume")
@output_option
@remote
def resume(session: Session, arguments: Arguments, output: str) -> None:
    """Let an endpoint go on that was paused, or that asked to be left alone."""
    reply = session.operate("push.resume", **arguments)
    words = "would go on" if reply["dry_run"] else "goes on"
    _show_one(reply, output, f"{_named(arguments)} {words}")


@push.command("test")
@operation_options("push.test")
@output_option
@remote
def test(session: Session, arguments: Arguments, output: str) -> int:
    """Send one made-up message to an endpoint; the exit status says whether it was taken."""
    reply = session.operate("push.test", **arguments)
    if output in {"json", "ndjson"}:
        write_json(reply, indent=2 if output == "json" else None)
    elif reply["dry_run"]:
        click.echo(f"would send one message from {reply['broker']}")
    else:
        said = "no answer" if reply["status"] is None else f"status {reply['status']}"
        click.echo(f"{said} after {_time(reply['ms'])}, sent by {reply['broker']}")
        for text in filter(None, (reply["error"], reply["answer"])):
            click.echo(printable(text))
    return 0 if reply["ok"] or reply["dry_run"] else REFUSED


def _show_one(reply: Row, output: str, sentence: str) -> None:
    found = reply["endpoint"]
    row = {**found, "place": place(found)}
    show_done(sentence, Listing([row], COLUMNS, reply, "place"), output)
    tell_silent(reply)


def _named(arguments: Arguments) -> str:
    return f"{arguments['topic']}/{arguments['name']}"


complete(push)
