"""The consumer without I/O, against a puppet broker."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.client.puppet import ADDRESS, APPENDED_MS, CoreNetwork, PuppetLog
from tinymq.client.core.cluster import Cluster
from tinymq.client.core.config import ConsumerConfig
from tinymq.client.core.consumer import ConsumerCore
from tinymq.client.core.delivered import ConsumerBatch
from tinymq.client.core.offsets import OffsetSearch
from tinymq.client.core.starts import EARLIEST, LATEST, At, Mark
from tinymq.errors import (
    ClosedError,
    ConnectionLost,
    CorruptBatch,
    LogTruncated,
    NotLeader,
    OffsetOutOfRange,
    Overloaded,
    PartitionOffline,
    TinyMQError,
    UnknownPartition,
    UnknownTopic,
    UnknownTopicId,
    UnreachableError,
    UsageError,
    WireError,
)
from tinymq.wire.batch import CONTROL, NATIVE, build
from tinymq.wire.header import MessageType
from tinymq.wire.messages import Fetch, Message, Offsets
from tinymq.wire.records import encode_batch


class Reader:
    """A consumer core on a puppet network, and what it handed out."""

    def __init__(
        self,
        partitions: int = 1,
        cluster: tuple[CoreNetwork, Cluster] | None = None,
        **config: Any,
    ) -> None:
        if cluster is None:
            self.net = CoreNetwork()
            self.topic = self.net.puppet.make("t", partitions)
            self.cluster = self.net.cluster()
        else:
            self.net, self.cluster = cluster
            self.topic = self.net.puppet.topics["t"]
        self.woken = 0
        self.core = ConsumerCore(self.cluster, ConsumerConfig(**config), self.wake)
        self.assigned: list[TinyMQError | None] = []

    def wake(self) -> None:
        """Count."""
        self.woken += 1

    def assign(self, start: Any = EARLIEST, partitions: Any = None) -> None:
        """Assign, and let bytes move."""
        self.core.assign("t", partitions, start, self.assigned.append, self.net.now)
        self.net.pump()

    def put(self, *values: bytes, partition: int = 0) -> None:
        """Store a batch at the broker."""
        self.topic.logs[partition].append(encode_batch(values))
        self.net.puppet.wake()

    def take(self) -> ConsumerBatch | None:
        """Take a batch, and let bytes move."""
        batch = self.core.take()
        self.core.more(self.net.now)
        self.net.pump()
        return batch

    def drain(self) -> list[bytes | None]:
        """Take everything that comes without time passing."""
        self.net.pump()
        found: list[bytes | None] = []
        while (batch := self.take()) is not None:
            found += batch.values
        return found

    def fetches(self) -> list[Fetch]:
        """The FETCH requests that the broker saw."""
        return [request for request in self.net.puppet.seen if isinstance(request, Fetch)]


def test_reads_in_order() -> None:
    """Batches come whole and in order, with all that is known about them."""
    reader = Reader()
    reader.put(b"a", b"b")
    reader.assign()
    reader.put(b"c")
    reader.net.pump()
    batch = reader.take()

    assert reader.assigned == [None]
    assert batch is not None
    assert batch.values == [b"a", b"b"]
    assert (batch.topic, batch.partition, batch.base_offset, batch.next_offset) == ("t", 0, 0, 2)
    assert [0, 1] == list(batch.offsets) == [record.offset for record in batch.records]
    assert [len(batch), batch.lag, batch.leader_epoch, batch.timestamp] == [2, 0, 0, APPENDED_MS]
    assert [batch.keys, batch.headers] == [[None, None], [(), ()]]
    assert repr(batch) == "<ConsumerBatch t/0 0..1 of 2>"
    assert reader.core.position("t", 0) == 2
    assert reader.drain() == [b"c"]


def test_starts_inside_a_batch() -> None:
    """Reading from an offset inside a batch leaves out what lies before it."""
    reader = Reader()
    reader.put(b"a", b"b", b"c")
    reader.assign(start=1)
    batch = reader.take()

    assert batch is not None
    assert [batch.values, batch.base_offset, len(batch)] == [[b"b", b"c"], 1, 2]
    assert [1, 2] == list(batch.offsets) == [record.offset for record in batch]
    assert [batch.keys, batch.headers] == [[None, None], [(), ()]]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (EARLIEST, [b"a", b"b", b"new"]),
        (LATEST, [b"new"]),
        (1, [b"b", b"new"]),
        (At(APPENDED_MS), [b"a", b"b", b"new"]),
        (At(APPENDED_MS + 1), [b"new"]),
        ({0: 1}, [b"b", b"new"]),
        (Mark(1), [b"b", b"new"]),
        ((1, 0), [b"b", b"new"]),
        ({0: Mark(1, 0)}, [b"b", b"new"]),
        ("earliest", [b"a", b"b", b"new"]),
        ("latest", [b"new"]),
        ({0: "latest"}, [b"new"]),
        ({}, [b"a", b"b", b"new"]),
    ],
)
def test_starts(start: Any, expected: list[bytes]) -> None:
    """Every way to say where to start."""
    reader = Reader()
    reader.put(b"a")
    reader.put(b"b")
    reader.assign(start)
    reader.put(b"new")

    assert expected == reader.drain()


@pytest.mark.parametrize(
    "start",
    [
        *(-3, "end", b"latest", At(-1), {0: None}, {"0": 1}, {-1: 1}, True, None),
        *((), (1,), (-1, 0), (1, -2), (1, 1 << 31), (True, 0), (1, None), Mark(-1)),
    ],
)
def test_wrong_start(start: Any) -> None:
    """What is no start is refused."""
    reader = Reader()
    if start is None:
        with pytest.raises(UsageError, match="at least one"):
            reader.assign(partitions=[])
        return
    with pytest.raises(UsageError, match=r"a start is .*'latest'|starts are given by partition"):
        reader.assign(start)


@pytest.mark.parametrize(
    ("start", "partitions", "expected"),
    [
        ({1: 1}, None, [0, 1, 0]),
        ({1: 1, 2: LATEST}, [0, 1], [0, 1, None]),
        ({1: 1, 9: 5}, [0, 1], [0, 1, None]),
        ({}, [2], [None, None, 0]),
    ],
)
def test_starts_of_some(start: Any, partitions: Any, expected: list[int | None]) -> None:
    """A mapping says where some partitions start; all others start at their first record."""
    reader = Reader(partitions=3)
    for number in range(3):
        reader.put(b"a", partition=number)
        reader.put(b"b", partition=number)
    reader.assign(start, partitions)
    reading = [number for _, number in reader.core.assigned]

    assert reader.assigned == [None]
    assert expected == [
        reader.core.position("t", number) if number in reading else None for number in range(3)
    ]


def test_starts_of_partitions_that_are_not_there() -> None:
    """A position of a partition that the topic does not have fails the assignment."""
    reader = Reader()
    reader.assign({0: 0, 1: 7})

    assert [type(error) for error in reader.assigned] == [UnknownPartition]
    assert reader.core.assigned == []


def test_assignment_fails() -> None:
    """Unknown topics and partitions fail the assignment, and nothing is assigned."""
    reader = Reader()
    reader.assign(partitions=[1])
    reader.core.assign("nix", None, EARLIEST, reader.assigned.append, reader.net.now)
    reader.net.pump()

    assert [UnknownPartition, UnknownTopic] == [type(error) for error in reader.assigned]
    assert reader.core.assigned == []
    assert isinstance(reader.core.stuck, UsageError)


def test_assignment_ends_within_its_deadline() -> None:
    """When the starts cannot be found the assignment ends at its deadline."""
    reader = Reader(deadline_s=5)
    reader.net.puppet.refuse = lambda request: (
        Overloaded() if isinstance(request, Offsets) else None
    )
    reader.assign()
    reader.net.advance(5)
    assert len(reader.assigned) == 1
    assert reader.assigned[0] is not None

    reader = Reader()
    reader.net.puppet.refuse = lambda request: (
        PartitionOffline("torn") if isinstance(request, Offsets) else None
    )
    reader.assign()
    assert [PartitionOffline] == [type(error) for error in reader.assigned]
    assert reader.core.assigned == []


def test_long_poll() -> None:
    """An empty topic is asked once and waits; the answer wakes."""
    reader = Reader()
    reader.assign()
    for _ in range(10):
        assert reader.take() is None
    assert len(reader.fetches()) == 1
    reader.net.puppet.wake(empty=True)
    reader.net.pump()
    assert reader.take() is None
    woken = reader.woken
    reader.put(b"a")
    reader.net.pump()

    assert reader.woken > woken
    assert reader.drain() == [b"a"]


def test_read_ahead_is_bounded() -> None:
    """One fetch is read ahead before anything is handed out, and not without bound."""
    reader = Reader(max_bytes=200, prefetch_bytes=500)
    for number in range(50):
        reader.put(b"%0100d" % number)
    reader.assign()
    reader.net.pump()
    assert 500 <= reader.core.ready_bytes < 1000
    fetched = len(reader.fetches())
    assert fetched > 1
    values = reader.drain()

    assert [b"%0100d" % number for number in range(50)] == values
    assert reader.core.ready_bytes == 0


def test_many_partitions_in_turn() -> None:
    """All partitions are asked for at once, and who was served stands behind."""
    reader = Reader(partitions=3)
    for partition in range(3):
        reader.put(b"%d" % partition, partition=partition)
    reader.assign()
    assert sorted(v for v in reader.drain() if v) == [b"0", b"1", b"2"]
    ((_, rows),) = reader.fetches()[0].topics
    assert len(rows) == 3
    reader.put(b"x", partition=0)
    reader.net.pump()
    ((_, rows),) = reader.fetches()[-1].topics

    assert [partition for partition, _, _ in rows] == [1, 2, 0]


def test_more_partitions_than_one_fetch_may_name() -> None:
    """Many partitions of one leader are asked for in several requests, and all are read."""
    reader = Reader(partitions=1000)
    more = [reader.net.puppet.make(f"t{number}", 2) for number in range(3)]
    for name in ("t", "t0", "t1", "t2"):
        reader.core.assign(name, None, EARLIEST, reader.assigned.append, reader.net.now)
    reader.net.pump()
    reader.net.cut()
    reader.net.puppet.seen.clear()
    reader.net.advance(1)  # then everything is asked for at once
    named = [sum(len(rows) for _, rows in fetch.topics) for fetch in reader.fetches()]
    assert named == [1000, 6]
    for topic in (more[0], more[-1]):
        topic.logs[0].append(encode_batch([topic.name.encode()]))
    reader.put(b"first")
    reader.put(b"last", partition=999)

    assert {b"first", b"last", b"t0", b"t2"} == set(reader.drain())
    assert reader.assigned == [None] * 4


def test_out_of_range_tells_the_range() -> None:
    """By default a position that is gone is an error with the valid range."""
    reader = Reader(partitions=2)
    reader.put(b"a")
    reader.topic.logs[0].start = 1
    reader.put(b"b")
    reader.put(b"other", partition=1)
    reader.assign(start={0: 0, 1: 0})
    with pytest.raises(OffsetOutOfRange) as caught:
        reader.drain()
    assert caught.value.data == {"start": 1, "end": 2, "topic": "t", "partition": 0}
    assert reader.drain() in ([b"other"], [])
    fetched = len(reader.fetches())
    reader.net.advance(60)
    assert all(len(fetch.topics[0][1]) == 1 for fetch in reader.fetches()[fetched:])
    reader.core.seek("t", 0, 1, reader.net.now)

    assert reader.drain() == [b"b"]


@pytest.mark.parametrize(("policy", "expected"), [("earliest", [b"b"]), ("latest", [])])
def test_out_of_range_policies(policy: str, expected: list[bytes]) -> None:
    """Other policies jump to one of the ends."""
    reader = Reader(out_of_range=policy)
    reader.put(b"a")
    reader.topic.logs[0].start = 1
    reader.put(b"b")
    reader.assign(start=0)

    assert expected == reader.drain()


def test_truncated() -> None:
    """A position beyond what survived is an error that says so."""
    reader = Reader()
    reader.put(b"a")
    answered: list[Message] = []

    def refuse(request: Message) -> WireError | None:
        if isinstance(request, Fetch) and not answered:
            answered.append(request)
            return LogTruncated(end=1)
        return None

    reader.net.puppet.refuse = refuse
    reader.assign(start=1)
    with pytest.raises(LogTruncated) as caught:
        reader.take()
    assert caught.value.data["end"] == 1
    assert reader.core.stuck is caught.value
    reader.core.resume("t", None, reader.net.now)
    reader.put(b"b")

    assert reader.drain() == [b"b"]


def test_epoch_is_sent_along() -> None:
    """A fetch names the epoch of the last batch that was read."""
    reader = Reader()
    reader.topic.logs[0].epoch = 7
    reader.put(b"a")
    reader.assign()
    reader.drain()

    assert [fetch.topics[0][1][0][2] for fetch in reader.fetches()] == [-1, 7]


def test_marks() -> None:
    """A stored mark is told when records before it were lost; an offset alone is not."""
    reader = Reader(partitions=2)
    for _ in range(4):
        reader.put(b"a")
    reader.assign()
    assert reader.core.mark("t", 1) == (0, -1)
    taken = reader.take()
    assert taken is not None
    assert taken.mark == reader.core.mark("t", 0) == Mark(1, 0)
    reader.drain()
    stored = reader.core.marks("t")
    assert stored == {0: Mark(4, 0), 1: Mark(0, -1)}

    reader.topic.logs[0].cut(2)
    for _ in range(3):
        reader.put(b"new")
    reader.assign(stored)
    for _ in range(2):
        with pytest.raises(LogTruncated) as caught:
            reader.drain()
        assert caught.value.data == {"start": 0, "end": 2, "topic": "t", "partition": 0}
        reader.core.resume("t", None, reader.net.now)  # stays where it is, and says so again
    reader.core.seek("t", 0, 2, reader.net.now)
    assert reader.drain() == [b"new"] * 3
    assert reader.core.mark("t", 0) == (5, 1)
    reader.assign({0: 4})
    assert reader.drain() == [b"new"]


def test_mark_of_what_was_looked_up() -> None:
    """A position that was looked up has an epoch too, and is unknown until then."""
    reader = Reader()
    reader.put(b"a")
    reader.assign(LATEST)
    assert reader.core.marks("t") == {0: Mark(1, 0)}
    reader.net.puppet.deaf = {MessageType.OFFSETS}
    reader.core.seek("t", 0, EARLIEST, reader.net.now)

    assert (reader.core.marks("t"), reader.core.mark("t", 0)) == ({}, Mark(-1, -1))


def test_topic_made_anew() -> None:
    """A topic that was made anew is told, and read when asked for."""
    reader = Reader()
    reader.put(b"a")
    reader.assign()
    assert reader.drain() == [b"a"]
    old = reader.net.puppet.topics.pop("t")
    reader.topic = reader.net.puppet.make("t")
    reader.put(b"new")
    reader.net.puppet.wake(empty=True)
    assert old.id != reader.topic.id
    with pytest.raises(UnknownTopicId):
        reader.drain()
    with pytest.raises(UnknownTopicId):
        raise reader.core.stuck or AssertionError
    reader.core.seek("t", 0, EARLIEST, reader.net.now)
    reader.net.pump()

    assert reader.drain() == [b"new"]


def test_topic_gone() -> None:
    """A topic that is gone stays an error when asked for again."""
    reader = Reader()
    reader.assign()
    del reader.net.puppet.topics["t"]
    reader.net.puppet.wake(empty=True)
    with pytest.raises(UnknownTopicId):
        reader.drain()
    reader.core.resume("t", [0], reader.net.now)
    reader.net.pump()

    with pytest.raises(UnknownTopic):
        reader.drain()


def test_topic_anew_with_fewer_partitions() -> None:
    """A partition that does not exist any more is told."""
    reader = Reader(partitions=2)
    reader.assign(partitions=[1])
    reader.net.puppet.make("t", 1)
    reader.net.puppet.wake(empty=True)
    with pytest.raises(UnknownTopicId):
        reader.drain()
    reader.core.seek("t", 1, 0, reader.net.now)
    reader.net.pump()

    with pytest.raises(UnknownPartition):
        reader.drain()


def test_pause_resume_seek() -> None:
    """What was fetched is dropped, and fetched again from the right place."""
    reader = Reader(max_bytes=1)
    for number in range(6):
        reader.put(b"%d" % number)
    reader.assign()
    reader.net.pump()
    batch = reader.core.take()
    assert batch is not None
    assert batch.values == [b"0"]
    reader.core.pause("t", None, reader.net.now)
    assert reader.core.quiet
    assert reader.drain() == []
    assert [reader.core.position("t", 0), reader.core.ready_bytes] == [1, 0]
    reader.core.resume("t", None, reader.net.now)
    assert reader.drain() == [b"1", b"2", b"3", b"4", b"5"]
    reader.core.seek("t", 0, 4, reader.net.now)
    reader.net.pump()
    reader.core.seek("t", 0, 2, reader.net.now)
    assert reader.core.ready_bytes == 0

    assert reader.drain() == [b"2", b"3", b"4", b"5"]


def test_seek_while_paused() -> None:
    """A paused partition stays paused after a seek."""
    reader = Reader()
    reader.put(b"a")
    reader.put(b"b")
    reader.assign()
    reader.core.pause("t", [0], reader.net.now)
    reader.core.seek("t", 0, 1, reader.net.now)
    assert reader.drain() == []
    reader.core.resume("t", [0], reader.net.now)

    assert reader.drain() == [b"b"]


def test_not_assigned() -> None:
    """Moving what is not assigned is refused."""
    reader = Reader()
    with pytest.raises(UsageError, match="not assigned"):
        reader.core.seek("t", 0, 0, reader.net.now)
    with pytest.raises(UsageError, match="not assigned"):
        reader.core.position("t", 5)


def test_unassign_and_assign_again() -> None:
    """What is no longer assigned is not handed out; a second assignment starts anew."""
    reader = Reader()
    reader.put(b"a")
    reader.assign()
    reader.net.pump()
    reader.core.unassign("t")
    assert reader.drain() == []
    reader.assign()
    reader.assign()
    assert reader.drain() == [b"a"]
    assert reader.core.assigned == [("t", 0)]


def test_assigned_anew_while_looking() -> None:
    """An assignment does not wait for a partition that another one has taken over."""
    reader = Reader(partitions=2)
    reader.net.puppet.deaf = {MessageType.OFFSETS}
    reader.assign()
    reader.assign(start={0: 0, 1: 0}, partitions=[0, 1])

    assert reader.assigned == [None, None]

    reader.assign(partitions=[0])
    reader.core.unassign("t", [0])
    reader.assign(start=0, partitions=[1])
    assert reader.assigned == [None] * 4


def test_a_damaged_end_is_passed_over() -> None:
    """When no record follows a gap, the broker's answer says where to read on."""
    gaps: list[tuple[str, int, int, int]] = []
    reader = Reader(on_gap=lambda *gap: gaps.append(gap))
    for value in (b"a", b"b", b"c"):
        reader.put(value)
    log = reader.topic.logs[0]
    del log.batches[1:], log.headers[1:]
    reader.assign()
    batch = reader.take()

    assert batch is not None
    assert batch.values == [b"a"]
    assert reader.core.position("t", 0) == 3
    assert (gaps, reader.core.gaps) == ([("t", 0, 1, 3)], 2)
    assert reader.take() is None
    reader.put(b"d")
    assert reader.drain() == [b"d"]
    assert [fetch.topics[0][1][0] for fetch in reader.fetches()] == [
        (0, 0, -1),
        (0, 1, 0),
        (0, 3, -1),
        (0, 4, 0),
    ]


