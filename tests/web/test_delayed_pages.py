"""The pages of messages that are not due yet: which there are, and deciding about some."""

from __future__ import annotations

import re

import pytest

from tests.web.client import FORM, Client
from tests.web.content import lively
from tests.web.flow import NOW
from tinymq.errors import BrokerSilent
from tinymq.web.delayed_pages import Spot, groups_of, spot_of
from tinymq.web.input import BadInput

FIRST = "orders.created/1~18"
SECOND = "orders.created/2~19"
RETRY = "orders.created/billing/0@20753000"


@pytest.fixture(name="client")
def make_client() -> Client:
    """Make a client of a lively cluster."""
    return Client(lively())


def words(text: str) -> str:
    """Write a text without its line ends."""
    return re.sub(r"\s+", " ", text)


def test_next_is_first_with_its_figures(client: Client) -> None:
    """Tiles, due time, message, why; the one that is late is marked."""
    reply = client.get("/delayed")
    shown = words(reply.shown)

    assert "129 messages not due yet" in shown
    assert "Overdue 1 due already, and not out yet" in shown
    assert "8.0 s of the one that is most overdue" in shown
    assert reply.text.index("3~4") < reply.text.index("0~53")
    assert 'href="/delayed/orders.created/3~4"' in reply.text
    assert 'class="bad">8.0 s ago</time>' in reply.text


def test_histogram_is_a_picture_and_a_table(client: Client) -> None:
    """Bars have their exact number on hover; the table says the same and leads to each."""
    text = client.get("/delayed?topic=orders.created").text

    assert "<title>1 message overdue</title>" in text
    assert 'class="chart due wid"' in text
    assert re.search(
        r'role="img" aria-label="\d+ messages by due time; most, \d+, are due (in|within)', text
    )
    assert f"since={NOW}&amp;until={NOW + 60_000}" in text


@pytest.mark.parametrize(
    ("query", "part"),
    [
        ("topic=mail.outbound", "44 messages of mail.outbound not due yet"),
        ("topic=orders.created&channel=billing", "64 messages of orders.created / billing that"),
        ("schedule=daily-report", "1 message not due yet"),
        ("key=nobody", "No waiting message matches"),
        ("until=0s", "1 message not due yet"),
        ("since=100d", "messages not due yet"),
    ],
)
def test_messages_are_filtered(client: Client, query: str, part: str) -> None:
    """By topic, key, due time, schedule, or a channel's retries."""
    assert part in words(client.get(f"/delayed?{query}").shown)


@pytest.mark.parametrize("query", ["since=soon", "channel=billing", "until=12x"])
def test_odd_filters_are_refused(client: Client, query: str) -> None:
    """With the field that is wrong."""
    assert client.get(f"/delayed?{query}").status == 400


def test_pages_follow_each_other(client: Client) -> None:
    """The next page begins behind this one and keeps the filter."""
    first = client.get("/delayed?topic=orders.created")

    assert "?topic=orders.created&amp;after=40" in first.text
    assert "First" in client.get("/delayed?topic=orders.created&after=40").shown


def test_retries_say_which_attempt(client: Client) -> None:
    """They lead to their message, and cannot be cancelled here."""
    text = client.get("/delayed?topic=orders.created&channel=billing").text

    assert 'href="/topics/orders.created/messages/0/20753000"' in text
    assert "back-off 1" in text
    assert f'value="{RETRY}"' in text
    assert 'value="cancel"' not in text


def test_empty_says_so(client: Client) -> None:
    """Nothing waits: a sentence, and no picture."""
    client.console.flow.waiting = []
    reply = client.get("/delayed")

    assert "Nothing is delayed" in reply.shown
    assert "<figure>" not in reply.text


def test_silence_is_told(client: Client) -> None:
    """A page without the brokers that do not answer says so."""
    client.console.flow.silent = ["mq-2"]

    assert "mq-2" in client.get("/delayed").shown


def test_one_message_is_shown_whole(client: Client) -> None:
    """Due time, why, key, headers, and the value without a changed digit."""
    reply = client.get("/delayed/orders.created/1~18")
    shown = words(reply.shown)

    assert "1249.00" in shown
    assert "region east-2" in shown
    assert "published with a delay or a time" in shown
    assert "tinymq delayed show orders.created/1~18" in reply.shown.replace("'", "")
    assert "7b 22 6f" in client.get("/delayed/orders.created/1~18?as=hex").shown
    assert 'name="row.0" value="orders.created/1~18"' in reply.text


