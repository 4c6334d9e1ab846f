"""The dashboard's view of brokers in other processes."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from tests.fakes.broker import Connection
from tests.fakes.two_brokers import TwoBrokers
from tinymq.client.core.partitioners import key_partition
from tinymq.errors import (
    BrokerSilent,
    ConnectionLost,
    InvalidRequest,
    OffsetOutOfRange,
    StorageFull,
    UnknownBroker,
    UnknownClient,
    UnreachableError,
)
from tinymq.meta.registry import Topic
from tinymq.node import records
from tinymq.web.port import At, ClientQuery, Newest, Oldest, Since, TopicQuery
from tinymq.wire.messages import Hello

_T = TypeVar("_T")
MANY = 1 << 20


@pytest.fixture
def two(tmp_path: Path) -> Iterator[TwoBrokers]:
    """Two brokers that have been heard of each other."""
    two = TwoBrokers(tmp_path)
    two.console.start()
    yield two
    two.console.stop()
    two.close()


@pytest.fixture
def topic(two: TwoBrokers) -> Topic:
    """A topic with a partition on each, with the records 0 to 9 by turns, a second apart."""
    topic = two.here.topic("t", partitions=2)
    assert sorted(topic.leaders) == [1, 2]
    for place in range(10):
        done(two, two.console.publish("t", b"%d" % place, None, (), place % 2))
        two.second()
    return topic


def far(topic: Topic) -> int:
    """The partition of the other broker."""
    return topic.leaders.index(2)


def begun(work: Coroutine[Any, Any, _T]) -> list[Any]:
    """Begin something, and return where its outcome comes."""
    outcome: list[Any] = []
    Deferred.fromCoroutine(work).addBoth(outcome.append)
    return outcome


def done(two: TwoBrokers, work: Coroutine[Any, Any, _T]) -> _T:
    """The result of what needs one turn at most."""
    outcome = begun(work)
    two.here.clock.advance(0)
    (result,) = outcome
    if isinstance(result, Failure):
        result.raiseException()
    found: _T = result
    return found


def silence(two: TwoBrokers) -> None:
    """Let the other broker fall silent."""
    two.mute = True
    for _ in range(5):
        two.second()


class TestLooking:
    def test_figures_of_both(self, two: TwoBrokers, topic: Topic) -> None:
        """A topic's figures are those of all its brokers, one second late at most."""
        two.second()
        found = two.console.topic("t")
        assert [each.end for each in found.partitions] == [5, 5]
        assert [each.leader_id for each in found.partitions] == list(topic.leaders)
        assert {each.leader for each in found.partitions} == {"tinymq", "two"}
        assert found.rates.messages_in == pytest.approx(1, rel=0.3)
        cluster = two.console.cluster()
        assert (cluster.messages, cluster.partitions, cluster.silent) == (10, 2, ())
        own, other = cluster.brokers
        assert (own.id, own.heard_ms) == (1, None)
        assert (other.id, other.name, other.heard_ms) == (2, "two", two.here.wall())
        assert other.rates.messages_in == pytest.approx(0.5, rel=0.3)
        assert (other.partitions, other.topics) == (1, 1)

    def test_silent(self, two: TwoBrokers, topic: Topic) -> None:
        """What a silent broker said last stays on every page, marked as offline."""
        two.second()
        heard = two.here.wall()
        silence(two)
        cluster = two.console.cluster()
        (silent,) = cluster.silent
        assert (silent.id, silent.name, silent.since_ms) == (2, "two", heard)
        assert (cluster.messages, cluster.offline_count) == (10, 1)
        found = two.console.topic("t")
        assert found.silent == ("two",)
        broken = found.partitions[far(topic)]
        assert (broken.state, broken.end) == ("offline", 5)
        assert broken.reason.startswith("two does not answer since ")
        page = two.console.topics(TopicQuery())
        assert (page.silent, page.items[0].offline) == (("two",), 1)

    def test_listed(self, two: TwoBrokers, topic: Topic) -> None:
        """The operation that lists topics tells the same as the pages."""
        two.second()
        found = two.here.operate("topic.list")
        assert (found["topics"][0]["messages"], found["silent"]) == (10, [])
        silence(two)
        found = two.here.operate("topic.list")
        assert (found["topics"][0]["messages"], found["silent"]) == (10, ["two"])

    def test_draining(self, two: TwoBrokers) -> None:
        """A broker that gets no new partitions says so."""
        two.here.meta.drain(2, undo=False, dry_run=False)
        two.second()
        assert [each.draining for each in two.console.cluster().brokers] == [False, True]