def test_a_gap_behind_what_waits() -> None:
    """The position passes over a gap only when everything before it was handed out."""
    reader = Reader()
    for value in (b"a", b"b", b"c"):
        reader.put(value)
    log = reader.topic.logs[0]
    del log.batches[1:], log.headers[1:]
    reader.assign()
    reader.net.pump()

    assert (reader.core.gaps, reader.core.position("t", 0)) == (2, 0)
    reader.core.pause("t", None, reader.net.now)
    reader.core.resume("t", None, reader.net.now)
    assert reader.drain() == [b"a"]
    assert reader.core.position("t", 0) == 3


def test_damage() -> None:
    """A damaged batch is told where it lies; those before it are handed out."""
    reader = Reader()
    reader.put(b"a")
    reader.put(b"b")
    log = reader.topic.logs[0]
    log.batches[1] = log.batches[1][:-1] + b"!"
    reader.assign()
    batch = reader.take()
    assert batch is not None
    assert batch.values == [b"a"]
    with pytest.raises(CorruptBatch) as caught:
        reader.take()
    assert caught.value.data["partition"] == 0
    assert reader.core.position("t", 0) == 1

    trusting = Reader(check_crc=False)
    trusting.net.puppet.topics["t"] = reader.topic
    trusting.assign()
    trusting.net.pump()
    assert trusting.core.ready_bytes > 0