@pytest.mark.parametrize(
    ("place", "status"),
    [("1~99999", 404), ("1", 404), ("x~1", 404), ("0@5", 404), ("1~" + "9" * 30, 404)],
)
def test_what_does_not_wait_is_not_found(client: Client, place: str, status: int) -> None:
    """It came, or was cancelled, or is no place at all."""
    assert client.get(f"/delayed/orders.created/{place}").status == status


@pytest.mark.parametrize(
    ("act", "button", "more"),
    [
        ("now", "Run now: 2 messages", {}),
        ("move", "Reschedule: 2 messages", {"delay_ms": 1_800_000}),
        ("cancel", "Cancel: 2 messages", {}),
    ],
)
def test_deciding_goes_through_a_plan(
    client: Client, act: str, button: str, more: dict[str, int]
) -> None:
    """The plan counts what still waits and changes nothing; its form decides."""
    rows = {"row.0": FIRST, "row.1": SECOND, "act": act, "back": "topic=orders.created"}
    plan = client.post("/delayed/plan", **rows, **{"row.2": "orders.created/1~99999"})

    assert button in plan.shown
    assert "1 message not waiting any more" in plan.shown
    assert f"tinymq delayed {act}" in plan.shown
    assert "there is none: what is done stays" in plan.shown
    assert client.console.flow.calls == []
    done = client.post("/delayed/settle", **rows, when="30m")
    assert done.headers["location"] == (
        f"/delayed?topic=orders.created&done={act}&count=2&missing=0"
    )
    assert client.console.flow.calls == [
        (act, "orders.created", None, 1, [18], more),
        (act, "orders.created", None, 2, [19], more),
    ]
    assert "This cannot be taken back" in client.get(done.headers["location"]).shown


def test_messages_can_be_moved_to_a_time(client: Client) -> None:
    """A time is a time; nothing said shows the plan again."""
    rows = {"row.0": FIRST, "act": "move"}

    client.post("/delayed/settle", **rows, when="2026-12-01T09:00Z")
    ((_, _, _, _, _, how),) = client.console.flow.calls
    assert how == {"due_ms": 1_796_115_600_000}
    for when, part in (("", "say when"), ("soon", "must be a time"), ("5000d", "at most 365")):
        again = client.post("/delayed/settle", **rows, when=when)
        assert again.status == 400
        assert part in again.shown
        assert f'value="{when}"' in again.text
    assert len(client.console.flow.calls) == 1


@pytest.mark.parametrize(("act", "operation"), [("now", "wake"), ("move", "move")])
def test_retries_are_woken_and_delayed(client: Client, act: str, operation: str) -> None:
    """They are the channel's: other operations, by offset."""
    back = "topic=orders.created&channel=billing"
    plan = client.post("/delayed/plan", **{"row.0": RETRY, "act": act, "back": back})
    assert plan.status == 200
    assert "billing" in plan.shown

    client.post("/delayed/settle", **{"row.0": RETRY, "act": act, "back": back, "when": "1m"})
    (call,) = client.console.flow.calls
    assert call[:5] == (operation, "orders.created", "billing", 0, [20_753_000])


def test_all_retries_can_be_chosen(client: Client) -> None:
    """All means those of the channel."""
    back = "topic=orders.created&channel=billing"
    plan = client.post("/delayed/plan", act="now", all="yes", back=back)

    assert "Run now: 64 messages" in plan.shown
    assert client.post("/delayed/plan", act="cancel", all="yes", back=back).status == 400


def test_all_that_match_goes_step_by_step(client: Client) -> None:
    """The plan counts exactly; each step is bounded and says how far it is; it can be stopped."""
    plan = client.post("/delayed/plan", act="now", all="yes", back="topic=orders.created")
    assert "Run now: 85 messages" in plan.shown
    assert "It is about topic orders.created." in plan.shown
    assert "it can be stopped between two steps" in plan.shown
    assert client.console.flow.calls == []

    fields = {"act": "now", "topic": "orders.created", "rate": "40", "so.total": "85"}
    first = client.post("/delayed/apply", **fields)
    shown = words(first.shown)
    assert "Done 40 of 85 due now, in 1 step" in shown
    assert "Stop" in shown
    fields = dict(re.findall(r'type="hidden" name="([a-z.]+)" value="([^"]*)"', first.text))
    second = client.post("/delayed/apply", **{k: v for k, v in fields.items() if k != "token"})
    assert "Done 80 of 85 due now, in 2 steps" in words(second.shown)
    assert [call[3] for call in client.console.flow.calls] == [40, 40]


