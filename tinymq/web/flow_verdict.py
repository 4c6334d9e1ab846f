"""What the overview says of delays, exchanges and push endpoints when somebody should act."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from attrs import frozen

from tinymq.web.format import duration, plural
from tinymq.web.verdict import Problem

#: A message that is so late is no matter of one turn any more.
LATE_MS: Final = 5_000
#: One so late is lost to whoever waits for it.
VERY_LATE_MS: Final = 60_000
#: Exchanges and endpoints that are named one by one.
_NAMED: Final = 3

Rows = Sequence[Mapping[str, Any]]


@frozen(kw_only=True)
class Flowing:
    """
    What is known of what waits and goes on; None where it cannot be told just now.

    Attributes:
        delayed: What the histogram of due times says.
        exchanges: Rows of exchanges.
        endpoints: Rows of push endpoints.
    """

    delayed: Mapping[str, Any] | None = None
    exchanges: Rows = ()
    endpoints: Rows = ()

    @property
    def stuck(self) -> Rows:
        """Exchanges that cannot go on to a target."""
        return [row for row in self.exchanges if row["stuck"]]

    @property
    def halted(self) -> Rows:
        """Endpoints that take nothing just now."""
        return [row for row in self.endpoints if row["state"] != "active"]


def _named(name: str) -> str:
    return quote(name, safe="")


def _overdue(delayed: Mapping[str, Any] | None, now_ms: int) -> Iterator[Problem]:
    """Notice messages whose time has come and that are not out."""
    if not delayed or not delayed["overdue"] or delayed["next_ms"] is None:
        return
    late = now_ms - delayed["next_ms"]
    if late >= LATE_MS:
        verb = "is" if delayed["overdue"] == 1 else "are"
        yield Problem(
            "bad" if late >= VERY_LATE_MS else "warn",
            f"{plural(delayed['overdue'], 'delayed message')} {verb} overdue",
            f"The first was due {duration(late)} ago and is not out yet.",
            "/delayed",
            "See which",
        )


def _exchanges(stuck: Rows, now_ms: int) -> Iterator[Problem]:
    """Name the exchanges whose messages cannot go on."""
    for row in stuck[:_NAMED]:
        first = row["stuck"][0]
        since = first.get("since_ms")
        wait = "" if since is None else f", for {duration(now_ms - since)}"
        count = plural(row["lag"], "message waits", "messages wait") if row["lag"] else "It waits"
        more = f" So do {len(row['stuck']) - 1:,} more targets." if len(row["stuck"]) > 1 else ""
        yield Problem(
            "bad",
            f"Exchange {row['name']} is stuck",
            f"{count}: {first['target']} takes nothing{wait}: {first['why']}.{more}",
            f"/exchanges/{_named(row['name'])}",
            "See why",
        )
    if len(stuck) > _NAMED:
        title = f"{plural(len(stuck) - _NAMED, 'more exchange')} stuck"
        yield Problem("bad", title, "Messages wait in them.", "/exchanges", "See all")


def _endpoints(halted: Rows) -> Iterator[Problem]:
    """Name the push endpoints that take nothing."""
    for row in halted[:_NAMED]:
        why = row["why"] or row["last_error"] or "nobody said why"
        yield Problem(
            "bad" if row["state"] == "offline" else "warn",
            f"Push of channel {row['channel']} of topic {row['topic']} is {row['state']}",
            f"{why[:1].upper()}{why[1:]}{'' if why.endswith('.') else '.'} Its messages wait.",
            f"/topics/{_named(row['topic'])}/channels/{_named(row['channel'])}/push",
            "See why",
        )
    if len(halted) > _NAMED:
        title = f"{plural(len(halted) - _NAMED, 'more push endpoint')} paused or offline"
        yield Problem("warn", title, "Their messages wait.", "/push", "See all")


def flow_problems(known: Flowing, now_ms: int) -> list[Problem]:
    """
    Say what is wrong with what waits and goes on.

    Args:
        known: What brokers tell.
        now_ms: The instant that is shown.
    """
    return [
        *_overdue(known.delayed, now_ms),
        *_exchanges(known.stuck, now_ms),
        *_endpoints(known.halted),
    ]
