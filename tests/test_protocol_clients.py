"""Who is connected: what is known of each client, how one is closed, and its session."""

from __future__ import annotations

import io
import json
import socket
import time
from collections.abc import Mapping
from typing import Any

import pytest
from twisted.internet.address import IPv4Address
from twisted.internet.selectreactor import SelectReactor
from twisted.internet.task import deferLater
from twisted.logger import LogEvent

from tests.conftest import RealReactor
from tests.fakes.broker import (
    BEGIN_MS,
    BrokerFixture,
    Connection,
    HeldSyncer,
    LogKeeper,
    batch,
    error_of,
    is_reply,
)
from tinymq import connections
from tinymq.caller import LOCAL, Caller
from tinymq.connection import LINGER, READ_SIZE, REASON_BYTES
from tinymq.connections import TAKEN_OVER
from tinymq.errors import ShuttingDown, StateError, UnknownClient
from tinymq.limits import DEFAULT_LIMITS
from tinymq.logs import Logs
from tinymq.meta.registry import Topic
from tinymq.protocol import BrokerProtocol
from tinymq.stats import Counters, Rates
from tinymq.transports import unsent
from tinymq.wire.frames import encode_frame
from tinymq.wire.header import REPLY, MessageType
from tinymq.wire.messages import (
    Fetch,
    Goodbye,
    Hello,
    HelloReply,
    Operate,
    Ping,
    Produce,
    ProduceReply,
)

#: What a client may call itself to do harm to pages and logs.
HOSTILE = [
    '"><img src=x onerror=alert(1)>',
    "{peer}{0}%s\\",
    "a\r\n2026-01-01T00:00:00.000Z info     all is well",
    "\x1b[2J\u2028\u202e\x00",
]


def greet(fixture: BrokerFixture, **said: Any) -> tuple[Connection, HelloReply]:
    """Connect, and return what HELLO was answered with."""
    connection = fixture.connect(hello=False)
    frame = connection.ask(Hello(**said))
    assert is_reply(frame, MessageType.HELLO), frame
    return connection, HelloReply.from_meta(frame.split()[0])


def number(connection: Connection) -> int:
    """Say which number a connection has."""
    return connection.protocol.number


def farewell(connection: Connection) -> str:
    """Return the reason in the last frame, which must be the only one."""
    (frame,) = connection.frames()
    assert frame.type == MessageType.GOODBYE, frame
    return Goodbye.from_meta(frame.split()[0]).reason


