"""Brokers that register, are taken for dead, and come back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cluster.conftest import Make
from tests.fakes.whole_cluster import WholeCluster
from tinymq.errors import InvalidRequest, StateError
from tinymq.meta.membership import BROKER_SECONDS, LOST_SECONDS
from tinymq.protocol import MOST_OPERATIONS


def live(cluster: WholeCluster) -> list[int]:
    """The numbers of the live brokers."""
    return sorted(cluster.meta.registry.brokers)


class TestRegister:
    def test_numbers_and_names(self, make: Make) -> None:
        """Brokers get numbers in the order in which they come, and a name if they have none."""
        cluster = make(1)
        cluster.add("nameless", role="broker", meta=("meta",), broker__name="tinymq")
        cluster.start()
        assert [cluster[name].broker.id for name in ("b1", "nameless")] == [1, 2]
        assert cluster["nameless"].broker.name == "broker-2"
        assert {each.name for each in cluster.meta.registry.brokers.values()} == {"b1", "broker-2"}

    def test_incarnation_rises(self, cluster: WholeCluster) -> None:
        """Each start of a broker has the same number and a higher incarnation."""
        before = cluster.meta.registry.brokers[1]
        cluster["b1"].restart()
        after = cluster.meta.registry.brokers[1]
        assert (after.name, after.incarnation) == ("b1", before.incarnation + 1)
        cluster["b1"].kill()
        cluster["b1"].start()
        assert cluster.meta.registry.brokers[1].incarnation == before.incarnation + 2

    def test_address_follows(self, cluster: WholeCluster) -> None:
        """Everybody hears of a broker's new address."""
        cluster["b1"].stop()
        listen = ("tcp:7899:interface=127.0.0.1",)
        cluster["b1"].config = cluster["b1"].config.changed({"network.listen": listen})
        cluster["b1"].start()
        for name in ("meta", "b1", "b2"):
            assert cluster[name].registry.brokers[1].port == 7899, name

    def test_number_is_kept_when_the_answer_behind_it_is_lost(self, make: Make) -> None:
        """A link that ends between registering and catching up costs no second number."""
        cluster = make(1)
        cluster["meta"].start()
        cluster["b1"].start(settle=False)
        cluster.until(lambda: live(cluster))
        cluster.cut("b1", "meta")
        cluster.until(lambda: cluster["b1"].entered)
        assert cluster["b1"].broker.id == 1
        assert live(cluster) == [1]

    def test_through_another_broker(self, make: Make) -> None:
        """A broker that takes another one for its MetaServer is told so, and not waited for."""
        cluster = make(1)
        cluster.add("lost", role="broker", meta=("b1",))
        cluster.start("meta", "b1")
        cluster["lost"].start()
        assert "is for a MetaServer" in cluster.texts[-1]
        assert ("stop",) in cluster["lost"].reactor.ended
        with pytest.raises(InvalidRequest, match="b1 is a broker"):
            cluster.operate("b1", "meta.producer_ids")


class TestTwoOfOne:
    def copy(self, cluster: WholeCluster) -> None:
        """Copy the data folder of the first broker while it does not run."""
        cluster["b1"].stop()
        cluster.add("copy", role="broker", meta=("meta",))
        data = Path(cluster["b1"].config.storage.data)
        shutil.copytree(data, cluster["copy"].config.storage.data)
        cluster["b1"].start()

    def test_copied_folder(self, cluster: WholeCluster) -> None:
        """A broker with the number of a live one gives up after a while, and says what to do."""
        self.copy(cluster)
        cluster["copy"].start()
        assert "trying again" in cluster.texts[-1]
        cluster.advance(19)
        assert not cluster["copy"].reactor.ended
        cluster.advance(3)
        assert ("stop",) in cluster["copy"].reactor.ended
        assert "give each broker a data folder of its own" in cluster.texts[-1]
        assert live(cluster) == [1, 2]
        assert cluster.meta.registry.brokers[1].port == cluster["b1"].address[1]

    def test_same_name(self, cluster: WholeCluster) -> None:
        """A broker with the name of a live one gives up, and says what to do."""
        cluster.add("twin", role="broker", meta=("meta",), broker__name="b1").start()
        cluster.advance(22)
        assert ("stop",) in cluster["twin"].reactor.ended
        assert "give each broker a name of its own" in cluster.texts[-1]

    def test_waiting_for_the_metaserver_is_no_refusal(self, cluster: WholeCluster) -> None:
        """The time without a MetaServer does not count against a broker whose number is held."""
        self.copy(cluster)
        cluster["copy"].config = cluster["copy"].config.changed({"broker.name": "b1"})
        Path(cluster["copy"].config.storage.data, "replica").unlink()
        cluster["meta"].stop()
        cluster["copy"].start()
        cluster.advance(30)
        cluster["meta"].start()
        cluster.advance(10)
        assert not cluster["copy"].reactor.ended
        cluster["b1"].kill()
        cluster.advance(1)
        assert cluster["copy"].entered
        assert cluster.meta.registry.brokers[1].port == cluster["copy"].address[1]

    def test_two_that_run(self, cluster: WholeCluster) -> None:
        """
        The one of two with the same number that is not registered takes no records.

        Not even now and then: what it takes would be in no other's log.
        """
        self.copy(cluster)
        cluster["meta"].stop()
        cluster["copy"].start()
        assert cluster["copy"].entered
        cluster["meta"].start()
        cluster.advance(5)
        for _ in range(40):
            cluster.advance(0.25)
            assert isinstance(cluster["copy"].broker.refusing, StateError)
            assert cluster["b1"].broker.refusing is None
        assert cluster.said("publishing is refused: broker 1 is live at 127.0.0.1:7801") == 1
        assert cluster.said("publishing is taken again") == 0
        cluster["b1"].kill()
        cluster.advance(3)
        assert cluster["copy"].broker.refusing is None


