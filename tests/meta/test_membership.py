"""The operations of the MetaServer on brokers."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest

from tests.meta.fakes import FakeTime
from tinymq.errors import InvalidName, InvalidRequest, StateError
from tinymq.meta import BrokerInfo, MetaServer, Store
from tinymq.meta.entries import Put
from tinymq.meta.membership import MOST_KNOWN
from tinymq.meta.placement import Load, Standing


def only_broker(server: MetaServer) -> BrokerInfo:
    """Return the broker of the fixture."""
    return server.registry.brokers[1]


def test_brokers_live_by_heartbeats(server: MetaServer, clock: FakeTime, store: Store) -> None:
    """A broker is live while it is heard, and gone soon after; heartbeats write nothing."""
    broker = only_broker(server)
    revision = store.revision
    for _ in range(10):
        clock.advance(10)
        server.heartbeat(broker)
        server.expire()
    assert store.revision == revision
    clock.advance(15)
    server.expire()
    assert server.registry.brokers == {}
    with pytest.raises(StateError, match="register again"):
        server.heartbeat(broker)


def test_two_brokers_of_one_id(server: MetaServer, clock: FakeTime) -> None:
    """A second live broker of one id is refused; after the first has ended it may come."""
    first = only_broker(server)
    with pytest.raises(StateError, match=r"broker 1 is live at 127\.0\.0\.1:7800") as caught:
        server.register(1, "copy", ("10.0.0.2", 7800))
    assert caught.value.retriable
    clock.advance(15)
    second = server.register(1, "copy", ("10.0.0.2", 7800))
    assert second.incarnation == first.incarnation + 1
    with pytest.raises(StateError):
        server.heartbeat(first)
    server.leave(first)
    assert server.registry.brokers == {1: second}
    server.leave(second)
    assert server.registry.brokers == {}


def test_takeover(server: MetaServer) -> None:
    """Whoever holds the data folder's lock need not wait after a crash."""
    first = only_broker(server)
    second = server.register(1, "one", ("127.0.0.1", 7800), takeover=True)
    assert second.incarnation == first.incarnation + 1
    assert server.registry.brokers == {1: second}


def test_broker_ids(server: MetaServer) -> None:
    """A new broker's number is none that is known."""
    assert server.new_broker_id() == 2
    server.register(7, "from-elsewhere", ("h", 1))
    assert server.new_broker_id() == 8


def test_a_new_number(server: MetaServer) -> None:
    """A broker that has no number is given a new one, and its number counts as given out."""
    assert [server.register(0, name, ("h", 1)).id for name in "ab"] == [2, 3]
    assert server.new_broker_id() == 4


def test_where_a_broker_stands(server: MetaServer, store: Store) -> None:
    """Zone and version are kept; what was stored without them can be read."""
    broker = server.register(0, "a", ("h", 1), zone="east", version="0.3")
    assert (broker.zone, broker.version) == ("east", "0.3")
    assert MetaServer(store).registry.brokers[broker.id] == broker
    old = json.loads(broker.encode())
    del old["zone"], old["version"]
    read = BrokerInfo.decode(broker.id, json.dumps(old).encode(), broker.lease)
    assert read == attrs.evolve(broker, zone="", version="")


def test_names_of_live_brokers_differ(server: MetaServer, clock: FakeTime) -> None:
    """A name of a live broker is refused with what to do, and is free once that one ended."""
    for _ in range(2):
        with pytest.raises(
            StateError, match=r"that of broker 1 at 127\.0\.0\.1:7800.*broker\.name"
        ):
            server.register(0, "one", ("h", 1))
    server.lost_link(only_broker(server))
    with pytest.raises(StateError):
        server.register(0, "one", ("h", 1))
    clock.advance(3)
    assert server.register(0, "one", ("h", 1)).id == 2


