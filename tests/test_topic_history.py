"""The operation that tells who changed what about a topic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.fakes.broker import BrokerFixture, outcome_of
from tinymq.caller import Caller
from tinymq.errors import InvalidRequest, UnknownTopic

ANA = Caller("ana", "10.0.0.7:51000", role="admin")


@pytest.fixture
def fixture(tmp_path: Path) -> BrokerFixture:
    """Return a broker."""
    return BrokerFixture(tmp_path / "data")


def run(fixture: BrokerFixture, name: str, /, **arguments: Any) -> dict[str, Any]:
    """Carry an operation out as ana."""
    found: dict[str, Any] = outcome_of(fixture.operations.run(name, arguments, ANA))
    return found


def test_every_change_is_told(fixture: BrokerFixture) -> None:
    """Made, altered, purged and undone: by whom, from where, and what is otherwise."""
    run(fixture, "topic.create", name="t", config={"sync": "os"})
    run(fixture, "topic.alter", name="t", config={"retention.ms": 86_400_000})
    fixture.produce(b"a", b"b", b"c")
    run(fixture, "topic.purge", name="t", before=2, dry_run=True)
    run(fixture, "topic.purge", name="t", before=2)
    run(fixture, "topic.undo_purge", name="t")
    run(fixture, "topic.purge", name="t", partition=0, before_ms=1000)
    last, undone, purged, altered, created = run(fixture, "topic.history", name="t")["changes"]

    assert {(each["who"], each["peer"]) for each in (undone, purged, altered, created)} == {
        ("ana", "10.0.0.7:51000")
    }
    assert (created["act"], created["settings"][0]["name"]) == ("created", "partitions")
    assert altered["settings"] == [
        {"name": "retention.ms", "before": "604800000", "after": "86400000"}
    ]
    assert (purged["act"], purged["note"]) == ("purged", "2 records before offset 2")
    assert (undone["act"], undone["note"]) == ("undone", "the last purge of 1 partition")
    assert last["note"] == "0 records before 1970-01-01 00:00:01 UTC of partition 0"


def test_exchanges_and_first_uses(fixture: BrokerFixture) -> None:
    """A topic that came with an exchange is its maker's; one of a first use is nobody's."""
    run(fixture, "exchange.create", name="x", kind="topic")
    fixture.operate("meta.ensure_topic", name="t")
    assert run(fixture, "topic.history", name="x")["changes"][0]["who"] == "ana"
    assert run(fixture, "topic.history", name="t")["changes"][0]["who"] == ""


def test_it_goes_on_page_by_page(fixture: BrokerFixture) -> None:
    """Each page says where the next one begins; a wrong place is refused."""
    run(fixture, "topic.create", name="t")
    for sync in ("os", "always"):
        run(fixture, "topic.alter", name="t", config={"sync": sync})
    first = run(fixture, "topic.history", name="t", limit=2)
    assert ([each["act"] for each in first["changes"]], first["more"]) == (["altered"] * 2, True)
    rest = run(fixture, "topic.history", name="t", limit=2, after=first["after"])
    assert [each["act"] for each in rest["changes"]] == ["created"]
    assert (rest["more"], rest["after"]) == (False, None)
    with pytest.raises(InvalidRequest):
        run(fixture, "topic.history", name="t", after="x")
    with pytest.raises(UnknownTopic):
        run(fixture, "topic.history", name="none")
