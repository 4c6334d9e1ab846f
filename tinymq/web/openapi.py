"""The description of the HTTP API for programs, as OpenAPI 3.1, made of the table of routes."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from tinymq import __version__
from tinymq.catalog import shapes
from tinymq.operation import Parameter
from tinymq.web.routes import ROUTES, Route
from tinymq.wire.fields import JsonSchema

Json = dict[str, Any]

_PROBLEM: Final[Json] = {
    "type": "object",
    "description": "What is wrong (RFC 9457).",
    "properties": {
        "type": {"type": "string", "description": "urn:tinymq: and the name of the error."},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "A sentence for people."},
        "field": {"type": "string", "description": "The argument that is to blame."},
    },
    "required": ["type", "title", "status", "detail"],
}
#: Shapes that have a name of their own in the document.
_NAMED: Final[dict[str, JsonSchema]] = {
    "Topic": shapes.TOPIC,
    "TopicRow": shapes.TOPIC_ROW,
    "TopicPlanned": shapes.TOPIC_PLANNED,
    "Partition": shapes.PARTITION,
    "Plan": shapes.PLAN,
    "Broker": shapes.BROKER,
    "BrokerRow": shapes.BROKER_ROW,
    "Client": shapes.CLIENT,
}
_WORDS: Final = {200: "Done.", 201: "Made."}
_ABOUT: Final = (
    "Administration and messages over HTTP. What changes something takes JSON as "
    "`application/json`, and `?dry_run=true` where it is an operation. Whole numbers are exact "
    "up to 2^63-1. The member `x-role` says which role is needed, `x-cli` which command does "
    "the same."
)


@cache
def document() -> Json:
    """Describe every route."""
    paths: dict[str, Json] = {}
    for route in ROUTES.values():
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "tinymq", "version": __version__, "description": _ABOUT},
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": {
                "Problem": _PROBLEM,
                **{name: _inside(schema) for name, schema in _NAMED.items()},
            },
            "responses": {
                "Problem": {
                    "description": "Refused or failed; nothing was changed by what is refused.",
                    "content": {
                        "application/problem+json": {
                            "schema": {"$ref": "#/components/schemas/Problem"}
                        }
                    },
                }
            },
        },
    }


def _operation(route: Route) -> Json:
    problem = {"$ref": "#/components/responses/Problem"}
    found: Json = {
        "operationId": route.name,
        "summary": route.text,
        "tags": [route.name.partition(".")[0]],
        "parameters": [
            *(_parameter(each, "path") for each in route.in_path),
            *(_parameter(each, "query") for each in route.in_query),
        ],
        "responses": {
            **{str(status): _good(route, status) for status in route.statuses},
            "4XX": problem,
            "5XX": problem,
        },
        "x-role": route.role,
    }
    if route.cli:
        found["x-cli"] = route.cli
    body = _body(route)
    if body:
        found["requestBody"] = body
    return found


def _good(route: Route, status: int) -> Json:
    if route.result is None:
        content: Json = {"text/plain": {"schema": {"type": "string"}}}
    else:
        content = {"application/json": {"schema": _reference(route.result)}}
    return {"description": _WORDS[status], "content": content}


def _parameter(parameter: Parameter, place: str) -> Json:
    schema = _described(parameter)
    if place == "query" and isinstance(schema["type"], list):
        # What is not there is left out, so nothing has to be written as null.
        kinds = [each for each in schema["type"] if each != "null"]
        schema["type"] = kinds[0] if len(kinds) == 1 else kinds
        if schema.get("default", "") is None:
            del schema["default"]
    return {
        "name": parameter.name,
        "in": place,
        "required": place == "path" or parameter.required,
        "description": parameter.text,
        "schema": schema,
    }


def _described(parameter: Parameter) -> Json:
    schema: Json = dict(parameter.check.schema)
    if not parameter.required:
        schema["default"] = parameter.default
    return schema


def _body(route: Route) -> Json:
    if route.body is not None:
        content: Json = {"application/json": {"schema": route.body}}
        if route.raw:
            content["application/octet-stream"] = {}
        return {"required": True, "content": content}
    if not route.in_body:
        return {}
    needed = [each.name for each in route.in_body if each.required]
    schema: Json = {
        "type": "object",
        "properties": {
            each.name: {**_described(each), "description": each.text} for each in route.in_body
        },
        "additionalProperties": False,
    }
    if needed:
        schema["required"] = needed
    required = bool(needed) or route.method == "POST"
    return {"required": required, "content": {"application/json": {"schema": schema}}}


def _reference(schema: JsonSchema) -> Any:
    """Name a shape that has a name, at any depth."""
    for name, shape in _NAMED.items():
        if schema == shape:
            return {"$ref": f"#/components/schemas/{name}"}
    return _inside(schema)


def _inside(schema: JsonSchema) -> Json:
    return {key: _replaced(value) for key, value in schema.items()}


def _replaced(value: Any) -> Any:
    if isinstance(value, dict):
        return _reference(value)
    if isinstance(value, list):
        return [_replaced(each) for each in value]
    return value