class TestSnapshot:
    def test_who(self, fixture: BrokerFixture) -> None:
        """A client is shown with where it is, what it says of itself, and since when."""
        fixture.clock.advance(100)
        connection = fixture.connect(client_id="reports-1", software="example/1.0")
        fixture.wall.now_ms += 7000
        fixture.clock.advance(7)
        connection.post(Ping())
        fixture.wall.now_ms += 3000
        fixture.clock.advance(3)
        (client,) = fixture.factory.clients()
        assert client == fixture.factory.client(number(connection))
        assert (client.broker, client.broker_id) == (fixture.config.broker.name, 1)
        assert (client.client_id, client.agent) == ("reports-1", "example/1.0")
        assert (client.address, client.user) == ("192.0.2.1:54321", "anonymous")
        assert client.protocol == "tinymq/1"
        assert (client.since_ms, client.heard_ms) == (BEGIN_MS, BEGIN_MS + 7000)
        assert (client.pending, client.waiting) == (0, 0)
        assert client.buffered == len(connection.transport.value())
        assert client.slow_since_ms is None

    def test_numbers(self, fixture: BrokerFixture) -> None:
        """Numbers are never used again; clients are listed in the order in which they came."""
        first, second = fixture.connect(), fixture.connect()
        first.lose()
        third = fixture.connect()
        numbers = [number(each) for each in (first, second, third)]
        assert len(set(numbers)) == 3
        assert [each.id for each in fixture.factory.clients()] == numbers[1:]
        with pytest.raises(UnknownClient, match="list the clients"):
            fixture.factory.client(numbers[0])

    def test_before_hello(self, fixture: BrokerFixture) -> None:
        """Who has not said HELLO yet is there, without a name."""
        fixture.connect(hello=False)
        (client,) = fixture.factory.clients()
        assert (client.client_id, client.agent, client.protocol) == ("", "", "")
        fixture.clock.pump([1] * (DEFAULT_LIMITS.hello_seconds + 1))
        assert fixture.factory.clients() == []

    @pytest.mark.parametrize("text", HOSTILE)
    def test_hostile(self, fixture: BrokerFixture, text: str) -> None:
        """What a client says of itself is data, and stays what it is."""
        connection = fixture.connect(client_id=text, software=text)
        client = fixture.factory.client(number(connection))
        assert (client.client_id, client.agent) == (text, text)

    def test_waiting(self, held: BrokerFixture, syncer: HeldSyncer) -> None:
        """Batches that wait for the disk and reads that wait for records are shown."""
        topic = held.meta.describe("t")
        connection = held.connect()
        data = batch(b"a", b"b")
        connection.post(Produce(topic_id=topic.id, partition=0), data)
        for _ in range(3):
            connection.post(Fetch(topics=[(topic.id, [(0, 0, -1)])], max_wait_ms=60_000))
        client = held.factory.client(number(connection))
        assert (client.pending, client.waiting) == (len(data), 3)
        held.turn()
        syncer.release()
        client = held.factory.client(number(connection))
        assert (client.pending, client.waiting) == (0, 0)

    def test_slow(self, fixture: BrokerFixture, topic: Topic) -> None:
        """A reader that never reads is shown: which one, how much, since when."""
        for _ in range(20):
            fixture.produce(b"x" * 250_000)
        slow, quick = fixture.connect(client_id="slow"), fixture.connect(client_id="quick")
        slow.transport.peer_reads = False
        fixture.clock.advance(5)
        fixture.wall.now_ms += 5000
        fetch = Fetch(topics=[(topic.id, [(0, 0, -1)])], max_bytes=1 << 20)
        for _ in range(20):
            slow.post(fetch)
        for _ in range(60):
            fixture.clock.advance(1)
            fixture.wall.now_ms += 1000
            quick.ask(fetch)
        by_name = {each.client_id: each for each in fixture.factory.clients()}
        assert by_name["quick"].slow_since_ms is None
        client = by_name["slow"]
        assert client.slow_since_ms == BEGIN_MS + 5000
        assert client.buffered == len(slow.transport.value()) > READ_SIZE
        assert client.waiting > 10
        slow.transport.peer_reads = True
        while slow.paused():
            slow.transport.drain()
        client = fixture.factory.client(number(slow))
        assert (client.slow_since_ms, client.waiting) == (None, 0)

    def test_ten_thousand(self, fixture: BrokerFixture) -> None:
        """All clients of a full broker are listed within a tenth of a second."""
        factory, transport = fixture.factory, fixture.connect().transport
        hello = Hello(client_id="c", software="s")
        for _ in range(10_000):
            connection = BrokerProtocol(factory, "192.0.2.1:5")
            connection.transport, connection.hello = transport, hello
            factory.joined(connection)
        taken = []
        for _ in range(5):  # the machine may be busy with something else
            begun = time.process_time()
            clients = factory.clients()
            taken.append(time.process_time() - begun)
            assert len(clients) == 10_001
            if taken[-1] < 0.1:
                break
        assert min(taken) < 0.1, taken


