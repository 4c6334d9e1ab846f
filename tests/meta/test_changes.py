"""What the MetaServer tells of its changes."""

from __future__ import annotations

import pytest

from tests.meta.fakes import FakeTime
from tinymq.errors import InvalidRequest, MalformedFrame
from tinymq.meta import MetaServer, Store
from tinymq.meta.changes import Changes, Described


def pages(server: MetaServer, cursor: str = "", limit: int = 1 << 20) -> list[Changes]:
    """Return all pages after a cursor."""
    found = [server.changes(cursor, limit)]
    while found[-1].more:
        found.append(server.changes(found[-1].cursor, limit))
    return found


def keys(page: Changes) -> list[str]:
    """Return the keys of a page."""
    return [key for key, _, _ in page.events]


def test_everything(server: MetaServer) -> None:
    """Without a cursor all is told that brokers need, and nothing else."""
    topic = server.create_topic("a")
    server.producer_ids()
    (page,) = pages(server)
    assert keys(page) == ["broker/1", "cluster", f"topic/{topic.id.hex()}"]
    assert (page.full, page.revision) == (True, server.revision)
    assert page.events[0][2] == server.registry.brokers[1].lease


def test_what_changed(server: MetaServer) -> None:
    """With a cursor only what changed since is told, deletions included."""
    topic = server.create_topic("a")
    cursor = server.changes().cursor
    assert server.changes(cursor) == server.changes(cursor)
    assert server.changes(cursor).events == ()
    server.delete_topic("a")
    server.drain(1)
    server.producer_ids()
    page = server.changes(cursor)
    key = topic.id.hex()
    assert keys(page) == [f"deleted/{key}", f"topic/{key}", "drain/1"]
    assert page.events[1] == (f"topic/{key}", None, 0)
    assert (page.full, page.more, page.revision) == (False, False, server.revision)


def test_pages_of_everything(server: MetaServer) -> None:
    """Pages keep to their size, and are of one moment whatever is changed meanwhile."""
    names = [f"t{number}" for number in range(20)]
    topics = [server.create_topic(name) for name in names]
    before = server.changes()
    first = server.changes("", 1500)
    server.delete_topic("t3")
    server.create_topic("new")
    found = [first, *pages(server, first.cursor, 1500)]
    assert len(found) > 3
    assert all(page.full and page.revision == before.revision for page in found)
    assert tuple(event for page in found for event in page.events) == before.events
    later = server.changes(found[-1].cursor)
    assert not later.full
    assert f"deleted/{topics[3].id.hex()}" in keys(later)


def test_pages_of_changes(server: MetaServer) -> None:
    """A revision is in one page or another, never in both, and never cut in two."""
    cursor = server.changes().cursor
    for number in range(10):
        server.create_topic(f"t{number}")
        server.delete_topic(f"t{number}")
    found = pages(server, cursor, 1000)
    assert len(found) > 3
    assert not any(page.full for page in found)
    assert [page.revision for page in found] == sorted({page.revision for page in found})
    whole = server.changes(cursor)
    assert tuple(event for page in found for event in page.events) == whole.events
    assert len(pages(server, cursor, 1)) == 20


@pytest.mark.parametrize(
    "cursor", ["x", "", "..", "a.1", "a.-1", "a.²", f"a.{'9' * 50}", "\0.1.\0"]
)
def test_cursors_of_others(server: MetaServer, cursor: str) -> None:
    """Whatever is no cursor of this MetaServer's is answered with everything."""
    assert server.changes(cursor) == server.changes()


def test_another_history(server: MetaServer, store: Store) -> None:
    """A MetaServer that started anew, perhaps from a backup, tells everything."""
    cursor = server.changes().cursor
    server.close()
    assert MetaServer(store).changes(cursor).full


def test_forgotten_history(store: Store) -> None:
    """Who is too far behind is told everything, also in the middle of its pages."""
    server = MetaServer(store, history=5)
    server.register(1, "one", ("h", 1))
    for number in range(4):
        server.create_topic(f"t{number}")
    first = server.changes("", 1)
    assert first.more
    cursor = server.changes().cursor
    server.producer_ids(1)
    assert not server.changes(cursor).full
    for _ in range(20):
        server.producer_ids(1)
    again = server.changes(first.cursor, 1)
    assert (again.full, again.events) == (True, first.events)
    assert again.revision == server.revision
    assert server.changes(cursor).full


def test_described(server: MetaServer, clock: FakeTime) -> None:
    """People are told of topics and brokers by name: what was made, changed and is gone."""
    server.create_topic("old")
    server.create_topic("kept")
    second = server.register(0, "two", ("h", 2))
    revision = server.revision
    assert server.described_changes(revision) == []
    server.create_topic("new")
    server.delete_topic("old")
    server.alter_topic("kept", {"sync": "os"})
    server.create_topic("short")
    server.delete_topic("short")
    server.leave(second)
    server.drain(1)
    server.drain(2)
    assert server.described_changes(revision) == [
        Described("topic", "new", "made"),
        Described("topic", "old", "gone"),
        Described("topic", "kept", "changed"),
        Described("broker", "two", "gone"),
        Described("broker", "one", "changed"),
    ]


def test_described_channels(server: MetaServer) -> None:
    """Channels are told with their topic, but for those that went with it."""
    for topic in ("a", "b"):
        server.create_topic(topic)
        server.create_channel(topic, "old")
        server.create_channel(topic, "kept")
    revision = server.revision
    server.create_channel("a", "new")
    server.delete_channel("a", "old")
    server.pause_channel("a", "kept")
    server.create_channel("a", "short")
    server.delete_channel("a", "short")
    server.create_channel("b", "new")
    server.delete_topic("b")
    assert server.described_changes(revision) == [
        Described("channel", "a/new", "made"),
        Described("channel", "a/old", "gone"),
        Described("channel", "a/kept", "changed"),
        Described("topic", "b", "gone"),
    ]


def test_described_too_late(server: MetaServer, store: Store) -> None:
    """Changes since a forgotten revision, or one to come, are refused with what is known."""
    store.compact(3)
    for revision in (2, server.revision + 1, -1):
        with pytest.raises(InvalidRequest, match="anew") as caught:
            server.described_changes(revision)
        assert caught.value.data["oldest"] == 3
        assert caught.value.data["newest"] == server.revision


@pytest.mark.parametrize(
    "change",
    [
        {"cursor": 1},
        {"revision": "1"},
        {"full": None},
        {"more": 1},
        {"events": "x"},
        {"events": [["a", "b", 0]]},
        {"events": [["a", b"b"]]},
        {"events": [7]},
    ],
)
def test_what_is_no_page(server: MetaServer, change: dict[str, object]) -> None:
    """A page travels as a mapping; what is none is an error."""
    page = server.changes()
    assert Changes.from_mapping(page.to_mapping()) == page
    with pytest.raises(MalformedFrame):
        Changes.from_mapping({**page.to_mapping(), **change})
