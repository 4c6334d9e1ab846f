"""The API beside the operations: lists, messages, publishing and health."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.web.client import Client
from tests.web.content import lively
from tests.web.fakes import NOW, FakeConsole, FakePartition, FakeTopic
from tinymq.stats import TopicRow
from tinymq.web.config import SiteConfig
from tinymq.web.port import Times

MESSAGES = "/api/v1/topics/orders.created/messages"


@pytest.fixture(name="client")
def make_client() -> Client:
    """Make a client of a lively broker."""
    return Client(lively())


def read(client: Client, path: str) -> Any:
    """Get JSON that must be there."""
    reply = client.get(path)
    assert reply.status == 200, reply.text
    assert reply.headers["content-type"] == "application/json"
    return json.loads(reply.body)


def test_healthy_and_ready(client: Client) -> None:
    """A working broker is both, in plain text."""
    assert (client.get("/-/healthy").status, client.get("/-/healthy").text) == (200, "healthy\n")
    assert (client.get("/-/ready").status, client.get("/-/ready").text) == (200, "ready\n")


def test_not_ready_says_why(client: Client) -> None:
    """While publishing is refused, ready is 503 with the reason, and healthy stays."""
    client.console.refusing = "free disk space is below the reserve"

    reply = client.get("/-/ready")

    assert (reply.status, reply.headers["retry-after"]) == (503, "5")
    assert reply.text == "not ready: free disk space is below the reserve\n"
    assert client.get("/-/healthy").status == 200


def test_cluster(client: Client) -> None:
    """The overview's figures, for programs."""
    found = read(client, "/api/v1/cluster")

    assert (found["name"], found["topics"], found["partial"]) == ("prod-east", 10, False)
    assert found["brokers"][0]["name"] == "mq-1"


def test_topics_have_an_envelope(client: Client) -> None:
    """Page, counts and rows, sorted and filtered as asked."""
    found = read(client, "/api/v1/pages/topics?name=raw&sort=bytes&reverse=true&page_size=1&page=2")

    assert {key: value for key, value in found.items() if key != "items"} == {
        "page": 2,
        "page_count": 2,
        "item_count": 1,
        "filtered_count": 2,
        "total_count": 10,
        "partial": False,
        "silent": [],
    }
    assert found["items"][0]["name"] == "audit.raw"


def test_ten_thousand_topics_are_listed_fast() -> None:
    """Only the rows of the page are enriched; a page stays small."""
    topics = [FakeTopic(name=f"t.{i:05}", partitions=[FakePartition()]) for i in range(10_000)]
    console = FakeConsole(*topics)
    enriched: list[str] = []

    def note(row: TopicRow) -> TopicRow:
        enriched.append(row.name)
        return row

    console._enriched = note  # type: ignore[method-assign]
    client = Client(console)

    reply = client.get("/api/v1/pages/topics?page=3&page_size=50&sort=messages")

    assert len(enriched) == 50
    assert len(reply.body) < 64 * 1024


def test_topic_and_partitions(client: Client) -> None:
    """Offsets come as numbers and as text, for readers that round."""
    topic = read(client, "/api/v1/pages/topics/orders.created")

    assert topic["config"]["retention.time"] == {"value": "2 d", "default": "7 d"}
    partition = topic["partitions"][3]
    assert (partition["end"], partition["end_text"]) == (20766256, "20766256")


def test_messages_and_message(client: Client) -> None:
    """A list has the beginning of each value; one message has a window of it."""
    found = read(client, f"{MESSAGES}?partition=3&limit=2")
    one = read(client, "/api/v1/topics/orders.created/partitions/3/messages/20766255?length=9")

    assert [item["offset"] for item in found["items"]] == [20766255, 20766254]
    assert [found["scanned"][0][k] for k in ("partition", "first", "end")] == [
        3,
        20766254,
        20766256,
    ]
    assert (one["payload"], one["payload_bytes"], one["truncated"]) == ('{"order_i', 317, True)
    assert one["headers"][2] == {"name": "region", "value": "east-2", "value_encoding": "string"}


def test_bytes_come_as_base64(client: Client) -> None:
    """What is not text is said to be base64, and comes back exactly."""
    one = read(client, "/api/v1/topics/demo.formats/partitions/0/messages/3")

    assert one["payload_encoding"] == "base64"
    assert bytes(range(256)) * 4 == base64.b64decode(one["payload"])
    assert read(client, "/api/v1/topics/demo.formats/partitions/0/messages/5")["payload"] is None


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ({"payload": "é"}, "é".encode()),
        ({"payload": "AP8=", "payload_encoding": "base64"}, b"\x00\xff"),
        ({"payload": None}, None),
        ({"payload": {"n": [1, 2]}, "payload_encoding": "json"}, b'{"n": [1, 2]}'),
    ],
)
def test_publish(client: Client, body: dict[str, object], value: bytes | None) -> None:
    """Text, bytes, JSON and no value; answered with the position."""
    sent = {"key": "k", "headers": {"a": "1"}, "partition": 3, **body}

    reply = client.send("POST", MESSAGES, json.dumps(sent).encode())

    assert reply.status == 201
    assert tuple(json.loads(reply.body)[k] for k in ("partition", "offset", "durable")) == (
        3,
        20766256,
        True,
    )
    expected = ("publish", "orders.created", value, b"k", (("a", b"1"),), 3)
    assert expected == client.console.calls[0]


