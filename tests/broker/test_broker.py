"""What clients ask of a broker as a whole: topics, metadata, offsets, refusals."""

from __future__ import annotations

import attrs
import pytest

from tests.broker.conftest import MakeBroker
from tests.fakes.broker import (
    BEGIN_MS,
    BrokerDisk,
    BrokerFixture,
    changed,
    only,
    refused,
    smaller_limits,
)
from tinymq.broker.broker import METADATA_BYTES
from tinymq.errors import (
    InvalidName,
    InvalidRequest,
    NotLeader,
    ShuttingDown,
    StorageFull,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
    UnknownTopicId,
)
from tinymq.wire.codec import pack
from tinymq.wire.messages import Offsets, error_from_meta


class TestFind:
    def test_errors(self, fixture: BrokerFixture) -> None:
        """Each way in which a partition cannot be found has its own error."""
        topic = fixture.topic(partitions=2)
        assert fixture.broker.partition(topic.id, 1).index == 1
        with pytest.raises(UnknownTopicId):
            fixture.broker.partition(b"x" * 16, 0)
        with pytest.raises(UnknownPartition) as caught:
            fixture.broker.partition(topic.id, 2)
        assert caught.value.data["partitions"] == 2

    def test_not_leader(self, fixture: BrokerFixture) -> None:
        """A partition that another broker leads is not opened here, and the client is told."""
        fixture.broker.id = 5
        topic = fixture.meta.create_topic("far", 2)
        with pytest.raises(NotLeader) as caught:
            fixture.broker.partition(topic.id, 0)
        assert caught.value.retriable
        assert fixture.broker.partitions_of(topic) == []


class TestCreate:
    def test_again(self, fixture: BrokerFixture) -> None:
        """A topic that exists alike is returned; one that differs is an error."""
        first = fixture.topic("t", partitions=2, sync="os")
        assert fixture.topic("t", partitions=2, sync="os") == first
        assert fixture.meta.create_topic("t", None, {}) == first
        with pytest.raises(TopicExists):
            fixture.topic("t", partitions=3)
        with pytest.raises(TopicExists):
            fixture.topic("t", partitions=2, sync="always")

    @pytest.mark.parametrize("partitions", [0, -1, 1001, 10**9])
    def test_partitions(self, fixture: BrokerFixture, partitions: int) -> None:
        """A number of partitions out of bounds is an error that names the bounds."""
        with pytest.raises(InvalidRequest) as caught:
            fixture.meta.create_topic("t", partitions, {})
        assert (caught.value.data["low"], caught.value.data["high"]) == (1, 1000)
        assert fixture.meta.registry.names == ()

    def test_name(self, fixture: BrokerFixture) -> None:
        """A bad name makes nothing."""
        with pytest.raises(InvalidName):
            fixture.meta.create_topic("../x", 1, {})

    def test_stopping(self, fixture: BrokerFixture) -> None:
        """While the broker stops no topic is made, in any way."""
        fixture.broker.refuse(ShuttingDown())
        with pytest.raises(ShuttingDown):
            fixture.operate("topic.create", name="t")
        (row,) = fixture.metadata(names=["t"], create=True).topics
        assert row[4]["e"] == UnknownTopic.code

    def test_survives(self, fixture: BrokerFixture) -> None:
        """A topic whose creation was answered is there after a kill, with its records."""
        for place in range(5):
            fixture.topic(f"t{place}", partitions=2)
            fixture.produce(b"%d" % place, topic=f"t{place}", partition=1)
            fixture.kill()
            fixture = fixture.again()
        assert [fixture.values(f"t{place}", 1) for place in range(5)] == [
            [b"%d" % place] for place in range(5)
        ]


class TestDelete:
    def test_made_anew(self, fixture: BrokerFixture) -> None:
        """A topic made anew begins empty at offset 0 under another id."""
        old = fixture.topic()
        fixture.produce(b"a")
        fixture.operate("topic.delete", name="t")
        new = fixture.topic()
        assert only(fixture.produce(b"b")).base_offset == 0
        assert fixture.values() == [b"b"]
        assert new.id != old.id
        assert not (fixture.path / "topics" / old.id.hex()).exists()

    def test_killed_while_deleting(self, fixture: BrokerFixture) -> None:
        """What a kill left of a deleted topic is removed at the next start; nothing else is."""
        topic = fixture.topic()
        fixture.produce(b"a")
        fixture.topic("stays")
        fixture.produce(b"b", topic="stays")
        fixture.meta.delete_topic("t")
        strange = fixture.path / "topics" / ("e" * 32) / "0"
        strange.mkdir(parents=True)
        half = fixture.path / "deleted" / "half" / "0"
        half.mkdir(parents=True)
        fixture.kill()
        after = fixture.again()
        assert not (after.path / "topics" / topic.id.hex()).exists()
        assert list((after.path / "deleted").iterdir()) == []
        assert strange.exists()
        assert after.values("stays") == [b"b"]

    def test_cannot_be_removed(self, fixture: BrokerFixture) -> None:
        """Files that cannot be removed do not fail the deletion; the next start tries again."""
        disk = fixture.disk
        assert isinstance(disk, BrokerDisk)
        topic = fixture.topic()
        fixture.produce(b"a")
        disk.failing["fsync_dir"] = 5
        fixture.operate("topic.delete", name="t")
        disk.failing.clear()
        disk.failing["unlink"] = 5
        other = fixture.topic("other")
        fixture.produce(b"b", topic="other")
        fixture.operate("topic.delete", name="other")
        assert fixture.meta.registry.names == ()
        fixture.kill()
        after = fixture.again()
        for each in (topic, other):
            assert not (after.path / "topics" / each.id.hex()).exists()
        assert list((after.path / "deleted").iterdir()) == []


