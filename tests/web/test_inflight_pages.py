"""The pages of messages in flight: which there are, and deciding about some."""

from __future__ import annotations

import re

import pytest

from tests.web.client import Client
from tests.web.content import lively
from tinymq.web.inflight_pages import Place, groups_of, lease_of, place_of
from tinymq.web.input import BadInput

TIMED_OUT = "orders.created/fulfilment/3/20753545"
FIRST = "orders.created/billing/3/20753548"
SECOND = "orders.created/billing/3/20753551"


@pytest.fixture(name="client")
def make_client() -> Client:
    """Make a client of a lively cluster."""
    return Client(lively())


def test_oldest_is_first_with_its_deadline(client: Client) -> None:
    """Message, client, attempt, age, time left; one that timed out is marked and fixed."""
    reply = client.get("/inflight")
    shown = re.sub(r"\s+", " ", reply.shown)

    assert shown.index("3/20,753,545") < shown.index("3/20,753,548")
    assert "70 messages in the hands of consumers" in shown
    assert "Timed out" in shown
    assert f'value="{TIMED_OUT}" aria-label="Choose orders.created 3/20753545" disabled' in (
        reply.text
    )
    assert f'value="{FIRST}"' in reply.text
    assert 'href="/clients/1/1006"' in reply.text


def test_every_width_says_which_channel(client: Client) -> None:
    """The channel's column goes on phones only, where the channel stands below the message."""
    found = client.get("/inflight").text

    assert '<th scope="col" class="w">Channel</th>' in found
    assert '<small class="nar q"><span class="cut">orders.created</span> ' in found
    assert "nar q" not in client.get("/inflight?topic=orders.created&channel=fulfilment").text


def test_messages_are_filtered(client: Client) -> None:
    """By channel, client, attempt and age; odd input is refused by name."""
    assert "14 messages of orders.created / fulfilment" in re.sub(
        r"\s+", " ", client.get("/inflight?topic=orders.created&channel=fulfilment").shown
    )
    assert "12 messages" in client.get("/inflight?client=billing-7").shown
    assert "No message in flight matches" in client.get("/inflight?attempts=9").shown
    assert "1 message " in client.get("/inflight?older=60s").shown
    assert client.get("/inflight?older=long").status == 400
    assert client.get("/inflight?attempts=0").status == 400


def test_pages_follow_each_other(client: Client) -> None:
    """The next page begins behind this one, and leads back to the oldest."""
    first = client.get("/inflight?client=")
    after = re.findall(r'href="\?after=(\d+)"', first.text)

    assert after == ["40"]
    assert "Oldest" in client.get("/inflight?after=40").shown


def test_empty_says_so(client: Client) -> None:
    """Nothing is in flight: a sentence, not an empty table."""
    client.console.queue.held = []

    assert "Nothing is in flight" in client.get("/inflight").shown


@pytest.mark.parametrize(
    ("act", "button", "verb"),
    [
        ("requeue", "Requeue 2 messages", "requeue"),
        ("finish", "Finish 2 messages", "finish"),
        ("extend", "Extend 2 messages", "touch"),
        ("dead_letter", "Give up 2 messages", "dlq"),
    ],
)
def test_deciding_goes_through_a_plan(client: Client, act: str, button: str, verb: str) -> None:
    """The plan counts what is still in flight and changes nothing; its form decides."""
    chosen = {"row.0": FIRST, "row.1": SECOND, "act": act, "back": "client=billing-7"}
    plan = client.post("/inflight/plan", **chosen, **{"row.2": FIRST.replace("548", "1")})

    assert button in plan.shown
    assert "1 message not in flight any more" in plan.shown
    assert f"tinymq inflight {verb} orders.created/billing/3@20753548 " in plan.shown
    assert client.console.queue.calls == []
    done = client.post("/inflight/settle", **chosen, reason="by hand", delay="30s", extend="2m")
    assert done.headers["location"] == (f"/inflight?client=billing-7&done={act}&count=2&missing=0")
    ((what, topic, name, partition, offsets, did, how),) = client.console.queue.calls
    assert (what, topic, name, partition) == ("settle", "orders.created", "billing", 3)
    assert (offsets, did, how["reason"]) == ([20_753_548, 20_753_551], act, "by hand")
    assert how.get("delay_ms") == (30_000 if act == "requeue" else None)
    assert how.get("extend_ms") == (120_000 if act == "extend" else None)
    assert "2 messages" in client.get(done.headers["location"]).shown


def test_all_that_match_can_be_chosen(client: Client) -> None:
    """All means those of the filter that have not timed out, on all pages."""
    plan = client.post("/inflight/plan", act="requeue", all="yes", back="client=billing-7")

    assert "Requeue 11 messages" in plan.shown
    assert "They lie on 2 partitions" in plan.shown


@pytest.mark.parametrize(
    ("form", "part"),
    [
        ({}, "choose at least one message"),
        ({"row.0": "nonsense"}, "this is not a message in flight"),
        ({"row.0": "a/b/x/1"}, "whole number"),
        ({"row.0": FIRST, "act": "burn"}, "act must be one of"),
    ],
)
def test_odd_choices_are_refused(client: Client, form: dict[str, str], part: str) -> None:
    """Nothing chosen, or something that is no message: 400 with the reason."""
    reply = client.post("/inflight/plan", **form)

    assert reply.status == 400
    assert part in reply.shown


def test_odd_delay_shows_the_plan_again(client: Client) -> None:
    """With a word beside the field; nothing is decided."""
    form = {"row.0": FIRST, "act": "requeue", "delay": "soon"}
    reply = client.post("/inflight/settle", **form)

    assert reply.status == 400
    assert "write a time such as" in reply.shown
    assert 'value="soon"' in reply.text
    assert client.console.queue.calls == []


@pytest.mark.parametrize("path", ["plan", "settle"])
def test_deciding_needs_the_token(client: Client, path: str) -> None:
    """A form of another page decides nothing."""
    body = f"act=finish&row.0={FIRST}".encode()
    kind = {"Content-Type": "application/x-www-form-urlencoded"}

    assert client.call("POST", f"/inflight/{path}", body, kind).status == 403
    assert client.console.queue.calls == []


def test_places_survive_any_name() -> None:
    """Slashes, percent signs and spaces in names are no separators."""
    place = Place("a/b %2F", "c d/é", 3, 2**62)

    assert place_of(place.value) == place
    with pytest.raises(BadInput):
        place_of("a/b/c")


def test_messages_are_put_together_by_partition() -> None:
    """One call decides about all of a partition, each once."""
    places = [Place("t", "c", 0, 5), Place("t", "c", 1, 2), Place("t", "c", 0, 3)]

    assert groups_of([*places, places[0]]) == {("t", "c", 0): [3, 5], ("t", "c", 1): [2]}


@pytest.mark.parametrize(
    ("age", "state", "colour"),
    [(10, "in_flight", "g"), (91, "in_flight", "w"), (96, "in_flight", "b"), (0, "timed_out", "b")],
)
def test_leases_warn_before_they_end(age: int, state: str, colour: str) -> None:
    """Grey, then amber in the last tenth, then red."""
    row = {"since_ms": -9900, "deadline_ms": 100, "lease_ms": 100, "state": state}

    assert lease_of(row, age).colour == colour
    assert lease_of(row, 500).left_ms == 0
