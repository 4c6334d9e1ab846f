"""Independent brokers that tell lookup servers what they have, on a fake clock."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.conftest import Make
from tests.fakes.whole_cluster import WholeCluster
from tinymq.meta.lookup import CALL_TOPICS, LOST_SECONDS, SILENT_SECONDS


@pytest.fixture
def town(make: Make) -> WholeCluster:
    """Return two lookup servers, called meta and second, and a broker called node."""
    cluster = make(0)
    cluster.add("second", role="meta")
    cluster.add("node", role="all", meta=("meta", "second"), cluster__zone="north")
    return cluster.start()


def found(town: WholeCluster, server: str, name: str) -> list[str]:
    """The names of the brokers that a lookup server knows to have a topic."""
    nodes: list[dict[str, Any]] = town.operate(server, "lookup.find", name=name)["nodes"]
    return [node["name"] for node in nodes]


def listed(town: WholeCluster, server: str) -> int:
    """How many topics a lookup server knows."""
    names: list[str] = []
    more = True
    while more:
        after = names[-1] if names else ""
        page = town.operate(server, "lookup.list", after=after, limit=500)
        names += page["topics"]
        more = page["more"]
    return len(names)


def test_made_and_gone(town: WholeCluster) -> None:
    """What is made and deleted is known to every server within a moment."""
    for server in ("meta", "second"):
        assert found(town, server, "t") == []
    town.operate("node", "topic.create", name="t")
    town.advance(0.2)
    for server in ("meta", "second"):
        (node,) = town.operate(server, "lookup.find", name="t")["nodes"]
        assert (node["name"], node["host"], node["port"]) == ("node", *town["node"].address)
        assert node["zone"] == "north"
        assert node["node"] == town["node"].registry.cluster.hex()
    town.operate("node", "topic.delete", name="t")
    town.advance(0.2)
    for server in ("meta", "second"):
        assert found(town, server, "t") == []


def test_in_quick_succession(town: WholeCluster) -> None:
    """What changes while a server is being told is told right after."""
    for number in range(5):
        town["node"].meta.create_topic(f"t{number}")
        town.advance(0.03)
    town.advance(0.2)
    assert listed(town, "meta") == 5


def test_signs_of_life(town: WholeCluster) -> None:
    """A broker in which nothing changes is known for as long as it lives."""
    town.operate("node", "topic.create", name="t")
    for _ in range(30):
        town.advance(2)
        assert found(town, "meta", "t") == ["node"]


def test_many_topics(town: WholeCluster) -> None:
    """More topics than fit into one call come in several, and go in several."""
    count = CALL_TOPICS + 10
    meta = town["node"].meta
    for number in range(count):
        meta.create_topic(f"t{number:04}")
    town.advance(1)
    assert [listed(town, server) for server in ("meta", "second")] == [count, count]
    for number in range(5, count):
        meta.delete_topic(f"t{number:04}")
    town.advance(1)
    assert [listed(town, server) for server in ("meta", "second")] == [5, 5]


def test_server_restarts(town: WholeCluster) -> None:
    """A server that has forgotten everything is told everything again."""
    for number in range(3):
        town.operate("node", "topic.create", name=f"t{number}")
    town.advance(1)
    town["meta"].restart()
    assert town.until(lambda: listed(town, "meta") == 3) <= 1
    assert listed(town, "second") == 3


def test_server_forgets(town: WholeCluster) -> None:
    """So is one that forgot this broker alone, with the next sign of life."""
    town.operate("node", "topic.create", name="t")
    town.hold("node", "meta")
    town.advance(SILENT_SECONDS + 1)
    assert found(town, "meta", "t") == []
    town.release("node", "meta")
    assert town.until(lambda: found(town, "meta", "t") == ["node"]) <= 7


def test_one_server_is_down(town: WholeCluster) -> None:
    """The other one is told as ever; the log has one line, and one when it is back."""
    town["second"].kill()
    for number in range(3):
        town.operate("node", "topic.create", name=f"t{number}")
        town.advance(0.2)
        assert found(town, "meta", f"t{number}") == ["node"]
    town.advance(60)
    assert town.said("the lookup server at 127.0.0.1:7801 cannot be told") == 1
    assert found(town, "meta", "t0") == ["node"]
    town["second"].start()
    assert town.until(lambda: listed(town, "second") == 3) <= 10
    assert town.said("the lookup server at 127.0.0.1:7801 answers again") == 1


def test_server_says_nothing(town: WholeCluster) -> None:
    """A server that stands still delays nobody, and knows everything when it goes on."""
    town["second"].still = True
    town.operate("node", "topic.create", name="t")
    town.advance(0.2)
    assert found(town, "meta", "t") == ["node"]
    town.advance(40)
    town["second"].still = False
    assert town.until(lambda: found(town, "second", "t") == ["node"]) <= 10


def test_stopped(town: WholeCluster) -> None:
    """A broker that is stopped or killed is forgotten in a few seconds."""
    town.operate("node", "topic.create", name="t")
    town.advance(1)
    town["node"].stop()
    town.advance(LOST_SECONDS + 0.1)
    assert found(town, "meta", "t") == []


def test_died_without_a_word(town: WholeCluster) -> None:
    """One whose machine died is forgotten when its time is over, not before."""
    town.operate("node", "topic.create", name="t")
    town.advance(1)
    town["node"].kill(unheard=True)
    town.advance(SILENT_SECONDS - 6)
    assert found(town, "meta", "t") == ["node"]
    town.advance(7)
    assert found(town, "meta", "t") == []


def test_restarted_elsewhere(town: WholeCluster) -> None:
    """A broker that comes back at another address is known there, and once."""
    town.operate("node", "topic.create", name="t")
    town["node"].stop()
    listen = ("tcp:7899:interface=127.0.0.1",)
    town["node"].config = town["node"].config.changed({"network.listen": listen})
    town["node"].start()
    town.advance(1)
    (node,) = town.operate("meta", "lookup.find", name="t")["nodes"]
    assert node["port"] == 7899


def test_late_end(town: WholeCluster) -> None:
    """The end of a link that was given up before harms nothing."""
    town.operate("node", "topic.create", name="t")
    wires = town.cut("node", "meta", deaf="meta")
    town.advance(7)
    for wire in wires:
        wire.hear()
    town.advance(10)
    assert found(town, "meta", "t") == ["node"]


def test_those_who_went_make_room(make: Make) -> None:
    """Brokers that are gone do not stay in memory until somebody asks for them."""
    town = make(0)
    for number in range(3):
        town.add(f"n{number}", role="all", meta=("meta",))
    town.start("meta")
    announcements = town["meta"].service.operations._announcements  # type: ignore[union-attr]
    for number in range(3):
        node = town[f"n{number}"].start()
        town.advance(1)
        assert [each.name for each in announcements.nodes()] == [f"n{number}"]
        node.stop()
        town.advance(4)


def test_through_a_broker(make: Make) -> None:
    """A broker whose MetaServer is elsewhere is no lookup server, and says so."""
    town = make(1)
    town.add("node", role="all", meta=("b1",))
    town.start()
    town.advance(10)
    assert town.said("is for a MetaServer") == 1
