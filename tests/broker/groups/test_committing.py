"""COMMIT and COMMITTED: who may commit, what is kept, and when it is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.broker.groups.reading import Found, GroupReader, hosted_of, position
from tests.fakes.broker import BEGIN_MS, BrokerFixture, HeldSyncer
from tinymq.broker import ledger as ledgers
from tinymq.broker.groups import committing
from tinymq.broker.groups.committing import MOST_GENERATION
from tinymq.broker.groups.positions import Move
from tinymq.errors import (
    FencedGeneration,
    InvalidName,
    InvalidRequest,
    LogTruncated,
    OffsetOutOfRange,
    StorageError,
    UnknownGroup,
    UnknownTopicId,
    UnstablePosition,
)
from tinymq.wire.messages import Committed, CommittedReply, error_from_meta

DAY = 24 * 3_600_000


@pytest.fixture
def broker(tmp_path: Path) -> BrokerFixture:
    """Return a broker with ten messages."""
    fixture = BrokerFixture(tmp_path / "data")
    fixture.topic("t", partitions=2)
    fixture.produce(*(b"%d" % number for number in range(10)))
    return fixture


@pytest.fixture
def reader(broker: BrokerFixture) -> GroupReader:
    """Return a reader of it."""
    return GroupReader(broker)


def test_nothing_was_committed(reader: GroupReader, broker: BrokerFixture) -> None:
    """Who only looks makes no group, and hears what can be read."""
    assert reader.committed() == Found(-1, -1, "", -1, 0, 10, None)
    assert broker.meta.registry.groups == {}
    assert broker.broker.channels.all() == []


def test_a_commit_without_members(reader: GroupReader, broker: BrokerFixture) -> None:
    """The first commit makes the group; the newest place is told with its note and time."""
    assert reader.commit(3, epoch=0, note="half") is None
    assert list(broker.meta.registry.groups) == ["g"]
    assert reader.committed() == Found(3, 0, "half", BEGIN_MS, 0, 10, None)
    assert reader.commit(7) is None
    assert reader.committed()[:3] == (7, -1, "")
    assert GroupReader(broker, "other").committed().offset == -1


def test_commits_never_go_back(reader: GroupReader) -> None:
    """What lies below a position was handled: a commit that is late says nothing new."""
    reader.commit(7, note="seven")
    assert reader.commit(5, note="five") is None
    assert reader.committed()[:3] == (7, -1, "seven")
    assert reader.commit(7, note="again") is None
    assert reader.committed().note == "again"
    assert reader.taken(3) == 7
    assert reader.commit(6, 3) is None
    assert reader.committed().offset == 7


def test_who_had_it_before_is_refused(reader: GroupReader, broker: BrokerFixture) -> None:
    """With a generation the partition is taken over; what an older one commits is refused."""
    other = GroupReader(broker, member="m2")
    assert reader.taken(5) == -1
    assert reader.commit(4, 5) is None
    assert other.taken(6) == 4
    refused = reader.commit(9, 5)
    assert isinstance(refused, FencedGeneration)
    assert refused.data == {"generation": 6}
    assert isinstance(reader.committed(5).error, FencedGeneration)
    assert other.commit(6, 6) is None
    assert other.taken(6) == 6, "a repeat of the request is no other owner"
    assert position(broker).member == "m2"


@pytest.mark.parametrize(
    ("start", "offset", "epoch"),
    [
        ("earliest", 2, 0),
        ("latest", 10, 0),
        (5, 5, 0),
        (f"@{BEGIN_MS}", 2, 0),
        (f"@{BEGIN_MS + DAY}", 10, 0),
        (1, -1, -1),
        (11, -1, -1),
    ],
)
def test_where_a_group_begins_is_kept(
    reader: GroupReader, broker: BrokerFixture, start: str | int, offset: int, epoch: int
) -> None:
    """Who takes a partition over first commits the start; one that is not there is not kept."""
    broker.operate("topic.purge", name="t", partition=0, before=2)
    assert reader.committed(start=start).offset == -1, "who only looks commits nothing"
    assert reader.committed(5, start=start)[:2] == (offset, epoch)
    broker.produce(b"later")
    other = GroupReader(broker, member="m2")
    expected = offset if offset >= 0 else 11
    assert other.committed(6, start="latest").offset == expected
    assert other.commit(11, 6) is None
    assert reader.committed(7, start="earliest").offset == 11
    broker.kill()
    assert GroupReader(broker.again()).committed().offset == 11


def test_no_start_where_a_transaction_may_commit(
    reader: GroupReader, broker: BrokerFixture
) -> None:
    """A position that a transaction would move is waited for, and no start takes its place."""
    reader.taken(5)
    hosted = hosted_of(broker)
    mark = broker.meta.registry.group("g").mark
    hosted.positions.hold((1, 0), [Move(mark, 5, 3, 0, "", "m1", BEGIN_MS)])
    assert isinstance(reader.committed(6, start="latest").error, UnstablePosition)
    hosted.positions.decide((1, 0), commit=True)
    assert reader.committed(6, start="latest").offset == 3


def test_members_alone_commit(reader: GroupReader) -> None:
    """Who is no member may commit until members read the partition, and hears what to do."""
    reader.commit(2)
    reader.taken(5)
    refused = reader.commit(4)
    assert isinstance(refused, FencedGeneration)
    assert refused.data == {"generation": 5}
    assert "tinymq group seek g" in refused.text
    assert reader.committed().offset == 2


def test_a_commit_of_a_later_generation(reader: GroupReader) -> None:
    """A commit takes the partition over, too, where the taking was lost."""
    reader.taken(5)
    assert reader.commit(4, 7) is None
    assert isinstance(reader.commit(9, 6), FencedGeneration)


def test_a_member_of_no_group(reader: GroupReader, broker: BrokerFixture) -> None:
    """A member that is late makes no group that was deleted; who takes a partition over does."""
    reader.taken(5)
    broker.meta.delete_group("g")
    with pytest.raises(UnknownGroup):
        reader.commit(4, 5)
    assert reader.committed().offset == -1
    assert reader.taken(4) == -1, "the group is another one, and the fence is gone"


@pytest.mark.parametrize("name", ["", "../x", "a b", "x" * 300])
def test_names(broker: BrokerFixture, name: str) -> None:
    """A name that can be none is refused before anything happens."""
    reader = GroupReader(broker, name)
    for call in (lambda: reader.commit(1), reader.committed, lambda: reader.committed(5)):
        with pytest.raises(InvalidName):
            call()


def test_offsets_that_never_were(reader: GroupReader, broker: BrokerFixture) -> None:
    """No position is ahead of the log; one before what is kept is told with what is there."""
    refused = reader.commit(11)
    assert isinstance(refused, OffsetOutOfRange)
    assert refused.data == {"start": 0, "end": 10}
    assert reader.commit(2) is None
    broker.operate("topic.purge", name="t", partition=0, before=6)
    assert reader.committed() == Found(2, -1, "", BEGIN_MS, 6, 10, None)
    assert reader.commit(4) is None, "it was read before it went"


def test_several_at_once(reader: GroupReader, broker: BrokerFixture) -> None:
    """Each partition has an answer of its own, whatever is wrong with others."""
    told = reader.commit_all(
        {
            "t": [(0, -1, 3, -1, ""), (1, -1, 3, -1, ""), (1, -1, 0, -1, "")],
            "nix": [(0, -1, 3, -1, "")],
        }
    )
    assert [type(each) for each in told["t"]] == [type(None), OffsetOutOfRange, type(None)]
    assert [type(each) for each in told["nix"]] == [UnknownTopicId]
    assert (reader.committed().offset, reader.committed(partition=1).offset) == (3, 0)
    assert isinstance(reader.committed(topic="nix").error, UnknownTopicId)


def test_long_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit into one answer is told when it is asked for again, or without words."""
    monkeypatch.setattr(committing, "MOST_TOLD", 1000)
    broker = BrokerFixture(tmp_path)
    broker.topic("t", partitions=20)
    reader = GroupReader(broker)
    for index in range(5):
        reader.commit(0, partition=index, note="n" * 300)
    topic = reader.topic_id("t")
    request = Committed(group="g", topics=[(topic, [(index, -1) for index in range(5)])])
    ((_, rows),) = CommittedReply.from_meta(reader.ask(request).split()[0]).topics
    assert [row[1] for row in rows] == [0, 0, 0, -1, -1]
    assert {error_from_meta(row[-1]).retriable for row in rows[3:]} == {True}
    told = reader.commit_all({"t": [(index, -1, 9, -1, "") for index in range(20)]})["t"]
    assert {type(each) for each in told} == {OffsetOutOfRange}
    assert 0 < sum("can be read" in str(each) for each in told) < 20
    assert told[-1] is not None
    assert told[-1].data == {"start": 0, "end": 0}


