"""What a process with a MetaServer does by the clock."""

from __future__ import annotations

from pathlib import Path

import pytest
from twisted.logger import globalLogPublisher

from tests.fakes.broker import BrokerFixture, LogKeeper


@pytest.fixture
def fixture(tmp_path: Path) -> BrokerFixture:
    """Return a broker whose MetaServer's clockwork runs."""
    fixture = BrokerFixture(tmp_path / "data")
    fixture.keeping.start()
    return fixture


def test_kept(fixture: BrokerFixture) -> None:
    """A broker stays registered for as long as it runs."""
    for _ in range(100):
        fixture.clock.advance(1)
    assert list(fixture.meta.registry.brokers) == [1]


def test_stood_still(fixture: BrokerFixture) -> None:
    """A process that stood still for longer than registrations last takes nobody for dead."""
    before, keeper = fixture.keeping.registration, LogKeeper()
    globalLogPublisher.addObserver(keeper)
    fixture.clock.advance(100)
    globalLogPublisher.removeObserver(keeper)
    assert list(fixture.meta.registry.brokers) == [1]
    assert fixture.keeping.registration == before
    assert keeper.texts == ["this process stood still for 99 s"]
    fixture.topic("still-can-be-made")


def test_stop(fixture: BrokerFixture) -> None:
    """After the stop no timer is left, and after leaving no broker."""
    fixture.keeping.stop()
    assert fixture.clock.getDelayedCalls() == []
    fixture.keeping.leave()
    assert not fixture.meta.registry.brokers


def test_ids_are_forgotten(fixture: BrokerFixture) -> None:
    """The id of a deleted topic is not kept for ever."""
    fixture.topic()
    fixture.operate("topic.delete", name="t")
    assert len(fixture.meta.registry.deleted) == 1
    fixture.wall.now_ms += 31 * 24 * 3600 * 1000
    fixture.keeping.start()
    assert len(fixture.meta.registry.deleted) == 0
