"""The operations on dead letters: looking at them, sending them back, dropping them."""

from __future__ import annotations

from typing import Any, Final

from tinymq.catalog.shapes import (
    DRY_RUN,
    ENCODING,
    MAYBE_MILLISECONDS,
    MAYBE_STRING,
    MORE,
    SILENT,
    STRING,
    TOTAL,
    TRUTH,
    WHOLE,
    said,
    several,
    shape,
)
from tinymq.operation import DRY, FILTER, LIMIT, NAME, Http, Operation, Parameter, table
from tinymq.wire.fields import I64, array, integer, optional, text
from tinymq.wire.fields import told as takes

#: Letters that one step takes at most; also those that may be named one by one.
MOST_STEP: Final = 500

_PATH: Final = "/dlq/{target}"
_WHOLE: Final = integer(0, I64)
_MOST_PLACE: Final = 40


@takes(
    "PARTITION:OFFSET, two whole numbers",
    {"type": "string", "pattern": "^[0-9]+:[0-9]+$", "maxLength": _MOST_PLACE},
)
def letter(value: Any) -> tuple[int, int]:
    """Where a dead letter lies: the partition of the dead-letter topic, and the offset there."""
    if type(value) is tuple and len(value) == 2:
        return value[0], value[1]
    if type(value) is str and len(value) <= _MOST_PLACE and value.isascii():
        partition, colon, offset = value.partition(":")
        if colon and partition.isdigit() and offset.isdigit():
            found = int(partition), int(offset)
            if max(found) <= I64:
                return found
    raise ValueError(letter.must)


_TARGET: Final = Parameter("target", NAME, text="Name of the dead-letter topic.")
_AFTER: Final = Parameter(
    "after",
    text(_MOST_PLACE),
    default="",
    text="Begin behind this place, what the page before said.",
)
_FILTERS: Final = (
    Parameter("topic", optional(NAME), default=None, text="Only those that come from this topic."),
    Parameter(
        "channel", optional(NAME), default=None, text="Only those that this channel gave up."
    ),
    Parameter(
        "reason",
        optional(text(100)),
        default=None,
        text="Only those with this reason, such as failed, rejected or timeout.",
    ),
    Parameter(
        "text",
        optional(text(1000)),
        default=None,
        text="Only those whose error has this text in it.",
    ),
    Parameter(
        "since_ms",
        optional(_WHOLE),
        default=None,
        text="Only those given up at this time, in milliseconds since 1970, or later.",
    ),
    Parameter(
        "until_ms",
        optional(_WHOLE),
        default=None,
        text="Only those given up before this time, in milliseconds since 1970.",
    ),
)
_OFFSETS: Final = Parameter(
    "offsets",
    optional(array(letter, MOST_STEP)),
    default=None,
    text="Only those at these places, each as PARTITION:OFFSET.",
)
_STEP: Final = Parameter(
    "limit",
    integer(1, MOST_STEP),
    default=100,
    text="Most messages of this step; the rest is for the next one.",
)

