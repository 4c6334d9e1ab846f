"""`tinymq message`: what became of a single message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click

from tinymq.cli.groups import Group
from tinymq.cli.operation import Arguments, complete, operation_options
from tinymq.cli.output import Column, Listing, key, note, output_option, show
from tinymq.cli.session import Session, remote
from tinymq.cli.values import iso

COLUMNS: Final = (
    Column("TIME", key("time_ms"), iso),
    Column("CHANNEL", key("channel")),
    Column("WHAT", key("what")),
    Column("ATTEMPT", lambda row: row["attempt"] or None, right=True),
    Column("CLIENT-ID", key("client_id")),
    Column("TEXT", lambda row: row["text"] or None),
)


def parse_message(words: Sequence[str]) -> Arguments:
    """
    Read which message is meant, in each form in which one is shown somewhere.

    Args:
        words: ``TOPIC PARTITION OFFSET``, or one word: ``TOPIC/PARTITION@OFFSET``, as
            `peek` and `dlq show` write it, or ``TOPIC/CHANNEL/PARTITION@OFFSET``, as
            `inflight ls` does.

    Raises:
        UsageError: It is none of these.
    """
    parts = list(words)
    if len(words) == 1:
        names, _, offset = words[0].rpartition("@")  # names of channels may have one, too
        parts = names.split("/")
        parts = [*parts[:1], *parts[2 if len(parts) == 3 else 1 :], offset]
    if len(parts) != 3 or not all(each.isascii() and each.isdecimal() for each in parts[1:]):
        raise click.UsageError(
            f"{' '.join(words)!r} is no message; "
            "write TOPIC/PARTITION@OFFSET, such as orders/0@4711"
        )
    return {"topic": parts[0], "partition": int(parts[1]), "offset": int(parts[2])}


@click.group(cls=Group)
def message() -> None:
    """Look at what became of single messages."""


@message.command("life")
@operation_options(
    "message.life", own={"topic": "place", "partition": "partition", "offset": "offset"}
)
@click.argument("place", metavar="TOPIC[/PARTITION@OFFSET]")
@click.argument("partition", required=False)
@click.argument("offset", required=False)
@click.option("--columns", default="", metavar="A,B", help="Which columns to show.")
@output_option
@remote
def life(session: Session, arguments: Arguments, columns: str, output: str, **words: Any) -> None:
    """
    Tell what the channels of a topic did with one message.

    It is named as other commands write it, orders/0@4711 or orders/mail/0@4711, or by
    three words: orders 0 4711.
    """
    named = [words[each] for each in ("place", "partition", "offset") if words[each] is not None]
    wanted = {**arguments, **parse_message(named)}
    found: dict[str, Any] = session.operate("message.life", **wanted)
    show(Listing(found["events"], COLUMNS, found, "channel"), output, columns)
    for each in found["channels"]:
        note(f"{each['channel']}: {each['state']}")
    if found["since_ms"] is not None:
        note(f"what happened before {iso(found['since_ms'])} has been forgotten")
    if found["more"]:
        note("there was more than could be read or shown")


complete(message)