class TestTraffic:
    def test_counters(self, fixture: BrokerFixture, topic: Topic) -> None:
        """Records are those of accepted batches and of reads, bytes those of all frames."""
        connection = fixture.connect(hello=False)
        sent, got = 0, 0

        def exchange(message: Any, payload: bytes = b"") -> None:
            nonlocal sent, got
            frame = encode_frame(message.type, 1, message.to_meta(), [payload] if payload else [])
            data = b"".join(frame)
            sent += len(data)
            connection.feed(data)
            fixture.turn()
            got += len(connection.transport.value())
            assert len(connection.frames()) == 1

        exchange(Hello())
        produce = Produce(topic_id=topic.id, partition=0)
        exchange(produce, batch(b"a", b"b", b"c", producer=(7, 0, 0)))
        exchange(produce, batch(b"a", b"b", b"c", producer=(7, 0, 0)))  # a duplicate
        exchange(produce, batch(b"d"))
        exchange(produce, b"bad")
        exchange(Fetch(topics=[(topic.id, [(0, 0, -1)])]))
        exchange(Fetch(topics=[(topic.id, [(0, 3, -1)])]))
        exchange(Fetch(topics=[(topic.id, [(0, 99, -1)])]))
        client = fixture.factory.client(number(connection))
        assert client.counters == Counters(4, 5, sent, got)

    def test_many_partitions(self, fixture: BrokerFixture) -> None:
        """Of a read from many partitions each counts, and those that fail do not."""
        wide = fixture.topic("wide", partitions=3)
        other = fixture.topic("other")
        for index, values in ((0, (b"a",)), (2, (b"b", b"c"))):
            fixture.produce(*values, topic="wide", partition=index)
        fixture.produce(b"d", b"e", b"f", topic="other")
        connection = fixture.connect()
        rows = [(0, 0, -1), (1, 0, -1), (2, 1, -1), (9, 0, -1)]
        connection.ask(Fetch(topics=[(wide.id, rows), (wide.id, [(2, 0, -1)])]))
        connection.ask(Fetch(topics=[(other.id, [(0, 1, -1)]), (bytes(16), [(0, 0, -1)])]))
        assert fixture.factory.client(number(connection)).counters.messages_out == 1 + 1 + 2 + 2

    def test_every_slice(self, fixture: BrokerFixture, monkeypatch: pytest.MonkeyPatch) -> None:
        """However many connections there are, all are looked at, some of them in one turn."""
        monkeypatch.setattr(connections, "SLICE", 2)
        made = [fixture.connect() for _ in range(5)]
        for connection in made:
            connection.ask(Ping())
        fixture.clock.advance(1)
        rates = [fixture.factory.client(number(each)).rates.bytes_in for each in made]
        assert min(rates) == max(rates) > 0
        for _ in range(60):
            fixture.clock.advance(1)
        assert fixture.factory.clients() == []

    def test_rates(self, fixture: BrokerFixture, topic: Topic) -> None:
        """Rates follow what goes through, and only who moves is looked at."""
        busy, idle = fixture.connect(heartbeat=15), fixture.connect(heartbeat=15)
        fixture.clock.pump([1] * 14)
        assert fixture.factory.moved == set()
        produce = Produce(topic_id=topic.id, partition=0)
        for second in range(20):
            for _ in range(5):
                busy.post(produce, batch(b"a", b"b"))
            fixture.clock.advance(0.5)
            assert (busy.protocol in fixture.factory.moved) or second == 0
            fixture.clock.advance(0.5)
        rates = fixture.factory.client(number(busy)).rates
        assert rates.messages_in == pytest.approx(10)
        assert rates.messages_out == 0
        assert rates.bytes_in > rates.bytes_out > 0
        assert fixture.factory.client(number(idle)).rates.messages_in == 0
        for _ in range(14):
            fixture.clock.advance(1)
        assert fixture.factory.client(number(busy)).rates.messages_in == 0
        busy.lose()
        assert busy.protocol not in fixture.factory.moved

    def test_idle_costs_nothing(self, fixture: BrokerFixture) -> None:
        """Who neither sends nor is sent anything is left out until it moves, then starts anew."""
        connection = fixture.connect(heartbeat=15)
        fixture.clock.pump([1] * 14)
        assert fixture.factory.client(number(connection)).rates == Rates()
        assert fixture.factory.moved == set()
        connection.post(Ping())
        assert fixture.factory.moved == {connection.protocol}
        fixture.clock.advance(1)
        assert fixture.factory.client(number(connection)).rates.bytes_in == pytest.approx(12)


