"""The broker's side of a connection, on a transport in memory and a clock."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.internet.address import IPv4Address, UNIXAddress
from twisted.logger import LogLevel, formatEvent
from typing_extensions import override

from tests.fakes.broker import (
    BEGIN_MS,
    BrokerFixture,
    Connection,
    HeldBackground,
    HeldSyncer,
    LogKeeper,
    batch,
    error_of,
    is_reply,
    smaller_limits,
    values_in,
)
from tinymq.caller import LOCAL, Caller
from tinymq.cluster.nodes import LocalNode
from tinymq.config import DEFAULT_CONFIG
from tinymq.connection import LINGER
from tinymq.errors import (
    CorruptBatch,
    FrameTooLarge,
    HelloRequired,
    InternalError,
    InvalidName,
    InvalidRequest,
    MalformedFrame,
    MessageIdInUse,
    Overloaded,
    ProtocolError,
    RequestError,
    ShuttingDown,
    StorageFull,
    UnknownTopic,
    UnknownTopicId,
    UnknownType,
    UnsupportedVersion,
)
from tinymq.limits import DEFAULT_LIMITS
from tinymq.meta.registry import Topic
from tinymq.operations import Operations
from tinymq.protocol import FRAME_SECONDS, FRAMES_PER_TURN, MOST_FETCHES, MOST_PENDING, READ_SIZE
from tinymq.wire.codec import pack
from tinymq.wire.frames import Frame, encode_frame
from tinymq.wire.header import HEADER, MAGIC, REPLY, VERSION, MessageType
from tinymq.wire.messages import (
    REQUESTS,
    Fetch,
    FetchReply,
    Goodbye,
    Hello,
    HelloReply,
    InitProducer,
    InitProducerReply,
    Metadata,
    MetadataReply,
    Offsets,
    OffsetsReply,
    Operate,
    Ping,
    Produce,
    ProduceReply,
)


@pytest.fixture
def connection(fixture: BrokerFixture, topic: Topic) -> Connection:
    """Return a connection that has said HELLO."""
    return fixture.connect()


def raw(type_: int, message_id: int = 1, body: bytes = b"", version: int = VERSION) -> bytes:
    """A frame by hand."""
    return HEADER.pack(MAGIC, version, type_, message_id, len(body)) + body


def joined(type_: int, message_id: int, meta: dict[str, Any], payload: bytes = b"") -> bytes:
    """A frame in one piece."""
    return b"".join(encode_frame(type_, message_id, meta, [payload] if payload else []))


def read(frame: Frame, kind: type[Any]) -> Any:
    """The message in a reply."""
    assert is_reply(frame, kind.type), frame
    return kind.from_meta(frame.split()[0])


# --- the beginning ---------------------------------------------------------------


class TestHello:
    def test_reply(self, fixture: BrokerFixture) -> None:
        """HELLO is answered with who the broker is, the limits, and the heartbeat in force."""
        connection = fixture.connect(hello=False)
        reply = read(connection.ask(Hello(heartbeat=7, client_id="c")), HelloReply)
        assert reply.broker_id == 1
        assert reply.heartbeat == 7
        assert reply.limits["batch"] == DEFAULT_LIMITS.batch
        assert reply.cluster == fixture.meta.registry.cluster
        assert not reply.resumed

    def test_session(self, fixture: BrokerFixture) -> None:
        """A session id that a client brings is kept; without one it gets a new one."""
        first = read(fixture.connect(hello=False).ask(Hello()), HelloReply).session
        second = read(fixture.connect(hello=False).ask(Hello(session=first)), HelloReply).session
        third = read(fixture.connect(hello=False).ask(Hello()), HelloReply).session
        assert first == second != third

    @pytest.mark.parametrize(
        "type_", [each for each in REQUESTS if each != MessageType.HELLO] + [0x7E]
    )
    def test_first(self, fixture: BrokerFixture, type_: int) -> None:
        """Anything else before HELLO is answered with HelloRequired, then closed."""
        connection = fixture.connect(hello=False)
        connection.feed(raw(type_))
        (frame,) = connection.frames()
        assert isinstance(error_of(frame), HelloRequired)
        assert connection.closed

    def test_twice(self, connection: Connection) -> None:
        """HELLO is said once."""
        assert isinstance(error_of(connection.ask(Hello())), ProtocolError)
        assert connection.closed

    def test_late(self, fixture: BrokerFixture) -> None:
        """Without HELLO a connection is closed after its time, also with bytes trickling."""
        connections = [fixture.connect(hello=False) for _ in range(20)]
        for step in range(5):
            fixture.clock.advance(1)
            for connection in connections[:10]:
                connection.feed(raw(MessageType.HELLO, 1, bytes(8))[step : step + 1])
            assert not any(connection.closed for connection in connections)
        fixture.clock.advance(1)
        fixture.clock.advance(1)
        assert all(connection.closed for connection in connections)
        (frame,) = connections[0].frames()
        assert isinstance(error_of(frame), HelloRequired)
        assert not fixture.connect().closed

    def test_too_long(self, fixture: BrokerFixture) -> None:
        """A HELLO over 4 KiB is refused at its header; one of 4 KiB is taken."""
        connection = fixture.connect(hello=False)
        connection.feed(HEADER.pack(MAGIC, VERSION, MessageType.HELLO, 1, 4097))
        (frame,) = connection.frames()
        assert isinstance(error_of(frame), FrameTooLarge)
        assert connection.closed
        other = fixture.connect(hello=False)
        meta = pack({"zz": "x" * 4000})
        body = len(meta).to_bytes(4, "big") + meta
        body += bytes(4096 - len(body))
        other.feed(raw(MessageType.HELLO, 1, body))
        (frame,) = other.frames()
        assert is_reply(frame, MessageType.HELLO)

    def test_versions(self, fixture: BrokerFixture) -> None:
        """A client that lists only other versions is told which there are."""
        connection = fixture.connect(hello=False)
        error = error_of(connection.ask(Hello(versions=[2, 3])))
        assert isinstance(error, UnsupportedVersion)
        assert error.data == {"versions": [VERSION]}
        assert connection.closed
        newer = fixture.connect(hello=False)
        assert is_reply(newer.ask(Hello(versions=[1, 2])), MessageType.HELLO)

    def test_mechanism(self, fixture: BrokerFixture) -> None:
        """A way to prove who one is that is not offered is refused, and may be tried anew."""
        connection = fixture.connect(hello=False)
        assert isinstance(error_of(connection.ask(Hello(mechanism="scram"))), RequestError)
        assert is_reply(connection.ask(Hello()), MessageType.HELLO)

    def test_unwanted_reply(self, fixture: BrokerFixture) -> None:
        """HELLO under id 0 is taken and not answered."""
        connection = fixture.connect(hello=False)
        connection.send(MessageType.HELLO, 0, {})
        assert connection.frames() == []
        assert is_reply(connection.ask(Ping()), MessageType.PING)

    def test_pipelined(self, fixture: BrokerFixture) -> None:
        """Who does not wait for the answer to HELLO is served all the same."""
        connection = fixture.connect(hello=False)
        connection.feed(raw(MessageType.HELLO, 1) + raw(MessageType.PING, 2))
        assert [frame.type for frame in connection.frames()] == [0x81, 0x83]

    def test_unix(self, fixture: BrokerFixture) -> None:
        """A peer on a unix socket has no host, and a name in logs all the same."""
        protocol = fixture.factory.buildProtocol(UNIXAddress("/run/x"))
        assert protocol is not None
        assert "UNIXAddress" in protocol.peer


# --- foreign and broken bytes ------------------------------------------------------


class TestForeign:
    @pytest.mark.parametrize(
        "data",
        [
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            b"SSH-2.0-OpenSSH_9.6\r\n",
            bytes(12),
            b"T\x00",
        ],
    )
    @pytest.mark.parametrize("hello", [False, True])
    def test_magic(
        self, fixture: BrokerFixture, logged: LogKeeper, data: bytes, *, hello: bool
    ) -> None:
        """Other protocols are closed at once without an answer, with one log line."""
        connection = fixture.connect(hello=hello)
        logged.events.clear()
        connection.feed(data)
        connection.feed(data)
        assert connection.closed
        assert connection.frames() == []
        (event,) = logged.events
        assert event["log_level"] == LogLevel.info
        asked = "asked for a web page" in formatEvent(event)
        assert asked is data.startswith(b"GET")

    @pytest.mark.parametrize("length", [0xFFFF_FFFF, 0x8000_0000, DEFAULT_LIMITS.body + 1])
    def test_length(self, connection: Connection, length: int) -> None:
        """A length over the limit is refused at the header, with nothing kept."""
        connection.feed(HEADER.pack(MAGIC, VERSION, MessageType.PRODUCE, 1, length))
        (frame,) = connection.frames()
        error = error_of(frame)
        assert isinstance(error, FrameTooLarge)
        assert frame.message_id == 0
        assert error.data["limit"] == DEFAULT_LIMITS.body
        for _ in range(100):
            connection.feed(bytes(1000))
        assert connection.protocol._decoder.buffered == 0
        assert (connection.closed, connection.frames()) == (True, [])

    @pytest.mark.parametrize("version", [0, 2, 255])
    def test_version(self, connection: Connection, version: int) -> None:
        """A frame of another version gets an error that names the ones spoken."""
        connection.feed(raw(MessageType.PING, version=version))
        (frame,) = connection.frames()
        error = error_of(frame)
        assert isinstance(error, UnsupportedVersion)
        assert error.data == {"versions": [VERSION]}
        assert connection.closed

    @pytest.mark.parametrize("type_", [0, 2, 5, 0x22, 0x7F])
    def test_type(self, connection: Connection, type_: int) -> None:
        """An unknown type is an error reply, and the connection lives."""
        connection.send(type_, 9, {"x": 1})
        (frame,) = connection.frames()
        assert isinstance(error_of(frame), UnknownType)
        assert frame.message_id == 9
        assert is_reply(connection.ask(Ping()), MessageType.PING)

    def test_reply_from_the_client(self, connection: Connection) -> None:
        """Answers that nobody asked for are signs of life and nothing else."""
        for type_ in (REPLY | MessageType.PING, REPLY | MessageType.FETCH, MessageType.ERROR):
            connection.send(type_, 4, {"e": 1})
        assert connection.frames() == []
        assert not connection.closed

    @pytest.mark.parametrize(
        "body", [b"\0", b"\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\5\x80", b"\0\0\0\1\xc1"]
    )
    def test_body(self, connection: Connection, body: bytes) -> None:
        """A body that does not follow the layout is a MalformedFrame."""
        connection.feed(raw(MessageType.METADATA, 3, body))
        (frame,) = connection.frames()
        assert isinstance(error_of(frame), MalformedFrame)
        assert connection.closed

    def test_unknown_keys(self, connection: Connection) -> None:
        """Unknown keys are ignored, so that the protocol can grow."""
        connection.send(MessageType.PING, 5, {"future": [1, 2]})
        (frame,) = connection.frames()
        assert is_reply(frame, MessageType.PING)

    @given(data=st.binary(max_size=300), hello=st.booleans())
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_garbage(
        self, fixture: BrokerFixture, logged: LogKeeper, data: bytes, *, hello: bool
    ) -> None:
        """No bytes whatever lead to a failure inside."""
        connection = fixture.connect(hello=hello)
        connection.feed(data)
        connection.feed(raw(data[0] if data else 0, 1, data[1:]))
        fixture.turn()
        codes = [error_of(each).code for each in connection.frames() if each.type == 0xFF]
        assert InternalError.code not in codes
        assert logged.failures == []
        connection.lose()


# --- message ids -------------------------------------------------------------------


class TestIds:
    def test_in_use(self, connection: Connection, topic: Topic) -> None:
        """An id that is still open cannot be used again, under any type."""
        connection.send(MessageType.FETCH, 7, Fetch(topics=[(topic.id, [(0, 0, -1)])]).to_meta())
        connection.send(0x7E, 7)
        (frame,) = connection.frames()
        assert isinstance(error_of(frame), MessageIdInUse)
        assert connection.closed

    def test_again(self, connection: Connection) -> None:
        """An id is free again once it was answered, well or not."""
        for type_ in (MessageType.PING, 0x7E, MessageType.PRODUCE, MessageType.PING):
            connection.send(type_, 7)
            assert len(connection.frames()) == 1
        assert not connection.closed

    def test_wrap(self, connection: Connection) -> None:
        """The highest id is as good as any."""
        for message_id in (0xFFFF_FFFF, 1):
            connection.send(MessageType.PING, message_id)
        assert [frame.message_id for frame in connection.frames()] == [0xFFFF_FFFF, 1]

    def test_zero(self, fixture: BrokerFixture, connection: Connection, topic: Topic) -> None:
        """Under id 0 nothing is answered, neither results nor errors that are not fatal."""
        connection.send(MessageType.PING, 0)
        connection.send(0x7E, 0)
        connection.send(MessageType.METADATA, 0, {"n": 5})
        connection.send(MessageType.OPERATE, 0, {"o": "topic.create", "a": {"name": "made"}})
        connection.send(MessageType.FETCH, 0, Fetch(topics=[]).to_meta())
        produce = Produce(topic_id=topic.id, partition=0)
        connection.send(MessageType.PRODUCE, 0, produce.to_meta(), batch(b"a"))
        connection.send(MessageType.PRODUCE, 0, produce.to_meta(), b"bad")
        fixture.turn()
        assert connection.frames() == []
        assert fixture.values() == [b"a"]
        assert "made" in fixture.meta.registry.by_name

    def test_any_order(self, held: BrokerFixture, syncer: HeldSyncer) -> None:
        """Replies come when they are ready, in any order, each under its own id."""
        held.topic("os", sync="os")
        connection = held.connect()
        names = ("t", "os", "os", "t")
        sent = [
            connection.post(
                Produce(topic_id=held.meta.describe(name).id, partition=0), batch(b"v%d" % place)
            )
            for place, name in enumerate(names)
        ]
        ping = connection.post(Ping())
        held.turn()
        syncer.release()
        assert [frame.message_id for frame in connection.frames()] == [
            sent[1], sent[2], ping, sent[0], sent[3],
        ]  # fmt: skip

    def test_many(self, fixture: BrokerFixture) -> None:
        """Fifty requesters on fifty connections each get their own answer."""
        fixture.topic()
        connections = [fixture.connect() for _ in range(50)]
        for place, connection in enumerate(connections):
            fixture.produce(b"%d" % place)
            connection.send(
                MessageType.FETCH,
                1000 + place,
                Fetch(
                    topics=[(fixture.meta.describe("t").id, [(0, place, -1)])], max_bytes=1
                ).to_meta(),
            )
        for place, connection in enumerate(connections):
            (frame,) = connection.frames()
            assert frame.message_id == 1000 + place
            assert values_in(frame.split()[1]) == [b"%d" % place]


# --- heartbeats --------------------------------------------------------------------


class TestHeartbeats:
    def test_ping(self, connection: Connection) -> None:
        """A PING with an id is answered."""
        assert is_reply(connection.ask(Ping()), MessageType.PING)

    def test_from_the_broker(self, fixture: BrokerFixture) -> None:
        """The broker says something once per interval, and nothing more often."""
        connection = fixture.connect(heartbeat=10)
        pings = 0
        for _ in range(60):
            fixture.clock.advance(1)
            connection.send(MessageType.PING, 0)
            pings += sum(frame.type == MessageType.PING for frame in connection.frames())
        assert pings in (5, 6)

    def test_dead(self, fixture: BrokerFixture) -> None:
        """A peer that is silent for three intervals is closed; one that says a byte is not."""
        silent, alive = fixture.connect(heartbeat=10), fixture.connect(heartbeat=10)
        start = raw(MessageType.PING, 0) * 10
        for step in range(35):
            fixture.clock.advance(1)
            alive.feed(start[step : step + 1])
            assert not alive.closed
            if step < 29:
                assert not silent.closed
        assert silent.closed

    def test_not_read(self, fixture: BrokerFixture, topic: Topic) -> None:
        """While the broker does not read, silence is not the peer's; nor just afterwards."""
        connection = fixture.connect(heartbeat=1)
        connection.transport.peer_reads = False
        for _ in range(3):
            fixture.produce(b"x" * 200_000)
        for _ in range(3):
            connection.post(Fetch(topics=[(topic.id, [(0, 0, -1)])]))
        assert not connection.reads()
        fixture.clock.pump([1] * 20)
        assert not connection.closed
        connection.transport.peer_reads = True
        connection.transport.drain()
        fixture.clock.advance(1)
        assert not connection.closed
        assert connection.reads()

    @pytest.mark.parametrize(("wanted", "told"), [(300, 4), (4, 4), (3, 3)])
    def test_in_force(self, tmp_path: Path, wanted: int, told: int) -> None:
        """The broker's limit bounds the interval; it is told, and it is the one that counts."""
        fixture = BrokerFixture(tmp_path / "beat", config=smaller_limits(heartbeat_seconds=4))
        connection = fixture.connect(hello=False)
        assert read(connection.ask(Hello(heartbeat=wanted)), HelloReply).heartbeat == told
        fixture.clock.pump([1] * told)
        assert [frame.type for frame in connection.frames()] == [MessageType.PING]
        fixture.clock.pump([1] * (2 * told))
        assert not connection.closed
        fixture.clock.advance(1)
        assert connection.closed

    def test_half_a_frame_that_nobody_reads(self, held: BrokerFixture, syncer: HeldSyncer) -> None:
        """A frame whose rest the broker did not read for long is not the peer's slowness."""
        connection = held.connect(heartbeat=1)
        produce = Produce(topic_id=held.meta.describe("t").id, partition=0)
        while connection.reads():
            connection.post(produce, batch(b"x" * 900_000))
        connection.feed(raw(MessageType.PING, 0)[:5])
        held.clock.pump([1] * (FRAME_SECONDS + 5))
        syncer.release()
        assert connection.reads()
        held.clock.advance(1)
        assert not connection.closed
        held.clock.pump([1] * 3)
        assert connection.closed

    def test_no_timer_left(self, fixture: BrokerFixture) -> None:
        """With the last connection the timer goes."""
        connection = fixture.connect()
        connection.lose()
        fixture.clock.advance(1)
        assert fixture.clock.getDelayedCalls() == []
        assert fixture.factory.connections == {}


