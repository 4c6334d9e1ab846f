"""The broker as the dashboard sees it."""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from tests.fakes.broker import BEGIN_MS, BrokerFixture, HeldSyncer, refused
from tests.fakes.channels import FakeChannels
from tinymq.client.core.partitioners import key_partition
from tinymq.console import BrokerConsole
from tinymq.errors import (
    InvalidDelay,
    InvalidName,
    OffsetOutOfRange,
    PartitionOffline,
    StorageFull,
    UnknownBroker,
    UnknownClient,
    UnknownPartition,
    UnknownTopic,
    ValueTooLarge,
)
from tinymq.limits import LATEST_MS
from tinymq.names import TRANSACTIONS
from tinymq.node import turns
from tinymq.web.port import (
    At,
    ChannelQuery,
    ClientQuery,
    Newest,
    Oldest,
    Page,
    Since,
    Times,
    TopicQuery,
)
from tinymq.wire.batch import NATIVE, build
from tinymq.wire.codec import pack
from tinymq.wire.records import RecordBatch

_T = TypeVar("_T")

MANY = 1 << 20


@pytest.fixture
def fixture(tmp_path: Path) -> BrokerFixture:
    """Return a broker."""
    return BrokerFixture(tmp_path / "data")


@pytest.fixture
def console(fixture: BrokerFixture) -> BrokerConsole:
    """Return its console."""
    return console_of(fixture)


def console_of(fixture: BrokerFixture) -> BrokerConsole:
    """A console of a broker."""
    return BrokerConsole(fixture.broker, fixture.operations, fixture.node, fixture.nodes)


def done(fixture: BrokerFixture, work: Coroutine[Any, Any, _T]) -> _T:
    """The result of what needs one turn at most."""
    outcome: list[Any] = []
    Deferred.fromCoroutine(work).addBoth(outcome.append)
    fixture.turn()
    (result,) = outcome
    if isinstance(result, Failure):
        result.raiseException()
    found: _T = result
    return found


class TestLooking:
    def test_cluster(self, fixture: BrokerFixture, console: BrokerConsole) -> None:
        """The cluster's sums are those of its topics, and its broker tells its state."""
        fixture.topic("a", partitions=2)
        fixture.topic("b", storage="memory")
        fixture.produce(b"x", b"y", topic="a")
        fixture.produce(b"z", topic="b")
        fixture.connect()
        fixture.housekeeping.look_at_space()
        snapshot = console.cluster()
        assert (snapshot.topics, snapshot.partitions, snapshot.messages) == (2, 3, 3)
        (broker,) = snapshot.brokers
        assert (broker.connections, broker.refusing, broker.name) == (1, None, "tinymq")
        assert broker.disk_free == 1 << 40
        assert snapshot.largest[0].name == "a"
        assert (snapshot.offline_count, snapshot.damaged) == (0, ())

    def test_own_topics(self, fixture: BrokerFixture, console: BrokerConsole) -> None:
        """The topic of transactions is in no list, unless somebody asks for it."""
        fixture.topic("a")
        fixture.meta.ensure_topic(TRANSACTIONS)
        assert [row.name for row in console.topics(TopicQuery()).items] == ["a"]
        assert console.cluster().topics == 1
        asked = console.topics(TopicQuery(name="tinymq."))
        assert [row.name for row in asked.items] == [TRANSACTIONS]
        assert console.topic(TRANSACTIONS).name == TRANSACTIONS

    def test_not_looked_at_the_disk(self, console: BrokerConsole) -> None:
        """Before the disk was looked at, nothing is claimed about it."""
        assert console.cluster().brokers[0].disk_free is None

    def test_ready(self, fixture: BrokerFixture, console: BrokerConsole) -> None:
        """A refusal is told with its reason."""
        assert console.ready() is None
        fixture.broker.refuse(StorageFull("no space"))
        assert console.ready() == "no space"
        assert console.cluster().brokers[0].refusing == "no space"

    def test_offline(self, tmp_path: Path) -> None:
        """An offline partition is told with its reason, everywhere."""
        syncer = HeldSyncer()
        fixture = BrokerFixture(tmp_path / "held", syncer=syncer)
        fixture.topic("t", partitions=2)
        fixture.produce(b"a")
        syncer.release(OSError(5, "Input/output error"))
        console = console_of(fixture)
        (offline,) = console.cluster().offline
        assert (offline.topic, offline.partition) == ("t", 0)
        assert "Input/output error" in offline.reason
        rows = console.topic("t").partitions
        assert [row.state for row in rows] == ["offline", "online"]
        (row,) = console.topics(TopicQuery()).items
        assert row.offline == 1

    def test_rates(self, fixture: BrokerFixture, console: BrokerConsole) -> None:
        """What goes through is seen once a second, and stopping leaves no timer."""
        fixture.topic("t")
        console.start()
        for _ in range(5):
            fixture.produce(b"a")
            fixture.wall.now_ms += 1000
            fixture.clock.advance(1)
        assert console.topic("t").rates.messages_in > 0
        assert console.cluster().busiest[0].name == "t"
        console.stop()
        assert fixture.clock.getDelayedCalls() == []

    def test_topic(self, fixture: BrokerFixture, console: BrokerConsole) -> None:
        """A topic's page has its settings, its partitions, and the purge that can be undone."""
        fixture.topic("t", sync="os", partitions=2)
        fixture.produce(b"a")
        snapshot = console.topic("t")
        assert (snapshot.sync, snapshot.created_ms, snapshot.undo) == ("os", BEGIN_MS, None)
        assert [row.end for row in snapshot.partitions] == [1, 0]
        assert (snapshot.partitions[0].oldest_ms, snapshot.partitions[1].last_write_ms) == (
            BEGIN_MS,
            None,
        )
        assert {row.name: row.value for row in snapshot.config}["sync"] == "os"
        done(fixture, console.purge("t", None, None, dry_run=False))
        undo = console.topic("t").undo
        assert undo is not None
        assert (undo.records, undo.until_ms) == (1, BEGIN_MS + 600_000)
        with pytest.raises(UnknownTopic):
            console.topic("none")

    def test_list(self, fixture: BrokerFixture, console: BrokerConsole) -> None:
        """Topics are listed with what they hold."""
        fixture.topic("b", storage="memory")
        fixture.topic("a")
        fixture.produce(b"x", topic="a")
        page = console.topics(TopicQuery())
        assert [(row.name, row.messages, row.sync) for row in page.items] == [
            ("a", 1, "always"),
            ("b", 0, "memory"),
        ]
        assert page.items[0].last_write_ms == BEGIN_MS
        assert page.items[1].last_write_ms is None


