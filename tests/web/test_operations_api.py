"""The operations over HTTP, with a real broker behind them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
from jsonschema import Draft202012Validator

from tests.fakes.broker import BrokerFixture
from tests.fakes.channels import FakeChannels
from tests.web.client import Client, Reply
from tests.web.content import lively
from tinymq.caller import Caller
from tinymq.console import BrokerConsole
from tinymq.errors import ShuttingDown
from tinymq.operation import ROLES, Role
from tinymq.web.config import SiteConfig
from tinymq.web.openapi import document
from tinymq.web.routes import ROUTES, Route

TOPICS = "/api/v1/topics"


@pytest.fixture
def fixture(tmp_path: Path) -> BrokerFixture:
    """Return a broker with a topic of three records."""
    fixture = BrokerFixture(tmp_path / "data")
    fixture.topic("orders", storage="memory", partitions=2)
    fixture.produce(b"a", b"b", b"c", topic="orders")
    return fixture


@pytest.fixture
def client(fixture: BrokerFixture) -> Client:
    """Return a client of its API."""
    return client_of(fixture)


def client_of(fixture: BrokerFixture, config: SiteConfig | None = None) -> Client:
    """A client of a broker's API."""
    broker = fixture
    console = BrokerConsole(broker.broker, broker.operations, broker.node, broker.nodes)
    return Client(cast("Any", console), config)


def told(reply: Reply, status: int = 200) -> Any:
    """The JSON of a good answer."""
    assert reply.status == status, reply.text
    assert reply.headers["content-type"] == "application/json"
    return json.loads(reply.body)


def problem(reply: Reply) -> tuple[int, str, str | None]:
    """Status, kind and field of a refusal."""
    assert reply.headers["content-type"] == "application/problem+json"
    found = json.loads(reply.body)
    assert found["status"] == reply.status
    assert found["detail"]
    return reply.status, found["type"].removeprefix("urn:tinymq:"), found.get("field")


