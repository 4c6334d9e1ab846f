"""Pages for people: what they show, and that forms work without a script."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from urllib.parse import quote

import pytest
from typing_extensions import override

from tests.web.client import Client
from tests.web.content import HOSTILE, hostile, lively, troubled
from tests.web.crowd import FakeCrowd
from tests.web.fakes import NOW, FakeConsole, FakePartition, FakeRecord, FakeTopic
from tests.web.flow import FakeFlow
from tests.web.queues import FakeQueue
from tinymq.errors import NotLeader
from tinymq.web.port import MessageView, Times

#: Every letter that a name may have, one name for each, and names that look reserved.
NAMES = [
    *(f"a{c}b" for c in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"),
    *("-", "_", "a..b", "new-topic", "api", "static", "topics", "find", "view", "a.json"),
    *("publish", "purge", "messages", "x.purge", "x.log", "index.html", "con", "nul", "-healthy"),
    "n" * 200,
]
LOOKS = ["", "/partitions", "/messages", "/publish", "/settings", "/danger", "/purge", "/delete"]


@pytest.fixture(name="client")
def make_client() -> Client:
    """Make a client of a lively broker."""
    return Client(lively())


def test_overview_says_the_verdict_first() -> None:
    """A healthy cluster has no problem, and the figures are there."""
    console = lively()
    console.queue, console.flow, console.crowd = FakeQueue([]), FakeFlow(), FakeCrowd()
    shown = Client(console).get("/").shown

    assert "No problems" in shown
    assert "149.0 GB of disk left on mq-1 before publishers are refused" in shown
    assert "301 of 500 GB" in shown


def test_overview_names_problems_with_a_way_to_look() -> None:
    """Refused publishing, silent brokers and offline partitions are each a sentence."""
    reply = Client(troubled()).get("/")

    assert "15 problems" in reply.shown
    assert "Group invoices is stuck" in reply.shown
    assert "mq-1 refuses to publish" in reply.shown
    assert "mq-2 does not answer" in reply.shown
    assert "fdatasync failed: Input/output error" in reply.shown
    assert 'href="/topics/payments.capture/partitions"' in reply.text


def test_overview_of_groups_alone() -> None:
    """Where there are no channels, the group that is furthest behind has a figure all the same."""
    console = lively()
    console.queue = FakeQueue([])
    reply = Client(console).get("/")
    assert "Worst lag" in reply.shown
    assert 'href="/groups/fraud-check" title="Group fraud-check"' in reply.text


def test_overview_of_six_hours(client: Client) -> None:
    """The span is part of the address; another one is refused by name."""
    assert "Last 6 hours" in client.get("/?span=6h").shown
    assert "span must be one of" in client.get("/?span=1y").shown


def test_empty_broker_says_what_to_do() -> None:
    """Nothing is drawn where there is nothing; the first step is one link away."""
    client = Client(FakeConsole())

    assert "There is no topic yet" in client.get("/").shown
    assert 'href="/new-topic"' in client.get("/topics").text


def test_topics_are_filtered_sorted_and_paged(client: Client) -> None:
    """The address holds the whole state of the list."""
    reply = client.get("/topics?name=RAW&sort=bytes&reverse=true&page_size=1&page=2")

    assert "audit.raw" in reply.text
    assert "orders.created" not in reply.text
    assert "Page 2 of 2" in reply.shown
    assert "2 to 2 of 2" in reply.shown


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("page=0", "page"),
        ("page=1e9", "page"),
        ("page=" + "9" * 5000, "page"),
        ("page_size=501", "page_size"),
        ("sort=colour", "sort"),
        ("reverse=maybe", "reverse"),
        ("name=%ff", "query"),
        ("&".join("a=1" for _ in range(3000)), "query"),
    ],
)
def test_odd_queries_name_their_field(client: Client, query: str, field: str) -> None:
    """Odd input is 400 with the field, on pages as in the API."""
    reply = client.get(f"/topics?{query}")

    assert reply.status == 400
    assert f"<code>{field}</code>" in reply.text
    assert client.get(f"/api/v1/pages/topics?{query}").status == 400


@pytest.mark.parametrize("name", NAMES)
def test_every_allowed_name_works_on_every_page(name: str) -> None:
    """No letter and no reserved-looking name breaks a link, a form or the API."""
    client = Client(FakeConsole(FakeTopic(name=name, partitions=[FakePartition()])))

    assert f'href="/topics/{name}"' in client.get("/topics").text
    for look in LOOKS:
        assert client.get(f"/topics/{name}{look}").status == 200
    assert client.post(f"/topics/{name}/publish", value="x").status == 303
    assert client.get(f"/topics/{name}/messages/0/0").status == 200
    assert client.get(f"/api/v1/topics/{name}/messages").status == 200
    assert client.post(f"/topics/{name}/delete", typed=name).status == 303
    assert [call[0] for call in client.console.calls] == ["publish", "delete"]


@pytest.mark.parametrize(
    "name",
    [
        "..",
        ".",
        "..%2f..%2fx",
        "%2fetc%2fx",
        "a%2f..%2fb",
        "C:%5cx",
        "%2e%2e%2f",
        "%00",
        "",
        "a%2fb",
    ],
)
@pytest.mark.parametrize("prefix", ["/topics/", "/api/v1/pages/topics/"])
def test_names_that_step_upwards_lead_nowhere(client: Client, prefix: str, name: str) -> None:
    """A path cannot leave its segment, encoded or not."""
    reply = client.get(prefix + name)

    assert reply.status == 404
    assert client.console.calls == []


@pytest.mark.parametrize(
    "name", ["../../x", "/etc/x", ".hidden", "a/b", "a\0b", "é" * 120, "x" * 201, " "]
)
def test_bad_names_are_refused_at_creation(client: Client, name: str) -> None:
    """The form comes back with the reason beside the field, and nothing was made."""
    reply = client.post("/new-topic", name=name)

    assert reply.status == 400
    assert 'aria-invalid="true"' in reply.text
    assert client.console.calls == []


def test_topic_is_made_by_form(client: Client) -> None:
    """Name, partitions and settings reach the broker; the page of the topic follows."""
    reply = client.post("/new-topic", name="made", partitions="3", config="retention.time = 1 d\n")

    assert reply.headers["location"] == "/topics/made?done=created"
    assert client.console.calls[0] == ("create", "made", 3, {"retention.time": "1 d"})
    assert "The topic was made" in client.get("/topics/made?done=created").shown


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"name": ""}, 400),
        ({"name": "orders.created"}, 409),
        ({"name": "m", "partitions": "0"}, 400),
        ({"name": "m", "partitions": "many"}, 400),
        ({"name": "m", "config": "nonsense"}, 400),
        ({"name": "m", "config": "no.such=1"}, 400),
    ],
)
def test_wrong_creations_come_back(client: Client, fields: dict[str, str], status: int) -> None:
    """A wrong form is shown again with its values; nothing was made."""
    reply = client.post("/new-topic", **fields)

    assert status == reply.status
    assert "<form" in reply.text
    assert client.console.calls == []


def test_topic_shows_partitions_and_settings(client: Client) -> None:
    """Offsets, sizes, rates and what differs from the default."""
    reply = client.get("/topics/orders.created")

    assert "20,766,256" in reply.shown
    assert "Skewed: partition 3" in reply.shown
    assert "<b>2 d</b>" in reply.text


def test_messages_are_browsed_from_everywhere(client: Client) -> None:
    """Newest, oldest, offset and time; what was looked at is said."""
    base = "/topics/orders.created/messages"

    assert "3/20,766,255" in client.get(base).shown
    assert "Looked at 400 of 41,208,774 offsets in 8 partitions" in client.get(base).shown
    assert "3/10,904,112" in client.get(f"{base}?start=oldest&partition=3").shown
    asked = client.get(f"{base}?start=offset&at=20,766,200&partition=3&limit=20")
    assert "Looked at offsets 20,766,200 to 20,766,219 of partition 3" in asked.shown
    assert "at=20766180" in asked.text
    assert "at=20766220" in asked.text
    since = client.get(f"{base}?start=time&at=2026-11-29T14:32:04Z&partition=3")
    assert "3/20,766,255" in since.shown


@pytest.mark.parametrize(
    "query",
    [
        "start=time",
        "start=time&at=noon",
        "start=offset&at=-1",
        "start=last",
        "limit=501",
        "as=xml",
        "partition=-1",
        "partition=99999999999",
        "start=offset&at=9223372036854775808",
    ],
)
def test_odd_looks_are_refused_by_field(client: Client, query: str) -> None:
    """What cannot be read is 400, never a failure."""
    assert client.get(f"/topics/orders.created/messages?{query}").status == 400
    assert client.get(f"/api/v1/topics/orders.created/messages?{query}").status == 400


def test_missing_partition_is_404(client: Client) -> None:
    """A partition that is not there is said so."""
    assert client.get("/topics/orders.created/messages?partition=8").status == 404


@pytest.mark.parametrize(
    "place", ["3/1", "3/99999999999999999999", "9/0", "99999999999999999999/0"]
)
def test_missing_messages_are_404(client: Client, place: str) -> None:
    """An offset that is not kept is said so."""
    assert client.get(f"/topics/orders.created/messages/{place}").status == 404


def test_values_are_previewed_by_kind(client: Client) -> None:
    """A list shows JSON, MessagePack, text and bytes; no value and empty are told apart."""
    shown = client.get("/topics/demo.formats/messages").shown

    assert '"n":1.00' in shown
    assert "9223372036854775807" in shown
    assert "h'00ff'" in shown
    assert "tombstone: no value" in shown
    assert "7b 22 6e 22" in client.get("/topics/demo.formats/messages?as=hex").shown


def test_message_is_shown_losslessly(client: Client) -> None:
    """1.00 and 2^63-1 stand there as stored."""
    shown = client.get("/topics/demo.formats/messages/0/0").shown

    for token in ("1.00", "9223372036854775807", "1e400", "\\u00e9", "guessed"):
        assert token in shown
    assert shown.count('"n"') == 2


def test_long_messages_are_shown_in_windows(client: Client) -> None:
    """64 KiB at a time, with the way to the next, and a download of all."""
    reply = client.get("/topics/demo.formats/messages/0/6")

    assert "Bytes 0 to 65,536 of 150,011." in reply.shown
    assert "?as=json&amp;skip=65536" in reply.text
    assert len(reply.body) < 90_000
    last = client.get("/topics/demo.formats/messages/0/6?as=hex&skip=149000").shown
    assert "Bytes 149,000 to 150,011 of 150,011." in last


def test_page_does_not_claim_to_be_whole_when_it_is_cut(client: Client) -> None:
    """A value with too many tokens is shown to the end, and the page says how."""
    body = "[" + "1," * 20_000 + "1]"
    client.post("/topics/empty.topic/publish", value=body)

    shown = client.get("/topics/empty.topic/messages/0/0").shown

    assert "Only its beginning is put on lines; the rest follows as it is." in shown
    assert "Whole body" not in shown


def test_raw_value_is_a_download_of_all_bytes(client: Client) -> None:
    """Exactly the stored bytes, never shown by the browser."""
    reply = client.get("/topics/demo.formats/messages/0/3/raw")

    assert bytes(range(256)) * 4 == reply.body
    assert reply.headers["content-type"] == "application/octet-stream"
    assert reply.headers["content-disposition"] == 'attachment; filename="demo.formats-0-3.bin"'


def test_raw_value_is_read_once() -> None:
    """A long value is not looked up anew for each of its pieces: a look opens the whole batch."""
    value = bytes(3 * 1024 * 1024 + 1)
    looks = []

    class Counting(FakeConsole):
        @override
        async def message(
            self, topic: str, partition: int, offset: int, skip: int, length: int
        ) -> MessageView:
            looks.append(offset)
            return await super().message(topic, partition, offset, skip, length)

    log = FakePartition(records=[FakeRecord(NOW, value)])
    client = Client(Counting(FakeTopic(name="t", partitions=[log])))
    reply = client.get("/topics/t/messages/0/0/raw")

    assert reply.body == value
    assert looks == [0]


def test_raw_tombstone_is_empty(client: Client) -> None:
    """A record without a value downloads as nothing."""
    assert client.get("/topics/demo.formats/messages/0/5/raw").body == b""


def test_publish_by_form(client: Client) -> None:
    """Text, key and headers arrive; the page says where the record went."""
    reply = client.post(
        "/topics/orders.created/publish",
        value="one\r\ntwo",
        key="k",
        headers="a: 1\r\nb:2",
        partition="3",
    )

    assert client.console.calls[0] == (
        "publish",
        "orders.created",
        b"one\ntwo",
        b"k",
        (("a", b"1"), ("b", b"2")),
        3,
    )
    followed = client.get(reply.headers["location"])
    assert "partition 3, offset 20766256" in followed.shown


@pytest.mark.parametrize(
    ("fields", "due", "ttl"),
    [
        ({"delay": "1h30m"}, -5_400_000, None),
        ({"at": "2027-01-01T09:00+01:00", "ttl": "1h"}, 1_798_790_400_000, 3_600_000),
        ({"at": "1900000000000"}, 1_900_000_000_000, None),
    ],
)
def test_publish_later_by_form(
    client: Client, fields: dict[str, str], due: int, ttl: int | None
) -> None:
    """A delay or a time as people write it; the page says where the message waits."""
    path = "/topics/orders.created/publish"
    reply = client.post(path, value="x", partition="3", **fields)

    assert client.console.calls == [("publish at", Times(due, ttl))]
    followed = client.get(reply.headers["location"])
    assert "orders.created/3~17" in followed.shown
    assert 'href="/delayed/orders.created/3~17"' in followed.text


def test_publish_bytes_and_tombstones_by_form(client: Client) -> None:
    """Base64 and no value at all."""
    client.post(
        "/topics/empty.topic/publish",
        value="AP8=",
        encoding="base64",
        key="AAE=",
        key_encoding="base64",
    )
    client.post("/topics/empty.topic/publish", value="ignored", tombstone="on")

    assert [c[2:4] for c in client.console.calls] == [(b"\x00\xff", b"\x00\x01"), (None, None)]


@pytest.mark.parametrize(
    "fields",
    [
        {"value": "!!!", "encoding": "base64"},
        {"encoding": "rot13"},
        {"headers": "no colon"},
        {"headers": ": x"},
        {"partition": "8"},
        {"partition": "x"},
        {"delay": "soon"},
        {"delay": "-5m"},
        {"delay": "99999999d"},
        {"at": "tomorrow"},
        {"at": "253402300800000"},
        {"delay": "5m", "at": "2027-01-01"},
        {"ttl": "0"},
    ],
)
def test_wrong_publishes_come_back(client: Client, fields: dict[str, str]) -> None:
    """The form keeps what was typed and says what is wrong."""
    reply = client.post("/topics/orders.created/publish", **{"value": "kept", **fields})

    assert reply.status in {400, 404}
    assert client.console.calls == []
    assert fields.get("value", "kept") in reply.text


def test_refused_publish_says_why(client: Client) -> None:
    """When the broker refuses, the form says its reason and when to try again."""
    client.console.refusing = "the disk is full"

    reply = client.post("/topics/orders.created/publish", value="x")

    assert reply.status == 503
    assert "the disk is full" in reply.shown


def test_message_is_published_again_edited(client: Client) -> None:
    """The form is filled in with all that the message had."""
    shown = client.get("/topics/orders.created/publish?from=3/20766255").shown

    assert "total" in shown
    assert "region: east-2" in shown
    binary = client.get("/topics/demo.formats/publish?from=0/3")
    assert 'value="base64" checked' in binary.text
    long = client.get("/topics/demo.formats/publish?from=0/6")
    assert "longer than a form can carry" in long.shown
    assert client.get("/topics/demo.formats/publish?from=x").status == 400


def test_settings_are_planned_then_changed(client: Client) -> None:
    """First the plan with before and after; then, confirmed, the change."""
    fields = {"config__retention__time": "9 d", "config__undo__window": ""}

    plan = client.post("/topics/orders.created/settings", **fields)

    assert plan.status == 200
    assert "Change 2 settings" in plan.shown
    assert client.console.calls == []
    done = client.post("/topics/orders.created/settings", **fields, confirm="yes")
    assert done.status == 303
    expected = {"retention.time": "9 d", "undo.window": None}
    assert ("alter", "orders.created", expected) == client.console.calls[0]
    assert "The settings were changed" in client.get(done.headers["location"]).shown


def test_settings_say_what_they_do(client: Client) -> None:
    """Nobody has to guess what may be written into a field."""
    reply = client.get("/topics/orders.created/settings")

    assert "About retention.time." in reply.shown
    assert "Allowed: what there is." in reply.shown


def test_plan_without_changes_says_so(client: Client) -> None:
    """Nothing to do is not a button."""
    reply = client.post("/topics/orders.created/settings", config__retention__time="2 d")

    assert "Nothing would change" in reply.shown


def test_purge_is_planned_confirmed_and_undone(client: Client) -> None:
    """Count, bytes, oldest and readers first; then the name; then the way back."""
    plan = client.get("/topics/orders.created/purge?before=all")
    assert "41,208,774" in plan.shown
    assert "Still read by billing (8 consumers)" in plan.shown
    assert "until 14:42" in plan.shown

    wrong = client.post("/topics/orders.created/purge", before="all", typed="orders")
    assert wrong.status == 400
    assert client.console.calls == []

    done = client.post("/topics/orders.created/purge", before="all", typed="orders.created")
    page = client.get(done.headers["location"])
    assert "Undo until 14:42" in page.shown
    assert "41,208,774 records purged" in page.shown

    undone = client.post("/topics/orders.created/undo")
    assert [call[0] for call in client.console.calls] == ["purge", "undo"]
    assert "The purge was undone" in client.get(undone.headers["location"]).shown


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("before=offset&at=5&partition=0", 200),
        ("before=time&at=2026-11-29T14:00", 200),
        ("before=offset", 400),
        ("before=time", 400),
        ("before=never", 400),
        ("partition=x", 400),
    ],
)
def test_purge_plans_of_every_kind(client: Client, query: str, status: int) -> None:
    """Before an offset, before a time, everything; odd wishes name their field."""
    assert status == client.get(f"/topics/orders.created/purge?{query}").status


def test_delete_needs_the_typed_name(client: Client) -> None:
    """Without the name nothing is deleted; with it the list follows."""
    assert "never" in client.get("/topics/orders.created/delete").shown
    assert client.post("/topics/orders.created/delete", typed="x").status == 400
    assert client.console.calls == []

    reply = client.post("/topics/orders.created/delete", typed="orders.created")

    assert "The topic was deleted" in client.get(reply.headers["location"]).shown
    assert client.console.calls == [("delete", "orders.created")]


def test_undo_too_late_says_so(client: Client) -> None:
    """A window that has closed is a conflict with a sentence."""
    assert client.post("/topics/orders.created/undo").status == 409


def test_search_leads_to_message_or_topics(client: Client) -> None:
    """topic/partition/offset is an address; all else filters the list."""
    place = client.get("/find?q=orders.created/3/20,766,200").headers["location"]
    assert place == "/topics/orders.created/messages/3/20766200"
    assert client.get("/find?q=a+%26+b").headers["location"] == "/topics?name=a+%26+b"
    assert client.get("/find?q=clicks").headers["location"] == "/topics?name=clicks"
    assert client.get("/find").headers["location"] == "/topics"


def test_look_is_kept_in_cookies(client: Client) -> None:
    """Theme, zone and interval are remembered without a script."""
    back = client.post("/view", theme="dark", zone="Europe/Berlin", every="30", back="/topics")
    assert back.headers["location"] == "/topics"

    page = client.get("/")

    assert 'data-theme="dark"' in page.text
    assert 'hx-trigger="every 30s"' in page.text
    assert "15:32:06 CET" in page.shown


def test_unchanged_page_is_not_sent_again(client: Client) -> None:
    """A refresh that finds nothing new costs no bytes."""
    client.get("/")
    first = client.get("/topics", Accept_Encoding="gzip")

    again = client.get("/topics", If_None_Match=first.headers["etag"])

    assert (again.status, again.body) == (304, b"")
    assert first.headers["cache-control"] == "private, no-cache"


def test_refresh_sends_only_the_inside(client: Client) -> None:
    """A fragment has no head, no navigation and no script."""
    text = client.get("/", HX_Request="true").text

    assert "<html" not in text
    assert "<nav class=" not in text
    assert "3,845.8" in text


def test_state_errors_say_when_to_come_back(client: Client) -> None:
    """A moment's trouble is 503 with a time."""
    client.console.failure = NotLeader("another broker leads")

    reply = client.get("/topics/x")

    assert (reply.status, reply.headers["retry-after"]) == (503, "5")


