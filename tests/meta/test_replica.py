"""A registry that follows a MetaServer's."""

from __future__ import annotations

import contextlib
import errno
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.disk import FaultyDisk
from tests.meta.fakes import QuickStore, facts, feed
from tinymq.errors import InvalidRequest, StateError, StorageFull
from tinymq.meta import MetaServer, Registry, Store
from tinymq.meta.changes import Changes, Told
from tinymq.meta.replica import Replica
from tinymq.routing import Terms
from tinymq.storage.sealed import seal

KINDS = ("create", "delete", "alter", "channel", "policy", "close", "exchange", "bind", "unbind")
OPERATIONS = st.tuples(
    st.sampled_from((*KINDS, "drain", "register", "ids", "feed")), st.integers(0, 3)
)


@pytest.fixture
def replica(server: MetaServer) -> Replica:
    """Return a replica that knows all there is."""
    replica = Replica()
    feed(replica, server)
    return replica


@pytest.fixture
def disk() -> FaultyDisk:
    """Return a disk that can fail."""
    return FaultyDisk()


def page(server: MetaServer, *events: Told, full: bool = False) -> Changes:
    """Return a page that says what a test wants."""
    return Changes(
        cursor=server.changes().cursor,
        revision=server.revision,
        full=full,
        more=False,
        events=events,
    )


def operate(server: MetaServer, what: str, number: int) -> None:
    """Change something, where that can be done."""
    name = f"t{number}"
    known = name in server.registry.by_name
    if what == "create" and not known:
        with contextlib.suppress(StateError):  # the one broker is draining
            server.create_topic(name, number + 1)
    elif what == "delete" and known:
        server.delete_topic(name)
    elif what == "alter" and known:
        server.alter_topic(name, {"undo.ms": server.revision})
    elif what == "channel" and known:
        server.ensure_channel(name, f"c{server.revision % 3}")
    elif what in {"policy", "close"}:
        change_channel(server, what, name)
    elif known and what in {"exchange", "bind", "unbind"}:
        change_exchange(server, what, name)
    elif what == "drain":
        server.drain(1, undo=bool(number % 2))
    elif what == "register":
        server.register(number + 1, f"b{number}", ("h", number), takeover=True)
    elif what == "ids":
        server.producer_ids(1)


def change_exchange(server: MetaServer, what: str, name: str) -> None:
    """Let a topic be an exchange or none, or bind it to another, or undo that."""
    exchange = server.registry.exchanges.get(server.describe(name).id)
    if what == "exchange":
        if exchange is None:
            server.create_exchange(name, "direct")
        else:
            server.delete_exchange(name, force=True)
    elif exchange is not None and what == "unbind" and exchange.bindings:
        server.delete_binding(name, min(exchange.bindings))
    elif exchange is not None:
        target = server.registry.names[server.revision % len(server.registry.names)]
        with contextlib.suppress(InvalidRequest):  # messages would go round
            server.add_binding(name, target, Terms(key=f"k{server.revision % 3}"))


def change_channel(server: MetaServer, what: str, topic: str) -> None:
    """Alter or delete a channel of a topic, if it has one."""
    found = server.registry.by_name.get(topic)
    names = sorted(server.registry.channels_of(found.id)) if found else []
    if names and what == "policy":
        server.alter_channel(topic, names[-1], {"attempts": server.revision})
    elif names:
        server.delete_channel(topic, names[0])


@given(st.lists(OPERATIONS, max_size=30), st.integers(1, 3000), st.integers(1, 30))
@settings(deadline=None, max_examples=15)
def test_it_knows_what_the_server_knows(
    operations: list[tuple[str, int]], limit: int, history: int
) -> None:
    """Whatever happens, in whatever pages it is told, the replica ends up with the same."""
    with TemporaryDirectory() as folder:
        store = QuickStore(Path(folder, "meta.db"))
        server = MetaServer(store, history=history)
        server.register(1, "b0", ("h", 0))
        replica = Replica()
        for what, number in operations:
            if what == "feed":
                replica.apply(server.changes(replica.cursor, limit))
            else:
                operate(server, what, number)
        feed(replica, server, limit)
        store.close()
    assert facts(replica.registry) == facts(server.registry)
    assert (replica.strays, replica.take_notes()) == (frozenset(), ())


