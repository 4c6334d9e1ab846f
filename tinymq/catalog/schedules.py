"""The operations on schedules: messages that come again and again."""

from __future__ import annotations

from typing import Final

from tinymq.catalog.settings import CHANGES
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
    TRUTH,
    WHOLE,
    said,
    several,
    shape,
)
from tinymq.cron import CATCH_UPS, DEFAULT_CATCH_UP, MOST_EXPRESSION, MOST_VALUE, MOST_ZONE
from tinymq.operation import DRY, FILTER, LIMIT, NAME, Http, Operation, Parameter, table
from tinymq.wire.fields import boolean, choice, optional, text, words

_PATH: Final = "/schedules/{name}"
_NAME: Final = Parameter("name", NAME, text="Name of the schedule.")
#: Base64 is a third longer than what it stands for.
_WRITTEN: Final = text(MOST_VALUE * 4 // 3 + 4)

_FACTS: Final = {
    "name": STRING,
    "topic": said(STRING, "The topic that its messages go to."),
    "partition": said(WHOLE, "The partition that they go to."),
    "cron": said(STRING, "When they come, as a cron expression of five fields."),
    "zone": said(STRING, "The time zone that the expression is about."),
    "catch_up": said(
        {"type": "string", "enum": list(CATCH_UPS)},
        "What becomes of runs that were missed: skip, once or all.",
    ),
    "paused": TRUTH,
    "created_ms": MILLISECONDS,
    "next_ms": said(MAYBE_WHOLE, "When the next message comes; null if none will."),
    "last_ms": said(MAYBE_MILLISECONDS, "When the last message came; null if none did yet."),
    "runs": said(MAYBE_WHOLE, "Messages so far; null while its broker does not answer."),
    "missed": said(MAYBE_WHOLE, "Runs that were missed; null while its broker does not answer."),
    "text": said(STRING, "The expression in words; empty where there are none."),
    "broker": said(STRING, "Name of the broker that leads its partition."),
    "error": said(STRING, "Why it does not run; empty if it does."),
}
#: A schedule in a list.
SCHEDULE_ROW: Final = shape(**_FACTS)
#: One schedule, whole.
SCHEDULE: Final = shape(
    **_FACTS,
    key=said(MAYBE_STRING, "Key of its messages; null if they have none."),
    value=said(STRING, "Value of its messages."),
    value_encoding=ENCODING,
    headers=said(
        {"type": "object", "additionalProperties": STRING}, "Headers of its messages, by name."
    ),
    upcoming=said(several(MILLISECONDS), "The next ten times, in milliseconds since 1970."),
)
_ONE: Final = {"schedule": SCHEDULE, "silent": SILENT}
_CHANGED: Final = {
    **_ONE,
    "changed": said(TRUTH, "Whether it was otherwise before."),
    "dry_run": DRY_RUN,
}

#: By name.
SCHEDULES: Final[dict[str, Operation]] = table(
    Operation(
        "schedule.create",
        "operator",
        True,
        (
            _NAME,
            Parameter("topic", NAME, text="The topic that its messages go to."),
            Parameter(
                "cron",
                text(MOST_EXPRESSION),
                text="When they come: minute, hour, day of the month, month, day of the week; "
                "or a word such as @daily.",
            ),
            Parameter(
                "zone",
                text(MOST_ZONE),
                default="UTC",
                text="The time zone that this is about, such as Europe/Berlin.",
            ),
            Parameter(
                "key", optional(NAME), default=None, text="Key of its messages; none without it."
            ),
            Parameter(
                "value", _WRITTEN, default="", text="Value of its messages; empty without it."
            ),
            Parameter(
                "encoding",
                choice("string", "base64"),
                default="string",
                text="How the value is written here: string or base64.",
            ),
            Parameter(
                "headers",
                words,
                default={},
                text="Headers of its messages, each a name and its text.",
            ),
            Parameter(
                "catch_up",
                choice(*CATCH_UPS),
                default=DEFAULT_CATCH_UP,
                text="What becomes of runs that were missed: skip counts them, once sends one "
                "message for all, all sends one for each.",
            ),
            Parameter(
                "paused",
                optional(boolean),
                default=None,
                text="Whether it rests until it is resumed; one that exists stays as it is "
                "without this.",
            ),
            DRY,
        ),
        text="Make a schedule, or give the one of this name another form.",
        http=Http("PUT", _PATH),
        cli=("schedule", "add"),
        usage="NAME TOPIC CRON",
        result={
            **_ONE,
            "created": said(TRUTH, "Whether it was not there before."),
            "changes": CHANGES,
            "dry_run": DRY_RUN,
        },
    ),
    Operation(
        "schedule.list",
        "viewer",
        False,
        (
            Parameter("topic", optional(NAME), default=None, text="Only those of this topic."),
            FILTER,
            Parameter(
                "after",
                NAME,
                default="",
                text="Begin behind this one, the last of the page before.",
            ),
            LIMIT,
        ),
        text="List schedules in order of their names.",
        http=Http("GET", "/schedules"),
        cli=("schedule", "ls"),
        result={
            "schedules": several(SCHEDULE_ROW),
            "more": MORE,
            "after": said(MAYBE_STRING, "Where the next page begins; null when there is none."),
            "total": TOTAL,
            "silent": SILENT,
        },
    ),
    Operation(
        "schedule.info",
        "viewer",
        False,
        (_NAME,),
        text="Describe one schedule with its message and its next times.",
        http=Http("GET", _PATH),
        cli=("schedule", "info"),
        result=_ONE,
    ),
    Operation(
        "schedule.pause",
        "operator",
        True,
        (_NAME, DRY),
        text="Let a schedule rest: no message comes, and none counts as missed.",
        http=Http("POST", f"{_PATH}:pause"),
        cli=("schedule", "pause"),
        result=_CHANGED,
    ),
    Operation(
        "schedule.resume",
        "operator",
        True,
        (_NAME, DRY),
        text="Let a paused schedule go on with the next time that comes.",
        http=Http("POST", f"{_PATH}:resume"),
        cli=("schedule", "resume"),
        result=_CHANGED,
    ),
    Operation(
        "schedule.run",
        "operator",
        True,
        (_NAME, DRY),
        text="Send the message of a schedule once, now.",
        http=Http("POST", f"{_PATH}:run"),
        cli=("schedule", "run"),
        result={
            "topic": STRING,
            "partition": WHOLE,
            "offset": said(MAYBE_WHOLE, "Offset of the message; null in a dry run."),
            "time_ms": said(MAYBE_MILLISECONDS, "When it was appended; null in a dry run."),
            "dry_run": DRY_RUN,
        },
    ),
    Operation(
        "schedule.delete",
        "operator",
        True,
        (_NAME, DRY),
        text="Remove a schedule; messages that came are left.",
        http=Http("DELETE", _PATH),
        cli=("schedule", "rm"),
        result={**_ONE, "dry_run": DRY_RUN},
    ),
)