# --- back-pressure -------------------------------------------------------------------


class TestBackPressure:
    def test_reader_that_never_reads(self, fixture: BrokerFixture, topic: Topic) -> None:
        """A peer that never reads holds a bounded number of bytes, whatever it asked for."""
        for _ in range(20):
            fixture.produce(b"x" * 250_000)
        slow, quick = fixture.connect(), fixture.connect()
        slow.transport.peer_reads = False
        fetch = Fetch(topics=[(topic.id, [(0, 0, -1)])], max_bytes=1 << 24)
        for _ in range(MOST_FETCHES):
            slow.post(fetch)
        fixture.turn()
        assert slow.transport.most <= slow.transport.bufferSize + 2 * DEFAULT_LIMITS.fetch
        assert len(slow.protocol._parked) > 90
        assert slow.paused()
        assert not slow.reads()
        assert is_reply(quick.ask(fetch), MessageType.FETCH)  # the others are served
        answers = 0
        while slow.protocol._parked:
            answers += len(list(slow._decoder.feed(slow.transport.drain())))
            assert slow.transport.most <= slow.transport.bufferSize + 2 * DEFAULT_LIMITS.fetch
        slow.transport.peer_reads = True
        slow.transport.drain()
        fixture.turn()
        assert not slow.paused()
        assert slow.reads()

    def test_small_requests_with_long_answers(self, fixture: BrokerFixture) -> None:
        """Many short requests in one piece do not become many long answers that nobody reads."""
        fixture.topic("big", partitions=300, storage="memory")
        connection = fixture.connect()
        connection.transport.peer_reads = False
        meta = {"o": "topic.info", "a": {"name": "big"}}
        size = READ_SIZE // len(joined(MessageType.OPERATE, 1, meta))
        connection.feed(
            b"".join(joined(MessageType.OPERATE, number, meta) for number in range(1, size))
        )
        for _ in range(10):
            fixture.turn()
        assert connection.transport.most <= connection.transport.bufferSize + 100_000
        answers = 0
        for _ in range(3):
            answers += len(list(connection._decoder.feed(connection.transport.drain())))
            fixture.turn()
        assert answers > 10
        assert connection.transport.most <= connection.transport.bufferSize + 100_000
        assert not connection.closed

    def test_waiting_read(self, fixture: BrokerFixture, topic: Topic) -> None:
        """A read that becomes ready while the peer does not read is kept as a request."""
        connection = fixture.connect()
        message_id = connection.post(Fetch(topics=[(topic.id, [(0, 0, -1)])], max_wait_ms=60_000))
        connection.protocol.pauseProducing()
        fixture.produce(b"a")
        assert connection.frames() == []
        assert len(connection.protocol._parked) == 1
        connection.protocol.pauseProducing()
        fixture.produce(b"b")
        connection.protocol.resumeProducing()
        (frame,) = connection.frames()
        assert frame.message_id == message_id
        assert values_in(frame.split()[1]) == [b"a", b"b"]

    def test_cold_read(self, tmp_path: Path) -> None:
        """Reads that come back from the disk after the peer stopped reading are kept too."""
        background = HeldBackground()
        fixture = BrokerFixture(tmp_path / "data", background=background)
        background.waiting.clear()
        topic = fixture.topic()
        fixture.produce(b"a")
        fixture.disk.cached = False  # type: ignore[attr-defined]
        connection = fixture.connect()
        for _ in range(5):
            connection.post(Fetch(topics=[(topic.id, [(0, 0, -1)])]))
        connection.protocol.pauseProducing()
        while background.waiting:
            background.release()
        assert connection.frames() == []
        assert len(connection.protocol._parked) == 5
        connection.protocol.resumeProducing()
        while background.waiting:
            background.release()
        assert len(connection.frames()) == 5
        assert connection.protocol._readers == set()

    def test_too_many_reads(self, connection: Connection, topic: Topic) -> None:
        """Over a hundred waiting reads are refused, and the connection lives."""
        fetch = Fetch(topics=[(topic.id, [(0, 0, -1)])], max_wait_ms=60_000)
        for _ in range(MOST_FETCHES):
            connection.post(fetch)
        assert isinstance(error_of(connection.ask(fetch)), Overloaded)
        assert not connection.closed

    def test_frames_in_turns(self, fixture: BrokerFixture) -> None:
        """A burst is handled in turns, and other connections are served between them."""
        burst, other = fixture.connect(), fixture.connect()
        total = 3 * FRAMES_PER_TURN + 7
        burst.feed(b"".join(raw(MessageType.PING, number) for number in range(1, total + 1)))
        seen = []
        for _ in range(4):
            seen.append(len(burst.frames()))
            assert is_reply(other.ask(Ping()), MessageType.PING)
            fixture.turn()
        assert seen == [FRAMES_PER_TURN] * 3 + [7]
        assert burst.reads()

    def test_producing(self, held: BrokerFixture, syncer: HeldSyncer) -> None:
        """Reading stops while 16 MiB of a connection's batches wait for the disk."""
        connection, other = held.connect(), held.connect()
        produce = Produce(topic_id=held.meta.describe("t").id, partition=0)
        data = batch(b"x" * 900_000)
        sent = 0
        while connection.reads():
            connection.post(produce, data)
            sent += 1
        assert MOST_PENDING <= sent * len(data) <= MOST_PENDING + len(data)
        assert connection.protocol.busy
        assert is_reply(other.ask(Ping()), MessageType.PING)
        assert other.reads()
        held.turn()
        syncer.release()
        assert len(connection.frames()) == sent
        assert connection.reads()
        assert not connection.protocol.busy

    def test_stop_producing(self, connection: Connection) -> None:
        """A transport that gives up says so, and nothing more happens."""
        connection.protocol.stopProducing()
        assert not connection.closed