def test_one_step_that_does_all_leads_back(client: Client) -> None:
    """Moved by a length: every step means the same time."""
    done = client.post("/delayed/apply", act="move", topic="mail.outbound", when="10m")

    assert done.headers["location"].startswith("/delayed?topic=mail.outbound&done=move&count=44")
    assert {call[4:] for call in client.console.flow.calls} == {(NOW + 600_000, None)}


@pytest.mark.parametrize("when", ["1s", "10m", "2d", "300d"])
def test_nothing_is_moved_twice(client: Client, when: str) -> None:
    """Moved messages still match: they are not met again, neither before nor behind."""
    form = {"act": "move", "topic": "mail.outbound", "when": when, "rate": "7"}
    reply = client.post("/delayed/apply", **form)
    while "Going on" in reply.shown:
        form = dict(re.findall(r'type="hidden" name="([a-z.]+)" value="([^"]*)"', reply.text))
        reply = client.post("/delayed/apply", **form)

    assert "Done 44 " in words(reply.shown)
    due = {row["due_ms"] for row in client.console.flow.waiting if row["topic"] == "mail.outbound"}
    assert len(due) == 1


@pytest.mark.parametrize(("when", "part"), [("", "say when"), ("soon", "must be a time")])
def test_odd_time_for_all_shows_the_plan_again(client: Client, when: str, part: str) -> None:
    """As it was filled in; nothing is moved."""
    form = {"act": "move", "topic": "mail.outbound", "since": "1h", "when": when}
    reply = client.post("/delayed/apply", **form)

    assert reply.status == 400
    assert part in reply.shown
    assert f'value="{when}"' in reply.text
    assert "due from 1h" in reply.shown
    assert client.console.flow.calls == []


def test_cancelling_all_asks_for_the_name(client: Client) -> None:
    """Somebody types the topic; else nothing is done."""
    plan = client.post("/delayed/plan", act="cancel", all="yes", back="topic=mail.outbound")
    assert "to confirm" in plan.shown

    form = {"act": "cancel", "topic": "mail.outbound"}
    assert client.post("/delayed/apply", **form).status == 400
    assert client.console.flow.calls == []
    assert client.post("/delayed/apply", **form, typed="mail.outbound").status == 303


def test_all_needs_a_topic(client: Client) -> None:
    """Without one, nothing is decided about all that match."""
    assert "filter by one topic first" in client.post("/delayed/plan", act="now", all="yes").shown


@pytest.mark.parametrize("path", ["plan", "settle", "apply"])
def test_deciding_needs_the_token(client: Client, path: str) -> None:
    """A form of another page decides nothing."""
    body = f"act=cancel&row.0={FIRST}&topic=orders.created&typed=orders.created".encode()

    assert client.call("POST", f"/delayed/{path}", body, {"Content-Type": FORM}).status == 403
    assert client.console.flow.calls == []


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("/topics/orders.created", 'href="/delayed?topic=orders.created">85 delayed'),
        ("/topics/orders.created/channels/billing", "?topic=orders.created&amp;channel=billing"),
        ("/", "129 delayed"),
    ],
)
def test_other_pages_lead_here(client: Client, path: str, part: str) -> None:
    """Topics, channels and the overview say how many are delayed."""
    assert part in client.get(path).text


def test_search_finds_a_delay_id(client: Client) -> None:
    """As the command line and logs write it."""
    assert client.get(f"/find?q={FIRST}").headers["location"] == f"/delayed/{FIRST}"


def test_pages_do_without_what_is_not_known(client: Client) -> None:
    """Topic, channel and overview stand when nobody can tell what waits."""
    client.console.flow.failure = BrokerSilent("mq-2 does not answer")

    for path in ("/", "/topics/orders.created", "/topics/orders.created/channels/billing"):
        assert client.get(path).status == 200


def test_places_survive_any_name() -> None:
    """Slashes, percent signs, tildes and spaces in names are no separators."""
    for spot in (Spot("a/b ~%2F", 3, 2**62), Spot("a@1", 0, 7, "c d/é~")):
        assert spot_of(spot.value) == spot
    for odd in ("a/b", "a/b/c/0~1", "0~1", "a/c/0~1", "a/0@1", "/0~1"):
        with pytest.raises(BadInput):
            spot_of(odd)


def test_messages_are_put_together_by_partition() -> None:
    """One call decides about all of a partition, each once."""
    spots = [Spot("t", 0, 5), Spot("t", 1, 2), Spot("t", 0, 3), Spot("t", 0, 3, "c")]

    assert groups_of([*spots, spots[0]]) == {
        ("t", "", 0): [3, 5],
        ("t", "", 1): [2],
        ("t", "c", 0): [3],
    }
