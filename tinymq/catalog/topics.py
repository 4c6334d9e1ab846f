"""The operations on topics."""

from __future__ import annotations

from typing import Final

from tinymq.catalog.settings import CHANGES, settings
from tinymq.catalog.shapes import (
    COMPACTION,
    DRY_RUN,
    MAYBE_STRING,
    MAYBE_WHOLE,
    MILLISECONDS,
    MORE,
    PLAN,
    SILENT,
    STRING,
    TOPIC,
    TOPIC_PLANNED,
    TOPIC_ROW,
    TOTAL,
    TRUTH,
    said,
    several,
    shape,
)
from tinymq.operation import (
    AFTER,
    BEFORE,
    DRY,
    FILTER,
    LIMIT,
    NUMBER,
    PARTITION,
    WHICH,
    Http,
    Operation,
    Parameter,
    table,
)
from tinymq.operation import TOPIC as TOPIC_ID
from tinymq.wire.fields import optional, text

_GIVEN, _CHANGED = settings("retention.ms", "string", "integer", "boolean")
_PATH: Final = "/topics/{name}"
_MADE: Final = (
    Parameter(
        "partitions",
        optional(NUMBER),
        default=None,
        text="How many partitions; as the broker is set if not given.",
    ),
    _GIVEN,
)
_ALTERED: Final = (
    Parameter(
        "partitions",
        optional(NUMBER),
        default=None,
        text="How many partitions from now on; never fewer than now.",
    ),
    _CHANGED,
)
#: One change of a topic: who did what, and what is otherwise since then.
TOPIC_CHANGE: Final = shape(
    at_ms=MILLISECONDS,
    who=said(STRING, "Who made it; empty where the topic was made on its first use."),
    peer=said(STRING, "The address that it was asked for from."),
    act=said(
        {"type": "string", "enum": ["created", "altered", "partitions", "purged", "undone"]},
        "What was done.",
    ),
    settings=said(
        several(
            shape(
                name=said(STRING, "Dotted name of the setting, or partitions."),
                before=said(MAYBE_STRING, "Its text before; null where the topic is new."),
                after=said(MAYBE_STRING, "Its text since then."),
            )
        ),
        "What is otherwise; of a new topic what differs from the defaults.",
    ),
    note=said(STRING, "How much was purged or brought back; else empty."),
)

#: By name.
TOPICS: Final[dict[str, Operation]] = table(
    Operation(
        "topic.create",
        "operator",
        True,
        (WHICH, *_MADE, DRY),
        text="Make a topic; one that exists with the same settings is no error.",
        http=Http("PUT", _PATH),
        cli=("topic", "create"),
        result={
            "topic": {"anyOf": [TOPIC, TOPIC_PLANNED]},
            "created": said(TRUTH, "Whether it was not there before."),
            "dry_run": DRY_RUN,
        },
    ),
    Operation(
        "topic.alter",
        "operator",
        True,
        (WHICH, TOPIC_ID, *_ALTERED, DRY),
        text="Change settings of a topic, or add partitions.",
        http=Http("PATCH", _PATH),
        cli=("topic", "edit"),
        result={
            "topic": TOPIC,
            "changes": CHANGES,
            "dry_run": DRY_RUN,
        },
    ),
    Operation(
        "topic.delete",
        "admin",
        True,
        (WHICH, TOPIC_ID, DRY),
        text="Remove a topic with all its records.",
        http=Http("DELETE", _PATH),
        cli=("topic", "rm"),
        result={"plan": PLAN},
    ),
    Operation(
        "topic.list",
        "viewer",
        False,
        (FILTER, AFTER, LIMIT),
        text="List topics in order of their names.",
        http=Http("GET", "/topics"),
        cli=("topic", "ls"),
        result={"topics": several(TOPIC_ROW), "more": MORE, "total": TOTAL, "silent": SILENT},
    ),
    Operation(
        "topic.info",
        "viewer",
        False,
        (WHICH,),
        text="Describe one topic with its partitions.",
        http=Http("GET", _PATH),
        cli=("topic", "info"),
        result={"topic": TOPIC},
    ),
    Operation(
        "topic.purge",
        "admin",
        True,
        (WHICH, TOPIC_ID, PARTITION, *BEFORE, DRY),
        text="Remove records of a topic: all, or those before a point; it can be undone a while.",
        http=Http("POST", f"{_PATH}:purge"),
        cli=("topic", "purge"),
        result={
            "plan": PLAN,
            "undo_until_ms": said(MAYBE_WHOLE, "Until when it can be undone."),
        },
    ),
    Operation(
        "topic.undo_purge",
        "admin",
        True,
        (WHICH, TOPIC_ID, PARTITION, DRY),
        text="Bring back what the last purge took, while its window is open.",
        http=Http("POST", f"{_PATH}:undo_purge"),
        cli=("topic", "undo-purge"),
        result={"topic": TOPIC, "dry_run": DRY_RUN},
    ),
    Operation(
        "topic.compact",
        "operator",
        True,
        (WHICH, TOPIC_ID, PARTITION, DRY),
        text="Have the log of a topic that is compacted cleaned soon, its newest file too.",
        http=Http("POST", f"{_PATH}:compact"),
        cli=("topic", "compact"),
        result={"compaction": COMPACTION},
    ),
    Operation(
        "topic.history",
        "viewer",
        False,
        (
            WHICH,
            LIMIT,
            Parameter(
                "after",
                text(20),
                default="",
                text="Begin behind this change, as the page before says it.",
            ),
        ),
        text="Tell who changed what about a topic: the last 100 changes, the newest first.",
        http=Http("GET", f"{_PATH}/history"),
        cli=("topic", "history"),
        result={
            "changes": several(TOPIC_CHANGE),
            "more": MORE,
            "after": said(MAYBE_STRING, "What to ask with for the next page; null if none is."),
        },
    ),
)