def test_clock_times_are_of_the_snapshot(client: Client) -> None:
    """Ages are counted from the look that the page shows."""
    assert f'data-at="{NOW}"' in client.get("/").text


# --- hostile content ---------------------------------------------------------


@pytest.mark.parametrize("index", range(9))
def test_hostile_text_is_inert_on_every_page(index: int) -> None:
    """Names, keys, headers, settings, reasons and bodies are text, wherever they appear."""
    console = hostile()
    client = Client(console)
    name = list(console._topics)[index]
    for path in ("/", "/topics"):
        check_inert(client.get(path).text)
    # Such a name cannot exist; what is under its path is shown through a plain alias.
    console._topics["alias"] = console._topics[name]
    for look in [
        *LOOKS,
        "/messages/0/0",
        "/messages/0/1",
        "/messages/0/2",
        "/messages/0/0?as=text",
        "/messages/0/0?as=hex",
        "/publish?from=0/0",
        "/messages?as=msgpack",
    ]:
        reply = client.get(f"/topics/alias{look}")
        assert reply.status == 200, look
        check_inert(reply.text)


@pytest.mark.parametrize("index", range(9))
def test_hostile_brokers_and_clients_are_inert(index: int) -> None:
    """What a broker or a client says of itself is text, wherever it appears."""
    client = Client(hostile())
    number = 1000 + index
    for path in (
        "/brokers",
        f"/brokers/{index + 1}",
        f"/brokers/{index + 1}/drain",
        f"/brokers/{index + 1}/undrain",
        "/brokers/77",
        "/clients",
        "/clients?done=kicked",
        f"/clients/1/{number}",
        f"/clients/1/{number}/kick",
        f"/find?q={quote(HOSTILE[index])}",
    ):
        reply = client.get(path)
        assert reply.status == 200, path
        check_inert(reply.text)