def test_brokers_without_a_name(server: MetaServer) -> None:
    """Brokers that were given no name are told apart by their numbers, and stay so."""
    names = [server.register(0, "tinymq", ("h", port)).name for port in (1, 2)]
    assert names == ["broker-2", "broker-3"]
    server.lost_link(server.registry.brokers[3])
    assert server.register(3, "tinymq", ("h", 2)).name == "broker-3"
    assert server.register(1, "tinymq", ("h", 3), takeover=True).name == "tinymq"


@pytest.mark.parametrize(
    ("number", "name", "address", "zone"),
    [
        (-1, "a", ("h", 1), ""),
        (2**31, "a", ("h", 1), ""),
        (2**31 - 1, "a", ("h", 1), ""),
        (10_002, "a", ("h", 1), ""),
        (0, "a", ("", 1), ""),
        (0, "a", ("h" * 256, 1), ""),
        (0, "a", ("h\nh", 1), ""),
        (0, "a", ("a,b", 1), ""),
        (0, "a", ("h", 65536), ""),
        (0, "a b", ("h", 1), ""),
        (0, "a", ("h", 1), "a/b"),
    ],
)
def test_what_is_no_broker(
    server: MetaServer, store: Store, number: int, name: str, address: tuple[str, int], zone: str
) -> None:
    """What cannot be a broker's is refused, and nothing is written."""
    revision = store.revision
    with pytest.raises((InvalidRequest, InvalidName)):
        server.register(number, name, address, zone=zone)
    assert store.revision == revision


def test_observers_see_one_change(server: MetaServer) -> None:
    """A broker that registers again is changed, not gone in between."""
    seen: list[set[int]] = []
    server.watch(lambda _, after: seen.append(set(after.brokers)))
    server.register(1, "one", ("h", 2), takeover=True)
    assert seen == [{1}]


def test_a_lost_link(server: MetaServer, clock: FakeTime) -> None:
    """A broker whose link ended may be replaced at once, and is soon gone."""
    first = only_broker(server)
    assert server.is_held(1)
    server.lost_link(first)
    assert not server.is_held(1)
    assert not server.is_held(7)
    second = server.register(1, "one", ("h", 1))
    assert server.is_held(1)
    server.lost_link(first)
    assert server.is_held(1)
    server.lost_link(second)
    clock.advance(2.9)
    server.expire()
    assert server.registry.brokers == {1: second}
    clock.advance(0.2)
    server.expire()
    assert server.registry.brokers == {}
    assert server.registry.known[1] == attrs.evolve(second, lease=0)


def test_a_link_that_comes_back(server: MetaServer, clock: FakeTime) -> None:
    """A heartbeat after a lost link holds the broker as before."""
    broker = only_broker(server)
    server.lost_link(broker)
    clock.advance(2)
    server.heartbeat(broker)
    assert server.is_held(1)
    clock.advance(14)
    server.expire()
    assert server.member(1, broker.lease) == broker
    with pytest.raises(StateError, match="register again"):
        server.member(1, broker.lease + 1)


def test_after_a_restart(server: MetaServer, store: Store, clock: FakeTime) -> None:
    """A MetaServer that starts holds nobody by a link, and gives all the time to come back."""
    broker = only_broker(server)
    server.close()
    again = MetaServer(store)
    assert not again.is_held(1)
    clock.advance(14)
    again.expire()
    again.heartbeat(broker)
    assert again.is_held(1)
    with pytest.raises(StateError):
        again.register(1, "one", ("h", 1))


def test_an_old_link_that_ends_late(server: MetaServer) -> None:
    """The end of a link means nothing when the broker was heard over a newer one."""
    broker = only_broker(server)
    old, new = object(), object()
    server.heartbeat(broker, link=old)
    server.heartbeat(broker, link=new)
    server.lost_link(broker, old)
    assert server.is_held(1)
    server.lost_link(broker, new)
    assert not server.is_held(1)
    server.heartbeat(server.register(1, "one", ("h", 1)), link=new)
    assert server.is_held(1)
    server.lost_link(broker, new)
    assert not server.is_held(1)


