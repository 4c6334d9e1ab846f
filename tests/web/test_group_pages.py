"""The pages of consumer groups: the list, one group, and what moves or removes it."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest

from tests.web.client import Client
from tests.web.content import HOSTILE, hostile, lively
from tests.web.crowd import NOW, SECOND
from tinymq.web.group_why import diagnose

LATE = "7f3a09c2-e81b-4b7e-9d10-000000000003"


@pytest.fixture(name="client")
def make_client() -> Client:
    """Make a client of a lively cluster."""
    return Client(lively())


def words(text: str) -> str:
    """Write a text without its line ends."""
    return re.sub(r"\s+", " ", text)


# --- looking -------------------------------------------------------------------


def test_list_says_how_each_stands(client: Client) -> None:
    """State, members, lag in messages and time, trend, time to clear, coordinator, last commit."""
    shown = words(client.get("/groups?sort=lag&reverse=true").shown)

    assert "7 groups · 2 stuck · 1 unknown · 2 without members · 1 rebalancing" in shown
    assert "invoices orders.created 8 8 15,500 3 m 12 s ↗ +4.6 Never mq-1 1.2 s Stuck" in shown
    assert "clicks.raw and 2 more 24 200 2,559" in shown
    assert "1 to 7 of 7" in shown


def test_list_is_filtered(client: Client) -> None:
    """By name, topic and state; nothing found is a sentence; none at all says how to begin."""
    assert "1 to 1 of 1" in client.get("/groups?name=archi").shown
    assert "1 to 2 of 2" in client.get("/groups?topic=orders.created").shown
    assert "1 to 2 of 2" in client.get("/groups?state=stuck").shown
    assert "No group matches" in client.get("/groups?name=zz").shown
    assert "state must be one of" in client.get("/groups?state=odd").shown
    client.console.crowd.groups = []
    assert "There is no consumer group yet" in client.get("/groups").shown


def test_list_for_programs(client: Client) -> None:
    """The same list in any order, in the envelope of the others."""
    reply = client.get("/api/v1/pages/groups?sort=lag&reverse=true&page_size=2")
    assert '"filtered_count":7' in reply.text
    assert reply.text.index('"invoices"') < reply.text.index('"sessionizer"')


def test_one_says_why(client: Client) -> None:
    """The headline has the cause; others follow; what was looked at and is well is told."""
    reply = client.get("/groups/invoices")
    shown = words(reply.shown)

    assert "Why? billing-4 has been silent for 20.0 s; its partition stands still." in shown
    assert "Partition 3 of orders.created holds 82 % of the lag; billing-4 reads it." in shown
    assert "The transaction checkout-7 has been open for 2 m 10 s and holds back" in shown
    assert "Ruled out Nothing moves, every position is within its log" in shown
    assert f'href="/groups/invoices/evict?member={LATE}">Plan: evict billing-4…' in reply.text


def test_chart_has_the_rebalances(client: Client) -> None:
    """Each on the curve with a letter, and below it with its time, length and reason."""
    reply = client.get("/groups/invoices")
    shown = words(reply.shown)

    assert "A 14:26:06 Rebalance, 1 partition moved in 900 ms: billing-8 left" in shown
    assert "B 14:30:06 Rebalance, 3 partitions moved in 4.1 s: billing-4 joined" in shown
    assert reply.text.count('class="ev"') == 4
    assert "C 09:32:06" not in shown
    assert "C 09:32:06" not in words(client.get("/groups/invoices?span=6h").shown)
    assert "09:32:06 Rebalance, 8 partitions moved" in words(
        client.get("/groups/invoices?span=6h").shown
    )


def test_one_lists_members_and_partitions(client: Client) -> None:
    """Who reads what, and how far each is; of many partitions only the worst."""
    shown = words(client.get("/groups/invoices").shown)
    assert "billing-4 Late 1 12,712 10.0.3.13:51003" in shown
    assert "orders.created / 3 9,271,023 9,283,735 12,712 3 m 12 s 82 % billing-4 24.0 s" in shown
    assert "8 partitions 15,500" in shown
    many = words(client.get("/groups/sessionizer").shown)
    assert "blue-7 static session-08" in many
    assert "the 12 with the largest lag All 200" in many
    assert "goes on for 40.0 s" in many
    assert "the last 10 of 14" in many


def test_reasons_name_members(client: Client) -> None:
    """The ids in them are names; of members that are gone, the beginnings."""
    group = client.console.crowd.find("archive")
    here, gone = group.members[0]["id"], "0123456789abcdef" * 2
    why = f"{here} joined, {gone} was silent"
    group.rebalances = [{"at_ms": NOW - SECOND, "took_ms": 5, "moved": 1, "why": why}]
    assert "archive-1 joined, 012345 was silent" in client.get("/groups/archive").shown


def test_trouble_stands_beside_the_state(client: Client) -> None:
    """A group whose members are well and whose lag is not says so at its name, on every tab."""
    group = client.console.crowd.find("invoices")
    group.stuck = ""
    for tab in ("", "/partitions", "/assignment", "/danger"):
        assert "invoices Stable Member silent" in words(client.get(f"/groups/invoices{tab}").shown)


def test_one_without_members(client: Client) -> None:
    """It says how to start one, which position is outside its log, and who does not answer."""
    shown = words(client.get("/groups/mailer").shown)
    assert "Nobody reads for this group" in shown
    assert "valid is 100,000 to 9,281,735" in shown
    assert "tinymq consume mail.outbound --group mailer" in shown
    assert "mq-3 does not answer" in shown
    assert client.get("/groups/none").status == 404


def test_one_without_positions(client: Client) -> None:
    """Where nobody knows how far a group is, no page says that nothing waits."""
    group = client.console.crowd.find("invoices")
    group.stuck, group.trend = "", None
    for row in group.partitions:
        row |= {"committed": None, "committed_ms": None, "lag": None, "lag_s": None}
    for path in ("/groups?sort=lag", "/groups/invoices", "/groups/invoices/assignment"):
        assert client.get(path).status == 200
    shown = words(client.get("/groups/invoices").shown)
    assert "Nothing waits" not in shown
    assert "Every message is handled" not in shown
    told = {**group.told, "members": [], "partitions": [], "group": {**group.row, "stuck": ""}}
    assert diagnose(told, NOW).headline == "Nobody knows how far it is."


def test_it_works_without_transactions_and_looks(client: Client) -> None:
    """Where transactions cannot be told, and nobody looked before, the page is still there."""
    client.console.queue.looked = False
    client.console.crowd.untold = {"transaction.list"}
    shown = words(client.get("/groups/invoices").shown)
    assert "Collecting" in shown
    assert "checkout-7" not in shown


def test_partitions_are_filtered(client: Client) -> None:
    """Only those with lag, of a topic, of a member; page by page."""
    base = "/groups/sessionizer/partitions"
    assert "200 of 200" in client.get(base).shown
    assert "Page 1 of 2" in client.get(base).shown
    assert "129 of 200" in client.get(f"{base}?lagging=yes").shown
    assert "8 of 200" in client.get(f"{base}?topic=orders.created").shown
    assert "1 of 200" in client.get(f"{base}?topic=views.raw&partition=7").shown
    one = client.console.crowd.find("sessionizer").members[3]["id"]
    assert "9 of 200" in client.get(f"{base}?member={one}").shown
    assert "No partition matches" in client.get(f"{base}?topic=none").shown
    assert "No partition has lag" in client.get("/groups/archive/partitions?lagging=yes").shown


def test_assignment_is_readable(client: Client) -> None:
    """By member with its partitions, and by partition with the letter of its member."""
    reply = client.get("/groups/sessionizer/assignment")
    shown = words(reply.shown)
    assert "A blue-7 9 75 clicks.raw 7, 31, 55, 79, 103, 127; views.raw 15, 39, 63" in shown
    assert reply.text.count("/partitions?topic=") == 200
    assert "clicks.raw/0: nobody" in reply.text
    assert "clicks.raw/5: session-06, giving it up" in reply.text
    assert "No partition belongs to anybody" in client.get("/groups/mailer/assignment").shown


# --- moving --------------------------------------------------------------------


def test_seek_goes_through_a_plan(client: Client) -> None:
    """The plan has each partition before and after and changes nothing; the form does it."""
    plan = client.get("/groups/mailer/seek?to=back&at=10&topic=mail.outbound&partition=0")
    shown = words(plan.shown)
    assert "mail.outbound/0 9,280,695 9,280,685 0 10" in shown
    assert "members are reading" not in shown
    assert "--to '-10' --topic mail.outbound --partition 0 --execute" in shown
    assert client.console.crowd.calls == []

    where = {"to": "back", "at": "10", "topic": "mail.outbound", "partition": "0"}
    assert client.post("/groups/mailer/seek", **where).status == 400
    done = client.post("/groups/mailer/seek", **where, typed="mailer")
    assert done.headers["location"] == "/groups/mailer?done=moved"
    ((act, name, how),) = client.console.crowd.calls
    assert (act, name) == ("seek", "mailer")
    assert (how["to"], how["topic"], how["partition"], how["force"]) == (
        "-10",
        "mail.outbound",
        0,
        False,
    )


def test_seek_of_live_members_needs_a_tick(client: Client) -> None:
    """Who reads is warned of; without the tick nothing happens, with it all is moved."""
    plan = words(client.get("/groups/invoices/seek?to=latest").shown)
    assert "8 members are reading" in plan
    assert "Skipped 15,500" in plan
    refused = client.post("/groups/invoices/seek", to="latest", typed="invoices")
    assert refused.status == 409
    assert "8 members" in refused.shown
    assert client.console.crowd.calls == []
    done = client.post("/groups/invoices/seek", to="latest", typed="invoices", force="yes")
    assert done.status == 303
    assert client.console.crowd.calls[0][2]["force"] is True


@pytest.mark.parametrize(
    ("query", "to"),
    [
        ("to=earliest", "earliest"),
        ("to=offset&at=9,280,000", 9_280_000),
        ("to=time&at=2026-11-29T14:00Z", "@1795960800000"),
        ("to=forward&at=5", "+5"),
    ],
)
def test_places_to_seek_to(client: Client, query: str, to: object) -> None:
    """Each way to say where is what the operation takes."""
    reply = client.get(f"/groups/archive/seek?{query}")
    assert reply.status == 200
    assert f"--to {to}" in reply.shown


def test_seek_to_another_group(client: Client) -> None:
    """The positions of a group that is there; of one that is not, the form comes back."""
    reply = client.get("/groups/archive/seek?to=group&at=invoices")
    assert "--from-group invoices" in reply.shown
    wrong = client.get("/groups/archive/seek?to=group&at=none")
    assert (wrong.status, "there is no group" in wrong.shown) == (404, True)
    assert 'value="none"' in wrong.text


@pytest.mark.parametrize(
    ("query", "part"),
    [
        ("", "say where to go on"),
        ("to=offset", "write a whole number"),
        ("to=time", "name the time"),
        ("to=time&at=soon", "at must be a time"),
        ("to=group", "name the group"),
        ("to=latest&partition=3", "say which topic"),
        ("to=back&at=-3", "must be from 0"),
    ],
)
def test_wrong_places_come_back(client: Client, query: str, part: str) -> None:
    """The form is shown again with what is wrong."""
    reply = client.get(f"/groups/invoices/seek?{query}")
    assert reply.status == 400
    assert part in reply.shown


def test_undo_while_it_can_be(client: Client) -> None:
    """After a seek its page offers to take it back; the plan is dry, the form does it."""
    assert "Undo until" not in client.get("/groups/archive").shown
    client.post("/groups/archive/seek", to="earliest", typed="archive", force="yes")
    assert "Undo until 14:42" in client.get("/groups/archive").shown
    assert "Take back the last seek of archive" in client.get("/groups/archive/undo").shown
    assert client.post("/groups/archive/undo").status == 409
    done = client.post("/groups/archive/undo", force="yes")
    assert done.headers["location"] == "/groups/archive?done=undone"
    assert [call[0] for call in client.console.crowd.calls] == ["seek", "undo"]
    assert "The last seek was taken back" in client.get(done.headers["location"]).shown
    assert client.get("/groups/archive/undo").status == 409


@pytest.mark.parametrize("verb", ["reset", "delete"])
def test_danger_asks_for_the_name(client: Client, verb: str) -> None:
    """Forgetting positions, and removing a group: a plan, a typed name, a tick for members."""
    plan = client.get(f"/groups/archive/{verb}")
    assert f"tinymq group {'rm' if verb == 'delete' else verb} archive --force" in plan.shown
    assert client.post(f"/groups/archive/{verb}", force="yes").status == 400
    assert client.post(f"/groups/archive/{verb}", typed="archive").status == 409
    assert client.console.crowd.calls == []
    done = client.post(f"/groups/archive/{verb}", typed="archive", force="yes")
    home = "/groups?done=deleted" if verb == "delete" else "/groups/archive?done=reset"
    assert done.headers["location"] == home
    assert client.console.crowd.calls[0][:2] == (verb, "archive")
    assert client.get(home).status == 200


def test_reset_of_one_topic(client: Client) -> None:
    """Only the positions of that topic are forgotten."""
    plan = client.get("/groups/sessionizer/reset?topic=orders.created")
    assert "of 8 partitions" in plan.shown
    client.post(
        "/groups/sessionizer/reset", topic="orders.created", typed="sessionizer", force="yes"
    )
    assert client.console.crowd.calls[0][2]["topic"] == "orders.created"


def test_evicting_a_member(client: Client) -> None:
    """A plan with what it has; a reason that it is told; one that is gone already is no error."""
    path = f"/groups/invoices/evict?member={LATE}"
    plan = words(client.get(path).shown)
    assert "Evict billing-4" in plan
    assert "Partitions 1 go to the other members" in plan
    done = client.post("/groups/invoices/evict", member=LATE, reason="it hangs")
    assert done.headers["location"] == "/groups/invoices?done=evicted"
    assert client.console.crowd.calls == [("evict", "invoices", LATE, "it hangs")]
    again = client.post("/groups/invoices/evict", member=LATE)
    assert again.headers["location"] == "/groups/invoices?done=gone"
    assert client.get(path).status == 404


def test_changes_need_the_token(client: Client) -> None:
    """A form of another page changes nothing."""
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    for verb in ("seek", "undo", "reset", "delete", "evict"):
        path = f"/groups/invoices/{verb}"
        assert (
            client.call(
                "POST", path, f"typed=invoices&to=latest&member={LATE}".encode(), kind
            ).status
            == 403
        )
    assert client.console.crowd.calls == []


def test_search_finds_groups(client: Client) -> None:
    """The only group of a name is gone to; several are listed; among others they are a part."""
    assert client.get("/find?q=fraud").headers["location"] == "/groups/fraud-check"
    client.console.crowd.find("archive").name = "fraud-2"
    assert client.get("/find?q=fraud").headers["location"] == "/groups?name=fraud"
    assert "sessionizer" in client.get("/find?q=sessi").shown


def test_hostile_names_stay_text() -> None:
    """Names, members, notes and reasons that are attacks are written as text, everywhere."""
    client = Client(hostile())
    for name in (text for text in HOSTILE if "/" not in text):
        base = f"/groups/{quote(name, safe='')}"
        for tail in ("", "/partitions", "/assignment", "/danger", "/seek?to=latest", "/delete"):
            reply = client.get(base + tail)
            assert reply.status in (200, 404), base + tail
            assert "<script>alert" not in reply.text
            assert "<img src=x" not in reply.text
    for path in ("/groups", "/transactions", "/"):
        assert "<script>alert" not in client.get(path).text


def test_age_of_a_late_member_is_of_the_moment(client: Client) -> None:
    """What the page says moves with the clock, not with the member."""
    group = client.console.crowd.find("invoices")
    group.members[3]["heard_ms"] = NOW - 90 * SECOND
    assert "billing-4 has been silent for 1 m 30 s" in client.get("/groups/invoices").shown
