"""`tinymq lag`: which channels and groups are behind, by how much, and whether they catch up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click

from tinymq.cli.endless import Outage, until_interrupted
from tinymq.cli.failure import REFUSED, UNREACHABLE
from tinymq.cli.output import (
    Column,
    Listing,
    Row,
    key,
    list_options,
    note,
    on_terminal,
    show,
    tell_silent,
)
from tinymq.cli.pace import AGE, ETA, TREND, WHY, per_second, rate, span, state
from tinymq.cli.paging import pages
from tinymq.cli.session import Session, remote
from tinymq.cli.values import DURATION, iso, now_ms

#: Seconds between two looks, and at least.
INTERVAL_S: Final = 2.0
_LEAST_S: Final = 0.1
_CLEAR: Final = "\x1b[H\x1b[2J"


def _name_of(kind: str) -> Callable[[Row], str | None]:
    return lambda row: row["name"] if row["kind"] == kind else None


COLUMNS: Final = (
    Column("TOPIC", lambda row: row["topic"] or None),
    Column("CHANNEL", _name_of("channel")),
    Column("GROUP", _name_of("group")),
    Column("LAG", key("lag"), right=True),
    AGE,
    TREND,
    ETA,
    Column("FINISHED/S", rate("finished_s"), per_second, right=True),
    Column("CONSUMERS", key("consumers"), right=True),
    Column("STATE", state),
    Column("READY", key("ready"), right=True, wide=True),
    Column("IN-FLIGHT", key("in_flight"), right=True, wide=True),
    Column("WAITING", key("waiting"), right=True, wide=True),
    Column("PUBLISHED/S", rate("published_s"), per_second, right=True, wide=True),
    WHY,
)
#: What is largest first.
_ORDERS: Final[dict[str, Callable[[Row], float]]] = {
    "lag": lambda row: float(row["lag"] or 0),
    "age": lambda row: float(row.get("lag_ms") or 0),
    "trend": lambda row: float(row.get("trend_s") or 0),
}


@click.command()
@click.argument("topic", required=False)
@click.option("--filter", "pattern", default="", metavar="GLOB", help="Of their names.")
@click.option("--only-lagging", is_flag=True, help="Only those with something left to do.")
@click.option(
    "--sort", type=click.Choice(list(_ORDERS)), default="lag", show_default=True, help="The order."
)
@click.option("--fail-over", type=click.IntRange(0), metavar="N", help="Status 1 beyond so many.")
@click.option("--max-age", type=DURATION, help="Status 1 when a message is older, such as 5m.")
@click.option("-w", "--watch", is_flag=True, help="Look again and again until Ctrl-C.")
@click.option(
    "-i", "--interval", type=DURATION, default=INTERVAL_S, help="With --watch: how often.  [2s]"
)
@list_options
@remote
@until_interrupted
def lag(
    session: Session,
    topic: str | None,
    watch: bool,
    interval: float,
    columns: str,
    output: str,
    **options: Any,
) -> int:
    """
    Show how far channels and groups are behind.

    LAG counts messages that are not settled, or that a group has not read; AGE is that of the
    oldest, TREND how many a second come on top (less than 0: it shrinks), ETA how long it takes
    until nothing is left.

    With --fail-over and --max-age the exit status is 1 when a channel or a group is beyond, and
    3 when none is but a broker is silent, so that nobody knows.
    """
    bounds = options["fail_over"], options["max_age"]
    if not watch:
        document = _look(session, topic, options)
        _show(document, output, columns)
        return _status(document, *bounds)
    if bounds != (None, None):
        raise click.UsageError("--watch never ends; leave --fail-over and --max-age away")
    outage = Outage(session.sleep)
    while True:
        document = outage.outlast(lambda: _look(session, topic, options))
        if output in {"table", "wide"}:
            click.echo((_CLEAR if on_terminal() else "") + iso(now_ms()))
        _show(document, "ndjson" if output == "json" else output, columns)
        session.sleep(max(interval, _LEAST_S))


def _look(session: Session, topic: str | None, options: dict[str, Any]) -> dict[str, Any]:
    asked = {"filter": options["pattern"], **({} if topic is None else {"topic": topic})}
    document, groups = pages(session, "channel.list", asked), pages(session, "group.list", asked)
    found = {
        "channels": [_of_channel(row) for row in document["channels"]],
        "groups": [_of_group(row) for row in groups["groups"]],
    }
    order = _ORDERS[options["sort"]]
    for rows in found.values():
        rows[:] = [row for row in rows if row["lag"] or not options["only_lagging"]]
        rows.sort(key=lambda row: (-order(row), row["topic"], row["name"]))
    silent = dict.fromkeys([*document["silent"], *groups["silent"]])
    found["all"] = sorted(
        found["channels"] + found["groups"],
        key=lambda row: (-order(row), row["topic"], row["kind"], row["name"]),
    )
    return {**document, **found, "silent": list(silent)}


def _of_channel(row: Row) -> dict[str, Any]:
    return {**row, "kind": "channel", "place": f"{row['topic']}/{row['name']}"}


def _of_group(row: Row) -> dict[str, Any]:
    """Give a group the words of a channel, so that both stand in one list."""
    age, clear = row["lag_s"], row["clear_s"]
    return {
        **row,
        "kind": "group",
        "place": f"group {row['name']}",
        "topic": ",".join(row["topics"]),
        "lag_ms": None if age is None else round(age * 1000),
        "trend_s": row["trend"],
        "clear_ms": None if clear is None else round(clear * 1000),
        "consumers": row["members"],
        "why": [{"cause": "stuck", "text": row["stuck"]}] if row["stuck"] else [],
    }


def _show(document: Row, output: str, columns: str) -> None:
    rows = document["all"]
    told = {key: value for key, value in document.items() if key != "all"}
    show(Listing(rows, COLUMNS, told, "place"), output, columns)
    tell_silent(document)


def _status(document: Row, most: int | None, oldest_s: float | None) -> int:
    """Compare with the bounds, and say which of them are beyond."""
    beyond = []
    for row in document["all"]:
        name, age = row["place"], row.get("lag_ms") or 0
        if most is not None and (row["lag"] or 0) > most:
            beyond.append(f"{name} has {row['lag']} left to do")
        elif oldest_s is not None and age > oldest_s * 1000:
            beyond.append(f"{name} has a message that is {span(age)} old")
    for text in beyond:
        note(text)
    if beyond:
        return REFUSED
    bounded = most is not None or oldest_s is not None
    return UNREACHABLE if bounded and document["silent"] else 0