def test_torn_payload() -> None:
    """A batch that is cut short is told as damaged."""
    reader = Reader()
    reader.put(b"a")
    log = reader.topic.logs[0]
    log.batches[0] = log.batches[0][:-1]
    reader.assign()

    with pytest.raises(CorruptBatch):
        reader.take()


def test_gaps_are_counted() -> None:
    """Offsets that do not exist are counted and reported, not waited for."""
    gaps: list[tuple[str, int, int, int]] = []
    reader = Reader(on_gap=lambda *gap: gaps.append(gap))
    for value in (b"a", b"b", b"c"):
        reader.put(value)
    log = reader.topic.logs[0]
    del log.batches[1], log.headers[1]
    reader.assign()

    assert reader.drain() == [b"a", b"c"]
    assert gaps == [("t", 0, 1, 2)]
    assert reader.core.gaps == 1


def test_a_wrong_gap_report_costs_nothing() -> None:
    """An error in the caller's own function is logged, and reading goes on."""

    def report(topic: str, partition: int, expected: int, found: int) -> None:
        raise LookupError("of the caller")

    reader = Reader(on_gap=report)
    for value in (b"a", b"b", b"c"):
        reader.put(value)
    log = reader.topic.logs[0]
    del log.batches[1], log.headers[1]
    reader.assign()

    assert reader.drain() == [b"a", b"c"]
    assert [str(error) for _, error in reader.net.reports] == ["of the caller"]
    assert reader.net.dialed == [ADDRESS]


