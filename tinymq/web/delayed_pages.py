"""
The pages of messages that are not due yet: all of them in order, and one of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlencode

from attrs import frozen
from twisted.web.http import Request

from tinymq.web import histogram
from tinymq.web.flow import Flow, bytes_of, due_of, headers_of
from tinymq.web.input import MOST_OFFSET, BadInput, choice, integer, query_of, text
from tinymq.web.publishing import MOST_PARTITION
from tinymq.web.render import segment
from tinymq.web.viewers import KINDS, NAMES, WINDOW, guess, show, window_of

#: Messages on one page.
_ROWS: Final = 40
#: Messages that one plan decides about when they are chosen one by one.
MOST_PICKED: Final = 1000
FILTERS: Final = ("topic", "channel", "key", "since", "until", "schedule")
#: What can be done with a message that waits.
ACTS: Final = ("now", "move", "cancel")
_PLACE: Final = re.compile(r"(\d{1,10})([~@])(\d{1,19})")
_ONE: Final = "/delayed/<topic>/<place>"


class Spot(NamedTuple):
    """A message that waits: by its delay id, or in a channel by its offset."""

    topic: str
    partition: int
    number: int
    channel: str = ""

    @property
    def value(self) -> str:
        """As a checkbox carries it."""
        middle = f"{segment(self.channel)}/" if self.channel else ""
        return f"{segment(self.topic)}/{middle}{self.place}"

    @property
    def place(self) -> str:
        """Partition and number."""
        return f"{self.partition}{'@' if self.channel else '~'}{self.number}"

    @property
    def href(self) -> str:
        """The address of its page."""
        topic = segment(self.topic)
        if self.channel:
            return f"/topics/{topic}/messages/{self.partition}/{self.number}"
        return f"/delayed/{topic}/{self.place}"

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Spot:
        """Find out of which message a row is."""
        if row["id"] is None:
            return cls(row["topic"], row["partition"], row["offset"], row["channel"] or "")
        return cls(row["topic"], row["partition"], row["id"])


def spot_of(value: str) -> Spot:
    """Read what a checkbox carries."""
    *names, place = value.split("/")
    topic, *middle = names or [""]
    found = _PLACE.fullmatch(place)
    if found is None or not topic or len(middle) > 1 or bool(middle) != (found[2] == "@"):
        raise BadInput("row", "this is not a message that waits")
    fields = {"partition": found[1], "number": found[3]}
    return Spot(
        unquote(topic),
        integer(fields, "partition", 0, MOST_PARTITION) or 0,
        integer(fields, "number", 0, MOST_OFFSET) or 0,
        unquote(middle[0]) if middle else "",
    )


def groups_of(spots: Sequence[Spot]) -> dict[tuple[str, str, int], list[int]]:
    """Put messages together that one call can decide about."""
    found: dict[tuple[str, str, int], list[int]] = {}
    for each in spots:
        found.setdefault((each.topic, each.channel, each.partition), []).append(each.number)
    return {key: sorted(set(numbers)) for key, numbers in found.items()}


@frozen
class Act:
    """What can be done: how it is called, and what it means."""

    title: str
    button: str
    done: str
    notes: tuple[str, ...]


WORDS: Final = {
    "now": Act(
        "Run now",
        "Run now",
        "due now",
        ("They come at once, in the order in which they were due.",),
    ),
    "move": Act(
        "Reschedule",
        "Reschedule",
        "rescheduled",
        ("They keep their ids, keys, headers and values; only the due time changes.",),
    ),
    "cancel": Act(
        "Cancel",
        "Cancel",
        "cancelled",
        ("They never come: no consumer and no reader sees them.",),
    ),
}
ALREADY: Final = "What came due in the meantime is left alone."


class DelayedPages(Flow):
    """All messages that wait, and one of them."""

    def _wanted_delayed(self, query: Mapping[str, str], now_ms: int) -> dict[str, Any]:
        """Read which messages are wanted, as arguments of the operations."""
        found: dict[str, Any] = {
            key: text(query, key).strip() for key in ("topic", "channel", "key", "schedule")
        }
        if found["channel"] and not found["topic"]:
            raise BadInput("topic", "name the topic of the channel, too")
        for field in ("since", "until"):
            found[f"{field}_ms"] = due_of(query, field, now_ms)
        return {key: value for key, value in found.items() if value not in ("", None)}

    @Flow.app.route("/delayed", methods=["GET"])
    async def delayed(self, request: Request) -> bytes:
        """What is not due yet, the next first. Looking changes nothing."""
        query, times = query_of(request), self._now(request)
        asked = self._wanted_delayed(query, times.now_ms)
        after = {"after": query["after"]} if query.get("after") else {}
        told = await self._operate(request, "delayed.list", **asked, limit=_ROWS, **after)
        whose = {key: asked[key] for key in ("topic", "channel") if key in asked}
        bars = await self._known(request, "delayed.histogram", **whose)
        bars = bars or {"buckets": [], "total": None, "overdue": 0, "next_ms": None, "silent": []}
        drawn = [
            histogram.draw_due(bars["buckets"], times.now_ms, box)
            for box in (histogram.WIDE, histogram.NARROW)
        ]
        return self._show(
            request,
            "delayed.html",
            "delayed",
            keep=True,
            silent=sorted({*told["silent"], *bars["silent"]}),
            asked=asked,
            told=told,
            bars=bars,
            drawn=drawn if drawn[0] else None,
            buckets=histogram.shown(bars["buckets"]),
            window_of=histogram.window,
            due_in=histogram.due_in,
            rows=[(row, Spot.of(row)) for row in told["messages"]],
            back=urlencode({key: query[key] for key in FILTERS if query.get(key)}),
            words=WORDS,
            most=MOST_PICKED,
        )

    @Flow.app.route(_ONE, methods=["GET"])
    async def delayed_one(self, request: Request, topic: str, place: str) -> bytes:
        """One message that waits: when it comes and why, its headers, its value."""
        query, spot = query_of(request), self._delayed_spot(topic, place)
        where = {"topic": topic, "partition": spot.partition, "id": spot.number}
        message = (await self._operate(request, "delayed.get", **where))["message"]
        value = bytes_of(message["value"], message.get("value_encoding") or "string")
        headers = headers_of(message["headers"])
        asked = choice(query, "as", ("auto", *KINDS), "auto")
        skip = integer(query, "skip", 0, MOST_OFFSET) or 0
        window, reason = (value or b"")[skip : skip + WINDOW], ""
        if asked == "auto":
            says = next((v for name, v in headers if name.lower() == "content-type"), b"")
            whole = not skip and len(window) == len(value or b"")
            kind, reason = guess(window, whole, says[:200].decode("utf-8", "replace"))
        else:
            kind = next(one for one in KINDS if one == asked)
        window = window[: window_of(kind)]
        return self._show(
            request,
            "delayed_one.html",
            "delayed",
            message=message,
            spot=spot,
            key=bytes_of(message["key"], message.get("encoding") or "string"),
            headers=headers,
            value=value,
            shown=show(window, kind, skip),
            guess=reason,
            skip=skip,
            end=skip + len(window),
            window=window_of(kind),
            names=NAMES,
            due_in=histogram.due_in,
        )

    def _delayed_spot(self, topic: str, place: str) -> Spot:
        try:
            found = spot_of(f"{segment(topic)}/{place}")
        except BadInput:
            raise BadInput("id", "there is no such message; write PARTITION~ID", 404) from None
        return found
