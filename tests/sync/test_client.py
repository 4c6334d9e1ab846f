"""The blocking face, on real sockets."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.sync.server import Server
from tinymq.client.core.fork import Home, Process
from tinymq.errors import (
    BufferFull,
    ClientError,
    ClosedError,
    DeadlineExceeded,
    ForkedError,
    InvalidDelay,
    InvalidRequest,
    NoBroker,
    OffsetOutOfRange,
    StorageFull,
    UnknownTopic,
    UnreachableError,
    Unroutable,
    UsageError,
    ValueTooLarge,
)
from tinymq.sync import (
    EARLIEST,
    LATEST,
    Account,
    Client,
    ClientConfig,
    ConsumerConfig,
    Delayed,
    Position,
    Producer,
    ProducerConfig,
    Sent,
    Survey,
)
from tinymq.sync.network import SocketNetwork
from tinymq.wire.header import MessageType
from tinymq.wire.messages import Produce


@pytest.fixture
def server() -> Iterator[Server]:
    """Return a running puppet broker."""
    with Server() as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    """Return a client of it."""
    config = ClientConfig(deadline_s=2, connect_timeout_s=1, request_timeout_s=1)
    with Client(server.url, config) as client:
        yield client
        server.puppet.deaf = set()


def test_send(server: Server, client: Client) -> None:
    """A record is stored when the call returns."""
    with client.producer() as producer:
        position = producer.send("t", b"a", key="k", headers={"h": b"1"})

        assert isinstance(position, Position)
        assert position[:3] == ("t", 0, 0)
        assert producer.send("t", b"b").offset == 1
        assert server.puppet.values("t") == [b"a", b"b"]


def test_send_batch(server: Server, client: Client) -> None:
    """Many records are cut, pipelined and all stored in order when the call returns."""
    values = [b"%0100d" % number for number in range(20_000)]
    producer = client.producer()
    sent = producer.send_batch("t", values, keys=[b"k"] * len(values))

    assert isinstance(sent, Sent)
    assert sent.count == 20_000
    assert sent.positions == [(0, 0, 20_000)]
    assert sum(isinstance(request, Produce) for request in server.puppet.seen) > 30
    assert values == server.puppet.values("t")


def test_large_values(server: Server, client: Client) -> None:
    """Values far larger than a socket's buffer go through."""
    value = os.urandom(1 << 20) * 6
    with client.producer() as producer:
        producer.send_batch("t", [value] * 3)

    assert [value] * 3 == server.puppet.values("t")


def test_oneway_and_flush(server: Server, client: Client) -> None:
    """Oneway records are accounted for by flush and close."""
    producer = client.producer(ProducerConfig(linger_ms=50))
    for number in range(200):
        producer.send_oneway("t", b"%d" % number)
    assert producer.pending > 0

    assert Account(200, 0, 0, (), 0) == producer.flush() == producer.close() == producer.account
    assert [b"%d" % number for number in range(200)] == server.puppet.values("t")
    with pytest.raises(ClosedError):
        producer.send("t", b"late")


def test_waits_for_room(server: Server, client: Client) -> None:
    """A full buffer makes the call wait, or fail if the settings say so."""
    producer = client.producer(ProducerConfig(buffer_bytes=2000, linger_ms=1))
    for _ in range(50):
        producer.send_oneway("t", bytes(500))
    assert producer.flush().sent == 50

    server.puppet.deaf = {MessageType.PRODUCE}
    strict = client.producer(ProducerConfig(buffer_bytes=100, on_full="error", deadline_s=0.1))
    strict.send_oneway("t", bytes(500))
    with pytest.raises(BufferFull):
        strict.send("t", b"x")
    waiting = client.producer(ProducerConfig(buffer_bytes=100, deadline_s=0.1))
    waiting.send_oneway("t", bytes(500))
    with pytest.raises(ClientError):
        waiting.send("t", b"x")


def test_errors(server: Server, client: Client) -> None:
    """The broker's errors and our own are raised."""
    producer = client.producer(ProducerConfig(create_topics=False))
    with pytest.raises(UnknownTopic):
        producer.send("nix", b"x")
    with pytest.raises(UnknownTopic):
        producer.send_batch("nix", [b"x"])
    with pytest.raises(ValueTooLarge):
        producer.send("nix", bytes(17 << 20))
    with pytest.raises(UsageError):
        producer.send_batch("nix", [])
    with pytest.raises(UnknownTopic):
        client.metadata(["nix"])
    with pytest.raises(InvalidRequest):
        client.admin.operate("nix")


def test_full_disk(server: Server, client: Client) -> None:
    """A broker that refuses writes fails the call within its deadline; close returns."""
    server.puppet.refuse = lambda request: StorageFull() if isinstance(request, Produce) else None
    producer = client.producer(ProducerConfig(deadline_s=0.1))
    with pytest.raises(StorageFull):
        producer.send("t", b"x")
    producer.send_oneway("t", b"y")
    account = producer.close()

    assert [account.sent, account.failed_count] == [0, 2]


