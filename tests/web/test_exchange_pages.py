"""The pages of exchanges: what goes where, why not, and where a message would go."""

from __future__ import annotations

import re

import pytest

from tests.web.client import Client
from tests.web.content import lively, troubled
from tests.web.flow import binding_row


@pytest.fixture(name="client")
def make_client() -> Client:
    """Make a client of a lively cluster."""
    return Client(lively())


def words(text: str) -> str:
    """Write a text without its line ends."""
    return re.sub(r"\s+", " ", text)


def test_list_and_picture(client: Client) -> None:
    """Kind, bindings, rates, what is unroutable; the picture has links, and a table beside."""
    reply = client.get("/exchanges")
    shown = words(reply.shown)

    assert "orders.in topic 5 251.0 402.5 0 orders.in.unroutable 0 Routing" in shown
    assert "vip rule 2 63.0 12.1 4,120 vip.rest" in shown
    assert "orders.in topic exchange" in shown
    assert '<a class="node" href="/topics/shipping.eu">' in reply.text
    assert 'class="wire dead"' in reply.text
    assert "<td>" in reply.text[reply.text.index("What sends to what") :]


def test_stuck_exchange_says_why() -> None:
    """In the list, on its page and on the overview: the target, the reason, since when."""
    client = Client(troubled())
    assert "by-region cannot go on to shipping.eu : partition 2 is offline, for 6 m 40 s" in words(
        client.get("/exchanges").shown
    )
    assert "Messages wait, none is lost" in client.get("/exchanges/by-region").shown
    overview = words(client.get("/").shown)
    assert "Exchange by-region is stuck 12,480 messages wait: shipping.eu takes nothing" in overview


def test_silence_is_told(client: Client) -> None:
    """A page without a broker that does not answer says so, with its name."""
    client.console.flow.silent = ["mq-2"]

    assert "mq-2" in client.get("/exchanges").shown
    assert "mq-2" in client.get("/exchanges/vip").shown


def test_exchanges_are_filtered(client: Client) -> None:
    """By name; nothing found is a sentence."""
    assert "1 of 1" in client.get("/exchanges?name=region").shown
    assert "No exchange matches" in client.get("/exchanges?name=zz").shown
    client.console.flow.exchanges, client.console.flow.bindings = [], []
    assert "Make the first exchange" in client.get("/exchanges").shown


def test_one_shows_its_bindings(client: Client) -> None:
    """What each takes, in the words of its kind."""
    assert "region and region!=eu" in words(client.get("/exchanges/by-region").shown)
    assert "json.total > 1000.0" in client.get("/exchanges/vip").shown
    assert "audit.raw everything" in words(client.get("/exchanges/alerts").shown)
    assert client.get("/exchanges/none").status == 404


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("orders.in", "f-pattern"),
        ("by-region", "f-conditions"),
        ("vip", "f-rule"),
        ("alerts", "f-target"),
    ],
)
def test_form_asks_for_what_the_kind_needs(client: Client, name: str, field: str) -> None:
    """A fanout asks for the target alone."""
    text = client.get(f"/exchanges/{name}").text
    form = text[text.index('id="bind"') : text.index("What no binding takes</h2>")]
    fields = re.findall(r'id="(f-[a-z]+)"', form)

    assert fields == (["f-target"] if name == "alerts" else ["f-target", field])


def test_its_topic_says_that_it_is_an_exchange(client: Client) -> None:
    """With a way to it; other topics say nothing."""
    client.console.flow.exchanges[0]["name"] = "orders.created"

    assert 'href="/exchanges/orders.created">topic exchange' in (
        client.get("/topics/orders.created").text
    )
    assert 'href="/exchanges/audit.raw"' not in client.get("/topics/audit.raw").text


def test_many_bindings_have_pages(client: Client) -> None:
    """Fifty at a time."""
    more = [binding_row(f"{i:08x}", "alerts", f"t{i}") for i in range(60)]
    client.console.flow.bindings += more

    assert "50 of 63" in client.get("/exchanges/alerts").shown
    assert "13 of 63" in client.get("/exchanges/alerts?after=50").shown


def test_answer_marks_the_way(client: Client) -> None:
    """Final topics, each step, and the drawing; the question stays in the address."""
    reply = client.get("/exchanges/orders.in?ask=yes&key=order.failed.%2A&headers=a%3A+b&value=x")
    shown = words(reply.shown)

    assert "It would go to 3 topics audit.raw mail.outbound webhooks.out" in shown
    assert "orders.in → alerts binding a1b2c3d8" in shown
    assert reply.text.count('class="wire hot"') == 4
    assert reply.text.count('class="node hot"') == 3
    assert 'value="order.failed.*"' in reply.text
    assert client.console.flow.calls == []