class TestUnsent:
    def test_socket(self, fixture: BrokerFixture, topic: Topic, real: RealReactor) -> None:
        """Of Twisted's own sockets it is known what their peers did not read."""
        for _ in range(10):
            fixture.produce(b"x" * 900_000)

        async def body(reactor: SelectReactor) -> None:
            port = reactor.listenTCP(0, fixture.factory, interface="127.0.0.1")
            peer = socket.create_connection(("127.0.0.1", port.getHost().port))
            fetch = Fetch(topics=[(topic.id, [(0, 0, -1)])], max_bytes=1 << 20)
            frames = [encode_frame(MessageType.HELLO, 1, Hello().to_meta())]
            frames += [encode_frame(fetch.type, 2 + n, fetch.to_meta()) for n in range(50)]
            peer.sendall(b"".join(b"".join(frame) for frame in frames))
            seen = None
            while True:  # until the system takes no more, either
                await deferLater(reactor, 0.02)
                fixture.clock.advance(0)  # those whose turn it is
                (client,) = fixture.factory.clients() or (None,)
                if client is not None and client.slow_since_ms is not None and client == seen:
                    break
                seen = client
            assert client.buffered > 0
            # The rest is with the system, which needs nobody's help to hand it over.
            left = client.counters.bytes_out - client.buffered
            peer.settimeout(5)
            while left:
                left -= len(peer.recv(left))
            peer.setblocking(False)
            with pytest.raises(BlockingIOError):
                peer.recv(1)
            fixture.factory.kick(client.id, "too slow")
            fixture.clock.advance(LINGER + 0.1)
            while fixture.factory.connections:
                await deferLater(reactor, 0.001)
            peer.close()
            await port.stopListening()

        real(body)

    def test_foreign(self) -> None:
        """Of a transport that has no such buffers nothing is claimed."""
        assert unsent(object()) == 0