class TestTopics:
    def test_life(self, fixture: BrokerFixture, client: Client) -> None:
        """A topic is made, changed, purged, brought back and deleted, each as the wire does it."""
        path, sent = f"{TOPICS}/made", client.send
        made = told(sent("PUT", path, b'{"partitions":2,"config":{"sync":"os"}}'), 201)
        assert (made["created"], made["topic"]["config"]["sync"]) == (True, "os")
        again = told(sent("PUT", path, b'{"partitions":2,"config":{"sync":"os"}}'))
        assert again["created"] is False
        altered = told(sent("PATCH", path, b'{"config":{"sync":null}}'))
        assert altered["changes"] == [["sync", "os", "always"]]
        purged = told(sent("POST", f"{TOPICS}/orders:purge", b'{"before":2,"partition":0}'))
        assert (purged["plan"]["messages"], purged["undo_until_ms"] > 0) == (2, True)
        undone = told(sent("POST", f"{TOPICS}/orders:undo_purge", b"{}"))
        assert undone["topic"]["messages"] == 3
        assert told(client.call("DELETE", path))["plan"]["topic"] == "made"
        assert [each["name"] for each in told(client.get(TOPICS))["topics"]] == ["orders"]
        assert told(client.get(f"{TOPICS}/orders")) == fixture.operate("topic.info", name="orders")

    def test_dry_run(self, fixture: BrokerFixture, client: Client) -> None:
        """A dry run answers with the plan, with 200, and changes nothing."""
        before = fixture.operate("topic.list")
        for method, path, body in (
            ("PUT", "new", b"{}"),
            ("PATCH", "orders", b'{"partitions":3}'),
            ("POST", "orders:purge", b'{"keep":1}'),
            ("DELETE", "orders", b""),
        ):
            found = told(client.send(method, f"{TOPICS}/{path}?dry_run=true", body))
            assert found.get("plan", found)["dry_run"] is True
        assert fixture.operate("topic.list") == before

    def test_list(self, client: Client) -> None:
        """What a list takes stands in the query."""
        client.send("PUT", f"{TOPICS}/audit", b'{"config":{"storage":"memory"}}')
        found = told(client.get(f"{TOPICS}?filter=*&limit=1&after=audit"))
        assert [each["name"] for each in found["topics"]] == ["orders"]
        assert (found["more"], found["total"]) == (False, 2)

    def test_whole_numbers_are_exact(self, client: Client) -> None:
        """The largest number goes in and comes out as it is."""
        path = f"{TOPICS}/orders"
        largest = b'{"config":{"retention.bytes":9007199254740993}}'
        told(client.send("PATCH", path, largest))
        assert b'"retention.bytes":9007199254740993' in client.get(path).body
        told(client.send("POST", f"{path}:purge?before=9223372036854775807", b"{}"))

    def test_identity(self, fixture: BrokerFixture, client: Client) -> None:
        """A topic that was made anew under the name is left alone."""
        other = client.call("DELETE", f"{TOPICS}/orders?id={'0' * 32}")
        assert problem(other) == (404, "UnknownTopicId", None)
        assert fixture.operate("topic.list")["total"] == 1

    @pytest.mark.parametrize(
        ("method", "path", "body", "expected"),
        [
            ("PUT", "x", b'{"partitions":0}', (400, "InvalidRequest", "partitions")),
            ("PUT", "x", b'{"partitions":1.0}', (400, "InvalidRequest", "partitions")),
            ("PUT", "x", b'{"config":[]}', (400, "InvalidRequest", "config")),
            ("PUT", "x", b'{"config":{"no.such":"1"}}', (400, "InvalidRequest", "no.such")),
            ("PUT", "x", b'{"colour":1}', (400, "InvalidRequest", "colour")),
            ("PUT", "x", b'{"name":"y"}', (400, "BadInput", "name")),
            ("PUT", "x?dry_run=true", b'{"dry_run":false}', (400, "BadInput", "dry_run")),
            ("PUT", "x?dry_run=maybe", b"{}", (400, "BadInput", "dry_run")),
            ("PUT", "x?name=y", b"{}", (400, "BadInput", "name")),
            ("PUT", "x", b"[]", (400, "BadInput", "body")),
            ("PUT", "x", b"{", (400, "BadInput", "body")),
            ("PUT", "x", b'{"config":{"a":"\\ud800"}}', (400, "BadInput", "body")),
            ("PUT", "x" * 201, b"{}", (400, "InvalidName", "name")),
            ("PUT", ".x", b"{}", (400, "InvalidName", "name")),
            ("PUT", "orders", b'{"partitions":3}', (409, "TopicExists", "partitions")),
            ("PATCH", "none", b"{}", (404, "UnknownTopic", None)),
            ("DELETE", "none", b"", (404, "UnknownTopic", None)),
            ("POST", "orders:purge", b'{"before":-1}', (400, "InvalidRequest", "before")),
            ("POST", "orders:purge", b'{"before":1,"keep":1}', (400, "InvalidRequest", "before")),
            ("POST", "orders:purge", b'{"partition":7}', (404, "UnknownPartition", "partition")),
            ("POST", "orders:purge?before=x", b"{}", (400, "BadInput", "before")),
            ("POST", "orders:undo_purge", b"{}", (409, "NothingToUndo", None)),
            ("POST", "orders:explode", b"{}", (405, "MethodNotAllowed", None)),
            ("POST", "orders", b"{}", (405, "MethodNotAllowed", None)),
        ],
    )
    def test_refusals(
        self,
        fixture: BrokerFixture,
        client: Client,
        method: str,
        path: str,
        body: bytes,
        expected: tuple[int, str, str | None],
    ) -> None:
        """Each refusal has the status of its error and names the field, and changes nothing."""
        before = fixture.operate("topic.info", name="orders")
        assert problem(client.send(method, f"{TOPICS}/{path}", body)) == expected
        assert fixture.operate("topic.info", name="orders") == before

    @pytest.mark.parametrize("query", ["limit=501", "limit=x", "limit=", "x=1", "dry_run=true"])
    def test_odd_queries(self, client: Client, query: str) -> None:
        """A query that a list does not take is 400."""
        assert problem(client.get(f"{TOPICS}?{query}"))[0] == 400

    def test_later(self, fixture: BrokerFixture, client: Client) -> None:
        """What may succeed later is 503, and says when to come again."""
        fixture.broker.refuse(ShuttingDown("it stops"))
        reply = client.send("PUT", f"{TOPICS}/x", b"{}")
        assert problem(reply) == (503, "ShuttingDown", None)
        assert reply.headers["retry-after"] == "5"


