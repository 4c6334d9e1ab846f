"""Producer ids over brokers, restarts, and times without a MetaServer."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.conftest import Make
from tests.fakes.whole_cluster import WholeCluster
from tinymq.errors import MetaUnavailable
from tinymq.operations.members import HEARD_SECONDS
from tinymq.wire.messages import InitProducerReply


def take(cluster: WholeCluster, name: str, count: int = 1) -> list[int]:
    """Take producer ids of a broker, which has them or gets them."""
    found: list[Any] = []
    for _ in range(count):
        cluster[name].broker.init_producer(found.append)
    cluster.until(lambda: len(found) == count, HEARD_SECONDS + 0.1)
    cluster.settle()
    assert all(isinstance(each, InitProducerReply) for each in found), found
    return [each.producer_id for each in found]


def test_never_twice(make: Make) -> None:
    """Ids are never given out twice: over brokers, blocks, stops, kills and a new MetaServer."""
    cluster = make(2, producers__id_block=10).start()
    given: list[int] = []
    for end in ("stop", "kill"):
        for name in ("b1", "b2", "meta"):
            given += take(cluster, name, 15)
        cluster["meta"].restart()
        for name in ("b1", "b2"):
            getattr(cluster[name], end)()
            cluster[name].start()
            given += take(cluster, name, 3)
    assert len(set(given)) == len(given)


def test_spare(make: Make) -> None:
    """Without the MetaServer a broker gives out what it has and a spare block, then refuses."""
    cluster = make(1, producers__id_block=10).start()
    take(cluster, "b1")
    cluster.advance(6)
    cluster["meta"].kill()
    cluster.advance(1)
    take(cluster, "b1", 9 + 10)
    refused: list[Any] = []
    cluster["b1"].broker.init_producer(refused.append)
    cluster.advance(10)
    (error,) = refused
    assert isinstance(error, MetaUnavailable)
    assert error.retriable
    cluster["meta"].start()
    cluster.advance(3)
    take(cluster, "b1", 25)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_spare_survives(make: Make, end: str) -> None:
    """The spare block is there after a restart without the MetaServer, once."""
    cluster = make(1, producers__id_block=10).start()
    given = take(cluster, "b1", 5)
    cluster.advance(6)
    cluster["meta"].kill()
    for _ in range(2):
        getattr(cluster["b1"], end)()
        cluster["b1"].start()
    given += take(cluster, "b1", 10)
    assert len(set(given)) == len(given)
    getattr(cluster["b1"], end)()
    cluster["b1"].start()
    refused: list[Any] = []
    cluster["b1"].broker.init_producer(refused.append)
    cluster.advance(10)
    assert isinstance(refused[0], MetaUnavailable)


def test_waiting_producers(make: Make) -> None:
    """A producer that starts while there are no ids gets one when the MetaServer is back."""
    cluster = make(1, producers__id_block=1).start()
    cluster.operate("b1", "topic.create", name="t")
    cluster.advance(6)
    cluster["meta"].kill()
    cluster.advance(1)
    take(cluster, "b1")
    producer = cluster.client("b1").producer()
    waiting = cluster.begin(producer.send("t", b"v"))
    cluster.advance(5)
    cluster["meta"].start()
    cluster.advance(10)
    assert cluster.result(waiting).offset == 0


def test_full_disk(make: Make) -> None:
    """A broker that cannot keep its spare block goes on without, and says so."""
    cluster = make(1, producers__id_block=10).start()
    cluster["b1"].ground.room.room = 0
    take(cluster, "b1", 25)
    assert cluster.said("producer ids cannot be put by") > 0
    cluster["b1"].ground.room.room = None
    cluster.advance(6)
    take(cluster, "b1", 25)


def test_file_that_stays(make: Make) -> None:
    """Ids whose file cannot be changed are not given out, for they would be again."""
    cluster = make(1, producers__id_block=10).start()
    first = set(take(cluster, "b1", 10))
    cluster["b1"].ground.room.failing["open"] = errno.EIO
    second = set(take(cluster, "b1", 10))
    del cluster["b1"].ground.room.failing["open"]
    cluster["meta"].kill()
    cluster["b1"].kill()
    cluster["b1"].start()
    third = set(take(cluster, "b1", 10))
    assert len(first | second | third) == 30


def test_older_backup(make: Make) -> None:
    """A MetaServer from an old backup gives out no id that a broker was given before."""
    cluster = make(2, producers__id_block=10).start()
    cluster["meta"].stop()
    data = Path(cluster["meta"].config.storage.data)
    shutil.copytree(data, data.with_name("backup"))
    cluster["meta"].start()
    cluster.advance(3)
    given = take(cluster, "b1", 30) + take(cluster, "b2", 40)
    cluster["b1"].kill()
    cluster["meta"].stop()
    shutil.rmtree(data)
    data.with_name("backup").rename(data)
    cluster["meta"].start()
    cluster["b1"].start()
    cluster.advance(10)
    for name in ("b1", "b2", "meta"):
        given += take(cluster, name, 30)
    assert len(set(given)) == len(given)