def test_unroutable_says_where_it_goes(client: Client) -> None:
    """The way to the dead letters is marked."""
    client.console.flow.bindings = [
        row for row in client.console.flow.bindings if row["exchange"] != "vip"
    ]
    reply = client.get("/exchanges/vip?ask=yes&key=none")

    assert "Unroutable: no binding takes it" in reply.shown
    assert "It would go to vip.rest , and its publisher is told" in words(reply.shown)
    assert 'class="wire dead hot"' in reply.text


def test_odd_question_is_told_in_place(client: Client) -> None:
    """The page stands; the field says what is wrong."""
    reply = client.get("/exchanges/vip?ask=yes&headers=nonsense")

    assert reply.status == 400
    assert "write one header a line" in reply.shown
    assert 'aria-describedby="e-headers"' in reply.text


def test_bindings_are_added(client: Client) -> None:
    """Keys, conditions one a line, and rules, each to the field that is wrong."""
    client.post("/exchanges/orders.in/bindings", target="t", pattern="a.#")
    client.post("/exchanges/by-region/bindings", target="t", conditions="a=b\r\n\r\nc\r\n")
    done = client.post("/exchanges/vip/bindings", target="t", rule="size > 5\r\n&& true")

    assert done.headers["location"] == "/exchanges/vip?done=bound"
    assert client.console.flow.calls == [
        ("binding.add", "orders.in", "t", "a.#", None, None),
        ("binding.add", "by-region", "t", None, ["a=b", "c"], None),
        ("binding.add", "vip", "t", None, None, "size > 5\n&& true"),
    ]


@pytest.mark.parametrize(
    ("form", "field", "part"),
    [
        ({"target": ""}, "target", "name the topic"),
        ({"target": "vip"}, "target", "round in a circle"),
        ({"target": "t", "rule": "("}, "rule", "ends too early"),
    ],
)
def test_wrong_binding_stays_in_the_form(
    client: Client, form: dict[str, str], field: str, part: str
) -> None:
    """With the word beside its field."""
    reply = client.post("/exchanges/vip/bindings", **form)

    assert reply.status == 400
    assert part in reply.shown
    assert f'aria-describedby="e-{field}"' in reply.text


def test_bindings_are_removed_by_a_plan(client: Client) -> None:
    """The plan says what it took and changes nothing."""
    plan = client.get("/exchanges/vip/bindings/d1b2c3d4/delete")
    assert "payments.capture" in plan.shown
    assert "json.total > 1000.0" in plan.shown
    assert client.console.flow.calls == []

    done = client.post("/exchanges/vip/bindings/d1b2c3d4/delete")
    assert done.headers["location"] == "/exchanges/vip?done=unbound"
    assert client.console.flow.calls == [("binding.delete", "vip", "d1b2c3d4")]
    assert client.get("/exchanges/vip/bindings/d1b2c3d4/delete").status == 404


def test_exchanges_are_made_altered_and_deleted(client: Client) -> None:
    """Deleting asks for the name and says what leads here."""
    assert client.get("/new-exchange").status == 200
    assert client.post("/new-exchange", name="", kind="topic").status == 400
    wrong = client.post("/new-exchange", name="a b", kind="direct")
    assert 'aria-describedby="e-name"' in wrong.text
    made = client.post("/new-exchange", name="new", kind="direct", dead_letter="lost")
    assert made.headers["location"] == "/exchanges/new?done=created"
    client.post("/exchanges/new/settings", dead_letter="other")
    plan = client.get("/exchanges/alerts/delete")
    assert "1 binding of another exchange leads here, and would go, too" in plan.shown
    assert "/api/v1/exchanges/alerts?force=true" in plan.shown
    assert "tinymq exchange rm alerts --force" in plan.shown
    assert client.post("/exchanges/alerts/delete").status == 400
    client.post("/exchanges/alerts/delete", typed="alerts")
    assert client.console.flow.calls == [
        ("exchange.create", "new", "direct", "lost"),
        ("exchange.alter", "new", "other"),
        ("exchange.delete", "alerts"),
    ]


@pytest.mark.parametrize(
    "path",
    [
        "/new-exchange",
        "/exchanges/vip/bindings",
        "/exchanges/vip/bindings/d1b2c3d4/delete",
        "/exchanges/vip/settings",
        "/exchanges/vip/delete",
    ],
)
def test_changes_need_the_token(client: Client, path: str) -> None:
    """A form of another page changes nothing."""
    kind = {"Content-Type": "application/x-www-form-urlencoded"}

    assert client.call("POST", path, b"name=a&typed=vip&target=t", kind).status == 403
    assert client.console.flow.calls == []