class TestSplitting:
    def test_small_pieces(self, fixture: BrokerFixture, topic: Topic) -> None:
        """A frame of many small pieces costs what one whole costs, in bytes kept."""
        connection, other = fixture.connect(), fixture.connect()
        data = batch(random.Random(1).randbytes(2 * 1024 * 1024))
        frame = joined(
            MessageType.PRODUCE, 1, Produce(topic_id=topic.id, partition=0).to_meta(), data
        )
        for position in range(0, len(frame), 1024):
            connection.feed(frame[position : position + 1024])
            assert connection.protocol._decoder.buffered <= len(frame)
            if position % (1 << 20) == 0:
                assert is_reply(other.ask(Ping()), MessageType.PING)
        fixture.turn()
        (reply,) = connection.frames()
        assert read(reply, ProduceReply).base_offset == 0

    def test_single_bytes(self, connection: Connection) -> None:
        """Frames that come byte by byte are frames all the same."""
        for byte in raw(MessageType.PING, 1) + raw(MessageType.PING, 2):
            connection.feed(bytes([byte]))
        assert [frame.message_id for frame in connection.frames()] == [1, 2]


# --- requests ------------------------------------------------------------------------


class TestRequests:
    def test_produce_and_fetch(
        self, fixture: BrokerFixture, connection: Connection, topic: Topic
    ) -> None:
        """What is published comes back, with its place and its time."""
        message_id = connection.post(Produce(topic_id=topic.id, partition=0), batch(b"a", b"b"))
        fixture.turn()
        (frame,) = connection.frames()
        assert frame.message_id == message_id
        reply = read(frame, ProduceReply)
        assert (reply.base_offset, reply.timestamp) == (0, BEGIN_MS)
        answer = connection.ask(Fetch(topics=[(topic.id, [(0, 0, -1)])]))
        meta, payload = answer.split()
        assert FetchReply.from_meta(meta).topics == [(topic.id, [(0, 2, 0, 2, len(payload), None)])]
        assert values_in(payload) == [b"a", b"b"]

    def test_os(self, fixture: BrokerFixture) -> None:
        """With sync = os the answer needs no turn of the reactor."""
        topic = fixture.topic("os", sync="os")
        connection = fixture.connect()
        frame = connection.ask(Produce(topic_id=topic.id, partition=0), batch(b"a"))
        assert read(frame, ProduceReply).base_offset == 0

    @pytest.mark.parametrize("acks", [0, 1, 2])
    def test_acks(
        self, fixture: BrokerFixture, connection: Connection, topic: Topic, acks: int
    ) -> None:
        """Who wants no acknowledgement gets none, whatever the id, and the id is free."""
        produce = Produce(topic_id=topic.id, partition=0, acks=acks)
        for data in (batch(b"a"), b"bad"):
            connection.send(MessageType.PRODUCE, 3, produce.to_meta(), data)
            fixture.turn()
            assert len(connection.frames()) == (1 if acks else 0)
        connection.send(MessageType.PING, 3)
        assert len(connection.frames()) == 1
        assert fixture.values() == [b"a"]

    def test_memory(self, fixture: BrokerFixture) -> None:
        """A topic in memory says so on the wire."""
        topic = fixture.topic("m", storage="memory")
        connection = fixture.connect()
        frame = connection.ask(Produce(topic_id=topic.id, partition=0), batch(b"a"))
        assert read(frame, ProduceReply).volatile

    def test_stale_id(self, fixture: BrokerFixture, connection: Connection, topic: Topic) -> None:
        """The id of a topic that was made anew is refused by each request that names one."""
        fixture.operate("topic.delete", name="t")
        fixture.topic()
        requests = [
            (Produce(topic_id=topic.id, partition=0), batch(b"a")),
            (Fetch(topics=[(topic.id, [(0, 0, -1)])]), b""),
            (Offsets(topic_id=topic.id, queries=[(0, -1)]), b""),
        ]
        codes = []
        for request, payload in requests:
            meta = connection.ask(request, payload).split()[0]
            if "q" in meta:
                row = meta["q"][0]
                meta = row[1][0][5] if isinstance(row[1], list) else row[4]
            codes.append(meta["e"])
        assert codes == [UnknownTopicId.code] * 3

    def test_offsets(self, fixture: BrokerFixture, connection: Connection, topic: Topic) -> None:
        """OFFSETS finds by time, row by row, with an error where there is one."""
        fixture.produce(b"a")
        frame = connection.ask(
            Offsets(topic_id=topic.id, queries=[(0, -1), (0, -2), (0, 0), (9, 0)])
        )
        rows = read(frame, OffsetsReply).results
        assert rows[:3] == [(0, 1, 0, -1, None), (0, 0, -1, -1, None), (0, 0, -1, BEGIN_MS, None)]
        assert rows[3][4]["e"] == 26

    def test_init_producer(self, connection: Connection) -> None:
        """Each producer gets an id of its own, and the window."""
        ids = {
            read(connection.ask(InitProducer()), InitProducerReply).producer_id for _ in range(5)
        }
        assert len(ids) == 5

    def test_metadata(self, fixture: BrokerFixture, connection: Connection) -> None:
        """METADATA tells of those that exist, makes those that may be, and says what is wrong."""
        frame = connection.ask(Metadata(names=["t", "new"]))
        rows = read(frame, MetadataReply).topics
        assert rows[0][2] == [1]
        assert rows[1][4]["e"] == UnknownTopic.code
        frame = connection.ask(Metadata(names=["new"], create=True))
        reply = read(frame, MetadataReply)
        assert reply.topics[0][4] is None
        assert reply.brokers == [(1, "127.0.0.1", 7800, "tinymq")]
        assert fixture.broker.partition(reply.topics[0][1], 0).index == 0

    def test_operate(self, connection: Connection) -> None:
        """An operation's result is in the payload."""
        frame = connection.ask(Operate(name="broker.info"))
        assert is_reply(frame, MessageType.OPERATE)
        assert b"ready" in bytes(frame.split()[1])

    @pytest.mark.parametrize(
        "name",
        [
            *("", ".", "..", "../../x", "/etc/x", "a/../b", "C:\\x", "%2e%2e%2f", "a b", "ä"),
            *("\0", "a\nb", ".hidden", "x" * 201, "x" * 255, "x" * 256, "x" * 1000, "é" * 101),
        ],
    )
    def test_names(self, fixture: BrokerFixture, connection: Connection, name: str) -> None:
        """No bad name passes anywhere, and nothing is made outside the folder."""
        before = {path for path in fixture.path.parent.rglob("*") if path.is_dir()}
        for create in (False, True):
            (row,) = read(
                connection.ask(Metadata(names=[name], create=create)), MetadataReply
            ).topics
            assert row[4]["e"] == InvalidName.code
        for operation in (
            *("topic.create", "topic.alter", "topic.delete"),
            *("topic.info", "topic.purge", "topic.undo_purge"),
        ):
            frame = connection.ask(Operate(name=operation, arguments={"name": name}))
            assert isinstance(error_of(frame), InvalidName)
        assert {path for path in fixture.path.parent.rglob("*") if path.is_dir()} == before

    @pytest.mark.parametrize("name", ["a" * 64, "a" * 65, "a" * 200, "A.b_c-9", "-", "_"])
    def test_good_names(self, connection: Connection, name: str) -> None:
        """Names up to the limit are good everywhere."""
        (row,) = read(connection.ask(Metadata(names=[name], create=True)), MetadataReply).topics
        assert row[4] is None

    def test_full_disk(self, fixture: BrokerFixture, connection: Connection, topic: Topic) -> None:
        """A refusal for want of space reaches the producer, and may be tried again."""
        fixture.broker.refuse(StorageFull("full"))
        error = error_of(connection.ask(Produce(topic_id=topic.id, partition=0), batch(b"a")))
        assert isinstance(error, StorageFull)
        assert error.retriable
        assert not connection.closed

    def test_damaged_batch(self, connection: Connection, topic: Topic) -> None:
        """A damaged batch is an error reply, and the connection lives."""
        data = bytearray(batch(b"value"))
        data[-1] ^= 1
        frame = connection.ask(Produce(topic_id=topic.id, partition=0), bytes(data))
        assert isinstance(error_of(frame), CorruptBatch)
        assert is_reply(connection.ask(Ping()), MessageType.PING)


