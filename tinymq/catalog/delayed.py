"""The operations on messages that are not due yet: looking at them, and what becomes of them."""

from __future__ import annotations

from typing import Any, Final

from tinymq.catalog.shapes import (
    DRY_RUN,
    ENCODING,
    MAYBE_MILLISECONDS,
    MAYBE_STRING,
    MAYBE_WHOLE,
    MILLISECONDS,
    MORE,
    SILENT,
    STRING,
    TOTAL,
    WHOLE,
    Schema,
    said,
    several,
    shape,
)
from tinymq.operation import DRY, LIMIT, NAME, Http, Operation, Parameter, table
from tinymq.wire.fields import I64, array, choice, integer, optional, text

#: Messages that may be named one by one.
MOST_IDS: Final = 1000
#: Messages that one step takes at most.
MOST_STEP: Final = 500
#: What can be done with messages that are not due yet.
ACTS: Final = ("cancel", "now", "move")

_WHOLE: Final = integer(0, I64)
_PATH: Final = "/topics/{topic}/partitions/{partition}"

_WHOSE: Final = Parameter("topic", NAME, text="Name of the topic.")
_MAYBE_TOPIC: Final = Parameter(
    "topic", optional(NAME), default=None, text="Only those of this topic."
)
_INDEX: Final = Parameter("partition", _WHOLE, text="The partition's number.")
_MAYBE_INDEX: Final = Parameter(
    "partition", optional(_WHOLE), default=None, text="Only those of this partition."
)
_CHANNEL: Final = Parameter(
    "channel",
    optional(NAME),
    default=None,
    text="Instead, what waits for its next attempt in this channel of the topic.",
)
_FILTERS: Final = (
    Parameter("key", optional(text(1 << 16)), default=None, text="Only those with this key."),
    Parameter(
        "since_ms",
        optional(_WHOLE),
        default=None,
        text="Only those due at this time, in milliseconds since 1970, or later.",
    ),
    Parameter(
        "until_ms",
        optional(_WHOLE),
        default=None,
        text="Only those due before this time, in milliseconds since 1970.",
    ),
    Parameter(
        "schedule", optional(NAME), default=None, text="Only those of the schedule of this name."
    ),
)
_AFTER: Final = Parameter(
    "after", text(2400), default="", text="Begin behind this place, what the page before said."
)
_IDS: Final = Parameter(
    "ids", array(_WHOLE, MOST_IDS), text=f"Ids of the messages, 1 to {MOST_IDS}."
)
_MOVE: Final = (
    Parameter(
        "due_ms",
        optional(_WHOLE),
        default=None,
        text="When they come then, in milliseconds since 1970; one of due_ms and delay_ms.",
    ),
    Parameter(
        "delay_ms",
        optional(_WHOLE),
        default=None,
        text="In how many milliseconds from now they come then.",
    ),
)

_FACTS: Final[dict[str, Schema]] = {
    "topic": STRING,
    "partition": WHOLE,
    "id": said(MAYBE_WHOLE, "Its id, unique in its partition; null for what a channel retries."),
    "channel": said(MAYBE_STRING, "The channel that retries it; null for what is not out yet."),
    "offset": said(MAYBE_WHOLE, "Its offset, if a channel retries it; else it has none yet."),
    "due_ms": said(MILLISECONDS, "When it comes."),
    "why": said(
        {"type": "string", "enum": ["publish", "schedule", "retry"]},
        "Whether it was published so, comes from a schedule, or waits for its next attempt.",
    ),
    "attempt": said(WHOLE, "How often it was given out."),
    "schedule": said(MAYBE_STRING, "Name of the schedule that it comes from."),
    "key": said(MAYBE_STRING, "The key; null if it has none."),
    "encoding": ENCODING,
    "size": said(WHOLE, "Bytes of its value."),
    "taken_ms": said(MAYBE_MILLISECONDS, "When the broker took it."),
}
#: A message in a list.
DELAYED_ROW: Final = shape(**_FACTS)
#: One message with its value.
DELAYED_MESSAGE: Final = shape(
    **_FACTS,
    headers=said(
        several(shape(name=STRING, value=STRING, value_encoding=ENCODING)), "Its headers, in order."
    ),
    value=said(MAYBE_STRING, "The value; null if it has none."),
    value_encoding=ENCODING,
)
_NEXT: Final = said(MAYBE_STRING, "Where the next page begins; null when there is none.")
_DONE: Final[dict[str, Schema]] = {
    "done": said(several(WHOLE), "Ids of those with which it was done."),
    "missing": said(several(WHOLE), "Ids of those that do not wait any more."),
}