class TestBrowsing:
    @pytest.fixture(autouse=True)
    def filled(self, fixture: BrokerFixture) -> None:
        """Ten records, a second apart, in two partitions by turns."""
        fixture.topic("t", partitions=2)
        for place in range(10):
            fixture.produce(b"%d" % place, partition=place % 2)
            fixture.wall.now_ms += 1000

    @pytest.mark.parametrize(
        ("partition", "start", "limit", "offsets"),
        [
            (0, Oldest(), 3, [0, 1, 2]),
            (0, Newest(), 2, [4, 3]),
            (0, At(3), 10, [3, 4]),
            (0, At(99), 10, []),
            (0, Since(BEGIN_MS + 3000), 10, [2, 3, 4]),
            (1, Since(BEGIN_MS * 2), 10, []),
            (None, Oldest(), 4, [0, 0, 1, 1]),
            (None, Newest(), 3, [4, 4, 3]),
        ],
    )
    def test_start(
        self,
        fixture: BrokerFixture,
        console: BrokerConsole,
        partition: int | None,
        start: Any,
        limit: int,
        offsets: list[int],
    ) -> None:
        """Records are seen from any start, merged by time, and nothing moves."""
        page = done(fixture, console.browse("t", partition, start, limit, MANY))
        assert [record.offset for record in page.records] == offsets
        assert {each.counters.records_out for each in fixture.broker.partitions()} == {0}

    @pytest.mark.parametrize(
        ("start", "offsets"), [(Newest(), [(4, 1), (4, 0), (3, 1)]), (Oldest(), [(0, 0), (0, 1)])]
    )
    def test_many_partitions(
        self,
        fixture: BrokerFixture,
        console: BrokerConsole,
        monkeypatch: pytest.MonkeyPatch,
        start: Any,
        offsets: list[tuple[int, int]],
    ) -> None:
        """What takes long is done in several turns, and nothing of the answer is lost."""
        monkeypatch.setattr(turns, "TURN_SECONDS", -1.0)
        fixture.topic("wide", partitions=5, storage="memory")
        for partition in range(5):
            for _ in range(2):
                fixture.wall.now_ms += 1000
                fixture.produce(b"x", topic="wide", partition=partition)
        outcome: list[Page] = []
        looking = console.browse("wide", None, start, len(offsets), MANY)
        Deferred.fromCoroutine(looking).addCallback(outcome.append)
        for _ in range(5):
            assert outcome == []
            fixture.turn()
        (page,) = outcome
        shown = [(each.partition, each.offset) for each in page.records]
        assert shown == offsets
        assert [each.partition for each in page.scanned] == [0, 1, 2, 3, 4]

    def test_moved(self, fixture: BrokerFixture, console: BrokerConsole) -> None:
        """A start outside of what is held is moved, with a note."""
        done(fixture, console.purge("t", 0, At(2), dry_run=False))
        page = done(fixture, console.browse("t", 0, At(0), 10, MANY))
        assert [record.offset for record in page.records] == [2, 3, 4]
        assert "shown from 2" in page.note

    def test_undecodable(self, fixture: BrokerFixture, console: BrokerConsole) -> None:
        """A batch that cannot be decoded is counted in the note."""
        nonsense = build(pack((None, None, None, b"\xc1", None, None, None)), 1, NATIVE)
        fixture.broker.produce(fixture.meta.describe("t").id, 0, nonsense, lambda answer: None)
        fixture.turn()
        page = done(fixture, console.browse("t", 0, Oldest(), 100, MANY))
        assert len(page.records) == 5
        assert "1 batches cannot be shown" in page.note

    def test_message(self, fixture: BrokerFixture, console: BrokerConsole) -> None:
        """One record is shown with a window of its value, and its neighbours."""
        fixture.produce(b"0123456789", topic="t", producer=(7, 0, 0))
        view = done(fixture, console.message("t", 0, 5, 2, 4))
        assert (view.value, view.size, view.skip) == (b"2345", 10, 2)
        assert (view.previous, view.next) == (4, None)
        assert (view.producer_id, view.sequence) == (7, 0)
        first = done(fixture, console.message("t", 0, 0, 0, 10))
        assert (first.previous, first.next, first.producer_id) == (None, 1, None)

    @pytest.mark.parametrize("offset", [-1, 5, 1 << 60])
    def test_no_message(self, fixture: BrokerFixture, console: BrokerConsole, offset: int) -> None:
        """Where no record is, the error names the range."""
        with pytest.raises(OffsetOutOfRange) as caught:
            done(fixture, console.message("t", 0, offset, 0, 10))
        assert caught.value.data == {"start": 0, "end": 5}

    def test_message_in_a_gap(self, fixture: BrokerFixture, console: BrokerConsole) -> None:
        """A record that cannot be decoded is not there."""
        nonsense = build(pack((None, None, None, b"\xc1", None, None, None)), 1, NATIVE)
        fixture.broker.produce(fixture.meta.describe("t").id, 0, nonsense, lambda answer: None)
        fixture.turn()
        with pytest.raises(OffsetOutOfRange):
            done(fixture, console.message("t", 0, 5, 0, 10))
        with pytest.raises(UnknownPartition):
            done(fixture, console.message("t", 9, 0, 0, 10))