#: Values that some field will not like.
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.floats(allow_nan=True),
    st.text(max_size=300),
    st.binary(max_size=40),
    st.lists(st.integers(-5, 5), max_size=4),
    st.lists(
        st.tuples(st.binary(max_size=17), st.lists(st.tuples(st.integers(-2, 9)))), max_size=3
    ),
    st.dictionaries(st.text(max_size=3), st.integers(-3, 3), max_size=3),
)


@st.composite
def bent(draw: st.DrawFn) -> tuple[int, dict[str, Any], bytes]:
    """A request of any type with fields missing, wrong or huge."""
    type_ = draw(st.sampled_from(sorted(set(REQUESTS) - {MessageType.GOODBYE})))
    good: dict[int, dict[str, Any]] = {
        MessageType.PRODUCE: {"t": b"topic-id-here-16", "p": 0},
        MessageType.FETCH: {"q": [[b"topic-id-here-16", [[0, 0, -1]]]]},
        MessageType.OFFSETS: {"t": b"topic-id-here-16", "q": [[0, -1], [0, 5]]},
        MessageType.METADATA: {"n": ["t", "new"], "c": True},
        MessageType.OPERATE: {
            "o": draw(
                st.sampled_from(
                    [
                        *("topic.create", "topic.alter", "topic.delete", "topic.list"),
                        *("topic.info", "topic.purge", "topic.undo_purge", "broker.info", "x"),
                    ]
                )
            ),
            "a": draw(
                st.dictionaries(
                    st.sampled_from(
                        [
                            *("name", "partitions", "config", "dry_run", "filter", "after"),
                            *("limit", "partition", "before", "before_ms", "keep", "other"),
                        ]
                    ),
                    ODD
                    | st.just("t")
                    | st.dictionaries(
                        st.sampled_from(["sync", "retention.ms", "segment.bytes", "x"]), ODD
                    ),
                    max_size=5,
                )
            ),
        },
    }
    meta = dict(good.get(type_, {}))
    keys = st.sampled_from([*meta, "z", "h", "v", "n", "w", "x", "k", "a"])
    for key in draw(st.lists(keys, max_size=2)):
        if draw(st.booleans()):
            meta.pop(key, None)
        else:
            meta[key] = draw(ODD)
    return type_, meta, draw(st.binary(max_size=80) | st.just(batch(b"v")))