def _act(verb: str, text: str, *more: Parameter, **result: Schema) -> Operation:
    return Operation(
        f"delayed.{verb}",
        "operator",
        True,
        (_WHOSE, _INDEX, _IDS, *more, DRY),
        text=text,
        http=Http("POST", f"{_PATH}/delayed:{verb}"),
        cli=("delayed", verb),
        usage="TOPIC/PARTITION~ID...",
        result={**_DONE, **result, "dry_run": DRY_RUN},
    )


def _result(**fields: Any) -> dict[str, Any]:
    return {**fields, "silent": SILENT}


#: By name.
DELAYED: Final[dict[str, Operation]] = table(
    Operation(
        "delayed.list",
        "viewer",
        False,
        (_MAYBE_TOPIC, _MAYBE_INDEX, _CHANNEL, *_FILTERS, LIMIT, _AFTER),
        text="List messages that are not due yet, in order of their time.",
        http=Http("GET", "/delayed"),
        cli=("delayed", "ls"),
        result=_result(messages=several(DELAYED_ROW), total=TOTAL, more=MORE, after=_NEXT),
    ),
    Operation(
        "delayed.histogram",
        "viewer",
        False,
        (_MAYBE_TOPIC, _CHANNEL),
        text="Count the messages that are not due yet by when they are.",
        http=Http("GET", "/delayed/histogram"),
        cli=("delayed", "histogram"),
        result=_result(
            buckets=said(
                several(shape(from_ms=MILLISECONDS, to_ms=MILLISECONDS, messages=WHOLE)),
                "From now on, first by minutes, then by hours, days and years.",
            ),
            total=TOTAL,
            overdue=said(WHOLE, "Messages that are due and not out yet."),
            next_ms=said(MAYBE_MILLISECONDS, "When the first one comes; null if there is none."),
        ),
    ),
    Operation(
        "delayed.get",
        "viewer",
        False,
        (_WHOSE, _INDEX, Parameter("id", _WHOLE, text="The message's id.")),
        text="Look at one message that is not due yet.",
        http=Http("GET", f"{_PATH}/delayed/{{id}}"),
        cli=("delayed", "show"),
        usage="TOPIC/PARTITION~ID",
        result={
            "message": DELAYED_MESSAGE,
            "state": {"type": "string", "enum": ["waiting"]},
        },
    ),
    _act("cancel", "Cancel messages that are not due yet; they never come."),
    _act("now", "Let messages that are not due yet come now."),
    _act(
        "move",
        "Let messages that are not due yet come at another time.",
        *_MOVE,
        due_ms=said(MILLISECONDS, "When they come now."),
    ),
    Operation(
        "delayed.apply",
        "operator",
        True,
        (
            Parameter("act", choice(*ACTS), text="What becomes of them."),
            _WHOSE,
            _MAYBE_INDEX,
            *_FILTERS,
            *_MOVE,
            Parameter(
                "limit",
                integer(1, MOST_STEP),
                default=100,
                text="Most messages of this step; the rest is for the next one.",
            ),
            _AFTER,
            DRY,
        ),
        text="Cancel, release or move the messages that fit a filter, one step.",
        http=Http("POST", "/delayed:apply"),
        cli=("delayed", "apply"),
        result=_result(
            done=said(WHOLE, "Messages with which it was done, or would be."),
            failed=said(
                several(shape(partition=WHOLE, id=WHOLE, why=STRING)),
                "Those that stay as they are, and why.",
            ),
            more=said({"type": "boolean"}, "Whether there is more to do behind this step."),
            after=said(MAYBE_STRING, "Where the next step begins; null when this was the last."),
            dry_run=DRY_RUN,
        ),
    ),
)