class TestKick:
    def test_reason(self, fixture: BrokerFixture, logged: LogKeeper) -> None:
        """A client that is closed hears why, the log says who it was, and others stay."""
        connection, other = fixture.connect(client_id="noisy"), fixture.connect()
        before = fixture.factory.client(number(connection))
        assert fixture.factory.kick(number(connection), "maintenance at noon") == before
        assert farewell(connection) == "maintenance at noon"
        assert connection.closed
        assert is_reply(other.ask(Ping()), MessageType.PING)
        (line,) = logged.texts
        for part in ("noisy", "192.0.2.1:54321", "anonymous", "maintenance at noon"):
            assert part in line
        assert [each.id for each in fixture.factory.clients()] == [number(other)]

    def test_gone(self, fixture: BrokerFixture) -> None:
        """Who is gone, or about to be, or was never there cannot be closed."""
        lost, closing = fixture.connect(), fixture.connect()
        lost.lose()
        fixture.factory.kick(number(closing), "x")
        for unknown in (number(lost), number(closing), 0, 99, -1):
            with pytest.raises(UnknownClient):
                fixture.factory.kick(unknown, "x")

    def test_open_requests(self, fixture: BrokerFixture, topic: Topic) -> None:
        """Requests without effect are refused in order; they may be asked of another connection."""
        connection = fixture.connect()
        fetch = Fetch(topics=[(topic.id, [(0, 0, -1)])], max_wait_ms=60_000)
        sent = [connection.post(fetch) for _ in range(20)]
        fixture.factory.kick(number(connection), "enough")
        *refused, goodbye = connection.frames()
        assert [each.message_id for each in refused] == sent
        errors = [error_of(each) for each in refused]
        assert all(type(each) is StateError and each.retriable for each in errors)
        assert {each.text for each in errors} == {"enough"}
        assert goodbye.type == MessageType.GOODBYE
        assert fixture.partition().watchers == set()

    def test_staged(self, held: BrokerFixture, syncer: HeldSyncer) -> None:
        """Batches on their way to the disk are acknowledged in order before the end, and kept."""
        connection = held.connect()
        produce = Produce(topic_id=held.meta.describe("t").id, partition=0)
        sent = [connection.post(produce, batch(b"%d" % n)) for n in range(9)]
        held.factory.kick(number(connection), "enough")
        late = connection.post(produce, batch(b"late"))
        assert connection.frames() == []
        held.turn()
        syncer.release()
        *answers, goodbye = connection.frames()
        assert [each.message_id for each in answers] == sent
        offsets = [ProduceReply.from_meta(each.split()[0]).base_offset for each in answers]
        assert offsets == list(range(9))
        assert goodbye.type == MessageType.GOODBYE
        assert late not in {each.message_id for each in answers}
        assert connection.closed
        assert held.values() == [b"%d" % n for n in range(9)]

    def test_staged_and_failed(self, held: BrokerFixture, syncer: HeldSyncer) -> None:
        """If the disk fails meanwhile, each batch is told so in order; none is acknowledged."""
        connection = held.connect()
        produce = Produce(topic_id=held.meta.describe("t").id, partition=0)
        sent = [connection.post(produce, batch(b"%d" % n)) for n in range(5)]
        held.turn()
        held.factory.kick(number(connection), "enough")
        syncer.release(OSError(5, "the disk broke"))
        *answers, goodbye = connection.frames()
        assert [each.message_id for each in answers] == sent
        assert {each.type for each in answers} == {MessageType.ERROR}
        assert goodbye.type == MessageType.GOODBYE

    @pytest.mark.parametrize("name", ["topic.list", "no.such"])
    def test_itself(self, fixture: BrokerFixture, name: str) -> None:
        """A client that closes its own connection gets one answer to its request."""
        connection = fixture.connect()
        operations = fixture.operations
        kick = fixture.factory.kick

        class Kicking:
            """Operations with one that closes its caller."""

            async def run(
                self, name: str, arguments: Mapping[str, Any], caller: Caller = LOCAL
            ) -> dict[str, Any]:
                kick(number(connection), name)
                return await operations.run(name, arguments, caller)

        fixture.factory.operations = Kicking()
        connection.post(Operate(name=name))
        answer, goodbye = connection.frames()
        assert isinstance(error_of(answer), StateError)
        assert goodbye.type == MessageType.GOODBYE

    @pytest.mark.parametrize("reason", ["", "ä" * 3000, "\ud800", *HOSTILE])
    def test_any_reason(self, fixture: BrokerFixture, logged: LogKeeper, reason: str) -> None:
        """Whatever the reason holds, the client can read it, and the log line is one line."""
        connection = fixture.connect()
        fixture.factory.kick(number(connection), reason)
        told = farewell(connection)
        assert len(told.encode()) <= REASON_BYTES
        assert told == reason.encode("utf-8", "replace").decode()[: len(told)]
        assert all(line.isprintable() for line in logged.texts)

    @pytest.mark.parametrize("text", HOSTILE)
    def test_log_lines(self, fixture: BrokerFixture, logged: LogKeeper, text: str) -> None:
        """No client id forges a line of the log, in neither form."""
        connection = fixture.connect(client_id=text)
        fixture.factory.kick(number(connection), text)
        (event,) = logged.events
        for form in ("text", "json"):
            (line,) = written(form, event).splitlines()
            assert line.isprintable()
        facts = json.loads(written("json", event))["facts"]
        assert (facts["client_id"], facts["reason"]) == (text, text)


def written(form: str, event: LogEvent) -> str:
    """What a log file holds of an event."""
    output = io.StringIO()
    Logs(output, form, "info").observer(event)
    return output.getvalue()