class TestDeath:
    def test_takeover(self, cluster: WholeCluster) -> None:
        """A killed broker may come back at once."""
        cluster["b1"].kill()
        cluster["b1"].start()
        assert cluster["b1"].entered
        assert live(cluster) == [1, 2]

    def test_killed(self, cluster: WholeCluster) -> None:
        """A broker whose link ended is dead after three seconds, for everybody."""
        cluster["b1"].kill()
        assert live(cluster) == [1, 2]
        took = cluster.until(lambda: live(cluster) == [2])
        assert LOST_SECONDS <= took <= LOST_SECONDS + 1
        assert list(cluster["b2"].registry.brokers) == [2]

    def test_power_cut(self, cluster: WholeCluster) -> None:
        """A broker whose machine died without a word is dead after its lease."""
        cluster.advance(0.5)
        cluster["b1"].kill(unheard=True)
        took = cluster.until(lambda: live(cluster) == [2])
        assert BROKER_SECONDS - 5 <= took <= BROKER_SECONDS + 1

    def test_restart_after_power_cut(self, cluster: WholeCluster) -> None:
        """A machine that died without a word starts again as soon as its lease is over."""
        cluster["b1"].kill(unheard=True)
        cluster["b1"].start()
        took = cluster.until(lambda: cluster["b1"].entered)
        assert took <= BROKER_SECONDS + 2
        assert cluster["b1"].broker.id == 1

    def test_stop_is_leaving(self, cluster: WholeCluster) -> None:
        """A broker that is stopped is gone at once."""
        cluster["b1"].stop()
        assert live(cluster) == [2]

    def test_stood_still(self, cluster: WholeCluster) -> None:
        """A broker that stood still is dead after its lease, and comes back by itself."""
        cluster.operate("b2", "topic.create", name="t", partitions=2)
        incarnation = cluster.meta.registry.brokers[1].incarnation
        cluster["b1"].still = True
        took = cluster.until(lambda: live(cluster) == [2])
        assert took <= BROKER_SECONDS + 1
        cluster.advance(10)
        cluster["b1"].still = False
        cluster.advance(3)
        assert live(cluster) == [1, 2]
        back = cluster.meta.registry.brokers[1]
        assert (back.name, back.incarnation) == ("b1", incarnation + 1)
        assert cluster["b1"].broker.refusing is None
        assert sorted(cluster["b2"].registry.brokers) == [1, 2]

    def test_stood_still_for_a_moment(self, cluster: WholeCluster) -> None:
        """Standing still for less than the lease harms nothing."""
        lease = cluster.meta.registry.brokers[1].lease
        cluster["b1"].still = True
        cluster.advance(BROKER_SECONDS - 6)
        cluster["b1"].still = False
        cluster.advance(20)
        assert cluster.meta.registry.brokers[1].lease == lease

    def test_metaserver_stood_still(self, cluster: WholeCluster) -> None:
        """A MetaServer that stood still takes nobody for dead: it did not listen."""
        leases = {each.lease for each in cluster.meta.registry.brokers.values()}
        cluster["meta"].still = True
        cluster.advance(40)
        cluster["meta"].still = False
        for _ in range(80):
            cluster.advance(0.25)
            assert live(cluster) == [1, 2]
        assert {each.lease for each in cluster.meta.registry.brokers.values()} == leases
        assert cluster.said("this process stood still") == 1


