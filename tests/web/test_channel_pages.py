"""The pages of channels: lists, one channel, its messages, and what changes it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from jsonschema import Draft202012Validator

from tests.web.client import Client, Reply
from tests.web.content import HOSTILE, hostile, lively
from tests.web.crowd import FakeCrowd
from tests.web.queues import FakeChannel, work
from tinymq.catalog import PUBLIC
from tinymq.catalog.channels import CHANNEL_ROW
from tinymq.catalog.shapes import shape
from tinymq.channelpolicy import ChannelPolicy
from tinymq.web.channels import (
    CHANNEL_SORTS,
    ChannelQuery,
    clears,
    select_channels,
    sentence,
    trend,
)
from tinymq.web.input import BadInput
from tinymq.web.sheets import length_of
from tinymq.wire.fields import JsonSchema

BASE = "/topics/orders.created/channels/billing"


@pytest.fixture(name="client")
def make_client() -> Client:
    """Make a client of a lively cluster."""
    return Client(lively())


def flat(reply: Reply) -> str:
    """What a person reads, with single spaces."""
    return re.sub(r"\s+", " ", reply.shown)


def names_in(reply: Reply) -> list[str]:
    """The names of the channels in the first table, in order."""
    return re.findall(r'<th scope="row" class="clip"><a[^>]*title="([^"]*)"', reply.text)


# --- lists -------------------------------------------------------------------


@pytest.mark.parametrize("sort", CHANNEL_SORTS)
@pytest.mark.parametrize("reverse", [False, True])
def test_channels_are_sorted_by_every_column(sort: str, reverse: bool) -> None:
    """Each order holds every channel once, also where figures are not known."""
    field = next(one for one in CHANNEL_SORTS if one == sort)
    queue = work()

    found = select_channels(queue.rows, ChannelQuery(sort=field, reverse=reverse))

    assert sorted(row["name"] for row in found.items) == sorted(c.name for c in queue.channels)


def test_worst_channels_can_be_first(client: Client) -> None:
    """By lag the largest leads, by state what is stuck does."""
    by_lag = names_in(client.get("/channels?sort=lag&reverse=true"))
    by_state = names_in(client.get("/channels?sort=state"))

    assert by_lag[0] == "orders.created / billing"
    assert by_state[:2] == ["orders.created / billing", "payments.capture / ledger"]


def test_channels_are_filtered_by_name_and_state(client: Client) -> None:
    """A part of topic or channel in any case, and one state; the counts are those of all."""
    assert names_in(client.get("/channels?name=CREATED/b")) == ["orders.created / billing"]
    found = client.get("/channels?state=no_consumers")
    assert names_in(found) == ["payments.capture / ledger"]
    assert "1 stuck" in found.shown
    assert "No channel matches" in client.get("/channels?name=nothing").shown
    assert client.get("/channels?state=happy").status == 400


def test_lag_is_told_as_four_facts(client: Client) -> None:
    """Messages, time, trend with its sign, and time to clear; never is an answer."""
    shown = flat(client.get("/channels"))

    assert "↗ +4.6 Never 8 Stuck" in shown
    assert "↘ \N{MINUS SIGN}58.0 3 m 26 s 1 Consuming" in shown


def test_unknown_figures_are_dashes() -> None:
    """Before two looks nobody knows a rate, a trend, or when the lag is gone."""
    row = next(each for each in work().rows if each["name"] == "thumbs")

    assert trend(row)[0] == clears(row)[0] == "\N{EN DASH}"
    assert clears({**row, "lag": 0})[0] == "0 s"
    young = {**row, "trend_s": 1.0, "lag_ms": 40, "state": "consuming"}
    assert clears(young) == ("0 s", "It keeps up: what waits is younger than a second")
    assert clears({**young, "lag_ms": 1000})[0] == "Never"


def test_worst_lag_is_that_of_the_channel_beside_it() -> None:
    """The channel whose message is oldest, which need not be the one with the most."""
    console = lively()
    console.crowd = FakeCrowd()
    row = FakeChannel(topic="t", name="many", lag=[50], state="consuming").row
    console.queue.fixed = [
        {**row, "lag_ms": 5000},
        {**row, "name": "few", "lag": 3, "lag_ms": 61_000},
    ]

    assert "Worst lag 1 m 01 s t / few" in flat(Client(console).get("/"))


def test_sentences_begin_as_such_unless_with_a_name() -> None:
    """What a client calls itself is left as it is."""
    slow = "(127.0.0.1:7) takes 5.0 s a message"

    assert sentence({"cause": "slow_consumer", "text": f"a consumer {slow}"}) == (
        f"A consumer {slow}."
    )
    assert sentence({"cause": "slow_consumer", "text": f"billing {slow}"}) == f"billing {slow}."


def test_topic_lists_its_channels(client: Client) -> None:
    """Only its own; one without says how to make one."""
    found = client.get("/topics/orders.created/channels")

    assert len(names_in(found)) == 5
    assert names_in(found)[3:] == ["invoices", "sessionizer"]
    assert "smtp" not in found.shown
    assert "No group reads this topic" in client.get("/topics/empty.topic/channels").shown
    assert "This topic has no channel" in client.get("/topics/clicks.raw/channels").shown
    assert client.get("/topics/nothing/channels").status == 404


def test_silent_broker_is_named_on_lists() -> None:
    """Figures are partial, and the page says whose are missing."""
    console = lively()
    console.queue.silent = ("mq-2",)

    assert "mq-2 did not answer in time" in Client(console).get("/channels").shown


def test_thirty_thousand_channels_are_a_small_page() -> None:
    """Ten thousand topics with three channels each: at most 64 KiB a refresh."""
    console = lively()
    row = FakeChannel(topic="t", name="c", lag=[5], state="consuming").row
    console.queue.fixed = [
        {**row, "topic": f"tenant-{i:05}.orders.created.v1", "name": name, "lag": i % 977}
        for i in range(10_000)
        for name in ("billing", "fulfilment", "search-index")
    ]

    reply = Client(console).get("/channels?sort=lag&reverse=true", HX_Request="true")

    assert "1 to 50 of 30,000" in reply.shown
    assert len(reply.body) < 64 * 1024


def test_lists_are_there_for_programs(client: Client) -> None:
    """The same rows, order and pages as JSON."""
    reply = client.get("/api/v1/pages/channels?sort=lag&reverse=true&page_size=2")
    found = json.loads(reply.body)

    assert [row["name"] for row in found["items"]] == ["billing", "search-index"]
    assert (found["page_count"], found["total_count"], found["states"]["stuck"]) == (4, 7, 1)


# --- one channel -------------------------------------------------------------


def test_channel_says_why_it_stands_where_it_does(client: Client) -> None:
    """The first cause leads, the others follow, and what is ruled out is named."""
    shown = flat(client.get(BASE))

    for part in (
        "billing-7 is slow: 2.1 s a message, the other seven 41 ms.",
        "Partition 3 holds 82 % of the lag",
        "Not paused, 8 consumers subscribed",
        "Plan: kick billing-7…",
        "ordered by key · lease 1 m · after 8 failures to orders.created.billing.dead",
        "642 of 800",
    ):
        assert part in shown
    assert 'href="/clients/1/1006/kick"' in client.get(BASE).text


def test_channel_without_trouble_says_so(client: Client) -> None:
    """An empty channel has no causes."""
    shown = flat(client.get("/topics/mail.outbound/channels/smtp"))

    assert "Nothing waits. Every message is settled." in shown
    assert "Nobody consumes this channel" in shown


def test_paused_channel_says_since_when_and_why(client: Client) -> None:
    """With the way to let it go on."""
    shown = flat(client.get("/topics/media.resize/channels/thumbs"))

    assert "Paused since 13:32:06 UTC, until somebody lets it go on: new codec." in shown
    assert "Resume…" in shown


def test_unknown_channel_is_not_found(client: Client) -> None:
    """Every page of it answers 404."""
    for part in ("", "/messages", "/settings", "/danger", "/pause", "/empty", "/delete"):
        assert client.get(f"/topics/orders.created/channels/nothing{part}").status == 404


def test_peek_shows_where_each_message_stands(client: Client) -> None:
    """State, attempt, due time and a beginning of the body; nothing was changed by it."""
    reply = client.get(f"{BASE}/messages?state=waiting")

    assert "Peeking changes nothing" in reply.shown
    assert "1/20,766,201" in reply.shown
    assert "in 4.0 s" in reply.shown
    assert 'href="/topics/orders.created/messages/1/20766201"' in reply.text
    assert "after=3%2F20766224" in reply.text
    assert client.console.queue.calls == []
    assert client.get(f"{BASE}/messages?state=odd").status == 400


# --- changes -----------------------------------------------------------------


def test_channel_is_made_behind_a_plan(client: Client) -> None:
    """The form shows what would be made; only the second form makes it."""
    form = {"name": "audit", "start": "latest", "config__attempts": "3", "config__lease.ms": "2m"}
    plan = client.post("/topics/orders.created/new-channel", **form)

    assert plan.status == 200
    assert "Plan: nothing has changed yet" in plan.shown
    assert client.console.queue.calls == []
    made = client.post("/topics/orders.created/new-channel", **form, confirm="yes")
    assert made.headers["location"] == "/topics/orders.created/channels/audit?done=created"
    ((what, topic, name, config, start),) = client.console.queue.calls
    assert (what, topic, name, start) == ("create", "orders.created", "audit", "latest")
    assert config == {"attempts": "3", "lease.ms": "2m"}


def test_temporary_channel_begins_at_the_end(client: Client) -> None:
    """Unless another start is given; its page says that it goes by itself."""
    form = {"name": "tail", "temporary": "yes", "start": ""}
    plan = client.post("/topics/orders.created/new-channel", **form)
    assert "Begins at latest" in flat(plan)
    assert "--temporary" in plan.shown

    client.post("/topics/orders.created/new-channel", **form, confirm="yes")

    assert "temporary" in client.get("/topics/orders.created/channels/tail").shown
    assert "tail@laptop-7 temporary of tail" in re.sub(
        r"Idle ", "", flat(client.get("/topics/audit.raw/channels/tail@laptop-7"))
    )


def test_wrong_channel_is_said_beside_its_field(client: Client) -> None:
    """A missing or odd name, an odd setting: the form comes again, with what is wrong."""
    for form, part in (
        ({"name": " "}, "a channel needs a name"),
        ({"name": "a b"}, "is not a name"),
        ({"name": "a", "config__attempts": "none"}, "attempts"),
    ):
        reply = client.post("/topics/orders.created/new-channel", **form)
        assert reply.status == 400
        assert part in reply.shown


def test_settings_are_changed_behind_a_plan(client: Client) -> None:
    """Only what differs is planned; confirmed, it is changed."""
    plan = client.post(f"{BASE}/settings", config__attempts="5", **{"config__lease.ms": "60000"})

    assert "Change 1 setting" in plan.shown
    assert "tinymq channel edit orders.created billing -s attempts=5" in plan.shown
    done = client.post(f"{BASE}/settings", config__attempts="5", confirm="yes")
    assert done.status == 303
    assert client.console.queue.calls == [("alter", "orders.created", "billing", {"attempts": "5"})]
    wrong = client.post(f"{BASE}/settings", config__attempts="many")
    assert wrong.status == 400
    assert "aria-invalid" in wrong.text


def test_empty_setting_is_the_default(client: Client) -> None:
    """Also of a setting that could be none."""
    billing = client.console.queue.find("orders.created", "billing")
    billing.policy = billing.policy.altered({"handler.ms": "none", "dead.letter": "elsewhere"})
    fields = {"config__handler.ms": "", "config__dead.letter": "", "config__attempts": ""}

    client.post(f"{BASE}/settings", **fields, confirm="yes")

    assert billing.policy == ChannelPolicy(order="key")


def test_pause_takes_a_while_and_a_reason(client: Client) -> None:
    """And is taken back by going on."""
    assert "Pause the channel" in client.get(f"{BASE}/pause").shown
    wrong = client.post(f"{BASE}/pause", **{"for": "a while"})
    assert wrong.status == 400
    assert "write a time such as" in wrong.shown
    client.post(f"{BASE}/pause", reason="deploy", **{"for": "30m"})
    client.post(f"{BASE}/resume")

    pause, resume = client.console.queue.calls
    assert pause == ("pause", "orders.created", "billing", 1_795_964_526_000, "deploy", False)
    assert resume[-1] is True


def test_seek_shows_before_and_after(client: Client) -> None:
    """Skipped, replayed, taken away, position by position, with the window of the undo."""
    plan = flat(client.get(f"{BASE}/seek?to=offset&at=9,281,000&partition=3"))

    for part in ("Skipped 15,500", "9,280,735 9,293,447 12,712 0 3", "until 14:42", "--to 9281000"):
        assert part in plan
    assert client.console.queue.calls == []
    wrong = client.post(f"{BASE}/seek", to="latest", typed="other")
    assert "type billing to confirm" in wrong.shown
    assert client.console.queue.calls == []
    done = client.post(f"{BASE}/seek", to="latest", typed="billing")
    assert done.headers["location"] == f"{BASE}?done=moved"
    assert client.console.queue.calls == [("seek", "orders.created", "billing", {"to": "latest"})]


@pytest.mark.parametrize(
    ("query", "part"),
    [
        ("to=offset", "name the offset"),
        ("to=time", "name the time"),
        ("to=nowhere", "say where to begin"),
        ("to=time&at=soon", "at"),
    ],
)
def test_seek_without_a_place_is_asked_again(client: Client, query: str, part: str) -> None:
    """The form comes again, with a word about what is missing."""
    reply = client.get(f"{BASE}/seek?{query}")

    assert reply.status == 400
    assert part in reply.shown
    assert "Plan seek…" in reply.shown


def test_seek_can_be_undone_while_its_window_is_open(client: Client) -> None:
    """The channel says until when, with the button; undone, it is gone."""
    client.post(f"{BASE}/empty", typed="billing")
    assert "Undo until 14:42" in client.get(BASE).shown

    client.post(f"{BASE}/undo")

    assert client.console.queue.calls[-1] == ("undo_seek", "orders.created", "billing")
    assert "Undo until" not in client.get(BASE).shown


def test_delete_needs_the_name(client: Client) -> None:
    """Typed wrongly nothing happens; typed rightly the list of the topic follows."""
    assert client.post(f"{BASE}/delete", typed="").status == 400
    done = client.post(f"{BASE}/delete", typed="billing")

    assert done.headers["location"] == "/topics/orders.created/channels?done=deleted"
    assert client.console.queue.calls == [("delete", "orders.created", "billing")]


def test_plans_hold_the_same_call_for_a_terminal(client: Client) -> None:
    """Each plan has the curl and the command that do it."""
    for part, words in (
        ("/pause", "channels/billing:pause"),
        ("/empty", "tinymq channel purge orders.created billing"),
        ("/delete", "curl -X DELETE"),
        ("/seek?to=earliest", '{"to": "earliest"}'),
    ):
        assert words in client.get(BASE + part).shown


@pytest.mark.parametrize(
    "path",
    ["pause", "resume", "seek", "empty", "delete", "undo", "settings"],
)
def test_changes_need_the_token(client: Client, path: str) -> None:
    """A form of another page changes nothing."""
    body = b"typed=billing&to=latest&confirm=yes"
    reply = client.call(
        "POST", f"{BASE}/{path}", body, {"Content-Type": "application/x-www-form-urlencoded"}
    )

    assert reply.status == 403
    assert client.console.queue.calls == []


@pytest.mark.parametrize(
    ("given", "ms"),
    [("", None), ("90s", 90_000), ("30 m", 1_800_000), ("2H", 7_200_000), ("1d", 86_400_000)],
)
def test_lengths_are_read(given: str, ms: int | None) -> None:
    """A number and a unit; nothing is nothing."""
    assert length_of({"for": given}, "for") == ms


@pytest.mark.parametrize("given", ["5", "m", "-5m", "1.5h", "9999d", "ten m", "5 weeks"])
def test_odd_lengths_are_refused(given: str) -> None:
    """With an example of what would be right."""
    with pytest.raises(BadInput):
        length_of({"for": given}, "for")


PAGES: list[Callable[[str], str]] = [
    lambda name: f"/topics/{name}/channels",
    lambda name: f"/topics/{name}/channels/{name}",
    lambda name: f"/topics/{name}/channels/{name}/messages",
    lambda name: f"/topics/{name}/channels/{name}/settings",
    lambda name: f"/topics/{name}/channels/{name}/pause",
    lambda name: f"/topics/{name}/channels/{name}/seek?to=earliest",
    lambda name: f"/topics/{name}/channels/{name}/delete",
    lambda name: f"/topics/{name}/new-channel?name={name}",
    lambda name: f"/inflight?topic={name}&channel={name}&client={name}",
    lambda name: f"/dead-letters?name={name}",
    lambda name: f"/dead-letters/{name}?text={name}",
]


@pytest.mark.parametrize("path", PAGES)
def test_hostile_names_are_inert(path: Callable[[str], str]) -> None:
    """Names, causes, reasons and errors that are attacks stay text."""
    client = Client(hostile())
    for text in HOSTILE:
        name = "".join(f"%{byte:02X}" for byte in text.encode())
        if "%00" in name and path(name).startswith(("/topics", "/dead-letters/")):
            continue  # nothing has such a name
        reply = client.get(path(name))
        assert reply.status in {200, 400, 404}
        assert "<img" not in reply.text
        assert "<script>alert" not in reply.text
        assert "onmouseover='" not in reply.text


def test_partition_that_is_offline_says_why() -> None:
    """Its figures are not known, and the reason stands in its row."""
    console = lively()
    billing = console.queue.find("orders.created", "billing")
    billing.offline = {2: "mq-3 does not answer: timeout"}
    reply = Client(console).get(BASE)

    assert reply.status == 200
    assert "mq-3 does not answer: timeout" in reply.shown


def misfits(schema: JsonSchema, value: object) -> list[str]:
    """Say where a value is not as a schema says."""
    plain = json.loads(json.dumps(value))
    return [error.message[:200] for error in Draft202012Validator(schema).iter_errors(plain)]


ANSWERS: list[tuple[str, dict[str, object]]] = [
    ("channel.info", {}),
    ("channel.members", {}),
    ("channel.peek", {}),
    ("channel.create", {"name": "new", "config": {"attempts": 3}, "start": 5}),
    ("channel.alter", {"config": {"attempts": 3}}),
    ("channel.pause", {"reason": "why"}),
    ("channel.seek", {"to": "latest"}),
    ("channel.empty", {}),
    ("channel.undo_seek", {}),
    ("channel.delete", {"dry_run": True}),
    ("inflight.settle", {"partition": 3, "offsets": [20_753_548, 1], "act": "finish"}),
]


@pytest.mark.parametrize(("name", "arguments"), ANSWERS)
def test_fake_answers_as_operations_do(name: str, arguments: dict[str, object]) -> None:
    """What the pages are tested with has the fields that the catalog promises."""
    queue = work()
    operation = PUBLIC[name]
    whole = {"topic": "orders.created", "name": "billing", **arguments}
    checked = operation.arguments(whole)
    answer = queue.answer(name, whole if operation.changes else checked)

    assert misfits(shape(**operation.result), answer) == []


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("inflight.list", {}),
        ("message.life", {"topic": "orders.created", "partition": 3, "offset": 5}),
    ],
)
def test_fake_lists_as_operations_do(name: str, arguments: dict[str, object]) -> None:
    """Likewise for what is not about one channel."""
    operation = PUBLIC[name]
    answer = work().answer(name, operation.arguments(arguments))

    assert misfits(shape(**operation.result), answer) == []


def test_fake_rows_are_those_of_the_catalog() -> None:
    """A row of a list has every field that a channel in a list has."""
    for row in work().rows:
        assert misfits(CHANNEL_ROW, row) == []


# --- the curve of the lag ----------------------------------------------------


@pytest.mark.parametrize("span", ["", "?span=10m", "?span=6h"])
def test_channel_has_a_curve_of_its_lag(client: Client, span: str) -> None:
    """Drawn wide and narrow without any script, in words, and as a table."""
    reply = client.get(BASE + span)

    assert reply.text.count('<svg class="chart ') == 2
    assert 'aria-label="Lag now: messages ' in reply.text
    assert "As a table" in reply.shown
    assert "Collecting" not in reply.shown
    current = "6h" if "6h" in span else "10m"
    assert f'<a href="?span={current}" aria-current="true">' in reply.text
    assert ("Last 6 hours" if "6h" in span else "Last 10 minutes") in reply.shown


def test_channel_says_that_its_curve_is_not_known_yet() -> None:
    """Until there were two looks there is no picture."""
    console = lively()
    console.queue.looked = False
    reply = Client(console).get(BASE)

    assert '<svg class="chart ' not in reply.text
    assert "Collecting" in reply.shown