class TestPublishing:
    def test_position(self, fixture: BrokerFixture, console: BrokerConsole) -> None:
        """A record is published with key and headers, and its place is told."""
        fixture.topic("t", partitions=3)
        position = done(fixture, console.publish("t", b"v", b"k", (("h", b"1"),), None))
        assert position.partition == key_partition(b"k", 3)
        assert (position.offset, position.durable) == (0, True)
        view = done(fixture, console.message("t", position.partition, 0, 0, 10))
        assert (view.key, view.value, view.headers) == (b"k", b"v", (("h", b"1"),))

    def test_tombstone(self, fixture: BrokerFixture, console: BrokerConsole) -> None:
        """A record without a value is one, and is told as volatile where it is."""
        fixture.topic("t", storage="memory")
        assert not done(fixture, console.publish("t", None, None, (), 0)).durable
        assert done(fixture, console.message("t", 0, 0, 0, 10)).value is None

    def test_turns(self, fixture: BrokerFixture, console: BrokerConsole) -> None:
        """Without a key partitions take turns."""
        fixture.topic("t", partitions=2)
        places = [
            done(fixture, console.publish("t", b"v", None, (), None)).partition for _ in range(4)
        ]
        assert sorted(places) == [0, 0, 1, 1]

    def test_too_large(self, fixture: BrokerFixture, console: BrokerConsole) -> None:
        """Each part over its limit is refused by its name."""
        fixture.topic("t", max_value_bytes=10)
        for field, arguments in {
            "value": (b"x" * 11, None, ()),
            "key": (b"", b"k" * 70_000, ()),
            "headers": (b"", None, (("h", b"x" * 70_000),)),
        }.items():
            with pytest.raises(ValueTooLarge) as caught:
                done(fixture, console.publish("t", *arguments, 0))
            assert caught.value.data["field"] == field

    def test_times(self, fixture: BrokerFixture, console: BrokerConsole) -> None:
        """A time to live goes into the log; what would come after the year 9999 is refused."""
        fixture.topic("t")
        position = done(fixture, console.publish("t", b"v", None, (), 0, Times(ttl_ms=60_000)))
        chunk = fixture.partition("t").log.read(position.offset, 1000, 1)

        assert position.delayed is None
        assert chunk is not None
        assert RecordBatch(bytes(chunk.data)).ttls == [60_000]
        for number, times in enumerate((Times(-5000), Times(4_000_000_000_000))):
            position = done(fixture, console.publish("t", b"v", None, (), 0, times))
            assert (position.delayed, position.offset) == (number, -1)
            assert position.due_ms == (times.due if times.due > 0 else position.time_ms + 5000)
        with pytest.raises(InvalidDelay, match="253402300799999 ms"):
            done(fixture, console.publish("t", b"v", None, (), 0, Times(-LATEST_MS)))

    def test_refused(self, fixture: BrokerFixture, console: BrokerConsole) -> None:
        """A refusal of the broker is raised."""
        fixture.topic("t")
        fixture.broker.refuse(StorageFull())
        with pytest.raises(StorageFull):
            done(fixture, console.publish("t", b"v", None, (), 0))
        fixture.broker.refuse(None)
        fixture.partition("t").close()
        assert isinstance(refused(fixture.produce(b"v")), PartitionOffline)
        with pytest.raises(PartitionOffline):
            done(fixture, console.publish("t", b"v", None, (), 0))


