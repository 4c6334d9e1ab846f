"""
Every route of the HTTP API, in one table.

Those of operations are made of `tinymq.catalog`; the others, which are no
operations, are written down here in the same shape: the web's own lists and
overviews, messages, health. `tinymq.web.openapi` describes both to programs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal

from attrs import field, frozen

from tinymq.catalog import PUBLIC
from tinymq.catalog.shapes import shape
from tinymq.limits import LATEST_MS
from tinymq.operation import DRY, Operation, Parameter, Role
from tinymq.web.brokers import BROKER_SORTS
from tinymq.web.browsing import MOST_RECORDS, WHERES
from tinymq.web.channels import CHANNEL_SORTS, STATES
from tinymq.web.groups import GROUP_SORTS, GROUP_STATES
from tinymq.web.input import MOST_BROKER, MOST_OFFSET
from tinymq.web.lists import CLIENT_SORTS, MAX_PAGE_SIZE, SORT_FIELDS
from tinymq.web.publishing import MOST_PARTITION
from tinymq.wire.fields import JsonSchema, boolean, choice, integer, optional, text

ROOT: Final = "/api/v1"
Method = Literal["GET", "PUT", "POST", "PATCH", "DELETE"]
#: Methods whose arguments are a JSON body; those of the others are the query.
WITH_BODY: Final = frozenset({"PUT", "POST", "PATCH"})


@frozen(kw_only=True)
class Route:
    """
    One method of one address.

    Attributes:
        name: Of the operation; of others, noun and verb likewise.
        method: The HTTP method.
        path: The whole address; parameters that are a part of it stand in braces.
        role: The least role that may use it.
        text: What it does, in one sentence.
        parameters: What it takes.
        body: What a JSON body holds, where that is not told by the parameters.
        result: What it answers; None for plain text.
        statuses: Of good answers.
        operation: What it carries out; None for what is none.
        cli: The command that does the same; empty if there is none.
    """

    name: str
    method: Method
    path: str
    role: Role = "viewer"
    text: str
    parameters: tuple[Parameter, ...] = ()
    body: JsonSchema | None = None
    result: JsonSchema | None
    statuses: tuple[int, ...] = (200,)
    operation: Operation | None = None
    cli: str = ""
    raw: bool = field(default=False)

    @property
    def changes(self) -> bool:
        """Whether it changes anything."""
        return self.method != "GET"

    @property
    def in_path(self) -> list[Parameter]:
        """The parameters that are a part of the address."""
        return [each for each in self.parameters if f"{{{each.name}}}" in self.path]

    @property
    def in_body(self) -> list[Parameter]:
        """The parameters that stand in a JSON body."""
        if self.method not in WITH_BODY or self.body is not None:
            return []
        return [each for each in self._beside_path() if each is not DRY]

    @property
    def in_query(self) -> list[Parameter]:
        """The parameters that stand in the query."""
        body = self.in_body
        return [each for each in self._beside_path() if each not in body]

    def _beside_path(self) -> Iterator[Parameter]:
        inside = self.in_path
        return (each for each in self.parameters if each not in inside)


def of(operation: Operation) -> Route:
    """
    Make the route of an operation.

    Args:
        operation: A public one.
    """
    assert operation.http is not None
    assert operation.cli is not None
    return Route(
        name=operation.name,
        method=operation.http.method,
        path=ROOT + operation.http.path,
        role=operation.role,
        text=operation.text,
        parameters=operation.parameters,
        result=shape(**operation.result),
        statuses=(200, 201) if "created" in operation.result else (200,),
        operation=operation,
        cli=operation.command,
    )


# --- what is no operation ------------------------------------------------------

_OBJECT: Final[JsonSchema] = {"type": "object"}
_STRING: Final[JsonSchema] = {"type": "string"}
_NUMBER: Final[JsonSchema] = {"type": "integer", "format": "int64"}
_TRUTH: Final[JsonSchema] = {"type": "boolean"}
_NAMES: Final[JsonSchema] = {"type": "array", "items": _STRING}
_ROWS: Final[JsonSchema] = {"type": "array", "items": _OBJECT}


def _fields(**properties: JsonSchema) -> JsonSchema:
    """An object that has these fields, and maybe others."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def _some(name: str, schema: Any, text_: str, default: Any = None) -> Parameter:
    """A parameter that may be left out."""
    return Parameter(name, optional(schema), default=default, text=text_)