class TestMetadata:
    def test_pages(self, fixture: BrokerFixture) -> None:
        """All topics come page by page in order, each once, with `more` until the last."""
        names = [f"t{place:03d}" for place in range(25)]
        for name in reversed(names):
            fixture.topic(name, storage="memory")
        found: list[str] = []
        after, more = "", True
        while more:
            reply = fixture.metadata(after=after)
            found += [row[0] for row in reply.topics]
            after, more = found[-1], reply.more
        assert found == names

    def test_long_rows(self, fixture: BrokerFixture) -> None:
        """A page of topics with many partitions keeps within the limit of meta."""
        wide = fixture.topic("wide", storage="memory", partitions=1000)
        names = [f"t{place:02d}" for place in range(90)]
        fixture.meta.registry = attrs.evolve(
            fixture.meta.registry, by_name={name: attrs.evolve(wide, name=name) for name in names}
        )
        found: list[str] = []
        for _ in range(4):
            reply = fixture.metadata(after=found[-1] if found else "")
            assert len(pack(reply.to_meta())) < METADATA_BYTES
            found += [row[0] for row in reply.topics]
            if not reply.more:
                break
        assert found == names

    def test_none(self, fixture: BrokerFixture) -> None:
        """A broker without topics says so."""
        reply = fixture.metadata()
        assert (reply.topics, reply.more) == ([], False)

    def test_create(self, make: MakeBroker) -> None:
        """First use makes a topic only where the setting says so."""
        fixture = make(config=changed(topics__auto_create=False))
        (row,) = fixture.metadata(names=["t"], create=True).topics
        assert row[4]["e"] == UnknownTopic.code
        fixture.kill()
        after = fixture.again(config=changed(topics__partitions=3))
        (row,) = after.metadata(names=["t"], create=True).topics
        assert row[2] == [1, 1, 1]


class TestOffsets:
    def test_rows(self, fixture: BrokerFixture) -> None:
        """Each query has its own answer or error."""
        topic = fixture.topic(partitions=2)
        fixture.produce(b"a", partition=1)
        found = fixture.broker.offsets(
            Offsets(topic_id=topic.id, queries=[(1, 0), (0, 0), (4, -1)])
        ).results
        assert found[:2] == [(1, 0, -1, BEGIN_MS, None), (0, 0, -1, -1, None)]
        assert isinstance(error_from_meta(found[2][4]), UnknownPartition)


class TestRefusing:
    def test_full(self, fixture: BrokerFixture) -> None:
        """Near the reserve producers are refused, but readers and memory are served."""
        fixture.topic()
        fixture.topic("memory", storage="memory")
        fixture.produce(b"a")
        fixture.broker.refuse(StorageFull("no space"))
        error = refused(fixture.produce(b"b"))
        assert isinstance(error, StorageFull)
        assert fixture.values() == [b"a"]
        assert only(fixture.produce(b"m", topic="memory")).base_offset == 0
        assert fixture.broker.ready == "no space"
        fixture.broker.refuse(None)
        assert only(fixture.produce(b"c")).base_offset == 1
        assert fixture.broker.ready is None

    def test_refused_batches_are_let_go(self, fixture: BrokerFixture) -> None:
        """The refusal that everybody hears keeps nothing of those whom it refused."""
        fixture.topic()
        fixture.broker.refuse(StorageFull("no space"))
        errors = [refused(fixture.produce(b"x" * 1000)) for _ in range(10)]
        assert fixture.broker.refusing is not None
        assert fixture.broker.refusing.__traceback__ is None
        assert {each.__traceback__ for each in errors} == {None}

    def test_stopping(self, fixture: BrokerFixture) -> None:
        """A broker that stops refuses everything, and nothing takes that back."""
        fixture.topic()
        fixture.topic("memory", storage="memory")
        fixture.broker.refuse(ShuttingDown("stopping"))
        fixture.broker.refuse(None)
        fixture.broker.refuse(StorageFull("x"))
        for name in ("t", "memory"):
            assert isinstance(refused(fixture.produce(b"b", topic=name)), ShuttingDown)

    def test_unknown(self, fixture: BrokerFixture) -> None:
        """A batch for nowhere is answered, not raised."""
        answers: list[object] = []
        fixture.broker.produce(b"x" * 16, 0, b"", answers.append)
        assert isinstance(answers[0], UnknownTopicId)


def test_window(make: MakeBroker) -> None:
    """The window that INIT_PRODUCER tells is the limit's."""
    assert make(config=smaller_limits(producer_window=8)).new_producer().window == 8
