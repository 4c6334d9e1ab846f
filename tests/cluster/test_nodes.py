"""Asking brokers in other processes."""

from __future__ import annotations

import pytest

from tests.fakes.whole_cluster import WholeCluster
from tinymq.errors import BrokerSilent, ConnectionLost


def test_taken_for_dead_while_it_is_asked(cluster: WholeCluster) -> None:
    """A broker that is taken for dead while it is asked is silent, and no mistake of the caller."""
    nodes = cluster["meta"].own.nodes
    cluster.hold("b1", "meta")
    outcome = cluster.begin(nodes.ask(1, "node.info", {}))
    cluster.settle()
    assert outcome == []
    cluster.meta.leave(cluster.meta.registry.brokers[1])
    with pytest.raises(ConnectionLost, match="taken for dead"):
        cluster.result(outcome)


def test_not_there(cluster: WholeCluster) -> None:
    """A broker that is not live is not asked at all."""
    with pytest.raises(BrokerSilent, match="broker 7 is not there"):
        cluster.run(cluster["meta"].own.nodes.ask(7, "node.info", {}))


def test_moved(cluster: WholeCluster) -> None:
    """A broker that has moved is asked at its new address."""
    nodes = cluster["meta"].own.nodes
    cluster.run(nodes.ask(1, "node.info", {}))
    cluster["b1"].stop()
    listen = ("tcp:7899:interface=127.0.0.1",)
    cluster["b1"].config = cluster["b1"].config.changed({"network.listen": listen})
    cluster["b1"].start()
    assert cluster.run(nodes.ask(1, "node.info", {}))["broker"]["port"] == 7899


def test_in_this_process(cluster: WholeCluster) -> None:
    """The broker of the same process is asked without a wire."""
    found = cluster.begin(cluster["meta"].own.nodes.ask(0, "node.info", {}))
    assert cluster.result(found)["broker"]["name"] == "meta"
