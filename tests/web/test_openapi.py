"""The description of the API for programs and for people."""

from __future__ import annotations

import json

from openapi_spec_validator import OpenAPIV31SpecValidator

from tests.web.client import Client
from tests.web.content import lively
from tinymq.catalog import PUBLIC
from tinymq.web.openapi import document
from tinymq.web.routes import ROOT, ROUTES
from tinymq.web.serving import Serving


def test_it_is_valid() -> None:
    """The document is OpenAPI 3.1."""
    reply = Client(lively()).get(f"{ROOT}/openapi.json")
    found = json.loads(reply.body)
    assert found == json.loads(json.dumps(document()))
    assert list(OpenAPIV31SpecValidator(found).iter_errors()) == []


def test_it_has_exactly_the_routes_that_are_served() -> None:
    """Whatever is served is told, and nothing else is."""
    served = {
        (rule.rule.replace("<", "{").replace(">", "}"), method.lower())
        for rule in Serving.app.url_map.iter_rules()
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    }
    told = {(path, method) for path, each in document()["paths"].items() for method in each}
    assert served == told
    assert len(told) == len(ROUTES)


def test_each_operation_is_told_as_the_table_has_it() -> None:
    """Parameters, role and command of each operation are those of the table."""
    for operation in PUBLIC.values():
        route = ROUTES[operation.name]
        told = document()["paths"][route.path][route.method.lower()]
        body = told.get("requestBody", {}).get("content", {}).get("application/json", {})
        names = {each["name"] for each in told["parameters"]}
        names |= set(body.get("schema", {}).get("properties", ()))
        assert names == {each.name for each in operation.parameters}
        assert told["x-role"] == operation.role
        assert told["x-cli"].startswith(" ".join(("tinymq", *(operation.cli or ()))))
        assert route.method != "GET" or not operation.changes
        assert operation.changes or route.method in {"GET", "POST"}
        needed = {each["name"] for each in told["parameters"] if each["required"]}
        needed |= set(body.get("schema", {}).get("required", ()))
        by_path = {each.name for each in route.in_path}
        assert needed == by_path | {each.name for each in operation.parameters if each.required}
