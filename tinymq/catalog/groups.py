"""The operations on consumer groups: who reads, how far they are, and moving them."""

from __future__ import annotations

import re
from typing import Any, Final

from tinymq.catalog.shapes import (
    DRY_RUN,
    MAYBE_MILLISECONDS,
    MAYBE_STRING,
    MAYBE_WHOLE,
    MILLISECONDS,
    MORE,
    SILENT,
    STRING,
    TRUTH,
    WHOLE,
    Schema,
    said,
    several,
    shape,
)
from tinymq.operation import DRY, FILTER, LIMIT, NAME, PARTITION, Http, Operation, Parameter, table
from tinymq.wire.fields import I64, boolean, optional, told

GROUP_PATH: Final = "/groups/{name}"
GROUP_NAME: Final = Parameter("name", NAME, text="Name of the group.")
FORCE: Final = Parameter(
    "force",
    boolean,
    default=False,
    text="Do it though members are reading; they go on from where it puts them.",
)

#: Most positions in one call: as many as a topic may have partitions.
MOST_POSITIONS: Final = 1000

_MAYBE_NUMBER: Final[Schema] = {"type": ["number", "null"]}

#: Where a group can be moved, besides to an offset.
TO_WORDS: Final = r"earliest|latest|@\d{1,16}|[+-]\d{1,19}"


@told(
    "earliest, latest, an offset, @MILLISECONDS, +N or -N",
    {"type": ["string", "integer"], "pattern": rf"^({TO_WORDS}|\d{{1,19}})$", "minimum": 0},
)
def group_place(value: Any) -> str | int:
    """Where a group is moved: words, an offset, a time, or so many messages on or back."""
    if type(value) is str:
        if value.isascii() and value.isdigit() and int(value) <= I64:
            return int(value)
        if re.fullmatch(TO_WORDS, value):
            return value
    elif type(value) is int and 0 <= value <= I64:
        return value
    raise ValueError(group_place.must)


_ROW: Final[Schema] = {
    "type": "object",
    "properties": {
        "topic": {"type": "string"},
        "partition": {"type": "integer", "minimum": 0},
        "offset": {"type": "integer", "minimum": 0},
    },
    "required": ["topic", "partition", "offset"],
    "additionalProperties": False,
}


@told(
    "an array of maps of topic, partition and offset",
    {"type": "array", "items": _ROW, "maxItems": MOST_POSITIONS},
)
def group_positions(value: Any) -> list[dict[str, Any]]:
    """Positions, one by one."""
    rows = list(value) if type(value) in (list, tuple) else None
    if rows is None or len(rows) > MOST_POSITIONS or not all(map(_is_position, rows)):
        raise ValueError(group_positions.must)
    return rows


def _is_position(row: Any) -> bool:
    match row:
        case {"topic": str(), "partition": int() as index, "offset": int() as offset}:
            numbers = not isinstance(index, bool) and not isinstance(offset, bool)
            return len(row) == len(_ROW["required"]) and numbers and index >= 0 <= offset <= I64
    return False


#: A group, as a whole.
GROUP: Final = shape(
    name=STRING,
    state=said(
        {"type": "string", "enum": ["stable", "moving", "empty", "unknown"]},
        "stable; moving while partitions change hands; empty without members; unknown while its "
        "coordinator does not answer.",
    ),
    members=said(WHOLE, "How many read."),
    topics=said(several(STRING), "Topics that it has a place in, or is given partitions of."),
    partitions=said(WHOLE, "How many of them, in all topics."),
    lag=said(
        MAYBE_WHOLE,
        "Messages behind its positions, as far as they are known; null if none is known to be, "
        "and nobody knows how far it is in some partition.",
    ),
    lag_s=said(_MAYBE_NUMBER, "Age of the oldest of them, in seconds; null if there is none."),
    trend=said(_MAYBE_NUMBER, "By how many messages a second the lag grows; null if unknown."),
    clear_s=said(
        _MAYBE_NUMBER, "Seconds until nothing is left, as it goes; null if it will not be so."
    ),
    coordinator=said(STRING, "Name of the broker that looks after its members; empty if none."),
    strategy=said(STRING, "How partitions are divided; empty if nobody has said."),
    generation=said(WHOLE, "Rises whenever partitions change hands; 0 if nobody has read."),
    committed_ms=said(MAYBE_MILLISECONDS, "When it committed last; null if it never did."),
    created_ms=MILLISECONDS,
    stuck=said(STRING, "Why it gets no further; empty if nothing is wrong."),
)
#: One that reads for a group.
MEMBER: Final = shape(
    id=said(STRING, "Made anew at each of its starts."),
    instance=said(STRING, "Of a static member: what it is called over restarts; else empty."),
    client=said(STRING, "What its client calls itself."),
    address=STRING,
    since_ms=said(MILLISECONDS, "When it joined."),
    heard_ms=said(MILLISECONDS, "When it was heard last."),
    topics=said(several(STRING), "Names, and patterns, of topics that it wants."),
    partitions=said(WHOLE, "How many it has."),
    draining=said(WHOLE, "How many of them it is giving up."),
    state={"type": "string", "enum": ["joining", "stable", "draining", "late"]},
)
#: How far a group is in one partition.
GROUP_PARTITION: Final = shape(
    topic=STRING,
    partition=WHOLE,
    committed=said(MAYBE_WHOLE, "The first offset that it has not handled; null if it said none."),
    epoch=said(WHOLE, "Leader epoch of the record before it; -1 if it said none."),
    note=said(STRING, "What it wrote beside its position."),
    committed_ms=said(MAYBE_MILLISECONDS, "When; null if it never did."),
    start=said(MAYBE_WHOLE, "First offset that can be read; null while its broker is silent."),
    end=said(MAYBE_WHOLE, "The offset behind the last one that can be read; null likewise."),
    lag=said(
        MAYBE_WHOLE,
        "Messages behind the position, all of them while a member has said nothing; null if "
        "nobody reads and there is no position.",
    ),
    lag_s=said(_MAYBE_NUMBER, "Age of the oldest of them, in seconds; null if there is none."),
    member=said(STRING, "Id of the member that has it; empty if nobody has."),
    generation=said(WHOLE, "What the member has it by; -1 if nobody ever had."),
    draining=said(TRUTH, "Whether the member is giving it up."),
    error=said(STRING, "What is wrong with it; empty if nothing is."),
)
_REBALANCE: Final = shape(
    at_ms=said(MILLISECONDS, "When it began."),
    took_ms=said(MAYBE_WHOLE, "How long it took; null while it goes on."),
    moved=said(WHOLE, "How many partitions changed hands."),
    why=STRING,
)
_UNDO: Final = said(
    MAYBE_MILLISECONDS, "Until when the last seek can be taken back; null if it cannot."
)
_PLAN: Final = {
    "plan": said(
        several(
            shape(
                topic=STRING,
                partition=WHOLE,
                before=said(MAYBE_WHOLE, "Its position until now; null for none."),
                after=said(MAYBE_WHOLE, "Its position from now on; null for none."),
                skipped=said(WHOLE, "Messages that it will not read."),
                replayed=said(WHOLE, "Messages that it will read again."),
            )
        ),
        "What is moved, by partition.",
    ),
    "done": said(TRUTH, "Whether it was done, and not only told."),
    "undo_until_ms": _UNDO,
    "dry_run": DRY_RUN,
    "silent": SILENT,
}

