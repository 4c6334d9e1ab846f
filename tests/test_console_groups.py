"""Consumer groups and histories as the dashboard sees them, with a real broker behind it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.groups.reading import GroupReader
from tests.fakes.broker import BEGIN_MS, BrokerFixture
from tests.test_console import console_of, done
from tinymq.caller import Caller
from tinymq.console import BrokerConsole
from tinymq.web.group_why import diagnose
from tinymq.web.groups import GroupQuery

ANA = Caller("ana", "10.0.0.7:51000", role="admin")


@pytest.fixture
def fixture(tmp_path: Path) -> BrokerFixture:
    """Return a broker with ten messages, of which a group has read four."""
    fixture = BrokerFixture(tmp_path / "data")
    fixture.topic("t")
    fixture.produce(*[b"x"] * 10)
    GroupReader(fixture).commit(4)
    return fixture


@pytest.fixture
def console(fixture: BrokerFixture) -> BrokerConsole:
    """Return its console."""
    return console_of(fixture)


def test_groups_are_listed_and_counted(fixture: BrokerFixture, console: BrokerConsole) -> None:
    """In the words of lists, with their number in the menu."""
    page = done(fixture, console.groups(GroupQuery(topic="t")))
    (row,) = page.items
    assert (row["name"], row["lag"], row["state"]) == ("g", 6, "empty")
    assert console.cluster().groups == 1
    assert done(fixture, console.groups(GroupQuery(topic="u"))).items == ()


def test_lag_and_why(fixture: BrokerFixture, console: BrokerConsole) -> None:
    """The lag of one is remembered, and its cause is named from what the operation tells."""
    told = done(fixture, console.operate("group.info", {"name": "g"}, ANA))
    console.group_lag(told)
    fixture.wall.now_ms += 4000
    assert console.group_lag(told).recent.values == (6, 6, 6)
    assert diagnose(told, BEGIN_MS, []).headline == "It has no members, and 6 messages wait."


def test_changes_are_told_with_who_asked(fixture: BrokerFixture, console: BrokerConsole) -> None:
    """What a page changes is its reader's, in the history of the topic."""
    create = console.create_topic("new", 1, {"sync": "os"}, dry_run=False, caller=ANA)
    done(fixture, create)
    alter = console.alter_topic("new", {"retention.ms": "1000"}, dry_run=False, caller=ANA)
    done(fixture, alter)
    fixture.produce(b"a", topic="new")
    done(fixture, console.purge("new", None, None, dry_run=False, caller=ANA))
    done(fixture, console.undo_purge("new", ANA))
    told = done(fixture, console.operate("topic.history", {"name": "new"}, ANA))
    assert [each["act"] for each in told["changes"]] == ["undone", "purged", "altered", "created"]
    assert {(each["who"], each["peer"]) for each in told["changes"]} == {("ana", "10.0.0.7:51000")}