def test_a_position_outlives_the_idle(broker: BrokerFixture) -> None:
    """A group that nobody uses for months keeps its place over restarts, and its messages too."""
    broker.meta.alter_topic("t", {"retention.mode": "settled", "hold.max.ms": None})
    GroupReader(broker).commit(4)
    for _ in range(3):
        broker.wall.now_ms += 60 * DAY
        broker.housekeeping.apply_retention()
        broker.clock.advance(1)
        broker.stop()
        broker = broker.again()
    reader = GroupReader(broker)
    assert reader.committed()[:2] == (4, -1)
    assert reader.committed().start <= 4


def test_a_topic_made_anew(reader: GroupReader, broker: BrokerFixture) -> None:
    """A position belongs to a topic, not to its name."""
    reader.commit(4)
    old = reader.topic_id("t")
    broker.meta.delete_topic("t")
    broker.topic("t")
    assert reader.committed() == Found(-1, -1, "", -1, 0, 0, None)
    reader.topic_id = lambda name: old  # type: ignore[method-assign]
    assert isinstance(reader.committed().error, UnknownTopicId)
    assert isinstance(reader.commit(4), UnknownTopicId)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_restart(broker: BrokerFixture, how: str) -> None:
    """A partition that has positions and no channels knows them after every start."""
    reader = GroupReader(broker)
    reader.taken(5)
    reader.commit(4, 5, note="n")
    getattr(broker, how)()
    again = broker.again()
    reader = GroupReader(again)
    assert reader.committed()[:3] == (4, -1, "n")
    assert isinstance(reader.commit(6, 4), FencedGeneration)
    assert reader.commit(6, 5) is None