#: By name.
GROUPS: Final[dict[str, Operation]] = table(
    Operation(
        "group.list",
        "viewer",
        False,
        (
            Parameter("topic", optional(NAME), default=None, text="Only those that read this one."),
            FILTER,
            Parameter(
                "after",
                NAME,
                default="",
                text="Begin behind this one, the last of the page before.",
            ),
            LIMIT,
        ),
        text="List consumer groups in order of their names.",
        http=Http("GET", "/groups"),
        cli=("group", "ls"),
        result={
            "groups": several(GROUP),
            "more": MORE,
            "after": said(MAYBE_STRING, "Where the next page begins; null when there is none."),
            "silent": SILENT,
        },
    ),
    Operation(
        "group.info",
        "viewer",
        False,
        (GROUP_NAME,),
        text="Describe one group with its members, its positions and its last rebalances.",
        http=Http("GET", GROUP_PATH),
        cli=("group", "info"),
        result={
            "group": GROUP,
            "members": several(MEMBER),
            "partitions": several(GROUP_PARTITION),
            "rebalances": said(several(_REBALANCE), "The newest first."),
            "undo_until_ms": _UNDO,
            "silent": SILENT,
        },
    ),
    Operation(
        "group.seek",
        "operator",
        True,
        (
            GROUP_NAME,
            Parameter("topic", optional(NAME), default=None, text="Only in this topic."),
            PARTITION,
            Parameter(
                "to",
                optional(group_place),
                default=None,
                text="To earliest, latest, an offset, @MILLISECONDS since 1970, or so many "
                "messages on (+N) or back (-N); the nearest that there is.",
            ),
            Parameter(
                "from_group",
                optional(NAME),
                default=None,
                text="To where this group is.",
            ),
            Parameter(
                "positions",
                optional(group_positions),
                default=None,
                text="To these, each a map of topic, partition and offset.",
            ),
            FORCE,
            DRY,
        ),
        text="Move a group to another place; it can be taken back a while.",
        http=Http("POST", f"{GROUP_PATH}:seek"),
        cli=("group", "seek"),
        result=_PLAN,
    ),
    Operation(
        "group.undo_seek",
        "operator",
        True,
        (GROUP_NAME, FORCE, DRY),
        text="Take back what the last seek did, while its window is open and the messages are "
        "there.",
        http=Http("POST", f"{GROUP_PATH}:undo-seek"),
        cli=("group", "undo"),
        result=_PLAN,
    ),
    Operation(
        "group.reset",
        "operator",
        True,
        (
            GROUP_NAME,
            Parameter("topic", optional(NAME), default=None, text="Only in this topic."),
            FORCE,
            DRY,
        ),
        text="Forget the positions of a group; its members begin as if they were new.",
        http=Http("POST", f"{GROUP_PATH}:reset"),
        cli=("group", "reset"),
        result=_PLAN,
    ),
    Operation(
        "group.delete",
        "operator",
        True,
        (GROUP_NAME, FORCE, DRY),
        text="Remove a group with its positions; the messages stay in their topics.",
        http=Http("DELETE", GROUP_PATH),
        cli=("group", "rm"),
        result={"group": GROUP, "dry_run": DRY_RUN},
    ),
)