def test_consume(server: Server, client: Client) -> None:
    """A for loop reads batches until the consumer is closed."""
    producer = client.producer()
    producer.send_batch("t", [b"a", b"b"])
    with client.consumer() as consumer:
        consumer.assign("t")
        found: list[bytes | None] = []
        for batch in consumer:
            found += batch.values
            if len(found) == 2:
                producer.send("t", b"c")
            if len(found) == 3:
                consumer.close()

        assert found == [b"a", b"b", b"c"]


def test_consumer_moves(server: Server, client: Client) -> None:
    """Pause, resume, seek, positions and ends."""
    producer, consumer = client.producer(), client.consumer()
    producer.send_batch("t", [b"a", b"b"])
    consumer.assign("t", start=LATEST)
    assert consumer.next_batch(0.02) is None
    assert [
        consumer.end_offsets("t"),
        consumer.position("t", 0),
        consumer.gaps,
        consumer.assigned,
    ] == [{0: 2}, 2, 0, [("t", 0)]]
    consumer.pause("t")
    with pytest.raises(UsageError, match="paused"):
        consumer.next_batch()
    consumer.resume("t")
    consumer.seek("t", 0, 1)
    batch = consumer.next_batch()
    assert batch is not None
    assert batch.values == [b"b"]
    consumer.unassign("t")
    with pytest.raises(UsageError, match="assign"):
        consumer.next_batch()


def test_a_survey(server: Server, client: Client) -> None:
    """Offsets by time come from the brokers that answer; the others are named in time."""
    client.producer().send_batch("t", [b"a", b"b"])
    found = client.survey("t", [0], LATEST)
    assert (found.offsets, found.faults) == ({0: 2}, {})
    assert client.survey("t", [0], EARLIEST, 1).offsets == {0: 0}
    assert client.survey("t", [], LATEST) == Survey({}, {})
    with pytest.raises(UnknownTopic):
        client.survey("nix", [0], LATEST)
    with server.lock:
        server.puppet.deaf = {int(MessageType.OFFSETS)}
    silent = client.survey("t", [0], LATEST, 0.05)
    assert isinstance(silent.faults[0], DeadlineExceeded)


def test_consumer_errors(server: Server, client: Client) -> None:
    """Errors of partitions and topics are raised; iteration goes on afterwards."""
    producer, consumer = client.producer(), client.consumer()
    producer.send("t", b"a")
    producer.send("t", b"b")
    with server.lock:
        server.puppet.topics["t"].logs[0].start = 1
    with pytest.raises(UnknownTopic):
        consumer.assign("nix")
    with pytest.raises(UnknownTopic):
        consumer.end_offsets("nix")
    consumer.assign("t", start=0)
    for _ in range(2):
        with pytest.raises(OffsetOutOfRange):
            next(consumer)
    consumer.seek("t", 0, 1)

    assert next(consumer).values == [b"b"]


def test_admin_and_metadata(server: Server, client: Client) -> None:
    """Operations return maps; topics are described."""
    server.puppet.operations["broker.info"] = lambda: {"ready": True}

    assert client.admin.broker_info() == {"ready": True}
    assert client.metadata(["t"], create=True)["t"].partitions == 1


def test_send_later(client: Client) -> None:
    """A record that waits until it is due has an id instead of an offset; wrong times fail."""
    producer = client.producer()
    delayed = producer.send("t", b"a", delay=5)
    at = producer.send("t", b"b", at=1_900_000_000_000, ttl=3)
    sent = producer.send_batch("t", [b"c", b"d"], delay=[0, 1])
    producer.send_oneway("t", b"e", delay=1)
    for wrong in (
        lambda: producer.send("t", b"x", delay=-1),
        lambda: producer.send_batch("t", [b"x"], ttl=0),
        lambda: producer.send_oneway("t", b"x", at=-1),
    ):
        with pytest.raises(InvalidDelay):
            wrong()

    assert isinstance(delayed, Delayed)
    assert (delayed.id, str(at)) == (0, "t/0~1")
    assert sent == Sent(2, [(0, 0, 1)], delayed=[(0, 2, 1)])
    assert producer.close().sent == 5


def test_send_to_nowhere(server: Server, client: Client) -> None:
    """A record that no binding of an exchange takes fails with its place, by both ways."""
    producer = client.producer()
    producer.send("t", b"a")
    server.puppet.unroutable = b"\x01"
    for headers in (None, {"a": b"b"}):
        with pytest.raises(Unroutable, match="t/0 offset"):
            producer.send("t", b"b", headers=headers)
    server.puppet.unroutable = None

    assert producer.send("t", b"c").offset == 3
    assert (producer.account.sent, producer.account.failed_count) == (2, 2)


