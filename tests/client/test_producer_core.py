"""The producer without I/O, against a puppet broker."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from tests.client.puppet import CoreNetwork, PuppetLog
from tinymq.client.core.batches import Batch, Group, as_headers, as_value, cut
from tinymq.client.core.cluster import Cluster
from tinymq.client.core.config import ProducerConfig
from tinymq.client.core.exits import Watch
from tinymq.client.core.outcomes import outcomes
from tinymq.client.core.producer import ProducerCore
from tinymq.client.core.results import Account, Delayed, PartlySent
from tinymq.client.core.timing import timing_of, timings_of
from tinymq.errors import (
    BufferFull,
    ClosedError,
    ConnectionLost,
    DeadlineExceeded,
    InvalidName,
    InvalidRequest,
    NotLeader,
    PartitionOffline,
    StorageFull,
    UnknownPartition,
    UnknownProducer,
    UnknownTopic,
    UnreachableError,
    Unroutable,
    UsageError,
    ValueTooLarge,
    WireError,
)
from tinymq.limits import Limits
from tinymq.wire.batch import HEADER_SIZE, Codec
from tinymq.wire.header import MessageType
from tinymq.wire.messages import Message, Produce
from tinymq.wire.records import RecordBatch

DEADLINE = 30.0


class Sender:
    """A producer core on a puppet network, and what came of its records."""

    def __init__(
        self,
        *,
        topics: Sequence[tuple[str, int]] = (("t", 1),),
        cluster: tuple[CoreNetwork, Cluster] | None = None,
        **config: Any,
    ) -> None:
        if cluster is None:
            self.net = CoreNetwork()
            for name, partitions in topics:
                self.net.puppet.make(name, partitions)
            self.cluster = self.net.cluster()
        else:
            self.net, self.cluster = cluster
        self.core = ProducerCore(self.cluster, ProducerConfig(**config), self.deliver)
        self.stored: list[tuple[Any, int, int]] = []
        self.failed: list[tuple[Any, Any]] = []
        self.delayed: list[tuple[Any, Any]] = []
        self.groups: list[Group] = []
        self.flushed = 0

    def deliver(self, topic: str, partition: int, batch: Batch) -> None:
        """Note a settled batch."""
        told = [] if batch.error is not None else list(outcomes(topic, partition, batch))
        for place, token in enumerate(batch.tokens or ()):
            if batch.error is not None:
                self.failed.append((token, batch.error))
            elif isinstance(told[place], Delayed):
                self.delayed.append((token, told[place]))
            elif isinstance(told[place], Unroutable):
                self.failed.append((token, told[place]))
            else:
                self.stored.append((token, partition, batch.base_offset + place))

    def send(self, value: Any, topic: str = "t", **more: Any) -> None:
        """Take one record, whose token is its value."""
        given = {"key": None, "headers": None, "partition": None, **more}
        self.core.append(
            topic,
            value,
            given["key"],
            given["headers"],
            given["partition"],
            value,
            self.net.now,
            timing_of(given.get("delay"), given.get("at"), given.get("ttl"), self.net.now),
        )

    def send_many(self, values: Sequence[Any], topic: str = "t", **more: Any) -> None:
        """Take many records."""
        given = {"keys": None, "headers": None, "partition": None, **more}
        self.core.append_many(
            topic,
            values,
            given["keys"],
            given["headers"],
            given["partition"],
            self.groups.append,
            self.net.now,
            timings_of(given.get("delay"), given.get("at"), given.get("ttl"), self.net.now),
        )

    def go(self) -> None:
        """End the turn and let bytes move."""
        self.core.drain(self.net.now)
        self.net.pump()

    def flush(self) -> None:
        """Flush, and note when it is done."""

        def done() -> None:
            self.flushed += 1

        self.core.flush(done, self.net.now)

    def values(self, partition: int = 0, topic: str = "t") -> list[bytes | None]:
        """What the broker stored."""
        return self.net.puppet.values(topic, partition)

    def check(self) -> None:
        """Nothing is left over when everything is settled."""
        assert [self.core.pending, self.core.ledger.held, self.core.ledger._counts] == [0, 0, {}]


def produced(sender: Sender) -> list[Produce]:
    """The PRODUCE requests that the broker saw."""
    return [request for request in sender.net.puppet.seen if isinstance(request, Produce)]


# --- cutting and checking ------------------------------------------------------


@given(
    st.lists(st.integers(1, 300), min_size=1, max_size=60),
    st.integers(1, 500),
    st.integers(1, 20),
)
def test_cut(sizes: list[int], limit: int, most: int) -> None:
    """Batches keep to both limits, lose nothing, and hold as much as fits."""
    ends = cut(sizes, limit, most)
    starts = [0, *ends[:-1]]
    assert ends[-1] == len(sizes)
    for start, end in zip(starts, ends, strict=True):
        assert start < end <= start + most
        assert sum(sizes[start:end]) <= limit or end == start + 1
        if end < len(sizes) and end - start < most and len(set(sizes)) > 1:
            assert sum(sizes[start : end + 1]) > limit


def test_values_and_headers() -> None:
    """Any bytes are values; anything else is refused with its type."""
    assert [as_value(one) for one in (b"x", bytearray(b"x"), memoryview(b"x"), None)] == [
        b"x",
        b"x",
        b"x",
        None,
    ]
    assert as_headers({"a": bytearray(b"1")}) == [("a", b"1")]
    with pytest.raises(UsageError, match="not str"):
        as_value("text")
    for wrong in ([("a", 5)], [(1, b"x")], [("a",)], 7, [("\ud800", b"")], [("a", "text")]):
        with pytest.raises(UsageError, match="headers"):
            as_headers(wrong)


# --- sending -------------------------------------------------------------------


def test_one_turn_is_one_batch() -> None:
    """Records of one turn travel together and are told one by one."""
    sender = Sender()
    for number in range(3):
        sender.send(b"%d" % number)
    sender.go()

    assert sender.stored == [(b"0", 0, 0), (b"1", 0, 1), (b"2", 0, 2)]
    assert len(produced(sender)) == 1
    sender.check()


def test_empty_value_key_and_headers() -> None:
    """Empty values, tombstones, keys of all kinds and headers arrive as they were."""
    sender = Sender()
    sender.send(b"")
    sender.send(None, key="k")
    sender.send(b"x", key=b"", headers={"a": b"1"})
    sender.go()
    (data,) = sender.net.puppet.topics["t"].logs[0].batches
    batch = RecordBatch(data)

    assert batch.values == [b"", None, b"x"]
    assert batch.keys == [None, b"k", b""]
    assert [tuple(one) for one in batch.headers] == [(), (), (("a", b"1"),)]


def test_linger() -> None:
    """An open batch waits for its linger, or until it is full."""
    sender = Sender(linger_ms=50, batch_bytes=1000)
    sender.send(b"a")
    sender.go()
    assert sender.values() == []
    sender.net.advance(0.04)
    assert sender.values() == []
    sender.net.advance(0.02)
    assert sender.values() == [b"a"]
    for _ in range(9):
        sender.send(bytes(200))
    sender.net.pump()

    assert len(sender.values()) > 5


@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
def test_codec(codec: str) -> None:
    """Every codec of the settings reaches the broker."""
    sender = Sender(codec=codec)
    sender.send(b"x" * 1000)
    sender.go()
    (header,) = sender.net.puppet.topics["t"].logs[0].headers

    assert Codec[codec.upper()] == header.codec
    assert sender.values() == [b"x" * 1000]


def test_send_batch_is_cut_and_spread() -> None:
    """Records without keys go as whole batches, each to the next partition."""
    sender = Sender(topics=[("t", 4)], batch_bytes=1000)
    values = [b"%099d" % number for number in range(80)]
    sender.send_many(values)
    sender.go()
    (group,) = sender.groups
    sent = group.result()

    assert sent.count == 80
    assert {0, 1, 2, 3} == {partition for partition, _, _ in sent.positions}
    assert sorted(values) == sorted(v for n in range(4) for v in sender.values(n) if v)
    for partition, base, count in sent.positions:
        assert len(sender.values(partition)) >= base + count
    sender.check()


def test_send_batch_by_key() -> None:
    """Records with keys go by key, in order, with headers and odd key types."""
    sender = Sender(topics=[("t", 4)])
    values = [b"%d" % number for number in range(100)]
    keys = [f"key{number % 10}" for number in range(100)]
    sender.send_many(values, keys=keys, headers=[{"n": value} for value in values])
    sender.send_many([b"last", b"none"], keys=[bytearray(b"key3"), None])
    sender.go()

    for number in range(10):
        homes = [p for p in range(4) if b"%d" % number in sender.values(p)]
        assert len(homes) == 1
        mine = [value for value in values if int(value) % 10 == number]
        assert mine == [value for value in sender.values(homes[0]) if value in mine]
    assert [group.result().count > 0 for group in sender.groups] == [True, True]


def test_partition_given() -> None:
    """A partition that is given is used; one that does not exist is refused alone."""
    sender = Sender(topics=[("t", 2)])
    sender.send_many([b"a", b"b"], partition=1)
    sender.send(b"c", partition=1, key=b"k")
    sender.go()
    assert sender.values(1) == [b"a", b"b", b"c"]
    for call in (sender.send, lambda value, **more: sender.send_many([value], **more)):
        with pytest.raises(UnknownPartition):
            call(b"d", partition=2)
        with pytest.raises(UsageError):
            call(b"d", partition=-1)
    sender.check()


def test_round_robin_and_function() -> None:
    """Round robin changes with each record; a function chooses for each."""
    sender = Sender(topics=[("t", 3)], partitioner="round_robin")
    sender.send_many([b"1", b"2", b"3"])
    for value in (b"4", b"5", b"6"):
        sender.send(value)
    sender.go()
    assert [len(sender.values(n)) for n in range(3)] == [2, 2, 2]

    sender = Sender(topics=[("t", 3)], partitioner=lambda topic, key, count: int(key or b"9"))
    sender.send(b"a", key=b"2")
    sender.send_many([b"b"], keys=[b"1"])
    sender.go()
    assert [sender.values(n) for n in range(3)] == [[], [b"b"], [b"a"]]
    with pytest.raises(UsageError, match="chose 9 of 3"):
        sender.send(b"c")
    sender.check()


def test_sticky() -> None:
    """Without keys a partition is kept until its batch is closed."""
    sender = Sender(topics=[("t", 3)])
    for _ in range(6):
        sender.send(b"a")
        sender.send(b"b")
        sender.go()

    assert [sender.values(n) for n in range(3)] == [[b"a", b"b"] * 2] * 3


# --- topics --------------------------------------------------------------------


def test_create_on_first_use() -> None:
    """A topic is created on its first use, if the settings say so."""
    sender = Sender()
    sender.send(b"a", topic="new")
    sender.send_many([b"b"], topic="new")
    sender.go()
    assert sender.values(topic="new") == [b"a", b"b"]

    sender = Sender(create_topics=False)
    sender.send(b"a", topic="new")
    sender.send_many([b"b"], topic="new")
    sender.go()
    assert [UnknownTopic] == [type(error) for _, error in sender.failed]
    with pytest.raises(UnknownTopic):
        sender.groups[0].result()
    sender.check()


def test_wrong_topic() -> None:
    """A name that cannot be one is refused at once."""
    sender = Sender()
    for name in ("", "x" * 201, 5):
        with pytest.raises(InvalidName):
            sender.send(b"a", topic=name)  # type: ignore[arg-type]
    sender.check()


def test_parked_records_end_within_their_deadlines() -> None:
    """Records whose topic cannot be looked up fail each at its own deadline."""
    sender = Sender()
    sender.net.up = False
    sender.send(b"a")
    sender.net.advance(10)
    sender.send(b"b")
    sender.net.advance(DEADLINE - 10)
    assert [token for token, _ in sender.failed] == [b"a"]
    sender.net.advance(11)

    assert [UnreachableError] * 2 == [type(error) for _, error in sender.failed]
    sender.check()


def test_topic_made_anew() -> None:
    """Records go on into a topic that was deleted and made anew."""
    sender = Sender()
    sender.send(b"a")
    sender.go()
    sender.net.puppet.make("t")
    sender.send(b"b")
    sender.go()
    sender.net.advance(1)

    assert sender.values() == [b"b"]
    assert [token for token, _, _ in sender.stored] == [b"a", b"b"]


def test_topic_gone() -> None:
    """Records for a topic that is gone fail, and do not bring it back."""
    sender = Sender()
    sender.send(b"a")
    sender.go()
    del sender.net.puppet.topics["t"]
    sender.send(b"b")
    sender.go()
    sender.net.advance(1)

    assert [UnknownTopic] == [type(error) for _, error in sender.failed]
    sender.check()


def test_more_partitions() -> None:
    """Partitions that are added are used after the next refresh."""
    sender = Sender(partitioner="round_robin")
    sender.send(b"a")
    sender.go()
    topic = sender.net.puppet.topics["t"]
    topic.logs.append(PuppetLog())
    topic.leaders.append(1)
    sender.net.advance(61)
    sender.send_many([b"b", b"c"])
    sender.go()

    assert [len(sender.values(n)) for n in range(2)] == [2, 1]


# --- trouble -------------------------------------------------------------------


def test_acknowledgement_lost() -> None:
    """An answer that was lost with the link leads to one copy and the right offset."""
    sender = Sender()
    sender.send(b"a")
    sender.go()
    sender.send(b"b")
    sender.core.drain(sender.net.now)
    sender.net.cut(deliver=True)
    sender.net.advance(1)

    assert sender.values() == [b"a", b"b"]
    assert [offset for _, _, offset in sender.stored] == [0, 1]


def test_broker_forgot_the_producer() -> None:
    """An idle producer that the broker forgot goes on."""
    sender = Sender()
    sender.send(b"a")
    sender.go()
    sender.net.puppet.topics["t"].logs[0].producers.clear()
    sender.send(b"b")
    sender.go()
    sender.net.advance(5)

    assert sender.values() == [b"a", b"b"]
    assert not sender.failed


def test_leader_moves() -> None:
    """A partition whose leader is elsewhere is found by a refresh."""
    sender = Sender()
    calls: list[Message] = []

    def refuse(request: Message) -> WireError | None:
        calls.append(request)
        return NotLeader() if isinstance(request, Produce) and len(calls) < 4 else None

    sender.net.puppet.refuse = refuse
    sender.send(b"a")
    sender.go()
    sender.net.advance(3)

    assert sender.values() == [b"a"]
    assert sender.net.puppet.kinds().count("METADATA") >= 2


def test_too_big_fails_alone() -> None:
    """A record over the value limit fails with the limit's name; the next one is stored."""
    sender = Sender()
    sender.send(b"a")
    sender.go()
    sender.cluster.seed.connection.limits = Limits(value=100_000)  # type: ignore[union-attr]
    with pytest.raises(ValueTooLarge, match="value limit is 100000") as caught:
        sender.send(bytes(100_001))
    assert caught.value.data == {"limit": 100_000, "name": "value"}
    with pytest.raises(ValueTooLarge, match="value limit"):
        sender.send_many([b"x", bytes(100_001)])
    with pytest.raises(ValueTooLarge, match="key limit is 65536"):
        sender.send(b"", key=bytes(65_537))
    with pytest.raises(ValueTooLarge, match="headers limit"):
        sender.send(b"", headers=[("a", bytes(65_536))])
    with pytest.raises(InvalidRequest, match="header_count limit"):
        sender.send(b"", headers=[("a", b"")] * 129)
    sender.send(b"b")
    sender.go()

    assert sender.values() == [b"a", b"b"]
    sender.check()