@pytest.mark.parametrize("away", [False, True])
def test_a_deleted_group(broker: BrokerFixture, away: bool) -> None:
    """Positions go with their group, also where the broker was away; made anew, it begins anew."""
    GroupReader(broker).commit(4)
    if away:
        broker.stop()
        broker = broker.again()
    broker.meta.delete_group("g")
    assert hosted_of(broker).positions.known == {}
    broker.meta.ensure_group("g")
    broker.kill()
    again = broker.again()
    assert GroupReader(again).committed().offset == -1


def test_a_group_that_the_metaserver_lost(broker: BrokerFixture) -> None:
    """A MetaServer that was restored from an old backup loses no position."""
    GroupReader(broker).commit(4)
    key = broker.meta.registry.group("g").store_key
    broker.stop()
    broker = broker.again()
    broker.meta_store.delete(key)
    broker.kill()
    broker = broker.again()
    assert broker.meta.registry.groups == {}
    assert len(hosted_of(broker).strangers) == 1
    reader = GroupReader(broker)
    assert reader.committed().offset == -1
    assert reader.taken(5) == 4, "it is there again, and so is its place"
    broker.kill()
    assert GroupReader(broker.again()).committed().offset == 4


def test_memory(tmp_path: Path) -> None:
    """Positions in a topic in memory last as long as its messages."""
    broker = BrokerFixture(tmp_path)
    broker.topic("t", storage="memory")
    broker.produce(b"a", b"b")
    reader = GroupReader(broker)
    assert reader.commit(1) is None
    assert reader.committed().offset == 1
    broker.stop()
    assert GroupReader(broker.again()).committed()[:1] == (-1,)


def test_told_when_it_is_safe(tmp_path: Path) -> None:
    """Neither a commit nor where the group is is told before the disk has it; one sync for all."""
    syncer = HeldSyncer()
    broker = BrokerFixture(tmp_path, syncer=syncer)
    broker.topic("t")
    broker.stage(b"a", b"b", b"c")
    broker.turn()
    syncer.release()
    reader = GroupReader(broker)
    rows: dict[str, Any] = {"t": [(0, -1, 1, -1, "")]}
    for offset in (1, 2, 3):
        rows["t"] = [(0, -1, offset, -1, "")]
        reader.connection.post(reader.commit_request(rows))
    for _ in range(5):
        broker.clock.advance(0)
    assert reader.connection.frames() == []
    assert len(syncer.groups) == 1
    ledger = hosted_of(broker).ledger.log
    assert ledger.end_offset == 1, "one record for all"
    syncer.release()
    broker.clock.advance(0)
    assert len(reader.connection.frames()) == 3