def test_control_batches_are_passed() -> None:
    """Control batches move the position and are not handed out."""
    reader = Reader()
    reader.put(b"a")
    log = reader.topic.logs[0]
    control = build(b"", 1, NATIVE | CONTROL)
    log.batches.append(control)
    log.headers.append(log.headers[0]._replace(base_offset=1))
    log.batches[-1] = (1).to_bytes(8, "big") + control[8:]
    log.end = 2
    reader.put(b"c")
    reader.assign()

    assert reader.drain() == [b"a", b"c"]


def test_leader_moves() -> None:
    """A fetch at the wrong broker is repeated after a refresh, without an error."""
    reader = Reader()
    reader.put(b"a")
    calls: list[Message] = []

    def refuse(request: Message) -> WireError | None:
        calls.append(request)
        return NotLeader() if isinstance(request, Fetch) and len(calls) < 5 else None

    reader.net.puppet.refuse = refuse
    reader.assign()
    reader.net.advance(5)

    assert reader.drain() == [b"a"]
    assert reader.net.puppet.kinds().count("METADATA") > 1


def test_partitions_that_are_added() -> None:
    """Partitions added to a topic that is read as a whole are read from their start."""
    reader = Reader()
    reader.assign(start=LATEST)
    reader.topic.logs.append(PuppetLog())
    reader.topic.leaders.append(1)
    reader.put(b"first", partition=1)
    reader.net.advance(61)

    assert reader.drain() == [b"first"]