@pytest.mark.parametrize(
    "path",
    [
        "/topics?name=",
        "/find?q=",
        "/topics/",
        "/new-topic?name=",
        "/topics?sort=",
        "/clients?name=",
        "/clients?sort=",
        "/clients/1/",
        "/brokers?sort=",
        "/brokers/",
        "/brokers/1?done=",
    ],
)
@pytest.mark.parametrize(
    "text", ['"><img src=x onerror=alert(1)>', "<script>alert(1)</script>", "{{7*7}}"]
)
def test_hostile_queries_are_inert(client: Client, path: str, text: str) -> None:
    """What comes in by the address comes out as text."""
    reply = client.get(
        path + text.replace(" ", "%20").replace("<", "%3C").replace('"', "%22").replace("/", "%2F")
    )

    check_inert(reply.text)
    assert "49" not in re.findall(r"\b49\b", reply.text)


class Markup(HTMLParser):
    """Reads a page as a browser does and notes what could do harm."""

    def __init__(self) -> None:
        super().__init__()
        self.harm: list[str] = []

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in {"img", "iframe", "object", "embed", "base", "style"}:
            self.harm.append(tag)
        if tag == "script" and not (given.get("src") or "").startswith("/static/"):
            self.harm.append(str(attrs))
        for name, value in attrs:
            if name.startswith("on") or name == "style":
                self.harm.append(f"{tag} {name}")
            if name in {"href", "src", "action", "hx-get"} and not (value or "").startswith(
                ("/", "?", "#")
            ):
                self.harm.append(f"{tag} {name}={value}")


def check_inert(text: str) -> None:
    """Fail when a page has markup that no template wrote."""
    markup = Markup()
    markup.feed(text)
    assert markup.harm == []
    assert "\x00" not in text
    assert "\u202e" not in text


@pytest.mark.parametrize("span", ["10m", "6h"])
def test_overview_has_a_curve_of_what_is_not_settled(client: Client, span: str) -> None:
    """Beside messages and bytes; until there were two looks at channels its place says so."""
    console = lively()
    reply = Client(console).get(f"/?span={span}")
    assert reply.text.count('<svg class="chart ') == 6
    assert 'aria-label="Unsettled now: ready ' in reply.text

    console.queue.looked = False
    early = Client(console).get(f"/?span={span}")
    assert early.text.count('<svg class="chart ') == 4
    assert "Collecting" in early.shown
