"""The page of transactions that are under way, and aborting one."""

from __future__ import annotations

import re

import pytest

from tests.web.client import Client
from tests.web.content import lively


@pytest.fixture(name="client")
def make_client() -> Client:
    """Make a client of a lively cluster."""
    return Client(lively())


def words(text: str) -> str:
    """Write a text without its line ends."""
    return re.sub(r"\s+", " ", text)


def test_each_says_how_long_it_is_open(client: Client) -> None:
    """With its partitions, its producer, its time-out; one that is open for long stands out."""
    shown = words(client.get("/transactions").shown)

    assert "4 transactions under way" in shown
    assert "checkout-7 checkout-7 2 m 10 s 15 m 48210377 epoch 12" in shown
    assert "orders.created / 6, payments.capture / 1 Open for long Abort…" in shown
    assert "payments.capture / 0-5 Aborting" in shown


def test_they_are_filtered(client: Client) -> None:
    """By state; none is a sentence; silence is told."""
    assert "1 transaction under way" in client.get("/transactions?state=committing").shown
    assert "state must be one of" in client.get("/transactions?state=odd").shown
    client.console.crowd.silent = ["mq-2"]
    assert "mq-2" in client.get("/transactions").shown
    client.console.crowd.transactions = []
    assert "No transaction is under way" in client.get("/transactions").shown
    assert "No transaction matches" in client.get("/transactions?state=open").shown


def test_aborting_goes_through_a_plan(client: Client) -> None:
    """The plan changes nothing; the form asks for the name."""
    plan = words(client.get("/transactions/abort?id=checkout-7").shown)
    assert "Open for 2 m 10 s" in plan
    assert "tinymq transaction abort checkout-7" in plan
    assert client.post("/transactions/abort", id="checkout-7").status == 400
    assert client.console.crowd.calls == []
    done = client.post("/transactions/abort", id="checkout-7", typed="checkout-7")
    assert done.headers["location"] == "/transactions?done=aborted"
    assert client.console.crowd.calls == [("abort", "checkout-7")]
    assert "was aborted" in client.get(done.headers["location"]).shown
    assert client.get("/transactions/abort?id=checkout-7").status == 400


def test_changes_need_the_token(client: Client) -> None:
    """A form of another page aborts nothing."""
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    path = "/transactions/abort"
    assert client.call("POST", path, b"id=checkout-7&typed=checkout-7", kind).status == 403


def test_any_name_can_be_aborted(client: Client) -> None:
    """A transactional id may have slashes."""
    client.console.crowd.transactions[0]["transactional_id"] = "eu/checkout/7"
    reply = client.get("/transactions")
    assert 'href="/transactions/abort?id=eu%2Fcheckout%2F7"' in reply.text
    done = client.post("/transactions/abort", id="eu/checkout/7", typed="eu/checkout/7")
    assert done.status == 303