class TestBrowsing:
    @pytest.mark.parametrize(
        ("start", "limit", "values"),
        [
            (Oldest(), 4, [b"0", b"1", b"2", b"3"]),
            (Newest(), 3, [b"9", b"8", b"7"]),
            (At(4), 9, [b"8", b"9"]),
            (Since(0), 99, [b"%d" % place for place in range(10)]),
        ],
    )
    def test_merged(
        self, two: TwoBrokers, topic: Topic, start: Any, limit: int, values: list[bytes]
    ) -> None:
        """Records of all brokers are one list, and each partition says what was looked at."""
        page = done(two, two.console.browse("t", None, start, limit, MANY))
        assert [record.preview for record in page.records] == values
        assert [(each.partition, each.log_end) for each in page.scanned] == [(0, 5), (1, 5)]
        assert page.note == ""

    def test_a_broker_is_asked_once(self, two: TwoBrokers) -> None:
        """However many partitions it leads, it gets one question."""
        two.here.topic("wide", partitions=8)
        two.second()
        two.asked.clear()
        done(two, two.console.browse("wide", None, Newest(), 5, MANY))
        assert two.asked == ["node.browse"]

    @pytest.mark.parametrize("error", [ConnectionLost("gone"), UnreachableError("no")])
    def test_unreachable(self, two: TwoBrokers, topic: Topic, error: Exception) -> None:
        """What cannot be read is a note; the rest of the page is there."""
        two.trouble = error
        page = done(two, two.console.browse("t", None, Oldest(), 99, MANY))
        assert len(page.records) == 5
        assert page.note == f"partition {far(topic)} cannot be read: two does not answer"

    def test_refused(self, two: TwoBrokers, topic: Topic) -> None:
        """What another broker refuses is a note in its words."""
        two.trouble = StorageFull("no room")
        page = done(two, two.console.browse("t", None, Oldest(), 99, MANY))
        assert page.note == f"partition {far(topic)} cannot be read: two says: no room"

    def test_one_deadline(self, two: TwoBrokers, topic: Topic) -> None:
        """A page waits three seconds for a broker that fell silent just now, then is shown."""
        two.mute = True
        outcome = begun(two.console.browse("t", None, Oldest(), 99, MANY))
        two.here.clock.advance(2.9)
        assert outcome == []
        two.here.clock.advance(0.1)
        (page,) = outcome
        assert "does not answer" in page.note

    def test_known_silence(self, two: TwoBrokers, topic: Topic) -> None:
        """A page does not wait for a broker that is known to be silent."""
        silence(two)
        page = done(two, two.console.browse("t", None, Oldest(), 99, MANY))
        assert (len(page.records), "does not answer" in page.note) == (5, True)

    def test_long_headers(
        self, two: TwoBrokers, topic: Topic, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A list that would be too long to travel is cut, with a note."""
        monkeypatch.setattr(records, "MOST_LISTED", 3)
        page = done(two, two.console.browse("t", far(topic), Oldest(), 99, MANY))
        assert len(page.records) == 3
        assert "only 3 messages are shown" in page.note

    def test_moved(self, two: TwoBrokers, topic: Topic) -> None:
        """A start outside of what is held is moved, with a note of its broker."""
        page = done(two, two.console.browse("t", far(topic), At(99), 9, MANY))
        assert "shown from 5" in page.note


class TestMessages:
    def test_far(self, two: TwoBrokers, topic: Topic) -> None:
        """A record of another broker is shown with all that is known of it."""
        at = far(topic)
        headers = (("h", b"1"), ("h", b"2"))
        done(two, two.console.publish("t", b"0123456789", b"k", headers, at))
        view = done(two, two.console.message("t", at, 5, 2, 4))
        assert (view.topic, view.value, view.size, view.skip) == ("t", b"2345", 10, 2)
        assert (view.key, view.headers, view.codec) == (b"k", headers, "none")
        with pytest.raises(OffsetOutOfRange):
            done(two, two.console.message("t", at, 99, 0, 4))

    def test_tombstone(self, two: TwoBrokers, topic: Topic) -> None:
        """A record without a value is one there, too."""
        at = far(topic)
        done(two, two.console.publish("t", None, b"k", (), at))
        assert done(two, two.console.message("t", at, 5, 0, 4)).value is None

    def test_long_value(self, two: TwoBrokers, topic: Topic) -> None:
        """A value longer than a request and than an answer is published and read in pieces."""
        value = bytes(range(256)) * 12_000
        at = far(topic)
        position = done(two, two.console.publish("t", value, None, (), at))
        assert position.offset == 5
        view = done(two, two.console.message("t", at, 5, 1, len(value)))
        assert view.value == value[1:]
        assert two.asked.count("node.message") == 3
        assert two.node._uploads == {}

    def test_silent(self, two: TwoBrokers, topic: Topic) -> None:
        """Without its leader there is no record; the error names the broker."""
        two.trouble = ConnectionLost("gone")
        with pytest.raises(BrokerSilent, match="two does not answer"):
            done(two, two.console.message("t", far(topic), 0, 0, 4))


class TestPublishing:
    def test_far(self, two: TwoBrokers, topic: Topic) -> None:
        """A record with a key goes to its partition, wherever that is."""
        key = next(b"%d" % i for i in range(99) if key_partition(b"%d" % i, 2) == far(topic))
        position = done(two, two.console.publish("t", b"v", key, (), None))
        assert (position.partition, position.offset, position.durable) == (far(topic), 5, True)

    def test_refused(self, two: TwoBrokers, topic: Topic) -> None:
        """A refusal of another broker is raised as what it is."""
        two.broker.refuse(StorageFull("no room"))
        with pytest.raises(StorageFull, match="no room"):
            done(two, two.console.publish("t", b"v", None, (), far(topic)))

    def test_around_the_silent(self, two: TwoBrokers, topic: Topic) -> None:
        """Without a key the partitions of silent brokers are left out."""
        silence(two)
        places = {
            done(two, two.console.publish("t", b"v", None, (), None)).partition for _ in range(3)
        }
        assert places == {1 - far(topic)}

    def test_not_sent(self, two: TwoBrokers, topic: Topic) -> None:
        """A broker that cannot be reached got nothing, and nothing else is said."""
        two.trouble = UnreachableError("no")
        with pytest.raises(BrokerSilent) as caught:
            done(two, two.console.publish("t", b"v", None, (), far(topic)))
        assert caught.value.text == "two does not answer"

    def test_outcome_unknown(self, two: TwoBrokers, topic: Topic) -> None:
        """An answer that was lost is told as such: the record may be there."""
        two.mute = True
        outcome = begun(two.console.publish("t", b"v", None, (), far(topic)))
        two.here.clock.advance(3)
        (failure,) = outcome
        assert failure.check(BrokerSilent)
        assert "whether the message was stored is not known" in failure.value.text


class TestPeople:
    def test_clients_of_both(self, two: TwoBrokers) -> None:
        """Clients of all brokers are one list, or those of one broker."""
        two.here.connect()
        Connection(two.factory).ask(Hello(client_id="far"))
        page = done(two, two.console.clients(ClientQuery()))
        assert {(each.broker_id, each.broker) for each in page.items} == {(1, "tinymq"), (2, "two")}
        page = done(two, two.console.clients(ClientQuery(broker=2)))
        assert [each.client_id for each in page.items] == ["far"]
        assert page.silent == ()

    def test_looked_at_and_kicked(self, two: TwoBrokers) -> None:
        """A client of another broker can be seen, and its connection ended."""
        far = Connection(two.factory)
        far.ask(Hello(client_id="far"))
        ((place, seen),) = ((each.id, each) for each in two.factory.clients())
        assert done(two, two.console.client(2, place)) == seen
        assert done(two, two.console.kick(2, place, "too many")).client_id == "far"
        assert far.closed
        with pytest.raises(UnknownClient):
            done(two, two.console.client(2, place))
        with pytest.raises(UnknownBroker):
            done(two, two.console.client(9, place))

    @pytest.mark.parametrize("error", [ConnectionLost("gone"), InvalidRequest("what is that?")])
    def test_silent(self, two: TwoBrokers, error: Exception) -> None:
        """A broker that tells nothing of its clients is named; the others' are shown."""
        two.here.connect()
        two.trouble = error
        page = done(two, two.console.clients(ClientQuery()))
        assert (len(page.items), page.silent) == (1, ("two",))

    def test_known_silence(self, two: TwoBrokers) -> None:
        """A broker that is known to be silent is named once, where its clients are wanted."""
        silence(two)
        assert done(two, two.console.clients(ClientQuery())).silent == ("two",)
        assert done(two, two.console.clients(ClientQuery(broker=2))).silent == ("two",)
        assert done(two, two.console.clients(ClientQuery(broker=1))).silent == ()


class TestUploads:
    def test_given_up(self, two: TwoBrokers, topic: Topic) -> None:
        """A long message whose sender went away is forgotten."""
        where = {"id": topic.id.hex(), "partition": far(topic)}
        piece = {**where, "batch": b"x", "upload": 7, "more": True}
        done(two, two.ask(2, "node.publish", piece))
        two.here.clock.advance(5)
        done(two, two.ask(2, "node.publish", piece))
        two.here.clock.advance(9)
        assert len(two.node._uploads) == 1
        two.here.clock.advance(1)
        assert two.node._uploads == {}

    def test_bounded(self, two: TwoBrokers, topic: Topic) -> None:
        """Neither a long message nor many of them take more than their share of memory."""
        where = {"id": topic.id.hex(), "partition": far(topic), "batch": b"x" * 40_000}
        for upload in range(1, 5):
            done(two, two.ask(2, "node.publish", {**where, "upload": upload, "more": True}))
        with pytest.raises(Exception, match="on their way"):
            done(two, two.ask(2, "node.publish", {**where, "upload": 5, "more": True}))
        limit = two.broker.limits.payload
        two.node._uploads[1].pieces.extend(bytes(limit - 79_999))
        with pytest.raises(Exception, match="longer than a batch"):
            done(two, two.ask(2, "node.publish", {**where, "upload": 1, "more": True}))
        assert 1 not in two.node._uploads