@pytest.fixture
def few(tmp_path: Path) -> BrokerFixture:
    """Return a broker whose topics have few partitions."""
    return BrokerFixture(tmp_path / "few", config=smaller_limits(partitions=3))


class TestAnyRequest:
    @given(request_=bent())
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_typed_errors(
        self,
        few: BrokerFixture,
        logged: LogKeeper,
        request_: tuple[int, dict[str, Any], bytes],
    ) -> None:
        """Whatever a request holds, its answer is a result or a typed error, never a fault."""
        fixture = few
        type_, meta, payload = request_
        connection = fixture.connect(hello=type_ != MessageType.HELLO)
        connection.send(type_, 5, meta, payload)
        fixture.clock.advance(61)
        frames = [each for each in connection.frames() if each.message_id == 5]
        assert len(frames) == 1 or meta.get("a") == 0, (frames, meta)
        for frame in frames:
            if frame.type == MessageType.ERROR:
                assert error_of(frame).code >= 10
        assert logged.failures == []
        connection.lose()


# --- faults, and the end ---------------------------------------------------------------


class BrokenOperations(Operations):
    """Operations with a fault of the program in them."""

    @override
    async def run(self, name: str, arguments: Any, caller: Caller = LOCAL) -> Any:
        raise RuntimeError("a secret of the inside")