def test_reconnects(server: Server, client: Client) -> None:
    """However often the link is cut: each record once, in order, and all are read."""
    producer = client.producer(ProducerConfig(deadline_s=20, batch_bytes=400))
    consumer = client.consumer()
    sent: list[bytes | None] = []
    with server.lock:
        server.cut_after = 7
    for round_ in range(8):
        values = [b"%d.%099d" % (round_, n) for n in range(20)]
        producer.send_batch("t", values)
        producer.send("t", b"%d" % round_)
        sent += [*values, b"%d" % round_]
    consumer.assign("t")
    found: list[bytes | None] = []
    while len(found) < len(sent):
        batch = consumer.next_batch(5)
        assert batch is not None
        found += batch.values

    assert sent == found == server.puppet.values("t")


@pytest.mark.parametrize(
    "begin",
    [
        lambda client: client.metadata(["t"]),
        lambda client: client.admin.operate("x"),
        lambda client: client.producer(ProducerConfig(deadline_s=0.1)).send("t", b"x"),
        lambda client: client.producer(ProducerConfig(deadline_s=0.1)).send_batch("t", [b"x"]),
        lambda client: client.consumer(ConsumerConfig(deadline_s=0.1)).assign("t"),
        lambda client: client.consumer(ConsumerConfig(deadline_s=0.1)).end_offsets("t"),
    ],
)
def test_silent_broker(server: Server, begin: Callable[[Client], Any]) -> None:
    """A broker that says nothing ends every call at its deadline."""
    with Client(server.url, ClientConfig(deadline_s=0.1)) as client:
        server.puppet.mute = set(MessageType)
        started = time.monotonic()
        with pytest.raises((DeadlineExceeded, UnreachableError)):
            begin(client)
        assert time.monotonic() - started < 1


def test_silence_while_reading(server: Server, client: Client) -> None:
    """Reading from a broker that fell silent ends after the deadline."""
    consumer = client.consumer(ConsumerConfig(give_up_s=0.1))
    server.puppet.make("t")
    consumer.assign("t", start=0)
    server.puppet.deaf = {MessageType.FETCH}

    with pytest.raises(ClientError):
        consumer.next_batch()


def test_nobody_there() -> None:
    """When nobody listens the call says so within its deadline."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    client = Client(f"tinymq://127.0.0.1:{port}", ClientConfig(deadline_s=0.1))
    with pytest.raises(UnreachableError, match="refused"):
        client.admin.broker_info()
    client.close()
    client.close()
    for make in (client.producer, client.consumer, client.admin.broker_info):
        with pytest.raises(ClosedError):
            make()


def test_nobody_is_waited_for() -> None:
    """A refused connection ends every kind of call at once, if the settings say so."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    url = f"tinymq://127.0.0.1:{port}"
    began = time.monotonic()
    with Client(url, ClientConfig(wait_for_broker=False)) as client:
        calls: list[Callable[[], Any]] = [
            client.admin.broker_info,
            lambda: client.producer().send("t", b"x"),
            lambda: client.producer().send_batch("t", [b"x"]),
            lambda: client.consumer().assign("t"),
            lambda: client.metadata(["t"]),
        ]
        for call in calls:
            with pytest.raises(NoBroker, match=f"no broker answers at {url}$"):
                call()
    assert time.monotonic() - began < 5


def test_reports_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Errors in functions of the caller are in the log, with their traceback."""
    SocketNetwork(ClientConfig()).report("on_gap failed", LookupError("of the caller"))

    assert "on_gap failed" in caplog.text
    assert "LookupError: of the caller" in caplog.text


def test_a_consumer_waits_for_ever(
    server: Server, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """A call without a time-out goes on after a pause of the broker, and logs it once."""
    server.puppet.make("t")
    client.metadata(["t"])
    consumer = client.consumer(ConsumerConfig(deadline_s=0.01))
    consumer.assign("t", start=0)  # asks nobody: that has to be within the deadline
    assert consumer.next_batch(timeout=0.02) is None
    server.cut()
    client.producer().send("t", b"a")
    batch = consumer.next_batch()

    assert batch is not None
    assert batch.values == [b"a"]
    lines = [record.getMessage().split(", ")[0] for record in caplog.records]
    assert lines == [
        "connection to broker puppet (1) lost",
        "connection to broker puppet (1) is back",
    ]


def test_threads_share_a_client(server: Server, client: Client) -> None:
    """Calls from several threads follow one another and lose nothing."""
    producer = client.producer()

    def work(number: int) -> None:
        for n in range(10):
            producer.send("t", b"%d.%d" % (number, n))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(server.puppet.values("t"))) == 40


def test_forked(client: Client) -> None:
    """In a child process every call is refused."""
    producer: Producer = client.producer()
    process = Process()
    loop, client._loop._home = client._loop, Home(process)
    process.pid = -1
    for call in (
        lambda: producer.send("t", b"x"),
        producer.flush,
        client.consumer,
        client.close,
        client.admin.broker_info,
    ):
        with pytest.raises(ForkedError):
            call()
    process.forked()
    assert loop is client._loop
