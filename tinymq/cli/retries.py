"""`tinymq channel wake` and `delay`: what waits for its next attempt comes sooner or later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click

from tinymq.catalog.inflight import MOST_OFFSETS
from tinymq.cli.confirm import confirm, yes_option
from tinymq.cli.failure import REFUSED
from tinymq.cli.inflight import SETTLED_COLUMNS, parse_places
from tinymq.cli.operation import Arguments, operation_options
from tinymq.cli.output import Listing, Row, counted, note, output_option, tell_passed
from tinymq.cli.reply import show_plan
from tinymq.cli.session import Session, remote
from tinymq.cli.values import DELAY, MOMENT, MOMENT_TEXT, human_span, iso

_OWN: Final = dict.fromkeys(("topic", "name", "partition", "offsets"), "places")
_messages = click.argument(
    "places", metavar="TOPIC/CHANNEL/PARTITION@OFFSET...", nargs=-1, required=True
)


@click.command()
@operation_options("channel.wake", own=_OWN)
@_messages
@yes_option
@output_option
@remote
def wake(session: Session, arguments: Arguments, places: tuple[str, ...], **how: Any) -> int:
    """Let messages that wait for their next attempt come now."""
    return _reschedule(session, "channel.wake", arguments, places, "given out now", **how)


@click.command()
@operation_options("channel.delay", own={**_OWN, "due_ms": "at", "delay_ms": "length"})
@_messages
@click.option("--for", "length", type=DELAY, help="They come so long from now: 5m, 1h30m.")
@click.option("--at", type=MOMENT, help=f"They come then: {MOMENT_TEXT}")
@yes_option
@output_option
@remote
def delay(
    session: Session,
    arguments: Arguments,
    places: tuple[str, ...],
    length: float | None,
    at: int | None,
    **how: Any,
) -> int:
    """Let messages that wait for their next attempt come at another time."""
    if (length is None) == (at is None):
        raise click.UsageError("say when they are to come: one of --for and --at")
    when = ""
    if length is not None:
        arguments["delay_ms"], when = round(length * 1000), f"in {human_span(length)}"
    tell_passed(at)
    if at is not None:
        arguments["due_ms"], when = at, f"at {iso(at)}"
    return _reschedule(session, "channel.delay", arguments, places, f"given out {when}", **how)


def _reschedule(  # noqa: PLR0913 - what is asked, and how it is told
    session: Session,
    operation: str,
    arguments: Arguments,
    texts: Sequence[str],
    done: str,
    *,
    yes: bool,
    output: str,
) -> int:
    """Ask, do it channel by channel, and tell what was done and what does not wait."""
    places = parse_places(texts)
    names = [at.name(offset) for at, offsets in places.items() for offset in offsets]
    if not arguments["dry_run"]:
        what = f"{counted(len(names), 'message')} will be {done}"
        confirm(names[0] if len(names) == 1 else str(len(names)), what, yes=yes)
    rows: list[Row] = []
    for at, offsets in places.items():
        for first in range(0, len(offsets), MOST_OFFSETS):
            reply = session.operate(
                operation,
                topic=at.topic,
                name=at.channel,
                partition=at.partition,
                offsets=offsets[first : first + MOST_OFFSETS],
                **arguments,
            )
            for result in ("done", "missing"):
                rows += ({"message": at.name(each), "result": result} for each in reply[result])
    return _tell(rows, output, done, dry_run=arguments["dry_run"])


def _tell(rows: Sequence[Row], output: str, done: str, *, dry_run: bool) -> int:
    by_result = {
        result: [row["message"] for row in rows if row["result"] == result]
        for result in ("done", "missing")
    }
    count = len(by_result["done"])
    verb = "would be" if dry_run else "is" if count == 1 else "are"
    document = {**by_result, "dry_run": dry_run}
    sentence = f"{counted(count, 'message')} {verb} {done}"
    show_plan(sentence, Listing(rows, SETTLED_COLUMNS, document, "message"), output)
    if not by_result["missing"]:
        return 0
    note(f"these do not wait for their next attempt: {', '.join(by_result['missing'])}")
    return REFUSED
