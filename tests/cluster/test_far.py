"""Being a broker whose MetaServer is elsewhere."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from twisted.internet.error import ConnectionRefusedError as Refused
from twisted.internet.testing import MemoryReactorClock
from twisted.python.failure import Failure

from tests.fakes.broker import BrokerDisk, BrokerFixture
from tinymq.cluster.far import FarMeta
from tinymq.cluster.identity import REPLICA_FILE, write_number
from tinymq.meta.replica import Replica
from tinymq.storage.folder import DataFolder


def test_start_without_a_meta_server(tmp_path: Path) -> None:
    """A broker that knows its topics from before starts as soon as no MetaServer was reached."""
    fixture = BrokerFixture(tmp_path / "meta")
    fixture.topic("known")
    folder = DataFolder.open(str(tmp_path / "broker"), BrokerDisk())
    replica = Replica()
    replica.apply(fixture.meta.changes(""))
    replica.save(folder.disk, f"{folder.path}/{REPLICA_FILE}")
    write_number(folder, 7)
    config = fixture.config.changed({"cluster.role": "broker", "cluster.meta": ("127.0.0.1:7899",)})
    reactor: Any = MemoryReactorClock()
    with ExitStack() as opened:
        far = FarMeta(reactor, config, folder, opened)
        fixture.broker.address = ("127.0.0.1", 7800)
        far.join(fixture.broker, fixture.node)
        entered: list[Any] = []
        far.enter().addBoth(entered.append)
        assert entered == []
        *_, factory, _, _ = reactor.tcpClients[-1]
        factory.clientConnectionFailed(None, Failure(Refused()))
        reactor.advance(0.5)
        assert entered == [None]
        assert "known" in far.directory.registry.by_name