def test_value_over_the_batch_limit_travels_alone() -> None:
    """A value that is larger than a batch may be is a batch of one."""
    sender = Sender()
    big = bytes(2_000_000)
    sender.send(b"a")
    sender.send(big)
    sender.send(b"c")
    sender.send_many([b"d", big, b"f"])
    sender.go()

    assert [b"a", big, b"c", b"d", big, b"f"] == sender.values()
    counts = [header.records for header in sender.net.puppet.topics["t"].logs[0].headers]
    assert counts == [1, 1, 1, 1, 1, 1]


@given(st.integers(-40, 40), st.sampled_from([1, 7, 90, 999]))
def test_never_over_the_batch_limit(near: int, size: int) -> None:
    """However the records fall, no batch of many is over the broker's limit."""
    sender = Sender(batch_bytes=4096)
    sender.net.puppet.limits = evolve(sender.net.puppet.limits, batch=4096)
    count = max(2, 4096 // size) + near
    sender.send_many([bytes(size)] * max(2, count), keys=[b"k"] * max(2, count))
    for _ in range(5):
        sender.send(bytes(size), headers=[("name", bytes(300))])
    sender.go()

    assert not sender.failed
    assert not sender.groups[0].failed
    for data in sender.net.puppet.topics["t"].logs[0].batches:
        assert len(data) <= 4096 or RecordBatch(data).header.records == 1
        assert len(data) > HEADER_SIZE


def test_full_disk() -> None:
    """While the broker refuses, records fail within their deadline and close returns."""
    sender = Sender(deadline_s=5)
    sender.net.puppet.refuse = lambda request: (
        StorageFull("no space left") if isinstance(request, Produce) else None
    )
    sender.send(b"a")
    sender.send_many([b"b"])
    sender.go()
    closed: list[bool] = []
    sender.core.close(lambda: closed.append(True), sender.net.now)
    sender.net.advance(5.1)

    assert [StorageFull] == [type(error) for _, error in sender.failed]
    assert closed == [True]
    account = sender.core.ledger.account
    assert [account.sent, account.failed_count, account.pending] == [0, 2, 0]
    assert [failed.value for failed in account.failed] == [b"a", b"b"]
    sender.check()


def test_mute_broker() -> None:
    """Without any answer records fail with `DeadlineExceeded`, which says whose it should be."""
    sender = Sender(deadline_s=5)
    sender.net.puppet.deaf = {MessageType.PRODUCE}
    sender.send(b"a")
    sender.go()
    sender.net.advance(5)
    assert [DeadlineExceeded] == [type(error) for _, error in sender.failed]
    assert "partition 0 of topic t on broker puppet (1): no answer" in str(sender.failed[0][1])
    sender.net.puppet.deaf = set()
    sender.send(b"b")
    sender.go()
    sender.net.advance(5)

    assert sender.values() == [b"b"]


def test_partly_sent() -> None:
    """When a part of a batch call fails, the error says what became of each."""
    sender = Sender(topics=[("t", 2)], partitioner="round_robin")
    sender.net.puppet.refuse = lambda request: (
        PartitionOffline() if isinstance(request, Produce) and request.partition else None
    )
    sender.send_many([b"a", b"b"])
    sender.go()

    with pytest.raises(PartlySent, match="1 records were stored and 1 were not") as caught:
        sender.groups[0].result()
    assert caught.value.sent.count == 1
    assert [PartitionOffline] == [type(failed.error) for failed in caught.value.failed]


def test_buffer_is_bounded() -> None:
    """Over the bound records are refused; one large call is taken when nothing waits."""
    sender = Sender(buffer_bytes=1000)
    sender.net.puppet.deaf = {MessageType.PRODUCE}
    sender.send_many([bytes(100)] * 50)
    with pytest.raises(BufferFull, match="buffer_bytes"):
        sender.send(b"x")
    with pytest.raises(BufferFull):
        sender.send_many([b"x"])
    sender.net.puppet.deaf = set()
    sender.net.cut()
    sender.net.advance(1)
    sender.send(b"x")
    sender.go()

    assert len(sender.values()) == 51
    sender.check()


def test_full_link() -> None:
    """While the transport takes no more, batches wait here."""
    sender = Sender()
    sender.send(b"a")
    sender.go()
    sender.cluster.seed.pause()
    sender.send(b"b")
    sender.go()
    assert sender.values() == [b"a"]
    sender.cluster.seed.resume(sender.net.now)
    sender.net.pump()

    assert sender.values() == [b"a", b"b"]


def test_acks_none() -> None:
    """Without acknowledgement nothing is known, and the account says so."""
    sender = Sender(acks="none")
    for number in range(100):
        sender.send_many([b"%d" % number])
    sender.go()
    assert len(sender.values()) == 100
    assert sender.core.ledger.account.unconfirmed == 100
    assert {-1} == {base for group in sender.groups for _, base, _ in group.runs}
    assert {0} == {request.acks for request in produced(sender)}

    sender.net.up = False
    sender.net.cut()
    sender.send(b"lost")
    sender.go()
    sender.net.advance(DEADLINE)
    assert sender.core.ledger.account.failed_count == 1
    sender.check()


def test_not_idempotent() -> None:
    """Without idempotence no id is asked for."""
    sender = Sender(idempotent=False)
    sender.send(b"a")
    sender.go()

    assert sender.net.puppet.kinds() == ["METADATA", "PRODUCE"]


# --- flush, close, exit --------------------------------------------------------


def test_flush_waits_for_what_was_before() -> None:
    """A flush ends with what was taken before it, and not with what came after."""
    sender = Sender(linger_ms=1000)
    sender.send(b"a")
    sender.flush()
    sender.send(b"b")
    sender.go()

    assert [sender.flushed, sender.values()] == [1, [b"a"]]
    sender.flush()
    sender.go()
    assert [sender.flushed, sender.values()] == [2, [b"a", b"b"]]
    sender.flush()
    assert sender.flushed == 3


def test_flush_while_the_topic_is_unknown() -> None:
    """A flush counts records that wait for their topic, each under its own flush."""
    sender = Sender(linger_ms=1000)
    sender.send(b"a")
    sender.flush()
    sender.send(b"b")
    sender.net.pump()
    assert [sender.flushed, sender.values()][:0] == [0, []] or sender.flushed in (0, 1)
    sender.net.advance(2)

    assert [sender.flushed, sender.values()] == [1, [b"a", b"b"]]
    sender.check()


def test_close_accounts() -> None:
    """Closing settles everything and refuses what comes after."""
    sender = Sender(linger_ms=1000)
    for number in range(100):
        sender.send(b"%d" % number)
    done: list[Account] = []
    sender.core.close(lambda: done.append(sender.core.ledger.account), sender.net.now)
    for call in (sender.send, lambda value: sender.send_many([value])):
        with pytest.raises(ClosedError):
            call(b"late")
    sender.net.pump()

    assert [done[0].sent, done[0].failed_count, done[0].pending] == [100, 0, 0]
    assert sender.core.finished


def test_client_closed() -> None:
    """When the client is closed, parked, queued and flying records all fail."""
    sender = Sender(in_flight=1)
    sender.send(b"a")
    sender.go()
    sender.net.puppet.deaf = {MessageType.PRODUCE, MessageType.METADATA}
    for value in (b"b", b"c"):
        sender.send_many([value])
        sender.go()
    sender.send(b"open")
    sender.send(b"parked", topic="other")
    sender.cluster.close(sender.net.now)

    assert {b"open", b"parked"} == {token for token, _ in sender.failed}
    for group in sender.groups:
        with pytest.raises((ClosedError, ConnectionLost)):
            group.result()
    sender.check()


def test_exit_names_the_loss() -> None:
    """At exit the number of lost messages is told, unless this is a forked child."""
    sender = Sender(linger_ms=1000)
    for _ in range(100):
        sender.send(b"x")
    watch, stream = Watch(), io.StringIO()
    watch.add(sender.core)

    assert watch.report(stream) == 100
    assert "100 messages were not confirmed" in stream.getvalue()
    watch.forked()
    assert watch.report(stream) == 0
    watch.add(sender.core)
    watch.remove(sender.core)
    assert watch.report() == 0


def test_unknown_producer_everywhere() -> None:
    """Several partitions that lost their memory each recover by themselves."""
    sender = Sender(topics=[("t", 4)])
    for round_ in range(3):
        for number in range(4):
            sender.send_many([b"%d.%d" % (round_, number)], partition=number)
        sender.go()
        for log in sender.net.puppet.topics["t"].logs:
            log.producers.clear()
    sender.net.advance(5)

    for number in range(4):
        assert [b"%d.%d" % (n, number) for n in range(3)] == sender.values(number)
    assert UnknownProducer not in {type(error) for _, error in sender.failed}


@given(st.data())
def test_random_network(data: st.DataObject) -> None:
    """Cuts, refusals and silences at random: each record once, in order, and told right."""
    sender = Sender(topics=[("t", 2)], batch_bytes=300, in_flight=3, deadline_s=1000)
    refusals = st.sampled_from([NotLeader, StorageFull, None, None])
    sent: dict[int, list[bytes]] = {0: [], 1: []}
    for step in range(data.draw(st.integers(1, 25))):
        action = data.draw(st.integers(0, 6))
        partition = step % 2
        values = [b"%d.%d" % (step, n) for n in range(1 + step % 5)]
        if action <= 2:
            sent[partition] += values
            if action:
                for value in values:
                    sender.send(value, partition=partition)
            else:
                sender.send_many(values, partition=partition)
            sender.core.drain(sender.net.now)
        elif action == 3:
            sender.net.cut(deliver=data.draw(st.booleans()))
        elif action == 4:
            refusal = data.draw(refusals)
            sender.net.puppet.refuse = lambda request, refusal=refusal: (  # type: ignore[misc]
                refusal() if refusal and isinstance(request, Produce) else None
            )
        else:
            sender.net.advance(data.draw(st.floats(0, 3)))
    sender.net.puppet.refuse = lambda request: None
    sender.core.drain(sender.net.now)
    sender.net.advance(60)

    assert [sent[0], sent[1]] == [sender.values(0), sender.values(1)]
    assert not sender.failed
    sender.check()


# --- the short way in ----------------------------------------------------------


@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"", b"v", b"x" * 90, None, bytearray(b"y")]),
            st.sampled_from([None, None, None, "k"]),
            st.sampled_from([None, None, None, {"h": b"1"}]),
            st.sampled_from([None, None, None, 1]),
        ),
        max_size=40,
    ),
    st.sampled_from(["sticky", "round_robin"]),
)
def test_every_mixture_is_stored(
    records: list[tuple[Any, Any, Any, Any]], partitioner: str
) -> None:
    """Plain records share batches with others, and each keeps its value, key and headers."""
    sender = Sender(topics=[("t", 3)], batch_bytes=600, partitioner=partitioner)
    sender.send(b"first")
    sender.go()
    for number, (value, key, headers, partition) in enumerate(records):
        sender.send(value, key=key, headers=headers, partition=partition)
        if number % 7 == 6:
            sender.flush()
    sender.go()
    found = [
        (record.value, record.key, tuple(record.headers))
        for log in sender.net.puppet.topics["t"].logs
        for batch in log.batches
        for record in RecordBatch(batch)
    ]
    expected = [
        (
            None if value is None else bytes(value),
            None if key is None else key.encode(),
            () if headers is None else tuple(headers.items()),
        )
        for value, key, headers, _ in [(b"first", None, None, None), *records]
    ]

    assert sorted(map(repr, found)) == sorted(map(repr, expected))
    assert len(sender.stored) == len(expected)
    assert all(
        len(batch) <= 600 for log in sender.net.puppet.topics["t"].logs for batch in log.batches
    )
    sender.check()


def test_a_full_buffer_on_the_short_way() -> None:
    """A plain record that joins others is counted, and refused when too much is held."""
    sender = Sender(buffer_bytes=400)
    sender.send(b"first")
    sender.go()
    for _ in range(3):
        sender.send(b"x" * 100)
    with pytest.raises(BufferFull):
        sender.send(b"x" * 100)
    sender.go()

    assert len(sender.stored) == 4
    sender.check()