class TestEnd:
    def test_unexpected(self, fixture: BrokerFixture, logged: LogKeeper) -> None:
        """A fault inside is told in full to the log and blandly to the peer, then closed."""
        fixture.factory.operations = BrokenOperations(
            fixture.broker, fixture.meta, LocalNode(fixture.node)
        )
        connection, other = fixture.connect(), fixture.connect()
        error = error_of(connection.ask(Operate(name="broker.info")))
        assert isinstance(error, InternalError)
        assert "secret" not in error.text
        assert connection.closed
        (event,) = logged.failures
        assert "a secret" in event["log_failure"].getTraceback()
        assert is_reply(other.ask(Ping()), MessageType.PING)

    def test_nothing_after_the_end(self, connection: Connection) -> None:
        """A closed connection handles nothing that still arrives."""
        connection.send(MessageType.GOODBYE, 0, {})
        connection.send(MessageType.OPERATE, 1, {"o": "topic.create", "a": {"name": "late"}})
        assert connection.frames() == []
        assert "late" not in connection.protocol.shared.broker.meta.registry.by_name

    def test_rest_of_the_chunk(self, connection: Connection) -> None:
        """What follows GOODBYE in the same piece is not handled either."""
        connection.feed(raw(MessageType.GOODBYE, 0) + raw(MessageType.PING, 1))
        assert connection.frames() == []
        assert connection.closed

    def test_linger(self, fixture: BrokerFixture) -> None:
        """A peer that does not take its last bytes is cut off after a while."""
        connection = fixture.connect()
        connection.send(MessageType.GOODBYE, 0, {})
        aborted = []
        for seconds in (4.9, 0.2):
            fixture.clock.advance(seconds)
            aborted.append(connection.transport.aborted)
        assert aborted == [False, True]
        gone = fixture.connect()
        gone.send(MessageType.GOODBYE, 0, {})
        gone.lose()
        fixture.clock.advance(10)
        assert not gone.transport.aborted

    def test_lost_with_open_requests(self, held: BrokerFixture, syncer: HeldSyncer) -> None:
        """A connection lost with requests open leaves nothing behind; its batch is stored."""
        topic = held.meta.describe("t")
        connection = held.connect()
        connection.post(Fetch(topics=[(topic.id, [(0, 0, -1)])], max_wait_ms=60_000))
        connection.post(Produce(topic_id=topic.id, partition=0), batch(b"a"))
        connection.protocol.pauseProducing()
        connection.post(Fetch(topics=[(topic.id, [(0, 0, -1)])], max_wait_ms=60_000))
        connection.lose()
        held.turn()
        syncer.release()
        held.clock.advance(2)
        assert held.values() == [b"a"]
        assert connection.frames() == []
        assert held.partition().watchers == set()
        assert held.clock.getDelayedCalls() == []

    def test_goodbye(self, held: BrokerFixture, syncer: HeldSyncer) -> None:
        """A stop refuses what is open, acknowledges what was staged, says goodbye, and closes."""
        topic = held.meta.describe("t")
        connection = held.connect()
        produce = connection.post(Produce(topic_id=topic.id, partition=0), batch(b"a"))
        waiting = Fetch(topics=[(topic.id, [(0, 0, -1)])], max_wait_ms=60_000)
        fetches = [connection.post(waiting) for _ in range(3)]
        held.factory.refuse("stopping")
        held.factory.close_all("stopping")
        frames = connection.frames()
        assert [type(error_of(frame)) for frame in frames] == [ShuttingDown] * 3
        assert [frame.message_id for frame in frames] == fetches
        held.turn()
        syncer.release()
        answer, goodbye = connection.frames()
        assert answer.message_id == produce
        assert read(answer, ProduceReply).base_offset == 0
        assert Goodbye.from_meta(goodbye.split()[0]).reason == "stopping"
        assert connection.closed
        assert held.factory.buildProtocol(None) is None
        held.factory.close_all("again")
        assert connection.frames() == []

    def test_goodbye_before_the_disk(self, held: BrokerFixture, syncer: HeldSyncer) -> None:
        """A disk that never answers delays a goodbye for only so long; nothing is made up."""
        connection, cut = held.connect(), held.connect()
        produce = Produce(topic_id=held.meta.describe("t").id, partition=0)
        for each in (connection, cut):
            each.post(produce, batch(b"a"))
        held.turn()
        held.factory.close_all("stopping")
        assert connection.frames() == []
        cut.lose()
        held.clock.advance(LINGER + 0.1)
        (goodbye,) = connection.frames()
        assert goodbye.type == MessageType.GOODBYE
        assert connection.closed
        syncer.release()
        assert connection.frames() == cut.frames() == []
        held.clock.advance(LINGER + 0.1)
        assert connection.transport.aborted
        assert not cut.transport.aborted

    def test_parting_is_deaf(self, held: BrokerFixture, syncer: HeldSyncer) -> None:
        """What comes after the end was decided is read and dropped, even if reading had stopped."""
        connection = held.connect()
        produce = Produce(topic_id=held.meta.describe("t").id, partition=0)
        while connection.reads():
            connection.post(produce, batch(b"x" * 900_000))
        held.factory.close_all("stopping")
        assert connection.reads()
        connection.post(Ping())
        connection.transport.peer_reads = True
        connection.protocol.pauseProducing()
        connection.protocol.resumeProducing()
        held.clock.advance(1)
        assert connection.frames() == []
        syncer.release()
        *answers, goodbye = connection.frames()
        assert {each.type for each in answers} == {MessageType.PRODUCE | REPLY}
        assert goodbye.type == MessageType.GOODBYE

    def test_hostile_client_id(self, fixture: BrokerFixture, logged: LogKeeper) -> None:
        """Whatever a client calls itself, log lines stay what they are."""
        connection = fixture.connect(client_id='"><img src=x>{peer}\r\n%s\x1b[31m', software="{0}")
        connection.send(MessageType.HELLO, 1, {})
        (line,) = logged.texts
        assert "img" not in line
        assert line.isprintable()

    def test_invalid_field(self, connection: Connection) -> None:
        """An error of a field names it."""
        connection.send(MessageType.FETCH, 2, {"q": [], "w": 60_001})
        error = error_of(connection.frames()[0])
        assert isinstance(error, InvalidRequest)
        assert error.data["field"] == "max_wait_ms"


