"""How the process of a broker is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.broker import BrokerFixture
from tinymq.errors import StorageFull
from tinymq.figures.vitals import LAG_LOOKS, Vitals
from tinymq.stats import CLUSTER_CLIENTS


@pytest.fixture
def fixture(tmp_path: Path) -> BrokerFixture:
    """Return a broker."""
    return BrokerFixture(tmp_path / "data")


def vitals_of(fixture: BrokerFixture) -> Vitals:
    """Its vitals."""
    vitals = Vitals(fixture.broker)
    vitals.connections = fixture.factory.connections
    return vitals


def test_lateness(fixture: BrokerFixture) -> None:
    """How late timers run is the 99th percentile of the last minute."""
    vitals = vitals_of(fixture)
    assert vitals.lateness_ms is None
    vitals.start()
    for _ in range(2 * LAG_LOOKS):
        fixture.clock.advance(0.1)
    assert vitals.lateness_ms == pytest.approx(0, abs=1)
    for _ in range(20):
        fixture.clock.advance(0.3)
    assert vitals.lateness_ms == pytest.approx(200, abs=10)
    vitals.stop()
    assert fixture.clock.getDelayedCalls() == []
    vitals.stop()


def test_files(fixture: BrokerFixture) -> None:
    """Log files that are open are counted beside their limit."""
    before = vitals_of(fixture).snapshot()
    fixture.topic("t", partitions=3)
    for partition in range(3):
        fixture.produce(b"a", partition=partition)
    after = vitals_of(fixture).snapshot()
    assert (before.files, after.files) == (0, 3)
    assert after.files_limit == fixture.config.storage.max_open_files


def test_what_it_leads(fixture: BrokerFixture) -> None:
    """Topics and partitions are those that this broker leads, as of now."""
    vitals = vitals_of(fixture)
    assert (vitals.snapshot().topics, vitals.snapshot().partitions) == (0, 0)
    fixture.topic("t", partitions=3)
    fixture.topic("u", storage="memory")
    found = vitals.snapshot()
    assert (found.id, found.topics, found.partitions) == (1, 2, 4)
    assert found.incarnation == fixture.meta.registry.brokers[1].incarnation


def test_refusing_and_clients(fixture: BrokerFixture) -> None:
    """Why publishing is refused is told, and how many clients there are."""
    fixture.connect()
    fixture.broker.refuse(StorageFull("no space"))
    found = vitals_of(fixture).snapshot()
    assert (found.refusing, found.connections, found.slow_clients) == ("no space", 1, 0)


def test_the_clusters_own_are_told_apart(fixture: BrokerFixture) -> None:
    """Connections of the cluster's own processes are no clients; the command line is one."""
    fixture.connect(hello=False)
    for name in (*sorted(CLUSTER_CLIENTS), "tinymq-cli", ""):
        fixture.connect(client_id=name)
    found = vitals_of(fixture).snapshot()
    assert (found.connections, found.own_connections, found.clients) == (6, 3, 3)


def test_the_system_is_asked_once_a_second(fixture: BrokerFixture, tmp_path: Path) -> None:
    """What the system counts may be a second old, and is counted anew then."""
    vitals = vitals_of(fixture)
    before = vitals.snapshot().descriptors
    with (tmp_path / "one").open("wb"), (tmp_path / "two").open("wb"):
        assert vitals.snapshot().descriptors == before
        fixture.clock.advance(1)
        after = vitals.snapshot().descriptors
    assert before is not None
    assert after == before + 2
