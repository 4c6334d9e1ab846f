"""Brokers that cannot be asked, among others that can."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from tests.fakes.two_brokers import TwoBrokers
from tests.fakes.whole_cluster import WholeCluster
from tinymq.errors import NoBroker, Overloaded, ShuttingDown


def test_an_address_that_is_none(cluster: WholeCluster) -> None:
    """A broker whose address cannot be one is silent, and does not break lists of all brokers."""
    meta = cluster.meta
    live = meta.registry.brokers
    brokers = {**live, 7: attrs.evolve(live[1], id=7, host="a\nb")}
    meta.registry = attrs.evolve(meta.registry, brokers=brokers)
    with pytest.raises(NoBroker):
        cluster.run(cluster["meta"].own.nodes.ask(7, "node.info", {}))


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