def test_topics_that_did_not_change(server: MetaServer, replica: Replica, store: Store) -> None:
    """When everything is told again, what did not change is not read again."""
    same, other = server.create_topic("same"), server.create_topic("other")
    feed(replica, server)
    before = replica.registry
    server.close()
    again = MetaServer(store)
    again.alter_topic("other", {"sync": "os"})
    feed(replica, again)
    assert replica.registry.topic_of(same.id) is before.topic_of(same.id)
    assert replica.registry.topic_of(other.id) == again.describe("other")
    assert facts(replica.registry) == facts(again.registry)


def test_channels_that_did_not_change(server: MetaServer, replica: Replica, store: Store) -> None:
    """When everything is told again, a channel that did not change is not read again."""
    topic = server.create_topic("a")
    server.create_channel("a", "same")
    server.create_channel("a", "other")
    server.create_channel("a", "gone")
    feed(replica, server)
    before = replica.registry
    server.close()
    again = MetaServer(store)
    again.alter_channel("a", "other", {"attempts": 3})
    again.delete_channel("a", "gone")
    feed(replica, again)
    after = replica.registry
    assert after.channel(topic.id, "same") is before.channel(topic.id, "same")
    assert facts(after) == facts(again.registry)


def test_channels_in_the_file(server: MetaServer, replica: Replica, disk: FaultyDisk) -> None:
    """A broker that starts without its MetaServer knows its channels."""
    topic = server.create_topic("a")
    server.create_channel("a", "work", {"attempts": 3}, "latest")
    feed(replica, server)
    replica.save(disk, "/replica")
    loaded = Replica.load(disk, "/replica")
    assert loaded.registry.channels == server.registry.channels
    assert loaded.registry.channel(topic.id, "work").start == "latest"


def test_observers(server: MetaServer, replica: Replica) -> None:
    """An observer is given the snapshots before and after, once for each page of news."""
    seen: list[tuple[tuple[str, ...], tuple[str, ...]]] = []

    def observe(before: Registry, after: Registry) -> None:
        assert replica.registry is after
        seen.append((before.names, after.names))

    cancel = replica.watch(observe)
    server.create_topic("a")
    server.create_topic("b")
    feed(replica, server)
    server.producer_ids()
    feed(replica, server)
    cancel()
    server.create_topic("c")
    feed(replica, server)
    assert seen == [((), ("a", "b"))]


def test_nothing_changes_before_the_last_page(server: MetaServer, replica: Replica) -> None:
    """While everything is told, the replica stays what it was; it changes in one step."""
    for number in range(5):
        server.create_topic(f"t{number}")
    fresh = Replica()
    first = server.changes(fresh.cursor, 300)
    fresh.apply(first)
    assert (fresh.registry, fresh.cursor) == (Registry(), first.cursor)
    assert feed(fresh, server, 300) > 3
    feed(replica, server)
    assert facts(fresh.registry) == facts(replica.registry) == facts(server.registry)


def test_a_telling_that_begins_again(server: MetaServer, store: Store) -> None:
    """A MetaServer that stops in the middle of everything is asked for everything again."""
    server.create_topic("a")
    server.create_topic("b")
    replica = Replica()
    replica.apply(server.changes(replica.cursor, 1))
    server.close()
    again = MetaServer(store)
    again.delete_topic("a")
    feed(replica, again, 1)
    assert facts(replica.registry) == facts(again.registry)


def test_another_cluster(server: MetaServer, replica: Replica, tmp_path: Path) -> None:
    """A MetaServer of another cluster is refused, with the words that help."""
    before = replica.registry
    store = QuickStore(tmp_path / "other")
    other = MetaServer(store)
    for call in (
        lambda: feed(replica, other),
        lambda: replica.check_cluster(other.registry.cluster),
    ):
        with pytest.raises(StateError, match=before.cluster.hex()) as caught:
            call()
        assert other.registry.cluster.hex() in str(caught.value)
        assert "cluster.meta" in str(caught.value)
    for value in (b"zz", b"\xff", None):
        with pytest.raises(StateError):
            replica.apply(page(server, ("cluster", value, 0), full=True))
    assert replica.registry is before
    server.create_topic("a")
    feed(replica, server)
    assert replica.registry.names == ("a",)
    Replica().check_cluster(bytes(range(16)))
    store.close()