class TestChanges:
    def test_create(self, fixture: BrokerFixture, console: BrokerConsole) -> None:
        """A topic is planned, made, and then said to exist."""
        config = {"sync": "os"}
        plan = done(fixture, console.create_topic("t", 2, config, dry_run=True))
        assert not plan.applied
        assert fixture.meta.registry.names == ()
        assert [(each.name, each.after) for each in plan.changes] == [
            ("partitions", "2"),
            ("sync", "os"),
        ]
        done(fixture, console.create_topic("t", 2, config, dry_run=False))
        again = done(fixture, console.create_topic("t", 2, config, dry_run=False))
        assert again.warnings
        with pytest.raises(InvalidName):
            done(fixture, console.create_topic("../x", 1, {}, dry_run=True))

    def test_alter(self, fixture: BrokerFixture, console: BrokerConsole) -> None:
        """Changed settings are told as texts."""
        fixture.topic("t")
        plan = done(fixture, console.alter_topic("t", {"retention.ms": "none"}, dry_run=False))
        (change,) = plan.changes
        assert (change.name, change.after, plan.applied) == ("retention.ms", "none", True)

    def test_alter_to_the_default(self, fixture: BrokerFixture, console: BrokerConsole) -> None:
        """A value that is taken away is the default again, not "no limit"."""
        fixture.topic("t", retention_ms=1000)
        plan = done(fixture, console.alter_topic("t", {"retention.ms": None}, dry_run=False))
        (change,) = plan.changes
        assert (change.before, change.after) == ("1000", "604800000")

    def test_delete(self, fixture: BrokerFixture, console: BrokerConsole) -> None:
        """What goes is told first, and then is gone."""
        fixture.topic("t")
        fixture.produce(b"a")
        plan = done(fixture, console.delete_topic("t", dry_run=True))
        assert (plan.records, plan.applied, plan.oldest_ms) == (1, False, BEGIN_MS)
        assert fixture.values("t") == [b"a"]
        assert done(fixture, console.delete_topic("t", dry_run=False)).applied
        assert fixture.broker.partitions() == []

    def test_purge_and_undo(self, fixture: BrokerFixture, console: BrokerConsole) -> None:
        """A purge by offset or time is told by partitions, and undone."""
        fixture.topic("t")
        for place in range(4):
            fixture.produce(b"%d" % place)
            fixture.wall.now_ms += 1000
        assert done(fixture, console.purge("t", None, At(1), dry_run=False)).records == 1
        since = Since(BEGIN_MS + 2000)
        plan = done(fixture, console.purge("t", 0, since, dry_run=False))
        assert (plan.records, plan.parts[0].first, plan.parts[0].end) == (1, 1, 2)
        assert plan.undo_until_ms == fixture.wall() + 600_000
        assert fixture.values() == [b"2", b"3"]
        undone = done(fixture, console.undo_purge("t"))
        assert (undone.action, undone.records) == ("undo", 1)
        assert fixture.values() == [b"1", b"2", b"3"]


