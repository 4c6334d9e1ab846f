"""The life of a message, channel by channel, as a line of what happened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from attrs import frozen

from tinymq.web.channels import Word

#: How each thing that can happen is shown.
_HAPPENINGS: Final = {
    "published": Word("pub", "Published", "acc"),
    "delivered": Word("dlv", "Given out", "acc"),
    "finished": Word("ok", "Finished", "ok"),
    "requeued": Word("undo", "Requeued", "warn"),
    "rejected": Word("x", "Rejected", "bad"),
    "timed_out": Word("time", "Timed out", "bad"),
    "lost": Word("warn", "Consumer lost", "bad"),
    "given_back": Word("undo", "Given back", ""),
    "given_up": Word("bad", "Given up", "bad"),
    "expired": Word("time", "Expired", "bad"),
    "dead_lettered": Word("dead", "Dead letter", "bad"),
    "skipped": Word("next", "Skipped", ""),
    "removed": Word("x", "Removed", ""),
    "revived": Word("redo", "Comes again", "warn"),
    "rescheduled": Word("redo", "Another time", ""),
}
_STATES: Final = {
    "new": Word("idle", "Not given out yet", "s"),
    "ready": Word("run", "Ready", "ok"),
    "in_flight": Word("time", "In flight", ""),
    "waiting": Word("redo", "Waiting", "warn"),
    "parked": Word("pause", "Parked", "warn"),
    "given_up": Word("bad", "Given up", "bad"),
    "settled": Word("ok", "Settled", "ok"),
}
#: Settled is said of all of these; which it was is what people want to know.
_ENDS: Final = frozenset(
    {"finished", "rejected", "given_up", "expired", "dead_lettered", "skipped"}
)
#: Behind these a message waits; behind the others somebody has it.
_WAITS: Final = frozenset(
    {"published", "requeued", "timed_out", "lost", "given_back", "revived", "rejected"}
)


@frozen
class Event:
    """One thing that happened, and whether a wait follows."""

    word: Word
    time_ms: int
    text: str
    waits: bool


@frozen
class Lane:
    """
    A channel's line.

    Attributes:
        channel: Its name.
        state: Where the message is now.
        events: What happened, in order.
        attempts: How often it was given out, as far as that is remembered.
        took_ms: From its append to the last that happened; None before the first.
    """

    channel: str
    state: Word
    events: tuple[Event, ...]
    attempts: int
    took_ms: int | None


def _told(row: Mapping[str, Any]) -> Event:
    what = row["what"]
    word = _HAPPENINGS.get(what) or Word("idle", what.replace("_", " ").capitalize(), "")
    parts = [row["client_id"] or ""]
    if what == "delivered" and row["attempt"]:
        parts.append(f"attempt {row['attempt']:,}")
    parts.append(row["text"])
    return Event(word, row["time_ms"], ", ".join(filter(None, parts)), what in _WAITS)


def lanes_of(life: Mapping[str, Any], appended_ms: int) -> list[Lane]:
    """
    Put a life in lines.

    Args:
        life: As the operation tells it.
        appended_ms: When the message was appended.
    """
    return list(_lanes(life, appended_ms))


def _lanes(life: Mapping[str, Any], appended_ms: int) -> Iterator[Lane]:
    first = Event(_HAPPENINGS["published"], appended_ms, "", waits=True)
    for row in life["channels"]:
        state = _STATES.get(row["state"]) or Word("idle", row["state"], "")
        rows = [each for each in life["events"] if each["channel"] == row["channel"]]
        if rows and row["state"] == "settled" and rows[-1]["what"] in _ENDS:
            state = _HAPPENINGS[rows[-1]["what"]]
        yield Lane(
            channel=row["channel"],
            state=state,
            events=(first, *map(_told, rows)),
            attempts=sum(each["what"] == "delivered" for each in rows),
            took_ms=rows[-1]["time_ms"] - appended_ms if rows else None,
        )
