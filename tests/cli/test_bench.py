"""`tinymq bench`."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Run
from tests.fakes.memory_broker import MemoryBroker
from tinymq.cli.bench import latency
from tinymq.errors import StorageFull


@pytest.mark.parametrize("what", ["pub", "sub", "e2e"])
def test_figures(broker: MemoryBroker, run: Run, what: str) -> None:
    """Every measurement counts its messages, and leaves no topic behind."""
    broker.patient = True
    options = ["--msgs", "25", "--batch", "10", "--size", "100", "--json"]
    document = json.loads(run("bench", what, *options).output)
    assert (document["what"], document["messages"], document["size"]) == (what, 25, 100)
    assert document["messages_per_second"] > 0
    assert ("latency_ms" in document) == (what != "sub")
    assert set(broker.topics) == {"orders", "audit"}


def test_figures_for_people(run: Run) -> None:
    """People see the same under one another."""
    text = run("bench", "pub", "--msgs", "10").output
    assert text.startswith("pub ")
    assert "10 messages of 128 B" in text
    assert "ms per call, p99.9" in text


def test_a_topic_of_the_users_own(broker: MemoryBroker, run: Run) -> None:
    """A topic that was named is used and kept."""
    run("bench", "pub", "--msgs", "10", "--topic", "audit")
    assert len(broker.topics["audit"].partitions[0].records) == 10
    result = run("bench", "sub", "--msgs", "4", "--topic", "audit", "--json")
    assert json.loads(result.output)["messages"] >= 4
    empty = run("bench", "sub", "--topic", "orders")
    assert empty.exit_code == 1
    assert "topic orders is empty" in empty.stderr


def test_a_paced_sender(broker: MemoryBroker, run: Run) -> None:
    """A rate spreads the calls over time."""
    broker.patient = True
    options = ["--msgs", "3", "--batch", "1", "--rate", "200", "--json"]
    document = json.loads(run("bench", "e2e", *options).output)
    assert document["messages"] == 3
    assert document["seconds"] >= 0.01


def test_refused(broker: MemoryBroker, run: Run) -> None:
    """What the broker refuses ends the measurement."""
    broker.failure = StorageFull("the disk is full")
    assert run("bench", "pub", "--msgs", "10").exit_code == 1


def test_percentiles() -> None:
    """Percentiles are values that occurred."""
    found = latency([number / 1000 for number in range(1, 1001)])
    assert found == {
        "min": 1.0,
        "mean": 500.5,
        "p50": 501.0,
        "p90": 901.0,
        "p99": 991.0,
        "p99.9": 1000.0,
        "max": 1000.0,
    }