class TestChannels:
    """Channels over HTTP."""

    PATH = f"{TOPICS}/orders/channels/work"

    def test_life(self, fixture: BrokerFixture, client: Client) -> None:
        """A channel is made, changed, paused, moved and removed."""
        fixture.node.channel_host = FakeChannels(fixture.broker)
        path = self.PATH
        body = b'{"config":{"filter":["kind=a b"]},"start":"latest"}'
        dry = told(client.send("PUT", f"{path}?dry_run=true", body))
        assert (dry["created"], dry["dry_run"]) == (True, True)
        made = told(client.send("PUT", path, body), 201)["channel"]
        assert (made["config"]["filter"], made["start"]) == (["kind=a b"], "latest")
        assert told(client.send("PUT", path, b'{"start":"latest"}'))["created"] is False
        changed = told(client.send("PATCH", path, b'{"config":{"filter":null}}'))
        assert changed["changes"] == [["filter", ["kind=a b"], []]]
        paused = told(client.send("POST", f"{path}:pause", b'{"reason":"upgrade"}'))
        assert paused["channel"]["paused"]["reason"] == "upgrade"
        plan = told(client.send("POST", f"{path}:seek", b'{"to":2}'))["plan"]
        assert (plan["skipped"], plan["dry_run"]) == (2, False)
        assert (
            told(client.send("POST", f"{path}:empty?dry_run=true", b"{}"))["plan"]["skipped"] == 1
        )
        assert told(client.send("POST", f"{path}:undo_seek", b"{}"))["undone"] == [0, 1]
        found = told(client.get(path))["channel"]
        assert (found["lag"], found["partitions"][0]["cursor"]) == (3, 0)
        listed = told(client.get("/api/v1/channels?topic=orders&filter=w*"))
        assert [row["name"] for row in listed["channels"]] == ["work"]
        assert told(client.call("DELETE", path))["channel"]["name"] == "work"
        assert problem(client.get(path)) == (404, "UnknownChannel", "name")

    @pytest.mark.parametrize(
        ("method", "path", "body", "expected"),
        [
            ("PUT", "", b'{"config":{"attempts":0}}', (400, "InvalidRequest", "attempts")),
            ("PUT", "", b'{"config":{"no.such":1}}', (400, "InvalidRequest", "no.such")),
            ("PUT", "", b'{"start":-1}', (400, "InvalidRequest", "start")),
            ("PUT", "", b'{"start":1}', (409, "ChannelExists", "start")),
            ("PUT", "%20", b"{}", (400, "InvalidName", "name")),
            ("POST", ":seek", b"{}", (400, "InvalidRequest", "to")),
            ("POST", ":seek", b'{"to":1,"time_ms":1}', (400, "InvalidRequest", "to")),
            ("POST", ":seek", b'{"to":0,"partition":7}', (404, "UnknownPartition", "partition")),
            ("POST", ":undo_seek", b"{}", (409, "NothingToUndo", None)),
            ("POST", ":pause", b'{"until_ms":1}', (400, "InvalidRequest", "until_ms")),
            ("POST", "-none:empty", b"{}", (404, "UnknownChannel", "name")),
        ],
    )
    def test_refusals(
        self,
        fixture: BrokerFixture,
        client: Client,
        method: str,
        path: str,
        body: bytes,
        expected: tuple[int, str, str | None],
    ) -> None:
        """Each refusal has the status of its error and names the field, and changes nothing."""
        fixture.node.channel_host = FakeChannels(fixture.broker)
        fixture.meta.create_channel("orders", "work")
        before = fixture.operate("channel.list")
        assert problem(client.send(method, f"{self.PATH}{path}", body)) == expected
        assert fixture.operate("channel.list") == before


