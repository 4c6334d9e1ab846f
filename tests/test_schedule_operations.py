"""Schedules as people and their programs ask for them."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.broker import BEGIN_MS, BrokerFixture
from tinymq.errors import BrokerSilent, InvalidRequest, UnknownSchedule, UnknownTopic, ValueTooLarge
from tinymq.operation import Result

NIGHTLY: dict[str, Any] = {
    "name": "nightly",
    "topic": "t",
    "cron": "0  3 * * *",
    "zone": "Europe/Berlin",
    "value": "tea",
    "headers": {"a": "b"},
}


@pytest.fixture
def fixture(tmp_path: Path) -> BrokerFixture:
    """Return a broker with a topic."""
    fixture = BrokerFixture(tmp_path / "data")
    fixture.topic("t")
    return fixture


def test_create(fixture: BrokerFixture) -> None:
    """It is told with its message, its words and its next ten times."""
    reply = fixture.operate("schedule.create", **NIGHTLY)
    found = reply["schedule"]
    assert (reply["created"], reply["changes"]) == (True, [])
    assert found["cron"] == "0 3 * * *"
    assert found["text"] == "At 03:00 every day"
    assert (found["value"], found["value_encoding"], found["headers"]) == (
        "tea",
        "string",
        {"a": "b"},
    )
    assert len(found["upcoming"]) == 10
    assert found["upcoming"] == sorted(found["upcoming"])
    assert found["upcoming"][0] > BEGIN_MS
    assert fixture.operate("schedule.info", name="nightly")["schedule"] == found


def test_change(fixture: BrokerFixture) -> None:
    """What differs is told, by the names that people know."""
    fixture.operate("schedule.create", **NIGHTLY)
    planned = {**NIGHTLY, "zone": "UTC", "value": "milk", "headers": {}, "key": "k"}
    changes = [
        ["zone", "Europe/Berlin", "UTC"],
        ["key", None, "k"],
        ["value", "tea", "milk"],
        ["headers", {"a": "b"}, {}],
    ]
    assert fixture.operate("schedule.create", **planned, dry_run=True)["changes"] == changes
    reply = fixture.operate("schedule.create", **planned)
    assert (reply["created"], reply["changes"]) == (False, changes)
    assert fixture.operate("schedule.create", **planned)["changes"] == []


def test_binary(fixture: BrokerFixture) -> None:
    """A value that is no text travels as base64."""
    value = base64.b64encode(b"\xff\x00").decode()
    reply = fixture.operate("schedule.create", **{**NIGHTLY, "value": value, "encoding": "base64"})
    assert reply["schedule"]["value"] == value
    assert reply["schedule"]["value_encoding"] == "base64"
    assert fixture.meta.describe_schedule("nightly").value == b"\xff\x00"


@pytest.mark.parametrize(
    ("wrong", "error", "field"),
    [
        ({"cron": "0 25 * * *"}, InvalidRequest, "cron"),
        ({"zone": "Nowhere"}, InvalidRequest, "zone"),
        ({"value": "%%", "encoding": "base64"}, InvalidRequest, "value"),
        ({"value": "x" * 65_537}, ValueTooLarge, None),
        ({"value": "x" * 100_000}, InvalidRequest, "value"),
        ({"topic": "other"}, UnknownTopic, None),
        ({"catch_up": "never"}, InvalidRequest, "catch_up"),
    ],
)
def test_refused(
    fixture: BrokerFixture, wrong: dict[str, Any], error: type[Exception], field: str | None
) -> None:
    """What is wrong is refused, and the field is named."""
    with pytest.raises(error) as caught:
        fixture.operate("schedule.create", **{**NIGHTLY, **wrong})
    assert getattr(caught.value, "data", {}).get("field") == field
    assert fixture.operate("schedule.list")["total"] == 0


def test_list(fixture: BrokerFixture) -> None:
    """Pages are in order of names, by topic and by pattern."""
    fixture.topic("u")
    for name in ("c", "a", "b"):
        fixture.operate("schedule.create", **{**NIGHTLY, "name": name})
    fixture.operate("schedule.create", **{**NIGHTLY, "name": "d", "topic": "u"})
    page = fixture.operate("schedule.list", limit=2)
    assert [row["name"] for row in page["schedules"]] == ["a", "b"]
    assert (page["more"], page["after"], page["total"]) == (True, "b", 4)
    page = fixture.operate("schedule.list", after="b")
    assert [row["name"] for row in page["schedules"]] == ["c", "d"]
    assert (page["more"], page["after"]) == (False, None)
    assert fixture.operate("schedule.list", topic="u")["schedules"][0]["topic"] == "u"
    assert fixture.operate("schedule.list", filter="[ab]")["total"] == 2


def test_pause(fixture: BrokerFixture) -> None:
    """While it is paused there is no next time."""
    fixture.operate("schedule.create", **NIGHTLY)
    reply = fixture.operate("schedule.pause", name="nightly")
    assert reply["changed"]
    assert reply["schedule"]["paused"]
    assert (reply["schedule"]["next_ms"], reply["schedule"]["upcoming"]) == (None, [])
    assert not fixture.operate("schedule.pause", name="nightly")["changed"]
    reply = fixture.operate("schedule.resume", name="nightly", dry_run=True)
    assert (reply["changed"], reply["schedule"]["paused"]) == (True, True)
    assert not fixture.operate("schedule.resume", name="nightly")["schedule"]["paused"]


def test_delete(fixture: BrokerFixture) -> None:
    """It is told what goes; then it is gone."""
    fixture.operate("schedule.create", **NIGHTLY)
    fixture.operate("schedule.delete", name="nightly", dry_run=True)
    assert fixture.operate("schedule.delete", name="nightly")["schedule"]["name"] == "nightly"
    for act in ("info", "pause", "resume", "run", "delete"):
        with pytest.raises(UnknownSchedule):
            fixture.operate(f"schedule.{act}", name="nightly")


def test_topic_deleted(fixture: BrokerFixture) -> None:
    """A schedule goes with its topic."""
    fixture.operate("schedule.create", **NIGHTLY)
    fixture.operate("topic.delete", name="t")
    assert fixture.operate("schedule.list")["total"] == 0


class Silent:
    """Brokers of which none answers."""

    async def ask(self, broker_id: int, operation: str, arguments: object) -> Result:
        """Say nothing."""
        raise BrokerSilent("it is not there")


def test_silent_broker(fixture: BrokerFixture) -> None:
    """Of a broker that does not answer, the schedule says so, and what is known is told."""
    fixture.operate("schedule.create", **NIGHTLY)
    fixture.operations._nodes = Silent()
    page = fixture.operate("schedule.list")
    row = page["schedules"][0]
    assert (row["runs"], row["missed"], row["next_ms"]) == (None, None, None)
    assert "does not answer: it is not there" in row["error"]
    assert page["silent"] == [row["broker"]]
    assert len(fixture.operate("schedule.info", name="nightly")["schedule"]["upcoming"]) == 10
    with pytest.raises(BrokerSilent):
        fixture.operate("schedule.run", name="nightly")
