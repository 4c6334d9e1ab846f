"""Consumer groups in a cluster: known everywhere, and steered as one whatever broker leads what."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.whole_cluster import WholeCluster
from tinymq.errors import BrokerSilent, GroupBusy, MetaUnavailable, UnknownGroup
from tinymq.wire.messages import Commit, CommitReply, Committed, CommittedReply

#: Seconds after which a silence is known.
KNOWN = 6


@pytest.fixture(autouse=True)
def topic(cluster: WholeCluster) -> None:
    """Give the cluster a topic with three messages on each of two brokers."""
    cluster.operate("b1", "topic.create", name="t", partitions=2)
    client = cluster.client("b1", "b2")
    for partition in range(2):
        cluster.publish(client, "t", b"a", b"b", b"c", partition=partition)


def commit(cluster: WholeCluster, offset: int, group: str = "g", generation: int = -1) -> Any:
    """Commit on both brokers, and return what each said."""
    answers: list[Any] = []
    for index, name in enumerate(("b1", "b2")):
        broker = cluster[name].broker
        topic_id = broker.meta.registry.topic("t").id
        rows = [(topic_id, [(index, generation, offset, -1, "")])]
        broker.committing.commit(Commit(group=group, topics=rows), answers.append)
    cluster.advance(2)
    return answers


def committed(cluster: WholeCluster, group: str = "g") -> list[int]:
    """Where the group is, as each broker tells it."""
    answers: list[Any] = []
    for index, name in enumerate(("b1", "b2")):
        broker = cluster[name].broker
        topic_id = broker.meta.registry.topic("t").id
        request = Committed(group=group, topics=[(topic_id, [(index, -1)])])
        broker.committing.committed(request, answers.append)
    cluster.advance(1)
    assert all(isinstance(each, CommittedReply) for each in answers)
    return [each.topics[0][1][0][1] for each in answers]


def test_known_everywhere(cluster: WholeCluster) -> None:
    """The first commit makes the group, and all brokers know it when it is answered."""
    assert all(isinstance(each, CommitReply) for each in commit(cluster, 2))
    for name in ("b1", "b2"):
        assert list(cluster[name].registry.groups) == ["g"]
    assert cluster["b1"].registry.groups == cluster["b2"].registry.groups
    (row,) = cluster.operate("b2", "group.list")["groups"]
    assert (row["name"], row["lag"], row["partitions"], row["topics"]) == ("g", 2, 2, ["t"])
    info = cluster.operate("b1", "group.info", name="g")
    assert [(each["partition"], each["committed"]) for each in info["partitions"]] == [
        (0, 2),
        (1, 2),
    ]


def test_moved_as_one(cluster: WholeCluster) -> None:
    """A seek reaches every leader, is taken back everywhere, and a removal is known to all."""
    commit(cluster, 2)
    plan = cluster.operate("b2", "group.seek", name="g", to="earliest")["plan"]
    assert [(row["partition"], row["before"], row["after"]) for row in plan] == [
        (0, 2, 0),
        (1, 2, 0),
    ]
    assert committed(cluster) == [0, 0]
    cluster.operate("b1", "group.undo_seek", name="g")
    assert committed(cluster) == [2, 2]
    cluster.operate("b1", "group.seek", name="g", topic="t", partition=1, to="+1")
    assert committed(cluster) == [2, 3]
    cluster.operate("b2", "group.delete", name="g")
    for name in ("b1", "b2"):
        assert cluster[name].registry.groups == {}
    assert committed(cluster) == [-1, -1]
    with pytest.raises(UnknownGroup):
        cluster.operate("b1", "group.info", name="g")
    commit(cluster, 1)
    assert committed(cluster) == [1, 1]


def test_a_silent_leader(cluster: WholeCluster) -> None:
    """What is known is told, and nothing is moved by half."""
    commit(cluster, 2)
    cluster["b2"].still = True
    cluster.advance(KNOWN)
    (row,) = (found := cluster.operate("b1", "group.list"))["groups"]
    assert (found["silent"], row["lag"], row["partitions"]) == (["b2"], 1, 1)
    plan = cluster.operate("b1", "group.seek", name="g", to=0, dry_run=True)
    assert (len(plan["plan"]), plan["silent"]) == (1, ["b2"])
    with pytest.raises((BrokerSilent, GroupBusy)):
        cluster.operate("b1", "group.seek", name="g", to=0)
    assert cluster.operate("b1", "group.info", name="g")["partitions"][0]["committed"] == 2


def test_without_a_metaserver(cluster: WholeCluster) -> None:
    """Groups that are known go on without it; a new one waits for it."""
    commit(cluster, 1)
    cluster["meta"].kill()
    cluster.advance(KNOWN)
    commit(cluster, 2)
    assert committed(cluster) == [2, 2]
    assert all(isinstance(each, MetaUnavailable) for each in commit(cluster, 1, "new"))
    cluster["b1"].restart()
    cluster.advance(1)
    assert committed(cluster) == [2, 2]


def test_away_while_it_was_deleted(cluster: WholeCluster) -> None:
    """A broker that was away forgets the positions when it is back."""
    commit(cluster, 2)
    cluster["b2"].stop()
    cluster.advance(KNOWN)
    cluster.operate("b1", "group.delete", name="g", force=True)
    cluster["b2"].start()
    cluster.advance(KNOWN)
    commit(cluster, 1)
    assert committed(cluster) == [1, 1]


def test_a_metaserver_from_an_old_backup(cluster: WholeCluster) -> None:
    """It hears of the groups that it lacks from the brokers, and no position is lost."""
    cluster["meta"].stop()
    data = Path(cluster["meta"].config.storage.data)
    shutil.copytree(data, data.with_name("backup"))
    cluster["meta"].start()
    cluster.advance(KNOWN)
    commit(cluster, 2)
    before = cluster.meta.registry.group("g")
    cluster["meta"].stop()
    shutil.rmtree(data)
    data.with_name("backup").rename(data)
    cluster["meta"].start()
    cluster.advance(10)
    assert cluster.meta.registry.groups == {"g": before}
    assert committed(cluster) == [2, 2]
