"""What full disks, crowds and old backups do to a cluster."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest
from typing_extensions import override

from tests.cluster.conftest import Make
from tests.fakes.broker import BrokerDisk
from tests.fakes.whole_cluster import Process, WholeCluster
from tinymq.cluster.identity import REPLICA_FILE
from tinymq.cluster.remote import MOST_ASKED
from tinymq.errors import StateError, StorageFull


def fill_meta(cluster: WholeCluster) -> None:
    """Leave the MetaServer's store no room, not even for what is vital."""
    store = cluster.meta._store
    ((count,),) = store._sql("PRAGMA page_count")
    store._sql(f"PRAGMA max_page_count = {count}")
    for number in range(1000):
        try:
            cluster.meta._write([], [], vital=True)
            store.put(f"filler/{number}", b"x" * 500)
        except StorageFull:
            break
    for number in range(1000):
        try:
            store.put(f"small/{number}", b"x")
        except StorageFull:
            return
    raise AssertionError("it was never full")


class TestFullDisk:
    def test_of_a_broker(self, cluster: WholeCluster) -> None:
        """A broker on a full disk follows the MetaServer, and serves after a restart, too."""
        b1 = cluster["b1"]
        cluster.operate("meta", "topic.create", name="before", partitions=2)
        cluster.publish(cluster.client("b1"), "before", b"v", partition=0)
        b1.ground.room.room = 0
        cluster.operate("meta", "topic.create", name="after", partitions=2)
        cluster.advance(5)
        b1.kill()
        b1.start()
        assert b1.entered
        assert not b1.reactor.ended
        assert sorted(b1.registry.by_name) == ["after", "before"]
        assert cluster.read(cluster.client("b1"), "before", 1) == [b"v"]
        cluster.advance(60)
        assert cluster.said("the MetaServer refuses this broker") == 0
        b1.ground.room.room = None
        b1.restart()
        cluster.publish(cluster.client("b1"), "after", b"w", partition=0)

    def test_of_the_meta_server(self, cluster: WholeCluster) -> None:
        """A broker whose MetaServer can write nothing starts with what it knows."""
        cluster.operate("meta", "topic.create", name="t", partitions=2)
        fill_meta(cluster)
        cluster["b1"].restart()
        cluster.advance(60)
        assert cluster["b1"].entered
        assert not cluster["b1"].reactor.ended
        assert cluster.said("cannot take this broker") == 1
        assert cluster.said("the MetaServer refuses this broker") <= 1
        cluster.publish(cluster.client("b1"), "t", b"v", partition=0)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO])
def test_what_cannot_be_opened_now(cluster: WholeCluster, number: int) -> None:
    """A topic made while a broker can open no file is there without a restart, and says why not."""
    b1 = cluster["b1"]
    b1.ground.room.failing["read_file"] = number
    for name in ("t", "u"):
        cluster.operate("meta", "topic.create", name=name, partitions=2)
    cluster.advance(20)
    client = cluster.client("b1")
    with pytest.raises(StateError, match=r"t/0 is not open yet: .*(open files|Input/output)"):
        cluster.publish(client, "t", b"v", partition=0)
    b1.ground.room.failing.clear()
    for name in ("t", "u"):
        cluster.publish(client, name, b"v", partition=0)
    assert cluster.said("is not open yet") == 2
    assert cluster.said("is open now") == 2
    b1.ground.room.failing["read_file"] = number
    cluster.operate("meta", "topic.create", name="gone", partitions=2)
    cluster.operate("meta", "topic.delete", name="gone")
    cluster.advance(20)


class SlowDisk(BrokerDisk):
    """A disk on which it takes a while to keep a replica."""

    def __init__(self, machine: Process) -> None:
        super().__init__()
        self._machine = machine
        self.kept = 0

    @override
    def replace_file(self, path: str, content: bytes, *, durable: bool = True) -> None:
        super().replace_file(path, content, durable=durable)
        if path.endswith(REPLICA_FILE):
            self.kept += 1
            self._machine.reactor.rightNow += 0.02


def test_what_is_known_is_kept_in_time(make: Make) -> None:
    """A broker with very many topics does not write all that it knows at each change."""
    cluster = make(1)
    b1 = cluster["b1"]
    b1.ground.room = b1.ground.disk = disk = SlowDisk(b1)
    cluster.start()
    cluster.advance(2)
    began = disk.kept
    for number in range(20):
        cluster.operate("meta", "topic.create", name=f"t{number}")
    assert disk.kept <= began + 2
    cluster.advance(2)
    cluster["meta"].kill()
    b1.kill()
    b1.start()
    assert len(b1.registry.topics) == 20
    cluster.advance(1)
    b1.stop()


def test_a_crowd_behind_one_broker(cluster: WholeCluster) -> None:
    """Hundreds of topics made at once by their first use at one broker wait for their turn."""
    names = [f"t{number}" for number in range(MOST_ASKED + 40)]
    found = cluster.run(cluster.client("b1").metadata(names, create=True))
    assert sorted(found) == sorted(names)
    assert len(cluster.meta.registry.topics) == len(names)


def test_first_use_after_an_older_backup(cluster: WholeCluster) -> None:
    """A topic can be made by its first use although the MetaServer's revisions began anew."""
    cluster["meta"].stop()
    data = Path(cluster["meta"].config.storage.data)
    shutil.copytree(data, data.with_name("backup"))
    cluster["meta"].start()
    cluster.advance(3)
    for number in range(20):
        cluster.operate("meta", "topic.create", name=f"lost{number}")
    cluster["meta"].stop()
    shutil.rmtree(data)
    data.with_name("backup").rename(data)
    cluster["meta"].start()
    client = cluster.client("b1")
    cluster.until(lambda: cluster.meta.registry.brokers)
    cluster.publish(client, "new", b"v")
    assert cluster.said("deleted as soon as it was made") == 0
    assert cluster.read(client, "new", 1) == [b"v"]
