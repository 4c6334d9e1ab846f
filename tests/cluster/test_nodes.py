"""Asking brokers in other processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.testing import MemoryReactorClock
from twisted.python.failure import Failure

from tests.fakes.broker import BrokerFixture
from tinymq.cluster.nodes import ClusterNodes
from tinymq.errors import ConnectionLost


def test_taken_for_dead_while_it_is_asked(tmp_path: Path) -> None:
    """A broker that is taken for dead while it is asked is silent, and no mistake of the caller."""
    fixture = BrokerFixture(tmp_path / "data")
    reactor: Any = MemoryReactorClock()
    nodes = ClusterNodes(reactor, fixture.meta, 1, fixture.node)
    other = fixture.meta.register(0, "other", ("127.0.0.1", 7899))
    outcome: list[Any] = []
    Deferred.fromCoroutine(nodes.ask(other.id, "node.info", {})).addBoth(outcome.append)
    assert outcome == []
    fixture.meta.leave(other)
    (failure,) = outcome
    assert isinstance(failure, Failure)
    assert failure.check(ConnectionLost)
    assert "taken for dead" in str(failure.value)
