"""The operations of the MetaServer on push endpoints."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.meta.fakes import FakeTime, feed
from tinymq.errors import InvalidRequest, UnknownChannel, UnknownEndpoint
from tinymq.meta import Endpoint, MetaServer, Store, Topic
from tinymq.meta.replica import Replica
from tinymq.meta.server import Clocks
from tinymq.storage.disk import Disk

WANTED = Endpoint(channel="c", url="http://hook.example/", secret="whsec_x")


@pytest.fixture
def topic(server: MetaServer) -> Topic:
    """Return a topic with a channel."""
    topic = server.create_topic("t", 1)
    server.create_channel("t", "c")
    return topic


def test_set(server: MetaServer, topic: Topic, clock: FakeTime) -> None:
    """An endpoint is there with the time at which it was set."""
    made = server.set_endpoint("t", WANTED)
    assert made.set_ms == int(clock.now * 1000)
    assert server.describe_endpoint("t", "c") == made
    assert server.registry.endpoints == {(topic.id, "c"): made}
    assert Endpoint.decode("c", made.encode()) == made


@pytest.mark.usefixtures("topic")
def test_set_anew(server: MetaServer) -> None:
    """What is set anew has another time, even within a millisecond, and keeps the secret."""
    first = server.set_endpoint("t", WANTED)
    second = server.set_endpoint("t", Endpoint(channel="c", url="http://two.example/", secret=""))
    assert second.set_ms > first.set_ms
    assert (second.secret, second.url) == ("whsec_x", "http://two.example/")


@pytest.mark.usefixtures("topic")
def test_refused(server: MetaServer) -> None:
    """There must be a channel that stays, and a secret."""
    server.create_channel("t", "short", temporary=True)
    for wanted, error in (
        (Endpoint(channel="none", url="", secret="x"), UnknownChannel),
        (Endpoint(channel="short", url="", secret="x"), InvalidRequest),
        (Endpoint(channel="c", url="", secret=""), InvalidRequest),
    ):
        with pytest.raises(error):
            server.set_endpoint("t", wanted)
    with pytest.raises(UnknownEndpoint):
        server.describe_endpoint("t", "c")


def test_pause(server: MetaServer, topic: Topic) -> None:
    """A pause says why and since when; a broker's word counts for what it knew only."""
    made = server.set_endpoint("t", WANTED)
    assert server.give_endpoint_up(topic.id, "c", made.set_ms - 1, "old") == made
    paused = server.give_endpoint_up(topic.id, "c", made.set_ms, "it fails")
    assert paused is not None
    assert (paused.paused, paused.why) == (True, "it fails")
    assert server.give_endpoint_up(topic.id, "c", made.set_ms, "again") == paused
    resumed = server.resume_endpoint("t", "c")
    assert (resumed.paused, resumed.why) == (False, "")
    assert resumed.set_ms > made.set_ms
    assert server.give_endpoint_up(topic.id, "c", made.set_ms, "late") == resumed
    assert server.give_endpoint_up(bytes(16), "c", 1, "gone") is None
    server.pause_endpoint("t", "c", "by hand")
    assert server.set_endpoint("t", WANTED).paused is False


@pytest.mark.usefixtures("topic")
def test_dry_runs(server: MetaServer) -> None:
    """A dry run says what would be, and nothing is."""
    server.set_endpoint("t", WANTED, dry_run=True)
    assert server.registry.endpoints == {}
    made = server.set_endpoint("t", WANTED)
    server.pause_endpoint("t", "c", dry_run=True)
    server.resume_endpoint("t", "c", dry_run=True)
    server.delete_endpoint("t", "c", dry_run=True)
    assert server.describe_endpoint("t", "c") == made


@pytest.mark.usefixtures("topic")
def test_gone(server: MetaServer, store: Store, clock: FakeTime) -> None:
    """It goes with its channel, and with its topic; nothing of it stays in the store."""
    for go in (
        lambda: server.delete_endpoint("t", "c"),
        lambda: server.delete_channel("t", "c"),
        lambda: server.delete_topic("t"),
    ):
        server.create_topic("t", 1)
        server.create_channel("t", "c")
        server.set_endpoint("t", WANTED)
        go()
        assert server.registry.endpoints == {}
        assert MetaServer(store, clocks=Clocks(wall=clock)).registry.endpoints == {}


def test_restart(server: MetaServer, topic: Topic, store: Store, clock: FakeTime) -> None:
    """What was set and paused is so after a restart."""
    server.set_endpoint("t", WANTED)
    paused = server.pause_endpoint("t", "c", "night")
    again = MetaServer(store, clocks=Clocks(wall=clock))
    assert again.registry.endpoints == {(topic.id, "c"): paused}


def test_replica(server: MetaServer, topic: Topic, tmp_path: Path) -> None:
    """A broker elsewhere knows it, also from its file, and hears that it is gone."""
    replica = Replica()
    feed(replica, server)
    made = server.set_endpoint("t", WANTED)
    feed(replica, server)
    assert replica.registry.endpoints == {(topic.id, "c"): made}
    replica.save(Disk(), f"{tmp_path}/replica")
    kept = Replica.load(Disk(), f"{tmp_path}/replica")
    assert kept.registry.endpoints == {(topic.id, "c"): made}
    server.delete_endpoint("t", "c")
    feed(replica, server)
    assert replica.registry.endpoints == {}


def test_lost_by_the_metaserver(
    server: MetaServer, store: Store, file: Path, tmp_path: Path, clock: FakeTime
) -> None:
    """A topic that a restored backup does not know keeps its endpoint, until it is deleted."""
    store.close()
    backup = tmp_path / "backup"
    shutil.copy(file, backup)
    store = Store(file)
    server = MetaServer(store, clocks=Clocks(wall=clock))
    topic = server.create_topic("t", 1)
    server.create_channel("t", "c")
    made = server.set_endpoint("t", WANTED)
    replica = Replica()
    feed(replica, server)
    store.close()
    store = Store(backup)
    server = MetaServer(store, clocks=Clocks(wall=clock))
    server.create_topic("new")
    feed(replica, server)
    assert replica.registry.endpoints == {(topic.id, "c"): made}
    store.put(f"deleted/{topic.id.hex()}", b"1")
    feed(replica, server)
    assert replica.registry.endpoints == {}
    assert b"push/" not in replica.content()
    store.close()


def test_secrets_are_not_shown() -> None:
    """Neither the secret nor the values of headers are in its text."""
    found = repr(Endpoint(channel="c", url="u", secret="hush", headers={"a": "quiet"}))
    assert "hush" not in found
    assert "quiet" not in found
