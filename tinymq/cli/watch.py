"""`tinymq watch`: changes of topics, channels and brokers as they happen."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import click

from tinymq.cli.endless import Outage, until_interrupted
from tinymq.cli.operation import Arguments, operation_options
from tinymq.cli.output import printable, write_json
from tinymq.cli.session import Session, remote
from tinymq.cli.values import iso, now_ms

#: Seconds for which the broker may keep a question that has no answer yet.
LONGEST_S: Final = 25.0
#: Of the time that a request may take, so much is left for its way.
_WAY_S: Final = 3.0


def changes(session: Session, arguments: Arguments) -> Iterator[list[dict[str, Any]]]:
    """
    Yield what changes from now on, for ever; an outage is waited for.

    What changed during an outage comes behind it.

    Args:
        session: Where to ask.
        arguments: May say since which revision.
    """
    reply = _ask(session, arguments.get("revision"), 0)
    yield reply["changes"] if "revision" in arguments else []
    wait = min(LONGEST_S, max(session.timeout - _WAY_S, session.timeout / 2))
    outage = Outage(session.sleep)
    while True:
        reply = outage.outlast(partial(_ask, session, reply["revision"], int(wait * 1000)))
        yield reply["changes"]


def _ask(session: Session, revision: int | None, wait_ms: int) -> dict[str, Any]:
    return session.operate("cluster.watch", revision=revision, wait_ms=wait_ms)


@click.command()
@operation_options("cluster.watch", own={"wait_ms": "timeout"})
@click.option("--filter", "pattern", default="", metavar="GLOB", help="Of names: 'orders.*'.")
@click.option(
    "--only", type=click.Choice(["topic", "channel", "broker"]), help="Only changes of these."
)
@click.option("-n", "--max", "most", type=click.IntRange(1), help="Stop after so many changes.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "ndjson"]),
    default="text",
    show_default=True,
    help="json and ndjson: one object a line.",
)
@remote
@until_interrupted
def watch(
    session: Session,
    arguments: Arguments,
    pattern: str,
    only: str | None,
    most: int | None,
    output: str,
) -> None:
    """Print changes of topics, channels and brokers as they happen."""
    left = most
    for some in changes(session, arguments):
        for change in some:
            if only not in {None, change["what"]}:
                continue
            if not fnmatch.fnmatchcase(change["name"], pattern or "*"):
                continue
            _print(change, output)
            left = None if left is None else left - 1
            if left == 0:
                return


def _print(change: dict[str, Any], output: str) -> None:
    now = now_ms()
    if output == "text":
        name = printable(str(change["name"]))
        click.echo(f"{iso(now)}  {change['what']:<7}  {change['change']:<7}  {name}")
    else:
        write_json({"time_ms": now, **change}, indent=None)