@pytest.mark.parametrize(
    ("body", "due", "ttl", "due_ms"),
    [
        ({"delay_ms": 5000}, -5000, None, NOW + 5000),
        ({"at_ms": 1_900_000_000_000, "ttl_ms": 9}, 1_900_000_000_000, 9, 1_900_000_000_000),
        ({"at_ms": 0}, 1, None, 1),
    ],
)
def test_publish_later(
    client: Client, body: dict[str, int], due: int, ttl: int | None, due_ms: int
) -> None:
    """A message that waits is answered with its place and its time, as JSON and as it is."""
    sent = {"payload": "x", "partition": 3, **body}
    query = "&".join(f"{name}={value}" for name, value in body.items())
    replies = [
        client.send("POST", MESSAGES, json.dumps(sent).encode()),
        client.call(
            "POST",
            f"{MESSAGES}?partition=3&{query}",
            b"x",
            {"Content-Type": "application/octet-stream"},
        ),
    ]

    for reply in replies:
        told = json.loads(reply.body)
        assert reply.status == 201
        assert (told["delayed"], told["due_ms"]) == ("orders.created/3~17", due_ms)
        assert (told["offset"], told["offset_text"]) == (None, None)
    assert client.console.calls == [("publish at", Times(due, ttl))] * 2


def test_publish_to_nowhere(client: Client) -> None:
    """A message that no binding takes is stored, and the answer says both."""
    told = json.loads(client.send("POST", MESSAGES, b'{"payload":"x","key":"nowhere"}').body)
    page = client.post("/topics/orders.created/publish", value="x", key="nowhere")

    assert (told["unroutable"], told["offset"] >= 0) == (True, True)
    assert "no binding of this exchange" in client.get(page.headers["location"]).shown


def test_publish_with_a_time_to_live(client: Client) -> None:
    """No delay is an ordinary message, answered as one."""
    body = b'{"payload":"x","delay_ms":0,"ttl_ms":60000}'
    told = json.loads(client.send("POST", MESSAGES, body).body)

    assert "delayed" not in told
    assert client.console.calls[0] == ("publish at", Times(0, 60_000))
    assert client.console.calls[1][0] == "publish"


def test_json_payload_is_published_verbatim(client: Client) -> None:
    """1.00 and duplicate keys reach the log as they were sent."""
    client.send("POST", MESSAGES, b'{"payload_encoding":"json","payload":{"n":1.00,"n":1e400}}')

    assert client.console.calls[0][2] == b'{"n":1.00,"n":1e400}'


def test_raw_bytes_are_published_as_they_are(client: Client) -> None:
    """An octet stream is the value itself."""
    reply = client.call(
        "POST",
        f"{MESSAGES}?key=k&partition=1",
        b"\x00raw",
        {"Content-Type": "application/octet-stream"},
    )

    assert reply.status == 201
    assert client.console.calls[0][2:] == (b"\x00raw", b"k", (), 1)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"", "payload"),
        (b"{", "body"),
        (b"[]", "body"),
        (b"1", "body"),
        (b"\xff", "body"),
        (b"[" * 100_000, "body"),
        (b"{}", "payload"),
        (b'{"payload":1}', "payload"),
        (b'{"payload":"x","delay_ms":-1}', "delay_ms"),
        (b'{"payload":"x","delay_ms":1.5}', "delay_ms"),
        (b'{"payload":"x","delay_ms":true}', "delay_ms"),
        (b'{"payload":"x","delay_ms":NaN}', "delay_ms"),
        (b'{"payload":"x","at_ms":253402300800000}', "at_ms"),
        (b'{"payload":"x","at_ms":1,"delay_ms":1}', "at_ms"),
        (b'{"payload":"x","ttl_ms":0}', "ttl_ms"),
        (b'{"payload":{}}', "payload"),
        (b'{"payload":"x","delay":300}', "delay"),
        (b'{"payload":"x","value":"y"}', "value"),
        (b'{"payload":"\\ud800"}', "payload"),
        (b'{"payload":"!","payload_encoding":"base64"}', "payload"),
        (b'{"payload":"","payload_encoding":"xml"}', "payload_encoding"),
        (b'{"payload":"","payload_encoding":7}', "payload_encoding"),
        (b'{"payload":"","key":7}', "key"),
        (b'{"payload":"","key":[]}', "key"),
        (b'{"payload":"","headers":7}', "headers"),
        (b'{"payload":"","headers":{"a":1}}', "headers"),
        (b'{"payload":"","headers":{"a":null}}', "headers"),
        (b'{"payload":"","headers":[["a"]]}', "headers"),
        (b'{"payload":"","headers":[7]}', "headers"),
        (b'{"payload":"","headers":{"\\ud800":"x"}}', "headers"),
        (b'{"payload":"","partition":"x"}', "partition"),
        (b'{"payload":"","partition":1.5}', "partition"),
        (b'{"payload":"","partition":true}', "partition"),
        (b'{"payload":"","partition":-1}', "partition"),
        (b'{"payload":"","partition":{}}', "partition"),
        (b'{"payload":"","partition":1e999}', "partition"),
    ],
)
def test_odd_publishes_name_their_field(client: Client, body: bytes, field: str) -> None:
    """Every odd property is 400 with its field, and nothing is published."""
    reply = client.send("POST", MESSAGES, body)

    problem = json.loads(reply.body)
    assert reply.headers["content-type"] == "application/problem+json"
    assert (400, 400, field) == (reply.status, problem["status"], problem["field"])
    assert problem["detail"]
    assert client.console.calls == []


