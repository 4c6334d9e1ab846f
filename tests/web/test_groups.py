"""What pages say of groups: in which order, in which words, and why one is behind."""

from __future__ import annotations

from typing import Any

import pytest

from tests.web.crowd import (
    HOUR,
    MINUTE,
    NOW,
    SECOND,
    FakeGroup,
    crowd,
    member,
    position,
    transaction,
)
from tinymq.web.group_pages import letters
from tinymq.web.group_why import Diagnosis, diagnose, member_names
from tinymq.web.groups import (
    GROUP_SORTS,
    GroupQuery,
    clears,
    group_problems,
    latest_of,
    select_groups,
    shown,
    trend,
    word_of,
    worst_of,
)

ROWS = [shown(row) for row in crowd().rows]


def names(**asked: Any) -> list[str]:
    """Name the groups of a page."""
    return [row["name"] for row in select_groups(ROWS, GroupQuery(**asked)).items]


def why(group: FakeGroup, transactions: list[dict[str, Any]] | None = None) -> Diagnosis:
    """Say why a group stands where it does."""
    return diagnose(group.told, NOW, transactions)


def healthy(**changes: Any) -> FakeGroup:
    """Make a group that keeps up."""
    rows = [position("t", index, 2) for index in range(4)]
    group = FakeGroup(name="g", members=[member(0), member(1)], partitions=rows, **changes)
    return group.assign()


# --- lists ---------------------------------------------------------------------


def test_lists_are_filtered() -> None:
    """By a part of the name, by a topic, by a state; the states of all that match are counted."""
    assert names(name="MAIL") == ["mailer"]
    assert names(topic="orders.created") == ["invoices", "sessionizer"]
    assert names(state="moving") == ["sessionizer"]
    page = select_groups(ROWS, GroupQuery(topic="audit.raw", state="stable"))
    assert (page.filtered_count, page.total_count) == (1, 2)
    assert page.states == {"stable": 1, "empty": 1}


@pytest.mark.parametrize("sort", GROUP_SORTS)
def test_lists_are_sorted_by_every_column(sort: str) -> None:
    """Both ways, with what is not known at one end, page by page."""
    assert sorted(names(sort=sort)) == sorted(names(sort=sort, reverse=True))
    assert names(sort="lag", reverse=True)[0] == "invoices"
    assert names(sort="state")[:2] == ["fraud-check", "invoices"]
    pages = [names(sort=sort, page=number, page_size=3) for number in (1, 2, 3)]
    assert [name for page in pages for name in page] == names(sort=sort)


def test_words() -> None:
    """Nobody who reads is no trouble while nothing waits; a stuck group has a reason."""
    by_name = {row["name"]: row for row in ROWS}
    assert word_of(by_name["mailer"]).colour == "bad"
    assert word_of(by_name["replay-2026-11-28"]).colour == "s"
    assert word_of(by_name["sessionizer"]).word == "Rebalancing"
    assert word_of(by_name["invoices"]).word == "Stuck"
    assert word_of({**by_name["invoices"], "state": "odd_one"}).word == "Odd one"
    assert trend(by_name["invoices"])[1] == "bad"
    assert clears(by_name["invoices"])[0] == "Never"
    assert clears(by_name["sessionizer"])[0] == "3 m 24 s"
    prompt = {**by_name["archive"], "lag": 3, "lag_ms": 200, "trend_s": 0.0}
    assert clears(prompt)[0] == "0 s"
    quiet = {**by_name["mailer"], "stuck": "nobody reads", "lag_s": None, "trend": 0.0}
    assert shown(quiet)["state"] == "empty"


def test_overview() -> None:
    """Channels and groups in one order; groups in trouble are named, some one by one."""
    found = worst_of([{"name": "c", "lag": 3000}], ROWS, 3)
    assert [(kind, row["name"]) for kind, row in found] == [
        ("group", "invoices"),
        ("channel", "c"),
        ("group", "sessionizer"),
    ]
    late = latest_of({"name": "c", "lag_ms": 200_000}, ROWS)
    assert late is not None
    assert (late[0], late[1]["name"]) == ("group", "fraud-check")
    assert latest_of({"name": "c", "lag_ms": 300_000}, ROWS) == (
        "channel",
        {"name": "c", "lag_ms": 300_000},
    )
    assert latest_of(None, []) is None
    bad = [row for row in ROWS if row["name"] in {"invoices", "mailer"}]
    stuck, empty = group_problems(bad)
    assert (stuck.level, stuck.title) == ("bad", "Group invoices is stuck")
    assert stuck.detail == (
        "Its oldest message waits for 3 m 12 s: billing-4 has not been heard for 20 s."
    )
    assert (empty.level, empty.title) == ("warn", "Group mailer has no members")
    many = group_problems([{**bad[0], "name": f"g{index}"} for index in range(6)])
    assert many[-1].title == "3 more groups get no further"


def test_letters() -> None:
    """Members have letters, however many there are."""
    assert [letters(index) for index in (0, 25, 26, 51, 52, 701, 702)] == [
        "A", "Z", "AA", "AZ", "BA", "ZZ", "AAA",
    ]  # fmt: skip


def test_members_are_told_apart() -> None:
    """By instance, else by client; those that are alike have the beginning of their ids, too."""
    members = [
        member(0, client="cli", id="298ec031f4bf"),
        member(1, client="cli", id="b7a59b29475a"),
        member(2, client="cli", instance="blue"),
        member(3, client="", id="0123456789"),
    ]
    assert [*member_names(members).values()] == ["cli 298ec0", "cli b7a59b", "blue", "012345"]


