"""The shapes of results, as JSON Schema."""

from __future__ import annotations

from typing import Any, Final

from tinymq.wire.fields import JsonSchema

Schema = JsonSchema


def shape(**properties: Schema) -> dict[str, Any]:
    """An object with exactly these fields."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def several(items: Schema) -> Schema:
    """An array."""
    return {"type": "array", "items": items}


def said(schema: Schema, text: str) -> Schema:
    """Add what a value means."""
    return {**schema, "description": text}


STRING: Final[Schema] = {"type": "string"}
MAYBE_STRING: Final[Schema] = {"type": ["string", "null"]}
WHOLE: Final[Schema] = {"type": "integer", "format": "int64"}
MAYBE_WHOLE: Final[Schema] = {"type": ["integer", "null"], "format": "int64"}
NUMBER: Final[Schema] = {"type": "number"}
TRUTH: Final[Schema] = {"type": "boolean"}
MILLISECONDS: Final = said(WHOLE, "Milliseconds since 1970.")
MAYBE_MILLISECONDS: Final = said(MAYBE_WHOLE, "Milliseconds since 1970; null if unknown.")
#: How a field beside it is written.
ENCODING: Final[Schema] = {"type": "string", "enum": ["string", "base64"]}
SILENT: Final = said(
    several(STRING), "Names of the brokers that do not answer; what they know is missing or old."
)
DRY_RUN: Final = said(TRUTH, "Whether nothing was changed.")
MORE: Final = said(TRUTH, "Whether there are more behind this page.")
TOTAL: Final = said(WHOLE, "How many there are on all pages.")
CONFIG: Final = said({"type": "object"}, "Every setting of the topic by its dotted name.")

_TOPIC_FACTS: Final = {
    "name": STRING,
    "id": said(STRING, "32 hex digits; never given again."),
    "created_ms": MILLISECONDS,
    "config": CONFIG,
}
#: A topic in a list.
TOPIC_ROW: Final = shape(
    **_TOPIC_FACTS, partitions=said(WHOLE, "How many."), messages=WHOLE, bytes=WHOLE
)
#: A topic that a dry run would make.
TOPIC_PLANNED: Final = shape(**_TOPIC_FACTS, partitions=said(WHOLE, "How many."))
#: What channels hold back from retention.
HELD: Final[Schema] = {
    **shape(
        channel=said(STRING, "The channel that is behind the others."),
        offset=said(WHOLE, "The first offset that it has not settled."),
        bytes=said(WHOLE, "Bytes that retention would remove otherwise."),
        since_ms=said(MILLISECONDS, "When the oldest of them were published."),
        refusing=said(TRUTH, "Whether producers are refused for it."),
    ),
    "type": ["object", "null"],
    "description": "What channels hold back from retention; null if nothing.",
}
PARTITION: Final = shape(
    partition=WHOLE,
    start=said(MAYBE_WHOLE, "First offset that can be read."),
    end=said(MAYBE_WHOLE, "The offset behind the last one that can be read."),
    bytes=MAYBE_WHOLE,
    oldest_ms=MAYBE_MILLISECONDS,
    newest_ms=MAYBE_MILLISECONDS,
    dropped=said(WHOLE, "Records that a full memory topic let go."),
    delayed=said(MAYBE_WHOLE, "Messages that are not due yet."),
    overdue=said(MAYBE_WHOLE, "Messages that are due, and not out."),
    late_ms=said(
        MAYBE_WHOLE,
        "How late 99 of 100 that came since the start were at most; null if none did.",
    ),
    held=HELD,
    state={"type": "string", "enum": ["online", "offline"]},
    reason=said(STRING, "Why it is offline."),
    leader=said(STRING, "Name of the broker that leads it."),
    leader_id=WHOLE,
)
#: One topic with its partitions.
TOPIC: Final = shape(
    **_TOPIC_FACTS,
    messages=WHOLE,
    bytes=WHOLE,
    delayed=said(WHOLE, "Messages that are not due yet."),
    partitions=several(PARTITION),
    silent=SILENT,
)
#: What goes, or would go.
PLAN: Final = shape(
    topic=STRING,
    partitions=several(
        shape(
            partition=WHOLE,
            start=WHOLE,
            new_start=WHOLE,
            messages=WHOLE,
            bytes=WHOLE,
            oldest_ms=MAYBE_MILLISECONDS,
        )
    ),
    messages=WHOLE,
    bytes=WHOLE,
    silent=SILENT,
    dry_run=DRY_RUN,
)
#: What is to be cleaned of a topic that is compacted.
COMPACTION: Final = shape(
    topic=STRING,
    partitions=several(
        shape(
            partition=WHOLE,
            bytes=said(WHOLE, "Bytes of its files, the newest one too."),
            dirty=said(WHOLE, "Bytes of them that were never cleaned."),
            cleaned_ms=said(MAYBE_MILLISECONDS, "When it was cleaned last; null if it never was."),
            saved=said(WHOLE, "Bytes that went at cleanings since the broker started."),
        )
    ),
    bytes=WHOLE,
    dirty=WHOLE,
    silent=SILENT,
    dry_run=DRY_RUN,
)
#: What the MetaServer knows of every broker.
_BROKER_KNOWN: Final[dict[str, Schema]] = {
    "id": WHOLE,
    "name": STRING,
    "role": STRING,
    "zone": STRING,
    "host": STRING,
    "port": WHOLE,
    "version": STRING,
    "incarnation": said(WHOLE, "Rises with each of its starts."),
    "started_ms": MILLISECONDS,
    "partitions": said(WHOLE, "How many it leads."),
}
#: What only a broker itself can tell. What its system does not tell is null.
_BROKER_TOLD: Final[dict[str, Schema]] = {
    "pid": WHOLE,
    "topics": WHOLE,
    "connections": WHOLE,
    "slow_clients": said(WHOLE, "Connections that take no more."),
    "bytes": said(WHOLE, "Bytes of its partitions."),
    **dict.fromkeys(("memory", "memory_limit"), MAYBE_WHOLE),
    **dict.fromkeys(("disk_total", "disk_used", "disk_free", "disk_reserve"), MAYBE_WHOLE),
    **dict.fromkeys(("descriptors", "descriptors_limit", "files", "files_limit"), MAYBE_WHOLE),
    "reactor_lag_ms": said({"type": ["number", "null"]}, "How late its timers are."),
}
#: One broker, told by itself.
BROKER: Final = shape(**_BROKER_KNOWN, **_BROKER_TOLD)
#: A broker in a list; what a silent one alone could tell is missing.
BROKER_ROW: Final[Schema] = {
    "type": "object",
    "properties": {
        **_BROKER_KNOWN,
        "draining": said(TRUTH, "Whether it gets no new partitions."),
        "state": {"type": "string", "enum": ["ready", "draining", "silent", "refusing"]},
        "reason": said(MAYBE_STRING, "Why it is not ready."),
        **_BROKER_TOLD,
    },
    "required": [*_BROKER_KNOWN, "draining", "state", "reason"],
    "additionalProperties": False,
}
_TRAFFIC: Final = ("messages_in", "messages_out", "bytes_in", "bytes_out")
#: A connection of a client.
CLIENT: Final = shape(
    broker=said(STRING, "Name of the broker that it is connected to."),
    broker_id=WHOLE,
    id=said(WHOLE, "Number of the connection at that broker."),
    client_id=said(STRING, "What the client calls itself."),
    address=STRING,
    agent=said(STRING, "Its software and version."),
    protocol=STRING,
    user=STRING,
    since_ms=MILLISECONDS,
    heard_ms=MILLISECONDS,
    counters=shape(**dict.fromkeys(_TRAFFIC, WHOLE)),
    rates=shape(**dict.fromkeys(_TRAFFIC, said(NUMBER, "A second."))),
    buffered=said(WHOLE, "Bytes that it has not taken yet."),
    pending=said(WHOLE, "Bytes of its batches that wait for the disk."),
    waiting=said(WHOLE, "Its FETCH requests that wait for records."),
    slow_since_ms=said(MAYBE_WHOLE, "Since when it takes no more; null when it does."),
)