class TestLinks:
    def test_over_another_link(self, cluster: WholeCluster) -> None:
        """A broker whose link was cut goes on over another one, as the same member."""
        lease = cluster.meta.registry.brokers[1].lease
        cluster.cut("b1", "meta")
        cluster.advance(20)
        assert cluster.meta.registry.brokers[1].lease == lease

    def test_late_end(self, cluster: WholeCluster) -> None:
        """The end of a link that was given up long ago harms nothing."""
        wires = cluster.cut("b1", "meta", deaf="meta")
        cluster.advance(8)
        lease = cluster.meta.registry.brokers[1].lease
        for wire in wires:
            wire.hear()
        cluster.advance(20)
        assert cluster.meta.registry.brokers[1].lease == lease
        assert cluster.said("has lost its link") == 0

    def test_late_end_of_one_that_was_dead(self, cluster: WholeCluster) -> None:
        """Nor does it when the broker had to register anew meanwhile."""
        wires = cluster.cut("b1", "meta", deaf="meta")
        cluster["meta"].refuses = True
        cluster.until(lambda: live(cluster) == [2])
        cluster["meta"].refuses = False
        cluster.advance(3)
        assert live(cluster) == [1, 2]
        lease = cluster.meta.registry.brokers[1].lease
        for wire in wires:
            wire.hear()
        cluster.advance(10)
        assert cluster.meta.registry.brokers[1].lease == lease

    def test_nothing_passes(self, cluster: WholeCluster) -> None:
        """A broker that cannot be heard is dead after its lease, and back when it can."""
        cluster.hold("b1", "meta")
        cluster.until(lambda: live(cluster) == [2])
        cluster.advance(30)
        cluster.release("b1", "meta")
        cluster.advance(5)
        assert live(cluster) == [1, 2]

    def test_leaving_leaves_nothing(self, cluster: WholeCluster) -> None:
        """What the MetaServer remembers of a link goes with it."""
        operations = cluster["meta"].service.operations
        cluster["b1"].stop()
        assert sorted(operations._links) == [2]  # type: ignore[union-attr]
        assert sorted(operations._followed) == [2]  # type: ignore[union-attr]


def test_other_role(make: Make) -> None:
    """A data folder is one role's, and the process says which to start it with."""
    cluster = make(1).start()
    cluster["b1"].stop()
    cluster["meta"].stop()
    for name, role, hint in (
        ("b1", "all", "--role broker"),
        ("b1", "meta", "--role broker"),
        ("meta", "broker", "--role all"),
    ):
        process = cluster[name]
        usual = process.config
        meta = ("127.0.0.1:7800",) if role == "broker" else ()
        process.config = usual.changed({"cluster.role": role, "cluster.meta": meta})
        with pytest.raises(SystemExit, match=hint):
            process.start()
        process.config = usual


def test_other_role_without_replica(make: Make) -> None:
    """So it does when the broker's replica is gone: its partitions are not taken for its own."""
    cluster = make(1).start()
    cluster.operate("b1", "topic.create", name="t")
    cluster.publish(cluster.client("b1"), "t", b"v")
    cluster["b1"].stop()
    process = cluster["b1"]
    usual = process.config
    Path(usual.storage.data, "replica").unlink()
    process.config = usual.changed({"cluster.role": "all", "cluster.meta": ()})
    with pytest.raises(SystemExit, match="--role broker"):
        process.start()
    process.config = usual


def test_busy_connection(cluster: WholeCluster) -> None:
    """A broker whose forwarded operations are too many at a time stays the member that it is."""
    lease = cluster.meta.registry.brokers[1].lease
    cluster["b2"].still = True  # so that operations take long
    clients = [cluster.client("b1") for _ in range(3)]
    for client in clients:
        cluster.run(client.admin.operate("broker.info"))
    waiting = [
        cluster.begin(client.admin.operate("broker.info", broker="b2"))
        for client in clients
        for _ in range(MOST_OPERATIONS // 2)
    ]
    cluster["b1"].ground.room.room = 0
    cluster["b1"].far.spare.take()
    cluster.advance(12)
    assert all(waiting)
    assert cluster.meta.registry.brokers[1].lease == lease
    cluster["b1"].ground.room.room = None
