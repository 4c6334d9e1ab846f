"""The dashboard's lists for programs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from attrs import evolve

from tests.web.client import Client
from tests.web.content import lively, troubled
from tests.web.fleet import silenced, three
from tinymq.web.routes import ROUTES


@pytest.fixture(name="client")
def make_client() -> Client:
    """Make a client of a lively cluster."""
    return Client(lively())


def read(client: Client, path: str) -> Any:
    """Get JSON that must be there."""
    reply = client.get(path)
    assert reply.status == 200, reply.text
    return json.loads(reply.body)


QUERIES = [
    (route.path, each.name, value)
    for route in ROUTES.values()
    if route.operation is None and route.method == "GET"
    for each in route.in_query
    for value in each.check.schema.get("enum", [each.check.schema.get("minimum", "")])
    if each.name not in {"start", "at"}
]


@pytest.mark.parametrize(("path", "name", "value"), QUERIES)
def test_queries_are_taken_as_they_are_told(
    client: Client, path: str, name: str, value: object
) -> None:
    """Each word that the description offers is taken, and no other."""
    for part, word in {"name": "orders.created", "broker": 1, "id": 1000}.items():
        path = path.replace(f"{{{part}}}", str(word))
    path = path.replace("{partition}", "3").replace("{offset}", "20766255")
    assert client.get(f"{path}?{name}={value}").status == 200
    if isinstance(value, int) or name in {"sort", "reverse"}:
        assert client.get(f"{path}?{name}=nothing").status == 400


def test_brokers_are_told_with_their_state() -> None:
    """By id; a silent one with its last known figures and since when."""
    found = read(Client(troubled()), "/api/v1/pages/brokers")

    assert [(b["id"], b["state"]) for b in found["items"]] == [
        (1, "refusing"),
        (2, "silent"),
        (3, "memory filling"),
    ]
    assert found["items"][1]["silent_since"] == "2026-11-29T14:29:51.000Z"
    assert found["items"][2]["draining"] is True
    assert (found["partial"], found["silent"], found["item_count"]) == (True, ["mq-2"], 3)


def test_brokers_can_be_sorted(client: Client) -> None:
    """As on the page."""
    found = read(client, "/api/v1/pages/brokers?sort=disk&reverse=true")

    assert [b["name"] for b in found["items"]] == ["mq-1", "mq-3", "mq-2"]
    assert client.get("/api/v1/pages/brokers?sort=x").status == 400


def test_figures_that_nobody_knows_are_null() -> None:
    """A broker that was never heard has a name, not zeros."""
    console = lively()
    console.silent = (silenced(evolve(three()[1], id=8, name="mq-8"), 3600),)

    found = read(Client(console), "/api/v1/pages/brokers/8")

    assert (found["name"], found["partitions"], found["state"]) == ("mq-8", None, "silent")


def test_one_broker(client: Client) -> None:
    """Its figures by its id; others are 404."""
    found = read(client, "/api/v1/pages/brokers/2")

    assert (found["name"], found["zone"], found["partitions"]) == ("mq-2", "eu-1b", 13)
    for name in ("9", "mq-2", "-1", "9" * 30, "%20"):
        assert client.get(f"/api/v1/pages/brokers/{name}").status == 404


def test_clients_have_an_envelope() -> None:
    """Page, counts, who is slow, and whose clients are missing."""
    found = read(Client(troubled()), "/api/v1/pages/clients?page_size=2")

    assert {key: value for key, value in found.items() if key != "items"} == {
        "page": 1,
        "page_count": 22,
        "item_count": 2,
        "filtered_count": 43,
        "total_count": 43,
        "own_count": 0,
        "slow": 2,
        "partial": True,
        "silent": ["mq-2"],
    }
    assert [c["client_id"] for c in found["items"]] == ["billing-1", "archive-1"]


def test_one_client(client: Client) -> None:
    """All that its broker knows of it."""
    found = read(client, "/api/v1/pages/clients/1/1000")

    assert (found["client_id"], found["address"]) == ("billing-1", "10.0.4.20:40000")
    assert found["slow_since"] is None
    assert set(found["rates"]) == {"messages_in", "messages_out", "bytes_in", "bytes_out"}
    assert client.get("/api/v1/pages/clients/1/7").status == 404


def test_topics_tell_their_leaders(client: Client) -> None:
    """Rows have the leader of each partition; topics can be asked for by broker."""
    found = read(client, "/api/v1/pages/topics?broker=3&name=orders")
    assert found["items"][0]["leaders"] == [1, 2, 3, 1, 2, 3, 1, 2]
    assert read(client, "/api/v1/pages/topics?broker=3")["filtered_count"] == 7

    topic = read(client, "/api/v1/pages/topics/orders.created")
    assert topic["partitions"][4]["leader_id"] == 2
    assert topic["partial"] is False