def test_too_many_headers_are_refused(client: Client) -> None:
    """The bound on headers holds before the broker sees them."""
    body = json.dumps({"payload": "", "headers": {str(i): "" for i in range(129)}}).encode()

    assert client.send("POST", MESSAGES, body).status == 400


@pytest.mark.parametrize("size", [2**20 + 1, 10 * 2**20])
def test_long_json_is_413_with_the_limit(client: Client, size: int) -> None:
    """A body over the limit says what the limit is."""
    reply = client.send("POST", MESSAGES, b'{"payload":"' + b"x" * size + b'"}')

    assert reply.status == 413
    assert "1,048,576" in json.loads(reply.body)["detail"]
    assert client.console.calls == []


def test_body_over_every_limit_is_not_kept() -> None:
    """A body longer than the longest value is thrown away as it comes in."""
    client = Client(lively(), SiteConfig(max_form=10))
    body = b"x" * (client_limit := SiteConfig().max_body + 1)

    reply = client.call("POST", MESSAGES, body, {"Content-Type": "application/octet-stream"})

    assert reply.status == 413
    assert f"{client_limit - 1:,}" in json.loads(reply.body)["detail"]


def test_long_json_payload_must_be_a_string(client: Client) -> None:
    """JSON that is cut out token by token is bounded further."""
    body = b'{"payload_encoding":"json","payload":[' + b"1," * 40_000 + b"1]}"

    assert client.send("POST", MESSAGES, body).status == 413


def test_partitions_are_the_brokers_to_choose(client: Client) -> None:
    """Who does not say how many partitions leaves it to the setting of the broker."""
    client.post("/new-topic", name="by-form", partitions="", config="")

    assert client.console.calls == [("create", "by-form", None, {})]


def test_methods_that_do_not_fit_are_405(client: Client) -> None:
    """The answer says which ones do."""
    reply = client.call("DELETE", "/api/v1/topics")

    assert reply.status == 405
    assert "GET" in reply.headers["allow"]


@pytest.mark.parametrize("size", [64, 65, 200])
def test_long_names_work(client: Client, size: int) -> None:
    """Names up to the limit are understood whole."""
    client.send("PUT", f"/api/v1/topics/{'x' * size}", b"{}")
    client.post("/new-topic", name="y" * size, partitions="", config="")

    ((_, made), *_) = client.console.calls
    assert made == {"name": "x" * size, "partitions": None, "config": {}, "dry_run": False}
    assert client.get(f"/topics/{'y' * size}").status == 200


@pytest.mark.parametrize("name", ["x" * 201, "x" * 255, "x" * 256, "x" * 1000, "%C3%A9" * 110])
def test_over_long_names_are_not_found(client: Client, name: str) -> None:
    """There is no such topic, on pages as in the API; never a 500."""
    assert client.get(f"/topics/{name}").status == 404
    assert client.get(f"/api/v1/topics/{name}/messages").status == 404
    assert client.get(f"/api/v1/pages/topics/{name}").status == 404


def test_json_has_no_query_beside_it(client: Client) -> None:
    """What a query says beside a JSON body would be lost, so it is refused."""
    reply = client.send("POST", f"{MESSAGES}?key=k", b'{"payload":"x"}')

    assert (reply.status, json.loads(reply.body)["field"]) == (400, "key")