#: A dead-letter topic in a list.
DLQ_ROW: Final = shape(
    target=said(STRING, "Name of the dead-letter topic."),
    topics=said(several(STRING), "The topics whose channels give up to it."),
    channel=said(MAYBE_STRING, "The channel that does, where it is only one."),
    messages=said(WHOLE, "Dead letters that are still there."),
    oldest_ms=said(MAYBE_MILLISECONDS, "When the oldest of them was written; null if none."),
    newest_ms=said(MAYBE_MILLISECONDS, "When the newest one was; null if there is none."),
    per_s=said(
        {"type": ["number", "null"]}, "New ones a second, of late; null while it is not known."
    ),
    kept=said(WHOLE, "Messages that were given up, but are not there yet."),
    kept_why=said(STRING, "Why they are not; empty if they are only on their way."),
    parking=said(TRUTH, "Whether it is a parking place, for what went in circles."),
    loop=said(STRING, "How its messages could come round to it again; empty if they cannot."),
)
#: What one dead letter says of itself.
LETTER: Final = shape(
    partition=said(WHOLE, "Partition of the dead-letter topic."),
    offset=said(WHOLE, "Its offset there."),
    topic=said(STRING, "Where it comes from; empty if it does not say."),
    origin_partition=said({"type": ["integer", "null"]}, "Its partition there."),
    origin_offset=said({"type": ["integer", "null"]}, "Its offset there."),
    channel=said(STRING, "The channel that gave it up."),
    reason=said(STRING, "One word: failed, timeout, lost, rejected, length, expired ..."),
    text=said(STRING, "The last error."),
    attempts=said(WHOLE, "How often it was given out."),
    failures=said(WHOLE, "How often that failed."),
    client=said(STRING, "Who had it last; empty if nobody had it."),
    first_ms=said(MAYBE_MILLISECONDS, "When it failed first."),
    last_ms=said(MAYBE_MILLISECONDS, "When it was given up."),
    hops=said(WHOLE, "In how many dead-letter topics it was, this one included."),
    redriven=said(WHOLE, "How often it was sent back before."),
    loop=said(TRUTH, "Whether it was sent back before, or went in circles."),
    key=said(MAYBE_STRING, "The key; null if it has none."),
    key_encoding=ENCODING,
    size=said(WHOLE, "Bytes of its value."),
    preview=said(MAYBE_STRING, "The value's beginning; null if it has none."),
    preview_encoding=ENCODING,
)
_GROUPS: Final = said(
    several(shape(reason=STRING, topic=STRING, channel=STRING, text=STRING, count=WHOLE)),
    "How many of those looked at have the same reason, origin and error; the most first.",
)
_NEXT: Final = said(MAYBE_STRING, "Where the next page begins; null when there is none.")
_DONE: Final = {
    "done": said(WHOLE, "Messages that were dealt with, or would be."),
    "skipped": said(WHOLE, "Messages that are still there, but do not fit the filter."),
    "failed": said(
        several(shape(partition=WHOLE, offset=WHOLE, why=STRING)),
        "Those that stay where they are, and why.",
    ),
    "loops": said(WHOLE, "How many of them were sent back before, or went in circles."),
    "more": said(TRUTH, "Whether there is more to do behind this step."),
    "after": said(MAYBE_STRING, "Where the next step begins; null when this was the last."),
    "silent": SILENT,
    "dry_run": DRY_RUN,
}

#: By name.
DEAD_LETTERS: Final[dict[str, Operation]] = table(
    Operation(
        "dlq.list",
        "viewer",
        False,
        (
            Parameter(
                "topic",
                optional(NAME),
                default=None,
                text="Only those to which channels of this topic give up.",
            ),
            FILTER,
            Parameter(
                "after", text(1024), default="", text="Begin behind this one, the last before."
            ),
            LIMIT,
        ),
        text="List dead-letter topics with how much is in them.",
        http=Http("GET", "/dlq"),
        cli=("dlq", "ls"),
        result={
            "queues": several(DLQ_ROW),
            "more": MORE,
            "after": _NEXT,
            "total": TOTAL,
            "silent": SILENT,
        },
    ),
    Operation(
        "dlq.messages",
        "viewer",
        False,
        (_TARGET, *_FILTERS, _AFTER, LIMIT),
        text="Look at the dead letters that are still there, in groups and one by one.",
        http=Http("GET", f"{_PATH}/messages"),
        cli=("dlq", "show"),
        result={
            "groups": _GROUPS,
            "messages": several(LETTER),
            "scanned": said(WHOLE, "How many dead letters were looked at."),
            "more": MORE,
            "after": _NEXT,
            "silent": SILENT,
        },
    ),
    Operation(
        "dlq.redrive",
        "operator",
        True,
        (
            _TARGET,
            *_FILTERS,
            _OFFSETS,
            Parameter(
                "to",
                NAME,
                default="origin",
                text="Where they go: back to the channels that gave them up (origin), or a topic.",
            ),
            _STEP,
            _AFTER,
            DRY,
        ),
        text="Send dead letters back, one step: each is there before it counts as settled here.",
        http=Http("POST", f"{_PATH}:redrive"),
        cli=("dlq", "redrive"),
        result=_DONE,
    ),
    Operation(
        "dlq.drop",
        "admin",
        True,
        (_TARGET, *_FILTERS, _OFFSETS, _STEP, _AFTER, DRY),
        text="Settle dead letters without doing anything with them, one step.",
        http=Http("POST", f"{_PATH}:drop"),
        cli=("dlq", "drop"),
        result=_DONE,
    ),
)