def test_a_restored_server(server: MetaServer, store: Store, file: Path, tmp_path: Path) -> None:
    """From a backup that lacks a topic nothing is lost, even when its revisions caught up."""
    server.create_topic("old")
    store.close()
    backup = tmp_path / "backup"
    shutil.copy(file, backup)
    store = Store(file)
    server = MetaServer(store)
    replica = Replica()
    server.create_topic("lost")
    lost = server.describe("lost")
    server.create_channel("lost", "work")
    server.create_exchange("lost", "direct")
    server.add_binding("lost", "old", Terms(key="k"))
    feed(replica, server)
    store.close()
    store = QuickStore(backup)
    server = MetaServer(store)
    for number in range(5):
        server.create_topic(f"new{number}")
    feed(replica, server)
    assert replica.registry.names == ("lost", "new0", "new1", "new2", "new3", "new4", "old")
    assert replica.strays == {lost.id}
    assert list(replica.registry.channels_of(lost.id)) == ["work"]
    assert replica.registry.exchange("lost").targets == {"old"}
    assert replica.registry.led == {1: 7}
    assert "topic lost: it is kept" in "".join(replica.take_notes())
    again = server.create_topic("lost")
    feed(replica, server)
    assert replica.registry.topic("lost") == again
    assert replica.registry.topic_of(lost.id) == lost
    store.put(f"deleted/{lost.id.hex()}", b"1")
    feed(replica, server)
    assert replica.registry.topic("lost") == again
    assert (replica.strays, replica.registry.led) == (frozenset(), {1: 7})
    assert replica.registry.channels == {}
    assert b"channel/" not in replica.content()
    store.close()


def test_a_restored_server_that_lacks_channels(server: MetaServer, replica: Replica) -> None:
    """A channel that is not told of is kept; one that was deleted, or made anew, is not."""
    topic = server.create_topic("a")
    for name in ("kept", "anew", "deleted"):
        server.create_channel("a", name)
    feed(replica, server)
    before = dict(replica.registry.channels_of(topic.id))
    server.delete_channel("a", "deleted")
    server.delete_channel("a", "anew")
    anew = server.create_channel("a", "anew", {"attempts": 3})
    told = {event[0]: event for event in server.changes().events}
    told.pop(f"channel/{topic.id.hex()}/kept")
    replica.apply(page(server, *told.values(), full=True))
    found = replica.registry.channels_of(topic.id)
    assert found == {"kept": before["kept"], "anew": anew}
    assert replica.stray_channels == {(topic.id, "kept")}
    assert "channel a/kept: it is kept" in "".join(replica.take_notes())
    again = Replica()
    again._restore(1, "", 0, list(replica._rows.values()))
    assert again.registry.channels_of(topic.id) == found
    replica.given(topic.id, "kept")
    assert replica.stray_channels == frozenset()


def test_nothing_is_forgotten_without_a_word(server: MetaServer, replica: Replica) -> None:
    """An answer that is short, or says gone without saying deleted, takes no topic away."""
    topic = server.create_topic("a")
    feed(replica, server)
    before = facts(replica.registry)
    key = f"topic/{topic.id.hex()}"
    replica.apply(page(server, (key, None, 0)))
    assert facts(replica.registry) == before
    replica.apply(page(server, full=True))
    assert facts(replica.registry) == before
    assert replica.cursor == ""
    cluster = ("cluster", server.registry.cluster.hex().encode(), 0)
    replica.apply(page(server, cluster, full=True))
    assert set(replica.registry.topics) == {topic.id}
    assert len(replica.take_notes()) == 3
    replica.apply(page(server, (f"deleted/{topic.id.hex()}", b"1", 0), (key, None, 0)))
    assert replica.registry.topics == {}


def test_changes_before_everything(server: MetaServer) -> None:
    """What merely changed means nothing to a replica that knows nothing."""
    server.create_topic("a")
    replica = Replica()
    replica.apply(page(server, *server.changes().events))
    assert (replica.registry, replica.cursor) == (Registry(), "")
    assert replica.is_empty