class TestPeople:
    def test_clients_are_listed_and_kicked(
        self, fixture: BrokerFixture, console: BrokerConsole
    ) -> None:
        """Who is connected can be looked at and sent away; then it is not there any more."""
        fixture.connect()

        (client,) = done(fixture, console.clients(ClientQuery())).items
        place = client.broker_id, client.id

        assert done(fixture, console.client(*place)).address == client.address
        assert done(fixture, console.kick(*place, "too many")).id == client.id
        with pytest.raises(UnknownClient):
            done(fixture, console.kick(*place, "too many"))
        with pytest.raises(UnknownBroker):
            done(fixture, console.client(99, client.id))

    def test_broker_is_drained_and_taken_back(
        self, fixture: BrokerFixture, console: BrokerConsole
    ) -> None:
        """A dry run changes nothing; a broker that is drained is no taker any more."""
        number = fixture.broker.id

        plan = done(fixture, console.drain(number, undo=False, dry_run=True))
        assert (plan.applied, plan.takers) == (False, ())
        assert done(fixture, console.drain(number, undo=True, dry_run=True)).takers
        assert done(fixture, console.drain(number, undo=False, dry_run=False)).applied
        with pytest.raises(UnknownBroker):
            done(fixture, console.drain(99, undo=False, dry_run=True))


class TestWork:
    """Channels in any order, and added up."""

    def _channels(self, fixture: BrokerFixture, topics: int, *names: str) -> None:
        fixture.node.channel_host = FakeChannels(fixture.broker)
        for index in range(topics):
            fixture.topic(f"t{index}")
            fixture.produce(*[b"x"] * (index + 1), topic=f"t{index}")
            for name in names:
                fixture.operate("channel.create", topic=f"t{index}", name=name)

    def test_lists(self, fixture: BrokerFixture, console: BrokerConsole) -> None:
        """By name and by lag, of all topics and of one; the page is counted."""
        self._channels(fixture, 3, "a", "b")
        found = done(fixture, console.channels(ChannelQuery(sort="lag", reverse=True)))
        assert [row["topic"] for row in found.items][:2] == ["t2", "t2"]
        found = done(fixture, console.channels(ChannelQuery(name="T1/B", page_size=1)))
        assert [(row["topic"], row["name"]) for row in found.items] == [("t1", "b")]
        found = done(fixture, console.channels(ChannelQuery(topic="t0")))
        assert (found.filtered_count, found.total_count, found.page_count) == (2, 2, 1)
        assert console.cluster().channels == 6
        with pytest.raises(UnknownTopic):
            done(fixture, console.channels(ChannelQuery(topic="none")))

    def test_many(
        self, fixture: BrokerFixture, console: BrokerConsole, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Where there are very many, a page by name asks only for its own rows."""
        self._channels(fixture, 3, "a", "b")
        monkeypatch.setattr("tinymq.figures.queues.AT_ONCE", 2)
        assert not console.queues.few
        query = ChannelQuery(page=2, page_size=2, reverse=True)
        found = done(fixture, console.channels(query))
        assert [(row["topic"], row["name"]) for row in found.items] == [("t1", "b"), ("t1", "a")]
        assert found.items[0]["lag"] == 2
        assert (found.page_count, found.total_count) == (3, 6)

    def test_sums(self, fixture: BrokerFixture, console: BrokerConsole) -> None:
        """What all channels hold."""
        self._channels(fixture, 2, "a", "b")
        backlog = done(fixture, console.backlog())
        assert (backlog.channels, backlog.ready) == (4, 6)
        assert backlog.worst[0]["topic"] == "t1"

    def test_lag(self, fixture: BrokerFixture, console: BrokerConsole) -> None:
        """What the lag of a channel was at the looks so far."""
        self._channels(fixture, 2, "a", "b")
        done(fixture, console.backlog())
        told = {"topic": "t1", "name": "a", "lag": 5, "silent": ["mq-2"]}
        assert len(console.lag(told).recent.values) == 1
