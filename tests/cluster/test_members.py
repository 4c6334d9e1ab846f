"""What the MetaServer says to brokers in other processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.broker import BrokerFixture
from tinymq.errors import ForeignCluster

_ADDRESS = {"name": "other", "host": "127.0.0.1", "port": 7899}


def test_a_broker_of_another_cluster(tmp_path: Path) -> None:
    """A data folder of another cluster is refused before its number means anything here."""
    fixture = BrokerFixture(tmp_path / "data")
    own = fixture.operate("meta.register", id=0, **_ADDRESS)
    fixture.meta.leave(fixture.meta.registry.brokers[own["id"]])
    with pytest.raises(ForeignCluster, match=f"{'ab' * 16}.*{own['cluster']}"):
        fixture.operate("meta.register", id=own["id"], cluster="ab" * 16, **_ADDRESS)
    assert own["id"] not in fixture.meta.registry.brokers
    again = fixture.operate("meta.register", id=own["id"], cluster=own["cluster"], **_ADDRESS)
    assert again["incarnation"] == own["incarnation"] + 1
