"""The operations on channels."""

from __future__ import annotations

from typing import Any, Final

from tinymq.catalog.figures import PACE, PARTITION_PACE, STANDING
from tinymq.catalog.settings import CHANGES, settings
from tinymq.catalog.shapes import (
    DRY_RUN,
    MAYBE_MILLISECONDS,
    MAYBE_STRING,
    MAYBE_WHOLE,
    MILLISECONDS,
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
from tinymq.operation import (
    DRY,
    FILTER,
    LIMIT,
    NAME,
    PARTITION,
    Http,
    Operation,
    Parameter,
    table,
)
from tinymq.wire.fields import I64, boolean, integer, optional, text
from tinymq.wire.fields import told as takes

CHANNEL_PATH: Final = "/topics/{topic}/channels/{name}"
_WHOLE: Final = integer(0, I64)
_GIVEN, _ALTERED = settings("lease.ms", "string", "integer", "array")


@takes(
    "earliest, latest or an offset",
    {"type": ["string", "integer"], "minimum": 0, "maximum": I64, "maxLength": 20},
)
def place(value: Any) -> str | int:
    """Where a channel begins; other words are refused where it is used."""
    if type(value) is int and 0 <= value <= I64:
        return value
    if type(value) is str and len(value) <= 20:
        return int(value) if value.isascii() and value.isdigit() else value
    raise ValueError(place.must)


WHOSE: Final = Parameter("topic", NAME, text="Name of the topic.")
CHANNEL_NAME: Final = Parameter("name", NAME, text="Name of the channel.")
CHANNEL_START: Final = Parameter(
    "start",
    optional(place),
    default=None,
    text="Where it begins on each partition: earliest, latest, an offset, or @ and milliseconds "
    "since 1970; earliest if not given.",
)

_CHANNEL_FACTS: Final = {
    "topic": said(STRING, "Name of its topic."),
    "name": STRING,
    "created_ms": MILLISECONDS,
    "start": said({"type": ["string", "integer"]}, "Where it began."),
    "temporary": said(TRUTH, "Whether it goes when nobody subscribes to it."),
    "group": said(STRING, "Its group: its name without the instance."),
    "instance": said(STRING, "Whose it is within its group; empty if it is everybody's."),
    "config": said({"type": "object"}, "Every setting of the channel by its dotted name."),
    "paused": said(
        {
            **shape(
                since_ms=MILLISECONDS,
                until_ms=said(MAYBE_WHOLE, "When it ends by itself; null if it does not."),
                reason=STRING,
            ),
            "type": ["object", "null"],
        },
        "Since when nothing is given out, and why; null while it is not paused.",
    ),
}
_CHANNEL_COUNTS: Final = {
    "ready": said(WHOLE, "Messages that can be given out."),
    "in_flight": said(WHOLE, "Messages in the hands of consumers."),
    "waiting": said(WHOLE, "Messages that wait for their next attempt."),
    "parked": said(WHOLE, "Messages that stand aside behind one of their key."),
    "given_up": said(WHOLE, "Messages on their way to the dead-letter topic."),
    "lag": said(WHOLE, "Messages that are not settled, but for those given up."),
    "consumers": said(WHOLE, "How many are subscribed; the most that one partition has."),
}
#: A channel in a list.
CHANNEL_ROW: Final = shape(**_CHANNEL_FACTS, **_CHANNEL_COUNTS, **PACE, **STANDING)
#: A channel that a dry run would make.
CHANNEL_PLANNED: Final = shape(**_CHANNEL_FACTS)
#: A channel on one partition; null is what its broker did not tell.
CHANNEL_PARTITION: Final = shape(
    partition=WHOLE,
    leader=said(STRING, "Name of the broker that leads it."),
    leader_id=WHOLE,
    state={"type": "string", "enum": ["online", "offline"]},
    reason=said(STRING, "Why it is offline."),
    **dict.fromkeys(_CHANNEL_COUNTS, MAYBE_WHOLE),
    floor=said(MAYBE_WHOLE, "Below this offset everything is settled."),
    cursor=said(MAYBE_WHOLE, "The next offset that is new to the channel."),
    end=said(MAYBE_WHOLE, "The offset behind the last message."),
    paused={"type": ["boolean", "null"]},
    **PARTITION_PACE,
    next_due_ms=said(MAYBE_MILLISECONDS, "When the first of those that wait is ready."),
    undo_until_ms=said(MAYBE_MILLISECONDS, "Until when the last seek can be taken back."),
    why=said(MAYBE_STRING, "Why nothing is given out just now; empty if something can be."),
)
#: One channel with its partitions.
CHANNEL: Final = shape(
    **_CHANNEL_FACTS,
    **_CHANNEL_COUNTS,
    **PACE,
    **STANDING,
    dead_letter=said(STRING, "The topic for what is given up; it may not be there yet."),
    undo_until_ms=said(MAYBE_MILLISECONDS, "Until when the last seek can be taken back."),
    partitions=several(CHANNEL_PARTITION),
    silent=SILENT,
)
_SEEK_COUNTS: Final = {
    "skipped": said(WHOLE, "Messages that are settled by it."),
    "revived": said(WHOLE, "Settled messages that come again."),
    "lost": said(WHOLE, "Messages in flight that consumers lose."),
}
#: What a seek does, or would do.
SEEK: Final = shape(
    topic=STRING,
    channel=STRING,
    partitions=several(
        shape(
            partition=WHOLE,
            cursor=said(WHOLE, "The next offset that was new to the channel."),
            new_cursor=said(WHOLE, "The one that is from then on."),
            **_SEEK_COUNTS,
            undo_until_ms=said(MILLISECONDS, "Until when it can be taken back."),
        )
    ),
    **_SEEK_COUNTS,
    silent=SILENT,
    dry_run=DRY_RUN,
)
_ONE: Final = {"channel": CHANNEL}
_CHANGED: Final = {"channel": CHANNEL, "dry_run": DRY_RUN}

#: By name.
CHANNELS: Final[dict[str, Operation]] = table(
    Operation(
        "channel.create",
        "operator",
        True,
        (
            WHOSE,
            CHANNEL_NAME,
            _GIVEN,
            CHANNEL_START,
            Parameter(
                "temporary",
                boolean,
                default=False,
                text="Whether it goes when nobody subscribes to it for a while; it begins at the "
                "latest message then, if start is not given.",
            ),
            DRY,
        ),
        text="Make a channel of a topic; one that exists with the same settings is no error.",
        http=Http("PUT", CHANNEL_PATH),
        cli=("channel", "create"),
        result={
            "channel": {"anyOf": [CHANNEL, CHANNEL_PLANNED]},
            "created": said(TRUTH, "Whether it was not there before."),
            "dry_run": DRY_RUN,
        },
    ),
    Operation(
        "channel.alter",
        "operator",
        True,
        (WHOSE, CHANNEL_NAME, _ALTERED, DRY),
        text="Change settings of a channel; what is in flight keeps its deadline.",
        http=Http("PATCH", CHANNEL_PATH),
        cli=("channel", "edit"),
        result={
            "channel": CHANNEL,
            "changes": CHANGES,
            "dry_run": DRY_RUN,
        },
    ),
    Operation(
        "channel.delete",
        "admin",
        True,
        (WHOSE, CHANNEL_NAME, DRY),
        text="Remove a channel with what it knows; the messages stay in the topic.",
        http=Http("DELETE", CHANNEL_PATH),
        cli=("channel", "rm"),
        result=_CHANGED,
    ),
    Operation(
        "channel.list",
        "viewer",
        False,
        (
            Parameter("topic", optional(NAME), default=None, text="Only those of this topic."),
            FILTER,
            Parameter(
                "after",
                text(2049),
                default="",
                text="Begin behind this one, what the page before said.",
            ),
            LIMIT,
        ),
        text="List channels in order of topic and name.",
        http=Http("GET", "/channels"),
        cli=("channel", "ls"),
        result={
            "channels": several(CHANNEL_ROW),
            "more": MORE,
            "after": said(MAYBE_STRING, "Where the next page begins; null when there is none."),
            "total": TOTAL,
            "silent": SILENT,
        },
    ),
    Operation(
        "channel.info",
        "viewer",
        False,
        (WHOSE, CHANNEL_NAME),
        text="Describe one channel with its partitions.",
        http=Http("GET", CHANNEL_PATH),
        cli=("channel", "info"),
        result=_ONE,
    ),
    Operation(
        "channel.pause",
        "operator",
        True,
        (
            WHOSE,
            CHANNEL_NAME,
            Parameter(
                "until_ms",
                optional(_WHOLE),
                default=None,
                text="When it goes on by itself, in milliseconds since 1970.",
            ),
            Parameter("reason", text(200), default="", text="Why, for people."),
            Parameter("undo", boolean, default=False, text="Let it go on."),
            DRY,
        ),
        text="Give nothing of a channel out, or go on; what is in flight can be settled.",
        http=Http("POST", f"{CHANNEL_PATH}:pause"),
        cli=("channel", "pause"),
        result={
            "channel": CHANNEL,
            "changed": said(TRUTH, "Whether it was not so before."),
            "dry_run": DRY_RUN,
        },
    ),
    Operation(
        "channel.seek",
        "admin",
        True,
        (
            WHOSE,
            CHANNEL_NAME,
            PARTITION,
            Parameter(
                "to",
                optional(place),
                default=None,
                text="To earliest, latest or an offset; the nearest that there is.",
            ),
            Parameter(
                "time_ms",
                optional(_WHOLE),
                default=None,
                text="To the first record of this time, in milliseconds since 1970, or later.",
            ),
            DRY,
        ),
        text="Begin anew at a point: what lies before is settled, the rest comes again.",
        http=Http("POST", f"{CHANNEL_PATH}:seek"),
        cli=("channel", "seek"),
        result={"plan": SEEK},
    ),
    Operation(
        "channel.undo_seek",
        "admin",
        True,
        (WHOSE, CHANNEL_NAME, PARTITION, DRY),
        text="Take back what the last seek or emptying did, while its window is open.",
        http=Http("POST", f"{CHANNEL_PATH}:undo_seek"),
        cli=("channel", "undo-seek"),
        result={
            "channel": CHANNEL,
            "undone": said(several(WHOLE), "Numbers of the partitions where there was one."),
            "dry_run": DRY_RUN,
        },
    ),
    Operation(
        "channel.empty",
        "admin",
        True,
        (WHOSE, CHANNEL_NAME, PARTITION, DRY),
        text="Settle all messages of a channel; it can be taken back a while.",
        http=Http("POST", f"{CHANNEL_PATH}:empty"),
        cli=("channel", "purge"),
        result={"plan": SEEK},
    ),
)