# --- why -----------------------------------------------------------------------


def test_a_group_that_keeps_up() -> None:
    """Nothing is wrong, and what was looked at is told."""
    found = why(healthy(), [])
    assert (found.headline, found.causes) == ("It keeps up.", ())
    assert "2 members, all heard of late" in found.ruled_out
    assert "no open transaction holds records back" in found.ruled_out
    idle = healthy()
    for row in idle.partitions:
        row["lag"] = 0
    assert why(idle).headline == "Nothing waits."
    assert "no open transaction holds records back" not in why(idle).ruled_out


def test_nobody_reads() -> None:
    """A group without members is behind for want of them."""
    group = FakeGroup(name="g", state="empty", partitions=[position("t", 0, 40)])
    assert why(group).headline == "It has no members, and 40 messages wait."


def test_a_silent_member() -> None:
    """It is named with how long it has been silent, and what rests with it."""
    group = healthy()
    group.members[0] |= {"state": "late", "heard_ms": NOW - 20 * SECOND, "instance": "blue"}
    found = why(group)
    assert found.headline == "blue has been silent for 20.0 s; its 2 partitions stand still."
    held = found.about("late")
    assert held is not None
    assert held.member == group.members[0]["id"]
    assert found.word == "Member silent"
    assert why(healthy()).word == ""


def test_a_member_that_does_not_let_go() -> None:
    """After a while it is named as what holds up the move; before that, things just move."""
    group = healthy(state="moving")
    group.members[1]["state"] = "draining"
    group.partitions[1]["draining"] = True
    move = {"at_ms": NOW - 40 * SECOND, "took_ms": None, "moved": 1, "why": "x joined"}
    group.rebalances = [move]
    assert why(group).headline == (
        "billing-2 has been draining for 40.0 s and holds up the move of 1 partition."
    )
    move["at_ms"] = NOW - 2 * SECOND
    assert why(group).headline == "Partitions have been moving for 2.0 s."


def test_a_hot_partition() -> None:
    """One that holds most of the lag is named, with its share and who reads it."""
    group = healthy(trend=4.6)
    group.partitions[3] |= {"lag": 12_000, "lag_s": 5.0}
    found = why(group)
    assert found.headline == "Partition 3 of t holds 100 % of the lag; billing-2 reads it."
    assert [each.kind for each in found.causes] == ["skew", "behind"]


def test_commits_that_stand_still() -> None:
    """Records come, and nothing was committed for minutes, or never."""
    group = healthy()
    for row in group.partitions[:3]:
        row |= {"committed_ms": NOW - 4 * MINUTE, "lag_s": 200.0}
    assert why(group).headline == (
        "Commits stand still while records come: the last was 4 m ago, on 3 partitions with lag."
    )
    for row in group.partitions:
        row |= {"committed_ms": None, "lag_s": 200.0}
    assert "there was none yet" in why(group).headline


def test_a_position_outside_its_log() -> None:
    """The valid range is told; more than a few are counted."""
    group = healthy()
    group.partitions[2] |= {"committed": 41, "start": 100_000, "lag": None, "lag_s": None}
    group.partitions[3] |= {"committed": 99_000_000}
    first, second = (each.text for each in why(group).causes)
    assert first == ("The position 41 of t/2 is before its log: valid is 100,000 to 9,282,735.")
    assert "is behind its log" in second
    lost = FakeGroup(name="g", partitions=[position("t", n, 5, committed=1) for n in range(9)])
    assert "6 more positions outside their logs." in [each.text for each in why(lost).causes]


def test_silent_brokers_and_errors() -> None:
    """Who does not answer is named, with how much is not known because of it."""
    group = healthy(silent=["mq-2"])
    group.partitions[0] |= {"end": None, "start": None, "lag": None, "lag_s": None}
    group.partitions[1]["error"] = "the topic was made anew"
    found = [each.text for each in why(group).causes]
    assert found == [
        "mq-2 does not answer; where 1 partition stands is not known.",
        "t/1: the topic was made anew",
    ]
    unknown = FakeGroup(name="g", state="unknown", coordinator="mq-3")
    assert why(unknown).headline == "Who its members are is not known: mq-3 does not say."


def test_open_transactions() -> None:
    """One that is open for long holds back its partitions; one of others does not matter."""
    here = [{"topic": "t", "partition": 1}, {"topic": "else", "partition": 0}]
    long = transaction("pay-1", since_ms=NOW - 2 * MINUTE, partitions=here)
    other = transaction("far", since_ms=NOW - HOUR, partitions=here[1:])
    young = transaction("new", since_ms=NOW - SECOND, partitions=here)
    (cause,) = why(healthy(), [long, other, young]).causes
    assert cause.level == "bad"
    assert cause.text == (
        "The transaction pay-1 has been open for 2 m and holds back t/1: "
        "nothing behind it is handed out."
    )


def test_partitions_and_members_that_do_not_match() -> None:
    """Partitions of nobody are trouble; members without any are only told."""
    group = healthy()
    group.partitions[0]["member"] = ""
    assert why(group).headline == "t/0 belongs to no member."
    crowded = FakeGroup(
        name="g", members=[member(n) for n in range(3)], partitions=[position("t", 0, 0)]
    ).assign()
    assert why(crowded).headline == ("2 of 3 members have nothing to do: there are 1 partition.")


def test_what_only_the_broker_knows() -> None:
    """Where no figure tells it, the reason of the operation is the headline."""
    found = why(healthy(stuck="a transaction that moves it is not decided"))
    assert found.headline == "A transaction that moves it is not decided."