class TestSession:
    def test_taken_over(self, fixture: BrokerFixture, logged: LogKeeper) -> None:
        """Who comes again while its old connection is there goes on; the old one is closed."""
        old, first = greet(fixture, client_id="a")
        new, second = greet(fixture, client_id="a", session=first.session)
        assert (first.resumed, second.resumed) == (False, True)
        assert second.session == first.session
        assert farewell(old) == TAKEN_OVER
        assert old.closed
        assert is_reply(new.ask(Ping()), MessageType.PING)
        assert [each.id for each in fixture.factory.clients()] == [number(new)]
        assert len(logged.texts) == 1
        old.lose()  # later than the new one came
        third, reply = greet(fixture, client_id="a", session=first.session)
        assert reply.resumed
        assert farewell(new) == TAKEN_OVER
        assert not third.closed

    def test_ended_before(self, fixture: BrokerFixture) -> None:
        """A session whose connection ended in order is gone on with, but nothing was taken over."""
        old, first = greet(fixture)
        old.lose()
        other, second = greet(fixture, session=first.session)
        assert (second.session, second.resumed) == (first.session, False)
        other.send(MessageType.GOODBYE, 0, {})  # closing, and not lost yet
        third, reply = greet(fixture, session=first.session)
        assert (reply.session, reply.resumed) == (first.session, False)
        other.lose()
        _, again = greet(fixture, session=first.session)
        assert again.resumed
        assert third.closed

    def test_of_another_client(self, fixture: BrokerFixture) -> None:
        """The session of a client with another name is not given away, and a new one is."""
        old, first = greet(fixture, client_id="a")
        _, second = greet(fixture, client_id="b", session=first.session)
        assert second.session != first.session
        assert not second.resumed
        assert not old.closed

    def test_after_a_restart(self, fixture: BrokerFixture) -> None:
        """A broker that has started again keeps the id that the client brings."""
        _, first = greet(fixture)
        fixture.kill()
        _, second = greet(fixture.again(), session=first.session)
        assert (second.session, second.resumed) == (first.session, False)

    def test_staged(self, held: BrokerFixture, syncer: HeldSyncer) -> None:
        """What the old connection staged is stored once, though the new one sends it again."""
        produce = Produce(topic_id=held.meta.describe("t").id, partition=0)
        data = batch(b"a", b"b", producer=(7, 0, 0))
        old, first = greet(held)
        old.post(produce, data)
        new, _ = greet(held, session=first.session)
        again = new.post(produce, data)
        held.turn()
        syncer.release()
        answer, goodbye = old.frames()
        assert ProduceReply.from_meta(answer.split()[0]).base_offset == 0
        assert goodbye.type == MessageType.GOODBYE
        (frame,) = new.frames()
        assert (frame.type, frame.message_id) == (MessageType.PRODUCE | REPLY, again)
        assert ProduceReply.from_meta(frame.split()[0]).duplicate
        assert held.values() == [b"a", b"b"]
        assert held.factory.client(number(old) + 1).counters.messages_in == 0

    def test_forgotten(self, fixture: BrokerFixture) -> None:
        """Sessions of connections that ended leave nothing behind."""
        connections = [fixture.connect() for _ in range(5)]
        for connection in connections:
            connection.lose()
        assert fixture.factory._sessions == {}
        assert fixture.factory._by_number == {}
        assert fixture.factory.moved == set()


class TestCaller:
    def test_end(self, fixture: BrokerFixture) -> None:
        """Operations can hear of the end of the connection that asked for them."""
        connection = fixture.connect()
        caller = connection.protocol.caller
        assert (caller.principal, caller.peer) == ("anonymous", "192.0.2.1:54321")
        heard: list[str] = []
        caller.on_gone(lambda: heard.append("gone"))
        fixture.factory.kick(number(connection), "x")
        assert heard == []
        connection.lose()
        assert heard == ["gone"]


def test_stop_says_so(fixture: BrokerFixture, topic: Topic) -> None:
    """A broker that stops tells open requests that it does, which is not what a kick says."""
    connection = fixture.connect()
    connection.post(Fetch(topics=[(topic.id, [(0, 0, -1)])], max_wait_ms=60_000))
    fixture.factory.close_all("stopping")
    assert isinstance(error_of(connection.frames()[0]), ShuttingDown)
    assert fixture.factory.buildProtocol(IPv4Address("TCP", "192.0.2.1", 5)) is not None
