"""Watching a broker once a second."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.broker import BrokerFixture
from tinymq.sampling import LAG_LOOKS, WHOLE, Sampler


@pytest.fixture
def fixture(tmp_path: Path) -> BrokerFixture:
    """Return a broker with a topic in memory."""
    fixture = BrokerFixture(tmp_path / "data")
    fixture.topic(storage="memory", partitions=2)
    return fixture


def second(fixture: BrokerFixture, sampler: Sampler, count: int = 1) -> None:
    """Let seconds pass."""
    for _ in range(count):
        fixture.wall.now_ms += 1000
        sampler.sample()


def test_rates(fixture: BrokerFixture) -> None:
    """Rates of the broker, a topic and a partition come from the counters."""
    sampler = Sampler(fixture.broker)
    topic = fixture.meta.describe("t")
    for _ in range(10):
        fixture.produce(b"a", b"b")
        fixture.produce(b"c", partition=1)
        second(fixture, sampler)
    rates = sampler.history.rates
    now = fixture.wall()
    assert rates(WHOLE, now).messages_in == pytest.approx(3, rel=0.2)
    assert rates(topic.id, now).messages_in == pytest.approx(3, rel=0.2)
    assert rates((topic.id, 1), now).messages_in == pytest.approx(1, rel=0.2)
    second(fixture, sampler, 20)
    assert rates(WHOLE, fixture.wall()).messages_in == 0


def test_deleted(fixture: BrokerFixture) -> None:
    """A topic deleted by anybody is forgotten, and the broker's sums do not fall with it."""
    sampler = Sampler(fixture.broker)
    fixture.topic("other", storage="memory")
    fixture.produce(b"a", topic="other")
    for _ in range(5):
        fixture.produce(b"a", b"b")
    second(fixture, sampler)
    topic = fixture.meta.describe("t")
    gone = fixture.broker.partitions_of(topic)
    fixture.operate("topic.delete", name="t")
    second(fixture, sampler, 20)
    assert sampler.history.rates(WHOLE, fixture.wall()).messages_in == 0
    assert not set(gone) & set(sampler._last)
    assert topic.id not in sampler.history._last
    fixture.produce(b"b", topic="other")
    second(fixture, sampler)
    fixture.wall.now_ms += 2000
    assert sampler.history.rates(WHOLE, fixture.wall()).messages_in == pytest.approx(0.1, rel=0.2)


def test_lateness(fixture: BrokerFixture) -> None:
    """How late timers run is the 99th percentile of the last minute."""
    sampler = Sampler(fixture.broker)
    assert sampler.lateness_ms is None
    sampler.start()
    for _ in range(2 * LAG_LOOKS):
        fixture.clock.advance(0.1)
    assert sampler.lateness_ms == pytest.approx(0, abs=1)
    for _ in range(20):
        fixture.clock.advance(0.3)
    assert sampler.lateness_ms == pytest.approx(200, abs=10)
    sampler.stop()
    assert fixture.clock.getDelayedCalls() == []
    sampler.stop()


def test_every_second(fixture: BrokerFixture) -> None:
    """It samples by itself."""
    sampler = Sampler(fixture.broker)
    sampler.start()
    fixture.produce(b"a")
    fixture.clock.advance(1)
    fixture.wall.now_ms += 2000
    assert sampler.history.rates(WHOLE, fixture.wall()).messages_in > 0
    sampler.stop()
