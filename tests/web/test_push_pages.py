"""The pages of push endpoints: how each goes, and setting one."""

from __future__ import annotations

import re

import pytest

from tests.web.client import Client
from tests.web.content import lively

SMTP = "/topics/mail.outbound/channels/smtp/push"
BILLING = "/topics/orders.created/channels/billing/push"


@pytest.fixture(name="client")
def make_client() -> Client:
    """Make a client of a lively cluster."""
    return Client(lively())


def words(text: str) -> str:
    """Write a text without its line ends."""
    return re.sub(r"\s+", " ", text)


def test_list_says_how_each_goes(client: Client) -> None:
    """Address, rates, last answer, latency, and why one takes nothing."""
    shown = words(client.get("/push").shown)

    assert "fulfilment orders.created https://wms.example/hooks/tinymq 3 12.4 0.0 12 200" in shown
    assert "310 503 38 ms 2.9 s 3 d Failing" in shown
    assert "mail.outbound / smtp : 20 failures in a row" in shown
    assert "1 of 1" in client.get("/push?topic=mail.outbound").shown
    assert "No push endpoint matches" in client.get("/push?topic=zz").shown
    client.console.flow.endpoints = []
    assert "Nothing is pushed" in client.get("/push").shown


def test_one_says_its_state_and_why(client: Client) -> None:
    """State, since when, reason, figures, and what it is set to; no secret."""
    shown = words(client.get(SMTP).shown)

    assert "paused for 21 m" in shown
    assert "20 failures in a row, the last: connection refused" in shown
    assert "128,400 in all" in shown
    assert "X-Tenant" in shown
    assert "whsec_ and base64" in shown
    assert "Next try 12.0 s" in words(
        client.get("/topics/payments.capture/channels/ledger/push").shown
    )
    assert client.get("/topics/orders.created/channels/none/push").status == 404


def test_silence_is_told(client: Client) -> None:
    """A page without a broker that does not answer says so, with its name."""
    client.console.flow.silent = ["mq-2"]

    assert "mq-2" in client.get("/push").shown
    assert "mq-2" in client.get(SMTP).shown


def test_channel_has_a_box(client: Client) -> None:
    """It shows the endpoint, or the way to set one."""
    assert "https://wms.example/hooks/tinymq" in (
        client.get("/topics/orders.created/channels/fulfilment").shown
    )
    assert "Set a push endpoint" in client.get("/topics/orders.created/channels/billing").shown


def test_secret_is_shown_once(client: Client) -> None:
    """In the answer that made it, and never again."""
    reply = client.post(
        BILLING, url="https://a.example/x", concurrency="5", headers="X-A: 1", give_up=""
    )

    assert reply.status == 200
    assert "whsec_bWFkZSB1cA==" in reply.shown
    assert "no-store" in reply.headers["cache-control"]
    assert "whsec_bWFkZSB1cA==" not in client.get(BILLING).shown
    ((what, topic, name, url, secret, more),) = client.console.flow.calls
    assert (what, topic, name, url) == (
        "push.set",
        "orders.created",
        "billing",
        "https://a.example/x",
    )
    assert secret is None
    assert more == {"concurrency": 5, "headers": {"X-A": "1"}}


def test_altering_keeps_the_secret(client: Client) -> None:
    """No secret is made or shown; one that is given is not shown either."""
    done = client.post(SMTP, url="https://a.example/x")
    assert done.headers["location"] == f"{SMTP}?done=altered"
    given = client.post(SMTP, url="https://a.example/x", secret="whsec_c2VjcmV0")
    assert given.status == 303
    assert client.console.flow.calls[-1][4] == "whsec_c2VjcmV0"


@pytest.mark.parametrize(
    ("form", "field", "part"),
    [
        ({"url": ""}, "url", "name the address"),
        ({"url": "http://10.0.0.1/"}, "url", "must begin with https"),
        ({"url": "https://a.example", "concurrency": "x"}, "concurrency", "whole number"),
        ({"url": "https://a.example", "headers": "odd"}, "headers", "one header a line"),
    ],
)
def test_errors_stand_at_their_field(
    client: Client, form: dict[str, str], field: str, part: str
) -> None:
    """The form comes back as it was filled in, but for the secret."""
    reply = client.post(BILLING, **form, secret="whsec_hidden")

    assert reply.status == 400
    assert part in reply.shown
    assert f'aria-describedby="e-{field}"' in reply.text
    assert "whsec_hidden" not in reply.text
    assert client.console.flow.calls == []


def test_test_shows_the_answer(client: Client) -> None:
    """Status, time, and what came back."""
    shown = words(client.post(f"{SMTP}/test").shown)

    assert "The test was answered with 204 in 42 ms. thank you" in shown
    assert client.console.flow.calls == [("push.test", "mail.outbound", "smtp")]
    assert client.get(f"{SMTP}/test").status == 405


@pytest.mark.parametrize("verb", ["pause", "resume", "delete"])
def test_deciding_goes_through_a_plan(client: Client, verb: str) -> None:
    """The plan changes nothing; deleting asks for the channel."""
    plan = client.get(f"{SMTP}/{verb}")
    assert f"tinymq push {'rm' if verb == 'delete' else verb} mail.outbound smtp" in plan.shown
    assert client.console.flow.calls == []

    if verb == "delete":
        assert client.post(f"{SMTP}/{verb}").status == 400
    done = client.post(f"{SMTP}/{verb}", typed="smtp", reason="by hand")
    home = "/push" if verb == "delete" else SMTP
    assert done.headers["location"] == f"{home}?done={verb}"
    reason = ("by hand",) if verb == "pause" else ()
    assert client.console.flow.calls == [(f"push.{verb}", "mail.outbound", "smtp", *reason)]
    assert client.get(done.headers["location"]).status == 200


def test_paused_endpoint_is_on_the_overview(client: Client) -> None:
    """Named, with its reason and a way to it."""
    reply = client.get("/")

    assert "Push of channel smtp of topic mail.outbound is paused" in reply.shown
    assert f'href="{SMTP}"' in reply.text


@pytest.mark.parametrize("path", ["", "/test", "/pause", "/resume", "/delete"])
def test_changes_need_the_token(client: Client, path: str) -> None:
    """A form of another page changes nothing."""
    kind = {"Content-Type": "application/x-www-form-urlencoded"}

    assert client.call("POST", SMTP + path, b"url=https://e.example", kind).status == 403
    assert client.console.flow.calls == []