_NAME: Final = Parameter("name", text(1024), text="Name of the topic.")
_BROKER: Final = Parameter("broker", integer(0, MOST_BROKER), text="Number of the broker.")
_CLIENT: Final = Parameter(
    "id", integer(0, MOST_OFFSET), text="Number of the client's connection at its broker."
)
_PARTITION: Final = Parameter(
    "partition", integer(0, MOST_PARTITION), text="Number of the partition."
)
_OFFSET: Final = Parameter("offset", integer(0, MOST_OFFSET), text="Offset of the record.")
_PART: Final = _some("partition", integer(0, MOST_PARTITION), "Only this partition.")
_REVERSE: Final = Parameter("reverse", boolean, default=False, text="The largest first.")
_PAGING: Final = (
    _some("page", integer(1, 10**6), "Which page, from 1; one behind the last is the last.", 1),
    _some("page_size", integer(1, MAX_PAGE_SIZE), "Most rows of a page.", 50),
)
_OF_BROKER: Final = _some("broker", integer(0, MOST_BROKER), "Only of the broker of this number.")
_ENVELOPE: Final = {
    "items": _ROWS,
    "page": _NUMBER,
    "page_count": _NUMBER,
    "item_count": _NUMBER,
    "filtered_count": _NUMBER,
    "total_count": _NUMBER,
    "partial": _TRUTH,
    "silent": _NAMES,
}
_BYTES: Final[JsonSchema] = {"type": ["string", "null"]}
_RECORD: Final = {
    "partition": _NUMBER,
    "offset": _NUMBER,
    "offset_text": _STRING,
    "time": _BYTES,
    "key": _BYTES,
    "key_encoding": _STRING,
    "headers": _ROWS,
    "payload": _BYTES,
    "payload_encoding": {"type": "string", "enum": ["string", "base64"]},
    "payload_bytes": _NUMBER,
    "truncated": _TRUTH,
}
_STORED: Final = {
    "partition": _NUMBER,
    "offset": {"type": ["integer", "null"], "description": "Null of a record that waits."},
    "offset_text": _BYTES,
    "time": _BYTES,
    "durable": _TRUTH,
}
_PUBLISHED: Final[JsonSchema] = {
    "type": "object",
    "properties": {
        **_STORED,
        "delayed": {
            "type": "string",
            "description": "Of a record that waits: its place, as TOPIC/PARTITION~ID.",
        },
        "due_ms": {"type": "integer", "description": "Of a record that waits: until when."},
        "unroutable": {
            "type": "boolean",
            "description": "True if it is stored, but no binding of the exchange takes it.",
        },
    },
    "required": list(_STORED),
}
_DELAY: Final = "It waits so long, in milliseconds."
_AT: Final = "It waits until then, in milliseconds since 1970."
_TTL: Final = "How long it lives in channels from when it comes, in milliseconds."


def _moment(description: str, least: int = 0) -> JsonSchema:
    return {
        "type": ["integer", "null"],
        "minimum": least,
        "maximum": LATEST_MS,
        "description": description,
    }