class TestConnections:
    """There are only so many connections."""

    def test_most(self, tmp_path: Path) -> None:
        """One connection too many is turned away; when one ends, there is room again."""
        config = DEFAULT_CONFIG.changed({"network.connections": 2})
        fixture = BrokerFixture(tmp_path / "most", config=config)
        first, _second = Connection(fixture.factory), Connection(fixture.factory)
        address = IPv4Address("TCP", "192.0.2.1", 5)
        assert fixture.factory.buildProtocol(address) is None
        assert fixture.factory.buildProtocol(address) is None
        first.protocol.connectionLost()
        assert fixture.factory.buildProtocol(address) is not None


def test_unfinished_frame(fixture: BrokerFixture, connection: Connection) -> None:
    """A frame that trickles in for longer than it may ends the connection."""
    connection.feed(HEADER.pack(MAGIC, VERSION, MessageType.PRODUCE, 9, 1 << 20))
    for _ in range(FRAME_SECONDS + 5):
        connection.feed(b"x")
        fixture.clock.advance(1)
    assert connection.transport.disconnecting


def test_frames_that_overlap(fixture: BrokerFixture, connection: Connection) -> None:
    """A peer whose every read ends within a frame is not cut off, as long as frames complete."""
    ping = HEADER.pack(MAGIC, VERSION, MessageType.PING, 0, 0)
    connection.feed(ping[:5])
    for _ in range(2 * FRAME_SECONDS):
        connection.feed(ping[5:] + ping[:5])
        fixture.clock.advance(1)
    assert not connection.transport.disconnecting
