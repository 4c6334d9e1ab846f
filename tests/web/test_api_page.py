"""The page of the HTTP API, and the commands to copy on all pages."""

from __future__ import annotations

import json
import re
import shlex
from html import unescape
from urllib.parse import urlsplit

import pytest

from tests.web.client import Client
from tests.web.content import lively
from tinymq.catalog import PUBLIC
from tinymq.web.routes import ROUTES, Route

_COPY = re.compile(r"<(?:code|pre[^>]*)>(curl .*?)</(?:code|pre)>", re.DOTALL)


@pytest.fixture(name="client")
def make_client() -> Client:
    """Make a client of a lively cluster."""
    return Client(lively())


def route_of(method: str, path: str) -> Route:
    """The route that an address belongs to."""
    for route in ROUTES.values():
        parts = re.split(r"\{\w+\}", route.path)
        if route.method == method and re.fullmatch("[^/]+".join(map(re.escape, parts)), path):
            return route
    raise AssertionError(f"nothing answers {method} {path}")


def commands(text: str) -> list[tuple[Route, str, str]]:
    """The curl commands of a page: route, query and body of each."""
    found = []
    for written in _COPY.findall(text):
        words = shlex.split(unescape(written).replace("\\\n", " "))
        method = words[words.index("-X") + 1] if "-X" in words else "GET"
        (address,) = (urlsplit(word) for word in words if word.startswith("http"))
        body = words[words.index("-d") + 1] if "-d" in words else ""
        found.append((route_of(method, address.path), address.query, body))
    return found


def test_every_route_is_listed(client: Client) -> None:
    """The page has each route with a command, and each operation with its verb."""
    reply = client.get("/api")
    assert reply.status == 200
    assert {route.name for route, _, _ in commands(reply.text)} == set(ROUTES)
    for operation in PUBLIC.values():
        assert operation.text in reply.shown
        assert " ".join(("tinymq", *(operation.cli or ()))) in reply.shown
    assert 'href="/api"' in client.get("/").text


def test_commands_are_taken_as_they_stand(client: Client) -> None:
    """Every POST has a body, without which it is refused; numbers and lists stand as such."""
    found = {route.name: (route, body) for route, _, body in commands(client.get("/api").text)}

    assert all(body for route, body in found.values() if route.method == "POST")
    assert found["schedule.run"][1] == "{}"
    assert found["channel.wake"][1] == '{"partition": PARTITION, "offsets": [OFFSETS]}'


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/topics?sort=bytes",
        "/topics/orders.created",
        "/topics/orders.created/messages?partition=3",
        "/topics/orders.created/messages/3/20766255",
        "/topics/orders.created/publish",
        "/topics/orders.created/purge?before=offset&at=7&partition=0",
        "/topics/orders.created/purge?before=time&at=2026-11-29T14:32:06Z",
        "/topics/orders.created/purge",
        "/topics/orders.created/delete",
        "/new-topic",
        "/brokers?sort=disk",
        "/brokers/2",
        "/brokers/2/drain",
        "/brokers/2/undrain",
        "/clients?sort=buffered",
        "/clients/1/1000",
        "/clients/1/1000/kick",
    ],
)
def test_commands_to_copy_are_right(client: Client, path: str) -> None:
    """What a page offers to copy has a route, which takes its query and its body."""
    found = commands(client.get(path).text)
    assert found
    for route, query, body in found:
        if query:
            assert route.in_query, (route.name, query)
        if route.operation is not None and body:
            given = json.loads(body)
            kinds = {each.name: each.check.schema["type"] for each in route.in_path}
            needed = {name: 1 if kind == "integer" else "1" for name, kind in kinds.items()}
            route.operation.arguments({**needed, **given})
