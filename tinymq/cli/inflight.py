"""`tinymq inflight`: the messages in the hands of consumers, and what becomes of single ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import click
from attrs import frozen

from tinymq.catalog.inflight import MOST_OFFSETS
from tinymq.cli.confirm import confirm, yes_option
from tinymq.cli.failure import REFUSED
from tinymq.cli.groups import Group
from tinymq.cli.members import client_of
from tinymq.cli.operation import (
    Arguments,
    Decorator,
    complete,
    limit_option,
    operation_options,
)
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
from tinymq.cli.pace import span
from tinymq.cli.paging import pages
from tinymq.cli.reply import show_plan
from tinymq.cli.session import Session, remote
from tinymq.cli.unsettled import content, until
from tinymq.cli.values import DURATION, human_size, iso, now_ms

#: What each act does, to be said before and after.
_DONE: Final = {
    "requeue": "given out again",
    "finish": "settled",
    "extend": "kept longer",
    "dead_letter": "given up",
}


def place(row: Row) -> str:
    """Name a message of a channel, as the verbs take it."""
    return f"{row['topic']}/{row['channel']}/{row['partition']}@{row['offset']}"


def _held(row: Row) -> int:
    return max(0, now_ms() - int(row["since_ms"]))


COLUMNS: Final = (
    Column("MESSAGE", place),
    Column("CLIENT-ID", key("client_id")),
    Column("CLIENT", client_of),
    Column("ATTEMPT", key("attempt"), right=True),
    Column("FAILURES", key("failures"), right=True),
    Column("HELD", _held, span, right=True),
    Column("LEASE", until("deadline_ms"), span, right=True),
    Column("STATE", key("state")),
    Column("KEY", content("key")),
    Column("SIZE", key("size"), human_size, right=True, wide=True),
    Column("ADDRESS", key("address"), wide=True),
    Column("SINCE", key("since_ms"), iso, wide=True),
)
SETTLED_COLUMNS: Final = (Column("MESSAGE", key("message")), Column("RESULT", key("result")))


@frozen
class Place:
    """
    Where some messages are.

    Attributes:
        topic: Name of the topic.
        channel: Name of the channel.
        partition: Number of the partition.
    """

    topic: str
    channel: str
    partition: int

    def name(self, offset: int) -> str:
        """Name one of its messages."""
        return f"{self.topic}/{self.channel}/{self.partition}@{offset}"


def parse_places(texts: Sequence[str]) -> dict[Place, list[int]]:
    """
    Read ``TOPIC/CHANNEL/PARTITION@OFFSET``, as `inflight ls` writes it.

    Raises:
        UsageError: One is no such place.
    """
    found: dict[Place, list[int]] = {}
    for each in texts:
        names, _, offset = each.rpartition("@")  # names of channels may have one, too
        parts = names.split("/")
        if len(parts) != 3 or not (parts[2] + offset).isdecimal() or not (parts[2] and offset):
            raise click.UsageError(
                f"{each!r} is no message; write TOPIC/CHANNEL/PARTITION@OFFSET, as `inflight ls`"
            )
        at = Place(parts[0], parts[1], int(parts[2]))
        found.setdefault(at, []).append(int(offset))
    return {at: list(dict.fromkeys(offsets)) for at, offsets in found.items()}


@click.group(cls=Group)
def inflight() -> None:
    """Show messages in flight, and settle some of them."""


@inflight.command("ls")
@operation_options(
    "inflight.list",
    own={"limit": "limit", "older_ms": "older"},
    shorts={"topic": "-t", "channel": "-c"},
)
@click.option("--older", type=DURATION, help="Only those held for so long, such as 30s.")
@limit_option
@list_options
@remote
def list_messages(
    session: Session,
    arguments: Arguments,
    older: float | None,
    limit: int | None,
    columns: str,
    output: str,
) -> None:
    """
    List messages in the hands of consumers, those held for longest first.

    `-o name` writes them as the other verbs take them.
    """
    if older is not None:
        arguments["older_ms"] = round(older * 1000)
    document = pages(session, "inflight.list", arguments, limit)
    rows = [{**row, "place": place(row)} for row in document["messages"]]
    show(Listing(rows, COLUMNS, document, "place"), output, columns)
    tell_silent(document)


_messages = click.argument(
    "places", metavar="TOPIC/CHANNEL/PARTITION@OFFSET...", nargs=-1, required=True
)
#: How the verbs take what is in their names and in the names of messages.
_OWN: Final = dict.fromkeys(("topic", "name", "partition", "offsets"), "places")


def _verb_options(kept: Mapping[str, str]) -> Decorator:
    """Give a verb of one act the options of the operation that mean something for it."""
    own = {**_OWN, "act": "places", **kept}
    return operation_options("inflight.settle", own=own)


@inflight.command("settle")
@operation_options(
    "inflight.settle", own={**_OWN, "act": "act", "delay_ms": "delay", "extend_ms": "extend"}
)
@click.argument("act", type=click.Choice(tuple(_DONE)))
@_messages
@click.option("--delay", type=DURATION, help="With requeue: give them out again only then.")
@click.option("--for", "extend", type=DURATION, help="With extend: from now on for so long.")
@yes_option
@output_option
@remote
def settle(
    session: Session,
    arguments: Arguments,
    act: str,
    places: tuple[str, ...],
    delay: float | None,
    extend: float | None,
    **how: Any,
) -> int:
    """Do with messages in flight what the verbs requeue, finish, touch and dlq do."""
    return _settle(session, {**arguments, "act": act, **_times(delay, extend)}, places, **how)


@inflight.command("requeue")
@_verb_options({"delay_ms": "delay", "extend_ms": "places"})
@_messages
@click.option("--delay", type=DURATION, help="Give them out again only then, such as 10m.")
@yes_option
@output_option
@remote
def requeue(
    session: Session,
    arguments: Arguments,
    places: tuple[str, ...],
    delay: float | None,
    **how: Any,
) -> int:
    """Take messages away from their consumers, and give them out again."""
    return _settle(session, {**arguments, "act": "requeue", **_times(delay, None)}, places, **how)


@inflight.command("finish")
@_verb_options({"delay_ms": "places", "extend_ms": "places"})
@_messages
@yes_option
@output_option
@remote
def finish(session: Session, arguments: Arguments, places: tuple[str, ...], **how: Any) -> int:
    """Settle messages for good, in place of their consumers."""
    return _settle(session, {**arguments, "act": "finish"}, places, **how)


@inflight.command("touch")
@_verb_options({"delay_ms": "places", "extend_ms": "extend"})
@_messages
@click.option("--for", "extend", type=DURATION, help="From now on; the channel's lease.ms if not.")
@output_option
@remote
def touch(
    session: Session,
    arguments: Arguments,
    places: tuple[str, ...],
    extend: float | None,
    **how: Any,
) -> int:
    """Let consumers keep messages for longer."""
    more = {"act": "extend", **_times(None, extend)}
    return _settle(session, {**arguments, **more}, places, yes=True, **how)


@inflight.command("dlq")
@_verb_options({"delay_ms": "places", "extend_ms": "places"})
@_messages
@yes_option
@output_option
@remote
def dead_letter(session: Session, arguments: Arguments, places: tuple[str, ...], **how: Any) -> int:
    """Give messages up: they go to the dead-letter topic of their channel."""
    return _settle(session, {**arguments, "act": "dead_letter"}, places, **how)


def _times(delay: float | None, extend: float | None) -> Arguments:
    """Give the arguments that are lengths of time."""
    given = {"delay_ms": delay, "extend_ms": extend}
    return {name: round(value * 1000) for name, value in given.items() if value is not None}


def _settle(
    session: Session, arguments: Arguments, texts: Sequence[str], *, yes: bool, output: str
) -> int:
    """Ask, do it channel by channel, and tell what was done and what was not there any more."""
    places, done = parse_places(texts), _DONE[arguments["act"]]
    names = [at.name(offset) for at, offsets in places.items() for offset in offsets]
    many = counted(len(names), "message")
    if not arguments["dry_run"]:
        confirm(names[0] if len(names) == 1 else str(len(names)), f"{many} will be {done}", yes=yes)
    rows: list[dict[str, Any]] = []
    for at, offsets in places.items():
        for first in range(0, len(offsets), MOST_OFFSETS):
            reply = session.operate(
                "inflight.settle",
                topic=at.topic,
                name=at.channel,
                partition=at.partition,
                offsets=offsets[first : first + MOST_OFFSETS],
                **arguments,
            )
            rows += [{"message": at.name(each), "result": "done"} for each in reply["done"]]
            rows += [{"message": at.name(each), "result": "missing"} for each in reply["missing"]]
    return _tell(rows, output, done, dry_run=arguments["dry_run"])


def _tell(rows: Sequence[Row], output: str, done: str, *, dry_run: bool) -> int:
    by_result = {
        result: [row["message"] for row in rows if row["result"] == result]
        for result in ("done", "missing")
    }
    count = len(by_result["done"])
    were = "would be" if dry_run else "was" if count == 1 else "were"
    document = {**by_result, "dry_run": dry_run}
    listing = Listing(rows, SETTLED_COLUMNS, document, "message")
    show_plan(f"{counted(count, 'message')} {were} {done}", listing, output)
    if not by_result["missing"]:
        return 0
    note(f"not in flight any more: {', '.join(by_result['missing'])}")
    return REFUSED


complete(inflight)