@given(st.lists(st.floats(0.01, 2), min_size=20, max_size=20), st.randoms())
def test_cut_twenty_times(pauses: list[float], rng: Any) -> None:
    """However often the link is cut, reading goes on where it was."""
    reader = Reader()
    reader.assign()
    sent: list[bytes | None] = []
    found: list[bytes | None] = []
    for number, pause in enumerate(pauses):
        for n in range(rng.randint(0, 3)):
            sent.append(b"%d.%d" % (number, n))
            reader.put(b"%d.%d" % (number, n))
        reader.net.cut(deliver=rng.random() < 0.5)
        reader.net.advance(pause)
        found += reader.drain()
    reader.net.advance(5)
    found += reader.drain()

    assert sent == found
    assert reader.core.gaps == 0


def test_nobody_answers() -> None:
    """Why no broker answers is known, and since when."""
    reader = Reader()
    reader.assign()
    heard = reader.core.fetching.heard_at
    reader.net.up = False
    reader.net.cut()
    assert isinstance(reader.core.fetching.why, ConnectionLost)
    reader.net.advance(15)

    assert isinstance(reader.core.fetching.why, UnreachableError)
    assert reader.core.fetching.heard_at == heard
    assert reader.core.stuck is None


def test_close() -> None:
    """Closing ends assignments that wait, drops what was fetched, and refuses more."""
    reader = Reader()
    reader.put(b"a")
    reader.assign()
    reader.net.puppet.deaf = {MessageType.OFFSETS}
    reader.assign()
    reader.cluster.close(reader.net.now)
    reader.core.close()

    assert isinstance(reader.assigned[-1], ClosedError)
    assert reader.core.waiting
    for call in (reader.core.take, reader.assign):
        with pytest.raises(ClosedError):
            call()


def test_end_offsets() -> None:
    """The ends of a topic are asked of its leaders; errors are told once."""
    reader = Reader(partitions=2)
    reader.put(b"a", b"b", partition=1)
    found: list[Any] = []

    def search(topic: str, partitions: Any = None) -> None:
        one = OffsetSearch(reader.cluster, reader.net.now + 5, lambda *end: found.append(end))
        one.start(topic, partitions, LATEST, reader.net.now)
        reader.net.pump()

    search("t")
    search("t", [1])
    search("t", [])
    search("nix")
    reader.net.puppet.refuse = lambda request: PartitionOffline()
    search("t")

    assert found[:3] == [({0: 0, 1: 2}, None), ({1: 2}, None), ({}, None)]
    assert [UnknownTopic, PartitionOffline] == [type(error) for _, error in found[3:]]
