"""Who changed what about topics, as the MetaServer keeps it."""

from __future__ import annotations

from tests.meta.fakes import FakeTime
from tinymq.meta import MetaServer, Store
from tinymq.meta.history import MOST_CHANGES, Author, Change

ANA = Author("ana", "10.0.0.7:51000")


def acts(server: MetaServer, name: str) -> list[str]:
    """Name what was done, the newest first."""
    return [each.act for each in server.topic_history(server.describe(name))]


def test_changes_are_told(server: MetaServer, clock: FakeTime) -> None:
    """The newest first, each with who, from where, when, and what was before."""
    with server.on_behalf_of(ANA):
        server.create_topic("a", 2, {"sync": "os"})
        clock.advance(60)
        server.alter_topic("a", {"retention.ms": 1000}, 3)
    altered, created = server.topic_history(server.describe("a"))

    assert created == Change(
        at_ms=int((clock.now - 60) * 1000),
        who="ana",
        peer="10.0.0.7:51000",
        act="created",
        settings=(("partitions", None, "2"), ("sync", None, "os")),
    )
    assert (altered.number, altered.act, altered.at_ms) == (1, "altered", int(clock.now * 1000))
    assert altered.settings == (("partitions", "2", "3"), ("retention.ms", "604800000", "1000"))


def test_what_changes_nothing_is_no_change(server: MetaServer) -> None:
    """Neither a dry run, nor asking for what is so already, nor what is refused."""
    server.create_topic("a")
    server.create_topic("a")
    server.alter_topic("a", {"sync": "os"}, dry_run=True)
    server.alter_topic("a", {"sync": "always"})
    assert acts(server, "a") == ["created"]


def test_first_use_is_nobodys(server: MetaServer) -> None:
    """Who is empty where nobody asked by name, also after somebody did."""
    with server.on_behalf_of(ANA):
        server.create_topic("a")
    (change,) = server.topic_history(server.ensure_topic("b"))
    assert (change.who, change.peer) == ("", "")


def test_more_partitions_and_records(server: MetaServer) -> None:
    """Partitions alone are an act of their own; what is done to records is noted."""
    topic = server.create_topic("a", 1)
    server.alter_topic("a", partitions=2)
    with server.on_behalf_of(ANA):
        server.note(topic, "purged", "12 records")
    purged, more, _ = server.topic_history(topic)
    assert (more.act, more.settings) == ("partitions", (("partitions", "1", "2"),))
    assert (purged.act, purged.who, purged.note) == ("purged", "ana", "12 records")


def test_it_is_bounded_and_lasts(server: MetaServer, store: Store) -> None:
    """The oldest changes make room; the rest is there after a start, and brokers hear nothing."""
    topic = server.create_topic("a")
    cursor, registry = server.changes().cursor, server.registry
    for number in range(MOST_CHANGES + 5):
        server.note(topic, "purged", str(number))
    assert not server.changes(cursor).events
    assert server.registry is registry
    server.close()
    found = MetaServer(store).topic_history(topic)
    assert [each.note for each in found] == [str(n) for n in range(MOST_CHANGES + 4, 4, -1)]
    assert len({each.number for each in found}) == MOST_CHANGES


def test_it_goes_with_its_topic(server: MetaServer, store: Store) -> None:
    """Nothing of it is left, and a topic made anew begins anew."""
    topic = server.create_topic("a")
    server.delete_topic("a")
    server.note(topic, "purged", "too late")
    assert store.range("history/", "history0") == ()
    server.create_topic("a")
    assert acts(server, "a") == ["created"]
