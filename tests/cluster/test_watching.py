"""Those who wait for changes: they wake at once, and leave nothing behind."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.conftest import Make
from tests.fakes.whole_cluster import WholeCluster
from tinymq.caller import Caller
from tinymq.errors import InvalidRequest, MetaUnavailable, StateError
from tinymq.protocol import MOST_OPERATIONS


def revision(cluster: WholeCluster, name: str = "meta") -> int:
    """The revision that a process knows."""
    return cluster[name].registry.revision


def watch(cluster: WholeCluster, process: str, wait_ms: int = 30_000) -> list[Any]:
    """Begin to wait for something newer than what is known."""
    now = revision(cluster, process)
    waiting = cluster.begin(cluster.ask(process, "cluster.watch", revision=now, wait_ms=wait_ms))
    cluster.advance(0.01)
    return waiting


def left(cluster: WholeCluster, process: str) -> tuple[int, int]:
    """How many timers and observers a process has."""
    found = cluster[process]
    observers = found.meta._observers if process == "meta" else found.far._replica._observers
    return len(found.reactor.getDelayedCalls()), len(observers._observers)


@pytest.mark.parametrize("process", ["meta", "b1"])
class TestClusterWatch:
    def test_now(self, cluster: WholeCluster, process: str) -> None:
        """Without a revision the answer comes at once: which it is."""
        found = cluster.operate(process, "cluster.watch")
        assert found == {"revision": revision(cluster, process), "changes": []}

    def test_wakes_at_once(self, cluster: WholeCluster, process: str) -> None:
        """Every kind of change wakes who waits, without any delay."""
        for operation, arguments, change in (
            ("topic.create", {"name": "t"}, ("topic", "t", "made")),
            ("topic.alter", {"name": "t", "partitions": 3}, ("topic", "t", "changed")),
            ("topic.delete", {"name": "t"}, ("topic", "t", "gone")),
            ("broker.drain", {"broker": "b2"}, ("broker", "b2", "changed")),
        ):
            waiting, began = watch(cluster, process), cluster.now
            cluster.operate("b2", operation, **arguments)
            cluster.settle()
            (found,) = waiting
            assert cluster.now == began
            assert found["changes"] == [dict(zip(("what", "name", "change"), change, strict=True))]
            assert found["revision"] == revision(cluster)

    def test_brokers(self, cluster: WholeCluster, process: str) -> None:
        """Brokers that go and come wake who waits."""
        waiting = watch(cluster, process)
        cluster["b2"].stop()
        (found,) = waiting
        assert found["changes"] == [{"what": "broker", "name": "b2", "change": "gone"}]
        waiting = watch(cluster, process)
        cluster["b2"].start()
        assert waiting[0]["changes"] == [{"what": "broker", "name": "b2", "change": "made"}]

    def test_nothing_new(self, cluster: WholeCluster, process: str) -> None:
        """When nothing changes the answer is empty, in time."""
        began = cluster.now
        waiting = watch(cluster, process, 7_000)
        cluster.advance(6.9)
        assert waiting == []
        cluster.advance(0.2)
        assert waiting[0]["changes"] == []
        assert 7 <= cluster.now - began <= 7.2

    def test_past(self, cluster: WholeCluster, process: str) -> None:
        """What changed before is told at once."""
        before = revision(cluster, process)
        cluster.operate("b1", "topic.create", name="t")
        cluster.operate("b1", "topic.create", name="u")
        found = cluster.operate(process, "cluster.watch", revision=before)
        assert [each["name"] for each in found["changes"]] == ["t", "u"]

    def test_out_of_reach(self, cluster: WholeCluster, process: str) -> None:
        """A revision before the history, or behind its end, is refused at once."""
        cluster.operate("b1", "topic.create", name="t")
        cluster.meta._compact(cluster.meta.revision)
        cluster.operate("b1", "topic.create", name="u")
        began = cluster.now
        with pytest.raises(InvalidRequest, match="look at everything anew"):
            cluster.operate(process, "cluster.watch", revision=1)
        assert cluster.now - began < 0.1

    def test_future(self, cluster: WholeCluster, process: str) -> None:
        """A revision that was never reached is refused, if only when time is up."""
        with pytest.raises(InvalidRequest, match="look at everything anew"):
            cluster.operate(process, "cluster.watch", revision=10_000, wait_ms=5_000)

    def test_many(self, cluster: WholeCluster, process: str) -> None:
        """Hundreds who wait are all told; a broker stays a member meanwhile."""
        lease = cluster.meta.registry.brokers[1].lease
        clients = [cluster.client(process) for _ in range(8)]
        for client in clients:
            cluster.run(client.admin.operate("broker.info"))
        before, now = left(cluster, process), revision(cluster, process)
        waiting = [
            cluster.begin(client.admin.operate("cluster.watch", revision=now, wait_ms=50_000))
            for client in clients
            for _ in range(MOST_OPERATIONS // 2)
        ]
        cluster.advance(20)
        assert not any(waiting)
        cluster.operate("meta", "topic.create", name="t")
        cluster.advance(0.1)
        assert all(each[0]["changes"][0]["name"] == "t" for each in waiting)
        assert cluster.meta.registry.brokers[1].lease == lease
        timers, observers = left(cluster, process)
        assert observers == before[1]
        assert timers < before[0] + 10  # those of a few questions between the processes

    @pytest.mark.parametrize("other", ["meta", "b1", "b2"])
    def test_gone(self, cluster: WholeCluster, process: str, other: str) -> None:
        """Who is gone leaves no timer and no observer behind, at no process."""
        client = cluster.client(process)
        cluster.run(client.admin.operate("broker.info"))
        cluster.advance(0.001)
        before = left(cluster, other)
        cluster.begin(
            client.admin.operate(
                "cluster.watch", revision=revision(cluster, process), wait_ms=60_000
            )
        )
        cluster.settle()
        assert (left(cluster, other) > before) == (process == other)
        closing = cluster.begin(client.close())
        cluster.settle()
        assert closing
        timers, observers = left(cluster, other)
        # The broker lets the last bytes of a connection go out.
        assert timers <= before[0]
        assert observers == before[1]


class TestWithoutMetaServer:
    def test_nothing_new(self, cluster: WholeCluster) -> None:
        """At a broker one can wait also while the MetaServer is away."""
        cluster["meta"].kill()
        cluster.advance(1)
        now = revision(cluster, "b1")
        found = cluster.operate("b1", "cluster.watch", revision=now, wait_ms=2_000)
        assert found == {"revision": now, "changes": []}

    def test_changes(self, cluster: WholeCluster) -> None:
        """What has changed can be told only when it is back."""
        before = revision(cluster, "b1")
        cluster.operate("b1", "topic.create", name="t")
        cluster["meta"].kill()
        cluster.advance(1)
        client = cluster.client("b1", deadline_s=3)
        with pytest.raises(MetaUnavailable):
            cluster.run(client.admin.operate("cluster.watch", revision=before, wait_ms=1))


class TestMetaWatch:
    def ask(self, cluster: WholeCluster, caller: Caller, **arguments: Any) -> list[Any]:
        """Ask as the first broker."""
        member = cluster["b1"].far.directory._member
        assert member is not None
        told = {"id": member.id, "lease": member.lease, "revision": revision(cluster)}
        operations = cluster["meta"].service.operations
        return cluster.begin(operations.run("meta.watch", {**told, **arguments}, caller))

    def test_wakes_and_times_out(self, cluster: WholeCluster) -> None:
        """A broker hears of a change at once, and of nothing after its time."""
        cursor = cluster["b1"].far._replica.cursor
        waiting = self.ask(cluster, Caller(), cursor=cursor, wait_ms=3_000)
        cluster.advance(2.9)
        assert waiting == []
        cluster.advance(0.2)
        assert waiting[0]["events"] == []
        waiting = self.ask(cluster, Caller(), cursor=cursor, wait_ms=3_000)
        cluster.meta.create_topic("t")
        assert len(waiting[0]["events"]) == 1
        assert not waiting[0]["full"]

    def test_not_whole(self, cluster: WholeCluster) -> None:
        """A cursor of another history, or of a time before it, gets everything."""
        cluster.operate("b1", "topic.create", name="t")
        cluster.meta._compact(cluster.meta.revision)
        cluster.meta.create_topic("u")
        history = cluster["b1"].far._replica.cursor.partition(".")[0]
        for cursor in ("", "nonsense", "0123456789abcdef.3", f"{history}.1"):
            waiting = self.ask(cluster, Caller(), cursor=cursor, revision=-1)
            assert waiting[0]["full"], cursor
            assert any(key.startswith("topic/") for key, _, _ in waiting[0]["events"])

    def test_gone(self, cluster: WholeCluster) -> None:
        """A broker whose connection ends while it waits leaves nothing behind."""
        cluster.advance(0.001)
        before, caller = left(cluster, "meta"), Caller()
        waiting = self.ask(cluster, caller, wait_ms=5_000)
        assert left(cluster, "meta") == (before[0] + 1, before[1] + 1)
        caller.gone()
        assert len(waiting) == 1
        assert left(cluster, "meta") == before

    def test_no_member(self, cluster: WholeCluster) -> None:
        """Who is not registered is told to register."""
        waiting = self.ask(cluster, Caller(), lease=99)
        with pytest.raises(StateError, match="register again"):
            cluster.result(waiting)


def test_replaced(make: Make) -> None:
    """Cutting the link while a broker waits leaves one question open, over the new link."""
    cluster = make(1).start()
    cluster.advance(0.001)
    before = left(cluster, "meta")
    for _ in range(5):
        cluster.cut("b1", "meta")
        cluster.advance(1)
    assert left(cluster, "meta")[1] == before[1]
