"""Asking brokers in other processes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest

from twisted.internet.defer import Deferred
from twisted.internet.testing import MemoryReactorClock
from twisted.python.failure import Failure

from tests.fakes.broker import BrokerFixture, outcome_of
from tests.fakes.two_brokers import TwoBrokers
from tinymq.client import Client
from tinymq.cluster.nodes import ClusterNodes
from tinymq.errors import ConnectionLost, NoBroker, Overloaded, ShuttingDown


def test_taken_for_dead_while_it_is_asked(tmp_path: Path) -> None:
    """A broker that is taken for dead while it is asked is silent, and no mistake of the caller."""
    fixture = BrokerFixture(tmp_path / "data")
    reactor: Any = MemoryReactorClock()
    nodes = ClusterNodes(partial(Client, reactor), fixture.meta, 1, fixture.node)
    other = fixture.meta.register(0, "other", ("127.0.0.1", 7899))
    outcome: list[Any] = []
    Deferred.fromCoroutine(nodes.ask(other.id, "node.info", {})).addBoth(outcome.append)
    assert outcome == []
    fixture.meta.leave(other)
    (failure,) = outcome
    assert isinstance(failure, Failure)
    assert failure.check(ConnectionLost)
    assert "taken for dead" in str(failure.value)


def test_an_address_that_is_none(tmp_path: Path) -> None:
    """A broker whose address cannot be one is silent, and does not break lists of all brokers."""
    fixture = BrokerFixture(tmp_path / "data")
    other = fixture.meta.register(0, "other", ("127.0.0.1", 7899))
    brokers = {**fixture.meta.registry.brokers, other.id: attrs.evolve(other, host="a\nb")}
    fixture.meta.registry = attrs.evolve(fixture.meta.registry, brokers=brokers)
    nodes = ClusterNodes(partial(Client, MemoryReactorClock()), fixture.meta, 1, fixture.node)
    with pytest.raises(NoBroker):
        outcome_of(nodes.ask(other.id, "node.info", {}))


@pytest.mark.parametrize("trouble", [ShuttingDown("stopping"), Overloaded("too many")])
def test_one_that_takes_no_questions(tmp_path: Path, trouble: Exception) -> None:
    """A broker that is stopping, or has too much to do, does not hide what the others tell."""
    two = TwoBrokers(tmp_path)
    two.trouble = trouble
    found = two.here.operate("broker.list")
    assert found["silent"] == ["two"]
    assert [row["state"] for row in found["brokers"]] == ["ready", "silent"]


def test_brokers_that_are_gone(tmp_path: Path) -> None:
    """A broker that is gone is listed as long as it leads partitions, and no longer."""
    two = TwoBrokers(tmp_path)
    two.here.meta.register(0, "three", ("192.0.2.3", 7800))
    two.here.topic("t", 3)
    for broker in (2, 3):
        two.here.meta.leave(two.here.meta.registry.brokers[broker])
    names = [row["name"] for row in two.here.operate("broker.list")["brokers"]]
    assert names == ["tinymq", "two", "three"]
    two.here.operate("topic.delete", name="t")
    assert [row["name"] for row in two.here.operate("broker.list")["brokers"]] == ["tinymq"]