@pytest.mark.parametrize(
    ("key", "value"),
    [("topic/{}", b"{"), ("topic/zz", b"{}"), ("broker/1", b"[]"), ("drain/x", b"1")],
)
def test_what_cannot_be_read(server: MetaServer, replica: Replica, key: str, value: bytes) -> None:
    """What a newer MetaServer may write leaves what was known, and is asked for again."""
    topic = server.create_topic("a")
    feed(replica, server)
    before = facts(replica.registry)
    told = (key.format(topic.id.hex()), value, 0)
    replica.apply(page(server, told))
    assert facts(replica.registry) == before
    events = {event[0]: event for event in (*server.changes().events, told)}
    replica.apply(page(server, *events.values(), full=True))
    assert replica.registry.topics == {topic.id: topic}
    assert "cannot be read" in "".join(replica.take_notes())


def test_its_file(server: MetaServer, replica: Replica, disk: FaultyDisk, tmp_path: Path) -> None:
    """A replica that is read again knows the same, and goes on from there."""
    path = str(tmp_path / "replica")
    server.create_topic("a", 3)
    server.drain(1)
    feed(replica, server)
    unsaved = [replica.unsaved]
    replica.save(disk, path)
    unsaved.append(replica.unsaved)
    assert unsaved == [True, False]
    read = Replica.load(disk, path)
    assert facts(read.registry) == facts(server.registry)
    assert (read.registry.revision, read.cursor) == (server.revision, replica.cursor)
    assert (read.take_notes(), read.unsaved) == ((), False)
    server.drain(1, undo=True)
    server.create_topic("b")
    assert not server.changes(read.cursor).full
    feed(read, server)
    assert facts(read.registry) == facts(server.registry)


def test_unread_rows_are_asked_for_again(
    server: MetaServer, replica: Replica, disk: FaultyDisk, tmp_path: Path
) -> None:
    """A start that may understand more than the one before asks for everything."""
    path = str(tmp_path / "replica")
    replica.apply(page(server, ("topic/zz", b"{}", 0)))
    replica.save(disk, path)
    read = Replica.load(disk, path)
    assert (read.cursor, read.is_empty) == ("", False)


def test_damage_is_no_cache(
    server: MetaServer, replica: Replica, disk: FaultyDisk, tmp_path: Path
) -> None:
    """However its file is torn or spoilt, a broker starts without it and says so."""
    path = tmp_path / "replica"
    assert Replica.load(disk, str(path)).take_notes() == ()
    whole = replica.content()
    spoilt = [whole[:cut] for cut in range(0, len(whole), 7)]
    spoilt += [
        whole[:at] + bytes((whole[at] ^ 0xFF,)) + whole[at + 1 :] for at in range(0, len(whole), 7)
    ]
    for content in spoilt:
        path.write_bytes(content)
        read = Replica.load(disk, str(path))
        assert (read.is_empty, read.cursor, read.registry) == (True, "", Registry())
        (note,) = read.take_notes()
        assert str(path) in note


@pytest.mark.parametrize(
    "value",
    [
        7,
        [1],
        [2, "", 0, []],
        [1, 5, 0, []],
        [1, "", "0", []],
        [1, "", 0, None],
        [1, "", 0, [[1]]],
        [1, "", 0, []],
    ],
)
def test_other_files(disk: FaultyDisk, tmp_path: Path, value: object) -> None:
    """A file with a right checksum and a wrong content is no cache either."""
    path = tmp_path / "replica"
    path.write_bytes(seal(b"TMQR", value))
    read = Replica.load(disk, str(path))
    assert read.is_empty
    assert len(read.take_notes()) == 1


def test_a_disk_that_fails(
    server: MetaServer, replica: Replica, disk: FaultyDisk, tmp_path: Path
) -> None:
    """A full disk keeps the old file, and one that cannot be read stops nothing."""
    path = str(tmp_path / "replica")
    Replica().save(disk, path)
    assert not disk.exists(path)
    replica.save(disk, path)
    server.create_topic("a")
    feed(replica, server)
    disk.room = 0
    with pytest.raises(StorageFull):
        replica.save(disk, path)
    assert replica.unsaved
    disk.room = None
    assert Replica.load(disk, path).registry.names == ()
    disk.failing["read_file"] = errno.EIO
    disk.failing["open"] = errno.EIO
    read = Replica.load(disk, path)
    assert (read.is_empty, len(read.take_notes())) == (True, 1)