_TO_PUBLISH: Final[JsonSchema] = {
    "type": "object",
    "properties": {
        "payload": {"description": "The value; null publishes a tombstone."},
        "payload_encoding": {
            "type": "string",
            "enum": ["string", "base64", "json"],
            "default": "string",
            "description": "How payload is written; json publishes its text as it stands here.",
        },
        "key": _BYTES,
        "key_encoding": {"type": "string", "enum": ["string", "base64"], "default": "string"},
        "headers": {
            "type": ["object", "array", "null"],
            "description": "An object of strings, or rows of name and value.",
        },
        "partition": {"type": ["integer", "null"], "minimum": 0, "maximum": MOST_PARTITION},
        "delay_ms": _moment(_DELAY),
        "at_ms": _moment(_AT),
        "ttl_ms": _moment(_TTL, 1),
    },
    "required": ["payload"],
    "additionalProperties": False,
}
_TOPIC: Final = f"{ROOT}/topics/{{name}}"
_PAGES: Final = f"{ROOT}/pages"

_OTHERS: Final = (
    Route(
        name="messages.list",
        method="GET",
        path=f"{_TOPIC}/messages",
        text="Look at records, without any effect on those who read them.",
        parameters=(
            _NAME,
            _PART,
            Parameter("start", choice(*WHERES), default="newest", text="Where to begin."),
            Parameter(
                "at",
                text(100),
                default="",
                text="The offset, or the time as ISO 8601 or milliseconds, to begin at.",
            ),
            _some("limit", integer(1, MOST_RECORDS), "Most records.", 50),
        ),
        result=_fields(
            items={"type": "array", "items": _fields(**_RECORD)},
            item_count=_NUMBER,
            scanned=_ROWS,
            note=_STRING,
        ),
        cli="tinymq peek NAME",
    ),
    Route(
        name="messages.publish",
        method="POST",
        path=f"{_TOPIC}/messages",
        role="operator",
        text="Append one record; answered when it is as durable as the topic promises.",
        parameters=(
            _NAME,
            _some("key", text(65_536), "Its key; only with a body that is the value itself."),
            _some("partition", integer(0, MOST_PARTITION), "Likewise, where it goes."),
            _some("delay_ms", integer(0, LATEST_MS), f"Likewise. {_DELAY}"),
            _some("at_ms", integer(0, LATEST_MS), f"Likewise. {_AT}"),
            _some("ttl_ms", integer(1, LATEST_MS), f"Likewise. {_TTL}"),
        ),
        body=_TO_PUBLISH,
        result=_PUBLISHED,
        statuses=(201,),
        raw=True,
        cli="tinymq pub NAME",
    ),
    Route(
        name="messages.info",
        method="GET",
        path=f"{_TOPIC}/partitions/{{partition}}/messages/{{offset}}",
        text="Look at one record, or at a window of its value.",
        parameters=(
            _NAME,
            _PARTITION,
            _OFFSET,
            _some("skip", integer(0, MOST_OFFSET), "Where the window begins, in bytes.", 0),
            _some("length", integer(1, MOST_OFFSET), "How long the window is, in bytes."),
        ),
        result=_fields(topic=_STRING, **_RECORD),
        cli="tinymq peek NAME/PARTITION@OFFSET",
    ),
    Route(
        name="cluster.info",
        method="GET",
        path=f"{ROOT}/cluster",
        text="The figures of the overview: topics, brokers, rates, what is wrong.",
        result=_fields(
            name=_STRING,
            topics=_NUMBER,
            partitions=_NUMBER,
            messages=_NUMBER,
            bytes=_NUMBER,
            rates=_OBJECT,
            brokers=_ROWS,
            offline=_ROWS,
            partial=_TRUTH,
            silent=_NAMES,
        ),
    ),
    Route(
        name="pages.topics",
        method="GET",
        path=f"{_PAGES}/topics",
        text="A page of topics with their rates, in any order, as the dashboard lists them.",
        parameters=(
            Parameter("name", text(1024), default="", text="A part of the name, in any case."),
            Parameter("sort", choice(*SORT_FIELDS), default="name", text="The order."),
            _REVERSE,
            *_PAGING,
            _OF_BROKER,
        ),
        result=_fields(**_ENVELOPE),
    ),
    Route(
        name="pages.topic",
        method="GET",
        path=f"{_PAGES}/topics/{{name}}",
        text="One topic with its rates, its settings beside their defaults, and its partitions.",
        parameters=(_NAME,),
        result=_fields(id=_STRING, name=_STRING, config=_OBJECT, rates=_OBJECT, partitions=_ROWS),
    ),
    Route(
        name="pages.channels",
        method="GET",
        path=f"{_PAGES}/channels",
        text="A page of channels with their rates, in any order, as the dashboard lists them.",
        parameters=(
            Parameter("name", text(1024), default="", text="A part of topic/channel, in any case."),
            Parameter("topic", text(1024), default="", text="Only those of this topic."),
            Parameter("state", choice("", *STATES), default="", text="Only those in this state."),
            Parameter("sort", choice(*CHANNEL_SORTS), default="channel", text="The order."),
            _REVERSE,
            *_PAGING,
        ),
        result=_fields(**_ENVELOPE, states=_OBJECT),
    ),
    Route(
        name="pages.groups",
        method="GET",
        path=f"{_PAGES}/groups",
        text="A page of consumer groups, in any order, as the dashboard lists them.",
        parameters=(
            Parameter("name", text(1024), default="", text="A part of the name, in any case."),
            Parameter("topic", text(1024), default="", text="Only those that read this topic."),
            Parameter(
                "state", choice("", *GROUP_STATES), default="", text="Only those in this state."
            ),
            Parameter("sort", choice(*GROUP_SORTS), default="group", text="The order."),
            _REVERSE,
            *_PAGING,
        ),
        result=_fields(**_ENVELOPE, states=_OBJECT),
    ),
    Route(
        name="pages.brokers",
        method="GET",
        path=f"{_PAGES}/brokers",
        text="Every broker with its rates and limits, as the dashboard lists them.",
        parameters=(
            Parameter("sort", choice("", *BROKER_SORTS), default="", text="The order; else by id."),
            _REVERSE,
        ),
        result=_fields(items=_ROWS, item_count=_NUMBER, partial=_TRUTH, silent=_NAMES),
    ),
    Route(
        name="pages.broker",
        method="GET",
        path=f"{_PAGES}/brokers/{{broker}}",
        text="One broker with its rates and limits.",
        parameters=(_BROKER,),
        result=_fields(id=_NUMBER, name=_STRING, state=_STRING),
    ),
    Route(
        name="pages.clients",
        method="GET",
        path=f"{_PAGES}/clients",
        text="A page of clients, in any order, as the dashboard lists them.",
        parameters=(
            Parameter(
                "name",
                text(1024),
                default="",
                text="A part of client id, address, agent or user, in any case.",
            ),
            _OF_BROKER,
            Parameter("sort", choice(*CLIENT_SORTS), default="slow", text="The order."),
            _REVERSE,
            *_PAGING,
            Parameter(
                "own",
                boolean,
                default=False,
                text="Also the connections of the cluster's own processes.",
            ),
        ),
        result=_fields(**_ENVELOPE, own_count=_NUMBER, slow=_NUMBER),
    ),
    Route(
        name="pages.client",
        method="GET",
        path=f"{_PAGES}/clients/{{broker}}/{{id}}",
        text="One client with its rates.",
        parameters=(_BROKER, _CLIENT),
        result=_fields(broker=_STRING, id=_NUMBER, client_id=_STRING, rates=_OBJECT),
    ),
    Route(
        name="openapi.info",
        method="GET",
        path=f"{ROOT}/openapi.json",
        text="This description, as OpenAPI 3.1.",
        result=_fields(openapi=_STRING, info=_OBJECT, paths=_OBJECT),
    ),
    Route(
        name="health.alive",
        method="GET",
        path="/-/healthy",
        text="Say that the process answers; looks at nothing else.",
        result=None,
    ),
    Route(
        name="health.ready",
        method="GET",
        path="/-/ready",
        text="Say whether records can be published; 503 and the reason if not.",
        result=None,
        cli="tinymq info",
    ),
)

#: Every route by its name.
ROUTES: Final[dict[str, Route]] = {
    route.name: route for route in (*map(of, PUBLIC.values()), *_OTHERS)
}