def test_load(server: MetaServer, store: Store, clock: FakeTime) -> None:
    """What a broker says of itself counts until it says something else, and costs no write."""
    assert server.standings() == {1: Standing(0, 0)}
    revision = store.revision
    server.heartbeat(only_broker(server), Load(partitions=3, bytes=7, rate_in=1.5))
    assert server.standings() == {1: Standing(0, 7)}
    server.heartbeat(only_broker(server))
    assert server.standings() == {1: Standing(0, 7)}
    assert store.revision == revision
    server.register(1, "one", ("h", 1), takeover=True)
    assert server.standings() == {1: Standing(0, 0)}


def test_load_travels() -> None:
    """A load is read as it was sent; of the wrong kind it is refused."""
    said = Load(partitions=3, bytes=7, rate_in=1.5, refusing="full")
    assert Load.from_mapping(said.to_mapping()) == said
    assert Load.from_mapping({}) == Load()
    for wrong in ({"bytes": "1"}, {"refusing": 1}, {"rate_in": None}, {"partitions": 1.5}):
        with pytest.raises(InvalidRequest):
            Load.from_mapping(wrong)


def test_who_takes_new_partitions(server: MetaServer) -> None:
    """Refusing and lost brokers come last, draining ones never."""
    brokers = [server.register(0, name, ("h", 1)) for name in ("two", "three", "four")]
    assert set(server.standings()) == {1, 2, 3, 4}
    server.drain(1)
    server.heartbeat(brokers[0], Load(refusing="full"))
    server.lost_link(brokers[1])
    assert set(server.standings()) == {4}
    assert server.create_topic("a", 3).leaders == (4, 4, 4)
    server.heartbeat(brokers[2], Load(refusing="full", bytes=9))
    assert server.standings() == {2: Standing(0), 3: Standing(0), 4: Standing(3, 9)}
    for broker in brokers:
        server.drain(broker.id)
    for call in (lambda: server.create_topic("b"), lambda: server.alter_topic("a", None, 4)):
        with pytest.raises(StateError, match="every broker is draining") as caught:
            call()
        assert caught.value.retriable
    server.drain(3, undo=True)
    assert server.create_topic("b").leaders == (3,)


def test_brokers_that_never_come_back(server: MetaServer, store: Store) -> None:
    """Of brokers that are gone only those that lead partitions are remembered for ever."""
    leads = server.register(0, "leads", ("h", 1))
    server.leave(only_broker(server))
    server.create_topic("t")
    server.leave(leads)
    drained = server.register(0, "drained", ("h", 1))
    server.drain(drained.id)
    server.leave(drained)
    many = [Put(f"known/{number}", leads.encode()) for number in range(4, MOST_KNOWN + 50)]
    store.transact([], [*many, Put("brokers", str(MOST_KNOWN + 50).encode())])
    for _ in range(8):
        server.leave(server.register(0, "again", ("h", 1)))
    assert len(server.registry.known) <= MOST_KNOWN + 10
    assert {leads.id, drained.id, MOST_KNOWN + 58} <= server.registry.known.keys()
    assert MetaServer(store).registry.known == server.registry.known
    assert server.registry.led == {leads.id: 1}


def test_drain(server: MetaServer, store: Store, file: Path) -> None:
    """Draining is remembered, can be said twice and undone, and asks for a known broker."""
    assert server.drain(1, dry_run=True)
    assert server.registry.draining == frozenset()
    assert server.drain(1)
    assert not server.drain(1)
    server.leave(only_broker(server))
    assert server.registry.draining == {1}
    store.close()
    store = Store(file)
    server = MetaServer(store)
    assert server.registry.draining == {1}
    assert server.drain(1, undo=True)
    assert not server.drain(1, undo=True)
    assert server.registry.draining == frozenset()
    with pytest.raises(InvalidRequest, match="no broker 2"):
        server.drain(2)
    store.close()