class TestOthers:
    def test_brokers_and_clients(self, fixture: BrokerFixture, client: Client) -> None:
        """Brokers and clients are listed, described, drained and sent away."""
        fixture.connect()
        (broker,) = told(client.get("/api/v1/brokers"))["brokers"]
        path = f"/api/v1/brokers/{broker['name']}"
        assert told(client.get(path))["ready"] is True
        assert told(client.get(f"/api/v1/brokers/{broker['id']}"))["broker"]["id"] == broker["id"]
        drained = told(client.send("POST", f"{path}:drain?dry_run=true", b"{}"))
        assert (drained["draining"], drained["dry_run"]) == (True, True)
        (found,) = told(client.get("/api/v1/clients"))["clients"]
        one = f"/api/v1/clients/{found['broker']}/{found['id']}"
        assert told(client.get(one))["client"]["id"] == found["id"]
        kicked = told(client.send("POST", f"{one}:kick", b'{"reason":"too loud"}'))
        assert (kicked["client"]["id"], kicked["dry_run"]) == (found["id"], False)
        assert problem(client.get(one)) == (404, "UnknownClient", "client")
        assert problem(client.get("/api/v1/clients/1/x")) == (400, "BadInput", "id")
        assert problem(client.get("/api/v1/brokers/none")) == (404, "UnknownBroker", "broker")

    def test_changes(self, fixture: BrokerFixture, client: Client) -> None:
        """Changes since a revision are told."""
        revision = told(client.get("/api/v1/cluster/changes"))["revision"]
        fixture.topic("new", storage="memory")
        found = told(client.get(f"/api/v1/cluster/changes?revision={revision}&wait_ms=0"))
        assert found["changes"] == [{"what": "topic", "name": "new", "change": "made"}]

    def test_lookup(self, client: Client) -> None:
        """Lookup mode is asked likewise."""
        assert told(client.get("/api/v1/lookup/topics")) == {"topics": [], "more": False}
        assert told(client.get("/api/v1/lookup/topics/t")) == {"nodes": []}


def filled(route: Route) -> str:
    """An address of a route, with an argument that nothing takes."""
    path = route.path
    for each in route.in_path:
        path = path.replace(f"{{{each.name}}}", "1")
    return path + "?%3F=1"


CASES = [
    pytest.param(route, role, id=f"{route.name}-{role}")
    for route in ROUTES.values()
    for role in ROLES
]


@pytest.mark.parametrize(("route", "role"), CASES)
def test_roles(route: Route, role: Role) -> None:
    """Over HTTP each route is refused or let in as its row of the table says."""
    client = Client(lively(), SiteConfig(caller=lambda request: Caller(role=role)))
    reply = client.send(route.method, filled(route), b"{}")
    refused = ROLES.index(role) < ROLES.index(route.role)
    assert (reply.status == 403) == refused
    if refused:
        assert problem(reply)[1] == "Forbidden"
        assert f"needs the role {route.role}" in reply.text
    assert client.console.calls == []


@pytest.mark.parametrize(
    "route", [each for each in ROUTES.values() if each.changes], ids=lambda each: each.name
)
def test_changes_from_foreign_pages_are_refused(route: Route) -> None:
    """Whatever changes something is refused when a page of another site asks for it."""
    client = Client(lively())
    path = filled(route).partition("?")[0]
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        reply = client.send(route.method, path, b"{}", **headers)
        assert problem(reply) == (403, "Refused", None)
    assert client.console.calls == []


def test_results_are_those_of_the_document(fixture: BrokerFixture, client: Client) -> None:
    """Answers have the shape that OpenAPI tells, with its references."""
    fixture.connect()
    whole = document()
    for name, path in (
        ("topic.info", f"{TOPICS}/orders"),
        ("topic.list", TOPICS),
        ("broker.list", "/api/v1/brokers"),
        ("client.list", "/api/v1/clients"),
        ("cluster.info", "/api/v1/cluster"),
        ("pages.topics", "/api/v1/pages/topics"),
        ("pages.topic", "/api/v1/pages/topics/orders"),
        ("pages.brokers", "/api/v1/pages/brokers"),
        ("pages.clients", "/api/v1/pages/clients"),
        ("messages.list", f"{TOPICS}/orders/messages"),
        ("messages.info", f"{TOPICS}/orders/partitions/0/messages/1"),
        ("openapi.info", "/api/v1/openapi.json"),
    ):
        answers = whole["paths"][ROUTES[name].path]["get"]["responses"]
        schema = answers["200"]["content"]["application/json"]["schema"]
        validator = Draft202012Validator({**schema, "components": whole["components"]})
        validator.validate(told(client.get(path)))
