"""The pages of schedules: when each comes, and deciding about one."""

from __future__ import annotations

import re

import pytest

from tests.web.client import Client
from tests.web.content import lively

GOOD = {"name": "nightly", "topic": "audit.raw", "cron": "0 3 * * *", "value": "go"}


@pytest.fixture(name="client")
def make_client() -> Client:
    """Make a client of a lively cluster."""
    return Client(lively())


def words(text: str) -> str:
    """Write a text without its line ends."""
    return re.sub(r"\s+", " ", text)


def test_each_says_when_it_comes(client: Client) -> None:
    """In words and as it is written, in its zone, with what was missed and why one is silent."""
    shown = words(client.get("/schedules").shown)

    assert "4 schedules" in shown
    assert "Every 10 minutes */10 * * * * Europe/Berlin search.reindex in 7 m 54 s" in shown
    assert "10,412 3 Running" in shown
    assert "old-sweep : mq-3 is silent" in shown


def test_silence_is_told(client: Client) -> None:
    """A page without a broker that does not answer says so, with its name."""
    client.console.flow.silent = ["mq-2"]

    assert "mq-2" in client.get("/schedules").shown
    assert "mq-2" in client.get("/schedules/reindex").shown


def test_schedules_are_filtered(client: Client) -> None:
    """By name and topic; nothing found is a sentence."""
    assert "1 of 1" in client.get("/schedules?name=index").shown
    assert "1 of 1" in client.get("/schedules?topic=audit.raw").shown
    assert "No schedule matches" in client.get("/schedules?name=zz").shown
    client.console.flow.schedules = []
    assert "Make the first schedule" in client.get("/schedules").shown


def test_one_says_its_next_times_and_its_message(client: Client) -> None:
    """Ten times, the value without a changed digit, the waiting message."""
    reply = client.get("/schedules/reindex")
    shown = words(reply.shown)

    assert reply.text.count('<tr><th scope="row"><time') == 10
    assert "1249.00" in shown
    assert "missed runs are counted and left out" in shown
    assert 'href="/delayed?schedule=reindex"' in reply.text
    assert "It is paused." in client.get("/schedules/month-end").shown
    assert "It does not run: mq-3 is silent" in words(client.get("/schedules/old-sweep").shown)
    assert client.get("/schedules/none").status == 404


def test_making_goes_through_a_plan(client: Client) -> None:
    """The plan says the first run and changes nothing; its form makes the schedule."""
    form = {**GOOD, "headers": "a: b\r\nc: d", "catch_up": "once", "zone": "Europe/Berlin"}
    plan = client.post("/new-schedule", **form)
    shown = words(plan.shown)

    assert "First run 14:59:06 in 27 m" in shown
    assert "One run for all that were missed" in shown
    assert client.console.flow.calls == []
    done = client.post("/new-schedule", **form, confirm="yes")
    assert done.headers["location"] == "/schedules/nightly?done=created"
    ((what, name, topic, cron, more),) = client.console.flow.calls
    assert (what, name, topic, cron) == ("schedule.create", "nightly", "audit.raw", "0 3 * * *")
    assert more["headers"] == {"a": "b", "c": "d"}
    assert (more["catch_up"], more["zone"], more["value"]) == ("once", "Europe/Berlin", "go")


@pytest.mark.parametrize(
    ("field", "value", "part"),
    [
        ("name", "", "a schedule needs a name"),
        ("cron", "every day", "cron needs five fields"),
        ("cron", "", "a schedule needs a time"),
        ("topic", "nope", "there is no topic"),
        ("headers", "no colon", "write one header a line"),
        ("catch_up", "maybe", "catch_up must be one of"),
    ],
)
def test_errors_stand_at_their_field(client: Client, field: str, value: str, part: str) -> None:
    """The form comes back as it was filled in."""
    reply = client.post("/new-schedule", **{**GOOD, field: value})

    assert reply.status == (404 if value == "nope" else 400)
    assert part in reply.shown
    assert f'value="{"" if field == "name" else "nightly"}"' in reply.text
    if field != "catch_up":
        assert f'aria-describedby="e-{field}"' in reply.text


@pytest.mark.parametrize("verb", ["pause", "resume", "run", "delete"])
def test_deciding_about_one_goes_through_a_plan(client: Client, verb: str) -> None:
    """The plan changes nothing; the form does; deleting asks for the name."""
    plan = client.get(f"/schedules/reindex/{verb}")
    assert f"tinymq schedule {'rm' if verb == 'delete' else verb} reindex" in plan.shown
    assert client.console.flow.calls == []

    if verb == "delete":
        assert client.post(f"/schedules/reindex/{verb}").status == 400
    done = client.post(f"/schedules/reindex/{verb}", typed="reindex")
    home = "/schedules" if verb == "delete" else "/schedules/reindex"
    assert done.headers["location"] == f"{home}?done={verb}"
    assert client.console.flow.calls == [(f"schedule.{verb}", "reindex")]
    assert client.get(done.headers["location"]).status == 200


def test_changes_need_the_token(client: Client) -> None:
    """A form of another page changes nothing; an unknown verb is no page."""
    kind = {"Content-Type": "application/x-www-form-urlencoded"}

    assert client.call("POST", "/schedules/reindex/pause", b"", kind).status == 403
    assert client.call("POST", "/new-schedule", b"name=a", kind).status == 403
    assert client.get("/schedules/reindex/burn").status == 404
    assert client.console.flow.calls == []
