"""The operations of the MetaServer on consumer groups."""

from __future__ import annotations

import pytest

from tests.meta.fakes import FakeTime, facts, feed
from tests.meta.test_replica import page
from tinymq.errors import InvalidName, InvalidRequest, Overloaded, UnknownGroup
from tinymq.meta import MetaServer, Replica, Store
from tinymq.meta import groups as module
from tinymq.meta.registry import GroupInfo, group_mark
from tinymq.meta.server import Clocks


@pytest.fixture
def replica() -> Replica:
    """Return a replica that was told nothing."""
    return Replica()


def test_made_on_first_use(server: MetaServer, clock: FakeTime) -> None:
    """A group is made once, with the time at which it was."""
    made = server.ensure_group("g")
    assert made == GroupInfo(name="g", created_ms=int(clock.now * 1000))
    before = server.registry
    assert server.ensure_group("g") == made
    assert server.registry is before
    assert server.describe_group("g") == made
    assert server.ensure_group("h").created_ms > made.created_ms, "the clock stands still"


@pytest.mark.parametrize("name", ["../../x", "", ".g", "a/b", "g@1", "x" * 201])
def test_names(server: MetaServer, name: str) -> None:
    """A group's name keeps the one rule of names."""
    with pytest.raises(InvalidName):
        server.ensure_group(name)
    with pytest.raises(InvalidName):
        server.keep_group(name, 1)
    assert server.registry.groups == {}


def test_after_a_restart(server: MetaServer, store: Store, clock: FakeTime) -> None:
    """Another start of the MetaServer knows what there is."""
    made = server.ensure_group("g")
    assert MetaServer(store, clocks=Clocks(wall=clock)).registry.groups == {"g": made}


def test_delete(server: MetaServer) -> None:
    """One that was deleted is gone, is remembered as that, and made anew it is another."""
    made = server.ensure_group("g")
    assert server.delete_group("g", dry_run=True) == made
    assert server.registry.groups == {"g": made}
    assert server.delete_group("g") == made
    with pytest.raises(UnknownGroup, match="there is no group 'g'"):
        server.delete_group("g")
    assert group_mark(made.mark) in server.registry.deleted
    assert server.ensure_group("g").mark != made.mark


def test_so_many(server: MetaServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is an end to how many there may be."""
    monkeypatch.setattr(module, "MOST_GROUPS", 1)
    server.ensure_group("g")
    for call in (lambda: server.ensure_group("h"), lambda: server.keep_group("h", 1)):
        with pytest.raises(Overloaded):
            call()


def test_followed(server: MetaServer, replica: Replica) -> None:
    """Brokers hear of groups that come and go."""
    heard: list[tuple[int, int]] = []
    replica.watch(lambda before, after: heard.append((len(before.groups), len(after.groups))))
    feed(replica, server)
    made = server.ensure_group("g")
    feed(replica, server)
    assert replica.registry.groups == {"g": made}
    server.delete_group("g")
    feed(replica, server)
    assert facts(replica.registry) == facts(server.registry)
    assert heard[-2:] == [(0, 1), (1, 0)]


def test_a_restored_server_that_lacks_groups(server: MetaServer, replica: Replica) -> None:
    """A group that is not told of is kept; one that was deleted, or made anew, is not."""
    for name in ("kept", "anew", "deleted"):
        server.ensure_group(name)
    feed(replica, server)
    kept = replica.registry.group("kept")
    for name in ("deleted", "anew"):
        server.delete_group(name)
    anew = server.ensure_group("anew")
    told = {event[0]: event for event in server.changes().events}
    told.pop("group/kept")
    replica.apply(page(server, *told.values(), full=True))
    assert replica.registry.groups == {"kept": kept, "anew": anew}
    assert replica.stray_groups == {"kept"}
    assert "group kept: it is kept" in "".join(replica.take_notes())
    again = Replica()
    again._restore(1, "", 0, list(replica._rows.values()))
    assert again.registry.groups == replica.registry.groups
    replica.given_group("kept")
    assert replica.stray_groups == frozenset()


def test_taken_back(server: MetaServer) -> None:
    """What a broker still knows comes back, but not what was deleted or made anew."""
    assert server.keep_group("lost", 5)
    assert server.registry.groups == {"lost": GroupInfo(name="lost", created_ms=5)}
    assert server.keep_group("lost", 5)
    assert not server.keep_group("lost", 6)
    server.delete_group("lost")
    assert not server.keep_group("lost", 5)
    with pytest.raises(InvalidRequest):
        server.keep_group("odd", -1)