def test_commits_are_no_history(broker: BrokerFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies before a snapshot goes at once where there are no messages' lives to tell."""
    monkeypatch.setattr(ledgers, "_GROWN_BYTES", 1000)
    reader = GroupReader(broker)
    for number in range(100):
        reader.commit(number // 10, note="n" * 100)
    log = hosted_of(broker).ledger.log
    assert 0 < log.start_offset < log.end_offset
    assert log.undo_window is None, "nothing is kept for a while"
    broker.kill()
    assert GroupReader(broker.again()).committed().offset == 9


def test_a_failed_disk(tmp_path: Path) -> None:
    """What the disk did not take is told as that."""
    syncer = HeldSyncer()
    broker = BrokerFixture(tmp_path, syncer=syncer)
    broker.topic("t")
    broker.stage(b"a", b"b", b"c")
    broker.turn()
    syncer.release()
    reader = GroupReader(broker)
    reader.connection.post(reader.commit_request({"t": [(0, -1, 1, -1, "")]}))
    for _ in range(3):
        broker.clock.advance(0)
    syncer.release(OSError(5, "no"))
    broker.clock.advance(0)
    assert len(reader.connection.frames()) == 1
    assert isinstance(reader.commit(2), StorageError)


def test_a_cut_log(tmp_path: Path) -> None:
    """A position beyond what survived is cut back, and who read beyond hears of it."""
    broker = BrokerFixture(tmp_path)
    broker.topic("t")
    broker.produce(b"a", b"b")
    broker.produce(b"c", b"d")
    reader = GroupReader(broker)
    reader.taken(5)
    assert reader.commit(4, 5, epoch=0) is None
    log = broker.partition().log
    path = tmp_path / "topics" / reader.topic_id("t").hex() / "0" / "data"
    (segment,) = path.glob("*.log")
    broker.kill()
    segment.write_bytes(segment.read_bytes()[: log.size_bytes // 2])
    again = broker.again()
    reader = GroupReader(again)
    assert position(again).cut == 4
    assert reader.committed()[:2] == (2, 0)
    again.produce(b"e")
    refused = reader.commit(4, 5, epoch=0)
    assert isinstance(refused, LogTruncated)
    assert refused.data == {"start": 0, "end": 2}
    again.kill()
    assert GroupReader(again.again()).committed()[:2] == (2, 0)


def test_in_a_transaction(reader: GroupReader, broker: BrokerFixture) -> None:
    """What a transaction commits counts when it is decided, and until then nobody takes over."""
    reader.taken(5)
    reader.commit(2, 5)
    assert reader.commit(6, 5, transaction=(7, 0)) is None
    assert reader.committed().offset == 2
    found = reader.committed(6)
    assert isinstance(found.error, UnstablePosition)
    assert isinstance(reader.commit(8, 5), FencedGeneration), "it is the next one's already"
    positions = hosted_of(broker).positions
    assert [*positions.held] == [(7, 0)]
    broker.kill()
    again = broker.again()
    reader = GroupReader(again)
    positions = hosted_of(again).positions
    assert [*positions.held] == [(7, 0)]
    assert positions.decide((7, 0), commit=True)
    assert not positions.decide((7, 0), commit=True)
    assert reader.taken(6) == 6


def test_of_an_aborted_transaction(reader: GroupReader, broker: BrokerFixture) -> None:
    """Nothing of it counts."""
    reader.commit(2, transaction=(7, 0))
    hosted_of(broker).positions.decide((7, 0), commit=False)
    assert reader.committed().offset == -1


def test_no_generation_bars_a_partition_for_ever(broker: BrokerFixture) -> None:
    """A fence that no coordinator could ever pass is not raised, by a commit or by who takes it."""
    broker.meta.ensure_group("g")
    reader = GroupReader(broker)
    for generation in (MOST_GENERATION + 1, (1 << 63) - 1):
        assert isinstance(reader.commit(3, generation), InvalidRequest)
        assert isinstance(reader.committed(generation).error, InvalidRequest)
    assert reader.commit(3, 7) is None
    assert reader.committed(8).error is None
